/* /story: the newest requests; /story/{id}: one of them, told by the engine's recording.
 *
 * A story is built on a helper thread. It holds the engine between two steps for some 10 ms and
 * measures nothing meanwhile: a request that comes then would wait for it, and everybody may ask
 * where there are no keys. Roofs are measured before the server listens; rows whose efficiency no
 * `vitrine explain` has measured have no expected time. One is built at a time, so that stories
 * never take all helper threads from requests. */
#include "server/watch/stories.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "server/api/generation.h"
#include "server/watch/dumps.h"
#include "story/forms.h"
#include "story/story.h"

static void fill(server_told *t, const server_record *r)
{
    const generation *g = r->generation;
    *t = (server_told){
        .story = g->n_submitted > 0 ? g->part[0].id : 0,
        .path = r->note->path,
        .began_ns = r->began_ns,
        .total_ns = r->end_ns - r->began_ns,
        .queue_ns = r->queue_ns,
        .ttft_ns = r->ttft_ns,
        .n_prompts = g->n_submitted,
        .prompt_tokens = g->reply.prompt_tokens,
        .cached_tokens = g->reply.cached_tokens,
        .output_tokens = g->reply.completion_tokens,
        .finish = r->finish,
        .status = r->note->status,
    };
    memcpy(t->id, r->note->id, sizeof t->id);
    memcpy(t->answer, g->id, sizeof t->answer);
}

void server_stories_add(server_stories *t, const server_record *r)
{
    fill(&t->told[t->n++ % SERVER_STORIES], r);
}

/* ---- the list ---- */

static void put_ms(vt_json *w, const char *key, int64_t ns)
{
    if (ns < 0)
        vt_json_null(w, key);
    else
        vt_json_fixed(w, key, (double)ns * 1e-6, 3);
}

static void write_told(vt_json *w, const server_told *t, bool open)
{
    vt_json_open(w, NULL, '{');
    vt_json_int(w, "story", (int64_t)t->story);
    vt_json_string(w, "request_id", t->id);
    vt_json_string(w, "id", t->answer);
    vt_json_string(w, "path", t->path);
    vt_json_fixed(w, "began", (double)server_wall_ns(t->began_ns) * 1e-9, 3);
    vt_json_int(w, "prompts", t->n_prompts);
    vt_json_int(w, "prompt_tokens", t->prompt_tokens);
    vt_json_int(w, "cached_tokens", t->cached_tokens);
    vt_json_int(w, "output_tokens", t->output_tokens);
    put_ms(w, "queue_ms", t->queue_ns);
    put_ms(w, "ttft_ms", t->ttft_ns);
    put_ms(w, "total_ms", t->total_ns);
    vt_json_string(w, "finish", open ? NULL : server_finish_names[t->finish]);
    vt_json_close(w);
}

static void write_open(vt_json *w, const generation *g)
{
    server_told t;
    if (!g->note || g->form->probe)
        return;
    server_record r = {.note = g->note,
                       .generation = g,
                       .began_ns = g->at.began,
                       .end_ns = vt_now_ns(),
                       .queue_ns = g->at.admitted ? g->at.admitted - g->at.submitted : -1,
                       .ttft_ns = g->at.first_token ? g->at.first_token - g->at.began : -1};
    fill(&t, &r);
    write_told(w, &t, true);
}

void server_story_list(vt_server *s, vt_exchange *x)
{
    const server_stories *t = s->stories;
    vt_json w;
    int32_t n_open = 0;
    vt_json_object(&w);
    vt_json_open(&w, "open", '[');
    for (const generation *g = s->first; g && n_open < SERVER_STORIES; g = g->next, n_open++)
        write_open(&w, g);
    vt_json_close(&w);
    vt_json_open(&w, "ended", '[');
    for (uint64_t i = 0; i < t->n && i < SERVER_STORIES; i++)
        write_told(&w, &t->told[(t->n - 1 - i) % SERVER_STORIES], false);
    vt_json_close(&w);
    server_reply_json(x, 200, &w);
}

/* ---- one story ---- */

/* A form that a story is answered in. */
typedef struct story_form {
    const char *name, *type;
    vt_status (*write)(const story_file *f, const char *form, vt_buf *out, vt_err *err);
} story_form;

static vt_status write_text(const story_file *f, const char *form, vt_buf *out, vt_err *err)
{
    const vt_term plain = {.width = VT_TERM_WIDTH};
    (void)form;
    return story_render(f->name, f->json, f->len, &plain, out, err);
}

static vt_status write_page(const story_file *f, const char *form, vt_buf *out, vt_err *err)
{
    (void)form;
    return story_html(f, out, err);
}

static const story_form forms[] = {
    {"json", "application/json", NULL},
    {"text", "text/plain; charset=utf-8", write_text},
    {"html", "text/html; charset=utf-8", write_page},
    {"chrome", "application/json", story_export},
    {"speedscope", "application/json", story_export},
    {"folded", "text/plain; charset=utf-8", story_export},
    {"pftrace", "application/octet-stream", story_export},
};

/* The form that the query asks for, or without one: a page for browsers, which accept HTML. NULL:
 * there is no such form. */
static const story_form *form_of(const vt_http_request *r)
{
    static const char key[] = "format=";
    const char *accept = vt_http_find(r, "accept"), *want = "json";
    if (r->query && strncmp(r->query, key, sizeof key - 1) != 0)
        return NULL;
    if (r->query)
        want = r->query + sizeof key - 1;
    else if (accept && strstr(accept, "text/html"))
        want = "html";
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (strcmp(forms[i].name, want) == 0)
            return &forms[i];
    return NULL;
}

typedef struct telling {
    vt_server *server;
    vt_exchange *x; /* NULL: the client has gone */
    vt_request_id id;
    const story_form *form;
    vt_status status;
    vt_err err;
    char *json;
    size_t len;
    vt_buf text;
} telling;

static void tell(void *arg)
{
    telling *t = arg;
    t->status = story_of_engine(t->server->engine, t->id, STORY_MEASURES_NOTHING, &t->json, &t->len,
                                &t->err);
    if (t->status != VT_OK || !t->form->write)
        return;
    const story_file file = {.name = "the story", .json = t->json, .len = t->len};
    t->status = t->form->write(&file, t->form->name, &t->text, &t->err);
}

static void told(void *arg)
{
    telling *t = arg;
    t->server->stories->building = false;
    server_dumps_story_ended(t->server->dumps);
    if (t->x && t->status != VT_OK)
        server_refuse(t->x,
                      t->status == VT_ERR_USAGE       ? 404
                      : t->status == VT_ERR_CANCELLED ? 503
                                                      : 500,
                      NULL, "%s", t->err.message);
    else if (t->x && t->form->write)
        vt_web_reply(t->x, 200, t->form->type, t->text.data, t->text.len);
    else if (t->x)
        vt_web_reply(t->x, 200, t->form->type, t->json, t->len);
    vt_free(t->json);
    vt_buf_release(&t->text);
    free(t);
}

static void reader_gone(void *user, vt_exchange *x)
{
    (void)x;
    ((telling *)user)->x = NULL;
}

/* The engine's number of a request, from that number in decimal digits, from the request's id, or
 * from its answer's id. False: there is none. */
static bool find_story(const vt_server *s, const char *name, vt_request_id *out)
{
    const server_stories *t = s->stories;
    size_t digits = strspn(name, "0123456789");
    if (digits > 0 && digits <= 19 && name[digits] == '\0') {
        *out = strtoull(name, NULL, 10);
        return true;
    }
    for (const generation *g = s->first; g; g = g->next)
        if (g->n_submitted > 0 && generation_is_named(g, name)) {
            *out = g->part[0].id;
            return true;
        }
    for (uint64_t i = 0; i < t->n && i < SERVER_STORIES; i++) {
        const server_told *at = &t->told[(t->n - 1 - i) % SERVER_STORIES];
        if (at->story && (strcmp(at->id, name) == 0 || server_answer_is_named(at->answer, name))) {
            *out = at->story;
            return true;
        }
    }
    return false;
}

void server_story(vt_server *s, vt_exchange *x)
{
    static const char prefix[] = "/story/";
    const vt_http_request *r = vt_web_request(x);
    const story_form *form = form_of(r);
    vt_request_id id;
    if (!form) {
        server_refuse(x, 400, "format",
                      "format: expected format=json, text, html, chrome, speedscope, folded or "
                      "pftrace");
        return;
    }
    if (!find_story(s, r->path + sizeof prefix - 1, &id)) {
        server_refuse(x, 404, NULL, "no story has that id: /story lists those that are kept");
        return;
    }
    telling *t = s->stories->building ? NULL : vt_calloc(1, sizeof *t);
    if (t) {
        *t = (telling){.server = s, .x = x, .id = id, .form = form};
        t->status = vt_fail(&t->err, VT_ERR_CANCELLED, "the server is stopping");
        if (server_work_add(s->work, &(server_long_job){0}, tell, told, t)) {
            s->stories->building = true;
            vt_web_set_user(x, t);
            vt_web_on_gone(x, reader_gone);
            return;
        }
        free(t);
    }
    server_refuse(x, 503, NULL, "another story is being told: try again");
}
