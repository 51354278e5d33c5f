/* vitrine score: how likely a model finds a text.
 *
 * A request scores its prompt (prompt_logprobs): position i gets the log-probability of token i
 * given those before it, so the first has none. With --window the text is cut into independent
 * chunks of W tokens, as llama-perplexity does it, and only tokens W/2+1 .. W-1 of a chunk count:
 *
 *   chunk   0 ......... W/2 | W/2+1 ......... W-1      the rest of the text, n mod W, is dropped
 *           context only    | scored
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "cli/cli.h"
#include "cli/prompt.h"
#include "cli/term/telling.h"
#include "model/model.h"

typedef struct scores {
    cli_ids ids;
    float *logprob;        /* [ids.n] NAN: not scored */
    vt_token_logprob *top; /* [ids.n][n_top] */
    int32_t n_top;
    double sum; /* of the log-probabilities that count */
    int64_t n_scored;
} scores;

/* A chunk on its way through the engine. */
typedef struct chunk {
    scores *out;
    int32_t begin, first, end; /* chunk [begin, end); positions from `first` on count */
    int32_t at;                /* the next position to be reported */
    vt_finish finish;
    char why[256];
} chunk;

static void on_event(void *user, const vt_event *e)
{
    chunk *k = user;
    scores *s = k->out;
    bool of_prompt = e->completion_tokens == 0 && e->logprobs;
    for (int32_t i = 0; of_prompt && i < e->n_tokens && k->at < k->end; i++, k->at++) {
        if (k->at < k->first)
            continue;
        s->logprob[k->at] = e->logprobs[i].logprob;
        s->sum += (double)e->logprobs[i].logprob;
        s->n_scored++;
        if (s->top && e->top_logprobs && e->n_top == s->n_top)
            memcpy(s->top + (int64_t)k->at * s->n_top, e->top_logprobs + (int64_t)i * e->n_top,
                   (size_t)s->n_top * sizeof *s->top);
    }
    if (e->finish == VT_FINISH_NONE)
        return;
    k->finish = e->finish;
    snprintf(k->why, sizeof k->why, "%s", e->error ? e->error : "the engine ended the request");
}

static vt_status score_chunk(cli_session *s, const int32_t *prompt, chunk *k, vt_err *err)
{
    vt_request_params p;
    vt_request_id id;
    vt_request_init(&p);
    p.prompt = prompt;
    p.n_prompt = k->end - k->begin;
    p.max_tokens = 1;
    p.ignore_eos = true;
    p.prompt_logprobs = true;
    p.logprobs = k->out->n_top;
    p.callback = on_event;
    p.user = k;
    TRY(cli_use_adapter(s, &p, err));
    TRY(vt_engine_submit(s->engine, &p, &id, err));
    TRY(cli_run_request(s, id, &k->finish, err));
    if (k->finish != VT_FINISH_LENGTH && k->finish != VT_FINISH_STOP)
        return vt_fail(err, VT_ERR_DEVICE, "%s", k->why);
    if (k->at != k->end)
        return vt_fail(err, VT_ERR_DEVICE, "the engine scored %d of %d tokens", k->at - k->begin,
                       k->end - k->begin);
    return VT_OK;
}

/* ---- what to score ---- */

/* Before anything is loaded. */
static vt_status check_usage(const cli *c, vt_err *err)
{
    bool text = vt_options_given(c->options, "text"),
         tokens = vt_options_given(c->options, "tokens");
    if (!text && !tokens)
        return vt_fail(err, VT_ERR_USAGE, "one of --text and --tokens is needed");
    if (text && tokens)
        return vt_fail(err, VT_ERR_USAGE, "--text and --tokens: give one of the two");
    if (vt_options_int(c->options, "top") > 0 && !c->json)
        return vt_fail(err, VT_ERR_USAGE, "--top: goes with --json");
    return VT_OK;
}

static vt_status read_ids(const cli *c, const vt_model *m, cli_ids *ids, vt_err *err)
{
    const char *file = vt_options_get(c->options, "text"),
               *tokens = vt_options_get(c->options, "tokens");
    if (tokens) {
        TRY(vt_parse_ids(tokens, "--tokens", &ids->id, &ids->n, err));
        for (int32_t i = 0; i < ids->n; i++)
            if (ids->id[i] >= vt_model_vocab_size(m))
                return vt_fail(err, VT_ERR_USAGE, "--tokens: %d found, expected ids below %d",
                               ids->id[i], vt_model_vocab_size(m));
        return VT_OK;
    }
    vt_buf text = {0};
    TRY(cli_read_file(file, &text, err));
    size_t len = text.len && text.data[text.len - 1] == '\n' ? text.len - 1 : text.len;
    vt_status status = cli_encode(m, text.data ? text.data : "", len, VT_TOKENIZE_ADD_BOS, ids,
                                  err);
    vt_buf_release(&text);
    return status;
}

static vt_status make_room(const cli *c, const vt_model *m, scores *s, vt_err *err)
{
    int64_t window = vt_options_int(c->options, "window");
    int64_t context = vt_options_int(c->options, "max-context");
    context = context ? context : vt_model_max_context(m);
    if (s->ids.n < 2)
        return vt_fail(err, VT_ERR_USAGE, "%d tokens to score, expected at least 2", s->ids.n);
    if (window >= context)
        return vt_fail(err, VT_ERR_USAGE,
                       "--window: %lld found, expected less than the context, %lld",
                       (long long)window, (long long)context);
    if (window == 0 && s->ids.n >= context)
        return vt_fail(err, VT_ERR_USAGE,
                       "%d tokens do not fit the context of %lld: --window scores them in chunks",
                       s->ids.n, (long long)context);
    if (window > s->ids.n)
        return vt_fail(err, VT_ERR_USAGE, "--window: %lld found, and the text has only %d tokens",
                       (long long)window, s->ids.n);
    s->n_top = (int32_t)vt_options_int(c->options, "top");
    s->logprob = malloc((size_t)s->ids.n * sizeof *s->logprob);
    s->top = s->n_top ? calloc((size_t)s->ids.n * (size_t)s->n_top, sizeof *s->top) : NULL;
    if (!s->logprob || (s->n_top && !s->top))
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for %d tokens", s->ids.n);
    for (int32_t i = 0; i < s->ids.n; i++)
        s->logprob[i] = NAN;
    return VT_OK;
}

static void show_progress(const cli *c, int32_t done, int32_t total, int64_t begin_ns,
                          const scores *s)
{
    double elapsed = (double)(vt_now_ns() - begin_ns) * 1e-9;
    vt_buf line = {0};
    if (c->quiet || !c->log.tty || total < 2)
        return;
    vt_text_progress(&line, "scoring", done, total, elapsed, " chunks");
    fprintf(stderr, "\r%s  perplexity %.4f \033[K%s", line.data ? line.data : "",
            exp(-s->sum / (double)s->n_scored), done == total ? "\n" : "");
    vt_buf_release(&line);
}

/* The whole text as one chunk, or windows. BOS takes the place of a chunk's first token where
 * the model wants one. */
static vt_status score_all(const cli *c, cli_session *s, scores *out, vt_err *err)
{
    int32_t window = (int32_t)vt_options_int(c->options, "window"), n = out->ids.n;
    int32_t size = window ? window : n, n_chunks = n / size;
    int32_t *prompt = malloc((size_t)size * sizeof *prompt);
    int64_t begin_ns = vt_now_ns();
    vt_status status = prompt ? VT_OK
                              : vt_fail(err, VT_ERR_MEMORY, "out of memory for %d tokens", size);
    for (int32_t i = 0; i < n_chunks && status == VT_OK; i++) {
        int32_t at = i * size;
        chunk k = {.out = out,
                   .begin = at,
                   .end = at + size,
                   .at = at + 1,
                   .first = at + (window ? size / 2 + 1 : 1)};
        memcpy(prompt, out->ids.id + at, (size_t)size * sizeof *prompt);
        if (window && s->model->add_bos && s->model->bos >= 0)
            prompt[0] = s->model->bos;
        status = score_chunk(s, prompt, &k, err);
        if (status == VT_OK)
            show_progress(c, i + 1, n_chunks, begin_ns, out);
    }
    free(prompt);
    return status;
}

/* ---- output ---- */

static json_t *top_json(const scores *s, int32_t i)
{
    json_t *list = json_array();
    for (int32_t k = 0; k < s->n_top && !isnan(s->logprob[i]); k++) {
        const vt_token_logprob *t = &s->top[(int64_t)i * s->n_top + k];
        json_array_append_new(list,
                              json_pack("{s:i, s:f}", "id", t->id, "logprob", (double)t->logprob));
    }
    return list;
}

static int report(const cli *c, const scores *s)
{
    double perplexity = s->n_scored ? exp(-s->sum / (double)s->n_scored) : NAN;
    if (!c->json) {
        printf("%d token%s, %lld scored, perplexity %.4f\n", s->ids.n, vt_text_s(s->ids.n),
               (long long)s->n_scored, perplexity);
        return CLI_DONE;
    }
    json_t *tokens = json_array(), *logprobs = json_array(), *top = json_array();
    for (int32_t i = 0; i < s->ids.n; i++) {
        json_array_append_new(tokens, json_integer(s->ids.id[i]));
        json_array_append_new(logprobs, isnan(s->logprob[i]) ? json_null()
                                                             : json_real((double)s->logprob[i]));
        if (s->n_top)
            json_array_append_new(top, top_json(s, i));
    }
    return cli_print_json(json_pack("{s:o, s:o, s:o, s:o}", "tokens", tokens, "logprobs", logprobs,
                                    "top", top, "perplexity", cli_json_number(perplexity, 6)));
}

int cli_score(cli *c)
{
    vt_err err = {0};
    cli_session s = {0};
    scores out = {0};
    cli_catch_interrupt();
    vt_status status = check_usage(c, &err);
    if (status == VT_OK)
        status = cli_prepare_story(c, &err);
    if (status == VT_OK)
        status = cli_open(c, &s, &err);
    if (status == VT_OK)
        status = read_ids(c, s.model, &out.ids, &err);
    if (status == VT_OK)
        status = make_room(c, s.model, &out, &err);
    if (status == VT_OK)
        status = score_all(c, &s, &out, &err);
    int code = status == VT_OK ? CLI_DONE : cli_fail(&err);
    if (status == VT_OK || (status == VT_ERR_CANCELLED && out.n_scored > 0)) {
        int reported = report(c, &out);
        code = code == CLI_DONE ? reported : code;
    }
    if (status == VT_OK && cli_tell_recording(c, &s, &err) != VT_OK)
        code = cli_fail(&err);
    free(out.logprob);
    free(out.top);
    vt_free(out.ids.id);
    cli_close(&s);
    return code;
}
