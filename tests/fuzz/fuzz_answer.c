/* Answers of a model: the first byte says in which form calls are read and where reasoning may
 * stand, the second how the bytes are split. Whatever the bytes, pieces add up to the same however
 * they come, and the arguments of a call are a JSON object. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "text/answer/answer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds)
{
    if (!holds)
        abort();
}

/* The pieces so far: a mark for each piece of another kind, or call, and the bytes. */
typedef struct heard {
    vt_buf text;
    int last;
} heard;

static void take(void *user, vt_piece_kind kind, const char *bytes, size_t n)
{
    heard *h = user;
    if (kind == VT_PIECE_ARGUMENTS) {
        json_t *object = json_loadb(bytes, n, JSON_ALLOW_NUL, NULL);
        must(json_is_object(object) && h->last == VT_PIECE_CALL);
        json_decref(object);
    }
    must(kind != VT_PIECE_CALL || n > 0);
    if ((int)kind != h->last || kind == VT_PIECE_CALL)
        vt_buf_printf(&h->text, "\001%d", (int)kind);
    h->last = (int)kind;
    vt_buf_add(&h->text, bytes, n);
}

static void read_answer(const uint8_t *data, size_t size, size_t step, const json_t *tools,
                        heard *h)
{
    vt_answer_reader r = {.form = data[0] % VT_CALL_FORMS,
                          .reasons = data[0] & 64,
                          .began_inside = data[0] & 128,
                          .tools = tools,
                          .take = take,
                          .user = h};
    vt_answer_begin(&r);
    for (size_t at = 2; at < size; at += step)
        vt_answer_feed(&r, (const char *)data + at, size - at < step ? size - at : step);
    vt_answer_end(&r);
    must(!r.failed);
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
    return 0;
}
