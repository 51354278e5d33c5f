/* Routes for an administrator: /flush_cache, /abort_request (a user too, with his own requests). */
#include <string.h>

#include "base/mem.h"
#include "server/api/generation.h"

/* Before the next step the prefix cache forgets what no sequence uses. SGLang answers 400 while
 * requests run; here pages in use stay, so that it need not. Free memory of malloc goes back to the
 * system as well. */
void server_flush_cache(vt_server *s, vt_exchange *x)
{
    vt_engine_stats e;
    vt_json w;
    vt_engine_copy_stats(s->engine, &e);
    vt_engine_flush_cache(s->engine);
    vt_malloc_trim();
    vt_json_object(&w);
    vt_json_bool(&w, "success", true);
    vt_json_int(&w, "cached_pages", e.pages_cached);
    vt_json_int(&w, "used_pages", e.pages_held);
    vt_json_string(&w, "message", "pages that no sequence uses are forgotten before the next step");
    server_reply_json(x, 200, &w);
}

/* Ends the requests that are named `rid` (NULL: all) and are the caller's; an administrator's are
 * all. Returns how many. */
static int32_t abort_named(vt_server *s, const server_caller *who, const char *rid)
{
    int32_t n = 0;
    for (generation *g = s->first; g; g = g->next)
        if (!g->form->probe && (who->admin || g->key == who->key) &&
            (!rid || generation_is_named(g, rid))) {
            generation_cancel(g);
            n++;
        }
    return n;
}

/* A user may end his own requests; who asks for another's is told that none was ended, as if there
 * were none of that name. */
void server_abort_request(vt_server *s, vt_exchange *x)
{
    server_caller who = server_caller_of(s, vt_web_request(x));
    json_t *body, *value;
    const char *key, *rid = NULL;
    vt_json w;
    bool all = false;
    if (!server_read_object(x, &body))
        return;
    json_object_foreach(body, key, value)
    {
        if (strcmp(key, "rid") == 0 && (json_is_string(value) || json_is_null(value)))
            rid = json_string_value(value);
        else if (strcmp(key, "abort_all") == 0 && json_is_boolean(value))
            all = json_is_true(value);
        else {
            server_refuse(x, 400, NULL,
                          "the body: expected rid (text) or abort_all (true), and no other field");
            json_decref(body);
            return;
        }
    }
    if (!all && (!rid || !*rid)) {
        server_refuse(x, 400, "rid", "rid: expected the id of a request, or abort_all: true");
        json_decref(body);
        return;
    }
    if (!who.admin && (all || who.key == CALLER_NO_KEY)) {
        server_refuse_caller(s, x, &who, ACCESS_ADMIN);
        json_decref(body);
        return;
    }
    int32_t n = abort_named(s, &who, all ? NULL : rid);
    json_decref(body);
    vt_json_object(&w);
    vt_json_int(&w, "aborted", n);
    server_reply_json(x, 200, &w);
}
