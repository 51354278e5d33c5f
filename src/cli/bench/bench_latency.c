/* vitrine bench latency: prefill and decode speed of one batch.
 *
 *   submit B prompts      all B have their first token      gen - 1 steps later
 *   |------ prefill ------|------------- decode ------------|
 *
 * The prefill speed is B * prompt tokens over the first part. In the second part every step makes
 * one token for each of the B sequences: none ends before the others (those that began early make
 * more tokens), so a step's time is batch / decode_tokens_per_s.
 *
 * Tokens count from when the device had made them. The event comes later, and how much later
 * depends on what else this thread had to do: where workers take every core, the first event may
 * come when the second token is almost there.
 *
 * Each repetition has new random prompts, so the prefix cache never helps. One repetition that does
 * not count comes first, to warm up caches and threads.
 *
 * A GPU also tells the gaps between steps: how long it idled from the end of a step to the
 * beginning of the next. The first gap of a repetition is the time between repetitions and does not
 * count. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/random.h"
#include "base/stats.h"
#include "cli/bench/bench.h"
#include "cli/term/telling.h"
#include "engine/engine.h"
#include "engine/scheduler.h"
#include "model/model.h"

typedef struct batch_run {
    int32_t n_seqs, n_first, n_done;
    int32_t wanted, n_steps; /* steps of all sequences, after the one that began the last */
    int64_t begin_ns, first_ns, all_first_ns, end_ns;
    bool failed;
    char why[256];
} batch_run;

/* One for each sequence: it leads an event to the run and to the sequence's own count. The first
 * sequence's tokens count the steps. */
typedef struct bench_seq {
    batch_run *run;
    int32_t n_tokens;
    bool counts;
} bench_seq;

static void on_event(void *user, const vt_event *e)
{
    bench_seq *s = user;
    batch_run *r = s->run;
    int64_t now = e->made_ns;
    if (e->n_tokens > 0 && s->n_tokens == 0) {
        r->first_ns = r->n_first == 0 ? now : r->first_ns;
        r->all_first_ns = r->end_ns = now;
        r->n_first++;
    }
    if (s->counts && e->n_tokens > 0 && s->n_tokens > 0 && r->n_first == r->n_seqs &&
        r->n_steps < r->wanted) {
        r->n_steps += e->n_tokens;
        r->end_ns = now;
    }
    s->n_tokens += e->n_tokens;
    r->n_done += e->finish != VT_FINISH_NONE;
    if (e->finish == VT_FINISH_ERROR) {
        r->failed = true;
        snprintf(r->why, sizeof r->why, "%s", e->error ? e->error : "the request failed");
    }
}

typedef struct shape {
    int32_t prompt, gen, batch;
} shape;

/* Returns how many tokens a sequence may come to generate: its own, those of the steps in which the
 * others' prompts are computed, and those of steps in flight when the last one has begun. */
static int32_t most_tokens(const cli_session *s, const shape *sh)
{
    const vt_limits *l = &vt_engine_scheduler(s->engine)->config.limits;
    int64_t room = l->max_tokens > 2 * sh->batch ? l->max_tokens - sh->batch : l->max_tokens / 2;
    int64_t prefill = (int64_t)sh->prompt * sh->batch / (room > 0 ? room : 1);
    int64_t most = sh->gen + 2 * prefill + 8, left = vt_engine_max_context(s->engine) - sh->prompt;
    return (int32_t)(most < left ? most : left > 1 ? left : 1);
}

/* Refuses a batch that the KV cache cannot hold: its sequences would take each other's pages for
 * minutes, and the figures would tell of that. */
static vt_status check_kv(const cli_session *s, const shape *sh, vt_err *err)
{
    const vt_sched_config *sched = &vt_engine_scheduler(s->engine)->config;
    int64_t page = sched->limits.page_size,
            each = (sh->prompt + most_tokens(s, sh) + page - 1) / page, pages = each * sh->batch;
    if (pages <= sched->n_pages)
        return VT_OK;
    double bytes = vt_executor_value(vt_engine_executor(s->engine), "kv_bytes", 0) / sched->n_pages;
    return vt_fail(
        err, VT_ERR_USAGE,
        "--batch: %d sequences of up to %lld tokens need %lld pages of KV, and there are "
        "%d; --kv-memory %lldM would hold them",
        sh->batch, (long long)(each * page), (long long)pages, sched->n_pages,
        (long long)(bytes * (double)pages * 0x1p-20) + 1);
}

static vt_status submit_all(cli_session *s, const shape *sh, uint64_t *rng, bench_seq *seq,
                            vt_request_id *id, vt_err *err)
{
    int32_t vocab = vt_model_vocab_size(s->model);
    int32_t n = sh->prompt ? sh->prompt : 1;
    int32_t *prompt = malloc((size_t)n * sizeof *prompt);
    vt_request_params p;
    vt_status status = prompt
                           ? VT_OK
                           : vt_fail(err, VT_ERR_MEMORY, "out of memory for %d prompt tokens", n);
    for (int32_t b = 0; b < sh->batch && status == VT_OK; b++) {
        for (int32_t i = 0; i < n; i++)
            prompt[i] = (int32_t)(vt_random_next(rng) % (uint64_t)vocab);
        vt_request_init(&p);
        p.prompt = prompt;
        p.n_prompt = n;
        p.max_tokens = most_tokens(s, sh); /* or run_once ends them */
        p.ignore_eos = true;
        p.callback = on_event;
        p.user = &seq[b];
        status = cli_use_adapter(s, &p, err);
        if (status == VT_OK)
            status = vt_engine_submit(s->engine, &p, &id[b], err);
    }
    free(prompt);
    return status;
}

static bool has_ended(const batch_run *r)
{
    return r->failed || r->n_done == r->n_seqs ||
           (r->n_first == r->n_seqs && r->n_steps >= r->wanted);
}

/* One repetition. Ctrl-C ends it with VT_ERR_CANCELLED. */
static vt_status run_once(const cli *c, cli_session *s, const shape *sh, uint64_t *rng,
                          batch_run *r, vt_err *err)
{
    bench_seq *seq = calloc((size_t)sh->batch, sizeof *seq);
    vt_request_id *id = calloc((size_t)sh->batch, sizeof *id);
    bool idle = false;
    *r = (batch_run){.n_seqs = sh->batch, .wanted = sh->gen - 1};
    vt_status status = seq && id ? VT_OK
                                 : vt_fail(err, VT_ERR_MEMORY, "out of memory for %d sequences",
                                           sh->batch);
    for (int32_t b = 0; status == VT_OK && b < sh->batch; b++)
        seq[b] = (bench_seq){.run = r, .counts = b == 0};
    r->begin_ns = vt_now_ns();
    if (status == VT_OK)
        status = submit_all(s, sh, rng, seq, id, err);
    while (status == VT_OK && !has_ended(r) && !cli_interrupted() && !idle) {
        status = vt_engine_step(s->engine, &idle, err);
        cli_dump_if_asked(c, s->engine);
    }
    if (status == VT_OK && cli_interrupted())
        status = vt_fail(err, VT_ERR_CANCELLED, "interrupted");
    if (status == VT_OK && r->failed)
        status = vt_fail(err, VT_ERR_DEVICE, "%s", r->why);
    for (int32_t b = 0; seq && id && b < sh->batch; b++)
        vt_engine_abort(s->engine, id[b]);
    while (!idle && vt_engine_step(s->engine, &idle, NULL) == VT_OK)
        ; /* afterwards no event calls back into seq[] */
    free(seq);
    free(id);
    return status;
}

enum { MAX_GAPS = 1 << 14, REP_GAPS = 4096 };

typedef struct results {
    cli_sample prefill, decode, ttft, load;
    uint64_t retracted; /* sequences that gave up their pages, and were computed again */
    double gap_us[MAX_GAPS];
    int32_t n_gaps;
} results;

/* The gaps since number *seen, without the first one. What no longer fits is left out. */
static void add_gaps(const cli_session *s, uint64_t *seen, results *out)
{
    vt_report gaps;
    if (!vt_executor_find(vt_engine_executor(s->engine), "step_gap", &gaps) || !gaps.series)
        return; /* a device that does not tell */
    const vt_series *of = gaps.series;
    uint64_t most = of->capacity < REP_GAPS ? (uint64_t)of->capacity : REP_GAPS, from = *seen + 1;
    from = of->n > from + most ? of->n - most : from;
    for (; from < of->n && out->n_gaps < MAX_GAPS; from++)
        out->gap_us[out->n_gaps++] = (double)of->value[from % (uint64_t)of->capacity];
    *seen = of->n;
}

static uint64_t retracted(const cli_session *s)
{
    vt_engine_stats stats;
    vt_engine_copy_stats(s->engine, &stats);
    return stats.sched.retracted;
}

static void add_run(const shape *sh, const batch_run *r, results *out)
{
    double prefill_s = (double)(r->all_first_ns - r->begin_ns) * 1e-9;
    double decode_s = (double)(r->end_ns - r->all_first_ns) * 1e-9;
    if (sh->prompt > 0)
        cli_sample_add(&out->prefill, (double)sh->prompt * sh->batch / prefill_s);
    if (r->n_steps > 0 && decode_s > 0)
        cli_sample_add(&out->decode, (double)r->n_steps * r->n_seqs / decode_s);
    cli_sample_add(&out->ttft, (double)(r->first_ns - r->begin_ns) * 1e-6);
}

static void put_sample(vt_table *t, const char *what, const cli_sample *s, const char *unit)
{
    if (s->n == 0)
        return;
    vt_table_cell(t, "%s", what);
    vt_table_cell(t, "%.1f %s", cli_sample_mean(s), unit);
    vt_table_cell(t, "%.1f", isfinite(cli_sample_stdev(s)) ? cli_sample_stdev(s) : 0);
    vt_table_cell(t, "%.1f", s->low);
    vt_table_cell(t, "%.1f", s->high);
}

/* Writes what making the executor took, under "startup"; nothing where it does not tell. */
static void write_startup(vt_json *w, const vt_executor *x)
{
    bool open = false;
    static const char group[] = "startup.";
    vt_report all[VT_MAX_REPORTS];
    int32_t n = x->report ? x->report(x, all, VT_MAX_REPORTS) : 0;
    for (int32_t i = 0; i < n && i < VT_MAX_REPORTS; i++) {
        const vt_report *r = &all[i];
        if (strncmp(r->key, group, sizeof group - 1) != 0)
            continue;
        if (!open)
            vt_json_open(w, "startup", '{');
        open = true;
        vt_json_fixed(w, r->key + sizeof group - 1, r->value, strcmp(r->unit, "ms") == 0 ? 2 : 0);
    }
    if (open)
        vt_json_close(w);
}

static int report(const cli *c, const cli_session *s, const shape *sh, results *r)
{
    const vt_model *m = s->model;
    size_t n_gaps = (size_t)r->n_gaps;
    double p50 = vt_percentile(r->gap_us, n_gaps, 0.50),
           p99 = vt_percentile(r->gap_us, n_gaps, 0.99),
           longest = vt_percentile(r->gap_us, n_gaps, 1);
    vt_buf b = {0};
    if (c->json) {
        vt_json w;
        cli_bench_begin(&w, c, "latency", vt_model_name(m));
        vt_json_int(&w, "prompt", sh->prompt);
        vt_json_int(&w, "gen", sh->gen);
        vt_json_int(&w, "batch", sh->batch);
        cli_sample_write(&w, "prefill_tokens_per_s", &r->prefill, 2);
        cli_sample_write(&w, "decode_tokens_per_s", &r->decode, 2);
        cli_sample_write(&w, "ttft_ms", &r->ttft, 3);
        cli_sample_write(&w, "load_ms", &r->load, 3);
        vt_json_fixed(&w, "step_gap_us_p50", p50, 2);
        vt_json_fixed(&w, "step_gap_us_p99", p99, 2);
        vt_json_fixed(&w, "step_gap_us_max", longest, 2);
        vt_json_int(&w, "step_gaps", r->n_gaps);
        vt_json_int(&w, "retracted", (int64_t)r->retracted);
        write_startup(&w, vt_engine_executor(s->engine));
        return cli_object_print(&w);
    }
    vt_table t;
    vt_buf_printf(&b, "%s %s, batch %d, %d prompt token%s, %d generated, %d run%s\n",
                  vt_model_name(m), m->quant, sh->batch, sh->prompt, vt_text_s(sh->prompt), sh->gen,
                  r->ttft.n, vt_text_s(r->ttft.n));
    vt_table_init(&t, "|>mean|>stdev|>min|>max");
    put_sample(&t, "prefill", &r->prefill, "tokens/s");
    put_sample(&t, "decode", &r->decode, "tokens/s");
    put_sample(&t, "first token", &r->ttft, "ms");
    put_sample(&t, "load", &r->load, "ms");
    vt_table_finish(&t, &b, &c->out, 1);
    if (r->n_gaps > 0)
        vt_buf_printf(&b, "GPU idle between steps: p50 %.1f us, p99 %.1f us, of %d gaps\n", p50,
                      p99, r->n_gaps);
    if (r->retracted > 0)
        vt_buf_printf(&b, "%llu times a sequence was retracted: the KV cache is too small\n",
                      (unsigned long long)r->retracted);
    return cli_text_print(&b);
}

/* Makes room for the batch in the options that the user left alone. */
static vt_status make_room(const cli *c, const shape *sh, vt_err *err)
{
    char text[32];
    int64_t running = vt_options_int(c->options, "max-running");
    if (running > 0 && running < sh->batch)
        return vt_fail(err, VT_ERR_USAGE,
                       "--max-running: %lld found, expected at least the batch, %d",
                       (long long)running, sh->batch);
    snprintf(text, sizeof text, "%d", sh->batch);
    if (running == 0 && sh->batch > 64)
        TRY(vt_options_set(c->options, "max-running", text, err));
    if (vt_options_int(c->options, "max-queued") < sh->batch)
        TRY(vt_options_set(c->options, "max-queued", text, err));
    return VT_OK;
}

static vt_status run_all(const cli *c, cli_session *s, const shape *sh, results *out, vt_err *err)
{
    int32_t reps = (int32_t)vt_options_int(c->options, "reps");
    uint64_t rng = (uint64_t)vt_options_int(c->options, "seed");
    int32_t context = vt_model_max_context(s->model),
            wanted = (sh->prompt ? sh->prompt : 1) + sh->gen;
    if (wanted > context)
        return vt_fail(err, VT_ERR_USAGE,
                       "--prompt and --gen: %d tokens, expected at most %d, the model's context",
                       wanted, context);
    TRY(check_kv(s, sh, err));
    uint64_t seen = 0;
    cli_sample_add(&out->load, s->load_ms);
    for (int32_t i = -1; i < reps; i++) {
        batch_run r;
        uint64_t before = retracted(s);
        TRY(run_once(c, s, sh, &rng, &r, err));
        add_gaps(s, &seen, out);
        if (i < 0) {
            out->n_gaps = 0;
            continue;
        }
        add_run(sh, &r, out);
        out->retracted += retracted(s) - before;
        if (c->log.tty)
            cli_note(c, "run %d of %d: %.1f ms", i + 1, reps,
                     (double)(r.end_ns - r.begin_ns) * 1e-6);
    }
    return VT_OK;
}

int cli_bench_latency(cli *c)
{
    vt_err err = {0};
    cli_session s = {0};
    results r = {0};
    shape sh = {.prompt = 512,
                .gen = (int32_t)vt_options_int(c->options, "gen"),
                .batch = (int32_t)vt_options_int(c->options, "batch")};
    if (strcmp(vt_options_get(c->options, "prompt"), "auto") != 0)
        sh.prompt = (int32_t)vt_options_int(c->options, "prompt");
    cli_catch_interrupt();
    cli_catch_dump();
    vt_status status = cli_prepare_story(c, &err);
    if (status == VT_OK)
        status = make_room(c, &sh, &err);
    if (status == VT_OK)
        status = cli_open(c, &s, &err);
    if (status == VT_OK)
        status = run_all(c, &s, &sh, &r, &err);
    int code = status == VT_OK ? CLI_DONE : cli_fail(&err);
    if (status == VT_OK ||
        (status == VT_ERR_CANCELLED && r.ttft.n > 0)) { /* Ctrl-C: report the runs so far */
        int reported = report(c, &s, &sh, &r);
        code = code == CLI_DONE ? reported : code;
    }
    if (status == VT_OK && cli_tell_recording(c, &s, &err) != VT_OK)
        code = cli_fail(&err);
    cli_close(&s);
    return code;
}
