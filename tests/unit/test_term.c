/* Text for terminals: widths in cells, natural units, tables, bars and sparklines. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/term/figure.h"
#include "base/term/term.h"

static const vt_term plain = {.width = VT_TERM_WIDTH};

#define EXPECT(want, call)                               \
    do {                                                 \
        vt_buf b = {0};                                  \
        call;                                            \
        assert_string_equal(b.data ? b.data : "", want); \
        vt_buf_release(&b);                              \
    } while (0)

static void test_text_width_when_wide_or_combining_then_cells(void **state)
{
    (void)state;
    assert_int_equal(vt_text_width("abc", 3), 3);
    assert_int_equal(vt_text_width("▁▂▃", 9), 3);
    assert_int_equal(vt_text_width("日本", 6), 4);
    assert_int_equal(vt_text_width("e\xcc\x81", 3), 1); /* e, combining acute */
    assert_int_equal(vt_text_width("\033[31mred\033[0m", 12), 3);
    assert_int_equal(vt_text_width("\xff\xe2", 2), 2); /* stray bytes: one each */
}

static void test_text_units_when_scaled_then_three_digits(void **state)
{
    (void)state;
    EXPECT("0 ns", vt_text_time(&b, 0));
    EXPECT("850 ns", vt_text_time(&b, 850e-9));
    EXPECT("12.3 us", vt_text_time(&b, 12.34e-6));
    EXPECT("1.00 ms", vt_text_time(&b, 999.96e-6));
    EXPECT("61.0 s", vt_text_time(&b, 61));
    EXPECT("n/a", vt_text_time(&b, NAN));
    EXPECT("98.4 MB", vt_text_bytes(&b, 98.4e6));
    EXPECT("512 B", vt_text_bytes(&b, 512));
    EXPECT("21.5 GB/s", vt_text_rate(&b, 21.5e9, "B"));
    EXPECT("4.25 TB/s", vt_text_rate(&b, 4.25e12, "B"));
}

static void test_text_printf_when_a_unit_follows_then_a_figure(void **state)
{
    (void)state;
    EXPECT("1 step took 1.20 ms, 98.4 MB at 21.5 GB/s, 3.00 TFLOP/s.",
           vt_text_printf(&b, "%d step took %f s, %f B at %f B/s, %f FLOP/s.", 1, 1.2e-3, 98.4e6,
                          21.5e9, 3e12));
    EXPECT("90 %, 1.25x, 812 tokens/s of \001 50 %",
           vt_text_printf(&b, "%f share, %f ratio, %f tokens/s of %s %.0f %%", 0.9, 1.25, 812.0,
                          "\001", 50.0));
    EXPECT("n/a%s n/a", vt_text_printf(&b, "%f s%%s %f B", (double)NAN, (double)INFINITY));
    EXPECT("2.000000 seconds, 2.000000 B/step, %f s",
           vt_text_printf(&b, "%f seconds, %f B/step, %%f s", 2.0, 2.0));
    EXPECT("61.0 s", vt_buf_puts(&b, vt_figure_of(61, VT_SECONDS).text));
}

static void test_text_wrap_when_long_then_within_width(void **state)
{
    (void)state;
    EXPECT("one two\n  three\n  four", vt_text_wrap(&b, "one two three  four", 2, 9));
    EXPECT("", vt_text_wrap(&b, "  ", 2, 9));
    EXPECT("unbreakable\n  x", vt_text_wrap(&b, "unbreakable x", 2, 5));
}

static void test_text_bar_when_share_small_then_visible(void **state)
{
    (void)state;
    EXPECT("", vt_text_bar(&b, 0, 10));
    EXPECT("", vt_text_bar(&b, NAN, 10));
    EXPECT("▇", vt_text_bar(&b, 0.001, 10));
    EXPECT("▇▇▇▇▇", vt_text_bar(&b, 0.5, 10));
    EXPECT("▇▇", vt_text_bar(&b, 7.0, 2));
}

static void test_text_spark_when_fewer_cells_then_means(void **state)
{
    (void)state;
    const double v[] = {0, 1, 8, 8}, flat[] = {0, 0}, hole[] = {NAN, 1};
    EXPECT("▁▂██", vt_text_spark(&b, v, 4, 10));
    EXPECT("▁█", vt_text_spark(&b, v, 4, 2));
    EXPECT("▁▁", vt_text_spark(&b, flat, 2, 2));
    EXPECT(" █", vt_text_spark(&b, hole, 2, 2));
    EXPECT("", vt_text_spark(&b, v, 0, 2));
}

static void test_table_wider_than_the_terminal_then_its_text_goes_on_below(void **state)
{
    (void)state;
    vt_term narrow = {.width = 40};
    vt_buf b = {0};
    vt_table t;
    vt_table_init(&t, "case|>time|of roof");
    vt_table_cell(&t, "tokens=512 type=BF16 a_long_word_without_a_blank");
    vt_table_cell(&t, "12.3 ms");
    vt_table_cell(&t, "20 %% memory");
    vt_table_cell(&t, "short");
    vt_table_cell(&t, "4 us");
    vt_table_cell(&t, "1 %%");
    vt_table_finish(&t, &b, &narrow, 1);
    assert_string_equal(b.data, " case                  time  of roof\n"
                                " tokens=512         12.3 ms  20 % memory\n"
                                " type=BF16\n"
                                " a_long_word_witho\n"
                                " ut_a_blank\n"
                                " short                 4 us  1 %\n");
    vt_buf_release(&b);
}

static void test_table_when_finished_then_aligned_and_cut(void **state)
{
    (void)state;
    vt_buf b = {0};
    vt_table t;
    vt_term narrow = {.width = 12};
    vt_table_init(&t, "op|>time");
    vt_table_cell(&t, "é");
    vt_table_cell(&t, "%d us", 7);
    vt_table_cell(&t, "linear");
    vt_table_cell(&t, "12 us");
    vt_table_finish(&t, &b, &plain, 1);
    assert_string_equal(b.data, " op       time\n é        7 us\n linear  12 us\n");
    vt_buf_clear(&b);
    vt_table_init(&t, "a|b");
    vt_table_cell(&t, "0123456789");
    vt_table_cell(&t, "0123456789");
    vt_table_finish(&t, &b, &narrow, 0);
    assert_string_equal(b.data, "a\n0123456789\n"); /* the second column begins at cell 12 */
    vt_buf_release(&b);
}

static void test_text_ink_when_no_colour_then_bare(void **state)
{
    (void)state;
    vt_term colour = {.colour = true, .width = 80};
    EXPECT("x", vt_text_ink(&b, &plain, VT_INK_RED, "x"));
    EXPECT("\033[31mx\033[0m", vt_text_ink(&b, &colour, VT_INK_RED, "x"));
}

static void test_progress_when_total_known_then_bar_and_time_left(void **state)
{
    (void)state;
    EXPECT("load  [############............]  50 %  5.00 MB/s  1 s left",
           vt_text_progress(&b, "load", 5e6, 1e7, 1, "B"));
    EXPECT("load  0 B/s", vt_text_progress(&b, "load", 0, 0, 0, "B"));
}

/* However the text is cut in two, it shows the same. */
static void expect_shown(const char *want, const char *text, size_t len)
{
    for (size_t cut = 0; cut <= len; cut++) {
        vt_buf b = {0};
        vt_shown s = {0};
        vt_text_show(&b, &s, text, cut);
        vt_text_show(&b, &s, text + cut, len - cut);
        vt_text_show_end(&b, &s);
        assert_string_equal(b.data ? b.data : "", want);
        assert_int_equal(b.len, strlen(want));
        vt_buf_release(&b);
    }
}
#define SHOWN(want, text) expect_shown(want, text, sizeof(text) - 1)
#define BAD "\xef\xbf\xbd"

static void test_text_show_when_harmless_then_unchanged(void **state)
{
    (void)state;
    SHOWN("", "");
    SHOWN("a\tb\nc", "a\tb\nc");
    SHOWN("héllo 日本 \U0001f600 e\xcc\x81 \u200d\u00a0",
          "héllo 日本 \U0001f600 e\xcc\x81 \u200d\u00a0");
}

static void test_text_show_when_controls_then_replaced_however_it_is_cut(void **state)
{
    (void)state;
    SHOWN(BAD "]52;c;aGk=" BAD, "\033]52;c;aGk=\a");
    SHOWN("a" BAD "2J" BAD BAD "b", "a\xc2\x9b"
                                    "2J\x7f\xc2\x80"
                                    "b");
    SHOWN("x" BAD "y" BAD "z" BAD BAD, "x\u202ey\u2066z\u200f\u061c");
    SHOWN("l" BAD "r" BAD "i" BAD "e" BAD, "l\u202ar\u2067i\u2068e\u2069"); /* bidi, one by one */
    SHOWN("zero" BAD, "zero\0");
    SHOWN("\u00a0", "\xc2\xa0"); /* the first character after C1 */
}

static void test_text_show_when_carriage_return_then_only_at_the_end_of_a_line(void **state)
{
    (void)state;
    SHOWN("one\ntwo\n", "one\r\ntwo\r\n");
    SHOWN("one" BAD "two" BAD, "one\rtwo\r");
    SHOWN(BAD "\né", "\r\r\né");
}

static void test_text_show_when_ill_formed_then_one_mark_for_each_part(void **state)
{
    (void)state;
    SHOWN("a" BAD "b", "a\x9b"
                       "b"); /* C1 as one byte, which some terminals obey */
    SHOWN(BAD "x" BAD, "\xe6\x97x\xf0\x9f\x98");
    SHOWN(BAD BAD BAD, "\xed\xa0\x80");
}

static void test_text_clean_line_when_hostile_then_one_harmless_line(void **state)
{
    (void)state;
    char text[] = "a\nb\tc\033[0m \xc2\x9b"
                  "1 \u202e \xff é \xe6\x97";
    vt_text_clean_line(text);
    assert_string_equal(text, "a b c [0m  1   ? é ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_width_when_wide_or_combining_then_cells),
        cmocka_unit_test(test_text_units_when_scaled_then_three_digits),
        cmocka_unit_test(test_text_printf_when_a_unit_follows_then_a_figure),
        cmocka_unit_test(test_text_wrap_when_long_then_within_width),
        cmocka_unit_test(test_text_bar_when_share_small_then_visible),
        cmocka_unit_test(test_text_spark_when_fewer_cells_then_means),
        cmocka_unit_test(test_table_when_finished_then_aligned_and_cut),
        cmocka_unit_test(test_table_wider_than_the_terminal_then_its_text_goes_on_below),
        cmocka_unit_test(test_text_ink_when_no_colour_then_bare),
        cmocka_unit_test(test_text_show_when_harmless_then_unchanged),
        cmocka_unit_test(test_text_show_when_controls_then_replaced_however_it_is_cut),
        cmocka_unit_test(test_text_show_when_carriage_return_then_only_at_the_end_of_a_line),
        cmocka_unit_test(test_text_show_when_ill_formed_then_one_mark_for_each_part),
        cmocka_unit_test(test_text_clean_line_when_hostile_then_one_harmless_line),
        cmocka_unit_test(test_progress_when_total_known_then_bar_and_time_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
