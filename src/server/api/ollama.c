/* /api/chat, /api/generate, /api/embed, /api/version, /api/tags, /api/show and /api/ps, in Ollama's
 * form. A stream is a line of JSON for each piece. The one model that is served is told under its
 * name. */
#include "openai/ollama.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/random.h"
#include "model/model.h"
#include "server/api/generation.h"
#include "text/template/template.h"

/* The version of Ollama's interface that is served; its clients ask for a least one. */
static const char interface_version[] = "0.18.0";

static void write_time(vt_json *w, const char *key, int64_t seconds)
{
    char text[40];
    time_t at = (time_t)seconds;
    struct tm tm;
    gmtime_r(&at, &tm);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &tm);
    vt_json_string(w, key, text);
}

/* ---- answers ---- */

static bool is_chat(const generation *g) { return g->form->translate == vt_ollama_chat; }

static void begin_line(const generation *g, vt_json *w)
{
    vt_json_object(w);
    vt_json_string(w, "model", g->reply.model);
    write_time(w, "created_at", g->reply.created);
}

static void write_calls(const vt_openai_choice *c, int32_t from, int32_t to, vt_json *w)
{
    if (from == to)
        return;
    vt_json_open(w, "tool_calls", '[');
    for (int32_t i = from; i < to; i++) {
        vt_json_open(w, NULL, '{');
        vt_json_string(w, "id", c->call[i].id);
        vt_json_open(w, "function", '{');
        vt_json_int(w, "index", i);
        vt_json_string(w, "name", c->call[i].name);
        vt_openai_write_arguments(&c->call[i], w, "arguments");
        vt_json_close(w);
        vt_json_close(w);
    }
    vt_json_close(w);
}

/* The members with the text, the thought, and calls from .. to. */
static void write_said(const generation *g, const char *text, size_t n_text, const char *thought,
                       size_t n_thought, int32_t from, int32_t to, vt_json *w)
{
    if (is_chat(g)) {
        vt_json_open(w, "message", '{');
        vt_json_string(w, "role", "assistant");
    }
    vt_json_string_n(w, is_chat(g) ? "content" : "response", text, n_text);
    if (n_thought > 0)
        vt_json_string_n(w, "thinking", thought, n_thought);
    if (is_chat(g)) {
        write_calls(&g->reply.choice[0], from, to, w);
        vt_json_close(w);
    }
}

/* Writes what the last line tells of the whole answer; times are in nanoseconds. */
static void write_end(const generation *g, vt_json *w)
{
    const generation_times *t = &g->at;
    int64_t first = t->first_token ? t->first_token : t->end;
    int64_t admitted = t->admitted ? t->admitted : first;
    bool cut = g->reply.choice[0].finish == VT_FINISH_LENGTH;
    vt_json_bool(w, "done", true);
    vt_json_string(w, "done_reason", cut ? "length" : "stop");
    vt_json_int(w, "total_duration", t->end - t->began);
    vt_json_int(w, "load_duration", 0);
    vt_json_int(w, "prompt_eval_count", g->reply.prompt_tokens);
    vt_json_int(w, "prompt_eval_duration", first - admitted);
    vt_json_int(w, "eval_count", g->reply.completion_tokens);
    vt_json_int(w, "eval_duration", t->last_token > first ? t->last_token - first : 0);
}

static void send_piece(generation *g, vt_openai_delta p)
{
    vt_json w;
    const vt_openai_choice *c = &g->reply.choice[0];
    const char *bytes = c->fresh.data ? c->fresh.data + p.at : "";
    bool call = p.kind == VT_PIECE_CALL_END || p.kind == VT_PIECE_CALL_BROKEN;
    if (p.kind == VT_PIECE_CALL || p.kind == VT_PIECE_ARGUMENTS || (call && !is_chat(g)))
        return; /* a call is told when it has ended */
    begin_line(g, &w);
    write_said(g, bytes, p.kind == VT_PIECE_TEXT ? p.n : 0, bytes,
               p.kind == VT_PIECE_REASONING ? p.n : 0, call ? p.call : 0, call ? p.call + 1 : 0,
               &w);
    vt_json_bool(&w, "done", false);
    generation_send_line(g, &w);
}

static void on_told(generation *g, int32_t prompt, const vt_event *e)
{
    const vt_openai_choice *c = &g->reply.choice[0];
    (void)prompt;
    if (!g->request.stream || vt_openai_is_score(e))
        return;
    for (int32_t i = 0; g->x && i < vt_openai_n_pieces(c); i++)
        send_piece(g, vt_openai_piece_at(c, i));
}

static void on_end(generation *g)
{
    vt_json w;
    const vt_openai_choice *c = g->reply.choice;
    if (g->error.http) {
        vt_json_object(&w);
        vt_json_string(&w, "error", g->error.message);
    } else {
        begin_line(g, &w);
        if (g->request.stream)
            write_said(g, "", 0, "", 0, 0, 0, &w);
        else
            write_said(g, c->content.data ? c->content.data : "", c->content.len, c->reasoning.data,
                       c->reasoning.len, 0, c->n_calls, &w);
        write_end(g, &w);
    }
    if (g->request.stream) {
        generation_send_line(g, &w);
        if (g->x)
            vt_web_end(g->x);
        return;
    }
    generation_headers(g, true);
    server_reply_json(g->x, 200, &w);
}

static const generation_form chat = {.name = "ollama_chat",
                                     .api = VT_OPENAI_CHAT,
                                     .read = generation_read,
                                     .told = on_told,
                                     .end = on_end,
                                     .translate = vt_ollama_chat,
                                     .own_names = vt_ollama_own_names};
static const generation_form generate = {.name = "ollama_generate",
                                         .api = VT_OPENAI_CHAT,
                                         .read = generation_read,
                                         .told = on_told,
                                         .end = on_end,
                                         .translate = vt_ollama_generate,
                                         .own_names = vt_ollama_own_names};

/* Returns true if a request's model, perhaps with the tag "latest", is the one that is served. */
static bool is_served(const vt_server *s, const json_t *model, vt_openai_error *e)
{
    char name[256];
    const char *given = json_string_value(model);
    size_t n = json_string_length(model);
    if (!given) {
        vt_openai_refuse(e, 400, "model", "model: missing");
        return false;
    }
    n -= n > 7 && strcmp(given + n - 7, ":latest") == 0 ? 7 : 0;
    snprintf(name, sizeof name, "%.*s", (int)(n < sizeof name ? n : sizeof name), given);
    bool served = *name && n < sizeof name && vt_openai_is_model(s->model, &s->defaults, name);
    if (!served)
        vt_openai_refuse(e, 404, "model", "model '%.80s' not found", given);
    return served;
}

/* Answers a body without prompt and messages, which asks for the model to be loaded: it is. */
static bool answer_load(vt_server *s, vt_exchange *x)
{
    enum { MOST = 4096 }; /* a longer body has a prompt */
    const vt_http_request *r = vt_web_request(x);
    vt_openai_error e = {0};
    json_t *body = NULL;
    vt_json w;
    bool loads = r->body_len <= MOST &&
                 vt_openai_json_load(r->body, r->body_len, &body, &e) == VT_OK &&
                 vt_ollama_only_loads(body);
    if (loads && !is_served(s, json_object_get(body, "model"), &e))
        server_reply_error(x, &e);
    json_decref(body);
    if (!loads || e.http)
        return loads;
    vt_json_object(&w);
    vt_json_string(&w, "model", s->model_name);
    write_time(&w, "created_at", (int64_t)time(NULL));
    vt_json_bool(&w, "done", true);
    vt_json_string(&w, "done_reason", "load");
    server_reply_json(x, 200, &w);
    return true;
}

void server_ollama_chat(vt_server *s, vt_exchange *x)
{
    if (!answer_load(s, x))
        generation_start(s, x, &chat);
}

void server_ollama_generate(vt_server *s, vt_exchange *x)
{
    if (!answer_load(s, x))
        generation_start(s, x, &generate);
}

/* ---- vectors ---- */

static void end_embed(generation *g)
{
    vt_json w;
    vt_json_object(&w);
    vt_json_string(&w, "model", g->reply.model);
    vt_json_open(&w, "embeddings", '[');
    for (int32_t i = 0; i < g->reply.n; i++)
        vt_openai_vector_write(&g->reply.choice[i].vector, &w, NULL);
    vt_json_close(&w);
    vt_json_int(&w, "total_duration", g->at.end - g->at.began);
    vt_json_int(&w, "load_duration", 0);
    vt_json_int(&w, "prompt_eval_count", g->reply.prompt_tokens);
    generation_headers(g, true);
    server_reply_json(g->x, 200, &w);
}

static const generation_form embed = {.name = "ollama_embed",
                                      .api = VT_OPENAI_EMBEDDINGS,
                                      .read = generation_read,
                                      .end = end_embed,
                                      .translate = vt_ollama_embed,
                                      .own_names = vt_ollama_own_names};

void server_ollama_embed(vt_server *s, vt_exchange *x) { generation_start(s, x, &embed); }

/* ---- the model ---- */

static void write_details(const vt_model *m, vt_json *w)
{
    size_t n = m->path ? strlen(m->path) : 0;
    bool gguf = n > 5 && strcmp(m->path + n - 5, ".gguf") == 0;
    vt_json_open(w, "details", '{');
    vt_json_string(w, "parent_model", "");
    vt_json_string(w, "format", gguf ? "gguf" : "safetensors");
    vt_json_string(w, "family", m->arch.family);
    vt_json_open(w, "families", '[');
    vt_json_string(w, NULL, m->arch.family);
    vt_json_close(w);
    vt_json_printf(w, "parameter_size", m->n_params >= 1000000000 ? "%.1fB" : "%.1fM",
                   (double)m->n_params / (m->n_params >= 1000000000 ? 1e9 : 1e6));
    vt_json_string(w, "quantization_level", m->quant);
    vt_json_close(w);
}

/* A stand-in for the digest of the model's files: 64 digits that depend on its name and sizes. */
static void write_digest(const vt_server *s, vt_json *w)
{
    const vt_model *m = s->model;
    uint64_t h = vt_fnv1a(VT_FNV_OFFSET, s->model_name, strlen(s->model_name)) ^
                 vt_mix64((uint64_t)m->weight_bytes) ^ vt_mix64((uint64_t)m->n_params + 1);
    char text[65];
    for (int i = 0; i < 4; i++)
        snprintf(text + 16 * i, sizeof text - 16 * (size_t)i, "%016llx",
                 (unsigned long long)(h = vt_mix64(h + (uint64_t)i)));
    vt_json_string(w, "digest", text);
}

/* {"models": [...]} with the served model. */
static void reply_models(const vt_server *s, vt_exchange *x, bool running)
{
    vt_json w;
    vt_json_object(&w);
    vt_json_open(&w, "models", '[');
    vt_json_open(&w, NULL, '{');
    vt_json_string(&w, "name", s->model_name);
    vt_json_string(&w, "model", s->model_name);
    vt_json_int(&w, "size", s->model->weight_bytes);
    write_digest(s, &w);
    write_details(s->model, &w);
    if (running) {
        vt_json_string(&w, "expires_at", "9999-12-31T23:59:59Z"); /* it stays */
        vt_json_int(&w, "context_length", vt_engine_max_context(s->engine));
    } else {
        write_time(&w, "modified_at", s->started_s);
    }
    vt_json_close(&w);
    vt_json_close(&w);
    server_reply_json(x, 200, &w);
}

void server_ollama_tags(vt_server *s, vt_exchange *x) { reply_models(s, x, false); }

void server_ollama_ps(vt_server *s, vt_exchange *x) { reply_models(s, x, true); }

void server_ollama_version(vt_server *s, vt_exchange *x)
{
    vt_json w;
    (void)s;
    vt_json_object(&w);
    vt_json_string(&w, "version", interface_version);
    server_reply_json(x, 200, &w);
}

static void write_info(const vt_server *s, vt_json *w)
{
    const vt_model *m = s->model;
    const char *family = m->arch.family;
    char key[80];
    vt_json_open(w, "model_info", '{');
    vt_json_string(w, "general.architecture", family);
    vt_json_int(w, "general.parameter_count", m->n_params);
    snprintf(key, sizeof key, "%.40s.context_length", family);
    vt_json_int(w, key, vt_engine_max_context(s->engine));
    snprintf(key, sizeof key, "%.40s.embedding_length", family);
    vt_json_int(w, key, m->arch.hidden);
    snprintf(key, sizeof key, "%.40s.block_count", family);
    vt_json_int(w, key, m->arch.n_layers);
    vt_json_close(w);
}

static void reply_show(const vt_server *s, vt_exchange *x)
{
    const vt_model *m = s->model;
    const char *template = m->chat_template ? vt_template_source(m->chat_template) : "";
    vt_json w;
    vt_json_object(&w);
    vt_json_string(&w, "modelfile", "");
    vt_json_string(&w, "parameters", "");
    vt_json_string(&w, "template", template);
    write_details(m, &w);
    write_info(s, &w);
    vt_json_open(&w, "capabilities", '[');
    vt_json_string(&w, NULL, "completion");
    if (s->defaults.call_form || vt_call_form_of(template))
        vt_json_string(&w, NULL, "tools");
    if (vt_thought_form_of(template))
        vt_json_string(&w, NULL, "thinking");
    vt_json_close(&w);
    write_time(&w, "modified_at", s->started_s);
    server_reply_json(x, 200, &w);
}

void server_ollama_show(vt_server *s, vt_exchange *x)
{
    vt_openai_error e = {0};
    json_t *body;
    if (!server_read_object(x, &body))
        return;
    const json_t *name = json_object_get(body, "model");
    if (is_served(s, name ? name : json_object_get(body, "name"), &e))
        reply_show(s, x);
    else
        server_reply_error(x, &e);
    json_decref(body);
}
