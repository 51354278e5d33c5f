/* /v1/messages, in Anthropic's form. The body is read as a chat (openai/anthropic.h); the parts of
 * the reply are blocks of its content.
 *
 *   message_start  ping
 *   content_block_start  content_block_delta*  content_block_stop      for each block
 *   message_delta  message_stop */
#include "openai/anthropic.h"

#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "server/api/generation.h"
#include "server/watch/observe.h"

/* A stream's state. */
typedef struct blocks {
    int32_t n; /* begun so far */
    bool open;
    vt_piece_kind kind; /* of the open one */
} blocks;

/* ---- members of a message ---- */

/* The signature of a thought: clients keep it and send it back, where it is not looked at. */
static void write_signature(const vt_openai_choice *c, vt_json *w)
{
    uint64_t sum = vt_mix64(
        vt_fnv1a(VT_FNV_OFFSET ^ vt_hash_seed(), c->reasoning.data, c->reasoning.len));
    vt_json_printf(w, "signature", "%016llx", (unsigned long long)sum);
}

static void write_stop(const generation *g, vt_json *w)
{
    const vt_openai_choice *c = &g->reply.choice[0];
    bool full = c->end_reason == VT_END_CONTEXT || c->end_reason == VT_END_KV_CACHE;
    const char *why = full                            ? "model_context_window_exceeded"
                      : c->finish == VT_FINISH_LENGTH ? "max_tokens"
                      : c->n_calls > 0                ? "tool_use"
                      : c->stop >= 0                  ? "stop_sequence"
                                                      : "end_turn";
    bool hit = c->finish != VT_FINISH_LENGTH && c->n_calls == 0 && c->stop >= 0;
    vt_json_string(w, "stop_reason", why);
    vt_json_string(w, "stop_sequence", hit ? g->reply.stop[c->stop] : NULL);
}

static void write_usage(int32_t prompt, int32_t cached, int32_t completion, vt_json *w)
{
    vt_json_open(w, "usage", '{');
    vt_json_int(w, "input_tokens", prompt - cached);
    vt_json_int(w, "cache_creation_input_tokens", 0);
    vt_json_int(w, "cache_read_input_tokens", cached);
    vt_json_int(w, "output_tokens", completion);
    vt_json_close(w);
}

static void open_message(const generation *g, vt_json *w, const char *key)
{
    vt_json_open(w, key, '{');
    vt_json_printf(w, "id", "msg_%s", g->id);
    vt_json_string(w, "type", "message");
    vt_json_string(w, "role", "assistant");
    vt_json_string(w, "model", g->reply.model);
    vt_json_open(w, "content", '[');
}

static void write_text_block(const char *text, size_t n, vt_json *w, const char *key)
{
    vt_json_open(w, key, '{');
    vt_json_string(w, "type", "text");
    vt_json_string_n(w, "text", text, n);
    vt_json_null(w, "citations");
    vt_json_close(w);
}

/* `whole`: with its input, which comes later in a stream. */
static void write_use_block(const vt_openai_tool_call *call, bool whole, vt_json *w,
                            const char *key)
{
    static const char prefix[] = "call_"; /* of an id that is not the model's own */
    bool ours = strncmp(call->id, prefix, sizeof prefix - 1) == 0;
    vt_json_open(w, key, '{');
    vt_json_string(w, "type", "tool_use");
    vt_json_printf(w, "id", "%s%s", ours ? "toolu_" : "",
                   call->id + (ours ? sizeof prefix - 1 : 0));
    vt_json_string(w, "name", call->name);
    if (whole)
        vt_openai_write_arguments(call, w, "input");
    else
        vt_json_raw(w, "input", "{}", 2);
    vt_json_close(w);
}

static void write_part(const vt_openai_choice *c, int32_t i, vt_json *w)
{
    vt_openai_delta p = vt_openai_part_at(c, i);
    if (p.kind == VT_PIECE_TEXT) {
        write_text_block(vt_openai_part_text(c, &p), p.n, w, NULL);
    } else if (p.kind == VT_PIECE_CALL) {
        write_use_block(&c->call[p.call], true, w, NULL);
    } else {
        vt_json_open(w, NULL, '{');
        vt_json_string(w, "type", "thinking");
        vt_json_string_n(w, "thinking", vt_openai_part_text(c, &p), p.n);
        write_signature(c, w);
        vt_json_close(w);
    }
}

/* ---- a stream ---- */

/* Begins an event that repeats its name as "type". */
static void begin(vt_json *w, const char *name)
{
    vt_json_object(w);
    vt_json_string(w, "type", name);
}

static void start_message(generation *g, const vt_event *e)
{
    vt_json w;
    begin(&w, "message_start");
    open_message(g, &w, "message");
    vt_json_close(&w);
    vt_json_null(&w, "stop_reason");
    vt_json_null(&w, "stop_sequence");
    write_usage(e->prompt_tokens, e->cached_tokens, 1, &w);
    vt_json_close(&w);
    generation_send_event(g, "message_start", &w);
    begin(&w, "ping");
    generation_send_event(g, "ping", &w);
}

static void begin_delta(const blocks *b, vt_json *w, const char *type)
{
    begin(w, "content_block_delta");
    vt_json_int(w, "index", b->n - 1);
    vt_json_open(w, "delta", '{');
    vt_json_string(w, "type", type);
}

static void send_delta(generation *g, vt_json *w)
{
    vt_json_close(w);
    generation_send_event(g, "content_block_delta", w);
}

static void close_block(generation *g, blocks *b)
{
    vt_json w;
    if (!b->open)
        return;
    if (b->kind == VT_PIECE_REASONING) {
        begin_delta(b, &w, "signature_delta");
        write_signature(&g->reply.choice[0], &w);
        send_delta(g, &w);
    }
    begin(&w, "content_block_stop");
    vt_json_int(&w, "index", b->n - 1);
    generation_send_event(g, "content_block_stop", &w);
    b->open = false;
}

static void open_block(generation *g, blocks *b, const vt_openai_delta *p)
{
    vt_json w;
    close_block(g, b);
    b->open = true;
    b->kind = p->kind;
    begin(&w, "content_block_start");
    vt_json_int(&w, "index", b->n++);
    if (p->kind == VT_PIECE_TEXT) {
        write_text_block("", 0, &w, "content_block");
    } else if (p->kind == VT_PIECE_CALL) {
        write_use_block(&g->reply.choice[0].call[p->call], false, &w, "content_block");
    } else {
        vt_json_open(&w, "content_block", '{');
        vt_json_string(&w, "type", "thinking");
        vt_json_string(&w, "thinking", "");
        vt_json_string(&w, "signature", "");
        vt_json_close(&w);
    }
    generation_send_event(g, "content_block_start", &w);
}

static void send_bytes(generation *g, const blocks *b, const vt_openai_delta *p)
{
    static const char *const names[][2] = {
        [VT_PIECE_TEXT] = {"text_delta", "text"},
        [VT_PIECE_REASONING] = {"thinking_delta", "thinking"},
        [VT_PIECE_ARGUMENTS] = {"input_json_delta", "partial_json"},
    };
    vt_json w;
    begin_delta(b, &w, names[p->kind][0]);
    vt_json_string_n(&w, names[p->kind][1], g->reply.choice[0].fresh.data + p->at, p->n);
    send_delta(g, &w);
}

static void send_piece(generation *g, blocks *b, const vt_openai_delta *p)
{
    bool ends = p->kind == VT_PIECE_CALL_END || p->kind == VT_PIECE_CALL_BROKEN;
    if (ends)
        close_block(g, b);
    else if (p->kind == VT_PIECE_CALL ||
             (p->kind != VT_PIECE_ARGUMENTS && (!b->open || b->kind != p->kind)))
        open_block(g, b, p);
    if (!ends && p->kind != VT_PIECE_CALL)
        send_bytes(g, b, p);
}

static void end_message(generation *g, blocks *b)
{
    vt_json w;
    const vt_openai_reply *r = &g->reply;
    const vt_openai_delta none = {.kind = VT_PIECE_TEXT};
    if (b->n == 0) /* clients expect a block */
        open_block(g, b, &none);
    close_block(g, b);
    begin(&w, "message_delta");
    vt_json_open(&w, "delta", '{');
    write_stop(g, &w);
    vt_json_close(&w);
    write_usage(r->prompt_tokens, r->cached_tokens, r->completion_tokens, &w);
    generation_send_event(g, "message_delta", &w);
    begin(&w, "message_stop");
    generation_send_event(g, "message_stop", &w);
}

static void on_told(generation *g, int32_t prompt, const vt_event *e)
{
    const vt_openai_choice *c = &g->reply.choice[0];
    (void)prompt;
    if (!g->request.stream || vt_openai_is_score(e))
        return;
    if (!g->own) {
        g->own = vt_calloc(1, sizeof(blocks));
        if (!g->own) {
            vt_openai_refuse(&g->error, 500, NULL, "out of memory for the answer");
            return;
        }
        vt_web_header(g->x, "request-id", g->id);
        start_message(g, e);
    }
    for (int32_t i = 0; g->x && i < vt_openai_n_pieces(c); i++) {
        vt_openai_delta p = vt_openai_piece_at(c, i);
        send_piece(g, g->own, &p);
    }
    if (e->finish != VT_FINISH_NONE)
        end_message(g, g->own);
}

/* ---- the end ---- */

static void on_end(generation *g)
{
    vt_json w;
    const vt_openai_reply *r = &g->reply;
    if (g->request.stream) {
        if (g->error.http) {
            vt_json_line(&w);
            vt_anthropic_error_write(&g->error, g->id, &w);
            generation_send_event(g, "error", &w);
        }
        if (g->x)
            vt_web_end(g->x);
        return;
    }
    vt_json_line(&w);
    open_message(g, &w, NULL);
    for (int32_t i = 0; i < vt_openai_n_parts(&r->choice[0]); i++)
        write_part(&r->choice[0], i, &w);
    if (vt_openai_n_parts(&r->choice[0]) == 0)
        write_text_block("", 0, &w, NULL);
    vt_json_close(&w);
    write_stop(g, &w);
    write_usage(r->prompt_tokens, r->cached_tokens, r->completion_tokens, &w);
    vt_json_close(&w);
    generation_headers(g, true);
    vt_web_header(g->x, "request-id", g->id);
    server_reply_json(g->x, 200, &w);
}

static void forget(generation *g) { free(g->own); }

static const generation_form messages = {.name = "messages",
                                         .api = VT_OPENAI_CHAT,
                                         .read = generation_read,
                                         .told = on_told,
                                         .end = on_end,
                                         .translate = vt_anthropic_chat,
                                         .own_names = vt_anthropic_own_names,
                                         .forget = forget};

void server_messages(vt_server *s, vt_exchange *x) { generation_start(s, x, &messages); }
