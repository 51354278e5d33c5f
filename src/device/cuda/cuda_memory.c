/* Device memory: plain blocks, ranges that grow in place, parallel uploads through pinned buffers.
 *
 *   thread w   produce -> pinned[w][0] -> copy on stream w     one part is produced
 *              produce -> pinned[w][1] -> copy on stream w     while the last one crosses the bus
 *
 * All pieces are cut into parts of about PART_BYTES; threads take the parts one by one from a
 * common atomic counter. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "device/cuda/cuda.h"

static void *as_pointer(cu_ptr p) { return (void *)(uintptr_t)p; }
static cu_ptr as_address(const void *p) { return (cu_ptr)(uintptr_t)p; }

vt_status vt_cuda_alloc(vt_cuda *c, size_t bytes, void **out, vt_err *err)
{
    cu_ptr p = 0;
    cu_result r = c->driver.mem_alloc(&p, bytes ? bytes : 1);
    if (r != 0) {
        size_t free_bytes = 0, total = 0;
        c->driver.mem_info(&free_bytes, &total);
        return vt_fail(
            err, VT_ERR_MEMORY, "%.1f MiB of GPU memory were asked for; %.1f of %.1f MiB are free",
            (double)bytes / 1048576, (double)free_bytes / 1048576, (double)total / 1048576);
    }
    *out = as_pointer(p);
    return VT_OK;
}

void vt_cuda_free(vt_cuda *c, void *p)
{
    if (p)
        c->driver.mem_free(as_address(p));
}

vt_status vt_cuda_pinned(vt_cuda *c, size_t bytes, void **out, vt_err *err)
{
    void *p = NULL;
    if (c->driver.host_alloc(&p, bytes ? bytes : 1, CU_HOST_PORTABLE) != 0)
        return vt_fail(err, VT_ERR_MEMORY, "%.1f MiB of pinned host memory could not be allocated",
                       (double)bytes / 1048576);
    *out = p;
    return VT_OK;
}

void vt_cuda_pinned_free(vt_cuda *c, void *p)
{
    if (p)
        c->driver.host_free(p);
}

/* ---- ranges ---- */

static cu_mem_prop device_memory(const vt_cuda *c)
{
    return (cu_mem_prop){.type = CU_MEM_TYPE_PINNED,
                         .location = {CU_MEM_LOCATION_DEVICE, c->device}};
}

vt_status cuda_range_init_parts(vt_cuda *c, int32_t n_parts, size_t bytes, cuda_range *r,
                                vt_err *err)
{
    enum { GRANULARITY_RECOMMENDED = 1 };
    cu_mem_prop prop = device_memory(c);
    size_t chunk = 0;
    cu_ptr base = 0;
    TRY(vt_cuda_check(c, c->driver.mem_granularity(&chunk, &prop, GRANULARITY_RECOMMENDED),
                      "asking for the granularity of GPU memory", err));
    size_t stride = vt_round_up(bytes ? bytes : 1, chunk);
    TRY(vt_cuda_check(c, c->driver.mem_reserve(&base, stride * (size_t)n_parts, 0, 0, 0),
                      "reserving GPU addresses", err));
    *r = (cuda_range){
        .base = as_pointer(base), .stride = stride, .chunk = chunk, .n_parts = n_parts};
    return VT_OK;
}

static bool give_back(vt_cuda *c, cu_ptr at, size_t bytes, cu_mem_handle handle)
{
    return c->driver.mem_unmap(at, bytes) == 0 && c->driver.mem_release(handle) == 0;
}

/* Creates device memory and maps it at [at, at + bytes). */
static vt_status back(vt_cuda *c, cu_ptr at, size_t bytes, cu_mem_handle *out, vt_err *err)
{
    cu_mem_prop prop = device_memory(c);
    cu_mem_access access = {.location = prop.location, .flags = CU_MEM_ACCESS_READ_WRITE};
    cu_mem_handle handle = 0;
    if (c->driver.mem_create(&handle, bytes, &prop, 0) != 0)
        return vt_fail(err, VT_ERR_MEMORY, "%.1f MiB more GPU memory could not be allocated",
                       (double)bytes / 1048576);
    vt_status status = vt_cuda_check(c, c->driver.mem_map(at, bytes, 0, handle, 0),
                                     "mapping GPU memory", err);
    if (status != VT_OK) {
        c->driver.mem_release(handle);
        return status;
    }
    status = vt_cuda_check(c, c->driver.mem_access(at, bytes, &access, 1),
                           "opening GPU memory for access", err);
    if (status != VT_OK)
        give_back(c, at, bytes, handle);
    else
        *out = handle;
    return status;
}

static cu_ptr part_address(const cuda_range *r, int32_t part)
{
    return as_address(r->base) + (size_t)part * r->stride;
}

static vt_status range_add(vt_cuda *c, cuda_range *r, size_t bytes, vt_err *err)
{
    size_t n = (size_t)r->n_growths + 1, parts = (size_t)r->n_parts;
    cu_mem_handle *handle = realloc(r->handle, n * parts * sizeof *handle);
    r->handle = handle ? handle : r->handle;
    size_t *growth = realloc(r->growth, n * sizeof *growth);
    r->growth = growth ? growth : r->growth;
    if (!handle || !growth)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for a list of GPU memory blocks");
    handle += (n - 1) * parts;
    for (int32_t i = 0; i < r->n_parts; i++) {
        vt_status status = back(c, part_address(r, i) + r->mapped, bytes, &handle[i], err);
        if (status == VT_OK)
            continue;
        while (i-- > 0)
            give_back(c, part_address(r, i) + r->mapped, bytes, handle[i]);
        return status;
    }
    growth[r->n_growths++] = bytes;
    r->mapped += bytes;
    return VT_OK;
}

vt_status cuda_range_grow(vt_cuda *c, cuda_range *r, size_t bytes, vt_err *err)
{
    if (bytes > r->stride)
        return vt_fail(err, VT_ERR_MEMORY, "a GPU range of %zu bytes cannot grow to %zu", r->stride,
                       bytes);
    size_t want = vt_round_up(bytes, r->chunk);
    return want > r->mapped ? range_add(c, r, want - r->mapped, err) : VT_OK;
}

void cuda_range_forget(cuda_range *r)
{
    free(r->handle);
    free(r->growth);
    *r = (cuda_range){0};
}

bool cuda_range_try_release(vt_cuda *c, cuda_range *r)
{
    size_t at = 0;
    for (int32_t g = 0; g < r->n_growths; at += r->growth[g++])
        for (int32_t i = 0; i < r->n_parts; i++)
            if (!give_back(c, part_address(r, i) + at, r->growth[g],
                           r->handle[(size_t)g * (size_t)r->n_parts + (size_t)i]))
                return false;
    if (r->base)
        c->driver.mem_unreserve(as_address(r->base), r->stride * (size_t)r->n_parts);
    cuda_range_forget(r);
    return true;
}

void cuda_range_release(vt_cuda *c, cuda_range *r)
{
    if (!cuda_range_try_release(c, r))
        cuda_range_forget(r);
}

/* ---- upload ---- */

/* A thread's stream and pinned buffers take milliseconds to make, one thread after the other, so it
 * is worth them only for THREAD_BYTES. */
enum { PART_BYTES = 2 << 20, MAX_UPLOAD_THREADS = 16, THREAD_BYTES = 4 << 20 };

typedef struct upload_job {
    vt_cuda *cuda;
    const cuda_upload *piece;
    const int64_t *first_part; /* [n + 1] */
    int32_t n;
    _Atomic int64_t next;
    atomic_bool failed;
    const atomic_bool *stop;
    pthread_mutex_t lock;
    vt_err err;
} upload_job;

typedef struct upload_worker {
    void *pinned[2];
    cu_event copied[2];
    cu_stream stream;
} upload_worker;

static size_t part_size(const cuda_upload *u)
{
    size_t grain = u->grain ? u->grain : 1;
    return grain >= PART_BYTES ? grain : PART_BYTES / grain * grain;
}

static vt_status worker_init(vt_cuda *c, upload_worker *w, size_t bytes, vt_err *err)
{
    TRY(vt_cuda_enter(c, err));
    TRY(vt_cuda_check(c, c->driver.stream_create(&w->stream, CU_STREAM_NON_BLOCKING, 0),
                      "making a stream", err));
    for (int i = 0; i < 2; i++) {
        TRY(vt_cuda_pinned(c, bytes, &w->pinned[i], err));
        TRY(vt_cuda_check(c, c->driver.event_create(&w->copied[i], CU_EVENT_NO_TIMING),
                          "making an event", err));
    }
    return VT_OK;
}

static void worker_release(vt_cuda *c, upload_worker *w)
{
    for (int i = 0; i < 2; i++) {
        vt_cuda_pinned_free(c, w->pinned[i]);
        if (w->copied[i])
            c->driver.event_destroy(w->copied[i]);
    }
    if (w->stream)
        c->driver.stream_destroy(w->stream);
}

static bool shall_stop(const upload_job *job)
{
    return atomic_load(&job->failed) || (job->stop && atomic_load(job->stop));
}

static vt_status copy_parts(upload_job *job, upload_worker *w, vt_err *err)
{
    vt_cuda *c = job->cuda;
    int32_t piece = 0;
    int turn = 0;
    for (int64_t part;
         (part = atomic_fetch_add(&job->next, 1)) < job->first_part[job->n] && !shall_stop(job);
         turn ^= 1) {
        while (job->first_part[piece + 1] <= part)
            piece++;
        const cuda_upload *u = &job->piece[piece];
        size_t begin = (size_t)(part - job->first_part[piece]) * part_size(u);
        size_t bytes = u->bytes - begin < part_size(u) ? u->bytes - begin : part_size(u);
        TRY(vt_cuda_check(c, c->driver.event_sync(w->copied[turn]), "waiting for an upload", err));
        u->produce(u->arg, w->pinned[turn], begin, bytes);
        TRY(vt_cuda_check(
            c,
            c->driver.copy_to_device(as_address(u->to) + begin, w->pinned[turn], bytes, w->stream),
            "uploading weights", err));
        TRY(vt_cuda_check(c, c->driver.event_record(w->copied[turn], w->stream),
                          "recording an event", err));
    }
    return vt_cuda_check(c, c->driver.stream_sync(w->stream), "waiting for an upload", err);
}

static void *upload_thread(void *arg)
{
    upload_job *job = arg;
    upload_worker w = {0};
    vt_err err = {0};
    size_t most = PART_BYTES;
    for (int32_t i = 0; i < job->n; i++)
        most = part_size(&job->piece[i]) > most ? part_size(&job->piece[i]) : most;
    vt_status status = worker_init(job->cuda, &w, most, &err);
    if (status == VT_OK)
        status = copy_parts(job, &w, &err);
    if (status != VT_OK) {
        atomic_store(&job->failed, true);
        pthread_mutex_lock(&job->lock);
        if (job->err.status == VT_OK)
            job->err = err;
        pthread_mutex_unlock(&job->lock);
    }
    worker_release(job->cuda, &w);
    return NULL;
}

vt_status vt_cuda_upload(vt_cuda *c, const cuda_upload *pieces, int32_t n, int32_t n_threads,
                         const atomic_bool *stop, vt_err *err)
{
    int64_t *first = vt_calloc((size_t)n + 1, sizeof *first);
    if (!first)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for a list of %d uploads", n);
    int64_t bytes = 0;
    for (int32_t i = 0; i < n; i++) {
        first[i + 1] = first[i] +
                       vt_ceil_div((int64_t)pieces[i].bytes, (int64_t)part_size(&pieces[i]));
        bytes += (int64_t)pieces[i].bytes;
    }
    upload_job job = {.cuda = c, .piece = pieces, .first_part = first, .n = n, .stop = stop};
    pthread_mutex_init(&job.lock, NULL);
    pthread_t thread[MAX_UPLOAD_THREADS];
    int64_t most = n_threads < MAX_UPLOAD_THREADS ? n_threads : MAX_UPLOAD_THREADS;
    most = most < first[n] ? most : first[n];
    most = most < 1 + bytes / THREAD_BYTES ? most : 1 + bytes / THREAD_BYTES;
    int32_t started = 0;
    while (started < most - 1 && pthread_create(&thread[started], NULL, upload_thread, &job) == 0)
        started++;
    upload_thread(&job);
    for (int32_t i = 0; i < started; i++)
        pthread_join(thread[i], NULL);
    pthread_mutex_destroy(&job.lock);
    free(first);
    if (job.err.status != VT_OK && err)
        *err = job.err;
    return job.err.status;
}
