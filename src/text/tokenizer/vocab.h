/* A vocabulary: ids to bytes, bytes to ids, and pairs of ids to what they merge into. */
#ifndef VT_TEXT_VOCAB_H
#define VT_TEXT_VOCAB_H

#include "base/err.h"
#include "base/mem.h"

enum {
    PIECE_PRESENT = 1,
    PIECE_MODEL = 2,   /* the model itself can produce it: vocab_find finds it */
    PIECE_ADDED = 4,   /* matched in the text before the model sees it */
    PIECE_SPECIAL = 8, /* an added token with a meaning beyond its text */
    PIECE_LITERAL =
        16, /* its spelling is no byte-level text though the vocabulary is: bytes as spelled */
    PIECE_BYTE = 32,     /* "<0xXX>" */
    PIECE_REWRITTEN = 64 /* an added token that decodes to its normal form, which differs */
};

enum { VOCAB_MAX = 1 << 22, VOCAB_MAX_BYTES = 1 << 28, VOCAB_MAX_PIECE = 1 << 20 };

typedef struct vocab_piece {
    uint32_t at, len; /* in vocab.pool */
    uint32_t flags;
} vocab_piece;

typedef struct vocab_merge {
    uint32_t a, b; /* ids; a == UINT32_MAX: the slot is free */
    uint32_t rank; /* lowest first */
    uint32_t id;
} vocab_merge;

typedef struct vocab {
    int32_t n;     /* ids 0 .. n-1; may have holes */
    int32_t n_all; /* n, and the pieces that exist only between merges */
    int32_t cap;
    vocab_piece *piece; /* [cap] */
    char *pool;
    size_t pool_len, pool_cap;
    uint64_t *slot; /* [mask + 1] hash << 32 | id + 1; 0: free */
    uint32_t mask, used;
    vocab_merge *merge; /* [1 << merge_bits] */
    int merge_bits;
    uint32_t merge_used;
    uint64_t secret[2]; /* of both hash tables; the second is odd */
} vocab;

/* Begins an empty vocabulary. */
void vocab_init(vocab *v);

void vocab_release(vocab *v);
/* Makes room for that many pieces, bytes and merges beforehand; the tables still grow beyond. */
vt_status vocab_reserve(vocab *v, size_t pieces, size_t bytes, size_t merges, vt_err *err);
/* Sets piece `id` (growing n over a hole if need be). With PIECE_MODEL it can be found by
 * vocab_find; of two equal pieces the later is found. */
vt_status vocab_set(vocab *v, int32_t id, const char *bytes, size_t len, uint32_t flags,
                    vt_err *err);
/* The id of these bytes among PIECE_MODEL pieces; -1 if there is none. */
int32_t vocab_find(const vocab *v, const char *bytes, size_t len);
/* Adds a piece that exists only between merges: vocab_find finds it, no text ever gets its id. */
vt_status vocab_add_between(vocab *v, const char *bytes, size_t len, int32_t *id, vt_err *err);
/* a and b merge into id. A pair given twice keeps its last rank. */
vt_status vocab_add_merge(vocab *v, int32_t a, int32_t b, uint32_t rank, int32_t id, vt_err *err);

/* The two halves of a 128-bit product, folded. */
static inline uint64_t vocab_fold(uint64_t a, uint64_t b)
{
    unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint32_t vocab_merge_slot(const vocab *v, uint32_t a, uint32_t b)
{
    return (uint32_t)(vocab_fold(((uint64_t)a << 32 | b) ^ v->secret[0], v->secret[1]) >>
                      (64 - v->merge_bits));
}

/* NULL if the pair does not merge. */
static inline const vocab_merge *vocab_find_merge(const vocab *v, uint32_t a, uint32_t b)
{
    uint32_t mask = (1u << v->merge_bits) - 1;
    for (uint32_t i = vocab_merge_slot(v, a, b);; i = (i + 1) & mask) {
        const vocab_merge *m = &v->merge[i];
        if (m->a == a && m->b == b)
            return m;
        if (m->a == UINT32_MAX)
            return NULL;
    }
}

static inline const char *vocab_bytes(const vocab *v, int32_t id, size_t *len)
{
    *len = v->piece[id].len;
    return v->pool + v->piece[id].at;
}

/* Wyhash-like mixing, eight bytes a step. Every step multiplies by a secret, so a file
 * cannot be written whose tokens share a hash (a known bijection can be run backwards). */
static inline uint64_t vocab_hash(const vocab *v, const char *bytes, size_t len)
{
    uint64_t h = v->secret[0] ^ len, word;
    for (; len >= 8; bytes += 8, len -= 8) {
        __builtin_memcpy(&word, bytes, 8);
        h = vocab_fold(h ^ word, v->secret[1]);
    }
    word = 0;
    if (len >= 4) { /* the rest, from both its ends; the length is in h already */
        uint32_t low, high;
        __builtin_memcpy(&low, bytes, 4);
        __builtin_memcpy(&high, bytes + len - 4, 4);
        word = low | (uint64_t)high << 32;
    } else if (len > 0) {
        const unsigned char *b = (const unsigned char *)bytes;
        word = b[0] | (uint64_t)b[len / 2] << 8 | (uint64_t)b[len - 1] << 16;
    }
    return vocab_fold(h ^ word, v->secret[1]);
}

#endif
