/* Stamps of kernels without a GPU: the text of a stamped kernel, its parameters, and what the host
 * reads of its words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>

#include "device/cuda/jit_stamp.h"
#include "device/cuda/stamps.h"

static int32_t lines_before(const char *text, const char *words)
{
    int32_t n = 0;
    const char *at = strstr(text, words);
    assert_non_null(at);
    for (const char *p = text; p < at; p++)
        n += *p == '\n';
    return n;
}

static void test_stamp_text_when_an_entry_spans_lines_then_its_body_stays_on_its_line(void **state)
{
    (void)state;
    static const char text[] =
        "// KERNEL add(const __grid_constant__ x p) is told of below\n"
        "KERNEL other(const __grid_constant__ other_params p)\n{\n}\n"
        "KERNEL __launch_bounds__(kWarps * (16 + 16), 2)\n"
        "    add(const __grid_constant__ add_params  q)\n{\n    if (q.n)\n        return;\n}\n";
    vt_buf b = {0};
    assert_true(jit_stamp_text(&b, text, "add"));
    assert_int_equal(lines_before(b.data, "if (q.n)"), lines_before(text, "if (q.n)"));
    assert_non_null(strstr(b.data, "KERNEL other(const __grid_constant__ other_params p)\n{\n}\n"));
    assert_non_null(
        strstr(b.data, "struct alignas(64) add_stamped { add_params p; u64 *at, *ctas; };"));
    assert_non_null(strstr(b.data, "KERNEL __launch_bounds__(kWarps * (16 + 16), 2)     add(const "
                                   "__grid_constant__ add_stamped s) { if (STAMPED & STAMP_CTAS && "
                                   "s.ctas) stamp_cta_begin(s.ctas); stamp_begin(s.at); "
                                   "add_body(s.p); if (STAMPED & STAMP_ENDS) stamp_end(s.at); "
                                   "if (STAMPED & STAMP_CTAS && s.ctas) stamp_cta_end(s.ctas); }"));
    assert_non_null(strstr(b.data, "INLINE void stamp_waited() {"));
    assert_non_null(strstr(b.data, "[add_param_0+%1]"));
    assert_non_null(strstr(b.data, "INLINE void add_body(const add_params &q)\n{"));
    vt_buf_clear(&b);
    static const char *const refused[] = {
        "",
        "KERNEL",
        "KERNEL add",
        "KERNEL add(",
        "KERNEL add(const __grid_constant__ add_params)",
        "KERNEL __launch_bounds__(2 add(const __grid_constant__ a p)",
        "KERNEL add(int *p) {",
        "KERNEL added(const __grid_constant__ a p) {"};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        assert_false(jit_stamp_text(&b, refused[i], "add"));
        assert_int_equal(b.len, 0);
    }
    vt_buf_release(&b);
}

/* The address lies behind the parameters, and the whole is as large as the struct of the text. */
static void test_stamped_params_when_taken_then_as_the_kernel_declares_them(void **state)
{
    (void)state;
    static const struct {
        size_t bytes, behind, all;
    } want[] = {{4, 8, 64},    {48, 48, 64},    {49, 56, 128},
                {56, 56, 128}, {128, 128, 192}, {4032, 4032, 4096}};
    static char params[4096];
    cuda_stamp_note note[8];
    uint64_t places[3 * STAMP_LAUNCHES * STAMP_WORDS] = {0};
    cuda_stamps s = {.at = places, .call = 2, .note = note, .max_notes = 8};
    cuda_stamped_params out;
    assert_int_equal(cuda_stamps_bytes(3), sizeof places);
    memset(params, 7, sizeof params);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        uint64_t *at;
        s.ends = i % 2;
        assert_int_equal(cuda_stamps_form(&s),
                         s.ends ? STAMP_LAUNCHED + STAMP_ENDS : STAMP_LAUNCHED);
        assert_int_equal(cuda_stamps_take(&s, 40, 12, params, want[i].bytes, &out, NULL), VT_OK);
        memcpy(&at, out.bytes + want[i].behind, sizeof at);
        int32_t launch = (int32_t)i < STAMP_LAUNCHES ? (int32_t)i : STAMP_LAUNCHES - 1;
        assert_ptr_equal(at, places + (2 * STAMP_LAUNCHES + launch) * STAMP_WORDS);
        assert_memory_equal(out.bytes, params, want[i].bytes);
        assert_int_equal(out.n, want[i].all);
    }
    assert_int_equal(cuda_stamps_take(&s, 40, 12, params, 4090, &out, NULL), VT_ERR_DEVICE);
    cuda_stamps_library(&s, 41);
    assert_int_equal(s.n_notes, 7);
    assert_true(note[6].library && note[6].kernel == 41 && note[6].call == 2);
    uint64_t *words = places + 2 * STAMP_LAUNCHES * STAMP_WORDS;
    words[STAMP_BEGAN] = 990;
    words[STAMP_WAITED] = 1000;
    assert_int_equal(cuda_stamps_read(places, &note[0]).begin, 990);
    assert_int_equal(cuda_stamps_read(places, &note[0]).before, 1000);
    assert_int_equal(cuda_stamps_read(places, &note[0]).end, 0); /* it has not stamped it */
    words[STAMP_ENDED] = 1900;
    words[STAMP_ENDED + STAMP_PLACES - 1] = 2000;
    assert_int_equal(cuda_stamps_read(places, &note[0]).end, 2000);
    assert_int_equal(cuda_stamps_read(places, &note[0]).waited, 0);
    assert_int_equal(cuda_stamps_read(places, &note[6]).begin, 0);
    s.launch = 0;
    assert_null(cuda_stamps_waits(NULL));
    cuda_stamps_waits(&s)[0] = ~UINT64_C(30);
    cuda_stamps_waits(&s)[STAMP_WAITS - 1] = ~UINT64_C(12);
    assert_int_equal(cuda_stamps_read(places, &note[0]).waited, 42);
    assert_int_equal(cuda_stamps_read(places, &note[0]).end, 2000);
    assert_int_equal(cuda_stamps_read(places, &note[1]).waited, 0);
}

/* Launches take rows of the table as long as there are enough, and their notes say which. */
static void test_table_of_ctas_when_a_launch_has_too_many_then_it_takes_none(void **state)
{
    (void)state;
    uint64_t rows[8 * STAMP_CTA_WORDS], *row, places[STAMP_LAUNCHES * STAMP_WORDS] = {0};
    cuda_cta_table table = {.at = rows, .most = 8};
    cuda_stamp_note note[4];
    cuda_stamps s = {.at = places, .ctas = &table, .note = note, .max_notes = 4};
    cuda_stamped_params out;
    static const int64_t ctas[] = {5, 4, INT64_C(1) << 40, 3};
    static const int32_t first[] = {0, 0, 0, 5}, n[] = {5, 0, 0, 3};
    assert_int_equal(cuda_stamps_table(8), sizeof rows);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(cuda_stamps_take(&s, 7, ctas[i], "12345678", 8, &out, NULL), VT_OK);
        memcpy(&row, out.bytes + 8 + sizeof(uint64_t), sizeof row);
        assert_ptr_equal(row, n[i] ? rows + first[i] * STAMP_CTA_WORDS : NULL);
        assert_int_equal(note[i].n_ctas, n[i]);
        assert_int_equal(note[i].cta, first[i]);
    }
    assert_int_equal(table.n, 8);
    assert_int_equal(table.n_left_out, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stamp_text_when_an_entry_spans_lines_then_its_body_stays_on_its_line),
        cmocka_unit_test(test_stamped_params_when_taken_then_as_the_kernel_declares_them),
        cmocka_unit_test(test_table_of_ctas_when_a_launch_has_too_many_then_it_takes_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
