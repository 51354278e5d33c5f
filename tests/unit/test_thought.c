/* Constraints of answers that begin with reasoning (engine/constraint/thought.h): where the grammar
 * begins to hold, the budget, and that what is taken back leaves no trace. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "common/grammar_vocab.h"
#include "engine/constraint/thought.h"

enum { WORDS = 64 };

static vt_tokenizer *tokenizer;
static vt_grammar_vocab *vocab;
static vt_grammar *grammar; /* [0-9]+ */
static vt_grammar *calls;   /* holds behind <tool_call> */

static const char of_calls[] =
    "{\"form\":\"hermes\",\"optional\":true,\"tools\":[{\"name\":\"f\",\"parameters\":"
    "{\"properties\":{\"a\":{\"enum\":[1,2]}},\"required\":[\"a\"],"
    "\"additionalProperties\":false}}]}";

static int set_up(void **state)
{
    (void)state;
    vt_err err;
    tokenizer = grammar_test_tokenizer();
    return tokenizer && vt_tokenizer_vocab(tokenizer) <= 32 * WORDS &&
                   vt_grammar_vocab_new(tokenizer, INT32_MAX, &vocab, &err) == VT_OK &&
                   vt_grammar_compile(vocab, VT_GRAMMAR_REGEX, "[0-9]+", 6, &grammar, &err) ==
                       VT_OK &&
                   vt_grammar_compile(vocab, VT_GRAMMAR_CALLS, of_calls, strlen(of_calls), &calls,
                                      &err) == VT_OK
               ? 0
               : 1;
}

static int tear_down(void **state)
{
    (void)state;
    vt_grammar_unref(grammar);
    vt_grammar_unref(calls);
    vt_grammar_vocab_free(vocab);
    vt_tokenizer_free(tokenizer);
    return 0;
}

static vt_constraint make(vt_grammar *g, bool inside, int32_t budget)
{
    vt_constraint c;
    assert_true(vt_thought_new(
        &(vt_thought_rules){
            .t = tokenizer, .g = g, .inside = inside, .most = 1000, .budget = budget},
        &c));
    return c;
}

/* Single bytes are tokens 0 .. 255. */
static void say(vt_constraint *c, const char *text)
{
    for (; *text; text++)
        assert_true(c->take(c->state, (unsigned char)*text));
}

static bool may(vt_constraint *c, int32_t id)
{
    uint32_t words[WORDS] = {0};
    vt_allowance a = c->mask(c->state, words, WORDS);
    return a == VT_ALLOW_ANY || (a == VT_ALLOW_MASK && (words[id / 32] >> id % 32 & 1));
}

/* The id of a token of the vocabulary. */
static int32_t id_of(const char *text)
{
    for (int32_t id = 0; id < vt_tokenizer_vocab(tokenizer); id++) {
        vt_buf piece = {0};
        (void)vt_tokenizer_piece(tokenizer, id, &piece);
        bool same = piece.len == strlen(text) && memcmp(piece.data, text, piece.len) == 0;
        vt_buf_release(&piece);
        if (same)
            return id;
    }
    fail();
    return -1;
}

/* The one token that may come; -1: none or several. */
static int32_t only(vt_constraint *c)
{
    int32_t id = -1, n = 0;
    for (int32_t i = 0; i < vt_tokenizer_vocab(tokenizer); i++) {
        bool is = may(c, i);
        id = is ? i : id;
        n += is;
    }
    return n == 1 ? id : -1;
}

static void test_grammar_when_the_thought_has_ended_then_it_holds(void **state)
{
    (void)state;
    vt_constraint c = make(grammar, true, 0);
    say(&c, "any <text> at </thin");
    assert_true(may(&c, 'z') && may(&c, 'k'));
    assert_false(may(&c, vt_tokenizer_eos(tokenizer)));
    say(&c, "k>");
    assert_true(may(&c, '7'));
    assert_false(may(&c, 'z') || c.take(c.state, 'z'));
    say(&c, "12");
    assert_true(may(&c, vt_tokenizer_eos(tokenizer)));
    c.free(c.state);
}

static void test_grammar_when_no_thought_begins_then_it_holds_at_once(void **state)
{
    (void)state;
    vt_constraint c = make(grammar, false, 0);
    assert_true(may(&c, '1'));
    assert_false(may(&c, 'a'));
    say(&c, "1");
    c.free(c.state);
}

static void test_budget_when_used_up_then_the_thought_is_closed(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        vt_constraint c = make(i ? grammar : NULL, true, 5);
        say(&c, "abcde");
        vt_buf said = {0};
        while (said.len < strlen("\n</think>\n\n")) {
            int32_t id = only(&c);
            assert_true(id >= 0 && c.take(c.state, id));
            assert_true(vt_tokenizer_piece(tokenizer, id, &said));
        }
        assert_memory_equal(said.data, "\n</think>\n\n", said.len);
        vt_buf_release(&said);
        assert_int_equal(may(&c, 'a'), i == 0);
        assert_true(may(&c, '1'));
        c.free(c.state);
    }
}

static const char call[] = "\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>";

static void test_opening_when_it_has_come_then_the_grammar_holds(void **state)
{
    (void)state;
    for (int none = 0; none < 2; none++) {
        vt_constraint c = make(calls, false, 0);
        if (none) {
            c.free(c.state);
            assert_true(vt_thought_new(
                &(vt_thought_rules){.t = tokenizer, .g = calls, .none = true, .most = 1000}, &c));
        }
        say(&c, "<tool> is a <<tool_cal");
        assert_true(may(&c, vt_tokenizer_eos(tokenizer)) && may(&c, 'x') && may(&c, '<'));
        say(&c, "l>");
        assert_false(may(&c, 'x') || may(&c, vt_tokenizer_eos(tokenizer)));
        say(&c, call);
        assert_true(may(&c, vt_tokenizer_eos(tokenizer)));
        assert_false(may(&c, '\n') || may(&c, 'x')); /* one call, as it does not say several */
        c.free(c.state);
    }
}

static void test_opening_when_a_token_goes_beyond_it_then_the_grammar_sees_the_rest(void **state)
{
    (void)state;
    vt_constraint c = make(calls, true, 0);
    say(&c, "<tool_call> in a thought </think>text ");
    assert_true(may(&c, id_of("<tool_call>")));
    assert_false(may(&c, id_of("<tool_call>x")));
    say(&c, "<tool_cal");
    assert_true(may(&c, id_of("l>\n")));
    assert_false(may(&c, id_of("l>\n\n")));
    assert_true(c.take(c.state, id_of("l>\n")));
    say(&c, call + 1);
    assert_true(may(&c, vt_tokenizer_eos(tokenizer)));
    c.undo(c.state, 3);
    assert_false(may(&c, vt_tokenizer_eos(tokenizer)));
    c.free(c.state);
}

/* A random walk with guesses that are taken back gives the masks of one without them. */
static void test_undo_when_guesses_are_taken_back_then_nothing_is_left(void **state)
{
    (void)state;
    static const char alphabet[] = "a<</think>think>12\n<tool_call>\n";
    uint64_t random = 7;
    for (int walk = 0; walk < 300; walk++) {
        vt_grammar *g = walk % 3 == 1 ? calls : walk % 3 ? grammar : NULL;
        int32_t budget = walk % 3 ? 0 : 9;
        vt_constraint a = make(g, walk % 5 != 0, budget), b = make(g, walk % 5 != 0, budget);
        for (int step = 0; step < 40; step++) {
            uint32_t want[WORDS] = {0}, got[WORDS] = {0};
            int32_t n = 0;
            while (n < VT_DRAFT_MOST &&
                   b.take(b.state, alphabet[vt_random_next(&random) % (sizeof alphabet - 1)]))
                n++;
            b.undo(b.state, n);
            vt_allowance first = a.mask(a.state, want, WORDS);
            assert_int_equal(first, b.mask(b.state, got, WORDS));
            if (first == VT_ALLOW_MASK)
                assert_memory_equal(want, got, sizeof want);
            static const char *const script[] = {
                "x</think>12345678901234567890123456789012345678901234567890",
                "</think><<tool_call>\n{\"name\": \"f\", \"arguments\": {}"};
            bool ok = a.take(a.state, script[g == calls][step]);
            assert_int_equal(ok, b.take(b.state, script[g == calls][step]));
        }
        a.free(a.state);
        b.free(b.state);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grammar_when_the_thought_has_ended_then_it_holds),
        cmocka_unit_test(test_grammar_when_no_thought_begins_then_it_holds_at_once),
        cmocka_unit_test(test_opening_when_it_has_come_then_the_grammar_holds),
        cmocka_unit_test(test_opening_when_a_token_goes_beyond_it_then_the_grammar_sees_the_rest),
        cmocka_unit_test(test_budget_when_used_up_then_the_thought_is_closed),
        cmocka_unit_test(test_undo_when_guesses_are_taken_back_then_nothing_is_left),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
