/* The table of roles (model/role.h). */
#include "model/role.h"

#include <stddef.h>

/* clang-format off */
#define HIDDEN VT_DIM_HIDDEN
#define ATTENTION VT_BLOCK_ATTENTION
#define DENSE VT_BLOCK_FFN
#define EXPERTS VT_BLOCK_EXPERTS
#define CONV VT_BLOCK_CONV
#define MATRIX VT_KIND_MATRIX
#define VECTOR VT_KIND_VECTOR
#define MAY .need = VT_NEED_NOT
#define KV .kv = true
#define FAMILY .need = VT_NEED_BY_FAMILY

const vt_role_row vt_roles[VT_ROLES] = {
    [VT_ROLE_EMBED] = {"embed", VT_KIND_EMBED, "token_embd.weight", "model.embed_tokens.weight",
        {VT_DIM_VOCAB, HIDDEN}},
    [VT_ROLE_ATTN_NORM] = {"attn_norm", VECTOR, "attn_norm.weight", "input_layernorm.weight",
        {HIDDEN}, .norm = VT_NORM_BEFORE},
    [VT_ROLE_Q] = {"q", MATRIX, "attn_q.weight", "self_attn.q_proj.weight",
        {VT_DIM_Q, HIDDEN}, ATTENTION},
    [VT_ROLE_K] = {"k", MATRIX, "attn_k.weight", "self_attn.k_proj.weight",
        {VT_DIM_KV, HIDDEN}, ATTENTION, KV},
    [VT_ROLE_V] = {"v", MATRIX, "attn_v.weight", "self_attn.v_proj.weight",
        {VT_DIM_KV, HIDDEN}, ATTENTION, KV},
    [VT_ROLE_O] = {"o", MATRIX, "attn_output.weight", "self_attn.o_proj.weight",
        {HIDDEN, VT_DIM_Q}, ATTENTION},
    [VT_ROLE_Q_BIAS] = {"q_bias", VECTOR, "attn_q.bias", "self_attn.q_proj.bias",
        {VT_DIM_Q}, ATTENTION, MAY},
    [VT_ROLE_K_BIAS] = {"k_bias", VECTOR, "attn_k.bias", "self_attn.k_proj.bias",
        {VT_DIM_KV}, ATTENTION, MAY, KV},
    [VT_ROLE_V_BIAS] = {"v_bias", VECTOR, "attn_v.bias", "self_attn.v_proj.bias",
        {VT_DIM_KV}, ATTENTION, MAY, KV},
    [VT_ROLE_O_BIAS] = {"o_bias", VECTOR, "attn_output.bias", "self_attn.o_proj.bias",
        {HIDDEN}, ATTENTION, MAY},
    [VT_ROLE_Q_NORM] = {"q_norm", VECTOR, "attn_q_norm.weight", "self_attn.q_norm.weight",
        {VT_DIM_HEAD}, ATTENTION, FAMILY},
    [VT_ROLE_K_NORM] = {"k_norm", VECTOR, "attn_k_norm.weight", "self_attn.k_norm.weight",
        {VT_DIM_HEAD}, ATTENTION, FAMILY, KV},
    [VT_ROLE_CONV_IN] = {"conv_in", MATRIX, "shortconv.in_proj.weight", "conv.in_proj.weight",
        {VT_DIM_CONV_IN, HIDDEN}, CONV},
    [VT_ROLE_CONV_TAPS] = {"conv", VT_KIND_ROUTER, "shortconv.conv.weight", "conv.conv.weight",
        {HIDDEN, VT_DIM_TAPS}, CONV},
    [VT_ROLE_CONV_OUT] = {"conv_out", MATRIX, "shortconv.out_proj.weight", "conv.out_proj.weight",
        {HIDDEN, HIDDEN}, CONV},
    [VT_ROLE_POST_ATTN_NORM] = {"post_attn_norm", VECTOR, "post_attention_norm.weight",
        "post_attention_layernorm.weight", {HIDDEN}, .norm = VT_NORM_AFTER},
    [VT_ROLE_FFN_NORM] = {"ffn_norm", VECTOR, "ffn_norm.weight", "post_attention_layernorm.weight",
        {HIDDEN}, .norm = VT_NORM_BEFORE},
    [VT_ROLE_GATE] = {"gate", MATRIX, "ffn_gate.weight", "mlp.gate_proj.weight",
        {VT_DIM_FFN, HIDDEN}, DENSE},
    [VT_ROLE_UP] = {"up", MATRIX, "ffn_up.weight", "mlp.up_proj.weight",
        {VT_DIM_FFN, HIDDEN}, DENSE},
    [VT_ROLE_DOWN] = {"down", MATRIX, "ffn_down.weight", "mlp.down_proj.weight",
        {HIDDEN, VT_DIM_FFN}, DENSE},
    [VT_ROLE_GATE_BIAS] = {"gate_bias", VECTOR, "ffn_gate.bias", "mlp.gate_proj.bias",
        {VT_DIM_FFN}, DENSE, MAY},
    [VT_ROLE_UP_BIAS] = {"up_bias", VECTOR, "ffn_up.bias", "mlp.up_proj.bias",
        {VT_DIM_FFN}, DENSE, MAY},
    [VT_ROLE_DOWN_BIAS] = {"down_bias", VECTOR, "ffn_down.bias", "mlp.down_proj.bias",
        {HIDDEN}, DENSE, MAY},
    [VT_ROLE_POST_FFN_NORM] = {"post_ffn_norm", VECTOR, "post_ffw_norm.weight",
        "post_feedforward_layernorm.weight", {HIDDEN}, .norm = VT_NORM_AFTER},
    [VT_ROLE_ROUTER] = {"router", VT_KIND_ROUTER, "ffn_gate_inp.weight", "mlp.gate.weight",
        {VT_DIM_EXPERTS, HIDDEN}, EXPERTS},
    [VT_ROLE_EXPERT_GATE] = {"experts.gate", VT_KIND_EXPERTS, "ffn_gate_exps.weight",
        "mlp.experts.gate_proj.weight", {VT_DIM_EXPERTS, VT_DIM_EXPERT_FFN, HIDDEN}, EXPERTS},
    [VT_ROLE_EXPERT_UP] = {"experts.up", VT_KIND_EXPERTS, "ffn_up_exps.weight",
        "mlp.experts.up_proj.weight", {VT_DIM_EXPERTS, VT_DIM_EXPERT_FFN, HIDDEN}, EXPERTS},
    [VT_ROLE_EXPERT_DOWN] = {"experts.down", VT_KIND_EXPERTS, "ffn_down_exps.weight",
        "mlp.experts.down_proj.weight", {VT_DIM_EXPERTS, HIDDEN, VT_DIM_EXPERT_FFN}, EXPERTS},
    [VT_ROLE_FINAL_NORM] = {"final_norm", VECTOR, "output_norm.weight", "model.norm.weight",
        {HIDDEN}},
    [VT_ROLE_HEAD] = {"head", MATRIX, "output.weight", "lm_head.weight", {VT_DIM_VOCAB, HIDDEN}},
    [VT_ROLE_QKV] = {"qkv", MATRIX},
    [VT_ROLE_QKV_BIAS] = {"qkv_bias", VECTOR},
    [VT_ROLE_GATE_UP] = {"gate+up", MATRIX},
    [VT_ROLE_EXPERT_GATE_UP] = {"experts.gate+up", VT_KIND_EXPERTS},
    [VT_ROLE_ROPE] = {"rope", VT_KIND_ROPE},
    [VT_ROLE_ROPE_LOCAL] = {"rope_local", VT_KIND_ROPE},
};
