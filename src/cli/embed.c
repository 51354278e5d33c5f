/* vitrine embed: the vector of a text. */
#include <string.h>

#include "base/err.h"
#include "cli/cli.h"
#include "cli/prompt.h"
#include "engine/engine.h"
#include "model/model.h"

typedef struct embedded {
    vt_buf vector; /* of float */
    int32_t n_tokens;
    vt_finish finish;
    char why[256];
} embedded;

static void on_event(void *user, const vt_event *e)
{
    embedded *m = user;
    if (e->finish == VT_FINISH_NONE)
        return;
    m->finish = e->finish;
    m->n_tokens = e->prompt_tokens;
    snprintf(m->why, sizeof m->why, "%s", e->error ? e->error : "the engine ended the request");
    if (e->vector)
        vt_buf_add(&m->vector, e->vector, (size_t)e->n_vector * sizeof *e->vector);
}

static vt_status embed(const cli *c, cli_session *s, const cli_ids *ids, embedded *out, vt_err *err)
{
    vt_request_params p;
    vt_request_id id;
    vt_request_init(&p);
    p.prompt = ids->id;
    p.n_prompt = ids->n;
    p.embed = true;
    p.rank = vt_engine_ranks(s->engine);
    p.unscaled = vt_options_flag(c->options, "unscaled");
    p.dimensions = (int32_t)vt_options_int(c->options, "dimensions");
    p.callback = on_event;
    p.user = out;
    TRY(vt_engine_submit(s->engine, &p, &id, err));
    TRY(cli_run_request(s, id, &out->finish, err));
    if (out->vector.failed)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for the vector");
    return out->vector.len > 0 ? VT_OK : vt_fail(err, VT_ERR_DEVICE, "%s", out->why);
}

/* Before anything is loaded. */
static vt_status check_usage(const cli *c, vt_err *err)
{
    bool text = vt_options_given(c->options, "embed-text"),
         tokens = vt_options_given(c->options, "tokens");
    if (text == tokens)
        return vt_fail(err, VT_ERR_USAGE,
                       text ? "--text and --tokens: give one of the two"
                            : "one of --text and --tokens is needed");
    if (tokens && vt_options_given(c->options, "prompt-name"))
        return vt_fail(err, VT_ERR_USAGE, "--prompt-name stands in front of a text, not of tokens");
    return VT_OK;
}

/* Where neither the command line nor the model's files say how to pool, the last token's state is
 * taken. */
static vt_status settle(const cli *c, const vt_model *m, vt_err *err)
{
    bool said = vt_options_given(c->options, "pooling") || m->pooled.how != VT_POOLING_NONE;
    return said ? VT_OK : vt_options_set(c->options, "pooling", "last", err);
}

/* Appends the prompt that stands in front of the text. */
static vt_status add_prompt(const cli *c, const vt_model *m, vt_buf *out, vt_err *err)
{
    const char *name = vt_options_given(c->options, "prompt-name")
                           ? vt_options_get(c->options, "prompt-name")
                           : NULL;
    const char *text = vt_model_prompt(m, name);
    if (!text)
        return vt_fail(err, VT_ERR_USAGE, "--prompt-name %.60s: %s", name,
                       m->pooled.n_prompts ? "the model has no prompt of that name"
                                           : "the model's files have no prompts");
    return vt_buf_add(out, text, strlen(text)) ? VT_OK
                                               : vt_fail(err, VT_ERR_MEMORY, "out of memory");
}

static vt_status read_ids(const cli *c, const vt_model *m, bool ranks, cli_ids *ids, vt_err *err)
{
    const char *tokens = vt_options_get(c->options, "tokens");
    if (tokens) /* the engine looks at their range */
        return vt_parse_ids(tokens, "--tokens", &ids->id, &ids->n, err);
    if (ranks)
        return vt_fail(err, VT_ERR_USAGE,
                       "--text: %s scores pairs of texts; /v1/score of vitrine serve takes them, "
                       "--tokens those of a pair",
                       vt_model_name(m));
    vt_buf text = {0}, whole = {0};
    TRY(cli_read_file(vt_options_get(c->options, "embed-text"), &text, err));
    size_t len = text.len && text.data[text.len - 1] == '\n' ? text.len - 1 : text.len;
    vt_status status = add_prompt(c, m, &whole, err);
    if (status == VT_OK && !vt_buf_add(&whole, text.data, len))
        status = vt_fail(err, VT_ERR_MEMORY, "out of memory");
    if (status == VT_OK)
        status = cli_encode(m, whole.data ? whole.data : "", whole.len,
                            VT_TOKENIZE_ADD_BOS | VT_TOKENIZE_ADD_EOS, ids, err);
    vt_buf_release(&text);
    vt_buf_release(&whole);
    return status;
}

static int report(const cli *c, const embedded *m)
{
    const float *v = (const void *)m->vector.data;
    size_t n = m->vector.len / sizeof *v;
    vt_json w;
    for (size_t i = 0; i < n && !c->json; i++)
        printf("%.9g\n", (double)v[i]);
    if (!c->json)
        return CLI_DONE;
    vt_json_object(&w);
    vt_json_int(&w, "tokens", m->n_tokens);
    vt_json_open(&w, "embedding", '[');
    for (size_t i = 0; i < n; i++)
        vt_json_float(&w, NULL, v[i]);
    vt_json_close(&w);
    return cli_object_print(&w);
}

int cli_embed(cli *c)
{
    vt_err err = {0};
    cli_session s = {0};
    cli_ids ids = {0};
    embedded out = {0};
    cli_catch_interrupt();
    vt_status status = check_usage(c, &err);
    if (status == VT_OK)
        status = cli_open_as(c, &s, settle, &err);
    if (status == VT_OK)
        status = read_ids(c, s.model, vt_engine_ranks(s.engine), &ids, &err);
    if (status == VT_OK)
        status = embed(c, &s, &ids, &out, &err);
    int code = status == VT_OK ? report(c, &out) : cli_fail(&err);
    vt_buf_release(&out.vector);
    vt_free(ids.id);
    cli_close(&s);
    return code;
}
