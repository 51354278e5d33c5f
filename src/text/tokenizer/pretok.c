/* Pre-tokenizers: a text to words, step by step.
 *
 * A step cuts the piece it is given at its matches; what the cuts mean is its behaviour (a match
 * is dropped, stands alone, joins its neighbour ...). Each part goes to the next step at once, and
 * after the last one to the model: no lists are built, so a megabyte of text needs no more memory
 * than a word does. Two steps rewrite their piece first: Metaspace (a space becomes U+2581) and
 * ByteLevel where other steps follow it; they keep the text in a buffer of their own.
 */
#include <string.h>

#include "text/tokenizer/internal.h"

const char tok_gpt2_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

/* ---- matches of one step ---- */

static bool class_of_step(const pre_step *s, uint32_t c)
{
    uint16_t flags = vt_uprop_of(c).flags;
    switch (s->kind) {
    case PRE_PUNCTUATION:
        return flags & VT_U_PUNCTUATION;
    case PRE_SPACE:
        return flags & VT_U_SPACE;
    default:
        return flags & VT_U_NUMERIC;
    }
}

/* The classes of the Whitespace pre-tokenizer, \w+|[^\w\s]+ : 0 a space, 1 a word character, 2
 * anything else. */
static int word_class(uint32_t c)
{
    uint16_t flags = vt_uprop_of(c).flags;
    return flags & VT_U_WORD ? 1 : flags & VT_U_SPACE ? 0 : 2;
}

/* 1 and the next match at or after `from`, 0 if there is none, -1 on failure. */
static int next_match(tok_work *w, const pre_step *s, const char *text, size_t n, size_t from,
                      size_t *start, size_t *end)
{
    uint32_t c;
    switch (s->kind) {
    case PRE_REGEX:
    case PRE_BYTES:
        return vt_regex_find(s->regex, &w->regex, text, n, from, start, end);
    case PRE_STRING:
    case PRE_METASPACE: {
        const char *found = s->string_len ? memmem(text + from, n - from, s->string, s->string_len)
                                          : NULL;
        if (!found)
            return 0;
        *start = (size_t)(found - text);
        *end = *start + s->string_len;
        return 1;
    }
    case PRE_CHAR_GROUPS:
        if (from >= n)
            return 0;
        *start = *end = from;
        for (int32_t i = 0; i < s->group && *end < n; i++)
            *end += (size_t)vt_utf8_next(text + *end, &c);
        return 1;
    case PRE_WORDS:
        while (from < n) {
            int step = vt_utf8_next(text + from, &c), kind = word_class(c);
            if (kind) {
                *start = from;
                do
                    from += (size_t)step;
                while (from < n && (step = vt_utf8_next(text + from, &c), word_class(c) == kind));
                *end = from;
                return 1;
            }
            from += (size_t)step;
        }
        return 0;
    default: /* one character of a class, or a run of them */
        while (from < n) {
            int step = vt_utf8_next(text + from, &c);
            if (class_of_step(s, c)) {
                *start = from;
                do
                    from += (size_t)step;
                while (s->kind == PRE_DIGIT_RUNS && from < n &&
                       (step = vt_utf8_next(text + from, &c), class_of_step(s, c)));
                *end = from;
                return 1;
            }
            from += (size_t)step;
        }
        return 0;
    }
}

/* ---- behaviours ---- */

typedef struct splitter {
    tok_work *w;
    const pre_step *step;
    int32_t at; /* number of the step */
    const char *text;
    bool first; /* text begins the whole text */
    bool held;  /* held_start..held_end waits for what comes next */
    bool held_match;
    size_t held_start, held_end;
    bool last_match;
} splitter;

static vt_status pass(splitter *s, size_t start, size_t end)
{
    if (start == end)
        return VT_OK;
    return pre_tokenize(s->w, s->at + 1, s->text + start, end - start, s->first && start == 0);
}

static vt_status flush(splitter *s)
{
    if (!s->held)
        return VT_OK;
    s->held = false;
    return pass(s, s->held_start, s->held_end);
}

static void hold(splitter *s, size_t start, size_t end, bool match)
{
    s->held = true;
    s->held_start = start;
    s->held_end = end;
    s->held_match = match;
}

static vt_status segment(splitter *s, size_t start, size_t end, bool match)
{
    bool last = s->last_match;
    match ^= s->step->invert;
    s->last_match = match;
    switch (s->step->behaviour) {
    case SPLIT_REMOVED:
        return match ? VT_OK : pass(s, start, end);
    case SPLIT_ISOLATED:
        return pass(s, start, end);
    case SPLIT_WITH_PREVIOUS:
        if (match && !last && s->held) {
            s->held_end = end;
            return VT_OK;
        }
        break;
    case SPLIT_WITH_NEXT:
        if (!match && s->held && s->held_match) {
            s->held_end = end;
            s->held_match = false;
            return VT_OK;
        }
        break;
    case SPLIT_CONTIGUOUS:
        if (s->held && s->held_match == match) {
            s->held_end = end;
            return VT_OK;
        }
        break;
    }
    TRY(flush(s));
    hold(s, start, end, match);
    return VT_OK;
}

static vt_status split(tok_work *w, int32_t at, const char *text, size_t n, bool first)
{
    splitter s = {.w = w, .step = &w->t->pre[at], .at = at, .text = text, .first = first};
    size_t done = 0, from = 0, start, end;
    while (from <= n) {
        int found = next_match(w, s.step, text, n, from, &start, &end);
        if (found < 0)
            return vt_fail(w->err, VT_ERR_UNSUPPORTED,
                           "tokenizer: pre-tokenizer step %d takes too many steps after byte %zu "
                           "of a text of %zu bytes; a very long run of digits, spaces or letters "
                           "can be the reason",
                           at + 1, from, n);
        if (!found)
            break;
        if (start == end && done == start &&
            done > 0) { /* an empty match may not touch the one before */
            uint32_t c;
            from = start < n ? start + (size_t)vt_utf8_next(text + start, &c) : n + 1;
            continue;
        }
        if (done < start)
            TRY(segment(&s, done, start, false));
        TRY(segment(&s, start, end, true));
        done = end;
        uint32_t c;
        from = end > start ? end : end < n ? end + (size_t)vt_utf8_next(text + end, &c) : n + 1;
    }
    if (done < n)
        TRY(segment(&s, done, n, false));
    return flush(&s);
}

/* ---- steps that rewrite ---- */

/* Empties the step's buffer; all that it makes of one text has a limit. */
static vt_buf *begin_rewrite(tok_work *w, int32_t at)
{
    vt_buf *b = &w->step[at];
    vt_buf_clear(b);
    b->max = w->left[at] + 1; /* 0 would mean vt_buf's own limit */
    return b;
}

static vt_status end_rewrite(tok_work *w, int32_t at)
{
    vt_buf *b = &w->step[at];
    if (b->failed)
        return vt_fail(w->err, VT_ERR_UNSUPPORTED,
                       "tokenizer: pre-tokenizer step %d makes more than 16 times as much of a "
                       "text and 1 MiB",
                       at + 1);
    w->left[at] -= b->len < w->left[at] ? b->len : w->left[at];
    return VT_OK;
}

static bool begins_with(const char *text, size_t n, const char *s, size_t len)
{
    return n >= len && memcmp(text, s, len) == 0;
}

static vt_status metaspace(tok_work *w, int32_t at, const char *text, size_t n, bool first)
{
    const pre_step *s = &w->t->pre[at];
    vt_buf *b = begin_rewrite(w, at);
    bool starts = n > 0 && (text[0] == ' ' || begins_with(text, n, s->string, s->string_len));
    if (!starts && (s->scheme == PREPEND_ALWAYS || (s->scheme == PREPEND_FIRST && first)))
        vt_buf_add(b, s->string, s->string_len);
    while (n) {
        const char *space = memchr(text, ' ', n);
        size_t run = space ? (size_t)(space - text) : n;
        vt_buf_add(b, text, run);
        if (space)
            vt_buf_add(b, s->string, s->string_len);
        text += run + (space != NULL);
        n -= run + (space != NULL);
    }
    TRY(end_rewrite(w, at));
    return s->split ? split(w, at, b->data, b->len, first)
                    : pre_tokenize(w, at + 1, b->data, b->len, first);
}

static vt_status byte_level(tok_work *w, int32_t at, const char *text, size_t n, bool first)
{
    const pre_step *s = &w->t->pre[at];
    if (s->prefix_space && text[0] != ' ') {
        vt_buf *b = begin_rewrite(w, at);
        vt_buf_putc(b, ' ');
        vt_buf_add(b, text, n);
        TRY(end_rewrite(w, at));
        text = b->data;
        n = b->len;
    }
    return s->regex ? split(w, at, text, n, first) : pre_tokenize(w, at + 1, text, n, first);
}

/* Between a ByteLevel step and the steps after it: spells the word in the alphabet of bytes. */
static vt_status map_bytes(tok_work *w, int32_t at, const char *text, size_t n, bool first)
{
    vt_buf *b = begin_rewrite(w, at);
    for (size_t i = 0; i < n; i++)
        vt_utf8_add(b, tok_byte_char((unsigned char)text[i]));
    TRY(end_rewrite(w, at));
    return pre_tokenize(w, at + 1, b->data, b->len, first);
}

vt_status pre_tokenize(tok_work *w, int32_t at, const char *text, size_t n, bool first)
{
    if (n == 0)
        return VT_OK;
    if (at == w->t->n_pre)
        return bpe_word(w, text, n);
    switch (w->t->pre[at].kind) {
    case PRE_METASPACE:
        return metaspace(w, at, text, n, first);
    case PRE_BYTES:
        return byte_level(w, at, text, n, first);
    case PRE_MAP:
        return map_bytes(w, at, text, n, first);
    default:
        return split(w, at, text, n, first);
    }
}
