/* Loading adapters (model/lora/lora.h).
 *
 *   1. read      each folder: its configuration, its tensors by layer and role, both of a pair
 *                there, of the shapes that the model's matrix asks for
 *   2. gather    for each matrix that some adapter has a part for: A of all adapters one below the
 *                other, and B turned, in fp32
 *
 * A GGUF file of some families has the rows of q and k in another order than the folder that the
 * adapter was trained with (vt_family.rope_interleaved): B's rows are put into that order. */
#include "model/lora/lora.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "files/safetensors.h"
#include "model/family.h"

enum { MAX_MODULE = 256 };

/* An adapter's part for one matrix. */
typedef struct pair {
    const vt_tensor *a, *b; /* [r, cols], [rows, r] as in the file */
    float scale;
} pair;

typedef struct loader {
    vt_model *m;
    vt_lora *lora;
    pair *pair;     /* [n][n_layers * VT_ROLES] */
    st_file **file; /* [n] */
    vt_err *err;
} loader;

static const vt_role kAdapted[] = {VT_ROLE_Q,    VT_ROLE_K,  VT_ROLE_V,   VT_ROLE_O,
                                   VT_ROLE_GATE, VT_ROLE_UP, VT_ROLE_DOWN};

int32_t vt_lora_find(const vt_model *m, const char *name)
{
    for (int32_t k = 0; m->lora && k < m->lora->n; k++)
        if (strcmp(m->lora->name[k], name) == 0)
            return k + 1;
    return 0;
}

const vt_lora_matrix *vt_lora_of(const vt_model *m, int32_t layer, vt_role role)
{
    return m->lora ? m->lora->matrix[layer * VT_ROLES + role] : NULL;
}

static vt_status no_memory(const loader *l)
{
    return vt_fail(l->err, VT_ERR_MEMORY, "%s: out of memory for adapters", l->m->name);
}

/* ---- names ---- */

/* Returns what follows "model.layers." in a module's name, or NULL. */
static const char *behind_layers(const vt_model *m, const char *module)
{
    static const char *const all[] = {"model.layers.", "model.language_model.layers.",
                                      "language_model.model.layers.", "layers."};
    const char *own = m->family ? m->family->hf_layer : NULL;
    if (own && strncmp(module, own, strlen(own)) == 0)
        return module + strlen(own);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strncmp(module, all[i], strlen(all[i])) == 0)
            return module + strlen(all[i]);
    return NULL;
}

/* Returns true if the layer has a block that an adapter's part for this role can join. */
static bool takes(const vt_layer *l, vt_role role)
{
    bool attention = role <= VT_ROLE_O;
    return l->weight[role] && (attention ? l->mixer == VT_BLOCK_ATTENTION
                                         : l->ffn == VT_BLOCK_FFN || l->ffn == VT_BLOCK_MLP);
}

/* Finds the layer and role of a module such as "model.layers.3.self_attn.q_proj". */
static bool find_module(const vt_model *m, const char *module, int32_t *layer, vt_role *role)
{
    const char *at = behind_layers(m, module);
    char *end;
    if (!at || *at < '0' || *at > '9')
        return false;
    unsigned long n = strtoul(at, &end, 10);
    if (*end != '.' || n >= (unsigned long)m->arch.n_layers)
        return false;
    *layer = (int32_t)n;
    for (size_t i = 0; i < sizeof kAdapted / sizeof *kAdapted; i++) {
        const vt_family_role *own = m->family ? vt_family_role_of(m->family, kAdapted[i]) : NULL;
        const char *hf = own && own->hf ? own->hf : vt_roles[kAdapted[i]].hf;
        size_t len = strlen(end + 1);
        *role = kAdapted[i];
        if (strncmp(hf, end + 1, len) == 0 && strcmp(hf + len, ".weight") == 0)
            return takes(&m->layer[n], *role);
    }
    return false;
}

/* Writes the module that a tensor belongs to; *is_a: it is its A. False: the name is none of an
 * adapter's. */
static bool split_name(const char *tensor, char module[MAX_MODULE], bool *is_a)
{
    static const char prefix[] = "base_model.model.", a[] = ".lora_A.weight",
                      b[] = ".lora_B.weight";
    size_t len = strlen(tensor), front = sizeof prefix - 1, back = sizeof a - 1;
    if (len <= front + back || len - front - back >= MAX_MODULE ||
        strncmp(tensor, prefix, front) != 0)
        return false;
    *is_a = strcmp(tensor + len - back, a) == 0;
    if (!*is_a && strcmp(tensor + len - back, b) != 0)
        return false;
    memcpy(module, tensor + front, len - front - back);
    module[len - front - back] = '\0';
    return true;
}

/* ---- reading ---- */

static vt_status take_tensor(loader *l, int32_t k, const vt_lora_config *c, const vt_tensor *t)
{
    const char *path = l->file[k]->view.path;
    char module[MAX_MODULE];
    int32_t layer;
    vt_role role;
    bool is_a;
    if (!split_name(t->name, module, &is_a) || !find_module(l->m, module, &layer, &role))
        return vt_fail(l->err, VT_ERR_UNSUPPORTED,
                       "%s: tensor %.200s is no lora_A or lora_B of a projection that %s can have "
                       "adapters for (q, k, v, o; gate, up and down of a dense feed-forward)",
                       path, t->name, l->m->name);
    const vt_tensor *w = l->m->layer[layer].weight[role];
    int64_t r = vt_lora_config_rank(c, module), rows = is_a ? r : w->dim[0],
            cols = is_a ? w->dim[1] : r;
    if (t->dtype != VT_F32 && t->dtype != VT_F16 && t->dtype != VT_BF16)
        return vt_fail(l->err, VT_ERR_UNSUPPORTED,
                       "%s: tensor %.200s has type %s; F32, F16 or BF16 was expected", path,
                       t->name, vt_dtype_get(t->dtype)->name);
    if (t->rank != 2 || t->dim[0] != rows || t->dim[1] != cols)
        return vt_fail(l->err, VT_ERR_MODEL,
                       "%s: tensor %.200s has rank %d and %lld rows of %lld; %lld of %lld were "
                       "expected, as the model and adapter_config.json say",
                       path, t->name, t->rank, (long long)t->dim[0],
                       (long long)(t->rank > 1 ? t->dim[1] : 1), (long long)rows, (long long)cols);
    pair *p = &l->pair[((int64_t)k * l->m->arch.n_layers + layer) * VT_ROLES + role];
    const vt_tensor **to = is_a ? &p->a : &p->b;
    if (*to)
        return vt_fail(l->err, VT_ERR_MODEL, "%s: tensors %.200s and %.200s are of one module",
                       path, (*to)->name, t->name);
    *to = t;
    p->scale = vt_lora_config_scale(c, module);
    return VT_OK;
}

static vt_status check_pairs(const loader *l, int32_t k)
{
    int64_t n = (int64_t)l->m->arch.n_layers * VT_ROLES;
    for (int64_t i = 0; i < n; i++) {
        const pair *p = &l->pair[k * n + i];
        if (!p->a != !p->b)
            return vt_fail(l->err, VT_ERR_MODEL, "%s: tensor %.200s is there without its lora_%c",
                           l->file[k]->view.path, (p->a ? p->a : p->b)->name, p->a ? 'B' : 'A');
    }
    return VT_OK;
}

static vt_status read_folder(loader *l, int32_t k)
{
    char path[4096];
    vt_lora_config config;
    const char *folder = l->lora->path[k];
    if (snprintf(path, sizeof path, "%s/adapter_config.json", folder) >= (int)sizeof path)
        return vt_fail(l->err, VT_ERR_IO, "lora: the path %.200s... is too long", folder);
    TRY(vt_lora_config_read(path, &l->m->arena, &config, l->err));
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", folder);
    TRY(st_open(path, &l->file[k], l->err));
    if (l->file[k]->n_tensors == 0)
        return vt_fail(l->err, VT_ERR_MODEL, "%s holds no tensors", path);
    for (int64_t i = 0; i < l->file[k]->n_tensors; i++)
        TRY(take_tensor(l, k, &config, &l->file[k]->tensor[i]));
    return check_pairs(l, k);
}

/* ---- gathering ---- */

static float element(const vt_tensor *t, int64_t row, int64_t col)
{
    int64_t at = row * t->row_stride + col;
    if (t->dtype == VT_F32)
        return ((const float *)t->data)[at];
    uint16_t half = ((const uint16_t *)t->data)[at];
    return t->dtype == VT_F16 ? vt_f16_to_f32(half) : vt_bf16_to_f32(half);
}

/* The row of a folder's matrix that is row i of the model's: others where a GGUF file has the
 * halves of q's and k's heads in turn. */
static int64_t row_in_folder(const vt_model *m, int32_t layer, vt_role role, int64_t i)
{
    const vt_heads *h = &m->layer[layer].head;
    bool permuted = m->arch.n_ropes > 0 && m->arch.rope[0].interleaved && m->family &&
                    !m->family->hf_rope_interleaved;
    if (!permuted || (role != VT_ROLE_Q && role != VT_ROLE_K))
        return i;
    int64_t in_head = i % h->dim;
    return i - in_head + in_head % 2 * (h->dim / 2) + in_head / 2;
}

static void copy_pair(const loader *l, int32_t layer, vt_role role, const pair *p, float *a,
                      float *b)
{
    int64_t r = p->a->dim[0], cols = p->a->dim[1], rows = p->b->dim[0];
    for (int64_t j = 0; j < r; j++)
        for (int64_t i = 0; i < cols; i++)
            a[j * cols + i] = element(p->a, j, i);
    for (int64_t i = 0; i < rows; i++) {
        int64_t from = row_in_folder(l->m, layer, role, i);
        for (int64_t j = 0; j < r; j++)
            b[j * rows + i] = element(p->b, from, j);
    }
}

/* Gathers the parts of all adapters for one matrix, if there are any. */
static vt_status gather(loader *l, int32_t layer, vt_role role)
{
    int64_t each = (int64_t)l->m->arch.n_layers * VT_ROLES, at = (int64_t)layer * VT_ROLES + role;
    int32_t n = l->lora->n;
    int64_t ranks = 0, rows = 0, cols = 0;
    for (int32_t k = 0; k < n; k++) {
        const pair *p = &l->pair[k * each + at];
        ranks += p->a ? p->a->dim[0] : 0;
        rows = p->b ? p->b->dim[0] : rows;
        cols = p->a ? p->a->dim[1] : cols;
    }
    if (ranks == 0)
        return VT_OK;
    vt_arena *arena = &l->m->arena;
    vt_lora_matrix *x = vt_arena_alloc(arena, 1, sizeof *x);
    float *a = vt_arena_alloc(arena, (size_t)ranks, (size_t)cols * sizeof *a),
          *b = vt_arena_alloc(arena, (size_t)ranks, (size_t)rows * sizeof *b);
    if (!x || !a || !b)
        return no_memory(l);
    *x = (vt_lora_matrix){.a = vt_tensor_2d(a, VT_F32, ranks, cols),
                          .b = vt_tensor_2d(b, VT_F32, ranks, rows),
                          .first = vt_arena_alloc(arena, (size_t)n + 1, sizeof *x->first),
                          .scale = vt_arena_alloc(arena, (size_t)n, sizeof *x->scale),
                          .n = n};
    if (!x->first || !x->scale)
        return no_memory(l);
    for (int32_t k = 0; k < n; k++) {
        const pair *p = &l->pair[k * each + at];
        int32_t r = p->a ? (int32_t)p->a->dim[0] : 0, first = x->first[k];
        if (r > 0)
            copy_pair(l, layer, role, p, a + first * cols, b + first * rows);
        x->first[k + 1] = first + r;
        x->scale[k] = p->scale;
        x->most_rank = r > x->most_rank ? r : x->most_rank;
    }
    l->lora->matrix[at] = x;
    return VT_OK;
}

/* ---- the whole ---- */

/* Takes NAME=PATH apart. */
static vt_status add_name(loader *l, const char *text)
{
    const char *path = strchr(text, '=');
    vt_lora *lora = l->lora;
    size_t len = path ? (size_t)(path - text) : 0;
    if (len == 0 || path[1] == '\0')
        return vt_fail(l->err, VT_ERR_USAGE, "lora is '%.200s', expected NAME=PATH", text);
    for (size_t i = 0; i < len; i++)
        if (len > VT_LORA_MOST_NAME || text[i] <= ' ' || text[i] > '~')
            return vt_fail(l->err, VT_ERR_USAGE,
                           "lora: the name '%.*s' has blanks or other signs, or more than %d "
                           "letters",
                           (int)(len < 200 ? len : 200), text, VT_LORA_MOST_NAME);
    lora->name[lora->n] = vt_arena_strdup(&l->m->arena, text, len);
    lora->path[lora->n] = vt_arena_strdup(&l->m->arena, path + 1, strlen(path + 1));
    if (!lora->name[lora->n] || !lora->path[lora->n])
        return no_memory(l);
    if (strcmp(lora->name[lora->n], l->m->name) == 0)
        return vt_fail(l->err, VT_ERR_USAGE, "lora: '%s' is the model's own name",
                       lora->name[lora->n]);
    for (int32_t k = 0; k < lora->n; k++)
        if (strcmp(lora->name[k], lora->name[lora->n]) == 0)
            return vt_fail(l->err, VT_ERR_USAGE, "lora: two adapters are called '%s'",
                           lora->name[k]);
    lora->n++;
    return VT_OK;
}

static vt_status load_all(loader *l, const char *const *texts, int32_t n)
{
    for (int32_t k = 0; k < n; k++)
        TRY(add_name(l, texts[k]));
    for (int32_t k = 0; k < n; k++)
        TRY(read_folder(l, k));
    for (int32_t i = 0; i < l->m->arch.n_layers; i++)
        for (size_t r = 0; r < sizeof kAdapted / sizeof *kAdapted; r++)
            TRY(gather(l, i, kAdapted[r]));
    return VT_OK;
}

vt_status vt_lora_load(vt_model *m, const char *const *texts, int32_t n, vt_err *err)
{
    if (n == 0)
        return VT_OK;
    if (n > VT_LORA_MOST)
        return vt_fail(err, VT_ERR_USAGE, "lora names %d adapters, expected at most %d", n,
                       VT_LORA_MOST);
    if (!m->layer)
        return vt_fail(err, VT_ERR_MODEL, "%s holds a vocabulary and no weights to adapt", m->name);
    size_t matrices = (size_t)m->arch.n_layers * VT_ROLES;
    vt_lora *lora = vt_arena_alloc(&m->arena, 1, sizeof *lora);
    loader l = {.m = m,
                .lora = lora,
                .pair = vt_calloc((size_t)n * matrices, sizeof *l.pair),
                .file = vt_calloc((size_t)n, sizeof(st_file *)),
                .err = err};
    if (lora) {
        lora->name = vt_arena_alloc(&m->arena, (size_t)n, sizeof *lora->name);
        lora->path = vt_arena_alloc(&m->arena, (size_t)n, sizeof *lora->path);
        lora->matrix = vt_arena_alloc(&m->arena, matrices, sizeof(vt_lora_matrix *));
    }
    bool room = lora && lora->name && lora->path && lora->matrix && l.pair && l.file;
    vt_status status = room ? load_all(&l, texts, n) : no_memory(&l);
    for (int32_t k = 0; l.file && k < n; k++)
        st_close(l.file[k]);
    free(l.file);
    free(l.pair);
    if (status == VT_OK)
        m->lora = lora;
    return status;
}
