/* Log-probabilities in the forms of chat, of plain completions and of vLLM's prompt_logprobs. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "model/model.h"
#include "openai/reply.h"
#include "text/tokenizer/tokenizer.h"

enum { MAX_TOP = 20 };

bool vt_openai_add_rows(vt_buf *rows, const vt_event *e, int32_t n_top)
{
    static const vt_token_logprob none = {.id = -1};
    for (int32_t i = 0; i < e->n_tokens; i++) {
        vt_buf_add(rows, &e->logprobs[i], sizeof e->logprobs[i]);
        for (int32_t k = 0; k < n_top; k++) {
            const vt_token_logprob *t = k < e->n_top ? &e->top_logprobs[i * e->n_top + k] : &none;
            vt_buf_add(rows, t, sizeof *t);
        }
    }
    return !rows->failed;
}

/* JSON has no infinity; OpenAI's API says -9999 where a token cannot be chosen. */
static void write_logprob(vt_json *w, const char *key, float logprob)
{
    if (isnan(logprob)) {
        vt_json_null(w, key);
        return;
    }
    vt_json_fixed(w, key, isfinite(logprob) ? (double)logprob : -9999, 6);
}

/* The token's own bytes, which may be part of a character. */
void vt_openai_piece_of(const vt_openai_reply *reply, int32_t id, vt_buf *piece)
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
    vt_openai_piece_of(reply, t->id, piece);
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
    vt_openai_piece_of(reply, id, piece);
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

/* One entry of "top_logprobs": {token: logprob, ...}. The chosen token is always in it; two ids
 * with one spelling are there once, with the higher value, which comes first. */
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

/* Completions' form: four lists with an entry for each token; the first token of a prompt has no
 * log-probability (NAN here, null there). text_offset counts the characters of this text in front
 * of the token; with `bos` the first token is no part of the text. */
static void write_text_logprobs(const vt_openai_reply *reply, const vt_token_logprob *row,
                                int32_t n, bool bos, vt_json *w)
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
            if (isnan(row[(size_t)i * width].logprob))
                vt_json_null(w, NULL);
            else
                write_top(reply, row + (size_t)i * width, &piece, w);
        vt_json_close(w);
    }
    vt_json_open(w, "text_offset", '[');
    int64_t characters = 0;
    for (int32_t i = 0; i < n; i++) {
        vt_json_int(w, NULL, characters);
        vt_openai_piece_of(reply, row[(size_t)i * width].id, &piece);
        for (size_t b = 0; b < piece.len && !(bos && i == 0); b++)
            characters += ((unsigned char)piece.data[b] & 0xC0) != 0x80; /* first bytes only */
    }
    vt_json_close(w);
    vt_json_close(w);
    vt_buf_release(&piece);
}

void vt_openai_write_logprobs(const vt_openai_reply *reply, const void *rows, int32_t n, vt_json *w)
{
    if (reply->n_top < 0)
        vt_json_null(w, "logprobs");
    else if (reply->chat)
        write_chat_logprobs(reply, rows, n, w);
    else
        write_text_logprobs(reply, rows, n, false, w);
}

void vt_openai_write_choice_logprobs(const vt_openai_reply *reply, int32_t i, vt_json *w)
{
    const vt_openai_choice *c = &reply->choice[i];
    const vt_openai_prompt_part *p = &reply->prompt[i / reply->n_each];
    if (!reply->echo || reply->n_top < 0) {
        vt_openai_write_logprobs(reply, c->logprobs.data, c->n_tokens, w);
        return;
    }
    const vt_token_logprob none = {.id = -1}, first = {.id = p->first, .logprob = NAN};
    size_t from = 1 + (size_t)reply->n_prompt_top, width = 1 + (size_t)reply->n_top;
    vt_buf rows = {0};
    vt_buf_add(&rows, &first, sizeof first);
    for (int32_t k = 0; k < reply->n_top; k++)
        vt_buf_add(&rows, &none, sizeof none);
    for (int32_t k = 0; k < p->n_rows; k++) /* the first of the alternatives that were kept */
        vt_buf_add(&rows, p->rows.data + (size_t)k * from * sizeof first, width * sizeof first);
    vt_buf_add(&rows, c->logprobs.data ? c->logprobs.data : "", c->logprobs.len);
    w->out->failed |= rows.failed;
    write_text_logprobs(reply, (const vt_token_logprob *)(const void *)rows.data,
                        rows.failed ? 0 : 1 + p->n_rows + c->n_tokens, p->bos, w);
    vt_buf_release(&rows);
}

/* ---- vLLM's prompt_logprobs ---- */

/* "17": {"logprob": -0.5, "rank": 1, "decoded_token": "a"}; a rank of 0 is not known. */
static void write_ranked(const vt_openai_reply *reply, const vt_token_logprob *t, int32_t rank,
                         vt_buf *piece, vt_json *w)
{
    char id[16];
    snprintf(id, sizeof id, "%d", t->id);
    vt_json_open(w, id, '{');
    write_logprob(w, "logprob", t->logprob);
    if (rank > 0)
        vt_json_int(w, "rank", rank);
    else
        vt_json_null(w, "rank");
    vt_openai_piece_of(reply, t->id, piece);
    vt_json_string_n(w, "decoded_token", piece->data, piece->len);
    vt_json_close(w);
}

void vt_openai_write_prompt_logprobs(const vt_openai_reply *reply, int32_t prompt, vt_json *w)
{
    const vt_openai_prompt_part *p = &reply->prompt[prompt];
    const vt_token_logprob *row = (const vt_token_logprob *)(const void *)p->rows.data;
    vt_buf piece;
    vt_buf_init(&piece, 0);
    vt_json_open(w, "prompt_logprobs", '[');
    vt_json_null(w, NULL); /* nothing stands before the first token */
    for (int32_t i = 0; i < p->n_rows; i++, row += 1 + reply->n_prompt_top) {
        int32_t rank = reply->n_prompt_top;
        while (rank > 0 && row[rank].id != row[0].id)
            rank--;
        vt_json_open(w, NULL, '{');
        write_ranked(reply, &row[0], rank, &piece, w);
        for (int32_t k = 1; k <= reply->n_prompt_shown; k++)
            if (row[k].id >= 0 && k != rank)
                write_ranked(reply, &row[k], k, &piece, w);
        vt_json_close(w);
    }
    vt_json_close(w);
    vt_buf_release(&piece);
}
