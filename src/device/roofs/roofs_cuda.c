/* The roofs of a GPU (roofs/roofs.h): small kernels (roofs*.cu) and copies between two events.
 *
 *   memory       reading MAX_FAR bytes, or as many as fit: far more than the L2 holds
 *   weights      reading the given working set again and again
 *   copy         copying half of MAX_FAR bytes to the other half
 *   l2           reading half as many bytes as the L2 holds
 *   fp32         multiply-adds on the ordinary units
 *   bf16, int8   wgmma from shared memory on sm_90, mma.sync elsewhere
 *   fp8          wgmma on sm_90
 *   kernel       empty kernels one after another in a graph, without overlap and with PDL
 *   to, from     copies of LINK_BYTES between pinned host memory and the device
 *
 * Each figure is sampled until its best two runs agree (device/roofs/roofs_sample.h). Nothing says
 * whether another process used the GPU during a run, so agreement alone decides. A device that is
 * so slow that a pass over the memory would take longer than kPatience (an emulated one) reads less
 * of it, and its runs are not repeated until they agree: its times mean nothing. The number of
 * bytes is reported with the figure. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "device/roofs/roofs_cache.h"
#include "device/roofs/roofs_cuda.h"
#include "device/roofs/roofs_params.h"
#include "device/roofs/roofs_sample.h"

enum {
    MAX_FAR = 1 << 30,
    MIN_FAR = 1 << 20,
    LINK_BYTES = 64 << 20,
    EMPTY_NODES = 64,
    READ_THREADS = 512,
    COMPUTE_THREADS = 256,
    SM90_SHARED = (2 * 64 + 256) * 64 * 2 + 1024
};

static const double kEnough = 2e-3, kPatience = 0.2; /* seconds of a run */
static const int64_t kAll = INT64_C(2800000000);     /* ns of all figures together */
static const uint32_t kNever = 0x7fc12345;           /* a NaN that no arithmetic makes */

/* The work of one run. */
typedef enum run_kind { READ, COPY, FP32, BF16, INT8, FP8, EMPTY, EMPTY_PDL, TO, FROM } run_kind;

typedef struct gauge {
    vt_cuda *cuda;
    vt_roofs *r;
    vt_cuda_lane lane;
    cu_event from, to;
    void *buffer, *out, *pinned;
    size_t bytes; /* size of the buffer */
    size_t reads; /* how many of these bytes a round of READ or COPY touches */
    size_t link;  /* bytes of a copy to or from the host */
    cuda_graph graph;
    int64_t deadline_ns;
    int32_t figures_left;
} gauge;

static bool is_emulated(const vt_cuda *c) { return strstr(c->name, "Emulated") != NULL; }

/* ---- kernels ---- */

/* Returns true if the device has the unit, and this program a kernel for it. The emulator
 * translates no integer or fp8 matrix instruction. */
static bool has(const vt_cuda *c, run_kind kind)
{
    return kind == INT8        ? !is_emulated(c)
           : kind == FP8       ? !is_emulated(c) && c->level >= 90
           : kind == EMPTY_PDL ? c->cc_major >= 9
                               : true;
}

static bool is_wgmma(const vt_cuda *c, run_kind kind)
{
    return c->level >= 90 && (kind == BF16 || kind == INT8 || kind == FP8);
}

static jit_spec spec_of(const vt_cuda *c, run_kind kind)
{
    static const jit_spec sm80[] = {[READ] = {.source = "roofs.cu", .kernel = "roofs_read"},
                                    [COPY] = {.source = "roofs.cu", .kernel = "roofs_copy"},
                                    [FP32] = {.source = "roofs.cu", .kernel = "roofs_fp32"},
                                    [BF16] = {.source = "roofs.cu", .kernel = "roofs_bf16_sm80"},
                                    [INT8] = {.source = "roofs_int8.cu", .kernel = "roofs_int8"},
                                    [EMPTY] = {.source = "roofs.cu", .kernel = "roofs_empty"},
                                    [EMPTY_PDL] = {.source = "roofs.cu", .kernel = "roofs_empty"}},
                          sm90[] = {
                              [BF16] = {.source = "roofs_sm90.cu", .kernel = "roofs_bf16_sm90"},
                              [INT8] = {.source = "roofs_8bit_sm90.cu",
                                        .kernel = "roofs_int8_sm90"},
                              [FP8] = {.source = "roofs_8bit_sm90.cu", .kernel = "roofs_fp8_sm90"}};
    return is_wgmma(c, kind) ? sm90[kind] : sm80[kind];
}

/* Launches a kernel with as many CTAs per multiprocessor as hide each other's latency. */
static vt_status launch(gauge *g, run_kind kind, int32_t rounds)
{
    bool wgmma = is_wgmma(g->cuda, kind), moves = kind == READ || kind == COPY;
    uint32_t per_sm = wgmma ? 1 : moves || kind == BF16 || kind == INT8 ? 4 : kind == FP32 ? 8 : 1;
    cuda_launch l = {.spec = spec_of(g->cuda, kind),
                     .grid = {per_sm * (uint32_t)g->cuda->sm_count, 1, 1},
                     .threads = moves ? READ_THREADS : COMPUTE_THREADS,
                     .shared_bytes = wgmma ? SM90_SHARED : 0};
    roofs_read_params r = {g->buffer, g->reads / 16, g->out, rounds, kNever};
    roofs_copy_params m = {g->buffer, g->reads / 32, rounds};
    roofs_compute_params c = {g->out, rounds, kNever};
    g->lane.pdl = kind == EMPTY_PDL;
    return kind == READ   ? vt_cuda_launch(&g->lane, &l, &r, sizeof r)
           : kind == COPY ? vt_cuda_launch(&g->lane, &l, &m, sizeof m)
                          : vt_cuda_launch(&g->lane, &l, &c, sizeof c);
}

void roofs_cuda_collect(vt_cuda *c)
{
    gauge g = {.cuda = c, .lane = {.cuda = c, .collect = true}, .reads = 32};
    for (int kind = READ; kind <= EMPTY_PDL; kind++)
        if (has(c, (run_kind)kind))
            launch(&g, (run_kind)kind, 1);
}

/* Bytes or operations of one round; kernels of the empty ones. */
static double work_of(const gauge *g, run_kind kind)
{
    double sms = g->cuda->sm_count, warps = sms * 4 * (COMPUTE_THREADS / 32);
    bool wgmma = is_wgmma(g->cuda, kind);
    switch (kind) {
    case READ:
        return (double)g->reads;
    case COPY: /* read and written */
        return (double)(g->reads / 32 * 32);
    case FP32:
        return sms * 8 * COMPUTE_THREADS * 16 * 2;
    case BF16:
        return wgmma ? sms * 2 * 4 * (64 * 256 * 16 * 2) : warps * 8 * (16 * 8 * 16 * 2);
    case INT8:
    case FP8:
        return wgmma ? sms * 2 * 4 * (64 * 256 * 32 * 2) : warps * 8 * (16 * 8 * 32 * 2);
    case TO:
    case FROM:
        return (double)g->link;
    default:
        return EMPTY_NODES;
    }
}

/* ---- runs ---- */

static vt_status start(gauge *g, run_kind kind, int32_t rounds, vt_err *err)
{
    const cuda_driver *d = &g->cuda->driver;
    cu_ptr device = (cu_ptr)(uintptr_t)g->buffer;
    if (kind == EMPTY || kind == EMPTY_PDL)
        return cuda_graph_launch(&g->lane, &g->graph, err);
    if (kind == TO)
        return vt_cuda_check(g->cuda, d->copy_to_device(device, g->pinned, g->link, g->lane.stream),
                             "copying to the GPU", err);
    if (kind == FROM)
        return vt_cuda_check(g->cuda, d->copy_to_host(g->pinned, device, g->link, g->lane.stream),
                             "copying from the GPU", err);
    g->lane.err = (vt_err){0};
    if (launch(g, kind, rounds) != VT_OK) {
        if (err)
            *err = g->lane.err;
        return g->lane.err.status;
    }
    return VT_OK;
}

static vt_status run(gauge *g, run_kind kind, int32_t rounds, double *seconds, vt_err *err)
{
    const cuda_driver *d = &g->cuda->driver;
    float ms = 0;
    TRY(vt_cuda_check(g->cuda, d->event_record(g->from, g->lane.stream), "recording an event",
                      err));
    TRY(start(g, kind, rounds, err));
    TRY(vt_cuda_check(g->cuda, d->event_record(g->to, g->lane.stream), "recording an event", err));
    TRY(vt_cuda_check(g->cuda, d->event_sync(g->to), "measuring the GPU's roofs", err));
    TRY(vt_cuda_check(g->cuda, d->event_elapsed(&ms, g->from, g->to), "reading an event", err));
    *seconds = fmax((double)ms * 1e-3, 1e-7);
    return VT_OK;
}

/* Doubles the rounds until a run is long enough to time. */
static vt_status find_rounds(gauge *g, run_kind kind, int32_t *rounds, double *seconds, vt_err *err)
{
    *rounds = 1;
    TRY(run(g, kind, 1, seconds, err)); /* only warms up */
    TRY(run(g, kind, 1, seconds, err));
    while (kind < EMPTY && *seconds < kEnough && *rounds < 1 << 20) {
        *rounds *= 2;
        TRY(run(g, kind, *rounds, seconds, err));
    }
    return VT_OK;
}

/* Repeats the run until its samples agree, or until this figure's part of the time is over. */
static vt_status repeat(gauge *g, vt_roof_kind roof, run_kind kind, vt_err *err)
{
    enum { LEAST = 3 };
    roof_samples s = {0};
    int32_t rounds;
    double seconds;
    bool slow = is_emulated(g->cuda);
    int64_t now = vt_now_ns(),
            until = now + (g->deadline_ns - now) / (g->figures_left > 0 ? g->figures_left : 1);
    g->figures_left--;
    TRY(find_rounds(g, kind, &rounds, &seconds, err));
    for (int32_t i = 0; i < ROOF_MAX_SAMPLES; i++) {
        roof_samples_add(&s, work_of(g, kind) * rounds, seconds, -1);
        if (slow || (i + 1 >= LEAST && (roof_samples_agree(&s) || vt_now_ns() >= until)))
            break;
        TRY(run(g, kind, rounds, &seconds, err));
    }
    vt_roof_better(g->r, roof, vt_roof_rows[roof].unit ? s.best : 1 / s.best,
                   slow || roof_samples_agree(&s) ? VT_ROOF_MEASURED : VT_ROOF_DISTURBED,
                   time(NULL));
    return VT_OK;
}

/* ---- figures ---- */

static vt_status measure_kernel(gauge *g, vt_roof_kind roof, run_kind kind, vt_err *err)
{
    TRY(cuda_graph_begin(&g->lane, err));
    for (int i = 0; i < EMPTY_NODES; i++)
        launch(g, kind, 1);
    TRY(cuda_graph_end(&g->lane, &g->graph, err));
    vt_status status = repeat(g, roof, kind, err);
    cuda_graph_release(g->cuda, &g->graph);
    g->graph = (cuda_graph){0};
    return status;
}

static vt_status measure_link(gauge *g, vt_roof_kind roof, run_kind kind, vt_err *err)
{
    g->link = g->bytes < LINK_BYTES ? g->bytes : LINK_BYTES;
    if (is_emulated(g->cuda))
        g->link = MIN_FAR;
    g->r->link_bytes = (int64_t)g->link;
    if (!g->pinned)
        TRY(vt_cuda_pinned(g->cuda, g->link, &g->pinned, err));
    return repeat(g, roof, kind, err);
}

static vt_status measure_bytes(gauge *g, vt_roof_kind roof, run_kind kind, size_t bytes,
                               vt_err *err)
{
    g->reads = bytes / 4096 * 4096;
    *vt_roof_working_set(g->r, roof) = (int64_t)g->reads;
    return g->reads > 0 ? repeat(g, roof, kind, err) : VT_OK;
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

/* Finds how much of the buffer to read, so that a pass does not take much longer than kPatience. */
static vt_status patient_bytes(gauge *g, size_t *bytes, vt_err *err)
{
    double seconds = 0;
    g->reads = MIN_FAR;
    TRY(run(g, READ, 1, &seconds, err));
    TRY(run(g, READ, 1, &seconds, err));
    double most = kPatience / seconds * MIN_FAR;
    *bytes = (double)g->bytes <= most ? g->bytes : ((size_t)most + MIN_FAR) / MIN_FAR * MIN_FAR;
    if (*bytes > g->bytes)
        *bytes = g->bytes;
    return VT_OK;
}

static vt_status measure_one(gauge *g, vt_roof_kind roof, size_t most, size_t near, vt_err *err)
{
    switch (roof) {
    case VT_ROOF_MEMORY:
        return measure_bytes(g, roof, READ, most, err);
    case VT_ROOF_WEIGHTS:
        return measure_bytes(g, roof, READ, near < most ? near : most, err);
    case VT_ROOF_COPY:
        return measure_bytes(g, roof, COPY, most, err);
    case VT_ROOF_L2: {
        size_t l2 = (size_t)g->cuda->l2_bytes / 2;
        return measure_bytes(g, roof, READ, l2 < most ? l2 : most, err);
    }
    case VT_ROOF_FP32:
        return repeat(g, roof, FP32, err);
    case VT_ROOF_BF16:
        return repeat(g, roof, BF16, err);
    case VT_ROOF_FP8:
        return repeat(g, roof, FP8, err);
    case VT_ROOF_INT8:
        return repeat(g, roof, INT8, err);
    case VT_ROOF_KERNEL:
        return measure_kernel(g, roof, EMPTY, err);
    case VT_ROOF_KERNEL_PDL:
        return measure_kernel(g, roof, EMPTY_PDL, err);
    case VT_ROOF_TO_DEVICE:
        return measure_link(g, roof, TO, err);
    case VT_ROOF_FROM_DEVICE:
        return measure_link(g, roof, FROM, err);
    default:
        return VT_OK;
    }
}

static bool wanted(const vt_cuda *c, vt_roof_kind roof, int64_t near)
{
    switch (roof) {
    case VT_ROOF_WEIGHTS:
        return near > 0;
    case VT_ROOF_L2:
        return c->l2_bytes >= 2 * 4096;
    case VT_ROOF_L3:
    case VT_ROOF_MEETING:
        return false;
    case VT_ROOF_INT8:
        return has(c, INT8);
    case VT_ROOF_FP8:
        return has(c, FP8);
    case VT_ROOF_KERNEL_PDL:
        return has(c, EMPTY_PDL);
    default:
        return true;
    }
}

static vt_status measure(gauge *g, const bool want[VT_ROOFS], vt_err *err)
{
    int64_t near = g->r->near_bytes;
    size_t most = 0;
    TRY(take_buffer(g, MAX_FAR, err));
    TRY(patient_bytes(g, &most, err));
    for (int i = 0; i < VT_ROOFS; i++)
        if (want[i])
            TRY(measure_one(g, (vt_roof_kind)i, most, (size_t)near, err));
    g->r->near_bytes = near;
    return VT_OK;
}

static vt_status open_and_measure(vt_cuda *c, vt_roofs *r, const bool want[VT_ROOFS], int32_t n,
                                  vt_err *err)
{
    gauge g = {.cuda = c, .r = r, .lane = {.cuda = c}, .figures_left = n};
    const cuda_driver *d = &c->driver;
    roofs_cuda_collect(c);
    TRY(vt_cuda_compile(c, NULL, NULL, err));
    TRY(vt_cuda_check(c, d->stream_create(&g.lane.stream, CU_STREAM_NON_BLOCKING, 0),
                      "making a stream", err));
    g.deadline_ns = vt_now_ns() + kAll;
    vt_status status = vt_cuda_check(c, d->event_create(&g.from, CU_EVENT_DEFAULT),
                                     "making an event", err);
    if (status == VT_OK)
        status = vt_cuda_check(c, d->event_create(&g.to, CU_EVENT_DEFAULT), "making an event", err);
    if (status == VT_OK)
        status = measure(&g, want, err);
    if (g.from)
        d->event_destroy(g.from);
    if (g.to)
        d->event_destroy(g.to);
    vt_cuda_free(c, g.buffer);
    vt_cuda_free(c, g.out);
    vt_cuda_pinned_free(c, g.pinned);
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
    snprintf(out, size, "%.96s-level%d-driver%d-%d-%d", c->name, c->level, c->driver_version,
             sm_khz / 1000, memory_khz / 1000);
    return VT_OK;
}

static vt_status get(vt_cuda *c, vt_roofs *r, bool again, vt_err *err)
{
    bool want[VT_ROOFS] = {false};
    int32_t n = 0;
    TRY(make_key(c, r->key, sizeof r->key, err));
    roofs_cache_read(r->key, r, r->near_bytes);
    for (int i = 0; i < VT_ROOFS; i++) {
        want[i] = wanted(c, (vt_roof_kind)i, r->near_bytes) && roofs_lacks(r, i, again);
        n += want[i];
    }
    if (n == 0)
        return VT_OK;
    TRY(open_and_measure(c, r, want, n, err));
    roofs_cache_write(r->key, r);
    return VT_OK;
}

vt_status vt_roofs_cuda(int32_t ordinal, int64_t working_set, bool again, vt_roofs *out,
                        vt_err *err)
{
    vt_cuda *c;
    vt_roofs r = {.measured = true, .is_gpu = true, .fp32_how = "fused multiply-add"};
    TRY(vt_cuda_open(ordinal, &c, err));
    r.bf16_how = c->level >= 90 ? "wgmma" : "mma.sync";
    r.int8_how = has(c, INT8) ? r.bf16_how : NULL;
    r.fp8_how = has(c, FP8) ? r.bf16_how : NULL;
    r.l2_size = c->l2_bytes;
    snprintf(r.name, sizeof r.name, "%s", c->name);
    snprintf(r.level, sizeof r.level, "%s", c->arch);
    if (working_set > 0)
        r.near_bytes = (int64_t)vt_round_up((size_t)working_set, 1 << 20);
    vt_status status = get(c, &r, again, err);
    vt_cuda_close(c);
    if (status == VT_OK) {
        if (r.near_bytes > 0) /* a near working set is never slower than a far one */
            vt_roof_better(&r, VT_ROOF_WEIGHTS, r.memory_bytes_per_s, r.mark[VT_ROOF_MEMORY].tag,
                           r.mark[VT_ROOF_MEMORY].when);
        *out = r;
    }
    return status;
}
