/* Dumps on request: SIGUSR2 to a process that runs an engine, and `vitrine story dump PID`, which
 * sends it.
 *
 * The signal only sets a flag; the loop that steps the engine looks at it between two steps. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "cli/cli.h"
#include "story/dump.h"

static volatile sig_atomic_t asked;

static void on_request(int signal)
{
    (void)signal;
    asked = 1;
}

void cli_catch_dump(void)
{
    struct sigaction action = {.sa_handler = on_request, .sa_flags = SA_RESTART};
    sigaction(SIGUSR2, &action, NULL);
}

void cli_dump_if_asked(const cli *c, vt_engine *e)
{
    char path[1200];
    vt_err err = {0};
    if (!asked)
        return;
    asked = 0;
    vt_status status = vt_story_dump_name(vt_options_get(c->options, "story-dir"), path,
                                          sizeof path, &err);
    if (status == VT_OK)
        status = vt_story_dump(e, 0, path, &err);
    if (status == VT_OK)
        cli_say("the last steps are in %s", path);
    else
        cli_say("no story was written: %s", err.message); /* the run goes on */
}

/* ---- vitrine story dump PID ---- */

/* Fails unless process `pid` catches SIGUSR2: one that does not would be ended by it. */
static vt_status check_process(long pid, vt_err *err)
{
    char path[64], line[256];
    unsigned long long caught = 0;
    bool found = false, mine = false;
    snprintf(path, sizeof path, "/proc/%ld/status", pid);
    FILE *f = fopen(path, "r");
    if (!f)
        return errno == ENOENT
                   ? vt_fail(err, VT_ERR_USAGE, "there is no process %ld", pid)
                   : vt_fail(err, VT_ERR_USAGE, "process %ld: %s", pid, strerror(errno));
    while (fgets(line, sizeof line, f)) {
        mine = mine || strncmp(line, "Name:\tvitrine", 13) == 0;
        found = found || sscanf(line, "SigCgt: %llx", &caught) == 1;
    }
    fclose(f);
    if (!mine || !found || !(caught >> (SIGUSR2 - 1) & 1))
        return vt_fail(err, VT_ERR_USAGE,
                       "process %ld writes no stories: expected a vitrine that runs a batch, a "
                       "bench or a server",
                       pid);
    return VT_OK;
}

int cli_story_dump(cli *c)
{
    vt_err err = {0};
    char *end = NULL;
    long pid = c->n_args ? strtol(c->arg[0], &end, 10) : 0;
    vt_status status = VT_OK;
    if (c->n_args == 0)
        status = vt_fail(&err, VT_ERR_USAGE, "which process? 'vitrine story dump PID'");
    else if (pid <= 0 || *end)
        status = vt_fail(&err, VT_ERR_USAGE, "'%.60s' is no number of a process", c->arg[0]);
    if (status == VT_OK)
        status = check_process(pid, &err);
    if (status == VT_OK && kill((pid_t)pid, SIGUSR2) != 0)
        status = vt_fail(&err, VT_ERR_IO, "process %ld: %s", pid, strerror(errno));
    if (status != VT_OK)
        return cli_fail(&err);
    cli_say("asked process %ld, which says on its stderr where the story is", pid);
    return CLI_DONE;
}
