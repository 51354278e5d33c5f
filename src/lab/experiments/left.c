/* The server that experiment 1 leaves running (experiments.h).
 *
 * RESULTS/server.json names its process. A folder of results may come from elsewhere, and numbers
 * of processes are given away anew, so a process is taken for that server only if all of this
 * holds:
 *
 *   - the boot of the machine and the start of the process are those that were noted
 *   - its command line begins with "vitrine serve" and has --port with the noted port
 *
 * It is looked at and ended through one pidfd, which stays with the process whatever becomes of its
 * number. */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <unistd.h>

#include "base/err.h"
#include "base/plain_file.h"
#include "files/json.h"
#include "lab/experiments/experiments.h"

enum { MAX_NOTE = 1 << 16, MAX_LINE = 1 << 16, END_LIMIT_MS = 30000 };

/* A server that was found, and a descriptor of its process. */
typedef struct left_server {
    lab_server server;
    json_t *note; /* owns the text of `model` */
    const char *model;
    int pidfd;
} left_server;

static void release(left_server *f)
{
    json_decref(f->note);
    if (f->pidfd >= 0)
        close(f->pidfd);
    *f = (left_server){.pidfd = -1};
}

/* ---- what tells one process from another ---- */

/* Reads the boot id of the machine; "" if it cannot be read. */
static void boot_id(char out[64])
{
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (!f || !fgets(out, 64, f))
        out[0] = '\0';
    out[strcspn(out, "\n")] = '\0';
    if (f)
        fclose(f);
}

/* Returns when the process started, in clock ticks since the boot (field 22 of /proc/PID/stat), or
 * -1 if there is no such process. Field 2, the name, may hold spaces and brackets. */
static long long start_ticks(int pid)
{
    char path[64], line[1024] = "", *p;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(line, 1, sizeof line - 1, f) : 0;
    if (f)
        fclose(f);
    line[n] = '\0';
    p = strrchr(line, ')');
    for (int field = 2; p && field < 22; field++)
        p = strchr(p + 1, ' ');
    return p ? strtoll(p, NULL, 10) : -1;
}

/* Returns true if the process was started as `vitrine serve` with this port. */
static bool serves_port(int pid, int port)
{
    char path[64], number[16];
    vt_buf line;
    bool found = false;
    snprintf(path, sizeof path, "/proc/%d/cmdline", pid);
    snprintf(number, sizeof number, "%d", port);
    if (vt_read_whole(path, MAX_LINE, &line, NULL) != VT_OK)
        return false;
    vt_buf_putc(&line, '\0');
    if (!line.failed && line.len > 15 && memcmp(line.data, "vitrine\0serve", 14) == 0)
        for (const char *p = line.data, *end = p + line.len; p < end; p += strlen(p) + 1)
            if (strcmp(p, "--port") == 0 && p + sizeof "--port" < end)
                found |= strcmp(p + sizeof "--port", number) == 0;
    vt_buf_release(&line);
    return found;
}

/* ---- the note ---- */

static json_t *read_note(lab *l)
{
    char path[PATH_MAX];
    vt_buf text;
    json_t *o = NULL;
    snprintf(path, sizeof path, "%s/server.json", l->results);
    if (vt_read_whole(path, MAX_NOTE, &text, NULL) != VT_OK)
        return NULL;
    vt_json_load(path, text.data ? text.data : "", text.len, JSON_REJECT_DUPLICATES,
                 VT_JSON_MAX_TREE, &o, NULL);
    vt_buf_release(&text);
    return o;
}

static long long note_integer(const json_t *note, const char *key)
{
    const json_t *v = json_object_get(note, key);
    return json_is_integer(v) ? json_integer_value(v) : -1;
}

/* Finds the server that the note of these results names. false: it does not run. */
static bool find_left(lab *l, left_server *f)
{
    char boot[64];
    *f = (left_server){.note = read_note(l), .pidfd = -1};
    long long pid = note_integer(f->note, "pid"), port = note_integer(f->note, "port");
    const char *noted = json_string_value(json_object_get(f->note, "boot_id"));
    f->model = json_string_value(json_object_get(f->note, "model"));
    if (pid <= 1 || pid > INT_MAX || port < 1 || port > 65535 || !noted)
        return false;
    f->server.pid = (int)pid;
    f->server.port = (int)port;
    snprintf(f->server.url, sizeof f->server.url, "http://127.0.0.1:%d", f->server.port);
    snprintf(f->server.log, sizeof f->server.log, "%s/server.log", l->results);
    f->pidfd = pidfd_open(f->server.pid, 0); /* from here on the number cannot be another's */
    boot_id(boot);
    return f->pidfd >= 0 && *boot && strcmp(boot, noted) == 0 &&
           start_ticks(f->server.pid) == note_integer(f->note, "start_ticks") &&
           serves_port(f->server.pid, f->server.port);
}

/* ---- the contract ---- */

bool lab_server_is_left(lab *l)
{
    left_server f;
    bool found = find_left(l, &f);
    release(&f);
    return found;
}

vt_status lab_server_leave(lab *l, lab_server *s, vt_err *err)
{
    char boot[64];
    json_t *o = json_object();
    boot_id(boot);
    json_object_set_new(o, "pid", json_integer(s->pid));
    json_object_set_new(o, "start_ticks", json_integer(start_ticks(s->pid)));
    json_object_set_new(o, "boot_id", json_string(boot));
    json_object_set_new(o, "port", json_integer(s->port));
    json_object_set_new(o, "url", json_string(s->url));
    json_object_set_new(o, "model", json_string(l->model));
    vt_status status = lab_write_json(l, "server.json", o, "the server that is left running", err);
    json_decref(o);
    if (status == VT_OK)
        lab_server_let_go(s);
    return status;
}

vt_status lab_server_borrow(lab *l, const char *const *args, lab_server *out, bool *own,
                            vt_err *err)
{
    left_server f;
    bool runs = find_left(l, &f),
         fits = runs && f.model && strcmp(f.model, l->model) == 0 && lab_server_answers(&f.server);
    *out = f.server;
    release(&f);
    *own = !fits;
    if (fits) {
        lab_note(l, "using the server that experiment 1 left at %s", out->url);
        return VT_OK;
    }
    /* one that runs with another model goes on writing its log */
    return lab_server_start_with_log(l, args, runs ? "server_own.log" : "server.log", out, err);
}

vt_status lab_server_with(lab *l, vt_status (*measure)(lab *l, const lab_server *s, vt_err *err),
                          vt_err *err)
{
    lab_server s;
    bool own;
    TRY(lab_server_borrow(l, NULL, &s, &own, err));
    vt_status status = measure(l, &s, err);
    if (status == VT_OK)
        lab_draw_server(l, &s);
    if (own)
        lab_server_stop(&s);
    return status;
}

/* Sends SIGTERM and waits for the end: a pidfd is readable from then on. */
static vt_status end_process(const left_server *f, vt_err *err)
{
    struct pollfd end = {.fd = f->pidfd, .events = POLLIN};
    if (pidfd_send_signal(f->pidfd, SIGTERM, NULL, 0) != 0 && errno != ESRCH)
        return vt_fail(err, VT_ERR_IO, "the server (process %d) cannot be ended: %s", f->server.pid,
                       strerror(errno));
    if (poll(&end, 1, END_LIMIT_MS) == 1)
        return VT_OK;
    return vt_fail(err, VT_ERR_IO, "the server (process %d) did not end in %d s", f->server.pid,
                   END_LIMIT_MS / 1000);
}

vt_status lab_server_end_left(lab *l, vt_err *err)
{
    char path[PATH_MAX];
    left_server f;
    vt_status status = find_left(l, &f)
                           ? end_process(&f, err)
                           : vt_fail(err, VT_ERR_USAGE,
                                     "--stop: experiment 1 left no server running here");
    release(&f);
    TRY(status);
    snprintf(path, sizeof path, "%s/server.json", l->results);
    unlink(path);
    return VT_OK;
}
