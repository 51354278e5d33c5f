/* Any bytes as a story.json: rendering fails with a message, or gives text for a terminal that
 * holds no control character but newlines. */
#include <stdint.h>
#include <stdlib.h>

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
    for (size_t i = 0; i < out.len; i++) {
        unsigned char c = (unsigned char)out.data[i];
        if ((c < 0x20 && c != '\n') || c == 0x7f)
            abort();
    }
    vt_buf_release(&out);
    return 0;
}
