/* What the tokenizer's header promises, with the synthetic vocabulary and, if it is installed, with
 * that of the default model. test_tokenizer_golden.c tests equality with Hugging Face's tokenizers
 * with committed texts and ids. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/random.h"
#include "text/tokenizer/tokenizer.h"
#include "text/unicode/unicode.h"

static void expect_ids(const vt_tokenizer *t, const char *text, unsigned flags, const int32_t *want,
                       size_t n)
{
    vt_ids ids = {0};
    vt_err err = {0};
    if (vt_tokenizer_encode(t, text, strlen(text), flags, &ids, &err) != VT_OK)
        fail_msg("%s", err.message);
    assert_int_equal(ids.n, n);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(ids.id[i], want[i]);
    vt_ids_release(&ids);
}

static vt_tokenizer *synthetic(void)
{
    vt_tokenizer *t = NULL;
    vt_err err = {0};
    if (vt_tokenizer_synthetic(1000, &t, &err) != VT_OK)
        fail_msg("%s", err.message);
    return t;
}

static vt_tokenizer *default_model(void)
{
    char path[1024];
    const char *cache = getenv("VITRINE_CACHE"), *home = getenv("HOME");
    if (cache)
        snprintf(path, sizeof path, "%s/models/SmolLM2-135M-Instruct.Q4_1.gguf", cache);
    else
        snprintf(path, sizeof path, "%s/.cache/vitrine/models/SmolLM2-135M-Instruct.Q4_1.gguf",
                 home ? home : "");
    gguf_file *f = NULL;
    vt_tokenizer *t = NULL;
    vt_err err = {0};
    if (gguf_open(path, &f, &err) != VT_OK)
        return NULL;
    if (vt_tokenizer_from_gguf(f, &t, &err) != VT_OK)
        fail_msg("%s", err.message);
    gguf_close(f);
    return t;
}

static void test_tokenizer_synthetic_text_is_its_bytes(void **state)
{
    (void)state;
    vt_tokenizer *t = synthetic();
    static const int32_t want[] = {'a', 0xC3, 0xA9, '\n', ' '};
    expect_ids(t, "a\xC3\xA9\n ", 0, want, 5);
    vt_tokenizer_free(t);
}

static void test_tokenizer_special_text_stays_text_unless_asked(void **state)
{
    (void)state;
    vt_tokenizer *t = synthetic();
    static const int32_t special[] = {997, 'x', 998};
    expect_ids(t, "<|im_start|>x<|im_end|>", VT_TOKENIZE_SPECIAL, special, 3);
    vt_ids ids = {0};
    assert_int_equal(vt_tokenizer_encode(t, "<|im_start|>", 12, 0, &ids, NULL), VT_OK);
    assert_int_equal(ids.n, 12);
    vt_ids_release(&ids);
    vt_tokenizer_free(t);
}

static void test_tokenizer_default_model_knows_its_ids(void **state)
{
    (void)state;
    vt_tokenizer *t = default_model();
    if (!t)
        skip();
    static const int32_t plain[] = {19556, 905, 17, 657, 506, 216, 34, 32, 34, 36, 30};
    static const int32_t chat[] = {1, 4093, 198, 4898, 47, 2, 198};
    expect_ids(t, "Hello world! It's 2024.", 0, plain, 11);
    expect_ids(t, "<|im_start|>user\nWhy?<|im_end|>\n", VT_TOKENIZE_SPECIAL, chat, 7);
    assert_int_equal(vt_tokenizer_find(t, "<|im_end|>", 10), 2);
    assert_int_equal(vt_tokenizer_eos(t), 2);
    assert_true(vt_tokenizer_is_special(t, 0));
    assert_false(vt_tokenizer_is_special(t, 19556));
    vt_tokenizer_free(t);
}

/* A tokenizer.json that names no decoder: Hugging Face joins the pieces with spaces then, with none
 * in front. */
static void test_tokenizer_without_a_decoder_joins_pieces_with_spaces(void **state)
{
    (void)state;
    static const char json[] = "{\"decoder\": null, \"model\": {\"type\": \"BPE\", \"vocab\": "
                               "{\"a\": 0, \"b\": 1, \"ab\": 2}, \"merges\": [\"a b\"]}}";
    static const int32_t ids[] = {2, 0, 1, 2};
    vt_tokenizer *t = NULL;
    vt_err err = {0};
    vt_buf text;
    vt_detok d;
    if (vt_tokenizer_from_json("t", json, sizeof json - 1, NULL, 0, &t, &err) != VT_OK)
        fail_msg("%s", err.message);
    vt_buf_init(&text, 0);
    assert_int_equal(vt_tokenizer_decode(t, ids, 4, false, &text, &err), VT_OK);
    assert_string_equal(text.data, "ab a b ab");
    vt_buf_clear(&text);
    vt_detok_init(&d, t);
    for (int i = 0; i < 4; i++)
        assert_true(vt_detok_feed(&d, ids[i], &text));
    assert_true(vt_detok_finish(&d, &text));
    assert_string_equal(text.data, "ab a b ab");
    vt_buf_release(&text);
    vt_tokenizer_free(t);
}

/* A tokenizer with this normalizer and these added tokens, over a, b, c and the space. */
static vt_tokenizer *letters(const char *normalizer, const char *added)
{
    char json[600];
    vt_tokenizer *t = NULL;
    vt_err err = {0};
    int n = snprintf(json, sizeof json,
                     "{\"normalizer\": %s, \"added_tokens\": %s, \"model\": {\"type\": \"BPE\", "
                     "\"vocab\": {\"a\": 0, \"b\": 1, \"c\": 2, \" \": 3}, \"merges\": []}}",
                     normalizer, added);
    if (vt_tokenizer_from_json("t", json, (size_t)n, NULL, 0, &t, &err) != VT_OK)
        fail_msg("%s", err.message);
    return t;
}

/* Two added tokens of which one begins the other: the longer one, wherever it is whole. */
static void test_tokenizer_added_token_when_one_begins_another_then_the_longest_wins(void **state)
{
    (void)state;
    static const int32_t want[] = {5, 4, 0, 5};
    vt_tokenizer *t = letters(
        "null", "[{\"id\": 4, \"content\": \"ab\"}, {\"id\": 5, \"content\": \"abc\"}]");
    expect_ids(t, "abcabaabc", VT_TOKENIZE_SPECIAL, want, 4);
    vt_tokenizer_free(t);
}

/* Each side of Strip by itself. */
static void test_tokenizer_strip_when_of_one_side_then_the_other_stays(void **state)
{
    (void)state;
    static const int32_t left[] = {0, 3, 3}, right[] = {3, 3, 0}, both[] = {0},
                         none[] = {3, 3, 0, 3, 3};
    static const struct {
        const char *normalizer;
        const int32_t *want;
        size_t n;
    } row[] = {{"{\"type\": \"Strip\", \"strip_left\": true, \"strip_right\": false}", left, 3},
               {"{\"type\": \"Strip\", \"strip_left\": false, \"strip_right\": true}", right, 3},
               {"{\"type\": \"Strip\", \"strip_left\": true, \"strip_right\": true}", both, 1},
               {"{\"type\": \"Strip\", \"strip_left\": false, \"strip_right\": false}", none, 5}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        vt_tokenizer *t = letters(row[i].normalizer, "[]");
        expect_ids(t, "  a  ", 0, row[i].want, row[i].n);
        vt_tokenizer_free(t);
    }
}

/* For any ids: what streams out is whole characters, and together it is the decoded whole. */
static void test_tokenizer_stream_of_any_ids_equals_decoding_them(void **state)
{
    (void)state;
    uint64_t seed = 88172645463325252u;
    vt_tokenizer *t = default_model();
    if (!t)
        t = synthetic();
    for (int round = 0; round < 500; round++) {
        int32_t ids[40];
        size_t n = vt_random_next(&seed) % 40;
        for (size_t i = 0; i < n; i++)
            ids[i] = (int32_t)(vt_random_next(&seed) %
                               (round % 2 ? 300u : (unsigned)vt_tokenizer_vocab(t)));
        vt_buf whole, stream;
        vt_buf_init(&whole, 0);
        vt_buf_init(&stream, 0);
        assert_int_equal(vt_tokenizer_decode(t, ids, n, true, &whole, NULL), VT_OK);
        vt_detok d;
        vt_detok_init(&d, t);
        for (size_t i = 0; i < n; i++) {
            size_t from = stream.len;
            assert_true(vt_detok_feed(&d, ids[i], &stream));
            if (stream.len > from)
                assert_int_equal(vt_utf8_valid(stream.data + from, stream.len - from),
                                 stream.len - from);
        }
        assert_true(vt_detok_finish(&d, &stream));
        assert_int_equal(stream.len, whole.len);
        if (whole.len)
            assert_memory_equal(stream.data, whole.data, whole.len);
        vt_buf_release(&whole);
        vt_buf_release(&stream);
    }
    vt_tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokenizer_synthetic_text_is_its_bytes),
        cmocka_unit_test(test_tokenizer_special_text_stays_text_unless_asked),
        cmocka_unit_test(test_tokenizer_default_model_knows_its_ids),
        cmocka_unit_test(test_tokenizer_without_a_decoder_joins_pieces_with_spaces),
        cmocka_unit_test(test_tokenizer_added_token_when_one_begins_another_then_the_longest_wins),
        cmocka_unit_test(test_tokenizer_strip_when_of_one_side_then_the_other_stays),
        cmocka_unit_test(test_tokenizer_stream_of_any_ids_equals_decoding_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
