#include "model/catalogue.h"

#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files/gguf.h"
#include "files/gguf_split.h"
#include "files/safetensors.h"
#include "model/load.h"

enum { MAX_DEPTH = 4, MAX_MODELS = 10000, MAX_PATH = 4096 };

/* ---- what a model's matrices are made of ---- */

static void most_bytes(const int64_t *bytes, char quant[32])
{
    int most = 0;
    for (int t = 1; t < VT_DTYPE_COUNT; t++)
        most = bytes[t] > bytes[most] ? t : most;
    const char *name = most == VT_I32 ? "int4" : vt_dtype_get((vt_dtype)most)->name; /* packed */
    snprintf(quant, 32, "%s", bytes[most] ? name : "");
}

static void read_quant(vt_cached_model *m)
{
    int64_t bytes[VT_DTYPE_COUNT] = {0};
    gguf_file *file;
    st_set *set;
    if (m->folder && st_open_folder(m->path, &set, NULL) == VT_OK) {
        for (int64_t i = 0; i < set->n_tensors; i++)
            if (set->tensor[i]->rank > 1)
                bytes[set->tensor[i]->dtype] += vt_tensor_bytes(set->tensor[i]);
        st_close_set(set);
    } else if (!m->folder && gguf_open_parts(m->path, &file, NULL) == VT_OK) {
        for (uint64_t i = 0; i < file->n_tensors; i++)
            if (file->tensor[i].rank > 1)
                bytes[file->tensor[i].dtype] += vt_tensor_bytes(&file->tensor[i]);
        gguf_close(file);
    }
    most_bytes(bytes, m->quant);
}

/* ---- walking ---- */

/* Bytes of a file; -1 where it is none. */
static int64_t file_bytes(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 && S_ISREG(st.st_mode) ? (int64_t)st.st_size : -1;
}

/* The path of part i (from 1) of a split file. */
static void part_path(const char *first, const gguf_split_name *s, int32_t i, char out[MAX_PATH])
{
    snprintf(out, MAX_PATH, "%.*s-%05d-of-%05d.gguf", (int)s->prefix, first, i, s->count);
}

/* Bytes of a GGUF file, with all the parts of a split one that exist. */
static int64_t gguf_bytes(const char *path)
{
    gguf_split_name split;
    char part[MAX_PATH];
    if (!gguf_split_parse(path, strlen(path), &split))
        return file_bytes(path);
    int64_t sum = 0;
    for (int32_t i = 1; i <= split.count; i++) {
        part_path(path, &split, i, part);
        int64_t bytes = file_bytes(part);
        sum += bytes > 0 ? bytes : 0;
    }
    return sum;
}

static vt_status no_memory(vt_err *err)
{
    return vt_fail(err, VT_ERR_MEMORY, "out of memory for the list of models");
}

static vt_status add(vt_catalogue *c, const char *path, bool folder, int64_t bytes, vt_err *err)
{
    if (c->n == MAX_MODELS)
        return vt_fail(err, VT_ERR_IO, "%s: more than %d models", c->folder, MAX_MODELS);
    if (c->n == c->cap) {
        int32_t cap = c->cap ? 2 * c->cap : 16;
        vt_cached_model *grown = realloc(c->model, (size_t)cap * sizeof *grown);
        if (!grown)
            return no_memory(err);
        c->model = grown;
        c->cap = cap;
    }
    const char *relative = path + strlen(c->folder) + 1, *known = vt_model_known_name(relative);
    size_t len = strlen(relative);
    bool ending = !folder && len > 5 && strcmp(relative + len - 5, ".gguf") == 0;
    vt_cached_model *m = &c->model[c->n++];
    *m = (vt_cached_model){.path = strdup(path),
                           .name = known ? strdup(known)
                                         : strndup(relative, len - (ending ? 5 : 0)),
                           .bytes = bytes,
                           .folder = folder};
    if (!m->path || !m->name)
        return no_memory(err);
    read_quant(m);
    return VT_OK;
}

static bool has(const char *folder, const char *name)
{
    char path[MAX_PATH];
    return (size_t)snprintf(path, sizeof path, "%s/%s", folder, name) < sizeof path &&
           file_bytes(path) >= 0;
}

static vt_status walk(vt_catalogue *c, const char *folder, int depth, vt_err *err);

/* One name in a folder. *sum counts the bytes of files. */
static vt_status visit(vt_catalogue *c, const char *path, int depth, int64_t *sum, vt_err *err)
{
    struct stat st;
    gguf_split_name split;
    size_t len = strlen(path);
    if (lstat(path, &st) != 0)
        return VT_OK; /* removed meanwhile */
    if (S_ISDIR(st.st_mode))
        return depth < MAX_DEPTH ? walk(c, path, depth + 1, err) : VT_OK;
    if (!S_ISREG(st.st_mode))
        return VT_OK;
    *sum += st.st_size;
    bool gguf = len > 5 && strcmp(path + len - 5, ".gguf") == 0;
    bool later = gguf && gguf_split_parse(path, len, &split) && split.part > 1;
    return gguf && !later ? add(c, path, false, gguf_bytes(path), err) : VT_OK;
}

static vt_status walk(vt_catalogue *c, const char *folder, int depth, vt_err *err)
{
    char path[MAX_PATH];
    int64_t sum = 0;
    vt_status status = VT_OK;
    DIR *d = opendir(folder);
    if (!d)
        return errno == ENOENT ? VT_OK : vt_fail(err, VT_ERR_IO, "%s: %s", folder, strerror(errno));
    for (struct dirent *e; status == VT_OK && (e = readdir(d));)
        if (e->d_name[0] != '.' &&
            (size_t)snprintf(path, sizeof path, "%s/%s", folder, e->d_name) < sizeof path)
            status = visit(c, path, depth, &sum, err);
    closedir(d);
    if (status == VT_OK && depth > 0 && has(folder, "config.json") &&
        (has(folder, "model.safetensors") || has(folder, "model.safetensors.index.json")))
        status = add(c, folder, true, sum, err);
    return status;
}

static int by_name(const void *pa, const void *pb)
{
    const vt_cached_model *a = pa, *b = pb;
    return strcmp(a->name, b->name);
}

vt_status vt_catalogue_read(vt_catalogue *out, vt_err *err)
{
    char folder[3072];
    vt_catalogue c = {0};
    TRY(vt_cache_dir(folder, sizeof folder, err));
    c.folder = strdup(folder);
    vt_status status = c.folder ? walk(&c, folder, 0, err) : no_memory(err);
    if (status != VT_OK) {
        vt_catalogue_release(&c);
        return status;
    }
    if (c.n > 1)
        qsort(c.model, (size_t)c.n, sizeof *c.model, by_name);
    *out = c;
    return VT_OK;
}

void vt_catalogue_release(vt_catalogue *c)
{
    for (int32_t i = 0; i < c->n; i++) {
        free(c->model[i].name);
        free(c->model[i].path);
    }
    free(c->model);
    free(c->folder);
    *c = (vt_catalogue){0};
}

const vt_cached_model *vt_catalogue_find(const vt_catalogue *c, const char *name)
{
    size_t n = strlen(c->folder);
    for (int32_t i = 0; i < c->n; i++) {
        const vt_cached_model *m = &c->model[i];
        const char *file = m->path + n + 1;
        size_t len = strlen(name);
        bool without_ending = strncmp(file, name, len) == 0 && strcmp(file + len, ".gguf") == 0;
        if (strcmp(m->name, name) == 0 || strcmp(file, name) == 0 || without_ending)
            return m;
    }
    return NULL;
}

/* ---- removing ---- */

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st;
    (void)kind;
    (void)at;
    return remove(path);
}

vt_status vt_catalogue_remove(const vt_catalogue *c, const vt_cached_model *m, vt_err *err)
{
    char path[MAX_PATH];
    gguf_split_name split;
    int failed = 0;
    if (m->folder) {
        failed = nftw(m->path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    } else if (gguf_split_parse(m->path, strlen(m->path), &split)) {
        for (int32_t i = 1; i <= split.count && !failed; i++) {
            part_path(m->path, &split, i, path);
            failed = unlink(path) != 0 && errno != ENOENT;
        }
    } else {
        failed = unlink(m->path);
    }
    if (failed)
        return vt_fail(err, VT_ERR_IO, "%s: cannot be removed: %s", m->path, strerror(errno));
    snprintf(path, sizeof path, "%s", m->path);
    for (char *slash; (slash = strrchr(path, '/')) && slash > path + strlen(c->folder);) {
        *slash = '\0';
        if (rmdir(path) != 0)
            break; /* something else is in it */
    }
    return VT_OK;
}
