#include "openai/ollama.h"

#include <stdio.h>

#include "base/err.h"
#include "openai/translation.h"

static vt_status refuse_kind(translation *t, const char *name, const json_t *v,
                             const char *expected)
{
    return vt_openai_refuse_value(t->e, name, v, expected, "%s", name);
}

/* Refuses whatever asks for something: not null, false, "", 0 or an empty list. */
static vt_status refuse_use(translation *t, const char *name, const json_t *v)
{
    bool asks = json_is_true(v) || json_string_length(v) > 0 || json_array_size(v) > 0 ||
                json_object_size(v) > 0 || (json_is_number(v) && json_number_value(v) != 0);
    return asks ? vt_openai_refuse(t->e, 400, name, "%s: not supported", name) : VT_OK;
}

/* ---- options ---- */

/* Ollama's names. as: the chat's name for it; NULL: it says how a model is loaded, and has no
 * effect. `neutral`: only this number is accepted. */
static const struct {
    const char *name, *as;
    bool fixed;
    double neutral;
} options[] = {
    {"temperature", "temperature", false, 0},
    {"top_p", "top_p", false, 0},
    {"top_k", "top_k", false, 0},
    {"min_p", "min_p", false, 0},
    {"seed", "seed", false, 0},
    {"stop", "stop", false, 0},
    {"presence_penalty", "presence_penalty", false, 0},
    {"frequency_penalty", "frequency_penalty", false, 0},
    {"repeat_penalty", "repetition_penalty", false, 0},
    {"num_predict", "max_tokens", false, 0},
    {"typical_p", NULL, true, 1},
    {"tfs_z", NULL, true, 1},
    {"mirostat", NULL, true, 0},
    {"mirostat_tau", NULL, false, 0},
    {"mirostat_eta", NULL, false, 0},
    {"repeat_last_n", NULL, false, 0},
    {"penalize_newline", NULL, false, 0},
    {"num_ctx", NULL, false, 0},
    {"num_keep", NULL, false, 0},
    {"num_batch", NULL, false, 0},
    {"num_gpu", NULL, false, 0},
    {"num_thread", NULL, false, 0},
    {"main_gpu", NULL, false, 0},
    {"use_mmap", NULL, false, 0},
    {"use_mlock", NULL, false, 0},
    {"numa", NULL, false, 0},
    {"low_vram", NULL, false, 0},
};

enum { N_OPTIONS = sizeof options / sizeof *options };

static vt_status read_option(translation *t, const char *name, const json_t *v)
{
    if (strcmp(name, "num_predict") == 0 && json_is_integer(v) && json_integer_value(v) < 0)
        return VT_OK; /* -1 and -2: as many as the context leaves */
    for (size_t i = 0; i < N_OPTIONS; i++) {
        if (strcmp(options[i].name, name) != 0)
            continue;
        if (options[i].fixed && json_number_value(v) != options[i].neutral)
            return vt_openai_refuse(t->e, 400, "options", "options.%s: only %g is supported", name,
                                    options[i].neutral);
        return options[i].as ? put(t, t->chat, options[i].as, borrow(v)) : VT_OK;
    }
    vt_nearest near = vt_nearest_begin(name);
    for (size_t i = 0; i < N_OPTIONS; i++)
        vt_nearest_try(&near, options[i].name);
    return vt_openai_refuse_unknown(t->e, "options", "options.", &near);
}

static vt_status read_options(translation *t, const json_t *v)
{
    const char *name;
    json_t *value;
    if (!json_is_object(v))
        return refuse_kind(t, "options", v, "an object");
    json_object_foreach((json_t *)(uintptr_t)v, name, value)
    {
        if (!json_is_null(value))
            TRY(read_option(t, name, value));
    }
    return VT_OK;
}

/* ---- members of both ---- */

static vt_status read_model(translation *t, const json_t *v)
{
    static const char tag[] = ":latest";
    size_t n = json_string_length(v);
    if (n > sizeof tag && strcmp(json_string_value(v) + n - (sizeof tag - 1), tag) == 0)
        return put(t, t->chat, "model", json_stringn(json_string_value(v), n - (sizeof tag - 1)));
    return put(t, t->chat, "model", borrow(v));
}

static vt_status read_format(translation *t, const json_t *v)
{
    if (json_is_string(v) && json_string_length(v) == 0)
        return VT_OK;
    if (is(v, "json"))
        return put(t, t->chat, "response_format", json_pack("{s:s}", "type", "json_object"));
    if (!json_is_object(v))
        return refuse_kind(t, "format", v, "\"json\" or a JSON Schema");
    return put(t, t->chat, "response_format",
               json_pack("{s:s, s:{s:s, s:O}}", "type", "json_schema", "json_schema", "name",
                         "answer", "schema", v));
}

static vt_status read_think(translation *t, const json_t *v)
{
    if (json_is_false(v)) {
        TRY(put(t, t->kwargs, "enable_thinking", json_false()));
        return put(t, t->kwargs, "thinking", json_false());
    }
    if (json_is_true(v))
        return put(t, t->chat, "reasoning_effort", json_string("medium"));
    if (!is(v, "low") && !is(v, "medium") && !is(v, "high"))
        return refuse_kind(t, "think", v, "true, false, low, medium or high");
    return put(t, t->chat, "reasoning_effort", borrow(v));
}

static vt_status read_stream(translation *t, const json_t *v)
{
    return put(t, t->chat, "stream", borrow(v));
}

static vt_status refuse_logprobs(translation *t, const json_t *v)
{
    return refuse_use(t, "logprobs", v);
}

static vt_status refuse_top(translation *t, const json_t *v)
{
    return refuse_use(t, "top_logprobs", v);
}

static vt_status ignore(translation *t, const json_t *v)
{
    (void)t;
    (void)v;
    return VT_OK;
}

/* ---- /api/chat ---- */

static vt_status read_calls(translation *t, size_t i, const json_t *calls, json_t *m)
{
    json_t *list = json_array();
    TRY(put(t, m, "tool_calls", list));
    for (size_t k = 0; k < json_array_size(calls); k++) {
        json_t *f = json_object_get(json_array_get(calls, k), "function");
        if (!json_is_string(json_object_get(f, "name")))
            return vt_openai_refuse_value(t->e, "messages", json_object_get(f, "name"), "a string",
                                          "messages[%zu].tool_calls[%zu].function.name", i, k);
        if (!json_is_object(json_object_get(f, "arguments")))
            return vt_openai_refuse_value(t->e, "messages", json_object_get(f, "arguments"),
                                          "an object",
                                          "messages[%zu].tool_calls[%zu].function.arguments", i, k);
        json_t *call = json_pack("{s:o, s:s, s:{s:O, s:O}}", "id",
                                 json_sprintf("call_%zu_%zu", i, k), "type", "function", "function",
                                 "name", json_object_get(f, "name"), "arguments",
                                 json_object_get(f, "arguments"));
        if (!call || json_array_append_new(list, call) != 0)
            return no_memory(t);
    }
    return VT_OK;
}

static vt_status fill_message(translation *t, size_t i, const json_t *from, json_t *m)
{
    static const char *const names[][2] = {{"role", "role"},
                                           {"content", "content"},
                                           {"thinking", "reasoning_content"},
                                           {"tool_name", "name"},
                                           {"tool_call_id", "tool_call_id"}};
    const json_t *calls = json_object_get(from, "tool_calls");
    TRY(refuse_use(t, "images", json_object_get(from, "images")));
    for (int k = 0; k < 5; k++) {
        json_t *v = json_object_get(from, names[k][0]);
        if (v && !json_is_null(v))
            TRY(put(t, m, names[k][1], json_incref(v)));
    }
    return json_array_size(calls) > 0 ? read_calls(t, i, calls, m) : VT_OK;
}

static vt_status read_messages(translation *t, const json_t *v)
{
    for (size_t i = 0; i < json_array_size(v); i++) {
        json_t *m = json_object();
        if (!m || json_array_append_new(t->messages, m) != 0)
            return no_memory(t);
        TRY(fill_message(t, i, json_array_get(v, i), m));
    }
    return VT_OK;
}

static vt_status read_tools(translation *t, const json_t *v)
{
    json_t *tools = json_deep_copy(v);
    for (size_t i = 0; i < json_array_size(tools); i++)
        if (!json_object_get(json_array_get(tools, i), "type"))
            json_object_set_new(json_array_get(tools, i), "type", json_string("function"));
    return put(t, t->chat, "tools", tools);
}

/* ---- /api/generate ---- */

static vt_status add_message(translation *t, const char *role, const json_t *text)
{
    json_t *m = json_is_string(text) ? json_pack("{s:s, s:O}", "role", role, "content", text)
                                     : NULL;
    if (!json_is_string(text))
        return refuse_kind(t, strcmp(role, "user") == 0 ? "prompt" : role, text, "a string");
    return m && json_array_append_new(t->messages, m) == 0 ? VT_OK : no_memory(t);
}

static vt_status read_system(translation *t, const json_t *v)
{
    return json_is_string(v) && json_string_length(v) == 0 ? VT_OK : add_message(t, "system", v);
}

static vt_status read_prompt(translation *t, const json_t *v) { return add_message(t, "user", v); }

static vt_status refuse_images(translation *t, const json_t *v)
{
    return refuse_use(t, "images", v);
}

static vt_status refuse_suffix(translation *t, const json_t *v)
{
    return refuse_use(t, "suffix", v);
}

static vt_status refuse_template(translation *t, const json_t *v)
{
    return refuse_use(t, "template", v);
}

static vt_status refuse_context(translation *t, const json_t *v)
{
    return refuse_use(t, "context", v);
}

static vt_status refuse_raw(translation *t, const json_t *v)
{
    return json_is_true(v)
               ? vt_openai_refuse(t->e, 400, "raw",
                                  "raw: not supported; /v1/completions takes a raw text")
               : VT_OK;
}

/* ---- /api/embed ---- */

static vt_status read_input(translation *t, const json_t *v)
{
    bool texts = json_is_string(v) || json_array_size(v) > 0;
    for (size_t i = 0; texts && i < json_array_size(v); i++)
        texts = json_is_string(json_array_get(v, i));
    return texts ? put(t, t->chat, "input", borrow(v))
                 : refuse_kind(t, "input", v, "a string or a list of strings");
}

static vt_status read_truncate(translation *t, const json_t *v)
{
    return put(t, t->chat, "truncate", borrow(v));
}

static vt_status read_dimensions(translation *t, const json_t *v)
{
    return put(t, t->chat, "dimensions", borrow(v));
}

/* Members on how a model is loaded have no effect; the rest says how text is made. */
static vt_status read_load_options(translation *t, const json_t *v)
{
    json_t *chat = t->chat;
    t->chat = json_object();
    vt_status status = t->chat ? read_options(t, v) : no_memory(t);
    if (status == VT_OK && json_object_size(t->chat) > 0)
        status = vt_openai_refuse(t->e, 400, "options", "options.%s: not supported for vectors",
                                  json_object_iter_key(json_object_iter(t->chat)));
    json_decref(t->chat);
    t->chat = chat;
    return status;
}

/* ---- the whole ---- */

enum { CHAT = 1, GENERATE = 2, BOTH = 3, EMBED = 4 };

static const translation_member members[] = {
    {"model", BOTH | EMBED, read_model},
    {"stream", BOTH, read_stream},
    {"options", BOTH, read_options},
    {"format", BOTH, read_format, "response_format"},
    {"think", BOTH, read_think, "reasoning_effort"},
    {"keep_alive", BOTH | EMBED, ignore},
    {"logprobs", BOTH, refuse_logprobs},
    {"top_logprobs", BOTH, refuse_top},
    {"messages", CHAT, read_messages},
    {"tools", CHAT, read_tools},
    {"system", GENERATE, read_system},
    {"prompt", GENERATE, read_prompt},
    {"images", GENERATE, refuse_images},
    {"suffix", GENERATE, refuse_suffix},
    {"template", GENERATE, refuse_template},
    {"context", GENERATE, refuse_context},
    {"raw", GENERATE, refuse_raw},
    {"options", EMBED, read_load_options},
    {"input", EMBED, read_input},
    {"truncate", EMBED, read_truncate},
    {"dimensions", EMBED, read_dimensions},
};

enum { N_MEMBERS = sizeof members / sizeof *members };

const translation_member *vt_ollama_members(size_t *n)
{
    *n = N_MEMBERS;
    return members;
}

static json_t *translate(const json_t *body, unsigned where, vt_openai_error *e)
{
    translation t;
    const char *preset = where == EMBED ? "truncate" : "stream"; /* which Ollama presets to true */
    vt_status status = translation_begin(&t, body, members, N_MEMBERS, where, e);
    if (status == VT_OK)
        status = put(&t, t.chat, preset, json_true());
    if (status == VT_OK)
        status = translation_read(&t, members, N_MEMBERS, where);
    return translation_end(&t, status, where != EMBED);
}

json_t *vt_ollama_chat(const json_t *body, vt_openai_error *e) { return translate(body, CHAT, e); }

json_t *vt_ollama_generate(const json_t *body, vt_openai_error *e)
{
    return translate(body, GENERATE, e);
}

json_t *vt_ollama_embed(const json_t *body, vt_openai_error *e)
{
    return translate(body, EMBED, e);
}

void vt_ollama_own_names(vt_openai_error *e)
{
    char said[64];
    for (size_t i = 0; i < N_OPTIONS; i++)
        if (options[i].as && strcmp(options[i].as, e->param) == 0) {
            snprintf(said, sizeof said, "options.%s", options[i].name);
            translation_rename(e, "options", said);
            return;
        }
    translation_own_names(members, N_MEMBERS, e);
}

/* Returns true for a member that is missing, null, or an empty text or list. */
static bool says_nothing(const json_t *v)
{
    return !v || json_is_null(v) || (json_is_string(v) && json_string_length(v) == 0) ||
           (json_is_array(v) && json_array_size(v) == 0);
}

bool vt_ollama_only_loads(const json_t *body)
{
    return json_is_object(body) && says_nothing(json_object_get(body, "prompt")) &&
           says_nothing(json_object_get(body, "messages"));
}
