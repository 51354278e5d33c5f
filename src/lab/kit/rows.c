/* Asking the rows of a card about a call without running it (rows.h). */
#include "lab/kit/rows.h"

#include <math.h>

#include "base/err.h"
#include "device/hardware.h"
#include "lab/kit/devices.h"
#include "ops/calls/on_cpu.h"
#include "ops/cases.h"
#include "ops/cut.h"

/* The longest context that a lab asks about. */
enum { LAB_CONTEXT = 1 << 17 };

static vt_limits limits_of(int32_t n_workers)
{
    vt_limits limits = case_limits(n_workers);
    limits.max_context = LAB_CONTEXT;
    return limits;
}

static vt_target gpu_target(int32_t level, int32_t sm_count, int32_t max_shared_bytes)
{
    return (vt_target){.device = VT_DEVICE_CUDA,
                       .limits = limits_of(0),
                       .level = level,
                       .sm_count = sm_count,
                       .max_shared_bytes = max_shared_bytes};
}

vt_status lab_target(lab *l, vt_target *out, vt_err *err)
{
    if (l->ordinal < 0) {
        vt_limits limits = limits_of(l->threads);
        *out = vt_target_cpu(vt_cpu_get()->level, &limits);
        return VT_OK;
    }
    on_cuda_gpu *gpu;
    TRY(lab_gpu(l, &gpu, err));
    *out = gpu_target(gpu->cuda->level, gpu->cuda->sm_count, gpu->cuda->max_shared_bytes);
    return VT_OK;
}

vt_status lab_target_named(const char *name, vt_target *out, vt_err *err)
{
    const vt_hardware *h = vt_hardware_find(name, err);
    if (!h)
        return VT_ERR_USAGE;
    *out = gpu_target(h->kernel_level, h->sm_count, h->max_shared_bytes);
    return VT_OK;
}

/* Gives the args' tensors the types that they have on a GPU (the operands of op.h). */
static void as_on_gpu(const vt_op *op, void *args)
{
    for (int32_t i = 0; i < op->n_operands; i++) {
        const vt_operand *o = &op->operands[i];
        vt_tensor *t = *(vt_tensor **)((char *)args + o->offset);
        if (!t)
            continue;
        if (o->kind == VT_OPERAND_ACTIVATION)
            t->dtype = VT_BF16;
        else if (o->kind == VT_OPERAND_F32)
            t->dtype = VT_F32;
        else if (o->kind == VT_OPERAND_KV && t->dtype != VT_FP8_E4M3)
            t->dtype = VT_BF16;
    }
}

vt_status lab_call_make(const vt_target *t, const char *op, const char *shape, lab_call *out,
                        vt_err *err)
{
    vt_tensor *outputs[VT_MAX_OUTPUTS];
    int32_t n_outputs;
    *out = (lab_call){.op = vt_op_find(op), .target = *t};
    if (!out->op)
        return vt_fail(err, VT_ERR_USAGE, "%s is not an op", op);
    TRY(vt_case_from_text(out->op, shape, &out->shape, err));
    vt_arena_init(&out->arena, 0);
    out->args = out->op->make_args(&out->shape, 1, &out->arena, outputs, &n_outputs);
    if (!out->args) {
        lab_call_release(out);
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for %s with %s", op, shape);
    }
    out->batch = vt_op_batch(out->op, out->args);
    if (t->device == VT_DEVICE_CUDA)
        as_on_gpu(out->op, out->args);
    return VT_OK;
}

void lab_call_release(lab_call *c)
{
    if (c->args)
        vt_arena_release(&c->arena);
    c->args = NULL;
}

static vt_size size_of_args(const lab_call *c)
{
    return c->batch ? vt_size_of(c->batch) : vt_size_most(&c->target.limits);
}

const vt_impl *lab_call_row(const lab_call *c, const char *impl, const vt_size *size)
{
    vt_size own = size ? *size : size_of_args(c);
    if (!impl)
        return vt_op_select(c->op, c->args, &c->target, &own);
    const vt_impl *row = vt_op_row(c->op, c->target.device, impl);
    return row && vt_impl_fits(row, c->args, &c->target, &own) ? row : NULL;
}

bool lab_call_cut(const lab_call *c, const char *impl, const vt_size *size, vt_cut *out)
{
    const vt_impl *row = lab_call_row(c, impl, size);
    *out = (vt_cut){0};
    if (!row || !row->describe)
        return false;
    row->describe(c->args, &c->target, size, out);
    return true;
}

/* Returns how many items the row's plan makes for this prompt; 0: not known. */
static int32_t planned_items(const vt_impl *row, const lab_call *c, const vt_size *size)
{
    const vt_host_plan *plan = row->plan;
    uint64_t state = 1;
    vt_arena arena;
    int32_t items = 0;
    if (!plan || !plan->items || !plan->fill || c->target.device == VT_DEVICE_CPU)
        return 0;
    vt_arena_init(&arena, 0);
    vt_batch *b = case_batch(&arena, 16, 1, &(case_seq){size->tokens, size->tokens}, false, 100,
                             &state);
    int32_t most = plan->items(c->args, &c->target, size, NULL);
    void *out = vt_arena_alloc(&arena, 1, plan->bytes(c->args, &c->target, size, most) + 64);
    if (b && out)
        items = plan->fill(c->args, &c->target, size, b, most, out, NULL);
    vt_arena_release(&arena);
    return items;
}

bool lab_prompt_cut(const lab_call *c, const char *impl, int32_t n, vt_cut *out)
{
    vt_size size = {.tokens = n, .seqs = 1, .rows = 1, .prefills = 1};
    const vt_impl *row = lab_call_row(c, impl, &size);
    if (!row || !lab_call_cut(c, row->name, &size, out))
        return false;
    int32_t items = planned_items(row, c, &size);
    if (items > 0)
        vt_cut_planned(out, items, row->plan->items(c->args, &c->target, &size, NULL));
    return true;
}

int32_t lab_wave_border(const lab_call *c, const char *impl, int32_t from, int32_t limit)
{
    vt_cut cut;
    double before = 0;
    for (int32_t n = from; n <= limit; n++) {
        if (!lab_prompt_cut(c, impl, n, &cut))
            return 0;
        double waves = ceil(cut.waves - 1e-9);
        if (before > 0 && waves > before)
            return n;
        before = waves;
    }
    return 0;
}
