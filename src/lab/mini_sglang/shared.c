/* Code that the labs of the track mini-sglang share: figures in sentences, all rows of an op on one
 * shape, and the forward pass of the lab's model. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/plain_file.h"
#include "kv/cache.h"
#include "lab/kit/devices.h"
#include "lab/mini_sglang/mini_sglang.h"
#include "model/model.h"
#include "ops/case_text.h"
#include "ops/shape_of.h"

mini_share mini_of_copy(const lab *l, double per_s)
{
    mini_share out;
    double roof = l->roofs.copy_bytes_per_s;
    if (per_s > roof)
        snprintf(out.text, sizeof out.text,
                 "more than the measured copy roof of %s, which does not bind it: the bytes stay "
                 "in a cache between two calls",
                 vt_figure_of(roof, VT_BYTES_PER_S).text);
    else
        snprintf(out.text, sizeof out.text, "%.0f %% of the measured copy roof of %s",
                 100 * per_s / roof, vt_figure_of(roof, VT_BYTES_PER_S).text);
    return out;
}

int32_t mini_line_bytes(const lab *l) { return l->ordinal >= 0 ? 128 : 64; }

double mini_launch_s(const lab *l)
{
    double s = vt_roofs_launch_s(&l->roofs, false);
    return s > 0 ? s : NAN;
}

double mini_line_use(const lab *l, int64_t row_bytes, int64_t row_stride)
{
    int64_t line = mini_line_bytes(l), lines = 0, rows = line; /* then the pattern repeats */
    for (int64_t r = 0; r < rows; r++) {
        int64_t from = r * row_stride, to = from + row_bytes;
        lines += (to + line - 1) / line - from / line;
    }
    return (double)(rows * row_bytes) / (double)(lines * line);
}

int32_t mini_vector_bytes(const lab_kernel *k)
{
    const char *p = strstr(k->cut, "loads of ");
    return p ? (int32_t)strtol(p + strlen("loads of "), NULL, 10) : 0;
}

vt_status mini_write_file(lab *l, const char *name, const char *what, const vt_buf *b, vt_err *err)
{
    char path[700];
    snprintf(path, sizeof path, "%s/%s", l->results, name);
    if (b->failed)
        return vt_fail(err, VT_ERR_MEMORY, "%s: out of memory", path);
    TRY(vt_write_whole(path, b->data, b->len, err));
    lab_file(l, name, what);
    return VT_OK;
}

/* ---- several rows of one op ---- */

vt_status mini_rows_run(lab *l, const char *op, const char *shape, mini_rows **out, vt_err *err)
{
    const char *name[MINI_MAX_ROWS];
    vt_err why = {0};
    mini_rows *r = calloc(1, sizeof *r);
    if (!r)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for the rows of %s", op);
    vt_status status = lab_kernel_run(l, &(lab_kernel_ask){.op = op, .shape = shape}, &r->k[0],
                                      err);
    int32_t n = status == VT_OK ? lab_kernel_rows(l, op, shape, name, MINI_MAX_ROWS, &why) : 0;
    r->n = status == VT_OK;
    for (int32_t i = 0; i < n && r->n < MINI_MAX_ROWS; i++) {
        if (strcmp(name[i], r->k[0].impl) == 0)
            continue;
        lab_note(l, "%s, %s", op, name[i]);
        vt_status one = lab_kernel_run(
            l, &(lab_kernel_ask){.op = op, .shape = shape, .impl = name[i]}, &r->k[r->n], &why);
        r->n += one == VT_OK;
    }
    if (status != VT_OK) {
        free(r);
        return status;
    }
    *out = r;
    return VT_OK;
}

const lab_kernel *mini_rows_find(const mini_rows *r, const char *name)
{
    for (int32_t i = 0; i < r->n; i++)
        if (strcmp(r->k[i].impl, name) == 0)
            return &r->k[i];
    return NULL;
}

void mini_rows_table(lab *l, const char *key, const char *title, const mini_rows *r)
{
    lab_table(l, key, title, "row|>time|>least|>of roof|bound|>rate|>noise|>error");
    for (int32_t i = 0; i < r->n; i++) {
        const lab_kernel *k = &r->k[i];
        lab_cell(l, i ? "%s" : "%s (the engine's)", k->impl);
        lab_cells(l, "%f s|%f s|%f share|%s|%f B/s|%f share", k->median_s, k->least_s, k->of_roof,
                  k->bound, k->bytes / k->median_s, k->noise);
        lab_cell(l, isfinite(k->error) ? "%.1e" : "-", k->error);
    }
}

void mini_rows_turn(lab *l, const char *op, const mini_rows *r,
                    const char *(*why)(const char *impl, double *gain))
{
    const lab_kernel *before = &r->k[0];
    for (int32_t i = 1; i < r->n; i++) {
        const lab_kernel *after = &r->k[i];
        char where[160];
        double gain = (before->bytes + before->extra_bytes) / (after->bytes + after->extra_bytes);
        const char *reason = why(after->impl, &gain);
        if (!reason)
            continue;
        snprintf(where, sizeof where, "row %s of %s", after->impl, op);
        lab_turn_kernels(l, after->impl, where, after->shape, gain, before, after, reason);
    }
}

void mini_turn_kernels(lab *l, const char *name, const char *where, const lab_kernel *before,
                       const lab_kernel *after, const char *why)
{
    lab_turn_kernels(l, name, where, after->shape,
                     (before->bytes + before->extra_bytes) / (after->bytes + after->extra_bytes),
                     before, after, why);
}

vt_status mini_one_worker(lab *l, const lab_kernel_ask *ask, lab_kernel *out, vt_err *err)
{
    int32_t threads = l->threads;
    vt_team *team = l->device->team;
    if (threads < 2)
        return vt_fail(err, VT_ERR_UNSUPPORTED, "this lab has one worker (--threads 1)");
    l->device->team = NULL;
    l->threads = 1;
    vt_status status = lab_kernel_run(l, ask, out, err);
    vt_team_free(l->device->team);
    l->device->team = team;
    l->threads = threads;
    return status;
}

/* The smallest case of a real model that the card has, as text. */
bool mini_case_text(const vt_op *op, char *out, size_t size)
{
    vt_case c;
    size_t at = 0;
    for (int32_t i = 0; vt_op_case(op, i, &c); i++)
        if (c.bench) /* the first of a real model is the smallest */
            return vt_append(out, size, &at, "%s", c.name);
    return false;
}

/* ---- the forward pass ---- */

static vt_status open_model(const lab *l, vt_model **out, vt_dtype *kv_dtype, vt_err *err)
{
    vt_options *o;
    vt_model *m = NULL;
    TRY(vt_options_new(&o, err));
    vt_status status = vt_options_set(o, "model", l->model, err);
    if (status == VT_OK)
        status = vt_model_open(o, &m, err);
    if (status == VT_OK) {
        *kv_dtype = vt_kv_choose_dtype(vt_options_get(o, "kv-dtype"), l->ordinal >= 0,
                                       vt_model_dtype(m));
        *out = m;
    }
    vt_options_free(o);
    return status;
}

static vt_status describe_pass(lab *l, mini_pass *p, vt_dtype kv_dtype, vt_err *err)
{
    bool gpu = l->ordinal >= 0;
    int32_t context = p->model->arch.max_context;
    vt_limits limits = {.max_tokens = MINI_PASS_TOKENS,
                        .max_seqs = MINI_PASS_SEQS,
                        .max_rows = MINI_PASS_SEQS,
                        .max_context = context,
                        .page_size = gpu ? 64 : 16,
                        .n_workers = gpu ? 1 : l->threads};
    vt_target target;
    size_t library;
    if (gpu)
        TRY(vt_target_here(p->model, l->ordinal, &limits, &target, &library, err));
    else
        target = vt_target_cpu(vt_cpu_get()->level, &limits);
    TRY(vt_describe(p->model, &target, kv_dtype, &p->described, err));
    return story_step_new(p->described.program, MINI_PASS_TOKENS, MINI_PASS_SEQS, &p->step, err);
}

vt_status mini_pass_open(lab *l, mini_pass *out, vt_err *err)
{
    mini_pass p = {0};
    vt_dtype kv_dtype = VT_F16;
    TRY(open_model(l, &p.model, &kv_dtype, err));
    vt_status status = describe_pass(l, &p, kv_dtype, err);
    if (status != VT_OK) {
        mini_pass_close(&p);
        return status;
    }
    *out = p;
    return VT_OK;
}

void mini_pass_close(mini_pass *p)
{
    story_step_free(p->step);
    vt_described_release(&p->described);
    vt_model_free(p->model);
    *p = (mini_pass){0};
}

vt_status mini_pass_set(mini_pass *p, int32_t n, int32_t q_len, int32_t kv_len, vt_err *err)
{
    story_seq seq[MINI_PASS_SEQS];
    if (n > MINI_PASS_SEQS || (int64_t)n * q_len > MINI_PASS_TOKENS)
        return vt_fail(err, VT_ERR_USAGE,
                       "a step of %d sequences with %d tokens each: expected at "
                       "most %d sequences and %d tokens",
                       n, q_len, MINI_PASS_SEQS, MINI_PASS_TOKENS);
    for (int32_t i = 0; i < n; i++)
        seq[i] = (story_seq){.q_len = q_len, .kv_len = kv_len, .n_rows = 1};
    return story_step_set(p->step, seq, n, err);
}

/* Weights with more elements than this take too long to make. */
static const int64_t most_weights = INT64_C(8) << 20;

/* A copy of the beginning of one page in all layers, which happens where a prefix hit ends inside a
 * page. */
static bool page_copy_shape(const mini_pass *p, char *out, size_t size)
{
    const vt_kv_cache *kv = &p->described.kv;
    const vt_kv_group *g = &kv->shape.group[0];
    vt_dtype type = kv->shape.dtype;
    int n = snprintf(out, size,
                     "copies=1,tokens=%d,layers=%d,kv_heads=%d,head_dim=%d,kv_type=%s,page=%d",
                     kv->page_size - 1, g->n_layers, g->kv_heads, g->head_dim,
                     type == VT_FP8_E4M3 ? "fp8" : vt_dtype_get(type)->name, kv->page_size);
    return n > 0 && (size_t)n < size;
}

bool mini_pass_shape(const mini_pass *p, int32_t call, char *out, size_t size)
{
    char text[VT_SHAPE_TEXT];
    const vt_call *c = &p->described.program->call[call];
    if (strcmp(c->op->name, "page_copy") == 0)
        return page_copy_shape(p, out, size);
    if (!story_step_impl(p->step, call) ||
        !vt_shape_of(c->op, c->args, story_step_batch(p->step), most_weights, false, text))
        return false;
    int n = snprintf(out, size, "%s", text);
    return n > 0 && (size_t)n < size;
}
