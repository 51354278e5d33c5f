/* Choosing the vitals that a chip counts in one pass (vitals.h). */
#include "device/cupti/vitals.h"

#include <stdio.h>

#include "base/err.h"

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
};

static vt_status configure(const vt_cupti *c, const char *chip, const uint8_t *availability,
                           vt_vital_set *s, size_t *passes, vt_err *err)
{
    return vt_cupti_configure(c, CUPTI_TYPE_RANGES, chip, availability, s->metric, s->n, &s->config,
                              passes, err);
}

/* Tries a vital beside those of the set. True: it is in the set now. */
static bool take(const vt_cupti *c, const char *chip, const uint8_t *availability, vt_vital which,
                 vt_vital_set *s)
{
    for (int k = 0; k < 2 && vt_vitals[which].metric[k]; k++) {
        size_t passes = 0;
        vt_err err = {0};
        s->metric[s->n] = vt_vitals[which].metric[k];
        s->is[s->n++] = which;
        if (configure(c, chip, availability, s, &passes, &err) == VT_OK && passes == 1) {
            s->why_not[which][0] = '\0';
            return true;
        }
        s->n--;
        if (err.status == VT_OK)
            snprintf(s->why_not[which], sizeof s->why_not[which],
                     "%.60s needs %zu passes beside the others", vt_vitals[which].metric[k],
                     passes);
        else
            snprintf(s->why_not[which], sizeof s->why_not[which], "%.150s", err.message);
    }
    return false;
}

/* Takes the first choice of every vital at once, which is all that most machines need; false: some
 * are not lent, or they take several passes. */
static bool take_all(const vt_cupti *c, const char *chip, const uint8_t *availability,
                     vt_vital_set *s)
{
    size_t passes = 0;
    for (int i = 0; i < VT_VITALS; i++) {
        s->metric[i] = vt_vitals[i].metric[0];
        s->is[i] = (vt_vital)i;
    }
    s->n = VT_VITALS;
    if (configure(c, chip, availability, s, &passes, NULL) == VT_OK && passes == 1)
        return true;
    s->n = 0;
    return false;
}

vt_status vt_vitals_choose(const vt_cupti *c, const char *chip, const uint8_t *availability,
                           vt_vital_set *out, vt_err *err)
{
    size_t passes = 0;
    *out = (vt_vital_set){0};
    if (c->no_ranges[0])
        return vt_fail(err, VT_ERR_UNSUPPORTED, "%s", c->no_ranges);
    if (take_all(c, chip, availability, out))
        return VT_OK;
    for (int i = 0; i < VT_VITALS; i++)
        take(c, chip, availability, (vt_vital)i, out);
    if (out->n == 0) {
        vt_status status = vt_fail(err, VT_ERR_UNSUPPORTED, "no counter can be read: %s",
                                   out->why_not[0]);
        vt_vitals_release(c, out);
        return status;
    }
    /* the one that was tried last may have been refused */
    vt_status status = configure(c, chip, availability, out, &passes, err);
    if (status != VT_OK)
        vt_vitals_release(c, out);
    return status;
}

void vt_vitals_release(const vt_cupti *c, vt_vital_set *set)
{
    vt_cupti_config_release(c, &set->config);
    *set = (vt_vital_set){0};
}
