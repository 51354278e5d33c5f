/* Experiment 5: the same load on each configuration of devices.
 *
 *   single       one device
 *   2_p2p        two GPUs that read each other's memory (NVLink or PCIe)
 *   2_host       two GPUs, sums staged through the host (--tp-link host)
 *   4            four GPUs
 *   2_cpu        two ranks of one CPU, on the threads that the single one has
 *
 * Each is a server of its own with --tp N. One that this machine cannot start is named as missing
 * with the reason. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "device/choose.h"
#include "lab/experiments/experiments.h"

/* The figures of one device, which the others are held against. */
typedef struct single {
    double tokens_per_s, wall_s, noise;
} single;

typedef struct setup {
    const char *key, *name, *stem, *log; /* stem: of its files, .json and .log */
    int32_t ranks;
    bool gpu;
    const char *link; /* option tp-link */
} setup;

static const setup setups[] = {
    {"pairs", "2_p2p: two GPUs", "tp_2_p2p", "server_2_p2p.log", 2, true, "p2p"},
    {"host", "2_host: two GPUs, through the host", "tp_2_host", "server_2_host.log", 2, true,
     "host"},
    {"four", "4: four GPUs", "tp_4", "server_4.log", 4, true, "auto"},
    {"cpu_ranks", "2_cpu: two ranks of one CPU", "tp_2_cpu", "server_2_cpu.log", 2, false, "auto"}};

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

/* ---- several ranks ---- */

/* Returns true if the knob of two ranks is about this one. */
static bool is_turned(const setup *c) { return c->ranks == 2 && strcmp(c->link, "host") != 0; }

/* The first two ranks that run are the knob's other side; NULL: none ran, because of `why`. */
static void turn_two(lab *l, const single *one, const lab_answers *two, const char *why)
{
    bool gpu = l->ordinal >= 0;
    lab_turn(l, &(lab_knob){.name = "two ranks",
                            .where = "--tp 2",
                            .what = gpu ? "the same load on two GPUs"
                                        : "the same load on two ranks of this CPU",
                            .gain = gpu ? 2 : 1,
                            .before_s = two ? one->wall_s : NAN,
                            .before_noise = two ? one->noise : NAN,
                            .after_s = two ? two->sum.wall_s : NAN,
                            .after_noise = two ? lab_answers_noise(two) : NAN,
                            .why = !two  ? why
                                   : gpu ? "each rank reads half of the weights and of K and V; "
                                           "sums, launches and the host's work are not divided"
                                         : "ranks of one CPU share its cores and its memory: the "
                                           "bytes are the same, and sums come on top"});
}

/* Tells how far the gain of ranks is from what their bytes allow; nothing where other programs
 * disturbed one of the two. Ranks of one CPU share its memory, so bytes allow them no gain. */
static void tell_gain(lab *l, const setup *c, double ratio)
{
    static const double close = 0.8, beyond = 1.25;
    double allowed = c->gpu ? c->ranks : 1;
    if (l->busy || !(ratio > 0))
        return;
    lab_finding(
        l, "ranks.scaling",
        "%d ranks give %f ratio of the tokens of one, where their bytes allow %f ratio: %s",
        c->ranks, ratio, allowed,
        ratio > beyond * allowed ? "more than bytes explain, so another thing slowed the "
                                   "single one"
        : ratio > close * allowed
            ? "close to what bytes promise"
            : "sums, launches and the host's work, which ranks do not divide, take the rest");
}

static vt_status tell_ranks(lab *l, const setup *c, const lab_load *load, const single *one,
                            const lab_answers *a, vt_err *err)
{
    double ratio = a->sum.output_tokens_per_s / one->tokens_per_s;
    lab_cells(l, "%s|%f tokens/s|%f ratio", c->name, a->sum.output_tokens_per_s, ratio);
    lab_item(l, c->key, "%d ranks: %f tokens/s, %f ratio of one; %f s between two tokens, %s.json",
             c->ranks, a->sum.output_tokens_per_s, ratio, a->sum.itl.p50, c->stem);
    tell_gain(l, c, ratio);
    if (is_turned(c))
        turn_two(l, one, a, NULL);
    return lab_write_load(l, c->stem, c->name, load, &a->sum, err);
}

/* Starts a server of so many ranks. false: it cannot be, and the item says why. */
static bool start_ranks(lab *l, const setup *c, lab_server *s)
{
    char ranks[8], device[16], why[600];
    int32_t gpu[8];
    vt_err err = {0};
    bool here = c->gpu == (l->ordinal >= 0);
    vt_device_name(l->ordinal, device, sizeof device);
    snprintf(ranks, sizeof ranks, "%d", c->ranks);
    const char *const args[] = {"--tp", ranks, "--tp-link", c->link, NULL};
    if (!here)
        snprintf(why, sizeof why, "the lab runs on %s: --device %s measures it",
                 c->gpu ? "the CPU" : "a GPU", c->gpu ? "cuda" : "cpu");
    else if ((c->gpu && vt_device_gpus(device, c->ranks, gpu, &err) != VT_OK) ||
             lab_server_start_with_log(l, args, c->log, s, &err) != VT_OK)
        snprintf(why, sizeof why, "%s", err.message);
    else
        return true;
    lab_missing(l, c->key, "%s; its file would be %s.json", why, c->stem);
    if (here && is_turned(c))
        turn_two(l, NULL, NULL, why);
    return false;
}

static vt_status measure_ranks(lab *l, const lab_load *load, const single *one, vt_err *err)
{
    for (size_t i = 0; i < sizeof setups / sizeof *setups; i++) {
        lab_server s;
        lab_answers a;
        if (!start_ranks(l, &setups[i], &s))
            continue;
        vt_status status = lab_load_run(l, &s, load, &a, err);
        lab_server_stop(&s);
        if (status == VT_OK) {
            status = tell_ranks(l, &setups[i], load, one, &a, err);
            lab_answers_release(&a);
        }
        TRY(status);
    }
    return VT_OK;
}

/* ---- all ---- */

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
    single one = {a.sum.output_tokens_per_s, a.sum.wall_s, lab_answers_noise(&a)};
    tell_single(l, &a);
    vt_status status = lab_write_load(l, "tp_single", "one device", &load, &a.sum, err);
    lab_answers_release(&a);
    TRY(status);
    TRY(measure_ranks(l, &load, &one, err));
    tell_promised(l, &m, load.concurrency, tokens);
    return VT_OK;
}

static vt_status run(lab *l, vt_err *err) { return lab_server_with(l, measure, err); }

const lab_def lab_experiment_5 = {
    .track = LAB_EXPERIMENTS,
    .number = "5",
    .name = "tp_scaling",
    .goal = "what several devices bring over one, by the link between them",
    .about = {"The same load is sent to each configuration that this machine has."},
    .alias = {"05_tp_scaling.sh"},
    .knobs = {{"--tp", LAB_OFFERED, NULL, "--tp 2"}},
    .items = {{"configurations", "throughput of each configuration of devices", false},
              {"promised", "what the bytes of a step promise for several devices", true},
              {"pairs", "two GPUs that read each other's memory", true},
              {"host", "two GPUs through the host", true},
              {"four", "four GPUs", true},
              {"cpu_ranks", "two ranks of one CPU", true},
              {"flame", "where the time of the server's steps went, drawn", false},
              {"over_time", "memory and units over time, drawn", true}},
    .run = run};
