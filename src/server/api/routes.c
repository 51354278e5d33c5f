/* From a request's method and path to its handler, past the keys. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/term/nearest.h"
#include "server/watch/observe.h"

static const server_route routes[] = {
    {"POST", "/v1/chat/completions", ACCESS_USER, server_chat},
    {"POST", "/v1/completions", ACCESS_USER, server_completions},
    {"POST", "/v1/messages", ACCESS_USER, server_messages},
    {"POST", "/v1/messages/count_tokens", ACCESS_USER, server_count_tokens},
    {"POST", "/v1/embeddings", ACCESS_USER, server_embeddings},
    {"POST", "/v1/responses", ACCESS_USER, server_responses},
    {"POST", "/v1/score", ACCESS_USER, server_score},
    {"POST", "/score", ACCESS_USER, server_score},
    {"POST", "/v1/rerank", ACCESS_USER, server_rerank},
    {"POST", "/v2/rerank", ACCESS_USER, server_rerank_v2},
    {"POST", "/rerank", ACCESS_USER, server_rerank},
    {"POST", "/api/chat", ACCESS_USER, server_ollama_chat},
    {"POST", "/api/generate", ACCESS_USER, server_ollama_generate},
    {"POST", "/api/embed", ACCESS_USER, server_ollama_embed},
    {"POST", "/api/show", ACCESS_USER, server_ollama_show},
    {"GET", "/api/tags", ACCESS_USER, server_ollama_tags},
    {"GET", "/api/ps", ACCESS_USER, server_ollama_ps},
    {"GET", "/api/version", ACCESS_USER, server_ollama_version},
    {"POST", "/generate", ACCESS_USER, server_generate},
    {"POST", "/tokenize", ACCESS_USER, server_tokenize},
    {"POST", "/v1/tokenize", ACCESS_USER, server_tokenize},
    {"POST", "/detokenize", ACCESS_USER, server_detokenize},
    {"POST", "/v1/detokenize", ACCESS_USER, server_detokenize},
    {"GET", "/tokenizer_info", ACCESS_USER, server_tokenizer_info},
    {"GET", "/v1/models", ACCESS_USER, server_models},
    {"GET", "/v1/models/*", ACCESS_USER, server_model},
    {"GET", "/", ACCESS_OPEN, server_page},
    {"GET", "/page.css", ACCESS_OPEN, server_page},
    {"GET", "/page.js", ACCESS_OPEN, server_page},
    {"GET", "/draw.js", ACCESS_OPEN, server_page},
    {"GET", "/timeline.js", ACCESS_OPEN, server_page},
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
    {"POST", "/abort_request", ACCESS_USER, server_abort_request},
    {"POST", "/start_profile", ACCESS_ADMIN, server_start_profile},
    {"POST", "/stop_profile", ACCESS_ADMIN, server_stop_profile},
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

static void refuse_method(const vt_server *s, vt_exchange *x, const char *allowed)
{
    const char *method = vt_web_request(x)->method;
    bool asks = strcmp(method, "OPTIONS") == 0 && !s->sites.cors_origin;
    vt_web_header(x, "Allow", allowed);
    server_refuse(x, 405, NULL, "%s: expected %s here%s", method, allowed,
                  asks ? "; pages of other origins need the server's option --cors-origin" : "");
}

/* The path without slashes at its end, with one /v1 in front where it had none or several. */
static void usual_path(const char *path, bool v1, char *out, size_t size)
{
    size_t n = strlen(path);
    while (strncmp(path, "/v1/", 4) == 0) {
        path += 3;
        n -= 3;
    }
    while (n > 1 && path[n - 1] == '/')
        n--;
    snprintf(out, size, "%s%.*s", v1 ? "/v1" : "", (int)n, path);
}

/* Says which page was probably meant: most wrong addresses are a base URL with /v1 missing or
 * doubled, or a slash too many. */
static void refuse_path(vt_exchange *x)
{
    const vt_http_request *r = vt_web_request(x);
    char path[256], *meant = NULL;
    for (int v1 = 0; v1 < 2 && !meant && strlen(r->path) < sizeof path - 8; v1++) {
        usual_path(r->path, v1, path, sizeof path);
        meant = strcmp(route_path(path), "other") != 0 ? path : NULL;
    }
    vt_nearest near = vt_nearest_begin(r->path);
    for (int i = 0; i < N_ROUTES; i++)
        vt_nearest_try(&near, routes[i].path);
    if (meant || near.best)
        server_refuse(x, 404, NULL, "%s %.200s: there is no such page, did you mean %s?", r->method,
                      r->path, meant ? meant : near.best);
    else
        server_refuse(x, 404, NULL,
                      "%s %.200s: there is no such page; /v1/chat/completions, /v1/completions, "
                      "/v1/models, /generate, /tokenize, /health, /metrics and / are some that are",
                      r->method, r->path);
}

/* Decides about a request by its method, path, headers and key alone. */
typedef struct verdict {
    const server_route *route; /* of this path, and of this method if there is one; NULL: none */
    int status;                /* 200: the route's handler answers it; else the refusal */
    server_caller who;
    char why[400]; /* of 403 for another site */
} verdict;

/* True if the method of the request is that of the route; HEAD is answered as GET. */
static bool method_matches(const server_route *route, const char *method)
{
    return strcmp(route->method, strcmp(method, "HEAD") == 0 ? "GET" : method) == 0;
}

/* True if the body is compressed, which nothing here undoes. */
static bool is_encoded(const vt_http_request *r)
{
    const char *coding = vt_http_find(r, "content-encoding");
    return coding && strcasecmp(coding, "identity") != 0;
}

static verdict judge(const vt_server *s, const vt_http_request *r)
{
    verdict v = {.status = 404, .who = server_caller_of(s, r)};
    for (int i = 0; i < N_ROUTES && v.status != 200; i++) {
        if (!path_matches(routes[i].path, r->path))
            continue;
        v.route = &routes[i];
        v.status = method_matches(&routes[i], r->method) ? 200 : 405;
    }
    if (v.status != 200 || v.route->access == ACCESS_OPEN)
        return v;
    if (!server_sites_pass(&s->sites, r, v.why, sizeof v.why))
        v.status = 403;
    else if (!(v.route->access == ACCESS_ADMIN ? v.who.admin : v.who.user))
        v.status = 401;
    else if (is_encoded(r))
        v.status = 415;
    return v;
}

bool server_route_admit(void *server, const vt_http_request *r)
{
    return judge(server, r).status == 200;
}

void server_route_request(void *server, vt_exchange *x)
{
    vt_server *s = server;
    const vt_http_request *r = vt_web_request(x);
    verdict v = judge(s, r);
    server_note_begin(s, x, route_path(r->path));
    switch (v.status) {
    case 200:
        v.route->handle(s, x);
        break;
    case 401:
        server_refuse_caller(s, x, &v.who, v.route->access);
        break;
    case 403:
        server_refuse(x, 403, NULL, "%s", v.why);
        break;
    case 415:
        server_refuse(x, 415, NULL, "Content-Encoding: expected a body as it is, not compressed");
        break;
    case 405:
        refuse_method(s, x, v.route->method);
        break;
    default:
        refuse_path(x);
    }
}
