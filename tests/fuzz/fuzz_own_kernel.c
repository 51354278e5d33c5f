/* The report of a kernel's process (own_kernel.h): whatever bytes that process has left in it,
 * the card has lines of at most 100 columns and no control characters, and the JSON is
 * well-formed. */
#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lab/kernel/own_kernel.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_card(const own_kernel_report *r)
{
    vt_term term = {.width = VT_TERM_WIDTH};
    vt_buf card = {0};
    own_kernel_card(r, &term, &card);
    for (size_t at = 0; at < card.len;) {
        const char *line = card.data + at, *end = memchr(line, '\n', card.len - at);
        size_t n = end ? (size_t)(end - line) : card.len - at;
        if (vt_text_width(line, n) > VT_TERM_WIDTH || memchr(line, '\x1b', n))
            abort();
        at += n + 1;
    }
    vt_buf_release(&card);
}

static void check_json(const own_kernel_report *r)
{
    vt_json w;
    vt_buf text = {0};
    vt_json_begin(&w, &text, -1);
    vt_json_open(&w, NULL, '{');
    own_kernel_json(r, &w);
    vt_json_close(&w);
    if (vt_json_end(&w)) {
        json_t *parsed = json_loadb(text.data, text.len, 0, NULL);
        if (!parsed)
            abort();
        json_decref(parsed);
    }
    vt_buf_release(&text);
}

/* The bytes are written over the report again and again: a short input reaches every field. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    own_kernel_report *r = calloc(1, sizeof *r);
    if (!r || size == 0) {
        free(r);
        return 0;
    }
    for (size_t at = 0; at < sizeof *r; at += size)
        memcpy((char *)r + at, data, size < sizeof *r - at ? size : sizeof *r - at);
    r->n_cases = (int32_t)(data[0] % (OWN_KERNEL_CASES + 2));
    r->n_rows = (int32_t)(data[size - 1] % (OWN_KERNEL_ROWS + 2));
    own_kernel_tidy(r);
    check_card(r);
    check_json(r);
    free(r);
    return 0;
}
