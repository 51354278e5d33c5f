/* Packed matrices among a folder's tensors (int4.h): found by name, checked, given a place.
 *
 *   "X.qweight" or "X.weight_packed", and the tensors beside it  ->  "X.weight"
 *
 * What they become takes at most 11/8 of the codes' bytes, which lie in mapped files: no size
 * overflows. The memory is reserved here, filled by int4_make and emptied by int4_done. */
#include "model/int4/int4.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/err.h"
#include "base/team.h"
#include "model/int4/inside.h"

enum { ALIGN = 4096, CHUNK = 128 /* rows that a worker takes at a time */, MAX_NAME = 256 };

struct int4_set {
    int4_matrix *matrix; /* [n] */
    vt_tensor *tensor;   /* [n] */
    name_entry *index;   /* [n] */
    int64_t n;
    uint8_t *took; /* [tensors in the files] */
    char *memory;
    size_t bytes;
    pthread_mutex_t lock; /* for what follows */
    bool made, keep;
    int32_t uses;
};

/* The last parts of names, by int4_kind; NULL: the form has no such tensor. */
typedef struct int4_names {
    const char *codes, *scales, *zeros, *order, *shape;
} int4_names;

static const int4_names names[] = {[INT4_AWQ] = {".qweight", ".scales", ".qzeros", NULL, NULL},
                                   [INT4_GPTQ] = {".qweight", ".scales", ".qzeros", ".g_idx", NULL},
                                   [INT4_PACKED] = {".weight_packed", ".weight_scale",
                                                    ".weight_zero_point", ".weight_g_idx",
                                                    ".weight_shape"}};

typedef struct finder {
    vt_model *m;
    const st_set *files;
    const int4_form *form;
    int4_set *s;
    vt_err *err;
} finder;

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), e = strlen(end);
    return n > e && strcmp(name + n - e, end) == 0;
}

static vt_status no_memory(const finder *f)
{
    return vt_fail(f->err, VT_ERR_MEMORY, "%s: out of memory", f->m->path);
}

/* ---- checking ---- */

static vt_status expect_shape(const finder *f, const vt_tensor *t, bool of_scales, int64_t rows,
                              int64_t cols)
{
    bool type = of_scales ? t->dtype == VT_F16 || t->dtype == VT_BF16 : t->dtype == VT_I32;
    if (type && t->rank == 2 && t->dim[0] == rows && t->dim[1] == cols)
        return VT_OK;
    return vt_fail(f->err, VT_ERR_MODEL,
                   "%s: tensor %s has type %s, rank %d and shape [%lld, %lld]; %s [%lld, %lld] was "
                   "expected",
                   f->m->path, t->name, vt_dtype_get(t->dtype)->name, t->rank, (long long)t->dim[0],
                   t->rank > 1 ? (long long)t->dim[1] : 0, of_scales ? "F16 or BF16" : "I32",
                   (long long)rows, (long long)cols);
}

/* *out = the tensor "module" + `end`, which counts as taken; NULL: the folder has none. */
static vt_status take(const finder *f, const char *module, int length, const char *end,
                      bool required, const vt_tensor **out)
{
    char name[MAX_NAME];
    *out = NULL;
    if (!end)
        return VT_OK;
    snprintf(name, sizeof name, "%.*s%s", length, module, end);
    int64_t i = st_find(f->files, name);
    if (i < 0 && required)
        return vt_fail(f->err, VT_ERR_MODEL, "%s: tensor %s is missing", f->m->path, name);
    if (i < 0)
        return VT_OK;
    f->s->took[i] = 1;
    *out = f->files->tensor[i];
    return VT_OK;
}

/* Takes the size of a matrix from its codes and, of compressed-tensors, its weight_shape. */
static vt_status read_size(const finder *f, const vt_tensor *shape, int4_matrix *m)
{
    const vt_tensor *c = m->codes;
    if (c->dtype != VT_I32 || c->rank != 2)
        return vt_fail(f->err, VT_ERR_UNSUPPORTED,
                       "%s: tensor %s has type %s and rank %d; I32 and rank 2 were expected",
                       f->m->path, c->name, vt_dtype_get(c->dtype)->name, c->rank);
    int4_kind kind = f->form->kind;
    m->rows = kind == INT4_AWQ ? 8 * c->dim[1] : c->dim[kind == INT4_GPTQ];
    m->cols = kind == INT4_AWQ ? c->dim[0] : 8 * c->dim[kind == INT4_PACKED];
    int64_t want[2] = {m->rows, m->cols};
    if (shape && (shape->dtype != VT_I64 || vt_tensor_elems(shape) != 2 ||
                  memcmp(shape->data, want, sizeof want) != 0))
        return vt_fail(f->err, VT_ERR_MODEL,
                       "%s: tensor %s does not hold [%lld, %lld], the size of %s", f->m->path,
                       shape->name, (long long)m->rows, (long long)m->cols, c->name);
    m->group = f->form->group ? f->form->group : m->cols;
    if (m->rows < 1 || m->cols < 1 || m->cols % INT4_BLOCK != 0 || m->cols % m->group != 0)
        return vt_fail(f->err, VT_ERR_UNSUPPORTED,
                       "%s: tensor %s is a matrix of %lld columns; a multiple of %lld was expected",
                       f->m->path, c->name, (long long)m->cols,
                       (long long)(f->form->group ? m->group : INT4_BLOCK));
    return VT_OK;
}

static vt_status check_parts(const finder *f, const int4_matrix *m)
{
    int64_t groups = m->cols / m->group, words = vt_ceil_div(m->rows, 8);
    bool packed = f->form->kind == INT4_PACKED;
    TRY(expect_shape(f, m->scales, true, packed ? m->rows : groups, packed ? groups : m->rows));
    if (!packed && m->rows % 8 != 0)
        return vt_fail(f->err, VT_ERR_MODEL,
                       "%s: tensor %s is a matrix of %lld rows; a multiple of 8 was expected",
                       f->m->path, m->codes->name, (long long)m->rows);
    return m->zeros
               ? expect_shape(f, m->zeros, false, packed ? words : groups, packed ? groups : words)
               : VT_OK;
}

/* Checks that each column's group is the one where it lies. Files that were made with desc_act, or
 * actorder "group", have columns in another order. */
static vt_status check_order(const finder *f, const int4_matrix *m, const vt_tensor *order)
{
    if (!order)
        return VT_OK;
    const int32_t *group = order->data;
    if (order->dtype != VT_I32 || order->rank != 1 || order->dim[0] != m->cols)
        return vt_fail(f->err, VT_ERR_MODEL,
                       "%s: tensor %s has type %s, rank %d and %lld elements; I32, rank 1 and %lld "
                       "were expected",
                       f->m->path, order->name, vt_dtype_get(order->dtype)->name, order->rank,
                       (long long)order->dim[0], (long long)m->cols);
    for (int64_t i = 0; i < m->cols; i++)
        if (group[i] != i / m->group)
            return vt_fail(f->err, VT_ERR_UNSUPPORTED,
                           "%s: tensor %s puts column %lld into group %d; %lld was expected, for "
                           "columns in another order (\"desc_act\", \"actorder\": \"group\") are "
                           "not supported",
                           f->m->path, order->name, (long long)i, group[i],
                           (long long)(i / m->group));
    return VT_OK;
}

/* ---- finding ---- */

/* Adds the matrix whose codes are tensor i. */
static vt_status add(const finder *f, int64_t i)
{
    const int4_names *n = &names[f->form->kind];
    const vt_tensor *order, *shape, *plain;
    int4_matrix m = {.form = *f->form, .codes = f->files->tensor[i]};
    const char *module = m.codes->name;
    int length = (int)(strlen(module) - strlen(n->codes));
    if (length > MAX_NAME - 32)
        return vt_fail(f->err, VT_ERR_MODEL, "%s: the name of tensor %.80s... is too long",
                       f->m->path, module);
    f->s->took[i] = 1;
    TRY(take(f, module, length, n->scales, true, &m.scales));
    TRY(take(f, module, length, n->zeros, f->form->kind != INT4_PACKED || !f->form->symmetric,
             &m.zeros));
    TRY(take(f, module, length, n->order, false, &order));
    TRY(take(f, module, length, n->shape, true, &shape));
    TRY(take(f, module, length, ".weight", false, &plain));
    if (plain)
        return vt_fail(f->err, VT_ERR_MODEL, "%s: both %s and %s are there; one was expected",
                       f->m->path, module, plain->name);
    TRY(read_size(f, shape, &m));
    TRY(check_parts(f, &m));
    TRY(check_order(f, &m, order));
    m.out = &f->s->tensor[f->s->n];
    *m.out = vt_tensor_2d(NULL, m.form.symmetric ? VT_Q4_0 : VT_Q5_0, m.rows, m.cols);
    char *name = vt_arena_alloc(&f->m->arena, (size_t)length + sizeof ".weight", 1);
    if (!name)
        return no_memory(f);
    snprintf(name, (size_t)length + sizeof ".weight", "%.*s.weight", length, module);
    m.out->name = name;
    f->s->matrix[f->s->n] = m;
    f->s->index[f->s->n] = (name_entry){name, strlen(name), (uint32_t)f->s->n};
    f->s->n++;
    return VT_OK;
}

static vt_status reserve(const finder *f)
{
    int4_set *s = f->s;
    size_t total = 0;
    for (int64_t i = 0; i < s->n; i++)
        total += vt_round_up((size_t)vt_tensor_bytes(&s->tensor[i]), ALIGN);
    char *at = mmap(NULL, total, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return vt_fail(f->err, VT_ERR_MEMORY, "%s: %.1f GB of address space are not to be had",
                       f->m->path, (double)total / 1e9);
    madvise(at, total, MADV_HUGEPAGE); /* a hint: failure changes nothing */
    s->memory = at;
    s->bytes = total;
    for (int64_t i = 0; i < s->n; i++) {
        s->tensor[i].data = at;
        at += vt_round_up((size_t)vt_tensor_bytes(&s->tensor[i]), ALIGN);
    }
    return VT_OK;
}

vt_status int4_find(vt_model *m, const st_set *files, const int4_form *form, int4_set **out,
                    vt_err *err)
{
    int4_set *s = vt_arena_alloc(&m->arena, 1, sizeof *s);
    finder f = {.m = m, .files = files, .form = form, .s = s, .err = err};
    const char *codes = names[form->kind].codes;
    size_t n = 0;
    for (int64_t i = 0; i < files->n_tensors; i++)
        n += ends_with(files->tensor[i]->name, codes);
    if (n == 0)
        return vt_fail(err, VT_ERR_MODEL,
                       "%s: quantization_config says %s, and no tensor's name ends with %s",
                       m->path, int4_name(form->kind), codes);
    if (!s)
        return no_memory(&f);
    s->matrix = vt_arena_alloc(&m->arena, n, sizeof *s->matrix);
    s->tensor = vt_arena_alloc(&m->arena, n, sizeof *s->tensor);
    s->index = vt_arena_alloc(&m->arena, n, sizeof *s->index);
    s->took = vt_arena_alloc(&m->arena, (size_t)files->n_tensors, 1);
    if (!s->matrix || !s->tensor || !s->index || !s->took)
        return no_memory(&f);
    for (int64_t i = 0; i < files->n_tensors; i++)
        if (ends_with(files->tensor[i]->name, codes))
            TRY(add(&f, i));
    name_index_sort(s->index, (size_t)s->n);
    TRY(reserve(&f));
    if (pthread_mutex_init(&s->lock, NULL) != 0) {
        munmap(s->memory, s->bytes);
        return no_memory(&f);
    }
    *out = s;
    return VT_OK;
}

void int4_release(int4_set *s)
{
    if (!s)
        return;
    munmap(s->memory, s->bytes);
    pthread_mutex_destroy(&s->lock);
}

int64_t int4_count(const int4_set *s) { return s ? s->n : 0; }

const vt_tensor *int4_at(const int4_set *s, int64_t i) { return &s->tensor[i]; }

int64_t int4_index(const int4_set *s, const char *name)
{
    return s ? name_index_find(s->index, (size_t)s->n, name, strlen(name)) : -1;
}

bool int4_took(const int4_set *s, int64_t i) { return s && s->took[i]; }

/* ---- making ---- */

typedef struct make_job {
    const int4_set *s;
    atomic_llong ticket;  /* chunks of all matrices, counted through */
    atomic_llong refused; /* a matrix with a scale or zero that is refused; -1: none */
} make_job;

static void make_worker(void *arg, int32_t worker)
{
    make_job *job = arg;
    (void)worker;
    int64_t i = 0, before = 0; /* chunks of the matrices before this one */
    for (;;) {
        int64_t mine = atomic_fetch_add(&job->ticket, 1);
        for (; i < job->s->n; i++) {
            int64_t chunks = vt_ceil_div(job->s->matrix[i].rows, CHUNK);
            if (mine < before + chunks)
                break;
            before += chunks;
        }
        if (i == job->s->n)
            return;
        const int4_matrix *m = &job->s->matrix[i];
        int64_t first = (mine - before) * CHUNK, n = m->rows - first;
        if (!int4_repack(m, first, n < CHUNK ? n : CHUNK))
            atomic_store(&job->refused, i);
    }
}

static vt_status make(const int4_set *s, const char *path, vt_err *err)
{
    vt_team *team;
    make_job job = {.s = s, .refused = -1};
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    TRY(vt_team_new(cpus < 1 ? 1 : cpus > 64 ? 64 : (int32_t)cpus, &team, err));
    vt_team_run(team, make_worker, &job);
    vt_team_free(team);
    long long refused = atomic_load(&job.refused);
    return refused < 0 ? VT_OK : int4_say_refused(&s->matrix[refused], path, err);
}

vt_status int4_make(int4_set *s, const char *path, vt_err *err)
{
    pthread_mutex_lock(&s->lock);
    vt_status status = s->made ? VT_OK : make(s, path, err);
    s->made = status == VT_OK;
    s->uses += status == VT_OK;
    pthread_mutex_unlock(&s->lock);
    return status;
}

vt_status int4_make_one(const int4_set *s, int64_t i, const char *path, vt_err *err)
{
    const int4_matrix *m = &s->matrix[i];
    return int4_repack(m, 0, m->rows) ? VT_OK : int4_say_refused(m, path, err);
}

void int4_done(int4_set *s, bool keep)
{
    pthread_mutex_lock(&s->lock);
    s->keep = s->keep || keep;
    if (--s->uses == 0 && !s->keep) {
        madvise(s->memory, s->bytes, MADV_DONTNEED); /* failure costs memory and nothing else */
        s->made = false;
    }
    pthread_mutex_unlock(&s->lock);
}
