/* OUT of run --batch (cli/batch_out.h).
 *
 * The file is only ever appended to, whole lines with one write, and synchronised before a line
 * counts as done. So whatever happens, power failure included, it holds whole lines and at most one
 * torn line at its end. There is one exception: results that are to be done again are left out of a
 * new file, which then takes the place of the old one by rename(2). */
#include "cli/batch_out.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "cli/term/lines.h"
#include "openai/batch.h"

enum { MAX_RESULT = 1 << 30 }; /* bytes of one line: what the largest answer can take */

static vt_status out_error(const batch_out *o, vt_err *err)
{
    return vt_fail(err, VT_ERR_IO, "%s: %s", o->path, strerror(errno));
}

static bool to_do_again(int32_t http, bool retry_failed)
{
    return http >= 500 || http == 429 || (retry_failed && http != 200);
}

/* Opens and locks. The path may have got another file since (a run that took out results renames
 * one into place); then that other run is still at work. */
static vt_status lock(batch_out *o, const struct stat *in, struct stat *st, vt_err *err)
{
    struct stat now;
    o->fd = open(o->path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0644);
    if (o->fd < 0 || fstat(o->fd, st) != 0)
        return out_error(o, err);
    if (!S_ISREG(st->st_mode))
        return vt_fail(err, VT_ERR_USAGE, "%s: expected a regular file, which can be resumed",
                       o->path);
    if (st->st_dev == in->st_dev && st->st_ino == in->st_ino)
        return vt_fail(err, VT_ERR_USAGE,
                       "%s: holds the requests, expected another file for the "
                       "results",
                       o->path);
    if (flock(o->fd, LOCK_EX | LOCK_NB) != 0 || stat(o->path, &now) != 0 ||
        now.st_dev != st->st_dev || now.st_ino != st->st_ino)
        return vt_fail(err, VT_ERR_BUSY, "%s: another run is writing it", o->path);
    return VT_OK;
}

/* A look through the file found this. */
typedef struct contents {
    off_t whole;     /* where the last whole line ends */
    int64_t n_again; /* results that are to be done again */
} contents;

static vt_status no_results(const batch_out *o, int64_t line, vt_err *err)
{
    return vt_fail(err, VT_ERR_FORMAT,
                   "%s: line %lld is no batch result; the file is left as it is, give another one",
                   o->path, (long long)line);
}

/* False at the end, and where a line failed: *status. */
static bool next_line(cli_lines *l, vt_status *status, vt_err *err)
{
    bool got = false;
    if (*status == VT_OK)
        *status = cli_lines_next(l, &got, err);
    return *status == VT_OK && got;
}

/* Reads the ids of all whole lines. A last line without a newline is torn if whole results stand
 * before it or it begins as our results do; else the file holds something else. */
static vt_status read_results(batch_out *o, bool retry_failed, contents *found, vt_err *err)
{
    cli_lines l = {0};
    vt_openai_result r = {0};
    vt_status status = cli_lines_open(&l, o->fd, o->path, MAX_RESULT, err);
    while (next_line(&l, &status, err)) {
        const char *text = l.line.data;
        if (!l.whole) {
            if (l.number == 1 && !vt_openai_result_begins(text, l.line.len))
                status = no_results(o, 1, err);
            break;
        }
        if (!vt_openai_result_read(text ? text : "", l.line.len, &r)) {
            status = no_results(o, l.number, err);
        } else if (to_do_again(r.http, retry_failed)) {
            found->n_again++;
        } else {
            status = id_set_put(&o->there, r.custom_id.data, r.http, err);
        }
        found->whole = l.end;
    }
    vt_openai_result_release(&r);
    cli_lines_close(&l);
    return status;
}

static vt_status append(int fd, const char *path, const char *data, size_t n, vt_err *err)
{
    while (n > 0) {
        ssize_t done = write(fd, data, n);
        if (done < 0 && errno != EINTR)
            return vt_fail(err, VT_ERR_IO, "%s: %s", path, strerror(errno));
        data += done > 0 ? done : 0;
        n -= done > 0 ? (size_t)done : 0;
    }
    return VT_OK;
}

/* Copies the results that stay to `fd`. */
static vt_status copy_final(const batch_out *o, bool retry_failed, int fd, const char *path,
                            vt_err *err)
{
    cli_lines l = {0};
    vt_openai_result r = {0};
    vt_status status = cli_lines_open(&l, o->fd, o->path, MAX_RESULT, err);
    while (next_line(&l, &status, err)) {
        if (!vt_openai_result_read(l.line.data, l.line.len, &r) ||
            to_do_again(r.http, retry_failed))
            continue;
        vt_buf_putc(&l.line, '\n');
        status = l.line.failed ? vt_fail(err, VT_ERR_MEMORY, "%s: out of memory", o->path)
                               : append(fd, path, l.line.data, l.line.len, err);
    }
    vt_openai_result_release(&r);
    cli_lines_close(&l);
    return status;
}

/* Writes the results that stay to a new file beside the old one, and puts it in its place. A crash
 * leaves the one or the other. Where the path is a symbolic link, the file behind it is replaced.
 */
static vt_status take_out(batch_out *o, bool retry_failed, mode_t mode, vt_err *err)
{
    char *path = NULL, *real = realpath(o->path, NULL);
    if (!real || asprintf(&path, "%s.XXXXXX", real) < 0) {
        free(real);
        return vt_fail(err, VT_ERR_IO, "%s: %s", o->path, strerror(errno));
    }
    int fd = mkostemp(path, O_APPEND | O_CLOEXEC);
    vt_status status = fd < 0 ? out_error(o, err) : VT_OK;
    if (status == VT_OK && (flock(fd, LOCK_EX | LOCK_NB) != 0 || fchmod(fd, mode & 07777) != 0))
        status = out_error(o, err);
    if (status == VT_OK)
        status = copy_final(o, retry_failed, fd, path, err);
    if (status == VT_OK && (fdatasync(fd) != 0 || rename(path, real) != 0))
        status = out_error(o, err);
    if (status == VT_OK) {
        close(o->fd);
        o->fd = fd;
    } else if (fd >= 0) {
        unlink(path);
        close(fd);
    }
    free(path);
    free(real);
    return status;
}

vt_status batch_out_open(batch_out *o, const cli *c, const char *path, const struct stat *in,
                         bool retry_failed, vt_err *err)
{
    contents found = {0};
    struct stat st;
    *o = (batch_out){.path = path, .fd = -1};
    TRY(lock(o, in, &st, err));
    TRY(read_results(o, retry_failed, &found, err));
    if (found.whole < st.st_size) {
        cli_note(c, "%s: a torn last line of %lld bytes is cut off", path,
                 (long long)(st.st_size - found.whole));
        if (ftruncate(o->fd, found.whole) != 0)
            return out_error(o, err);
    }
    if (found.n_again == 0)
        return VT_OK;
    cli_note(c, "%s: %lld failed results are taken out, to be done again", path,
             (long long)found.n_again);
    return take_out(o, retry_failed, st.st_mode, err);
}

vt_status batch_out_append(const batch_out *o, const vt_buf *lines, vt_err *err)
{
    if (lines->len == 0)
        return VT_OK;
    TRY(append(o->fd, o->path, lines->data, lines->len, err));
    return fdatasync(o->fd) == 0 ? VT_OK : out_error(o, err);
}

void batch_out_close(batch_out *o)
{
    if (o->fd >= 0)
        close(o->fd);
    o->fd = -1;
    id_set_release(&o->there);
}
