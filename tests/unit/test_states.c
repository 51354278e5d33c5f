/* Engines whose model has sequence state: the memory of its slots, what is refused, and which
 * tokens of a prompt are found. That the tokens are right is for test_sim and test_determinism. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "common/engine_run.h"
#include "engine/engine.h"
#include "kv/shape.h"
#include "model/assemble.h"
#include "model/model.h"

enum { PAGE = 16, PROMPT = 100 };

typedef struct fixture {
    vt_options *o;
    vt_model *m;
} fixture;

static fixture f;

static int open_model(void **state)
{
    (void)state;
    vt_err err;
    if (vt_options_new(&f.o, &err) != VT_OK ||
        vt_options_set(f.o, "model", "dummy:hybrid-tiny", &err) != VT_OK ||
        vt_model_open(f.o, &f.m, &err) != VT_OK)
        return -1;
    engine_option_int(f.o, "page-size", PAGE);
    engine_option_int(f.o, "max-running", 4);
    return 0;
}

static int close_model(void **state)
{
    (void)state;
    vt_model_free(f.m);
    vt_options_free(f.o);
    return 0;
}

static void test_shape_counts_layers_with_state_apart_from_pools(void **state)
{
    (void)state;
    vt_kv_shape shape;
    vt_kv_shape_of(f.m, VT_F16, &shape);
    assert_int_equal(vt_kv_layers(&shape), 2);
    assert_int_equal(shape.n_state_layers, 4);
    assert_int_equal(vt_kv_slot_bytes(&shape), 4 * 2 * 128 * sizeof(float));
    assert_int_equal(vt_kv_state_of(f.m, 4), 3); /* layers 2 and 5 attend */
    assert_int_equal(vt_kv_pool_of(f.m, 5), 1);
}

static void test_layers_whose_state_is_not_what_their_block_uses_are_refused(void **state)
{
    (void)state;
    vt_err err;
    assert_int_equal(arch_check(f.m, &err), VT_OK);
    f.m->layer[3].state_bytes -= 4;
    assert_int_equal(arch_check(f.m, &err), VT_ERR_MODEL);
    assert_non_null(
        strstr(err.message, "layer 3 has 1020 bytes of sequence state, and its block needs 1024"));
    f.m->layer[3].state_bytes += 4;
    f.m->layer[2].state_bytes = 1024; /* it attends */
    assert_int_equal(arch_check(f.m, &err), VT_ERR_MODEL);
    assert_non_null(strstr(err.message, "layer 2 has 1024 bytes"));
}

static void refused(const char *why)
{
    vt_engine *e;
    vt_err err;
    assert_int_not_equal(vt_engine_new(f.m, f.o, &e, &err), VT_OK);
    if (!strstr(err.message, why))
        fail_msg("\"%s\" is not in: %s", why, err.message);
}

/* A quarter of the memory is 64 slots, more than the 28 for all guesses of four sequences; then
 * fewer, but never less than those of one. */
static void test_engine_when_it_drafts_then_it_has_slots_for_states_behind_guesses(void **state)
{
    (void)state;
    const struct {
        int64_t memory;
        int32_t states, guesses;
    } want[] = {{1 << 20, 12 + 28, 28}, {80 * 4096, 12 + 20, 20}, {20 * 4096, 10 + 7, 7}};
    engine_option(f.o, "draft", "lookup");
    for (int i = 0; i < 3; i++) {
        engine_option_int(f.o, "kv-memory", want[i].memory);
        vt_engine *e = engine_open(f.m, f.o);
        assert_int_equal(vt_engine_scheduler(e)->config.n_states, want[i].states);
        assert_int_equal(vt_engine_scheduler(e)->config.n_guess_states, want[i].guesses);
        vt_engine_free(e);
    }
    engine_option_int(f.o, "kv-memory", 65536);
    engine_option_int(f.o, "max-running", 9);
    refused("the state of 9 sequences of dummy:hybrid-tiny, with that behind guesses (draft), "
            "needs 65536");
}

static void test_engine_when_memory_is_less_than_the_slots_then_refused(void **state)
{
    (void)state;
    engine_option_int(f.o, "kv-memory", 65536);
    engine_option_int(f.o, "max-running", 16);
    refused("the state of 16 sequences of dummy:hybrid-tiny needs 65536");
}

static void test_engine_takes_slots_out_of_the_memory_for_kv(void **state)
{
    (void)state;
    int64_t slot = 4096, memory = 1 << 20;
    engine_option_int(f.o, "kv-memory", memory);
    vt_engine *e = engine_open(f.m, f.o);
    const vt_executor *x = vt_engine_executor(e);
    assert_int_equal((int64_t)vt_executor_value(x, "state_slots", 0), 12);
    assert_int_equal((int64_t)vt_executor_value(x, "state_bytes", 0), 12 * slot);
    int64_t page = (int64_t)vt_executor_value(x, "kv_page_bytes", 0);
    assert_int_equal(vt_engine_scheduler(e)->config.n_pages, (memory - 12 * slot) / page);
    vt_engine_free(e);
}

static int32_t cached;

static void on_event(void *user, const vt_event *e)
{
    (void)user;
    if (e->finish != VT_FINISH_NONE)
        cached = e->cached_tokens;
}

/* Runs a prompt of n tokens, the first `shared` of which all prompts have in common. Returns how
 * many of them were found. */
static int32_t found(vt_engine *e, int32_t shared, int32_t n, uint64_t own)
{
    int32_t prompt[PROMPT];
    uint64_t common = 5;
    for (int32_t i = 0; i < n; i++)
        prompt[i] = (int32_t)(vt_random_next(i < shared ? &common : &own) % 500);
    vt_request_params p;
    vt_request_init(&p);
    p.prompt = prompt;
    p.n_prompt = n;
    p.max_tokens = 1;
    p.ignore_eos = true;
    p.callback = on_event;
    engine_submit(e, &p);
    engine_run(e);
    return cached;
}

static void test_prompt_when_its_beginning_was_computed_then_found_up_to_a_snapshot(void **state)
{
    (void)state;
    vt_engine *e = engine_open(f.m, f.o);
    assert_int_equal(found(e, 70, 100, 1), 0);
    assert_int_equal(found(e, 70, 100, 1), 80); /* the last border of the same prompt */
    assert_int_equal(found(e, 70, 100, 2), 0);  /* no snapshot where it branches off, but now */
    assert_int_equal(found(e, 70, 100, 3), 64); /* there is one */
    vt_engine_free(e);
}

/* Another question behind the same long text finds its state at the last interval before they part,
 * also where slots are so few that earlier ones on the way had to go. */
static void test_prompt_when_it_goes_on_otherwise_then_found_up_to_an_interval(void **state)
{
    (void)state;
    static const int32_t running[] = {4, 1};
    for (int i = 0; i < 2; i++) {
        engine_option_int(f.o, "max-running", running[i]);
        engine_option_int(f.o, "state-interval", 2 * PAGE - 3); /* whole pages: 32 tokens */
        vt_engine *e = engine_open(f.m, f.o);
        assert_int_equal(found(e, 70, 100, 1), 0);
        assert_int_equal(found(e, 70, 100, 2), 64);
        assert_int_equal(found(e, 70, 100, 2), 80); /* the end of a prompt goes last */
        vt_engine_free(e);
    }
}

/* The next turn of a chat leaves out the last tokens of the prompt before it, which opened the
 * answer, and goes on otherwise. It must not compute the rest of that prompt again, wherever the
 * prompt ends in a page. */
static void
test_next_turn_when_the_opening_of_the_answer_changes_then_the_rest_is_found(void **state)
{
    (void)state;
    for (int32_t n = 3 * PAGE; n < 4 * PAGE; n++) {
        vt_engine *e = engine_open(f.m, f.o);
        int32_t opening = 1 + n % 4, want = (n - 9) / PAGE * PAGE;
        assert_int_equal(found(e, n - opening, n, 1), 0);
        assert_int_equal(found(e, n - opening, n + 30, 2), want);
        vt_engine_free(e);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_shape_counts_layers_with_state_apart_from_pools,
                                        open_model, close_model),
        cmocka_unit_test_setup_teardown(
            test_layers_whose_state_is_not_what_their_block_uses_are_refused, open_model,
            close_model),
        cmocka_unit_test_setup_teardown(
            test_engine_when_it_drafts_then_it_has_slots_for_states_behind_guesses, open_model,
            close_model),
        cmocka_unit_test_setup_teardown(test_engine_when_memory_is_less_than_the_slots_then_refused,
                                        open_model, close_model),
        cmocka_unit_test_setup_teardown(test_engine_takes_slots_out_of_the_memory_for_kv,
                                        open_model, close_model),
        cmocka_unit_test_setup_teardown(
            test_prompt_when_its_beginning_was_computed_then_found_up_to_a_snapshot, open_model,
            close_model),
        cmocka_unit_test_setup_teardown(
            test_prompt_when_it_goes_on_otherwise_then_found_up_to_an_interval, open_model,
            close_model),
        cmocka_unit_test_setup_teardown(
            test_next_turn_when_the_opening_of_the_answer_changes_then_the_rest_is_found,
            open_model, close_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
