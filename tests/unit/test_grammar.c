/* Grammars (src/grammar): each front end accepts and refuses texts byte by byte; masks allow
 * exactly the tokens that can be taken; what cannot be enforced is refused with its place. */
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

static void test_examples_when_taken_byte_by_byte_then_accepted_as_they_should(void **state)
{
    (void)state;
    int failed = 0;
    for (size_t i = 0; i < EXAMPLES; i++) {
        const example *e = &examples[i];
        vt_grammar *g = compile(e->kind, e->grammar);
        for (int k = 0; k < 12 && e->good[k]; k++)
            if (!accepts(g, e->good[k]))
                failed++, print_error("%s does not accept %s\n", e->grammar, e->good[k]);
        for (int k = 0; k < 12 && e->bad[k]; k++)
            if (accepts(g, e->bad[k]))
                failed++, print_error("%s accepts %s\n", e->grammar, e->bad[k]);
        vt_grammar_unref(g);
    }
    assert_int_equal(failed, 0);
}

static void test_end_token_when_the_text_may_not_end_or_has_ended_then_refused(void **state)
{
    (void)state;
    vt_grammar *g = compile(G, "root ::= \"ab\"");
    vt_matcher *m = vt_matcher_new(g, 0);
    int32_t end = vocab->eos[0];
    vt_matcher_undo(m, 1);                 /* there is nothing to take back */
    assert_false(vt_matcher_take(m, end)); /* "ab" is to come */
    assert_true(vt_matcher_take(m, 'a') && vt_matcher_take(m, 'b'));
    assert_true(vt_matcher_take(m, end));
    assert_false(vt_matcher_take(m, end));
    vt_matcher_undo(m, 1);
    assert_true(vt_matcher_take(m, end));
    vt_matcher_undo(m, 3);
    assert_true(vt_matcher_take(m, 'a'));
    vt_matcher_free(m);
    vt_grammar_unref(g);
}

/* ---- masks ---- */

static bool bit(const uint32_t *words, int32_t id) { return words[id / 32] >> id % 32 & 1; }

/* A token is allowed if and only if its bytes, as tokens of one byte, can be taken one after the
 * other. Writes down those that are, but for the end, and returns how many they are. */
static int32_t check_mask(vt_matcher *m, int step, int32_t allowed[1024])
{
    int32_t n = vt_tokenizer_vocab(tokenizer), n_words = (n + 31) / 32, n_allowed = 0;
    uint32_t words[64] = {0};
    if (!vt_matcher_mask(m, words, n_words))
        fail_msg("nothing is allowed");
    for (int32_t id = 0; id < n; id++) {
        vt_buf piece = {0};
        bool can = id < n - 1;
        if (can)
            vt_tokenizer_piece(tokenizer, id, &piece);
        size_t taken = 0;
        for (; can && taken < piece.len; taken++)
            if (!vt_matcher_take(m, (unsigned char)piece.data[taken]))
                break;
        can = id == n - 1 ? vt_matcher_accepts(m) : taken == piece.len;
        vt_matcher_undo(m, (int32_t)taken);
        if (can != bit(words, id))
            fail_msg("step %d, token %d '%s': mask says %d, its bytes say %d", step, id,
                     piece.len ? piece.data : "", bit(words, id), can);
        vt_buf_release(&piece);
        if (can && id != n - 1)
            allowed[n_allowed++] = id;
    }
    return n_allowed;
}

/* Walks at random through what is allowed. */
static void check_masks(vt_grammar *g, uint64_t draw)
{
    vt_matcher *m = vt_matcher_new(g, 0);
    for (int step = 0; step < 40; step++) {
        int32_t allowed[1024], n = check_mask(m, step, allowed);
        if (n == 0)
            break;
        assert_true(vt_matcher_take(m, allowed[vt_random_next(&draw) % (uint64_t)n]));
    }
    vt_matcher_free(m);
}

static void test_mask_when_walking_at_random_then_exactly_what_can_be_taken(void **state)
{
    (void)state;
    for (size_t i = 0; i < EXAMPLES; i++) {
        vt_grammar *g = compile(examples[i].kind, examples[i].grammar);
        for (uint64_t run = 1; run <= 6; run++)
            check_masks(g, run * 1000 + i);
        vt_grammar_unref(g);
    }
}

/* Walks at random, a byte at a time, so that every count is met, to the end of the text. */
static void check_masks_by_byte(vt_grammar *g, uint64_t draw)
{
    vt_matcher *m = vt_matcher_new(g, 0);
    for (int step = 0; step < 120; step++) {
        int32_t allowed[1024], n = check_mask(m, step, allowed), bytes = 0;
        while (bytes < n && allowed[bytes] < 256)
            bytes++;
        if (bytes == 0)
            break;
        assert_true(vt_matcher_take(m, allowed[vt_random_next(&draw) % (uint64_t)bytes]));
    }
    vt_matcher_free(m);
}

static void test_mask_when_a_repeat_is_counted_then_exact_at_both_bounds(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNTED; i++) {
        vt_grammar *g = compile(counted[i].kind, counted[i].grammar);
        for (uint64_t run = 1; run <= 4; run++)
            check_masks_by_byte(g, run * 1000 + i);
        for (uint64_t run = 1; run <= 4; run++)
            check_masks(g, run * 1000 + i);
        vt_grammar_unref(g);
    }
}

/* The vocabulary is walked once for all of them, and once for each near a bound. */
static void test_mask_when_counts_are_beyond_any_token_then_walked_once(void **state)
{
    (void)state;
    static const char *const pattern[] = {"[a-z ,.]{600}", "([a-z]{1,200} ){1,300}x{700}",
                                          "[a-c]{600,}x|[a-d]{700,900}"};
    for (size_t i = 0; i < sizeof pattern / sizeof *pattern; i++) {
        vt_grammar *g = compile(R, pattern[i]);
        vt_matcher *m = vt_matcher_new(g, 0);
        int32_t allowed[1024], walks = 0;
        for (int step = 0; step < 150; step++) {
            assert_true(check_mask(m, step, allowed) > 0);
            assert_true(vt_matcher_take(m, 'a'));
        }
        for (const split_use *u = g->m.splits; u; u = u->next)
            walks++;
        assert_in_range(walks, 1, 3);
        vt_matcher_free(m);
        vt_grammar_unref(g);
    }
}

/* ---- the end ---- */

/* Takes at random what masks allow, the end only where nothing else is left. True: it has ended, or
 * could, after at most `most` tokens. */
static bool closes_in_time(vt_grammar *g, int32_t most, uint64_t draw)
{
    int32_t n = vt_tokenizer_vocab(tokenizer), n_words = (n + 31) / 32;
    vt_matcher *m = vt_matcher_new(g, most);
    bool ended = false;
    for (int32_t used = 0; used < most && !ended; used++) {
        uint32_t words[64] = {0};
        int32_t allowed[1024] = {0}, n_allowed = 0;
        assert_true(vt_matcher_mask(m, words, n_words));
        for (int32_t id = 0; id < n; id++)
            if (bit(words, id))
                allowed[n_allowed++] = id;
        int32_t id = allowed[vt_random_next(&draw) % (uint64_t)n_allowed];
        if (id == n - 1 && n_allowed > 1)
            id = allowed[0];
        ended = id == n - 1;
        assert_true(vt_matcher_take(m, id));
    }
    ended |= vt_matcher_accepts(m);
    vt_matcher_free(m);
    return ended;
}

static void test_answer_when_tokens_run_out_then_it_has_been_closed(void **state)
{
    (void)state;
    static const char *const schema[] = {
        "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"object\"},\"b\":{\"type\":"
        "\"array\","
        "\"minItems\":1,\"items\":{\"type\":\"string\",\"minLength\":7}}},\"required\":[\"b\"]}",
        "{\"$defs\":{\"t\":{\"anyOf\":[{\"type\":\"null\"},{\"type\":\"array\",\"minItems\":9,"
        "\"items\":{\"$ref\":\"#/$defs/t\"}}]}},\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/"
        "t\"}}",
        "{}", "{\"type\":\"object\"}", "{\"type\":\"array\",\"items\":{\"type\":\"string\"}}",
        "{\"type\":\"string\",\"pattern\":\"^([a-c]{1,90} ){0,90}x{20}(aaaa){1,50}$\"}",
        "{\"type\":\"string\",\"pattern\":\"^([a-c]{20} |b{30}c{0,200})$\"}",
        /* counts that no token gets to the end of */
        "{\"type\":\"string\",\"pattern\":\"^(x|[7-9]{90})$\"}",
        "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\",\"minLength\":5},\"b\":{"
        "\"type\":\"array\",\"minItems\":2,\"items\":{\"type\":\"integer\"}}},\"required\":[\"a\","
        "\"b\"],\"additionalProperties\":false}"};
    enum { N = sizeof schema / sizeof *schema };
    for (uint64_t run = 1; run <= 900; run++) {
        vt_grammar *g = compile(VT_GRAMMAR_JSON_SCHEMA, schema[run % N]);
        int32_t most = 40 + (int32_t)(run % 37);
        if (!closes_in_time(g, most, run))
            fail_msg("schema %d: still open after %d tokens", (int)(run % N), most);
        vt_grammar_unref(g);
    }
}

/* A string is longer in bytes than in tokens. */
static void test_answer_when_tokens_are_fewer_than_bytes_then_it_has_been_closed(void **state)
{
    (void)state;
    static const char *const schema[] = {
        "{\"type\":\"object\",\"properties\":{\"the\":{\"type\":\"string\"},\"name the "
        "name\":{\"enum\":[\"the the the the\",\"aaaaaaaaaaaaaaa\"]},\"z\":{\"const\":\"the "
        "name\"}},\"required\":[\"the\",\"name the name\",\"z\"],\"additionalProperties\":false}",
        "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"array\",\"items\":{\"type\":"
        "\"string\",\"minLength\":3}},\"the the the the the\":{\"const\":\"the the the\"}},"
        "\"required\":[\"the the the the the\"]}",
        "{\"type\":\"string\",\"pattern\":\"^[a-e]{2,}(the ){9}$\"}"};
    enum { N = sizeof schema / sizeof *schema };
    for (uint64_t run = 1; run <= 120; run++) {
        vt_grammar *g = compile(VT_GRAMMAR_JSON_SCHEMA, schema[run % N]);
        int32_t least = machine_least(&g->m, g->m.start);
        int32_t tokens = machine_tokens(&g->m, g->m.start, least);
        assert_in_range(tokens, 2, least - 4);
        int32_t most = tokens + (int32_t)(run / N % 7);
        if (!closes_in_time(g, most, run))
            fail_msg("schema %d: still open after %d tokens", (int)(run % N), most);
        vt_grammar_unref(g);
    }
}

/* ---- refusals ---- */

static void test_grammar_when_it_cannot_be_enforced_then_refused_with_its_place(void **state)
{
    (void)state;
    static const struct {
        vt_grammar_kind kind;
        const char *text, *says;
    } bad[] = {
        {S, "{\"properties\":{\"a\":{\"not\":{\"unevaluatedItems\":false}}}}",
         "#/properties/a/not/unevaluatedItems"},
        {S, "{\"type\":\"array\",\"uniqueItems\":true}", "#/uniqueItems"},
        {S, "{\"not\":{}}", "no text of finite length"},
        {S, "{\"not\":{\"$ref\":\"#\"}}", ""},
        {S, "{\"dependentRequired\":{\"a\":1}}", "#/dependentRequired"},
        {S, "{\"if\":3,\"then\":{}}", "expected a schema"},
        {S, "{\"not\":{\"format\":\"date\"}}", "#/not/format"},
        {S, "{\"$ref\":\"#x\"}", "leads nowhere"},
        {S,
         "{\"$defs\":{\"a\":{\"$id\":\"a\",\"$dynamicAnchor\":\"t\"},\"b\":{\"$id\":\"b\",\"$"
         "dynamicAnchor\":\"t\"}},\"$dynamicRef\":\"a#t\"}",
         "more than one schema has the $dynamicAnchor 't'"},
        {S,
         "{\"$defs\":{\"a\":{\"$dynamicAnchor\":\"t\"},\"b\":{\"$dynamicAnchor\":\"t\"}},\"$"
         "dynamicRef\":\"#t\"}",
         "more than one schema has the $dynamicAnchor 't'"},
        {S,
         "{\"$defs\":{\"a\":{\"$id\":\"a\",\"$recursiveAnchor\":true,\"items\":{\"$recursiveRef\":"
         "\"#\"}},\"b\":{\"$id\":\"b\",\"$recursiveAnchor\":true}},\"$ref\":\"a\"}",
         "more than one schema has a $recursiveAnchor"},
        {S, "{\"enum\":[]}", "no text of finite length"},
        {S, "{\"enum\":3}", "#/enum: expected a list of values"},
        {S,
         "{\"oneOf\":[{\"type\":\"string\",\"format\":\"date\"},{\"type\":\"string\",\"pattern\":"
         "\"2\"}]}",
         "/not/format: not supported inside of not"},
        {S, "{\"type\":\"strin\"}", "'strin' is no type"},
        {S, "{\"$ref\":\"#/$defs/x\"}", "leads nowhere"},
        {S, "{\"$ref\":\"https://example.com/a.json\"}", "another document"},
        {S, "{\"type\":\"integer\",\"minimum\":5,\"maximum\":3}", "no text of finite length"},
        {S, "{\"type\":\"object\",\"properties\":{\"c\":{\"$ref\":\"#\"}},\"required\":[\"c\"]}",
         "no text of finite length"},
        {S, "{\"type\":\"string\",\"pattern\":\"(a)\\\\1\"}", "#/pattern: pattern (a)\\1"},
        {S, "{\"type\":\"string\",\"pattern\":\"[\"}", "[ without ]"},
        {S, "{\"type\":\"array\",\"minItems\":100000}", "expected at most 10000"},
        {S, "{\"type\":\"array\",\"minItems\":1.5}", "minItems"},
        {S, "{\"type\":\"integer\",\"multipleOf\":-2}", "multipleOf"},
        {S, "{\"a\":", "schema"},
        {S, "{\"additionalProperties\":{\"type\":\"object\",\"divisibleBy\":2}}",
         "#/additionalProperties/divisibleBy"},
        {R, "a{2,1}", "below its beginning"},
        {R, "\\bfoo", "\\b and \\B are not supported"},
        {R, "\\p{letter}", "an unknown property"},
        {R, "\\p{scx=Latn}", "an unknown property"},
        {R, "\\p{gc=}", "an unknown property"},
        {R, "\\p{Script=L}", "an unknown property"},
        {R, "(?<=a)b", "lookbehind"},
        {R, "((((a{1000}){1000}){1000}){1000}){1000}", ""},
        {VT_GRAMMAR_CHOICE, "[]", "1 to"},
        {VT_GRAMMAR_CHOICE, "[\"a\",1]", "entry 1"},
        {G, "root ::= root \"a\" | \"b\"", "root begins with itself"},
        {G, "root ::= a", "rule a is not defined"},
        {G, "a ::= \"x\"", "no rule is called root"},
        {G, "root ::= \"x", "closing quote"},
        {G, "root ::= [b-a]", "line 1"},
        {G, "root ::= \"a\"{2000000,}", "line 1"},
        {G, "root ::= <think>", "tokens such as"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        vt_grammar *g = NULL;
        vt_err err = {0};
        vt_status status = vt_grammar_compile(vocab, bad[i].kind, bad[i].text, strlen(bad[i].text),
                                              &g, &err);
        if (!bad[i].says[0]) { /* either, but it ends */
            vt_grammar_unref(g);
            continue;
        }
        if (status == VT_OK)
            fail_msg("%s is not refused", bad[i].text);
        if (!strstr(err.message, bad[i].says))
            fail_msg("%s: '%s' does not say '%s'", bad[i].text, err.message, bad[i].says);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_examples_when_taken_byte_by_byte_then_accepted_as_they_should),
        cmocka_unit_test(test_end_token_when_the_text_may_not_end_or_has_ended_then_refused),
        cmocka_unit_test(test_mask_when_walking_at_random_then_exactly_what_can_be_taken),
        cmocka_unit_test(test_mask_when_a_repeat_is_counted_then_exact_at_both_bounds),
        cmocka_unit_test(test_mask_when_counts_are_beyond_any_token_then_walked_once),
        cmocka_unit_test(test_answer_when_tokens_run_out_then_it_has_been_closed),
        cmocka_unit_test(test_answer_when_tokens_are_fewer_than_bytes_then_it_has_been_closed),
        cmocka_unit_test(test_grammar_when_it_cannot_be_enforced_then_refused_with_its_place),
    };
    return cmocka_run_group_tests(tests, grammar_set_up, grammar_tear_down);
}
