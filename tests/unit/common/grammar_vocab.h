/* A small vocabulary for tests of grammars: every byte, and tokens that cross the borders of
 * strings, numbers, brackets and characters. */
#ifndef TEST_GRAMMAR_VOCAB_H
#define TEST_GRAMMAR_VOCAB_H

#include "grammar/grammar.h"

/* Byte-level BPE without merges; its last id, "<|end|>", is special and ends an answer. */
vt_tokenizer *grammar_test_tokenizer(void);

#endif
