/* Granite 4 with state spaces (H): Mamba-2 in most layers, attention without positions in a few.
 * Every layer has a feed-forward, which stands beside experts where the model has some. A model
 * whose layers all attend is run as well, and positions where the file asks for them. */
#include <string.h>

#include "files/json.h"
#include "model/assemble.h"
#include "model/families/granite.h"
#include "model/state_space.h"

static const vt_family_role roles[] = {
    {VT_ROLE_DOWN, VT_NEED_ALWAYS, NULL, "shared_mlp.output_linear.weight"},
    {VT_ROLE_ROUTER, VT_NEED_ALWAYS, NULL, "block_sparse_moe.router.layer.weight"},
    {VT_ROLE_SHARED_GATE, VT_NEED_ALWAYS, NULL, NULL},
    {VT_ROLE_SHARED_UP, VT_NEED_ALWAYS, NULL, NULL},
    {VT_ROLE_SHARED_DOWN, VT_NEED_ALWAYS, NULL, "shared_mlp.output_linear.weight"},
};

static const vt_family_stack stacks[] = {
    {NULL, "shared_mlp.input_linear.weight", VT_ROLE_GATE, 2},
    {NULL, "shared_mlp.input_linear.weight", VT_ROLE_SHARED_GATE, 2},
};

/* Sets the feed-forwards of all layers, of `shared` rows. */
static vt_status set_up(vt_model *m, int32_t shared, bool positions, vt_err *err)
{
    vt_arch *a = &m->arch;
    if (shared < 1)
        return vt_fail(err, VT_ERR_MODEL,
                       "%s: the feed-forward of every token (shared_intermediate_size, "
                       "expert_shared_feed_forward_length) has %d rows (1 or more expected)",
                       m->path, shared);
    a->norm_topk = true; /* a softmax over the chosen is one over all, rescaled to a sum of 1 */
    if (a->n_experts > 0)
        a->shared_ffn = shared;
    else
        a->ffn = shared;
    if (!positions)
        a->n_ropes = 0;
    for (int32_t i = 0; i < a->n_layers; i++) {
        m->layer[i].ffn = a->n_experts > 0 ? VT_BLOCK_EXPERTS : VT_BLOCK_FFN;
        m->layer[i].head.rope = positions ? 0 : -1;
    }
    return VT_OK;
}

/* ---- GGUF ---- */

static vt_status from_gguf(gguf_reader *r)
{
    vt_arch *a = &r->m->arch;
    int32_t shared = a->ffn;
    bool positions = false;
    TRY(granite_from_gguf(r));
    TRY(gguf_read_state_space(r));
    TRY(gguf_read_i32(r, "expert_count", false, &a->n_experts));
    if (a->n_experts > 0) {
        a->expert_ffn = a->ffn;
        TRY(gguf_read_i32(r, "expert_used_count", true, &a->n_experts_used));
        TRY(gguf_read_i32(r, "expert_shared_feed_forward_length", true, &shared));
    }
    TRY(gguf_get_bool(r->file, gguf_reader_key(r, "rope.scaling.finetuned"), false, &positions,
                      r->err));
    for (int32_t i = 0; i < a->n_layers; i++)
        if (!gguf_layer_has(r, "attention.head_count_kv", i))
            model_keep_state(r->m, i, VT_BLOCK_MAMBA);
    return set_up(r->m, shared, positions, r->err);
}

/* ---- config.json ---- */

static vt_status read_mamba(hf_reader *c)
{
    vt_arch *a = &c->m->arch;
    vt_mamba *s = &a->mamba;
    int32_t expand = 2;
    s->log_decay = true;
    s->heads = 128;
    s->groups = 1;
    s->state_dim = 256;
    a->conv_taps = 4;
    TRY(hf_read_i32(c, "mamba_n_heads", false, &s->heads));
    TRY(hf_read_i32(c, "mamba_n_groups", false, &s->groups));
    TRY(hf_read_i32(c, "mamba_d_state", false, &s->state_dim));
    TRY(hf_read_i32(c, "mamba_d_conv", false, &a->conv_taps));
    TRY(hf_read_i32(c, "mamba_expand", false, &expand));
    TRY(model_set_inner(c->m, "\"mamba_expand\" times the hidden size", (int64_t)expand * a->hidden,
                        c->err));
    TRY(hf_refuse_state_space_biases(c, "mamba_conv_bias", "mamba_proj_bias"));
    return hf_refuse_step_limit(c);
}

static vt_status from_config(hf_reader *c)
{
    vt_arch *a = &c->m->arch;
    int32_t shared = 1024;
    const char *positions = "nope";
    TRY(granite_from_config(c));
    TRY(read_mamba(c));
    TRY(hf_read_i32(c, "num_local_experts", true, &a->n_experts));
    TRY(hf_read_i32(c, "shared_intermediate_size", false, &shared));
    a->expert_ffn = a->ffn;
    if (a->n_experts > 0)
        TRY(hf_read_i32(c, "num_experts_per_tok", true, &a->n_experts_used));
    TRY(vt_read_str(c->path, c->root, "position_embedding_type", false, &positions, c->err));
    if (strcmp(positions, "nope") != 0 && strcmp(positions, "rope") != 0)
        return vt_fail(c->err, VT_ERR_UNSUPPORTED,
                       "%s: \"position_embedding_type\" is %.40s (nope and rope are supported)",
                       c->path, positions);
    if (json_object_get(c->root, "layer_types"))
        TRY(hf_read_mixers(c, "mamba", VT_BLOCK_MAMBA));
    else
        for (int32_t i = 0; i < a->n_layers; i++)
            model_keep_state(c->m, i, VT_BLOCK_MAMBA);
    return set_up(c->m, shared, strcmp(positions, "rope") == 0, c->err);
}

/* From the models' published config.json. */
#define GRANITE                                                                         \
    .n_layers = 40, .vocab = 100352, .max_context = 131072, .eps = 1e-5f, .tied = true, \
    .conv_taps = 4, .kinds = "mmmmmammmmmmmmmammmmmmmmmammmmmmmmmammmm"

static const vt_family_shape shapes[] = {
    {GRANITE, .name = "granite-4.0-h-micro", .hidden = 2048, .n_heads = 32, .n_kv_heads = 8,
     .head_dim = 64, .ffn = 8192, .mamba = {64, 1, 64, 128, .log_decay = true}},
    {GRANITE, .name = "granite-4.0-h-tiny", .hidden = 1536, .n_heads = 12, .n_kv_heads = 4,
     .head_dim = 128, .n_experts = 64, .n_experts_used = 6, .expert_ffn = 512, .shared_ffn = 1024,
     .mamba = {48, 1, 64, 128, .log_decay = true}},
    {.name = NULL},
};

const vt_family vt_family_granite_hybrid = {
    .name = "granite_hybrid",
    .gguf = "granitehybrid",
    .hf = "granitemoehybrid",
    .roles = roles,
    .n_roles = sizeof roles / sizeof *roles,
    .stacks = stacks,
    .n_stacks = sizeof stacks / sizeof *stacks,
    .shapes = shapes,
    .experts_by_file = true,
    .hf_experts = "block_sparse_moe",
    .hf_projection = {"gate_proj", "up_proj", "down_proj"},
    .hf_fused = {"input_linear.weight", "output_linear.weight"},
    .gguf_zeros = true,
    .rope_interleaved = true,
    .kv_heads_optional = true,
    .from_gguf = from_gguf,
    .from_config = from_config};
