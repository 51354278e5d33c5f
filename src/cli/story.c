/* vitrine story show, diff, export, whatif: what is made of story.json files. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "cli/cli.h"
#include "story/forms.h"
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

/* Prints what a verb made, and releases it. */
static int finish(vt_status status, vt_buf *out, const vt_err *err)
{
    int code = CLI_DONE;
    if (status != VT_OK)
        code = cli_fail(err);
    else if (out->len && fwrite(out->data, 1, out->len, stdout) != out->len)
        code = CLI_FAILED;
    vt_buf_release(out);
    return code;
}

/* The option's text where it was given, else NULL. */
static const char *given(const cli *c, const char *key)
{
    const char *text = vt_options_given(c->options, key) ? vt_options_get(c->options, key) : NULL;
    return text && *text ? text : NULL;
}

static vt_status read_story(const cli *c, int32_t i, vt_buf *text, story_file *out, vt_err *err)
{
    if (i >= c->n_args)
        return vt_fail(err, VT_ERR_USAGE, "%s story? 'vitrine %s %s'",
                       i == 0 ? "which" : "and which other", c->verb->name, c->verb->args);
    TRY(cli_read_file(c->arg[i], text, err));
    *out = (story_file){cli_file_name(c->arg[i]), text->data ? text->data : "", text->len};
    return VT_OK;
}

int cli_story_show(cli *c)
{
    vt_err err = {0};
    vt_buf json = {0}, out = {0};
    story_level level = {0};
    bool part, in_short = vt_options_flag(c->options, "short"),
               as_flame = vt_options_flag(c->options, "flame");
    story_file f = {0};
    vt_status status = read_level(c, &level, &part, &err);
    if (status == VT_OK && part + in_short + as_flame > 1)
        status = vt_fail(&err, VT_ERR_USAGE,
                         "--short and --flame are of the whole story, and one at a time");
    if (status == VT_OK)
        status = read_story(c, 0, &json, &f, &err);
    if (status == VT_OK && part)
        status = story_render_level(f.name, f.json, f.len, &level, &c->out, &out, &err);
    else if (status == VT_OK && as_flame)
        status = story_flame(&f, &c->out, &out, &err);
    else if (status == VT_OK && in_short)
        status = story_render_short(f.name, f.json, f.len, &c->out, &out, &err);
    else if (status == VT_OK)
        status = story_render(f.name, f.json, f.len, &c->out, &out, &err);
    vt_buf_release(&json);
    return finish(status, &out, &err);
}

int cli_story_export(cli *c)
{
    vt_err err = {0};
    vt_buf json = {0}, out = {0};
    story_file f = {0};
    const char *path = given(c, "trace-file"), *form = vt_options_get(c->options, "to");
    vt_status status = path ? cli_check_writable(path, &err) : VT_OK;
    if (status == VT_OK)
        status = read_story(c, 0, &json, &f, &err);
    if (status == VT_OK && !path && isatty(STDOUT_FILENO) && strcmp(form, "pftrace") == 0)
        status = vt_fail(&err, VT_ERR_USAGE,
                         "--to pftrace is no text for a terminal: name a file with -o");
    if (status == VT_OK && strcmp(form, "html") == 0)
        status = story_html(&f, &out, &err);
    else if (status == VT_OK)
        status = story_export(&f, form, &out, &err);
    if (status == VT_OK && path) {
        status = cli_write_bytes(path, out.data ? out.data : "", out.len, &err);
        vt_buf_release(&out);
    }
    vt_buf_release(&json);
    return finish(status, &out, &err);
}

int cli_story_whatif(cli *c)
{
    vt_err err = {0};
    vt_buf json = {0}, out = {0};
    story_file f = {0};
    story_whatif_options ask = {.kv_dtype = given(c, "kv-dtype"),
                                .weights = given(c, "weights"),
                                .hardware = given(c, "hardware")};
    if (given(c, "batch"))
        ask.batch = (int32_t)vt_options_int(c->options, "batch");
    if (given(c, "prefix"))
        ask.prefix = (int32_t)vt_options_int(c->options, "prefix");
    vt_status status = read_story(c, 0, &json, &f, &err);
    if (status == VT_OK && !ask.kv_dtype && !ask.weights && !ask.hardware && !ask.batch &&
        !ask.prefix)
        status = vt_fail(&err, VT_ERR_USAGE,
                         "what should be different? --kv-dtype, --weights, --batch, --prefix or "
                         "--hardware");
    if (status == VT_OK)
        status = story_whatif(&f, &ask, &c->out, &out, &err);
    vt_buf_release(&json);
    return finish(status, &out, &err);
}

/* ---- diff ---- */

/* "3%" or "3": a share of 0.03. NAN where the option is not given. */
static vt_status read_share(const cli *c, double *out, vt_err *err)
{
    const char *text = vt_options_get(c->options, "fail-over");
    char *end;
    *out = NAN;
    if (!text || !*text)
        return VT_OK;
    double v = strtod(text, &end);
    end += *end == '%';
    if (end == text || *end || !(v >= 0 && v <= 1e6))
        return vt_fail(err, VT_ERR_USAGE,
                       "--fail-over: '%.40s' found, expected a percentage such as 3%%", text);
    *out = v / 100;
    return VT_OK;
}

/* "12" or "12:40": a step of A and one of B. */
static vt_status read_steps(const cli *c, uint64_t step[2], vt_err *err)
{
    const char *text = vt_options_get(c->options, "diff-steps");
    if (!text || !*text)
        return VT_OK;
    for (int k = 0; k < 2; k++) {
        char *end;
        step[k] = *text >= '0' && *text <= '9' ? strtoull(text, &end, 10) : 0;
        if (step[k] == 0 || step[k] > INT64_MAX || (*end && (k == 1 || *end != ':')))
            return vt_fail(err, VT_ERR_USAGE,
                           "--step: '%.40s' found, expected N or N:M, numbers of steps",
                           vt_options_get(c->options, "diff-steps"));
        if (*end == '\0' && k == 0) {
            step[1] = step[0];
            break;
        }
        text = end + 1;
    }
    return VT_OK;
}

int cli_story_diff(cli *c)
{
    vt_err err = {0};
    vt_buf json[2] = {{0}, {0}}, out = {0};
    story_file f[2] = {{0}};
    bool failed = false;
    story_diff_options o = {.markdown = vt_options_flag(c->options, "markdown"), .failed = &failed};
    vt_status status = read_share(c, &o.fail_over, &err);
    if (status == VT_OK)
        status = read_steps(c, o.step, &err);
    for (int32_t k = 0; k < 2 && status == VT_OK; k++)
        status = read_story(c, k, &json[k], &f[k], &err);
    if (status == VT_OK)
        status = story_diff(&f[0], &f[1], &o, &c->out, &out, &err);
    for (int k = 0; k < 2; k++)
        vt_buf_release(&json[k]);
    int code = finish(status, &out, &err);
    return code == CLI_DONE && failed ? CLI_FAILED : code;
}
