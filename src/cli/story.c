/* vitrine story show: a story.json in the terminal. */
#include "base/err.h"
#include "cli/cli.h"
#include "story/story.h"

int cli_story_show(cli *c)
{
    vt_err err = {0};
    vt_buf json = {0}, out = {0};
    vt_status status = VT_OK;
    if (c->n_args == 0)
        status = vt_fail(&err, VT_ERR_USAGE, "which story? 'vitrine story show FILE.json'");
    if (status == VT_OK)
        status = cli_read_file(c->arg[0], &json, &err);
    if (status == VT_OK)
        status = story_render(c->arg[0], json.data ? json.data : "", json.len, &c->out, &out, &err);
    int code = CLI_DONE;
    if (status != VT_OK)
        code = cli_fail(&err);
    else if (out.len && fwrite(out.data, 1, out.len, stdout) != out.len)
        code = CLI_FAILED;
    vt_buf_release(&json);
    vt_buf_release(&out);
    return code;
}
