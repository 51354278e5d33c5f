/* Masks that take long (engine/constraint/late_masks.h): other sequences go on meanwhile, and the
 * answers are those of masks that are there at once. */
#include "engine_fixture.h"

#include <sched.h>

enum { VOCAB = 120, OUTPUT = 40 };

/* Tokens that are 0 modulo `step`. Of the calls in a hurry every `every`th mask and every `often`th
 * take is broken off; 0: none. */
typedef struct slow_rules {
    int32_t step, every, often;
    int32_t fails_at; /* token before which nothing is allowed; 0: none */
    bool refuses;     /* take fails there instead */
    bool hurried, late;
    int32_t n, n_calls, n_late, n_freed;
    int32_t n_calm; /* calls that were not in a hurry */
    int32_t *gate; /* atomic: calls that are not in a hurry wait until it is 0; NULL: they do not */
} slow_rules;

static bool breaks_off(slow_rules *u, int32_t every)
{
    u->late = u->hurried && every > 0 && ++u->n_calls % every == 0;
    u->n_late += u->late;
    u->n_calm += !u->hurried;
    while (!u->hurried && u->gate && __atomic_load_n(u->gate, __ATOMIC_ACQUIRE))
        sched_yield();
    return u->late;
}

static vt_allowance slow_mask(void *state, uint32_t *words, int32_t n_words)
{
    slow_rules *u = state;
    if (breaks_off(u, u->every)) {
        words[0] = 2; /* the words of a call that is broken off mean nothing */
        return VT_ALLOW_NOTHING;
    }
    if (u->fails_at > 0 && u->n >= u->fails_at && !u->refuses)
        return VT_ALLOW_NOTHING;
    for (int32_t id = 0; id < 32 * n_words; id += u->step)
        words[id / 32] |= 1u << id % 32;
    return VT_ALLOW_MASK;
}

static bool slow_take(void *state, int32_t token)
{
    slow_rules *u = state;
    if (breaks_off(u, u->often) || token % u->step != 0 || (u->refuses && u->n + 1 == u->fails_at))
        return false;
    u->n++;
    return true;
}

static void slow_undo(void *state, int32_t n) { ((slow_rules *)state)->n -= n; }
static void slow_hurry(void *state, bool on) { ((slow_rules *)state)->hurried = on; }
static bool slow_is_late(void *state) { return ((slow_rules *)state)->late; }
static void slow_free(void *state) { ((slow_rules *)state)->n_freed++; }

static bool make(void *user, int32_t sample, vt_constraint *out)
{
    *out = (vt_constraint){.state = (slow_rules *)user + sample,
                           .mask = slow_mask,
                           .take = slow_take,
                           .undo = slow_undo,
                           .free = slow_free,
                           .hurry = slow_hurry,
                           .is_late = slow_is_late};
    return true;
}

static const int32_t prompt[7] = {1, 2, 3, 4, 5, 6, 7};

static vt_request_params sampled(heard *h, uint64_t seed)
{
    vt_request_params p = ask(prompt, 7, OUTPUT, h);
    p.temperature = 1;
    p.has_seed = true;
    p.seed = seed;
    return p;
}

static vt_request_id submit_slow(fixture *f, const vt_request_params *p, slow_rules *rules)
{
    const vt_constraint_maker maker = {.user = rules, .make = make};
    vt_request_id id;
    vt_err err;
    if (vt_engine_submit_constrained(f->engine, p, &maker, &id, &err) != VT_OK)
        fail_msg("%s", err.message);
    return id;
}

static void open_engine(fixture *f, bool overlap, bool forced, vt_drafter drafter, bool states)
{
    fixture_defaults(f);
    f->config.sched.n_guess_states = states ? 8 : 0;
    f->config.sched.n_states = f->device.n_states = states ? 8 + 12 : 0;
    f->config.overlap = overlap;
    f->config.request.vocab = VOCAB;
    f->config.sched.forced = forced;
    f->config.sched.drafter = drafter;
    fixture_open(f);
}

static uint64_t late_masks(const fixture *f)
{
    return vt_engine_scheduler(f->engine)->stats.late_masks;
}

/* Guesses 0, 60, 0, 60 ...: tokens that a set may hold or not. */
static int32_t guess(void *user, vt_seq *q, int32_t *out, int32_t max)
{
    (void)user;
    for (int32_t i = 0; i < max; i++)
        out[i] = (q->n_tokens + i) % 2 ? 60 : 0;
    return max;
}

static heard with[4], without[4];

enum { OVERLAP = 1, FORCED = 2, DRAFTS = 4, STATES = 8, ALL = 15 };

/* Three sequences, and one without rules. Returns how many masks were late. */
static uint64_t run(heard *h, const slow_rules *rules, int how)
{
    fixture f;
    slow_rules of[3] = {*rules, *rules, *rules};
    open_engine(&f, how & OVERLAP, how & FORCED, (vt_drafter){.draft = how & DRAFTS ? guess : NULL},
                how & STATES);
    memset(h, 0, 4 * sizeof *h);
    for (uint64_t i = 0; i < 3; i++) {
        vt_request_params p = sampled(&h[i], i);
        submit_slow(&f, &p, &of[i]);
    }
    vt_request_params p = sampled(&h[3], 3);
    submit(&f, &p);
    run_all(&f);
    uint64_t n = late_masks(&f);
    for (int i = 0; i < 4; i++)
        assert_int_equal(h[i].n_ends, 1);
    for (int i = 0; i < 3; i++)
        assert_int_equal(of[i].n_freed, 1);
    fixture_close(&f);
    return n;
}

static void test_late_masks_leave_the_tokens_as_they_are(void **state)
{
    (void)state;
    static const slow_rules slow[] = {{.step = 15, .every = 1},
                                      {.step = 15, .every = 5},
                                      {.step = 15, .often = 1},
                                      {.step = 15, .often = 7, .every = 3},
                                      {.step = 120, .every = 4, .often = 9}};
    for (size_t i = 0; i < sizeof slow / sizeof *slow; i++)
        for (int how = 0; how <= ALL; how++) {
            const slow_rules quick = {.step = slow[i].step};
            assert_int_equal(run(without, &quick, how), 0);
            assert_true(run(with, &slow[i], how) > 0);
            for (int k = 0; k < 4; k++) {
                assert_int_equal(with[k].n, OUTPUT);
                assert_memory_equal(with[k].token, without[k].token, OUTPUT * sizeof(int32_t));
            }
        }
}

static void test_late_mask_that_allows_nothing_ends_the_sequence_behind_its_tokens(void **state)
{
    (void)state;
    static const vt_end_reason why[] = {VT_END_NOTHING_ALLOWED, VT_END_INTERNAL};
    for (int refuses = 0; refuses < 2; refuses++) {
        const slow_rules rules = {
            .step = 3, .every = 1, .often = 1, .fails_at = 5, .refuses = refuses};
        run(with, &rules, OVERLAP);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(with[i].n, 5);
            assert_int_equal(with[i].end_reason, why[refuses]);
        }
        assert_int_equal(with[3].n, OUTPUT);
    }
}

/* Steps until the mask of a sequence is being made, behind a gate. */
static void step_until_late(fixture *f)
{
    for (int i = 0; late_masks(f) == 0; i++) {
        assert_true(i < 1000);
        step(f);
    }
}

static void test_others_go_on_while_a_mask_is_made(void **state)
{
    (void)state;
    for (int overlap = 0; overlap < 2; overlap++) {
        fixture f;
        int32_t gate = 1;
        slow_rules rules = {.step = 15, .every = 4, .gate = NULL};
        memset(with, 0, sizeof with);
        open_engine(&f, overlap, false, (vt_drafter){0}, false);
        vt_request_params p = sampled(&with[0], 0), q = sampled(&with[1], 1);
        submit_slow(&f, &p, &rules);
        rules.gate = &gate;
        step_until_late(&f);
        int32_t had = with[0].n;
        submit(&f, &q);
        while (with[1].n_ends == 0)
            step(&f);
        assert_int_equal(with[1].n, OUTPUT);
        assert_int_equal(with[0].n_ends, 0);
        assert_int_equal(with[0].n, had);
        __atomic_store_n(&gate, 0, __ATOMIC_RELEASE);
        run_all(&f);
        assert_int_equal(with[0].n, OUTPUT);
        fixture_close(&f);
    }
}

static void test_abort_while_a_mask_is_made_ends_at_once(void **state)
{
    (void)state;
    for (int overlap = 0; overlap < 2; overlap++) {
        fixture f;
        int32_t gate = 1;
        slow_rules rules = {.step = 15, .every = 4};
        memset(with, 0, sizeof with);
        open_engine(&f, overlap, false, (vt_drafter){0}, false);
        vt_request_params p = sampled(&with[0], 0);
        vt_request_id id = submit_slow(&f, &p, &rules);
        rules.gate = &gate;
        step_until_late(&f);
        vt_engine_abort(f.engine, id);
        step(&f);
        assert_int_equal(with[0].n_ends, 1);
        assert_int_equal(with[0].finish, VT_FINISH_ABORT);
        assert_int_equal(rules.n_freed, 0); /* its rules are still at work */
        __atomic_store_n(&gate, 0, __ATOMIC_RELEASE);
        run_all(&f);
        assert_int_equal(rules.n_freed, 1);
        fixture_close(&f);
    }
}

/* Behind the mask that is being made: nobody wants it any more. */
static void test_abort_while_a_mask_waits_leaves_it_unmade(void **state)
{
    (void)state;
    fixture f;
    int32_t gate = 1;
    slow_rules rules[2] = {{.step = 15, .every = 2}, {.step = 15, .every = 2}};
    vt_request_id id[2];
    memset(with, 0, sizeof with);
    open_engine(&f, true, false, (vt_drafter){0}, false);
    for (int i = 0; i < 2; i++) {
        vt_request_params p = sampled(&with[i], (uint64_t)i);
        id[i] = submit_slow(&f, &p, &rules[i]);
    }
    rules[0].gate = rules[1].gate = &gate;
    while (late_masks(&f) < 2)
        step(&f);
    int32_t calm = rules[1].n_calm;
    vt_engine_abort(f.engine, id[1]);
    step(&f);
    __atomic_store_n(&gate, 0, __ATOMIC_RELEASE);
    run_all(&f);
    assert_int_equal(rules[1].n_calm, calm);
    assert_true(rules[0].n_calm > 1 && rules[1].n_freed == 1);
    assert_int_equal(with[1].finish, VT_FINISH_ABORT);
    fixture_close(&f);
}

static void test_deadline_holds_while_a_mask_is_made(void **state)
{
    (void)state;
    fixture f;
    int32_t gate = 1;
    slow_rules rules = {.step = 15, .every = 4};
    memset(with, 0, sizeof with);
    open_engine(&f, true, false, (vt_drafter){0}, false);
    vt_request_params p = sampled(&with[0], 0);
    p.timeout_s = 5;
    submit_slow(&f, &p, &rules);
    rules.gate = &gate;
    step_until_late(&f);
    f.clock.now_ns += 6000000000;
    __atomic_store_n(&gate, 0, __ATOMIC_RELEASE);
    run_all(&f);
    assert_int_equal(with[0].n_ends, 1);
    assert_int_equal(with[0].end_reason, VT_END_TIMEOUT);
    fixture_close(&f);
}

/* One mask is being made, and the others of the queue are not begun. */
static void test_engine_that_is_freed_while_masks_are_made_ends_all_sequences(void **state)
{
    (void)state;
    fixture f;
    int32_t gate = 1;
    slow_rules rules[3] = {
        {.step = 15, .every = 2}, {.step = 15, .every = 2}, {.step = 15, .every = 2}};
    memset(with, 0, sizeof with);
    open_engine(&f, true, false, (vt_drafter){0}, false);
    for (int i = 0; i < 3; i++) {
        vt_request_params p = sampled(&with[i], (uint64_t)i);
        submit_slow(&f, &p, &rules[i]);
    }
    for (int i = 0; i < 3; i++)
        rules[i].gate = &gate;
    while (late_masks(&f) < 3)
        step(&f);
    __atomic_store_n(&gate, 0, __ATOMIC_RELEASE);
    fixture_close(&f);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(with[i].n_ends, 1);
        assert_int_equal(with[i].finish, VT_FINISH_ABORT);
        assert_int_equal(rules[i].n_freed, 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_late_masks_leave_the_tokens_as_they_are),
        cmocka_unit_test(test_late_mask_that_allows_nothing_ends_the_sequence_behind_its_tokens),
        cmocka_unit_test(test_others_go_on_while_a_mask_is_made),
        cmocka_unit_test(test_abort_while_a_mask_is_made_ends_at_once),
        cmocka_unit_test(test_abort_while_a_mask_waits_leaves_it_unmade),
        cmocka_unit_test(test_deadline_holds_while_a_mask_is_made),
        cmocka_unit_test(test_engine_that_is_freed_while_masks_are_made_ends_all_sequences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
