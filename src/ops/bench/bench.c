/* The kernel benchmark: see bench.h.
 *
 * One measurement:
 *
 *   repetition   worker 0:  now ─ run(case) ─ barrier ─ run(case) ─ barrier ─ ... ─ now
 *                others:    now ─ run(case) ─ barrier ─ run(case) ─ barrier ─ ...
 *
 * The first repetition warms up and decides how many calls the others have. Best and median are
 * both kept. On a shared machine the best says how fast the code is, and the distance to the median
 * how much other processes disturbed it. */
#include "ops/bench/bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/stats.h"
#include "device/roofs/roofs.h"
#include "ops/access.h"
#include "ops/calls/on_cpu.h"
#include "ops/case_text.h"
#include "ops/cases.h"

enum { MAX_CALLS = 4096, MAX_REPETITIONS = 64, MAX_COPIES = 1024, SEED = 42 };

typedef struct case_args {
    vt_arena arena;
    void *args;
    vt_tensor *output[VT_MAX_OUTPUTS];
    int32_t n_outputs;
} case_args;

static vt_status case_args_make(case_args *a, const vt_op *op, const vt_case *c,
                                const vt_impl *impl, vt_err *err)
{
    *a = (case_args){0};
    vt_arena_init_on_pages(&a->arena, 0); /* as the engine's memory is */
    a->args = op->make_args(c, SEED, &a->arena, a->output, &a->n_outputs);
    if (a->args && (!impl || case_pack(op, impl, a->args, &a->arena)))
        return VT_OK;
    vt_arena_release(&a->arena);
    return vt_fail(err, VT_ERR_MEMORY, "%s: out of memory for the case %s", op->name, c->name);
}

/* ---- comparing ---- */

/* Two neighbouring FP8 values differ by up to 12 %. The last bit of an fp32 sum can decide which of
 * them a result is rounded to, and that is no error. Ops that must be exact have a tolerance below
 * FP8_STEP. */
#define FP8_STEP 1e-3

static bool fp8_neighbours(const vt_tensor *got, const vt_tensor *want, int64_t row, int64_t col)
{
    int64_t at = row * want->row_stride + col;
    int a = ((const uint8_t *)got->data)[row * got->row_stride + col],
        b = ((const uint8_t *)want->data)[at];
    return a - b == 1 || b - a == 1;
}

static double element_error(const vt_tensor *got, const vt_tensor *want, int64_t row, int64_t col)
{
    int64_t at = row * want->row_stride + col;
    if (want->dtype == VT_I32)
        return ((const int32_t *)got->data)[at] == ((const int32_t *)want->data)[at] ? 0 : INFINITY;
    if (want->dtype == VT_I64)
        return ((const int64_t *)got->data)[at] == ((const int64_t *)want->data)[at] ? 0 : INFINITY;
    if (want->dtype == VT_FP8_E4M3 && fp8_neighbours(got, want, row, col))
        return FP8_STEP;
    double x = (double)tensor_get(got, row, col), y = (double)tensor_get(want, row, col);
    if (x == y || (isnan(x) && isnan(y)))
        return 0;
    double e = fabs(x - y) / (1 + fabs(y));
    return isnan(e) ? INFINITY : e;
}

double bench_error(vt_tensor *const *got, vt_tensor *const *want, int32_t n_outputs)
{
    double worst = 0;
    for (int32_t i = 0; i < n_outputs; i++) {
        int64_t cols = want[i]->dim[want[i]->rank - 1], rows = vt_tensor_elems(want[i]) / cols;
        for (int64_t r = 0; r < rows; r++)
            for (int64_t c = 0; c < cols; c++)
                worst = fmax(worst, element_error(got[i], want[i], r, c));
    }
    return worst;
}

/* Place and values of the first element that is further off than `allowed`. */
static void tell_first_wrong(vt_tensor *const *got, vt_tensor *const *want, int32_t n_outputs,
                             double allowed, char *why, size_t size)
{
    for (int32_t i = 0; i < n_outputs; i++) {
        int64_t cols = want[i]->dim[want[i]->rank - 1], rows = vt_tensor_elems(want[i]) / cols;
        for (int64_t at = 0; at < rows * cols; at++) {
            int64_t r = at / cols, c = at % cols;
            bool whole = want[i]->dtype == VT_I32 || want[i]->dtype == VT_I64;
            if (element_error(got[i], want[i], r, c) <= allowed)
                continue;
            if (whole)
                snprintf(why, size, "row %lld, %lld: another number than the reference's",
                         (long long)r, (long long)c);
            else
                snprintf(why, size, "row %lld, %lld: %g, expected %g", (long long)r, (long long)c,
                         (double)tensor_get(got[i], r, c), (double)tensor_get(want[i], r, c));
            return;
        }
    }
}

/* ---- timing ---- */

typedef struct bench_job {
    const vt_impl *impl;
    case_args *copy; /* [n_copies] */
    int32_t n_copies, n_calls;
    vt_team *team;
    atomic_int *ticket; /* [MAX_CALLS] */
    on_cpu on;          /* one for all copies, which have the same shape */
    struct began {
        _Alignas(VT_CACHE_LINE) int64_t ns;
    } * began; /* [n_workers] when each left the barrier before the calls */
    int64_t end_ns;
} bench_job;

/* The clock runs from the moment when all workers are awake: on a virtual machine it may take
 * 100 us to wake one, which a short call must not be charged with. It is the first worker that
 * leaves the barrier who starts it: another one may lose its CPU there while that one works. */
static void job_main(void *p, int32_t worker)
{
    bench_job *job = p;
    vt_lane lane = on_cpu_lane(&job->on, job->team, worker, NULL);
    vt_team_barrier(job->team, worker);
    job->began[worker].ns = vt_now_ns();
    for (int32_t i = 0; i < job->n_calls; i++) {
        lane.ticket = &job->ticket[i];
        job->impl->run(job->copy[i % job->n_copies].args, &lane);
        vt_team_barrier(job->team, worker);
    }
    if (worker == 0)
        job->end_ns = vt_now_ns();
}

static int64_t time_calls(bench_job *job, int32_t n_calls)
{
    job->n_calls = n_calls;
    for (int32_t i = 0; i < n_calls; i++)
        atomic_store_explicit(&job->ticket[i], 0, memory_order_relaxed);
    vt_team_run(job->team, job_main, job);
    int64_t begin = job->began[0].ns;
    for (int32_t w = 1; w < vt_team_size(job->team); w++)
        begin = job->began[w].ns < begin ? job->began[w].ns : begin;
    return job->end_ns - begin;
}

static int by_value(const void *pa, const void *pb)
{
    const int64_t *a = pa, *b = pb;
    return (*a > *b) - (*a < *b);
}

/* Returns how many calls take min_ns. The first ones touch new memory and are far longer, so they
 * are not counted, and the number grows until it is enough. */
static int64_t calls_for(bench_job *job, int64_t min_ns)
{
    int64_t calls = job->n_copies, took = 0;
    (void)time_calls(job, (int32_t)calls);
    for (int tries = 0; tries < 4; tries++) {
        took = time_calls(job, (int32_t)calls);
        if (took >= min_ns || calls >= MAX_CALLS)
            break;
        calls = vt_ceil_div(min_ns * calls, took > 0 ? took : 1);
        calls = calls < MAX_CALLS ? calls : MAX_CALLS;
    }
    return calls;
}

static void measure(bench_job *job, const bench_options *o, bench_result *r)
{
    int64_t ns[MAX_REPETITIONS], min_ns = o->min_rep_ns > 0 ? o->min_rep_ns : 2000000;
    int32_t n = o->repetitions > 0 ? o->repetitions : 7;
    n = n < MAX_REPETITIONS ? n : MAX_REPETITIONS;
    int64_t calls = calls_for(job, min_ns);
    for (int32_t i = 0; i < n; i++)
        ns[i] = time_calls(job, (int32_t)calls) / calls;
    qsort(ns, (size_t)n, sizeof *ns, by_value);
    r->n_calls = (int32_t)calls;
    r->best_ns = ns[0];
    r->median_ns = ns[n / 2];
    double each[MAX_REPETITIONS];
    for (int32_t i = 0; i < n; i++)
        each[i] = (double)ns[i];
    r->noise = vt_noise(each, (size_t)n);
}

/* ---- one implementation on one case ---- */

static vt_status reserve(bench_job *job, const vt_op *op, const vt_case *c, const bench_options *o,
                         vt_err *err)
{
    job->copy = vt_calloc(MAX_COPIES, sizeof *job->copy);
    job->ticket = vt_calloc(MAX_CALLS, sizeof *job->ticket);
    size_t n_workers = (size_t)vt_team_size(job->team);
    job->began = vt_aligned_alloc(VT_CACHE_LINE, n_workers * sizeof *job->began);
    if (!job->copy || !job->ticket || !job->began)
        return vt_fail(err, VT_ERR_MEMORY, "%s: out of memory for the benchmark", op->name);
    int64_t bytes = 0, least = o->cold ? roofs_far_bytes(vt_cpu_get()) : 1;
    do {
        case_args *a = &job->copy[job->n_copies];
        TRY(case_args_make(a, op, c, job->impl, err));
        job->n_copies++;
        vt_cost cost = op->cost(a->args, NULL);
        bytes += vt_cost_bytes(&cost);
    } while (bytes < least && job->n_copies < MAX_COPIES);
    TRY(on_cpu_make(&job->on, op, job->impl, job->copy[0].args, vt_team_size(job->team), err));
    job->on.own = job->impl == o->extra ? o->own : NULL;
    return VT_OK;
}

static void job_release(bench_job *job)
{
    for (int32_t i = 0; i < job->n_copies; i++)
        vt_arena_release(&job->copy[i].arena);
    free(job->copy);
    free(job->ticket);
    free(job->began);
    on_cpu_release(&job->on);
}

static void fill_result(bench_result *r, const void *args, const vt_target *t)
{
    vt_cost extra = r->impl->extra ? r->impl->extra(args, t, NULL) : (vt_cost){0};
    r->cost = r->op->cost(args, NULL);
    int64_t compulsory = vt_cost_bytes(&r->cost);
    r->bytes = compulsory + vt_cost_bytes(&extra);
    r->flops = vt_cost_flops(&r->cost);
    r->gb_per_s = (double)compulsory / (double)r->median_ns;
    r->gflop_per_s = (double)r->flops / (double)r->median_ns;
}

/* want: the reference's outputs, or NULL. */
static vt_status bench_impl(bench_result *r, vt_team *team, const bench_options *o,
                            const case_args *want, vt_err *err)
{
    bench_job job = {.impl = r->impl, .team = team};
    vt_status status;
    TRY_GOTO(status, reserve(&job, r->op, r->c, o, err), out);
    r->error = NAN;
    time_calls(&job, 1); /* only the first call has fresh in-place arguments */
    if (want)
        r->error = bench_error(job.copy[0].output, want->output, want->n_outputs);
    r->wrong = r->error > r->allowed;
    if (r->wrong)
        tell_first_wrong(job.copy[0].output, want->output, want->n_outputs, r->allowed, r->why,
                         sizeof r->why);
    measure(&job, o, r);
    fill_result(r, job.copy[0].args, &job.on.target);
    if (r->impl->describe)
        r->impl->describe(job.copy[0].args, &job.on.target, &job.on.size, &r->cut);
out:
    job_release(&job);
    return status;
}

typedef struct bench_run {
    vt_team *team;
    vt_target target;
    const bench_options *o;
    bench_report report;
    void *user;
} bench_run;

static vt_status bench_case(void *ctx, const vt_op *op, const vt_case *c, vt_err *err)
{
    const bench_run *b = ctx;
    case_args want;
    TRY(case_args_make(&want, op, c, NULL, err));
    vt_cost cost = op->cost(want.args, NULL);
    bool checked = vt_cost_flops(&cost) <=
                   (b->o->check_flops > 0 ? b->o->check_flops : 10000000000);
    if (checked)
        op->reference(want.args);
    vt_status status = VT_OK;
    const vt_impl *const extra[] = {b->o->extra, NULL};
    const vt_impl *const *const table[] = {extra, op->impls, b->o->variants ? op->variants : NULL};
    for (int t = 0; t < 3; t++)
        for (const vt_impl *const *impl = table[t]; impl && *impl && status == VT_OK; impl++) {
            if (!bench_wants(b->o, *impl) || !vt_impl_fits(*impl, want.args, &b->target, NULL))
                continue;
            bench_result r = {.op = op,
                              .c = c,
                              .impl = *impl,
                              .method = b->o->cold ? "cold" : "warm",
                              .n_workers = vt_team_size(b->team),
                              .allowed = vt_op_tolerance(op, want.args),
                              .timed = true};
            status = bench_impl(&r, b->team, b->o, checked ? &want : NULL, err);
            if (status == VT_OK)
                b->report(b->user, &r);
        }
    vt_arena_release(&want.arena);
    return status;
}

bool bench_wants(const bench_options *o, const vt_impl *impl)
{
    return !o->impl || impl == o->extra || strcmp(o->impl, impl->name) == 0 ||
           (impl->family && strcmp(o->impl, impl->family) == 0);
}

static vt_status each_of_shape(const vt_op *op, const bench_options *o,
                               vt_status (*visit)(void *, const vt_op *, const vt_case *, vt_err *),
                               void *ctx, vt_err *err)
{
    int32_t n;
    vt_case *text = vt_calloc(VT_MAX_TEXT_CASES, sizeof *text);
    if (!text)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for %d cases", VT_MAX_TEXT_CASES);
    vt_status status = vt_cases_from_text(op, o->shape, text, VT_MAX_TEXT_CASES, &n, err);
    for (int32_t i = 0; status == VT_OK && i < n; i++)
        status = visit(ctx, op, &text[i], err);
    free(text);
    return status;
}

vt_status bench_each_case(const char *op_name, const bench_options *o,
                          vt_status (*visit)(void *ctx, const vt_op *op, const vt_case *c,
                                             vt_err *err),
                          void *ctx, vt_err *err)
{
    const vt_op *one = op_name ? vt_op_find(op_name) : NULL;
    vt_case c;
    if (op_name && !one)
        return vt_fail(err, VT_ERR_USAGE,
                       "there is no op named %s: see vitrine explain for the names", op_name);
    if (o->shape && !one)
        return vt_fail(err, VT_ERR_USAGE, "--shape %s: expected with the name of an op", o->shape);
    if (o->shape)
        return each_of_shape(one, o, visit, ctx, err);
    for (const vt_op *const *op = vt_ops; *op; op++)
        for (int32_t i = 0; (!one || one == *op) && vt_op_case(*op, i, &c); i++)
            if (c.bench || o->all_cases)
                TRY(visit(ctx, *op, &c, err));
    return VT_OK;
}

vt_status bench_kernels(const char *op_name, vt_team *team, vt_isa level,
                        const bench_options *options, bench_report report, void *user, vt_err *err)
{
    bench_run b = {.team = team,
                   .target = vt_target_cpu(level, NULL),
                   .o = options,
                   .report = report,
                   .user = user};
    return bench_each_case(op_name, options, bench_case, &b, err);
}
