/* Text and stop strings of one completion (engine/stream.h), without an engine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "engine/stream.h"

static vt_tokenizer *tokenizer;

static int open_tokenizer(void **state)
{
    (void)state;
    return vt_tokenizer_synthetic(512, &tokenizer, NULL) == VT_OK ? 0 : -1;
}

static int close_tokenizer(void **state)
{
    (void)state;
    vt_tokenizer_free(tokenizer);
    return 0;
}

/* The first token of the vocabulary whose text has at least `len` bytes. */
static int32_t long_token(size_t len, vt_buf *text)
{
    for (int32_t id = 256; id < 512; id++) {
        vt_buf_clear(text);
        if (vt_tokenizer_piece(tokenizer, id, text) && text->len >= len &&
            !vt_tokenizer_is_special(tokenizer, id))
            return id;
    }
    fail_msg("no token of %zu bytes", len);
    return -1;
}

static void test_stream_when_two_stops_lie_in_one_token_then_the_earlier_one_wins(void **state)
{
    (void)state;
    vt_buf text;
    vt_buf_init(&text, 0);
    int32_t id = long_token(4, &text);
    char early[2] = {text.data[1], 0}, late[2] = {text.data[3], 0};
    assert_int_not_equal(early[0], late[0]);
    for (int turn = 0; turn < 2; turn++) { /* in both orders */
        const char *stops[] = {turn ? early : late, turn ? late : early};
        vt_stream s;
        assert_int_equal(vt_stream_init(&s, tokenizer, stops, 2, 0, false, NULL), VT_OK);
        assert_true(vt_stream_feed(&s, id));
        size_t first = (size_t)((char *)memchr(text.data, early[0], text.len) - text.data);
        assert_int_equal(s.ready, first);
        assert_memory_equal(s.held.data, text.data, first);
        vt_stream_release(&s);
    }
    vt_buf_release(&text);
}

/* A character that is never completed is published as U+FFFD when no more ids come. Only then is
 * the stop string complete. */
static void test_stream_when_the_end_completes_a_stop_then_it_is_found(void **state)
{
    (void)state;
    vt_ids ids = {0};
    static const char *const stops[] = {"\xef\xbf\xbd"};
    vt_stream s;
    assert_int_equal(vt_tokenizer_encode(tokenizer, "a\xe2\x82\xac", 4, 0, &ids, NULL), VT_OK);
    assert_true(ids.n == 4); /* a byte a token */
    assert_int_equal(vt_stream_init(&s, tokenizer, stops, 1, 0, false, NULL), VT_OK);
    assert_false(vt_stream_feed(&s, ids.id[0]));
    assert_false(vt_stream_feed(&s, ids.id[1]));
    assert_true(vt_stream_finish(&s));
    assert_true(s.stopped);
    assert_int_equal(s.ready, 1);
    assert_memory_equal(s.held.data, "a", 1);
    vt_stream_release(&s);
    vt_ids_release(&ids);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stream_when_two_stops_lie_in_one_token_then_the_earlier_one_wins),
        cmocka_unit_test(test_stream_when_the_end_completes_a_stop_then_it_is_found),
    };
    return cmocka_run_group_tests(tests, open_tokenizer, close_tokenizer);
}
