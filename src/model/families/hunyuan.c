/* Hunyuan: Llama with norms of the heads of q and k behind their rotation, and a rope whose base a
 * factor stretches for long contexts. Its GGUF files have that factor in the base.
 *
 * A13B has experts in all layers, and beside them a feed-forward that every token has. Its
 * config.json gives their sizes and numbers once, or as a list with one for each layer. */
#include "files/json.h"
#include "model/family.h"

static const vt_family_role roles[] = {
    {VT_ROLE_Q_NORM, VT_NEED_ALWAYS, NULL, "self_attn.query_layernorm.weight"},
    {VT_ROLE_K_NORM, VT_NEED_ALWAYS, NULL, "self_attn.key_layernorm.weight"},
};

static const vt_family_role moe_roles[] = {
    {VT_ROLE_Q_NORM, VT_NEED_ALWAYS, NULL, "self_attn.query_layernorm.weight"},
    {VT_ROLE_K_NORM, VT_NEED_ALWAYS, NULL, "self_attn.key_layernorm.weight"},
    {VT_ROLE_ROUTER, VT_NEED_ALWAYS, NULL, "mlp.gate.wg.weight"},
    {VT_ROLE_SHARED_GATE, VT_NEED_ALWAYS, NULL, "mlp.shared_mlp.gate_proj.weight"},
    {VT_ROLE_SHARED_UP, VT_NEED_ALWAYS, NULL, "mlp.shared_mlp.up_proj.weight"},
    {VT_ROLE_SHARED_DOWN, VT_NEED_ALWAYS, NULL, "mlp.shared_mlp.down_proj.weight"},
};

/* From the model's published config.json; the base is 10,000 times 1000^(128 / 126). */
static const vt_family_shape shapes[] = {
    {.name = "hunyuan-7b",
     .n_layers = 32,
     .hidden = 4096,
     .n_heads = 32,
     .n_kv_heads = 8,
     .head_dim = 128,
     .ffn = 14336,
     .vocab = 128167,
     .max_context = 262144,
     .rope_base = 11158840,
     .eps = 1e-5f,
     .tied = true},
    {.name = NULL},
};

static const vt_family_shape moe_shapes[] = {
    {.name = "hunyuan-a13b",
     .n_layers = 32,
     .hidden = 4096,
     .n_heads = 32,
     .n_kv_heads = 8,
     .head_dim = 128,
     .ffn = 3072,
     .vocab = 128167,
     .max_context = 262144,
     .rope_base = 11158840,
     .eps = 1e-5f,
     .tied = true,
     .n_experts = 64,
     .n_experts_used = 8,
     .expert_ffn = 3072,
     .shared_ffn = 3072},
    {.name = NULL},
};

/* Refuses a flag that is false. */
static vt_status want_flag(hf_reader *c, const char *key)
{
    bool set = true;
    TRY(hf_read_bool(c, key, &set));
    return set ? VT_OK
               : vt_fail(c->err, VT_ERR_UNSUPPORTED,
                         "%s: \"%s\" is false; true is supported for %s", c->path, key,
                         c->family->hf);
}

/* Refuses what the models' own code can leave out, or have besides. */
static vt_status from_config(hf_reader *c)
{
    double eps = 1e-5;
    TRY(hf_read_f64(c, "rms_norm_eps", false, &eps));
    c->m->arch.norm_eps = (float)eps;
    TRY(want_flag(c, "use_qk_norm"));
    return hf_refuse_flag(c, "use_cla");
}

/* A number that may be a list of equal ones, one for each layer. *out stays where it is missing. */
static vt_status read_even(hf_reader *c, const char *key, int32_t *out)
{
    const json_t *v = vt_read_member(c->root, key);
    int32_t layers = c->m->arch.n_layers;
    if (!json_is_array(v))
        return hf_read_i32(c, key, false, out);
    if (json_array_size(v) < (size_t)layers)
        return vt_fail(c->err, VT_ERR_FORMAT, "%s: \"%s\" has %zu numbers for %d layers", c->path,
                       key, json_array_size(v), layers);
    for (int32_t i = 0; i < layers; i++) {
        int32_t n, first;
        TRY(vt_read_nth(c->path, key, v, 0, 0, INT32_MAX, &first, c->err));
        TRY(vt_read_nth(c->path, key, v, (size_t)i, 0, INT32_MAX, &n, c->err));
        if (n != first)
            return vt_fail(c->err, VT_ERR_UNSUPPORTED,
                           "%s: \"%s\" is %d in layer %d and %d in layer 0; equal numbers are "
                           "supported for %s",
                           c->path, key, n, i, first, c->family->hf);
        *out = n;
    }
    return VT_OK;
}

/* Refuses a number other than the one that is computed here. */
static vt_status want_number(hf_reader *c, const char *key, double want)
{
    double v = want;
    TRY(hf_read_f64(c, key, false, &v));
    return v == want
               ? VT_OK
               : vt_fail(c->err, VT_ERR_UNSUPPORTED, "%s: \"%s\" is %g; %g is supported for %s",
                         c->path, key, v, want, c->family->hf);
}

static vt_status refuse_variants(hf_reader *c)
{
    static const char *const without[] = {"use_mla", "group_limited_greedy", "moe_drop_tokens",
                                          "position_embedding_xdrope"};
    for (size_t i = 0; i < sizeof without / sizeof *without; i++)
        TRY(hf_refuse_flag(c, without[i]));
    TRY(want_flag(c, "use_mixed_mlp_moe"));
    TRY(want_flag(c, "norm_topk_prob"));
    TRY(want_number(c, "moe_layer_num_skipped", 0));
    TRY(want_number(c, "routed_scaling_factor", 1));
    return want_number(c, "attention_head_dim", c->m->arch.head_dim);
}

static vt_status set_shared(vt_model *m, int32_t shared, vt_err *err)
{
    vt_arch *a = &m->arch;
    if (shared < 1 || a->expert_ffn < 1 || (int64_t)shared * a->expert_ffn > INT32_MAX)
        return vt_fail(err, VT_ERR_UNSUPPORTED,
                       "%s: %d shared experts (num_shared_expert, expert_shared_count) of %d rows "
                       "(moe_intermediate_size, expert_feed_forward_length) are not supported (1 "
                       "or more of both are)",
                       m->path, shared, a->expert_ffn);
    a->shared_ffn = shared * a->expert_ffn;
    a->norm_topk = true;
    return VT_OK;
}

static vt_status moe_from_config(hf_reader *c)
{
    vt_arch *a = &c->m->arch;
    int32_t shared = 1;
    TRY(from_config(c));
    TRY(refuse_variants(c));
    a->expert_ffn = a->ffn;
    a->n_experts_used = 1;
    TRY(read_even(c, "num_experts", &a->n_experts));
    TRY(read_even(c, "moe_topk", &a->n_experts_used));
    TRY(read_even(c, "moe_intermediate_size", &a->expert_ffn));
    TRY(read_even(c, "num_shared_expert", &shared));
    return set_shared(c->m, shared, c->err);
}

static vt_status moe_from_gguf(gguf_reader *r)
{
    vt_arch *a = &r->m->arch;
    int32_t shared = 1;
    TRY(gguf_read_i32(r, "expert_count", true, &a->n_experts));
    TRY(gguf_read_i32(r, "expert_used_count", true, &a->n_experts_used));
    TRY(gguf_read_i32(r, "expert_feed_forward_length", true, &a->expert_ffn));
    TRY(gguf_read_i32(r, "expert_shared_count", false, &shared));
    TRY(set_shared(r->m, shared, r->err));
    return gguf_read_i32(r, "expert_shared_feed_forward_length", false, &a->shared_ffn);
}

const vt_family vt_family_hunyuan = {.name = "hunyuan",
                                     .gguf = "hunyuan-dense",
                                     .hf = "hunyuan_v1_dense",
                                     .roles = roles,
                                     .n_roles = sizeof roles / sizeof *roles,
                                     .shapes = shapes,
                                     .norm_rotated = true,
                                     .rope_alpha = true,
                                     .from_config = from_config};

const vt_family vt_family_hunyuan_moe = {.name = "hunyuan_moe",
                                         .gguf = "hunyuan-moe",
                                         .hf = "hunyuan_v1_moe",
                                         .roles = moe_roles,
                                         .n_roles = sizeof moe_roles / sizeof *moe_roles,
                                         .shapes = moe_shapes,
                                         .experts = true,
                                         .norm_rotated = true,
                                         .rope_alpha = true,
                                         .from_gguf = moe_from_gguf,
                                         .from_config = moe_from_config};
