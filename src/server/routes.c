/* From a request's method and path to its handler, past the keys. */
#include <string.h>
#include <strings.h>

#include "server/inside.h"

static const server_route routes[] = {
    {"POST", "/v1/chat/completions", ACCESS_USER, server_chat},
    {"POST", "/v1/completions", ACCESS_USER, server_completions},
    {"GET", "/v1/models", ACCESS_USER, server_models},
    {"GET", "/v1/models/*", ACCESS_USER, server_model},
};

enum { N_ROUTES = sizeof routes / sizeof *routes };

static bool path_matches(const char *pattern, const char *path)
{
    size_t n = strlen(pattern);
    return pattern[n - 1] == '*' ? strncmp(pattern, path, n - 1) == 0 && path[n - 1]
                                 : strcmp(pattern, path) == 0;
}

/* The key of "Authorization: Bearer KEY" or "X-API-Key: KEY". */
static const char *presented_key(const vt_http_request *r)
{
    static const char bearer[] = "bearer ";
    const char *value = vt_http_find(r, "authorization");
    if (!value)
        return vt_http_find(r, "x-api-key");
    if (strncasecmp(value, bearer, sizeof bearer - 1) != 0)
        return NULL;
    value += sizeof bearer - 1;
    return value + strspn(value, " ");
}

/* An administrator's key opens everything. Where there are no administrator's keys, users' keys
 * do. */
static bool may_pass(const vt_server *s, const vt_http_request *r, server_access access)
{
    const char *key = presented_key(r);
    bool admin = s->admin_keys.n > 0 && server_keys_match(&s->admin_keys, key);
    bool user = s->keys.n == 0 || server_keys_match(&s->keys, key);
    if (access == ACCESS_OPEN || admin)
        return true;
    return access == ACCESS_USER || s->admin_keys.n == 0 ? user : false;
}

static void refuse_method(vt_exchange *x, const char *allowed)
{
    vt_web_header(x, "Allow", allowed);
    server_refuse(x, 405, NULL, "%s: expected %s here", vt_web_request(x)->method, allowed);
}

void server_route_request(void *server, vt_exchange *x)
{
    vt_server *s = server;
    const vt_http_request *r = vt_web_request(x);
    const char *method = strcmp(r->method, "HEAD") == 0 ? "GET" : r->method;
    const server_route *other = NULL;
    for (int i = 0; i < N_ROUTES; i++) {
        const server_route *route = &routes[i];
        if (!path_matches(route->path, r->path))
            continue;
        other = route;
        if (strcmp(route->method, method) != 0)
            continue;
        if (!may_pass(s, r, route->access)) {
            vt_openai_error e = {0};
            vt_web_header(x, "WWW-Authenticate", "Bearer");
            vt_openai_refuse(&e, 401, NULL,
                             route->access == ACCESS_ADMIN ? "this needs an administrator's key"
                                                           : "a valid API key is needed");
            e.code = "invalid_api_key";
            server_reply_error(x, &e);
            return;
        }
        route->handle(s, x);
        return;
    }
    if (other)
        refuse_method(x, other->method);
    else
        server_refuse(x, 404, NULL, "%s %.200s: there is no such page", r->method, r->path);
}
