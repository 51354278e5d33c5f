/* One call of a CPU row outside an executor: its plan, workspace and tickets, for tests, benchmarks
 * and labs (ops/calls/on_cuda.h is the twin for a GPU). */
#ifndef VT_OPS_CALLS_ON_CPU_H
#define VT_OPS_CALLS_ON_CPU_H

#include "ops/op.h"

typedef struct on_cpu {
    vt_target target;
    vt_size size;
    void *plan, *workspace;
    int32_t items;
    const void *own; /* vt_lane.own; NULL until the caller sets it */
} on_cpu;

/* The batch in a call's args, found by the card's operands; NULL: the op has none. */
const vt_batch *vt_op_batch(const vt_op *op, const void *args);
/* The number of rows of the first tensor that the op writes; 0: it writes none. */
int64_t vt_op_output_rows(const vt_op *op, const void *args);

/* The size of a call or a step that is not padded; all 0 where there is no batch. */
vt_size vt_size_of(const vt_batch *batch);

/* Makes the memory for calls of `impl` with args of this shape on n_workers workers. The workspace
 * is not cleared. */
vt_status on_cpu_make(on_cpu *c, const vt_op *op, const vt_impl *impl, const void *args,
                      int32_t n_workers, vt_err *err);
void on_cpu_release(on_cpu *c);
/* The lane of worker `worker`. The workers of a call share `ticket`, which must be zero when the
 * call begins. */
vt_lane on_cpu_lane(const on_cpu *c, vt_team *team, int32_t worker, atomic_int *ticket);

#endif
