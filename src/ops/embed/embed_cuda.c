/* embed on CUDA: see embed.cu. */
#include "ops/embed/embed.h"

#include "ops/cuda_impls.h"

typedef struct embed_params {
    const void *table;
    const int32_t *tokens, *pool;
    void *y;
    int32_t n_tokens;
    float scale;
} embed_params;

static bool embed_supports(const void *args)
{
    const embed_args *a = args;
    return a->table->dtype == VT_BF16 && a->y->dtype == VT_BF16;
}

static vt_status embed_run(const void *args, const vt_lane *lane)
{
    const embed_args *a = args;
    int32_t hidden = (int32_t)a->y->dim[1], vec = hidden % 8 == 0 ? 8 : 1;
    int64_t tokens = a->y->dim[0];
    if (tokens == 0 && !lane->cuda->collect)
        return VT_OK;
    embed_params p = {a->table->data, a->tokens,       lane->cuda->token_pool,
                      a->y->data,     (int32_t)tokens, a->scale};
    return vt_cuda_launch(
        lane->cuda,
        &(cuda_launch){.spec = JIT_SPEC("embed.cu", "embed", {"hidden", hidden}, {"vec", vec},
                                        {"scaled", a->scale != 1.0f}),
                       .grid = {cuda_blocks(tokens * (hidden / vec), 128), 1, 1},
                       .threads = 128},
        &p, sizeof p);
}

const vt_impl embed_cuda_impl = {
    .name = "cuda", .device = VT_DEVICE_CUDA, .supports = embed_supports, .run = embed_run};
