/* Members of a request body, one function for each kind of value (openai/fields.h). */
#include "openai/fields.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "engine/request.h"
#include "model/lora/lora.h"
#include "model/model.h"

enum { MAX_LOGPROBS = 20, MAX_SALT = 128 };

/* ---- values ---- */

vt_status field_refuse(reader *r, const char *name, const json_t *v, const char *want)
{
    return vt_openai_refuse_value(r->e, name, v, want, "%s", name);
}

vt_status field_refuse_bool(reader *r, const char *name, const json_t *v)
{
    return field_refuse(r, name, v, "true or false");
}

/* A whole number, which some clients' libraries write as 16.0. False: it is none of 64 bits. */
static bool read_whole(const json_t *v, int64_t *out)
{
    const double limit = 9223372036854775808.0; /* 2^63 */
    double x = json_real_value(v);
    if (json_is_real(v) && !(x >= -limit && x < limit && trunc(x) == x))
        return false;
    *out = json_is_real(v) ? (int64_t)x : json_integer_value(v);
    return json_is_number(v);
}

vt_status field_int(reader *r, const char *name, const json_t *v, int64_t lo, int64_t hi,
                    int32_t *out)
{
    char want[80];
    int64_t n;
    snprintf(want, sizeof want, "a whole number from %lld to %lld", (long long)lo, (long long)hi);
    if (!read_whole(v, &n) || n < lo || n > hi)
        return field_refuse(r, name, v, want);
    *out = (int32_t)n;
    return VT_OK;
}

vt_status field_float(reader *r, const field *f, const json_t *v, float *out)
{
    char want[80];
    double x = json_is_number(v) ? json_number_value(v) : NAN;
    snprintf(want, sizeof want, "a number from %g to %g", f->lo, f->hi);
    if (!(x >= f->lo && x <= f->hi))
        return field_refuse(r, f->name, v, want);
    *out = (float)x;
    return VT_OK;
}

vt_status field_no_memory(reader *r)
{
    return vt_openai_refuse(r->e, 500, NULL, "out of memory for the request");
}

/* A list of 1 to `most` token ids, copied into the request's arena. */
vt_status field_ids(reader *r, const char *name, const json_t *list, size_t most,
                    const int32_t **ids, int32_t *n_ids)
{
    size_t n = json_array_size(list);
    if (!json_is_array(list))
        return field_refuse(r, name, list, "a list of token ids");
    if (n == 0 || n > most)
        return vt_openai_refuse(r->e, 400, name, "%s: %zu token ids, expected 1 to %zu", name, n,
                                most);
    int32_t *out = vt_arena_alloc(&r->r->arena, n, sizeof *out);
    if (!out)
        return field_no_memory(r);
    for (size_t i = 0; i < n; i++) {
        int64_t id;
        if (!read_whole(json_array_get(list, i), &id) || id < 0 || id >= r->m->arch.vocab)
            return vt_openai_refuse(r->e, 400, name,
                                    "%s: entry %zu is not a token id, expected 0 to %d", name, i,
                                    r->m->arch.vocab - 1);
        out[i] = (int32_t)id;
    }
    *ids = out;
    *n_ids = (int32_t)n;
    return VT_OK;
}

/* A string without U+0000, copied into the request's arena. */
static vt_status copy_string(reader *r, const char *name, const json_t *v, const char **out)
{
    size_t len = json_string_length(v);
    if (memchr(json_string_value(v), 0, len))
        return vt_openai_refuse(r->e, 400, name, "%s: holds U+0000, which it may not", name);
    *out = vt_arena_strdup(&r->r->arena, json_string_value(v), len);
    return *out ? VT_OK : field_no_memory(r);
}

/* ---- fields with a function of their own ---- */

/* The last part of a path, without ".gguf". */
static bool is_base_name(const char *name, const char *path)
{
    const char *slash = path ? strrchr(path, '/') : NULL, *base = slash ? slash + 1 : path;
    size_t n = base ? strlen(base) : 0;
    if (n == 0)
        return false;
    if (strcmp(name, base) == 0)
        return true;
    return n > 5 && strcmp(base + n - 5, ".gguf") == 0 && strlen(name) == n - 5 &&
           memcmp(name, base, n - 5) == 0;
}

bool vt_openai_is_model(const vt_model *m, const vt_openai_defaults *d, const char *name)
{
    const char *names[] = {"",           vt_model_name(m), d->model_name, d->model_alias,
                           d->list_name, m->path};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i] && strcmp(name, names[i]) == 0)
            return true;
    return is_base_name(name, d->model_alias) || is_base_name(name, m->path);
}

vt_status field_read_model(reader *r, const field *f, json_t *v)
{
    const char *name = json_string_value(v), *served = r->d->model_name;
    if (!name)
        return field_refuse(r, f->name, v, "a string");
    bool whole = strlen(name) == json_string_length(v);
    int32_t adapter = whole ? vt_lora_find(r->m, name) : 0;
    if (adapter > 0) {
        r->r->p.adapter = r->r->model_name = r->m->lora->name[adapter - 1];
        return VT_OK;
    }
    if (whole && vt_openai_is_model(r->m, r->d, name))
        return VT_OK;
    vt_openai_refuse(r->e, 404, f->name, "model: '%.80s' is not here, expected '%.200s'", name,
                     served ? served : vt_model_name(r->m));
    r->e->code = "model_not_found";
    return VT_ERR_USAGE;
}

vt_status field_read_max_tokens(reader *r, const field *f, json_t *v)
{
    bool newer = strcmp(f->name, "max_completion_tokens") == 0;
    return field_int(r, f->name, v, 0, INT32_MAX,
                     newer ? &r->max_completion_tokens : &r->max_tokens);
}

/* Chat: a boolean. Completions: how many alternatives. */
vt_status field_read_logprobs(reader *r, const field *f, json_t *v)
{
    if (r->where == TEXT)
        return json_is_false(v) ? VT_OK : field_int(r, f->name, v, 0, MAX_LOGPROBS, &r->r->n_top);
    if (!json_is_boolean(v))
        return field_refuse_bool(r, f->name, v);
    r->want_logprobs = json_is_true(v);
    return VT_OK;
}

vt_status field_read_top_logprobs(reader *r, const field *f, json_t *v)
{
    return field_int(r, f->name, v, 0, MAX_LOGPROBS, &r->top_logprobs);
}

vt_status field_read_prompt_logprobs(reader *r, const field *f, json_t *v)
{
    return field_int(r, f->name, v, 0, MAX_LOGPROBS, &r->r->n_prompt_top);
}

vt_status field_read_top_k(reader *r, const field *f, json_t *v)
{
    TRY(field_int(r, f->name, v, -1, INT32_MAX, &r->r->p.top_k));
    r->r->p.top_k = r->r->p.top_k < 0 ? 0 : r->r->p.top_k; /* -1: off, as in vLLM */
    return VT_OK;
}

vt_status field_read_seed(reader *r, const field *f, json_t *v)
{
    int64_t seed;
    if (!read_whole(v, &seed))
        return field_refuse(r, f->name, v, "a whole number of 64 bits, its sign included");
    r->r->p.has_seed = true;
    r->r->p.seed = (uint64_t)seed;
    return VT_OK;
}

/* An empty string ends nothing and is left out, as OpenAI does. */
vt_status field_read_stop(reader *r, const field *f, json_t *v)
{
    size_t n = json_is_array(v) ? json_array_size(v) : 1;
    if (!json_is_array(v) && !json_is_string(v))
        return field_refuse(r, f->name, v, "a string or a list of strings");
    if (n > VT_MAX_STOPS)
        return vt_openai_refuse(r->e, 400, f->name, "stop: %zu strings, expected at most %d", n,
                                VT_MAX_STOPS);
    const char **stop = vt_arena_alloc(&r->r->arena, n + 1, sizeof *stop);
    if (!stop)
        return field_no_memory(r);
    r->r->p.stop = stop;
    for (size_t i = 0; i < n; i++) {
        const json_t *s = json_is_array(v) ? json_array_get(v, i) : v;
        if (!json_is_string(s))
            return vt_openai_refuse(r->e, 400, f->name, "stop: entry %zu is not a string", i);
        if (json_string_length(s) > VT_MAX_STOP_BYTES)
            return vt_openai_refuse(r->e, 400, f->name,
                                    "stop: entry %zu has %zu bytes, expected at most %d", i,
                                    json_string_length(s), VT_MAX_STOP_BYTES);
        if (json_string_length(s) > 0)
            TRY(copy_string(r, f->name, s, &stop[r->r->p.n_stop++]));
    }
    return VT_OK;
}

vt_status field_read_stop_ids(reader *r, const field *f, json_t *v)
{
    if (json_is_array(v) && json_array_size(v) == 0)
        return VT_OK;
    return field_ids(r, f->name, v, VT_MAX_STOP_IDS, &r->r->p.stop_ids, &r->r->p.n_stop_ids);
}

vt_status field_read_allowed(reader *r, const field *f, json_t *v)
{
    return field_ids(r, f->name, v, VT_MAX_ALLOWED, &r->r->p.allowed, &r->r->p.n_allowed);
}

/* Returns the token id that the key spells in the one way that JSON has for a number; -1: none. */
static int32_t token_id(const char *key, int32_t vocab)
{
    int32_t id = 0;
    if (!*key || (key[0] == '0' && key[1]))
        return -1;
    for (; *key; key++) {
        if (*key < '0' || *key > '9' || id >= vocab)
            return -1;
        id = id * 10 + (*key - '0');
    }
    return id < vocab ? id : -1;
}

vt_status field_read_bias(reader *r, const field *f, json_t *v)
{
    const char *key;
    json_t *bias;
    if (!json_is_object(v))
        return field_refuse(r, f->name, v, "an object of token ids");
    if (json_object_size(v) > VT_MAX_LOGIT_BIAS)
        return vt_openai_refuse(r->e, 400, f->name, "%s: %zu token ids found, expected at most %d",
                                f->name, json_object_size(v), VT_MAX_LOGIT_BIAS);
    vt_logit_bias *out = vt_arena_alloc(&r->r->arena, json_object_size(v) + 1, sizeof *out);
    if (!out)
        return field_no_memory(r);
    r->r->p.logit_bias = out;
    json_object_foreach(v, key, bias)
    {
        int32_t id = token_id(key, r->m->arch.vocab);
        double x = json_number_value(bias);
        if (id < 0)
            return vt_openai_refuse(r->e, 400, f->name,
                                    "%s: '%.20s' found, expected a token id below %d", f->name, key,
                                    r->m->arch.vocab);
        if (!json_is_number(bias) || !(fabs(x) <= 100))
            return vt_openai_refuse_value(r->e, f->name, bias, "a number from -100 to 100", "%s.%s",
                                          f->name, key);
        out[r->r->p.n_logit_bias++] = (vt_logit_bias){id, (float)x};
    }
    return VT_OK;
}

vt_status field_read_salt(reader *r, const field *f, json_t *v)
{
    if (!json_is_string(v))
        return field_refuse(r, f->name, v, "a string");
    if (json_string_length(v) < 1 || json_string_length(v) > MAX_SALT)
        return vt_openai_refuse(r->e, 400, f->name, "%s: %zu bytes found, expected 1 to %d",
                                f->name, json_string_length(v), MAX_SALT);
    return copy_string(r, f->name, v, &r->r->p.cache_salt);
}

vt_status field_read_stream(reader *r, const field *f, json_t *v)
{
    if (!json_is_boolean(v))
        return field_refuse_bool(r, f->name, v);
    r->r->stream = json_is_true(v);
    if (r->r->stream && !r->d->may_stream)
        return vt_openai_refuse(r->e, 400, f->name, "stream: true is not possible in a batch");
    return VT_OK;
}

vt_status field_read_stream_options(reader *r, const field *f, json_t *v)
{
    const char *key;
    json_t *value;
    if (!json_is_object(v))
        return field_refuse(r, f->name, v, "an object");
    r->has_stream_options = true;
    json_object_foreach(v, key, value)
    {
        bool usage = strcmp(key, "include_usage") == 0;
        if (!usage && strcmp(key, "continuous_usage_stats") != 0)
            return vt_openai_refuse(r->e, 400, f->name, "stream_options.%.60s: not supported", key);
        if (json_is_null(value))
            continue;
        if (!json_is_boolean(value))
            return field_refuse_bool(
                r, usage ? "stream_options.include_usage" : "stream_options.continuous_usage_stats",
                value);
        *(usage ? &r->r->include_usage : &r->r->continuous_usage) = json_is_true(value);
    }
    return VT_OK;
}

vt_status field_read_prompt(reader *r, const field *f, json_t *v)
{
    if (strcmp(f->name, "messages") == 0)
        r->messages = v;
    else
        r->prompt = v;
    return VT_OK;
}

vt_status field_read_input_ids(reader *r, const field *f, json_t *v)
{
    (void)f;
    r->input_ids = v;
    return VT_OK;
}

vt_status field_read_encoding(reader *r, const field *f, json_t *v)
{
    const char *s = json_is_string(v) ? json_string_value(v) : "";
    r->r->base64 = strcmp(s, "base64") == 0;
    if (r->r->base64 || strcmp(s, "float") == 0)
        return VT_OK;
    return vt_openai_refuse_word(r->e, f->name, v, "float or base64", "%s", f->name);
}

vt_status field_read_prompt_name(reader *r, const field *f, json_t *v)
{
    const char *name = json_string_value(v);
    if (!name)
        return field_refuse(r, f->name, v, "a string");
    r->before = vt_model_prompt(r->m, name);
    if (r->before)
        return VT_OK;
    return vt_openai_refuse(r->e, 400, f->name, "prompt_name: %s",
                            r->m->pooled.n_prompts ? "the model has no prompt of that name"
                                                   : "the model's files have no prompts");
}

vt_status field_read_sampling(reader *r, const field *f, json_t *v)
{
    if (!json_is_object(v))
        return field_refuse(r, f->name, v, "one object, which holds for all prompts");
    r->sampling = v;
    return VT_OK;
}

vt_status field_read_kwargs(reader *r, const field *f, json_t *v)
{
    if (!json_is_object(v))
        return field_refuse(r, f->name, v, "an object");
    r->kwargs = v;
    return VT_OK;
}

vt_status field_read_tools(reader *r, const field *f, json_t *v)
{
    if (!json_is_array(v))
        return field_refuse(r, f->name, v, "a list");
    r->tools = v;
    return VT_OK;
}

static bool is_text(const json_t *v)
{
    return json_is_string(v) && strlen(json_string_value(v)) == json_string_length(v);
}

/* {"mode": "auto" or "required", "tools": [{"type": "function", "function": {"name": ..}}]} */
static vt_status read_allowed_tools(reader *r, const field *f, const json_t *v)
{
    const char *mode = json_string_value(json_object_get(v, "mode"));
    r->must_call = mode && strcmp(mode, "required") == 0;
    if (!r->must_call && (!mode || strcmp(mode, "auto") != 0))
        return vt_openai_refuse_word(r->e, f->name, json_object_get(v, "mode"), "auto or required",
                                     "%s.allowed_tools.mode", f->name);
    r->allowed = json_object_get(v, "tools");
    if (!json_is_array(r->allowed) || json_array_size(r->allowed) == 0)
        return vt_openai_refuse_value(r->e, f->name, r->allowed, "a list of functions",
                                      "%s.allowed_tools.tools", f->name);
    for (size_t i = 0; i < json_array_size(r->allowed); i++) {
        const json_t *tool = json_array_get(r->allowed, i), *type = json_object_get(tool, "type");
        const json_t *name = json_object_get(json_object_get(tool, "function"), "name");
        if (!json_is_string(type) || strcmp(json_string_value(type), "function") != 0 ||
            !is_text(name))
            return vt_openai_refuse(r->e, 400, f->name,
                                    "tool_choice: tool %zu of allowed_tools is no function with "
                                    "its name",
                                    i);
    }
    return VT_OK;
}

vt_status field_read_tool_choice(reader *r, const field *f, json_t *v)
{
    const char *s = json_string_value(v);
    const char *type = json_string_value(json_object_get(v, "type"));
    if (type && strcmp(type, "allowed_tools") == 0)
        return read_allowed_tools(r, f, json_object_get(v, "allowed_tools"));
    r->no_calls = s && strcmp(s, "none") == 0;
    r->must_call = (s && strcmp(s, "required") == 0) || json_is_object(v);
    r->function = json_object_get(json_object_get(v, "function"), "name");
    if (r->no_calls || (s && (r->must_call || strcmp(s, "auto") == 0)) || is_text(r->function))
        return VT_OK;
    return vt_openai_refuse_word(r->e, f->name, v,
                                 "none, auto, required, {\"type\": \"function\", \"function\": "
                                 "{\"name\": ...}}, or an object of type allowed_tools",
                                 "%s", f->name);
}

vt_status field_read_parallel(reader *r, const field *f, json_t *v)
{
    if (!json_is_boolean(v))
        return field_refuse_bool(r, f->name, v);
    r->single_call = json_is_false(v);
    return VT_OK;
}

vt_status field_read_separate(reader *r, const field *f, json_t *v)
{
    if (!json_is_boolean(v))
        return field_refuse_bool(r, f->name, v);
    r->unsplit = json_is_false(v);
    return VT_OK;
}

vt_status field_read_budget(reader *r, const field *f, json_t *v)
{
    return field_int(r, f->name, v, 1, INT32_MAX, &r->max_thought);
}

vt_status vt_openai_check_effort(const json_t *v, const char *param, const char *said,
                                 vt_openai_error *e)
{
    static const char *const efforts[] = {"none", "minimal", "low", "medium",
                                          "high", "xhigh",   "max"};
    const char *effort = json_string_value(v);
    for (size_t i = 0; effort && i < sizeof efforts / sizeof *efforts; i++)
        if (strcmp(effort, efforts[i]) == 0)
            return VT_OK;
    return vt_openai_refuse_word(e, param, v, "one of none, minimal, low, medium, high, xhigh, max",
                                 "%s", said);
}

vt_status field_read_effort(reader *r, const field *f, json_t *v)
{
    r->effort = json_string_value(v);
    return vt_openai_check_effort(v, f->name, f->name, r->e);
}

vt_status field_read_open_turn(reader *r, const field *f, json_t *v)
{
    r->open_turn = json_is_true(v);
    return json_is_boolean(v) ? VT_OK : field_refuse_bool(r, f->name, v);
}

/* Of a text. What a chat begins with is up to its template, so there it changes nothing. */
vt_status field_read_add_bos(reader *r, const field *f, json_t *v)
{
    r->add_bos = json_is_true(v);
    return json_is_boolean(v) ? VT_OK : field_refuse_bool(r, f->name, v);
}

vt_status field_read_truncate(reader *r, const field *f, json_t *v)
{
    r->truncate = json_is_true(v);
    return json_is_boolean(v) ? VT_OK : field_refuse_bool(r, f->name, v);
}

vt_status field_read_rid(reader *r, const field *f, json_t *v)
{
    const char *s = json_string_value(v);
    size_t len = json_string_length(v), plain = 0;
    while (s && plain < len && s[plain] > ' ' && s[plain] < 0x7f)
        plain++;
    if (!s)
        return field_refuse(r, f->name, v, "a string");
    if (len == 0 || len > VT_OPENAI_MAX_ID || plain < len)
        return vt_openai_refuse(
            r->e, 400, f->name, "rid: %zu bytes found%s, expected 1 to %d visible ASCII characters",
            len, plain < len ? " with others among them" : "", VT_OPENAI_MAX_ID);
    r->r->id = vt_arena_strdup(&r->r->arena, s, len);
    return r->r->id ? VT_OK : field_no_memory(r);
}

vt_status field_read_return_logprob(reader *r, const field *f, json_t *v)
{
    r->want_logprobs = json_is_true(v);
    return json_is_boolean(v) ? VT_OK : field_refuse_bool(r, f->name, v);
}

/* Fields that are accepted only where they ask for what is done anyway. */
vt_status field_read_neutral(reader *r, const field *f, json_t *v)
{
    json_t *values = json_loads(f->only, 0, NULL);
    bool known = false;
    for (size_t i = 0; i < json_array_size(values) && !known; i++) {
        const json_t *value = json_array_get(values, i);
        known = json_is_number(value) && json_is_number(v)
                    ? json_number_value(value) == json_number_value(v)
                    : json_equal(value, v);
    }
    json_decref(values);
    if (known)
        return VT_OK;
    return vt_openai_refuse(r->e, 400, f->name,
                            "%s: not supported; leave it out, or give one of these, which ask for "
                            "what is done anyway: %.*s",
                            f->name, (int)strlen(f->only) - 2, f->only + 1);
}
