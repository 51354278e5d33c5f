/* The page pool: pages are free, held or cached, and the three counts always add up. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "kv/cache.h"
#include "kv/pool.h"

static void check(const vt_pool *p, int32_t idle, int32_t held, int32_t cached)
{
    vt_err err;
    if (vt_pool_check(p, &err) != VT_OK)
        fail_msg("%s", err.message);
    assert_int_equal(p->n_free, idle);
    assert_int_equal(p->n_held, held);
    assert_int_equal(p->n_cached, cached);
}

static void test_pool_take_when_enough_then_pages_differ(void **state)
{
    (void)state;
    vt_pool p;
    int32_t id[4];
    assert_int_equal(vt_pool_init(&p, 4, NULL), VT_OK);
    assert_int_equal(vt_pool_take(&p, 4, id), VT_OK);
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < i; k++)
            assert_int_not_equal(id[i], id[k]);
    check(&p, 0, 4, 0);
    vt_pool_release(&p);
}

static void test_pool_take_when_too_many_then_nothing_changes(void **state)
{
    (void)state;
    vt_pool p;
    int32_t id[4] = {-7, -7, -7, -7};
    assert_int_equal(vt_pool_init(&p, 3, NULL), VT_OK);
    assert_int_equal(vt_pool_take(&p, 4, id), VT_ERR_NO_PAGES);
    assert_int_equal(id[0], -7);
    check(&p, 3, 0, 0);
    vt_pool_release(&p);
}

static void test_pool_unref_when_in_tree_then_cached_until_it_leaves(void **state)
{
    (void)state;
    vt_pool p;
    int32_t id[2];
    assert_int_equal(vt_pool_init(&p, 2, NULL), VT_OK);
    vt_pool_take(&p, 2, id);
    vt_pool_enter_tree(&p, id[0]);
    vt_pool_unref(&p, id[0]);
    vt_pool_unref(&p, id[1]);
    check(&p, 1, 0, 1);
    vt_pool_ref(&p, id[0]);
    check(&p, 1, 1, 0);
    vt_pool_unref(&p, id[0]);
    vt_pool_leave_tree(&p, id[0]);
    check(&p, 2, 0, 0);
    vt_pool_release(&p);
}

static void test_pool_resize_when_pages_come_then_they_are_taken_last(void **state)
{
    (void)state;
    vt_pool p;
    int32_t id[6];
    assert_int_equal(vt_pool_init(&p, 6, NULL), VT_OK);
    vt_pool_resize(&p, 3);
    check(&p, 3, 0, 0);
    assert_int_equal(vt_pool_take(&p, 4, id), VT_ERR_NO_PAGES);
    assert_int_equal(vt_pool_take(&p, 2, id), VT_OK);
    vt_pool_resize(&p, 6);
    check(&p, 4, 2, 0);
    assert_int_equal(vt_pool_take(&p, 4, id + 2), VT_OK);
    for (int32_t i = 0; i < 6; i++)
        assert_int_equal(id[i], i);
    check(&p, 0, 6, 0);
    vt_pool_release(&p);
}

static void test_pool_check_when_a_page_is_twice_on_the_stack_then_fails(void **state)
{
    (void)state;
    vt_pool p;
    vt_err err;
    assert_int_equal(vt_pool_init(&p, 3, NULL), VT_OK);
    p.free_stack[0] = p.free_stack[1];
    assert_int_equal(vt_pool_check(&p, &err), VT_ERR_FORMAT);
    vt_pool_release(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pool_take_when_enough_then_pages_differ),
        cmocka_unit_test(test_pool_take_when_too_many_then_nothing_changes),
        cmocka_unit_test(test_pool_unref_when_in_tree_then_cached_until_it_leaves),
        cmocka_unit_test(test_pool_resize_when_pages_come_then_they_are_taken_last),
        cmocka_unit_test(test_pool_check_when_a_page_is_twice_on_the_stack_then_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
