/* Answers of models: the first byte says in which form calls are read, the second how reasoning is
 * marked and how the bytes are split. Whatever the bytes, pieces add up to the same however they
 * come, calls begin and end in turn, and the arguments of a whole call are a JSON object. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/answer/answer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds)
{
    if (!holds)
        abort();
}

/* The pieces so far: a mark for each piece of another kind, or call, and the bytes. */
typedef struct heard {
    vt_buf text, arguments;
    int last;
    bool in_call;
} heard;

/* Numbers beyond what jansson holds are JSON too, and bytes that are no UTF-8 are passed on. */
static void must_be_object(const vt_buf *b)
{
    json_error_t why;
    json_t *object = json_loadb(b->data, b->len, JSON_ALLOW_NUL, &why);
    bool other = !object && (json_error_code(&why) == json_error_numeric_overflow ||
                             vt_utf8_valid(b->data, b->len) != b->len);
    must(other || json_is_object(object));
    json_decref(object);
}

static void take(void *user, vt_piece_kind kind, const char *bytes, size_t n)
{
    heard *h = user;
    bool ends = kind == VT_PIECE_CALL_END || kind == VT_PIECE_CALL_BROKEN;
    must(h->in_call == (ends || kind == VT_PIECE_ARGUMENTS));
    must(ends == (n == 0));
    if (kind == VT_PIECE_CALL)
        vt_buf_clear(&h->arguments);
    if (kind == VT_PIECE_ARGUMENTS)
        vt_buf_add(&h->arguments, bytes, n);
    if (kind == VT_PIECE_CALL_END)
        must_be_object(&h->arguments);
    h->in_call = (h->in_call || kind == VT_PIECE_CALL) && !ends;
    if ((int)kind != h->last || kind == VT_PIECE_CALL)
        vt_buf_printf(&h->text, "\001%d", (int)kind);
    h->last = (int)kind;
    vt_buf_add(&h->text, bytes, n);
}

static void read_answer(const uint8_t *data, size_t size, size_t step, const json_t *tools,
                        heard *h)
{
    vt_answer_reader r = {.form = data[0] % 64 % VT_CALL_FORMS,
                          .calls = !(data[0] & 64),
                          .thoughts = data[1] / 16 % VT_THOUGHT_FORMS,
                          .began_inside = data[0] & 128,
                          .tools = tools,
                          .take = take,
                          .user = h};
    vt_answer_begin(&r);
    for (size_t at = 2; at < size; at += step)
        vt_answer_feed(&r, (const char *)data + at, size - at < step ? size - at : step);
    vt_answer_end(&r);
    must(!r.failed && !h->in_call);
    vt_answer_release(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char text[] = "[{\"type\":\"function\",\"function\":{\"name\":\"f\","
                               "\"parameters\":{\"properties\":{\"s\":{"
                               "\"type\":\"string\"},\"n\":{\"type\":\"number\"}}}}}]";
    static json_t *tools;
    if (!tools)
        tools = json_loads(text, 0, NULL);
    if (size < 2)
        return 0;
    heard whole = {.last = -1}, split = {.last = -1};
    read_answer(data, size, size, tools, &whole);
    read_answer(data, size, 1 + data[1] % 16, tools, &split);
    must(whole.text.len == split.text.len);
    must(whole.text.len == 0 || memcmp(whole.text.data, split.text.data, whole.text.len) == 0);
    vt_buf_release(&whole.text);
    vt_buf_release(&split.text);
    vt_buf_release(&whole.arguments);
    vt_buf_release(&split.arguments);
    return 0;
}
