/* A program that is only costed (story/plan.h).
 *
 * Costs read the batch's lengths and the tensors' shapes, never their contents, so the batch here
 * has token numbers that are all zero, no pages, and a cache whose pools have no memory. */
#include "story/plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "exec/cuda_weights.h"
#include "ops/rope/rope_cuda.h"

struct story_plan {
    story_plan_config config;
    vt_weights *weights;           /* a CPU's, or */
    vt_cuda_weights *cuda_weights; /* a GPU's: described, without memory */
    vt_kv_cache kv;                /* shapes only */
    vt_program *program;
    int32_t *zeros;                /* [max_tokens] token, slot: costs do not look at these */
    int32_t *position, *seq_of;    /* [max_tokens] */
    int32_t *q_start, *page_start; /* [max_seqs + 1] */
    int32_t *kv_len, *shared_kv;   /* [max_seqs] */
    int32_t *row_token;            /* [max_tokens] */
    vt_sample_row *row;            /* [max_tokens] greedy */
};

static vt_status describe_cache(story_plan *p, const vt_model *m, vt_err *err)
{
    const vt_arch *a = &m->arch;
    vt_kv_cache *kv = &p->kv;
    *kv = (vt_kv_cache){.n_layers = a->n_layers,
                        .n_pages = 1,
                        .page_size = p->config.page_size,
                        .kv_heads = a->n_kv_heads,
                        .head_dim = a->head_dim,
                        .dtype = p->config.kv_dtype,
                        .device = p->config.device};
    kv->k = vt_calloc((size_t)a->n_layers, sizeof *kv->k);
    kv->v = vt_calloc((size_t)a->n_layers, sizeof *kv->v);
    if (!kv->k || !kv->v)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory describing the cache of %s", m->name);
    for (int32_t i = 0; i < a->n_layers; i++) {
        kv->k[i] = (vt_tensor){.dtype = kv->dtype,
                               .rank = 4,
                               .row_stride = a->head_dim,
                               .dim = {1, a->n_kv_heads, kv->page_size, a->head_dim}};
        kv->v[i] = kv->k[i];
    }
    return VT_OK;
}

static vt_status plan_fill(story_plan *p, const vt_model *m, vt_err *err)
{
    const story_plan_config *c = &p->config;
    size_t tokens = (size_t)c->max_tokens, seqs = (size_t)c->max_seqs;
    vt_limits limits = {.max_tokens = c->max_tokens,
                        .max_seqs = c->max_seqs,
                        .max_rows = c->max_tokens,
                        .max_context = c->max_context,
                        .page_size = c->page_size,
                        .n_workers = 1};
    bool gpu = c->device == VT_DEVICE_CUDA;
    vt_program_config config = {.device = c->device,
                                .isa = gpu ? VT_ISA_PORTABLE : c->level,
                                .activation = gpu ? VT_BF16 : VT_F32,
                                .limits = limits};
    p->zeros = vt_calloc(tokens, sizeof *p->zeros);
    p->position = vt_calloc(tokens, sizeof *p->position);
    p->seq_of = vt_calloc(tokens, sizeof *p->seq_of);
    p->row_token = vt_calloc(tokens, sizeof *p->row_token);
    p->row = vt_calloc(tokens, sizeof *p->row);
    p->q_start = vt_calloc(seqs + 1, sizeof *p->q_start);
    p->page_start = vt_calloc(seqs + 1, sizeof *p->page_start);
    p->kv_len = vt_calloc(seqs, sizeof *p->kv_len);
    p->shared_kv = vt_calloc(seqs, sizeof *p->shared_kv);
    if (!p->zeros || !p->position || !p->seq_of || !p->row_token || !p->row || !p->q_start ||
        !p->page_start || !p->kv_len || !p->shared_kv)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for a plan of %d tokens", c->max_tokens);
    for (size_t i = 0; i < tokens; i++)
        p->row[i] = (vt_sample_row){.top_p = 1,
                                    .repetition_penalty = 1,
                                    .n_top = -1,
                                    .pool_slot = -1,
                                    .target = -1,
                                    .pending_slot = -1};
    TRY(describe_cache(p, m, err));
    if (gpu) {
        TRY(vt_cuda_weights_load(NULL, m, c->max_context, 1, &p->cuda_weights, err));
        return vt_program_build(&p->cuda_weights->model, &p->cuda_weights->weights, &p->kv, &config,
                                &p->program, err);
    }
    TRY(vt_weights_load_cpu(m, NULL, c->level, c->max_context, NULL, &p->weights, err));
    return vt_program_build(m, p->weights, &p->kv, &config, &p->program, err);
}

vt_status story_plan_new(const vt_model *m, const story_plan_config *c, story_plan **out,
                         vt_err *err)
{
    story_plan *p = vt_calloc(1, sizeof *p);
    if (!p)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for a plan");
    p->config = *c;
    vt_status status = plan_fill(p, m, err);
    if (status != VT_OK) {
        story_plan_free(p);
        return status;
    }
    *out = p;
    return VT_OK;
}

void story_plan_free(story_plan *p)
{
    if (!p)
        return;
    vt_program_free(p->program);
    vt_weights_free(p->weights);
    vt_cuda_weights_free(NULL, p->cuda_weights);
    free(p->kv.k);
    free(p->kv.v);
    free(p->zeros);
    free(p->position);
    free(p->seq_of);
    free(p->row_token);
    free(p->row);
    free(p->q_start);
    free(p->page_start);
    free(p->kv_len);
    free(p->shared_kv);
    free(p);
}

const vt_program *story_plan_program(const story_plan *p) { return p->program; }

/* One token, and a context before it: attention_decode's. A prompt of one token is a prefill. */
static bool is_decode(const story_seq *s) { return s->q_len == 1 && s->kv_len > 1; }

static void place(story_plan *p, vt_batch *b, const story_seq *s)
{
    int32_t pages = (int32_t)vt_ceil_div(s->kv_len, p->config.page_size);
    for (int32_t i = 0; i < s->q_len; i++) {
        p->position[b->n_tokens + i] = s->kv_len - s->q_len + i;
        p->seq_of[b->n_tokens + i] = b->n_seqs;
    }
    for (int32_t i = s->q_len - s->n_rows; i < s->q_len; i++)
        p->row_token[b->n_rows++] = b->n_tokens + i;
    b->n_tokens += s->q_len;
    b->n_pages += pages;
    p->shared_kv[b->n_seqs] = s->shared_pages * p->config.page_size;
    p->kv_len[b->n_seqs++] = s->kv_len;
    p->q_start[b->n_seqs] = b->n_tokens;
    p->page_start[b->n_seqs] = b->n_pages;
}

vt_status story_plan_bind(story_plan *p, const story_seq *seq, int32_t n, vt_err *err)
{
    const story_plan_config *c = &p->config;
    int64_t tokens = 0;
    for (int32_t i = 0; i < n; i++) {
        const story_seq *s = &seq[i];
        if (s->q_len < 1 || s->kv_len < s->q_len || s->n_rows < 0 || s->n_rows > s->q_len ||
            s->kv_len > c->max_context || s->shared_pages < 0 ||
            s->shared_pages > (s->kv_len - s->q_len) / c->page_size)
            return vt_fail(err, VT_ERR_USAGE,
                           "sequence %d of the step: %d new tokens, context %d, %d rows, %d pages "
                           "shared cannot be",
                           i, s->q_len, s->kv_len, s->n_rows, s->shared_pages);
        tokens += s->q_len;
    }
    if (n > c->max_seqs || tokens > c->max_tokens)
        return vt_fail(err, VT_ERR_USAGE,
                       "a step of %d sequences and %lld tokens, expected at most %d and %d", n,
                       (long long)tokens, c->max_seqs, c->max_tokens);
    vt_batch b = {.page_size = c->page_size,
                  .token = p->zeros,
                  .position = p->position,
                  .seq_of = p->seq_of,
                  .slot = p->zeros,
                  .q_start = p->q_start,
                  .kv_len = p->kv_len,
                  .page_start = p->page_start,
                  .row_token = p->row_token,
                  .shared_kv = p->shared_kv};
    for (int32_t i = 0; i < n; i++)
        if (is_decode(&seq[i]))
            place(p, &b, &seq[i]);
    b.n_decode = b.n_seqs;
    for (int32_t i = 0; i < n; i++)
        if (!is_decode(&seq[i]))
            place(p, &b, &seq[i]);
    vt_program_bind(p->program, &b, p->row);
    return VT_OK;
}

bool story_plan_cost(const story_plan *p, int32_t call, vt_cost *compulsory, vt_cost *extra)
{
    const vt_call *c = &p->program->call[call];
    if (!vt_call_active(p->program, c))
        return false;
    *compulsory = c->op->cost(c->args);
    *extra = c->impl->extra ? c->impl->extra(c->args) : (vt_cost){0};
    return true;
}

int32_t story_plan_further(const story_plan *p, int32_t call)
{
    const vt_program *prog = p->program;
    const vt_call *c = &prog->call[call], *next = c + 1;
    return prog->config.device == VT_DEVICE_CUDA && call + 1 < prog->n_calls && c->op == &rope_op &&
           next->op == &kv_store_op && rope_store_cuda_fits(c->args, next->args);
}

/* The unit that does a kind of work. Hardware that has no such unit uses another one: bf16 on fp32
 * lanes, and on a GPU whose table has no fp32 or int8 figure, its matrix unit. */
static story_bound unit_of(const vt_roofs *r, story_bound b)
{
    if (b == STORY_BOUND_INT8 && r->int8_per_s > 0)
        return b;
    story_bound other = b == STORY_BOUND_BF16 ? STORY_BOUND_FP32 : STORY_BOUND_BF16;
    bool there = b == STORY_BOUND_FP32 ? r->fp32_per_s > 0
                                       : b == STORY_BOUND_BF16 && r->bf16_per_s > 0;
    return there ? b : other;
}

static double roof_of(const vt_roofs *r, story_bound b)
{
    const double roof[STORY_BOUNDS] = {vt_roofs_bandwidth(r), r->fp32_per_s, r->bf16_per_s,
                                       r->int8_per_s};
    return roof[b];
}

double story_floor_s(const vt_cost *c, const vt_roofs *r, story_bound *bound)
{
    double work[STORY_BOUNDS] = {(double)vt_cost_bytes(c)}, longest = 0;
    work[unit_of(r, STORY_BOUND_FP32)] += (double)c->flops.fp32;
    work[unit_of(r, STORY_BOUND_BF16)] += (double)c->flops.bf16;
    work[unit_of(r, STORY_BOUND_INT8)] += (double)c->flops.int8;
    *bound = STORY_BOUND_MEMORY;
    for (int i = 0; i < STORY_BOUNDS; i++) {
        double roof = roof_of(r, (story_bound)i), s = roof > 0 ? work[i] / roof : 0;
        if (s > longest) {
            longest = s;
            *bound = (story_bound)i;
        }
    }
    return longest;
}

const char *story_bound_name(story_bound b)
{
    static const char *const name[STORY_BOUNDS] = {"memory", "fp32", "bf16", "int8"};
    return name[b];
}

const char *story_call_kind(const vt_call *c)
{
    const char *dot = c->layer >= 0 ? strchr(c->label, '.') : NULL;
    return dot ? dot + 1 : c->label;
}
