/* Loading weights to the device.
 *
 *   describe   walk the model; every matrix and vector gets an offset in one range and a list of
 *              its sources
 *   reserve    one range of that size
 *   fill       vt_cuda_upload: threads convert rows into pinned buffers while earlier ones cross
 *              the bus; a dummy model's matrices are made by a kernel and cross nothing
 *
 *   [ embed | L0: q k v stacked | o | gate up stacked | down | norms ... | L1 ... | head | rope
 *   tables ]
 *
 * Quantised and FP8 matrices keep their bits, in tiles (ops/linear/linear_quant.h); F32, F16 and
 * BF16 ones become BF16. q, k and v are one matrix, and gate and up a pair, where they have one
 * type on the device and no biases forbid it; else they stay apart and the program has more calls
 * (files of mixed types, Q4_K_M for one, keep some of the v in Q6_K). The embedding is the head
 * where the model ties them: one copy. Experts are such matrices too, one behind the other. */
#include "exec/cuda_weights.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "model/dummy.h"
#include "base/quant.h"
#include "ops/cuda_impls.h"
#include "ops/linear/linear_impl.h"
#include "ops/linear/linear_quant.h"
#include "ops/moe/moe_cuda.h"
#include "ops/rope/rope.h"

enum { ALIGN = 256 };

/* One host tensor that becomes rows of a device matrix, or a device vector; or up to three that
 * become tiles. */
typedef struct source {
    const vt_tensor *from;     /* NULL: a rope table, or tiles */
    const vt_tensor *scale;    /* FP8 that becomes BF16: of these rows */
    linear_quant_source tiles; /* n_parts 0: none */
    const vt_rope_params *rope;
    vt_tensor *to;
    size_t offset; /* of the first byte in the range */
    bool dummy;
    int64_t from_row, rows; /* a dummy's rows of `from`, experts counted through; rows 0: all */
} source;

typedef struct loader {
    vt_cuda_weights *w;
    const vt_model *m;
    source *source;
    int32_t n, capacity;
    size_t bytes;
    vt_err *err;
    vt_status status; /* the first failure; later calls do nothing */
} loader;

static source *add_source(loader *l)
{
    if (l->n == l->capacity) {
        int32_t capacity = l->capacity ? 2 * l->capacity : 256;
        source *more = realloc(l->source, (size_t)capacity * sizeof *more);
        if (!more) {
            l->status = vt_fail(l->err, VT_ERR_MEMORY, "out of memory for a list of weights");
            return NULL;
        }
        l->source = more;
        l->capacity = capacity;
    }
    l->source[l->n] = (source){0};
    return &l->source[l->n++];
}

static vt_tensor *new_tensor(loader *l, vt_tensor t, size_t bytes)
{
    vt_tensor *to = l->status == VT_OK ? vt_arena_alloc(&l->w->weights.arena, 1, sizeof *to) : NULL;
    if (!to) {
        if (l->status == VT_OK)
            l->status = vt_fail(l->err, VT_ERR_MEMORY, "out of memory for the weights of %s",
                                l->m->name);
        return NULL;
    }
    *to = t;
    to->data = (void *)l->bytes; /* an offset until place() */
    l->bytes = vt_round_up(l->bytes + bytes, ALIGN);
    return to;
}

static vt_tensor *new_plain(loader *l, vt_tensor t)
{
    return new_tensor(l, t, (size_t)vt_tensor_bytes(&t));
}

/* The type that a host matrix has on the device. */
static vt_dtype device_type(const vt_tensor *t)
{
    return linear_quant_type(t->dtype, t->dim[1]) ? t->dtype : VT_BF16;
}

static bool one_type(const vt_tensor *const *t, int32_t n)
{
    for (int32_t i = 1; i < n; i++)
        if (device_type(t[i]) != device_type(t[0]))
            return false;
    return true;
}

/* Up to three tensors, one below the other, in tiles. */
static const vt_tensor *tiled(loader *l, const vt_tensor *const *part,
                              const vt_tensor *const *scale, int32_t n, bool paired)
{
    linear_quant_source tiles = {.n_parts = n, .paired = paired};
    int64_t rows = 0, cols = part[0]->dim[1];
    for (int32_t i = 0; i < n; i++) {
        tiles.part[i].rows = part[i];
        tiles.part[i].scale = scale[i];
        rows += part[i]->dim[0];
    }
    vt_dtype type = part[0]->dtype;
    vt_tensor *to = new_tensor(l, vt_tensor_2d(NULL, type, rows, cols),
                               linear_quant_matrix_bytes(type, rows, cols, paired));
    source *s = to ? add_source(l) : NULL;
    if (s)
        *s = (source){.tiles = tiles, .to = to, .offset = (size_t)to->data};
    return to;
}

/* Rows of up to three tensors of one device type, one after the other. */
static const vt_tensor *matrix(loader *l, const vt_tensor *const *part,
                               const vt_tensor *const *scale, int32_t n, bool paired)
{
    int64_t rows = 0, cols = part[0]->dim[1];
    if (device_type(part[0]) != VT_BF16)
        return tiled(l, part, scale, n, paired);
    for (int32_t i = 0; i < n; i++)
        rows += part[i]->dim[0];
    vt_tensor *to = new_plain(l, vt_tensor_2d(NULL, VT_BF16, rows, cols));
    for (int32_t i = 0, row0 = 0; to && i < n; row0 += (int32_t)part[i++]->dim[0]) {
        source *s = add_source(l);
        if (!s)
            return NULL;
        *s = (source){.from = part[i],
                      .scale = scale[i],
                      .to = to,
                      .offset = (size_t)to->data + (size_t)row0 * (size_t)cols * 2,
                      .dummy = vt_model_is_dummy(l->m)};
    }
    return to;
}

static const vt_tensor *one_matrix(loader *l, const vt_tensor *t, const vt_tensor *scale)
{
    return matrix(l, &t, &scale, 1, false);
}

/* A rank-1 tensor as F32; NULL stays NULL. */
static const vt_tensor *vector(loader *l, const vt_tensor *t)
{
    if (!t)
        return NULL;
    vt_tensor *to = new_plain(
        l, (vt_tensor){.dtype = VT_F32, .rank = 1, .dim = {t->dim[0]}, .row_stride = t->dim[0]});
    source *s = to ? add_source(l) : NULL;
    if (s)
        *s = (source){
            .from = t, .to = to, .offset = (size_t)to->data, .dummy = vt_model_is_dummy(l->m)};
    return to;
}

/* Biases of stacked parts: all are there, or none. */
static const vt_tensor *joined_bias(loader *l, const vt_tensor *const *bias, int32_t n)
{
    int64_t total = 0;
    if (!bias[0])
        return NULL;
    for (int32_t i = 0; i < n; i++)
        total += bias[i]->dim[0];
    vt_tensor *to = new_plain(
        l, (vt_tensor){.dtype = VT_F32, .rank = 1, .dim = {total}, .row_stride = total});
    int64_t at = 0;
    for (int32_t i = 0; to && i < n; at += bias[i++]->dim[0]) {
        source *s = add_source(l);
        if (s)
            *s = (source){
                .from = bias[i], .to = to, .offset = (size_t)to->data + (size_t)at * sizeof(float)};
    }
    return to;
}

static const vt_tensor *table(loader *l, const vt_rope_params *p, int32_t positions)
{
    vt_tensor *to = new_plain(l, vt_tensor_2d(NULL, VT_F32, positions, p->dims));
    source *s = to ? add_source(l) : NULL;
    if (s)
        *s = (source){.rope = p, .to = to, .offset = (size_t)to->data};
    return to;
}

static void set_weight(vt_weight *w, const vt_tensor *t, bool paired)
{
    if (!t)
        return;
    *w = (vt_weight){.part = {t},
                     .n_parts = 1,
                     .paired = paired,
                     .rows = t->dim[0],
                     .cols = t->dim[1],
                     .dtype = t->dtype};
    if (t->dtype == VT_BF16)
        return;
    w->packed_for = &linear_cuda_impl;
    w->packed_bytes = linear_quant_matrix_bytes(t->dtype, w->rows, w->cols, paired);
}

/* A router stays F32: which expert wins must not depend on a rounding. */
static const vt_tensor *router(loader *l, const vt_tensor *t)
{
    vt_tensor *to = new_plain(l, vt_tensor_2d(NULL, VT_F32, t->dim[0], t->dim[1]));
    source *s = to ? add_source(l) : NULL;
    if (s)
        *s = (source){
            .from = t, .to = to, .offset = (size_t)to->data, .dummy = vt_model_is_dummy(l->m)};
    return to;
}

/* The type that all experts of these tensors have on the device. Where the kernels for tiles cannot
 * read one side of the experts, both are BF16: moe_expert_any.cu reads nothing else. */
static vt_dtype experts_type(const loader *l, const vt_tensor *const *part, int32_t n_parts)
{
    const vt_arch *a = &l->m->arch;
    vt_dtype type = part[0]->dtype;
    for (int32_t i = 1; i < n_parts; i++)
        if (part[i]->dtype != type)
            return VT_BF16;
    bool tiles = linear_quant_type(type, a->hidden) && linear_quant_type(type, a->expert_ffn) &&
                 a->n_experts <= MOE_CUDA_EXPERTS;
    return tiles ? type : VT_BF16;
}

/* Expert e of a rank-3 tensor, as the host has it; NULL of NULL. */
static const vt_tensor *expert_view(loader *l, const vt_tensor *t, int64_t e)
{
    vt_tensor *view = t ? vt_arena_alloc(&l->w->weights.arena, 1, sizeof *view) : NULL;
    if (view)
        *view = vt_tensor_matrix(t, e);
    else if (t && l->status == VT_OK)
        l->status = vt_fail(l->err, VT_ERR_MEMORY, "out of memory for the experts of %s",
                            l->m->name);
    return view;
}

static const vt_tensor *tiled_expert(loader *l, const vt_tensor *const *part,
                                     const vt_tensor *const *scale, int32_t n_parts, bool paired,
                                     int64_t e)
{
    const vt_tensor *view[2], *view_scale[2];
    for (int32_t i = 0; i < n_parts; i++) {
        view[i] = expert_view(l, part[i], e);
        view_scale[i] = expert_view(l, scale[i], e);
    }
    return l->status == VT_OK ? tiled(l, view, view_scale, n_parts, paired) : NULL;
}

static const vt_tensor *bf16_expert(loader *l, const vt_tensor *const *part,
                                    const vt_tensor *const *scale, int32_t n_parts, int64_t e)
{
    int64_t rows = part[0]->dim[1], cols = part[0]->dim[2];
    vt_tensor *to = new_plain(l, vt_tensor_2d(NULL, VT_BF16, n_parts * rows, cols));
    for (int32_t i = 0; to && i < n_parts; i++) {
        bool dummy = vt_model_is_dummy(l->m); /* filled by the whole tensor's rule */
        source *s = add_source(l);
        if (!s)
            return NULL;
        *s = (source){.from = dummy ? part[i] : expert_view(l, part[i], e),
                      .scale = expert_view(l, scale[i], e),
                      .to = to,
                      .offset = (size_t)to->data + (size_t)(i * rows * cols) * 2,
                      .dummy = dummy,
                      .from_row = dummy ? e * rows : 0,
                      .rows = dummy ? rows : 0};
    }
    return to;
}

/* The experts of a rank-3 tensor, or of gate and up stacked, as matrices that follow each other
 * without a gap: the grouped product finds them by a stride. */
static vt_weight *experts(loader *l, const vt_tensor *const *part, const vt_tensor *const *scale,
                          int32_t n_parts, bool paired)
{
    int64_t n = part[0]->dim[0];
    bool tiles = experts_type(l, part, n_parts) != VT_BF16;
    vt_weight *w = vt_arena_alloc(&l->w->weights.arena, (size_t)n, sizeof *w);
    if (!w) {
        if (l->status == VT_OK)
            l->status = vt_fail(l->err, VT_ERR_MEMORY, "out of memory for the experts of %s",
                                l->m->name);
        return NULL;
    }
    for (int64_t e = 0; e < n && l->status == VT_OK; e++) {
        const vt_tensor *to = tiles ? tiled_expert(l, part, scale, n_parts, paired, e)
                                    : bf16_expert(l, part, scale, n_parts, e);
        set_weight(&w[e], to, paired);
        if (to && e + 1 < n)
            l->bytes = (size_t)to->data + (tiles ? w[e].packed_bytes : (size_t)vt_tensor_bytes(to));
    }
    return w;
}

static void describe_experts(loader *l, const vt_layer *src, vt_layer *to, vt_layer_weights *dst)
{
    const vt_tensor *gate_up[2] = {src->expert_gate, src->expert_up},
                    *scale[2] = {src->expert_gate_scale, src->expert_up_scale};
    to->router = router(l, src->router);
    dst->expert_gate_up = experts(l, gate_up, scale, 2, true);
    dst->expert_down = experts(l, &src->expert_down, &src->expert_down_scale, 1, false);
}

static void describe_ffn(loader *l, const vt_layer *src, vt_layer *to, vt_layer_weights *dst)
{
    const vt_tensor *part[2] = {src->gate, src->up}, *scale[2] = {src->gate_scale, src->up_scale};
    bool pair = !src->gate_bias && !src->up_bias && one_type(part, 2);
    dst->n_gate_up = pair ? 1 : 2;
    if (pair) {
        set_weight(&dst->gate_up[0], matrix(l, part, scale, 2, true), true);
    } else {
        set_weight(&dst->gate_up[0], one_matrix(l, src->gate, src->gate_scale), false);
        set_weight(&dst->gate_up[1], one_matrix(l, src->up, src->up_scale), false);
    }
    set_weight(&dst->down, one_matrix(l, src->down, src->down_scale), false);
    to->gate_bias = vector(l, src->gate_bias);
    to->up_bias = vector(l, src->up_bias);
    to->down_bias = vector(l, src->down_bias);
}

static void describe_qkv(loader *l, const vt_layer *src, vt_layer *to, vt_layer_weights *dst)
{
    const vt_tensor *part[3] = {src->q, src->k, src->v},
                    *scale[3] = {src->q_scale, src->k_scale, src->v_scale};
    const vt_tensor *bias[3] = {src->q_bias, src->k_bias, src->v_bias};
    bool biases = !bias[0] == !bias[1] && !bias[0] == !bias[2]; /* a file may have some of them */
    dst->n_qkv = one_type(part, 3) && biases ? 1 : 3;
    if (dst->n_qkv == 1) {
        set_weight(&dst->qkv[0], matrix(l, part, scale, 3, false), false);
        dst->qkv_bias = joined_bias(l, bias, 3);
        return;
    }
    for (int32_t i = 0; i < 3; i++)
        set_weight(&dst->qkv[i], one_matrix(l, part[i], scale[i]), false);
    to->q_bias = vector(l, src->q_bias);
    to->k_bias = vector(l, src->k_bias);
    to->v_bias = vector(l, src->v_bias);
}

static void describe_layer(loader *l, const vt_layer *src, vt_layer *to, vt_layer_weights *dst)
{
    *to = *src;
    describe_qkv(l, src, to, dst);
    set_weight(&dst->o, one_matrix(l, src->o, src->o_scale), false);
    to->o_bias = vector(l, src->o_bias);
    to->attn_norm = vector(l, src->attn_norm);
    to->q_norm = vector(l, src->q_norm);
    to->k_norm = vector(l, src->k_norm);
    to->post_attn_norm = vector(l, src->post_attn_norm);
    to->ffn_norm = vector(l, src->ffn_norm);
    to->post_ffn_norm = vector(l, src->post_ffn_norm);
    if (src->router)
        describe_experts(l, src, to, dst);
    else
        describe_ffn(l, src, to, dst);
}

static void describe(loader *l, int32_t max_context)
{
    const vt_model *m = l->m;
    vt_model *twin = &l->w->model;
    vt_weights *w = &l->w->weights;
    *twin = *m;
    twin->close = NULL;
    w->model = twin;
    twin->layer = vt_arena_alloc(&w->arena, (size_t)m->arch.n_layers, sizeof *twin->layer);
    w->layer = vt_arena_alloc(&w->arena, (size_t)m->arch.n_layers, sizeof *w->layer);
    if (!twin->layer || !w->layer) {
        l->status = vt_fail(l->err, VT_ERR_MEMORY, "out of memory for the weights of %s", m->name);
        return;
    }
    twin->embed = one_matrix(l, m->embed, NULL);
    for (int32_t i = 0; i < m->arch.n_layers && l->status == VT_OK; i++)
        describe_layer(l, &m->layer[i], &twin->layer[i], &w->layer[i]);
    twin->final_norm = vector(l, m->final_norm);
    twin->head = m->head == m->embed ? twin->embed : one_matrix(l, m->head, NULL);
    set_weight(&w->head, twin->head, false);
    w->rope_table = table(l, &m->arch.rope, max_context);
    if (m->arch.has_rope_local)
        w->rope_local_table = table(l, &m->arch.rope_local, max_context);
}

/* ---- filling ---- */

static int64_t source_cols(const source *s) { return s->from->dim[s->from->rank - 1]; }

/* FP8: one scale for all, or one for each 128 x 128 block; col0 begins a block. */
static void apply_scale(const vt_tensor *scale, int64_t row, int64_t col0, float *values, int64_t n)
{
    for (int64_t at = 0; at < n; at += LINEAR_SCALE_BLOCK) {
        float s = linear_scale_at(scale, row, col0 + at);
        for (int64_t i = at; i < n && i < at + LINEAR_SCALE_BLOCK; i++)
            values[i] *= s;
    }
}

static void produce_matrix(const void *arg, void *out, size_t begin, size_t bytes)
{
    const source *s = arg;
    const vt_tensor *t = s->from;
    int64_t cols = source_cols(s), row_bytes = vt_dtype_row_bytes(t->dtype, cols);
    int64_t row = (int64_t)begin / (2 * cols);
    int64_t end = row + (int64_t)bytes / (2 * cols);
    if (t->dtype == VT_BF16 && !s->scale) {
        memcpy(out, (const char *)t->data + row * row_bytes, bytes);
        return;
    }
    uint16_t *to = out;
    float chunk
        [4096]; /* a row at a time would need an allocation; a chunk is a multiple of every block */
    for (; row < end; row++, to += cols)
        for (int64_t at = 0; at < cols; at += 4096) {
            int64_t n = cols - at < 4096 ? cols - at : 4096;
            const char *from = (const char *)t->data + row * row_bytes +
                               vt_dtype_row_bytes(t->dtype, at);
            vt_dequant_row(t->dtype, from, chunk, n);
            if (s->scale)
                apply_scale(s->scale, row, at, chunk, n);
            for (int64_t i = 0; i < n; i++)
                to[at + i] = vt_f32_to_bf16(chunk[i]);
        }
}

static void produce_tiles(const void *arg, void *out, size_t begin, size_t bytes)
{
    const source *s = arg;
    int64_t tile = linear_quant_tile_bytes(s->to->dtype, s->to->dim[1]);
    linear_quant_pack(&s->tiles, (int64_t)begin / tile, (int64_t)bytes / tile, out);
}

static void produce_vector(const void *arg, void *out, size_t begin, size_t bytes)
{
    const source *s = arg;
    (void)begin; /* the grain is the whole vector */
    int64_t n = (int64_t)(bytes / sizeof(float));
    if (!s->dummy) {
        vt_dequant_row(s->from->dtype, s->from->data, out, n);
        return;
    }
    dummy_rule rule = dummy_rule_of(s->from);
    float *to = out;
    for (int64_t i = 0; i < n; i++) {
        uint16_t v;
        dummy_fill(&rule, (uint64_t)i, 1, &v);
        to[i] = vt_bf16_to_f32(v);
    }
}

static void produce_table(const void *arg, void *out, size_t begin, size_t bytes)
{
    const source *s = arg;
    size_t row = (size_t)s->rope->dims * sizeof(float);
    rope_table(s->rope, (int64_t)(begin / row), (int64_t)(bytes / row), out);
}

static int64_t source_elems(const source *s)
{
    return s->rows ? s->rows * source_cols(s) : vt_tensor_elems(s->from);
}

static size_t source_bytes(const source *s)
{
    if (s->tiles.n_parts)
        return linear_quant_matrix_bytes(s->to->dtype, s->to->dim[0], s->to->dim[1],
                                         s->tiles.paired);
    if (!s->from)
        return (size_t)vt_tensor_bytes(s->to);
    int64_t n = source_elems(s);
    return (size_t)n * (s->to->dtype == VT_BF16 ? 2 : sizeof(float));
}

typedef struct dummy_fill_params {
    void *out;
    uint64_t key, n, first; /* n elements from word `first` of the whole tensor */
    float base, scale;
} dummy_fill_params;

static vt_status fill_dummy(vt_cuda_lane *lane, const loader *l, const source *s)
{
    dummy_rule rule = dummy_rule_of(s->from);
    uint64_t n = (uint64_t)source_elems(s), first = (uint64_t)(s->from_row * source_cols(s));
    dummy_fill_params p = {
        (char *)l->w->range.base + s->offset, rule.key, n, first / 4, rule.base, rule.scale};
    return vt_cuda_launch(lane,
                          &(cuda_launch){.spec = JIT_SPEC("dummy_fill.cu", "dummy_fill", {NULL, 0}),
                                         .grid = {(uint32_t)((n + 1023) / 1024), 1, 1},
                                         .threads = 256},
                          &p, sizeof p);
}

static cuda_upload upload_of(const loader *l, const source *s)
{
    size_t bytes = source_bytes(s);
    cuda_upload u = {.to = (char *)l->w->range.base + s->offset,
                     .bytes = bytes,
                     .grain = bytes,
                     .arg = s,
                     .produce = s->from ? produce_vector : produce_table};
    if (!s->from && !s->tiles.n_parts)
        u.grain = (size_t)s->rope->dims * sizeof(float);
    if (s->tiles.n_parts) {
        u.grain = (size_t)linear_quant_tile_bytes(s->to->dtype, s->to->dim[1]);
        u.produce = produce_tiles;
    } else if (s->from && s->to->dtype == VT_BF16) {
        u.grain = (size_t)source_cols(s) * 2;
        u.produce = produce_matrix;
    }
    return u;
}

static vt_status fill(loader *l, vt_cuda *c, int32_t n_threads, vt_err *err)
{
    cuda_upload *piece = vt_calloc((size_t)l->n, sizeof *piece);
    vt_cuda_lane lane = {.cuda = c};
    int32_t n = 0;
    vt_status status = piece ? VT_OK
                             : vt_fail(err, VT_ERR_MEMORY, "out of memory for a list of weights");
    if (status == VT_OK)
        status = vt_cuda_check(c, c->driver.stream_create(&lane.stream, CU_STREAM_NON_BLOCKING, 0),
                               "making a stream", err);
    for (int32_t i = 0; i < l->n && status == VT_OK; i++) {
        const source *s = &l->source[i];
        bool is_matrix = s->from && s->to->dtype == VT_BF16;
        if (s->dummy && is_matrix) {
            status = fill_dummy(&lane, l, s);
            if (status != VT_OK && err)
                *err = lane.err;
            continue;
        }
        piece[n++] = upload_of(l, s);
    }
    if (status == VT_OK)
        status = vt_cuda_upload(c, piece, n, n_threads, err);
    if (lane.stream) { /* also after a failure: the memory that dummies are written to goes away */
        vt_status made = vt_cuda_check(c, c->driver.stream_sync(lane.stream),
                                       "making dummy weights", status == VT_OK ? err : NULL);
        status = status == VT_OK ? made : status;
        c->driver.stream_destroy(lane.stream);
    }
    free(piece);
    return status;
}

/* Offsets become addresses; a tensor of several sources is moved once. */
static void place(loader *l)
{
    for (int32_t i = 0; i < l->n; i++) {
        source *s = &l->source[i];
        if (i > 0 && l->source[i - 1].to == s->to)
            continue;
        s->to->data = (char *)l->w->range.base + (size_t)s->to->data;
    }
}

size_t vt_cuda_weights_bytes(const vt_model *m, int32_t max_context)
{
    vt_cuda_weights *w = NULL;
    size_t bytes = 0;
    if (vt_cuda_weights_load(NULL, m, max_context, 1, &w, NULL) == VT_OK)
        bytes = w->bytes;
    vt_cuda_weights_free(NULL, w);
    return bytes;
}

vt_status vt_cuda_weights_load(vt_cuda *c, const vt_model *m, int32_t max_context,
                               int32_t n_threads, vt_cuda_weights **out, vt_err *err)
{
    int64_t begin = vt_now_ns();
    vt_cuda_weights *w = vt_calloc(1, sizeof *w);
    if (!w)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for the weights of %s", m->name);
    vt_arena_init(&w->weights.arena, 0);
    loader l = {.w = w, .m = m, .err = err};
    describe(&l, max_context);
    w->bytes = l.bytes;
    vt_status status = l.status;
    if (c) {
        if (status == VT_OK)
            status = cuda_range_init(c, l.bytes, &w->range, err);
        if (status == VT_OK)
            status = cuda_range_grow(c, &w->range, l.bytes, err);
        if (status == VT_OK)
            status = fill(&l, c, n_threads, err);
    }
    if (status == VT_OK)
        place(&l);
    free(l.source);
    w->load_ms = (double)(vt_now_ns() - begin) * 1e-6;
    if (status != VT_OK) {
        vt_cuda_weights_free(c, w);
        return status;
    }
    *out = w;
    return VT_OK;
}

void vt_cuda_weights_free(vt_cuda *c, vt_cuda_weights *w)
{
    if (!w)
        return;
    if (c && w->range.base)
        cuda_range_release(c, &w->range);
    vt_arena_release(&w->weights.arena);
    free(w);
}
