/* sample on CUDA: packs the rows for upload, and launches sample.cu. The kernel is the same for
 * every level, number of rows and settings. Each row of a launch says itself whether it has
 * penalties or filters, because one captured graph must serve them all. */
#include "ops/sample/sample.h"

#include <string.h>

#include "ops/cuda_impls.h"
#include "ops/cut.h"
#include "ops/sample/sample_params.h"

/* ---- the step's rows: a plan with side data ----
 *
 *   plan   [size.rows] rows of fixed size
 *   side   contexts of the rows that have penalties | biases | masks, one after the other; rows of
 *          one sequence (drafts) share a context. A row
 *          holds the offsets of its own from the beginning of the side data, in elements of each
 *          kind. Few steps have side data. A mask has 19 KB for 151,936 ids. */

static bool has_penalties(const vt_sample_row *r)
{
    return r->repetition_penalty != 1.0f || r->presence_penalty != 0.0f ||
           r->frequency_penalty != 0.0f;
}

/* Returns true if row i brings a mask of its own. Neighbouring rows (samples of one request) share
 * one. */
static bool brings_mask(const vt_sample_row *rows, int32_t i)
{
    return rows[i].mask && (i == 0 || rows[i - 1].mask != rows[i].mask);
}

static int32_t context_of(const vt_sample_row *r)
{
    return has_penalties(r) && r->context ? r->n_context : 0;
}

/* Returns how many tokens row i adds to the side data. The rows behind a sequence's drafts have the
 * context of the row before them and a few tokens more: they share its copy. */
static int32_t context_added(const vt_sample_row *rows, int32_t i)
{
    int32_t n = context_of(&rows[i]);
    bool shared = i > 0 && n > 0 && rows[i - 1].context == rows[i].context;
    int32_t there = shared ? context_of(&rows[i - 1]) : 0;
    return n > there ? n - there : 0;
}

/* Where each kind begins in the side data, in bytes. */
typedef struct side_layout {
    size_t biases, masks, bytes;
} side_layout;

static side_layout layout_of(const vt_sample_row *rows, int32_t n, int64_t vocab)
{
    size_t contexts = 0, biases = 0, masks = 0;
    for (int32_t i = 0; i < n; i++) {
        contexts += (size_t)context_added(rows, i);
        biases += (size_t)rows[i].n_bias;
        masks += brings_mask(rows, i);
    }
    side_layout l = {.biases = vt_round_up(contexts * sizeof(int32_t), sizeof(vt_logit_bias))};
    l.masks = l.biases + biases * sizeof(vt_logit_bias);
    l.bytes = l.masks + masks * (size_t)vt_ceil_div(vocab, 32) * sizeof(uint32_t);
    return l;
}

static size_t side_bytes(const void *args, const vt_batch *batch)
{
    const sample_args *a = args;
    return layout_of(*a->row, batch->n_rows, a->logits->dim[1]).bytes;
}

/* The most that the requests of a step can bring (engine/request.h): each a context, which
 * the rows of one sequence share, and each row 1,024 biases and a mask. */
static size_t most_side_bytes(const void *args, const vt_target *t)
{
    enum { MOST_BIASES = 1024 };
    const sample_args *a = args;
    size_t seqs = (size_t)t->limits.max_seqs, rows = (size_t)t->limits.max_rows;
    return seqs * (size_t)t->limits.max_context * sizeof(int32_t) +
           rows * MOST_BIASES * sizeof(vt_logit_bias) +
           rows * (size_t)vt_ceil_div(a->logits->dim[1], 32) * sizeof(uint32_t) + 64;
}

static int32_t rows_items(const void *args, const vt_target *t, const vt_size *size,
                          const vt_batch *batch)
{
    (void)args, (void)t, (void)batch;
    return size->rows;
}

static size_t rows_bytes(const void *args, const vt_target *t, const vt_size *size, int32_t items)
{
    (void)args, (void)t, (void)size;
    return (size_t)items * sizeof(sample_row);
}

/* A padding row: greedy, without log-probabilities, and it writes no slot. */
static const sample_row kPadding = {.top_p = 1,
                                    .repetition = 1,
                                    .n_top = -1,
                                    .pool_slot = -1,
                                    .target = -1,
                                    .pending_slot = -1,
                                    .mask = -1};

static int32_t rows_fill(const void *args, const vt_target *t, const vt_size *size,
                         const vt_batch *batch, int32_t items, void *out, void *side)
{
    (void)t, (void)size;
    const sample_args *a = args;
    const vt_sample_row *rows = *a->row;
    sample_row *row = out;
    int32_t n = batch->n_rows, words = (int32_t)vt_ceil_div(a->logits->dim[1], 32);
    side_layout l = layout_of(rows, n, a->logits->dim[1]);
    int32_t *contexts = side;
    vt_logit_bias *biases = side;
    uint32_t *masks = side;
    int32_t n_contexts = 0, n_biases = (int32_t)(l.biases / sizeof *biases),
            mask = (int32_t)(l.masks / sizeof *masks) - words;
    for (int32_t i = 0; i < n; i++) {
        const vt_sample_row *r = &rows[i];
        bool penalties = has_penalties(r) && r->context;
        int32_t added = context_added(rows, i), shared = context_of(r) - added;
        if (brings_mask(rows, i)) {
            mask += words;
            memcpy(masks + mask, r->mask, (size_t)words * sizeof *masks);
        }
        row[i] = (sample_row){.seed = r->seed,
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
                              .context = n_contexts - shared,
                              .n_prompt = penalties ? r->n_prompt : 0,
                              .n_context = context_of(r),
                              .pending_slot = penalties ? r->pending_slot : -1,
                              .bias = n_biases,
                              .n_bias = r->n_bias,
                              .mask = r->mask ? mask : -1};
        if (added > 0)
            memcpy(contexts + n_contexts, r->context + shared, (size_t)added * sizeof *contexts);
        if (r->n_bias > 0)
            memcpy(biases + n_biases, r->bias, (size_t)r->n_bias * sizeof *biases);
        n_contexts += added;
        n_biases += r->n_bias;
    }
    for (int32_t i = n; i < items; i++)
        row[i] = kPadding;
    return n;
}

static const vt_host_plan rows_plan = {.name = "sampling rows",
                                       .items = rows_items,
                                       .bytes = rows_bytes,
                                       .most_side_bytes = most_side_bytes,
                                       .side_bytes = side_bytes,
                                       .fill = rows_fill};

_Static_assert(sizeof(vt_logit_bias) == sizeof(sample_bias), "biases are copied as they are");

/* The same numbers as in sample.cuh. A CTA takes one chunk at a time. It stores one float per
 * thread and chunk, and two sums of 16 bytes per chunk. An SM holds three CTAs; the grid has eight
 * per SM if there are enough rows. */
enum { THREADS = 256, VECTORS = 8, CHUNK = THREADS * VECTORS * 4, BLOCKS = 3, CTAS = 8 };
enum {
    CHUNK_MAXIMA = THREADS * 4,
    CHUNK_SUMS = 2 * sizeof(sample_chunk_mass),
    MAX_VOCAB = 400000,
    STATIC_SHARED = 34 << 10
};

static size_t sample_workspace(const void *args, const vt_target *t)
{
    int64_t vocab = ((const sample_args *)args)->logits->dim[1];
    return (size_t)(t->limits.max_rows * vt_ceil_div(vocab, CHUNK)) * (CHUNK_MAXIMA + CHUNK_SUMS);
}

static int64_t sample_tickets(const void *args, const vt_target *t)
{
    (void)args;
    return t->limits.max_rows;
}

static bool sample_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const sample_args *a = args;
    return a->logits->dtype == VT_F32 && a->logits->dim[1] <= MAX_VOCAB;
}

/* How a row of logits is cut: into `chunks`, which are divided among `parts` CTAs. */
typedef struct sample_form {
    int32_t chunks, parts;
    bool aligned; /* rows are whole 16-byte vectors */
    cuda_launch launch;
} sample_form;

static sample_form form_of(const sample_args *a, const vt_target *t, int64_t rows)
{
    int32_t vocab = (int32_t)a->logits->dim[1], chunks = (int32_t)vt_ceil_div(vocab, CHUNK),
            parts = (int32_t)vt_ceil_div(t->sm_count * CTAS, rows > 0 ? rows : 1);
    parts = parts < chunks ? parts : chunks;
    bool aligned = vocab % 4 == 0 && a->logits->row_stride % 4 == 0;
    return (sample_form){
        .chunks = chunks,
        .parts = parts,
        .aligned = aligned,
        .launch = {.spec = JIT_SPEC("sample.cu", "sample", {"vocab", vocab}, {"threads", THREADS},
                                    {"vectors", VECTORS}, {"blocks", aligned ? BLOCKS : BLOCKS - 1},
                                    {"aligned", aligned}),
                   .grid = {(uint32_t)(rows * parts), 1, 1},
                   .threads = THREADS,
                   .shared_bytes = (uint32_t)(chunks * CHUNK_MAXIMA)}};
}

static vt_status sample_run(const void *args, const vt_lane *lane)
{
    const sample_args *a = args;
    const char *side = lane->side;
    int32_t rows = (int32_t)a->logits->dim[0];
    sample_form f = form_of(a, lane->target, rows);
    sample_params p = {.logits = a->logits->data,
                       .rows = lane->plan,
                       .contexts = (const int32_t *)side,
                       .biases = (const sample_bias *)lane->side,
                       .masks = (const uint32_t *)side,
                       .pool = a->token_pool ? *a->token_pool : NULL,
                       .token = a->token->data,
                       .logprob = a->logprob->data,
                       .top_id = a->top_id->data,
                       .top_logprob = a->top_logprob->data,
                       .group_max = lane->workspace,
                       .mass = (sample_chunk_mass *)lane->workspace +
                               (size_t)rows * (size_t)f.chunks *
                                   (CHUNK_MAXIMA / sizeof(sample_chunk_mass)),
                       .tickets = lane->tickets,
                       .logits_stride = (int32_t)a->logits->row_stride,
                       .parts = f.parts};
    return vt_cuda_launch(lane->cuda, &f.launch, &p, sizeof p);
}

static void sample_describe(const void *args, const vt_target *t, const vt_size *size, vt_cut *out)
{
    const sample_args *a = args;
    int64_t rows = vt_size_rows(a->logits, size);
    sample_form f = form_of(a, t, rows);
    vt_cut_shape(out, "%lld rows of %lld logits", (long long)rows, (long long)a->logits->dim[1]);
    out->tile[0] = 1;
    out->tile[1] = CHUNK;
    out->split = f.parts;
    vt_cut_roles(out, NULL, f.parts > 1 ? "last CTA of a row" : NULL);
    cuda_launch l = f.launch;
    l.shared_bytes += STATIC_SHARED;
    vt_cut_grid(out, t, &l, f.aligned ? 16 : 4);
}

const vt_impl sample_cuda_impl = {CUDA_ROW("parts", sample, sample_supports), .fixed_order = true,
                                  .plan = &rows_plan, .workspace = sample_workspace,
                                  .tickets = sample_tickets};
