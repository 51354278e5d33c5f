/* Calls between markers (inside.h): N name_end A, or N name_end and key K key_end V value_end for
 * each argument.
 *
 *   IN_SECTION ──> IN_NAME ──> IN_NAMED_ARGUMENTS ──> AFTER_ARGUMENTS
 *        ^            │             ^└──> IN_BROKEN
 *        │            └──> IN_KEYS ┴─> IN_KEY ──> IN_VALUE ──> AFTER_VALUE
 *        └────────────────────┴────────────────────────────────────┘
 *
 * A value that the tool's schema says is a string is told as it comes; others, which are JSON or
 * Python's words, when they are whole. A value may hold its own end tag: it ends where another
 * argument or the end of the call follows. */
#include <string.h>

#include "text/answer/inside.h"

enum { MAX_HEADER = 1024, MAX_JOINED = 3 * MARKERS + 1 };

static const call_syntax *syntax(const vt_answer_reader *r) { return answer_syntax(r->form); }

/* Lists one behind the other; the place of `list` that each marker comes from is in `from`. */
static void join(const char *out[MAX_JOINED], int from[MAX_JOINED], const char *const *a,
                 const char *const *b, const char *const *c)
{
    const char *const *lists[] = {a, b, c};
    int n = 0;
    for (int k = 0; k < 3; k++)
        for (int i = 0; lists[k] && i < MARKERS && lists[k][i]; i++) {
            from[n] = k;
            out[n++] = lists[k][i];
        }
    out[n] = NULL;
}

void tagged_begin(vt_answer_reader *r)
{
    vt_buf_clear(&r->name);
    r->state = syntax(r)->call[0] ? IN_SECTION : IN_NAME;
}

/* ---- names ---- */

static void step_section(vt_answer_reader *r, char c)
{
    const call_syntax *s = syntax(r);
    const char *list[MAX_JOINED];
    int from[MAX_JOINED];
    join(list, from, s->call, s->end, NULL);
    int found = answer_expect(r, c, list);
    if (found >= 0 && from[found] == 0) {
        vt_buf_clear(&r->name);
        r->state = IN_NAME;
    } else if (found >= 0 && r->n_items > 0) {
        answer_leave(r);
    } else if (found != -1) {
        answer_to_text(r);
    }
}

/* The length of what stands in front of a mark. */
static size_t up_to(const char *s, size_t n, const char *mark)
{
    const char *at = memmem(s, n, mark, strlen(mark));
    return at ? (size_t)(at - s) : n;
}

/* Undoes &quot; and &amp; in place, as Kimi K3 writes names. */
static void unescape(vt_buf *b)
{
    static const char *const from[] = {"&quot;", "&amp;"};
    static const char to[] = "\"&";
    for (int k = 0; k < 2; k++)
        for (char *at = b->data, *end; at; at++) {
            end = b->data + b->len;
            at = memmem(at, (size_t)(end - at), from[k], strlen(from[k]));
            if (!at)
                break;
            *at = to[k];
            size_t n = strlen(from[k]) - 1;
            memmove(at + 1, at + 1 + n, (size_t)(end - at) - n);
            b->len -= n;
        }
}

/* Cuts white space off both ends. */
static void trim(vt_buf *b)
{
    size_t n = 0;
    while (b->len > 0 && answer_is_blank(b->data[b->len - 1]))
        b->len--;
    while (n < b->len && answer_is_blank(b->data[n]))
        n++;
    if (n > 0)
        memmove(b->data, b->data + n, b->len - n);
    b->len -= n;
}

static bool is_name(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] <= ' ' || strchr("<>{}[]\"", s[i]))
            return false;
    return n > 0 && n <= VT_CALL_MAX_NAME;
}

/* functions.N:INDEX is N, and all of it the call's id. */
static void read_kimi(vt_answer_reader *r)
{
    static const char prefix[] = "functions.";
    size_t n_prefix = sizeof prefix - 1, n = r->name.len;
    vt_buf_clear(&r->id);
    vt_buf_add(&r->id, r->name.data, n);
    while (n > 0 && r->name.data[n - 1] >= '0' && r->name.data[n - 1] <= '9')
        n--;
    if (n > 0 && n < r->name.len && r->name.data[n - 1] == ':')
        r->name.len = n - 1;
    if (r->name.len > n_prefix && memcmp(r->name.data, prefix, n_prefix) == 0) {
        r->name.len -= n_prefix;
        memmove(r->name.data, r->name.data + n_prefix, r->name.len);
    }
}

/* Makes a name, and perhaps an id, of what stood between the markers. False: it is none. */
static bool read_name(vt_answer_reader *r)
{
    static const char call_id[] = "[CALL_ID]";
    vt_buf *b = &r->name;
    size_t n;
    if (b->failed)
        return false;
    trim(b);
    vt_buf_clear(&r->id);
    switch (r->form) {
    case VT_CALLS_KIMI_K2:
        read_kimi(r);
        break;
    case VT_CALLS_KIMI_K3:
        b->len = up_to(b->data, b->len, "\"");
        unescape(b);
        break;
    case VT_CALLS_MISTRAL:
        n = up_to(b->data, b->len, call_id);
        if (n < b->len)
            vt_buf_add(&r->id, b->data + n + sizeof call_id - 1, b->len - n - sizeof call_id + 1);
        b->len = n;
        break;
    default:
        break;
    }
    return is_name(b->data, b->len) && (r->id.len == 0 || is_name(r->id.data, r->id.len));
}

/* Returns the marker of a list that ends a text; -1: none does. */
static int ends_with(const vt_buf *b, const char *const *list)
{
    for (int i = 0; i < MARKERS && list[i]; i++) {
        size_t n = strlen(list[i]);
        if (b->len >= n && memcmp(b->data + b->len - n, list[i], n) == 0)
            return i;
    }
    return -1;
}

static void step_name(vt_answer_reader *r, char c)
{
    const call_syntax *s = syntax(r);
    vt_buf_putc(&r->name, c);
    if (r->name.len == 1 && answer_is_blank(c)) {
        vt_buf_clear(&r->name);
        return;
    }
    int found = ends_with(&r->name, s->name_end);
    if (found < 0 && r->name.len < MAX_HEADER)
        return;
    if (found >= 0)
        r->name.len -= strlen(s->name_end[found]);
    if (found < 0 || !read_name(r)) {
        answer_to_text(r);
        return;
    }
    answer_call(r, r->name.data, r->name.len, r->id.len > 0 ? r->id.data : NULL);
    r->scan = (json_scan){.state = SCAN_VALUE};
    r->state = s->body == BODY_KEYED ? IN_KEYS : IN_NAMED_ARGUMENTS;
    /* a marker that ends the name may belong to what follows */
    for (const char *at = s->name_end[found]; r->form == VT_CALLS_GLM && *at; at++)
        answer_step(r, *at);
}

/* ---- JSON behind a name ---- */

/* Goes to what comes where a call has ended. */
static void leave_call(vt_answer_reader *r, bool section)
{
    vt_buf_clear(&r->held);
    r->state = section && syntax(r)->call[0] ? IN_SECTION : IN_TEXT;
}

static void step_named(vt_answer_reader *r, char c)
{
    scan_verdict v = SCAN_BAD;
    bool text = scan_in_string(&r->scan);
    if (!r->filled && answer_is_blank(c))
        return;
    if (r->filled || c == '{')
        v = json_scan_step(&r->scan, c);
    if (v == SCAN_BAD) {
        r->state = IN_BROKEN;
        answer_step(r, c);
        return;
    }
    object_pass(r, c, text);
    if (v == SCAN_WHOLE) {
        answer_call_end(r, true);
        r->state = AFTER_ARGUMENTS;
    }
}

static void pass_raw(vt_answer_reader *r, char c) { answer_put(r, VT_PIECE_ARGUMENTS, &c, 1); }

static void step_broken(vt_answer_reader *r, char c)
{
    const call_syntax *s = syntax(r);
    const char *list[MAX_JOINED];
    int from[MAX_JOINED];
    bool closes = s->call_end[0] || s->end[0];
    join(list, from, s->call_end, s->end, closes ? NULL : s->open);
    int found = answer_look(r, c, list, pass_raw);
    if (found < 0)
        return;
    answer_call_end(r, !r->filled && s->body == BODY_NAMED && from[found] < 2);
    leave_call(r, from[found] == 0);
    for (const char *at = list[found]; from[found] == 2 && *at; at++)
        answer_step(r, *at); /* the next call's beginning */
}

static void step_after_arguments(vt_answer_reader *r, char c)
{
    const call_syntax *s = syntax(r);
    const char *list[MAX_JOINED];
    int from[MAX_JOINED];
    join(list, from, s->call_end, s->end, s->call);
    int found = answer_expect(r, c, list);
    if (found == -2) {
        answer_to_text(r);
    } else if (found >= 0 && from[found] == 2) {
        vt_buf_clear(&r->name);
        r->state = IN_NAME;
    } else if (found >= 0) {
        leave_call(r, from[found] == 0);
    }
}

/* ---- keys and values ---- */

/* Ends a call whose arguments are told one by one. */
static void end_keyed(vt_answer_reader *r, bool section)
{
    if (r->filled)
        answer_put(r, VT_PIECE_ARGUMENTS, "}", 1);
    answer_call_end(r, true);
    leave_call(r, section);
}

/* Takes what follows a name or a value: number `from` of these three lists. */
static void go_on(vt_answer_reader *r, int from)
{
    if (from == 0) {
        vt_buf_clear(&r->key);
        r->state = IN_KEY;
    } else {
        end_keyed(r, from == 1);
    }
}

static void ignore(vt_answer_reader *r, char c)
{
    (void)r;
    (void)c;
}

static void step_keys(vt_answer_reader *r, char c)
{
    const call_syntax *s = syntax(r);
    const char *const key[] = {s->key, s->json, NULL};
    const char *list[MAX_JOINED];
    int from[MAX_JOINED];
    join(list, from, key, s->call_end, s->end);
    int found = answer_look(r, c, list, ignore);
    if (found >= 0 && list[found] == s->json && !r->filled)
        r->state = IN_NAMED_ARGUMENTS;
    else if (found >= 0)
        go_on(r, from[found]);
}

/* Returns true if the tag of an argument has this in it. */
static bool has(const vt_buf *tag, const char *text)
{
    return memmem(tag->data, tag->len, text, strlen(text)) != NULL;
}

/* Reads a key's tag: the name, and which types the value may have. */
static void read_key(vt_answer_reader *r)
{
    vt_buf *b = &r->key;
    enum { NO_STRING = CALLS_NUMBER | CALLS_BOOLEAN | CALLS_NULL | CALLS_OBJECT | CALLS_ARRAY };
    bool dsml = r->form == VT_CALLS_DSML, kimi = r->form == VT_CALLS_KIMI_K3;
    unsigned told = 0;
    if (dsml && (has(b, "string=\"true\"") || has(b, "string=\"false\"")))
        told = has(b, "string=\"true\"") ? CALLS_STRING : NO_STRING;
    if (kimi && has(b, "type=\""))
        told = has(b, "type=\"string\"") ? CALLS_STRING : NO_STRING;
    if (r->form == VT_CALLS_GLM)
        b->len = up_to(b->data, b->len, "</arg_key>");
    else if (r->form != VT_CALLS_XML)
        b->len = up_to(b->data, b->len, "\"");
    if (kimi)
        unescape(b);
    trim(b);
    r->types = told ? told
                    : calls_types(r->tools, r->name.data, r->name.len, b->data ? b->data : "",
                                  b->len);
}

static void begin_value(vt_answer_reader *r)
{
    vt_buf text = {0};
    read_key(r);
    vt_buf_puts(&text, r->filled ? ", " : "{");
    calls_quote(&text, r->key.data ? r->key.data : "", r->key.len);
    vt_buf_puts(&text, ": ");
    r->streams = r->types == CALLS_STRING;
    if (r->streams)
        vt_buf_putc(&text, '"');
    answer_put(r, VT_PIECE_ARGUMENTS, text.data ? text.data : "", text.len);
    r->failed |= text.failed;
    vt_buf_release(&text);
    vt_buf_clear(&r->value);
    r->first = true;
    r->newline = false;
    r->state = IN_VALUE;
}

static void step_key(vt_answer_reader *r, char c)
{
    const call_syntax *s = syntax(r);
    if (c) /* few readers of JSON take a key with U+0000 */
        vt_buf_putc(&r->key, c);
    int found = ends_with(&r->key, s->key_end);
    if (found < 0 && r->key.len < MAX_HEADER)
        return;
    if (found >= 0)
        r->key.len -= strlen(s->key_end[found]);
    begin_value(r);
}

static void tell_value(vt_answer_reader *r, char c)
{
    vt_buf text = {0};
    if (!r->streams) {
        vt_buf_putc(&r->value, c);
        return;
    }
    calls_escape(&text, c);
    answer_put(r, VT_PIECE_ARGUMENTS, text.data ? text.data : "", text.len);
    r->failed |= text.failed;
    vt_buf_release(&text);
}

/* A byte of a value. A line break may be the last byte, which is not part of the value. */
static void pass_value(vt_answer_reader *r, char c)
{
    bool first = r->first;
    r->first = false;
    if (!syntax(r)->newlines) {
        tell_value(r, c);
        return;
    }
    if (r->newline)
        tell_value(r, '\n');
    r->newline = c == '\n' && !first;
    if (c != '\n')
        tell_value(r, c);
}

static void end_value(vt_answer_reader *r)
{
    vt_buf text = {0};
    if (r->streams)
        vt_buf_putc(&text, '"');
    else
        calls_value(&text, r->types, r->value.data ? r->value.data : "", r->value.len);
    answer_put(r, VT_PIECE_ARGUMENTS, text.data ? text.data : "", text.len);
    r->failed |= text.failed;
    vt_buf_release(&text);
}

static void step_value(vt_answer_reader *r, char c)
{
    const char *const list[] = {syntax(r)->value_end, NULL};
    if (answer_look(r, c, list, pass_value) == 0) {
        vt_buf_clear(&r->late);
        r->state = AFTER_VALUE;
    }
}

/* The end tag was part of the value: it goes on with it, and with what has come since. */
static void back_to_value(vt_answer_reader *r)
{
    vt_buf since = r->late;
    vt_buf_init(&r->late, 0);
    r->state = IN_VALUE;
    for (const char *at = syntax(r)->value_end; *at; at++)
        pass_value(r, *at);
    for (size_t i = 0; i < since.len; i++)
        pass_value(r, since.data[i]);
    r->failed |= since.failed;
    vt_buf_release(&since);
    answer_again(r);
}

static void step_after_value(vt_answer_reader *r, char c)
{
    const call_syntax *s = syntax(r);
    const char *const key[] = {s->key, NULL};
    const char *list[MAX_JOINED];
    int from[MAX_JOINED];
    join(list, from, key, s->call_end, s->end);
    if (r->tag.len == 0 && answer_is_blank(c))
        vt_buf_putc(&r->late, c);
    int found = answer_expect(r, c, list);
    if (found == -2) {
        back_to_value(r);
    } else if (found >= 0) {
        end_value(r);
        go_on(r, from[found]);
    }
}

/* ---- all of them ---- */

void tagged_step(vt_answer_reader *r, char c)
{
    static void (*const step[])(vt_answer_reader * r,
                                char c) = {[IN_SECTION] = step_section,
                                           [IN_NAME] = step_name,
                                           [IN_NAMED_ARGUMENTS] = step_named,
                                           [IN_BROKEN] = step_broken,
                                           [AFTER_ARGUMENTS] = step_after_arguments,
                                           [IN_KEYS] = step_keys,
                                           [IN_KEY] = step_key,
                                           [IN_VALUE] = step_value,
                                           [AFTER_VALUE] = step_after_value};
    step[r->state](r, c);
}

void tagged_end(vt_answer_reader *r)
{
    if (r->state == AFTER_VALUE)
        end_value(r);
    for (size_t i = 0; i < r->tag.len && r->state == IN_VALUE; i++)
        pass_value(r, r->tag.data[i]);
    if (r->state == IN_BROKEN && r->tag.len > 0)
        answer_put(r, VT_PIECE_ARGUMENTS, r->tag.data, r->tag.len);
    answer_call_end(r, false);
}
