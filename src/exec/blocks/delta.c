/* Linear attention by the gated delta rule, between two projections.
 *
 *   delta [tokens, q k v | z]   what the first projection makes
 *   ba [tokens, 2 V heads]      what beta and the decay are made of
 *   u [tokens, q k v]           after the convolution
 *   d [tokens, V heads v_dim]   the rule's result; its norm and z's gate are applied in place
 *
 * A rank of a tensor-parallel group has some of the heads: as many as its weights make.
 *
 * The state tensor of its layer in the KV cache holds, for each slot, the convolution's last inputs
 * and then the heads' matrices. */
#include "exec/blocks/block.h"
#include "ops/gated_delta/gated_delta.h"
#include "ops/gated_norm/gated_norm.h"
#include "ops/short_conv/short_conv.h"

/* Adds two matrices as one where their types in the file are equal. */
static void add_both(vt_layout *l, int32_t layer, vt_role both, vt_role first, vt_role second)
{
    const vt_layer *src = &l->model->layer[layer];
    if (src->weight[first]->dtype != src->weight[second]->dtype) {
        vt_layout_add_role(l, first, layer);
        vt_layout_add_role(l, second, layer);
        return;
    }
    vt_layout_entry *e = vt_layout_add(l, both, layer);
    vt_layout_stack(e, src->weight[first], src->scale[first]);
    vt_layout_stack(e, src->weight[second], src->scale[second]);
}

static vt_status weights(vt_layout *l, int32_t layer, vt_err *err)
{
    (void)err;
    add_both(l, layer, VT_ROLE_DELTA_IN, VT_ROLE_DELTA_QKV, VT_ROLE_DELTA_Z);
    add_both(l, layer, VT_ROLE_DELTA_BA, VT_ROLE_DELTA_B, VT_ROLE_DELTA_A);
    vt_layout_add_role(l, VT_ROLE_DELTA_CONV, layer);
    vt_layout_add_role(l, VT_ROLE_DELTA_DECAY, layer);
    vt_layout_add_role(l, VT_ROLE_DELTA_DT, layer);
    vt_layout_add_role(l, VT_ROLE_DELTA_NORM, layer);
    vt_layout_add_role(l, VT_ROLE_DELTA_OUT, layer);
    return VT_OK;
}

/* Columns of v, and of q, k and v together, and the heads that these are: the same in all layers of
 * this kind. */
typedef struct sizes {
    int64_t v, qkv;
    int32_t k_heads, v_heads;
} sizes;

static sizes sizes_of(const builder *b, int32_t layer)
{
    const vt_delta *d = &b->m->arch.delta;
    const vt_layer_weights *lw = &b->w->layer[layer];
    int64_t v = lw->weight[VT_ROLE_DELTA_OUT]->cols, qkv = lw->tensor[VT_ROLE_DELTA_CONV]->dim[0];
    return (sizes){v, qkv, (int32_t)((qkv - v) / (2 * d->k_dim)), (int32_t)(v / d->v_dim)};
}

static void tensors(builder *b)
{
    vt_dtype type = b->p->activation;
    int32_t first = 0;
    while (b->m->layer[first].mixer != VT_BLOCK_DELTA)
        first++;
    sizes n = sizes_of(b, first);
    b->delta = build_activation(b, "delta", VT_FOLLOWS_TOKENS, n.qkv + n.v, type);
    b->ba = build_activation(b, "ba", VT_FOLLOWS_TOKENS, 2 * n.v_heads, type);
    b->u = build_activation(b, "u", VT_FOLLOWS_TOKENS, n.qkv, type);
    b->d = build_activation(b, "d", VT_FOLLOWS_TOKENS, n.v, type);
}

/* Writes the product with two stacked matrices, or with each of them. */
static void emit_both(builder *b, int32_t i, const vt_tensor *x, vt_role both, vt_role first,
                      const char *const what[3], vt_tensor *y, vt_tensor *const part[2])
{
    const vt_layer_weights *lw = &b->w->layer[i];
    if (lw->weight[both]) {
        build_linear(b, i, what[0], (linear_args){.x = x, .w = lw->weight[both], .y = y},
                     VT_WHEN_TOKENS);
        return;
    }
    for (int k = 0; k < 2; k++)
        build_linear(b, i, what[1 + k],
                     (linear_args){.x = x, .w = lw->weight[first + k], .y = part[k]},
                     VT_WHEN_TOKENS);
}

static void emit(builder *b, int32_t i, const vt_tensor *x, vt_tensor *y)
{
    static const char *const in[3] = {"delta_in", "delta_qkv", "delta_z"}, *const gates[3] = {
                                                                               "delta_ba",
                                                                               "delta_b",
                                                                               "delta_a"};
    const vt_arch *a = &b->m->arch;
    const vt_delta *d = &a->delta;
    const vt_layer_weights *lw = &b->w->layer[i];
    sizes n = sizes_of(b, i);
    vt_tensor *state = &b->kv->state[vt_kv_state_of(b->m, i)];
    vt_tensor *qkv = build_slice(b, "qkv", b->delta, 0, n.qkv),
              *z = build_slice(b, "z", b->delta, n.qkv, n.v),
              *beta = build_slice(b, "b", b->ba, 0, n.v_heads),
              *decay = build_slice(b, "a", b->ba, n.v_heads, n.v_heads);
    emit_both(b, i, x, VT_ROLE_DELTA_IN, VT_ROLE_DELTA_QKV, in, b->delta,
              (vt_tensor *const[]){qkv, z});
    emit_both(b, i, x, VT_ROLE_DELTA_BA, VT_ROLE_DELTA_B, gates, b->ba,
              (vt_tensor *const[]){beta, decay});
    EMIT(b, short_conv, i, "", VT_WHEN_TOKENS,
         {.batch = &b->p->batch,
          .x = qkv,
          .w = lw->tensor[VT_ROLE_DELTA_CONV],
          .state = state,
          .y = b->u,
          .silu = true});
    EMIT(b, gated_delta, i, "", VT_WHEN_TOKENS,
         {.batch = &b->p->batch,
          .x = b->u,
          .a = decay,
          .b = beta,
          .decay = lw->tensor[VT_ROLE_DELTA_DECAY],
          .dt_bias = lw->tensor[VT_ROLE_DELTA_DT],
          .state = state,
          .y = b->d,
          .state_at = (a->conv_taps - 1) * n.qkv,
          .k_heads = n.k_heads,
          .v_heads = n.v_heads,
          .k_dim = d->k_dim,
          .v_dim = d->v_dim,
          .log_decay = d->log_decay,
          .tiled = d->tiled});
    EMIT(b, gated_norm, i, "", VT_WHEN_TOKENS,
         {.x = b->d,
          .z = z,
          .weight = lw->tensor[VT_ROLE_DELTA_NORM],
          .y = b->d,
          .eps = a->norm_eps});
    build_linear(b, i, "delta_out",
                 (linear_args){.x = b->d,
                               .w = lw->weight[VT_ROLE_DELTA_OUT],
                               .residual = y == b->x ? y : NULL,
                               .scale = a->residual_scale,
                               .y = y},
                 VT_WHEN_TOKENS);
}

const vt_block vt_block_delta = {
    .weights = weights, .tensors = tensors, .emit = emit, VT_BLOCK_NORMS("delta", ATTN)};
