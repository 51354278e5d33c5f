/* vitrine story show: a story.json in the terminal. */
#include "base/err.h"
#include "cli/cli.h"
#include "story/story.h"

/* One of --token, --step, --layer and --op, or none of them: *any is false. */
static vt_status read_level(const cli *c, story_level *level, bool *any, vt_err *err)
{
    static const char *const key[] = {[STORY_LEVEL_TOKEN] = "token",
                                      [STORY_LEVEL_STEP] = "step",
                                      [STORY_LEVEL_LAYER] = "layer",
                                      [STORY_LEVEL_OP] = "op"};
    *any = false;
    for (int k = 0; k <= STORY_LEVEL_OP; k++) {
        if (!vt_options_given(c->options, key[k]))
            continue;
        if (*any)
            return vt_fail(err, VT_ERR_USAGE,
                           "--%s and --%s: a story is shown at one level at a time",
                           key[level->kind], key[k]);
        *any = true;
        level->kind = (story_level_kind)k;
        if (k == STORY_LEVEL_OP)
            level->op = vt_options_get(c->options, key[k]);
        else
            level->number = vt_options_int(c->options, key[k]);
    }
    return VT_OK;
}

int cli_story_show(cli *c)
{
    vt_err err = {0};
    vt_buf json = {0}, out = {0};
    story_level level = {0};
    bool part;
    vt_status status = read_level(c, &level, &part, &err);
    if (status == VT_OK && c->n_args == 0)
        status = vt_fail(&err, VT_ERR_USAGE, "which story? 'vitrine story show FILE.json'");
    if (status == VT_OK)
        status = cli_read_file(c->arg[0], &json, &err);
    const char *text = json.data ? json.data : "";
    if (status == VT_OK && part)
        status = story_render_level(c->arg[0], text, json.len, &level, &c->out, &out, &err);
    else if (status == VT_OK)
        status = story_render(c->arg[0], text, json.len, &c->out, &out, &err);
    int code = CLI_DONE;
    if (status != VT_OK)
        code = cli_fail(&err);
    else if (out.len && fwrite(out.data, 1, out.len, stdout) != out.len)
        code = CLI_FAILED;
    vt_buf_release(&json);
    vt_buf_release(&out);
    return code;
}
