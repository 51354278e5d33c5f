/* UTF-8 and normal forms. (The tables are generated from the tokenizers package, so they agree with
 * its categories and mappings; test_tokenizer_golden.c uses them.) */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "text/unicode/unicode.h"

static void test_utf8_every_code_point_survives(void **state)
{
    (void)state;
    for (uint32_t c = 0; c < 0x110000; c++) {
        char s[4];
        uint32_t back;
        if (c >= 0xD800 && c < 0xE000)
            continue;
        int n = vt_utf8_put(c, s);
        if (vt_utf8_step(s, (size_t)n) != n || vt_utf8_next(s, &back) != n || back != c)
            fail_msg("U+%X", c);
        for (int k = 1; k < n; k++)
            if (vt_utf8_step(s, (size_t)k) != 0)
                fail_msg("U+%X cut after %d bytes is not 'unfinished'", c, k);
    }
}

static void test_utf8_ill_formed_parts_become_replacement_characters(void **state)
{
    (void)state;
    static const struct {
        const char *bad, *good;
    } cases[] = {
        {"a\x80z", "a\xEF\xBF\xBDz"},
        {"\xC0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD"},                 /* overlong */
        {"\xED\xA0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"}, /* surrogate */
        {"\xE2\x96z", "\xEF\xBF\xBDz"},                           /* one maximal part */
        {"\xF0\x9F\x98", "\xEF\xBF\xBD"},                         /* cut off */
        {"\xF5\x80", "\xEF\xBF\xBD\xEF\xBF\xBD"},                 /* beyond U+10FFFF */
        {"\xF0\x9F\xF0\x9F\x98\x80", "\xEF\xBF\xBD\xF0\x9F\x98\x80"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        vt_buf b;
        vt_buf_init(&b, 0);
        assert_true(vt_utf8_add_lossy(&b, cases[i].bad, strlen(cases[i].bad)));
        assert_string_equal(b.data, cases[i].good);
        vt_buf_release(&b);
    }
}

static void test_unicode_normal_forms_of_known_texts(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *form[4]; /* NFD, NFC, NFKD, NFKC */
    } cases[] = {
        {"e\xCC\x81x", {"e\xCC\x81x", "\xC3\xA9x", "e\xCC\x81x", "\xC3\xA9x"}},
        {"a\xCC\x80\xCC\xA3", /* grave, dot below: reordered */
         {"a\xCC\xA3\xCC\x80", "\xE1\xBA\xA1\xCC\x80", "a\xCC\xA3\xCC\x80",
          "\xE1\xBA\xA1\xCC\x80"}},
        {"\xEF\xAC\x81", {"\xEF\xAC\x81", "\xEF\xAC\x81", "fi", "fi"}},
        {"\xEA\xB0\x81", /* Hangul GAG */
         {"\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8", "\xEA\xB0\x81",
          "\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8", "\xEA\xB0\x81"}},
        {"\xE1\xBA\x9B\xCC\xA3", /* the standard's example: long s with dots */
         {"\xC5\xBF\xCC\xA3\xCC\x87", "\xE1\xBA\x9B\xCC\xA3", "s\xCC\xA3\xCC\x87", "\xE1\xB9\xA9"}},
        /* a mark that composes with nothing keeps a later one of its class from the letter */
        {"a\xCC\x93\xCC\x81",
         {"a\xCC\x93\xCC\x81", "a\xCC\x93\xCC\x81", "a\xCC\x93\xCC\x81", "a\xCC\x93\xCC\x81"}},
        {"\xE2\x84\xAB", {"A\xCC\x8A", "\xC3\x85", "A\xCC\x8A", "\xC3\x85"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int form = 0; form < 4; form++) {
            vt_buf b;
            vt_buf_init(&b, 0);
            assert_true(
                vt_unicode_normalize(&b, cases[i].text, strlen(cases[i].text), (vt_uform)form));
            assert_string_equal(b.data, cases[i].form[form]);
            vt_buf_release(&b);
        }
}

/* For any text: normalising it twice changes nothing more, and is_normal is never true for a text
 * that normalising would change. */
static void test_unicode_normalising_is_idempotent(void **state)
{
    (void)state;
    uint64_t seed = 88172645463325252u;
    for (int round = 0; round < 2000; round++) {
        vt_buf text, once, twice;
        vt_buf_init(&text, 0);
        vt_buf_init(&once, 0);
        vt_buf_init(&twice, 0);
        for (int i = 0; i < 12; i++) {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            uint32_t c = (uint32_t)(seed >> 20);
            c = seed & 1   ? 0x300 + c % 0x70
                : seed & 2 ? 0x1100 + c % 0x100
                : seed & 4 ? c % 0x3000
                           : 0xAC00 + c % 0x2BA4;
            assert_true(vt_utf8_add(&text, c));
        }
        vt_uform form = (vt_uform)(round % 4);
        assert_true(vt_unicode_normalize(&once, text.data, text.len, form));
        assert_true(vt_unicode_normalize(&twice, once.data, once.len, form));
        assert_string_equal(once.data, twice.data);
        if (vt_unicode_is_normal(text.data, text.len, form))
            assert_string_equal(once.data, text.data);
        vt_buf_release(&text);
        vt_buf_release(&once);
        vt_buf_release(&twice);
    }
}

static void test_unicode_lower_case_goes_character_by_character(void **state)
{
    (void)state;
    static const char upper[] =
        "\xC3\x89\xC4\xB0\xE1\xB2\x89\xCE\xA3"; /* E acute, I dot, U+1C89, Sigma */
    vt_buf b;
    vt_buf_init(&b, 0);
    assert_true(vt_unicode_lower(&b, upper, strlen(upper)));
    assert_string_equal(b.data, "\xC3\xA9i\xCC\x87\xE1\xB2\x8A\xCF\x83");
    vt_buf_release(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_utf8_every_code_point_survives),
        cmocka_unit_test(test_utf8_ill_formed_parts_become_replacement_characters),
        cmocka_unit_test(test_unicode_normal_forms_of_known_texts),
        cmocka_unit_test(test_unicode_normalising_is_idempotent),
        cmocka_unit_test(test_unicode_lower_case_goes_character_by_character),
    };
    return cmocka_run_group_tests_name("unicode", tests, NULL, NULL);
}
