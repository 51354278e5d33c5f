/* Times one CPU row on one shape, as a step of a model would run it: memory lies as an engine's does,
 * weights and KV were last read as long ago as in a step, and activations are in the caches. */
#ifndef VT_OPS_BENCH_ONE_H
#define VT_OPS_BENCH_ONE_H

#include "ops/op.h"

typedef struct bench_one {
    double seconds; /* of a call, its barrier included: the best run */
    vt_cost cost;   /* compulsory */
    bool steady;    /* undisturbed runs agree (device/roofs_sample.h) */
} bench_one;

/* Whether the op reads weights or KV, so that its time depends on what the caches still hold of
 * them. */
bool vt_bench_one_streams(const vt_op *op);

/* shape: the text of a case (ops/case_text.h). set_bytes: the weights and KV that a step reads; that
 * many are read between two calls with the same ones. Takes at most about `budget_s`, and longer if
 * four calls take longer; on a quiet machine some 10 ms, and the time to write set_bytes. */
vt_status vt_bench_one(const vt_op *op, const vt_impl *impl, const char *shape, vt_team *team,
                       int64_t set_bytes, double budget_s, bench_one *out, vt_err *err);

#endif
