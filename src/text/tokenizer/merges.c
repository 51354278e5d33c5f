/* Merges for vocabularies that list none: SentencePiece files, which rank pieces by score, and
 * tiktoken's, which rank them by id.
 *
 * Two neighbours merge if together they spell a piece. That becomes a merge table at load, so that
 * one encoder serves all files: every piece is cut in two at every place, and where both halves are
 * pieces they merge into it. A piece of n bytes costs n^2 bytes of hashing, so pieces beyond
 * TOK_MAX_MERGED bytes get no merges: real ones are below 200.
 */
#include <stdlib.h>

#include "text/tokenizer/internal.h"

/* A character that occurs in tokens but is none itself becomes a piece between merges, so that
 * merging can begin with it. */
static vt_status add_lone_characters(vt_tokenizer *t, vt_err *err)
{
    uint8_t *seen = vt_calloc(0x110000 / 8, 1);
    if (!seen)
        return tok_no_memory(err);
    vt_status status = VT_OK;
    for (int32_t id = 0; status == VT_OK && id < t->vocab.n; id++) {
        size_t len = t->vocab.piece[id].len;
        for (size_t i = 0;
             (t->vocab.piece[id].flags & PIECE_MODEL) && i < len && status == VT_OK;) {
            char s[4];
            uint32_t c;
            size_t step = (size_t)vt_utf8_next(t->vocab.pool + t->vocab.piece[id].at + i, &c);
            i += step;
            if (seen[c >> 3] >> (c & 7) & 1)
                continue;
            seen[c >> 3] |= (uint8_t)(1u << (c & 7));
            int32_t made;
            vt_utf8_put(c, s);
            if (vocab_find(&t->vocab, s, step) < 0)
                status = vocab_add_between(&t->vocab, s, step, &made, err);
        }
    }
    free(seen);
    return status;
}

vt_status tok_merges_from_pieces(vt_tokenizer *t, const uint32_t *rank, vt_err *err)
{
    vocab *v = &t->vocab;
    if (!t->byte_level)
        TRY(add_lone_characters(t, err));
    for (int32_t id = 0; id < v->n; id++) {
        vocab_piece p = v->piece[id];
        if (!(p.flags & PIECE_MODEL) || p.len > TOK_MAX_MERGED)
            continue;
        const char *s = v->pool + p.at;
        for (uint32_t cut = 1; cut < p.len; cut++) {
            if (!t->byte_level && ((unsigned char)s[cut] & 0xC0) == 0x80)
                continue;
            int32_t a = vocab_find(v, s, cut), b = a < 0 ? -1 : vocab_find(v, s + cut, p.len - cut);
            if (b >= 0)
                TRY(vocab_add_merge(v, a, b, rank[id], id, err));
        }
    }
    return VT_OK;
}

vt_status tok_merges_by_id(vt_tokenizer *t, vt_err *err)
{
    uint32_t *rank = vt_calloc((size_t)t->vocab.n + 1, sizeof *rank);
    if (!rank)
        return tok_no_memory(err);
    for (int32_t id = 0; id < t->vocab.n; id++)
        rank[id] = (uint32_t)id;
    vt_status status = tok_merges_from_pieces(t, rank, err);
    free(rank);
    return status;
}
