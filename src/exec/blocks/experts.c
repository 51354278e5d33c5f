/* Experts: a router chooses some of them for each token; gated feed-forwards.
 *
 *   expert, expert_weight [tokens, experts used]   which, and their shares */
#include "base/err.h"
#include "exec/blocks/block.h"
#include "ops/moe/moe.h"

/* Gate and up are always paired. */
static vt_status weights(vt_layout *l, int32_t layer, vt_err *err)
{
    const vt_layer *src = &l->model->layer[layer];
    const vt_tensor *gate = src->weight[VT_ROLE_EXPERT_GATE], *up = src->weight[VT_ROLE_EXPERT_UP];
    if (gate->dtype != up->dtype)
        return vt_fail(err, VT_ERR_UNSUPPORTED,
                       "%s: experts of layer %d whose gate is %s and up is %s are not supported; "
                       "both must have one type",
                       l->model->name, layer, vt_dtype_get(gate->dtype)->name,
                       vt_dtype_get(up->dtype)->name);
    vt_layout_add_role(l, VT_ROLE_ROUTER, layer);
    vt_layout_add_pair(l, VT_ROLE_EXPERT_GATE_UP, VT_ROLE_EXPERT_GATE, VT_ROLE_EXPERT_UP, layer);
    vt_layout_add_role(l, VT_ROLE_EXPERT_DOWN, layer);
    return vt_block_check_scale(l, layer, VT_ROLES, err);
}

static void tensors(builder *b)
{
    int32_t used = b->m->arch.n_experts_used;
    b->expert = build_activation(b, "expert", VT_FOLLOWS_TOKENS, used, VT_I32);
    b->expert_weight = build_activation(b, "expert_weight", VT_FOLLOWS_TOKENS, used, VT_F32);
}

static void emit(builder *b, int32_t i, const vt_tensor *x, vt_tensor *y)
{
    const vt_arch *a = &b->m->arch;
    const vt_layer_weights *lw = &b->w->layer[i];
    const vt_tensor *residual = y == b->x ? y : NULL;
    EMIT(b, moe_route, i, "", VT_WHEN_TOKENS,
         {.x = x,
          .router = lw->tensor[VT_ROLE_ROUTER],
          .k = a->n_experts_used,
          .normalise = a->norm_topk,
          .expert = b->expert,
          .weight = b->expert_weight});
    EMIT(b, moe_linear, i, "", VT_WHEN_TOKENS,
         {.x = x,
          .expert = b->expert,
          .weight = b->expert_weight,
          .gate_up = lw->weight[VT_ROLE_EXPERT_GATE_UP],
          .down = lw->weight[VT_ROLE_EXPERT_DOWN],
          .n_experts = a->n_experts,
          .activation = a->activation,
          .y = y,
          .accumulate = residual != NULL});
}

const vt_block vt_block_experts = {.weights = weights,
                                   .tensors = tensors,
                                   .emit = emit,
                                   .norm = "ffn",
                                   .post_norm = "post_ffn",
                                   .norm_role = VT_ROLE_FFN_NORM,
                                   .post_norm_role = VT_ROLE_POST_FFN_NORM};
