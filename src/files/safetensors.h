/* Safetensors, one file or a folder of shards, read by mmap: bytes to typed views, nothing more.
 *
 *   header length u64 | header: JSON {name: {dtype, shape, data_offsets: [begin, end]}} | data
 *
 * Every length, shape and offset is checked; a broken file gives VT_ERR_FORMAT with the path, the
 * tensor, what was found and what was expected. Views point into the mapping. */
#ifndef VT_FILES_SAFETENSORS_H
#define VT_FILES_SAFETENSORS_H

#include "base/err.h"
#include "base/mem.h"
#include "base/tensor.h"
#include "files/index.h"
#include "files/map.h"

typedef struct st_file {
    file_view view;
    int64_t n_tensors;
    vt_tensor *tensor; /* [n_tensors]; a scalar has shape [1] */
} st_file;

vt_status st_open(const char *path, st_file **out, vt_err *err);
/* The same of bytes in memory, borrowed and aligned to 8: for tests and fuzzing. */
vt_status st_open_bytes(const char *name, const void *bytes, size_t size, st_file **out,
                        vt_err *err);
void st_close(st_file *f);

/* All tensors of a model folder: model.safetensors, or what model.safetensors.index.json lists. */
typedef struct st_set {
    st_file **file; /* [n_files] */
    int64_t n_files;
    const vt_tensor **tensor; /* [n_tensors] of all files, names unique */
    name_entry *index;        /* sorted by name */
    int64_t n_tensors;
    vt_arena arena;
} st_set;

vt_status st_open_folder(const char *folder, st_set **out, vt_err *err);
void st_close_set(st_set *s);
int64_t st_find(const st_set *s, const char *name); /* index into tensor[]; -1: none */

#endif
