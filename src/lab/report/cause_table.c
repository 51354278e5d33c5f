/* The rows of causes.h: what one sees in a result, its likely cause, and what to do. INDEX prints
 * them, labs tell those that hold, and tests/unit/test_lab_causes.c has a planted measurement for
 * every row.
 *
 * Thresholds are shares: they say what is worth a look, on any machine. */
#include <math.h>
#include <string.h>

#include "lab/report/inside.h"

static const double near_roof = 0.70;     /* of the binding roof: little is left to gain */
static const double far_from_roof = 0.50; /* of it: something is wrong with the access */
static const double launch_times = 2;     /* a call is short up to this many empty calls */
static const double few_ctas = 0.80;      /* CTAs a SM */
static const double empty_tail = 0.20;    /* of the places of all waves */
static const double many_partials = 0.25; /* of the bytes that must move */
static const double low_occupancy = 0.25;
static const double large_wait = 0.30; /* of all waits of warps */
static const double busy_unit = 0.60, idle_unit = 0.30;
static const double random_slower = 1.10, first_slower = 2, reduce_slower = 1.5, spread = 0.10;

/* ---- a kernel ---- */

static bool is_launch(const lab_signs *s) { return s->time_s <= launch_times * s->launch_s; }

static bool is_spill(const lab_signs *s) { return s->spill_bytes > 0; }

/* A kernel that keeps the memory busy and not the schedulers. */
static bool is_memory_bound(const lab_signs *s)
{
    return s->memory_share > near_roof && s->issue_share < idle_unit;
}

static bool is_near_roof(const lab_signs *s) { return s->of_roof > near_roof; }

static bool is_few(const lab_signs *s) { return s->ctas_a_sm < few_ctas; }

static bool is_tail(const lab_signs *s) { return s->ctas_a_sm > 1 && s->tail > empty_tail; }

static bool is_split_fine(const lab_signs *s) { return s->partial_share > many_partials; }

/* The roof of a matrix unit binds it, and the unit mostly waits. */
static bool is_matrix_idle(const lab_signs *s)
{
    bool matrix = s->bound && (strcmp(s->bound, "bf16") == 0 || strcmp(s->bound, "int8") == 0 ||
                               strcmp(s->bound, "fp8") == 0);
    return matrix &&
           (s->matrix_share < idle_unit || (!isfinite(s->matrix_share) && s->of_roof < idle_unit));
}

static bool is_barrier(const lab_signs *s)
{
    return s->barrier_share > large_wait &&
           !(s->memory_waits > s->barrier_share); /* the larger one is told */
}

static bool is_memory_wait(const lab_signs *s) { return s->memory_waits > large_wait; }

static bool is_limited(const lab_signs *s, const char *by)
{
    return s->occupancy <= low_occupancy && s->limited_by && strcmp(s->limited_by, by) == 0;
}

static bool is_shared_limited(const lab_signs *s) { return is_limited(s, "shared memory"); }

static bool is_register_limited(const lab_signs *s) { return is_limited(s, "registers"); }

static bool is_compute(const lab_signs *s)
{
    return s->memory_share < far_from_roof && s->issue_share > busy_unit;
}

static bool is_uncoalesced(const lab_signs *s)
{
    bool memory = s->bound && strcmp(s->bound, "memory") == 0;
    return s->gpu && memory && s->of_roof < far_from_roof;
}

/* ---- two measurements ---- */

static bool is_scattered(const lab_signs *s)
{
    return s->scattered_s > random_slower * s->sequential_s;
}

static bool is_small_gain(const lab_signs *s) { return s->saved_time < 0.9 * s->saved_tokens; }

static bool is_skew(const lab_signs *s) { return s->reduce_s > reduce_slower * s->reduce_floor_s; }

static bool is_copied(const lab_signs *s) { return s->reduce_copies >= 2; }

static bool is_cold(const lab_signs *s) { return s->first_s > first_slower * s->later_s; }

static bool is_different(const lab_signs *s) { return s->n_different > 0; }

static bool is_noisy(const lab_signs *s) { return s->spread > spread; }

/* seen, cause, action, key, holds, names of findings or NULL */
#define OF_KERNEL(seen, cause, action, key, holds, ...)        \
    {                                                          \
        seen, cause, action, key, holds, true, { __VA_ARGS__ } \
    }
#define OF_RUN(seen, cause, action, key, holds, ...)            \
    {                                                           \
        seen, cause, action, key, holds, false, { __VA_ARGS__ } \
    }

const report_cause report_causes[] = {
    OF_KERNEL(
        "time close to the launch floor, whatever the shape",
        "the call is launch-bound: its bytes take less time than starting it",
        "put more work in a call, fuse it with a neighbour, use one graph and PDL; do not tune its "
        "loads",
        "launch", is_launch, "launch", "call.latency", "kernel.count"),
    OF_KERNEL("register spills", "more values live than registers: occupancy or speed is lost",
              "smaller tiles, fewer values held over the loop, another launch bound", "spill",
              is_spill, "kernel.spill"),
    OF_KERNEL("high bandwidth, low SM use", "memory-bound, as expected of copies, norms and decode",
              "nothing to do in the kernel; reduce bytes", "memory_bound", is_memory_bound,
              "roof.memory"),
    OF_KERNEL("more than 70 % of the measured roof", "near the optimum: the bytes are the time",
              "move fewer bytes (fuse, smaller type); else leave it alone", "near_roof",
              is_near_roof, NULL),
    OF_KERNEL("fewer CTAs than SMs",
              "the grid is too small: SMs stand idle from the beginning to the end",
              "give a row to more threads, or split the long dimension (split-K, KV chunks)",
              "few_ctas", is_few, "wave.few"),
    OF_KERNEL("a last wave that is nearly empty", "wave quantisation: one item more than SMs",
              "another tile size, or split the items", "tail", is_tail, "wave.tail"),
    OF_KERNEL(
        "partial results above a quarter of the bytes",
        "the split is too fine: every chunk writes a partial result, and a merge reads it again",
        "fewer, longer chunks: no more than fill the SMs once (flashinfer 03 measures splits)",
        "split_fine", is_split_fine, NULL),
    OF_KERNEL("matrix unit idle in prefill", "the tiles are too small or wait for their operands",
              "larger token chunks, deeper pipeline; look at the share of each phase in sglang 01",
              "matrix_idle", is_matrix_idle, NULL),
    OF_KERNEL("many barrier stalls", "warps wait for each other: producer and consumer out of step",
              "more stages in the pipeline, asynchronous copies, fewer barriers", "barrier",
              is_barrier, NULL),
    OF_KERNEL("many long_scoreboard stalls", "warps wait for loads from HBM or L2",
              "more loads in flight: unroll, prefetch with cp.async or TMA, more warps an SM",
              "long_scoreboard", is_memory_wait, NULL),
    OF_KERNEL("low occupancy limited by shared memory", "one large CTA fills an SM",
              "no fault where it keeps the memory or matrix unit busy; else smaller stages",
              "occupancy_shared", is_shared_limited, NULL),
    OF_KERNEL(
        "low occupancy limited by registers",
        "each thread holds so many values that few warps fit on an SM",
        "fewer values a thread, or a launch bound that asks for more CTAs an SM; watch for spills",
        "occupancy_registers", is_register_limited, NULL),
    OF_KERNEL(
        "low bandwidth, high SM use",
        "local loads and stores: registers are spilled; or the arithmetic itself is the limit",
        "check `spill_bytes` and the counters of local accesses before you call it spilling; then "
        "reduce registers or tile size",
        "compute", is_compute, NULL),
    OF_KERNEL(
        "less than 50 % of the roof, although the call is far longer than its launch",
        "accesses are not coalesced, or too few bytes are in flight",
        "look at the access pattern in `cut`; wider vectors or more CTAs; then look at occupancy",
        "uncoalesced", is_uncoalesced, "roof.gap"),
    OF_RUN("random slots slower than sequential ones",
           "scattered writes open more memory pages and lines",
           "sort the slots where that is cheaper than what it saves (mini-sglang 03 measures both)",
           "scattered", is_scattered, NULL),
    OF_RUN("gaps between kernels",
           "the host is late: scheduling, sampling or launching takes too long",
           "CUDA graphs, overlap of planning with the step, fewer launches", "gaps", NULL,
           "gpu.idle", "host.gaps", "host.exposed"),
    OF_RUN("the gap between tokens grows with the context", "decode attention reads all of K and V",
           "a smaller KV type, fewer KV heads, shared pages; compare the slope with its bytes",
           "itl_slope", NULL, "itl.slope"),
    OF_RUN("one token takes far longer than its neighbours",
           "a prefill chunk shared its step, pages were evicted, or the machine was busy",
           "read the cause in the story; a smaller token budget a step", "slow_token", NULL,
           "itl.spread", "prefill.steals"),
    OF_RUN("a prefix hit saves less time than tokens",
           "attention of new tokens still reads the cached keys and values; the launch stays",
           "compare with bytes and FLOPs saved in sglang 02", "small_gain", is_small_gain, NULL),
    OF_RUN(
        "prefix hits vanish under load", "pages were evicted before the prefix came again",
        "more KV memory, a smaller KV type, longer pages kept; compare the tree before and after",
        "evicted", NULL, "cache.evicted", "cache.miss"),
    OF_RUN("more time in all-reduce than its bytes explain", "ranks wait for a slower peer (skew)",
           "look at waiting and transfer apart; balance the ranks before you change the algorithm",
           "skew", is_skew, NULL),
    OF_RUN("a copy before and after each all-reduce", "the buffer is not registered with the peers",
           "write into the registered buffer directly, or read the peers' memory", "copied",
           is_copied, NULL),
    OF_RUN("the first request is slow, later ones are not",
           "kernels were compiled, or the cache was cold",
           "`vitrine env --jit`; warm the cache at installation (flashinfer 06)", "cold", is_cold,
           "cold.first"),
    OF_RUN("results differ from run to run", "the order of sums depends on the batch",
           "--deterministic, at the cost that the labs measure", "different", is_different, NULL),
    OF_RUN("times differ from run to run by more than 10 %", "other programs use the machine",
           "the labs do not grade such runs; run again when it is quiet", "noisy", is_noisy,
           "machine.busy", "machine.shared"),
    {0}};

/* ---- which rows hold ---- */

int32_t report_causes_of(const lab_signs *s, const report_cause **out, int32_t max)
{
    int32_t n = 0;
    bool kernel = false;
    for (const report_cause *c = report_causes; c->seen && n < max; c++) {
        if (!c->holds || (c->kernel && kernel) || !c->holds(s))
            continue;
        out[n++] = c;
        kernel |= c->kernel;
    }
    return n;
}

const report_cause *report_cause_of_finding(const char *rule)
{
    static const char own[] = "cause.";
    for (const report_cause *c = report_causes; c->seen; c++) {
        if (strncmp(rule, own, sizeof own - 1) == 0 && strcmp(rule + sizeof own - 1, c->key) == 0)
            return c;
        for (size_t i = 0; i < sizeof c->finding / sizeof *c->finding && c->finding[i]; i++)
            if (strcmp(rule, c->finding[i]) == 0)
                return c;
    }
    return NULL;
}
