/* Byte-pair encoding of one word.
 *
 * The rule: again and again merge the pair with the lowest rank, the leftmost of equals. Words are
 * short, so the usual path keeps the ids and the ranks of neighbouring pairs in two small arrays
 * on the stack and takes the minimum by a scan: no heap, no allocation. Long "words" (a model
 * without pre-tokenizer sees a whole document as one) take bpe_long.c.
 *
 * A cache of words comes first (direct mapped, a cache line per entry, sized by the text's length):
 * 85 % (40 KB of the Bible) to 96 % (600 KB of C++) of a text's words occur in it earlier. The
 * cache belongs to the call, so threads share a tokenizer without locks.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer/internal.h"

enum { SHORT_WORD = 48, NO_RANK = -1 };

static vt_status add_symbol(tok_work *w, size_t *n, int32_t id)
{
    if (*n >= INT32_MAX / 2 ||
        !tok_grow((void **)&w->symbol, &w->cap_symbol, *n + 1, sizeof *w->symbol))
        return tok_no_memory(w->err);
    w->symbol[(*n)++].id = id;
    return VT_OK;
}

/* The id of one character, with the prefix or suffix that pieces carry at its place in the word;
 * -1 if there is no such piece. */
static int32_t char_id(tok_work *w, const char *s, size_t len, bool first, bool last)
{
    const vt_tokenizer *t = w->t;
    bool prefix = t->prefix_len && !first, suffix = t->suffix_len && last;
    if (!prefix && !suffix)
        return len == 1 ? t->byte_id[(unsigned char)*s] : vocab_find(&t->vocab, s, len);
    vt_buf_clear(&w->join);
    if (prefix)
        vt_buf_add(&w->join, t->prefix, t->prefix_len);
    vt_buf_add(&w->join, s, len);
    if (suffix)
        vt_buf_add(&w->join, t->suffix, t->suffix_len);
    return w->join.failed ? -1 : vocab_find(&t->vocab, w->join.data, w->join.len);
}

/* Splits a word into its first symbols: characters (bytes, in a byte-level vocabulary), byte
 * tokens where a character is unknown and all its bytes have one, else the unknown token, else
 * nothing. */
static vt_status first_symbols(tok_work *w, const char *s, size_t n, size_t *count)
{
    const vt_tokenizer *t = w->t;
    int32_t unk = -1;
    *count = 0;
    for (size_t i = 0; i < n;) {
        size_t len = 1;
        if (!t->byte_level && (s[i] & 0x80)) {
            int step = t->keep_invalid ? vt_utf8_step(s + i, n - i) : 0;
            uint32_t c;
            len = t->keep_invalid ? (size_t)(step > 0 ? step : 1) : (size_t)vt_utf8_next(s + i, &c);
        }
        int32_t id = char_id(w, s + i, len, i == 0, i + len == n);
        size_t covered = 0;
        if (id < 0 && t->byte_fallback)
            while (covered < len && t->fallback_id[(unsigned char)s[i + covered]] >= 0)
                covered++;
        if (id >= 0) {
            if (unk >= 0)
                TRY(add_symbol(w, count, unk));
            unk = -1;
            TRY(add_symbol(w, count, id));
        } else if (covered == len) {
            /* A waiting unknown token comes out after these, as in Hugging Face. */
            for (size_t k = 0; k < len; k++)
                TRY(add_symbol(w, count, t->fallback_id[(unsigned char)s[i + k]]));
        } else if (t->unk >= 0) {
            if (unk >= 0 && !t->fuse_unk)
                TRY(add_symbol(w, count, unk));
            unk = t->unk;
        }
        i += len;
    }
    return unk >= 0 ? add_symbol(w, count, unk) : VT_OK;
}

static int32_t merge_short(const vocab *v, bpe_symbol *symbol, int32_t n)
{
    uint32_t rank[SHORT_WORD], into[SHORT_WORD];
    int32_t id[SHORT_WORD];
    for (int32_t i = 0; i < n; i++)
        id[i] = symbol[i].id;
    for (int32_t i = 0; i + 1 < n; i++) {
        const vocab_merge *m = vocab_find_merge(v, (uint32_t)id[i], (uint32_t)id[i + 1]);
        rank[i] = m ? m->rank : UINT32_MAX;
        into[i] = m ? m->id : 0;
    }
    while (n > 1) {
        int32_t at = 0;
        for (int32_t i = 1; i + 1 < n; i++)
            if (rank[i] < rank[at])
                at = i;
        if (rank[at] == UINT32_MAX)
            break;
        id[at] = (int32_t)into[at];
        n--;
        for (int32_t i = at + 1; i < n; i++) {
            id[i] = id[i + 1];
            rank[i - 1] = rank[i];
            into[i - 1] = into[i];
        }
        for (int32_t i = at > 0 ? at - 1 : 0; i <= at && i + 1 < n; i++) {
            const vocab_merge *m = vocab_find_merge(v, (uint32_t)id[i], (uint32_t)id[i + 1]);
            rank[i] = m ? m->rank : UINT32_MAX;
            into[i] = m ? m->id : 0;
        }
    }
    for (int32_t i = 0; i < n; i++)
        symbol[i].id = id[i];
    return n;
}

static vt_status merge_long(tok_work *w, size_t *count)
{
    if (!w->merging)
        w->merging = vt_calloc(1, sizeof *w->merging);
    return w->merging && bpe_merge_long(w->merging, &w->t->vocab, w->symbol, count)
               ? VT_OK
               : tok_no_memory(w->err);
}

/* Appends an id. One that exists only between merges is replaced by the tokens of its bytes. */
static vt_status emit(tok_work *w, int32_t id)
{
    const vt_tokenizer *t = w->t;
    if (id < t->vocab.n)
        return tok_push(w->out, id) ? VT_OK : tok_no_memory(w->err);
    size_t len;
    const char *s = vocab_bytes(&t->vocab, id, &len);
    for (size_t i = 0; i < len; i++) {
        int32_t one = t->byte_level ? t->byte_id[(unsigned char)s[i]]
                                    : t->fallback_id[(unsigned char)s[i]];
        if (one < 0 || one >= t->vocab.n)
            one = t->unk;
        if (one >= 0 && !tok_push(w->out, one))
            return tok_no_memory(w->err);
    }
    return VT_OK;
}

static vt_status encode_word(tok_work *w, const char *s, size_t n)
{
    const vt_tokenizer *t = w->t;
    if (t->wordpiece)
        return wordpiece_word(w, s, n);
    if (t->unigram)
        return unigram_word(w, s, n);
    if (t->ignore_merges) {
        int32_t id = vocab_find(&t->vocab, s, n);
        if (id >= 0 && id < t->vocab.n)
            return tok_push(w->out, id) ? VT_OK : tok_no_memory(w->err);
    }
    size_t count;
    TRY(first_symbols(w, s, n, &count));
    if (count > SHORT_WORD)
        TRY(merge_long(w, &count));
    else if (count > 1)
        count = (size_t)merge_short(&t->vocab, w->symbol, (int32_t)count);
    for (size_t i = 0; i < count; i++)
        TRY(emit(w, w->symbol[i].id));
    return VT_OK;
}

static vt_status cached_word(tok_work *w, const char *word, size_t n)
{
    if (w->t->mapped) {
        vt_buf_clear(&w->unmapped);
        if (!tok_unmap(word, n, &w->unmapped))
            return vt_fail(w->err, w->unmapped.failed ? VT_ERR_MEMORY : VT_ERR_UNSUPPORTED,
                           "tokenizer: a step after ByteLevel put characters into the text that "
                           "are no bytes");
        word = w->unmapped.data;
        n = w->unmapped.len;
    }
    if (n == 1 && w->t->byte_id[(unsigned char)*word] >= 0 &&
        w->t->prefix_len + w->t->suffix_len == 0 && !w->t->unigram)
        return emit(w, w->t->byte_id[(unsigned char)*word]);
    bpe_cached *entry = NULL;
    if (w->cache && n <= sizeof entry->bytes) {
        entry = &w->cache[vocab_hash(&w->t->vocab, word, n) >> 32 & w->cache_mask];
        if (entry->len == n && memcmp(entry->bytes, word, n) == 0) {
            for (int i = 0; i < entry->n; i++)
                if (!tok_push(w->out, entry->id[i]))
                    return tok_no_memory(w->err);
            return VT_OK;
        }
    }
    size_t from = w->out->n;
    TRY(encode_word(w, word, n));
    if (entry && w->out->n - from <= sizeof entry->id / sizeof *entry->id) {
        entry->len = (uint8_t)n;
        entry->n = (uint8_t)(w->out->n - from);
        memcpy(entry->bytes, word, n);
        if (entry->n)
            memcpy(entry->id, w->out->id + from, entry->n * sizeof *entry->id);
    }
    return VT_OK;
}

vt_status bpe_word(tok_work *w, const char *word, size_t n)
{
    const vt_tokenizer *t = w->t;
    while (t->cut_marks && n > 3) {
        const char *mark = memmem(word + 1, n - 1, "\xE2\x96\x81", 3);
        while (mark && t->before_mark[(unsigned char)mark[-1]])
            mark = memmem(mark + 1, (size_t)(word + n - mark - 1), "\xE2\x96\x81", 3);
        if (!mark)
            break;
        TRY(cached_word(w, word, (size_t)(mark - word)));
        n -= (size_t)(mark - word);
        word = mark;
    }
    return n ? cached_word(w, word, n) : VT_OK;
}
