/* The server's helper threads: short jobs never wait for long ones, long ones come in turns between
 * clients, and what waits has limits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <semaphore.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "server/api/work.h"

enum { MAX_JOBS = 32, QUEUED = 8, BYTES = 1000 };

typedef struct bench {
    vt_web *web;
    server_work *work;
    sem_t gate, begun; /* a job marked '!' posts `begun` and waits for `gate` */
    sem_t ran;         /* every job posts it at its end */
    char order[MAX_JOBS + 1];
    int n_order, n_done;
} bench;

typedef struct one {
    bench *b;
    char name;
} one;

static void wait_for(sem_t *s)
{
    while (sem_wait(s) != 0)
        assert_int_equal(errno, EINTR);
}

static void run(void *arg)
{
    one *j = arg;
    if (j->name == '!') {
        sem_post(&j->b->begun);
        wait_for(&j->b->gate);
    } else {
        int at = __atomic_fetch_add(&j->b->n_order, 1, __ATOMIC_SEQ_CST);
        j->b->order[at] = j->name;
    }
    sem_post(&j->b->ran);
}

static void done(void *arg)
{
    one *j = arg;
    j->b->n_done++;
    free(j);
}

static void never(void *user, vt_exchange *x)
{
    (void)user, (void)x;
    fail();
}

static bench *open_bench(void)
{
    bench *b = calloc(1, sizeof *b);
    vt_web_options o;
    vt_web_options_init(&o);
    o.handler = never;
    sem_init(&b->gate, 0, 0);
    sem_init(&b->begun, 0, 0);
    sem_init(&b->ran, 0, 0);
    assert_int_equal(vt_web_new(&o, &b->web, NULL), VT_OK);
    assert_int_equal(
        server_work_new(b->web, &(server_work_limits){2, QUEUED, BYTES}, &b->work, NULL), VT_OK);
    return b;
}

/* All jobs that were taken are done, run or not. */
static void close_bench(bench *b, int n_taken)
{
    server_work_free(b->work);
    vt_web_free(b->web);
    assert_int_equal(b->n_done, n_taken);
    free(b);
}

/* Adds a job; client 0 and 0 bytes: a short one. */
static bool add(bench *b, char name, uint64_t client, size_t bytes)
{
    one *j = malloc(sizeof *j);
    server_long_job large = {client, bytes};
    *j = (one){b, name};
    bool taken = server_work_add(b->work, client ? &large : NULL, run, done, j);
    if (!taken)
        free(j);
    return taken;
}

static void test_work_short_job_does_not_wait_for_long_ones(void **state)
{
    (void)state;
    bench *b = open_bench();
    assert_true(add(b, '!', 1, 10));
    assert_true(add(b, '!', 2, 10));
    wait_for(&b->begun); /* one long job runs, and the other waits for it */
    for (int i = 0; i < 5; i++) {
        assert_true(add(b, 's', 0, 0));
        wait_for(&b->ran);
    }
    assert_string_equal(b->order, "sssss");
    assert_int_equal(sem_trywait(&b->begun), -1);
    sem_post(&b->gate);
    sem_post(&b->gate);
    wait_for(&b->ran);
    wait_for(&b->ran);
    close_bench(b, 7);
}

static void test_work_long_jobs_take_turns_between_clients(void **state)
{
    (void)state;
    bench *b = open_bench();
    assert_true(add(b, '!', 9, 10));
    wait_for(&b->begun);
    static const char clients[] = "aaabbc"; /* as they come */
    for (int i = 0; clients[i]; i++)
        assert_true(add(b, clients[i], (uint64_t)clients[i], 10));
    sem_post(&b->gate);
    for (int i = 0; i < 7; i++)
        wait_for(&b->ran);
    assert_string_equal(b->order, "abcaba");
    close_bench(b, 7);
}

/* A client that comes later waits for one job of each other, not for all that they have sent. */
static void test_work_a_new_client_is_in_the_turn_under_way(void **state)
{
    (void)state;
    bench *b = open_bench();
    static const char first[] = "aabb";
    assert_true(add(b, 'a', 'a', 10));
    wait_for(&b->ran);
    assert_true(add(b, '!', 'a', 10)); /* the second turn is a's */
    wait_for(&b->begun);
    for (int i = 0; first[i]; i++)
        assert_true(add(b, first[i], (uint64_t)first[i], 10));
    assert_true(add(b, 'c', 'c', 10));
    assert_true(add(b, 'c', 'c', 10));
    sem_post(&b->gate);
    for (int i = 0; i < 7; i++)
        wait_for(&b->ran);
    assert_string_equal(b->order, "abcabca");
    close_bench(b, 8);
}

static void test_work_what_waits_has_limits(void **state)
{
    (void)state;
    bench *b = open_bench();
    int n = 4;
    assert_true(add(b, '!', 9, 10));
    wait_for(&b->begun);
    assert_true(add(b, 'a', 1, 200));
    assert_false(add(b, 'a', 1, 51)); /* a quarter of the bytes for each client */
    assert_true(add(b, 'a', 1, 50));
    assert_true(add(b, 'b', 2, 600)); /* one of any size, as long as there is room */
    assert_false(add(b, 'c', 3, 151));
    assert_false(add(b, 'b', 2, 1));
    for (; n < 1 + QUEUED; n++)
        assert_true(add(b, 'c', 3, 1));
    assert_false(add(b, 'c', 3, 1)); /* as many wait as may */
    assert_true(add(b, 'd', 4, 1));  /* but for a client of whom nothing waits */
    assert_false(add(b, 'd', 4, 1));
    n++;
    sem_post(&b->gate);
    for (int i = 0; i < n; i++)
        wait_for(&b->ran);
    assert_true(add(b, 'd', 4, 10 * BYTES)); /* alone it may be larger than all */
    wait_for(&b->ran);
    close_bench(b, n + 1);
}

static void test_work_short_jobs_have_a_limit_of_their_own(void **state)
{
    (void)state;
    bench *b = open_bench();
    assert_true(add(b, '!', 9, 10));
    wait_for(&b->begun); /* the thread of long jobs, which would take a short one too */
    assert_true(add(b, '!', 0, 0));
    wait_for(&b->begun); /* both threads are at work */
    for (int i = 0; i < QUEUED; i++)
        assert_true(add(b, 's', 0, 0));
    assert_false(add(b, 's', 0, 0));
    assert_true(add(b, 'l', 9, 10)); /* long ones wait elsewhere */
    sem_post(&b->gate);
    sem_post(&b->gate);
    for (int i = 0; i < 3 + QUEUED; i++)
        wait_for(&b->ran);
    close_bench(b, 3 + QUEUED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_work_short_job_does_not_wait_for_long_ones),
        cmocka_unit_test(test_work_long_jobs_take_turns_between_clients),
        cmocka_unit_test(test_work_a_new_client_is_in_the_turn_under_way),
        cmocka_unit_test(test_work_what_waits_has_limits),
        cmocka_unit_test(test_work_short_jobs_have_a_limit_of_their_own),
    };
    return cmocka_run_group_tests_name("server_work", tests, NULL, NULL);
}
