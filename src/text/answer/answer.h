/* An answer of a model, taken apart: its reasoning, its text and its tool calls.
 *
 *   bytes ── vt_answer_feed ──> pieces: REASONING, TEXT,
 *                               CALL (a name), ARGUMENTS of that call, CALL_END
 *
 * The pieces depend on the bytes alone and not on how they are split: whoever adds them up while
 * they stream gets what a single vt_answer_feed of the whole answer gives. Held back is only what
 * may still become a marker, the white space in front of one, and the beginning of a call up to its
 * name: from there on its arguments come as they are written. What only looks like a call is text.
 *
 * White space around reasoning and in front of a call is no part of the answer and is dropped. */
#ifndef VT_TEXT_ANSWER_H
#define VT_TEXT_ANSWER_H

#include <jansson.h>
#include <stdbool.h>

#include "base/buf.h"
#include "text/answer/scan.h"

/* How a model writes its calls; forms.c has the markers of each. */
typedef enum vt_call_form {
    VT_CALLS_NONE,
    VT_CALLS_HERMES,
    VT_CALLS_XML,
    VT_CALLS_LLAMA,
    VT_CALLS_PYTHONIC,
    VT_CALLS_MISTRAL,
    VT_CALLS_GRANITE,
    VT_CALLS_PHI,
    VT_CALLS_COHERE,
    VT_CALLS_HUNYUAN,
    VT_CALLS_NEMOTRON,
    VT_CALLS_LFM,
    VT_CALLS_DEEPSEEK_V3,
    VT_CALLS_DEEPSEEK_V31,
    VT_CALLS_DSML,
    VT_CALLS_KIMI_K2,
    VT_CALLS_KIMI_K3,
    VT_CALLS_GLM,
    VT_CALLS_GEMMA,
    VT_CALLS_MINIMAX,
    VT_CALLS_HARMONY,
    VT_CALLS_OLMO,
    VT_CALL_FORMS
} vt_call_form;

/* How a model marks its reasoning. */
typedef enum vt_thought_form {
    VT_THOUGHTS_NONE,
    VT_THOUGHTS_THINK,   /* <think> */
    VT_THOUGHTS_BRACKET, /* [THINK] */
    VT_THOUGHTS_SEED,    /* <seed:think> */
    VT_THOUGHTS_COHERE,  /* <|START_THINKING|> */
    VT_THOUGHTS_GEMMA,   /* <|channel>thought */
    VT_THOUGHTS_KIMI,    /* <|open|>think<|sep|> */
    VT_THOUGHTS_HARMONY, /* the channel analysis; VT_CALLS_HARMONY reads it */
    VT_THOUGHT_FORMS
} vt_thought_form;

typedef struct vt_thought_tags {
    const char *open, *close;
    bool special; /* tokenizers have them as special tokens, which text leaves out by default */
} vt_thought_tags;

enum {
    VT_CALL_MAX_BYTES = 1 << 20, /* of what is held back: what is longer is text */
    VT_CALL_MAX_NAME = 256
};

typedef enum vt_piece_kind {
    VT_PIECE_TEXT,
    VT_PIECE_REASONING,
    VT_PIECE_CALL,       /* a call begins; the bytes are its name */
    VT_PIECE_ARGUMENTS,  /* the next bytes of that call's arguments */
    VT_PIECE_CALL_END,   /* they are whole: a JSON object */
    VT_PIECE_CALL_BROKEN /* they have ended and are no JSON object: the answer was cut off, or the
                            model wrote something else */
} vt_piece_kind;

typedef struct vt_answer_reader {
    vt_call_form form;
    bool calls;               /* calls are read; false: they stay text */
    vt_thought_form thoughts; /* reasoning at the answer's beginning; NONE: it stays text */
    bool began_inside;        /* the prompt ends behind the opening of a thought */
    const json_t *tools; /* the request's list, whose schemas tell strings from other values; only
                            borrowed; NULL: none */
    /* Gets a piece; the bytes are valid during the call. */
    void (*take)(void *user, vt_piece_kind kind, const char *bytes, size_t n);
    void *user;
    const char *call_id; /* during the piece CALL: the id that the model gave it; NULL: none */
    /* The rest belongs to the reader. */
    int state, role, n_calls, n_items; /* calls of the whole answer, and of this section */
    bool at_start; /* nothing but white space has come since the beginning or the thought */
    bool thought;  /* a thought has ended */
    bool said;     /* some reasoning has been told */
    bool in_call;  /* a call has been told whose end has not */
    bool filled;   /* and some of its arguments */
    bool unmarked; /* no marker stands in front of the calls: only tools of the list are some */
    bool list;     /* of calls, in brackets */
    bool has_name; /* object.c */
    bool told;     /* object.c: this object's call has ended */
    bool has_late; /* object.c: arguments stood in front of the name, in `late` */
    bool streams;  /* tagged.c: the argument is a string, told as it comes */
    bool first, newline; /* tagged.c: of a value: nothing has come; a line break is held back */
    bool bad, spoke;     /* harmony.c: the arguments are no JSON; some text has been told */
    unsigned types;      /* tagged.c: that the argument may have */
    vt_piece_kind kind;  /* of what is in `out` */
    json_scan scan;
    vt_buf tag;   /* the beginning of a marker */
    vt_buf blank; /* white space in front of it */
    vt_buf held;  /* a call that has not been told yet, as it was written */
    vt_buf out, key, value, name, id, late;
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

/* ---- forms.c ---- */

/* The names of forms, as option tool-parser has them; NULL for others. */
const char *vt_call_form_name(vt_call_form form);
/* The form that a chat template asks its model for; VT_CALLS_NONE: none that is known here. */
vt_call_form vt_call_form_of(const char *chat_template);
/* Returns true if the reader has to see special tokens as text. */
bool vt_call_form_is_special(vt_call_form form, bool calls);

/* Returns true if an argument that is written without quotes is a string whatever its text looks
 * like: the schema of all arguments allows nothing else. */
bool vt_answer_takes_string(const json_t *parameters, const char *key);

/* The reasoning that a chat template knows of. */
vt_thought_form vt_thought_form_of(const char *chat_template);
vt_thought_tags vt_thought_tags_of(vt_thought_form form);
/* Returns true if a rendered prompt ends inside of such a thought. */
bool vt_text_ends_thinking(vt_thought_form form, const char *text, size_t n);

#endif
