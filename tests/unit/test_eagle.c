/* EAGLE-3 heads (model/eagle.h): their logits against the formula in tools/fixtures/make_eagle.py,
 * with what the model computes for them, and their drafts in engines: tokens are those without
 * drafts in batches, with chunks of prompts, few pages, ranks and cached prefixes; a head that
 * always is right has all its guesses held. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/bound.h"
#include "common/engine_run.h"
#include "common/mtp_run.h"
#include "engine/draft_model.h"
#include "engine/request.h"
#include "model/load.h"

static void test_eagle_logits(void **state)
{
    (void)state;
    assert_true(eagle_worst_logit("llama", "llama-eagle3", false) <= fp32_bound());
    assert_true(eagle_worst_logit("qwen3", "qwen3-eagle3", false) <= fp32_bound());
    assert_true(eagle_worst_logit("cycle", "cycle-eagle3", false) <= fp32_bound());
}

/* Guesses of the drafter are the fixture's, in the model's ids. */
static void test_eagle_drafter_guesses_what_its_head_says(void **state)
{
    int32_t ids[MTP_PROMPT + 2], token[MTP_PROMPT + 2];
    vt_req req = {.id = 5};
    mtp_runner target, head;
    vt_drafter d;
    (void)state;
    int32_t n = mtp_read_prompt(EAGLE_MODELS, "llama-eagle3", 2, ids);
    memcpy(token, ids, (size_t)n * sizeof *token);
    mtp_open_eagle(&target, &head, "llama", "llama-eagle3", 1, false);
    vt_seq q = {.req = &req,
                .state = VT_SEQ_RUNNING,
                .token = token,
                .n_prompt = n,
                .n_tokens = n,
                .row = {.top_p = 1, .repetition_penalty = 1, .target = -1, .temperature = 1}};
    vt_draft_model_config c = {.limits = head.limits,
                               .n_pages = MTP_PAGES,
                               .vocab = target.m->arch.vocab,
                               .word = head.m->eagle.word,
                               .state_bytes = head.row,
                               .stream = true,
                               .target_vocab = target.m->arch.vocab};
    assert_int_equal(vt_draft_model_new(&c, head.m, head.x, &d, NULL), VT_OK);
    d.learn(d.user, &q, 0, n - 1, mtp_run_tokens(&target, ids, n, NULL));
    d.prepare(d.user, (vt_drafted[]){{&q, 2}}, 1);
    assert_int_equal(d.draft(d.user, &q, token + n, 2), 2);
    assert_memory_equal(token, ids, (size_t)(n + 2) * sizeof *ids);
    mtp_close(&target);
    vt_drafter_free(&d);
}

/* Opens a drafter of llama's head for four slots. *target is open then. */
static void open_drafter(mtp_runner *target, vt_drafter *d)
{
    mtp_runner head;
    mtp_open_eagle(target, &head, "llama", "llama-eagle3", 4, false);
    vt_draft_model_config c = {.limits = head.limits,
                               .n_pages = 4 * MTP_PAGES,
                               .vocab = target->m->arch.vocab,
                               .word = head.m->eagle.word,
                               .state_bytes = head.row,
                               .stream = true,
                               .target_vocab = target->m->arch.vocab};
    assert_int_equal(vt_draft_model_new(&c, head.m, head.x, d, NULL), VT_OK);
}

static vt_seq sequence(vt_req *req, int32_t *token, int32_t n, int32_t slot)
{
    return (vt_seq){.req = req,
                    .state = VT_SEQ_RUNNING,
                    .token = token,
                    .n_prompt = n,
                    .n_tokens = n,
                    .slot = slot,
                    .row = {.top_p = 1, .repetition_penalty = 1, .target = -1}};
}

/* A sequence whose first `cached` tokens were another one's, which had this many in common with it:
 * the drafter is shown the hidden states behind them alone. Returns its guesses. */
static int32_t guesses_behind_cache(int32_t common, int32_t cached, bool ask_first, int32_t tenant,
                                    int32_t *out)
{
    static char states[MTP_PROMPT * MTP_HIDDEN * sizeof(float)];
    int32_t ids[MTP_PROMPT + 2], other[MTP_PROMPT + 8];
    vt_req req[2] = {{.id = 5}, {.id = 6, .tenant = tenant}};
    mtp_runner target;
    vt_drafter d;
    int32_t n = mtp_read_prompt(EAGLE_MODELS, "llama-eagle3", 2, ids);
    for (int32_t i = 0; i < n; i++)
        other[i] = i < common ? ids[i] : (ids[i] + 1) % 67;
    open_drafter(&target, &d);
    vt_seq first = sequence(&req[0], other, n, 0), q = sequence(&req[1], ids, n, 1);
    d.learn(d.user, &first, 0, n - 1, mtp_run_tokens(&target, other, n, NULL));
    if (ask_first) /* else the head's KV of these tokens is not there, and is computed now */
        d.prepare(d.user, (vt_drafted[]){{&first, 1}}, 1);
    target.at = 0;
    memcpy(states, mtp_run_tokens(&target, ids, n, NULL), (size_t)n * target.row);
    d.learn(d.user, &q, cached, n - 1 - cached, states + (size_t)cached * target.row);
    d.prepare(d.user, (vt_drafted[]){{&q, 2}}, 1);
    int32_t found = d.draft(d.user, &q, ids + n, 2);
    memcpy(out, ids + n, 2 * sizeof *out);
    mtp_close(&target);
    vt_drafter_free(&d);
    return found;
}

/* Pages have four tokens: the common ones end at a border of the head's pages, or of the engine's,
 * or anywhere. */
static void test_eagle_guesses_behind_cached_tokens_are_those_without_a_cache(void **state)
{
    int32_t ids[MTP_PROMPT + 2], got[2];
    (void)state;
    int32_t n = mtp_read_prompt(EAGLE_MODELS, "llama-eagle3", 2, ids);
    for (int32_t cached = 1; cached < n - 1; cached++)
        for (int32_t ask = 0; ask < 2; ask++) {
            assert_int_equal(guesses_behind_cache(cached, cached, ask, 0, got), 2);
            assert_memory_equal(got, ids + n, sizeof got);
            assert_int_equal(guesses_behind_cache(n, cached, ask, 0, got), 2);
            assert_memory_equal(got, ids + n, sizeof got);
        }
}

#define LLAMA .model = EAGLE_MODELS "llama", .draft = EAGLE_MODELS "llama-eagle3"
#define QWEN3 .model = EAGLE_MODELS "qwen3", .draft = EAGLE_MODELS "qwen3-eagle3"
#define CYCLE .model = EAGLE_MODELS "cycle", .draft = EAGLE_MODELS "cycle-eagle3"

static void test_eagle_tokens_are_those_without_drafts(void **state)
{
    static mtp_outcome out;
    static const mtp_setting all[] = {
        {LLAMA, .n_seqs = 4, .n_prompt = 60, .turns = 2},
        {LLAMA, .n_seqs = 4, .n_prompt = 60, .turns = 2, .temperature = 1},
        {LLAMA, .n_seqs = 3, .n_prompt = 60, .turns = 2, .budget = 9},
        {LLAMA, .n_seqs = 2, .n_prompt = 50, .turns = 2, .no_overlap = true},
        {LLAMA, .n_seqs = 2, .n_prompt = 50, .turns = 2, .no_cache = true},
        {LLAMA, .n_seqs = 4, .n_prompt = 50, .turns = 2, .kv_memory = 1 << 20},
        {LLAMA, .n_seqs = 2, .n_prompt = 50, .turns = 2, .ranks = 2},
        {QWEN3, .n_seqs = 3, .n_prompt = 60, .turns = 2},
    };
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        mtp_compare(&all[i], &out);
        print_message("# %s: %llu of %llu guesses held, %llu retracted, %llu tokens cached\n",
                      all[i].model, (unsigned long long)out.stats.draft_accepted,
                      (unsigned long long)out.stats.draft_tokens,
                      (unsigned long long)out.stats.retractions,
                      (unsigned long long)out.stats.cache_hit_tokens);
        assert_true(out.stats.draft_tokens > 0);
    }
}

/* The weights of this model and of its head were made so that both go through a cycle. */
static void test_eagle_guesses_of_a_head_that_is_right_all_hold(void **state)
{
    static mtp_outcome out;
    static const mtp_setting all[] = {
        {CYCLE, .n_seqs = 1, .n_prompt = 60, .turns = 2},
        {CYCLE, .n_seqs = 4, .n_prompt = 60, .turns = 2, .budget = 16},
        {CYCLE, .n_seqs = 2, .n_prompt = 60, .turns = 2, .ranks = 2}};
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

static char folder[] = "/tmp/test_eagle_XXXXXX";

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    static const char *const file[] = {"config.json", "model.safetensors"};
    char path[64];
    (void)state;
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, file[i]);
        unlink(path);
    }
    return rmdir(folder);
}

/* The folder, with the head's weights and another config.json: `from` in it is `to`. */
static const char *changed(const char *name, const char *from, const char *to)
{
    char path[300], text[4096], link[300], here[200];
    snprintf(path, sizeof path, EAGLE_MODELS "%s/config.json", name);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    char *at = strstr(text, from);
    assert_non_null(at);
    snprintf(path, sizeof path, "%s/config.json", folder);
    f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    fclose(f);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    unlink(path);
    assert_non_null(getcwd(here, sizeof here));
    snprintf(link, sizeof link, "%s/" EAGLE_MODELS "%s/model.safetensors", here, name);
    assert_int_equal(symlink(link, path), 0);
    return folder;
}

static void test_eagle_heads_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    refused(EAGLE_MODELS "qwen3", EAGLE_MODELS "llama-eagle3",
            "drafts for a model of 67 tokens, and qwen3 has 43");
    refused("tests/golden/models/llama-mha-llama3", EAGLE_MODELS "llama-eagle3",
            "reads hidden states of 20 numbers, and those of llama-mha-llama3 have 48");
    refused("dummy:qwen3.5-tiny", EAGLE_MODELS "llama-eagle3", "drafts for a model of 67 tokens");
    refused(EAGLE_MODELS "qwen3",
            changed("qwen3-eagle3", "\"eagle_aux_hidden_state_layer_ids\": [\n      0",
                    "\"eagle_aux_hidden_state_layer_ids\": [\n      5"),
            "reads what enters layers 6, 2 and 3, and qwen3 has 3 layers");
    refused(EAGLE_MODELS "qwen3",
            changed("qwen3-eagle3", "\"use_aux_hidden_state\": true",
                    "\"use_aux_hidden_state\": false"),
            "one of EAGLE-3 was expected");
    refused(EAGLE_MODELS "llama",
            changed("llama-eagle3", "\"num_hidden_layers\": 1", "\"num_hidden_layers\": 2"),
            "an EAGLE-3 head of 1 layer was expected");
    refused(EAGLE_MODELS "llama",
            changed("llama-eagle3", "\"vocab_size\": 67", "\"vocab_size\": 40"),
            "the id of one of 40 tokens less 24 was expected");
}

static void test_an_eagle_head_is_no_model(void **state)
{
    vt_model *m;
    vt_err err;
    (void)state;
    assert_int_equal(vt_model_load(EAGLE_MODELS "llama-eagle3", &m, &err), VT_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "is an EAGLE-3 head, which drafts for another model"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_eagle_logits),
        cmocka_unit_test(test_eagle_drafter_guesses_what_its_head_says),
        cmocka_unit_test(test_eagle_guesses_behind_cached_tokens_are_those_without_a_cache),
        cmocka_unit_test(test_eagle_tokens_are_those_without_drafts),
        cmocka_unit_test(test_eagle_guesses_of_a_head_that_is_right_all_hold),
        cmocka_unit_test(test_eagle_heads_that_do_not_fit_are_refused),
        cmocka_unit_test(test_an_eagle_head_is_no_model),
    };
    return cmocka_run_group_tests_name("eagle", tests, make_folder, remove_folder);
}
