/* Finding cards, the choice of an implementation, and the small helpers that every op uses.
 *
 * Cards are found by name with a linear search, which is fast enough for a table of a dozen
 * entries. */
#include "ops/op.h"

#include <string.h>

const vt_op *vt_op_find(const char *name)
{
    for (const vt_op *const *op = vt_ops; *op; op++)
        if (strcmp((*op)->name, name) == 0)
            return *op;
    return NULL;
}

const vt_op *vt_op_that_is(uint32_t is)
{
    for (const vt_op *const *op = vt_ops; *op; op++)
        if ((*op)->is & is)
            return *op;
    return NULL;
}

const vt_op *vt_op_that_packs(vt_packs kind)
{
    for (const vt_op *const *op = vt_ops; *op; op++)
        if ((*op)->packs == kind)
            return *op;
    return NULL;
}

const void *vt_op_operand(const vt_op *op, const void *args, vt_operand_kind kind)
{
    for (int32_t i = 0; i < op->n_operands; i++)
        if (op->operands[i].kind == kind)
            return *(const void *const *)((const char *)args + op->operands[i].offset);
    return NULL;
}

double vt_op_tolerance(const vt_op *op, const void *args)
{
    const vt_weight *w = vt_op_operand(op, args, VT_OPERAND_WEIGHTS);
    w = w ? w : vt_op_operand(op, args, VT_OPERAND_WEIGHT);
    bool other = op->quantised_tolerance > 0 && w && vt_dtype_quantised(w->dtype);
    return other ? op->quantised_tolerance : op->tolerance;
}

/* An x86 level includes those below it; NEON includes only the portable code. */
static bool level_includes(vt_isa level, vt_isa isa)
{
    if (isa == VT_ISA_PORTABLE || isa == level)
        return true;
    return level != VT_ISA_NEON && isa < level;
}

int32_t vt_decode_tokens(const vt_batch *b)
{
    int32_t most = 1, rounded = 2;
    for (int32_t s = 0; s < b->n_decode; s++)
        most = b->q_start[s + 1] - b->q_start[s] > most ? b->q_start[s + 1] - b->q_start[s] : most;
    while (rounded < most)
        rounded *= 2;
    return most > 1 ? rounded : 0;
}

vt_size vt_size_most(const vt_limits *limits)
{
    return (vt_size){.tokens = limits->max_tokens,
                     .seqs = limits->max_seqs,
                     .rows = limits->max_rows,
                     .decodes = limits->max_seqs,
                     .decode_tokens = limits->decode_tokens > 1 ? limits->decode_tokens : 0,
                     .prefills = limits->max_seqs,
                     .copies = limits->max_seqs};
}

int64_t vt_size_rows(const vt_tensor *t, const vt_size *size)
{
    if (!size || t->follows == VT_FIXED)
        return t->dim[0];
    return t->follows == VT_FOLLOWS_TOKENS ? size->tokens : size->rows;
}

int64_t vt_batch_rows(const vt_tensor *t, const vt_batch *batch)
{
    if (!batch || t->follows == VT_FIXED)
        return t->dim[0];
    return t->follows == VT_FOLLOWS_TOKENS ? batch->n_tokens : batch->n_rows;
}

static vt_tensor in_batch(const vt_tensor *t, const vt_batch *batch)
{
    vt_tensor sized = *t;
    sized.dim[0] = vt_batch_rows(t, batch);
    return sized;
}

int64_t vt_batch_elems(const vt_tensor *t, const vt_batch *batch)
{
    vt_tensor sized = in_batch(t, batch);
    return vt_tensor_elems(&sized);
}

int64_t vt_batch_bytes(const vt_tensor *t, const vt_batch *batch)
{
    vt_tensor sized = in_batch(t, batch);
    return vt_tensor_bytes(&sized);
}

int64_t vt_batch_states_behind(const vt_batch *batch)
{
    int64_t n = 0;
    for (int32_t t = 0; batch->state_behind && t < batch->n_tokens; t++)
        n += batch->state_behind[t] >= 0;
    return n;
}

bool vt_impl_fits(const vt_impl *impl, const void *args, const vt_target *t, const vt_size *upto)
{
    if (impl->device != t->device)
        return false;
    if (t->device == VT_DEVICE_CPU && !level_includes(t->isa, impl->isa))
        return false;
    if (t->device == VT_DEVICE_CUDA &&
        (impl->level > t->level || (t->deterministic && !impl->fixed_order)))
        return false;
    return !impl->supports || impl->supports(args, t, upto);
}

bool vt_impl_is(const vt_impl *impl, const char *name)
{
    return strcmp(impl->name, name) == 0 || (impl->family && strcmp(impl->family, name) == 0);
}

static const vt_impl *select_wanted(const vt_op *op, const char *name, const void *args,
                                    const vt_target *t, const vt_size *upto)
{
    for (const vt_impl *const *impl = op->impls; *impl; impl++)
        if (vt_impl_is(*impl, name) && vt_impl_fits(*impl, args, t, upto))
            return *impl;
    return NULL;
}

const vt_impl *vt_op_select(const vt_op *op, const void *args, const vt_target *t,
                            const vt_size *upto)
{
    const vt_impl *wanted = NULL;
    for (int32_t i = 0; i < t->n_backends && !wanted; i++)
        if (strcmp(t->backend[i].op, op->name) == 0)
            wanted = select_wanted(op, t->backend[i].row, args, t, upto);
    if (wanted)
        return wanted;
    for (const vt_impl *const *impl = op->impls; *impl; impl++)
        if (vt_impl_fits(*impl, args, t, upto) &&
            (!(*impl)->suits || (*impl)->suits(args, t, upto)))
            return *impl;
    return NULL;
}

const vt_impl *vt_op_row(const vt_op *op, vt_device_kind device, const char *name)
{
    const vt_impl *const *const table[] = {op->impls, op->variants};
    for (int i = 0; i < 2; i++)
        for (const vt_impl *const *impl = table[i]; impl && *impl; impl++)
            if ((*impl)->device == device && strcmp((*impl)->name, name) == 0)
                return *impl;
    return NULL;
}

int32_t vt_padded_tokens(int32_t n)
{
    int32_t step = n <= 96 ? 16 : n <= 256 ? 32 : 64;
    if (n <= 4)
        return n <= 2 ? n : 4;
    if (n <= 64)
        return n <= 16 ? 16 : n <= 32 ? 32 : 64;
    return (n + step - 1) / step * step;
}

/* The size after n in 1 2 4 8 16 32 64 96 ... 1024, then in steps of 512. Between two of these
 * sizes no row changes its answer. Every size that a step may be padded to (vt_padded_tokens) is
 * one of them, but 80, where the answer is that for 96. */
static int32_t next_border(int32_t n) { return n < 32 ? n * 2 : n < 1024 ? n + 32 : n + 512; }

int32_t vt_op_choose(const vt_op *op, const void *args, const vt_target *t, int32_t most,
                     vt_choice out[VT_MAX_CHOICES])
{
    int32_t n = 0;
    for (int32_t at = 1;; at = next_border(at)) {
        vt_size size = {.tokens = at, .seqs = at, .rows = at, .decodes = at, .prefills = at};
        const vt_impl *impl = vt_op_select(op, args, t, &size);
        if (!impl || (n == VT_MAX_CHOICES && out[n - 1].impl != impl))
            return 0;
        if (n == 0 || out[n - 1].impl != impl)
            out[n++].impl = impl;
        out[n - 1].upto = at;
        if (at >= most || t->device == VT_DEVICE_CPU)
            break;
    }
    out[n - 1].upto = INT32_MAX;
    return n;
}

bool vt_op_packing(const vt_op *op, const vt_weight *w, const vt_target *t, const vt_packing **out)
{
    *out = NULL;
    if (t->device == VT_DEVICE_CPU) {
        const vt_impl *row = op->row_of ? op->row_of(w, t) : NULL;
        if (row && row->packing && row->packing->bytes(w) > 0)
            *out = row->packing;
        return row;
    }
    for (const vt_impl *const *impl = op->impls; *impl && !*out; impl++)
        if ((*impl)->device == t->device && (*impl)->packing && (*impl)->packing->bytes(w) > 0)
            *out = (*impl)->packing;
    return *out;
}

bool vt_weight_in_blocks(const vt_weight *w)
{
    bool blocks = w->dtype == VT_FP8_E4M3;
    for (int32_t i = 0; i < w->n_parts && !w->packed_in_blocks; i++)
        blocks = blocks && w->scale[i] && vt_tensor_elems(w->scale[i]) > 1 &&
                 (w->paired || i == w->n_parts - 1 || w->part[i]->dim[0] % VT_SCALE_BLOCK == 0);
    return blocks;
}

vt_weight vt_weight_packed(const vt_weight *host, const vt_packing *p, const vt_tensor *part)
{
    return (vt_weight){.part = {part},
                       .n_parts = 1,
                       .n_experts = host->n_experts,
                       .paired = host->paired,
                       .rows = host->rows,
                       .cols = host->cols,
                       .dtype = part->dtype,
                       .packed_bytes = p->bytes(host),
                       .packing = p,
                       .packed_in_blocks = vt_weight_in_blocks(host)};
}

vt_cost vt_impl_cost(const vt_op *op, const vt_impl *impl, const void *args, const vt_batch *batch)
{
    vt_cost c = op->cost(args, batch);
    if (impl->fp8_products) {
        c.flops.fp8 += c.flops.bf16;
        c.flops.bf16 = 0;
    }
    if (impl->before_cost) {
        vt_cost before = impl->before_cost(args, batch);
        vt_cost_add(&c, &before);
    }
    return c;
}

void vt_pack_all(const vt_packing *p, const vt_weight *w, void *dst)
{
    p->write(w, 0, (int64_t)(p->bytes(w) / p->unit(w)), dst);
}

int32_t vt_plan_items(const vt_host_plan *plan, const void *args, const vt_target *t,
                      const vt_size *size, const vt_batch *batch)
{
    return plan->items ? plan->items(args, t, size, batch) : 0;
}

int32_t vt_plan_variant(const vt_host_plan *plan, const void *args, const vt_target *t,
                        const vt_size *size, const vt_batch *batch)
{
    return plan->variant && batch ? plan->variant(args, t, size, batch) : 0;
}

vt_target vt_target_cpu(vt_isa isa, const vt_limits *limits)
{
    return (vt_target){
        .device = VT_DEVICE_CPU, .isa = isa, .limits = limits ? *limits : (vt_limits){0}};
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
