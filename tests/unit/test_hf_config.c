/* config.json: the defaults of keys that published files leave out. The values are those of the
 * families' configuration classes in transformers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "common/read_config.h"
#include "model/load.h"

static void expect_windows(const char *config, const char *want)
{
    vt_model *m = read_config(config);
    assert_int_equal(m->arch.n_layers, strlen(want));
    assert_int_equal(m->arch.window, 8);
    for (int32_t i = 0; i < m->arch.n_layers; i++)
        if (m->layer[i].head.window != 8 * (want[i] - '0'))
            fail_msg("layer %d has %d, expected %c", i, m->layer[i].head.window, want[i]);
    vt_model_free(m);
}

/* Without layer_types every sixth layer has no window, or every sliding_window_pattern-th. */
static void test_config_gemma_without_layer_types_has_its_pattern(void **state)
{
    (void)state;
    expect_windows("{" SHAPE "\"model_type\": \"gemma3_text\", \"num_hidden_layers\": 13, "
                   "\"sliding_window\": 8}",
                   "1111101111101");
    expect_windows("{" SHAPE "\"model_type\": \"gemma3_text\", \"num_hidden_layers\": 5, "
                   "\"sliding_window\": 8, \"sliding_window_pattern\": 2}",
                   "10101");
}

/* Without layer_types: the layers from max_window_layers (28) on have the window. */
static void test_config_qwen_without_layer_types_has_its_rule(void **state)
{
    (void)state;
    expect_windows("{" SHAPE "\"model_type\": \"qwen2\", \"num_hidden_layers\": 4, "
                   "\"use_sliding_window\": true, \"sliding_window\": 8, "
                   "\"max_window_layers\": 2}",
                   "0011");
    expect_windows("{" SHAPE "\"model_type\": \"qwen3\", \"num_hidden_layers\": 30, "
                   "\"use_sliding_window\": true, \"sliding_window\": 8}",
                   "000000000000000000000000000011");
}

static void test_config_when_keys_are_left_out_then_their_defaults_hold(void **state)
{
    (void)state;
    vt_model *m = read_config("{" SHAPE "\"model_type\": \"llama\", \"num_hidden_layers\": 1}");
    assert_float_equal(m->arch.norm_eps, 1e-6, 1e-9);
    assert_float_equal(m->arch.attn_scale, 1 / sqrt(64.0), 1e-7);
    assert_true(m->arch.rope[0].base == 1e4 && m->arch.rope[0].dims == 64 && !m->arch.tied_head);
    vt_model_free(m);
    m = read_config("{" SHAPE "\"model_type\": \"gemma3_text\", \"num_hidden_layers\": 1}");
    assert_float_equal(m->arch.norm_eps, 1e-6, 1e-9);
    assert_float_equal(m->arch.attn_scale, 1 / sqrt(256.0), 1e-7); /* query_pre_attn_scalar */
    assert_true(m->arch.rope[0].base == 1e6 && m->arch.rope[1].base == 1e4 && m->arch.tied_head);
    vt_model_free(m);
}

/* The caps of Gemma 2 are there unless a file says otherwise, and their sign says nothing. */
static void test_config_of_caps_when_signs_and_nulls_then_sizes(void **state)
{
    (void)state;
#define GEMMA2(more) "{" SHAPE "\"model_type\": \"gemma2\", \"num_hidden_layers\": 1" more "}"
    vt_model *m = read_config(GEMMA2(""));
    assert_true(m->arch.scores_within == 50 && m->arch.logits_within == 30);
    vt_model_free(m);
    m = read_config(GEMMA2(", \"attn_logit_softcapping\": -20, \"final_logit_softcapping\": null"));
    assert_true(m->arch.scores_within == 20 && m->arch.logits_within == 0);
    vt_model_free(m);
    expect_refused(GEMMA2(", \"attn_logit_softcapping\": 1e300"), "\"attn_logit_softcapping\"");
    expect_refused(GEMMA2(", \"final_logit_softcapping\": \"30\""), "\"final_logit_softcapping\"");
}

static void test_config_of_yarn_when_keys_are_left_out_then_their_defaults_hold(void **state)
{
    (void)state;
    vt_model *m = read_config("{" SHAPE "\"model_type\": \"llama\", \"num_hidden_layers\": 1, "
                              "\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4}}");
    const vt_rope_params *p = &m->arch.rope[0];
    assert_int_equal(p->scaling, VT_ROPE_YARN);
    assert_true(p->factor == 4 && p->beta_fast == 32 && p->beta_slow == 1 && p->yarn_truncate);
    assert_int_equal(p->original_context, 32); /* max_position_embeddings */
    assert_float_equal(p->attn_factor, 0.1 * log(4) + 1, 1e-12);
    vt_model_free(m);
}

/* Every decoder_sparse_step-th layer has experts, counted from 1, but those of mlp_only_layers. */
static void test_config_of_experts_says_which_layers_have_them(void **state)
{
    (void)state;
#define SPARSE(more)                                                                          \
    "{" SHAPE "\"model_type\": \"qwen3_moe\", \"num_hidden_layers\": 6, \"num_experts\": 4, " \
    "\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 8" more "}"
    static const struct {
        const char *config, *want;
    } row[] = {{SPARSE(""), "111111"},
               {SPARSE(", \"decoder_sparse_step\": 2"), "010101"},
               {SPARSE(", \"decoder_sparse_step\": 3, \"mlp_only_layers\": [5]"), "001000"}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        vt_model *m = read_config(row[i].config);
        for (int32_t k = 0; k < 6; k++)
            if ((m->layer[k].ffn == VT_BLOCK_EXPERTS) != row[i].want[k] - '0')
                fail_msg("%s: layer %d has block %d", row[i].config, k, m->layer[k].ffn);
        vt_model_free(m);
    }
    expect_refused(
        SPARSE(", \"mlp_only_layers\": [6]"),
        "\"mlp_only_layers\" holds 6 in place 0; a whole number from 0 to 5 was expected");
}

/* Qwen3.5: every fourth layer attends, or those that layer_types names; all of it may be a part of
 * a larger model's file. */
static void test_config_of_delta_rules_says_which_layers_have_them(void **state)
{
    (void)state;
#define DELTA(more)                                                                             \
    "{" SHAPE "\"model_type\": \"qwen3_5_text\", \"num_hidden_layers\": 8, "                    \
    "\"linear_conv_kernel_dim\": 4, \"linear_key_head_dim\": 8, \"linear_value_head_dim\": 6, " \
    "\"linear_num_key_heads\": 2, \"linear_num_value_heads\": 4" more "}"
    static const struct {
        const char *config, *want;
    } row[] = {
        {DELTA(""), "11101110"},
        {DELTA(", \"full_attention_interval\": 2"), "10101010"},
        {DELTA(", \"layer_types\": [\"full_attention\", \"linear_attention\", \"full_attention\", "
               "\"full_attention\", \"full_attention\", \"full_attention\", \"linear_attention\", "
               "\"full_attention\"]"),
         "01000010"},
        {"{\"model_type\": \"qwen3_5\", \"vision_config\": {}, \"text_config\": " DELTA("") "}",
         "11101110"},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        vt_model *m = read_config(row[i].config);
        for (int32_t k = 0; k < 8; k++) {
            bool delta = m->layer[k].mixer == VT_BLOCK_DELTA;
            if (delta != row[i].want[k] - '0')
                fail_msg("%s: layer %d has block %d", row[i].config, k, m->layer[k].mixer);
            /* 3 inputs of 2 * 2 * 8 + 4 * 6 channels, and 4 matrices */
            assert_int_equal(m->layer[k].state_bytes, delta ? 4 * (3 * 56 + 4 * 8 * 6) : 0);
        }
        assert_true(m->arch.norm_plus_one && m->arch.out_gate && m->arch.delta.log_decay);
        assert_int_equal(m->arch.rope[0].dims, m->arch.head_dim / 4);
        vt_model_free(m);
    }
    expect_refused(DELTA(", \"full_attention_interval\": 0"), "\"full_attention_interval\" is 0");
    expect_refused(DELTA(", \"layer_types\": [\"full_attention\"]"),
                   "\"layer_types\" is an array of 1; an array of 8 was expected");
    expect_refused(
        DELTA(", \"layer_types\": [\"a\", \"b\", \"\", \"\", \"\", \"\", \"\", \"\"]"),
        "\"layer_types\": layer 0 has type a (full_attention, linear_attention are supported)");
    expect_refused("{" SHAPE "\"model_type\": \"qwen3_5_text\", \"num_hidden_layers\": 8}",
                   "linear_conv_kernel_dim");
    expect_refused("{\"model_type\": \"qwen3_5\", \"text_config\": 3}",
                   "\"text_config\" is a number; an object was expected");
}

/* Qwen3-VL's text model: positions of three parts rotate text as usual ones do. As published, and
 * as transformers saves it. */
static void test_config_of_qwen3_vl_has_a_plain_rope(void **state)
{
    (void)state;
#define VL(rope)                                                                                \
    "{\"model_type\": \"qwen3_vl\", \"vision_config\": {\"hidden_size\": 3}, \"text_config\": " \
    "{" SHAPE "\"model_type\": \"qwen3_vl_text\", \"num_hidden_layers\": 2, " rope "}}"
    static const char *const config[] = {
        VL("\"rope_theta\": 5000000, \"rope_scaling\": {\"mrope_interleaved\": true, "
           "\"mrope_section\": [1, 1, 1], \"rope_type\": \"default\"}"),
        VL("\"rope_parameters\": {\"mrope_section\": [1, 1, 1], \"rope_theta\": 5e6, "
           "\"rope_type\": \"default\"}"),
    };
    for (size_t i = 0; i < sizeof config / sizeof *config; i++) {
        vt_model *m = read_config(config[i]);
        assert_string_equal(m->arch.family, "qwen3_vl");
        assert_int_equal(m->arch.rope[0].dims, 64);
        assert_int_equal(m->arch.rope[0].scaling, VT_ROPE_PLAIN);
        assert_true(m->arch.rope[0].base == 5e6);
        vt_model_free(m);
    }
}

/* The same with experts, whose weights are rescaled whatever the file says. As published, and as
 * transformers saves it. */
static void test_config_of_qwen3_vl_with_experts_rescales_their_weights(void **state)
{
    (void)state;
#define VL_MOE(more)                                                                     \
    "{\"model_type\": \"qwen3_vl_moe\", \"vision_config\": {}, \"text_config\": {" SHAPE \
    "\"model_type\": \"qwen3_vl_moe_text\", \"num_hidden_layers\": 4, "                  \
    "\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 24" more "}}"
    static const struct {
        const char *config, *dense;
        double base;
    } row[] = {
        {VL_MOE(", \"num_experts\": 6, \"norm_topk_prob\": true, \"rope_theta\": 5000000, "
                "\"decoder_sparse_step\": 1, \"mlp_only_layers\": [], \"rope_scaling\": "
                "{\"mrope_interleaved\": true, \"mrope_section\": [24, 20, 20], \"rope_type\": "
                "\"default\"}"),
         "0000", 5e6},
        {VL_MOE(", \"num_local_experts\": 6, \"mlp_only_layers\": [2]"), "0010", 5e5},
        {VL_MOE(", \"num_local_experts\": 6, \"decoder_sparse_step\": 2"), "1010", 5e5},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        vt_model *m = read_config(row[i].config);
        assert_string_equal(m->arch.family, "qwen3_vl_moe");
        assert_true(m->arch.n_experts == 6 && m->arch.n_experts_used == 2);
        assert_int_equal(m->arch.expert_ffn, 24);
        assert_true(m->arch.norm_topk && m->arch.rope[0].base == row[i].base);
        assert_int_equal(m->arch.rope[0].scaling, VT_ROPE_PLAIN);
        for (int32_t k = 0; k < 4; k++)
            assert_int_equal(m->layer[k].ffn == VT_BLOCK_FFN, row[i].dense[k] == '1');
        vt_model_free(m);
    }
    expect_refused(VL_MOE(", \"num_experts\": 6, \"norm_topk_prob\": false"),
                   "\"norm_topk_prob\" is false; true is supported for qwen3_vl_moe_text");
    expect_refused(VL_MOE(""), "\"num_local_experts\" is missing");
    expect_refused(VL_MOE(", \"num_experts\": 6, \"quantization_config\": {\"quant_method\": "
                          "\"mxfp4\"}"),
                   "\"quant_method\" mxfp4 is not supported");
}

/* Keys of Qwen3-Next: those of Qwen3.5 with experts, and of Qwen3 with some dense layers. */
static void test_config_of_qwen3_next_says_which_layers_are_dense(void **state)
{
    (void)state;
#define NEXT(shared, more)                                                                      \
    "{" SHAPE "\"model_type\": \"qwen3_next\", \"num_hidden_layers\": 4, "                      \
    "\"linear_conv_kernel_dim\": 4, \"linear_key_head_dim\": 8, \"linear_value_head_dim\": 6, " \
    "\"linear_num_key_heads\": 2, \"linear_num_value_heads\": 4, \"num_experts\": 8, "          \
    "\"num_experts_per_tok\": 3, \"moe_intermediate_size\": 6, "                                \
    "\"shared_expert_intermediate_size\": " #shared more "}"
    vt_model *m = read_config(NEXT(10, ", \"mlp_only_layers\": [2]"));
    const vt_arch *a = &m->arch;
    for (int32_t i = 0; i < 4; i++) {
        assert_int_equal(m->layer[i].mixer, i == 3 ? VT_BLOCK_ATTENTION : VT_BLOCK_DELTA);
        assert_int_equal(m->layer[i].ffn, i == 2 ? VT_BLOCK_FFN : VT_BLOCK_EXPERTS);
    }
    assert_true(a->norm_plus_one && a->out_gate && a->norm_topk && a->delta.log_decay);
    assert_true(!a->delta.tiled && a->rope[0].base == 1e4 && a->rope[0].dims == a->head_dim / 4);
    assert_int_equal(a->n_experts, 8);
    assert_int_equal(a->n_experts_used, 3);
    assert_int_equal(a->shared_ffn, 10);
    vt_model_free(m);
    m = read_config(NEXT(10, ", \"norm_topk_prob\": false, \"full_attention_interval\": 1, "
                             "\"decoder_sparse_step\": 2"));
    assert_true(!m->arch.norm_topk);
    assert_int_equal(m->layer[0].mixer, VT_BLOCK_ATTENTION);
    assert_int_equal(m->layer[0].ffn, VT_BLOCK_FFN);
    assert_int_equal(m->layer[1].ffn, VT_BLOCK_EXPERTS);
    vt_model_free(m);
    expect_refused(
        NEXT(10, ", \"mlp_only_layers\": [4]"),
        "\"mlp_only_layers\" holds 4 in place 0; a whole number from 0 to 3 was expected");
    expect_refused(NEXT(10, ", \"decoder_sparse_step\": 0"), "\"decoder_sparse_step\" is 0");
    expect_refused(NEXT(10, ", \"full_attention_interval\": 0"),
                   "\"full_attention_interval\" is 0");
    expect_refused(NEXT(10, ", \"hidden_act\": \"relu\""), "\"hidden_act\" relu");
    expect_refused(NEXT(0, ""), "the shared expert (shared_expert_intermediate_size, ");
    expect_refused("{" SHAPE "\"model_type\": \"qwen3_next\", \"num_hidden_layers\": 4}",
                   "linear_conv_kernel_dim");
}

/* Keys of Kimi Linear, by their published names and by those of transformers' class. Layers are
 * counted from 1 in its lists. */
static void test_config_of_kimi_linear_is_read_or_its_key_is_named(void **state)
{
    (void)state;
#define KIMI_SHAPE                                                                            \
    SHAPE                                                                                     \
    "\"model_type\": \"kimi_linear\", \"num_hidden_layers\": 4, \"kv_lora_rank\": 24, "       \
    "\"qk_nope_head_dim\": 6, \"qk_rope_head_dim\": 4, \"v_head_dim\": 10, \"q_lora_rank\": " \
    "null, \"moe_intermediate_size\": 6, "
#define KIMI_OF(delta, kda, full, more)                                                        \
    "{" KIMI_SHAPE "\"model_max_length\": 77, \"num_experts\": 8, \"num_experts_per_token\": " \
    "3, \"num_expert_group\": 1, \"topk_group\": 1, \"moe_renormalize\": true, "               \
    "\"routed_scaling_factor\": 2.5, \"linear_attn_config\": {\"kda_layers\": " kda            \
    ", \"full_attn_layers\": " full delta                                                      \
    ", \"head_dim\": 12, \"num_heads\": 5, \"short_conv_kernel_size\": 3}" more "}"
#define KIMI(more) KIMI_OF("", "[1, 2, 4]", "[3]", more)
    vt_model *m = read_config(KIMI(", \"mla_use_nope\": true, \"num_shared_experts\": 2, "
                                   "\"moe_router_activation_func\": \"sigmoid\", "
                                   "\"num_nextn_predict_layers\": 0"));
    const vt_arch *a = &m->arch;
    for (int32_t i = 0; i < 4; i++) {
        assert_int_equal(m->layer[i].mixer, i == 2 ? VT_BLOCK_MLA : VT_BLOCK_KDA);
        assert_int_equal(m->layer[i].ffn, i == 0 ? VT_BLOCK_FFN : VT_BLOCK_EXPERTS);
    }
    assert_int_equal(m->layer[2].head.rope, -1);
    assert_int_equal(a->n_ropes, 0);
    assert_int_equal(a->max_context, 77);
    assert_int_equal(a->conv_taps, 3);
    assert_true(a->delta.k_heads == 5 && a->delta.v_heads == 5 && a->delta.k_dim == 12 &&
                a->delta.v_dim == 12 && a->delta.gate_rank == 12 && a->delta.log_decay);
    assert_int_equal(m->layer[0].state_bytes, 4 * (2 * 3 * 60 + 5 * 12 * 12));
    assert_int_equal(a->n_experts, 8);
    assert_int_equal(a->n_experts_used, 3);
    assert_int_equal(a->shared_ffn, 12);
    assert_int_equal(a->expert_groups, 0);
    assert_true(a->route_sigmoid && a->norm_topk && a->route_scale == 2.5f);
    assert_float_equal(a->norm_eps, 1e-5, 1e-9);
    vt_model_free(m);
    m = read_config("{" KIMI_SHAPE "\"num_local_experts\": 4, \"num_experts_per_tok\": 2, "
                    "\"norm_topk_prob\": false, \"n_group\": 2, "
                    "\"mlp_layer_types\": [\"dense\", \"dense\", \"sparse\", \"sparse\"], "
                    "\"layer_types\": [\"full_attention\", \"linear_attention\", "
                    "\"linear_attention\", \"full_attention\"], \"linear_num_heads\": 3, "
                    "\"linear_head_dim\": 8, \"linear_conv_kernel_dim\": 2}");
    assert_int_equal(m->layer[0].mixer, VT_BLOCK_MLA);
    assert_int_equal(m->layer[1].mixer, VT_BLOCK_KDA);
    assert_int_equal(m->layer[1].ffn, VT_BLOCK_FFN);
    assert_int_equal(m->arch.delta.v_heads, 3);
    assert_int_equal(m->arch.n_experts_used, 2);
    assert_true(m->arch.expert_groups == 2 && m->arch.expert_groups_used == 1);
    assert_true(!m->arch.norm_topk && m->arch.route_scale == 2.446f);
    vt_model_free(m);
    static const char *const refused[][2] = {
        {KIMI(", \"mla_use_nope\": false"), "\"mla_use_nope\" is false"},
        {KIMI(", \"moe_layer_freq\": 2"), "\"moe_layer_freq\" is 2"},
        {KIMI(", \"moe_router_activation_func\": \"softmax\""), "_activation_func\" is softmax"},
        {KIMI(", \"mla_use_output_gate\": true"), "\"mla_use_output_gate\" is true"},
        {KIMI(", \"num_nextn_predict_layers\": 1"), "\"num_nextn_predict_layers\" is 1"},
        {KIMI(", \"attention_bias\": true"), "\"attention_bias\""},
        {KIMI(", \"mlp_layer_types\": [\"sparse\", \"dense\", \"sparse\", \"sparse\"]"),
         "\"mlp_layer_types\" holds \"dense\" in place 1; \"dense\" layers and then"},
        {KIMI(", \"num_shared_experts\": 0"),
         "0 shared experts (n_shared_experts or num_shared_experts, "},
        {KIMI_OF(", \"gate_lower_bound\": -5.0", "[1, 2, 4]", "[3]", ""), "\"gate_lower_bound\""},
        {KIMI_OF(", \"use_full_rank_gate\": true", "[1, 2, 4]", "[3]", ""), "\"use_full_rank_gate"},
        {KIMI_OF("", "[1, 2]", "[3]", ""),
         "\"kda_layers\" has 2 layers and \"full_attn_layers\" 1; arrays of 4"},
        {KIMI_OF("", "[1, 2, 5]", "[3]", ""),
         "\"kda_layers\" holds 5 in place 2; a whole number from 1 to 4"},
        {KIMI_OF("", "[1, 2, 4]", "[4]", ""), "\"full_attn_layers\" names layer 4"},
        {KIMI_OF("", "[1, 2, 2]", "[3]", ""),
         "\"kda_layers\" names layer 2, which was named before; each of 1 to 4"},
        {KIMI_OF("", "[1, 2]", "[3, 3]", ""), "\"full_attn_layers\" names layer 3"},
        {KIMI_OF("", "[1, 2, \"4\"]", "[3]", ""),
         "\"kda_layers\" holds \"4\" in place 2; a whole number"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        expect_refused(refused[i][0], refused[i][1]);
}

/* Keys of LFM2, in the spelling of published files and in that of newer ones. */
static void test_config_of_lfm2_says_which_layers_convolve(void **state)
{
    (void)state;
#define LFM2(more) "{" SHAPE "\"model_type\": \"lfm2\", \"num_hidden_layers\": 3" more "}"
#define LFM2_MOE(more)                                                                       \
    "{" SHAPE "\"model_type\": \"lfm2_moe\", \"num_hidden_layers\": 3, \"num_experts\": 8, " \
    "\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 6, \"layer_types\": [\"conv\", " \
    "\"conv\", \"full_attention\"]" more "}"
#define ATTENDS(list) ", \"full_attn_idxs\": " list
    vt_model *m = read_config(LFM2(ATTENDS("[1]") ", \"conv_L_cache\": 4, \"norm_eps\": 1e-4, "
                                                  "\"block_multiple_of\": 5"));
    const vt_layer *l = m->layer;
    assert_int_equal(l[0].mixer, VT_BLOCK_CONV);
    assert_int_equal(l[1].mixer, VT_BLOCK_ATTENTION);
    assert_int_equal(l[0].state_bytes, 4 * 3 * m->arch.hidden);
    assert_int_equal(l[1].state_bytes, 0);
    assert_true(m->arch.norm_eps == 1e-4f && m->arch.tied_head && m->arch.rope[0].base == 1e6);
    assert_int_equal(m->arch.ffn % 5, 0);
    vt_model_free(m);
    m = read_config(LFM2_MOE(", \"num_dense_layers\": 1, \"routed_scaling_factor\": 2.5"));
    assert_int_equal(m->layer[0].ffn, VT_BLOCK_FFN);
    assert_int_equal(m->layer[1].ffn, VT_BLOCK_EXPERTS);
    assert_true(m->arch.route_sigmoid && m->arch.norm_topk && m->arch.route_scale == 2.5f);
    vt_model_free(m);
    expect_refused(LFM2(""), "\"layer_types\" and \"full_attn_idxs\" are missing");
    expect_refused(LFM2(ATTENDS("[3]")), "\"full_attn_idxs\" holds");
    expect_refused(LFM2(ATTENDS("[0]") ", \"conv_bias\": true"), "\"conv_bias\" is true");
    expect_refused(LFM2(ATTENDS("[0]") ", \"block_multiple_of\": 0"), "\"block_multiple_of\" is 0");
    expect_refused(LFM2(", \"layer_types\": [\"conv\", \"mamba\", \"conv\"]"),
                   "layer 1 has type mamba (full_attention, conv are supported)");
    expect_refused(LFM2_MOE(", \"use_expert_bias\": false"), "\"use_expert_bias\" is false");
    expect_refused(LFM2_MOE(", \"num_dense_layers\": 4"),
                   "4 of 3 layers are dense (num_dense_layers, ");
}

/* Keys of Granite 4 with state spaces; what is not computed here is refused by its key. */
static void test_config_of_granite_says_which_layers_have_state_spaces(void **state)
{
    (void)state;
#define GRANITE4(more)                                                           \
    "{" SHAPE "\"model_type\": \"granitemoehybrid\", \"num_hidden_layers\": 2, " \
    "\"mamba_n_heads\": 4, \"mamba_d_state\": 6, \"layer_types\": "              \
    "[\"mamba\", \"full_attention\"], \"shared_intermediate_size\": 20" more "}"
    vt_model *m = read_config(GRANITE4(", \"num_local_experts\": 0"));
    const vt_mamba *s = &m->arch.mamba;
    assert_int_equal(m->layer[0].mixer, VT_BLOCK_MAMBA);
    assert_int_equal(m->layer[1].mixer, VT_BLOCK_ATTENTION);
    assert_int_equal(m->layer[0].ffn, VT_BLOCK_FFN);
    assert_int_equal(m->layer[1].head.rope, -1);
    assert_int_equal(s->heads * s->head_dim, 2 * m->arch.hidden);
    assert_int_equal(m->layer[0].state_bytes,
                     4 * (3 * (2 * m->arch.hidden + 2 * 6) + 2 * m->arch.hidden * 6));
    assert_int_equal(m->arch.ffn, 20);
    assert_int_equal(m->arch.n_ropes, 0);
    vt_model_free(m);
    m = read_config(GRANITE4(", \"num_local_experts\": 4, \"num_experts_per_tok\": 2, "
                             "\"position_embedding_type\": \"rope\""));
    assert_int_equal(m->layer[0].ffn, VT_BLOCK_EXPERTS);
    assert_int_equal(m->arch.shared_ffn, 20);
    assert_int_equal(m->layer[1].head.rope, 0);
    vt_model_free(m);
#define DENSE4(more) GRANITE4(", \"num_local_experts\": 0, " more)
    expect_refused(DENSE4("\"mamba_proj_bias\": true"), "\"mamba_proj_bias\" is true");
    expect_refused(DENSE4("\"mamba_conv_bias\": false"), "\"mamba_conv_bias\" is false");
    expect_refused(DENSE4("\"time_step_limit\": [0.0, 0.1]"), "\"time_step_limit\" is 0 to 0.1");
    expect_refused(DENSE4("\"time_step_limit\": [0.1, 1e30]"), "\"time_step_limit\" is 0.1 to");
    expect_refused(DENSE4("\"time_step_limit\": [0.1, Infinity]"), "\"time_step_limit\" is 0.1 to");
    vt_model_free(
        read_config(DENSE4("\"time_step_limit\": [0.0, Infinity], \"x\": [NaN, \"\\\"NaN\"]")));
    expect_refused(DENSE4("\"position_embedding_type\": \"alibi\""),
                   "\"position_embedding_type\" is alibi");
    expect_refused(DENSE4("\"mamba_expand\": 0"), "is not a multiple of 4 heads");
    expect_refused(GRANITE4(""), "num_local_experts");
}

/* Nemotron-H's layers have the block that a list of words, or a text of letters, says; what is not
 * computed here is refused by its key. */
static void test_config_of_nemotron_h_says_which_block_a_layer_has(void **state)
{
    (void)state;
#define NEMOTRON(more)                                                                   \
    "{\"model_type\": \"nemotron_h\", \"hidden_size\": 16, \"num_attention_heads\": 2, " \
    "\"num_key_value_heads\": 1, \"intermediate_size\": 20, \"vocab_size\": 8, "         \
    "\"max_position_embeddings\": 64, \"mamba_num_heads\": 4, \"mamba_head_dim\": 6, "   \
    "\"n_groups\": 2, \"ssm_state_size\": 10, " more "}"
#define WORDS "\"layers_block_type\": [\"mamba\", \"mlp\", \"full_attention\"]"
#define LETTERS(letters)                                                                  \
    "\"num_hidden_layers\": 3, \"attention_head_dim\": 24, \"hybrid_override_pattern\": " \
    "\"" letters "\""
    const char *both[] = {NEMOTRON(WORDS ", \"head_dim\": 24"), NEMOTRON(LETTERS("M-*"))};
    for (int k = 0; k < 2; k++) {
        vt_model *m = read_config(both[k]);
        static const uint8_t mixer[] = {VT_BLOCK_MAMBA, VT_BLOCK_NONE, VT_BLOCK_ATTENTION},
                             ffn[] = {VT_BLOCK_NONE, VT_BLOCK_MLP, VT_BLOCK_NONE};
        assert_int_equal(m->arch.n_layers, 3);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(m->layer[i].mixer, mixer[i]);
            assert_int_equal(m->layer[i].ffn, ffn[i]);
        }
        assert_int_equal(m->layer[0].state_bytes, 4 * (3 * (24 + 2 * 2 * 10) + 24 * 10));
        assert_int_equal(m->layer[1].state_bytes, 0);
        assert_int_equal(m->layer[2].head.dim, 24);
        assert_int_equal(m->layer[2].head.rope, -1);
        assert_true(m->arch.attn_scale > 0.204f && m->arch.attn_scale < 0.2042f);
        assert_int_equal(m->arch.activation, VT_ACT_RELU2);
        vt_model_free(m);
    }
#define NANO3(more)                                                                      \
    NEMOTRON(LETTERS(                                                                    \
        "ME*") ", \"n_routed_experts\": 8, \"num_experts_per_tok\": 2, \"n_group\": 1, " \
               "\"moe_intermediate_size\": 6, \"moe_shared_expert_intermediate_size\": 10" more)
    vt_model *e = read_config(NANO3(""));
    assert_int_equal(e->layer[1].ffn, VT_BLOCK_EXPERTS);
    assert_int_equal(e->arch.shared_ffn, 10);
    assert_int_equal(e->arch.expert_groups, 0);
    assert_true(e->arch.route_sigmoid && e->arch.norm_topk);
    vt_model_free(e);
    expect_refused(NANO3(", \"moe_latent_size\": 4"), "\"moe_latent_size\"");
    expect_refused(NANO3(", \"n_shared_experts\": 2"), "\"n_shared_experts\" is 2");
    expect_refused(NEMOTRON(LETTERS("M-")), "\"hybrid_override_pattern\" has 2 entries; 3 layers");
    expect_refused(NEMOTRON(LETTERS("MX*")), "\"hybrid_override_pattern\" has X for layer 1");
    expect_refused(NEMOTRON("\"layers_block_type\": [\"mamba\", \"wave\"]"),
                   "has wave for layer 1");
    expect_refused(NEMOTRON("\"layers_block_type\": [\"mamba\", 3]"), "has (no text) for layer 1");
    expect_refused(NEMOTRON("\"head_dim\": 24"), "num_hidden_layers");
    expect_refused(NEMOTRON(WORDS ", \"mlp_hidden_act\": \"silu\""), "\"mlp_hidden_act\" is silu");
    expect_refused(NEMOTRON(WORDS ", \"mamba_hidden_act\": \"gelu\""),
                   "\"mamba_hidden_act\" is gelu");
    expect_refused(NEMOTRON(WORDS ", \"use_bias\": true"), "\"use_bias\" is true");
    expect_refused(NEMOTRON(WORDS ", \"mlp_bias\": true"), "\"mlp_bias\" is true");
    expect_refused(NEMOTRON(WORDS ", \"use_conv_bias\": false"), "\"use_conv_bias\" is false");
    expect_refused(NEMOTRON(WORDS ", \"sliding_window\": 128"), "\"sliding_window\"");
    expect_refused(NEMOTRON(WORDS ", \"time_step_limit\": [0.0, 0.1]"),
                   "\"time_step_limit\" is 0 to");
}

/* Keys of routers of sigmoids are read, or refused by name where they ask for something else. */
static void test_config_of_sigmoid_routers_is_read_or_its_key_is_named(void **state)
{
    (void)state;
#define GLM(more)                                                                              \
    "{" SHAPE "\"model_type\": \"glm4_moe\", \"num_hidden_layers\": 3, \"n_routed_experts\": " \
    "8, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 6" more "}"
#define MINIMAX(more)                                                      \
    "{" SHAPE "\"model_type\": \"minimax_m2\", \"num_hidden_layers\": 1, " \
    "\"num_local_experts\": 8, \"num_experts_per_tok\": 2" more "}"
    vt_model *m = read_config(GLM(", \"n_group\": 1, \"topk_group\": 1, \"n_shared_experts\": 2, "
                                  "\"routed_scaling_factor\": 2.5"));
    assert_int_equal(m->layer[0].ffn, VT_BLOCK_FFN); /* one dense layer unless the file says more */
    assert_int_equal(m->layer[1].ffn, VT_BLOCK_EXPERTS);
    assert_int_equal(m->arch.shared_ffn, 12);
    assert_int_equal(m->arch.expert_groups, 0); /* one group is none */
    assert_true(m->arch.route_sigmoid && m->arch.norm_topk && m->arch.route_scale == 2.5f);
    assert_int_equal(m->arch.rope[0].dims, m->arch.head_dim / 2);
    vt_model_free(m);
    expect_refused(GLM(", \"first_k_dense_replace\": 4"),
                   "4 of 3 layers are dense (first_k_dense_replace, ");
    expect_refused(GLM(", \"n_shared_experts\": 0"), "0 shared experts (n_shared_experts or ");
    expect_refused(GLM(", \"routed_scaling_factor\": 1e300"), "\"routed_scaling_factor\"");
    m = read_config(GLM(", \"n_group\": 4"));
    assert_true(m->arch.expert_groups == 4 && m->arch.expert_groups_used == 1);
    vt_model_free(m);
    m = read_config(MINIMAX(", \"rotary_dim\": 4, \"scoring_func\": \"sigmoid\""));
    assert_int_equal(m->arch.rope[0].dims, 4);
    assert_true(m->arch.route_sigmoid && m->arch.norm_topk);
    vt_model_free(m);
#define SIZES "\"hidden_size\": 96, \"intermediate_size\": 12, \"max_position_embeddings\": 32"
    m = read_config("{\"model_type\": \"minimax_m2\", \"num_hidden_layers\": 1, " SIZES
                    ", \"num_attention_heads\": 2, \"num_key_value_heads\": 2, "
                    "\"num_local_experts\": 8, \"num_experts_per_tok\": 2}");
    assert_int_equal(m->arch.head_dim, 128);
    vt_model_free(m);
    expect_refused(MINIMAX(", \"scoring_func\": \"softmax\""), "\"scoring_func\" is softmax");
    expect_refused(MINIMAX(", \"use_qk_norm\": false"), "\"use_qk_norm\" is false");
    expect_refused(MINIMAX(", \"qk_norm_type\": \"per_head\""), "\"qk_norm_type\" is per_head");
    expect_refused(MINIMAX(", \"shared_intermediate_size\": 8"), "\"shared_intermediate_size\"");
}

/* Hunyuan's rope has a base of 10^4 times 1000^(dims / (dims - 2)), whatever the length of a text;
 * what its code can leave out or have besides is refused. */
static void test_config_of_hunyuan_stretches_the_base_of_rope(void **state)
{
    (void)state;
#define HUNYUAN(more) \
    "{" SHAPE "\"model_type\": \"hunyuan_v1_dense\", \"num_hidden_layers\": 2" more "}"
#define DYNAMIC(more) "\"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 1.0" more "}"
    vt_model *m = read_config(HUNYUAN(", " DYNAMIC(", \"alpha\": 1000.0")));
    assert_true(fabs(m->arch.rope[0].base / (1e4 * pow(1000, 64.0 / 62)) - 1) < 1e-12);
    assert_int_equal(m->arch.rope[0].scaling, VT_ROPE_PLAIN);
    assert_true(m->layer[0].head.norm_rotated && m->layer[1].head.norm_rotated);
    assert_true(m->arch.norm_eps == 1e-5f);
    vt_model_free(m);
    m = read_config(HUNYUAN(""));
    assert_true(m->arch.rope[0].base == 1e4);
    vt_model_free(m);
    expect_refused(HUNYUAN(", " DYNAMIC("")), "\"rope_type\" dynamic has \"alpha\" 0");
    expect_refused(HUNYUAN(", \"use_qk_norm\": false"), "\"use_qk_norm\" is false");
    expect_refused(HUNYUAN(", \"use_cla\": true"), "\"use_cla\" is true");
}

/* Hunyuan A13B gives numbers of experts once or for each layer. Lists whose numbers differ are
 * refused by the key, and so is what its code can leave out or have besides. */
static void test_config_of_hunyuan_with_experts_has_even_layers(void **state)
{
    (void)state;
#define A13B(more) "{" SHAPE "\"model_type\": \"hunyuan_v1_moe\", \"num_hidden_layers\": 2" more "}"
    vt_model *m = read_config(A13B(", \"num_experts\": 8, \"moe_topk\": [3, 3], "
                                   "\"moe_intermediate_size\": [6, 6], \"num_shared_expert\": 2"));
    const vt_arch *a = &m->arch;
    assert_int_equal(a->n_experts, 8);
    assert_int_equal(a->n_experts_used, 3);
    assert_int_equal(a->expert_ffn, 6);
    assert_int_equal(a->shared_ffn, 12);
    assert_true(a->norm_topk && !a->route_sigmoid && m->layer[1].head.norm_rotated);
    assert_int_equal(m->layer[0].ffn, VT_BLOCK_EXPERTS);
    vt_model_free(m);
    m = read_config(A13B(", \"num_experts\": [4, 4], \"moe_topk\": 2"));
    assert_int_equal(m->arch.n_experts, 4);
    assert_int_equal(m->arch.expert_ffn, m->arch.ffn);
    assert_int_equal(m->arch.shared_ffn, m->arch.ffn);
    vt_model_free(m);
    static const char *const refused[][2] = {
        {A13B(", \"num_experts\": [4, 8]"), "\"num_experts\" is 8 in layer 1"},
        {A13B(", \"num_experts\": 4, \"moe_topk\": [2, 1]"), "\"moe_topk\" is 1 in layer 1"},
        {A13B(", \"num_experts\": 4, \"moe_topk\": [2]"), "\"moe_topk\" has 1 numbers"},
        {A13B(", \"moe_intermediate_size\": [4, 6]"), "\"moe_intermediate_size\" is 6"},
        {A13B(", \"num_shared_expert\": [1, 2]"), "\"num_shared_expert\" is 2"},
        {A13B(", \"num_shared_expert\": 0"), "0 shared experts (num_shared_expert, "},
        {A13B(", \"use_cla\": true"), "\"use_cla\" is true"},
        {A13B(", \"use_mla\": true"), "\"use_mla\" is true"},
        {A13B(", \"use_qk_norm\": false"), "\"use_qk_norm\" is false"},
        {A13B(", \"use_mixed_mlp_moe\": false"), "\"use_mixed_mlp_moe\" is false"},
        {A13B(", \"norm_topk_prob\": false"), "\"norm_topk_prob\" is false"},
        {A13B(", \"group_limited_greedy\": true"), "\"group_limited_greedy\" is true"},
        {A13B(", \"moe_drop_tokens\": true"), "\"moe_drop_tokens\" is true"},
        {A13B(", \"moe_layer_num_skipped\": 1"), "\"moe_layer_num_skipped\" is 1"},
        {A13B(", \"routed_scaling_factor\": 2.0"), "\"routed_scaling_factor\" is 2"},
        {A13B(", \"attention_head_dim\": 32"), "\"attention_head_dim\" is 32"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        expect_refused(refused[i][0], refused[i][1]);
}

/* Mistral 4: rope goes over whole rows of latents where queries grow with their position; groups of
 * experts behind a softmax and amplitudes of rope are refused. */
static void test_config_of_mistral4_tempers_whole_queries(void **state)
{
    (void)state;
#define MISTRAL4(groups, more)                                                                    \
    "{" SHAPE "\"model_type\": \"mistral4\", \"num_hidden_layers\": 2, \"n_routed_experts\": 8, " \
    "\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 6, \"kv_lora_rank\": 10, "            \
    "\"qk_nope_head_dim\": 12, \"qk_rope_head_dim\": 4, \"v_head_dim\": 6, \"n_group\": " groups  \
    ", \"topk_group\": 1, \"rope_parameters\": {\"rope_type\": \"yarn\", \"rope_theta\": "        \
    "10000.0, "                                                                                   \
    "\"factor\": 4.0, \"original_max_position_embeddings\": 64, \"mscale\": 1.0" more "}}"
    vt_model *m = read_config(
        MISTRAL4("1", ", \"mscale_all_dim\": 1.0, \"llama_4_scaling_beta\": 0.1"));
    const vt_rope_params *p = m->arch.rope;
    assert_int_equal(m->arch.n_ropes, 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(p[i].span, 4);
        assert_int_equal(p[i].dims, 14);
        assert_int_equal(p[i].still, 5);
        assert_true(p[i].temper == (i ? 0.1 : 0));
    }
    assert_true(m->layer[1].head.q_rope_next && !m->arch.route_sigmoid && m->arch.norm_topk);
    vt_model_free(m);
    m = read_config(MISTRAL4("1", ", \"partial_rotary_factor\": 0.25"));
    assert_int_equal(m->arch.n_ropes, 1);
    assert_int_equal(m->arch.rope[0].dims, 4);
    vt_model_free(m);
    expect_refused(MISTRAL4("1", ", \"partial_rotary_factor\": 0.5"),
                   "\"partial_rotary_factor\" 0.5");
    expect_refused(MISTRAL4("2", ""), "\"n_group\" is 2");
    expect_refused(MISTRAL4("1", ", \"llama_4_scaling_beta\": 0.1"), "with an amplitude of 1.13");
    expect_refused(MISTRAL4("1", ", \"llama_4_scaling_beta\": 1e9"), "llama_4_scaling_beta");
}

/* Keys of Gemma 4, in the spelling of published files and in that of newer ones. */
static void test_config_of_gemma4_says_what_each_layer_has(void **state)
{
    (void)state;
#define GEMMA4(more)                                                                              \
    "{" SHAPE "\"model_type\": \"gemma4_text\", \"num_hidden_layers\": 4, \"vocab_size\": 99, "   \
    "\"vocab_size_per_layer_input\": 99, \"sliding_window\": 8, \"layer_types\": "                \
    "[\"sliding_attention\", \"full_attention\", \"sliding_attention\", \"full_attention\"]" more \
    "}"
    vt_model *m = read_config(GEMMA4(", \"global_head_dim\": 96, \"attention_k_eq_v\": true, "
                                     "\"num_global_key_value_heads\": 1, "
                                     "\"num_kv_shared_layers\": 2, \"use_double_wide_mlp\": true, "
                                     "\"use_bidirectional_attention\": \"vision\""));
    assert_int_equal(m->layer[0].head.dim, 64);
    assert_int_equal(m->layer[0].head.kv_heads, 2);
    assert_int_equal(m->layer[0].head.rope, 1);
    assert_int_equal(m->layer[1].head.dim, 96);
    assert_int_equal(m->layer[1].head.kv_heads, 1);
    assert_true(m->layer[1].head.v_of_k && !m->layer[0].head.v_of_k);
    assert_int_equal(m->layer[2].kv_of, 0);
    assert_int_equal(m->layer[3].kv_of, 1);
    assert_int_equal(m->layer[3].ffn_size, 24);
    assert_int_equal(m->arch.per_layer, 256);
    assert_int_equal(m->arch.rope[0].dims, 96);
    assert_int_equal(m->arch.rope[0].still, 36); /* a quarter of 48 pairs is rotated */
    assert_int_equal(m->arch.rope[1].dims, 64);
    vt_model_free(m);
    m = read_config(GEMMA4(", \"per_layer_config\": {\"1\": {\"head_dim\": 96}, \"3\": "
                           "{\"head_dim\": 96, \"num_key_value_heads\": 1}}"));
    assert_int_equal(m->layer[3].head.dim, 96);
    assert_int_equal(m->layer[3].head.kv_heads, 1);
    assert_int_equal(m->layer[2].head.dim, 64);
    vt_model_free(m);
    expect_refused(GEMMA4(", \"per_layer_config\": {\"1\": {\"head_dim\": 96}}"),
                   "layer 3 has a \"head_dim\" of 64");
    expect_refused(GEMMA4(", \"per_layer_config\": {\"1\": {\"sliding_window\": 9}}"),
                   "\"per_layer_config\" has \"sliding_window\" for layer 1");
    expect_refused(GEMMA4(", \"num_kv_shared_layers\": 3"), "\"num_kv_shared_layers\" is 3");
    expect_refused(GEMMA4(", \"num_kv_shared_layers\": 1, \"use_double_wide_mlp\": true, "
                          "\"enable_moe_block\": true, \"num_experts\": 4, \"top_k_experts\": 2, "
                          "\"moe_intermediate_size\": 8"),
                   "\"use_double_wide_mlp\" is true");
    expect_refused(GEMMA4(", \"use_bidirectional_attention\": \"all\""),
                   "\"use_bidirectional_attention\" all");
    expect_refused(GEMMA4(", \"final_logit_softcapping\": 1e300"), "\"final_logit_softcapping\"");
    expect_refused(GEMMA4(", \"rope_parameters\": {\"full_attention\": {\"rope_type\": "
                          "\"default\"}}"),
                   "type default");
    expect_refused(GEMMA4(", \"enable_moe_block\": true"), "\"num_experts\"");
    expect_refused("{" SHAPE "\"model_type\": \"gemma4_text\", \"num_hidden_layers\": 4}",
                   "\"layer_types\"");
}

/* Keys of latent attention are read, or refused by name where they ask for something else. */
static void test_config_of_latents_is_read_or_its_key_is_named(void **state)
{
    (void)state;
#define LATENT(type, more)                                                                     \
    "{" SHAPE "\"model_type\": \"" type "\", \"num_hidden_layers\": 4, \"n_routed_experts\": " \
    "8, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 6, \"kv_lora_rank\": 24, "      \
    "\"qk_nope_head_dim\": 6, \"qk_rope_head_dim\": 4, \"v_head_dim\": 10" more "}"
#define V3(more) LATENT("deepseek_v3", more)
#define V2(more) LATENT("deepseek_v2", more)
    vt_model *m = read_config(V3(", \"q_lora_rank\": 20"));
    assert_int_equal(m->arch.mla.q_rank, 20);
    assert_int_equal(m->layer[0].mixer, VT_BLOCK_MLA);
    assert_int_equal(m->layer[0].head.dim, 24 + 4);
    assert_int_equal(m->layer[0].head.v_dim, 24);
    assert_int_equal(m->layer[0].head.kv_heads, 1);
    assert_int_equal(m->layer[2].ffn, VT_BLOCK_FFN); /* 3 dense layers unless the file says more */
    assert_int_equal(m->layer[3].ffn, VT_BLOCK_EXPERTS);
    assert_int_equal(m->arch.rope[0].dims, 4);
    assert_float_equal(m->arch.attn_scale, 1 / sqrt(10), 1e-6);
    assert_true(m->arch.route_sigmoid && m->arch.norm_topk && m->arch.route_scale == 2.5f);
    assert_true(m->arch.expert_groups == 8 && m->arch.expert_groups_used == 4);
    vt_model_free(m);
    m = read_config(V2(", \"q_lora_rank\": null, \"n_group\": 1, \"topk_group\": 1"));
    assert_int_equal(m->arch.mla.q_rank, 0);
    assert_int_equal(m->layer[0].ffn, VT_BLOCK_EXPERTS);
    assert_true(!m->arch.route_sigmoid && !m->arch.norm_topk && m->arch.route_scale == 1);
    assert_int_equal(m->arch.shared_ffn, 2 * 6); /* 2 shared experts unless the file says more */
    vt_model_free(m);
    m = read_config(LATENT("glm4_moe_lite", ", \"mlp_layer_types\": [\"dense\", \"dense\", "
                                            "\"sparse\", \"sparse\"]"));
    assert_int_equal(m->layer[1].ffn, VT_BLOCK_FFN);
    assert_int_equal(m->layer[2].ffn, VT_BLOCK_EXPERTS);
    assert_true(m->arch.route_scale == 1.8f && m->arch.shared_ffn == 6);
    vt_model_free(m);
    expect_refused(V3(", \"attention_bias\": true"),
                   "\"attention_bias\" is true; false is supported");
    expect_refused(V3(", \"topk_method\": \"greedy\""), "\"topk_method\" is greedy");
    expect_refused(V3(", \"scoring_func\": \"softmax\""), "\"scoring_func\" is softmax");
    expect_refused(V3(", \"moe_layer_freq\": 2"), "\"moe_layer_freq\" is 2");
    expect_refused(V3(", \"q_lora_rank\": -1"), "(q_lora_rank, attention.q_lora_rank) is -1");
    expect_refused(V2(", \"topk_method\": \"group_limited_greedy\""),
                   "\"topk_method\" is group_limited_greedy");
    expect_refused(V2(", \"norm_topk_prob\": true"), "\"norm_topk_prob\" is true");
    expect_refused(LATENT("glm4_moe_lite", ", \"mlp_layer_types\": [\"sparse\", \"dense\", "
                                           "\"sparse\", \"sparse\"]"),
                   "\"mlp_layer_types\" holds \"dense\" in place 1");
    expect_refused("{" SHAPE "\"model_type\": \"deepseek_v3\", \"num_hidden_layers\": 4}",
                   "kv_lora_rank");
}

/* Factors that would make every logit infinite or zero are refused with their key. */
static void test_config_when_a_factor_is_absurd_then_its_key_is_named(void **state)
{
    (void)state;
    expect_refused("{" SHAPE "\"model_type\": \"gemma3_text\", \"num_hidden_layers\": 1, "
                   "\"query_pre_attn_scalar\": 1e-300}",
                   "\"query_pre_attn_scalar\" is 1e-300");
#define YARN(more)                                                    \
    "{" SHAPE "\"model_type\": \"llama\", \"num_hidden_layers\": 1, " \
    "\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 2, " more "}}"
    expect_refused(YARN("\"attention_factor\": 3e38"), "\"attention_factor\" is 3e+38");
    expect_refused(YARN("\"mscale\": 1e300, \"mscale_all_dim\": 1"), "the factor of \"mscale\"");
}

#define PACKED(quantisation)                                       \
    "{\"model_type\": \"llama\", \"num_hidden_layers\": 1, " SHAPE \
    "\"rms_norm_eps\": 1e-5, \"quantization_config\": {" quantisation "}}"
#define AWQ "\"quant_method\": \"awq\", \"bits\": 4"
#define GPTQ "\"quant_method\": \"gptq\", \"bits\": 4"
#define GROUPS                                                                   \
    "\"quant_method\": \"compressed-tensors\", \"format\": \"pack-quantized\", " \
    "\"config_groups\": {\"group_0\": {"
#define WEIGHTS GROUPS "\"weights\": {\"num_bits\": 4, \"type\": \"int\""

static int4_form read_form(const char *config)
{
    hf_extra extra;
    vt_model_free(read_config_with(config, &extra));
    return extra.int4;
}

static void test_packed_forms_have_the_defaults_of_their_methods(void **state)
{
    (void)state;
    int4_form f = read_form(PACKED(AWQ));
    assert_true(f.kind == INT4_AWQ && f.group == 128 && !f.symmetric);
    f = read_form(PACKED(GPTQ ", \"group_size\": -1"));
    assert_true(f.kind == INT4_GPTQ && f.group == 0 && f.symmetric && !f.plain_zeros);
    f = read_form(PACKED(GPTQ ", \"format\": \"gptq_v2\", \"sym\": false"));
    assert_true(f.group == 128 && !f.symmetric && f.plain_zeros);
    f = read_form(PACKED(WEIGHTS ", \"strategy\": \"channel\"}}}"));
    assert_true(f.kind == INT4_PACKED && f.group == 0 && f.symmetric);
    f = read_form(PACKED(WEIGHTS ", \"group_size\": 32, \"symmetric\": false}}}"));
    assert_true(f.group == 32 && !f.symmetric);
}

static void test_packed_forms_that_are_not_run_are_refused_by_name(void **state)
{
    (void)state;
    expect_refused(PACKED("\"quant_method\": \"gptq\", \"bits\": 8"),
                   "\"bits\" of quantization_config is 8; 4, the only one supported, was expected");
    expect_refused(PACKED("\"quant_method\": \"awq\""), "\"bits\" is missing");
    expect_refused(PACKED(AWQ ", \"version\": \"GEMV\""),
                   "\"version\" of quantization_config is \"GEMV\"; \"gemm\" was expected");
    expect_refused(PACKED(AWQ ", \"zero_point\": false"), "\"zero_point\" of");
    expect_refused(PACKED(GPTQ ", \"group_size\": 16"),
                   "\"group_size\" of quantization_config is 16; a multiple of 32, or -1");
    expect_refused(PACKED(GPTQ ", \"checkpoint_format\": \"marlin\""),
                   "is \"marlin\"; \"gptq\" or \"gptq_v2\" was expected");
    expect_refused(PACKED(GPTQ ", \"is_marlin_format\": true"), "\"is_marlin_format\" of");
    expect_refused(PACKED(GPTQ ", \"dynamic\": {\"+:.*down.*\": {\"bits\": 8}}"),
                   "\"dynamic\" of quantization_config has settings of its own for \"+:.*down.*\"");
    expect_refused(PACKED("\"quant_method\": \"compressed-tensors\", \"format\": "
                          "\"marlin-24\""),
                   "is \"marlin-24\"; \"pack-quantized\" was expected");
    expect_refused(PACKED("\"quant_method\": \"compressed-tensors\", \"config_groups\": {}"),
                   "\"config_groups\" of quantization_config has 0 groups; 1 was expected");
    expect_refused(PACKED(GROUPS "}}"), "\"weights\" is missing; an object was expected");
    expect_refused(PACKED(GROUPS "\"weights\": {\"num_bits\": 8}}}"),
                   "\"num_bits\" of config_groups' weights is 8");
    expect_refused(PACKED(WEIGHTS ", \"strategy\": \"tensor\"}}}"), "is \"tensor\"");
    expect_refused(PACKED(WEIGHTS ", \"actorder\": \"group\"}}}"), "is \"group\"; \"weight\" or");
    expect_refused(PACKED(WEIGHTS "}, \"input_activations\": {\"num_bits\": 8}}}"),
                   "\"input_activations\" of config_groups is set");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_packed_forms_have_the_defaults_of_their_methods),
        cmocka_unit_test(test_packed_forms_that_are_not_run_are_refused_by_name),
        cmocka_unit_test(test_config_gemma_without_layer_types_has_its_pattern),
        cmocka_unit_test(test_config_qwen_without_layer_types_has_its_rule),
        cmocka_unit_test(test_config_when_keys_are_left_out_then_their_defaults_hold),
        cmocka_unit_test(test_config_of_caps_when_signs_and_nulls_then_sizes),
        cmocka_unit_test(test_config_of_yarn_when_keys_are_left_out_then_their_defaults_hold),
        cmocka_unit_test(test_config_of_experts_says_which_layers_have_them),
        cmocka_unit_test(test_config_of_delta_rules_says_which_layers_have_them),
        cmocka_unit_test(test_config_of_qwen3_vl_has_a_plain_rope),
        cmocka_unit_test(test_config_of_qwen3_vl_with_experts_rescales_their_weights),
        cmocka_unit_test(test_config_of_qwen3_next_says_which_layers_are_dense),
        cmocka_unit_test(test_config_of_kimi_linear_is_read_or_its_key_is_named),
        cmocka_unit_test(test_config_of_lfm2_says_which_layers_convolve),
        cmocka_unit_test(test_config_of_granite_says_which_layers_have_state_spaces),
        cmocka_unit_test(test_config_of_nemotron_h_says_which_block_a_layer_has),
        cmocka_unit_test(test_config_of_sigmoid_routers_is_read_or_its_key_is_named),
        cmocka_unit_test(test_config_of_hunyuan_stretches_the_base_of_rope),
        cmocka_unit_test(test_config_of_hunyuan_with_experts_has_even_layers),
        cmocka_unit_test(test_config_of_mistral4_tempers_whole_queries),
        cmocka_unit_test(test_config_of_gemma4_says_what_each_layer_has),
        cmocka_unit_test(test_config_of_latents_is_read_or_its_key_is_named),
        cmocka_unit_test(test_config_when_a_factor_is_absurd_then_its_key_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
