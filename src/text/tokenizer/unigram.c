/* Unigram, SentencePiece's model of XLM-R and T5: of all ways to cut a word into pieces, the one
 * whose scores have the largest sum (Kudo, 2018, arXiv:1804.10959).
 *
 * One pass from the left: at each character, the best sum of every piece that begins there is
 * offered to the place where it ends, and the first of equals stays. A character that is no piece
 * can be passed as unknown, at 10 less than the lowest score; unknown neighbours become one token.
 * Sums are in double precision and begin at 0 with each word, as in Hugging Face, so that ties fall
 * the same way.
 *
 *   end      0      1      2      3          of "abc" with a, b, c, ab, bc
 *   score    0    s(a)   s(ab)  s(a)+s(bc)
 *   start    -      0      0      1          read from the end: "a", "bc"
 *
 * Special tokens are no pieces here: their spelling in a text is text. A file of long pieces could
 * make every place walk deep; nodes of the trie that are visited are counted against a budget in
 * proportion to the text. */
#include <math.h>
#include <string.h>

#include "text/tokenizer/internal.h"

enum { UNKNOWN_PENALTY = 10 };

vt_status unigram_finish(vt_tokenizer *t, vt_err *err)
{
    double lowest = INFINITY;
    for (int32_t id = 0; id < t->vocab.n; id++) {
        const vocab_piece *p = &t->vocab.piece[id];
        if (!(p->flags & PIECE_MODEL))
            continue;
        lowest = t->score[id] < lowest ? t->score[id] : lowest;
        size_t len;
        const char *s = vocab_bytes(&t->vocab, id, &len);
        if (len && !(p->flags & PIECE_SPECIAL) && vocab_find(&t->vocab, s, len) == id)
            TRY(added_trie_add(&t->pieces, s, len, id, err));
    }
    t->unknown_score = lowest - UNKNOWN_PENALTY;
    return VT_OK;
}

/* Offers the place `end` a way to it whose last piece is `id`. */
static void offer(unigram_end *end, double score, int32_t start, int32_t id)
{
    if (end->start >= 0 && !(score > end->score))
        return;
    *end = (unigram_end){.score = score, .start = start, .id = id};
}

/* Offers what begins at `at` to where it ends. False: too many nodes were visited. */
static bool offer_from(tok_work *w, const char *s, size_t n, size_t at, size_t step)
{
    const vt_tokenizer *t = w->t;
    unigram_end *ends = w->ends;
    double score = ends[at].score;
    uint32_t node = 0;
    bool known = false; /* the character alone is a piece */
    for (size_t i = at; i < n; i++) {
        node = added_trie_next(&t->pieces, node, (unsigned char)s[i]);
        if (!node)
            break;
        if (w->unigram_steps == 0)
            return false;
        w->unigram_steps--;
        int32_t id = t->pieces.token[node] - 1;
        if (id < 0)
            continue;
        offer(&ends[i + 1], t->score[id] + score, (int32_t)at, id);
        known = known || i + 1 == at + step;
    }
    if (!known)
        offer(&ends[at + step], t->unknown_score + score, (int32_t)at, t->unk);
    return true;
}

/* Appends the ids of unknown text: byte tokens where the file has them all, else one unknown. */
static bool push_unknown(tok_work *w, const char *s, size_t n)
{
    const vt_tokenizer *t = w->t;
    bool bytes = t->byte_fallback;
    int32_t id = vocab_find(&t->vocab, s, n); /* unknown neighbours may spell a piece */
    if (id >= 0 && !(t->vocab.piece[id].flags & PIECE_SPECIAL))
        return tok_push(w->out, id);
    for (size_t i = 0; bytes && i < n; i++)
        bytes = t->fallback_id[(unsigned char)s[i]] >= 0;
    if (!bytes)
        return tok_push(w->out, t->unk);
    for (size_t i = 0; i < n; i++)
        if (!tok_push(w->out, t->fallback_id[(unsigned char)s[i]]))
            return false;
    return true;
}

/* Follows the best way from its end, turning the links round, and appends its ids. */
static bool push_best(tok_work *w, const char *s, size_t n)
{
    unigram_end *ends = w->ends;
    int32_t unk = w->t->unk, next = -1;
    for (int32_t at = (int32_t)n; at >= 0;) {
        int32_t start = ends[at].start;
        ends[at].start = next; /* from here on: where the piece behind `at` ends */
        next = at;
        at = start;
    }
    for (int32_t at = 0; at < (int32_t)n;) {
        int32_t end = ends[at].start, from = at;
        at = end;
        if (ends[end].id != unk) {
            if (!tok_push(w->out, ends[end].id))
                return false;
            continue;
        }
        while (at < (int32_t)n && ends[ends[at].start].id == unk)
            at = ends[at].start;
        if (!push_unknown(w, s + from, (size_t)(at - from)))
            return false;
    }
    return true;
}

vt_status unigram_word(tok_work *w, const char *word, size_t n)
{
    if (!tok_grow((void **)&w->ends, &w->cap_ends, n + 1, sizeof *w->ends))
        return tok_no_memory(w->err);
    for (size_t i = 0; i <= n; i++)
        w->ends[i] = (unigram_end){.start = -1};
    for (size_t at = 0; at < n;) {
        uint32_t c;
        size_t step = (size_t)vt_utf8_next(word + at, &c);
        if (!offer_from(w, word, n, at, step))
            return vt_fail(w->err, VT_ERR_UNSUPPORTED,
                           "tokenizer: looking for the pieces of this text takes too many steps");
        at += step;
    }
    return push_best(w, word, n) ? VT_OK : tok_no_memory(w->err);
}
