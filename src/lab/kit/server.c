/* A server of the lab's model in a process of its own, and asking it. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/plain_file.h"
#include "device/choose.h"
#include "files/json.h"
#include "lab/kit/lab.h"
#include "load/client.h"

enum { MAX_ARGS = 48, ANSWER_LIMIT_S = 120, READY_LIMIT_S = 300 };

/* ---- asking ---- */

/* The body of the answer to a GET; its status, or 0 where none came. */
static int ask(const lab_server *s, const char *path, char **body, size_t *len, vt_err *err)
{
    vt_load_target target;
    int status = 0;
    *body = NULL;
    if (vt_load_target_parse(s->url, &target, err) != VT_OK ||
        vt_load_get(&target, path, NULL, ANSWER_LIMIT_S, &status, body, len, err) != VT_OK)
        return 0;
    return status;
}

vt_status lab_server_json(const lab_server *s, const char *path, json_t **out, vt_err *err)
{
    char *body;
    size_t len = 0;
    int status = ask(s, path, &body, &len, err);
    vt_status done;
    if (status == 0)
        done = vt_fail(err, VT_ERR_IO, "%s%s: no answer", s->url, path);
    else if (status != 200)
        done = vt_fail(err, VT_ERR_IO, "%s%s: status %d", s->url, path, status);
    else
        done = vt_json_load(path, body, len, JSON_REJECT_DUPLICATES, VT_JSON_MAX_TREE, out, err);
    free(body);
    return done;
}

bool lab_server_answers(const lab_server *s)
{
    char *body;
    size_t len = 0;
    vt_err err = {0};
    int status = ask(s, "/health", &body, &len, &err);
    free(body);
    return status == 200;
}

/* ---- starting and ending ---- */

static int free_port(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t n = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), port = 0;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd >= 0 && bind(fd, (const struct sockaddr *)&at, sizeof at) == 0 &&
        getsockname(fd, (struct sockaddr *)&at, &n) == 0)
        port = ntohs(at.sin_port);
    if (fd >= 0)
        close(fd);
    return port;
}

static void run_server(int to, const sigset_t *signals, char *const *argv)
{
    int in = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (in < 0 || dup2(in, 0) < 0 || dup2(to, 1) < 0 || dup2(to, 2) < 0)
        _exit(126);
    setsid(); /* Ctrl-C ends the lab, and the guard ends the server */
    sigprocmask(SIG_SETMASK, signals, NULL);
    execv("/proc/self/exe", argv);
    _exit(127);
}

/* The guard's whole life. It reads from a socket whose other end the lab has. A byte: the lab lets
 * the server go. The end of the stream: the lab is dead, whatever killed it. */
static void run_guard(int from, int pidfd, int server)
{
    char byte, said[96];
    ssize_t n;
    setsid(); /* a Ctrl-C that ends the lab leaves the guard */
    while ((n = read(from, &byte, 1)) < 0 && errno == EINTR)
        ;
    if (n == 0 && pidfd_send_signal(pidfd, SIGTERM, NULL, 0) == 0) {
        int len = snprintf(said, sizeof said,
                           "vitrine: the lab ended early, and so does its server, process %d\n",
                           server);
        n = write(2, said, (size_t)len);
    }
    _exit(n < 0);
}

static vt_status start_guard(lab_server *s, const sigset_t *signals, vt_err *err)
{
    int end[2], pidfd = pidfd_open(s->pid, 0); /* its number may be another process's later */
    if (pidfd < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, end) != 0) {
        int why = errno;
        if (pidfd >= 0)
            close(pidfd);
        return vt_fail(err, VT_ERR_IO, "a server cannot be guarded: %s", strerror(why));
    }
    s->guard = fork();
    if (s->guard == 0) {
        close(end[1]);
        sigprocmask(SIG_SETMASK, signals, NULL);
        run_guard(end[0], pidfd, s->pid);
    }
    close(pidfd);
    close(end[0]);
    s->guard_end = end[1];
    if (s->guard > 0)
        return VT_OK;
    close(end[1]);
    return vt_fail(err, VT_ERR_IO, "a server cannot be guarded: %s", strerror(errno));
}

void lab_server_let_go(lab_server *s)
{
    if (s->guard <= 0)
        return;
    while (send(s->guard_end, "", 1, MSG_NOSIGNAL) < 0 && errno == EINTR)
        ;
    close(s->guard_end);
    while (waitpid(s->guard, NULL, 0) < 0 && errno == EINTR)
        ;
    s->guard = 0;
}

/* The first line of the log, for an error message. */
static void first_line(const char *path, char *out, size_t size)
{
    FILE *f = fopen(path, "r");
    out[0] = '\0';
    if (f && !fgets(out, (int)size, f))
        out[0] = '\0';
    out[strcspn(out, "\n")] = '\0';
    vt_text_clean_line(out);
    if (f)
        fclose(f);
}

static vt_status wait_ready(lab_server *s, int64_t begin_ns, vt_err *err)
{
    const struct timespec nap = {0, 20000000};
    char line[200];
    for (;;) {
        int how;
        bool ready = lab_server_answers(s);
        s->ready_s = (double)(vt_now_ns() - begin_ns) * 1e-9;
        if (ready)
            return VT_OK;
        if (waitpid(s->pid, &how, WNOHANG) == s->pid) {
            s->pid = 0;
            lab_server_let_go(s);
            first_line(s->log, line, sizeof line);
            return vt_fail(err, VT_ERR_IO, "the server ended before it was ready: %s", line);
        }
        if (s->ready_s > READY_LIMIT_S) {
            lab_server_stop(s);
            return vt_fail(err, VT_ERR_IO, "the server was not ready after %d s; see %s",
                           READY_LIMIT_S, s->log);
        }
        nanosleep(&nap, NULL);
    }
}

/* The port that these arguments name; 0: none. */
static int port_of(const char *const *args)
{
    for (; args && args[0] && args[1]; args++)
        if (strcmp(args[0], "--port") == 0)
            return (int)strtol(args[1], NULL, 10);
    return 0;
}

vt_status lab_server_start(lab *l, const char *const *args, lab_server *out, vt_err *err)
{
    return lab_server_start_with_log(l, args, "server.log", out, err);
}

vt_status lab_server_start_with_log(lab *l, const char *const *args, const char *log,
                                    lab_server *out, vt_err *err)
{
    char device[16], port[16], threads[16];
    int n = 0, wanted = port_of(args);
    *out = (lab_server){.port = wanted ? wanted : free_port()};
    vt_device_name(l->ordinal, device, sizeof device);
    snprintf(port, sizeof port, "%d", out->port);
    snprintf(threads, sizeof threads, "%d", l->threads);
    snprintf(out->url, sizeof out->url, "http://127.0.0.1:%d", out->port);
    snprintf(out->log, sizeof out->log, "%s/%s", l->results, log);
    const char *argv[MAX_ARGS] = {"vitrine", "serve", "-m",     l->model,    "--device",  device,
                                  "--port",  port,    "--host", "127.0.0.1", "--threads", threads};
    while (argv[n])
        n++;
    for (; args && *args && n < MAX_ARGS - 1; args++)
        argv[n++] = *args;
    int to = -1;
    TRY(vt_open_to_log(out->log, &to, err));
    lab_note(l, "starting a server on port %d ...", out->port);
    int64_t begin_ns = vt_now_ns();
    sigset_t all, before; /* no signal may end the lab between the two forks */
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    out->pid = fork();
    if (out->pid == 0)
        run_server(to, &before, (char *const *)(uintptr_t)argv);
    vt_status status = out->pid > 0 ? start_guard(out, &before, err)
                                    : vt_fail(err, VT_ERR_IO, "a server cannot be started: %s",
                                              strerror(errno));
    sigprocmask(SIG_SETMASK, &before, NULL);
    close(to);
    if (status == VT_OK) {
        TRY(wait_ready(out, begin_ns, err));
        lab_event(l, begin_ns, "a server of %s is started; it answers after %f s", l->model,
                  out->ready_s);
        return VT_OK;
    }
    lab_server_stop(out);
    return status;
}

void lab_server_stop(lab_server *s)
{
    const struct timespec nap = {0, 20000000};
    int how;
    if (s->pid <= 0)
        return;
    kill(s->pid, SIGTERM);
    lab_server_let_go(s);
    for (int i = 0; i < 1500 && s->pid > 0; i++) { /* half a minute for what is under way */
        if (waitpid(s->pid, &how, WNOHANG) == s->pid)
            s->pid = 0;
        else
            nanosleep(&nap, NULL);
    }
    if (s->pid > 0) {
        kill(s->pid, SIGKILL);
        waitpid(s->pid, &how, 0);
        s->pid = 0;
    }
}
