/* What the server reads besides requests: X-Request-Id, traceparent, Accept of /metrics, the
 * collector's address, and the Host and Origin of browsers. The first byte chooses the reader.
 * Whatever the text, what comes out is well formed; a traceparent that is written anew from what
 * was read reads the same. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/http/sites.h"
#include "server/watch/exposition.h"
#include "server/watch/otlp.h"
#include "server/watch/trace_context.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds)
{
    if (!holds)
        abort();
}

static void check_hex(const char *text, size_t n)
{
    must(strlen(text) == n && strspn(text, "0123456789abcdef") == n);
    must(strspn(text, "0") < n);
}

static void check_trace(const char *text)
{
    static const uint64_t fresh[3] = {1, 2, 3};
    server_trace t, again;
    char back[64];
    server_trace_begin(text, fresh, &t);
    check_hex(t.trace_id, 32);
    check_hex(t.span_id, 16);
    if (!t.parent_id[0])
        return;
    check_hex(t.parent_id, 16);
    snprintf(back, sizeof back, "00-%s-%s-%02x", t.trace_id, t.parent_id, t.sampled);
    server_trace_begin(back, fresh, &again);
    must(memcmp(&t, &again, sizeof t) == 0);
}

static void check_id(const char *text)
{
    char id[SERVER_MAX_ID + 1];
    server_request_id(text, 7, id);
    must(strlen(id) >= 1 && strlen(id) <= SERVER_MAX_ID);
    must(strcmp(id, text) == 0 || strcmp(id, "req-0000000000000007") == 0);
    for (const char *c = id; *c; c++)
        must(*c > ' ' && *c <= '~' && *c != '"' && *c != '\\');
}

static void check_endpoint(const char *text)
{
    server_endpoint e;
    if (server_endpoint_read(text, &e, NULL) != VT_OK)
        return;
    long port = strtol(e.port, NULL, 10);
    must(e.host[0] && e.path[0] == '/' && port >= 1 && port <= 65535);
    must(!strpbrk(e.host, " \r\n@/") && !strpbrk(e.path, " \r\n?#"));
}

/* Host, a line break, Origin. What passes by its Host names the server, and no Origin helps it. */
static void check_sites(char *text)
{
    const char *const allowed[] = {"ai.example.com"};
    server_sites s = {.check_host = true, .scheme = "http", .host = "us", .allowed = allowed};
    char why[400], *origin = strchr(text, '\n');
    if (!origin)
        return;
    *origin++ = '\0';
    vt_http_header h[2] = {{"host", text}, {"origin", origin}};
    vt_http_request r = {.header = h, .n_headers = 2};
    s.n_allowed = 1;
    if (server_sites_pass(&s, &r, why, sizeof why))
        must(strcasestr(text, "localhost") || strstr(text, "127.") || strstr(text, "1]") ||
             strcasestr(text, "us") || strcasestr(text, allowed[0]));
    else
        must(strlen(why) > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char text[2048];
    if (size == 0 || size > sizeof text)
        return 0;
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    switch (data[0] % 8) {
    case 0:
        check_trace(text);
        break;
    case 1:
        check_id(text);
        break;
    case 2:
        (void)server_accepts_openmetrics(text);
        break;
    case 3:
        check_endpoint(text);
        break;
    case 4:
        check_sites(text);
        break;
    }
    return 0;
}
