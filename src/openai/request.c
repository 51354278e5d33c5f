/* Reading a request body (openai/request.h).
 *
 *   1. Each member of the body is looked up in the table of fields: a number goes straight into
 *      the engine's parameters, everything else has a function of its own.
 *   2. What several fields say together is settled: max_tokens, logprobs, stream_options.
 *   3. The prompts are rendered and tokenised last, because they cost most. */
#include "openai/request.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "engine/chat.h"
#include "engine/request.h"
#include "model/model.h"

enum { MAX_PROMPT = 1 << 24, MAX_SALT = 1024, MAX_LOGPROBS = 20 };

/* The request that is being read. Members are borrowed from the body. */
typedef struct reader {
    const vt_model *m;
    const vt_openai_defaults *d;
    vt_openai_request *r;
    vt_openai_error *e;
    int32_t max_tokens, max_completion_tokens; /* 0: not given */
    bool want_logprobs;                        /* chat's "logprobs": true */
    int32_t top_logprobs;
    const json_t *prompt, *messages; /* NULL: not given */
    json_t *kwargs;
    bool has_stream_options;
} reader;

enum { CHAT = 1, TEXT = 2, BOTH = CHAT | TEXT };

typedef struct field {
    const char *name;
    unsigned where; /* CHAT, TEXT */
    enum { FLOAT, INT, BOOL, READ, BOOKKEEPING } kind;
    size_t at; /* offset in vt_request_params, of FLOAT, INT and BOOL */
    double lo, hi;
    vt_status (*read)(reader *r, const struct field *f, json_t *v);
} field;

/* ---- values ---- */

static vt_status refuse_bool(reader *r, const char *name)
{
    return vt_openai_refuse(r->e, 400, name, "%s: expected true or false", name);
}

static vt_status read_int(reader *r, const char *name, const json_t *v, int64_t lo, int64_t hi,
                          int32_t *out)
{
    if (!json_is_integer(v) || json_integer_value(v) < lo || json_integer_value(v) > hi)
        return vt_openai_refuse(r->e, 400, name, "%s: expected a whole number from %lld to %lld",
                                name, (long long)lo, (long long)hi);
    *out = (int32_t)json_integer_value(v);
    return VT_OK;
}

static vt_status read_float(reader *r, const field *f, const json_t *v, float *out)
{
    double x = json_is_number(v) ? json_number_value(v) : NAN;
    if (!(x >= f->lo && x <= f->hi))
        return vt_openai_refuse(r->e, 400, f->name, "%s: expected a number from %g to %g", f->name,
                                f->lo, f->hi);
    *out = (float)x;
    return VT_OK;
}

static vt_status no_memory(reader *r)
{
    return vt_openai_refuse(r->e, 500, NULL, "out of memory for the request");
}

/* A list of 1 to `most` token ids, copied into the request's arena. */
static vt_status read_ids(reader *r, const char *name, const json_t *list, size_t most,
                          const int32_t **ids, int32_t *n_ids)
{
    size_t n = json_array_size(list);
    if (!json_is_array(list))
        return vt_openai_refuse(r->e, 400, name, "%s: expected a list of token ids", name);
    if (n == 0 || n > most)
        return vt_openai_refuse(r->e, 400, name, "%s: %zu token ids, expected 1 to %zu", name, n,
                                most);
    int32_t *out = vt_arena_alloc(&r->r->arena, n, sizeof *out);
    if (!out)
        return no_memory(r);
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, i);
        if (!json_is_integer(v) || json_integer_value(v) < 0 ||
            json_integer_value(v) >= r->m->arch.vocab)
            return vt_openai_refuse(r->e, 400, name,
                                    "%s: entry %zu is not a token id, expected 0 to %d", name, i,
                                    r->m->arch.vocab - 1);
        out[i] = (int32_t)json_integer_value(v);
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
    return *out ? VT_OK : no_memory(r);
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

static vt_status read_model(reader *r, const field *f, json_t *v)
{
    const char *name = json_string_value(v), *own = vt_model_name(r->m), *alias = r->d->model_alias;
    if (!name)
        return vt_openai_refuse(r->e, 400, f->name, "model: expected a string");
    bool known = !*name || strcmp(name, own) == 0 || (alias && strcmp(name, alias) == 0) ||
                 is_base_name(name, alias) || (r->m->path && strcmp(name, r->m->path) == 0) ||
                 is_base_name(name, r->m->path);
    if (known && strlen(name) == json_string_length(v))
        return VT_OK;
    vt_openai_refuse(r->e, 404, f->name, "model: '%.80s' is not here, expected '%.200s'", name,
                     own);
    r->e->code = "model_not_found";
    return VT_ERR_USAGE;
}

static vt_status read_max_tokens(reader *r, const field *f, json_t *v)
{
    bool newer = strcmp(f->name, "max_completion_tokens") == 0;
    return read_int(r, f->name, v, 1, INT32_MAX,
                    newer ? &r->max_completion_tokens : &r->max_tokens);
}

/* Chat: a boolean. Completions: how many alternatives. */
static vt_status read_logprobs(reader *r, const field *f, json_t *v)
{
    if (!r->r->chat)
        return json_is_false(v) ? VT_OK
                                : read_int(r, f->name, v, 0, MAX_LOGPROBS, &r->r->p.logprobs);
    if (!json_is_boolean(v))
        return refuse_bool(r, f->name);
    r->want_logprobs = json_is_true(v);
    return VT_OK;
}

static vt_status read_top_logprobs(reader *r, const field *f, json_t *v)
{
    return read_int(r, f->name, v, 0, MAX_LOGPROBS, &r->top_logprobs);
}

static vt_status read_top_k(reader *r, const field *f, json_t *v)
{
    TRY(read_int(r, f->name, v, -1, INT32_MAX, &r->r->p.top_k));
    r->r->p.top_k = r->r->p.top_k < 0 ? 0 : r->r->p.top_k; /* -1: off, as in vLLM */
    return VT_OK;
}

static vt_status read_seed(reader *r, const field *f, json_t *v)
{
    if (!json_is_integer(v))
        return vt_openai_refuse(r->e, 400, f->name, "seed: expected a whole number of 64 bits");
    r->r->p.has_seed = true;
    r->r->p.seed = (uint64_t)json_integer_value(v);
    return VT_OK;
}

/* An empty string ends nothing and is left out, as OpenAI does. */
static vt_status read_stop(reader *r, const field *f, json_t *v)
{
    size_t n = json_is_array(v) ? json_array_size(v) : 1;
    if (!json_is_array(v) && !json_is_string(v))
        return vt_openai_refuse(r->e, 400, f->name, "stop: expected a string or a list of strings");
    if (n > VT_MAX_STOPS)
        return vt_openai_refuse(r->e, 400, f->name, "stop: %zu strings, expected at most %d", n,
                                VT_MAX_STOPS);
    const char **stop = vt_arena_alloc(&r->r->arena, n + 1, sizeof *stop);
    if (!stop)
        return no_memory(r);
    r->r->p.stop = stop;
    for (size_t i = 0; i < n; i++) {
        const json_t *s = json_is_array(v) ? json_array_get(v, i) : v;
        if (!json_is_string(s))
            return vt_openai_refuse(r->e, 400, f->name, "stop: entry %zu is not a string", i);
        if (json_string_length(s) > 0)
            TRY(copy_string(r, f->name, s, &stop[r->r->p.n_stop++]));
    }
    return VT_OK;
}

static vt_status read_stop_ids(reader *r, const field *f, json_t *v)
{
    if (json_is_array(v) && json_array_size(v) == 0)
        return VT_OK;
    return read_ids(r, f->name, v, VT_MAX_STOP_IDS, &r->r->p.stop_ids, &r->r->p.n_stop_ids);
}

static vt_status read_allowed(reader *r, const field *f, json_t *v)
{
    return read_ids(r, f->name, v, VT_MAX_ALLOWED, &r->r->p.allowed, &r->r->p.n_allowed);
}

static vt_status read_bias(reader *r, const field *f, json_t *v)
{
    const char *key;
    json_t *bias;
    if (!json_is_object(v) || json_object_size(v) > VT_MAX_LOGIT_BIAS)
        return vt_openai_refuse(r->e, 400, f->name,
                                "logit_bias: expected an object of at most %d token ids",
                                VT_MAX_LOGIT_BIAS);
    vt_logit_bias *out = vt_arena_alloc(&r->r->arena, json_object_size(v) + 1, sizeof *out);
    if (!out)
        return no_memory(r);
    r->r->p.logit_bias = out;
    json_object_foreach(v, key, bias)
    {
        char *end;
        long id = strtol(key, &end, 10);
        double x = json_number_value(bias);
        if (*end || end == key || id < 0 || id >= r->m->arch.vocab || !json_is_number(bias) ||
            !(fabs(x) <= 100))
            return vt_openai_refuse(r->e, 400, f->name,
                                    "logit_bias: '%.20s' expected a token id below %d, with a "
                                    "number from -100 to 100",
                                    key, r->m->arch.vocab);
        out[r->r->p.n_logit_bias++] = (vt_logit_bias){(int32_t)id, (float)x};
    }
    return VT_OK;
}

static vt_status read_salt(reader *r, const field *f, json_t *v)
{
    if (!json_is_string(v) || json_string_length(v) < 1 || json_string_length(v) > MAX_SALT)
        return vt_openai_refuse(r->e, 400, f->name,
                                "cache_salt: expected a string of 1 to %d "
                                "bytes",
                                MAX_SALT);
    return copy_string(r, f->name, v, &r->r->p.cache_salt);
}

static vt_status read_stream(reader *r, const field *f, json_t *v)
{
    if (!json_is_boolean(v))
        return refuse_bool(r, f->name);
    r->r->stream = json_is_true(v);
    if (r->r->stream && !r->d->may_stream)
        return vt_openai_refuse(r->e, 400, f->name, "stream: true is not possible in a batch");
    return VT_OK;
}

static vt_status read_stream_options(reader *r, const field *f, json_t *v)
{
    const char *key;
    json_t *value;
    if (!json_is_object(v))
        return vt_openai_refuse(r->e, 400, f->name, "stream_options: expected an object");
    r->has_stream_options = true;
    json_object_foreach(v, key, value)
    {
        if (strcmp(key, "include_usage") != 0)
            return vt_openai_refuse(r->e, 400, f->name, "stream_options.%.60s: not supported", key);
        if (!json_is_boolean(value))
            return refuse_bool(r, "stream_options.include_usage");
        r->r->include_usage = json_is_true(value);
    }
    return VT_OK;
}

static vt_status read_prompt(reader *r, const field *f, json_t *v)
{
    (void)f;
    if (r->r->chat)
        r->messages = v;
    else
        r->prompt = v;
    return VT_OK;
}

static vt_status read_kwargs(reader *r, const field *f, json_t *v)
{
    if (!json_is_object(v))
        return vt_openai_refuse(r->e, 400, f->name, "chat_template_kwargs: expected an object");
    r->kwargs = v;
    return VT_OK;
}

/* Fields that are accepted only where they ask for what is done anyway. */
static vt_status read_neutral(reader *r, const field *f, json_t *v)
{
    static const struct {
        const char *name, *value; /* JSON */
    } neutral[] = {
        {"echo", "false"},
        {"store", "false"},
        {"suffix", "\"\""},
        {"best_of", "1"},
        {"tools", "[]"},
        {"functions", "[]"},
        {"tool_choice", "\"none\""},
        {"response_format", "{\"type\": \"text\"}"},
        {"modalities", "[\"text\"]"},
        {"service_tier", "\"auto\""},
        {"service_tier", "\"default\""},
    };
    for (size_t i = 0; i < sizeof neutral / sizeof *neutral; i++) {
        if (strcmp(neutral[i].name, f->name) != 0)
            continue;
        json_t *value = json_loads(neutral[i].value, JSON_DECODE_ANY, NULL);
        bool equal = json_equal(value, v);
        json_decref(value);
        if (equal)
            return VT_OK;
    }
    return vt_openai_refuse(r->e, 400, f->name, "%s: not supported", f->name);
}

/* ---- the table ---- */

#define AT(member) offsetof(vt_request_params, member)

static const field fields[] = {
    {"model", BOTH, READ, .read = read_model},
    {"messages", CHAT, READ, .read = read_prompt},
    {"prompt", TEXT, READ, .read = read_prompt},
    {"max_tokens", BOTH, READ, .read = read_max_tokens},
    {"max_completion_tokens", CHAT, READ, .read = read_max_tokens},
    {"min_tokens", BOTH, INT, .at = AT(min_tokens), .lo = 0, .hi = INT32_MAX},
    {"n", BOTH, INT, .at = AT(n), .lo = 1, .hi = VT_MAX_SAMPLES},
    {"temperature", BOTH, FLOAT, .at = AT(temperature), .lo = 0, .hi = 2},
    {"top_p", BOTH, FLOAT, .at = AT(top_p), .lo = 0, .hi = 1},
    {"top_k", BOTH, READ, .read = read_top_k},
    {"min_p", BOTH, FLOAT, .at = AT(min_p), .lo = 0, .hi = 1},
    {"presence_penalty", BOTH, FLOAT, .at = AT(presence_penalty), .lo = -2, .hi = 2},
    {"frequency_penalty", BOTH, FLOAT, .at = AT(frequency_penalty), .lo = -2, .hi = 2},
    {"repetition_penalty", BOTH, FLOAT, .at = AT(repetition_penalty), .lo = 0.01, .hi = 100},
    {"seed", BOTH, READ, .read = read_seed},
    {"stop", BOTH, READ, .read = read_stop},
    {"stop_token_ids", BOTH, READ, .read = read_stop_ids},
    {"ignore_eos", BOTH, BOOL, .at = AT(ignore_eos)},
    {"logit_bias", BOTH, READ, .read = read_bias},
    {"allowed_token_ids", BOTH, READ, .read = read_allowed},
    {"logprobs", BOTH, READ, .read = read_logprobs},
    {"top_logprobs", CHAT, READ, .read = read_top_logprobs},
    {"priority", BOTH, INT, .at = AT(priority), .lo = INT32_MIN / 2, .hi = INT32_MAX / 2},
    {"cache_salt", BOTH, READ, .read = read_salt},
    {"chat_template_kwargs", CHAT, READ, .read = read_kwargs},
    {"stream", BOTH, READ, .read = read_stream},
    {"stream_options", BOTH, READ, .read = read_stream_options},
    {"echo", TEXT, READ, .read = read_neutral},
    {"suffix", TEXT, READ, .read = read_neutral},
    {"best_of", TEXT, READ, .read = read_neutral},
    {"tools", CHAT, READ, .read = read_neutral},
    {"tool_choice", CHAT, READ, .read = read_neutral},
    {"functions", CHAT, READ, .read = read_neutral},
    {"response_format", BOTH, READ, .read = read_neutral},
    {"modalities", CHAT, READ, .read = read_neutral},
    {"service_tier", BOTH, READ, .read = read_neutral},
    {"store", BOTH, READ, .read = read_neutral},
    /* notes for the sender's own books; they change no answer */
    {"user", BOTH, .kind = BOOKKEEPING},
    {"metadata", BOTH, .kind = BOOKKEEPING},
    {"safety_identifier", BOTH, .kind = BOOKKEEPING},
    {"prompt_cache_key", BOTH, .kind = BOOKKEEPING},
};

static vt_status read_field(reader *r, const char *name, json_t *v)
{
    const unsigned here = r->r->chat ? CHAT : TEXT;
    char *params = (char *)&r->r->p;
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const field *f = &fields[i];
        if (!(f->where & here) || strcmp(f->name, name) != 0)
            continue;
        if (f->kind == FLOAT)
            return read_float(r, f, v, (float *)(void *)(params + f->at));
        if (f->kind == INT)
            return read_int(r, f->name, v, (int64_t)f->lo, (int64_t)f->hi,
                            (int32_t *)(void *)(params + f->at));
        if (f->kind == BOOL && !json_is_boolean(v))
            return refuse_bool(r, f->name);
        if (f->kind == BOOL)
            *(bool *)(params + f->at) = json_is_true(v);
        return f->kind == READ ? f->read(r, f, v) : VT_OK;
    }
    return vt_openai_refuse(r->e, 400, name, "%.60s: not supported", name);
}

/* ---- what several fields say together ---- */

static vt_status settle(reader *r)
{
    vt_request_params *p = &r->r->p;
    if (r->max_completion_tokens > 0)
        p->max_tokens = r->max_completion_tokens;
    else if (r->max_tokens > 0)
        p->max_tokens = r->max_tokens;
    else if (r->d->max_tokens > 0)
        p->max_tokens = r->d->max_tokens;
    else /* the engine ends an answer where its context ends */
        p->max_tokens = r->r->chat ? vt_model_max_context(r->m) : 16;
    if (r->has_stream_options && !r->r->stream)
        return vt_openai_refuse(r->e, 400, "stream_options",
                                "stream_options: only allowed together with \"stream\": true");
    if (!r->r->chat)
        return VT_OK;
    if (r->top_logprobs > 0 && !r->want_logprobs)
        return vt_openai_refuse(r->e, 400, "top_logprobs",
                                "top_logprobs: only allowed together with \"logprobs\": true");
    p->logprobs = r->want_logprobs ? r->top_logprobs : -1;
    return VT_OK;
}

/* ---- the prompts ---- */

/* Copies the ids that an encoder made into the request's arena, and frees them. */
static vt_status take_ids(reader *r, int32_t *ids, size_t n, const char *param,
                          vt_openai_prompt *out)
{
    int32_t *copy = n <= MAX_PROMPT ? vt_arena_alloc(&r->r->arena, n + 1, sizeof *copy) : NULL;
    if (copy && n > 0)
        memcpy(copy, ids, n * sizeof *copy);
    vt_free(ids);
    if (n > MAX_PROMPT)
        return vt_openai_refuse(r->e, 400, param, "%s: %zu tokens, expected at most %d", param, n,
                                MAX_PROMPT);
    *out = (vt_openai_prompt){copy, (int32_t)n};
    return copy ? VT_OK : no_memory(r);
}

static vt_status encode_chat(reader *r, vt_openai_prompt *out)
{
    int32_t *ids = NULL;
    size_t n = 0;
    vt_err why;
    json_t *variables = vt_openai_template_variables(r->messages, r->kwargs, r->e);
    if (!variables)
        return VT_ERR_USAGE;
    unsigned flags = VT_CHAT_OPEN_TURN | (r->d->literal_content ? VT_CHAT_LITERAL : 0);
    vt_status status = vt_chat_encode(r->m, variables, flags, r->d->limits, &ids, &n, &why);
    json_decref(variables);
    return status == VT_OK ? take_ids(r, ids, n, "messages", out)
                           : vt_openai_refuse_as(r->e, &why, r->m, "messages");
}

/* A string or a list of token ids. */
static vt_status encode_text(reader *r, const json_t *v, vt_openai_prompt *out)
{
    int32_t *ids = NULL;
    size_t n = 0;
    vt_err why;
    if (json_is_array(v))
        return read_ids(r, "prompt", v, MAX_PROMPT, &out->ids, &out->n);
    if (!json_is_string(v))
        return vt_openai_refuse(r->e, 400, "prompt",
                                "prompt: expected a string, a list of token ids, or a list of "
                                "these");
    vt_status status = vt_tokenize(r->m, json_string_value(v), json_string_length(v),
                                   VT_TOKENIZE_ADD_BOS, &ids, &n, &why);
    return status == VT_OK ? take_ids(r, ids, n, "prompt", out)
                           : vt_openai_refuse_as(r->e, &why, r->m, "prompt");
}

static vt_status encode_prompts(reader *r)
{
    const json_t *first = json_array_get(r->prompt, 0);
    bool list = json_is_string(first) || json_is_array(first);
    size_t n = list && !r->r->chat ? json_array_size(r->prompt) : 1;
    if (n * (size_t)r->r->p.n > VT_OPENAI_MAX_CHOICES)
        return vt_openai_refuse(r->e, 400, "prompt",
                                "prompt: %zu prompts with n %d each, expected at most %d answers",
                                n, r->r->p.n, VT_OPENAI_MAX_CHOICES);
    r->r->prompt = vt_arena_alloc(&r->r->arena, n, sizeof *r->r->prompt);
    if (!r->r->prompt)
        return no_memory(r);
    r->r->n_prompts = (int32_t)n;
    for (size_t i = 0; i < n; i++)
        TRY(r->r->chat ? encode_chat(r, &r->r->prompt[i])
                       : encode_text(r, list ? json_array_get(r->prompt, i) : r->prompt,
                                     &r->r->prompt[i]));
    vt_openai_request_select(r->r, 0);
    return VT_OK;
}

void vt_openai_request_select(vt_openai_request *r, int32_t prompt)
{
    r->p.prompt = r->prompt[prompt].ids;
    r->p.n_prompt = r->prompt[prompt].n;
}

/* ---- the whole ---- */

void vt_openai_defaults_init(vt_openai_defaults *d)
{
    *d = (vt_openai_defaults){.temperature = 1, .top_p = 1, .literal_content = true};
}

vt_status vt_openai_request_read(const json_t *body, bool chat, const vt_model *m,
                                 const vt_openai_defaults *d, vt_openai_request *out,
                                 vt_openai_error *e)
{
    reader r = {.m = m, .d = d, .r = out, .e = e};
    const char *name;
    json_t *value;
    *out = (vt_openai_request){.chat = chat};
    vt_arena_init(&out->arena, 0);
    vt_request_init(&out->p);
    out->p.temperature = d->temperature;
    out->p.top_p = d->top_p;
    out->p.min_p = d->min_p;
    out->p.top_k = d->top_k;
    out->p.ignore_eos = d->ignore_eos;
    out->p.has_seed = d->has_seed;
    out->p.seed = d->seed;
    if (!json_is_object(body))
        return vt_openai_refuse(e, 400, NULL, "the request is not a JSON object");
    json_object_foreach((json_t *)(uintptr_t)body, name, value)
    {
        if (!json_is_null(value))
            TRY(read_field(&r, name, value));
    }
    TRY(settle(&r));
    return encode_prompts(&r);
}

void vt_openai_request_release(vt_openai_request *r)
{
    vt_arena_release(&r->arena);
    *r = (vt_openai_request){0};
}
