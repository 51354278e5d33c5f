/* wordwrap: Python's textwrap as jinja2 calls it (whitespace is neither expanded nor replaced; each
 * line of the text is wrapped by itself).
 *
 * A line is cut into chunks: runs of whitespace, words, parts of hyphenated words with their
 * hyphen, em-dashes. Chunks are laid into lines of at most `width` characters; whitespace at the
 * ends of lines is dropped; a word longer than a line is cut, behind a hyphen if there is one.
 */
#include "text/template/impl.h"

/* One paragraph as code points. */
typedef struct wrapper {
    tpl_run *r;
    const uint32_t *c; /* [n] */
    size_t n, width;
    bool hyphens, cut;
    tpl_text out;
    const tpl_str *newline;
    bool any_line; /* of this paragraph */
} wrapper;

static bool is_space(uint32_t c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
static bool is_word(uint32_t c)
{
    return c == '_' || tpl_char_is(c, TPL_C_ALPHA) || tpl_char_is(c, TPL_C_NUMERIC);
}
static bool is_letter(uint32_t c) { return is_word(c) && !tpl_char_is(c, TPL_C_DECIMAL); }
static bool is_word_or_mark(uint32_t c)
{
    return is_word(c) || (c < 0x80 && c && strchr("!\"'&.,?", (int)c));
}

/* Two or more dashes at i with a word character behind them; how many, else 0. */
static size_t em_dash(const wrapper *w, size_t i)
{
    size_t n = 0;
    while (i + n < w->n && w->c[i + n] == '-')
        n++;
    return n >= 2 && i + n < w->n && is_word(w->c[i + n]) ? n : 0;
}

/* A hyphen at i that may end a line: letters on both sides, in textwrap's sense. */
static bool breaking_hyphen(const wrapper *w, size_t i)
{
    const uint32_t *c = w->c;
    if (c[i] != '-')
        return false;
    bool before = (i >= 2 && is_letter(c[i - 1]) && is_letter(c[i - 2])) ||
                  (i >= 3 && is_word_or_mark(c[i - 1]) && c[i - 2] == '-' && is_letter(c[i - 3]));
    size_t next = i + 2 < w->n && c[i + 2] == '-' ? i + 3 : i + 2;
    return before && i + 1 < w->n && is_letter(c[i + 1]) && next < w->n && is_letter(c[next]);
}

/* Where the chunk that begins at i ends. */
static size_t chunk_end(const wrapper *w, size_t i)
{
    size_t end = i;
    if (is_space(w->c[i])) {
        while (end < w->n && is_space(w->c[end]))
            end++;
        return end;
    }
    if (w->hyphens && i > 0 && is_word_or_mark(w->c[i - 1]) && em_dash(w, i))
        return i + em_dash(w, i);
    for (end = i + 1; end < w->n && !is_space(w->c[end]); end++) {
        if (w->hyphens && breaking_hyphen(w, end))
            return end + 1;
        if (w->hyphens && is_word_or_mark(w->c[end - 1]) && em_dash(w, end))
            return end;
    }
    return end;
}

static bool all_space(const wrapper *w, size_t begin, size_t end)
{
    while (begin < end && tpl_space(w->c[begin]))
        begin++;
    return begin == end;
}

static vt_status put_line(wrapper *w, size_t begin, size_t end)
{
    if (w->any_line)
        TRY(tpl_text_add(w->r, &w->out, w->newline->data, w->newline->len));
    w->any_line = true;
    for (size_t i = begin; i < end; i++) {
        char utf8[4];
        TRY(tpl_text_add(w->r, &w->out, utf8, tpl_encode(w->c[i], utf8)));
    }
    return tpl_charge(w->r, 1 + (end - begin) / 16);
}

/* How much of a too long chunk goes into the `room` characters that are left of a line. */
static size_t cut_at(const wrapper *w, size_t begin, size_t room)
{
    bool other = false; /* something but hyphens before it */
    size_t best = room;
    for (size_t i = 0; w->hyphens && i < room; i++) {
        if (w->c[begin + i] != '-')
            other = true;
        else if (other)
            best = i + 1;
    }
    return best;
}

/* Lines are consecutive pieces of the text: a line is [begin, at), its last chunk begins at `last`.
 */
static vt_status wrap_paragraph(wrapper *w)
{
    size_t at = 0, end = w->n ? chunk_end(w, 0) : 0; /* the chunk that comes next */
    while (at < w->n) {
        if (w->any_line && all_space(w, at, end)) {
            at = end;
            end = at < w->n ? chunk_end(w, at) : at;
        }
        size_t begin = at, last = at;
        while (at < w->n && end - begin <= w->width) {
            last = at;
            at = end;
            end = at < w->n ? chunk_end(w, at) : at;
        }
        if (at < w->n && end - at > w->width && (w->cut || at == begin)) {
            last = at;
            at += w->cut ? cut_at(w, at, w->width - (at - begin)) : end - at;
            if (at == end)
                end = at < w->n ? chunk_end(w, at) : at;
        }
        size_t stop = at > begin && all_space(w, last, at) ? last : at;
        if (stop > begin)
            TRY(put_line(w, begin, stop));
    }
    return VT_OK;
}

/* wordwrap(width=79, break_long_words=true, wrapstring=none, break_on_hyphens=true) */
vt_status tpl_filter_wordwrap(tpl_run *r, tpl_value self, const tpl_value *arg,
                              const tpl_call *call, tpl_value *out)
{
    const tpl_str *s, newline = {.data = "\n", .len = 1, .n_chars = 1};
    int64_t width;
    wrapper w = {.r = r, .newline = &newline};
    uint32_t *c;
    (void)call;
    TRY(tpl_want_str(r, self, "wordwrap's input", &s));
    TRY(tpl_want_int(r, arg[0], "wordwrap's width", 79, &width));
    if (arg[2].type != TPL_MISSING && arg[2].type != TPL_NONE)
        TRY(tpl_want_str(r, arg[2], "wordwrap's wrapstring", &w.newline));
    if (width <= 0 && s->len > 0)
        return tpl_fail(r, "invalid width %lld (must be > 0)", (long long)width);
    w.width = (size_t)width;
    w.cut = arg[1].type == TPL_MISSING || tpl_truth(arg[1]);
    w.hyphens = arg[3].type == TPL_MISSING || tpl_truth(arg[3]);
    TPL_NEW(r, c, s->n_chars + 1);
    w.c = c;
    for (size_t begin = 0; begin < s->len;) {
        size_t end, next;
        tpl_line_end(s, begin, &end, &next);
        if (begin > 0)
            TRY(tpl_text_add(r, &w.out, w.newline->data, w.newline->len));
        w.n = 0;
        w.any_line = false;
        while (begin < end)
            begin += tpl_decode(s->data + begin, end - begin, &c[w.n++]);
        TRY(wrap_paragraph(&w));
        begin = next;
    }
    return tpl_text_value(r, &w.out, out);
}
