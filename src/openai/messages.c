/* The messages of a chat request, as the variables of a chat template. */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "files/json.h"
#include "openai/json_load.h"
#include "openai/request.h"

enum { MAX_MESSAGES = 1 << 16 };

enum { MAX_TOOLS = 1024, MAX_CALLS = 1024, MAX_NAME = 128 };
enum { MAX_ARGUMENTS = 4 << 20 }; /* bytes of arguments in one request */

/* ---- tools ---- */

static bool is_name(const json_t *name)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
    const char *s = json_string_value(name);
    size_t n = json_string_length(name);
    return s && n > 0 && n <= MAX_NAME && strspn(s, allowed) == n;
}

static vt_status check_tool(const json_t *tool, size_t i, vt_openai_error *e)
{
    const char *type = json_string_value(json_object_get(tool, "type"));
    const json_t *f = json_object_get(tool, "function");
    const json_t *parameters = json_object_get(f, "parameters");
    if (!type || strcmp(type, "function") != 0 || !json_is_object(f))
        return vt_openai_refuse(e, 400, "tools",
                                "tools[%zu]: type '%.40s' found, expected type function with its "
                                "function",
                                i, type ? type : "missing");
    if (!is_name(json_object_get(f, "name"))) {
        char want[64];
        snprintf(want, sizeof want, "1 to %d letters, digits, '_', '-' or '.'", MAX_NAME);
        return vt_openai_refuse_word(e, "tools", json_object_get(f, "name"), want,
                                     "tools[%zu].function.name", i);
    }
    if (parameters && !json_is_null(parameters) && !json_is_object(parameters))
        return vt_openai_refuse_value(e, "tools", parameters, "a JSON Schema, an object",
                                      "tools[%zu].function.parameters", i);
    return VT_OK;
}

/* An answer names the function that it calls, so two cannot have one name. */
static vt_status check_once(const json_t *tool, size_t i, json_t *seen, vt_openai_error *e)
{
    const char *name = json_string_value(
        json_object_get(json_object_get(tool, "function"), "name"));
    const json_t *first = json_object_get(seen, name);
    if (first)
        return vt_openai_refuse(e, 400, "tools",
                                "tools[%zu].function.name: '%s' is the name of tools[%lld] too", i,
                                name, (long long)json_integer_value(first));
    return json_object_set_new(seen, name, json_integer((json_int_t)i)) == 0
               ? VT_OK
               : vt_openai_refuse(e, 500, "tools", "out of memory for the tools");
}

vt_status vt_openai_check_tools(const json_t *tools, vt_openai_error *e)
{
    size_t n = json_array_size(tools);
    vt_status status = VT_OK;
    if (n > MAX_TOOLS)
        return vt_openai_refuse(e, 400, "tools", "tools: %zu found, expected at most %d", n,
                                MAX_TOOLS);
    json_t *seen = json_object(); /* {name: index} */
    for (size_t i = 0; status == VT_OK && i < n; i++) {
        status = check_tool(json_array_get(tools, i), i, e);
        if (status == VT_OK)
            status = check_once(json_array_get(tools, i), i, seen, e);
    }
    json_decref(seen);
    return status;
}

/* ---- messages ---- */

/* Room that is left for the arguments of all calls in a request. */
typedef struct room {
    size_t text;   /* bytes of JSON */
    uint64_t tree; /* of memory, once they are parsed */
} room;

/* Puts an object in the place of arguments that are its text. Templates walk through it, so that a
 * text which is none, as a model may have written it, becomes {"INVALID_JSON": text}, and no text
 * {}. False: memory is short. */
static bool parse_arguments(json_t *function, const json_t *text)
{
    json_t *object = NULL;
    vt_openai_error ignored = {0};
    size_t n = json_string_length(text);
    if (!json_is_string(text))
        return true;
    if (n > 0)
        (void)vt_openai_json_load(json_string_value(text), n, &object, &ignored);
    if (!json_is_object(object)) {
        json_decref(object);
        object = n > 0 ? json_pack("{s:O}", "INVALID_JSON", text) : json_object();
    }
    return object && json_object_set_new(function, "arguments", object) == 0;
}

/* Says what is wrong with call k of message i. */
static void refuse_call(vt_openai_error *e, size_t i, size_t k, const json_t *call)
{
    const json_t *f = json_object_get(call, "function"), *name = json_object_get(f, "name");
    if (!json_is_object(f))
        vt_openai_refuse_value(e, "messages", f, "an object with name and arguments",
                               "messages[%zu].tool_calls[%zu].function", i, k);
    else if (!json_is_string(name))
        vt_openai_refuse_value(e, "messages", name, "a string",
                               "messages[%zu].tool_calls[%zu].function.name", i, k);
    else
        vt_openai_refuse_value(e, "messages", json_object_get(f, "arguments"), "a string of JSON",
                               "messages[%zu].tool_calls[%zu].function.arguments", i, k);
}

/* Puts the calls of an assistant's message into the form that templates expect: arguments are an
 * object. False with `e` filled. */
static bool set_calls(json_t *message, size_t i, room *left, vt_openai_error *e)
{
    const json_t *calls = json_object_get(message, "tool_calls");
    size_t n = json_array_size(calls);
    if (!calls || json_is_null(calls))
        return true;
    if (!json_is_array(calls) || n > MAX_CALLS) {
        char want[32];
        snprintf(want, sizeof want, "a list of at most %d", MAX_CALLS);
        vt_openai_refuse_value(e, "messages", calls, want, "messages[%zu].tool_calls", i);
        return false;
    }
    json_t *list = json_deep_copy(calls);
    bool ok = true;
    for (size_t k = 0; ok && list && k < n; k++) {
        json_t *f = json_object_get(json_array_get(list, k), "function");
        const json_t *a = json_object_get(f, "arguments");
        if (!json_is_string(json_object_get(f, "name")) ||
            !(json_is_string(a) || json_is_object(a))) {
            refuse_call(e, i, k, json_array_get(list, k));
            json_decref(list);
            return false;
        }
        size_t n_text = json_string_length(a);
        uint64_t n_tree = n_text > 0 ? vt_json_tree_bytes(json_string_value(a), n_text) : 0;
        if (n_text > left->text || n_tree > left->tree) {
            vt_openai_refuse(e, 400, "messages",
                             "messages[%zu].tool_calls[%zu]: the arguments of all calls take more "
                             "than %d MiB, or their values more than %d MiB of memory",
                             i, k, MAX_ARGUMENTS >> 20, VT_OPENAI_MAX_TREE >> 20);
            json_decref(list);
            return false;
        }
        left->text -= n_text;
        left->tree -= n_tree;
        ok = parse_arguments(f, a);
    }
    if (!ok)
        json_decref(list);
    ok = ok && list && json_object_set_new(message, "tool_calls", list) == 0;
    if (!ok)
        vt_openai_refuse(e, 500, "messages", "out of memory for messages[%zu]", i);
    return ok;
}

/* An assistant's reasoning under both of the names that clients and templates use. */
static bool set_reasoning(json_t *message)
{
    static const char *const names[] = {"reasoning_content", "reasoning"};
    for (int i = 0; i < 2; i++) {
        json_t *given = json_object_get(message, names[i]);
        if (json_is_string(given) && !json_object_get(message, names[1 - i]) &&
            json_object_set(message, names[1 - i], given) != 0)
            return false;
    }
    return true;
}

/* OpenAI's newer name for the system's role. Templates that do not know it would leave the message
 * out without a word. False: memory is short. */
static bool set_developer(json_t *message, const char *template)
{
    const char *role = json_string_value(json_object_get(message, "role"));
    if (!role || strcmp(role, "developer") != 0 || !template || strstr(template, "developer"))
        return true;
    return json_object_set_new(message, "role", json_string("system")) == 0;
}

/* The text of a list of {"type": "text", "text": "..."}; NULL with `e` filled. */
static json_t *join_parts(const json_t *parts, size_t message, vt_openai_error *e)
{
    vt_buf text;
    vt_buf_init(&text, 0);
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const json_t *part = json_array_get(parts, i), *s = json_object_get(part, "text");
        const char *type = json_string_value(json_object_get(part, "type"));
        if (!type || strcmp(type, "text") != 0 || !json_is_string(s)) {
            vt_openai_refuse(e, 400, "messages",
                             "messages[%zu].content[%zu]: type '%.40s' found, expected a part of "
                             "type text with its text",
                             message, i, type ? type : "missing");
            vt_buf_release(&text);
            return NULL;
        }
        if (i > 0)
            vt_buf_putc(&text, '\n');
        vt_buf_add(&text, json_string_value(s), json_string_length(s));
    }
    json_t *joined = text.failed ? NULL : json_stringn(text.data ? text.data : "", text.len);
    vt_buf_release(&text);
    if (!joined)
        vt_openai_refuse(e, 500, "messages", "out of memory for messages[%zu]", message);
    return joined;
}

/* Message number i, checked, its content a string; NULL with `e` filled. */
static json_t *read_message(json_t *message, size_t i, const char *template, room *left,
                            vt_openai_error *e)
{
    const json_t *content = json_object_get(message, "content");
    const json_t *role = json_object_get(message, "role");
    bool assistant = json_is_string(role) && strcmp(json_string_value(role), "assistant") == 0;
    if (!json_is_object(message)) {
        vt_openai_refuse_value(e, "messages", message, "an object with a role", "messages[%zu]", i);
        return NULL;
    }
    if (!json_is_string(role)) {
        vt_openai_refuse_value(e, "messages", role, "a string", "messages[%zu].role", i);
        return NULL;
    }
    bool none = assistant && (!content || json_is_null(content));
    if (!none && !json_is_string(content) && !json_is_array(content)) {
        vt_openai_refuse_value(e, "messages", content, "a string or a list of text parts",
                               "messages[%zu].content", i);
        return NULL;
    }
    /* templates add contents up, which they cannot do with none */
    json_t *text = none                     ? json_string("")
                   : json_is_array(content) ? join_parts(content, i, e)
                                            : json_incref((json_t *)(uintptr_t)content);
    if (!none && !text)
        return NULL;
    json_t *copy = json_copy(message);
    if (json_object_set_new(copy, "content", text) != 0 || (assistant && !set_reasoning(copy)) ||
        !set_developer(copy, template)) {
        json_decref(copy);
        vt_openai_refuse(e, 500, "messages", "out of memory for messages[%zu]", i);
        return NULL;
    }
    if (assistant && !set_calls(copy, i, left, e)) {
        json_decref(copy);
        return NULL;
    }
    return copy;
}

json_t *vt_openai_template_variables(const json_t *messages, json_t *kwargs, const char *template,
                                     vt_openai_error *e)
{
    size_t n = json_array_size(messages); /* 0 where it is no list */
    if (n == 0 || n > MAX_MESSAGES) {
        char want[48];
        snprintf(want, sizeof want, "a list of 1 to %d messages", MAX_MESSAGES);
        vt_openai_refuse_value(e, "messages", messages, want, "messages");
        return NULL;
    }
    room left = {MAX_ARGUMENTS, VT_OPENAI_MAX_TREE};
    json_t *list = json_array(), *variables = kwargs ? json_copy(kwargs) : json_object();
    for (size_t i = 0; list && i < n; i++) {
        json_t *message = read_message(json_array_get(messages, i), i, template, &left, e);
        if (!message || json_array_append_new(list, message) != 0) {
            json_decref(list);
            json_decref(variables);
            if (message)
                vt_openai_refuse(e, 500, "messages", "out of memory for the messages");
            return NULL;
        }
    }
    if (json_object_set_new(variables, "messages", list) != 0) {
        json_decref(variables);
        vt_openai_refuse(e, 500, "messages", "out of memory for the messages");
        return NULL;
    }
    return variables;
}
