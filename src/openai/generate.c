/* Answers of /generate, in SGLang's form. */
#include <math.h>
#include <string.h>

#include "model/model.h"
#include "openai/reply.h"

/* [logprob, id, text]: the text only where it was asked for. */
static void write_row(const vt_openai_reply *reply, const vt_token_logprob *t, bool text,
                      vt_json *w)
{
    vt_json_open(w, NULL, '[');
    if (isnan(t->logprob))
        vt_json_null(w, NULL);
    else
        vt_json_fixed(w, NULL, isfinite(t->logprob) ? (double)t->logprob : -9999, 6);
    vt_json_int(w, NULL, t->id);
    if (text) {
        vt_buf piece = {0};
        vt_openai_piece_of(reply, t->id, &piece);
        vt_json_string_n(w, NULL, piece.data ? piece.data : "", piece.len);
        vt_buf_release(&piece);
    } else {
        vt_json_null(w, NULL);
    }
    vt_json_close(w);
}

typedef struct row_list {
    const char *own, *top; /* names of the two members */
    const vt_token_logprob *row;
    int32_t n, width, n_top; /* rows; entries of a row; alternatives to be told */
    int32_t first;           /* a token in front that has no log-probability; -1: none */
} row_list;

static void write_rows(const vt_openai_reply *reply, const row_list *l, bool text, vt_json *w)
{
    const vt_token_logprob first = {.id = l->first, .logprob = NAN};
    vt_json_open(w, l->own, '[');
    if (l->first >= 0)
        write_row(reply, &first, text, w);
    for (int32_t i = 0; i < l->n; i++)
        write_row(reply, &l->row[(size_t)i * (size_t)l->width], text, w);
    vt_json_close(w);
    if (l->n_top <= 0)
        return;
    vt_json_open(w, l->top, '[');
    if (l->first >= 0)
        vt_json_null(w, NULL);
    for (int32_t i = 0; i < l->n; i++) {
        vt_json_open(w, NULL, '[');
        for (int32_t k = 1; k <= l->n_top; k++)
            if (l->row[(size_t)i * (size_t)l->width + (size_t)k].id >= 0)
                write_row(reply, &l->row[(size_t)i * (size_t)l->width + (size_t)k], text, w);
        vt_json_close(w);
    }
    vt_json_close(w);
}

/* The prompt from position logprob_start on, whose first token has no log-probability there; then
 * the answer. */
static void write_logprobs(const vt_openai_reply *reply, const vt_openai_request *q, int32_t i,
                           vt_json *w)
{
    const vt_openai_prompt_part *p = &reply->prompt[i / reply->n_each];
    const vt_openai_choice *c = &reply->choice[i];
    row_list input = {.own = "input_token_logprobs",
                      .top = "input_top_logprobs",
                      .width = 1 + reply->n_prompt_top,
                      .n_top = reply->n_prompt_shown,
                      .first = -1};
    row_list output = {.own = "output_token_logprobs",
                       .top = "output_top_logprobs",
                       .row = (const vt_token_logprob *)(const void *)c->logprobs.data,
                       .n = c->n_tokens,
                       .width = 1 + reply->n_top,
                       .n_top = reply->n_top,
                       .first = -1};
    int32_t start = q->logprob_start; /* row k is of token k + 1 */
    const vt_token_logprob *row = (const vt_token_logprob *)(const void *)p->rows.data;
    if (start == 0)
        input.first = p->first;
    else if (start > 0 && start <= p->n_rows)
        input.first = row[(size_t)(start - 1) * (size_t)input.width].id;
    if (start >= 0 && start < p->n_rows) {
        input.row = row + (size_t)start * (size_t)input.width;
        input.n = p->n_rows - start;
    }
    write_rows(reply, &input, q->logprob_text, w);
    write_rows(reply, &output, q->logprob_text, w);
}

static void write_finish(const vt_openai_reply *reply, const vt_openai_choice *c, vt_json *w)
{
    int32_t last = -1;
    if (c->ids.len >= sizeof last)
        memcpy(&last, c->ids.data + c->ids.len - sizeof last, sizeof last);
    if (c->finish == VT_FINISH_NONE) {
        vt_json_null(w, "finish_reason");
        return;
    }
    vt_json_open(w, "finish_reason", '{');
    vt_json_string(w, "type",
                   c->finish == VT_FINISH_STOP     ? "stop"
                   : c->finish == VT_FINISH_LENGTH ? "length"
                                                   : "abort");
    if (c->finish == VT_FINISH_STOP && c->stop >= 0)
        vt_json_string(w, "matched", reply->stop[c->stop]);
    else if (c->finish == VT_FINISH_STOP)
        vt_json_int(w, "matched", last);
    else if (c->finish == VT_FINISH_LENGTH)
        vt_json_int(w, "length", c->n_tokens);
    else
        vt_json_string(w, "message", "aborted");
    vt_json_close(w);
}

void vt_generate_choice_open(const vt_openai_reply *reply, const vt_openai_request *q, int32_t i,
                             const char *id, vt_json *w)
{
    const vt_openai_choice *c = &reply->choice[i];
    vt_json_open(w, NULL, '{');
    vt_json_string_n(w, "text", c->text.data ? c->text.data : "", c->text.len);
    vt_json_open(w, "output_ids", '[');
    for (size_t at = 0; at < c->ids.len; at += sizeof(int32_t)) {
        int32_t token;
        memcpy(&token, c->ids.data + at, sizeof token);
        vt_json_int(w, NULL, token);
    }
    vt_json_close(w);
    if (q->list || reply->n > 1)
        vt_json_int(w, "index", i);
    vt_json_open(w, "meta_info", '{');
    if (reply->n > 1)
        vt_json_printf(w, "id", "%s_%d", id, i);
    else
        vt_json_string(w, "id", id);
    write_finish(reply, c, w);
    vt_json_int(w, "prompt_tokens", q->prompt[i / reply->n_each].n);
    vt_json_int(w, "completion_tokens", c->n_tokens);
    vt_json_int(w, "cached_tokens", c->cached_tokens);
    vt_json_int(w, "total_retractions", c->n_retracted);
    if (reply->n_top >= 0)
        write_logprobs(reply, q, i, w);
}
