/* The parent of a user's kernel: starts the process that runs it, watches it, and says in one
 * sentence how it failed. See own_kernel.h. */
#include "lab/kernel/own_kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "lab/kernel/inside.h"

enum {
    MOST_STEP_S = 600,    /* that a step may ask for */
    MOST_S = 3600,        /* of the whole process */
    LOG_BYTES = 16 << 10, /* read of what the process printed */
    FILE_BYTES = 1 << 30  /* the longest file that the process may write */
};

const char *const own_kernel_verdict_name[OWN_KERNEL_VERDICTS] = {"open", "right", "wrong",
                                                                  "skipped"};

extern char **environ;

/* ---- the process ---- */

typedef struct process {
    own_kernel_report *shared;
    int report, log; /* memfds */
    char fd_text[32], threads[16], limit[16];
    const char *argv[20];
    char **env;
    pid_t pid;
} process;

static vt_status make_shared(process *p, vt_err *err)
{
    p->report = memfd_create("vitrine kernel report", MFD_CLOEXEC);
    p->log = memfd_create("vitrine kernel log", MFD_CLOEXEC);
    if (p->report < 0 || p->log < 0 || ftruncate(p->report, sizeof *p->shared) != 0)
        return vt_fail(err, VT_ERR_IO, "memory for the kernel's process: %s", strerror(errno));
    void *map = mmap(NULL, sizeof *p->shared, PROT_READ | PROT_WRITE, MAP_SHARED, p->report, 0);
    if (map == MAP_FAILED)
        return vt_fail(err, VT_ERR_MEMORY, "memory for the kernel's process: %s", strerror(errno));
    p->shared = map;
    return VT_OK;
}

static void release(process *p)
{
    if (p->shared)
        munmap(p->shared, sizeof *p->shared);
    if (p->report >= 0)
        close(p->report);
    if (p->log >= 0)
        close(p->log);
    free(p->env);
}

static vt_status make_command(process *p, const own_kernel_ask *ask, vt_err *err)
{
    int n = 0, n_env = 0;
    snprintf(p->threads, sizeof p->threads, "%d", ask->threads);
    snprintf(p->limit, sizeof p->limit, "%d", ask->limit_s);
    const char *const fixed[] = {"vitrine",  "lab",       "kernel",  "--op",  ask->op,
                                 "--device", ask->device, "--limit", p->limit};
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        p->argv[n++] = fixed[i];
    if (ask->threads > 0) {
        p->argv[n++] = "--threads";
        p->argv[n++] = p->threads;
    }
    if (ask->shape) {
        p->argv[n++] = "--shape";
        p->argv[n++] = ask->shape;
    }
    p->argv[n++] = "--";
    p->argv[n++] = ask->file;
    while (environ[n_env])
        n_env++;
    p->env = vt_calloc((size_t)n_env + 2, sizeof *p->env);
    if (!p->env)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for an environment");
    for (int i = 0; i < n_env; i++)
        p->env[i] = environ[i];
    snprintf(p->fd_text, sizeof p->fd_text, OWN_KERNEL_FD "=%d", p->report);
    p->env[n_env] = p->fd_text;
    return VT_OK;
}

/* Between fork and exec: calls that are safe there alone. */
static void become(const process *p)
{
    setpgid(0, 0); /* its children (the emulator's compiler) end with it */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){FILE_BYTES, FILE_BYTES});
    int null = open("/dev/null", O_RDONLY);
    dup2(null, 0);
    dup2(p->log, 1);
    dup2(p->log, 2);
    fcntl(p->report, F_SETFD, 0);
    execve("/proc/self/exe", (char *const *)(uintptr_t)p->argv, p->env);
    _exit(127);
}

/* ---- watching ---- */

/* Waits for the end. Returns the wait status; *hung: it was killed because a step took longer than
 * *limit_s. */
static int watch(const process *p, bool *hung, int32_t *limit_s)
{
    int status = 0;
    int64_t begin = vt_now_ns(), since = begin;
    uint64_t beat = 0;
    *hung = false;
    for (;;) {
        pid_t got = waitpid(p->pid, &status, WNOHANG);
        if (got == p->pid || (got < 0 && errno != EINTR))
            return got == p->pid ? status : 0;
        int64_t now = vt_now_ns();
        uint64_t seen = atomic_load(&p->shared->beat);
        int32_t limit = atomic_load(&p->shared->limit_s);
        limit = limit < 1 || limit > MOST_STEP_S ? MOST_STEP_S : limit;
        if (seen != beat)
            since = now;
        beat = seen;
        if (!*hung && (now - since > (int64_t)limit * 1000000000 ||
                       now - begin > (int64_t)MOST_S * 1000000000)) {
            *hung = true;
            *limit_s = limit;
            kill(-p->pid, SIGKILL);
            kill(p->pid, SIGKILL);
        }
        nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
    }
}

/* ---- the report ---- */

static void tidy_text(char *text, size_t size)
{
    text[size - 1] = '\0';
    vt_text_clean_line(text);
}

static double number(double v) { return isfinite(v) && v >= 0 && v < 1e18 ? v : NAN; }

static int32_t within(int32_t n, int32_t most) { return n < 0 ? 0 : n > most ? most : n; }

static void tidy_row(own_kernel_row *r)
{
    own_kernel_launch *l = &r->launch;
    r->own = r->own != 0;
    r->gpu = r->gpu != 0;
    tidy_text(r->shape, sizeof r->shape);
    tidy_text(r->name, sizeof r->name);
    tidy_text(l->kernel, sizeof l->kernel);
    tidy_text(l->limit, sizeof l->limit);
    for (int k = 0; k < 2; k++) {
        tidy_text(r->roof[k], sizeof r->roof[k]);
        r->us[k] = number(r->us[k]);
        r->share[k] = number(r->share[k]);
    }
    r->spread = number(r->spread);
    l->waves = number(l->waves);
    int32_t *const counts[] = {&l->registers, &l->spill_bytes, &l->static_shared,
                               &l->ctas,      &l->warps,       &l->max_warps};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        *counts[i] = within(*counts[i], 1 << 20);
    r->bytes = r->bytes < 0 ? 0 : r->bytes;
    r->flops = r->flops < 0 ? 0 : r->flops;
}

void own_kernel_tidy(own_kernel_report *r)
{
    tidy_text(r->step, sizeof r->step);
    tidy_text(r->failure, sizeof r->failure);
    tidy_text(r->file, sizeof r->file);
    tidy_text(r->op, sizeof r->op);
    tidy_text(r->what, sizeof r->what);
    tidy_text(r->machine, sizeof r->machine);
    tidy_text(r->tolerance_reason, sizeof r->tolerance_reason);
    r->finished = r->finished != 0;
    r->gpu = r->gpu != 0;
    r->emulated = r->emulated != 0;
    r->races = r->races != 0;
    double memory = number(r->memory_bytes_per_s), fp32 = number(r->fp32_per_s);
    r->memory_bytes_per_s = isfinite(memory) ? memory : 0;
    r->fp32_per_s = isfinite(fp32) ? fp32 : 0;
    double launch = number(r->launch_s);
    r->launch_s = isfinite(launch) ? launch : 0;
    r->n_cases = within(r->n_cases, OWN_KERNEL_CASES);
    r->n_rows = within(r->n_rows, OWN_KERNEL_ROWS);
    for (int32_t i = 0; i < r->n_cases; i++) {
        own_kernel_case *c = &r->cases[i];
        tidy_text(c->name, sizeof c->name);
        tidy_text(c->why, sizeof c->why);
        c->verdict = c->verdict < 0 || c->verdict >= OWN_KERNEL_VERDICTS ? OWN_KERNEL_OPEN
                                                                         : c->verdict;
        c->error = number(c->error);
        c->allowed = number(c->allowed);
    }
    for (int32_t i = 0; i < r->n_rows; i++)
        tidy_row(&r->rows[i]);
}

/* Copies what the emulated GPU said of a failed launch, which the driver's error code does not
 * tell: its first line in the log. false: it said nothing. */
static bool emulator_said(const process *p, char *out, size_t size)
{
    static const char mark[] = "emulator: ";
    char *text = vt_calloc(LOG_BYTES + 1, 1);
    ssize_t n = text ? pread(p->log, text, LOG_BYTES, 0) : -1;
    char *at = n > 0 ? strstr(text, mark) : NULL;
    if (at) {
        at += sizeof mark - 1;
        at[strcspn(at, "\n")] = '\0';
        snprintf(out, size, "%s", at);
        vt_text_clean_line(out);
    }
    free(text);
    return at != NULL;
}

/* The first case that is wrong; NULL: none. */
static const own_kernel_case *first_wrong(const own_kernel_report *r)
{
    for (int32_t i = 0; i < r->n_cases; i++)
        if (r->cases[i].verdict == OWN_KERNEL_WRONG)
            return &r->cases[i];
    return NULL;
}

bool own_kernel_any_ran(const own_kernel_report *r)
{
    for (int32_t i = 0; i < r->n_cases; i++)
        if (r->cases[i].verdict == OWN_KERNEL_RIGHT || r->cases[i].verdict == OWN_KERNEL_WRONG)
            return true;
    return false;
}

static vt_status verdict(const process *p, own_kernel_report *r, int status, bool hung,
                         int32_t limit_s, vt_err *err)
{
    char said[300];
    const char *file = r->file[0] ? r->file : "the kernel",
               *step = r->step[0] ? r->step : "its start";
    const own_kernel_case *wrong = first_wrong(r);
    if (hung)
        return vt_fail(err, VT_ERR_DEVICE, "%s: %s did not end within %d s", file, step, limit_s);
    if (WIFSIGNALED(status))
        return vt_fail(err, VT_ERR_DEVICE, "%s: %s was ended by signal %d (%s)", file, step,
                       WTERMSIG(status), strsignal(WTERMSIG(status)));
    if (r->failure[0] && r->emulated && emulator_said(p, said, sizeof said))
        return vt_fail(err, VT_ERR_DEVICE, "%s: %s: %s", file, step, said);
    if (r->failure[0])
        return vt_fail(err, VT_ERR_DEVICE, "%s: %s", file, r->failure);
    if (!r->finished)
        return vt_fail(err, VT_ERR_DEVICE, "%s: its process ended in %s with status %d", file, step,
                       WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    if (wrong)
        return vt_fail(err, VT_ERR_DEVICE, "%s: %s is wrong in case %s: %s", file, r->op,
                       wrong->name, wrong->why);
    return VT_OK;
}

vt_status own_kernel_run(const own_kernel_ask *ask, own_kernel_report *out, vt_err *err)
{
    process p = {.report = -1, .log = -1};
    bool hung = false;
    int32_t limit_s = 0;
    vt_status status;
    memset(out, 0, sizeof *out);
    if (own_kernel_is_inner()) /* else processes would start processes without end */
        return vt_fail(err, VT_ERR_USAGE,
                       OWN_KERNEL_FD
                       " is set: vitrine sets it itself, for the process of a kernel");
    own_kernel *k = vt_calloc(1, sizeof *k);
    if (!k)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for a kernel");
    TRY_GOTO(status, own_kernel_open(k, ask, err), out); /* what needs no process fails here */
    TRY_GOTO(status, make_shared(&p, err), out);
    TRY_GOTO(status, make_command(&p, ask, err), out);
    snprintf(p.shared->file, sizeof p.shared->file, "%s", k->name);
    p.pid = fork();
    if (p.pid < 0)
        TRY_GOTO(status, vt_fail(err, VT_ERR_IO, "a process for the kernel: %s", strerror(errno)),
                 out);
    if (p.pid == 0)
        become(&p);
    int end = watch(&p, &hung, &limit_s);
    memcpy(out, p.shared, sizeof *out);
    own_kernel_tidy(out);
    status = verdict(&p, out, end, hung, limit_s, err);
out:
    own_kernel_release(k);
    free(k);
    release(&p);
    return status;
}
