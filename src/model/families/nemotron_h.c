/* Nemotron-H and Nemotron Nano: a layer has one block alone, a state space (Mamba-2), attention
 * without positions, experts, or a feed-forward. Neither of the last two has a gate, and their
 * activation is the square of ReLU. Kinds are letters, as in "hybrid_override_pattern": M, *, E, -,
 * in this order. */
#include <string.h>

#include "files/json.h"
#include "model/assemble.h"
#include "model/state_space.h"

static const vt_family_role roles[] = {
    {VT_ROLE_EMBED, VT_NEED_ALWAYS, NULL, "backbone.embeddings.weight"},
    {VT_ROLE_FINAL_NORM, VT_NEED_ALWAYS, NULL, "backbone.norm_f.weight"},
    {VT_ROLE_ATTN_NORM, VT_NEED_ALWAYS, NULL, "norm.weight"},
    {VT_ROLE_FFN_NORM, VT_NEED_ALWAYS, "attn_norm.weight", "norm.weight"},
    {VT_ROLE_Q, VT_NEED_ALWAYS, NULL, "mixer.q_proj.weight"},
    {VT_ROLE_K, VT_NEED_ALWAYS, NULL, "mixer.k_proj.weight"},
    {VT_ROLE_V, VT_NEED_ALWAYS, NULL, "mixer.v_proj.weight"},
    {VT_ROLE_O, VT_NEED_ALWAYS, NULL, "mixer.o_proj.weight"},
    {VT_ROLE_Q_BIAS, VT_NEED_NOT, NULL, "mixer.q_proj.bias"},
    {VT_ROLE_K_BIAS, VT_NEED_NOT, NULL, "mixer.k_proj.bias"},
    {VT_ROLE_V_BIAS, VT_NEED_NOT, NULL, "mixer.v_proj.bias"},
    {VT_ROLE_O_BIAS, VT_NEED_NOT, NULL, "mixer.o_proj.bias"},
    {VT_ROLE_UP, VT_NEED_ALWAYS, NULL, "mixer.up_proj.weight"},
    {VT_ROLE_DOWN, VT_NEED_ALWAYS, NULL, "mixer.down_proj.weight"},
    {VT_ROLE_ROUTER, VT_NEED_ALWAYS, NULL, "mixer.gate.weight"},
    {VT_ROLE_ROUTER_CHOICE, VT_NEED_ALWAYS, NULL, "mixer.gate.e_score_correction_bias"},
    {VT_ROLE_EXPERT_GATE, VT_NEED_BY_FAMILY, NULL, NULL}, /* there are no gates */
    {VT_ROLE_SHARED_UP, VT_NEED_ALWAYS, NULL, "mixer.shared_experts.up_proj.weight"},
    {VT_ROLE_SHARED_DOWN, VT_NEED_ALWAYS, NULL, "mixer.shared_experts.down_proj.weight"},
    {VT_ROLE_MAMBA_IN, VT_NEED_ALWAYS, NULL, "mixer.in_proj.weight"},
    {VT_ROLE_MAMBA_CONV, VT_NEED_ALWAYS, NULL, "mixer.conv1d.weight"},
    {VT_ROLE_MAMBA_CONV_BIAS, VT_NEED_ALWAYS, NULL, "mixer.conv1d.bias"},
    {VT_ROLE_MAMBA_DECAY, VT_NEED_ALWAYS, NULL, "mixer.A_log"},
    {VT_ROLE_MAMBA_SKIP, VT_NEED_ALWAYS, NULL, "mixer.D"},
    {VT_ROLE_MAMBA_DT, VT_NEED_ALWAYS, NULL, "mixer.dt_bias"},
    {VT_ROLE_MAMBA_NORM, VT_NEED_ALWAYS, NULL, "mixer.norm.weight"},
    {VT_ROLE_MAMBA_OUT, VT_NEED_ALWAYS, NULL, "mixer.out_proj.weight"},
};

/* Heads of multi-token prediction, which newer models have, are not run. */
static bool is_mtp(const vt_model *m, const char *tensor)
{
    (void)m;
    return strncmp(tensor, "mtp.", 4) == 0;
}

/* Gives a layer its one block. Returns false for an unknown letter. */
static bool set_kind(vt_model *m, int32_t layer, char kind)
{
    vt_layer *l = &m->layer[layer];
    l->mixer = kind == '*' ? VT_BLOCK_ATTENTION : VT_BLOCK_NONE;
    l->ffn = kind == '-' ? VT_BLOCK_MLP : kind == 'E' ? VT_BLOCK_EXPERTS : VT_BLOCK_NONE;
    l->state_bytes = 0;
    l->head.rope = -1;
    if (kind == 'M')
        model_keep_state(m, layer, VT_BLOCK_MAMBA);
    return kind && strchr("M*E-", kind);
}

/* Routers are of sigmoids, with a bias for the choice. One group is the same as none. */
static vt_status set_experts(vt_model *m, double scale)
{
    vt_arch *a = &m->arch;
    a->route_sigmoid = true;
    a->route_scale = (float)scale;
    if (a->expert_groups == 1)
        a->expert_groups = a->expert_groups_used = 0;
    return VT_OK;
}

/* ---- GGUF ---- */

static vt_status gguf_experts(gguf_reader *r)
{
    vt_arch *a = &r->m->arch;
    double scale = 1;
    int32_t latent = 0, mtp = 0;
    TRY(gguf_read_i32(r, "moe_latent_size", false, &latent));
    if (latent > 0)
        return vt_fail(r->err, VT_ERR_UNSUPPORTED,
                       "%s: %s is %d; experts of latents are not supported for %s", r->m->path,
                       r->key, latent, r->family->gguf);
    TRY(gguf_read_i32(r, "nextn_predict_layers", false, &mtp));
    if (mtp > 0)
        return vt_fail(r->err, VT_ERR_UNSUPPORTED, "%s: %s is %d; 0 is supported for %s",
                       r->m->path, r->key, mtp, r->family->gguf);
    TRY(gguf_read_i32(r, "expert_count", true, &a->n_experts));
    TRY(gguf_read_i32(r, "expert_used_count", true, &a->n_experts_used));
    TRY(gguf_read_i32(r, "expert_feed_forward_length", true, &a->expert_ffn));
    TRY(gguf_read_i32(r, "expert_shared_feed_forward_length", true, &a->shared_ffn));
    TRY(gguf_read_i32(r, "expert_group_count", false, &a->expert_groups));
    TRY(gguf_read_i32(r, "expert_group_used_count", false, &a->expert_groups_used));
    TRY(gguf_get_bool(r->file, gguf_reader_key(r, "expert_weights_norm"), false, &a->norm_topk,
                      r->err));
    TRY(gguf_read_factor(r, "expert_weights_scale", &scale));
    return set_experts(r->m, scale);
}

/* Lists of KV heads and of sizes of feed-forwards have 0 where a layer has none. */
static vt_status from_gguf(gguf_reader *r)
{
    static const char *const lists[] = {"attention.head_count_kv", "feed_forward_length"};
    r->m->arch.activation = VT_ACT_RELU2;
    for (int k = 0; k < 2; k++) {
        const gguf_value *v = gguf_find(r->file, gguf_reader_key(r, lists[k]));
        if (!v || !v->is_array)
            return vt_fail(r->err, VT_ERR_MODEL,
                           "%s: %s is not a list with a number for each of %d layers", r->m->path,
                           r->key, r->m->arch.n_layers);
    }
    TRY(gguf_read_state_space(r));
    if (r->family->experts_by_file)
        TRY(gguf_experts(r));
    for (int32_t i = 0; i < r->m->arch.n_layers; i++)
        set_kind(r->m, i,
                 gguf_layer_has(r, lists[1], i)   ? (r->m->arch.n_experts ? 'E' : '-')
                 : gguf_layer_has(r, lists[0], i) ? '*'
                                                  : 'M');
    return VT_OK;
}

/* ---- config.json ---- */

/* Returns the letter of layer i in a list of words, or in a text of letters; 0: there is none. */
static char kind_of(const json_t *words, const char *letters, size_t i)
{
    static const struct {
        const char *word;
        char letter;
    } all[] = {{"mamba", 'M'},     {"linear_attention", 'M'},
               {"attention", '*'}, {"full_attention", '*'},
               {"mlp", '-'},       {"moe", 'E'}};
    const char *word = json_string_value(json_array_get(words, i));
    if (letters)
        return letters[i];
    for (size_t k = 0; word && k < sizeof all / sizeof *all; k++)
        if (strcmp(word, all[k].word) == 0)
            return all[k].letter;
    return 0;
}

static vt_status read_kinds(hf_reader *c)
{
    size_t n = (size_t)c->m->arch.n_layers;
    const json_t *words = vt_read_member(c->root, "layers_block_type");
    const char *letters = NULL, *key = words ? "layers_block_type" : "hybrid_override_pattern";
    if (words)
        TRY(vt_check_list(c->path, key, words, c->err));
    else
        TRY(vt_read_str(c->path, c->root, key, true, &letters, c->err));
    size_t have = letters ? strlen(letters) : json_array_size(words);
    if (have != n)
        return vt_fail(c->err, VT_ERR_MODEL, "%s: \"%s\" has %zu entries; %zu layers need as many",
                       c->path, key, have, n);
    for (size_t i = 0; i < n; i++) {
        char kind = kind_of(words, letters, i), letter[] = {kind, 0};
        const char *word = letters ? letter : json_string_value(json_array_get(words, i));
        if (!set_kind(c->m, (int32_t)i, kind))
            return vt_fail(c->err, VT_ERR_UNSUPPORTED,
                           "%s: \"%s\" has %.20s for layer %zu (mamba, attention, moe and mlp "
                           "are supported, or M, *, E, -)",
                           c->path, key, word ? word : "(no text)", i);
    }
    return VT_OK;
}

static vt_status read_mamba(hf_reader *c)
{
    vt_arch *a = &c->m->arch;
    vt_mamba *s = &a->mamba;
    const char *activation = "silu";
    *s = (vt_mamba){.heads = 128, .groups = 8, .head_dim = 64, .state_dim = 128, .log_decay = true};
    a->conv_taps = 4;
    TRY(hf_read_i32(c, "mamba_num_heads", false, &s->heads));
    TRY(hf_read_i32(c, "mamba_head_dim", false, &s->head_dim));
    TRY(hf_read_i32(c, "n_groups", false, &s->groups));
    TRY(hf_read_i32(c, "ssm_state_size", false, &s->state_dim));
    TRY(hf_read_i32(c, "conv_kernel", false, &a->conv_taps));
    TRY(vt_read_str(c->path, c->root, "mamba_hidden_act", false, &activation, c->err));
    if (strcmp(activation, "silu") != 0)
        return vt_fail(c->err, VT_ERR_UNSUPPORTED,
                       "%s: \"mamba_hidden_act\" is %.40s (silu is supported)", c->path,
                       activation);
    TRY(hf_refuse_state_space_biases(c, "use_conv_bias", "mamba_proj_bias"));
    TRY(hf_refuse_flag(c, "use_bias"));
    return hf_refuse_step_limit(c);
}

static vt_status read_experts(hf_reader *c)
{
    vt_arch *a = &c->m->arch;
    int32_t shared = 1;
    double scale = 1;
    a->norm_topk = true;
    a->expert_groups_used = 1;
    TRY(hf_refuse_f64(c, "moe_latent_size"));
    TRY(hf_read_i32(c, "n_shared_experts", false, &shared));
    if (shared != 1)
        return vt_fail(c->err, VT_ERR_UNSUPPORTED,
                       "%s: \"n_shared_experts\" is %d (1 is supported for %s)", c->path, shared,
                       c->family->hf);
    TRY(hf_read_i32(c, "n_routed_experts", true, &a->n_experts));
    TRY(hf_read_i32(c, "num_experts_per_tok", true, &a->n_experts_used));
    TRY(hf_read_i32(c, "moe_intermediate_size", true, &a->expert_ffn));
    TRY(hf_read_i32(c, "moe_shared_expert_intermediate_size", true, &a->shared_ffn));
    TRY(hf_read_i32(c, "n_group", false, &a->expert_groups));
    TRY(hf_read_i32(c, "topk_group", false, &a->expert_groups_used));
    TRY(hf_read_bool(c, "norm_topk_prob", &a->norm_topk));
    TRY(hf_read_factor(c, "routed_scaling_factor", &scale));
    return set_experts(c->m, scale);
}

static vt_status from_config(hf_reader *c)
{
    vt_arch *a = &c->m->arch;
    const char *activation = "relu2";
    TRY(vt_read_str(c->path, c->root, "mlp_hidden_act", false, &activation, c->err));
    if (strcmp(activation, "relu2") != 0)
        return vt_fail(c->err, VT_ERR_UNSUPPORTED,
                       "%s: \"mlp_hidden_act\" is %.40s (relu2 is supported)", c->path, activation);
    a->activation = VT_ACT_RELU2;
    if (!vt_read_member(c->root, "head_dim")) /* older files */
        TRY(hf_read_i32(c, "attention_head_dim", false, &a->head_dim));
    a->attn_scale = 1 / __builtin_sqrtf((float)a->head_dim);
    for (int32_t i = 0; i < a->n_layers; i++)
        c->m->layer[i].head.dim = a->head_dim;
    c->extra->qkv_bias = c->extra->o_bias = false; /* whatever attention_bias says */
    TRY(hf_refuse_f64(c, "sliding_window"));
    TRY(hf_refuse_flag(c, "mlp_bias"));
    TRY(read_mamba(c));
    TRY(read_kinds(c));
    for (int32_t i = 0; i < a->n_layers; i++)
        if (c->m->layer[i].ffn == VT_BLOCK_EXPERTS)
            return read_experts(c);
    return VT_OK;
}

/* ---- published shapes ---- */

static vt_status from_shape(vt_model *m, const vt_family_shape *s, vt_err *err)
{
    (void)err;
    m->arch.activation = VT_ACT_RELU2;
    for (int32_t i = 0; i < s->n_layers; i++)
        set_kind(m, i, s->kinds[i]);
    return VT_OK;
}

/* From the models' published config.json. */
static const vt_family_shape shapes[] = {
    {.name = "nemotron-h-8b",
     .n_layers = 52,
     .hidden = 4096,
     .n_heads = 32,
     .n_kv_heads = 8,
     .head_dim = 128,
     .ffn = 21504,
     .vocab = 131072,
     .max_context = 8192,
     .eps = 1e-5f,
     .conv_taps = 4,
     .mamba = {128, 8, 64, 128, .log_decay = true},
     .kinds = "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-"},
    {.name = "nemotron-nano-9b-v2",
     .n_layers = 56,
     .hidden = 4480,
     .n_heads = 40,
     .n_kv_heads = 8,
     .head_dim = 128,
     .ffn = 15680,
     .vocab = 131072,
     .max_context = 131072,
     .eps = 1e-5f,
     .conv_taps = 4,
     .mamba = {128, 8, 80, 128, .log_decay = true},
     .kinds = "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-"},
    {.name = "nemotron-3-nano-30b-a3b",
     .n_layers = 52,
     .hidden = 2688,
     .n_heads = 32,
     .n_kv_heads = 2,
     .head_dim = 128,
     .ffn = 1856,
     .vocab = 131072,
     .max_context = 262144,
     .eps = 1e-5f,
     .conv_taps = 4,
     .mamba = {64, 8, 64, 128, .log_decay = true},
     .n_experts = 128,
     .n_experts_used = 6,
     .expert_ffn = 1856,
     .shared_ffn = 3712,
     .route_sigmoid = true,
     .route_scale = 2.5f,
     .kinds = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"},
    {.name = NULL},
};

/* The family of GGUF files with experts; folders of both kinds are the other's. */
const vt_family vt_family_nemotron_h_moe = {.name = "nemotron_h_moe",
                                            .gguf = "nemotron_h_moe",
                                            .roles = roles,
                                            .n_roles = sizeof roles / sizeof *roles,
                                            .mlp = true,
                                            .no_rope = true,
                                            .experts_by_file = true,
                                            .gguf_zeros = true,
                                            .from_gguf = from_gguf};

const vt_family vt_family_nemotron_h = {.name = "nemotron_h",
                                        .gguf = "nemotron_h",
                                        .hf = "nemotron_h",
                                        .roles = roles,
                                        .n_roles = sizeof roles / sizeof *roles,
                                        .shapes = shapes,
                                        .mlp = true,
                                        .no_rope = true,
                                        .head_dim = 128,
                                        .hf_eps = "layer_norm_epsilon",
                                        .hf_layer = "backbone.layers.",
                                        .hf_layer_list = "layers_block_type",
                                        .hf_experts = "mixer.experts",
                                        .hf_projection = {"gate_proj", "up_proj", "down_proj"},
                                        .gguf_zeros = true,
                                        .n_kv_heads = 8,
                                        .skips = is_mtp,
                                        .skipped = "multi-token prediction",
                                        .from_gguf = from_gguf,
                                        .from_config = from_config,
                                        .from_shape = from_shape};
