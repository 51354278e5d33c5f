/* An answer of a model, taken apart: its reasoning, its text and its tool calls.
 *
 *   bytes ── vt_answer_feed ──> pieces: REASONING, TEXT, CALL (a name), ARGUMENTS (of that call)
 *
 * The pieces depend on the bytes alone and not on how they are split: whoever adds them up while
 * they stream gets what a single vt_answer_feed of the whole answer gives. Only what may still
 * become a marker, the white space in front of one, and the body of a call are held back. A call
 * is told when it is whole. What only looks like one is text.
 *
 * White space around reasoning and in front of a call is no part of the answer and is dropped. */
#ifndef VT_TEXT_ANSWER_H
#define VT_TEXT_ANSWER_H

#include <jansson.h>
#include <stdbool.h>

#include "base/buf.h"

/* How a model writes its calls. N is a name, A a JSON object, K and V one argument. */
typedef enum vt_call_form {
    VT_CALLS_NONE,
    VT_CALLS_HERMES, /* <tool_call>{"name": "N", "arguments": A}</tool_call>, repeated */
    VT_CALLS_XML,    /* <tool_call><function=N><parameter=K>V</parameter></function></tool_call> */
    VT_CALLS_LLAMA,  /* the whole answer: {"name": "N", "parameters": A}, between semicolons */
    VT_CALLS_PYTHONIC, /* the whole answer: [N(K=V, ...), ...] with Python's literals */
    VT_CALLS_MISTRAL,  /* the whole answer: [TOOL_CALLS][{"name": "N", "arguments": A}, ...] */
    VT_CALL_FORMS
} vt_call_form;

enum {
    VT_CALL_MAX_BYTES = 1 << 20, /* of one call, or of an answer that is calls as a whole: what is
                                    longer is text */
    VT_CALL_MAX_NAME = 256
};

typedef enum vt_piece_kind {
    VT_PIECE_TEXT,
    VT_PIECE_REASONING,
    VT_PIECE_CALL,     /* a call begins; the bytes are its name */
    VT_PIECE_ARGUMENTS /* all arguments of that call, as a JSON object */
} vt_piece_kind;

typedef struct vt_answer_reader {
    vt_call_form form;
    bool reasons;        /* <think> ... </think> at the beginning is reasoning */
    bool began_inside;   /* the prompt ends behind <think>; with `reasons` */
    const json_t *tools; /* the request's list, whose schemas tell strings from other values; only
                            borrowed; NULL: none */
    /* Gets a piece; the bytes are valid during the call. */
    void (*take)(void *user, vt_piece_kind kind, const char *bytes, size_t n);
    void *user;
    /* The rest belongs to the reader. */
    int state, n_calls, n_tries;
    size_t matched; /* bytes of the marker that is looked for */
    bool said;      /* some reasoning has been told */
    vt_piece_kind kind;
    vt_buf blank, held, out;
    bool failed; /* memory was short: pieces are missing */
} vt_answer_reader;

/* Sets up a reader whose first members are filled in; the rest must be zero. */
void vt_answer_begin(vt_answer_reader *r);
void vt_answer_feed(vt_answer_reader *r, const char *bytes, size_t n);
/* Returns true if what came last is reasoning that has not ended. */
bool vt_answer_is_thinking(const vt_answer_reader *r);
/* No more bytes come. */
void vt_answer_end(vt_answer_reader *r);
void vt_answer_release(vt_answer_reader *r);

/* The names of forms, as option tool-parser has them; NULL for others. */
const char *vt_call_form_name(vt_call_form form);
/* The form that a chat template asks its model for; VT_CALLS_NONE: none that is known here. */
vt_call_form vt_call_form_of(const char *chat_template);
/* Returns true if a chat template or a rendered prompt has <think> or </think> in it. */
bool vt_text_reasons(const char *text, size_t n);
/* Returns true if a rendered prompt ends inside of <think>. */
bool vt_text_ends_thinking(const char *text, size_t n);

/* ---- calls.c and pythonic.c, for the reader ---- */

/* The calls in a text of a form, without its markers: appended to `out` for each call as the
 * lengths of its name and arguments (two size_t) and then both. False: it is no call. */
bool vt_calls_read(const vt_answer_reader *r, const char *text, size_t n, vt_buf *out);
bool vt_calls_add(vt_buf *out, const char *name, size_t n_name, const char *arguments, size_t n);
bool vt_calls_read_pythonic(const char *text, size_t n, vt_buf *out);
/* Appends a text as a JSON string. */
bool vt_calls_quote(vt_buf *out, const char *s, size_t n);

#endif
