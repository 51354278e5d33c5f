/* The folders and files of the cache on disk (base/cache_dir.h). */
#include "base/cache_dir.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_PATH = 4096 };

vt_status vt_cache_path(const char *name, char *out, size_t size, vt_err *err)
{
    const char *cache = getenv("VITRINE_CACHE"), *home = getenv("HOME");
    const char *slash = *name ? "/" : "";
    int n;
    if (cache && *cache)
        n = snprintf(out, size, "%s%s%s", cache, slash, name);
    else if (home && *home)
        n = snprintf(out, size, "%s/.cache/vitrine%s%s", home, slash, name);
    else
        return vt_fail(err, VT_ERR_IO,
                       "neither VITRINE_CACHE nor HOME is set, so there is no place for the cache");
    if (n < 0 || (size_t)n >= size)
        return vt_fail(err, VT_ERR_IO, "the cache's path is longer than %zu bytes", size - 1);
    return VT_OK;
}

/* Makes the folder whose path is the first `len` bytes of `path`. */
static vt_status make_one(const char *path, size_t len, vt_err *err)
{
    char folder[MAX_PATH];
    memcpy(folder, path, len);
    folder[len] = '\0';
    if (mkdir(folder, 0700) != 0 && errno != EEXIST)
        return vt_fail(err, VT_ERR_IO, "%s cannot be made: %s", folder, strerror(errno));
    return VT_OK;
}

vt_status vt_make_folders_above(const char *path, vt_err *err)
{
    size_t len = strlen(path);
    if (len >= MAX_PATH)
        return vt_fail(err, VT_ERR_IO, "the path %.200s... is longer than %d bytes", path,
                       MAX_PATH - 1);
    for (size_t i = 1; i < len; i++)
        if (path[i] == '/' && path[i - 1] != '/')
            TRY(make_one(path, i, err));
    return VT_OK;
}

vt_status vt_make_folders(const char *path, vt_err *err)
{
    TRY(vt_make_folders_above(path, err));
    return make_one(path, strlen(path), err);
}

vt_status vt_check_private(int fd, const char *path, vt_err *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return vt_fail(err, VT_ERR_IO, "%s: %s", path, strerror(errno));
    if (st.st_uid != geteuid() && st.st_uid != 0)
        return vt_fail(err, VT_ERR_IO, "%s is not used: it belongs to user %ld, not to you (%ld)",
                       path, (long)st.st_uid, (long)geteuid());
    if (st.st_mode & (S_IWGRP | S_IWOTH))
        return vt_fail(err, VT_ERR_IO,
                       "%s is not used: its mode %03o lets other users write to it (chmod go-w "
                       "makes it usable)",
                       path, (unsigned)st.st_mode & 0777);
    return VT_OK;
}

vt_status vt_new_file_begin(vt_new_file *f, const char *path, vt_err *err)
{
    const char *slash = strrchr(path, '/');
    int n_folder = slash ? (int)(slash - path) + 1 : 0;
    f->file = NULL;
    f->owner_only = false;
    int n = snprintf(f->temporary, sizeof f->temporary, "%.*s.tmp-XXXXXX", n_folder, path);
    if (n < 0 || (size_t)n >= sizeof f->temporary)
        return vt_fail(err, VT_ERR_IO, "the path %.200s... is too long", path);
    int fd = mkstemp(f->temporary); /* mode 0600, and never through a link */
    if (fd < 0)
        return vt_fail(err, VT_ERR_IO, "%s: %s", f->temporary, strerror(errno));
    f->file = fdopen(fd, "wb");
    if (f->file)
        return VT_OK;
    close(fd);
    unlink(f->temporary);
    return vt_fail(err, VT_ERR_MEMORY, "%s: out of memory", path);
}

vt_status vt_new_file_end(vt_new_file *f, const char *path, bool keep, vt_err *err)
{
    bool written = ferror(f->file) == 0;
    written = fclose(f->file) == 0 && written;
    f->file = NULL;
    if (keep && written && chmod(f->temporary, f->owner_only ? 0600 : 0644) == 0 &&
        rename(f->temporary, path) == 0)
        return VT_OK;
    int failure = errno;
    unlink(f->temporary);
    return keep ? vt_fail(err, VT_ERR_IO, "%s cannot be written: %s", path, strerror(failure))
                : VT_OK;
}
