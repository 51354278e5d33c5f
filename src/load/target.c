/* Where a server is (load/client.h), and asking it one thing before the load begins. */
#include "load/client.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"

static vt_status parse_unix(const char *path, vt_load_target *t, vt_err *err)
{
    struct sockaddr_un *a = (struct sockaddr_un *)(void *)&t->address;
    if (!*path || strlen(path) >= sizeof a->sun_path)
        return vt_fail(err, VT_ERR_USAGE, "--url: unix:%.60s: expected a path of 1 to %d bytes",
                       path, (int)sizeof a->sun_path - 1);
    a->sun_family = AF_UNIX;
    memcpy(a->sun_path, path, strlen(path) + 1);
    t->address_len = sizeof *a;
    t->family = AF_UNIX;
    snprintf(t->host, sizeof t->host, "localhost");
    return VT_OK;
}

/* Of several addresses the one that answers: "localhost" is ::1 and 127.0.0.1, and a server often
 * listens on one of them alone. */
static const struct addrinfo *answering(const struct addrinfo *all)
{
    for (const struct addrinfo *a = all; a && all->ai_next; a = a->ai_next) {
        int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        bool answers = fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) == 0;
        if (fd >= 0)
            close(fd);
        if (answers)
            return a;
    }
    return all;
}

static vt_status resolve(const char *name, const char *port, vt_load_target *t, vt_err *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV}, *found = NULL;
    int code = getaddrinfo(name, port, &hints, &found);
    if (code != 0)
        return vt_fail(err, VT_ERR_IO, "--url: %s: %s", name, gai_strerror(code));
    const struct addrinfo *a = answering(found);
    memcpy(&t->address, a->ai_addr, a->ai_addrlen);
    t->address_len = a->ai_addrlen;
    t->family = a->ai_family;
    freeaddrinfo(found);
    return VT_OK;
}

/* Takes what stands behind the host and port: "/base/" -> "/base"; a last "/v1" is left out. */
static bool take_base(const char *text, vt_load_target *t)
{
    size_t n = strlen(text);
    while (n > 0 && text[n - 1] == '/')
        n--;
    if (n >= 3 && memcmp(text + n - 3, "/v1", 3) == 0)
        n -= 3;
    if (n >= sizeof t->base)
        return false;
    for (size_t i = 0; i < n; i++)
        if (text[i] <= ' ' || text[i] >= 0x7f || text[i] == '?' || text[i] == '#')
            return false;
    memcpy(t->base, text, n);
    t->base[n] = '\0';
    return true;
}

vt_status vt_load_target_parse(const char *url, vt_load_target *out, vt_err *err)
{
    vt_load_target t = {0};
    char name[256], port[8] = "80";
    const char *expected = "expected http://HOST:PORT or unix:PATH";
    if (strncmp(url, "unix:", 5) == 0) {
        TRY(parse_unix(url + 5, &t, err));
        *out = t;
        return VT_OK;
    }
    if (strncmp(url, "https:", 6) == 0)
        return vt_fail(err, VT_ERR_UNSUPPORTED,
                       "--url: %.60s: https is not there; put a proxy in front, or use http", url);
    const char *p = strncmp(url, "http://", 7) == 0 ? url + 7 : url;
    bool six = *p == '[';
    size_t n = six ? strcspn(p, "]") : strcspn(p, ":/");
    if (n <= (size_t)six || n - six >= sizeof name || (six && p[n] != ']'))
        return vt_fail(err, VT_ERR_USAGE, "--url: '%.60s' found, %s", url, expected);
    memcpy(name, p + six, n - six);
    name[n - six] = '\0';
    p += n + six;
    if (*p == ':') {
        size_t digits = strspn(p + 1, "0123456789");
        if (digits < 1 || digits > 5)
            return vt_fail(err, VT_ERR_USAGE, "--url: '%.60s' has no port, %s", url, expected);
        memcpy(port, p + 1, digits);
        port[digits] = '\0';
        p += 1 + digits;
    }
    if ((*p && *p != '/') || !take_base(p, &t) || strpbrk(name, " \t\r\n@"))
        return vt_fail(err, VT_ERR_USAGE, "--url: '%.60s' found, %s", url, expected);
    snprintf(t.host, sizeof t.host, six ? "[%s]:%s" : "%s:%s", name, port);
    TRY(resolve(name, port, &t, err));
    *out = t;
    return VT_OK;
}

static vt_status not_connected(const vt_load_target *t, vt_err *err)
{
    const char *hint = errno == ECONNREFUSED
                           ? "; no server listens there ('vitrine serve' starts one)"
                           : "";
    return vt_fail(err, VT_ERR_IO, "%s: cannot connect: %s%s", t->host, strerror(errno), hint);
}

vt_status vt_load_connect(const vt_load_target *t, int *fd, vt_err *err)
{
    *fd = socket(t->family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (*fd < 0 || connect(*fd, (const struct sockaddr *)&t->address, t->address_len) != 0)
        return not_connected(t, err);
    return VT_OK;
}

/* ---- one GET ---- */

static void add_body(void *user, const char *data, size_t len) { vt_buf_add(user, data, len); }

static vt_status exchange(int fd, const vt_load_target *t, const vt_buf *request, int64_t until_ns,
                          vt_http_reply *r, vt_err *err)
{
    char bytes[16384];
    if (connect(fd, (const struct sockaddr *)&t->address, t->address_len) != 0)
        return not_connected(t, err);
    if (send(fd, request->data, request->len, MSG_NOSIGNAL) != (ssize_t)request->len)
        return vt_fail(err, VT_ERR_IO, "%s: cannot send: %s", t->host, strerror(errno));
    while (r->state != VT_REPLY_DONE && r->state != VT_REPLY_BROKEN) {
        ssize_t n = recv(fd, bytes, sizeof bytes, 0);
        if (n < 0 || vt_now_ns() > until_ns)
            return vt_fail(err, VT_ERR_IO, "%s: no answer: %s", t->host,
                           n < 0 && errno != EAGAIN ? strerror(errno) : "timeout");
        if (n == 0)
            vt_http_reply_end(r);
        else
            vt_http_reply_feed(r, bytes, (size_t)n);
    }
    return r->state == VT_REPLY_DONE ? VT_OK
                                     : vt_fail(err, VT_ERR_FORMAT, "%s: %s", t->host, r->why);
}

vt_status vt_load_get(const vt_load_target *t, const char *path, const char *key, double timeout_s,
                      int *status, char **body, size_t *len, vt_err *err)
{
    vt_buf request = {0}, got = {0};
    vt_http_reply *r = calloc(1, sizeof *r);
    int fd = socket(t->family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    vt_status s = r && fd >= 0 ? VT_OK : vt_fail(err, VT_ERR_MEMORY, "no socket for %s", t->host);
    vt_buf_init(&got, VT_LOAD_MAX_REPLY);
    vt_buf_printf(&request, "GET %s%s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n", t->base, path,
                  t->host);
    if (key)
        vt_buf_printf(&request, "Authorization: Bearer %s\r\n", key);
    vt_buf_puts(&request, "\r\n");
    if (s == VT_OK) {
        struct timeval limit = {.tv_sec = (time_t)timeout_s + 1};
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
        r->on_body = add_body;
        r->user = &got;
        vt_http_reply_reset(r);
        s = exchange(fd, t, &request, vt_now_ns() + (int64_t)(timeout_s * 1e9), r, err);
    }
    if (s == VT_OK) {
        *status = r->status;
        *body = got.data ? vt_buf_detach(&got, len) : NULL;
        if (!*body)
            s = vt_fail(err, VT_ERR_FORMAT, "%s%s: an empty answer of status %d", t->host, path,
                        r->status);
    }
    if (fd >= 0)
        close(fd);
    vt_buf_release(&request);
    vt_buf_release(&got);
    free(r);
    return s;
}
