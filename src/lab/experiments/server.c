/* Experiments 1 and 2: a server is started, and measured as clients see it. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/stats.h"
#include "lab/experiments/experiments.h"
#include "lab/kit/result.h"
#include "model/model.h"

/* ---- 1: start the server ---- */

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

static const char until_ready[] = "time until it is ready";

/* Before any server starts: the bytes of the model's weights over the roof that they cross. */
static vt_status predict_start(lab *l, vt_err *err)
{
    vt_options *o = NULL;
    vt_model *m = NULL;
    TRY(vt_options_new(&o, err));
    vt_status status = vt_options_set(o, "model", l->model, err);
    if (status == VT_OK)
        status = vt_model_open(o, &m, err);
    vt_options_free(o);
    TRY(status);
    double roof = l->ordinal >= 0 ? l->roofs.to_device_bytes_per_s : l->roofs.copy_bytes_per_s / 2;
    lab_predict(l, until_ready, roof > 0 ? (double)m->weight_bytes / roof : NAN, VT_SECONDS,
                l->ordinal >= 0
                    ? "the weights at the measured rate of the link to the GPU; reading "
                      "the tokenizer and compiling kernels come on top"
                    : "the weights, read once and written once at the measured roof of "
                      "a copy; reading the tokenizer and planning come on top");
    vt_model_free(m);
    return VT_OK;
}

static vt_status tell_server(lab *l, const lab_server *s, vt_err *err)
{
    json_t *info = NULL;
    lab_server_memory m;
    vt_buf text = {0};
    TRY(lab_server_memory_of(s, &m, err));
    TRY(lab_server_json(s, "/model_info", &info, err));
    put_members(&text, info);
    lab_item(l, "loaded", "%s", text.data ? text.data : "");
    vt_buf_release(&text);
    json_decref(info);
    lab_number(l, "memory", lab_resident_bytes(s->pid), VT_BYTES, "measured",
               "resident, the mapped model file included");
    lab_outcome(l, until_ready, s->ready_s, false);
    return lab_write_memory(l, s, &m, err);
}

static double mean(const double v[2]) { return (v[0] + v[1]) / 2; }

static double noise(const double v[2]) { return vt_noise((double[]){v[0], v[1]}, 2); }

/* The knob: a start must not depend on how much KV memory the server may use. Starts with little
 * memory and usual ones take turns; the last one, a usual one, is left running, on --port if that
 * was given. */
static vt_status start_and_turn(lab *l, lab_server *out, vt_err *err)
{
    static const char *const little[] = {"--kv-memory", "256M", "--max-context", "1024", NULL};
    char port[16];
    snprintf(port, sizeof port, "%lld", (long long)lab_int(l, "port", 0, 0));
    const char *const there[] = {"--port", port, NULL};
    const char *const *last = strcmp(port, "0") == 0 ? NULL : there;
    double ready[2][2];                         /* [usual, little][repetition] */
    TRY(lab_server_start(l, little, out, err)); /* fills the caches of files and compiled kernels */
    lab_server_stop(out);
    for (int i = 0; i < 2; i++)
        for (int k = 1; k >= 0; k--) {
            TRY(lab_server_start(l, k == 1 ? little : i == 1 ? last : NULL, out, err));
            ready[k][i] = out->ready_s;
            if (k == 1 || i == 0)
                lab_server_stop(out);
        }
    lab_turn(l, &(lab_knob){.name = "256 MB of KV memory",
                            .where = "--kv-memory",
                            .what = "a start, until it answers",
                            .gain = 1,
                            .before_s = mean(ready[0]),
                            .before_noise = noise(ready[0]),
                            .after_s = mean(ready[1]),
                            .after_noise = noise(ready[1]),
                            .why = "KV memory is reserved at the start and touched when tokens "
                                   "come, so a start moves the same bytes, those of the weights"});
    return VT_OK;
}

/* The list of files that a result names, without the one that an ended server leaves no more. */
static void forget_server_file(json_t *result)
{
    json_t *files = json_object_get(result, "files"), *f;
    size_t i;
    json_array_foreach(files, i, f)
    {
        const char *name = json_string_value(json_object_get(f, "name"));
        if (name && strcmp(name, "server.json") == 0) {
            json_array_remove(files, i);
            return;
        }
    }
}

/* --stop: the result of the start stays, and says that the server has ended. */
static vt_status end_server(lab *l, vt_err *err)
{
    json_t *old = NULL;
    TRY(lab_server_end_left(l, err));
    TRY(lab_result_read(l->results, l->def, &old, err));
    if (old)
        json_object_update(l->result, old);
    else
        for (const lab_item_def *i = l->def->items; i->key; i++)
            lab_missing(l, i->key, "the server has ended, and there is no result of its start");
    json_decref(old);
    forget_server_file(l->result);
    lab_finding(l, "server.ended", "the server of these figures has ended (--stop)");
    return VT_OK;
}

/* One request to the server that is left, whose steps are drawn. */
static vt_status first_request(lab *l, const lab_server *s, vt_err *err)
{
    lab_answers a;
    lab_load load = {1, 1, 64, (int32_t)lab_int(l, "gen", 16, 32), 1, 0, 1, 3001};
    TRY(lab_load_run(l, s, &load, &a, err));
    lab_answers_release(&a);
    return VT_OK;
}

static vt_status run_start(lab *l, vt_err *err)
{
    lab_server s;
    if (lab_flag(l, "stop"))
        return end_server(l, err);
    if (lab_server_is_left(l)) /* measured from nothing: the old one ends first */
        TRY(lab_server_end_left(l, err));
    TRY(predict_start(l, err));
    TRY(start_and_turn(l, &s, err));
    lab_number(l, "ready", s.ready_s, VT_SECONDS, "measured", "from fork to the first /health");
    lab_item(l, "address",
             "%s, port %d, process %d; it stays, and 'vitrine lab experiments 1 --stop' ends it",
             s.url, s.port, s.pid);
    lab_item(l, "device", "%s, %d thread%s", l->ordinal >= 0 ? l->roofs.name : "the CPU",
             l->threads, l->threads == 1 ? "" : "s");
    vt_status status = tell_server(l, &s, err);
    if (status == VT_OK)
        status = first_request(l, &s, err);
    if (status == VT_OK) {
        lab_draw_server(l, &s);
        lab_file(l, "server.log", "what the server said");
        lab_check(l, lab_server_answers(&s), "the server answers /health at %s", s.url);
        status = lab_server_leave(l, &s, err);
    }
    if (status != VT_OK)
        lab_server_stop(&s);
    return status;
}

const lab_def lab_experiment_1 = {
    .track = LAB_EXPERIMENTS,
    .number = "1",
    .name = "start_server",
    .goal = "how long a server takes to be ready, and what it holds",
    .about =
        {"vitrine serve is started as a process of its own and asked /health until it answers,",
         "once to fill caches and four times to measure; the last one stays for the other",
         "experiments, and --stop ends it. One request shows what its steps do."},
    .alias = {"01_start_server.sh"},
    .knobs = {{"--kv-memory", LAB_OFFERED, LAB_START, "--kv-memory 256M"}},
    .items = {{"ready", "time from its start until it answered", false},
              {"loaded", "what was loaded", false},
              {"address", "where it listens", false},
              {"memory", "memory of its process", true},
              {"device", "what it runs on", true},
              {"flame", "where the time of the server's steps went, drawn", false},
              {"over_time", "memory and units over time, drawn", true}},
    .run = run_start};

/* ---- 2: baseline ---- */

static void spread_row(lab *l, const char *name, const vt_load_spread *s)
{
    lab_cells(l, "%s|%f s|%f s|%f s|%f s", name, s->p50, s->p90, s->p99, s->max);
}

/* Computes what the bytes of a step promise for this load. */
static vt_status promised(const lab_server *s, const lab_load *load, int32_t n, double *out,
                          vt_err *err)
{
    lab_server_memory m;
    TRY(lab_server_memory_of(s, &m, err));
    *out = lab_batch_gain(&m, n, load->input + load->output / 2.0);
    return VT_OK;
}

static lab_load rates_load(const lab *l)
{
    return (lab_load){.n = (int32_t)lab_int(l, "requests", 16, 64),
                      .input = (int32_t)lab_int(l, "prompt", 32, 128),
                      .output = (int32_t)lab_int(l, "gen", 16, 64),
                      .turns = 1};
}

/* Before the first request. */
static vt_status predict_rates(lab *l, const lab_server *s, double *gain, vt_err *err)
{
    lab_load load = rates_load(l);
    TRY(promised(s, &load, 16, gain, err));
    lab_predict(l, "gain of 16 requests at once", *gain, VT_RATIO,
                "bytes of 16 decode steps of one sequence over those of one step of 16: the "
                "weights are read once for all. Prefill and arithmetic gain less");
    return VT_OK;
}

/* One request at a time tells latency; many at once tell throughput. */
static vt_status run_rates(lab *l, const lab_server *s, double gain, json_t *file, vt_buf *log,
                           vt_err *err)
{
    static const int32_t at_once[] = {1, 4, 16};
    enum { N = sizeof at_once / sizeof *at_once };
    double wall[N], noise[N];
    lab_load load = rates_load(l);
    lab_table(l, "throughput", "the same requests, by how many are open at once",
              ">at once|>output tokens/s|>TTFT p50|>ITL p50|>against 1");
    for (size_t i = 0; i < N; i++) {
        lab_answers a;
        load.concurrency = at_once[i];
        load.seed = 100 + i;
        TRY(lab_load_run(l, s, &load, &a, err));
        wall[i] = a.sum.wall_s;
        noise[i] = lab_answers_noise(&a);
        lab_cells(l, "%f|%f tokens/s|%f s|%f s|%f ratio", (double)at_once[i],
                  a.sum.output_tokens_per_s, a.sum.ttft.p50, a.sum.itl.p50, wall[0] / wall[i]);
        json_array_append_new(file, lab_summary_json(&load, &a.sum));
        lab_summary_text(log, "throughput by load", &load, &a.sum);
        lab_answers_release(&a);
    }
    lab_outcome(l, "gain of 16 requests at once", wall[0] / wall[N - 1], false);
    lab_turn(l, &(lab_knob){.name = "16 requests at once",
                            .where = "of the clients",
                            .what = "all requests, one after the other against 16 at once",
                            .gain = gain,
                            .before_s = wall[0],
                            .before_noise = noise[0],
                            .after_s = wall[N - 1],
                            .after_noise = noise[N - 1],
                            .why = "a step reads the weights once, whatever the number of its "
                                   "sequences, until its arithmetic takes longer than its bytes"});
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
    double gain;
    TRY(predict_rates(l, s, &gain, err));
    TRY(lab_load_run(l, s, &load, &a, err));
    const vt_load_summary *m = &a.sum;
    lab_table(l, "latency", "as a client sees it", "what|>p50|>p90|>p99|>longest");
    spread_row(l, "first token (TTFT)", &m->ttft);
    spread_row(l, "between tokens (ITL)", &m->itl);
    spread_row(l, "whole request", &m->e2e);
    lab_item(l, "medians",
             "of %d requests, %d at once: TTFT %.1f ms, ITL %.2f ms, %.0f output tokens/s", m->n,
             load.concurrency, m->ttft.p50 * 1e3, m->itl.p50 * 1e3, m->output_tokens_per_s);
    double decode = m->itl.p50 * (load.output - 1);
    lab_item(l, "bound",
             "of a median request of %.1f ms, %.0f %% is the wait for its first token (queue and "
             "prefill), %.0f %% decode at the median gap",
             m->e2e.p50 * 1e3, 100 * m->ttft.p50 / m->e2e.p50, 100 * decode / m->e2e.p50);
    json_t *rates = json_array();
    vt_buf log = {0};
    vt_status status = lab_write_load(l, "baseline_benchmark",
                                      "latency and throughput of 100 requests", &load, m, err);
    lab_answers_release(&a);
    if (status == VT_OK)
        status = run_rates(l, s, gain, rates, &log, err);
    if (status == VT_OK)
        status = lab_write_json(l, "throughput_benchmark.json", rates, "throughput by load", err);
    if (status == VT_OK)
        status = lab_write_text(l, "throughput_benchmark.log", &log, "the same as text", err);
    json_decref(rates);
    vt_buf_release(&log);
    return status;
}

static vt_status run_baseline(lab *l, vt_err *err)
{
    return lab_server_with(l, measure_baseline, err);
}

const lab_def lab_experiment_2 = {
    .track = LAB_EXPERIMENTS,
    .number = "2",
    .name = "baseline_benchmark",
    .goal = "TTFT, ITL and throughput of a server, with their spread",
    .about = {"100 requests are sent, 8 at once; then fewer, 1, 4 and 16 at once."},
    .alias = {"02_baseline_benchmark.sh"},
    .knobs = {{"of the clients", LAB_LOAD}},
    .items = {{"latency", "TTFT, ITL and whole requests", false},
              {"throughput", "output tokens per second by requests at once", false},
              {"medians", "what a client waits for, in the middle", false},
              {"bound", "which phase the time goes to", true},
              {"flame", "where the time of the server's steps went, drawn", false},
              {"over_time", "memory and units over time, drawn", true}},
    .run = run_baseline};
