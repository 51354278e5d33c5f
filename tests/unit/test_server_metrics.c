/* The server's small parts that need no engine: histograms, the text of metrics, headers that
 * clients send about a request, the collector's address, and when an engine counts as stuck. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "server/api/health.h"
#include "server/watch/exposition.h"
#include "server/watch/log.h"
#include "server/watch/otlp.h"
#include "server/watch/trace_context.h"

/* ---- histograms ---- */

static void test_histogram_bounds_ascend(void **state)
{
    (void)state;
    const server_bounds *all[] = {&server_gap_bounds, &server_time_bounds, &server_mask_bounds,
                                  &server_token_bounds};
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
        assert_in_range(all[k]->n, 1, SERVER_MAX_BOUNDS);
        for (int32_t i = 1; i < all[k]->n; i++)
            assert_true(all[k]->bound[i] > all[k]->bound[i - 1]);
    }
}

/* The bucket found by halves is the first whose bound is not smaller: at every bound, one below it
 * and one above it. */
static void test_histogram_bucket_is_the_first_that_holds_the_value(void **state)
{
    (void)state;
    const server_bounds *b = &server_gap_bounds;
    for (int32_t k = 0; k < b->n; k++)
        for (int d = -1; d <= 1; d++) {
            int32_t expected = 0;
            int64_t value = b->bound[k] + d;
            while (expected < b->n && b->bound[expected] < value)
                expected++;
            assert_int_equal(server_bucket(b, value), expected);
        }
    assert_int_equal(server_bucket(b, INT64_MAX), b->n);
    assert_int_equal(server_bucket(b, 0), 0);
}

static void test_histogram_observe_counts_and_sums(void **state)
{
    (void)state;
    server_histogram h = {.bounds = &server_token_bounds};
    server_observe(&h, 1, 1);
    server_observe(&h, 3, 2);
    server_observe(&h, -1, 1);      /* as 0 */
    server_observe(&h, 1 << 21, 1); /* above the last bound */
    assert_int_equal(h.n, 5);
    assert_int_equal(h.sum, 1 + 6 + (1 << 21));
    assert_int_equal(h.count[0], 2);
    assert_int_equal(h.count[2], 2);
    assert_int_equal(h.count[h.bounds->n], 1);
}

static void test_histogram_sum_does_not_overflow(void **state)
{
    (void)state;
    server_histogram h = {.bounds = &server_token_bounds};
    server_observe(&h, INT64_MAX, 1);
    server_observe(&h, INT64_MAX, 1);
    server_observe(&h, INT64_MAX / 2, 3);
    assert_int_equal(h.n, 5);
    assert_int_equal(h.sum, INT64_MAX);
}

static void test_histogram_keeps_the_newest_request_of_each_bucket(void **state)
{
    (void)state;
    server_histogram h = {.bounds = &server_token_bounds};
    server_observe_of(&h, 3, 1, &(server_exemplar){.story = 7, .wall_ns = 10});
    server_observe_of(&h, 4, 2, &(server_exemplar){.story = 8, .wall_ns = 20});
    server_observe_of(&h, 1, 1, &(server_exemplar){.story = 0, .wall_ns = 30}); /* of no request */
    server_observe_of(&h, -1, 1, &(server_exemplar){.story = 9}); /* clocks disagree */
    assert_int_equal(h.n, 5);
    assert_int_equal(h.newest[2].story, 8);
    assert_int_equal(h.newest[2].value, 4);
    assert_int_equal(h.newest[2].wall_ns, 20);
    assert_int_equal(h.newest[0].story, 0);
}

/* ---- text ---- */

static void write_all(server_exposition *w)
{
    static const server_bounds bounds = {.unit = 1e3, .n = 2, .bound = {500, 2000}};
    server_histogram h = {.bounds = &bounds};
    server_observe(&h, 400, 1);
    server_observe(&h, 2000, 2);
    server_observe(&h, 9000, 1);
    server_family(w, SERVER_COUNTER, "a:b", "Help.");
    server_sample(w, 3, "x", "say \"hi\"\n\\", "y", "", NULL);
    server_metric(w, SERVER_GAUGE, "c", "Help.", 0.25);
    server_metric(w, SERVER_GAUGE, "e", "Help.", 0.1 + 0.2);
    server_family(w, SERVER_HISTOGRAM, "d", "Help.");
    server_histogram_samples(w, &h);
    server_exposition_end(w);
}

static void test_exposition_text_form(void **state)
{
    (void)state;
    vt_buf b = {0};
    server_exposition w = {.out = &b};
    write_all(&w);
    assert_string_equal(b.data, "# HELP a:b_total Help.\n# TYPE a:b_total counter\n"
                                "a:b_total{x=\"say \\\"hi\\\"\\n\\\\\",y=\"\"} 3\n"
                                "# HELP c Help.\n# TYPE c gauge\nc 0.25\n"
                                "# HELP e Help.\n# TYPE e gauge\ne 0.30000000000000004\n"
                                "# HELP d Help.\n# TYPE d histogram\n"
                                "d_bucket{le=\"0.5\"} 1\nd_bucket{le=\"2.0\"} 3\n"
                                "d_bucket{le=\"+Inf\"} 4\nd_sum 13.4\nd_count 4\n");
    vt_buf_release(&b);
}

static void test_exposition_exemplars_are_in_the_open_form_alone(void **state)
{
    (void)state;
    static const server_bounds bounds = {.unit = 1e3, .n = 1, .bound = {500}};
    server_histogram h = {.bounds = &bounds};
    server_observe_of(&h, 400, 1,
                      &(server_exemplar){.story = 17,
                                         .wall_ns = INT64_C(1764184482123000000),
                                         .trace_id = "4bf92f3577b34da6a3ce929d0e0e4736"});
    for (int open = 0; open < 2; open++) {
        vt_buf b = {0};
        server_exposition w = {.out = &b, .open = open};
        server_family(&w, SERVER_HISTOGRAM, "d", "Help.");
        server_histogram_samples(&w, &h);
        const char *bucket = strstr(b.data, "d_bucket");
        assert_non_null(bucket);
        const char *expected =
            open ? "d_bucket{le=\"0.5\"} 1 # {story=\"17\","
                   "trace_id=\"4bf92f3577b34da6a3ce929d0e0e4736\"} 0.4 1764184482.123\n"
                   "d_bucket{le=\"+Inf\"} 1\n"
                 : "d_bucket{le=\"0.5\"} 1\nd_bucket{le=\"+Inf\"} 1\n";
        assert_int_equal(strncmp(bucket, expected, strlen(expected)), 0);
        vt_buf_release(&b);
    }
}

static void test_exposition_open_form_names_counters_otherwise(void **state)
{
    (void)state;
    vt_buf b = {0};
    server_exposition w = {.out = &b, .open = true, .model = "m"};
    write_all(&w);
    assert_non_null(strstr(b.data, "# TYPE a:b counter\na:b_total{model_name=\"m\",x="));
    assert_non_null(strstr(b.data, "d_bucket{model_name=\"m\",le=\"2.0\"} 3\n"));
    assert_non_null(strstr(b.data, "d_sum{model_name=\"m\"} 13.4\n"));
    assert_string_equal(b.data + b.len - 6, "# EOF\n");
    vt_buf_release(&b);
}

static void test_accept_chooses_the_form(void **state)
{
    (void)state;
    static const struct {
        const char *accept;
        bool open;
    } cases[] = {
        {NULL, false},
        {"", false},
        {"*/*", false},
        {"text/plain", false},
        {"application/openmetrics-text", true},
        {"Application/OpenMetrics-Text; version=1.0.0", true},
        {"application/openmetrics-textual", false},
        {"application/openmetrics-text;q=0", false},
        {"application/openmetrics-text;q=0.000,text/plain", false},
        {"application/openmetrics-text;q=0.3,text/plain;q=0.5", false},
        {"text/plain;version=0.0.4;q=0.5,application/openmetrics-text;version=1.0.0; q=0.75", true},
        {"application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
         true},
        {"text/plain;q=0.5,application/openmetrics-text;q=0.5", true},
        {"application/openmetrics-text;q=nan", false},
        {"application/openmetrics-text;q=7", false},
        {",,, ;;q=1,application/openmetrics-text;;q=1", true},
        {"application/openmetrics-text;q", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (server_accepts_openmetrics(cases[i].accept) != cases[i].open)
            fail_msg("Accept: %s", cases[i].accept ? cases[i].accept : "(none)");
}

/* ---- what clients say of a request ---- */

static void test_request_id_is_taken_or_made(void **state)
{
    (void)state;
    char id[SERVER_MAX_ID + 1], longest[SERVER_MAX_ID + 2];
    static const char *const refused[] = {"",     "a b",      "a\"b", "a\\b", "\x1b[31m",
                                          "a\tb", "\xc3\xa9", "a;b",  "<x>",  "a,b"};
    server_request_id("7d2f-AB_c.d:e/f+g=h@i", 1, id);
    assert_string_equal(id, "7d2f-AB_c.d:e/f+g=h@i");
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        server_request_id(refused[i], 0xabc, id);
        assert_string_equal(id, "req-0000000000000abc");
    }
    server_request_id(NULL, 0xabc, id);
    assert_string_equal(id, "req-0000000000000abc");
    memset(longest, 'x', sizeof longest);
    longest[SERVER_MAX_ID + 1] = '\0';
    server_request_id(longest, 1, id);
    assert_string_equal(id, "req-0000000000000001");
    longest[SERVER_MAX_ID] = '\0';
    server_request_id(longest, 1, id);
    assert_string_equal(id, longest);
}

#define TRACE "0af7651916cd43dd8448eb211c80319c"
#define PARENT "b7ad6b7169203331"

static void test_traceparent_is_continued(void **state)
{
    (void)state;
    const uint64_t fresh[3] = {0x10, 0x20, 0x30};
    server_trace t;
    server_trace_begin("00-" TRACE "-" PARENT "-01", fresh, &t);
    assert_string_equal(t.trace_id, TRACE);
    assert_string_equal(t.parent_id, PARENT);
    assert_string_equal(t.span_id, "0000000000000011");
    assert_true(t.sampled);
    server_trace_begin("00-" TRACE "-" PARENT "-00", fresh, &t);
    assert_false(t.sampled);
    server_trace_begin("00-" TRACE "-" PARENT "-02", fresh, &t); /* another flag */
    assert_false(t.sampled);
    /* a later version may say more */
    server_trace_begin("cc-" TRACE "-" PARENT "-0b-what", fresh, &t);
    assert_string_equal(t.trace_id, TRACE);
    assert_true(t.sampled);
}

static void test_traceparent_that_is_wrong_begins_a_new_trace(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "",
        "00",
        "ff-" TRACE "-" PARENT "-01",
        "00-" TRACE "-" PARENT,
        "00-" TRACE "-" PARENT "-01-more",
        "00-" TRACE "-" PARENT "-01-",
        "00-" TRACE "-" PARENT "-0",
        "00-" TRACE "-" PARENT "-0g",
        "00-" TRACE "-b7ad6b716920333-01",
        "00-0AF7651916CD43DD8448EB211C80319C-" PARENT "-01",
        "00-00000000000000000000000000000000-" PARENT "-01",
        "00-" TRACE "-0000000000000000-01",
        "00_" TRACE "-" PARENT "-01",
        " 00-" TRACE "-" PARENT "-01",
    };
    const uint64_t fresh[3] = {0x10, 0x20, 0x30};
    server_trace t;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        server_trace_begin(wrong[i], fresh, &t);
        if (strcmp(t.trace_id, "00000000000000200000000000000031") != 0 || t.parent_id[0] ||
            !t.sampled)
            fail_msg("traceparent: %s", wrong[i]);
    }
}

/* ---- the collector's address ---- */

static void test_endpoint_is_read(void **state)
{
    (void)state;
    static const struct {
        const char *text, *host, *port, *path;
    } cases[] = {
        {"http://localhost", "localhost", "4318", "/v1/traces"},
        {"HTTP://10.0.0.1:80/", "10.0.0.1", "80", "/v1/traces"},
        {"http://[::1]:4319/otlp/v1/traces", "::1", "4319", "/otlp/v1/traces"},
        {"http://a.b:65535", "a.b", "65535", "/v1/traces"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        server_endpoint e;
        assert_int_equal(server_endpoint_read(cases[i].text, &e, NULL), VT_OK);
        assert_string_equal(e.host, cases[i].host);
        assert_string_equal(e.port, cases[i].port);
        assert_string_equal(e.path, cases[i].path);
    }
}

static void test_endpoint_that_is_wrong_is_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "",
        "localhost:4318",
        "http://",
        "http://:4318",
        "grpc://a",
        "http://a:",
        "http://a:0",
        "http://a:65536",
        "http://a:99999999999",
        "http://user:pw@a:1",
        "http://a:1x",
        "http://a?x",
        "http://a/b c",
        "http://a/\r\nX: y",
        "http://[::1",
        "http://a/#x",
    };
    server_endpoint e;
    vt_err err;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        if (server_endpoint_read(wrong[i], &e, &err) != VT_ERR_USAGE)
            fail_msg("otlp-endpoint %s was taken", wrong[i]);
        assert_non_null(strstr(err.message, "otlp-endpoint"));
    }
    assert_int_equal(server_endpoint_read("https://a:4318", &e, &err), VT_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "https"));
}

/* ---- stuck ---- */

static void test_engine_is_stuck_only_while_requests_wait_without_steps(void **state)
{
    (void)state;
    const int64_t s = INT64_C(1000000000);
    assert_false(server_is_stuck(0, 0, 1000 * s, 60));            /* never asked anything */
    assert_false(server_is_stuck(0, 10 * s, 1000 * s, 60));       /* idle for long */
    assert_false(server_is_stuck(990 * s, 10 * s, 1000 * s, 60)); /* busy again after that */
    assert_false(server_is_stuck(10 * s, 990 * s, 1000 * s, 60)); /* a long request, with steps */
    assert_true(server_is_stuck(900 * s, 10 * s, 1000 * s, 60));  /* asked, and no step since */
    assert_true(server_is_stuck(10 * s, 900 * s, 1000 * s, 60));  /* steps have ended */
    assert_true(server_is_stuck(900 * s, 0, 1000 * s, 60));       /* not even a first step */
}

/* ---- lines ---- */

static server_note note(void)
{
    server_note n = {.path = "other", .id = "req-1", .peer = "127.0.0.1", .status = 404};
    return n;
}

static void test_log_line_shows_clients_text_harmlessly(void **state)
{
    (void)state;
    server_note n = note();
    server_record r = {.note = &n,
                       .method = "GET",
                       .path = "/a b\"c\xc2\x9b"
                               "31m\xe2\x80\xae=\\",
                       .began_ns = 1,
                       .end_ns = 1500001,
                       .queue_ns = -1,
                       .ttft_ns = -1};
    vt_buf b = {0};
    server_log_format(&r, SERVER_LOG_TEXT, false, &b);
    assert_non_null(strstr(b.data, "method=GET path=\"/a b\\\"c\xef\xbf\xbd"
                                   "31m\xef\xbf\xbd=\\\\\" "
                                   "status=404 total_ms=1.500 bytes=0"));
    assert_null(strchr(b.data, '\n'));
    vt_buf_clear(&b);
    server_log_format(&r, SERVER_LOG_JSON, false, &b);
    assert_non_null(strstr(b.data, "\"path\":\"/a b\\\"c\xef\xbf\xbd"
                                   "31m\xef\xbf\xbd=\\\\\""));
    char longest[4000]; /* of which the line has the first 2,048 bytes */
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    r.path = longest;
    vt_buf_clear(&b);
    server_log_format(&r, SERVER_LOG_TEXT, false, &b);
    assert_in_range(b.len, 2048, 2300);
    assert_non_null(strstr(b.data, "xx..."));
    vt_buf_release(&b);
}

/* The pipe is not read at first: lines are dropped and counted, and the caller goes on. */
static void test_log_of_a_full_pipe_holds_nothing_up(void **state)
{
    (void)state;
    int fd[2];
    static char line[8000], back[1 << 16];
    server_log *l;
    memset(line, 'x', sizeof line);
    assert_int_equal(pipe(fd), 0);
    assert_int_equal(server_log_new(fd[1], &l, NULL), VT_OK);
    for (int i = 0; i < 1000; i++)
        server_log_line(l, line, sizeof line);
    size_t seen = 0;
    ssize_t n;
    char *dropped = NULL;
    pid_t reader = fork(); /* reads after the flood, so that the count is said */
    if (reader == 0) {
        close(fd[1]);
        while (!dropped && (n = read(fd[0], back + seen, sizeof back - 1 - seen)) > 0) {
            back[seen + (size_t)n] = '\0';
            dropped = strstr(back, "lines of the log were dropped");
            seen = n > 64 ? 64 : (size_t)n;
            memmove(back, back + n - (ssize_t)seen, seen);
        }
        _exit(dropped ? 0 : 1);
    }
    int status;
    server_log_free(l);
    close(fd[1]);
    assert_int_equal(waitpid(reader, &status, 0), reader);
    close(fd[0]);
    assert_int_equal(status, 0);
}

static void test_log_of_a_pipe_that_is_never_read_ends(void **state)
{
    (void)state;
    int fd[2];
    static char line[8000];
    server_log *l;
    assert_int_equal(pipe(fd), 0);
    assert_int_equal(server_log_new(fd[1], &l, NULL), VT_OK);
    for (int i = 0; i < 100; i++)
        server_log_line(l, line, sizeof line);
    server_log_free(l);
    close(fd[0]);
    close(fd[1]);
}

static void test_log_of_a_closed_pipe_is_no_signal(void **state)
{
    (void)state;
    int fd[2];
    server_log *l;
    assert_int_equal(pipe(fd), 0);
    close(fd[0]);
    assert_int_equal(server_log_new(fd[1], &l, NULL), VT_OK);
    server_log_line(l, "x", 1);
    server_log_free(l);
    close(fd[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_histogram_bounds_ascend),
        cmocka_unit_test(test_histogram_bucket_is_the_first_that_holds_the_value),
        cmocka_unit_test(test_histogram_observe_counts_and_sums),
        cmocka_unit_test(test_histogram_sum_does_not_overflow),
        cmocka_unit_test(test_histogram_keeps_the_newest_request_of_each_bucket),
        cmocka_unit_test(test_exposition_text_form),
        cmocka_unit_test(test_exposition_exemplars_are_in_the_open_form_alone),
        cmocka_unit_test(test_exposition_open_form_names_counters_otherwise),
        cmocka_unit_test(test_accept_chooses_the_form),
        cmocka_unit_test(test_request_id_is_taken_or_made),
        cmocka_unit_test(test_traceparent_is_continued),
        cmocka_unit_test(test_traceparent_that_is_wrong_begins_a_new_trace),
        cmocka_unit_test(test_endpoint_is_read),
        cmocka_unit_test(test_endpoint_that_is_wrong_is_refused),
        cmocka_unit_test(test_engine_is_stuck_only_while_requests_wait_without_steps),
        cmocka_unit_test(test_log_line_shows_clients_text_harmlessly),
        cmocka_unit_test(test_log_of_a_full_pipe_holds_nothing_up),
        cmocka_unit_test(test_log_of_a_pipe_that_is_never_read_ends),
        cmocka_unit_test(test_log_of_a_closed_pipe_is_no_signal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
