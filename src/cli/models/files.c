/* Files that the person named: read whole, written whole. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/plain_file.h"
#include "cli/cli.h"
#include "cli/term/typed.h"

enum { MAX_FILE_BYTES = 256 << 20, MAX_PATH = 4096 };

const char *cli_file_name(const char *path)
{
    return strcmp(path, "-") == 0 ? "standard input" : path;
}

/* ---- reading ---- */

/* Returns errno, 0 where all went well. feof is looked at because the end of a terminal's input
 * is not kept: the next read would wait for another Ctrl-D. */
static int read_stream(FILE *f, vt_buf *out)
{
    char chunk[1 << 16];
    size_t n;
    do {
        n = fread(chunk, 1, sizeof chunk, f);
    } while (n > 0 && vt_buf_add(out, chunk, n) && !feof(f));
    return ferror(f) ? errno : 0;
}

static int read_terminal(vt_buf *out)
{
    typed t;
    typed_open(&t, false);
    typed_status status = typed_text(&t, out);
    int why = status == TYPED_FAILED ? errno : 0;
    typed_close(&t);
    return why;
}

vt_status cli_read_file(const char *path, vt_buf *out, vt_err *err)
{
    bool is_stdin = strcmp(path, "-") == 0;
    const char *name = cli_file_name(path);
    FILE *f = stdin;
    if (!is_stdin)
        TRY(vt_open_to_read(path, &f, err));
    vt_buf_init(out, MAX_FILE_BYTES);
    int failed = is_stdin && isatty(0) ? read_terminal(out) : read_stream(f, out);
    if (!is_stdin)
        fclose(f);
    vt_status status = VT_OK;
    if (cli_interrupted())
        status = vt_fail(err, VT_ERR_CANCELLED, "interrupted");
    else if (failed)
        status = vt_fail(err, VT_ERR_IO, "%s: %s", name, strerror(failed));
    else if (out->failed)
        status = vt_fail(err, VT_ERR_MEMORY, "%s: more than %d MiB", name, MAX_FILE_BYTES >> 20);
    if (status != VT_OK)
        vt_buf_release(out);
    return status;
}

/* ---- writing ---- */

/* Where a file of this name really lies (behind symbolic links), and whether it can be replaced:
 * it is not there yet, or is an ordinary file. */
static vt_status find_target(const char *path, char real[MAX_PATH], bool *replace, vt_err *err)
{
    struct stat st;
    char *resolved = realpath(path, NULL);
    const char *target = resolved ? resolved : path;
    bool fits = strlen(target) < MAX_PATH;
    if (fits)
        memcpy(real, target, strlen(target) + 1);
    *replace = stat(target, &st) != 0 || S_ISREG(st.st_mode);
    free(resolved);
    return fits ? VT_OK : vt_fail(err, VT_ERR_IO, "%s: %s", path, strerror(ENAMETOOLONG));
}

static bool write_and_close(FILE *f, const char *text, size_t len)
{
    bool ok = f && fwrite(text, 1, len, f) == len;
    int why = errno;
    if (f && fclose(f) != 0 && ok)
        return false;
    if (!ok)
        errno = why;
    return ok;
}

vt_status cli_write_file(const char *path, const char *text, size_t len, vt_err *err)
{
    vt_buf line = {0};
    vt_buf_add(&line, text, len);
    vt_buf_putc(&line, '\n');
    vt_status status = line.failed ? vt_fail(err, VT_ERR_MEMORY, "%s: out of memory for it", path)
                                   : cli_write_bytes(path, line.data, line.len, err);
    vt_buf_release(&line);
    return status;
}

vt_status cli_write_bytes(const char *path, const char *text, size_t len, vt_err *err)
{
    char real[MAX_PATH], beside[MAX_PATH + sizeof ".XXXXXX"];
    bool replace, ok;
    struct stat st;
    TRY(find_target(path, real, &replace, err));
    if (!replace) {
        ok = write_and_close(fopen(real, "wb"), text, len);
        return ok ? VT_OK : vt_fail(err, VT_ERR_IO, "%s: %s", path, strerror(errno));
    }
    mode_t mask = umask(0), mode = 0666 & ~mask;
    umask(mask);
    if (stat(real, &st) == 0)
        mode = st.st_mode & 0777;
    snprintf(beside, sizeof beside, "%s.XXXXXX", real);
    int fd = mkstemp(beside);
    FILE *f = fd >= 0 && fchmod(fd, mode) == 0 ? fdopen(fd, "wb") : NULL;
    int why = errno;
    if (f) {
        ok = write_and_close(f, text, len) && rename(beside, real) == 0;
        why = errno;
    } else {
        ok = false;
        if (fd >= 0)
            close(fd);
    }
    if (!ok && fd >= 0)
        unlink(beside);
    return ok ? VT_OK : vt_fail(err, VT_ERR_IO, "%s: %s", path, strerror(why));
}

vt_status cli_check_writable(const char *path, vt_err *err)
{
    char real[MAX_PATH];
    bool replace;
    struct stat st;
    TRY(find_target(path, real, &replace, err));
    if (stat(real, &st) == 0 && S_ISDIR(st.st_mode))
        return vt_fail(err, VT_ERR_IO, "%s: %s", path, strerror(EISDIR));
    if (stat(real, &st) == 0 && access(real, W_OK) != 0)
        return vt_fail(err, VT_ERR_IO, "%s: %s", path, strerror(errno));
    char *slash = strrchr(real, '/');
    if (slash)
        slash[slash == real] = '\0';
    if (replace && access(slash ? real : ".", W_OK | X_OK) != 0)
        return vt_fail(err, VT_ERR_IO, "%s: %s", path, strerror(errno));
    return VT_OK;
}
