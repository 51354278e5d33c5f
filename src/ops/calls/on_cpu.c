#include "ops/calls/on_cpu.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "ops/cases.h"

const vt_batch *vt_op_batch(const vt_op *op, const void *args)
{
    return vt_op_operand(op, args, VT_OPERAND_BATCH);
}

int64_t vt_op_output_rows(const vt_op *op, const void *args)
{
    for (int32_t i = 0; i < op->n_operands; i++) {
        const vt_operand *o = &op->operands[i];
        const vt_tensor *t = *(const vt_tensor *const *)((const char *)args + o->offset);
        if (t && o->written && o->kind <= VT_OPERAND_INT)
            return t->dim[0];
    }
    return 0;
}

vt_size vt_size_of(const vt_batch *b)
{
    if (!b)
        return (vt_size){0};
    return (vt_size){.tokens = b->n_tokens,
                     .seqs = b->n_seqs,
                     .rows = b->n_rows,
                     .decodes = b->n_decode,
                     .decode_tokens = vt_decode_tokens(b),
                     .prefills = b->n_seqs - b->n_decode,
                     .copies = b->n_copies};
}

vt_status on_cpu_make(on_cpu *c, const vt_op *op, const vt_impl *impl, const void *args,
                      int32_t n_workers, vt_err *err)
{
    vt_limits limits = case_limits(n_workers);
    const vt_batch *batch = vt_op_batch(op, args);
    *c = (on_cpu){.target = vt_target_cpu(vt_cpu_get()->level, &limits), .size = vt_size_of(batch)};
    vt_target *t = &c->target;
    t->workspace_bytes = impl->workspace ? impl->workspace(args, t) : 0;
    c->workspace = vt_aligned_alloc(VT_CACHE_LINE,
                                    vt_round_up(t->workspace_bytes + 1, VT_CACHE_LINE));
    int32_t items = impl->plan ? vt_plan_items(impl->plan, args, t, &c->size, batch) : 0;
    size_t bytes = impl->plan ? impl->plan->bytes(args, t, &c->size, items) : 0;
    c->plan = vt_calloc(bytes + 1, 1);
    if (!c->workspace || !c->plan) {
        on_cpu_release(c);
        return vt_fail(err, VT_ERR_MEMORY, "%s, %s: out of memory for a workspace of %zu bytes",
                       op->name, impl->name, t->workspace_bytes);
    }
    if (impl->plan)
        c->items = impl->plan->fill(args, t, &c->size, batch, items, c->plan, NULL);
    return VT_OK;
}

void on_cpu_release(on_cpu *c)
{
    free(c->plan);
    free(c->workspace);
    c->plan = c->workspace = NULL;
}

vt_lane on_cpu_lane(const on_cpu *c, vt_team *team, int32_t worker, atomic_int *ticket)
{
    return (vt_lane){.target = &c->target,
                     .size = &c->size,
                     .plan = c->plan,
                     .items = c->items,
                     .own = c->own,
                     .workspace = c->workspace,
                     .workspace_bytes = c->target.workspace_bytes,
                     .team = team,
                     .worker = worker,
                     .n_workers = c->target.limits.n_workers,
                     .ticket = ticket};
}
