/* vitrine top: what a server's engine does, live in the terminal.
 *
 *   socket ── GET /live ──> http_reply ──> event_stream ── looks ──> top_view ── frames ──> screen
 *
 * One thread polls the socket and the keyboard. The terminal is put back as it was however the
 * program ends, but for a signal that cannot be caught. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "cli/cli.h"
#include "cli/top_frame.h"
#include "load/client.h"
#include "server/api/keys.h"

enum {
    MAX_EVENT = 4 << 20,
    MAX_BODY = 16384,
    FRAME_MS = 1000,
    DEFAULT_ROWS = 24,
    ONCE_ROWS = 40,
    ANSWER_S = 30
};

/* ---- asking ---- */

static vt_status send_request(int fd, const vt_load_target *t, const char *key, vt_err *err)
{
    vt_buf b = {0};
    vt_buf_printf(&b, "GET %s/live HTTP/1.1\r\nHost: %s\r\n", t->base, t->host);
    if (key)
        vt_buf_printf(&b, "Authorization: Bearer %s\r\n", key);
    vt_buf_puts(&b, "Accept: text/event-stream\r\nConnection: close\r\n\r\n");
    bool sent = !b.failed && send(fd, b.data, b.len, MSG_NOSIGNAL) == (ssize_t)b.len;
    vt_buf_release(&b);
    return sent ? VT_OK : vt_fail(err, VT_ERR_IO, "the request could not be sent");
}

/* ---- the terminal ---- */

static volatile sig_atomic_t end_asked, resized;

static void on_end(int signal)
{
    (void)signal;
    end_asked = 1;
}

static void on_resize(int signal)
{
    (void)signal;
    resized = 1;
}

static void catch_signals(void)
{
    struct sigaction end = {.sa_handler = on_end}, resize = {.sa_handler = on_resize};
    sigaction(SIGINT, &end, NULL);
    sigaction(SIGTERM, &end, NULL);
    sigaction(SIGHUP, &end, NULL);
    sigaction(SIGWINCH, &resize, NULL);
}

/* The alternate screen without a cursor, and keys as they are pressed. */
static bool enter_screen(struct termios *before)
{
    bool keys = tcgetattr(STDIN_FILENO, before) == 0;
    if (keys) {
        struct termios raw = *before;
        raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    }
    fputs("\033[?1049h\033[?25l", stdout);
    return keys;
}

static void leave_screen(bool keys, const struct termios *before)
{
    fputs("\033[?25h\033[?1049l", stdout);
    fflush(stdout);
    if (keys)
        tcsetattr(STDIN_FILENO, TCSANOW, before);
}

static void draw(const top_view *v)
{
    struct winsize size;
    vt_buf text = {0};
    vt_term term = vt_term_of(STDOUT_FILENO);
    int32_t rows = DEFAULT_ROWS;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 1)
        rows = size.ws_row;
    top_view_draw(v, &term, rows - 1, &text);
    fputs("\033[H", stdout);
    for (const char *at = text.data, *end; at && *at; at = end + 1) {
        end = strchr(at, '\n');
        printf("%.*s\033[K\r\n", (int)(end - at), at);
    }
    fputs("\033[Jq quits", stdout);
    fflush(stdout);
    vt_buf_release(&text);
}

/* ---- watching ---- */

typedef struct watching {
    int fd;
    bool once;
    vt_http_reply reply;
    vt_event_stream stream;
    vt_buf body; /* of an answer that is no stream of events: its first bytes */
    top_view view;
} watching;

static void on_event(void *user, const char *data, size_t len)
{
    (void)top_view_take(&((watching *)user)->view, data, len);
}

static void on_body(void *user, const char *data, size_t len)
{
    watching *w = user;
    size_t room = w->body.max - w->body.len;
    if (strcmp(w->reply.content_type, "text/event-stream") == 0)
        (void)vt_event_stream_feed(&w->stream, data, len);
    else
        vt_buf_add(&w->body, data, len < room ? len : room);
}

/* The sentence of an error's JSON, or its status alone. */
static vt_status refused(const watching *w, vt_err *err)
{
    const char *body = w->body.data ? w->body.data : "";
    json_t *o = json_loads(body, 0, NULL);
    const char *message = json_string_value(
        json_object_get(json_object_get(o, "error"), "message"));
    if (message)
        vt_fail(err, VT_ERR_IO, "the server answered %d: %.300s", w->reply.status, message);
    else
        vt_fail(err, VT_ERR_IO, "the server answered %d to GET /live: is it 'vitrine serve'?",
                w->reply.status);
    vt_text_clean_line(err->message);
    json_decref(o);
    return VT_ERR_IO;
}

/* Reads what the socket has. *over: the answer has ended. */
static vt_status take_bytes(watching *w, bool *over, vt_err *err)
{
    char bytes[65536];
    ssize_t n = recv(w->fd, bytes, sizeof bytes, 0);
    if (n < 0 && errno == EINTR)
        return VT_OK;
    if (n < 0)
        return vt_fail(err, VT_ERR_IO, "the connection broke: %s", strerror(errno));
    if (n > 0)
        vt_http_reply_feed(&w->reply, bytes, (size_t)n);
    else
        vt_http_reply_end(&w->reply);
    if (w->stream.line.failed || w->stream.event.failed)
        return vt_fail(err, VT_ERR_FORMAT, "an event is longer than %d bytes", MAX_EVENT);
    if (w->reply.state == VT_REPLY_BROKEN && n > 0)
        return vt_fail(err, VT_ERR_FORMAT, "the answer breaks HTTP: %s", w->reply.why);
    *over = n == 0 || w->reply.state == VT_REPLY_DONE;
    if (*over && w->reply.status != 0 && w->reply.status != 200)
        return refused(w, err);
    return *over ? vt_fail(err, VT_ERR_IO, "the server has ended the connection") : VT_OK;
}

static bool key_quits(void)
{
    char key;
    return read(STDIN_FILENO, &key, 1) <= 0 || key == 'q' || key == 'Q' || key == 3;
}

static vt_status watch_screen(watching *w, bool keys, vt_err *err)
{
    int64_t next = 0;
    bool over = false;
    while (!end_asked) {
        int64_t now = vt_now_ns() / 1000000;
        if (now >= next || resized) {
            resized = 0;
            draw(&w->view);
            next = now + (w->view.look ? FRAME_MS : 100);
        }
        struct pollfd p[2] = {{w->fd, POLLIN, 0}, {keys ? STDIN_FILENO : -1, POLLIN, 0}};
        if (poll(p, 2, (int)(next - now > 0 ? next - now : 0)) <= 0)
            continue;
        if (p[1].revents && key_quits())
            return VT_OK;
        if (p[0].revents)
            TRY(take_bytes(w, &over, err));
    }
    return VT_OK;
}

static vt_status watch_once(watching *w, const vt_term *term, vt_err *err)
{
    bool over = false;
    vt_buf text = {0};
    int64_t last = vt_now_ns() + (int64_t)ANSWER_S * 1000000000;
    while (!w->view.look) {
        struct pollfd p = {w->fd, POLLIN, 0};
        if (end_asked || vt_now_ns() > last)
            return vt_fail(err, VT_ERR_IO, "no look at the engine came within %d s", ANSWER_S);
        vt_status status = poll(&p, 1, 1000) > 0 ? take_bytes(w, &over, err) : VT_OK;
        if (status != VT_OK && !w->view.look) /* the end may come with the look */
            return status;
    }
    top_view_draw(&w->view, term, ONCE_ROWS, &text);
    fputs(text.data ? text.data : "", stdout);
    vt_buf_release(&text);
    return VT_OK;
}

static vt_status watch(const cli *c, watching *w, server_keys *keys, vt_err *err)
{
    vt_load_target t;
    struct termios before;
    TRY(vt_load_target_parse(vt_options_get(c->options, "url"), &t, err));
    TRY(server_keys_load(keys, vt_options_get(c->options, "admin-key-file"), "VITRINE_ADMIN_KEY",
                         err));
    TRY(vt_load_connect(&t, &w->fd, err));
    TRY(send_request(w->fd, &t, keys->n > 0 ? keys->key[0] : NULL, err));
    catch_signals();
    if (w->once || !c->out.tty) {
        vt_term term = c->out;
        if (!term.tty || vt_options_given(c->options, "width"))
            term.width = (int32_t)vt_options_int(c->options, "width");
        return watch_once(w, &term, err);
    }
    bool raw = enter_screen(&before);
    vt_status status = watch_screen(w, raw, err);
    leave_screen(raw, &before);
    return status;
}

int cli_top(cli *c)
{
    vt_err err = {0};
    server_keys keys = {0};
    watching w = {.fd = -1, .once = vt_options_flag(c->options, "once")};
    w.reply.on_body = on_body;
    w.reply.user = &w;
    vt_http_reply_reset(&w.reply);
    vt_event_stream_init(&w.stream, MAX_EVENT, on_event, &w);
    vt_buf_init(&w.body, MAX_BODY);
    vt_status status = watch(c, &w, &keys, &err);
    if (w.fd >= 0)
        close(w.fd);
    vt_event_stream_release(&w.stream);
    vt_buf_release(&w.body);
    top_view_release(&w.view);
    server_keys_release(&keys);
    return status == VT_OK ? CLI_DONE : cli_fail(&err);
}
