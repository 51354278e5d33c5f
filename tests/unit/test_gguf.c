/* The GGUF reader: values and tensors of good files, and the message for each kind of broken
 * file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include <math.h>

#include "files/gguf.h"

#define CORPUS "tests/fuzz/corpus/gguf/"

static gguf_file *open_good(const char *name)
{
    char path[200];
    gguf_file *f = NULL;
    vt_err err = {0};
    snprintf(path, sizeof path, CORPUS "%s.gguf", name);
    if (gguf_open(path, &f, &err) != VT_OK)
        fail_msg("%s", err.message);
    return f;
}

static void test_gguf_integers_of_every_width_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        int64_t want;
    } cases[] = {{"k.u8", 200},
                 {"k.i8", -5},
                 {"k.u16", 60000},
                 {"k.i16", -300},
                 {"k.i32", -70000},
                 {"k.u32", 4000000000},
                 {"k.u64", INT64_C(1) << 40},
                 {"k.i64", -(INT64_C(1) << 40)}};
    gguf_file *f = open_good("ok_values");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t v = 0;
        assert_int_equal(gguf_get_i64(f, cases[i].key, true, &v, NULL), VT_OK);
        assert_int_equal(v, cases[i].want);
    }
    gguf_close(f);
}

static void test_gguf_other_scalars_and_arrays_are_read(void **state)
{
    (void)state;
    gguf_file *f = open_good("ok_values");
    double d = 0;
    bool b = false;
    gguf_str s = {0};
    assert_int_equal(gguf_get_f64(f, "k.f32", true, &d, NULL), VT_OK);
    assert_true(d == 1.5);
    assert_int_equal(gguf_get_f64(f, "k.f64", true, &d, NULL), VT_OK);
    assert_true(d == 0.1);
    assert_int_equal(gguf_get_bool(f, "k.bool", true, &b, NULL), VT_OK);
    assert_true(b);
    assert_int_equal(gguf_get_str(f, "k.str", true, &s, NULL), VT_OK);
    assert_int_equal(s.len, 4);
    assert_memory_equal(s.data, "text", 4);

    const gguf_value *v = gguf_find(f, "a.i16");
    assert_true(v && v->is_array && v->n == 3);
    assert_int_equal(gguf_array_i64(v, 1), -2);
    assert_true(isnan(gguf_array_f64(v, 3)));
    v = gguf_find(f, "a.str");
    assert_int_equal(v->strings[1].len, 0);
    assert_memory_equal(v->strings[2].data, "bcd", 3);
    assert_true(gguf_array_f64(gguf_find(f, "a.f32"), 1) == 2.0);
    gguf_close(f);
}

static void test_gguf_absent_key_keeps_the_default_unless_required(void **state)
{
    (void)state;
    gguf_file *f = open_good("ok_values");
    vt_err err = {0};
    int64_t v = 77;
    assert_int_equal(gguf_get_i64(f, "k.none", false, &v, &err), VT_OK);
    assert_int_equal(v, 77);
    assert_int_equal(gguf_get_i64(f, "k.none", true, &v, &err), VT_ERR_FORMAT);
    assert_non_null(strstr(err.message, "k.none is missing"));
    gguf_close(f);
}

static void test_gguf_wrong_types_are_errors_that_name_both(void **state)
{
    (void)state;
    gguf_file *f = open_good("ok_values");
    vt_err err = {0};
    int64_t i;
    double d;
    bool b;
    gguf_str s;
    assert_int_equal(gguf_get_i64(f, "k.f32", true, &i, &err), VT_ERR_FORMAT);
    assert_non_null(strstr(err.message, "k.f32 has type f32; an integer was expected"));
    assert_int_equal(gguf_get_i64(f, "k.huge", true, &i, &err), VT_ERR_FORMAT);
    assert_int_equal(gguf_get_f64(f, "k.u8", true, &d, &err), VT_ERR_FORMAT);
    assert_int_equal(gguf_get_f64(f, "k.nan", true, &d, &err), VT_ERR_FORMAT);
    assert_int_equal(gguf_get_bool(f, "k.u8", true, &b, &err), VT_ERR_FORMAT);
    assert_int_equal(gguf_get_str(f, "k.u8", true, &s, &err), VT_ERR_FORMAT);
    assert_int_equal(gguf_get_i64(f, "a.i16", true, &i, &err), VT_ERR_FORMAT);
    assert_non_null(strstr(err.message, "is an array"));
    gguf_close(f);
}

static void test_gguf_tensors_are_views_with_the_outermost_dimension_first(void **state)
{
    (void)state;
    gguf_file *f = open_good("ok_two_tensors");
    const vt_tensor *a = gguf_tensor(f, "a"), *b = gguf_tensor(f, "b");
    assert_true(a && b);
    assert_null(gguf_tensor(f, "c"));
    assert_int_equal(b->dtype, VT_Q4_0);
    assert_int_equal(b->dim[0], 2);
    assert_int_equal(b->dim[1], 32);
    assert_int_equal((const uint8_t *)b->data - (const uint8_t *)a->data, 16);
    assert_int_equal((const uint8_t *)b->data + 36 - f->view.map, f->view.size);
    gguf_close(f);
}

static void test_gguf_version_2_and_empty_files_open(void **state)
{
    (void)state;
    gguf_file *f = open_good("ok_v2");
    assert_int_equal(f->version, 2);
    assert_non_null(gguf_tensor(f, "t"));
    gguf_close(f);
    f = open_good("ok_empty");
    assert_null(gguf_find(f, "x"));
    assert_null(gguf_tensor(f, "x"));
    gguf_close(f);
}

static void test_gguf_broken_files_are_refused_with_the_reason(void **state)
{
    (void)state;
    static const struct {
        const char *file, *words;
        vt_status status;
    } cases[] = {
        {"bad_empty", "the file is empty", VT_ERR_FORMAT},
        {"bad_magic", "not a GGUF file (it begins with 47 47 4d 4c)", VT_ERR_FORMAT},
        {"bad_version_1", "GGUF version 1", VT_ERR_UNSUPPORTED},
        {"bad_version_4", "GGUF version 4", VT_ERR_UNSUPPORTED},
        {"bad_big_endian", "big-endian", VT_ERR_UNSUPPORTED},
        {"bad_counts", "claims 1152921504606846976 values", VT_ERR_FORMAT},
        {"bad_tensor_count", "18446744073709551615 tensors", VT_ERR_FORMAT},
        {"bad_cut_in_key", "the header claims 1 values", VT_ERR_FORMAT},
        {"bad_cut_in_value", "key key claims 1 elements of type u64, 5 bytes are left",
         VT_ERR_FORMAT},
        {"bad_key_length", "ends in a metadata key: 9223372036854775808 bytes wanted",
         VT_ERR_FORMAT},
        {"bad_key_empty", "a metadata key of 0 bytes", VT_ERR_FORMAT},
        {"bad_key_twice", "metadata key same appears twice", VT_ERR_FORMAT},
        {"bad_value_type", "key key has type 13, which is unknown", VT_ERR_FORMAT},
        {"bad_array_length", "claims 2305843009213693953 elements", VT_ERR_FORMAT},
        {"bad_array_strings", "claims 576460752303423488 strings", VT_ERR_FORMAT},
        {"bad_array_nested", "array of arrays", VT_ERR_FORMAT},
        {"bad_string_length", "ends in a string: 18446744073709551615 bytes wanted", VT_ERR_FORMAT},
        {"bad_alignment_zero", "general.alignment is 0", VT_ERR_FORMAT},
        {"bad_alignment_odd", "general.alignment is 24", VT_ERR_FORMAT},
        {"bad_alignment_type", "general.alignment has type string", VT_ERR_FORMAT},
        {"bad_rank_0", "tensor t has 0 dimensions", VT_ERR_FORMAT},
        {"bad_rank_5", "tensor t has 5 dimensions", VT_ERR_FORMAT},
        {"bad_dim_zero", "dimension 1 is 0", VT_ERR_FORMAT},
        {"bad_dim_overflow", "impossible size: dimension 1 is 1099511627776", VT_ERR_FORMAT},
        {"bad_dim_bytes", "impossible size: dimension 1 is 67729916271001600", VT_ERR_FORMAT},
        {"bad_type_unknown", "tensor t has unknown type 4", VT_ERR_FORMAT},
        {"bad_type_big", "tensor t has unknown type 4000000000", VT_ERR_FORMAT},
        {"bad_type_unsupported", "tensor t has type IQ2_XXS; supported are", VT_ERR_UNSUPPORTED},
        {"bad_block", "rows of 33 elements, not a multiple of Q8_0's 32", VT_ERR_FORMAT},
        {"bad_offset_unaligned", "offset 16, not a multiple of the alignment 32", VT_ERR_FORMAT},
        {"bad_offset_beyond", "the file is truncated", VT_ERR_FORMAT},
        {"bad_truncated_data", "wants bytes 0 to 256 of the data, which has 255", VT_ERR_FORMAT},
        {"bad_no_data", "the padding before the data", VT_ERR_FORMAT},
        {"bad_overlap", "tensors a and b overlap", VT_ERR_FORMAT},
        {"bad_name_twice", "tensor t appears twice", VT_ERR_FORMAT},
        {"bad_name_long", "has 300 bytes", VT_ERR_FORMAT},
        {"bad_name_nul", "holds a NUL", VT_ERR_FORMAT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[200];
        gguf_file *f = (gguf_file *)&path; /* must stay as it is */
        vt_err err = {0};
        snprintf(path, sizeof path, CORPUS "%s.gguf", cases[i].file);
        vt_status status = gguf_open(path, &f, &err);
        if (status != cases[i].status || !strstr(err.message, cases[i].words) ||
            !strstr(err.message, cases[i].file))
            fail_msg("%s: status %d, \"%s\"", cases[i].file, status, err.message);
        assert_ptr_equal(f, &path);
    }
}

/* Property: no prefix of a good file does harm, and only the whole file opens. */
static void test_gguf_every_truncation_is_refused(void **state)
{
    (void)state;
    gguf_file *whole = open_good("ok_llama"), *f;
    for (size_t n = 0; n < whole->view.size; n++) {
        uint8_t *copy = test_malloc(n ? n
                                      : 1); /* exact size: a sanitizer sees the first byte beyond */
        memcpy(copy, whole->view.map, n);
        vt_err err = {0};
        if (gguf_open_bytes("cut", copy, n, &f, &err) == VT_OK) {
            /* zeros at the very end may be padding that no tensor claims */
            const vt_tensor *last = gguf_tensor(f, "blk.0.ffn_down.weight");
            assert_true((const uint8_t *)last->data + vt_tensor_bytes(last) <= copy + n);
            gguf_close(f);
        } else {
            assert_true(err.message[0] != 0);
        }
        test_free(copy);
    }
    gguf_close(whole);
}

static void test_gguf_missing_file_or_folder_is_an_io_error(void **state)
{
    (void)state;
    gguf_file *f;
    vt_err err = {0};
    assert_int_equal(gguf_open("tests/no-such-file", &f, &err), VT_ERR_IO);
    assert_string_equal(err.message,
                        "tests/no-such-file: cannot be opened: No such file or directory");
    assert_int_equal(gguf_open("tests", &f, &err), VT_ERR_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gguf_integers_of_every_width_are_read),
        cmocka_unit_test(test_gguf_other_scalars_and_arrays_are_read),
        cmocka_unit_test(test_gguf_absent_key_keeps_the_default_unless_required),
        cmocka_unit_test(test_gguf_wrong_types_are_errors_that_name_both),
        cmocka_unit_test(test_gguf_tensors_are_views_with_the_outermost_dimension_first),
        cmocka_unit_test(test_gguf_version_2_and_empty_files_open),
        cmocka_unit_test(test_gguf_broken_files_are_refused_with_the_reason),
        cmocka_unit_test(test_gguf_every_truncation_is_refused),
        cmocka_unit_test(test_gguf_missing_file_or_folder_is_an_io_error),
    };
    return cmocka_run_group_tests_name("gguf", tests, NULL, NULL);
}
