/* Every form that is made of a story.json, for tests that give hostile ones: a form fails with a
 * message, or gives UTF-8. The forms for a terminal hold no control character but newlines: none of
 * C0, DEL or C1, no mark of direction. What breaks this ends the program. */
#ifndef STORY_FORMS_H
#define STORY_FORMS_H

#include <stdint.h>
#include <stdlib.h>

#include "base/term/term.h"
#include "base/utf8.h"
#include "story/forms.h"
#include "story/story.h"

static void check_form(vt_status status, const vt_err *err, vt_buf *out, bool terminal)
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

/* `number`: of the token, the step and the layer that are shown. `op`: the op that is shown. */
static void check_story_forms(const char *json, size_t len, int32_t width, int64_t number,
                              const char *op)
{
    vt_term term = {.width = width};
    story_file f = {"fuzz", json, len};
    vt_buf out = {0};
    vt_err err = {0};
    check_form(story_render("fuzz", json, len, &term, &out, &err), &err, &out, true);
    for (int k = STORY_LEVEL_TOKEN; k <= STORY_LEVEL_OP; k++) {
        story_level level = {.kind = (story_level_kind)k, .number = number, .op = op};
        check_form(story_render_level("fuzz", json, len, &level, &term, &out, &err), &err, &out,
                   true);
    }
    check_form(story_html(&f, &out, &err), &err, &out, false);
    for (const char *const *to = (const char *const[]){"chrome", "speedscope", "folded", NULL}; *to;
         to++)
        check_form(story_export(&f, *to, &out, &err), &err, &out, false);
    (void)story_export(&f, "pftrace", &out,
                       &err); /* binary: tests/cli/test_story_forms.py reads it */
    vt_buf_release(&out);
    for (int k = 0; k < 4; k++) {
        story_diff_options o = {.fail_over = 0.03, .markdown = k % 2 == 1};
        for (int i = 0; i < 2 && k > 1; i++)
            o.step[i] = (uint64_t)(number + i);
        check_form(story_diff(&f, &f, &o, &term, &out, &err), &err, &out, true);
    }
}

#endif
