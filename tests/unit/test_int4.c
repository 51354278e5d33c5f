/* Packed 4-bit matrices of folders: what the three forms' tensors become, and what is refused. The
 * values of whole models are compared with transformers' in test_golden_logits.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/quant.h"
#include "model/assemble.h"
#include "model/int4/int4.h"

enum { ROWS = 8, COLS = 64, GROUP = 32, MOST = 6 };

/* A folder of one matrix, whose tensors tests change. */
typedef struct folder {
    vt_model *m;
    vt_tensor tensor[MOST];
    const vt_tensor *at[MOST];
    name_entry index[MOST];
    st_set set;
    uint32_t codes[ROWS * COLS / 8], zeros[COLS / GROUP];
    uint16_t scales[ROWS * COLS / GROUP];
    int32_t order[COLS];
} folder;

static void add(folder *f, const char *name, void *data, vt_dtype type, int32_t rank, int64_t rows,
                int64_t cols)
{
    vt_tensor *t = &f->tensor[f->set.n_tensors++];
    *t = (vt_tensor){.name = name, .data = data, .dtype = type, .rank = rank, .dim = {rows, cols}};
    t->row_stride = t->dim[rank - 1];
}

/* Makes GPTQ's tensors of a matrix [8, 64] whose code i of each row is i mod 16, zeros are 8 and
 * scales are 0.5 for the first group and 2 for the second. */
static folder *make_folder(void)
{
    vt_err err = {0};
    folder *f = calloc(1, sizeof *f);
    assert_non_null(f);
    assert_int_equal(model_new("folder", &f->m, &err), VT_OK);
    for (int i = 0; i < COLS / 8; i++)
        for (int r = 0; r < ROWS; r++)
            f->codes[i * ROWS + r] = i % 2 ? 0xfedcba98 : 0x76543210;
    for (int g = 0; g < COLS / GROUP; g++) {
        f->zeros[g] = 0x77777777;
        for (int r = 0; r < ROWS; r++)
            f->scales[g * ROWS + r] = vt_f32_to_f16(g ? 2.0f : 0.5f);
    }
    for (int i = 0; i < COLS; i++)
        f->order[i] = i / GROUP;
    add(f, "a.qweight", f->codes, VT_I32, 2, COLS / 8, ROWS);
    add(f, "a.qzeros", f->zeros, VT_I32, 2, COLS / GROUP, ROWS / 8);
    add(f, "a.scales", f->scales, VT_F16, 2, COLS / GROUP, ROWS);
    add(f, "a.g_idx", f->order, VT_I32, 1, COLS, 0);
    return f;
}

static void free_folder(folder *f)
{
    vt_model_free(f->m);
    free(f);
}

static vt_status find(folder *f, const int4_form *form, int4_set **out, vt_err *err)
{
    for (int64_t i = 0; i < f->set.n_tensors; i++) {
        f->at[i] = &f->tensor[i];
        f->index[i] = (name_entry){f->tensor[i].name, strlen(f->tensor[i].name), (uint32_t)i};
    }
    name_index_sort(f->index, (size_t)f->set.n_tensors);
    f->set.tensor = f->at;
    f->set.index = f->index;
    return int4_find(f->m, &f->set, form, out, err);
}

static const int4_form gptq = {.kind = INT4_GPTQ, .symmetric = true, .group = GROUP};

static void expect_refused(folder *f, const int4_form *form, const char *words)
{
    int4_set *s = NULL;
    vt_err err = {0};
    vt_status status = find(f, form, &s, &err);
    if (status == VT_OK)
        status = int4_make(s, "folder", &err);
    assert_int_not_equal(status, VT_OK);
    if (!strstr(err.message, words))
        fail_msg("\"%s\" lacks \"%s\"", err.message, words);
    int4_release(s);
    free_folder(f);
}

static void expect_values(folder *f, const int4_form *form, vt_dtype type, int zero)
{
    int4_set *s;
    vt_err err = {0};
    float row[COLS];
    if (find(f, form, &s, &err) != VT_OK || int4_make(s, "folder", &err) != VT_OK)
        fail_msg("%s", err.message);
    assert_int_equal(int4_count(s), 1);
    const vt_tensor *t = int4_at(s, int4_index(s, "a.weight"));
    assert_int_equal(t->dtype, type);
    assert_true(t->dim[0] == ROWS && t->dim[1] == COLS);
    for (int r = 0; r < ROWS; r++) {
        vt_dequant_row(type, (char *)t->data + r * vt_dtype_row_bytes(type, COLS), row, COLS);
        for (int i = 0; i < COLS; i++)
            assert_true(row[i] == (i < GROUP ? 0.5f : 2.0f) * (float)(i % 16 - zero));
    }
    for (int64_t i = 0; i < f->set.n_tensors; i++)
        assert_true(int4_took(s, i));
    int4_release(s);
    free_folder(f);
}

static void test_gptq_becomes_exact_blocks(void **state)
{
    (void)state;
    int4_form zeros = gptq, plain = gptq;
    zeros.symmetric = plain.symmetric = false;
    plain.plain_zeros = true;
    expect_values(make_folder(), &gptq, VT_Q4_0, 8);
    expect_values(make_folder(), &zeros, VT_Q5_0, 8);
    expect_values(make_folder(), &plain, VT_Q5_0, 7);
    folder *f = make_folder(); /* zeros of 0 and 15: whole words lost 0x11111111 */
    f->zeros[0] = f->zeros[1] = 0u - 0x11111111u;
    expect_values(f, &zeros, VT_Q5_0, 0);
    f = make_folder();
    f->zeros[0] = f->zeros[1] = 0xffffffffu - 0x11111111u;
    expect_values(f, &zeros, VT_Q5_0, 15);
}

/* Returns true if the first row has its values; memory that was given back reads as zeros. */
static bool has_values(const int4_set *s)
{
    float row[COLS];
    vt_dequant_row(VT_Q4_0, int4_at(s, 0)->data, row, COLS);
    return row[0] == -4 && row[COLS - 1] == 14;
}

static void test_matrices_are_given_up_behind_their_last_use(void **state)
{
    (void)state;
    int4_set *s;
    vt_err err = {0};
    folder *f = make_folder();
    assert_int_equal(find(f, &gptq, &s, &err), VT_OK);
    for (int i = 0; i < 2; i++)
        assert_int_equal(int4_make(s, "folder", &err), VT_OK);
    int4_done(s, false);
    assert_true(has_values(s)); /* there is one use left */
    int4_done(s, false);
    assert_false(has_values(s));
    for (int i = 0; i < 2; i++)
        assert_int_equal(int4_make(s, "folder", &err), VT_OK);
    assert_true(has_values(s));
    int4_done(s, true); /* whoever reads them where they lie keeps them */
    int4_done(s, false);
    assert_true(has_values(s));
    int4_release(s);
    free_folder(f);
}

/* BF16 scales keep 8 bits of 11; a scale that F16 rounds moves a weight by less than 2^-21. */
static void test_bf16_scales_are_exact_from_two_to_the_minus_17(void **state)
{
    (void)state;
    static const float scale[] = {1.9921875f, 0x1.feP-17f, 0x1.02P-17f, 65280.0f, 0x1.54P-24f, 0};
    int4_form form = gptq;
    for (size_t k = 0; k < sizeof scale / sizeof *scale; k++) {
        folder *f = make_folder();
        int4_set *s;
        vt_err err = {0};
        float row[COLS];
        f->tensor[2].dtype = VT_BF16;
        for (int i = 0; i < ROWS * COLS / GROUP; i++)
            f->scales[i] = vt_f32_to_bf16(scale[k]);
        assert_int_equal(find(f, &form, &s, &err), VT_OK);
        assert_int_equal(int4_make(s, "folder", &err), VT_OK);
        vt_dequant_row(VT_Q4_0, int4_at(s, 0)->data, row, COLS);
        for (int i = 0; i < COLS; i++) {
            float error = row[i] - scale[k] * (float)(i % 16 - 8);
            assert_true(scale[k] >= 0x1p-17f ? error == 0 : error < 0x1p-21f && -error < 0x1p-21f);
        }
        int4_release(s);
        free_folder(f);
    }
}

static void test_scales_and_zeros_that_blocks_cannot_hold_are_refused(void **state)
{
    (void)state;
    folder *f = make_folder();
    f->scales[9] = 0x7e00; /* NaN */
    expect_refused(f, &gptq, "a.scales has a scale for row 1, group 1, that is not finite");
    f = make_folder();
    f->tensor[2].dtype = VT_BF16;
    memset(f->scales, 0, sizeof f->scales);
    f->scales[3] = vt_f32_to_bf16(70000);
    expect_refused(f, &gptq,
                   "a.scales has a scale for row 3, group 0, that is not finite or beyond");
    f = make_folder();
    f->zeros[1] = 0x77777787;
    expect_refused(f, &gptq, "a.qzeros has the zero 9 for row 1, group 1; 8 was expected");
}

static void test_shapes_and_orders_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    int4_form wide = gptq, awq = {.kind = INT4_AWQ, .group = GROUP}, packed = {.kind = INT4_PACKED};
    folder *f = make_folder();
    f->tensor[0].dim[0] = 7;
    expect_refused(f, &gptq, "a.qweight is a matrix of 56 columns; a multiple of 32 was expected");
    wide.group = 128;
    expect_refused(make_folder(), &wide, "64 columns; a multiple of 128 was expected");
    f = make_folder();
    f->tensor[2].dtype = VT_F32;
    expect_refused(f, &gptq, "a.scales has type F32, rank 2 and shape [2, 8]; F16 or BF16 [2, 8]");
    f = make_folder();
    f->tensor[1].dim[0] = 1;
    expect_refused(f, &gptq, "a.qzeros has type I32, rank 2 and shape [1, 1]; I32 [2, 1] was");
    f = make_folder();
    f->tensor[0].dtype = VT_U8;
    expect_refused(f, &gptq, "a.qweight has type U8 and rank 2; I32 and rank 2 were expected");
    f = make_folder();
    f->order[5] = 1;
    expect_refused(f, &gptq, "a.g_idx puts column 5 into group 1; 0 was expected");
    f = make_folder();
    f->tensor[3].dim[0] = 32;
    expect_refused(f, &gptq, "a.g_idx has type I32, rank 1 and 32 elements");
    f = make_folder();
    f->set.n_tensors = 2;
    expect_refused(f, &gptq, "a.scales is missing");
    f = make_folder();
    add(f, "a.weight", f->codes, VT_F16, 2, ROWS, COLS);
    expect_refused(f, &gptq, "both a.qweight and a.weight are there");
    expect_refused(make_folder(), &awq, "a.qweight is a matrix of 8 columns; a multiple");
    expect_refused(make_folder(), &packed, "no tensor's name ends with .weight_packed");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gptq_becomes_exact_blocks),
        cmocka_unit_test(test_matrices_are_given_up_behind_their_last_use),
        cmocka_unit_test(test_bf16_scales_are_exact_from_two_to_the_minus_17),
        cmocka_unit_test(test_scales_and_zeros_that_blocks_cannot_hold_are_refused),
        cmocka_unit_test(test_shapes_and_orders_that_do_not_fit_are_refused),
    };
    return cmocka_run_group_tests_name("int4", tests, NULL, NULL);
}
