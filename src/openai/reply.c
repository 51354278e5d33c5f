#include "openai/reply.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/err.h"
#include "base/utf8.h"
#include "model/model.h"
#include "text/tokenizer/tokenizer.h"

enum { MAX_TOP = 20 };

/* ---- collecting ---- */

vt_status vt_openai_reply_init(vt_openai_reply *reply, const vt_openai_request *request,
                               const vt_model *m, const char *id, vt_err *err)
{
    *reply = (vt_openai_reply){.m = m,
                               .chat = request->chat,
                               .created = (int64_t)time(NULL),
                               .n_each = request->p.n,
                               .n = request->p.n * request->n_prompts,
                               .n_open = request->p.n * request->n_prompts,
                               .n_top = request->p.logprobs};
    reply->choice = vt_calloc((size_t)reply->n, sizeof *reply->choice);
    if (!reply->choice ||
        asprintf(&reply->id, "%s-%s", reply->chat ? "chatcmpl" : "cmpl", id) < 0) {
        reply->id = NULL;
        vt_openai_reply_release(reply);
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for a reply");
    }
    return VT_OK;
}

void vt_openai_reply_release(vt_openai_reply *reply)
{
    for (int32_t i = 0; reply->choice && i < reply->n; i++) {
        vt_buf_release(&reply->choice[i].text);
        vt_buf_release(&reply->choice[i].logprobs);
    }
    free(reply->choice);
    free(reply->id);
    *reply = (vt_openai_reply){0};
}

/* The event's rows of log-probabilities. */
static bool add_logprobs(vt_openai_choice *c, const vt_event *e, int32_t n_top)
{
    static const vt_token_logprob none = {.id = -1};
    for (int32_t i = 0; i < e->n_tokens; i++) {
        vt_buf_add(&c->logprobs, &e->logprobs[i], sizeof e->logprobs[i]);
        for (int32_t k = 0; k < n_top; k++) {
            const vt_token_logprob *t = k < e->n_top ? &e->top_logprobs[i * e->n_top + k] : &none;
            vt_buf_add(&c->logprobs, t, sizeof *t);
        }
    }
    return !c->logprobs.failed;
}

void vt_openai_reply_event(vt_openai_reply *reply, int32_t prompt, const vt_event *e)
{
    vt_openai_choice *c = &reply->choice[prompt * reply->n_each + e->sample];
    bool kept = e->text_len == 0 || vt_buf_add(&c->text, e->text, e->text_len);
    if (reply->n_top >= 0 && e->n_tokens > 0)
        kept = e->logprobs && add_logprobs(c, e, reply->n_top) && kept;
    c->n_tokens += e->n_tokens;
    if (!kept && !reply->error.http)
        vt_openai_refuse(&reply->error, 500, NULL,
                         "the answer or its log-probabilities do not fit the memory");
    if (e->finish == VT_FINISH_NONE)
        return;
    c->finish = e->finish;
    reply->n_open--;
    reply->completion_tokens += e->completion_tokens;
    if (e->sample == 0) { /* the prompt is the same for all n */
        reply->prompt_tokens += e->prompt_tokens;
        reply->cached_tokens += e->cached_tokens;
    }
    reply->aborted |= e->finish == VT_FINISH_ABORT;
    if (e->finish == VT_FINISH_ERROR && !reply->error.http) {
        vt_err why;
        vt_fail(&why, VT_ERR_DEVICE, "%s", e->error ? e->error : "the engine failed");
        vt_openai_refuse_as(&reply->error, &why, reply->m, NULL);
    }
}

/* ---- log-probabilities ---- */

/* JSON has no infinity; OpenAI's API says -9999 where a token cannot be chosen. */
static void write_logprob(vt_json *w, const char *key, float logprob)
{
    vt_json_fixed(w, key, isfinite(logprob) ? (double)logprob : -9999, 6);
}

/* The token's own bytes, which may be part of a character. */
static void piece_of(const vt_openai_reply *reply, int32_t id, vt_buf *piece)
{
    vt_buf_clear(piece);
    if (!reply->m->tokenizer || !vt_tokenizer_piece(reply->m->tokenizer, id, piece))
        vt_buf_clear(piece);
    vt_buf_add(piece, "", 0);
}

/* Chat's form: {"token", "logprob", "bytes"}, left open. `token` has U+FFFD where the bytes are
 * part of a character. */
static void open_token(const vt_openai_reply *reply, const vt_token_logprob *t, vt_buf *piece,
                       vt_json *w)
{
    piece_of(reply, t->id, piece);
    vt_json_open(w, NULL, '{');
    vt_json_string_n(w, "token", piece->data, piece->len);
    write_logprob(w, "logprob", t->logprob);
    vt_json_open(w, "bytes", '[');
    for (size_t i = 0; i < piece->len; i++)
        vt_json_int(w, NULL, (unsigned char)piece->data[i]);
    vt_json_close(w);
}

/* {"content": [{..., "top_logprobs": [...]}, ...], "refusal": null}: `row` is [n][1 + n_top]. */
static void write_chat_logprobs(const vt_openai_reply *reply, const vt_token_logprob *row,
                                int32_t n, vt_json *w)
{
    vt_buf piece;
    vt_buf_init(&piece, 0);
    vt_json_open(w, "logprobs", '{');
    vt_json_open(w, "content", '[');
    for (int32_t i = 0; i < n; i++, row += 1 + reply->n_top) {
        open_token(reply, row, &piece, w);
        vt_json_open(w, "top_logprobs", '[');
        for (int32_t k = 1; k <= reply->n_top; k++)
            if (row[k].id >= 0) { /* fewer could be chosen */
                open_token(reply, &row[k], &piece, w);
                vt_json_close(w);
            }
        vt_json_close(w);
        vt_json_close(w);
    }
    vt_json_close(w);
    vt_json_null(w, "refusal");
    vt_json_close(w);
    vt_buf_release(&piece);
}

/* The name of a token in the completions form, as OpenAI spells it: its text, or where its bytes
 * are no whole characters, "bytes:\xf0\x9f". So different tokens keep different names. U+0000 is
 * spelled that way too, because names of members end at it in many programs. */
static void name_of(const vt_openai_reply *reply, int32_t id, vt_buf *piece)
{
    piece_of(reply, id, piece);
    if (vt_utf8_valid(piece->data, piece->len) == piece->len && !memchr(piece->data, 0, piece->len))
        return;
    vt_buf name;
    vt_buf_init(&name, 0);
    vt_buf_puts(&name, "bytes:");
    for (size_t i = 0; i < piece->len; i++)
        vt_buf_printf(&name, "\\x%02x", (unsigned char)piece->data[i]);
    vt_buf_release(piece);
    *piece = name;
}

/* One entry of "top_logprobs": {token: logprob, ...}. The chosen token is always in it. Two ids
 * with the same spelling have one entry, with the higher value, which comes first. */
static void write_top(const vt_openai_reply *reply, const vt_token_logprob *row, vt_buf *piece,
                      vt_json *w)
{
    char *seen[MAX_TOP + 1];
    int n_seen = 0;
    vt_json_open(w, NULL, '{');
    for (int32_t k = 1; k <= reply->n_top + 1; k++) {
        const vt_token_logprob *t = k <= reply->n_top ? &row[k] : &row[0];
        if (t->id < 0)
            continue;
        name_of(reply, t->id, piece);
        bool twice = !piece->data;
        for (int i = 0; i < n_seen && !twice; i++)
            twice = strcmp(seen[i], piece->data) == 0;
        char *name = twice ? NULL : strdup(piece->data);
        if (!name)
            continue;
        write_logprob(w, name, t->logprob);
        seen[n_seen++] = name;
    }
    vt_json_close(w);
    while (n_seen > 0)
        free(seen[--n_seen]);
}

/* Completions' form: four lists with an entry for each token. text_offset counts the characters of
 * this choice's text in front of the token; `offset` is where the first one begins. */
static void write_text_logprobs(const vt_openai_reply *reply, const vt_token_logprob *row,
                                int32_t n, vt_json *w)
{
    size_t width = 1 + (size_t)reply->n_top;
    vt_buf piece;
    vt_buf_init(&piece, 0);
    vt_json_open(w, "logprobs", '{');
    vt_json_open(w, "tokens", '[');
    for (int32_t i = 0; i < n; i++) {
        name_of(reply, row[(size_t)i * width].id, &piece);
        vt_json_string_n(w, NULL, piece.data, piece.len);
    }
    vt_json_close(w);
    vt_json_open(w, "token_logprobs", '[');
    for (int32_t i = 0; i < n; i++)
        write_logprob(w, NULL, row[(size_t)i * width].logprob);
    vt_json_close(w);
    if (reply->n_top == 0) {
        vt_json_null(w, "top_logprobs");
    } else {
        vt_json_open(w, "top_logprobs", '[');
        for (int32_t i = 0; i < n; i++)
            write_top(reply, row + (size_t)i * width, &piece, w);
        vt_json_close(w);
    }
    vt_json_open(w, "text_offset", '[');
    int64_t characters = 0;
    for (int32_t i = 0; i < n; i++) {
        vt_json_int(w, NULL, characters);
        piece_of(reply, row[(size_t)i * width].id, &piece);
        for (size_t b = 0; b < piece.len; b++) /* a character is counted at its first byte */
            characters += ((unsigned char)piece.data[b] & 0xC0) != 0x80;
    }
    vt_json_close(w);
    vt_json_close(w);
    vt_buf_release(&piece);
}

static void write_logprobs(const vt_openai_reply *reply, const void *rows, int32_t n, vt_json *w)
{
    if (reply->n_top < 0)
        vt_json_null(w, "logprobs");
    else if (reply->chat)
        write_chat_logprobs(reply, rows, n, w);
    else
        write_text_logprobs(reply, rows, n, w);
}

/* ---- the reply ---- */

static const char *finish_name(vt_finish f)
{
    return f == VT_FINISH_STOP     ? "stop"
           : f == VT_FINISH_LENGTH ? "length"
           : f == VT_FINISH_ABORT  ? "abort"
           : f == VT_FINISH_ERROR  ? "error"
                                   : NULL;
}

static void write_usage(const vt_openai_reply *reply, vt_json *w)
{
    vt_json_open(w, "usage", '{');
    vt_json_int(w, "prompt_tokens", reply->prompt_tokens);
    vt_json_int(w, "completion_tokens", reply->completion_tokens);
    vt_json_int(w, "total_tokens", (int64_t)reply->prompt_tokens + reply->completion_tokens);
    vt_json_open(w, "prompt_tokens_details", '{');
    vt_json_int(w, "cached_tokens", reply->cached_tokens);
    vt_json_close(w);
    vt_json_close(w);
}

static void write_choice(const vt_openai_reply *reply, int32_t i, vt_json *w)
{
    const vt_openai_choice *c = &reply->choice[i];
    const char *text = c->text.data ? c->text.data : "";
    vt_json_open(w, NULL, '{');
    vt_json_int(w, "index", i);
    if (reply->chat) {
        vt_json_open(w, "message", '{');
        vt_json_string(w, "role", "assistant");
        vt_json_string_n(w, "content", text, c->text.len);
        vt_json_null(w, "refusal");
        vt_json_close(w);
    } else {
        vt_json_string_n(w, "text", text, c->text.len);
    }
    write_logprobs(reply, c->logprobs.data, c->n_tokens, w);
    vt_json_string(w, "finish_reason", finish_name(c->finish));
    vt_json_close(w);
}

static void open_reply(const vt_openai_reply *reply, bool chunk, vt_json *w, const char *key)
{
    vt_json_open(w, key, '{');
    vt_json_string(w, "id", reply->id);
    vt_json_string(w, "object",
                   !reply->chat ? "text_completion"
                   : chunk      ? "chat.completion.chunk"
                                : "chat.completion");
    vt_json_int(w, "created", reply->created);
    vt_json_string(w, "model", vt_model_name(reply->m));
    vt_json_open(w, "choices", '[');
}

void vt_openai_reply_open(const vt_openai_reply *reply, vt_json *w, const char *key)
{
    open_reply(reply, false, w, key);
    for (int32_t i = 0; i < reply->n; i++)
        write_choice(reply, i, w);
    vt_json_close(w);
    write_usage(reply, w);
}

void vt_openai_reply_write(const vt_openai_reply *reply, vt_json *w, const char *key)
{
    vt_openai_reply_open(reply, w, key);
    vt_json_close(w);
}

void vt_openai_chunk_open(const vt_openai_reply *reply, int32_t prompt, const vt_event *e,
                          vt_json *w)
{
    int32_t index = prompt * reply->n_each + e->sample;
    const vt_openai_choice *before = &reply->choice[index];
    const char *text = e->text ? e->text : "";
    vt_openai_choice now = {0};
    open_reply(reply, true, w, NULL);
    vt_json_open(w, NULL, '{');
    vt_json_int(w, "index", index);
    if (reply->chat) {
        vt_json_open(w, "delta", '{');
        if (before->n_tokens == 0 && before->text.len == 0)
            vt_json_string(w, "role", "assistant");
        vt_json_string_n(w, "content", text, e->text_len);
        vt_json_close(w);
    } else {
        vt_json_string_n(w, "text", text, e->text_len);
    }
    bool rows = reply->n_top >= 0 && e->n_tokens > 0 && e->logprobs &&
                add_logprobs(&now, e, reply->n_top);
    if (rows)
        write_logprobs(reply, now.logprobs.data, e->n_tokens, w);
    else
        vt_json_null(w, "logprobs");
    vt_json_string(w, "finish_reason", finish_name(e->finish));
    vt_json_close(w);
    vt_json_close(w);
    vt_buf_release(&now.logprobs);
}

void vt_openai_chunk_write(const vt_openai_reply *reply, int32_t prompt, const vt_event *e,
                           vt_json *w)
{
    vt_openai_chunk_open(reply, prompt, e, w);
    vt_json_close(w);
}

void vt_openai_usage_chunk_write(const vt_openai_reply *reply, vt_json *w)
{
    open_reply(reply, true, w, NULL);
    vt_json_close(w);
    write_usage(reply, w);
    vt_json_close(w);
}
