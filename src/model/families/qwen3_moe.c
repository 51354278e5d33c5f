/* Qwen3 with experts in all layers, or in some. Qwen3-VL's text model with experts is the same, but
 * for the form in which folders hold them and for weights of experts, which always sum to 1. */
#include "files/json.h"
#include "model/family.h"

static const vt_family_role roles[] = {
    {VT_ROLE_Q_NORM, VT_NEED_ALWAYS, NULL, NULL},
    {VT_ROLE_K_NORM, VT_NEED_ALWAYS, NULL, NULL},
};

static vt_status from_gguf(gguf_reader *r)
{
    vt_arch *a = &r->m->arch;
    a->norm_topk = true;
    TRY(gguf_read_i32(r, "expert_count", true, &a->n_experts));
    TRY(gguf_read_i32(r, "expert_used_count", true, &a->n_experts_used));
    return gguf_read_i32(r, "expert_feed_forward_length", true, &a->expert_ffn);
}

static vt_status read_config(hf_reader *c)
{
    vt_arch *a = &c->m->arch;
    const char *count = vt_read_member(c->root, "num_experts") ? "num_experts"
                                                               : "num_local_experts";
    TRY(hf_read_i32(c, count, true, &a->n_experts));
    TRY(hf_read_i32(c, "num_experts_per_tok", true, &a->n_experts_used));
    TRY(hf_read_i32(c, "moe_intermediate_size", true, &a->expert_ffn));
    return hf_read_dense_layers(c);
}

static vt_status from_config(hf_reader *c)
{
    TRY(hf_read_bool(c, "norm_topk_prob", &c->m->arch.norm_topk));
    return read_config(c);
}

/* transformers does not read "norm_topk_prob" of these models: it rescales in any case. */
static vt_status from_vl_config(hf_reader *c)
{
    bool rescaled = true;
    TRY(hf_read_bool(c, "norm_topk_prob", &rescaled));
    if (!rescaled)
        return vt_fail(c->err, VT_ERR_UNSUPPORTED,
                       "%s: \"norm_topk_prob\" is false; true is supported for %s", c->path,
                       c->family->hf);
    c->m->arch.norm_topk = true;
    return read_config(c);
}

#define QWEN3_30B_A3B                                                                              \
    .head_dim = 128, .vocab = 151936, .eps = 1e-6f, .n_layers = 48, .hidden = 2048, .n_heads = 32, \
    .n_kv_heads = 4, .ffn = 6144, .n_experts = 128, .n_experts_used = 8, .expert_ffn = 768

static const vt_family_shape shapes[] = {
    {QWEN3_30B_A3B, .name = "qwen3-30b-a3b", .max_context = 40960, .rope_base = 1e6},
    {.name = NULL},
};

const vt_family vt_family_qwen3_moe = {.name = "qwen3_moe",
                                       .gguf = "qwen3moe",
                                       .hf = "qwen3_moe",
                                       .roles = roles,
                                       .n_roles = sizeof roles / sizeof *roles,
                                       .shapes = shapes,
                                       .window = 4096,
                                       .experts = true,
                                       .window_all = true,
                                       .from_gguf = from_gguf,
                                       .from_config = from_config};

static const vt_family_shape vl_shapes[] = {
    {QWEN3_30B_A3B, .name = "qwen3-vl-30b-a3b", .max_context = 262144, .rope_base = 5e6},
    {.name = NULL},
};

const vt_family vt_family_qwen3_vl_moe = {.name = "qwen3_vl_moe",
                                          .gguf = "qwen3vlmoe",
                                          .hf = "qwen3_vl_moe_text",
                                          .hf_outer = "qwen3_vl_moe",
                                          .roles = roles,
                                          .n_roles = sizeof roles / sizeof *roles,
                                          .shapes = vl_shapes,
                                          .experts = true,
                                          .experts_transposed = VT_TRANSPOSED_HALVES,
                                          .rope_base = 5e5,
                                          .from_gguf = from_gguf,
                                          .from_config = from_vl_config};
