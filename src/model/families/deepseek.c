/* DeepSeek-V2 (Lite), V3, R1 and V3.1, and Kimi K2, which is V3 with other numbers: attention to
 * latents, and experts as in GLM-4.5. V2's router is a softmax whose weights are not rescaled; V3's
 * has sigmoids, groups and a bias for the choice.
 *
 * GGUF files have one architecture, deepseek2, for all of these and for GLM-4.7-Flash. */
#include "model/families/deepseek.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "files/json.h"
#include "model/assemble.h"
#include "model/families/glm4_moe.h"
#include "model/latent.h"

const vt_family_role deepseek_roles[DEEPSEEK_ROLES] = {
    {VT_ROLE_SHARED_GATE, VT_NEED_ALWAYS, NULL, "mlp.shared_experts.gate_proj.weight"},
    {VT_ROLE_SHARED_UP, VT_NEED_ALWAYS, NULL, "mlp.shared_experts.up_proj.weight"},
    {VT_ROLE_SHARED_DOWN, VT_NEED_ALWAYS, NULL, "mlp.shared_experts.down_proj.weight"},
    {VT_ROLE_ROUTER_CHOICE, VT_NEED_ALWAYS, NULL, NULL},
};

/* Of a GGUF file: whether there is a bias for the choice depends on the model. */
static const vt_family_role gguf_roles[] = {
    {VT_ROLE_SHARED_GATE, VT_NEED_ALWAYS, NULL, NULL},
    {VT_ROLE_SHARED_UP, VT_NEED_ALWAYS, NULL, NULL},
    {VT_ROLE_SHARED_DOWN, VT_NEED_ALWAYS, NULL, NULL},
    {VT_ROLE_ROUTER_CHOICE, VT_NEED_NOT, NULL, NULL},
};

/* From the models' published config.json, without what stretches their contexts. */
static const vt_family_shape v2_shapes[] = {
    {.name = "deepseek-v2-lite",
     .n_layers = 27,
     .hidden = 2048,
     .n_heads = 16,
     .n_kv_heads = 1,
     .head_dim = 192,
     .ffn = 10944,
     .vocab = 102400,
     .max_context = 32768,
     .rope_base = 1e4,
     .eps = 1e-6f,
     .n_experts = 64,
     .n_experts_used = 6,
     .expert_ffn = 1408,
     .shared_ffn = 2816,
     .first_dense = 1,
     .route_scale = 1,
     .mla = {.kv_rank = 512, .nope = 128, .rope = 64, .v = 128}},
    {.name = NULL},
};

static const vt_family_shape v3_shapes[] = {
    {.name = "deepseek-v3",
     .n_layers = 61,
     .hidden = 7168,
     .n_heads = 128,
     .n_kv_heads = 1,
     .head_dim = 192,
     .ffn = 18432,
     .vocab = 129280,
     .max_context = 32768,
     .rope_base = 1e4,
     .eps = 1e-6f,
     .n_experts = 256,
     .n_experts_used = 8,
     .expert_ffn = 2048,
     .shared_ffn = 2048,
     .first_dense = 3,
     .route_sigmoid = true,
     .route_scale = 2.5f,
     .mla = {.q_rank = 1536, .kv_rank = 512, .nope = 128, .rope = 64, .v = 128}},
    {.name = NULL},
};

static const vt_family_shape k2_shapes[] = {
    {.name = "kimi-k2",
     .n_layers = 61,
     .hidden = 7168,
     .n_heads = 64,
     .n_kv_heads = 1,
     .head_dim = 192,
     .ffn = 18432,
     .vocab = 163840,
     .max_context = 32768,
     .rope_base = 5e4,
     .eps = 1e-6f,
     .n_experts = 384,
     .n_experts_used = 8,
     .expert_ffn = 2048,
     .shared_ffn = 2048,
     .first_dense = 1,
     .route_sigmoid = true,
     .route_scale = 2.827f,
     .mla = {.q_rank = 1536, .kv_rank = 512, .nope = 128, .rope = 64, .v = 128}},
    {.name = NULL},
};

static double mscale(double factor, double k)
{
    return factor <= 1 ? 1 : 0.1 * k * log(factor) + 1;
}

/* Refuses a key whose value is another word than the one that is computed here. */
static vt_status want_word(hf_reader *c, const char *key, const char *word)
{
    const char *value = word;
    TRY(vt_read_str(c->path, c->root, key, false, &value, c->err));
    if (strcmp(value, word) != 0)
        return vt_fail(c->err, VT_ERR_UNSUPPORTED, "%s: \"%s\" is %.40s; %s is supported for %s",
                       c->path, key, value, word, c->family->hf);
    return VT_OK;
}

vt_status deepseek_read_latents(hf_reader *c)
{
    vt_arch *a = &c->m->arch;
    const json_t *rope = hf_rope_object(c);
    bool bias = false;
    double all = 0, partial = 1, whole = 1;
    TRY(hf_read_i32(c, "q_lora_rank", false, &a->mla.q_rank));
    TRY(hf_read_i32(c, "kv_lora_rank", true, &a->mla.kv_rank));
    TRY(hf_read_i32(c, "qk_nope_head_dim", true, &a->mla.nope));
    TRY(hf_read_i32(c, "qk_rope_head_dim", true, &a->mla.rope));
    TRY(hf_read_i32(c, "v_head_dim", true, &a->mla.v));
    TRY(hf_read_bool(c, "attention_bias", &bias));
    if (bias)
        return vt_fail(c->err, VT_ERR_UNSUPPORTED,
                       "%s: \"attention_bias\" is true; false is supported for %s", c->path,
                       c->family->hf);
    TRY(hf_read_bool(c, "rope_interleave", &a->rope[0].interleaved));
    TRY(model_attend_latents(c->m, c->err));
    if (c->family->rope_partial > 0) /* of the head, not of its part with rope */
        partial = whole = (double)a->mla.rope / (a->mla.nope + a->mla.rope);
    TRY(vt_read_f64(c->path, rope, "partial_rotary_factor", false, &partial, c->err));
    if (partial != whole)
        return vt_fail(c->err, VT_ERR_UNSUPPORTED,
                       "%s: \"partial_rotary_factor\" %g is not supported for %s", c->path, partial,
                       c->family->hf);
    TRY(vt_read_f64(c->path, rope, "mscale_all_dim", false, &all, c->err));
    if (all != 0 && a->rope[0].scaling == VT_ROPE_YARN) {
        double m = mscale(a->rope[0].factor, all);
        TRY(model_check_factor(c->path, "the factor of \"mscale_all_dim\"", m, c->err));
        a->attn_scale *= (float)(m * m);
    }
    return VT_OK;
}

/* "q_lora_rank" may be null, and every layer behind the first ones has experts. */
static vt_status read_common(hf_reader *c, glm4_moe_defaults d)
{
    int32_t every = 1;
    TRY(hf_read_i32(c, "moe_layer_freq", false, &every));
    if (every != 1)
        return vt_fail(c->err, VT_ERR_UNSUPPORTED,
                       "%s: \"moe_layer_freq\" is %d; 1 is supported for %s", c->path, every,
                       c->family->hf);
    TRY(deepseek_read_latents(c));
    return glm4_moe_read_config(c, d);
}

static vt_status v2_from_config(hf_reader *c)
{
    TRY(want_word(c, "topk_method", "greedy"));
    TRY(want_word(c, "scoring_func", "softmax"));
    TRY(read_common(c, (glm4_moe_defaults){.shared = 2, .scale = 1}));
    bool rescaled = false;
    TRY(hf_read_bool(c, "norm_topk_prob", &rescaled));
    if (rescaled)
        return vt_fail(c->err, VT_ERR_UNSUPPORTED,
                       "%s: \"norm_topk_prob\" is true; false is supported for %s", c->path,
                       c->family->hf);
    c->m->arch.norm_topk = false;
    c->m->arch.expert_groups = c->m->arch.expert_groups_used = 0; /* greedy: of all experts */
    return VT_OK;
}

static vt_status v3_from_config(hf_reader *c)
{
    TRY(want_word(c, "topk_method", "noaux_tc"));
    TRY(want_word(c, "scoring_func", "sigmoid"));
    c->m->arch.route_sigmoid = true;
    return read_common(
        c,
        (glm4_moe_defaults){.dense = 3, .shared = 1, .groups = 8, .groups_used = 4, .scale = 2.5});
}

/* Returns true if the last layer has a bias for the choice of experts. A file that names no gating
 * function then means sigmoids. */
static bool has_choice(gguf_reader *r)
{
    char name[64];
    snprintf(name, sizeof name, "blk.%d.exp_probs_b.bias", r->m->arch.n_layers - 1);
    return gguf_tensor(r->file, name) != NULL;
}

static vt_status read_gating(gguf_reader *r)
{
    vt_arch *a = &r->m->arch;
    int32_t gating = has_choice(r) ? 2 : 1;
    TRY(gguf_read_i32(r, "expert_gating_func", false, &gating));
    if (gating != 1 && gating != 2)
        return vt_fail(r->err, VT_ERR_UNSUPPORTED,
                       "%s: %s is %d; 1, a softmax, and 2, sigmoids, are supported for %s",
                       r->m->path, r->key, gating, r->family->gguf);
    a->route_sigmoid = gating == 2;
    if (!a->route_sigmoid && a->expert_groups > 0)
        return vt_fail(r->err, VT_ERR_UNSUPPORTED,
                       "%s: %s.expert_group_count is %d; with a softmax, groups of experts are not "
                       "supported",
                       r->m->path, r->family->gguf, a->expert_groups);
    if (a->route_sigmoid != has_choice(r))
        return vt_fail(r->err, VT_ERR_MODEL,
                       "%s: %s is %d, and the last layer has %s bias for the choice of experts",
                       r->m->path, r->key, gating, has_choice(r) ? "a" : "no");
    return VT_OK;
}

/* The file gives the size of a head with and without rope together. YaRN's factor of scores is
 * there as a multiple of a logarithm, and rope's amplitude is 1. */
vt_status deepseek_read_gguf(gguf_reader *r)
{
    vt_arch *a = &r->m->arch;
    vt_rope_params *p = &a->rope[0];
    double multiple = 0;
    int32_t head = 0;
    TRY(gguf_read_i32(r, "attention.key_length_mla", true, &head));
    TRY(gguf_read_i32(r, "attention.value_length_mla", true, &a->mla.v));
    TRY(gguf_read_i32(r, "attention.kv_lora_rank", true, &a->mla.kv_rank));
    TRY(gguf_read_i32(r, "attention.q_lora_rank", false, &a->mla.q_rank));
    TRY(gguf_read_i32(r, "rope.dimension_count", true, &a->mla.rope));
    a->mla.nope = head - a->mla.rope;
    TRY(glm4_moe_read_gguf(r));
    TRY(read_gating(r));
    TRY(model_attend_latents(r->m, r->err));
    if (p->scaling != VT_ROPE_YARN)
        return VT_OK;
    p->attn_factor = 1;
    TRY(gguf_read_f64(r, "rope.scaling.yarn_log_multiplier", false, &multiple));
    double m = mscale(p->factor, 10 * multiple);
    TRY(model_check_factor(r->m->path, r->key, m, r->err));
    a->attn_scale *= (float)(m * m);
    return VT_OK;
}

const vt_family vt_family_deepseek2 = {DEEPSEEK_FAMILY,
                                       .name = "deepseek2",
                                       .gguf = "deepseek2",
                                       .roles = gguf_roles,
                                       .n_roles = sizeof gguf_roles / sizeof *gguf_roles,
                                       .from_gguf = deepseek_read_gguf};

const vt_family vt_family_deepseek_v2 = {DEEPSEEK_FAMILY,
                                         .name = "deepseek_v2",
                                         .hf = "deepseek_v2",
                                         .roles = deepseek_roles,
                                         .n_roles = DEEPSEEK_ROLES - 1,
                                         .shapes = v2_shapes,
                                         .from_config = v2_from_config};

const vt_family vt_family_deepseek_v3 = {DEEPSEEK_FAMILY,
                                         .name = "deepseek_v3",
                                         .hf = "deepseek_v3",
                                         .roles = deepseek_roles,
                                         .n_roles = DEEPSEEK_ROLES,
                                         .shapes = v3_shapes,
                                         .from_config = v3_from_config};

const vt_family vt_family_kimi_k2 = {DEEPSEEK_FAMILY,
                                     .name = "kimi_k2",
                                     .hf = "kimi_k2",
                                     .roles = deepseek_roles,
                                     .n_roles = DEEPSEEK_ROLES,
                                     .shapes = k2_shapes,
                                     .from_config = v3_from_config};
