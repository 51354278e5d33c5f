/* From a request's method and path to its handler, past the keys. */
#include <string.h>
#include <strings.h>

#include "server/observe.h"

static const server_route routes[] = {
    {"POST", "/v1/chat/completions", ACCESS_USER, server_chat},
    {"POST", "/v1/completions", ACCESS_USER, server_completions},
    {"POST", "/generate", ACCESS_USER, server_generate},
    {"POST", "/tokenize", ACCESS_USER, server_tokenize},
    {"POST", "/v1/tokenize", ACCESS_USER, server_tokenize},
    {"POST", "/detokenize", ACCESS_USER, server_detokenize},
    {"POST", "/v1/detokenize", ACCESS_USER, server_detokenize},
    {"GET", "/v1/models", ACCESS_USER, server_models},
    {"GET", "/v1/models/*", ACCESS_USER, server_model},
    {"GET", "/", ACCESS_OPEN, server_page},
    {"GET", "/page.css", ACCESS_OPEN, server_page},
    {"GET", "/page.js", ACCESS_OPEN, server_page},
    {"GET", "/draw.js", ACCESS_OPEN, server_page},
    {"GET", "/icon.svg", ACCESS_OPEN, server_page},
    {"GET", "/live", ACCESS_ADMIN, server_live_watch},
    {"GET", "/health", ACCESS_OPEN, server_health},
    {"GET", "/health_generate", ACCESS_USER, server_health_generate},
    {"GET", "/metrics", ACCESS_USER, server_show_metrics},
    {"GET", "/version", ACCESS_USER, server_version},
    {"GET", "/model_info", ACCESS_USER, server_model_info},
    {"GET", "/get_model_info", ACCESS_USER, server_model_info},
    {"GET", "/server_info", ACCESS_USER, server_info},
    {"GET", "/get_server_info", ACCESS_USER, server_info},
    {"GET", "/v1/loads", ACCESS_USER, server_loads},
    {"GET", "/get_load", ACCESS_USER, server_load},
    {"POST", "/flush_cache", ACCESS_ADMIN, server_flush_cache},
    {"POST", "/abort_request", ACCESS_ADMIN, server_abort_request},
    {"POST", "/start_profile", ACCESS_ADMIN, server_profile},
    {"POST", "/stop_profile", ACCESS_ADMIN, server_profile},
    {"GET", "/story", ACCESS_ADMIN, server_story_list},
    {"GET", "/story/*", ACCESS_ADMIN, server_story},
};

enum { N_ROUTES = sizeof routes / sizeof *routes };

static bool path_matches(const char *pattern, const char *path)
{
    size_t n = strlen(pattern);
    return pattern[n - 1] == '*' ? strncmp(pattern, path, n - 1) == 0 && path[n - 1]
                                 : strcmp(pattern, path) == 0;
}

/* The path of the first route that fits, for counting. */
static const char *route_path(const char *path)
{
    for (int i = 0; i < N_ROUTES; i++)
        if (path_matches(routes[i].path, path))
            return routes[i].path;
    return "other";
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
    server_note_begin(s, x, route_path(r->path));
    for (int i = 0; i < N_ROUTES; i++) {
        const server_route *route = &routes[i];
        if (!path_matches(route->path, r->path))
            continue;
        other = route;
        if (strcmp(route->method, method) != 0)
            continue;
        char why[400];
        if (route->access != ACCESS_OPEN && !server_sites_pass(&s->sites, r, why, sizeof why)) {
            server_refuse(x, 403, NULL, "%s", why);
            return;
        }
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
