/* The first pages of a KV cache are there before anything writes them: mincore tells which pages
 * of memory the system has provided. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kv/populate.h"

enum { PAGE = 16, PAGES = 512 };

/* Two layers of K and V in pools of 2 MiB, and one whose K is its V in a pool of 4 MiB. */
static void make_cache(vt_kv_cache *c)
{
    vt_err err = {0};
    vt_kv_shape s = {.dtype = VT_F16, .n_groups = 2};
    s.group[0] = (vt_kv_group){.n_layers = 2, .kv_heads = 2, .head_dim = 64};
    s.group[1] = (vt_kv_group){.n_layers = 1, .kv_heads = 1, .head_dim = 256, .v_in_k = true};
    if (vt_kv_cache_init_cpu(c, &s, PAGES, 0, PAGE, &err) != VT_OK)
        fail_msg("%s", err.message);
}

/* Returns the bytes that the system has provided from `at` on, without a gap. */
static size_t present(void *at, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), n = 0;
    char *first = (char *)at - (uintptr_t)at % page;
    for (; n < bytes / page; n++) {
        unsigned char here;
        assert_int_equal(mincore(first + n * page, page, &here), 0);
        if (!(here & 1))
            break;
    }
    return n * page;
}

static bool can_populate(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *p = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    bool can = madvise(p, page, 23) == 0;
    munmap(p, page);
    return can;
}

static void test_populate_makes_each_pools_first_pages_present(void **state)
{
    (void)state;
    vt_kv_cache c;
    vt_populate p;
    if (!can_populate())
        skip();
    make_cache(&c);
    assert_int_equal(present(c.k[0].data, 4096), 0);
    vt_populate_begin(&p, &c, c.bytes / 4);
    vt_tensor *pool[] = {&c.k[0], &c.v[0], &c.k[1], &c.v[1], &c.k[2]};
    for (size_t i = 0; i < sizeof pool / sizeof *pool; i++) {
        size_t bytes = (size_t)vt_tensor_bytes(pool[i]), due = bytes / 4;
        while (present(pool[i]->data, bytes) < due)
            sched_yield();
        assert_in_range(present(pool[i]->data, bytes), due, bytes / 2);
    }
    vt_populate_end(&p);
    vt_populate_end(&p); /* a second time does nothing */
    vt_kv_cache_release(&c);
}

static void test_populate_when_more_than_the_cache_is_asked_for_then_all_of_it(void **state)
{
    (void)state;
    vt_kv_cache c;
    vt_populate p;
    if (!can_populate())
        skip();
    make_cache(&c);
    vt_populate_begin(&p, &c, SIZE_MAX);
    while (present(c.base, c.bytes) < c.bytes)
        sched_yield();
    vt_populate_end(&p);
    vt_kv_cache_release(&c);
}

static void test_populate_when_it_is_ended_early_then_the_cache_may_go(void **state)
{
    (void)state;
    for (int i = 0; i < 50; i++) {
        vt_kv_cache c;
        vt_populate p;
        make_cache(&c);
        vt_populate_begin(&p, &c, c.bytes);
        ((char *)c.k[0].data)[0] = 1; /* a request writes at the same time */
        vt_populate_end(&p);
        vt_kv_cache_release(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_populate_makes_each_pools_first_pages_present),
        cmocka_unit_test(test_populate_when_more_than_the_cache_is_asked_for_then_all_of_it),
        cmocka_unit_test(test_populate_when_it_is_ended_early_then_the_cache_may_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
