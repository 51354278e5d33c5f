/* Loading models: the settings of good files, and the message for each kind of model that we cannot
 * run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "device/cpu.h"
#include "model/load.h"

#define CORPUS "tests/fuzz/corpus/gguf/"

static void test_load_gguf_reads_every_knob_of_a_tiny_llama(void **state)
{
    (void)state;
    vt_model *m;
    vt_err err = {0};
    if (vt_model_load(CORPUS "ok_llama.gguf", &m, &err) != VT_OK)
        fail_msg("%s", err.message);
    const vt_arch *a = &m->arch;
    assert_string_equal(m->name, "ok_llama");
    assert_string_equal(a->family, "llama");
    assert_string_equal(m->quant, "Q8_0");
    assert_int_equal(a->n_layers, 1);
    assert_int_equal(a->hidden, 32);
    assert_int_equal(a->n_heads, 4);
    assert_int_equal(a->n_kv_heads, 2);
    assert_int_equal(a->head_dim, 8);
    assert_int_equal(a->ffn, 64);
    assert_int_equal(a->vocab, 24);
    assert_int_equal(a->max_context, 64);
    assert_true(a->tied_head && m->head == m->embed);
    assert_true(a->rope[0].interleaved && a->rope[0].dims == 8 && a->rope[0].base == 10000);
    assert_float_equal(a->attn_scale, 1 / sqrt(8.0), 1e-7);
    assert_float_equal(a->norm_eps, 1e-5, 1e-12);
    assert_int_equal(a->window, 0);
    assert_null(m->layer[0].weight[VT_ROLE_Q_BIAS]);
    assert_int_equal(m->layer[0].weight[VT_ROLE_K]->dim[0], 16);
    assert_int_equal(m->layer[0].weight[VT_ROLE_K]->dim[1], 32);
    assert_null(m->tokenizer);
    assert_null(m->chat_template);
    assert_int_equal(m->bos, -1);
    /* 10,240 weights in Q8_0 (7 matrices and the embedding), 3 norms of 32 in F32 */
    assert_int_equal(m->weight_bytes,
                     (24 * 32 + 2 * 32 * 32 + 2 * 16 * 32 + 3 * 64 * 32) / 32 * 34 + 3 * 32 * 4);
    vt_model_free(m);
}

static void test_load_gguf_of_models_we_do_not_run_names_the_reason(void **state)
{
    (void)state;
    static const struct {
        const char *file, *words;
        vt_status status;
    } cases[] = {
        {"bad_magic", "not a GGUF file", VT_ERR_FORMAT},
        {"ok_vocab_only", "holds no tensors", VT_ERR_MODEL},
        {"model_no_arch", "general.architecture is missing", VT_ERR_FORMAT},
        {"model_unknown_arch", "architecture rwkv7 is not supported", VT_ERR_UNSUPPORTED},
        {"model_missing_key", "llama.embedding_length is missing", VT_ERR_FORMAT},
        {"model_missing_tensor", "tensor blk.0.attn_k.weight is missing", VT_ERR_MODEL},
        {"model_shape", "tensor blk.0.attn_k.weight has shape [32, 32]; [16, 32] was expected",
         VT_ERR_MODEL},
        {"model_extra_tensor", "blk.0.attn_sinks.weight has no place in a llama", VT_ERR_MODEL},
        {"model_heads",
         "4 heads (num_attention_heads, attention.head_count) are not a multiple of 3 KV heads",
         VT_ERR_MODEL},
        {"model_kv_list", "llama.attention.head_count_kv has 4 for layer 1 and 2 for one before it",
         VT_ERR_UNSUPPORTED},
        {"model_kv_list_zero", "llama.attention.head_count_kv has 0 for layer 0",
         VT_ERR_UNSUPPORTED},
        {"model_kv_list_long", "llama.attention.head_count_kv has 2 elements", VT_ERR_MODEL},
        {"model_zero_heads", "attention.head_count is 0 (1 or more expected)", VT_ERR_MODEL},
        {"model_layers", "llama.block_count is 2147483648", VT_ERR_MODEL},
        {"model_eps", "attention.layer_norm_rms_epsilon is 0", VT_ERR_MODEL},
        {"model_rope_base", "llama.rope.freq_base is 0", VT_ERR_MODEL},
        {"model_both_ways", "llama.attention.causal is false", VT_ERR_UNSUPPORTED},
        {"model_amplitude", "llama.rope.scaling.attn_factor is 2", VT_ERR_UNSUPPORTED},
        {"model_rope_dims",
         "10 rotated dimensions (partial_rotary_factor, rope.dimension_count) of a head of 8",
         VT_ERR_MODEL},
        {"model_rope_type", "rope.scaling.type longrope is not supported", VT_ERR_UNSUPPORTED},
        {"model_rope_freqs", "rope_freqs.weight[0] is 0, Llama 3's rule gives 1",
         VT_ERR_UNSUPPORTED},
        {"model_value_length", "llama.attention.value_length is 16 and attention.key_length 8",
         VT_ERR_UNSUPPORTED},
        {"model_experts", "llama.expert_count is 8; 0 is supported", VT_ERR_UNSUPPORTED},
        {"model_logit_scale", "llama.logit_scale is 3e+38", VT_ERR_MODEL},
        {"model_attention_scale", "llama.attention.scale is 3e+38", VT_ERR_MODEL},
        {"model_attn_factor", "llama.rope.scaling.attn_factor is 3e+38", VT_ERR_MODEL},
        {"model_window_period", "olmo2.attention.sliding_window_pattern is 0", VT_ERR_MODEL},
        {"model_longrope", "rope_factors_short.weight is not F32 [4]", VT_ERR_MODEL},
        {"model_longrope_zero", "short_factor (rope_factors_short.weight) is 0 for pair 0",
         VT_ERR_MODEL},
        {"model_key_type", "llama.context_length has type f32", VT_ERR_FORMAT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[200];
        vt_model *m;
        vt_err err = {0};
        snprintf(path, sizeof path, CORPUS "%s.gguf", cases[i].file);
        vt_status status = vt_model_load(path, &m, &err);
        if (status != cases[i].status || !strstr(err.message, cases[i].words) ||
            !strstr(err.message, cases[i].file))
            fail_msg("%s: status %d, \"%s\"", cases[i].file, status, err.message);
    }
}

/* Old files give a linear stretch alone. */
static void test_load_gguf_with_a_factor_and_no_type_stretches_linearly(void **state)
{
    (void)state;
    vt_model *m;
    vt_err err = {0};
    if (vt_model_load(CORPUS "ok_scale_linear.gguf", &m, &err) != VT_OK)
        fail_msg("%s", err.message);
    assert_int_equal(m->arch.rope[0].scaling, VT_ROPE_LINEAR);
    assert_true(m->arch.rope[0].factor == 4);
    vt_model_free(m);
}

static void test_load_gguf_without_weights_needs_only_an_architecture(void **state)
{
    (void)state;
    static const char *const files[] = {"ok_vocab_only", "model_unknown_arch"};
    for (size_t i = 0; i < 2; i++) {
        char path[200];
        vt_model *m;
        vt_err err = {0};
        snprintf(path, sizeof path, CORPUS "%s.gguf", files[i]);
        if (vt_model_load_gguf(path, false, &m, &err) != VT_OK)
            fail_msg("%s", err.message);
        assert_null(m->layer);
        vt_model_free(m);
    }
}

/* ---- long contexts ---- */

/* The bytes of ok_model_llama.gguf, to be changed. */
static uint8_t *tiny_llama(size_t *size)
{
    FILE *file = fopen(CORPUS "ok_model_llama.gguf", "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    size_t n = *size = (size_t)ftell(file);
    rewind(file);
    uint8_t *bytes = aligned_alloc(64, (n + 63) / 64 * 64);
    assert_int_equal(fread(bytes, 1, n, file), n);
    fclose(file);
    return bytes;
}

static vt_model *model_of(const uint8_t *bytes, size_t n)
{
    gguf_file *f;
    vt_model *m = NULL;
    vt_err err = {0};
    if (gguf_open_bytes("changed", bytes, n, &f, &err) != VT_OK ||
        vt_model_from_gguf(f, true, &m, &err) != VT_OK)
        fail_msg("%s", err.message);
    return m;
}

/* The model of ok_model_llama.gguf with another context_length; *bytes is its file. */
static vt_model *with_context(uint32_t context, uint8_t **bytes)
{
    static const char key[] = "llama.context_length";
    size_t n;
    *bytes = tiny_llama(&n);
    uint8_t *at = memmem(*bytes, n, key, sizeof key - 1);
    assert_non_null(at);
    memcpy(at + sizeof key - 1 + 4, &context, 4); /* behind the key: its type, then the value */
    return model_of(*bytes, n);
}

/* Llama 3's files name the end of a turn apart from the end of a text, and a model may come without
 * a tokenizer: whatever key names an end, the answer ends there. */
static void test_load_gguf_when_an_end_has_another_key_then_it_is_an_end_too(void **state)
{
    (void)state;
    static const char eos[] = "tokenizer.ggml.eos_token_id", tokenizer[] = "tokenizer.ggml.model";
    static const char *const key[] = {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"};
    for (int i = 0; i < 2; i++) {
        size_t n;
        uint8_t *bytes = tiny_llama(&n);
        vt_model *m = model_of(bytes, n);
        int32_t id = m->eos[0];
        vt_model_free(m);
        memcpy(memmem(bytes, n, eos, sizeof eos - 1), key[i], sizeof eos - 1);
        memcpy(memmem(bytes, n, tokenizer, sizeof tokenizer - 1), "tokenizer.none.model",
               sizeof tokenizer - 1);
        m = model_of(bytes, n);
        assert_null(m->tokenizer);
        assert_int_equal(m->n_eos, 1);
        assert_int_equal(m->eos[0], id);
        vt_model_free(m);
        free(bytes);
    }
}

/* A file may claim any context. The context that is used without --max-context is bounded, because
 * rope tables are filled for all of it. */
static void
test_engine_when_the_model_claims_a_huge_context_then_a_bounded_one_is_taken(void **state)
{
    (void)state;
    static const char *const set[][2] = {{"device", "cpu"}, {"threads", "1"}, {"kv-memory", "64M"}};
    enum { LONG = (256 << 10) + 1 };
    uint8_t *bytes;
    vt_options *o;
    vt_engine *e;
    vt_request_params p;
    vt_request_id id;
    vt_err err = {0};
    assert_int_equal(vt_cpu_init(&err), VT_OK);
    vt_model *m = with_context(1u << 26, &bytes);
    assert_int_equal(m->arch.max_context, 1 << 26);
    assert_int_equal(vt_options_new(&o, &err), VT_OK);
    for (size_t i = 0; i < sizeof set / sizeof *set; i++)
        assert_int_equal(vt_options_set(o, set[i][0], set[i][1], &err), VT_OK);
    if (vt_engine_new(m, o, &e, &err) != VT_OK)
        fail_msg("%s", err.message);
    vt_request_init(&p);
    p.prompt = test_calloc(LONG, sizeof *p.prompt);
    p.n_prompt = LONG;
    p.max_tokens = 1;
    assert_int_equal(vt_engine_submit(e, &p, &id, &err), VT_ERR_CONTEXT);
    if (!strstr(err.message, "262144"))
        fail_msg("%s", err.message);
    test_free((void *)(uintptr_t)p.prompt);
    vt_engine_free(e);
    vt_options_free(o);
    vt_model_free(m);
    free(bytes);
}

/* ---- split models ---- */

#define SPLIT "tests/golden/split/"

static void test_load_gguf_in_parts_is_the_whole_model(void **state)
{
    (void)state;
    gguf_file *whole, *parts = NULL;
    vt_model *m;
    vt_err err = {0};
    if (gguf_open(SPLIT "good.gguf", &whole, &err) != VT_OK ||
        gguf_open_parts(SPLIT "good-00001-of-00003.gguf", &parts, &err) != VT_OK)
        fail_msg("%s", err.message);
    assert_int_equal(parts->n_parts, 2);
    assert_int_equal(parts->n_tensors, whole->n_tensors);
    for (uint64_t i = 0; i < whole->n_tensors; i++) {
        const vt_tensor *a = &whole->tensor[i], *b = gguf_tensor(parts, a->name);
        assert_non_null(b);
        assert_int_equal(b->dtype, a->dtype);
        assert_int_equal(vt_tensor_bytes(b), vt_tensor_bytes(a));
        assert_memory_equal(b->data, a->data, vt_tensor_bytes(a));
    }
    gguf_close(whole);
    gguf_close(parts);
    if (vt_model_load(SPLIT "good-00001-of-00003.gguf", &m, &err) != VT_OK)
        fail_msg("%s", err.message);
    assert_string_equal(m->name, "good");
    assert_non_null(m->tokenizer);
    vt_model_free(m);
}

static void test_load_gguf_in_parts_that_do_not_fit_is_refused_with_the_reason(void **state)
{
    (void)state;
    static const struct {
        const char *file, *words;
    } cases[] = {
        {"good-00002-of-00003", "is part 2 of 3; name the first one"},
        {"order-00001-of-00003", "it says that it is part 3 of 3; 2 of 3 was expected"},
        {"missing-00001-of-00003", "missing-00003-of-00003.gguf: cannot be opened"},
        {"twice-00001-of-00003", "is in more than one part"},
        {"count-00001-of-00003", "split.tensors.count is 12, and the 3 parts hold 11"},
        {"other-00001-of-00003", "says that it is part 1 of 2, and its name says 1 of 3"},
        {"unnumbered-00001-of-00003", "says that it is part 1 of 1; 3 of 3 was expected"},
        {"unnamed", "its name does not end with -00001-of-00003.gguf"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[200];
        vt_model *m;
        vt_err err = {0};
        snprintf(path, sizeof path, SPLIT "%s.gguf", cases[i].file);
        assert_int_not_equal(vt_model_load(path, &m, &err), VT_OK);
        if (!strstr(err.message, cases[i].words))
            fail_msg("%s: \"%s\"", cases[i].file, err.message);
    }
}

/* ---- finding ---- */

/* Makes a cache in a new folder. */
static int make_cache(void **state)
{
    char *dir = strdup("/tmp/vitrine_test_XXXXXX");
    char path[300];
    if (!dir || !mkdtemp(dir))
        return -1;
    *state = dir;
    snprintf(path, sizeof path, "%s/models", dir);
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/models/my-model.gguf", dir);
    FILE *f = fopen(path, "wb");
    if (!f)
        return -1;
    fclose(f);
    return setenv("VITRINE_CACHE", dir, 1);
}

static int remove_cache(void **state)
{
    char path[300];
    snprintf(path, sizeof path, "%s/models/my-model.gguf", (char *)*state);
    unlink(path);
    snprintf(path, sizeof path, "%s/models", (char *)*state);
    rmdir(path);
    rmdir(*state);
    free(*state);
    return unsetenv("VITRINE_CACHE");
}

static void test_find_looks_in_the_cache_with_and_without_the_ending(void **state)
{
    char got[400], want[400];
    snprintf(want, sizeof want, "%s/models/my-model.gguf", (char *)*state);
    assert_int_equal(vt_model_find("my-model", got, sizeof got, NULL), VT_OK);
    assert_string_equal(got, want);
    assert_int_equal(vt_model_find("my-model.gguf", got, sizeof got, NULL), VT_OK);
    assert_string_equal(got, want);
}

static void test_find_of_an_unknown_name_says_where_it_looked(void **state)
{
    char got[400] = "untouched";
    vt_err err = {0};
    assert_int_equal(vt_model_find("nobody", got, sizeof got, &err), VT_ERR_IO);
    assert_non_null(strstr(err.message, "nobody"));
    assert_non_null(strstr(err.message, *state));
    assert_string_equal(got, "untouched");
    assert_int_equal(vt_model_find("../models/my-model", got, sizeof got, &err), VT_ERR_IO);
    assert_int_equal(vt_model_find("", got, sizeof got, &err), VT_ERR_IO);
    assert_int_equal(vt_model_find("my-model", got, 5, &err), VT_ERR_IO);
}

static void test_load_of_paths_that_are_nothing_is_an_io_error(void **state)
{
    (void)state;
    vt_model *m;
    vt_err err = {0};
    assert_int_equal(vt_model_load("/no/such/file", &m, &err), VT_ERR_IO);
    assert_non_null(strstr(err.message, "/no/such/file"));
    assert_int_equal(vt_model_load("smollm2-135m", &m, &err), VT_ERR_IO);
    assert_non_null(strstr(err.message, "vitrine pull"));
}

/* ---- the default model, where it is at hand ---- */

static void test_load_of_smollm2_has_its_public_shape(void **state)
{
    (void)state;
    char path[4096];
    vt_model *m;
    vt_err err = {0};
    if (vt_model_find("smollm2-135m", path, sizeof path, NULL) != VT_OK)
        skip();
    if (vt_model_load("smollm2-135m", &m, &err) != VT_OK)
        fail_msg("%s", err.message);
    assert_int_equal(m->arch.n_layers, 30);
    assert_int_equal(m->arch.hidden, 576);
    assert_int_equal(m->arch.vocab, 49152);
    assert_int_equal(m->arch.max_context, 8192);
    assert_string_equal(m->quant, "Q4_1");
    assert_int_equal(m->weight_bytes, 96576768);
    assert_true(m->tokenizer && m->chat_template);
    assert_true(m->n_eos >= 1 && m->eos[0] == 2);
    assert_false(m->add_bos);
    vt_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_load_gguf_reads_every_knob_of_a_tiny_llama),
        cmocka_unit_test(test_load_gguf_of_models_we_do_not_run_names_the_reason),
        cmocka_unit_test(test_load_gguf_with_a_factor_and_no_type_stretches_linearly),
        cmocka_unit_test(test_load_gguf_without_weights_needs_only_an_architecture),
        cmocka_unit_test(
            test_engine_when_the_model_claims_a_huge_context_then_a_bounded_one_is_taken),
        cmocka_unit_test(test_load_gguf_when_an_end_has_another_key_then_it_is_an_end_too),
        cmocka_unit_test(test_load_gguf_in_parts_is_the_whole_model),
        cmocka_unit_test(test_load_gguf_in_parts_that_do_not_fit_is_refused_with_the_reason),
        cmocka_unit_test_setup_teardown(test_find_looks_in_the_cache_with_and_without_the_ending,
                                        make_cache, remove_cache),
        cmocka_unit_test_setup_teardown(test_find_of_an_unknown_name_says_where_it_looked,
                                        make_cache, remove_cache),
        cmocka_unit_test_setup_teardown(test_load_of_paths_that_are_nothing_is_an_io_error,
                                        make_cache, remove_cache),
        cmocka_unit_test(test_load_of_smollm2_has_its_public_shape),
    };
    return cmocka_run_group_tests_name("load", tests, NULL, NULL);
}
