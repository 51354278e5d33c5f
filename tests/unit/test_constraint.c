/* Constraints (engine/constraint/constraint.h) on the fake device: masks reach the rows that
 * choose, with drafts and overlap too, and rules that allow everything or nothing do what engine.md
 * says. */
#include "engine_fixture.h"

enum { VOCAB = 120, OUTPUT = 40, FREE = -1 };

/* Two constraints in one: the first n_text tokens are `text`, the others lie in the set of ids that
 * are 0 modulo `step`. FREE in place of a step: any token may come, and no mask says so. */
typedef struct test_rules {
    int32_t text[8], n_text, step;
    int32_t fails_at; /* token before which nothing is allowed; 0: none */
    bool refuses;     /* take fails there instead */
    int32_t n, n_masks, n_undone, n_freed, n_made;
} test_rules;

static vt_allowance rules_mask(void *state, uint32_t *words, int32_t n_words)
{
    test_rules *u = state;
    u->n_masks++;
    if (u->fails_at > 0 && u->n >= u->fails_at && !u->refuses)
        return VT_ALLOW_NOTHING;
    if (u->n >= u->n_text && u->step == FREE)
        return VT_ALLOW_ANY;
    for (int32_t id = 0; id < 32 * n_words; id++)
        if (u->n < u->n_text ? id == u->text[u->n] : id % u->step == 0)
            words[id / 32] |= 1u << id % 32;
    return VT_ALLOW_MASK;
}

static bool rules_take(void *state, int32_t token)
{
    test_rules *u = state;
    bool ok = u->n < u->n_text ? token == u->text[u->n] : u->step == FREE || token % u->step == 0;
    if (!ok || (u->refuses && u->n + 1 == u->fails_at))
        return false;
    u->n++;
    return true;
}

static void rules_undo(void *state, int32_t n)
{
    test_rules *u = state;
    u->n -= n;
    u->n_undone += n;
}

static void rules_free(void *state) { ((test_rules *)state)->n_freed++; }

/* `user` has rules for each sample. */
static bool rules_make(void *user, int32_t sample, vt_constraint *out)
{
    test_rules *u = (test_rules *)user + sample;
    u->n_made++;
    *out = (vt_constraint){
        .state = u, .mask = rules_mask, .take = rules_take, .undo = rules_undo, .free = rules_free};
    return true;
}

static const int32_t prompt[7] = {1, 2, 3, 4, 5, 6, 7};

/* Guesses 0, 60, 0, 60 ...: tokens that a set may hold or not. */
static int32_t guess(void *user, vt_seq *q, int32_t *out, int32_t max)
{
    (void)user;
    for (int32_t i = 0; i < max; i++)
        out[i] = (q->n_tokens + i) % 2 ? 60 : 0;
    return max;
}

/* Guesses what the text says. */
static int32_t guess_text(void *user, vt_seq *q, int32_t *out, int32_t max)
{
    const test_rules *u = user;
    int32_t n = 0, at = q->n_tokens + q->n_pending - q->n_prompt;
    for (; n < max && at + n < u->n_text; n++)
        out[n] = u->text[at + n];
    return n;
}

static void run(test_rules *rules, bool overlap, vt_drafter drafter, vt_request_params p, heard *h)
{
    fixture f;
    vt_err err;
    const vt_constraint_maker maker = {.user = rules, .make = rules_make};
    fixture_defaults(&f);
    f.config.overlap = overlap;
    f.config.request.vocab = VOCAB;
    f.config.sched.drafter = drafter;
    fixture_open(&f);
    memset(h, 0, (size_t)p.n * sizeof *h);
    p.user = h;
    if (vt_engine_submit_constrained(f.engine, &p, rules ? &maker : NULL, NULL, &err) != VT_OK)
        fail_msg("%s", err.message);
    run_all(&f);
    for (int32_t i = 0; i < p.n; i++)
        assert_int_equal(h[i].n_ends, 1);
    if (rules)
        assert_int_equal(rules->n_freed, rules->n_made);
    fixture_close(&f);
}

static vt_request_params sampled(int32_t n)
{
    vt_request_params p = ask(prompt, 7, OUTPUT, NULL);
    p.temperature = 1;
    p.has_seed = true;
    p.seed = 11;
    p.n = n;
    return p;
}

static heard with[2], without[2];

static void test_set_when_constrained_then_only_its_tokens(void **state)
{
    (void)state;
    for (int32_t overlap = 0; overlap < 2; overlap++) {
        test_rules rules = {.step = 12};
        run(&rules, overlap, (vt_drafter){0}, sampled(1), with);
        assert_int_equal(with->n, OUTPUT);
        for (int32_t i = 0; i < OUTPUT; i++)
            assert_int_equal(with->token[i] % 12, 0);
        assert_int_equal(rules.n, OUTPUT - 1); /* the last token ends it: no rule is asked */
        if (overlap)
            assert_memory_equal(with->token, without->token, sizeof with->token);
        without[0] = with[0];
    }
}

static void test_text_when_constrained_then_it_and_then_anything(void **state)
{
    (void)state;
    test_rules rules = {.text = {9, 9, 117, 0, 31, 32, 64, 5}, .n_text = 8, .step = FREE};
    run(&rules, true, (vt_drafter){0}, sampled(1), with);
    assert_memory_equal(with->token, rules.text, sizeof rules.text);
    int32_t longer[7 + 8], n_same = 0;
    memcpy(longer, prompt, sizeof prompt);
    memcpy(longer + 7, rules.text, sizeof rules.text);
    vt_request_params p = sampled(1);
    p.prompt = longer;
    p.n_prompt = 15;
    p.max_tokens = OUTPUT - 8;
    run(NULL, true, (vt_drafter){0}, p,
        without); /* what comes behind the same text without rules */
    for (int32_t i = 0; i < OUTPUT - 8; i++)
        n_same += with->token[8 + i] == without->token[i];
    assert_int_equal(n_same, OUTPUT - 8);
}

/* Every token as a mask, and no mask at all. */
static void test_all_when_allowed_then_the_tokens_without_a_constraint(void **state)
{
    (void)state;
    for (int32_t overlap = 0; overlap < 2; overlap++) {
        test_rules mask[2] = {{.step = 1}, {.step = 1}}, any[2] = {{.step = FREE}, {.step = FREE}};
        run(NULL, overlap, (vt_drafter){0}, sampled(2), without);
        run(mask, overlap, (vt_drafter){0}, sampled(2), with);
        for (int32_t i = 0; i < 2; i++)
            assert_memory_equal(with[i].token, without[i].token, sizeof with[i].token);
        run(any, overlap, (vt_drafter){.draft = guess}, sampled(2), with);
        for (int32_t i = 0; i < 2; i++)
            assert_memory_equal(with[i].token, without[i].token, sizeof with[i].token);
        assert_memory_not_equal(with[0].token, with[1].token, OUTPUT * sizeof *with->token);
    }
}

static void test_drafts_when_constrained_then_same_tokens_and_all_undone(void **state)
{
    (void)state;
    for (int32_t overlap = 0; overlap < 2; overlap++) {
        test_rules plain = {.step = 15}, drafted = plain;
        run(&plain, overlap, (vt_drafter){0}, sampled(1), without);
        run(&drafted, overlap, (vt_drafter){.draft = guess}, sampled(1), with);
        assert_memory_equal(with->token, without->token, sizeof with->token);
        assert_true(drafted.n_undone > 0);
        assert_int_equal(drafted.n, OUTPUT - 1);
    }
}

static void test_drafts_when_the_text_is_guessed_then_fewer_masks(void **state)
{
    (void)state;
    test_rules rules = {.text = {9, 9, 117, 0, 31, 32, 64, 5}, .n_text = 8, .step = FREE};
    fixture f;
    vt_err err;
    const vt_constraint_maker maker = {.user = &rules, .make = rules_make};
    fixture_defaults(&f);
    f.config.request.vocab = VOCAB;
    f.config.sched.drafter = (vt_drafter){.user = &rules, .draft = guess_text};
    fixture_open(&f);
    memset(with, 0, sizeof *with);
    vt_request_params p = ask(prompt, 7, 8, with);
    assert_int_equal(vt_engine_submit_constrained(f.engine, &p, &maker, NULL, &err), VT_OK);
    run_all(&f);
    assert_memory_equal(with->token, rules.text, sizeof rules.text);
    vt_stats st;
    assert_int_equal(vt_engine_get_stats(f.engine, &st, NULL), VT_OK);
    assert_int_equal(st.draft_accepted, st.draft_tokens);
    assert_true(st.draft_accepted >= 5 && st.steps <= 4);
    fixture_close(&f);
}

/* Masks arrive while a step is in flight: constrained sequences are in every step, as others are,
 * so they take no step more. */
static void test_steps_when_constrained_then_every_one_has_all_sequences(void **state)
{
    (void)state;
    uint64_t steps[2];
    for (int32_t ruled = 0; ruled < 2; ruled++) {
        test_rules rules[4] = {{.step = 12}, {.step = 12}, {.step = 12}, {.step = 12}};
        const vt_constraint_maker maker = {.user = rules, .make = rules_make};
        static heard h[4];
        fixture f;
        vt_err err;
        vt_stats st;
        fixture_defaults(&f);
        f.config.request.vocab = VOCAB;
        fixture_open(&f);
        memset(h, 0, sizeof h);
        vt_request_params p = sampled(4);
        p.user = h;
        assert_int_equal(
            vt_engine_submit_constrained(f.engine, &p, ruled ? &maker : NULL, NULL, &err), VT_OK);
        run_all(&f);
        assert_int_equal(vt_engine_get_stats(f.engine, &st, NULL), VT_OK);
        for (int32_t i = 0; i < 4; i++)
            assert_int_equal(h[i].n, OUTPUT);
        steps[ruled] = st.steps;
        fixture_close(&f);
    }
    assert_int_equal(steps[1], steps[0]);
}

/* A text that the rules leave no choice of takes one step behind the prompt's, with the tokens and
 * draws of one that is computed token by token, and what follows it too. */
static void test_forced_text_when_certain_then_one_step_and_the_same_tokens(void **state)
{
    (void)state;
    for (int32_t overlap = 0; overlap < 2; overlap++) {
        uint64_t steps[2];
        for (int32_t forced = 0; forced < 2; forced++) {
            test_rules rules = {.text = {9, 9, 117, 0, 31, 32, 64, 5}, .n_text = 8, .step = 12};
            const vt_constraint_maker maker = {.user = &rules, .make = rules_make};
            fixture f;
            vt_err err;
            vt_stats st;
            fixture_defaults(&f);
            f.config.overlap = overlap;
            f.config.request.vocab = VOCAB;
            f.config.sched.forced = forced;
            fixture_open(&f);
            heard *h = forced ? with : without;
            memset(h, 0, sizeof *h);
            vt_request_params p = sampled(1);
            p.user = h;
            assert_int_equal(vt_engine_submit_constrained(f.engine, &p, &maker, NULL, &err), VT_OK);
            run_all(&f);
            assert_int_equal(vt_engine_get_stats(f.engine, &st, NULL), VT_OK);
            assert_int_equal(st.draft_tokens, 0);
            assert_int_equal(h->n, OUTPUT);
            assert_int_equal(rules.n, OUTPUT - 1);
            steps[forced] = st.steps;
            fixture_close(&f);
        }
        assert_memory_equal(with->token, without->token, sizeof with->token);
        assert_int_equal(steps[0] - steps[1], 7); /* all of the text but its first token */
    }
}

/* min_tokens holds beside rules, forced or not: their only token may not end the answer early. */
static void test_min_tokens_when_constrained_then_rows_forbid_the_end(void **state)
{
    (void)state;
    const int32_t stop = 24;
    for (int32_t forced = 0; forced < 2; forced++) {
        test_rules rules = {.text = {9, 36, 24, 48}, .n_text = 4, .step = 12};
        const vt_constraint_maker maker = {.user = &rules, .make = rules_make};
        fixture f;
        vt_err err;
        int32_t n_early = 0, n_late = 0;
        fixture_defaults(&f);
        f.config.request.vocab = VOCAB;
        f.config.sched.forced = forced;
        fixture_open(&f);
        memset(with, 0, sizeof *with);
        vt_request_params p = ask(prompt, 7, OUTPUT, with);
        p.stop_ids = &stop;
        p.n_stop_ids = 1;
        p.min_tokens = 2;
        assert_int_equal(vt_engine_submit_constrained(f.engine, &p, &maker, NULL, &err), VT_OK);
        for (uint64_t seen = 0; step(&f);) {
            const vt_plan *plan = last_plan(&f);
            for (int32_t r = 0; plan->step.id != seen && r < plan->step.batch.n_rows; r++) {
                const vt_sample_row *row = &plan->step.rows[r];
                bool early = row->position - 7 < 2, forbidden = false;
                for (int32_t i = 0; i < row->n_bias; i++)
                    forbidden = forbidden ||
                                (row->bias[i].id == stop && row->bias[i].bias < -1e30f);
                assert_int_equal(forbidden, early);
                n_early += early;
                n_late += !early;
            }
            seen = plan->step.id;
        }
        assert_true(n_early == 2 && n_late > 0);
        assert_int_equal(with->finish, VT_FINISH_STOP);
        assert_int_equal(with->n, 3);
        fixture_close(&f);
    }
}

static void test_nothing_when_allowed_then_an_error_behind_the_tokens(void **state)
{
    (void)state;
    static const vt_end_reason why[] = {VT_END_NOTHING_ALLOWED, VT_END_INTERNAL};
    for (int32_t refuses = 0; refuses < 2; refuses++)
        for (int32_t drafts = 0; drafts < 2; drafts++) {
            test_rules rules = {.step = 3, .fails_at = 5, .refuses = refuses};
            run(&rules, true, (vt_drafter){.draft = drafts ? guess : NULL}, sampled(1), with);
            assert_int_equal(with->n, 5);
            assert_int_equal(with->finish, VT_FINISH_ERROR);
            assert_int_equal(with->end_reason, why[refuses]);
        }
}

static void test_allowed_when_constrained_too_then_both_hold(void **state)
{
    (void)state;
    const int32_t allowed[] = {3, 12, 24, 25};
    test_rules rules = {.step = 12};
    vt_request_params p = sampled(1);
    p.allowed = allowed;
    p.n_allowed = 4;
    run(&rules, true, (vt_drafter){0}, p, with);
    int32_t n12 = 0;
    for (int32_t i = 0; i < OUTPUT; i++) {
        assert_true(with->token[i] == 12 || with->token[i] == 24);
        n12 += with->token[i] == 12;
    }
    assert_true(n12 > 0 && n12 < OUTPUT);
}

static void test_submit_when_no_first_token_then_refused(void **state)
{
    (void)state;
    fixture f;
    vt_err err;
    const int32_t allowed[] = {1, 5};
    test_rules rules = {.step = 12};
    const vt_constraint_maker maker = {.user = &rules, .make = rules_make};
    fixture_defaults(&f);
    fixture_open(&f);
    heard h = {0};
    vt_request_params p = ask(prompt, 7, OUTPUT, &h);
    p.allowed = allowed;
    p.n_allowed = 2;
    assert_int_equal(vt_engine_submit_constrained(f.engine, &p, &maker, NULL, &err),
                     VT_ERR_GRAMMAR);
    assert_int_equal(rules.n_freed, 1);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_set_when_constrained_then_only_its_tokens),
        cmocka_unit_test(test_text_when_constrained_then_it_and_then_anything),
        cmocka_unit_test(test_all_when_allowed_then_the_tokens_without_a_constraint),
        cmocka_unit_test(test_drafts_when_constrained_then_same_tokens_and_all_undone),
        cmocka_unit_test(test_drafts_when_the_text_is_guessed_then_fewer_masks),
        cmocka_unit_test(test_steps_when_constrained_then_every_one_has_all_sequences),
        cmocka_unit_test(test_forced_text_when_certain_then_one_step_and_the_same_tokens),
        cmocka_unit_test(test_min_tokens_when_constrained_then_rows_forbid_the_end),
        cmocka_unit_test(test_nothing_when_allowed_then_an_error_behind_the_tokens),
        cmocka_unit_test(test_allowed_when_constrained_too_then_both_hold),
        cmocka_unit_test(test_submit_when_no_first_token_then_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
