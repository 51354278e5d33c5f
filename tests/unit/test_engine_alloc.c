/* No code in the step path allocates: this program counts every call of the allocator while steps
 * run. Under a sanitizer, which has its own allocator, the test is skipped. */
#include "engine_fixture.h"

#include "text/tokenizer/tokenizer.h"

/* volatile: a compiler that knows malloc may take stores around a call of it for dead */
static volatile bool counting;
static volatile uint64_t n_calls;

#ifndef VT_SANITIZE
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t size);
void *malloc(size_t size);
void *calloc(size_t n, size_t size);
void *realloc(void *p, size_t size);

void *malloc(size_t size)
{
    n_calls += counting;
    return __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
    n_calls += counting;
    return __libc_calloc(n, size);
}

void *realloc(void *p, size_t size)
{
    n_calls += counting;
    return __libc_realloc(p, size);
}
#endif

static uint64_t n_tokens;

static void count_tokens(void *user, const vt_event *e)
{
    (void)user;
    n_tokens += (uint64_t)e->n_tokens;
}

/* Prefill, waiting for another request's pages, decode, page growth, eviction, retraction, stop
 * strings, ends: all of these in a run whose requests exist before the counting begins. */
static void test_step_when_everything_happens_then_no_allocation(void **state)
{
    (void)state;
#ifdef VT_SANITIZE
    skip();
#endif
    fixture f;
    vt_tokenizer *tokenizer;
    assert_int_equal(vt_tokenizer_synthetic(512, &tokenizer, NULL), VT_OK);
    fixture_defaults(&f);
    f.config.sched.max_queued = 100;
    f.config.sched.n_pages = 60;
    f.config.request.tokenizer = tokenizer;
    fixture_open(&f);
    int32_t prompt[120];
    static const char *const stops[] = {"qx", "zz!"};
    for (int32_t i = 0; i < 40; i++) {
        count_up(prompt, 120, i % 3 * 40);
        vt_request_params p = ask(prompt, 30 + i, 80, NULL);
        p.callback = count_tokens;
        p.temperature = 1;
        p.stop = stops;
        p.n_stop = 2;
        p.n = i % 10 == 0 ? 3 : 1;
        p.logprobs = i % 2 ? 5 : -1;
        p.prompt_logprobs = i % 7 == 0;
        p.presence_penalty = i % 3;
        p.frequency_penalty = 0.1f;
        submit(&f, &p);
    }
    counting = true;
    void *volatile one = malloc(1);
    counting = false;
    assert_int_equal(n_calls, 1); /* the counter counts */
    free(one);
    n_calls = 0;
    bool idle = false;
    counting = true;
    while (!idle)
        if (vt_engine_step(f.engine, &idle, NULL) != VT_OK)
            break;
    counting = false;
    const vt_sched *s = vt_engine_scheduler(f.engine);
    assert_true(idle);
    assert_true(n_tokens > 2000 && s->stats.retracted > 0);
    assert_true(s->radix.stats.evicted_pages[VT_EVICT_GROW] +
                    s->radix.stats.evicted_pages[VT_EVICT_ADMIT] >
                0);
    assert_int_equal(n_calls, 0);
    fixture_close(&f);
    vt_tokenizer_free(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_step_when_everything_happens_then_no_allocation)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
