/* Lab sglang 06: tensor parallelism, predicted from one rank, and measured where several can be.
 *
 *   Ranks split every matrix of a layer: qkv and gate+up by columns, o and down by rows. The rows'
 *   halves must be summed, so a layer has two all-reduces, of tokens x hidden elements each.
 *
 *        rank 0: norm qkv rope attn o ─┐        ┌─ norm gate+up down ─┐        ┌─ next layer
 *                                      ├─ sum ──┤                     ├─ sum ──┤
 *        rank 1: norm qkv rope attn o ─┘        └─ norm gate+up down ─┘        └─
 *
 * What is predicted: the time of each sum, from its bytes, the measured roof of the link, and the
 * measured cost of a meeting. What is measured: the request on several ranks, with waiting (a rank
 * comes first and waits for its peer) apart from transfer (ranks_measured.c). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "device/choose.h"
#include "engine/engine.h"
#include "lab/kit/all_reduce.h"
#include "lab/kit/comm_ranks.h"
#include "lab/kit/peer_links.h"
#include "lab/sglang/inside.h"
#include "story/read.h"

enum { MAX_RANKS = 8, MAX_LINKS = 2, SIZES = 4 };

typedef struct ranks {
    vt_engine *engine;
    lab_request r;
    json_t *story;
    sglang_heads model;
    int32_t rank[MAX_RANKS], n_ranks;
    const char *link[MAX_LINKS];
    int32_t n_links;
    int32_t tokens[SIZES]; /* of a step: decodes of as many sequences; the last one a prompt's */
    sglang_cost cost[SIZES];
    int32_t pair[2];          /* the GPUs whose link was measured */
    lab_peer_link peer, host; /* peer to peer, and through the host; per_s 0: not measured */
    char no_link[400];        /* why not */
} ranks;

/* ---- options ---- */

/* Numbers with commas between them. */
static vt_status read_numbers(const char *option, const char *text, long least, long most,
                              int32_t *out, int32_t *n, vt_err *err)
{
    const char *s = text;
    for (bool more = true; more;) {
        char *end;
        long v = strtol(s, &end, 10);
        if (end == s || (*end && *end != ',') || v < least || v > most || *n == MAX_RANKS)
            return vt_fail(err, VT_ERR_USAGE,
                           "%s: '%.40s', expected at most %d numbers from %ld to %ld with commas "
                           "between them",
                           option, text, MAX_RANKS, least, most);
        out[(*n)++] = (int32_t)v;
        more = *end == ',';
        s = end + more;
    }
    return VT_OK;
}

/* --devices is checked here: ranks_measured.c uses its text. */
static vt_status read_ranks(const lab *l, ranks *r, vt_err *err)
{
    const char *given = lab_text(l, "ranks"), *devices = lab_text(l, "devices");
    int32_t device[MAX_RANKS], n = 0;
    TRY(read_numbers("--ranks", given ? given : "1,2,4", 1, 64, r->rank, &r->n_ranks, err));
    return devices ? read_numbers("--devices", devices, 0, 63, device, &n, err) : VT_OK;
}

static vt_status read_links(const lab *l, ranks *r, vt_err *err)
{
    static const char *const known[MAX_LINKS] = {"p2p", "host"};
    const char *text = lab_text(l, "link");
    const char *s = text ? text : "p2p,host";
    for (bool more = true; more;) {
        size_t n = strcspn(s, ",");
        int k = 0;
        while (k < MAX_LINKS && (strlen(known[k]) != n || strncmp(s, known[k], n) != 0))
            k++;
        if (k == MAX_LINKS || r->n_links == MAX_LINKS)
            return vt_fail(err, VT_ERR_USAGE,
                           "--link: '%.40s', expected p2p, host or both with a "
                           "comma between them",
                           text);
        r->link[r->n_links++] = known[k];
        more = s[n] == ',';
        s += n + more;
    }
    return VT_OK;
}

/* ---- predictions ---- */

/* Bytes a second at which a rank gets another one's data; NAN: not measured here. */
static double link_rate(const lab *l, const ranks *r, const char *link)
{
    double per_s = strcmp(link, "host") == 0 ? lab_link_here(l).per_s : r->peer.per_s;
    return per_s > 0 ? per_s : NAN;
}

/* Returns what it costs that all ranks know of each other that they have come. Peers: half of a
 * sum of few bytes, which is a launch and two meetings. */
static double meeting_s(const lab *l, const ranks *r, const char *link)
{
    if (strcmp(link, "p2p") == 0 && r->peer.per_s > 0)
        return (r->peer.small_s - r->peer.small_bytes / r->peer.per_s) / 2;
    return l->roofs.is_gpu ? l->roofs.kernel_s : l->roofs.meeting_s;
}

/* The faster of one-shot and two-shot, as lab mini-sglang 05 computes them, but with a memory of
 * its own for each rank: this lab asks what further devices would gain. */
static double all_reduce_s(const lab *l, const ranks *r, double bytes, int32_t n, const char *link,
                           const char **form)
{
    lab_link own = lab_link_here(l);
    own.shared = false;
    own.per_s = link_rate(l, r, link);
    own.meeting_s = meeting_s(l, r, link);
    double one = lab_all_reduce_s(&own, LAB_ONE_SHOT, n, bytes),
           two = lab_all_reduce_s(&own, LAB_TWO_SHOT, n, bytes);
    *form = n == 1 ? "none" : two < one ? "two-shot" : "one-shot";
    return n == 1 ? 0 : fmin(one, two);
}

static double element_bytes(const lab *l) { return l->ordinal >= 0 ? 2 : 4; }

static double sum_bytes(const lab *l, const ranks *r, int32_t tokens)
{
    return (double)tokens * r->model.hidden * element_bytes(l);
}

static void put_prediction(lab *l, const ranks *r, const char *name, double bytes, int32_t n,
                           const char *link)
{
    const char *form;
    double s = all_reduce_s(l, r, bytes, n, link, &form);
    if (n == 1)
        return;
    lab_cells(l, "%s|%f B|%d|%s|%s|%f s|%f B/s", name, bytes, n, link, isfinite(s) ? form : "n/a",
              s, 2.0 * (n - 1) / n * bytes / s);
}

/* Returns true if an all-reduce can be predicted: several ranks, and a link whose rate is
 * measured. */
static bool is_predicted(const lab *l, const ranks *r)
{
    bool several = false, rate = false;
    for (int i = 0; i < r->n_ranks; i++)
        several |= r->rank[i] > 1;
    for (int k = 0; k < r->n_links; k++)
        rate |= isfinite(link_rate(l, r, r->link[k]));
    return several && rate;
}

static void tell_prediction(lab *l, const ranks *r)
{
    char name[48];
    lab_table(l, "prediction",
              l->roofs.is_gpu ? "An all-reduce, predicted from its bytes, the link's measured roof "
                                "and a meeting's cost"
                              : "An all-reduce, predicted from its bytes, the measured copy roof "
                                "and a meeting's cost, if each rank had a memory of its own",
              "sum of|>bytes|>ranks|link|form|>predicted|>each way");
    for (int k = 0; k < r->n_links; k++)
        for (int i = 0; i < r->n_ranks && isfinite(link_rate(l, r, r->link[k])); i++) {
            for (int t = 0; t < SIZES; t++) {
                snprintf(name, sizeof name, "%d token%s", r->tokens[t],
                         r->tokens[t] == 1 ? "" : "s");
                put_prediction(l, r, name, sum_bytes(l, r, r->tokens[t]), r->rank[i], r->link[k]);
            }
            put_prediction(l, r, "8 MB", 8 << 20, r->rank[i], r->link[k]);
        }
}

/* The layers' part of a step's expected time. Where a size has calls whose efficiency was not
 * measured, all sizes are told at their roofs: two ways in one table would make 8 tokens cheaper
 * than one. */
static double layer_s(const ranks *r, int t)
{
    bool known = true;
    for (int i = 0; i < SIZES; i++)
        known = known && isfinite(r->cost[i].layers_expected_s);
    return (known ? r->cost[t].layers_expected_s : r->cost[t].layers_floor_s) / r->model.layers;
}

/* A rank's layer: its share of the work, and two sums. */
static void tell_share(lab *l, const ranks *r)
{
    lab_table(l, "share",
              l->roofs.is_gpu ? "A layer on N ranks: a rank reads 1/N of the weights and of K and V"
                              : "A layer on N ranks, if each had cores and memory of its own like "
                                "these: ranks of one CPU share both and gain nothing",
              "tokens|>ranks|link|>layer's work|>two sums|>sums of layer|>gain of N ranks");
    for (int t = 0; t < SIZES; t++)
        for (int i = 0; i < r->n_ranks; i++)
            for (int k = 0; k < r->n_links; k++) {
                const char *form;
                int32_t n = r->rank[i];
                double layer = layer_s(r, t),
                       sums = 2 * all_reduce_s(l, r, sum_bytes(l, r, r->tokens[t]), n, r->link[k],
                                               &form);
                if ((n == 1 && k > 0) || (n > 1 && !isfinite(link_rate(l, r, r->link[k]))))
                    continue;
                lab_cells(l, "%d|%d|%s|%f s|%f s|%f share|%f ratio", r->tokens[t], n,
                          n == 1 ? "" : r->link[k], layer / n, sums, sums / (layer / n + sums),
                          layer / (layer / n + sums));
            }
}

/* ---- the flow of a layer ---- */

static void draw_flow(vt_buf *b, lab *l, const ranks *r)
{
    const json_t *calls = story_get(r->story, "calls"), *labels = story_get(calls, "labels"),
                 *layers = story_get(calls, "layers"), *phase = NULL, *p;
    static const char *const column[] = {"us", "bytes", NULL};
    char name[STORY_TEXT];
    const char *form;
    size_t i;
    json_array_foreach((json_t *)story_get(story_get(r->story, "typical"), "phases"), i,
                       p) if (strcmp(story_text(p, "name", name), "decode") == 0) phase = p;
    size_t n = story_rows(phase, column);
    double message = sum_bytes(l, r, 1), s = all_reduce_s(l, r, message, 2, "host", &form);
    const char *how = "modelled, through the host";
    comm_result measured;
    lab_comm c;
    lab_comm_open(l, 2, &c);
    if (lab_comm_sum(&c, NULL, message, COMM_REGISTERED, &measured)) {
        s = (double)measured.median_ns * 1e-9;
        how = c.gpus ? "measured between two GPUs" : "measured between two threads";
    }
    lab_comm_close(&c);
    vt_buf_printf(b, "LAYER %d of a decode step, one token\n", r->model.layers / 2);
    for (i = 0; i < n && i < json_array_size(labels) && i < json_array_size(layers); i++) {
        double us = story_cell(phase, "us", i);
        if (json_number_value(json_array_get(layers, i)) != r->model.layers / 2 || !isfinite(us))
            continue;
        story_clean(json_array_get(labels, i), name);
        size_t line = b->len;
        vt_buf_printf(b, "├── %s", name);
        vt_text_pad(b, line, 34);
        vt_text_printf(b, "%f s, one rank", us * 1e-6);
        bool last = strstr(name, "linear.o") || strstr(name, "linear.down");
        vt_buf_puts(b, strstr(name, "norm") ? "; every rank does all of it\n"
                       : last               ? "; split by rows: parts of sums\n"
                                            : "; split by columns or heads\n");
        if (last)
            vt_text_printf(b, "│   └── ALL-REDUCE of %f B: %f s with 2 ranks [%s]\n", message, s,
                           how);
    }
    vt_buf_puts(b, "└── next layer\n");
}

/* ---- hardware ---- */

/* Shapes that copy 8 MiB (4 pages of 16 tokens, K and V, 32 layers, 8 heads of 128) and 1 MiB. */
static const char buffer_shape[] =
    "copies=4,tokens=16,layers=32,kv_heads=8,head_dim=128,kv_type=f16,page=16";
static const char part_shape[] =
    "copies=1,tokens=16,layers=16,kv_heads=8,head_dim=128,kv_type=f16,page=16";

static vt_status tell_buffers(lab *l, vt_err *err)
{
    lab_kernel k, part;
    TRY(lab_kernel_run(l, &(lab_kernel_ask){.op = "page_copy", .shape = buffer_shape}, &k, err));
    TRY(lab_kernel_run(l, &(lab_kernel_ask){.op = "page_copy", .shape = part_shape}, &part, err));
    lab_item(l, "buffers",
             "copying 8 MiB inside the device takes %f s (%f B/s read and written, at least %f s "
             "by the roofs). A sum in a registered buffer pays it twice, in and out, unless the "
             "layer before writes into the buffer and the layer behind reads from it",
             k.median_s, k.bytes / k.median_s, k.least_s);
    lab_turn(l, &(lab_knob){.name = "one copy, not eight",
                            .where = "tokens a step",
                            .what = "8 MiB into a buffer",
                            .gain = 8 * part.least_s / k.least_s,
                            .before_s = 8 * part.median_s,
                            .before_noise = part.noise,
                            .after_s = k.median_s,
                            .after_noise = k.noise,
                            .why = "the bytes are the same; each copy adds its start and end, and "
                                   "1 MiB may stay in a cache that 8 MiB do not fit"});
    return VT_OK;
}

static void measure_link(lab *l, ranks *r)
{
    char device[64];
    vt_err err = {0};
    if (l->ordinal < 0)
        return;
    vt_status status = sglang_ranks_device(l, 2, device, sizeof device, &err);
    if (status == VT_OK)
        status = vt_device_gpus(device, 2, r->pair, &err);
    if (status == VT_OK)
        status = lab_peer_link_measure(l, r->pair, "p2p", &r->peer, &err);
    if (status == VT_OK)
        status = lab_peer_link_measure(l, r->pair, "host", &r->host, &err);
    if (status != VT_OK)
        snprintf(r->no_link, sizeof r->no_link, "%.399s", err.message);
}

static void tell_link(lab *l, const ranks *r)
{
    const vt_roofs *roofs = &l->roofs;
    char host[320];
    if (!(r->peer.per_s > 0)) {
        lab_item(l, "link_roof",
                 "to pinned host memory %f B/s, back %f B/s, measured; a sum that is staged "
                 "through the host pays both. The link between two GPUs is not measured: %s",
                 roofs->to_device_bytes_per_s, roofs->from_device_bytes_per_s, r->no_link);
        return;
    }
    if (r->host.large_s > 0)
        snprintf(host, sizeof host, "it takes %s", vt_figure_of(r->host.large_s, VT_SECONDS).text);
    else
        snprintf(host, sizeof host, "it was not measured: %.280s", r->no_link);
    lab_item(l, "link_roof",
             "GPU %d and GPU %d read each other's memory at %f B/s each way at once, measured by "
             "sums of up to %f B; the largest takes %f s. Through pinned host memory, which takes "
             "%f B/s and gives %f B/s, %s",
             r->pair[0], r->pair[1], r->peer.per_s, r->peer.large_bytes, r->peer.large_s,
             roofs->to_device_bytes_per_s, roofs->from_device_bytes_per_s, host);
}

static void tell_hardware(lab *l, const ranks *of)
{
    const vt_roofs *r = &l->roofs;
    if (r->is_gpu) {
        tell_link(l, of);
        lab_item(l, "sync", "an empty kernel in a graph takes %f s: the least that a meeting costs",
                 r->kernel_s);
    } else {
        lab_item(l, "link_roof",
                 "ranks of a CPU share its memory: a copy moves %f B/s, bytes read and written, "
                 "measured. That is the roof of a sum between them",
                 r->copy_bytes_per_s);
        if (r->threads > 1)
            lab_item(l, "sync",
                     "all %d threads of one process meet in %f s, measured; processes meet through "
                     "the same cache lines, and not faster",
                     r->threads, meeting_s(l, of, "host"));
        else
            lab_missing(l, "sync", "one thread has nobody to meet (--threads 1)");
    }
}

/* ---- all ---- */

static vt_status cost_sizes(lab *l, ranks *r, vt_err *err)
{
    enum { MOST = 64 };
    static const int32_t tokens[SIZES] = {1, 8, MOST, 512};
    story_seq seq[MOST];
    for (int i = 0; i < SIZES; i++) {
        r->tokens[i] = tokens[i];
        if (i + 1 == SIZES) {
            TRY(sglang_cost_prompt(l, r->engine, tokens[i], 0, true, &r->cost[i], err));
            continue;
        }
        for (int k = 0; k < tokens[i]; k++)
            seq[k] = (story_seq){.q_len = 1, .kv_len = 512, .n_rows = 1};
        TRY(sglang_cost_step(l, r->engine, seq, tokens[i], true, &r->cost[i], err));
    }
    return VT_OK;
}

static vt_status measure(lab *l, ranks *r, vt_err *err)
{
    int32_t *ids = NULL, gen = l->quick ? 12 : 64;
    vt_buf flow = {0};
    TRY(read_ranks(l, r, err));
    TRY(read_links(l, r, err));
    TRY(sglang_model_heads(l, &r->model, err));
    TRY(sglang_open(l, NULL, 64, &r->engine, err));
    TRY(cost_sizes(l, r, err));
    lab_predict(l, "a decode step on one rank", sglang_best_s(&r->cost[0]), VT_SECONDS,
                "bytes and FLOPs of every call at the share of its roof that the call's row "
                "reached when it was measured alone");
    TRY(sglang_prompt(l, 5, NULL, 0, 500, &ids, err));
    r->r = (lab_request){.prompt = ids, .n_prompt = 500, .n_gen = gen};
    TRY(lab_requests_run(l, r->engine, &r->r, 1, err));
    TRY(lab_story(l, r->engine, r->r.id, &r->story, err));
    lab_outcome(l, "a decode step on one rank", sglang_step_s(r->story),
                sglang_disturbed(r->story, "decode"));
    lab_check(l, r->r.n_tokens == gen, "one rank ran: %d of %d tokens", r->r.n_tokens, gen);
    measure_link(l, r);
    draw_flow(&flow, l, r);
    lab_drawing(l, "flow", "Two sums a layer", &flow);
    vt_buf_release(&flow);
    if (is_predicted(l, r)) {
        tell_prediction(l, r);
        tell_share(l, r);
    } else {
        static const char why[] = "it needs more than one rank (--ranks) and a link whose rate is "
                                  "measured here (--link host)";
        lab_missing(l, "prediction", "%s", why);
        lab_missing(l, "share", "%s", why);
    }
    sglang_scaling(l, &(sglang_scaling_ask){.rank = r->rank,
                                            .n_ranks = r->n_ranks,
                                            .link = r->link,
                                            .n_links = r->n_links,
                                            .prompt = ids,
                                            .n_prompt = 500,
                                            .n_gen = gen,
                                            .one_s = sglang_step_s(r->story)});
    tell_hardware(l, r);
    if (lab_text(l, "devices") && l->ordinal < 0)
        lab_finding(l, "ranks.missing",
                    "--devices %.60s: ranks of a CPU have no GPUs; --device cuda",
                    lab_text(l, "devices"));
    return tell_buffers(l, err);
}

static vt_status run(lab *l, vt_err *err)
{
    ranks r = {0};
    vt_status status = measure(l, &r, err);
    sglang_release(&r.r, 1);
    json_decref(r.story);
    vt_engine_free(r.engine);
    return status;
}

const lab_def sglang_ranks = {
    .track = LAB_SGLANG,
    .number = "06",
    .name = "tp_scaling",
    .goal = "You can say what an all-reduce costs in a layer, and when a second device pays.",
    .about =
        {"One rank runs a request; its layer is timed call by call.",
         "Each layer would send tokens x hidden elements twice, whatever the number of ranks.",
         "Sums are predicted from bytes and measured links; then several ranks run the request."},
    .alias = {"06_tp_scaling.sh"},
    .knobs = {{"tokens a step", LAB_LOAD}},
    .items = {{"flow", "the all-reduces in the flow of a layer", false},
              {"prediction", "predicted time of an all-reduce, by tokens, ranks and link", false},
              {"share", "share of a layer, and what ranks would gain", false},
              {"scaling", "the request on several ranks, measured", false},
              {"skew", "waiting for a peer", false},
              {"transfer", "moving bytes", false},
              {"link_roof", "link bandwidth against its roof", true},
              {"sync", "what a meeting costs", true},
              {"fast_link", "with and without the fast link", true},
              {"buffers", "the copy into and out of a registered buffer, 8 MB", true}},
    .run = run,
};
