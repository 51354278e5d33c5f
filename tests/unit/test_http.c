/* The HTTP reader: every request is read whole, cut in two at every byte, and byte by byte, and the
 * three must agree. Requests that two programs could read differently are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "server/http/http.h"

static const vt_http_limits kLimits = {.line = 128, .head = 1024, .n_headers = 20, .body = 64};

/* What became of bytes: one text that can be compared. */
typedef struct outcome {
    char text[4096];
} outcome;

static void describe(vt_http_reader *r, vt_http_state state, size_t left, outcome *o)
{
    const vt_http_request *q = vt_http_reader_request(r);
    const char *why = "";
    int n = 0, room = (int)sizeof o->text;
    switch (state) {
    case VT_HTTP_REFUSED:
        n = vt_http_reader_status(r, &why);
        snprintf(o->text, sizeof o->text, "%d", n);
        assert_true(strlen(why) > 10 && why[strlen(why) - 1] == '.');
        break;
    case VT_HTTP_DONE:
        n = snprintf(o->text, sizeof o->text, "%s %s?%s 1.%d %s", q->method, q->path,
                     q->query ? q->query : "(none)", q->minor, q->keep_alive ? "keep" : "close");
        n += snprintf(o->text + n, (size_t)(room - n), "%s [", q->expects_100 ? " 100" : "");
        for (int32_t i = 0; i < q->n_headers; i++)
            n += snprintf(o->text + n, (size_t)(room - n), "%s%s=%s", i ? "|" : "",
                          q->header[i].name, q->header[i].value);
        assert_int_equal(strlen(q->body), q->body_len);
        snprintf(o->text + n, (size_t)(room - n), "] <%s> %zu left", q->body, left);
        break;
    default:
        snprintf(o->text, sizeof o->text, "more");
    }
}

/* Feeds bytes[0 .. len) in pieces of at most `piece`, of which the first has at most `first`. Each
 * piece is a block of its own, so that a sanitizer sees reads beyond it. */
static void feed(const char *bytes, size_t len, size_t first, size_t piece,
                 const vt_http_limits *limits, outcome *o)
{
    vt_http_reader *r = NULL;
    assert_int_equal(vt_http_reader_new(limits, &r, NULL), VT_OK);
    vt_http_state state = VT_HTTP_IDLE;
    size_t at = 0;
    while (at < len && state != VT_HTTP_DONE && state != VT_HTTP_REFUSED) {
        size_t most = at < first ? first - at : piece;
        size_t n = len - at < most ? len - at : most, used = 0;
        char *copy = malloc(n);
        memcpy(copy, bytes + at, n);
        state = vt_http_reader_feed(r, copy, n, &used);
        free(copy);
        assert_true(used <= n);
        if (state != VT_HTTP_DONE && state != VT_HTTP_REFUSED)
            assert_int_equal(used, n);
        at += used;
    }
    describe(r, state, len - at, o);
    vt_http_reader_free(r);
}

static void expect_n(const char *bytes, size_t len, const vt_http_limits *limits, const char *want)
{
    outcome o;
    feed(bytes, len, len, len, limits, &o);
    assert_string_equal(o.text, want);
    for (size_t cut = 1; cut < len; cut++) {
        feed(bytes, len, cut, len, limits, &o);
        assert_string_equal(o.text, want);
    }
    feed(bytes, len, 1, 1, limits, &o);
    assert_string_equal(o.text, want);
}

static void expect(const char *text, const char *want)
{
    expect_n(text, strlen(text), &kLimits, want);
}

#define HOST "Host: a\r\n"

/* ---- what is accepted ---- */

static void test_http_get_is_read(void **state)
{
    (void)state;
    expect("GET /v1/models HTTP/1.1\r\nHost: a:8000\r\n\r\n",
           "GET /v1/models?(none) 1.1 keep [host=a:8000] <> 0 left");
}

static void test_http_query_is_not_decoded(void **state)
{
    (void)state;
    expect("GET /a?b=%20c HTTP/1.1\r\n" HOST "\r\n", "GET /a?b=%20c 1.1 keep [host=a] <> 0 left");
    expect("GET /a? HTTP/1.1\r\n" HOST "\r\n", "GET /a? 1.1 keep [host=a] <> 0 left");
}

static void test_http_body_of_length_is_read(void **state)
{
    (void)state;
    expect("POST /x HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\nhello",
           "POST /x?(none) 1.1 keep [host=a|content-length=5] <hello> 0 left");
    expect("POST /x HTTP/1.1\r\n" HOST "Content-Length: 0\r\n\r\n",
           "POST /x?(none) 1.1 keep [host=a|content-length=0] <> 0 left");
    expect("POST /x HTTP/1.1\r\n" HOST "Content-Length: 64\r\n\r\n"
           "0123456789012345678901234567890123456789012345678901234567890123",
           "POST /x?(none) 1.1 keep [host=a|content-length=64] "
           "<0123456789012345678901234567890123456789012345678901234567890123> 0 left");
}

static void test_http_chunked_body_is_put_together(void **state)
{
    (void)state;
    expect("POST /x HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n"
           "5\r\nhello\r\n00a\r\n, chunked!\r\n0\r\n\r\n",
           "POST /x?(none) 1.1 keep [host=a|transfer-encoding=chunked] <hello, chunked!> 0 left");
    expect("POST /x HTTP/1.1\r\n" HOST "Transfer-Encoding: Chunked\r\n\r\n0\r\n\r\n",
           "POST /x?(none) 1.1 keep [host=a|transfer-encoding=Chunked] <> 0 left");
}

static void test_http_trailers_are_dropped(void **state)
{
    (void)state;
    expect("POST /x HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n"
           "1\r\nh\r\n0\r\nContent-Length: 7\r\nX: y\r\n\r\n",
           "POST /x?(none) 1.1 keep [host=a|transfer-encoding=chunked] <h> 0 left");
}

static void test_http_post_without_length_has_no_body(void **state)
{
    (void)state;
    expect("POST /flush HTTP/1.1\r\n" HOST "\r\n",
           "POST /flush?(none) 1.1 keep [host=a] <> 0 left");
}

static void test_http_pipelined_request_is_left_alone(void **state)
{
    (void)state;
    expect_n("GET / HTTP/1.1\r\n" HOST "\r\nGET /", 32, &kLimits,
             "GET /?(none) 1.1 keep [host=a] <> 5 left");
}

static void test_http_header_names_become_lower_case_and_values_are_trimmed(void **state)
{
    (void)state;
    expect("GET / HTTP/1.1\r\nHOST:a\r\nX-One:  two\tthree \t\r\nEmpty:\r\nY: \xc3\xa9\r\n\r\n",
           "GET /?(none) 1.1 keep [host=a|x-one=two\tthree|empty=|y=\xc3\xa9] <> 0 left");
}

static void test_http_path_is_decoded(void **state)
{
    (void)state;
    expect("GET /v1/models/org%2Fname%20x HTTP/1.1\r\n" HOST "\r\n",
           "GET /v1/models/org/name x?(none) 1.1 keep [host=a] <> 0 left");
    expect("GET /%c3%a9 HTTP/1.1\r\n" HOST "\r\n",
           "GET /\xc3\xa9?(none) 1.1 keep [host=a] <> 0 left");
    expect("GET /.a/..b/c. HTTP/1.1\r\n" HOST "\r\n",
           "GET /.a/..b/c.?(none) 1.1 keep [host=a] <> 0 left");
}

static void test_http_absolute_target_is_accepted_if_its_host_is_the_host(void **state)
{
    (void)state;
    expect("GET http://a/x?y HTTP/1.1\r\n" HOST "\r\n", "GET /x?y 1.1 keep [host=a] <> 0 left");
    expect("GET HTTP://A HTTP/1.1\r\n" HOST "\r\n", "GET /?(none) 1.1 keep [host=a] <> 0 left");
    expect("GET https://a?q HTTP/1.1\r\n" HOST "\r\n", "GET /?q 1.1 keep [host=a] <> 0 left");
    expect("GET http://b/x HTTP/1.1\r\n" HOST "\r\n", "400");
    expect("GET http://a/x HTTP/1.1\r\nHost: ab\r\n\r\n", "400");
    expect("GET http:///x HTTP/1.1\r\n" HOST "\r\n", "400");
    expect("GET ftp://a/x HTTP/1.1\r\n" HOST "\r\n", "400");
    expect("GET http://u@a/x HTTP/1.1\r\n" HOST "\r\n", "400");
}

static void test_http_options_of_the_server_is_accepted(void **state)
{
    (void)state;
    expect("OPTIONS * HTTP/1.1\r\n" HOST "\r\n", "OPTIONS *?(none) 1.1 keep [host=a] <> 0 left");
    expect("GET * HTTP/1.1\r\n" HOST "\r\n", "400");
}

static void test_http_connection_header_and_version_decide_on_keep_alive(void **state)
{
    (void)state;
    expect("GET / HTTP/1.1\r\n" HOST "Connection: x, Close\r\n\r\n",
           "GET /?(none) 1.1 close [host=a|connection=x, Close] <> 0 left");
    expect("GET / HTTP/1.0\r\n\r\n", "GET /?(none) 1.0 close [] <> 0 left");
    expect("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n",
           "GET /?(none) 1.0 keep [connection=Keep-Alive] <> 0 left");
}

static void test_http_expect_continue_is_noted_where_a_body_follows(void **state)
{
    (void)state;
    expect("POST / HTTP/1.1\r\n" HOST "Expect: 100-Continue\r\nContent-Length: 1\r\n\r\nx",
           "POST /?(none) 1.1 keep 100 [host=a|expect=100-Continue|content-length=1] <x> 0 left");
    expect("POST / HTTP/1.1\r\n" HOST "Expect: 100-continue\r\n\r\n",
           "POST /?(none) 1.1 keep [host=a|expect=100-continue] <> 0 left");
    expect("POST / HTTP/1.1\r\n" HOST "Expect: 200-ok\r\n\r\n", "417");
    expect("POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\nx",
           "POST /?(none) 1.0 close [expect=100-continue|content-length=1] <x> 0 left");
}

static void test_http_one_empty_line_before_a_request_is_skipped(void **state)
{
    (void)state;
    expect("\r\nGET / HTTP/1.1\r\n" HOST "\r\n", "GET /?(none) 1.1 keep [host=a] <> 0 left");
    expect("\r\n\r\nGET / HTTP/1.1\r\n" HOST "\r\n", "400");
    expect("\rGET / HTTP/1.1\r\n" HOST "\r\n", "400");
    expect("\nGET / HTTP/1.1\r\n" HOST "\r\n", "400");
}

/* ---- smuggling: what two programs could read differently ---- */

static void test_http_two_lengths_are_refused(void **state)
{
    (void)state;
    expect("POST / HTTP/1.1\r\n" HOST "Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc", "400");
    expect("POST / HTTP/1.1\r\n" HOST "Content-Length: 3\r\nContent-Length: 30\r\n\r\nabc", "400");
    expect("POST / HTTP/1.1\r\n" HOST "Content-Length: 3, 3\r\n\r\nabc", "400");
}

static void test_http_length_beside_chunked_is_refused(void **state)
{
    (void)state;
    expect("POST / HTTP/1.1\r\n" HOST "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
           "400");
    expect("POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n",
           "400");
    expect("POST / HTTP/1.1\r\n" HOST
           "Transfer-Encoding: gzip, chunked\r\nContent-Length: 3\r\n\r\n",
           "400");
}

static void test_http_length_that_is_not_digits_is_refused(void **state)
{
    (void)state;
    const char *const wrong[] = {"+3", "-1", "0x3", "3 ", "3;", "3 3", "", "three", "3.0", "\t"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char text[200];
        snprintf(text, sizeof text, "POST / HTTP/1.1\r\n" HOST "Content-Length: %s\r\n\r\nabc",
                 wrong[i]);
        if (strcmp(wrong[i], "3 ") == 0) /* spaces around a value are no part of it */
            expect(text, "POST /?(none) 1.1 keep [host=a|content-length=3] <abc> 0 left");
        else
            expect(text, "400");
    }
}

static void test_http_space_before_the_colon_is_refused(void **state)
{
    (void)state;
    expect("POST / HTTP/1.1\r\n" HOST "Content-Length : 3\r\n\r\nabc", "400");
    expect("POST / HTTP/1.1\r\n" HOST "Transfer-Encoding\t: chunked\r\n\r\n", "400");
}

static void test_http_other_transfer_encodings_are_refused(void **state)
{
    (void)state;
    const char *const wrong[] = {"xchunked",      "chunked, chunked", "identity",    "gzip",
                                 "gzip, chunked", "chunked;q=1",      "\"chunked\"", "",
                                 "chunked,"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char text[200];
        snprintf(text, sizeof text,
                 "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: %s\r\n\r\n0\r\n\r\n", wrong[i]);
        expect(text, "501");
    }
    expect("POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n"
           "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
           "400");
    expect("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "400");
    expect("POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: \x0b"
           "chunked\r\n\r\n",
           "400");
}

static void test_http_folded_lines_are_refused(void **state)
{
    (void)state;
    expect("GET / HTTP/1.1\r\n" HOST "X: y\r\n z\r\n\r\n", "400");
    expect("GET / HTTP/1.1\r\n" HOST "X: y\r\n\tz\r\n\r\n", "400");
    expect("GET / HTTP/1.1\r\n Host: a\r\n\r\n", "400");
}

static void test_http_bare_line_feeds_are_refused(void **state)
{
    (void)state;
    expect("GET / HTTP/1.1\nHost: a\r\n\r\n", "400");
    expect("GET / HTTP/1.1\r\nHost: a\n\r\n", "400");
    expect("GET / HTTP/1.1\r\nHost: a\r\n\n", "400");
    expect("POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n1\nx\r\n0\r\n\r\n", "400");
    expect("POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n1\r\nx\n0\r\n\r\n", "400");
    expect("POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n0\r\n\n", "400");
    expect("POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n0\r\nX: y\n\r\n", "400");
}

static void test_http_bare_carriage_returns_are_refused(void **state)
{
    (void)state;
    expect("GET / HTTP/1.1\r\nHost: a\rX: y\r\n\r\n", "400");
    expect("GET / HTTP/1.1\r\r\nHost: a\r\n\r\n", "400");
    expect("GET / HTTP/1.1\r\nHost: a\r\r\n\r\n", "400");
    expect("POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n1\rx", "400");
}

static void test_http_control_characters_in_headers_are_refused(void **state)
{
    (void)state;
    static const char in_value[] = "GET / HTTP/1.1\r\nHost: a\r\nX: y\0z\r\n\r\n";
    static const char in_name[] = "GET / HTTP/1.1\r\nHost: a\r\nX\0: y\r\n\r\n";
    expect_n(in_value, sizeof in_value - 1, &kLimits, "400");
    expect_n(in_name, sizeof in_name - 1, &kLimits, "400");
    expect("GET / HTTP/1.1\r\nHost: a\r\nX: \x01\r\n\r\n", "400");
    expect("GET / HTTP/1.1\r\nHost: a\r\nX: \x7f\r\n\r\n", "400");
    expect("GET / HTTP/1.1\r\nHost: a\r\nX\xc3\xa9: y\r\n\r\n", "400");
    expect("GET / HTTP/1.1\r\nHost: a\r\n: y\r\n\r\n", "400");
    expect("GET / HTTP/1.1\r\nHost: a\r\nno colon\r\n\r\n", "400");
    expect("GET / HTTP/1.1\r\nHost: a\r\n(x): y\r\n\r\n", "400");
}

static void test_http_other_than_one_host_is_refused(void **state)
{
    (void)state;
    expect("GET / HTTP/1.1\r\n\r\n", "400");
    expect("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", "400");
    expect("GET / HTTP/1.0\r\nHost: a\r\nhost: b\r\n\r\n", "400");
    expect("GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", "400");
    expect("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", "400");
    expect("GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n",
           "GET /?(none) 1.1 keep [host=[::1]:80] <> 0 left");
}

static void test_http_repeated_authorization_or_type_is_refused(void **state)
{
    (void)state;
    expect("GET / HTTP/1.1\r\n" HOST "Authorization: a\r\nAuthorization: b\r\n\r\n", "400");
    expect("GET / HTTP/1.1\r\n" HOST "Content-Type: a\r\nContent-Type: b\r\n\r\n", "400");
}

static void test_http_chunk_sizes_other_than_hex_digits_are_refused(void **state)
{
    (void)state;
    const char *const wrong[] = {"0x3",
                                 "-1",
                                 "+3",
                                 " 3",
                                 "3 ",
                                 "3;a=b",
                                 "",
                                 "g",
                                 "3,",
                                 "\t3",
                                 "3\t",
                                 ";",
                                 "00000000000000003"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char text[200];
        snprintf(text, sizeof text,
                 "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n%s\r\nabc\r\n",
                 wrong[i]);
        expect(text, "400");
    }
}

static void test_http_chunk_without_its_end_is_refused(void **state)
{
    (void)state;
    expect("POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n", "400");
    expect("POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n3\r\nabc0\r\n\r\n", "400");
}

static void test_http_wrong_trailers_are_refused(void **state)
{
    (void)state;
    expect("POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n0\r\nX : y\r\n\r\n",
           "400");
    expect("POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n0\r\nX: y\r\n z\r\n\r\n",
           "400");
    expect("POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n0\r\nGET / HTTP/1.1\r\n",
           "400");
}

/* ---- targets, methods, versions ---- */

static void test_http_paths_that_leave_their_folder_are_refused(void **state)
{
    (void)state;
    const char *const wrong[] = {"/..",       "/../x",    "/x/..",   "/./x",       "/x/.",
                                 "/%2e%2e/x", "/x/%2E/y", "/x%2f..", "/%2e%2e%2f", "/.%2e",
                                 "x",         "..",       ""};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char text[200];
        snprintf(text, sizeof text, "GET %s HTTP/1.1\r\n" HOST "\r\n", wrong[i]);
        expect(text, "400");
    }
}

static void test_http_paths_with_wrong_bytes_are_refused(void **state)
{
    (void)state;
    const char *const wrong[] = {"/%00",      "/%0d%0a", "/%7f", "/%",    "/%4",  "/%4g", "/%g4",
                                 "/\xc3\xa9", "/a#b",    "/%ff", "/\x01", "/%c3", "/\x7f"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char text[200];
        snprintf(text, sizeof text, "GET %s HTTP/1.1\r\n" HOST "\r\n", wrong[i]);
        expect(text, "400");
    }
    static const char in_path[] = "GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n";
    expect_n(in_path, sizeof in_path - 1, &kLimits, "400");
}

static void test_http_unknown_methods_are_501(void **state)
{
    (void)state;
    expect("BREW / HTTP/1.1\r\n" HOST "\r\n", "501");
    expect("get / HTTP/1.1\r\n" HOST "\r\n", "501");
    expect("CONNECT a:80 HTTP/1.1\r\n" HOST "\r\n", "501");
    expect("TRACE / HTTP/1.1\r\n" HOST "\r\n", "501");
    expect("G@T / HTTP/1.1\r\n" HOST "\r\n", "400");
}

static void test_http_other_versions_are_505(void **state)
{
    (void)state;
    expect("GET / HTTP/9.9\r\n" HOST "\r\n", "505");
    expect("GET / HTTP/1.2\r\n" HOST "\r\n", "505");
    expect("GET / HTTP/2.0\r\n" HOST "\r\n", "505");
    expect("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "505");
    expect("GET / HTTP/1.1 \r\n" HOST "\r\n", "400");
    expect("GET / http/1.1\r\n" HOST "\r\n", "400");
    expect("GET / HTTP/1.01\r\n" HOST "\r\n", "400");
    expect("GET / HTTP/11\r\n" HOST "\r\n", "400");
}

static void test_http_request_lines_of_other_shapes_are_refused(void **state)
{
    (void)state;
    expect("GET /\r\n" HOST "\r\n", "400");
    expect("GET\r\n" HOST "\r\n", "400");
    expect("GET  / HTTP/1.1\r\n" HOST "\r\n", "400");
    expect("GET /  HTTP/1.1\r\n" HOST "\r\n", "400");
    expect(" GET / HTTP/1.1\r\n" HOST "\r\n", "400");
    expect("GET\t/ HTTP/1.1\r\n" HOST "\r\n", "400");
    expect("GET / x HTTP/1.1\r\n" HOST "\r\n", "400");
}

static void test_http_tls_on_a_plain_port_is_refused_at_its_first_byte(void **state)
{
    (void)state;
    expect_n("\x16\x03\x01\x02", 4, &kLimits, "400");
    expect_n("\0", 1, &kLimits, "400");
}

/* ---- limits ---- */

static void test_http_long_request_line_is_414(void **state)
{
    (void)state;
    char text[400] = "GET /";
    memset(text + 5, 'x', 200); /* no end of line: refused before it comes */
    expect_n(text, 200, &kLimits, "414");
    snprintf(text + 112, sizeof text - 112, " HTTP/1.1\r\n" HOST "\r\n"); /* 123 bytes */
    outcome o;
    feed(text, strlen(text), 1, 1, &kLimits, &o);
    assert_memory_equal(o.text, "GET /xxx", 8);
}

static void test_http_long_head_is_431(void **state)
{
    (void)state;
    char text[2200] = "GET / HTTP/1.1\r\nX: ";
    memset(text + 19, 'x', 2000);
    expect_n(text, 1100, &kLimits, "431");
    char many[1000] = "GET / HTTP/1.1\r\n";
    for (int i = 0; i < 21; i++)
        snprintf(many + strlen(many), sizeof many - strlen(many), "X%d: y\r\n", i);
    expect(many, "431");
}

static void test_http_long_body_is_413_before_it_comes(void **state)
{
    (void)state;
    expect("POST / HTTP/1.1\r\n" HOST "Content-Length: 65\r\n\r\n", "413");
    expect("POST / HTTP/1.1\r\n" HOST "Content-Length: 18446744073709551616\r\n\r\n", "413");
    expect("POST / HTTP/1.1\r\n" HOST "Content-Length: 99999999999999999999999999\r\n\r\n", "413");
    expect("POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n41\r\n", "413");
    expect("POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
           "413");
    expect("POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n"
           "20\r\n01234567890123456789012345678901\r\n21\r\n",
           "413");
}

static void test_http_long_trailers_are_431(void **state)
{
    (void)state;
    char text[2400] = "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n0\r\n";
    size_t at = strlen(text);
    for (int i = 0; i < 19; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "X%d: y\r\n", i);
    expect(text, "431"); /* one header too many, all taken together */
    snprintf(text + at, sizeof text - at, "X: ");
    memset(text + at + 3, 'x', 1100);
    text[at + 1103] = '\0';
    expect_n(text, strlen(text), &kLimits, "431");
}

static void test_http_body_of_a_claimed_length_takes_no_memory(void **state)
{
    (void)state;
    vt_http_limits large = kLimits;
    large.body = (size_t)1 << 40;
    vt_http_reader *r = NULL;
    size_t used;
    assert_int_equal(vt_http_reader_new(&large, &r, NULL), VT_OK);
    const char *text = "POST / HTTP/1.1\r\n" HOST "Content-Length: 1099511627776\r\n\r\nabc";
    assert_int_equal(vt_http_reader_feed(r, text, strlen(text), &used), VT_HTTP_BODY);
    assert_int_equal(vt_http_reader_request(r)->body_len, 3);
    vt_http_reader_free(r);
}

static void test_http_limits_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    vt_http_limits wrong = kLimits;
    vt_http_reader *r = NULL;
    vt_err err;
    wrong.head = wrong.line - 1;
    assert_int_equal(vt_http_reader_new(&wrong, &r, &err), VT_ERR_USAGE);
    assert_null(r);
    assert_non_null(strstr(err.message, "head 127"));
}

/* ---- several requests ---- */

static void test_http_reader_reads_request_after_request(void **state)
{
    (void)state;
    const char *text = "POST /1 HTTP/1.1\r\n" HOST "Content-Length: 2\r\n\r\nab"
                       "\r\nGET /2?q HTTP/1.1\r\nHost: b\r\nA: 1\r\nB: 2\r\n\r\n"
                       "POST /3 HTTP/1.1\r\nHost: c\r\nTransfer-Encoding: chunked\r\n\r\n"
                       "1\r\nx\r\n0\r\nT: u\r\n\r\nGET /4 HTTP/1.0\r\n\r\n";
    const char *const want[] = {"/1", "/2", "/3", "/4"}, *const body[] = {"ab", "", "x", ""};
    const int32_t n_headers[] = {2, 3, 2, 0};
    vt_http_reader *r = NULL;
    size_t at = 0, used;
    assert_int_equal(vt_http_reader_new(&kLimits, &r, NULL), VT_OK);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(vt_http_reader_feed(r, text + at, strlen(text + at), &used), VT_HTTP_DONE);
        at += used;
        const vt_http_request *q = vt_http_reader_request(r);
        assert_string_equal(q->path, want[i]);
        assert_string_equal(q->body, body[i]);
        assert_int_equal(q->n_headers, n_headers[i]);
        assert_int_equal(q->query != NULL, i == 1);
        vt_http_reader_next(r);
    }
    assert_int_equal(at, strlen(text));
    vt_http_reader_free(r);
}

static void test_http_find_and_dropped_body(void **state)
{
    (void)state;
    const char *text = "POST / HTTP/1.1\r\n" HOST "X: 1\r\nX: 2\r\nContent-Length: 2\r\n\r\nab";
    vt_http_reader *r = NULL;
    size_t used;
    assert_int_equal(vt_http_reader_new(&kLimits, &r, NULL), VT_OK);
    assert_int_equal(vt_http_reader_feed(r, text, strlen(text), &used), VT_HTTP_DONE);
    const vt_http_request *q = vt_http_reader_request(r);
    assert_string_equal(vt_http_find(q, "x"), "1");
    assert_null(vt_http_find(q, "y"));
    vt_http_reader_drop_body(r);
    assert_int_equal(q->body_len, 0);
    assert_string_equal(q->body, "");
    assert_string_equal(q->path, "/");
    vt_http_reader_free(r);
}

static void test_http_reasons(void **state)
{
    (void)state;
    assert_string_equal(vt_http_reason(404), "Not Found");
    assert_string_equal(vt_http_reason(431), "Request Header Fields Too Large");
    assert_string_equal(vt_http_reason(799), "Unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_http_get_is_read),
        cmocka_unit_test(test_http_query_is_not_decoded),
        cmocka_unit_test(test_http_body_of_length_is_read),
        cmocka_unit_test(test_http_chunked_body_is_put_together),
        cmocka_unit_test(test_http_trailers_are_dropped),
        cmocka_unit_test(test_http_post_without_length_has_no_body),
        cmocka_unit_test(test_http_pipelined_request_is_left_alone),
        cmocka_unit_test(test_http_header_names_become_lower_case_and_values_are_trimmed),
        cmocka_unit_test(test_http_path_is_decoded),
        cmocka_unit_test(test_http_absolute_target_is_accepted_if_its_host_is_the_host),
        cmocka_unit_test(test_http_options_of_the_server_is_accepted),
        cmocka_unit_test(test_http_connection_header_and_version_decide_on_keep_alive),
        cmocka_unit_test(test_http_expect_continue_is_noted_where_a_body_follows),
        cmocka_unit_test(test_http_one_empty_line_before_a_request_is_skipped),
        cmocka_unit_test(test_http_two_lengths_are_refused),
        cmocka_unit_test(test_http_length_beside_chunked_is_refused),
        cmocka_unit_test(test_http_length_that_is_not_digits_is_refused),
        cmocka_unit_test(test_http_space_before_the_colon_is_refused),
        cmocka_unit_test(test_http_other_transfer_encodings_are_refused),
        cmocka_unit_test(test_http_folded_lines_are_refused),
        cmocka_unit_test(test_http_bare_line_feeds_are_refused),
        cmocka_unit_test(test_http_bare_carriage_returns_are_refused),
        cmocka_unit_test(test_http_control_characters_in_headers_are_refused),
        cmocka_unit_test(test_http_other_than_one_host_is_refused),
        cmocka_unit_test(test_http_repeated_authorization_or_type_is_refused),
        cmocka_unit_test(test_http_chunk_sizes_other_than_hex_digits_are_refused),
        cmocka_unit_test(test_http_chunk_without_its_end_is_refused),
        cmocka_unit_test(test_http_wrong_trailers_are_refused),
        cmocka_unit_test(test_http_paths_that_leave_their_folder_are_refused),
        cmocka_unit_test(test_http_paths_with_wrong_bytes_are_refused),
        cmocka_unit_test(test_http_unknown_methods_are_501),
        cmocka_unit_test(test_http_other_versions_are_505),
        cmocka_unit_test(test_http_request_lines_of_other_shapes_are_refused),
        cmocka_unit_test(test_http_tls_on_a_plain_port_is_refused_at_its_first_byte),
        cmocka_unit_test(test_http_long_request_line_is_414),
        cmocka_unit_test(test_http_long_head_is_431),
        cmocka_unit_test(test_http_long_body_is_413_before_it_comes),
        cmocka_unit_test(test_http_long_trailers_are_431),
        cmocka_unit_test(test_http_body_of_a_claimed_length_takes_no_memory),
        cmocka_unit_test(test_http_limits_that_make_no_sense_are_refused),
        cmocka_unit_test(test_http_reader_reads_request_after_request),
        cmocka_unit_test(test_http_find_and_dropped_body),
        cmocka_unit_test(test_http_reasons),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
