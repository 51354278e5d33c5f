/* MTP heads (model/mtp.h): their logits against the formula in tools/fixtures/make_mtp.py, with
 * hidden states of the model's executor, and their drafts in engines: tokens are those without
 * drafts in batches, with chunks of prompts, few pages and cached prefixes; a head that always is
 * right has all its guesses held. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "common/bound.h"
#include "common/engine_run.h"
#include "common/mtp_run.h"
#include "engine/draft_model.h"
#include "engine/request.h"

static void test_mtp_logits_of_a_folder(void **state)
{
    (void)state;
    assert_true(mtp_worst_logit("qwen35", "qwen35", false) <= fp32_bound());
    assert_true(mtp_worst_logit("qwen35-certain", "qwen35-certain", false) <= fp32_bound());
}

static void test_mtp_logits_of_a_gguf_file(void **state)
{
    (void)state;
    assert_true(mtp_worst_logit("qwen35.gguf", "qwen35", false) <= fp32_bound());
}

static void test_mtp_logits_where_the_head_is_the_next_layer(void **state)
{
    (void)state;
    assert_true(mtp_worst_logit("glm4moe", "glm4moe", false) <= fp32_bound());
    assert_true(mtp_worst_logit("deepseekv3", "deepseekv3", false) <= fp32_bound());
}

static void test_mtp_logits_with_experts_in_a_published_folder(void **state)
{
    (void)state;
    assert_true(mtp_worst_logit("qwen35moe", "qwen35moe", false) <= fp32_bound());
    assert_true(mtp_worst_logit("qwen3next", "qwen3next", false) <= fp32_bound());
}

/* Guesses of the drafter are the fixture's, however the prompts' hidden states come, in slots that
 * take turns. */
static void test_mtp_drafter_guesses_what_its_head_says(void **state)
{
    static int32_t ids[2][MTP_PROMPT + 2], token[2][MTP_PROMPT + 2];
    static float states[2][MTP_PROMPT * MTP_HIDDEN];
    vt_req req[2] = {{.id = 5}, {.id = 6}};
    vt_seq q[2];
    mtp_runner head;
    vt_drafter d;
    (void)state;
    for (int32_t i = 0; i < 2; i++) {
        mtp_runner target;
        int32_t n = mtp_read_prompt(MTP_MODELS, "qwen35", i + 1, ids[i]);
        mtp_open_target(&target, "qwen35", false);
        memcpy(states[i], mtp_run_tokens(&target, ids[i], n, NULL), (size_t)n * target.row);
        memcpy(token[i], ids[i], (size_t)n * sizeof *token[i]);
        q[i] = (vt_seq){.req = &req[i],
                        .state = VT_SEQ_RUNNING,
                        .token = token[i],
                        .n_prompt = n,
                        .n_tokens = n,
                        .slot = i,
                        .row = {.top_p = 1, .repetition_penalty = 1, .target = -1}};
        if (i == 0)
            mtp_open_head(&head, target.m, 2, false);
        mtp_close(&target);
    }
    size_t row = head.row;
    vt_draft_model_config c = {.limits = head.limits,
                               .n_pages = 2 * MTP_PAGES,
                               .vocab = head.m->arch.vocab,
                               .state_bytes = row,
                               .target_vocab = head.m->arch.vocab};
    assert_int_equal(vt_draft_model_new(&c, head.m, head.x, &d, NULL), VT_OK);
    for (int32_t from = 0; from < MTP_PROMPT; from += 5)
        for (int32_t i = 0; i < 2; i++) {
            int32_t left = q[i].n_tokens - 1 - from, n = left < 5 ? left : 5;
            if (n > 0)
                d.learn(d.user, &q[i], from, n, (char *)states[i] + (size_t)from * row);
        }
    d.prepare(d.user, (vt_drafted[]){{&q[0], 2}, {&q[1], 2}}, 2);
    for (int32_t i = 0; i < 2; i++) {
        assert_int_equal(d.draft(d.user, &q[i], token[i] + q[i].n_tokens, 2), 2);
        assert_memory_equal(token[i], ids[i], (size_t)(q[i].n_tokens + 2) * sizeof *ids[i]);
    }
    vt_drafter_free(&d);
}

static void test_mtp_tokens_are_those_without_drafts(void **state)
{
    static mtp_outcome out;
    static const mtp_setting all[] = {
        {.model = "qwen35", .n_seqs = 4, .n_prompt = 60, .turns = 2},
        {.model = "qwen35", .n_seqs = 4, .n_prompt = 60, .turns = 2, .temperature = 1},
        {.model = "qwen35", .n_seqs = 3, .n_prompt = 60, .turns = 2, .budget = 9},
        {.model = "qwen35", .n_seqs = 2, .n_prompt = 50, .turns = 2, .no_overlap = true},
        {.model = "qwen35", .n_seqs = 2, .n_prompt = 50, .turns = 2, .no_cache = true},
        {.model = "qwen35", .n_seqs = 4, .n_prompt = 50, .turns = 2, .kv_memory = 1 << 20},
        {.model = "qwen35.gguf", .n_seqs = 1, .n_prompt = 40, .turns = 1},
        {.model = "qwen35moe", .n_seqs = 3, .n_prompt = 60, .turns = 2},
        {.model = "glm4moe", .n_seqs = 3, .n_prompt = 60, .turns = 2},
        {.model = "deepseekv3", .n_seqs = 3, .n_prompt = 60, .turns = 2},
        {.model = "dummy:qwen3.5-tiny", .n_seqs = 3, .n_prompt = 40, .turns = 1},
        {.model = "dummy:qwen3.5-tiny", .n_seqs = 3, .n_prompt = 40, .turns = 1, .ranks = 2},
    };
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        mtp_compare(&all[i], &out);
        print_message("# %s: %llu of %llu guesses held, %llu retracted, %llu tokens cached\n",
                      all[i].model, (unsigned long long)out.stats.draft_accepted,
                      (unsigned long long)out.stats.draft_tokens,
                      (unsigned long long)out.stats.retractions,
                      (unsigned long long)out.stats.cache_hit_tokens);
    }
}

/* The weights of this model and of its head were made so that both go through a cycle. */
static void test_mtp_guesses_of_a_head_that_is_right_all_hold(void **state)
{
    static mtp_outcome out;
    static const mtp_setting all[] = {
        {.model = "qwen35-certain", .n_seqs = 1, .n_prompt = 60, .turns = 2},
        {.model = "qwen35-certain", .n_seqs = 4, .n_prompt = 60, .turns = 2, .budget = 16}};
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        mtp_compare(&all[i], &out);
        assert_true(out.of[0][0].drafted > 0);
        assert_int_equal(out.stats.draft_accepted, out.stats.draft_tokens);
    }
}

/* ---- refusals ---- */

static void refused(const char *model, const char *draft, const char *why)
{
    vt_options *o;
    vt_model *m;
    vt_engine *e;
    vt_err err;
    assert_int_equal(vt_options_new(&o, NULL), VT_OK);
    engine_option(o, "model", model);
    engine_option(o, "device", "cpu");
    engine_option(o, "draft", draft);
    engine_option_int(o, "kv-memory", 16 << 20);
    assert_int_equal(vt_model_open(o, &m, &err), VT_OK);
    assert_int_not_equal(vt_engine_new(m, o, &e, &err), VT_OK);
    if (!strstr(err.message, why))
        fail_msg("'%s' does not say '%s'", err.message, why);
    vt_model_free(m);
    vt_options_free(o);
}

static void test_mtp_of_a_model_without_a_head_is_refused(void **state)
{
    (void)state;
    static const char *const without[] = {"qwen35-delta", "qwen35moe-outer", "deepseekv3-groups",
                                          "deepseekv3-groups-BF16.gguf", "glm4moe-groups"};
    for (size_t i = 0; i < sizeof without / sizeof *without; i++) {
        char path[128];
        snprintf(path, sizeof path, "tests/golden/models/%s", without[i]);
        refused(path, "mtp", "holds no MTP head, only the model");
    }
    refused("tests/golden/models/qwen35-delta-BF16.gguf", "mtp",
            "nextn_predict_layers is 0; an MTP head of 1 layer was expected");
    refused("tests/golden/models/llama-mha-llama3", "mtp", "no MTP heads of llama models");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mtp_logits_of_a_folder),
        cmocka_unit_test(test_mtp_logits_of_a_gguf_file),
        cmocka_unit_test(test_mtp_logits_where_the_head_is_the_next_layer),
        cmocka_unit_test(test_mtp_logits_with_experts_in_a_published_folder),
        cmocka_unit_test(test_mtp_drafter_guesses_what_its_head_says),
        cmocka_unit_test(test_mtp_tokens_are_those_without_drafts),
        cmocka_unit_test(test_mtp_guesses_of_a_head_that_is_right_all_hold),
        cmocka_unit_test(test_mtp_of_a_model_without_a_head_is_refused),
    };
    return cmocka_run_group_tests_name("mtp", tests, NULL, NULL);
}
