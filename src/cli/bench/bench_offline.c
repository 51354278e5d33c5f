/* vitrine bench offline: many sequences of mixed lengths, as fast as they go.
 *
 * All sequences are submitted before the clock starts, so the bench measures an engine with a full
 * queue: admission, mixed batches, page pressure, the tail when few are left. Prompts are random
 * ids, so the prefix cache does not help unless --shared-prefix makes them begin alike. A sequence
 * generates exactly as many tokens as it was given (no end token). It takes the likeliest token, or
 * samples at --temperature with a seed of its own. Where the model's files or --pooling say that
 * the engine makes embeddings, each sequence is a text that becomes a vector. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/random.h"
#include "cli/bench/bench.h"
#include "cli/bench/lengths.h"
#include "cli/term/telling.h"
#include "engine/engine.h"

typedef struct offline {
    int32_t n_done, n_tokens;
    int64_t first_ns;
    bool embeds; /* each sequence becomes a vector, and no token is generated */
    bool failed;
    char why[256];
} offline;

static void on_event(void *user, const vt_event *e)
{
    offline *o = user;
    o->n_tokens += e->n_tokens;
    o->n_done += e->finish != VT_FINISH_NONE;
    if (e->finish == VT_FINISH_ERROR && !o->failed) {
        o->failed = true;
        snprintf(o->why, sizeof o->why, "%s", e->error);
    }
}

/* ---- running ---- */

/* Decides whether sequences become vectors. */
static vt_status settle(const cli *c, const vt_model *m, offline *o, vt_err *err)
{
    const char *pooling = vt_options_get(c->options, "pooling");
    o->embeds = strcmp(pooling, "auto") == 0 ? m->pooled.how != VT_POOLING_NONE
                                             : strcmp(pooling, "none") != 0;
    if (o->embeds && vt_options_given(c->options, "output-range"))
        return vt_fail(err, VT_ERR_USAGE,
                       "--output: %s makes embeddings and generates no tokens (--pooling)",
                       vt_model_name(m));
    return VT_OK;
}

/* The first tokens of all prompts, as many as --shared-prefix says, are the same. */
static vt_status submit_all(const cli *c, cli_session *s, const cli_lengths *l, uint64_t *rng,
                            offline *o, vt_err *err)
{
    int32_t shared = (int32_t)vt_options_int(c->options, "shared-prefix");
    float temperature = (float)vt_options_float(c->options, "temperature");
    int32_t vocab = vt_model_vocab_size(s->model), longest = 1;
    for (int32_t i = 0; i < l->n; i++)
        longest = l->input[i] > longest ? l->input[i] : longest;
    int32_t *prompt = vt_calloc((size_t)longest, sizeof *prompt);
    vt_status status = prompt ? VT_OK
                              : vt_fail(err, VT_ERR_MEMORY, "out of memory for the prompts");
    for (int32_t i = 0; status == VT_OK && i < l->n; i++) {
        vt_request_params p;
        vt_request_id id;
        vt_request_init(&p);
        int32_t end = i == 0 && shared > 0 ? longest : l->input[i];
        for (int32_t k = i > 0 ? shared : 0; k < end; k++)
            prompt[k] = (int32_t)(vt_random_next(rng) % (uint64_t)vocab);
        p.prompt = prompt;
        p.n_prompt = l->input[i];
        p.embed = o->embeds;
        p.max_tokens = o->embeds ? 0 : l->output[i];
        p.temperature = temperature;
        p.seed = vt_random_next(rng);
        p.has_seed = true;
        p.ignore_eos = true;
        p.callback = on_event;
        p.user = o;
        status = vt_engine_submit(s->engine, &p, &id, err);
    }
    free(prompt);
    return status;
}

static void show_progress(const cli *c, const offline *o, const cli_lengths *l, int64_t begin_ns,
                          int64_t *last_ns)
{
    int64_t now = vt_now_ns(), every = c->log.tty ? 200000000 : INT64_C(10000000000);
    if (c->quiet || now - *last_ns < every)
        return;
    *last_ns = now;
    vt_buf b = {0};
    vt_text_progress(&b, "sequences", o->embeds ? o->n_done : o->n_tokens,
                     o->embeds ? l->n : (double)l->total_output, (double)(now - begin_ns) * 1e-9,
                     o->embeds ? " texts" : " tokens");
    fprintf(stderr, c->log.tty ? "\r%s\033[K" : "%s\n", b.data ? b.data : "");
    vt_buf_release(&b);
}

static vt_status run_all(const cli *c, cli_session *s, const cli_lengths *l, uint64_t *rng,
                         offline *o, double *wall_s, vt_err *err)
{
    bool idle = false;
    TRY(submit_all(c, s, l, rng, o, err));
    int64_t begin = vt_now_ns(), shown = begin;
    while (!idle && !cli_interrupted()) {
        TRY(vt_engine_step(s->engine, &idle, err));
        cli_dump_if_asked(c, s->engine);
        show_progress(c, o, l, begin, &shown);
    }
    if (c->log.tty && !c->quiet)
        fputs("\r\033[K", stderr);
    *wall_s = (double)(vt_now_ns() - begin) * 1e-9;
    if (cli_interrupted())
        return vt_fail(err, VT_ERR_CANCELLED, "interrupted");
    return o->failed ? vt_fail(err, VT_ERR_DEVICE, "%s", o->why) : VT_OK;
}

static int report(const cli *c, cli_session *s, const cli_lengths *l, const offline *o,
                  double wall_s)
{
    vt_engine_stats st;
    vt_engine_copy_stats(s->engine, &st);
    uint64_t cached = st.cache.hit_tokens + st.cache.copied_tokens;
    double out_s = o->n_tokens / wall_s, total_s = (double)(l->total_input + o->n_tokens) / wall_s;
    if (c->json) {
        vt_json w;
        cli_bench_begin(&w, c, "offline", vt_model_name(s->model));
        vt_json_int(&w, "sequences", l->n);
        vt_json_fixed(&w, "temperature", vt_options_float(c->options, "temperature"), 3);
        vt_json_int(&w, "input_tokens", l->total_input);
        vt_json_int(&w, "cached_tokens", (int64_t)cached);
        vt_json_int(&w, "output_tokens", o->n_tokens);
        vt_json_fixed(&w, "output_tokens_per_s", out_s, 2);
        vt_json_fixed(&w, "total_tokens_per_s", total_s, 2);
        if (o->embeds)
            vt_json_fixed(&w, "texts_per_s", l->n / wall_s, 2);
        vt_json_fixed(&w, "wall_s", wall_s, 3);
        vt_json_fixed(&w, "load_ms", s->load_ms, 3);
        vt_json_int(&w, "steps", (int64_t)st.sched.steps);
        vt_json_int(&w, "retracted", (int64_t)st.sched.retracted);
        return cli_object_print(&w);
    }
    if (o->embeds) {
        printf("%s: %d text%s, %lld token%s in %.2f s\n  %.1f texts/s, %.1f tokens/s; %llu steps\n",
               vt_model_name(s->model), l->n, vt_text_s(l->n), (long long)l->total_input,
               vt_text_s(l->total_input), wall_s, l->n / wall_s, total_s,
               (unsigned long long)st.sched.steps);
        return CLI_DONE;
    }
    printf("%s: %d sequence%s, %lld token%s in (%llu from the cache), %d out, %.2f s\n",
           vt_model_name(s->model), l->n, vt_text_s(l->n), (long long)l->total_input,
           vt_text_s(l->total_input), (unsigned long long)cached, o->n_tokens, wall_s);
    printf("  %.1f output tokens/s, %.1f tokens/s in all; %llu steps, %llu retracted\n", out_s,
           total_s, (unsigned long long)st.sched.steps, (unsigned long long)st.sched.retracted);
    return CLI_DONE;
}

int cli_bench_offline(cli *c)
{
    vt_err err = {0};
    cli_session s = {0};
    cli_lengths l = {0};
    offline o = {0};
    double wall_s = 0;
    char queued[32];
    uint64_t rng = (uint64_t)vt_options_int(c->options, "seed");
    cli_catch_interrupt();
    cli_catch_dump();
    vt_status status = cli_prepare_story(c, &err);
    if (status == VT_OK)
        status = cli_get_lengths(c, &rng, &l, &err);
    snprintf(queued, sizeof queued, "%d", l.n);
    if (status == VT_OK && vt_options_int(c->options, "max-queued") < l.n)
        status = vt_options_set(c->options, "max-queued", queued, &err);
    if (status == VT_OK)
        status = cli_open(c, &s, &err);
    if (status == VT_OK)
        status = settle(c, s.model, &o, &err);
    if (status == VT_OK)
        status = run_all(c, &s, &l, &rng, &o, &wall_s, &err);
    int code = status == VT_OK ? report(c, &s, &l, &o, wall_s) : cli_fail(&err);
    if (status == VT_OK && cli_tell_recording(c, &s, &err) != VT_OK)
        code = cli_fail(&err);
    cli_close(&s);
    cli_lengths_release(&l);
    return code;
}
