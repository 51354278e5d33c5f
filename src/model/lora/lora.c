/* Loading adapters (model/lora/lora.h).
 *
 *   1. read      each folder or file: its configuration, its tensors by layer and role, both of a
 *                pair there, of the shapes that the model's matrix asks for
 *   2. gather    for each matrix that some adapter has a part for: A of all adapters one below the
 *                other, and B turned, in fp32
 *
 * Families that store several matrices as one (vt_family.stacks) have adapters of that one: each of
 * the matrices gets A, and its own rows of B.
 *
 * A GGUF file of some families has the rows of q and k in another order than a folder
 * (vt_family.rope_interleaved), the model's as well as an adapter's: B's rows are put into the
 * model's order. */
#include "model/lora/lora.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "files/gguf.h"
#include "files/safetensors.h"
#include "model/family.h"

enum { MAX_MODULE = 256 };

/* An adapter's part for one matrix. */
typedef struct pair {
    const vt_tensor *a, *b; /* [r, cols], [rows, r] as in the file */
    int64_t b_row;          /* the first row of b that is the matrix's */
    float scale;
} pair;

/* The open file of an adapter: one of the two. */
typedef struct adapter_file {
    st_file *st;
    gguf_file *gguf;
} adapter_file;

typedef struct loader {
    vt_model *m;
    vt_lora *lora;
    pair *pair;         /* [n][n_layers * VT_ROLES] */
    adapter_file *file; /* [n] */
    vt_err *err;
} loader;

/* The matrices that a tensor of an adapter belongs to. */
typedef struct target {
    int32_t layer, n; /* n roles from `role` on, one below the other */
    vt_role role;
    bool is_a;
    char module[MAX_MODULE]; /* PEFT's name */
} target;

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
                                      "language_model.model.layers.", "model.text_model.layers.",
                                      "layers."};
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

/* Finds the roles that files call `name`, such as "self_attn.q_proj.weight" or "attn_q.weight". */
static bool find_roles(const vt_model *m, const char *name, bool gguf, target *out)
{
    const vt_family *f = m->family;
    const vt_layer *l = &m->layer[out->layer];
    for (int32_t i = 0; f && i < f->n_stacks; i++) {
        const char *own = gguf ? f->stacks[i].gguf : f->stacks[i].hf;
        if (!own || strcmp(own, name) != 0)
            continue;
        out->role = f->stacks[i].first;
        out->n = f->stacks[i].n;
        for (int32_t k = 0; k < out->n; k++)
            if (!takes(l, (vt_role)(out->role + k)))
                return false;
        return true;
    }
    for (size_t i = 0; i < sizeof kAdapted / sizeof *kAdapted; i++) {
        const vt_family_role *own = f ? vt_family_role_of(f, kAdapted[i]) : NULL;
        const vt_role_row *usual = &vt_roles[kAdapted[i]];
        const char *hf = own && own->hf ? own->hf : usual->hf,
                   *file = own && own->gguf ? own->gguf : usual->gguf;
        out->role = kAdapted[i];
        out->n = 1;
        if (strcmp(gguf ? file : hf, name) == 0)
            return takes(l, out->role);
    }
    return false;
}

/* Reads the layer's number and the dot behind it. Returns what follows; NULL: there is none. */
static const char *behind_number(const vt_model *m, const char *at, int32_t *layer)
{
    char *end;
    if (!at || *at < '0' || *at > '9')
        return NULL;
    unsigned long n = strtoul(at, &end, 10);
    if (*end != '.' || n >= (unsigned long)m->arch.n_layers)
        return NULL;
    *layer = (int32_t)n;
    return end + 1;
}

/* Copies a name without the `front` bytes before and the ending `a` or `b` behind it; *is_a: it was
 * `a`. False: it has neither, or is too long. */
static bool cut_name(const char *name, size_t front, const char *a, const char *b,
                     char out[MAX_MODULE], bool *is_a)
{
    size_t len = strlen(name), back = strlen(a);
    if (len <= front + back || len - front - back >= MAX_MODULE)
        return false;
    *is_a = strcmp(name + len - back, a) == 0;
    if (!*is_a && strcmp(name + len - back, b) != 0)
        return false;
    memcpy(out, name + front, len - front - back);
    out[len - front - back] = '\0';
    return true;
}

/* Finds what a tensor of a PEFT folder belongs to. False: to nothing that can have adapters. */
static bool target_in_folder(const vt_model *m, const char *tensor, target *out)
{
    static const char prefix[] = "base_model.model.";
    char name[MAX_MODULE + 8];
    if (strncmp(tensor, prefix, sizeof prefix - 1) != 0 ||
        !cut_name(tensor, sizeof prefix - 1, ".lora_A.weight", ".lora_B.weight", out->module,
                  &out->is_a))
        return false;
    snprintf(name, sizeof name, "%s.weight", out->module);
    const char *at = behind_number(m, behind_layers(m, name), &out->layer);
    return at && find_roles(m, at, false, out);
}

/* The same of a tensor of a GGUF file: "blk.3.attn_q.weight.lora_a". */
static bool target_in_gguf(const vt_model *m, const char *tensor, target *out)
{
    if (strncmp(tensor, "blk.", 4) != 0 ||
        !cut_name(tensor, 4, ".lora_a", ".lora_b", out->module, &out->is_a))
        return false;
    const char *at = behind_number(m, out->module, &out->layer);
    return at && find_roles(m, at, true, out);
}

/* ---- reading ---- */

static const char *path_of(const adapter_file *f)
{
    return f->gguf ? f->gguf->path : f->st->view.path;
}

static vt_status unknown_tensor(const loader *l, const char *path, const char *name)
{
    if (strstr(name, "experts") || strstr(name, "_exps") || strstr(name, "_shexp"))
        return vt_fail(l->err, VT_ERR_UNSUPPORTED,
                       "%s: tensor %.200s belongs to experts, and adapters of experts are not "
                       "supported",
                       path, name);
    return vt_fail(l->err, VT_ERR_UNSUPPORTED,
                   "%s: tensor %.200s is no lora_A or lora_B of a projection that %s can have "
                   "adapters for (q, k, v, o; gate, up and down of a dense feed-forward)",
                   path, name, l->m->name);
}

static vt_status check_tensor(const loader *l, const char *path, const vt_tensor *t, int64_t rows,
                              int64_t cols)
{
    if (t->dtype != VT_F32 && t->dtype != VT_F16 && t->dtype != VT_BF16)
        return vt_fail(l->err, VT_ERR_UNSUPPORTED,
                       "%s: tensor %.200s has type %s; F32, F16 or BF16 was expected", path,
                       t->name, vt_dtype_get(t->dtype)->name);
    if (t->rank != 2 || t->dim[0] != rows || t->dim[1] != cols)
        return vt_fail(l->err, VT_ERR_MODEL,
                       "%s: tensor %.200s has rank %d and %lld rows of %lld; %lld of %lld were "
                       "expected, as the model and the adapter's rank say",
                       path, t->name, t->rank, (long long)t->dim[0],
                       (long long)(t->rank > 1 ? t->dim[1] : 1), (long long)rows, (long long)cols);
    return VT_OK;
}

/* Notes a tensor as A or B of its matrices, of rank r. */
static vt_status take_tensor(loader *l, int32_t k, const target *at, int64_t r, float scale,
                             const vt_tensor *t)
{
    const char *path = path_of(&l->file[k]);
    const vt_tensor *const *w = &l->m->layer[at->layer].weight[at->role];
    int64_t rows = 0;
    for (int32_t i = 0; i < at->n; i++)
        rows += w[i]->dim[0];
    TRY(at->is_a ? check_tensor(l, path, t, r, w[0]->dim[1]) : check_tensor(l, path, t, rows, r));
    rows = 0;
    for (int32_t i = 0; i < at->n; i++) {
        int64_t role = at->role + i;
        pair *p = &l->pair[((int64_t)k * l->m->arch.n_layers + at->layer) * VT_ROLES + role];
        const vt_tensor **to = at->is_a ? &p->a : &p->b;
        if (*to)
            return vt_fail(l->err, VT_ERR_MODEL, "%s: tensors %.200s and %.200s are of one module",
                           path, (*to)->name, t->name);
        *to = t;
        p->scale = scale;
        p->b_row = rows;
        rows += w[i]->dim[0];
    }
    return VT_OK;
}

static vt_status check_pairs(const loader *l, int32_t k)
{
    int64_t n = (int64_t)l->m->arch.n_layers * VT_ROLES;
    const char *path = path_of(&l->file[k]);
    for (int64_t i = 0; i < n; i++) {
        const pair *p = &l->pair[k * n + i];
        if (!p->a != !p->b)
            return vt_fail(l->err, VT_ERR_MODEL, "%s: tensor %.200s is there without its lora_%c",
                           path, (p->a ? p->a : p->b)->name, p->a ? 'B' : 'A');
        if (p->a && p->a->dim[0] != p->b->dim[1])
            return vt_fail(l->err, VT_ERR_MODEL,
                           "%s: tensor %.200s has rank %lld, and its lora_b has %lld", path,
                           p->a->name, (long long)p->a->dim[0], (long long)p->b->dim[1]);
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
    TRY(st_open(path, &l->file[k].st, l->err));
    const st_file *f = l->file[k].st;
    if (f->n_tensors == 0)
        return vt_fail(l->err, VT_ERR_MODEL, "%s holds no tensors", path);
    for (int64_t i = 0; i < f->n_tensors; i++) {
        target at;
        if (!target_in_folder(l->m, f->tensor[i].name, &at))
            return unknown_tensor(l, path, f->tensor[i].name);
        TRY(take_tensor(l, k, &at, vt_lora_config_rank(&config, at.module),
                        vt_lora_config_scale(&config, at.module), &f->tensor[i]));
    }
    return check_pairs(l, k);
}

/* Fails unless the file's text under `key` is `want`. */
static vt_status expect_text(const loader *l, const gguf_file *f, const char *key, const char *want)
{
    gguf_str s;
    TRY(gguf_get_str(f, key, true, &s, l->err));
    if (s.len == strlen(want) && memcmp(s.data, want, s.len) == 0)
        return VT_OK;
    return vt_fail(l->err, VT_ERR_UNSUPPORTED, "%s: %s is \"%.*s\", expected \"%s\"", f->path, key,
                   s.len > 40 ? 40 : (int)s.len, s.data, want);
}

static vt_status check_header(const loader *l, const gguf_file *f, double *alpha)
{
    const vt_family *family = l->m->family;
    TRY(expect_text(l, f, "general.type", "adapter"));
    TRY(expect_text(l, f, "adapter.type", "lora"));
    if (!family || !family->gguf)
        return vt_fail(l->err, VT_ERR_UNSUPPORTED, "%s: GGUF files have no adapters for %s",
                       f->path, l->m->name);
    TRY(expect_text(l, f, "general.architecture", family->gguf));
    if (gguf_find(f, "adapter.alora.invocation_tokens"))
        return vt_fail(l->err, VT_ERR_UNSUPPORTED,
                       "%s: adapter.alora.invocation_tokens is there: adapters that begin at a "
                       "token are not supported",
                       f->path);
    TRY(gguf_get_f64(f, "adapter.lora.alpha", true, alpha, l->err));
    if (*alpha >= -1e6 && *alpha <= 1e6)
        return VT_OK;
    return vt_fail(l->err, VT_ERR_FORMAT, "%s: adapter.lora.alpha is %g, expected at most 1e6",
                   f->path, *alpha);
}

/* A file of llama.cpp's convert_lora_to_gguf. A tensor's own size says its rank. */
static vt_status read_gguf(loader *l, int32_t k)
{
    double alpha = 0;
    TRY(gguf_open(l->lora->path[k], &l->file[k].gguf, l->err));
    const gguf_file *f = l->file[k].gguf;
    TRY(check_header(l, f, &alpha));
    if (f->n_tensors == 0)
        return vt_fail(l->err, VT_ERR_MODEL, "%s holds no tensors", f->path);
    for (uint64_t i = 0; i < f->n_tensors; i++) {
        const vt_tensor *t = &f->tensor[i];
        target at;
        if (!target_in_gguf(l->m, t->name, &at))
            return unknown_tensor(l, f->path, t->name);
        int64_t r = t->rank != 2 ? 0 : at.is_a ? t->dim[0] : t->dim[1];
        if (r < 1 || r > VT_LORA_MOST_RANK)
            return vt_fail(l->err, VT_ERR_UNSUPPORTED,
                           "%s: tensor %.200s has rank %lld, expected 1 to %d", f->path, t->name,
                           (long long)r, VT_LORA_MOST_RANK);
        TRY(take_tensor(l, k, &at, r, alpha == 0 ? 1 : (float)(alpha / (double)r), t));
    }
    return check_pairs(l, k);
}

static vt_status read_adapter(loader *l, int32_t k)
{
    struct stat s;
    bool file = stat(l->lora->path[k], &s) == 0 && S_ISREG(s.st_mode);
    return file ? read_gguf(l, k) : read_folder(l, k);
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

/* The row of an adapter's matrix that is row i of the model's, where the two have the halves of q's
 * and k's heads in different orders: one after the other, or in turn (in GGUF files of some
 * families). */
static int64_t row_in_adapter(const loader *l, const adapter_file *f, int32_t layer, vt_role role,
                              int64_t i)
{
    const vt_model *m = l->m;
    const vt_heads *h = &m->layer[layer].head;
    bool may = m->family && !m->family->hf_rope_interleaved;
    bool in_turn = may && m->arch.n_ropes > 0 && m->arch.rope[0].interleaved,
         adapter_in_turn = may && f->gguf && m->family->rope_interleaved;
    if (in_turn == adapter_in_turn || (role != VT_ROLE_Q && role != VT_ROLE_K))
        return i;
    int64_t in_head = i % h->dim, half = h->dim / 2;
    return i - in_head +
           (in_turn ? in_head % 2 * half + in_head / 2 : in_head % half * 2 + in_head / half);
}

static void copy_pair(const loader *l, const adapter_file *f, int32_t layer, vt_role role,
                      const pair *p, float *a, float *b)
{
    int64_t r = p->a->dim[0], cols = p->a->dim[1], rows = l->m->layer[layer].weight[role]->dim[0];
    for (int64_t j = 0; j < r; j++)
        for (int64_t i = 0; i < cols; i++)
            a[j * cols + i] = element(p->a, j, i);
    for (int64_t i = 0; i < rows; i++) {
        int64_t from = p->b_row + row_in_adapter(l, f, layer, role, i);
        for (int64_t j = 0; j < r; j++)
            b[j * rows + i] = element(p->b, from, j);
    }
}

/* Gathers the parts of all adapters for one matrix, if there are any. */
static vt_status gather(loader *l, int32_t layer, vt_role role)
{
    int64_t each = (int64_t)l->m->arch.n_layers * VT_ROLES, at = (int64_t)layer * VT_ROLES + role;
    int32_t n = l->lora->n;
    int64_t ranks = 0;
    for (int32_t k = 0; k < n; k++)
        ranks += l->pair[k * each + at].a ? l->pair[k * each + at].a->dim[0] : 0;
    if (ranks == 0)
        return VT_OK;
    const vt_tensor *w = l->m->layer[layer].weight[role];
    int64_t rows = w->dim[0], cols = w->dim[1];
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
            copy_pair(l, &l->file[k], layer, role, p, a + first * cols, b + first * rows);
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
        TRY(read_adapter(l, k));
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
                .file = vt_calloc((size_t)n, sizeof *l.file),
                .err = err};
    if (lora) {
        lora->name = vt_arena_alloc(&m->arena, (size_t)n, sizeof *lora->name);
        lora->path = vt_arena_alloc(&m->arena, (size_t)n, sizeof *lora->path);
        lora->matrix = vt_arena_alloc(&m->arena, matrices, sizeof(vt_lora_matrix *));
    }
    bool room = lora && lora->name && lora->path && lora->matrix && l.pair && l.file;
    vt_status status = room ? load_all(&l, texts, n) : no_memory(&l);
    for (int32_t k = 0; l.file && k < n; k++) {
        st_close(l.file[k].st);
        gguf_close(l.file[k].gguf);
    }
    free(l.file);
    free(l.pair);
    if (status == VT_OK)
        m->lora = lora;
    return status;
}
