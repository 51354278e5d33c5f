/* The automaton that a grammar is: its states are made when a text first gets there, and stay.
 *
 *   lexer state   which lexemes are under way, and what may still come of each
 *   stack         where a rule goes on when another has ended; one number for equal stacks
 *   frontier      the lexemes that may come next, each with the place it stands at
 *   config        the state of a text: pairs of a lexer state and a frontier, one mostly
 *
 *   {"a": 1      config 17 = { lexer state "digits of a number", frontier "value of a" }
 *
 * A byte leads from a config to another. Where a lexeme may end, the frontier behind it joins the
 * config at once; whether the lexeme has ended or goes on is seen from the next byte. Because equal
 * stacks and frontiers are one, the configs of a schema are few, and a mask belongs to a config. */
#ifndef VT_GRAMMAR_MACHINE_H
#define VT_GRAMMAR_MACHINE_H

#include "grammar/grammar.h"
#include "grammar/idmap.h"
#include "grammar/rules.h"
#include "grammar/vocab.h"

enum {
    MACHINE_MAX_ITEMS = 20000,     /* of a frontier */
    MACHINE_MAX_PAIRS = 500,       /* of a config */
    MACHINE_CALL_STATES = 8000,    /* new lexer states that one call may make */
    MACHINE_CALL_STEPS = 1000000,  /* steps of work (rx_spend) that one call may take */
    MACHINE_HURRIED_STEPS = 20000, /* and one on which others wait: some 6 ms */
    LEXER_FEW = 6                  /* ways on that a state keeps without a row for all bytes */
};

typedef struct lexer_slot {
    int32_t lexeme;
    rx rest; /* what may follow */
} lexer_slot;

typedef struct lexer_state {
    lexer_slot *slot; /* [n] by lexeme */
    int32_t *accept;  /* [n_accept] lexemes that may end here */
    int32_t n, n_accept;
    bool made;              /* the ways on are: */
    uint8_t few[LEXER_FEW]; /* their bytes; more of them: in `next` */
    int32_t few_to[LEXER_FEW];
    int32_t *next;           /* [256] NULL: they are few */
    uint64_t live[4];        /* bits of the bytes that have a way on */
    int32_t far;             /* bytes that end the nearest lexeme */
    bool leaf;               /* nothing follows */
    struct split_use *split; /* NULL: not made yet */
    int32_t farther; /* bytes by which the end is farther away than the split says, at most */
    int32_t *apart;  /* [n_apart] states of its slots that are no plain strings */
    int32_t n_apart; /* -1: not made yet */
} lexer_state;

typedef struct stack_node {
    int32_t at, below; /* the symbol to go on with; the stack without this node, 0: the bottom */
    int32_t least;     /* bytes that end the answer from here */
} stack_node;

typedef struct item {
    int32_t lexeme, at, stack;
} item;

/* One of a frontier's lexemes. */
typedef struct way {
    int32_t lexeme, from, to; /* items[from .. to) */
    int32_t next;             /* the frontier behind it; -1: not made yet */
    int32_t least;            /* bytes that end the answer behind it */
} way;

typedef struct frontier {
    item *item;
    way *way;                 /* [n_ways] */
    int32_t n, n_ways, start; /* start: the lexer state of all its lexemes */
    bool can_end;
} frontier;

typedef struct pair {
    int32_t lexer, frontier;
    bool end; /* it has just been reached, and the answer may end */
} pair;

/* The part of a mask that needs no parser: of one lexeme, the tokens that stay inside it. */
typedef struct mask_part {
    const uint32_t *bits; /* NULL: none */
    const int32_t *id;
    int32_t n;
    int32_t far;           /* bytes that end the answer behind any of these, at most */
    const uint32_t *whole; /* those behind which it takes whole_far bytes; NULL: not known */
    int32_t whole_far;
} mask_part;

typedef struct config_mask {
    mask_part *part;
    int32_t *id; /* tokens that end a lexeme and go on behind it */
    int32_t n_parts, n;
    int32_t far; /* bytes that end the answer behind any token, at most */
} config_mask;

typedef struct config {
    pair *pair;
    int32_t n;
    int32_t least; /* bytes that end the answer; -1: not known yet */
    bool can_end;
    config_mask *mask;   /* NULL: not made yet */
    int32_t tokens;      /* that end the answer; -1: not known yet */
    int32_t more_tokens; /* it takes at least so many */
} config;

typedef struct machine {
    vt_grammar_vocab *vocab;
    vt_arena arena;
    rules g;
    lexer_state **lexer;
    stack_node *stack;
    frontier **frontier;
    config **config;
    int32_t n_lexer, cap_lexer, n_stack, cap_stack, n_frontier, cap_frontier, n_config, cap_config;
    idmap lexers, stacks, frontiers, configs, steps;
    struct split_use *splits; /* a list, to free them */
    idmap kept;               /* the splits in it */
    int32_t start;            /* the config of the empty text */
    int32_t call_states;      /* lexer states that this call may still make */
    const char *failed;       /* out of memory, or over a limit */
    bool hurried;             /* this call is broken off where it would take long, which */
    int64_t hurried_steps;    /* is more than these: MACHINE_HURRIED_STEPS, less in tests */
    size_t split_bytes;
    /* of closure */
    item *items;
    int32_t n_items, cap_items;
    idmap seen;
    bool can_end;
} machine;

static inline bool byte_in(const uint64_t set[4], int byte)
{
    return set[byte >> 6] >> (byte & 63) & 1;
}

/* The state behind a byte, where the ways on are made; 0: none. */
static inline int32_t lexer_next(const lexer_state *s, int byte)
{
    int i = 0;
    if (!byte_in(s->live, byte))
        return 0;
    if (s->next)
        return s->next[byte];
    while (s->few[i] != byte)
        i++;
    return s->few_to[i];
}

/* The arena and the rules are there already. */
bool machine_init(machine *m, vt_grammar_vocab *v);
void machine_release(machine *m);
void machine_begin(machine *m, symbol root);
/* Begins a call from outside: what it may take is limited. A hurried one that would take long is
 * broken off: it fails, and machine_is_late says why. What it has made by then is whole and
 * stays. */
static inline void machine_call(machine *m, bool hurried)
{
    m->call_states = MACHINE_CALL_STATES;
    m->g.rx.fuel = hurried ? m->hurried_steps : MACHINE_CALL_STEPS;
    m->hurried = hurried;
}
/* True if this call has made anything, or has failed: nothing is made without a step. */
static inline bool machine_has_worked(const machine *m)
{
    int64_t all = m->hurried ? m->hurried_steps : MACHINE_CALL_STEPS;
    return m->g.rx.fuel != all || m->failed;
}
/* Ends a call. Returns true if it was broken off: then m->failed is taken back, and the machine can
 * be called again. */
bool machine_is_late(machine *m);
/* Takes a lock that grammars share. False: others have it, and the call is hurried; m->failed. */
bool machine_lock(machine *m, pthread_mutex_t *lock);
/* Sets m->failed where an expression could not be made. Returns false if it is set. */
bool machine_note_failure(machine *m);
/* Returns true if nothing has failed in this call: asked before anything is kept for later ones. */
static inline bool machine_is_well(machine *m)
{
    return (!m->failed && !m->g.rx.failed) || machine_note_failure(m);
}
/* Counts steps of this call's work. False: it has taken too many; m->failed. */
bool machine_spend(machine *m, int64_t steps);
/* The same for nodes of a trie that were walked over, which take less. */
static inline bool machine_spend_nodes(machine *m, int64_t nodes)
{
    return machine_spend(m, nodes / 8);
}
/* The same state with its ways on made; NULL: m->failed. */
const lexer_state *machine_lexer_made(machine *m, int32_t state);
/* The state behind a byte; 0: none, or m->failed. */
static inline int32_t machine_lexer_step(machine *m, int32_t state, int byte)
{
    const lexer_state *s = m->lexer[state];
    s = s->made ? s : machine_lexer_made(m, state);
    return s ? lexer_next(s, byte) : 0;
}
int32_t machine_step(machine *m, int32_t config, int byte);
/* Bits of the bytes that a config may have a way on with. */
void machine_live(machine *m, int32_t config, uint64_t live[4]);
int32_t machine_run(machine *m, int32_t config, const char *bytes, int32_t n);
int32_t machine_lexer(machine *m, const lexer_slot *slot, int32_t n);
/* The config behind the end of these lexemes of a frontier. */
int32_t machine_behind(machine *m, int32_t frontier, const int32_t *lexeme, int32_t n);
way *machine_way(const machine *m, int32_t frontier, int32_t lexeme);
int32_t machine_least(machine *m, int32_t config);
size_t machine_bytes(const machine *m);

/* ---- mask.c ---- */

const config_mask *machine_mask(machine *m, int32_t config);
/* Sets the bits of a config's mask of tokens behind which `most` bytes can end the answer. */
void machine_mask_within(machine *m, int32_t config, int32_t most, uint32_t *words,
                         int32_t n_words);

/* ---- closing.c ---- */

/* Tokens that end the answer from a config; of more than `most`, any number above it. */
int32_t machine_tokens(machine *m, int32_t config, int32_t most);
/* Sets the bits of a config's mask of tokens behind which the answer can still be ended, if `left`
 * tokens are left with this one. False: the answer cannot be ended with so many; no bit is set. */
bool machine_mask_in_time(machine *m, int32_t config, int32_t left, uint32_t *words,
                          int32_t n_words);

/* ---- split.c, counts.c, seed.c ---- */

/* Tokens from a lexer state: those that stay inside its lexemes, and those that leave one. It tells
 * nothing of the grammar, so that all grammars share it which get to an equal state. */
typedef struct split {
    int32_t refs;    /* of grammars and shelf */
    int32_t shelved; /* places on the shelf; under its lock */
    int32_t nodes;   /* that the walk has read */
    uint32_t *bits;  /* of the tokens that stay; NULL: they are in id[] */
    int32_t *id;
    int32_t n;
    int32_t far;     /* bytes that end the lexeme behind any of them, at most */
    int32_t deepest; /* bytes of the longest token that was walked */
    int32_t longest; /* of all of them; -1: not known yet */
    /* Where the lexeme may end, told by the bytes that lead there: `depth` of this token. */
    struct split_tail {
        int32_t token, depth;
        trie tail; /* what follows then */
    } * tail;
    int32_t n_tails;
    int32_t *exit; /* [n_exits] the same as nodes of the vocabulary's trie, whose subtree follows */
    int32_t n_exits;
} split;

/* A split in a grammar: the lexer states behind its tails, and then its exits. */
typedef struct split_use {
    struct split_use *next;
    split *s;
    int32_t state[]; /* [n_tails + n_exits] */
} split_use;

const split_use *machine_split(machine *m, int32_t lexer);
/* That of the same state without counts, where no token gets to the end of one; NULL: there is
 * none, or m->failed. Sets the state's `farther`. */
split_use *split_uncounted(machine *m, int32_t lexer);
/* True if every character beyond ASCII leads from a state to another; U+2028 and U+2029, which '.'
 * has not, may lead elsewhere. */
bool split_wide_lead(machine *m, int32_t s, int32_t to);
void split_unref(split *s);
size_t split_bytes(const split *s, const vt_grammar_vocab *v);

/* The part of a mask, and the range of a seed's tails, of one slot whose rest is a quoted string
 * of counted characters. False: it is none, or there is no room for another seed. */
typedef struct seed_use {
    const seed *seed;
    mask_part part;        /* its `far` are the lexeme's bytes only */
    int32_t from, to;      /* tails */
    const rx_node *except; /* strings that it may not be; NULL */
} seed_use;
bool seed_find(machine *m, int32_t lexeme, rx rest, seed_use *out);

#endif
