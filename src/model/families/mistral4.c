/* Mistral 4 (Mistral Small 4): DeepSeek's attention to latents with queries that grow with their
 * position, as in Ministral 3; experts behind a softmax whose chosen weights sum to 1, and a shared
 * one. */
#include "files/json.h"
#include "model/assemble.h"
#include "model/families/deepseek.h"
#include "model/families/glm4_moe.h"
#include "model/latent.h"

/* From the model's published config.json, without what stretches its context. */
static const vt_family_shape shapes[] = {
    {.name = "mistral-small-4",
     .n_layers = 36,
     .hidden = 4096,
     .n_heads = 32,
     .n_kv_heads = 1,
     .head_dim = 128,
     .ffn = 12288,
     .vocab = 131072,
     .max_context = 8192,
     .rope_base = 1e4,
     .eps = 1e-6f,
     .n_experts = 128,
     .n_experts_used = 4,
     .expert_ffn = 2048,
     .shared_ffn = 2048,
     .route_scale = 1,
     .mla = {.q_rank = 1024, .kv_rank = 256, .nope = 64, .rope = 64, .v = 128}},
    {.name = NULL},
};

static vt_status from_gguf(gguf_reader *r)
{
    double temper = 0;
    TRY(deepseek_read_gguf(r));
    TRY(gguf_read_f64(r, "attention.temperature_scale", false, &temper));
    if (temper != 0)
        TRY(model_check_factor(r->m->path, r->key, temper, r->err));
    return model_temper_latents(r->m, temper, r->err);
}

/* The rope of files that give none, as transformers has it. */
static const char own_rope[] =
    "{\"rope_type\": \"yarn\", \"rope_theta\": 10000, \"factor\": 128, \"beta_fast\": 32, "
    "\"beta_slow\": 1, \"mscale\": 1, \"mscale_all_dim\": 1, \"llama_4_scaling_beta\": 0.1, "
    "\"original_max_position_embeddings\": 8192}";

static vt_status from_config(hf_reader *c)
{
    static const char key[] = "llama_4_scaling_beta";
    vt_arch *a = &c->m->arch;
    const json_t *rope = hf_rope_object(c);
    double temper = 0;
    TRY(deepseek_read_latents(c));
    TRY(glm4_moe_read_config(
        c, (glm4_moe_defaults){.shared = 1, .groups = 1, .groups_used = 1, .scale = 1}));
    if (a->expert_groups > 0)
        return vt_fail(c->err, VT_ERR_UNSUPPORTED, "%s: \"n_group\" is %d; 1 is supported for %s",
                       c->path, a->expert_groups, c->family->hf);
    TRY(vt_read_f64(c->path, rope, key, false, &temper, c->err));
    if (temper != 0)
        TRY(model_check_factor(c->path, key, temper, c->err));
    return model_temper_latents(c->m, temper, c->err);
}

const vt_family vt_family_mistral4 = {
    DEEPSEEK_FAMILY,        .name = "mistral4",        .gguf = "mistral4",
    .hf = "mistral4",       .roles = deepseek_roles,   .n_roles = DEEPSEEK_ROLES - 1,
    .shapes = shapes,       .rope_partial = 0.5,       .hf_rope = own_rope,
    .from_gguf = from_gguf, .from_config = from_config};
