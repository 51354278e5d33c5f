/* The cost of a step (story/step.h).
 *
 * Costs read the batch's lengths and the tensors' shapes, never their contents, so the batch here
 * has token numbers that are all zero and no pages. */
#include "story/step.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "ops/calls/on_cpu.h"

struct story_step {
    const vt_program *program;
    int32_t max_tokens, max_seqs, n_replicas;
    vt_batch batch;
    vt_size size;
    int32_t *zeros;                /* [max_tokens] tokens and slots, which costs do not read */
    int32_t *position, *seq_of;    /* [max_tokens] */
    int32_t *q_start, *page_start; /* [max_seqs + 1] */
    int32_t *kv_len, *shared_kv;   /* [max_seqs] */
    int32_t *adapter;              /* likewise */
    int32_t *row_token;            /* [max_tokens] */
    int32_t *state_behind; /* [max_tokens] 0 where the state behind a token is kept, or -1 */
    story_step_bytes sum;  /* streamed -1: not counted yet */
};

vt_status story_step_new(const vt_program *program, int32_t max_tokens, int32_t max_seqs,
                         story_step **out, vt_err *err)
{
    size_t tokens = (size_t)max_tokens, seqs = (size_t)max_seqs;
    story_step *p = vt_calloc(1, sizeof *p);
    if (!p)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for a step");
    p->program = program;
    p->n_replicas = 1;
    p->max_tokens = max_tokens;
    p->max_seqs = max_seqs;
    p->zeros = vt_calloc(tokens, sizeof *p->zeros);
    p->position = vt_calloc(tokens, sizeof *p->position);
    p->seq_of = vt_calloc(tokens, sizeof *p->seq_of);
    p->row_token = vt_calloc(tokens, sizeof *p->row_token);
    p->q_start = vt_calloc(seqs + 1, sizeof *p->q_start);
    p->page_start = vt_calloc(seqs + 1, sizeof *p->page_start);
    p->kv_len = vt_calloc(seqs, sizeof *p->kv_len);
    p->shared_kv = vt_calloc(seqs, sizeof *p->shared_kv);
    p->adapter = vt_calloc(seqs, sizeof *p->adapter);
    p->state_behind = vt_calloc(tokens, sizeof *p->state_behind);
    if (!p->zeros || !p->position || !p->seq_of || !p->row_token || !p->q_start || !p->page_start ||
        !p->kv_len || !p->shared_kv || !p->adapter || !p->state_behind) {
        story_step_free(p);
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for a step of %d tokens", max_tokens);
    }
    *out = p;
    return VT_OK;
}

void story_step_free(story_step *p)
{
    if (!p)
        return;
    free(p->zeros);
    free(p->position);
    free(p->seq_of);
    free(p->row_token);
    free(p->q_start);
    free(p->page_start);
    free(p->kv_len);
    free(p->shared_kv);
    free(p->adapter);
    free(p->state_behind);
    free(p);
}

const vt_program *story_step_program(const story_step *p) { return p->program; }

void story_step_set_replicas(story_step *p, int32_t n) { p->n_replicas = n; }

int32_t story_step_replicas(const story_step *p) { return p->n_replicas; }

int32_t story_step_ranks(const story_step *p)
{
    int32_t n = 0;
    for (const vt_program *rank = p->program; rank; rank = rank->next_rank)
        n++;
    return n;
}

const vt_size *story_step_size(const story_step *p) { return &p->size; }

/* One token with a context before it: attention_decode runs it. A prompt of one token is a
 * prefill. The CUDA executor runs guesses by attention_decode too. */
static bool is_decode(const story_step *p, const story_seq *s)
{
    const vt_target *t = &p->program->target;
    if (s->drafted && t->device == VT_DEVICE_CUDA && s->q_len <= t->limits.decode_tokens)
        return true;
    return s->q_len == 1 && s->kv_len > 1;
}

static void place(story_step *p, vt_batch *b, const story_seq *s)
{
    int32_t pages = (int32_t)vt_ceil_div(s->kv_len, b->page_size);
    for (int32_t i = 0; i < s->q_len; i++) {
        p->position[b->n_tokens + i] = s->kv_len - s->q_len + i;
        p->seq_of[b->n_tokens + i] = b->n_seqs;
        p->state_behind[b->n_tokens + i] = s->drafted && i < s->q_len - 1 ? 0 : -1;
    }
    for (int32_t i = s->q_len - s->n_rows; i < s->q_len; i++)
        p->row_token[b->n_rows++] = b->n_tokens + i;
    b->n_tokens += s->q_len;
    b->n_pages += pages;
    p->shared_kv[b->n_seqs] = s->shared_pages * b->page_size;
    p->adapter[b->n_seqs] = s->adapter;
    p->kv_len[b->n_seqs++] = s->kv_len;
    p->q_start[b->n_seqs] = b->n_tokens;
    p->page_start[b->n_seqs] = b->n_pages;
}

vt_status story_step_set(story_step *p, const story_seq *seq, int32_t n, vt_err *err)
{
    const vt_limits *lim = &p->program->target.limits;
    int64_t tokens = 0;
    for (int32_t i = 0; i < n; i++) {
        const story_seq *s = &seq[i];
        if (s->q_len < 1 || s->kv_len < s->q_len || s->n_rows < 0 || s->n_rows > s->q_len ||
            s->kv_len > lim->max_context || s->shared_pages < 0 ||
            s->shared_pages > (s->kv_len - s->q_len) / lim->page_size)
            return vt_fail(err, VT_ERR_USAGE,
                           "sequence %d of the step: %d new tokens, context %d, %d rows, %d pages "
                           "shared cannot be",
                           i, s->q_len, s->kv_len, s->n_rows, s->shared_pages);
        tokens += s->q_len;
    }
    if (n > p->max_seqs || tokens > p->max_tokens)
        return vt_fail(err, VT_ERR_USAGE,
                       "a step of %d sequences and %lld tokens, expected at most %d and %d", n,
                       (long long)tokens, p->max_seqs, p->max_tokens);
    vt_batch b = {.page_size = lim->page_size,
                  .token = p->zeros,
                  .position = p->position,
                  .seq_of = p->seq_of,
                  .slot = p->zeros,
                  .q_start = p->q_start,
                  .kv_len = p->kv_len,
                  .page_start = p->page_start,
                  .row_token = p->row_token,
                  .adapter = p->adapter,
                  .state_behind = p->state_behind,
                  .shared_kv = p->shared_kv};
    for (int32_t i = 0; i < n; i++)
        if (is_decode(p, &seq[i]))
            place(p, &b, &seq[i]);
    b.n_decode = b.n_seqs;
    for (int32_t i = 0; i < n; i++)
        if (!is_decode(p, &seq[i]))
            place(p, &b, &seq[i]);
    p->batch = b;
    p->size = vt_size_of(&b);
    p->sum.streamed = -1;
    return VT_OK;
}

const vt_batch *story_step_batch(const story_step *p) { return &p->batch; }

const vt_impl *story_step_impl(const story_step *p, int32_t call)
{
    const vt_call *c = &p->program->call[call];
    return vt_call_active(c, &p->size) ? vt_call_impl(c, &p->size) : NULL;
}

bool story_step_cost(const story_step *p, int32_t call, vt_cost *compulsory, vt_cost *extra)
{
    const vt_call *c = &p->program->call[call];
    const vt_impl *impl = story_step_impl(p, call);
    if (!impl)
        return false;
    *compulsory = *extra = (vt_cost){0};
    for (const vt_program *rank = p->program; rank; rank = rank->next_rank) {
        const void *args = rank->call[call].args;
        vt_cost cost = vt_impl_cost(c->op, impl, args, &p->batch),
                more = impl->extra ? impl->extra(args, &rank->target, &p->batch) : (vt_cost){0};
        vt_cost_add(compulsory, &cost);
        vt_cost_add(extra, &more);
    }
    return true;
}

story_step_bytes story_step_sum(const story_step *p)
{
    story_step *own = (story_step *)(uintptr_t)p; /* steps are on the heap; this only remembers */
    if (p->sum.streamed >= 0)
        return p->sum;
    own->sum = (story_step_bytes){0};
    for (int32_t i = 0; i < p->program->n_calls; i++) {
        vt_cost cost, extra;
        if (!story_step_cost(p, i, &cost, &extra))
            continue;
        own->sum.streamed += cost.read.weights + cost.read.kv;
        own->sum.all += vt_cost_bytes(&cost) + vt_cost_bytes(&extra);
    }
    return p->sum;
}

/* The unit that does a kind of work. Hardware without that unit uses another one: bf16 runs on fp32
 * lanes, and fp32 on the matrix unit of a GPU whose table has no figure for it. No kernel for a GPU
 * multiplies integers on the matrix unit: what the cards count as int8 runs in bf16 there. */
static story_bound unit_of(const vt_roofs *r, story_bound b)
{
    if ((b == STORY_BOUND_INT8 && r->int8_per_s > 0 && !r->is_gpu) ||
        (b == STORY_BOUND_FP8 && r->fp8_per_s > 0))
        return b;
    story_bound other = b == STORY_BOUND_BF16 ? STORY_BOUND_FP32 : STORY_BOUND_BF16;
    bool there = b == STORY_BOUND_FP32 ? r->fp32_per_s > 0
                                       : b == STORY_BOUND_BF16 && r->bf16_per_s > 0;
    return there ? b : other;
}

/* The compulsory bytes that must pass each level, from the outside in. Weights and KV come from
 * memory, and activations come from the smallest cache that holds them all. What comes from a level
 * passes those inside it too.
 *
 *                   memory   L3   L2
 *   weights, KV       x      x    x
 *   activations              x    x      where the L3 holds them and the L2 does not */
typedef struct passes {
    double memory, l3, l2;
} passes;

static passes passes_of(const vt_cost *c, const vt_roofs *r)
{
    double acts = (double)(c->read.activations + c->write.activations),
           all = (double)vt_cost_bytes(c);
    bool in_l2 = r->l2_bytes_per_s > 0 && acts <= (double)r->l2_size,
         in_l3 = r->l3_bytes_per_s > 0 && acts <= (double)r->l3_size;
    return (passes){in_l2 || in_l3 ? all - acts : all, in_l2 ? all - acts : all, all};
}

static double seconds(double work, double roof) { return roof > 0 ? work / roof : 0; }

double story_work_s(const vt_cost *c, const vt_roofs *r, story_bound *bound)
{
    passes bytes = passes_of(c, r);
    double work[STORY_BOUNDS] = {0}, s[STORY_BOUNDS] = {0}, longest = 0;
    work[unit_of(r, STORY_BOUND_FP32)] += (double)c->flops.fp32;
    work[unit_of(r, STORY_BOUND_BF16)] += (double)c->flops.bf16;
    work[unit_of(r, STORY_BOUND_INT8)] += (double)c->flops.int8;
    work[unit_of(r, STORY_BOUND_FP8)] += (double)c->flops.fp8;
    s[STORY_BOUND_MEMORY] = seconds(bytes.memory, vt_roofs_bandwidth(r));
    s[STORY_BOUND_CACHE] = fmax(seconds(bytes.l3, r->l3_bytes_per_s),
                                seconds(bytes.l2, r->l2_bytes_per_s));
    s[STORY_BOUND_FP32] = seconds(work[STORY_BOUND_FP32], r->fp32_per_s);
    s[STORY_BOUND_BF16] = seconds(work[STORY_BOUND_BF16], r->bf16_per_s);
    s[STORY_BOUND_INT8] = seconds(work[STORY_BOUND_INT8], r->int8_per_s);
    s[STORY_BOUND_FP8] = seconds(work[STORY_BOUND_FP8], r->fp8_per_s);
    *bound = STORY_BOUND_MEMORY;
    for (int i = 0; i < STORY_BOUNDS; i++)
        if (s[i] > longest) {
            longest = s[i];
            *bound = (story_bound)i;
        }
    return longest;
}

double story_floor_s(const vt_cost *c, const vt_roofs *r, story_bound *bound)
{
    double work_s = story_work_s(c, r, bound), launch_s = vt_roofs_launch_s(r, true);
    if (launch_s <= work_s)
        return work_s;
    *bound = STORY_BOUND_LAUNCH;
    return launch_s;
}

const char *story_bound_name(story_bound b)
{
    static const char *const name[STORY_BOUNDS] = {"memory", "fp32",  "bf16",  "int8",
                                                   "fp8",    "cache", "launch"};
    return name[b];
}

const char *story_call_kind(const vt_call *c)
{
    const char *dot = c->layer >= 0 ? strchr(c->label, '.') : NULL;
    return dot ? dot + 1 : c->label;
}
