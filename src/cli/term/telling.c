/* --story: writes the story of a request to stderr (stdout has the answer) or to a file. */
#include "cli/term/telling.h"

#include <string.h>

#include "base/err.h"
#include "story/forms.h"
#include "story/story.h"

static bool ends_with(const char *s, const char *tail)
{
    size_t n = strlen(s), m = strlen(tail);
    return n >= m && strcmp(s + n - m, tail) == 0;
}

vt_status cli_prepare_story(const cli *c, vt_err *err)
{
    const char *to = vt_options_get(c->options, "story");
    if (!to || !*to)
        return VT_OK;
    if (!ends_with(to, ".json") && !ends_with(to, ".html") && !ends_with(to, ".pftrace"))
        return vt_fail(err, VT_ERR_USAGE,
                       "--story: '%s' found, expected a name that ends in .json, .html or .pftrace",
                       to);
    return cli_check_writable(to, err); /* before the answer is computed */
}

/* Into a file of the form that its name ends in. */
static vt_status write_form(const char *to, const char *json, size_t len, vt_err *err)
{
    story_file f = {"the story", json, len};
    vt_buf b = {0};
    if (ends_with(to, ".json"))
        return cli_write_file(to, json, len, err);
    vt_status status = ends_with(to, ".html") ? story_html(&f, &b, err)
                                              : story_export(&f, "pftrace", &b, err);
    if (status == VT_OK)
        status = cli_write_bytes(to, b.data ? b.data : "", b.len, err);
    vt_buf_release(&b);
    return status;
}

static vt_status show(const cli *c, const char *json, size_t len, vt_err *err)
{
    const char *to = vt_options_get(c->options, "story");
    if (to && *to)
        return write_form(to, json, len, err);
    vt_buf b = {0};
    vt_status status = story_render("the story", json, len, &c->log, &b, err);
    if (status == VT_OK && b.data)
        fprintf(stderr, "\n%s", b.data);
    vt_buf_release(&b);
    return status;
}

vt_status cli_tell_recording(const cli *c, const cli_session *s, vt_err *err)
{
    char *json = NULL;
    size_t len = 0;
    if (!vt_options_given(c->options, "story"))
        return VT_OK;
    TRY(vt_engine_story(s->engine, 0, &json, &len, err));
    vt_status status = show(c, json, len, err);
    vt_free(json);
    return status;
}

vt_status cli_tell_story(const cli *c, const cli_session *s, vt_request_id id, vt_err *err)
{
    char *json = NULL;
    size_t len = 0;
    TRY(vt_engine_story(s->engine, id, &json, &len, err));
    vt_status status = show(c, json, len, err);
    vt_free(json);
    return status;
}
