/* Regular expressions over bytes, and the automata that they are.
 *
 * A node is made once: two equal expressions are one number. The derivative of an expression by a
 * byte is the expression of what may follow that byte (Brzozowski, 1964; Owens, Reppy and Turon,
 * 2009). So an expression is a state of an automaton, made when it is reached, and intersection and
 * complement need no construction of their own.
 *
 *   "ab|ac"  --a-->  "b|c"  --b-->  ""  which accepts
 *
 * Laws that hold on making keep the number of states small: unions and intersections are sorted and
 * flat, units and zeros vanish, and a union of two expressions with one beginning shares it. */
#ifndef VT_GRAMMAR_RX_H
#define VT_GRAMMAR_RX_H

#include "base/err.h"
#include "base/mem.h"

typedef int32_t rx;

/* The first three of every store. RX_ALL is every string of bytes. */
enum { RX_NOTHING, RX_EMPTY, RX_ALL };

enum { RX_NO_MOST = -1, RX_MAX_REPEAT = 1000000 };

typedef enum rx_kind {
    RX_KIND_NOTHING,
    RX_KIND_EMPTY,
    RX_KIND_SET,    /* one byte of a set */
    RX_KIND_STRING, /* these bytes */
    RX_KIND_CAT,    /* a, then b */
    RX_KIND_ALT,    /* one of `kid` */
    RX_KIND_AND,    /* all of `kid` */
    RX_KIND_NOT,    /* not a */
    RX_KIND_REPEAT, /* a, min to max times */
    RX_KIND_CLOSE,  /* a, then a quote, which never begins a character of a */
    RX_KIND_TABLE   /* state a of an automaton that was made by hand */
} rx_kind;

/* An automaton over few symbols. */
typedef struct rx_table {
    const uint8_t *symbol; /* [256] 255: no transition */
    int32_t n_symbols, n;
    const int16_t *next;  /* [n][n_symbols] -1: none */
    const int32_t *least; /* [n] bytes to the nearest accepting state, which has 0 */
    uint64_t hash;
} rx_table;

typedef struct rx_node {
    uint8_t kind;
    bool nullable;
    bool plain;     /* no intersection and no complement in it: it is not empty in secret */
    bool text;      /* every string of it is a string of the store's `any` */
    bool raw;       /* the same of the store's `raw` */
    bool character; /* a set of characters: no string of it begins another */
    int32_t a, b, min, max;
    int32_t n;        /* bytes, or kids */
    int32_t least;    /* bytes of its shortest string; RX_LEAST_... */
    const void *data; /* set, string, kids, table */
    uint64_t hash;    /* of its structure, the same in every store of the process */
} rx_node;

enum { RX_LEAST_NONE = -1, RX_LEAST_UNKNOWN = -2 };

/* The text of `failed` where memory has ended, told from limits by its address. */
extern const char rx_no_memory[];
static inline vt_status rx_failure(const char *failed)
{
    return failed == rx_no_memory ? VT_ERR_MEMORY : VT_ERR_USAGE;
}

typedef struct rx_store {
    vt_arena *arena; /* borrowed */
    rx_node *node;
    int32_t n, cap;
    int32_t *slot, n_slots; /* hash table of nodes */
    uint64_t *memo_key;     /* derivatives: node and byte */
    int32_t *memo, n_memo, memo_slots;
    rx any;       /* X*, X being any character of the text that is described; or RX_NOTHING */
    rx raw;       /* where texts of JSON stand beside others: X*, X being any character as it is */
    int64_t fuel; /* steps of work that may still be done: see rx_spend */
    int32_t depth;
    const char *failed; /* out of memory, or over a limit: why */
} rx_store;

/* Counts steps of work: a derivative is one, and so are four members of a union or an intersection
 * that is made. False: there are none left, and `failed` says so. */
static inline bool rx_spend(rx_store *s, int64_t steps)
{
    s->fuel -= steps;
    if (s->fuel < 0 && !s->failed)
        s->failed = "it takes too many steps of work";
    return s->fuel >= 0;
}

bool rx_store_init(rx_store *s, vt_arena *arena);
void rx_store_release(rx_store *s);

/* All return RX_NOTHING and set `failed` when memory or a limit ends. */
rx rx_set(rx_store *s, const uint64_t bits[4]);
/* One byte that no byte is: unlike RX_NOTHING it is waited for, and never comes. */
rx rx_never(rx_store *s);
rx rx_byte_range(rx_store *s, int from, int to);
rx rx_string(rx_store *s, const void *bytes, size_t n);
rx rx_cat(rx_store *s, rx a, rx b);
rx rx_alt(rx_store *s, const rx *kid, int32_t n);
rx rx_alt2(rx_store *s, rx a, rx b);
rx rx_and(rx_store *s, const rx *kid, int32_t n);
rx rx_and2(rx_store *s, rx a, rx b);
rx rx_not(rx_store *s, rx a);
rx rx_repeat(rx_store *s, rx a, int32_t min, int32_t max);
rx rx_close(rx_store *s, rx a);
rx rx_table_state(rx_store *s, const rx_table *t, int32_t state);
/* Says that a is a set of characters, none of which begins another. */
void rx_mark_character(rx_store *s, rx a, bool text, bool raw);

rx rx_derive(rx_store *s, rx a, int byte);
static inline const rx_node *rx_at(const rx_store *s, rx a) { return &s->node[a]; }
/* Bytes of the shortest string, or of one that is not much longer where finding it out takes a
 * search; RX_LEAST_NONE: there is no string. */
int32_t rx_least(rx_store *s, rx a);

/* Classes of bytes that an expression does not tell apart. */
typedef struct rx_classes {
    uint8_t of[256];
    int32_t size[256];
    int32_t n;
} rx_classes;
void rx_classes_begin(rx_classes *c);
void rx_classes_add(const rx_store *s, rx a, rx_classes *c);
/* Adds the bytes that strings of `a` may begin with, perhaps others. False: they are not told. */
bool rx_first(const rx_store *s, rx a, uint64_t set[4]);
/* Adds the bytes that strings of `a` may hold, perhaps others. False: they are not told. */
bool rx_bytes(const rx_store *s, rx a, uint64_t set[4]);

#endif
