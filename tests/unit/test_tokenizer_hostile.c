/* Files and texts made to hang a tokenizer or to fill the memory: each is accepted, or refused with
 * a message that names the reason. Without the limits these tests would run for minutes to years,
 * or out of memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/vocab.h"

#define MODEL                                                                  \
    "\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{\"a\":0,\"b\":1,\" " \
    "\":2,\"\\t\":3,\"x\":4}}"

/* Loads {model, members}; NULL and the message in *err if it is refused. */
static vt_tokenizer *load(const vt_buf *members, vt_err *err)
{
    vt_buf json;
    vt_tokenizer *t = NULL;
    vt_buf_init(&json, 0);
    vt_buf_puts(&json, "{" MODEL ",");
    vt_buf_add(&json, members->data, members->len);
    assert_true(vt_buf_putc(&json, '}'));
    vt_status status = vt_tokenizer_from_json("test", json.data, json.len, NULL, 0, &t, err);
    assert_true((status == VT_OK) == (t != NULL));
    vt_buf_release(&json);
    return t;
}

static void puts_times(vt_buf *b, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        vt_buf_puts(b, s);
}

static void expect_refused(const vt_buf *members, const char *message)
{
    vt_err err = {0};
    vt_tokenizer *t = load(members, &err);
    assert_null(t);
    if (!strstr(err.message, message))
        fail_msg("'%s' has no '%s'", err.message, message);
}

/* n copies of `text` are refused with a message that has `message`. */
static void expect_text_refused(const vt_buf *members, const char *text, size_t n,
                                const char *message)
{
    vt_err err = {0};
    vt_tokenizer *t = load(members, &err);
    vt_ids ids = {0};
    vt_buf whole;
    if (!t)
        fail_msg("%s", err.message);
    vt_buf_init(&whole, 0);
    puts_times(&whole, text, n);
    assert_int_not_equal(
        vt_tokenizer_encode(t, whole.data, whole.len, VT_TOKENIZE_SPECIAL, &ids, &err), VT_OK);
    if (!strstr(err.message, message))
        fail_msg("'%s' has no '%s'", err.message, message);
    assert_int_equal(ids.n, 0);
    vt_buf_release(&whole);
    vt_ids_release(&ids);
    vt_tokenizer_free(t);
}

static vt_buf members_of(const char *s)
{
    vt_buf b;
    vt_buf_init(&b, 0);
    assert_true(vt_buf_puts(&b, s));
    return b;
}

static void test_tokenizer_hostile_patterns_are_refused(void **state)
{
    (void)state;
    vt_buf b = members_of("\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Isolated\","
                          "\"pattern\":{\"Regex\":\"(){1000}{1000}{1000}{1000}\"}}");
    expect_refused(&b, "pre_tokenizer.pattern '(){1000}{1000}{1000}{1000}': regex: the pattern's");
    vt_buf_release(&b);
    b = members_of("\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Isolated\","
                   "\"pattern\":{\"Regex\":\"(?=(?:aaa)+b)a\"}}");
    expect_text_refused(&b, "a", 100000, "pre-tokenizer step 1 takes too many steps");
    vt_buf_release(&b);
}

static void test_tokenizer_hostile_growth_is_refused_with_the_step(void **state)
{
    (void)state;
    vt_buf b = members_of(
        "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},"
        "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"");
    puts_times(&b, "b", 65536);
    vt_buf_puts(&b, "\"}]}");
    expect_text_refused(&b, "a", 16384, "normalizer step 2 (Replace) makes too much");
    vt_buf_release(&b);

    b = members_of("\"added_tokens\":[{\"content\":\"x\",\"special\":true}],"
                   "\"normalizer\":{\"type\":\"Prepend\",\"prepend\":\"");
    puts_times(&b, "b", 10000);
    vt_buf_puts(&b, "\"}");
    expect_text_refused(&b, "ax", 1000, "normalizer step 1 (Prepend) makes too much");
    vt_buf_release(&b);

    b = members_of("\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"");
    puts_times(&b, "b", 10000);
    vt_buf_puts(&b, "\"}");
    expect_text_refused(&b, "a ", 1000, "pre-tokenizer step 1 makes more than 16 times");
    vt_buf_release(&b);

    b = members_of("\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"}");
    for (int i = 0; i < 3; i++)
        vt_buf_printf(
            &b, ",{\"type\":\"Replace\",\"pattern\":{\"String\":\"%c\"},\"content\":\"%c%c%c\"}",
            'a' + i, 'b' + i, 'b' + i, 'b' + i);
    vt_buf_puts(&b, "]}");
    expect_refused(&b, "decoder step 4 (Replace) may make a token more than 16 times as long");
    vt_buf_release(&b);
}

static void test_tokenizer_hostile_strings_beyond_their_limits_are_refused(void **state)
{
    (void)state;
    vt_buf b = members_of("\"added_tokens\":[{\"content\":\"");
    puts_times(&b, "a", 4097);
    vt_buf_puts(&b, "\"}]");
    expect_refused(&b, "has 4097 bytes, more than 4096");
    vt_buf_release(&b);

    vt_err err = {0};
    vt_tokenizer *t = NULL;
    b = members_of("{\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{\"a\":0},"
                   "\"continuing_subword_prefix\":\"");
    puts_times(&b, "p", 257);
    vt_buf_puts(&b, "\"}}");
    assert_int_equal(vt_tokenizer_from_json("test", b.data, b.len, NULL, 0, &t, &err),
                     VT_ERR_UNSUPPORTED);
    assert_string_equal(err.message,
                        "test: model.continuing_subword_prefix has 257 bytes, more than 256");
    vt_buf_release(&b);
}

/* A hundred thousand added tokens: each gets its id, and the last one is found in a text. */
static void test_tokenizer_many_added_tokens_are_loaded(void **state)
{
    (void)state;
    enum { N = 100000 };
    vt_buf b = members_of("\"added_tokens\":[");
    for (int i = 0; i < N; i++)
        vt_buf_printf(&b, "%s{\"content\":\"<t%d>\"}", i ? "," : "", i);
    vt_buf_puts(&b, ",{\"content\":\"<t7>\",\"special\":true}]");
    vt_err err = {0};
    vt_tokenizer *t = load(&b, &err);
    vt_ids ids = {0};
    if (!t)
        fail_msg("%s", err.message);
    assert_int_equal(vt_tokenizer_vocab(t), 5 + N);
    assert_int_equal(vt_tokenizer_encode(t, "a<t99999>", 9, 0, &ids, NULL), VT_OK);
    assert_int_equal(ids.n, 2);
    assert_int_equal(ids.id[1], 5 + 99999);
    assert_true(vt_tokenizer_is_special(t, 5 + 7)); /* listed twice: the later entry counts */
    assert_false(vt_tokenizer_is_special(t, 5 + 8));
    vt_ids_release(&ids);
    vt_tokenizer_free(t);
    vt_buf_release(&b);
}

/* All normalised tokens of a file share one budget of steps. */
static void test_tokenizer_hostile_normalised_tokens_share_a_budget(void **state)
{
    (void)state;
    vt_buf b = members_of("\"normalizer\":{\"type\":\"Replace\",\"content\":\"c\","
                          "\"pattern\":{\"Regex\":\"(?:a|a)*b\"}},\"added_tokens\":[");
    for (int i = 0; i < 200; i++)
        vt_buf_printf(&b, "%s{\"content\":\"aaaaaaaaaaaaaaaaaa%d\",\"normalized\":true}",
                      i ? "," : "", i);
    vt_buf_puts(&b, "]");
    expect_refused(&b, "normalizer step 1 (Replace) takes too many steps");
    vt_buf_release(&b);
}

/* SpecialTokens are counted before each is looked up among special_tokens. */
static void test_tokenizer_hostile_post_processor_is_refused(void **state)
{
    (void)state;
    vt_buf b = members_of("\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[");
    for (int i = 0; i < 9; i++)
        vt_buf_printf(&b, "%s{\"SpecialToken\":{\"id\":\"s\"}}", i ? "," : "");
    vt_buf_puts(&b, "],\"special_tokens\":{\"s\":{\"ids\":[]}}}");
    expect_refused(&b, "post_processor puts more than 8 tokens in front");
    vt_buf_release(&b);
}

/* A text that walks deep into the added tokens from every position. */
static void test_tokenizer_hostile_added_token_walks_are_paid_for(void **state)
{
    (void)state;
    vt_buf b = members_of("\"added_tokens\":[{\"content\":\"");
    puts_times(&b, "a", 4000);
    vt_buf_puts(&b, "b\",\"special\":true}]");
    expect_text_refused(&b, "a", 50000, "looking for added tokens in this text takes too many");
    vt_buf_release(&b);
}

/* Added tokens of white space: which spaces belong to them is Hugging Face's answer
 * (tokenizers 0.23). */
static void test_tokenizer_space_tokens_that_strip_equal_hugging_face(void **state)
{
    (void)state;
    static const char *const texts[] = {"\t\t",      "a\t\tb",  "\t\t\t",
                                        "a \t \t b", "\t<|>\t", "\t a\t"};
    static const struct {
        const char *strip;
        int n[6];
        int32_t ids[6][8];
    } want[] = {
        {"",
         {2, 4, 3, 7, 3, 4},
         {{6, 6}, {0, 6, 6, 1}, {6, 6, 6}, {0, 2, 6, 2, 6, 2, 1}, {6, 5, 6}, {6, 2, 0, 6}}},
        {",\"rstrip\":true",
         {2, 4, 3, 5, 3, 3},
         {{6, 6}, {0, 6, 6, 1}, {6, 6, 6}, {0, 2, 6, 6, 1}, {6, 5, 6}, {6, 0, 6}}},
        {",\"lstrip\":true",
         {2, 4, 3, 5, 3, 4},
         {{6, 6}, {0, 6, 6, 1}, {6, 6, 6}, {0, 6, 6, 2, 1}, {6, 5, 6}, {6, 2, 0, 6}}},
        {",\"lstrip\":true,\"rstrip\":true",
         {1, 3, 1, 3, 3, 3},
         {{6}, {0, 6, 1}, {6}, {0, 6, 1}, {6, 5, 6}, {6, 0, 6}}},
    };
    for (size_t k = 0; k < sizeof want / sizeof *want; k++) {
        char json[512];
        vt_tokenizer *t = NULL;
        int n = snprintf(json, sizeof json,
                         "{\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{\"a\":0,\"b\":1,"
                         "\" \":2,\"<\":3,\"|\":4}},\"added_tokens\":[{\"content\":\"<|>\","
                         "\"special\":true},{\"content\":\"\\t\",\"normalized\":false%s}]}",
                         want[k].strip);
        assert_int_equal(vt_tokenizer_from_json("test", json, (size_t)n, NULL, 0, &t, NULL), VT_OK);
        for (size_t i = 0; i < 6; i++) {
            vt_ids ids = {0};
            assert_int_equal(
                vt_tokenizer_encode(t, texts[i], strlen(texts[i]), VT_TOKENIZE_SPECIAL, &ids, NULL),
                VT_OK);
            assert_int_equal(ids.n, want[k].n[i]);
            for (size_t j = 0; j < ids.n; j++)
                assert_int_equal(ids.id[j], want[k].ids[i][j]);
            vt_ids_release(&ids);
        }
        vt_tokenizer_free(t);
    }
}

/* Words of eight bytes that an unseeded hash would send to one slot. The hash is a bijection on
 * such words, so they are found by computing it backwards. With a secret in every round they
 * spread. */
static void test_vocab_hash_cannot_be_run_backwards(void **state)
{
    (void)state;
    enum { N = 4096 };
    const uint64_t factor = 0xD6E8FEB86659FD93u;
    uint64_t inverse = factor; /* modulo 2^64, by Newton's iteration */
    for (int i = 0; i < 6; i++)
        inverse *= 2 - factor * inverse;
    static uint32_t slot[N];
    vocab v;
    vocab_init(&v);
    for (uint32_t i = 0; i < N; i++) {
        uint64_t h = 0x1234567800000000u + i;
        for (int round = 0; round < 2; round++) {
            h *= inverse;
            h ^= h >> 32;
        }
        h = h * inverse ^ 8 * 0x9E3779B97F4A7C15u;
        slot[vocab_hash(&v, (const char *)&h, 8) >> 32 & (N - 1)]++;
    }
    uint32_t most = 0;
    for (uint32_t i = 0; i < N; i++)
        most = slot[i] > most ? slot[i] : most;
    assert_in_range(most, 1, 20); /* 4096 balls in as many bins: 20 in one has odds of 10^-15 */
    vocab_release(&v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokenizer_hostile_patterns_are_refused),
        cmocka_unit_test(test_tokenizer_hostile_growth_is_refused_with_the_step),
        cmocka_unit_test(test_tokenizer_hostile_strings_beyond_their_limits_are_refused),
        cmocka_unit_test(test_tokenizer_many_added_tokens_are_loaded),
        cmocka_unit_test(test_tokenizer_hostile_normalised_tokens_share_a_budget),
        cmocka_unit_test(test_tokenizer_hostile_post_processor_is_refused),
        cmocka_unit_test(test_tokenizer_hostile_added_token_walks_are_paid_for),
        cmocka_unit_test(test_tokenizer_space_tokens_that_strip_equal_hugging_face),
        cmocka_unit_test(test_vocab_hash_cannot_be_run_backwards),
    };
    return cmocka_run_group_tests_name("tokenizer_hostile", tests, NULL, NULL);
}
