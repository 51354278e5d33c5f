/* State slots: counts, the order of eviction, and that the checker finds what it is for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/random.h"
#include "kv/slots.h"

enum { SLOTS = 8 };

static void check(const vt_slots *s)
{
    vt_err err;
    if (vt_slots_check(s, &err) != VT_OK)
        fail_msg("%s", err.message);
}

static int make(void **state)
{
    static vt_slots slots;
    *state = &slots;
    return vt_slots_init(&slots, SLOTS, NULL) == VT_OK ? 0 : -1;
}

static int unmake(void **state)
{
    vt_slots_release(*state);
    return 0;
}

static void test_slots_take_when_all_are_held_then_none(void **state)
{
    vt_slots *s = *state;
    for (int32_t i = 0; i < SLOTS; i++)
        assert_int_equal(vt_slots_take(s), i);
    assert_int_equal(vt_slots_take(s), -1);
    vt_slots_unref(s, 3);
    assert_int_equal(vt_slots_take(s), 3);
    assert_int_equal(s->n_held, SLOTS);
    check(s);
}

static void test_slots_unref_when_snapshot_then_cached_in_order_of_last_use(void **state)
{
    vt_slots *s = *state;
    for (int32_t i = 0; i < 3; i++) {
        vt_slots_enter(s, vt_slots_take(s), 10 + i);
        vt_slots_unref(s, i);
    }
    assert_int_equal(s->n_cached, 3);
    assert_int_equal(s->oldest, 0);
    vt_slots_ref(s, 0); /* used again */
    assert_int_equal(s->oldest, 1);
    vt_slots_unref(s, 0);
    assert_int_equal(s->newest, 0);
    vt_slots_leave(s, 1);
    assert_int_equal(s->oldest, 2);
    assert_int_equal(s->n_free, SLOTS - 2);
    check(s);
}

static void test_slots_unref_when_spare_then_evicted_next_until_used(void **state)
{
    vt_slots *s = *state;
    for (int32_t i = 0; i < SLOTS; i++) {
        assert_true(vt_slots_have_spare(s)); /* one is free */
        vt_slots_enter(s, vt_slots_take(s), 10 + i);
    }
    assert_false(vt_slots_have_spare(s));
    vt_slots_unref(s, 0);
    assert_false(vt_slots_have_spare(s)); /* a snapshot that is missed */
    for (int32_t i = 1; i < 3; i++) {
        vt_slots_spare(s, i);
        vt_slots_unref(s, i);
        assert_int_equal(s->oldest, i);
        assert_true(vt_slots_have_spare(s));
        check(s);
    }
    vt_slots_ref(s, 2); /* used: from now on like any other */
    vt_slots_unref(s, 2);
    assert_int_equal(s->newest, 2);
    assert_int_equal(s->oldest, 1);
    vt_slots_leave(s, 1);
    assert_int_equal(s->oldest, 0);
    check(s);
    vt_slots_enter(s, vt_slots_take(s), 20); /* the slot was spare as another page's snapshot */
    vt_slots_unref(s, 1);
    assert_int_equal(s->newest, 1);
    check(s);
}

static void test_slots_leave_when_held_then_free_at_the_last_unref(void **state)
{
    vt_slots *s = *state;
    int32_t slot = vt_slots_take(s);
    vt_slots_enter(s, slot, 4);
    vt_slots_ref(s, slot);
    vt_slots_leave(s, slot);
    vt_slots_unref(s, slot);
    assert_int_equal(s->n_free, SLOTS - 1);
    vt_slots_unref(s, slot);
    assert_int_equal(s->n_free, SLOTS);
    check(s);
}

/* Property: after any sequence of calls every count is that of a second, plain account. */
static void test_slots_when_random_then_counts_hold(void **state)
{
    vt_slots *s = *state;
    uint64_t rng = 7;
    for (int i = 0; i < 20000; i++) {
        int32_t slot = (int32_t)(vt_random_next(&rng) % SLOTS);
        bool held = s->refs[slot] > 0, kept = s->page[slot] >= 0;
        switch (vt_random_next(&rng) % 5) {
        case 0:
            assert_int_equal(vt_slots_take(s) < 0, s->n_held + s->n_cached == SLOTS && !s->n_free);
            break;
        case 1:
            if (held || kept)
                vt_slots_ref(s, slot);
            break;
        case 2:
            if (held)
                vt_slots_unref(s, slot);
            break;
        case 3:
            if (held && !kept)
                vt_slots_enter(s, slot, i);
            break;
        default:
            if (kept)
                vt_slots_leave(s, slot);
        }
        check(s);
    }
}

static void test_slots_check_when_an_account_is_wrong_then_says_so(void **state)
{
    vt_slots *s = *state;
    vt_err err;
    for (int32_t i = 0; i < 3; i++) {
        vt_slots_enter(s, vt_slots_take(s), i);
        vt_slots_unref(s, i);
    }
    s->n_held++;
    assert_int_equal(vt_slots_check(s, &err), VT_ERR_FORMAT);
    s->n_held--;
    s->free_stack[0] = s->free_stack[1]; /* twice */
    assert_int_equal(vt_slots_check(s, &err), VT_ERR_FORMAT);
    s->free_stack[0] = SLOTS - 1;
    s->newer[0] = 2; /* slot 1 is skipped */
    assert_int_equal(vt_slots_check(s, &err), VT_ERR_FORMAT);
    s->newer[0] = 1;
    check(s);
}

static void test_slots_resize_when_more_then_new_ones_go_after_free_ones(void **state)
{
    vt_slots *s = *state;
    vt_slots_resize(s, 2); /* all are free */
    check(s);
    assert_int_equal(vt_slots_take(s), 0);
    vt_slots_resize(s, SLOTS);
    check(s);
    for (int32_t i = 1; i < SLOTS; i++)
        assert_int_equal(vt_slots_take(s), i);
    assert_int_equal(vt_slots_take(s), -1);
    check(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_slots_take_when_all_are_held_then_none, make, unmake),
        cmocka_unit_test_setup_teardown(
            test_slots_unref_when_snapshot_then_cached_in_order_of_last_use, make, unmake),
        cmocka_unit_test_setup_teardown(test_slots_unref_when_spare_then_evicted_next_until_used,
                                        make, unmake),
        cmocka_unit_test_setup_teardown(test_slots_leave_when_held_then_free_at_the_last_unref,
                                        make, unmake),
        cmocka_unit_test_setup_teardown(test_slots_when_random_then_counts_hold, make, unmake),
        cmocka_unit_test_setup_teardown(test_slots_check_when_an_account_is_wrong_then_says_so,
                                        make, unmake),
        cmocka_unit_test_setup_teardown(
            test_slots_resize_when_more_then_new_ones_go_after_free_ones, make, unmake),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
