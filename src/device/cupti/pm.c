/* PM sampling (pm.h).
 *
 *   hardware's ring    [ s s s s s s ]     the oldest go first (KEEP_LATEST)
 *       decode               |
 *   counter data       [ s s s ]           MOST samples at a time, in CUPTI's own form
 *       evaluate             |
 *   vt_pm_event        begin, end, value of each lane
 *
 * A sample begins where the one before it ended. Where it does not, the hardware's ring has wrapped
 * before it was drained, and the next event says how long a time is missing.
 *
 * CUPTI 13.0 does not copy a configuration: its decoder reads, where it lies, the one that was set
 * first after enabling, whatever is set later. On an H100 a freed one ended the process in the
 * decoder, and one that was kept while another was set gave no samples. So each configuration is
 * set once between an enable and a disable, and lives until then.
 *
 * CUPTI gives times of CLOCK_REALTIME, which are put on the program's clock by reading both. The
 * first sample after a start has no beginning, so it is dropped. */
#include "device/cupti/pm.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"

enum {
    MOST = 512,            /* samples that are decoded at once */
    MOST_ROUNDS = 256,     /* of a drain, should the hardware be faster than the decoder */
    RING_BYTES = 64 << 20, /* of the hardware's ring */
    LEAST_CYCLES = 20000,  /* the shortest interval that NVIDIA's tools take on an A100 */
    CYCLES_A_MICROSECOND = 1400
};

/* In the order of their use: an earlier one is never given up for a later one. */
const vt_pm_row vt_pm_rows[VT_PM_LANES] = {
    [VT_PM_SM] = {"sm",
                  "SM cycles with work",
                  {"sm__cycles_active.avg.pct_of_peak_sustained_elapsed"},
                  true},
    [VT_PM_TENSOR] = {"tensor",
                      "SM cycles with tensor work",
                      {"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
                       "sm__pipe_tensor_cycles_active_realtime.avg.pct_of_peak_sustained_elapsed"},
                      true},
    [VT_PM_DRAM_READ] = {"dram_read", "read from memory", {"dram__bytes_read.sum"}, false},
    [VT_PM_DRAM_WRITTEN] = {"dram_written", "written to memory", {"dram__bytes_write.sum"}, false},
    [VT_PM_L2_HIT] = {"l2_hit",
                      "hits in the L2 cache",
                      {"LTS.TriageCompute.lts__average_t_sector_hit_rate_realtime.pct",
                       "lts__t_sector_hit_rate.pct"},
                      true},
    [VT_PM_PCIE_IN] = {"pcie_in", "read over PCIe", {"pcie__read_bytes.sum"}, false},
    [VT_PM_PCIE_OUT] = {"pcie_out", "written over PCIe", {"pcie__write_bytes.sum"}, false},
};

struct vt_pm {
    vt_cupti cupti;
    size_t device;
    const char *chip;
    bool by_cycles;
    uint8_t *availability;
    cupti_pm on; /* NULL: not enabled, which it is while it samples */
    vt_pm_set set;
    vt_cupti_config config;
    uint8_t *image;
    size_t image_bytes;
    bool started;
    int64_t last_end_ns; /* of the newest sample, on CUPTI's clock; 0: none since the start */
};

/* ---- what can be sampled ---- */

static vt_status read_availability(vt_pm *p, vt_err *err)
{
    enum { MOST_BYTES = 1 << 28 };
    static const char doing[] = "asking which counters it may sample";
    cupti_pm_availability a = {CUPTI_PARAMS(cupti_pm_availability), .device = p->device};
    TRY(vt_cupti_check(&p->cupti, p->cupti.f.pm_availability(&a), doing, err));
    if (a.image_bytes == 0 || a.image_bytes > MOST_BYTES)
        return vt_fail(err, VT_ERR_UNSUPPORTED, "CUPTI's list of counters to sample has %zu bytes",
                       a.image_bytes);
    p->availability = vt_calloc(1, a.image_bytes);
    if (!p->availability)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for CUPTI's list of counters");
    a.image = p->availability;
    return vt_cupti_check(&p->cupti, p->cupti.f.pm_availability(&a), doing, err);
}

static vt_status set_config(vt_pm *p, int64_t interval_ns, vt_err *err)
{
    int64_t cycles = interval_ns * CYCLES_A_MICROSECOND / 1000;
    cycles = cycles < LEAST_CYCLES ? LEAST_CYCLES : cycles;
    cupti_pm_config c = {CUPTI_PARAMS(cupti_pm_config),
                         .pm = p->on,
                         .config_bytes = p->config.bytes,
                         .config = p->config.image,
                         .buffer_bytes = RING_BYTES,
                         .interval = (uint64_t)(p->by_cycles ? cycles : interval_ns),
                         .trigger = p->by_cycles ? CUPTI_PM_BY_CYCLES : CUPTI_PM_BY_TIME,
                         .keep = CUPTI_PM_KEEP_LATEST};
    if (p->cupti.version < CUPTI_HAS_KEEP) /* its ring keeps what it can: it is drained in time */
        c.size = CUPTI_UP_TO(cupti_pm_config, trigger);
    return vt_cupti_check(&p->cupti, p->cupti.f.pm_configure(&c), "setting what to sample", err);
}

static vt_status enable(vt_pm *p, int64_t interval_ns, vt_err *err)
{
    cupti_pm_enable enable = {CUPTI_PARAMS(cupti_pm_enable), .device = p->device};
    TRY(vt_cupti_check(&p->cupti, p->cupti.f.pm_enable(&enable), "beginning to sample the GPU",
                       err));
    p->on = enable.pm;
    return set_config(p, interval_ns, err);
}

static vt_status disable(vt_pm *p, vt_err *err)
{
    cupti_pm_call end = {CUPTI_PARAMS(cupti_pm_call), .pm = p->on};
    p->on = NULL;
    return end.pm
               ? vt_cupti_check(&p->cupti, p->cupti.f.pm_disable(&end), "giving the GPU back", err)
               : VT_OK;
}

/* Makes the configuration of the set's metrics and tries whether the GPU takes it. A metric may be
 * in the list of counters and yet be refused here, as PCIe's are in some virtual machines. */
static vt_status configure(vt_pm *p, vt_err *err)
{
    enum { TRIED_NS = 100000 };
    size_t passes;
    vt_pm_set *s = &p->set;
    TRY(vt_cupti_configure(&p->cupti, CUPTI_TYPE_PM, p->chip, p->availability, s->metric, s->n,
                           &p->config, &passes, err));
    if (passes != 1)
        return vt_fail(err, VT_ERR_UNSUPPORTED, "%.60s needs %zu passes beside the others",
                       s->metric[s->n - 1], passes);
    vt_status status = enable(p, TRIED_NS, err);
    vt_status ended = disable(p, status == VT_OK ? err : NULL);
    return status != VT_OK ? status : ended;
}

/* Tries a lane beside those of the set, by one metric and then by the other. */
static void take(vt_pm *p, vt_pm_lane which)
{
    vt_pm_set *s = &p->set;
    for (int k = 0; k < 2 && vt_pm_rows[which].metric[k]; k++) {
        vt_err err = {0};
        s->metric[s->n] = vt_pm_rows[which].metric[k];
        s->is[s->n++] = which;
        vt_status status = configure(p, &err);
        snprintf(s->why_not[which], sizeof s->why_not[which], "%.159s", err.message);
        if (status == VT_OK)
            return;
        s->n--;
    }
}

static vt_status choose(vt_pm *p, vt_err *err)
{
    for (int i = 0; i < VT_PM_LANES; i++)
        take(p, (vt_pm_lane)i);
    if (p->set.n == 0)
        return vt_fail(err, VT_ERR_UNSUPPORTED, "no counter can be sampled: %s", p->set.why_not[0]);
    return configure(p, err); /* the one that was tried last may have been refused */
}

/* ---- opening ---- */

static vt_status open_pm(vt_pm *p, const vt_cuda *gpu, vt_err *err)
{
    TRY(vt_cupti_open(&p->cupti, err));
    if (p->cupti.no_pm[0])
        return vt_fail(err, VT_ERR_UNSUPPORTED, "%s", p->cupti.no_pm);
    TRY(vt_cupti_supported(&p->cupti, gpu, CUPTI_API_PM_SAMPLING, err));
    TRY(vt_cupti_chip(&p->cupti, gpu, &p->chip, err));
    TRY(read_availability(p, err));
    return choose(p, err);
}

vt_status vt_pm_open(const vt_cuda *gpu, vt_pm **out, vt_err *err)
{
    vt_pm *p = vt_calloc(1, sizeof *p);
    if (!p)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for sampling a GPU");
    p->device = (size_t)gpu->ordinal;
    p->by_cycles = gpu->cc_major < 8 || (gpu->cc_major == 8 && gpu->cc_minor == 0);
    vt_status status = open_pm(p, gpu, err);
    if (status == VT_OK)
        *out = p;
    else
        vt_pm_close(p);
    return status;
}

void vt_pm_close(vt_pm *p)
{
    if (!p)
        return;
    vt_pm_stop(p, NULL);
    vt_cupti_config_release(&p->cupti, &p->config);
    free(p->availability);
    free(p->image);
    free(p);
}

const vt_pm_set *vt_pm_sampled(const vt_pm *p) { return &p->set; }

/* ---- sampling ---- */

static vt_status make_room(vt_pm *p, vt_err *err)
{
    enum { MOST_BYTES = 1 << 30 };
    cupti_pm_bytes room = {CUPTI_PARAMS(cupti_pm_bytes), .pm = p->on, .metric = p->set.metric,
                           .n = (size_t)p->set.n, .most_samples = MOST};
    TRY(vt_cupti_check(&p->cupti, p->cupti.f.pm_bytes(&room), "sizing its samples", err));
    if (room.bytes == 0 || room.bytes > MOST_BYTES)
        return vt_fail(err, VT_ERR_UNSUPPORTED, "CUPTI wants %zu bytes for %d samples", room.bytes,
                       MOST);
    free(p->image);
    p->image = vt_calloc(1, room.bytes);
    p->image_bytes = room.bytes;
    return p->image ? VT_OK : vt_fail(err, VT_ERR_MEMORY, "out of memory for %d samples", MOST);
}

static vt_status begin(vt_pm *p, int64_t interval_ns, vt_err *err)
{
    TRY(enable(p, interval_ns, err));
    TRY(make_room(p, err));
    cupti_pm_call start = {CUPTI_PARAMS(cupti_pm_call), .pm = p->on};
    TRY(vt_cupti_check(&p->cupti, p->cupti.f.pm_start(&start), "starting to sample", err));
    p->started = true;
    p->last_end_ns = 0;
    return VT_OK;
}

vt_status vt_pm_start(vt_pm *p, int64_t interval_ns, vt_err *err)
{
    TRY(vt_pm_stop(p, err));
    vt_status status = begin(p, interval_ns, err);
    if (status != VT_OK)
        disable(p, NULL);
    return status;
}

vt_status vt_pm_stop(vt_pm *p, vt_err *err)
{
    if (!p->started)
        return VT_OK;
    p->started = false;
    cupti_pm_call stop = {CUPTI_PARAMS(cupti_pm_call), .pm = p->on};
    vt_status status = vt_cupti_check(&p->cupti, p->cupti.f.pm_stop(&stop), "ending to sample",
                                      err);
    vt_status ended = disable(p, status == VT_OK ? err : NULL);
    return status != VT_OK ? status : ended;
}

/* The host's clock minus CUPTI's, by the quickest of a few readings: in another this thread may
 * have lost its CPU. */
static int64_t clock_difference(void)
{
    enum { READINGS = 5 };
    int64_t quickest = INT64_MAX, difference = 0;
    for (int i = 0; i < READINGS; i++) {
        struct timespec t;
        int64_t before = vt_now_ns();
        clock_gettime(CLOCK_REALTIME, &t);
        int64_t took = vt_now_ns() - before;
        if (took < quickest) {
            quickest = took;
            difference = before + took / 2 - ((int64_t)t.tv_sec * 1000000000 + t.tv_nsec);
        }
    }
    return difference;
}

static vt_status evaluate(vt_pm *p, size_t index, vt_pm_event *e, vt_err *err)
{
    double counted[VT_PM_LANES], s = (double)(e->end_ns - e->begin_ns) * 1e-9;
    cupti_evaluate v = {
        CUPTI_PARAMS(cupti_evaluate), .host = p->config.host, .data = p->image,
        .data_bytes = p->image_bytes, .range = index,         .metric = p->set.metric,
        .n = (size_t)p->set.n,        .value = counted};
    TRY(vt_cupti_check(&p->cupti, p->cupti.f.evaluate(&v), "reading a sample", err));
    for (int i = 0; i < VT_PM_LANES; i++)
        e->value[i] = NAN;
    for (int32_t i = 0; i < p->set.n; i++)
        e->value[p->set.is[i]] = (float)(vt_pm_rows[p->set.is[i]].percent ? counted[i] / 100
                                                                          : counted[i] / s);
    return VT_OK;
}

/* A drain: which samples are wanted, and of whom. */
typedef struct wanted {
    int64_t from_ns, to_ns, difference_ns;
    vt_pm_seen *seen;
    void *user;
} wanted;

static vt_status read_sample(vt_pm *p, size_t index, const wanted *w, float *lost_us, vt_err *err)
{
    cupti_pm_sample at = {CUPTI_PARAMS(cupti_pm_sample), .pm = p->on, .image = p->image,
                          .bytes = p->image_bytes, .index = index};
    TRY(vt_cupti_check(&p->cupti, p->cupti.f.pm_sample(&at), "asking when a sample was", err));
    int64_t begin = (int64_t)at.begin_ns, end = (int64_t)at.end_ns, last = p->last_end_ns;
    p->last_end_ns = end;
    if (last == 0 || end <= begin) /* the first one */
        return VT_OK;
    *lost_us += begin - last > (end - begin) / 2 ? (float)(begin - last) * 1e-3F : 0;
    vt_pm_event e = {.begin_ns = begin + w->difference_ns, .end_ns = end + w->difference_ns};
    if (e.end_ns <= w->from_ns || e.begin_ns >= w->to_ns)
        return VT_OK;
    TRY(evaluate(p, index, &e, err));
    e.lost_us = *lost_us;
    *lost_us = 0;
    w->seen(w->user, &e);
    return VT_OK;
}

/* Decodes what the counter data has room for. *more: that was not all. */
static vt_status drain_some(vt_pm *p, const wanted *w, float *lost_us, bool *more, vt_err *err)
{
    const cupti_functions *f = &p->cupti.f;
    cupti_pm_image clear = {CUPTI_PARAMS(cupti_pm_image), .pm = p->on, .bytes = p->image_bytes,
                            .image = p->image};
    cupti_pm_decode decode = {CUPTI_PARAMS(cupti_pm_decode), .pm = p->on, .image = p->image,
                              .bytes = p->image_bytes};
    cupti_pm_info info = {CUPTI_PARAMS(cupti_pm_info), .image = p->image, .bytes = p->image_bytes};
    TRY(vt_cupti_check(&p->cupti, f->pm_image(&clear), "clearing its samples", err));
    TRY(vt_cupti_check(&p->cupti, f->pm_decode(&decode), "decoding samples", err));
    TRY(vt_cupti_check(&p->cupti, f->pm_info(&info), "counting samples", err));
    *more = decode.stopped == CUPTI_PM_IMAGE_FULL && info.completed > 0;
    for (size_t i = 0; i < info.completed; i++)
        TRY(read_sample(p, i, w, lost_us, err));
    return VT_OK;
}

vt_status vt_pm_drain(vt_pm *p, int64_t from_ns, int64_t to_ns, vt_pm_seen *seen, void *user,
                      vt_err *err)
{
    wanted w = {from_ns, to_ns, clock_difference(), seen, user};
    float lost_us = 0;
    bool more = p->started;
    for (int i = 0; more && i < MOST_ROUNDS; i++)
        TRY(drain_some(p, &w, &lost_us, &more, err));
    return VT_OK;
}
