/* Attention: q, k and v, rope, storing into the KV cache, and the output's projection.
 *
 *   qkv [tokens, (Hq + 2 Hk) d]   q, k and v are slices of it
 *   o [tokens, Hq d]              before its projection */
#include "base/err.h"
#include "exec/blocks/block.h"
#include "ops/attention/attention.h"
#include "ops/kv_store/kv_store.h"
#include "ops/rope_store/rope_store.h"

/* Returns true if the layer rotates q and k. */
static bool rotated(const vt_arch *a, int32_t layer)
{
    return !a->layer_rope || a->layer_rope[layer];
}

/* Adds q, k and v as one matrix. A missing bias counts as zeros if another is there. */
static void add_stacked(vt_layout *l, int32_t layer, const vt_layer *src)
{
    const vt_tensor *const *bias = &src->weight[VT_ROLE_Q_BIAS];
    vt_layout_entry *e = vt_layout_add(l, VT_ROLE_QKV, layer);
    for (int32_t i = 0; i < 3; i++)
        vt_layout_stack(e, src->weight[VT_ROLE_Q + i], src->scale[VT_ROLE_Q + i]);
    if (!bias[0] && !bias[1] && !bias[2])
        return;
    e = vt_layout_add(l, VT_ROLE_QKV_BIAS, layer);
    for (int32_t i = 0; i < 3; i++)
        if (bias[i])
            vt_layout_stack(e, bias[i], NULL);
        else
            e->part[e->n_parts++] = (vt_layout_part){.rows = src->weight[VT_ROLE_Q + i]->dim[0],
                                                     .cols = 1};
}

/* q, k and v are stacked where their types are equal. */
static vt_status weights(vt_layout *l, int32_t layer, vt_err *err)
{
    static const vt_role apart[] = {VT_ROLE_Q,      VT_ROLE_K,      VT_ROLE_V,
                                    VT_ROLE_Q_BIAS, VT_ROLE_K_BIAS, VT_ROLE_V_BIAS},
                         rest[] = {VT_ROLE_Q_NORM, VT_ROLE_K_NORM, VT_ROLE_O, VT_ROLE_O_BIAS};
    const vt_layer *src = &l->model->layer[layer];
    const vt_tensor *const *w = &src->weight[VT_ROLE_Q];
    if (!rotated(&l->model->arch, layer) && src->weight[VT_ROLE_Q_NORM])
        return vt_fail(err, VT_ERR_UNSUPPORTED,
                       "%s: layer %d has norms of q and k and does not rotate them; that is not "
                       "supported",
                       l->model->name, layer);
    if (w[0]->dtype == w[1]->dtype && w[1]->dtype == w[2]->dtype)
        add_stacked(l, layer, src);
    else
        for (size_t i = 0; i < sizeof apart / sizeof *apart; i++)
            vt_layout_add_role(l, apart[i], layer);
    for (size_t i = 0; i < sizeof rest / sizeof *rest; i++)
        vt_layout_add_role(l, rest[i], layer);
    return vt_block_check_scale(l, layer, VT_ROLE_O_BIAS, err);
}

static void tensors(builder *b)
{
    const vt_arch *a = &b->m->arch;
    vt_dtype act = b->p->activation;
    int64_t q_cols = (int64_t)a->n_heads * a->head_dim,
            kv_cols = (int64_t)a->n_kv_heads * a->head_dim;
    b->qkv = build_activation(b, "qkv", VT_FOLLOWS_TOKENS, q_cols + 2 * kv_cols, act);
    b->q = build_slice(b, "q", b->qkv, 0, q_cols);
    b->k = build_slice(b, "k", b->qkv, q_cols, kv_cols);
    b->v = build_slice(b, "v", b->qkv, q_cols + kv_cols, kv_cols);
    b->o = build_activation(b, "o", VT_FOLLOWS_TOKENS, q_cols, act);
}

/* Returns true if the layer's attention sees only a window of tokens. */
static bool windowed(const vt_arch *a, int32_t layer)
{
    return a->window > 0 && (!a->layer_window || a->layer_window[layer]);
}

static void emit_qkv(builder *b, int32_t i, const vt_tensor *x)
{
    const vt_layer_weights *lw = &b->w->layer[i];
    if (lw->weight[VT_ROLE_QKV]) {
        build_linear(b, i, "qkv",
                     (linear_args){.x = x,
                                   .w = lw->weight[VT_ROLE_QKV],
                                   .bias = lw->tensor[VT_ROLE_QKV_BIAS],
                                   .y = b->qkv},
                     VT_WHEN_TOKENS);
        return;
    }
    static const char *const kName[3] = {"q", "k", "v"};
    const vt_tensor *bias[3] = {lw->tensor[VT_ROLE_Q_BIAS], lw->tensor[VT_ROLE_K_BIAS],
                                lw->tensor[VT_ROLE_V_BIAS]};
    vt_tensor *y[3] = {b->q, b->k, b->v};
    for (int32_t k = 0; k < 3; k++)
        build_linear(
            b, i, kName[k],
            (linear_args){.x = x, .w = lw->weight[VT_ROLE_Q + k], .bias = bias[k], .y = y[k]},
            VT_WHEN_TOKENS);
}

static void emit(builder *b, int32_t i, const vt_tensor *x, vt_tensor *y)
{
    const vt_arch *a = &b->m->arch;
    const vt_layer_weights *lw = &b->w->layer[i];
    bool local = windowed(a, i) && a->has_rope_local;
    const vt_rope_params *rope = local ? &a->rope_local : &a->rope;
    int32_t pool = vt_kv_pool_of(b->m, i);
    vt_tensor *k_pool = &b->kv->k[pool], *v_pool = &b->kv->v[pool];
    bool scaled = k_pool->dtype == VT_FP8_E4M3; /* the scales in the file are meant for FP8 */
    float k_scale = scaled ? lw->kv_k_scale : 1, v_scale = scaled ? lw->kv_v_scale : 1;
    emit_qkv(b, i, x);
    rope_args rotate = {.batch = &b->p->batch,
                        .q = b->q,
                        .k = b->k,
                        .head_dim = a->head_dim,
                        .dims = rope->dims,
                        .interleaved = rope->interleaved,
                        .cos_sin = local ? b->w->ends.tensor[VT_ROLE_ROPE_LOCAL]
                                         : b->w->ends.tensor[VT_ROLE_ROPE],
                        .q_norm = lw->tensor[VT_ROLE_Q_NORM],
                        .k_norm = lw->tensor[VT_ROLE_K_NORM],
                        .eps = a->norm_eps,
                        .plus_one = a->norm_plus_one};
    kv_store_args store = {.batch = &b->p->batch,
                           .k = b->k,
                           .v = b->v,
                           .k_pool = k_pool,
                           .v_pool = v_pool,
                           .k_scale = k_scale,
                           .v_scale = v_scale};
    if (rotated(a, i))
        EMIT(b, rope_store, i, "", VT_WHEN_TOKENS, {.rope = rotate, .store = store});
    else
        build_emit(b, &kv_store_op, &store, sizeof store, i, "", VT_WHEN_TOKENS);
    attention_args att = {.batch = &b->p->batch,
                          .q = b->q,
                          .k_pool = k_pool,
                          .v_pool = v_pool,
                          .o = b->o,
                          .heads = a->n_heads,
                          .kv_heads = a->n_kv_heads,
                          .head_dim = a->head_dim,
                          .scale = a->attn_scale,
                          .k_scale = k_scale,
                          .v_scale = v_scale,
                          .window = windowed(a, i) ? a->window : 0};
    build_emit(b, &attention_decode_op, &att, sizeof att, i, "", VT_WHEN_DECODE);
    build_emit(b, &attention_prefill_op, &att, sizeof att, i, "", VT_WHEN_PREFILL);
    const vt_tensor *residual = y == b->x ? y : NULL;
    build_linear(b, i, "o",
                 (linear_args){.x = b->o,
                               .w = lw->weight[VT_ROLE_O],
                               .bias = lw->tensor[VT_ROLE_O_BIAS],
                               .residual = residual,
                               .scale = a->residual_scale,
                               .y = y},
                 VT_WHEN_TOKENS);
}

const vt_block vt_block_attention = {.weights = weights,
                                     .tensors = tensors,
                                     .emit = emit,
                                     .norm = "attn",
                                     .post_norm = "post_attn",
                                     .norm_role = VT_ROLE_ATTN_NORM,
                                     .post_norm_role = VT_ROLE_POST_ATTN_NORM};
