/* The plain line editor (cli/term/typed.h): what works without libedit, on any terminal.
 *
 * The terminal is switched to one byte at a time without echo (ICANON, ECHO and IEXTEN off; ISIG
 * stays on, so Ctrl-C and Ctrl-Z do what they always do). Each key is handled as it comes:
 *
 *   byte                what it does
 *   CR, LF              ends a line; is part of a text or of a paste
 *   Ctrl-D              ends a text; in an empty line, ends the input
 *   Backspace, DEL      takes back the last character of the line
 *   Ctrl-W, Ctrl-U      takes back the last word, the line
 *   ESC [ 200 ~         a pasted text follows, up to ESC [ 201 ~
 *   other escape sequences and controls: ignored (cursor keys need libedit)
 *   anything else       is added and shown
 *
 * As with the kernel's editor, nothing is taken back beyond the left edge of the screen. */
#include "cli/term/typed.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/term/term.h"
#include "base/utf8.h"
#include "cli/cli.h"

enum { CTRL_D = 4, CTRL_H = 8, CTRL_U = 21, CTRL_W = 23, ESC = 27, DEL = 127 };

/* ---- the terminal ---- */

void typed_open(typed *t, bool lines)
{
    const char *kind = getenv("TERM"), *path = ttyname(0);
    int fd = isatty(2) || !path ? -1 : open(path, O_WRONLY | O_NOCTTY | O_CLOEXEC);
    *t = (typed){.screen = stderr}; /* as the prompt; the terminal where stderr is elsewhere */
    FILE *screen = fd >= 0 ? fdopen(fd, "w") : NULL;
    int in = path ? open(path, O_RDONLY | O_NOCTTY | O_CLOEXEC | O_NONBLOCK) : -1;
    t->in.fd = in >= 0 ? in : 0;
    if (screen)
        t->screen = screen;
    else if (fd >= 0)
        close(fd);
    t->marks_paste = kind && *kind && strcmp(kind, "dumb") != 0;
    if (lines && t->marks_paste)
        t->editing = editing_open(t);
}

void typed_close(typed *t)
{
    editing_close(t->editing);
    if (t->screen != stderr)
        fclose(t->screen);
    if (t->in.fd != 0)
        close(t->in.fd);
    t->in.fd = 0;
    t->screen = stderr;
    t->editing = NULL;
}

static void show(typed *t, const char *text)
{
    fputs(text, t->screen);
    fflush(t->screen);
}

static bool set_raw(struct termios *before)
{
    struct termios raw;
    if (tcgetattr(0, before) != 0)
        return false;
    raw = *before;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO | IEXTEN);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    return tcsetattr(0, TCSADRAIN, &raw) == 0;
}

/* ---- keys ---- */

typedef struct plain {
    typed *t;
    vt_buf *text;
    vt_shown echo;
    bool whole_text; /* Enter is part of it, Ctrl-D ends it */
} plain;

static void add(plain *p, const char *bytes, size_t n)
{
    vt_buf shown = {0};
    vt_buf_add(p->text, bytes, n);
    vt_text_show(&shown, &p->echo, bytes, n);
    for (size_t i = 0; i < shown.len; i++) /* a tab as one cell, so that it can be taken back */
        shown.data[i] = shown.data[i] == '\t' ? ' ' : shown.data[i];
    show(p->t, shown.data ? shown.data : "");
    vt_buf_release(&shown);
}

/* Takes the last character back; false at the beginning of the line. */
static bool take_back(plain *p)
{
    vt_buf *b = p->text;
    size_t begin = b->len;
    if (b->len == 0 || b->data[b->len - 1] == '\n')
        return false;
    while (begin > 0 && ((unsigned char)b->data[--begin] & 0xc0) == 0x80)
        ;
    int32_t cells = b->data[begin] == '\t' ? 1 : vt_text_width(b->data + begin, b->len - begin);
    for (int32_t i = 0; i < cells; i++)
        show(p->t, "\b \b");
    b->len = begin;
    b->data[begin] = '\0';
    return true;
}

static void take_back_word(plain *p)
{
    const vt_buf *b = p->text;
    while (b->len > 0 && b->data[b->len - 1] == ' ' && take_back(p))
        ;
    while (b->len > 0 && b->data[b->len - 1] != ' ' && take_back(p))
        ;
}

static typed_status add_paste(plain *p)
{
    vt_buf pasted = {0};
    typed_status status = typed_paste(p->t, &pasted);
    if (status == TYPED_DONE && pasted.len)
        add(p, pasted.data, pasted.len);
    vt_buf_release(&pasted);
    return status;
}

/* One key. True where it ended the input. */
static bool key(plain *p, int c, typed_status *status)
{
    char byte = (char)c;
    if (c == '\r' || c == '\n') {
        if (p->whole_text)
            add(p, "\n", 1);
        return !p->whole_text;
    }
    if (c == CTRL_D) {
        *status = p->whole_text || p->text->len ? TYPED_DONE : TYPED_END;
        return p->whole_text || p->text->len == 0;
    }
    if (c == DEL || c == CTRL_H)
        take_back(p);
    else if (c == CTRL_W)
        take_back_word(p);
    else if (c == CTRL_U)
        while (take_back(p))
            ;
    else if (c == ESC && typed_escape(p->t) == TYPED_PASTE_BEGINS)
        return (*status = add_paste(p)) != TYPED_DONE;
    else if (c >= ' ' || c == '\t')
        add(p, &byte, 1);
    return false;
}

static typed_status read_plain(typed *t, const char *prompt, bool whole_text, vt_buf *text)
{
    struct termios before;
    typed_status status = TYPED_DONE;
    plain p = {.t = t, .text = text, .whole_text = whole_text};
    int c;
    bool raw = set_raw(&before);
    if (t->marks_paste)
        show(t, "\033[?2004h");
    show(t, prompt);
    while ((c = typed_byte(t, &status)) >= 0 && !key(&p, c, &status))
        ;
    if (t->marks_paste)
        show(t, "\033[?2004l");
    show(t, "\n");
    if (raw)
        tcsetattr(0, TCSADRAIN, &before);
    if (text->failed && status == TYPED_DONE) {
        errno = 0;
        status = TYPED_FAILED;
    }
    return status;
}

typed_status typed_line(typed *t, const char *prompt, vt_buf *line)
{
    vt_buf_clear(line);
    return t->editing ? editing_line(t->editing, prompt, line) : read_plain(t, prompt, false, line);
}

typed_status typed_text(typed *t, vt_buf *text)
{
    typed_status status = read_plain(t, "", true, text);
    return status == TYPED_END ? TYPED_DONE : status; /* the terminal is gone: that is the text */
}
