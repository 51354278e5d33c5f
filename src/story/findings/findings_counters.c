/* Rules about a GPU's hardware counters (findings.h). They speak of counted steps alone, and only
 * of ops of weight in them. Ops whose bytes fit the L2 cache are left out of the rules about bytes:
 * what they read may have been there. */
#include <math.h>

#include "device/cupti/stalls.h"
#include "story/findings/findings_inside.h"
#include "story/record/gpu_counters.h"

static const double of_weight = 0.05; /* of the counted time of a phase */
static const double too_many_bytes = 1.2, few_bytes = 0.8;
static const double conflicts = 0.10;   /* of the wavefronts */
static const double long_wait = 0.30;   /* of the cycles of an op's warps */
static const double busy_memory = 0.60; /* of its peak */
static const double idle_tensor = 0.50; /* of the time, for ops that the tensor cores bind */
static const double wide_sectors = 17;  /* 32 threads side by side with 16 bytes each need 16 */
static const double spills = 0.01;      /* of the instructions */
enum { told_waits = 2 };                /* ops of a phase whose waits are told */

static void begin_evidence(findings *f, const counted_phase *p, const counted_op *o)
{
    vt_json_string(f->w, "phase", p->name);
    vt_json_string(f->w, "op", o->kind);
    vt_json_int(f->w, "counted_steps", p->n_steps);
}

static void judge_bytes(findings *f, const counted_phase *p, const counted_op *o, double l2_bytes)
{
    double of = counted_of_compulsory(o), need = o->bytes / o->n_whole;
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
    double share = counted_mean(o, VT_VITAL_CONFLICTS) / counted_mean(o, VT_VITAL_WAVEFRONTS);
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

/* Returns what the op's warps waited for most; VT_STALLS where they waited long for nothing. */
static vt_stall longest_wait(const counted_op *o)
{
    vt_stall most = VT_STALLS;
    for (int i = 0; i < VT_STALLS; i++)
        if (vt_stall_waits((vt_stall)i) && counted_stalled(o, (vt_stall)i) >= long_wait &&
            (most == VT_STALLS || counted_stalled(o, (vt_stall)i) > counted_stalled(o, most)))
            most = (vt_stall)i;
    return most;
}

/* A wait for memory is as it should be while memory works at its peak, and a wait for a busy unit
 * while the tensor cores work: these are good to know. */
static void judge_waits(findings *f, const counted_phase *p, const counted_op *o)
{
    vt_stall most = longest_wait(o);
    if (most == VT_STALLS)
        return;
    double share = counted_stalled(o, most), dram = counted_mean(o, VT_VITAL_DRAM),
           tensor = counted_mean(o, VT_VITAL_TENSOR);
    bool memory = most == VT_STALL_long_scoreboard && dram >= busy_memory,
         unit = (most == VT_STALL_math_pipe_throttle || most == VT_STALL_gmma) &&
                tensor >= idle_tensor;
    const char *remedy = vt_stalls[most].remedy;
    finding_begin(f, memory || unit || !remedy ? 'N' : 'W', "counters.waits",
                  "30 % of the cycles of an op's warps",
                  "%s: what the warps of %s waited for: %.0f %% of their cycles a warp %s (%s, "
                  "counters, tier T3); %s%s",
                  p->name, o->kind, 100 * share, vt_stalls[most].meaning, vt_stalls[most].name,
                  memory   ? "memory was busy meanwhile, so the wait is for its roof"
                  : unit   ? "the tensor cores were busy meanwhile, so it is for their roof"
                  : remedy ? "what helps: "
                           : "nothing is to be done about it",
                  memory || unit || !remedy ? "" : remedy);
    begin_evidence(f, p, o);
    vt_json_string(f->w, "reason", vt_stalls[most].name);
    vt_json_real(f->w, "share", share);
    if (isfinite(dram))
        vt_json_real(f->w, "memory_of_peak", dram);
    finding_end(f);
}

/* An op whose products take longer than its bytes, by the roofs, should keep the tensor cores
 * busy. */
static void judge_tensor(findings *f, const counted_phase *p, const counted_op *o)
{
    double tensor = counted_mean(o, VT_VITAL_TENSOR);
    if (!(o->tensor_s > o->memory_s && isfinite(o->tensor_s) && tensor < idle_tensor))
        return;
    finding_begin(f, 'W', "counters.tensor", "50 % of the time, for ops that the tensor cores bind",
                  "%s: the products of %s need %.1f times as long as its bytes at the roofs, and "
                  "the tensor cores worked only %.0f %% of the time: tiles are too small, or their "
                  "data comes too late (counters, tier T3)",
                  p->name, o->kind, o->tensor_s / o->memory_s, 100 * tensor);
    begin_evidence(f, p, o);
    vt_json_real(f->w, "tensor", tensor);
    finding_end(f);
}

static void judge_loads(findings *f, const counted_phase *p, const counted_op *o)
{
    double sectors = counted_mean(o, VT_VITAL_LOAD_SECTORS) / counted_mean(o, VT_VITAL_LOADS);
    if (!(sectors > wide_sectors))
        return;
    finding_begin(f, 'W', "counters.coalescing", "17 sectors of 32 bytes a load",
                  "%s: a load of %s fetches %.1f sectors of 32 bytes, where 32 threads that read "
                  "16 bytes each side by side need 16: neighbouring threads read far apart "
                  "(counters, tier T3)",
                  p->name, o->kind, sectors);
    begin_evidence(f, p, o);
    vt_json_real(f->w, "sectors", sectors);
    finding_end(f);
}

static void judge_spills(findings *f, const counted_phase *p, const counted_op *o)
{
    double share = (counted_mean(o, VT_VITAL_LOCAL_LOADS) +
                    counted_mean(o, VT_VITAL_LOCAL_STORES)) /
                   counted_mean(o, VT_VITAL_INSTRUCTIONS);
    if (!(share >= spills))
        return;
    finding_begin(f, 'W', "counters.spills", "1 % of the instructions",
                  "%s: %.1f %% of the instructions of %s move spilled registers, or arrays indexed "
                  "by a variable, to local memory and back (counters, tier T3)",
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
            judge_tensor(f, p, &p->op[k]);
            judge_loads(f, p, &p->op[k]);
            judge_spills(f, p, &p->op[k]);
            if (k < told_waits) /* the longest come first */
                judge_waits(f, p, &p->op[k]);
        }
    }
}
