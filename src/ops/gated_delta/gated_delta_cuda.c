/* gated_delta on CUDA. "decode" and "prefill" are two variants of one kernel, gated_delta.cu, with
 * the same bits: "decode" has two columns in a thread and few tokens in shared memory, for steps
 * that move state; "prefill" has one column, so that more warps share a sequence's work, and more
 * tokens. "chunks" computes 16 tokens at once on tensor cores, gated_delta_chunks.cu. A token's
 * bits depend there on its place in the chunk of its prompt that the step brings, so deterministic
 * programs take "prefill"; so do programs with drafts, which keep the state behind single tokens,
 * and gates of channels. */
#include "ops/gated_delta/gated_delta.h"

#include "base/err.h"
#include "ops/cuda_impls.h"
#include "ops/cut.h"
#include "ops/gated_delta/gated_delta_impls.h"
#include "ops/gated_delta/gated_delta_params.h"

enum {
    DECODE_TOKENS = 64, /* of a step that moves more state than it computes */
    PROMPT = 512        /* tokens of a step that are taken for one prompt's, if it has prompts */
};

static bool supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const gated_delta_args *a = args;
    return a->x->dtype == VT_BF16 && a->y->dtype == VT_BF16 && a->a->dtype == VT_BF16 &&
           a->b->dtype == VT_BF16 && a->decay->dtype == VT_F32 && a->dt_bias->dtype == VT_F32 &&
           a->state->dtype == VT_F32 && a->k_dim <= GATED_DELTA_K_DIM_MOST;
}

/* Two columns are loaded as one vector of 8 bytes. */
static bool has_pairs(const gated_delta_args *a)
{
    return a->v_dim % 2 == 0 && a->state_at % 2 == 0 && a->state->row_stride % 2 == 0;
}

static bool decode_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    return supports(args, t, upto) && has_pairs(args);
}

static bool decode_suits(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)args, (void)t;
    return upto->tokens <= DECODE_TOKENS;
}

/* Returns how many sequences bring most of a step's tokens: a step that runs as a graph has room
 * for more sequences than it has. */
static int32_t prompts_of(const vt_size *size)
{
    int32_t most = size->tokens / PROMPT;
    return most < 1 ? 1 : most < size->seqs ? most : size->seqs;
}

static cuda_launch launch_of(const gated_delta_args *a, int32_t cols, int32_t seqs, bool ahead)
{
    /* of 48 KiB of shared memory, of which a token with decays of its channels takes half as much
     * again */
    int32_t tokens = cols == 2 ? 8 : (a->k_dim <= 128 ? 32 : 16) / (a->channels ? 2 : 1);
    return (cuda_launch){
        .spec = JIT_SPEC("gated_delta.cu", "gated_delta", {"kdim", a->k_dim}, {"vdim", a->v_dim},
                         {"cols", cols}, {"tokens", tokens}, {"ahead", ahead},
                         {"log_decay", a->log_decay}, {"tiled", a->tiled},
                         {"behind", a->batch->state_behind != NULL}, {"channels", a->channels}),
        .grid = {(uint32_t)a->v_heads * cuda_blocks(a->v_dim, 32 * cols), (uint32_t)seqs, 1},
        .threads = 128};
}

static cuda_launch decode_launch(const gated_delta_args *a, int32_t seqs)
{
    return launch_of(a, 2, seqs, false);
}

/* Returns true if a step has decodes alone, which move state however many they are. Rows are chosen
 * by tokens, so the other rows' launches are those of "decode" then. */
static bool only_decodes(const gated_delta_args *a, const vt_size *size)
{
    return size->prefills == 0 && has_pairs(a);
}

/* Loads ahead while an SM has at most two of the CTAs that work; more of them hide each other's
 * loads, and then registers are what they need. */
static cuda_launch prefill_launch(const gated_delta_args *a, const vt_target *t,
                                  const vt_size *size, int32_t seqs)
{
    if (only_decodes(a, size))
        return decode_launch(a, seqs);
    cuda_launch l = launch_of(a, 1, seqs, false);
    return (int64_t)l.grid[0] * prompts_of(size) <= 2 * (int64_t)t->sm_count
               ? launch_of(a, 1, seqs, true)
               : l;
}

/* ---- chunks ---- */

/* Warps of a CTA with 16 columns of a head's state each; blocks of 16 tokens in a tile, for each of
 * which one more warp makes matrices. */
typedef struct chunks_shape {
    int32_t warps, blocks;
} chunks_shape;

static uint32_t chunks_shared_bytes(const gated_delta_args *a, chunks_shape s)
{
    enum { STAGES = 3, BLOCK_BYTES = 2 * 2 * 512 + 3 * 64 + 16 }; /* kStages and sizeof(Block) */
    int32_t token = 2 * (a->k_dim * 2 + 16) + s.warps * 32 + 16;
    return (uint32_t)(s.blocks * (STAGES * 16 * token + 2 * BLOCK_BYTES));
}

/* Returns true if the heads of so many prompts leave SMs without work. */
static bool are_few(int32_t prompts, const gated_delta_args *a, const vt_target *t)
{
    return (int64_t)a->v_heads * (a->v_dim / 64) * prompts <= t->sm_count;
}

/* A CTA has an SM for itself. Of few prompts it has half of a head's columns, because more warps of
 * an SM make each of them slower. */
static chunks_shape chunks_shape_of(const gated_delta_args *a, const vt_target *t, bool few)
{
    int32_t most = a->v_dim % 128 == 0 && !few ? 8
                   : a->v_dim % 64 == 0        ? 4
                   : a->v_dim % 32 == 0        ? 2
                                               : 1;
    chunks_shape s = {most, most < 4 ? most : 4};
    while (s.blocks > 1 && chunks_shared_bytes(a, s) > (uint32_t)t->max_shared_bytes)
        s.blocks /= 2;
    return s;
}

static cuda_launch chunks_launch_of(const gated_delta_args *a, chunks_shape s, int32_t seqs)
{
    return (cuda_launch){
        .spec = JIT_SPEC("gated_delta_chunks.cu", "gated_delta_chunks", {"kdim", a->k_dim},
                         {"vdim", a->v_dim}, {"warps", s.warps}, {"blocks", s.blocks},
                         {"log_decay", a->log_decay}, {"tiled", a->tiled}),
        .grid = {(uint32_t)(a->v_heads * (a->v_dim / (16 * s.warps))), (uint32_t)seqs, 1},
        .threads = (uint32_t)(s.warps + s.blocks) * 32,
        .shared_bytes = chunks_shared_bytes(a, s)};
}

static cuda_launch chunks_launch(const gated_delta_args *a, const vt_target *t, const vt_size *size,
                                 int32_t seqs)
{
    return only_decodes(a, size)
               ? decode_launch(a, seqs)
               : chunks_launch_of(a, chunks_shape_of(a, t, are_few(prompts_of(size), a, t)), seqs);
}

static bool chunks_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    const gated_delta_args *a = args;
    return supports(args, t, upto) && !a->channels && !a->batch->state_behind &&
           t->limits.decode_tokens <= 1 && a->k_dim % 16 == 0 && a->k_dim <= 128 &&
           a->v_dim % 16 == 0 && a->x->row_stride % 8 == 0 && a->y->row_stride % 2 == 0 &&
           chunks_shared_bytes(a, (chunks_shape){8, 1}) <= (uint32_t)t->max_shared_bytes;
}

static vt_status launch(const gated_delta_args *a, const vt_lane *lane, const cuda_launch *l)
{
    gated_delta_params p = {.x = a->x->data,
                            .a = a->a->data,
                            .b = a->b->data,
                            .y = a->y->data,
                            .decay = a->decay->data,
                            .dt_bias = a->dt_bias->data,
                            .state = (float *)a->state->data + a->state_at,
                            .state_stride = a->state->row_stride,
                            CUDA_STATE_PARAMS(a->batch),
                            .x_stride = (int32_t)a->x->row_stride,
                            .a_stride = (int32_t)a->a->row_stride,
                            .b_stride = (int32_t)a->b->row_stride,
                            .y_stride = (int32_t)a->y->row_stride,
                            .k_heads = a->k_heads,
                            .v_heads = a->v_heads};
    return vt_cuda_launch(lane->cuda, l, &p, sizeof p);
}

static vt_status decode_run(const void *args, const vt_lane *lane)
{
    const gated_delta_args *a = args;
    cuda_launch l = decode_launch(a, a->batch->n_seqs);
    return launch(a, lane, &l);
}

/* A dry run collects both forms: steps of a size differ in their sequences. */
static vt_status prefill_run(const void *args, const vt_lane *lane)
{
    const gated_delta_args *a = args;
    cuda_launch l = prefill_launch(a, lane->target, lane->size, a->batch->n_seqs);
    for (int ahead = 0; ahead < 2 && lane->cuda->collect; ahead++) {
        cuda_launch form = launch_of(a, 1, a->batch->n_seqs, ahead);
        TRY(launch(a, lane, &form));
    }
    return launch(a, lane, &l);
}

static vt_status chunks_run(const void *args, const vt_lane *lane)
{
    const gated_delta_args *a = args;
    cuda_launch l = chunks_launch(a, lane->target, lane->size, a->batch->n_seqs);
    for (int i = 0; i < 2 && lane->cuda->collect; i++) {
        bool few = i > 0 && are_few(1, a, lane->target);
        cuda_launch form = chunks_launch_of(a, chunks_shape_of(a, lane->target, few),
                                            a->batch->n_seqs);
        TRY(launch(a, lane, &form));
    }
    return launch(a, lane, &l);
}

static void describe(const gated_delta_args *a, const vt_target *t, const vt_size *size,
                     const cuda_launch *l, int32_t cols, int32_t vector_bytes, vt_cut *out)
{
    vt_cut_shape(out, "%d sequences of %d heads of %d x %d", size->seqs, a->v_heads, a->k_dim,
                 a->v_dim);
    out->tile[0] = a->k_dim;
    out->tile[1] = cols;
    vt_cut_grid(out, t, l, vector_bytes);
}

static void decode_describe(const void *args, const vt_target *t, const vt_size *size, vt_cut *out)
{
    cuda_launch l = decode_launch(args, size->seqs);
    describe(args, t, size, &l, 64, 2 * (int32_t)sizeof(float), out);
}

static void prefill_describe(const void *args, const vt_target *t, const vt_size *size, vt_cut *out)
{
    cuda_launch l = prefill_launch(args, t, size, size->seqs);
    bool decode = only_decodes(args, size);
    describe(args, t, size, &l, decode ? 64 : 32, (decode ? 2 : 1) * (int32_t)sizeof(float), out);
}

static void chunks_describe(const void *args, const vt_target *t, const vt_size *size, vt_cut *out)
{
    cuda_launch l = chunks_launch(args, t, size, size->seqs);
    bool decode = only_decodes(args, size);
    chunks_shape s = chunks_shape_of(args, t, are_few(prompts_of(size), args, t));
    describe(args, t, size, &l, decode ? 64 : 16 * s.warps, decode ? 8 : 16, out);
    if (!decode)
        vt_cut_roles(out, "warps that have columns, warps that prepare the next tile", NULL);
}

const vt_impl gated_delta_cuda_decode = {CUDA_ROW("decode", decode, decode_supports),
                                         .fixed_order = true, .suits = decode_suits};
const vt_impl gated_delta_cuda_chunks = {CUDA_ROW("chunks", chunks, chunks_supports), .level = 80};
const vt_impl gated_delta_cuda_prefill = {CUDA_ROW("prefill", prefill, supports),
                                          .fixed_order = true};
