/* Safetensors reader.
 *
 * The header is JSON from a stranger, so it is bounded twice: by the file's size and by 16 MiB,
 * which is 100,000 tensors; jansson needs some tens of bytes a character in the worst case. (The
 * format allows 100 MB; the largest published models stay below 1 MB a shard.) After opening,
 * every tensor lies inside the data, aligned to its element, in a known type, with exactly the
 * bytes its shape needs, and overlaps no other. Holes between tensors are allowed.
 *
 * A shard named in index.json must be a plain file name: an index cannot reach outside its folder.
 */
#include "files/safetensors.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "files/json.h"
#include "files/map.h"

enum {
    MAX_HEADER = 16 << 20,
    MAX_INDEX = 64 << 20,
    MAX_SHARDS = 2048,
    MAX_NAME = 255,
};

static const struct {
    const char *name;
    vt_dtype dtype;
} st_type[] = {
    {"F32", VT_F32}, {"F16", VT_F16}, {"BF16", VT_BF16}, {"F8_E4M3", VT_FP8_E4M3},
    {"I8", VT_I8},   {"U8", VT_U8},   {"I32", VT_I32},   {"I64", VT_I64},
};

/* ---- one tensor of the header ---- */

typedef struct header {
    st_file *file;
    const uint8_t *data; /* start of the data section */
    uint64_t data_bytes;
    vt_err *err;
} header;

static vt_status bad_entry(const header *h, const vt_tensor *t, const char *what)
{
    return vt_fail(h->err, VT_ERR_FORMAT, "%s: tensor %.80s: %s", h->file->path, t->name, what);
}

static vt_status read_dtype(const header *h, const json_t *entry, vt_tensor *t)
{
    const char *name = json_string_value(json_object_get(entry, "dtype"));
    if (!name)
        return bad_entry(h, t, "\"dtype\" is missing or no string");
    for (size_t i = 0; i < sizeof st_type / sizeof *st_type; i++)
        if (strcmp(name, st_type[i].name) == 0) {
            t->dtype = st_type[i].dtype;
            return VT_OK;
        }
    return vt_fail(
        h->err, VT_ERR_UNSUPPORTED,
        "%s: tensor %.80s has type %.20s; supported are F32 F16 BF16 F8_E4M3 I8 U8 I32 I64",
        h->file->path, t->name, name);
}

static vt_status read_shape(const header *h, const json_t *entry, vt_tensor *t)
{
    const json_t *shape = json_object_get(entry, "shape");
    if (!json_is_array(shape))
        return bad_entry(h, t, "\"shape\" is missing or no array");
    size_t rank = json_array_size(shape);
    if (rank > VT_MAX_RANK)
        return vt_fail(h->err, VT_ERR_FORMAT,
                       "%s: tensor %.80s has %zu dimensions (at most %d allowed)", h->file->path,
                       t->name, rank, VT_MAX_RANK);
    int64_t elems = 1;
    t->rank = rank ? (int32_t)rank : 1;
    t->dim[0] = 1; /* a scalar */
    for (size_t i = 0; i < rank; i++) {
        const json_t *d = json_array_get(shape, i);
        t->dim[i] = json_integer_value(d);
        if (!json_is_integer(d) || t->dim[i] < 1 || t->dim[i] > INT64_MAX / 8 ||
            __builtin_mul_overflow(elems, t->dim[i], &elems) || elems > INT64_MAX / 8)
            return bad_entry(h, t, "its shape is impossible");
    }
    t->row_stride = t->dim[t->rank - 1];
    return VT_OK;
}

static vt_status read_offsets(const header *h, const json_t *entry, vt_tensor *t, byte_span *span)
{
    const json_t *pair = json_object_get(entry, "data_offsets");
    const json_t *begin = json_array_get(pair, 0), *end = json_array_get(pair, 1);
    if (json_array_size(pair) != 2 || !json_is_integer(begin) || !json_is_integer(end) ||
        json_integer_value(begin) < 0 || json_integer_value(end) < json_integer_value(begin))
        return bad_entry(h, t, "\"data_offsets\" is no pair [begin, end]");
    span->begin = (uint64_t)json_integer_value(begin);
    span->end = (uint64_t)json_integer_value(end);
    uint64_t bytes = (uint64_t)vt_tensor_bytes(t);
    if (span->end > h->data_bytes)
        return vt_fail(
            h->err, VT_ERR_FORMAT,
            "%s: tensor %.80s ends at byte %llu of the data, which has %llu: the file is "
            "truncated",
            h->file->path, t->name, (unsigned long long)span->end,
            (unsigned long long)h->data_bytes);
    if (span->end - span->begin != bytes)
        return vt_fail(h->err, VT_ERR_FORMAT,
                       "%s: tensor %.80s has %llu bytes, its shape and type %llu", h->file->path,
                       t->name, (unsigned long long)(span->end - span->begin),
                       (unsigned long long)bytes);
    t->data = (void *)(uintptr_t)(h->data + span->begin); /* never written through */
    if ((uintptr_t)t->data % (uintptr_t)vt_dtype_get(t->dtype)->bytes != 0)
        return bad_entry(h, t,
                         "its data is not aligned to its type; save the file again with a current "
                         "version of safetensors");
    return VT_OK;
}

static vt_status read_entry(const header *h, const char *name, const json_t *entry, vt_tensor *t,
                            byte_span *span)
{
    size_t len = strlen(name);
    if (len == 0 || len > MAX_NAME)
        return vt_fail(h->err, VT_ERR_FORMAT, "%s: a tensor's name has %zu bytes (1 to %d allowed)",
                       h->file->path, len, MAX_NAME);
    t->name = vt_arena_strdup(&h->file->arena, name, len);
    if (!t->name)
        return vt_fail(h->err, VT_ERR_MEMORY, "%s: out of memory", h->file->path);
    if (!json_is_object(entry))
        return bad_entry(h, t, "its entry is no object");
    TRY(read_dtype(h, entry, t));
    TRY(read_shape(h, entry, t));
    return read_offsets(h, entry, t, span);
}

/* ---- the header ---- */

static vt_status read_entries(const header *h, json_t *root, byte_span *span)
{
    st_file *f = h->file;
    const char *name;
    json_t *entry;
    json_object_foreach(root, name, entry)
    {
        if (strcmp(name, "__metadata__") == 0)
            continue;
        size_t i = (size_t)f->n_tensors;
        span[i].at = (uint32_t)i;
        TRY(read_entry(h, name, entry, &f->tensor[i], &span[i]));
        f->n_tensors++;
    }
    const byte_span *overlap = byte_span_sort(span, (size_t)f->n_tensors);
    if (overlap)
        return vt_fail(h->err, VT_ERR_FORMAT, "%s: tensors %.80s and %.80s overlap", f->path,
                       f->tensor[overlap[-1].at].name, f->tensor[overlap->at].name);
    return VT_OK;
}

static vt_status read_header(const header *h, const char *text, size_t len)
{
    json_error_t e;
    json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &e);
    if (!root)
        return vt_fail(h->err, VT_ERR_FORMAT, "%s: the header is not valid JSON: column %d: %s",
                       h->file->path, e.column, e.text);
    size_t n = json_object_size(root); /* 0 if it is no object */
    h->file->tensor = vt_arena_alloc(&h->file->arena, n, sizeof *h->file->tensor);
    byte_span *span = vt_calloc(n, sizeof *span);
    vt_status status;
    if (!json_is_object(root))
        status = vt_fail(h->err, VT_ERR_FORMAT, "%s: the header is no JSON object", h->file->path);
    else if (!h->file->tensor || !span)
        status = vt_fail(h->err, VT_ERR_MEMORY, "%s: out of memory", h->file->path);
    else
        status = read_entries(h, root, span);
    free(span);
    json_decref(root);
    return status;
}

static vt_status read_file(st_file *f, vt_err *err)
{
    uint64_t len = 0;
    if (f->size < 8)
        return vt_fail(err, VT_ERR_FORMAT, "%s: %zu bytes are too few for a safetensors file",
                       f->path, f->size);
    for (int i = 0; i < 8; i++)
        len |= (uint64_t)f->map[i] << (8 * i);
    if (len > f->size - 8 || len > MAX_HEADER)
        return vt_fail(
            err, VT_ERR_FORMAT,
            "%s: not a safetensors file: a header of %llu bytes in a file of %zu (at most %d "
            "allowed)",
            f->path, (unsigned long long)len, f->size, MAX_HEADER);
    header h = {.file = f, .data = f->map + 8 + len, .data_bytes = f->size - 8 - len, .err = err};
    return read_header(&h, (const char *)f->map + 8, (size_t)len);
}

static vt_status open_mapped(const char *path, const void *bytes, size_t size, bool mapped,
                             st_file **out, vt_err *err)
{
    st_file *f = vt_calloc(1, sizeof *f);
    if (!f) {
        if (mapped)
            file_unmap(bytes, size);
        return vt_fail(err, VT_ERR_MEMORY, "%s: out of memory", path);
    }
    f->map = bytes;
    f->size = size;
    f->mapped = mapped;
    vt_arena_init(&f->arena, 0);
    f->path = vt_arena_strdup(&f->arena, path, strlen(path));
    vt_status status = f->path ? read_file(f, err)
                               : vt_fail(err, VT_ERR_MEMORY, "%s: out of memory", path);
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
    return open_mapped(name, bytes, size, false, out, err);
}

vt_status st_open(const char *path, st_file **out, vt_err *err)
{
    const void *map;
    size_t size;
    TRY(file_map(path, &map, &size, err));
    return open_mapped(path, map, size, true, out, err);
}

void st_close(st_file *f)
{
    if (!f)
        return;
    if (f->mapped)
        file_unmap(f->map, f->size);
    vt_arena_release(&f->arena);
    free(f);
}

/* ---- folders ---- */

static vt_status add_file(st_set *s, const char *folder, const char *name, vt_err *err)
{
    char path[4096];
    if (!*name || strchr(name, '/') || strlen(name) > MAX_NAME || strcmp(name, "..") == 0)
        return vt_fail(err, VT_ERR_FORMAT,
                       "%s/model.safetensors.index.json: \"%.80s\" is no plain file name", folder,
                       name);
    if ((size_t)snprintf(path, sizeof path, "%s/%s", folder, name) >= sizeof path)
        return vt_fail(err, VT_ERR_IO, "%.200s...: the path is too long", folder);
    TRY(st_open(path, &s->file[s->n_files], err));
    s->n_tensors += s->file[s->n_files]->n_tensors;
    s->n_files++;
    return VT_OK;
}

/* Sorted copies of the distinct file names in weight_map. */
static vt_status open_shards(st_set *s, const char *folder, const char *index, const json_t *map,
                             vt_err *err)
{
    name_entry *shard = vt_calloc(json_object_size(map), sizeof *shard);
    size_t n = 0;
    const char *name;
    json_t *value;
    vt_status status = VT_OK;
    if (!shard)
        return vt_fail(err, VT_ERR_MEMORY, "%s: out of memory", index);
    json_object_foreach((json_t *)(uintptr_t)map, name, value)
    {
        if (!json_is_string(value)) {
            free(shard);
            return vt_fail(err, VT_ERR_FORMAT, "%s: weight_map has no file for %.80s", index, name);
        }
        const char *file = json_string_value(value);
        shard[n++] = (name_entry){file, strlen(file), 0};
    }
    name_index_sort(shard, n);
    s->file = vt_arena_alloc(&s->arena, n < MAX_SHARDS ? n : MAX_SHARDS, sizeof(st_file *));
    if (!s->file)
        status = vt_fail(err, VT_ERR_MEMORY, "%s: out of memory", index);
    for (size_t i = 0; i < n && status == VT_OK; i++) {
        if (i > 0 && strcmp(shard[i].name, shard[i - 1].name) == 0)
            continue;
        if (s->n_files == MAX_SHARDS)
            status = vt_fail(err, VT_ERR_FORMAT, "%s: more than %d files", index, MAX_SHARDS);
        else
            status = add_file(s, folder, shard[i].name, err);
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

static vt_status open_indexed(st_set *s, const char *folder, const char *index, vt_err *err)
{
    json_t *root;
    TRY(json_file_load(index, MAX_INDEX, &root, err));
    const json_t *map = json_member(root, "weight_map");
    vt_status status = json_is_object(map)
                           ? open_shards(s, folder, index, map, err)
                           : vt_fail(err, VT_ERR_FORMAT,
                                     "%s: \"weight_map\" is missing or no object", index);
    if (status == VT_OK)
        status = merge(s, folder, err);
    const char *name;
    json_t *value;
    if (status == VT_OK)
        json_object_foreach((json_t *)(uintptr_t)map, name, value)
        {
            if (st_find(s, name) < 0) {
                status = vt_fail(err, VT_ERR_FORMAT, "%s: tensor %.80s is not in %.80s", index,
                                 name, json_string_value(value));
                break;
            }
        }
    json_decref(root);
    return status;
}

static vt_status open_single(st_set *s, const char *folder, vt_err *err)
{
    s->file = vt_arena_alloc(&s->arena, 1, sizeof(st_file *));
    if (!s->file)
        return vt_fail(err, VT_ERR_MEMORY, "%s: out of memory", folder);
    TRY(add_file(s, folder, "model.safetensors", err));
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
