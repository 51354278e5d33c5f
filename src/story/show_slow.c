/* The slow tokens of a story.json in the terminal. The JSON may come from a file of unknown
 * origin. */
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "story/show.h"

enum { SHOWN = 4, TEXT = 160 };

static double num(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    if (json_is_object(v))
        v = json_object_get(v, "value");
    return json_is_number(v) ? json_number_value(v) : NAN;
}

/* "slow tokens: 41 (9.10 ms): a chunk of request 21 (512 tokens) in step 58; ...; 2 not known" */
void story_show_slow(const json_t *story, const vt_term *term, vt_buf *out)
{
    const json_t *s = json_object_get(story, "slow_tokens");
    size_t i, shown = 0;
    json_t *t;
    vt_buf line = {0};
    if (!(num(s, "count") > 0))
        return;
    vt_buf_puts(&line, "slow tokens: ");
    json_array_foreach(json_object_get(s, "tokens"), i, t)
    {
        const char *cause = json_string_value(json_object_get(t, "cause")),
                   *why = json_string_value(json_object_get(t, "text"));
        char text[TEXT] = "";
        if (!cause || !why || strcmp(cause, "unknown") == 0 || shown == SHOWN)
            continue;
        memcpy(text, why, strnlen(why, TEXT - 1));
        vt_text_clean_line(text);
        vt_buf_printf(&line, "%s%.0f (", shown++ ? "; " : "", num(t, "token"));
        vt_text_time(&line, num(t, "ms") * 1e-3);
        vt_buf_printf(&line, "): %s", text);
    }
    double more = num(s, "count") - num(s, "not_known") - (double)shown;
    if (more > 0)
        vt_buf_printf(&line, "; %.0f more with a known cause", more);
    if (num(s, "not_known") > 0)
        vt_buf_printf(&line, "%s%.0f not known", shown ? "; " : "", num(s, "not_known"));
    vt_buf_putc(out, ' ');
    vt_text_wrap(out, line.data ? line.data : "", 3, term->width);
    vt_buf_putc(out, '\n');
    vt_buf_release(&line);
}
