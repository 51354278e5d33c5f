/* Mamba-2: a selective state space between two projections.
 *
 *   mamba [tokens, z | x B C | dt]   what the first projection makes
 *   u [tokens, x B C]                after the convolution
 *   d [tokens, heads head_dim]       the state space's result; z's gate and the norm are applied in
 *                                    place
 *
 * A rank of a tensor-parallel group has some of the heads: as many as its weights make. It has
 * whole groups of them, and normalises these as one rank does. Of a single group the ranks have
 * parts of the row that is normalised: they gate it, and meet for its sum of squares.
 *
 * The state tensor of its layer in the KV cache holds, for each slot, the convolution's last inputs
 * and then the heads' matrices. */
#include "exec/blocks/block.h"
#include "model/assemble.h"
#include "ops/gated_norm/gated_norm.h"
#include "ops/selective_state/selective_state.h"
#include "ops/sharded_rmsnorm/sharded_rmsnorm.h"
#include "ops/short_conv/short_conv.h"
#include "ops/silu_mul/silu_mul.h"

static vt_status weights(vt_layout *l, int32_t layer, vt_err *err)
{
    (void)err;
    for (int32_t r = VT_ROLE_MAMBA_IN; r <= VT_ROLE_MAMBA_OUT; r++)
        vt_layout_add_role(l, (vt_role)r, layer);
    return VT_OK;
}

/* Columns of x, and of x, B and C together, and the heads and groups that these are: the same in
 * all layers of this kind. */
typedef struct sizes {
    int64_t inner, channels;
    int32_t heads, groups;
} sizes;

static sizes sizes_of(const builder *b, int32_t layer)
{
    const vt_mamba *s = &b->m->arch.mamba;
    const vt_layer_weights *lw = &b->w->layer[layer];
    int64_t inner = lw->weight[VT_ROLE_MAMBA_OUT]->cols,
            channels = lw->tensor[VT_ROLE_MAMBA_CONV]->dim[0];
    return (sizes){inner, channels, (int32_t)(inner / s->head_dim),
                   (int32_t)((channels - inner) / (2 * s->state_dim))};
}

/* Returns true if ranks have parts of what is normalised. */
static bool norm_is_divided(const builder *b) { return b->p->comm && b->m->arch.mamba.groups == 1; }

static void tensors(builder *b)
{
    vt_dtype type = b->p->activation;
    int32_t first = 0;
    while (b->m->layer[first].mixer != VT_BLOCK_MAMBA)
        first++;
    sizes n = sizes_of(b, first);
    b->mamba = build_activation(b, "mamba", VT_FOLLOWS_TOKENS, n.inner + n.channels + n.heads,
                                type);
    b->u = build_activation(b, "u", VT_FOLLOWS_TOKENS, n.channels, type);
    b->d = build_activation(b, "d", VT_FOLLOWS_TOKENS, n.inner, type);
    if (norm_is_divided(b))
        build_norm_buffer(b);
}

/* d = norm(d silu(z)). Over ranks with one group the gated values take z's place. */
static void emit_norm(builder *b, int32_t i, vt_tensor *z, int32_t groups)
{
    const vt_tensor *weight = b->w->layer[i].tensor[VT_ROLE_MAMBA_NORM];
    float eps = b->m->arch.norm_eps;
    if (!norm_is_divided(b)) {
        EMIT(b, gated_norm, i, "", VT_WHEN_TOKENS,
             {.x = b->d, .z = z, .weight = weight, .y = b->d, .eps = eps, .groups = groups});
        return;
    }
    vt_tensor *sums = b->p->buffer[VT_SLOT_NORM];
    EMIT(b, silu_mul, i, "mamba", VT_WHEN_TOKENS,
         {.x = z, .up = b->d, .y = z, .activation = VT_ACT_SILU});
    EMIT(b, square_sums, i, "mamba", VT_WHEN_TOKENS, {.x = {z}, .y = sums});
    EMIT(b, sharded_rmsnorm, i, "mamba", VT_WHEN_TOKENS,
         {.comm = b->p->comm,
          .slot = VT_SLOT_NORM,
          .order = ++b->p->n_comm,
          .sums = sums,
          .part = {{.x = z, .weight = weight, .y = b->d, .whole = mamba_inner(&b->m->arch.mamba)}},
          .eps = eps});
}

static void emit(builder *b, int32_t i, const vt_tensor *x, vt_tensor *y)
{
    const vt_arch *a = &b->m->arch;
    const vt_mamba *s = &a->mamba;
    const vt_layer_weights *lw = &b->w->layer[i];
    sizes n = sizes_of(b, i);
    vt_tensor *state = &b->kv->state[vt_kv_state_of(b->m, i)];
    vt_tensor *z = build_slice(b, "z", b->mamba, 0, n.inner),
              *xbc = build_slice(b, "xbc", b->mamba, n.inner, n.channels),
              *dt = build_slice(b, "dt", b->mamba, n.inner + n.channels, n.heads);
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
          .state_at = (a->conv_taps - 1) * n.channels,
          .heads = n.heads,
          .groups = n.groups,
          .head_dim = s->head_dim,
          .state_dim = s->state_dim,
          .step_min = s->step_min,
          .step_max = s->step_max,
          .log_decay = s->log_decay});
    emit_norm(b, i, z, n.groups);
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
