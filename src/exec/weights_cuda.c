/* A model's weights on a GPU.
 *
 *   describe   walk the layout; every entry gets an offset in one range, and a source that says
 *              how its bytes are made
 *   reserve    make a range of the size that this adds up to
 *   fill       vt_cuda_upload: threads convert parts into pinned buffers while earlier ones cross
 *              the bus; a dummy model's matrices are made by a kernel on the device
 *
 *   [ embed | L00: norm, q k v stacked, o, norm, gate up, down | L01 ... | head | rope tables ]
 *
 * The implementation that will run a matrix decides how its bytes look: the op's first CUDA
 * implementation that packs the matrix (vt_op_packing) gives size, element type and bytes. If the
 * head is the embedding, the two share memory where both ops want the same form. The experts of an
 * entry follow each other without gaps, because the grouped product finds them by a stride. */
#include "exec/weights_cuda.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/quant.h"
#include "device/cuda/dummy_fill_params.h"
#include "model/dummy.h"
#include "model/load.h"
#include "model/rope_table.h"

enum { ALIGN = 256 };

/* Where the bytes of a device tensor come from. */
typedef struct source {
    const vt_layout_entry *entry;
    int64_t expert;            /* its number in the tensors of an entry of kind EXPERTS, else 0 */
    const vt_packing *packing; /* how `host` is packed; NULL: a vector, a router or a rope table */
    vt_weight host;            /* the matrix; its parts are views of the file */
    vt_tensor *to;
    size_t offset, bytes; /* in the range */
    bool dummy;
} source;

typedef struct loader {
    vt_cuda_weights *w;
    const vt_layout *layout;
    int32_t max_context;
    vt_arena arena; /* holds the views of the file until everything is uploaded */
    source *source;
    int32_t n, capacity;
    const vt_layout_entry *embed; /* the embedding, which the head may share */
    const vt_packing *embed_packing;
    vt_tensor *embed_tensor;
    vt_err *err;
} loader;

/* ---- describing ---- */

static bool is_adapter(const vt_layout_entry *e)
{
    return e->kind == VT_KIND_LORA_A || e->kind == VT_KIND_LORA_B;
}

static source *add_source(loader *l)
{
    if (l->n == l->capacity) {
        int32_t capacity = l->capacity ? 2 * l->capacity : 256;
        source *more = realloc(l->source, (size_t)capacity * sizeof *more);
        if (!more)
            return NULL;
        l->source = more;
        l->capacity = capacity;
    }
    return &l->source[l->n++];
}

/* Adds source `s` to the list and gives it a device tensor at the end of the range. */
static vt_status describe_source(loader *l, const source *s, vt_tensor t, vt_tensor **out)
{
    vt_tensor *to = vt_arena_alloc(&l->w->weights.arena, 1, sizeof *to);
    source *added = to ? add_source(l) : NULL;
    if (!added)
        return vt_fail(l->err, VT_ERR_MEMORY, "%s: out of memory for a list of weights",
                       s->entry->label);
    *to = t;
    *added = *s;
    added->to = to;
    added->offset = l->w->bytes;
    added->dummy = vt_model_is_dummy(l->layout->model) && s->entry->kind != VT_KIND_ROPE &&
                   !is_adapter(s->entry);
    l->w->bytes += s->bytes;
    *out = to;
    return VT_OK;
}

static void align(loader *l) { l->w->bytes = vt_round_up(l->w->bytes, ALIGN); }

static vt_packs packs_of(const vt_layout_entry *e)
{
    if (e->role == VT_ROLE_MLA_K_B || e->role == VT_ROLE_MLA_V_B)
        return VT_PACKS_HEADS;
    return e->kind == VT_KIND_EMBED     ? VT_PACKS_TABLE
           : e->kind == VT_KIND_EXPERTS ? VT_PACKS_EXPERTS
                                        : VT_PACKS_MATRIX;
}

static vt_status find_packing(loader *l, const vt_layout_entry *e, const vt_weight *w,
                              const vt_packing **out)
{
    const vt_op *op = vt_op_that_packs(packs_of(e));
    vt_target any = {.device = VT_DEVICE_CUDA};
    return vt_op_packing(op, w, &any, out)
               ? VT_OK
               : vt_fail(l->err, VT_ERR_UNSUPPORTED,
                         "%s: no implementation of %s takes %s weights on a GPU", e->label,
                         op->name, vt_dtype_get(w->dtype)->name);
}

static bool same_range(const vt_layout_entry *a, const vt_layout_entry *b)
{
    const vt_layout_part *p = &a->part[0], *q = &b->part[0];
    return a->n_parts == 1 && b->n_parts == 1 && p->tensor == q->tensor && p->scale == q->scale &&
           p->row == q->row && p->rows == q->rows && p->col == q->col && p->cols == q->cols;
}

/* Describes matrix i of an entry. It becomes `*w`; w is NULL for the embedding, which becomes a
 * tensor. */
static vt_status describe_matrix(loader *l, const vt_layout_entry *e, int64_t i, vt_weight *w)
{
    source s = {.entry = e, .expert = e->matrix + i};
    TRY(vt_layout_weight(e, i, &l->arena, &s.host, l->err));
    TRY(find_packing(l, e, &s.host, &s.packing));
    s.bytes = s.packing->bytes(&s.host);
    vt_tensor *to = NULL;
    if (e->role == VT_ROLE_HEAD && l->embed && same_range(e, l->embed) &&
        s.packing->write == l->embed_packing->write)
        to = l->embed_tensor;
    else
        TRY(describe_source(
            l, &s, vt_tensor_2d(NULL, s.packing->type(&s.host), s.host.rows, s.host.cols), &to));
    if (w) {
        *w = vt_weight_packed(&s.host, s.packing, to);
        return VT_OK;
    }
    l->embed = e;
    l->embed_packing = s.packing;
    l->embed_tensor = to;
    *vt_weights_tensor(&l->w->weights, e) = to;
    return VT_OK;
}

static vt_status describe_matrices(loader *l, const vt_layout_entry *e)
{
    vt_weight *w = vt_weights_matrix(&l->w->weights, e);
    if (!w)
        return vt_fail(l->err, VT_ERR_MEMORY, "%s: out of memory for %lld matrices", e->label,
                       (long long)vt_layout_matrices(e));
    for (int64_t i = 0; i < vt_layout_matrices(e); i++)
        TRY(describe_matrix(l, e, i, &w[i]));
    return VT_OK;
}

/* Describes a vector, a router or a rope table, which all become F32. (A router does not become
 * BF16, because rounding must not decide which expert wins.) An adapter's part becomes BF16. */
static vt_status describe_floats(loader *l, const vt_layout_entry *e)
{
    int64_t rows = vt_layout_rows(e);
    vt_tensor t = {.dtype = VT_F32, .rank = 1, .dim = {rows}, .row_stride = rows};
    if (e->kind == VT_KIND_ROUTER)
        t = vt_tensor_2d(NULL, VT_F32, rows, e->part[0].cols);
    else if (e->kind == VT_KIND_ROPE)
        t = vt_tensor_2d(NULL, VT_F32, l->max_context, e->rope->dims);
    else if (is_adapter(e))
        t = vt_tensor_2d(NULL, VT_BF16, rows, e->part[0].cols);
    source s = {.entry = e, .bytes = (size_t)vt_tensor_bytes(&t)};
    vt_tensor *to;
    TRY(describe_source(l, &s, t, &to));
    *vt_weights_tensor(&l->w->weights, e) = to;
    return VT_OK;
}

static vt_status describe(loader *l)
{
    for (int32_t i = 0; i < l->layout->n; i++) {
        const vt_layout_entry *e = &l->layout->entry[i];
        if (e->kind == VT_KIND_MATRIX || e->kind == VT_KIND_EXPERTS)
            TRY(describe_matrices(l, e));
        else if (e->kind == VT_KIND_EMBED)
            TRY(describe_matrix(l, e, 0, NULL));
        else
            TRY(describe_floats(l, e));
        align(l);
    }
    return VT_OK;
}

/* ---- filling ---- */

static void produce_packed(const void *arg, void *out, size_t begin, size_t bytes)
{
    const source *s = arg;
    size_t unit = s->packing->unit(&s->host);
    s->packing->write(&s->host, (int64_t)(begin / unit), (int64_t)(bytes / unit), out);
}

static void produce_floats(const void *arg, void *out, size_t begin, size_t bytes)
{
    const source *s = arg;
    (void)begin; /* the grain is the whole tensor, so this is called once for all of it */
    (void)bytes;
    vt_layout_floats(s->entry, out);
}

/* Makes whole rows of an adapter's part in BF16. */
static void produce_adapter(const void *arg, void *out, size_t begin, size_t bytes)
{
    const source *s = arg;
    const vt_layout_part *p = &s->entry->part[0];
    size_t row = (size_t)p->cols * sizeof(uint16_t);
    for (size_t at = 0; at < bytes; at += row) {
        int64_t i = p->row + (int64_t)((begin + at) / row);
        const float *from = (const float *)p->tensor->data + i * p->tensor->row_stride + p->col;
        vt_quant_row(VT_BF16, from, (char *)out + at, p->cols);
    }
}

static void produce_table(const void *arg, void *out, size_t begin, size_t bytes)
{
    const source *s = arg;
    size_t row = (size_t)s->entry->rope->dims * sizeof(float);
    vt_rope_params rope = vt_rope_of_context(s->entry->rope, s->to->dim[0]);
    vt_rope_table(&rope, (int64_t)(begin / row), (int64_t)(bytes / row), out);
}

/* Makes elements [col, col + n) of row `row` of a part of a dummy model. It has no file: a rule for
 * the whole tensor computes each element from its index. A vector has one row. */
static void dummy_elements(const source *s, const vt_layout_part *p, int64_t row, int64_t col,
                           int64_t n, uint16_t *out)
{
    const vt_tensor *t = p->tensor;
    dummy_rule rule = dummy_rule_of(t);
    int64_t first = p->row + col;
    if (t->rank > 1)
        first = (s->expert * t->dim[t->rank - 2] + p->row + row) * t->dim[t->rank - 1] + p->col +
                col;
    dummy_fill(&rule, (uint64_t)first, n, out);
}

/* Makes whole rows of a dummy model's matrix in BF16, part after part. */
static void produce_dummy_matrix(const void *arg, void *out, size_t begin, size_t bytes)
{
    const source *s = arg;
    size_t unit = s->packing->unit(&s->host);
    for (size_t at = 0; at < bytes; at += unit) {
        int64_t row = (int64_t)((begin + at) / unit);
        const vt_layout_part *p = s->entry->part;
        while (row >= p->rows)
            row -= p++->rows;
        dummy_elements(s, p, row, 0, p->cols, (uint16_t *)((char *)out + at));
    }
}

/* Makes a norm, a router or biases of a dummy model, part after part. */
static void produce_dummy_floats(const void *arg, void *out, size_t begin, size_t bytes)
{
    enum { CHUNK = 512 };
    const source *s = arg;
    bool vector = s->entry->kind == VT_KIND_VECTOR;
    float *to = out;
    uint16_t bf16[CHUNK];
    (void)begin; /* the grain is the whole tensor */
    (void)bytes;
    for (int32_t i = 0; i < s->entry->n_parts; i++) {
        const vt_layout_part *p = &s->entry->part[i];
        int64_t rows = vector ? 1 : p->rows, cols = vector ? p->rows : p->cols;
        for (int64_t at = 0; at < rows * cols;) {
            int64_t row = at / cols, col = at % cols, n = cols - col < CHUNK ? cols - col : CHUNK;
            dummy_elements(s, p, row, col, n, bf16);
            for (int64_t k = 0; k < n; k++)
                *to++ = vt_bf16_to_f32(bf16[k]);
            at += n;
        }
    }
}

/* Returns true if the kernel can make a dummy's matrix. It makes runs of elements that begin at a
 * multiple of 4 (one hash word makes 4 elements); whole rows do. A range of columns, which only a
 * rank of a tensor-parallel group has, is made on the host. */
static bool made_by_kernel(const source *s)
{
    if (!s->dummy || !s->packing)
        return false;
    for (int32_t i = 0; i < s->entry->n_parts; i++) {
        const vt_layout_part *p = &s->entry->part[i];
        int64_t cols = p->tensor->dim[p->tensor->rank - 1];
        if (p->cols != cols || p->row * cols % 4 != 0 ||
            s->expert * p->tensor->dim[p->tensor->rank - 2] * cols % 4 != 0)
            return false;
    }
    return true;
}

/* Launches the kernel that makes a dummy's matrix, once for each part. */
static vt_status fill_dummy(vt_cuda_lane *lane, const loader *l, const source *s)
{
    char *out = (char *)l->w->range.base + s->offset;
    for (int32_t i = 0; i < s->entry->n_parts; i++) {
        const vt_layout_part *p = &s->entry->part[i];
        const vt_tensor *t = p->tensor;
        dummy_rule rule = dummy_rule_of(t);
        int64_t row = s->expert * t->dim[t->rank - 2] + p->row;
        uint64_t n = (uint64_t)(p->rows * p->cols), first = (uint64_t)(row * p->cols);
        dummy_fill_params params = {(uint16_t *)out, rule.key, n, first / 4, rule.base, rule.scale};
        TRY(vt_cuda_launch(
            lane,
            &(cuda_launch){.spec = JIT_SPEC("dummy_fill.cu", "dummy_fill", {NULL, 0}),
                           .grid = {(uint32_t)((n + 1023) / 1024), 1, 1},
                           .threads = 256},
            &params, sizeof params));
        out += n * sizeof(uint16_t);
    }
    return VT_OK;
}

/* Returns how vt_cuda_upload is to make the bytes of a source. */
static cuda_upload upload_of(const loader *l, const source *s)
{
    cuda_upload u = {.to = (char *)l->w->range.base + s->offset, .bytes = s->bytes, .arg = s};
    if (s->packing) {
        u.grain = s->packing->unit(&s->host);
        u.produce = s->dummy ? produce_dummy_matrix : produce_packed;
    } else if (s->entry->kind == VT_KIND_ROPE) {
        u.grain = (size_t)s->entry->rope->dims * sizeof(float);
        u.produce = produce_table;
    } else if (is_adapter(s->entry)) {
        u.grain = (size_t)s->entry->part[0].cols * sizeof(uint16_t);
        u.produce = produce_adapter;
    } else {
        u.grain = s->bytes;
        u.produce = s->dummy ? produce_dummy_floats : produce_floats;
    }
    return u;
}

/* ---- all of it ---- */

/* One loading of weights, from vt_cuda_weights_begin to _end. */
struct vt_cuda_upload_run {
    loader l;
    vt_cuda *cuda; /* NULL: the weights are only described */
    cuda_upload *piece;
    int32_t n_pieces, n_threads;
    vt_cuda_lane lane; /* on which kernels make a dummy's matrices */
    int64_t begin_ns;
    atomic_bool stop;
    pthread_t thread;
    bool started;
    vt_status status; /* of the upload */
    vt_err err;
};

/* Turns offsets into addresses. Without a device they stay offsets: the range begins at 0. */
static void place(loader *l)
{
    for (int32_t i = 0; i < l->n; i++)
        l->source[i].to->data = (void *)((uintptr_t)l->w->range.base + l->source[i].offset);
}

/* Lists what has to be uploaded, and launches the kernels that make the rest. The launches are made
 * here and not on the thread of the upload, because launching may compile a kernel. */
static vt_status prepare(vt_cuda_upload_run *run, vt_err *err)
{
    loader *l = &run->l;
    run->piece = vt_calloc((size_t)l->n, sizeof *run->piece);
    if (!run->piece)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for a list of weights");
    TRY(vt_cuda_check(run->cuda,
                      run->cuda->driver.stream_create(&run->lane.stream, CU_STREAM_NON_BLOCKING, 0),
                      "making a stream", err));
    for (int32_t i = 0; i < l->n; i++) {
        const source *s = &l->source[i];
        if (!made_by_kernel(s)) {
            run->piece[run->n_pieces++] = upload_of(l, s);
            continue;
        }
        vt_status status = fill_dummy(&run->lane, l, s);
        if (status != VT_OK && err)
            *err = run->lane.err;
        TRY(status);
    }
    return VT_OK;
}

static vt_status reserve(vt_cuda_upload_run *run, vt_err *err)
{
    vt_cuda_weights *w = run->l.w;
    TRY(vt_weights_init(&w->weights, run->l.layout, err));
    TRY(describe(&run->l));
    if (run->cuda) {
        TRY(cuda_range_init(run->cuda, w->bytes, &w->range, err));
        TRY(cuda_range_grow(run->cuda, &w->range, w->bytes, err));
    }
    place(&run->l);
    return run->cuda ? prepare(run, err) : VT_OK;
}

/* Body of the thread: it uploads and then waits for the kernels. */
static void *upload(void *arg)
{
    vt_cuda_upload_run *run = arg;
    vt_cuda *c = run->cuda;
    run->status = vt_cuda_enter(c, &run->err);
    const vt_model *m = run->l.layout->model;
    bool reads = run->status == VT_OK && !vt_model_is_dummy(m);
    if (reads)
        run->status = vt_model_host_weights(m, &run->err);
    bool made = reads && run->status == VT_OK;
    if (run->status == VT_OK)
        run->status = vt_cuda_upload(c, run->piece, run->n_pieces, run->n_threads, &run->stop,
                                     &run->err);
    if (made)
        vt_model_host_weights_done(m, false);
    if (run->status == VT_OK)
        run->status = vt_cuda_check(c, c->driver.stream_sync(run->lane.stream),
                                    "making dummy weights", &run->err);
    run->l.w->load_ms = (double)(vt_now_ns() - run->begin_ns) * 1e-6;
    return NULL;
}

vt_status vt_cuda_weights_begin(vt_cuda *c, const vt_layout *layout, int32_t max_context,
                                int32_t n_threads, vt_cuda_weights **out, vt_cuda_upload_run **to,
                                vt_err *err)
{
    vt_cuda_weights *w = vt_calloc(1, sizeof *w);
    vt_cuda_upload_run *run = vt_calloc(1, sizeof *run);
    if (!w || !run) {
        free(w);
        free(run);
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for the weights of %s",
                       layout->model->name);
    }
    *run = (vt_cuda_upload_run){
        .l = {.w = w, .layout = layout, .max_context = max_context, .err = err},
        .cuda = c,
        .n_threads = n_threads,
        .lane = {.cuda = c},
        .begin_ns = vt_now_ns()};
    *out = w;
    *to = run;
    vt_arena_init(&run->l.arena, 0);
    vt_status status = reserve(run, err);
    run->l.err = NULL; /* it is the caller's, and may be gone when the thread works */
    if (status != VT_OK) {
        (void)vt_cuda_weights_end(run, true, NULL);
        *to = NULL;
        return status;
    }
    if (c)
        run->started = pthread_create(&run->thread, NULL, upload, run) == 0;
    if (c && !run->started)
        upload(run);
    return VT_OK;
}

vt_status vt_cuda_weights_end(vt_cuda_upload_run *run, bool stop, vt_err *err)
{
    if (stop)
        atomic_store(&run->stop, true);
    if (run->started)
        pthread_join(run->thread, NULL);
    vt_status status = run->status;
    if (status != VT_OK && err)
        *err = run->err;
    if (run->lane.stream) { /* kernels may still write to memory that is about to be freed */
        run->cuda->driver.stream_sync(run->lane.stream);
        run->cuda->driver.stream_destroy(run->lane.stream);
    }
    vt_arena_release(&run->l.arena);
    free(run->l.source);
    free(run->piece);
    free(run);
    return status;
}

vt_status vt_cuda_weights_realise(vt_cuda *c, const vt_layout *layout, int32_t max_context,
                                  int32_t n_threads, vt_cuda_weights **out, vt_err *err)
{
    vt_cuda_weights *w = NULL;
    vt_cuda_upload_run *run = NULL;
    vt_status status = vt_cuda_weights_begin(c, layout, max_context, n_threads, &w, &run, err);
    if (status == VT_OK)
        status = vt_cuda_weights_end(run, false, err);
    if (status != VT_OK) {
        vt_cuda_weights_free(c, w);
        return status;
    }
    *out = w;
    return VT_OK;
}

vt_status vt_cuda_weights_load(vt_cuda *c, const vt_model *m, int32_t max_context,
                               int32_t n_threads, vt_cuda_weights **out, vt_err *err)
{
    vt_layout *layout;
    TRY(vt_layout_make(m, &layout, err));
    vt_status status = vt_cuda_weights_realise(c, layout, max_context, n_threads, out, err);
    vt_layout_free(layout);
    return status;
}

size_t vt_cuda_weights_bytes(const vt_model *m, int32_t max_context, const vt_rank *r)
{
    vt_layout *layout = NULL;
    vt_cuda_weights *w = NULL;
    size_t bytes = 0;
    if (vt_layout_make(m, &layout, NULL) != VT_OK)
        return 0;
    vt_ranks_narrow(layout, r);
    if (vt_cuda_weights_realise(NULL, layout, max_context, 1, &w, NULL) == VT_OK)
        bytes = w->bytes;
    vt_cuda_weights_free(NULL, w);
    vt_layout_free(layout);
    return bytes;
}

void vt_cuda_weights_free(vt_cuda *c, vt_cuda_weights *w)
{
    if (!w)
        return;
    if (c && w->range.base)
        cuda_range_release(c, &w->range);
    vt_weights_release(&w->weights);
    free(w);
}
