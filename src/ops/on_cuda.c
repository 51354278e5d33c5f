/* The args of a call on a GPU, its plan and memory, one run, the comparison: see on_cuda.h. */
#include "ops/on_cuda.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/quant.h"
#include "device/cublaslt.h"
#include "ops/on_cpu.h"

enum { INT_PATTERN = 0x5a, FLOAT_PATTERN = 0xff, SLACK = 256 };

static cu_ptr address(const void *p) { return (cu_ptr)(uintptr_t)p; }

static vt_status check(const on_cuda_gpu *g, cu_result r, const char *what, vt_err *err)
{
    return vt_cuda_check(g->cuda, r, what, err);
}

static vt_status wait_for(on_cuda_gpu *g, const char *what, vt_err *err)
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
    return wait_for(g, "opening a stream", err);
}

vt_status on_cuda_open(int32_t ordinal, const on_cuda_options *o, on_cuda_gpu *g, vt_err *err)
{
    *g = (on_cuda_gpu){.padded = o->padded};
    TRY(vt_cuda_open(ordinal, &g->cuda, err));
    const vt_cuda *c = g->cuda;
    char why[160];
    bool library = o->library && !o->deterministic && c->level >= 90 &&
                   c->cublaslt_use != CUBLASLT_NEVER &&
                   vt_cublaslt_open(g->cuda, why, sizeof why) > 0;
    g->lane = (vt_cuda_lane){.cuda = g->cuda, .pdl = o->pdl};
    g->emulated = strstr(c->name, "Emulated") != NULL;
    g->target = (vt_target){.device = VT_DEVICE_CUDA,
                            .level = c->level,
                            .sm_count = c->sm_count,
                            .max_shared_bytes = c->max_shared_bytes,
                            .deterministic = o->deterministic,
                            .cublaslt = library,
                            .cublaslt_all = library,
                            .shared_rows = o->shared_rows};
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

static vt_status new_block(on_cuda *c, size_t bytes, void **out, vt_err *err)
{
    if (c->n_blocks == c->max_blocks) {
        int32_t most = c->max_blocks ? 2 * c->max_blocks : 64;
        void **more = realloc(c->block, (size_t)most * sizeof *more);
        if (!more)
            return vt_fail(err, VT_ERR_MEMORY, "%s: out of memory", c->op->name);
        c->block = more;
        c->max_blocks = most;
    }
    TRY(vt_cuda_alloc(c->gpu->cuda, bytes + SLACK, out, err));
    c->block[c->n_blocks++] = *out;
    return VT_OK;
}

static vt_status upload(on_cuda *c, void *to, const void *from, size_t bytes, vt_err *err)
{
    on_cuda_gpu *g = c->gpu;
    if (bytes == 0)
        return VT_OK;
    TRY(check(g, g->cuda->driver.copy_to_device(address(to), from, bytes, g->lane.stream), "upload",
              err));
    return wait_for(g, "upload", err); /* `from` may be freed now */
}

static vt_status new_upload(on_cuda *c, const void *from, size_t bytes, void **out, vt_err *err)
{
    TRY(new_block(c, bytes, out, err));
    return upload(c, *out, from, bytes, err);
}

/* ---- tensors ---- */

static bool is_integer(vt_dtype t) { return t >= VT_I8; }
static int64_t cols_of(const vt_tensor *t) { return t->dim[t->rank - 1]; }

static int64_t rows_of(const vt_tensor *t)
{
    return t->rank == 1 ? 1 : cols_of(t) == 0 ? 0 : vt_tensor_elems(t) / cols_of(t);
}

/* Elements from row to row: a slice's differ from its columns. */
static int64_t stride_of(const vt_tensor *t)
{
    return t->rank == 2 && !vt_dtype_quantised(t->dtype) ? t->row_stride : cols_of(t);
}

static char *host_row(const vt_tensor *t, int64_t row)
{
    return (char *)t->data + row * vt_dtype_row_bytes(t->dtype, stride_of(t));
}

/* The type that an operand's tensor has on the device. */
static vt_dtype device_type(const vt_operand *o, const vt_tensor *t)
{
    if (is_integer(t->dtype))
        return t->dtype;
    bool logits = o->kind == VT_OPERAND_ACTIVATION && o->written && t->follows == VT_FOLLOWS_ROWS;
    if (o->kind == VT_OPERAND_F32 || logits)
        return VT_F32;
    bool pool = o->kind == VT_OPERAND_KV || o->kind == VT_OPERAND_KV_LAYERS;
    return pool && t->dtype == VT_FP8_E4M3 ? VT_FP8_E4M3 : VT_BF16;
}

/* Rows of a host tensor as the device has them, gaps of slices left zero. */
static void convert(const vt_tensor *t, vt_dtype type, char *image, float *row)
{
    int64_t cols = cols_of(t);
    for (int64_t i = 0; i < rows_of(t); i++) {
        char *to = image + i * vt_dtype_row_bytes(type, stride_of(t));
        if (type == t->dtype) {
            memcpy(to, host_row(t, i), (size_t)vt_dtype_row_bytes(type, cols));
            continue;
        }
        vt_dequant_row(t->dtype, host_row(t, i), row, cols);
        vt_quant_row(type, row, to, cols);
    }
}

static vt_status fill_twin(on_cuda *c, on_cuda_twin *w, vt_err *err)
{
    const vt_tensor *h = &w->host;
    w->bytes = (size_t)vt_dtype_row_bytes(w->device.dtype, rows_of(h) * stride_of(h));
    char *image = calloc(w->bytes + 8, 1);
    float *row = malloc(((size_t)cols_of(h) + 1) * sizeof *row);
    vt_status status = VT_OK;
    if (!image || !row)
        status = vt_fail(err, VT_ERR_MEMORY, "%s: out of memory for %zu bytes", c->op->name,
                         w->bytes);
    if (status == VT_OK) {
        convert(h, w->device.dtype, image, row);
        status = new_upload(c, image, w->bytes, &w->device.data, err);
        w->base = w->device.data;
    }
    free(row);
    free(image);
    return status;
}

/* Operands may be the same tensor (in place), or parts of one that lie side by side. */
static on_cuda_twin *find_twin(const on_cuda *c, const vt_tensor *host)
{
    for (int32_t i = 0; i < c->n_twins; i++) {
        const on_cuda_twin *w = &c->twin[i];
        if (w->host.data == host->data && w->host.dim[1] == host->dim[1])
            return (on_cuda_twin *)(uintptr_t)w;
    }
    return NULL;
}

const on_cuda_twin *on_cuda_find(const on_cuda *c, const vt_tensor *host)
{
    return find_twin(c, host);
}

static vt_status twin_of(on_cuda *c, const vt_operand *o, const vt_tensor *host, on_cuda_twin **out,
                         vt_err *err)
{
    on_cuda_twin *w = find_twin(c, host);
    if (!w && c->n_twins == ON_CUDA_MAX_TWINS)
        return vt_fail(err, VT_ERR_UNSUPPORTED, "%s: more than %d tensors", c->op->name,
                       ON_CUDA_MAX_TWINS);
    if (!w) {
        w = &c->twin[c->n_twins++];
        *w = (on_cuda_twin){.host = *host, .device = *host};
        w->device.dtype = device_type(o, host);
        w->device.row_stride = stride_of(host);
        TRY(fill_twin(c, w, err));
    }
    w->read |= o->read;
    w->written |= o->written;
    *out = w;
    return VT_OK;
}

/* ---- operands ---- */

static void **member(void *args, const vt_operand *o)
{
    return (void **)((char *)args + o->offset);
}

static int32_t count_of(const void *args, const vt_operand *o)
{
    return *(const int32_t *)((const char *)args + o->count);
}

static vt_status no_memory(const on_cuda *c, vt_err *err)
{
    return vt_fail(err, VT_ERR_MEMORY, "%s: out of memory", c->op->name);
}

/* All layers' pools are one block of the host's memory, and become one of the device's. */
static vt_status make_layers(on_cuda *c, const vt_operand *o, vt_err *err)
{
    vt_tensor *host = *member(c->args, o), *pool;
    int32_t n = count_of(c->args, o);
    const char *first = host[0].data, *end = first;
    for (int32_t k = 0; k < c->op->n_operands; k++) { /* those of the other operand too */
        const vt_operand *other = &c->op->operands[k];
        const vt_tensor *t = *(vt_tensor *const *)((const char *)c->args + other->offset);
        for (int32_t i = 0; other->kind == VT_OPERAND_KV_LAYERS && other >= o && i < n; i++) {
            const char *base = t[i].data;
            first = base < first ? base : first;
            end = base + vt_tensor_bytes(&t[i]) > end ? base + vt_tensor_bytes(&t[i]) : end;
        }
    }
    on_cuda_twin *all = c->n_twins ? &c->twin[0] : NULL;
    if (!all || (const char *)host[0].data < (const char *)all->host.data ||
        (const char *)host[0].data >= (const char *)all->host.data + vt_tensor_bytes(&all->host)) {
        vt_tensor whole = host[0];
        whole.data = (void *)(uintptr_t)first;
        whole.dim[0] = (end - first) / (vt_tensor_bytes(&host[0]) / host[0].dim[0]);
        TRY(twin_of(c, o, &whole, &all, err));
    }
    pool = vt_arena_alloc(&c->arena, (size_t)n, sizeof *pool);
    if (!pool)
        return no_memory(c, err);
    for (int32_t i = 0; i < n; i++) {
        int64_t at = ((const char *)host[i].data - (const char *)all->host.data) /
                     vt_dtype_row_bytes(host[i].dtype, 1);
        pool[i] = host[i];
        pool[i].dtype = all->device.dtype;
        pool[i].data = (char *)all->device.data + vt_dtype_row_bytes(pool[i].dtype, at);
    }
    *member(c->args, o) = pool;
    return VT_OK;
}

static const vt_packing *packing_for(const on_cuda *c, const vt_packing *wanted, const vt_weight *w)
{
    if (wanted && wanted->bytes(w) > 0)
        return wanted;
    return vt_op_packing(c->op, w, &c->gpu->target);
}

/* n matrices of one shape in the packed form, one behind the other. */
static vt_status pack_weights(on_cuda *c, const vt_weight *host, int32_t n,
                              const vt_packing *wanted, vt_tensor **parts, const vt_packing **form,
                              vt_err *err)
{
    const vt_packing *p = *form = packing_for(c, wanted, host);
    if (!p)
        return vt_fail(err, VT_ERR_UNSUPPORTED, "%s: no row takes %s weights on a GPU", c->op->name,
                       vt_dtype_get(host->dtype)->name);
    size_t each = p->bytes(host);
    on_cuda_weights *k = &c->weights[c->n_weights];
    vt_tensor *part = vt_arena_alloc(&c->arena, (size_t)n, sizeof *part);
    char *image = calloc((size_t)n, each);
    vt_status status = VT_OK;
    if (!part || !image || c->n_weights == 4)
        status = no_memory(c, err);
    void *base = NULL;
    for (int32_t i = 0; i < n && status == VT_OK; i++)
        vt_pack_all(p, &host[i], image + (size_t)i * each);
    if (status == VT_OK)
        status = new_upload(c, image, (size_t)n * each, &base, err);
    free(image);
    if (status != VT_OK)
        return status;
    for (int32_t i = 0; i < n; i++)
        part[i] = vt_tensor_2d((char *)base + (size_t)i * each, p->type(host), host[i].rows,
                               host[i].cols);
    *k = (on_cuda_weights){
        .base = base, .bytes = (size_t)n * each, .part = part, .n = n, .each = each};
    c->n_weights++;
    c->quantised |= part[0].dtype != VT_BF16;
    c->rounded |= part[0].dtype == VT_BF16 && vt_dtype_quantised(host->dtype);
    *parts = part;
    return VT_OK;
}

static vt_status make_weights(on_cuda *c, const vt_operand *o, const vt_packing *wanted,
                              vt_err *err)
{
    const vt_weight *host = *member(c->args, o);
    int32_t n = o->kind == VT_OPERAND_WEIGHTS ? count_of(c->args, o) : 1;
    const vt_packing *p = NULL;
    vt_tensor *part = NULL;
    TRY(pack_weights(c, host, n, wanted, &part, &p, err));
    vt_weight *w = vt_arena_alloc(&c->arena, (size_t)n, sizeof *w);
    if (!w)
        return no_memory(c, err);
    for (int32_t i = 0; i < n; i++)
        w[i] = (vt_weight){.part = {&part[i]},
                           .n_parts = 1,
                           .n_experts = host[i].n_experts,
                           .paired = host[i].paired,
                           .rows = host[i].rows,
                           .cols = host[i].cols,
                           .dtype = part[i].dtype,
                           .packed_bytes = p->bytes(&host[i]),
                           .packing = p};
    *member(c->args, o) = w;
    return VT_OK;
}

static vt_weight weight_of_table(const vt_tensor *t)
{
    return (vt_weight){
        .part = {t}, .n_parts = 1, .rows = t->dim[0], .cols = t->dim[1], .dtype = t->dtype};
}

static vt_status make_table(on_cuda *c, const vt_operand *o, const vt_packing *wanted, vt_err *err)
{
    vt_weight w = weight_of_table(*member(c->args, o));
    const vt_packing *p = NULL;
    vt_tensor *part = NULL;
    TRY(pack_weights(c, &w, 1, wanted, &part, &p, err));
    *member(c->args, o) = part;
    return VT_OK;
}

static vt_status make_batch(on_cuda *c, const vt_batch *b, vt_err *err)
{
    vt_batch *d = &c->device_batch;
    const size_t tokens = (size_t)b->n_tokens, seqs = (size_t)b->n_seqs;
    const struct {
        const int32_t *from;
        const int32_t **to;
        size_t n;
    } array[] = {{b->token, &d->token, tokens},
                 {b->position, &d->position, tokens},
                 {b->seq_of, &d->seq_of, tokens},
                 {b->slot, &d->slot, tokens},
                 {b->q_start, &d->q_start, seqs + 1},
                 {b->kv_len, &d->kv_len, seqs},
                 {b->page_start, &d->page_start, seqs + 1},
                 {b->page_ids, &d->page_ids, (size_t)b->n_pages},
                 {b->row_token, &d->row_token, (size_t)b->n_rows}};
    *d = *b;
    for (size_t i = 0; i < sizeof array / sizeof *array; i++) {
        void *there = NULL;
        if (array[i].from)
            TRY(new_upload(c, array[i].from, array[i].n * sizeof(int32_t), &there, err));
        *array[i].to = there;
    }
    c->batch_on_device = d;
    return VT_OK;
}

/* An index or the pool: as many words as the output has rows, behind two pointers. */
static vt_status make_words(on_cuda *c, const vt_operand *o, int64_t rows, vt_err *err)
{
    int32_t *const *host = *member(c->args, o);
    void **to = vt_arena_alloc(&c->arena, 1, sizeof *to);
    if (!to)
        return no_memory(c, err);
    if (*host)
        TRY(new_upload(c, *host, (size_t)rows * sizeof(int32_t), to, err));
    *member(c->args, o) = to;
    return VT_OK;
}

/* Rows of the first tensor that the op writes. */
static int64_t output_rows(const vt_op *op, const void *args)
{
    for (int32_t i = 0; i < op->n_operands; i++) {
        const vt_operand *o = &op->operands[i];
        const vt_tensor *t = *(const vt_tensor *const *)((const char *)args + o->offset);
        if (t && o->written && o->kind <= VT_OPERAND_INT)
            return t->dim[0];
    }
    return 0;
}

static vt_status make_operand(on_cuda *c, const vt_operand *o, const vt_packing *wanted,
                              int64_t rows, vt_err *err)
{
    on_cuda_twin *w;
    if (!*member(c->args, o))
        return VT_OK;
    switch (o->kind) {
    case VT_OPERAND_WEIGHT:
    case VT_OPERAND_WEIGHTS:
        return make_weights(c, o, wanted, err);
    case VT_OPERAND_TABLE:
        return make_table(c, o, wanted, err);
    case VT_OPERAND_KV_LAYERS:
        return make_layers(c, o, err);
    case VT_OPERAND_INDEX:
    case VT_OPERAND_POOL:
        return make_words(c, o, rows, err);
    case VT_OPERAND_BATCH:
        if (!c->batch_on_device)
            TRY(make_batch(c, *member(c->args, o), err));
        *member(c->args, o) = &c->device_batch;
        return VT_OK;
    default:
        TRY(twin_of(c, o, *member(c->args, o), &w, err));
        *member(c->args, o) = &w->device;
        return VT_OK;
    }
}

/* ---- sizes ---- */

/* Rows that a call without a batch works on: those of its first tensor of rank 2. */
static int64_t first_rows(const vt_op *op, const void *args)
{
    for (int32_t i = 0; i < op->n_operands; i++) {
        const vt_operand *o = &op->operands[i];
        const vt_tensor *t = *(const vt_tensor *const *)((const char *)args + o->offset);
        if (t && o->kind <= VT_OPERAND_F32 && t->rank == 2)
            return t->dim[0];
    }
    return 0;
}

static int32_t at_least_one(int32_t n) { return n > 1 ? n : 1; }

static void set_size(on_cuda *c, const void *args)
{
    const vt_batch *b = vt_op_batch(c->op, args);
    if (!b) {
        int32_t rows = (int32_t)first_rows(c->op, args);
        c->counted = (vt_batch){.n_tokens = rows, .n_seqs = rows, .n_rows = rows, .page_size = 1};
        b = &c->counted;
    }
    int32_t context = 1;
    for (int32_t s = 0; b->kv_len && s < b->n_seqs; s++)
        context = b->kv_len[s] > context ? b->kv_len[s] : context;
    c->batch = b;
    c->size = (vt_size){.tokens = b->n_tokens,
                        .seqs = b->n_seqs,
                        .rows = b->n_rows,
                        .decodes = b->n_decode,
                        .prefills = b->n_seqs - b->n_decode,
                        .copies = b->n_copies,
                        .bucket = c->gpu->padded};
    int32_t seqs = b->n_copies > b->n_seqs ? b->n_copies : b->n_seqs;
    c->target.limits = (vt_limits){.max_tokens = at_least_one(b->n_tokens),
                                   .max_seqs = at_least_one(seqs),
                                   .max_rows = at_least_one(b->n_rows),
                                   .max_context = context,
                                   .page_size = at_least_one(b->page_size),
                                   .n_workers = 1};
}

/* ---- making ---- */

static vt_status keep_first_values(on_cuda *c, vt_err *err)
{
    for (int32_t i = 0; i < c->n_twins; i++) {
        on_cuda_twin *w = &c->twin[i];
        if (!w->read || !w->written || w->bytes == 0)
            continue;
        TRY(new_block(c, w->bytes, &w->first, err));
        TRY(check(c->gpu,
                  c->gpu->cuda->driver.copy_device(address(w->first), address(w->base), w->bytes,
                                                   c->gpu->lane.stream),
                  "keeping an operand", err));
    }
    return wait_for(c->gpu, "keeping operands", err);
}

vt_status on_cuda_make(on_cuda *c, on_cuda_gpu *g, const vt_op *op, const void *args,
                       const vt_packing *packing, vt_err *err)
{
    *c = (on_cuda){.gpu = g, .op = op, .target = g->target};
    if (op->n_operands == 0)
        return vt_fail(err, VT_ERR_UNSUPPORTED, "%s has no rows for a GPU", op->name);
    vt_arena_init(&c->arena, 0);
    c->args = vt_arena_alloc(&c->arena, 1, op->args_size);
    vt_status status = c->args ? VT_OK : no_memory(c, err);
    if (status == VT_OK) {
        memcpy(c->args, args, op->args_size);
        set_size(c, args);
    }
    for (int32_t i = 0; i < op->n_operands && status == VT_OK; i++)
        status = make_operand(c, &op->operands[i], packing, output_rows(op, args), err);
    if (status == VT_OK)
        status = keep_first_values(c, err);
    if (status != VT_OK)
        on_cuda_release(c);
    return status;
}

static void drop_row(on_cuda *c)
{
    void *block[] = {c->plan, c->side, c->workspace};
    for (size_t i = 0; i < sizeof block / sizeof *block; i++)
        if (block[i])
            vt_cuda_free(c->gpu->cuda, block[i]);
    c->plan = c->side = c->workspace = NULL;
    c->impl = NULL;
    c->items = 0;
    c->compiled = false;
}

void on_cuda_release(on_cuda *c)
{
    if (!c->gpu)
        return;
    drop_row(c);
    for (int32_t i = 0; i < c->n_blocks; i++)
        vt_cuda_free(c->gpu->cuda, c->block[i]);
    free(c->block);
    vt_arena_release(&c->arena);
    *c = (on_cuda){0};
}

/* ---- the row ---- */

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
    size_t bytes = p->bytes(c->args, t, &c->size, c->items);
    size_t side_bytes = p->side_bytes ? p->side_bytes(c->args, c->batch) : 0;
    char *plan = calloc(bytes + 16, 1), *side = calloc(side_bytes + 16, 1);
    vt_status status = plan && side ? VT_OK : no_memory(c, err);
    if (status == VT_OK) {
        int32_t n = p->fill(c->args, t, &c->size, c->batch, c->items, plan, side);
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
        status = upload(c, c->plan, plan, bytes, err);
    if (status == VT_OK)
        status = upload(c, c->side, side, side_bytes, err);
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
                    .workspace = c->workspace,
                    .workspace_bytes = c->target.workspace_bytes,
                    .cuda = l,
                    .tickets = c->gpu->tickets};
    if (c->impl->plan && c->items == 0 && !l->collect) /* nothing to do: no executor calls it */
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

/* The kernels of the row, those with PDL too where calls may be timed with it. */
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

static vt_status fill(on_cuda *c, void *p, int pattern, size_t bytes, vt_err *err)
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
        int pattern = is_integer(w->device.dtype) ? INT_PATTERN : FLOAT_PATTERN;
        if (w->first)
            TRY(check(c->gpu,
                      c->gpu->cuda->driver.copy_device(address(w->base), address(w->first),
                                                       w->bytes, c->gpu->lane.stream),
                      "putting an operand back", err));
        else if (w->written)
            TRY(fill(c, w->base, pattern, w->bytes, err));
    }
    return fill(c, c->workspace, FLOAT_PATTERN, c->target.workspace_bytes, err);
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
    return wait_for(c->gpu, "running a kernel", err);
}

vt_cost on_cuda_cost(const on_cuda *c)
{
    return c->op->cost(c->args, c->batch == &c->counted ? NULL : c->batch);
}

/* ---- the host's values ---- */

static void round_rows(const vt_tensor *t, float *row)
{
    for (int64_t i = 0; i < rows_of(t); i++) {
        vt_dequant_row(t->dtype, host_row(t, i), row, cols_of(t));
        for (int64_t k = 0; k < cols_of(t); k++)
            if (!isnan(row[k]))
                row[k] = vt_bf16_to_f32(vt_f32_to_bf16(row[k]));
        vt_quant_row(t->dtype, row, host_row(t, i), cols_of(t));
    }
}

/* Values become BF16 ones, in the tensor's own type. */
static vt_status round_tensor(const vt_tensor *t, vt_err *err)
{
    if (!t || (t->dtype != VT_F32 && t->dtype != VT_F16))
        return VT_OK;
    float *row = malloc(((size_t)cols_of(t) + 1) * sizeof *row);
    if (!row)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for a row of %lld",
                       (long long)cols_of(t));
    round_rows(t, row);
    free(row);
    return VT_OK;
}

static void poison_tensor(const vt_tensor *t)
{
    int pattern = is_integer(t->dtype) ? INT_PATTERN : FLOAT_PATTERN;
    for (int64_t i = 0; i < rows_of(t); i++)
        memset(host_row(t, i), pattern, (size_t)vt_dtype_row_bytes(t->dtype, cols_of(t)));
}

static vt_status round_weights(const vt_weight *w, int32_t n, vt_err *err)
{
    for (int32_t i = 0; i < n; i++)
        for (int32_t p = 0; p < w[i].n_parts; p++)
            TRY(round_tensor(w[i].part[p], err));
    return VT_OK;
}

/* Whether another operand that is read is this tensor. */
static bool read_elsewhere(const vt_op *op, void *args, const vt_tensor *t)
{
    for (int32_t i = 0; i < op->n_operands; i++) {
        const vt_operand *o = &op->operands[i];
        const vt_tensor *other = *member(args, o);
        if (o->kind <= VT_OPERAND_KV && o->read && other && other->data == t->data)
            return true;
    }
    return false;
}

vt_status on_cuda_round(const vt_op *op, void *args, vt_err *err)
{
    for (int32_t i = 0; i < op->n_operands; i++) {
        const vt_operand *o = &op->operands[i];
        void *p = *member(args, o);
        if (!p)
            continue;
        bool pool = o->kind == VT_OPERAND_KV || o->kind == VT_OPERAND_KV_LAYERS;
        if (o->kind == VT_OPERAND_WEIGHT || o->kind == VT_OPERAND_WEIGHTS)
            TRY(round_weights(p, o->kind == VT_OPERAND_WEIGHT ? 1 : count_of(args, o), err));
        else if (o->kind <= VT_OPERAND_INT && !o->read && !read_elsewhere(op, args, p))
            poison_tensor(p);
        else if (o->kind == VT_OPERAND_KV_LAYERS)
            for (int32_t k = 0; k < count_of(args, o); k++)
                TRY(round_tensor((const vt_tensor *)p + k, err));
        else if (o->kind == VT_OPERAND_ACTIVATION || o->kind == VT_OPERAND_TABLE || pool)
            TRY(round_tensor(p, err));
    }
    return VT_OK;
}

/* ---- comparing ---- */

double on_cuda_tolerance(const on_cuda *c, const vt_tensor *device)
{
    enum { FEW_TOKENS = 64 };
    bool one_matrix = c->n_weights == 1 && c->weights[0].n == 1;
    if (c->op->tolerance == 0 || is_integer(device->dtype))
        return 0;
    if (c->rounded || (c->quantised && one_matrix && c->size.tokens > FEW_TOKENS))
        return 0.02;
    return device->dtype == VT_F32 ? 0.002 : 0.01;
}

vt_status on_cuda_fetch(on_cuda *c, const vt_tensor *output, void **bytes, vt_err *err)
{
    on_cuda_gpu *g = c->gpu;
    const on_cuda_twin *w = find_twin(c, output);
    if (!w)
        return vt_fail(err, VT_ERR_UNSUPPORTED, "%s: an output is none of the card's operands",
                       c->op->name);
    *bytes = malloc(w->bytes + 8);
    if (!*bytes)
        return no_memory(c, err);
    vt_status status = check(
        g, g->cuda->driver.copy_to_host(*bytes, address(w->base), w->bytes, g->lane.stream),
        "download", err);
    if (status == VT_OK)
        status = wait_for(g, "download", err);
    if (status != VT_OK)
        free(*bytes);
    return status;
}

static void wrong(on_cuda_error *e, int64_t row, int64_t col, double got, double want, double error)
{
    if (e->good)
        snprintf(e->why, sizeof e->why,
                 "row %lld, %lld: %g, expected %g (error %.3g, allowed %.3g)", (long long)row,
                 (long long)col, got, want, error, e->allowed);
    e->good = false;
}

static void compare_integers(const vt_tensor *want, int64_t row, const char *got, on_cuda_error *e)
{
    int64_t size = vt_dtype_row_bytes(want->dtype, 1);
    for (int64_t k = 0; k < cols_of(want); k++) {
        int64_t a = 0, b = 0; /* little endian */
        memcpy(&a, got + k * size, (size_t)size);
        memcpy(&b, host_row(want, row) + k * size, (size_t)size);
        if (a != b)
            wrong(e, row, k, (double)(int32_t)a, (double)(int32_t)b, INFINITY);
    }
}

static bool next_code(const char *got, const char *want, int64_t k)
{
    int step = (unsigned char)got[k] - (unsigned char)want[k];
    return step >= -1 && step <= 1;
}

static void compare_floats(const vt_tensor *want, vt_dtype type, int64_t row, const char *got,
                           double tolerance, float *room, on_cuda_error *e)
{
    int64_t cols = cols_of(want);
    float *g = room, *w = room + cols;
    vt_dequant_row(type, got, g, cols);
    vt_dequant_row(want->dtype, host_row(want, row), w, cols);
    bool codes = type == VT_FP8_E4M3 && want->dtype == VT_FP8_E4M3 && tolerance > 0;
    for (int64_t k = 0; k < cols; k++) {
        double x = (double)g[k], y = (double)w[k], error = fabs(x - y) / (1 + fabs(y));
        if (x == y || (isnan(x) && isnan(y)) || (codes && next_code(got, host_row(want, row), k)))
            continue;
        if (!(error <= tolerance))
            wrong(e, row, k, x, y, error);
        if (error > e->worst)
            e->worst = error;
    }
}

static vt_status compare_one(on_cuda *c, const vt_tensor *want, on_cuda_error *e, vt_err *err)
{
    void *bytes;
    TRY(on_cuda_fetch(c, want, &bytes, err));
    const on_cuda_twin *w = find_twin(c, want);
    double tolerance = on_cuda_tolerance(c, &w->device);
    e->allowed = tolerance > e->allowed ? tolerance : e->allowed;
    float *room = malloc((2 * (size_t)cols_of(want) + 1) * sizeof *room);
    vt_status status = room ? VT_OK : no_memory(c, err);
    for (int64_t i = 0; status == VT_OK && i < rows_of(want); i++) {
        const char *got = (char *)bytes +
                          i * vt_dtype_row_bytes(w->device.dtype, w->device.row_stride);
        if (is_integer(want->dtype))
            compare_integers(want, i, got, e);
        else
            compare_floats(want, w->device.dtype, i, got, tolerance, room, e);
    }
    free(room);
    free(bytes);
    return status;
}

static vt_status check_tickets(on_cuda *c, on_cuda_error *e, vt_err *err)
{
    on_cuda_gpu *g = c->gpu;
    size_t bytes = (size_t)c->n_tickets * 4;
    uint32_t *ticket = calloc((size_t)c->n_tickets + 1, 4);
    if (!ticket)
        return no_memory(c, err);
    vt_status status = VT_OK;
    if (bytes)
        status = check(
            g, g->cuda->driver.copy_to_host(ticket, address(g->tickets), bytes, g->lane.stream),
            "download", err);
    if (status == VT_OK)
        status = wait_for(g, "download", err);
    for (int64_t i = 0; status == VT_OK && e->good && i < c->n_tickets; i++)
        if (ticket[i]) {
            e->good = false;
            snprintf(e->why, sizeof e->why, "ticket %lld of %lld is %u after the call, expected 0",
                     (long long)i, (long long)c->n_tickets, ticket[i]);
            status = fill(c, g->tickets, 0, CUDA_TICKETS * 4, err);
        }
    free(ticket);
    return status;
}

vt_status on_cuda_compare(on_cuda *c, vt_tensor *const *outputs, int32_t n_outputs,
                          on_cuda_error *out, vt_err *err)
{
    *out = (on_cuda_error){.good = true};
    for (int32_t i = 0; i < n_outputs; i++)
        TRY(compare_one(c, outputs[i], out, err));
    return check_tickets(c, out, err);
}
