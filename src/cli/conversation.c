/* A conversation (cli/conversation.h). */
#include "cli/conversation.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/err.h"
#include "cli/prompt.h"
#include "files/json.h"

enum { MAX_CONVERSATION_BYTES = 16 << 20 };

static const char *role_at(const conversation *v, size_t i)
{
    return json_string_value(json_object_get(json_array_get(v->messages, i), "role"));
}

static bool is_role(const char *role, const char *wanted)
{
    return role && strcmp(role, wanted) == 0;
}

static bool has_system(const conversation *v) { return is_role(role_at(v, 0), "system"); }

vt_status conversation_begin(conversation *v, const char *system, vt_err *err)
{
    json_t *messages = json_array();
    vt_status status = messages ? VT_OK : vt_fail(err, VT_ERR_MEMORY, "out of memory");
    if (status == VT_OK && system)
        status = cli_add_message(messages, "system", system, strlen(system), err);
    if (status != VT_OK) {
        json_decref(messages);
        return status;
    }
    json_decref(v->messages);
    v->messages = messages;
    return VT_OK;
}

void conversation_release(conversation *v)
{
    json_decref(v->messages);
    v->messages = NULL;
}

vt_status conversation_set_system(conversation *v, const char *text, vt_err *err)
{
    conversation with = {0};
    TRY(conversation_begin(&with, text, err));
    if (has_system(v))
        json_array_remove(v->messages, 0);
    if (json_array_extend(with.messages, v->messages) != 0) {
        conversation_release(&with);
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for the system message");
    }
    conversation_release(v);
    *v = with;
    return VT_OK;
}

const char *conversation_system(const conversation *v)
{
    return has_system(v)
               ? json_string_value(json_object_get(json_array_get(v->messages, 0), "content"))
               : NULL;
}

size_t conversation_length(const conversation *v)
{
    return json_array_size(v->messages) - has_system(v);
}

void conversation_cut(conversation *v, size_t length)
{
    while (conversation_length(v) > length)
        json_array_remove(v->messages, json_array_size(v->messages) - 1);
}

const char *conversation_last_role(const conversation *v)
{
    return conversation_length(v) ? role_at(v, json_array_size(v->messages) - 1) : NULL;
}

/* ---- files ---- */

/* Returns the name of the member that a message lacks; NULL: it lacks none. */
static const char *fault_of(const json_t *message, size_t i)
{
    const char *role = json_string_value(json_object_get(message, "role"));
    if (!json_is_string(json_object_get(message, "content")))
        return "has no content that is a string";
    if (is_role(role, "user") || is_role(role, "assistant") || (i == 0 && is_role(role, "system")))
        return NULL;
    return "has a role that is not user or assistant (or system, in the first one)";
}

static vt_status parse(const char *path, const vt_buf *text, json_t **out, vt_err *err)
{
    json_t *root = NULL;
    if (text->len > MAX_CONVERSATION_BYTES)
        return vt_fail(err, VT_ERR_FORMAT, "%s: more than %d MiB", path,
                       MAX_CONVERSATION_BYTES >> 20);
    TRY(vt_json_load(path, text->data ? text->data : "", text->len, JSON_REJECT_DUPLICATES,
                     VT_JSON_MAX_TREE, &root, err));
    json_t *messages = json_is_array(root) ? root : json_object_get(root, "messages");
    vt_status status = VT_OK;
    const json_t *message;
    size_t i;
    if (!json_is_array(messages))
        status = vt_fail(err, VT_ERR_FORMAT, "%s: expected an object with a list of messages",
                         path);
    json_array_foreach(status == VT_OK ? messages : NULL, i, message)
    {
        const char *fault = fault_of(message, i);
        if (fault && status == VT_OK)
            status = vt_fail(err, VT_ERR_FORMAT, "%s: message %zu %s", path, i + 1, fault);
    }
    *out = status == VT_OK ? json_incref(messages) : NULL;
    json_decref(root);
    return status;
}

vt_status conversation_load(conversation *v, const char *path, vt_err *err)
{
    vt_buf text = {0};
    json_t *messages = NULL;
    TRY(cli_read_file(path, &text, err));
    vt_status status = parse(path, &text, &messages, err);
    vt_buf_release(&text);
    if (status != VT_OK)
        return status;
    json_decref(v->messages);
    v->messages = messages;
    return VT_OK;
}

/* A file that is there already is replaced only if it is a conversation. */
static vt_status may_replace(const char *path, vt_err *err)
{
    struct stat st;
    conversation old = {0};
    if (stat(path, &st) != 0 || (S_ISREG(st.st_mode) && st.st_size == 0))
        return VT_OK;
    if (!S_ISREG(st.st_mode) || conversation_load(&old, path, NULL) != VT_OK)
        return vt_fail(err, VT_ERR_USAGE, "%s: is there already and is no saved conversation",
                       path);
    conversation_release(&old);
    return VT_OK;
}

vt_status conversation_save(const conversation *v, const char *path, vt_err *err)
{
    TRY(may_replace(path, err));
    json_t *root = json_pack("{s:O}", "messages", v->messages);
    char *text = root ? json_dumps(root, JSON_INDENT(1)) : NULL;
    json_decref(root);
    if (!text)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for the conversation");
    vt_status status = cli_write_file(path, text, strlen(text), err);
    free(text);
    return status;
}
