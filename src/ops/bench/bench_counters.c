/* Counting a call of an op (bench_counters.h). */
#include "ops/bench/bench_counters.h"

#include <math.h>
#include <string.h>

#include "base/err.h"

typedef struct counting {
    double sum[VT_VITALS], warps[VT_STALLS];
    int32_t n[VT_VITALS];
} counting;

static void add(void *user, const char *name, const double value[VT_VITALS])
{
    counting *k = user;
    (void)name;
    for (int i = 0; i < VT_VITALS; i++) {
        if (!isfinite(value[i]))
            continue;
        k->sum[i] += value[i];
        k->n[i]++;
        if (i >= VT_VITAL_STALLED && i < VT_VITAL_STALLED + VT_STALLS)
            k->warps[i - VT_VITAL_STALLED] += value[VT_VITAL_WARP_CYCLES];
    }
}

static vt_status wait(on_cuda *c, vt_err *err)
{
    const vt_cuda_lane *l = &c->gpu->lane;
    return vt_cuda_check(l->cuda, l->cuda->driver.stream_sync(l->stream), "waiting for a call",
                         err);
}

static vt_status run_counted(on_cuda *c, vt_ranges *r, vt_err *err)
{
    static const char *const name[BENCH_COUNT_RUNS] = {"0", "1", "2"};
    for (int i = 0; i < BENCH_COUNT_RUNS; i++) {
        TRY(wait(c, err));
        TRY(vt_ranges_push(r, name[i], err));
        TRY(on_cuda_launch(c, err));
        TRY(wait(c, err));
        TRY(vt_ranges_pop(r, err));
    }
    return VT_OK;
}

vt_status bench_count(on_cuda *c, vt_ranges *r, bench_counts *out, vt_err *err)
{
    counting k = {0};
    for (int32_t set = 0; set < vt_ranges_sets(r)->n; set++) {
        TRY(on_cuda_launch(c, err)); /* what comes before a counted call is the call itself */
        TRY(wait(c, err));
        TRY(vt_ranges_begin(r, set, err));
        vt_status status = run_counted(c, r, err);
        vt_status ended = vt_ranges_end(r, add, &k, status == VT_OK ? err : NULL);
        TRY(status != VT_OK ? status : ended);
    }
    for (int i = 0; i < VT_VITALS; i++)
        out->vital[i] = k.n[i] > 0 ? k.sum[i] / k.n[i] : NAN;
    for (int i = 0; i < VT_STALLS; i++)
        out->stalled[i] = k.warps[i] > 0 ? k.sum[VT_VITAL_STALLED + i] / k.warps[i] : NAN;
    return VT_OK;
}
