/* Lab 05 of the track mini-sglang: all-reduce between ranks that share a model.
 *
 * all_reduce.h has the bytes and the meetings of one-shot, two-shot and a ring, and the reasons.
 *
 * One rank alone measures what all of them stand on: the copy into a registered buffer and out of
 * it, the rate of copies and links, and the time of a meeting or launch. The times of several ranks
 * are computed from these and tagged so. Where two ranks can meet, threads of the CPU or GPUs,
 * theirs are measured beside (comm_measured.c). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "device/choose.h"
#include "lab/kit/all_reduce.h"
#include "lab/kit/peer_links.h"
#include "lab/mini_sglang/mini_sglang.h"
#include "model/model.h"

#define MAIN_BYTES (INT64_C(8) << 20)

/* ---- computed ---- */

static void sizes_table(lab *l, const lab_link *m)
{
    static const int64_t few[] = {16 << 10, 1 << 20, MAIN_BYTES},
                         many[] = {16 << 10, 64 << 10, 256 << 10, 1 << 20, MAIN_BYTES, 64 << 20};
    static const int ranks[] = {2, 4, 8};
    bool all = lab_flag(l, "analyze") || !l->quick;
    int n_sizes = all ? 6 : 3, n_ranks = all ? 3 : 2;
    lab_table(
        l, "sizes",
        "computed from this machine's roofs; link use: the time of the bytes that must cross, "
        "of the best time",
        "ranks|>bytes|>one-shot|>two-shot|>ring|>link use|best");
    for (int i = 0; i < n_sizes * n_ranks; i++) {
        double bytes = (double)(all ? many : few)[i % n_sizes];
        int n = ranks[i / n_sizes];
        double one = lab_all_reduce_s(m, LAB_ONE_SHOT, n, bytes),
               two = lab_all_reduce_s(m, LAB_TWO_SHOT, n, bytes),
               ring = lab_all_reduce_s(m, LAB_RING, n, bytes), best = fmin(one, fmin(two, ring));
        lab_cells(l, "%d|%f B|%f s|%f s|%f s|%f share|%s", n, bytes, one, two, ring,
                  (m->shared ? n : 1) * 2.0 * (n - 1) / n * bytes / m->per_s / best,
                  best == one   ? "one-shot"
                  : best == two ? "two-shot"
                                : "ring");
    }
}

static void tell_algorithms(lab *l, const lab_link *m)
{
    double b = (double)MAIN_BYTES;
    lab_item(l, "one_shot",
             "each rank reads the %f B of every other one and sums: %f s for 2 ranks, %f s for 4 "
             "(modelled; link: %s)",
             b, lab_all_reduce_s(m, LAB_ONE_SHOT, 2, b), lab_all_reduce_s(m, LAB_ONE_SHOT, 4, b),
             m->what);
    lab_item(l, "two_shot",
             "each rank sums its part, then all gather: %f s for 2 ranks, %f s for 4 (modelled)",
             lab_all_reduce_s(m, LAB_TWO_SHOT, 2, b), lab_all_reduce_s(m, LAB_TWO_SHOT, 4, b));
    lab_item(l, "nccl",
             "as a ring: %f s for 2 ranks, %f s for 4 (modelled, with a meeting of %f s for each "
             "of its 2 (n-1) steps). The table of measured times has the library itself where two "
             "GPUs are",
             lab_all_reduce_s(m, LAB_RING, 2, b), lab_all_reduce_s(m, LAB_RING, 4, b),
             m->meeting_s);
    lab_item(l, "threshold",
             "2 ranks send as much either way, so one-shot wins at every size; 4 ranks: two-shot "
             "from %f B on; 8 ranks: from %f B on. The threshold is the time of a meeting (%f s) "
             "times the rate of the link, over what two-shot saves: it must be computed for each "
             "machine, and a fixed number of bytes is wrong on the next one",
             lab_two_shot_from(m, 4), lab_two_shot_from(m, 8), m->meeting_s);
}

static const struct {
    const char *name;
    int32_t n, q_len, kv_len;
} step[] = {
    {"decode x 1", 1, 1, 513}, {"decode x 32", 32, 1, 513}, {"prefill of 512", 1, 512, 512}};

enum { STEPS = sizeof step / sizeof *step };

/* Least time of a step's calls, of all or of the first layer alone, halved for two ranks. */
static double half_s(const lab *l, mini_pass *p, int i, bool layer)
{
    vt_err err;
    double sum = 0;
    if (mini_pass_set(p, step[i].n, step[i].q_len, step[i].kv_len, &err) != VT_OK)
        return NAN;
    for (int32_t k = 0; k < p->described.program->n_calls; k++) {
        vt_cost c = {0}, extra = {0};
        story_bound bound;
        if ((!layer || p->described.program->call[k].layer == 0) &&
            story_step_cost(p->step, k, &c, &extra))
            sum += story_floor_s(&c, &l->roofs, &bound);
    }
    return sum / 2;
}

/* Bytes of the activations that an all-reduce of the step sums. */
static double reduced_bytes(const lab *l, const mini_pass *p, int i)
{
    int each = l->ordinal >= 0 ? 2 : 4; /* bytes of an activation */
    return (double)step[i].n * step[i].q_len * p->model->arch.hidden * each;
}

/* One layer on one rank of two, beside its two all-reduces. */
static void layer_table(lab *l, const lab_link *m, mini_pass *p)
{
    lab_table(l, "layer_share",
              "two all-reduces a layer, 2 ranks, beside the layer's least time (modelled)",
              "step|>bytes each|>two all-reduces|>layer / 2|>share of the layer");
    for (int i = 0; i < STEPS; i++) {
        double bytes = reduced_bytes(l, p, i),
               comm = 2 * lab_all_reduce_s(m, LAB_ONE_SHOT, 2, bytes),
               layer = half_s(l, p, i, true);
        lab_cells(l, "%s|%f B|%f s|%f s|%f share", step[i].name, bytes, comm, layer,
                  comm / (comm + layer));
    }
}

/* The same of a forward pass: all calls of one rank of two, beside two all-reduces a layer. */
static void pass_table(lab *l, const lab_link *m, mini_pass *p)
{
    int32_t layers = p->model->arch.n_layers;
    lab_table(l, "pass_share",
              "communication : compute of a forward pass on 2 ranks, least times (modelled)",
              "step|>all-reduces|>communication|>compute / 2|>ratio|>share of the pass");
    for (int i = 0; i < STEPS; i++) {
        double comm = 2.0 * layers * lab_all_reduce_s(m, LAB_ONE_SHOT, 2, reduced_bytes(l, p, i)),
               work = half_s(l, p, i, false);
        lab_cells(l, "%s|%d|%f s|%f s", step[i].name, 2 * layers, comm, work);
        lab_cell(l, isfinite(work) ? "%.2f : 1" : "n/a", comm / work);
        lab_cell_number(l, comm / (comm + work), VT_SHARE);
    }
}

/* ---- measured ---- */

/* Copying 8 MiB inside one device's memory, in pieces of a page. */
static void copy_shape(const lab *l, int32_t page, char *out, size_t size)
{
    int64_t piece = 2 * (int64_t)page * 8 * 128 * 2; /* K and V of a page in 16 bits */
    snprintf(out, size, "copies=%lld,tokens=%d,layers=1,kv_heads=8,head_dim=128,kv_type=%s,page=%d",
             (long long)(MAIN_BYTES / piece), page, l->ordinal >= 0 ? "bf16" : "f16", page);
}

static vt_status copy(lab *l, int32_t page, lab_kernel *out, vt_err *err)
{
    char shape[160];
    copy_shape(l, page, shape, sizeof shape);
    lab_note(l, "page_copy, %s", shape);
    return lab_kernel_run(l, &(lab_kernel_ask){.op = "page_copy", .shape = shape}, out, err);
}

static void tell_copy(lab *l, const lab_link *m, const lab_kernel *k)
{
    if (!isfinite(k->median_s)) {
        lab_missing(l, "buffer_copy", "times mean nothing on an emulated GPU");
        lab_missing(l, "avoid_copy", "times mean nothing on an emulated GPU");
        return;
    }
    double both = 2 * k->median_s,
           reduce = lab_all_reduce_s(m, LAB_ONE_SHOT, 2, (double)MAIN_BYTES);
    lab_item(l, "buffer_copy",
             "copying %f B into a registered buffer takes %f s (measured: %f B/s, %s), and out of "
             "it as long: %f s beside an all-reduce of %f s (modelled)",
             (double)MAIN_BYTES, k->median_s, k->bytes / k->median_s,
             mini_of_copy(l, k->bytes / k->median_s).text, both, reduce);
    lab_item(l, "avoid_copy",
             "the engine's linear.o and linear.down write their output into the registered buffer, "
             "and the norm after them reads it there: neither copy is made, which would be %.0f %% "
             "of the whole (%f s of %f s)",
             100 * both / (both + reduce), both, both + reduce);
}

static void tell_hardware(lab *l, const lab_link *m)
{
    const vt_roofs *r = &l->roofs;
    if (l->ordinal < 0) {
        lab_number(l, "link", m->per_s, VT_BYTES_PER_S, "derived", m->what);
        if (isfinite(m->meeting_s))
            lab_number(l, "sync", m->meeting_s, VT_SECONDS, "measured",
                       "threads of one process meet; processes need at least that");
        else
            lab_missing(l, "sync",
                        "other programs disturbed the roof of threads that meet; "
                        "`vitrine env` measures it again in a quiet moment");
    } else if (m->per_s > 0) {
        lab_item(l, "link", "to the device %f B/s, from it %f B/s (measured, pinned host memory)",
                 r->to_device_bytes_per_s, r->from_device_bytes_per_s);
        lab_number(l, "sync", m->meeting_s, VT_SECONDS, "measured",
                   "an empty kernel in a graph; a flag in a peer's memory adds the link's latency");
    } else {
        lab_missing(l, "link", "the roofs of an emulated GPU are not measured");
        lab_missing(l, "sync", "the roofs of an emulated GPU are not measured");
    }
}

/* Where two GPUs are, the model stands on the link between them instead of that to the host. */
static void take_peers(const lab *l, lab_link *m)
{
    char device[16];
    int32_t gpu[2];
    lab_peer_link peer;
    vt_err err;
    vt_device_name(l->ordinal, device, sizeof device);
    if (l->ordinal < 0 || vt_device_gpus(device, 2, gpu, &err) != VT_OK ||
        lab_peer_link_measure(l, gpu, "p2p", &peer, &err) != VT_OK || !(peer.per_s > 0))
        return;
    m->per_s = peer.per_s;
    m->meeting_s = (peer.small_s - peer.small_bytes / peer.per_s) / 2;
    m->what = "between the memories of two GPUs, measured by sums of two sizes; a meeting is half "
              "of the smaller sum";
}

static vt_status run(lab *l, vt_err *err)
{
    static const char what[] = "time of copying 8 MiB into a registered buffer";
    lab_link m = lab_link_here(l);
    int32_t page = l->ordinal >= 0 ? 64 : 16, other = l->ordinal >= 0 ? 16 : 64;
    lab_kernel k, small;
    char shape[160];
    copy_shape(l, page, shape, sizeof shape);
    TRY(lab_kernel_predict(l, what, &(lab_kernel_ask){.op = "page_copy", .shape = shape},
                           "8 MiB read and 8 MiB written at the roof of where they lie", err));
    TRY(copy(l, page, &k, err));
    lab_outcome(l, what, k.median_s, k.disturbed);
    lab_kernel_card(l, "card", &k, "copies 8 MiB inside the memory of one rank",
                    "no copy at all: write where the all-reduce reads");
    take_peers(l, &m);
    if (m.per_s > 0 && isfinite(m.meeting_s)) {
        sizes_table(l, &m);
        tell_algorithms(l, &m);
        mini_pass p;
        TRY(mini_pass_open(l, &p, err));
        layer_table(l, &m, &p);
        pass_table(l, &m, &p);
        mini_pass_close(&p);
    } else {
        static const char *const key[] = {"sizes",     "one_shot",    "two_shot",  "nccl",
                                          "threshold", "layer_share", "pass_share"};
        for (size_t i = 0; i < sizeof key / sizeof *key; i++)
            lab_missing(l, key[i], "the roofs that it is computed from are not known here");
    }
    tell_copy(l, &m, &k);
    tell_hardware(l, &m);
    TRY(copy(l, other, &small, err));
    lab_turn_kernels(l, other < page ? "smaller pieces" : "larger pieces", "--page-size", k.shape,
                     k.bytes / small.bytes, &k, &small,
                     "the bytes are the same, and a piece of a page is long enough "
                     "either way to hide where it begins");
    mini_comm_measured(l, &m, k.least_s);
    return VT_OK;
}

const lab_def mini_profile_comm = {
    .track = LAB_MINI_SGLANG,
    .number = "05",
    .name = "profile_comm",
    .goal = "You know which algorithm an all-reduce should use for which size, what the copy into "
            "a registered buffer costs, and what share of a layer all this is.",
    .about =
        {"8 MiB are copied inside one memory, as into a registered buffer.",
         "The times of several ranks are computed from the measured rates of copies, links and "
         "meetings.",
         "Where two ranks can meet here, theirs are measured beside; else that is named as "
         "missing."},
    .alias = {"05_profile_comm.py", NULL},
    .knobs = {{"--page-size", LAB_LOAD},
              {"direct peer access", LAB_RUNS,
               .strength = "Ranks read each other's memory where a "
                           "call left its result"},
              {"adaptive NCCL threshold", LAB_RUNS,
               .strength = "The form of a sum is chosen by its bytes, in place of NCCL"}},
    .items = {{"sizes", "one-shot, two-shot and a ring over sizes", false},
              {"measured", "all-reduces between two ranks that are here", false},
              {"one_shot", "one-shot all-reduce", false},
              {"two_shot", "two-shot all-reduce", false},
              {"nccl", "NCCL's all-reduce", false},
              {"buffer_copy", "the copy in and out of a registered buffer", false},
              {"avoid_copy", "how to avoid it", false},
              {"threshold", "the adaptive threshold", false},
              {"layer_share", "share of communication in a layer", false},
              {"pass_share", "communication : compute of a forward pass", false},
              {"card", "the copy's card: execution, hardware, bottleneck, opportunity", true},
              {"link", "the rate of the link that one rank can measure", true},
              {"link_peer", "use of the link between two devices", true},
              {"skew", "waiting for a peer, apart from moving bytes", true},
              {"sync", "what a meeting of ranks costs", true}},
    .kernels = true,
    .run = run,
};
