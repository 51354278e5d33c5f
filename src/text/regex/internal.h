/* The parser (parse.c), the compiler (compile.c) and the matcher (regex.c) share this. */
#ifndef VT_TEXT_REGEX_INTERNAL_H
#define VT_TEXT_REGEX_INTERNAL_H

#include "base/mem.h"
#include "text/regex/regex.h"
#include "text/unicode/unicode.h"

/* A set of characters. Below U+0080 it is a bitmap. Above, it is a bit per property record where
 * categories and flags decide alone (`pure`), else this expression:
 *   negate ^ ((category | flag | range | part) & every `also`)
 * The parser merges parts into the set around them and sorts the ranges, so a class of thousands of
 * members usually ends as one sorted list. `cost` is what one look-up above U+007F costs beyond a
 * bit test, in steps of the matcher. */
typedef struct regex_set {
    uint64_t ascii[2];
    uint64_t record[4];    /* if pure: a bit per property record */
    bool pure, ascii_only; /* ascii_only: nothing above U+007F is in it; not pure then */
    bool negate;
    uint16_t flags;
    uint32_t categories;
    int32_t cost;
    uint32_t (*range)[2]; /* [n_range] sorted and apart once the class is finished */
    int32_t n_range, cap_range;
    struct regex_set *part; /* a list of sets that are in this one */
    struct regex_set *also; /* a list of sets to intersect with */
    struct regex_set *next; /* in such a list */
} regex_set;

static inline bool regex_set_ascii(const regex_set *s, unsigned c)
{
    return s->ascii[c >> 6] >> (c & 63) & 1;
}
bool regex_set_has_slow(const regex_set *s, uint32_t c);
static inline bool regex_set_has(const regex_set *s, uint32_t c)
{
    if (c < 0x80)
        return regex_set_ascii(s, c);
    if (s->pure) {
        uint8_t r = vt_uprop_index[vt_uprop_block[c >> 7]][c & 127];
        return s->record[r >> 6] >> (r & 63) & 1;
    }
    return !s->ascii_only && regex_set_has_slow(s, c);
}

typedef enum regex_kind {
    RE_EMPTY,
    RE_SET,
    RE_CAT,
    RE_ALT,
    RE_REPEAT,
    RE_AHEAD,
    RE_NOT_AHEAD,
    RE_BEHIND,
    RE_NOT_BEHIND,
    RE_ATOMIC,
    RE_LINE_START,
    RE_LINE_END,
    RE_TEXT_START,
    RE_TEXT_END,
    RE_TEXT_END_NL,
    RE_WORD_EDGE,
    RE_NOT_WORD_EDGE
} regex_kind;

typedef enum regex_greed { RE_GREEDY, RE_LAZY, RE_POSSESSIVE } regex_greed;

typedef struct regex_node {
    regex_kind kind;
    regex_greed greed;
    int32_t min, max;         /* RE_REPEAT; max -1: no end */
    regex_set *set;           /* RE_SET */
    struct regex_node *child; /* first of a list linked by next (CAT, ALT), or the operand */
    struct regex_node *next;
} regex_node;

typedef enum regex_op {
    OP_SET,    /* one character of set */
    OP_REPEAT, /* set {a, b}, greedy, gives back on failure */
    OP_TAKE,   /* the same, never gives back */
    OP_LAZY,   /* the same, as few as possible */
    OP_ALT,    /* try targets in order; alt[] says which can begin with the next byte */
    OP_SPLIT,  /* try a, then b */
    OP_JUMP,   /* to a */
    OP_MARK,   /* remember the position in slot a */
    OP_MOVED,  /* fail if the position is still slot a's */
    OP_AHEAD,
    OP_NOT_AHEAD, /* program a matches here; continue at b */
    OP_BEHIND,
    OP_NOT_BEHIND, /* the same, `min` characters back, ending here */
    OP_ATOMIC,     /* program a matches here and is not tried again; continue at b after it */
    OP_ASSERT,     /* regex_kind in a */
    OP_MATCH
} regex_op;

typedef struct regex_alt {
    int32_t n;
    int32_t *target;   /* [n] */
    uint64_t can[257]; /* bit i: target i may begin with this byte; [256]: at the end of the text */
} regex_alt;

typedef struct regex_inst {
    regex_op op;
    int32_t a, b;
    int32_t min, max;
    const regex_set *set;
    const regex_set *then; /* OP_REPEAT: the character after it has to be in this set; NULL: any */
    const regex_alt *alt;
} regex_inst;

enum {
    REGEX_MAX_INST = 20000,
    REGEX_MAX_DEPTH = 60,
    REGEX_MAX_SLOT = 64,
    REGEX_MAX_REPEAT = 1000,
    REGEX_MAX_WORK = 4000000,   /* nodes that compiling may visit, copies of repetitions included */
    REGEX_MAX_PARTS = 64,       /* sets inside a class that cannot be merged into it */
    REGEX_MAX_ARENA = 16 << 20, /* bytes of nodes, sets and tables of one pattern */
    REGEX_MAX_FRAMES = 1 << 24  /* of the backtracking stack: 384 MiB */
};

struct vt_regex {
    vt_arena arena;
    regex_inst *inst;
    int32_t n_inst, cap_inst;
    int32_t n_slot;
    uint8_t first[257]; /* may a match begin with this byte; [256]: at the end of the text */
};

vt_status regex_parse(vt_arena *arena, const char *pattern, size_t len, regex_node **out,
                      vt_err *err);

#endif
