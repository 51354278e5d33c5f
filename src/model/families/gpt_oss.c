/* gpt-oss: experts in every layer with biases and a clamped activation, windows in every other
 * layer, sinks in attention, and biases of q, k, v, of the output and of the router. */
#include "model/assemble.h"
#include "model/family.h"

static const vt_family_role roles[] = {
    {VT_ROLE_SINKS, VT_NEED_ALWAYS, NULL, NULL},
    {VT_ROLE_FFN_NORM, VT_NEED_ALWAYS, "post_attention_norm.weight", NULL},
    {VT_ROLE_ROUTER, VT_NEED_ALWAYS, NULL, "mlp.router.weight"},
    {VT_ROLE_ROUTER_BIAS, VT_NEED_ALWAYS, NULL, NULL},
    {VT_ROLE_EXPERT_GATE_BIAS, VT_NEED_ALWAYS, NULL, NULL},
    {VT_ROLE_EXPERT_UP_BIAS, VT_NEED_ALWAYS, NULL, NULL},
    {VT_ROLE_EXPERT_DOWN_BIAS, VT_NEED_ALWAYS, NULL, NULL},
};

/* From the model's published config.json, without what stretches its context. */
static const vt_family_shape shapes[] = {
    {.name = "gpt-oss-20b",
     .n_layers = 24,
     .hidden = 2880,
     .n_heads = 64,
     .n_kv_heads = 8,
     .head_dim = 64,
     .ffn = 2880,
     .vocab = 201088,
     .max_context = 4096,
     .rope_base = 150000,
     .eps = 1e-5f,
     .n_experts = 32,
     .n_experts_used = 4,
     .expert_ffn = 2880,
     .window = 128,
     .window_period = 2,
     .act_limit = 7},
    {.name = NULL},
};

/* The rope of files that give none, as transformers has it. */
static const char rope[] = "{\"rope_type\": \"yarn\", \"factor\": 32, \"beta_fast\": 32, "
                           "\"beta_slow\": 1, \"truncate\": false, "
                           "\"original_max_position_embeddings\": 4096}";

static void set_up(vt_arch *a, double limit)
{
    a->norm_topk = true; /* a softmax over the chosen is one over all, rescaled to a sum of 1 */
    a->activation = VT_ACT_CLAMPED;
    a->act_limit = (float)limit;
    a->rope[0].yarn_truncate = false;
}

/* Files do not say the limit of the activation, nor that the range of YaRN is not rounded. */
static vt_status from_gguf(gguf_reader *r)
{
    vt_arch *a = &r->m->arch;
    set_up(a, 7);
    TRY(gguf_read_i32(r, "expert_count", true, &a->n_experts));
    TRY(gguf_read_i32(r, "expert_used_count", true, &a->n_experts_used));
    TRY(gguf_read_i32(r, "expert_feed_forward_length", true, &a->expert_ffn));
    return a->window > 0 ? gguf_read_windows(r, 2) : VT_OK;
}

static vt_status from_config(hf_reader *c)
{
    vt_arch *a = &c->m->arch;
    double limit = 7, alpha = 1.702, eps = 1e-5;
    bool truncate = a->rope[0].yarn_truncate;
    TRY(hf_read_f64(c, "rms_norm_eps", false, &eps));
    a->norm_eps = (float)eps;
    TRY(hf_read_f64(c, "swiglu_limit", false, &limit));
    TRY(model_check_factor(c->path, "\"swiglu_limit\"", limit, c->err));
    TRY(hf_read_f64(c, "swiglu_alpha", false, &alpha));
    if (alpha != 1.702)
        return vt_fail(c->err, VT_ERR_UNSUPPORTED,
                       "%s: \"swiglu_alpha\" is %g (1.702 is supported)", c->path, alpha);
    set_up(a, limit);
    a->rope[0].yarn_truncate = truncate;
    TRY(hf_read_i32(c, "num_local_experts", true, &a->n_experts));
    TRY(hf_read_i32(c, "num_experts_per_tok", true, &a->n_experts_used));
    a->expert_ffn = a->ffn;
    return VT_OK;
}

const vt_family vt_family_gpt_oss = {.name = "gpt_oss",
                                     .gguf = "gpt-oss",
                                     .hf = "gpt_oss",
                                     .roles = roles,
                                     .n_roles = sizeof roles / sizeof *roles,
                                     .shapes = shapes,
                                     .experts = true,
                                     .experts_transposed = VT_TRANSPOSED_IN_TURN,
                                     .rope_base = 150000,
                                     .hf_rope = rope,
                                     .head_dim = 64,
                                     .window_used = true,
                                     .window = 128,
                                     .window_period = 2,
                                     .from_gguf = from_gguf,
                                     .from_config = from_config};
