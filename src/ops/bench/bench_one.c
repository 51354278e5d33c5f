/* One CPU row on one shape (ops/bench/bench_one.h).
 *
 *   args 0     x ── W, KV ── y          Calls rotate through copies of the args. A copy has
 *   args 1     x ── W', KV' ── y        weights and KV of its own and shares everything else. All
 *   args 2     x ── W'', KV'' ── y      copies together are as large as what a step reads.
 *
 * The memory is of the kind that an engine has, because a row's speed depends on that:
 *
 *   weights      one after the other in one block of huge pages (exec/weights_cpu.c)
 *   activations  huge pages (exec/program.c)
 *   KV           small pages of the system (kv/cache.c); pages of the cache in the order in which a
 *                new engine hands them out
 *
 * A core of an AMD EPYC reads 31 GB/s from huge pages and 15 GB/s from small ones.
 *
 *   run    pass ─┐ call 0 ┌─ pass ─┐ call 1 ┌─ pass ─┐ ...     only the calls are timed
 *
 * Between two calls the caches are brought into the state that the rest of a step leaves
 * (come_from_elsewhere). A norm over 512 tokens takes 23 us without that, 43 us with it and 60 us
 * in a step.
 *
 * Several teams, such as those of ranks, share the memory and the last cache. Each has copies of
 * its own, all begin each call at one moment, and the time is the mean of theirs. */
#include "ops/bench/bench_one.h"

#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/run_delay.h"
#include "base/stats.h"
#include "device/roofs/roofs_sample.h"
#include "ops/calls/on_cpu.h"
#include "ops/case_text.h"
#include "ops/cases.h"

enum {
    SEED = 42,
    MAX_COPIES = 4096,
    MAX_CALLS = 4096,
    LEAST_PASSING = 32 << 20,
    MOST_PASSING = 256 << 20
};

static const int64_t least_run_ns = 1500000, /* what lies between the calls included */
    least_measure_ns = 10000000;             /* of a shape: other programs come and go */

/* A block of memory in which the copies lie one after the other. */
typedef struct room {
    char *base, *next;
    size_t copy_bytes, bytes; /* of one copy, of all */
} room;

typedef struct job {
    const vt_op *op;
    const vt_impl *impl;
    vt_arena arena;
    room weights, kv;
    room passing; /* come_from_elsewhere; a copy is a worker's */
    void *copy[MAX_COPIES];
    int32_t n_copies, first; /* the copy that the run begins with */
    vt_team *team;
    struct group *group;
    atomic_int ticket[MAX_CALLS];
    on_cpu on;
    struct began {
        _Alignas(VT_CACHE_LINE) int64_t ns;
    } * began; /* [n_workers] when each began the call */
    double call_ns[MAX_CALLS];
    _Alignas(VT_CACHE_LINE) _Atomic int64_t delay_ns;
    vt_status status; /* of its making */
    vt_err err;
} job;

/* The jobs of all teams, which do the same calls at the same time. */
typedef struct group {
    job *job[VT_BENCH_TEAMS];
    int32_t n_jobs, n_workers, n_calls;
    vt_team *leaders; /* NULL: one job, which the caller leads */
    const vt_case *shape;
    const bench_step *step;
    _Alignas(VT_CACHE_LINE) atomic_int met; /* how often workers have met, of all together */
} group;

/* Calls fn(g, i) for each job, all at once. */
static void each_job(group *g, vt_team_fn fn)
{
    if (g->leaders)
        vt_team_run(g->leaders, fn, g);
    else
        fn(g, 0);
}

/* ---- copies ---- */

static bool is_cold(const vt_operand *o)
{
    return o->kind == VT_OPERAND_WEIGHT || o->kind == VT_OPERAND_WEIGHTS ||
           o->kind == VT_OPERAND_KV;
}

bool vt_bench_one_streams(const vt_op *op)
{
    for (int32_t i = 0; i < op->n_operands; i++)
        if (is_cold(&op->operands[i]))
            return true;
    return false;
}

static int32_t count_of(const vt_operand *o, const char *args)
{
    return o->kind == VT_OPERAND_WEIGHTS ? *(const int32_t *)(args + o->count) : 1;
}

static size_t place_bytes(int64_t bytes) { return vt_round_up((size_t)bytes, VT_CACHE_LINE); }

/* Adds the bytes to a copy's size. */
static void *piece_count(room *r, void *data, int64_t bytes)
{
    r->copy_bytes += place_bytes(bytes);
    return data;
}

/* Takes the next place of the room. The first copy gets its bytes now, the others from the first
 * one (fill_worker). */
static void *piece_place(room *r, void *data, int64_t bytes)
{
    char *p = r->next;
    if (p < r->base + r->copy_bytes)
        memcpy(p, data, (size_t)bytes);
    r->next += place_bytes(bytes);
    return p;
}

typedef void *(*piece_fn)(room *r, void *data, int64_t bytes);

/* Calls fn for what the row reads of a weight, the packed form or else the parts, and puts its
 * result there. */
static void each_piece_of_weight(room *r, vt_weight *w, piece_fn fn)
{
    if (w->packed)
        w->packed = fn(r, w->packed, (int64_t)w->packed_bytes);
    for (int32_t i = 0; !w->packed && i < w->n_parts; i++) {
        vt_tensor *t = (vt_tensor *)(uintptr_t)w->part[i];
        t->data = fn(r, t->data, vt_tensor_bytes(t));
    }
}

/* The same for all weights and KV of the args. */
static void each_piece(job *j, char *args, piece_fn fn)
{
    for (int32_t i = 0; i < j->op->n_operands; i++) {
        const vt_operand *o = &j->op->operands[i];
        void *p = *(void *const *)(args + o->offset);
        if (!p || !is_cold(o))
            continue;
        if (o->kind == VT_OPERAND_KV) {
            vt_tensor *t = p;
            t->data = fn(&j->kv, t->data, vt_tensor_bytes(t));
        }
        for (int32_t k = 0; o->kind != VT_OPERAND_KV && k < count_of(o, args); k++)
            each_piece_of_weight(&j->weights, (vt_weight *)p + k, fn);
    }
}

static void *twin(vt_arena *arena, const void *from, size_t bytes)
{
    void *p = vt_arena_alloc(arena, 1, bytes);
    return p ? memcpy(p, from, bytes) : NULL;
}

static bool twin_weights(vt_arena *arena, vt_weight *w, int32_t n)
{
    for (int32_t k = 0; k < n; k++)
        for (int32_t i = 0; !w[k].packed && i < w[k].n_parts; i++)
            if (!(w[k].part[i] = twin(arena, w[k].part[i], sizeof *w[k].part[i])))
                return false;
    return true;
}

/* Args with weights and KV tensors of their own, whose bytes are still shared. */
static char *twin_args(job *j, const char *args)
{
    char *out = twin(&j->arena, args, j->op->args_size);
    for (int32_t i = 0; out && i < j->op->n_operands; i++) {
        const vt_operand *o = &j->op->operands[i];
        void **p = (void **)(out + o->offset);
        if (!*p || !is_cold(o))
            continue;
        int32_t n = count_of(o, args);
        *p = twin(&j->arena, *p,
                  o->kind == VT_OPERAND_KV ? sizeof(vt_tensor) : (size_t)n * sizeof(vt_weight));
        if (!*p || (o->kind != VT_OPERAND_KV && !twin_weights(&j->arena, *p, n)))
            return NULL;
    }
    return out;
}

static bool room_open(room *r, int32_t n_copies, bool huge)
{
    r->bytes = r->copy_bytes * (size_t)n_copies;
    r->base = r->next = r->bytes ? vt_pages_alloc(r->bytes) : NULL;
    if (r->base && !huge)
        madvise(r->base, r->bytes, MADV_NOHUGEPAGE);
    return r->base || !r->bytes;
}

/* Writes this worker's share of each copy, as workers share the packing of a matrix: where memory
 * is near one socket it is near the one that first writes it. */
static void fill_worker(void *p, int32_t worker)
{
    job *j = p;
    const vt_lane lane = {.worker = worker, .n_workers = vt_team_size(j->team)};
    room *const rooms[] = {&j->weights, &j->kv};
    for (int32_t k = 0; k < 2; k++) {
        room *r = rooms[k];
        int64_t begin, end;
        vt_lane_share(&lane, (int64_t)(r->copy_bytes / VT_CACHE_LINE), 1, &begin, &end);
        for (int32_t i = 1; i < j->n_copies && begin < end; i++)
            memcpy(r->base + (size_t)i * r->copy_bytes + begin * VT_CACHE_LINE,
                   r->base + begin * VT_CACHE_LINE, (size_t)(end - begin) * VT_CACHE_LINE);
    }
}

/* Makes the args, and as many copies as set_bytes hold. */
static vt_status make_copies(job *j, const vt_case *c, int64_t set_bytes, vt_err *err)
{
    vt_tensor *output[VT_MAX_OUTPUTS];
    int32_t n_outputs;
    char *args = j->op->make_args(c, SEED, &j->arena, output, &n_outputs);
    const vt_batch *batch = args ? vt_op_batch(j->op, args) : NULL;
    if (!args || !case_pack(j->op, j->impl, args, &j->arena) ||
        (batch && !case_batch_in_order(&j->arena, (vt_batch *)(uintptr_t)batch)))
        return vt_fail(err, VT_ERR_MEMORY, "%s: out of memory for the shape %s", j->op->name,
                       c->name);
    each_piece(j, args, piece_count);
    int64_t bytes = (int64_t)(j->weights.copy_bytes + j->kv.copy_bytes),
            n = bytes ? vt_ceil_div(set_bytes, bytes) : 1;
    j->n_copies = n < 1 ? 1 : n > MAX_COPIES ? MAX_COPIES : (int32_t)n;
    bool ok = room_open(&j->weights, j->n_copies, true) && room_open(&j->kv, j->n_copies, false);
    for (int32_t i = 0; ok && i < j->n_copies; i++) {
        j->copy[i] = twin_args(j, args);
        ok = j->copy[i] != NULL;
        if (ok)
            each_piece(j, j->copy[i], piece_place);
    }
    if (!ok)
        return vt_fail(err, VT_ERR_MEMORY, "%s: out of memory for %d copies of the shape %s",
                       j->op->name, j->n_copies, c->name);
    vt_team_run(j->team, fill_worker, j);
    return VT_OK;
}

/* ---- timing ---- */

/* A read of one word for each line fetches the memory, wherever it is. */
static void read_lines(const char *p, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += VT_CACHE_LINE)
        (void)*(const volatile uint32_t *)(p + i);
}

/* Writes one byte of each line with what is there. */
static void rewrite_lines(char *p, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += VT_CACHE_LINE) {
        volatile char *byte = p + i;
        *byte = *byte;
    }
}

/* This worker's part of an activation: rows, or a stretch of the only row. */
static void rewrite_share(const vt_lane *lane, const vt_tensor *t)
{
    int64_t rows = t->rank == 2 ? t->dim[0] : 1, row_bytes = vt_tensor_bytes(t) / (rows ? rows : 1),
            stride = rows > 1 ? vt_dtype_row_bytes(t->dtype, t->row_stride) : 0, begin, end;
    if (rows == 1) {
        vt_lane_share(lane, row_bytes, VT_CACHE_LINE, &begin, &end);
        rewrite_lines((char *)t->data + begin, (size_t)(end - begin));
        return;
    }
    vt_lane_share(lane, rows, 1, &begin, &end);
    for (int64_t r = begin; r < end; r++)
        rewrite_lines((char *)t->data + r * stride, (size_t)row_bytes);
}

/* Returns true if the call before this one in a step has just written the operand. */
static bool is_fresh(const vt_operand *o)
{
    return o->read && (o->kind == VT_OPERAND_ACTIVATION ||
                       (o->kind == VT_OPERAND_F32 && o->written)); /* logits */
}

/* Leaves the caches as a step does between two calls of a row. Other calls' bytes pass the caches
 * and push out this row's code, constants and output. Then all workers together write its input. */
static void come_from_elsewhere(const job *j, const vt_lane *lane)
{
    size_t share = j->passing.copy_bytes;
    read_lines(j->passing.base + share * (size_t)lane->worker, share);
    const char *args = j->copy[0];
    for (int32_t i = 0; i < j->op->n_operands; i++) {
        const vt_operand *o = &j->op->operands[i];
        const vt_tensor *t = is_fresh(o) ? *(const vt_tensor *const *)(args + o->offset) : NULL;
        if (t && t->data)
            rewrite_share(lane, t);
    }
}

/* Waits, without sleeping, until all workers have come here `n` times. The team's barrier sleeps
 * when a worker is 20 us late, and waking up takes longer than many a call. */
static void meet(group *g, int32_t n)
{
    enum { SPINS = 2000 };
    int32_t all = n * g->n_workers;
    atomic_fetch_add(&g->met, 1);
    for (int32_t i = 0; atomic_load(&g->met) < all; i++)
        if (i >= SPINS) /* the other worker may need this CPU */
            sched_yield();
}

/* A call is timed as a step times it: from the first worker that leaves the barrier before it until
 * worker 0 has left the barrier behind it. Worker 0 may lose its CPU between the two and look late;
 * the others' clocks show that. */
static void job_main(void *p, int32_t worker)
{
    job *j = p;
    vt_lane lane = on_cpu_lane(&j->on, j->team, worker, NULL);
    int64_t before = vt_run_delay_ns();
    for (int32_t i = 0; i < j->group->n_calls; i++) {
        lane.ticket = &j->ticket[i];
        come_from_elsewhere(j, &lane);
        meet(j->group, i + 1);
        j->began[worker].ns = vt_now_ns();
        j->impl->run(j->copy[(j->first + i) % j->n_copies], &lane);
        vt_team_barrier(j->team, worker);
        if (worker > 0)
            continue;
        int64_t end = vt_now_ns(), begin = end;
        for (int32_t w = 0; w < lane.n_workers; w++)
            begin = j->began[w].ns < begin ? j->began[w].ns : begin;
        j->call_ns[i] = (double)(end - begin);
    }
    int64_t after = vt_run_delay_ns();
    if (before >= 0 && after > before)
        atomic_fetch_add(&j->delay_ns, after - before);
}

static void run_job(void *p, int32_t i)
{
    group *g = p;
    job *j = g->job[i];
    atomic_store(&j->delay_ns, 0);
    for (int32_t k = 0; k < g->n_calls; k++)
        atomic_store_explicit(&j->ticket[k], 0, memory_order_relaxed);
    vt_team_run(j->team, job_main, j);
    j->first = (j->first + g->n_calls) % j->n_copies;
}

static void run(group *g, int32_t n_calls)
{
    g->n_calls = n_calls;
    atomic_store(&g->met, 0);
    each_job(g, run_job);
}

double bench_calls_mean(double *ns, int32_t n, int32_t *n_counted)
{
    double most = 1.5 * vt_median(ns, (size_t)n), sum = 0;
    *n_counted = 0;
    for (int32_t i = 0; i < n; i++)
        if (ns[i] <= most) {
            sum += ns[i];
            ++*n_counted;
        }
    return sum / *n_counted;
}

/* Adds a run of `wall_s`. The calls' part of the workers' delay counts: calls take the smaller part
 * of many runs. */
static void add_run(roof_samples *s, group *g, double wall_s)
{
    double seconds = 0, delay = 0;
    for (int32_t i = 0; i < g->n_jobs; i++) {
        job *j = g->job[i];
        int32_t counted;
        seconds += 1e-9 * g->n_calls * bench_calls_mean(j->call_ns, g->n_calls, &counted);
        delay += (double)atomic_load(&j->delay_ns);
    }
    seconds /= g->n_jobs;
    roof_samples_add(s, g->n_calls, seconds, (int64_t)(delay * fmin(seconds / wall_s, 1)));
}

/* Doubles the number of calls until a run is long enough and has `least` calls. A longer run is
 * rarely undisturbed on a busy machine. */
static int32_t calls_of_a_run(group *g, int32_t least)
{
    for (int32_t n = 1;; n = 2 * n) {
        int64_t begin = vt_now_ns();
        run(g, n);
        if ((n >= least && vt_now_ns() - begin >= least_run_ns) || 2 * n > MAX_CALLS)
            return n;
    }
}

static void measure(group *g, double budget_s, bench_one *out)
{
    enum { LEAST = 3 };
    roof_samples s = {0};
    int64_t begin = vt_now_ns(), until = begin + (int64_t)(budget_s * 1e9);
    int32_t n = calls_of_a_run(g, g->step->least_calls);
    for (int32_t i = 0; i < ROOF_MAX_SAMPLES; i++) {
        int32_t disturbed = s.n_disturbed;
        int64_t start = vt_now_ns();
        run(g, n);
        int64_t now = vt_now_ns();
        add_run(&s, g, (double)(now - start) * 1e-9);
        if (i + 1 >= LEAST && now >= begin + least_measure_ns &&
            (roof_samples_agree(&s) || now >= until))
            break;
        if (s.n_disturbed > disturbed) /* the scheduler favours threads that have slept */
            nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
    out->seconds = s.best > 0 ? 1 / s.best : 0;
    out->steady = roof_samples_agree(&s);
}

/* Memory for come_from_elsewhere, each worker's share of what passes. Nothing is left in a cache
 * after twice its size. */
static vt_status make_passing(job *j, int64_t bytes, vt_err *err)
{
    int64_t n = vt_team_size(j->team), most = 2 * vt_cpu_get()->l3_bytes;
    most = most > MOST_PASSING ? MOST_PASSING : most < LEAST_PASSING ? LEAST_PASSING : most;
    bytes = bytes < 0 ? 0 : bytes < most ? bytes : most;
    j->passing.copy_bytes = (size_t)(bytes / n) / VT_CACHE_LINE * VT_CACHE_LINE;
    j->began = vt_aligned_alloc(VT_CACHE_LINE, (size_t)n * sizeof *j->began);
    if (!j->began || !room_open(&j->passing, (int32_t)n, true))
        return vt_fail(err, VT_ERR_MEMORY, "%s: out of memory for the benchmark", j->op->name);
    if (j->passing.base)
        memset(j->passing.base, 1, j->passing.bytes);
    return VT_OK;
}

static vt_status make_job(job *j, const group *g, vt_err *err)
{
    TRY(make_copies(j, g->shape, g->step->set_bytes, err));
    TRY(on_cpu_make(&j->on, j->op, j->impl, j->copy[0], vt_team_size(j->team), err));
    return make_passing(j, g->step->passing_bytes, err);
}

static void make_one(void *p, int32_t i)
{
    group *g = p;
    g->job[i]->status = make_job(g->job[i], g, &g->job[i]->err);
}

static void free_job(job *j)
{
    if (!j)
        return;
    on_cpu_release(&j->on);
    vt_pages_free(j->weights.base, j->weights.bytes);
    vt_pages_free(j->kv.base, j->kv.bytes);
    vt_pages_free(j->passing.base, j->passing.bytes);
    free(j->began);
    vt_arena_release(&j->arena);
    free(j);
}

static vt_status make_jobs(group *g, const vt_op *op, const vt_impl *impl,
                           const vt_bench_teams *teams, vt_err *err)
{
    for (int32_t i = 0; i < teams->n; i++) {
        job *j = vt_aligned_alloc(VT_CACHE_LINE, sizeof *j);
        if (!j)
            return vt_fail(err, VT_ERR_MEMORY, "%s: out of memory for the benchmark", op->name);
        memset(j, 0, sizeof *j);
        j->op = op, j->impl = impl, j->team = teams->team[i], j->group = g;
        vt_arena_init_on_pages(&j->arena, 0);
        g->job[g->n_jobs++] = j;
        g->n_workers += vt_team_size(j->team);
    }
    each_job(g, make_one); /* memory lies near those that write it first */
    for (int32_t i = 0; i < g->n_jobs; i++)
        if (g->job[i]->status != VT_OK)
            return vt_fail(err, g->job[i]->status, "%s", g->job[i]->err.message);
    return VT_OK;
}

vt_status vt_bench_together(const vt_op *op, const vt_impl *impl, const char *shape,
                            const vt_bench_teams *teams, const bench_step *step, double budget_s,
                            bench_one *out, vt_err *err)
{
    vt_case text;
    TRY(vt_case_from_text(op, shape, &text, err));
    group g = {.leaders = teams->leaders, .shape = &text, .step = step};
    vt_status status = make_jobs(&g, op, impl, teams, err);
    if (status == VT_OK) {
        *out = (bench_one){.cost = op->cost(g.job[0]->copy[0], NULL)};
        measure(&g, budget_s, out);
    }
    for (int32_t i = 0; i < g.n_jobs; i++)
        free_job(g.job[i]);
    return status;
}

vt_status vt_bench_one(const vt_op *op, const vt_impl *impl, const char *shape, vt_team *team,
                       const bench_step *step, double budget_s, bench_one *out, vt_err *err)
{
    const vt_bench_teams alone = {.n = 1, .team = {team}};
    return vt_bench_together(op, impl, shape, &alone, step, budget_s, out, err);
}

vt_status vt_bench_teams_new(int32_t n, int32_t n_threads, vt_bench_teams *out, vt_err *err)
{
    *out = (vt_bench_teams){0};
    for (; out->n < n; out->n++) {
        vt_team_seat seat = {.first = out->n * n_threads, .step = 1, .of = n * n_threads};
        TRY(vt_team_new_at(n_threads, &seat, &out->team[out->n], err));
    }
    vt_team_seat seat = {.step = n_threads, .of = n * n_threads};
    return n > 1 ? vt_team_new_at(n, &seat, &out->leaders, err) : VT_OK;
}

void vt_bench_teams_free(vt_bench_teams *teams)
{
    for (int32_t i = 0; i < teams->n; i++)
        vt_team_free(teams->team[i]);
    vt_team_free(teams->leaders);
    *teams = (vt_bench_teams){0};
}
