/* Qwen3: norms of q and k, a head at a time. Qwen3-VL's text model is the same: its positions have
 * three parts ("mrope_section"), which are equal where there are no images. */
#include "model/family.h"

static const vt_family_role roles[] = {
    {VT_ROLE_Q_NORM, VT_NEED_ALWAYS, NULL, NULL},
    {VT_ROLE_K_NORM, VT_NEED_ALWAYS, NULL, NULL},
};

/* From the models' published config.json. */
#define QWEN3 .head_dim = 128, .vocab = 151936, .max_context = 40960, .rope_base = 1e6, .eps = 1e-6f
static const vt_family_shape shapes[] = {
    {QWEN3, .name = "qwen3-0.6b", .n_layers = 28, .hidden = 1024, .n_heads = 16, .n_kv_heads = 8,
     .ffn = 3072, .tied = true},
    {QWEN3, .name = "qwen3-1.7b", .n_layers = 28, .hidden = 2048, .n_heads = 16, .n_kv_heads = 8,
     .ffn = 6144, .tied = true},
    {QWEN3, .name = "qwen3-4b", .n_layers = 36, .hidden = 2560, .n_heads = 32, .n_kv_heads = 8,
     .ffn = 9728, .tied = true},
    {QWEN3, .name = "qwen3-8b", .n_layers = 36, .hidden = 4096, .n_heads = 32, .n_kv_heads = 8,
     .ffn = 12288},
    {QWEN3, .name = "qwen3-14b", .n_layers = 40, .hidden = 5120, .n_heads = 40, .n_kv_heads = 8,
     .ffn = 17408},
    {QWEN3, .name = "qwen3-32b", .n_layers = 64, .hidden = 5120, .n_heads = 64, .n_kv_heads = 8,
     .ffn = 25600},
    {.name = NULL},
};

const vt_family vt_family_qwen3 = {.name = "qwen3",
                                   .gguf = "qwen3",
                                   .hf = "qwen3",
                                   .roles = roles,
                                   .n_roles = sizeof roles / sizeof *roles,
                                   .shapes = shapes,
                                   .window = 4096,
                                   .head_dim = 128};

static const vt_family_shape vl_shapes[] = {
    {.name = "qwen3-vl-8b",
     .n_layers = 36,
     .hidden = 4096,
     .n_heads = 32,
     .n_kv_heads = 8,
     .head_dim = 128,
     .ffn = 12288,
     .vocab = 151936,
     .max_context = 262144,
     .rope_base = 5e6,
     .eps = 1e-6f},
    {.name = NULL},
};

const vt_family vt_family_qwen3_vl = {.name = "qwen3_vl",
                                      .gguf = "qwen3vl",
                                      .hf = "qwen3_vl_text",
                                      .hf_outer = "qwen3_vl",
                                      .roles = roles,
                                      .n_roles = sizeof roles / sizeof *roles,
                                      .shapes = vl_shapes,
                                      .head_dim = 128,
                                      .rope_base = 5e5};
