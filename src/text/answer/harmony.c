/* Answers in gpt-oss' form (inside.h): messages, each with a header that names its channel and whom
 * it is for. The prompt ends behind <|start|>assistant.
 *
 *   <|channel|>analysis<|message|>reasoning<|end|><|start|>assistant
 *   <|channel|>commentary to=functions.N <|constrain|>json<|message|>A<|call|>
 *   <|channel|>final<|message|>text<|return|>
 *
 * Commentary for nobody is text; messages to other tools than functions are reasoning. An answer
 * that does not begin with a header is text. */
#include <string.h>

#include "text/answer/inside.h"

enum { MAX_HEADER = 512 };

static const char message[] = "<|message|>", channel[] = "<|channel|>";

/* The word behind a mark of the header, up to white space or the next mark; "": there is none. */
static const char *word_behind(const vt_buf *header, const char *mark, size_t *n)
{
    const char *end = header->data + header->len;
    const char *at = memmem(header->data, header->len, mark, strlen(mark));
    *n = 0;
    if (!at)
        return "";
    at += strlen(mark);
    while (at + *n < end && !answer_is_blank(at[*n]) && at[*n] != '<')
        ++*n;
    return at;
}

static bool is(const char *word, size_t n, const char *what)
{
    return n == strlen(what) && memcmp(word, what, n) == 0;
}

/* Begins a message as its header says. */
static void begin_message(vt_answer_reader *r)
{
    static const char functions[] = "functions.";
    size_t n_channel, n_to, n_prefix = sizeof functions - 1;
    const char *where = word_behind(&r->key, channel, &n_channel);
    const char *to = word_behind(&r->key, "to=", &n_to);
    bool call = n_to > n_prefix && memcmp(to, functions, n_prefix) == 0;
    bool called = call && r->calls && n_to - n_prefix <= VT_CALL_MAX_NAME;
    r->state = IN_MESSAGE;
    r->first = true;
    r->bad = false;
    r->scan = (json_scan){.state = SCAN_VALUE};
    if (called) {
        r->role = VT_PIECE_ARGUMENTS;
        answer_call(r, to + n_prefix, n_to - n_prefix, NULL);
    } else if (is(where, n_channel, "analysis") || (n_to > 0 && !call)) {
        r->role = VT_PIECE_REASONING;
    } else {
        r->role = VT_PIECE_TEXT;
    }
}

/* Returns true if a header can begin like this. */
static bool may_be_header(const vt_answer_reader *r)
{
    static const char *const begins[] = {"<|", "to=", "assistant"};
    const char *s = r->key.data;
    size_t n = r->key.len, at = 0;
    while (at < n && answer_is_blank(s[at]))
        at++;
    bool may = at == n || r->n_items > 0;
    for (int i = 0; i < 3 && !may; i++) {
        size_t len = strlen(begins[i]);
        may = memcmp(s + at, begins[i], n - at < len ? n - at : len) == 0;
    }
    return may && n < MAX_HEADER;
}

/* The answer has no header: all of it is text. */
static void no_header(vt_answer_reader *r)
{
    r->state = IN_TEXT;
    r->role = VT_PIECE_TEXT;
    r->thought = true;
    answer_put(r, VT_PIECE_TEXT, r->key.data, r->key.len);
    vt_buf_clear(&r->key);
}

static void step_header(vt_answer_reader *r, char c)
{
    size_t n = sizeof message - 1;
    vt_buf_putc(&r->key, c);
    if (r->key.len >= n && memcmp(r->key.data + r->key.len - n, message, n) == 0) {
        r->key.len -= n;
        r->n_items++;
        begin_message(r);
        vt_buf_clear(&r->key);
    } else if (!may_be_header(r)) {
        no_header(r);
    }
}

/* A byte of a call's arguments; r->bad: they are no JSON. */
static void pass_arguments(vt_answer_reader *r, char c)
{
    bool text = scan_in_string(&r->scan);
    if (answer_is_blank(c) && (!r->filled || (!r->bad && r->scan.depth == 0)))
        return;
    if (!r->bad && json_scan_step(&r->scan, c) == SCAN_BAD)
        r->bad = true;
    if (!r->filled && c != '{')
        r->bad = true;
    object_pass(r, c, text && !r->bad);
}

static void pass(vt_answer_reader *r, char c)
{
    vt_piece_kind kind = (vt_piece_kind)r->role;
    if (kind == VT_PIECE_ARGUMENTS) {
        pass_arguments(r, c);
        return;
    }
    if (r->first && (kind == VT_PIECE_REASONING ? r->said : r->spoke))
        answer_put(r, kind, "\n", 1); /* between two messages */
    r->first = false;
    if (kind == VT_PIECE_REASONING)
        r->said = true;
    else
        r->spoke = true;
    answer_put(r, kind, &c, 1);
}

/* Ends a message. Arguments are whole where they are a JSON object, or nothing. */
static void end_message(vt_answer_reader *r, bool cut)
{
    bool whole = !r->bad && r->scan.depth == 0 && (r->filled || !cut);
    if (r->role == VT_PIECE_ARGUMENTS)
        answer_call_end(r, whole);
    r->role = VT_PIECE_TEXT;
    r->state = IN_HEADER;
}

void harmony_step(vt_answer_reader *r, char c)
{
    static const char *const ends[] = {"<|end|>",    "<|start|>", "<|call|>",
                                       "<|return|>", channel,     NULL};
    if (r->state == IN_HEADER) {
        step_header(r, c);
        return;
    }
    int found = answer_look(r, c, ends, pass);
    if (found < 0)
        return;
    end_message(r, false);
    if (ends[found] == channel)
        vt_buf_puts(&r->key, channel);
}

void harmony_end(vt_answer_reader *r)
{
    if (r->state == IN_HEADER) {
        if (r->n_items == 0 && r->key.len > 0)
            no_header(r);
        return;
    }
    vt_buf tag = r->tag;
    vt_buf_init(&r->tag, 0);
    for (size_t i = 0; i < tag.len; i++)
        pass(r, tag.data[i]);
    vt_buf_release(&tag);
    end_message(r, true);
}
