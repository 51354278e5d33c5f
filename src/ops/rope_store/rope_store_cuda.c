/* rope_store on CUDA: rope.cu with STORE, and for latents rope_latent.cu. For heads and rows of any
 * length the kernels of the two ops run one after the other. So do those of the variant "apart",
 * which no engine chooses: it has the fast kernels of both, and shows what the fused kernel
 * saves. */
#include "ops/rope_store/rope_store.h"

#include "ops/cuda_impls.h"
#include "ops/cut.h"
#include "ops/rope/rope_cuda.h"
#include "ops/rope_store/rope_latent_params.h"
#include "ops/rope_store/rope_store_impls.h"

/* The fused kernel reads v too, so v must be made of vectors like q and k. */
static bool fused_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    const rope_args *rope = &((const rope_store_args *)args)->rope;
    const kv_store_args *store = &((const rope_store_args *)args)->store;
    return store->v && rope_cuda_supports(rope, t, upto) &&
           rope->k->dim[1] == store->k_pool->dim[1] * store->k_pool->dim[3] &&
           store->v->row_stride % 8 == 0 && cuda_is_kv(store->k_pool->dtype);
}

static vt_status fused_run(const void *args, const vt_lane *lane)
{
    const rope_store_args *a = args;
    return rope_cuda_launch(&a->rope, &a->store, lane->cuda);
}

static void fused_describe(const void *args, const vt_target *t, const vt_size *size, vt_cut *out)
{
    const rope_store_args *a = args;
    rope_cuda_describe(&a->rope, &a->store, t, size, out);
}

/* ---- latents ---- */

static cuda_launch latent_launch_of(const rope_store_args *a, int64_t tokens)
{
    int32_t dim = a->rope.head_dim, heads = (int32_t)(a->rope.q->dim[1] / dim);
    return (cuda_launch){
        .spec = JIT_SPEC("rope_latent.cu", "rope_latent", {"heads", heads}, {"head_dim", dim},
                         {"dims", a->rope.dims}, {"page", (int32_t)a->store.k_pool->dim[2]},
                         {"interleaved", a->rope.interleaved}, {"norm", a->latent_norm != NULL}),
        .grid = {cuda_blocks(tokens * (heads + 1), 4), 1, 1},
        .threads = 128};
}

static vt_status latent_run(const void *args, const vt_lane *lane)
{
    const rope_store_args *a = args;
    const rope_args *r = &a->rope;
    int32_t tokens = r->batch->n_tokens;
    rope_latent_params p = {.q = r->q->data,
                            .pool = a->store.k_pool->data,
                            .k = r->k->data,
                            .position = r->batch->position,
                            .slot = a->store.batch->slot,
                            .cos_sin = r->cos_sin->data,
                            .q_cos_sin = (r->q_cos_sin ? r->q_cos_sin : r->cos_sin)->data,
                            .weight = a->latent_norm ? a->latent_norm->data : NULL,
                            .q_stride = (int32_t)r->q->row_stride,
                            .k_stride = (int32_t)r->k->row_stride,
                            .n_tokens = tokens,
                            .eps = r->eps};
    cuda_launch l = latent_launch_of(a, tokens);
    return vt_cuda_launch(lane->cuda, &l, &p, sizeof p);
}

static bool latent_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    const rope_store_args *a = args;
    return !a->store.v && rope_cuda_any_impl.supports(&a->rope, t, upto) && !a->rope.q_norm &&
           !a->rope.k_norm && a->store.k_pool->dtype == VT_BF16 && a->store.k_pool->dim[1] == 1 &&
           a->rope.k->dim[1] == a->rope.head_dim && a->rope.dims > 0 &&
           a->rope.dims < a->rope.head_dim && a->rope.head_dim <= 2048 &&
           (!a->latent_norm || a->latent_norm->dtype == VT_F32);
}

static void latent_describe(const void *args, const vt_target *t, const vt_size *size, vt_cut *out)
{
    const rope_store_args *a = args;
    int64_t tokens = vt_size_rows(a->rope.q, size);
    cuda_launch l = latent_launch_of(a, tokens);
    vt_cut_shape(out, "%lld tokens, %lld heads of %d and a latent", (long long)tokens,
                 (long long)(a->rope.q->dim[1] / a->rope.head_dim), a->rope.head_dim);
    vt_cut_grid(out, t, &l, 2);
}

/* ---- any shape ---- */

static bool any_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    const rope_store_args *a = args;
    return a->store.v && rope_cuda_any_impl.supports(&a->rope, t, upto) &&
           kv_store_cuda_any_impl.supports(&a->store, t, upto);
}

static vt_status any_run(const void *args, const vt_lane *lane)
{
    const rope_store_args *a = args;
    vt_status status = rope_cuda_any_impl.run(&a->rope, lane);
    return status == VT_OK ? kv_store_cuda_any_impl.run(&a->store, lane) : status;
}

/* There are two launches; this describes the first. */
static void any_describe(const void *args, const vt_target *t, const vt_size *size, vt_cut *out)
{
    const rope_store_args *a = args;
    rope_cuda_any_impl.describe(&a->rope, t, size, out);
    vt_cut_roles(out, "rope_any, then kv_store_any", NULL);
}

/* ---- the variant ---- */

static bool apart_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    const rope_store_args *a = args;
    return a->store.v && rope_cuda_impl.supports(&a->rope, t, upto) &&
           kv_store_cuda_impl.supports(&a->store, t, upto);
}

static vt_status apart_run(const void *args, const vt_lane *lane)
{
    const rope_store_args *a = args;
    vt_status status = rope_cuda_impl.run(&a->rope, lane);
    return status == VT_OK ? kv_store_cuda_impl.run(&a->store, lane) : status;
}

/* There are two launches; this describes the first. */
static void apart_describe(const void *args, const vt_target *t, const vt_size *size, vt_cut *out)
{
    const rope_store_args *a = args;
    rope_cuda_impl.describe(&a->rope, t, size, out);
    vt_cut_roles(out, "a launch for rope, then one for the store", NULL);
}

/* k is written to the activations, and read from there once more. */
static vt_cost apart_extra(const void *args, const vt_target *t, const vt_batch *batch)
{
    (void)t;
    const rope_store_args *a = args;
    int64_t tokens = (batch ? batch : a->rope.batch)->n_tokens;
    int64_t k = tokens * vt_dtype_row_bytes(a->rope.k->dtype, a->rope.k->dim[1]);
    return (vt_cost){.read = {.activations = k}, .write = {.activations = k}};
}

const vt_impl rope_store_cuda_apart = {CUDA_ROW("apart", apart, apart_supports),
                                       .fixed_order = true, .extra = apart_extra};
const vt_impl rope_store_cuda_impl = {CUDA_ROW("heads", fused, fused_supports),
                                      .fixed_order = true};
const vt_impl rope_store_cuda_latent_impl = {CUDA_ROW("latent", latent, latent_supports),
                                             .fixed_order = true};
const vt_impl rope_store_cuda_any_impl = {CUDA_ROW("any", any, any_supports), .fixed_order = true};
