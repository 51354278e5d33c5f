/* A GGUF file as a model: metadata keys to the architecture's knobs.
 *
 * Keys are "<general.architecture>.<key>". What the programs that write these files assume of a
 * family, and what only one family has, stands in its file (model/families). */
#include "model/load.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/assemble.h"
#include "model/family.h"
#include "model/mtp.h"
#include "model/pooled.h"
#include "text/template/template.h"
#include "text/tokenizer/tokenizer.h"

const char *gguf_reader_key(gguf_reader *r, const char *key)
{
    snprintf(r->key, sizeof r->key, "%s.%s", r->family->gguf, key);
    return r->key;
}

vt_status gguf_read_i32(gguf_reader *r, const char *key, bool required, int32_t *out)
{
    int64_t v = *out;
    TRY(gguf_get_i64(r->file, gguf_reader_key(r, key), required, &v, r->err));
    if (v < 0 || v > INT32_MAX)
        return vt_fail(r->err, VT_ERR_MODEL, "%s: %s is %lld (0 to %d expected)", r->m->path,
                       r->key, (long long)v, INT32_MAX);
    *out = (int32_t)v;
    return VT_OK;
}

vt_status gguf_read_of_layer(gguf_reader *r, const char *key, int32_t layer, int32_t *out)
{
    const gguf_value *v = gguf_find(r->file, gguf_reader_key(r, key));
    if (!v || !v->is_array)
        return gguf_read_i32(r, key, false, out);
    int64_t n = gguf_array_i64(v, (uint64_t)layer);
    if (v->n < (uint64_t)r->m->arch.n_layers || n < 1 || n > INT32_MAX)
        return vt_fail(r->err, VT_ERR_MODEL,
                       "%s: %s has %llu elements and %lld for layer %d (a positive number for each "
                       "of %d layers expected)",
                       r->m->path, r->key, (unsigned long long)v->n, (long long)n, layer,
                       r->m->arch.n_layers);
    *out = (int32_t)n;
    return VT_OK;
}

vt_status gguf_read_f64(gguf_reader *r, const char *key, bool required, double *out)
{
    return gguf_get_f64(r->file, gguf_reader_key(r, key), required, out, r->err);
}

vt_status gguf_read_factor(gguf_reader *r, const char *key, double *out)
{
    TRY(gguf_read_f64(r, key, false, out));
    return model_check_factor(r->m->path, r->key, *out, r->err);
}

vt_status gguf_read_cap(gguf_reader *r, const char *key, float *out)
{
    double cap = (double)*out;
    TRY(gguf_read_f64(r, key, false, &cap));
    *out = (float)fabs(cap);
    return cap == 0 ? VT_OK : model_check_factor(r->m->path, r->key, cap, r->err);
}

/* ---- rope ---- */

/* Returns true if the table divides the first frequencies by 1 and the others by so much that their
 * pairs are not rotated (Gemma 4's). */
static bool read_still(vt_rope_params *p, const float *divisor)
{
    int32_t n = p->dims / 2, turning = 0, still = 0;
    while (turning < n && divisor[turning] == 1)
        turning++;
    while (turning + still < n && divisor[turning + still] >= 1e29f)
        still++;
    if (still == 0 || turning + still != n)
        return false;
    p->still = still;
    return true;
}

/* Llama 3.x files hold the result of Llama 3's rule, one divisor for each frequency, instead of its
 * parameters. All published models use the parameters below. The file's divisors are compared with
 * the rule, so that a model with other parameters is refused rather than run wrong. */
static vt_status read_rope_freqs(gguf_reader *r)
{
    const vt_tensor *t = gguf_tensor(r->file, "rope_freqs.weight");
    vt_rope_params *p = &r->m->arch.rope[0];
    if (!t)
        return VT_OK;
    if (t->rank != 1 || t->dtype != VT_F32 || t->dim[0] != p->dims / 2)
        return vt_fail(r->err, VT_ERR_MODEL, "%s: tensor rope_freqs.weight is not F32 [%d]",
                       r->m->path, p->dims / 2);
    const float *f = t->data;
    if (read_still(p, f))
        return VT_OK;
    p->scaling = VT_ROPE_LLAMA3;
    p->factor = f[t->dim[0] - 1]; /* the lowest frequency is divided by the whole factor */
    p->low_freq_factor = 1;
    p->high_freq_factor = 4;
    p->original_context = 8192;
    for (int32_t i = 0; i < p->dims / 2; i++) {
        double wavelength = 2 * M_PI * pow(p->base, 2.0 * i / p->dims);
        double turns = p->original_context / wavelength, want;
        double smooth = (turns - p->low_freq_factor) / (p->high_freq_factor - p->low_freq_factor);
        if (turns < p->low_freq_factor)
            want = p->factor;
        else if (turns > p->high_freq_factor)
            want = 1;
        else
            want = 1 / ((1 - smooth) / p->factor + smooth);
        if (!(fabs((double)f[i] - want) <= 1e-3 * want))
            return vt_fail(r->err, VT_ERR_UNSUPPORTED,
                           "%s: rope_freqs.weight[%d] is %g, Llama 3's rule gives %g; "
                           "other frequency tables are not supported",
                           r->m->path, i, (double)f[i], want);
    }
    return VT_OK;
}

/* One of longrope's lists of factors. */
static vt_status read_factors(gguf_reader *r, const char *name, const float **out)
{
    const vt_tensor *t = gguf_tensor(r->file, name);
    int32_t n = r->m->arch.rope[0].dims / 2;
    if (!t || t->rank != 1 || t->dtype != VT_F32 || t->dim[0] != n)
        return vt_fail(r->err, VT_ERR_MODEL, "%s: tensor %s is not F32 [%d]", r->m->path, name, n);
    *out = t->data;
    return VT_OK;
}

static vt_status read_longrope(gguf_reader *r)
{
    vt_rope_params *p = &r->m->arch.rope[0];
    p->scaling = VT_ROPE_LONGROPE;
    p->attn_factor = 1;
    TRY(read_factors(r, "rope_factors_short.weight", &p->short_factor));
    TRY(read_factors(r, "rope_factors_long.weight", &p->long_factor));
    TRY(gguf_read_i32(r, "rope.scaling.original_context_length", true, &p->original_context));
    return gguf_read_factor(r, "rope.scaling.attn_factor", &p->attn_factor);
}

static bool is(gguf_str s, const char *word)
{
    return s.len == strlen(word) && memcmp(s.data, word, s.len) == 0;
}

/* Refuses an amplitude of rope where nothing is stretched by it. */
static vt_status refuse_attn_factor(gguf_reader *r)
{
    double factor = 1;
    TRY(gguf_read_f64(r, "rope.scaling.attn_factor", false, &factor));
    return factor == 1 ? VT_OK
                       : vt_fail(r->err, VT_ERR_UNSUPPORTED,
                                 "%s: %s is %g; without yarn or longrope only 1 is supported",
                                 r->m->path, r->key, factor);
}

/* A file that names no type stretches linearly by its factor, which old ones call scale_linear. */
static vt_status read_rope_scaling(gguf_reader *r)
{
    vt_rope_params *p = &r->m->arch.rope[0];
    gguf_str type = {NULL, 0};
    double factor = 0;
    TRY(gguf_get_str(r->file, gguf_reader_key(r, "rope.scaling.type"), false, &type, r->err));
    if (gguf_tensor(r->file, "rope_factors_long.weight")) /* whatever the type says */
        return read_longrope(r);
    TRY(gguf_read_f64(r, "rope.scale_linear", false, &factor));
    TRY(gguf_read_f64(r, "rope.scaling.factor", type.data && !is(type, "none"), &factor));
    if (!type.data)
        type = factor == 0 || factor == 1 ? (gguf_str){"none", 4} : (gguf_str){"linear", 6};
    if (is(type, "none")) {
        TRY(refuse_attn_factor(r));
        return read_rope_freqs(r);
    }
    p->factor = factor;
    if (is(type, "linear")) {
        p->scaling = VT_ROPE_LINEAR;
        return refuse_attn_factor(r);
    }
    if (!is(type, "yarn"))
        return vt_fail(r->err, VT_ERR_UNSUPPORTED,
                       "%s: rope.scaling.type %.*s is not supported (none, linear, yarn are)",
                       r->m->path, type.len > 40 ? 40 : (int)type.len, type.data);
    p->scaling = VT_ROPE_YARN;
    p->beta_fast = 32;
    p->beta_slow = 1;
    p->yarn_truncate = true;
    double attn_factor = 1;
    TRY(gguf_read_i32(r, "rope.scaling.original_context_length", true, &p->original_context));
    TRY(gguf_read_f64(r, "rope.scaling.yarn_beta_fast", false, &p->beta_fast));
    TRY(gguf_read_f64(r, "rope.scaling.yarn_beta_slow", false, &p->beta_slow));
    TRY(gguf_read_factor(r, "rope.scaling.attn_factor", &attn_factor));
    p->attn_factor = attn_factor * (0.1 * log(p->factor) + 1);
    return VT_OK;
}

static vt_status read_rope(gguf_reader *r)
{
    vt_arch *a = &r->m->arch;
    a->rope[0].base = 10000;
    a->rope[0].dims = a->head_dim;
    a->rope[0].interleaved = r->family->rope_interleaved;
    TRY(gguf_read_f64(r, "rope.freq_base", false, &a->rope[0].base));
    if (!(a->rope[0].base > 1))
        return vt_fail(r->err, VT_ERR_MODEL, "%s: %s is %g (more than 1 expected)", r->m->path,
                       r->key, a->rope[0].base);
    TRY(gguf_read_i32(r, "rope.dimension_count", false, &a->rope[0].dims));
    return read_rope_scaling(r);
}

/* ---- windows ---- */

static void set_window(vt_model *m, int32_t layer, bool windowed)
{
    vt_heads *h = &m->layer[layer].head;
    h->window = windowed ? m->arch.window : 0;
    h->rope = h->window > 0 && m->arch.n_ropes > 1;
}

vt_status gguf_read_windows(gguf_reader *r, int32_t period)
{
    const vt_arch *a = &r->m->arch;
    const gguf_value *v = gguf_find(r->file,
                                    gguf_reader_key(r, "attention.sliding_window_pattern"));
    if (v && v->is_array) {
        if (v->type != GGUF_BOOL || v->n != (uint64_t)a->n_layers)
            return vt_fail(r->err, VT_ERR_MODEL, "%s: %s is not an array of %d bools", r->m->path,
                           r->key, a->n_layers);
        for (int32_t i = 0; i < a->n_layers; i++)
            set_window(r->m, i, v->bytes[i] != 0);
        return VT_OK;
    }
    TRY(gguf_read_i32(r, "attention.sliding_window_pattern", false, &period));
    if (period < 1)
        return vt_fail(r->err, VT_ERR_MODEL, "%s: %s is %d (1 or more expected)", r->m->path,
                       r->key, period);
    for (int32_t i = 0; i < a->n_layers; i++)
        set_window(r->m, i, i % period < period - 1);
    return VT_OK;
}

/* ---- the architecture ---- */

bool gguf_layer_has(const gguf_reader *r, const char *key, int32_t layer)
{
    char full[sizeof r->key];
    snprintf(full, sizeof full, "%s.%s", r->family->gguf, key);
    const gguf_value *v = gguf_find(r->file, full);
    return !v || !v->is_array || (uint64_t)layer >= v->n || gguf_array_i64(v, (uint64_t)layer) != 0;
}

/* *out = the number that a list has for every layer; where the family's files may have zeros, for
 * every layer that has one. */
static vt_status read_same(gguf_reader *r, const gguf_value *v, int32_t *out)
{
    bool zeros = r->family->gguf_zeros;
    int64_t found = 0;
    for (uint64_t i = 0; i < v->n; i++) {
        int64_t n = gguf_array_i64(v, i);
        if (n < 0 || n > INT32_MAX || (n == 0 && !zeros) || (n && found && n != found))
            return vt_fail(r->err, VT_ERR_UNSUPPORTED,
                           "%s: %s has %lld for layer %llu and %lld for one before it; %s",
                           r->m->path, r->key, (long long)n, (unsigned long long)i,
                           (long long)found,
                           zeros ? "0 and one other number are supported"
                                 : "one number for all layers is supported");
        found = n ? n : found;
    }
    if (v->n != (uint64_t)r->m->arch.n_layers || found == 0)
        return vt_fail(r->err, VT_ERR_MODEL,
                       "%s: %s has %llu elements, the largest %lld (%d expected, not all 0)",
                       r->m->path, r->key, (unsigned long long)v->n, (long long)found,
                       r->m->arch.n_layers);
    *out = (int32_t)found;
    return VT_OK;
}

/* A number that is there. Of a list the first where layers differ by design, else the one number
 * that it repeats: llama.cpp writes Granite 4's KV heads so, dense models' too. */
static vt_status read_first(gguf_reader *r, const char *key, int32_t *out)
{
    const gguf_value *v = gguf_find(r->file, gguf_reader_key(r, key));
    if (!v || !v->is_array)
        return gguf_read_i32(r, key, true, out);
    return r->family->experts_by_file && !r->family->gguf_zeros ? gguf_read_of_layer(r, key, 0, out)
                                                                : read_same(r, v, out);
}

static vt_status read_heads(gguf_reader *r)
{
    vt_arch *a = &r->m->arch;
    TRY(gguf_read_i32(r, "attention.head_count", true, &a->n_heads));
    a->n_kv_heads = a->n_heads;
    if (gguf_find(r->file, gguf_reader_key(r, "attention.head_count_kv")))
        TRY(read_first(r, "attention.head_count_kv", &a->n_kv_heads));
    if (a->n_heads < 1 || a->n_kv_heads < 1)
        return vt_fail(
            r->err, VT_ERR_MODEL, "%s: %s is %d (1 or more expected)", r->m->path,
            gguf_reader_key(r, a->n_heads < 1 ? "attention.head_count" : "attention.head_count_kv"),
            a->n_heads < 1 ? a->n_heads : a->n_kv_heads);
    if (!gguf_find(r->file, gguf_reader_key(r, "attention.key_length"))) {
        if (a->hidden % a->n_heads != 0)
            return vt_fail(
                r->err, VT_ERR_MODEL,
                "%s: embedding_length %d is not a multiple of attention.head_count %d, and "
                "%s is missing",
                r->m->path, a->hidden, a->n_heads, r->key);
        a->head_dim = a->hidden / a->n_heads;
    }
    int32_t value_length;
    TRY(gguf_read_i32(r, "attention.key_length", false, &a->head_dim));
    value_length = a->head_dim;
    TRY(gguf_read_i32(r, "attention.value_length", false, &value_length));
    if (value_length != a->head_dim && !r->family->latent)
        return vt_fail(r->err, VT_ERR_UNSUPPORTED,
                       "%s: %s is %d and attention.key_length %d; only equal ones are supported",
                       r->m->path, r->key, value_length, a->head_dim);
    return VT_OK;
}

/* Decoders that were made encoders say so. */
static vt_status refuse_both_ways(gguf_reader *r)
{
    bool causal = true;
    TRY(gguf_get_bool(r->file, gguf_reader_key(r, "attention.causal"), false, &causal, r->err));
    bool known = causal || r->family->encoder || strcmp(r->family->name, "gemma_embedding") == 0;
    return known ? VT_OK
                 : vt_fail(r->err, VT_ERR_UNSUPPORTED,
                           "%s: %s is false, which is not supported for %s", r->m->path, r->key,
                           r->family->gguf);
}

static vt_status refuse_experts(gguf_reader *r)
{
    int32_t n = 0;
    TRY(gguf_read_i32(r, "expert_count", false, &n));
    bool known = r->family->experts || r->family->experts_by_file;
    return n == 0 || known
               ? VT_OK
               : vt_fail(r->err, VT_ERR_UNSUPPORTED, "%s: %s is %d; 0 is supported for %s",
                         r->m->path, r->key, n, r->family->gguf);
}

/* Files of Nemotron-H call the epsilon of their RMS norms after layernorms if config.json does. */
static const char *eps_key(gguf_reader *r)
{
    static const char of_rms[] = "attention.layer_norm_rms_epsilon",
                      of_layer[] = "attention.layer_norm_epsilon";
    bool renamed = !gguf_find(r->file, gguf_reader_key(r, of_rms)) &&
                   gguf_find(r->file, gguf_reader_key(r, of_layer));
    return r->m->arch.layer_norm || renamed ? of_layer : of_rms;
}

static vt_status read_arch(gguf_reader *r)
{
    vt_arch *a = &r->m->arch;
    double eps = 0, scale;
    TRY(gguf_read_i32(r, "block_count", true, &a->n_layers));
    TRY(gguf_read_i32(r, "context_length", true, &a->max_context));
    TRY(gguf_read_i32(r, "embedding_length", true, &a->hidden));
    if (r->family->experts)
        TRY(gguf_read_i32(r, "feed_forward_length", false, &a->ffn));
    else
        TRY(read_first(r, "feed_forward_length", &a->ffn));
    a->layer_norm = r->family->layer_norm;
    TRY(gguf_read_f64(r, eps_key(r), true, &eps));
    if (!(eps > 0 && eps < 1))
        return vt_fail(r->err, VT_ERR_MODEL, "%s: %s is %g (between 0 and 1 expected)", r->m->path,
                       r->key, eps);
    a->norm_eps = (float)eps;
    TRY(refuse_both_ways(r));
    TRY(read_heads(r));
    TRY(gguf_read_i32(r, "attention.sliding_window", false, &a->window));
    scale = 1 / sqrt((double)a->head_dim);
    TRY(gguf_read_factor(r, "attention.scale", &scale));
    a->attn_scale = (float)scale;
    scale = 1;
    TRY(gguf_read_factor(r, "logit_scale", &scale));
    a->logit_scale = (float)scale;
    a->tied_head = !r->family->encoder && !gguf_tensor(r->file, "output.weight");
    TRY(refuse_experts(r));
    if (a->n_layers < 1 || a->n_layers > 1024) /* before anything is allocated per layer */
        return arch_check(r->m, r->err);
    TRY(model_make_layers(r->m, r->err));
    if (r->family->no_rope)
        a->n_ropes = 0;
    else
        TRY(read_rope(r));
    return r->family->from_gguf ? r->family->from_gguf(r) : VT_OK;
}

/* ---- tokenizer, template, ends ---- */

static vt_status read_text(gguf_reader *r)
{
    gguf_str source = {0};
    if (gguf_find(r->file, "tokenizer.ggml.model"))
        TRY(vt_tokenizer_from_gguf(r->file, &r->m->tokenizer, r->err));
    TRY(gguf_get_str(r->file, "tokenizer.chat_template", false, &source, r->err));
    if (source.data)
        TRY(vt_template_parse(r->m->path, source.data, source.len, &r->m->chat_template, r->err));
    return VT_OK;
}

static vt_status read_special(gguf_reader *r)
{
    static const char *const key[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                      "tokenizer.ggml.eom_token_id"};
    int32_t ids[3], n = 0;
    for (size_t i = 0; i < sizeof key / sizeof *key; i++) {
        int64_t id = -1;
        TRY(gguf_get_i64(r->file, key[i], false, &id, r->err));
        if (id >= r->m->arch.vocab)
            return vt_fail(r->err, VT_ERR_MODEL, "%s: %s is %lld, the vocabulary has %d tokens",
                           r->m->path, key[i], (long long)id, r->m->arch.vocab);
        if (id >= 0)
            ids[n++] = (int32_t)id;
    }
    return model_set_special(r->m, ids, n, r->err);
}

static int64_t source_find(const void *file, const char *name)
{
    const gguf_reader *r = file;
    char own[MODEL_MTP_NAME];
    const vt_tensor *t = gguf_tensor(r->file, model_mtp_name(r->m, false, name, own));
    return t ? t - r->file->tensor : -1;
}

static const vt_tensor *source_at(const void *file, int64_t i)
{
    return &((const gguf_reader *)file)->file->tensor[i];
}

static vt_status read_mtp(gguf_reader *r)
{
    int32_t n = 0;
    TRY(gguf_read_i32(r, "nextn_predict_layers", false, &n));
    TRY(model_mtp_make(r->m, r->err));
    return model_mtp_check(r->m, gguf_reader_key(r, "nextn_predict_layers"), n, r->err);
}

static vt_status read_weights(gguf_reader *r, bool mtp)
{
    int64_t parts = 1;
    if (r->file->n_tensors == 0)
        return vt_fail(r->err, VT_ERR_MODEL,
                       "%s: holds no tensors: it is a vocabulary, not a model", r->m->path);
    TRY(gguf_get_i64(r->file, "split.count", false, &parts, r->err));
    if (parts > 1 && r->file->n_parts == 0)
        return vt_fail(r->err, VT_ERR_UNSUPPORTED,
                       "%s: one of %lld parts, and the others are not open", r->m->path,
                       (long long)parts);
    TRY(read_arch(r));
    if (mtp) {
        TRY(read_mtp(r));
        TRY(model_mtp_found(r->m, source_find(r, "nextn.hnorm.weight") >= 0, r->err));
    }
    weight_source src = {
        .file = r, .n_tensors = (int64_t)r->file->n_tensors, .find = source_find, .at = source_at};
    return model_assemble(r->m, &src, r->err);
}

/* ---- loading ---- */

typedef enum part { WORDS, WEIGHTS, MTP } part; /* MTP: the weights of the MTP head alone */

static vt_status find_family(gguf_reader *r, bool weights)
{
    gguf_str arch;
    TRY(gguf_get_str(r->file, "general.architecture", true, &arch, r->err));
    for (int i = 0; vt_families[i]; i++) {
        const char *name = vt_families[i]->gguf;
        if (name && arch.len == strlen(name) && memcmp(arch.data, name, arch.len) == 0)
            r->family = r->m->family = vt_families[i];
    }
    int shown = arch.len > 30 ? 30 : (int)arch.len;
    if (r->family)
        snprintf(r->m->arch.family, sizeof r->m->arch.family, "%s", r->family->name);
    else if (weights) {
        char all[400];
        vt_family_names(true, all, sizeof all);
        return vt_fail(r->err, VT_ERR_UNSUPPORTED,
                       "%s: architecture %.*s is not supported (%s are)", r->m->path, shown,
                       arch.data, all);
    } else
        snprintf(r->m->arch.family, sizeof r->m->arch.family, "%.*s", shown, arch.data);
    return VT_OK;
}

static vt_status read_model(gguf_reader *r, part what)
{
    bool weights = what != WORDS;
    TRY(find_family(r, weights));
    if (what == MTP)
        return read_weights(r, true);
    if (weights) {
        TRY(read_weights(r, false));
        TRY(vt_pooled_read_gguf(r->m, r->file, r->family->gguf, r->err));
        TRY(read_text(r));
    } else {
        TRY(read_text(r));
        r->m->arch.vocab = r->m->tokenizer ? vt_tokenizer_vocab(r->m->tokenizer) : 0;
    }
    return read_special(r);
}

static void close_gguf(vt_model *m)
{
    gguf_file *file = m->source;
    model_release(m); /* the tokenizer may point into the file */
    gguf_close(file);
}

static vt_status from_gguf(gguf_file *file, part what, vt_model **out, vt_err *err)
{
    vt_model *m;
    vt_status status = model_new(file->path, &m, err);
    if (status != VT_OK) {
        gguf_close(file);
        return status;
    }
    m->source = file;
    m->close = close_gguf;
    m->mapped = file->view.mapped;
    gguf_reader r = {.file = file, .m = m, .err = err};
    status = read_model(&r, what);
    if (status != VT_OK) {
        close_gguf(m);
        return status;
    }
    *out = m;
    return VT_OK;
}

vt_status vt_model_from_gguf(gguf_file *file, bool weights, vt_model **out, vt_err *err)
{
    return from_gguf(file, weights ? WEIGHTS : WORDS, out, err);
}

vt_status vt_model_load_gguf_mtp(const char *path, vt_model **out, vt_err *err)
{
    gguf_file *file;
    TRY(gguf_open_parts(path, &file, err));
    return from_gguf(file, MTP, out, err);
}

vt_status vt_model_load_gguf(const char *path, bool weights, vt_model **out, vt_err *err)
{
    gguf_file *file;
    TRY(weights ? gguf_open_parts(path, &file, err) : gguf_open(path, &file, err));
    return vt_model_from_gguf(file, weights, out, err);
}
