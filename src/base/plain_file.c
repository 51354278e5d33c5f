/* Opening files at places that other people may have prepared (plain_file.h). */
#include "base/plain_file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/cache_dir.h"

/* Returns true if the descriptor is of a pipe without a name: the shell opened it, so that opening
 * it again waits for nobody. */
static bool is_nameless_pipe(int fd)
{
    struct statfs fs;
    return fstatfs(fd, &fs) == 0 && fs.f_type == PIPEFS_MAGIC;
}

vt_status vt_open_to_read(const char *path, FILE **out, vt_err *err)
{
    struct stat st;
    FILE *f = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO would wait for its writer */
    if (fd < 0)
        return vt_fail(err, VT_ERR_IO, "%s: %s", path, strerror(errno));
    if (fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode) && !is_nameless_pipe(fd)) {
        close(fd);
        errno = EINVAL;
        return vt_fail(err, VT_ERR_IO,
                       "%s: is a named pipe (FIFO), expected a file; to read what a command "
                       "prints, use <(COMMAND)",
                       path);
    }
    if (fcntl(fd, F_SETFL, 0) == 0)
        f = fdopen(fd, "rb");
    if (!f) {
        int why = errno;
        close(fd);
        errno = why;
        return vt_fail(err, VT_ERR_IO, "%s: %s", path, strerror(why));
    }
    *out = f;
    return VT_OK;
}

vt_status vt_read_whole(const char *path, size_t max, vt_buf *out, vt_err *err)
{
    char piece[1 << 14];
    FILE *f = NULL;
    size_t n;
    TRY(vt_open_to_read(path, &f, err));
    vt_buf_init(out, max);
    while ((n = fread(piece, 1, sizeof piece, f)) > 0 && vt_buf_add(out, piece, n))
        continue;
    int why = ferror(f) ? errno : 0;
    fclose(f);
    if (why == 0 && !out->failed)
        return VT_OK;
    vt_buf_release(out);
    if (why != 0)
        return vt_fail(err, VT_ERR_IO, "%s: %s", path, strerror(why));
    return vt_fail(err, VT_ERR_MEMORY, "%s: more than %zu bytes, or out of memory", path, max);
}

vt_status vt_open_to_log(const char *path, int *out, vt_err *err)
{
    struct stat st;
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0644);
    if (fd < 0 && errno == ELOOP)
        return vt_fail(err, VT_ERR_IO, "%s: is a symbolic link; nothing is written through it",
                       path);
    if (fd < 0)
        return vt_fail(err, VT_ERR_IO, "%s: %s", path, strerror(errno));
    vt_status status = VT_OK;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        status = vt_fail(err, VT_ERR_IO, "%s: is not a regular file", path);
    else if (st.st_uid != geteuid())
        status = vt_fail(err, VT_ERR_IO, "%s: belongs to user %ld, not to you (%ld)", path,
                         (long)st.st_uid, (long)geteuid());
    else if (st.st_nlink != 1)
        status = vt_fail(err, VT_ERR_IO,
                         "%s: the file has %ld names (hard links), expected this one alone", path,
                         (long)st.st_nlink);
    else if (ftruncate(fd, 0) != 0)
        status = vt_fail(err, VT_ERR_IO, "%s: %s", path, strerror(errno));
    if (status == VT_OK)
        *out = fd;
    else
        close(fd);
    return status;
}

vt_status vt_write_whole(const char *path, const void *text, size_t len, vt_err *err)
{
    vt_new_file f;
    TRY(vt_new_file_begin(&f, path, err));
    bool written = len == 0 || fwrite(text, 1, len, f.file) == len;
    int why = errno;
    TRY(vt_new_file_end(&f, path, written, err));
    return written ? VT_OK : vt_fail(err, VT_ERR_IO, "%s: %s", path, strerror(why));
}
