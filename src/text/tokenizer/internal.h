/* The parts of the tokenizer share this. The stages, in the order text passes them:
 *
 *   added.c       cuts added tokens out of the text
 *   normalize.c   rewrites what is left (NFC, lower case, replacements, ...)
 *   pretok.c      cuts it into words
 *   bpe.c         merges a word's bytes or characters into tokens; bpe_long.c those of long words
 *   wordpiece.c   or takes the longest pieces from the left (BERT)
 *   unigram.c     or the pieces whose scores have the largest sum (XLM-R)
 *   decode.c      and back
 *
 * from_gguf.c, from_json.c, from_tiktoken.c and synthetic.c fill the struct below with the help of
 * build.c; tokenizer.c runs it; bytes.c and vocab.c are the ground they all stand on. */
#ifndef VT_TEXT_TOKENIZER_INTERNAL_H
#define VT_TEXT_TOKENIZER_INTERNAL_H

#include "text/regex/regex.h"
#include "text/tokenizer/tokenizer.h"
#include "text/unicode/unicode.h"
#include "text/tokenizer/vocab.h"

enum {
    TOK_MAX_STEPS = 16,
    TOK_MAX_AFFIX = 8,
    TOK_MAX_EOS = 32,
    TOK_MAX_ADDED = 4096,   /* bytes of an added token */
    TOK_MAX_SUBWORD = 256,  /* bytes of continuing_subword_prefix and end_of_word_suffix */
    TOK_MAX_MERGED = 512,   /* bytes of a piece that merges are made for (merges.c) */
    TOK_WORD_CHARS = 100,   /* characters of a word that WordPiece cuts, unless the file says so */
    TOK_MAX_DEC_GROWTH = 16 /* times that a decoder may make a token longer */
};

/* ---- added tokens ---- */

typedef struct added_token {
    int32_t id;
    bool special, single_word, lstrip, rstrip, normalized;
    const char *content; /* what is matched: for a normalized token its normal form */
    size_t len;
} added_token;

/* A trie over bytes (added.c). */
typedef struct added_edge {
    uint32_t key, to; /* from node << 8 | byte; to 0: a free slot */
} added_edge;

typedef struct added_trie {
    int32_t *token; /* [cap] per node: index + 1 of the token that ends there; 0: none */
    int32_t n, cap;
    uint32_t first[256]; /* node of each first byte; 0: none */
    added_edge *edge;    /* [edge_mask + 1] hash table */
    uint32_t edge_mask, n_edge;
    uint64_t seed;
} added_trie;

vt_status added_trie_add(added_trie *t, const char *content, size_t len, int32_t token,
                         vt_err *err);
/* The node after `node` for a byte; 0: none. Node 0 is the root. */
uint32_t added_trie_next(const added_trie *t, uint32_t node, unsigned char b);
void added_trie_release(added_trie *t);

typedef struct added_match {
    size_t start, end; /* with stripped spaces */
    const added_token *token;
} added_match;

/* A search through one text. Fill it in with at = from = 0. */
typedef struct added_search {
    const added_trie *trie;
    const added_token *tokens;
    const char *text;
    size_t n;
    size_t at;   /* where to look next */
    size_t from; /* end of the last match; stripped spaces of the next end here */
    bool special;
    const vt_text_range *literal; /* [n_literal] no special token may touch these: sorted, apart */
    size_t n_literal;
    uint64_t *steps; /* how many more edges may be followed */
} added_search;
/* The next added token: 1, or 0 if there is none, or -1 when steps ran out. Special tokens are
 * passed over unless `special`, and in literal ranges. */
int added_next(added_search *s, added_match *m);

/* ---- normalizers ---- */

typedef enum norm_kind {
    NORM_FORM,
    NORM_LOWER,
    NORM_ACCENTS,
    NORM_STRIP,
    NORM_PREPEND,
    NORM_REPLACE,
    NORM_BYTES,
    NORM_CLEAN, /* BERT: control characters vanish, white space becomes a space, */
    NORM_CJK,   /* spaces stand around Chinese characters, */
    NORM_MARKS, /* and nonspacing marks vanish */
    NORM_CHARSMAP
} norm_kind;

/* SentencePiece's character map (charsmap.c). */
typedef struct charsmap {
    const uint32_t *unit; /* [n_units] */
    uint32_t n_units;
    const char *text; /* [n_text] */
    size_t n_text;
    bool longest; /* as SentencePiece looks strings up; else as Hugging Face does */
} charsmap;

/* Reads a map's bytes; `name` is the file's. */
vt_status charsmap_read(vt_tokenizer *t, const char *name, const void *bytes, size_t n,
                        bool longest, const charsmap **out, vt_err *err);
/* Appends what the beginning of s (valid UTF-8, n > 0) becomes, and returns the bytes it took. */
size_t charsmap_next(const charsmap *m, const char *s, size_t n, vt_buf *out);

typedef struct norm_step {
    norm_kind kind;
    vt_uform form;
    bool left, right;              /* NORM_STRIP */
    const char *pattern, *content; /* NORM_REPLACE; NORM_PREPEND has content */
    size_t pattern_len, content_len;
    vt_regex *regex;     /* NORM_REPLACE by regex: owned */
    const charsmap *map; /* NORM_CHARSMAP */
} norm_step;

/* Working memory of normalising, for one text or for all added tokens of a file. */
typedef struct norm_work {
    vt_regex_scratch *regex;
    vt_buf buffer[2];
    size_t left[TOK_MAX_STEPS]; /* bytes that each step may still make */
} norm_work;

/* ---- pre-tokenizers ---- */

typedef enum split_behaviour {
    SPLIT_REMOVED,
    SPLIT_ISOLATED,
    SPLIT_WITH_PREVIOUS,
    SPLIT_WITH_NEXT,
    SPLIT_CONTIGUOUS
} split_behaviour;
typedef enum pre_kind {
    PRE_REGEX,
    PRE_STRING,
    PRE_DIGITS,
    PRE_DIGIT_RUNS,
    PRE_PUNCTUATION,
    PRE_SPACE,
    PRE_WORDS,
    PRE_CHAR_GROUPS,
    PRE_METASPACE,
    PRE_BYTES,
    PRE_MAP
} pre_kind;
typedef enum prepend_scheme { PREPEND_ALWAYS, PREPEND_FIRST, PREPEND_NEVER } prepend_scheme;

typedef struct pre_step {
    pre_kind kind;
    split_behaviour behaviour;
    bool invert;
    vt_regex *regex;    /* PRE_REGEX, and PRE_BYTES with its own pattern: owned */
    const char *string; /* PRE_STRING, PRE_METASPACE's replacement */
    size_t string_len;
    bool prefix_space; /* PRE_BYTES */
    bool split;        /* PRE_METASPACE */
    prepend_scheme scheme;
    int32_t group; /* PRE_CHAR_GROUPS */
} pre_step;

/* ---- decoders ---- */

typedef enum dec_kind {
    DEC_BYTES,
    DEC_METASPACE,
    DEC_FALLBACK,
    DEC_FUSE,
    DEC_STRIP,
    DEC_REPLACE,
    DEC_SPACES,
    DEC_WORDPIECE
} dec_kind;

typedef struct dec_step {
    dec_kind kind;
    bool fused;      /* the step sees parts of one string, no longer a list of tokens */
    bool drop_first; /* DEC_METASPACE: replacements in the first token vanish */
    bool cleanup;    /* DEC_WORDPIECE: no space in front of punctuation */
    const char *pattern, *content;
    size_t pattern_len, content_len;
    int32_t start, stop; /* DEC_STRIP */
} dec_step;

/* ---- all of it ---- */

/* vt_tokenizer_least computes with this (bound.c). */
typedef struct tok_bound {
    size_t token_bytes; /* of a text, that one token stands for at most; 0: no bound is known */
    bool drops_space;   /* white space may vanish and does not count, */
    bool drops_bytes;   /* and neither do bytes that are not in `keeps` */
    bool keeps[256];
} tok_bound;

struct vt_tokenizer {
    vt_arena arena;
    vocab vocab;
    vocab spelled; /* spellings that vocab_find misses; piece i of it spells token spelled_id[i] */
    int32_t *spelled_id, n_spelled_cap;

    added_token *added;
    int32_t n_added, cap_added;
    int32_t *added_at; /* [cap_added_at] index + 1 of the added token of an id; 0: none */
    int32_t cap_added_at;
    added_trie raw, normalized;

    norm_step norm[TOK_MAX_STEPS];
    int32_t n_norm;
    pre_step pre[TOK_MAX_STEPS];
    int32_t n_pre;
    dec_step dec[TOK_MAX_STEPS];
    int32_t n_dec;

    /* The model. */
    bool byte_level; /* pieces hold bytes; a spelling maps each byte to a printable character */
    bool mapped;     /* words arrive in that alphabet, since steps follow after the mapping */
    bool byte_fallback, fuse_unk, ignore_merges;
    bool keep_invalid; /* ill-formed UTF-8 goes to the model byte by byte instead of as U+FFFD */
    int32_t unk;       /* -1: none */
    const char *prefix,
        *suffix; /* of pieces inside and at the end of a word; empty for nearly all */
    size_t prefix_len, suffix_len;
    int32_t most_chars;       /* wordpiece: of a word; a longer one is unknown */
    bool wordpiece;           /* the model takes the longest pieces from the left */
    bool unigram;             /* the model takes the pieces with the largest sum of scores */
    double *score;            /* unigram: [vocab.n] */
    double unknown_score;     /* unigram: of an unknown character */
    added_trie pieces;        /* unigram: all but the special ones, their ids as tokens */
    bool cut_marks;           /* a word may be cut in front of U+2581, but for before_mark */
    bool before_mark[256];    /* some piece has U+2581 after a character that ends with this byte */
    int32_t byte_id[256];     /* id of a one-byte piece; -1 */
    int32_t fallback_id[256]; /* id of "<0xXX>"; -1 */

    int32_t bos, eos; /* -1: none */
    bool add_bos;
    int32_t affix[TOK_MAX_AFFIX]; /* what add_bos puts in front */
    int32_t n_affix;
    int32_t tail[TOK_MAX_AFFIX]; /* what a text that is embedded has behind it */
    int32_t n_tail;
    /* A pair of texts: affix, the first, `middle`, the second, tail. */
    bool pairs;      /* false: the file does not say how */
    bool pair_types; /* the second text is of another type */
    int32_t middle[TOK_MAX_AFFIX], n_middle;
    int32_t eos_ids[TOK_MAX_EOS];
    int32_t n_eos_ids;
    tok_bound bound;
};

/* The best way to a place in a word (unigram.c). */
typedef struct unigram_end {
    double score;
    int32_t start, id; /* of its last piece; start -1: there is no way yet */
} unigram_end;

/* Working memory of one encode call. */
typedef struct bpe_symbol {
    int32_t id; /* -1: merged away */
    int32_t prev, next;
} bpe_symbol;

/* A pair of neighbours in a long word that may merge (bpe_long.c). */
typedef struct bpe_candidate {
    int32_t pos;  /* of its left symbol */
    uint32_t id;  /* that it merges into */
    int32_t next; /* of the same run, or of the free list; -1: none */
} bpe_candidate;

/* Candidates of one rank in ascending order of position. */
typedef struct bpe_run {
    uint32_t rank;
    int32_t head, tail; /* head -1: the run is free, and `tail` is the next free one */
    int32_t last_pos;   /* of `tail` */
} bpe_run;

typedef struct bpe_heap_entry {
    uint32_t rank;
    int32_t pos; /* of the run's first candidate */
    int32_t run;
} bpe_heap_entry;

enum { BPE_OPEN_RUNS = 4096 };

/* Working memory of bpe_merge_long; all zero to begin with. */
typedef struct bpe_long {
    bpe_candidate *candidate;
    size_t n_candidates, cap_candidate;
    bpe_run *run;
    size_t n_runs, cap_run;
    bpe_heap_entry *heap;
    size_t n_heap, cap_heap;
    int32_t free_candidate, free_run;
    int32_t open_run[BPE_OPEN_RUNS]; /* a run of rank r may be at r % BPE_OPEN_RUNS */
} bpe_long;

typedef struct bpe_cached { /* one cache line; words of at most 30 bytes and 8 tokens */
    char bytes[30];
    uint8_t len, n;
    int32_t id[8];
} bpe_cached;

typedef struct tok_work {
    const vt_tokenizer *t;
    vt_ids *out;
    vt_err *err;
    unsigned flags;
    vt_regex_scratch regex;
    uint64_t added_steps; /* edges of the added tokens' tries that may still be followed */
    vt_text_range *part;  /* literal ranges inside the part being normalised */
    size_t n_part, cap_part;
    bpe_symbol *symbol;
    size_t cap_symbol;
    unigram_end *ends;
    size_t cap_ends;
    uint64_t unigram_steps; /* nodes of t->pieces that may still be visited */
    bpe_long *merging;      /* NULL: no long word has come yet */
    bpe_cached *cache;
    uint32_t cache_mask;
    vt_buf step[TOK_MAX_STEPS]; /* text made by pre-tokenizer step i ... */
    size_t left[TOK_MAX_STEPS]; /* ... and how many bytes it may still make */
    norm_work norm;
    vt_buf unmapped, join;
} tok_work;

bool tok_push(vt_ids *ids, int32_t id);
vt_status tok_no_memory(vt_err *err);
/* Makes room for `want` elements of `size` bytes in an array that is grown by realloc. */
bool tok_grow(void **p, size_t *cap, size_t want, size_t size);

/* Cuts text into words, from step `at` on, and gives each to bpe_word. `first`: it begins the
 * whole text. */
vt_status pre_tokenize(tok_work *w, int32_t at, const char *text, size_t n, bool first);
vt_status bpe_word(tok_work *w, const char *word, size_t n);
/* Appends the ids of a word's longest pieces from the left, or the unknown token. */
vt_status wordpiece_word(tok_work *w, const char *word, size_t n);
/* Appends the ids of the pieces whose scores have the largest sum. */
vt_status unigram_word(tok_work *w, const char *word, size_t n);
/* Makes the trie of pieces, after all special tokens are known. */
vt_status unigram_finish(vt_tokenizer *t, vt_err *err);
/* Adds the steps of BERT's text form. */
vt_status tok_add_bert_norm(vt_tokenizer *t, bool clean, bool cjk, bool strip, bool lower,
                            vt_err *err);
/* Merges the symbols' ids until no pair merges; *count becomes the number of those left. False:
 * out of memory. */
bool bpe_merge_long(bpe_long *l, const vocab *v, bpe_symbol *symbol, size_t *count);
void bpe_long_release(bpe_long *l);
/* Returns how many bytes one rewriting step may make in all of a text of n bytes. */
size_t tok_growth(size_t n);

/* Begins normalising texts of n bytes in all. */
void norm_work_init(norm_work *w, vt_regex_scratch *regex, size_t n);
void norm_work_release(norm_work *w);
/* *text, *n become the normal form; owned by w until the next call. The n_part literal ranges
 * `part` of the text become the ranges of the normal form that were made from them. */
vt_status norm_apply(const vt_tokenizer *t, norm_work *w, vt_text_range *part, size_t *n_part,
                     const char **text, size_t *n, vt_err *err);

/* ---- building ---- */

vt_status tok_new(vt_tokenizer **out, vt_err *err);
/* Adds spelling `s` under id: mapped back to bytes where the vocabulary is byte-level. */
vt_status tok_set_piece(vt_tokenizer *t, int32_t id, const char *s, size_t n, uint32_t flags,
                        vt_err *err);
/* Adds an added token; given again for an id, the later description counts for the first content.
 */
vt_status tok_add_added(vt_tokenizer *t, const added_token *a, vt_err *err);
/* The added token of an id; NULL if it is none. */
const added_token *tok_added_of(const vt_tokenizer *t, int32_t id);
vt_status tok_add_split(vt_tokenizer *t, const char *pattern, split_behaviour behaviour,
                        bool invert, vt_err *err);
vt_status tok_add_bytes(vt_tokenizer *t, bool prefix_space, bool use_regex, vt_err *err);
/* Merges for a vocabulary that lists none: two pieces that together spell a third merge, at that
 * one's rank. */
vt_status tok_merges_from_pieces(vt_tokenizer *t, const uint32_t *rank /* [vocab.n] */,
                                 vt_err *err);
/* The same, ranked by id. */
vt_status tok_merges_by_id(vt_tokenizer *t, vt_err *err);
void tok_add_eos(vt_tokenizer *t, int32_t id);
/* Makes n copies of `token` what stands between two texts; `types`: the second has its own type. */
void tok_set_pair(vt_tokenizer *t, int32_t token, int32_t n, bool types);
/* After all pieces, merges and added tokens: byte tables, tries, eos ids by well-known names. */
vt_status tok_finish(vt_tokenizer *t, vt_err *err);
/* Sets t->bound, when all else of the tokenizer is known. */
void tok_find_bound(vt_tokenizer *t);

/* The byte-level alphabet: byte to character and back (-1: not in the alphabet). */
uint32_t tok_byte_char(unsigned char byte);
int32_t tok_char_byte(uint32_t c);
/* Decodes s[0..n), padded or not, and appends it; false if it is not base64. */
bool tok_base64(const char *s, size_t n, vt_buf *out);
/* Spelling to bytes; false if a character is not in the alphabet. Appends. */
bool tok_unmap(const char *s, size_t n, vt_buf *out);

extern const char tok_gpt2_pattern[];
/* Pre-tokenizer, normalizer and flags for a tokenizer.ggml.pre name. */
vt_status tok_apply_pre_name(vt_tokenizer *t, const char *path, const char *name, size_t len,
                             bool *add_bos, vt_err *err);

#endif
