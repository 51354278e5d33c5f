/* The registry of op cards, the choice of an implementation, and the small helpers that every op
 * uses.
 *
 * A card is found by name in a table of a dozen entries: a linear search is the right data
 * structure. The order of vt_ops is the order of a forward pass, so that listings read like one. */
#include "ops/op.h"

#include <string.h>

#include "ops/attention/attention.h"
#include "ops/embed/embed.h"
#include "ops/kv_store/kv_store.h"
#include "ops/linear/linear.h"
#include "ops/merge_state/merge_state.h"
#include "ops/moe/moe.h"
#include "ops/prefix_match/prefix_match.h"
#include "ops/rmsnorm/rmsnorm.h"
#include "ops/rope/rope.h"
#include "ops/sample/sample.h"
#include "ops/silu_mul/silu_mul.h"

const vt_op *const vt_ops[] = {
    &embed_op,
    &rmsnorm_op,
    &add_rmsnorm_op,
    &linear_op,
    &rope_op,
    &kv_store_op,
    &attention_decode_op,
    &attention_prefill_op,
    &merge_state_op,
    &silu_mul_op,
    &moe_route_op,
    &moe_linear_op,
    &sample_op,
    &prefix_match_op,
    NULL,
};

const vt_op *vt_op_find(const char *name)
{
    for (const vt_op *const *op = vt_ops; *op; op++)
        if (strcmp((*op)->name, name) == 0)
            return *op;
    return NULL;
}

/* x86 levels include those below them; NEON includes only the portable code. */
static bool level_includes(vt_isa level, vt_isa isa)
{
    if (isa == VT_ISA_PORTABLE || isa == level)
        return true;
    return level != VT_ISA_NEON && isa < level;
}

static bool impl_runs_on(const vt_impl *impl, vt_device_kind device, vt_isa level)
{
    return impl->device == device && (device != VT_DEVICE_CPU || level_includes(level, impl->isa));
}

const vt_impl *vt_op_select(const vt_op *op, vt_device_kind device, vt_isa level, const void *args)
{
    for (const vt_impl *const *impl = op->impls; *impl; impl++)
        if (impl_runs_on(*impl, device, level) && (!(*impl)->supports || (*impl)->supports(args)))
            return *impl;
    return NULL;
}

const vt_impl *vt_op_packer(const vt_op *op, vt_device_kind device, vt_isa level,
                            const vt_weight *w)
{
    for (const vt_impl *const *impl = op->impls; *impl; impl++)
        if (impl_runs_on(*impl, device, level) && (*impl)->pack_bytes && (*impl)->pack_bytes(w) > 0)
            return *impl;
    return NULL;
}

void vt_pack_all(const vt_impl *impl, const vt_weight *w, void *dst)
{
    impl->pack(w, 0, (int64_t)(impl->pack_bytes(w) / impl->pack_unit(w)), dst);
}

void vt_lane_share(const vt_lane *lane, int64_t n, int64_t grain, int64_t *begin, int64_t *end)
{
    int64_t units = vt_ceil_div(n, grain);
    int64_t first = units * lane->worker / lane->n_workers * grain;
    int64_t last = units * (lane->worker + 1) / lane->n_workers * grain;
    *begin = first < n ? first : n;
    *end = last < n ? last : n;
}

static void traffic_add(vt_traffic *sum, const vt_traffic *t)
{
    sum->weights += t->weights;
    sum->kv += t->kv;
    sum->activations += t->activations;
}

void vt_cost_add(vt_cost *sum, const vt_cost *c)
{
    traffic_add(&sum->read, &c->read);
    traffic_add(&sum->write, &c->write);
    sum->flops.fp32 += c->flops.fp32;
    sum->flops.bf16 += c->flops.bf16;
    sum->flops.fp8 += c->flops.fp8;
    sum->flops.int8 += c->flops.int8;
}

int64_t vt_cost_bytes(const vt_cost *c)
{
    return c->read.weights + c->read.kv + c->read.activations + c->write.weights + c->write.kv +
           c->write.activations;
}

int64_t vt_cost_flops(const vt_cost *c)
{
    return c->flops.fp32 + c->flops.bf16 + c->flops.fp8 + c->flops.int8;
}
