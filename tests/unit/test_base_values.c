/* The small helpers of base: percentiles, JSON that reads back, the limits of UTF-8, the last byte
 * of a buffer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/json_write.h"
#include "base/stats.h"
#include "base/term/nearest.h"
#include "base/utf8.h"

static void test_percentile_when_the_rank_is_between_two_values_then_the_upper_one(void **state)
{
    (void)state;
    double v[] = {40, 10, 30, 20};
    assert_true(vt_percentile(v, 4, 0.5) == 20);
    assert_true(vt_percentile(v, 4, 0.51) == 30);
    assert_true(vt_percentile(v, 4, 0.99) == 40);
    assert_true(vt_percentile(v, 4, 0) == 10);
    assert_true(vt_percentile(v, 4, 1) == 40);
    assert_true(isnan(vt_percentile(v, 0, 0.5)));
}

static void test_median_when_the_number_is_even_then_the_mean_of_the_middle_two(void **state)
{
    (void)state;
    double v[] = {8, 1, 2, 4};
    assert_true(vt_median(v, 4) == 3);
    assert_true(vt_median(v, 3) == 2); /* sorted by now: 1 2 4 */
    assert_true(isnan(vt_median(v, 0)));
}

static void test_noise_when_one_repetition_was_interrupted_then_hardly_changed(void **state)
{
    (void)state;
    double calm[] = {98, 99, 100, 101, 102}, busy[] = {98, 99, 100, 101, 35000};
    assert_true(fabs(vt_noise(calm, 5) - 0.014826) < 1e-9);
    assert_true(fabs(vt_noise(busy, 5) - 0.014826) < 1e-9);
    assert_true(vt_noise((double[]){9, 10, 12}, 3) == 0.15);
    double even[] = {9, 1, 4, 2, 11, 3}; /* 3.5 and its distances 0.5 0.5 1.5 2.5 5.5 7.5 */
    assert_true(fabs(vt_noise(even, 6) - 1.4826 * 2 / 3.5) < 1e-9);
    assert_true(vt_median(even, 6) == 3.5); /* the values are those that were given */
    assert_true(isnan(vt_noise(calm, 1)));
    assert_true(vt_noise((double[]){7, 7}, 2) == 0);
}

static void written_must_be(void (*write)(vt_json *w), const char *want)
{
    vt_buf b;
    vt_json w;
    vt_buf_init(&b, 0);
    vt_json_begin(&w, &b, -1);
    vt_json_open(&w, NULL, '[');
    write(&w);
    vt_json_close(&w);
    assert_true(vt_json_end(&w));
    assert_string_equal(b.data, want);
    vt_buf_release(&b);
}

static void write_reals(vt_json *w)
{
    vt_json_real(w, NULL, 0.1);
    vt_json_real(w, NULL, 1.0 / 3);
    vt_json_real(w, NULL, 5e-324);
    vt_json_real(w, NULL, -0.0);
    vt_json_real(w, NULL, INFINITY);
    vt_json_fixed(w, NULL, 2.0 / 3, 2);
}

static void test_json_real_when_written_then_the_shortest_that_reads_back(void **state)
{
    (void)state;
    written_must_be(write_reals, "[0.1,0.3333333333333333,5e-324,-0,null,0.67]");
}

static void write_strings(vt_json *w)
{
    vt_json_string(w, NULL, "\x1f\x10\x01 \"\\\n\t\r");
    vt_json_string_n(w, NULL, "a\0b", 3);
    vt_json_string(w, NULL, "\xED\xA0\x80");
    vt_json_string(w, NULL, NULL);
}

static void write_tagged(vt_json *w)
{
    vt_json_tagged(w, NULL, 1234.56789, 2, "measured");
    vt_json_tagged(w, NULL, 4e12, 0, "derived");
    vt_json_tagged(w, NULL, NAN, 2, "measured");
    vt_json_tagged(w, NULL, INFINITY, 0, "derived");
}

static void test_json_in_a_text_of_its_own_when_taken_then_is_a_value(void **state)
{
    (void)state;
    static const int32_t ids[] = {3, -1};
    vt_json w, list;
    vt_json_line(&list);
    vt_json_ints(&list, NULL, ids, 2);
    vt_json_object(&w);
    vt_json_known(&w, "known", 0);
    vt_json_known(&w, "not", -1);
    vt_json_take(&w, "ids", &list);
    vt_json_ints(&w, "none", NULL, 0);
    assert_true(vt_json_end(&w));
    assert_string_equal(w.out->data, "{\"known\":0,\"not\":null,\"ids\":[3,-1],\"none\":[]}");
    vt_json_release(&w);
}

static void test_json_tagged_when_written_then_rounded_or_null(void **state)
{
    (void)state;
    written_must_be(write_tagged, "[{\"value\":1234.57,\"tag\":\"measured\"},"
                                  "{\"value\":4e+12,\"tag\":\"derived\"},"
                                  "{\"value\":null,\"tag\":\"n/a\"},"
                                  "{\"value\":null,\"tag\":\"n/a\"}]");
}

static void test_json_string_when_bytes_are_not_text_then_escaped_or_replaced(void **state)
{
    (void)state;
    written_must_be(write_strings, "[\"\\u001f\\u0010\\u0001 \\\"\\\\\\n\\t\\r\",\"a\\u0000b\","
                                   "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\",null]");
}

static void test_utf8_when_at_the_borders_of_unicode_then_only_scalar_values(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int step;
    } row[] = {{"\x7F", 1},
               {"\xC1\xBF", -1},
               {"\xC2\x80", 2},
               {"\xE0\x9F\xBF", -1},
               {"\xE0\xA0\x80", 3},
               {"\xED\x9F\xBF", 3},
               {"\xED\xA0\x80", -1},
               {"\xEE\x80\x80", 3},
               {"\xF0\x8F\xBF\xBF", -1},
               {"\xF4\x90\x80\x80", -1},
               {"\xF4\x8F\xBF\xBF", 4},
               {"\xF5\x80\x80\x80", -1}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        if (vt_utf8_step(row[i].text, strlen(row[i].text)) != row[i].step)
            fail_msg("row %zu: %d", i, vt_utf8_step(row[i].text, strlen(row[i].text)));
}

static void test_buf_when_it_is_full_then_the_last_byte_fits_and_no_more(void **state)
{
    (void)state;
    vt_buf b;
    vt_buf_init(&b, 8);
    assert_true(vt_buf_add(&b, "1234567", 7));
    assert_true(vt_buf_putc(&b, '8'));
    assert_string_equal(b.data, "12345678");
    assert_false(vt_buf_putc(&b, '9'));
    assert_true(b.failed);
    vt_buf_release(&b);
}

static void test_nearest_when_neighbours_are_swapped_then_one_edit(void **state)
{
    (void)state;
    static const struct {
        const char *asked, *word;
        bool near;
    } cases[] = {{"ba", "ab", true},       {"ba", "cd", false},      {"rnu", "run", true},
                 {"serev", "serve", true}, {"abc", "abcdef", false}, {"run", "pull", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        vt_nearest n = vt_nearest_begin(cases[i].asked);
        vt_nearest_try(&n, cases[i].word);
        assert_int_equal(n.best != NULL, cases[i].near);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_percentile_when_the_rank_is_between_two_values_then_the_upper_one),
        cmocka_unit_test(test_median_when_the_number_is_even_then_the_mean_of_the_middle_two),
        cmocka_unit_test(test_noise_when_one_repetition_was_interrupted_then_hardly_changed),
        cmocka_unit_test(test_json_real_when_written_then_the_shortest_that_reads_back),
        cmocka_unit_test(test_json_in_a_text_of_its_own_when_taken_then_is_a_value),
        cmocka_unit_test(test_json_tagged_when_written_then_rounded_or_null),
        cmocka_unit_test(test_json_string_when_bytes_are_not_text_then_escaped_or_replaced),
        cmocka_unit_test(test_utf8_when_at_the_borders_of_unicode_then_only_scalar_values),
        cmocka_unit_test(test_buf_when_it_is_full_then_the_last_byte_fits_and_no_more),
        cmocka_unit_test(test_nearest_when_neighbours_are_swapped_then_one_edit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
