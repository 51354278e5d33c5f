/* The dense and the expert models of LFM2 have this in common. */
#ifndef VT_MODEL_FAMILIES_LFM2_H
#define VT_MODEL_FAMILIES_LFM2_H

#include "model/family.h"

/* Read the taps of convolutions, and which layers have them. */
vt_status lfm2_from_gguf(gguf_reader *r);
vt_status lfm2_from_config(hf_reader *c);

#define LFM2_ROLES                                                              \
    {VT_ROLE_ATTN_NORM, VT_NEED_ALWAYS, NULL, "operator_norm.weight"},          \
        {VT_ROLE_FFN_NORM, VT_NEED_ALWAYS, NULL, "ffn_norm.weight"},            \
        {VT_ROLE_O, VT_NEED_ALWAYS, NULL, "self_attn.out_proj.weight"},         \
        {VT_ROLE_Q_NORM, VT_NEED_ALWAYS, NULL, "self_attn.q_layernorm.weight"}, \
        {VT_ROLE_K_NORM, VT_NEED_ALWAYS, NULL, "self_attn.k_layernorm.weight"}, \
        {VT_ROLE_GATE, VT_NEED_ALWAYS, NULL, "feed_forward.w1.weight"},         \
        {VT_ROLE_UP, VT_NEED_ALWAYS, NULL, "feed_forward.w3.weight"},           \
        {VT_ROLE_DOWN, VT_NEED_ALWAYS, NULL, "feed_forward.w2.weight"},         \
    {                                                                           \
        VT_ROLE_FINAL_NORM, VT_NEED_ALWAYS, "token_embd_norm.weight",           \
            "model.embedding_norm.weight"                                       \
    }

/* Of all published shapes, but for sizes. */
#define LFM2                                                                                  \
    .n_kv_heads = 8, .head_dim = 64, .vocab = 65536, .max_context = 128000, .rope_base = 1e6, \
    .eps = 1e-5f, .tied = true, .conv_taps = 3

#endif
