/* Kimi delta attention (Kimi Linear, 2025, arXiv:2510.26692): the gated delta rule where each
 * channel of a key has a decay of its own, and where the decay and the output gate come out of
 * narrow products.
 *
 *   kda [tokens, q | k | v | f | g | b]   what the first product makes; f and g have gate_rank
 *                                         numbers, b has one for each head
 *   u [tokens, q k v]                     after the convolution
 *   decay, z [tokens, heads k_dim]        what f and g become: decays, and the gate
 *   d [tokens, heads v_dim]               the rule's result; its norm and the gate are applied in
 *                                         place
 *
 * A rank of a tensor-parallel group has some of the heads: as many as its weights make. It has all
 * of f and g.
 *
 * The state tensor of its layer in the KV cache holds, for each slot, the convolution's last inputs
 * and then the heads' matrices. */
#include "exec/blocks/block.h"
#include "ops/gated_delta/gated_delta.h"
#include "ops/gated_norm/gated_norm.h"
#include "ops/short_conv/short_conv.h"

enum { FIRST = VT_ROLE_KDA_Q, LAST = VT_ROLE_KDA_B, PARTS = LAST - FIRST + 1 };

/* Returns true if the matrices of the first product have one type in the file. */
static bool has_one_type(const vt_layer *layer)
{
    for (int32_t r = FIRST; r <= LAST; r++)
        if (layer->weight[r]->dtype != layer->weight[FIRST]->dtype)
            return false;
    return true;
}

static vt_status weights(vt_layout *l, int32_t layer, vt_err *err)
{
    const vt_layer *src = &l->model->layer[layer];
    (void)err;
    if (has_one_type(src)) {
        vt_layout_entry *e = vt_layout_add(l, VT_ROLE_KDA_IN, layer);
        for (int32_t r = FIRST; r <= LAST; r++)
            vt_layout_stack(e, src->weight[r], src->scale[r]);
    } else {
        for (int32_t r = FIRST; r <= LAST; r++)
            vt_layout_add_role(l, (vt_role)r, layer);
    }
    vt_layout_add_role(l, VT_ROLE_KDA_F_B, layer);
    vt_layout_add_role(l, VT_ROLE_KDA_G_B, layer);
    vt_layout_entry *taps = vt_layout_add(l, VT_ROLE_KDA_CONV, layer);
    for (int32_t r = VT_ROLE_KDA_CONV_Q; r <= VT_ROLE_KDA_CONV_V; r++)
        vt_layout_stack(taps, src->weight[r], NULL);
    for (int32_t r = VT_ROLE_KDA_DECAY; r <= VT_ROLE_KDA_OUT; r++)
        vt_layout_add_role(l, (vt_role)r, layer);
    return VT_OK;
}

/* Columns of each part of the first product, and of q, k and v together; the heads. */
typedef struct sizes {
    int64_t part[PARTS], qkv;
    int32_t heads;
} sizes;

static sizes sizes_of(const builder *b, int32_t layer)
{
    const vt_delta *d = &b->m->arch.delta;
    int64_t n = b->w->layer[layer].weight[VT_ROLE_KDA_OUT]->cols, heads = n / d->v_dim,
            rank = d->gate_rank;
    return (sizes){{n, n, n, rank, rank, heads}, 3 * n, (int32_t)heads};
}

static void tensors(builder *b)
{
    vt_dtype type = b->p->activation;
    int32_t first = 0;
    while (b->m->layer[first].mixer != VT_BLOCK_KDA)
        first++;
    sizes n = sizes_of(b, first);
    int64_t all = n.qkv + 2 * n.part[3] + n.heads;
    b->kda = build_activation(b, "kda", VT_FOLLOWS_TOKENS, all, type);
    b->decay = build_activation(b, "decay", VT_FOLLOWS_TOKENS, n.part[0], type);
    b->z = build_activation(b, "z", VT_FOLLOWS_TOKENS, n.part[0], type);
    b->u = build_activation(b, "u", VT_FOLLOWS_TOKENS, n.qkv, type);
    b->d = build_activation(b, "d", VT_FOLLOWS_TOKENS, n.part[0], type);
}

/* Writes the first product: with one stacked matrix, or with each of its parts. */
static void emit_in(builder *b, int32_t i, const vt_tensor *x, vt_tensor *const part[PARTS])
{
    const vt_layer_weights *lw = &b->w->layer[i];
    if (lw->weight[VT_ROLE_KDA_IN]) {
        build_linear(b, i, "kda_in",
                     (linear_args){.x = x, .w = lw->weight[VT_ROLE_KDA_IN], .y = b->kda},
                     VT_WHEN_TOKENS);
        return;
    }
    for (int32_t k = 0; k < PARTS; k++)
        build_linear(b, i, vt_roles[FIRST + k].name,
                     (linear_args){.x = x, .w = lw->weight[FIRST + k], .y = part[k]},
                     VT_WHEN_TOKENS);
}

static void emit(builder *b, int32_t i, const vt_tensor *x, vt_tensor *y)
{
    static const char *const names[PARTS] = {"q", "k", "v", "f", "g", "b"};
    const vt_arch *a = &b->m->arch;
    const vt_delta *d = &a->delta;
    const vt_layer_weights *lw = &b->w->layer[i];
    sizes n = sizes_of(b, i);
    vt_tensor *state = &b->kv->state[vt_kv_state_of(b->m, i)], *part[PARTS];
    for (int64_t k = 0, at = 0; k < PARTS; at += n.part[k++])
        part[k] = build_slice(b, names[k], b->kda, at, n.part[k]);
    vt_tensor *qkv = build_slice(b, "qkv", b->kda, 0, n.qkv);
    emit_in(b, i, x, part);
    EMIT(b, short_conv, i, "", VT_WHEN_TOKENS,
         {.batch = &b->p->batch,
          .x = qkv,
          .w = lw->tensor[VT_ROLE_KDA_CONV],
          .state = state,
          .y = b->u,
          .silu = true});
    build_linear(b, i, "kda_f",
                 (linear_args){.x = part[3], .w = lw->weight[VT_ROLE_KDA_F_B], .y = b->decay},
                 VT_WHEN_TOKENS);
    build_linear(b, i, "kda_g",
                 (linear_args){.x = part[4], .w = lw->weight[VT_ROLE_KDA_G_B], .y = b->z},
                 VT_WHEN_TOKENS);
    EMIT(b, gated_delta, i, "", VT_WHEN_TOKENS,
         {.batch = &b->p->batch,
          .x = b->u,
          .a = b->decay,
          .b = part[5],
          .decay = lw->tensor[VT_ROLE_KDA_DECAY],
          .dt_bias = lw->tensor[VT_ROLE_KDA_DT],
          .state = state,
          .y = b->d,
          .state_at = (a->conv_taps - 1) * n.qkv,
          .k_heads = n.heads,
          .v_heads = n.heads,
          .k_dim = d->k_dim,
          .v_dim = d->v_dim,
          .log_decay = d->log_decay,
          .channels = true});
    EMIT(b, gated_norm, i, "", VT_WHEN_TOKENS,
         {.x = b->d,
          .z = b->z,
          .weight = lw->tensor[VT_ROLE_KDA_NORM],
          .y = b->d,
          .eps = a->norm_eps,
          .sigmoid = true});
    build_linear(b, i, "kda_out",
                 (linear_args){.x = b->d,
                               .w = lw->weight[VT_ROLE_KDA_OUT],
                               .residual = y == b->x ? y : NULL,
                               .scale = a->residual_scale,
                               .y = y},
                 VT_WHEN_TOKENS);
}

const vt_block vt_block_kda = {
    .weights = weights, .tensors = tensors, .emit = emit, VT_BLOCK_NORMS("kda", ATTN)};
