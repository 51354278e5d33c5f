/* The simulator over many seeds: in every schedule each request gets the same tokens as alone, and
 * every invariant holds after every step. A seed that fails is printed; `VITRINE_SIM_SEED=n
 * build/release/tests/test_sim` runs it alone, VITRINE_SIM_SEEDS=n runs n seeds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "sim/simulator.h"

enum { SEEDS = 300, REQUESTS = 60 };

static uint64_t from_env(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

static void test_sim_many_seeds_then_every_request_is_exact(void **state)
{
    (void)state;
    vt_sim_report sum = {0};
    uint64_t first = from_env("VITRINE_SIM_SEED", 0);
    uint64_t n = first ? 1 : from_env("VITRINE_SIM_SEEDS", SEEDS), failed = 0;
    for (uint64_t seed = first ? first : 1; seed < (first ? first : 1) + n; seed++) {
        vt_err err;
        if (vt_sim_run(seed, REQUESTS, &sum, &err) == VT_OK)
            continue;
        print_error("%s\n", err.message);
        if (++failed == 5)
            break;
    }
    print_message(
        "%llu seeds: %llu steps, %llu requests, %llu completions (%llu stop, %llu length, %llu "
        "abort, "
        "%llu error), %llu tokens, %llu retracted, %llu faults, %llu hit and %llu copied tokens, "
        "%llu pages evicted, %llu of %llu drafts right, %llu tokens forced, %llu masks late, %llu "
        "snapshots kept "
        "and %llu evicted, with "
        "state %llu tokens hit, %llu retracted and %llu drafts right, %llu window pages evicted, "
        "with these %llu "
        "tokens "
        "hit and %llu retracted\n",
        (unsigned long long)n, (unsigned long long)sum.steps, (unsigned long long)sum.requests,
        (unsigned long long)sum.completions, (unsigned long long)sum.finished[VT_FINISH_STOP],
        (unsigned long long)sum.finished[VT_FINISH_LENGTH],
        (unsigned long long)sum.finished[VT_FINISH_ABORT],
        (unsigned long long)sum.finished[VT_FINISH_ERROR], (unsigned long long)sum.tokens,
        (unsigned long long)sum.retracted, (unsigned long long)sum.faults,
        (unsigned long long)sum.hit_tokens, (unsigned long long)sum.copied_tokens,
        (unsigned long long)sum.evicted_pages, (unsigned long long)sum.draft_accepted,
        (unsigned long long)sum.draft_tokens, (unsigned long long)sum.forced_tokens,
        (unsigned long long)sum.late_masks, (unsigned long long)sum.kept_states,
        (unsigned long long)sum.evicted_states, (unsigned long long)sum.state_hit_tokens,
        (unsigned long long)sum.state_retracted, (unsigned long long)sum.state_accepted,
        (unsigned long long)sum.evicted_windows, (unsigned long long)sum.window_hit_tokens,
        (unsigned long long)sum.window_retracted);
    assert_int_equal(failed, 0);
    if (n < SEEDS)
        return;
    /* together the seeds must have caused every event that the simulator can cause */
    assert_true(sum.retracted > 0 && sum.faults > 0 && sum.hit_tokens > 0 && sum.copied_tokens > 0);
    assert_true(sum.evicted_pages > 0 && sum.finished[VT_FINISH_ABORT] > 0 &&
                sum.finished[VT_FINISH_ERROR] > 0);
    assert_true(sum.kept_states > 0 && sum.evicted_states > 0 && sum.state_hit_tokens > 0 &&
                sum.state_retracted > 0 && sum.state_accepted > 0);
    assert_true(sum.evicted_windows > 0 && sum.window_hit_tokens > 0 && sum.window_retracted > 0);
    assert_true(sum.ruled_out > 0);
    assert_true(sum.forced_tokens > 0);
    assert_true(sum.late_masks > 0);
    assert_true(sum.draft_accepted > 0 && sum.draft_accepted < sum.draft_tokens);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sim_many_seeds_then_every_request_is_exact)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
