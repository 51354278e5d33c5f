/* The web server: clients that leave, stop reading, or shut one side of their connection. */
#include "web_fixture.h"

#include <fcntl.h>
#include <poll.h>

/* ---- clients that leave ---- */

static void check_gone(const char *path, bool reset, bool unix_socket)
{
    char name[] = "/tmp/vitrine-test-XXXXXX", file[64], request[200];
    site *s = site_new();
    assert_non_null(mkdtemp(name));
    snprintf(file, sizeof file, "%s/s", name);
    site_open(s, unix_socket ? file : NULL);
    int fd = unix_socket ? dial_unix(file) : dial(s);
    struct linger now = {1, 0};
    if (reset)
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: a\r\n\r\n", path);
    say(fd, request);
    wait_for(&s->began);
    close(fd);
    wait_for(&s->gone);
    ask(s, NULL);
    assert_int_equal(s->n_exchanges, 0);
    assert_int_equal(s->n_connections, 0);
    site_close(s);
    rmdir(name);
}

static void test_web_client_that_closes_while_it_waits_is_gone(void **state)
{
    (void)state;
    check_gone("/hold", false, false);
    check_gone("/hold", false, true);
}

static void test_web_client_that_resets_while_it_waits_is_gone(void **state)
{
    (void)state;
    check_gone("/hold", true, false);
}

static void test_web_client_that_closes_an_event_stream_is_gone(void **state)
{
    (void)state;
    check_gone("/events", false, false);
    check_gone("/events", false, true);
}

static void test_web_client_that_leaves_behind_a_full_input_is_gone(void **state)
{
    (void)state;
    site *s = site_start();
    int fd = dial(s);
    char block[8192];
    memset(block, 'x', sizeof block);
    say(fd, "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_for(&s->began);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    struct pollfd p = {fd, POLLOUT, 0};
    size_t sent = 0;
    while (poll(&p, 1, 200) == 1) { /* until neither the server nor the socket takes more */
        ssize_t n = send(fd, block, sizeof block, MSG_NOSIGNAL);
        sent += n > 0 ? (size_t)n : 0;
        assert_true(sent < (size_t)64 << 20);
    }
    close(fd);
    wait_for(&s->gone);
    site_close(s);
}

static void test_web_full_input_is_left_alone_until_its_turn(void **state)
{
    (void)state;
    site *s = site_start();
    int fd = dial(s), n_probes = 0;
    char block[8192];
    answer a;
    memset(block, 'x', sizeof block);
    say(fd, "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_for(&s->began);
    for (int i = 0; i < 12; i++) /* more than the server reads ahead */
        say_n(fd, block, sizeof block);
    poll(NULL, 0, 300);
    ask(s, end_held);
    for (hear(fd, &a); a.status == 100; hear(fd, &a))
        n_probes++;
    assert_in_range(n_probes, 0, 200); /* one a second, not one each time that libevent asks */
    assert_int_equal(a.status, 200);
    expect(fd, 414, NULL); /* what waited */
    expect_end(fd);
    site_close(s);
}

static void test_web_requests_behind_a_full_input_are_answered(void **state)
{
    (void)state;
    enum { N = 3000 };
    site *s = site_start();
    int fd = dial(s);
    answer a;
    say(fd, "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_for(&s->began);
    for (int i = 0; i < N; i++)
        say(fd, ECHO("x", "1"));
    shutdown(fd, SHUT_WR);
    poll(NULL, 0, 20);
    ask(s, end_held);
    for (hear(fd, &a); a.status == 100; hear(fd, &a))
        ;
    assert_int_equal(a.status, 200);
    for (int i = 0; i < N; i++)
        expect(fd, 200, "x");
    expect_end(fd);
    site_close(s);
}

static void test_web_client_that_shut_its_side_gets_its_answer(void **state)
{
    (void)state;
    for (int which = 0; which < 2; which++) {
        site *s = site_start();
        int fd = dial(s);
        answer a;
        say(fd, which ? "GET /events HTTP/1.1\r\nHost: a\r\n\r\n"
                      : "POST /hold HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi");
        wait_for(&s->began);
        shutdown(fd, SHUT_WR);
        if (which == 0)
            expect(fd, 100, ""); /* which finds out whether it reads */
        ask(s, end_held);
        hear(fd, &a);
        assert_int_equal(a.status, 200);
        if (which == 0)
            assert_string_equal(a.body, "hi");
        else /* comments, if the end was not faster */
            assert_true(a.len == 0 || a.body[0] == ':');
        expect_end(fd);
        site_close(s);
    }
}

static void test_web_pipelined_requests_and_a_shut_side_are_all_answered(void **state)
{
    (void)state;
    site *s = site_start();
    int fd = dial(s);
    say(fd, "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n" ECHO("two", "3"));
    shutdown(fd, SHUT_WR);
    wait_for(&s->began);
    expect(fd, 100, "");
    ask(s, end_held);
    expect(fd, 200, "");
    expect(fd, 200, "two");
    expect_end(fd);
    site_close(s);
}

static void test_web_http_1_0_client_that_shuts_its_side_is_gone(void **state)
{
    (void)state;
    site *s = site_start();
    int fd = dial(s);
    say(fd, "GET /hold HTTP/1.0\r\n\r\n");
    wait_for(&s->began);
    shutdown(fd, SHUT_WR);
    wait_for(&s->gone);
    expect_end(fd);
    site_close(s);
}

static void test_web_never_reading_client_is_dropped(void **state)
{
    (void)state;
    site *s = site_new();
    s->o.max_unsent = 100000;
    site_open(s, NULL);
    int fd = dial(s);
    say(fd, "GET /flood HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_for(&s->gone);
    ask(s, NULL);
    assert_int_equal(s->n_connections, 0);
    close(fd);
    site_close(s);
}

static void test_web_client_that_does_not_read_an_answer_is_dropped_in_time(void **state)
{
    (void)state;
    enum { LARGE = 20 << 20 };
    site *s = site_new();
    s->o.send_s = 0.05;
    site_open(s, NULL);
    int fd = dial(s), small = 4096;
    char *body = calloc(1, LARGE), head[200];
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    snprintf(head, sizeof head, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n",
             LARGE);
    say(fd, head);
    say_n(fd, body, LARGE);
    do
        ask(s, NULL);
    while (s->n_connections > 0);
    close(fd);
    free(body);
    site_close(s);
}

/* Sends a request whose answer is as large as its body, and reads nothing of it. */
static int ask_for_much(site *s, size_t size)
{
    int fd = dial(s), small = 4096;
    char *body = calloc(1, size), head[200];
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    snprintf(head, sizeof head, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: %zu\r\n\r\n",
             size);
    say(fd, head);
    say_n(fd, body, size);
    free(body);
    return fd;
}

static void test_web_client_that_reads_a_trickle_is_dropped(void **state)
{
    (void)state;
    site *s = site_new();
    s->o.send_s = 0.05;
    s->o.least_rate = 1e9;
    site_open(s, NULL);
    int fd = ask_for_much(s, 20 << 20);
    char some[1024];
    do { /* some progress at every look */
        if (read(fd, some, sizeof some) <= 0)
            break;
        ask(s, NULL);
    } while (s->n_connections > 0);
    ask(s, NULL);
    assert_int_equal(s->n_connections, 0);
    close(fd);
    site_close(s);
}

static void test_web_answers_beyond_the_total_are_503(void **state)
{
    (void)state;
    enum { LARGE = 20 << 20 };
    site *s = site_new();
    s->o.max_output = 30 << 20;
    s->o.send_s = 1000;
    site_open(s, NULL);
    int stuck = ask_for_much(s, LARGE);
    char start[13] = "";
    assert_int_equal(read(stuck, start, 12), 12); /* the answer has begun and is queued */
    assert_string_equal(start, "HTTP/1.1 200");
    int second = ask_for_much(s, LARGE);
    assert_int_equal(read(second, start, 12), 12);
    assert_string_equal(start, "HTTP/1.1 503");
    close(stuck);
    do
        ask(s, NULL);
    while (s->n_connections > 1);
    int third = ask_for_much(s, LARGE); /* the first one's bytes are given back */
    assert_int_equal(read(third, start, 12), 12);
    assert_string_equal(start, "HTTP/1.1 200");
    close(second);
    close(third);
    site_close(s);
}

static void test_web_open_exchanges_are_told_when_the_server_ends(void **state)
{
    (void)state;
    site *s = site_start();
    int fd = dial(s);
    say(fd, "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_for(&s->began);
    vt_web_stop(s->web);
    pthread_join(s->thread, NULL);
    vt_web_free(s->web);
    wait_for(&s->gone);
    expect_end(fd);
    free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_web_client_that_closes_while_it_waits_is_gone),
        cmocka_unit_test(test_web_client_that_resets_while_it_waits_is_gone),
        cmocka_unit_test(test_web_client_that_closes_an_event_stream_is_gone),
        cmocka_unit_test(test_web_client_that_leaves_behind_a_full_input_is_gone),
        cmocka_unit_test(test_web_full_input_is_left_alone_until_its_turn),
        cmocka_unit_test(test_web_requests_behind_a_full_input_are_answered),
        cmocka_unit_test(test_web_client_that_shut_its_side_gets_its_answer),
        cmocka_unit_test(test_web_pipelined_requests_and_a_shut_side_are_all_answered),
        cmocka_unit_test(test_web_http_1_0_client_that_shuts_its_side_is_gone),
        cmocka_unit_test(test_web_never_reading_client_is_dropped),
        cmocka_unit_test(test_web_client_that_does_not_read_an_answer_is_dropped_in_time),
        cmocka_unit_test(test_web_client_that_reads_a_trickle_is_dropped),
        cmocka_unit_test(test_web_answers_beyond_the_total_are_503),
        cmocka_unit_test(test_web_open_exchanges_are_told_when_the_server_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
