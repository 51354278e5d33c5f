/* Expected times (story/predict.h). */
#include "story/predict.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/err.h"
#include "ops/bench/bench.h"
#include "ops/bench/bench_one.h"
#include "ops/shape_of.h"

/* Weights with more elements than this are cut for measuring: the share of the roof changes little
 * beyond it, and making them takes long. */
#define MOST_ON_CPU (INT64_C(32) << 20)
#define MOST_ON_GPU (INT64_C(256) << 20)
/* Bounds of the largest set: it is twice the L3 between them. */
#define MOST_SET_FLOOR (INT64_C(128) << 20)
#define MOST_SET_CEILING (INT64_C(1) << 30)

static const double cpu_budget_s = 0.3;  /* for one shape, on a busy machine */
static const double enough_memory = 0.5; /* share of the roof, for rows that stream */
static const int64_t look_lasts_ns = 1000000000;

static int64_t most_set(const vt_roofs *r)
{
    int64_t l3 = 2 * r->l3_size;
    return l3 < MOST_SET_FLOOR ? MOST_SET_FLOOR : l3 > MOST_SET_CEILING ? MOST_SET_CEILING : l3;
}

/* The weights and KV that the step reads, for measuring. Larger sets are cut: the caches hold
 * nothing of a set of twice their size, and writing it takes long. */
static int64_t set_bytes(const story_step *s, const vt_roofs *r)
{
    int64_t bytes = story_step_sum(s).streamed, most = most_set(r);
    return bytes < most ? bytes : most;
}

/* The class of a step's set: 1, 2, 4 ... MiB. */
static int32_t set_class(const story_step *s, const vt_roofs *r)
{
    int64_t bytes = set_bytes(s, r);
    int32_t mib = 1;
    while (bytes > (INT64_C(3) << 20) * mib / 2)
        mib *= 2;
    return mib;
}

/* Returns the teams of threads that run a call at once on this CPU: those of all ranks of all
 * replicas. A call that joins ranks has all threads of its replica, and is measured so. */
static int32_t n_teams(const story_step *s, int32_t call)
{
    if (story_step_program(s)->call[call].op->is & VT_OP_JOINS_RANKS)
        return 1;
    int32_t n = story_step_ranks(s) * story_step_replicas(s);
    return n < VT_BENCH_TEAMS ? n : VT_BENCH_TEAMS;
}

/* "linear avx512 tokens=1,type=Q4_1,... set=128M teams=4"; false: the op has no shape. Only rows on
 * a CPU that read weights or KV have a set, and only those of several teams tell their number. */
static bool class_of(const story_step *s, int32_t call, const vt_roofs *r,
                     char key[VT_EFFICIENCY_KEY])
{
    char shape[VT_SHAPE_TEXT], set[24] = "", teams[24] = "";
    const vt_call *c = &story_step_program(s)->call[call];
    const vt_impl *impl = story_step_impl(s, call);
    if (!impl || !vt_shape_of(c->op, c->args, story_step_batch(s), MOST_ON_GPU, true, shape))
        return false;
    if (impl->device == VT_DEVICE_CPU && vt_bench_one_streams(c->op))
        snprintf(set, sizeof set, " set=%dM", set_class(s, r));
    if (impl->device == VT_DEVICE_CPU && n_teams(s, call) > 1)
        snprintf(teams, sizeof teams, " teams=%d", n_teams(s, call));
    int n = snprintf(key, VT_EFFICIENCY_KEY, "%s %s %s%s%s", c->op->name, impl->name, shape, set,
                     teams);
    return n > 0 && n < VT_EFFICIENCY_KEY;
}

/* The launch's part of a measured time. A call that took less than a launch proves that the launch
 * was measured too long. */
static double launch_s(const vt_efficiency *x, const vt_roofs *r)
{
    return fmin(vt_roofs_launch_s(r, true), 0.95 * x->seconds);
}

/* Returns what the measured call had to do, as a cost. Reads and writes, weights and KV are one for
 * the roofs. */
static vt_cost cost_of(const vt_efficiency *x)
{
    return (vt_cost){
        .read = {.weights = (int64_t)x->bytes, .activations = (int64_t)x->activations},
        .flops = {.fp32 = (int64_t)x->fp32, .bf16 = (int64_t)x->bf16, .int8 = (int64_t)x->int8}};
}

/* Share of its roof that the measured call reached. At least a twentieth of its time counts as
 * work. */
static double efficiency(const vt_efficiency *x, const vt_roofs *r)
{
    story_bound bound;
    vt_cost cost = cost_of(x);
    return story_work_s(&cost, r, &bound) / (x->seconds - launch_s(x, r));
}

double story_expected_s(const story_step *s, int32_t call, const vt_roofs *r,
                        const vt_efficiencies *e)
{
    char key[VT_EFFICIENCY_KEY];
    vt_cost cost = {0}, extra = {0};
    story_bound bound;
    const vt_efficiency *found = e && class_of(s, call, r, key) ? vt_efficiency_find(e, key) : NULL;
    if (!found || !story_step_cost(s, call, &cost, &extra))
        return NAN;
    double share = efficiency(found, r);
    return share > 0 ? launch_s(found, r) + story_work_s(&cost, r, &bound) / share : NAN;
}

/* ---- measuring ---- */

typedef struct timed {
    double seconds;
    vt_cost cost;
} timed;

static void note_result(void *user, const bench_result *r)
{
    timed *t = user;
    *t = (timed){(double)r->best_ns * 1e-9, r->cost};
}

/* The period of the call in a graph, with programmatic dependent launch where there is one. */
static vt_status time_on_gpu(on_cuda_gpu *gpu, const vt_op *op, const vt_impl *impl,
                             const char *shape, bench_one *out, vt_err *err)
{
    timed t = {0};
    bench_options o = {.check_flops = 1,
                       .impl = impl->name,
                       .shape = shape,
                       .method = gpu->cuda->cc_major >= 9 ? ON_CUDA_PDL : ON_CUDA_GRAPH};
    TRY(bench_kernels_cuda(op->name, gpu, &o, note_result, &t, err));
    *out = (bench_one){.seconds = t.seconds, .cost = t.cost, .steady = true};
    return VT_OK;
}

typedef struct measuring {
    const story_step *s;
    const vt_roofs *r;
    vt_team *team;           /* CPU: all threads */
    vt_bench_teams together; /* the teams of several ranks or replicas, once some call needs them */
    on_cuda_gpu *gpu;
    vt_efficiencies *e;
} measuring;

/* Other calls' bytes between two calls of this one's kind: a layer's, or the step's. */
static int64_t passing_bytes(const story_step *s, int32_t call)
{
    const vt_program *p = story_step_program(s);
    const char *kind = story_call_kind(&p->call[call]);
    vt_cost cost = {0}, extra = {0};
    int64_t n = 0;
    for (int32_t i = 0; i < p->n_calls; i++)
        n += story_step_impl(s, i) && strcmp(story_call_kind(&p->call[i]), kind) == 0;
    story_step_cost(s, call, &cost, &extra);
    return story_step_sum(s).all / (n ? n : 1) - vt_cost_bytes(&cost) - vt_cost_bytes(&extra);
}

/* Finds out whether the memory gives much less than its roof at this moment, because other guests
 * of the same host use it. A row that streams is then slower than it will be, and is not kept. */
static vt_status look_at_memory(measuring *m, bool *starved, vt_err *err)
{
    double rate;
    int64_t now = vt_now_ns();
    if (m->e->looked_ns == 0 || now - m->e->looked_ns > look_lasts_ns) {
        TRY(vt_roofs_memory_now(m->r->threads, &rate, err));
        m->e->starved = rate < enough_memory * m->r->memory_bytes_per_s;
        m->e->looked_ns = now;
    }
    *starved = m->e->starved;
    return VT_OK;
}

/* Times the row as the step's ranks and replicas run it, all at once. A rank has its part of the
 * step's weights and of the threads. The largest set is that of all together. */
static vt_status time_together(measuring *m, int32_t call, const vt_impl *impl, const char *shape,
                               const bench_step *step, bench_one *out, vt_err *err)
{
    int32_t n = n_teams(m->s, call), ranks = story_step_ranks(m->s), each = m->r->threads / ranks;
    int64_t set = step->set_bytes / ranks, most = most_set(m->r) / n;
    const bench_step own = {.set_bytes = set < most ? set : most,
                            .passing_bytes = step->passing_bytes / ranks};
    if (m->together.n != n) {
        vt_bench_teams_free(&m->together);
        TRY(vt_bench_teams_new(n, each > 1 ? each : 1, &m->together, err));
    }
    TRY(vt_bench_together(story_step_program(m->s)->call[call].op, impl, shape, &m->together, &own,
                          cpu_budget_s, out, err));
    const vt_cost one = out->cost;
    for (int32_t i = 1; i < ranks; i++) /* a step's costs are those of all ranks */
        vt_cost_add(&out->cost, &one);
    return VT_OK;
}

static vt_status time_on_cpu(measuring *m, int32_t call, const vt_impl *impl, const char *shape,
                             bench_one *out, vt_err *err)
{
    const bench_step step = {.set_bytes = set_bytes(m->s, m->r),
                             .passing_bytes = passing_bytes(m->s, call)};
    if (n_teams(m->s, call) > 1)
        return time_together(m, call, impl, shape, &step, out, err);
    return vt_bench_one(story_step_program(m->s)->call[call].op, impl, shape, m->team, &step,
                        cpu_budget_s, out, err);
}

static vt_status measure_call(measuring *m, int32_t call, const char *key, vt_err *err)
{
    char shape[VT_SHAPE_TEXT];
    bool starved = false;
    bench_one one = {0};
    const vt_call *c = &story_step_program(m->s)->call[call];
    const vt_impl *impl = story_step_impl(m->s, call);
    vt_shape_of(c->op, c->args, story_step_batch(m->s), m->gpu ? MOST_ON_GPU : MOST_ON_CPU, false,
                shape);
    if (!m->gpu && vt_bench_one_streams(c->op))
        TRY(look_at_memory(m, &starved, err));
    TRY(m->gpu ? time_on_gpu(m->gpu, c->op, impl, shape, &one, err)
               : time_on_cpu(m, call, impl, shape, &one, err));
    const vt_cost *k = &one.cost;
    int64_t activations = k->read.activations + k->write.activations;
    vt_efficiency x = {.seconds = one.seconds,
                       .bytes = (double)(vt_cost_bytes(k) - activations),
                       .activations = (double)activations,
                       .fp32 = (double)k->flops.fp32,
                       .bf16 = (double)k->flops.bf16,
                       .int8 = (double)k->flops.int8,
                       .steady = one.steady && !starved,
                       .when = time(NULL)};
    if (x.seconds > 0)
        vt_efficiency_add(m->e, key, &x);
    return VT_OK;
}

static vt_status measure_all(measuring *m, story_measuring tell, void *user, vt_err *err)
{
    char key[VT_EFFICIENCY_KEY];
    const vt_program *p = story_step_program(m->s);
    for (int32_t i = 0; i < p->n_calls; i++) {
        if (!class_of(m->s, i, m->r, key) || vt_efficiency_find(m->e, key))
            continue;
        if (tell)
            tell(user, key);
        /* a shape that a case cannot have is no reason to predict nothing */
        vt_status status = measure_call(m, i, key, err);
        if (status != VT_OK && status != VT_ERR_USAGE && status != VT_ERR_UNSUPPORTED)
            return status;
    }
    return VT_OK;
}

static bool some_missing(const story_step *s, const vt_roofs *r, const vt_efficiencies *e)
{
    char key[VT_EFFICIENCY_KEY];
    for (int32_t i = 0; i < story_step_program(s)->n_calls; i++)
        if (class_of(s, i, r, key) && !vt_efficiency_find(e, key))
            return true;
    return false;
}

vt_status story_measure_rows(const story_step *s, const vt_roofs *r, int32_t ordinal,
                             vt_efficiencies *e, story_measuring tell, void *user, vt_err *err)
{
    measuring m = {.s = s, .r = r, .e = e};
    on_cuda_gpu gpu;
    on_cuda_options o = {.library = true, .pdl = true, .always = true};
    if (!some_missing(s, r, e))
        return VT_OK;
    if (ordinal < 0)
        TRY(vt_team_new(r->threads, &m.team, err));
    else
        TRY(on_cuda_open(ordinal, &o, &gpu, err));
    if (ordinal >= 0 && gpu.emulated) { /* its times mean nothing */
        on_cuda_close(&gpu);
        return VT_OK;
    }
    m.gpu = ordinal >= 0 ? &gpu : NULL;
    vt_status status = measure_all(&m, tell, user, err);
    vt_team_free(m.team);
    vt_bench_teams_free(&m.together);
    if (m.gpu)
        on_cuda_close(m.gpu);
    return status;
}
