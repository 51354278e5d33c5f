/* MiniMax M2: experts in all layers, chosen by sigmoids with a bias for the choice; norms of q and
 * k over all heads together; a part of each head is rotated. */
#include <string.h>

#include "files/json.h"
#include "model/family.h"

static const vt_family_role roles[] = {
    {VT_ROLE_Q_NORM, VT_NEED_ALWAYS, .dim = {VT_DIM_Q}},
    {VT_ROLE_K_NORM, VT_NEED_ALWAYS, .dim = {VT_DIM_KV}},
    {VT_ROLE_ROUTER, VT_NEED_ALWAYS, NULL, "block_sparse_moe.gate.weight"},
    {VT_ROLE_ROUTER_CHOICE, VT_NEED_ALWAYS, NULL, "block_sparse_moe.e_score_correction_bias"},
};

/* From the model's published config.json. */
static const vt_family_shape shapes[] = {
    {.name = "minimax-m2",
     .n_layers = 62,
     .hidden = 3072,
     .n_heads = 48,
     .n_kv_heads = 8,
     .head_dim = 128,
     .rope_dims = 64,
     .ffn = 1536,
     .vocab = 200064,
     .max_context = 196608,
     .rope_base = 5e6,
     .eps = 1e-6f,
     .n_experts = 256,
     .n_experts_used = 8,
     .expert_ffn = 1536,
     .route_sigmoid = true,
     .route_scale = 1},
    {.name = NULL},
};

static void set_up(vt_arch *a) { a->norm_topk = a->route_sigmoid = true; }

static vt_status from_gguf(gguf_reader *r)
{
    vt_arch *a = &r->m->arch;
    int32_t gating = 2;
    set_up(a);
    TRY(gguf_read_i32(r, "expert_count", true, &a->n_experts));
    TRY(gguf_read_i32(r, "expert_used_count", true, &a->n_experts_used));
    TRY(gguf_read_i32(r, "expert_feed_forward_length", true, &a->expert_ffn));
    TRY(gguf_read_i32(r, "expert_gating_func", false, &gating));
    if (gating != 2)
        return vt_fail(r->err, VT_ERR_UNSUPPORTED, "%s: %s is %d; 2, sigmoids, is supported for %s",
                       r->m->path, r->key, gating, r->family->gguf);
    return VT_OK;
}

/* Refuses a text other than the one that is computed here. */
static vt_status expect(hf_reader *c, const char *key, const char *want)
{
    const char *got = want;
    TRY(vt_read_str(c->path, c->root, key, false, &got, c->err));
    return strcmp(got, want) == 0
               ? VT_OK
               : vt_fail(c->err, VT_ERR_UNSUPPORTED, "%s: \"%s\" is %.40s (%s is supported for %s)",
                         c->path, key, got, want, c->family->hf);
}

static vt_status from_config(hf_reader *c)
{
    vt_arch *a = &c->m->arch;
    bool norms = true;
    set_up(a);
    TRY(hf_read_i32(c, "num_local_experts", true, &a->n_experts));
    TRY(hf_read_i32(c, "num_experts_per_tok", true, &a->n_experts_used));
    TRY(hf_read_i32(c, "intermediate_size", true, &a->expert_ffn));
    TRY(hf_read_i32(c, "rotary_dim", false, &a->rope[0].dims));
    TRY(expect(c, "scoring_func", "sigmoid"));
    TRY(expect(c, "qk_norm_type", "per_layer"));
    TRY(hf_read_bool(c, "use_qk_norm", &norms));
    if (!norms)
        return vt_fail(c->err, VT_ERR_UNSUPPORTED,
                       "%s: \"use_qk_norm\" is false; that is not supported for %s", c->path,
                       c->family->hf);
    return hf_refuse_f64(c, "shared_intermediate_size");
}

const vt_family vt_family_minimax_m2 = {.name = "minimax_m2",
                                        .gguf = "minimax-m2",
                                        .hf = "minimax_m2",
                                        .roles = roles,
                                        .n_roles = sizeof roles / sizeof *roles,
                                        .shapes = shapes,
                                        .experts = true,
                                        .hf_experts = "block_sparse_moe.experts",
                                        .hf_projection = {"w1", "w3", "w2"},
                                        .head_dim = 128,
                                        .rope_base = 5e6,
                                        .rope_partial = 1,
                                        .from_gguf = from_gguf,
                                        .from_config = from_config};
