/* GGUF v2 and v3, read by mmap: bytes to typed views, nothing more.
 *
 *   header | metadata key/values | tensor infos | padding | tensor data (aligned)
 *
 * Every count, length and offset is checked against the file before it is used; a broken file gives
 * VT_ERR_FORMAT with the path, the key or tensor, what was found and what was expected. Views point
 * into the mapping and live as long as the file is open. */
#ifndef VT_FILES_GGUF_H
#define VT_FILES_GGUF_H

#include "base/err.h"
#include "base/mem.h"
#include "base/tensor.h"
#include "files/index.h"
#include "files/map.h"

typedef enum gguf_type {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64
} gguf_type;

typedef struct gguf_str {
    const char *data; /* not NUL-terminated */
    size_t len;
} gguf_str;

typedef struct gguf_value {
    gguf_str key;
    gguf_type type; /* of the value, or of the elements if is_array */
    bool is_array;
    uint64_t n;              /* elements; 1 for a scalar */
    const uint8_t *bytes;    /* the value's bytes in the file (unaligned) */
    const gguf_str *strings; /* [n] for strings, decoded once */
} gguf_value;

typedef struct gguf_file {
    file_view view;
    const char *path; /* view.path */
    uint32_t version;
    uint64_t n_values, n_tensors;
    gguf_value *value; /* [n_values] */
    vt_tensor *tensor; /* [n_tensors], dim[0] outermost (GGUF's order reversed), names copied */
    name_entry *value_index, *tensor_index; /* sorted by name */
    struct gguf_file **part;                /* [n_parts] what gguf_open_parts has opened besides */
    int32_t n_parts;
} gguf_file;

vt_status gguf_open(const char *path, gguf_file **out, vt_err *err);
/* The same for a model that may be split over several files (NAME-00001-of-00003.gguf, as
 * llama.cpp's gguf-split writes them): `path` names the first; the others are opened too, and
 * tensor[] holds the tensors of all. The metadata is the first file's. */
vt_status gguf_open_parts(const char *path, gguf_file **out, vt_err *err);
/* The same of bytes in memory, borrowed and aligned to 8: for tests and fuzzing. `name` is used in
 * messages. */
vt_status gguf_open_bytes(const char *name, const void *bytes, size_t size, gguf_file **out,
                          vt_err *err);
void gguf_close(gguf_file *f);

const gguf_value *gguf_find(const gguf_file *f, const char *key); /* NULL if absent */
const vt_tensor *gguf_tensor(const gguf_file *f, const char *name);

/* The value of a key. Integers of any width are converted (with a check of the range), floats of
 * both widths too. If the key is absent, that is an error where `required`; else *out keeps what it
 * was. A wrong type is always an error. */
vt_status gguf_get_i64(const gguf_file *f, const char *key, bool required, int64_t *out,
                       vt_err *err);
vt_status gguf_get_f64(const gguf_file *f, const char *key, bool required, double *out,
                       vt_err *err);
vt_status gguf_get_bool(const gguf_file *f, const char *key, bool required, bool *out, vt_err *err);
vt_status gguf_get_str(const gguf_file *f, const char *key, bool required, gguf_str *out,
                       vt_err *err);
/* Element i of a numeric array; NAN or 0 where there is none. */
double gguf_array_f64(const gguf_value *v, uint64_t i);
int64_t gguf_array_i64(const gguf_value *v, uint64_t i);

#endif
