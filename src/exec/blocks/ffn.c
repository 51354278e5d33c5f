/* A dense feed-forward with a gate, y = down(act(gate x) * up x), and the mlp, which has none: y =
 * down(act(up x)).
 *
 *   f [tokens, ffn]     after the activation
 *   g [tokens, 2 ffn]   gate and up, where they are not paired
 *
 * Layers of different sizes share the memory of these. Sizes are those of the weights. */
#include "exec/blocks/block.h"
#include "model/lora/lora.h"
#include "ops/gelu/gelu.h"
#include "ops/relu2/relu2.h"
#include "ops/silu_mul/silu_mul.h"

/* Gate and up are one matrix where their types are equal, neither has a bias, and linear has the
 * activation as an epilogue. They are paired, for that epilogue, where they have no adapters. */
static vt_status weights(vt_layout *l, int32_t layer, vt_err *err)
{
    const vt_layer *src = &l->model->layer[layer];
    const vt_tensor *const *w = src->weight;
    if (l->model->arch.activation != VT_ACT_GELU_ERF &&
        w[VT_ROLE_GATE]->dtype == w[VT_ROLE_UP]->dtype && !w[VT_ROLE_GATE_BIAS] &&
        !w[VT_ROLE_UP_BIAS]) {
        vt_layout_add_pair(l, VT_ROLE_GATE_UP, VT_ROLE_GATE, VT_ROLE_UP, layer);
        l->entry[l->n - 1].paired = !vt_lora_of(l->model, layer, VT_ROLE_GATE) &&
                                    !vt_lora_of(l->model, layer, VT_ROLE_UP);
    } else {
        vt_layout_add_role(l, VT_ROLE_GATE, layer);
        vt_layout_add_role(l, VT_ROLE_UP, layer);
        vt_layout_add_role(l, VT_ROLE_GATE_BIAS, layer);
        vt_layout_add_role(l, VT_ROLE_UP_BIAS, layer);
    }
    vt_layout_add_adapters(l, VT_ROLE_GATE, layer);
    vt_layout_add_adapters(l, VT_ROLE_UP, layer);
    vt_layout_add_role(l, VT_ROLE_DOWN, layer);
    vt_layout_add_role(l, VT_ROLE_DOWN_BIAS, layer);
    vt_layout_add_adapters(l, VT_ROLE_DOWN, layer);
    return vt_block_check_scale(l, layer, VT_ROLE_DOWN_BIAS, err);
}

/* Returns true if the layer's gate and up are paired: linear applies the activation. */
static bool is_paired(const builder *b, int32_t layer)
{
    const vt_weight *both = b->w->layer[layer].weight[VT_ROLE_GATE_UP];
    return both && both->paired;
}

/* Returns true if a layer has gate and up that are not paired. */
static bool needs_plain_gate_up(const builder *b)
{
    for (int32_t i = 0; i < b->m->arch.n_layers; i++)
        if (b->w->layer[i].weight[VT_ROLE_GATE] ||
            (b->w->layer[i].weight[VT_ROLE_GATE_UP] && !is_paired(b, i)))
            return true;
    return false;
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
    if (needs_plain_gate_up(b))
        b->g = build_activation(b, "g", VT_FOLLOWS_TOKENS, 2 * ffn, b->p->activation);
}

/* Writes gate and up, what adapters add to them, and what joins them. */
static void emit_plain(builder *b, int32_t i, const vt_tensor *x, vt_tensor *f)
{
    const vt_layer_weights *lw = &b->w->layer[i];
    int64_t ffn = ffn_of(b, i);
    vt_tensor *g = build_narrow(b, b->g, 2 * ffn);
    vt_tensor *gate = build_slice(b, "gate", g, 0, ffn), *up = build_slice(b, "up", g, ffn, ffn);
    if (lw->weight[VT_ROLE_GATE_UP]) {
        build_linear(b, i, "gate+up",
                     (linear_args){.x = x, .w = lw->weight[VT_ROLE_GATE_UP], .y = g},
                     VT_WHEN_TOKENS);
    } else {
        build_linear(b, i, "gate",
                     (linear_args){.x = x,
                                   .w = lw->weight[VT_ROLE_GATE],
                                   .bias = lw->tensor[VT_ROLE_GATE_BIAS],
                                   .y = gate},
                     VT_WHEN_TOKENS);
        build_linear(
            b, i, "up",
            (linear_args){
                .x = x, .w = lw->weight[VT_ROLE_UP], .bias = lw->tensor[VT_ROLE_UP_BIAS], .y = up},
            VT_WHEN_TOKENS);
    }
    build_lora(b, i, "gate+up", VT_ROLE_GATE, x, (vt_tensor *[]){gate, up}, 2, 1);
    if (b->m->arch.activation == VT_ACT_GELU_ERF)
        EMIT(b, gelu, i, "", VT_WHEN_TOKENS, {.x = g, .y = f, .gated = true});
    else
        EMIT(b, silu_mul, i, "", VT_WHEN_TOKENS,
             {.x = g, .y = f, .activation = b->m->arch.activation});
}

static void emit_down(builder *b, int32_t i, const vt_tensor *f, vt_tensor *y)
{
    const vt_layer_weights *lw = &b->w->layer[i];
    build_linear(b, i, "down",
                 (linear_args){.x = f,
                               .w = lw->weight[VT_ROLE_DOWN],
                               .bias = build_joined_bias(b, lw->tensor[VT_ROLE_DOWN_BIAS]),
                               .residual = y == b->x ? y : NULL,
                               .scale = b->m->arch.residual_scale,
                               .y = y},
                 VT_WHEN_TOKENS);
    build_lora(b, i, "down", VT_ROLE_DOWN, f, &y, 1, b->m->arch.residual_scale);
}

static void emit(builder *b, int32_t i, const vt_tensor *x, vt_tensor *y)
{
    const vt_arch *a = &b->m->arch;
    const vt_layer_weights *lw = &b->w->layer[i];
    vt_tensor *f = build_narrow(b, b->f, ffn_of(b, i));
    if (is_paired(b, i))
        build_linear(
            b, i, "gate+up",
            (linear_args){.x = x,
                          .w = lw->weight[VT_ROLE_GATE_UP],
                          .y = f,
                          .epilogue = a->activation == VT_ACT_SILU ? LINEAR_SWIGLU : LINEAR_GEGLU},
            VT_WHEN_TOKENS);
    else
        emit_plain(b, i, x, f);
    emit_down(b, i, f, y);
}

const vt_block vt_block_ffn = {
    .weights = weights, .tensors = tensors, .emit = emit, VT_BLOCK_NORMS("ffn", FFN)};

/* ---- without a gate ---- */

static vt_status mlp_weights(vt_layout *l, int32_t layer, vt_err *err)
{
    vt_layout_add_role(l, VT_ROLE_UP, layer);
    vt_layout_add_role(l, VT_ROLE_UP_BIAS, layer);
    vt_layout_add_adapters(l, VT_ROLE_UP, layer);
    vt_layout_add_role(l, VT_ROLE_DOWN, layer);
    vt_layout_add_role(l, VT_ROLE_DOWN_BIAS, layer);
    vt_layout_add_adapters(l, VT_ROLE_DOWN, layer);
    return vt_block_check_scale(l, layer, VT_ROLE_DOWN_BIAS, err);
}

static void emit_mlp(builder *b, int32_t i, const vt_tensor *x, vt_tensor *y)
{
    const vt_layer_weights *lw = &b->w->layer[i];
    vt_tensor *f = build_narrow(b, b->f, ffn_of(b, i));
    build_linear(
        b, i, "up",
        (linear_args){
            .x = x, .w = lw->weight[VT_ROLE_UP], .bias = lw->tensor[VT_ROLE_UP_BIAS], .y = f},
        VT_WHEN_TOKENS);
    build_lora(b, i, "up", VT_ROLE_UP, x, &f, 1, 1);
    if (b->m->arch.activation == VT_ACT_RELU2)
        EMIT(b, relu2, i, "", VT_WHEN_TOKENS, {.x = f, .y = f});
    else
        EMIT(b, gelu, i, "", VT_WHEN_TOKENS, {.x = f, .y = f});
    emit_down(b, i, f, y);
}

const vt_block vt_block_mlp = {
    .weights = mlp_weights, .tensors = tensors, .emit = emit_mlp, VT_BLOCK_NORMS("ffn", FFN)};
