/* Qwen3.5 with experts in all layers, and one more that every token has, by a share of its own.
 *
 * Qwen3-Next and Qwen3-Coder-Next compute the same. Their files hold the delta rule's projections
 * key head by key head (model/key_heads.h); GGUF files only b and a, unless they are old, and their
 * value heads stay in the order of folders. */
#include "model/families/qwen3_5.h"

static const vt_family_role roles[] = {
    QWEN3_5_ROLES,
    {VT_ROLE_SHARED_SHARE, VT_NEED_ALWAYS, NULL, NULL},
    {VT_ROLE_SHARED_GATE, VT_NEED_ALWAYS, NULL, NULL},
    {VT_ROLE_SHARED_UP, VT_NEED_ALWAYS, NULL, NULL},
    {VT_ROLE_SHARED_DOWN, VT_NEED_ALWAYS, NULL, NULL},
};

static vt_status check_shared(vt_model *m, vt_err *err)
{
    m->arch.norm_topk = true;
    return m->arch.shared_ffn > 0
               ? VT_OK
               : vt_fail(err, VT_ERR_MODEL,
                         "%s: the shared expert (shared_expert_intermediate_size, "
                         "expert_shared_feed_forward_length) has %d rows (1 or more expected)",
                         m->path, m->arch.shared_ffn);
}

static vt_status from_gguf(gguf_reader *r)
{
    vt_arch *a = &r->m->arch;
    TRY(qwen3_5_from_gguf(r));
    TRY(gguf_read_i32(r, "expert_count", true, &a->n_experts));
    TRY(gguf_read_i32(r, "expert_used_count", true, &a->n_experts_used));
    TRY(gguf_read_i32(r, "expert_feed_forward_length", true, &a->expert_ffn));
    TRY(gguf_read_i32(r, "expert_shared_feed_forward_length", true, &a->shared_ffn));
    return check_shared(r->m, r->err);
}

static vt_status from_config(hf_reader *c)
{
    vt_arch *a = &c->m->arch;
    TRY(qwen3_5_from_config(c));
    TRY(hf_read_i32(c, "num_experts", true, &a->n_experts));
    TRY(hf_read_i32(c, "num_experts_per_tok", true, &a->n_experts_used));
    TRY(hf_read_i32(c, "moe_intermediate_size", true, &a->expert_ffn));
    TRY(hf_read_i32(c, "shared_expert_intermediate_size", true, &a->shared_ffn));
    return check_shared(c->m, c->err);
}

static const vt_family_shape shapes[] = {
    {QWEN3_5, .name = "qwen3.5-35b-a3b", .n_layers = 40, .hidden = 2048, .n_heads = 16,
     .n_kv_heads = 2, .n_experts = 256, .n_experts_used = 8, .expert_ffn = 512, .shared_ffn = 512,
     .delta = {16, 32, 128, 128, .log_decay = true}},
    {.name = NULL},
};

const vt_family vt_family_qwen3_5_moe = {.name = "qwen3_5_moe",
                                         .gguf = "qwen35moe",
                                         .hf = "qwen3_5_moe_text",
                                         .hf_outer = "qwen3_5_moe",
                                         .roles = roles,
                                         .n_roles = sizeof roles / sizeof *roles,
                                         .shapes = shapes,
                                         .experts = true,
                                         .head_dim = 256,
                                         .rope_base = 1e7,
                                         .rope_partial = 0.25,
                                         .skips = qwen3_5_skips,
                                         .skipped = QWEN3_5_SKIPPED,
                                         .mtp = VT_MTP_BESIDE,
                                         .from_gguf = from_gguf,
                                         .from_config = from_config};

/* ---- Qwen3-Next ---- */

static const vt_family_stack stacks[] = {
    {"ssm_in.weight", "linear_attn.in_proj_qkvz.weight", VT_ROLE_DELTA_QKV, 2, .by_key_head = true},
    {"ssm_ba.weight", "linear_attn.in_proj_ba.weight", VT_ROLE_DELTA_B, 2, .by_key_head = true},
};

static vt_status next_from_gguf(gguf_reader *r)
{
    TRY(from_gguf(r));
    r->m->arch.delta.tiled = false;
    return VT_OK;
}

static vt_status next_from_config(hf_reader *c)
{
    TRY(from_config(c));
    TRY(hf_read_bool(c, "norm_topk_prob", &c->m->arch.norm_topk));
    return hf_read_dense_layers(c);
}

/* From the models' published config.json. */
static const vt_family_shape next_shapes[] = {
    {.name = "qwen3-next-80b-a3b",
     .n_layers = 48,
     .hidden = 2048,
     .n_heads = 16,
     .n_kv_heads = 2,
     .head_dim = 256,
     .ffn = 5120,
     .vocab = 151936,
     .max_context = 262144,
     .rope_base = 1e7,
     .rope_dims = 64,
     .eps = 1e-6f,
     .n_experts = 512,
     .n_experts_used = 10,
     .expert_ffn = 512,
     .shared_ffn = 512,
     .conv_taps = 4,
     .attends_every = 4,
     .out_gate = true,
     .delta = {16, 32, 128, 128, .log_decay = true}},
    {.name = NULL},
};

const vt_family vt_family_qwen3_next = {.name = "qwen3_next",
                                        .gguf = "qwen3next",
                                        .hf = "qwen3_next",
                                        .roles = roles,
                                        .n_roles = sizeof roles / sizeof *roles,
                                        .stacks = stacks,
                                        .n_stacks = sizeof stacks / sizeof *stacks,
                                        .shapes = next_shapes,
                                        .experts = true,
                                        .head_dim = 256,
                                        .rope_partial = 0.25,
                                        .skips = qwen3_5_skips,
                                        .skipped = QWEN3_5_SKIPPED,
                                        .mtp = VT_MTP_BESIDE,
                                        .from_gguf = next_from_gguf,
                                        .from_config = next_from_config};
