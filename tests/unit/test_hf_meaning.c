/* config.json: keys that are refused because transformers computes another model by them, and what
 * holds where keys are missing or stand in another place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "common/read_config.h"
#include "model/load.h"

#define OF(type, rest) "{\"model_type\": \"" type "\", \"num_hidden_layers\": 2, " SHAPE rest "}"

/* Keys that transformers computes otherwise, or refuses. */
static void test_config_that_means_another_model_is_refused_by_its_key(void **state)
{
    (void)state;
    static const struct {
        const char *config, *words;
    } cases[] = {
        {OF("llama", "\"is_causal\": false"), "\"is_causal\" is false"},
        {OF("llama", "\"hidden_act\": \"gelu\""), "\"hidden_act\" gelu is not supported"},
        {OF("gemma2", "\"hidden_activation\": \"silux\""), "\"hidden_activation\" silux"},
        {OF("llama", "\"rms_norm_eps\": 0"), "\"rms_norm_eps\" is 0"},
        {OF("llama", "\"rope_theta\": -5"), "\"rope_theta\" is -5"},
        {OF("gemma3_text", "\"rope_local_base_freq\": 0"), "\"rope_local_base_freq\" is 0"},
        {OF("llama", "\"rope_scaling\": \"yarn\""),
         "\"rope_scaling\", or what it holds for a kind of layers, is a string; an object"},
        {OF("llama", "\"rope_scaling\": {\"rope_type\": \"ntk\"}"), "\"rope_type\" ntk"},
        {OF("llama", "\"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 2}, "
                     "\"rope_parameters\": {\"rope_type\": \"default\"}"),
         "both \"rope_parameters\" and \"rope_scaling\""},
        {OF("llama", "\"rope_parameters\": {\"full_attention\": {\"rope_type\": \"default\"}}"),
         "\"rope_parameters\" has \"full_attention\""},
        {OF("llama", "\"rope_parameters\": {\"sliding_attention\": {}}"),
         "\"rope_parameters\" has \"sliding_attention\""},
        {OF("mistral", "\"rope_parameters\": {\"partial_rotary_factor\": 0.5}"),
         "\"partial_rotary_factor\" 0.5"},
        {OF("gemma4_text", "\"layer_types\": [\"sliding_attention\", \"full_attention\"], "
                           "\"rope_parameters\": {\"full_attention\": {\"rope_theta\": 1e6}}"),
         "rope_type"},
        {"{\"model_type\": \"seen\", \"text_config\": " OF(
             "llama", "\"quantization_config\": {\"quant_method\": \"odd\"}") "}",
         "\"quant_method\" odd"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_refused(cases[i].config, cases[i].words);
}

static int32_t window_of(const char *config)
{
    vt_model *m = read_config(config);
    int32_t window = m->arch.window;
    vt_model_free(m);
    return window;
}

/* A window that is left out is the family's; null is none. */
static void test_config_without_a_window_has_its_familys(void **state)
{
    (void)state;
    assert_int_equal(window_of(OF("mistral", "\"rope_theta\": 1e4")), 4096);
    assert_int_equal(window_of(OF("mistral", "\"sliding_window\": null")), 0);
    assert_int_equal(window_of(OF("gemma2", "\"rope_theta\": 1e4")), 4096);
    assert_int_equal(window_of(OF("exaone4", "\"rope_theta\": 1e4")), 4096);
    assert_int_equal(window_of(OF("exaone4", "\"sliding_window\": null")), 0);
    assert_int_equal(window_of(OF("qwen2", "\"rope_theta\": 1e4")), 0);
    assert_int_equal(window_of(OF("qwen2", "\"use_sliding_window\": true")), 4096);
    assert_int_equal(window_of(OF("qwen3", "\"use_sliding_window\": true")), 4096);
}

/* The folder of Gemma 3 4B leaves out its heads and its context. */
static void test_config_of_gemma3_without_heads_has_those_of_4b(void **state)
{
    (void)state;
    vt_model *m = read_config(
        "{\"model_type\": \"gemma3\", \"text_config\": {\"hidden_size\": 2560, "
        "\"intermediate_size\": 10240, \"model_type\": \"gemma3_text\", "
        "\"num_hidden_layers\": 34, \"rope_scaling\": {\"factor\": 8.0, "
        "\"rope_type\": \"linear\"}, \"sliding_window\": 1024}}");
    assert_int_equal(m->arch.n_heads, 8);
    assert_int_equal(m->arch.n_kv_heads, 4);
    assert_int_equal(m->arch.head_dim, 256);
    assert_int_equal(m->arch.max_context, 131072);
    assert_int_equal(m->arch.window, 1024);
    assert_true(m->arch.rope[0].scaling == VT_ROPE_LINEAR && m->arch.rope[0].factor == 8);
    vt_model_free(m);
}

/* A folder that was saved under both names says the same twice. */
static void test_config_with_equal_ropes_under_both_names_is_read(void **state)
{
    (void)state;
    vt_model *m = read_config(OF("llama",
                                 "\"rope_parameters\": {\"rope_type\": \"linear\", \"factor\": 2}, "
                                 "\"rope_scaling\": {\"factor\": 2, \"rope_type\": \"linear\"}"));
    assert_true(m->arch.rope[0].scaling == VT_ROPE_LINEAR && m->arch.rope[0].factor == 2);
    vt_model_free(m);
}

/* The context of the training counts where it stands outside of the ropes' object. */
static void test_config_of_stretched_ropes_says_their_context_outside(void **state)
{
    (void)state;
    vt_model *m = read_config(
        OF("llama", "\"original_max_position_embeddings\": 16, \"rope_scaling\": {\"rope_type\": "
                    "\"yarn\", \"factor\": 2, \"original_max_position_embeddings\": 8}"));
    assert_int_equal(m->arch.rope[0].original_context, 16);
    vt_model_free(m);
    m = read_config(OF("ministral3", "\"rope_parameters\": {\"rope_type\": \"default\"}"));
    assert_true(m->arch.rope[0].base == 1e4);
    vt_model_free(m);
    m = read_config(OF("ministral3", "\"sliding_window\": null"));
    assert_true(m->arch.rope[0].base == 1e6);
    vt_model_free(m);
}

/* Families whose class in transformers stretches the rope of files that say nothing of it. */
static void test_config_without_a_rope_has_its_familys(void **state)
{
    (void)state;
#define GPT_OSS(more) OF("gpt_oss", "\"num_local_experts\": 4, \"num_experts_per_tok\": 2, " more)
    vt_model *m = read_config(GPT_OSS("\"rope_scaling\": null"));
    const vt_rope_params *p = m->arch.rope;
    assert_true(p->scaling == VT_ROPE_YARN && p->factor == 32 && !p->yarn_truncate);
    assert_true(p->base == 150000 && p->original_context == 4096);
    vt_model_free(m);
    m = read_config(GPT_OSS("\"rope_parameters\": {\"rope_type\": \"default\"}"));
    assert_true(m->arch.rope[0].scaling == VT_ROPE_PLAIN);
    vt_model_free(m);
    m = read_config(OF("ministral3", "\"sliding_window\": null"));
    p = m->arch.rope;
    assert_true(p[0].scaling == VT_ROPE_YARN && p[0].factor == 16 && p[0].base == 1e6);
    assert_true(m->arch.n_ropes == 2 && p[1].temper == 0.1);
    vt_model_free(m);
}

/* The growth of queries is in the rope's object, under either name of that. */
static void test_config_of_growing_queries_under_the_old_name_is_read(void **state)
{
    (void)state;
    vt_model *m = read_config(
        OF("ministral3", "\"rope_theta\": 1e4, \"rope_scaling\": {\"type\": \"yarn\", \"factor\": "
                         "4, \"llama_4_scaling_beta\": 0.2}"));
    assert_true(m->arch.n_ropes == 2 && m->arch.rope[1].temper == 0.2);
    vt_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_config_that_means_another_model_is_refused_by_its_key),
        cmocka_unit_test(test_config_without_a_window_has_its_familys),
        cmocka_unit_test(test_config_of_gemma3_without_heads_has_those_of_4b),
        cmocka_unit_test(test_config_with_equal_ropes_under_both_names_is_read),
        cmocka_unit_test(test_config_of_stretched_ropes_says_their_context_outside),
        cmocka_unit_test(test_config_without_a_rope_has_its_familys),
        cmocka_unit_test(test_config_of_growing_queries_under_the_old_name_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
