/* The byte-fed reader of answers (answer.h).
 *
 *           <think>                       </think>
 *   START ───────────> THINKING ─────────────────────> START again
 *     │  { or [ where the form is a whole answer
 *     ├─────────────> WHOLE   held until the end, then calls or text
 *     │  anything else            <tool_call>
 *     └─────────────> TEXT ───────────────────> CALL   held until </tool_call>, then a call or text
 *                       ^────────────────────────┘
 *
 * Every marker begins with a character that it has nowhere else, so a failed match restarts with
 * the byte that failed it. */
#include "text/answer/answer.h"

#include <string.h>

enum { START, THINKING, TEXT, CALL, WHOLE };
enum { MAX_TRIES = 16 }; /* closing tags inside of a call's strings */

static const char think_open[] = "<think>", think_close[] = "</think>";
static const char call_open[] = "<tool_call>", call_close[] = "</tool_call>";

static bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

/* ---- pieces ---- */

static void flush(vt_answer_reader *r)
{
    r->failed |= r->out.failed;
    if (r->out.len > 0)
        r->take(r->user, r->kind, r->out.data, r->out.len);
    vt_buf_clear(&r->out);
}

static void put(vt_answer_reader *r, vt_piece_kind kind, const char *bytes, size_t n)
{
    if (r->kind != kind)
        flush(r);
    r->kind = kind;
    vt_buf_add(&r->out, bytes, n);
}

static void put_blank(vt_answer_reader *r, vt_piece_kind kind)
{
    if (r->blank.len > 0)
        put(r, kind, r->blank.data, r->blank.len);
    vt_buf_clear(&r->blank);
}

static void tell_calls(vt_answer_reader *r, const vt_buf *calls)
{
    flush(r);
    for (size_t at = 0; at < calls->len;) {
        size_t n[2];
        memcpy(n, calls->data + at, sizeof n);
        at += sizeof n;
        r->take(r->user, VT_PIECE_CALL, calls->data + at, n[0]);
        r->take(r->user, VT_PIECE_ARGUMENTS, calls->data + at + n[0], n[1]);
        at += n[0] + n[1];
        r->n_calls++;
    }
}

/* Tells the calls that a text is; false: it is none. */
static bool try_calls(vt_answer_reader *r, const char *text, size_t n)
{
    vt_buf calls;
    vt_buf_init(&calls, 0);
    bool are = vt_calls_read(r, text, n, &calls) && !calls.failed;
    if (are)
        tell_calls(r, &calls);
    vt_buf_release(&calls);
    return are;
}

/* ---- states ---- */

/* Looks for a marker in a running text of one kind. True: the marker is whole with this byte. */
static bool scan(vt_answer_reader *r, char c, const char *marker, vt_piece_kind kind)
{
    if (r->matched > 0 && marker[r->matched] != c) {
        put_blank(r, kind);
        put(r, kind, marker, r->matched);
        r->matched = 0;
    }
    if (marker[r->matched] == c) {
        if (marker[++r->matched])
            return false;
        r->matched = 0;
        vt_buf_clear(&r->blank);
        return true;
    }
    if (is_blank(c)) {
        vt_buf_putc(&r->blank, c);
        return false;
    }
    put_blank(r, kind);
    put(r, kind, &c, 1);
    return false;
}

static void step_text(vt_answer_reader *r, char c)
{
    bool tagged = r->form == VT_CALLS_HERMES || r->form == VT_CALLS_XML;
    if (!tagged) {
        put(r, VT_PIECE_TEXT, &c, 1);
    } else if (scan(r, c, call_open, VT_PIECE_TEXT)) {
        r->state = CALL;
        r->n_tries = 0;
    }
}

static void step_thinking(vt_answer_reader *r, char c)
{
    if (!r->said && is_blank(c) && r->matched == 0)
        return;
    if (scan(r, c, think_close, VT_PIECE_REASONING)) {
        flush(r);
        r->state = START;
        r->reasons = false;
    }
    r->said = true;
}

/* Goes to the text state with what was held. */
static void release_as_text(vt_answer_reader *r, const char *marker)
{
    vt_buf held = r->held;
    vt_buf_init(&r->held, 0);
    r->state = TEXT;
    r->matched = 0;
    put(r, VT_PIECE_TEXT, marker, strlen(marker));
    put(r, VT_PIECE_TEXT, held.data ? held.data : "", held.len);
    r->failed |= held.failed;
    vt_buf_release(&held);
}

/* The beginning: white space is held until it is known what follows. */
static void step_start(vt_answer_reader *r, char c)
{
    bool whole = r->form == VT_CALLS_LLAMA || r->form == VT_CALLS_PYTHONIC ||
                 r->form == VT_CALLS_MISTRAL;
    if (r->matched == 0 && is_blank(c)) {
        if (!r->said) /* behind reasoning it is dropped */
            vt_buf_putc(&r->blank, c);
        return;
    }
    if (r->reasons && c == think_open[r->matched]) {
        if (!think_open[++r->matched]) {
            r->matched = 0;
            vt_buf_clear(&r->blank);
            r->state = THINKING;
        }
        return;
    }
    size_t matched = r->matched;
    r->matched = 0;
    r->state = TEXT;
    if (matched == 0 && whole && (c == '{' || c == '[')) {
        r->state = WHOLE;
        vt_buf_putc(&r->held, c);
        return;
    }
    for (size_t i = 0; i < matched; i++)
        step_text(r, think_open[i]);
    if (r->form != VT_CALLS_HERMES && r->form != VT_CALLS_XML)
        put_blank(r, VT_PIECE_TEXT);
    step_text(r, c);
}

/* Returns true if a JSON text ends inside of a string. */
static bool ends_in_string(const char *s, size_t n)
{
    bool in = false;
    for (size_t i = 0; i < n; i++) {
        if (in && s[i] == '\\')
            i++;
        else if (s[i] == '"')
            in = !in;
    }
    return in;
}

/* Returns true if </tool_call> may be part of an argument here. */
static bool goes_on(const vt_answer_reader *r, size_t n)
{
    static const char end[] = "</function>";
    const char *s = r->held.data;
    if (r->form == VT_CALLS_HERMES)
        return ends_in_string(s, n);
    while (n > 0 && is_blank(s[n - 1]))
        n--;
    return n < sizeof end - 1 || memcmp(s + n - (sizeof end - 1), end, sizeof end - 1) != 0;
}

static void step_call(vt_answer_reader *r, char c)
{
    size_t n_close = sizeof call_close - 1;
    if (!vt_buf_putc(&r->held, c) || r->held.len > VT_CALL_MAX_BYTES) {
        put_blank(r, VT_PIECE_TEXT);
        release_as_text(r, call_open);
        return;
    }
    size_t n = r->held.len;
    if (c != '>' || n < n_close || memcmp(r->held.data + n - n_close, call_close, n_close) != 0)
        return;
    if (goes_on(r, n - n_close) && ++r->n_tries < MAX_TRIES)
        return;
    if (try_calls(r, r->held.data, n - n_close)) {
        vt_buf_clear(&r->held);
        r->state = TEXT;
    } else {
        release_as_text(r, call_open);
    }
}

static void step_whole(vt_answer_reader *r, char c)
{
    if (!vt_buf_putc(&r->held, c) || r->held.len > VT_CALL_MAX_BYTES) {
        put_blank(r, VT_PIECE_TEXT);
        release_as_text(r, "");
    }
}

/* ---- the reader ---- */

void vt_answer_begin(vt_answer_reader *r)
{
    r->state = r->reasons && r->began_inside ? THINKING : START;
    vt_buf_init(&r->blank, 0);
    vt_buf_init(&r->held, 0);
    vt_buf_init(&r->out, 0);
}

void vt_answer_feed(vt_answer_reader *r, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        switch (r->state) {
        case START:
            step_start(r, bytes[i]);
            break;
        case THINKING:
            step_thinking(r, bytes[i]);
            break;
        case TEXT:
            step_text(r, bytes[i]);
            break;
        case CALL:
            step_call(r, bytes[i]);
            break;
        default:
            step_whole(r, bytes[i]);
        }
    }
    flush(r);
}

bool vt_answer_is_thinking(const vt_answer_reader *r) { return r->state == THINKING; }

void vt_answer_end(vt_answer_reader *r)
{
    bool held = r->state == CALL || r->state == WHOLE;
    if (held && try_calls(r, r->held.data ? r->held.data : "", r->held.len)) {
        vt_buf_clear(&r->held);
        vt_buf_clear(&r->blank);
    } else if (r->state == CALL) {
        release_as_text(r, call_open);
    } else if (r->state == WHOLE) {
        put_blank(r, VT_PIECE_TEXT);
        release_as_text(r, "");
    } else {
        vt_piece_kind kind = r->state == THINKING ? VT_PIECE_REASONING : VT_PIECE_TEXT;
        const char *marker = r->state == START      ? think_open
                             : r->state == THINKING ? think_close
                                                    : call_open;
        if (r->matched > 0 || (r->n_calls == 0 && kind == VT_PIECE_TEXT))
            put_blank(r, kind);
        if (r->matched > 0)
            put(r, kind, marker, r->matched);
    }
    flush(r);
    r->failed |= r->blank.failed || r->held.failed;
}

void vt_answer_release(vt_answer_reader *r)
{
    vt_buf_release(&r->blank);
    vt_buf_release(&r->held);
    vt_buf_release(&r->out);
}

/* ---- templates ---- */

static const char *const form_names[VT_CALL_FORMS] = {
    [VT_CALLS_HERMES] = "hermes",     [VT_CALLS_XML] = "qwen-xml",
    [VT_CALLS_LLAMA] = "llama3-json", [VT_CALLS_PYTHONIC] = "pythonic",
    [VT_CALLS_MISTRAL] = "mistral",
};

const char *vt_call_form_name(vt_call_form form)
{
    return form > VT_CALLS_NONE && form < VT_CALL_FORMS ? form_names[form] : NULL;
}

vt_call_form vt_call_form_of(const char *t)
{
    if (!t || !strstr(t, "tools"))
        return VT_CALLS_NONE;
    if (strstr(t, "<function=") && strstr(t, call_open))
        return VT_CALLS_XML;
    if (strstr(t, call_open) && !strstr(t, "<arg_key>"))
        return VT_CALLS_HERMES;
    if (strstr(t, "[TOOL_CALLS]")) /* newer ones write N[ARGS]A, which is not read here */
        return strstr(t, "[ARGS]") ? VT_CALLS_NONE : VT_CALLS_MISTRAL;
    if (strstr(t, "[func_name1(") || strstr(t, "<|python_start|>"))
        return VT_CALLS_PYTHONIC;
    if (strstr(t, "\"parameters\"") && strstr(t, "ipython"))
        return VT_CALLS_LLAMA;
    return VT_CALLS_NONE;
}

bool vt_text_reasons(const char *text, size_t n)
{
    return memmem(text, n, think_open, sizeof think_open - 1) ||
           memmem(text, n, think_close, sizeof think_close - 1);
}

bool vt_text_ends_thinking(const char *text, size_t n)
{
    const char *open = NULL, *at = text, *end = text + n;
    while ((at = memmem(at, (size_t)(end - at), think_open, sizeof think_open - 1)))
        open = ++at;
    return open && !memmem(open, (size_t)(end - open), think_close, sizeof think_close - 1);
}
