/* The layout of a model's weights: all devices have the same rule of stacking, and so the same
 * program. Ranges of rows and columns pack to the same bytes as dense copies of these ranges. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/tiny_model.h"
#include "exec/describe.h"
#include "exec/weights_cuda.h"
#include "model/load.h"
#include "ops/cases.h"
#include "ops/linear/linear_impl.h"
#include "ops/moe/moe.h"

#define MODELS "tests/golden/models/"

enum { CONTEXT = 64 };

static void must(vt_status status, const vt_err *err)
{
    if (status != VT_OK)
        fail_msg("%s", err->message);
}

static vt_model *load(const char *name)
{
    char path[512];
    vt_model *m;
    vt_err err = {0};
    snprintf(path, sizeof path, MODELS "%s", name);
    must(vt_model_load(path, &m, &err), &err);
    return m;
}

/* ---- one program for both devices ---- */

static vt_described program_of(const vt_model *m, vt_device_kind device)
{
    vt_limits limits = case_limits(1);
    limits.max_context = CONTEXT;
    bool gpu = device == VT_DEVICE_CUDA;
    vt_target target = gpu ? vt_target_named(vt_hardware_find("h200", NULL), &limits)
                           : vt_target_cpu(vt_cpu_get()->level, &limits);
    vt_described d;
    vt_err err = {0};
    must(vt_describe(m, &target, gpu ? VT_BF16 : VT_F16, &d, &err), &err);
    return d;
}

/* Checks that the programs of both devices have the same calls; returns their number. */
static int32_t same_program(const vt_model *m)
{
    vt_described cpu = program_of(m, VT_DEVICE_CPU), gpu = program_of(m, VT_DEVICE_CUDA);
    const vt_program *p = cpu.program, *q = gpu.program;
    int32_t n = p->n_calls;
    assert_int_equal(n, q->n_calls);
    assert_int_equal(p->n_before, q->n_before);
    assert_int_equal(p->n_forward, q->n_forward);
    for (int32_t i = 0; i < n; i++) {
        assert_string_equal(p->call[i].label, q->call[i].label);
        assert_ptr_equal(p->call[i].op, q->call[i].op);
        assert_int_equal(p->call[i].when, q->call[i].when);
        if (p->call[i].op != &linear_op)
            continue;
        const linear_args *a = p->call[i].args, *b = q->call[i].args;
        assert_int_equal(a->w->rows, b->w->rows);
        assert_int_equal(a->w->cols, b->w->cols);
        assert_int_equal(a->bias != NULL, b->bias != NULL);
    }
    vt_described_release(&cpu);
    vt_described_release(&gpu);
    return n;
}

static void test_program_of_every_fixture_is_the_same_on_both_devices(void **state)
{
    (void)state;
    DIR *dir = opendir(MODELS);
    assert_non_null(dir);
    int n = 0;
    for (struct dirent *e; (e = readdir(dir)) != NULL;) {
        const char *dot = strrchr(e->d_name, '.');
        if (e->d_name[0] == '.' || (dot && strcmp(dot, ".bin") == 0))
            continue;
        vt_model *m = load(e->d_name);
        assert_true(same_program(m) > 10);
        vt_model_free(m);
        n++;
    }
    closedir(dir);
    assert_true(n > 15);
    vt_model *mixed = tiny_model("mixed"); /* layers of different shapes */
    assert_true(same_program(mixed) > 10);
    vt_model_free(mixed);
}

/* Of a deterministic program each layer by itself has attention of one family: rows of another
 * layer's shapes are no reason to refuse. */
static void test_deterministic_program_when_layers_differ_then_families_are_by_layer(void **state)
{
    (void)state;
    static const char *const models[] = {"mixed", "mixed_state"};
    vt_limits limits = case_limits(1);
    limits.max_context = CONTEXT;
    for (int32_t i = 0; i < 2; i++) {
        vt_model *m = tiny_model(models[i]);
        vt_target target = vt_target_named(vt_hardware_find("h200", NULL), &limits);
        vt_described d;
        vt_err err = {0};
        target.deterministic = true;
        must(vt_describe(m, &target, VT_BF16, &d, &err), &err);
        vt_described_release(&d);
        vt_model_free(m);
    }
}

static bool has_call(const vt_layout *l, const char *label)
{
    for (int32_t i = 0; i < l->n; i++)
        if (strcmp(l->entry[i].label, label) == 0)
            return true;
    return false;
}

static void test_program_when_types_of_a_layer_differ_then_still_the_same(void **state)
{
    (void)state;
    vt_model *m = load("llama-mha-llama3");
    vt_layer *l = &m->layer[0];
    vt_tensor v = *l->weight[VT_ROLE_V], up = *l->weight[VT_ROLE_UP];
    vt_layout *layout;
    assert_int_equal(v.dtype, VT_BF16);
    v.dtype = up.dtype = VT_F16; /* on a GPU both become BF16, which must not make them stacked */
    l->weight[VT_ROLE_V] = &v;
    l->weight[VT_ROLE_UP] = &up;
    int32_t n = same_program(m);
    assert_int_equal(vt_layout_make(m, &layout, NULL), VT_OK);
    assert_true(has_call(layout, "L00.v") && !has_call(layout, "L00.qkv"));
    assert_true(has_call(layout, "L00.up") && !has_call(layout, "L00.gate+up"));
    assert_true(has_call(layout, "L01.qkv") && has_call(layout, "L01.gate+up"));
    vt_layout_free(layout);
    v.dtype = up.dtype = VT_BF16;
    assert_int_equal(same_program(m), n - 4); /* q, k, v and gate, up, silu_mul are two calls */
    vt_model_free(m);
}

static void test_program_when_a_file_has_some_of_the_biases_then_still_the_same(void **state)
{
    (void)state;
    static float zeros[4096];
    vt_model *m = load("llama-mha-llama3");
    vt_layer *l = &m->layer[0];
    vt_tensor bias[2] = {{.data = zeros, .rank = 1, .dim = {l->weight[VT_ROLE_K]->dim[0]}},
                         {.data = zeros, .rank = 1, .dim = {l->weight[VT_ROLE_GATE]->dim[0]}}};
    for (int i = 0; i < 2; i++)
        bias[i].row_stride = bias[i].dim[0];
    int32_t n = same_program(m);
    l->weight[VT_ROLE_K_BIAS] = &bias[0];
    assert_int_equal(same_program(m), n); /* stacked; missing biases are zeros */
    l->weight[VT_ROLE_GATE_BIAS] = &bias[1];
    assert_int_equal(same_program(m), n + 2); /* gate, up, silu_mul */
    vt_model_free(m);
}

static void test_layout_when_gate_and_up_of_experts_differ_then_refused(void **state)
{
    (void)state;
    vt_model *m = load("qwen3moe-raw");
    vt_tensor up = *m->layer[0].weight[VT_ROLE_EXPERT_UP];
    vt_layout *layout = NULL;
    vt_err err = {0};
    up.dtype = VT_F16;
    m->layer[0].weight[VT_ROLE_EXPERT_UP] = &up;
    assert_int_equal(vt_layout_make(m, &layout, &err), VT_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "gate is BF16 and up is F16"));
    assert_null(layout);
    vt_model_free(m);
}

/* ---- what the list says ---- */

static void test_layout_is_in_the_order_of_a_step(void **state)
{
    (void)state;
    static const char *const want[] = {"embed",        "L00.attn_norm", "L00.qkv",
                                       "L00.qkv_bias", "L00.o",         "L00.ffn_norm",
                                       "L00.gate+up",  "L00.down",      "L01.attn_norm"};
    vt_model *m = load("qwen2-gqa7");
    vt_layout *l;
    assert_int_equal(vt_layout_make(m, &l, NULL), VT_OK);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        assert_string_equal(l->entry[i].label, want[i]);
    assert_string_equal(l->entry[l->n - 2].label, "head");
    assert_string_equal(l->entry[l->n - 1].label, "rope");
    vt_layout_free(l);
    vt_model_free(m);
}

static void test_layout_floats_when_a_bias_is_missing_then_zeros(void **state)
{
    (void)state;
    float b[3] = {1, 2, 3}, got[6] = {9, 9, 9, 9, 9, 9};
    vt_tensor t = {.data = b, .rank = 1, .dim = {3}, .row_stride = 3};
    vt_layout_entry e = {
        .kind = VT_KIND_VECTOR,
        .n_parts = 2,
        .part = {{.rows = 3, .cols = 1}, {.tensor = &t, .row = 1, .rows = 2, .cols = 1}}};
    vt_layout_floats(&e, got);
    const float want[6] = {0, 0, 0, 2, 3, 9};
    assert_memory_equal(got, want, sizeof want);
}

/* ---- ranges ---- */

enum { TYPES = 17, ROWS = 300, COLS = 768, MATRICES = 2 };
static const vt_dtype types[TYPES] = {VT_F32,    VT_F16,   VT_BF16, VT_FP8_E4M3, VT_Q8_0, VT_Q4_0,
                                      VT_Q4_1,   VT_Q5_0,  VT_Q5_1, VT_Q4_K,     VT_Q5_K, VT_Q6_K,
                                      VT_IQ4_NL, VT_MXFP4, VT_Q3_K, VT_IQ4_XS,   VT_Q2_K};

static vt_tensor *dense_copy(vt_arena *arena, const vt_tensor *view)
{
    vt_tensor *t = case_tensor_2d(arena, view->dtype, view->dim[0], view->dim[1]);
    assert_non_null(t);
    int64_t bytes = vt_dtype_row_bytes(t->dtype, t->dim[1]),
            stride = vt_dtype_row_bytes(t->dtype, view->row_stride);
    for (int64_t r = 0; r < t->dim[0]; r++)
        memcpy((char *)t->data + r * bytes, (char *)view->data + r * stride, (size_t)bytes);
    return t;
}

static void same_packed(const vt_impl *impl, const vt_weight *a, const vt_weight *b)
{
    const vt_packing *p = impl->packing;
    size_t bytes = p ? p->bytes(a) : 0;
    if (!bytes)
        return;
    assert_int_equal(bytes, p->bytes(b));
    char *x = vt_calloc(2, bytes), *y = x + bytes;
    memset(x, 0x11, bytes); /* a byte that write() leaves out shows */
    memset(y, 0x22, bytes);
    vt_pack_all(p, a, x);
    size_t unit = p->unit(b), half = bytes / unit / 2;
    p->write(b, (int64_t)half, (int64_t)(bytes / unit - half), y + half * unit);
    p->write(b, 0, (int64_t)half, y);
    assert_memory_equal(x, y, bytes);
    free(x);
}

static void same_rows(const vt_weight *a, const vt_weight *b)
{
    float *x = vt_calloc((size_t)a->cols, 2 * sizeof *x), *y = x + a->cols;
    for (int64_t r = 0; r < a->rows; r++) {
        linear_weight_row(a, r, x);
        linear_weight_row(b, r, y);
        assert_memory_equal(x, y, (size_t)a->cols * sizeof *x);
    }
    free(x);
}

/* Packs ranges of e's tensors and dense copies of these ranges. */
static void check_ranges(const vt_layout_entry *e, vt_arena *arena)
{
    vt_err err = {0};
    for (int64_t i = 0; i < vt_layout_matrices(e); i++) {
        vt_weight view, dense;
        must(vt_layout_weight(e, i, arena, &view, &err), &err);
        dense = view;
        for (int32_t k = 0; k < view.n_parts; k++) {
            dense.part[k] = dense_copy(arena, view.part[k]);
            if (view.scale[k] && vt_tensor_elems(view.scale[k]) > 1)
                dense.scale[k] = dense_copy(arena, view.scale[k]);
        }
        same_rows(&view, &dense);
        for (const vt_impl *const *impl = linear_op.impls; *impl; impl++)
            same_packed(*impl, &view, &dense);
        for (const vt_impl *const *impl = moe_linear_op.impls; *impl; impl++)
            same_packed(*impl, &view, &dense);
    }
}

/* A part of a tensor of [MATRICES, ROWS, COLS], with FP8 scales in blocks if `scaled`. */
static vt_layout_part random_part(vt_arena *arena, vt_dtype type, bool scaled, uint64_t *rng)
{
    vt_tensor *all = case_fill(arena, case_tensor_2d(arena, type, MATRICES * ROWS, COLS), 0, 1,
                               rng);
    vt_tensor *scale = case_fill(
        arena, case_tensor_2d(arena, VT_F32, MATRICES * ((ROWS + 127) / 128), COLS / 128), 1, 0.25f,
        rng);
    assert_true(all && scale);
    vt_tensor *t[2] = {all, scale};
    for (int i = 0; i < 2; i++) { /* as rank 3 */
        t[i]->rank = 3;
        t[i]->dim[2] = t[i]->dim[1];
        t[i]->dim[1] = t[i]->dim[0] / MATRICES;
        t[i]->dim[0] = MATRICES;
    }
    return (vt_layout_part){.tensor = all, .scale = scaled ? scale : NULL};
}

static void test_range_of_rows_and_columns_packs_as_its_dense_copy(void **state)
{
    (void)state;
    static const int64_t row[3][2] = {{128, 172}, {0, 128}, {256, 44}}; /* first, how many */
    static const int64_t col[3][2] = {{256, 512}, {512, 256}, {0, COLS}};
    uint64_t rng = 7;
    for (int i = 0; i < TYPES; i++)
        for (int c = 0; c < 3; c++)
            for (int paired = 0; paired < 2; paired++) {
                vt_arena arena;
                vt_arena_init(&arena, 0);
                vt_layout_entry e = {
                    .kind = VT_KIND_EXPERTS, .n_parts = paired ? 2 : 3, .paired = paired};
                for (int32_t k = 0; k < e.n_parts; k++) {
                    e.part[k] = random_part(&arena, types[i], types[i] == VT_FP8_E4M3, &rng);
                    e.part[k].row = row[paired ? 0 : k][0];
                    e.part[k].rows = row[paired ? 0 : k][1];
                    e.part[k].col = col[c][0];
                    e.part[k].cols = col[c][1];
                }
                check_ranges(&e, &arena);
                vt_arena_release(&arena);
            }
}

/* Row by row and with their scales, the weights of a range are those of the whole tensor. (A dense
 * copy of a range would be as wrong as the range.) */
static void test_range_of_rows_and_columns_has_the_weights_of_the_whole(void **state)
{
    (void)state;
    enum { ROW = 128, N_ROWS = 172, COL = 256, N_COLS = 512 };
    static float want[COLS], got[N_COLS];
    uint64_t rng = 11;
    for (int i = 0; i < TYPES; i++) {
        vt_arena arena;
        vt_err err = {0};
        vt_weight whole, range;
        vt_arena_init(&arena, 0);
        vt_layout_entry e = {.label = "e", .kind = VT_KIND_EXPERTS, .n_parts = 1};
        e.part[0] = random_part(&arena, types[i], types[i] == VT_FP8_E4M3, &rng);
        e.part[0].rows = ROWS;
        e.part[0].cols = COLS;
        must(vt_layout_weight(&e, 1, &arena, &whole, &err), &err);
        e.part[0].row = ROW;
        e.part[0].rows = N_ROWS;
        e.part[0].col = COL;
        e.part[0].cols = N_COLS;
        must(vt_layout_weight(&e, 1, &arena, &range, &err), &err);
        assert_true(range.rows == N_ROWS && range.cols == N_COLS);
        for (int64_t r = 0; r < N_ROWS; r++) {
            linear_weight_row(&whole, ROW + r, want);
            linear_weight_row(&range, r, got);
            assert_memory_equal(got, want + COL, sizeof got);
        }
        vt_arena_release(&arena);
    }
}

/* Types without blocks may be cut anywhere. */
static void test_range_that_begins_at_any_column_packs_as_its_dense_copy(void **state)
{
    (void)state;
    uint64_t rng = 8;
    for (int i = 0; types[i] <= VT_FP8_E4M3 && i < TYPES; i++)
        for (int64_t cols = 67; cols <= 72; cols += 5) {
            vt_arena arena;
            vt_arena_init(&arena, 0);
            vt_layout_entry e = {.kind = VT_KIND_EXPERTS, .n_parts = 1};
            e.part[0] = random_part(&arena, types[i], false, &rng);
            e.part[0].row = 5;
            e.part[0].rows = 37;
            e.part[0].col = 3;
            e.part[0].cols = cols;
            check_ranges(&e, &arena);
            vt_arena_release(&arena);
        }
}

static vt_status view_status(vt_layout_entry *e, int64_t row, int64_t rows, int64_t col,
                             int64_t cols)
{
    vt_arena arena;
    vt_weight w;
    vt_arena_init(&arena, 0);
    e->part[0].row = row;
    e->part[0].rows = rows;
    e->part[0].col = col;
    e->part[0].cols = cols;
    vt_status status = vt_layout_weight(e, 0, &arena, &w, NULL);
    vt_arena_release(&arena);
    return status;
}

static void test_range_when_it_cuts_a_block_or_leaves_the_tensor_then_refused(void **state)
{
    (void)state;
    uint64_t rng = 9;
    vt_arena arena;
    vt_arena_init(&arena, 0);
    vt_layout_entry q = {.label = "q", .kind = VT_KIND_EXPERTS, .n_parts = 1};
    vt_layout_entry f = q;
    q.part[0] = random_part(&arena, VT_Q4_K, false, &rng);
    f.part[0] = random_part(&arena, VT_FP8_E4M3, true, &rng);
    assert_int_equal(view_status(&q, 5, 9, 256, 256), VT_OK);
    assert_int_equal(view_status(&q, 5, 9, 128, 256), VT_ERR_USAGE);
    assert_int_equal(view_status(&q, 5, 9, 0, 128), VT_ERR_USAGE);
    assert_int_equal(view_status(&q, 0, ROWS + 1, 0, COLS), VT_ERR_USAGE);
    assert_int_equal(view_status(&q, -1, 4, 0, COLS), VT_ERR_USAGE);
    assert_int_equal(view_status(&q, 0, 4, 512, 512), VT_ERR_USAGE);
    assert_int_equal(view_status(&f, 128, ROWS - 128, 128, 256), VT_OK);
    assert_int_equal(view_status(&f, 64, 128, 0, COLS), VT_ERR_USAGE);
    /* rows inside of a block have its scale */
    assert_int_equal(view_status(&f, 0, 64, 0, COLS), VT_OK);
    assert_int_equal(view_status(&f, 130, 20, 0, COLS), VT_OK);
    assert_int_equal(view_status(&f, 0, ROWS, 32, 96), VT_ERR_USAGE);
    vt_arena_release(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_program_of_every_fixture_is_the_same_on_both_devices),
        cmocka_unit_test(test_deterministic_program_when_layers_differ_then_families_are_by_layer),
        cmocka_unit_test(test_program_when_types_of_a_layer_differ_then_still_the_same),
        cmocka_unit_test(test_program_when_a_file_has_some_of_the_biases_then_still_the_same),
        cmocka_unit_test(test_layout_when_gate_and_up_of_experts_differ_then_refused),
        cmocka_unit_test(test_layout_is_in_the_order_of_a_step),
        cmocka_unit_test(test_layout_floats_when_a_bias_is_missing_then_zeros),
        cmocka_unit_test(test_range_of_rows_and_columns_packs_as_its_dense_copy),
        cmocka_unit_test(test_range_of_rows_and_columns_has_the_weights_of_the_whole),
        cmocka_unit_test(test_range_that_begins_at_any_column_packs_as_its_dense_copy),
        cmocka_unit_test(test_range_when_it_cuts_a_block_or_leaves_the_tensor_then_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
