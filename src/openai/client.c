#include "openai/client.h"

#include <math.h>
#include <string.h>

#include "base/err.h"
#include "openai/json_load.h"

static void write_message(vt_json *w, const char *role, const char *text, size_t len)
{
    vt_json_open(w, NULL, '{');
    vt_json_string(w, "role", role);
    vt_json_string_n(w, "content", text, len);
    vt_json_close(w);
}

static void write_prompt(const vt_openai_call *c, vt_json *w)
{
    if (c->chat) {
        vt_json_open(w, "messages", '[');
        for (int32_t i = 0; i < c->n_turns; i++)
            write_message(w, c->turn[i].role, c->turn[i].text, c->turn[i].len);
        write_message(w, "user", c->text, c->text_len);
        vt_json_close(w);
    } else if (c->ids) {
        vt_json_ints(w, "prompt", c->ids, c->n_ids);
    } else {
        vt_json_string_n(w, "prompt", c->text, c->text_len);
    }
}

void vt_openai_call_write(const vt_openai_call *c, vt_json *w)
{
    vt_json_open(w, NULL, '{');
    if (c->model)
        vt_json_string(w, "model", c->model);
    write_prompt(c, w);
    if (c->max_tokens > 0)
        vt_json_int(w, "max_tokens", c->max_tokens);
    if (!isnan(c->temperature))
        vt_json_real(w, "temperature", c->temperature);
    if (c->ignore_eos)
        vt_json_bool(w, "ignore_eos", true);
    if (c->stream) {
        vt_json_bool(w, "stream", true);
        vt_json_open(w, "stream_options", '{');
        vt_json_bool(w, "include_usage", true);
        vt_json_close(w);
    }
    vt_json_close(w);
}

/* ---- reading ---- */

static int32_t count_of(const json_t *object, const char *name)
{
    const json_t *v = json_object_get(object, name);
    bool sane = json_is_integer(v) && json_integer_value(v) >= 0 &&
                json_integer_value(v) <= INT32_MAX;
    return sane ? (int32_t)json_integer_value(v) : -1;
}

static void read_choice(const json_t *choice, vt_openai_piece *p)
{
    const json_t *message = json_object_get(choice, "message"),
                 *delta = json_object_get(choice, "delta"), *text = json_object_get(choice, "text");
    const char *reason = json_string_value(json_object_get(choice, "finish_reason"));
    text = message ? json_object_get(message, "content")
           : delta ? json_object_get(delta, "content")
                   : text;
    if (delta && !json_is_string(text)) /* thinking, which some servers send apart */
        text = json_object_get(delta, "reasoning_content");
    if (json_is_string(text))
        vt_buf_add(&p->text, json_string_value(text), json_string_length(text));
    if (!reason)
        return;
    p->n_finished++;
    p->finish = strcmp(reason, "stop") == 0     ? VT_FINISH_STOP
                : strcmp(reason, "length") == 0 ? VT_FINISH_LENGTH
                                                : VT_FINISH_ABORT;
}

/* {"error": {"message"}}, {"error": "text"}, or {"object": "error", "message"}. */
static void read_error(const json_t *reply, vt_openai_piece *p)
{
    const json_t *error = json_object_get(reply, "error");
    const char *object = json_string_value(json_object_get(reply, "object"));
    bool flat = object && strcmp(object, "error") == 0;
    if (!flat && (!error || json_is_null(error)))
        return;
    const char *message = flat ? json_string_value(json_object_get(reply, "message"))
                          : json_is_string(error)
                              ? json_string_value(error)
                              : json_string_value(json_object_get(error, "message"));
    const char *param = json_string_value(json_object_get(flat ? reply : error, "param"));
    vt_openai_refuse(&p->error, 500, param, "%s", message ? message : "an error without a message");
}

vt_status vt_openai_piece_read(const char *json, size_t len, vt_openai_piece *p, vt_err *err)
{
    json_t *reply;
    vt_buf_clear(&p->text);
    *p = (vt_openai_piece){
        .text = p->text, .prompt_tokens = -1, .completion_tokens = -1, .cached_tokens = -1};
    if (vt_openai_json_load(json, len, &reply, &p->error) != VT_OK)
        return vt_fail(err, VT_ERR_FORMAT, "the reply: %s", p->error.message);
    const json_t *choices = json_object_get(reply, "choices"),
                 *usage = json_object_get(reply, "usage");
    for (size_t i = 0; i < json_array_size(choices); i++)
        read_choice(json_array_get(choices, i), p);
    if (json_is_object(usage)) {
        p->prompt_tokens = count_of(usage, "prompt_tokens");
        p->completion_tokens = count_of(usage, "completion_tokens");
        p->cached_tokens = count_of(json_object_get(usage, "prompt_tokens_details"),
                                    "cached_tokens");
    }
    read_error(reply, p);
    bool known = json_is_array(choices) || p->error.http;
    json_decref(reply);
    if (p->text.failed)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for the reply");
    return known ? VT_OK
                 : vt_fail(err, VT_ERR_FORMAT, "the reply has neither choices nor an error");
}

void vt_openai_piece_release(vt_openai_piece *p) { vt_buf_release(&p->text); }
