/* Bytes over the links between ranks (ops/comm.h). Forms of a sum differ in them, so a card's cost
 * cannot tell them. */
#include "ops/comm.h"

#include "ops/all_gather/all_gather.h"
#include "ops/all_reduce/all_reduce.h"
#include "ops/all_reduce_rmsnorm/all_reduce_rmsnorm.h"
#include "ops/reduce_scatter/reduce_scatter.h"
#include "ops/sharded_rmsnorm/sharded_rmsnorm.h"

int64_t vt_comm_link_bytes(const vt_op *op, const vt_impl *impl, const void *args,
                           const vt_batch *batch)
{
    if (op == &all_reduce_op)
        return all_reduce_link_bytes(args, impl, batch);
    if (op == &all_reduce_rmsnorm_op)
        return all_reduce_rmsnorm_link_bytes(args, impl, batch);
    if (op == &sharded_rmsnorm_op)
        return sharded_rmsnorm_link_bytes(args, impl, batch);
    if (op == &reduce_scatter_op)
        return reduce_scatter_link_bytes(args, batch);
    return op == &all_gather_op ? all_gather_link_bytes(args, batch) : 0;
}
