/* Mamba-2: a selective state space between two projections.
 *
 *   mamba [tokens, z | x B C | dt]   what the first projection makes
 *   u [tokens, x B C]                after the convolution
 *   d [tokens, heads head_dim]       the state space's result; z's gate and the norm are applied in
 *                                    place
 *
 * The state tensor of its layer in the KV cache holds, for each slot, the convolution's last inputs
 * and then the heads' matrices. */
#include "exec/blocks/block.h"
#include "model/assemble.h"
#include "ops/gated_norm/gated_norm.h"
#include "ops/selective_state/selective_state.h"
#include "ops/short_conv/short_conv.h"

static vt_status weights(vt_layout *l, int32_t layer, vt_err *err)
{
    (void)err;
    for (int32_t r = VT_ROLE_MAMBA_IN; r <= VT_ROLE_MAMBA_OUT; r++)
        vt_layout_add_role(l, (vt_role)r, layer);
    return VT_OK;
}

static void tensors(builder *b)
{
    const vt_mamba *s = &b->m->arch.mamba;
    vt_dtype type = b->p->activation;
    b->mamba = build_activation(b, "mamba", VT_FOLLOWS_TOKENS, mamba_rows(s), type);
    b->u = build_activation(b, "u", VT_FOLLOWS_TOKENS, mamba_channels(s), type);
    b->d = build_activation(b, "d", VT_FOLLOWS_TOKENS, mamba_inner(s), type);
}

static void emit(builder *b, int32_t i, const vt_tensor *x, vt_tensor *y)
{
    const vt_arch *a = &b->m->arch;
    const vt_mamba *s = &a->mamba;
    const vt_layer_weights *lw = &b->w->layer[i];
    int64_t inner = mamba_inner(s), channels = mamba_channels(s);
    vt_tensor *state = &b->kv->state[vt_kv_state_of(b->m, i)];
    vt_tensor *z = build_slice(b, "z", b->mamba, 0, inner),
              *xbc = build_slice(b, "xbc", b->mamba, inner, channels),
              *dt = build_slice(b, "dt", b->mamba, inner + channels, s->heads);
    build_linear(b, i, "mamba_in",
                 (linear_args){.x = x, .w = lw->weight[VT_ROLE_MAMBA_IN], .y = b->mamba},
                 VT_WHEN_TOKENS);
    EMIT(b, short_conv, i, "", VT_WHEN_TOKENS,
         {.batch = &b->p->batch,
          .x = xbc,
          .w = lw->tensor[VT_ROLE_MAMBA_CONV],
          .bias = lw->tensor[VT_ROLE_MAMBA_CONV_BIAS],
          .state = state,
          .y = b->u,
          .silu = true});
    EMIT(b, selective_state, i, "", VT_WHEN_TOKENS,
         {.batch = &b->p->batch,
          .x = b->u,
          .dt = dt,
          .decay = lw->tensor[VT_ROLE_MAMBA_DECAY],
          .dt_bias = lw->tensor[VT_ROLE_MAMBA_DT],
          .skip = lw->tensor[VT_ROLE_MAMBA_SKIP],
          .state = state,
          .y = b->d,
          .state_at = (a->conv_taps - 1) * channels,
          .heads = s->heads,
          .groups = s->groups,
          .head_dim = s->head_dim,
          .state_dim = s->state_dim,
          .step_min = s->step_min,
          .step_max = s->step_max,
          .log_decay = s->log_decay});
    EMIT(b, gated_norm, i, "", VT_WHEN_TOKENS,
         {.x = b->d,
          .z = z,
          .weight = lw->tensor[VT_ROLE_MAMBA_NORM],
          .y = b->d,
          .eps = a->norm_eps,
          .groups = s->groups});
    build_linear(b, i, "mamba_out",
                 (linear_args){.x = b->d,
                               .w = lw->weight[VT_ROLE_MAMBA_OUT],
                               .residual = y == b->x ? y : NULL,
                               .scale = a->residual_scale,
                               .y = y},
                 VT_WHEN_TOKENS);
}

const vt_block vt_block_mamba = {
    .weights = weights, .tensors = tensors, .emit = emit, VT_BLOCK_NORMS("mamba", ATTN)};
