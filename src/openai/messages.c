/* The messages of a chat request, as the variables of a chat template. */
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "openai/request.h"

enum { MAX_MESSAGES = 1 << 16 };

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
static json_t *read_message(json_t *message, size_t i, vt_openai_error *e)
{
    const json_t *content = json_object_get(message, "content");
    const json_t *role = json_object_get(message, "role");
    bool assistant = json_is_string(role) && strcmp(json_string_value(role), "assistant") == 0;
    if (!json_is_string(role)) {
        vt_openai_refuse(e, 400, "messages", "messages[%zu]: expected an object with a role", i);
        return NULL;
    }
    bool none = assistant && (!content || json_is_null(content));
    if (json_is_string(content))
        return json_incref(message);
    if (!none && !json_is_array(content)) {
        vt_openai_refuse(e, 400, "messages",
                         "messages[%zu].content: expected a string or a list of text parts", i);
        return NULL;
    }
    /* templates add contents up, which they cannot do with none */
    json_t *text = none ? json_string("") : join_parts(content, i, e);
    if (!none && !text)
        return NULL;
    json_t *copy = json_copy(message);
    if (json_object_set_new(copy, "content", text) != 0) {
        json_decref(copy);
        vt_openai_refuse(e, 500, "messages", "out of memory for messages[%zu]", i);
        return NULL;
    }
    return copy;
}

json_t *vt_openai_template_variables(const json_t *messages, json_t *kwargs, vt_openai_error *e)
{
    size_t n = json_array_size(messages); /* 0 where it is no list */
    if (n == 0 || n > MAX_MESSAGES) {
        vt_openai_refuse(e, 400, "messages", "messages: expected a list of 1 to %d messages",
                         MAX_MESSAGES);
        return NULL;
    }
    json_t *list = json_array(), *variables = kwargs ? json_copy(kwargs) : json_object();
    for (size_t i = 0; list && i < n; i++) {
        json_t *message = read_message(json_array_get(messages, i), i, e);
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
