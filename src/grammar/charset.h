/* Sets of characters, and what they are as bytes: UTF-8 as it is, or the text of a JSON string. */
#ifndef VT_GRAMMAR_CHARSET_H
#define VT_GRAMMAR_CHARSET_H

#include "grammar/rx.h"

typedef struct charset {
    uint32_t (*range)[2]; /* [n] first and last; sorted and apart after charset_settle */
    int32_t n, cap;
    bool failed; /* out of memory */
} charset;

typedef enum char_form {
    CHARS_RAW, /* the characters' UTF-8 */
    CHARS_JSON /* the same inside a JSON string: a quote, a backslash and controls in their shortest
                  escape, \u00xx with small letters where there is none shorter */
} char_form;

void charset_release(charset *c);
void charset_add(charset *c, uint32_t from, uint32_t to);
void charset_add_set(charset *c, const charset *other);
void charset_settle(charset *c);
void charset_negate(charset *c); /* settles it too */
/* One character of the set. Surrogates are left out. */
rx charset_rx(rx_store *s, charset *c, char_form form);
/* The bytes of one character. */
rx char_rx(rx_store *s, uint32_t c, char_form form);
/* Any one character. */
rx char_any(rx_store *s, char_form form);
/* Any one character of a JSON string in all the ways that JSON has to write it. */
rx char_any_escape(rx_store *s);

#endif
