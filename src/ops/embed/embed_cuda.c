/* embed on CUDA: embed.cu for a table in BF16, embed_quant.cu for one in quantised tiles. */
#include "ops/embed/embed.h"

#include "ops/cuda_impls.h"
#include "ops/cut.h"
#include "ops/linear/linear_pack_cuda.h"
#include "ops/linear/quant/linear_quant.h"
#include "ops/embed/embed_params.h"

static bool embed_supports(const void *args, const vt_target *target, const vt_size *upto)
{
    (void)target, (void)upto;
    const embed_args *a = args;
    const vt_tensor *t = a->table;
    return (t->dtype == VT_BF16 || linear_quant_type(t->dtype, t->dim[1])) &&
           a->y->dtype == VT_BF16;
}

/* Returns how many vectors a lane has under way where a warp copies a row; 0: a thread has one
 * vector of a row. One H200, 16,384 rows of 4096: 73.9 us in place of 76.0. Rows that are less than
 * a wave of warps would leave SMs without work. */
static int32_t depth_of(const vt_target *t, int64_t tokens, int32_t hidden)
{
    enum { DEPTH = 8, WARPS_OF_AN_SM = 64 };
    bool many = tokens >= (int64_t)t->sm_count * WARPS_OF_AN_SM;
    return many && hidden % 8 == 0 && hidden >= DEPTH * 8 * 32 ? DEPTH : 0;
}

static cuda_launch launch_of(const embed_args *a, const vt_target *t, int64_t tokens)
{
    int32_t hidden = (int32_t)a->y->dim[1], vec = hidden % 8 == 0 ? 8 : 1;
    bool quantised = a->table->dtype != VT_BF16;
    int32_t deep = quantised ? 0 : depth_of(t, tokens, hidden);
    int64_t each = quantised ? 4 * vt_ceil_div(hidden, QUANT_UNIT) : hidden / vec,
            threads = tokens * (deep ? 32 : each);
    cuda_launch l = {.spec = JIT_SPEC("embed.cu", "embed", {"hidden", hidden}, {"vec", vec},
                                      {"scaled", a->scale != 1.0f}, {"part", a->part},
                                      {"deep", deep}),
                     .grid = {cuda_blocks(threads, 128), 1, 1},
                     .threads = 128};
    if (quantised)
        l.spec = JIT_SPEC("embed_quant.cu", "embed_quant", LINEAR_QUANT_PARAMS(a->table->dtype),
                          {"k", hidden}, {"scaled", a->scale != 1.0f}, {"part", a->part});
    return l;
}

static vt_status embed_run(const void *args, const vt_lane *lane)
{
    const embed_args *a = args;
    int64_t tokens = a->y->dim[0];
    embed_params p = {.table = a->table->data,
                      .tokens = *a->tokens,
                      .pool = a->token_pool ? *a->token_pool : NULL,
                      .y = a->y->data,
                      .n_tokens = (int32_t)tokens,
                      .scale = a->scale,
                      .first = a->first,
                      .rows = (int32_t)a->table->dim[0]};
    cuda_launch l = launch_of(a, lane->target, tokens);
    return vt_cuda_launch(lane->cuda, &l, &p, sizeof p);
}

static void embed_describe(const void *args, const vt_target *t, const vt_size *size, vt_cut *out)
{
    const embed_args *a = args;
    int64_t tokens = vt_size_rows(a->y, size);
    cuda_launch l = launch_of(a, t, tokens);
    vt_cut_shape(out, "%lld rows of %lld from %lld", (long long)tokens, (long long)a->y->dim[1],
                 (long long)a->table->dim[0]);
    vt_cut_grid(out, t, &l, a->y->dim[1] % 8 == 0 ? 16 : 2);
}

/* The table has the form of a linear op's weight, so that a model whose head is its embedding needs
 * one copy of it. */
const vt_impl embed_cuda_impl = {CUDA_ROW("gather", embed, embed_supports), .fixed_order = true,
                                 .packing = &linear_table_packing};
