/* Opening a GPU; memory, plan and runs of a call: see on_cuda.h. */
#include "ops/calls/on_cuda_inside.h"

#include <stdlib.h>
#include <string.h>

#include "device/cuda/cublaslt.h"
#include "ops/knobs.h"

enum { SLACK = ON_CUDA_SLACK };

static vt_status check(const on_cuda_gpu *g, cu_result r, const char *what, vt_err *err)
{
    return vt_cuda_check(g->cuda, r, what, err);
}

vt_status on_cuda_wait(on_cuda_gpu *g, const char *what, vt_err *err)
{
    return check(g, g->cuda->driver.stream_sync(g->lane.stream), what, err);
}

/* ---- the GPU ---- */

static vt_status open_memory(on_cuda_gpu *g, size_t flush_bytes, vt_err *err)
{
    const cuda_driver *d = &g->cuda->driver;
    TRY(check(g, d->stream_create(&g->lane.stream, CU_STREAM_NON_BLOCKING, 0), "stream", err));
    TRY(vt_cuda_alloc(g->cuda, CUDA_TICKETS * 4, &g->tickets, err));
    TRY(check(g, d->fill8(address(g->tickets), 0, CUDA_TICKETS * 4, g->lane.stream), "tickets",
              err));
    if (flush_bytes)
        TRY(vt_cuda_alloc(g->cuda, flush_bytes, &g->flush, err));
    g->flush_bytes = flush_bytes;
    return on_cuda_wait(g, "opening a stream", err);
}

vt_status on_cuda_open(int32_t ordinal, const on_cuda_options *o, on_cuda_gpu *g, vt_err *err)
{
    *g = (on_cuda_gpu){.padded = o->padded, .margin = o->margin};
    TRY(vt_cuda_open(ordinal, &g->cuda, err));
    const vt_cuda *c = g->cuda;
    char why[160];
    bool library = o->library && !o->deterministic && c->cublaslt_use != CUBLASLT_NEVER &&
                   vt_cublaslt_open(g->cuda, why, sizeof why) > 0;
    g->lane = (vt_cuda_lane){.cuda = g->cuda, .pdl = o->pdl};
    g->emulated = strstr(c->name, "Emulated") != NULL;
    g->target = (vt_target){.device = VT_DEVICE_CUDA,
                            .level = c->level,
                            .sm_count = c->sm_count,
                            .max_shared_bytes = c->max_shared_bytes,
                            .deterministic = o->deterministic,
                            .cublaslt = library,
                            .cublaslt_all = library};
    vt_target_turn_knobs(&g->target, o->always);
    vt_status status = open_memory(g, o->flush_bytes, err);
    if (status != VT_OK)
        on_cuda_close(g);
    return status;
}

void on_cuda_close(on_cuda_gpu *g)
{
    if (!g->cuda)
        return;
    vt_cuda_free(g->cuda, g->flush);
    vt_cuda_free(g->cuda, g->tickets);
    if (g->lane.stream)
        g->cuda->driver.stream_destroy(g->lane.stream);
    vt_cuda_close(g->cuda);
    *g = (on_cuda_gpu){0};
}

/* ---- device memory of a call ---- */

vt_status on_cuda_upload(on_cuda *c, void *to, const void *from, size_t bytes, vt_err *err)
{
    on_cuda_gpu *g = c->gpu;
    if (bytes == 0)
        return VT_OK;
    TRY(check(g, g->cuda->driver.copy_to_device(address(to), from, bytes, g->lane.stream), "upload",
              err));
    return on_cuda_wait(g, "upload", err); /* `from` may be freed now */
}

/* ---- the row ---- */

static void drop_row(on_cuda *c)
{
    void *block[] = {c->plan, c->side, c->workspace};
    for (size_t i = 0; i < sizeof block / sizeof *block; i++)
        if (block[i])
            vt_cuda_free(c->gpu->cuda, block[i]);
    c->plan = c->side = c->workspace = NULL;
    c->impl = NULL;
    c->items = c->filled = c->variant = 0;
    c->compiled = false;
}

void on_cuda_release(on_cuda *c)
{
    if (!c->gpu)
        return;
    drop_row(c);
    for (int32_t i = 0; i < c->n_blocks; i++)
        vt_cuda_free(c->gpu->cuda, c->block[i].base);
    free(c->block);
    vt_arena_release(&c->arena);
    *c = (on_cuda){0};
}

bool on_cuda_fits(const on_cuda *c, const vt_impl *impl)
{
    return vt_impl_fits(impl, c->args, &c->target, &c->size);
}

const vt_impl *on_cuda_choice(const on_cuda *c)
{
    return vt_op_select(c->op, c->args, &c->target, &c->size);
}

static vt_status make_plan(on_cuda *c, const vt_host_plan *p, vt_err *err)
{
    const vt_target *t = &c->target;
    c->items = p->items(c->args, t, &c->size, c->batch);
    c->variant = vt_plan_variant(p, c->args, t, &c->size, c->batch);
    size_t bytes = p->bytes(c->args, t, &c->size, c->items);
    size_t side_bytes = p->side_bytes ? p->side_bytes(c->args, c->batch) : 0;
    char *plan = calloc(bytes + 16, 1), *side = calloc(side_bytes + 16, 1);
    vt_status status = plan && side ? VT_OK : no_memory(c, err);
    if (status == VT_OK) {
        int32_t n = p->fill(c->args, t, &c->size, c->batch, c->items, plan, side);
        c->filled = n;
        if (n > c->items)
            status = vt_fail(err, VT_ERR_DEVICE,
                             "%s: the plan '%s' of %s filled %d items, and said %d", c->op->name,
                             p->name, c->impl->name, n, c->items);
    }
    if (status == VT_OK)
        status = vt_cuda_alloc(c->gpu->cuda, bytes + SLACK, &c->plan, err);
    if (status == VT_OK)
        status = vt_cuda_alloc(c->gpu->cuda, side_bytes + SLACK, &c->side, err);
    if (status == VT_OK)
        status = on_cuda_upload(c, c->plan, plan, bytes, err);
    if (status == VT_OK)
        status = on_cuda_upload(c, c->side, side, side_bytes, err);
    free(side);
    free(plan);
    return status;
}

void on_cuda_window(on_cuda *c, int64_t at, int64_t n)
{
    int64_t all = 0;
    for (int32_t i = 0; i < c->n_twins && all == 0; i++)
        all = c->twin[i].host.rank == 2 ? c->twin[i].host.dim[0] : 0;
    for (int32_t i = 0; i < c->n_twins; i++) {
        on_cuda_twin *w = &c->twin[i];
        if (w->host.rank != 2 || w->host.dim[0] != all)
            continue;
        w->device.data = w->base + vt_dtype_row_bytes(w->device.dtype, at * w->device.row_stride);
        w->device.dim[0] = n;
    }
    c->counted.n_tokens = c->counted.n_seqs = c->counted.n_rows = (int32_t)n;
    c->size.tokens = c->size.seqs = c->size.rows = c->size.prefills = (int32_t)n;
}

vt_status on_cuda_take(on_cuda *c, const vt_impl *impl, vt_err *err)
{
    drop_row(c);
    c->target.workspace_bytes = 0;
    if (!on_cuda_fits(c, impl))
        return vt_fail(err, VT_ERR_UNSUPPORTED, "%s: %s does not take this call", c->op->name,
                       impl->name);
    c->impl = impl;
    size_t bytes = impl->workspace ? impl->workspace(c->args, &c->target) : 0;
    c->n_tickets = impl->tickets ? impl->tickets(c->args, &c->target) : 0;
    if (c->n_tickets > CUDA_TICKETS)
        return vt_fail(err, VT_ERR_UNSUPPORTED, "%s, %s: %lld tickets wanted, there are %d",
                       c->op->name, impl->name, (long long)c->n_tickets, CUDA_TICKETS);
    TRY(vt_cuda_alloc(c->gpu->cuda, bytes + SLACK, &c->workspace, err));
    c->target.workspace_bytes = bytes;
    return impl->plan ? make_plan(c, impl->plan, err) : VT_OK;
}

vt_status on_cuda_launch(on_cuda *c, vt_err *err)
{
    vt_cuda_lane *l = &c->gpu->lane;
    vt_lane lane = {.target = &c->target,
                    .size = &c->size,
                    .plan = c->plan,
                    .side = c->side,
                    .items = c->items,
                    .variant = c->variant,
                    .workspace = c->workspace,
                    .workspace_bytes = c->target.workspace_bytes,
                    .cuda = l,
                    .tickets = c->gpu->tickets};
    if (c->impl->plan && c->items == 0 && !l->collect) /* an executor makes no such call */
        return VT_OK;
    l->err = (vt_err){0};
    vt_status status = c->impl->run(c->args, &lane);
    if (status == VT_OK)
        return VT_OK;
    if (l->err.status == VT_OK)
        return vt_fail(err, status, "%s: %s failed without a word", c->op->name, c->impl->name);
    if (err)
        *err = l->err;
    return status;
}

/* Compiles the kernels of the row, and their forms with PDL if calls may be timed with it. */
static vt_status compile(on_cuda *c, vt_err *err)
{
    vt_cuda_lane *l = &c->gpu->lane;
    bool pdl = l->pdl;
    l->collect = true;
    vt_status status = on_cuda_launch(c, err);
    if (status == VT_OK && c->gpu->flush && !pdl) {
        l->pdl = true;
        status = on_cuda_launch(c, err);
    }
    l->collect = false;
    l->pdl = pdl;
    if (status == VT_OK)
        status = vt_cuda_compile(c->gpu->cuda, c->gpu->progress, c->gpu->progress_user, err);
    c->compiled = status == VT_OK;
    return status;
}

vt_status on_cuda_fill(on_cuda *c, void *p, int pattern, size_t bytes, vt_err *err)
{
    on_cuda_gpu *g = c->gpu;
    if (bytes == 0)
        return VT_OK;
    return check(g,
                 g->cuda->driver.fill8(address(p), (unsigned char)pattern, bytes, g->lane.stream),
                 "filling an output", err);
}

static vt_status reset(on_cuda *c, vt_err *err)
{
    for (int32_t i = 0; i < c->n_twins; i++) {
        const on_cuda_twin *w = &c->twin[i];
        int pattern = is_integer(w->device.dtype) ? ON_CUDA_INT_PATTERN : ON_CUDA_FLOAT_PATTERN;
        if (w->first)
            TRY(check(c->gpu,
                      c->gpu->cuda->driver.copy_device(address(w->base), address(w->first),
                                                       w->bytes, c->gpu->lane.stream),
                      "putting an operand back", err));
        else if (w->written)
            TRY(on_cuda_fill(c, w->base, pattern, w->bytes, err));
    }
    return on_cuda_fill(c, c->workspace, ON_CUDA_FLOAT_PATTERN, c->target.workspace_bytes, err);
}

vt_status on_cuda_run(on_cuda *c, vt_err *err)
{
    vt_cuda_lane *l = &c->gpu->lane;
    if (!c->compiled)
        TRY(compile(c, err));
    TRY(reset(c, err));
    l->note = c->kernel;
    l->max_note = ON_CUDA_MAX_KERNELS;
    l->n_launches = 0;
    vt_status status = on_cuda_launch(c, err);
    c->n_kernels = l->n_launches < ON_CUDA_MAX_KERNELS ? l->n_launches : ON_CUDA_MAX_KERNELS;
    l->note = NULL;
    if (status != VT_OK)
        return status;
    return on_cuda_wait(c->gpu, "running a kernel", err);
}

vt_cost on_cuda_cost(const on_cuda *c)
{
    const vt_batch *batch = c->batch == &c->counted ? NULL : c->batch;
    return c->impl ? vt_impl_cost(c->op, c->impl, c->args, batch) : c->op->cost(c->args, batch);
}
