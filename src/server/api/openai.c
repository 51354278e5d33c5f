/* /v1/chat/completions, /v1/completions, /v1/embeddings, /v1/models. */
#include <stdlib.h>
#include <string.h>

#include "model/lora/lora.h"
#include "model/model.h"
#include "server/api/generation.h"

/* ---- answering ---- */

/* A piece of a stream. The piece that brings the last end has the timings too, for which the reply
 * must have taken the event: it is kept in g->own, and they are written in `end`. */
static void stream_event(generation *g, int32_t prompt, const vt_event *e)
{
    vt_json w;
    bool last = e->finish != VT_FINISH_NONE && g->reply.n_open == 1;
    if (e->finish == VT_FINISH_ERROR || vt_openai_is_score(e))
        return; /* `end` tells the error */
    if (e->text_len == 0 && e->finish == VT_FINISH_NONE && g->reply.n_top < 0 &&
        g->reply.choice[prompt * g->reply.n_each + e->sample].n_tokens > 0)
        return; /* a token that has no text yet */
    vt_json *kept = last ? vt_calloc(1, sizeof *kept) : NULL;
    if (kept) {
        vt_json_line(kept);
        vt_openai_chunk_open(&g->reply, prompt, e, kept);
        g->own = kept;
        return;
    }
    vt_json_line(&w);
    vt_openai_chunk_write(&g->reply, prompt, e, &w);
    generation_send(g, &w);
}

static void on_event(generation *g, int32_t prompt, const vt_event *e)
{
    if (g->request.stream && !g->reply.splits)
        stream_event(g, prompt, e);
}

static bool ends_call(vt_openai_delta p)
{
    return p.kind == VT_PIECE_CALL_END || p.kind == VT_PIECE_CALL_BROKEN;
}

/* The pieces that an event brought to a reply that splits; a choice's end is a chunk of its own. */
static void on_told(generation *g, int32_t prompt, const vt_event *e)
{
    vt_json w;
    const vt_openai_choice *c = &g->reply.choice[prompt * g->reply.n_each + e->sample];
    if (!g->request.stream || !g->reply.splits || vt_openai_is_score(e))
        return;
    int32_t n = vt_openai_n_pieces(c);
    while (n > 0 && ends_call(vt_openai_piece_at(c, n - 1)))
        n--;
    n = n == 0 && g->reply.n_top >= 0 && e->n_tokens > 0 ? 1 : n; /* log-probabilities alone */
    for (int32_t i = 0; i < n; i++) {
        if (i < vt_openai_n_pieces(c) && ends_call(vt_openai_piece_at(c, i)))
            continue;
        vt_json_line(&w);
        vt_openai_piece_chunk_write(&g->reply, prompt, e, i, &w);
        generation_send(g, &w);
    }
    if (e->finish == VT_FINISH_NONE)
        return;
    vt_json_line(&w);
    vt_openai_end_chunk_open(&g->reply, prompt, e, &w);
    if (g->reply.n_open == 0)
        generation_write_timings(g, &w, "timings");
    vt_json_close(&w);
    generation_send(g, &w);
}

static void end_stream(generation *g)
{
    vt_json w;
    vt_json *kept = g->own;
    if (kept && !g->error.http) {
        generation_write_timings(g, kept, "timings");
        vt_json_close(kept);
        generation_send(g, kept);
    }
    if (g->error.http)
        generation_send_error(g);
    else if (g->request.include_usage) {
        vt_json_line(&w);
        vt_openai_usage_chunk_write(&g->reply, &w);
        generation_send(g, &w);
    }
    generation_send_done(g);
}

static void on_end(generation *g)
{
    vt_json w;
    if (g->request.stream) {
        end_stream(g);
        return;
    }
    vt_json_line(&w);
    vt_openai_reply_open(&g->reply, &w, NULL);
    generation_write_timings(g, &w, "timings");
    vt_json_close(&w);
    generation_headers(g, true);
    server_reply_json(g->x, 200, &w);
}

static void forget(generation *g)
{
    if (g->own)
        vt_json_release(g->own);
    free(g->own);
}

static const generation_form chat = {.name = "chat",
                                     .api = VT_OPENAI_CHAT,
                                     .read = generation_read,
                                     .event = on_event,
                                     .told = on_told,
                                     .end = on_end,
                                     .forget = forget};
static const generation_form completions = {.name = "completions",
                                            .api = VT_OPENAI_COMPLETIONS,
                                            .read = generation_read,
                                            .event = on_event,
                                            .end = on_end,
                                            .forget = forget};

static void end_embeddings(generation *g)
{
    vt_json w;
    vt_json_line(&w);
    vt_openai_embeddings_write(&g->reply, &g->request, &w, NULL);
    generation_headers(g, true);
    server_reply_json(g->x, 200, &w);
}

static const generation_form embeddings = {.name = "embeddings",
                                           .api = VT_OPENAI_EMBEDDINGS,
                                           .read = generation_read,
                                           .end = end_embeddings};

void server_chat(vt_server *s, vt_exchange *x) { generation_start(s, x, &chat); }

void server_completions(vt_server *s, vt_exchange *x) { generation_start(s, x, &completions); }

void server_embeddings(vt_server *s, vt_exchange *x) { generation_start(s, x, &embeddings); }

/* ---- models ---- */

/* The served model under one of its names, or an adapter of it, whose parent it is. */
static void write_model(const vt_server *s, const char *name, vt_json *w)
{
    vt_json_open(w, NULL, '{');
    vt_json_string(w, "id", name);
    vt_json_string(w, "object", "model");
    vt_json_int(w, "created", s->started_s);
    vt_json_string(w, "owned_by", s->owned_by);
    vt_json_string(w, "root", vt_model_name(s->model));
    if (vt_lora_find(s->model, name) > 0)
        vt_json_string(w, "parent", s->model_name);
    else
        vt_json_null(w, "parent");
    vt_json_int(w, "max_model_len", vt_engine_max_context(s->engine));
    vt_json_close(w);
}

void server_models(vt_server *s, vt_exchange *x)
{
    vt_json w;
    vt_json_object(&w);
    vt_json_string(&w, "object", "list");
    vt_json_open(&w, "data", '[');
    write_model(s, s->model_name, &w);
    if (s->list_name && strcmp(s->list_name, s->model_name) != 0)
        write_model(s, s->list_name, &w);
    for (int32_t k = 0; s->model->lora && k < s->model->lora->n; k++)
        write_model(s, s->model->lora->name[k], &w);
    vt_json_close(&w);
    server_reply_json(x, 200, &w);
}

void server_model(vt_server *s, vt_exchange *x)
{
    static const char prefix[] = "/v1/models/";
    const char *name = vt_web_request(x)->path + sizeof prefix - 1;
    vt_json w;
    if (strcmp(name, s->model_name) != 0 && !(s->list_name && strcmp(name, s->list_name) == 0) &&
        vt_lora_find(s->model, name) == 0) {
        vt_openai_error e = {0};
        vt_openai_refuse(&e, 404, "model", "model: '%.80s' is not here, expected '%.200s'", name,
                         s->model_name);
        e.code = "model_not_found";
        server_reply_error(x, &e);
        return;
    }
    vt_json_line(&w);
    write_model(s, name, &w);
    server_reply_json(x, 200, &w);
}
