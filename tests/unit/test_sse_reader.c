/* The reader of server-sent events: each answer is fed whole, cut in two at every byte, and byte by
 * byte, and all must tell the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/http/sse_reader.h"

#define HEAD "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
#define CHUNKED "Transfer-Encoding: chunked\r\n\r\n"

static void on_event(void *user, const char *data, size_t len)
{
    assert_int_equal(data[len], '\0');
    vt_buf_printf(user, "<%s>", data);
}

/* Feeds the answer in a piece of `first` bytes and pieces of `piece`, and writes down what was
 * told. */
static void feed(const char *answer, size_t first, size_t piece, vt_buf *told)
{
    vt_sse_reader r;
    vt_err err = {0};
    vt_status status = VT_OK;
    size_t len = strlen(answer);
    vt_sse_reader_init(&r, 64);
    for (size_t at = 0, n; at < len && status == VT_OK; at += n) {
        n = at == 0 && first ? first : piece;
        n = n < len - at ? n : len - at;
        char *copy = malloc(n);
        memcpy(copy, answer + at, n);
        status = vt_sse_reader_feed(&r, copy, n, on_event, told, &err);
        free(copy);
    }
    vt_buf_printf(told, " %d%s %s%s", r.status, r.ended ? " ended" : "",
                  r.body.data ? r.body.data : "", err.message);
    vt_sse_reader_release(&r);
}

static void expect(const char *answer, const char *wanted)
{
    for (size_t first = 0; first < strlen(answer); first++) {
        vt_buf told = {0};
        feed(answer, first, first ? 4096 : 1, &told);
        assert_string_equal(told.data, wanted);
        vt_buf_release(&told);
    }
}

static void test_events_in_chunks_are_told_however_they_are_cut(void **state)
{
    (void)state;
    expect(HEAD CHUNKED "d\r\ndata: one\n\nda\r\n9\r\nta: two\n\n\r\n0\r\n\r\n",
           "<one><two> 200 ended ");
}

static void test_events_until_the_connection_ends_are_told(void **state)
{
    (void)state;
    expect(HEAD "\r\ndata:one\r\n\r\n: a comment\nevent: x\ndata: two\n\ndata: half",
           "<one><two> 200 ");
}

static void test_lines_of_data_are_joined_and_empty_events_left_out(void **state)
{
    (void)state;
    expect(HEAD "\r\n\n\ndata: a\ndata: b\nid: 7\n\nretry: 1\n\n", "<a\nb> 200 ");
}

static void test_an_error_keeps_its_body(void **state)
{
    (void)state;
    expect("HTTP/1.1 401 Unauthorized\r\nContent-Type: application/json\r\n\r\n{\"a\":1}",
           " 401 {\"a\":1}");
}

static void test_what_is_no_such_answer_is_refused(void **state)
{
    (void)state;
    expect("SSH-2.0-x\r\n", " 0 the answer does not begin as HTTP/1.1 does");
    expect(HEAD CHUNKED "zz\r\n", " 200 the size of a chunk is 'zz', expected hex digits");
    expect(HEAD CHUNKED "fffffffff\r\n",
           " 200 the size of a chunk is 'fffffffff', expected hex digits");
    expect(HEAD CHUNKED "1\r\nab\r\n", " 200 a chunk is longer than its size says");
}

static void test_an_event_beyond_the_limit_is_refused(void **state)
{
    (void)state;
    expect(HEAD "\r\ndata: 0123456789012345678901234567890123456789012345678901234567890123\n\n",
           " 200 an event is longer than 64 bytes");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_events_in_chunks_are_told_however_they_are_cut),
        cmocka_unit_test(test_events_until_the_connection_ends_are_told),
        cmocka_unit_test(test_lines_of_data_are_joined_and_empty_events_left_out),
        cmocka_unit_test(test_an_error_keeps_its_body),
        cmocka_unit_test(test_what_is_no_such_answer_is_refused),
        cmocka_unit_test(test_an_event_beyond_the_limit_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
