#include "openai/anthropic.h"

#include "base/err.h"
#include "openai/request.h"
#include "openai/translation.h"

/* ---- content ---- */

/* Appends the text of a string, or of a list of text blocks. */
static vt_status add_text(translation *t, const json_t *v, const char *where, bool system,
                          vt_buf *out)
{
    static const char billing[] = "x-anthropic-billing-header";
    if (json_is_string(v)) {
        vt_buf_add(out, json_string_value(v), json_string_length(v));
        return VT_OK;
    }
    if (!json_is_array(v))
        return vt_openai_refuse_value(t->e, where, v, "a string or a list of text blocks", "%s",
                                      where);
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *block = json_array_get(v, i), *type = json_object_get(block, "type");
        const json_t *text = json_object_get(block, "text");
        if (!is(type, "text") || !json_is_string(text))
            return vt_openai_refuse(t->e, 400, where,
                                    "%s: a block of type '%.40s' found, expected text", where,
                                    name_of(type));
        if (!system || strncmp(json_string_value(text), billing, sizeof billing - 1) != 0)
            vt_buf_add(out, json_string_value(text), json_string_length(text));
    }
    return VT_OK;
}

static vt_status add_message(translation *t, const char *role, const vt_buf *text)
{
    json_t *m = json_pack("{s:s, s:o*}", "role", role, "content", string_of(text));
    if (!m || !json_object_get(m, "content") || json_array_append_new(t->messages, m) != 0)
        return no_memory(t);
    return VT_OK;
}

static vt_status read_system(translation *t, const json_t *v, const char *where)
{
    vt_buf text = {0};
    vt_status status = add_text(t, v, where, true, &text);
    if (status == VT_OK && text.len > 0)
        status = add_message(t, "system", &text);
    vt_buf_release(&text);
    return status;
}

static vt_status refuse_block(translation *t, size_t i, size_t k, const json_t *type,
                              const char *expected)
{
    return vt_openai_refuse(t->e, 400, "messages",
                            "messages[%zu].content[%zu]: a block of type '%.40s' found, expected "
                            "%s",
                            i, k, name_of(type), expected);
}

static vt_status read_result(translation *t, const json_t *block)
{
    vt_buf text = {0};
    const json_t *content = json_object_get(block, "content");
    const json_t *id = json_object_get(block, "tool_use_id");
    vt_status status = VT_OK;
    if (!json_is_string(id))
        return vt_openai_refuse(t->e, 400, "messages",
                                "messages: a tool_result without its tool_use_id");
    if (content && !json_is_null(content))
        status = add_text(t, content, "messages", false, &text);
    json_t *m = NULL;
    if (status == VT_OK) {
        m = json_pack("{s:s, s:O, s:o*}", "role", "tool", "tool_call_id", id, "content",
                      string_of(&text));
        status = m && json_array_append_new(t->messages, m) == 0 ? VT_OK : no_memory(t);
    }
    vt_buf_release(&text);
    return status;
}

/* A user's blocks: results of tools become messages of their own in front of the text. */
static vt_status read_user(translation *t, size_t i, const json_t *blocks)
{
    vt_buf text = {0};
    vt_status status = VT_OK;
    bool results = false;
    for (size_t k = 0; status == VT_OK && k < json_array_size(blocks); k++) {
        const json_t *block = json_array_get(blocks, k), *type = json_object_get(block, "type");
        const json_t *s = json_object_get(block, "text");
        if (is(type, "tool_result")) {
            status = read_result(t, block);
            results = true;
        } else if (is(type, "text") && json_is_string(s)) {
            vt_buf_add(&text, json_string_value(s), json_string_length(s));
        } else {
            status = refuse_block(t, i, k, type, "text or tool_result");
        }
    }
    if (status == VT_OK && (text.len > 0 || !results))
        status = add_message(t, "user", &text);
    vt_buf_release(&text);
    return status;
}

static vt_status read_use(translation *t, size_t i, size_t k, const json_t *block, json_t *calls)
{
    const json_t *name = json_object_get(block, "name"), *id = json_object_get(block, "id");
    const json_t *input = json_object_get(block, "input");
    if (!json_is_string(id) || !json_is_string(name))
        return vt_openai_refuse_value(t->e, "messages", json_is_string(id) ? name : id, "a string",
                                      "messages[%zu].content[%zu].%s", i, k,
                                      json_is_string(id) ? "name" : "id");
    if (!json_is_object(input))
        return vt_openai_refuse_value(t->e, "messages", input, "an object",
                                      "messages[%zu].content[%zu].input", i, k);
    json_t *call = json_pack("{s:O, s:s, s:{s:O, s:O}}", "id", id, "type", "function", "function",
                             "name", name, "arguments", input);
    return call && json_array_append_new(calls, call) == 0 ? VT_OK : no_memory(t);
}

static vt_status read_assistant_block(translation *t, size_t i, size_t k, const json_t *block,
                                      vt_buf *text, vt_buf *thinking, json_t *calls)
{
    const json_t *type = json_object_get(block, "type");
    const json_t *s = json_object_get(block, "text"), *z = json_object_get(block, "thinking");
    if (is(type, "text") && json_is_string(s))
        vt_buf_add(text, json_string_value(s), json_string_length(s));
    else if (is(type, "thinking") && json_is_string(z))
        vt_buf_add(thinking, json_string_value(z), json_string_length(z));
    else if (is(type, "tool_use"))
        return read_use(t, i, k, block, calls);
    else if (!is(type, "redacted_thinking")) /* nobody could read what it says */
        return refuse_block(t, i, k, type, "text, thinking or tool_use");
    return VT_OK;
}

static vt_status read_assistant(translation *t, size_t i, const json_t *blocks)
{
    vt_buf text = {0}, thinking = {0};
    json_t *calls = json_array(), *m = json_pack("{s:s}", "role", "assistant");
    vt_status status = VT_OK;
    for (size_t k = 0; status == VT_OK && k < json_array_size(blocks); k++)
        status = read_assistant_block(t, i, k, json_array_get(blocks, k), &text, &thinking, calls);
    if (status == VT_OK)
        status = put(t, m, "content", string_of(&text));
    if (status == VT_OK && thinking.len > 0)
        status = put(t, m, "reasoning_content", string_of(&thinking));
    if (status == VT_OK && json_array_size(calls) > 0)
        status = put(t, m, "tool_calls", json_incref(calls));
    if (status == VT_OK && json_array_append(t->messages, m) != 0)
        status = no_memory(t);
    json_decref(calls);
    json_decref(m);
    vt_buf_release(&text);
    vt_buf_release(&thinking);
    return status;
}

static vt_status read_message(translation *t, size_t i, const json_t *m)
{
    const json_t *role = json_object_get(m, "role"), *content = json_object_get(m, "content");
    bool assistant = is(role, "assistant");
    if (is(role, "system"))
        return read_system(t, content, "messages");
    if (!assistant && !is(role, "user"))
        return vt_openai_refuse_word(t->e, "messages", role, "user, assistant or system",
                                     "messages[%zu].role", i);
    if (json_is_array(content))
        return assistant ? read_assistant(t, i, content) : read_user(t, i, content);
    if (!json_is_string(content))
        return vt_openai_refuse_value(t->e, "messages", content, "a string or a list of blocks",
                                      "messages[%zu].content", i);
    json_t *copy = json_pack("{s:O, s:O}", "role", role, "content", content);
    return copy && json_array_append_new(t->messages, copy) == 0 ? VT_OK : no_memory(t);
}

static vt_status read_messages(translation *t, const json_t *list)
{
    size_t n = json_array_size(list);
    if (n == 0)
        return vt_openai_refuse_value(t->e, "messages", list, "a list of messages", "messages");
    if (is(json_object_get(json_array_get(list, n - 1), "role"), "assistant"))
        return vt_openai_refuse(t->e, 400, "messages",
                                "messages[%zu]: an assistant's message at the end, which would "
                                "have to be continued, is not supported",
                                n - 1);
    for (size_t i = 0; i < n; i++)
        TRY(read_message(t, i, json_array_get(list, i)));
    return VT_OK;
}

/* ---- tools ---- */

static vt_status read_tools(translation *t, const json_t *list)
{
    json_t *tools = json_array();
    TRY(put(t, t->chat, "tools", tools));
    if (!json_is_array(list))
        return vt_openai_refuse_value(t->e, "tools", list, "a list", "tools");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *tool = json_array_get(list, i), *type = json_object_get(tool, "type");
        json_t *schema = json_object_get(tool, "input_schema");
        if (type && !json_is_null(type) && !is(type, "custom"))
            return vt_openai_refuse_word(t->e, "tools", type, "custom", "tools[%zu].type", i);
        if (!json_is_string(json_object_get(tool, "name")))
            return vt_openai_refuse_value(t->e, "tools", json_object_get(tool, "name"), "a string",
                                          "tools[%zu].name", i);
        if (!json_is_object(schema))
            return vt_openai_refuse_value(t->e, "tools", schema, "a JSON Schema, an object",
                                          "tools[%zu].input_schema", i);
        json_t *f = json_pack("{s:O, s:O*, s:O*, s:O}", "name", json_object_get(tool, "name"),
                              "description", json_object_get(tool, "description"), "strict",
                              json_object_get(tool, "strict"), "parameters", schema);
        json_t *one = json_pack("{s:s, s:o*}", "type", "function", "function", f);
        if (!one || json_array_append_new(tools, one) != 0)
            return no_memory(t);
    }
    return VT_OK;
}

static vt_status read_tool_choice(translation *t, const json_t *v)
{
    const json_t *type = json_object_get(v, "type");
    json_t *name = json_object_get(v, "name");
    if (json_is_true(json_object_get(v, "disable_parallel_tool_use")))
        TRY(put(t, t->chat, "parallel_tool_calls", json_false()));
    if (is(type, "auto") || is(type, "none"))
        return put(t, t->chat, "tool_choice", borrow(type));
    if (is(type, "any"))
        return put(t, t->chat, "tool_choice", json_string("required"));
    if (is(type, "tool") && json_is_string(name))
        return put(t, t->chat, "tool_choice",
                   json_pack("{s:s, s:{s:O}}", "type", "function", "function", "name", name));
    if (is(type, "tool"))
        return vt_openai_refuse_value(t->e, "tool_choice", name, "a string", "tool_choice.name");
    return vt_openai_refuse_word(t->e, "tool_choice", type, "auto, any, none or tool",
                                 "tool_choice.type");
}

/* ---- thinking and form ---- */

static vt_status read_thinking(translation *t, const json_t *v)
{
    const json_t *type = json_object_get(v, "type"), *budget = json_object_get(v, "budget_tokens");
    bool off = is(type, "disabled");
    if (!off && !is(type, "enabled") && !is(type, "adaptive"))
        return vt_openai_refuse_word(t->e, "thinking", type, "enabled, adaptive or disabled",
                                     "thinking.type");
    if (is(type, "enabled") && budget)
        TRY(put(t, t->chat, "thinking_token_budget", json_incref((json_t *)(uintptr_t)budget)));
    TRY(put(t, t->kwargs, "enable_thinking", json_boolean(!off)));
    return put(t, t->kwargs, "thinking", json_boolean(!off));
}

static vt_status read_output(translation *t, const json_t *v)
{
    json_t *effort = json_object_get(v, "effort"), *format = json_object_get(v, "format");
    if (!json_is_object(v))
        return vt_openai_refuse_value(t->e, "output_config", v, "an object", "output_config");
    if (effort && !json_is_null(effort)) {
        TRY(vt_openai_check_effort(effort, "output_config", "output_config.effort", t->e));
        /* templates without the variable have no effort */
        TRY(put(t, t->kwargs, "reasoning_effort", json_incref(effort)));
    }
    if (!format || json_is_null(format))
        return VT_OK;
    json_t *schema = json_object_get(format, "schema");
    if (!is(json_object_get(format, "type"), "json_schema"))
        return vt_openai_refuse_word(t->e, "output_config", json_object_get(format, "type"),
                                     "json_schema", "output_config.format.type");
    if (!schema)
        return vt_openai_refuse_value(t->e, "output_config", NULL, "a JSON Schema",
                                      "output_config.format.schema");
    return put(t, t->chat, "response_format",
               json_pack("{s:s, s:{s:s, s:O}}", "type", "json_schema", "json_schema", "name",
                         "answer", "schema", schema));
}

/* ---- the whole ---- */

/* The model goes by its own names and by any name of Anthropic's, which clients have built in. */
static vt_status read_model(translation *t, const json_t *v)
{
    if (json_is_string(v) && strncmp(json_string_value(v), "claude", 6) == 0)
        return VT_OK;
    return put(t, t->chat, "model", borrow(v));
}

static vt_status read_stop(translation *t, const json_t *v)
{
    return json_is_array(v) && json_array_size(v) == 0 ? VT_OK : put(t, t->chat, "stop", borrow(v));
}

static vt_status read_system_field(translation *t, const json_t *v)
{
    return read_system(t, v, "system");
}

enum { MESSAGES = 1, COUNT = 2, BOTH = 3 };

/* All of them may be in a body whose tokens are counted; those that are read there change the
 * prompt. */
static const translation_member members[] = {
    {"model", BOTH, read_model},
    {"system", BOTH, read_system_field},
    {"messages", BOTH, read_messages},
    {"tools", BOTH, read_tools},
    {"tool_choice", MESSAGES, read_tool_choice},
    {"thinking", BOTH, read_thinking, "thinking_token_budget", "thinking.budget_tokens"},
    {"output_config", MESSAGES, read_output, "response_format", "output_config.format"},
    {"stop_sequences", MESSAGES, read_stop, "stop"},
    {"max_tokens", MESSAGES, NULL, "max_tokens"},
    {"temperature", MESSAGES, NULL, "temperature"},
    {"top_p", MESSAGES, NULL, "top_p"},
    {"top_k", MESSAGES, NULL, "top_k"},
    {"stream", MESSAGES, NULL, "stream"},
    {"metadata", MESSAGES},
    {"service_tier", MESSAGES},
    {"cache_control", MESSAGES},
    {"inference_geo", MESSAGES},
    {"speed", MESSAGES},
    {"context_management", MESSAGES},
    {"diagnostics", MESSAGES},
};

enum { N_MEMBERS = sizeof members / sizeof *members };

const translation_member *vt_anthropic_members(size_t *n)
{
    *n = N_MEMBERS;
    return members;
}

static bool is_missing(const json_t *body, const char *name)
{
    const json_t *v = json_object_get(body, name);
    return !v || json_is_null(v);
}

static json_t *translate(const json_t *body, bool counts, vt_openai_error *e)
{
    translation t;
    vt_status status = translation_begin(&t, body, members, N_MEMBERS, MESSAGES, e);
    if (status == VT_OK)
        status = translation_read(&t, members, N_MEMBERS, counts ? COUNT : MESSAGES);
    if (status == VT_OK && is_missing(body, "messages"))
        status = vt_openai_refuse(e, 400, "messages", "messages: missing");
    if (status == VT_OK && !counts && is_missing(body, "max_tokens"))
        status = vt_openai_refuse(e, 400, "max_tokens", "max_tokens: missing");
    if (counts)
        json_object_del(t.chat, "thinking_token_budget");
    if (counts && is(json_object_get(json_object_get(body, "tool_choice"), "type"), "none"))
        json_object_del(t.chat, "tools");
    return translation_end(&t, status, true);
}

json_t *vt_anthropic_chat(const json_t *body, vt_openai_error *e)
{
    return translate(body, false, e);
}

json_t *vt_anthropic_count(const json_t *body, vt_openai_error *e)
{
    return translate(body, true, e);
}

void vt_anthropic_own_names(vt_openai_error *e) { translation_own_names(members, N_MEMBERS, e); }

void vt_anthropic_error_write(const vt_openai_error *e, const char *id, vt_json *w)
{
    const char *type = e->http == 400 || e->http == 405 ? "invalid_request_error"
                       : e->http == 401                 ? "authentication_error"
                       : e->http == 403                 ? "permission_error"
                       : e->http == 404                 ? "not_found_error"
                       : e->http == 413                 ? "request_too_large"
                       : e->http == 429                 ? "rate_limit_error"
                       : e->http == 503                 ? "overloaded_error"
                       : e->http == 504                 ? "timeout_error"
                                                        : "api_error";
    bool too_long = e->code && strcmp(e->code, "context_length_exceeded") == 0;
    vt_json_open(w, NULL, '{');
    vt_json_string(w, "type", "error");
    vt_json_open(w, "error", '{');
    vt_json_string(w, "type", type);
    vt_json_printf(w, "message", "%s%s", too_long ? "prompt is too long: " : "", e->message);
    vt_json_close(w);
    vt_json_string(w, "request_id", id);
    vt_json_close(w);
}
