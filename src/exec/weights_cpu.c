/* A model's weights on the CPU.
 *
 * Matrices are packed for the implementation that will run them (vt_impl.packing). The whole team
 * packs one matrix after the other into one block. Norms, routers and the embedding are used where
 * they lie in the file. Without a team nothing is packed and no table is computed: such weights can
 * be costed but not run. */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/err.h"
#include "exec/weights.h"
#include "files/map.h"
#include "model/load.h"
#include "model/rope_table.h"
#include "ops/op.h"

typedef struct weights_loader {
    vt_weights *w;
    const vt_layout *layout;
    vt_team *team; /* NULL: describe only */
    vt_target target;
    vt_err *err;
    char *next; /* where the next packed weight goes */
    const vt_progress_hook *progress;
} weights_loader;

/* ---- packing ---- */

typedef struct pack_job {
    const vt_weight *w;
    char *dst;
    int32_t n_workers;
} pack_job;

/* Packs one worker's share of the units that a matrix is packed in. */
static void pack_worker(void *arg, int32_t worker)
{
    const pack_job *job = arg;
    vt_lane lane = {.worker = worker, .n_workers = job->n_workers};
    const vt_packing *p = job->w->packing;
    size_t unit = p->unit(job->w);
    int64_t begin, end;
    vt_lane_share(&lane, (int64_t)(job->w->packed_bytes / unit), 1, &begin, &end);
    if (begin < end)
        p->write(job->w, begin, end - begin, job->dst + (size_t)begin * unit);
}

/* Gives up the file's pages behind a packed weight: they are not needed again and need not count as
 * this process's memory. (If the embedding is also the head, its pages come back when tokens are
 * looked up.) The pages of a part with gaps between its rows stay, because other ranges lie in the
 * gaps. So do those of a part that was copied, for no file has them. */
static void drop_pages(const vt_weight *w)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    for (int32_t i = 0; i < w->n_parts; i++) {
        if (w->part[i]->row_stride != w->cols || !file_is_mapped(w->part[i]->data))
            continue;
        uintptr_t begin = (uintptr_t)w->part[i]->data,
                  end = begin + (uintptr_t)vt_tensor_bytes(w->part[i]);
        begin = (begin + page - 1) / page * page;
        end = end / page * page;
        if (begin < end)
            madvise((void *)begin, end - begin, MADV_DONTNEED);
    }
}

/* Finds the form in which the implementation that will run w reads it, and adds its size to the
 * total. */
static vt_status weight_plan(weights_loader *l, vt_weight *w)
{
    const vt_op *op = vt_op_that_packs(w->n_experts ? VT_PACKS_EXPERTS : VT_PACKS_MATRIX);
    if (!vt_op_packing(op, w, &l->target, &w->packing))
        return vt_fail(l->err, VT_ERR_UNSUPPORTED,
                       "no implementation of %s takes %s weights on this CPU", op->name,
                       vt_dtype_get(w->dtype)->name);
    w->packed_bytes = w->packing ? w->packing->bytes(w) : 0;
    l->w->packed_bytes += (int64_t)vt_round_up(w->packed_bytes, VT_CACHE_LINE);
    return VT_OK;
}

/* Packs w into the next part of the weights' one block. */
static vt_status weight_pack(weights_loader *l, vt_weight *w)
{
    if (!w->packing)
        return VT_OK;
    w->packed = l->next;
    l->next += vt_round_up(w->packed_bytes, VT_CACHE_LINE);
    pack_job job = {w, w->packed, vt_team_size(l->team)};
    vt_team_run(l->team, pack_worker, &job);
    if (l->layout->model->mapped)
        drop_pages(w);
    return vt_progress_report(l->progress, "packing weights", l->next - (char *)l->w->memory,
                              l->w->packed_bytes, l->err);
}

/* Calls fn for every matrix in the order of the layout. */
static vt_status each_weight(weights_loader *l, vt_status (*fn)(weights_loader *l, vt_weight *w))
{
    for (int32_t i = 0; i < l->layout->n; i++) {
        const vt_layout_entry *e = &l->layout->entry[i];
        if (e->kind != VT_KIND_EXPERTS && e->kind != VT_KIND_MATRIX)
            continue;
        vt_weight *w = vt_weights_matrix(l->w, e);
        for (int64_t k = 0; k < vt_layout_matrices(e); k++)
            TRY(fn(l, &w[k]));
    }
    return VT_OK;
}

/* Packs everything into one block of huge pages. Rejected: a mapping for each weight. Weights under
 * 2 MiB then had small pages, and one-token products streamed at 14-15 GB/s per core instead of
 * 19-21. */
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

/* ---- entries ---- */

static vt_status fill_matrices(weights_loader *l, const vt_layout_entry *e)
{
    vt_weight *w = vt_weights_matrix(l->w, e);
    if (!w)
        return vt_fail(l->err, VT_ERR_MEMORY, "%s: out of memory for %lld matrices", e->label,
                       (long long)vt_layout_matrices(e));
    for (int64_t i = 0; i < vt_layout_matrices(e); i++)
        TRY(vt_layout_weight(e, i, &l->w->arena, &w[i], l->err));
    return VT_OK;
}

/* Joins the parts of an entry into one fp32 vector, or matrix. */
static vt_status join(weights_loader *l, const vt_layout_entry *e, vt_tensor *t)
{
    int64_t n = vt_layout_rows(e), cols = e->kind == VT_KIND_ROUTER ? e->part[0].cols : 1;
    float *data = vt_arena_alloc(&l->w->arena, (size_t)n, (size_t)cols * sizeof *data);
    if (!data)
        return vt_fail(l->err, VT_ERR_MEMORY, "%s: out of memory for %lld values", e->label,
                       (long long)(n * cols));
    if (l->team)
        vt_layout_floats(e, data);
    if (e->kind == VT_KIND_ROUTER)
        *t = vt_tensor_2d(data, VT_F32, n, cols);
    else
        *t = (vt_tensor){.data = data, .dtype = VT_F32, .rank = 1, .dim = {n}, .row_stride = n};
    return VT_OK;
}

static vt_status make_rope_table(weights_loader *l, const vt_layout_entry *e, int32_t positions,
                                 vt_tensor *t)
{
    float *data = NULL;
    if (l->team) {
        data = vt_arena_alloc(&l->w->arena, (size_t)positions,
                              (size_t)e->rope->dims * sizeof *data);
        if (!data)
            return vt_fail(l->err, VT_ERR_MEMORY,
                           "out of memory for the rope table of %d positions", positions);
        vt_rope_params rope = vt_rope_of_context(e->rope, positions);
        vt_rope_table(&rope, 0, positions, data);
    }
    *t = vt_tensor_2d(data, VT_F32, positions, e->rope->dims);
    return VT_OK;
}

static vt_status fill_tensor(weights_loader *l, const vt_layout_entry *e, int32_t max_context)
{
    vt_tensor *t = vt_arena_alloc(&l->w->arena, 1, sizeof *t);
    if (!t)
        return vt_fail(l->err, VT_ERR_MEMORY, "%s: out of memory for a tensor", e->label);
    *vt_weights_tensor(l->w, e) = t;
    if (e->kind == VT_KIND_ROPE)
        return make_rope_table(l, e, max_context, t);
    return e->n_parts > 1 ? join(l, e, t) : vt_layout_tensor(e, t, l->err);
}

static vt_status fill_entries(weights_loader *l, int32_t max_context)
{
    for (int32_t i = 0; i < l->layout->n; i++) {
        const vt_layout_entry *e = &l->layout->entry[i];
        if (e->kind == VT_KIND_MATRIX || e->kind == VT_KIND_EXPERTS)
            TRY(fill_matrices(l, e));
        else
            TRY(fill_tensor(l, e, max_context));
    }
    return l->team ? pack_all(l) : VT_OK;
}

/* Returns true if rows read quantised weights where the model has them. */
static bool reads_in_place(const vt_weights *w, const vt_layout *layout)
{
    for (int32_t i = 0; i < layout->n; i++) {
        const vt_layout_entry *e = &layout->entry[i];
        bool matrix = e->kind == VT_KIND_EXPERTS || e->kind == VT_KIND_MATRIX;
        const vt_weight *of = matrix ? vt_weights_matrix((vt_weights *)w, e) : NULL;
        if (e->kind == VT_KIND_ROPE || !vt_dtype_quantised(e->part[0].tensor->dtype))
            continue;
        for (int64_t k = 0; k < (matrix ? vt_layout_matrices(e) : 1); k++)
            if (!of || !of[k].packed)
                return true;
    }
    return false;
}

vt_status vt_weights_realise_cpu(const vt_layout *layout, vt_team *team, const vt_target *target,
                                 const vt_progress_hook *progress, vt_weights **out, vt_err *err)
{
    vt_weights *w = vt_calloc(1, sizeof *w);
    if (!w)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for the weights of %s",
                       layout->model->name);
    weights_loader l = {.w = w,
                        .layout = layout,
                        .team = team,
                        .target = *target,
                        .err = err,
                        .progress = progress};
    vt_status status = vt_weights_init(w, layout, err);
    bool made = false;
    if (status == VT_OK && team) { /* costing reads no weight */
        status = vt_model_host_weights(layout->model, err);
        made = status == VT_OK;
    }
    if (status == VT_OK)
        status = fill_entries(&l, target->limits.max_context);
    if (made)
        vt_model_host_weights_done(layout->model, status == VT_OK && reads_in_place(w, layout));
    if (status != VT_OK) {
        vt_weights_free(w);
        return status;
    }
    *out = w;
    return VT_OK;
}

vt_status vt_weights_load_cpu(const vt_model *m, vt_team *team, const vt_target *target,
                              const vt_progress_hook *progress, vt_weights **out, vt_err *err)
{
    vt_layout *layout;
    TRY(vt_layout_make(m, &layout, err));
    vt_status status = vt_weights_realise_cpu(layout, team, target, progress, out, err);
    vt_layout_free(layout);
    return status;
}

void vt_weights_free(vt_weights *w)
{
    if (!w)
        return;
    vt_weights_release(w);
    free(w);
}
