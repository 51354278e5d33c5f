#include "fetch/fetch_url.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Where the part between "//" and the first of "/?#" begins and ends. */
static bool find_authority(const char *url, const char **begin, const char **end)
{
    const char *p = strstr(url, "://");
    if (!p)
        return false;
    *begin = p + 3;
    *end = *begin + strcspn(*begin, "/?#");
    return true;
}

/* The byte after the last '@' in [begin, end): where the host begins. */
static const char *behind_user(const char *begin, const char *end)
{
    const char *host = begin;
    for (const char *p = begin; p < end; p++)
        if (*p == '@')
            host = p + 1;
    return host;
}

const char *fetch_url_show(const char *url, char out[FETCH_URL_SHOWN])
{
    const char *begin, *end;
    const char *host = find_authority(url, &begin, &end) ? behind_user(begin, end) : NULL;
    if (host && host > begin)
        snprintf(out, FETCH_URL_SHOWN, "%.*s***@%s", (int)(begin - url < 20 ? begin - url : 20),
                 url, host);
    else
        snprintf(out, FETCH_URL_SHOWN, "%s", url);
    return out;
}

vt_status fetch_url_parse(const char *url, fetch_url *out, vt_err *err)
{
    char shown[FETCH_URL_SHOWN];
    const char *begin = NULL, *end = NULL;
    fetch_url_show(url, shown);
    *out = (fetch_url){.https = strncasecmp(url, "https://", 8) == 0};
    if ((!out->https && strncasecmp(url, "http://", 7) != 0) || !find_authority(url, &begin, &end))
        return vt_fail(err, VT_ERR_USAGE, "'%.100s' found, expected http://... or https://...",
                       shown);
    for (const char *p = url; *p; p++)
        if (*p <= 0x20 || *p >= 0x7f || *p == '\\')
            return vt_fail(err, VT_ERR_USAGE,
                           "'%.100s': byte %d is 0x%02x, which has no place in a URL", shown,
                           (int)(p - url), (unsigned)(unsigned char)*p);
    const char *host = behind_user(begin, end);
    const char *port = *host == '[' ? memchr(host, ']', (size_t)(end - host)) : host;
    port = port ? memchr(port, ':', (size_t)(end - port)) : NULL;
    size_t n = (size_t)((port ? port : end) - host);
    if (n == 0 || n >= sizeof out->host)
        return vt_fail(err, VT_ERR_USAGE, "'%.100s' names no host", shown);
    for (size_t i = 0; i < n; i++)
        out->host[i] = (char)tolower((unsigned char)host[i]);
    const char *usual = out->https ? ":443" : ":80";
    size_t n_port = port ? (size_t)(end - port) : 0;
    out->default_port = n_port <= 1 ||
                        (n_port == strlen(usual) && memcmp(port, usual, n_port) == 0);
    return VT_OK;
}
