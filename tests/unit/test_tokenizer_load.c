/* Loading tokenizers: every pre-tokenizer name of GGUF, tiktoken files, and the messages for broken
 * or unknown files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "text/tokenizer/tokenizer.h"

/* ---- a little GGUF writer ---- */

static void put(vt_buf *b, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        vt_buf_putc(b, (char)(value >> (8 * i)));
}

static void put_string(vt_buf *b, const char *s)
{
    put(b, strlen(s), 8);
    vt_buf_puts(b, s);
}

static void put_key(vt_buf *b, const char *key, uint32_t type)
{
    put_string(b, key);
    put(b, type, 4);
}

static void put_strings(vt_buf *b, const char *key, const char *const *s, size_t n)
{
    put_key(b, key, 9);
    put(b, 8, 4);
    put(b, n, 8);
    for (size_t i = 0; i < n; i++)
        put_string(b, s[i]);
}

/* A vocabulary of a few tokens; `eos` as given. */
static vt_status load_gguf(const char *model, const char *pre, uint32_t eos, vt_tokenizer **t,
                           vt_err *err)
{
    static const char *const tokens[] = {"<unk>",    "a", "b",      "c",       "ab",          "abc",
                                         "\xC4\xA0", "1", "<0x0A>", "<|end|>", "\xE2\x96\x81"};
    static const char *const merges[] = {"a b", "ab c"};
    static const int types[] = {2, 1, 1, 1, 1, 1, 1, 1, 6, 3, 1};
    const size_t n = sizeof tokens / sizeof *tokens;
    vt_buf b;
    vt_buf_init(&b, 0);
    vt_buf_puts(&b, "GGUF");
    put(&b, 3, 4);
    put(&b, 0, 8);
    put(&b, 6, 8);
    put_key(&b, "tokenizer.ggml.model", 8);
    put_string(&b, model);
    put_key(&b, "tokenizer.ggml.pre", 8);
    put_string(&b, pre);
    put_strings(&b, "tokenizer.ggml.tokens", tokens, n);
    put_strings(&b, "tokenizer.ggml.merges", merges, 2);
    put_key(&b, "tokenizer.ggml.token_type", 9);
    put(&b, 5, 4);
    put(&b, n, 8);
    for (size_t i = 0; i < n; i++)
        put(&b, (uint64_t)types[i], 4);
    put_key(&b, "tokenizer.ggml.eos_token_id", 4);
    put(&b, eos, 4);
    gguf_file *f = NULL;
    assert_false(b.failed);
    if (gguf_open_bytes("test.gguf", b.data, b.len, &f, err) != VT_OK)
        fail_msg("%s", err->message);
    vt_status status = vt_tokenizer_from_gguf(f, t, err);
    gguf_close(f);
    vt_buf_release(&b);
    return status;
}

static void expect_ids(const vt_tokenizer *t, const char *text, const int32_t *want, size_t n)
{
    vt_ids ids = {0};
    assert_int_equal(vt_tokenizer_encode(t, text, strlen(text), 0, &ids, NULL), VT_OK);
    assert_int_equal(ids.n, n);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(ids.id[i], want[i]);
    vt_ids_release(&ids);
}

/* ---- GGUF ---- */

/* The names in llama.cpp's src/llama-vocab.cpp, November 2026. */
static const char *const names[] = {"default",
                                    "minicpm5",
                                    "llama3",
                                    "llama-v3",
                                    "llama-bpe",
                                    "falcon3",
                                    "falcon-h1",
                                    "pixtral",
                                    "midm-2.0",
                                    "lfm2",
                                    "jina-v5-nano",
                                    "deepseek-llm",
                                    "deepseek-coder",
                                    "deepseek-v3",
                                    "spark2_5",
                                    "youtu",
                                    "falcon",
                                    "mpt",
                                    "starcoder",
                                    "gpt-2",
                                    "phi-2",
                                    "jina-es",
                                    "jina-de",
                                    "gigachat",
                                    "jina-v2-es",
                                    "jina-v2-de",
                                    "a.x-4.0",
                                    "mellum",
                                    "modern-bert",
                                    "jais-2",
                                    "gemma4",
                                    "granite-embed-multi-311m",
                                    "sarvam-moe",
                                    "jina-v1-en",
                                    "jina-v2-code",
                                    "roberta-bpe",
                                    "whitespace",
                                    "refact",
                                    "command-r",
                                    "qwen2",
                                    "deepseek-r1-qwen",
                                    "kormo",
                                    "f2llmv2",
                                    "qwen35",
                                    "stablelm2",
                                    "olmo",
                                    "dbrx",
                                    "smaug-bpe",
                                    "poro-chat",
                                    "chatglm-bpe",
                                    "glm4",
                                    "glm5",
                                    "viking",
                                    "jais",
                                    "tekken",
                                    "smollm",
                                    "codeshell",
                                    "bloom",
                                    "gpt3-finnish",
                                    "exaone",
                                    "exaone4",
                                    "exaone-moe",
                                    "chameleon",
                                    "minerva-7b",
                                    "megrez",
                                    "gpt-4o",
                                    "llama4",
                                    "kanana2",
                                    "talkie",
                                    "granite-embed-multi-97m",
                                    "tiny_aya",
                                    "cohere2moe",
                                    "superbpe",
                                    "trillion",
                                    "granite-docling",
                                    "bailingmoe",
                                    "bailingmoe2",
                                    "llada-moe",
                                    "seed-coder",
                                    "hunyuan",
                                    "hunyuan-dense",
                                    "hy_v4",
                                    "joyai-llm",
                                    "kimi-k2",
                                    "ufakzeka",
                                    "grok-2",
                                    "afmoe",
                                    "laguna",
                                    "minimax-m2",
                                    "solar-open",
                                    "mellum2"};

static void test_gguf_every_known_pre_tokenizer_name_loads(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        vt_tokenizer *t = NULL;
        vt_err err = {0};
        static const int32_t want[] = {5, 1};
        if (load_gguf("gpt2", names[i], 9, &t, &err) != VT_OK)
            fail_msg("%s: %s", names[i], err.message);
        vt_ids ids = {0};
        assert_int_equal(vt_tokenizer_encode(t, "abc", 3, 0, &ids, NULL), VT_OK);
        assert_int_equal(vt_tokenizer_encode(t, "a", 1, 0, &ids, NULL), VT_OK);
        if (ids.n != 2 || ids.id[0] != want[0] || ids.id[1] != want[1])
            fail_msg("%s: abc and a are not their tokens", names[i]);
        vt_ids_release(&ids);
        vt_tokenizer_free(t);
    }
}

static void test_gguf_unknown_names_are_refused_by_name(void **state)
{
    (void)state;
    vt_tokenizer *t = NULL;
    vt_err err = {0};
    assert_int_equal(load_gguf("gpt2", "no-such-pre", 9, &t, &err), VT_ERR_UNSUPPORTED);
    assert_string_equal(err.message, "test.gguf: tokenizer.ggml.pre is 'no-such-pre', a "
                                     "pre-tokenizer that is not known");
    assert_int_equal(load_gguf("rwkv", "default", 9, &t, &err), VT_ERR_UNSUPPORTED);
    assert_string_equal(err.message, "test.gguf: tokenizer.ggml.model is 'rwkv'; gpt2, llama, "
                                     "gemma4, t5 and bert are supported");
    assert_int_equal(load_gguf("gpt2", "gpt-2", 99, &t, &err), VT_ERR_FORMAT);
    assert_string_equal(err.message, "test.gguf: tokenizer.ggml.eos_token_id is 99, and the "
                                     "vocabulary has 11 tokens");
    assert_null(t);
}

static void test_gguf_control_tokens_are_special_and_end_a_turn(void **state)
{
    (void)state;
    vt_tokenizer *t = NULL;
    int32_t ends[4];
    assert_int_equal(load_gguf("gpt2", "gpt-2", 9, &t, NULL), VT_OK);
    assert_true(vt_tokenizer_is_special(t, 9));
    assert_false(vt_tokenizer_is_special(t, 1));
    assert_int_equal(vt_tokenizer_eos_ids(t, ends, 4), 1);
    assert_int_equal(ends[0], 9);
    vt_tokenizer_free(t);
}

/* Without scores all merges are equal, so the leftmost is made first; "d" has no known fallback. */
static void test_gguf_spm_adds_its_space_and_falls_back(void **state)
{
    (void)state;
    vt_tokenizer *t = NULL;
    static const int32_t want[] = {10, 5, 8, 0};
    assert_int_equal(load_gguf("llama", "default", 9, &t, NULL), VT_OK);
    expect_ids(t, "abc\nd", want, 4);
    vt_tokenizer_free(t);
}

/* ---- tokenizer.json ---- */

static void expect_json_error(const char *json, vt_status status, const char *message)
{
    vt_tokenizer *t = NULL;
    vt_err err = {0};
    vt_status got = vt_tokenizer_from_json("t.json", json, strlen(json), NULL, 0, &t, &err);
    if (got != status || strcmp(err.message, message) != 0)
        fail_msg("%s\n gave %d '%s'\n want %d '%s'", json, got, err.message, status, message);
    assert_null(t);
}

#define MODEL "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}"

static void test_json_unknown_types_are_refused_by_name(void **state)
{
    (void)state;
    expect_json_error("{\"model\":{\"type\":\"WordLevel\"}}", VT_ERR_UNSUPPORTED,
                      "t.json: model of type 'WordLevel' is not supported");
    expect_json_error("{\"normalizer\":{\"type\":\"Nmt\"}," MODEL "}", VT_ERR_UNSUPPORTED,
                      "t.json: normalizer of type 'Nmt' is not supported");
    expect_json_error("{\"pre_tokenizer\":{\"type\":\"UnicodeScripts\"}," MODEL "}",
                      VT_ERR_UNSUPPORTED,
                      "t.json: pre_tokenizer of type 'UnicodeScripts' is not supported");
    expect_json_error("{\"decoder\":{\"type\":\"CTC\"}," MODEL "}", VT_ERR_UNSUPPORTED,
                      "t.json: decoder of type 'CTC' is not supported");
    expect_json_error("{\"post_processor\":{\"type\":\"X\"}," MODEL "}", VT_ERR_UNSUPPORTED,
                      "t.json: post_processor of type 'X' is not supported");
    expect_json_error("{\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Isolated\","
                      "\"pattern\":{\"Regex\":\"(a)\\\\1\"}}," MODEL "}",
                      VT_ERR_UNSUPPORTED,
                      "t.json: pre_tokenizer.pattern '(a)\\1': regex: \\1 is not supported");
    expect_json_error("{\"model\":{\"type\":\"BPE\",\"dropout\":0.1,\"vocab\":{},\"merges\":[]}}",
                      VT_ERR_UNSUPPORTED,
                      "t.json: model.dropout makes encoding random; null was expected");
}

static void test_json_unigram_broken_files_name_the_place(void **state)
{
    (void)state;
    expect_json_error("{\"model\":{\"type\":\"Unigram\",\"unk_id\":0}}", VT_ERR_FORMAT,
                      "t.json: model.vocab is no array of at most 4194304 pieces and scores");
    expect_json_error("{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",0]]}}",
                      VT_ERR_UNSUPPORTED,
                      "t.json: model.unk_id is no number of one of the 1 pieces");
    expect_json_error("{\"model\":{\"type\":\"Unigram\",\"unk_id\":1,\"vocab\":[[\"a\",0]]}}",
                      VT_ERR_UNSUPPORTED,
                      "t.json: model.unk_id is no number of one of the 1 pieces");
    expect_json_error(
        "{\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"a\",0],[\"b\"]]}}",
        VT_ERR_FORMAT, "t.json: model.vocab[1] is no piece and its score");
    expect_json_error(
        "{\"normalizer\":{\"type\":\"Precompiled\"}," MODEL "}", VT_ERR_FORMAT,
        "t.json: normalizer.precompiled_charsmap is missing or not what was expected");
    expect_json_error("{\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":"
                      "\"BQAAAAAAAAAA\"}," MODEL "}",
                      VT_ERR_FORMAT,
                      "t.json: a trie of 5 bytes in a precompiled_charsmap of 9; a multiple of 4 "
                      "that fits was expected");
    expect_json_error("{\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":"
                      "\"BAAAAAAAAAD/\"}," MODEL "}",
                      VT_ERR_FORMAT, "t.json: the strings of precompiled_charsmap are no UTF-8");
}

static void test_json_broken_files_name_the_place(void **state)
{
    (void)state;
    expect_json_error("{\"a\":\n [1,}", VT_ERR_FORMAT,
                      "t.json: line 2, byte 10: not JSON: a value was expected");
    expect_json_error("{}", VT_ERR_FORMAT, "t.json: model is missing or no object");
    expect_json_error("{\"model\":{\"type\":\"BPE\",\"merges\":[]}}", VT_ERR_FORMAT,
                      "t.json: model.vocab is missing or no object");
    expect_json_error("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}}",
                      VT_ERR_FORMAT,
                      "t.json: model.vocab: id 0 is given twice, the second time to 'b'");
    expect_json_error("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]}}",
                      VT_ERR_FORMAT, "t.json: model.vocab: token 'a' has no id in 0..4194303");
    expect_json_error("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a b\"]}}",
                      VT_ERR_FORMAT,
                      "t.json: model.merges[0] 'a' 'b': the second is not in the vocabulary");
    expect_json_error("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a\"]}}",
                      VT_ERR_FORMAT, "t.json: model.merges[0] is not a pair of tokens");
    expect_json_error("{\"model\":{\"type\":\"BPE\",\"vocab\":{},\"merges\":[]}}", VT_ERR_FORMAT,
                      "tokenizer: the vocabulary is empty");
}

static void test_json_config_and_template_name_bos_and_eos(void **state)
{
    (void)state;
    static const char json[] =
        "{\"added_tokens\":[{\"id\":1,\"content\":\"<s>\",\"special\":true},"
        "{\"id\":2,\"content\":\"</s>\",\"special\":true}],\"post_processor\":{\"type\":"
        "\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\"}},{\"Sequence\":{}}],"
        "\"special_tokens\":{\"<s>\":{\"ids\":[1]}}}," MODEL "}";
    static const char config[] = "{\"bos_token\":{\"content\":\"<s>\"},\"eos_token\":\"</s>\"}";
    vt_tokenizer *t = NULL;
    vt_ids ids = {0};
    assert_int_equal(
        vt_tokenizer_from_json("t.json", json, strlen(json), config, strlen(config), &t, NULL),
        VT_OK);
    assert_int_equal(vt_tokenizer_bos(t), 1);
    assert_int_equal(vt_tokenizer_eos(t), 2);
    assert_true(vt_tokenizer_add_bos(t));
    assert_int_equal(vt_tokenizer_encode(t, "a", 1, VT_TOKENIZE_ADD_BOS, &ids, NULL), VT_OK);
    assert_int_equal(ids.n, 2);
    assert_int_equal(ids.id[0], 1);
    vt_ids_release(&ids);
    vt_tokenizer_free(t);
}

/* ---- tiktoken ---- */

static void put_rank(vt_buf *b, const char *bytes, size_t n, int rank)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        uint32_t bits = 0;
        for (size_t k = 0; k < 3; k++)
            bits = bits << 8 | (i + k < n ? (unsigned char)bytes[i + k] : 0);
        for (size_t k = 0; k < 4; k++)
            vt_buf_putc(b, i + k > n ? '=' : digits[bits >> (18 - 6 * k) & 63]);
    }
    vt_buf_printf(b, " %d\n", rank);
}

/* All bytes, then words over a..z by length: as many ranks as GPT-2's encoding. */
static void write_tiktoken(vt_buf *b, int ranks)
{
    vt_buf_init(b, 0);
    for (int rank = 0; rank < ranks; rank++) {
        char s[8] = {(char)rank};
        size_t n = 1;
        if (rank >= 256) {
            int left = rank - 256, count = 26 * 26;
            for (n = 2; left >= count; n++, count *= 26)
                left -= count;
            for (size_t i = n; i-- > 0; left /= 26)
                s[i] = (char)('a' + left % 26);
        }
        put_rank(b, s, n, rank);
    }
}

static void test_tiktoken_ranks_are_ids_and_merge_order(void **state)
{
    (void)state;
    static const char config[] =
        "{\"added_tokens_decoder\":{\"50256\":{\"content\":\"<|endoftext|>\","
        "\"special\":true}},\"eos_token\":\"<|endoftext|>\"}";
    vt_buf b;
    vt_tokenizer *t = NULL;
    vt_err err = {0};
    write_tiktoken(&b, 50256);
    if (vt_tokenizer_from_tiktoken("t.tiktoken", b.data, b.len, config, strlen(config), &t, &err) !=
        VT_OK)
        fail_msg("%s", err.message);
    /* "abc" is a rank of its own; "zzzz" merges "zz" twice, as ranks of four letters end before
     * it. */
    static const int32_t abc[] = {256 + 676 + 28}, zzzz[] = {931, 931}, bytes[] = {' ', '1'};
    expect_ids(t, "abc", abc, 1);
    expect_ids(t, "zzzz", zzzz, 2);
    expect_ids(t, " 1", bytes, 2);
    assert_int_equal(vt_tokenizer_eos(t), 50256);
    vt_tokenizer_free(t);
    vt_buf_release(&b);
}

static void test_tiktoken_of_unknown_size_or_form_is_refused(void **state)
{
    (void)state;
    vt_buf b;
    vt_tokenizer *t = NULL;
    vt_err err = {0};
    write_tiktoken(&b, 300);
    assert_int_equal(vt_tokenizer_from_tiktoken("t.tiktoken", b.data, b.len, NULL, 0, &t, &err),
                     VT_ERR_UNSUPPORTED);
    assert_non_null(
        strstr(err.message, "t.tiktoken: a tiktoken file of 300 ranks is none of the encodings"));
    vt_buf_release(&b);
    assert_int_equal(
        vt_tokenizer_from_tiktoken("t.tiktoken", "YQ== 0\n!! 1\n", 12, NULL, 0, &t, &err),
        VT_ERR_FORMAT);
    assert_string_equal(err.message,
                        "t.tiktoken: line 2 is not a base64 token, a space and a rank");
    assert_null(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gguf_every_known_pre_tokenizer_name_loads),
        cmocka_unit_test(test_gguf_unknown_names_are_refused_by_name),
        cmocka_unit_test(test_gguf_control_tokens_are_special_and_end_a_turn),
        cmocka_unit_test(test_gguf_spm_adds_its_space_and_falls_back),
        cmocka_unit_test(test_json_unknown_types_are_refused_by_name),
        cmocka_unit_test(test_json_unigram_broken_files_name_the_place),
        cmocka_unit_test(test_json_broken_files_name_the_place),
        cmocka_unit_test(test_json_config_and_template_name_bos_and_eos),
        cmocka_unit_test(test_tiktoken_ranks_are_ids_and_merge_order),
        cmocka_unit_test(test_tiktoken_of_unknown_size_or_form_is_refused),
    };
    return cmocka_run_group_tests_name("tokenizer_load", tests, NULL, NULL);
}
