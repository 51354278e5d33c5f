/* GLM-4.7-Flash: the experts of GLM-4.5, and DeepSeek's attention to latents. Its GGUF files say
 * deepseek2. */
#include <string.h>

#include "files/json.h"
#include "model/assemble.h"
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

/* Returns how many of the first layers are dense, by the list of their kinds; -1: they are not the
 * first ones. Without a list it is one. */
static int32_t dense_layers(const json_t *types, int32_t n_layers)
{
    int32_t dense = 0;
    if (!types)
        return 1;
    if (!json_is_array(types) || json_array_size(types) != (size_t)n_layers)
        return -1;
    for (int32_t i = 0; i < n_layers; i++) {
        const char *type = json_string_value(json_array_get(types, (size_t)i));
        bool is_dense = type && strcmp(type, "dense") == 0;
        if (is_dense ? dense < i : !type || strcmp(type, "sparse") != 0)
            return -1;
        dense += is_dense;
    }
    return dense;
}

static vt_status from_config(hf_reader *c)
{
    double eps = 1e-5;
    int32_t dense = dense_layers(vt_read_member(c->root, "mlp_layer_types"), c->m->arch.n_layers);
    TRY(hf_read_f64(c, "rms_norm_eps", false, &eps));
    c->m->arch.norm_eps = (float)eps;
    c->m->arch.route_sigmoid = true;
    if (dense < 0)
        return vt_fail(c->err, VT_ERR_UNSUPPORTED,
                       "%s: \"mlp_layer_types\" is no list of %d \"dense\" and then \"sparse\" "
                       "layers",
                       c->path, c->m->arch.n_layers);
    TRY(deepseek_read_latents(c));
    return glm4_moe_read_config(c, dense);
}

const vt_family vt_family_glm4_moe_lite = {DEEPSEEK_FAMILY,           .name = "glm4_moe_lite",
                                           .hf = "glm4_moe_lite",     .roles = deepseek_roles,
                                           .n_roles = DEEPSEEK_ROLES, .shapes = shapes,
                                           .from_config = from_config};
