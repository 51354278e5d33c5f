/* The cache on disk: where it is, how its folders are made, and whether what lies in it can be
 * trusted.
 *
 *   $VITRINE_CACHE, or ~/.cache/vitrine
 *       models/   cubin/   roofs-<key>.json
 *
 * Folders are made for their owner alone (mode 0700): a cubin in the cache is code that runs on the
 * owner's GPU, and a model in it is what a bare name loads. */
#ifndef VT_BASE_CACHE_DIR_H
#define VT_BASE_CACHE_DIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/err.h"

/* The path of `name` inside the cache; name "" gives the cache's own folder. An error where neither
 * VITRINE_CACHE nor HOME is set, or the path does not fit. */
vt_status vt_cache_path(const char *name, char *out, size_t size, vt_err *err);

/* Makes a folder and those above it that are missing, each with mode 0700. Folders that exist are
 * left as they are. */
vt_status vt_make_folders(const char *path, vt_err *err);

/* Makes the folders above a file. */
vt_status vt_make_folders_above(const char *path, vt_err *err);

/* Whether only this user (or root) can change the open file or folder: it belongs to one of the
 * two, and neither group nor others may write to it. VT_ERR_IO names `path` and what is wrong. */
vt_status vt_check_private(int fd, const char *path, vt_err *err);

/* Writing a file so that readers see either the old bytes or all of the new ones: a temporary file
 * with a name that cannot be foreseen in the same folder, then a rename. */
typedef struct vt_new_file {
    FILE *file;
    char temporary[1200];
} vt_new_file;

vt_status vt_new_file_begin(vt_new_file *f, const char *path, vt_err *err);
/* Closes the file and, if `keep`, gives it its name; else it is removed. Removed too where writing
 * failed. */
vt_status vt_new_file_end(vt_new_file *f, const char *path, bool keep, vt_err *err);

#endif
