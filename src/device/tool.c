/* Finding and asking other programs (device/tool.h). */
#include "device/tool.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"

extern char **environ;

/* ---- finding ---- */

static bool is_program(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

static bool in_folder(const char *folder, size_t n, const char *name, char *path, size_t size)
{
    if (n == 0 || folder[0] != '/') /* a relative folder of PATH depends on where one stands */
        return false;
    int length = snprintf(path, size, "%.*s/%s", (int)n, folder, name);
    return length > 0 && (size_t)length < size && is_program(path);
}

/* The newest folder that fits the pattern and has the program. */
static bool in_pattern(const char *pattern, const char *name, char *path, size_t size)
{
    glob_t g = {0};
    bool there = false;
    if (glob(pattern, 0, NULL, &g) == 0)
        for (size_t i = g.gl_pathc; i-- > 0 && !there;)
            there = in_folder(g.gl_pathv[i], strlen(g.gl_pathv[i]), name, path, size);
    globfree(&g);
    return there;
}

bool vt_tool_find(const char *name, char *path, size_t size)
{
    static const char *const pattern[] = {"/usr/local/cuda/bin",
                                          "/usr/local/cuda-*/bin",
                                          "/opt/cuda/bin",
                                          "/opt/nvidia/nsight-systems/*/bin",
                                          "/opt/nvidia/nsight-compute/*",
                                          "/opt/nvidia/nsight-compute/*/host/target-linux-x64"};
    char folder[512];
    const char *home = getenv("CUDA_HOME");
    for (const char *p = getenv("PATH"); p;) {
        size_t n = strcspn(p, ":");
        if (in_folder(p, n, name, path, size))
            return true;
        p = p[n] ? p + n + 1 : NULL;
    }
    if (home && snprintf(folder, sizeof folder, "%s/bin", home) < (int)sizeof folder &&
        in_folder(folder, strlen(folder), name, path, size))
        return true;
    for (size_t i = 0; i < sizeof pattern / sizeof *pattern; i++)
        if (in_pattern(pattern[i], name, path, size))
            return true;
    path[0] = '\0';
    return false;
}

/* ---- running ---- */

/* Starts the program in a process group of its own, with its stdout into `to`. */
static int start(const char *const *argv, int to, pid_t *pid)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, to, 1);
    posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setpgroup(&attr, 0);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &all);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
                                        POSIX_SPAWN_SETSIGDEF);
    int r = posix_spawn(pid, argv[0], &files, &attr, (char *const *)(uintptr_t)argv, environ);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&files);
    return r;
}

/* Reads until the end, keeping what fits; false when the time is over. */
static bool read_until(int fd, int64_t until_ns, char *out, size_t size)
{
    size_t n = 0;
    char drop[512];
    for (;;) {
        int64_t left_ms = (until_ns - vt_now_ns()) / 1000000;
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int r = left_ms > 0 ? poll(&p, 1, (int)left_ms) : 0;
        if (r < 0 && errno == EINTR)
            continue;
        if (r <= 0)
            return false;
        bool room = n + 1 < size;
        ssize_t got = read(fd, room ? out + n : drop, room ? size - 1 - n : sizeof drop);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return true;
        n += room ? (size_t)got : 0;
        out[n] = '\0';
    }
}

/* Waits for the process until then; false when the time is over. */
static bool wait_until(pid_t pid, int64_t until_ns, int *status)
{
    for (;;) {
        pid_t r = waitpid(pid, status, WNOHANG);
        if (r == pid || (r < 0 && errno != EINTR))
            return r == pid;
        if (vt_now_ns() >= until_ns)
            return false;
        poll(NULL, 0, 5);
    }
}

vt_status vt_tool_output(const char *const *argv, int32_t limit_ms, char *out, size_t size,
                         vt_err *err)
{
    int fd[2], status = 0;
    pid_t pid;
    out[0] = '\0';
    if (pipe2(fd, O_CLOEXEC) != 0)
        return vt_fail(err, VT_ERR_IO, "%s: no pipe: %s", argv[0], strerror(errno));
    int64_t until = vt_now_ns() + (int64_t)limit_ms * 1000000;
    int r = start(argv, fd[1], &pid);
    close(fd[1]);
    if (r != 0) {
        close(fd[0]);
        return vt_fail(err, VT_ERR_IO, "%s does not start: %s", argv[0], strerror(r));
    }
    bool ended = read_until(fd[0], until, out, size) && wait_until(pid, until, &status);
    close(fd[0]);
    if (!ended) {
        kill(-pid, SIGKILL); /* the whole group: it may have started others */
        kill(pid, SIGKILL);
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
            ;
        return vt_fail(err, VT_ERR_IO, "%s did not end within %d ms", argv[0], limit_ms);
    }
    if (WIFSIGNALED(status))
        return vt_fail(err, VT_ERR_IO, "%s died of signal %d", argv[0], WTERMSIG(status));
    if (WEXITSTATUS(status) != 0)
        return vt_fail(err, VT_ERR_IO, "%s ended with status %d", argv[0], WEXITSTATUS(status));
    return VT_OK;
}

bool vt_tool_version(const char *text, char *out, size_t size)
{
    for (const char *p = text; *p; p++) {
        size_t n = 0, dots = 0;
        if (!isdigit((unsigned char)*p) || (p > text && isalnum((unsigned char)p[-1])))
            continue;
        while (isdigit((unsigned char)p[n]) || (p[n] == '.' && isdigit((unsigned char)p[n + 1])))
            dots += p[n++] == '.';
        if (dots > 0 && n < size) {
            snprintf(out, size, "%.*s", (int)n, p);
            return true;
        }
        p += n - 1;
    }
    return false;
}

void vt_tool_look(const char *name, int32_t limit_ms, vt_tool *out)
{
    char text[4096];
    vt_err err = {0};
    *out = (vt_tool){.name = name};
    out->found = vt_tool_find(name, out->path, sizeof out->path);
    if (!out->found) {
        snprintf(out->why, sizeof out->why,
                 "%s was not found on PATH or where NVIDIA's packages put it", name);
        return;
    }
    const char *const argv[] = {out->path, "--version", NULL};
    if (vt_tool_output(argv, limit_ms, text, sizeof text, &err) != VT_OK)
        snprintf(out->why, sizeof out->why, "%s", err.message);
    else if (!vt_tool_version(text, out->version, sizeof out->version))
        snprintf(out->why, sizeof out->why, "%.200s tells no version", out->path);
    out->runs = out->version[0] != '\0';
}
