/* Llama, and the many models of its form (SmolLM2, Mistral in GGUF files). */
#include "model/family.h"

/* From the models' published config.json. */
#define LLAMA3 .vocab = 128256, .max_context = 131072, .rope_base = 5e5, .eps = 1e-5f
static const vt_family_shape shapes[] = {
    {.name = "smollm2-135m",
     .n_layers = 30,
     .hidden = 576,
     .n_heads = 9,
     .n_kv_heads = 3,
     .head_dim = 64,
     .ffn = 1536,
     .vocab = 49152,
     .max_context = 8192,
     .rope_base = 1e5,
     .eps = 1e-5f,
     .tied = true},
    {LLAMA3, .name = "llama-3.2-1b", .n_layers = 16, .hidden = 2048, .n_heads = 32, .n_kv_heads = 8,
     .head_dim = 64, .ffn = 8192, .llama3_factor = 32, .tied = true},
    {LLAMA3, .name = "llama-3.1-8b", .n_layers = 32, .hidden = 4096, .n_heads = 32, .n_kv_heads = 8,
     .head_dim = 128, .ffn = 14336, .llama3_factor = 8},
    {.name = NULL},
};

const vt_family vt_family_llama = {.name = "llama",
                                   .gguf = "llama",
                                   .hf = "llama",
                                   .shapes = shapes,
                                   .rope_interleaved = true,
                                   .kv_heads_optional = true};
