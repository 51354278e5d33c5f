/* Variants of kv_store on CUDA (kv_store_variants.cu). No engine chooses them.
 *
 *   k-then-v   two launches, K first. What one launch for both saves is a launch and a second read
 *              of the slots
 *   async      through shared memory with cp.async. A store has nothing to overlap the copy with
 *   by-slot    tokens in rising order of their slots. The host sorts them once a step: that is the
 *              price, and the plan shows it */
#include "ops/kv_store/kv_store_impls.h"

#include <stdlib.h>

#include "ops/cuda_impls.h"
#include "ops/cut.h"
#include "ops/kv_store/kv_store.h"
#include "ops/kv_store/kv_store_variants_params.h"

typedef enum store_form { K_THEN_V, ASYNC, BY_SLOT } store_form;

static bool variant_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    const kv_store_args *a = args;
    return a->v && kv_store_cuda_impl.supports(args, t, upto);
}

static cuda_launch launch_of(const kv_store_args *a, int64_t tokens, store_form form)
{
    int32_t kv_heads = (int32_t)a->k_pool->dim[1], page = (int32_t)a->k_pool->dim[2],
            dim = (int32_t)a->k_pool->dim[3];
    return (cuda_launch){.spec = JIT_SPEC("kv_store_variants.cu", "kv_store_variants",
                                          {"kv_heads", kv_heads}, {"head_dim", dim}, {"page", page},
                                          {"fp8", a->k_pool->dtype == VT_FP8_E4M3},
                                          {"both", form != K_THEN_V}, {"async", form == ASYNC},
                                          {"sorted", form == BY_SLOT}),
                         .grid = {cuda_blocks(tokens * kv_heads * (dim / 8), 128), 1, 1},
                         .threads = 128};
}

static vt_status variant_run(const kv_store_args *a, const vt_lane *lane, store_form form)
{
    int32_t tokens = a->batch->n_tokens;
    kv_store_variants_params p = {.k = a->k->data,
                                  .v = a->v->data,
                                  .k_pool = a->k_pool->data,
                                  .v_pool = a->v_pool->data,
                                  .slot = a->batch->slot,
                                  .place = form == BY_SLOT ? lane->plan : NULL,
                                  .k_stride = (int32_t)a->k->row_stride,
                                  .v_stride = (int32_t)a->v->row_stride,
                                  .n_tokens = tokens,
                                  .k_inverse = 1 / a->k_scale,
                                  .v_inverse = 1 / a->v_scale};
    cuda_launch l = launch_of(a, tokens, form);
    vt_status status = vt_cuda_launch(lane->cuda, &l, &p, sizeof p);
    if (form != K_THEN_V || status != VT_OK)
        return status;
    p.k = a->v->data;
    p.k_pool = a->v_pool->data;
    p.k_stride = (int32_t)a->v->row_stride;
    p.k_inverse = 1 / a->v_scale;
    return vt_cuda_launch(lane->cuda, &l, &p, sizeof p);
}

static void variant_describe(const kv_store_args *a, const vt_target *t, const vt_size *size,
                             store_form form, vt_cut *out)
{
    static const char *const roles[] = {[K_THEN_V] = "a launch for K, then one for V",
                                        [ASYNC] = "cp.async to shared memory, then stores",
                                        [BY_SLOT] = "tokens in rising order of slots"};
    int64_t tokens = vt_size_rows(a->k, size);
    cuda_launch l = launch_of(a, tokens, form);
    vt_cut_shape(out, "%lld tokens, %lld heads of %lld", (long long)tokens,
                 (long long)a->k_pool->dim[1], (long long)a->k_pool->dim[3]);
    vt_cut_roles(out, roles[form], NULL);
    vt_cut_grid(out, t, &l, 16);
}

/* ---- k-then-v ---- */

static vt_status two_run(const void *args, const vt_lane *lane)
{
    return variant_run(args, lane, K_THEN_V);
}

static void two_describe(const void *args, const vt_target *t, const vt_size *size, vt_cut *out)
{
    variant_describe(args, t, size, K_THEN_V, out);
}

static int64_t tokens_of(const kv_store_args *a, const vt_batch *batch)
{
    return (batch ? batch : a->batch)->n_tokens;
}

/* The second launch reads the slots again. */
static vt_cost two_extra(const void *args, const vt_target *t, const vt_batch *batch)
{
    (void)t;
    return (vt_cost){
        .read = {.activations = tokens_of(args, batch) * (int64_t)sizeof(int32_t)},
    };
}

const vt_impl kv_store_k_then_v = {CUDA_ROW("k-then-v", two, variant_supports), .fixed_order = true,
                                   .extra = two_extra};

/* ---- async ---- */

static vt_status async_run(const void *args, const vt_lane *lane)
{
    return variant_run(args, lane, ASYNC);
}

static void async_describe(const void *args, const vt_target *t, const vt_size *size, vt_cut *out)
{
    variant_describe(args, t, size, ASYNC, out);
}

const vt_impl kv_store_async = {CUDA_ROW("async", async, variant_supports), .fixed_order = true};

/* ---- by-slot ---- */

static int32_t place_items(const void *args, const vt_target *t, const vt_size *size,
                           const vt_batch *batch)
{
    (void)args, (void)t, (void)batch;
    return size->tokens;
}

static size_t place_bytes(const void *args, const vt_target *t, const vt_size *size, int32_t items)
{
    (void)args, (void)t, (void)size;
    return (size_t)items * sizeof(kv_store_place);
}

static int rising_slots(const void *pa, const void *pb)
{
    const kv_store_place *a = pa, *b = pb;
    return (a->slot > b->slot) - (a->slot < b->slot);
}

/* Tokens of the padding come first: they go to the padding page, 0. */
static int32_t place_fill(const void *args, const vt_target *t, const vt_size *size,
                          const vt_batch *batch, int32_t items, void *out, void *side)
{
    (void)args, (void)t, (void)side;
    kv_store_place *place = out;
    if (size->tokens > items)
        return size->tokens;
    for (int32_t i = 0; i < size->tokens; i++)
        place[i] = (kv_store_place){.token = i, .slot = i < batch->n_tokens ? batch->slot[i] : 0};
    qsort(place, (size_t)size->tokens, sizeof *place, rising_slots);
    return size->tokens;
}

static const vt_host_plan place_plan = {
    .name = "tokens by slot", .items = place_items, .bytes = place_bytes, .fill = place_fill};

static vt_status sorted_run(const void *args, const vt_lane *lane)
{
    return variant_run(args, lane, BY_SLOT);
}

static void sorted_describe(const void *args, const vt_target *t, const vt_size *size, vt_cut *out)
{
    variant_describe(args, t, size, BY_SLOT, out);
}

/* A token number is read beside each slot. */
static vt_cost sorted_extra(const void *args, const vt_target *t, const vt_batch *batch)
{
    return two_extra(args, t, batch);
}

const vt_impl kv_store_by_slot = {CUDA_ROW("by-slot", sorted, variant_supports),
                                  .fixed_order = true, .plan = &place_plan, .extra = sorted_extra};
