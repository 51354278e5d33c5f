/* Experiment 5: the same load on each configuration of devices.
 *
 *   single       measured
 *   2_p2p        two devices, the fast link (NVLink, peer to peer)
 *   2_host       two devices, sums staged through the host
 *   4            four devices
 *   2_cpu        two ranks of one CPU
 *
 * Ranks do not exist yet, so the other four are named as missing, with what their bytes promise. */
#include <math.h>
#include <stdio.h>

#include "base/err.h"
#include "lab/experiments/experiments.h"

static void tell_missing(lab *l)
{
    static const char *const why = "tensor parallelism (--tp) is not there yet";
    lab_missing(l, "pairs", "%s; its file will be tp_2_p2p.json", why);
    lab_missing(l, "host", "%s; its file will be tp_2_host.json", why);
    lab_missing(l, "four", "%s; its file will be tp_4.json", why);
    lab_missing(l, "cpu_ranks", "%s; its file will be tp_2_cpu.json", why);
}

/* A rank of N reads 1/N of the weights and of K and V; sums between ranks come on top. */
static void tell_promised(lab *l, const lab_server_memory *m, int32_t n, double tokens)
{
    static const int ranks[] = {1, 2, 4};
    double bytes = lab_step_bytes(m, n, tokens), roof = l->roofs.memory_bytes_per_s;
    lab_table(l, "promised",
              l->ordinal >= 0 ? "a decode step of all sequences, without the sums between ranks"
                              : "a decode step of all sequences, without the sums between ranks, "
                                "if each rank had a memory like this one",
              ">ranks|>bytes a rank|>least time|>gain at most");
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++)
        lab_cells(l, "%f|%f B|%f s|%f ratio", (double)ranks[i], bytes / ranks[i],
                  bytes / ranks[i] / roof, (double)ranks[i]);
    lab_turn(l, &(lab_knob){.name = "two ranks",
                            .where = "--tp 2",
                            .what = "the same load on two devices",
                            .gain = 2,
                            .before_s = NAN,
                            .before_noise = NAN,
                            .after_s = NAN,
                            .after_noise = NAN,
                            .why = "--tp with several ranks is not there yet; 'vitrine lab sglang "
                                   "06' computes what the sums between ranks would cost"});
}

static const char gap[] = "time between two tokens on one device";

static void tell_single(lab *l, const lab_answers *a)
{
    double step_s = a->sum.itl.p50;
    lab_table(l, "configurations", "output tokens per second",
              "configuration|>tokens/s|>against one");
    lab_cells(l, "single: %s|%f tokens/s|%f ratio", l->ordinal >= 0 ? "one GPU" : "one CPU",
              a->sum.output_tokens_per_s, 1.0);
    lab_outcome(l, gap, step_s, false);
}

static vt_status measure(lab *l, const lab_server *s, vt_err *err)
{
    lab_answers a;
    lab_server_memory m;
    lab_load load = {.n = (int32_t)lab_int(l, "requests", 16, 64),
                     .concurrency = (int32_t)lab_int(l, "concurrency", 8, 16),
                     .input = (int32_t)lab_int(l, "prompt", 32, 128),
                     .output = (int32_t)lab_int(l, "gen", 16, 64),
                     .turns = 1,
                     .seed = 11};
    double tokens = load.input + load.output / 2.0;
    TRY(lab_server_memory_of(s, &m, err));
    double roof = l->roofs.memory_bytes_per_s;
    lab_predict(l, gap, roof > 0 ? lab_step_bytes(&m, load.concurrency, tokens) / roof : NAN,
                VT_SECONDS,
                "bytes of a decode step of all sequences at the measured memory roof: the least");
    TRY(lab_load_run(l, s, &load, &a, err));
    tell_single(l, &a);
    tell_promised(l, &m, load.concurrency, tokens);
    tell_missing(l);
    json_t *file = lab_summary_json(&load, &a.sum);
    vt_status status = lab_write_json(l, "tp_single.json", file, "one device", err);
    json_decref(file);
    lab_answers_release(&a);
    return status;
}

static vt_status run(lab *l, vt_err *err)
{
    lab_server s;
    bool own;
    TRY(lab_server_borrow(l, NULL, &s, &own, err));
    vt_status status = measure(l, &s, err);
    if (status == VT_OK)
        lab_draw_server(l, &s);
    if (own)
        lab_server_stop(&s);
    return status;
}

const lab_def lab_experiment_5 = {
    .track = LAB_EXPERIMENTS,
    .number = "5",
    .name = "tp_scaling",
    .goal = "what several devices bring over one, by the link between them",
    .about = {"The same load is sent to each configuration that this machine has."},
    .alias = {"05_tp_scaling.sh"},
    .items = {{"configurations", "throughput of each configuration of devices", false},
              {"promised", "what the bytes of a step promise for several devices", true},
              {"pairs", "two devices on the fast link", true},
              {"host", "two devices through the host", true},
              {"four", "four devices", true},
              {"cpu_ranks", "two ranks of one CPU", true},
              {"flame", "where the time of the server's steps went, drawn", false},
              {"over_time", "memory and units over time, drawn", true}},
    .run = run};
