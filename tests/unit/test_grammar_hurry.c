/* Calls of a grammar in a hurry (vt_matcher_hurry): one that is broken off leaves nothing behind
 * that a later one gets wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "common/grammar_examples.h"
#include "common/grammar_fixture.h"
#include "grammar/internal.h"

static bool bit(const uint32_t *words, int32_t id) { return words[id / 32] >> id % 32 & 1; }

/* Makes a mask, or takes a token (mask is NULL), three times in a hurry with few steps, and then
 * with as many as it takes. Returns how often it was broken off; *answer is what it said. */
static int hurry(vt_grammar *g, vt_matcher *m, int32_t token, uint32_t *mask, int32_t n_words,
                 uint64_t *draw, bool *answer)
{
    int n_late = 0;
    for (;; n_late++) {
        uint64_t any = vt_random_next(draw);
        g->m.hurried_steps = (int64_t)((any >> 8) & ((1u << any % 16) - 1));
        vt_matcher_hurry(m, n_late < 3);
        if (mask)
            memset(mask, 0, (size_t)n_words * sizeof *mask);
        *answer = mask ? vt_matcher_mask(m, mask, n_words) : vt_matcher_take(m, token);
        if (!vt_matcher_is_late(m))
            return n_late;
        assert_true(!*answer && n_late < 3 && !vt_matcher_is_too_large(m));
    }
}

/* Walks one grammar as it comes and another of the same text in a hurry. Returns how many calls
 * were broken off. */
static int walk_hurried(vt_grammar *calm, vt_grammar *hurried, int32_t most, uint64_t draw)
{
    int32_t n = vt_tokenizer_vocab(tokenizer), n_words = (n + 31) / 32, n_late = 0;
    vt_matcher *a = vt_matcher_new(calm, most), *b = vt_matcher_new(hurried, most);
    for (int step = 0; step < 30; step++) {
        uint32_t one[64] = {0}, two[64];
        int32_t allowed[1024], n_allowed = 0;
        bool some = vt_matcher_mask(a, one, n_words), answer;
        n_late += hurry(hurried, b, 0, two, n_words, &draw, &answer);
        assert_int_equal(answer, some);
        if (some && memcmp(one, two, (size_t)n_words * sizeof *one) != 0)
            fail_msg("step %d: the masks differ", step);
        for (int32_t id = 0; some && id < n; id++)
            if (bit(one, id))
                allowed[n_allowed++] = id;
        if (n_allowed == 0)
            break;
        int32_t id = allowed[vt_random_next(&draw) % (uint64_t)n_allowed];
        assert_true(vt_matcher_take(a, id));
        n_late += hurry(hurried, b, id, NULL, 0, &draw, &answer);
        assert_true(answer);
    }
    vt_matcher_free(a);
    vt_matcher_free(b);
    return n_late;
}

/* Each walk in a hurry has a vocabulary of its own, so that nothing is there already. */
static int check_hurried(vt_grammar_kind kind, const char *text, uint64_t draw)
{
    enum { WALKS = 4 };
    int n_late = 0;
    vt_grammar *calm = compile(kind, text);
    for (uint64_t run = 1; run <= WALKS; run++) {
        vt_grammar_vocab *own;
        vt_grammar *g = NULL;
        vt_err err;
        assert_int_equal(vt_grammar_vocab_new(tokenizer, INT32_MAX, &own, &err), VT_OK);
        assert_int_equal(vt_grammar_compile(own, kind, text, strlen(text), &g, &err), VT_OK);
        n_late += walk_hurried(calm, g, run % 4 ? 0 : 12, draw + run * 1000);
        vt_grammar_unref(g);
        vt_grammar_vocab_free(own);
    }
    vt_grammar_unref(calm);
    return n_late;
}

/* Writes `many` parts, with their numbers, between a beginning and an end. */
static const char *repeated(char *text, size_t size, const char *begin, const char *part, int many,
                            const char *end)
{
    int n = snprintf(text, size, "%s", begin);
    for (int i = 0; i < many; i++) {
        n += snprintf(text + n, size - (size_t)n, "%s", i > 0 ? (*begin == '{' ? "," : "|") : "");
        n += snprintf(text + n, size - (size_t)n, part, 'a' + i % 26, 1 + i / 26, 3 + i);
    }
    snprintf(text + n, size - (size_t)n, "%s", end);
    return text;
}

/* Many ways at once: unions and intersections of many parts take steps while they are made. */
static int check_hurried_in_many_ways(void)
{
    char text[8192];
    size_t size = sizeof text;
    int n = 0;
    n += check_hurried(S, repeated(text, size, "{\"enum\":[", "\"%c%d the %d\"", 90, "]}"), 1);
    n += check_hurried(S,
                       repeated(text, size, "{\"type\":\"string\",\"not\":{\"enum\":[",
                                "\"%c%d %d\"", 90, "]},\"pattern\":\"^[a-m0-9 ]{3,40}$\"}"),
                       2);
    n += check_hurried(
        S, repeated(text, size, "{\"anyOf\":[", "{\"pattern\":\"^%c{%d,%d}b+$\"}", 60, "]}"), 3);
    n += check_hurried(S,
                       repeated(text, size, "{\"patternProperties\":{",
                                "\"^%c{%d}[ab]{0,%d}$\":{\"type\":\"integer\"}", 12, "}}"),
                       4);
    n += check_hurried(R, repeated(text, size, "(?=[a-f ]{5,60}$)(", "%c{%d}[a-f ]{0,%d}", 50, ")"),
                       5);
    n += check_hurried(
        R, repeated(text, size, "(?!the)(?=[a-z0-9]*e)(", "%c%d[a-f]{2,%d}", 40, ")+"), 6);
    return n;
}

static void test_mask_when_calls_were_broken_off_then_as_without(void **state)
{
    (void)state;
    int n_late = check_hurried_in_many_ways();
    for (size_t i = 0; i < EXAMPLES; i++)
        n_late += check_hurried(examples[i].kind, examples[i].grammar, i);
    for (size_t i = 0; i < COUNTED; i++)
        n_late += check_hurried(counted[i].kind, counted[i].grammar, i);
    print_message("%d calls were broken off\n", n_late);
    assert_true(n_late > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mask_when_calls_were_broken_off_then_as_without),
    };
    return cmocka_run_group_tests(tests, grammar_set_up, grammar_tear_down);
}
