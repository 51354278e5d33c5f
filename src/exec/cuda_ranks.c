/* An executor of several GPUs: a cuda_executor for each rank of a tensor-parallel group
 * (docs/ranks.md).
 *
 *   launch   a thread a rank launches the same step on the rank's stream
 *   device   the ranks meet inside the kernels of communication calls (ops/comm.cuh)
 *   wait     for all ranks; their tokens are compared
 *
 * A thread a rank, because a stream's queue is finite: one thread that launches on the first GPU
 * could wait there for the second, on which it has launched nothing yet.
 *
 * Making one goes in two steps for all ranks at once, because graphs hold the addresses of the
 * peers' buffers: first every rank gets its memory, then every rank collects and captures kernels.
 *
 * A rank that does not come to a call is found by its peers' kernels, which stop to wait and say so
 * in comm_gpu.failed. A rank whose GPU fails is found by the host, which sets the same word: so the
 * kernels of all ranks end, and after that the group is made again. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/knob.h"
#include "base/team.h"
#include "exec/cuda_inside.h"
#include "ops/bench/comm_measure.h"

typedef struct cuda_group {
    vt_executor base;
    cuda_executor *rank[COMM_GPU_RANKS]; /* [n]; NULL: not made yet */
    int32_t n;
    vt_comm *comm;
    vt_comm_gpu gpu;
    vt_team *team;   /* a worker a rank */
    unsigned calls;  /* communication calls of all steps that were launched */
    bool failed;     /* its ranks do not fit together any more: it must be made again */
    int64_t limit_s; /* VITRINE_RANK_LIMIT */
    int64_t end_ns;  /* of the newest step that was waited for */
    /* what the team's workers are told, and what they answer */
    const vt_step *step;
    vt_status status[COMM_GPU_RANKS];
    vt_err err[COMM_GPU_RANKS];
} cuda_group;

/* ---- failures ---- */

static uint32_t failure(const cuda_group *g)
{
    return g->gpu.failed ? __atomic_load_n(g->gpu.failed, __ATOMIC_ACQUIRE) : 0;
}

static void fail_on_host(const vt_comm_gpu *gpu)
{
    uint32_t none = 0;
    if (gpu->failed)
        __atomic_compare_exchange_n(gpu->failed, &none, COMM_FAILED_ON_HOST, false,
                                    __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

void cuda_ranks_fail(cuda_executor *x)
{
    if (x->comm.group)
        fail_on_host(x->comm.group->gpu);
}

int32_t cuda_shares_with(const cuda_executor *x)
{
    for (int32_t r = 0; r < x->is.index; r++)
        if (x->options.gpu[r] == x->options.gpu[x->is.index])
            return r;
    return -1;
}

/* While one rank is waited for: a peer whose context has failed will not come. */
static void look_at_peers(void *arg)
{
    cuda_group *g = arg;
    for (int32_t r = 0; r < g->n; r++) {
        cuda_executor *x = g->rank[r];
        const result_slot *slot = &x->slot[x->waited % SLOTS];
        if (x->waited == x->launched || vt_cuda_enter(x->cuda, NULL) != VT_OK)
            continue;
        cu_result now = x->cuda->driver.event_query(slot->end);
        if (now != 0 && now != CU_ERROR_NOT_READY)
            fail_on_host(&g->gpu);
    }
}

/* The label of a program's communication call. */
static const char *label_of(const vt_program *p, uint32_t order)
{
    uint32_t n = 0;
    for (int32_t i = 0; i < p->n_calls; i++)
        if (p->call[i].op->is & VT_OP_JOINS_RANKS && ++n == order)
            return p->call[i].label;
    return "a call";
}

/* Says which rank failed, and how. A rank that did not come is named before one whose error is that
 * it had to wait. */
static vt_status tell_failure(cuda_group *g, vt_err *err)
{
    uint32_t word = failure(g);
    g->failed = true;
    fail_on_host(&g->gpu);
    if (word != 0 && word != COMM_FAILED_ON_HOST)
        return vt_fail(err, VT_ERR_DEVICE,
                       "rank %d of %d did not come to %s within %lld s (VITRINE_RANK_LIMIT)",
                       (int32_t)(word & 0xff) - 1, g->n, label_of(g->rank[0]->prog, word >> 8),
                       (long long)g->limit_s);
    for (int32_t r = 0; r < g->n; r++)
        if (g->status[r] != VT_OK)
            return vt_fail(err, g->status[r], "rank %d of %d: %s", r, g->n, g->err[r].message);
    return vt_fail(err, VT_ERR_DEVICE, "a rank of %d failed", g->n);
}

/* Runs fn on a thread for each rank. Fails if any of them does, with that rank's name. */
static vt_status on_all(cuda_group *g, vt_team_fn fn, vt_err *err)
{
    vt_team_run(g->team, fn, g);
    for (int32_t r = 0; r < g->n; r++)
        if (g->status[r] != VT_OK)
            return vt_fail(err, g->status[r], "rank %d of %d: %s", r, g->n, g->err[r].message);
    return VT_OK;
}

/* ---- launch and wait ---- */

static void launch_rank(void *arg, int32_t r)
{
    cuda_group *g = arg;
    cuda_executor *x = g->rank[r];
    x->comm.base = g->calls;
    g->status[r] = x->base.launch(&x->base, g->step, &g->err[r]);
}

static vt_status group_launch(vt_executor *base, const vt_step *step, vt_err *err)
{
    cuda_group *g = (cuda_group *)base;
    if (g->failed)
        return vt_fail(err, VT_ERR_DEVICE, "a rank of %d failed, and the group was not made again",
                       g->n);
    g->step = step;
    cuda_vitals_agree(g->rank, g->n);
    for (int32_t r = 0; r < g->n; r++) /* none sees what another still runs of the step before */
        if (cuda_activity_takes(g->rank[r], step) || cuda_vitals_takes(g->rank[r], step)) {
            TRY(vt_cuda_enter(g->rank[r]->cuda, err));
            TRY(cuda_activity_wait(g->rank[r], err));
        }
    vt_status status = on_all(g, launch_rank, err);
    g->calls += g->rank[0]->prog->n_comm;
    if (status == VT_OK)
        return VT_OK;
    g->failed = true; /* some ranks may have launched the step: their waits have ended */
    return status;
}

static void choose_rank(void *arg, int32_t r)
{
    cuda_group *g = arg;
    cuda_executor *x = g->rank[r];
    g->status[r] = x->base.sample(&x->base, &g->err[r]);
}

static vt_status group_sample(vt_executor *base, vt_err *err)
{
    return on_all((cuda_group *)base, choose_rank, err);
}

/* Ranks choose each token for themselves. Returns the first that chose another than rank 0; 0: none
 * did. */
static int32_t other_token(const cuda_group *g)
{
    const cuda_executor *first = g->rank[0];
    const result_slot *want = &first->slot[(first->waited - 1) % SLOTS];
    for (int32_t r = 1; r < g->n && want->token; r++) {
        const cuda_executor *x = g->rank[r];
        const result_slot *got = &x->slot[(x->waited - 1) % SLOTS];
        if (memcmp(want->token, got->token, (size_t)want->n_rows * sizeof *want->token) != 0)
            return r;
    }
    return 0;
}

/* Makes the time of rank 0's step that of all ranks: from the first begin, but not before the end
 * of the step before it, to the last end. */
static void span_all(cuda_group *g, vt_step_result *step, const vt_step_result *other)
{
    for (int32_t r = 1; r < g->n; r++) {
        step->begin_ns = other[r].begin_ns < step->begin_ns ? other[r].begin_ns : step->begin_ns;
        step->end_ns = other[r].end_ns > step->end_ns ? other[r].end_ns : step->end_ns;
    }
    if (step->begin_ns < g->end_ns && g->end_ns < step->end_ns)
        step->begin_ns = g->end_ns;
    g->end_ns = step->end_ns;
}

static vt_status group_wait(vt_executor *base, vt_step_result *out, vt_err *err)
{
    cuda_group *g = (cuda_group *)base;
    vt_step_result other[COMM_GPU_RANKS];
    bool good = true;
    for (int32_t r = 0; r < g->n; r++) {
        cuda_executor *x = g->rank[r];
        g->status[r] = x->base.wait(&x->base, r == 0 ? out : &other[r], &g->err[r]);
        if (g->status[r] != VT_OK)
            fail_on_host(&g->gpu);
        good = good && g->status[r] == VT_OK;
    }
    if (!good || failure(g) != 0)
        return tell_failure(g, err);
    span_all(g, out, other);
    int32_t r = other_token(g);
    if (r == 0)
        return VT_OK;
    g->failed = true;
    return vt_fail(err, VT_ERR_DEVICE, "rank %d of %d chose another token than rank 0", r, g->n);
}

/* ---- what the engine asks ---- */

static const vt_program *group_program(const vt_executor *base)
{
    return ((const cuda_group *)base)->rank[0]->prog;
}

static vt_kv_count group_pages(vt_executor *base, vt_kv_count taken)
{
    cuda_group *g = (cuda_group *)base;
    vt_kv_count least = {INT32_MAX, INT32_MAX};
    for (int32_t r = 0; r < g->n; r++) {
        vt_kv_count n = cuda_kv_pages(&g->rank[r]->base, taken);
        least.pages = n.pages < least.pages ? n.pages : least.pages;
        least.windows = n.windows < least.windows ? n.windows : least.windows;
    }
    return least;
}

static int32_t group_sources(const vt_executor *base, vt_source *out, int32_t max)
{
    const cuda_group *g = (const cuda_group *)base;
    int32_t n = 0;
    for (int32_t r = 0; r < g->n; r++) {
        const vt_executor *x = &g->rank[r]->base;
        n += x->sources(x, out + n, n < max ? max - n : 0);
    }
    return n;
}

/* Bytes are those of all ranks together, other numbers those of rank 0. */
static int32_t group_report(const vt_executor *base, vt_report *out, int32_t max)
{
    const cuda_group *g = (const cuda_group *)base;
    const vt_executor *first = &g->rank[0]->base;
    int32_t n = first->report(first, out, max);
    for (int32_t r = 1; r < g->n; r++) {
        vt_report one[VT_MAX_REPORTS];
        const vt_executor *x = &g->rank[r]->base;
        int32_t k = x->report(x, one, VT_MAX_REPORTS);
        for (int32_t i = 0; i < k && i < n && i < max; i++)
            if (strcmp(out[i].unit, "B") == 0)
                out[i].value += one[i].value;
    }
    return n;
}

static void group_held(const vt_executor *base, vt_executor_held *out)
{
    const cuda_group *g = (const cuda_group *)base;
    *out = (vt_executor_held){0};
    for (int32_t r = 0; r < g->n; r++) {
        vt_executor_held one;
        const vt_executor *x = &g->rank[r]->base;
        x->held(x, &one);
        out->graphs += one.graphs;
        out->captures += one.captures;
        out->kernels += one.kernels;
        out->algorithms += one.algorithms;
        out->graph_host_bytes += one.graph_host_bytes;
    }
}

static int32_t group_ranks(const vt_executor *base, vt_rank_use *out, int32_t max)
{
    const cuda_group *g = (const cuda_group *)base;
    for (int32_t r = 0; r < g->n && r < max; r++) {
        cuda_executor *x = g->rank[r];
        out[r] = (vt_rank_use){.weight_bytes = (int64_t)x->weights->bytes,
                               .kv_bytes = (int64_t)vt_kv_cache_all_bytes(&x->kv),
                               .wait_ns = x->stamped.on ? atomic_load(&x->waited_ns) : -1,
                               .wait_steps = atomic_load(&x->waited_steps)};
    }
    return g->n;
}

/* ---- making, and making again ---- */

static void place_rank(void *arg, int32_t r)
{
    cuda_group *g = arg;
    g->status[r] = cuda_start_place(g->rank[r], &g->err[r]);
}

static void finish_rank(void *arg, int32_t r)
{
    cuda_group *g = arg;
    g->status[r] = cuda_start_finish(g->rank[r], &g->err[r]);
}

static void renew_rank(void *arg, int32_t r)
{
    cuda_group *g = arg;
    g->status[r] = cuda_renew_begin(g->rank[r], &g->err[r]);
}

/* Makes what the ranks have in host memory: the word of failures, and all they meet through if the
 * group is staged. It belongs to rank 0. */
static vt_status make_shared(cuda_group *g, vt_err *err)
{
    void *block;
    cuda_executor *first = g->rank[0];
    size_t slot[VT_COMM_SLOTS] = {0};
    for (int32_t s = 0; s < VT_COMM_SLOTS; s++)
        for (int32_t r = 0; r < g->n; r++) {
            const vt_tensor *x = g->rank[r]->prog->buffer[s];
            size_t bytes = x ? (size_t)vt_tensor_bytes(x) : 0;
            slot[s] = bytes > slot[s] ? bytes : slot[s];
        }
    size_t bytes = g->gpu.staged ? vt_comm_stage_bytes(&g->gpu, g->n, slot) : sizeof(uint32_t);
    TRY(vt_cuda_enter(first->cuda, err));
    TRY(vt_cuda_pinned(first->cuda, bytes, &block, err));
    first->comm_failed = block;
    if (g->gpu.staged)
        vt_comm_stage_place(&g->gpu, g->n, slot, block);
    g->gpu.failed = block;
    *g->gpu.failed = 0;
    return VT_OK;
}

/* Between the two steps: every rank learns the addresses of its peers. */
static vt_status connect(cuda_group *g, vt_err *err)
{
    TRY(make_shared(g, err));
    for (int32_t r = 0; r < g->n; r++) {
        cuda_executor *x = g->rank[r];
        if (!g->gpu.staged) {
            g->gpu.flag[r] = x->comm_flags;
            g->gpu.part[r] = x->comm_part;
        }
        for (int32_t s = 0; s < VT_COMM_SLOTS; s++)
            g->comm->buffer[s][r] = x->prog->buffer[s];
        TRY(vt_cuda_enter(x->cuda, err)); /* flags are zero before a peer writes one */
        TRY(vt_cuda_check(x->cuda, x->cuda->driver.stream_sync(x->lane.stream), "clearing", err));
        for (int32_t p = 0; p < g->n && !g->gpu.staged; p++)
            TRY(vt_cuda_open_peer(x->cuda, g->rank[p]->cuda, err));
    }
    return VT_OK;
}

static vt_status build(cuda_group *g, vt_err *err)
{
    vt_status status = on_all(g, place_rank, err);
    if (status == VT_OK)
        status = connect(g, err);
    if (status == VT_OK)
        return on_all(g, finish_rank, err);
    for (int32_t r = 0; r < g->n; r++)
        cuda_start_give_up(g->rank[r]);
    return status;
}

static bool group_lost(vt_executor *base)
{
    cuda_group *g = (cuda_group *)base;
    for (int32_t r = 0; r < g->n && !g->failed; r++)
        g->failed = cuda_lost(&g->rank[r]->base);
    return g->failed;
}

static vt_status group_renew(vt_executor *base, vt_err *err)
{
    cuda_group *g = (cuda_group *)base;
    for (int32_t r = 0; r < g->n; r++) /* nothing of the others is given up for one that hangs */
        if (g->rank[r]->cuda->hung)
            return vt_cuda_enter(g->rank[r]->cuda, err);
    g->failed = true;
    g->gpu.failed = NULL;
    g->calls = 0;
    TRY(on_all(g, renew_rank, err));
    TRY(build(g, err));
    for (int32_t r = 0; r < g->n; r++)
        g->rank[r]->lost = false;
    g->failed = false;
    return VT_OK;
}

static void group_free(vt_executor *base)
{
    cuda_group *g = (cuda_group *)base;
    for (int32_t r = 0; r < g->n; r++)
        if (g->rank[r])
            g->rank[r]->base.free(&g->rank[r]->base);
    vt_comm_free(g->comm);
    vt_team_free(g->team);
    free(g);
}

static vt_status make_ranks(cuda_group *g, const vt_model *m, const vt_executor_config *config,
                            const vt_cuda_options *options, vt_err *err)
{
    vt_cuda_options each = *options;
    memset(each.peer, 0, sizeof each.peer);
    for (int32_t r = 0; r < g->n; r++) {
        vt_executor_config c = *config;
        c.progress = r == 0 ? config->progress : NULL;
        each.ordinal = options->gpu[r];
        each.device = NULL; /* the group still owns it if this fails */
        cuda_executor *x = cuda_new(m, &c, &each, err);
        if (!x)
            return VT_ERR_MEMORY;
        x->is = (vt_rank){r, g->n, config->whole_experts};
        x->comm = (vt_comm_rank){.group = g->comm, .rank = r};
        x->look_at_peers = look_at_peers;
        x->look_arg = g;
        x->startup.open_ms = options->open_ms;
        g->rank[r] = x;
    }
    return VT_OK;
}

vt_status vt_executor_cuda_link(vt_cuda_options *o, const char *link, int32_t *from, int32_t *to,
                                vt_err *err)
{
    *from = *to = -1;
    o->staged = strcmp(link, "host") == 0;
    if (strcmp(link, "auto") != 0)
        return VT_OK;
    for (int32_t r = 0; r < o->n_ranks; r++)
        for (int32_t p = 0; p < o->n_ranks && !o->staged; p++) {
            bool sees;
            TRY(vt_cuda_sees_peer(r ? o->peer[r] : o->device, p ? o->peer[p] : o->device, &sees,
                                  err));
            if (!sees) {
                o->staged = true;
                *from = o->gpu[r];
                *to = o->gpu[p];
            }
        }
    return VT_OK;
}

static vt_status make(cuda_group *g, const vt_model *m, const vt_executor_config *config,
                      vt_cuda_options *options, vt_err *err)
{
    const vt_knob_row *limit = &vt_knobs[VT_KNOB_RANK_LIMIT];
    TRY(vt_knob_check(limit, err));
    TRY(vt_ranks_check(m, g->n, config->whole_experts, err));
    TRY(vt_comm_new(g->n, &g->comm, err));
    g->limit_s = vt_knob_int(limit);
    g->gpu = (vt_comm_gpu){
        .part_bytes = vt_comm_part_bytes(g->n, config->limits.max_tokens, m->arch.hidden),
        .staged = options->staged,
        .limit_ns = (uint64_t)g->limit_s * 1000000000};
    for (int32_t r = 0; r < g->n; r++)
        for (int32_t p = 0; p < r; p++)
            g->gpu.together = g->gpu.together || options->gpu[p] == options->gpu[r];
    g->comm->gpu = &g->gpu;
    TRY(vt_team_new(g->n, &g->team, err));
    if (!options->device)
        TRY(vt_executor_cuda_open(m, options, err));
    const comm_set set = {options->device, options->gpu, g->n, options->staged};
    vt_comm_limits_get(&set, true, &g->gpu.limits);
    TRY(make_ranks(g, m, config, options, err));
    for (int32_t r = 0; r < g->n; r++) { /* from here on the ranks own them */
        vt_cuda **device = r == 0 ? &options->device : &options->peer[r];
        g->rank[r]->cuda = *device;
        *device = NULL;
    }
    return build(g, err);
}

vt_status cuda_ranks_new(const vt_model *m, const vt_executor_config *config,
                         const vt_cuda_options *options, vt_executor **out, vt_err *err)
{
    vt_cuda_options o = *options;
    cuda_group *g = vt_calloc(1, sizeof *g);
    vt_status status = VT_OK;
    if (!g)
        status = vt_fail(err, VT_ERR_MEMORY, "out of memory for the CUDA executor");
    else if (config->n_ranks > COMM_GPU_RANKS || config->n_ranks != o.n_ranks)
        status = vt_fail(err, VT_ERR_USAGE,
                         "%d ranks on %d GPUs, expected a GPU for each, at most "
                         "%d",
                         config->n_ranks, o.n_ranks, COMM_GPU_RANKS);
    if (status == VT_OK) {
        g->n = config->n_ranks;
        g->base = (vt_executor){.name = "cuda",
                                .launch = group_launch,
                                .sample = group_sample,
                                .wait = group_wait,
                                .free = group_free,
                                .program = group_program,
                                .sources = group_sources,
                                .report = group_report,
                                .held = group_held,
                                .ranks = group_ranks,
                                .pages = group_pages,
                                .lost = group_lost,
                                .renew = group_renew,
                                .n_pool_slots = config->n_pool_slots};
        status = make(g, m, config, &o, err);
    }
    if (status == VT_OK) {
        for (int32_t r = 0; r < g->n; r++)
            cuda_made(g->rank[r]);
        *out = &g->base;
    } else if (g) {
        group_free(&g->base);
    }
    vt_cuda_options_close(&o);
    return status;
}
