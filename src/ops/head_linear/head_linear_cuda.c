/* head_linear on CUDA: see head_linear.cu, and head_linear_tiles.cu for many tokens. Weights are
 * BF16 whatever the file has. */
#include "ops/cuda_impls.h"
#include "ops/cut.h"
#include "ops/head_linear/head_linear.h"
#include "ops/head_linear/head_linear_impls.h"
#include "ops/head_linear/head_linear_params.h"
#include "ops/linear/linear_pack_cuda.h"

enum {
    FEW_TOKENS = 16,
    MANY_TILES = 4,
    OUTPUTS = 64,
    SPLIT_OUTPUTS = 16,
    /* The split form is faster up to so many tokens while the other has at most so many CTAs a SM:
     * one H200, 20 heads, 512 to 256 columns, 64 tokens 10.5 us and 31.4, 256 tokens 26.2 and 34.6;
     * 192 to 512 columns, 256 tokens (640 CTAs) 30.2 and 38.2. */
    MOST_SPLIT = 256,
    FEW_CTAS = 5,
    TILE = 128, /* tokens and outputs of a CTA of head_linear_tiles.cu */
    TILE_STAGES = 3
};

/* The kernel finds a head's matrix behind the one before it. */
static bool in_a_row(const head_linear_args *a)
{
    const char *first = a->w[0].part[0]->data;
    for (int32_t h = 1; first && h < a->heads; h++)
        if ((const char *)a->w[h].part[0]->data != first + h * a->w->rows * a->w->cols * 2)
            return false;
    return true;
}

static bool head_linear_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const head_linear_args *a = args;
    return a->x->dtype == VT_BF16 && a->y->dtype == VT_BF16 && a->w->part[0]->dtype == VT_BF16 &&
           a->heads <= 65535 && in_a_row(a);
}

/* Few tokens have warps that split the sum, which a fixed order does not allow. */
static bool is_split(const head_linear_args *a, const vt_target *t, int64_t tokens)
{
    int64_t ctas = vt_ceil_div(a->w->rows, OUTPUTS) * a->heads *
                   vt_ceil_div(tokens, 16 * MANY_TILES);
    if (t->deterministic || tokens > MOST_SPLIT)
        return false;
    return tokens <= FEW_TOKENS || ctas <= FEW_CTAS * (int64_t)t->sm_count;
}

/* The form with tiles in shared memory, for many tokens; its bits are those of the one that does
 * not split the sum. */
static bool is_tiled(const head_linear_args *a, const vt_target *t, int64_t tokens)
{
    return tokens >= TILE && !is_split(a, t, tokens) && a->rest % 8 == 0 && a->w->rows % 8 == 0 &&
           a->y->row_stride % 8 == 0 && cuda_vectors_of_8(a->w->cols, a->x->row_stride);
}

static cuda_launch tiles_launch_of(const head_linear_args *a, int64_t tokens)
{
    int64_t in = a->w->cols, out = a->w->rows;
    return (cuda_launch){
        .spec = JIT_SPEC("head_linear_tiles.cu", "head_linear_tiles", {"in", (int32_t)in},
                         {"out", (int32_t)out}, {"rest", a->rest}, {"stages", TILE_STAGES}),
        .grid = {cuda_blocks(out, TILE), (uint32_t)a->heads, cuda_blocks(tokens, TILE)},
        .threads = 256,
        .shared_bytes = TILE_STAGES * 2 * TILE * 64 * 2};
}

static cuda_launch launch_of(const head_linear_args *a, const vt_target *t, int64_t tokens)
{
    int64_t in = a->w->cols, out = a->w->rows;
    bool wide = cuda_vectors_of_8(in, a->x->row_stride) && a->rest % 8 == 0;
    bool split = is_split(a, t, tokens);
    if (is_tiled(a, t, tokens))
        return tiles_launch_of(a, tokens);
    int32_t tiles = !split && tokens > FEW_TOKENS ? MANY_TILES : 1;
    return (cuda_launch){.spec = JIT_SPEC("head_linear.cu", "head_linear", {"in", (int32_t)in},
                                          {"out", (int32_t)out}, {"rest", a->rest},
                                          {"tiles", tiles}, {"split", split}, {"vec", wide}),
                         .grid = {cuda_blocks(out, split ? SPLIT_OUTPUTS : OUTPUTS),
                                  (uint32_t)a->heads, cuda_blocks(tokens, 16 * tiles)},
                         .threads = 128};
}

static vt_status head_linear_run(const void *args, const vt_lane *lane)
{
    const head_linear_args *a = args;
    cuda_launch l = launch_of(a, lane->target, a->x->dim[0]);
    head_linear_params p = {a->x->data,
                            a->w[0].part[0]->data,
                            a->y->data,
                            (int32_t)a->x->row_stride,
                            (int32_t)a->y->row_stride,
                            (int32_t)a->x->dim[0]};
    return vt_cuda_launch(lane->cuda, &l, &p, sizeof p);
}

static void head_linear_describe(const void *args, const vt_target *t, const vt_size *size,
                                 vt_cut *out)
{
    const head_linear_args *a = args;
    int64_t tokens = vt_size_rows(a->x, size);
    cuda_launch l = launch_of(a, t, tokens);
    vt_cut_shape(out, "%d heads, [%lld x %lld] x [%lld x %lld]", a->heads, (long long)tokens,
                 (long long)a->w->cols, (long long)a->w->cols, (long long)a->w->rows);
    bool split = is_split(a, t, tokens), tiled = is_tiled(a, t, tokens);
    out->tile[0] = tiled ? TILE : !split && tokens > FEW_TOKENS ? 16 * MANY_TILES : 16;
    out->tile[1] = tiled ? TILE : split ? SPLIT_OUTPUTS : OUTPUTS;
    out->tile[2] = tiled ? 64 : 32;
    vt_cut_grid(out, t, &l, 16);
}

const vt_impl head_linear_cuda = {CUDA_ROW("heads", head_linear, head_linear_supports),
                                  .fixed_order = true, .bf16_weights = true,
                                  .packing = &linear_dense_packing};
