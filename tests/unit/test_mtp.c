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
#include <math.h>

#include "base/err.h"
#include "common/engine_run.h"
#include "engine/draft_model.h"
#include "engine/request.h"
#include "exec/executor.h"
#include "model/load.h"

#define MODELS "tests/golden/mtp/"

enum { MAX_PROMPT = 64, MAX_VOCAB = 96, PAGE = 4, PAGES = MAX_PROMPT / PAGE, OUTPUT = 40 };

/* ---- logits ---- */

typedef struct runner {
    vt_model *m;
    vt_executor *x;
    vt_limits limits;
    int32_t at; /* tokens that it has seen */
} runner;

static void open_executor(runner *r, int32_t n_seqs, int32_t n_states, vt_states states)
{
    vt_err err;
    r->at = 0;
    r->limits = (vt_limits){.max_tokens = MAX_PROMPT,
                            .max_seqs = n_seqs,
                            .max_rows = MAX_PROMPT,
                            .max_context = MAX_PROMPT,
                            .page_size = PAGE,
                            .n_workers = 2};
    vt_executor_config c = {.limits = r->limits,
                            .n_pages = n_seqs * PAGES,
                            .n_pool_slots = n_seqs,
                            .n_states = n_states,
                            .kv_dtype = VT_F32,
                            .states = states,
                            .n_threads = 2};
    if (vt_executor_cpu_new(r->m, &c, &r->x, &err) != VT_OK)
        fail_msg("%s", err.message);
}

static void open_target(runner *r, const char *model)
{
    char path[256];
    vt_err err;
    snprintf(path, sizeof path, MODELS "%s", model);
    if (vt_model_load(path, &r->m, &err) != VT_OK)
        fail_msg("%s", err.message);
    open_executor(r, 1, 2, VT_STATES_TOKENS);
}

static void open_head(runner *r, const vt_model *of, int32_t n_seqs)
{
    vt_err err;
    if (vt_model_load_mtp(of, &r->m, &err) != VT_OK)
        fail_msg("%s", err.message);
    open_executor(r, n_seqs, 0, VT_STATES_ROWS);
}

static void close_runner(runner *r)
{
    r->x->free(r->x);
    vt_model_free(r->m);
}

/* Runs the next n tokens, of which all are wanted; an MTP head gets the hidden states before them.
 * What it returns is valid until the next step. */
static const float *run_tokens(runner *r, const int32_t *ids, int32_t n, const float *before)
{
    int32_t position[MAX_PROMPT], seq_of[MAX_PROMPT] = {0}, page_ids[PAGES], from = r->at ? 0 : -1,
                                  to = 0, q_start[2] = {0, n}, kv_len = r->at + n;
    int32_t page_start[2] = {0, (kv_len + PAGE - 1) / PAGE};
    vt_sample_row rows[MAX_PROMPT];
    int32_t slot[MAX_PROMPT], row_token[MAX_PROMPT];
    for (int32_t i = 0; i < PAGES; i++)
        page_ids[i] = (i * 5 + 3) % PAGES;
    for (int32_t i = 0; i < n; i++) {
        position[i] = r->at + i;
        slot[i] = page_ids[position[i] / PAGE] * PAGE + position[i] % PAGE;
        row_token[i] = i;
        rows[i] = (vt_sample_row){.top_p = 1,
                                  .repetition_penalty = 1,
                                  .n_top = -1,
                                  .pool_slot = -1,
                                  .target = -1,
                                  .pending_slot = -1};
    }
    vt_step step = {.id = (uint64_t)r->at + 1,
                    .rows = rows,
                    .batch = {.n_tokens = n,
                              .n_seqs = 1,
                              .n_decode = n == 1,
                              .n_rows = n,
                              .n_pages = page_start[1],
                              .page_size = PAGE,
                              .token = ids,
                              .position = position,
                              .seq_of = seq_of,
                              .slot = slot,
                              .q_start = q_start,
                              .kv_len = &kv_len,
                              .page_start = page_start,
                              .page_ids = page_ids,
                              .hidden = before,
                              .state_from = before ? NULL : &from,
                              .state_to = before ? NULL : &to,
                              .row_token = row_token}};
    vt_step_result result;
    vt_err err = {0};
    if (r->x->launch(r->x, &step, &err) != VT_OK || r->x->wait(r->x, &result, &err) != VT_OK)
        fail_msg("%s", err.message);
    r->at += n;
    return result.hidden;
}

/* The largest difference of the head's n rows of logits, in parts of the largest in its row. */
static double worst_of(const runner *head, const float *want, int32_t n, int32_t vocab)
{
    const float *got = head->x->program(head->x)->logits->data;
    double worst = 0;
    for (int32_t i = 0; i < n; i++, got += vocab, want += vocab) {
        double peak = 0, error = 0;
        for (int32_t v = 0; v < vocab; v++) {
            error = fmax(error, fabs((double)got[v] - (double)want[v]));
            peak = fmax(peak, fabs((double)want[v]));
            assert_true(isfinite(got[v]));
        }
        worst = fmax(worst, error / peak);
    }
    return worst;
}

/* One prompt of the fixture: the head reads it in two parts, then goes on by itself. */
static double check_prompt(FILE *f, const char *model, int32_t vocab)
{
    enum { AHEAD = 2 };
    static float want[(MAX_PROMPT + AHEAD) * MAX_VOCAB], states[MAX_PROMPT * 64];
    int32_t n, ids[MAX_PROMPT + AHEAD];
    runner target, head;
    assert_int_equal(fread(&n, 4, 1, f), 1);
    assert_in_range(n, 2, MAX_PROMPT - AHEAD);
    size_t logits = (size_t)((n - 1 + AHEAD) * vocab);
    assert_int_equal(fread(ids, 4, (size_t)(n + AHEAD), f), n + AHEAD);
    assert_int_equal(fread(want, 4, logits, f), logits);
    open_target(&target, model);
    open_head(&head, target.m, 1);
    int32_t hidden = target.m->arch.hidden, first = n / 2;
    assert_in_range(hidden, 1, 64);
    memcpy(states, run_tokens(&target, ids, n, NULL), (size_t)(n * hidden) * sizeof *states);
    const float *own = run_tokens(&head, ids + 1, first, states);
    double worst = worst_of(&head, want, first, vocab);
    int32_t last = first - 1;
    if (n - 1 > first) {
        own = run_tokens(&head, ids + 1 + first, n - 1 - first, states + first * hidden);
        worst = fmax(worst, worst_of(&head, want + first * vocab, n - 1 - first, vocab));
        last = n - 2 - first;
    }
    for (int32_t k = 0; k < AHEAD; k++, last = 0) {
        memcpy(states, own + last * hidden, (size_t)hidden * sizeof *states);
        own = run_tokens(&head, ids + n + k, 1, states);
        worst = fmax(worst, worst_of(&head, want + (n - 1 + k) * vocab, 1, vocab));
    }
    close_runner(&head);
    close_runner(&target);
    return worst;
}

/* ---- the drafter ---- */

/* Reads the n-th prompt of a fixture, and the tokens that the head goes on with. */
static int32_t read_prompt(const char *model, int32_t index, int32_t *ids)
{
    char path[256];
    int32_t n_prompts, vocab, n;
    snprintf(path, sizeof path, MODELS "%s/golden.bin", model);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fread(&n_prompts, 4, 1, f) + fread(&vocab, 4, 1, f), 2);
    assert_in_range(index, 0, n_prompts - 1);
    for (int32_t i = 0;; i++) {
        assert_int_equal(fread(&n, 4, 1, f), 1);
        assert_in_range(n, 2, MAX_PROMPT - 2);
        assert_int_equal(fread(ids, 4, (size_t)(n + 2), f), n + 2);
        if (i == index)
            break;
        fseek(f, 4L * (n + 1) * vocab, SEEK_CUR);
    }
    fclose(f);
    return n;
}

/* Guesses of the drafter are the fixture's, however the prompts' hidden states come, in slots that
 * take turns. */
static void test_mtp_drafter_guesses_what_its_head_says(void **state)
{
    static int32_t ids[2][MAX_PROMPT + 2], token[2][MAX_PROMPT + 2];
    static float states[2][MAX_PROMPT * 64];
    vt_req req[2] = {{.id = 5}, {.id = 6}};
    vt_seq q[2];
    runner head;
    vt_drafter d;
    (void)state;
    for (int32_t i = 0; i < 2; i++) {
        runner target;
        int32_t n = read_prompt("qwen35", i + 1, ids[i]);
        open_target(&target, "qwen35");
        memcpy(states[i], run_tokens(&target, ids[i], n, NULL),
               (size_t)(n * target.m->arch.hidden) * sizeof *states[i]);
        memcpy(token[i], ids[i], (size_t)n * sizeof *token[i]);
        q[i] = (vt_seq){.req = &req[i],
                        .state = VT_SEQ_RUNNING,
                        .token = token[i],
                        .n_prompt = n,
                        .n_tokens = n,
                        .slot = i,
                        .row = {.top_p = 1, .repetition_penalty = 1, .target = -1}};
        if (i == 0)
            open_head(&head, target.m, 2);
        close_runner(&target);
    }
    size_t row = (size_t)head.m->arch.hidden * sizeof(float);
    vt_draft_model_config c = {.limits = head.limits,
                               .n_pages = 2 * PAGES,
                               .vocab = head.m->arch.vocab,
                               .state_bytes = row,
                               .target_vocab = head.m->arch.vocab};
    assert_int_equal(vt_draft_model_new(&c, head.m, head.x, &d, NULL), VT_OK);
    for (int32_t from = 0; from < MAX_PROMPT; from += 5)
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

static void check_logits(const char *model, const char *golden)
{
    char path[256];
    int32_t n, vocab;
    snprintf(path, sizeof path, MODELS "%s/golden.bin", golden);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fread(&n, 4, 1, f), 1);
    assert_int_equal(fread(&vocab, 4, 1, f), 1);
    assert_in_range(vocab, 1, MAX_VOCAB);
    double worst = 0;
    for (int32_t i = 0; i < n; i++)
        worst = fmax(worst, check_prompt(f, model, vocab));
    fclose(f);
    print_message("# %s: %.2g\n", model, worst);
    assert_true(worst <= 1e-4);
}

static void test_mtp_logits_of_a_folder(void **state)
{
    (void)state;
    check_logits("qwen35", "qwen35");
    check_logits("qwen35-certain", "qwen35-certain");
}

static void test_mtp_logits_of_a_gguf_file(void **state)
{
    (void)state;
    check_logits("qwen35.gguf", "qwen35");
}

static void test_mtp_logits_with_experts_in_a_published_folder(void **state)
{
    (void)state;
    check_logits("qwen35moe", "qwen35moe");
}

/* ---- engines ---- */

typedef struct heard {
    int32_t token[OUTPUT], n;
    int32_t drafted, accepted;
} heard;

static void hear(void *user, const vt_event *e)
{
    heard *h = user;
    for (int32_t i = 0; i < e->n_tokens && h->n < OUTPUT; i++)
        h->token[h->n++] = e->tokens[i];
    if (e->finish == VT_FINISH_NONE)
        return;
    h->drafted = e->draft_tokens;
    h->accepted = e->draft_accepted;
}

typedef struct setting {
    const char *model, *draft;
    int32_t n_seqs, n_prompt, turns;
    int32_t budget, ranks; /* 0: as usual */
    int64_t kv_memory;     /* likewise */
    float temperature;
    bool no_overlap, no_cache;
} setting;

typedef struct outcome {
    heard of[2][4]; /* by turn and sequence */
    vt_stats stats;
} outcome;

/* Turn 0 asks with a made-up prompt. Each further one goes on with the text before it. */
static void make_prompt(const setting *s, int32_t turn, int32_t i, const outcome *before,
                        int32_t *ids)
{
    int32_t begin = turn * s->n_prompt;
    for (int32_t k = 0; k < s->n_prompt; k++)
        ids[begin + k] = 3 + (7 * i + 5 * (begin + k) + turn) % 27;
    if (turn > 0)
        memcpy(ids + begin, before->of[turn - 1][i].token, OUTPUT * sizeof *ids);
}

static vt_engine *open_engine(const setting *s, vt_options *o, vt_model **m)
{
    char path[256];
    vt_err err;
    bool dummy = strncmp(s->model, "dummy:", 6) == 0;
    snprintf(path, sizeof path, "%s%s", dummy ? "" : MODELS, s->model);
    engine_option(o, "model", path);
    engine_option(o, "device", "cpu");
    engine_option(o, "draft", s->draft);
    engine_option_int(o, "threads", 2);
    engine_option_int(o, "tp", s->ranks > 0 ? s->ranks : 1);
    engine_option_int(o, "page-size", 4);
    engine_option_int(o, "max-running", 4);
    engine_option_int(o, "max-context", 256);
    engine_option_flag(o, "no-overlap", s->no_overlap);
    engine_option_flag(o, "no-prefix-cache", s->no_cache);
    if (s->budget > 0)
        engine_option_int(o, "token-budget", s->budget);
    engine_option_int(o, "kv-memory", s->kv_memory > 0 ? s->kv_memory : 16 << 20);
    if (vt_model_open(o, m, &err) != VT_OK)
        fail_msg("%s", err.message);
    return engine_open(*m, o);
}

static void run_turns(const setting *s, outcome *out)
{
    static int32_t ids[4][256];
    vt_options *o;
    vt_model *m;
    vt_err err;
    assert_int_equal(vt_options_new(&o, NULL), VT_OK);
    vt_engine *e = open_engine(s, o, &m);
    memset(out, 0, sizeof *out);
    for (int32_t turn = 0; turn < s->turns; turn++) {
        for (int32_t i = 0; i < s->n_seqs; i++) {
            make_prompt(s, turn, i, out, ids[i]);
            vt_request_params p;
            vt_request_init(&p);
            p.prompt = ids[i];
            p.n_prompt = (turn + 1) * s->n_prompt;
            p.max_tokens = OUTPUT;
            p.ignore_eos = true;
            p.temperature = s->temperature;
            p.has_seed = true;
            p.seed = 5;
            p.callback = hear;
            p.user = &out->of[turn][i];
            engine_submit(e, &p);
        }
        engine_run(e);
    }
    assert_int_equal(vt_engine_get_stats(e, &out->stats, &err), VT_OK);
    vt_engine_free(e);
    vt_model_free(m);
    vt_options_free(o);
}

/* Runs the setting with and without drafts, and compares tokens. *out: with drafts. */
static void compare(setting s, outcome *out)
{
    static outcome plain;
    s.draft = "off";
    run_turns(&s, &plain);
    s.draft = "mtp";
    run_turns(&s, out);
    for (int32_t turn = 0; turn < s.turns; turn++)
        for (int32_t i = 0; i < s.n_seqs; i++) {
            const heard *want = &plain.of[turn][i], *got = &out->of[turn][i];
            assert_int_equal(want->n, OUTPUT);
            assert_int_equal(got->n, OUTPUT);
            assert_memory_equal(got->token, want->token, sizeof want->token);
        }
}

static void test_mtp_tokens_are_those_without_drafts(void **state)
{
    static outcome out;
    static const setting all[] = {
        {.model = "qwen35", .n_seqs = 4, .n_prompt = 60, .turns = 2},
        {.model = "qwen35", .n_seqs = 4, .n_prompt = 60, .turns = 2, .temperature = 1},
        {.model = "qwen35", .n_seqs = 3, .n_prompt = 60, .turns = 2, .budget = 9},
        {.model = "qwen35", .n_seqs = 2, .n_prompt = 50, .turns = 2, .no_overlap = true},
        {.model = "qwen35", .n_seqs = 2, .n_prompt = 50, .turns = 2, .no_cache = true},
        {.model = "qwen35", .n_seqs = 4, .n_prompt = 50, .turns = 2, .kv_memory = 1 << 20},
        {.model = "qwen35.gguf", .n_seqs = 1, .n_prompt = 40, .turns = 1},
        {.model = "qwen35moe", .n_seqs = 3, .n_prompt = 60, .turns = 2},
        {.model = "dummy:qwen3.5-tiny", .n_seqs = 3, .n_prompt = 40, .turns = 1},
        {.model = "dummy:qwen3.5-tiny", .n_seqs = 3, .n_prompt = 40, .turns = 1, .ranks = 2},
    };
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        compare(all[i], &out);
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
    static outcome out;
    static const setting all[] = {
        {.model = "qwen35-certain", .n_seqs = 1, .n_prompt = 60, .turns = 2},
        {.model = "qwen35-certain", .n_seqs = 4, .n_prompt = 60, .turns = 2, .budget = 16}};
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        compare(all[i], &out);
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
    refused("tests/golden/models/qwen35-delta", "mtp",
            "tensor mtp.pre_fc_norm_embedding.weight is missing");
    refused("tests/golden/models/qwen35-delta-BF16.gguf", "mtp",
            "nextn_predict_layers is 0; an MTP head of 1 layer was expected");
    refused("tests/golden/models/llama-mha-llama3", "mtp", "no MTP heads of llama models");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mtp_logits_of_a_folder),
        cmocka_unit_test(test_mtp_logits_of_a_gguf_file),
        cmocka_unit_test(test_mtp_logits_with_experts_in_a_published_folder),
        cmocka_unit_test(test_mtp_drafter_guesses_what_its_head_says),
        cmocka_unit_test(test_mtp_tokens_are_those_without_drafts),
        cmocka_unit_test(test_mtp_guesses_of_a_head_that_is_right_all_hold),
        cmocka_unit_test(test_mtp_of_a_model_without_a_head_is_refused),
    };
    return cmocka_run_group_tests_name("mtp", tests, NULL, NULL);
}
