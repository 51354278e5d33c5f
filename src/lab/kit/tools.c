/* Other programs, run without a shell. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/plain_file.h"
#include "device/tool.h"
#include "lab/kit/lab.h"

const char *lab_self(void) { return "/proc/self/exe"; }

bool lab_tool_find(const char *name, char *out, size_t size)
{
    return vt_tool_find(name, out, size);
}

/* The child's part: what it prints goes to the descriptor. */
static void run_child(const char *path, char *const *argv, int to)
{
    int in = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (in < 0 || dup2(in, 0) < 0 || dup2(to, 1) < 0 || dup2(to, 2) < 0)
        _exit(126);
    setpgid(0, 0);
    execv(path, argv);
    _exit(127);
}

/* Waits for the child; ends its process group after the limit. */
static bool wait_child(pid_t pid, double limit_s, int *status)
{
    int64_t end_ns = vt_now_ns() + (int64_t)(limit_s * 1e9);
    const struct timespec nap = {0, 10000000};
    for (;;) {
        pid_t done = waitpid(pid, status, WNOHANG);
        if (done == pid)
            return true;
        if ((done < 0 && errno != EINTR) || vt_now_ns() > end_ns) {
            kill(-pid, SIGKILL);
            waitpid(pid, status, 0);
            return false;
        }
        nanosleep(&nap, NULL);
    }
}

vt_status lab_tool_writes(const char *path, vt_err *err)
{
    if (unlink(path) == 0 || errno == ENOENT)
        return VT_OK;
    return vt_fail(err, VT_ERR_IO, "%s: cannot be removed: %s", path, strerror(errno));
}

/* A program's name without its folder, which says nothing to who reads the result elsewhere. */
static const char *name_of(const char *path)
{
    const char *slash = path[0] == '/' ? strrchr(path, '/') : NULL;
    return slash ? slash + 1 : path;
}

vt_status lab_tool_run(lab *l, const char *const *argv, const char *output, double limit_s,
                       int *status, vt_err *err)
{
    char path[PATH_MAX], self[PATH_MAX];
    int how = 0, to = -1;
    if (strcmp(argv[0], lab_self()) == 0) {
        ssize_t n = readlink(argv[0], self, sizeof self - 1);
        if (n < 0)
            return vt_fail(err, VT_ERR_IO, "%s: %s", argv[0], strerror(errno));
        self[n] = '\0';
        snprintf(path, sizeof path, "%s", self);
    } else if (argv[0][0] == '/') {
        snprintf(path, sizeof path, "%s", argv[0]);
    } else if (!lab_tool_find(argv[0], path, sizeof path)) {
        return vt_fail(err, VT_ERR_UNSUPPORTED,
                       "%s is neither on PATH nor where NVIDIA's packages put it", argv[0]);
    }
    lab_note(l, "running %s ...", path);
    if (output)
        TRY(vt_open_to_log(output, &to, err));
    else if ((to = open("/dev/null", O_WRONLY | O_CLOEXEC)) < 0)
        return vt_fail(err, VT_ERR_IO, "/dev/null: %s", strerror(errno));
    int64_t begin_ns = vt_now_ns();
    pid_t pid = fork();
    if (pid == 0)
        run_child(path, (char *const *)(uintptr_t)argv, to);
    close(to);
    if (pid < 0)
        return vt_fail(err, VT_ERR_IO, "%s: cannot be started: %s", path, strerror(errno));
    if (!wait_child(pid, limit_s, &how))
        return vt_fail(err, VT_ERR_IO, "%s: did not end within %.0f s", path, limit_s);
    if (WIFSIGNALED(how))
        return vt_fail(err, VT_ERR_IO, "%s: ended by signal %d", path, WTERMSIG(how));
    *status = WEXITSTATUS(how);
    lab_event(l, begin_ns, "%s%s%s runs in a process of its own and ends with status %d",
              name_of(argv[0]), argv[1] ? " " : "", argv[1] ? name_of(argv[1]) : "", *status);
    return VT_OK;
}
