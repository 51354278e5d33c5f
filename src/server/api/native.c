/* /generate, in SGLang's form: one object, or a list of them where there are several answers. A
 * stream tells an answer's whole text so far in every piece, as SGLang does. So a piece may be left
 * out where the client reads slowly: the next one says the same and more. */
#include "base/clock.h"
#include "server/api/generation.h"

enum {
    MAX_WAITING = 64 << 10
}; /* bytes that wait for the client; with more, pieces are left out */

/* Closes a choice that is open in its meta_info. */
static void close_choice(const generation *g, int32_t i, vt_json *w)
{
    if (g->reply.choice[i].finish != VT_FINISH_NONE) {
        vt_json_fixed(w, "e2e_latency", (double)(vt_now_ns() - g->at.began) * 1e-9, 6);
        if (g->reply.n_open == 0)
            generation_write_timings(g, w, "timings");
    }
    vt_json_close(w);
    vt_json_close(w);
}

static void write_choice(const generation *g, int32_t i, vt_json *w)
{
    vt_generate_choice_open(&g->reply, &g->request, i, g->id, w);
    close_choice(g, i, w);
}

static void on_told(generation *g, int32_t prompt, const vt_event *e)
{
    vt_json w;
    if (!g->request.stream || vt_openai_is_score(e))
        return;
    if (e->finish == VT_FINISH_NONE && vt_web_unsent(g->x) > MAX_WAITING)
        return;
    vt_json_line(&w);
    write_choice(g, prompt * g->reply.n_each + e->sample, &w);
    generation_send(g, &w);
}

static void end_stream(generation *g)
{
    if (g->error.http)
        generation_send_error(g);
    generation_send_done(g);
}

static void on_end(generation *g)
{
    vt_json w;
    bool list = g->request.list || g->reply.n > 1;
    if (g->request.stream) {
        end_stream(g);
        return;
    }
    vt_json_line(&w);
    if (list)
        vt_json_open(&w, NULL, '[');
    for (int32_t i = 0; i < g->reply.n; i++)
        write_choice(g, i, &w);
    if (list)
        vt_json_close(&w);
    generation_headers(g, true);
    server_reply_json(g->x, 200, &w);
}

static const generation_form generate = {.name = "generate",
                                         .api = VT_OPENAI_GENERATE,
                                         .read = generation_read,
                                         .told = on_told,
                                         .end = on_end};

void server_generate(vt_server *s, vt_exchange *x) { generation_start(s, x, &generate); }
