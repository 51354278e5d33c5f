/* Times one CPU row on one shape as a step of a model would run it. The memory is of the kind that
 * an engine has, and before each call the caches hold what they hold in a step: weights and KV that
 * were read one step ago, and the input that all workers have just written. */
#ifndef VT_OPS_BENCH_BENCH_ONE_H
#define VT_OPS_BENCH_BENCH_ONE_H

#include "base/team.h"
#include "ops/op.h"

typedef struct bench_one {
    double seconds; /* of a call, its barrier included: the best run */
    vt_cost cost;   /* compulsory */
    bool steady;    /* undisturbed runs agree (device/roofs/roofs_sample.h) */
} bench_one;

/* The step that the call is of. */
typedef struct bench_step {
    int64_t set_bytes; /* weights and KV that it reads: those of a call come again after so many */
    int64_t passing_bytes; /* what other calls move between two such calls, activations too */
    int32_t least_calls;   /* of a run, however long they take: 0 as a rule, at most 2048 */
} bench_step;

/* Returns true if the op reads weights or KV, so that its time depends on what the caches still
 * hold of them. */
bool vt_bench_one_streams(const vt_op *op);

/* shape: the text of a case (ops/case_text.h). Takes at most about `budget_s`, and longer if four
 * calls take longer; on a quiet machine some 30 ms, and the time to write step->set_bytes. */
vt_status vt_bench_one(const vt_op *op, const vt_impl *impl, const char *shape, vt_team *team,
                       const bench_step *step, double budget_s, bench_one *out, vt_err *err);

/* Teams that run the same calls at the same time, as the ranks of a CPU do, and workers of a fleet
 * on one machine. */
enum { VT_BENCH_TEAMS = 64 };
typedef struct vt_bench_teams {
    vt_team *team[VT_BENCH_TEAMS];
    vt_team *leaders; /* worker i leads team i; NULL where there is one team */
    int32_t n;
} vt_bench_teams;

/* Makes n teams of n_threads, at most VT_BENCH_TEAMS, on the CPUs on which an engine of n ranks has
 * them (exec/cpu_rank.h). What is made is to be freed after a failure too. */
vt_status vt_bench_teams_new(int32_t n, int32_t n_threads, vt_bench_teams *out, vt_err *err);
void vt_bench_teams_free(vt_bench_teams *teams);

/* As vt_bench_one, by all teams at once. Each has weights and KV of its own; the step is a team's.
 * The result is the mean time of a team's call, and the cost of one. */
vt_status vt_bench_together(const vt_op *op, const vt_impl *impl, const char *shape,
                            const vt_bench_teams *teams, const bench_step *step, double budget_s,
                            bench_one *out, vt_err *err);

/* The mean of n >= 1 calls that took ns[i], without those that took more than 1.5 times the median:
 * something else had a worker's CPU meanwhile. Reorders ns. */
double bench_calls_mean(double *ns, int32_t n, int32_t *n_counted);

#endif
