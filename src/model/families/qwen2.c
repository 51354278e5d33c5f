/* Qwen2 and Qwen2.5: biases of q, k and v. */
#include "model/family.h"

static const vt_family_role roles[] = {
    {VT_ROLE_Q_BIAS, VT_NEED_ALWAYS, NULL, NULL},
    {VT_ROLE_K_BIAS, VT_NEED_ALWAYS, NULL, NULL},
    {VT_ROLE_V_BIAS, VT_NEED_ALWAYS, NULL, NULL},
};

/* The biases are there whatever "attention_bias" says, and the output's projection has none. */
static vt_status from_config(hf_reader *c)
{
    c->extra->o_bias = false;
    return VT_OK;
}

/* From the models' published config.json. */
static const vt_family_shape shapes[] = {
    {.name = "qwen2.5-0.5b",
     .n_layers = 24,
     .hidden = 896,
     .n_heads = 14,
     .n_kv_heads = 2,
     .head_dim = 64,
     .ffn = 4864,
     .vocab = 151936,
     .max_context = 32768,
     .rope_base = 1e6,
     .eps = 1e-6f,
     .tied = true},
    {.name = "qwen2.5-7b",
     .n_layers = 28,
     .hidden = 3584,
     .n_heads = 28,
     .n_kv_heads = 4,
     .head_dim = 128,
     .ffn = 18944,
     .vocab = 152064,
     .max_context = 32768,
     .rope_base = 1e6,
     .eps = 1e-6f},
    {.name = NULL},
};

const vt_family vt_family_qwen2 = {.name = "qwen2",
                                   .gguf = "qwen2",
                                   .hf = "qwen2",
                                   .roles = roles,
                                   .n_roles = sizeof roles / sizeof *roles,
                                   .shapes = shapes,
                                   .window = 4096,
                                   .from_config = from_config};
