/* The files of the reader of answers share this (answer.h). */
#ifndef VT_TEXT_ANSWER_INSIDE_H
#define VT_TEXT_ANSWER_INSIDE_H

#include "text/answer/answer.h"

typedef enum call_body {
    BODY_NONE,
    BODY_JSON,   /* {"name": N, "arguments": A}, one or a list (object.c) */
    BODY_NAMED,  /* N name_end A (tagged.c) */
    BODY_KEYED,  /* N name_end, then key K key_end V value_end for each argument (tagged.c) */
    BODY_PYTHON, /* [N(K=V, ...), ...] (pythonic.c) */
    BODY_GEMMA,  /* call:N{K:V,...} (gemma.c) */
    BODY_HARMONY /* messages with channels (harmony.c) */
} call_body;

enum { MARKERS = 4 }; /* that may stand at one place, at most; lists of them end with NULL */

typedef struct call_syntax {
    const char *name; /* as option tool-parser has it */
    call_body body;
    const char *open[MARKERS]; /* begins a call, or a section of calls where `call` is set */
    const char *call[MARKERS]; /* begins a call inside of a section */
    const char *name_end[MARKERS];
    const char *key, *key_end[MARKERS], *value_end;
    const char *json; /* with `key`: here A may follow, all arguments as one object */
    const char *call_end[MARKERS], *end[MARKERS]; /* of a call; of a section */
    const char *drop[MARKERS];                    /* that mean nothing to anybody */
    char whole;    /* at the answer's beginning this character may begin calls without a marker */
    bool special;  /* tokenizers have the markers as special tokens */
    bool newlines; /* a line break stands on each side of a string, and is not part of it */
} call_syntax;

const call_syntax *answer_syntax(vt_call_form form);

/* States of the reader. */
enum {
    IN_TEXT,
    IN_THOUGHT,
    IN_ITEMS,   /* object.c: between calls of a list */
    IN_OBJECT,  /* inside of one */
    IN_SECTION, /* tagged.c: between calls of a section */
    IN_NAME,
    IN_NAMED_ARGUMENTS,
    IN_BROKEN, /* arguments that are no JSON, up to the end of the call */
    AFTER_ARGUMENTS,
    IN_KEYS,
    IN_KEY,
    IN_VALUE,
    AFTER_VALUE, /* its end tag has come, if another argument or the call's end follows */
    IN_HELD,     /* a call that is read when it is whole */
    IN_HEADER,   /* harmony.c */
    IN_MESSAGE
};

/* ---- answer.c ---- */

bool answer_is_blank(char c);
/* Hands bytes on; neighbours of one kind are told together. */
void answer_put(vt_answer_reader *r, vt_piece_kind kind, const char *bytes, size_t n);
/* Begins a call: what was held is part of it. `id` may be NULL. */
void answer_call(vt_answer_reader *r, const char *name, size_t n, const char *id);
void answer_call_end(vt_answer_reader *r, bool whole);
/* Tells what was held since the last call as text. Its last byte, or r->tag, may begin a marker
 * and is taken once more. */
void answer_to_text(vt_answer_reader *r);
/* The calls have ended, and text follows. */
void answer_leave(vt_answer_reader *r);
/* Takes a byte that belongs to whatever the reader is in now. */
void answer_step(vt_answer_reader *r, char c);
/* Which marker of a list r->tag is: its number, or -1, with *begins: it is the beginning of one. */
int answer_marker(const vt_answer_reader *r, const char *const *list, bool *begins);
/* Adds a byte to r->tag, behind white space that is skipped. ... of the list: its number. -1: it
 * may still become one; -2: it cannot, and r->tag has what came. */
int answer_expect(vt_answer_reader *r, char c, const char *const *list);
/* Looks for a marker in a running text. Returns its number; -1: not yet. Bytes that cannot belong
 * to one are handed to `pass`, in order. */
int answer_look(vt_answer_reader *r, char c, const char *const *list,
                void (*pass)(vt_answer_reader *r, char c));
/* Takes the bytes of r->tag once more, in a new state. */
void answer_again(vt_answer_reader *r);

/* ---- object.c ---- */

void object_begin(vt_answer_reader *r);
void object_step_items(vt_answer_reader *r, char c);
void object_step(vt_answer_reader *r, char c);
/* Hands on a byte of JSON arguments, which r->scan has just taken. */
void object_pass(vt_answer_reader *r, char c, bool in_string);

/* ---- tagged.c ---- */

void tagged_begin(vt_answer_reader *r);
void tagged_step(vt_answer_reader *r, char c);
void tagged_end(vt_answer_reader *r); /* of the answer */

/* ---- harmony.c ---- */

void harmony_step(vt_answer_reader *r, char c);
void harmony_end(vt_answer_reader *r);

/* ---- pythonic.c, gemma.c ---- */

/* The calls in a text, told to the reader; false: it is no call, and nothing was told. */
bool pythonic_read(vt_answer_reader *r, const char *text, size_t n);
bool gemma_read(vt_answer_reader *r, const char *text, size_t n);

/* ---- value.c ---- */

/* How jansson takes a value: any, with integers of any size, and U+0000. */
enum { CALLS_JSON = JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL | JSON_ALLOW_NUL };
/* Calls that were read as a whole are gathered as lengths of name and arguments, and both. */
bool calls_add(vt_buf *calls, const char *name, size_t n_name, const char *arguments, size_t n);
/* Tells them; false, and none is told: they are none, or not all are tools where no marker stands
 * in front of them. */
bool calls_tell(vt_answer_reader *r, const vt_buf *calls);
bool calls_is_tool(const json_t *tools, const char *name, size_t n);
/* The types that a tool's schema allows an argument; 0: not known. */
enum {
    CALLS_STRING = 1,
    CALLS_NUMBER = 2,
    CALLS_BOOLEAN = 4,
    CALLS_NULL = 8,
    CALLS_OBJECT = 16,
    CALLS_ARRAY = 32
};
unsigned calls_types(const json_t *tools, const char *tool, size_t n_tool, const char *key,
                     size_t n_key);
/* Appends a text as a JSON string. */
bool calls_quote(vt_buf *out, const char *s, size_t n);
/* Appends a byte inside of a JSON string. */
bool calls_escape(vt_buf *out, char c);
/* Appends the text of an argument as JSON: as it is, where it is JSON of one of these types. */
bool calls_value(vt_buf *out, unsigned types, const char *v, size_t n);

#endif
