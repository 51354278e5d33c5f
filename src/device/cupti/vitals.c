/* Choosing the vitals of a chip, and the sets in which it counts them (vitals.h). */
#include "device/cupti/vitals.h"

#include <stdio.h>

#include "base/err.h"
#include "device/cupti/stalls.h"

/* In the order of their use: an earlier one is never given up for a later one. */
const vt_vital_row vt_vitals[VT_VITALS] = {
    [VT_VITAL_TIME] = {"time", "time of the range", {"gpu__time_duration.sum"}, false},
    [VT_VITAL_SM] = {"sm",
                     "cycles in which an SM had work",
                     {"sm__cycles_active.avg.pct_of_peak_sustained_elapsed"},
                     true},
    [VT_VITAL_TENSOR] = {"tensor",
                         "cycles in which the tensor cores worked",
                         {"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"},
                         true},
    [VT_VITAL_DRAM_READ] = {"dram_read", "bytes read from memory", {"dram__bytes_read.sum"}, false},
    [VT_VITAL_DRAM_WRITTEN] = {"dram_written",
                               "bytes written to memory",
                               {"dram__bytes_write.sum"},
                               false},
    [VT_VITAL_DRAM] = {"dram",
                       "memory's throughput of its peak",
                       {"dram__bytes.sum.pct_of_peak_sustained_elapsed"},
                       true},
    [VT_VITAL_L2_HIT] = {"l2_hit",
                         "sectors that the L2 cache had",
                         {"LTS.TriageCompute.lts__average_t_sector_hit_rate_realtime.pct",
                          "lts__t_sector_hit_rate.pct"},
                         true},
    [VT_VITAL_WARPS] = {"occupancy",
                        "warps that an active SM held, of the most it can",
                        {"sm__warps_active.avg.pct_of_peak_sustained_active"},
                        true},
    [VT_VITAL_CONFLICTS] = {"bank_conflicts",
                            "shared memory's bank conflicts",
                            {"l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"},
                            false},
    [VT_VITAL_WAVEFRONTS] = {"shared_wavefronts",
                             "shared memory's wavefronts",
                             {"l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"},
                             false},
    [VT_VITAL_SM_CYCLES] = {"sm_cycles",
                            "cycles in which the mean SM had work",
                            {"sm__cycles_active.avg"},
                            false},
    [VT_VITAL_SM_MOST] = {"sm_cycles_most",
                          "cycles in which the SM had work that had it longest",
                          {"sm__cycles_active.max"},
                          false},
    [VT_VITAL_WARP_CYCLES] = {"warp_cycles",
                              "cycles that warps spent on an SM",
                              {"smsp__warps_active.sum"},
                              false},
    [VT_VITAL_INSTRUCTIONS] = {"instructions",
                               "instructions executed, a warp's counted once",
                               {"smsp__inst_executed.sum"},
                               false},
#define STALL(name, label, meaning, remedy)                                              \
    [VT_VITAL_STALLED + VT_STALL_##name] = {"stalled_" #name,                            \
                                            "cycles in which a warp " meaning,           \
                                            {"smsp__warps_issue_stalled_" #name ".sum"}, \
                                            false},
    VT_STALL_ROWS(STALL)
#undef STALL
        [VT_VITAL_LOADS] = {"loads",
                            "loads from memory, a warp's counted once",
                            {"smsp__inst_executed_op_global_ld.sum"},
                            false},
    [VT_VITAL_LOAD_SECTORS] = {"load_sectors",
                               "sectors of 32 bytes that these loads fetched",
                               {"l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"},
                               false},
    [VT_VITAL_LOCAL_LOADS] = {"local_loads",
                              "loads of spilled registers, a warp's counted once",
                              {"smsp__inst_executed_op_local_ld.sum"},
                              false},
    [VT_VITAL_LOCAL_STORES] = {"local_stores",
                               "stores of spilled registers, a warp's counted once",
                               {"smsp__inst_executed_op_local_st.sum"},
                               false},
};

static vt_status configure(const vt_cupti *c, const char *chip, const uint8_t *availability,
                           vt_vital_set *s, size_t *passes, vt_err *err)
{
    return vt_cupti_configure(c, CUPTI_TYPE_RANGES, chip, availability, s->metric, s->n, &s->config,
                              passes, err);
}

static void put(vt_vital_set *s, vt_vital which, const char *metric)
{
    s->metric[s->n] = metric;
    s->is[s->n++] = which;
}

/* Puts a vital's metric into the set if it is still counted in one pass. *passes gets 0 where the
 * GPU does not lend it, and `why` the reason. */
static bool try_one(const vt_cupti *c, const char *chip, const uint8_t *availability,
                    vt_vital which, const char *metric, vt_vital_set *s, size_t *passes,
                    char why[160])
{
    vt_err err = {0};
    *passes = 0;
    put(s, which, metric);
    if (configure(c, chip, availability, s, passes, &err) == VT_OK && *passes == 1) {
        why[0] = '\0';
        return true;
    }
    s->n--;
    if (err.status == VT_OK)
        snprintf(why, 160, "%.60s needs %zu passes beside the others", metric, *passes);
    else
        snprintf(why, 160, "%.150s", err.message);
    return false;
}

/* Begins a set with what every set has: the time, and the cycles that stalls are shares of. */
static vt_vital_set *begin_set(const vt_cupti *c, const char *chip, const uint8_t *availability,
                               vt_vital_sets *out)
{
    static const vt_vital always[] = {VT_VITAL_TIME, VT_VITAL_WARP_CYCLES};
    vt_vital_set *s = &out->set[out->n++];
    char why[160];
    size_t passes;
    for (size_t i = 0; i < sizeof always / sizeof *always; i++)
        if (!out->why_not[always[i]][0])
            try_one(c, chip, availability, always[i], vt_vitals[always[i]].metric[0], s, &passes,
                    why);
    return s;
}

/* Finds a place for a vital: in the first set if it is one of those that matter most, in the last
 * set, or else in a new one. */
static void take(const vt_cupti *c, const char *chip, const uint8_t *availability, vt_vital which,
                 vt_vital_sets *out)
{
    char *why = out->why_not[which];
    for (int k = 0; k < 2 && vt_vitals[which].metric[k]; k++) {
        const char *metric = vt_vitals[which].metric[k];
        size_t passes = 2;
        for (int32_t i = which <= VT_VITAL_STALLED ? 0 : out->n - 1; i < out->n && passes > 1;
             i = i + 1 < out->n ? out->n - 1 : out->n)
            if (try_one(c, chip, availability, which, metric, &out->set[i], &passes, why))
                return;
        if (passes < 2 || out->n == VT_VITAL_SETS)
            continue;
        vt_vital_set *s = begin_set(c, chip, availability, out);
        if (try_one(c, chip, availability, which, metric, s, &passes, why))
            return;
        vt_cupti_config_release(c, &s->config);
        *s = (vt_vital_set){0};
        out->n--;
    }
}

/* Takes the first choice of the leading vitals at once, which is all that most machines need;
 * false: some are not lent, or they take several passes. */
static bool take_leading(const vt_cupti *c, const char *chip, const uint8_t *availability,
                         vt_vital_set *s)
{
    size_t passes = 0;
    for (int i = 0; i <= VT_VITAL_STALLED; i++)
        put(s, (vt_vital)i, vt_vitals[i].metric[0]);
    if (configure(c, chip, availability, s, &passes, NULL) == VT_OK && passes == 1)
        return true;
    s->n = 0;
    return false;
}

/* The vital that was tried last may have been refused, and its configuration is the one that is
 * left: makes each set's own. */
static vt_status settle(const vt_cupti *c, const char *chip, const uint8_t *availability,
                        vt_vital_sets *sets, vt_err *err)
{
    size_t passes;
    for (int32_t i = 0; i < sets->n; i++)
        TRY(configure(c, chip, availability, &sets->set[i], &passes, err));
    return VT_OK;
}

vt_status vt_vitals_choose(const vt_cupti *c, const char *chip, const uint8_t *availability,
                           vt_vital_sets *out, vt_err *err)
{
    *out = (vt_vital_sets){.n = 1};
    if (c->no_ranges[0])
        return vt_fail(err, VT_ERR_UNSUPPORTED, "%s", c->no_ranges);
    bool leading = take_leading(c, chip, availability, &out->set[0]);
    for (int i = leading ? VT_VITAL_STALLED + 1 : 0; i < VT_VITALS; i++)
        take(c, chip, availability, (vt_vital)i, out);
    vt_status status = out->set[0].n > 0 ? settle(c, chip, availability, out, err)
                                         : vt_fail(err, VT_ERR_UNSUPPORTED,
                                                   "no counter can be read: %s", out->why_not[0]);
    if (status != VT_OK)
        vt_vitals_release(c, out);
    return status;
}

void vt_vitals_release(const vt_cupti *c, vt_vital_sets *sets)
{
    for (int32_t i = 0; i < sets->n; i++)
        vt_cupti_config_release(c, &sets->set[i].config);
    *sets = (vt_vital_sets){0};
}
