/* One call of a CPU row outside an executor: its plan, workspace and tickets, for tests, benchmarks
 * and labs (ops/on_cuda.h is the twin for a GPU). */
#ifndef VT_OPS_ON_CPU_H
#define VT_OPS_ON_CPU_H

#include "ops/op.h"

typedef struct on_cpu {
    vt_target target;
    vt_size size;
    void *plan, *workspace;
    int32_t items;
} on_cpu;

/* The batch that a call's args hold, by the card's operands; NULL: the op has none. */
const vt_batch *vt_op_batch(const vt_op *op, const void *args);

/* Memory for calls of `impl` with args of this shape on n_workers workers. The workspace is not
 * cleared. */
vt_status on_cpu_make(on_cpu *c, const vt_op *op, const vt_impl *impl, const void *args,
                      int32_t n_workers, vt_err *err);
void on_cpu_release(on_cpu *c);
/* Worker `worker`'s lane; ticket is shared by the workers of one call and zero when it begins. */
vt_lane on_cpu_lane(const on_cpu *c, vt_team *team, int32_t worker, atomic_int *ticket);

#endif
