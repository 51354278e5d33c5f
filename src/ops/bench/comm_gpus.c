/* Running and timing communication ops on GPUs (ops/bench/comm_gpus.h).
 *
 * A graph holds CALLS calls that follow each other on two alternating buffers, as in a step. All
 * ranks get the same graphs in turn; only the first can wait for the launches of the others. */
#include "ops/bench/comm_gpus.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/quant.h"
#include "base/stats.h"
#include "ops/all_gather/all_gather.h"
#include "ops/all_reduce/all_reduce.h"
#include "ops/cases.h"
#include "ops/comm.h"
#include "ops/comm_inbox_params.h"

enum { SLOTS = 2, CALLS = 64, MOST_REPETITIONS = 200, PART_BYTES = 16 << 20 };

/* A rank's GPU, and the args of the present run. */
typedef struct member {
    vt_cuda *cuda;
    vt_cuda_lane lane;
    vt_comm_rank comm;
    void *flags, *part, *base;
    vt_tensor buffer[SLOTS], made, residual, y;
    union {
        all_reduce_args reduce;
        all_gather_args gather;
    } args[SLOTS];
    cuda_graph graph;
    cu_event event[MOST_REPETITIONS + 1];
} member;

struct comm_gpus {
    vt_comm *comm;
    vt_comm_gpu gpu;
    member rank[COMM_GPU_RANKS];
    int32_t n;
    unsigned base;                                     /* of the next call or graph */
    vt_tensor *host_x[COMM_GPU_RANKS], *host_residual; /* of the present run */
};

static cu_ptr at(const void *p) { return (cu_ptr)(uintptr_t)p; }

/* ---- opening ---- */

static vt_status open_member(comm_gpus *g, int32_t r, int32_t ordinal, vt_err *err)
{
    member *m = &g->rank[r];
    TRY(vt_cuda_open(ordinal, &m->cuda, err));
    m->comm = (vt_comm_rank){.group = g->comm, .rank = r};
    m->lane = (vt_cuda_lane){.cuda = m->cuda, .pdl = m->cuda->level >= 90};
    const cuda_driver *d = &m->cuda->driver;
    TRY(vt_cuda_check(m->cuda, d->stream_create(&m->lane.stream, CU_STREAM_NON_BLOCKING, 0),
                      "making a stream", err));
    TRY(vt_cuda_alloc(m->cuda, COMM_CTAS * COMM_GPU_RANKS * 4, &m->flags, err));
    size_t shared = PART_BYTES + comm_inbox_bytes(g->n);
    TRY(vt_cuda_alloc(m->cuda, shared, &m->part, err));
    TRY(vt_cuda_check(m->cuda, d->fill8(at(m->part), 0, shared, m->lane.stream), "clearing", err));
    TRY(vt_cuda_alloc(m->cuda, 4, &m->base, err));
    TRY(vt_cuda_check(m->cuda,
                      d->fill8(at(m->flags), 0, COMM_CTAS * COMM_GPU_RANKS * 4, m->lane.stream),
                      "clearing", err));
    for (int32_t i = 0; i <= MOST_REPETITIONS; i++)
        TRY(vt_cuda_check(m->cuda, d->event_create(&m->event[i], CU_EVENT_DEFAULT),
                          "making an event", err));
    g->gpu.flag[r] = m->flags;
    g->gpu.part[r] = m->part;
    return vt_cuda_check(m->cuda, d->stream_sync(m->lane.stream), "clearing", err);
}

static vt_status open_all(comm_gpus *g, const int32_t *gpu, int32_t n, vt_err *err)
{
    void *p;
    if (n < 1 || n > COMM_GPU_RANKS)
        return vt_fail(err, VT_ERR_USAGE, "tp is %d, expected 1 to %d ranks on GPUs", n,
                       COMM_GPU_RANKS);
    g->n = n;
    g->gpu = (vt_comm_gpu){.part_bytes = PART_BYTES, .limit_ns = (uint64_t)10 * 1000000000};
    TRY(vt_comm_new(n, &g->comm, err));
    g->comm->gpu = &g->gpu;
    for (int32_t r = 0; r < n; r++) {
        TRY(open_member(g, r, gpu[r], err));
        for (int32_t k = 0; k < r; k++)
            g->gpu.together = g->gpu.together || gpu[k] == gpu[r];
    }
    TRY(vt_cuda_pinned(g->rank[n - 1].cuda, sizeof *g->gpu.failed, &p, err));
    g->gpu.failed = p;
    *g->gpu.failed = 0;
    for (int32_t r = 0; r < n; r++)
        for (int32_t k = 0; k < n; k++) {
            TRY(vt_cuda_enter(g->rank[r].cuda, err));
            TRY(vt_cuda_open_peer(g->rank[r].cuda, g->rank[k].cuda, err));
        }
    return VT_OK;
}

vt_status comm_gpus_open(const int32_t *gpu, int32_t n, comm_gpus **out, vt_err *err)
{
    comm_gpus *g = vt_calloc(1, sizeof *g);
    if (!g)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for %d GPUs", n);
    vt_status status = open_all(g, gpu, n, err);
    if (status != VT_OK)
        comm_gpus_close(g);
    else
        *out = g;
    return status;
}

void comm_gpus_close(comm_gpus *g)
{
    if (!g)
        return;
    for (int32_t r = g->n - 1; r >= 0; r--) {
        member *m = &g->rank[r];
        if (!m->cuda || vt_cuda_enter(m->cuda, NULL) != VT_OK)
            continue;
        for (int32_t i = 0; i <= MOST_REPETITIONS; i++)
            if (m->event[i])
                m->cuda->driver.event_destroy(m->event[i]);
        if (m->lane.stream)
            m->cuda->driver.stream_destroy(m->lane.stream);
        vt_cuda_free(m->cuda, m->flags);
        vt_cuda_free(m->cuda, m->part);
        vt_cuda_free(m->cuda, m->base);
        if (r == g->n - 1) /* where it was made */
            vt_cuda_pinned_free(m->cuda, g->gpu.failed);
    }
    for (int32_t r = 0; r < g->n; r++)
        vt_cuda_close(g->rank[r].cuda);
    vt_comm_free(g->comm);
    free(g);
}

const char *comm_gpus_name(const comm_gpus *g) { return g->rank[0].cuda->name; }

/* ---- the tensors of a run ---- */

static vt_dtype type_of(const comm_ask *a) { return a->op == &all_gather_op ? VT_F32 : VT_BF16; }

/* Gives a tensor device memory; with `from` its values, which the type holds exactly afterwards. */
static vt_status place(member *m, vt_tensor *t, vt_dtype type, int64_t rows, int64_t cols,
                       const vt_tensor *from, vt_err *err)
{
    *t = vt_tensor_2d(NULL, type, rows, cols);
    size_t bytes = (size_t)vt_tensor_bytes(t);
    TRY(vt_cuda_alloc(m->cuda, bytes, &t->data, err));
    char *image = from ? malloc(bytes) : NULL;
    if (!from)
        return VT_OK;
    if (!image)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for %zu bytes", bytes);
    if (type == VT_F32)
        memcpy(image, from->data, bytes);
    else
        vt_quant_row(type, from->data, image, rows * cols);
    cu_result r = m->cuda->driver.copy_to_device(at(t->data), image, bytes, m->lane.stream);
    if (r == 0)
        r = m->cuda->driver.stream_sync(m->lane.stream);
    free(image);
    return vt_cuda_check(m->cuda, r, "uploading", err);
}

/* Rounds a host tensor to what the GPU's type holds. */
static void round_to(vt_dtype type, vt_tensor *t)
{
    float *v = t->data;
    for (int64_t i = 0; type == VT_BF16 && i < vt_tensor_elems(t); i++)
        v[i] = vt_bf16_to_f32(vt_f32_to_bf16(v[i]));
}

static vt_status make_member(comm_gpus *g, const comm_ask *a, int32_t r, vt_err *err)
{
    member *m = &g->rank[r];
    int64_t cols = g->host_x[r]->dim[1];
    TRY(vt_cuda_enter(m->cuda, err));
    TRY(place(m, &m->made, type_of(a), a->rows, cols, g->host_x[r], err));
    TRY(place(m, &m->y, type_of(a), a->rows, a->n, NULL, err));
    if (a->residual)
        TRY(place(m, &m->residual, type_of(a), a->rows, a->n, g->host_residual, err));
    for (int32_t k = 0; k < SLOTS; k++) {
        vt_comm_slot slot = (vt_comm_slot)k;
        TRY(place(m, &m->buffer[k], type_of(a), a->rows, cols, g->host_x[r], err));
        g->comm->buffer[k][r] = &m->buffer[k];
        if (a->op == &all_gather_op)
            m->args[k].gather = (all_gather_args){
                .comm = &m->comm, .slot = slot, .x = &m->buffer[k], .y = &m->y};
        else
            m->args[k].reduce = (all_reduce_args){.comm = &m->comm,
                                                  .slot = slot,
                                                  .x = &m->buffer[k],
                                                  .residual = a->residual ? &m->residual : NULL,
                                                  .y = &m->y};
    }
    return VT_OK;
}

static void release_member(member *m)
{
    vt_tensor *t[] = {&m->made, &m->residual, &m->y, &m->buffer[0], &m->buffer[1]};
    if (vt_cuda_enter(m->cuda, NULL) != VT_OK)
        return;
    m->cuda->driver.stream_sync(m->lane.stream);
    cuda_graph_release(m->cuda, &m->graph);
    m->graph = (cuda_graph){0};
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        vt_cuda_free(m->cuda, t[i]->data);
        *t[i] = (vt_tensor){0};
    }
}

static vt_status make_host(comm_gpus *g, const comm_ask *a, vt_arena *arena, vt_err *err)
{
    uint64_t seed = 1;
    bool gather = a->op == &all_gather_op;
    for (int32_t r = 0; r <= g->n; r++) {
        int64_t cols = gather && r < g->n ? a->n * (r + 1) / g->n - a->n * r / g->n : a->n;
        vt_tensor *t = case_fill(arena, case_tensor_2d(arena, VT_F32, a->rows, cols), 0, 1, &seed);
        if (!t)
            return vt_fail(err, VT_ERR_MEMORY, "out of memory for %lld values",
                           (long long)(a->rows * cols));
        round_to(type_of(a), t);
        *(r < g->n ? &g->host_x[r] : &g->host_residual) = t;
    }
    return VT_OK;
}

/* ---- calls ---- */

static vt_status call(comm_gpus *g, const comm_ask *a, const vt_impl *impl, int32_t r,
                      unsigned order, vt_err *err)
{
    member *m = &g->rank[r];
    int32_t k = (int32_t)(order % SLOTS);
    vt_size size = {.tokens = (int32_t)a->rows, .rows = (int32_t)a->rows};
    vt_target target = {.device = VT_DEVICE_CUDA, .level = m->cuda->level};
    vt_lane lane = {
        .target = &target, .size = &size, .plan = m->base, .items = 1, .cuda = &m->lane};
    if (a->op == &all_gather_op)
        m->args[k].gather.order = order;
    else
        m->args[k].reduce.order = order;
    if (a->how == COMM_COPIED && !m->lane.collect)
        TRY(vt_cuda_check(m->cuda,
                          m->cuda->driver.copy_device(at(m->buffer[k].data), at(m->made.data),
                                                      (size_t)vt_tensor_bytes(&m->made),
                                                      m->lane.stream),
                          "copying into a buffer", err));
    vt_status status = impl->run(&m->args[k], &lane);
    if (status != VT_OK && err)
        *err = m->lane.err;
    return status;
}

static vt_status compile(comm_gpus *g, const comm_ask *a, const vt_impl *impl, int32_t r,
                         vt_err *err)
{
    member *m = &g->rank[r];
    TRY(vt_cuda_enter(m->cuda, err));
    m->lane.collect = true;
    vt_status status = call(g, a, impl, r, 1, err);
    m->lane.collect = false;
    TRY(status);
    return vt_cuda_compile(m->cuda, NULL, NULL, err);
}

/* Sends the base of the next `calls` calls to every rank. */
static vt_status send_base(comm_gpus *g, int32_t r, vt_err *err)
{
    member *m = &g->rank[r];
    return vt_cuda_check(m->cuda,
                         m->cuda->driver.copy_to_device(at(m->base), &g->base, 4, m->lane.stream),
                         "sending a number", err);
}

static vt_status wait_all(comm_gpus *g, vt_err *err)
{
    for (int32_t r = 0; r < g->n; r++) {
        member *m = &g->rank[r];
        TRY(vt_cuda_enter(m->cuda, err));
        TRY(vt_cuda_check(m->cuda, m->cuda->driver.stream_sync(m->lane.stream),
                          "waiting for the ranks", err));
    }
    uint32_t failed = *(volatile uint32_t *)g->gpu.failed;
    if (failed)
        return vt_fail(err, VT_ERR_DEVICE, "rank %d did not come to a call within 10 s",
                       (int32_t)(failed & 0xff) - 1);
    return VT_OK;
}

static vt_status run_once(comm_gpus *g, const comm_ask *a, const vt_impl *impl, vt_err *err)
{
    for (int32_t r = 0; r < g->n; r++) {
        TRY(vt_cuda_enter(g->rank[r].cuda, err));
        TRY(send_base(g, r, err));
        for (unsigned order = 1; order <= SLOTS; order++)
            TRY(call(g, a, impl, r, order, err));
    }
    g->base += SLOTS;
    return wait_all(g, err);
}

/* ---- checking ---- */

static void *fetch(comm_gpus *g, int32_t r, vt_err *err)
{
    member *m = &g->rank[r];
    size_t bytes = (size_t)vt_tensor_bytes(&m->y);
    void *to = malloc(bytes);
    if (!to || vt_cuda_enter(m->cuda, err) != VT_OK ||
        vt_cuda_check(m->cuda,
                      m->cuda->driver.copy_to_host(to, at(m->y.data), bytes, m->lane.stream),
                      "fetching", err) != VT_OK ||
        m->cuda->driver.stream_sync(m->lane.stream) != 0) {
        free(to);
        return NULL;
    }
    return to;
}

/* The reference works on the host's tensors, through a group of its own. */
static vt_tensor *reference(const comm_gpus *g, const comm_ask *a, vt_arena *arena)
{
    vt_tensor *y = case_tensor_2d(arena, VT_F32, a->rows, a->n);
    vt_comm_rank *c = case_comm(arena, 0, g->n);
    if (!y || !c)
        return NULL;
    for (int32_t r = 0; r < g->n; r++)
        c->group->buffer[0][r] = g->host_x[r];
    all_gather_args gather = {.comm = c, .x = g->host_x[0], .y = y};
    all_reduce_args reduce = {
        .comm = c, .x = g->host_x[0], .residual = a->residual ? g->host_residual : NULL, .y = y};
    a->op->reference(a->op == &all_gather_op ? (void *)&gather : (void *)&reduce);
    return y;
}

static vt_status check(comm_gpus *g, const comm_ask *a, vt_arena *arena, comm_result *out,
                       vt_err *err)
{
    vt_tensor *want = reference(g, a, arena);
    void *first = want ? fetch(g, 0, err) : NULL;
    if (!first)
        return vt_fail(err, VT_ERR_MEMORY, "a result could not be fetched");
    out->agree = true;
    for (int32_t r = 1; r < g->n; r++) {
        void *other = fetch(g, r, err);
        out->agree = out->agree && other &&
                     memcmp(first, other, (size_t)vt_tensor_bytes(&g->rank[0].y)) == 0;
        free(other);
    }
    for (int64_t i = 0; i < a->rows * a->n; i++) {
        double w = (double)((const float *)want->data)[i],
               v = type_of(a) == VT_F32 ? (double)((const float *)first)[i]
                                        : (double)vt_bf16_to_f32(((const uint16_t *)first)[i]);
        out->error = fmax(out->error, isfinite(v) ? fabs(v - w) / (1 + fabs(w)) : INFINITY);
    }
    free(first);
    return VT_OK;
}

/* ---- timing ---- */

static vt_status capture(comm_gpus *g, const comm_ask *a, const vt_impl *impl, int32_t r,
                         vt_err *err)
{
    member *m = &g->rank[r];
    TRY(vt_cuda_enter(m->cuda, err));
    TRY(cuda_graph_begin(&m->lane, err));
    vt_status status = VT_OK;
    for (unsigned order = 1; order <= CALLS && status == VT_OK; order++)
        status = call(g, a, impl, r, order, err);
    vt_status ended = cuda_graph_end(&m->lane, &m->graph, status == VT_OK ? err : NULL);
    return status == VT_OK ? ended : status;
}

static vt_status launch_graphs(comm_gpus *g, int32_t i, vt_err *err)
{
    for (int32_t r = 0; r < g->n; r++) {
        member *m = &g->rank[r];
        TRY(vt_cuda_enter(m->cuda, err));
        TRY(send_base(g, r, err));
        TRY(vt_cuda_check(m->cuda, m->cuda->driver.event_record(m->event[i], m->lane.stream),
                          "recording an event", err));
        TRY(cuda_graph_launch(&m->lane, &m->graph, err));
    }
    g->base += CALLS;
    return VT_OK;
}

static vt_status measure(comm_gpus *g, const comm_ask *a, const vt_impl *impl, comm_result *out,
                         vt_err *err)
{
    double ns[MOST_REPETITIONS];
    int32_t reps = a->repetitions < MOST_REPETITIONS ? a->repetitions : MOST_REPETITIONS;
    member *first = &g->rank[0];
    for (int32_t r = 0; r < g->n; r++)
        TRY(capture(g, a, impl, r, err));
    TRY(launch_graphs(g, 0, err)); /* the ranks come together */
    for (int32_t i = 0; i <= reps; i++)
        TRY(launch_graphs(g, i, err));
    TRY(wait_all(g, err));
    TRY(vt_cuda_enter(first->cuda, err));
    for (int32_t i = 0; i < reps; i++) {
        float ms = 0;
        TRY(vt_cuda_check(
            first->cuda,
            first->cuda->driver.event_elapsed(&ms, first->event[i], first->event[i + 1]),
            "reading an event", err));
        ns[i] = (double)ms * 1e6 / CALLS;
    }
    out->noise = vt_noise(ns, (size_t)reps);
    out->median_ns = llround(vt_median(ns, (size_t)reps));
    out->best_ns = llround(ns[0]); /* they are sorted now */
    return VT_OK;
}

/* ---- a run ---- */

static const vt_impl *choose(const comm_gpus *g, const comm_ask *a)
{
    const vt_cuda *c = g->rank[0].cuda;
    vt_size size = {.tokens = (int32_t)a->rows, .rows = (int32_t)a->rows};
    vt_target t = {.device = VT_DEVICE_CUDA, .level = c->level, .sm_count = c->sm_count};
    const vt_impl *row = a->row ? vt_op_row(a->op, VT_DEVICE_CUDA, a->row)
                                : vt_op_select(a->op, &g->rank[0].args[0], &t, &size);
    return row && vt_impl_fits(row, &g->rank[0].args[0], &t, &size) ? row : NULL;
}

static vt_status run(comm_gpus *g, const comm_ask *a, vt_arena *arena, comm_result *out,
                     vt_err *err)
{
    TRY(make_host(g, a, arena, err));
    for (int32_t r = 0; r < g->n; r++)
        TRY(make_member(g, a, r, err));
    const vt_impl *impl = choose(g, a);
    if (!impl)
        return vt_fail(err, VT_ERR_UNSUPPORTED, "%s: no row %s for this call", a->op->name,
                       a->row ? a->row : "");
    for (int32_t r = 0; r < g->n; r++)
        TRY(compile(g, a, impl, r, err));
    out->impl = impl;
    out->message_bytes = vt_tensor_bytes(&g->rank[0].made);
    vt_cost cost = a->op->cost(&g->rank[0].args[0], NULL);
    out->moved_bytes = vt_cost_bytes(&cost) + (a->how == COMM_COPIED ? 2 * out->message_bytes : 0);
    TRY(run_once(g, a, impl, err));
    TRY(check(g, a, arena, out, err));
    return a->repetitions > 0 ? measure(g, a, impl, out, err) : VT_OK;
}

vt_status comm_gpus_run(comm_gpus *g, const comm_ask *a, comm_result *out, vt_err *err)
{
    vt_arena arena;
    vt_arena_init(&arena, 0);
    *out = (comm_result){0};
    vt_status status = run(g, a, &arena, out, err);
    for (int32_t r = 0; r < g->n; r++)
        release_member(&g->rank[r]);
    vt_arena_release(&arena);
    return status;
}
