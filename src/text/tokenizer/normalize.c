/* Normalizers: rewriting a text before it is cut into words.
 *
 * Steps alternate between two buffers. A step that would change nothing is seen before it copies
 * anything, so text that is in NFC already (nearly all of it) passes at the speed of the check.
 */
#include <string.h>

#include "text/tokenizer/tokenizer_internal.h"

static size_t trim_left(const char *s, size_t n)
{
    size_t i = 0;
    while (i < n) {
        uint32_t c;
        int step = vt_utf8_next(s + i, &c);
        if (!(vt_uprop_of(c).flags & VT_U_SPACE))
            break;
        i += (size_t)step;
    }
    return i;
}

static size_t trim_right(const char *s, size_t n)
{
    while (n > 0) {
        size_t at = n - 1;
        uint32_t c;
        while (at > 0 && ((unsigned char)s[at] & 0xC0) == 0x80)
            at--;
        vt_utf8_next(s + at, &c);
        if (!(vt_uprop_of(c).flags & VT_U_SPACE))
            break;
        n = at;
    }
    return n;
}

static bool strip_accents(vt_buf *out, const char *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        uint32_t c;
        size_t step = (size_t)vt_utf8_next(s + i, &c);
        if (!(vt_uprop_of(c).flags & VT_U_ACCENT) && !vt_buf_add(out, s + i, step))
            return false;
        i += step;
    }
    return true;
}

/* 1 replaced, 0 nothing to replace, -1 failed. */
static int replace(const norm_step *step, vt_regex_scratch *scratch, const char *s, size_t n,
                   vt_buf *out)
{
    size_t from = 0, done = 0, start = 0, end = 0;
    bool any = false;
    while (from <= n) {
        if (step->regex) {
            int found = vt_regex_find(step->regex, scratch, s, n, from, &start, &end);
            if (found < 0)
                return -1;
            if (!found)
                break;
        } else {
            const char *at = step->pattern_len
                                 ? memmem(s + from, n - from, step->pattern, step->pattern_len)
                                 : NULL;
            if (!at)
                break;
            start = (size_t)(at - s);
            end = start + step->pattern_len;
        }
        uint32_t c;
        from = end > start ? end : end < n ? end + (size_t)vt_utf8_next(s + end, &c) : n + 1;
        if (start == end && any && done == start)
            continue;
        any = true;
        vt_buf_add(out, s + done, start - done);
        vt_buf_add(out, step->content, step->content_len);
        done = end;
    }
    if (any)
        vt_buf_add(out, s + done, n - done);
    return out->failed ? -1 : any;
}

/* 1: out holds the result; 0: the text stays as it is (or *text, *n were narrowed); -1: failed. */
static int apply(const norm_step *step, vt_regex_scratch *scratch, const char **text, size_t *n,
                 vt_buf *out)
{
    switch (step->kind) {
    case NORM_FORM:
        if (vt_unicode_is_normal(*text, *n, step->form))
            return 0;
        return vt_unicode_normalize(out, *text, *n, step->form) ? 1 : -1;
    case NORM_LOWER:
        return vt_unicode_lower(out, *text, *n) ? 1 : -1;
    case NORM_ACCENTS:
        return strip_accents(out, *text, *n) ? 1 : -1;
    case NORM_STRIP:
        if (step->right)
            *n = trim_right(*text, *n);
        if (step->left) {
            size_t skip = trim_left(*text, *n);
            *text += skip;
            *n -= skip;
        }
        return 0;
    case NORM_PREPEND:
        if (*n == 0)
            return 0;
        vt_buf_add(out, step->content, step->content_len);
        vt_buf_add(out, *text, *n);
        return out->failed ? -1 : 1;
    case NORM_REPLACE:
        return replace(step, scratch, *text, *n, out);
    case NORM_BYTES:
        for (size_t i = 0; i < *n; i++)
            vt_utf8_add(out, tok_byte_char((unsigned char)(*text)[i]));
        return out->failed ? -1 : 1;
    }
    return -1;
}

static vt_status apply_all(const vt_tokenizer *t, vt_regex_scratch *scratch, vt_buf buffers[2],
                           const char **text, size_t *n, vt_err *err)
{
    int which = 0;
    for (int32_t i = 0; i < t->n_norm; i++) {
        vt_buf *out = &buffers[which];
        vt_buf_clear(out);
        int made = apply(&t->norm[i], scratch, text, n, out);
        if (made < 0)
            return vt_fail(err, VT_ERR_MEMORY,
                           "tokenizer: normalising a text of %zu bytes needs too much memory or "
                           "too many steps",
                           *n);
        if (made) {
            *text = out->data ? out->data : "";
            *n = out->len;
            which = 1 - which;
        }
    }
    return VT_OK;
}

vt_status norm_apply(tok_work *w, const char **text, size_t *n)
{
    return w->t->n_norm ? apply_all(w->t, &w->regex, w->norm, text, n, w->err) : VT_OK;
}

vt_status norm_content(vt_tokenizer *t, const char *text, size_t n, vt_buf *out, vt_err *err)
{
    vt_buf buffers[2];
    vt_regex_scratch scratch = {0};
    vt_regex_scratch_begin(&scratch, n);
    vt_buf_init(&buffers[0], 0);
    vt_buf_init(&buffers[1], 0);
    vt_status status = apply_all(t, &scratch, buffers, &text, &n, err);
    if (status == VT_OK && !vt_buf_add(out, text, n))
        status = tok_no_memory(err);
    vt_regex_scratch_release(&scratch);
    vt_buf_release(&buffers[0]);
    vt_buf_release(&buffers[1]);
    return status;
}
