/* /v1/responses, in OpenAI's form. The body is read as a chat (openai/responses.h); the parts of
 * the reply are the items of its output.
 *
 *   response.created  response.in_progress
 *   output_item.added  content_part.added  *.delta ...  *.done  content_part.done  output_item.done
 *   response.completed, or response.incomplete where max_output_tokens ended it */
#include "openai/responses.h"

#include <stdlib.h>
#include <string.h>

#include "server/api/generation.h"

/* A stream's state. Item i of the output is part i of the reply. */
typedef struct items {
    int32_t n; /* begun so far */
    bool open;
    vt_piece_kind kind; /* of the open one */
    int64_t sequence;   /* number of the next event */
} items;

/* ---- items ---- */

static void write_item_id(const generation *g, int32_t i, vt_piece_kind kind, vt_json *w,
                          const char *key)
{
    vt_json_printf(w, key, "%s_%s_%d",
                   kind == VT_PIECE_TEXT   ? "msg"
                   : kind == VT_PIECE_CALL ? "fc"
                                           : "rs",
                   g->id, i);
}

static void write_content(vt_piece_kind kind, const char *text, size_t n, vt_json *w,
                          const char *key)
{
    vt_json_open(w, key, '{');
    vt_json_string(w, "type", kind == VT_PIECE_TEXT ? "output_text" : "reasoning_text");
    vt_json_string_n(w, "text", text, n);
    if (kind == VT_PIECE_TEXT) {
        vt_json_open(w, "annotations", '[');
        vt_json_close(w);
        vt_json_open(w, "logprobs", '[');
        vt_json_close(w);
    }
    vt_json_close(w);
}

static const char *arguments_of(const vt_openai_choice *c, int32_t call)
{
    return c->call[call].arguments.data ? c->call[call].arguments.data : "";
}

static bool was_cut(const generation *g) { return g->reply.choice[0].finish == VT_FINISH_LENGTH; }

/* Returns true if max_output_tokens ended the answer inside of item i. */
static bool is_cut_item(const generation *g, int32_t i, vt_openai_delta p)
{
    const vt_openai_choice *c = &g->reply.choice[0];
    bool last = i == vt_openai_n_parts(c) - 1;
    return was_cut(g) && last && !(p.kind == VT_PIECE_CALL && c->call[p.call].whole);
}

/* Item i of the output; `whole` is false where it has just begun. */
static void write_item(const generation *g, int32_t i, vt_openai_delta p, bool whole, vt_json *w,
                       const char *key)
{
    const vt_openai_choice *c = &g->reply.choice[0];
    const char *text = p.kind == VT_PIECE_CALL ? "" : vt_openai_part_text(c, &p);
    vt_json_open(w, key, '{');
    write_item_id(g, i, p.kind, w, "id");
    vt_json_string(w, "status",
                   !whole                 ? "in_progress"
                   : is_cut_item(g, i, p) ? "incomplete"
                                          : "completed");
    if (p.kind == VT_PIECE_CALL) {
        vt_json_string(w, "type", "function_call");
        vt_json_string(w, "call_id", c->call[p.call].id);
        vt_json_string(w, "name", c->call[p.call].name);
        vt_json_string_n(w, "arguments", whole ? arguments_of(c, p.call) : "",
                         whole ? c->call[p.call].arguments.len : 0);
        vt_json_close(w);
        return;
    }
    vt_json_string(w, "type", p.kind == VT_PIECE_TEXT ? "message" : "reasoning");
    if (p.kind == VT_PIECE_TEXT) {
        vt_json_string(w, "role", "assistant");
    } else {
        vt_json_open(w, "summary", '[');
        vt_json_close(w);
    }
    vt_json_open(w, "content", '[');
    if (whole)
        write_content(p.kind, text, p.n, w, NULL);
    vt_json_close(w);
    if (p.kind == VT_PIECE_REASONING && whole &&
        json_array_size(json_object_get(g->given, "include")) > 0)
        vt_json_printf(w, "encrypted_content", "%s%.*s", VT_RESPONSES_THOUGHT, (int)p.n, text);
    vt_json_close(w);
}

/* ---- the response ---- */

/* A member of the request, which the response repeats; `none`: JSON where it was not given. */
static void repeat(const generation *g, const char *name, const char *none, vt_json *w)
{
    const json_t *v = json_object_get(g->given, name);
    char *text = v && !json_is_null(v) ? json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    vt_json_raw(w, name, text ? text : none, strlen(text ? text : none));
    free(text);
}

static void write_usage(const vt_openai_reply *r, vt_json *w)
{
    vt_json_open(w, "usage", '{');
    vt_json_int(w, "input_tokens", r->prompt_tokens);
    vt_json_open(w, "input_tokens_details", '{');
    vt_json_int(w, "cached_tokens", r->cached_tokens);
    vt_json_int(w, "cache_write_tokens", 0);
    vt_json_close(w);
    vt_json_int(w, "output_tokens", r->completion_tokens);
    vt_json_open(w, "output_tokens_details", '{');
    vt_json_int(w, "reasoning_tokens", r->reasoning_tokens);
    vt_json_close(w);
    vt_json_int(w, "total_tokens", (int64_t)r->prompt_tokens + r->completion_tokens);
    vt_json_close(w);
}

static void write_response(const generation *g, bool ended, vt_json *w, const char *key)
{
    static const struct {
        const char *name, *none;
    } repeated[] = {{"instructions", "null"},
                    {"max_output_tokens", "null"},
                    {"metadata", "{}"},
                    {"parallel_tool_calls", "true"},
                    {"reasoning", "{\"effort\":null,\"summary\":null}"},
                    {"temperature", "null"},
                    {"text", "{\"format\":{\"type\":\"text\"}}"},
                    {"tool_choice", "\"auto\""},
                    {"tools", "[]"},
                    {"top_p", "null"},
                    {"user", "null"}};
    const vt_openai_reply *r = &g->reply;
    vt_json_open(w, key, '{');
    vt_json_printf(w, "id", "resp_%s", g->id);
    vt_json_string(w, "object", "response");
    vt_json_int(w, "created_at", r->created);
    vt_json_string(w, "status", !ended ? "in_progress" : was_cut(g) ? "incomplete" : "completed");
    vt_json_null(w, "error");
    if (ended && was_cut(g)) {
        vt_json_open(w, "incomplete_details", '{');
        vt_json_string(w, "reason", "max_output_tokens");
        vt_json_close(w);
    } else {
        vt_json_null(w, "incomplete_details");
    }
    vt_json_string(w, "model", r->model);
    vt_json_open(w, "output", '[');
    for (int32_t i = 0; ended && i < vt_openai_n_parts(&r->choice[0]); i++)
        write_item(g, i, vt_openai_part_at(&r->choice[0], i), true, w, NULL);
    vt_json_close(w);
    vt_json_null(w, "previous_response_id");
    vt_json_bool(w, "store", false);
    vt_json_bool(w, "background", false);
    vt_json_string(w, "truncation", "disabled");
    for (size_t i = 0; i < sizeof repeated / sizeof *repeated; i++)
        repeat(g, repeated[i].name, repeated[i].none, w);
    if (ended)
        write_usage(r, w);
    else
        vt_json_null(w, "usage");
    vt_json_close(w);
}

/* ---- a stream ---- */

static void begin(items *s, vt_json *w, const char *name)
{
    vt_json_object(w);
    vt_json_string(w, "type", name);
    vt_json_int(w, "sequence_number", s->sequence++);
}

static void send_response(generation *g, items *s, const char *name, bool ended)
{
    vt_json w;
    begin(s, &w, name);
    write_response(g, ended, &w, "response");
    generation_send_event(g, name, &w);
}

/* An event of the item that was begun last, with its place. */
static void begin_part(const generation *g, items *s, vt_json *w, const char *name)
{
    begin(s, w, name);
    write_item_id(g, s->n - 1, s->kind, w, "item_id");
    vt_json_int(w, "output_index", s->n - 1);
    if (s->kind != VT_PIECE_CALL)
        vt_json_int(w, "content_index", 0);
}

static void send_item(generation *g, items *s, const char *name, vt_openai_delta p, bool whole)
{
    vt_json w;
    begin(s, &w, name);
    vt_json_int(&w, "output_index", s->n - 1);
    write_item(g, s->n - 1, p, whole, &w, "item");
    generation_send_event(g, name, &w);
}

static void send_content(generation *g, items *s, const char *name, const char *bytes, size_t n)
{
    vt_json w;
    begin_part(g, s, &w, name);
    write_content(s->kind, bytes, n, &w, "part");
    generation_send_event(g, name, &w);
}

/* A delta or the whole of what it adds up to. */
static void send_text(generation *g, items *s, const char *name, const char *key, const char *bytes,
                      size_t n)
{
    vt_json w;
    begin_part(g, s, &w, name);
    vt_json_string_n(&w, key, bytes, n);
    if (s->kind == VT_PIECE_TEXT) {
        vt_json_open(&w, "logprobs", '[');
        vt_json_close(&w);
    }
    generation_send_event(g, name, &w);
}

static void close_item(generation *g, items *s)
{
    const vt_openai_choice *c = &g->reply.choice[0];
    if (!s->open)
        return;
    vt_openai_delta p = vt_openai_part_at(c, s->n - 1);
    if (s->kind == VT_PIECE_CALL) {
        send_text(g, s, "response.function_call_arguments.done", "arguments",
                  arguments_of(c, p.call), c->call[p.call].arguments.len);
    } else {
        const char *bytes = vt_openai_part_text(c, &p);
        bool said = s->kind == VT_PIECE_TEXT;
        send_text(g, s, said ? "response.output_text.done" : "response.reasoning_text.done", "text",
                  bytes, p.n);
        send_content(g, s, "response.content_part.done", bytes, p.n);
    }
    send_item(g, s, "response.output_item.done", p, true);
    s->open = false;
}

static void open_item(generation *g, items *s, vt_openai_delta p)
{
    close_item(g, s);
    s->open = true;
    s->kind = p.kind;
    s->n++;
    send_item(g, s, "response.output_item.added", p, false);
    if (p.kind != VT_PIECE_CALL)
        send_content(g, s, "response.content_part.added", "", 0);
}

static void send_piece(generation *g, items *s, vt_openai_delta p)
{
    static const char *const names[] = {
        [VT_PIECE_TEXT] = "response.output_text.delta",
        [VT_PIECE_REASONING] = "response.reasoning_text.delta",
        [VT_PIECE_ARGUMENTS] = "response.function_call_arguments.delta",
    };
    bool ends = p.kind == VT_PIECE_CALL_END || p.kind == VT_PIECE_CALL_BROKEN;
    if (ends)
        close_item(g, s);
    else if (p.kind == VT_PIECE_CALL ||
             (p.kind != VT_PIECE_ARGUMENTS && (!s->open || s->kind != p.kind)))
        open_item(g, s, p);
    if (!ends && p.kind != VT_PIECE_CALL)
        send_text(g, s, names[p.kind], "delta", g->reply.choice[0].fresh.data + p.at, p.n);
}

/* An event may bring several parts; the earlier of them are whole when the next one begins. */
static void on_told(generation *g, int32_t prompt, const vt_event *e)
{
    const vt_openai_choice *c = &g->reply.choice[0];
    (void)prompt;
    if (!g->request.stream || vt_openai_is_score(e))
        return;
    if (!g->own) {
        g->own = vt_calloc(1, sizeof(items));
        if (!g->own) {
            vt_openai_refuse(&g->error, 500, NULL, "out of memory for the answer");
            return;
        }
        send_response(g, g->own, "response.created", false);
        send_response(g, g->own, "response.in_progress", false);
    }
    for (int32_t i = 0; g->x && i < vt_openai_n_pieces(c); i++)
        send_piece(g, g->own, vt_openai_piece_at(c, i));
    if (e->finish == VT_FINISH_NONE || !g->x)
        return;
    close_item(g, g->own);
    send_response(g, g->own, was_cut(g) ? "response.incomplete" : "response.completed", true);
}

/* ---- the end ---- */

static void end_stream(generation *g)
{
    items none = {0}, *s = g->own ? g->own : &none;
    vt_json w;
    if (g->error.http) {
        begin(s, &w, "error");
        vt_json_string(&w, "code", g->error.code ? g->error.code : "server_error");
        vt_json_string(&w, "message", g->error.message);
        vt_json_string(&w, "param", g->error.param[0] ? g->error.param : NULL);
        generation_send_event(g, "error", &w);
    }
    if (g->x)
        vt_web_end(g->x);
}

static void on_end(generation *g)
{
    vt_json w;
    if (g->request.stream) {
        end_stream(g);
        return;
    }
    vt_json_line(&w);
    write_response(g, true, &w, NULL);
    generation_headers(g, true);
    server_reply_json(g->x, 200, &w);
}

static void forget(generation *g) { free(g->own); }

static const generation_form responses = {.name = "responses",
                                          .api = VT_OPENAI_CHAT,
                                          .read = generation_read,
                                          .told = on_told,
                                          .end = on_end,
                                          .translate = vt_responses_chat,
                                          .own_names = vt_responses_own_names,
                                          .forget = forget};

void server_responses(vt_server *s, vt_exchange *x) { generation_start(s, x, &responses); }
