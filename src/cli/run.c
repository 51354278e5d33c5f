/* vitrine run: one completion. Serving goes through the public API alone (vitrine.h). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "cli/cli.h"
#include "cli/prompt.h"
#include "cli/telling.h"

/* Three ways to a prompt's ids: --tokens, --raw text, or a chat message through the template. */
static vt_status make_ids(const cli *c, const vt_model *m, const vt_buf *text, cli_ids *ids,
                          vt_err *err)
{
    const char *tokens = vt_options_get(c->options, "tokens");
    const char *system = vt_options_get(c->options, "system");
    const char *data = text->data ? text->data : "";
    if (tokens)
        return vt_parse_ids(tokens, "--tokens", &ids->id, &ids->n, err);
    if (text->len == 0)
        return vt_fail(err, VT_ERR_USAGE, "the prompt is empty");
    if (vt_options_flag(c->options, "raw"))
        return cli_encode(m, data, text->len, VT_TOKENIZE_ADD_BOS, ids, err);
    json_t *messages = json_array();
    vt_status status = VT_OK;
    if (system)
        status = cli_add_message(messages, "system", system, strlen(system), err);
    if (status == VT_OK)
        status = cli_add_message(messages, "user", data, text->len, err);
    if (status == VT_OK)
        status = cli_encode_messages(m, messages, ids, err);
    json_decref(messages);
    return status;
}

static vt_status check_usage(const cli *c, vt_err *err)
{
    bool tokens = vt_options_given(c->options, "tokens"), raw = vt_options_flag(c->options, "raw");
    if (tokens && c->n_args > 0)
        return vt_fail(err, VT_ERR_USAGE,
                       "--tokens: takes the place of the prompt, give one of the two");
    if ((tokens || raw) && vt_options_given(c->options, "system"))
        return vt_fail(err, VT_ERR_USAGE,
                       "--system: needs the chat template, which --raw and --tokens leave out");
    if (vt_options_given(c->options, "output-file"))
        return vt_fail(err, VT_ERR_USAGE,
                       "--output: takes the results of --batch, which is not given");
    return cli_prepare_story(c, err);
}

typedef struct timings {
    double prefill_ms, ttft_ms, decode_ms, decode_tokens_per_s; /* NAN where there is none */
} timings;

enum { ENOUGH_DECODED = 3 }; /* tokens after the first: fewer say nothing about speed */

/* arrival_ns: when the prompt was known; the reply begins when its ids were. */
static timings time_reply(const cli_reply *r, int64_t arrival_ns)
{
    timings t = {NAN, NAN, NAN, NAN};
    if (r->n_tokens == 0)
        return t;
    t.prefill_ms = (double)(r->first_ns - r->begin_ns) * 1e-6;
    t.ttft_ms = (double)(r->first_ns - arrival_ns) * 1e-6;
    t.decode_ms = (double)(r->last_ns - r->first_ns) * 1e-6;
    if (r->n_tokens > ENOUGH_DECODED && t.decode_ms > 0)
        t.decode_tokens_per_s = (r->n_tokens - 1) * 1e3 / t.decode_ms;
    return t;
}

static int print_object(const cli_reply *r, const timings *t, double load_ms)
{
    json_t *ids = json_array();
    for (int32_t i = 0; i < r->n_tokens; i++)
        json_array_append_new(ids, json_integer(r->token[i]));
    return cli_print_json(json_pack(
        "{s:o, s:o, s:s, s:{s:i, s:i, s:i}, s:{s:o, s:o, s:o, s:o, s:o}}", "text",
        cli_json_text(r->text.data ? r->text.data : "", r->text.len), "tokens", ids,
        "finish_reason", cli_finish_name(r->finish), "usage", "prompt_tokens", r->prompt_tokens,
        "completion_tokens", r->completion_tokens, "cached_tokens", r->cached_tokens, "timings",
        "load_ms", cli_json_number(load_ms, 3), "prefill_ms", cli_json_number(t->prefill_ms, 3),
        "ttft_ms", cli_json_number(t->ttft_ms, 3), "decode_ms", cli_json_number(t->decode_ms, 3),
        "decode_tokens_per_s", cli_json_number(t->decode_tokens_per_s, 2)));
}

/* One line behind the answer: how much, how fast, why it ended. */
static void note_summary(const cli *c, const cli_reply *r, const timings *t)
{
    vt_buf b = {0};
    if (c->out.tty)
        fputc('\n', stdout);
    fflush(stdout);
    vt_buf_printf(&b, "%d prompt tokens (%d cached), %d generated", r->prompt_tokens,
                  r->cached_tokens, r->completion_tokens);
    if (r->n_tokens > 0)
        vt_buf_printf(&b, "; first after %.1f ms", t->ttft_ms);
    if (isfinite(t->decode_tokens_per_s))
        vt_buf_printf(&b, ", then %.1f tokens/s", t->decode_tokens_per_s);
    vt_buf_printf(&b, "; %s",
                  r->finish == VT_FINISH_ABORT ? "interrupted" : cli_finish_name(r->finish));
    if (b.data)
        cli_note(c, "%s%s", c->log.tty || c->out.tty ? "" : "\n", b.data);
    vt_buf_release(&b);
}

static int finish(const cli *c, cli_session *s, const vt_request_params *p, const cli_reply *r,
                  int64_t arrival_ns, vt_err *err)
{
    timings t = time_reply(r, arrival_ns);
    int status = CLI_DONE;
    if (c->json)
        status = print_object(r, &t, s->load_ms);
    else
        note_summary(c, r, &t);
    if (vt_options_given(c->options, "story") && cli_tell_story(c, s, r, p, err) != VT_OK)
        status = cli_fail(err);
    return r->finish == VT_FINISH_ABORT ? CLI_INTERRUPTED : status;
}

static int complete(const cli *c, cli_session *s, const vt_buf *text, vt_err *err)
{
    cli_ids ids = {0};
    cli_reply reply = {.stream = c->json ? NULL : stdout};
    vt_request_params p;
    int64_t arrival_ns = vt_now_ns();
    vt_request_init(&p);
    cli_sampling(c, &p);
    p.ignore_eos = vt_options_flag(c->options, "ignore-eos");
    vt_status status = make_ids(c, s->model, text, &ids, err);
    if (status == VT_OK) {
        p.prompt = ids.id;
        p.n_prompt = ids.n;
        status = cli_generate(s, &p, &reply, err);
    }
    int code = status == VT_OK ? finish(c, s, &p, &reply, arrival_ns, err) : cli_fail(err);
    cli_reply_release(&reply);
    vt_free(ids.id);
    return code;
}

int cli_run(cli *c)
{
    vt_err err = {0};
    cli_session s = {0};
    vt_buf text = {0};
    int code;
    cli_catch_interrupt();
    if (vt_options_given(c->options, "batch-file"))
        return cli_run_batch(c);
    vt_status status = check_usage(c, &err);
    if (status == VT_OK && !vt_options_given(c->options, "tokens"))
        status = cli_read_prompt(c, &text, &err);
    if (status == VT_OK)
        status = cli_open(c, &s, &err);
    code = status == VT_OK ? complete(c, &s, &text, &err) : cli_fail(&err);
    cli_close(&s);
    vt_buf_release(&text);
    return code;
}
