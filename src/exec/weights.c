/* A model's weights, stacked and packed for the CPU.
 *
 *   q [Hq*d, hidden] ┐
 *   k [Hk*d, hidden] ├─ same type: one weight of three parts, one pass over x
 *   v [Hk*d, hidden] ┘  else three weights (Q4_K_M files keep v in Q6_K)
 *
 * gate and up become one paired weight, so that the linear op can apply SwiGLU where both values of
 * a pair meet. Packing is the implementation's business (vt_impl.pack); the team does it in row
 * ranges. Without a team nothing is packed and no table is computed: such weights can be costed but
 * not run. */
#include "exec/weights.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/err.h"
#include "model/load.h"
#include "base/quant.h"
#include "ops/linear/linear.h"
#include "ops/rope/rope.h"

typedef struct weights_loader {
    vt_weights *w;
    vt_team *team; /* NULL: describe only */
    vt_isa level;
    vt_err *err;
    char *next; /* where the next packed weight goes */
    const vt_progress_hook *progress;
} weights_loader;

static bool same_type(const vt_tensor *a, const vt_tensor *b) { return a->dtype == b->dtype; }

static void weight_set(vt_weight *w, const vt_tensor *a, const vt_tensor *b, const vt_tensor *c,
                       bool paired)
{
    *w = (vt_weight){.part = {a, b, c},
                     .n_parts = 1 + (b != NULL) + (c != NULL),
                     .paired = paired,
                     .cols = a->dim[1],
                     .dtype = a->dtype};
    for (int32_t i = 0; i < w->n_parts; i++)
        w->rows += w->part[i]->dim[0];
}

typedef struct pack_job {
    const vt_impl *impl;
    const vt_weight *w;
    void *dst;
    int32_t n_workers;
} pack_job;

static void pack_worker(void *arg, int32_t worker)
{
    const pack_job *job = arg;
    vt_lane lane = {.worker = worker, .n_workers = job->n_workers};
    int64_t begin, end;
    vt_lane_share(&lane, job->w->rows, job->impl->pack_grain ? job->impl->pack_grain : 1, &begin,
                  &end);
    if (begin < end)
        job->impl->pack(job->w, job->dst, begin, end);
}

/* The file's pages behind a packed weight are not needed again: they need not count as ours. (Those
 * of an embedding that is the head too come back as tokens are looked up.) */
static void drop_pages(const vt_weight *w)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    for (int32_t i = 0; i < w->n_parts; i++) {
        uintptr_t begin = (uintptr_t)w->part[i]->data,
                  end = begin + (uintptr_t)vt_tensor_bytes(w->part[i]);
        begin = (begin + page - 1) / page * page;
        end = end / page * page;
        if (begin < end)
            madvise((void *)begin, end - begin, MADV_DONTNEED);
    }
}

/* Chooses the implementation that will run w, and how much it wants to repack. */
static vt_status weight_plan(weights_loader *l, vt_weight *w)
{
    if (!l->team)
        return VT_OK;
    linear_args probe = {.w = w, .scale = 1};
    const vt_impl *impl = vt_op_select(&linear_op, VT_DEVICE_CPU, l->level, &probe);
    if (!impl)
        return vt_fail(l->err, VT_ERR_UNSUPPORTED,
                       "no linear implementation for %s weights on this CPU",
                       vt_dtype_get(w->dtype)->name);
    w->packed_bytes = impl->pack_bytes ? impl->pack_bytes(w) : 0;
    w->packed_for = w->packed_bytes ? impl : NULL;
    l->w->packed_bytes += (int64_t)vt_round_up(w->packed_bytes, VT_CACHE_LINE);
    return VT_OK;
}

typedef vt_status (*weight_fn)(weights_loader *l, vt_weight *w);

/* fn of every weight, in the order in which a step reads them. */
static vt_status each_weight(weights_loader *l, weight_fn fn)
{
    for (int32_t i = 0; i < l->w->model->arch.n_layers; i++) {
        vt_layer_weights *lw = &l->w->layer[i];
        for (int32_t k = 0; k < lw->n_qkv; k++)
            TRY(fn(l, &lw->qkv[k]));
        TRY(fn(l, &lw->o));
        for (int32_t k = 0; k < lw->n_gate_up; k++)
            TRY(fn(l, &lw->gate_up[k]));
        if (lw->n_gate_up)
            TRY(fn(l, &lw->down));
        for (int32_t e = 0; lw->expert_down && e < l->w->model->arch.n_experts; e++) {
            TRY(fn(l, &lw->expert_gate_up[e]));
            TRY(fn(l, &lw->expert_down[e]));
        }
    }
    return fn(l, &l->w->head);
}

/* Packs w into the next part of the weights' one block. */
static vt_status weight_pack(weights_loader *l, vt_weight *w)
{
    if (!w->packed_for)
        return VT_OK;
    w->packed = l->next;
    l->next += vt_round_up(w->packed_bytes, VT_CACHE_LINE);
    pack_job job = {w->packed_for, w, w->packed, vt_team_size(l->team)};
    vt_team_run(l->team, pack_worker, &job);
    if (l->w->model->mapped)
        drop_pages(w);
    return vt_progress_report(l->progress, "packing weights", l->next - (char *)l->w->memory,
                              l->w->packed_bytes, l->err);
}

/* All packed weights lie in one block of huge pages: with a mapping each, those under 2 MiB had
 * small pages, and one-token products streamed at 14-15 GB/s a core in place of 19-21. */
static vt_status pack_all(weights_loader *l)
{
    TRY(each_weight(l, weight_plan));
    if (l->w->packed_bytes == 0)
        return VT_OK;
    l->w->memory = vt_pages_alloc((size_t)l->w->packed_bytes);
    if (!l->w->memory)
        return vt_fail(l->err, VT_ERR_MEMORY, "out of memory packing %lld bytes of weights",
                       (long long)l->w->packed_bytes);
    l->next = l->w->memory;
    return each_weight(l, weight_pack);
}

/* Rank-1 tensors of the stacked parts joined as fp32; a missing part counts as zeros. *out stays
 * NULL when all are missing. */
static vt_status join_bias(weights_loader *l, const vt_tensor *const *bias, const int64_t *rows,
                           int32_t n, const vt_tensor **out)
{
    int64_t total = 0;
    bool any = false;
    for (int32_t i = 0; i < n; i++) {
        total += rows[i];
        any |= bias[i] != NULL;
    }
    if (!any)
        return VT_OK;
    vt_tensor *t = vt_arena_alloc(&l->w->arena, 1, sizeof *t);
    float *data = vt_arena_alloc(&l->w->arena, (size_t)total, sizeof *data);
    if (!t || !data)
        return vt_fail(l->err, VT_ERR_MEMORY, "out of memory for a bias of %lld values",
                       (long long)total);
    int64_t at = 0;
    for (int32_t i = 0; i < n; at += rows[i++])
        if (bias[i] && l->team)
            vt_dequant_row(bias[i]->dtype, bias[i]->data, data + at, rows[i]);
    *t = (vt_tensor){.data = data, .dtype = VT_F32, .rank = 1, .dim = {total}, .row_stride = total};
    *out = t;
    return VT_OK;
}

static vt_status load_attention(weights_loader *l, const vt_layer *src, vt_layer_weights *dst)
{
    const vt_tensor *part[3] = {src->q, src->k, src->v},
                    *scale[3] = {src->q_scale, src->k_scale, src->v_scale};
    const vt_tensor *bias[3] = {src->q_bias, src->k_bias, src->v_bias};
    int64_t rows[3] = {src->q->dim[0], src->k->dim[0], src->v->dim[0]};
    bool stack = same_type(src->q, src->k) && same_type(src->k, src->v);
    dst->n_qkv = stack ? 1 : 3;
    if (stack)
        weight_set(&dst->qkv[0], part[0], part[1], part[2], false);
    for (int32_t i = 0; i < 3; i++) {
        if (!stack)
            weight_set(&dst->qkv[i], part[i], NULL, NULL, false);
        dst->qkv[stack ? 0 : i].scale[stack ? i : 0] = scale[i];
    }
    TRY(join_bias(l, bias, rows, 3, &dst->qkv_bias));
    weight_set(&dst->o, src->o, NULL, NULL, false);
    dst->o.scale[0] = src->o_scale;
    return VT_OK;
}

static vt_status load_dense(weights_loader *l, const vt_layer *src, vt_layer_weights *dst)
{
    const vt_tensor *bias[2] = {src->gate_bias, src->up_bias};
    int64_t rows[2] = {src->gate->dim[0], src->up->dim[0]};
    bool pair = same_type(src->gate, src->up) && !bias[0] && !bias[1];
    dst->n_gate_up = pair ? 1 : 2;
    if (pair) {
        weight_set(&dst->gate_up[0], src->gate, src->up, NULL, true);
    } else {
        weight_set(&dst->gate_up[0], src->gate, NULL, NULL, false);
        weight_set(&dst->gate_up[1], src->up, NULL, NULL, false);
    }
    dst->gate_up[0].scale[0] = src->gate_scale;
    dst->gate_up[pair ? 0 : 1].scale[pair ? 1 : 0] = src->up_scale;
    TRY(join_bias(l, bias, rows, 2, &dst->gate_up_bias));
    weight_set(&dst->down, src->down, NULL, NULL, false);
    dst->down.scale[0] = src->down_scale;
    return VT_OK;
}

/* Expert e of n stacked tensors, and of their scales where there are any. */
static vt_status load_expert(weights_loader *l, const vt_tensor *const *part,
                             const vt_tensor *const *scale, int32_t n, int64_t e, vt_weight *w)
{
    vt_tensor *view = vt_arena_alloc(&l->w->arena, 2 * (size_t)n, sizeof *view);
    if (!view)
        return vt_fail(l->err, VT_ERR_MEMORY, "out of memory for the experts of %s",
                       l->w->model->name);
    for (int32_t i = 0; i < n; i++)
        view[i] = vt_tensor_matrix(part[i], e);
    weight_set(w, &view[0], n == 2 ? &view[1] : NULL, NULL, n == 2);
    for (int32_t i = 0; i < n; i++)
        if (scale[i]) {
            view[n + i] = vt_tensor_matrix(scale[i], e);
            w->scale[i] = &view[n + i];
        }
    return VT_OK;
}

static vt_status load_experts(weights_loader *l, const vt_layer *src, vt_layer_weights *dst)
{
    int64_t n = src->expert_gate->dim[0];
    const vt_tensor *gate_up[2] = {src->expert_gate, src->expert_up},
                    *scale[2] = {src->expert_gate_scale, src->expert_up_scale};
    if (!same_type(gate_up[0], gate_up[1]))
        return vt_fail(
            l->err, VT_ERR_UNSUPPORTED, "experts whose gate is %s and up is %s are not supported",
            vt_dtype_get(gate_up[0]->dtype)->name, vt_dtype_get(gate_up[1]->dtype)->name);
    dst->expert_gate_up = vt_arena_alloc(&l->w->arena, (size_t)n, sizeof(vt_weight));
    dst->expert_down = vt_arena_alloc(&l->w->arena, (size_t)n, sizeof(vt_weight));
    if (!dst->expert_gate_up || !dst->expert_down)
        return vt_fail(l->err, VT_ERR_MEMORY, "out of memory for %lld experts", (long long)n);
    for (int64_t e = 0; e < n; e++) {
        TRY(load_expert(l, gate_up, scale, 2, e, &dst->expert_gate_up[e]));
        TRY(load_expert(l, &src->expert_down, &src->expert_down_scale, 1, e, &dst->expert_down[e]));
    }
    return VT_OK;
}

static vt_status make_rope_table(weights_loader *l, const vt_rope_params *p, int32_t positions,
                                 const vt_tensor **out)
{
    vt_tensor *t = vt_arena_alloc(&l->w->arena, 1, sizeof *t);
    float *data = NULL;
    if (l->team)
        data = vt_arena_alloc(&l->w->arena, (size_t)positions, (size_t)p->dims * sizeof(float));
    if (!t || (l->team && !data))
        return vt_fail(l->err, VT_ERR_MEMORY, "out of memory for the rope table of %d positions",
                       positions);
    if (data)
        rope_table(p, 0, positions, data);
    *t = vt_tensor_2d(data, VT_F32, positions, p->dims);
    *out = t;
    return VT_OK;
}

static vt_status weights_fill(weights_loader *l, int32_t max_context)
{
    const vt_model *m = l->w->model;
    const vt_arch *a = &m->arch;
    TRY(make_rope_table(l, &a->rope, max_context, &l->w->rope_table));
    if (a->has_rope_local)
        TRY(make_rope_table(l, &a->rope_local, max_context, &l->w->rope_local_table));
    for (int32_t i = 0; i < a->n_layers; i++) {
        vt_layer_weights *dst = &l->w->layer[i];
        TRY(load_attention(l, &m->layer[i], dst));
        if (m->layer[i].router)
            TRY(load_experts(l, &m->layer[i], dst));
        else
            TRY(load_dense(l, &m->layer[i], dst));
    }
    weight_set(&l->w->head, m->head, NULL, NULL, false);
    return pack_all(l);
}

vt_status vt_weights_load_cpu(const vt_model *m, vt_team *team, vt_isa level, int32_t max_context,
                              const vt_progress_hook *progress, vt_weights **out, vt_err *err)
{
    if (team) /* costing reads no weight */
        TRY(vt_model_host_weights(m, err));
    vt_weights *w = vt_calloc(1, sizeof *w);
    if (!w)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for the weights of %s", m->name);
    vt_arena_init(&w->arena, 0);
    w->model = m;
    w->layer = vt_arena_alloc(&w->arena, (size_t)m->arch.n_layers, sizeof *w->layer);
    weights_loader l = {w, team, level, err, NULL, progress};
    vt_status status = w->layer ? weights_fill(&l, max_context)
                                : vt_fail(err, VT_ERR_MEMORY, "out of memory for the weights of %s",
                                          m->name);
    if (status != VT_OK) {
        vt_weights_free(w);
        return status;
    }
    *out = w;
    return VT_OK;
}

void vt_weights_free(vt_weights *w)
{
    if (!w)
        return;
    vt_pages_free(w->memory, (size_t)w->packed_bytes);
    vt_arena_release(&w->arena);
    free(w);
}
