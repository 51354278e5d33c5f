/* Decoding: ids to text, a token at a time.
 *
 * A decoder is a chain of steps, as tokenizer.json lists them: replace U+2581, bytes for "<0xXX>",
 * fuse, strip one space. Each step takes a string, keeps a counter, and hands strings on; so
 * feeding tokens one by one and decoding all at once are the same code and cannot differ. Two
 * steps hold bytes back until they know what they are:
 *
 *   DEC_BYTES     bytes of a byte-level vocabulary: an unfinished character (at most 3 bytes)
 *   DEC_FALLBACK  a run of byte tokens: Hugging Face decodes it as a whole, or turns every byte
 *                 into U+FFFD, so its text is known only when the run ends. If a run is longer
 *                 than 256 bytes, the text that is valid so far goes out earlier.
 *
 * `fused` steps see one string in parts instead of a list of tokens.
 */
#include <string.h>

#include "text/tokenizer/internal.h"

static bool feed(vt_detok *d, int32_t at, const char *s, size_t n, vt_buf *out);

void vt_detok_init(vt_detok *d, const vt_tokenizer *t) { *d = (vt_detok){.tokenizer = t}; }

/* Takes bytes of a byte-level token; hands on whole characters, and U+FFFD for ill-formed parts. */
static bool feed_bytes(vt_detok *d, int32_t at, const char *s, size_t n, vt_buf *out)
{
    while (n > 0 && d->n_pending > 0) {
        d->pending[d->n_pending++] = *s++;
        n--;
        int step = vt_utf8_step(d->pending, (size_t)d->n_pending);
        if (step == 0)
            continue;
        if (step > 0) {
            d->n_pending = 0;
            if (!feed(d, at + 1, d->pending, (size_t)step, out))
                return false;
        } else { /* -step bytes are ill-formed; the last one begins anew */
            d->n_pending = 0;
            s--;
            n++;
            if (!feed(d, at + 1, "\xEF\xBF\xBD", 3, out))
                return false;
        }
    }
    while (n > 0) {
        size_t good = vt_utf8_valid(s, n);
        if (good && !feed(d, at + 1, s, good, out))
            return false;
        s += good;
        n -= good;
        if (n == 0)
            break;
        int step = vt_utf8_step(s, n);
        if (step == 0) {
            memcpy(d->pending, s, n);
            d->n_pending = (int32_t)n;
            break;
        }
        if (!feed(d, at + 1, "\xEF\xBF\xBD", 3, out))
            return false;
        s += -step;
        n -= (size_t)-step;
    }
    return true;
}

/* Ends a run of byte tokens: hands on its text, or U+FFFD for each byte. */
static bool end_run(vt_detok *d, int32_t at, vt_buf *out)
{
    size_t n = (size_t)d->n_pending;
    d->n_pending = 0;
    if (n == 0)
        return true;
    if (vt_utf8_valid(d->pending, n) == n)
        return feed(d, at + 1, d->pending, n, out);
    for (size_t i = 0; i < n; i++)
        if (!feed(d, at + 1, "\xEF\xBF\xBD", 3, out))
            return false;
    return true;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* "<0xXX>" to its byte; -1. */
static int fallback_byte(const char *s, size_t n)
{
    if (n != 6 || memcmp(s, "<0x", 3) != 0 || s[5] != '>')
        return -1;
    int high = hex_digit(s[3]), low = hex_digit(s[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

static bool feed_fallback(vt_detok *d, int32_t at, const char *s, size_t n, vt_buf *out)
{
    int byte = fallback_byte(s, n);
    if (byte < 0)
        return end_run(d, at, out) && feed(d, at + 1, s, n, out);
    if ((size_t)d->n_pending == sizeof d->pending) {
        size_t good = vt_utf8_valid(d->pending, sizeof d->pending), left = sizeof d->pending - good;
        char text[sizeof d->pending];
        memcpy(text, d->pending, good);
        memmove(d->pending, d->pending + good, left);
        d->n_pending = (int32_t)left;
        if (good == 0 ? !end_run(d, at, out) : !feed(d, at + 1, text, good, out))
            return false;
    }
    d->pending[d->n_pending++] = (char)byte;
    return true;
}

static bool is_at(const char *s, size_t n, const char *what, size_t len)
{
    return len > 0 && n >= len && memcmp(s, what, len) == 0;
}

/* Strip: takes away up to `start` copies of content in front and up to `stop` after, of each token
 * or, when fused, of the whole. */
static bool feed_strip(vt_detok *d, int32_t at, const char *s, size_t n, vt_buf *out)
{
    const dec_step *step = &d->tokenizer->dec[at];
    int32_t *done = &d->state[at];
    if (!step->fused)
        *done = 0;
    while (*done >= 0 && *done < step->start && is_at(s, n, step->content, step->content_len)) {
        s += step->content_len;
        n -= step->content_len;
        ++*done;
    }
    if (n > 0)
        *done = -1;
    for (int32_t i = 0; i < step->stop && n >= step->content_len; i++) {
        if (!is_at(s + n - step->content_len, step->content_len, step->content, step->content_len))
            break;
        n -= step->content_len;
    }
    return feed(d, at + 1, s, n, out);
}

/* Replace and Metaspace. `drop`: the pattern vanishes instead. */
static bool feed_replaced(vt_detok *d, int32_t at, const char *s, size_t n, bool drop, vt_buf *out)
{
    const dec_step *step = &d->tokenizer->dec[at];
    const char *found = step->pattern_len ? memmem(s, n, step->pattern, step->pattern_len) : NULL;
    if (!found)
        return feed(d, at + 1, s, n, out);
    vt_buf made;
    vt_buf_init(&made, 0);
    for (; found; found = memmem(s, n, step->pattern, step->pattern_len)) {
        vt_buf_add(&made, s, (size_t)(found - s));
        if (!drop)
            vt_buf_add(&made, step->content, step->content_len);
        n -= (size_t)(found - s) + step->pattern_len;
        s = found + step->pattern_len;
    }
    bool ok = vt_buf_add(&made, s, n) && !made.failed && feed(d, at + 1, made.data, made.len, out);
    vt_buf_release(&made);
    return ok;
}

/* Appends s with `from` replaced by `to` everywhere. */
static void put_replaced(vt_buf *out, const char *s, size_t n, const char *from, const char *to)
{
    size_t len = strlen(from);
    for (const char *found; (found = memmem(s, n, from, len));) {
        vt_buf_add(out, s, (size_t)(found - s));
        vt_buf_add(out, to, strlen(to));
        n -= (size_t)(found - s) + len;
        s = found + len;
    }
    vt_buf_add(out, s, n);
}

/* Takes the spaces out that a WordPiece decoder put in front of punctuation, token by token, as
 * `tokenizers` does it. *text is exchanged with *spare. */
static bool clean_up(vt_buf *text, vt_buf *spare)
{
    static const char *const pair[][2] = {{" .", "."},     {" ?", "?"},           {" !", "!"},
                                          {" ,", ","},     {" ' ", "'"},          {" n't", "n't"},
                                          {" 'm", "'m"},   {" do not", " don't"}, {" 's", "'s"},
                                          {" 've", "'ve"}, {" 're", "'re"}};
    for (size_t i = 0; i < sizeof pair / sizeof *pair; i++) {
        vt_buf_clear(spare);
        put_replaced(spare, text->data ? text->data : "", text->len, pair[i][0], pair[i][1]);
        vt_buf swap = *text;
        *text = *spare;
        *spare = swap;
    }
    return !text->failed && !spare->failed;
}

static bool feed_wordpiece(vt_detok *d, int32_t at, const char *s, size_t n, vt_buf *out)
{
    const dec_step *step = &d->tokenizer->dec[at];
    vt_buf text = {0}, spare = {0};
    bool inside = n >= step->pattern_len && memcmp(s, step->pattern, step->pattern_len) == 0;
    if (d->state[at] && inside) {
        s += step->pattern_len;
        n -= step->pattern_len;
    } else if (d->state[at]) {
        vt_buf_add(&text, " ", 1);
    }
    d->state[at] = 1;
    bool ok = vt_buf_add(&text, s, n) && (!step->cleanup || clean_up(&text, &spare)) &&
              feed(d, at + 1, text.data ? text.data : "", text.len, out);
    vt_buf_release(&text);
    vt_buf_release(&spare);
    return ok;
}

static bool feed(vt_detok *d, int32_t at, const char *s, size_t n, vt_buf *out)
{
    const vt_tokenizer *t = d->tokenizer;
    if (at == t->n_dec)
        return vt_buf_add(out, s, n);
    const dec_step *step = &t->dec[at];
    switch (step->kind) {
    case DEC_BYTES: {
        vt_buf raw;
        vt_buf_init(&raw, 0);
        bool ok = tok_unmap(s, n, &raw) ? feed_bytes(d, at, raw.data ? raw.data : "", raw.len, out)
                                        : !raw.failed && feed_bytes(d, at, s, n, out);
        vt_buf_release(&raw);
        return ok;
    }
    case DEC_METASPACE: {
        bool first = d->state[at] == 0;
        if (!step->fused)
            d->state[at] = 1;
        return feed_replaced(d, at, s, n, first && step->drop_first, out);
    }
    case DEC_REPLACE:
        return feed_replaced(d, at, s, n, false, out);
    case DEC_FALLBACK:
        return feed_fallback(d, at, s, n, out);
    case DEC_STRIP:
        return feed_strip(d, at, s, n, out);
    case DEC_WORDPIECE:
        return feed_wordpiece(d, at, s, n, out);
    case DEC_SPACES:
        if (d->state[at]++ && !feed(d, at + 1, " ", 1, out))
            return false;
        d->state[at] = 1;
        return feed(d, at + 1, s, n, out);
    default:
        return feed(d, at + 1, s, n, out);
    }
}

bool vt_detok_feed(vt_detok *d, int32_t id, vt_buf *out)
{
    const vt_tokenizer *t = d->tokenizer;
    if (id < 0 || id >= t->vocab.n)
        return true;
    const vocab_piece *p = &t->vocab.piece[id];
    if (!(p->flags & PIECE_PRESENT) || ((p->flags & PIECE_SPECIAL) && !d->keep_special))
        return true;
    d->begun = true;
    const char *s = t->vocab.pool + p->at;
    const added_token *added = p->flags & PIECE_REWRITTEN ? tok_added_of(t, id) : NULL;
    if (added)
        return feed(d, 0, added->content, added->len, out);
    if (!t->byte_level || (p->flags & PIECE_LITERAL))
        return feed(d, 0, s, p->len, out);
    if (t->n_dec > 0 && t->dec[0].kind == DEC_BYTES) /* the piece is its bytes already */
        return feed_bytes(d, 0, s, p->len, out);
    vt_buf spelled;
    vt_buf_init(&spelled, 0);
    for (uint32_t i = 0; i < p->len; i++)
        vt_utf8_add(&spelled, tok_byte_char((unsigned char)s[i]));
    bool ok = !spelled.failed && feed(d, 0, spelled.data ? spelled.data : "", spelled.len, out);
    vt_buf_release(&spelled);
    return ok;
}

bool vt_detok_finish(vt_detok *d, vt_buf *out)
{
    const vt_tokenizer *t = d->tokenizer;
    bool ok = true;
    for (int32_t at = 0; ok && at < t->n_dec; at++) {
        if (t->dec[at].kind == DEC_FALLBACK)
            ok = end_run(d, at, out);
        if (t->dec[at].kind == DEC_BYTES && d->n_pending) {
            d->n_pending = 0;
            ok = feed(d, at + 1, "\xEF\xBF\xBD", 3, out);
        }
    }
    return ok;
}

vt_status vt_tokenizer_decode(const vt_tokenizer *t, const int32_t *ids, size_t n,
                              bool skip_special, vt_buf *out, vt_err *err)
{
    vt_detok d;
    vt_detok_init(&d, t);
    d.keep_special = !skip_special;
    bool ok = true;
    for (size_t i = 0; ok && i < n; i++)
        ok = vt_detok_feed(&d, ids[i], out);
    return ok && vt_detok_finish(&d, out) ? VT_OK : tok_no_memory(err);
}

bool vt_tokenizer_piece(const vt_tokenizer *t, int32_t id, vt_buf *buf)
{
    if (id < 0 || id >= t->vocab.n || !(t->vocab.piece[id].flags & PIECE_PRESENT))
        return true;
    const vocab_piece *p = &t->vocab.piece[id];
    const char *s = t->vocab.pool + p->at;
    bool fallback = false;
    for (int32_t i = 0; i < t->n_dec; i++)
        fallback |= t->dec[i].kind == DEC_FALLBACK;
    int byte = fallback ? fallback_byte(s, p->len) : -1;
    if (byte >= 0)
        return vt_buf_putc(buf, (char)byte);
    if (t->byte_level)
        return vt_buf_add(buf, s, p->len);
    /* Otherwise feed it as a later token, which nothing strips or drops for being the first. */
    vt_detok d;
    vt_detok_init(&d, t);
    d.keep_special = true;
    for (int32_t i = 0; i < t->n_dec; i++)
        d.state[i] = t->dec[i].kind == DEC_STRIP ? -1 : t->dec[i].kind == DEC_METASPACE;
    return vt_detok_feed(&d, id, buf) && vt_detok_finish(&d, buf);
}
