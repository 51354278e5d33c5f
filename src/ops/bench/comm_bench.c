/* Timing communication ops on ranks of the CPU (ops/bench/comm_bench.h). */
#include "ops/bench/comm_bench.h"

#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/stats.h"
#include "ops/all_gather/all_gather.h"
#include "ops/all_reduce/all_reduce.h"
#include "ops/all_reduce_rmsnorm/all_reduce_rmsnorm.h"
#include "ops/cases.h"
#include "ops/comm.h"
#include "ops/reduce_scatter/reduce_scatter.h"
#include "ops/sharded_rmsnorm/sharded_rmsnorm.h"

const char *const comm_how_name[COMM_HOWS] = {"registered", "copied", "plain"};

enum { SLOTS = 2, MOST_REPETITIONS = 1000, FIRST_CALLS = 8, MOST_CALLS = 1 << 16 };
static const int64_t kRepetition = 3000000; /* ns, about */

/* One rank's part: what it made, the buffers that peers read, and its result. */
typedef struct side {
    vt_comm_rank comm;
    vt_tensor *made, *buffer[SLOTS], *y;
    vt_tensor *residual, *weight, *sum; /* of a norm; of a sharded one the residual is x */
    union {
        all_reduce_args reduce; /* a norm's args begin with it */
        all_reduce_rmsnorm_args norm;
        sharded_rmsnorm_args sharded;
        reduce_scatter_args scatter;
        all_gather_args gather;
    } args[SLOTS];
} side;

typedef struct bench {
    const vt_op *op;
    const vt_impl *impl;
    vt_target target;
    vt_comm *comm;
    comm_how how;
    side *side; /* [comm->n] */
    int32_t n_calls;
    unsigned order; /* of the first call of this run */
    int64_t ns;     /* of rank 0, for all calls of the run */
    bool waits;     /* a look at the clock before and behind each wait */
    int64_t wait_ns;
} bench;

static void run_rank(void *arg, int32_t rank)
{
    bench *b = arg;
    side *s = &b->side[rank];
    vt_size size = {.tokens = 1, .rows = 1};
    int64_t spent = 0, waited = 0;
    vt_lane lane = {.target = &b->target,
                    .size = &size,
                    .n_workers = 1,
                    .waited_ns = b->waits ? &waited : NULL};
    for (int32_t i = 0; i < b->n_calls; i++) {
        vt_tensor *to = s->buffer[i % SLOTS];
        int64_t begin = vt_now_ns();
        memcpy(to->data, s->made->data, (size_t)vt_tensor_bytes(to));
        if (b->how == COMM_REGISTERED)
            begin = vt_now_ns();
        if (b->op == &all_gather_op)
            s->args[i % SLOTS].gather.order = b->order + (unsigned)i;
        else if (b->op == &reduce_scatter_op)
            s->args[i % SLOTS].scatter.order = b->order + (unsigned)i;
        else if (b->op == &sharded_rmsnorm_op)
            s->args[i % SLOTS].sharded.order = b->order + (unsigned)i;
        else
            s->args[i % SLOTS].reduce.order = b->order + (unsigned)i;
        b->impl->run(&s->args[i % SLOTS], &lane);
        spent += vt_now_ns() - begin;
    }
    if (rank == 0) {
        b->ns = spent;
        b->wait_ns = waited;
    }
}

/* Keeps this thread, rank 0, on the first CPU of its set: the team's others have those from the
 * end. Unpinned on a busy machine it may land on a CPU of theirs, and each meeting is a
 * change of threads then. False: nothing was changed; else *before is what to go back to. */
static bool pin(int32_t ranks, cpu_set_t *before)
{
    cpu_set_t first;
    int cpu = 0;
    if (sched_getaffinity(0, sizeof *before, before) != 0 || CPU_COUNT(before) < ranks)
        return false;
    while (!CPU_ISSET(cpu, before))
        cpu++;
    CPU_ZERO(&first);
    CPU_SET(cpu, &first);
    return sched_setaffinity(0, sizeof first, &first) == 0;
}

static void run(bench *b, vt_team *team, int32_t n_calls)
{
    b->n_calls = n_calls;
    vt_team_run(team, run_rank, b);
    b->order += (unsigned)n_calls;
}

int64_t comm_columns(const vt_op *op, int64_t n)
{
    enum { NORM_COLUMNS = 4096 };
    bool norm = op == &all_reduce_rmsnorm_op || op == &sharded_rmsnorm_op;
    return norm && n > NORM_COLUMNS ? NORM_COLUMNS : n;
}

/* Makes what a norm has beside its sum. */
static bool make_norm(side *s, vt_arena *arena)
{
    uint64_t seed = 7; /* the residual is the same on all ranks */
    int64_t rows = s->y->dim[0], n = s->y->dim[1];
    s->sum = case_tensor_2d(arena, VT_F32, rows, n);
    s->residual = case_fill(arena, case_tensor_2d(arena, VT_F32, rows, n), 0, 1, &seed);
    s->weight = case_fill(arena, case_tensor_1d(arena, VT_F32, n), 1, 0.3f, &seed);
    for (int32_t k = 0; k < SLOTS && s->sum; k++) {
        all_reduce_args sum = s->args[k].reduce;
        sum.residual = s->residual;
        sum.y = s->sum;
        s->args[k].norm = (all_reduce_rmsnorm_args){
            .sum = sum, .weight = s->weight, .y = s->y, .eps = 1e-6f};
    }
    return s->sum && s->residual && s->weight;
}

/* Makes what a norm over ranks has beside its sums: the ranks have the same rows, so that their
 * results can be compared. */
static bool make_sharded(bench *b, side *s, vt_arena *arena)
{
    uint64_t seed = 7;
    int64_t rows = s->y->dim[0], n = s->y->dim[1];
    s->residual = case_fill(arena, case_tensor_2d(arena, VT_F32, rows, n), 0, 1, &seed);
    s->weight = case_fill(arena, case_tensor_1d(arena, VT_F32, n), 1, 0.3f, &seed);
    for (int32_t k = 0; k < SLOTS; k++)
        s->args[k].sharded = (sharded_rmsnorm_args){
            .comm = &s->comm,
            .slot = (vt_comm_slot)k,
            .sums = s->buffer[k],
            .part = {{.x = s->residual, .weight = s->weight, .y = s->y, .whole = n * b->comm->n}},
            .eps = 1e-6f};
    return s->residual && s->weight;
}

static bool make_side(bench *b, int32_t rank, int64_t n, vt_arena *arena, uint64_t *seed)
{
    side *s = &b->side[rank];
    bool gather = b->op == &all_gather_op, sharded = b->op == &sharded_rmsnorm_op,
         scatter = b->op == &reduce_scatter_op;
    int32_t ranks = b->comm->n;
    int64_t cols = comm_columns(b->op, n), rows = n / cols;
    int64_t mine = gather    ? n * (rank + 1) / ranks - n * rank / ranks
                   : sharded ? SHARDED_PARTS
                             : cols;
    float mean = sharded ? (float)cols : 0, scale = sharded ? 0.1f * (float)cols : 1;
    s->comm = (vt_comm_rank){.group = b->comm, .rank = rank};
    s->made = case_fill(arena, case_tensor_2d(arena, VT_F32, rows, mine), mean, scale, seed);
    int64_t got = scatter ? reduce_scatter_begin(cols, ranks, rank + 1) -
                                reduce_scatter_begin(cols, ranks, rank)
                          : cols;
    s->y = case_tensor_2d(arena, VT_F32, rows, got);
    for (int32_t k = 0; k < SLOTS; k++) {
        s->buffer[k] = case_tensor_2d(arena, VT_F32, rows, mine);
        if (!s->made || !s->y || !s->buffer[k])
            return false;
        memcpy(s->buffer[k]->data, s->made->data, (size_t)vt_tensor_bytes(s->made));
        b->comm->buffer[k][rank] = s->buffer[k];
        if (gather)
            s->args[k].gather = (all_gather_args){
                .comm = &s->comm, .slot = (vt_comm_slot)k, .x = s->buffer[k], .y = s->y};
        else if (scatter)
            s->args[k].scatter = (reduce_scatter_args){
                .comm = &s->comm, .slot = (vt_comm_slot)k, .x = s->buffer[k], .y = s->y};
        else
            s->args[k].reduce = (all_reduce_args){
                .comm = &s->comm, .slot = (vt_comm_slot)k, .x = s->buffer[k], .y = s->y};
    }
    if (sharded)
        return make_sharded(b, s, arena);
    return b->op != &all_reduce_rmsnorm_op || make_norm(s, arena);
}

/* Notes how far `got` is from `want`. */
static void note_error(comm_result *out, const vt_tensor *want, const vt_tensor *got)
{
    for (int64_t i = 0; i < vt_tensor_elems(got); i++) {
        double w = (double)((float *)want->data)[i], g = (double)((float *)got->data)[i];
        double error = fabs(g - w) / (1 + fabs(w));
        /* No fmax: GCC 12 for aarch64 dies of it here ("vect_transform_reduction"). Kept: a NaN. */
        if (!(error <= out->error))
            out->error = error;
    }
}

/* The same for parts of a sum, of which each rank has its own: they agree if they have the bits of
 * the fp32 sum in the order of the ranks, which are all_reduce's. */
static bool check_parts(bench *b, vt_arena *arena, comm_result *out)
{
    int32_t ranks = b->comm->n;
    out->agree = true;
    for (int32_t k = 0; k < ranks; k++) {
        side *s = &b->side[k];
        vt_tensor *got = s->y, *want = case_tensor_2d(arena, VT_F32, got->dim[0], got->dim[1]);
        int64_t n = s->buffer[0]->dim[1], first = reduce_scatter_begin(n, ranks, k);
        if (!want)
            return false;
        s->args[0].scatter.y = want;
        b->op->reference(&s->args[0]);
        note_error(out, want, got);
        for (int64_t i = 0; i < vt_tensor_elems(got); i++) {
            int64_t at = i / got->dim[1] * n + first + i % got->dim[1];
            float sum = ((float *)b->side[0].made->data)[at];
            for (int32_t r = 1; r < ranks; r++)
                sum += ((float *)b->side[r].made->data)[at];
            out->agree = out->agree && memcmp(&sum, (float *)got->data + i, sizeof sum) == 0;
        }
    }
    return true;
}

/* Compares what all ranks have now with the reference. */
static bool check(bench *b, vt_arena *arena, comm_result *out)
{
    if (b->op == &reduce_scatter_op)
        return check_parts(b, arena, out);
    vt_tensor *got = b->side[0].y;
    vt_tensor *want = case_tensor_2d(arena, VT_F32, got->dim[0], got->dim[1]);
    if (!want)
        return false;
    out->agree = true;
    for (int32_t r = 1; r < b->comm->n; r++)
        out->agree = out->agree &&
                     memcmp(got->data, b->side[r].y->data, (size_t)vt_tensor_bytes(got)) == 0;
    if (b->op == &all_gather_op)
        b->side[0].args[0].gather.y = want;
    else if (b->op == &all_reduce_rmsnorm_op)
        b->side[0].args[0].norm.y = want;
    else if (b->op == &sharded_rmsnorm_op)
        b->side[0].args[0].sharded.part[0].y = want;
    else
        b->side[0].args[0].reduce.y = want;
    b->op->reference(&b->side[0].args[0]);
    note_error(out, want, got);
    return true;
}

static void measure(bench *b, vt_team *team, int32_t repetitions, comm_result *out)
{
    enum { WAIT_RUNS = 5 };
    double ns[MOST_REPETITIONS], wait_ns[WAIT_RUNS];
    run(b, team, FIRST_CALLS);
    run(b, team, FIRST_CALLS);
    int64_t calls = kRepetition / (b->ns / FIRST_CALLS + 1);
    calls = calls < SLOTS ? SLOTS : calls > MOST_CALLS ? MOST_CALLS : calls / SLOTS * SLOTS;
    run(b, team, (int32_t)calls);
    for (int32_t i = 0; i < repetitions; i++) {
        run(b, team, (int32_t)calls);
        ns[i] = (double)b->ns / (double)calls;
    }
    b->waits = true;
    size_t n = (size_t)repetitions, n_waits = n < WAIT_RUNS ? n : WAIT_RUNS;
    for (size_t i = 0; i < n_waits; i++) {
        run(b, team, (int32_t)calls);
        wait_ns[i] = (double)b->wait_ns / (double)calls;
    }
    out->wait_ns = llround(vt_median(wait_ns, n_waits));
    out->noise = vt_noise(ns, n);
    out->median_ns = llround(vt_median(ns, n));
    out->best_ns = llround(ns[0]); /* they are sorted now */
}

vt_status comm_bench(const vt_op *op, int32_t ranks, int64_t n, comm_how how, int32_t repetitions,
                     comm_result *out, vt_err *err)
{
    vt_limits limits = case_limits(1);
    bench b = {.op = op, .how = how, .order = 1};
    b.target = vt_target_cpu(vt_cpu_get()->level, &limits);
    vt_team *team = NULL;
    vt_arena arena;
    uint64_t seed = 1;
    comm_result r = {0};
    vt_arena_init_on_pages(&arena, 0);
    vt_status status = vt_comm_new(ranks, &b.comm, err);
    if (status == VT_OK)
        status = vt_team_new(ranks, &team, err);
    b.side = vt_arena_alloc(&arena, (size_t)ranks, sizeof *b.side);
    bool ok = b.side != NULL;
    for (int32_t k = 0; k < ranks && status == VT_OK && ok; k++)
        ok = make_side(&b, k, n, &arena, &seed);
    if (status == VT_OK && ok) {
        vt_size size = {.tokens = (int32_t)b.side[0].y->dim[0], .rows = 1};
        b.impl = vt_op_select(op, &b.side[0].args[0], &b.target, &size);
        cpu_set_t before;
        bool pinned = pin(ranks, &before);
        measure(&b, team, repetitions < MOST_REPETITIONS ? repetitions : MOST_REPETITIONS, &r);
        if (pinned)
            sched_setaffinity(0, sizeof before, &before);
        ok = check(&b, &arena, &r);
    }
    if (status == VT_OK && !ok)
        status = vt_fail(err, VT_ERR_MEMORY, "out of memory for buffers of %lld values",
                         (long long)n);
    if (status == VT_OK) {
        vt_cost cost = op->cost(&b.side[0].args[1], NULL);
        int64_t mine = vt_tensor_bytes(b.side[0].made);
        r.row = b.impl->name;
        r.message_bytes = mine;
        r.moved_bytes = vt_cost_bytes(&cost) + (how == COMM_COPIED ? 2 * mine : 0);
        *out = r;
    }
    vt_team_free(team);
    vt_comm_free(b.comm);
    vt_arena_release(&arena);
    return status;
}
