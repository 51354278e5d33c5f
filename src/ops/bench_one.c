/* One CPU row on one shape (ops/bench_one.h).
 *
 *   args 0     x ── W, KV ── y          Calls rotate through copies of the args. A copy has
 *   args 1     x ── W', KV' ── y        weights and KV of its own and shares everything else. There
 *   args 2     x ── W'', KV'' ── y      are so many that they do not fit into the caches.
 */
#include "ops/bench_one.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/run_delay.h"
#include "device/roofs_sample.h"
#include "ops/case_text.h"
#include "ops/cases.h"
#include "ops/on_cpu.h"

enum { SEED = 42, MAX_COPIES = 64, MAX_CALLS = 4096 };

static const int64_t least_run_ns = 1500000;

typedef struct job {
    const vt_op *op;
    const vt_impl *impl;
    vt_arena arena;
    void *copy[MAX_COPIES];
    int32_t n_copies, n_calls, first; /* the call that the run begins with */
    vt_team *team;
    atomic_int *ticket; /* [MAX_CALLS] */
    on_cpu on;
    _Atomic int64_t delay_ns;
    _Atomic int64_t begin_ns; /* when the last worker arrived at the first barrier */
    int64_t end_ns;
} job;

/* ---- copies ---- */

static bool is_cold(const vt_operand *o)
{
    return o->kind == VT_OPERAND_WEIGHT || o->kind == VT_OPERAND_WEIGHTS ||
           o->kind == VT_OPERAND_KV;
}

static void *twin(vt_arena *arena, const void *from, size_t bytes)
{
    void *p = vt_arena_alloc(arena, (bytes + 63) / 64, 64);
    return p ? memcpy(p, from, bytes) : NULL;
}

static vt_tensor *twin_tensor(vt_arena *arena, const vt_tensor *t)
{
    vt_tensor *out = twin(arena, t, sizeof *t);
    if (out)
        out->data = twin(arena, t->data, (size_t)vt_tensor_bytes(t));
    return out && out->data ? out : NULL;
}

/* Copies what the row reads: the packed form, or else the parts. */
static bool twin_weight(vt_arena *arena, vt_weight *w)
{
    if (w->packed)
        return (w->packed = twin(arena, w->packed, w->packed_bytes)) != NULL;
    for (int32_t i = 0; i < w->n_parts; i++)
        if (!(w->part[i] = twin_tensor(arena, w->part[i])))
            return false;
    return true;
}

static int64_t weight_bytes(const vt_weight *w)
{
    int64_t n = w->packed ? (int64_t)w->packed_bytes : 0;
    for (int32_t i = 0; !w->packed && i < w->n_parts; i++)
        n += vt_tensor_bytes(w->part[i]);
    return n;
}

static int32_t count_of(const vt_operand *o, const char *args)
{
    return o->kind == VT_OPERAND_WEIGHTS ? *(const int32_t *)(args + o->count) : 1;
}

/* Bytes of the args' weights and KV. */
static int64_t cold_bytes(const vt_op *op, const char *args)
{
    int64_t sum = 0;
    for (int32_t i = 0; i < op->n_operands; i++) {
        const vt_operand *o = &op->operands[i];
        const void *p = *(void *const *)(args + o->offset);
        for (int32_t k = 0; p && is_cold(o) && k < count_of(o, args); k++)
            sum += o->kind == VT_OPERAND_KV ? vt_tensor_bytes(p)
                                            : weight_bytes((const vt_weight *)p + k);
    }
    return sum;
}

static void *twin_args(job *j, const char *args)
{
    char *out = twin(&j->arena, args, j->op->args_size);
    for (int32_t i = 0; out && i < j->op->n_operands; i++) {
        const vt_operand *o = &j->op->operands[i];
        void **p = (void **)(out + o->offset);
        if (!*p || !is_cold(o))
            continue;
        int32_t n = count_of(o, args);
        *p = o->kind == VT_OPERAND_KV ? (void *)twin_tensor(&j->arena, *p)
                                      : twin(&j->arena, *p, (size_t)n * sizeof(vt_weight));
        for (int32_t k = 0; *p && o->kind != VT_OPERAND_KV && k < n; k++)
            if (!twin_weight(&j->arena, (vt_weight *)*p + k))
                return NULL;
        if (!*p)
            return NULL;
    }
    return out;
}

static vt_status make_copies(job *j, const vt_case *c, vt_err *err)
{
    vt_tensor *output[VT_MAX_OUTPUTS];
    int32_t n_outputs;
    const int64_t cold = 2 * vt_cpu_get()->l3_bytes < (64 << 20)    ? 64 << 20
                         : 2 * vt_cpu_get()->l3_bytes > (256 << 20) ? 256 << 20
                                                                    : 2 * vt_cpu_get()->l3_bytes;
    j->copy[0] = j->op->make_args(c, SEED, &j->arena, output, &n_outputs);
    if (!j->copy[0] || !case_pack(j->op, j->impl, j->copy[0], &j->arena))
        return vt_fail(err, VT_ERR_MEMORY, "%s: out of memory for the shape %s", j->op->name,
                       c->name);
    int64_t bytes = cold_bytes(j->op, j->copy[0]);
    for (j->n_copies = 1; j->n_copies < MAX_COPIES && bytes > 0 && bytes * j->n_copies < cold;
         j->n_copies++)
        if (!(j->copy[j->n_copies] = twin_args(j, j->copy[0])))
            return vt_fail(err, VT_ERR_MEMORY, "%s: out of memory for copies of the shape %s",
                           j->op->name, c->name);
    return VT_OK;
}

/* ---- timing ---- */

/* Raises *begin to now. The clock is read before the barrier: behind it a worker may lose its CPU
 * while the others work, and a late reading would hide their work. */
static void arrive(_Atomic int64_t *begin)
{
    int64_t now = vt_now_ns(), seen = atomic_load(begin);
    while (now > seen && !atomic_compare_exchange_weak(begin, &seen, now))
        ;
}

static void job_main(void *p, int32_t worker)
{
    job *j = p;
    vt_lane lane = on_cpu_lane(&j->on, j->team, worker, NULL);
    int64_t before = vt_run_delay_ns();
    arrive(&j->begin_ns);
    vt_team_barrier(j->team, worker);
    for (int32_t i = 0; i < j->n_calls; i++) {
        lane.ticket = &j->ticket[i];
        j->impl->run(j->copy[(j->first + i) % j->n_copies], &lane);
        vt_team_barrier(j->team, worker);
    }
    if (worker == 0)
        j->end_ns = vt_now_ns();
    int64_t after = vt_run_delay_ns();
    if (before >= 0 && after > before)
        atomic_fetch_add(&j->delay_ns, after - before);
}

static double run(job *j, int32_t n_calls)
{
    j->n_calls = n_calls;
    atomic_store(&j->delay_ns, 0);
    atomic_store(&j->begin_ns, 0);
    for (int32_t i = 0; i < n_calls; i++)
        atomic_store_explicit(&j->ticket[i], 0, memory_order_relaxed);
    vt_team_run(j->team, job_main, j);
    j->first = (j->first + n_calls) % j->n_copies;
    return (double)(j->end_ns - atomic_load(&j->begin_ns)) * 1e-9;
}

static void measure(job *j, double budget_s, bench_one *out)
{
    enum { LEAST = 3 };
    roof_samples s = {0};
    int64_t until = vt_now_ns() + (int64_t)(budget_s * 1e9);
    int32_t n = 1;
    double seconds = run(j, n);
    while (seconds * 1e9 < (double)least_run_ns && n < MAX_CALLS) {
        n = 2 * n < MAX_CALLS ? 2 * n : MAX_CALLS;
        seconds = run(j, n);
    }
    for (int32_t i = 0; i < ROOF_MAX_SAMPLES; i++) {
        int32_t disturbed = s.n_disturbed;
        seconds = run(j, n);
        int64_t delay = atomic_load(&j->delay_ns);
        if (vt_team_size(j->team) == 1) { /* nobody waited for it meanwhile: what is left is work */
            seconds -= (double)delay * 1e-9;
            delay = 0;
        }
        roof_samples_add(&s, n, seconds, delay);
        if (i + 1 >= LEAST && (roof_samples_agree(&s) || vt_now_ns() >= until))
            break;
        if (s.n_disturbed > disturbed) /* the scheduler favours threads that have slept */
            nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
    out->seconds = s.best > 0 ? 1 / s.best : 0;
    out->steady = roof_samples_agree(&s);
}

vt_status vt_bench_one(const vt_op *op, const vt_impl *impl, const char *shape, vt_team *team,
                       double budget_s, bench_one *out, vt_err *err)
{
    job j = {.op = op, .impl = impl, .team = team};
    vt_case_text text;
    vt_status status;
    TRY(vt_case_from_text(op, shape, &text, err));
    vt_arena_init(&j.arena, 0);
    j.ticket = vt_calloc(MAX_CALLS, sizeof *j.ticket);
    if (!j.ticket)
        TRY_GOTO(status,
                 vt_fail(err, VT_ERR_MEMORY, "%s: out of memory for the benchmark", op->name), out);
    TRY_GOTO(status, make_copies(&j, &text.c, err), out);
    TRY_GOTO(status, on_cpu_make(&j.on, op, impl, j.copy[0], vt_team_size(team), err), out);
    *out = (bench_one){.cost = op->cost(j.copy[0], NULL)};
    measure(&j, budget_s, out);
out:
    on_cpu_release(&j.on);
    free(j.ticket);
    vt_arena_release(&j.arena);
    return status;
}
