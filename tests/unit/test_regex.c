/* The regular-expression engine: what matches where, what is refused, and that it never hangs. Its
 * agreement with Oniguruma on whole texts is tested through test_tokenizer_golden.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "text/regex/regex.h"

/* All matches as "start-end start-end ...". */
static void find_all(const char *pattern, const char *text, char *out, size_t size)
{
    vt_regex *re = NULL;
    vt_err err = {0};
    vt_regex_scratch scratch = {0};
    if (vt_regex_compile(pattern, strlen(pattern), &re, &err) != VT_OK)
        fail_msg("%s: %s", pattern, err.message);
    size_t n = strlen(text), from = 0, start, end, used = 0;
    vt_regex_scratch_begin(&scratch, n);
    out[0] = 0;
    while (from <= n && vt_regex_find(re, &scratch, text, n, from, &start, &end) == 1) {
        used += (size_t)snprintf(out + used, size - used, "%s%zu-%zu", used ? " " : "", start, end);
        from = end > start ? end : end + 1;
    }
    vt_regex_scratch_release(&scratch);
    vt_regex_free(re);
}

static void test_regex_matches_are_leftmost_and_alternatives_in_order(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *text, *want;
    } cases[] = {
        {"a|ab", "xab", "1-2"},
        {"ab|a", "xab", "1-3"},
        {"a*", "aab", "0-2 2-2 3-3"},
        {"a+?", "aa", "0-1 1-2"},
        {"a{2}", "aaaaa", "0-2 2-4"},
        {"a{2,}", "aaaaa", "0-5"},
        {"a{,2}b", "aaab", "1-4"},
        {"x{", "x{", "0-2"},
        {"a++a", "aaa", ""},
        {"(?>a|ab)c", "abc", ""},
        {"(?:ab)*c", "ababc", "0-5"},
        {"(?:ab){1,2}", "ababab", "0-4 4-6"},
        {"(a*)*b", "aab", "0-3"},
        {"(?i:don't)", "DON'T don't", "0-5 6-11"},
        {"(?i)a|b", "AB", "0-1 1-2"},
        {"(?i:a)b", "aB Ab", "3-5"},
        {"(?i:s)", "s\xC5\xBFS", "0-1 1-3 3-4"},
        {"a(?=b)", "acab", "2-3"},
        {"a(?!b)", "abac", "2-3"},
        {"(?<=a)b", "bab", "2-3"},
        {"(?<!a)b", "bab", "0-1"},
        {"\\s+(?!\\S)|\\s+", "a  b ", "1-2 2-3 4-5"},
        {"^a", "a\na", "0-1 2-3"},
        {"a$", "a\na", "0-1 2-3"},
        {"\\Aa", "aa", "0-1"},
        {"a\\z", "aa", "1-2"},
        {"\\ba", "a ba a", "0-1 5-6"},
        {"[a-c&&[^b]]+", "abcca", "0-1 2-5"},
        {"[]a]", "a]", "0-1 1-2"},
        {"[^\\d]", "1a", "1-2"},
        {"[a\\-z]+", "a-zb", "0-3"},
        {".", "\n\xC3\xA9", "1-3"},
        {"\\x{1F600}", "\xF0\x9F\x98\x80", "0-4"},
        {"\\u00e9", "\xC3\xA9", "0-2"},
        {"\\p{Han}+", "a\xE6\xBC\xA2\xE5\xAD\x97z", "1-7"},
        {"\\p{Lu}\\p{Ll}", "aB Ab", "3-5"},
        {"\\P{L}", "a1", "1-2"},
        {"\\p{^L}", "a1", "1-2"},
        {"\\p{L}", "\xE1\xB2\x89", "0-3"}, /* U+1C89, new in Unicode 16 */
    };
    char got[256];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        find_all(cases[i].pattern, cases[i].text, got, sizeof got);
        if (strcmp(got, cases[i].want) != 0)
            fail_msg("/%s/: got '%s', want '%s'", cases[i].pattern, got, cases[i].want);
    }
}

static void test_regex_unknown_constructs_are_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *message;
    } cases[] = {
        {"(a", "regex: ( without )"},
        {"a)", "regex: ) without ( at byte 1"},
        {"[a", "regex: [ without ]"},
        {"*a", "regex: nothing to repeat at byte 0"},
        {"(a)\\1", "regex: \\1 is not supported"},
        {"(?<n>a)", "regex: group (?<n is not supported"},
        {"[[:alpha:]]", "regex: POSIX bracket [: is not supported"},
        {"\\p{Klingon}", "regex: property \\p{Klingon} is not known"},
        {"(?<=a*)b", "regex: lookbehind of varying length is not supported"},
        {"a{2,1}", "regex: repetition {2,1} is out of range"},
        {"[b-a]", "regex: an empty range in a class at byte 4"},
        {"\\", "regex: a backslash ends the pattern"},
        {"\xFF", "regex: the pattern is not UTF-8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        vt_regex *re = NULL;
        vt_err err = {0};
        assert_int_equal(vt_regex_compile(cases[i].pattern, strlen(cases[i].pattern), &re, &err),
                         VT_ERR_UNSUPPORTED);
        assert_string_equal(err.message, cases[i].message);
        assert_null(re);
    }
}

static void test_regex_deep_nesting_and_huge_programs_are_refused(void **state)
{
    (void)state;
    char deep[4000];
    memset(deep, '(', 2000);
    memset(deep + 2000, ')', 2000);
    vt_regex *re = NULL;
    assert_int_equal(vt_regex_compile(deep, sizeof deep, &re, NULL), VT_ERR_UNSUPPORTED);
    static const char huge[] = "(((ab){99}){99}){99}";
    assert_int_equal(vt_regex_compile(huge, strlen(huge), &re, NULL), VT_ERR_UNSUPPORTED);
}

static void test_regex_exponential_backtracking_gives_up(void **state)
{
    (void)state;
    static const char pattern[] = "(?:(?:a|b|ab)*)*c";
    char text[200];
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = "ab"[i % 2];
    vt_regex *re = NULL;
    vt_regex_scratch scratch = {0};
    size_t start, end;
    assert_int_equal(vt_regex_compile(pattern, strlen(pattern), &re, NULL), VT_OK);
    vt_regex_scratch_begin(&scratch, 0);
    assert_int_equal(vt_regex_find(re, &scratch, text, sizeof text, 0, &start, &end), -1);
    vt_regex_scratch_release(&scratch);
    vt_regex_free(re);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_regex_matches_are_leftmost_and_alternatives_in_order),
        cmocka_unit_test(test_regex_unknown_constructs_are_refused_by_name),
        cmocka_unit_test(test_regex_deep_nesting_and_huge_programs_are_refused),
        cmocka_unit_test(test_regex_exponential_backtracking_gives_up),
    };
    return cmocka_run_group_tests_name("regex", tests, NULL, NULL);
}
