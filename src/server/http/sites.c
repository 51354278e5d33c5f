#include "server/http/sites.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/err.h"

enum { MAX_NAME = 255 };

/* The length of the name in "name:port", "[::1]:port" or either without a port; 0 if the text is
 * none of these. */
static size_t name_length(const char *host)
{
    const char *close = *host == '[' ? strchr(host, ']') : NULL;
    size_t n = close ? (size_t)(close + 1 - host) : strcspn(host, ":");
    const char *port = host + n;
    if (*port && (*port != ':' || port[1 + strspn(port + 1, "0123456789")]))
        return 0;
    return *host == '[' && !close ? 0 : n;
}

/* True if `name` is localhost or an address of the loopback network. */
static bool is_loopback(const char *name)
{
    struct in_addr four;
    struct in6_addr six;
    char address[MAX_NAME + 1];
    if (strcasecmp(name, "localhost") == 0)
        return true;
    if (inet_pton(AF_INET, name, &four) == 1)
        return ntohl(four.s_addr) >> 24 == 127;
    snprintf(address, sizeof address, "%s", name + (*name == '['));
    address[strcspn(address, "]")] = '\0';
    return *name == '[' && inet_pton(AF_INET6, address, &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six);
}

/* True if text[0 .. len) is `name`, whatever the case of their letters. */
static bool is_name(const char *text, size_t len, const char *name)
{
    return strlen(name) == len && strncasecmp(text, name, len) == 0;
}

static bool is_our_name(const server_sites *s, const char *host)
{
    char name[MAX_NAME + 1];
    size_t n = name_length(host);
    if (n == 0 || n > MAX_NAME)
        return false;
    memcpy(name, host, n);
    name[n] = '\0';
    const bool six = *name == '[';
    if (is_loopback(name) || (s->host && is_name(name + six, n - 2 * six, s->host)))
        return true;
    for (int32_t i = 0; i < s->n_allowed; i++)
        if (is_name(s->allowed[i], name_length(s->allowed[i]), name))
            return true;
    return false;
}

/* True if `origin` is "SCHEME://HOST". */
static bool is_origin(const char *origin, const char *scheme, const char *host)
{
    size_t n = strlen(scheme);
    return strncasecmp(origin, scheme, n) == 0 && strncmp(origin + n, "://", 3) == 0 &&
           strcasecmp(origin + n + 3, host) == 0;
}

/* True if `origin` is this server, as its clients see it directly or through a proxy. */
static bool is_our_origin(const server_sites *s, const char *origin, const char *host)
{
    if (host && is_origin(origin, s->scheme, host))
        return true;
    for (int32_t i = 0; i < s->n_allowed; i++)
        if (is_origin(origin, "https", s->allowed[i]) || is_origin(origin, "http", s->allowed[i]))
            return true;
    return false;
}

bool server_sites_pass(const server_sites *s, const vt_http_request *r, char *why, size_t size)
{
    const char *host = vt_http_find(r, "host"), *origin = vt_http_find(r, "origin");
    const char *site = vt_http_find(r, "sec-fetch-site"), *cors = s->cors_origin;
    if (s->check_host && host && !is_our_name(s, host)) {
        snprintf(why, size,
                 "Host: '%.100s' is no name of this server, expected localhost or a name that "
                 "option --allowed-host gives",
                 host);
        return false;
    }
    if (cors && (strcmp(cors, "*") == 0 || (origin && strcasecmp(origin, cors) == 0)))
        return true;
    if (origin && !is_our_origin(s, origin, host)) {
        snprintf(why, size,
                 "Origin: a page of '%.100s' may not ask this server; option --cors-origin lets "
                 "pages of another site ask, --allowed-host those of this one behind a proxy",
                 origin);
        return false;
    }
    if (site && (strcmp(site, "cross-site") == 0 || strcmp(site, "same-site") == 0)) {
        snprintf(why, size,
                 "Sec-Fetch-Site: a page of another site may not ask this server; option "
                 "--cors-origin lets it");
        return false;
    }
    return true;
}

vt_status server_sites_check(const server_sites *s, vt_err *err)
{
    const char *cors = s->cors_origin;
    for (int32_t i = 0; i < s->n_allowed; i++) {
        const char *a = s->allowed[i];
        size_t n = name_length(a);
        if (n == 0 || n > MAX_NAME || strpbrk(a, "/*, ") || a[strlen(a) - 1] == ':')
            return vt_fail(err, VT_ERR_USAGE,
                           "--allowed-host '%.100s': expected a host name as browsers show it, "
                           "with its port if that is not the usual one: ai.example.com:8443",
                           a);
    }
    if (!cors || strcmp(cors, "*") == 0)
        return VT_OK;
    const char *host = strstr(cors, "://");
    if (!host || host == cors || !host[3] || strpbrk(host + 3, "/*, "))
        return vt_fail(err, VT_ERR_USAGE,
                       "--cors-origin '%.100s': expected *, or an origin as browsers send it, "
                       "without a path: https://app.example.com",
                       cors);
    return VT_OK;
}
