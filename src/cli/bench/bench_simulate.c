/* vitrine bench simulate: what would this trace need?
 *
 * The trace is replayed at rising rates, from one at which the hardware idles to one at which it
 * falls behind (sim/capacity.h); the table shows what each rate would feel like. The device is
 * modelled: a step takes the least time that the roofs allow for the bytes and FLOPs of its ops, as
 * `vitrine explain` counts them, divided by --efficiency; with `--efficiency auto` what `explain`
 * expects of them. With --tp each replica is a group of ranks (cli/plan_ranks.h).
 *
 * Replicas on this machine's CPU share it as long as each has cores of its own: with --efficiency
 * auto a step takes the time that its ops take while as many teams as are busy run them at once.
 * Replicas beyond that are on other machines of the kind. */
#include <math.h>
#include <string.h>

#include "base/err.h"
#include "cli/bench/bench.h"
#include "cli/models/model_name.h"
#include "cli/plan_ranks.h"
#include "device/hardware.h"
#include "exec/cuda.h"
#include "exec/ranks.h"
#include "kv/cache.h"
#include "model/model.h"
#include "ops/bench/bench_one.h"
#include "ops/shared_kv.h"
#include "sim/capacity.h"

enum { RUNNING = 256, BUDGET = 2048, SIZE_CLASSES = 20, SHARE_CLASSES = 8 };

typedef struct simulation {
    const cli *c;
    vt_model *model;
    const vt_hardware *named; /* by --hardware; NULL: the CPU of this machine */
    vt_hardware hardware;     /* what named points at */
    vt_roofs roofs;
    vt_described described;
    story_step *plan;
    plan_ranks ranks;  /* instead of `described` and `plan`, with --tp; of: NULL without it */
    double efficiency; /* 0: that of each op, where it is known */
    int32_t n_sharing; /* replicas that have room on one machine */
    vt_efficiencies efficiencies; /* of this machine */
    /* steps by the size_class of their replicas, tokens, decodes and longest context */
    bool measured[SHARE_CLASSES][SIZE_CLASSES][SIZE_CLASSES][SIZE_CLASSES];
    story_seq *seq; /* [max_seqs] */
    vt_capacity_setup setup;
    vt_trace_file trace;
    vt_dtype kv_dtype;
    int64_t kv_bytes;
    vt_capacity_table table;
} simulation;

/* ---- the cost of a step ---- */

static int32_t size_class(int32_t n)
{
    int32_t c = 0;
    while (n > 1 && c + 1 < SIZE_CLASSES) {
        n /= 2;
        c++;
    }
    return c;
}

/* Measures the ops of the step that is set, unless one of its class was measured before. */
static void measure_rows(simulation *s, const vt_batch *b, story_step *plan)
{
    vt_err err;
    int32_t sharing = size_class(story_step_replicas(plan));
    int32_t longest = 1;
    for (int32_t i = 0; i < b->n_seqs; i++)
        longest = b->kv_len[i] > longest ? b->kv_len[i] : longest;
    bool *seen = &s->measured[sharing < SHARE_CLASSES ? sharing : SHARE_CLASSES - 1][size_class(
        b->n_tokens)][size_class(b->n_decode)][size_class(longest)];
    if (*seen || s->named)
        return;
    *seen = true; /* what cannot be measured takes its roof's time */
    story_measure_rows(plan, &s->roofs, -1, &s->efficiencies, NULL, NULL, &err);
}

/* Returns the replicas that run at once on the machine of one: a power of two, so that few numbers
 * are measured, or all that have room. */
static int32_t n_sharing(const simulation *s, int32_t n_busy)
{
    int32_t n = 1;
    while (n < n_busy)
        n *= 2;
    return n < s->n_sharing ? n : s->n_sharing;
}

/* Seconds of a step of the sequences s->seq. */
static double step_s(simulation *s, const vt_batch *b, int32_t n_busy)
{
    vt_err err;
    story_step *plan = s->ranks.of ? s->ranks.step[0] : s->plan;
    story_step_set_replicas(plan, n_sharing(s, n_busy));
    bool known = s->efficiency == 0;
    const vt_efficiencies *e = !known     ? NULL
                               : s->named ? &s->named->efficiencies
                                          : &s->efficiencies;
    vt_status status = s->ranks.of ? plan_ranks_set(&s->ranks, s->seq, b->n_seqs, &err)
                                   : story_step_set(s->plan, s->seq, b->n_seqs, &err);
    if (status != VT_OK)
        return 0; /* cannot happen: the plan was made for these limits */
    if (known)
        measure_rows(s, b, plan);
    double share = known ? 1 : s->efficiency;
    return s->ranks.of ? plan_ranks_step_s(&s->ranks, &s->roofs, e, share)
                       : plan_step_s(s->plan, &s->roofs, e, share);
}

/* The time of a step: the sum over its op calls of the least time that the roofs allow for the
 * call's bytes and FLOPs, divided by --efficiency, or their expected time. */
static int64_t step_cost_ns(void *user, const vt_step *step, int32_t n_busy)
{
    simulation *s = user;
    const vt_batch *b = &step->batch;
    int32_t row = 0, shared[SHARED_MOST_SEQS] = {0};
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
    return (int64_t)(step_s(s, b, n_busy) * 1e9) + 1;
}

/* Before each rate: a line on the terminal. False after Ctrl-C. */
static bool on_rate(void *user, double rate)
{
    const simulation *s = user;
    if (!s->c->quiet && s->c->log.tty)
        fprintf(stderr, "\r%g times as fast ...\033[K", rate);
    return !cli_interrupted();
}

static vt_status search(simulation *s, vt_err *err)
{
    vt_status status = vt_capacity_search(&s->setup, &s->trace, &s->table, err);
    if (!s->c->quiet && s->c->log.tty)
        fputs("\r\033[K", stderr);
    return status;
}

/* ---- setting up ---- */

static int32_t option_or(const cli *c, const char *key, int64_t otherwise)
{
    int64_t v = vt_options_int(c->options, key);
    return (int32_t)(v > 0 ? v : otherwise);
}

static bool whole_experts(const simulation *s)
{
    return vt_options_flag(s->c->options, "enable-expert-parallel");
}

/* KV pages, and state slots: nine tenths of the memory less the weights. */
static vt_status size_cache(simulation *s, vt_sched_config *sched, vt_err *err)
{
    int64_t bytes = vt_options_int(s->c->options, "memory");
    if (bytes == 0)
        bytes = s->named ? s->named->memory_bytes : vt_cpu_get()->memory_bytes;
    bool gpu = s->named && !s->named->is_cpu;
    sched->limits.page_size = option_or(s->c, "page-size", gpu ? 64 : 16);
    s->kv_dtype = vt_kv_choose_dtype(vt_options_get(s->c->options, "kv-dtype"), gpu,
                                     vt_model_dtype(s->model));
    if (gpu)
        TRY(vt_executor_cuda_check_kv(s->kv_dtype, err));
    int32_t tp = (int32_t)vt_options_int(s->c->options, "tp");
    TRY(vt_ranks_check(s->model, tp, whole_experts(s), err));
    size_t page = vt_ranks_kv_page_bytes(s->model, s->kv_dtype, tp, sched->limits.page_size);
    if (gpu) /* of all GPUs of a replica together */
        bytes *= tp;
    s->kv_bytes = bytes / 10 * 9 - s->model->weight_bytes;
    size_t slot = vt_ranks_kv_slot_bytes(s->model, tp);
    int64_t n_states = slot > 0 && s->kv_bytes > 0
                           ? vt_sched_states(s->kv_bytes, slot, sched->limits.max_seqs)
                           : 0;
    int64_t pages = (s->kv_bytes - n_states * (int64_t)slot) / (int64_t)page;
    if (pages < 1)
        return vt_fail(err, VT_ERR_USAGE,
                       "%s has %.1f GB of weights, and %.1f GB of memory leave no room for KV%s",
                       s->model->name, (double)s->model->weight_bytes * 1e-9, (double)bytes * 1e-9,
                       n_states > 0 ? " beside the state of max-running sequences" : "");
    sched->n_states = (int32_t)n_states;
    sched->state_interval = (int32_t)vt_round_up(
        (size_t)vt_options_int(s->c->options, "state-interval"), (size_t)sched->limits.page_size);
    sched->n_pages = pages < 1 << 24 ? (int32_t)pages : 1 << 24;
    return VT_OK;
}

/* Describes the program of a replica, and makes room for its steps. */
static vt_status describe(simulation *s, const vt_target *target, vt_err *err)
{
    const vt_limits *lim = &target->limits;
    int32_t tp = (int32_t)vt_options_int(s->c->options, "tp");
    const char *link = vt_options_get(s->c->options, "tp-link");
    if (strcmp(link, "auto") != 0 && (tp == 1 || target->device == VT_DEVICE_CPU))
        return vt_fail(err, VT_ERR_USAGE, "tp-link is %s, which is for several ranks on GPUs",
                       link);
    if (tp > 1) {
        TRY(plan_ranks_make(&s->ranks, s->model, target, s->kv_dtype, tp, whole_experts(s), link,
                            lim->max_tokens, lim->max_seqs, err));
        plan_ranks_link(&s->ranks, &s->roofs, s->named);
        return VT_OK;
    }
    TRY(vt_describe(s->model, target, s->kv_dtype, &s->described, err));
    return story_step_new(s->described.program, lim->max_tokens, lim->max_seqs, &s->plan, err);
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
    vt_limits *lim = &sched.limits;
    lim->max_seqs = option_or(c, "max-running", RUNNING);
    TRY(size_cache(s, &sched, err));
    lim->max_tokens = option_or(c, "token-budget", lim->max_seqs > BUDGET ? lim->max_seqs : BUDGET);
    lim->max_rows = lim->max_seqs;
    lim->max_context = option_or(c, "max-context", s->model->arch.max_context);
    if (lim->max_context > s->model->arch.max_context)
        return vt_fail(err, VT_ERR_USAGE, "max-context is %d, and %s was made for at most %d",
                       lim->max_context, s->model->name, s->model->arch.max_context);
    s->setup = (vt_capacity_setup){.sched = sched,
                                   .overlap = !vt_options_flag(c->options, "no-overlap"),
                                   .n_replicas = (int32_t)vt_options_int(c->options, "gpus"),
                                   .cost_ns = step_cost_ns,
                                   .go_on = on_rate,
                                   .user = s};
    vt_target target = s->named ? vt_target_named(s->named, lim)
                                : vt_target_cpu(vt_cpu_get()->level, lim);
    s->seq = calloc((size_t)lim->max_seqs, sizeof *s->seq);
    if (!s->seq)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for %d sequences", lim->max_seqs);
    return describe(s, &target, err);
}

/* Returns how many of the replicas have room on one machine: on this CPU as many as it has cores
 * for their threads, and elsewhere one. */
static int32_t sharing_of(const simulation *s)
{
    if (s->named)
        return 1;
    int64_t n = vt_cpu_get()->n_cores / s->roofs.threads,
            all = vt_options_int(s->c->options, "gpus");
    n = n < all ? n : all;
    return n < 1 ? 1 : n < VT_BENCH_TEAMS ? (int32_t)n : VT_BENCH_TEAMS;
}

static vt_status open_all(simulation *s, vt_err *err)
{
    const cli *c = s->c;
    const char *path = vt_options_get(c->options, "trace"),
               *name = vt_options_get(c->options, "hardware");
    vt_buf text = {0};
    if (!path)
        return vt_fail(err, VT_ERR_USAGE, "--trace: missing, expected a file of requests");
    if (strcmp(name, "this") != 0) {
        TRY(vt_hardware_open(name, false, &s->hardware, err));
        s->named = &s->hardware;
    }
    TRY(cli_read_file(path, &text, err));
    vt_status status = vt_trace_parse(
        path, text.data, text.len, (int32_t)vt_options_int(c->options, "requests"), &s->trace, err);
    vt_buf_release(&text);
    TRY(status);
    cli_tell_model(c);
    TRY(vt_model_open(c->options, &s->model, err));
    if (s->named)
        s->roofs = s->named->roofs;
    else
        TRY(vt_roofs_get(option_or(c, "threads", vt_cpu_get()->n_cores), s->model->weight_bytes,
                         &s->roofs, err));
    s->efficiency = vt_options_float(c->options, "efficiency");
    s->n_sharing = sharing_of(s);
    if (!s->named)
        vt_efficiencies_read(&s->efficiencies, s->roofs.key);
    return make_setup(s, err);
}

/* ---- the answer ---- */

/* Digits after the point for requests a second. */
static int rate_digits(double per_s) { return per_s < 1 ? 4 : 2; }

static void cell_ms(vt_table *t, double s) { vt_table_cell(t, "%.*f", s < 0.1 ? 1 : 0, s * 1e3); }

/* Says what the numbers leave out: requests that were refused, cut, or not looked at. */
static void put_exceptions(vt_buf *b, const simulation *s)
{
    const vt_capacity_result *r = &s->table.row[0];
    const vt_trace_file *t = &s->trace;
    const vt_limits *lim = &s->setup.sched.limits;
    int64_t pool = (int64_t)s->setup.sched.n_pages * lim->page_size;
    if (t->n_left_out > 0)
        vt_buf_printf(b,
                      "Only the first %d of the trace's %d requests were replayed (--requests). ",
                      t->n, t->n + t->n_left_out);
    if (r->n_too_long > 0)
        vt_buf_printf(b, "%d of %d prompts are longer than the context of %d tokens: refused. ",
                      r->n_too_long, t->n, lim->max_context);
    if (r->n_no_room > 0)
        vt_buf_printf(b, "%d of %d prompts are larger than the KV memory of %lld tokens: refused. ",
                      r->n_no_room, t->n, (long long)pool);
    if (r->n_cut > 0)
        vt_buf_printf(
            b,
            "%d of %d outputs are cut, by %lld tokens in all: with their prompts they are "
            "longer than the %s. ",
            r->n_cut, t->n, (long long)r->cut_tokens,
            pool < lim->max_context ? "KV memory" : "context");
    if (t->n_odd > 0)
        vt_buf_printf(
            b,
            "In %d request%s, the first in line %d, there are more or fewer hash_ids than "
            "blocks of %d tokens: a block without an id shares nothing. ",
            t->n_odd, vt_text_s(t->n_odd), t->first_odd, VT_TRACE_BLOCK);
}

static void put_verdict(vt_buf *b, const simulation *s, int32_t width)
{
    const vt_capacity_table *t = &s->table;
    const vt_capacity_result *idle = &t->row[t->idle];
    vt_buf text = {0};
    if (t->row[0].n_done == 0) {
        vt_buf_puts(&text, "No request of the trace could be served. ");
    } else if (t->saturated < 0) {
        vt_buf_printf(&text, "It keeps up with %.2f requests/s, the highest rate tried. ",
                      t->row[t->n - 1].offered_per_s);
    } else {
        const vt_capacity_result *a = &t->row[t->saturated - 1], *z = &t->row[t->saturated];
        int digits = rate_digits(a->offered_per_s);
        vt_buf_printf(
            &text,
            "It saturates between %.*f and %.*f requests/s: of the latter it serves %.*f. "
            "The 90th percentile of TTFT goes from %.0f ms (%.0f ms where it idles) to "
            "%.0f ms. ",
            digits, a->offered_per_s, digits, z->offered_per_s, digits, z->served_per_s,
            a->ttft.p90 * 1e3, idle->ttft.p90 * 1e3, z->ttft.p90 * 1e3);
    }
    put_exceptions(&text, s);
    if (s->efficiency > 0)
        vt_buf_printf(&text,
                      "Modelled: a step takes the least time the roofs allow, at %.0f %% of them; ",
                      100 * s->efficiency);
    else
        vt_buf_printf(&text, "Modelled: a step takes what its ops were measured to take %s; ",
                      s->n_sharing > 1 ? "while the busy replicas of this CPU run them too"
                                       : "alone");
    vt_buf_puts(&text, "the CPU's time and the network are not counted.");
    if (s->named)
        vt_buf_printf(&text, " The roofs of %s: %s.", s->roofs.name, s->named->source);
    vt_buf_putc(b, '\n');
    vt_text_wrap(b, text.data ? text.data : "", 0, width);
    vt_buf_putc(b, '\n');
    vt_buf_release(&text);
}

static int print_text(const simulation *s)
{
    const vt_limits *lim = &s->setup.sched.limits;
    int32_t tp = (int32_t)vt_options_int(s->c->options, "tp");
    char replicas[48], states[64] = "";
    vt_buf b = {0};
    vt_table t;
    if (tp == 1)
        snprintf(replicas, sizeof replicas, "%d x ", s->setup.n_replicas);
    else
        snprintf(replicas, sizeof replicas, "%d x %d ranks of ", s->setup.n_replicas, tp);
    if (s->setup.sched.n_states > 0)
        snprintf(states, sizeof states, "; %d slots of sequence state each",
                 s->setup.sched.n_states);
    vt_buf_printf(&b,
                  "%s %s on %s%s: %d request%s, %.1f GB of KV (%d page%s of %d tokens) each\n"
                  "Times in ms%s\n\n",
                  s->model->name, s->model->quant, replicas, s->roofs.name, s->trace.n,
                  vt_text_s(s->trace.n), (double)s->kv_bytes * 1e-9, s->setup.sched.n_pages,
                  vt_text_s(s->setup.sched.n_pages), lim->page_size, states);
    vt_table_init(&t, ">rate|>req/s|>served/s|>tok/s|>TTFT p50|>p90|>p99|>ITL p50|>p99|>hits|"
                      ">busy|>retracted");
    for (int32_t i = 0; i < s->table.n; i++) {
        const vt_capacity_result *r = &s->table.row[i];
        if (r->rate < 1)
            vt_table_cell(&t, "x1/%g", 1 / r->rate);
        else
            vt_table_cell(&t, "x%g", r->rate);
        vt_table_cell(&t, "%.*f", rate_digits(r->offered_per_s), r->offered_per_s);
        vt_table_cell(&t, "%.*f", rate_digits(r->served_per_s), r->served_per_s);
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
    return cli_text_print(&b);
}

static void write_percentiles(vt_json *w, const char *key, const vt_percentiles *p)
{
    vt_json_open(w, key, '{');
    vt_json_fixed(w, "p50", p->p50 * 1e3, 3);
    vt_json_fixed(w, "p90", p->p90 * 1e3, 3);
    vt_json_fixed(w, "p99", p->p99 * 1e3, 3);
    vt_json_fixed(w, "mean", p->mean * 1e3, 3);
    vt_json_close(w);
}

static void write_rate(vt_json *w, const vt_capacity_result *r)
{
    vt_json_open(w, NULL, '{');
    vt_json_fixed(w, "rate", r->rate, 4);
    vt_json_int(w, "done", r->n_done);
    vt_json_int(w, "refused", r->n_too_long + r->n_no_room);
    vt_json_int(w, "refused_too_long", r->n_too_long);
    vt_json_int(w, "refused_no_kv_memory", r->n_no_room);
    vt_json_int(w, "cut", r->n_cut);
    vt_json_int(w, "cut_tokens", r->cut_tokens);
    vt_json_fixed(w, "offered_per_s", r->offered_per_s, 4);
    vt_json_fixed(w, "served_per_s", r->served_per_s, 4);
    vt_json_fixed(w, "output_tokens_per_s", r->output_tokens_per_s, 2);
    write_percentiles(w, "ttft_ms", &r->ttft);
    write_percentiles(w, "itl_ms", &r->itl);
    vt_json_fixed(w, "hit_share", r->hit_share, 4);
    vt_json_fixed(w, "device_share", r->device_share, 4);
    vt_json_int(w, "steps", (int64_t)r->steps);
    vt_json_int(w, "retracted", (int64_t)r->retracted);
    vt_json_int(w, "most_running", r->most_running);
    vt_json_close(w);
}

static int print_object(const simulation *s)
{
    const vt_capacity_table *t = &s->table;
    vt_json w;
    cli_bench_begin(&w, s->c, "simulate", s->model->name);
    vt_json_string(&w, "hardware", s->roofs.name);
    vt_json_string(&w, "tag", "modelled");
    vt_json_int(&w, "replicas_on_a_machine", s->n_sharing);
    vt_json_int(&w, "requests", s->trace.n);
    vt_json_int(&w, "requests_left_out", s->trace.n_left_out);
    vt_json_int(&w, "requests_with_odd_hash_ids", s->trace.n_odd);
    vt_json_string(&w, "kv_dtype", vt_dtype_get(s->kv_dtype)->name);
    vt_json_int(&w, "kv_bytes", s->kv_bytes);
    vt_json_int(&w, "state_slots", s->setup.sched.n_states);
    vt_json_fixed(&w, "saturates_at_rate", t->saturated >= 0 ? t->row[t->saturated].rate : NAN, 4);
    vt_json_open(&w, "rates", '[');
    for (int32_t i = 0; i < t->n; i++)
        write_rate(&w, &t->row[i]);
    vt_json_close(&w);
    return cli_object_print(&w);
}

int cli_bench_simulate(cli *c)
{
    vt_err err = {0};
    simulation s = {.c = c};
    cli_catch_interrupt();
    vt_status status = open_all(&s, &err);
    if (status == VT_OK)
        status = search(&s, &err);
    int code = status != VT_OK ? cli_fail(&err) : c->json ? print_object(&s) : print_text(&s);
    if (s.roofs.key[0] && !s.named)
        vt_efficiencies_write(&s.efficiencies, s.roofs.key);
    vt_efficiencies_release(&s.efficiencies);
    plan_ranks_release(&s.ranks);
    story_step_free(s.plan);
    vt_described_release(&s.described);
    vt_hardware_release(&s.hardware);
    free(s.seq);
    vt_trace_file_release(&s.trace);
    vt_model_free(s.model);
    return code;
}
