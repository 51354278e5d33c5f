/* From what a person typed to token ids. (engine/chat.c has the way of messages through the chat
 * template.) */
#include "cli/prompt.h"

#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/utf8.h"
#include "engine/chat.h"
#include "text/template/template.h"

vt_status cli_read_prompt(const cli *c, vt_buf *text, vt_err *err)
{
    if (c->n_args > 0 && strcmp(c->arg[0], "-") != 0)
        return vt_buf_puts(text, c->arg[0])
                   ? VT_OK
                   : vt_fail(err, VT_ERR_MEMORY, "out of memory for the prompt");
    if (isatty(0))
        cli_note(c, "reading the prompt from the terminal; Ctrl-D ends it");
    return cli_read_file("-", text, err);
}

static vt_status take_ids(int32_t *id, size_t n, cli_ids *ids, vt_err *err)
{
    if (n > INT32_MAX) {
        vt_free(id);
        return vt_fail(err, VT_ERR_USAGE, "%zu tokens, expected at most %d", n, INT32_MAX);
    }
    ids->id = id;
    ids->n = (int32_t)n;
    return VT_OK;
}

vt_status cli_encode(const vt_model *m, const char *text, size_t len, unsigned flags, cli_ids *ids,
                     vt_err *err)
{
    int32_t *id = NULL;
    size_t n = 0;
    TRY(vt_tokenize(m, text, len, flags, &id, &n, err));
    return take_ids(id, n, ids, err);
}

vt_status cli_add_message(json_t *messages, const char *role, const char *text, size_t len,
                          vt_err *err)
{
    json_t *content = json_stringn(text, len);
    if (!content)
        return vt_fail(err, VT_ERR_USAGE,
                       "the %s message is not valid UTF-8 at byte %zu; run --raw replaces such "
                       "bytes by U+FFFD",
                       role, vt_utf8_valid(text, len));
    if (json_array_append_new(messages,
                              json_pack("{s:s, s:o}", "role", role, "content", content)) != 0)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for the %s message", role);
    return VT_OK;
}

vt_status cli_encode_messages(const cli *c, const vt_model *m, json_t *messages, cli_ids *ids,
                              vt_err *err)
{
    bool literal = vt_options_flag(c->options, "literal-content");
    json_t *variables = json_pack("{s:O}", "messages", messages);
    int32_t *id = NULL;
    size_t n = 0;
    if (!variables)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for the messages");
    vt_status status = vt_chat_encode(
        m, variables, VT_CHAT_OPEN_TURN | (literal ? VT_CHAT_LITERAL : 0),
        &(vt_template_limits){.stop = cli_stop_asked}, NULL, &id, &n, NULL, err);
    json_decref(variables);
    return status == VT_OK ? take_ids(id, n, ids, err) : status;
}
