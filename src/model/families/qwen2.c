/* Qwen2 and Qwen2.5: biases of q, k and v. */
#include "model/family.h"

const vt_family vt_family_qwen2 = {
    .name = "qwen2", .gguf = "qwen2", .hf = "qwen2", .qkv_bias = true};
