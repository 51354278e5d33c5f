/* GGUF reader.
 *
 *   offset 0   "GGUF" | version u32 | n_tensors u64 | n_values u64
 *              n_values  x  key string | type u32 | value
 *              n_tensors x  name string | n_dims u32 | dims u64[n_dims], innermost first | type u32
 *                           | offset u64
 *              zeros up to a multiple of general.alignment (32 unless the file says otherwise)
 *   data       tensors, each at its offset from here
 *
 * A string is u64 length and bytes; an array is u32 element type, u64 count and elements. Version
 * 3 differs from 2 only in that it allows big-endian files, which we refuse. Version 1 had 32-bit
 * counts; no such file has been written since 2023 and it is refused too.
 *
 * The file may be hostile. The rules that keep it harmless:
 *   - a cursor never moves beyond the end; every length is compared with what is left before use;
 *   - before memory is allocated for n things, n is compared with the bytes that are left and the
 *     least number of bytes a thing needs, so memory stays below 8 times the header's size;
 *   - after opening, every tensor lies inside the data, aligned, in a known type, overlapping none;
 *   - names are unique: with two tensors of a name, nothing says which one is meant.
 */
#include "files/gguf.h"

#include "base/buf.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"

enum {
    MAX_KEY = 65535,       /* the format's own limit */
    MAX_TENSOR_NAME = 255, /* the format says 64; a few writers exceed it */
    MAX_ALIGNMENT = 65536,
    MIN_VALUE_BYTES = 8 + 1 + 4 + 1,          /* a key of one character and a byte */
    MIN_TENSOR_BYTES = 8 + 1 + 4 + 8 + 4 + 8, /* a name of one character and one dimension */
};

static const char *const type_name[] = {
    [GGUF_U8] = "u8",         [GGUF_I8] = "i8",       [GGUF_U16] = "u16", [GGUF_I16] = "i16",
    [GGUF_U32] = "u32",       [GGUF_I32] = "i32",     [GGUF_F32] = "f32", [GGUF_BOOL] = "bool",
    [GGUF_STRING] = "string", [GGUF_ARRAY] = "array", [GGUF_U64] = "u64", [GGUF_I64] = "i64",
    [GGUF_F64] = "f64",
};
static const uint8_t type_bytes[] = {
    [GGUF_U8] = 1,  [GGUF_I8] = 1,  [GGUF_U16] = 2,  [GGUF_I16] = 2,    [GGUF_U32] = 4,
    [GGUF_I32] = 4, [GGUF_F32] = 4, [GGUF_BOOL] = 1, [GGUF_STRING] = 0, [GGUF_ARRAY] = 0,
    [GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8,
};

/* Tensor types that are known and not supported, by their number in the file. base/dtypes.h has
 * the numbers of those that are supported. */
static const char *const other_type[] = {
    [9] = "Q8_1",   [15] = "Q8_K",  [16] = "IQ2_XXS", [17] = "IQ2_XS", [18] = "IQ3_XXS",
    [19] = "IQ1_S", [21] = "IQ3_S", [22] = "IQ2_S",   [25] = "I16",    [28] = "F64",
    [29] = "IQ1_M", [34] = "TQ1_0", [35] = "TQ2_0",   [40] = "NVFP4",
};

/* ---- the cursor ---- */

typedef struct cursor {
    const uint8_t *bytes;
    uint64_t pos, size;
    const char *path;
    vt_err *err;
} cursor;

static uint64_t left(const cursor *c) { return c->size - c->pos; }

static uint64_t load_le(const uint8_t *p, int n)
{
    uint64_t v = 0;
    for (int i = 0; i < n; i++)
        v |= (uint64_t)p[i] << (8 * i);
    return v;
}

static vt_status truncated(const cursor *c, const char *what, uint64_t need)
{
    vt_fail(c->err, VT_ERR_FORMAT,
            "%s: the file ends in %s: %llu bytes wanted at offset %llu, %llu left", c->path, what,
            (unsigned long long)need, (unsigned long long)c->pos, (unsigned long long)left(c));
    return VT_ERR_FORMAT; /* a constant, so that the compiler sees which callers go on */
}

static vt_status take(cursor *c, uint64_t n, const char *what, const uint8_t **out)
{
    if (n > left(c))
        return truncated(c, what, n);
    *out = c->bytes + c->pos;
    c->pos += n;
    return VT_OK;
}

static vt_status take_u32(cursor *c, const char *what, uint32_t *out)
{
    const uint8_t *p;
    TRY(take(c, 4, what, &p));
    *out = (uint32_t)load_le(p, 4);
    return VT_OK;
}

static vt_status take_u64(cursor *c, const char *what, uint64_t *out)
{
    const uint8_t *p;
    TRY(take(c, 8, what, &p));
    *out = load_le(p, 8);
    return VT_OK;
}

static vt_status take_str(cursor *c, const char *what, gguf_str *out)
{
    uint64_t n;
    const uint8_t *p;
    TRY(take_u64(c, what, &n));
    TRY(take(c, n, what, &p));
    *out = (gguf_str){(const char *)p, (size_t)n};
    return VT_OK;
}

/* For messages: a name cut to a length that fits a line. */
static int shown(size_t len) { return len > 80 ? 80 : (int)len; }

static vt_status no_memory(const cursor *c)
{
    return vt_fail(c->err, VT_ERR_MEMORY, "%s: out of memory while reading the header", c->path);
}

/* ---- metadata ---- */

static vt_status read_strings(cursor *c, vt_arena *arena, gguf_value *v)
{
    if (v->n > left(c) / 8)
        return vt_fail(
            c->err, VT_ERR_FORMAT, "%s: key %.*s claims %llu strings, %llu bytes are left", c->path,
            shown(v->key.len), v->key.data, (unsigned long long)v->n, (unsigned long long)left(c));
    gguf_str *s = vt_arena_alloc(arena, (size_t)v->n, sizeof *s);
    if (!s)
        return no_memory(c);
    for (uint64_t i = 0; i < v->n; i++)
        TRY(take_str(c, "a string", &s[i]));
    v->strings = s;
    return VT_OK;
}

static vt_status read_value(cursor *c, vt_arena *arena, gguf_value *v)
{
    uint32_t type;
    TRY(take_str(c, "a metadata key", &v->key));
    if (v->key.len == 0 || v->key.len > MAX_KEY)
        return vt_fail(c->err, VT_ERR_FORMAT,
                       "%s: a metadata key of %zu bytes at offset %llu (1 to %d allowed)", c->path,
                       v->key.len, (unsigned long long)c->pos, MAX_KEY);
    TRY(take_u32(c, "a metadata type", &type));
    v->n = 1;
    if (type == GGUF_ARRAY) {
        v->is_array = true;
        TRY(take_u32(c, "an array's type", &type));
        TRY(take_u64(c, "an array's length", &v->n));
    }
    if (type > GGUF_F64 || type == GGUF_ARRAY)
        return vt_fail(c->err, VT_ERR_FORMAT, "%s: key %.*s has %stype %u, which is %s", c->path,
                       shown(v->key.len), v->key.data, v->is_array ? "element " : "", type,
                       type == GGUF_ARRAY ? "an array of arrays: not supported" : "unknown");
    v->type = (gguf_type)type;
    v->bytes = c->bytes + c->pos;
    if (type == GGUF_STRING)
        return read_strings(c, arena, v);
    if (v->n > left(c) / type_bytes[type])
        return vt_fail(c->err, VT_ERR_FORMAT,
                       "%s: key %.*s claims %llu elements of type %s, %llu bytes are left", c->path,
                       shown(v->key.len), v->key.data, (unsigned long long)v->n, type_name[type],
                       (unsigned long long)left(c));
    c->pos += v->n * type_bytes[type];
    return VT_OK;
}

static vt_status read_metadata(cursor *c, gguf_file *f)
{
    size_t n = (size_t)f->n_values;
    f->value = vt_arena_alloc(&f->view.arena, n, sizeof *f->value);
    f->value_index = vt_arena_alloc(&f->view.arena, n, sizeof *f->value_index);
    if (!f->value || !f->value_index)
        return no_memory(c);
    for (size_t i = 0; i < n; i++) {
        TRY(read_value(c, &f->view.arena, &f->value[i]));
        f->value_index[i] = (name_entry){f->value[i].key.data, f->value[i].key.len, (uint32_t)i};
    }
    const name_entry *twice = name_index_sort(f->value_index, n);
    if (twice)
        return vt_fail(c->err, VT_ERR_FORMAT, "%s: metadata key %.*s appears twice", c->path,
                       shown(twice->len), twice->name);
    return VT_OK;
}

/* ---- tensors ---- */

static vt_status read_dims(cursor *c, vt_tensor *t)
{
    uint32_t rank;
    TRY(take_u32(c, "a tensor's rank", &rank));
    if (rank < 1 || rank > VT_MAX_RANK)
        return vt_fail(c->err, VT_ERR_FORMAT,
                       "%s: tensor %.80s has %u dimensions (1 to %d allowed)", c->path, t->name,
                       rank, VT_MAX_RANK);
    t->rank = (int32_t)rank;
    int64_t elems = 1;
    for (uint32_t i = 0; i < rank; i++) {
        uint64_t d;
        TRY(take_u64(c, "a tensor's dimensions", &d));
        if (d < 1 || d > INT64_MAX / 8 || __builtin_mul_overflow(elems, (int64_t)d, &elems) ||
            elems > INT64_MAX / 8) /* so that a size in bytes cannot overflow either */
            return vt_fail(c->err, VT_ERR_FORMAT,
                           "%s: tensor %.80s has an impossible size: dimension %u is %llu", c->path,
                           t->name, i, (unsigned long long)d);
        t->dim[rank - 1 - i] = (int64_t)d;
    }
    t->row_stride = t->dim[rank - 1];
    return VT_OK;
}

static bool type_of_number(uint32_t number, vt_dtype *out)
{
    for (int t = 0; t < VT_DTYPE_COUNT; t++)
        if (vt_dtype_get((vt_dtype)t)->gguf == (int64_t)number) {
            *out = (vt_dtype)t;
            return true;
        }
    return false;
}

static vt_status unsupported_type(const cursor *c, const vt_tensor *t, const char *type)
{
    char all[200] = "";
    size_t used = 0;
    for (int i = 0; i < VT_DTYPE_COUNT; i++)
        if (vt_dtype_weight((vt_dtype)i) && vt_dtype_get((vt_dtype)i)->gguf >= 0)
            vt_append(all, sizeof all, &used, " %s", vt_dtype_get((vt_dtype)i)->name);
    return vt_fail(c->err, VT_ERR_UNSUPPORTED, "%s: tensor %.80s has type %s; supported are%s",
                   c->path, t->name, type, all);
}

static vt_status read_dtype(cursor *c, vt_tensor *t)
{
    uint32_t type;
    TRY(take_u32(c, "a tensor's type", &type));
    if (!type_of_number(type, &t->dtype)) {
        bool known = type < sizeof other_type / sizeof *other_type && other_type[type];
        return known ? unsupported_type(c, t, other_type[type])
                     : vt_fail(c->err, VT_ERR_FORMAT, "%s: tensor %.80s has unknown type %u",
                               c->path, t->name, type);
    }
    const vt_dtype_info *info = vt_dtype_get(t->dtype);
    if (t->row_stride % info->block != 0)
        return vt_fail(c->err, VT_ERR_FORMAT,
                       "%s: tensor %.80s has rows of %lld elements, not a multiple of %s's %d",
                       c->path, t->name, (long long)t->row_stride, info->name, info->block);
    return VT_OK;
}

/* One tensor info; *offset is relative to the data section. */
static vt_status read_tensor(cursor *c, vt_arena *arena, vt_tensor *t, uint64_t *offset)
{
    gguf_str name;
    TRY(take_str(c, "a tensor's name", &name));
    if (name.len == 0 || name.len > MAX_TENSOR_NAME || memchr(name.data, 0, name.len))
        return vt_fail(c->err, VT_ERR_FORMAT,
                       "%s: a tensor's name before offset %llu has %zu bytes or holds a NUL "
                       "(1 to %d allowed)",
                       c->path, (unsigned long long)c->pos, name.len, MAX_TENSOR_NAME);
    t->name = vt_arena_strdup(arena, name.data, name.len);
    if (!t->name)
        return no_memory(c);
    TRY(read_dims(c, t));
    TRY(read_dtype(c, t));
    return take_u64(c, "a tensor's offset", offset);
}

/* Where tensor t lies, checked; points t->data there. `data` is the start of the data section. */
static vt_status place_tensor(cursor *c, vt_tensor *t, uint64_t data, uint64_t alignment,
                              uint64_t offset, byte_span *span)
{
    uint64_t available = c->size - data, bytes = (uint64_t)vt_tensor_bytes(t);
    if (offset % alignment != 0)
        return vt_fail(c->err, VT_ERR_FORMAT,
                       "%s: tensor %.80s lies at offset %llu, not a multiple of the alignment "
                       "%llu",
                       c->path, t->name, (unsigned long long)offset, (unsigned long long)alignment);
    if (offset > available || bytes > available - offset)
        return vt_fail(c->err, VT_ERR_FORMAT,
                       "%s: tensor %.80s wants bytes %llu to %llu of the data, which has %llu: "
                       "the file is truncated",
                       c->path, t->name, (unsigned long long)offset,
                       (unsigned long long)(offset + bytes), (unsigned long long)available);
    t->data = (void *)(uintptr_t)(c->bytes + data + offset); /* never written through */
    span->begin = offset;
    span->end = offset + bytes;
    return VT_OK;
}

static vt_status read_alignment(const gguf_file *f, vt_err *err, uint64_t *out)
{
    int64_t a = 32;
    TRY(gguf_get_i64(f, "general.alignment", false, &a, err));
    if (a < 8 || a > MAX_ALIGNMENT || (a & (a - 1)) != 0)
        return vt_fail(err, VT_ERR_FORMAT,
                       "%s: general.alignment is %lld (a power of two from 8 to %d expected)",
                       f->path, (long long)a, MAX_ALIGNMENT);
    *out = (uint64_t)a;
    return VT_OK;
}

static vt_status read_tensors(cursor *c, gguf_file *f, byte_span *span)
{
    size_t n = (size_t)f->n_tensors;
    for (size_t i = 0; i < n; i++) {
        TRY(read_tensor(c, &f->view.arena, &f->tensor[i], &span[i].begin));
        f->tensor_index[i] = (name_entry){f->tensor[i].name, strlen(f->tensor[i].name),
                                          (uint32_t)i};
    }
    const name_entry *twice = name_index_sort(f->tensor_index, n);
    if (twice)
        return vt_fail(c->err, VT_ERR_FORMAT, "%s: tensor %.80s appears twice", c->path,
                       twice->name);
    if (n == 0)
        return VT_OK;

    uint64_t alignment = 0, data;
    TRY(read_alignment(f, c->err, &alignment));
    data = (c->pos + alignment - 1) / alignment * alignment;
    if (data > c->size)
        return truncated(c, "the padding before the data", data - c->pos);
    for (size_t i = 0; i < n; i++) {
        span[i].at = (uint32_t)i;
        TRY(place_tensor(c, &f->tensor[i], data, alignment, span[i].begin, &span[i]));
    }
    const byte_span *overlap = byte_span_sort(span, n);
    if (overlap)
        return vt_fail(c->err, VT_ERR_FORMAT, "%s: tensors %.80s and %.80s overlap", c->path,
                       f->tensor[overlap[-1].at].name, f->tensor[overlap->at].name);
    return VT_OK;
}

/* ---- opening ---- */

static vt_status read_header(cursor *c, gguf_file *f)
{
    const uint8_t *magic;
    TRY(take(c, 4, "the magic number", &magic));
    if (memcmp(magic, "GGUF", 4) != 0)
        return vt_fail(c->err, VT_ERR_FORMAT,
                       "%s: not a GGUF file (it begins with %02x %02x %02x %02x)", c->path,
                       magic[0], magic[1], magic[2], magic[3]);
    TRY(take_u32(c, "the version", &f->version));
    if (f->version != 0 && (f->version & 0xffff) == 0)
        return vt_fail(c->err, VT_ERR_UNSUPPORTED,
                       "%s: a big-endian GGUF file; only little-endian ones are read", c->path);
    if (f->version < 2 || f->version > 3)
        return vt_fail(c->err, VT_ERR_UNSUPPORTED, "%s: GGUF version %u; versions 2 and 3 are read",
                       c->path, f->version);
    TRY(take_u64(c, "the number of tensors", &f->n_tensors));
    TRY(take_u64(c, "the number of metadata values", &f->n_values));
    if (f->n_values > left(c) / MIN_VALUE_BYTES || f->n_tensors > left(c) / MIN_TENSOR_BYTES ||
        f->n_values > UINT32_MAX || f->n_tensors > UINT32_MAX)
        return vt_fail(c->err, VT_ERR_FORMAT,
                       "%s: the header claims %llu values and %llu tensors, more than %llu "
                       "bytes can hold",
                       c->path, (unsigned long long)f->n_values, (unsigned long long)f->n_tensors,
                       (unsigned long long)left(c));
    return VT_OK;
}

static vt_status read_file(gguf_file *f, vt_err *err)
{
    cursor c = {.bytes = f->view.map, .size = f->view.size, .path = f->path, .err = err};
    TRY(read_header(&c, f));
    TRY(read_metadata(&c, f));
    size_t n = (size_t)f->n_tensors;
    f->tensor = vt_arena_alloc(&f->view.arena, n, sizeof *f->tensor);
    f->tensor_index = vt_arena_alloc(&f->view.arena, n, sizeof *f->tensor_index);
    byte_span *span = vt_calloc(n, sizeof *span);
    vt_status status = f->tensor && f->tensor_index && span ? read_tensors(&c, f, span)
                                                            : no_memory(&c);
    free(span);
    return status;
}

/* Opens the file at `path`, or `bytes` of that name. */
static vt_status open_view(const char *path, const void *bytes, size_t size, gguf_file **out,
                           vt_err *err)
{
    gguf_file *f = vt_calloc(1, sizeof *f);
    if (!f)
        return vt_fail(err, VT_ERR_MEMORY, "%s: out of memory", path);
    vt_status status = file_view_open(&f->view, path, bytes, size, err);
    f->path = f->view.path;
    if (status == VT_OK)
        status = read_file(f, err);
    if (status != VT_OK) {
        gguf_close(f);
        return status;
    }
    *out = f;
    return VT_OK;
}

vt_status gguf_open_bytes(const char *name, const void *bytes, size_t size, gguf_file **out,
                          vt_err *err)
{
    return open_view(name, bytes, size, out, err);
}

vt_status gguf_open(const char *path, gguf_file **out, vt_err *err)
{
    return open_view(path, NULL, 0, out, err);
}

void gguf_close(gguf_file *f)
{
    if (!f)
        return;
    for (int32_t i = 0; i < f->n_parts; i++)
        gguf_close(f->part[i]);
    file_view_close(&f->view);
    free(f);
}

/* ---- access ---- */

const gguf_value *gguf_find(const gguf_file *f, const char *key)
{
    int64_t i = name_index_find(f->value_index, (size_t)f->n_values, key, strlen(key));
    return i < 0 ? NULL : &f->value[i];
}

const vt_tensor *gguf_tensor(const gguf_file *f, const char *name)
{
    int64_t i = name_index_find(f->tensor_index, (size_t)f->n_tensors, name, strlen(name));
    return i < 0 ? NULL : &f->tensor[i];
}

int64_t gguf_array_i64(const gguf_value *v, uint64_t i)
{
    if (i >= v->n)
        return 0;
    int bytes = type_bytes[v->type];
    uint64_t raw = load_le(v->bytes + i * (uint64_t)bytes, bytes);
    switch (v->type) {
    case GGUF_I8:
        return (int8_t)raw;
    case GGUF_I16:
        return (int16_t)raw;
    case GGUF_I32:
        return (int32_t)raw;
    case GGUF_F32:
    case GGUF_F64:
    case GGUF_STRING:
    case GGUF_ARRAY:
        return 0;
    default:
        return (int64_t)raw;
    }
}

double gguf_array_f64(const gguf_value *v, uint64_t i)
{
    if (i >= v->n || v->type == GGUF_STRING)
        return NAN;
    const uint8_t *p = v->bytes + i * type_bytes[v->type];
    if (v->type == GGUF_F32) {
        float f;
        memcpy(&f, p, sizeof f);
        return f;
    }
    if (v->type == GGUF_F64) {
        double d;
        memcpy(&d, p, sizeof d);
        return d;
    }
    if (v->type == GGUF_U64)
        return (double)load_le(p, 8);
    return (double)gguf_array_i64(v, i);
}

/* The scalar `key`; NULL with VT_OK if it is absent and may be. */
static vt_status find_scalar(const gguf_file *f, const char *key, bool required,
                             const gguf_value **out, vt_err *err)
{
    *out = gguf_find(f, key);
    if (!*out && required)
        return vt_fail(err, VT_ERR_FORMAT, "%s: metadata key %s is missing", f->path, key);
    if (*out && (*out)->is_array)
        return vt_fail(err, VT_ERR_FORMAT,
                       "%s: metadata key %s is an array; a single value was expected", f->path,
                       key);
    return VT_OK;
}

static vt_status wrong_type(const gguf_file *f, const char *key, const gguf_value *v,
                            const char *want, vt_err *err)
{
    return vt_fail(err, VT_ERR_FORMAT, "%s: metadata key %s has type %s; %s was expected", f->path,
                   key, type_name[v->type], want);
}

vt_status gguf_get_i64(const gguf_file *f, const char *key, bool required, int64_t *out,
                       vt_err *err)
{
    const gguf_value *v;
    TRY(find_scalar(f, key, required, &v, err));
    if (!v)
        return VT_OK;
    if (v->type == GGUF_F32 || v->type == GGUF_F64 || v->type == GGUF_BOOL ||
        v->type == GGUF_STRING)
        return wrong_type(f, key, v, "an integer", err);
    if (v->type == GGUF_U64 && load_le(v->bytes, 8) > INT64_MAX)
        return vt_fail(err, VT_ERR_FORMAT, "%s: metadata key %s is %llu, beyond what is reasonable",
                       f->path, key, (unsigned long long)load_le(v->bytes, 8));
    *out = gguf_array_i64(v, 0);
    return VT_OK;
}

vt_status gguf_get_f64(const gguf_file *f, const char *key, bool required, double *out, vt_err *err)
{
    const gguf_value *v;
    TRY(find_scalar(f, key, required, &v, err));
    if (!v)
        return VT_OK;
    if (v->type != GGUF_F32 && v->type != GGUF_F64)
        return wrong_type(f, key, v, "a floating-point number", err);
    double d = gguf_array_f64(v, 0);
    if (!isfinite(d))
        return vt_fail(err, VT_ERR_FORMAT, "%s: metadata key %s is not a finite number", f->path,
                       key);
    *out = d;
    return VT_OK;
}

vt_status gguf_get_bool(const gguf_file *f, const char *key, bool required, bool *out, vt_err *err)
{
    const gguf_value *v;
    TRY(find_scalar(f, key, required, &v, err));
    if (!v)
        return VT_OK;
    if (v->type != GGUF_BOOL)
        return wrong_type(f, key, v, "a bool", err);
    *out = v->bytes[0] != 0;
    return VT_OK;
}

vt_status gguf_get_str(const gguf_file *f, const char *key, bool required, gguf_str *out,
                       vt_err *err)
{
    const gguf_value *v;
    TRY(find_scalar(f, key, required, &v, err));
    if (!v)
        return VT_OK;
    if (v->type != GGUF_STRING)
        return wrong_type(f, key, v, "a string", err);
    *out = v->strings[0];
    return VT_OK;
}
