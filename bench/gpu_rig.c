/* Memory, timing and output of gpu_kernels.c (gpu_rig.h). */
#include "gpu_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"

void rig_must(vt_status status, const vt_err *err)
{
    if (status == VT_OK)
        return;
    fprintf(stderr, "gpu_kernels: %s\n", err->message);
    exit(1);
}

void rig_check(bench *b, cu_result code, const char *what)
{
    vt_err err = {0};
    rig_must(vt_cuda_check(b->cuda, code, what, &err), &err);
}

/* ---- memory ---- */

int32_t pick(const bench *b, int32_t full, int32_t tiny) { return b->tiny ? tiny : full; }

static void *bump(bench *b, char *base, size_t *used, size_t capacity, size_t bytes)
{
    size_t at = *used;
    *used = vt_round_up(at + bytes, 256);
    if (b->mode == MODE_RUN && *used > capacity) {
        fprintf(stderr, "gpu_kernels: a row of %s needs %zu MiB, %zu are there\n", b->section,
                *used >> 20, capacity >> 20);
        exit(1);
    }
    return base ? base + at : (void *)(uintptr_t)(4096 + at); /* never read without a device */
}

void *take_in(bench *b, size_t bytes) { return bump(b, b->in, &b->in_used, b->in_bytes, bytes); }
void *take_out(bench *b, size_t bytes)
{
    return bump(b, b->out, &b->out_used, b->out_bytes, bytes);
}

vt_tensor in_2d(bench *b, vt_dtype type, int64_t rows, int64_t cols)
{
    size_t bytes = (size_t)vt_dtype_row_bytes(type, rows * cols);
    return vt_tensor_2d(take_in(b, bytes), type, rows, cols);
}
vt_tensor out_2d(bench *b, vt_dtype type, int64_t rows, int64_t cols)
{
    size_t bytes = (size_t)vt_dtype_row_bytes(type, rows * cols);
    return vt_tensor_2d(take_out(b, bytes), type, rows, cols);
}
vt_tensor in_1d(bench *b, int64_t n)
{
    return (vt_tensor){
        .data = take_in(b, (size_t)n * 4), .dtype = VT_F32, .rank = 1, .dim = {n}, .row_stride = n};
}

void *upload(bench *b, const void *from, size_t bytes)
{
    vt_err err = {0};
    void *p = NULL;
    if (b->mode != MODE_RUN)
        return (void *)(uintptr_t)4096;
    if (b->n_blocks == MAX_BLOCKS) {
        fprintf(stderr, "gpu_kernels: more than %d arrays in a row\n", MAX_BLOCKS);
        exit(1);
    }
    rig_must(vt_cuda_alloc(b->cuda, bytes + 256, &p, &err), &err);
    b->block[b->n_blocks++] = p;
    rig_check(b, b->cuda->driver.copy_to_device(rig_address(p), from, bytes, b->lane.stream),
              "upload");
    rig_check(b, b->cuda->driver.stream_sync(b->lane.stream), "upload");
    return p;
}

void end_row(bench *b)
{
    for (int32_t i = 0; i < b->n_blocks; i++)
        vt_cuda_free(b->cuda, b->block[i]);
    b->n_blocks = 0;
    b->in_used = b->out_used = 0;
}

uint64_t rig_next64(uint64_t *state) /* splitmix64 */
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* bf16 values of mean 0 and variance 1: a sum of four uniform numbers is near enough to normal. */
static void fill_random(bench *b)
{
    size_t bytes = b->in_bytes < (size_t)32 << 20 ? b->in_bytes : (size_t)32 << 20;
    uint16_t *host = malloc(bytes);
    uint64_t state = 42;
    for (size_t i = 0; host && i < bytes / 2; i++) {
        uint64_t r = rig_next64(&state);
        int32_t sum = (int32_t)(r & 0xffff) + (int32_t)(r >> 16 & 0xffff) +
                      (int32_t)(r >> 32 & 0xffff) + (int32_t)(r >> 48);
        host[i] = vt_f32_to_bf16((float)(sum - 2 * 65535) / 37837.0f);
    }
    vt_err err = {0};
    if (!host)
        rig_must(vt_fail(&err, VT_ERR_MEMORY, "out of memory"), &err);
    const cuda_driver *d = &b->cuda->driver;
    rig_check(b, d->copy_to_device(rig_address(b->in), host, bytes, b->lane.stream), "random data");
    for (size_t at = bytes; at < b->in_bytes; at += bytes) {
        size_t n = b->in_bytes - at < bytes ? b->in_bytes - at : bytes;
        rig_check(b, d->copy_device(rig_address(b->in + at), rig_address(b->in), n, b->lane.stream),
                  "random data");
    }
    rig_check(b, d->stream_sync(b->lane.stream), "random data");
    free(host);
}

/* ---- timing ---- */

static vt_status launch_op(bench *b, const work *w, int32_t call)
{
    if (w->rotate)
        *w->rotate = w->rotate_base + (size_t)(call % w->n_rotate) * w->rotate_stride;
    const vt_impl *impl = vt_op_select(w->op, VT_DEVICE_CUDA, VT_ISA_PORTABLE, w->args);
    if (!impl)
        return vt_fail(&b->lane.err, VT_ERR_UNSUPPORTED, "%s: not supported on CUDA", w->op->name);
    return impl->run(w->args, &b->op_lane);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void print_row(bench *b, const work *w, const char *method, double *us, int32_t n)
{
    double bytes = (double)vt_cost_bytes(&w->cost), flops = (double)vt_cost_flops(&w->cost);
    qsort(us, (size_t)n, sizeof *us, by_value);
    double mid = us[n / 2];
    printf("{\"section\": \"%s\", \"row\": \"%s\", \"method\": \"%s\", \"us\": %.3f, \"us_min\": "
           "%.3f, \"us_max\": %.3f, \"n\": %d, \"bytes\": %.0f, \"flops\": %.0f, \"gb_per_s\": "
           "%.1f, \"tflop_per_s\": %.2f%s}\n",
           b->section, w->name, method, mid, us[0], us[n - 1], n, bytes, flops,
           mid > 0 ? bytes / mid * 1e-3 : 0, mid > 0 ? flops / mid * 1e-6 : 0,
           b->tiny ? ", \"tiny\": true" : "");
    fflush(stdout);
}

static void print_failure(bench *b, const work *w, const char *method, const char *why)
{
    b->n_failed++;
    printf("{\"section\": \"%s\", \"row\": \"%s\", \"method\": \"%s\", \"error\": \"", b->section,
           w->name, method);
    for (const char *p = why; *p; p++)
        putchar(*p == '"' || *p == '\\' || (unsigned char)*p < ' ' ? ' ' : *p);
    printf("\"}\n");
    fflush(stdout);
}

/* The stream's work is done, and nothing went wrong on the way. */
static bool finished(bench *b, const work *w, const char *method, vt_status status)
{
    vt_err err = b->lane.err;
    if (status == VT_OK)
        status = vt_cuda_check(b->cuda, b->cuda->driver.stream_sync(b->lane.stream),
                               "running a kernel", &err);
    if (status == VT_OK)
        return true;
    print_failure(b, w, method, err.message);
    return false;
}

static void time_cold(bench *b, const work *w)
{
    const cuda_driver *d = &b->cuda->driver;
    cu_event from[MAX_REPS], to[MAX_REPS];
    double us[MAX_REPS];
    vt_status status = VT_OK;
    for (int32_t i = 0; i < b->reps; i++) {
        rig_check(b, d->event_create(&from[i], CU_EVENT_DEFAULT), "event");
        rig_check(b, d->event_create(&to[i], CU_EVENT_DEFAULT), "event");
    }
    for (int32_t i = -3; i < b->reps && status == VT_OK; i++) { /* three to warm up */
        if (w->restore.bytes)
            rig_check(b,
                      d->copy_device(rig_address(w->restore.to), rig_address(w->restore.from),
                                     w->restore.bytes, b->lane.stream),
                      "restore");
        rig_check(b,
                  d->fill8(rig_address(b->flush), (unsigned char)i, b->flush_bytes, b->lane.stream),
                  "flush");
        rig_check(b, d->event_record(from[i < 0 ? 0 : i], b->lane.stream), "event");
        status = w->launch(b, w, i < 0 ? 0 : i);
        rig_check(b, d->event_record(to[i < 0 ? 0 : i], b->lane.stream), "event");
    }
    if (finished(b, w, "cold", status)) {
        for (int32_t i = 0; i < b->reps; i++) {
            float ms;
            rig_check(b, d->event_elapsed(&ms, from[i], to[i]), "event");
            us[i] = (double)ms * 1e3;
        }
        print_row(b, w, "cold", us, b->reps);
    }
    for (int32_t i = 0; i < b->reps; i++) {
        d->event_destroy(from[i]);
        d->event_destroy(to[i]);
    }
}

/* Graphs are launched one behind the other, so that the host is never waited for. */
static void time_graph(bench *b, const work *w, bool pdl)
{
    const cuda_driver *d = &b->cuda->driver;
    const char *method = pdl ? "pdl" : "graph";
    cu_event mark[MAX_REPS + 1];
    double us[MAX_REPS];
    cuda_graph graph = {0};
    vt_err err = {0};
    vt_status status = cuda_graph_begin(&b->lane, &err);
    b->lane.pdl = pdl;
    for (int32_t i = 0; i < b->calls && status == VT_OK; i++)
        if ((status = w->launch(b, w, i)) != VT_OK)
            err = b->lane.err;
    b->lane.pdl = false;
    vt_status ended = cuda_graph_end(&b->lane, &graph, status == VT_OK ? &err : NULL);
    if (status != VT_OK || ended != VT_OK) {
        print_failure(b, w, method, err.message);
        return;
    }
    for (int32_t i = 0; i <= b->launches; i++)
        rig_check(b, d->event_create(&mark[i], CU_EVENT_DEFAULT), "event");
    for (int32_t i = 0; i <= b->launches && status == VT_OK; i++) { /* the first is not counted */
        status = cuda_graph_launch(&b->lane, &graph, &b->lane.err);
        rig_check(b, d->event_record(mark[i], b->lane.stream), "event");
    }
    if (finished(b, w, method, status)) {
        for (int32_t i = 0; i < b->launches; i++) {
            float ms;
            rig_check(b, d->event_elapsed(&ms, mark[i], mark[i + 1]), "event");
            us[i] = (double)ms * 1e3 / b->calls;
        }
        print_row(b, w, method, us, b->launches);
    }
    for (int32_t i = 0; i <= b->launches; i++)
        d->event_destroy(mark[i]);
    cuda_graph_release(b->cuda, &graph);
}

void measure(bench *b, work *w)
{
    w->launch = w->launch ? w->launch : launch_op;
    b->lane.err = (vt_err){0};
    if (b->mode == MODE_LIST) {
        printf("%s\t%s\n", b->section, w->name);
    } else if (b->collecting) {
        b->lane.collect = true;
        vt_status status = w->launch(b, w, 0);
        b->lane.pdl = w->methods & PDL; /* another instance of the kernel */
        if (status == VT_OK && b->lane.pdl)
            status = w->launch(b, w, 0);
        b->lane.collect = b->lane.pdl = false;
        rig_must(status, &b->lane.err);
    } else {
        if (w->methods & COLD)
            time_cold(b, w);
        if (w->methods & GRAPH)
            time_graph(b, w, false);
        if (w->methods & PDL)
            time_graph(b, w, true);
    }
    end_row(b);
}

work row_of(const vt_op *op, const void *args, int methods)
{
    work w = {.op = op, .args = args, .methods = methods};
    if (op)
        w.cost = op->cost(args);
    return w;
}

/* ---- the device ---- */

void rig_open(bench *b)
{
    vt_err err = {0};
    void *p;
    if (vt_cuda_open(0, &b->cuda, &err) != VT_OK) {
        printf("{\"skip\": \"no GPU\"}\n");
        fprintf(stderr, "gpu_kernels: %s\n", err.message);
        exit(77);
    }
    b->lane = (vt_cuda_lane){.cuda = b->cuda, .workspace_bytes = b->workspace_bytes};
    rig_check(b, b->cuda->driver.stream_create(&b->lane.stream, CU_STREAM_NON_BLOCKING, 0),
              "stream");
    const struct {
        char **to;
        size_t bytes;
    } want[] = {{&b->in, b->in_bytes}, {&b->out, b->out_bytes}, {&b->flush, b->flush_bytes}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        rig_must(vt_cuda_alloc(b->cuda, want[i].bytes, &p, &err), &err);
        *want[i].to = p;
    }
    rig_must(vt_cuda_alloc(b->cuda, b->workspace_bytes, &b->lane.workspace, &err), &err);
    rig_must(vt_cuda_alloc(b->cuda, CUDA_TICKETS * 4, &p, &err), &err);
    b->lane.tickets = p;
    rig_check(b, b->cuda->driver.fill8(rig_address(p), 0, CUDA_TICKETS * 4, b->lane.stream),
              "tickets");
    rig_check(b, b->cuda->driver.fill8(rig_address(b->out), 0, b->out_bytes, b->lane.stream),
              "clearing");
    fill_random(b);
}

void rig_close(bench *b)
{
    void *block[] = {b->in, b->out, b->flush, b->lane.workspace, b->lane.tickets};
    for (size_t i = 0; b->mode == MODE_RUN && i < sizeof block / sizeof *block; i++)
        vt_cuda_free(b->cuda, block[i]);
    if (b->lane.stream)
        b->cuda->driver.stream_destroy(b->lane.stream);
    vt_cuda_close(b->cuda);
}
