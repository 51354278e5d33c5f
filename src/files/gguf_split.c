/* Models that are split over several GGUF files.
 *
 *   m-00001-of-00003.gguf   all metadata; split.no 0, split.count 3, split.tensors.count N
 *   m-00002-of-00003.gguf   split.no 1, split.count 3, and tensors
 *   m-00003-of-00003.gguf   split.no 2, split.count 3, and tensors
 *
 * The rules are llama.cpp's: the first file is the one that is named; the others' names follow from
 * it; each must say that it is the part its name says; all tensors together are as many as the
 * first file announces, and no name appears twice. The first file may hold no tensors.
 */
#include "files/gguf_split.h"

#include <stdio.h>
#include <string.h>

#include "files/gguf.h"

enum { MAX_PARTS = 1024, MAX_PATH = 4096 };

/* Reads which part of a model a file is: *no (from 0) of *count, which is 1 if the file does not
 * say. */
static vt_status read_numbers(const gguf_file *f, int64_t *no, int64_t *count, vt_err *err)
{
    *no = 0;
    *count = 1;
    TRY(gguf_get_i64(f, "split.no", false, no, err));
    TRY(gguf_get_i64(f, "split.count", false, count, err));
    if (*count == 0) /* as gguf-split counts a file that is not split */
        *count = 1;
    if (*count < 1 || *count > MAX_PARTS || *no < 0 || *no >= *count)
        return vt_fail(err, VT_ERR_FORMAT,
                       "%s: split.no is %lld and split.count %lld (parts 0 to count - 1, at most "
                       "%d of them, expected)",
                       f->path, (long long)*no, (long long)*count, MAX_PARTS);
    return VT_OK;
}

/* Checks that the first file is named as a first part of `count`. */
static vt_status check_first(const gguf_file *f, int64_t no, int64_t count, gguf_split_name *name,
                             vt_err *err)
{
    if (!gguf_split_parse(f->path, strlen(f->path), name))
        return vt_fail(err, VT_ERR_FORMAT,
                       "%s: it is part %lld of %lld, and its name does not end with "
                       "-%05lld-of-%05lld.gguf, by which the others would be found",
                       f->path, (long long)no + 1, (long long)count, (long long)no + 1,
                       (long long)count);
    if (name->count != count || name->part != no + 1)
        return vt_fail(err, VT_ERR_FORMAT,
                       "%s: it says that it is part %lld of %lld, and its name says %d of %d",
                       f->path, (long long)no + 1, (long long)count, name->part, name->count);
    if (no != 0)
        return vt_fail(err, VT_ERR_USAGE,
                       "%s: it is part %lld of %lld; name the first one, %.*s-00001-of-%05d.gguf",
                       f->path, (long long)no + 1, (long long)count, (int)name->prefix, f->path,
                       name->count);
    return VT_OK;
}

/* Opens part i (from 1) into f->part and checks its numbers. */
static vt_status open_part(gguf_file *f, const gguf_split_name *name, int32_t i, vt_err *err)
{
    char path[MAX_PATH];
    gguf_file *part;
    int64_t no, count;
    int n = snprintf(path, sizeof path, "%.*s-%05d-of-%05d.gguf", (int)name->prefix, f->path, i + 1,
                     name->count);
    if (n < 0 || (size_t)n >= sizeof path)
        return vt_fail(err, VT_ERR_IO, "%.200s...: the path is too long", f->path);
    TRY(gguf_open(path, &part, err));
    f->part[f->n_parts++] = part;
    TRY(read_numbers(part, &no, &count, err));
    if (no != i || count != name->count)
        return vt_fail(err, VT_ERR_FORMAT,
                       "%s: it says that it is part %lld of %lld; %d of %d was expected", path,
                       (long long)no + 1, (long long)count, i + 1, name->count);
    return VT_OK;
}

/* All tensors in one array with one index, in f's arena. */
static vt_status merge(gguf_file *f, vt_err *err)
{
    uint64_t n = f->n_tensors, at = f->n_tensors;
    int64_t announced = -1;
    for (int32_t i = 0; i < f->n_parts; i++)
        n += f->part[i]->n_tensors;
    TRY(gguf_get_i64(f, "split.tensors.count", true, &announced, err));
    if (announced < 0 || (uint64_t)announced != n || n > UINT32_MAX)
        return vt_fail(err, VT_ERR_FORMAT,
                       "%s: split.tensors.count is %lld, and the %d parts hold %llu tensors",
                       f->path, (long long)announced, f->n_parts + 1, (unsigned long long)n);
    vt_tensor *tensor = vt_arena_alloc(&f->view.arena, (size_t)n, sizeof *tensor);
    name_entry *index = vt_arena_alloc(&f->view.arena, (size_t)n, sizeof *index);
    if (!tensor || !index)
        return vt_fail(err, VT_ERR_MEMORY, "%s: out of memory", f->path);
    if (f->n_tensors)
        memcpy(tensor, f->tensor, (size_t)f->n_tensors * sizeof *tensor);
    for (int32_t i = 0; i < f->n_parts; i++) {
        size_t more = (size_t)f->part[i]->n_tensors;
        if (more)
            memcpy(tensor + at, f->part[i]->tensor, more * sizeof *tensor);
        at += more;
    }
    for (uint64_t i = 0; i < n; i++)
        index[i] = (name_entry){tensor[i].name, strlen(tensor[i].name), (uint32_t)i};
    const name_entry *twice = name_index_sort(index, (size_t)n);
    if (twice)
        return vt_fail(err, VT_ERR_FORMAT, "%s: tensor %.80s is in more than one part", f->path,
                       twice->name);
    f->tensor = tensor;
    f->tensor_index = index;
    f->n_tensors = n;
    return VT_OK;
}

static vt_status open_others(gguf_file *f, vt_err *err)
{
    gguf_split_name name;
    int64_t no, count;
    TRY(read_numbers(f, &no, &count, err));
    if (count == 1)
        return VT_OK;
    TRY(check_first(f, no, count, &name, err));
    f->part = vt_arena_alloc(&f->view.arena, (size_t)count, sizeof *f->part);
    if (!f->part)
        return vt_fail(err, VT_ERR_MEMORY, "%s: out of memory", f->path);
    for (int32_t i = 1; i < count; i++)
        TRY(open_part(f, &name, i, err));
    return merge(f, err);
}

vt_status gguf_open_parts(const char *path, gguf_file **out, vt_err *err)
{
    gguf_file *f;
    TRY(gguf_open(path, &f, err));
    vt_status status = open_others(f, err);
    if (status != VT_OK) {
        gguf_close(f);
        return status;
    }
    *out = f;
    return VT_OK;
}
