/* Multi-head latent attention (DeepSeek-V2, 2024, arXiv:2405.04434), in its absorbed form.
 *
 *   q = x Wq, or norm(x Wqa) Wqb               wide [tokens, Hq (nope + rope)]
 *   (k_r | c) = x Wkva                         latent [tokens, rope + rank]: a row of the cache
 *   q'_h = (q_r | Wk_h q_n)                    q [tokens, Hq (rope + rank)]
 *   rope of q_r and k_r, unless the layer has none; norm of c; the row is stored
 *   o'_h = sum_j softmax_j(q'_h . row_j) c_j   q_latent [tokens, Hq rank]
 *   o_h = Wv_h o'_h, then O                    o [tokens, Hq v]
 *
 * A rank of a tensor-parallel group has some of the heads and all of the latents.
 *
 * The cache holds one row a token for all heads, and V is its last `rank` values: one pool, one KV
 * head. Files have c before k_r; the weight's rows are stacked the other way round here, because
 * rope turns the first dimensions of a head. Prefill takes the same form as decode although keys
 * and values made from the latents would need fewer FLOPs: then a token's bits do not depend on
 * where a prompt is cut or on what the prefix cache had. */
#include "base/err.h"
#include "exec/blocks/block.h"
#include "ops/attention/attention.h"
#include "ops/head_linear/head_linear.h"
#include "ops/kv_store/kv_store.h"
#include "ops/rmsnorm/rmsnorm.h"
#include "ops/rope/rope.h"
#include "ops/rope_store/rope_store.h"

/* Adds the weight of the latent and k_r, with k_r's rows first. */
static void add_latent(vt_layout *l, int32_t layer)
{
    const vt_layer *src = &l->model->layer[layer];
    const vt_tensor *w = src->weight[VT_ROLE_MLA_KV_A], *scale = src->scale[VT_ROLE_MLA_KV_A];
    int64_t rank = l->model->arch.mla.kv_rank;
    vt_layout_entry *e = vt_layout_add(l, VT_ROLE_MLA_KV_A, layer);
    vt_layout_stack(e, w, scale);
    vt_layout_stack(e, w, scale);
    e->part[0].row = rank;
    e->part[0].rows -= rank;
    e->part[1].rows = rank;
}

static vt_status weights(vt_layout *l, int32_t layer, vt_err *err)
{
    static const vt_role before[] = {VT_ROLE_MLA_Q, VT_ROLE_MLA_Q_A, VT_ROLE_MLA_Q_A_NORM,
                                     VT_ROLE_MLA_Q_B},
                         after[] = {VT_ROLE_MLA_KV_A_NORM, VT_ROLE_MLA_K_B, VT_ROLE_MLA_V_B,
                                    VT_ROLE_MLA_O};
    (void)err;
    for (size_t i = 0; i < sizeof before / sizeof *before; i++)
        vt_layout_add_role(l, before[i], layer);
    add_latent(l, layer);
    for (size_t i = 0; i < sizeof after / sizeof *after; i++)
        vt_layout_add_role(l, after[i], layer);
    return VT_OK;
}

/* Returns how many heads the layer's weights make: as many in all layers of this kind. */
static int32_t heads_of(const builder *b, int32_t layer)
{
    return b->w->layer[layer].weight[VT_ROLE_MLA_K_B]->n_experts;
}

static void tensors(builder *b)
{
    const vt_mla *s = &b->m->arch.mla;
    int32_t first = 0;
    while (b->m->layer[first].mixer != VT_BLOCK_MLA)
        first++;
    int64_t heads = heads_of(b, first), row = s->rope + s->kv_rank;
    vt_dtype type = b->p->activation;
    if (s->q_rank > 0)
        b->q_rank = build_activation(b, "q_rank", VT_FOLLOWS_TOKENS, s->q_rank, type);
    b->wide = build_activation(b, "wide", VT_FOLLOWS_TOKENS, heads * (s->nope + s->rope), type);
    b->latent = build_activation(b, "latent", VT_FOLLOWS_TOKENS, row, type);
    b->q = build_activation(b, "q", VT_FOLLOWS_TOKENS, heads * row, type);
    b->q_latent = build_activation(b, "q_latent", VT_FOLLOWS_TOKENS, heads * s->kv_rank, type);
    b->o = build_activation(b, "o", VT_FOLLOWS_TOKENS, heads * s->v, type);
}

static void emit_norm(builder *b, int32_t i, const char *what, vt_role role, vt_tensor *x)
{
    EMIT(b, rmsnorm, i, what, VT_WHEN_TOKENS,
         {.x = x, .weight = b->w->layer[i].tensor[role], .y = x, .eps = b->m->arch.mla.norm_eps});
}

/* q of all heads, and the latent with the part of k that is rotated. The products with x stand one
 * behind the other, so that they can make its norm. */
static void emit_projections(builder *b, int32_t i, const vt_tensor *x)
{
    vt_weight *const *w = b->w->layer[i].weight;
    const vt_weight *q = w[VT_ROLE_MLA_Q];
    if (q)
        build_linear(b, i, "q", (linear_args){.x = x, .w = q, .y = b->wide}, VT_WHEN_TOKENS);
    else
        build_linear(b, i, "q_a", (linear_args){.x = x, .w = w[VT_ROLE_MLA_Q_A], .y = b->q_rank},
                     VT_WHEN_TOKENS);
    build_linear(b, i, "kv_a", (linear_args){.x = x, .w = w[VT_ROLE_MLA_KV_A], .y = b->latent},
                 VT_WHEN_TOKENS);
    if (!q) {
        int32_t norm = b->p->n_calls;
        emit_norm(b, i, "q_a", VT_ROLE_MLA_Q_A_NORM, b->q_rank);
        build_linear(b, i, "q",
                     (linear_args){.x = b->q_rank, .w = w[VT_ROLE_MLA_Q_B], .y = b->wide},
                     VT_WHEN_TOKENS);
        build_offer_norm(b, norm);
    }
}

/* The row of the cache, with k_r rotated and c normalised; q is rotated too. One call does all
 * where the rotation ends in front of c. Otherwise there is none, or q's table has a factor for all
 * dimensions (Mistral 4). */
static void emit_row(builder *b, int32_t i)
{
    const vt_arch *a = &b->m->arch;
    const vt_heads *h = &b->m->layer[i].head;
    rope_args rope = {.batch = &b->p->batch,
                      .q = b->q,
                      .k = b->latent,
                      .head_dim = h->dim,
                      .eps = a->mla.norm_eps};
    kv_store_args store = {.batch = &b->p->batch,
                           .k = b->latent,
                           .k_pool = &b->kv->k[vt_kv_pool_of(b->m, i)],
                           .k_scale = 1,
                           .v_scale = 1};
    if (h->rope >= 0) {
        rope.dims = a->rope[h->rope].dims;
        rope.interleaved = a->rope[h->rope].interleaved;
        rope.cos_sin = b->w->ends.tensor[VT_ROLE_ROPE + h->rope];
        rope.q_cos_sin = h->q_rope_next ? b->w->ends.tensor[VT_ROLE_ROPE + h->rope + 1] : NULL;
    }
    if (rope.dims == a->mla.rope) {
        EMIT(b, rope_store, i, "", VT_WHEN_TOKENS,
             {.rope = rope,
              .store = store,
              .latent_norm = b->w->layer[i].tensor[VT_ROLE_MLA_KV_A_NORM]});
        return;
    }
    vt_tensor *c = build_slice(b, "c", b->latent, a->mla.rope, a->mla.kv_rank);
    if (c)
        emit_norm(b, i, "kv_a", VT_ROLE_MLA_KV_A_NORM, c);
    if (h->rope >= 0)
        build_emit(b, &rope_op, &rope, sizeof rope, i, "", VT_WHEN_TOKENS);
    build_emit(b, &kv_store_op, &store, sizeof store, i, "", VT_WHEN_TOKENS);
}

/* Rotates q and k, stores the row and attends. */
static void emit_attention(builder *b, int32_t i)
{
    const vt_arch *a = &b->m->arch;
    const vt_heads *h = &b->m->layer[i].head;
    vt_tensor *pool = &b->kv->k[vt_kv_pool_of(b->m, i)];
    emit_row(b, i);
    attention_args att = {.batch = &b->p->batch,
                          .q = b->q,
                          .k_pool = pool,
                          .v_pool = pool,
                          .o = b->q_latent,
                          .heads = heads_of(b, i),
                          .kv_heads = 1,
                          .head_dim = h->dim,
                          .v_dim = h->v_dim,
                          .scale = a->attn_scale,
                          .k_scale = 1,
                          .v_scale = 1};
    build_emit(b, &attention_decode_op, &att, sizeof att, i, "", VT_WHEN_DECODE);
    build_emit(b, &attention_prefill_op, &att, sizeof att, i, "", VT_WHEN_PREFILL);
}

static bool refused(builder *b, int32_t i)
{
    const char *why = NULL;
    if (b->kv->shape.dtype == VT_FP8_E4M3)
        why = "attends to latents (MLA), which a KV cache of FP8 does not hold; kv-dtype can be "
              "f16, bf16 or f32";
    if (why && b->status == VT_OK)
        b->status = vt_fail(b->err, VT_ERR_UNSUPPORTED, "%s: layer %d %s", b->m->name, i, why);
    return why != NULL;
}

static void emit(builder *b, int32_t i, const vt_tensor *x, vt_tensor *y)
{
    const vt_mla *s = &b->m->arch.mla;
    vt_weight *const *w = b->w->layer[i].weight;
    int32_t heads = heads_of(b, i);
    if (refused(b, i))
        return;
    emit_projections(b, i, x);
    EMIT(b, head_linear, i, "k_b", VT_WHEN_TOKENS,
         {.x = b->wide, .w = w[VT_ROLE_MLA_K_B], .y = b->q, .heads = heads, .rest = s->rope});
    emit_attention(b, i);
    EMIT(b, head_linear, i, "v_b", VT_WHEN_TOKENS,
         {.x = b->q_latent, .w = w[VT_ROLE_MLA_V_B], .y = b->o, .heads = heads});
    build_linear(b, i, "o",
                 (linear_args){.x = b->o,
                               .w = w[VT_ROLE_MLA_O],
                               .residual = y == b->x ? y : NULL,
                               .scale = b->m->arch.residual_scale,
                               .y = y},
                 VT_WHEN_TOKENS);
}

const vt_block vt_block_mla = {
    .weights = weights, .tensors = tensors, .emit = emit, VT_BLOCK_NORMS("attn", ATTN)};
