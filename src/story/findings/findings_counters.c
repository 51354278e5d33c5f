/* Rules about a GPU's hardware counters (findings.h). They speak of counted steps alone, and only
 * of ops of weight in them. Ops whose bytes fit the L2 cache are left out of the rules about bytes:
 * what they read may have been there. */
#include <math.h>

#include "story/findings/findings_inside.h"
#include "story/record/gpu_counters.h"

static const double of_weight = 0.05; /* of the counted time of a phase */
static const double too_many_bytes = 1.2, few_bytes = 0.8;
static const double conflicts = 0.10; /* of the wavefronts */

static void begin_evidence(findings *f, const counted_phase *p, const counted_op *o)
{
    vt_json_string(f->w, "phase", p->name);
    vt_json_string(f->w, "op", o->kind);
    vt_json_int(f->w, "counted_steps", p->n_steps);
}

static void judge_bytes(findings *f, const counted_phase *p, const counted_op *o, double l2_bytes)
{
    double of = counted_of_compulsory(o), need = o->bytes / o->n_calls;
    if (!isfinite(of) || need < l2_bytes || (of <= too_many_bytes && of >= few_bytes))
        return;
    if (of > too_many_bytes)
        finding_begin(f, 'W', "counters.rereads", "1.2 times the bytes that it must move",
                      "%s: %s moved %.2f times the bytes that it must: memory is read again that "
                      "the L2 cache did not keep, or sectors are fetched that no thread uses "
                      "(counters, tier T3)",
                      p->name, o->kind, of);
    else
        finding_begin(f, 'N', "counters.cached", "80 % of the bytes that it must move",
                      "%s: %s moved only %.0f %% of its bytes from memory: the L2 cache had the "
                      "rest, so its rate may lie above the memory's roof (counters, tier T3)",
                      p->name, o->kind, 100 * of);
    begin_evidence(f, p, o);
    vt_json_real(f->w, "of_compulsory", of);
    finding_end(f);
}

static void judge_conflicts(findings *f, const counted_phase *p, const counted_op *o)
{
    bool known = o->n[VT_VITAL_CONFLICTS] == o->n_calls && o->n[VT_VITAL_WAVEFRONTS] == o->n_calls;
    double share = known ? o->sum[VT_VITAL_CONFLICTS] / o->sum[VT_VITAL_WAVEFRONTS] : NAN;
    if (!(share >= conflicts))
        return;
    finding_begin(f, 'W', "counters.bank-conflicts", "10 % of shared memory's wavefronts",
                  "%s: %.0f %% of the wavefronts in which %s used shared memory were spent on bank "
                  "conflicts: threads of a warp wanted different words of one bank (counters, "
                  "tier T3)",
                  p->name, 100 * share, o->kind);
    begin_evidence(f, p, o);
    vt_json_real(f->w, "share", share);
    finding_end(f);
}

void findings_judge_counters(findings *f, const counted_phase phases[STORY_PHASES], double l2_bytes)
{
    for (int i = STORY_PHASES - 1; i >= 0; i--) {
        const counted_phase *p = &phases[i];
        double all = 0;
        for (int32_t k = 0; k < p->n_ops; k++)
            all += p->op[k].sum[VT_VITAL_TIME];
        for (int32_t k = 0; k < p->n_ops; k++) {
            if (!(p->op[k].sum[VT_VITAL_TIME] >= of_weight * all))
                continue;
            judge_bytes(f, p, &p->op[k], l2_bytes);
            judge_conflicts(f, p, &p->op[k]);
        }
    }
}
