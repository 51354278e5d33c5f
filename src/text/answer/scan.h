/* JSON, a byte at a time: tells whether the bytes so far begin a JSON object or list, and when it
 * is whole. A control character inside a string is let through: who passes the bytes on has to
 * escape it (scan_in_string). */
#ifndef VT_TEXT_ANSWER_SCAN_H
#define VT_TEXT_ANSWER_SCAN_H

#include <stdbool.h>
#include <stdint.h>

enum { SCAN_MAX_DEPTH = 256 };

typedef enum scan_state {
    SCAN_VALUE,        /* a value has to come */
    SCAN_VALUE_OR_END, /* behind [ */
    SCAN_KEY_OR_END,   /* behind { */
    SCAN_KEY,          /* behind a comma of an object */
    SCAN_COLON,
    SCAN_AFTER, /* behind a value */
    SCAN_STRING,
    SCAN_ESCAPE,
    SCAN_HEX,  /* `left` digits of \u are still to come */
    SCAN_PAIR, /* a backslash has to come: the second half of a pair of surrogates */
    SCAN_PAIR_U,
    SCAN_LITERAL, /* `rest` of true, false or null */
    SCAN_MINUS,
    SCAN_ZERO,
    SCAN_INTEGER,
    SCAN_POINT,
    SCAN_FRACTION,
    SCAN_E,
    SCAN_SIGN,
    SCAN_EXPONENT
} scan_state;

typedef struct json_scan {
    scan_state state;
    bool is_key;                           /* of a string */
    int32_t depth;                         /* brackets that are open */
    int32_t left;                          /* hexadecimal digits */
    uint32_t code;                         /* of \u */
    bool low;                              /* `code` has to be the second half of a pair */
    const char *rest;                      /* of a literal */
    uint64_t objects[SCAN_MAX_DEPTH / 64]; /* a bit for each open bracket: it is { */
} json_scan;

typedef enum scan_verdict { SCAN_GOES_ON, SCAN_WHOLE, SCAN_BAD } scan_verdict;

/* Takes a byte. WHOLE: it closes the outermost bracket. */
scan_verdict json_scan_step(json_scan *s, char c);

static inline bool scan_in_string(const json_scan *s)
{
    return s->state >= SCAN_STRING && s->state <= SCAN_PAIR_U;
}

static inline bool scan_in_number(const json_scan *s) { return s->state >= SCAN_MINUS; }

#endif
