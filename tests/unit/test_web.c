/* The web server: requests and answers, deadlines, limits, draining, posts of other threads. */
#include "web_fixture.h"

#include <poll.h>
#include <signal.h>
#include <sys/resource.h>

/* ---- requests and answers ---- */

static void test_web_keeps_a_connection_for_the_next_request(void **state)
{
    (void)state;
    site *s = site_start();
    int fd = dial(s);
    for (int i = 0; i < 3; i++) {
        say(fd, ECHO("hello", "5"));
        expect(fd, 200, "hello");
    }
    close(fd);
    site_close(s);
}

static void test_web_head_of_an_answer(void **state)
{
    (void)state;
    site *s = site_start();
    int fd = dial(s);
    answer a;
    say(fd, "HEAD /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    hear_head(fd, &a);
    assert_memory_equal(a.head, "HTTP/1.1 200 OK\r\nDate: ", 23);
    assert_non_null(strstr(a.head, " GMT\r\nContent-Type: text/plain\r\nContent-Length: 0\r\n"
                                   "Connection: close\r\nX-Path: /x\r\n\r\n"));
    expect_end(fd);
    site_close(s);
}

static void test_web_pipelined_requests_are_answered_in_order(void **state)
{
    (void)state;
    site *s = site_start();
    int fd = dial(s);
    say(fd, ECHO("one", "3") "POST /later HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\ntwo" ECHO(
                "three", "5") "GET /stream HTTP/1.1\r\nHost: a\r\n\r\n" ECHO("four", "4"));
    expect(fd, 200, "one");
    expect(fd, 200, "two");
    expect(fd, 200, "three");
    expect(fd, 200, "onetwothree");
    expect(fd, 200, "four");
    close(fd);
    site_close(s);
}

static void test_web_second_request_waits_until_the_first_is_answered(void **state)
{
    (void)state;
    site *s = site_start();
    int fd = dial(s);
    say(fd, "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_for(&s->began);
    for (int i = 0; i < 100; i++) /* byte by byte, while the first one waits */
        say(fd, "x");
    say(fd, "\r\n");
    ask(s, NULL);
    assert_int_equal(s->n_exchanges, 1);
    ask(s, end_held);
    expect(fd, 200, "");
    expect(fd, 400, NULL); /* what waited was no request */
    expect_end(fd);
    site_close(s);
}

static void test_web_request_in_chunks_and_answer_in_chunks(void **state)
{
    (void)state;
    site *s = site_start();
    int fd = dial(s);
    answer a;
    say(fd, "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    say(fd, "5\r\nhello\r\n");
    say(fd, "6\r\n world\r\n0\r\n\r\n");
    expect(fd, 200, "hello world");
    say(fd, "GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
    hear(fd, &a);
    assert_string_equal(a.body, "onetwothree");
    assert_non_null(strstr(a.head, "Transfer-Encoding: chunked"));
    close(fd);
    site_close(s);
}

static void test_web_http_1_0_stream_ends_with_the_connection(void **state)
{
    (void)state;
    site *s = site_start();
    int fd = dial(s);
    answer a;
    say(fd, "GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    hear(fd, &a);
    assert_string_equal(a.body, "onetwothree");
    assert_null(strstr(a.head, "chunked"));
    expect_end(fd);
    fd = dial(s);
    for (int i = 0; i < 2; i++) {
        say(fd, "GET /echo HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
        hear(fd, &a);
        assert_non_null(strstr(a.head, "Connection: keep-alive"));
    }
    say(fd, "GET /echo HTTP/1.0\r\n\r\n");
    expect(fd, 200, "");
    expect_end(fd);
    site_close(s);
}

static void test_web_gives_leave_to_send_a_body(void **state)
{
    (void)state;
    site *s = site_start();
    int fd = dial(s);
    say(fd, "POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
    expect(fd, 100, "");
    say(fd, "hi");
    expect(fd, 200, "hi");
    say(fd, "POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n"
            "Content-Length: 99999999999\r\n\r\n");
    expect(fd, 413, NULL);
    expect_end(fd);
    site_close(s);
}

static void test_web_large_body_comes_back(void **state)
{
    (void)state;
    enum { LARGE = 3 << 20 };
    site *s = site_start();
    int fd = dial(s);
    char *body = malloc(LARGE), *back = malloc(LARGE), head[200];
    for (int i = 0; i < LARGE; i++)
        body[i] = (char)(i * 31 >> 3);
    snprintf(head, sizeof head, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n",
             LARGE);
    say(fd, head);
    say_n(fd, body, LARGE);
    say(fd, ECHO("next", "4"));
    answer a;
    hear_head(fd, &a);
    assert_int_equal(recv(fd, back, LARGE, MSG_WAITALL), LARGE);
    assert_memory_equal(body, back, LARGE);
    expect(fd, 200, "next");
    close(fd);
    free(body);
    free(back);
    site_close(s);
}

static void test_web_wrong_request_gets_json_and_the_end(void **state)
{
    (void)state;
    site *s = site_start();
    int fd = dial(s);
    answer a;
    say(fd, "GET / HTTP/1.1\r\nHost : a\r\n\r\nGET /echo HTTP/1.1\r\nHost: a\r\n\r\n");
    hear(fd, &a);
    assert_int_equal(a.status, 400);
    assert_non_null(strstr(a.head, "Content-Type: application/json"));
    assert_non_null(strstr(a.head, "Connection: close"));
    assert_string_equal(
        a.body, "{\"code\":400,\"message\":\"A header line is not a name, ':' and a value.\"}");
    expect_end(fd);
    site_close(s);
}

static void test_web_refusal_reaches_a_client_that_still_sends(void **state)
{
    (void)state;
    site *s = site_new();
    s->o.limits.body = 1000;
    site_open(s, NULL);
    int fd = dial(s);
    char block[4096];
    memset(block, 'x', sizeof block);
    say(fd, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n");
    for (int i = 0; i < 16; i++)
        say_n(fd, block, sizeof block);
    expect(fd, 413, "{\"code\":413,\"message\":\"The body is longer than allowed.\"}");
    expect_end(fd);
    site_close(s);
}

static void test_web_cors(void **state)
{
    (void)state;
    site *s = site_new();
    s->o.cors_origin = "https://ui.example";
    site_open(s, NULL);
    int fd = dial(s);
    answer a;
    say(fd, "OPTIONS /v1/x HTTP/1.1\r\nHost: a\r\nOrigin: https://ui.example\r\n"
            "Access-Control-Request-Method: POST\r\n"
            "Access-Control-Request-Headers: authorization,content-type\r\n\r\n");
    hear(fd, &a);
    assert_int_equal(a.status, 204);
    assert_non_null(strstr(a.head, "Access-Control-Allow-Origin: https://ui.example\r\n"));
    assert_non_null(strstr(a.head, "Access-Control-Allow-Headers: authorization,content-type\r\n"));
    assert_non_null(strstr(a.head, "Access-Control-Allow-Methods: GET, POST"));
    assert_null(strstr(a.head, "Content-Length"));
    say(fd, ECHO("x", "1"));
    hear(fd, &a);
    assert_non_null(strstr(a.head, "Access-Control-Allow-Origin: https://ui.example\r\n"));
    assert_non_null(strstr(a.head, "Vary: Origin\r\n"));
    close(fd);
    site_close(s);
    s = site_start();
    fd = dial(s);
    say(fd, "OPTIONS /o HTTP/1.1\r\nHost: a\r\nAccess-Control-Request-Method: POST\r\n\r\n");
    hear(fd, &a);
    assert_int_equal(a.status, 200); /* without CORS it is the handler's */
    assert_null(strstr(a.head, "Access-Control"));
    close(fd);
    site_close(s);
}

/* ---- deadlines and numbers ---- */

static void test_web_slow_head_is_408(void **state)
{
    (void)state;
    site *s = site_new();
    s->o.head_s = 0.05;
    site_open(s, NULL);
    int fd = dial(s);
    say(fd, "GET / HTTP/1.1\r\nHost:");
    expect(fd, 408, NULL);
    expect_end(fd);
    site_close(s);
}

static void test_web_slow_body_is_408(void **state)
{
    (void)state;
    site *s = site_new();
    s->o.body_s = 0.05;
    site_open(s, NULL);
    int fd = dial(s);
    say(fd, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel");
    expect(fd, 408, NULL);
    expect_end(fd);
    site_close(s);
}

static void test_web_idle_connection_is_closed(void **state)
{
    (void)state;
    site *s = site_new();
    s->o.idle_s = 0.05;
    site_open(s, NULL);
    expect_end(dial(s));
    int fd = dial(s);
    say(fd, "GET /later HTTP/1.1\r\nHost: a\r\n\r\n");
    expect(fd, 200, "");
    expect_end(fd);
    site_close(s);
}

static void test_web_waiting_exchange_outlives_all_deadlines(void **state)
{
    (void)state;
    site *s = site_new();
    s->o.idle_s = s->o.head_s = s->o.body_s = s->o.send_s = 0.01;
    site_open(s, NULL);
    int fd = dial(s);
    say(fd, "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_for(&s->began);
    poll(NULL, 0, 60);
    ask(s, end_held);
    expect(fd, 200, "");
    close(fd);
    site_close(s);
}

static void test_web_thousand_connections_come_and_go(void **state)
{
    (void)state;
    enum { ROUNDS = 10, EACH = 100 };
    site *s = site_start();
    for (int round = 0; round < ROUNDS; round++) {
        int fd[EACH];
        for (int i = 0; i < EACH; i++) {
            fd[i] = dial(s);
            if (i % 3 == 0)
                say(fd[i], ECHO("x", "1"));
            else if (i % 3 == 1)
                say(fd[i], "GET /e");
        }
        for (int i = 0; i < EACH; i++)
            close(fd[i]);
    }
    do
        ask(s, NULL);
    while (s->n_connections > 0);
    int fd = dial(s);
    say(fd, ECHO("x", "1"));
    expect(fd, 200, "x");
    close(fd);
    site_close(s);
}

static void test_web_connections_beyond_the_most_get_503(void **state)
{
    (void)state;
    site *s = site_new();
    s->o.max_connections = 2;
    site_open(s, NULL);
    int fd[2];
    for (int i = 0; i < 2; i++) {
        fd[i] = dial(s);
        say(fd[i], ECHO("x", "1"));
        expect(fd[i], 200, "x");
    }
    int third = dial(s);
    say(third, ECHO("x", "1"));
    expect(third, 503, NULL);
    expect_end(third);
    close(fd[0]);
    do
        ask(s, NULL);
    while (s->n_connections > 1);
    third = dial(s);
    say(third, ECHO("x", "1"));
    expect(third, 200, "x");
    close(third);
    close(fd[1]);
    site_close(s);
}

static void test_web_goes_on_after_it_had_no_file_descriptor(void **state)
{
    (void)state;
    site *s = site_start();
    int fd = dial(s), waiting = dial(s);
    say(fd, ECHO("x", "1"));
    expect(fd, 200, "x"); /* the first is accepted; of the second that is not known */
    struct rlimit old, none;
    getrlimit(RLIMIT_NOFILE, &old);
    none = old;
    int probe = socket(AF_INET, SOCK_STREAM, 0);
    none.rlim_cur = (rlim_t)probe;
    int third = probe;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)s->port)};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setrlimit(RLIMIT_NOFILE, &none);
    assert_int_equal(connect(third, (struct sockaddr *)&a, sizeof a), 0);
    say(third, ECHO("y", "1"));
    say(fd, ECHO("x", "1"));
    expect(fd, 200, "x"); /* others are served meanwhile */
    setrlimit(RLIMIT_NOFILE, &old);
    expect(third, 200, "y");
    close(third);
    close(waiting);
    close(fd);
    site_close(s);
}

/* ---- draining ---- */

static void drain(site *s) { vt_web_drain(s->web); }

static void test_web_drain_ends_idle_connections_and_finishes_the_others(void **state)
{
    (void)state;
    site *s = site_start();
    int idle = dial(s), busy = dial(s), half = dial(s);
    answer a;
    say(idle, ECHO("x", "1"));
    expect(idle, 200, "x");
    say(half, "GET /ec");
    do
        ask(s, NULL);
    while (s->drained); /* until the half request is read */
    say(busy, "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_for(&s->began);
    ask(s, drain);
    expect_end(idle);
    assert_false(s->drained);
    say(half, "ho HTTP/1.1\r\nHost: a\r\n\r\n");
    hear(half, &a);
    assert_int_equal(a.status, 200);
    assert_non_null(strstr(a.head, "Connection: close"));
    expect_end(half);
    ask(s, end_held);
    hear(busy, &a);
    assert_non_null(strstr(a.head, "Connection: close"));
    expect_end(busy);
    ask(s, NULL);
    assert_true(s->drained);
    int late = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)s->port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(connect(late, (struct sockaddr *)&to, sizeof to), -1);
    close(late);
    site_close(s);
}

/* ---- threads, timers, signals ---- */

enum { POSTERS = 4, POSTS = 2000 };

typedef struct poster {
    site *s;
    int id, *seen; /* the last number of each poster, of the loop's thread */
    int number;
} poster;

static void on_post(void *arg)
{
    poster *p = arg;
    if (p->number != p->seen[p->id] + 1)
        abort();
    p->seen[p->id] = p->number;
    free(p);
}

static void *post_many(void *arg)
{
    poster *p = arg;
    for (int i = 1; i <= POSTS; i++) {
        poster *each = malloc(sizeof *each);
        *each = *p;
        each->number = i;
        if (!vt_web_post(p->s->web, on_post, each))
            abort();
    }
    return NULL;
}

static void test_web_posts_of_threads_run_in_order(void **state)
{
    (void)state;
    site *s = site_start();
    int seen[POSTERS] = {0};
    poster p[POSTERS];
    pthread_t thread[POSTERS];
    for (int i = 0; i < POSTERS; i++) {
        p[i] = (poster){.s = s, .id = i, .seen = seen};
        pthread_create(&thread[i], NULL, post_many, &p[i]);
    }
    for (int i = 0; i < POSTERS; i++)
        pthread_join(thread[i], NULL);
    ask(s, NULL);
    for (int i = 0; i < POSTERS; i++)
        assert_int_equal(seen[i], POSTS);
    site_close(s);
}

static void on_usr1(void *arg, int number)
{
    site *s = arg;
    if (number == SIGUSR1)
        sem_post(&s->done);
}

static void on_tick(void *arg)
{
    site *s = arg;
    sem_post(&s->began);
}

static void test_web_timers_and_signals(void **state)
{
    (void)state;
    site *s = site_new();
    vt_err err;
    assert_int_equal(vt_web_new(&s->o, &s->web, &err), VT_OK);
    assert_int_equal(vt_web_on_signal(s->web, SIGUSR1, on_usr1, s, &err), VT_OK);
    vt_web_timer *often = vt_web_timer_new(s->web, 0.002, false, on_tick, s);
    vt_web_timer *once = vt_web_timer_new(s->web, 0.002, true, on_tick, s);
    pthread_create(&s->thread, NULL, run, s);
    kill(getpid(), SIGUSR1);
    wait_for(&s->done);
    for (int i = 0; i < 5; i++)
        wait_for(&s->began);
    vt_web_stop(s->web);
    pthread_join(s->thread, NULL);
    vt_web_timer_free(often);
    vt_web_timer_free(once);
    vt_web_free(s->web);
    free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_web_keeps_a_connection_for_the_next_request),
        cmocka_unit_test(test_web_head_of_an_answer),
        cmocka_unit_test(test_web_pipelined_requests_are_answered_in_order),
        cmocka_unit_test(test_web_second_request_waits_until_the_first_is_answered),
        cmocka_unit_test(test_web_request_in_chunks_and_answer_in_chunks),
        cmocka_unit_test(test_web_http_1_0_stream_ends_with_the_connection),
        cmocka_unit_test(test_web_gives_leave_to_send_a_body),
        cmocka_unit_test(test_web_large_body_comes_back),
        cmocka_unit_test(test_web_wrong_request_gets_json_and_the_end),
        cmocka_unit_test(test_web_refusal_reaches_a_client_that_still_sends),
        cmocka_unit_test(test_web_cors),
        cmocka_unit_test(test_web_slow_head_is_408),
        cmocka_unit_test(test_web_slow_body_is_408),
        cmocka_unit_test(test_web_idle_connection_is_closed),
        cmocka_unit_test(test_web_waiting_exchange_outlives_all_deadlines),
        cmocka_unit_test(test_web_thousand_connections_come_and_go),
        cmocka_unit_test(test_web_connections_beyond_the_most_get_503),
        cmocka_unit_test(test_web_goes_on_after_it_had_no_file_descriptor),
        cmocka_unit_test(test_web_drain_ends_idle_connections_and_finishes_the_others),
        cmocka_unit_test(test_web_posts_of_threads_run_in_order),
        cmocka_unit_test(test_web_timers_and_signals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
