/* A Hugging Face folder as a model.
 *
 *   config.json                          -> architecture (hf_config.c)
 *   model.safetensors or its index.json  -> weights, mapped
 *   tokenizer.json, tokenizer_config.json, chat_template.jinja -> tokenizer and template
 *                                           (folder/text.c)
 *   generation_config.json               -> end-of-text ids and sampling defaults
 *   modules.json and what it names       -> pooling and prompts (pooled.c)
 *
 * Folders store each expert as a tensor of its own; the engine takes [experts, out, in]. The
 * experts of a layer become one tensor with a pointer to each matrix, wherever they lie in the
 * files: no weight is copied, and none is read while loading but for FP8 scales, which are copied
 * together and checked for NaN. Packed 4-bit matrices are made anew where weights are wanted
 * (int4/int4.h), and experts that files hold transposed are copied (folder/turned.h).
 *
 * The folder is written by a stranger: each JSON file has a limit. Small ones are read by jansson
 * (1 MiB: 80 MB of memory at worst), long ones by the flat parser.
 */
#include "model/load.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "files/json.h"
#include "files/map.h"
#include "files/safetensors.h"
#include "model/assemble.h"
#include "model/eagle.h"
#include "model/family.h"
#include "model/folder/text.h"
#include "model/folder/turned.h"
#include "model/hf_config.h"
#include "model/int4/int4.h"
#include "model/latent.h"
#include "model/mtp.h"
#include "model/pooled.h"
#include "text/tokenizer/tokenizer.h"

enum {
    MAX_CONFIG = 1 << 20,
    MAX_EOS = 64,
    EXPERT_NAME = 128,
};

/* All tensors as model_assemble sees them: those of the files, the matrices that packed 4-bit
 * weights become, the stacked experts. */
typedef struct folder_source {
    st_set *set;
    int4_set *int4;     /* NULL: the folder has none */
    int64_t n_own;      /* tensors of the files and of int4 */
    vt_tensor *stacked; /* [n_stacked] */
    name_entry *stacked_index;
    int64_t n_stacked;
    uint8_t *absorbed;   /* [n_own] 1: part of a stack, or of a packed matrix */
    const char *prefix;  /* what names have in the place of "model."; "": a model without a head */
    bool nested;         /* the files hold other models too */
    const char *encoder; /* an encoder's: what stands in front of all names; NULL: no encoder */
    vt_model *m;         /* whose they are */
} folder_source;

typedef enum part { WORDS, WEIGHTS, MTP } part; /* MTP: the weights of the MTP head alone */

typedef struct loader {
    vt_model *m;
    const char *folder;
    folder_source *src;
    hf_extra extra;
    vt_err *err;
} loader;

/* Returns the index of the tensor that the folder has under this name; -1: none. */
static int64_t find_own(const folder_source *s, const char *name)
{
    int64_t i = int4_index(s->int4, name);
    return i >= 0 ? s->set->n_tensors + i : st_find(s->set, name);
}

static const vt_tensor *own_at(const folder_source *s, int64_t i)
{
    return i < s->set->n_tensors ? s->set->tensor[i] : int4_at(s->int4, i - s->set->n_tensors);
}

/* Writes folder/name to `out`; true if that file exists. */
static bool has_file(const loader *l, const char *name, char *out, size_t size)
{
    struct stat st;
    return (size_t)snprintf(out, size, "%s/%s", l->folder, name) < size && stat(out, &st) == 0;
}

static vt_status no_memory(const loader *l)
{
    return vt_fail(l->err, VT_ERR_MEMORY, "%s: out of memory", l->folder);
}

/* ---- experts ---- */

static const char *const projection[3] = {"gate_proj", "up_proj", "down_proj"};

/* Returns the index in the files of an encoder's tensor; -1: none. Names may have a prefix, and
 * older files call the weight and the bias of a LayerNorm gamma and beta. */
static int64_t find_renamed(const folder_source *s, const char *name)
{
    if (strncmp(name, "classifier.", 11) == 0) /* it stands beside the encoder */
        return find_own(s, name);
    static const char *const old[2][2] = {{"LayerNorm.weight", "gamma"},
                                          {"LayerNorm.bias", "beta"}};
    char full[EXPERT_NAME];
    size_t len = (size_t)snprintf(full, sizeof full, "%s%s", s->encoder, name);
    int64_t i = find_own(s, full);
    for (int k = 0; k < 2 && i < 0 && len < sizeof full; k++) {
        size_t end = strlen(old[k][0]), norm = strlen("LayerNorm.");
        if (len < end || strcmp(full + len - end, old[k][0]) != 0)
            continue;
        snprintf(full + len - end + norm, sizeof full - (len - end + norm), "%s", old[k][1]);
        i = find_own(s, full);
    }
    return i;
}

/* Returns the index in the files of the tensor that a text model with a head calls `name`; -1:
 * none. */
static int64_t find_in_files(const folder_source *s, const char *name)
{
    char full[MODEL_MTP_NAME + 64], own[MODEL_MTP_NAME];
    if (s->encoder)
        return find_renamed(s, name);
    if (s->m->eagle.names)
        return find_own(s, model_eagle_name(s->m->eagle.names, name, own));
    name = model_mtp_name(s->m, true, name, own);
    const char *tail = strncmp(name, "model.", 6) == 0 ? name + 6 : NULL;
    int64_t i = find_own(s, name);
    if (i >= 0 || strcmp(s->prefix, "model.") == 0)
        return i;
    snprintf(full, sizeof full, "%s%s", tail ? s->prefix : "language_model.", tail ? tail : name);
    return find_own(s, full);
}

/* Finds out what names begin with. */
static void find_prefix(folder_source *s, bool nested)
{
    static const char *const all[] = {"model.", "model.language_model.", "language_model.model.",
                                      "model.text_model.", ""};
    char name[64];
    s->prefix = *all;
    s->nested = nested;
    for (size_t i = sizeof all / sizeof *all; i-- > 0;) {
        snprintf(name, sizeof name, "%sembed_tokens.weight", all[i]);
        if (find_own(s, name) >= 0)
            s->prefix = all[i];
    }
}

/* Finds out how an EAGLE-3 head's files name its tensors. */
static void find_eagle_names(folder_source *s)
{
    char own[MODEL_EAGLE_NAME];
    if (!s->m->eagle.is)
        return;
    const vt_eagle_names *n = model_eagle_names;
    while (n->front && find_own(s, model_eagle_name(n, "mtp.pre_fc_norm_hidden.weight", own)) < 0)
        n++;
    s->m->eagle.names = n->front ? n : model_eagle_names;
}

/* The tensor of an expert's projection p with this suffix (its weight or its scale), or NULL where
 * the file has none; it counts as taken then. Its name is written to `name`. */
static const vt_tensor *expert_tensor(folder_source *s, const vt_family *f, int32_t layer,
                                      int32_t expert, int p, const char *suffix,
                                      char name[EXPERT_NAME])
{
    snprintf(name, EXPERT_NAME, "%s%d.%s.%d.%s.weight%s", vt_family_layers(f), layer,
             f->hf_experts ? f->hf_experts : "mlp.experts", expert,
             f->hf_experts ? f->hf_projection[p] : projection[p], suffix);
    int64_t i = find_in_files(s, name);
    if (i < 0)
        return NULL;
    s->absorbed[i] = 1;
    return own_at(s, i);
}

static vt_status add_tensor(loader *l, const char *name, vt_tensor t)
{
    folder_source *s = l->src;
    t.name = vt_arena_strdup(&l->m->arena, name, strlen(name));
    s->stacked[s->n_stacked] = t;
    s->stacked_index[s->n_stacked] = (name_entry){t.name, t.name ? strlen(t.name) : 0,
                                                  (uint32_t)s->n_stacked};
    s->n_stacked++;
    return t.name ? VT_OK : no_memory(l);
}

static vt_status add_stack(loader *l, int32_t layer, int p, const char *suffix, vt_tensor t)
{
    char name[EXPERT_NAME];
    snprintf(name, sizeof name, "%s%d.mlp.experts.%s.weight%s", vt_family_layers(l->m->family),
             layer, projection[p], suffix);
    return add_tensor(l, name, t);
}

/* Copies the scales of a layer's FP8 experts into one tensor, [experts, 1, 1] or
 * [experts, rows / 128, cols / 128] as in the file. They are few bytes. */
static vt_status stack_scales(loader *l, int32_t layer, int p)
{
    int32_t n = l->m->arch.n_experts;
    char name[EXPERT_NAME], weight[EXPERT_NAME];
    const vt_tensor *first = NULL;
    vt_tensor out = {.rank = 3, .dim = {n, 1, 1}};
    for (int32_t e = 0; e < n; e++) {
        const vt_tensor *w = expert_tensor(l->src, l->m->family, layer, e, p, "", weight);
        const vt_tensor *t = expert_tensor(l->src, l->m->family, layer, e, p, "_scale_inv", name);
        if (!t)
            t = expert_tensor(l->src, l->m->family, layer, e, p, "_scale", name);
        if (!t)
            return vt_fail(l->err, VT_ERR_MODEL,
                           "%s: tensor %s is FP8 and has no scale: neither %s_scale_inv nor "
                           "%s_scale is there",
                           l->folder, weight, weight, weight);
        TRY(model_check_scale(l->m, w, name, t, l->err));
        first = first ? first : t;
        int64_t bytes = vt_tensor_bytes(t), each = vt_tensor_elems(first);
        if (vt_tensor_elems(t) != each || t->dtype != first->dtype)
            return vt_fail(l->err, VT_ERR_MODEL,
                           "%s: tensor %s has %lld elements of type %s; %lld of type %s as in "
                           "expert 0 were expected",
                           l->folder, name, (long long)vt_tensor_elems(t),
                           vt_dtype_get(t->dtype)->name, (long long)each,
                           vt_dtype_get(first->dtype)->name);
        if (!out.data)
            out.data = vt_arena_alloc(&l->m->arena, (size_t)n, (size_t)bytes);
        if (!out.data)
            return no_memory(l);
        memcpy((char *)out.data + e * bytes, t->data, (size_t)bytes);
    }
    out.dtype = first->dtype;
    if (vt_tensor_elems(first) > 1)
        memcpy(out.dim + 1, first->dim, 2 * sizeof *first->dim);
    out.row_stride = out.dim[2];
    return add_stack(l, layer, p, "_scale_inv", out);
}

/* Makes one tensor of projection p of a layer's experts. Every expert must have the type and shape
 * of expert 0; the matrices stay where they are in the files. */
static vt_status stack_experts(loader *l, int32_t layer, int p)
{
    char name[EXPERT_NAME];
    int32_t n = l->m->arch.n_experts;
    const vt_tensor *first = NULL;
    void **matrix = vt_arena_alloc(&l->m->arena, (size_t)n, sizeof *matrix);
    if (!matrix)
        return no_memory(l);
    for (int32_t e = 0; e < n; e++) {
        const vt_tensor *t = expert_tensor(l->src, l->m->family, layer, e, p, "", name);
        if (!t)
            return vt_fail(l->err, VT_ERR_MODEL, "%s: tensor %s is missing", l->folder, name);
        if (t->rank != 2)
            return vt_fail(l->err, VT_ERR_MODEL, "%s: tensor %s has rank %d; 2 was expected",
                           l->folder, name, t->rank);
        first = first ? first : t;
        if (t->dtype != first->dtype || t->dim[0] != first->dim[0] || t->dim[1] != first->dim[1])
            return vt_fail(l->err, VT_ERR_MODEL,
                           "%s: tensor %s is %s [%lld, %lld]; %s [%lld, %lld] as in expert 0 was "
                           "expected",
                           l->folder, name, vt_dtype_get(t->dtype)->name, (long long)t->dim[0],
                           (long long)t->dim[1], vt_dtype_get(first->dtype)->name,
                           (long long)first->dim[0], (long long)first->dim[1]);
        matrix[e] = t->data;
    }
    TRY(add_stack(l, layer, p, "",
                  (vt_tensor){.data = first->data,
                              .dtype = first->dtype,
                              .rank = 3,
                              .dim = {n, first->dim[0], first->dim[1]},
                              .row_stride = first->dim[1],
                              .matrix = matrix}));
    return first->dtype == VT_FP8_E4M3 ? stack_scales(l, layer, p) : VT_OK;
}

/* Makes tensors of gate and up where a layer's experts are one tensor [experts, 2 out, in], in
 * which gate's rows come before up's in every expert, and of down [experts, in, out]. *found: they
 * are. */
static vt_status take_fused_experts(loader *l, int32_t layer, bool *found)
{
    char name[EXPERT_NAME];
    folder_source *s = l->src;
    for (int p = 0; p < 3; p++) {
        const char *experts = l->m->family->hf_experts;
        const char *const *own = l->m->family->hf_fused;
        const char *usual = p < 2 ? "gate_up_proj" : "down_proj";
        snprintf(name, sizeof name, "model.layers.%d.%s.%s", layer,
                 experts ? experts : "mlp.experts", own[0] ? own[p / 2] : usual);
        int64_t i = find_in_files(s, name);
        *found = i >= 0;
        if (i < 0 && p == 0)
            return VT_OK;
        if (i < 0)
            return vt_fail(l->err, VT_ERR_MODEL, "%s: tensor %s is missing", l->folder, name);
        const vt_tensor *t = own_at(s, i);
        int64_t n = l->m->arch.n_experts, parts = p < 2 ? 2 : 1;
        if (t->rank != 3 || t->dim[0] != n || t->dim[1] % parts != 0 || t->dtype == VT_FP8_E4M3)
            return vt_fail(l->err, VT_ERR_UNSUPPORTED,
                           "%s: tensor %s has rank %d, %lld matrices and type %s; %lld matrices of "
                           "a float type were expected",
                           l->folder, name, t->rank, (long long)t->dim[0],
                           vt_dtype_get(t->dtype)->name, (long long)n);
        void **matrix = vt_arena_alloc(&l->m->arena, (size_t)n, sizeof *matrix);
        if (!matrix)
            return no_memory(l);
        int64_t rows = t->dim[1] / parts, bytes = vt_dtype_row_bytes(t->dtype, rows * t->dim[2]);
        for (int64_t e = 0; e < n; e++)
            matrix[e] = (char *)t->data + (e * parts + p % 2 * (parts - 1)) * bytes;
        s->absorbed[i] = 1;
        vt_tensor one = {.data = matrix[0],
                         .dtype = t->dtype,
                         .rank = 3,
                         .dim = {n, rows, t->dim[2]},
                         .row_stride = t->dim[2],
                         .matrix = matrix};
        TRY(add_stack(l, layer, p, "", one));
    }
    return VT_OK;
}

/* For folder/turned.h: takes the tensor of this name; NULL: the files have none. */
static const vt_tensor *take_named(void *of, const char *name)
{
    folder_source *s = ((loader *)of)->src;
    int64_t i = find_in_files(s, name);
    if (i < 0)
        return NULL;
    s->absorbed[i] = 1;
    return own_at(s, i);
}

static vt_status add_named(void *of, const char *name, vt_tensor t)
{
    return add_tensor(of, name, t);
}

/* ---- latent attention ---- */

/* Unpacks a matrix of 4-bit codes that is read while a model is loaded. */
static vt_status source_make(const void *file, int64_t i, vt_err *err)
{
    const folder_source *s = file;
    int64_t packed = i - s->set->n_tensors;
    return packed >= 0 && i < s->n_own ? int4_make_one(s->int4, packed, s->m->path, err) : VT_OK;
}

/* Marks a layer's tensor kv_b, or its scale, as taken. Returns -1 where the files have none. */
static int64_t kv_b_tensor(loader *l, int32_t layer, const char *suffix, char name[EXPERT_NAME])
{
    snprintf(name, EXPERT_NAME, "model.layers.%d.self_attn.kv_b_proj.weight%s", layer, suffix);
    int64_t i = find_in_files(l->src, name);
    if (i >= 0)
        l->src->absorbed[i] = 1;
    return i;
}

static vt_status take_kv_b(loader *l, int32_t layer)
{
    char name[EXPERT_NAME], of_scale[EXPERT_NAME];
    int64_t i = kv_b_tensor(l, layer, "", name), at = -1;
    vt_tensor half[2];
    if (i < 0)
        return vt_fail(l->err, VT_ERR_MODEL, "%s: tensor %s is missing", l->folder, name);
    const vt_tensor *w = own_at(l->src, i), *scale;
    TRY(source_make(l->src, i, l->err));
    if (w->dtype == VT_FP8_E4M3 && (at = kv_b_tensor(l, layer, "_scale_inv", of_scale)) < 0)
        at = kv_b_tensor(l, layer, "_scale", of_scale);
    scale = at < 0 ? NULL : own_at(l->src, at);
    if (scale && w->rank == 2)
        TRY(model_check_scale(l->m, w, of_scale, scale, l->err));
    TRY(model_split_kv_b(l->m, w, scale, &half[0], &half[1], l->err));
    for (int k = 0; k < 2; k++) {
        snprintf(name, sizeof name, "model.layers.%d.self_attn.%c_b_proj.weight", layer, "kv"[k]);
        TRY(add_tensor(l, name, half[k]));
    }
    return VT_OK;
}

/* Makes the tensors that the files hold in other forms. */
static vt_status make_tensors(loader *l)
{
    folder_source *s = l->src;
    const vt_arch *a = &l->m->arch;
    size_t most = (a->n_experts ? 6 * (size_t)a->n_layers : 0) + /* matrices and their scales */
                  (a->mla.kv_rank ? 2 * (size_t)a->n_layers : 0);
    s->stacked = vt_arena_alloc(&l->m->arena, most, sizeof *s->stacked);
    s->stacked_index = vt_arena_alloc(&l->m->arena, most, sizeof *s->stacked_index);
    s->absorbed = vt_arena_alloc(&l->m->arena, (size_t)s->n_own, 1);
    if (!s->stacked || !s->stacked_index || !s->absorbed)
        return no_memory(l);
    for (int64_t i = 0; i < s->set->n_tensors; i++)
        s->absorbed[i] = int4_took(s->int4, i);
    const folder_turner turner = {
        .m = l->m, .of = l, .take = take_named, .add = add_named, .err = l->err};
    for (int32_t i = 0; i < a->n_layers && a->n_experts; i++) {
        bool fused = false, experts = l->m->layer[i].ffn == VT_BLOCK_EXPERTS;
        if (experts && l->m->family->experts_transposed)
            TRY(folder_turn_experts(&turner, i, &fused));
        if (experts && !fused)
            TRY(take_fused_experts(l, i, &fused));
        for (int p = a->activation == VT_ACT_RELU2; p < 3 && !fused; p++) /* some have no gate */
            if (experts)
                TRY(stack_experts(l, i, p));
    }
    for (int32_t i = 0; i < a->n_layers; i++)
        if (l->m->layer[i].mixer == VT_BLOCK_MLA)
            TRY(take_kv_b(l, i));
    name_index_sort(s->stacked_index, (size_t)s->n_stacked);
    return VT_OK;
}

/* ---- weights ---- */

static int64_t source_find(const void *file, const char *name)
{
    const folder_source *s = file;
    char saved[EXPERT_NAME];
    int64_t i = name_index_find(s->stacked_index, (size_t)s->n_stacked, name, strlen(name));
    i = i >= 0 ? s->n_own + i : find_in_files(s, name);
    name = vt_family_saved_name(s->m->family, name, saved, sizeof saved);
    return i >= 0 ? i : find_in_files(s, name);
}

static const vt_tensor *source_at(const void *file, int64_t i)
{
    const folder_source *s = file;
    return i >= s->n_own ? &s->stacked[i - s->n_own] : own_at(s, i);
}

static bool source_skip(const void *file, int64_t i)
{
    const folder_source *s = file;
    return i < s->n_own && s->absorbed[i];
}

static bool source_beside(const void *file, int64_t i)
{
    const folder_source *s = file;
    if (i >= s->n_own || !s->nested)
        return false;
    const char *name = own_at(s, i)->name;
    return strncmp(name, s->prefix, strlen(s->prefix)) != 0 && !strstr(name, "lm_head.");
}

/* Biases and some norms are optional in the table of weights. Those that config.json announces must
 * be there. */
static vt_status check_announced(const loader *l)
{
    const struct {
        bool said;
        vt_block_kind block;
        vt_role role[3];
        const char *name;
    } all[] = {
        {l->extra.qkv_bias,
         VT_BLOCK_ATTENTION,
         {VT_ROLE_Q_BIAS, VT_ROLE_K_BIAS, VT_ROLE_V_BIAS},
         "q, k or v bias"},
        {l->extra.o_bias,
         VT_BLOCK_ATTENTION,
         {VT_ROLE_O_BIAS, VT_ROLE_O_BIAS, VT_ROLE_O_BIAS},
         "attention output bias"},
        {l->extra.mlp_bias,
         VT_BLOCK_FFN,
         {VT_ROLE_GATE_BIAS, VT_ROLE_UP_BIAS, VT_ROLE_DOWN_BIAS},
         "feed-forward bias"},
        {l->extra.qk_norm,
         VT_BLOCK_ATTENTION,
         {VT_ROLE_Q_NORM, VT_ROLE_K_NORM, VT_ROLE_K_NORM},
         "norm of q or k"},
    };
    for (int32_t i = 0; i < l->m->arch.n_layers; i++)
        for (size_t k = 0; k < 3 * sizeof all / sizeof *all; k++) {
            const vt_layer *w = &l->m->layer[i];
            bool has = w->mixer == all[k / 3].block || w->ffn == all[k / 3].block;
            if (all[k / 3].said && has && !w->weight[all[k / 3].role[k % 3]])
                return vt_fail(l->err, VT_ERR_MODEL,
                               "%s: layer %d has no %s, and config.json says it has", l->folder, i,
                               all[k / 3].name);
        }
    return VT_OK;
}

/* Encoders' files have names with or without the family's prefix. */
static void find_encoder_prefix(loader *l)
{
    const vt_family *f = l->m->family;
    char name[EXPERT_NAME];
    if (!f->hf_prefix)
        return;
    snprintf(name, sizeof name, "%s%s", f->hf_prefix, vt_family_role_of(f, VT_ROLE_EMBED)->hf);
    l->src->encoder = find_own(l->src, name) >= 0 ? f->hf_prefix : "";
}

/* Says beside the type of most matrices by which method they were quantised. */
static void name_method(loader *l)
{
    char type[16];
    if (!l->src->int4 || strcmp(l->m->quant, vt_dtype_get(int4_at(l->src->int4, 0)->dtype)->name))
        return;
    snprintf(type, sizeof type, "%.15s", l->m->quant);
    snprintf(l->m->quant, sizeof l->m->quant, "%s of %s", type, int4_name(l->extra.int4.kind));
}

static const vt_tensor *tensor_in_files(const folder_source *s, const char *name)
{
    int64_t i = find_in_files(s, name);
    return i >= 0 ? own_at(s, i) : NULL;
}

static vt_status load_weights(loader *l)
{
    char path[4096];
    if (!has_file(l, "model.safetensors", path, sizeof path) &&
        !has_file(l, "model.safetensors.index.json", path, sizeof path))
        return vt_fail(l->err, VT_ERR_IO,
                       "%s: holds neither model.safetensors nor "
                       "model.safetensors.index.json",
                       l->folder);
    TRY(st_open_folder(l->folder, &l->src->set, l->err));
    if (l->extra.int4.kind != INT4_NONE)
        TRY(int4_find(l->m, l->src->set, &l->extra.int4, &l->src->int4, l->err));
    l->src->n_own = l->src->set->n_tensors + int4_count(l->src->int4);
    find_prefix(l->src, l->extra.nested);
    find_encoder_prefix(l);
    find_eagle_names(l->src);
    TRY(model_mtp_found(l->m, find_in_files(l->src, "mtp.pre_fc_norm_hidden.weight") >= 0, l->err));
    if (l->extra.nested) /* either configuration may say it, and they need not agree */
        l->m->arch.tied_head = find_in_files(l->src, "lm_head.weight") < 0;
    model_untie(l->m, tensor_in_files(l->src, "lm_head.weight"),
                tensor_in_files(l->src, vt_family_embed(l->m->family)));
    TRY(arch_check(l->m, l->err));
    TRY(make_tensors(l));
    weight_source src = {.hf_names = true,
                         .headless = !*l->src->prefix,
                         .file = l->src,
                         .find = source_find,
                         .at = source_at,
                         .skip = source_skip,
                         .make = source_make,
                         .beside = source_beside,
                         .n_tensors = l->src->n_own + l->src->n_stacked};
    TRY(model_assemble(l->m, &src, l->err));
    l->m->n_tensors = l->src->set->n_tensors;
    if (l->m->eagle.is) /* which tokens it names */
        TRY(model_eagle_words(l->m, tensor_in_files(l->src, "model.d2t"), l->err));
    name_method(l);
    return check_announced(l);
}

/* ---- generation ---- */

/* "eos_token_id": a number or a list of them. Ids beyond the vocabulary are refused later. */
static vt_status add_eos(loader *l, const char *path, const json_t *value, int32_t *ids, int32_t *n)
{
    static const char key[] = "eos_token_id";
    size_t count = json_is_array(value) ? json_array_size(value) : 1;
    if (count > MAX_EOS)
        return vt_fail(l->err, VT_ERR_FORMAT, "%s: \"%s\" holds %zu ids (at most %d allowed)", path,
                       key, count, MAX_EOS);
    for (size_t i = 0; value && i < count; i++) {
        char shown[VT_JSON_SHOWN];
        const json_t *v = json_is_array(value) ? json_array_get(value, i) : value;
        double id = json_number_value(v);
        if (!json_is_number(v) || !(id >= 0 && id < INT32_MAX) || id != floor(id))
            return vt_fail(l->err, VT_ERR_FORMAT,
                           "%s: \"%s\" %s %s; a token id or a list of them was expected", path, key,
                           v == value ? "is" : "holds", vt_json_show(v, shown));
        ids[(*n)++] = (int32_t)id;
    }
    return VT_OK;
}

static vt_status read_generation(loader *l, const char *path, const json_t *root, int32_t *ids,
                                 int32_t *n)
{
    vt_model *m = l->m;
    bool sampled = true;
    TRY(add_eos(l, path, vt_read_member(root, "eos_token_id"), ids, n));
    const struct {
        const char *key;
        float *out, least, most; /* as requests may say it */
    } number[] = {{"temperature", &m->gen_temperature, 0, 100},
                  {"top_p", &m->gen_top_p, 0, 1},
                  {"min_p", &m->gen_min_p, 0, 1},
                  {"repetition_penalty", &m->gen_repetition_penalty, 0.01f, 100}};
    for (size_t i = 0; i < sizeof number / sizeof *number; i++) {
        TRY(vt_read_f32(path, root, number[i].key, number[i].out, l->err));
        if (*number[i].out < number[i].least || *number[i].out > number[i].most)
            return vt_fail(l->err, VT_ERR_FORMAT, "%s: \"%s\" is %g (%g to %g expected)", path,
                           number[i].key, (double)*number[i].out, (double)number[i].least,
                           (double)number[i].most);
    }
    TRY(vt_read_bool(path, root, "do_sample", false, &sampled, l->err));
    if (!sampled)
        m->gen_temperature = 0; /* the model asks for greedy answers, whatever else it says */
    return vt_read_i32(path, root, "top_k", false, &m->gen_top_k, l->err);
}

/* Where generation_config.json exists, config.json's "eos_token_id" is not read: transformers does
 * the same. */
static vt_status load_generation(loader *l, const char *config_path, const json_t *config,
                                 int32_t *ids, int32_t *n)
{
    char path[4096];
    json_t *root;
    const json_t *end = vt_read_member(config, "eos_token_id");
    end = end ? end : vt_read_member(vt_read_member(config, "text_config"), "eos_token_id");
    if (!has_file(l, "generation_config.json", path, sizeof path))
        return add_eos(l, config_path, end, ids, n);
    TRY(vt_read_json(path, MAX_CONFIG, &root, l->err));
    vt_status status = read_generation(l, path, root, ids, n);
    json_decref(root);
    return status;
}

/* ---- loading ---- */

static vt_status read_folder(loader *l, const char *path, const json_t *config, part what)
{
    int32_t ids[MAX_EOS], n = 0;
    bool weights = what != WORDS;
    if (what == MTP) {
        TRY(hf_config_read(path, config, l->m, &l->extra, l->err));
        TRY(model_mtp_read_config(l->m, path, config, l->err));
        return load_weights(l);
    }
    if (weights) {
        TRY(hf_config_read(path, config, l->m, &l->extra, l->err));
        TRY(load_weights(l));
        TRY(vt_pooled_read_folder(l->m, l->folder, l->err));
    }
    TRY(model_load_text(l->m, l->folder, l->err));
    if (!weights)
        l->m->arch.vocab = l->m->tokenizer ? vt_tokenizer_vocab(l->m->tokenizer) : 0;
    TRY(load_generation(l, path, config, ids, &n));
    if (!weights && !l->m->tokenizer)
        return VT_OK;
    return model_set_special(l->m, ids, n, l->err);
}

static vt_status load(loader *l, part what)
{
    char path[4096];
    json_t *config;
    if (!has_file(l, "config.json", path, sizeof path) && what != WORDS)
        return vt_fail(l->err, VT_ERR_IO, "%s: the folder holds no config.json", l->folder);
    if (has_file(l, "config.json", path, sizeof path))
        TRY(vt_read_json(path, MAX_CONFIG, &config, l->err));
    else if (!(config = json_object()))
        return no_memory(l);
    vt_status status = read_folder(l, path, config, what);
    json_decref(config);
    return status;
}

static void close_folder(vt_model *m)
{
    folder_source *s = m->source;
    st_set *set = s->set;
    int4_release(s->int4);
    model_release(m); /* s is in its arena */
    st_close_set(set);
}

static vt_status make_weights(const vt_model *m, vt_err *err)
{
    const folder_source *s = m->source;
    return s->int4 ? int4_make(s->int4, m->path, err) : VT_OK;
}

static void drop_weights(const vt_model *m, bool keep)
{
    const folder_source *s = m->source;
    if (s->int4)
        int4_done(s->int4, keep);
}

static vt_status load_folder(const char *path, part what, vt_model **out, vt_err *err)
{
    vt_model *m;
    TRY(model_new(path, &m, err));
    loader l = {.m = m, .folder = m->path, .err = err};
    l.src = vt_arena_alloc(&m->arena, 1, sizeof *l.src);
    if (!l.src) {
        model_release(m);
        return vt_fail(err, VT_ERR_MEMORY, "%s: out of memory", path);
    }
    l.src->m = m;
    m->source = l.src;
    m->close = close_folder;
    m->make_weights = make_weights;
    m->drop_weights = drop_weights;
    vt_status status = load(&l, what);
    if (status != VT_OK) {
        close_folder(m);
        return status;
    }
    *out = m;
    return VT_OK;
}

vt_status vt_model_load_folder(const char *path, bool weights, vt_model **out, vt_err *err)
{
    return load_folder(path, weights ? WEIGHTS : WORDS, out, err);
}

vt_status vt_model_load_folder_mtp(const char *path, vt_model **out, vt_err *err)
{
    return load_folder(path, MTP, out, err);
}
