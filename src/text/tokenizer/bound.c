/* How many tokens a text makes at least, told from its length.
 *
 * A text of n bytes makes at least n / b tokens if no token stands for more than b bytes of text.
 * That b is the longest piece of the vocabulary, if every byte of the text ends in some token's
 * bytes. What breaks this:
 *
 *   makes a text shorter by at most a factor    NFC and its like, Lowercase, Replace of a string
 *   drops white space                           Strip, WhitespaceSplit, lstrip and rstrip of an
 *                                               added token: white space is not counted then
 *   drops a byte                                a byte-level vocabulary without a token for it:
 *                                               the byte is not counted
 *   may drop anything                           StripAccents, Replace of a pattern, a Removed
 *                                               split, a vocabulary of characters alone: nothing is
 *                                               told of such a tokenizer
 *
 * Steps that make a text longer need no look: they only add tokens. */
#include "text/tokenizer/internal.h"

/* How much shorter a text becomes at most. A character of a form is made of as many characters, of
 * up to four bytes each, as it decomposes into: the worst are of two bytes and made of three. The
 * worst of lower case is the Kelvin sign, whose three bytes become a "k". */
enum { FORM_SHRINKS = 6, LOWER_SHRINKS = 3 };

/* Multiplies *shrink by what the normalizer may take away. False: it may take away anything. */
static bool norm_bound(vt_tokenizer *t, size_t *shrink)
{
    for (int32_t i = 0; i < t->n_norm; i++) {
        const norm_step *s = &t->norm[i];
        bool first = i == 0, last = i + 1 == t->n_norm;
        if (s->kind == NORM_FORM)
            *shrink *= FORM_SHRINKS;
        else if (s->kind == NORM_LOWER)
            *shrink *= LOWER_SHRINKS;
        else if (s->kind == NORM_STRIP && first)
            t->bound.drops_space = true;
        else if (s->kind == NORM_REPLACE && !s->regex && s->content_len > 0)
            *shrink *= (s->pattern_len + s->content_len - 1) / s->content_len;
        else if (s->kind != NORM_PREPEND && !(s->kind == NORM_BYTES && last))
            return false;
        if (*shrink > 1 << 16)
            return false;
    }
    return true;
}

static bool pre_bound(vt_tokenizer *t)
{
    for (int32_t i = 0; i < t->n_pre; i++) {
        const pre_step *s = &t->pre[i];
        if (s->behaviour != SPLIT_REMOVED || s->kind == PRE_MAP)
            continue;
        if (s->kind != PRE_SPACE || s->invert || i > 0 || t->n_norm > 0)
            return false;
        t->bound.drops_space = true;
    }
    return true;
}

/* Bytes that no character has in UTF-8. */
static bool never_occurs(int b) { return b == 0xC0 || b == 0xC1 || b >= 0xF5; }

/* Finds out which bytes of a word become part of a token. Vocabularies that were trained without
 * an alphabet lack some control characters and the first bytes of rare planes, which vanish.
 * False: it cannot be told by the byte. */
static bool model_bound(vt_tokenizer *t)
{
    static const unsigned char replacement[] = {0xEF, 0xBF, 0xBD};
    if (t->unigram || t->prefix_len + t->suffix_len > 0 || !(t->byte_level || t->byte_fallback))
        return false;
    const int32_t *id = t->byte_level ? t->byte_id : t->fallback_id;
    for (int b = 0; b < 256; b++) {
        t->bound.keeps[b] = id[b] >= 0 && id[b] < t->vocab.n;
        if (!t->bound.keeps[b] && (t->keep_invalid || !never_occurs(b)))
            t->bound.drops_bytes = true;
    }
    if (!t->bound.drops_bytes)
        return true;
    for (int i = 0; i < 3; i++) /* what is no UTF-8 becomes U+FFFD */
        if (!t->bound.keeps[replacement[i]])
            return false;
    return t->byte_level && t->n_norm == 0;
}

static bool added_bound(vt_tokenizer *t, size_t *longest)
{
    for (int32_t i = 0; i < t->n_added; i++) {
        const added_token *a = &t->added[i];
        *longest = a->len > *longest ? a->len : *longest;
        if (!a->lstrip && !a->rstrip)
            continue;
        if (a->normalized && t->n_norm > 0)
            return false;
        t->bound.drops_space = true;
    }
    return true;
}

void tok_find_bound(vt_tokenizer *t)
{
    size_t longest = 1, shrink = 1;
    t->bound = (tok_bound){0};
    if (!model_bound(t) || !norm_bound(t, &shrink) || !pre_bound(t) || !added_bound(t, &longest))
        return;
    for (int32_t id = 0; id < t->vocab.n; id++)
        if (t->vocab.piece[id].len > longest)
            longest = t->vocab.piece[id].len;
    t->bound.token_bytes = longest * shrink;
}

/* Bytes of the text that end in a token's bytes. */
static size_t kept_bytes(const tok_bound *b, const char *text, size_t n)
{
    size_t kept = 0;
    for (size_t i = 0; i < n;) {
        uint32_t c = (unsigned char)text[i];
        int step = c < 0x80 ? 1 : vt_utf8_step(text + i, n - i);
        bool valid = step > 0;
        if (c >= 0x80 && valid)
            vt_utf8_next(text + i, &c);
        size_t end = i + (valid ? (size_t)step : 1);
        bool drops = b->drops_space && valid && (vt_uprop_of(c).flags & VT_U_SPACE);
        for (; i < end; i++)
            kept += !drops && (!b->drops_bytes || b->keeps[(unsigned char)text[i]]);
    }
    return kept;
}

size_t vt_tokenizer_least(const vt_tokenizer *t, const char *text, size_t len)
{
    const tok_bound *b = &t->bound;
    if (b->token_bytes == 0)
        return 0;
    size_t bytes = b->drops_space || b->drops_bytes ? kept_bytes(b, text, len) : len;
    return bytes / b->token_bytes + (bytes % b->token_bytes > 0);
}
