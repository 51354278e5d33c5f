/* WordPiece, BERT's model: of a word, the longest piece that begins it, then the longest that goes
 * on, and so on. Pieces inside a word carry a prefix ("##"). A word that cannot be cut so, or has
 * too many characters, is one unknown token. */
#include <string.h>

#include "text/tokenizer/internal.h"

static size_t count_chars(const char *s, size_t n)
{
    size_t chars = 0;
    for (size_t i = 0; i < n; i++)
        chars += ((unsigned char)s[i] & 0xC0) != 0x80;
    return chars;
}

/* Returns the id of the longest piece that begins s[0..n), and its length in *len; -1: none. */
static int32_t longest(tok_work *w, const char *s, size_t n, bool inside, size_t *len)
{
    const vt_tokenizer *t = w->t;
    size_t front = inside ? t->prefix_len : 0;
    vt_buf_clear(&w->join);
    vt_buf_add(&w->join, t->prefix, front);
    if (!vt_buf_add(&w->join, s, n))
        return -1;
    for (size_t end = n; end > 0; end--) {
        if (end < n && ((unsigned char)s[end] & 0xC0) == 0x80)
            continue; /* inside a character */
        int32_t id = vocab_find(&t->vocab, w->join.data, front + end);
        if (id >= 0 && id < t->vocab.n) {
            *len = end;
            return id;
        }
    }
    return -1;
}

vt_status wordpiece_word(tok_work *w, const char *word, size_t n)
{
    const vt_tokenizer *t = w->t;
    size_t had = w->out->n, len = 0;
    bool known = count_chars(word, n) <= (size_t)t->most_chars;
    for (size_t at = 0; known && at < n; at += len) {
        int32_t id = longest(w, word + at, n - at, at > 0, &len);
        known = id >= 0;
        if (w->join.failed || (known && !tok_push(w->out, id)))
            return tok_no_memory(w->err);
    }
    if (known)
        return VT_OK;
    w->out->n = had;
    return tok_push(w->out, t->unk) ? VT_OK : tok_no_memory(w->err);
}
