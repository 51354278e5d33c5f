/* GLM-4 (0414, Z1), dense: norms before and after each block, biases of q, k and v, gate and up in
 * one matrix, and a rope that turns neighbouring pairs of half of each head. */
#include "model/family.h"

static const vt_family_role roles[] = {
    {VT_ROLE_POST_ATTN_NORM, VT_NEED_ALWAYS, NULL, "post_self_attn_layernorm.weight"},
    {VT_ROLE_POST_FFN_NORM, VT_NEED_ALWAYS, NULL, "post_mlp_layernorm.weight"},
};

static const vt_family_stack stacks[] = {
    {"ffn_up.weight", "mlp.gate_up_proj.weight", VT_ROLE_GATE, 2},
};

/* From the model's published config.json. */
static const vt_family_shape shapes[] = {
    {.name = "glm-4-9b",
     .n_layers = 40,
     .hidden = 4096,
     .n_heads = 32,
     .n_kv_heads = 2,
     .head_dim = 128,
     .ffn = 13696,
     .vocab = 151552,
     .max_context = 32768,
     .rope_base = 10000,
     .eps = 1e-5f},
    {.name = NULL},
};

/* The output's projection has no bias, whatever attention_bias says. */
static vt_status from_config(hf_reader *c)
{
    double eps = 1.5625e-7;
    TRY(hf_read_f64(c, "rms_norm_eps", false, &eps));
    c->m->arch.norm_eps = (float)eps;
    c->extra->qkv_bias = true;
    TRY(hf_read_bool(c, "attention_bias", &c->extra->qkv_bias));
    c->extra->o_bias = false;
    return VT_OK;
}

const vt_family vt_family_glm4 = {.name = "glm4",
                                  .gguf = "glm4",
                                  .hf = "glm4",
                                  .roles = roles,
                                  .n_roles = sizeof roles / sizeof *roles,
                                  .stacks = stacks,
                                  .n_stacks = sizeof stacks / sizeof *stacks,
                                  .shapes = shapes,
                                  .norms = VT_NORM_BEFORE | VT_NORM_AFTER,
                                  .rope_interleaved = true,
                                  .hf_rope_interleaved = true,
                                  .head_dim = 128,
                                  .rope_partial = 0.5,
                                  .from_config = from_config};
