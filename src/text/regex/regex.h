/* Regular expressions as tokenizer files use them: Oniguruma's (Ruby) syntax over UTF-8, Unicode
 * classes from our own tables, leftmost match with the order of alternatives deciding.
 *
 *   a|b  (?:..) (..) (?i:..) (?i)  (?=..) (?!..) (?<=..) (?<!..) (?>..)
 *   x* x+ x? x{n,m}, lazy with ? or possessive with +
 *   [..&&[^..]]  . \p{..} \P{..} \p{^..} \s \d \w \h and capitals
 *   ^ $ \A \z \Z \b \B  \n \t \xHH \x{H..} \uHHHH
 *
 * Refused by name: back-references, named groups, conditionals, POSIX brackets, lookbehind of
 * varying length. Groups do not capture. Matching is bounded: a pattern that backtracks without
 * end gives up with an error. */
#ifndef VT_TEXT_REGEX_H
#define VT_TEXT_REGEX_H

#include "base/err.h"

typedef struct vt_regex vt_regex;

/* Immutable and shareable. */
vt_status vt_regex_compile(const char *pattern, size_t len, vt_regex **out, vt_err *err);
void vt_regex_free(vt_regex *re);

/* Working memory of one matching thread, and the steps it may still take. */
typedef struct vt_regex_scratch {
    struct regex_frame *frame;
    size_t n, cap;
    uint64_t steps; /* left before it gives up */
    struct {        /* the last long walk of a repetition (regex.c); re NULL: none */
        const vt_regex *re;
        int32_t pc;
        size_t start, least, end;
        bool no_then;
    } walk;
} vt_regex_scratch;
/* Grants the steps for texts of n bytes in all: 10 million, and 100 per byte. Zero-initialise the
 * scratch before the first call. */
void vt_regex_scratch_begin(vt_regex_scratch *s, size_t n);
void vt_regex_scratch_release(vt_regex_scratch *s);

/* The leftmost match in text[0..n) (valid UTF-8) that begins at or after `from`: 1 and its span, 0
 * if there is none, -1 if the matcher gave up: out of steps or memory. Search a text from 0 first:
 * that is how the scratch knows that the text is another one. */
int vt_regex_find(const vt_regex *re, vt_regex_scratch *s, const char *text, size_t n, size_t from,
                  size_t *start, size_t *end);

#endif
