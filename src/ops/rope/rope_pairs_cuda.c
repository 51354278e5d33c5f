/* A variant of rope on CUDA that no engine chooses (rope_pairs.cu): interleaved pairs by 16-byte
 * vectors, to be compared with half-split pairs in the row "heads". No model has interleaved pairs
 * after loading, so the engine has no need of it. */
#include "ops/rope/rope_impls.h"

#include "ops/cuda_impls.h"
#include "ops/cut.h"
#include "ops/rope/rope_cuda.h"
#include "ops/rope/rope_pairs_params.h"

static bool pairs_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    const rope_args *a = args;
    return rope_cuda_supports(a, t, upto) && a->interleaved && !a->q_norm && !a->q_cos_sin &&
           a->head_dim % 8 == 0 && a->dims % 8 == 0;
}

static cuda_launch launch_of(const rope_args *a, int64_t tokens)
{
    int32_t heads = (int32_t)(a->q->dim[1] / a->head_dim),
            kv_heads = (int32_t)(a->k->dim[1] / a->head_dim);
    return (cuda_launch){
        .spec = JIT_SPEC("rope_pairs.cu", "rope_pairs", {"heads", heads}, {"kv_heads", kv_heads},
                         {"head_dim", a->head_dim}, {"dims", a->dims}),
        .grid = {cuda_blocks(tokens * (heads + kv_heads) * (a->dims / 8), 128), 1, 1},
        .threads = 128};
}

static vt_status pairs_run(const void *args, const vt_lane *lane)
{
    const rope_args *a = args;
    int32_t tokens = a->batch->n_tokens;
    rope_pairs_params p = {.q = a->q->data,
                           .k = a->k->data,
                           .position = a->batch->position,
                           .cos_sin = a->cos_sin->data,
                           .q_stride = (int32_t)a->q->row_stride,
                           .k_stride = (int32_t)a->k->row_stride,
                           .n_tokens = tokens};
    cuda_launch l = launch_of(a, tokens);
    return vt_cuda_launch(lane->cuda, &l, &p, sizeof p);
}

static void pairs_describe(const void *args, const vt_target *t, const vt_size *size, vt_cut *out)
{
    const rope_args *a = args;
    int64_t tokens = vt_size_rows(a->q, size);
    cuda_launch l = launch_of(a, tokens);
    vt_cut_shape(out, "%lld tokens, %lld heads of %d", (long long)tokens,
                 (long long)((a->q->dim[1] + a->k->dim[1]) / a->head_dim), a->head_dim);
    vt_cut_roles(out, "4 interleaved pairs a thread", NULL);
    vt_cut_grid(out, t, &l, 16);
}

const vt_impl rope_cuda_pairs = {CUDA_ROW("pairs", pairs, pairs_supports), .fixed_order = true};
