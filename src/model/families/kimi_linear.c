/* Kimi Linear: Kimi delta attention (exec/blocks/kda.c) in three layers of four, in the others
 * attention to latents whose queries and keys are not rotated, and DeepSeek's experts.
 *
 * Layers are counted from 1 in the lists of "linear_attn_config". GGUF files hold the decay in the
 * place of its logarithm, and 0 KV heads for layers of delta attention. */
#include <string.h>

#include "files/json.h"
#include "model/assemble.h"
#include "model/families/deepseek.h"
#include "model/families/glm4_moe.h"

static const vt_family_role roles[] = {
    {VT_ROLE_ROUTER, VT_NEED_ALWAYS, NULL, "block_sparse_moe.gate.weight"},
    {VT_ROLE_ROUTER_CHOICE, VT_NEED_ALWAYS, NULL, "block_sparse_moe.gate.e_score_correction_bias"},
    {VT_ROLE_SHARED_GATE, VT_NEED_ALWAYS, NULL, "block_sparse_moe.shared_experts.gate_proj.weight"},
    {VT_ROLE_SHARED_UP, VT_NEED_ALWAYS, NULL, "block_sparse_moe.shared_experts.up_proj.weight"},
    {VT_ROLE_SHARED_DOWN, VT_NEED_ALWAYS, NULL, "block_sparse_moe.shared_experts.down_proj.weight"},
};

/* From the model's published config.json. */
static const vt_family_shape shapes[] = {
    {.name = "kimi-linear-48b-a3b",
     .n_layers = 27,
     .hidden = 2304,
     .n_heads = 32,
     .n_kv_heads = 1,
     .head_dim = 192,
     .ffn = 9216,
     .vocab = 163840,
     .max_context = 1048576,
     .eps = 1e-5f,
     .n_experts = 256,
     .n_experts_used = 8,
     .expert_ffn = 1024,
     .shared_ffn = 1024,
     .first_dense = 1,
     .route_sigmoid = true,
     .route_scale = 2.446f,
     .conv_taps = 4,
     .kinds = "kkkakkkakkkakkkakkkakkkakka",
     .delta = {32, 32, 128, 128, .gate_rank = 128, .log_decay = true},
     .mla = {.kv_rank = 512, .nope = 128, .rope = 64, .v = 128}},
    {.name = NULL},
};

/* All heads of delta attention have one size, which is the rank of their gates too. */
static void set_heads(vt_model *m, int32_t heads, int32_t dim)
{
    m->arch.delta = (vt_delta){heads, heads, dim, dim, .gate_rank = dim, .log_decay = true};
}

/* ---- config.json ---- */

/* A number that files have under the published name or under the one of transformers' class. */
static vt_status read_either(hf_reader *c, const char *published, const char *other, bool required,
                             int32_t *out)
{
    if (vt_read_member(c->root, other) && !vt_read_member(c->root, published))
        return hf_read_i32(c, other, required, out);
    return hf_read_i32(c, published, required, out);
}

/* Reads entry i of a list of layers. Fails unless it is the number of a layer that no list has
 * named: no entry before it, and not "kda_layers" if this is the other list. */
static vt_status read_listed(hf_reader *c, const json_t *list, const char *key, size_t i,
                             int32_t *out)
{
    int32_t layer;
    TRY(vt_read_nth(c->path, key, list, i, 1, c->m->arch.n_layers, &layer, c->err));
    bool is_new = c->m->layer[layer - 1].mixer != VT_BLOCK_KDA;
    for (size_t k = 0; k < i; k++)
        is_new = is_new && json_number_value(json_array_get(list, k)) != layer;
    if (!is_new)
        return vt_fail(c->err, VT_ERR_MODEL,
                       "%s: \"%s\" names layer %d, which was named before; each of 1 to %d was "
                       "expected once",
                       c->path, key, layer, c->m->arch.n_layers);
    *out = layer - 1;
    return VT_OK;
}

/* Layers are listed by "layer_types", or by the two lists in the object of linear attention. */
static vt_status read_layers(hf_reader *c, const json_t *o)
{
    const json_t *kda = vt_read_member(o, "kda_layers"),
                 *full = vt_read_member(o, "full_attn_layers");
    int32_t n = c->m->arch.n_layers, layer;
    if (vt_read_member(c->root, "layer_types"))
        return hf_read_mixers(c, "linear_attention", VT_BLOCK_KDA);
    TRY(vt_check_list(c->path, "kda_layers", kda, c->err));
    TRY(vt_check_list(c->path, "full_attn_layers", full, c->err));
    if (json_array_size(kda) + json_array_size(full) != (size_t)n)
        return vt_fail(
            c->err, VT_ERR_FORMAT,
            "%s: \"kda_layers\" has %zu layers and \"full_attn_layers\" %zu; arrays of %d in "
            "all were expected",
            c->path, json_array_size(kda), json_array_size(full), n);
    for (size_t i = 0; i < json_array_size(kda); i++) {
        TRY(read_listed(c, kda, "kda_layers", i, &layer));
        model_keep_state(c->m, layer, VT_BLOCK_KDA);
    }
    for (size_t i = 0; i < json_array_size(full); i++)
        TRY(read_listed(c, full, "full_attn_layers", i, &layer));
    return VT_OK;
}

static vt_status read_delta(hf_reader *c)
{
    const json_t *o = vt_read_member(c->root, "linear_attn_config");
    int32_t heads = 32, dim = 128;
    bool full_rank = false;
    c->m->arch.conv_taps = 4;
    TRY(hf_read_i32(c, "linear_num_heads", false, &heads));
    TRY(hf_read_i32(c, "linear_head_dim", false, &dim));
    TRY(hf_read_i32(c, "linear_conv_kernel_dim", false, &c->m->arch.conv_taps));
    TRY(vt_read_i32(c->path, o, "num_heads", false, &heads, c->err));
    TRY(vt_read_i32(c->path, o, "head_dim", false, &dim, c->err));
    TRY(vt_read_i32(c->path, o, "short_conv_kernel_size", false, &c->m->arch.conv_taps, c->err));
    TRY(vt_read_bool(c->path, o, "use_full_rank_gate", false, &full_rank, c->err));
    if (full_rank || vt_read_member(o, "gate_lower_bound"))
        return vt_fail(c->err, VT_ERR_UNSUPPORTED, "%s: \"%s\" is not supported for %s", c->path,
                       full_rank ? "use_full_rank_gate" : "gate_lower_bound", c->family->hf);
    set_heads(c->m, heads, dim);
    return read_layers(c, o);
}

/* Refuses what the models' own code names and this does not compute. */
static vt_status refuse_variants(hf_reader *c)
{
    const char *score = "sigmoid";
    bool nope = true;
    int32_t every = 1;
    TRY(hf_read_bool(c, "mla_use_nope", &nope));
    TRY(hf_read_i32(c, "moe_layer_freq", false, &every));
    TRY(vt_read_str(c->path, c->root, "moe_router_activation_func", false, &score, c->err));
    if (!nope)
        return vt_fail(c->err, VT_ERR_UNSUPPORTED,
                       "%s: \"mla_use_nope\" is false; true is supported for %s", c->path,
                       c->family->hf);
    if (every != 1)
        return vt_fail(c->err, VT_ERR_UNSUPPORTED,
                       "%s: \"moe_layer_freq\" is %d; 1 is supported for %s", c->path, every,
                       c->family->hf);
    if (strcmp(score, "sigmoid") != 0)
        return vt_fail(c->err, VT_ERR_UNSUPPORTED,
                       "%s: \"moe_router_activation_func\" is %.40s; sigmoid is supported for %s",
                       c->path, score, c->family->hf);
    TRY(hf_refuse_flag(c, "mla_use_output_gate"));
    return hf_refuse_f64(c, "num_nextn_predict_layers");
}

static vt_status read_experts(hf_reader *c)
{
    vt_arch *a = &c->m->arch;
    int32_t shared = 1, dense = glm4_moe_dense_layers(c);
    double scale = 2.446;
    if (dense < 0)
        return VT_ERR_UNSUPPORTED;
    a->route_sigmoid = a->norm_topk = true;
    a->expert_groups_used = 1;
    TRY(read_either(c, "num_experts", "num_local_experts", true, &a->n_experts));
    TRY(read_either(c, "num_experts_per_token", "num_experts_per_tok", true, &a->n_experts_used));
    TRY(read_either(c, "num_shared_experts", "n_shared_experts", false, &shared));
    TRY(read_either(c, "num_expert_group", "n_group", false, &a->expert_groups));
    TRY(hf_read_i32(c, "topk_group", false, &a->expert_groups_used));
    TRY(hf_read_i32(c, "moe_intermediate_size", true, &a->expert_ffn));
    TRY(hf_read_i32(c, "first_k_dense_replace", false, &dense));
    TRY(hf_read_bool(c, "norm_topk_prob", &a->norm_topk));
    TRY(hf_read_bool(c, "moe_renormalize", &a->norm_topk));
    TRY(hf_read_factor(c, "routed_scaling_factor", &scale));
    return glm4_moe_set_up(c->m, dense, shared, scale, c->err);
}

static vt_status from_config(hf_reader *c)
{
    double eps = 1e-5;
    TRY(hf_read_f64(c, "rms_norm_eps", false, &eps));
    c->m->arch.norm_eps = (float)eps;
    TRY(hf_read_i32(c, "model_max_length", false, &c->m->arch.max_context));
    TRY(refuse_variants(c));
    TRY(deepseek_read_latents(c));
    TRY(read_delta(c));
    return read_experts(c);
}

/* ---- GGUF ---- */

static vt_status from_gguf(gguf_reader *r)
{
    vt_arch *a = &r->m->arch;
    int32_t dim = 0;
    a->norm_topk = true;
    TRY(deepseek_read_gguf(r));
    TRY(gguf_read_i32(r, "ssm.conv_kernel", true, &a->conv_taps));
    TRY(gguf_read_i32(r, "kda.head_dim", true, &dim));
    set_heads(r->m, a->n_heads, dim);
    a->delta.log_decay = false;
    for (int32_t i = 0; i < a->n_layers; i++)
        if (!gguf_layer_has(r, "attention.head_count_kv", i))
            model_keep_state(r->m, i, VT_BLOCK_KDA);
    return VT_OK;
}

const vt_family vt_family_kimi_linear = {.name = "kimi_linear",
                                         .gguf = "kimi-linear",
                                         .hf = "kimi_linear",
                                         .roles = roles,
                                         .n_roles = sizeof roles / sizeof *roles,
                                         .shapes = shapes,
                                         .experts = true,
                                         .hf_experts = "block_sparse_moe.experts",
                                         .hf_mlp = "block_sparse_moe",
                                         .hf_projection = {"w1", "w3", "w2"},
                                         .latent = true,
                                         .no_rope = true,
                                         .gguf_zeros = true,
                                         .kv_heads_optional = true,
                                         .max_context = 1048576,
                                         .from_gguf = from_gguf,
                                         .from_config = from_config};
