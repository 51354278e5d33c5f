#include "openai/responses.h"

#include "base/err.h"
#include "openai/request.h"
#include "openai/translation.h"

static vt_status add_message(translation *t, const char *role, json_t *content)
{
    json_t *m = json_object();
    vt_status status = put(t, m, "role", json_string(role));
    status = put(t, m, "content", content) == VT_OK ? status : VT_ERR_USAGE;
    if (status == VT_OK && json_array_append(t->messages, m) != 0)
        status = no_memory(t);
    json_decref(m);
    return status;
}

/* ---- items of the input ---- */

/* Text of a string or of a list of parts, the member of item i, appended to `out`. */
static vt_status add_text(translation *t, size_t i, const char *member, const json_t *v,
                          vt_buf *out)
{
    static const char *const types[] = {"input_text", "output_text", "reasoning_text", "refusal"};
    if (json_is_string(v)) {
        vt_buf_add(out, json_string_value(v), json_string_length(v));
        return VT_OK;
    }
    if (!json_is_array(v))
        return vt_openai_refuse_value(t->e, "input", v, "a string or a list of parts",
                                      "input[%zu].%s", i, member);
    for (size_t k = 0; k < json_array_size(v); k++) {
        const json_t *part = json_array_get(v, k), *type = json_object_get(part, "type");
        const json_t *text = json_object_get(part, is(type, "refusal") ? "refusal" : "text");
        size_t known = 0;
        while (known < 4 && !is(type, types[known]))
            known++;
        if (known == 4 || !json_is_string(text))
            return vt_openai_refuse(t->e, 400, "input",
                                    "input[%zu]: a part of type '%.40s' found, expected text", i,
                                    name_of(type));
        vt_buf_add(out, json_string_value(text), json_string_length(text));
    }
    return VT_OK;
}

static vt_status read_text(translation *t, size_t i, const char *member, const json_t *v,
                           json_t **out)
{
    vt_buf text = {0};
    vt_status status = add_text(t, i, member, v, &text);
    *out = status == VT_OK ? string_of(&text) : NULL;
    vt_buf_release(&text);
    return status != VT_OK || *out ? status : no_memory(t);
}

/* Ends the assistant's turn. */
static vt_status end_turn(translation *t)
{
    json_t *turn = t->turn;
    if (!turn)
        return VT_OK;
    TRY(put(t, turn, "content", string_of(&t->said)));
    vt_buf_clear(&t->said);
    t->turn = NULL;
    return json_array_append_new(t->messages, turn) == 0 ? VT_OK : no_memory(t);
}

/* The assistant's turn that the next items belong to. */
static vt_status turn(translation *t)
{
    if (!t->turn)
        t->turn = json_pack("{s:s}", "role", "assistant");
    return t->turn ? VT_OK : no_memory(t);
}

static vt_status read_message(translation *t, size_t i, const json_t *item)
{
    const json_t *role = json_object_get(item, "role");
    json_t *text;
    if (!is(role, "user") && !is(role, "assistant") && !is(role, "system") &&
        !is(role, "developer"))
        return vt_openai_refuse(t->e, 400, "input",
                                "input[%zu].role: '%.40s' found, expected user, assistant, system "
                                "or developer",
                                i, name_of(role));
    if (is(role, "assistant")) {
        TRY(turn(t));
        return add_text(t, i, "content", json_object_get(item, "content"), &t->said);
    }
    TRY(end_turn(t));
    TRY(read_text(t, i, "content", json_object_get(item, "content"), &text));
    return add_message(t, is(role, "user") ? "user" : "system", text);
}

static vt_status read_call(translation *t, size_t i, const json_t *item)
{
    const json_t *id = json_object_get(item, "call_id"), *name = json_object_get(item, "name");
    const json_t *arguments = json_object_get(item, "arguments");
    if (!json_is_string(id) || !json_is_string(name))
        return vt_openai_refuse_value(t->e, "input", json_is_string(id) ? name : id, "a string",
                                      "input[%zu].%s", i, json_is_string(id) ? "name" : "call_id");
    if (!json_is_string(arguments))
        return vt_openai_refuse_value(t->e, "input", arguments, "a string of JSON",
                                      "input[%zu].arguments", i);
    TRY(turn(t));
    if (!json_object_get(t->turn, "tool_calls"))
        TRY(put(t, t->turn, "tool_calls", json_array()));
    json_t *call = json_pack("{s:O, s:s, s:{s:O, s:O}}", "id", id, "type", "function", "function",
                             "name", name, "arguments", arguments);
    return call && json_array_append_new(json_object_get(t->turn, "tool_calls"), call) == 0
               ? VT_OK
               : no_memory(t);
}

static vt_status read_output(translation *t, size_t i, const json_t *item)
{
    const json_t *id = json_object_get(item, "call_id");
    json_t *text;
    if (!json_is_string(id))
        return vt_openai_refuse(t->e, 400, "input",
                                "input[%zu]: a function_call_output without its call_id", i);
    TRY(end_turn(t));
    TRY(read_text(t, i, "output", json_object_get(item, "output"), &text));
    TRY(add_message(t, "tool", text));
    return put(t, json_array_get(t->messages, json_array_size(t->messages) - 1), "tool_call_id",
               borrow(id));
}

/* The text of a thought stands in its content, or in what we gave as "encrypted_content". */
static vt_status read_reasoning(translation *t, size_t i, const json_t *item)
{
    static const char mark[] = VT_RESPONSES_THOUGHT;
    const json_t *content = json_object_get(item, "content");
    const json_t *hidden = json_object_get(item, "encrypted_content");
    json_t *text = NULL;
    TRY(end_turn(t));
    if (json_array_size(content) > 0)
        TRY(read_text(t, i, "content", content, &text));
    else if (json_is_string(hidden) &&
             strncmp(json_string_value(hidden), mark, sizeof mark - 1) == 0)
        text = json_string(json_string_value(hidden) + sizeof mark - 1);
    else
        return VT_OK;
    vt_status status = turn(t);
    if (status == VT_OK)
        return put(t, t->turn, "reasoning_content", text);
    json_decref(text);
    return status;
}

static vt_status read_item(translation *t, size_t i, const json_t *item)
{
    const json_t *type = json_object_get(item, "type");
    if (is(type, "message") || (!type && json_object_get(item, "role")))
        return read_message(t, i, item);
    if (is(type, "function_call"))
        return read_call(t, i, item);
    if (is(type, "function_call_output"))
        return read_output(t, i, item);
    if (is(type, "reasoning"))
        return read_reasoning(t, i, item);
    return vt_openai_refuse(t->e, 400, "input",
                            "input[%zu].type: '%.40s' found, expected message, function_call, "
                            "function_call_output or reasoning",
                            i, name_of(type));
}

static vt_status read_input(translation *t, const json_t *v)
{
    if (json_is_string(v))
        return add_message(t, "user", borrow(v));
    if (json_array_size(v) == 0)
        return vt_openai_refuse_value(t->e, "input", v, "a string or a list of items", "input");
    for (size_t i = 0; i < json_array_size(v); i++)
        TRY(read_item(t, i, json_array_get(v, i)));
    return end_turn(t);
}

static vt_status read_instructions(translation *t, const json_t *v)
{
    if (!json_is_string(v))
        return vt_openai_refuse_value(t->e, "instructions", v, "a string", "instructions");
    return json_string_length(v) > 0 ? add_message(t, "system", borrow(v)) : VT_OK;
}

/* ---- tools and form ---- */

/* Functions; tools that OpenAI itself would run are left out, because agents offer them unasked. */
static vt_status read_tools(translation *t, const json_t *v)
{
    static const char *const members[] = {"name", "description", "parameters", "strict"};
    json_t *tools = json_array();
    TRY(put(t, t->chat, "tools", tools));
    if (!json_is_array(v))
        return vt_openai_refuse_value(t->e, "tools", v, "a list", "tools");
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *tool = json_array_get(v, i), *type = json_object_get(tool, "type");
        if (is(type, "custom") || !json_is_string(type))
            return vt_openai_refuse(t->e, 400, "tools",
                                    "tools[%zu].type: '%.40s' found, expected function", i,
                                    name_of(type));
        if (!is(type, "function"))
            continue;
        json_t *f = json_object();
        for (int k = 0; k < 4; k++)
            if (json_object_get(tool, members[k]))
                json_object_set(f, members[k], json_object_get(tool, members[k]));
        json_t *one = json_pack("{s:s, s:o*}", "type", "function", "function", f);
        if (!one || json_array_append_new(tools, one) != 0)
            return no_memory(t);
    }
    return VT_OK;
}

/* {"type": "allowed_tools", "mode": .., "tools": [{"type": "function", "name": ..}]}. The list is
 * one of the tools that the request offers: those that OpenAI itself would run are left out of it
 * as they are there. */
static vt_status read_allowed_tools(translation *t, const json_t *v)
{
    json_t *mode = json_object_get(v, "mode"), *list = json_array();
    const json_t *given = json_object_get(v, "tools");
    json_t *choice = json_pack("{s:s, s:{s:O*, s:o}}", "type", "allowed_tools", "allowed_tools",
                               "mode", mode, "tools", list);
    if (!choice)
        return no_memory(t);
    for (size_t i = 0; i < json_array_size(given); i++) {
        const json_t *tool = json_array_get(given, i), *type = json_object_get(tool, "type");
        json_t *one = is(type, "function")
                          ? json_pack("{s:s, s:{s:O*}}", "type", "function", "function", "name",
                                      json_object_get(tool, "name"))
                          : json_incref((json_t *)(uintptr_t)tool);
        if (is(type, "function") || is(type, "custom") || !json_is_string(type))
            json_array_append(list, one);
        json_decref(one);
    }
    return put(t, t->chat, "tool_choice", choice);
}

static vt_status read_tool_choice(translation *t, const json_t *v)
{
    const json_t *name = json_object_get(v, "name");
    if (is(json_object_get(v, "type"), "allowed_tools"))
        return read_allowed_tools(t, v);
    if (json_is_string(v))
        return put(t, t->chat, "tool_choice", borrow(v));
    if (is(json_object_get(v, "type"), "function") && json_is_string(name))
        return put(t, t->chat, "tool_choice",
                   json_pack("{s:s, s:{s:O}}", "type", "function", "function", "name", name));
    return vt_openai_refuse_value(t->e, "tool_choice", v,
                                  "none, auto, required, a function with its name, or an object of "
                                  "type allowed_tools",
                                  "tool_choice");
}

/* Refuses what is no object, and members of it that are none of `known`. */
static vt_status check_object(translation *t, const char *name, const json_t *v,
                              const char *const *known, size_t n)
{
    const char *key;
    json_t *member;
    if (!json_is_object(v))
        return vt_openai_refuse_value(t->e, name, v, "an object", "%s", name);
    json_object_foreach((json_t *)(uintptr_t)v, key, member)
    {
        size_t i = 0;
        while (i < n && strcmp(known[i], key) != 0)
            i++;
        if (i == n && !json_is_null(member))
            return vt_openai_refuse(t->e, 400, name, "%s.%.60s: not supported", name, key);
    }
    return VT_OK;
}

static vt_status read_text_field(translation *t, const json_t *v)
{
    static const char *const known[] = {"format", "verbosity"};
    const json_t *format = json_object_get(v, "format"), *verbosity;
    TRY(check_object(t, "text", v, known, sizeof known / sizeof *known));
    verbosity = json_object_get(v, "verbosity");
    if (verbosity && !json_is_null(verbosity) && !is(verbosity, "medium"))
        return vt_openai_refuse(t->e, 400, "text", "text.verbosity: only medium is supported");
    if (!format || json_is_null(format))
        return VT_OK;
    if (!is(json_object_get(format, "type"), "json_schema"))
        return put(t, t->chat, "response_format", borrow(format));
    json_t *schema = json_copy((json_t *)(uintptr_t)format);
    json_object_del(schema, "type");
    return put(t, t->chat, "response_format",
               json_pack("{s:s, s:o*}", "type", "json_schema", "json_schema", schema));
}

static vt_status read_reasoning_field(translation *t, const json_t *v)
{
    static const char *const known[] = {"effort", "summary", "generate_summary"};
    const json_t *effort = json_object_get(v, "effort");
    TRY(check_object(t, "reasoning", v, known, sizeof known / sizeof *known));
    if (!effort || json_is_null(effort)) /* "summary": a thought is told whole */
        return VT_OK;
    TRY(vt_openai_check_effort(effort, "reasoning", "reasoning.effort", t->e));
    TRY(put(t, t->kwargs, "enable_thinking", json_boolean(!is(effort, "none"))));
    TRY(put(t, t->kwargs, "thinking", json_boolean(!is(effort, "none"))));
    return put(t, t->kwargs, "reasoning_effort", borrow(effort));
}

/* ---- fields that have one possible value ---- */

static vt_status refuse_state(translation *t, const json_t *v)
{
    (void)v;
    vt_openai_refuse(t->e, 400, "previous_response_id",
                     "previous_response_id: responses are not stored; send the whole conversation "
                     "as input");
    t->e->code = "unsupported_parameter";
    return VT_ERR_USAGE;
}

static vt_status read_background(translation *t, const json_t *v)
{
    return json_is_false(v)
               ? VT_OK
               : vt_openai_refuse(t->e, 400, "background", "background: only false is supported");
}

static vt_status read_truncation(translation *t, const json_t *v)
{
    return is(v, "disabled") ? VT_OK
                             : vt_openai_refuse(t->e, 400, "truncation",
                                                "truncation: only disabled is supported");
}

static vt_status read_top_logprobs(translation *t, const json_t *v)
{
    return json_is_integer(v) && json_integer_value(v) == 0
               ? VT_OK
               : vt_openai_refuse(t->e, 400, "top_logprobs",
                                  "top_logprobs: only 0 is supported here");
}

static vt_status read_include(translation *t, const json_t *v)
{
    if (!json_is_array(v))
        return vt_openai_refuse_value(t->e, "include", v, "a list", "include");
    for (size_t i = 0; i < json_array_size(v); i++)
        if (!is(json_array_get(v, i), "reasoning.encrypted_content"))
            return vt_openai_refuse(t->e, 400, "include",
                                    "include: '%.60s' found, expected reasoning.encrypted_content",
                                    name_of(json_array_get(v, i)));
    return VT_OK;
}

/* ---- the whole ---- */

static const translation_member members[] = {
    {"previous_response_id", 1, refuse_state},
    {"background", 1, read_background},
    {"truncation", 1, read_truncation},
    {"top_logprobs", 1, read_top_logprobs},
    {"include", 1, read_include},
    {"instructions", 1, read_instructions},
    {"input", 1, read_input, "messages"},
    {"tools", 1, read_tools},
    {"tool_choice", 1, read_tool_choice},
    {"text", 1, read_text_field, "response_format", "text.format"},
    {"reasoning", 1, read_reasoning_field},
    {"model", 1, NULL, "model"},
    {"max_output_tokens", 1, NULL, "max_tokens"},
    {"temperature", 1, NULL, "temperature"},
    {"top_p", 1, NULL, "top_p"},
    {"stream", 1, NULL, "stream"},
    {"parallel_tool_calls", 1, NULL, "parallel_tool_calls"},
    {"store", 1},
    {"metadata", 1},
    {"user", 1},
    {"safety_identifier", 1},
    {"prompt_cache_key", 1},
    {"prompt_cache_options", 1},
    {"prompt_cache_retention", 1},
    {"client_metadata", 1},
    {"service_tier", 1},
    {"stream_options", 1},
};

enum { N_MEMBERS = sizeof members / sizeof *members };

const translation_member *vt_responses_members(size_t *n)
{
    *n = N_MEMBERS;
    return members;
}

json_t *vt_responses_chat(const json_t *body, vt_openai_error *e)
{
    translation t;
    vt_status status = translation_begin(&t, body, members, N_MEMBERS, 1, e);
    if (status == VT_OK)
        status = translation_read(&t, members, N_MEMBERS, 1);
    const json_t *input = json_object_get(body, "input");
    if (status == VT_OK && (!input || json_is_null(input)))
        status = vt_openai_refuse(e, 400, "input", "input: missing");
    return translation_end(&t, status, true);
}

void vt_responses_own_names(vt_openai_error *e) { translation_own_names(members, N_MEMBERS, e); }
