/* Whole files as read-only memory. */
#ifndef VT_FILES_MAP_H
#define VT_FILES_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/mem.h"

/* Maps a regular file. An empty file, a folder, a FIFO or a device is refused by name, without
 * waiting. The mapping outlives the descriptor. */
vt_status file_map(const char *path, const void **out, size_t *size, vt_err *err);
void file_unmap(const void *map, size_t size);

/* Returns true for an address inside a mapping of file_map. (A mapping that there was no memory to
 * note counts as none.) */
bool file_is_mapped(const void *at);

/* A mapped file that was cut short raises SIGBUS where its missing pages are read. After this call
 * a SIGBUS inside a mapping of file_map writes one line that names the file and ends the process
 * with status 1; any other SIGBUS does what it did before. For programs: a library must leave its
 * caller's signals alone. */
void file_explain_sigbus(void);

/* The readers of model files have this in common: the bytes, where they come from, and an arena for
 * what is read from them. */
typedef struct file_view {
    char *path; /* in the arena */
    const uint8_t *map;
    size_t size;
    bool mapped; /* by file_view_open; else the bytes are borrowed */
    vt_arena arena;
} file_view;

/* Maps the file at `path`; where `bytes` is given it is the file's contents, borrowed and aligned
 * to 8, and `path` only its name in messages. Close it in any case, failed or not. */
vt_status file_view_open(file_view *v, const char *path, const void *bytes, size_t size,
                         vt_err *err);
void file_view_close(file_view *v);

#endif
