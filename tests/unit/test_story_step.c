/* The least time of a call under the roofs. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "story/step.h"

#define NEAR(a, b) assert_true(fabs((a) - (b)) <= 1e-6 * fabs(b))

/* The longest of the times that the roofs allow for bytes and for each kind of work; work of a kind
 * that the machine has no unit for is charged to the unit that does it there. */
static void test_floor_is_the_longest_of_what_the_roofs_allow(void **state)
{
    (void)state;
    const vt_roofs all = {.memory_bytes_per_s = 10,
                          .fp32_per_s = 100,
                          .bf16_per_s = 1000,
                          .int8_per_s = 2000,
                          .fp8_per_s = 4000},
                   cpu = {.memory_bytes_per_s = 10, .fp32_per_s = 100, .int8_per_s = 2000},
                   gpu = {.memory_bytes_per_s = 10, .fp32_per_s = 100, .bf16_per_s = 1000};
    const struct {
        vt_cost cost;
        const vt_roofs *roofs;
        double s;
        const char *bound;
    } row[] = {
        {{.read.weights = 70, .write.kv = 30}, &all, 10, "memory"},
        {{.read.weights = 10, .flops.int8 = 8000}, &all, 4, "int8"},
        {{.read.weights = 10, .flops = {.int8 = 8000, .fp32 = 900}}, &all, 9, "fp32"},
        {{.read.weights = 10, .flops = {.bf16 = 5000, .fp32 = 100}}, &all, 5, "bf16"},
        {{.read.weights = 10, .flops = {.bf16 = 400, .fp32 = 100}}, &cpu, 5, "fp32"},
        {{.read.weights = 10, .flops = {.int8 = 3000, .bf16 = 2000}}, &gpu, 5, "bf16"},
        {{.read.weights = 10, .flops = {.fp8 = 8000, .bf16 = 1000}}, &all, 2, "fp8"},
        {{.read.weights = 10, .flops = {.fp8 = 3000, .bf16 = 2000}}, &gpu, 5, "bf16"},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        story_bound bound;
        double s = story_floor_s(&row[i].cost, row[i].roofs, &bound);
        if (fabs(s - row[i].s) > 1e-9 || strcmp(story_bound_name(bound), row[i].bound) != 0)
            fail_msg("row %zu: %g s by %s", i, s, story_bound_name(bound));
    }
}

/* Activations that fit a cache pass that cache and not memory. A call takes at least its launch. */
static void test_floor_counts_activations_at_their_cache_and_the_launch(void **state)
{
    (void)state;
    const vt_roofs caches = {.memory_bytes_per_s = 10,
                             .l3_bytes_per_s = 50,
                             .l2_bytes_per_s = 200,
                             .l2_size = 1000,
                             .l3_size = 4000,
                             .fp32_per_s = 1e9,
                             .meeting_s = 3},
                   weights = {.memory_bytes_per_s = 10,
                              .near_bytes = 1,
                              .near_bytes_per_s = 20,
                              .l2_bytes_per_s = 200,
                              .l2_size = 1000,
                              .fp32_per_s = 1e9};
    const struct {
        vt_cost cost;
        const vt_roofs *roofs;
        double s;
        const char *bound;
    } row[] = {
        {{.read.activations = 800}, &caches, 4, "cache"},                          /* in L2 */
        {{.read.activations = 200}, &caches, 3, "launch"},                         /* 1 s of work */
        {{.read.activations = 4000}, &caches, 80, "cache"},                        /* in L3 */
        {{.read.activations = 4001}, &caches, 400.1, "memory"},                    /* in none */
        {{.read = {.activations = 1000, .weights = 70}}, &caches, 7, "memory"},    /* 70 / 10 */
        {{.read = {.activations = 1000, .weights = 70}}, &weights, 5.35, "cache"}, /* 1070 / 200 */
        {{.read.weights = 0}, &weights, 0, "memory"},
        {{.read.weights = 0}, &caches, 3, "launch"},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        story_bound bound;
        double s = story_floor_s(&row[i].cost, row[i].roofs, &bound);
        if (fabs(s - row[i].s) > 1e-9 || strcmp(story_bound_name(bound), row[i].bound) != 0)
            fail_msg("row %zu: %g s by %s", i, s, story_bound_name(bound));
    }
}

static void test_plan_floor_when_unit_missing_then_the_next_one(void **state)
{
    (void)state;
    story_bound bound;
    vt_cost c = {.read = {.weights = 1000}, .flops = {.fp32 = 500}};
    vt_roofs r = {.memory_bytes_per_s = 1000, .bf16_per_s = 100};
    NEAR(story_floor_s(&c, &r, &bound), 5.0);
    assert_int_equal(bound, STORY_BOUND_BF16);
    r.fp32_per_s = 1000;
    NEAR(story_floor_s(&c, &r, &bound), 1.0);
    assert_int_equal(bound, STORY_BOUND_MEMORY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_floor_is_the_longest_of_what_the_roofs_allow),
        cmocka_unit_test(test_floor_counts_activations_at_their_cache_and_the_launch),
        cmocka_unit_test(test_plan_floor_when_unit_missing_then_the_next_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
