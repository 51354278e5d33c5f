/* A dense feed-forward without a gate: y = down(gelu(up x)).
 *
 *   f [tokens, ffn]     before and after the activation
 *
 * Layers of different sizes share its memory. Sizes are those of the weights. */
#include "exec/blocks/block.h"
#include "ops/gelu/gelu.h"

static vt_status weights(vt_layout *l, int32_t layer, vt_err *err)
{
    static const vt_role role[] = {VT_ROLE_UP, VT_ROLE_UP_BIAS, VT_ROLE_DOWN, VT_ROLE_DOWN_BIAS};
    for (size_t i = 0; i < sizeof role / sizeof *role; i++)
        vt_layout_add_role(l, role[i], layer);
    return vt_block_check_scale(l, layer, VT_ROLE_DOWN_BIAS, err);
}

static int64_t ffn_of(const builder *b, int32_t layer)
{
    const vt_weight *down = b->w->layer[layer].weight[VT_ROLE_DOWN];
    return down ? down->cols : 0;
}

static void tensors(builder *b)
{
    int64_t ffn = 0;
    for (int32_t i = 0; i < b->m->arch.n_layers; i++)
        ffn = ffn_of(b, i) > ffn ? ffn_of(b, i) : ffn;
    b->f = build_activation(b, "f", VT_FOLLOWS_TOKENS, ffn, b->p->activation);
}

static void emit(builder *b, int32_t i, const vt_tensor *x, vt_tensor *y)
{
    const vt_layer_weights *lw = &b->w->layer[i];
    vt_tensor *f = build_narrow(b, b->f, ffn_of(b, i));
    build_linear(
        b, i, "up",
        (linear_args){
            .x = x, .w = lw->weight[VT_ROLE_UP], .bias = lw->tensor[VT_ROLE_UP_BIAS], .y = f},
        VT_WHEN_TOKENS);
    EMIT(b, gelu, i, "", VT_WHEN_TOKENS, {.x = f, .y = f});
    build_linear(b, i, "down",
                 (linear_args){.x = f,
                               .w = lw->weight[VT_ROLE_DOWN],
                               .bias = build_joined_bias(b, lw->tensor[VT_ROLE_DOWN_BIAS]),
                               .residual = y == b->x ? y : NULL,
                               .scale = b->m->arch.residual_scale,
                               .y = y},
                 VT_WHEN_TOKENS);
}

const vt_block vt_block_mlp = {.weights = weights,
                               .tensors = tensors,
                               .emit = emit,
                               .norm = "ffn",
                               .post_norm = "post_ffn",
                               .norm_role = VT_ROLE_FFN_NORM,
                               .post_norm_role = VT_ROLE_POST_FFN_NORM,
                               .post_norm_bias_role = VT_ROLE_POST_FFN_NORM_BIAS};
