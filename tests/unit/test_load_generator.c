/* The load generator (src/load): the reader of HTTP responses, answers, percentiles and goodput on
 * recorded times, plans. No sockets; tests/cli/test_bench_serve.py has those. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <math.h>

#include "load/event_stream.h"
#include "load/client.h"
#include "load/measure.h"
#include "load/plan.h"

/* ---- responses ---- */

typedef struct got {
    vt_http_reply r;
    vt_buf body;
    size_t used;
} got;

static void add_body(void *user, const char *data, size_t len)
{
    vt_buf_add(&((got *)user)->body, data, len);
}

/* Reads a response in pieces of `cut` bytes, and then the end of the connection if `closes`. */
static got read_reply(const char *text, size_t cut, bool closes)
{
    static got g;
    vt_buf_release(&g.body);
    g = (got){.r = {.on_body = add_body, .user = &g}};
    vt_http_reply_reset(&g.r);
    size_t n = strlen(text);
    while (g.used < n) {
        size_t some = n - g.used < cut ? n - g.used : cut;
        size_t used = vt_http_reply_feed(&g.r, text + g.used, some);
        g.used += used;
        if (used < some)
            break;
    }
    if (closes)
        vt_http_reply_end(&g.r);
    return g;
}

static const struct {
    const char *text;
    bool closes;
    int status;
    const char *body;
    bool keep;
} good[] = {
    {"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", false, 200, "abc", true},
    {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", false, 200, "", true},
    {"HTTP/1.1 503 Busy\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx", false, 503, "x",
     false},
    {"HTTP/1.1 200\r\nTransfer-Encoding: chunked\r\n\r\n2;a=b\r\nab\r\n1\r\nc\r\n0\r\nT: v\r\n\r\n",
     false, 200, "abc", true},
    {"HTTP/1.0 200 OK\r\n\r\nuntil the end", true, 200, "until the end", false},
    {"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\nx", false, 200, "x",
     true},
    {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No\r\n\r\n", false, 204, "", true},
    {"HTTP/1.1 304 Same\r\nContent-Length: 5\r\n\r\n", false, 304, "", true},
};

static void test_reply_read_whole_or_byte_by_byte_is_the_same(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        for (size_t cut = 1; cut < 300; cut += 149) {
            got g = read_reply(good[i].text, cut, good[i].closes);
            if (g.r.state != VT_REPLY_DONE)
                fail_msg("case %zu: %s", i, g.r.why ? g.r.why : "not whole");
            assert_int_equal(g.r.status, good[i].status);
            assert_string_equal(g.body.data ? g.body.data : "", good[i].body);
            assert_int_equal(g.r.keep_alive, good[i].keep);
            assert_int_equal(g.used, strlen(good[i].text));
        }
}

static const struct {
    const char *text, *why;
} bad[] = {
    {"ICY 200 OK\r\n\r\n", "status line"},
    {"HTTP/2.0 200 OK\r\n\r\n", "status line"},
    {"HTTP/1.1 99 OK\r\n\r\n", "status line"},
    {"HTTP/1.1 999 OK\r\n\r\n", "100 to 599"},
    {"HTTP/1.1 099 OK\r\n\r\n", "100 to 599"},
    {"HTTP/1.1 200 OK\n\n", "CR LF"},
    {"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", "header line"},
    {"HTTP/1.1 200 OK\r\n folded: x\r\n\r\n", "header line"},
    {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx", "two Content-Length"},
    {"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "not a number"},
    {"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", "too large"},
    {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", "both"},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", "other than chunked"},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", "size of a chunk"},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffff\r\n", "size of a chunk"},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n", "longer than its size"},
    {"HTTP/1.1 101 Switching\r\n\r\n", "switched"},
};

static void test_reply_that_breaks_the_protocol_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        got g = read_reply(bad[i].text, 7, false);
        assert_int_equal(g.r.state, VT_REPLY_BROKEN);
        assert_non_null(strstr(g.r.why, bad[i].why));
        assert_false(g.r.keep_alive);
    }
}

static void test_reply_cut_off_is_broken(void **state)
{
    (void)state;
    assert_int_equal(read_reply("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab", 9, true).r.state,
                     VT_REPLY_BROKEN);
    assert_int_equal(
        read_reply("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n", 9, true)
            .r.state,
        VT_REPLY_BROKEN);
    assert_int_equal(read_reply("", 9, true).r.state, VT_REPLY_BROKEN);
}

static void test_reply_of_endless_headers_is_refused(void **state)
{
    (void)state;
    vt_buf text = {0};
    vt_buf_puts(&text, "HTTP/1.1 200 OK\r\n");
    for (int i = 0; i < 20000; i++)
        vt_buf_puts(&text, "a: b\r\n");
    assert_int_equal(read_reply(text.data, 1000, false).r.state, VT_REPLY_BROKEN);
    vt_buf_clear(&text);
    vt_buf_puts(&text, "HTTP/1.1 200 ");
    for (int i = 0; i < VT_REPLY_LINE; i++)
        vt_buf_putc(&text, 'x');
    assert_int_equal(read_reply(text.data, 1000, false).r.state, VT_REPLY_BROKEN);
    vt_buf_release(&text);
}

static void test_reply_leaves_what_follows(void **state)
{
    (void)state;
    const char *text = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxHTTP/1.1";
    assert_int_equal(read_reply(text, 500, false).used, strlen(text) - 8);
}

/* ---- answers ---- */

#define STREAM "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n\r\n"
#define WORD(text) "data: {\"choices\":[{\"delta\":{\"content\":\"" text "\"}}]}\n\n"
#define END "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"
#define USAGE                                                                       \
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":3," \
    "\"prompt_tokens_details\":{\"cached_tokens\":5}}}\n\n"

static vt_load_answer answer;

/* Feeds pieces, one a second from second 1 on, and then closes. */
static vt_load_result run_answer(const char *const *piece, bool stream)
{
    static vt_load_result r;
    vt_load_answer_init(&answer);
    r = (vt_load_result){0};
    vt_load_answer_begin(&answer, &r, stream);
    int64_t now = 0;
    for (; *piece; piece++)
        vt_load_answer_feed(&answer, *piece, strlen(*piece), now += 1000000000);
    vt_load_answer_closed(&answer, now + 1000000000);
    vt_load_answer_release(&answer);
    return r;
}

static void test_answer_stream_times_and_counts(void **state)
{
    (void)state;
    const char *const pieces[] = {STREAM,
                                  WORD("") ": a comment\n\n",
                                  WORD("a"),
                                  "data: {\"choices\":[{\"del",
                                  "ta\":{\"content\":\"b\"}}]}\r\n\r\n",
                                  WORD("c") END USAGE,
                                  "data: [DONE]\n\n",
                                  NULL};
    vt_load_result r = run_answer(pieces, true);
    assert_int_equal(r.end, VT_LOAD_OK);
    assert_int_equal(r.n_pieces, 3);
    assert_int_equal(r.first_ns, 3000000000);
    assert_int_equal(r.last_ns, 6000000000);
    assert_int_equal(r.end_ns, 8000000000);
    assert_true(r.longest_gap_s == 2);
    assert_int_equal(r.prompt, 7);
    assert_int_equal(r.completion, 3);
    assert_int_equal(r.cached, 5);
}

static void expect_end(vt_load_end end, bool stream, const char *text)
{
    const char *const pieces[] = {text, NULL};
    vt_load_result r = run_answer(pieces, stream);
    if (r.end != end)
        fail_msg("%s: ended as %s (%s)", text, vt_load_end_name(r.end), r.why);
}

static void test_answer_that_is_wrong_is_no_success(void **state)
{
    (void)state;
    expect_end(VT_LOAD_OK, true, STREAM WORD("a") END);
    expect_end(VT_LOAD_CUT, true, STREAM WORD("a"));
    expect_end(VT_LOAD_CUT, true, STREAM);
    expect_end(VT_LOAD_CUT, true, "");
    expect_end(VT_LOAD_FORMAT, true, STREAM "data: {\"choices\":\n\n");
    expect_end(VT_LOAD_FORMAT, true, STREAM "data: [1,2]\n\n");
    expect_end(VT_LOAD_FORMAT, true, STREAM END "data: [DONE]\n\n" WORD("x"));
    expect_end(VT_LOAD_FORMAT, true,
               "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\nhi");
    expect_end(VT_LOAD_REPORTED, true,
               STREAM WORD("a") "data: {\"error\":{\"message\":\"out of pages\"}}\n\n");
    expect_end(VT_LOAD_HTTP, true, "HTTP/1.1 503 Busy\r\nContent-Length: 9\r\n\r\n<html>503");
    expect_end(VT_LOAD_OK, false,
               "HTTP/1.1 200 OK\r\nContent-Length: 68\r\n\r\n"
               "{\"choices\":[{\"message\":{\"content\":\"hello\"},\"finish_reason\":\"stop\"}]}");
}

static void test_answer_with_an_error_status_says_the_servers_reason(void **state)
{
    (void)state;
    const char *const pieces[] = {"HTTP/1.1 400 Bad Request\r\nContent-Length: 34\r\n\r\n"
                                  "{\"error\":{\"message\":\"no such x\"} }",
                                  NULL};
    vt_load_result r = run_answer(pieces, true);
    assert_int_equal(r.end, VT_LOAD_HTTP);
    assert_int_equal(r.status, 400);
    assert_string_equal(r.why, "status 400: no such x");
}

/* ---- measuring ---- */

enum { MS = 1000000 };

/* A request that was due at second 1: times in ms after that. */
static vt_load_result timed(int first, int last, int end, int pieces, int completion)
{
    int64_t due = 1000 * (int64_t)MS;
    return (vt_load_result){.end = VT_LOAD_OK,
                            .due_ns = due,
                            .begin_ns = due + MS,
                            .first_ns = due + first * (int64_t)MS,
                            .last_ns = due + last * (int64_t)MS,
                            .end_ns = due + end * (int64_t)MS,
                            .n_pieces = pieces,
                            .prompt = 10,
                            .cached = 4,
                            .completion = completion,
                            .longest_gap_s = 0.02F};
}

static void same(double a, double b) { assert_true(fabs(a - b) < 1e-9); }

static void test_measure_recorded_times(void **state)
{
    (void)state;
    vt_load_result r[12] = {0};
    float gap[200];
    vt_load_summary s;
    for (int i = 0; i < 10; i++) /* TTFT 10, 20 ... 100 ms; 11 tokens in 5 pieces */
        r[i] = timed(10 * (i + 1), 10 * (i + 1) + 100, 300, 5, 11);
    r[9].completion = -1;
    r[3].begin_ns += MS; /* the latest to begin, and not the last */
    r[10] = timed(5, 5, 5, 1, 1);
    r[10].end = VT_LOAD_CUT;
    for (int i = 0; i < 200; i++)
        gap[i] = (float)(200 - i) / 1024;
    vt_load_slo slo = {.ttft = 0.0501, .e2e = 0.3001};
    assert_int_equal(vt_load_measure(r, 12, gap, 200, 2, &slo, &s, NULL), VT_OK);
    assert_int_equal(s.n, 11); /* the twelfth was not sent */
    assert_int_equal(s.ended[VT_LOAD_OK], 10);
    assert_int_equal(s.ended[VT_LOAD_CUT], 1);
    assert_int_equal(s.ttft.n, 10);
    same(s.ttft.mean, 0.055);
    same(s.ttft.p50, 0.050);
    same(s.ttft.p90, 0.090);
    same(s.ttft.p99, 0.100);
    same(s.e2e.p50, 0.300);
    same(s.tpot.p50, 0.010); /* 100 ms for 10 tokens after the first */
    same(s.tpot.max, 0.025); /* 100 ms for 4 pieces */
    same(s.itl.p50, 100.0 / 1024);
    same(s.itl.p99, 198.0 / 1024);
    same(s.late_s, 0.002);
    assert_int_equal(s.output_tokens, 9 * 11 + 5);
    assert_int_equal(s.by_usage, 9);
    assert_int_equal(s.by_pieces, 1);
    assert_int_equal(s.prompt_tokens, 100);
    assert_int_equal(s.cached_tokens, 40);
    same(s.requests_per_s, 5);
    same(s.output_tokens_per_s, 52);
    assert_int_equal(s.n_good, 5);
    same(s.goodput_per_s, 2.5);
}

static void test_measure_nothing_is_not_a_number(void **state)
{
    (void)state;
    vt_load_summary s;
    vt_load_result r[1] = {0};
    vt_load_slo slo = {0};
    assert_int_equal(vt_load_measure(r, 1, NULL, 0, 1, &slo, &s, NULL), VT_OK);
    assert_int_equal(s.n, 0);
    assert_true(isnan(s.ttft.p50) && isnan(s.itl.mean) && s.requests_per_s == 0);
}

static void test_goodput_limits_each_time(void **state)
{
    (void)state;
    vt_load_result r = timed(50, 150, 200, 5, 11);
    const struct {
        const char *slo;
        bool good;
    } cases[] = {{"ttft=51", true}, {"ttft=49", false},  {"itl=21", true},
                 {"itl=19", false}, {"tpot=10.1", true}, {"tpot=9.9", false},
                 {"e2e=201", true}, {"e2e=199", false},  {"ttft=51,e2e=199", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        vt_load_slo slo;
        assert_int_equal(vt_load_slo_parse(cases[i].slo, &slo, NULL), VT_OK);
        assert_int_equal(vt_load_is_good(&r, &slo), cases[i].good);
    }
    r.end = VT_LOAD_TIMEOUT;
    assert_false(vt_load_is_good(&r, &(vt_load_slo){0}));
}

static void test_slo_names_what_it_cannot_read(void **state)
{
    (void)state;
    const char *wrong[] = {"fast=1",   "ttft",         "ttft=", "ttft=-1",
                           "ttft=nan", "ttft=1;itl=2", "=3",    ""};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        vt_err err = {0};
        vt_load_slo slo;
        assert_int_equal(vt_load_slo_parse(wrong[i], &slo, &err), VT_ERR_USAGE);
        assert_non_null(strstr(err.message, "--slo"));
    }
}

static void test_turns_tell_new_tokens_apart(void **state)
{
    (void)state;
    vt_load_result r[4] = {timed(10, 20, 20, 5, 30), timed(20, 30, 30, 5, 30),
                           timed(30, 40, 40, 5, 30), timed(40, 50, 50, 5, 30)};
    vt_load_turns t;
    for (int i = 0; i < 4; i++)
        r[i].turn = i % 2;
    r[0].prompt = 100, r[1].prompt = 150, r[1].cached = 128;
    r[2].prompt = 200, r[3].prompt = 250, r[3].cached = 224;
    assert_int_equal(vt_load_measure_turn(r, 4, 1, &t, NULL), VT_OK);
    assert_int_equal(t.n, 2);
    same(t.prompt, 200);
    same(t.cached, 176);
    same(t.fresh, 20); /* 150 - (100 + 30), 250 - (200 + 30) */
    same(t.ttft_p50, 0.020);
}

/* ---- targets and plans ---- */

static void test_target_forms(void **state)
{
    (void)state;
    vt_load_target t;
    vt_err err;
    assert_int_equal(vt_load_target_parse("http://127.0.0.1:8000/v1/", &t, &err), VT_OK);
    assert_string_equal(t.host, "127.0.0.1:8000");
    assert_string_equal(t.base, "");
    assert_int_equal(vt_load_target_parse("http://127.0.0.1/openai/v1", &t, &err), VT_OK);
    assert_string_equal(t.base, "/openai");
    assert_string_equal(t.host, "127.0.0.1:80");
    assert_int_equal(vt_load_target_parse("[::1]:9", &t, &err), VT_OK);
    assert_string_equal(t.host, "[::1]:9");
    assert_int_equal(vt_load_target_parse("unix:/tmp/x.sock", &t, &err), VT_OK);
    assert_int_equal(t.family, AF_UNIX);
    assert_int_equal(vt_load_target_parse("https://127.0.0.1", &t, &err), VT_ERR_UNSUPPORTED);
    const char *wrong[] = {"",
                           "http://",
                           "http://:80",
                           "http://a:b",
                           "http://[::1",
                           "unix:",
                           "http://127.0.0.1:1?x",
                           "http://127.0.0.1:1/a b"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(vt_load_target_parse(wrong[i], &t, &err), VT_ERR_USAGE);
}

static int count_words(const vt_buf *b)
{
    int n = b->len > 0;
    for (size_t i = 0; i < b->len; i++)
        n += b->data[i] == ' ';
    return n;
}

static void test_plan_texts_repeat_and_differ(void **state)
{
    (void)state;
    vt_load_plan p = {.seed = 3, .shared = 40, .groups = 2};
    vt_buf a = {0}, b = {0}, c = {0};
    for (int i = 0; i < 4; i++)
        assert_int_equal(vt_load_plan_add(&p, 12, 5, 2, NULL), VT_OK);
    vt_load_plan_text(&p, 1, 1, &a);
    vt_load_plan_text(&p, 1, 1, &b);
    vt_load_plan_text(&p, 2, 1, &c);
    assert_int_equal(count_words(&a), 12);
    assert_string_equal(a.data, b.data);
    assert_string_not_equal(a.data, c.data);
    vt_buf_clear(&a), vt_buf_clear(&b), vt_buf_clear(&c);
    vt_load_plan_prefix(&p, 0, &a);
    vt_load_plan_prefix(&p, 1, &b);
    vt_load_plan_prefix(&p, 2, &c);
    assert_int_equal(count_words(&a), 40);
    assert_string_equal(a.data, c.data);
    assert_string_not_equal(a.data, b.data);
    vt_buf_release(&a), vt_buf_release(&b), vt_buf_release(&c);
    vt_load_plan_release(&p);
}

static void test_plan_trace_shares_what_the_trace_shares(void **state)
{
    (void)state;
    static const char text[] =
        "{\"timestamp\":0,\"input_length\":600,\"output_length\":3,\"hash_ids\":[1,2]}\n"
        "{\"timestamp\":50,\"input_length\":600,\"output_length\":3,\"hash_ids\":[1,3]}\n";
    vt_trace_file trace;
    vt_load_plan p = {.ids = true, .vocab = 500};
    vt_buf a = {0}, b = {0};
    assert_int_equal(vt_trace_parse("t", text, sizeof text - 1, 10, &trace, NULL), VT_OK);
    assert_int_equal(vt_load_plan_trace(&p, &trace, NULL), VT_OK);
    vt_load_plan_text(&p, 0, 0, &a);
    vt_load_plan_text(&p, 1, 0, &b);
    assert_int_equal(a.len, 600 * sizeof(int32_t));
    assert_memory_equal(a.data, b.data, 512 * sizeof(int32_t));
    assert_true(memcmp(a.data, b.data, a.len) != 0);
    for (size_t i = 0; i < a.len / sizeof(int32_t); i++)
        assert_in_range(((int32_t *)(void *)a.data)[i], 0, 499);
    assert_int_equal(p.session[1].due_ns, 50 * MS);
    vt_buf_release(&a), vt_buf_release(&b);
    vt_load_plan_release(&p);
    vt_trace_file_release(&trace);
}

static void test_plan_dataset_forms(void **state)
{
    (void)state;
    static const char *text[] = {
        "[{\"conversations\":[{\"from\":\"human\",\"value\":\"one\"},{\"from\":\"gpt\",\"value\":"
        "\"12345678\"},{\"from\":\"human\",\"value\":\"two\"}]},{\"conversations\":[]}]",
        "{\"messages\":[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":"
        "\"one\"},{\"role\":\"assistant\",\"content\":\"12345678\"},{\"role\":\"user\",\"content\":"
        "\"two\"}]}\n\n{\"messages\":[]}\n"};
    for (int i = 0; i < 2; i++) {
        vt_load_plan p = {0};
        vt_err err;
        if (vt_load_plan_dataset(&p, "d", text[i], strlen(text[i]), 10, 5, 0, &err) != VT_OK)
            fail_msg("%s", err.message);
        assert_int_equal(p.n, 1);
        assert_int_equal(p.n_turns, 2);
        assert_int_equal(p.turn[0].output, 2);
        assert_memory_equal(p.turn[1].text, "two", 3);
        vt_load_plan_release(&p);
    }
    vt_load_plan p = {0};
    vt_err err;
    const char *brief = "[{\"conversations\":[{\"from\":\"human\",\"value\":\"one\"},{\"from\":"
                        "\"gpt\",\"value\":\"ab\"}]}]";
    assert_int_equal(vt_load_plan_dataset(&p, "d", brief, strlen(brief), 10, 5, 0, &err), VT_OK);
    assert_int_equal(p.turn[0].output, 1); /* a short answer has a token too */
    vt_load_plan_release(&p);
    assert_int_equal(vt_load_plan_dataset(&p, "d", "{}\n{\n", 5, 10, 5, 0, &err), VT_ERR_FORMAT);
    assert_non_null(strstr(err.message, "d: line 2"));
    vt_load_plan_release(&p);
    assert_int_equal(vt_load_plan_dataset(&p, "d", "[]", 2, 10, 5, 0, &err), VT_ERR_FORMAT);
    vt_load_plan_release(&p);
}

static void add_event(void *user, const char *data, size_t len)
{
    assert_int_equal(data[len], '\0');
    vt_buf_printf(user, "<%s>", data);
}

/* The events of these bytes, which come `cut` at a time; false: one is longer than 64 bytes. */
static bool told_events(const char *bytes, size_t cut, vt_buf *told)
{
    vt_event_stream s;
    bool ok = true;
    vt_event_stream_init(&s, 64, add_event, told);
    for (size_t at = 0, len = strlen(bytes); at < len && ok; at += cut)
        ok = vt_event_stream_feed(&s, bytes + at, len - at < cut ? len - at : cut);
    vt_event_stream_release(&s);
    return ok;
}

static void test_events_are_told_however_they_are_cut(void **state)
{
    (void)state;
    for (size_t cut = 1; cut < 20; cut++) {
        vt_buf told = {0};
        assert_true(
            told_events("\n\ndata:one\r\n\r\n: a comment\nevent: x\ndata: a\ndata: b\nid: 7\n\n"
                        "retry: 1\n\ndata: half",
                        cut, &told));
        assert_string_equal(told.data, "<one><a\nb>");
        vt_buf_release(&told);
    }
}

static void test_an_event_beyond_the_limit_is_refused(void **state)
{
    (void)state;
    vt_buf told = {0};
    assert_false(told_events(
        "data: 0123456789012345678901234567890123456789012345678901234567890\n\n", 7, &told));
    vt_buf_release(&told);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_events_are_told_however_they_are_cut),
        cmocka_unit_test(test_an_event_beyond_the_limit_is_refused),
        cmocka_unit_test(test_reply_read_whole_or_byte_by_byte_is_the_same),
        cmocka_unit_test(test_reply_that_breaks_the_protocol_is_refused),
        cmocka_unit_test(test_reply_cut_off_is_broken),
        cmocka_unit_test(test_reply_of_endless_headers_is_refused),
        cmocka_unit_test(test_reply_leaves_what_follows),
        cmocka_unit_test(test_answer_stream_times_and_counts),
        cmocka_unit_test(test_answer_that_is_wrong_is_no_success),
        cmocka_unit_test(test_answer_with_an_error_status_says_the_servers_reason),
        cmocka_unit_test(test_measure_recorded_times),
        cmocka_unit_test(test_measure_nothing_is_not_a_number),
        cmocka_unit_test(test_goodput_limits_each_time),
        cmocka_unit_test(test_slo_names_what_it_cannot_read),
        cmocka_unit_test(test_turns_tell_new_tokens_apart),
        cmocka_unit_test(test_target_forms),
        cmocka_unit_test(test_plan_texts_repeat_and_differ),
        cmocka_unit_test(test_plan_trace_shares_what_the_trace_shares),
        cmocka_unit_test(test_plan_dataset_forms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
