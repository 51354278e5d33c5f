/* vitrine template: a chat template applied to messages. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "cli/cli.h"
#include "cli/models/metadata.h"
#include "files/json.h"
#include "text/template/template.h"

/* A list of messages alone stands for {"messages": [...]}. */
static vt_status read_variables(const char *path, char **json, vt_err *err)
{
    vt_buf text = {0};
    json_t *v = NULL;
    TRY(cli_read_file(path, &text, err));
    vt_status status = vt_json_load(cli_file_name(path), text.data ? text.data : "", text.len,
                                    JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY,
                                    VT_JSON_MAX_TREE, &v, err);
    vt_buf_release(&text);
    TRY(status);
    if (json_is_array(v))
        v = json_pack("{s:o}", "messages", v);
    if (!json_is_object(v))
        status = vt_fail(err, VT_ERR_FORMAT,
                         "%s: expected an object with messages, or a list of messages",
                         cli_file_name(path));
    *json = status == VT_OK ? json_dumps(v, JSON_COMPACT) : NULL;
    json_decref(v);
    if (status == VT_OK && !*json)
        status = vt_fail(err, VT_ERR_MEMORY, "out of memory for the messages");
    return status;
}

/* Returns the status of a rendering: a mistake of the template while it runs is no wrong use of the
 * program. */
static vt_status rendered(vt_status status, vt_err *err)
{
    if (status == VT_ERR_USAGE)
        err->status = VT_ERR_FORMAT;
    return status == VT_ERR_USAGE ? VT_ERR_FORMAT : status;
}

/* --template: the template sees the variables of the JSON as they are, and
 * add_generation_prompt where the JSON does not set it. */
static vt_status render_file(const char *path, const char *json, bool open_turn, vt_buf *out,
                             vt_err *err)
{
    vt_buf source = {0};
    vt_template *t = NULL;
    const vt_template_limits limits = {.stop = cli_stop_asked};
    TRY(cli_read_file(path, &source, err));
    vt_status status = vt_template_parse(cli_file_name(path), source.data ? source.data : "",
                                         source.len, &t, err);
    json_t *v = json_loads(json, JSON_ALLOW_NUL, NULL);
    if (v && !json_object_get(v, "add_generation_prompt"))
        json_object_set_new(v, "add_generation_prompt", json_boolean(open_turn));
    char *variables = v ? json_dumps(v, JSON_COMPACT) : NULL;
    json_decref(v);
    if (status == VT_OK && !variables)
        status = vt_fail(err, VT_ERR_MEMORY, "out of memory for the messages");
    if (status == VT_OK)
        status = rendered(vt_template_render(t, variables, strlen(variables), &limits, out, err),
                          err);
    free(variables);
    vt_template_free(t);
    vt_buf_release(&source);
    return status;
}

static vt_status render_model(const cli *c, const char *json, bool open_turn, vt_buf *out,
                              vt_err *err)
{
    vt_model *m = NULL;
    char *text = NULL;
    size_t len = 0;
    TRY(cli_open_metadata(c, &m, err));
    vt_status status = rendered(vt_render_chat_until(m, json, strlen(json), open_turn,
                                                     cli_stop_asked, NULL, &text, &len, err),
                                err);
    if (status == VT_OK && !vt_buf_add(out, text, len))
        status = vt_fail(err, VT_ERR_MEMORY, "out of memory for the rendered text");
    vt_free(text);
    vt_model_free(m);
    return status;
}

int cli_template(cli *c)
{
    vt_err err = {0};
    char *json = NULL;
    vt_buf out = {0};
    const char *messages = vt_options_get(c->options, "messages"),
               *file = vt_options_get(c->options, "template");
    bool open_turn = !vt_options_flag(c->options, "no-generation-prompt");
    vt_status status = VT_OK;
    cli_catch_interrupt();
    if (!messages)
        status = vt_fail(&err, VT_ERR_USAGE, "--messages is needed: a JSON file, or - for stdin");
    if (status == VT_OK)
        status = read_variables(messages, &json, &err);
    if (status == VT_OK)
        status = file ? render_file(file, json, open_turn, &out, &err)
                      : render_model(c, json, open_turn, &out, &err);
    int code = CLI_DONE;
    if (status != VT_OK) {
        code = cli_fail(&err);
    } else if (!cli_put_all(stdout, out.data ? out.data : "", out.len))
        code = CLI_FAILED;
    vt_buf_release(&out);
    free(json);
    return code;
}
