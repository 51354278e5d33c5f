/* Safetensors reader.
 *
 * The header and the index are JSON from a stranger. Both are bounded by the file's size and by
 * 16 MiB, and read into flat nodes, 12 bytes of memory for a byte of JSON at most: 200 MB for
 * 16 MiB. A header of 16 MiB describes 100,000 tensors. (The format allows 100 MB; the largest
 * published models stay below 1 MB a shard, and their indexes below 8 MB.) After opening, every
 * tensor lies inside the data, aligned to its element, in a known type, with exactly the bytes its
 * shape needs, and overlaps no other. Holes between tensors are allowed.
 *
 * A shard named in index.json must be a plain file name: an index cannot reach outside its folder.
 */
#include "files/safetensors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "files/json_flat.h"

enum {
    MAX_HEADER = 16 << 20,
    MAX_INDEX = 16 << 20,
    MAX_SHARDS = 2048,
    MAX_DIMENSIONS = 8,
    MAX_NAME = 255,
};

static const struct {
    const char *name;
    vt_dtype dtype;
} st_type[] = {
    {"F32", VT_F32}, {"F16", VT_F16}, {"BF16", VT_BF16}, {"F8_E4M3", VT_FP8_E4M3}, {"I8", VT_I8},
    {"U8", VT_U8},   {"I32", VT_I32}, {"I64", VT_I64},   {"BOOL", VT_U8},
};

/* ---- one tensor of the header ---- */

typedef struct header {
    st_file *file;
    const vt_flat_doc *doc;
    const uint8_t *data; /* start of the data section */
    uint64_t data_bytes;
    vt_err *err;
} header;

static vt_status bad_entry(const header *h, const vt_tensor *t, const char *what)
{
    return vt_fail(h->err, VT_ERR_FORMAT, "%s: tensor %.80s: %s", h->file->view.path, t->name,
                   what);
}

static vt_status wrong_kind(const header *h, const vt_tensor *t, const char *key,
                            const vt_flat_node *v, const char *want)
{
    return vt_fail(h->err, VT_ERR_FORMAT, "%s: tensor %.80s: \"%s\" is %s; %s was expected",
                   h->file->view.path, t->name, key, vt_flat_kind(v), want);
}

static vt_status bad_number(const header *h, const vt_tensor *t, const char *key,
                            const vt_flat_node *v, const char *want)
{
    char shown[32];
    snprintf(shown, sizeof shown, "%.17g", v->type == VT_FLAT_NUMBER ? v->number : 0);
    return vt_fail(h->err, VT_ERR_FORMAT, "%s: tensor %.80s: \"%s\" holds %s; %s were expected",
                   h->file->view.path, t->name, key,
                   v->type == VT_FLAT_NUMBER ? shown : vt_flat_kind(v), want);
}

/* A whole number from 0 to 2^53, which is what a double holds exactly. */
static bool whole_number(const vt_flat_node *v, int64_t *out)
{
    if (!v || v->type != VT_FLAT_NUMBER || !(v->number >= 0 && v->number <= 0x1p53) ||
        v->number != floor(v->number))
        return false;
    *out = (int64_t)v->number;
    return true;
}

static vt_status read_dtype(const header *h, const vt_flat_node *entry, vt_tensor *t)
{
    const vt_flat_node *name = vt_flat_get(h->doc, entry, "dtype");
    if (!name || name->type != VT_FLAT_STRING)
        return wrong_kind(h, t, "dtype", name, "a string");
    for (size_t i = 0; i < sizeof st_type / sizeof *st_type; i++)
        if (vt_flat_is(name, st_type[i].name)) {
            t->dtype = st_type[i].dtype;
            return VT_OK;
        }
    return vt_fail(
        h->err, VT_ERR_UNSUPPORTED,
        "%s: tensor %.80s has type %.*s; supported are F32 F16 BF16 F8_E4M3 I8 U8 I32 I64 BOOL",
        h->file->view.path, t->name, (int)(name->len < 20 ? name->len : 20), name->s);
}

/* Reads the dimensions. A vision encoder's convolution over video has five. No weight of a text
 * model has more than four, so those from the fourth on count as one. */
static vt_status read_shape(const header *h, const vt_flat_node *entry, vt_tensor *t)
{
    const vt_flat_node *shape = vt_flat_get(h->doc, entry, "shape");
    if (!shape || shape->type != VT_FLAT_ARRAY)
        return wrong_kind(h, t, "shape", shape, "an array");
    if (shape->len > MAX_DIMENSIONS)
        return vt_fail(h->err, VT_ERR_FORMAT,
                       "%s: tensor %.80s has %u dimensions (at most %d allowed)",
                       h->file->view.path, t->name, shape->len, MAX_DIMENSIONS);
    int64_t elems = 1, n;
    t->rank = 0;
    t->dim[0] = 1; /* a scalar */
    for (const vt_flat_node *d = vt_flat_first(shape); d; d = vt_flat_after(h->doc, shape, d)) {
        if (!whole_number(d, &n) || n < 1)
            return bad_number(h, t, "shape", d, "whole numbers of 1 or more");
        if (__builtin_mul_overflow(elems, n, &elems) || elems > INT64_MAX / 8)
            return bad_entry(h, t, "\"shape\" has more elements than 2^60");
        if (t->rank == VT_MAX_RANK)
            t->dim[VT_MAX_RANK - 1] *= n; /* a part of elems */
        else
            t->dim[t->rank++] = n;
    }
    t->rank = t->rank ? t->rank : 1;
    t->row_stride = t->dim[t->rank - 1];
    return VT_OK;
}

static vt_status read_offsets(const header *h, const vt_flat_node *entry, vt_tensor *t,
                              byte_span *span)
{
    const vt_flat_node *pair = vt_flat_get(h->doc, entry, "data_offsets");
    const vt_flat_node *first = vt_flat_first(pair);
    int64_t begin, end;
    if (!pair || pair->type != VT_FLAT_ARRAY)
        return wrong_kind(h, t, "data_offsets", pair, "a pair [begin, end]");
    if (pair->len != 2)
        return vt_fail(
            h->err, VT_ERR_FORMAT,
            "%s: tensor %.80s: \"data_offsets\" is an array of %u; a pair [begin, end] was "
            "expected",
            h->file->view.path, t->name, pair->len);
    const vt_flat_node *last = vt_flat_after(h->doc, pair, first);
    if (!whole_number(first, &begin))
        return bad_number(h, t, "data_offsets", first, "whole numbers from 0 on");
    if (!whole_number(last, &end) || end < begin)
        return bad_number(h, t, "data_offsets", last, "two numbers in rising order");
    span->begin = (uint64_t)begin;
    span->end = (uint64_t)end;
    uint64_t bytes = (uint64_t)vt_tensor_bytes(t);
    if (span->end > h->data_bytes)
        return vt_fail(
            h->err, VT_ERR_FORMAT,
            "%s: tensor %.80s ends at byte %llu of the data, which has %llu: the file is "
            "truncated",
            h->file->view.path, t->name, (unsigned long long)span->end,
            (unsigned long long)h->data_bytes);
    if (span->end - span->begin != bytes)
        return vt_fail(h->err, VT_ERR_FORMAT,
                       "%s: tensor %.80s has %llu bytes, its shape and type %llu",
                       h->file->view.path, t->name, (unsigned long long)(span->end - span->begin),
                       (unsigned long long)bytes);
    t->data = (void *)(uintptr_t)(h->data + span->begin); /* never written through */
    if ((uintptr_t)t->data % (uintptr_t)vt_dtype_get(t->dtype)->bytes != 0)
        return bad_entry(h, t,
                         "its data is not aligned to its type; save the file again with a current "
                         "version of safetensors");
    return VT_OK;
}

static vt_status read_entry(const header *h, const vt_flat_node *name, const vt_flat_node *entry,
                            vt_tensor *t, byte_span *span)
{
    if (name->len == 0 || name->len > MAX_NAME || memchr(name->s, 0, name->len))
        return vt_fail(h->err, VT_ERR_FORMAT,
                       "%s: a tensor's name has %u bytes or holds a NUL (1 to %d allowed)",
                       h->file->view.path, name->len, MAX_NAME);
    t->name = vt_arena_strdup(&h->file->view.arena, name->s, name->len);
    if (!t->name)
        return vt_fail(h->err, VT_ERR_MEMORY, "%s: out of memory", h->file->view.path);
    if (entry->type != VT_FLAT_OBJECT)
        return vt_fail(h->err, VT_ERR_FORMAT,
                       "%s: tensor %.80s: its entry is %s; an object was expected",
                       h->file->view.path, t->name, vt_flat_kind(entry));
    TRY(read_dtype(h, entry, t));
    TRY(read_shape(h, entry, t));
    return read_offsets(h, entry, t, span);
}

/* ---- the header ---- */

/* With two tensors of a name, nothing says which one is meant. */
static vt_status refuse_equal_names(const header *h)
{
    const st_file *f = h->file;
    size_t n = (size_t)f->n_tensors;
    name_entry *sorted = vt_calloc(n + 1, sizeof *sorted);
    if (!sorted)
        return vt_fail(h->err, VT_ERR_MEMORY, "%s: out of memory", f->view.path);
    for (size_t i = 0; i < n; i++)
        sorted[i] = (name_entry){f->tensor[i].name, strlen(f->tensor[i].name), (uint32_t)i};
    const name_entry *twice = name_index_sort(sorted, n);
    vt_status status = twice ? vt_fail(h->err, VT_ERR_FORMAT, "%s: tensor %.80s appears twice",
                                       f->view.path, twice->name)
                             : VT_OK;
    free(sorted);
    return status;
}

static vt_status read_entries(const header *h, byte_span *span)
{
    st_file *f = h->file;
    const vt_flat_doc *doc = h->doc;
    const vt_flat_node *root = doc->node, *entry;
    for (const vt_flat_node *name = vt_flat_first(root); name;
         name = vt_flat_after(doc, root, entry)) {
        entry = vt_flat_after(doc, root, name);
        if (vt_flat_is(name, "__metadata__"))
            continue;
        size_t i = (size_t)f->n_tensors;
        span[i].at = (uint32_t)i;
        TRY(read_entry(h, name, entry, &f->tensor[i], &span[i]));
        f->n_tensors++;
    }
    TRY(refuse_equal_names(h));
    const byte_span *overlap = byte_span_sort(span, (size_t)f->n_tensors);
    if (overlap)
        return vt_fail(h->err, VT_ERR_FORMAT, "%s: tensors %.80s and %.80s overlap", f->view.path,
                       f->tensor[overlap[-1].at].name, f->tensor[overlap->at].name);
    return VT_OK;
}

static vt_status read_header(header *h, const char *text, size_t len)
{
    vt_flat_doc doc;
    st_file *f = h->file;
    vt_err why = {0};
    if (vt_flat_parse("the header", text, len, &doc, &why) != VT_OK)
        return vt_fail(h->err, why.status, "%s: %s", f->view.path, why.message);
    h->doc = &doc;
    size_t n = doc.node->type == VT_FLAT_OBJECT ? doc.node->len : 0;
    f->tensor = vt_arena_alloc(&f->view.arena, n, sizeof *f->tensor);
    byte_span *span = vt_calloc(n, sizeof *span);
    vt_status status;
    if (doc.node->type != VT_FLAT_OBJECT)
        status = vt_fail(h->err, VT_ERR_FORMAT, "%s: the header is %s; an object was expected",
                         f->view.path, vt_flat_kind(doc.node));
    else if (!f->tensor || !span)
        status = vt_fail(h->err, VT_ERR_MEMORY, "%s: out of memory", f->view.path);
    else
        status = read_entries(h, span);
    free(span);
    vt_flat_release(&doc);
    return status;
}

static vt_status read_file(st_file *f, vt_err *err)
{
    const file_view *v = &f->view;
    uint64_t len = 0;
    if (v->size < 8)
        return vt_fail(err, VT_ERR_FORMAT, "%s: %zu bytes are too few for a safetensors file",
                       v->path, v->size);
    for (int i = 0; i < 8; i++)
        len |= (uint64_t)v->map[i] << (8 * i);
    if (len > v->size - 8 || len > MAX_HEADER)
        return vt_fail(
            err, VT_ERR_FORMAT,
            "%s: not a safetensors file: a header of %llu bytes in a file of %zu (at most %d "
            "allowed)",
            v->path, (unsigned long long)len, v->size, MAX_HEADER);
    header h = {.file = f, .data = v->map + 8 + len, .data_bytes = v->size - 8 - len, .err = err};
    return read_header(&h, (const char *)v->map + 8, (size_t)len);
}

/* Opens the file at `path`, or `bytes` of that name. */
static vt_status open_view(const char *path, const void *bytes, size_t size, st_file **out,
                           vt_err *err)
{
    st_file *f = vt_calloc(1, sizeof *f);
    if (!f)
        return vt_fail(err, VT_ERR_MEMORY, "%s: out of memory", path);
    vt_status status = file_view_open(&f->view, path, bytes, size, err);
    if (status == VT_OK)
        status = read_file(f, err);
    if (status != VT_OK) {
        st_close(f);
        return status;
    }
    *out = f;
    return VT_OK;
}

vt_status st_open_bytes(const char *name, const void *bytes, size_t size, st_file **out,
                        vt_err *err)
{
    return open_view(name, bytes, size, out, err);
}

vt_status st_open(const char *path, st_file **out, vt_err *err)
{
    return open_view(path, NULL, 0, out, err);
}

void st_close(st_file *f)
{
    if (!f)
        return;
    file_view_close(&f->view);
    free(f);
}

/* ---- folders ---- */

/* Opens the file `name` of `len` bytes in the folder. */
static vt_status add_file(st_set *s, const char *folder, const char *name, size_t len, vt_err *err)
{
    char path[4096];
    bool dots = len == 2 && memcmp(name, "..", 2) == 0;
    if (len == 0 || len > MAX_NAME || memchr(name, '/', len) || memchr(name, 0, len) || dots)
        return vt_fail(err, VT_ERR_FORMAT,
                       "%s/model.safetensors.index.json: \"weight_map\" has the file \"%.*s\"; the "
                       "plain name of one in this folder was expected",
                       folder, (int)(len < 80 ? len : 80), name);
    if ((size_t)snprintf(path, sizeof path, "%s/%.*s", folder, (int)len, name) >= sizeof path)
        return vt_fail(err, VT_ERR_IO, "%.200s...: the path is too long", folder);
    TRY(st_open(path, &s->file[s->n_files], err));
    s->n_tensors += s->file[s->n_files]->n_tensors;
    s->n_files++;
    return VT_OK;
}

/* The file names in weight_map, sorted; shard[] has room for all of them. */
static vt_status sort_shards(const char *index, const vt_flat_doc *doc, const vt_flat_node *map,
                             name_entry *shard, size_t *n, vt_err *err)
{
    const vt_flat_node *value;
    *n = 0;
    for (const vt_flat_node *name = vt_flat_first(map); name;
         name = vt_flat_after(doc, map, value)) {
        value = vt_flat_after(doc, map, name);
        if (value->type != VT_FLAT_STRING)
            return vt_fail(err, VT_ERR_FORMAT,
                           "%s: \"weight_map\" has %s for %.*s; the name of a file was expected",
                           index, vt_flat_kind(value), (int)(name->len < 80 ? name->len : 80),
                           name->s);
        shard[(*n)++] = (name_entry){value->s, value->len, 0};
    }
    name_index_sort(shard, *n);
    return VT_OK;
}

/* Opens each file that weight_map names once. */
static vt_status open_shards(st_set *s, const char *folder, const char *index,
                             const vt_flat_doc *doc, const vt_flat_node *map, vt_err *err)
{
    name_entry *shard = vt_calloc((size_t)map->len + 1, sizeof *shard);
    size_t n = 0, most = map->len < MAX_SHARDS ? map->len : MAX_SHARDS;
    s->file = vt_arena_alloc(&s->arena, most, sizeof(st_file *));
    vt_status status = shard && s->file ? sort_shards(index, doc, map, shard, &n, err)
                                        : vt_fail(err, VT_ERR_MEMORY, "%s: out of memory", index);
    for (size_t i = 0; i < n && status == VT_OK; i++) {
        if (i > 0 && shard[i].len == shard[i - 1].len &&
            memcmp(shard[i].name, shard[i - 1].name, shard[i].len) == 0)
            continue;
        if (s->n_files == MAX_SHARDS)
            status = vt_fail(err, VT_ERR_FORMAT,
                             "%s: \"weight_map\" has more than %d files, which are not supported",
                             index, MAX_SHARDS);
        else
            status = add_file(s, folder, shard[i].name, shard[i].len, err);
    }
    free(shard);
    return status;
}

/* One sorted index over all files. */
static vt_status merge(st_set *s, const char *folder, vt_err *err)
{
    s->tensor = vt_arena_alloc(&s->arena, (size_t)s->n_tensors, sizeof(vt_tensor *));
    s->index = vt_arena_alloc(&s->arena, (size_t)s->n_tensors, sizeof *s->index);
    if (!s->tensor || !s->index)
        return vt_fail(err, VT_ERR_MEMORY, "%s: out of memory", folder);
    uint32_t n = 0;
    for (int64_t f = 0; f < s->n_files; f++)
        for (int64_t i = 0; i < s->file[f]->n_tensors; i++) {
            const vt_tensor *t = &s->file[f]->tensor[i];
            s->tensor[n] = t;
            s->index[n] = (name_entry){t->name, strlen(t->name), n};
            n++;
        }
    const name_entry *twice = name_index_sort(s->index, (size_t)s->n_tensors);
    if (twice)
        return vt_fail(err, VT_ERR_FORMAT, "%s: tensor %.80s is in more than one file", folder,
                       twice->name);
    return VT_OK;
}

/* Every tensor of weight_map must be in one of the files. */
static vt_status check_map(const st_set *s, const char *index, const vt_flat_doc *doc,
                           const vt_flat_node *map, vt_err *err)
{
    const vt_flat_node *value;
    for (const vt_flat_node *name = vt_flat_first(map); name;
         name = vt_flat_after(doc, map, value)) {
        value = vt_flat_after(doc, map, name);
        if (name_index_find(s->index, (size_t)s->n_tensors, name->s, name->len) < 0)
            return vt_fail(err, VT_ERR_FORMAT, "%s: tensor %.*s is not in %.*s", index,
                           (int)(name->len < 80 ? name->len : 80), name->s,
                           (int)(value->len < 80 ? value->len : 80), value->s);
    }
    return VT_OK;
}

static vt_status open_map(st_set *s, const char *folder, const char *index, const vt_flat_doc *doc,
                          vt_err *err)
{
    const vt_flat_node *map = vt_flat_get(doc, doc->node, "weight_map");
    if (doc->node->type != VT_FLAT_OBJECT)
        return vt_fail(err, VT_ERR_FORMAT, "%s: the file holds %s; an object was expected", index,
                       vt_flat_kind(doc->node));
    if (!map || map->type != VT_FLAT_OBJECT)
        return vt_fail(err, VT_ERR_FORMAT, "%s: \"weight_map\" is %s; an object was expected",
                       index, vt_flat_kind(map));
    TRY(open_shards(s, folder, index, doc, map, err));
    TRY(merge(s, folder, err));
    return check_map(s, index, doc, map, err);
}

static vt_status open_indexed(st_set *s, const char *folder, const char *index, vt_err *err)
{
    const void *text;
    size_t size;
    vt_flat_doc doc;
    TRY(file_map(index, &text, &size, err));
    vt_status status = size > MAX_INDEX ? vt_fail(err, VT_ERR_FORMAT,
                                                  "%s: %zu bytes of JSON (at most %d allowed)",
                                                  index, size, MAX_INDEX)
                                        : vt_flat_parse(index, text, size, &doc, err);
    if (status == VT_OK) {
        status = open_map(s, folder, index, &doc, err);
        vt_flat_release(&doc);
    }
    file_unmap(text, size);
    return status;
}

static vt_status open_single(st_set *s, const char *folder, vt_err *err)
{
    s->file = vt_arena_alloc(&s->arena, 1, sizeof(st_file *));
    if (!s->file)
        return vt_fail(err, VT_ERR_MEMORY, "%s: out of memory", folder);
    TRY(add_file(s, folder, "model.safetensors", strlen("model.safetensors"), err));
    return merge(s, folder, err);
}

vt_status st_open_folder(const char *folder, st_set **out, vt_err *err)
{
    char index[4096];
    struct stat st;
    if ((size_t)snprintf(index, sizeof index, "%s/model.safetensors.index.json", folder) >=
        sizeof index)
        return vt_fail(err, VT_ERR_IO, "%.200s...: the path is too long", folder);
    st_set *s = vt_calloc(1, sizeof *s);
    if (!s)
        return vt_fail(err, VT_ERR_MEMORY, "%s: out of memory", folder);
    vt_arena_init(&s->arena, 0);
    vt_status status = stat(index, &st) == 0 ? open_indexed(s, folder, index, err)
                                             : open_single(s, folder, err);
    if (status != VT_OK) {
        st_close_set(s);
        return status;
    }
    *out = s;
    return VT_OK;
}

void st_close_set(st_set *s)
{
    if (!s)
        return;
    for (int64_t i = 0; i < s->n_files; i++)
        st_close(s->file[i]);
    vt_arena_release(&s->arena);
    free(s);
}

int64_t st_find(const st_set *s, const char *name)
{
    return name_index_find(s->index, (size_t)s->n_tensors, name, strlen(name));
}
