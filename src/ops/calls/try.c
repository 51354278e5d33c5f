/* Trying an op (ops/calls/try.h).
 *
 *   1. Walk through the card's cases, those of tests first: they are small. Cases beyond MOST_BYTES
 *      or MOST_FLOPS are left out.
 *   2. Ask for each which row an engine would choose, and keep the case whose row stands first in
 *      the card: rows for odd shapes, which stand last, are tried only where nothing else fits. The
 *      walk ends at the first row that this device could run.
 *   3. Run that case, run the reference, compare. */
#include "ops/calls/try.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "ops/bench/bench.h"
#include "ops/calls/on_cpu.h"
#include "ops/case_text.h"
#include "ops/cases.h"

enum { SEED = 42, MOST_LOOKED = 200, MOST_BYTES = 32 << 20, MOST_FLOPS = 500000000 };
#define ARENA ((size_t)256 << 20)

/* A case on the host. */
typedef struct call {
    vt_arena arena;
    void *args;
    vt_tensor *output[VT_MAX_OUTPUTS];
    int32_t n_outputs;
} call;

static bool call_make(call *k, const vt_op *op, const vt_case *c)
{
    *k = (call){0};
    vt_arena_init(&k->arena, ARENA);
    k->args = op->make_args(c, SEED, &k->arena, k->output, &k->n_outputs);
    if (!k->args)
        vt_arena_release(&k->arena);
    return k->args != NULL;
}

static void call_release(call *k) { vt_arena_release(&k->arena); }

static bool is_small(const vt_op *op, const call *k)
{
    vt_cost cost = op->cost(k->args, NULL);
    return vt_cost_bytes(&cost) <= MOST_BYTES && vt_cost_flops(&cost) <= MOST_FLOPS;
}

/* The rows that can run a case. */
typedef struct place {
    vt_target cpu; /* gpu NULL */
    on_cuda_gpu *gpu;
    const vt_impl *only; /* NULL: the row that an engine would choose */
} place;

/* The row for the case; NULL: none, or the case is too large. */
static const vt_impl *row_for(const place *p, const vt_op *op, const vt_case *c)
{
    call k;
    on_cuda on = {0};
    const vt_impl *impl = NULL;
    if (!call_make(&k, op, c))
        return NULL;
    if (is_small(op, &k) && !p->gpu)
        impl = vt_op_select(op, k.args, &p->cpu, NULL);
    else if (is_small(op, &k) && on_cuda_round(op, k.args, NULL) == VT_OK &&
             on_cuda_make(&on, p->gpu, op, k.args, p->only ? p->only->packing : NULL, NULL) ==
                 VT_OK) {
        impl = p->only ? p->only : on_cuda_choice(&on);
        impl = impl && on_cuda_fits(&on, impl) ? impl : NULL;
    }
    on_cuda_release(&on);
    call_release(&k);
    return impl;
}

static int32_t position(const vt_op *op, const vt_impl *impl)
{
    int32_t i = 0;
    while (op->impls[i] && op->impls[i] != impl)
        i++;
    return i;
}

/* The first row of the card that this device could ever run. */
static const vt_impl *best_row(const place *p, const vt_op *op)
{
    for (const vt_impl *const *i = op->impls; *i; i++)
        if (p->gpu ? (*i)->device == VT_DEVICE_CUDA && (*i)->level <= p->gpu->target.level
                   : (*i)->device == VT_DEVICE_CPU && vt_isa_has(p->cpu.isa, (*i)->isa))
            return *i;
    return NULL;
}

/* The case is *out; *impl is NULL if there is none. */
static void pick(const place *p, const vt_op *op, const vt_impl **impl, vt_case *out)
{
    const vt_impl *wanted = p->only ? p->only : best_row(p, op);
    int32_t looked = 0;
    vt_case c;
    *impl = NULL;
    for (int pass = 0; pass < 2; pass++)
        for (int32_t i = 0; looked < MOST_LOOKED && vt_op_case(op, i, &c); i++) {
            if (c.bench != (pass == 1))
                continue;
            const vt_impl *row = row_for(p, op, &c);
            looked++;
            if (row && (!*impl || position(op, row) < position(op, *impl))) {
                *out = c;
                *impl = row;
            }
            if (*impl && *impl == wanted)
                return;
        }
}

static void fail(vt_try *t, const vt_err *err)
{
    t->good = false;
    snprintf(t->why, sizeof t->why, "%s", err->message);
}

static void judge(vt_try *t)
{
    t->good = t->error <= t->allowed;
    if (!t->good && !t->why[0])
        snprintf(t->why, sizeof t->why,
                 "the result differs from the reference by %.3g, and %.3g is allowed", t->error,
                 t->allowed);
}

static bool begin(vt_try *t, const place *p, vt_case *c)
{
    pick(p, t->op, &t->impl, c);
    t->error = t->allowed = NAN;
    if (t->impl)
        snprintf(t->shape, sizeof t->shape, "%s", c->name);
    else
        snprintf(t->why, sizeof t->why, "no row takes a small case of the card");
    return t->impl != NULL;
}

/* ---- CPU ---- */

typedef struct cpu_job {
    const vt_impl *impl;
    const void *args;
    vt_team *team;
    on_cpu on;
    atomic_int ticket;
    _Atomic int status;
} cpu_job;

static void cpu_main(void *p, int32_t worker)
{
    cpu_job *j = p;
    vt_lane lane = on_cpu_lane(&j->on, j->team, worker, &j->ticket);
    vt_status status = j->impl->run(j->args, &lane);
    if (status != VT_OK)
        atomic_store(&j->status, status);
    vt_team_barrier(j->team, worker);
}

static vt_status run_cpu(vt_try *t, const vt_case *c, vt_team *team, vt_err *err)
{
    call got, want;
    cpu_job j = {.impl = t->impl, .team = team};
    vt_status status = VT_OK;
    if (!call_make(&want, t->op, c))
        return vt_fail(err, VT_ERR_MEMORY, "out of memory");
    if (!call_make(&got, t->op, c)) {
        call_release(&want);
        return vt_fail(err, VT_ERR_MEMORY, "out of memory");
    }
    j.args = got.args;
    if (!case_pack(t->op, t->impl, got.args, &got.arena))
        TRY_GOTO(status, vt_fail(err, VT_ERR_MEMORY, "out of memory"), out);
    TRY_GOTO(status, on_cpu_make(&j.on, t->op, t->impl, got.args, vt_team_size(team), err), out);
    vt_team_run(team, cpu_main, &j);
    status = (vt_status)atomic_load(&j.status);
    if (status != VT_OK)
        TRY_GOTO(status, vt_fail(err, status, "the row does not run: status %d", (int)status), out);
    t->op->reference(want.args);
    t->error = bench_error(got.output, want.output, want.n_outputs);
    t->allowed = vt_op_tolerance(t->op, want.args);
    judge(t);
out:
    on_cpu_release(&j.on);
    call_release(&got);
    call_release(&want);
    return status;
}

void vt_try_cpu(const vt_op *op, vt_isa level, vt_team *team, vt_try *out)
{
    vt_err err = {0};
    vt_limits limits = case_limits(vt_team_size(team));
    place p = {.cpu = vt_target_cpu(level, &limits)};
    *out = (vt_try){.op = op, .device = VT_DEVICE_CPU};
    vt_case c;
    if (begin(out, &p, &c) && run_cpu(out, &c, team, &err) != VT_OK)
        fail(out, &err);
}

/* ---- GPU ---- */

/* Adds up what the kernels of the run took to compile, each once. */
static void sum_kernels(const on_cuda *on, vt_try *t)
{
    const vt_jit *jit = on->gpu->cuda->jit;
    t->cached = on->n_kernels > 0;
    for (int32_t i = 0; i < on->n_kernels; i++) {
        bool seen = false;
        for (int32_t k = 0; k < i; k++)
            seen |= on->kernel[k] == on->kernel[i];
        if (seen)
            continue;
        const jit_cubin *c = vt_jit_get(jit, on->kernel[i]);
        if (t->n_kernels++ == 0)
            snprintf(t->kernel, sizeof t->kernel, "%s", vt_jit_name(jit, on->kernel[i]));
        t->cached &= c && c->cached;
        t->compile_ms += c ? c->compile_ms : 0;
    }
}

static vt_status run_cuda(vt_try *t, const vt_case *c, on_cuda_gpu *gpu, const vt_packing *packing,
                          vt_err *err)
{
    call k;
    on_cuda on = {0};
    on_cuda_error e;
    vt_status status;
    if (!call_make(&k, t->op, c))
        return vt_fail(err, VT_ERR_MEMORY, "out of memory");
    TRY_GOTO(status, on_cuda_round(t->op, k.args, err), out);
    TRY_GOTO(status, on_cuda_make(&on, gpu, t->op, k.args, packing, err), out);
    TRY_GOTO(status, on_cuda_take(&on, t->impl, err), out);
    TRY_GOTO(status, on_cuda_run(&on, err), out);
    sum_kernels(&on, t);
    t->op->reference(k.args);
    TRY_GOTO(status, on_cuda_compare(&on, k.output, k.n_outputs, &e, err), out);
    t->error = e.worst;
    t->allowed = e.allowed;
    t->good = e.good;
    snprintf(t->why, sizeof t->why, "%s", e.good ? "" : e.why);
out:
    on_cuda_release(&on);
    call_release(&k);
    return status;
}

void vt_try_cuda(const vt_op *op, const vt_impl *impl, on_cuda_gpu *gpu, vt_try *out)
{
    vt_err err = {0};
    place p = {.gpu = gpu, .only = impl};
    *out = (vt_try){.op = op, .device = VT_DEVICE_CUDA};
    vt_case c;
    if (begin(out, &p, &c) && run_cuda(out, &c, gpu, impl ? impl->packing : NULL, &err) != VT_OK)
        fail(out, &err);
}
