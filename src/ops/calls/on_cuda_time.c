/* Timing calls on a GPU: the methods of on_cuda.h.
 *
 * Events are recorded on the stream and read after everything has run, so that the device never
 * waits for the host between launches. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/stats.h"
#include "ops/calls/on_cuda.h"

enum { REPS = 30, WARM_UP = 3, CALLS = 48, LAUNCHES = 10, MOST_EVENTS = 64 };
/* The most bytes for all copies of the weights that the calls of a graph read. */
#define COPIES_BYTES ((size_t)3 << 30)

const char *const on_cuda_method_name[ON_CUDA_METHODS] = {"cold", "warm", "graph", "pdl"};

static cu_ptr address(const void *p) { return (cu_ptr)(uintptr_t)p; }

typedef struct events {
    const cuda_driver *d;
    cu_event at[MOST_EVENTS];
    int32_t n;
} events;

static vt_status events_make(on_cuda *c, int32_t n, events *e, vt_err *err)
{
    *e = (events){.d = &c->gpu->cuda->driver};
    for (; e->n < n; e->n++)
        TRY(vt_cuda_check(c->gpu->cuda, e->d->event_create(&e->at[e->n], CU_EVENT_DEFAULT), "event",
                          err));
    return VT_OK;
}

static void events_release(events *e)
{
    while (e->n > 0)
        e->d->event_destroy(e->at[--e->n]);
}

static vt_status mark(on_cuda *c, events *e, int32_t i, vt_err *err)
{
    return vt_cuda_check(c->gpu->cuda, e->d->event_record(e->at[i], c->gpu->lane.stream), "event",
                         err);
}

static vt_status finish(on_cuda *c, vt_err *err)
{
    return vt_cuda_check(c->gpu->cuda, c->gpu->cuda->driver.stream_sync(c->gpu->lane.stream),
                         "running a kernel", err);
}

static void summarise(double *us, int32_t n, on_cuda_times *out)
{
    *out = (on_cuda_times){.us_min = us[0], .n = n};
    out->us_max = us[0];
    for (int32_t i = 1; i < n; i++) {
        out->us_min = us[i] < out->us_min ? us[i] : out->us_min;
        out->us_max = us[i] > out->us_max ? us[i] : out->us_max;
    }
    out->us = vt_median(us, (size_t)n);
    out->noise = vt_noise(us, (size_t)n);
}

/* ---- cold and warm ---- */

static vt_status put_back(on_cuda *c, vt_err *err)
{
    const cuda_driver *d = &c->gpu->cuda->driver;
    for (int32_t i = 0; i < c->n_twins; i++) {
        const on_cuda_twin *w = &c->twin[i];
        if (w->first)
            TRY(vt_cuda_check(
                c->gpu->cuda,
                d->copy_device(address(w->base), address(w->first), w->bytes, c->gpu->lane.stream),
                "putting an operand back", err));
    }
    return VT_OK;
}

static vt_status single(on_cuda *c, bool cold, int32_t i, events *e, vt_err *err)
{
    on_cuda_gpu *g = c->gpu;
    int32_t slot = i < 0 ? 0 : i;
    TRY(put_back(c, err));
    if (cold)
        TRY(vt_cuda_check(g->cuda,
                          g->cuda->driver.fill8(address(g->flush), (unsigned char)i, g->flush_bytes,
                                                g->lane.stream),
                          "flush", err));
    TRY(mark(c, e, 2 * slot, err));
    TRY(on_cuda_launch(c, err));
    return mark(c, e, 2 * slot + 1, err);
}

static vt_status time_single(on_cuda *c, bool cold, int32_t reps, on_cuda_times *out, vt_err *err)
{
    double us[REPS];
    events e;
    if (cold && !c->gpu->flush)
        return vt_fail(err, VT_ERR_USAGE, "cold calls need memory to flush with");
    vt_status status = events_make(c, 2 * reps, &e, err);
    for (int32_t i = -WARM_UP; i < reps && status == VT_OK; i++)
        status = single(c, cold, i, &e, err);
    if (status == VT_OK)
        status = finish(c, err);
    for (int32_t i = 0; i < reps && status == VT_OK; i++) {
        float ms = 0;
        status = vt_cuda_check(c->gpu->cuda, e.d->event_elapsed(&ms, e.at[2 * i], e.at[2 * i + 1]),
                               "event", err);
        us[i] = (double)ms * 1e3;
    }
    if (status == VT_OK)
        summarise(us, reps, out);
    events_release(&e);
    return status;
}

/* ---- graphs ---- */

/* Copies of the weights. Each copy has all matrices; copy 0 is the original. */
typedef struct weight_copies {
    char *base[4];
    size_t stride[4];
    int32_t n;
} weight_copies;

static vt_status copies_make(on_cuda *c, int32_t calls, weight_copies *k, vt_err *err)
{
    const cuda_driver *d = &c->gpu->cuda->driver;
    size_t all = 0;
    *k = (weight_copies){.n = 1};
    for (int32_t i = 0; i < c->n_weights; i++)
        all += vt_round_up(c->weights[i].bytes, 256);
    size_t room = all ? COPIES_BYTES / all : 1;
    k->n = room > (size_t)calls ? calls : room > 1 ? (int32_t)room : 1;
    for (int32_t i = 0; i < c->n_weights && k->n > 1; i++) {
        const on_cuda_weights *w = &c->weights[i];
        void *p;
        k->stride[i] = vt_round_up(w->bytes, 256);
        TRY(vt_cuda_alloc(c->gpu->cuda, k->stride[i] * (size_t)k->n, &p, err));
        k->base[i] = p;
        for (int32_t n = 0; n < k->n; n++)
            TRY(vt_cuda_check(c->gpu->cuda,
                              d->copy_device(address(k->base[i] + (size_t)n * k->stride[i]),
                                             address(w->base), w->bytes, c->gpu->lane.stream),
                              "copying weights", err));
    }
    return finish(c, err);
}

static void use_copy(on_cuda *c, const weight_copies *k, int32_t call)
{
    for (int32_t i = 0; i < c->n_weights; i++) {
        on_cuda_weights *w = &c->weights[i];
        char *base = k->base[i] ? k->base[i] + (size_t)(call % k->n) * k->stride[i] : w->base;
        for (int32_t n = 0; n < w->n; n++)
            w->part[n].data = base + (size_t)n * w->each;
    }
}

static void copies_release(on_cuda *c, weight_copies *k)
{
    static const weight_copies none = {.n = 1};
    use_copy(c, &none, 0);
    for (int32_t i = 0; i < 4; i++)
        if (k->base[i])
            vt_cuda_free(c->gpu->cuda, k->base[i]);
}

static vt_status capture(on_cuda *c, bool pdl, int32_t calls, const weight_copies *k,
                         cuda_graph *graph, vt_err *err)
{
    vt_cuda_lane *l = &c->gpu->lane;
    bool before = l->pdl;
    vt_err ended_err = {0};
    TRY(cuda_graph_begin(l, err));
    l->pdl = pdl;
    vt_status status = VT_OK;
    for (int32_t i = 0; i < calls && status == VT_OK; i++) {
        use_copy(c, k, i);
        status = on_cuda_launch(c, err);
    }
    l->pdl = before;
    vt_status ended = cuda_graph_end(l, graph, &ended_err);
    if (status == VT_OK && ended != VT_OK && err)
        *err = ended_err;
    if (status != VT_OK && ended == VT_OK)
        cuda_graph_release(c->gpu->cuda, graph);
    return status != VT_OK ? status : ended;
}

static vt_status time_launches(on_cuda *c, const cuda_graph *graph, int32_t launches, int32_t calls,
                               on_cuda_times *out, vt_err *err)
{
    double us[LAUNCHES];
    events e;
    vt_status status = events_make(c, launches + 1, &e, err);
    for (int32_t i = 0; i <= launches && status == VT_OK; i++) { /* the first is not counted */
        status = cuda_graph_launch(&c->gpu->lane, graph, err);
        if (status == VT_OK)
            status = mark(c, &e, i, err);
    }
    if (status == VT_OK)
        status = finish(c, err);
    for (int32_t i = 0; i < launches && status == VT_OK; i++) {
        float ms = 0;
        status = vt_cuda_check(c->gpu->cuda, e.d->event_elapsed(&ms, e.at[i], e.at[i + 1]), "event",
                               err);
        us[i] = (double)ms * 1e3 / calls;
    }
    if (status == VT_OK)
        summarise(us, launches, out);
    events_release(&e);
    return status;
}

static vt_status time_graph(on_cuda *c, bool pdl, bool quick, on_cuda_times *out, vt_err *err)
{
    int32_t calls = quick ? 4 : CALLS, launches = quick ? 2 : LAUNCHES;
    weight_copies k;
    cuda_graph graph = {0};
    vt_status status = copies_make(c, calls, &k, err);
    if (status == VT_OK)
        status = put_back(c, err);
    if (status == VT_OK)
        status = finish(c, err);
    if (status == VT_OK)
        status = capture(c, pdl, calls, &k, &graph, err);
    if (status == VT_OK) {
        status = time_launches(c, &graph, launches, calls, out, err);
        cuda_graph_release(c->gpu->cuda, &graph);
    }
    copies_release(c, &k);
    return status;
}

vt_status on_cuda_time(on_cuda *c, on_cuda_method method, bool quick, on_cuda_times *out,
                       vt_err *err)
{
    if (!c->compiled)
        TRY(on_cuda_run(c, err));
    if (method == ON_CUDA_COLD || method == ON_CUDA_WARM)
        return time_single(c, method == ON_CUDA_COLD, quick ? 3 : REPS, out, err);
    return time_graph(c, method == ON_CUDA_PDL, quick, out, err);
}
