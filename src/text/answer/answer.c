/* The byte-fed reader of answers (answer.h): text, reasoning, and where calls begin and end.
 *
 *               <think>              </think>
 *   IN_TEXT ───────────> IN_THOUGHT ─────────> IN_TEXT
 *      │   the marker of a call
 *      └───────────────────────> states of object.c, tagged.c ... ───> IN_TEXT
 *
 * A call's bytes are held until its name is known. Then it is told, and its arguments as they come.
 * If that cannot be a call, what was held is text, and its last byte is looked at again. */
#include "text/answer/answer.h"

#include <string.h>

#include "text/answer/inside.h"

enum { MAX_LIST = 20, MAX_MARKER = 128 }; /* markers at one place of a text; bytes of one */

bool answer_is_blank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

/* ---- pieces ---- */

static void flush(vt_answer_reader *r)
{
    r->failed |= r->out.failed;
    if (r->out.len > 0)
        r->take(r->user, r->kind, r->out.data, r->out.len);
    vt_buf_clear(&r->out);
}

void answer_put(vt_answer_reader *r, vt_piece_kind kind, const char *bytes, size_t n)
{
    if (r->kind != kind)
        flush(r);
    r->kind = kind;
    vt_buf_add(&r->out, bytes, n);
    r->filled |= kind == VT_PIECE_ARGUMENTS;
}

static void put_buf(vt_answer_reader *r, vt_piece_kind kind, vt_buf *b)
{
    if (b->len > 0)
        answer_put(r, kind, b->data, b->len);
    r->failed |= b->failed;
    vt_buf_clear(b);
}

void answer_call(vt_answer_reader *r, const char *name, size_t n, const char *id)
{
    flush(r);
    r->call_id = id;
    r->take(r->user, VT_PIECE_CALL, name, n);
    r->call_id = NULL;
    r->in_call = true;
    r->filled = false;
    r->n_calls++;
    r->n_items++;
    vt_buf_clear(&r->held);
    vt_buf_clear(&r->blank);
}

void answer_call_end(vt_answer_reader *r, bool whole)
{
    if (!r->filled && whole)
        answer_put(r, VT_PIECE_ARGUMENTS, "{}", 2);
    flush(r);
    r->take(r->user, whole ? VT_PIECE_CALL_END : VT_PIECE_CALL_BROKEN, "", 0);
    r->in_call = false;
}

/* ---- markers ---- */

int answer_marker(const vt_answer_reader *r, const char *const *list, bool *begins)
{
    *begins = false;
    for (int i = 0; list[i]; i++) {
        size_t n = strlen(list[i]);
        if (r->tag.len > n || memcmp(list[i], r->tag.data, r->tag.len) != 0)
            continue;
        if (r->tag.len == n)
            return i;
        *begins = true;
    }
    return -1;
}

int answer_expect(vt_answer_reader *r, char c, const char *const *list)
{
    bool begins;
    if (r->tag.len == 0 && answer_is_blank(c))
        return -1;
    if (!vt_buf_putc(&r->tag, c))
        return -1;
    int found = answer_marker(r, list, &begins);
    if (found >= 0)
        vt_buf_clear(&r->tag);
    return found >= 0 ? found : begins ? -1 : -2;
}

void answer_again(vt_answer_reader *r)
{
    vt_buf tag = r->tag;
    vt_buf_init(&r->tag, 0);
    for (size_t i = 0; i < tag.len; i++)
        answer_step(r, tag.data[i]);
    r->failed |= tag.failed;
    vt_buf_release(&tag);
}

/* Hands the first byte of r->tag to `pass`. False: that byte began something, to which the others
 * were given. */
static bool pass_first(vt_answer_reader *r, void (*pass)(vt_answer_reader *r, char c))
{
    char rest[MAX_MARKER];
    int state = r->state;
    size_t n = r->tag.len - 1 < sizeof rest ? r->tag.len - 1 : sizeof rest;
    char first = r->tag.data[0];
    memcpy(rest, r->tag.data + 1, n);
    vt_buf_clear(&r->tag);
    pass(r, first);
    if (r->state == state) {
        vt_buf_add(&r->tag, rest, n);
        return true;
    }
    for (size_t i = 0; i < n; i++)
        answer_step(r, rest[i]);
    return false;
}

int answer_look(vt_answer_reader *r, char c, const char *const *list,
                void (*pass)(vt_answer_reader *r, char c))
{
    if (!vt_buf_putc(&r->tag, c))
        return -1;
    while (r->tag.len > 0) {
        bool begins;
        int found = answer_marker(r, list, &begins);
        if (found >= 0) {
            vt_buf_clear(&r->tag);
            return found;
        }
        if (begins || !pass_first(r, pass))
            return -1;
    }
    return -1;
}

/* ---- text and reasoning ---- */

/* Returns true if white space is all that is held. */
static bool holds_blanks(const vt_answer_reader *r)
{
    for (size_t i = 0; i < r->held.len; i++)
        if (!answer_is_blank(r->held.data[i]))
            return false;
    return true;
}

void answer_to_text(vt_answer_reader *r)
{
    size_t n = r->tag.len > 0 ? r->tag.len : 1;
    if (r->held.failed || n > r->held.len)
        n = r->held.len;
    vt_buf_clear(&r->tag);
    vt_buf_add(&r->tag, r->held.data + r->held.len - n, n);
    r->held.len -= n;
    r->state = IN_TEXT;
    r->at_start = false;
    if (r->n_items == 0 || !holds_blanks(r)) {
        put_buf(r, VT_PIECE_TEXT, &r->blank);
        put_buf(r, VT_PIECE_TEXT, &r->held);
    }
    vt_buf_clear(&r->held);
    answer_again(r);
}

void answer_leave(vt_answer_reader *r)
{
    r->state = IN_TEXT;
    vt_buf_clear(&r->held);
}

/* A call begins, or a section of calls. */
static void open_calls(vt_answer_reader *r)
{
    const call_syntax *s = answer_syntax(r->form);
    r->n_items = 0;
    r->list = r->unmarked = r->at_start = false;
    if (s->body == BODY_JSON)
        r->state = IN_ITEMS;
    else if (s->body == BODY_NAMED || s->body == BODY_KEYED)
        tagged_begin(r);
    else
        r->state = IN_HELD;
}

/* A character that begins calls where no marker does. */
static void open_whole(vt_answer_reader *r, char c)
{
    open_calls(r);
    r->unmarked = true;
    answer_step(r, c);
}

static void pass_text(vt_answer_reader *r, char c)
{
    const call_syntax *s = answer_syntax(r->form);
    if (answer_is_blank(c)) {
        if (!(r->at_start && r->thought)) /* behind reasoning it is dropped */
            vt_buf_putc(&r->blank, c);
        return;
    }
    if (r->at_start && r->calls && s->whole == c) {
        open_whole(r, c);
        return;
    }
    r->at_start = false;
    put_buf(r, VT_PIECE_TEXT, &r->blank);
    answer_put(r, VT_PIECE_TEXT, &c, 1);
}

static void pass_thought(vt_answer_reader *r, char c)
{
    if (answer_is_blank(c)) {
        if (r->said)
            vt_buf_putc(&r->blank, c);
        return;
    }
    r->said = true;
    put_buf(r, VT_PIECE_REASONING, &r->blank);
    answer_put(r, VT_PIECE_REASONING, &c, 1);
}

static void begin_thought(vt_answer_reader *r)
{
    r->state = IN_THOUGHT;
    vt_buf_clear(&r->blank);
}

static void end_thought(vt_answer_reader *r)
{
    flush(r);
    r->state = IN_TEXT;
    r->thought = r->at_start = true;
    vt_buf_clear(&r->blank);
}

/* The marker of a call came, whose text is held until the call is known to be one. */
static void take_open(vt_answer_reader *r, const char *marker)
{
    if (r->state == IN_THOUGHT)
        end_thought(r);
    open_calls(r);
    vt_buf_puts(&r->held, marker);
}

static int add_all(const char **list, int n, const char *const *more)
{
    for (int i = 0; i < MARKERS && more[i] && n < MAX_LIST; i++)
        list[n++] = more[i];
    return n;
}

static void step_text(vt_answer_reader *r, char c)
{
    const call_syntax *s = answer_syntax(r->form);
    vt_thought_tags t = vt_thought_tags_of(r->thoughts);
    const char *list[MAX_LIST + 2] = {0};
    int n = 0, n_open, thought = -1;
    if (r->calls)
        n = add_all(list, n, s->open);
    n_open = n;
    n = add_all(list, n, s->drop);
    if (r->n_calls > 0) { /* closing tags that are left over */
        n = add_all(list, n, s->call_end);
        n = add_all(list, n, s->end);
    }
    if (t.open && r->at_start && !r->thought)
        list[thought = n++] = t.open;
    else if (t.close && !r->thought)
        list[n++] = t.close;
    int found = answer_look(r, c, list, pass_text);
    if (found < 0)
        return;
    if (found < n_open)
        take_open(r, list[found]);
    else if (found == thought)
        begin_thought(r);
    else if (t.close && list[found] == t.close)
        r->thought = true; /* only the first one is no text */
}

static void step_thought(vt_answer_reader *r, char c)
{
    const call_syntax *s = answer_syntax(r->form);
    vt_thought_tags t = vt_thought_tags_of(r->thoughts);
    const char *list[MAX_LIST] = {t.close};
    int n = 1;
    if (!r->said) /* a template has opened the thought, and the model does once more */
        list[n++] = t.open;
    int n_before = n;
    if (r->calls && (s->special || r->form == VT_CALLS_XML)) /* a call ends the thought */
        n = add_all(list, n, s->open);
    int found = answer_look(r, c, list, pass_thought);
    if (found == 0)
        end_thought(r);
    else if (found >= n_before)
        take_open(r, list[found]);
}

/* ---- calls that are read when they are whole ---- */

static bool read_held(vt_answer_reader *r, size_t n)
{
    const call_syntax *s = answer_syntax(r->form);
    const char *text = r->held.data;
    for (int i = 0; i < MARKERS && s->open[i] && !r->unmarked; i++) {
        size_t len = strlen(s->open[i]);
        if (n >= len && memcmp(text, s->open[i], len) == 0)
            return s->body == BODY_GEMMA ? gemma_read(r, text + len, n - len)
                                         : pythonic_read(r, text + len, n - len);
    }
    return pythonic_read(r, text, n);
}

/* Reads what is held but for the closing tag of that length. */
static void end_held(vt_answer_reader *r, size_t n_end)
{
    vt_buf held = r->held; /* telling a call clears r->held */
    bool are = !held.failed && read_held(r, held.len - n_end);
    r->state = IN_TEXT;
    r->held = held;
    if (!are) {
        put_buf(r, VT_PIECE_TEXT, &r->blank);
        put_buf(r, VT_PIECE_TEXT, &r->held);
    }
    vt_buf_clear(&r->held);
    vt_buf_clear(&r->blank);
}

static void step_held(vt_answer_reader *r)
{
    const call_syntax *s = answer_syntax(r->form);
    for (int i = 0; i < MARKERS && s->end[i] && !r->unmarked; i++) {
        size_t n = strlen(s->end[i]);
        if (r->held.len >= n && memcmp(r->held.data + r->held.len - n, s->end[i], n) == 0) {
            end_held(r, n);
            return;
        }
    }
}

/* ---- the reader ---- */

void vt_answer_begin(vt_answer_reader *r)
{
    vt_buf *const all[] = {&r->tag,   &r->blank, &r->held, &r->out, &r->key,
                           &r->value, &r->name,  &r->id,   &r->late};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        vt_buf_init(all[i], 0);
    r->at_start = true;
    r->state = r->form == VT_CALLS_HARMONY      ? IN_HEADER
               : r->thoughts && r->began_inside ? IN_THOUGHT
                                                : IN_TEXT;
}

static void step_call(vt_answer_reader *r, char c)
{
    if (r->state == IN_HELD)
        step_held(r);
    else if (r->state == IN_ITEMS)
        object_step_items(r, c);
    else if (r->state == IN_OBJECT)
        object_step(r, c);
    else
        tagged_step(r, c);
}

void answer_step(vt_answer_reader *r, char c)
{
    if (r->state == IN_TEXT) {
        step_text(r, c);
    } else if (r->state == IN_THOUGHT) {
        step_thought(r, c);
    } else if (r->form == VT_CALLS_HARMONY) {
        harmony_step(r, c);
    } else {
        if (!r->in_call)
            vt_buf_putc(&r->held, c);
        if (r->held.len > VT_CALL_MAX_BYTES)
            answer_to_text(r);
        else
            step_call(r, c);
    }
}

void vt_answer_feed(vt_answer_reader *r, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        answer_step(r, bytes[i]);
    flush(r);
}

bool vt_answer_is_thinking(const vt_answer_reader *r)
{
    return r->state == IN_THOUGHT || (r->form == VT_CALLS_HARMONY && r->role == VT_PIECE_REASONING);
}

/* Hands on what is left of text or reasoning: a marker that was not finished. */
static void end_text(vt_answer_reader *r, vt_piece_kind kind)
{
    if (r->tag.len > 0 || (r->n_calls == 0 && kind == VT_PIECE_TEXT))
        put_buf(r, kind, &r->blank);
    put_buf(r, kind, &r->tag);
}

void vt_answer_end(vt_answer_reader *r)
{
    if (r->state == IN_TEXT || r->state == IN_THOUGHT) {
        end_text(r, r->state == IN_TEXT ? VT_PIECE_TEXT : VT_PIECE_REASONING);
    } else if (r->form == VT_CALLS_HARMONY) {
        harmony_end(r);
    } else if (r->state == IN_HELD) {
        end_held(r, 0);
    } else if (r->in_call) {
        tagged_end(r);
    } else if (r->state == IN_OBJECT || r->n_items == 0) {
        put_buf(r, VT_PIECE_TEXT, &r->blank);
        put_buf(r, VT_PIECE_TEXT, &r->held);
    }
    flush(r);
    r->failed |= r->blank.failed || r->held.failed || r->tag.failed || r->name.failed ||
                 r->key.failed || r->value.failed || r->late.failed || r->id.failed;
}

void vt_answer_release(vt_answer_reader *r)
{
    vt_buf *const all[] = {&r->tag,   &r->blank, &r->held, &r->out, &r->key,
                           &r->value, &r->name,  &r->id,   &r->late};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        vt_buf_release(all[i]);
}
