/* sample on CUDA: packing the rows for upload, and the launch of sample.cu, which is the same for
 * every level, number of rows and settings: whether a row has penalties or filters is the row's
 * business, and a captured graph must serve all. */
#include "ops/sample/sample_cuda.h"

#include <string.h>

#include "ops/cuda_impls.h"

typedef struct sample_params {
    void *logits;
    const sample_cuda_row *rows;
    const int32_t *contexts;
    const void *biases;
    const uint32_t *masks;
    int32_t *pool, *token;
    float *logprob;
    int32_t *top_id;
    float *top_logprob;
    float *group_max;
    void *mass;
    uint32_t *tickets;
    int32_t logits_stride, parts;
} sample_params;

static bool has_penalties(const vt_sample_row *r)
{
    return r->repetition_penalty != 1.0f || r->presence_penalty != 0.0f ||
           r->frequency_penalty != 0.0f;
}

static bool brings_mask(const vt_sample_row *rows, int32_t i)
{
    return rows[i].mask && (i == 0 || rows[i - 1].mask != rows[i].mask);
}

sample_cuda_counts sample_cuda_count(const vt_sample_row *rows, int32_t n, int32_t vocab)
{
    sample_cuda_counts c = {0};
    for (int32_t i = 0; i < n; i++) {
        c.contexts += has_penalties(&rows[i]) ? rows[i].n_context : 0;
        c.biases += rows[i].n_bias;
        c.mask_words += brings_mask(rows, i) ? vt_ceil_div(vocab, 32) : 0;
    }
    return c;
}

void sample_cuda_pack(const vt_sample_row *rows, int32_t n, int32_t vocab, sample_cuda_row *row,
                      int32_t *contexts, vt_logit_bias *biases, uint32_t *masks)
{
    int32_t n_contexts = 0, n_biases = 0, words = (int32_t)vt_ceil_div(vocab, 32), mask = -words;
    for (int32_t i = 0; i < n; i++) {
        const vt_sample_row *r = &rows[i];
        bool penalties = has_penalties(r) && r->context;
        if (brings_mask(rows, i)) {
            mask += words;
            memcpy(masks + mask, r->mask, (size_t)words * sizeof *masks);
        }
        row[i] = (sample_cuda_row){.seed = r->seed,
                                   .temperature = r->temperature,
                                   .top_p = r->top_p,
                                   .min_p = r->min_p,
                                   .repetition = r->repetition_penalty,
                                   .presence = r->presence_penalty,
                                   .frequency = r->frequency_penalty,
                                   .top_k = r->top_k,
                                   .n_top = r->n_top,
                                   .position = r->position,
                                   .pool_slot = r->pool_slot,
                                   .target = r->target,
                                   .context = n_contexts,
                                   .n_prompt = penalties ? r->n_prompt : 0,
                                   .n_context = penalties ? r->n_context : 0,
                                   .pending_slot = penalties ? r->pending_slot : -1,
                                   .bias = n_biases,
                                   .n_bias = r->n_bias,
                                   .mask = r->mask ? mask : -1};
        if (row[i].n_context > 0)
            memcpy(contexts + n_contexts, r->context, (size_t)row[i].n_context * sizeof *contexts);
        if (r->n_bias > 0)
            memcpy(biases + n_biases, r->bias, (size_t)r->n_bias * sizeof *biases);
        n_contexts += row[i].n_context;
        n_biases += r->n_bias;
    }
}

sample_cuda_row sample_cuda_padding(void)
{
    return (sample_cuda_row){.top_p = 1,
                             .repetition = 1,
                             .n_top = -1,
                             .pool_slot = -1,
                             .target = -1,
                             .pending_slot = -1,
                             .mask = -1};
}

_Static_assert(sizeof(vt_logit_bias) == 8, "biases are copied as they are");
_Static_assert(sizeof(sample_cuda_row) == 80, "the kernel's SampleRow");

/* As sample.cuh has them: a CTA takes a chunk at a time; of each chunk stay one float a thread and
 * two sums of 16 bytes. A third of an SM a CTA, eight CTAs an SM where the rows give so many. */
enum { THREADS = 256, VECTORS = 8, CHUNK = THREADS * VECTORS * 4, BLOCKS = 3, CTAS = 8 };
enum { CHUNK_MAXIMA = THREADS * 4, CHUNK_SUMS = 32, MAX_VOCAB = 400000 };

size_t sample_cuda_workspace(int64_t rows, int64_t vocab)
{
    return (size_t)(rows * vt_ceil_div(vocab, CHUNK)) * (CHUNK_MAXIMA + CHUNK_SUMS);
}

static bool sample_supports(const void *args)
{
    const sample_args *a = args;
    return a->logits->dtype == VT_F32 && a->logits->dim[1] <= MAX_VOCAB;
}

static vt_status sample_run(const void *args, const vt_lane *lane)
{
    const sample_args *a = args;
    vt_cuda_lane *l = lane->cuda;
    int32_t vocab = (int32_t)a->logits->dim[1], rows = (int32_t)a->logits->dim[0];
    if (rows == 0 && !l->collect)
        return VT_OK;
    int32_t chunks = (int32_t)vt_ceil_div(vocab, CHUNK),
            parts = (int32_t)vt_ceil_div(l->cuda->sm_count * CTAS, rows > 0 ? rows : 1);
    parts = parts < chunks ? parts : chunks;
    bool aligned = vocab % 4 == 0 && a->logits->row_stride % 4 == 0;
    sample_params p = {.logits = a->logits->data,
                       .rows = l->sample_rows,
                       .contexts = l->sample_contexts,
                       .biases = l->sample_biases,
                       .masks = l->sample_masks,
                       .pool = a->token_pool ? *a->token_pool : NULL,
                       .token = a->token->data,
                       .logprob = a->logprob->data,
                       .top_id = a->top_id->data,
                       .top_logprob = a->top_logprob->data,
                       .group_max = l->workspace,
                       .mass = (char *)l->workspace + (size_t)rows * (size_t)chunks * CHUNK_MAXIMA,
                       .tickets = l->tickets,
                       .logits_stride = (int32_t)a->logits->row_stride,
                       .parts = parts};
    return vt_cuda_launch(
        l,
        &(cuda_launch){.spec = JIT_SPEC("sample.cu", "sample", {"vocab", vocab},
                                        {"threads", THREADS}, {"vectors", VECTORS},
                                        {"blocks", aligned ? BLOCKS : BLOCKS - 1},
                                        {"aligned", aligned}),
                       .grid = {(uint32_t)(rows * parts), 1, 1},
                       .threads = THREADS,
                       .shared_bytes = (uint32_t)(chunks * CHUNK_MAXIMA)},
        &p, sizeof p);
}

const vt_impl sample_cuda_impl = {
    .name = "cuda", .device = VT_DEVICE_CUDA, .supports = sample_supports, .run = sample_run};
