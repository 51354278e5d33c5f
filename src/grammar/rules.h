/* The rules of a grammar: context-free, over lexemes that are regular expressions of bytes.
 *
 *   symbols   | a B c END | d END | ...     one alternative after the other
 *   rule B    -> its alternatives' first positions
 *
 * Front ends add rules and alternatives, then call rules_finish. */
#ifndef VT_GRAMMAR_RULES_H
#define VT_GRAMMAR_RULES_H

#include "grammar/charset.h"

/* A symbol: 0 the end of an alternative, n > 0 rule n - 1, n < 0 lexeme -n - 1. */
typedef int32_t symbol;

enum { SYMBOL_END = 0 };

typedef struct grammar_rule {
    const char *name;    /* for messages; NULL */
    int32_t first, last; /* alternatives, a list; -1: none */
    int32_t least;       /* bytes of its shortest text; -1: it has none */
    bool nullable;
    uint8_t mark; /* while rules that begin with themselves are looked for */
} grammar_rule;

typedef struct alternative {
    int32_t at, next; /* its first symbol; the next one of the rule, -1: none */
} alternative;

typedef struct grammar_lexeme {
    rx is;
    int32_t least; /* as a rule's */
    bool nullable;
} grammar_lexeme;

typedef struct rules {
    vt_arena *arena; /* borrowed */
    rx_store rx;
    symbol *symbol;
    int32_t *rest; /* [n_symbols] bytes of the shortest text from here to the alternative's end */
    int32_t n_symbols, cap_symbols;
    grammar_rule *rule;
    int32_t n_rules, cap_rules;
    alternative *alternative;
    int32_t n_alternatives, cap_alternatives;
    grammar_lexeme *lexeme;
    int32_t n_lexemes, cap_lexemes;
    int32_t *lexeme_of, n_lexeme_of; /* by expression: lexeme + 1 */
    rx blanks, json_char, any_char;  /* see json_lexemes */
    rx raw_char;                     /* see rules_raw */
    bool failed;                     /* out of memory, or too many symbols */
} rules;

bool rules_init(rules *g, vt_arena *arena, char_form form);
/* Prepares a grammar of JSON for texts that stand in it as they are: sets raw_char and rx.raw. */
void rules_raw(rules *g);
void rules_release(rules *g);
/* Notes that memory has ended. Returns false. */
bool rules_no_memory(rules *g);
/* A new rule without alternatives, as a symbol. */
symbol rules_new(rules *g, const char *name);
symbol rules_lexeme(rules *g, rx a);
symbol rules_text(rules *g, const char *text);
void rules_add(rules *g, symbol r, const symbol *s, int32_t n);
/* Settles lengths and drops what has no finite text. VT_ERR_USAGE if `root` has none, or if a rule
 * begins with itself. */
vt_status rules_finish(rules *g, symbol root, vt_err *err);

static inline int32_t rule_of(symbol s) { return s - 1; }
static inline int32_t lexeme_of(symbol s) { return -s - 1; }

#endif
