/* Dummy models: published sizes, and weights that follow the function in model/dummy.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include <math.h>

#include "model/dummy.h"
#include "model/load.h"

static void test_dummy_models_have_the_published_number_of_parameters(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int64_t parameters;
    } cases[] = {
        {"smollm2-135m", 134515008},      {"llama-3.2-1b", 1235814400},
        {"llama-3.1-8b", 8030261248},     {"qwen3-0.6b", 596049920},
        {"qwen3-1.7b", 1720574976},       {"qwen3-4b", 4022468096},
        {"qwen3-8b", 8190735360},         {"qwen3-14b", 14768307200},
        {"qwen3-32b", 32762123264},       {"qwen3-30b-a3b", 30532122624},
        {"qwen3.5-0.8b", 752393024},      {"qwen3.5-4b", 4205751296},
        {"qwen3.5-9b", 8953803264},       {"qwen3.5-27b", 26895998464},
        {"qwen3.5-35b-a3b", 34660610688}, {"gemma4-e2b", 4628569379},
        {"gemma4-26b-a4b", 25233141790},  {"gemma4-31b", 30697345340},
        {"mistral-7b-v0.3", 7248023552},  {"mistral-small-24b", 23572403200},
        {"qwen2.5-0.5b", 494032768},      {"qwen2.5-7b", 7615616512},
        {"smollm3-3b", 3075098624},       {"olmo-2-7b", 7298617344},
        {"gemma-3-1b", 999885952},        {"gemma-3-4b", 3880263168},
        {"granite-3.3-2b", 2533539840},   {"granite-3.3-8b", 8170864640},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char name[64];
        vt_model *m;
        vt_err err = {0};
        snprintf(name, sizeof name, "dummy:%s", cases[i].name);
        if (vt_model_load(name, &m, &err) != VT_OK)
            fail_msg("%s", err.message);
        assert_string_equal(m->name, name);
        assert_int_equal(m->weight_bytes, 2 * cases[i].parameters);
        assert_true(vt_model_is_dummy(m));
        vt_model_free(m);
    }
}

static void test_dummy_unknown_name_lists_those_like_it_first(void **state)
{
    (void)state;
    vt_model *m;
    vt_err err = {0};
    assert_int_equal(vt_model_load("dummy:gpt-5", &m, &err), VT_ERR_USAGE);
    assert_non_null(strstr(err.message, "dummy:gpt-5 is not known; known are gpt-oss-20b "));
    assert_non_null(strstr(err.message, " more"));
    assert_int_equal(vt_model_load("dummy:qwen3", &m, &err), VT_ERR_USAGE);
    assert_non_null(strstr(err.message, " qwen3-30b-a3b "));
    assert_true(strlen(err.message) + 1 < sizeof err.message); /* no name is cut */
}

/* The function of dummy.h, written again as simply as it is stated there. */
static uint64_t mix(uint64_t z)
{
    z ^= z >> 30;
    z *= UINT64_C(0xbf58476d1ce4e5b9);
    z ^= z >> 27;
    z *= UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static uint16_t slow_element(const char *name, bool norm, int64_t cols, uint64_t i)
{
    uint64_t key = UINT64_C(14695981039346656037);
    for (; *name; name++) {
        key ^= (unsigned char)*name;
        key *= UINT64_C(1099511628211);
    }
    uint64_t word = mix(mix(key) + (i / 4 + 1) * UINT64_C(0x9e3779b97f4a7c15));
    int32_t r = (int32_t)(word >> (16 * (i % 4)) & 0xffff);
    if (r >= 32768)
        r -= 65536;
    int s = (int)floor(log2((double)cols) / 2);
    double x = norm ? 1 + ldexp(r, -19) : ldexp(r, -(15 + s));
    return vt_f32_to_bf16((float)x);
}

static void test_dummy_fill_is_the_stated_function_at_any_offset(void **state)
{
    (void)state;
    vt_tensor matrix = {
        .name = "model.layers.3.self_attn.q_proj.weight", .rank = 2, .dim = {40, 576}};
    vt_tensor norm = {.name = "model.norm.weight", .rank = 1, .dim = {576}};
    dummy_rule rule = dummy_rule_of(&matrix), norm_rule = dummy_rule_of(&norm);
    for (uint64_t begin = 0; begin < 9; begin++)
        for (int64_t n = 0; n < 13; n++) {
            uint16_t out[14] = {0};
            out[n] = 0xabcd;
            dummy_fill(&rule, begin * 101, n, out);
            for (int64_t i = 0; i < n; i++)
                assert_int_equal(out[i],
                                 slow_element(matrix.name, false, 576, begin * 101 + (uint64_t)i));
            assert_int_equal(out[n], 0xabcd);
        }
    uint16_t all[576];
    dummy_fill(&norm_rule, 0, 576, all);
    for (uint64_t i = 0; i < 576; i++)
        assert_int_equal(all[i], slow_element(norm.name, true, 576, i));
}

/* Known answers, with which a device's generator can be checked without this code. */
static void test_dummy_fill_has_known_answers(void **state)
{
    (void)state;
    static const uint16_t want[8] = {0x3cce, 0xbce8, 0xbccd, 0xbcf7,
                                     0x3c0a, 0x3c10, 0xbcfe, 0xbc49};
    vt_tensor t = {.name = "model.layers.0.mlp.up_proj.weight", .rank = 2, .dim = {3072, 1024}};
    dummy_rule rule = dummy_rule_of(&t);
    uint16_t out[8];
    dummy_fill(&rule, 0, 8, out);
    assert_memory_equal(out, want, sizeof want);
}

static void test_dummy_host_weights_fill_every_tensor_once(void **state)
{
    (void)state;
    vt_model *m;
    vt_err err = {0};
    assert_int_equal(vt_model_load("dummy:smollm2-135m", &m, &err), VT_OK);
    assert_int_equal(vt_model_host_weights(m, &err), VT_OK);
    const vt_tensor *t[] = {m->embed, m->layer[0].weight[VT_ROLE_Q],
                            m->layer[29].weight[VT_ROLE_DOWN], m->layer[7].weight[VT_ROLE_FFN_NORM],
                            m->final_norm};
    for (size_t k = 0; k < sizeof t / sizeof *t; k++) {
        const uint16_t *data = t[k]->data;
        int64_t n = vt_tensor_elems(t[k]), cols = t[k]->dim[t[k]->rank - 1];
        for (int64_t i = 0; i < n; i += 1 + n / 1000)
            assert_int_equal(data[i], slow_element(t[k]->name, t[k]->rank == 1, cols, (uint64_t)i));
        assert_int_equal(data[n - 1],
                         slow_element(t[k]->name, t[k]->rank == 1, cols, (uint64_t)n - 1));
    }
    ((uint16_t *)m->embed->data)[0] ^= 1;
    uint16_t changed = ((uint16_t *)m->embed->data)[0];
    assert_int_equal(vt_model_host_weights(m, &err), VT_OK);
    assert_int_equal(((uint16_t *)m->embed->data)[0], changed); /* the second call does nothing */
    vt_model_free(m);
}

static void test_dummy_model_has_a_tokenizer_a_template_and_an_end(void **state)
{
    (void)state;
    vt_model *m;
    vt_err err = {0};
    assert_int_equal(vt_model_load("dummy:qwen3-0.6b", &m, &err), VT_OK);
    assert_non_null(m->tokenizer);
    assert_non_null(m->chat_template);
    assert_true(m->n_eos >= 1);
    for (int32_t i = 0; i < m->n_eos; i++)
        assert_true(m->eos[i] >= 0 && m->eos[i] < m->arch.vocab);
    vt_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dummy_models_have_the_published_number_of_parameters),
        cmocka_unit_test(test_dummy_unknown_name_lists_those_like_it_first),
        cmocka_unit_test(test_dummy_fill_is_the_stated_function_at_any_offset),
        cmocka_unit_test(test_dummy_fill_has_known_answers),
        cmocka_unit_test(test_dummy_host_weights_fill_every_tensor_once),
        cmocka_unit_test(test_dummy_model_has_a_tokenizer_a_template_and_an_end),
    };
    return cmocka_run_group_tests_name("dummy", tests, NULL, NULL);
}
