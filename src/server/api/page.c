/* GET / and its files: the live page, whose sources lie in src/server/page and are part of the
 * binary. */
#include <string.h>

#include "server/inside.h"

typedef struct page_file {
    const char *name, *text;
    uint64_t size;
} page_file;

/* Made by tools/embed-kernels --table; ended by a NULL name. */
extern const page_file vt_page_files[] __attribute__((visibility("hidden")));

/* Scripts and styles come from this server alone, none stand in the page itself, and no other page
 * may show this one in a frame. */
static const char policy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

static const char *type_of(const char *name)
{
    const char *end = strrchr(name, '.');
    if (end && strcmp(end, ".css") == 0)
        return "text/css; charset=utf-8";
    if (end && strcmp(end, ".js") == 0)
        return "text/javascript; charset=utf-8";
    if (end && strcmp(end, ".svg") == 0)
        return "image/svg+xml";
    return "text/html; charset=utf-8";
}

void server_page(vt_server *s, vt_exchange *x)
{
    const char *path = vt_web_request(x)->path + 1;
    const page_file *f = vt_page_files;
    (void)s;
    if (!*path)
        path = "page.html";
    while (f->name && strcmp(f->name, path) != 0)
        f++;
    if (!f->name) {
        server_refuse(x, 404, NULL, "%.100s: there is no such file of the page", path);
        return;
    }
    vt_web_header(x, "Content-Security-Policy", policy);
    vt_web_header(x, "X-Content-Type-Options", "nosniff");
    vt_web_header(x, "Referrer-Policy", "no-referrer");
    vt_web_header(x, "X-Frame-Options", "DENY");
    vt_web_header(x, "Cross-Origin-Opener-Policy", "same-origin");
    vt_web_header(x, "Cache-Control", "no-cache");
    vt_web_reply(x, 200, type_of(f->name), f->text, (size_t)f->size);
}
