/* Architecture + named tensors -> layers.
 *
 * One table has a row for each tensor of a layer: its field in vt_layer, its name in both kinds of
 * file, its shape in terms of the architecture's numbers, and which models have it. A tensor in the
 * file that has no row is an error: a fine-tune with an extra bias or an attention sink would
 * otherwise load, run and be subtly wrong.
 */
#include "model/assemble.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/quant.h"
#include "files/gguf_split.h"
#include "text/template/template.h"
#include "text/tokenizer/tokenizer.h"

enum {
    MAX_LAYERS = 1024,
    MAX_HIDDEN = 1 << 17,
    MAX_HEADS = 4096,
    MAX_HEAD_DIM = 1024,
    MAX_FFN = 1 << 20,
    MAX_VOCAB = 1 << 24,
    MAX_CONTEXT = 1 << 26,
    MAX_EXPERTS = 4096,
    MAX_EOS = 64,
};

/* ---- the table ---- */

typedef enum dim_name {
    D_NONE,
    D_HIDDEN,
    D_Q,
    D_KV,
    D_FFN,
    D_HEAD,
    D_VOCAB,
    D_EXPERTS,
    D_EXPERT_FFN
} dim_name;

typedef enum need {
    NEED, /* every model */
    MAY,  /* if the file has it */
    NEED_QK_NORM,
    NEED_POST, /* models with norms after attention and feed-forward */
    NEED_NO_POST,
    NEED_DENSE, /* layers with one feed-forward */
    MAY_DENSE,
    NEED_MOE, /* layers with experts */
} need;

typedef struct role {
    size_t field; /* of vt_layer */
    need when;
    dim_name dim[3];  /* D_NONE ends the list */
    const char *gguf; /* after "blk.N." */
    const char *hf;   /* after "model.layers.N." */
} role;

#define FIELD(name) offsetof(vt_layer, name)
/* clang-format off */
static const role layer_role[] = {
    {FIELD(attn_norm), NEED, {D_HIDDEN}, "attn_norm.weight", "input_layernorm.weight"},
    {FIELD(q), NEED, {D_Q, D_HIDDEN}, "attn_q.weight", "self_attn.q_proj.weight"},
    {FIELD(k), NEED, {D_KV, D_HIDDEN}, "attn_k.weight", "self_attn.k_proj.weight"},
    {FIELD(v), NEED, {D_KV, D_HIDDEN}, "attn_v.weight", "self_attn.v_proj.weight"},
    {FIELD(o), NEED, {D_HIDDEN, D_Q}, "attn_output.weight", "self_attn.o_proj.weight"},
    {FIELD(q_bias), MAY, {D_Q}, "attn_q.bias", "self_attn.q_proj.bias"},
    {FIELD(k_bias), MAY, {D_KV}, "attn_k.bias", "self_attn.k_proj.bias"},
    {FIELD(v_bias), MAY, {D_KV}, "attn_v.bias", "self_attn.v_proj.bias"},
    {FIELD(o_bias), MAY, {D_HIDDEN}, "attn_output.bias", "self_attn.o_proj.bias"},
    {FIELD(q_norm), NEED_QK_NORM, {D_HEAD}, "attn_q_norm.weight", "self_attn.q_norm.weight"},
    {FIELD(k_norm), NEED_QK_NORM, {D_HEAD}, "attn_k_norm.weight", "self_attn.k_norm.weight"},
    {FIELD(post_attn_norm), NEED_POST, {D_HIDDEN},
        "post_attention_norm.weight", "post_attention_layernorm.weight"},
    {FIELD(ffn_norm), NEED_POST, {D_HIDDEN}, "ffn_norm.weight", "pre_feedforward_layernorm.weight"},
    {FIELD(ffn_norm), NEED_NO_POST, {D_HIDDEN},
        "ffn_norm.weight", "post_attention_layernorm.weight"},
    {FIELD(gate), NEED_DENSE, {D_FFN, D_HIDDEN}, "ffn_gate.weight", "mlp.gate_proj.weight"},
    {FIELD(up), NEED_DENSE, {D_FFN, D_HIDDEN}, "ffn_up.weight", "mlp.up_proj.weight"},
    {FIELD(down), NEED_DENSE, {D_HIDDEN, D_FFN}, "ffn_down.weight", "mlp.down_proj.weight"},
    {FIELD(gate_bias), MAY_DENSE, {D_FFN}, "ffn_gate.bias", "mlp.gate_proj.bias"},
    {FIELD(up_bias), MAY_DENSE, {D_FFN}, "ffn_up.bias", "mlp.up_proj.bias"},
    {FIELD(down_bias), MAY_DENSE, {D_HIDDEN}, "ffn_down.bias", "mlp.down_proj.bias"},
    {FIELD(post_ffn_norm), NEED_POST, {D_HIDDEN},
        "post_ffw_norm.weight", "post_feedforward_layernorm.weight"},
    {FIELD(router), NEED_MOE, {D_EXPERTS, D_HIDDEN}, "ffn_gate_inp.weight", "mlp.gate.weight"},
    {FIELD(expert_gate), NEED_MOE, {D_EXPERTS, D_EXPERT_FFN, D_HIDDEN},
        "ffn_gate_exps.weight", "mlp.experts.gate_proj.weight"},
    {FIELD(expert_up), NEED_MOE, {D_EXPERTS, D_EXPERT_FFN, D_HIDDEN},
        "ffn_up_exps.weight", "mlp.experts.up_proj.weight"},
    {FIELD(expert_down), NEED_MOE, {D_EXPERTS, D_HIDDEN, D_EXPERT_FFN},
        "ffn_down_exps.weight", "mlp.experts.down_proj.weight"},
};
/* clang-format on */

/* FP8 matrices and their scales: "<weight's name>_scale_inv" for 128 x 128 blocks, "_scale" for
 * the whole tensor. Both multiply. */
static const struct {
    size_t weight, scale;
} scaled_role[] = {
    {FIELD(q), FIELD(q_scale)},
    {FIELD(k), FIELD(k_scale)},
    {FIELD(v), FIELD(v_scale)},
    {FIELD(o), FIELD(o_scale)},
    {FIELD(gate), FIELD(gate_scale)},
    {FIELD(up), FIELD(up_scale)},
    {FIELD(down), FIELD(down_scale)},
    {FIELD(expert_gate), FIELD(expert_gate_scale)},
    {FIELD(expert_up), FIELD(expert_up_scale)},
    {FIELD(expert_down), FIELD(expert_down_scale)},
};

/* Tensors that some programs store and that are not needed here: rotary tables (they are made from
 * the parameters), rope_freqs (it is read with the metadata), a copy of a tied head, scales of
 * statically quantised activations (activations are quantised dynamically here, or not at all) and
 * of queries. The scales of keys and values were taken before (take_kv_scale), under the names that
 * are known. */
static bool ignorable(const vt_arch *arch, const char *name)
{
    static const char *const part[] = {"rope_freqs.weight", "rotary_emb.inv_freq",
                                       ".input_scale",      ".q_scale",
                                       ".k_scale",          ".v_scale"};
    for (size_t i = 0; i < sizeof part / sizeof *part; i++)
        if (strstr(name, part[i]))
            return true;
    return arch->tied_head && strcmp(name, "lm_head.weight") == 0;
}

/* ---- finding and checking ---- */

typedef struct assembly {
    vt_model *m;
    const weight_source *src;
    uint8_t *used;                        /* [n_tensors] */
    int64_t matrix_bytes[VT_DTYPE_COUNT]; /* of the layers' tensors of rank 2 and 3 */
    vt_err *err;
} assembly;

static int64_t dim_of(const vt_arch *a, dim_name d)
{
    switch (d) {
    case D_HIDDEN:
        return a->hidden;
    case D_Q:
        return (int64_t)a->n_heads * a->head_dim;
    case D_KV:
        return (int64_t)a->n_kv_heads * a->head_dim;
    case D_FFN:
        return a->ffn;
    case D_HEAD:
        return a->head_dim;
    case D_VOCAB:
        return a->vocab;
    case D_EXPERTS:
        return a->n_experts;
    case D_EXPERT_FFN:
        return a->expert_ffn;
    case D_NONE:
        break;
    }
    return 0;
}

static void print_shape(char *out, size_t size, const int64_t *dim, int32_t rank)
{
    size_t at = 0;
    for (int32_t i = 0; i < rank && at < size; i++)
        at += (size_t)snprintf(out + at, size - at, "%s%lld", i ? ", " : "", (long long)dim[i]);
}

static bool is_float(vt_dtype t) { return t == VT_F32 || t == VT_F16 || t == VT_BF16; }

static vt_status check_tensor(const assembly *a, const vt_tensor *t, const dim_name *dims)
{
    int64_t want[3];
    int32_t rank = 0;
    while (rank < 3 && dims[rank] != D_NONE) {
        want[rank] = dim_of(&a->m->arch, dims[rank]);
        rank++;
    }
    if (t->rank != rank || memcmp(t->dim, want, (size_t)rank * sizeof *want) != 0) {
        char got_text[100], want_text[100];
        print_shape(got_text, sizeof got_text, t->dim, t->rank);
        print_shape(want_text, sizeof want_text, want, rank);
        return vt_fail(a->err, VT_ERR_MODEL, "%s: tensor %s has shape [%s]; [%s] was expected",
                       a->m->path, t->name, got_text, want_text);
    }
    bool scalable = a->src->hf_names && rank >= 2 &&
                    dims[0] != D_VOCAB; /* has a place for FP8's scale */
    bool is_vector = rank == 1 || (rank == 2 && dims[0] == D_EXPERTS); /* norms, biases, router */
    if (!is_float(t->dtype) &&
        (is_vector || (!vt_dtype_quantised(t->dtype) && !(scalable && t->dtype == VT_FP8_E4M3))))
        return vt_fail(a->err, VT_ERR_MODEL, "%s: tensor %s has type %s; %s was expected",
                       a->m->path, t->name, vt_dtype_get(t->dtype)->name,
                       is_vector ? "F32, F16 or BF16" : "a float or quantised type");
    return VT_OK;
}

static void count(assembly *a, int64_t i, bool in_layer)
{
    const vt_tensor *t = a->src->at(a->src->file, i);
    if (a->used[i])
        return;
    a->used[i] = 1;
    a->m->weight_bytes += vt_tensor_bytes(t);
    a->m->n_params += vt_tensor_elems(t);
    if (in_layer && t->rank > 1)
        a->matrix_bytes[t->dtype] += vt_tensor_bytes(t);
}

/* *out = the tensor `name` or NULL, checked, counted. */
static vt_status take(assembly *a, const char *name, const dim_name *dims, bool required,
                      const vt_tensor **out)
{
    int64_t i = a->src->find(a->src->file, name);
    if (i < 0 && required)
        return vt_fail(a->err, VT_ERR_MODEL, "%s: tensor %s is missing", a->m->path, name);
    if (i < 0)
        return VT_OK;
    const vt_tensor *t = a->src->at(a->src->file, i);
    TRY(check_tensor(a, t, dims));
    count(a, i, dims[0] != D_VOCAB);
    *out = t;
    return VT_OK;
}

/* A scale has one number for a matrix, or one for each block of it. */
static bool scale_fits(const vt_tensor *w, const vt_tensor *t, int64_t rows, int64_t cols)
{
    if (w->rank == 2 && vt_tensor_elems(t) == 1)
        return true;
    if (t->rank != w->rank || (w->rank == 3 && t->dim[0] != w->dim[0]))
        return false;
    const int64_t *dim = t->dim + w->rank - 2;
    return (dim[0] == 1 && dim[1] == 1) || (dim[0] == rows && dim[1] == cols);
}

vt_status model_check_scale(const vt_model *m, const vt_tensor *w, const char *name,
                            const vt_tensor *t, vt_err *err)
{
    int64_t rows = vt_ceil_div(w->dim[w->rank - 2], 128),
            cols = vt_ceil_div(w->dim[w->rank - 1], 128);
    if (!is_float(t->dtype) || !scale_fits(w, t, rows, cols)) {
        char shape[100];
        print_shape(shape, sizeof shape, t->dim, t->rank);
        return vt_fail(err, VT_ERR_UNSUPPORTED,
                       "%s: tensor %s has type %s and shape [%s]; one float%s or [%lld, %lld] of "
                       "them, a block of 128 x 128 each, were expected",
                       m->path, name, vt_dtype_get(t->dtype)->name, shape,
                       w->rank == 3 ? " an expert" : "", (long long)rows, (long long)cols);
    }
    const char *data = t->data;
    for (int64_t i = 0, n = vt_tensor_elems(t); i < n; i++) {
        float v;
        vt_dequant_row(t->dtype, data + vt_dtype_row_bytes(t->dtype, i), &v, 1);
        if (!isfinite(v))
            return vt_fail(err, VT_ERR_MODEL,
                           "%s: tensor %s is %g in place %lld; a finite number was expected",
                           m->path, name, (double)v, (long long)i);
    }
    return VT_OK;
}

static vt_status take_scale(assembly *a, const vt_tensor *w, const vt_tensor **out)
{
    char name[300];
    snprintf(name, sizeof name, "%s_scale_inv", w->name);
    int64_t i = a->src->find(a->src->file, name);
    if (i < 0) {
        snprintf(name, sizeof name, "%s_scale", w->name);
        i = a->src->find(a->src->file, name);
    }
    if (i < 0)
        return vt_fail(
            a->err, VT_ERR_MODEL,
            "%s: tensor %s is FP8 and has no scale: neither %s_scale_inv nor %s_scale is "
            "there",
            a->m->path, w->name, w->name, w->name);
    const vt_tensor *t = a->src->at(a->src->file, i);
    TRY(model_check_scale(a->m, w, name, t, a->err));
    count(a, i, true);
    *out = t;
    return VT_OK;
}

/* The factor of K or of V in an FP8 cache: one positive number under either name that files use for
 * it (compressed-tensors' name, or the older one beside the projection), or 1. */
static vt_status take_kv_scale(assembly *a, int32_t layer, const char *const names[2], float *out)
{
    char name[160];
    int64_t i = -1;
    *out = 1;
    for (int k = 0; k < 2 && i < 0 && a->src->hf_names; k++) {
        snprintf(name, sizeof name, "model.layers.%d.self_attn.%s", layer, names[k]);
        i = a->src->find(a->src->file, name);
    }
    if (i < 0)
        return VT_OK;
    const vt_tensor *t = a->src->at(a->src->file, i);
    float scale = 0;
    if (!is_float(t->dtype) || vt_tensor_elems(t) != 1)
        return vt_fail(a->err, VT_ERR_UNSUPPORTED,
                       "%s: tensor %s has %lld elements of type %s; one float was expected",
                       a->m->path, name, (long long)vt_tensor_elems(t),
                       vt_dtype_get(t->dtype)->name);
    vt_dequant_row(t->dtype, t->data, &scale, 1);
    if (!(scale > 0) || !isfinite(scale) || !isfinite(1 / scale))
        return vt_fail(a->err, VT_ERR_MODEL, "%s: tensor %s is %g; a positive number was expected",
                       a->m->path, name, (double)scale);
    count(a, i, true);
    *out = scale;
    return VT_OK;
}

static bool wanted(const vt_arch *a, const role *r, int32_t layer, bool *required)
{
    bool moe = a->n_experts > 0 && (!a->layer_moe || a->layer_moe[layer]);
    *required = r->when != MAY && r->when != MAY_DENSE;
    switch (r->when) {
    case NEED_QK_NORM:
        return a->qk_norm;
    case NEED_POST:
        return a->post_norms;
    case NEED_NO_POST:
        return !a->post_norms;
    case NEED_DENSE:
    case MAY_DENSE:
        return !moe;
    case NEED_MOE:
        return moe;
    default:
        return true;
    }
}

static vt_status take_layer(assembly *a, int32_t layer)
{
    char name[160];
    for (size_t i = 0; i < sizeof layer_role / sizeof *layer_role; i++) {
        const role *r = &layer_role[i];
        bool required;
        if (!wanted(&a->m->arch, r, layer, &required))
            continue;
        if (a->src->hf_names)
            snprintf(name, sizeof name, "model.layers.%d.%s", layer, r->hf);
        else
            snprintf(name, sizeof name, "blk.%d.%s", layer, r->gguf);
        const vt_tensor **slot = (const vt_tensor **)((char *)&a->m->layer[layer] + r->field);
        TRY(take(a, name, r->dim, required, slot));
    }
    char *l = (char *)&a->m->layer[layer];
    for (size_t i = 0; i < sizeof scaled_role / sizeof *scaled_role; i++) {
        const vt_tensor *w = *(const vt_tensor **)(l + scaled_role[i].weight);
        if (w && w->dtype == VT_FP8_E4M3)
            TRY(take_scale(a, w, (const vt_tensor **)(l + scaled_role[i].scale)));
    }
    vt_layer *to = &a->m->layer[layer];
    TRY(take_kv_scale(a, layer, (const char *const[]){"k_scale", "k_proj.k_scale"},
                      &to->kv_k_scale));
    TRY(take_kv_scale(a, layer, (const char *const[]){"v_scale", "v_proj.v_scale"},
                      &to->kv_v_scale));
    return VT_OK;
}

/* Takes the embedding, the final norm and the head. The embedding has one row for each token of the
 * vocabulary. */
static vt_status take_ends(assembly *a)
{
    vt_model *m = a->m;
    bool hf = a->src->hf_names;
    const char *embed = hf ? "model.embed_tokens.weight" : "token_embd.weight";
    const char *norm = hf ? "model.norm.weight" : "output_norm.weight";
    int64_t i = a->src->find(a->src->file, embed);
    if (i >= 0) {
        int64_t rows = a->src->at(a->src->file, i)->dim[0];
        if (rows > MAX_VOCAB)
            return vt_fail(a->err, VT_ERR_MODEL, "%s: tensor %s has %lld rows (at most %d allowed)",
                           m->path, embed, (long long)rows, MAX_VOCAB);
        m->arch.vocab = (int32_t)rows;
    }
    TRY(take(a, embed, (dim_name[3]){D_VOCAB, D_HIDDEN}, true, &m->embed));
    TRY(take(a, norm, (dim_name[3]){D_HIDDEN}, true, &m->final_norm));
    if (m->arch.tied_head)
        m->head = m->embed;
    else
        TRY(take(a, hf ? "lm_head.weight" : "output.weight", (dim_name[3]){D_VOCAB, D_HIDDEN}, true,
                 &m->head));
    return VT_OK;
}

static vt_status refuse_unknown(const assembly *a)
{
    for (int64_t i = 0; i < a->src->n_tensors; i++) {
        const vt_tensor *t = a->src->at(a->src->file, i);
        bool skip = a->src->skip && a->src->skip(a->src->file, i);
        if (!a->used[i] && !skip && !ignorable(&a->m->arch, t->name))
            return vt_fail(a->err, VT_ERR_MODEL,
                           "%s: tensor %s has no place in a %s model as known here", a->m->path,
                           t->name, a->m->arch.family);
    }
    return VT_OK;
}

static vt_status assemble(assembly *a)
{
    vt_model *m = a->m;
    m->layer = vt_arena_alloc(&m->arena, (size_t)m->arch.n_layers, sizeof *m->layer);
    if (!m->layer)
        return vt_fail(a->err, VT_ERR_MEMORY, "%s: out of memory", m->path);
    TRY(take_ends(a));
    for (int32_t i = 0; i < m->arch.n_layers; i++)
        TRY(take_layer(a, i));
    TRY(refuse_unknown(a));
    vt_dtype most = VT_F32;
    for (int t = 0; t < VT_DTYPE_COUNT; t++)
        if (a->matrix_bytes[t] > a->matrix_bytes[most])
            most = (vt_dtype)t;
    snprintf(m->quant, sizeof m->quant, "%s", vt_dtype_get(most)->name);
    return VT_OK;
}

vt_status model_assemble(vt_model *m, const weight_source *src, vt_err *err)
{
    TRY(arch_check(m, err));
    m->n_tensors = src->n_tensors;
    assembly a = {.m = m, .src = src, .err = err, .used = vt_calloc((size_t)src->n_tensors, 1)};
    if (!a.used)
        return vt_fail(err, VT_ERR_MEMORY, "%s: out of memory", m->path);
    vt_status status = assemble(&a);
    free(a.used);
    return status;
}

/* ---- the tensors that an architecture needs, for a model without files ---- */

static vt_status declare(vt_model *m, vt_tensor *t, vt_dtype dtype, const char *name,
                         const dim_name *dims, vt_err *err)
{
    *t = (vt_tensor){.dtype = dtype, .name = vt_arena_strdup(&m->arena, name, strlen(name))};
    while (t->rank < 3 && dims[t->rank] != D_NONE) {
        t->dim[t->rank] = dim_of(&m->arch, dims[t->rank]);
        t->rank++;
    }
    t->row_stride = t->dim[t->rank - 1];
    return t->name ? VT_OK : vt_fail(err, VT_ERR_MEMORY, "%s: out of memory", m->path);
}

vt_status model_declare(vt_model *m, vt_dtype dtype, vt_tensor **out, int64_t *n, vt_err *err)
{
    enum { N_ROLES = sizeof layer_role / sizeof *layer_role };
    vt_tensor *t = vt_arena_alloc(&m->arena, 3 + (size_t)m->arch.n_layers * N_ROLES, sizeof *t);
    char name[160];
    int64_t at = 0;
    if (!t)
        return vt_fail(err, VT_ERR_MEMORY, "%s: out of memory", m->path);
    dim_name rows[3] = {D_VOCAB, D_HIDDEN}, norm[3] = {D_HIDDEN};
    TRY(declare(m, &t[at++], dtype, "model.embed_tokens.weight", rows, err));
    for (int32_t i = 0; i < m->arch.n_layers; i++)
        for (size_t r = 0; r < N_ROLES; r++) {
            bool required;
            if (!wanted(&m->arch, &layer_role[r], i, &required) || !required)
                continue;
            snprintf(name, sizeof name, "model.layers.%d.%s", i, layer_role[r].hf);
            TRY(declare(m, &t[at++], dtype, name, layer_role[r].dim, err));
        }
    TRY(declare(m, &t[at++], dtype, "model.norm.weight", norm, err));
    if (!m->arch.tied_head)
        TRY(declare(m, &t[at++], dtype, "lm_head.weight", rows, err));
    *out = t;
    *n = at;
    return VT_OK;
}

/* ---- the architecture's numbers ---- */

vt_status model_check_factor(const char *path, const char *key, double value, vt_err *err)
{
    if (fabs(value) >= MODEL_SCALE_MIN && fabs(value) <= MODEL_SCALE_MAX)
        return VT_OK;
    return vt_fail(err, VT_ERR_MODEL, "%s: %s is %g (between %g and %g expected)", path, key, value,
                   MODEL_SCALE_MIN, MODEL_SCALE_MAX);
}

static vt_status check_rope(const vt_model *m, const vt_rope_params *r, vt_err *err)
{
    if (r->dims < 2 || r->dims % 2 != 0 || r->dims > m->arch.head_dim)
        return vt_fail(err, VT_ERR_MODEL,
                       "%s: %d rotated dimensions of a head of %d (an even number up to that was "
                       "expected)",
                       m->path, r->dims, m->arch.head_dim);
    if (!(r->base > 1 && r->base < 1e18))
        return vt_fail(err, VT_ERR_MODEL, "%s: rope base %g (more than 1 expected)", m->path,
                       r->base);
    if (r->scaling != VT_ROPE_PLAIN && !(r->factor > 0 && r->factor < 1e6))
        return vt_fail(err, VT_ERR_MODEL, "%s: rope scaling factor %g (a positive number expected)",
                       m->path, r->factor);
    if ((r->scaling == VT_ROPE_LLAMA3 || r->scaling == VT_ROPE_YARN) && r->original_context < 1)
        return vt_fail(err, VT_ERR_MODEL,
                       "%s: rope scaling needs the original context length, which is missing",
                       m->path);
    if (r->scaling == VT_ROPE_LLAMA3 &&
        !(r->low_freq_factor > 0 && r->high_freq_factor > r->low_freq_factor))
        return vt_fail(err, VT_ERR_MODEL,
                       "%s: rope low_freq_factor %g and high_freq_factor %g (0 < low < high "
                       "expected)",
                       m->path, r->low_freq_factor, r->high_freq_factor);
    if (r->scaling == VT_ROPE_YARN && !(r->beta_slow > 0 && r->beta_fast >= r->beta_slow))
        return vt_fail(err, VT_ERR_MODEL,
                       "%s: rope beta_fast %g and beta_slow %g (0 < slow <= fast expected)",
                       m->path, r->beta_fast, r->beta_slow);
    return VT_OK;
}

static vt_status check_moe(const vt_model *m, vt_err *err)
{
    const vt_arch *a = &m->arch;
    if (a->n_experts < 0 || a->n_experts > MAX_EXPERTS || a->n_experts_used < 1 ||
        a->n_experts_used > a->n_experts || a->expert_ffn < 1 || a->expert_ffn > MAX_FFN)
        return vt_fail(err, VT_ERR_MODEL,
                       "%s: %d experts of %d rows, %d used by a token, make no sense", m->path,
                       a->n_experts, a->expert_ffn, a->n_experts_used);
    return VT_OK;
}

vt_status arch_check(const vt_model *m, vt_err *err)
{
    const vt_arch *a = &m->arch;
    const struct {
        const char *name;
        int32_t value, min, max;
    } range[] = {
        {"number of layers", a->n_layers, 1, MAX_LAYERS},
        {"hidden size", a->hidden, 1, MAX_HIDDEN},
        {"number of heads", a->n_heads, 1, MAX_HEADS},
        {"number of KV heads", a->n_kv_heads, 1, MAX_HEADS},
        {"head dimension", a->head_dim, 2, MAX_HEAD_DIM},
        {"feed-forward size", a->ffn, a->n_experts ? 0 : 1, MAX_FFN},
        {"context length", a->max_context, 1, MAX_CONTEXT},
        {"sliding window", a->window, 0, MAX_CONTEXT},
    };
    for (size_t i = 0; i < sizeof range / sizeof *range; i++)
        if (range[i].value < range[i].min || range[i].value > range[i].max)
            return vt_fail(err, VT_ERR_MODEL, "%s: the %s is %d (%d to %d allowed)", m->path,
                           range[i].name, range[i].value, range[i].min, range[i].max);
    if (a->n_heads % a->n_kv_heads != 0)
        return vt_fail(err, VT_ERR_MODEL, "%s: %d heads are not a multiple of %d KV heads", m->path,
                       a->n_heads, a->n_kv_heads);
    if (a->head_dim % 2 != 0)
        return vt_fail(err, VT_ERR_MODEL, "%s: the head dimension %d is odd", m->path, a->head_dim);
    if (!(a->norm_eps > 0 && a->norm_eps < 1))
        return vt_fail(err, VT_ERR_MODEL, "%s: the norms' epsilon is %g (between 0 and 1 expected)",
                       m->path, (double)a->norm_eps);
    if (!(a->attn_scale > 0) || !isfinite(a->attn_scale))
        return vt_fail(err, VT_ERR_MODEL,
                       "%s: the attention scale is %g (a positive number expected)", m->path,
                       (double)a->attn_scale);
    if (!isfinite(a->logit_scale) || a->logit_scale == 0)
        return vt_fail(err, VT_ERR_MODEL, "%s: the logit scale is %g", m->path,
                       (double)a->logit_scale);
    TRY(check_rope(m, &a->rope, err));
    if (a->has_rope_local)
        TRY(check_rope(m, &a->rope_local, err));
    return a->n_experts ? check_moe(m, err) : VT_OK;
}

/* ---- the model itself ---- */

vt_status model_new(const char *path, vt_model **out, vt_err *err)
{
    vt_model *m = vt_calloc(1, sizeof *m);
    if (!m)
        return vt_fail(err, VT_ERR_MEMORY, "%s: out of memory", path);
    vt_arena_init(&m->arena, 0);
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/')
        len--;
    size_t begin = len;
    while (begin > 0 && path[begin - 1] != '/')
        begin--;
    size_t name_len = len - begin;
    gguf_split_name split;
    if (gguf_split_parse(path + begin, name_len, &split))
        name_len = split.prefix;
    else if (name_len > 5 && memcmp(path + len - 5, ".gguf", 5) == 0)
        name_len -= 5;
    m->path = vt_arena_strdup(&m->arena, path, strlen(path));
    m->name = vt_arena_strdup(&m->arena, path + begin, name_len);
    m->close = model_release;
    m->bos = -1;
    m->arch.embed_scale = m->arch.logit_scale = 1;
    m->gen_temperature = m->gen_top_p = m->gen_min_p = m->gen_repetition_penalty = NAN;
    m->gen_top_k = -1;
    if (!m->path || !m->name) {
        model_release(m);
        return vt_fail(err, VT_ERR_MEMORY, "%s: out of memory", path);
    }
    *out = m;
    return VT_OK;
}

static bool contains(const int32_t *ids, int32_t n, int32_t id)
{
    for (int32_t i = 0; i < n; i++)
        if (ids[i] == id)
            return true;
    return false;
}

vt_status model_set_special(vt_model *m, const int32_t *ids, int32_t n, vt_err *err)
{
    int32_t all[2 * MAX_EOS], n_all = 0;
    if (n > MAX_EOS)
        return vt_fail(err, VT_ERR_MODEL, "%s: %d end-of-text ids (at most %d allowed)", m->path, n,
                       MAX_EOS);
    if (n > 0)
        memcpy(all, ids, (size_t)n * sizeof *ids);
    n_all = n;
    if (m->tokenizer) {
        n_all += vt_tokenizer_eos_ids(m->tokenizer, all + n, MAX_EOS);
        m->bos = vt_tokenizer_bos(m->tokenizer);
        m->add_bos = vt_tokenizer_add_bos(m->tokenizer);
        int32_t vocab = vt_tokenizer_vocab(m->tokenizer);
        if (vocab > m->arch.vocab)
            return vt_fail(err, VT_ERR_MODEL,
                           "%s: the tokenizer has %d tokens, the embedding %d rows", m->path, vocab,
                           m->arch.vocab);
    }
    m->eos = vt_arena_alloc(&m->arena, (size_t)n_all, sizeof *m->eos);
    if (!m->eos)
        return vt_fail(err, VT_ERR_MEMORY, "%s: out of memory", m->path);
    for (int32_t i = 0; i < n_all; i++) {
        if (all[i] < 0 || all[i] >= m->arch.vocab)
            return vt_fail(err, VT_ERR_MODEL,
                           "%s: end-of-text id %d lies outside the vocabulary of %d", m->path,
                           all[i], m->arch.vocab);
        if (!contains(m->eos, m->n_eos, all[i]))
            m->eos[m->n_eos++] = all[i];
    }
    return VT_OK;
}

void model_release(vt_model *m)
{
    vt_tokenizer_free(m->tokenizer);
    vt_template_free(m->chat_template);
    vt_arena_release(&m->arena);
    free(m);
}
