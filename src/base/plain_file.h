/* Opening files at places that other people may have prepared: a folder of results, or a path that
 * a person typed.
 *
 * Reading must not wait: opening a FIFO blocks until somebody writes to it. Writing must not go
 * through a link: the file behind it may be anywhere. */
#ifndef VT_BASE_PLAIN_FILE_H
#define VT_BASE_PLAIN_FILE_H

#include <stdio.h>

#include "base/buf.h"
#include "base/err.h"

/* Opens a file for reading and gives it in *out. A FIFO is refused. A pipe that the shell has
 * opened already (/dev/fd/63, /dev/stdin) is read like a file. On failure errno says why as well,
 * and *out is untouched. */
vt_status vt_open_to_read(const char *path, FILE **out, vt_err *err);

/* Appends the whole file to *out, which it initialises with the limit `max`. A longer file is
 * refused. On failure *out is released. */
vt_status vt_read_whole(const char *path, size_t max, vt_buf *out, vt_err *err);

/* Opens a file of this user's own for writing from its beginning, makes it if it is missing (mode
 * 0644), and gives its descriptor in *out. Each write goes to the end. Refuses a symbolic link,
 * whatever is no regular file, a file of another user, and a file with a second name. */
vt_status vt_open_to_log(const char *path, int *out, vt_err *err);

/* Writes text[0..len) as the whole of a file, by vt_new_file: a link at `path` is replaced, and the
 * file behind it stays as it is. */
vt_status vt_write_whole(const char *path, const void *text, size_t len, vt_err *err);

#endif
