/* vitrine bench simulate: what would this trace need?
 *
 * The trace is replayed at rising rates until first tokens come late; the table shows what each
 * rate would feel like. The device is modelled: a step takes the least time that the roofs allow
 * for the bytes and FLOPs of its ops, as `vitrine explain` counts them, divided by --efficiency. */
#include <string.h>

#include "base/err.h"
#include "cli/bench.h"
#include "cli/model_name.h"
#include "kv/cache.h"
#include "model/model.h"
#include "ops/attention/attention_shared.h"
#include "sim/plan.h"
#include "story/plan.h"

enum { MAX_RATES = 12, RUNNING = 256, BUDGET = 2048 };

/* Memory of named hardware: what the vendor's data sheet says. */
static const struct {
    const char *name;
    int64_t bytes;
    int32_t page_size;
} memory_of[] = {{"h200", INT64_C(141000000000), 64}};

typedef struct simulation {
    const cli *c;
    vt_model *model;
    vt_roofs roofs;
    story_plan *plan;
    double efficiency;
    story_seq *seq; /* [max_seqs] */
    vt_plan_setup setup;
    vt_trace_file trace;
    int64_t kv_bytes;
    double rate[MAX_RATES];
    vt_plan_result result[MAX_RATES];
    int32_t n;
    int32_t saturated; /* the first rate that is too much; -1: none */
} simulation;

/* ---- the cost of a step ---- */

static int64_t step_cost_ns(void *user, const vt_step *step)
{
    simulation *s = user;
    const vt_batch *b = &step->batch;
    int32_t row = 0, shared[SHARED_MOST_SEQS] = {0};
    double sum = 0;
    if (b->n_decode <= SHARED_MOST_SEQS)
        shared_kv_find(b, shared);
    for (int32_t i = 0; i < b->n_seqs; i++) {
        story_seq *q = &s->seq[i];
        *q = (story_seq){.q_len = b->q_start[i + 1] - b->q_start[i], .kv_len = b->kv_len[i]};
        if (i < b->n_decode && i < SHARED_MOST_SEQS)
            q->shared_pages = shared[i] / b->page_size;
        for (; row < b->n_rows && b->row_token[row] < b->q_start[i + 1]; row++)
            q->n_rows++;
    }
    vt_err err;
    if (story_plan_bind(s->plan, s->seq, b->n_seqs, &err) != VT_OK)
        return 1; /* cannot be: the plan was made for these limits */
    const vt_program *p = story_plan_program(s->plan);
    for (int32_t i = 0; i < p->n_calls; i++) {
        vt_cost cost, extra;
        story_bound bound;
        if (story_plan_cost(s->plan, i, &cost, &extra))
            sum += story_floor_s(&cost, &s->roofs, &bound);
    }
    return (int64_t)(sum / s->efficiency * 1e9) + 1;
}

/* ---- setting up ---- */

static int32_t option_or(const cli *c, const char *key, int64_t otherwise)
{
    int64_t v = vt_options_int(c->options, key);
    return (int32_t)(v > 0 ? v : otherwise);
}

static vt_status device_memory(const simulation *s, int64_t *bytes, int32_t *page_size, vt_err *err)
{
    const char *name = vt_options_get(s->c->options, "hardware");
    *bytes = vt_options_int(s->c->options, "memory");
    *page_size = 16;
    for (size_t i = 0; i < sizeof memory_of / sizeof memory_of[0]; i++)
        if (strcasecmp(name, memory_of[i].name) == 0) {
            *page_size = memory_of[i].page_size;
            *bytes = *bytes ? *bytes : memory_of[i].bytes;
        }
    if (*bytes == 0 && strcmp(name, "this") == 0)
        *bytes = vt_cpu_get()->memory_bytes;
    return *bytes ? VT_OK
                  : vt_fail(err, VT_ERR_USAGE, "--memory: how much %s has is not known here", name);
}

/* KV pages: nine tenths of the memory less the weights. */
static vt_status size_cache(simulation *s, vt_sched_config *sched, vt_err *err)
{
    const vt_arch *a = &s->model->arch;
    int64_t bytes;
    int32_t page_size;
    TRY(device_memory(s, &bytes, &page_size, err));
    sched->limits.page_size = option_or(s->c, "page-size", page_size);
    vt_dtype kv = s->model->layer[0].q->dtype == VT_F32 ? VT_F32 : VT_F16;
    size_t page = vt_kv_page_bytes(a->n_layers, a->n_kv_heads, sched->limits.page_size, a->head_dim,
                                   kv);
    s->kv_bytes = bytes / 10 * 9 - s->model->weight_bytes;
    int64_t pages = s->kv_bytes / (int64_t)page;
    if (pages < 1)
        return vt_fail(err, VT_ERR_USAGE,
                       "%s has %.1f GB of weights, and %.1f GB of memory leave no room for KV",
                       s->model->name, (double)s->model->weight_bytes * 1e-9, (double)bytes * 1e-9);
    sched->n_pages = pages < 1 << 24 ? (int32_t)pages : 1 << 24;
    return VT_OK;
}

static vt_status make_setup(simulation *s, vt_err *err)
{
    const cli *c = s->c;
    const char *policy = vt_options_get(c->options, "policy");
    vt_sched_config sched = {.max_queued = s->trace.n,
                             .prefix_cache = !vt_options_flag(c->options, "no-prefix-cache"),
                             .policy = strcmp(policy, "lpm") == 0        ? VT_POLICY_LPM
                                       : strcmp(policy, "priority") == 0 ? VT_POLICY_PRIORITY
                                                                         : VT_POLICY_FCFS};
    TRY(size_cache(s, &sched, err));
    vt_limits *lim = &sched.limits;
    lim->max_seqs = option_or(c, "max-running", RUNNING);
    lim->max_tokens = option_or(c, "token-budget", lim->max_seqs > BUDGET ? lim->max_seqs : BUDGET);
    lim->max_rows = lim->max_seqs;
    lim->max_context = option_or(c, "max-context", s->model->arch.max_context);
    s->setup = (vt_plan_setup){.sched = sched,
                               .overlap = !vt_options_flag(c->options, "no-overlap"),
                               .n_replicas = (int32_t)vt_options_int(c->options, "gpus"),
                               .cost_ns = step_cost_ns,
                               .user = s};
    story_plan_config plan = {.level = vt_cpu_get()->level,
                              .kv_dtype = s->model->layer[0].q->dtype == VT_F32 ? VT_F32 : VT_F16,
                              .page_size = lim->page_size,
                              .max_tokens = lim->max_tokens,
                              .max_seqs = lim->max_seqs,
                              .max_context = lim->max_context};
    s->seq = calloc((size_t)lim->max_seqs, sizeof *s->seq);
    if (!s->seq)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for %d sequences", lim->max_seqs);
    return story_plan_new(s->model, &plan, &s->plan, err);
}

static vt_status open_all(simulation *s, vt_err *err)
{
    const cli *c = s->c;
    const char *path = vt_options_get(c->options, "trace"),
               *name = vt_options_get(c->options, "hardware");
    vt_buf text = {0};
    if (!path)
        return vt_fail(err, VT_ERR_USAGE, "--trace: missing, expected a file of requests");
    TRY(cli_read_file(path, &text, err));
    vt_status status = vt_trace_parse(
        path, text.data, text.len, (int32_t)vt_options_int(c->options, "requests"), &s->trace, err);
    vt_buf_release(&text);
    TRY(status);
    cli_tell_model(c);
    TRY(vt_model_open(c->options, &s->model, err));
    TRY(strcmp(name, "this") == 0 ? vt_roofs_get(option_or(c, "threads", vt_cpu_get()->n_cores),
                                                 s->model->weight_bytes, &s->roofs, err)
                                  : vt_roofs_named(name, &s->roofs, err));
    s->efficiency = vt_options_float(c->options, "efficiency");
    return make_setup(s, err);
}

/* ---- rising rates ---- */

/* Too much: nine of ten first tokens take five times as long as when there was little to do. */
static vt_status run_rates(simulation *s, vt_err *err)
{
    s->saturated = -1;
    double rate = 0.25;
    while (s->n < MAX_RATES && !cli_interrupted()) {
        vt_plan_result *r = &s->result[s->n];
        TRY(vt_plan_run(&s->setup, &s->trace, rate, r, err));
        s->rate[s->n++] = rate;
        if (!s->c->quiet && s->c->log.tty)
            fprintf(stderr, "\r%g times as fast ...\033[K", rate);
        if (r->n_done == 0 || r->ttft.p90 > 5 * s->result[0].ttft.p90) {
            s->saturated = s->n - 1;
            break;
        }
        rate *= 2;
    }
    if (!s->c->quiet && s->c->log.tty)
        fputs("\r\033[K", stderr);
    return cli_interrupted() ? vt_fail(err, VT_ERR_CANCELLED, "interrupted") : VT_OK;
}

/* ---- the answer ---- */

static void cell_ms(vt_table *t, double s) { vt_table_cell(t, "%.*f", s < 0.1 ? 1 : 0, s * 1e3); }

static void put_verdict(vt_buf *b, const simulation *s, int32_t width)
{
    const vt_plan_result *first = &s->result[0];
    vt_buf text = {0};
    if (s->saturated < 0) {
        vt_buf_printf(&text, "It does not saturate at %.2f requests/s, the highest rate tried. ",
                      s->result[s->n - 1].offered_per_s);
    } else if (s->saturated == 0) {
        vt_buf_puts(&text, "No request of the trace could be served. ");
    } else {
        const vt_plan_result *a = &s->result[s->saturated - 1], *z = &s->result[s->saturated];
        vt_buf_printf(&text,
                      "It saturates between %.2f and %.2f requests/s: the 90th percentile of TTFT "
                      "goes from %.0f ms (%.0f ms at the lowest rate) to %.0f ms. ",
                      a->offered_per_s, z->offered_per_s, a->ttft.p90 * 1e3, first->ttft.p90 * 1e3,
                      z->ttft.p90 * 1e3);
    }
    if (first->n_refused > 0)
        vt_buf_printf(&text, "%d of %d requests are longer than the context and were refused. ",
                      first->n_refused, s->trace.n);
    vt_buf_printf(&text,
                  "Modelled: a step takes the least time the roofs allow, at %.0f %% of them; the "
                  "CPU's time and the network are not counted.",
                  100 * s->efficiency);
    vt_buf_putc(b, '\n');
    vt_text_wrap(b, text.data ? text.data : "", 0, width);
    vt_buf_putc(b, '\n');
    vt_buf_release(&text);
}

static int print_text(const simulation *s)
{
    const vt_limits *lim = &s->setup.sched.limits;
    vt_buf b = {0};
    vt_table t;
    vt_buf_printf(&b,
                  "%s %s on %d x %s: %d requests, %.1f GB of KV (%d pages of %d tokens) each\n\n",
                  s->model->name, s->model->quant, s->setup.n_replicas, s->roofs.name, s->trace.n,
                  (double)s->kv_bytes * 1e-9, s->setup.sched.n_pages, lim->page_size);
    vt_table_init(
        &t, ">rate|>requests/s|>out tok/s|>TTFT p50 ms|>p90|>p99|>ITL p50 ms|>p99|>hits|>busy|"
            ">retracted");
    for (int32_t i = 0; i < s->n; i++) {
        const vt_plan_result *r = &s->result[i];
        vt_table_cell(&t, "x%g", s->rate[i]);
        vt_table_cell(&t, "%.2f", r->offered_per_s);
        vt_table_cell(&t, "%.0f", r->output_tokens_per_s);
        cell_ms(&t, r->ttft.p50);
        cell_ms(&t, r->ttft.p90);
        cell_ms(&t, r->ttft.p99);
        cell_ms(&t, r->itl.p50);
        cell_ms(&t, r->itl.p99);
        vt_table_cell(&t, "%.0f %%", 100 * r->hit_share);
        vt_table_cell(&t, "%.0f %%", 100 * r->device_share);
        vt_table_cell(&t, "%llu", (unsigned long long)r->retracted);
    }
    vt_table_finish(&t, &b, &s->c->out, 0);
    put_verdict(&b, s, s->c->out.width);
    bool ok = !b.failed && fwrite(b.data, 1, b.len, stdout) == b.len;
    vt_buf_release(&b);
    return ok ? CLI_DONE : CLI_FAILED;
}

static json_t *percentiles_json(const vt_percentiles *p)
{
    return json_pack("{s:o, s:o, s:o, s:o}", "p50", cli_json_number(p->p50 * 1e3, 3), "p90",
                     cli_json_number(p->p90 * 1e3, 3), "p99", cli_json_number(p->p99 * 1e3, 3),
                     "mean", cli_json_number(p->mean * 1e3, 3));
}

static int print_object(const simulation *s)
{
    json_t *o = cli_bench_json(s->c, "simulate", s->model->name), *rates = json_array();
    for (int32_t i = 0; i < s->n; i++) {
        const vt_plan_result *r = &s->result[i];
        json_array_append_new(
            rates,
            json_pack("{s:o, s:i, s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:I, s:i}", "rate",
                      cli_json_number(s->rate[i], 4), "done", r->n_done, "refused", r->n_refused,
                      "offered_per_s", cli_json_number(r->offered_per_s, 4), "served_per_s",
                      cli_json_number(r->served_per_s, 4), "output_tokens_per_s",
                      cli_json_number(r->output_tokens_per_s, 2), "ttft_ms",
                      percentiles_json(&r->ttft), "itl_ms", percentiles_json(&r->itl), "hit_share",
                      cli_json_number(r->hit_share, 4), "device_share",
                      cli_json_number(r->device_share, 4), "steps", (json_int_t)r->steps,
                      "retracted", (json_int_t)r->retracted, "most_running", r->most_running));
    }
    json_object_set_new(o, "hardware", json_string(s->roofs.name));
    json_object_set_new(o, "kv_bytes", json_integer(s->kv_bytes));
    json_object_set_new(o, "saturates_at_rate",
                        s->saturated >= 0 ? cli_json_number(s->rate[s->saturated], 4)
                                          : json_null());
    json_object_set_new(o, "rates", rates);
    return cli_print_json(o);
}

int cli_bench_simulate(cli *c)
{
    vt_err err = {0};
    simulation s = {.c = c};
    cli_catch_interrupt();
    vt_status status = open_all(&s, &err);
    if (status == VT_OK)
        status = run_rates(&s, &err);
    int code = status != VT_OK ? cli_fail(&err) : c->json ? print_object(&s) : print_text(&s);
    story_plan_free(s.plan);
    free(s.seq);
    vt_trace_file_release(&s.trace);
    vt_model_free(s.model);
    return code;
}
