/* The bytes of a terminal, for both line editors (cli/term/typed.h). */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include "base/term/term.h"
#include "cli/cli.h"
#include "cli/term/typed.h"

enum {
    CTRL_D = 4,
    ESC = 27,
    ESCAPE_MS = 50 /* a sequence's bytes come together; ESC alone is the key */
};

bool typed_more(typed *t, int ms)
{
    struct pollfd p = {.fd = t->in.fd, .events = POLLIN};
    return t->in.at < t->in.n || poll(&p, 1, ms) > 0;
}

/* Waits for bytes with SIGINT let in only while nothing else happens: a Ctrl-C between the look at
 * the flag and the read would otherwise wait for the next key. The read does not wait: a Ctrl-C
 * takes the bytes away that ppoll has just announced, and the signal is held back meanwhile. */
static typed_status fill(typed_input *in)
{
    struct pollfd p = {.fd = in->fd, .events = POLLIN};
    sigset_t held, before;
    typed_status status = TYPED_DONE;
    sigemptyset(&held);
    sigaddset(&held, SIGINT);
    sigprocmask(SIG_BLOCK, &held, &before);
    while (status == TYPED_DONE && in->at == in->n) {
        if (cli_interrupted()) {
            status = TYPED_INTERRUPTED;
            break;
        }
        if (ppoll(&p, 1, NULL, &before) < 0)
            continue; /* a signal */
        ssize_t n = read(in->fd, in->byte, sizeof in->byte);
        if (n > 0) {
            in->at = 0;
            in->n = (int)n;
        } else if (n == 0 || errno == EIO) /* EIO: the terminal was closed */
            status = TYPED_END;
        else if (errno != EINTR && errno != EAGAIN)
            status = TYPED_FAILED;
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    return status;
}

int typed_byte(typed *t, typed_status *status)
{
    typed_input *in = &t->in;
    if (in->at == in->n) {
        typed_status filled = fill(in);
        if (filled != TYPED_DONE) {
            *status = filled;
            return -1;
        }
    }
    int byte = (unsigned char)in->byte[in->at++];
    return byte == 0 ? CTRL_D : byte; /* how the kernel keeps one typed ahead of the switch */
}

int typed_escape(typed *t)
{
    typed_status ignored;
    int number = 0, c;
    if (!typed_more(t, ESCAPE_MS) || (c = typed_byte(t, &ignored)) < 0)
        return 0;
    if (c == 'O') /* ESC O x: a function key */
        typed_byte(t, &ignored);
    if (c != '[')
        return 0;
    while ((c = typed_byte(t, &ignored)) >= 0 && (c < 0x40 || c > 0x7e))
        number = c >= '0' && c <= '9' && number < 1000 ? 10 * number + c - '0' : -1;
    return c == '~' && number > 0 ? number : 0;
}

typed_status typed_paste(typed *t, vt_buf *text)
{
    typed_status status = TYPED_DONE;
    vt_shown state = {0};
    int c;
    while ((c = typed_byte(t, &status)) >= 0) {
        if (c == ESC && typed_escape(t) == TYPED_PASTE_ENDS)
            break;
        char byte = c == '\r' ? '\n' : (char)c;
        vt_text_show(text, &state, &byte, 1);
    }
    vt_text_show_end(text, &state);
    return c >= 0 ? TYPED_DONE : status;
}
