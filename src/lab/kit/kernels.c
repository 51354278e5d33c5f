/* Running single kernels in a lab: one row of a card on one shape, checked and timed by the
 * benchmark of the cards (ops/bench/bench.h), costed by the story's model of costs. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/run_delay.h"
#include "device/cpu.h"
#include "device/cuda/occupancy.h"
#include "lab/kit/devices.h"
#include "lab/report/causes.h"
#include "ops/bench/bench.h"
#include "ops/case_text.h"
#include "story/cut.h"
#include "story/step.h"

enum { CHOSEN_MAX = 64, MOST_TRIES = 3 };
static const double steady = 1.1; /* median over best: below it nothing disturbed the median */
static const double calm = 1.25;  /* median over best: above it a median tells of other programs */

const char lab_no_roof[] = "no roof";

/* ---- one measurement ---- */

typedef struct measuring {
    lab *l;
    lab_kernel *out;
    const char *row; /* only this row's result is taken; NULL: the first */
    bool found;
} measuring;

static void put_gpu_facts(lab_kernel *k, const bench_result *r)
{
    const vt_cuda *gpu = r->cuda->gpu->cuda;
    k->n_launches = r->cuda->n_kernels;
    if (r->cuda->n_kernels == 0)
        return;
    int32_t index = r->cuda->kernel[0];
    const jit_cubin *cubin = vt_jit_get(gpu->jit, index);
    const cuda_kernel *loaded = index < gpu->n_kernels ? &gpu->kernel[index] : NULL;
    snprintf(k->kernel, sizeof k->kernel, "%s", vt_jit_name(gpu->jit, index));
    snprintf(k->function, sizeof k->function, "%s", vt_jit_kernel(gpu->jit, index));
    if (!cubin || !loaded || loaded->threads == 0)
        return;
    k->registers = cubin->registers;
    k->spill_bytes = cubin->spill_bytes;
    k->shared_bytes = (int64_t)cubin->shared_bytes + loaded->dynamic_shared;
    vt_occupancy o;
    vt_occupancy_input in = {.cc = 10 * gpu->cc_major + gpu->cc_minor,
                             .threads = (int32_t)loaded->threads,
                             .registers = cubin->registers,
                             .shared_bytes = k->shared_bytes,
                             .grid = (int64_t)loaded->grid[0] * loaded->grid[1] * loaded->grid[2],
                             .sm_count = gpu->sm_count};
    if (!vt_occupancy_of(&in, &o) || o.ctas == 0)
        return;
    k->ctas_per_sm = o.ctas;
    k->occupancy = o.share;
    k->waves = o.waves;
    k->tail = o.tail;
    snprintf(k->limited_by, sizeof k->limited_by, "%s", vt_occupancy_limit_name(o.limit));
}

static void put_times(lab_kernel *k, const bench_result *r)
{
    k->best_s = (double)r->best_ns * 1e-9;
    k->median_s = (double)r->median_ns * 1e-9;
    k->noise = r->median_ns > 0 ? r->noise : NAN;
}

static vt_cost in_caches(vt_cost c)
{
    c.read.activations += c.read.weights + c.read.kv;
    c.write.activations += c.write.weights + c.write.kv;
    c.read.weights = c.read.kv = c.write.weights = c.write.kv = 0;
    return c;
}

/* A kernel run warm on a CPU, alone, finds bytes that a cache holds there; the floor then takes
 * the roof of that cache for all of them. */
static vt_cost cost_where_it_runs(const lab *l, vt_cost c, bool cold)
{
    return l->ordinal < 0 && !cold && vt_cost_bytes(&c) <= l->roofs.l3_size ? in_caches(c) : c;
}

/* A GPU's L2 may hold the bytes of a warm call too. One that is faster than memory copies found
 * them there. */
static bool came_from_l2(const lab *l, const vt_cost *c, bool cold, double median_s)
{
    double bytes = (double)vt_cost_bytes(c);
    return l->ordinal >= 0 && !cold && bytes <= (double)l->roofs.l2_size &&
           bytes / median_s > l->roofs.copy_bytes_per_s;
}

/* The call at the efficiency that its kind of work reaches under the roofs, and a GPU's launch. */
static double expected_of(const lab *l, const vt_cost *cost)
{
    story_bound bound;
    double launch_s = vt_roofs_launch_s(&l->roofs, false);
    if (l->emulated)
        return NAN;
    return story_work_s(cost, &l->roofs, &bound) + (isfinite(launch_s) ? launch_s : 0);
}

static bool is_cold(const char *method) { return method && strcmp(method, "cold") == 0; }

/* A call that is faster than its roof allows is not bound by it: its bytes lie nearer than the
 * model of costs believes, or the roof was measured another way, as that of a cache by reads alone.
 * A share of such a roof says nothing. */
static void put_share(lab_kernel *k)
{
    k->of_roof = k->least_s / k->median_s;
    if (k->of_roof > 1) {
        k->of_roof = NAN;
        k->bound = lab_no_roof;
    }
}

static void take(void *user, const bench_result *r)
{
    measuring *m = user;
    lab_kernel *k = m->out;
    vt_buf cut = {0};
    story_bound bound;
    if (m->found || (m->row && strcmp(m->row, r->impl->name) != 0))
        return;
    m->found = true;
    *k = (lab_kernel){.best_s = NAN,
                      .median_s = NAN,
                      .noise = NAN,
                      .occupancy = NAN,
                      .waves = NAN,
                      .tail = NAN,
                      .of_roof = NAN,
                      .registers = -1,
                      .spill_bytes = -1,
                      .ctas_per_sm = -1};
    k->op = r->op->name;
    snprintf(k->impl, sizeof k->impl, "%s", r->impl->name);
    snprintf(k->shape, sizeof k->shape, "%s", r->c->name);
    story_put_cut(&cut, &r->cut);
    snprintf(k->cut, sizeof k->cut, "%s", cut.len > 2 ? cut.data + 2 : "not described");
    vt_buf_release(&cut);
    if (r->timed)
        put_times(k, r);
    if (r->cuda)
        put_gpu_facts(k, r);
    vt_cost cost = cost_where_it_runs(m->l, r->cost, is_cold(r->method));
    if (came_from_l2(m->l, &cost, is_cold(r->method), k->median_s))
        cost = in_caches(cost);
    k->bytes = (double)vt_cost_bytes(&cost);
    k->extra_bytes = (double)r->bytes - k->bytes;
    k->flops = (double)r->flops;
    k->least_s = m->l->emulated ? NAN : story_floor_s(&cost, &m->l->roofs, &bound);
    k->bound = m->l->emulated ? "n/a" : story_bound_name(bound);
    k->expected_s = expected_of(m->l, &cost);
    put_share(k);
    k->error = r->error;
    k->tolerance = r->allowed;
    k->ok = !r->wrong;
    snprintf(k->why, sizeof k->why, "%s", r->wrong ? r->why : "");
}

typedef struct run_span {
    int64_t at_ns, delay_ns; /* the clock, and how long all workers have waited for a CPU so far */
} run_span;

typedef struct delays {
    _Atomic int64_t ns;
    _Atomic bool unknown;
} delays;

static void add_delay(void *arg, int32_t worker)
{
    delays *d = arg;
    int64_t ns = vt_run_delay_ns();
    (void)worker;
    if (ns < 0)
        d->unknown = true;
    else
        d->ns += ns;
}

/* A kernel on a CPU is as slow as its slowest worker, so the delays of all of them count; -1: not
 * known. */
static int64_t delay_ns(lab *l)
{
    vt_team *team;
    vt_err why;
    delays d = {0};
    if (l->ordinal >= 0 || lab_team(l, &team, &why) != VT_OK)
        return vt_run_delay_ns();
    vt_team_run(team, add_delay, &d);
    return d.unknown ? -1 : d.ns;
}

static run_span span_begin(lab *l) { return (run_span){vt_now_ns(), delay_ns(l)}; }

/* Since then the workers waited for CPUs for more than 2 ms, and for more than 2 % of the time: the
 * figure may be too long. */
static bool was_disturbed(lab *l, run_span since)
{
    int64_t waited_ns = delay_ns(l) - since.delay_ns;
    return since.delay_ns >= 0 && waited_ns > 2000000 &&
           (double)waited_ns > 0.02 * (double)(vt_now_ns() - since.at_ns);
}

static vt_status run_bench(lab *l, const lab_kernel_ask *ask, bool checked, bench_report report,
                           void *user, vt_err *err)
{
    bench_options o = {.repetitions = l->quick ? 5 : 9,
                       .min_rep_ns = l->quick ? 1000000 : 3000000,
                       .variants = true,
                       .check_flops = checked ? 0 : 1,
                       .impl = ask->impl,
                       .shape = ask->shape,
                       .cold = is_cold(ask->method)};
    if (l->ordinal < 0) {
        vt_team *team;
        TRY(lab_team(l, &team, err));
        return bench_kernels(ask->op, team, vt_cpu_get()->level, &o, report, user, err);
    }
    on_cuda_gpu *gpu;
    TRY(lab_gpu(l, &gpu, err));
    o.method = ON_CUDA_GRAPH;
    for (int i = 0; ask->method && i < ON_CUDA_METHODS; i++)
        if (strcmp(ask->method, on_cuda_method_name[i]) == 0)
            o.method = (on_cuda_method)i;
    return bench_kernels_cuda(ask->op, gpu, &o, report, user, err);
}

/* Says once a lab that its times were taken on a busy machine. We once told the best repetition in
 * place of the median there: a table then mixed two kinds of figures, and nothing in it said
 * which. */
static void tell_busy(lab *l, const lab_kernel_ask *ask, const lab_kernel *k)
{
    static const char rule[] = "machine.busy";
    if (lab_has_told(l, rule))
        return;
    lab_finding(l, rule,
                "other programs used this machine, at first while %s %s was timed: its median is "
                "%.2f times its best repetition. Where a median is above %.2f times, the kernel is "
                "timed up to %d times and the calmest median is told; run the lab again when the "
                "machine is quiet",
                ask->op, k->impl, k->median_s / k->best_s, calm, MOST_TRIES);
}

/* Times the row again while other programs make its median useless, and keeps the calmest times:
 * those whose median lies closest above their best. The result was checked before. */
static vt_status time_again(lab *l, const lab_kernel_ask *exact, lab_kernel *out, vt_err *err)
{
    for (int i = 1; i < MOST_TRIES && out->disturbed && out->median_s > calm * out->best_s; i++) {
        lab_kernel k = {.best_s = NAN};
        measuring m = {.l = l, .out = &k};
        run_span since = span_begin(l);
        TRY(run_bench(l, exact, false, take, &m, err));
        if (!m.found || !(k.median_s / k.best_s < out->median_s / out->best_s))
            continue;
        out->best_s = k.best_s;
        out->median_s = k.median_s;
        out->noise = k.noise;
        out->of_roof = k.of_roof;
        out->bound = k.bound;
        out->disturbed = was_disturbed(l, since);
    }
    return VT_OK;
}

/* "embed gather, tokens=64: 1.81 us a call, 15 % of its memory roof" */
static void note_event(lab *l, int64_t begin_ns, const lab_kernel *k)
{
    if (!isfinite(k->median_s))
        lab_event(l, begin_ns, "%s %s, %s", k->op, k->impl, k->shape);
    else if (!isfinite(k->of_roof))
        lab_event(l, begin_ns, "%s %s, %s: %f s a call, faster than its roof", k->op, k->impl,
                  k->shape, k->median_s);
    else
        lab_event(l, begin_ns, "%s %s, %s: %f s a call, %f share of its %s roof", k->op, k->impl,
                  k->shape, k->median_s, k->of_roof, k->bound);
}

vt_status lab_kernel_run(lab *l, const lab_kernel_ask *ask, lab_kernel *out, vt_err *err)
{
    int64_t begin_ns = vt_now_ns();
    const char *row = ask->impl;
    char chosen[CHOSEN_MAX];
    if (!row) {
        TRY(lab_kernel_chosen(l, ask->op, ask->shape, chosen, sizeof chosen, err));
        row = chosen;
    }
    lab_kernel_ask exact = *ask;
    exact.impl = row;
    l->ran = true;
    measuring m = {.l = l, .out = out};
    run_span since = span_begin(l);
    TRY(run_bench(l, &exact, true, take, &m, err));
    if (!m.found)
        return vt_fail(err, VT_ERR_UNSUPPORTED, "%s: no row %s here takes the shape %s", ask->op,
                       row, ask->shape ? ask->shape : "of its cases");
    out->disturbed = was_disturbed(l, since);
    TRY(time_again(l, &exact, out, err));
    out->disturbed = out->disturbed && !(out->median_s < steady * out->best_s);
    note_event(l, begin_ns, out);
    if (out->disturbed && isfinite(out->median_s))
        tell_busy(l, ask, out);
    if (isfinite(out->error) || !out->ok)
        lab_check(
            l, out->ok, "%s %s, %s: differs from the reference by %.1e, allowed %.1e (%s)%s%s",
            ask->op, out->impl, out->shape, out->error, out->tolerance,
            vt_op_find(ask->op)->tolerance_reason, out->why[0] ? "; first at " : "", out->why);
    return VT_OK;
}

/* ---- which rows there are ---- */

typedef struct asking {
    lab *l;
    const vt_op *op;
    const char **name;
    int32_t max, n;
    char *chosen; /* NULL: all rows are listed */
    size_t size;
} asking;

static vt_status list_cpu(asking *a, const void *args, vt_err *err)
{
    (void)err;
    vt_limits limits = {.n_workers = a->l->threads};
    vt_target t = vt_target_cpu(vt_cpu_get()->level, &limits);
    const vt_impl *const *const table[] = {a->op->impls, a->op->variants};
    for (int k = 0; k < 2; k++)
        for (const vt_impl *const *i = table[k]; i && *i; i++)
            if (vt_impl_fits(*i, args, &t, NULL) && a->n < a->max)
                a->name[a->n++] = (*i)->name;
    const vt_impl *best = vt_op_select(a->op, args, &t, NULL);
    if (a->chosen && best)
        snprintf(a->chosen, a->size, "%s", best->name);
    return VT_OK;
}

static vt_status list_cuda(asking *a, const void *args, vt_err *err)
{
    on_cuda_gpu *gpu;
    on_cuda c = {0};
    TRY(lab_gpu(a->l, &gpu, err));
    const vt_impl *const *const table[] = {a->op->impls, a->op->variants};
    const vt_packing *last = NULL;
    vt_status status = on_cuda_make(&c, gpu, a->op, args, NULL, err);
    if (status == VT_OK && a->chosen) {
        const vt_impl *best = on_cuda_choice(&c);
        if (best)
            snprintf(a->chosen, a->size, "%s", best->name);
    }
    for (int k = 0; status == VT_OK && k < 2; k++)
        for (const vt_impl *const *i = table[k]; i && *i && status == VT_OK; i++) {
            if ((*i)->device != VT_DEVICE_CUDA)
                continue;
            if ((*i)->packing != last) { /* rows that read weights in another form */
                on_cuda_release(&c);
                c = (on_cuda){0};
                last = (*i)->packing;
                status = on_cuda_make(&c, gpu, a->op, args, last, err);
            }
            if (status == VT_OK && on_cuda_fits(&c, *i) && a->n < a->max)
                a->name[a->n++] = (*i)->name;
        }
    on_cuda_release(&c);
    return status;
}

static vt_status ask_rows(lab *l, const char *op, const char *shape, asking *a, vt_err *err)
{
    vt_case text;
    vt_arena arena;
    vt_tensor *output[VT_MAX_OUTPUTS];
    int32_t n_outputs;
    a->l = l;
    a->op = vt_op_find(op);
    if (!a->op)
        return vt_fail(err, VT_ERR_USAGE, "there is no op named %s", op);
    TRY(vt_case_from_text(a->op, shape, &text, err));
    vt_arena_init(&arena, (size_t)24 << 30);
    void *args = a->op->make_args(&text, 1, &arena, output, &n_outputs);
    vt_status status = !args ? vt_fail(err, VT_ERR_MEMORY, "%s: out of memory for %s", op, shape)
                       : l->ordinal < 0 ? list_cpu(a, args, err)
                                        : list_cuda(a, args, err);
    vt_arena_release(&arena);
    return status;
}

int32_t lab_kernel_rows(lab *l, const char *op, const char *shape, const char **out, int32_t max,
                        vt_err *err)
{
    asking a = {.name = out, .max = max};
    return ask_rows(l, op, shape, &a, err) == VT_OK ? a.n : 0;
}

const char *lab_kernel_other(lab *l, const char *op, const char *shape, const char *impl,
                             vt_err *err)
{
    const char *row[16];
    int32_t n = lab_kernel_rows(l, op, shape, row, 16, err);
    for (int32_t i = 0; i < n; i++)
        if (strcmp(row[i], impl) != 0)
            return row[i];
    return NULL;
}

bool lab_is_variant(const char *op, const char *row)
{
    const vt_op *card = vt_op_find(op);
    for (const vt_impl *const *v = card ? card->variants : NULL; v && *v; v++)
        if (strcmp((*v)->name, row) == 0)
            return true;
    return false;
}

vt_status lab_kernel_chosen(lab *l, const char *op, const char *shape, char *out, size_t size,
                            vt_err *err)
{
    asking a = {.chosen = out, .size = size};
    out[0] = '\0';
    TRY(ask_rows(l, op, shape, &a, err));
    if (!out[0])
        return vt_fail(err, VT_ERR_UNSUPPORTED, "%s: no row here takes the shape %s", op, shape);
    return VT_OK;
}

/* ---- what is expected of a call that has not run ---- */

/* Rows of a GPU may keep weights in a form of their own, whose bytes the cost counts. */
static const vt_packing *packing_of(const vt_op *op, const char *row)
{
    const vt_impl *const *const table[] = {op->impls, op->variants};
    for (int k = 0; k < 2; k++)
        for (const vt_impl *const *i = table[k]; i && *i; i++)
            if ((*i)->device == VT_DEVICE_CUDA && strcmp((*i)->name, row) == 0)
                return (*i)->packing;
    return NULL;
}

static vt_status cost_on_cuda(lab *l, const lab_kernel_ask *ask, const vt_op *op, const void *args,
                              vt_cost *out, vt_err *err)
{
    on_cuda_gpu *gpu;
    on_cuda c = {0};
    char chosen[CHOSEN_MAX];
    const char *row = ask->impl;
    if (!row) {
        TRY(lab_kernel_chosen(l, ask->op, ask->shape, chosen, sizeof chosen, err));
        row = chosen;
    }
    TRY(lab_gpu(l, &gpu, err));
    vt_status status = on_cuda_make(&c, gpu, op, args, packing_of(op, row), err);
    if (status == VT_OK)
        *out = on_cuda_cost(&c);
    on_cuda_release(&c);
    return status;
}

vt_status lab_kernel_expect(lab *l, const lab_kernel_ask *ask, double *out_s, vt_err *err)
{
    vt_case text;
    vt_arena arena;
    vt_tensor *output[VT_MAX_OUTPUTS];
    int32_t n_outputs;
    vt_cost cost;
    const vt_op *op = vt_op_find(ask->op);
    *out_s = NAN;
    if (!op)
        return vt_fail(err, VT_ERR_USAGE, "there is no op named %s", ask->op);
    TRY(vt_case_from_text(op, ask->shape, &text, err));
    if (l->emulated)
        return VT_OK;
    vt_arena_init(&arena, (size_t)24 << 30);
    void *args = op->make_args(&text, 1, &arena, output, &n_outputs);
    vt_status status = VT_OK;
    if (!args)
        status = vt_fail(err, VT_ERR_MEMORY, "%s: out of memory for %s", ask->op, ask->shape);
    else if (l->ordinal >= 0)
        status = cost_on_cuda(l, ask, op, args, &cost, err);
    else
        cost = op->cost(args, NULL);
    if (status == VT_OK) {
        cost = cost_where_it_runs(l, cost, is_cold(ask->method));
        *out_s = expected_of(l, &cost);
    }
    vt_arena_release(&arena);
    return status;
}

vt_status lab_kernel_predict(lab *l, const char *what, const lab_kernel_ask *ask, const char *how,
                             vt_err *err)
{
    double s;
    TRY(lab_kernel_expect(l, ask, &s, err));
    lab_predict(l, what, s, VT_SECONDS, how);
    return VT_OK;
}

/* ---- telling ---- */

const char lab_kernel_columns[] = "shape|runs as|>time|>least|>of roof|bound|>GB/s|>GFLOP/s|>error";

void lab_kernel_cells(lab *l, const lab_kernel *k)
{
    lab_cells(l, "%s|%s|%f s|%f s|%f share|%s|%f|%f|%.1e", k->shape, k->impl, k->median_s,
              k->least_s, k->of_roof, k->bound, k->bytes / k->median_s * 1e-9,
              k->flops > 0 ? k->flops / k->median_s * 1e-9 : NAN, k->error);
}
