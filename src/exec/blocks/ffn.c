/* A dense feed-forward with a gate: y = down(act(gate x) * up x).
 *
 *   f [tokens, ffn]     after the activation
 *   g [tokens, 2 ffn]   gate and up, where they could not be paired */
#include "exec/blocks/block.h"
#include "ops/silu_mul/silu_mul.h"

/* Gate and up are paired where their types are equal and neither has a bias. */
static vt_status weights(vt_layout *l, int32_t layer, vt_err *err)
{
    const vt_layer *src = &l->model->layer[layer];
    const vt_tensor *const *w = src->weight;
    if (w[VT_ROLE_GATE]->dtype == w[VT_ROLE_UP]->dtype && !w[VT_ROLE_GATE_BIAS] &&
        !w[VT_ROLE_UP_BIAS]) {
        vt_layout_add_pair(l, VT_ROLE_GATE_UP, VT_ROLE_GATE, VT_ROLE_UP, layer);
    } else {
        vt_layout_add_role(l, VT_ROLE_GATE, layer);
        vt_layout_add_role(l, VT_ROLE_UP, layer);
        vt_layout_add_role(l, VT_ROLE_GATE_BIAS, layer);
        vt_layout_add_role(l, VT_ROLE_UP_BIAS, layer);
    }
    vt_layout_add_role(l, VT_ROLE_DOWN, layer);
    vt_layout_add_role(l, VT_ROLE_DOWN_BIAS, layer);
    return vt_block_check_scale(l, layer, VT_ROLE_DOWN_BIAS, err);
}

/* Returns true if a layer has gate and up as two weights that could not be paired. */
static bool needs_plain_gate_up(const builder *b)
{
    for (int32_t i = 0; i < b->m->arch.n_layers; i++)
        if (b->w->layer[i].weight[VT_ROLE_GATE])
            return true;
    return false;
}

static void tensors(builder *b)
{
    int64_t ffn = b->m->arch.ffn;
    vt_dtype act = b->p->activation;
    b->f = build_activation(b, "f", VT_FOLLOWS_TOKENS, ffn, act);
    if (!needs_plain_gate_up(b))
        return;
    b->g = build_activation(b, "g", VT_FOLLOWS_TOKENS, 2 * ffn, act);
    b->gate = build_slice(b, "gate", b->g, 0, ffn);
    b->up = build_slice(b, "up", b->g, ffn, ffn);
}

static void emit(builder *b, int32_t i, const vt_tensor *x, vt_tensor *y)
{
    const vt_arch *a = &b->m->arch;
    const vt_layer_weights *lw = &b->w->layer[i];
    const vt_tensor *residual = y == b->x ? y : NULL;
    if (lw->weight[VT_ROLE_GATE_UP]) {
        build_linear(
            b, i, "gate+up",
            (linear_args){.x = x,
                          .w = lw->weight[VT_ROLE_GATE_UP],
                          .y = b->f,
                          .epilogue = a->activation == VT_ACT_SILU ? LINEAR_SWIGLU : LINEAR_GEGLU},
            VT_WHEN_TOKENS);
    } else {
        build_linear(b, i, "gate",
                     (linear_args){.x = x,
                                   .w = lw->weight[VT_ROLE_GATE],
                                   .bias = lw->tensor[VT_ROLE_GATE_BIAS],
                                   .y = b->gate},
                     VT_WHEN_TOKENS);
        build_linear(b, i, "up",
                     (linear_args){.x = x,
                                   .w = lw->weight[VT_ROLE_UP],
                                   .bias = lw->tensor[VT_ROLE_UP_BIAS],
                                   .y = b->up},
                     VT_WHEN_TOKENS);
        EMIT(b, silu_mul, i, "", VT_WHEN_TOKENS,
             {.x = b->g, .y = b->f, .activation = a->activation});
    }
    build_linear(b, i, "down",
                 (linear_args){.x = b->f,
                               .w = lw->weight[VT_ROLE_DOWN],
                               .bias = lw->tensor[VT_ROLE_DOWN_BIAS],
                               .residual = residual,
                               .scale = a->residual_scale,
                               .y = y},
                 VT_WHEN_TOKENS);
}

const vt_block vt_block_ffn = {.weights = weights,
                               .tensors = tensors,
                               .emit = emit,
                               .norm = "ffn",
                               .post_norm = "post_ffn",
                               .norm_role = VT_ROLE_FFN_NORM,
                               .post_norm_role = VT_ROLE_POST_FFN_NORM};
