/* Loads and files of the experiments (experiments.h). */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/plain_file.h"
#include "base/stats.h"
#include "lab/experiments/experiments.h"
#include "load/run.h"

/* ---- loads ---- */

enum { LEAST_VOCAB = 1000 }; /* ids below it are in every model's vocabulary */

static vt_status run_plan(lab *l, const lab_server *s, const lab_load *load,
                          const vt_load_plan *plan, lab_answers *out, vt_err *err)
{
    vt_load_target target;
    vt_load_outcome o = {0};
    vt_load_slo none = {0};
    TRY(vt_load_target_parse(s->url, &target, err));
    vt_load_options options = {.plan = plan,
                               .target = &target,
                               .chat = !plan->ids,
                               .stream = true,
                               .ignore_eos = true,
                               .temperature = NAN,
                               .arrivals = VT_LOAD_CLOSED,
                               .concurrency = load->concurrency,
                               .timeout_s = 600};
    lab_note(l, "%d requests, %d at once ...", plan->n_turns, load->concurrency);
    int64_t begin_ns = vt_now_ns();
    lab_busy busy;
    lab_busy_begin(&busy, s);
    vt_status status = vt_load_run(&options, &o, err);
    l->busy |= lab_busy_end(&busy, s);
    if (status == VT_OK)
        status = vt_load_measure(o.result, o.n, o.gap, o.n_gaps,
                                 (double)(o.end_ns - o.begin_ns) * 1e-9, &none, &out->sum, err);
    if (status == VT_OK) {
        out->n = o.n;
        out->result = o.result;
        o.result = NULL;
        lab_event(l, begin_ns,
                  "%d request%s, %d at once: %f tokens/s out; median first token after %f s, then "
                  "one every %f s",
                  plan->n_turns, plan->n_turns == 1 ? "" : "s", load->concurrency,
                  out->sum.output_tokens_per_s, out->sum.ttft.p50, out->sum.itl.p50);
        lab_check(l, out->sum.ended[VT_LOAD_OK] == plan->n_turns, "%d of %d requests were answered",
                  out->sum.ended[VT_LOAD_OK], plan->n_turns);
    }
    vt_load_outcome_release(&o);
    return status;
}

vt_status lab_load_run(lab *l, const lab_server *s, const lab_load *load, lab_answers *out,
                       vt_err *err)
{
    l->ran = true;
    vt_load_plan plan = {.ids = load->turns <= 1, /* turns of a chat are words */
                         .vocab = LEAST_VOCAB,
                         .shared = load->shared,
                         .groups = load->groups > 0 ? load->groups : 1,
                         .seed = load->seed};
    vt_status status = VT_OK;
    *out = (lab_answers){0};
    for (int32_t i = 0; status == VT_OK && i < load->n; i++)
        status = vt_load_plan_add(&plan, load->input, load->output,
                                  load->turns > 0 ? load->turns : 1, err);
    if (status == VT_OK)
        status = run_plan(l, s, load, &plan, out, err);
    vt_load_plan_release(&plan);
    return status;
}

void lab_answers_release(lab_answers *a)
{
    free(a->result);
    a->result = NULL;
}

double lab_answers_noise(const lab_answers *a)
{
    double sum[2] = {0, 0};
    int n[2] = {0, 0};
    for (int32_t i = 0; i < a->n; i++)
        if (a->result[i].end == VT_LOAD_OK) {
            sum[i >= a->n / 2] += vt_load_e2e(&a->result[i]);
            n[i >= a->n / 2]++;
        }
    return vt_noise((double[]){sum[0] / n[0], sum[1] / n[1]}, 2);
}

/* ---- files ---- */

vt_status lab_write_json(lab *l, const char *name, const json_t *object, const char *what,
                         vt_err *err)
{
    vt_buf text = {0};
    char *json = json_dumps(object, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
    vt_buf_puts(&text, json ? json : "");
    vt_buf_putc(&text, '\n');
    vt_status status = json ? lab_write_text(l, name, &text, what, err)
                            : vt_fail(err, VT_ERR_MEMORY, "out of memory for %s", name);
    free(json);
    vt_buf_release(&text);
    return status;
}

vt_status lab_write_text(lab *l, const char *name, const vt_buf *text, const char *what,
                         vt_err *err)
{
    char path[PATH_MAX];
    if (text->failed)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for %s", name);
    snprintf(path, sizeof path, "%s/%s", l->results, name);
    TRY(vt_write_whole(path, text->data, text->len, err));
    lab_file(l, name, what);
    return VT_OK;
}

static void put_ms(json_t *o, const char *key, double s)
{
    json_object_set_new(o, key, isfinite(s) ? json_real(s * 1e3) : json_null());
}

json_t *lab_spread_json(const vt_load_spread *s)
{
    json_t *o = json_object();
    json_object_set_new(o, "n", json_integer(s->n));
    put_ms(o, "mean_ms", s->mean);
    put_ms(o, "p50_ms", s->p50);
    put_ms(o, "p90_ms", s->p90);
    put_ms(o, "p99_ms", s->p99);
    put_ms(o, "max_ms", s->max);
    return o;
}

json_t *lab_summary_json(const lab_load *load, const vt_load_summary *s)
{
    json_t *o = json_object();
    json_object_set_new(o, "requests", json_integer(s->n));
    json_object_set_new(o, "concurrency", json_integer(load->concurrency));
    json_object_set_new(o, "input_tokens_asked", json_integer(load->input));
    json_object_set_new(o, "output_tokens_asked", json_integer(load->output));
    json_object_set_new(o, "prompt_tokens", json_integer(s->prompt_tokens));
    json_object_set_new(o, "cached_tokens", json_integer(s->cached_tokens));
    json_object_set_new(o, "output_tokens", json_integer(s->output_tokens));
    json_object_set_new(o, "wall_s", json_real(s->wall_s));
    json_object_set_new(o, "output_tokens_per_s", json_real(s->output_tokens_per_s));
    json_object_set_new(o, "ttft", lab_spread_json(&s->ttft));
    json_object_set_new(o, "itl", lab_spread_json(&s->itl));
    json_object_set_new(o, "e2e", lab_spread_json(&s->e2e));
    return o;
}

static void put_spread(vt_buf *b, const char *name, const vt_load_spread *s)
{
    vt_buf_printf(b, "  %-24s", name);
    vt_text_printf(b, "p50 %f s, p90 %f s, p99 %f s, longest %f s, mean %f s\n", s->p50, s->p90,
                   s->p99, s->max, s->mean);
}

void lab_summary_text(vt_buf *b, const char *what, const lab_load *load, const vt_load_summary *s)
{
    vt_text_printf(b,
                   "%s: %d requests of %d tokens in and %d out, %d at once, %d answered\n"
                   "  %lld prompt tokens (%lld of them cached), %lld output tokens in %f s\n"
                   "  %f tokens/s out, %f tokens/s in and out, %.2f requests a second\n",
                   what, s->n, load->input, load->output, load->concurrency, s->ended[VT_LOAD_OK],
                   (long long)s->prompt_tokens, (long long)s->cached_tokens,
                   (long long)s->output_tokens, s->wall_s, s->output_tokens_per_s,
                   s->total_tokens_per_s, s->requests_per_s);
    put_spread(b, "first token (TTFT)", &s->ttft);
    put_spread(b, "between tokens (ITL)", &s->itl);
    put_spread(b, "whole request", &s->e2e);
}

vt_status lab_write_load(lab *l, const char *stem, const char *what, const lab_load *load,
                         const vt_load_summary *s, vt_err *err)
{
    char name[80];
    vt_buf text = {0};
    json_t *object = lab_summary_json(load, s);
    snprintf(name, sizeof name, "%s.json", stem);
    vt_status status = lab_write_json(l, name, object, what, err);
    json_decref(object);
    lab_summary_text(&text, what, load, s);
    snprintf(name, sizeof name, "%s.log", stem);
    if (status == VT_OK)
        status = lab_write_text(l, name, &text, "the same as text", err);
    vt_buf_release(&text);
    return status;
}
