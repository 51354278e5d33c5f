/* MTP and EAGLE-3 heads on the emulated GPU (tests/emulator): their logits within the bound of BF16
 * (without experts: routers of such small models have ties), tokens of deterministic engines
 * bitwise those without drafts, with graphs and without, and a head that always is right. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "common/emulated_gpu.h"
#include "common/mtp_run.h"

static void test_mtp_logits_on_a_gpu(void **state)
{
    (void)state;
    assert_true(mtp_worst_logit("qwen35", "qwen35", true) <= 0.04);
    assert_true(mtp_worst_logit("qwen35.gguf", "qwen35", true) <= 0.04);
}

static void test_mtp_tokens_on_a_gpu_are_those_without_drafts(void **state)
{
    static mtp_outcome out;
    static const mtp_setting all[] = {
        {.model = "qwen35", .n_seqs = 3, .n_prompt = 60, .turns = 2, .budget = 32},
        {.model = "qwen35moe", .n_seqs = 2, .n_prompt = 50, .turns = 1, .no_graphs = true},
        {.model = "glm4moe", .n_seqs = 2, .n_prompt = 50, .turns = 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        mtp_setting s = all[i];
        s.gpu = true;
        mtp_compare(&s, &out);
        assert_true(out.stats.draft_tokens > 0);
    }
}

static void test_mtp_guesses_on_a_gpu_of_a_head_that_is_right_all_hold(void **state)
{
    static mtp_outcome out;
    (void)state;
    for (int k = 0; k < 2; k++) {
        mtp_setting s = {.model = "qwen35-certain",
                         .n_seqs = 2,
                         .n_prompt = 60,
                         .turns = 2,
                         .gpu = true,
                         .no_graphs = k == 1};
        mtp_compare(&s, &out);
        assert_true(out.stats.draft_tokens > 0);
        assert_int_equal(out.stats.draft_accepted, out.stats.draft_tokens);
    }
}

#define CYCLE .model = EAGLE_MODELS "cycle", .draft = EAGLE_MODELS "cycle-eagle3", .gpu = true

static void test_eagle_logits_on_a_gpu(void **state)
{
    (void)state;
    assert_true(eagle_worst_logit("llama", "llama-eagle3", true) <= 0.04);
    assert_true(eagle_worst_logit("qwen3", "qwen3-eagle3", true) <= 0.04);
}

/* The head that is right reads what the model computes for it on the GPU. */
static void test_eagle_tokens_on_a_gpu_are_those_without_drafts(void **state)
{
    static mtp_outcome out;
    static const mtp_setting all[] = {
        {CYCLE, .n_seqs = 2, .n_prompt = 60, .turns = 2, .budget = 32},
        {CYCLE, .n_seqs = 2, .n_prompt = 60, .turns = 1, .no_graphs = true},
        {.model = EAGLE_MODELS "llama",
         .draft = EAGLE_MODELS "llama-eagle3",
         .n_seqs = 3,
         .n_prompt = 60,
         .turns = 2,
         .gpu = true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        mtp_compare(&all[i], &out);
        assert_true(out.stats.draft_tokens > 0);
        if (i < 2)
            assert_int_equal(out.stats.draft_accepted, out.stats.draft_tokens);
    }
}

/* The head's KV has more pages than get memory at once. */
static void test_mtp_tokens_on_a_gpu_whose_kv_grows_are_those_without_drafts(void **state)
{
    static mtp_outcome out;
    mtp_setting s = {.model = "qwen35-certain",
                     .n_seqs = 2,
                     .n_prompt = 40,
                     .turns = 1,
                     .max_running = 256,
                     .kv_memory = 64 << 20,
                     .gpu = true};
    (void)state;
    mtp_compare(&s, &out);
    assert_true(out.stats.draft_tokens > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mtp_logits_on_a_gpu),
        cmocka_unit_test(test_mtp_tokens_on_a_gpu_are_those_without_drafts),
        cmocka_unit_test(test_mtp_guesses_on_a_gpu_of_a_head_that_is_right_all_hold),
        cmocka_unit_test(test_eagle_logits_on_a_gpu),
        cmocka_unit_test(test_eagle_tokens_on_a_gpu_are_those_without_drafts),
        cmocka_unit_test(test_mtp_tokens_on_a_gpu_whose_kv_grows_are_those_without_drafts),
    };
    return cmocka_run_group_tests_name("cuda_mtp", tests, emulated_gpu_open, NULL);
}
