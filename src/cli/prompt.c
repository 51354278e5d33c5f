/* From what a person typed to token ids.
 *
 *   messages (JSON) -> chat template -> text with special tokens -> ids
 *
 * The template writes the special tokens itself, BOS included, so its output is tokenised with
 * special tokens on and no BOS added: this is what Hugging Face's apply_chat_template does. */
#include "cli/prompt.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"

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

vt_status cli_encode(const vt_model *m, const char *text, size_t len, unsigned flags, cli_ids *ids,
                     vt_err *err)
{
    int32_t *id = NULL;
    size_t n = 0;
    TRY(vt_tokenize(m, text, len, flags, &id, &n, err));
    if (n > INT32_MAX) {
        vt_free(id);
        return vt_fail(err, VT_ERR_USAGE, "%zu tokens, expected at most %d", n, INT32_MAX);
    }
    ids->id = id;
    ids->n = (int32_t)n;
    return VT_OK;
}

vt_status cli_add_message(json_t *messages, const char *role, const char *text, size_t len,
                          vt_err *err)
{
    json_t *content = json_stringn(text, len);
    if (!content)
        return vt_fail(err, VT_ERR_USAGE,
                       "the %s message is not valid UTF-8; run --raw takes bytes as they are",
                       role);
    if (json_array_append_new(messages,
                              json_pack("{s:s, s:o}", "role", role, "content", content)) != 0)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for the %s message", role);
    return VT_OK;
}

vt_status cli_encode_messages(const vt_model *m, json_t *messages, cli_ids *ids, vt_err *err)
{
    json_t *object = json_pack("{s:O}", "messages", messages);
    char *json = object ? json_dumps(object, JSON_COMPACT) : NULL, *text = NULL;
    size_t len = 0;
    json_decref(object);
    if (!json)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for the messages");
    vt_status status = vt_render_chat_until(m, json, strlen(json), true, cli_stop_asked, NULL,
                                            &text, &len, err);
    free(json);
    if (status == VT_OK)
        status = cli_encode(m, text, len, VT_TOKENIZE_SPECIAL, ids, err);
    vt_free(text);
    return status;
}
