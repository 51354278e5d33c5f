/* Who sends a request, by its key, and what that key opens. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/random.h"
#include "kv/radix.h"
#include "server/inside.h"

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

server_caller server_caller_of(const vt_server *s, const vt_http_request *r)
{
    const char *key = presented_key(r);
    int32_t admin = server_keys_find(&s->admin_keys, key);
    int32_t user = server_keys_find(&s->keys, key);
    server_caller who = {.key = admin >= 0  ? CALLER_ADMIN + admin
                                : user >= 0 ? user
                                            : CALLER_NO_KEY};
    who.user = s->keys.n == 0 || who.key != CALLER_NO_KEY;
    who.admin = admin >= 0 || (who.user && s->admin_keys.n == 0 && s->keys.n <= 1);
    return who;
}

void server_refuse_caller(const vt_server *s, vt_exchange *x, const server_caller *who,
                          server_access wanted)
{
    vt_openai_error e = {0};
    bool admins = wanted == ACCESS_ADMIN && s->admin_keys.n > 0;
    if (who->user && s->admin_keys.n == 0) {
        server_refuse(x, 403, NULL,
                      "this is an administrator's where users have several keys; option "
                      "--admin-key-file says who that is");
        return;
    }
    vt_web_header(x, "WWW-Authenticate", "Bearer");
    vt_openai_refuse(&e, 401, NULL,
                     admins ? "this needs an administrator's key" : "a valid API key is needed");
    e.code = "invalid_api_key";
    server_reply_error(x, &e);
}

bool server_take_turn(vt_server *s, const vt_exchange *x, size_t bytes, void (*run)(void *arg),
                      void (*done)(void *arg), void *arg)
{
    int32_t key = server_caller_of(s, vt_web_request(x)).key;
    server_long_job job = {.client = (uint64_t)(key + 1), .bytes = bytes};
    for (const char *p = vt_web_peer(x); key == CALLER_NO_KEY && *p; p++)
        job.client = vt_mix64(job.client ^ (unsigned char)*p);
    return server_work_add(s->work, &job, run, done, arg);
}

bool server_read_body(vt_server *s, const vt_exchange *x, const vt_buf *body,
                      void (*run)(void *arg), void (*done)(void *arg), void *arg)
{
    enum { LARGE = 64 << 10 }; /* bytes of a body that takes milliseconds */
    if (body->len > LARGE)
        return server_take_turn(s, x, body->len, run, done, arg);
    return server_work_add(s->work, NULL, run, done, arg);
}

/* The number is not the client's to choose, so no salt of another key can be equal. */
bool server_caller_salt(const vt_server *s, int32_t key, const char **salt, vt_arena *arena)
{
    char text[VT_SALT_MAX + 1];
    if (s->keys.n + s->admin_keys.n < 2 || vt_options_flag(s->options, "share-prefixes"))
        return true;
    int n = snprintf(text, sizeof text, "%d:%s", key, *salt ? *salt : "");
    *salt = n < (int)sizeof text ? vt_arena_strdup(arena, text, (size_t)n) : NULL;
    return *salt != NULL;
}
