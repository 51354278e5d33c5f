/* Architecture + named tensors -> layers.
 *
 * The table of roles (model/role.h) has each tensor's name in both kinds of file, its shape in
 * terms of the architecture's numbers, and which layers have it. A tensor in the file that has no
 * role is an error: a fine-tune with an extra bias or an attention sink would otherwise load, run
 * and be subtly wrong.
 */
#include "model/assemble.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/quant.h"
#include "files/gguf_split.h"
#include "model/eagle.h"
#include "model/family.h"
#include "model/key_heads.h"
#include "model/mtp.h"
#include "text/template/template.h"
#include "text/tokenizer/tokenizer.h"

enum {
    MAX_VOCAB = 1 << 24,
    MAX_EOS = 64,
};

/* Tensors that some programs store and that are not needed here: rotary tables (they are made from
 * the parameters), rope_freqs and longrope's factors (they are read with the metadata), a copy of a
 * tied head, scales of statically quantised activations (activations are quantised dynamically
 * here, or not at all) and of queries. The scales of keys and values were taken before
 * (take_kv_scale), under the names that are known. */
static bool ignorable(const vt_model *m, const char *name)
{
    static const char *const part[] = {"rope_freqs.weight",
                                       "rope_factors_short.weight",
                                       "rope_factors_long.weight",
                                       "rotary_emb.inv_freq",
                                       ".input_scale",
                                       ".q_scale",
                                       ".k_scale",
                                       ".v_scale"};
    for (size_t i = 0; i < sizeof part / sizeof *part; i++)
        if (strstr(name, part[i]))
            return true;
    const char *const *not_needed = m->family ? m->family->hf_ignored : NULL;
    for (; not_needed && *not_needed; not_needed++)
        if (strstr(name, *not_needed))
            return true;
    return m->arch.tied_head && strcmp(name, "lm_head.weight") == 0;
}

/* ---- finding and checking ---- */

typedef struct assembly {
    vt_model *m;
    const weight_source *src;
    uint8_t *used;                        /* [n_tensors] */
    int64_t matrix_bytes[VT_DTYPE_COUNT]; /* of the layers' tensors of rank 2 and 3 */
    vt_err *err;
} assembly;

/* Returns what a dimension is, in the layer's terms; layer -1: outside the layers. */
static int64_t dim_of(const vt_model *m, int32_t layer, vt_dim d)
{
    const vt_arch *a = &m->arch;
    const vt_heads *h = layer >= 0 ? &m->layer[layer].head : NULL;
    switch (d) {
    case VT_DIM_HIDDEN:
        return a->hidden;
    case VT_DIM_Q:
        return h ? (int64_t)h->heads * h->dim : 0;
    case VT_DIM_KV:
        return h ? (int64_t)h->kv_heads * h->dim : 0;
    case VT_DIM_FFN:
        return layer >= 0 && m->layer[layer].ffn_size ? m->layer[layer].ffn_size : a->ffn;
    case VT_DIM_HEAD:
        return h ? h->dim : 0;
    case VT_DIM_HEADS:
        return h ? h->heads : 0;
    case VT_DIM_VOCAB:
        return a->vocab;
    case VT_DIM_EXPERTS:
        return a->n_experts;
    case VT_DIM_EXPERT_FFN:
        return a->expert_ffn;
    case VT_DIM_POSITIONS:
        return a->n_positions;
    case VT_DIM_TYPES:
        return a->n_types;
    case VT_DIM_LABELS:
        return a->n_labels;
    case VT_DIM_CONV_IN:
        return 3 * (int64_t)a->hidden;
    case VT_DIM_TAPS:
        return a->conv_taps;
    case VT_DIM_Q_GATED:
        return h ? 2 * (int64_t)h->heads * h->dim : 0;
    case VT_DIM_SHARED_FFN:
        return a->shared_ffn;
    case VT_DIM_MLA_Q:
        return h ? (int64_t)h->heads * (a->mla.nope + a->mla.rope) : 0;
    case VT_DIM_MLA_Q_RANK:
        return a->mla.q_rank;
    case VT_DIM_MLA_RANK:
        return a->mla.kv_rank;
    case VT_DIM_MLA_ROW:
        return a->mla.kv_rank + a->mla.rope;
    case VT_DIM_MLA_NOPE:
        return a->mla.nope;
    case VT_DIM_MLA_V:
        return a->mla.v;
    case VT_DIM_MLA_O:
        return h ? (int64_t)h->heads * a->mla.v : 0;
    case VT_DIM_DELTA_QKV:
        return delta_channels(&a->delta);
    case VT_DIM_DELTA_V:
        return (int64_t)a->delta.v_heads * a->delta.v_dim;
    case VT_DIM_DELTA_HEADS:
        return a->delta.v_heads;
    case VT_DIM_DELTA_HEAD:
        return a->delta.v_dim;
    case VT_DIM_DELTA_RANK:
        return a->delta.gate_rank;
    case VT_DIM_MAMBA_ROWS:
        return mamba_rows(&a->mamba);
    case VT_DIM_MAMBA_CHANNELS:
        return mamba_channels(&a->mamba);
    case VT_DIM_MAMBA_HEADS:
        return a->mamba.heads;
    case VT_DIM_MAMBA_INNER:
        return mamba_inner(&a->mamba);
    case VT_DIM_ONE:
        return 1;
    case VT_DIM_PER_LAYER:
        return a->per_layer;
    case VT_DIM_PER_LAYERS:
        return (int64_t)a->per_layer * a->n_layers;
    case VT_DIM_MTP_IN:
        return 2 * (int64_t)a->hidden;
    case VT_DIM_WORDS:
        return m->eagle.is ? m->eagle.words : a->vocab;
    case VT_DIM_AUX_IN:
        return VT_AUX_LAYERS * (int64_t)m->eagle.aux_hidden;
    case VT_DIM_NONE:
        break;
    }
    return 0;
}

static void print_shape(char *out, size_t size, const int64_t *dim, int32_t rank)
{
    size_t used = 0;
    for (int32_t i = 0; i < rank; i++)
        vt_append(out, size, &used, "%s%lld", i ? ", " : "", (long long)dim[i]);
}

/* Returns true for a dimension that is a number of tokens. */
static bool is_vocabulary(vt_dim d) { return d == VT_DIM_VOCAB || d == VT_DIM_WORDS; }

static bool is_float(vt_dtype t) { return t == VT_F32 || t == VT_F16 || t == VT_BF16; }

static vt_status check_tensor(const assembly *a, int32_t layer, const vt_tensor *t,
                              const vt_dim *dims)
{
    int64_t want[3];
    int32_t rank = 0;
    while (rank < 3 && dims[rank] != VT_DIM_NONE) {
        want[rank] = dim_of(a->m, layer, dims[rank]);
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
                    !is_vocabulary(dims[0]); /* has a place for FP8's scale */
    bool is_vector = rank == 1 ||
                     (rank == 2 && (dims[0] == VT_DIM_EXPERTS || dims[0] == VT_DIM_POSITIONS ||
                                    dims[0] == VT_DIM_TYPES || dims[0] == VT_DIM_LABELS ||
                                    dims[1] == VT_DIM_TAPS)); /* stays as it is */
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

/* Returns true if a tensor has this shape but for dimensions of 1, which files may have between or
 * around the others (a convolution's [channels, 1, taps]). */
static bool is_squeezed(const vt_tensor *t, const int64_t *want, int32_t rank)
{
    int32_t at = 0;
    for (int32_t i = 0; i < t->rank; i++)
        if (at < rank && t->dim[i] == want[at])
            at++;
        else if (t->dim[i] != 1)
            return false;
    return at == rank;
}

/* Returns true for a norm of groups that the file has as a matrix, with a row for each group. */
static bool is_grouped(const vt_tensor *t, const vt_dim *dims, int64_t want)
{
    return dims[0] == VT_DIM_MAMBA_INNER && t->rank == 2 && vt_tensor_elems(t) == want;
}

/* Sets *t to a view without those dimensions, if it has any beyond the role's. */
static vt_status squeeze(assembly *a, int32_t layer, const vt_dim *dims, const vt_tensor **t)
{
    int64_t want[3];
    int32_t rank = 0;
    for (; rank < 3 && dims[rank] != VT_DIM_NONE; rank++)
        want[rank] = dim_of(a->m, layer, dims[rank]);
    if ((*t)->rank <= rank || (*t)->matrix ||
        !(is_squeezed(*t, want, rank) || (rank == 1 && is_grouped(*t, dims, want[0]))))
        return VT_OK;
    vt_tensor *view = vt_arena_alloc(&a->m->arena, 1, sizeof *view);
    if (!view)
        return vt_fail(a->err, VT_ERR_MEMORY, "%s: out of memory", a->m->path);
    *view = **t;
    view->rank = rank;
    memcpy(view->dim, want, (size_t)rank * sizeof *want);
    view->row_stride = want[rank - 1];
    *t = view;
    return VT_OK;
}

static vt_status missing(const assembly *a, const char *name)
{
    char own[MODEL_MTP_NAME];
    name = a->m->eagle.names ? model_eagle_name(a->m->eagle.names, name, own)
                             : model_mtp_name(a->m, a->src->hf_names, name, own);
    return vt_fail(a->err, VT_ERR_MODEL, "%s: tensor %s is missing", a->m->path, name);
}

/* *out = the tensor `name` or NULL, checked, counted. */
static vt_status take(assembly *a, int32_t layer, const char *name, const vt_dim *dims,
                      bool required, const vt_tensor **out)
{
    int64_t i = a->src->find(a->src->file, name);
    if (i < 0 && required)
        return missing(a, name);
    if (i < 0)
        return VT_OK;
    const vt_tensor *t = a->src->at(a->src->file, i);
    TRY(squeeze(a, layer, dims, &t));
    TRY(check_tensor(a, layer, t, dims));
    count(a, i, !is_vocabulary(dims[0]));
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

/* Returns false for roles that are stacked, or outside the layers. */
static bool in_layers(vt_role role)
{
    const vt_role_row *r = &vt_roles[role];
    return r->gguf && (r->block != VT_BLOCK_NONE || r->norm);
}

/* Returns true for roles that belong to embeddings for each layer. */
static bool is_per_layer(vt_role role)
{
    return (role >= VT_ROLE_PER_LAYER && role <= VT_ROLE_PER_LAYER_NORM) ||
           (role >= VT_ROLE_PER_LAYER_GATE && role <= VT_ROLE_PER_LAYER_POST_NORM);
}

/* Returns true for the norms around a block that the layer does not have. */
static bool norms_nothing(const vt_layer *l, vt_role role)
{
    bool mixer = role == VT_ROLE_ATTN_NORM || role == VT_ROLE_POST_ATTN_NORM ||
                 role == VT_ROLE_POST_ATTN_NORM_BIAS;
    return vt_roles[role].norm && (mixer ? l->mixer : l->ffn) == VT_BLOCK_NONE;
}

/* Returns true for roles that a layer may have. *required: it must have it. */
static bool wanted(const vt_model *m, int32_t layer, vt_role role, bool *required)
{
    const vt_layer *l = &m->layer[layer];
    const vt_role_row *r = &vt_roles[role];
    const vt_family_role *own = vt_family_role_of(m->family, role);
    vt_need need = own ? own->need : r->need;
    *required = need != VT_NEED_NOT;
    if (!in_layers(role))
        return false;
    bool here = r->block == VT_BLOCK_NONE || r->block == l->mixer || r->block == l->ffn ||
                (r->other && r->other == l->ffn);
    if ((r->kv && l->kv_of != layer) || norms_nothing(l, role))
        return false;
    if (role == VT_ROLE_ATTN_NORM && layer == 0 && m->family && m->family->first_unnormed)
        return false;
    if ((is_per_layer(role) && m->arch.per_layer == 0) || (role == VT_ROLE_V && l->head.v_of_k))
        return false;
    if (role >= VT_ROLE_MLA_Q && role <= VT_ROLE_MLA_Q_B &&
        (role == VT_ROLE_MLA_Q) != (m->arch.mla.q_rank == 0))
        return false;
    return need != VT_NEED_BY_FAMILY && here && (!r->norm || l->norms & r->norm);
}

/* Writes what stands in front of a layer's names. */
static void layer_prefix(const vt_model *m, int32_t layer, bool hf, char *out, size_t size)
{
    snprintf(out, size, "%s%d.", hf ? vt_family_layers(m->family) : "blk.", layer);
}

/* Writes the name that a role's tensor has in the file; layer -1: outside the layers. */
static void role_name(const vt_model *m, int32_t layer, vt_role role, bool hf, char *out,
                      size_t size)
{
    const vt_role_row *r = &vt_roles[role];
    const vt_family_role *own = vt_family_role_of(m->family, role);
    const char *usual = hf ? r->hf : r->gguf, *name = own ? (hf ? own->hf : own->gguf) : NULL;
    char front[80] = "";
    if (layer >= 0)
        layer_prefix(m, layer, hf, front, sizeof front);
    snprintf(out, size, "%s%s", front, name ? name : usual);
}

/* Returns the shape that a role's tensor has in layers. */
static const vt_dim *role_dims(const vt_model *m, vt_role role)
{
    const vt_family_role *own = vt_family_role_of(m->family, role);
    return own && own->dim[0] != VT_DIM_NONE ? own->dim : vt_roles[role].dim;
}

/* Returns the rows that a role's matrix has in the layer; of experts, that each of them has. */
static int64_t rows_of(const vt_model *m, int32_t layer, vt_role role)
{
    return dim_of(m, layer, role_dims(m, role)[vt_roles[role].kind == VT_KIND_EXPERTS]);
}

/* Makes views of the rows of t that are the weights of a stack. */
static vt_status split_stack(assembly *a, int32_t layer, const vt_family_stack *s,
                             const vt_tensor *t)
{
    vt_layer *l = &a->m->layer[layer];
    vt_tensor *view = vt_arena_alloc(&a->m->arena, (size_t)s->n, sizeof *view);
    char *data = t->data;
    if (!view)
        return vt_fail(a->err, VT_ERR_MEMORY, "%s: out of memory", a->m->path);
    for (int32_t k = 0; k < s->n; k++) {
        int64_t rows = rows_of(a->m, layer, (vt_role)((int32_t)s->first + k));
        view[k] = vt_tensor_2d(data, t->dtype, rows, t->dim[1]);
        view[k].name = t->name;
        l->weight[(int32_t)s->first + k] = &view[k];
        data += data ? rows * vt_dtype_row_bytes(t->dtype, t->dim[1]) : 0;
    }
    return VT_OK;
}

/* Makes the gates and ups of a layer's experts of a tensor [experts, 2 ffn, hidden] in which each
 * expert's gate stands before its up. */
static vt_status split_experts(assembly *a, int32_t layer, const vt_family_stack *s, int64_t index,
                               int64_t rows)
{
    vt_model *m = a->m;
    const vt_tensor *t = a->src->at(a->src->file, index);
    int64_t n = m->arch.n_experts, bytes = vt_dtype_row_bytes(t->dtype, rows * t->dim[2]);
    if (t->dim[0] != n || t->dim[1] != 2 * rows || t->dim[2] != m->arch.hidden ||
        (!is_float(t->dtype) && !vt_dtype_quantised(t->dtype)))
        return vt_fail(
            a->err, VT_ERR_MODEL,
            "%s: tensor %s has shape [%lld, %lld, %lld] and type %s; [%lld, %lld, %d] of "
            "a float or quantised type was expected",
            m->path, t->name, (long long)t->dim[0], (long long)t->dim[1], (long long)t->dim[2],
            vt_dtype_get(t->dtype)->name, (long long)n, (long long)(2 * rows), m->arch.hidden);
    for (int32_t p = 0; p < s->n; p++) {
        vt_tensor *view = vt_arena_alloc(&m->arena, 1, sizeof *view);
        void **matrix = vt_arena_alloc(&m->arena, (size_t)n, sizeof *matrix);
        if (!view || !matrix)
            return vt_fail(a->err, VT_ERR_MEMORY, "%s: out of memory", m->path);
        for (int64_t e = 0; e < n; e++)
            matrix[e] = t->data ? (char *)t->data + (2 * e + p) * bytes : NULL;
        *view = *t;
        view->data = matrix[0];
        view->dim[1] = rows;
        view->matrix = matrix;
        m->layer[layer].weight[(int32_t)s->first + p] = view;
    }
    count(a, index, true);
    return VT_OK;
}

/* Takes a matrix of the file that holds several weights of the layer, if it is there. */
static vt_status take_stack(assembly *a, int32_t layer, const vt_family_stack *s)
{
    char front[80], name[160];
    const vt_model *m = a->m;
    const char *last = a->src->hf_names ? s->hf : s->gguf;
    vt_block_kind block = vt_roles[s->first].block;
    int64_t rows = 0;
    if (!last)
        return VT_OK;
    layer_prefix(m, layer, a->src->hf_names, front, sizeof front);
    snprintf(name, sizeof name, "%s%s", front, last);
    int64_t i = a->src->find(a->src->file, name);
    if (i < 0 || (m->layer[layer].mixer != block && m->layer[layer].ffn != block))
        return VT_OK;
    const vt_tensor *t = a->src->at(a->src->file, i);
    for (int32_t k = 0; k < s->n; k++) {
        vt_role role = (vt_role)((int32_t)s->first + k);
        const char *usual = a->src->hf_names ? vt_roles[role].hf : vt_roles[role].gguf;
        if (strcmp(usual, last) == 0 && t->dim[0] == rows_of(m, layer, role))
            return VT_OK; /* this weight alone */
        rows += rows_of(m, layer, role);
    }
    if (t->rank == 3)
        return split_experts(a, layer, s, i, rows / s->n);
    if (t->rank != 2 || t->dim[0] != rows || t->dim[1] != m->arch.hidden)
        return vt_fail(a->err, VT_ERR_MODEL,
                       "%s: tensor %s has shape [%lld, %lld]; [%lld, %d] was expected", m->path,
                       name, (long long)t->dim[0], (long long)t->dim[1], (long long)rows,
                       m->arch.hidden);
    count(a, i, true);
    if (s->by_key_head) {
        const vt_tensor *scale = NULL;
        if (a->src->make) /* its rows are copied */
            TRY(a->src->make(a->src->file, i, a->err));
        if (t->dtype == VT_FP8_E4M3 && a->src->hf_names)
            TRY(take_scale(a, t, &scale));
        return model_take_key_heads(a->m, layer, s->first, t, scale, a->err);
    }
    if (!is_float(t->dtype) && !vt_dtype_quantised(t->dtype))
        return vt_fail(a->err, VT_ERR_UNSUPPORTED,
                       "%s: tensor %s, which holds several matrices, has type %s; a float or "
                       "quantised type was expected",
                       m->path, name, vt_dtype_get(t->dtype)->name);
    return split_stack(a, layer, s, t);
}

static vt_status take_layer(assembly *a, int32_t layer)
{
    char name[160];
    vt_layer *l = &a->m->layer[layer];
    const vt_family *f = a->m->family;
    for (int32_t i = 0; f && i < f->n_stacks; i++)
        TRY(take_stack(a, layer, &f->stacks[i]));
    for (int r = 0; r < VT_ROLES; r++) {
        bool required;
        if (l->weight[r] || !wanted(a->m, layer, (vt_role)r, &required))
            continue;
        role_name(a->m, layer, (vt_role)r, a->src->hf_names, name, sizeof name);
        TRY(take(a, layer, name, role_dims(a->m, (vt_role)r), required, &l->weight[r]));
    }
    for (int r = 0; r < VT_ROLES; r++)
        if (l->weight[r] && l->weight[r]->dtype == VT_FP8_E4M3 && !l->scale[r])
            TRY(take_scale(a, l->weight[r], &l->scale[r]));
    TRY(take_kv_scale(a, layer, (const char *const[]){"k_scale", "k_proj.k_scale"},
                      &l->kv_k_scale));
    return take_kv_scale(a, layer, (const char *const[]){"v_scale", "v_proj.v_scale"},
                         &l->kv_v_scale);
}

/* The tensors that are no layer's, in the order of a forward pass. */
static const vt_role end_role[] = {VT_ROLE_EMBED,           VT_ROLE_POSITIONS,
                                   VT_ROLE_TYPES,           VT_ROLE_EMBED_NORM,
                                   VT_ROLE_EMBED_NORM_BIAS, VT_ROLE_PER_LAYER,
                                   VT_ROLE_PER_LAYER_IN,    VT_ROLE_PER_LAYER_NORM,
                                   VT_ROLE_MTP_EMBED_NORM,  VT_ROLE_MTP_HIDDEN_NORM,
                                   VT_ROLE_MTP_IN,          VT_ROLE_AUX_IN,
                                   VT_ROLE_FINAL_NORM,      VT_ROLE_HEAD,
                                   VT_ROLE_RANK_DENSE,      VT_ROLE_RANK_DENSE_BIAS,
                                   VT_ROLE_RANK_OUT,        VT_ROLE_RANK_OUT_BIAS};
enum { END_ROLES = sizeof end_role / sizeof *end_role };

/* Returns true for roles that the model may have outside its layers. *required: it must. */
static bool end_wanted(const vt_model *m, vt_role role, bool *required)
{
    const vt_family_role *own = vt_family_role_of(m->family, role);
    vt_need need = own ? own->need : vt_roles[role].need;
    *required = need == VT_NEED_ALWAYS;
    if (role >= VT_ROLE_RANK_DENSE && role <= VT_ROLE_RANK_OUT_BIAS && m->arch.n_labels == 0)
        return false;
    if (is_per_layer(role) && m->arch.per_layer == 0)
        return false;
    if (role >= VT_ROLE_MTP_EMBED_NORM && role <= VT_ROLE_MTP_IN && !vt_model_is_head(m))
        return false;
    if ((role == VT_ROLE_MTP_IN || role == VT_ROLE_AUX_IN) &&
        m->eagle.is != (role == VT_ROLE_AUX_IN))
        return false;
    return need != VT_NEED_BY_FAMILY && !(role == VT_ROLE_HEAD && m->arch.tied_head);
}

static const vt_tensor **end_at(vt_model *m, vt_role role)
{
    switch (role) {
    case VT_ROLE_EMBED:
        return &m->embed;
    case VT_ROLE_POSITIONS:
        return &m->positions;
    case VT_ROLE_TYPES:
        return &m->types;
    case VT_ROLE_EMBED_NORM:
        return &m->embed_norm;
    case VT_ROLE_EMBED_NORM_BIAS:
        return &m->embed_norm_bias;
    case VT_ROLE_PER_LAYER:
        return &m->per_layer;
    case VT_ROLE_PER_LAYER_IN:
        return &m->per_layer_in;
    case VT_ROLE_PER_LAYER_NORM:
        return &m->per_layer_norm;
    case VT_ROLE_MTP_EMBED_NORM:
        return &m->mtp.embed_norm;
    case VT_ROLE_MTP_HIDDEN_NORM:
        return &m->mtp.hidden_norm;
    case VT_ROLE_MTP_IN:
        return &m->mtp.in;
    case VT_ROLE_AUX_IN:
        return &m->aux.in;
    case VT_ROLE_FINAL_NORM:
        return &m->final_norm;
    case VT_ROLE_RANK_DENSE:
        return &m->ranker.dense;
    case VT_ROLE_RANK_DENSE_BIAS:
        return &m->ranker.dense_bias;
    case VT_ROLE_RANK_OUT:
        return &m->ranker.out;
    case VT_ROLE_RANK_OUT_BIAS:
        return &m->ranker.out_bias;
    default:
        return &m->head;
    }
}

/* *out = the rows of a role's tensor, one for each token of a vocabulary; as it was where the files
 * have none. */
static vt_status take_vocabulary(assembly *a, vt_role role, int32_t *out)
{
    char name[160];
    role_name(a->m, -1, role, a->src->hf_names, name, sizeof name);
    int64_t i = a->src->find(a->src->file, name);
    if (i < 0)
        return VT_OK;
    int64_t rows = a->src->at(a->src->file, i)->dim[0];
    if (rows > MAX_VOCAB)
        return vt_fail(a->err, VT_ERR_MODEL, "%s: tensor %s has %lld rows (at most %d allowed)",
                       a->m->path, name, (long long)rows, MAX_VOCAB);
    *out = (int32_t)rows;
    return VT_OK;
}

/* Takes the embedding and what is beside it, the final norm and the head. The embedding has one row
 * for each token of the vocabulary; of an EAGLE-3 head the output matrix has. */
static vt_status take_ends(assembly *a)
{
    vt_model *m = a->m;
    char name[160];
    TRY(take_vocabulary(a, VT_ROLE_EMBED, m->eagle.is ? &m->eagle.words : &m->arch.vocab));
    if (m->eagle.is)
        TRY(take_vocabulary(a, VT_ROLE_HEAD, &m->arch.vocab));
    for (int k = 0; k < END_ROLES; k++) {
        bool required;
        if (!end_wanted(m, end_role[k], &required))
            continue;
        role_name(m, -1, end_role[k], a->src->hf_names, name, sizeof name);
        TRY(take(a, -1, name, role_dims(m, end_role[k]),
                 required && !(end_role[k] == VT_ROLE_HEAD && a->src->headless),
                 end_at(m, end_role[k])));
    }
    if (m->arch.tied_head)
        m->head = m->embed;
    const vt_tensor *in = m->mtp.in ? m->mtp.in : m->aux.in;
    if (in && in->dtype == VT_FP8_E4M3)
        return vt_fail(a->err, VT_ERR_UNSUPPORTED,
                       "%s: tensor %s has type FP8; another float or quantised type was expected",
                       m->path, in->name);
    return VT_OK;
}

/* Returns the name of the part of the model that tensor i belongs to if it is one that is not run;
 * NULL: it is of no such part. */
static const char *part_not_run(const assembly *a, int64_t i, const char *name)
{
    const vt_family *f = a->m->family;
    if (f && f->skips && f->skips(a->m, name))
        return f->skipped;
    bool beside = a->src->beside && a->src->beside(a->src->file, i);
    return beside ? "what stands beside the text model" : NULL;
}

/* Tensors without a place are refused, but for those of parts that are not run. */
static vt_status refuse_unknown(const assembly *a)
{
    for (int64_t i = 0; i < a->src->n_tensors; i++) {
        const vt_tensor *t = a->src->at(a->src->file, i);
        if (a->used[i] || (a->src->skip && a->src->skip(a->src->file, i)) ||
            !model_mtp_owns(a->m, t->name))
            continue;
        const char *part = a->m->mtp.behind ? NULL : part_not_run(a, i, t->name);
        if (part) {
            a->m->skipped = part;
            a->m->skipped_bytes += vt_tensor_bytes(t);
        } else if (!ignorable(a->m, t->name)) {
            return vt_fail(a->err, VT_ERR_MODEL,
                           "%s: tensor %s has no place in a %s model as known here", a->m->path,
                           t->name, a->m->arch.family);
        }
    }
    return VT_OK;
}

/* Numbers the groups of layers whose keys and values have one shape, and are wanted as long: all of
 * them, or those in a window. */
static vt_status group_layers(vt_model *m, vt_err *err)
{
    const vt_heads *group[VT_KV_GROUPS];
    int16_t n = 0, g;
    for (int32_t i = 0; i < m->arch.n_layers; i++) {
        vt_layer *l = &m->layer[i];
        const vt_heads *h = &l->head;
        if (l->kv_of != i)
            l->kv_group = m->layer[l->kv_of].kv_group;
        if (!vt_layer_attends(l) || l->kv_of != i)
            continue; /* it keeps nothing: its group would have no layers */
        for (g = 0;
             g < n && (group[g]->kv_heads != h->kv_heads || group[g]->dim != h->dim ||
                       group[g]->v_dim != h->v_dim || (group[g]->window > 0) != (h->window > 0));
             g++)
            ;
        if (g == VT_KV_GROUPS)
            return vt_fail(err, VT_ERR_UNSUPPORTED,
                           "%s: the keys and values of its layers have more than %d shapes",
                           m->path, VT_KV_GROUPS);
        if (g == n)
            group[n++] = h;
        l->kv_group = g;
    }
    return VT_OK;
}

static vt_status assemble(assembly *a)
{
    vt_model *m = a->m;
    TRY(group_layers(m, a->err));
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
    if (!m->layer)
        TRY(model_make_layers(m, err));
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

static vt_status declare(vt_model *m, int32_t layer, vt_tensor *t, vt_dtype dtype, const char *name,
                         const vt_dim *dims, vt_err *err)
{
    *t = (vt_tensor){.dtype = dtype, .name = vt_arena_strdup(&m->arena, name, strlen(name))};
    while (t->rank < 3 && dims[t->rank] != VT_DIM_NONE) {
        t->dim[t->rank] = dim_of(m, layer, dims[t->rank]);
        t->rank++;
    }
    t->row_stride = t->dim[t->rank - 1];
    return t->name ? VT_OK : vt_fail(err, VT_ERR_MEMORY, "%s: out of memory", m->path);
}

vt_status model_declare(vt_model *m, vt_dtype dtype, vt_tensor **out, int64_t *n, vt_err *err)
{
    vt_tensor *t = vt_arena_alloc(&m->arena, END_ROLES + (size_t)m->arch.n_layers * VT_ROLES,
                                  sizeof *t);
    char name[160];
    int64_t at = 0;
    if (!t)
        return vt_fail(err, VT_ERR_MEMORY, "%s: out of memory", m->path);
    if (!m->layer)
        TRY(model_make_layers(m, err));
    for (int k = 0; k < END_ROLES; k++) {
        bool required;
        if (!end_wanted(m, end_role[k], &required) || !required)
            continue;
        role_name(m, -1, end_role[k], true, name, sizeof name);
        TRY(declare(m, -1, &t[at++], dtype, name, role_dims(m, end_role[k]), err));
    }
    for (int32_t i = 0; i < m->arch.n_layers; i++)
        for (int r = 0; r < VT_ROLES; r++) {
            bool required;
            if (!wanted(m, i, (vt_role)r, &required) || !required)
                continue;
            role_name(m, i, (vt_role)r, true, name, sizeof name);
            TRY(declare(m, i, &t[at++], dtype, name, role_dims(m, (vt_role)r), err));
        }
    *out = t;
    *n = at;
    return VT_OK;
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
    m->arch.embed_scale = m->arch.residual_scale = m->arch.logit_scale = 1;
    m->arch.n_ropes = 1;
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
        return vt_fail(err, VT_ERR_MODEL, "%s: %d ids in eos_token_id (at most %d allowed)",
                       m->path, n, MAX_EOS);
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
                           "%s: the tokenizer has %d tokens, more than the embedding (vocab_size) "
                           "has rows: %d",
                           m->path, vocab, m->arch.vocab);
    }
    m->eos = vt_arena_alloc(&m->arena, (size_t)n_all, sizeof *m->eos);
    if (!m->eos)
        return vt_fail(err, VT_ERR_MEMORY, "%s: out of memory", m->path);
    for (int32_t i = 0; i < n_all; i++) {
        if (all[i] < 0 || all[i] >= m->arch.vocab)
            return vt_fail(err, VT_ERR_MODEL,
                           "%s: eos_token_id %d lies outside the vocabulary of %d tokens", m->path,
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
