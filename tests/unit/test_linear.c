/* The linear op: every implementation that this machine can run is compared with the reference. The
 * rule of determinism: a token's result does not depend on its neighbours or on the number of
 * workers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/quant.h"
#include "ops/case_text.h"
#include "ops/cases.h"
#include "ops/linear/linear.h"

static const vt_dtype types[] = {VT_F32,    VT_F16,   VT_BF16, VT_FP8_E4M3, VT_Q8_0, VT_Q4_0,
                                 VT_Q4_1,   VT_Q5_0,  VT_Q5_1, VT_Q4_K,     VT_Q5_K, VT_Q6_K,
                                 VT_IQ4_NL, VT_MXFP4, VT_Q3_K, VT_IQ4_XS,   VT_Q2_K};
enum { N_TYPES = sizeof types / sizeof *types };

/* ---- running an implementation as the executor does ---- */

typedef struct call {
    const vt_impl *impl;
    const linear_args *args;
    vt_team *team;
    void *shared;
    size_t shared_bytes;
    atomic_int ticket;
    vt_status status[8];
} call;

static void call_worker(void *arg, int32_t worker)
{
    call *c = arg;
    vt_target target = vt_target_cpu(c->impl->isa, NULL);
    vt_lane lane = {.target = &target,
                    .team = c->team,
                    .worker = worker,
                    .n_workers = vt_team_size(c->team),
                    .ticket = &c->ticket,
                    .workspace = c->shared,
                    .workspace_bytes = c->shared_bytes};
    c->status[worker] = c->impl->run(c->args, &lane);
}

/* Checks that what a worker would read ahead lies in the packed weights, and that each worker has
 * its own part. For several tokens nothing is read ahead. */
static void check_ahead(const vt_impl *impl, const linear_args *a, int32_t n_workers)
{
    const char *packed = a->w->packed, *behind = packed;
    if (!impl->ahead)
        return;
    for (int32_t worker = 0; worker < n_workers; worker++) {
        vt_lane lane = {.worker = worker, .n_workers = n_workers};
        vt_ahead out = {.n = 0};
        impl->ahead(a, &lane, &out);
        assert_true(out.n == 0 || a->x->dim[0] == 1);
        for (int32_t i = 0; i < out.n; i++) {
            assert_true(out.place[i] >= behind);
            behind = out.place[i] + out.bytes;
        }
    }
    assert_true(behind <= packed + a->w->packed_bytes);
}

/* Packs w for impl unless it is packed for it already. */
static void pack_for(const vt_impl *impl, vt_weight *w)
{
    const vt_packing *p = impl->packing;
    if (w->packed && w->packing == p)
        return;
    free(w->packed);
    w->packed = NULL;
    w->packing = p;
    w->packed_bytes = p ? p->bytes(w) : 0;
    if (w->packed_bytes == 0)
        return;
    w->packed = vt_aligned_alloc(VT_CACHE_LINE, w->packed_bytes);
    assert_non_null(w->packed);
    int64_t unit = (int64_t)p->unit(w), n = (int64_t)w->packed_bytes / unit, middle = n / 2;
    if (middle > 0)
        p->write(w, 0, middle, w->packed);
    p->write(w, middle, n - middle, (char *)w->packed + middle * unit);
}

static void run_with(const vt_impl *impl, const linear_args *a, vt_team *team)
{
    call c = {.impl = impl, .args = a, .team = team};
    pack_for(impl, (vt_weight *)a->w);
    vt_limits limits = {.max_tokens = (int32_t)a->x->dim[0], .n_workers = vt_team_size(team)};
    vt_target target = vt_target_cpu(impl->isa, &limits);
    c.shared_bytes = impl->workspace ? impl->workspace(a, &target) : 0;
    c.shared = vt_aligned_alloc(VT_CACHE_LINE, c.shared_bytes);
    assert_non_null(c.shared);
    memset(c.shared, 0xff, c.shared_bytes);
    check_ahead(impl, a, vt_team_size(team));
    vt_team_run(team, call_worker, &c);
    for (int32_t i = 0; i < vt_team_size(team); i++)
        assert_int_equal(c.status[i], VT_OK);
    free(c.shared);
}

static bool can_run(const vt_impl *impl)
{
    vt_isa best = vt_cpu_get()->best;
    if (impl->device != VT_DEVICE_CPU)
        return false;
    return impl->isa == VT_ISA_PORTABLE || (best != VT_ISA_NEON && impl->isa <= best);
}

#ifdef __x86_64__
extern const vt_impl linear_amx_in_c; /* common/linear_in_c_amx.c */

static const vt_impl *amx_in_c(void)
{
    bool runs = vt_cpu_get()->best >= VT_ISA_AVX512 && __builtin_cpu_supports("avx512bf16");
    return runs ? &linear_amx_in_c : NULL;
}
#else
static const vt_impl *amx_in_c(void) { return NULL; }
#endif

/* The next implementation that runs here and takes args, from *at on; the last of them is AMX's row
 * over tiles in C. NULL after it. */
static const vt_impl *next_impl(int *at, const linear_args *a)
{
    const vt_impl *impl;
    while (*at >= 0 && (impl = linear_op.impls[*at]) != NULL) {
        ++*at;
        if (can_run(impl) && (!impl->supports || impl->supports(a, NULL, NULL)))
            return impl;
    }
    bool more = *at >= 0;
    *at = -1;
    return more ? amx_in_c() : NULL;
}

typedef struct fixture {
    vt_team *team[3]; /* of 1, 2 and 3 workers */
    vt_arena arena;
} fixture;

static int setup(void **state)
{
    fixture *f = vt_calloc(1, sizeof *f);
    for (int32_t i = 0; i < 3; i++)
        assert_int_equal(vt_team_new(i + 1, &f->team[i], NULL), VT_OK);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    fixture *f = *state;
    for (int32_t i = 0; i < 3; i++)
        vt_team_free(f->team[i]);
    free(f);
    return 0;
}

static float *row_of(const vt_tensor *t, int64_t i) { return (float *)t->data + i * t->row_stride; }

/* Puts NaN wherever the op has to write, so that a missed element shows. */
static void poison(vt_tensor *y)
{
    for (int64_t t = 0; t < y->dim[0]; t++)
        for (int64_t j = 0; j < y->dim[1]; j++)
            row_of(y, t)[j] = NAN;
}

static void copy_rows(const vt_tensor *from, float *to)
{
    for (int64_t t = 0; t < from->dim[0]; t++)
        memcpy(to + t * from->dim[1], row_of(from, t), (size_t)from->dim[1] * sizeof(float));
}

/* Same bits, row by row. */
static void assert_rows_equal(const vt_tensor *y, const float *want, const char *what)
{
    for (int64_t t = 0; t < y->dim[0]; t++)
        for (int64_t j = 0; j < y->dim[1]; j++)
            if (memcmp(&row_of(y, t)[j], &want[t * y->dim[1] + j], sizeof(float)) != 0)
                fail_msg("%s: y[%d, %d] is %.9g, expected %.9g", what, (int)t, (int)j,
                         (double)row_of(y, t)[j], (double)want[t * y->dim[1] + j]);
}

/* Random args: the test chooses `flags`; x is normally distributed. */
static linear_args random_args(vt_arena *arena, vt_dtype type, int64_t tokens, int64_t rows,
                               int64_t cols, linear_epilogue epilogue, uint64_t seed)
{
    uint64_t rng = seed;
    bool glu = epilogue != LINEAR_NONE;
    int64_t part[3] = {rows, rows};
    linear_args a = {.epilogue = epilogue, .scale = 1};
    a.w = case_weight(arena, type, glu ? 2 : 1, part, cols, glu, &rng);
    a.x = case_fill(arena, case_tensor_2d(arena, VT_F32, tokens, cols), 0, 1, &rng);
    a.y = case_tensor_2d(arena, VT_F32, tokens, rows);
    assert_true(a.w && a.x && a.y);
    return a;
}

static void release_args(linear_args *a) { free(a->w->packed); }

/* The number of columns is a multiple of the type's block and of nothing else. */
static int64_t odd_cols(vt_dtype type)
{
    int32_t block = vt_dtype_get(type)->block;
    return block == 1 ? 71 : block == 32 ? 160 : 512;
}

/* ---- the reference itself ---- */

static void test_linear_reference_multiplies_by_rows_of_the_weight(void **state)
{
    (void)state;
    float w[2][3] = {{1, 2, 3}, {-1, 0, 1}}, x[3] = {10, 20, 30}, bias[2] = {5, 6};
    float res[2] = {100, 200}, y[2];
    vt_tensor tw = vt_tensor_2d(w, VT_F32, 2, 3), tx = vt_tensor_2d(x, VT_F32, 1, 3);
    vt_tensor tb = vt_tensor_2d(bias, VT_F32, 1, 2), tr = vt_tensor_2d(res, VT_F32, 1, 2);
    vt_tensor ty = vt_tensor_2d(y, VT_F32, 1, 2);
    vt_weight weight = {.part = {&tw}, .n_parts = 1, .rows = 2, .cols = 3, .dtype = VT_F32};
    linear_args a = {.x = &tx, .w = &weight, .bias = &tb, .residual = &tr, .y = &ty, .scale = 2};
    linear_op.reference(&a);
    assert_float_equal(y[0], 2 * 140 + 5 + 100, 0);
    assert_float_equal(y[1], 2 * 20 + 6 + 200, 0);
}

static void test_linear_reference_of_a_pair_is_silu_gate_times_up(void **state)
{
    (void)state;
    float gate = 2, up = 3, x = 1, y;
    vt_tensor tg = vt_tensor_2d(&gate, VT_F32, 1, 1), tu = vt_tensor_2d(&up, VT_F32, 1, 1);
    vt_tensor tx = vt_tensor_2d(&x, VT_F32, 1, 1), ty = vt_tensor_2d(&y, VT_F32, 1, 1);
    vt_weight weight = {
        .part = {&tg, &tu}, .n_parts = 2, .paired = true, .rows = 2, .cols = 1, .dtype = VT_F32};
    linear_args a = {.x = &tx, .w = &weight, .y = &ty, .epilogue = LINEAR_SWIGLU, .scale = 1};
    linear_op.reference(&a);
    assert_float_equal(y, 2 / (1 + exp(-2.0)) * 3, 1e-6);
    a.epilogue = LINEAR_GEGLU; /* gelu(2) = 1.9545977 in the tanh form */
    linear_op.reference(&a);
    assert_float_equal(y, 1.9545977 * 3, 1e-5);
}

/* ---- every implementation ---- */

static void check_case(fixture *f, const vt_case *c)
{
    const vt_impl *impl;
    vt_tensor *out[VT_MAX_OUTPUTS];
    int32_t n_out;
    vt_arena_init(&f->arena, 0);
    linear_args *a = linear_op.make_args(c, 7, &f->arena, out, &n_out);
    assert_non_null(a);
    float *want = vt_calloc((size_t)vt_tensor_elems(a->y), sizeof *want);
    linear_op.reference(a);
    copy_rows(a->y, want);
    for (int at = 0; (impl = next_impl(&at, a)) != NULL;) {
        poison(a->y);
        run_with(impl, a, f->team[c->p[0] % 3]);
        for (int64_t i = 0; i < vt_tensor_elems(a->y); i++) {
            int64_t t = i / a->y->dim[1], j = i % a->y->dim[1];
            double got = (double)row_of(a->y, t)[j], err = fabs(got - (double)want[i]);
            if (!(err <= linear_op.tolerance * (1 + fabs((double)want[i]))))
                fail_msg("%s, %s: y[%d, %d] is %g, expected %g", impl->name, c->name, (int)t,
                         (int)j, got, (double)want[i]);
        }
    }
    free(want);
    release_args(a);
    vt_arena_release(&f->arena);
}

static void test_linear_agrees_with_the_reference_in_every_case(void **state)
{
    vt_case c;
    for (int32_t i = 0; vt_op_case(&linear_op, i, &c); i++)
        if (!c.bench)
            check_case(*state, &c);
}

/* Property: run(x[0..n)) has the bits of run(x[0]), run(x[1]), ... for any n and any team. */
static void check_rows_alone(fixture *f, vt_dtype type, int64_t tokens, int64_t rows, int64_t cols,
                             linear_epilogue epilogue)
{
    const vt_impl *impl;
    vt_arena_init(&f->arena, 0);
    linear_args a = random_args(&f->arena, type, tokens, rows, cols, epilogue, 11);
    float *want = vt_calloc((size_t)vt_tensor_elems(a.y), sizeof *want);
    for (int at = 0; (impl = next_impl(&at, &a)) != NULL;) {
        for (int64_t t = 0; t < tokens; t++) {
            vt_tensor x = vt_tensor_2d(row_of(a.x, t), VT_F32, 1, a.x->dim[1]);
            vt_tensor y = vt_tensor_2d(want + t * a.y->dim[1], VT_F32, 1, a.y->dim[1]);
            linear_args one = a;
            one.x = &x;
            one.y = &y;
            run_with(impl, &one, f->team[t % 3]);
        }
        for (int i = 0; i < 3; i++) {
            char what[80];
            snprintf(what, sizeof what, "%s %s, %d tokens, %d workers", impl->name,
                     vt_dtype_get(type)->name, (int)tokens, i + 1);
            poison(a.y);
            run_with(impl, &a, f->team[i]);
            assert_rows_equal(a.y, want, what);
        }
    }
    free(want);
    release_args(&a);
    vt_arena_release(&f->arena);
}

static void test_linear_result_of_a_token_is_independent_of_the_batch(void **state)
{
    static const int64_t counts[] = {2, 3, 4, 5, 7, 8, 9, 13, 15, 16, 17, 24, 31, 32, 33};
    for (int i = 0; i < N_TYPES; i++)
        for (size_t k = 0; k < sizeof counts / sizeof *counts; k++)
            check_rows_alone(*state, types[i], counts[k], 53, odd_cols(types[i]),
                             k & 1 ? LINEAR_SWIGLU : LINEAR_NONE);
}

/* The same for sizes at which K is cut into pieces that fit into the caches, and tokens into
 * sets. */
static void test_linear_result_of_a_token_is_independent_of_the_batch_when_k_is_large(void **state)
{
    static const vt_dtype some[] = {VT_F16, VT_BF16, VT_Q8_0, VT_Q4_1, VT_Q6_K, VT_Q2_K};
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        check_rows_alone(*state, some[i], 9, 19, 2560, LINEAR_SWIGLU);
        check_rows_alone(*state, some[i], 65, 19, 1536, LINEAR_SWIGLU);
        check_rows_alone(*state, some[i], 150, 19, 8192, LINEAR_NONE);
    }
}

static void check_rows_agree(fixture *f, vt_dtype type, int64_t tokens, int64_t cols,
                             linear_epilogue epilogue)
{
    const vt_impl *impl;
    vt_arena_init(&f->arena, 0);
    linear_args a = random_args(&f->arena, type, tokens, 70, cols, epilogue, 12);
    float *want = NULL;
    for (int at = 0; (impl = next_impl(&at, &a)) != NULL;) {
        if (impl->isa == VT_ISA_PORTABLE) /* it does not quantise activations */
            continue;
        poison(a.y);
        run_with(impl, &a, f->team[1]);
        if (want) {
            char what[80];
            snprintf(what, sizeof what, "%s %s, %d tokens", impl->name, vt_dtype_get(type)->name,
                     (int)tokens);
            assert_rows_equal(a.y, want, what);
        } else {
            want = vt_calloc((size_t)vt_tensor_elems(a.y), sizeof *want);
            copy_rows(a.y, want);
        }
    }
    free(want);
    release_args(&a);
    vt_arena_release(&f->arena);
}

/* Property: with quantised weights every vector implementation gives the same bits, for few tokens
 * and for many. */
static void test_linear_quantised_result_is_independent_of_the_instruction_set(void **state)
{
    for (int i = 0; i < N_TYPES; i++) {
        if (!vt_dtype_quantised(types[i]))
            continue;
        check_rows_agree(*state, types[i], 21, odd_cols(types[i]), LINEAR_SWIGLU);
        check_rows_agree(*state, types[i], 64, odd_cols(types[i]), LINEAR_SWIGLU);
        check_rows_agree(*state, types[i], 83, 768, LINEAR_NONE);
        check_rows_agree(*state, types[i], 130, 1280, LINEAR_SWIGLU);
    }
}

/* A pair may also be used without an epilogue: y is then [gate | up]. */
static void test_linear_pair_without_epilogue_gives_both_halves(void **state)
{
    const vt_impl *impl;
    fixture *f = *state;
    for (int i = 0; i < N_TYPES; i++) {
        vt_arena_init(&f->arena, 0);
        linear_args a = random_args(&f->arena, types[i], 3, 37, odd_cols(types[i]), LINEAR_SWIGLU,
                                    8);
        a.epilogue = LINEAR_NONE;
        a.y = case_tensor_2d(&f->arena, VT_F32, 3, 74);
        float *want = vt_calloc(3 * 74, sizeof *want);
        linear_op.reference(&a);
        copy_rows(a.y, want);
        for (int at = 0; (impl = next_impl(&at, &a)) != NULL;) {
            run_with(impl, &a, f->team[1]);
            for (int64_t k = 0; k < 3 * 74; k++)
                if (!(fabsf(((float *)a.y->data)[k] - want[k]) < 0.1f))
                    fail_msg("%s %s: y[%d] is %g, expected %g", impl->name,
                             vt_dtype_get(types[i])->name, (int)k, (double)((float *)a.y->data)[k],
                             (double)want[k]);
        }
        free(want);
        release_args(&a);
        vt_arena_release(&f->arena);
    }
}

/* Traffic of an implementation beyond the compulsory: its own copies, and padding. */
static void test_linear_extra_counts_padding_and_the_copy_of_the_activations(void **state)
{
    const vt_impl *impl;
    fixture *f = *state;
    vt_arena_init(&f->arena, 0);
    linear_args a = random_args(&f->arena, VT_Q4_1, 32, 40, 576, LINEAR_NONE, 2);
    for (int at = 0; (impl = next_impl(&at, &a)) != NULL;) {
        if (!impl->extra)
            continue;
        vt_cost c = impl->extra(&a, NULL, NULL);
        assert_int_equal(c.read.weights, 8 * 576 / 32 * 20); /* 40 rows are 3 tiles of 16 */
        assert_int_equal(c.read.activations, 32 * 576 / 32 * 44);
        assert_int_equal(c.write.activations, c.read.activations);
    }
    vt_arena_release(&f->arena);
}

/* Packing by several workers in row ranges gives what packing at once gives. */
static void test_linear_pack_of_ranges_covers_every_row_of_a_pair(void **state)
{
    const vt_impl *impl;
    fixture *f = *state;
    vt_arena_init(&f->arena, 0);
    linear_args a = random_args(&f->arena, VT_Q5_K, 1, 37, 512, LINEAR_SWIGLU, 6);
    for (int at = 0; (impl = next_impl(&at, &a)) != NULL;) {
        const vt_packing *p = impl->packing;
        size_t bytes = p ? p->bytes(a.w) : 0;
        if (bytes == 0)
            continue;
        char *whole = vt_calloc(2, bytes), *parts = whole + bytes;
        memset(parts, 0xff, bytes);
        size_t unit = p->unit(a.w);
        assert_int_equal(bytes % unit, 0);
        vt_pack_all(p, a.w, whole);
        for (size_t i = 0; i < bytes / unit; i++)
            p->write(a.w, (int64_t)i, 1, parts + i * unit);
        assert_memory_equal(whole, parts, bytes);
        free(whole);
    }
    vt_arena_release(&f->arena);
}

static void test_linear_residual_may_be_the_output(void **state)
{
    const vt_impl *impl;
    fixture *f = *state;
    vt_arena_init(&f->arena, 0);
    linear_args a = random_args(&f->arena, VT_Q4_1, 5, 41, 96, LINEAR_NONE, 5);
    float *want = vt_calloc((size_t)vt_tensor_elems(a.y), sizeof *want);
    for (int at = 0; (impl = next_impl(&at, &a)) != NULL;) {
        a.residual = NULL;
        run_with(impl, &a, f->team[1]);
        copy_rows(a.y, want);
        for (int64_t i = 0; i < vt_tensor_elems(a.y); i++) {
            ((float *)a.y->data)[i] = (float)i;
            want[i] += (float)i;
        }
        a.residual = a.y;
        run_with(impl, &a, f->team[1]);
        assert_rows_equal(a.y, want, impl->name);
    }
    free(want);
    release_args(&a);
    vt_arena_release(&f->arena);
}

/* A token with NaN activations has no result that looks like a number, and changes no other
 * token. */
static void test_linear_nan_and_infinity_stay_visible_in_their_row(void **state)
{
    const vt_impl *impl;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    fixture *f = *state;
    for (int i = 0; i < N_TYPES; i++) {
        vt_arena_init(&f->arena, 0);
        linear_args a = random_args(&f->arena, types[i], 20, 17, odd_cols(types[i]), LINEAR_NONE,
                                    3);
        for (int64_t t = 0; t < 3; t++)
            row_of(a.x, 2 + 5 * t)[9 + t] = bad[t];
        for (int at = 0; (impl = next_impl(&at, &a)) != NULL;) {
            run_with(impl, &a, f->team[1]);
            for (int64_t t = 0; t < 20; t++)
                for (int64_t j = 0; j < 17; j++)
                    assert_int_equal(isfinite(row_of(a.y, t)[j]) != 0, t != 2 && t != 7 && t != 12);
        }
        release_args(&a);
        vt_arena_release(&f->arena);
    }
}

static void test_linear_tiny_activations_neither_overflow_nor_trap(void **state)
{
    const vt_impl *impl;
    fixture *f = *state;
    for (int i = 0; i < N_TYPES; i++) {
        vt_arena_init(&f->arena, 0);
        linear_args a = random_args(&f->arena, types[i], 3, 17, odd_cols(types[i]), LINEAR_NONE, 4);
        for (int64_t k = 0; k < a.x->dim[1]; k++) {
            row_of(a.x, 0)[k] = 0;
            row_of(a.x, 1)[k] *= 1e-38f;
        }
        for (int at = 0; (impl = next_impl(&at, &a)) != NULL;) {
            run_with(impl, &a, f->team[0]);
            for (int64_t j = 0; j < 17; j++) {
                assert_float_equal(row_of(a.y, 0)[j], 0, 0);
                assert_float_equal(row_of(a.y, 1)[j], 0, 1e-30);
            }
        }
        release_args(&a);
        vt_arena_release(&f->arena);
    }
}

/* The claim in the comment about tolerance for activations that are not on the int8 grid. */
static void test_linear_quantised_activations_cost_half_a_percent(void **state)
{
    const vt_impl *impl;
    fixture *f = *state;
    for (int i = 0; i < N_TYPES; i++) {
        vt_arena_init(&f->arena, 0);
        linear_args a = random_args(&f->arena, types[i], 16, 64, 1024, LINEAR_NONE, 9);
        int64_t n = vt_tensor_elems(a.y);
        float *want = vt_calloc((size_t)n, sizeof *want);
        linear_op.reference(&a);
        copy_rows(a.y, want);
        for (int at = 0; (impl = next_impl(&at, &a)) != NULL;) {
            double square = 0, error = 0;
            run_with(impl, &a, f->team[1]);
            for (int64_t k = 0; k < n; k++) {
                double e = (double)((float *)a.y->data)[k] - (double)want[k];
                square += (double)want[k] * (double)want[k];
                error += e * e;
            }
            if (!(sqrt(error / square) < (vt_dtype_quantised(types[i]) ? 0.0075 : 1e-5)))
                fail_msg("%s %s: relative error %g", impl->name, vt_dtype_get(types[i])->name,
                         sqrt(error / square));
        }
        free(want);
        release_args(&a);
        vt_arena_release(&f->arena);
    }
}

/* ---- cost ---- */

static void test_linear_cost_counts_stored_bytes_and_products(void **state)
{
    fixture *f = *state;
    vt_arena_init(&f->arena, 0);
    linear_args a = random_args(&f->arena, VT_Q4_1, 7, 48, 576, LINEAR_NONE, 1);
    vt_cost c = linear_op.cost(&a, NULL);
    assert_int_equal(c.read.weights, 48 * 576 / 32 * 20);
    assert_int_equal(c.read.activations, 7 * 576 * 4);
    assert_int_equal(c.write.activations, 7 * 48 * 4);
    assert_int_equal(c.flops.int8, 2 * 7 * 48 * 576);
    assert_int_equal(c.flops.fp32, 0);
    vt_arena_release(&f->arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_linear_reference_multiplies_by_rows_of_the_weight),
        cmocka_unit_test(test_linear_reference_of_a_pair_is_silu_gate_times_up),
        cmocka_unit_test(test_linear_agrees_with_the_reference_in_every_case),
        cmocka_unit_test(test_linear_result_of_a_token_is_independent_of_the_batch),
        cmocka_unit_test(test_linear_result_of_a_token_is_independent_of_the_batch_when_k_is_large),
        cmocka_unit_test(test_linear_quantised_result_is_independent_of_the_instruction_set),
        cmocka_unit_test(test_linear_pair_without_epilogue_gives_both_halves),
        cmocka_unit_test(test_linear_extra_counts_padding_and_the_copy_of_the_activations),
        cmocka_unit_test(test_linear_pack_of_ranges_covers_every_row_of_a_pair),
        cmocka_unit_test(test_linear_residual_may_be_the_output),
        cmocka_unit_test(test_linear_nan_and_infinity_stay_visible_in_their_row),
        cmocka_unit_test(test_linear_tiny_activations_neither_overflow_nor_trap),
        cmocka_unit_test(test_linear_quantised_activations_cost_half_a_percent),
        cmocka_unit_test(test_linear_cost_counts_stored_bytes_and_products),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
