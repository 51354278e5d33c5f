/* Patterns in the syntax of ECMA-262 with the flag u, as JSON Schema uses them.
 *
 *   a|b  (..) (?:..) (?<n>..)  x* x+ x? x{n,m}, lazy or not  [..] [^..] .  ^ $
 *   \d \w \s and capitals  \p{..}  \xHH \uHHHH \u{H..} \cX \n \r \t \f \v \0
 *   (?=..) (?!..) right behind the beginning of the text
 *
 * Refused by name: back-references, \b and \B, lookbehind, lookahead elsewhere, flags. Groups do
 * not capture. Matching takes one step for each byte. */
#ifndef VT_GRAMMAR_PATTERN_H
#define VT_GRAMMAR_PATTERN_H

#include "grammar/charset.h"

enum { PATTERN_MAX_TEXT = 64 << 10, PATTERN_MAX_DEPTH = 100 };

/* The texts in which the pattern is found somewhere; or, with `whole`, those that it matches from
 * their beginning to their end. s->any has to be set. */
vt_status pattern_compile(rx_store *s, const char *pattern, size_t len, char_form form, bool whole,
                          rx *out, vt_err *err);

#endif
