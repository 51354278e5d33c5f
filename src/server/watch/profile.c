/* /start_profile and /stop_profile: a story of the steps between the two, in a file of --story-dir.
 *
 * The recorder always runs, so starting notes the time alone. Stopping has the story made on a
 * helper thread, as /story does (stories.c): the engine stands still for some 10 ms. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "server/api/generation.h"
#include "server/watch/dumps.h"
#include "server/watch/stories.h"
#include "story/dump.h"

/* Takes no body or an empty object. Clients of other engines may send fields that choose what is
 * recorded and where to: they are refused by name. */
static bool has_fields(vt_exchange *x)
{
    json_t *body;
    if (vt_web_request(x)->body_len == 0)
        return false;
    if (!server_read_object(x, &body))
        return true;
    const char *field = json_object_iter_key(json_object_iter(body));
    if (field)
        server_refuse(x, 400, field,
                      "%.60s: expected no field: everything is recorded, and the file is written "
                      "into the server's --story-dir",
                      field);
    bool refused = field != NULL;
    json_decref(body);
    return refused;
}

static void reply(vt_exchange *x, const char *message, const char *file)
{
    vt_json w;
    vt_json_object(&w);
    vt_json_bool(&w, "success", true);
    vt_json_string(&w, "message", message);
    if (file)
        vt_json_string(&w, "file", file);
    server_reply_json(x, 200, &w);
}

void server_start_profile(vt_server *s, vt_exchange *x)
{
    if (has_fields(x))
        return;
    if (s->stories->profile_ns) {
        server_refuse(x, 400, NULL, "a profile runs already: /stop_profile ends it");
        return;
    }
    s->stories->profile_ns = vt_now_ns();
    reply(x, "the steps from now to /stop_profile will be in its file", NULL);
}

typedef struct profile {
    vt_server *server;
    vt_exchange *x; /* NULL: the client has gone */
    int64_t since_ns;
    char path[SERVER_DUMP_PATH];
    vt_status status;
    vt_err err;
} profile;

static void write_profile(void *arg)
{
    profile *p = arg;
    const vt_server *s = p->server;
    p->status = vt_story_dump_name(vt_options_get(s->options, "story-dir"), p->path, sizeof p->path,
                                   &p->err);
    if (p->status == VT_OK)
        p->status = vt_story_dump_since(s->engine, p->since_ns, p->path, &p->err);
}

static void written(void *arg)
{
    profile *p = arg;
    server_dumps *d = p->server->dumps;
    *(p->status == VT_OK ? &d->written : &d->failed) += 1;
    p->server->stories->building = false;
    server_dumps_story_ended(d);
    if (p->x && p->status == VT_OK)
        reply(p->x, "read it with vitrine story show FILE, or vitrine story export", p->path);
    else if (p->x)
        server_refuse(p->x,
                      p->status == VT_ERR_USAGE       ? 400
                      : p->status == VT_ERR_CANCELLED ? 503
                                                      : 500,
                      NULL, "no file was written: %s", p->err.message);
    free(p);
}

static void reader_gone(void *user, vt_exchange *x)
{
    (void)x;
    ((profile *)user)->x = NULL;
}

void server_stop_profile(vt_server *s, vt_exchange *x)
{
    server_stories *t = s->stories;
    if (has_fields(x))
        return;
    if (!t->profile_ns) {
        server_refuse(x, 400, NULL, "no profile runs: /start_profile begins one");
        return;
    }
    profile *p = t->building ? NULL : vt_calloc(1, sizeof *p);
    if (p) {
        *p = (profile){.server = s, .x = x, .since_ns = t->profile_ns};
        p->status = vt_fail(&p->err, VT_ERR_CANCELLED, "the server is stopping");
        if (server_work_add(s->work, &(server_long_job){0}, write_profile, written, p)) {
            t->building = true;
            t->profile_ns = 0;
            vt_web_set_user(x, p);
            vt_web_on_gone(x, reader_gone);
            return;
        }
        free(p);
    }
    server_refuse(x, 503, NULL, "another story is being told: try again");
}
