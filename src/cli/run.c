/* vitrine run: one completion. Serving goes through the public API alone (vitrine.h). */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "cli/cli.h"
#include "cli/prompt.h"
#include "cli/term/telling.h"
#include "engine/end_reason.h"
#include "model/model.h"

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
        return vt_fail(err, VT_ERR_USAGE,
                       "the prompt is empty; a text was expected as the argument, with -f FILE or "
                       "on stdin");
    if (vt_options_flag(c->options, "raw"))
        return cli_encode(m, data, text->len, VT_TOKENIZE_ADD_BOS, ids, err);
    json_t *messages = json_array();
    vt_status status = VT_OK;
    if (system)
        status = cli_add_message(messages, "system", system, strlen(system), err);
    if (status == VT_OK)
        status = cli_add_message(messages, "user", data, text->len, err);
    if (status == VT_OK)
        status = cli_encode_messages(c, m, messages, ids, err);
    json_decref(messages);
    return status;
}

/* --samples, --logprobs and -f: what they need and what they exclude. */
static vt_status check_forms(const cli *c, vt_err *err)
{
    const vt_options *o = c->options;
    bool file = vt_options_given(o, "file"), story = vt_options_given(o, "story");
    int64_t samples = vt_options_int(o, "samples");
    if (file && (c->n_args > 0 || vt_options_given(o, "tokens")))
        return vt_fail(err, VT_ERR_USAGE, "-f: takes the place of the prompt, give one of the two");
    if (vt_options_given(o, "logprobs") && !c->json)
        return vt_fail(err, VT_ERR_USAGE, "--logprobs: goes with --json");
    if (samples > 1 && vt_options_float(o, "temperature") == 0)
        return vt_fail(err, VT_ERR_USAGE,
                       "--samples: %lld found, and at temperature 0 all answers are the same: "
                       "give a --temperature",
                       (long long)samples);
    if (samples > 1 && story)
        return vt_fail(err, VT_ERR_USAGE, "--samples: a story is told of one answer");
    return VT_OK;
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
    if (vt_options_flag(c->options, "retry-failed"))
        return vt_fail(err, VT_ERR_USAGE, "--retry-failed: needs --batch, which is not given");
    if (vt_options_given(c->options, "story-dir"))
        return vt_fail(err, VT_ERR_USAGE,
                       "--story-dir: needs --batch, which is not given; --story tells of one "
                       "request");
    if ((tokens || raw) && vt_options_flag(c->options, "literal-content"))
        return vt_fail(err, VT_ERR_USAGE,
                       "--literal-content: needs the chat template, which --raw "
                       "and --tokens leave out");
    TRY(check_forms(c, err));
    return cli_prepare_story(c, err);
}

/* Options of one request, which --batch takes from its lines. */
static vt_status check_batch(const cli *c, vt_err *err)
{
    static const char *const alone[] = {
        "file",       "samples",          "logprobs",         "repeat-penalty",
        "logit-bias", "presence-penalty", "frequency-penalty"};
    for (size_t i = 0; i < sizeof alone / sizeof alone[0]; i++)
        if (vt_options_given(c->options, alone[i]))
            return vt_fail(err, VT_ERR_USAGE,
                           "--%s: does not go with --batch, whose lines say what they want",
                           alone[i]);
    return VT_OK;
}

typedef struct timings {
    double prefill_ms, ttft_ms, decode_ms, decode_tokens_per_s; /* NAN where there is none */
} timings;

/* arrival_ns: when the prompt was known; the reply begins when its ids were. */
static timings time_reply(const cli_reply *r, int64_t arrival_ns)
{
    timings t = {NAN, NAN, NAN, NAN};
    if (r->n_tokens == 0)
        return t;
    t.prefill_ms = (double)(r->first_ns - r->begin_ns) * 1e-6;
    t.ttft_ms = (double)(r->first_ns - arrival_ns) * 1e-6;
    t.decode_ms = (double)(r->last_ns - r->first_ns) * 1e-6;
    if (!r->n_other)
        t.decode_tokens_per_s = cli_tokens_per_s(r);
    return t;
}

static json_t *number(float v) { return isfinite(v) ? json_real((double)v) : json_null(); }

/* [{"id", "logprob", "top": [{"id", "logprob"}]}] of each token of an answer. */
static json_t *logprobs_json(const cli_reply *r)
{
    const vt_token_logprob *row = (const void *)r->logprobs.data;
    json_t *list = json_array();
    for (int32_t i = 0; i < r->n_tokens && row; i++, row += 1 + r->n_top) {
        json_t *top = json_array();
        for (int32_t k = 1; k <= r->n_top && row[k].id >= 0; k++)
            json_array_append_new(
                top, json_pack("{s:i, s:o}", "id", row[k].id, "logprob", number(row[k].logprob)));
        json_array_append_new(list, json_pack("{s:i, s:o, s:o}", "id", row->id, "logprob",
                                              number(row->logprob), "top", top));
    }
    return list;
}

static json_t *answer_json(const cli *c, const cli_reply *r)
{
    json_t *ids = json_array();
    for (int32_t i = 0; i < r->n_tokens; i++)
        json_array_append_new(ids, json_integer(r->token[i]));
    json_t *o = json_pack("{s:o, s:o, s:s}", "text",
                          cli_json_text(r->text.data ? r->text.data : "", r->text.len), "tokens",
                          ids, "finish_reason", vt_finish_name(r->finish));
    if (vt_options_given(c->options, "logprobs"))
        json_object_set_new(o, "logprobs", logprobs_json(r));
    return o;
}

/* The first answer is the object itself; with --samples, "samples" lists all of them. */
static int print_object(const cli *c, const cli_reply *r, const vt_request_params *p,
                        const timings *t, double load_ms)
{
    json_t *o = answer_json(c, r);
    if (vt_options_given(c->options, "samples")) {
        json_t *all = json_array();
        json_array_append_new(all, answer_json(c, r));
        for (int32_t i = 0; i < r->n_other; i++)
            json_array_append_new(all, answer_json(c, &r->other[i]));
        json_object_set_new(o, "samples", all);
    }
    if (p->temperature > 0)
        json_object_set_new(o, "seed", json_integer((json_int_t)p->seed));
    json_object_set_new(o, "usage",
                        json_pack("{s:i, s:i, s:i}", "prompt_tokens", r->prompt_tokens,
                                  "completion_tokens", r->completion_tokens, "cached_tokens",
                                  r->cached_tokens));
    json_t *times = json_pack("{s:o, s:o, s:o, s:o, s:o}", "load_ms", cli_json_number(load_ms, 3),
                              "prefill_ms", cli_json_number(t->prefill_ms, 3), "ttft_ms",
                              cli_json_number(t->ttft_ms, 3), "decode_ms",
                              cli_json_number(t->decode_ms, 3), "decode_tokens_per_s",
                              cli_json_number(t->decode_tokens_per_s, 2));
    if (r->draft_tokens > 0) {
        json_object_set_new(times, "draft_tokens", json_integer(r->draft_tokens));
        json_object_set_new(times, "draft_accepted", json_integer(r->draft_accepted));
    }
    json_object_set_new(o, "timings", times);
    return cli_print_json(o);
}

/* Several answers cannot be shown as they come: they grow side by side. */
static void print_samples(const cli_reply *r)
{
    for (int32_t i = 0; i <= r->n_other; i++) {
        const cli_reply *one = i == 0 ? r : &r->other[i - 1];
        printf("%s--- answer %d of %d\n", i ? "\n" : "", i + 1, r->n_other + 1);
        cli_put_all(stdout, one->text.data ? one->text.data : "", one->text.len);
    }
    if (!isatty(1)) /* on a terminal note_summary ends the line */
        putchar('\n');
}

static bool interrupted(const cli_reply *r)
{
    bool any = r->finish == VT_FINISH_ABORT;
    for (int32_t i = 0; i < r->n_other; i++)
        any |= r->other[i].finish == VT_FINISH_ABORT;
    return any;
}

/* One line after the answer: how much, how fast, why it ended. */
static void note_summary(const cli *c, const cli_session *s, const cli_reply *r,
                         const vt_request_params *p, const timings *t)
{
    vt_buf b = {0};
    if (c->out.tty)
        fputc('\n', stdout);
    fflush(stdout);
    vt_buf_printf(&b, "%d prompt token%s (%d cached), %d generated", r->prompt_tokens,
                  r->prompt_tokens == 1 ? "" : "s", r->cached_tokens, r->completion_tokens);
    if (r->n_tokens > 0)
        vt_buf_printf(&b, "; first after %.1f ms", t->ttft_ms);
    if (isfinite(t->decode_tokens_per_s))
        vt_buf_printf(&b, ", then %.1f tokens/s", t->decode_tokens_per_s);
    vt_buf_printf(&b, "; %s", interrupted(r) ? "interrupted" : vt_finish_name(r->finish));
    if (p->temperature > 0)
        vt_buf_printf(&b, "; seed %llu", (unsigned long long)p->seed);
    if (b.data)
        cli_note(c, "%s%s", c->log.tty || c->out.tty ? "" : "\n", b.data);
    if (!s->model->tokenizer)
        cli_note(c, "the model has no tokenizer, so there is no text; --json prints token ids");
    vt_buf_release(&b);
}

static int finish(const cli *c, cli_session *s, const vt_request_params *p, const cli_reply *r,
                  int64_t arrival_ns, vt_err *err)
{
    timings t = time_reply(r, arrival_ns);
    int status = CLI_DONE;
    int64_t begin_ns = vt_now_ns();
    if (c->json) {
        status = print_object(c, r, p, &t, s->load_ms);
    } else {
        if (r->n_other)
            print_samples(r);
        note_summary(c, s, r, p, &t);
    }
    if (!r->write_begin_ns) { /* it was not written as it came */
        int64_t end_ns = vt_now_ns();
        vt_engine_wrote(s->engine, r->id, begin_ns, end_ns, end_ns - begin_ns,
                        (int64_t)r->text.len);
    }
    if (vt_options_given(c->options, "story") && cli_tell_story(c, s, r->id, err) != VT_OK)
        status = cli_fail(err);
    return interrupted(r) ? CLI_INTERRUPTED : status;
}

static int complete(const cli *c, cli_session *s, const vt_buf *text, vt_request_params *p,
                    vt_err *err)
{
    cli_ids ids = {0};
    cli_reply reply = {.stream = c->json || p->n > 1 ? NULL : stdout};
    int64_t arrival_ns = vt_now_ns();
    vt_status status = make_ids(c, s->model, text, &ids, err);
    if (status == VT_OK) {
        p->prompt = ids.id;
        p->n_prompt = ids.n;
        p->arrived_ns = p->parsed_ns = arrival_ns;
        p->rendered_ns = vt_options_flag(c->options, "raw") ? arrival_ns : 0; /* with the ids */
        p->tokenised_ns = vt_options_given(c->options, "tokens") ? 0 : vt_now_ns();
        status = cli_generate(s, p, &reply, err);
    }
    int code = status == VT_OK ? finish(c, s, p, &reply, arrival_ns, err) : cli_fail(err);
    cli_reply_release(&reply);
    vt_free(ids.id);
    return code;
}

/* Reads and checks the options of the request before anything is loaded. */
static vt_status read_options(const cli *c, vt_request_params *p, vt_err *err)
{
    vt_request_init(p);
    TRY(check_usage(c, err));
    p->ignore_eos = vt_options_flag(c->options, "ignore-eos");
    p->n = (int32_t)vt_options_int(c->options, "samples");
    if (vt_options_given(c->options, "logprobs"))
        p->logprobs = (int32_t)vt_options_int(c->options, "logprobs");
    return cli_sampling(c, NULL, p, err);
}

static vt_status settle(const cli *c, const vt_model *m, vt_err *err)
{
    (void)m;
    return cli_fit_running(c, (int32_t)vt_options_int(c->options, "samples"), err);
}

int cli_run(cli *c)
{
    vt_err err = {0};
    cli_session s = {0};
    vt_buf text = {0};
    vt_request_params p;
    int code;
    cli_catch_interrupt();
    if (vt_options_given(c->options, "batch-file")) {
        cli_catch_dump();
        return check_batch(c, &err) == VT_OK ? cli_run_batch(c) : cli_fail(&err);
    }
    const char *file = vt_options_get(c->options, "file");
    vt_status status = read_options(c, &p, &err);
    if (status == VT_OK && file)
        status = cli_read_file(file, &text, &err);
    else if (status == VT_OK && !vt_options_given(c->options, "tokens"))
        status = cli_read_prompt(c, &text, &err);
    if (status == VT_OK)
        status = cli_open_as(c, &s, settle, &err);
    if (status == VT_OK)
        status = cli_use_adapter(&s, &p, &err);
    code = status == VT_OK ? complete(c, &s, &text, &p, &err) : cli_fail(&err);
    cli_close(&s);
    free((void *)p.logit_bias);
    vt_buf_release(&text);
    return code;
}
