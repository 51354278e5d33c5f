/* The vocabulary of grammar_vocab.h for a group of tests, and grammars and texts on it. */
#ifndef TEST_GRAMMAR_FIXTURE_H
#define TEST_GRAMMAR_FIXTURE_H

#include "grammar/grammar.h"
#include "grammar/vocab.h"

extern vt_tokenizer *tokenizer;
extern vt_grammar_vocab *vocab;

/* Setup and teardown functions of a group of tests. */
int grammar_set_up(void **state);
int grammar_tear_down(void **state);

/* Ends the test if the grammar is refused. */
vt_grammar *compile(vt_grammar_kind kind, const char *text);
/* Returns true if the text, byte by byte, is a whole answer. */
bool accepts(vt_grammar *g, const char *text);

#endif
