/* config.json -> vt_arch.
 *
 * Keys that published files leave out have the defaults of the families' configuration classes in
 * transformers; keys that set a shape are required. Rope has two spellings: `rope_theta` with
 * `rope_scaling` (and `rope_local_base_freq` for Gemma), and `rope_parameters` (transformers 5),
 * which holds all of it, with one object for each kind of layer where layers differ. Sliding
 * windows have three: one `sliding_window` for all layers, `layer_types`, or the older rules that
 * layer_types replaced (read_window_rule).
 */
#include "model/hf_config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "files/json.h"
#include "model/assemble.h"

typedef struct family {
    const char *model_type;
    const char *name; /* vt_arch.family */
    bool qk_norm, moe, gemma, qkv_bias;
    bool window_all;  /* sliding_window holds for every layer */
    int32_t head_dim; /* default; 0: hidden / heads */
} family;

static const family families[] = {
    {.model_type = "llama", .name = "llama"},
    {.model_type = "mistral", .name = "mistral", .window_all = true},
    {.model_type = "qwen2", .name = "qwen2", .qkv_bias = true},
    {.model_type = "qwen3", .name = "qwen3", .qk_norm = true, .head_dim = 128},
    {.model_type = "qwen3_moe",
     .name = "qwen3_moe",
     .qk_norm = true,
     .moe = true,
     .window_all = true},
    {.model_type = "gemma3_text",
     .name = "gemma3",
     .qk_norm = true,
     .gemma = true,
     .head_dim = 256},
};

typedef struct config {
    const char *path;
    const json_t *root;
    const family *family;
    vt_model *m;
    hf_extra *extra;
    vt_err *err;
} config;

static vt_status get_i32(config *c, const char *key, bool required, int32_t *out)
{
    return vt_read_i32(c->path, c->root, key, required, out, c->err);
}

static vt_status get_f64(config *c, const char *key, bool required, double *out)
{
    return vt_read_f64(c->path, c->root, key, required, out, c->err);
}

static vt_status get_bool(config *c, const char *key, bool *out)
{
    return vt_read_bool(c->path, c->root, key, false, out, c->err);
}

/* Refuses a key that is set and not zero: it stands for something that is not computed here. */
static vt_status refuse_f64(config *c, const char *key)
{
    double v = 0;
    TRY(get_f64(c, key, false, &v));
    if (v != 0)
        return vt_fail(c->err, VT_ERR_UNSUPPORTED, "%s: \"%s\" is %g; it is not supported", c->path,
                       key, v);
    return VT_OK;
}

/* ---- rope ---- */

static double yarn_mscale(double factor, double mscale)
{
    return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

static vt_status read_yarn(config *c, const json_t *o, vt_rope_params *p)
{
    double mscale = 0, mscale_all = 0;
    p->scaling = VT_ROPE_YARN;
    p->beta_fast = 32;
    p->beta_slow = 1;
    p->yarn_truncate = true;
    p->original_context = c->m->arch.max_context;
    TRY(vt_read_i32(c->path, o, "original_max_position_embeddings", false, &p->original_context,
                    c->err));
    TRY(vt_read_f64(c->path, o, "beta_fast", false, &p->beta_fast, c->err));
    TRY(vt_read_f64(c->path, o, "beta_slow", false, &p->beta_slow, c->err));
    TRY(vt_read_bool(c->path, o, "truncate", false, &p->yarn_truncate, c->err));
    TRY(vt_read_f64(c->path, o, "mscale", false, &mscale, c->err));
    TRY(vt_read_f64(c->path, o, "mscale_all_dim", false, &mscale_all, c->err));
    if (mscale != 0 && mscale_all != 0)
        p->attn_factor = yarn_mscale(p->factor, mscale) / yarn_mscale(p->factor, mscale_all);
    else
        p->attn_factor = yarn_mscale(p->factor, 1);
    bool given = vt_read_member(o, "attention_factor") != NULL;
    TRY(vt_read_f64(c->path, o, "attention_factor", false, &p->attn_factor, c->err));
    return model_check_factor(c->path, given ? "\"attention_factor\"" : "the factor of \"mscale\"",
                              p->attn_factor, c->err);
}

static vt_status read_llama3(config *c, const json_t *o, vt_rope_params *p)
{
    p->scaling = VT_ROPE_LLAMA3;
    p->original_context = c->m->arch.max_context;
    TRY(vt_read_f64(c->path, o, "low_freq_factor", true, &p->low_freq_factor, c->err));
    TRY(vt_read_f64(c->path, o, "high_freq_factor", true, &p->high_freq_factor, c->err));
    return vt_read_i32(c->path, o, "original_max_position_embeddings", false, &p->original_context,
                       c->err);
}

/* A rope_scaling object, or one of rope_parameters; NULL: nothing is scaled. */
static vt_status read_rope_object(config *c, const json_t *o, vt_rope_params *p)
{
    const char *type = "default";
    double partial = 1;
    if (!o)
        return VT_OK;
    if (!json_is_object(o))
        return vt_fail(c->err, VT_ERR_FORMAT, "%s: the rope parameters are no object", c->path);
    TRY(vt_read_f64(c->path, o, "rope_theta", false, &p->base, c->err));
    TRY(vt_read_f64(c->path, o, "partial_rotary_factor", false, &partial, c->err));
    if (!(partial > 0 && partial <= 1))
        return vt_fail(c->err, VT_ERR_MODEL,
                       "%s: \"partial_rotary_factor\" is %g (above 0, at most 1)", c->path,
                       partial);
    p->dims = (int32_t)((double)p->dims * partial);
    TRY(vt_read_str(c->path, o, "type", false, &type, c->err));
    TRY(vt_read_str(c->path, o, "rope_type", false, &type, c->err));
    if (strcmp(type, "default") == 0)
        return VT_OK;
    bool linear = strcmp(type, "linear") == 0, llama3 = strcmp(type, "llama3") == 0;
    if (!linear && !llama3 && strcmp(type, "yarn") != 0)
        return vt_fail(c->err, VT_ERR_UNSUPPORTED,
                       "%s: rope type %.40s is not supported (default, linear, llama3, yarn are)",
                       c->path, type);
    TRY(vt_read_f64(c->path, o, "factor", true, &p->factor, c->err));
    if (llama3)
        return read_llama3(c, o, p);
    if (!linear)
        return read_yarn(c, o, p);
    p->scaling = VT_ROPE_LINEAR;
    return VT_OK;
}

static vt_status read_rope(config *c)
{
    vt_arch *a = &c->m->arch;
    const json_t *all = vt_read_member(c->root, "rope_parameters");
    const json_t *global = all, *local = NULL;
    double partial = 1;
    if (vt_read_member(all, "full_attention")) {
        global = vt_read_member(all, "full_attention");
        local = vt_read_member(all, "sliding_attention");
    } else if (!all) {
        global = vt_read_member(c->root, "rope_scaling");
    }
    a->rope = (vt_rope_params){.base = c->family->gemma ? 1e6 : 1e4, .dims = a->head_dim};
    a->rope_local = (vt_rope_params){.base = 1e4, .dims = a->head_dim};
    a->has_rope_local = c->family->gemma;
    TRY(get_f64(c, "partial_rotary_factor", false, &partial));
    if (partial != 1 && !vt_read_member(global, "partial_rotary_factor"))
        return vt_fail(c->err, VT_ERR_UNSUPPORTED,
                       "%s: \"partial_rotary_factor\" %g is not supported for %s", c->path, partial,
                       c->family->model_type);
    TRY(get_f64(c, "rope_theta", false, &a->rope.base));
    TRY(get_f64(c, "rope_local_base_freq", false, &a->rope_local.base));
    TRY(read_rope_object(c, global, &a->rope));
    return read_rope_object(c, local, &a->rope_local);
}

/* ---- windows ---- */

static vt_status read_layer_types(config *c, const json_t *types)
{
    vt_arch *a = &c->m->arch;
    if (!json_is_array(types) || json_array_size(types) != (size_t)a->n_layers)
        return vt_fail(c->err, VT_ERR_FORMAT, "%s: \"layer_types\" is no array of %d", c->path,
                       a->n_layers);
    for (int32_t i = 0; i < a->n_layers; i++) {
        const char *type = json_string_value(json_array_get(types, (size_t)i));
        if (type && strcmp(type, "sliding_attention") == 0)
            a->layer_window[i] = 1;
        else if (!type || strcmp(type, "full_attention") != 0)
            return vt_fail(
                c->err, VT_ERR_UNSUPPORTED,
                "%s: layer %d has type %.40s (full_attention, sliding_attention are supported)",
                c->path, i, type ? type : "null");
    }
    return VT_OK;
}

/* Which layers have the window where layer_types does not say it. Gemma: all but every
 * `pattern`-th. Qwen: those from max_window_layers on. */
static vt_status read_window_rule(config *c)
{
    vt_arch *a = &c->m->arch;
    int32_t pattern = 6, first = 28;
    TRY(get_i32(c, "sliding_window_pattern", false, &pattern));
    TRY(get_i32(c, "max_window_layers", false, &first));
    if (pattern < 1)
        return vt_fail(c->err, VT_ERR_MODEL,
                       "%s: \"sliding_window_pattern\" is %d (1 or more expected)", c->path,
                       pattern);
    for (int32_t i = 0; i < a->n_layers; i++)
        a->layer_window[i] = c->family->gemma ? (i + 1) % pattern != 0 : i >= first;
    return VT_OK;
}

static vt_status read_windows(config *c)
{
    vt_arch *a = &c->m->arch;
    bool use = c->family->gemma || strcmp(c->family->name, "mistral") == 0;
    TRY(get_bool(c, "use_sliding_window", &use));
    if (!use || !vt_read_member(c->root, "sliding_window"))
        return VT_OK;
    TRY(get_i32(c, "sliding_window", true, &a->window));
    if (a->window < 1)
        return vt_fail(c->err, VT_ERR_MODEL, "%s: \"sliding_window\" is %d (1 or more expected)",
                       c->path, a->window);
    if (c->family->window_all)
        return VT_OK;
    a->layer_window = vt_arena_alloc(&c->m->arena, (size_t)a->n_layers, 1);
    if (!a->layer_window)
        return vt_fail(c->err, VT_ERR_MEMORY, "%s: out of memory", c->path);
    const json_t *types = vt_read_member(c->root, "layer_types");
    return types ? read_layer_types(c, types) : read_window_rule(c);
}

/* ---- experts ---- */

static vt_status read_experts(config *c)
{
    vt_arch *a = &c->m->arch;
    int32_t step = 1;
    const json_t *dense = vt_read_member(c->root, "mlp_only_layers");
    const char *count = vt_read_member(c->root, "num_experts") ? "num_experts"
                                                               : "num_local_experts";
    TRY(get_i32(c, count, true, &a->n_experts));
    TRY(get_i32(c, "num_experts_per_tok", true, &a->n_experts_used));
    TRY(get_i32(c, "moe_intermediate_size", true, &a->expert_ffn));
    TRY(get_bool(c, "norm_topk_prob", &a->norm_topk));
    TRY(get_i32(c, "decoder_sparse_step", false, &step));
    if (step < 1)
        return vt_fail(c->err, VT_ERR_MODEL,
                       "%s: \"decoder_sparse_step\" is %d (1 or more expected)", c->path, step);
    a->layer_moe = vt_arena_alloc(&c->m->arena, (size_t)a->n_layers, 1);
    if (!a->layer_moe)
        return vt_fail(c->err, VT_ERR_MEMORY, "%s: out of memory", c->path);
    for (int32_t i = 0; i < a->n_layers; i++)
        a->layer_moe[i] = (i + 1) % step == 0;
    for (size_t i = 0; i < json_array_size(dense); i++) {
        const json_t *layer = json_array_get(dense, i);
        double l = json_number_value(layer);
        if (!json_is_number(layer) || !(l >= 0 && l < a->n_layers))
            return vt_fail(c->err, VT_ERR_MODEL, "%s: \"mlp_only_layers\" names no layer of %d",
                           c->path, a->n_layers);
        a->layer_moe[(int32_t)l] = 0;
    }
    return VT_OK;
}

/* ---- the rest ---- */

static vt_status read_activation(config *c)
{
    const char *name = c->family->gemma ? "gelu_pytorch_tanh" : "silu";
    TRY(vt_read_str(c->path, c->root, "hidden_act", false, &name, c->err));
    TRY(vt_read_str(c->path, c->root, "hidden_activation", false, &name, c->err));
    if (strcmp(name, "silu") == 0)
        c->m->arch.activation = VT_ACT_SILU;
    else if (strcmp(name, "gelu_pytorch_tanh") == 0)
        c->m->arch.activation = VT_ACT_GELU_TANH;
    else
        return vt_fail(c->err, VT_ERR_UNSUPPORTED,
                       "%s: activation %.40s is not supported (silu, gelu_pytorch_tanh are)",
                       c->path, name);
    return VT_OK;
}

static vt_status read_shape(config *c)
{
    vt_arch *a = &c->m->arch;
    double eps = 1e-6;
    TRY(get_i32(c, "num_hidden_layers", true, &a->n_layers));
    if (a->n_layers < 1 || a->n_layers > 1024)
        return vt_fail(c->err, VT_ERR_MODEL, "%s: \"num_hidden_layers\" is %d (1 to 1024 allowed)",
                       c->path, a->n_layers);
    TRY(get_i32(c, "hidden_size", true, &a->hidden));
    TRY(get_i32(c, "intermediate_size", true, &a->ffn));
    TRY(get_i32(c, "num_attention_heads", true, &a->n_heads));
    if (a->n_heads < 1)
        return vt_fail(c->err, VT_ERR_MODEL, "%s: \"num_attention_heads\" is %d", c->path,
                       a->n_heads);
    a->n_kv_heads = a->n_heads;
    TRY(get_i32(c, "num_key_value_heads", strcmp(c->family->name, "llama") != 0, &a->n_kv_heads));
    if (a->n_kv_heads < 1)
        return vt_fail(c->err, VT_ERR_MODEL, "%s: \"num_key_value_heads\" is %d", c->path,
                       a->n_kv_heads);
    a->head_dim = c->family->head_dim ? c->family->head_dim : a->hidden / a->n_heads;
    TRY(get_i32(c, "head_dim", false, &a->head_dim));
    TRY(get_i32(c, "max_position_embeddings", true, &a->max_context));
    TRY(get_f64(c, "rms_norm_eps", false, &eps));
    a->norm_eps = (float)eps;
    a->tied_head = c->family->gemma;
    return get_bool(c, "tie_word_embeddings", &a->tied_head);
}

static vt_status read_gemma(config *c)
{
    vt_arch *a = &c->m->arch;
    double scalar = 256;
    bool bidirectional = false;
    a->norm_plus_one = a->post_norms = true;
    a->embed_scale = sqrtf((float)a->hidden);
    TRY(get_f64(c, "query_pre_attn_scalar", false, &scalar));
    TRY(model_check_factor(c->path, "\"query_pre_attn_scalar\"", scalar, c->err));
    a->attn_scale = (float)(1 / sqrt(scalar));
    TRY(refuse_f64(c, "attn_logit_softcapping"));
    TRY(refuse_f64(c, "final_logit_softcapping"));
    TRY(get_bool(c, "use_bidirectional_attention", &bidirectional));
    if (bidirectional)
        return vt_fail(c->err, VT_ERR_UNSUPPORTED, "%s: bidirectional attention is not supported",
                       c->path);
    return VT_OK;
}

static vt_status read_quantisation(config *c)
{
    const json_t *q = vt_read_member(c->root, "quantization_config");
    const char *method = "";
    if (!q)
        return VT_OK;
    TRY(vt_read_str(c->path, q, "quant_method", true, &method, c->err));
    if (strcmp(method, "fp8") != 0)
        return vt_fail(c->err, VT_ERR_UNSUPPORTED,
                       "%s: quantisation %.40s is not supported (fp8 is)", c->path, method);
    const json_t *block = vt_read_member(q, "weight_block_size");
    if (block &&
        (json_array_size(block) != 2 || json_number_value(json_array_get(block, 0)) != 128 ||
         json_number_value(json_array_get(block, 1)) != 128))
        return vt_fail(c->err, VT_ERR_UNSUPPORTED,
                       "%s: \"weight_block_size\" is not [128, 128], the only one supported",
                       c->path);
    c->extra->fp8 = true;
    return VT_OK;
}

static vt_status read_biases(config *c)
{
    bool attention = false;
    TRY(get_bool(c, "attention_bias", &attention));
    TRY(get_bool(c, "mlp_bias", &c->extra->mlp_bias));
    c->extra->o_bias = attention;
    c->extra->qkv_bias = attention || c->family->qkv_bias;
    return VT_OK;
}

static vt_status find_family(config *c)
{
    const char *type = "";
    TRY(vt_read_str(c->path, c->root, "model_type", true, &type, c->err));
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (strcmp(type, families[i].model_type) == 0)
            c->family = &families[i];
    if (!c->family)
        return vt_fail(
            c->err, VT_ERR_UNSUPPORTED,
            "%s: model type %.40s is not supported (llama, mistral, qwen2, qwen3, qwen3_moe, "
            "gemma3_text are)",
            c->path, type);
    snprintf(c->m->arch.family, sizeof c->m->arch.family, "%s", c->family->name);
    return VT_OK;
}

vt_status hf_config_read(const char *path, const json_t *root, vt_model *m, hf_extra *extra,
                         vt_err *err)
{
    config c = {.path = path, .root = root, .m = m, .extra = extra, .err = err};
    *extra = (hf_extra){0};
    TRY(find_family(&c));
    TRY(read_shape(&c));
    m->arch.attn_scale = (float)(1 / sqrt((double)m->arch.head_dim));
    m->arch.qk_norm = c.family->qk_norm;
    TRY(read_activation(&c));
    TRY(read_rope(&c));
    TRY(read_windows(&c));
    TRY(read_biases(&c));
    TRY(read_quantisation(&c));
    if (c.family->moe)
        TRY(read_experts(&c));
    return c.family->gemma ? read_gemma(&c) : VT_OK;
}
