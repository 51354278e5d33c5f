/* Any bytes as a story.json: rendering fails with a message, or gives UTF-8 for a terminal that
 * holds no control character but newlines: none of C0, DEL or C1, no mark of direction. */
#include <stdint.h>
#include <stdlib.h>

#include "base/term.h"
#include "base/utf8.h"
#include "story/story.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    vt_buf out = {0};
    vt_err err = {0};
    vt_term term = {.width = VT_TERM_WIDTH};
    if (story_render("fuzz", (const char *)data, size, &term, &out, &err) != VT_OK &&
        !err.message[0])
        abort();
    for (int k = STORY_LEVEL_TOKEN; k <= STORY_LEVEL_OP; k++) {
        story_level level = {.kind = (story_level_kind)k, .number = size % 4, .op = "linear.qkv"};
        err.message[0] = '\0';
        if (story_render_level("fuzz", (const char *)data, size, &level, &term, &out, &err) !=
                VT_OK &&
            !err.message[0])
            abort();
    }
    if (vt_utf8_valid(out.data ? out.data : "", out.len) != out.len)
        abort();
    for (size_t i = 0; i < out.len;) {
        uint32_t c;
        i += (size_t)vt_utf8_next(out.data + i, &c);
        if (c == '\t' || vt_text_is_control(c))
            abort();
    }
    vt_buf_release(&out);
    return 0;
}
