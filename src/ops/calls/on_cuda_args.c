/* The args of a call on the device, operand by operand: see on_cuda.h. */
#include "ops/calls/on_cuda_inside.h"

#include <stdlib.h>
#include <string.h>

#include "base/quant.h"
#include "ops/calls/on_cpu.h"

static vt_status check(const on_cuda_gpu *g, cu_result r, const char *what, vt_err *err)
{
    return vt_cuda_check(g->cuda, r, what, err);
}

static vt_status new_upload(on_cuda *c, const void *from, size_t bytes, void **out, vt_err *err)
{
    TRY(on_cuda_new_block(c, bytes, out, err));
    return on_cuda_upload(c, *out, from, bytes, err);
}

/* ---- tensors ---- */

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

/* Converts a host tensor to the device's type. Gaps between the rows of slices stay zero. */
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

/* Finds the device's copy of a host tensor. Operands may be the same tensor (in place), or parts of
 * one tensor that lie side by side. */
on_cuda_twin *on_cuda_twin_of(const on_cuda *c, const vt_tensor *host)
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
    return on_cuda_twin_of(c, host);
}

static vt_status twin_of(on_cuda *c, const vt_operand *o, const vt_tensor *host, on_cuda_twin **out,
                         vt_err *err)
{
    on_cuda_twin *w = on_cuda_twin_of(c, host);
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

/* The pools of all layers are one block of host memory, and become one block of device memory. */
static vt_status make_layers(on_cuda *c, const vt_operand *o, vt_err *err)
{
    vt_tensor *host = *member(c->args, o), *pool;
    int32_t n = count_of(c->args, o);
    const char *first = host[0].data, *end = first;
    for (int32_t k = 0; k < c->op->n_operands; k++) { /* K's operand and V's */
        const vt_operand *other = &c->op->operands[k];
        const vt_tensor *t = *(vt_tensor *const *)((const char *)c->args + other->offset);
        bool counts = other->kind == VT_OPERAND_KV_LAYERS && other >= o && t;
        for (int32_t i = 0; counts && i < n; i++) {
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
    vt_op_packing(c->op, w, &c->gpu->target, &wanted);
    return wanted;
}

/* Packs n matrices of one shape, one after the other. */
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
    c->rounded |= part[0].dtype == VT_BF16 && (vt_dtype_quantised(host->dtype) || host->scale[0]);
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
        w[i] = vt_weight_packed(&host[i], p, &part[i]);
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
                 {b->row_token, &d->row_token, (size_t)b->n_rows},
                 {b->state_from, &d->state_from, seqs},
                 {b->state_to, &d->state_to, seqs},
                 {b->state_behind, &d->state_behind, tokens},
                 {b->second, &d->second, seqs}};
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

/* Makes an index or the token pool: as many words as the output has rows, reached through two
 * pointers. */
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

/* The number of rows that a call without a batch works on: those of its first tensor of rank 2. */
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
    c->size = vt_size_of(b);
    c->size.bucket = c->gpu->padded;
    int32_t seqs = b->n_copies > b->n_seqs ? b->n_copies : b->n_seqs;
    c->target.limits = (vt_limits){.max_tokens = at_least_one(b->n_tokens),
                                   .max_seqs = at_least_one(seqs),
                                   .max_rows = at_least_one(b->n_rows),
                                   .max_context = context,
                                   .page_size = at_least_one(b->page_size),
                                   .n_workers = 1,
                                   .decode_tokens = c->size.decode_tokens};
}

/* ---- making ---- */

static vt_status keep_first_values(on_cuda *c, vt_err *err)
{
    for (int32_t i = 0; i < c->n_twins; i++) {
        on_cuda_twin *w = &c->twin[i];
        if (!w->read || !w->written || w->bytes == 0)
            continue;
        TRY(on_cuda_new_block(c, w->bytes, &w->first, err));
        TRY(check(c->gpu,
                  c->gpu->cuda->driver.copy_device(address(w->first), address(w->base), w->bytes,
                                                   c->gpu->lane.stream),
                  "keeping an operand", err));
    }
    return on_cuda_wait(c->gpu, "keeping operands", err);
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
        status = make_operand(c, &op->operands[i], packing, vt_op_output_rows(op, args), err);
    if (status == VT_OK)
        status = keep_first_values(c, err);
    if (status != VT_OK)
        on_cuda_release(c);
    return status;
}
