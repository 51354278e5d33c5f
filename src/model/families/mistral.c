/* Mistral: Llama with a window. GGUF files call it llama. */
#include "model/family.h"

/* From the models' published config.json; these have no window. */
static const vt_family_shape shapes[] = {
    {.name = "mistral-7b-v0.3",
     .n_layers = 32,
     .hidden = 4096,
     .n_heads = 32,
     .n_kv_heads = 8,
     .head_dim = 128,
     .ffn = 14336,
     .vocab = 32768,
     .max_context = 32768,
     .rope_base = 1e6,
     .eps = 1e-5f},
    {.name = "mistral-small-24b",
     .n_layers = 40,
     .hidden = 5120,
     .n_heads = 32,
     .n_kv_heads = 8,
     .head_dim = 128,
     .ffn = 32768,
     .vocab = 131072,
     .max_context = 32768,
     .rope_base = 1e8,
     .eps = 1e-5f},
    {.name = NULL},
};

const vt_family vt_family_mistral = {.name = "mistral",
                                     .hf = "mistral",
                                     .shapes = shapes,
                                     .window_used = true,
                                     .window = 4096,
                                     .window_all = true};
