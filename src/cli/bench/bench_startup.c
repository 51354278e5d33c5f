/* vitrine bench startup: from nothing to the first token.
 *
 * Starts this very program again, `vitrine run` with three tokens in and one out, and takes the
 * time from before the process exists to after it has ended: loading, packing, one prefill,
 * everything. The options reach it through their twins in the environment. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/term/figure.h"
#include "cli/bench/bench.h"

extern char **environ;

static vt_status export_options(const cli *c, vt_err *err)
{
    int32_t n;
    const vt_option *opt = vt_option_table(&n);
    for (int32_t i = 0; i < n; i++) {
        char name[64];
        bool engine = (opt[i].verbs & VT_FOR_ENGINE) && strcmp(opt[i].key, "json") != 0;
        if (!engine || !vt_options_given(c->options, opt[i].key))
            continue;
        vt_option_env_name(&opt[i], name, sizeof name);
        if (setenv(name, vt_options_get(c->options, opt[i].key), 1) != 0)
            return vt_fail(err, VT_ERR_MEMORY, "%s could not be set: %s", name, strerror(errno));
    }
    return VT_OK;
}

typedef struct start {
    double wall_ms, resident_bytes;
} start;

/* One start. stdout of the child is dropped; its stderr is ours, so that its reasons are seen. */
static vt_status start_once(start *out, vt_err *err)
{
    char *argv[] = {"vitrine", "run", "--quiet", "--raw",        "--tokens",
                    "1,2,3",   "-n",  "1",       "--ignore-eos", NULL};
    posix_spawn_file_actions_t actions;
    struct rusage usage;
    pid_t child;
    int status = 0;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    int64_t begin = vt_now_ns();
    int rc = posix_spawn(&child, "/proc/self/exe", &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (rc != 0)
        return vt_fail(err, VT_ERR_IO, "vitrine could not be started: %s", strerror(rc));
    while (wait4(child, &status, 0, &usage) < 0 && errno == EINTR)
        ;
    out->wall_ms = (double)(vt_now_ns() - begin) * 1e-6;
    out->resident_bytes = (double)usage.ru_maxrss * 1024;
    if (cli_interrupted())
        return vt_fail(err, VT_ERR_CANCELLED, "interrupted");
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return vt_fail(err, VT_ERR_IO, "the vitrine that was started failed");
    return VT_OK;
}

static int report(const cli *c, const cli_sample *wall, const cli_sample *resident)
{
    const char *model = vt_options_get(c->options, "model");
    vt_buf b = {0};
    vt_json w;
    if (c->json) {
        cli_bench_begin(&w, c, "startup", model);
        cli_sample_write(&w, "start_ms", wall, 2);
        cli_sample_write(&w, "resident_bytes", resident, 0);
        return cli_object_print(&w);
    }
    vt_text_printf(&b,
                   "%s: from nothing to one token in %.1f ms (stdev %.1f, best %.1f, %d start%s), "
                   "at most %f B resident\n",
                   model, cli_sample_mean(wall),
                   isfinite(cli_sample_stdev(wall)) ? cli_sample_stdev(wall) : 0, wall->low,
                   wall->n, vt_text_s(wall->n), resident->high);
    fputs(b.data ? b.data : "", stdout);
    vt_buf_release(&b);
    return CLI_DONE;
}

int cli_bench_startup(cli *c)
{
    vt_err err = {0};
    cli_sample wall = {0}, resident = {0};
    int64_t reps = vt_options_int(c->options, "reps");
    cli_catch_interrupt();
    vt_status status = export_options(c, &err);
    for (int64_t i = -1; i < reps && status == VT_OK; i++) {
        start s = {0};
        status = start_once(&s, &err);
        if (i < 0 || status != VT_OK) /* the first one brings the files into the page cache */
            continue;
        cli_sample_add(&wall, s.wall_ms);
        cli_sample_add(&resident, s.resident_bytes);
    }
    return status == VT_OK ? report(c, &wall, &resident) : cli_fail(&err);
}
