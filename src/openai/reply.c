#include "openai/reply.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/err.h"
#include "base/utf8.h"
#include "engine/end_reason.h"
#include "model/model.h"
#include "text/tokenizer/tokenizer.h"

/* ---- collecting ---- */

/* Copies those stop_token_ids that the model would not end at anyway. */
static bool copy_stop_ids(vt_openai_reply *reply, const vt_request_params *p)
{
    reply->stop_ids = vt_calloc((size_t)p->n_stop_ids + 1, sizeof *reply->stop_ids);
    for (int32_t i = 0; reply->stop_ids && i < p->n_stop_ids; i++) {
        bool eos = false;
        for (int32_t k = 0; k < reply->m->n_eos && !p->ignore_eos; k++)
            eos |= reply->m->eos[k] == p->stop_ids[i];
        if (!eos)
            reply->stop_ids[reply->n_stop_ids++] = p->stop_ids[i];
    }
    return reply->stop_ids;
}

/* Copies of what the reply repeats of its request. */
static bool copy_request(vt_openai_reply *reply, const vt_openai_request *request)
{
    reply->stop = vt_calloc((size_t)request->p.n_stop + 1, sizeof *reply->stop);
    reply->prompt = vt_calloc((size_t)request->n_prompts, sizeof *reply->prompt);
    if (!reply->stop || !reply->prompt || !copy_stop_ids(reply, &request->p))
        return false;
    for (; reply->n_stop < request->p.n_stop; reply->n_stop++)
        if (!(reply->stop[reply->n_stop] = strdup(request->p.stop[reply->n_stop])))
            return false;
    for (int32_t i = 0; i < request->n_prompts; i++) {
        const vt_openai_prompt *from = &request->prompt[i];
        vt_openai_prompt_part *to = &reply->prompt[i];
        to->first = from->n > 0 ? from->ids[0] : -1;
        to->bos = from->text && from->bos;
        if (request->echo && !vt_buf_add(&to->text, from->text, from->text_len))
            return false;
    }
    return true;
}

vt_status vt_openai_reply_init(vt_openai_reply *reply, const vt_openai_request *request,
                               const vt_model *m, const char *id, vt_err *err)
{
    bool scores = request->n_prompt_top >= 0 || (request->echo && request->n_top >= 0);
    *reply = (vt_openai_reply){.m = m,
                               .chat = request->chat,
                               .named = request->named,
                               .echo = request->echo,
                               .grammar_field = request->grammar_field,
                               .include_usage = request->include_usage,
                               .continuous_usage = request->continuous_usage,
                               .created = (int64_t)time(NULL),
                               .n_each = request->p.n,
                               .n = request->p.n * request->n_prompts,
                               .n_open = request->p.n * request->n_prompts,
                               .n_top = request->n_top,
                               .n_prompt_top = scores ? request->p.logprobs : -1,
                               .n_prompt_shown = request->n_prompt_top};
    const char *model = request->model_name ? request->model_name : vt_model_name(m);
    reply->choice = vt_calloc((size_t)reply->n, sizeof *reply->choice);
    reply->model = strdup(model);
    bool ok = reply->choice && reply->model && copy_request(reply, request) &&
              vt_openai_split_init(reply, request);
    if (!ok || asprintf(&reply->id, "%s-%s", reply->chat ? "chatcmpl" : "cmpl", id) < 0) {
        reply->id = NULL;
        vt_openai_reply_release(reply);
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for a reply");
    }
    for (int32_t i = 0; i < reply->n; i++)
        reply->choice[i].stop = -1;
    return VT_OK;
}

void vt_openai_reply_release(vt_openai_reply *reply)
{
    for (int32_t i = 0; reply->choice && i < reply->n; i++) {
        vt_buf_release(&reply->choice[i].text);
        vt_buf_release(&reply->choice[i].ids);
        vt_buf_release(&reply->choice[i].logprobs);
        vt_buf_release(&reply->choice[i].vector);
        vt_openai_split_release(&reply->choice[i]);
    }
    for (int32_t i = 0; reply->prompt && i < reply->n / reply->n_each; i++) {
        vt_buf_release(&reply->prompt[i].text);
        vt_buf_release(&reply->prompt[i].rows);
    }
    while (reply->n_stop > 0)
        free(reply->stop[--reply->n_stop]);
    json_decref(reply->tools);
    json_decref(reply->call_ids);
    free(reply->stop);
    free(reply->stop_ids);
    free(reply->prompt);
    free(reply->choice);
    free(reply->model);
    free(reply->id);
    *reply = (vt_openai_reply){0};
}

bool vt_openai_is_score(const vt_event *e)
{
    return e->n_tokens > 0 && e->completion_tokens == 0 && e->finish == VT_FINISH_NONE;
}

static void no_room(vt_openai_reply *reply)
{
    if (!reply->error.http)
        vt_openai_refuse(&reply->error, 500, NULL,
                         "the answer or its log-probabilities do not fit the memory");
}

static void take_scores(vt_openai_reply *reply, int32_t prompt, const vt_event *e)
{
    vt_openai_prompt_part *p = &reply->prompt[prompt];
    if (reply->n_prompt_top < 0)
        return;
    if (!e->logprobs || !vt_openai_add_rows(&p->rows, e, reply->n_prompt_top))
        no_room(reply);
    else
        p->n_rows += e->n_tokens;
}

/* An answer that its request ends is the request's mistake. */
static void take_error(vt_openai_reply *reply, const vt_event *e)
{
    const char *why = e->error ? e->error : "the engine failed";
    vt_err err;
    switch (e->end_reason) {
    case VT_END_GRAMMAR_TOO_LARGE:
    case VT_END_NOTHING_ALLOWED:
        vt_openai_refuse(&reply->error, 400, reply->grammar_field, "%s", why);
        break;
    case VT_END_TIMEOUT:
        vt_openai_refuse(&reply->error, 504, NULL, "%s", why);
        break;
    default:
        vt_fail(&err, VT_ERR_DEVICE, "%s", why);
        vt_openai_refuse_as(&reply->error, &err, reply->m, NULL);
    }
}

static void take_end(vt_openai_reply *reply, vt_openai_choice *c, const vt_event *e)
{
    c->finish = e->finish;
    c->end_reason = e->end_reason;
    c->stop = e->stop < reply->n_stop ? e->stop : -1;
    c->prompt_tokens = e->prompt_tokens;
    c->completion_tokens = e->completion_tokens;
    c->n_retracted = e->n_retracted;
    reply->n_open--;
    reply->completion_tokens += e->completion_tokens;
    if (e->sample == 0) { /* the prompt is the same for all n */
        reply->prompt_tokens += e->prompt_tokens;
        reply->cached_tokens += e->cached_tokens;
    }
    reply->aborted |= e->finish == VT_FINISH_ABORT;
    if (e->finish == VT_FINISH_ERROR && !reply->error.http)
        take_error(reply, e);
}

void vt_openai_reply_event(vt_openai_reply *reply, int32_t prompt, const vt_event *e)
{
    vt_openai_choice *c = &reply->choice[prompt * reply->n_each + e->sample];
    if (vt_openai_is_score(e)) {
        take_scores(reply, prompt, e);
        return;
    }
    bool kept = e->text_len == 0 || vt_buf_add(&c->text, e->text, e->text_len);
    if (e->n_tokens > 0)
        kept = vt_buf_add(&c->ids, e->tokens, (size_t)e->n_tokens * sizeof *e->tokens) && kept;
    if (reply->n_top >= 0 && e->n_tokens > 0)
        kept = e->logprobs && vt_openai_add_rows(&c->logprobs, e, reply->n_top) && kept;
    if (reply->splits)
        kept = vt_openai_split_event(reply, c, e) && kept;
    if (e->vector)
        kept = vt_buf_add(&c->vector, e->vector, (size_t)e->n_vector * sizeof *e->vector) && kept;
    c->n_tokens += e->n_tokens;
    c->cached_tokens = e->cached_tokens;
    if (!kept)
        no_room(reply);
    if (e->finish != VT_FINISH_NONE)
        take_end(reply, c, e);
}

/* ---- the reply ---- */

const char *vt_openai_finish_name(const vt_openai_reply *reply, const vt_openai_choice *c,
                                  vt_finish f)
{
    if (f == VT_FINISH_STOP && c->n_calls > 0 && !reply->named)
        return "tool_calls";
    return f == VT_FINISH_NONE ? NULL : vt_finish_name(f);
}

static void write_usage(int32_t prompt, int32_t completion, int32_t cached, int32_t reasoning,
                        vt_json *w)
{
    vt_json_open(w, "usage", '{');
    vt_json_int(w, "prompt_tokens", prompt);
    vt_json_int(w, "completion_tokens", completion);
    vt_json_int(w, "total_tokens", (int64_t)prompt + completion);
    vt_json_open(w, "prompt_tokens_details", '{');
    vt_json_int(w, "cached_tokens", cached);
    vt_json_close(w);
    if (reasoning >= 0) {
        vt_json_open(w, "completion_tokens_details", '{');
        vt_json_int(w, "reasoning_tokens", reasoning);
        vt_json_close(w);
    }
    vt_json_close(w);
}

/* finish_reason, and as vLLM has it, stop_reason: the stop string, or the token of stop_token_ids,
 * that ended the choice. */
static void write_finish(const vt_openai_reply *reply, const vt_openai_choice *c, vt_finish finish,
                         int32_t stop, int32_t last, vt_json *w)
{
    vt_json_string(w, "finish_reason", vt_openai_finish_name(reply, c, finish));
    bool asked = false;
    for (int32_t i = 0; i < reply->n_stop_ids; i++)
        asked |= reply->stop_ids[i] == last;
    if (finish == VT_FINISH_STOP && stop >= 0)
        vt_json_string(w, "stop_reason", reply->stop[stop]);
    else if (finish == VT_FINISH_STOP && asked)
        vt_json_int(w, "stop_reason", last);
    else
        vt_json_null(w, "stop_reason");
}

static int32_t last_id(const vt_buf *ids)
{
    int32_t last = -1;
    if (ids->len >= sizeof last)
        memcpy(&last, ids->data + ids->len - sizeof last, sizeof last);
    return last;
}

static void write_text(const vt_openai_reply *reply, int32_t i, vt_json *w)
{
    const vt_openai_choice *c = &reply->choice[i];
    const vt_buf *prompt = &reply->prompt[i / reply->n_each].text;
    vt_buf text = {0};
    if (reply->echo) {
        vt_buf_add(&text, prompt->data ? prompt->data : "", prompt->len);
        vt_buf_add(&text, c->text.data ? c->text.data : "", c->text.len);
        w->out->failed |= text.failed;
    }
    const vt_buf *whole = reply->echo ? &text : &c->text;
    vt_json_string_n(w, "text", whole->data ? whole->data : "", whole->len);
    vt_buf_release(&text);
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
        if (reply->splits)
            vt_openai_split_write(c, w);
        else
            vt_json_string_n(w, "content", text, c->text.len);
        vt_json_null(w, "refusal");
        vt_json_close(w);
    } else {
        write_text(reply, i, w);
    }
    vt_openai_write_choice_logprobs(reply, i, w);
    write_finish(reply, c, c->finish, c->stop, last_id(&c->ids), w);
    if (!reply->chat && reply->n_prompt_shown >= 0)
        vt_openai_write_prompt_logprobs(reply, i / reply->n_each, w);
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
    vt_json_string(w, "model", reply->model);
    vt_json_open(w, "choices", '[');
}

void vt_openai_reply_open(const vt_openai_reply *reply, vt_json *w, const char *key)
{
    open_reply(reply, false, w, key);
    for (int32_t i = 0; i < reply->n; i++)
        write_choice(reply, i, w);
    vt_json_close(w);
    if (reply->chat && reply->n_prompt_shown >= 0) /* a chat has one prompt */
        vt_openai_write_prompt_logprobs(reply, 0, w);
    write_usage(reply->prompt_tokens, reply->completion_tokens, reply->cached_tokens,
                reply->splits ? reply->reasoning_tokens : -1, w);
}

void vt_openai_reply_write(const vt_openai_reply *reply, vt_json *w, const char *key)
{
    vt_openai_reply_open(reply, w, key);
    vt_json_close(w);
}

/* Writes what a chunk adds to the text: with echo, the first one of a choice brings the prompt. */
static void write_delta(const vt_openai_reply *reply, int32_t prompt, bool first, const vt_event *e,
                        vt_json *w)
{
    const char *text = e->text ? e->text : "";
    const vt_buf *echo = &reply->prompt[prompt].text;
    if (reply->chat) {
        vt_json_open(w, "delta", '{');
        if (first)
            vt_json_string(w, "role", "assistant");
        vt_json_string_n(w, "content", text, e->text_len);
        vt_json_close(w);
    } else if (reply->echo && first) {
        vt_buf whole = {0};
        vt_buf_add(&whole, echo->data ? echo->data : "", echo->len);
        vt_buf_add(&whole, text, e->text_len);
        w->out->failed |= whole.failed;
        vt_json_string_n(w, "text", whole.data ? whole.data : "", whole.len);
        vt_buf_release(&whole);
    } else {
        vt_json_string_n(w, "text", text, e->text_len);
    }
}

void vt_openai_chunk_open(const vt_openai_reply *reply, int32_t prompt, const vt_event *e,
                          vt_json *w)
{
    int32_t index = prompt * reply->n_each + e->sample;
    const vt_openai_choice *before = &reply->choice[index];
    vt_buf rows = {0};
    open_reply(reply, true, w, NULL);
    vt_json_open(w, NULL, '{');
    vt_json_int(w, "index", index);
    write_delta(reply, prompt, before->n_tokens == 0 && before->text.len == 0, e, w);
    if (reply->n_top >= 0 && e->n_tokens > 0 && e->logprobs &&
        vt_openai_add_rows(&rows, e, reply->n_top))
        vt_openai_write_logprobs(reply, rows.data, e->n_tokens, w);
    else
        vt_json_null(w, "logprobs");
    vt_buf_release(&rows);
    int32_t last = e->n_tokens > 0 ? e->tokens[e->n_tokens - 1] : last_id(&before->ids);
    write_finish(reply, before, e->finish, e->stop < reply->n_stop ? e->stop : -1, last, w);
    vt_json_close(w);
    vt_json_close(w);
    if (reply->continuous_usage)
        write_usage(e->prompt_tokens, e->completion_tokens, e->cached_tokens, -1, w);
    else if (reply->include_usage)
        vt_json_null(w, "usage");
}

void vt_openai_chunk_write(const vt_openai_reply *reply, int32_t prompt, const vt_event *e,
                           vt_json *w)
{
    vt_openai_chunk_open(reply, prompt, e, w);
    vt_json_close(w);
}

/* ---- chunks of a reply that splits ---- */

/* The next bytes of a call's arguments. The first delta of a call has its id and name. */
static void write_call(const vt_openai_choice *c, const vt_openai_delta *p, const char *bytes,
                       vt_json *w)
{
    const vt_openai_tool_call *call = &c->call[p->call];
    vt_json_open(w, "tool_calls", '[');
    vt_json_open(w, NULL, '{');
    vt_json_int(w, "index", p->call);
    if (p->kind == VT_PIECE_CALL) {
        vt_json_string(w, "id", call->id);
        vt_json_string(w, "type", "function");
    }
    vt_json_open(w, "function", '{');
    if (p->kind == VT_PIECE_CALL)
        vt_json_string(w, "name", call->name);
    vt_json_string_n(w, "arguments", bytes, p->n);
    vt_json_close(w);
    vt_json_close(w);
    vt_json_close(w);
}

static void write_piece(const vt_openai_choice *c, const vt_openai_delta *p, vt_json *w)
{
    const char *bytes = c->fresh.data ? c->fresh.data + p->at : "";
    if (p->kind == VT_PIECE_CALL || p->kind == VT_PIECE_ARGUMENTS)
        write_call(c, p, bytes, w);
    else if (p->kind == VT_PIECE_TEXT)
        vt_json_string_n(w, "content", bytes, p->n);
    else
        vt_openai_write_reasoning(c, bytes, p->n, w);
}

/* Opens a chunk and its one choice, up to the delta. */
static vt_openai_choice *open_choice(vt_openai_reply *reply, int32_t prompt, const vt_event *e,
                                     vt_json *w)
{
    int32_t index = prompt * reply->n_each + e->sample;
    vt_openai_choice *c = &reply->choice[index];
    open_reply(reply, true, w, NULL);
    vt_json_open(w, NULL, '{');
    vt_json_int(w, "index", index);
    vt_json_open(w, "delta", '{');
    if (!c->begun)
        vt_json_string(w, "role", "assistant");
    c->begun = true;
    return c;
}

static void close_choice(const vt_openai_reply *reply, const vt_event *e, vt_json *w)
{
    vt_json_close(w);
    vt_json_close(w);
    if (reply->continuous_usage)
        write_usage(e->prompt_tokens, e->completion_tokens, e->cached_tokens, -1, w);
    else if (reply->include_usage)
        vt_json_null(w, "usage");
}

void vt_openai_piece_chunk_write(vt_openai_reply *reply, int32_t prompt, const vt_event *e,
                                 int32_t i, vt_json *w)
{
    vt_buf rows = {0};
    const vt_openai_choice *c = open_choice(reply, prompt, e, w);
    if (i < vt_openai_n_pieces(c)) {
        vt_openai_delta p = vt_openai_piece_at(c, i);
        write_piece(c, &p, w);
    }
    vt_json_close(w);
    if (i == 0 && reply->n_top >= 0 && e->n_tokens > 0 && e->logprobs &&
        vt_openai_add_rows(&rows, e, reply->n_top))
        vt_openai_write_logprobs(reply, rows.data, e->n_tokens, w);
    else
        vt_json_null(w, "logprobs");
    vt_buf_release(&rows);
    vt_json_null(w, "finish_reason");
    vt_json_null(w, "stop_reason");
    close_choice(reply, e, w);
    vt_json_close(w);
}

void vt_openai_end_chunk_open(vt_openai_reply *reply, int32_t prompt, const vt_event *e, vt_json *w)
{
    const vt_openai_choice *c = open_choice(reply, prompt, e, w);
    vt_json_close(w);
    vt_json_null(w, "logprobs");
    write_finish(reply, c, c->finish, c->stop, last_id(&c->ids), w);
    close_choice(reply, e, w);
}

void vt_openai_usage_chunk_write(const vt_openai_reply *reply, vt_json *w)
{
    open_reply(reply, true, w, NULL);
    vt_json_close(w);
    write_usage(reply->prompt_tokens, reply->completion_tokens, reply->cached_tokens,
                reply->splits ? reply->reasoning_tokens : -1, w);
    vt_json_close(w);
}
