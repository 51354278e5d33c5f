/* The batch: what one forward pass works on. Any sequence may bring q_len >= 1 new tokens and ask
 * for logits anywhere, so chunked prefill, decode, scoring and speculation are one path.
 *
 *   tokens     0 1 2 3 | 4 | 5 6 7    three sequences: a chunk of 4, a decode, a chunk of 3
 *   q_start    0         4   5       8
 *   n_decode   sequences 0 .. n_decode-1 are decodes: a step puts them first, so the picture above
 *              would really start with the sequence of token 4. Earlier steps have stored all KV of
 *              a decode except that of its own tokens. So a device may read it before this step's
 *              KV is stored (the simulator checks that). The scheduler's bring one token each; ops
 *              take decodes of 1 to VT_DECODE_MOST tokens
 *   n_drafted  the next n_drafted sequences are decodes too, of 2 tokens or more, of which all but
 *              the first are guesses. A CPU runs them like the sequences behind them; the CUDA
 *              executor counts them to n_decode where its limits allow (vt_limits.decode_tokens)
 *   kv_len     per sequence, after this step's tokens have been stored
 *   pages      CSR: page_start[s] .. page_start[s+1] index page_ids
 *   window_..  the same for layers with a sliding window, where these have pages of their own: a
 *              page that lies behind the window of all tokens here has no number any more, and 0
 *              stands for it
 *   row_token  the tokens whose logits are wanted, ascending
 *
 * Arrays are int32 so that a device can use them as they are. They belong to the code that built
 * the batch, and stay in place until the step has ended. */
#ifndef VT_OPS_BATCH_H
#define VT_OPS_BATCH_H

#include <stdint.h>

/* The first n_tokens slots of page `from` go to page `to`, in every layer's K and V (a prefix hit
 * that ends inside a page). */
typedef struct vt_page_copy {
    int32_t from, to, n_tokens;
} vt_page_copy;

enum { VT_DECODE_MOST = 8 }; /* tokens of a decode */

typedef struct vt_batch {
    int32_t n_tokens, n_seqs, n_decode, n_drafted, n_rows, n_pages;
    int32_t page_size;
    const int32_t
        *token; /* [n_tokens] ids; -1-k: take the token pool's slot k (sampled last step) */
    const int32_t *position; /* [n_tokens] absolute, from 0 */
    const int32_t *seq_of;   /* [n_tokens] which sequence */
    const int32_t *slot; /* [n_tokens] page * page_size + position % page_size: where its KV goes */
    const int32_t *q_start;     /* [n_seqs + 1] */
    const int32_t *kv_len;      /* [n_seqs] */
    const int32_t *page_start;  /* [n_seqs + 1] */
    const int32_t *page_ids;    /* [n_pages] */
    const int32_t *row_token;   /* [n_rows] */
    const vt_page_copy *copies; /* [n_copies], done before the forward pass */
    int32_t n_copies;
    /* NULL: the layers with a window use the pages of the others */
    const int32_t *window_slot;        /* [n_tokens] */
    const int32_t *window_page_ids;    /* [n_pages] */
    const int32_t *window_page_start;  /* [n_seqs + 1]; NULL: they are page_start */
    const vt_page_copy *window_copies; /* [n_copies] */
    int32_t window; /* of a batch whose page_ids are window pages: what its layers see of a
                       sequence, in tokens; 0: they see all */
    /* Of a model with sequence state, else NULL: [n_seqs] the state slot that holds the state
     * before the sequence's first token here (-1: it begins at position 0, from zeros), and the
     * slot that gets the state behind its last one. They may be the same. A slot that a sequence
     * writes is neither read nor written by another one of the step. */
    const int32_t *state_from, *state_to;
    /* [n_tokens] of a sequence that brings guesses, for each of its tokens but the last: the slot
     * that gets the state behind it. -1: none; NULL: no sequence brings guesses. That of the
     * sequence's first token here, and no other, may be its state_from. */
    const int32_t *state_behind;
    const void *hidden;    /* of an MTP head, else NULL: [n_tokens, hidden], the hidden state of the
                           token before each of them, in the program's type */
    const int32_t *second; /* [n_seqs] position where the second of a sequence's two texts
                                  begins; 0: it has one text; NULL: all have */
    const int32_t *adapter;   /* [n_seqs] which adapter a sequence has, from 1 (ops/lora/lora.h); 0:
                                 none; NULL: no sequence has one */
    const int32_t *shared_kv; /* for a batch without pages, of which only costs are asked:
                                  [n_decode] from shared_kv_find (ops/shared_kv.h); may be NULL */
} vt_batch;

/* Returns the row behind the segment that begins with row `first`. A segment is the rows of one
 * sequence, which follow each other. */
static inline int32_t vt_segment_end(const vt_batch *b, int32_t first)
{
    int32_t end = first + 1, seq = b->seq_of[b->row_token[first]];
    while (end < b->n_rows && b->seq_of[b->row_token[end]] == seq)
        end++;
    return end;
}

/* Returns how many segments a batch with host arrays has. */
static inline int32_t vt_segment_count(const vt_batch *b)
{
    int32_t n = 0;
    for (int32_t row = 0; row < b->n_rows; row = vt_segment_end(b, row))
        n++;
    return n;
}

#endif
