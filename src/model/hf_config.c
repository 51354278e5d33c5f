/* config.json -> vt_arch.
 *
 * Keys that published files leave out have the defaults of the families' configuration classes in
 * transformers; keys that set a shape are required. Rope has two spellings: `rope_theta` with
 * `rope_scaling` (and `rope_local_base_freq` for Gemma), and `rope_parameters` (transformers 5),
 * which holds all of it, with one object for each kind of layer where layers differ. Sliding
 * windows have three: one `sliding_window` for all layers, `layer_types`, or the older rules that
 * layer_types replaced (read_window_rule).
 *
 * Of models that see images too, the text model is read: "text_config" has its keys.
 */
#include "model/hf_config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "files/json.h"
#include "model/assemble.h"
#include "model/family.h"

vt_status hf_read_i32(hf_reader *c, const char *key, bool required, int32_t *out)
{
    return vt_read_i32(c->path, c->root, key, required, out, c->err);
}

vt_status hf_read_f64(hf_reader *c, const char *key, bool required, double *out)
{
    return vt_read_f64(c->path, c->root, key, required, out, c->err);
}

vt_status hf_read_bool(hf_reader *c, const char *key, bool *out)
{
    return vt_read_bool(c->path, c->root, key, false, out, c->err);
}

vt_status hf_refuse_f64(hf_reader *c, const char *key)
{
    double v = 0;
    TRY(hf_read_f64(c, key, false, &v));
    if (v != 0)
        return vt_fail(c->err, VT_ERR_UNSUPPORTED, "%s: \"%s\" is %g; 0 is supported", c->path, key,
                       v);
    return VT_OK;
}

vt_status hf_refuse_flag(hf_reader *c, const char *key)
{
    bool set = false;
    TRY(hf_read_bool(c, key, &set));
    return set ? vt_fail(c->err, VT_ERR_UNSUPPORTED,
                         "%s: \"%s\" is true; false is supported for %s", c->path, key,
                         c->family->hf)
               : VT_OK;
}

vt_status hf_read_factor(hf_reader *c, const char *key, double *out)
{
    char quoted[80];
    TRY(hf_read_f64(c, key, false, out));
    snprintf(quoted, sizeof quoted, "\"%s\"", key);
    return model_check_factor(c->path, quoted, *out, c->err);
}

vt_status hf_read_cap(hf_reader *c, const char *key, float *out)
{
    double cap = json_is_null(json_object_get(c->root, key)) ? 0 : (double)*out;
    TRY(hf_read_f64(c, key, false, &cap));
    *out = (float)fabs(cap);
    return cap == 0 ? VT_OK : hf_read_factor(c, key, &cap);
}

/* ---- rope ---- */

const json_t *hf_rope_object(const hf_reader *c)
{
    const json_t *all = vt_read_member(c->root, "rope_parameters");
    all = all ? all : vt_read_member(c->root, "rope_scaling");
    return all ? all : c->own_rope;
}

static double yarn_mscale(double factor, double mscale)
{
    return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

/* Reads the context of the training, by which ropes are stretched. It may stand outside of the
 * object, and counts there; where it is missing *out stays. */
static vt_status read_original(hf_reader *c, const json_t *o, int32_t *out)
{
    static const char key[] = "original_max_position_embeddings";
    if (vt_read_member(c->root, key))
        return hf_read_i32(c, key, true, out);
    return vt_read_i32(c->path, o, key, false, out, c->err);
}

static vt_status read_yarn(hf_reader *c, const json_t *o, vt_rope_params *p)
{
    double mscale = 0, mscale_all = 0;
    p->scaling = VT_ROPE_YARN;
    p->beta_fast = 32;
    p->beta_slow = 1;
    p->yarn_truncate = true;
    p->original_context = c->m->arch.max_context;
    TRY(read_original(c, o, &p->original_context));
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

static vt_status read_llama3(hf_reader *c, const json_t *o, vt_rope_params *p)
{
    p->scaling = VT_ROPE_LLAMA3;
    p->original_context = c->m->arch.max_context;
    TRY(vt_read_f64(c->path, o, "low_freq_factor", true, &p->low_freq_factor, c->err));
    TRY(vt_read_f64(c->path, o, "high_freq_factor", true, &p->high_freq_factor, c->err));
    return read_original(c, o, &p->original_context);
}

/* One of longrope's lists of factors. */
static vt_status read_factors(hf_reader *c, const json_t *o, const char *key, int32_t n,
                              const float **out)
{
    const json_t *list = vt_read_member(o, key);
    float *f = vt_arena_alloc(&c->m->arena, (size_t)n, sizeof *f);
    if (!f)
        return vt_fail(c->err, VT_ERR_MEMORY, "%s: out of memory", c->path);
    TRY(vt_check_array(c->path, key, list, (size_t)n, c->err));
    for (int32_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, (size_t)i);
        if (!json_is_number(v))
            return vt_fail(c->err, VT_ERR_FORMAT,
                           "%s: \"%s\" holds %s in place %d; a number was expected", c->path, key,
                           vt_json_kind(v), i);
        f[i] = (float)json_number_value(v);
    }
    *out = f;
    return VT_OK;
}

/* Longrope, which older files call su, and yarn in those of Phi-3. */
static vt_status read_longrope(hf_reader *c, const json_t *o, vt_rope_params *p)
{
    p->scaling = VT_ROPE_LONGROPE;
    TRY(read_original(c, o, &p->original_context));
    if (p->dims < 2 || p->original_context < 2)
        return vt_fail(c->err, VT_ERR_MODEL,
                       "%s: longrope of %d dimensions and an \"original_max_position_embeddings\" "
                       "of %d (2 or more expected)",
                       c->path, p->dims, p->original_context);
    TRY(read_factors(c, o, "short_factor", p->dims / 2, &p->short_factor));
    TRY(read_factors(c, o, "long_factor", p->dims / 2, &p->long_factor));
    double longer = (double)c->m->arch.max_context / p->original_context;
    TRY(vt_read_f64(c->path, o, "factor", false, &longer, c->err));
    p->attn_factor = longer <= 1 ? 1 : sqrt(1 + log(longer) / log(p->original_context));
    TRY(vt_read_f64(c->path, o, "attention_factor", false, &p->attn_factor, c->err));
    return model_check_factor(c->path, "the attention factor of longrope", p->attn_factor, c->err);
}

/* Rope type dynamic where an alpha makes it independent of the length of a text: the base times
 * alpha^(dims / (dims - 2)). */
static vt_status read_alpha(hf_reader *c, const json_t *o, vt_rope_params *p)
{
    double alpha = 0;
    TRY(vt_read_f64(c->path, o, "alpha", false, &alpha, c->err));
    if (!(alpha > 0) || p->dims <= 2)
        return vt_fail(c->err, VT_ERR_UNSUPPORTED,
                       "%s: \"rope_type\" dynamic has \"alpha\" %g and %d dimensions; above 0 and "
                       "more than 2 are supported for %s",
                       c->path, alpha, p->dims, c->family->hf);
    p->base *= pow(alpha, (double)p->dims / (p->dims - 2));
    return VT_OK;
}

/* A rope_scaling object, or one of rope_parameters; NULL: nothing is scaled. */
static vt_status read_rope_object(hf_reader *c, const json_t *o, double partial, vt_rope_params *p)
{
    const char *type = "default";
    if (o && !json_is_object(o))
        return vt_fail(c->err, VT_ERR_FORMAT,
                       "%s: \"%s\", or what it holds for a kind of layers, is %s; an object was "
                       "expected",
                       c->path,
                       vt_read_member(c->root, "rope_parameters") ? "rope_parameters"
                                                                  : "rope_scaling",
                       vt_json_kind(o));
    TRY(vt_read_f64(c->path, o, "rope_theta", false, &p->base, c->err));
    TRY(vt_read_f64(c->path, o, "partial_rotary_factor", false, &partial, c->err));
    if (!(partial > 0 && partial <= 1))
        return vt_fail(c->err, VT_ERR_MODEL,
                       "%s: \"partial_rotary_factor\" is %g (above 0 and at most 1 expected)",
                       c->path, partial);
    p->dims = (int32_t)((double)p->dims * partial);
    TRY(vt_read_str(c->path, o, "type", false, &type, c->err));
    TRY(vt_read_str(c->path, o, "rope_type", false, &type, c->err));
    if (strcmp(type, "default") == 0)
        return VT_OK;
    if (strcmp(type, "proportional") == 0 && c->family->from_shape && !c->family->encoder)
        return VT_OK; /* the family goes on */
    if (strcmp(type, "dynamic") == 0 && c->family->rope_alpha)
        return read_alpha(c, o, p);
    if (strcmp(type, "longrope") == 0 || strcmp(type, "su") == 0 ||
        (strcmp(type, "yarn") == 0 && vt_read_member(o, "long_factor")))
        return read_longrope(c, o, p);
    bool linear = strcmp(type, "linear") == 0, llama3 = strcmp(type, "llama3") == 0;
    if (!linear && !llama3 && strcmp(type, "yarn") != 0)
        return vt_fail(
            c->err, VT_ERR_UNSUPPORTED,
            "%s: \"rope_type\" %.40s is not supported (default, linear, llama3, yarn, longrope "
            "are)",
            c->path, type);
    TRY(vt_read_f64(c->path, o, "factor", true, &p->factor, c->err));
    if (llama3)
        return read_llama3(c, o, p);
    if (!linear)
        return read_yarn(c, o, p);
    p->scaling = VT_ROPE_LINEAR;
    return VT_OK;
}

/* Finds the objects of the ropes: *global of all layers, or of those without a window, and *local
 * of those with one. */
static vt_status find_ropes(hf_reader *c, const json_t **global, const json_t **local)
{
    const json_t *all = vt_read_member(c->root, "rope_parameters"),
                 *scaling = vt_read_member(c->root, "rope_scaling"),
                 *full = vt_read_member(all, "full_attention");
    *global = full ? full : hf_rope_object(c);
    *local = vt_read_member(all, "sliding_attention");
    if (all && scaling && !(json_is_object(scaling) && json_object_size(scaling) == 0) &&
        !json_equal(all, scaling))
        return vt_fail(c->err, VT_ERR_UNSUPPORTED,
                       "%s: has both \"rope_parameters\" and \"rope_scaling\", and they differ",
                       c->path);
    if ((full || *local) && !c->family->rope_local)
        return vt_fail(c->err, VT_ERR_UNSUPPORTED,
                       "%s: \"rope_parameters\" has \"%s\"; a rope for some layers is not "
                       "supported for %s",
                       c->path, full ? "full_attention" : "sliding_attention", c->family->hf);
    return VT_OK;
}

static vt_status check_base(hf_reader *c, const char *key, double base)
{
    return base > 1 ? VT_OK
                    : vt_fail(c->err, VT_ERR_MODEL, "%s: \"%s\" is %g (more than 1 expected)",
                              c->path, key, base);
}

static vt_status read_rope(hf_reader *c)
{
    vt_arch *a = &c->m->arch;
    const json_t *global, *local;
    double partial = c->family->rope_partial > 0 ? c->family->rope_partial : 1;
    TRY(find_ropes(c, &global, &local));
    a->rope[0] = (vt_rope_params){.base = c->family->rope_base > 0 ? c->family->rope_base : 1e4,
                                  .dims = a->head_dim,
                                  .interleaved = c->family->hf_rope_interleaved};
    a->rope[1] = (vt_rope_params){.base = 1e4, .dims = a->head_dim};
    a->n_ropes = c->family->rope_local ? 2 : 1;
    double own = partial;
    TRY(hf_read_f64(c, "partial_rotary_factor", false, &partial));
    TRY(vt_read_f64(c->path, global, "partial_rotary_factor", false, &own, c->err));
    partial = vt_read_member(global, "partial_rotary_factor") ? own : partial;
    if (partial != 1 && !c->family->rope_partial && !c->family->rope_local)
        return vt_fail(c->err, VT_ERR_UNSUPPORTED,
                       "%s: \"partial_rotary_factor\" %g is not supported for %s", c->path, partial,
                       c->family->hf);
    TRY(hf_read_f64(c, "rope_theta", false, &a->rope[0].base));
    TRY(hf_read_f64(c, "rope_local_base_freq", false, &a->rope[1].base));
    TRY(check_base(c, "rope_local_base_freq", a->rope[1].base));
    TRY(read_rope_object(c, global, partial, &a->rope[0]));
    TRY(read_rope_object(c, local, 1, &a->rope[1]));
    TRY(check_base(c, "rope_theta", a->rope[0].base));
    return check_base(c, "rope_theta", a->rope[1].base);
}

/* ---- windows ---- */

static void set_window(hf_reader *c, int32_t layer, bool windowed)
{
    vt_heads *h = &c->m->layer[layer].head;
    h->window = windowed ? c->m->arch.window : 0;
    h->rope = windowed && c->m->arch.n_ropes > 1;
}

vt_status hf_read_layer_types(hf_reader *c, const json_t *types)
{
    const vt_arch *a = &c->m->arch;
    TRY(vt_check_array(c->path, "layer_types", types, (size_t)a->n_layers, c->err));
    for (int32_t i = 0; i < a->n_layers; i++) {
        const char *type = json_string_value(json_array_get(types, (size_t)i));
        bool windowed = type && strcmp(type, "sliding_attention") == 0;
        set_window(c, i, windowed);
        if (!windowed && (!type || strcmp(type, "full_attention") != 0))
            return vt_fail(
                c->err, VT_ERR_UNSUPPORTED,
                "%s: \"layer_types\": layer %d has type %.40s (full_attention, sliding_attention "
                "are supported)",
                c->path, i, type ? type : "(no text)");
    }
    return VT_OK;
}

static bool is_type(const char *type, const char *name) { return type && strcmp(type, name) == 0; }

vt_status hf_read_mixers(hf_reader *c, const char *name, vt_block_kind mixer)
{
    const json_t *types = vt_read_member(c->root, "layer_types");
    int32_t n = c->m->arch.n_layers;
    TRY(vt_check_array(c->path, "layer_types", types, (size_t)n, c->err));
    for (int32_t i = 0; i < n; i++) {
        const char *type = json_string_value(json_array_get(types, (size_t)i));
        if (is_type(type, name) || is_type(type, "linear_attention"))
            model_keep_state(c->m, i, mixer);
        else if (!is_type(type, "full_attention"))
            return vt_fail(c->err, VT_ERR_UNSUPPORTED,
                           "%s: \"layer_types\": layer %d has type %.40s (full_attention, %s are "
                           "supported)",
                           c->path, i, type ? type : "(no text)", name);
    }
    return VT_OK;
}

vt_status hf_read_dense_layers(hf_reader *c)
{
    vt_arch *a = &c->m->arch;
    int32_t step = 1;
    const json_t *dense = vt_read_member(c->root, "mlp_only_layers");
    TRY(hf_read_i32(c, "decoder_sparse_step", false, &step));
    if (step < 1)
        return vt_fail(c->err, VT_ERR_MODEL,
                       "%s: \"decoder_sparse_step\" is %d (1 or more expected)", c->path, step);
    for (int32_t i = 0; i < a->n_layers; i++)
        if ((i + 1) % step != 0)
            c->m->layer[i].ffn = VT_BLOCK_FFN;
    if (dense)
        TRY(vt_check_list(c->path, "mlp_only_layers", dense, c->err));
    for (size_t i = 0; i < json_array_size(dense); i++) {
        int32_t layer;
        TRY(vt_read_nth(c->path, "mlp_only_layers", dense, i, 0, a->n_layers - 1, &layer, c->err));
        c->m->layer[layer].ffn = VT_BLOCK_FFN;
    }
    return VT_OK;
}

/* Sets which layers have the window where layer_types does not say it. */
static vt_status read_window_rule(hf_reader *c)
{
    const vt_arch *a = &c->m->arch;
    int32_t pattern = c->family->window_period, first = 28;
    TRY(hf_read_i32(c, "sliding_window_pattern", false, &pattern));
    TRY(hf_read_i32(c, "max_window_layers", false, &first));
    if (pattern < 1 && c->family->window_period)
        return vt_fail(c->err, VT_ERR_MODEL,
                       "%s: \"sliding_window_pattern\" is %d (1 or more expected)", c->path,
                       pattern);
    for (int32_t i = 0; i < a->n_layers; i++)
        set_window(c, i, c->family->window_period ? (i + 1) % pattern != 0 : i >= first);
    return VT_OK;
}

static vt_status read_windows(hf_reader *c)
{
    vt_arch *a = &c->m->arch;
    bool use = c->family->window_used, given = json_object_get(c->root, "sliding_window") != NULL;
    TRY(hf_read_bool(c, "use_sliding_window", &use));
    if (!use || (given ? !vt_read_member(c->root, "sliding_window") : !c->family->window))
        return VT_OK;
    a->window = c->family->window;
    TRY(hf_read_i32(c, "sliding_window", false, &a->window));
    if (a->window < 1)
        return vt_fail(c->err, VT_ERR_MODEL, "%s: \"sliding_window\" is %d (1 or more expected)",
                       c->path, a->window);
    for (int32_t i = 0; i < a->n_layers; i++)
        set_window(c, i, true);
    if (c->family->window_all)
        return VT_OK;
    const json_t *types = vt_read_member(c->root, "layer_types");
    return types ? hf_read_layer_types(c, types) : read_window_rule(c);
}

/* ---- the rest ---- */

static vt_status read_activation(hf_reader *c)
{
    const char *name = c->family->activation ? c->family->activation : "silu", *key = "hidden_act";
    if (c->family->activation && vt_read_member(c->root, "hidden_activation"))
        key = "hidden_activation";
    TRY(vt_read_str(c->path, c->root, key, false, &name, c->err));
    if (c->family->activation && strcmp(c->family->activation, "gelu") == 0) {
        c->m->arch.activation = VT_ACT_GELU_ERF;
        return strcmp(name, "gelu") == 0
                   ? VT_OK
                   : vt_fail(c->err, VT_ERR_UNSUPPORTED,
                             "%s: \"%s\" %.40s is not supported for %s (gelu is)", c->path, key,
                             name, c->family->hf);
    }
    if (strcmp(name, "silu") == 0)
        c->m->arch.activation = VT_ACT_SILU;
    else if (strcmp(name, "gelu_pytorch_tanh") == 0)
        c->m->arch.activation = VT_ACT_GELU_TANH;
    else
        return vt_fail(c->err, VT_ERR_UNSUPPORTED,
                       "%s: \"%s\" %.40s is not supported (silu, gelu_pytorch_tanh are)", c->path,
                       key, name);
    return VT_OK;
}

static vt_status read_layer_count(hf_reader *c)
{
    int32_t *n = &c->m->arch.n_layers;
    const json_t *list = c->family->hf_layer_list
                             ? vt_read_member(c->root, c->family->hf_layer_list)
                             : NULL;
    if (json_is_array(list) && json_array_size(list) <= INT32_MAX)
        *n = (int32_t)json_array_size(list);
    return hf_read_i32(c, "num_hidden_layers", !json_is_array(list), n);
}

static vt_status read_shape(hf_reader *c)
{
    vt_arch *a = &c->m->arch;
    bool layer_norm = c->family->layer_norm;
    const char *eps_key = c->family->hf_eps ? c->family->hf_eps
                          : layer_norm      ? "layer_norm_eps"
                                            : "rms_norm_eps";
    double eps = c->family->hf_eps ? 1e-5 : layer_norm ? 1e-12 : 1e-6;
    TRY(read_layer_count(c));
    if (a->n_layers < 1 || a->n_layers > 1024)
        return vt_fail(c->err, VT_ERR_MODEL, "%s: \"num_hidden_layers\" is %d (1 to 1024 allowed)",
                       c->path, a->n_layers);
    TRY(hf_read_i32(c, "hidden_size", true, &a->hidden));
    if (c->family->hf_ffn)
        TRY(hf_read_i32(c, c->family->hf_ffn, false, &a->ffn));
    TRY(hf_read_i32(c, "intermediate_size", !c->family->experts && a->ffn == 0, &a->ffn));
    a->n_heads = c->family->n_heads;
    TRY(hf_read_i32(c, "num_attention_heads", a->n_heads == 0, &a->n_heads));
    if (a->n_heads < 1)
        return vt_fail(c->err, VT_ERR_MODEL,
                       "%s: \"num_attention_heads\" is %d (1 or more expected)", c->path,
                       a->n_heads);
    a->n_kv_heads = c->family->n_kv_heads ? c->family->n_kv_heads : a->n_heads;
    TRY(hf_read_i32(c, "num_key_value_heads",
                    !c->family->kv_heads_optional && !c->family->n_kv_heads, &a->n_kv_heads));
    if (a->n_kv_heads < 1)
        return vt_fail(c->err, VT_ERR_MODEL,
                       "%s: \"num_key_value_heads\" is %d (1 or more expected)", c->path,
                       a->n_kv_heads);
    a->head_dim = c->family->head_dim ? c->family->head_dim : a->hidden / a->n_heads;
    TRY(hf_read_i32(c, "head_dim", false, &a->head_dim));
    a->max_context = c->family->max_context;
    TRY(hf_read_i32(c, "max_position_embeddings", a->max_context == 0, &a->max_context));
    TRY(hf_read_f64(c, eps_key, false, &eps));
    if (!(eps > 0 && eps < 1))
        return vt_fail(c->err, VT_ERR_MODEL, "%s: \"%s\" is %g (between 0 and 1 expected)", c->path,
                       eps_key, eps);
    a->norm_eps = (float)eps;
    a->layer_norm = layer_norm;
    if (c->family->encoder)
        return VT_OK; /* without a head */
    a->tied_head = c->family->tied;
    TRY(vt_read_bool(c->path, c->outer, "tie_word_embeddings", false, &a->tied_head, c->err));
    return hf_read_bool(c, "tie_word_embeddings", &a->tied_head);
}

/* FP8 has a scale for each block of 128 by 128 weights, or one for a whole tensor. */
static vt_status check_block_size(hf_reader *c, const json_t *block)
{
    static const char key[] = "weight_block_size";
    char first[VT_JSON_SHOWN], second[VT_JSON_SHOWN];
    if (!block)
        return VT_OK;
    TRY(vt_check_array(c->path, key, block, 2, c->err));
    const json_t *rows = json_array_get(block, 0), *cols = json_array_get(block, 1);
    if (json_number_value(rows) == 128 && json_number_value(cols) == 128)
        return VT_OK;
    bool numbers = json_is_number(rows) && json_is_number(cols);
    return vt_fail(c->err, numbers ? VT_ERR_UNSUPPORTED : VT_ERR_FORMAT,
                   "%s: \"%s\" is [%s, %s]; [128, 128], the only one supported, was expected",
                   c->path, key, vt_json_show(rows, first), vt_json_show(cols, second));
}

/* Both known schemes run alike: activations stay BF16, or get a scale for each token and 128
 * columns. The scales of a static scheme are not read: they are no finer. */
static vt_status check_scheme(hf_reader *c, const json_t *quantisation)
{
    const char *scheme = "dynamic";
    TRY(vt_read_str(c->path, quantisation, "activation_scheme", false, &scheme, c->err));
    return strcmp(scheme, "dynamic") == 0 || strcmp(scheme, "static") == 0
               ? VT_OK
               : vt_fail(c->err, VT_ERR_UNSUPPORTED,
                         "%s: \"activation_scheme\" %.40s is not supported (dynamic and static "
                         "are)",
                         c->path, scheme);
}

static vt_status read_quantisation(hf_reader *c)
{
    const json_t *q = vt_read_member(c->outer, "quantization_config");
    const char *method = "";
    q = q ? q : vt_read_member(c->root, "quantization_config");
    if (!q)
        return VT_OK;
    TRY(vt_check_object(c->path, "quantization_config", q, c->err));
    TRY(vt_read_str(c->path, q, "quant_method", true, &method, c->err));
    if (strcmp(method, "mxfp4") == 0 && c->family->experts_transposed == VT_TRANSPOSED_IN_TURN)
        return VT_OK;
    TRY(int4_read_config(c->path, q, method, &c->extra->int4, c->err));
    if (c->extra->int4.kind != INT4_NONE)
        return VT_OK;
    if (strcmp(method, "fp8") != 0)
        return vt_fail(c->err, VT_ERR_UNSUPPORTED,
                       "%s: \"quant_method\" %.40s is not supported (fp8, awq, gptq and "
                       "compressed-tensors are)",
                       c->path, method);
    TRY(check_block_size(c, vt_read_member(q, "weight_block_size")));
    TRY(check_scheme(c, q));
    c->extra->fp8 = true;
    return VT_OK;
}

/* Decoders that were made encoders say so. */
static vt_status check_causal(hf_reader *c)
{
    bool causal = true;
    TRY(hf_read_bool(c, "is_causal", &causal));
    return causal || c->family->encoder
               ? VT_OK
               : vt_fail(c->err, VT_ERR_UNSUPPORTED,
                         "%s: \"is_causal\" is false; true is supported for %s", c->path,
                         c->family->hf);
}

static vt_status read_biases(hf_reader *c)
{
    bool attention = false;
    TRY(hf_read_bool(c, "attention_bias", &attention));
    TRY(hf_read_bool(c, "mlp_bias", &c->extra->mlp_bias));
    c->extra->o_bias = attention;
    c->extra->qkv_bias = attention;
    return VT_OK;
}

static const vt_family *family_of(const char *type)
{
    for (int i = 0; vt_families[i]; i++)
        if (vt_families[i]->hf && strcmp(type, vt_families[i]->hf) == 0)
            return vt_families[i];
    return NULL;
}

/* Fails unless "architectures", where it is there, is a list of texts: families read the first. */
static vt_status check_classes(hf_reader *c)
{
    static const char key[] = "architectures";
    const json_t *all = vt_read_member(c->outer, key);
    if (!all)
        return VT_OK;
    TRY(vt_check_list(c->path, key, all, c->err));
    for (size_t i = 0; i < json_array_size(all); i++)
        if (!json_is_string(json_array_get(all, i)))
            return vt_fail(c->err, VT_ERR_FORMAT,
                           "%s: \"%s\" holds %s in place %zu; a string was expected", c->path, key,
                           vt_json_kind(json_array_get(all, i)), i);
    return VT_OK;
}

/* Returns the family whose class of models the file names; NULL: none of those that are told so. */
static const vt_family *family_of_class(const json_t *root)
{
    const char *name = json_string_value(json_array_get(vt_read_member(root, "architectures"), 0));
    for (int i = 0; name && vt_families[i]; i++)
        if (vt_families[i]->hf_class && strcmp(name, vt_families[i]->hf_class) == 0)
            return vt_families[i];
    return NULL;
}

/* Goes on in "text_config" where that describes the model, beside parts as a vision encoder: under
 * the outer name that a family knows, or under any name whose text_config is of a family. */
static vt_status enter_text_config(hf_reader *c, const char **type)
{
    const json_t *inner = vt_read_member(c->root, "text_config");
    const char *name = NULL, *own = "";
    for (int i = 0; inner && vt_families[i]; i++)
        if (vt_families[i]->hf_outer && strcmp(*type, vt_families[i]->hf_outer) == 0)
            name = vt_families[i]->hf;
    if (!name && !family_of(*type) && json_is_object(inner)) {
        TRY(vt_read_str(c->path, inner, "model_type", false, &own, c->err));
        name = family_of(own) ? own : NULL;
    }
    if (!name)
        return VT_OK;
    TRY(vt_check_object(c->path, "text_config", inner, c->err));
    *type = name;
    c->root = inner;
    c->extra->nested = true;
    return vt_read_str(c->path, inner, "model_type", false, type, c->err);
}

static vt_status find_family(hf_reader *c)
{
    const char *type = "";
    TRY(vt_read_str(c->path, c->root, "model_type", true, &type, c->err));
    TRY(check_classes(c));
    TRY(enter_text_config(c, &type));
    const vt_family *named = family_of_class(c->outer);
    c->family = c->m->family = named ? named : family_of(type);
    if (!c->family) {
        char all[400];
        vt_family_names(false, all, sizeof all);
        return vt_fail(c->err, VT_ERR_UNSUPPORTED, "%s: model type %.40s is not supported (%s are)",
                       c->path, type, all);
    }
    snprintf(c->m->arch.family, sizeof c->m->arch.family, "%s", c->family->name);
    return VT_OK;
}

static vt_status read_all(hf_reader *c)
{
    vt_model *m = c->m;
    m->arch.attn_scale = (float)(1 / sqrt((double)m->arch.head_dim));
    TRY(model_make_layers(m, c->err));
    TRY(read_activation(c));
    if (c->family->no_rope)
        m->arch.n_ropes = 0;
    else
        TRY(read_rope(c));
    TRY(read_windows(c));
    TRY(check_causal(c));
    TRY(read_biases(c));
    TRY(read_quantisation(c));
    return c->family->from_config ? c->family->from_config(c) : VT_OK;
}

vt_status hf_config_read(const char *path, const json_t *root, vt_model *m, hf_extra *extra,
                         vt_err *err)
{
    hf_reader c = {.path = path, .root = root, .outer = root, .m = m, .extra = extra, .err = err};
    *extra = (hf_extra){0};
    TRY(find_family(&c));
    TRY(read_shape(&c));
    if (c.family->hf_rope)
        TRY(vt_read_json_text(path, c.family->hf_rope, strlen(c.family->hf_rope), &c.own_rope,
                              err));
    vt_status status = read_all(&c);
    json_decref(c.own_rope);
    return status;
}
