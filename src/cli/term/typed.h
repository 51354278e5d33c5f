/* Reads what a person types at a terminal: lines and texts of any length.
 *
 * The kernel's own line editing cuts a line at 4095 bytes without a word, so it is switched off
 * while something is read. Two editors stand behind one interface:
 *
 *   libedit    cursor keys, history, search; loaded when it is there (editing.c)
 *   plain      Backspace, Ctrl-W, Ctrl-U; everywhere else (typed.c)
 *
 * Both take their bytes from typed_input.c, and both know bracketed paste: a pasted text arrives
 * whole, newlines included, and Enter ends it. */
#ifndef VT_CLI_TERM_TYPED_H
#define VT_CLI_TERM_TYPED_H

#include <stdio.h>
#include <termios.h>

#include "base/buf.h"
#include "vitrine.h"

typedef enum typed_status {
    TYPED_DONE,        /* a line, or a whole text */
    TYPED_END,         /* Ctrl-D at the beginning of a line, or the terminal is gone */
    TYPED_INTERRUPTED, /* Ctrl-C; what was typed is dropped */
    TYPED_FAILED       /* reading failed: errno, or 0 where memory ran out */
} typed_status;

/* Bytes of the terminal that were read and not used yet. */
typedef struct typed_input {
    char byte[4096];
    int at, n;
    int fd; /* the terminal, opened anew so that reading it can be told not to wait; or 0 */
} typed_input;

typedef struct typed {
    FILE *screen; /* where the echo goes */
    typed_input in;
    struct editing *editing; /* NULL: the plain editor */
    bool marks_paste;        /* the terminal was asked to mark what is pasted */
} typed;

/* stdin must be a terminal. libedit is looked for where `lines` is true. Cannot fail: what is not
 * there is done without. */
void typed_open(typed *t, bool lines);
void typed_close(typed *t);

/* One line, without its newline; *line is cleared first. A pasted text may bring newlines. */
typed_status typed_line(typed *t, const char *prompt, vt_buf *line);
/* Everything until one Ctrl-D, wherever it comes. */
typed_status typed_text(typed *t, vt_buf *text);

/* ---- typed_input.c: what the two editors read ---- */

/* The next byte, 1 to 255; -1 where there is none: *status says why. */
int typed_byte(typed *t, typed_status *status);
/* True if another byte comes within `ms`. */
bool typed_more(typed *t, int ms);
/* The numbers of bracketed paste: ESC [ 200 ~. */
enum { TYPED_PASTE_BEGINS = 200, TYPED_PASTE_ENDS = 201 };
/* Behind ESC: the number of ESC [ number ~; 0 for every other sequence, of which nothing is left
 * over. */
int typed_escape(typed *t);
/* A pasted text up to the mark of its end. Carriage returns become newlines; other controls and
 * what is not UTF-8 become U+FFFD, so that a paste cannot steer the terminal. */
typed_status typed_paste(typed *t, vt_buf *text);

/* ---- editing.c ---- */

/* NULL where libedit is not there, or cannot work on this terminal. */
struct editing *editing_open(typed *t);
void editing_close(struct editing *e);
typed_status editing_line(struct editing *e, const char *prompt, vt_buf *line);

#endif
