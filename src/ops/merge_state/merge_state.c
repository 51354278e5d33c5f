/* Merge of two attention states: the card, its portable form and the reference. The CPU's attention
 * merges inside its own kernel; this op is what a split over devices, or over a shared prefix, ends
 * with. */
#include "ops/merge_state/merge_state.h"

#include "ops/cases.h"
#include "ops/merge_state/merge_state_impls.h"
#include "ops/simd_portable.h"
#include "ops/merge_state/merge_state_kernel.h"

static vt_cost merge_state_cost(const void *args)
{
    const merge_state_args *a = args;
    int64_t rows = a->o->dim[0], n = vt_tensor_elems(a->o);
    return (vt_cost){
        .read = {.activations = vt_tensor_bytes(a->oa) + vt_tensor_bytes(a->ob) + 8 * rows},
        .write = {.activations = vt_tensor_bytes(a->o) + 4 * rows},
        .flops = {.fp32 = 3 * n},
    };
}

static void merge_state_reference(const void *args)
{
    const merge_state_args *a = args;
    for (int64_t t = 0; t < a->o->dim[0]; t++) {
        double sa = tensor_get(a->sa, 0, t), sb = tensor_get(a->sb, 0, t), m = fmax(sa, sb);
        bool empty = m == -INFINITY;
        double wa = empty ? 0 : exp2(sa - m), wb = empty ? 0 : exp2(sb - m);
        for (int64_t i = 0; i < a->o->dim[1]; i++) {
            double sum = wa * tensor_get(a->oa, t, i) + wb * tensor_get(a->ob, t, i);
            tensor_set(a->o, t, i, empty ? 0 : (float)(sum / (wa + wb)));
        }
        tensor_set(a->s, 0, t, empty ? -INFINITY : (float)(m + log2(wa + wb)));
    }
}

/* p: rows, head_dim, in place */
static const vt_case merge_state_cases[] = {
    {.name = "rows=9 d=64", .p = {9, 64}, .bench = true},
    {.name = "rows=4608 d=64", .p = {4608, 64}, .bench = true},
    {.name = "rows=2048 d=128 in place", .p = {2048, 128, 1}, .bench = true},
    {.name = "rows=37 d=20", .p = {37, 20}},
    {.name = "rows=11 d=7 in place", .p = {11, 7, 1}},
};

/* Some states are empty: a, b, or both. */
static void *merge_state_make_args(const vt_case *c, uint64_t seed, vt_arena *arena,
                                   vt_tensor *outputs[VT_MAX_OUTPUTS], int32_t *n_outputs)
{
    int64_t rows = c->p[0], d = c->p[1];
    merge_state_args *a = vt_arena_alloc(arena, 1, sizeof *a);
    vt_tensor *o[2], *s[2];
    for (int i = 0; i < 2; i++) {
        o[i] = case_fill(arena, case_tensor_2d(arena, VT_F32, rows, d), 0, 1, &seed);
        s[i] = case_fill(arena, case_tensor_1d(arena, VT_F32, rows), 3, 4, &seed);
        if (!a || !o[i] || !s[i])
            return NULL;
        for (int64_t t = 2 + i; t < rows; t += 5) {
            tensor_set(s[i], 0, t, -INFINITY);
            memset(row_f32(o[i], t), 0, (size_t)d * sizeof(float));
            if (t % 2) {
                tensor_set(s[0], 0, t, -INFINITY);
                memset(row_f32(o[0], t), 0, (size_t)d * sizeof(float));
            }
        }
    }
    *a = (merge_state_args){.oa = o[0], .ob = o[1], .sa = s[0], .sb = s[1], .o = o[0], .s = s[0]};
    if (!c->p[2]) {
        a->o = case_tensor_2d(arena, VT_F32, rows, d);
        a->s = case_tensor_1d(arena, VT_F32, rows);
    }
    outputs[0] = a->o;
    outputs[1] = a->s;
    *n_outputs = 2;
    return a->o && a->s ? a : NULL;
}

static const vt_impl merge_state_portable = {.name = "portable",
                                             .device = VT_DEVICE_CPU,
                                             .supports = merge_state_supports,
                                             .run = merge_state_run};

static const vt_impl *const merge_state_impls[] = {
#if defined(__x86_64__)
    &merge_state_avx512,
    &merge_state_avx2,
#endif
    &merge_state_portable,
    NULL,
};

const vt_op merge_state_op = {
    .name = "merge_state",
    .what = "merges two partial attention results over disjoint KV",
    .args_size = sizeof(merge_state_args),
    .tolerance = 2e-6,
    .tolerance_reason = "exp2f, log2f and four roundings in fp32",
    .cost = merge_state_cost,
    .reference = merge_state_reference,
    .cases = merge_state_cases,
    .n_cases = sizeof merge_state_cases / sizeof *merge_state_cases,
    .make_args = merge_state_make_args,
    .impls = merge_state_impls,
};
