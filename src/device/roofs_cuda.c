/* The roofs of a GPU (device/roofs.h): small kernels (roofs.cu) between two events.
 *
 *   memory   reading MAX_FAR bytes, or as many as fit: far more than the L2 holds
 *   near     reading the given working set again and again
 *   l2       reading half as many bytes as the L2 holds
 *   fp32     multiply-adds on the ordinary units
 *   bf16     wgmma from shared memory on sm_90, mma.sync elsewhere
 *   kernel   empty kernels one after another in a graph, without overlap
 *
 * Each is the best of BEST_OF runs that are long enough for events to time. A device that is so
 * slow that a pass over the memory would take longer than kPatience (an emulated one) reads less of
 * it; the number of bytes is reported with the figure. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "device/roofs_cache.h"
#include "device/roofs_cuda.h"
#include "device/roofs_params.h"

enum {
    BEST_OF = 4,
    MAX_FAR = 1 << 30,
    MIN_FAR = 1 << 20,
    EMPTY_NODES = 64,
    READ_THREADS = 512,
    COMPUTE_THREADS = 256,
    SM90_SHARED = (2 * 64 + 256) * 64 * 2 + 1024
};

static const double kEnough = 2e-3, kPatience = 0.2; /* seconds of a run */
static const uint32_t kNever = 0x7fc12345;           /* a NaN that no arithmetic makes */

typedef struct gauge {
    vt_cuda *cuda;
    vt_cuda_lane lane;
    cu_event from, to;
    void *buffer, *out;
    size_t bytes; /* size of the buffer */
    size_t reads; /* how many of these bytes a round of READ reads */
} gauge;

typedef enum run_kind { READ, FP32, BF16, EMPTY } run_kind;

static jit_spec spec_of(const vt_cuda *c, run_kind kind)
{
    static const char *const entry[] = {"roofs_read", "roofs_fp32", "roofs_bf16_sm80",
                                        "roofs_empty"};
    if (kind == BF16 && c->level >= 90)
        return (jit_spec){.source = "roofs_sm90.cu", .kernel = "roofs_bf16_sm90"};
    return (jit_spec){.source = "roofs.cu", .kernel = entry[kind]};
}

/* Launches a kernel with as many CTAs per multiprocessor as hide each other's latency. */
static vt_status launch(gauge *g, run_kind kind, int32_t rounds)
{
    bool sm90 = kind == BF16 && g->cuda->level >= 90;
    uint32_t per_sm = kind == READ || (kind == BF16 && !sm90) ? 4 : kind == FP32 ? 8 : 1;
    cuda_launch l = {.spec = spec_of(g->cuda, kind),
                     .grid = {per_sm * (uint32_t)g->cuda->sm_count, 1, 1},
                     .threads = kind == READ ? READ_THREADS : COMPUTE_THREADS,
                     .shared_bytes = sm90 ? SM90_SHARED : 0};
    roofs_read_params r = {g->buffer, g->reads / 16, g->out, rounds, kNever};
    roofs_compute_params c = {g->out, rounds, kNever};
    return kind == READ ? vt_cuda_launch(&g->lane, &l, &r, sizeof r)
                        : vt_cuda_launch(&g->lane, &l, &c, sizeof c);
}

/* The operations of one round; for READ its bytes. */
static double work_of(const gauge *g, run_kind kind)
{
    double sms = g->cuda->sm_count;
    if (kind == READ)
        return (double)g->reads;
    if (kind == FP32)
        return sms * 8 * COMPUTE_THREADS * 16 * 2;
    return g->cuda->level >= 90 ? sms * 2 * 4 * (64 * 256 * 16 * 2)
                                : sms * 4 * (COMPUTE_THREADS / 32) * 8 * (16 * 8 * 16 * 2);
}

void roofs_cuda_collect(vt_cuda *c)
{
    gauge g = {.cuda = c, .lane = {.cuda = c, .collect = true}, .reads = 16};
    for (int kind = READ; kind <= EMPTY; kind++)
        launch(&g, (run_kind)kind, 1);
}

static vt_status begin_run(gauge *g, vt_err *err)
{
    return vt_cuda_check(g->cuda, g->cuda->driver.event_record(g->from, g->lane.stream),
                         "recording an event", err);
}

static vt_status end_run(gauge *g, double *seconds, vt_err *err)
{
    const cuda_driver *d = &g->cuda->driver;
    float ms = 0;
    TRY(vt_cuda_check(g->cuda, d->event_record(g->to, g->lane.stream), "recording an event", err));
    TRY(vt_cuda_check(g->cuda, d->event_sync(g->to), "measuring the GPU's roofs", err));
    TRY(vt_cuda_check(g->cuda, d->event_elapsed(&ms, g->from, g->to), "reading an event", err));
    *seconds = fmax((double)ms * 1e-3, 1e-7);
    return VT_OK;
}

static vt_status time_run(gauge *g, run_kind kind, int32_t rounds, double *seconds, vt_err *err)
{
    TRY(begin_run(g, err));
    g->lane.err = (vt_err){0};
    if (launch(g, kind, rounds) != VT_OK) {
        if (err)
            *err = g->lane.err;
        return g->lane.err.status;
    }
    return end_run(g, seconds, err);
}

/* Raises *rate to the work per second: the rounds are doubled until a run is long enough to time,
 * then the best of several runs counts. */
static vt_status measure_rate(gauge *g, run_kind kind, double *rate, vt_err *err)
{
    double seconds = 0, best = INFINITY;
    int32_t rounds = 1;
    TRY(time_run(g, kind, rounds, &seconds, err)); /* the first run only warms up */
    for (;;) {
        TRY(time_run(g, kind, rounds, &seconds, err));
        if (seconds >= kEnough || rounds >= 1 << 20)
            break;
        rounds *= 2;
    }
    for (int i = 0; i < BEST_OF && (i == 0 || seconds < kPatience); i++) {
        best = fmin(best, seconds);
        TRY(time_run(g, kind, rounds, &seconds, err));
    }
    *rate = fmax(*rate, work_of(g, kind) * rounds / fmin(best, seconds));
    return VT_OK;
}

static vt_status measure_kernel(gauge *g, double *kernel_s, vt_err *err)
{
    cuda_graph graph = {0};
    double seconds = 0, best = INFINITY;
    TRY(cuda_graph_begin(&g->lane, err));
    for (int i = 0; i < EMPTY_NODES; i++)
        launch(g, EMPTY, 1);
    TRY(cuda_graph_end(&g->lane, &graph, err));
    vt_status status = VT_OK;
    for (int i = 0; i < BEST_OF && status == VT_OK; i++) {
        status = begin_run(g, err);
        if (status == VT_OK)
            status = cuda_graph_launch(&g->lane, &graph, err);
        if (status == VT_OK)
            status = end_run(g, &seconds, err);
        best = fmin(best, seconds);
    }
    cuda_graph_release(g->cuda, &graph);
    if (status == VT_OK)
        *kernel_s = *kernel_s > 0 ? fmin(*kernel_s, best / EMPTY_NODES) : best / EMPTY_NODES;
    return status;
}

/* Allocates a buffer of zeros: `want` bytes, or half of the free memory if that is less. */
static vt_status take_buffer(gauge *g, size_t want, vt_err *err)
{
    size_t free_bytes = 0, total = 0;
    const cuda_driver *d = &g->cuda->driver;
    TRY(vt_cuda_check(g->cuda, d->mem_info(&free_bytes, &total), "asking for free GPU memory",
                      err));
    if (want > free_bytes / 2)
        want = free_bytes / 2;
    g->bytes = want < MIN_FAR ? MIN_FAR : want / 4096 * 4096;
    TRY(vt_cuda_alloc(g->cuda, g->bytes, &g->buffer, err));
    TRY(vt_cuda_alloc(g->cuda, 256, &g->out, err));
    return vt_cuda_check(g->cuda,
                         d->fill8((cu_ptr)(uintptr_t)g->buffer, 0, g->bytes, g->lane.stream),
                         "clearing", err);
}

/* How much of the buffer to read, so that a pass does not take much longer than kPatience. */
static vt_status patient_bytes(gauge *g, size_t *bytes, vt_err *err)
{
    double seconds = 0;
    g->reads = MIN_FAR;
    TRY(time_run(g, READ, 1, &seconds, err));
    TRY(time_run(g, READ, 1, &seconds, err));
    double most = kPatience / seconds * MIN_FAR;
    *bytes = (double)g->bytes <= most ? g->bytes : ((size_t)most + MIN_FAR) / MIN_FAR * MIN_FAR;
    if (*bytes > g->bytes)
        *bytes = g->bytes;
    return VT_OK;
}

static vt_status measure(gauge *g, vt_roofs *r, bool all, int64_t working_set, vt_err *err)
{
    size_t most = 0;
    TRY(take_buffer(g, MAX_FAR, err));
    TRY(patient_bytes(g, &most, err));
    if (all) {
        g->reads = most;
        r->far_bytes = (int64_t)most;
        TRY(measure_rate(g, READ, &r->memory_bytes_per_s, err));
        g->reads = (size_t)g->cuda->l2_bytes / 2;
        if (g->reads > most)
            g->reads = most;
        g->reads = g->reads / 4096 * 4096;
        r->l2_bytes = (int64_t)g->reads;
        if (g->reads > 0)
            TRY(measure_rate(g, READ, &r->l2_bytes_per_s, err));
        TRY(measure_rate(g, FP32, &r->fp32_per_s, err));
        TRY(measure_rate(g, BF16, &r->bf16_per_s, err));
        TRY(measure_kernel(g, &r->kernel_s, err));
    }
    if (working_set == 0)
        return VT_OK;
    g->reads = (size_t)working_set < most ? (size_t)working_set / 4096 * 4096 : most;
    return measure_rate(g, READ, &r->near_bytes_per_s, err);
}

static vt_status open_and_measure(vt_cuda *c, vt_roofs *r, bool all, int64_t working_set,
                                  vt_err *err)
{
    gauge g = {.cuda = c, .lane = {.cuda = c}};
    const cuda_driver *d = &c->driver;
    roofs_cuda_collect(c);
    TRY(vt_cuda_compile(c, NULL, NULL, err));
    TRY(vt_cuda_check(c, d->stream_create(&g.lane.stream, CU_STREAM_NON_BLOCKING, 0),
                      "making a stream", err));
    vt_status status = vt_cuda_check(c, d->event_create(&g.from, CU_EVENT_DEFAULT),
                                     "making an event", err);
    if (status == VT_OK)
        status = vt_cuda_check(c, d->event_create(&g.to, CU_EVENT_DEFAULT), "making an event", err);
    if (status == VT_OK)
        status = measure(&g, r, all, working_set, err);
    if (g.from)
        d->event_destroy(g.from);
    if (g.to)
        d->event_destroy(g.to);
    vt_cuda_free(c, g.buffer);
    vt_cuda_free(c, g.out);
    d->stream_destroy(g.lane.stream);
    return status;
}

/* The name of the cache file. It changes with the GPU, the driver and the clocks, because the roofs
 * do. */
static vt_status make_key(const vt_cuda *c, char *out, size_t size, vt_err *err)
{
    int sm_khz = 0, memory_khz = 0;
    TRY(vt_cuda_check(c, c->driver.device_attribute(&sm_khz, CU_ATTR_CLOCK_KHZ, c->device),
                      "asking for the GPU's clock", err));
    TRY(vt_cuda_check(c,
                      c->driver.device_attribute(&memory_khz, CU_ATTR_MEMORY_CLOCK_KHZ, c->device),
                      "asking for the GPU's memory clock", err));
    snprintf(out, size, "%s-level%d-driver%d-%d-%d", c->name, c->level, c->driver_version,
             sm_khz / 1000, memory_khz / 1000);
    return VT_OK;
}

vt_status vt_roofs_cuda(int32_t ordinal, int64_t working_set, bool again, vt_roofs *out,
                        vt_err *err)
{
    vt_cuda *c;
    char key[256];
    vt_roofs r = {.measured = true, .fp32_how = "fused multiply-add"};
    TRY(vt_cuda_open(ordinal, &c, err));
    r.bf16_how = c->level >= 90 ? "wgmma" : "mma.sync";
    snprintf(r.name, sizeof r.name, "%s", c->name);
    snprintf(r.level, sizeof r.level, "%s", c->arch);
    if (working_set > 0)
        working_set = (int64_t)vt_round_up((size_t)working_set, 1 << 20);
    vt_status status = make_key(c, key, sizeof key, err);
    if (status == VT_OK) {
        roofs_cache_read(key, &r, working_set);
        r.near_bytes = working_set;
        bool all = again || r.memory_bytes_per_s <= 0;
        if (all || (working_set > 0 && r.near_bytes_per_s <= 0)) {
            status = open_and_measure(c, &r, all, working_set, err);
            if (status == VT_OK)
                roofs_cache_write(key, &r);
        }
    }
    vt_cuda_close(c);
    if (status == VT_OK) {
        if (working_set > 0) /* a near working set is never slower than a far one */
            r.near_bytes_per_s = fmax(r.near_bytes_per_s, r.memory_bytes_per_s);
        *out = r;
    }
    return status;
}
