/* A vocabulary as grammars see it: a trie over the bytes of its tokens, and which of them strings
 * of characters take. Made once for a tokenizer, shared by all grammars and threads. */
#ifndef VT_GRAMMAR_VOCAB_H
#define VT_GRAMMAR_VOCAB_H

#include <pthread.h>

#include "base/buf.h"
#include "grammar/trie.h"
#include "text/tokenizer/tokenizer.h"

enum { VOCAB_MAX_EOS = 16, SEED_MASKS = 41, VOCAB_MAX_SEEDS = 64 };

/* Special tokens are their spelling behind this byte, which is in no text: so a grammar allows one
 * only where it names it (grammar_vocab_mark). */
enum { VOCAB_SPECIAL = 0xFF };

/* The tokens inside a quoted string of characters R{m,n}, whatever m and n are. Strings of any
 * schema over the same R share it. */
typedef struct seed {
    uint64_t hash; /* R's */
    int32_t *id;   /* [n] tokens without a closing quote, those of the fewest characters first */
    int32_t *upto; /* [most + 1] how many of them have at most so many characters */
    int32_t n, most;
    uint32_t *mask[SEED_MASKS]; /* of tokens with at most i characters; NULL: not made yet */
    uint32_t *all;              /* of all of id[] */
    uint32_t *whole;            /* of those that end with a whole character */
    trie *tail;                 /* [n_tails] what follows the closing quote behind i characters */
    int32_t n_tails;
    int32_t far; /* bytes that end the longest unfinished character, and the quote */
} seed;

/* A set of characters, as far as it matters which tokens hold one: a bit for each ASCII byte, and
 * two in place of bytes that are in no text. */
enum {
    CHARS_ODD = 0, /* no UTF-8 by itself, a control character but for blanks, U+2028 or U+2029 */
    CHARS_WIDE = 1 /* a character beyond ASCII */
};
typedef struct char_bits {
    uint64_t bit[2];
} char_bits;

/* Splits (machine.h) that grammars over the vocabulary share. A place belongs to a lexer state by
 * its hash; four places side by side are one hash's. */
enum { SHELF_PLACES = 2048, SHELF_SIDE = 4, SHELF_BYTES = 32 << 20 };
typedef struct shelf {
    pthread_mutex_t lock;
    struct shelf_place {
        uint64_t hash;
        struct split *split; /* NULL: free */
        int32_t farther;     /* the state's */
        bool used;           /* since the hand came by */
    } place[SHELF_PLACES];
    size_t bytes;
    int32_t hand; /* the place that is the next to be freed */
} shelf;

/* Blocks of 1, 4 and 16 characters. */
enum { HOLDS_LEVELS = 3, HOLDS_ROWS = 128 + 32 + 8 };
#define HOLDS_BLOCK(level) (1 << 2 * (level))

typedef struct vt_grammar_vocab {
    int32_t n, n_words; /* ids, and words of 32 bits for them */
    int32_t longest;    /* bytes of a token, at most */
    char *bytes;        /* of all tokens, one after the other */
    uint32_t *from;     /* [n + 1] where a token's bytes begin; none: it is in no grammar */
    trie all;
    int32_t child[256];        /* the root's children; -1 */
    int32_t *below_child[256]; /* [256] theirs, where they are many; NULL */
    char_bits *below;          /* [all.n] the characters of the tokens in a node's subtree */
    trie_node *quoted;  /* [n_quoted] the nodes of `all` with a quote in them or below them */
    int32_t *quoted_at; /* [n_quoted] which these are */
    int32_t n_quoted;
    uint8_t *chars;  /* [n] how many characters a token is, if it is whole ones */
    uint32_t *holds; /* [HOLDS_ROWS][n_words] the tokens with a character of a block */
    int32_t *few;    /* the same as ids, of the rows with few tokens */
    int32_t few_from[HOLDS_ROWS], few_n[HOLDS_ROWS]; /* where a row's begin; -1: it has many */
    char_bits held;                                  /* the characters that some token holds */
    uint32_t *text;                                  /* [n_words] the tokens that have bytes */
    int32_t eos[VOCAB_MAX_EOS], n_eos;
    pthread_mutex_t lock; /* of the seeds */
    seed *seed[VOCAB_MAX_SEEDS];
    int32_t n_seeds;
    shelf shelf;
} vt_grammar_vocab;

static inline int32_t grammar_piece_len(const vt_grammar_vocab *v, int32_t id)
{
    return (int32_t)(v->from[id + 1] - v->from[id]);
}

/* The row of the block of a level that character k begins. */
static inline int grammar_vocab_row(int level, int k)
{
    return level == 0 ? k : level == 1 ? 128 + k / 4 : 160 + k / 16;
}

static inline uint32_t *grammar_vocab_holds(const vt_grammar_vocab *v, int level, int k)
{
    return v->holds + (size_t)grammar_vocab_row(level, k) * (size_t)v->n_words;
}

static inline bool chars_within(char_bits a, char_bits b)
{
    return !(a.bit[0] & ~b.bit[0]) && !(a.bit[1] & ~b.bit[1]);
}

/* Adds what a byte is a character of, or a part of one. */
void grammar_vocab_char(char_bits *c, int byte);
/* Sets the bits of the tokens with a character of a block. */
void grammar_vocab_add(const vt_grammar_vocab *v, int level, int k, uint32_t *bits);
/* Sets the bits of the tokens that hold no other characters than these, and clears the others. */
void grammar_vocab_of(const vt_grammar_vocab *v, char_bits chars, uint32_t *bits);
/* The node that these bytes lead to; -1: no token begins with them. */
int32_t grammar_vocab_find(const vt_grammar_vocab *v, const char *bytes, int32_t n);
/* Appends a text, in which each spelling of a special token stands for that token. */
bool grammar_vocab_mark(const vt_grammar_vocab *v, const char *text, vt_buf *out);
void seed_free(seed *s);
void shelf_release(shelf *s);

#endif
