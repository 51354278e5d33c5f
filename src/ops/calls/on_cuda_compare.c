/* Rounding to values that a GPU holds exactly, and comparing outputs with the reference: see
 * on_cuda.h. */
#include "ops/calls/on_cuda_inside.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/quant.h"

static vt_status check(const on_cuda_gpu *g, cu_result r, const char *what, vt_err *err)
{
    return vt_cuda_check(g->cuda, r, what, err);
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

/* Rounds the values to BF16; the tensor keeps its type. */
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
    int pattern = is_integer(t->dtype) ? ON_CUDA_INT_PATTERN : ON_CUDA_FLOAT_PATTERN;
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

/* Returns true if this tensor is also an operand that is read. */
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
    if (c->op->tolerance == 0 || is_integer(device->dtype))
        return 0;
    if (c->rounded || (c->quantised && c->impl->bf16_weights))
        return 0.02;
    return device->dtype == VT_F32 ? 0.002 : 0.01;
}

vt_status on_cuda_fetch(on_cuda *c, const vt_tensor *output, void **bytes, vt_err *err)
{
    on_cuda_gpu *g = c->gpu;
    const on_cuda_twin *w = on_cuda_twin_of(c, output);
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
        status = on_cuda_wait(g, "download", err);
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
    const on_cuda_twin *w = on_cuda_twin_of(c, want);
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
        status = on_cuda_wait(g, "download", err);
    for (int64_t i = 0; status == VT_OK && e->good && i < c->n_tickets; i++)
        if (ticket[i]) {
            e->good = false;
            snprintf(e->why, sizeof e->why, "ticket %lld of %lld is %u after the call, expected 0",
                     (long long)i, (long long)c->n_tickets, ticket[i]);
            status = on_cuda_fill(c, g->tickets, 0, CUDA_TICKETS * 4, err);
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
