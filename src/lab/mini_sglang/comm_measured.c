/* All-reduces between two ranks that are really here, for lab 05 of the track mini-sglang: threads
 * of the CPU, or the first two GPUs, beside what the model of comm.c says of them. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lab/kit/comm_ranks.h"
#include "lab/mini_sglang/mini_sglang.h"

enum { RANKS = 2 };

#define SMALL_BYTES 16384.0
#define MAIN_BYTES 8388608.0

/* A row of all_reduce or NCCL's, on buffers of this kind. */
typedef struct form {
    const char *row; /* NULL: what a program takes */
    comm_how how;
    lab_sum_form model;
} form;

static const form forms[] = {{NULL, COMM_REGISTERED, LAB_ONE_SHOT},
                             {NULL, COMM_COPIED, LAB_ONE_SHOT},
                             {"one-shot", COMM_REGISTERED, LAB_ONE_SHOT},
                             {"two-shot", COMM_REGISTERED, LAB_TWO_SHOT},
                             {"nccl", COMM_PLAIN, LAB_RING},
                             {"nccl", COMM_REGISTERED, LAB_RING},
                             {"nccl", COMM_COPIED, LAB_RING}};

enum { FORMS = sizeof forms / sizeof *forms };

static double seconds(int64_t ns) { return ns >= 0 ? (double)ns * 1e-9 : NAN; }

/* Fills in the table; small and large: the engine's row on registered buffers of SMALL_BYTES and
 * MAIN_BYTES. */
static void table(lab *l, const lab_comm *c, const lab_link *m, comm_result *small,
                  comm_result *large)
{
    static const double sizes[] = {SMALL_BYTES, 1 << 20, MAIN_BYTES};
    char title[280];
    snprintf(
        title, sizeof title,
        "two ranks, %s, measured; waiting: for the peer, of the measured time; modelled: as in "
        "the table above; in halves: reduce_scatter, then all_gather, which is two-shot in two "
        "calls",
        c->gpus ? "a GPU each" : "a thread each");
    lab_table(l, "measured", title,
              "bytes|runs as|buffers|>measured|>waiting|>modelled|>register once");
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        comm_result r;
        for (int f = 0; f < FORMS; f++) {
            if (!lab_comm_sum(c, forms[f].row, sizes[s], forms[f].how, &r))
                continue;
            if (f == 0)
                *(sizes[s] == SMALL_BYTES ? small : large) = r;
            lab_cells(l, "%f B|%s|%s|%f s|%f s|%f s|%f s", sizes[s], r.row,
                      comm_how_name[forms[f].how], seconds(r.median_ns), seconds(r.wait_ns),
                      lab_all_reduce_s(m, forms[f].model, RANKS, sizes[s]),
                      r.register_ns > 0 ? seconds(r.register_ns) : NAN);
        }
        if (lab_comm_halves(c, sizes[s], &r))
            lab_cells(l, "%f B|%s|%s|%f s|%f s|%f s|%f s", sizes[s], r.row,
                      comm_how_name[COMM_REGISTERED], seconds(r.median_ns), seconds(r.wait_ns),
                      lab_all_reduce_s(m, LAB_TWO_SHOT, RANKS, sizes[s]), NAN);
    }
}

/* Waiting and moving apart, and the rate at which a peer's bytes come. */
static void tell_apart(lab *l, const comm_result *small, const comm_result *large)
{
    double took = seconds(large->median_ns), waited = seconds(large->wait_ns);
    if (small->wait_ns >= 0)
        lab_item(
            l, "skew",
            "a sum of %f B takes %f s, in which rank 0 waits %f s for its peer; one of %f B "
            "takes %f s, of them %f s waiting (measured between two threads, the waits in runs "
            "of their own)",
            SMALL_BYTES, seconds(small->median_ns), seconds(small->wait_ns), MAIN_BYTES, took,
            waited);
    else
        lab_item(l, "skew",
                 "a sum of %f B takes %f s: at the rate of the large one its bytes would take "
                 "%f s, so the rest, %f share, is launching and meeting. One of %f B takes %f s. "
                 "Both ranks begin together here, so neither waits for a late peer; how late peers "
                 "are in a step is not timed inside the kernels (derived)",
                 SMALL_BYTES, seconds(small->median_ns), SMALL_BYTES / MAIN_BYTES * took,
                 1 - SMALL_BYTES / MAIN_BYTES * took / seconds(small->median_ns), MAIN_BYTES, took);
    lab_item(l, "link_peer",
             "%f B of the peer are read and added in %f s: %f B/s, waiting included (measured)",
             MAIN_BYTES, took, MAIN_BYTES / took);
}

/* The knobs of several ranks: measured where a pair of rows is, else what the bytes promise. */
static void turn(lab *l, const lab_comm *c, const lab_link *m, double copy_least_s)
{
    static const char direct[] = "direct peer access", adaptive[] = "adaptive NCCL threshold";
    static const char how[] = "vitrine bench comm --device cuda --tp 2";
    double reduce = lab_all_reduce_s(m, LAB_ONE_SHOT, RANKS, MAIN_BYTES),
           ring = lab_all_reduce_s(m, LAB_RING, 4, SMALL_BYTES),
           best = fmin(ring, fmin(lab_all_reduce_s(m, LAB_ONE_SHOT, 4, SMALL_BYTES),
                                  lab_all_reduce_s(m, LAB_TWO_SHOT, 4, SMALL_BYTES)));
    char why[640];
    comm_result before, after;
    if (lab_comm_sum(c, NULL, MAIN_BYTES, COMM_COPIED, &before) &&
        lab_comm_sum(c, NULL, MAIN_BYTES, COMM_REGISTERED, &after)) {
        lab_turn(l,
                 &(lab_knob){.name = direct,
                             .where = "--tp N",
                             .what = "all-reduce of 8 MiB, 2 ranks, without the copy into a buffer",
                             .gain = (copy_least_s + reduce) / reduce,
                             .before_s = seconds(before.median_ns),
                             .before_noise = before.noise,
                             .after_s = seconds(after.median_ns),
                             .after_noise = after.noise,
                             .why = "peers read where the data was made, so one copy falls away"});
    } else {
        snprintf(why, sizeof why, "%s; expected is the time of the copy that falls away",
                 c->why[0] ? c->why : "no row ran");
        lab_turn_missing(l, direct, "--tp N",
                         "all-reduce of 8 MiB, 2 ranks, without the copy into a buffer",
                         (copy_least_s + reduce) / reduce, why);
    }
    if (lab_comm_sum(c, "nccl", SMALL_BYTES, COMM_REGISTERED, &before) &&
        lab_comm_sum(c, NULL, SMALL_BYTES, COMM_REGISTERED, &after)) {
        lab_turn(l,
                 &(lab_knob){.name = adaptive,
                             .where = "--tp N",
                             .what = "all-reduce of 16 KiB, 2 ranks: our choice in place of NCCL",
                             .gain = NAN,
                             .before_s = seconds(before.median_ns),
                             .before_noise = before.noise,
                             .after_s = seconds(after.median_ns),
                             .after_noise = after.noise,
                             .why = "few bytes cost meetings, of which our rows need fewer"});
        return;
    }
    snprintf(why, sizeof why,
             "NCCL joins GPUs, and needs two ('%s' measures it); expected is the ring's time over "
             "that of the form that the item 'threshold' would choose for this size",
             how);
    lab_turn_missing(l, adaptive, "--tp N",
                     "all-reduce of 16 KiB, 4 ranks: the fastest form in place of a ring",
                     ring / best, why);
}

void mini_comm_measured(lab *l, const lab_link *m, double copy_least_s)
{
    lab_comm c;
    comm_result small = {.wait_ns = -1}, large = {.wait_ns = -1};
    lab_comm_open(l, RANKS, &c);
    if (c.n > 0)
        table(l, &c, m, &small, &large);
    if (large.median_ns > 0) {
        tell_apart(l, &small, &large);
    } else {
        static const char *const key[] = {"measured", "link_peer", "skew"};
        for (size_t i = c.n > 0; i < sizeof key / sizeof *key; i++)
            lab_missing(l, key[i], "%s", c.why[0] ? c.why : "no row ran");
    }
    turn(l, &c, m, copy_least_s);
    lab_comm_close(&c);
}
