/* Mixture of experts on CUDA for sizes that the fast kernels cannot read. Routing is one launch of
 * moe_route_any.cu. The experts are two launches of moe_expert_any.cu: gate and up, which writes h
 * to the workspace; then down with the sum over the slots of a token. */
#include "base/err.h"
#include "ops/cuda_impls.h"
#include "ops/cut.h"
#include "ops/linear/linear_pack_cuda.h"
#include "ops/moe/moe.h"
#include "ops/moe/moe_cuda.h"
#include "ops/moe/moe_params.h"

static bool route_any_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const moe_route_args *a = args;
    return (!a->bias || a->bias->dtype == VT_F32) &&
           (!a->by_expert || a->by_expert->dtype == VT_F32) && a->x->dtype == VT_BF16 &&
           a->router->dtype == VT_F32 &&
           (a->sigmoid ? 2 : 1) * a->router->dim[0] + a->groups + a->k <=
               8192; /* all are in shared memory */
}

static cuda_launch route_launch_of(const moe_route_args *a, int64_t tokens)
{
    return (cuda_launch){.spec = JIT_SPEC("moe_route_any.cu", "moe_route_any",
                                          {"hidden", (int32_t)a->router->dim[1]},
                                          {"experts", (int32_t)a->router->dim[0]}, {"k_used", a->k},
                                          {"normalise", a->normalise}, {"sigmoid", a->sigmoid},
                                          {"groups", a->groups}, {"groups_used", a->groups_used},
                                          {"bias", a->bias != NULL}),
                         .grid = {(uint32_t)tokens, 1, 1},
                         .threads = 256};
}

static vt_status route_any_run(const void *args, const vt_lane *lane)
{
    const moe_route_args *a = args;
    moe_route_params p = moe_cuda_route_params(a, lane);
    cuda_launch l = route_launch_of(a, a->x->dim[0]);
    return vt_cuda_launch(lane->cuda, &l, &p, sizeof p);
}

static void route_any_describe(const void *args, const vt_target *t, const vt_size *size,
                               vt_cut *out)
{
    const moe_route_args *a = args;
    cuda_launch l = route_launch_of(a, vt_size_rows(a->x, size));
    moe_cuda_route_shape(a, size, out);
    out->tile[0] = 1;
    vt_cut_roles(out, "8 warps score experts, then 1 chooses", NULL);
    vt_cut_grid(out, t, &l, 2);
}

static bool linear_any_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const moe_linear_args *a = args;
    return moe_cuda_knows(a) && moe_cuda_stacked(a->gate_up, a->n_experts) &&
           moe_cuda_stacked(a->down, a->n_experts);
}

static cuda_launch product_launch_of(const moe_linear_args *a, bool up, int64_t items)
{
    const vt_weight *w = up ? a->gate_up : a->down;
    int32_t rows = (int32_t)(up ? a->down->cols : w->rows);
    return (cuda_launch){
        .spec = JIT_SPEC("moe_expert_any.cu", "moe_expert_any", {"k", (int32_t)w->cols},
                         {"rows", rows}, {"up", up}, {"act", a->activation},
                         {"k_used", (int32_t)a->expert->dim[1]},
                         {"accumulate", !up && a->accumulate}, {"bias", moe_cuda_bias(a, up)}),
        .grid = {(uint32_t)items, cuda_blocks(rows, 4), 1},
        .threads = 128};
}

static vt_status linear_any_run(const void *args, const vt_lane *lane)
{
    const moe_linear_args *a = args;
    vt_cuda_lane *l = lane->cuda;
    int64_t tokens = a->x->dim[0], slots = tokens * a->expert->dim[1], ffn = a->down[0].cols;
    if ((size_t)(slots * ffn) * 2 > lane->workspace_bytes && !l->collect) {
        vt_fail(&l->err, VT_ERR_MEMORY,
                "moe_linear: %lld slots of %lld elements are beyond %zu bytes of workspace",
                (long long)slots, (long long)ffn, lane->workspace_bytes);
        return VT_ERR_MEMORY;
    }
    moe_expert_any_params up = {.x = a->x->data,
                                .weights = a->gate_up[0].part[0]->data,
                                .expert = a->expert->data,
                                .y = lane->workspace,
                                .x_stride = (int32_t)a->x->row_stride,
                                .y_stride = (int32_t)ffn,
                                MOE_EXPERT_EXTRAS(a)};
    moe_expert_any_params down = {.x = lane->workspace,
                                  .weights = a->down[0].part[0]->data,
                                  .expert = a->expert->data,
                                  .route = a->weight->data,
                                  .bias = a->down_bias ? a->down_bias->data : NULL,
                                  .y = a->y->data,
                                  .x_stride = (int32_t)ffn,
                                  .y_stride = (int32_t)a->y->row_stride};
    cuda_launch up_launch = product_launch_of(a, true, slots),
                down_launch = product_launch_of(a, false, tokens);
    vt_status status = vt_cuda_launch(l, &up_launch, &up, sizeof up);
    return status == VT_OK ? vt_cuda_launch(l, &down_launch, &down, sizeof down) : status;
}

/* There are two launches; the cut describes gate and up. */
static void linear_any_describe(const void *args, const vt_target *t, const vt_size *size,
                                vt_cut *out)
{
    const moe_linear_args *a = args;
    int64_t slots = vt_size_rows(a->x, size) * a->expert->dim[1];
    cuda_launch l = product_launch_of(a, true, slots);
    moe_cuda_linear_cut(a, size, out);
    vt_cut_roles(out, "gate and up, then down", NULL);
    out->tile[0] = 1;
    out->tile[1] = 4;
    vt_cut_grid(out, t, &l, 2);
}

const vt_impl moe_route_cuda_any_impl = {CUDA_ROW("any", route_any, route_any_supports),
                                         .fixed_order = true, .plan = &moe_cuda_tokens_plan};
const vt_impl moe_linear_cuda_any_impl = {CUDA_ROW("any", linear_any, linear_any_supports),
                                          .fixed_order = true, .packing = &linear_dense_packing,
                                          .workspace = moe_cuda_workspace};
