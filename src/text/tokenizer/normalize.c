/* Normalizers: rewriting a text before it is cut into words.
 *
 * Steps alternate between two buffers. A step that would change nothing is seen before it copies
 * anything, so text that is in NFC already (nearly all of it) passes at the speed of the check.
 *
 * Literal ranges of the text (see vt_tokenizer_encode_literal) go through every step as marks:
 * each step says where in its output the text in front of a mark has ended. A character made from
 * text on both sides of a mark (a match of a Replace) counts to the range.
 */
#include <assert.h>
#include <string.h>

#include "text/tokenizer/internal.h"

/* The borders of literal ranges, in the order of the text: begin, end, begin, end ... */
typedef struct norm_marks {
    size_t *at;
    size_t n, done; /* the first `done` of them are offsets of the output already */
} norm_marks;

/* One call of norm_apply works with this. */
typedef struct norm_run {
    norm_work *w;
    norm_marks marks;
} norm_run;

/* Puts the marks up to `end` of the input at `to` of the output. */
static void marks_reach(norm_marks *m, size_t end, size_t to)
{
    while (m->done < m->n && m->at[m->done] <= end)
        m->at[m->done++] = to;
}

/* The input up to `end`, from the last mark set, became [begin, stop) of the output: a range that
 * begins inside begins with it, a range that ends inside ends with it. */
static void marks_inside(norm_marks *m, size_t end, size_t begin, size_t stop)
{
    for (; m->done < m->n && m->at[m->done] < end; m->done++) {
        m->at[m->done] = m->done % 2 == 0 ? begin : stop;
        if (m->done && m->at[m->done] < m->at[m->done - 1])
            m->at[m->done] = m->at[m->done - 1];
    }
}

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

/* Appends s without the characters of this kind. */
static bool without(vt_buf *out, const char *s, size_t n, uint16_t flag)
{
    for (size_t i = 0; i < n;) {
        uint32_t c;
        size_t step = (size_t)vt_utf8_next(s + i, &c);
        if (!(vt_uprop_of(c).flags & flag) && !vt_buf_add(out, s + i, step))
            return false;
        i += step;
    }
    return true;
}

static bool strip_accents(vt_buf *out, const char *s, size_t n, vt_uform form)
{
    (void)form;
    return without(out, s, n, VT_U_ACCENT);
}

static bool lower(vt_buf *out, const char *s, size_t n, vt_uform form)
{
    (void)form;
    return vt_unicode_lower(out, s, n);
}

/* Appends s without control characters; white space becomes a space. */
static bool clean(vt_buf *out, const char *s, size_t n, vt_uform form)
{
    (void)form;
    for (size_t i = 0; i < n;) {
        uint32_t c;
        size_t step = (size_t)vt_utf8_next(s + i, &c);
        uint16_t flags = vt_uprop_of(c).flags;
        bool control = flags & VT_U_BERT_DROPS;
        if (!control &&
            !(flags & VT_U_SPACE ? vt_buf_add(out, " ", 1) : vt_buf_add(out, s + i, step)))
            return false;
        i += step;
    }
    return true;
}

static bool strip_marks(vt_buf *out, const char *s, size_t n, vt_uform form)
{
    (void)form;
    return without(out, s, n, VT_U_BERT_MARK);
}

/* The ranges that BERT takes for Chinese characters; the gap before 0x2B920 is in the original. */
static bool is_chinese(uint32_t c)
{
    static const uint32_t range[][2] = {{0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},
                                        {0x20000, 0x2A6DF}, {0x2A700, 0x2B81F}, {0x2B920, 0x2CEAF},
                                        {0x2F800, 0x2FA1F}};
    for (size_t i = 0; i < sizeof range / sizeof *range; i++)
        if (c >= range[i][0] && c <= range[i][1])
            return true;
    return false;
}

static bool space_chinese(vt_buf *out, const char *s, size_t n, vt_uform form)
{
    (void)form;
    for (size_t i = 0; i < n;) {
        uint32_t c;
        size_t step = (size_t)vt_utf8_next(s + i, &c);
        bool apart = c >= 0x3400 && is_chinese(c);
        if (apart)
            vt_buf_add(out, " ", 1);
        vt_buf_add(out, s + i, step);
        if (apart)
            vt_buf_add(out, " ", 1);
        i += step;
    }
    return !out->failed;
}

vt_status tok_add_bert_norm(vt_tokenizer *t, bool clean_text, bool cjk, bool strip, bool lower_case,
                            vt_err *err)
{
    const struct {
        bool wanted;
        norm_step step;
    } all[] = {{clean_text, {.kind = NORM_CLEAN}},
               {cjk, {.kind = NORM_CJK}},
               {strip, {.kind = NORM_FORM, .form = VT_NFD}},
               {strip, {.kind = NORM_MARKS}},
               {lower_case, {.kind = NORM_LOWER}}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (!all[i].wanted)
            continue;
        if (t->n_norm == TOK_MAX_STEPS)
            return vt_fail(err, VT_ERR_UNSUPPORTED, "tokenizer: more than %d normalizer steps",
                           TOK_MAX_STEPS);
        t->norm[t->n_norm++] = all[i].step;
    }
    return VT_OK;
}

static bool byte_chars(vt_buf *out, const char *s, size_t n, vt_uform form)
{
    (void)form;
    for (size_t i = 0; i < n; i++)
        vt_utf8_add(out, tok_byte_char((unsigned char)s[i]));
    return !out->failed;
}

/* The first place at or after `at` where the text can be cut in two and normalised in parts. */
static size_t safe_cut(const char *s, size_t n, size_t at, vt_uform form)
{
    while (at < n) {
        uint32_t c;
        size_t step = (size_t)vt_utf8_next(s + at, &c);
        if (vt_uprop_of(c).flags & (VT_U_STABLE << form))
            break;
        at += step;
    }
    return at;
}

/* Rewrites the text with `fn`, cut at the marks, so that it is known where they come to be. */
static bool in_parts(norm_run *r, const norm_step *step, const char *s, size_t n, vt_buf *out,
                     bool (*fn)(vt_buf *, const char *, size_t, vt_uform))
{
    size_t from = 0;
    while (r->marks.done < r->marks.n) {
        size_t cut = r->marks.at[r->marks.done];
        if (step->kind == NORM_FORM)
            cut = safe_cut(s, n, cut, step->form);
        if (cut > from && !fn(out, s + from, cut - from, step->form))
            return false;
        from = cut > from ? cut : from;
        marks_reach(&r->marks, from, out->len);
    }
    return fn(out, s + from, n - from, step->form);
}

/* Copies s[from..to) and moves the marks in it, those at its ends included. */
static void copy_between(norm_run *r, vt_buf *out, const char *s, size_t from, size_t to)
{
    for (; r->marks.done < r->marks.n && r->marks.at[r->marks.done] <= to; r->marks.done++)
        r->marks.at[r->marks.done] += out->len - from;
    vt_buf_add(out, s + from, to - from);
}

/* 1 replaced, 0 nothing to replace, -1 failed. */
static int replace(norm_run *r, const norm_step *step, const char *s, size_t n, vt_buf *out)
{
    size_t from = 0, done = 0, start = 0, end = 0;
    bool any = false;
    while (from <= n) {
        if (step->regex) {
            int found = vt_regex_find(step->regex, r->w->regex, s, n, from, &start, &end);
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
        copy_between(r, out, s, done, start);
        size_t begin = out->len;
        vt_buf_add(out, step->content, step->content_len);
        marks_inside(&r->marks, end, begin, out->len);
        done = end;
    }
    if (any)
        copy_between(r, out, s, done, n);
    return out->failed ? -1 : any;
}

/* Rewrites the text by its map; 1, or -1: too much was made. */
static int map_chars(norm_run *r, const norm_step *step, const char *s, size_t n, vt_buf *out)
{
    for (size_t at = 0; at < n && !out->failed;) {
        size_t begin = out->len;
        marks_reach(&r->marks, at, begin);
        at += charsmap_next(step->map, s + at, n - at, out);
        marks_inside(&r->marks, at, begin, out->len);
    }
    marks_reach(&r->marks, n, out->len);
    return out->failed ? -1 : 1;
}

/* 1: out holds the result; 0: the text stays as it is (or *text, *n were narrowed); -1: failed. */
static int apply(norm_run *r, const norm_step *step, const char **text, size_t *n, vt_buf *out)
{
    norm_marks *marks = &r->marks;
    marks->done = 0;
    switch (step->kind) {
    case NORM_FORM:
        if (vt_unicode_is_normal(*text, *n, step->form))
            return 0;
        return in_parts(r, step, *text, *n, out, vt_unicode_normalize) ? 1 : -1;
    case NORM_LOWER:
        return in_parts(r, step, *text, *n, out, lower) ? 1 : -1;
    case NORM_ACCENTS:
        return in_parts(r, step, *text, *n, out, strip_accents) ? 1 : -1;
    case NORM_BYTES:
        return in_parts(r, step, *text, *n, out, byte_chars) ? 1 : -1;
    case NORM_CLEAN:
        return in_parts(r, step, *text, *n, out, clean) ? 1 : -1;
    case NORM_CJK:
        return in_parts(r, step, *text, *n, out, space_chinese) ? 1 : -1;
    case NORM_MARKS:
        return in_parts(r, step, *text, *n, out, strip_marks) ? 1 : -1;
    case NORM_STRIP:
        if (step->right)
            *n = trim_right(*text, *n);
        if (step->left) {
            size_t skip = trim_left(*text, *n);
            *text += skip;
            *n -= skip;
            for (size_t i = 0; i < marks->n; i++)
                marks->at[i] -= marks->at[i] < skip ? marks->at[i] : skip;
        }
        for (size_t i = 0; i < marks->n; i++)
            marks->at[i] = marks->at[i] < *n ? marks->at[i] : *n;
        return 0;
    case NORM_PREPEND:
        if (*n == 0)
            return 0;
        vt_buf_add(out, step->content, step->content_len);
        vt_buf_add(out, *text, *n);
        for (size_t i = 0; i < marks->n; i++)
            marks->at[i] += step->content_len;
        return out->failed ? -1 : 1;
    case NORM_REPLACE:
        return replace(r, step, *text, *n, out);
    case NORM_CHARSMAP:
        return map_chars(r, step, *text, *n, out);
    }
    return -1;
}

static const char *name_of(const norm_step *step)
{
    static const char *const forms[] = {"NFD", "NFC", "NFKD", "NFKC"};
    static const char *const names[] = {
        [NORM_LOWER] = "Lowercase",     [NORM_ACCENTS] = "StripAccents",
        [NORM_STRIP] = "Strip",         [NORM_PREPEND] = "Prepend",
        [NORM_REPLACE] = "Replace",     [NORM_BYTES] = "ByteLevel",
        [NORM_CLEAN] = "clean_text",    [NORM_CJK] = "handle_chinese_chars",
        [NORM_MARKS] = "strip_accents", [NORM_CHARSMAP] = "Precompiled"};
    return step->kind == NORM_FORM ? forms[step->form] : names[step->kind];
}

static vt_status apply_all(const vt_tokenizer *t, norm_run *r, const char **text, size_t *n,
                           vt_err *err)
{
    int which = 0;
    for (int32_t i = 0; i < t->n_norm; i++) {
        vt_buf *out = &r->w->buffer[which];
        vt_buf_clear(out);
        out->max = r->w->left[i] + 1; /* 0 would mean vt_buf's own limit */
        int made = apply(r, &t->norm[i], text, n, out);
        if (made < 0)
            return vt_fail(err, VT_ERR_UNSUPPORTED,
                           out->failed ? "tokenizer: normalizer step %d (%s) makes too much of a "
                                         "text of %zu bytes: more than 16 times as much and 1 MiB"
                                       : "tokenizer: normalizer step %d (%s) takes too many steps "
                                         "on a text of %zu bytes",
                           i + 1, name_of(&t->norm[i]), *n);
        if (made) {
            *text = out->data ? out->data : "";
            *n = out->len;
            r->w->left[i] -= out->len < r->w->left[i] ? out->len : r->w->left[i];
            which = 1 - which;
        }
    }
    return VT_OK;
}

void norm_work_init(norm_work *w, vt_regex_scratch *regex, size_t n)
{
    *w = (norm_work){.regex = regex};
    vt_buf_init(&w->buffer[0], 0);
    vt_buf_init(&w->buffer[1], 0);
    for (int i = 0; i < TOK_MAX_STEPS; i++)
        w->left[i] = tok_growth(n);
}

void norm_work_release(norm_work *w)
{
    vt_buf_release(&w->buffer[0]);
    vt_buf_release(&w->buffer[1]);
}

vt_status norm_apply(const vt_tokenizer *t, norm_work *w, vt_text_range *part, size_t *n_part,
                     const char **text, size_t *n, vt_err *err)
{
    if (!t->n_norm)
        return VT_OK;
    static_assert(sizeof(vt_text_range) == 2 * sizeof(size_t), "a range is two marks");
    norm_run r = {.w = w, .marks = {.at = (size_t *)(void *)part, .n = *n_part * 2}};
    TRY(apply_all(t, &r, text, n, err));
    size_t kept = 0; /* ranges of which nothing is left would still touch what surrounds them */
    for (size_t i = 0; i < *n_part; i++)
        if (part[i].begin < part[i].end)
            part[kept++] = part[i];
    *n_part = kept;
    return VT_OK;
}
