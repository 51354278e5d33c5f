/* GLM-4.7-Flash: the experts of GLM-4.5, and DeepSeek's attention to latents. Its GGUF files say
 * deepseek2. */
#include "model/families/deepseek.h"
#include "model/families/glm4_moe.h"

/* From the model's published config.json. */
static const vt_family_shape shapes[] = {
    {.name = "glm-4.7-flash",
     .n_layers = 47,
     .hidden = 2048,
     .n_heads = 20,
     .n_kv_heads = 1,
     .head_dim = 256,
     .ffn = 10240,
     .vocab = 154880,
     .max_context = 131072,
     .rope_base = 1e6,
     .eps = 1e-5f,
     .n_experts = 64,
     .n_experts_used = 4,
     .expert_ffn = 1536,
     .shared_ffn = 1536,
     .first_dense = 1,
     .route_sigmoid = true,
     .route_scale = 1.8f,
     .mla = {.q_rank = 768, .kv_rank = 512, .nope = 192, .rope = 64, .v = 256}},
    {.name = NULL},
};

static vt_status from_config(hf_reader *c)
{
    double eps = 1e-5;
    int32_t dense = glm4_moe_dense_layers(c);
    TRY(hf_read_f64(c, "rms_norm_eps", false, &eps));
    c->m->arch.norm_eps = (float)eps;
    c->m->arch.route_sigmoid = true;
    if (dense < 0)
        return VT_ERR_UNSUPPORTED;
    TRY(deepseek_read_latents(c));
    return glm4_moe_read_config(
        c, (glm4_moe_defaults){
               .dense = dense, .shared = 1, .groups = 1, .groups_used = 1, .scale = 1.8});
}

const vt_family vt_family_glm4_moe_lite = {DEEPSEEK_FAMILY,           .name = "glm4_moe_lite",
                                           .hf = "glm4_moe_lite",     .roles = deepseek_roles,
                                           .n_roles = DEEPSEEK_ROLES, .shapes = shapes,
                                           .from_config = from_config};
