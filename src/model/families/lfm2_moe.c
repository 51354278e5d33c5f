/* LFM2 with experts: the first layers are dense; in the others a router of sigmoids chooses experts
 * with a bias for the choice. transformers adds 1e-6 to the sum that weights are divided by, which
 * is not done here: the weights differ by 1e-6 over that sum. */
#include "model/families/lfm2.h"

static const vt_family_role roles[] = {
    LFM2_ROLES,
    {VT_ROLE_ROUTER, VT_NEED_ALWAYS, NULL, "feed_forward.gate.weight"},
    {VT_ROLE_ROUTER_CHOICE, VT_NEED_ALWAYS, NULL, "feed_forward.expert_bias"},
};

static vt_status set_dense(vt_model *m, int32_t dense, vt_err *err)
{
    if (dense < 0 || dense > m->arch.n_layers)
        return vt_fail(err, VT_ERR_MODEL,
                       "%s: %d of %d layers are dense (num_dense_layers, "
                       "leading_dense_block_count); 0 to all were expected",
                       m->path, dense, m->arch.n_layers);
    for (int32_t i = 0; i < dense; i++)
        m->layer[i].ffn = VT_BLOCK_FFN;
    return VT_OK;
}

static vt_status from_gguf(gguf_reader *r)
{
    vt_arch *a = &r->m->arch;
    int32_t dense = 0, gating = 2;
    double scale = 1;
    TRY(lfm2_from_gguf(r));
    a->norm_topk = a->route_sigmoid = true;
    TRY(gguf_read_i32(r, "expert_count", true, &a->n_experts));
    TRY(gguf_read_i32(r, "expert_used_count", true, &a->n_experts_used));
    TRY(gguf_read_i32(r, "expert_feed_forward_length", true, &a->expert_ffn));
    TRY(gguf_read_i32(r, "leading_dense_block_count", false, &dense));
    TRY(gguf_read_i32(r, "expert_gating_func", false, &gating));
    if (gating != 2)
        return vt_fail(r->err, VT_ERR_UNSUPPORTED, "%s: %s is %d; 2, sigmoids, is supported for %s",
                       r->m->path, r->key, gating, r->family->gguf);
    TRY(gguf_get_bool(r->file, gguf_reader_key(r, "expert_weights_norm"), false, &a->norm_topk,
                      r->err));
    TRY(gguf_read_factor(r, "expert_weights_scale", &scale));
    a->route_scale = (float)scale;
    return set_dense(r->m, dense, r->err);
}

static vt_status from_config(hf_reader *c)
{
    vt_arch *a = &c->m->arch;
    int32_t dense = 2;
    bool biased = true;
    double scale = 1;
    TRY(lfm2_from_config(c));
    a->norm_topk = a->route_sigmoid = true;
    TRY(hf_read_i32(c, "num_experts", true, &a->n_experts));
    TRY(hf_read_i32(c, "num_experts_per_tok", true, &a->n_experts_used));
    TRY(hf_read_i32(c, "moe_intermediate_size", true, &a->expert_ffn));
    TRY(hf_read_i32(c, "num_dense_layers", false, &dense));
    TRY(hf_read_bool(c, "norm_topk_prob", &a->norm_topk));
    TRY(hf_read_bool(c, "use_expert_bias", &biased));
    if (!biased)
        return vt_fail(c->err, VT_ERR_UNSUPPORTED,
                       "%s: \"use_expert_bias\" is false; that is not supported for %s", c->path,
                       c->family->hf);
    TRY(hf_read_factor(c, "routed_scaling_factor", &scale));
    a->route_scale = (float)scale;
    return set_dense(c->m, dense, c->err);
}

/* From the model's published config.json. */
static const vt_family_shape shapes[] = {
    {LFM2, .name = "lfm2-8b-a1b", .n_layers = 24, .hidden = 2048, .n_heads = 32, .ffn = 7168,
     .n_experts = 32, .n_experts_used = 4, .expert_ffn = 1792, .first_dense = 2,
     .route_sigmoid = true, .route_scale = 1, .kinds = "ccacccacccacccacccaccacc"},
    {.name = NULL},
};

const vt_family vt_family_lfm2_moe = {.name = "lfm2_moe",
                                      .gguf = "lfm2moe",
                                      .hf = "lfm2_moe",
                                      .roles = roles,
                                      .n_roles = sizeof roles / sizeof *roles,
                                      .shapes = shapes,
                                      .experts = true,
                                      .hf_experts = "feed_forward.experts",
                                      .hf_projection = {"w1", "w3", "w2"},
                                      .tied = true,
                                      .rope_base = 1e6,
                                      .hf_eps = "norm_eps",
                                      .gguf_zeros = true,
                                      .from_gguf = from_gguf,
                                      .from_config = from_config};
