/* GLM-4.5, 4.6 and 4.7, and Air: the first layers are dense; in the others a router of sigmoids
 * chooses experts with a bias for the choice, maybe from some groups of them, and one more is every
 * token's. Half of each head is rotated. The layers of multi-token prediction are not run. */
#include <stdlib.h>
#include <string.h>

#include "files/json.h"
#include "model/assemble.h"
#include "model/families/glm4_moe.h"

static const vt_family_role roles[] = {
    {VT_ROLE_Q_NORM, VT_NEED_NOT, NULL, NULL},
    {VT_ROLE_K_NORM, VT_NEED_NOT, NULL, NULL},
    {VT_ROLE_FFN_NORM, VT_NEED_ALWAYS, "post_attention_norm.weight", NULL},
    {VT_ROLE_ROUTER_CHOICE, VT_NEED_ALWAYS, NULL, NULL},
    {VT_ROLE_SHARED_GATE, VT_NEED_ALWAYS, NULL, "mlp.shared_experts.gate_proj.weight"},
    {VT_ROLE_SHARED_UP, VT_NEED_ALWAYS, NULL, "mlp.shared_experts.up_proj.weight"},
    {VT_ROLE_SHARED_DOWN, VT_NEED_ALWAYS, NULL, "mlp.shared_experts.down_proj.weight"},
};

/* From the models' published config.json. */
static const vt_family_shape shapes[] = {
    {.name = "glm-4.5-air",
     .n_layers = 46,
     .hidden = 4096,
     .n_heads = 96,
     .n_kv_heads = 8,
     .head_dim = 128,
     .rope_dims = 64,
     .ffn = 10944,
     .vocab = 151552,
     .max_context = 131072,
     .rope_base = 1e6,
     .eps = 1e-5f,
     .n_experts = 128,
     .n_experts_used = 8,
     .expert_ffn = 1408,
     .shared_ffn = 1408,
     .first_dense = 1,
     .route_sigmoid = true,
     .route_scale = 1},
    {.name = NULL},
};

/* Groups of 1 are the same as none. */
vt_status glm4_moe_set_up(vt_model *m, int32_t dense, int32_t shared, double scale, vt_err *err)
{
    vt_arch *a = &m->arch;
    if (dense < 0 || dense > a->n_layers)
        return vt_fail(err, VT_ERR_MODEL,
                       "%s: %d of %d layers are dense (first_k_dense_replace, "
                       "leading_dense_block_count); 0 to all were expected",
                       m->path, dense, a->n_layers);
    if (shared < 1 || (int64_t)shared * a->expert_ffn > INT32_MAX)
        return vt_fail(err, VT_ERR_UNSUPPORTED,
                       "%s: %d shared experts (n_shared_experts or num_shared_experts, "
                       "expert_shared_count) are not "
                       "supported (1 or more are)",
                       m->path, shared);
    for (int32_t i = 0; i < dense; i++)
        m->layer[i].ffn = VT_BLOCK_FFN;
    a->shared_ffn = shared * a->expert_ffn;
    a->route_scale = (float)scale;
    if (a->expert_groups == 1)
        a->expert_groups = a->expert_groups_used = 0;
    return VT_OK;
}

vt_status glm4_moe_read_gguf(gguf_reader *r)
{
    vt_arch *a = &r->m->arch;
    int32_t dense = 0, shared = 0, mtp = 0;
    double scale = 1;
    TRY(gguf_read_i32(r, "expert_count", true, &a->n_experts));
    TRY(gguf_read_i32(r, "expert_used_count", true, &a->n_experts_used));
    TRY(gguf_read_i32(r, "expert_feed_forward_length", true, &a->expert_ffn));
    TRY(gguf_read_i32(r, "expert_shared_count", true, &shared));
    TRY(gguf_read_i32(r, "leading_dense_block_count", false, &dense));
    TRY(gguf_read_i32(r, "expert_group_count", false, &a->expert_groups));
    TRY(gguf_read_i32(r, "expert_group_used_count", false, &a->expert_groups_used));
    TRY(gguf_get_bool(r->file, gguf_reader_key(r, "expert_weights_norm"), false, &a->norm_topk,
                      r->err));
    TRY(gguf_read_factor(r, "expert_weights_scale", &scale));
    TRY(gguf_read_i32(r, "nextn_predict_layers", false, &mtp));
    if (mtp >= a->n_layers)
        return vt_fail(r->err, VT_ERR_MODEL, "%s: %s is %d; the file has %d layers", r->m->path,
                       r->key, mtp, a->n_layers);
    a->n_layers -= mtp;
    return glm4_moe_set_up(r->m, dense, shared, scale, r->err);
}

static vt_status from_gguf(gguf_reader *r)
{
    int32_t gating = 2;
    TRY(glm4_moe_read_gguf(r));
    r->m->arch.route_sigmoid = true;
    TRY(gguf_read_i32(r, "expert_gating_func", false, &gating));
    if (gating != 2)
        return vt_fail(r->err, VT_ERR_UNSUPPORTED, "%s: %s is %d; 2, sigmoids, is supported for %s",
                       r->m->path, r->key, gating, r->family->gguf);
    return VT_OK;
}

vt_status glm4_moe_read_config(hf_reader *c, glm4_moe_defaults d)
{
    vt_arch *a = &c->m->arch;
    a->norm_topk = true;
    a->expert_groups = d.groups;
    a->expert_groups_used = d.groups_used;
    TRY(hf_read_i32(c, "n_routed_experts", true, &a->n_experts));
    TRY(hf_read_i32(c, "num_experts_per_tok", true, &a->n_experts_used));
    TRY(hf_read_i32(c, "moe_intermediate_size", true, &a->expert_ffn));
    TRY(hf_read_i32(c, "n_shared_experts", false, &d.shared));
    TRY(hf_read_i32(c, "first_k_dense_replace", false, &d.dense));
    TRY(hf_read_i32(c, "n_group", false, &a->expert_groups));
    TRY(hf_read_i32(c, "topk_group", false, &a->expert_groups_used));
    TRY(hf_read_bool(c, "norm_topk_prob", &a->norm_topk));
    TRY(hf_read_factor(c, "routed_scaling_factor", &d.scale));
    return glm4_moe_set_up(c->m, d.dense, d.shared, d.scale, c->err);
}

static vt_status from_config(hf_reader *c)
{
    double eps = 1e-5;
    TRY(hf_read_f64(c, "rms_norm_eps", false, &eps));
    c->m->arch.norm_eps = (float)eps;
    c->m->arch.route_sigmoid = true;
    c->extra->o_bias = false; /* whatever attention_bias says */
    TRY(hf_read_bool(c, "use_qk_norm", &c->extra->qk_norm));
    return glm4_moe_read_config(
        c, (glm4_moe_defaults){.dense = 1, .shared = 1, .groups = 1, .groups_used = 1, .scale = 1});
}

int32_t glm4_moe_dense_layers(hf_reader *c)
{
    const json_t *types = vt_read_member(c->root, "mlp_layer_types");
    int32_t n = c->m->arch.n_layers, dense = 0;
    char shown[VT_JSON_SHOWN];
    if (!types)
        return 1;
    if (vt_check_array(c->path, "mlp_layer_types", types, (size_t)n, c->err) != VT_OK)
        return -1;
    for (int32_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(types, (size_t)i);
        const char *type = json_is_string(v) ? json_string_value(v) : "";
        bool is_dense = strcmp(type, "dense") == 0;
        if (is_dense ? dense != i : strcmp(type, "sparse") != 0) {
            vt_fail(c->err, VT_ERR_UNSUPPORTED,
                    "%s: \"mlp_layer_types\" holds %s in place %d; \"dense\" layers and then "
                    "\"sparse\" ones were expected",
                    c->path, vt_json_show(v, shown), i);
            return -1;
        }
        dense += is_dense;
    }
    return dense;
}

bool glm4_moe_skips(const vt_model *m, const char *tensor)
{
    static const char *const begins[] = {"model.layers.", "blk."};
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++) {
        size_t n = strlen(begins[i]);
        char *end;
        if (strncmp(tensor, begins[i], n) != 0)
            continue;
        long layer = strtol(tensor + n, &end, 10);
        return *end == '.' && layer >= m->arch.n_layers;
    }
    return false;
}

const vt_family vt_family_glm4_moe = {.name = "glm4_moe",
                                      .gguf = "glm4moe",
                                      .hf = "glm4_moe",
                                      .roles = roles,
                                      .n_roles = sizeof roles / sizeof *roles,
                                      .shapes = shapes,
                                      .experts = true,
                                      .rope_partial = 0.5,
                                      .skips = glm4_moe_skips,
                                      .skipped = "multi-token prediction",
                                      .mtp = VT_MTP_NEXT_LAYER,
                                      .from_gguf = from_gguf,
                                      .from_config = from_config};
