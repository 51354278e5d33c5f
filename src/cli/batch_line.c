/* A line of an OpenAI batch (cli/batch_line.h).
 *
 * Fields are looked up in one table of readers; a field that is in none of the lists is refused by
 * name, because a sampling field that is silently ignored gives answers nobody asked for. A request
 * without a seed gets one from its custom_id, so that a batch gives the same answers when it is
 * interrupted and resumed. */
#include "cli/batch_line.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "cli/prompt.h"
#include "model/model.h"
#include "text/tokenizer/tokenizer.h"

/* ---- reading the line ---- */

vt_status batch_line_read(const char *text, size_t len, batch_line *out, vt_err *err)
{
    json_error_t why;
    *out = (batch_line){0};
    json_t *line = json_loadb(text, len, JSON_REJECT_DUPLICATES, &why);
    const char *id = json_string_value(json_object_get(line, "custom_id"));
    if (!id) {
        vt_status status = line
                               ? vt_fail(err, VT_ERR_FORMAT, "custom_id is missing or not a string")
                               : vt_fail(err, VT_ERR_FORMAT, "not JSON: %s (column %d)", why.text,
                                         why.column);
        json_decref(line);
        return status;
    }
    out->custom_id = strdup(id);
    const char *url = json_string_value(json_object_get(line, "url"));
    const char *method = json_string_value(json_object_get(line, "method"));
    json_t *body = json_object_get(line, "body");
    bool completions = url && strcmp(url, "/v1/completions") == 0;
    out->chat = url && strcmp(url, "/v1/chat/completions") == 0;
    if (!out->chat && !completions)
        vt_fail(&out->error, VT_ERR_USAGE,
                "url is '%.80s', expected /v1/chat/completions or /v1/completions",
                url ? url : "missing");
    else if (!method || strcmp(method, "POST") != 0)
        vt_fail(&out->error, VT_ERR_USAGE, "method is '%.20s', expected POST",
                method ? method : "missing");
    else if (!json_is_object(body))
        vt_fail(&out->error, VT_ERR_USAGE, "body is missing or not an object");
    else
        out->body = json_incref(body);
    json_decref(line);
    return out->custom_id ? VT_OK : vt_fail(err, VT_ERR_MEMORY, "out of memory");
}

/* ---- fields ---- */

static vt_status get_number(const json_t *body, const char *key, double lo, double hi, double *out,
                            vt_err *err)
{
    const json_t *v = json_object_get(body, key);
    if (!v || json_is_null(v))
        return VT_OK;
    double x = json_is_number(v) ? json_number_value(v) : NAN;
    if (!(x >= lo && x <= hi))
        return vt_fail(err, VT_ERR_USAGE, "%s: expected a number from %g to %g", key, lo, hi);
    *out = x;
    return VT_OK;
}

static vt_status get_float(const json_t *body, const char *key, double lo, double hi, float *out,
                           vt_err *err)
{
    double v = *out;
    TRY(get_number(body, key, lo, hi, &v, err));
    *out = (float)v;
    return VT_OK;
}

static vt_status get_int(const json_t *body, const char *key, int64_t lo, int64_t hi, int64_t *out,
                         vt_err *err)
{
    const json_t *v = json_object_get(body, key);
    if (!v || json_is_null(v))
        return VT_OK;
    if (!json_is_integer(v) || json_integer_value(v) < lo || json_integer_value(v) > hi)
        return vt_fail(err, VT_ERR_USAGE, "%s: expected a whole number from %lld to %lld", key,
                       (long long)lo, (long long)hi);
    *out = json_integer_value(v);
    return VT_OK;
}

static vt_status get_int32(const json_t *body, const char *key, int64_t lo, int64_t hi,
                           int32_t *out, vt_err *err)
{
    int64_t v = *out;
    TRY(get_int(body, key, lo, hi, &v, err));
    *out = (int32_t)v;
    return VT_OK;
}

static vt_status get_bool(const json_t *body, const char *key, bool *out, vt_err *err)
{
    const json_t *v = json_object_get(body, key);
    if (!v || json_is_null(v))
        return VT_OK;
    if (!json_is_boolean(v))
        return vt_fail(err, VT_ERR_USAGE, "%s: expected true or false", key);
    *out = json_is_true(v);
    return VT_OK;
}

static vt_status check_known(const batch_line *l, vt_err *err)
{
    static const char *const both[] = {"model",
                                       "max_tokens",
                                       "temperature",
                                       "top_p",
                                       "top_k",
                                       "min_p",
                                       "n",
                                       "stop",
                                       "seed",
                                       "presence_penalty",
                                       "frequency_penalty",
                                       "repetition_penalty",
                                       "logit_bias",
                                       "allowed_token_ids",
                                       "logprobs",
                                       "stream",
                                       "user",
                                       "metadata",
                                       "store",
                                       "ignore_eos",
                                       "priority",
                                       NULL};
    static const char *const chat[] = {"messages", "max_completion_tokens", "top_logprobs", NULL};
    static const char *const plain[] = {"prompt", NULL};
    const char *key;
    json_t *value;
    json_object_foreach(l->body, key, value)
    {
        const char *const *lists[] = {both, l->chat ? chat : plain};
        bool known = json_is_null(value); /* "not set", whatever it is */
        for (int i = 0; i < 2; i++)
            for (const char *const *k = lists[i]; *k; k++)
                known = known || strcmp(key, *k) == 0;
        if (!known)
            return vt_fail(err, VT_ERR_USAGE, "%.60s: not supported in a batch line", key);
    }
    return VT_OK;
}

static vt_status get_stop(batch_line *l, vt_err *err)
{
    const json_t *v = json_object_get(l->body, "stop");
    size_t n = json_is_array(v) ? json_array_size(v) : json_is_string(v);
    if (v && !json_is_null(v) && !json_is_array(v) && !json_is_string(v))
        return vt_fail(err, VT_ERR_USAGE, "stop: expected a string or a list of strings");
    if (n > 64)
        return vt_fail(err, VT_ERR_USAGE, "stop: %zu strings, expected at most 64", n);
    l->stop = vt_calloc(n + 1, sizeof *l->stop);
    if (!l->stop)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory");
    for (size_t i = 0; i < n; i++) {
        l->stop[i] = json_string_value(json_is_array(v) ? json_array_get(v, i) : v);
        if (!l->stop[i])
            return vt_fail(err, VT_ERR_USAGE, "stop: entry %zu is not a string", i);
    }
    l->p.stop = l->stop;
    l->p.n_stop = (int32_t)n;
    return VT_OK;
}

static vt_status get_bias(batch_line *l, vt_err *err)
{
    json_t *v = json_object_get(l->body, "logit_bias"), *bias;
    const char *key;
    if (!v || json_is_null(v))
        return VT_OK;
    if (!json_is_object(v) || json_object_size(v) > 1024)
        return vt_fail(err, VT_ERR_USAGE,
                       "logit_bias: expected an object of at most 1024 token ids");
    l->bias = vt_calloc(json_object_size(v) + 1, sizeof *l->bias);
    if (!l->bias)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory");
    json_object_foreach(v, key, bias)
    {
        char *end;
        long id = strtol(key, &end, 10);
        double x = json_number_value(bias);
        if (*end || end == key || id < 0 || id > INT32_MAX || !json_is_number(bias) ||
            !(fabs(x) <= 100))
            return vt_fail(err, VT_ERR_USAGE,
                           "logit_bias: '%.20s' expected a token id with -100 to 100", key);
        l->bias[l->p.n_logit_bias++] = (vt_logit_bias){(int32_t)id, (float)x};
    }
    l->p.logit_bias = l->bias;
    return VT_OK;
}

/* Chat: "logprobs": true and "top_logprobs": k. Completions: "logprobs": k. */
static vt_status get_logprobs(batch_line *l, vt_err *err)
{
    bool on = false;
    if (!l->chat)
        return get_int32(l->body, "logprobs", 0, 20, &l->p.logprobs, err);
    TRY(get_bool(l->body, "logprobs", &on, err));
    int32_t top = 0;
    TRY(get_int32(l->body, "top_logprobs", 0, 20, &top, err));
    if (top > 0 && !on)
        return vt_fail(err, VT_ERR_USAGE, "top_logprobs: needs \"logprobs\": true");
    l->p.logprobs = on ? top : -1;
    return VT_OK;
}

static uint64_t hash_text(const char *s) /* FNV-1a */
{
    uint64_t h = 0xcbf29ce484222325u;
    for (; *s; s++)
        h = (h ^ (uint8_t)*s) * 0x100000001b3u;
    return h;
}

static vt_status get_sampling(const cli *c, batch_line *l, vt_err *err)
{
    vt_request_params *p = &l->p;
    const json_t *b = l->body;
    bool stream = false, given = json_is_integer(json_object_get(b, "seed"));
    int64_t seed = 0;
    p->temperature = 1;
    TRY(get_float(b, "temperature", 0, 2, &p->temperature, err));
    TRY(get_float(b, "top_p", 0, 1, &p->top_p, err));
    TRY(get_float(b, "min_p", 0, 1, &p->min_p, err));
    TRY(get_float(b, "presence_penalty", -2, 2, &p->presence_penalty, err));
    TRY(get_float(b, "frequency_penalty", -2, 2, &p->frequency_penalty, err));
    TRY(get_float(b, "repetition_penalty", 0.01, 100, &p->repetition_penalty, err));
    TRY(get_int32(b, "top_k", -1, INT32_MAX, &p->top_k, err));
    p->top_k = p->top_k < 0 ? 0 : p->top_k;
    TRY(get_int32(b, "n", 1, 128, &p->n, err));
    TRY(get_int32(b, "priority", INT32_MIN / 2, INT32_MAX / 2, &p->priority, err));
    TRY(get_int(b, "seed", INT64_MIN, INT64_MAX, &seed, err));
    TRY(get_bool(b, "ignore_eos", &p->ignore_eos, err));
    TRY(get_bool(b, "stream", &stream, err));
    if (stream)
        return vt_fail(err, VT_ERR_USAGE, "stream: a batch line cannot stream");
    p->has_seed = true;
    p->seed = given ? (uint64_t)seed
                    : hash_text(l->custom_id) ^ (uint64_t)vt_options_int(c->options, "seed");
    return VT_OK;
}

static vt_status get_max_tokens(const cli *c, const vt_model *m, batch_line *l, vt_err *err)
{
    int32_t room = vt_model_max_context(m); /* the engine ends it where the context does */
    l->p.max_tokens = vt_options_given(c->options, "max-tokens")
                          ? (int32_t)vt_options_int(c->options, "max-tokens")
                      : l->chat ? room
                                : 16; /* as OpenAI's endpoints have it */
    TRY(get_int32(l->body, "max_tokens", 1, INT32_MAX, &l->p.max_tokens, err));
    return l->chat
               ? get_int32(l->body, "max_completion_tokens", 1, INT32_MAX, &l->p.max_tokens, err)
               : VT_OK;
}

/* `field`: at most `most` ids below `vocab`. */
static vt_status get_id_list(const char *field, const json_t *list, int32_t most, int32_t vocab,
                             cli_ids *ids, vt_err *err)
{
    size_t n = json_array_size(list);
    if (n == 0 || n > (size_t)most)
        return vt_fail(err, VT_ERR_USAGE, "%s: %zu token ids, expected 1 to %d", field, n, most);
    ids->id = vt_calloc(n, sizeof *ids->id);
    if (!ids->id)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory");
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, i);
        if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) >= vocab)
            return vt_fail(err, VT_ERR_USAGE, "%s: entry %zu is not a token id, expected 0 to %d",
                           field, i, vocab - 1);
        ids->id[ids->n++] = (int32_t)json_integer_value(v);
    }
    return VT_OK;
}

static vt_status get_allowed(const vt_model *m, batch_line *l, vt_err *err)
{
    const json_t *v = json_object_get(l->body, "allowed_token_ids");
    cli_ids ids = {0};
    if (!v || json_is_null(v))
        return VT_OK;
    if (!json_is_array(v))
        return vt_fail(err, VT_ERR_USAGE, "allowed_token_ids: expected a list of token ids");
    vt_status status = get_id_list("allowed_token_ids", v, 1 << 20, m->arch.vocab, &ids, err);
    l->p.allowed = l->allowed = ids.id;
    l->p.n_allowed = ids.n;
    return status;
}

static vt_status get_prompt(const vt_model *m, batch_line *l, vt_err *err)
{
    cli_ids ids = {0};
    vt_status status;
    json_t *v = json_object_get(l->body, l->chat ? "messages" : "prompt");
    if (l->chat && json_is_array(v) && json_array_size(v) > 0)
        status = cli_encode_messages(m, v, &ids, err);
    else if (l->chat)
        status = vt_fail(err, VT_ERR_USAGE, "messages: expected a list of at least one message");
    else if (json_is_string(v))
        status = cli_encode(m, json_string_value(v), json_string_length(v), VT_TOKENIZE_ADD_BOS,
                            &ids, err);
    else if (json_is_array(v))
        status = get_id_list("prompt", v, 1 << 24, m->arch.vocab, &ids, err);
    else
        status = vt_fail(err, VT_ERR_USAGE, "prompt: expected a string or a list of token ids");
    l->p.prompt = l->prompt = ids.id;
    l->p.n_prompt = ids.n;
    return status;
}

static vt_status read_params(const cli *c, const vt_model *m, batch_line *l, vt_err *err)
{
    TRY(check_known(l, err));
    TRY(get_sampling(c, l, err));
    TRY(get_max_tokens(c, m, l, err));
    TRY(get_logprobs(l, err));
    TRY(get_stop(l, err));
    TRY(get_bias(l, err));
    TRY(get_allowed(m, l, err));
    TRY(get_prompt(m, l, err));
    l->choice = vt_calloc((size_t)l->p.n, sizeof *l->choice);
    l->n_open = l->p.n;
    return l->choice ? VT_OK : vt_fail(err, VT_ERR_MEMORY, "out of memory");
}

void batch_line_params(const cli *c, const vt_model *m, batch_line *l)
{
    vt_request_init(&l->p);
    l->error.status = read_params(c, m, l, &l->error);
}

/* ---- the result ---- */

void batch_line_event(batch_line *l, const vt_event *e)
{
    batch_choice *ch = &l->choice[e->sample];
    vt_buf_add(&ch->text, e->text, e->text_len);
    for (int32_t i = 0; e->logprobs && i < e->n_tokens; i++) {
        vt_buf_add(&ch->logprobs, &e->logprobs[i], sizeof e->logprobs[i]);
        if (e->n_top > 0)
            vt_buf_add(&ch->logprobs, e->top_logprobs + (size_t)i * (size_t)e->n_top,
                       (size_t)e->n_top * sizeof *e->top_logprobs);
    }
    ch->n_tokens += e->n_tokens;
    if (e->finish == VT_FINISH_NONE)
        return;
    ch->finish = e->finish;
    l->n_open--;
    l->prompt_tokens = e->prompt_tokens;
    l->completion_tokens += e->completion_tokens;
    l->cached_tokens = e->sample == 0 ? e->cached_tokens : l->cached_tokens;
    if (e->finish == VT_FINISH_ERROR && l->error.status == VT_OK)
        l->error.status = vt_fail(&l->error, VT_ERR_DEVICE, "%s", e->error);
}

/* `bytes` are the token's own, which may be part of a character: `token` has U+FFFD there. */
static json_t *token_json(const vt_model *m, const vt_token_logprob *t)
{
    vt_buf text;
    vt_buf_init(&text, 0);
    if (!m->tokenizer || !vt_tokenizer_piece(m->tokenizer, t->id, &text))
        text.len = 0;
    json_t *bytes = json_array();
    for (size_t i = 0; i < text.len; i++)
        json_array_append_new(bytes, json_integer((unsigned char)text.data[i]));
    json_t *j = json_pack("{s:o, s:o, s:o}", "token",
                          cli_json_text(text.data ? text.data : "", text.len), "logprob",
                          cli_json_number(t->logprob, 6), "bytes", bytes);
    vt_buf_release(&text);
    return j;
}

static json_t *logprobs_json(const batch_line *l, const vt_model *m, const batch_choice *ch)
{
    if (l->p.logprobs < 0)
        return json_null();
    size_t row = 1 + (size_t)l->p.logprobs;
    json_t *content = json_array();
    for (int32_t i = 0; i < ch->n_tokens; i++) {
        vt_token_logprob t[21];
        memcpy(t, ch->logprobs.data + (size_t)i * row * sizeof *t, row * sizeof *t);
        json_t *token = token_json(m, &t[0]), *top = json_array();
        for (size_t k = 1; k < row; k++)
            if (t[k].id >= 0) /* fewer could be chosen */
                json_array_append_new(top, token_json(m, &t[k]));
        json_object_set_new(token, "top_logprobs", top);
        json_array_append_new(content, token);
    }
    return json_pack("{s:o}", "content", content);
}

static json_t *choice_json(const batch_line *l, const vt_model *m, int32_t i)
{
    const batch_choice *ch = &l->choice[i];
    json_t *text = cli_json_text(ch->text.data ? ch->text.data : "", ch->text.len);
    json_t *j = json_pack("{s:i, s:o, s:s}", "index", i, "logprobs", logprobs_json(l, m, ch),
                          "finish_reason", cli_finish_name(ch->finish));
    if (l->chat)
        json_object_set_new(j, "message",
                            json_pack("{s:s, s:o}", "role", "assistant", "content", text));
    else
        json_object_set_new(j, "text", text);
    return j;
}

static json_t *body_json(const batch_line *l, const vt_model *m)
{
    json_t *choices = json_array();
    for (int32_t i = 0; i < l->p.n; i++)
        json_array_append_new(choices, choice_json(l, m, i));
    return json_pack("{s:o, s:s, s:s, s:o, s:{s:i, s:i, s:i, s:{s:i}}}", "id",
                     json_sprintf("%s-%s", l->chat ? "chatcmpl" : "cmpl", l->custom_id), "object",
                     l->chat ? "chat.completion" : "text_completion", "model", vt_model_name(m),
                     "choices", choices, "usage", "prompt_tokens", l->prompt_tokens,
                     "completion_tokens", l->completion_tokens, "total_tokens",
                     l->prompt_tokens + l->completion_tokens, "prompt_tokens_details",
                     "cached_tokens", l->cached_tokens);
}

vt_status batch_line_result(const batch_line *l, const vt_model *m, vt_buf *out, vt_err *err)
{
    bool failed = l->error.status != VT_OK;
    int code = !failed ? 200 : l->error.status == VT_ERR_DEVICE ? 500 : 400;
    json_t *body = failed
                       ? json_pack("{s:{s:s, s:s}}", "error", "message", l->error.message, "type",
                                   code == 400 ? "invalid_request_error" : "server_error")
                       : body_json(l, m);
    json_t *j = json_pack("{s:o, s:s, s:{s:i, s:s, s:o}, s:n}", "id",
                          json_sprintf("batch_req_%s", l->custom_id), "custom_id", l->custom_id,
                          "response", "status_code", code, "request_id", l->custom_id, "body", body,
                          "error");
    char *text = j ? json_dumps(j, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    bool ok = text && vt_buf_puts(out, text) && vt_buf_putc(out, '\n');
    free(text);
    json_decref(j);
    return ok ? VT_OK
              : vt_fail(err, VT_ERR_MEMORY, "out of memory for the result of %.80s", l->custom_id);
}

void batch_line_release(batch_line *l)
{
    for (int32_t i = 0; l->choice && i < l->p.n; i++) {
        vt_buf_release(&l->choice[i].text);
        vt_buf_release(&l->choice[i].logprobs);
    }
    free(l->choice);
    free(l->custom_id);
    free(l->stop);
    free(l->bias);
    free(l->allowed);
    vt_free(l->prompt);
    json_decref(l->body);
    *l = (batch_line){0};
}
