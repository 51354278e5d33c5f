/* embed on CUDA: embed.cu for a table in BF16, embed_quant.cu for one in quantised tiles. */
#include "ops/embed/embed.h"

#include "ops/cuda_impls.h"
#include "ops/linear/linear_pack_cuda.h"
#include "ops/linear/linear_quant.h"
#include "ops/embed/embed_params.h"

static bool embed_supports(const void *args, const vt_target *target, const vt_size *upto)
{
    (void)target, (void)upto;
    const embed_args *a = args;
    const vt_tensor *t = a->table;
    return (t->dtype == VT_BF16 || linear_quant_type(t->dtype, t->dim[1])) &&
           a->y->dtype == VT_BF16;
}

static vt_status embed_run(const void *args, const vt_lane *lane)
{
    const embed_args *a = args;
    int32_t hidden = (int32_t)a->y->dim[1], vec = hidden % 8 == 0 ? 8 : 1;
    int64_t tokens = a->y->dim[0];
    if (tokens == 0 && !lane->cuda->collect)
        return VT_OK;
    embed_params p = {.table = a->table->data,
                      .tokens = *a->tokens,
                      .pool = a->token_pool ? *a->token_pool : NULL,
                      .y = a->y->data,
                      .n_tokens = (int32_t)tokens,
                      .scale = a->scale};
    if (a->table->dtype != VT_BF16)
        return vt_cuda_launch(
            lane->cuda,
            &(cuda_launch){
                .spec = JIT_SPEC("embed_quant.cu", "embed_quant",
                                 {"type", (int32_t)a->table->dtype}, {"k", hidden},
                                 {"scaled", a->scale != 1.0f}),
                .grid = {cuda_blocks(tokens * 4 * vt_ceil_div(hidden, QUANT_UNIT), 128), 1, 1},
                .threads = 128},
            &p, sizeof p);
    return vt_cuda_launch(
        lane->cuda,
        &(cuda_launch){.spec = JIT_SPEC("embed.cu", "embed", {"hidden", hidden}, {"vec", vec},
                                        {"scaled", a->scale != 1.0f}),
                       .grid = {cuda_blocks(tokens * (hidden / vec), 128), 1, 1},
                       .threads = 128},
        &p, sizeof p);
}

/* The table's form is that of a linear op's weight, so that a model whose head is its embedding has
 * one copy. */
const vt_impl embed_cuda_impl = {.name = "gather",
                                 .device = VT_DEVICE_CUDA,
                                 .fixed_order = true,
                                 .supports = embed_supports,
                                 .run = embed_run,
                                 .packing = &linear_table_packing};
