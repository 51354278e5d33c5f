/* Running and timing communication ops on GPUs (ops/bench/comm_gpus.h).
 *
 * A graph holds many calls that follow each other on two alternating buffers, as in a step. All
 * ranks get the same graphs in turn; only the first can wait for the launches of the others.
 * Through the host's memory a call of some MiB takes so long that FEW_CALLS are enough for a graph,
 * and with CALLS of them a benchmark over four GPUs would take most of a minute. */
#include "ops/bench/comm_gpus.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/quant.h"
#include "base/stats.h"
#include "device/cuda/stamps.h"
#include "device/cuda/nccl.h"
#include "ops/all_gather/all_gather.h"
#include "ops/all_reduce/all_reduce.h"
#include "ops/all_reduce_rmsnorm/all_reduce_rmsnorm.h"
#include "ops/bench/comm_measure.h"
#include "ops/cases.h"
#include "ops/comm.h"
#include "ops/comm_inbox_params.h"
#include "ops/reduce_scatter/reduce_scatter.h"
#include "ops/sharded_rmsnorm/sharded_rmsnorm.h"

enum {
    SLOTS = 2,
    CALLS = 64,
    FEW_CALLS = 8,
    SLOW_BYTES = 1 << 20, /* a staged buffer of this size gets them */
    MOST_REPETITIONS = 200,
    PART_BYTES = 16 << 20,
    STAGE_BYTES = 8 << 20
};
enum { WINDOWS = SLOTS + 1, WINDOW_ALIGN = 4096 };

/* A rank's GPU, and the args of the present run. */
typedef struct member {
    vt_cuda *cuda;
    vt_cuda_lane lane;
    vt_comm_rank comm;
    void *flags, *part, *base;
    vt_tensor buffer[SLOTS], made, residual, y;
    vt_tensor weight, sum; /* of a norm; of a sharded one `residual` is x */
    union {
        all_reduce_args reduce; /* a norm's args begin with it */
        all_reduce_rmsnorm_args norm;
        sharded_rmsnorm_args sharded;
        reduce_scatter_args scatter;
        all_gather_args gather;
    } args[SLOTS];
    cuda_graph graph;
    cu_event event[MOST_REPETITIONS + 1];
    cuda_stamps stamps; /* of the run that tells waits */
    cuda_stamp_note note[CALLS * STAMP_LAUNCHES];
    nccl_window window[WINDOWS]; /* of `shared_of` */
} member;

struct comm_gpus {
    vt_comm *comm;
    vt_comm_gpu gpu;
    member rank[COMM_GPU_RANKS];
    int32_t n;
    int32_t calls;                                                   /* of a graph of this run */
    unsigned base;                                                   /* of the next call or graph */
    vt_tensor *host_x[COMM_GPU_RANKS], *host_residual, *host_weight; /* of the present run */
    int32_t ordinal[COMM_GPU_RANKS];
    vt_nccl *nccl; /* NULL: not added */
    bool theirs;   /* the tensors of the present run lie in memory that NCCL gave */
};

static cu_ptr at(const void *p) { return (cu_ptr)(uintptr_t)p; }

/* ---- opening ---- */

static vt_status open_member(comm_gpus *g, int32_t r, int32_t ordinal, vt_err *err)
{
    member *m = &g->rank[r];
    g->ordinal[r] = ordinal;
    TRY(vt_cuda_open(ordinal, &m->cuda, err));
    m->comm = (vt_comm_rank){.group = g->comm, .rank = r};
    m->lane = (vt_cuda_lane){.cuda = m->cuda, .pdl = m->cuda->level >= 90};
    const cuda_driver *d = &m->cuda->driver;
    TRY(vt_cuda_check(m->cuda, d->stream_create(&m->lane.stream, CU_STREAM_NON_BLOCKING, 0),
                      "making a stream", err));
    TRY(vt_cuda_alloc(m->cuda, COMM_CTAS * COMM_GPU_RANKS * 4, &m->flags, err));
    size_t shared = PART_BYTES + comm_inbox_bytes(g->n); /* of a staged group all is elsewhere */
    TRY(vt_cuda_alloc(m->cuda, shared, &m->part, err));
    TRY(vt_cuda_check(m->cuda, d->fill8(at(m->part), 0, shared, m->lane.stream), "clearing", err));
    TRY(vt_cuda_alloc(m->cuda, 4, &m->base, err));
    TRY(vt_cuda_check(m->cuda,
                      d->fill8(at(m->flags), 0, COMM_CTAS * COMM_GPU_RANKS * 4, m->lane.stream),
                      "clearing", err));
    for (int32_t i = 0; i <= MOST_REPETITIONS; i++)
        TRY(vt_cuda_check(m->cuda, d->event_create(&m->event[i], CU_EVENT_DEFAULT),
                          "making an event", err));
    g->gpu.flag[r] = m->flags;
    g->gpu.part[r] = m->part;
    return vt_cuda_check(m->cuda, d->stream_sync(m->lane.stream), "clearing", err);
}

/* The memory that all ranks share: the word of failures, and of a staged group all it meets by. */
static vt_status make_shared(comm_gpus *g, vt_err *err)
{
    static const size_t slot[VT_COMM_SLOTS] = {STAGE_BYTES, STAGE_BYTES};
    void *p;
    size_t bytes = g->gpu.staged ? vt_comm_stage_bytes(&g->gpu, g->n, slot) : sizeof(uint32_t);
    TRY(vt_cuda_pinned(g->rank[g->n - 1].cuda, bytes, &p, err));
    if (g->gpu.staged)
        vt_comm_stage_place(&g->gpu, g->n, slot, p);
    g->gpu.failed = p;
    *g->gpu.failed = 0;
    return VT_OK;
}

/* Returns true if each rank can access the memory of all others. */
static bool all_see_peers(const comm_gpus *g)
{
    bool sees = true;
    for (int32_t r = 0; r < g->n && sees; r++)
        for (int32_t k = 0; k < g->n && sees; k++)
            if (vt_cuda_sees_peer(g->rank[r].cuda, g->rank[k].cuda, &sees, NULL) != VT_OK)
                return false;
    return sees;
}

static vt_status open_all(comm_gpus *g, const int32_t *gpu, int32_t n, const char *link,
                          vt_err *err)
{
    if (n < 1 || n > COMM_GPU_RANKS)
        return vt_fail(err, VT_ERR_USAGE, "tp is %d, expected 1 to %d ranks on GPUs", n,
                       COMM_GPU_RANKS);
    g->n = n;
    g->gpu = (vt_comm_gpu){.part_bytes = PART_BYTES, .limit_ns = (uint64_t)10 * 1000000000};
    TRY(vt_comm_new(n, &g->comm, err));
    g->comm->gpu = &g->gpu;
    for (int32_t r = 0; r < n; r++) {
        TRY(open_member(g, r, gpu[r], err));
        for (int32_t k = 0; k < r; k++)
            g->gpu.together = g->gpu.together || gpu[k] == gpu[r];
    }
    g->gpu.staged = strcmp(link, "host") == 0 || (strcmp(link, "auto") == 0 && !all_see_peers(g));
    TRY(make_shared(g, err));
    vt_comm_limits_get(&(comm_set){g->rank[0].cuda, gpu, n, g->gpu.staged}, false, &g->gpu.limits);
    for (int32_t r = 0; r < n && !g->gpu.staged; r++)
        for (int32_t k = 0; k < n; k++) {
            TRY(vt_cuda_enter(g->rank[r].cuda, err));
            TRY(vt_cuda_open_peer(g->rank[r].cuda, g->rank[k].cuda, err));
        }
    return VT_OK;
}

vt_status comm_gpus_open(const int32_t *gpu, int32_t n, const char *link, comm_gpus **out,
                         vt_err *err)
{
    comm_gpus *g = vt_calloc(1, sizeof *g);
    if (!g)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for %d GPUs", n);
    vt_status status = open_all(g, gpu, n, link, err);
    if (status != VT_OK)
        comm_gpus_close(g);
    else
        *out = g;
    return status;
}

void comm_gpus_close(comm_gpus *g)
{
    if (!g)
        return;
    vt_nccl_close(g->nccl);
    for (int32_t r = g->n - 1; r >= 0; r--) {
        member *m = &g->rank[r];
        if (!m->cuda || vt_cuda_enter(m->cuda, NULL) != VT_OK)
            continue;
        for (int32_t i = 0; i <= MOST_REPETITIONS; i++)
            if (m->event[i])
                m->cuda->driver.event_destroy(m->event[i]);
        if (m->lane.stream)
            m->cuda->driver.stream_destroy(m->lane.stream);
        vt_cuda_free(m->cuda, m->flags);
        vt_cuda_free(m->cuda, m->part);
        vt_cuda_free(m->cuda, m->base);
        if (r == g->n - 1) /* where it was made */
            vt_cuda_pinned_free(m->cuda, g->gpu.failed);
    }
    for (int32_t r = 0; r < g->n; r++)
        vt_cuda_close(g->rank[r].cuda);
    vt_comm_free(g->comm);
    free(g);
}

const char *comm_gpus_link(const comm_gpus *g) { return g->gpu.staged ? "host" : "p2p"; }

const char *comm_gpus_name(const comm_gpus *g) { return g->rank[0].cuda->name; }

vt_comm_limits comm_gpus_limits(const comm_gpus *g) { return vt_comm_limits_of(g->comm); }

vt_status comm_gpus_add_nccl(comm_gpus *g, vt_err *err)
{
    return vt_nccl_open(g->ordinal, g->n, &g->nccl, err);
}

const char *comm_gpus_nccl(const comm_gpus *g) { return g->nccl ? g->nccl->version : NULL; }

/* ---- the tensors of a run ---- */

static bool is_gather(const comm_ask *a) { return a->op == &all_gather_op; }
static bool is_sharded(const comm_ask *a) { return a->op == &sharded_rmsnorm_op; }
static bool is_scatter(const comm_ask *a) { return a->op == &reduce_scatter_op; }

/* The type of results, and that of the buffers that peers read. */
static vt_dtype type_of(const comm_ask *a) { return is_gather(a) ? VT_F32 : VT_BF16; }
static vt_dtype buffer_type(const comm_ask *a) { return is_sharded(a) ? VT_F32 : type_of(a); }

/* Takes device memory for the present run, of NCCL in whole pages, which are what it registers. */
static vt_status take(const comm_gpus *g, member *m, size_t bytes, void **p, vt_err *err)
{
    if (!g->theirs)
        return vt_cuda_alloc(m->cuda, bytes, p, err);
    bytes = (bytes + WINDOW_ALIGN - 1) / WINDOW_ALIGN * WINDOW_ALIGN;
    return vt_nccl_check(g->nccl, g->nccl->f.mem_alloc(p, bytes), "allocating a buffer", err);
}

static void give_back(const comm_gpus *g, member *m, void *p)
{
    if (!g->theirs)
        vt_cuda_free(m->cuda, p);
    else if (p)
        g->nccl->f.mem_free(p);
}

/* Gives a tensor device memory; with `from` its values, which the type holds exactly afterwards. */
static vt_status place(const comm_gpus *g, member *m, vt_tensor *t, vt_dtype type, int64_t rows,
                       int64_t cols, const vt_tensor *from, vt_err *err)
{
    *t = vt_tensor_2d(NULL, type, rows, cols);
    size_t bytes = (size_t)vt_tensor_bytes(t);
    TRY(take(g, m, bytes, &t->data, err));
    char *image = from ? malloc(bytes) : NULL;
    if (!from)
        return VT_OK;
    if (!image)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for %zu bytes", bytes);
    if (type == VT_F32)
        memcpy(image, from->data, bytes);
    else
        vt_quant_row(type, from->data, image, rows * cols);
    cu_result r = m->cuda->driver.copy_to_device(at(t->data), image, bytes, m->lane.stream);
    if (r == 0)
        r = m->cuda->driver.stream_sync(m->lane.stream);
    free(image);
    return vt_cuda_check(m->cuda, r, "uploading", err);
}

/* Rounds a host tensor to what the GPU's type holds. */
static void round_to(vt_dtype type, vt_tensor *t)
{
    float *v = t->data;
    for (int64_t i = 0; type == VT_BF16 && i < vt_tensor_elems(t); i++)
        v[i] = vt_bf16_to_f32(vt_f32_to_bf16(v[i]));
}

static bool is_norm(const comm_ask *a) { return a->op == &all_reduce_rmsnorm_op; }
static bool has_residual(const comm_ask *a) { return a->residual || is_norm(a) || is_sharded(a); }

/* Makes what a norm has beside its sum. */
static vt_status make_norm(comm_gpus *g, const comm_ask *a, member *m, vt_err *err)
{
    TRY(place(g, m, &m->weight, VT_F32, 1, a->n, g->host_weight, err));
    TRY(place(g, m, &m->sum, type_of(a), a->rows, a->n, NULL, err));
    for (int32_t k = 0; k < SLOTS; k++) {
        all_reduce_args sum = m->args[k].reduce;
        sum.y = &m->sum;
        m->args[k].norm = (all_reduce_rmsnorm_args){
            .sum = sum, .weight = &m->weight, .y = &m->y, .eps = 1e-6f};
    }
    return VT_OK;
}

/* Makes what a norm over ranks has beside its sums: x is `residual`, the same on all ranks, so that
 * their results can be compared. */
static vt_status make_sharded(comm_gpus *g, const comm_ask *a, member *m, vt_err *err)
{
    TRY(place(g, m, &m->weight, VT_F32, 1, a->n, g->host_weight, err));
    for (int32_t k = 0; k < SLOTS; k++)
        m->args[k].sharded = (sharded_rmsnorm_args){
            .comm = &m->comm,
            .slot = (vt_comm_slot)k,
            .sums = &m->buffer[k],
            .part = {{.x = &m->residual, .weight = &m->weight, .y = &m->y, .whole = a->n * g->n}},
            .eps = 1e-6f};
    return VT_OK;
}

/* The columns of a rank's result. */
static int64_t columns_of(const comm_gpus *g, const comm_ask *a, int32_t r)
{
    return !is_scatter(a)
               ? a->n
               : reduce_scatter_begin(a->n, g->n, r + 1) - reduce_scatter_begin(a->n, g->n, r);
}

static vt_status make_member(comm_gpus *g, const comm_ask *a, int32_t r, vt_err *err)
{
    member *m = &g->rank[r];
    int64_t cols = g->host_x[r]->dim[1];
    TRY(vt_cuda_enter(m->cuda, err));
    TRY(place(g, m, &m->made, buffer_type(a), a->rows, cols, g->host_x[r], err));
    TRY(place(g, m, &m->y, type_of(a), a->rows, columns_of(g, a, r), NULL, err));
    if (has_residual(a))
        TRY(place(g, m, &m->residual, type_of(a), a->rows, a->n, g->host_residual, err));
    for (int32_t k = 0; k < SLOTS; k++) {
        vt_comm_slot slot = (vt_comm_slot)k;
        TRY(place(g, m, &m->buffer[k], buffer_type(a), a->rows, cols, g->host_x[r], err));
        g->comm->buffer[k][r] = &m->buffer[k];
        if (is_gather(a))
            m->args[k].gather = (all_gather_args){
                .comm = &m->comm, .slot = slot, .x = &m->buffer[k], .y = &m->y};
        else if (is_scatter(a))
            m->args[k].scatter = (reduce_scatter_args){
                .comm = &m->comm, .slot = slot, .x = &m->buffer[k], .y = &m->y};
        else
            m->args[k].reduce = (all_reduce_args){.comm = &m->comm,
                                                  .slot = slot,
                                                  .x = &m->buffer[k],
                                                  .residual = has_residual(a) ? &m->residual : NULL,
                                                  .y = &m->y};
    }
    if (is_sharded(a))
        return make_sharded(g, a, m, err);
    return is_norm(a) ? make_norm(g, a, m, err) : VT_OK;
}

/* The tensors that NCCL's peers read or write. */
static vt_tensor *shared_of(member *m, int32_t i) { return i < SLOTS ? &m->buffer[i] : &m->y; }

/* Registers the buffers of all ranks; `ns` gets the least time that one took. */
static vt_status register_buffers(comm_gpus *g, int64_t *ns, vt_err *err)
{
    for (int32_t i = 0; i < WINDOWS; i++) {
        void *p[COMM_GPU_RANKS];
        nccl_window window[COMM_GPU_RANKS] = {0};
        size_t bytes = (size_t)vt_tensor_bytes(shared_of(&g->rank[0], i));
        for (int32_t r = 0; r < g->n; r++)
            p[r] = shared_of(&g->rank[r], i)->data;
        int64_t begin = vt_now_ns();
        bytes = (bytes + WINDOW_ALIGN - 1) / WINDOW_ALIGN * WINDOW_ALIGN;
        TRY(vt_nccl_register(g->nccl, p, bytes, window, err));
        int64_t took = vt_now_ns() - begin;
        *ns = *ns == 0 || took < *ns ? took : *ns;
        for (int32_t r = 0; r < g->n; r++)
            g->rank[r].window[i] = window[r];
    }
    return VT_OK;
}

static void wait_member(member *m)
{
    if (vt_cuda_enter(m->cuda, NULL) == VT_OK)
        m->cuda->driver.stream_sync(m->lane.stream);
}

static void end_windows(comm_gpus *g, member *m)
{
    int32_t r = (int32_t)(m - g->rank);
    for (int32_t i = 0; i < WINDOWS; i++) {
        if (m->window[i])
            g->nccl->f.window_deregister(g->nccl->comm[r], m->window[i]);
        m->window[i] = NULL;
    }
}

static void release_member(comm_gpus *g, member *m)
{
    vt_tensor *t[] = {&m->made, &m->residual,  &m->y,        &m->weight,
                      &m->sum,  &m->buffer[0], &m->buffer[1]};
    if (vt_cuda_enter(m->cuda, NULL) != VT_OK)
        return;
    end_windows(g, m);
    cuda_graph_release(m->cuda, &m->graph);
    m->graph = (cuda_graph){0};
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        give_back(g, m, t[i]->data);
        *t[i] = (vt_tensor){0};
    }
}

static vt_status make_host(comm_gpus *g, const comm_ask *a, vt_arena *arena, vt_err *err)
{
    uint64_t seed = 1;
    for (int32_t r = 0; r <= g->n; r++) {
        bool mine = r < g->n, sums = mine && is_sharded(a);
        int64_t cols = mine && is_gather(a) ? a->n * (r + 1) / g->n - a->n * r / g->n
                       : sums               ? SHARDED_PARTS
                                            : a->n;
        float mean = sums ? (float)a->n : 0, scale = sums ? 0.1f * (float)a->n : 1;
        vt_tensor *t = case_tensor_2d(arena, VT_F32, a->rows, cols);
        t = a->unchecked ? t : case_fill(arena, t, mean, scale, &seed);
        if (!t)
            return vt_fail(err, VT_ERR_MEMORY, "out of memory for %lld values",
                           (long long)(a->rows * cols));
        if (!a->unchecked)
            round_to(mine ? buffer_type(a) : type_of(a), t);
        *(r < g->n ? &g->host_x[r] : &g->host_residual) = t;
    }
    g->host_weight = case_fill(arena, case_tensor_1d(arena, VT_F32, a->n), 1, 0.3f, &seed);
    return g->host_weight ? VT_OK : vt_fail(err, VT_ERR_MEMORY, "out of memory for weights");
}

/* ---- calls ---- */

static vt_status copy_in(member *m, int32_t slot, vt_err *err)
{
    cu_result r = m->cuda->driver.copy_device(at(m->buffer[slot].data), at(m->made.data),
                                              (size_t)vt_tensor_bytes(&m->made), m->lane.stream);
    return vt_cuda_check(m->cuda, r, "copying into a buffer", err);
}

static vt_status call_nccl(comm_gpus *g, const comm_ask *a, int32_t r, int32_t slot, vt_err *err)
{
    const vt_nccl *c = g->nccl;
    member *m = &g->rank[r];
    vt_tensor *x = &m->buffer[slot];
    size_t n = (size_t)vt_tensor_elems(x);
    int type = x->dtype == VT_BF16 ? NCCL_BF16 : NCCL_F32;
    if (is_gather(a))
        return vt_nccl_check(c,
                             c->f.gather(x->data, m->y.data, n, type, c->comm[r], m->lane.stream),
                             "ncclAllGather", err);
    if (is_scatter(a))
        return vt_nccl_check(c,
                             c->f.scatter(x->data, m->y.data, n / (size_t)g->n, type, NCCL_SUM,
                                          c->comm[r], m->lane.stream),
                             "ncclReduceScatter", err);
    return vt_nccl_check(
        c, c->f.sum(x->data, m->y.data, n, type, NCCL_SUM, c->comm[r], m->lane.stream),
        "ncclAllReduce", err);
}

static vt_status call(comm_gpus *g, const comm_ask *a, const vt_impl *impl, int32_t r,
                      unsigned order, vt_err *err)
{
    member *m = &g->rank[r];
    int32_t k = (int32_t)(order % SLOTS);
    m->stamps.call = (int32_t)order - 1;
    m->stamps.launch = 0;
    vt_size size = {.tokens = (int32_t)a->rows, .rows = (int32_t)a->rows};
    vt_target target = {
        .device = VT_DEVICE_CUDA, .level = m->cuda->level, .sm_count = m->cuda->sm_count};
    vt_lane lane = {
        .target = &target, .size = &size, .plan = m->base, .items = 1, .cuda = &m->lane};
    if (is_gather(a))
        m->args[k].gather.order = order;
    else if (is_scatter(a))
        m->args[k].scatter.order = order;
    else if (is_sharded(a))
        m->args[k].sharded.order = order;
    else
        m->args[k].reduce.order = order;
    if (a->how == COMM_COPIED && !m->lane.collect)
        TRY(copy_in(m, k, err));
    if (a->nccl)
        return call_nccl(g, a, r, k, err);
    vt_status status = impl->run(&m->args[k], &lane);
    if (status != VT_OK && err)
        *err = m->lane.err;
    return status;
}

static vt_status compile(comm_gpus *g, const comm_ask *a, const vt_impl *impl, int32_t r,
                         vt_err *err)
{
    member *m = &g->rank[r];
    TRY(vt_cuda_enter(m->cuda, err));
    m->lane.collect = true;
    vt_status status = call(g, a, impl, r, 1, err);
    m->lane.collect = false;
    TRY(status);
    return vt_cuda_compile(m->cuda, NULL, NULL, err);
}

/* Sends the base of the next `calls` calls to every rank. */
static vt_status send_base(comm_gpus *g, int32_t r, vt_err *err)
{
    member *m = &g->rank[r];
    return vt_cuda_check(m->cuda,
                         m->cuda->driver.copy_to_device(at(m->base), &g->base, 4, m->lane.stream),
                         "sending a number", err);
}

static vt_status wait_all(comm_gpus *g, vt_err *err)
{
    for (int32_t r = 0; r < g->n; r++) {
        member *m = &g->rank[r];
        TRY(vt_cuda_enter(m->cuda, err));
        TRY(vt_cuda_check(m->cuda, m->cuda->driver.stream_sync(m->lane.stream),
                          "waiting for the ranks", err));
    }
    uint32_t failed = *(volatile uint32_t *)g->gpu.failed;
    if (failed)
        return vt_fail(err, VT_ERR_DEVICE, "rank %d did not come to a call within 10 s",
                       (int32_t)(failed & 0xff) - 1);
    return VT_OK;
}

/* The same call of all ranks. */
static vt_status call_all(comm_gpus *g, const comm_ask *a, const vt_impl *impl, unsigned order,
                          vt_err *err)
{
    if (a->nccl)
        TRY(vt_nccl_begin(g->nccl, err));
    vt_status status = VT_OK;
    for (int32_t r = 0; r < g->n && status == VT_OK; r++) {
        status = vt_cuda_enter(g->rank[r].cuda, err);
        if (status == VT_OK)
            status = call(g, a, impl, r, order, err);
    }
    vt_status ended = a->nccl ? vt_nccl_end(g->nccl, status == VT_OK ? err : NULL) : VT_OK;
    return status == VT_OK ? ended : status;
}

static vt_status run_once(comm_gpus *g, const comm_ask *a, const vt_impl *impl, vt_err *err)
{
    for (int32_t r = 0; r < g->n; r++) {
        TRY(vt_cuda_enter(g->rank[r].cuda, err));
        TRY(send_base(g, r, err));
    }
    for (unsigned order = 1; order <= SLOTS; order++)
        TRY(call_all(g, a, impl, order, err));
    g->base += SLOTS;
    return wait_all(g, err);
}

/* ---- checking ---- */

static void *fetch(comm_gpus *g, int32_t r, vt_err *err)
{
    member *m = &g->rank[r];
    size_t bytes = (size_t)vt_tensor_bytes(&m->y);
    void *to = malloc(bytes);
    if (!to || vt_cuda_enter(m->cuda, err) != VT_OK ||
        vt_cuda_check(m->cuda,
                      m->cuda->driver.copy_to_host(to, at(m->y.data), bytes, m->lane.stream),
                      "fetching", err) != VT_OK ||
        m->cuda->driver.stream_sync(m->lane.stream) != 0) {
        free(to);
        return NULL;
    }
    return to;
}

/* Fetches the parts of all ranks and puts them side by side. */
static void *fetch_parts(comm_gpus *g, const comm_ask *a, vt_err *err)
{
    size_t each = (size_t)vt_dtype_row_bytes(type_of(a), a->n), at = 0;
    char *to = malloc((size_t)a->rows * each);
    for (int32_t r = 0; r < g->n; r++) {
        size_t cols = (size_t)vt_dtype_row_bytes(type_of(a), columns_of(g, a, r));
        char *part = to ? fetch(g, r, err) : NULL;
        for (size_t t = 0; t < (size_t)a->rows && part; t++)
            memcpy(to + t * each + at, part + t * cols, cols);
        at += cols;
        if (!part) {
            free(to);
            return NULL;
        }
        free(part);
    }
    return to;
}

/* The reference works on the host's tensors, through a group of its own. */
static vt_tensor *reference(const comm_gpus *g, const comm_ask *a, vt_arena *arena)
{
    vt_tensor *y = case_tensor_2d(arena, VT_F32, a->rows, a->n);
    vt_comm_rank *c = case_comm(arena, 0, g->n);
    if (!y || !c)
        return NULL;
    for (int32_t r = 0; r < g->n; r++)
        c->group->buffer[0][r] = g->host_x[r];
    all_gather_args gather = {.comm = c, .x = g->host_x[0], .y = y};
    all_reduce_args reduce = {.comm = c,
                              .x = g->host_x[0],
                              .residual = has_residual(a) ? g->host_residual : NULL,
                              .y = y};
    all_reduce_rmsnorm_args norm = {.sum = reduce, .weight = g->host_weight, .y = y, .eps = 1e-6f};
    if (is_norm(a) && !(norm.sum.y = case_tensor_2d(arena, VT_F32, a->rows, a->n)))
        return NULL;
    sharded_rmsnorm_args sharded = {
        .comm = c,
        .sums = g->host_x[0],
        .part = {{.x = g->host_residual, .weight = g->host_weight, .y = y, .whole = a->n * g->n}},
        .eps = 1e-6f};
    const vt_op *op = is_scatter(a) ? &all_reduce_op : a->op; /* of all parts together */
    op->reference(is_gather(a)    ? (void *)&gather
                  : is_norm(a)    ? (void *)&norm
                  : is_sharded(a) ? (void *)&sharded
                                  : (void *)&reduce);
    return y;
}

/* The sum of value i of all ranks as all_reduce makes it. */
static uint16_t sum_in_order(const comm_gpus *g, int64_t i)
{
    float sum = ((const float *)g->host_x[0]->data)[i];
    for (int32_t r = 1; r < g->n; r++)
        sum += ((const float *)g->host_x[r]->data)[i];
    return vt_f32_to_bf16(sum);
}

static vt_status check(comm_gpus *g, const comm_ask *a, vt_arena *arena, comm_result *out,
                       vt_err *err)
{
    vt_tensor *want = reference(g, a, arena);
    void *first = !want ? NULL : is_scatter(a) ? fetch_parts(g, a, err) : fetch(g, 0, err);
    if (!first)
        return vt_fail(err, VT_ERR_MEMORY, "a result could not be fetched");
    out->agree = true;
    out->bits = 0xcbf29ce484222325; /* FNV-1a */
    for (int64_t i = 0; i < a->rows * vt_dtype_row_bytes(type_of(a), a->n); i++)
        out->bits = (out->bits ^ ((const uint8_t *)first)[i]) * 0x100000001b3;
    for (int32_t r = 1; r < g->n && !is_scatter(a); r++) {
        void *other = fetch(g, r, err);
        out->agree = out->agree && other &&
                     memcmp(first, other, (size_t)vt_tensor_bytes(&g->rank[0].y)) == 0;
        free(other);
    }
    for (int64_t i = 0; i < a->rows * a->n; i++) {
        double w = (double)((const float *)want->data)[i],
               v = type_of(a) == VT_F32 ? (double)((const float *)first)[i]
                                        : (double)vt_bf16_to_f32(((const uint16_t *)first)[i]);
        if (is_scatter(a))
            out->agree = out->agree && ((const uint16_t *)first)[i] == sum_in_order(g, i);
        out->error = fmax(out->error, isfinite(v) ? fabs(v - w) / (1 + fabs(w)) : INFINITY);
    }
    free(first);
    return VT_OK;
}

/* ---- timing ---- */

static vt_status end_capture(member *m, cu_graph *out, vt_err *err)
{
    return vt_cuda_check(m->cuda, m->cuda->driver.capture_end(m->lane.stream, out),
                         "ending a graph", err);
}

/* No stream of this thread may be captured meanwhile. */
static vt_status instantiate(member *m, cu_graph graph, vt_err *err)
{
    const cuda_driver *d = &m->cuda->driver;
    TRY(vt_cuda_check(m->cuda, d->graph_instantiate(&m->graph.exec, graph, 0),
                      "instantiating a graph", err));
    return vt_cuda_check(m->cuda, d->graph_upload(m->graph.exec, m->lane.stream),
                         "uploading a graph", err);
}

/* Captures a graph's calls on the streams of all ranks at once, since NCCL wants a call of all
 * ranks together. */
static vt_status capture(comm_gpus *g, const comm_ask *a, const vt_impl *impl, vt_err *err)
{
    vt_status status = VT_OK;
    int32_t begun = 0;
    while (begun < g->n && status == VT_OK) {
        status = vt_cuda_enter(g->rank[begun].cuda, err);
        if (status == VT_OK)
            status = cuda_graph_begin(&g->rank[begun].lane, err);
        begun += status == VT_OK;
    }
    for (unsigned order = 1; order <= (unsigned)g->calls && status == VT_OK; order++)
        status = call_all(g, a, impl, order, err);
    cu_graph graph[COMM_GPU_RANKS] = {0};
    for (int32_t r = 0; r < begun; r++) {
        vt_status ended = vt_cuda_enter(g->rank[r].cuda, NULL);
        if (ended == VT_OK)
            ended = end_capture(&g->rank[r], &graph[r], status == VT_OK ? err : NULL);
        status = status == VT_OK ? ended : status;
    }
    for (int32_t r = 0; r < begun; r++) {
        if (status == VT_OK)
            status = vt_cuda_enter(g->rank[r].cuda, err);
        if (status == VT_OK)
            status = instantiate(&g->rank[r], graph[r], err);
        if (graph[r])
            g->rank[r].cuda->driver.graph_destroy(graph[r]);
    }
    return status;
}

static vt_status launch_graphs(comm_gpus *g, int32_t i, vt_err *err)
{
    for (int32_t r = 0; r < g->n; r++) {
        member *m = &g->rank[r];
        TRY(vt_cuda_enter(m->cuda, err));
        TRY(send_base(g, r, err));
        TRY(vt_cuda_check(m->cuda, m->cuda->driver.event_record(m->event[i], m->lane.stream),
                          "recording an event", err));
        TRY(cuda_graph_launch(&m->lane, &m->graph, err));
    }
    g->base += (unsigned)g->calls;
    return VT_OK;
}

static vt_status measure(comm_gpus *g, const comm_ask *a, const vt_impl *impl, comm_result *out,
                         vt_err *err)
{
    double ns[MOST_REPETITIONS];
    int32_t reps = a->repetitions < MOST_REPETITIONS ? a->repetitions : MOST_REPETITIONS;
    member *first = &g->rank[0];
    TRY(capture(g, a, impl, err));
    TRY(launch_graphs(g, 0, err)); /* the ranks come together */
    for (int32_t i = 0; i <= reps; i++)
        TRY(launch_graphs(g, i, err));
    TRY(wait_all(g, err));
    TRY(vt_cuda_enter(first->cuda, err));
    for (int32_t i = 0; i < reps; i++) {
        float ms = 0;
        TRY(vt_cuda_check(
            first->cuda,
            first->cuda->driver.event_elapsed(&ms, first->event[i], first->event[i + 1]),
            "reading an event", err));
        ns[i] = (double)ms * 1e6 / g->calls;
    }
    out->noise = vt_noise(ns, (size_t)reps);
    out->median_ns = llround(vt_median(ns, (size_t)reps));
    out->best_ns = llround(ns[0]); /* they are sorted now */
    return VT_OK;
}

/* ---- waiting ---- */

static vt_status begin_stamps(comm_gpus *g, const comm_ask *a, const vt_impl *impl, int32_t r,
                              vt_err *err)
{
    member *m = &g->rank[r];
    void *places;
    TRY(vt_cuda_enter(m->cuda, err));
    TRY(vt_cuda_stamps_check(&m->lane, err));
    TRY(vt_cuda_alloc(m->cuda, cuda_stamps_bytes(CALLS), &places, err));
    m->stamps = (cuda_stamps){.at = places, .note = m->note};
    m->lane.stamps = &m->stamps;
    TRY(compile(g, a, impl, r, err));
    m->stamps.max_notes = CALLS * STAMP_LAUNCHES;
    return vt_cuda_check(
        m->cuda, m->cuda->driver.fill8(at(places), 0, cuda_stamps_bytes(CALLS), m->lane.stream),
        "clearing stamps", err);
}

static void end_stamps(comm_gpus *g)
{
    for (int32_t r = 0; r < g->n; r++) {
        member *m = &g->rank[r];
        if (m->lane.stamps && vt_cuda_enter(m->cuda, NULL) == VT_OK)
            vt_cuda_free(m->cuda, m->stamps.at);
        m->lane.stamps = NULL;
        m->stamps = (cuda_stamps){0};
    }
}

/* Returns the mean wait of rank 0's calls but the first, for which the ranks came together. */
static vt_status mean_wait(comm_gpus *g, int64_t *ns, vt_err *err)
{
    int32_t first = g->calls / 4;
    static const size_t bytes = (size_t)CALLS * STAMP_LAUNCHES * STAMP_WORDS * sizeof(uint64_t);
    const member *m = &g->rank[0];
    uint64_t *places = malloc(bytes), sum = 0;
    if (!places)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for stamps");
    vt_status status = vt_cuda_enter(m->cuda, err);
    if (status == VT_OK)
        status = vt_cuda_check(
            m->cuda, m->cuda->driver.copy_to_host(places, at(m->stamps.at), bytes, m->lane.stream),
            "reading stamps", err);
    if (status == VT_OK)
        status = vt_cuda_check(m->cuda, m->cuda->driver.stream_sync(m->lane.stream),
                               "reading stamps", err);
    for (int32_t i = 0; i < m->stamps.n_notes && status == VT_OK; i++)
        sum += m->note[i].call >= first ? cuda_stamps_read(places, &m->note[i]).waited : 0;
    free(places);
    *ns = (int64_t)(sum / (uint64_t)(g->calls - first));
    return status;
}

static vt_status run_stamped(comm_gpus *g, const comm_ask *a, const vt_impl *impl, comm_result *out,
                             vt_err *err)
{
    for (int32_t r = 0; r < g->n; r++) {
        TRY(begin_stamps(g, a, impl, r, err));
        cuda_graph_release(g->rank[r].cuda, &g->rank[r].graph);
        g->rank[r].graph = (cuda_graph){0};
    }
    TRY(capture(g, a, impl, err));
    TRY(launch_graphs(g, 0, err));
    TRY(wait_all(g, err));
    return mean_wait(g, &out->wait_ns, err);
}

/* Runs the calls once more with stamped kernels, which note how long they wait for their peers. */
static vt_status measure_waits(comm_gpus *g, const comm_ask *a, const vt_impl *impl,
                               comm_result *out, vt_err *err)
{
    vt_err why = {0};
    vt_status status = run_stamped(g, a, impl, out, &why);
    end_stamps(g);
    if (status != VT_OK && status != VT_ERR_UNSUPPORTED && err)
        *err = why;
    return status == VT_ERR_UNSUPPORTED ? VT_OK : status;
}

/* ---- a run ---- */

static const vt_impl *choose(const comm_gpus *g, const comm_ask *a)
{
    const vt_cuda *c = g->rank[0].cuda;
    vt_size size = {.tokens = (int32_t)a->rows, .rows = (int32_t)a->rows};
    vt_target t = {.device = VT_DEVICE_CUDA, .level = c->level, .sm_count = c->sm_count};
    const vt_impl *row = a->row ? vt_op_row(a->op, VT_DEVICE_CUDA, a->row)
                                : vt_op_select(a->op, &g->rank[0].args[0], &t, &size);
    return row && vt_impl_fits(row, &g->rank[0].args[0], &t, &size) ? row : NULL;
}

/* Says why NCCL cannot make the call; VT_OK: it can. */
static vt_status nccl_takes(const comm_gpus *g, const comm_ask *a, vt_err *err)
{
    if (!g->nccl)
        return vt_fail(err, VT_ERR_UNSUPPORTED, "NCCL was not added");
    if (a->rows != 1 || has_residual(a))
        return vt_fail(err, VT_ERR_UNSUPPORTED, "NCCL is measured on one row without a residual");
    int64_t part = is_gather(a) ? a->n / g->n : columns_of(g, a, 0);
    if ((is_gather(a) || is_scatter(a)) && part * g->n != a->n)
        return vt_fail(err, VT_ERR_UNSUPPORTED,
                       "the parts of NCCL's ranks are equal, and %lld values are not %d such parts",
                       (long long)a->n, g->n);
    return VT_OK;
}

static vt_status prepare(comm_gpus *g, const comm_ask *a, const vt_impl **impl, comm_result *out,
                         vt_err *err)
{
    out->row = "nccl";
    if (a->nccl)
        return g->theirs ? register_buffers(g, &out->register_ns, err) : VT_OK;
    *impl = choose(g, a);
    if (!*impl)
        return vt_fail(err, VT_ERR_UNSUPPORTED, "%s: no row %s for this call", a->op->name,
                       a->row ? a->row : "");
    if (g->gpu.staged && vt_tensor_bytes(&g->rank[0].made) > STAGE_BYTES)
        return vt_fail(err, VT_ERR_UNSUPPORTED,
                       "a buffer has %lld bytes, expected at most %d through the host's memory",
                       (long long)vt_tensor_bytes(&g->rank[0].made), STAGE_BYTES);
    out->row = (*impl)->name;
    for (int32_t r = 0; r < g->n; r++)
        TRY(compile(g, a, *impl, r, err));
    return VT_OK;
}

static vt_status run(comm_gpus *g, const comm_ask *a, vt_arena *arena, comm_result *out,
                     vt_err *err)
{
    const vt_impl *impl = NULL;
    if (a->nccl)
        TRY(nccl_takes(g, a, err));
    g->theirs = a->nccl && a->how != COMM_PLAIN;
    TRY(make_host(g, a, arena, err));
    for (int32_t r = 0; r < g->n; r++)
        TRY(make_member(g, a, r, err));
    TRY(prepare(g, a, &impl, out, err));
    out->message_bytes = vt_tensor_bytes(&g->rank[0].made);
    bool few = out->message_bytes >= SLOW_BYTES && !a->nccl && (g->gpu.staged || a->unchecked);
    g->calls = few ? FEW_CALLS : CALLS;
    vt_cost cost = a->op->cost(&g->rank[0].args[0], NULL);
    out->moved_bytes = vt_cost_bytes(&cost) + (a->how == COMM_COPIED ? 2 * out->message_bytes : 0);
    TRY(run_once(g, a, impl, err));
    if (!a->unchecked)
        TRY(check(g, a, arena, out, err));
    if (a->repetitions == 0)
        return VT_OK;
    TRY(measure(g, a, impl, out, err));
    return a->nccl || a->unchecked ? VT_OK : measure_waits(g, a, impl, out, err);
}

vt_status comm_gpus_run(comm_gpus *g, const comm_ask *a, comm_result *out, vt_err *err)
{
    vt_arena arena;
    vt_arena_init(&arena, 0);
    *out = (comm_result){.wait_ns = -1};
    vt_status status = run(g, a, &arena, out, err);
    for (int32_t r = 0; r < g->n; r++)
        wait_member(&g->rank[r]);
    for (int32_t r = 0; r < g->n; r++)
        release_member(g, &g->rank[r]);
    g->theirs = false;
    vt_arena_release(&arena);
    return status;
}
