/* Prefix match: the card, its portable form and the reference. Two streams of 4-byte ids are read
 * until they differ; the roof is the read bandwidth of the cache they lie in. */
#include "ops/prefix_match/prefix_match.h"

#include "ops/cases.h"
#include "ops/prefix_match/prefix_match_impls.h"
#include "ops/simd_portable.h"
#include "ops/prefix_match/prefix_match_kernel.h"

int64_t vt_prefix_match(const int32_t *a, const int32_t *b, int64_t n)
{
#if defined(__x86_64__)
    switch (vt_cpu_get()->level) {
    case VT_ISA_AVX512:
    case VT_ISA_AMX:
        return match_length_avx512(a, b, n);
    case VT_ISA_AVX2:
        return match_length_avx2(a, b, n);
    default:
        break;
    }
#elif defined(__aarch64__)
    if (vt_cpu_get()->level == VT_ISA_NEON)
        return match_length_neon(a, b, n);
#endif
    return match_length(a, b, n);
}

/* Returns the cost of a full match; how much is read depends on the data. */
static vt_cost prefix_match_cost(const void *args, const vt_batch *batch)
{
    (void)batch;
    const prefix_match_args *a = args;
    return (vt_cost){.read = {.activations = 2 * a->n * (int64_t)sizeof(int32_t)},
                     .write = {.activations = (int64_t)sizeof(int64_t)}};
}

static void prefix_match_reference(const void *args)
{
    const prefix_match_args *a = args;
    int64_t i = 0;
    while (i < a->n && a->a[i] == a->b[i])
        i++;
    *a->match = i;
}

enum { N, DIFFER, SHIFT };

static const vt_field prefix_match_fields[] = {
    [N] = {"n", 65536, false, 1 << 24, .zero = true},
    [DIFFER] = {"differ", 65536, false, 1 << 24, NULL, true},
    [SHIFT] = {"shift", 0, false, 64},
};

/* differ: the first difference (n or more: none); shift: elements by which both are off a 64-byte
 * boundary */
static const char *const prefix_match_cases[] = {
    "*n=8192 differ=8192",
    "*n=65536 differ=65536",
    "*n=65536 differ=65536 shift=3",
    "n=0 differ=0",
    "n=1 differ=0",
    "n=7 differ=7",
    "n=1000 differ=0 shift=1",
    "n=1000 differ=63 shift=5",
    "n=1000 differ=64 shift=2",
    "n=1000 differ=999 shift=7",
    "n=1023 differ=777",
    NULL,
};

static const char *const prefix_match_draws[] = {
    "n=~3000 differ=n|~3000 shift=0|1..64",
    NULL,
};

static void *prefix_match_make_args(const vt_case *c, uint64_t seed, vt_arena *arena,
                                    vt_tensor *outputs[VT_MAX_OUTPUTS], int32_t *n_outputs)
{
    int64_t n = c->p[N], differ = c->p[DIFFER], shift = c->p[SHIFT];
    prefix_match_args *args = vt_arena_alloc(arena, 1, sizeof *args);
    int32_t *a = vt_arena_alloc(arena, (size_t)(n + shift) + 1, sizeof *a);
    int32_t *b = vt_arena_alloc(arena, (size_t)(n + shift) + 1, sizeof *b);
    vt_tensor *match = case_tensor_1d(arena, VT_I64, 1);
    if (!args || !a || !b || !match)
        return NULL;
    a += shift;
    b += shift;
    for (int64_t i = 0; i < n; i++) {
        a[i] = (int32_t)(case_random(&seed) % 49152);
        b[i] = i < differ ? a[i] : i == differ ? a[i] + 1 : (int32_t)(case_random(&seed) % 49152);
    }
    *args = (prefix_match_args){.a = a, .b = b, .n = n, .match = match->data};
    outputs[0] = match;
    *n_outputs = 1;
    return args;
}

static const vt_impl *const prefix_match_impls[] = {
    CPU_ROWS(prefix_match),
    NULL,
};

const vt_op prefix_match_op = {
    .name = "prefix_match",
    .what = "length of the common prefix of two token sequences",
    .args_size = sizeof(prefix_match_args),
    .tolerance = 0,
    .tolerance_reason = "an integer",
    .cost = prefix_match_cost,
    .reference = prefix_match_reference,
    .fields = prefix_match_fields,
    .n_fields = sizeof prefix_match_fields / sizeof *prefix_match_fields,
    .cases = prefix_match_cases,
    .draws = prefix_match_draws,
    .make_args = prefix_match_make_args,
    .no_shape = "the tree of prefixes calls it, no step does",
    .impls = prefix_match_impls,
};
