/* Any bytes as a story.json: each form that is made of it fails with a message, or gives UTF-8. The
 * forms for a terminal hold no control character but newlines: none of C0, DEL or C1, no mark of
 * direction. */
#include <stdint.h>
#include <stdlib.h>

#include "base/term.h"
#include "base/utf8.h"
#include "story/forms.h"
#include "story/story.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(vt_status status, const vt_err *err, vt_buf *out, bool terminal)
{
    if (status != VT_OK && !err->message[0])
        abort();
    if (vt_utf8_valid(out->data ? out->data : "", out->len) != out->len)
        abort();
    for (size_t i = 0; terminal && i < out->len;) {
        uint32_t c;
        i += (size_t)vt_utf8_next(out->data + i, &c);
        if (c == '\t' || vt_text_is_control(c))
            abort();
    }
    vt_buf_release(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *json = (const char *)data;
    vt_term term = {.width = size % 2 ? VT_TERM_WIDTH : 80};
    story_file f = {"fuzz", json, size};
    story_diff_options o = {.fail_over = 0.03};
    vt_buf out = {0};
    vt_err err = {0};
    check(story_render("fuzz", json, size, &term, &out, &err), &err, &out, true);
    for (int k = STORY_LEVEL_TOKEN; k <= STORY_LEVEL_OP; k++) {
        story_level level = {.kind = (story_level_kind)k, .number = size % 4, .op = "linear.qkv"};
        check(story_render_level("fuzz", json, size, &level, &term, &out, &err), &err, &out, true);
    }
    check(story_export_chrome("fuzz", json, size, &out, &err), &err, &out, false);
    check(story_diff(&f, &f, &o, &term, &out, &err), &err, &out, true);
    o.step[0] = 1;
    o.step[1] = 2;
    check(story_diff(&f, &f, &o, &term, &out, &err), &err, &out, true);
    return 0;
}
