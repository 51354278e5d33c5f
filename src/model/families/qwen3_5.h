/* The dense and the expert models of Qwen3.5, and Qwen3-Next, have this in common. */
#ifndef VT_MODEL_FAMILIES_QWEN3_5_H
#define VT_MODEL_FAMILIES_QWEN3_5_H

#include "model/family.h"

vt_status qwen3_5_from_gguf(gguf_reader *r);
vt_status qwen3_5_from_config(hf_reader *c);
bool qwen3_5_skips(const vt_model *m, const char *tensor);

#define QWEN3_5_SKIPPED "heads that predict further tokens (MTP), and the vision encoder"
#define QWEN3_5_ROLES                                                        \
    {VT_ROLE_Q, VT_NEED_ALWAYS, .dim = {VT_DIM_Q_GATED, VT_DIM_HIDDEN}},     \
        {VT_ROLE_Q_BIAS, VT_NEED_NOT, .dim = {VT_DIM_Q_GATED}},              \
        {VT_ROLE_Q_NORM, VT_NEED_ALWAYS, NULL, NULL},                        \
        {VT_ROLE_K_NORM, VT_NEED_ALWAYS, NULL, NULL},                        \
    {                                                                        \
        VT_ROLE_FFN_NORM, VT_NEED_ALWAYS, "post_attention_norm.weight", NULL \
    }

/* Of all published shapes, but for sizes. */
#define QWEN3_5                                                                              \
    .head_dim = 256, .vocab = 248320, .max_context = 262144, .rope_base = 1e7, .eps = 1e-6f, \
    .rope_dims = 64, .conv_taps = 4, .attends_every = 4, .out_gate = true

#endif
