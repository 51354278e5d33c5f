/* Attention: q, k and v, rope, storing into the KV cache, and the output's projection.
 *
 *   qkv [tokens, (Hq + 2 Hk) d]   q, k and v are slices of it
 *   o [tokens, Hq d]              before its projection
 *
 * Layers of different sizes share the memory of these, which has room for the largest. A layer that
 * reads the keys and values of another makes q alone and stores nothing. Where the output has a
 * gate, q's projection makes q and the gate of each head, and q is copied out of it:
 *
 *   qkv [tokens, (2 Hq + 2 Hk) d]   q and gate, k, v        q [tokens, Hq d]
 *
 * Where v is normalised, that is of each head and before k is changed, for v may be made of k (a
 * layer without a projection of v).
 *
 * Norms of q and k are of each head, in one call with rope, or of all heads together: the size of
 * the model's weights says which. Of the latter a rank has a part, so that ranks meet before they
 * normalise: each brings the sums of squares of its part. */
#include "base/err.h"
#include "exec/blocks/block.h"
#include "exec/ranks.h"
#include "ops/attention/attention.h"
#include "ops/sigmoid_gate/sigmoid_gate.h"
#include "ops/kv_store/kv_store.h"
#include "ops/part_norm/part_norm.h"
#include "ops/rmsnorm/rmsnorm.h"
#include "ops/rope_store/rope_store.h"
#include "ops/sharded_rmsnorm/sharded_rmsnorm.h"

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

/* Returns true if the norm of q or k is of each head. A rank's part of a norm may be that of one
 * head, so this asks the model. */
static bool by_head(const vt_layer *l, vt_role norm)
{
    return l->weight[norm] && l->weight[norm]->dim[0] == l->head.dim;
}

/* Returns true if it is of all heads together. */
static bool over_heads(const vt_layer *l, vt_role norm)
{
    return l->weight[norm] && !by_head(l, norm);
}

static bool has_norm_over_heads(const vt_layer *l)
{
    return over_heads(l, VT_ROLE_Q_NORM) || over_heads(l, VT_ROLE_K_NORM);
}

static vt_status check(const vt_model *m, int32_t layer, vt_err *err)
{
    const vt_layer *l = &m->layer[layer];
    if (l->head.rope < 0 && by_head(l, VT_ROLE_Q_NORM))
        return vt_fail(err, VT_ERR_UNSUPPORTED,
                       "%s: layer %d has norms of the heads of q and k and does not rotate them; "
                       "that is not supported",
                       m->name, layer);
    if (l->head.v_of_k && !m->arch.v_norm)
        return vt_fail(err, VT_ERR_UNSUPPORTED,
                       "%s: layer %d makes values of its keys' projection and does not normalise "
                       "them; that is not supported",
                       m->name, layer);
    return VT_OK;
}

/* q, k and v are stacked where their types are equal. */
static vt_status weights(vt_layout *l, int32_t layer, vt_err *err)
{
    static const vt_role apart[] = {VT_ROLE_Q,      VT_ROLE_K,      VT_ROLE_V,
                                    VT_ROLE_Q_BIAS, VT_ROLE_K_BIAS, VT_ROLE_V_BIAS},
                         rest[] = {VT_ROLE_Q_NORM, VT_ROLE_K_NORM, VT_ROLE_SINKS, VT_ROLE_O,
                                   VT_ROLE_O_BIAS};
    const vt_layer *src = &l->model->layer[layer];
    const vt_tensor *const *w = &src->weight[VT_ROLE_Q];
    TRY(check(l->model, layer, err));
    if (w[1] && w[2] && w[0]->dtype == w[1]->dtype && w[1]->dtype == w[2]->dtype)
        add_stacked(l, layer, src);
    else
        for (size_t i = 0; i < sizeof apart / sizeof *apart; i++)
            vt_layout_add_role(l, apart[i], layer);
    for (int32_t i = 0; i < 3; i++)
        vt_layout_add_adapters(l, (vt_role)(VT_ROLE_Q + i), layer);
    for (size_t i = 0; i < sizeof rest / sizeof *rest; i++)
        vt_layout_add_role(l, rest[i], layer);
    vt_layout_add_adapters(l, VT_ROLE_O, layer);
    return vt_block_check_scale(l, layer, VT_ROLE_O_BIAS, err);
}

/* A layer's activations. */
typedef struct views {
    vt_tensor *qkv, *wide, *q, *k, *v, *o;
} views;

/* Columns of q, and of k or v: as many as the weights make, for a rank of a tensor-parallel group
 * has some of the heads. A layer that reads another's keys and values makes none. */
typedef struct sizes {
    int64_t q, wide, kv; /* wide: q with its gate */
} sizes;

static sizes sizes_of(const builder *b, int32_t layer)
{
    const vt_layer_weights *lw = &b->w->layer[layer];
    const vt_weight *all = lw->weight[VT_ROLE_QKV], *k = lw->weight[VT_ROLE_K];
    int64_t q = lw->weight[VT_ROLE_O]->cols, wide = b->m->arch.out_gate ? 2 * q : q;
    return (sizes){q, wide, all ? (all->rows - wide) / 2 : k ? k->rows : 0};
}

static void tensors(builder *b)
{
    int64_t qkv = 0, o = 0;
    bool joint = false;
    for (int32_t i = 0; i < b->m->arch.n_layers; i++) {
        if (b->m->layer[i].mixer != VT_BLOCK_ATTENTION)
            continue;
        sizes n = sizes_of(b, i);
        qkv = n.wide + 2 * n.kv > qkv ? n.wide + 2 * n.kv : qkv;
        o = n.q > o ? n.q : o;
        joint = joint || has_norm_over_heads(&b->m->layer[i]);
    }
    b->qkv = build_activation(b, "qkv", VT_FOLLOWS_TOKENS, qkv, b->p->activation);
    b->o = build_activation(b, "o", VT_FOLLOWS_TOKENS, o, b->p->activation);
    if (b->m->arch.out_gate)
        b->q = build_activation(b, "q", VT_FOLLOWS_TOKENS, o, b->p->activation);
    if (b->p->comm && joint)
        build_norm_buffer(b);
}

static views make_views(builder *b, int32_t layer)
{
    sizes n = sizes_of(b, layer);
    vt_tensor *qkv = build_narrow(b, b->qkv, n.wide + 2 * n.kv);
    vt_tensor *wide = build_slice(b, "q", qkv, 0, n.wide);
    return (views){.qkv = qkv,
                   .wide = wide,
                   .q = n.wide > n.q ? build_narrow(b, b->q, n.q) : wide,
                   .k = build_slice(b, "k", qkv, n.wide, n.kv),
                   .v = build_slice(b, "v", qkv, n.wide + n.kv, n.kv),
                   .o = build_narrow(b, b->o, n.q)};
}

static void emit_qkv(builder *b, int32_t i, const vt_tensor *x, const views *a)
{
    const vt_layer_weights *lw = &b->w->layer[i];
    if (lw->weight[VT_ROLE_QKV]) {
        build_linear(b, i, "qkv",
                     (linear_args){.x = x,
                                   .w = lw->weight[VT_ROLE_QKV],
                                   .bias = lw->tensor[VT_ROLE_QKV_BIAS],
                                   .y = a->qkv},
                     VT_WHEN_TOKENS);
        return;
    }
    static const char *const kName[3] = {"q", "k", "v"};
    const vt_tensor *bias[3] = {lw->tensor[VT_ROLE_Q_BIAS], lw->tensor[VT_ROLE_K_BIAS],
                                lw->tensor[VT_ROLE_V_BIAS]};
    vt_tensor *y[3] = {a->wide, a->k, a->v};
    for (int32_t k = 0; k < 3 && lw->weight[VT_ROLE_Q + k]; k++)
        build_linear(
            b, i, kName[k],
            (linear_args){.x = x, .w = lw->weight[VT_ROLE_Q + k], .bias = bias[k], .y = y[k]},
            VT_WHEN_TOKENS);
}

/* Normalises all heads together, in place. */
static void emit_norm(builder *b, int32_t i, const char *what, vt_role norm, vt_tensor *x)
{
    if (over_heads(&b->m->layer[i], norm))
        EMIT(b, rmsnorm, i, what, VT_WHEN_TOKENS,
             {.x = x,
              .weight = b->w->layer[i].tensor[norm],
              .y = x,
              .eps = b->m->arch.norm_eps,
              .plus_one = b->m->arch.norm_plus_one});
}

/* The same over ranks, of which each has a part of the heads. One meeting serves q and k. */
static void emit_norms_over_ranks(builder *b, int32_t i, const views *v)
{
    static const vt_role role[SHARDED_PARTS] = {VT_ROLE_Q_NORM, VT_ROLE_K_NORM};
    const vt_rank is = {b->p->comm->rank, b->p->comm->group->n};
    vt_tensor *const x[SHARDED_PARTS] = {v->q, v->k}, *buffer = b->p->buffer[VT_SLOT_NORM];
    square_sums_args sums = {.y = buffer};
    sharded_rmsnorm_args norm = {.comm = b->p->comm,
                                 .slot = VT_SLOT_NORM,
                                 .order = ++b->p->n_comm,
                                 .sums = buffer,
                                 .eps = b->m->arch.norm_eps,
                                 .plus_one = b->m->arch.norm_plus_one};
    for (int32_t k = 0, n = 0; k < SHARDED_PARTS; k++) {
        if (!over_heads(&b->m->layer[i], role[k]))
            continue;
        sums.x[n] = k == 0 || vt_ranks_counts_kv(b->m, i, &is) ? x[k] : NULL;
        norm.part[n++] = (sharded_rmsnorm_part){.x = x[k],
                                                .weight = b->w->layer[i].tensor[role[k]],
                                                .y = x[k],
                                                .whole = b->m->layer[i].weight[role[k]]->dim[0]};
    }
    build_emit(b, &square_sums_op, &sums, sizeof sums, i, "qk", VT_WHEN_TOKENS);
    build_emit(b, &sharded_rmsnorm_op, &norm, sizeof norm, i, "qk", VT_WHEN_TOKENS);
}

/* Normalises and rotates q and k, and stores k and v where the layer has its own. */
static void emit_rope_store(builder *b, int32_t i, const views *v, const kv_store_args *store)
{
    const vt_arch *a = &b->m->arch;
    const vt_layer *l = &b->m->layer[i];
    const vt_layer_weights *lw = &b->w->layer[i];
    if (b->p->comm && has_norm_over_heads(l)) {
        emit_norms_over_ranks(b, i, v);
    } else {
        emit_norm(b, i, "q", VT_ROLE_Q_NORM, v->q);
        emit_norm(b, i, "k", VT_ROLE_K_NORM, v->k);
    }
    if (l->head.rope < 0) {
        if (l->kv_of == i)
            build_emit(b, &kv_store_op, store, sizeof *store, i, "", VT_WHEN_TOKENS);
        return;
    }
    const vt_rope_params *rope = &a->rope[l->head.rope];
    rope_args rotate = {.batch = &b->p->batch,
                        .q = v->q,
                        .k = v->k,
                        .head_dim = l->head.dim,
                        .dims = rope->dims,
                        .interleaved = rope->interleaved,
                        .cos_sin = b->w->ends.tensor[VT_ROLE_ROPE + l->head.rope],
                        .q_cos_sin = l->head.q_rope_next
                                         ? b->w->ends.tensor[VT_ROLE_ROPE + l->head.rope + 1]
                                         : NULL,
                        .q_norm = by_head(l, VT_ROLE_Q_NORM) ? lw->tensor[VT_ROLE_Q_NORM] : NULL,
                        .k_norm = by_head(l, VT_ROLE_K_NORM) ? lw->tensor[VT_ROLE_K_NORM] : NULL,
                        .eps = a->norm_eps,
                        .plus_one = a->norm_plus_one,
                        .norm_after = l->head.norm_rotated};
    if (l->kv_of == i)
        EMIT(b, rope_store, i, "", VT_WHEN_TOKENS, {.rope = rotate, .store = *store});
    else
        build_emit(b, &rope_op, &rotate, sizeof rotate, i, "", VT_WHEN_TOKENS);
}

static void emit(builder *b, int32_t i, const vt_tensor *x, vt_tensor *y)
{
    const vt_layer *l = &b->m->layer[i];
    const vt_layer_weights *lw = &b->w->layer[i], *kv = &b->w->layer[l->kv_of];
    views v = make_views(b, i);
    if (!v.v || !v.o)
        return;
    int32_t pool = vt_kv_pool_of(b->m, i);
    vt_tensor *k_pool = &b->kv->k[pool], *v_pool = &b->kv->v[pool];
    bool scaled = k_pool->dtype == VT_FP8_E4M3; /* the scales in the file are meant for FP8 */
    float k_scale = scaled ? kv->kv_k_scale : 1, v_scale = scaled ? kv->kv_v_scale : 1;
    emit_qkv(b, i, x, &v);
    build_lora(b, i, "qkv", VT_ROLE_Q, x, (vt_tensor *[]){v.wide, v.k, v.v}, 3, 1);
    if (v.wide != v.q)
        EMIT(b, head_split, i, "q", VT_WHEN_TOKENS, {.x = v.wide, .y = v.q, .dim = l->head.dim});
    int32_t group = b->m->layer[l->kv_of].kv_group;
    const vt_batch *pages = build_pages(b, group);
    kv_store_args store = {.batch = pages,
                           .k = v.k,
                           .v = v.v,
                           .k_pool = k_pool,
                           .v_pool = v_pool,
                           .k_scale = k_scale,
                           .v_scale = v_scale};
    if (b->m->arch.v_norm && l->kv_of == i)
        EMIT(b, part_norm, i, "v", VT_WHEN_TOKENS,
             {.x = l->head.v_of_k ? v.k : v.v,
              .y = v.v,
              .dim = l->head.dim,
              .eps = b->m->arch.norm_eps});
    b->windowed = build_window_pages(b, group);
    emit_rope_store(b, i, &v, &store);
    attention_args att = {.batch = pages,
                          .q = v.q,
                          .k_pool = k_pool,
                          .v_pool = v_pool,
                          .o = v.o,
                          .heads = (int32_t)(v.q->dim[1] / l->head.dim),
                          .kv_heads = (int32_t)k_pool->dim[1],
                          .head_dim = l->head.dim,
                          .scale = b->m->arch.attn_scale,
                          .k_scale = k_scale,
                          .v_scale = v_scale,
                          .window = l->head.window,
                          .after = l->head.after,
                          .sinks = lw->tensor[VT_ROLE_SINKS],
                          .cap = b->m->arch.scores_within};
    if (l->head.after == 0) { /* else every sequence comes whole */
        build_emit(b, &attention_decode_op, &att, sizeof att, i, "", VT_WHEN_DECODE);
        build_offer_turn(b);
    }
    build_emit(b, &attention_prefill_op, &att, sizeof att, i, "", VT_WHEN_PREFILL);
    b->windowed = false;
    if (v.wide != v.q)
        EMIT(b, head_gate, i, "o", VT_WHEN_TOKENS, {.x = v.wide, .y = v.o, .dim = l->head.dim});
    const vt_tensor *residual = y != b->x ? NULL : b->stream ? b->stream : y;
    build_linear(b, i, "o",
                 (linear_args){.x = v.o,
                               .w = lw->weight[VT_ROLE_O],
                               .bias = build_joined_bias(b, lw->tensor[VT_ROLE_O_BIAS]),
                               .residual = residual,
                               .scale = b->m->arch.residual_scale,
                               .y = y},
                 VT_WHEN_TOKENS);
    build_lora(b, i, "o", VT_ROLE_O, v.o, &y, 1, b->m->arch.residual_scale);
}

const vt_block vt_block_attention = {
    .weights = weights, .tensors = tensors, .emit = emit, VT_BLOCK_NORMS("attn", ATTN)};
