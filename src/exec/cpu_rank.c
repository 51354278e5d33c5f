/* A rank of the CPU executor: what one team owns and runs.
 *
 * Inside a step every worker walks the same list of calls and meets the others at a barrier after
 * each. Behind the barrier all workers see what the call wrote. Ranks meet inside communication
 * calls (ops/comm.h). When a rank failed, the others pass over the rest of the step's calls. */
#include "exec/cpu_inside.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "device/events.h"
#include "ops/calls/on_cpu.h"

enum {
    KV_READY_BYTES = 64 << 20, /* of the cache that shall be there for the first prompts */
    RING_USES = 1 << 13 /* one a step, or one for several steps shorter than VT_USE_EVERY_NS */
};

/* Runs a call on this worker. */
static vt_status run_call(cpu_rank *k, vt_lane *lane, int32_t i)
{
    const vt_call *c = &k->prog->call[i];
    int16_t plan = c->plan[0]; /* a CPU's calls have one row for all sizes */
    lane->plan = plan >= 0 ? k->plans + k->plan_at[plan] : NULL;
    lane->items = plan >= 0 ? k->items[plan] : 0;
    lane->ticket = &k->ticket[i];
    return c->choice[0].impl->run(c->args, lane);
}

/* Where this worker's spans of the current step go; NULL: its op calls are not recorded. */
static vt_trace_ring *spans_of_step(cpu_rank *k, int32_t worker)
{
    const vt_batch *b = &k->step.batch;
    bool prompts = b->n_tokens > b->n_decode;
    return prompts || vt_spans_on(k->step.id)
               ? vt_spans_of(&k->recorder[worker].spans, k->step.id, prompts)
               : NULL;
}

void cpu_rank_fail(cpu_rank *k, cpu_fault fault)
{
    int none = CPU_FAULT_NONE;
    atomic_compare_exchange_strong(&k->fault, &none, fault);
    vt_comm_fail(k->comm.group, k->is.index);
}

/* Before the barrier behind a call: worker 0 notes whether the rest of the step is passed over. */
static void look_at_group(cpu_rank *k, vt_status status)
{
    if (!k->comm.group)
        return;
    if (status != VT_OK)
        cpu_rank_fail(k, CPU_FAULT_CALL);
    k->skip = atomic_load_explicit(&k->comm.group->failed, memory_order_relaxed) >= 0;
}

/* Between forward pass and sampling of a held step: waits until the rows have their masks. No span
 * has this time. Returns when the next span begins. */
static int64_t await_masks(cpu_rank *k, int32_t worker, const vt_trace_ring *ring)
{
    while (worker == 0 && !vt_word_reached(k->masks, k->masks_at))
        vt_word_wait(k->masks, k->masks_at - 1);
    vt_team_barrier(k->team, worker);
    return ring ? vt_now_ns() : 0;
}

/* Notes in `ahead` what this worker may read while it waits behind call i: the first bytes of the
 * next call that tells them. `at` is that call, so that each is asked once. */
static void look_ahead(const vt_program *p, const vt_lane *lane, int32_t i, int32_t *at,
                       vt_ahead *ahead)
{
    if (*at > i)
        return;
    *ahead = (vt_ahead){.n = 0};
    for (int32_t k = i + 1; k < p->n_calls; k++) {
        const vt_impl *impl = p->call[k].choice[0].impl;
        if (!impl->ahead || !vt_call_active(&p->call[k], &p->size))
            continue;
        impl->ahead(p->call[k].args, lane, ahead);
        *at = k;
        return;
    }
    *at = p->n_calls;
}

/* One worker's walk through the program. */
static void run_calls(void *arg, int32_t worker)
{
    cpu_rank *k = arg;
    vt_program *p = k->prog;
    cpu_recorder *recorder = &k->recorder[worker];
    int64_t waited = 0, in_step = 0;
    vt_ahead ahead = {.n = 0};
    int32_t next = -1; /* the call that `ahead` is of */
    vt_lane lane = {.target = &p->target,
                    .size = &p->size,
                    .team = k->team,
                    .worker = worker,
                    .n_workers = vt_team_size(k->team),
                    .workspace = k->workspace,
                    .workspace_bytes = p->target.workspace_bytes};
    vt_use_begin(&recorder->use, k->step.id);
    vt_trace_ring *ring = spans_of_step(k, worker);
    bool alone = lane.n_workers == 1; /* it never waits: one look at the clock is enough */
    int64_t base = k->begin_ns, begin = ring ? vt_now_ns() : 0;
    bool counts = worker == 0 && k->comm.group; /* the metrics' wait of this rank */
    lane.waited_ns = ring || counts ? &waited : NULL;
    if (ring)
        vt_trace_base(ring, k->step.id, base);
    for (int32_t i = 0; i < p->n_calls; i++) {
        if (i == p->n_forward && k->step.held)
            begin = await_masks(k, worker, ring);
        if (!vt_call_active(&p->call[i], &p->size))
            continue;
        if (worker == 0 && !k->skip)
            atomic_store_explicit(&k->call, i, memory_order_relaxed);
        vt_status status = k->skip ? VT_OK : run_call(k, &lane, i);
        int64_t ran = ring ? vt_now_ns() : 0;
        if (worker == 0)
            look_at_group(k, status);
        if (!alone)
            look_ahead(p, &lane, i, &next, &ahead);
        vt_team_barrier_ahead(k->team, &ahead);
        if (ring) {
            int64_t met = alone ? ran : vt_now_ns();
            vt_trace_met(ring, base, i, begin, ran - waited, met);
            begin = met;
        }
        in_step += waited;
        waited = 0;
    }
    if (counts)
        atomic_fetch_add_explicit(&k->comm_wait_ns, in_step, memory_order_relaxed);
    vt_use_end(&recorder->use, k->step.id, &recorder->uses);
}

static void make_plans(cpu_rank *k)
{
    vt_program *p = k->prog;
    bool used[VT_MAX_PLANS];
    vt_program_plans_used(p, &p->size, used);
    for (int32_t i = 0; i < p->n_plans; i++) {
        const vt_host_plan *plan = p->plan[i].plan;
        const void *args = p->plan[i].args;
        if (!used[i])
            continue;
        int32_t items = vt_plan_items(plan, args, &p->target, &p->size, &p->batch);
        k->items[i] = plan->fill(args, &p->target, &p->size, &p->batch, items,
                                 k->plans + k->plan_at[i], NULL);
    }
}

void cpu_rank_run(cpu_rank *k, const vt_step *step, int64_t begin_ns)
{
    vt_program *p = k->prog;
    vt_size size = vt_size_of(&step->batch);
    k->step = *step;
    k->begin_ns = begin_ns;
    k->skip = false;
    vt_program_bind(p, &step->batch, &size, step->rows);
    make_plans(k);
    for (int32_t i = 0; i < p->n_calls; i++)
        atomic_store_explicit(&k->ticket[i], 0, memory_order_relaxed);
    vt_team_run(k->team, run_calls, k);
    if (!k->comm.group)
        return;
    k->comm.base += p->n_comm + 1; /* the end of the step counts as a call, for the deadline */
    vt_word_set(&k->comm.group->flag[k->is.index], k->comm.base);
}

/* ---- making and releasing ---- */

/* Gives every plan room for the largest step. Returns the bytes of all. */
static size_t place_plans(cpu_rank *k, const vt_limits *limits)
{
    const vt_target *t = &k->prog->target;
    vt_size most = vt_size_most(limits);
    size_t bytes = 0;
    for (int32_t i = 0; i < k->prog->n_plans; i++) {
        const vt_program_plan *p = &k->prog->plan[i];
        int32_t items = vt_plan_items(p->plan, p->args, t, &most, NULL);
        k->plan_at[i] = bytes;
        bytes += vt_round_up(p->plan->bytes(p->args, t, &most, items), VT_CACHE_LINE);
    }
    return bytes;
}

/* Everything a step touches is reserved here: the step path allocates nothing. */
static vt_status reserve(cpu_rank *k, const vt_executor_config *c, vt_err *err)
{
    size_t n = (size_t)vt_team_size(k->team);
    k->token_pool = vt_calloc((size_t)c->n_pool_slots, sizeof *k->token_pool);
    k->ticket = vt_calloc((size_t)k->prog->n_calls, sizeof *k->ticket);
    k->workspace = vt_aligned_alloc(VT_CACHE_LINE, k->prog->target.workspace_bytes);
    size_t plan_bytes = place_plans(k, &c->limits);
    k->plans = vt_aligned_alloc(VT_CACHE_LINE, plan_bytes + VT_CACHE_LINE);
    k->recorder = vt_aligned_alloc(VT_CACHE_LINE, n * sizeof *k->recorder);
    if (k->recorder)
        memset(k->recorder, 0, n * sizeof *k->recorder);
    if (!k->token_pool || !k->ticket || !k->workspace || !k->plans || !k->recorder)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for the CPU executor");
    k->prog->token_pool = k->token_pool;
    vt_cpu_events("", k->counted);
    for (size_t w = 0; w < n; w++)
        vt_use_init(&k->recorder[w].use, k->counted);
    for (size_t w = 0; w < n; w++) { /* a base, and a span a call */
        TRY(vt_spans_init(&k->recorder[w].spans, k->prog->n_calls + 1, err));
        TRY(vt_trace_init(&k->recorder[w].uses, sizeof(vt_use_event), RING_USES, err));
    }
    return VT_OK;
}

vt_status cpu_rank_team(cpu_rank *k, int32_t n_threads, vt_err *err)
{
    vt_team_seat seat = {.first = k->is.index * n_threads, .step = 1, .of = k->is.n * n_threads};
    return vt_team_new_at(n_threads, &seat, &k->team, err);
}

static vt_status load_weights(cpu_rank *k, const vt_model *m, const vt_target *target,
                              const vt_progress_hook *progress, vt_err *err)
{
    vt_layout *layout;
    TRY(vt_layout_make(m, &layout, err));
    vt_ranks_narrow(layout, &k->is);
    vt_status status = vt_weights_realise_cpu(layout, k->team, target, progress, &k->weights, err);
    vt_layout_free(layout);
    return status;
}

vt_status cpu_rank_build(cpu_rank *k, const vt_model *m, const vt_executor_config *c, vt_comm *comm,
                         vt_err *err)
{
    vt_kv_shape shape;
    vt_target target = vt_target_cpu(vt_cpu_get()->level, &c->limits);
    target.limits.n_workers = vt_team_size(k->team);
    memcpy(target.backend, c->backend, sizeof target.backend);
    target.n_backends = c->n_backends;
    vt_ranks_kv_shape(m, c->kv_dtype, &k->is, &shape);
    TRY(vt_kv_cache_init_cpu(&k->kv, &shape, c->n_pages, c->n_windows, c->limits.page_size, err));
    if (vt_cpu_get()->n_nodes <= 1) /* else the first write decides on which node memory lies */
        vt_populate_begin(&k->populate, &k->kv, KV_READY_BYTES / (size_t)k->is.n);
    TRY(load_weights(k, m, &target, k->is.index == 0 ? c->progress : NULL, err));
    TRY(vt_kv_cache_add_states_cpu(&k->kv, c->n_states, err));
    k->comm = (vt_comm_rank){.group = comm, .rank = k->is.index};
    vt_program_config config = {.target = target,
                                .activation = VT_F32,
                                .end = c->end,
                                .states = c->states,
                                .comm = comm ? &k->comm : NULL};
    TRY(vt_program_build(m, k->weights, &k->kv, &config, &k->prog, err));
    for (int32_t s = 0; comm && s < VT_COMM_SLOTS; s++)
        comm->buffer[s][k->is.index] = k->prog->buffer[s];
    return reserve(k, c, err);
}

void cpu_rank_release(cpu_rank *k)
{
    for (int32_t w = 0; k->recorder && w < vt_team_size(k->team); w++) {
        vt_spans_release(&k->recorder[w].spans);
        vt_trace_release(&k->recorder[w].uses);
        vt_use_release(&k->recorder[w].use);
    }
    free(k->recorder);
    free(k->workspace);
    free(k->plans);
    free(k->ticket);
    free(k->token_pool);
    vt_program_free(k->prog);
    vt_populate_end(&k->populate);
    vt_kv_cache_release(&k->kv);
    vt_weights_free(k->weights);
    vt_team_free(k->team);
}
