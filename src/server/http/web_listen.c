/* Sockets that listen, and what they accept (server/http/web.h). */
#include "server/http/web_inside.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/err.h"

enum { BACKLOG = 1024 };
#define ACCEPT_PAUSE_S 0.1 /* after accept has failed for want of something */

/* ---- accepting ---- */

/* The client's address without its port; an IPv4 address in IPv6 form as IPv4. */
static void name_peer(const struct sockaddr *a, char out[WEB_PEER])
{
    const void *address = NULL;
    int family = a->sa_family;
    if (family == AF_INET) {
        address = &((const struct sockaddr_in *)(const void *)a)->sin_addr;
    } else if (family == AF_INET6) {
        const struct in6_addr *six = &((const struct sockaddr_in6 *)(const void *)a)->sin6_addr;
        bool four = IN6_IS_ADDR_V4MAPPED(six);
        family = four ? AF_INET : AF_INET6;
        address = four ? (const void *)&six->s6_addr[12] : (const void *)six;
    }
    if (!address || !inet_ntop(family, address, out, WEB_PEER))
        snprintf(out, WEB_PEER, "unix");
}

/* A piece of a stream is sent when it is written, not when the last one was acknowledged; a client
 * whose machine has vanished is noticed within some two minutes although nothing is sent to it. */
static void set_socket_options(int fd)
{
    const int on = 1, idle_s = 60, between_s = 15, probes = 4;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &between_s, sizeof between_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

static void on_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *address,
                      int len, void *arg)
{
    (void)listener, (void)len;
    char peer[WEB_PEER];
    name_peer(address, peer);
    if (address->sa_family != AF_UNIX)
        set_socket_options(fd);
    web_connection_new(arg, fd, peer);
}

static void on_accept_again(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    vt_web *w = arg;
    for (int i = 0; i < w->n_listeners; i++)
        evconnlistener_enable(w->listener[i].listener);
}

/* accept has no file descriptor or no memory to give. The client that waits makes the socket ready
 * all the time: without a pause the loop would do nothing but fail again. */
static void on_accept_error(struct evconnlistener *listener, void *arg)
{
    (void)listener;
    vt_web *w = arg;
    struct timeval pause = web_timeval(ACCEPT_PAUSE_S);
    w->n_accept_errors++;
    if (!w->accept_again)
        w->accept_again = event_new(w->base, -1, 0, on_accept_again, w);
    if (!w->accept_again || event_add(w->accept_again, &pause) != 0)
        return;
    for (int i = 0; i < w->n_listeners; i++)
        evconnlistener_disable(w->listener[i].listener);
}

/* ---- listening ---- */

/* Listens on a bound socket, which the listener owns from now on, also upon failure. */
static vt_status add_listener(vt_web *w, int fd, const char *what, vt_err *err)
{
    if (w->n_listeners == WEB_MAX_LISTENERS) {
        close(fd);
        return vt_fail(err, VT_ERR_USAGE, "cannot listen on %s: there are %d listeners already",
                       what, WEB_MAX_LISTENERS);
    }
    struct evconnlistener *l = evconnlistener_new(
        w->base, on_accept, w, LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, BACKLOG, fd);
    if (!l) {
        int code = errno;
        close(fd);
        return vt_fail(err, VT_ERR_IO, "cannot listen on %s: %s", what, strerror(code));
    }
    evconnlistener_set_error_cb(l, on_accept_error);
    w->listener[w->n_listeners++] = (web_listener){.listener = l};
    return VT_OK;
}

/* A socket that is bound to the address, or -1 with errno. */
static int bind_socket(const struct sockaddr *address, socklen_t len)
{
    const int on = 1, off = 0;
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    if (address->sa_family != AF_UNIX)
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (address->sa_family == AF_INET6) {
        /* "::" serves IPv4 as well. */
        const struct in6_addr *a = &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
        bool any = IN6_IS_ADDR_UNSPECIFIED(a);
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, any ? &off : &on, sizeof on);
    }
    if (bind(fd, address, len) == 0)
        return fd;
    int code = errno;
    close(fd);
    errno = code;
    return -1;
}

static int port_of(int fd)
{
    struct sockaddr_storage a = {0};
    socklen_t len = sizeof a;
    if (getsockname(fd, (struct sockaddr *)&a, &len) != 0)
        return 0;
    return ntohs(a.ss_family == AF_INET6
                     ? ((const struct sockaddr_in6 *)(const void *)&a)->sin6_port
                     : ((const struct sockaddr_in *)(const void *)&a)->sin_port);
}

static void set_port(struct sockaddr *a, int port)
{
    if (a->sa_family == AF_INET6)
        ((struct sockaddr_in6 *)(void *)a)->sin6_port = htons((uint16_t)port);
    else
        ((struct sockaddr_in *)(void *)a)->sin_port = htons((uint16_t)port);
}

/* Listens on every address of the list, all with one port. An address that this machine does not
 * have (such as ::1 of "localhost" where IPv6 is off) is left out, as long as another one is
 * there. */
static vt_status listen_all(vt_web *w, struct addrinfo *list, const char *host, int port,
                            int *bound, vt_err *err)
{
    char what[300];
    int n = 0, code = 0;
    for (struct addrinfo *a = list; a; a = a->ai_next) {
        if (a->ai_family != AF_INET && a->ai_family != AF_INET6)
            continue;
        set_port(a->ai_addr, port);
        snprintf(what, sizeof what, "%s port %d", host, port);
        int fd = bind_socket(a->ai_addr, a->ai_addrlen);
        if (fd < 0) {
            code = errno;
            if (code == EADDRNOTAVAIL || code == EAFNOSUPPORT)
                continue;
            return vt_fail(err, VT_ERR_IO, "cannot listen on %s: %s%s", what, strerror(code),
                           code == EADDRINUSE ? "; --port N takes another one, 0 any free one"
                                              : "");
        }
        port = port ? port : port_of(fd);
        TRY(add_listener(w, fd, what, err));
        n++;
    }
    if (n == 0)
        return vt_fail(err, VT_ERR_IO, "cannot listen on %s port %d: %s", host, port,
                       code ? strerror(code) : "the host has no IP address");
    if (bound)
        *bound = port;
    return VT_OK;
}

static void close_listener(web_listener *l)
{
    struct stat now;
    evconnlistener_free(l->listener);
    if (l->path && lstat(l->path, &now) == 0 && now.st_dev == l->device && now.st_ino == l->inode)
        unlink(l->path);
    free(l->path);
}

vt_status vt_web_listen(vt_web *w, const char *host, int port, int *bound, vt_err *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    if (!host || !*host)
        return vt_fail(err, VT_ERR_USAGE,
                       "the host to listen on is empty, expected a name or an address");
    if (port < 0 || port > 65535)
        return vt_fail(err, VT_ERR_USAGE, "port %d is not within 0 to 65535", port);
    int code = getaddrinfo(host, NULL, &hints, &list);
    if (code != 0)
        return vt_fail(err, VT_ERR_IO, "cannot find an address of the host %s: %s", host,
                       gai_strerror(code));
    int before = w->n_listeners;
    vt_status status = listen_all(w, list, host, port, bound, err);
    freeaddrinfo(list);
    while (status != VT_OK && w->n_listeners > before)
        close_listener(&w->listener[--w->n_listeners]);
    return status;
}

/* ---- Unix sockets ---- */

/* Removes a socket file that nothing listens on. Anything else that is there is refused. */
static vt_status make_way(const struct sockaddr_un *address, vt_err *err)
{
    const char *path = address->sun_path;
    struct stat found;
    if (lstat(path, &found) != 0)
        return errno == ENOENT ? VT_OK : vt_fail(err, VT_ERR_IO, "%s: %s", path, strerror(errno));
    if (!S_ISSOCK(found.st_mode))
        return vt_fail(err, VT_ERR_IO, "%s is there and is no socket: it is not replaced", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return vt_fail(err, VT_ERR_IO, "%s: %s", path, strerror(errno));
    int code = connect(fd, (const struct sockaddr *)address, sizeof *address) == 0 ? 0 : errno;
    close(fd);
    if (code == 0 || code == EAGAIN) /* EAGAIN: its backlog is full */
        return vt_fail(err, VT_ERR_IO, "%s: another program listens on this socket", path);
    if (code != ECONNREFUSED)
        return vt_fail(err, VT_ERR_IO, "%s: %s", path, strerror(code));
    if (unlink(path) != 0 && errno != ENOENT)
        return vt_fail(err, VT_ERR_IO, "%s: the stale socket cannot be removed: %s", path,
                       strerror(errno));
    return VT_OK;
}

vt_status vt_web_listen_unix(vt_web *w, const char *path, vt_err *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t len = path ? strlen(path) : 0;
    if (len == 0 || len >= sizeof address.sun_path)
        return vt_fail(err, VT_ERR_USAGE,
                       "the path of a Unix socket has %zu bytes, expected 1 to "
                       "%zu",
                       len, sizeof address.sun_path - 1);
    memcpy(address.sun_path, path, len);
    TRY(make_way(&address, err));
    int fd = bind_socket((const struct sockaddr *)&address, sizeof address);
    if (fd < 0)
        return vt_fail(err, VT_ERR_IO, "cannot listen on %s: %s", path, strerror(errno));
    TRY(add_listener(w, fd, path, err));
    web_listener *l = &w->listener[w->n_listeners - 1];
    struct stat made;
    l->path = lstat(path, &made) == 0 ? strdup(path) : NULL;
    if (l->path) {
        l->device = made.st_dev;
        l->inode = made.st_ino;
    }
    return VT_OK;
}

static bool is_loopback(evutil_socket_t fd)
{
    struct sockaddr_storage a = {0};
    socklen_t len = sizeof a;
    if (getsockname(fd, (struct sockaddr *)&a, &len) != 0)
        return false;
    if (a.ss_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)&a)->sin6_addr);
    const struct sockaddr_in *four = (const void *)&a;
    return a.ss_family == AF_INET && ntohl(four->sin_addr.s_addr) >> 24 == 127;
}

bool vt_web_is_loopback(const vt_web *w)
{
    for (int i = 0; i < w->n_listeners; i++)
        if (!is_loopback(evconnlistener_get_fd(w->listener[i].listener)))
            return false;
    return w->n_listeners > 0;
}

void web_listeners_close(vt_web *w)
{
    while (w->n_listeners > 0)
        close_listener(&w->listener[--w->n_listeners]);
    if (w->accept_again)
        event_free(w->accept_again);
    w->accept_again = NULL;
}
