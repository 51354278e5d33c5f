/* A gated short convolution between two projections.
 *
 *   bcu [tokens, 3 channels]   the gates and the input
 *   cv [tokens, channels]      after the convolution
 *
 * There are as many channels as hidden states have numbers; a rank of a tensor-parallel group has
 * some of them.
 * Its state is the state tensor of its layer in the KV cache. */
#include "exec/blocks/block.h"
#include "ops/short_conv/short_conv.h"

static vt_status weights(vt_layout *l, int32_t layer, vt_err *err)
{
    (void)err;
    vt_layout_add_role(l, VT_ROLE_CONV_IN, layer);
    vt_layout_add_role(l, VT_ROLE_CONV_TAPS, layer);
    vt_layout_add_role(l, VT_ROLE_CONV_OUT, layer);
    return VT_OK;
}

static void tensors(builder *b)
{
    int32_t first = 0;
    while (b->m->layer[first].mixer != VT_BLOCK_CONV)
        first++;
    int64_t channels = b->w->layer[first].weight[VT_ROLE_CONV_OUT]->cols; /* of all such layers */
    b->bcu = build_activation(b, "bcu", VT_FOLLOWS_TOKENS, 3 * channels, b->p->activation);
    b->cv = build_activation(b, "cv", VT_FOLLOWS_TOKENS, channels, b->p->activation);
}

static void emit(builder *b, int32_t i, const vt_tensor *x, vt_tensor *y)
{
    const vt_layer_weights *lw = &b->w->layer[i];
    build_linear(b, i, "conv_in",
                 (linear_args){.x = x, .w = lw->weight[VT_ROLE_CONV_IN], .y = b->bcu},
                 VT_WHEN_TOKENS);
    EMIT(b, short_conv, i, "", VT_WHEN_TOKENS,
         {.batch = &b->p->batch,
          .x = b->bcu,
          .w = lw->tensor[VT_ROLE_CONV_TAPS],
          .state = &b->kv->state[vt_kv_state_of(b->m, i)],
          .y = b->cv});
    build_linear(b, i, "conv_out",
                 (linear_args){.x = b->cv,
                               .w = lw->weight[VT_ROLE_CONV_OUT],
                               .residual = y == b->x ? y : NULL,
                               .scale = b->m->arch.residual_scale,
                               .y = y},
                 VT_WHEN_TOKENS);
}

const vt_block vt_block_conv = {
    .weights = weights, .tensors = tensors, .emit = emit, VT_BLOCK_NORMS("conv", ATTN)};
