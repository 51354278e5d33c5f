/* Bytes out (server/http/web.h).
 *
 * A plain socket is written to at once, with one sendmsg for all parts: a piece of a stream leaves
 * in one packet and one system call. Only what the socket does not take goes into libevent's
 * buffer, which needs three further calls (two of epoll, one to write). TLS always takes the
 * buffer. */
#include "server/http/web_inside.h"

#include <errno.h>
#include <sys/socket.h>

size_t web_unsent(const web_connection *c)
{
    return evbuffer_get_length(bufferevent_get_output(c->bev));
}

/* The handler may be calling: it is told from the loop, not from within its own call. */
void web_break(web_connection *c)
{
    c->broken = true;
    event_active(&c->deadline, EV_TIMEOUT, 0);
}

/* Bytes that the socket took. */
static size_t send_now(web_connection *c, const struct iovec *part, int n)
{
    struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)part, .msg_iovlen = (size_t)n};
    ssize_t sent = sendmsg(c->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0)
        return (size_t)sent;
    if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
        web_break(c);
    return 0;
}

void web_send(web_connection *c, const struct iovec *part, int n)
{
    if (c->broken || c->dead)
        return;
    for (int i = 0; i < n; i++)
        c->web->totals.bytes_out += part[i].iov_len;
    size_t done = !c->ssl && web_unsent(c) == 0 ? send_now(c, part, n) : 0;
    struct evbuffer *out = bufferevent_get_output(c->bev);
    for (int i = 0; i < n && !c->broken; i++) {
        size_t skip = done < part[i].iov_len ? done : part[i].iov_len;
        size_t rest = part[i].iov_len - skip;
        done -= skip;
        if (rest == 0)
            continue;
        if (evbuffer_add(out, (const char *)part[i].iov_base + skip, rest) != 0)
            web_break(c); /* no memory: half an answer is worse than none */
        c->queued += rest;
    }
    if (!c->broken)
        web_connection_sending(c);
}

void web_shut(web_connection *c)
{
    if (c->ssl)
        web_tls_close_notify(c->ssl);
    shutdown(c->fd, SHUT_WR);
}
