/* How a row cuts its work, in words (story/cut.h). */
#include "story/cut.h"

#include <string.h>

#include "ops/cut.h"

/* Appends a row's text, with the plural's ending dropped behind a lone 1: "1 rows of 576". */
static void put_shape(vt_buf *b, const char *text)
{
    bool one = false;
    for (const char *s = text; *s;) {
        size_t n = strcspn(s, " "), gap = strspn(s + n, " ");
        size_t word = n - (n > 1 && s[n - 1] == ',');
        bool plural = one && word > 1 && s[word - 1] == 's';
        vt_buf_add(b, s, word - plural);
        vt_buf_add(b, s + word, n - word + gap);
        one = n == 1 && *s == '1';
        s += n + gap;
    }
}

void story_put_cut(vt_buf *b, const vt_cut *cut)
{
    if (*cut->shape) {
        vt_buf_puts(b, ", ");
        put_shape(b, cut->shape);
    }
    if (cut->tile[0] && cut->tile[2])
        vt_buf_printf(b, ", tiles of %d x %d x %d", cut->tile[0], cut->tile[1], cut->tile[2]);
    else if (cut->tile[0] && cut->tile[1])
        vt_buf_printf(b, ", tiles of %d x %d", cut->tile[0], cut->tile[1]);
    else if (cut->tile[0])
        vt_buf_printf(b, ", tiles of %d", cut->tile[0]);
    if (cut->split > 1)
        vt_buf_printf(b, ", reduction split in %d", cut->split);
    if (cut->items)
        vt_buf_printf(b, ", %lld item%s", (long long)cut->items, cut->items == 1 ? "" : "s");
    if (cut->items && cut->workers)
        vt_buf_printf(b, " over %d", cut->workers);
    if (cut->resident > 1)
        vt_buf_printf(b, " x %d resident", cut->resident);
    if (cut->waves > 0)
        vt_buf_printf(b, ": %.2f waves", cut->waves);
    if (cut->vector_bytes)
        vt_buf_printf(b, ", loads of %d bytes", cut->vector_bytes);
    if (*cut->roles)
        vt_buf_printf(b, ", %s", cut->roles);
    if (*cut->merge)
        vt_buf_printf(b, ", merged by %s", cut->merge);
}

bool story_cut_of(const story_step *s, int32_t call, vt_cut *out)
{
    const vt_program *p = story_step_program(s);
    const vt_impl *impl = story_step_impl(s, call);
    *out = (vt_cut){0};
    if (!impl || !impl->describe)
        return false;
    impl->describe(p->call[call].args, &p->target, story_step_size(s), out);
    if (impl->plan && impl->plan->items) {
        /* describe() says what a plan of this size makes for any lengths */
        vt_size size = *story_step_size(s);
        size.bucket = false;
        const void *args = p->call[call].args;
        int32_t most = impl->plan->items(args, &p->target, &size, NULL),
                made = impl->plan->items(args, &p->target, &size, story_step_batch(s));
        vt_cut_planned(out, made, most);
    }
    return true;
}

void story_describe_call(vt_buf *b, const story_step *s, int32_t call)
{
    vt_cut cut;
    vt_buf text = {0};
    if (!story_cut_of(s, call, &cut))
        return;
    story_put_cut(&text, &cut);
    if (text.len > 2)
        vt_buf_puts(b, text.data + 2);
    b->failed |= text.failed;
    vt_buf_release(&text);
}
