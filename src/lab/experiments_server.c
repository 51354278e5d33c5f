/* Experiments 1, 2 and 5: a server is started, measured as clients see it, and measured on each
 * configuration of devices that there is. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "lab/experiments.h"

static const char *const no_key[] = {"--quiet", NULL};

/* ---- 1: start the server ---- */

static const lab_item_def start_items[] = {
    {"ready", "time from its start until it answered", false},
    {"loaded", "what was loaded", false},
    {"address", "where it listens", false},
    {"memory", "memory of its process", true},
    {"device", "what it runs on", true},
    {NULL, NULL, false}};

/* The members of a JSON object that are texts and numbers, as one sentence. */
static void put_members(vt_buf *b, const json_t *o)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)o, key, v)
    {
        if (json_is_string(v))
            vt_buf_printf(b, "%s%s %.60s", b->len ? ", " : "", key, json_string_value(v));
        else if (json_is_integer(v))
            vt_buf_printf(b, "%s%s %lld", b->len ? ", " : "", key,
                          (long long)json_integer_value(v));
    }
}

static vt_status tell_server(lab *l, const lab_server *s, vt_err *err)
{
    json_t *info = NULL;
    vt_buf text = {0}, file = {0};
    double resident = lab_resident_bytes(s->pid);
    TRY(lab_server_json(s, "/model_info", &info, err));
    put_members(&text, info);
    lab_item(l, "loaded", "%s", text.data ? text.data : "");
    vt_buf_release(&text);
    json_decref(info);
    lab_number(l, "memory", resident, LAB_BYTES, "measured",
               "resident, the mapped model file included");
    vt_buf_printf(&file, "server process %d\nresident bytes %.0f\n", s->pid, resident);
    vt_status status = lab_write_text(l, "memory_summary.txt", &file, "memory of the server", err);
    vt_buf_release(&file);
    return status;
}

static vt_status run_start(lab *l, vt_err *err)
{
    lab_server s;
    if (lab_flag(l, "stop")) {
        TRY(lab_server_end_left(l, err));
        for (const lab_item_def *i = start_items; i->key; i++)
            lab_missing(l, i->key, "the server was asked to end, and has ended");
        return VT_OK;
    }
    bool own;
    TRY(lab_server_borrow(l, no_key, &s, &own, err));
    if (!own) /* measured from nothing: the old one ends first */
        TRY(lab_server_end_left(l, err));
    if (!own)
        TRY(lab_server_start(l, no_key, &s, err));
    lab_predict(l, "time until it is ready", NAN, LAB_SECONDS,
                "no model of costs: reading the file, packing weights, compiling kernels");
    lab_outcome(l, "time until it is ready", s.ready_s, false);
    lab_number(l, "ready", s.ready_s, LAB_SECONDS, "measured", "from fork to the first /health");
    lab_item(l, "address", "%s, process %d; 'vitrine lab experiments 1 --stop' ends it", s.url,
             s.pid);
    lab_item(l, "device", "%s, %d thread%s", l->ordinal >= 0 ? l->roofs.name : "the CPU",
             l->threads, l->threads == 1 ? "" : "s");
    vt_status status = tell_server(l, &s, err);
    if (status == VT_OK)
        status = lab_server_leave(l, &s, err);
    if (status != VT_OK) {
        lab_server_stop(&s);
        return status;
    }
    lab_file(l, "server.log", "what the server said");
    lab_check(l, lab_server_answers(&s), "the server answers /health at %s", s.url);
    return VT_OK;
}

const lab_def lab_experiment_1 = {
    .track = LAB_EXPERIMENTS,
    .number = "1",
    .name = "start_server",
    .goal = "how long a server takes to be ready, and what it holds",
    .about =
        {"vitrine serve is started as a process of its own and asked /health until it answers.",
         "It stays for the other experiments; --stop ends it."},
    .alias = {"01_start_server.sh"},
    .items = start_items,
    .run = run_start};

/* ---- 2: baseline ---- */

static const lab_item_def baseline_items[] = {
    {"latency", "TTFT, ITL and whole requests", false},
    {"throughput", "output tokens per second by requests at once", false},
    {"medians", "what a client waits for, in the middle", false},
    {"bound", "which phase the time goes to", true},
    {NULL, NULL, false}};

static json_t *summary_json(const lab_load *load, const vt_load_summary *s)
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

static void spread_row(lab *l, const char *name, const vt_load_spread *s)
{
    lab_cell(l, "%s", name);
    lab_cell_number(l, s->p50, LAB_SECONDS);
    lab_cell_number(l, s->p90, LAB_SECONDS);
    lab_cell_number(l, s->p99, LAB_SECONDS);
    lab_cell_number(l, s->max, LAB_SECONDS);
}

/* One request at a time tells latency; many at once tell throughput. */
static vt_status run_rates(lab *l, const lab_server *s, json_t *file, vt_err *err)
{
    static const int32_t at_once[] = {1, 4, 16};
    int32_t n = (int32_t)lab_int(l, "requests", 16, 64), gen = (int32_t)lab_int(l, "gen", 16, 64),
            prompt = (int32_t)lab_int(l, "prompt", 32, 128);
    lab_table(l, "throughput", "the same requests, by how many are open at once",
              ">at once|>output tokens/s|>TTFT p50|>ITL p50|>against 1");
    double first = NAN;
    for (size_t i = 0; i < sizeof at_once / sizeof *at_once; i++) {
        lab_answers a;
        lab_load load = {n, at_once[i], prompt, gen, 1, 0, 1, 100 + i};
        TRY(lab_load_run(l, s, &load, &a, err));
        first = i == 0 ? a.sum.output_tokens_per_s : first;
        lab_cell_number(l, at_once[i], LAB_COUNT);
        lab_cell_number(l, a.sum.output_tokens_per_s, LAB_TOKENS_PER_S);
        lab_cell_number(l, a.sum.ttft.p50, LAB_SECONDS);
        lab_cell_number(l, a.sum.itl.p50, LAB_SECONDS);
        lab_cell_number(l, a.sum.output_tokens_per_s / first, LAB_RATIO);
        json_array_append_new(file, summary_json(&load, &a.sum));
        lab_answers_release(&a);
    }
    lab_table_end(l);
    return VT_OK;
}

static vt_status measure_baseline(lab *l, const lab_server *s, vt_err *err)
{
    lab_answers a;
    /* 100 requests, as the experiment's name promises; short ones in the quick form */
    lab_load load = {(int32_t)lab_int(l, "requests", 100, 100),
                     (int32_t)lab_int(l, "concurrency", 8, 8),
                     (int32_t)lab_int(l, "prompt", 16, 128),
                     (int32_t)lab_int(l, "gen", 8, 64),
                     1,
                     0,
                     1,
                     7};
    TRY(lab_load_run(l, s, &load, &a, err));
    const vt_load_summary *m = &a.sum;
    lab_table(l, "latency", "as a client sees it", "what|>p50|>p90|>p99|>longest");
    spread_row(l, "first token (TTFT)", &m->ttft);
    spread_row(l, "between tokens (ITL)", &m->itl);
    spread_row(l, "whole request", &m->e2e);
    lab_table_end(l);
    lab_item(l, "medians",
             "of %d requests, %d at once: TTFT %.1f ms, ITL %.2f ms, %.0f output tokens/s", m->n,
             load.concurrency, m->ttft.p50 * 1e3, m->itl.p50 * 1e3, m->output_tokens_per_s);
    double decode = m->itl.p50 * (load.output - 1);
    lab_item(l, "bound",
             "of a median request of %.1f ms, %.0f %% is the wait for its first token (queue and "
             "prefill), %.0f %% decode at the median gap",
             m->e2e.p50 * 1e3, 100 * m->ttft.p50 / m->e2e.p50, 100 * decode / m->e2e.p50);
    json_t *file = summary_json(&load, m), *rates = json_array();
    vt_status status = lab_write_json(l, "baseline_benchmark.json", file, "100 requests", err);
    lab_answers_release(&a);
    if (status == VT_OK)
        status = run_rates(l, s, rates, err);
    if (status == VT_OK)
        status = lab_write_json(l, "throughput_benchmark.json", rates, "throughput by load", err);
    json_decref(file);
    json_decref(rates);
    return status;
}

static vt_status run_baseline(lab *l, vt_err *err)
{
    lab_server s;
    bool own;
    TRY(lab_server_borrow(l, no_key, &s, &own, err));
    lab_predict(l, "gain of 16 requests at once", NAN, LAB_RATIO,
                "depends on which roof binds a decode step: see sglang 01");
    vt_status status = measure_baseline(l, &s, err);
    if (own)
        lab_server_stop(&s);
    return status;
}

const lab_def lab_experiment_2 = {
    .track = LAB_EXPERIMENTS,
    .number = "2",
    .name = "baseline_benchmark",
    .goal = "TTFT, ITL and throughput of a server, with their spread",
    .about = {"100 requests are sent, 8 at once; then fewer, 1, 4 and 16 at once."},
    .alias = {"02_baseline_benchmark.sh"},
    .items = baseline_items,
    .run = run_baseline};

/* ---- 5: configurations ---- */

static const lab_item_def scaling_items[] = {
    {"configurations", "throughput of each configuration of devices", false},
    {"pairs", "two devices on the fast link", true},
    {"host", "two devices through the host", true},
    {"four", "four devices", true},
    {NULL, NULL, false}};

static vt_status run_scaling(lab *l, vt_err *err)
{
    lab_server s;
    bool own;
    lab_answers a;
    lab_load load = {(int32_t)lab_int(l, "requests", 16, 64),
                     (int32_t)lab_int(l, "concurrency", 8, 16),
                     (int32_t)lab_int(l, "prompt", 32, 128),
                     (int32_t)lab_int(l, "gen", 16, 64),
                     1,
                     0,
                     1,
                     11};
    TRY(lab_server_borrow(l, no_key, &s, &own, err));
    vt_status status = lab_load_run(l, &s, &load, &a, err);
    if (own)
        lab_server_stop(&s);
    if (status != VT_OK)
        return status;
    json_t *file = summary_json(&load, &a.sum);
    lab_table(l, "configurations", "output tokens per second",
              "configuration|>tokens/s|>against one");
    lab_cell(l, "single: %s", l->ordinal >= 0 ? "one GPU" : "one CPU");
    lab_cell_number(l, a.sum.output_tokens_per_s, LAB_TOKENS_PER_S);
    lab_cell_number(l, 1, LAB_RATIO);
    lab_table_end(l);
    static const char *const why = "tensor parallelism (--tp) is not there yet";
    lab_missing(l, "pairs", "%s", why);
    lab_missing(l, "host", "%s", why);
    lab_missing(l, "four", "%s", why);
    lab_answers_release(&a);
    status = lab_write_json(l, "tp_single.json", file, "one device", err);
    json_decref(file);
    return status;
}

const lab_def lab_experiment_5 = {
    .track = LAB_EXPERIMENTS,
    .number = "5",
    .name = "tp_scaling",
    .goal = "what several devices bring over one, by the link between them",
    .about = {"The same load is sent to each configuration that this machine has."},
    .alias = {"05_tp_scaling.sh"},
    .items = scaling_items,
    .run = run_scaling};
