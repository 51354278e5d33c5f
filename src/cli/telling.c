/* --story: writes the story of a request to stderr (stdout has the answer) or to a file. */
#include "cli/telling.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/stats.h"
#include "story/story.h"

static bool ends_with(const char *s, const char *tail)
{
    size_t n = strlen(s), m = strlen(tail);
    return n >= m && strcmp(s + n - m, tail) == 0;
}

vt_status cli_prepare_story(const cli *c, vt_err *err)
{
    const char *to = vt_options_get(c->options, "story");
    if (!to)
        return VT_OK;
    if (ends_with(to, ".html") || ends_with(to, ".pftrace"))
        return vt_fail(err, VT_ERR_UNSUPPORTED,
                       "--story: '%s': this form is not there yet, expected FILE.json or no file",
                       to);
    if (*to && !ends_with(to, ".json"))
        return vt_fail(err, VT_ERR_USAGE, "--story: '%s' found, expected a name that ends in .json",
                       to);
    if (*to)
        TRY(cli_check_writable(to, err)); /* before the answer is computed */
    return vt_options_set(c->options, "record", "true", err);
}

/* ---- what recording costs ---- */

enum { MIN_GAPS = 8, MAX_GAPS = 64 };

/* The median gap between the first n + 1 tokens. */
static double median_gap_us(const cli_reply *r, int32_t n)
{
    double gap[MAX_GAPS];
    for (int32_t i = 0; i < n; i++)
        gap[i] = (double)(r->token_ns[i + 1] - r->token_ns[i]) * 1e-3;
    return vt_median(gap, (size_t)n);
}

/* Runs the request again without the recorder; returns its median gap, and in *first_us the time to
 * its first token. NAN if it makes too few tokens or fails; the story is printed all the same. */
static double run_unrecorded(const cli *c, cli_session *s, const vt_request_params *again,
                             int32_t n, double *first_us)
{
    vt_request_params p = *again;
    cli_reply reply = {0};
    double us = NAN;
    vt_engine_free(s->engine);
    s->engine = NULL;
    p.max_tokens = n + 1;
    if (vt_options_set(c->options, "record", "false", NULL) == VT_OK &&
        vt_engine_new(s->model, c->options, &s->engine, NULL) == VT_OK &&
        cli_generate(s, &p, &reply, &(vt_err){0}) == VT_OK && reply.n_tokens > n) {
        us = median_gap_us(&reply, n);
        *first_us = (double)(reply.first_ns - reply.begin_ns) * 1e-3;
    }
    cli_reply_release(&reply);
    return us;
}

static json_t *tagged(double v, int digits, const char *tag)
{
    return json_pack("{s:o, s:s}", "value", cli_json_number(v, digits), "tag",
                     isfinite(v) ? tag : "n/a");
}

static void add_observer(const cli *c, cli_session *s, const cli_reply *on,
                         const vt_request_params *again, json_t *story)
{
    json_t *observer = json_object_get(story, "observer");
    int32_t n = on->n_tokens - 1 < MAX_GAPS ? on->n_tokens - 1 : MAX_GAPS;
    if (n < MIN_GAPS || on->finish == VT_FINISH_ABORT)
        return;
    double first_us = NAN;
    double on_us = median_gap_us(on, n), off_us = run_unrecorded(c, s, again, n, &first_us);
    double first_on_us = (double)(on->first_ns - on->begin_ns) * 1e-3;
    json_object_set_new(observer, "on_us", tagged(on_us, 2, "measured"));
    json_object_set_new(observer, "off_us", tagged(off_us, 2, "measured"));
    json_object_set_new(observer, "tokens", json_integer(n));
    json_object_set_new(observer, "first_on_us", tagged(first_on_us, 2, "measured"));
    json_object_set_new(observer, "first_off_us", tagged(first_us, 2, "measured"));
    json_object_set_new(observer, "measured_tax", tagged(on_us / off_us - 1, 5, "derived"));
}

/* ---- telling ---- */

static vt_status show(const cli *c, const char *json, size_t len, vt_err *err)
{
    const char *to = vt_options_get(c->options, "story");
    if (to && *to)
        return cli_write_file(to, json, len, err);
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

vt_status cli_tell_story(const cli *c, cli_session *s, const cli_reply *reply,
                         const vt_request_params *again, vt_err *err)
{
    char *json = NULL;
    size_t len = 0;
    TRY(vt_engine_story(s->engine, reply->id, &json, &len, err));
    if (again) {
        json_t *story = json_loadb(json, len, 0, NULL);
        add_observer(c, s, reply, again, story);
        char *richer = story ? json_dumps(story, JSON_INDENT(1) | JSON_REAL_PRECISION(10)) : NULL;
        json_decref(story);
        vt_free(json);
        json = richer;
        len = json ? strlen(json) : 0;
    }
    vt_status status = json ? show(c, json, len, err)
                            : vt_fail(err, VT_ERR_MEMORY, "out of memory for the story");
    free(json);
    return status;
}
