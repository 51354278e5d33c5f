/* Times one CPU row on one shape as a step of a model would run it. The memory is of the kind that
 * an engine has, and before each call the caches hold what they hold in a step: weights and KV that
 * were read one step ago, and the input that all workers have just written. */
#ifndef VT_OPS_BENCH_BENCH_ONE_H
#define VT_OPS_BENCH_BENCH_ONE_H

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

/* The mean of n >= 1 calls that took ns[i], without those that took more than 1.5 times the median:
 * something else had a worker's CPU meanwhile. Reorders ns. */
double bench_calls_mean(double *ns, int32_t n, int32_t *n_counted);

#endif
