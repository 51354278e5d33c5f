/* Web pages in a browser on the same machine, and which of them may use the server.
 *
 * A page of any site that somebody has open can make the browser send requests here. Three headers
 * tell of it; pages cannot set them, and other programs need not send them:
 *
 *   Host             the name that was asked. A page of evil.example whose name resolves to
 *                    127.0.0.1 on second asking (DNS rebinding) is of the same origin as this
 *                    server for the browser, but its requests say "Host: evil.example".
 *   Origin           the page's own origin, "http://evil.example". It is sent with every POST.
 *   Sec-Fetch-Site   "cross-site", "same-site", "same-origin" or "none" (typed by the user), where
 *                    the browser knows it. It is sent with requests for pictures and links too.
 *
 * X-Forwarded-Host and its kin are not read: any client can send them. A proxy's own name is an
 * option (allowed-host), which holds whether or not the proxy passes the browser's Host on. */
#ifndef VT_SERVER_HTTP_SITES_H
#define VT_SERVER_HTTP_SITES_H

#include "server/http/http.h"

typedef struct server_sites {
    bool check_host;            /* Host must be localhost, an address of loopback, `host` or one of
                                   `allowed` */
    const char *scheme;         /* "http" or "https": how browsers reach this server directly */
    const char *host;           /* what --host says; NULL: a Unix socket */
    const char *const *allowed; /* [n_allowed] NAME or NAME:PORT of option allowed-host */
    int32_t n_allowed;
    const char *cors_origin; /* an origin that may ask, or "*": all may; NULL: none */
} server_sites;

/* Refuses options allowed-host and cors-origin whose values no browser would ever send. */
vt_status server_sites_check(const server_sites *s, vt_err *err);
/* True if the request may be answered. If it came from a page of another site, returns false and
 * writes a sentence that names the header into why[0 .. size). */
bool server_sites_pass(const server_sites *s, const vt_http_request *r, char *why, size_t size);

#endif
