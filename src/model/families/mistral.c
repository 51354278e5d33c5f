/* Mistral: Llama with a window. GGUF files call it llama. */
#include "model/family.h"

const vt_family vt_family_mistral = {
    .name = "mistral", .hf = "mistral", .window_used = true, .window_all = true};
