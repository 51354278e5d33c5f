/* Times one CPU row on one shape, as a step of a model would run it: weights and KV come from
 * memory, because other layers' are read in between, and activations are in the caches. */
#ifndef VT_OPS_BENCH_ONE_H
#define VT_OPS_BENCH_ONE_H

#include "ops/op.h"

typedef struct bench_one {
    double seconds; /* of a call, its barrier included: the best run */
    vt_cost cost;   /* compulsory */
    bool steady;    /* undisturbed runs agree (device/roofs_sample.h) */
} bench_one;

/* shape: the text of a case (ops/case_text.h). Takes at most about `budget_s`, and longer if four
 * calls take longer; on a quiet machine some 10 ms. */
vt_status vt_bench_one(const vt_op *op, const vt_impl *impl, const char *shape, vt_team *team,
                       double budget_s, bench_one *out, vt_err *err);

#endif
