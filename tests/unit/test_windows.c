/* Window pages, which layers with a sliding window give back: how memory is divided for them, which
 * prefixes the tree offers, what a sequence holds, and that no token depends on any of it. Random
 * schedules over them are test_sim's and test_determinism's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "common/engine_run.h"
#include "engine/engine.h"
#include "kv/shape.h"
#include "kv/divide.h"
#include "model/model.h"

/* ---- dividing memory ---- */

/* A tenth of the layers' bytes, or less, is read in full: 62 layers of Gemma 3 27B have 10 such. */
static const vt_windows_need gemma = {.page_size = 16,
                                      .window = 1024,
                                      .page_bytes = 10000,
                                      .window_bytes = 52000,
                                      .least = 67,
                                      .max_context = 32768,
                                      .max_running = 8,
                                      .budget = 512};

static void
test_divide_when_all_fits_then_each_sequence_has_its_context_and_two_windows(void **state)
{
    (void)state;
    int32_t pages, windows;
    assert_int_equal(gemma.least, vt_sched_windows_least(gemma.window, gemma.page_size));
    int64_t wanted = vt_windows_wanted(&gemma);
    assert_true(vt_windows_divide(&gemma, wanted, &pages, &windows));
    assert_int_equal(windows, 8 * 2 * gemma.least + 512 / 16);
    assert_int_equal(pages, 8 * 32768 / 16);
    /* all of it in every layer: 5.3 times one window a sequence, 4 times two */
    assert_true(8 * (32768 / 16) * INT64_C(62000) > 4 * wanted);
}

static void test_divide_when_memory_is_short_then_more_tokens_than_without(void **state)
{
    (void)state;
    int32_t pages = 0, windows = 0;
    for (int64_t bytes = 100 << 20; bytes < vt_windows_wanted(&gemma); bytes += 77 << 20) {
        assert_true(vt_windows_divide(&gemma, bytes, &pages, &windows));
        assert_true(pages * INT64_C(10000) + windows * INT64_C(52000) <= bytes);
        assert_true(windows >= gemma.least);
        assert_true(pages > bytes / 62000 * 5 / 2);
    }
}

static void test_divide_when_nothing_is_gained_then_not(void **state)
{
    (void)state;
    int32_t pages = -1, windows = -1;
    vt_windows_need n = gemma;
    n.max_context = 1024;
    assert_false(vt_windows_divide(&n, vt_windows_wanted(&n), &pages, &windows));
    assert_false(vt_windows_divide(&gemma, 65536, &pages, &windows)); /* not even one window */
    assert_int_equal(pages, -1);
    assert_int_equal(windows, -1);
}

static void test_divide_when_all_layers_have_the_window_then_pages_are_but_numbers(void **state)
{
    (void)state;
    int32_t pages, windows;
    vt_windows_need n = gemma;
    n.page_bytes = 0;
    assert_true(vt_windows_divide(&n, 50 << 20, &pages, &windows));
    assert_int_equal(windows, (50 << 20) / 52000);
    assert_int_equal(pages, 2 * 8 * 32768 / 16);
}

/* ---- the tree ---- */

enum { SIZE = 4, WINDOW = 5 };

static void check(const vt_radix *r)
{
    vt_err err;
    if (vt_radix_check(r, &err) != VT_OK)
        fail_msg("%s", err.message);
}

/* Returns how many whole pages of token[0..n) a sequence could use. */
static int32_t usable(const vt_radix *r, int32_t tenant, const int32_t *token, int32_t n)
{
    int32_t page[8];
    return vt_radix_find(r, tenant, token, n, 9, page).n_pages;
}

static void test_prefix_is_offered_only_where_the_window_before_its_end_is_there(void **state)
{
    (void)state;
    vt_radix r;
    int32_t page[5], window[5], token[5 * SIZE];
    assert_int_equal(vt_radix_init(&r, 8, SIZE, 4, NULL), VT_OK);
    assert_int_equal(vt_radix_add_windows(&r, 3, WINDOW, NULL), VT_OK);
    int32_t t = vt_radix_join(&r, "", 0, 0);
    for (int32_t i = 0; i < 5 * SIZE; i++)
        token[i] = 100 + i;
    assert_int_equal(vt_radix_take(&r, 4, page, VT_EVICT_ADMIT), VT_OK);
    for (int32_t i = 0; i < 4; i++) { /* a sequence that sees one page back at its borders */
        int32_t parent = i > 0 ? page[i - 1] : -1;
        assert_int_equal(vt_radix_take_windows(&r, 1, &window[i]), VT_OK);
        assert_int_equal(vt_radix_insert(&r, t, parent, token + i * SIZE, SIZE, page[i], 1),
                         page[i]);
        assert_int_equal(vt_radix_keep_window(&r, page[i], window[i], 1), window[i]);
        vt_radix_drop_windows(&r, &window[i], 1);
        check(&r);
    }
    /* page 0's went to page 3: a token at 4 sees 0 to 3, one at 8 sees 4 to 7 */
    assert_int_equal(r.node[page[0]].window, -1);
    assert_int_equal(r.stats.evicted_windows, 1);
    assert_int_equal(usable(&r, t, token, 4 * SIZE), 4);
    assert_int_equal(usable(&r, t, token, 3 * SIZE), 3);
    assert_int_equal(usable(&r, t, token, 2 * SIZE), 2);
    assert_int_equal(usable(&r, t, token, SIZE + 2), 0);
    /* computed again, it is there again; page 1, whose window page was used last the longest ago,
     * has lost its own */
    assert_int_equal(vt_radix_take_windows(&r, 1, window), VT_OK);
    assert_int_equal(vt_radix_keep_window(&r, page[0], window[0], 2), window[0]);
    vt_radix_drop_windows(&r, window, 1);
    assert_int_equal(usable(&r, t, token, SIZE), 1);
    assert_int_equal(usable(&r, t, token, 2 * SIZE), 1);
    assert_int_equal(usable(&r, t, token, 4 * SIZE), 4);
    vt_radix_drop(&r, page, 4);
    check(&r);
    assert_int_equal(vt_radix_flush(&r), 4);
    assert_int_equal(r.windows.n_free, 3);
    vt_radix_release(&r);
}

/* ---- engines ---- */

enum { PROMPT = 200, TOKENS = 40, BUDGET = 16 };

typedef struct outcome {
    int32_t token[TOKENS], n, cached;
    float logprob[TOKENS];
} outcome;

static vt_options *options;
static vt_model *model;

static int open_model(void **state)
{
    (void)state;
    vt_err err;
    if (vt_options_new(&options, &err) != VT_OK ||
        vt_options_set(options, "model", "tests/golden/models/gemma3-windows", &err) != VT_OK ||
        vt_model_open(options, &model, &err) != VT_OK)
        return -1;
    engine_option_int(options, "page-size", SIZE);
    engine_option_int(options, "max-running", 4);
    engine_option_int(options, "token-budget", BUDGET);
    engine_option_int(options, "threads", 1);
    return 0;
}

static int close_model(void **state)
{
    (void)state;
    vt_model_free(model);
    vt_options_free(options);
    return 0;
}

static void on_event(void *user, const vt_event *e)
{
    outcome *o = user;
    for (int32_t i = 0; i < e->n_tokens; i++) {
        o->token[o->n] = e->tokens[i];
        o->logprob[o->n++] = e->logprobs[i].logprob;
    }
    if (e->finish != VT_FINISH_NONE)
        o->cached = e->cached_tokens;
}

/* Runs a prompt that the seed decides. Returns the most window pages that were held behind a
 * step. */
static int32_t run(vt_engine *e, uint64_t seed, outcome *out)
{
    int32_t prompt[PROMPT], most = 0;
    for (int32_t i = 0; i < PROMPT; i++)
        prompt[i] = (int32_t)(vt_random_next(&seed) % 70);
    vt_request_params p;
    vt_request_init(&p);
    p.prompt = prompt;
    p.n_prompt = PROMPT;
    p.max_tokens = TOKENS;
    p.ignore_eos = true;
    p.logprobs = 0;
    p.callback = on_event;
    p.user = out;
    memset(out, 0, sizeof *out);
    engine_submit(e, &p);
    while (engine_step(e)) {
        int32_t held = vt_engine_scheduler(e)->radix.windows.n_held;
        most = held > most ? held : most;
    }
    assert_int_equal(out->n, TOKENS);
    return most;
}

static vt_engine *open_engine(bool keep)
{
    engine_option_flag(options, "keep-window-kv", keep);
    vt_engine *e = engine_open(model, options);
    assert_int_equal(vt_engine_scheduler(e)->config.n_windows > 0, !keep);
    return e;
}

static void same_tokens(const outcome *a, const outcome *b)
{
    assert_memory_equal(a->token, b->token, sizeof a->token);
    assert_memory_equal(a->logprob, b->logprob, sizeof a->logprob);
}

static void test_shape_has_a_group_of_layers_with_a_window(void **state)
{
    (void)state;
    vt_kv_shape s;
    vt_kv_shape_of(model, VT_F16, &s);
    assert_int_equal(s.n_groups, 2);
    assert_int_equal(s.group[0].n_layers, 3);
    assert_true(s.group[0].windowed);
    assert_int_equal(s.group[1].n_layers, 1);
    assert_false(s.group[1].windowed);
    assert_int_equal(vt_kv_window_page_bytes(&s, 16) * 4, vt_kv_page_bytes(&s, 16) * 3);
    assert_int_equal(vt_kv_window(model), 6);
}

static void test_long_sequence_holds_its_window_alone_and_gets_the_same_tokens(void **state)
{
    (void)state;
    outcome all, freed;
    vt_engine *e = open_engine(true);
    run(e, 1, &all);
    vt_engine_free(e);
    e = open_engine(false);
    int32_t most = run(e, 1, &freed);
    const vt_sched *s = vt_engine_scheduler(e);
    same_tokens(&all, &freed);
    /* the window's pages, and those of a chunk of the prompt */
    int32_t bound = vt_radix_window_span(6, SIZE) + BUDGET / SIZE;
    assert_true(most > 0 && most <= bound);
    int32_t pages = (PROMPT + TOKENS) / SIZE;
    double kept = pages + 3.0 * pages,
           held = pages + 3.0 * most; /* 3 layers of 4 have the window */
    print_message("%d tokens: %.0f pages of a layer held, %.0f without giving back\n",
                  PROMPT + TOKENS, held, kept);
    assert_true(kept > 3 * held);
    assert_int_equal(s->radix.windows.n_held, 0);
    assert_int_equal(s->radix.windows.n_free + s->radix.windows.n_cached, s->config.n_windows);
    assert_int_equal(s->radix.pool.n_held, 0);
    vt_engine_free(e);
}

static void test_prefix_is_found_until_its_window_is_evicted(void **state)
{
    (void)state;
    outcome first, again, other, late;
    vt_engine *e = open_engine(false);
    run(e, 1, &first);
    run(e, 1, &again);
    assert_int_equal(first.cached, 0);
    assert_true(again.cached >= PROMPT - SIZE);
    vt_engine_stats st;
    run(e, 2, &other);
    run(e, 1, &late);
    vt_engine_copy_stats(e, &st);
    assert_int_equal(other.cached, 0);
    assert_int_equal(late.cached, 0);
    assert_true(st.cache.evicted_windows > 0);
    assert_int_equal(st.cache.evicted_pages[VT_EVICT_ADMIT] + st.cache.evicted_pages[VT_EVICT_GROW],
                     0);
    same_tokens(&first, &again);
    same_tokens(&first, &late);
    vt_engine_free(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            test_divide_when_all_fits_then_each_sequence_has_its_context_and_two_windows),
        cmocka_unit_test(test_divide_when_memory_is_short_then_more_tokens_than_without),
        cmocka_unit_test(test_divide_when_nothing_is_gained_then_not),
        cmocka_unit_test(test_divide_when_all_layers_have_the_window_then_pages_are_but_numbers),
        cmocka_unit_test(test_prefix_is_offered_only_where_the_window_before_its_end_is_there),
        cmocka_unit_test_setup_teardown(test_shape_has_a_group_of_layers_with_a_window, open_model,
                                        close_model),
        cmocka_unit_test_setup_teardown(
            test_long_sequence_holds_its_window_alone_and_gets_the_same_tokens, open_model,
            close_model),
        cmocka_unit_test_setup_teardown(test_prefix_is_found_until_its_window_is_evicted,
                                        open_model, close_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
