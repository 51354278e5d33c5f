/* Calls that are JSON objects (inside.h): {"name": N, "arguments": A}, one, several, or a list.
 *
 *   IN_ITEMS  between objects: brackets, commas, semicolons, white space
 *   IN_OBJECT from { to }; r->role says what the member is whose value comes
 *
 * "parameters" is taken for "arguments", "tool_name" for "name". The arguments are told as they are
 * written. Where they stand in front of the name, they wait for it. */
#include <string.h>

#include "text/answer/inside.h"

enum { OTHER, NAME, ARGUMENTS, QUOTED, NO_VALUE };

static const call_syntax *syntax(const vt_answer_reader *r) { return answer_syntax(r->form); }

void object_step_items(vt_answer_reader *r, char c)
{
    const call_syntax *s = syntax(r);
    if (r->tag.len > 0 || (s->end[0] && c == s->end[0][0])) {
        int found = answer_expect(r, c, s->end);
        if (found >= 0 && r->n_items > 0)
            answer_leave(r);
        else if (found != -1)
            answer_to_text(r);
        return;
    }
    if (answer_is_blank(c))
        return;
    if (c == '{') {
        object_begin(r);
        object_step(r, c);
    } else if (c == '[' && r->n_items == 0 && !r->list) {
        r->list = true;
    } else if (c == ']' && r->list && r->n_items > 0) {
        r->list = false;
        if (!s->end[0])
            answer_leave(r);
    } else if (r->n_items == 0 && !r->list && s->open[0] && !r->unmarked && s->name_end[0]) {
        vt_buf_clear(&r->name);
        r->state = IN_NAME;
        tagged_step(r, c);
    } else if (r->form == VT_CALLS_LLAMA && r->n_items == 0 && !r->unmarked) {
        r->state = IN_HELD; /* a tool of Llama's own: name.call(query="...") */
    } else if ((c != ',' && c != ';') || r->n_items == 0) {
        answer_to_text(r);
    }
}

void object_begin(vt_answer_reader *r)
{
    r->state = IN_OBJECT;
    r->scan = (json_scan){.state = SCAN_VALUE};
    r->role = NO_VALUE;
    r->has_name = r->has_late = r->told = false;
    vt_buf_clear(&r->late);
}

void object_pass(vt_answer_reader *r, char c, bool in_string)
{
    vt_buf escaped = {0};
    if (in_string && (unsigned char)c < ' ') { /* a line break in a string, which is no JSON */
        calls_escape(&escaped, c);
        answer_put(r, VT_PIECE_ARGUMENTS, escaped.data, escaped.len);
        vt_buf_release(&escaped);
    } else {
        answer_put(r, VT_PIECE_ARGUMENTS, &c, 1);
    }
}

static bool is_key(const vt_answer_reader *r, const char *name)
{
    return r->key.len == strlen(name) && memcmp(r->key.data, name, r->key.len) == 0;
}

/* Tells the call; false: it is none. */
static bool begin_call(vt_answer_reader *r)
{
    if (r->name.len == 0 || r->name.len > VT_CALL_MAX_NAME || memchr(r->name.data, 0, r->name.len))
        return false;
    if (r->unmarked && !calls_is_tool(r->tools, r->name.data, r->name.len))
        return false;
    answer_call(r, r->name.data, r->name.len, NULL);
    return true;
}

/* The value of a member of the call begins. False: this is no call. */
static bool begin_value(vt_answer_reader *r, char c)
{
    bool name = is_key(r, "name") || is_key(r, "tool_name");
    bool arguments = is_key(r, "arguments") || is_key(r, "parameters");
    vt_buf_clear(&r->value);
    r->role = OTHER;
    if (name && !r->has_name) {
        r->role = NAME;
        return c == '"';
    }
    if (!arguments || r->has_late || r->in_call || r->told || c == 'n')
        return true;
    r->role = c == '"' ? QUOTED : ARGUMENTS;
    if (c != '{' && c != '"')
        return false;
    return !r->has_name || r->role == QUOTED || begin_call(r);
}

static void take_byte(vt_answer_reader *r, char c, bool in_string)
{
    if (r->role == ARGUMENTS && r->in_call)
        object_pass(r, c, in_string);
    else if (r->role != OTHER && in_string && (unsigned char)c < ' ')
        calls_escape(&r->value, c);
    else if (r->role != OTHER)
        vt_buf_putc(&r->value, c);
}

/* Keeps arguments until the name is known, or tells them. */
static bool settle(vt_answer_reader *r, const char *arguments, size_t n)
{
    if (!r->has_name) {
        r->has_late = true;
        return vt_buf_add(&r->late, arguments, n);
    }
    if (!begin_call(r))
        return false;
    answer_put(r, VT_PIECE_ARGUMENTS, arguments, n);
    answer_call_end(r, true);
    r->told = true;
    return true;
}

/* The value of a member has ended. False: this is no call. */
static bool end_value(vt_answer_reader *r)
{
    int role = r->role;
    r->role = NO_VALUE;
    if (role == ARGUMENTS && r->in_call) {
        answer_call_end(r, true);
        r->told = true;
    }
    if (role == OTHER || r->told)
        return true;
    if (role == ARGUMENTS)
        return settle(r, r->value.data, r->value.len);
    json_t *text = json_loadb(r->value.data, r->value.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    const char *s = json_string_value(text);
    size_t n = json_string_length(text);
    bool ok = s != NULL;
    if (ok && role == NAME) {
        vt_buf_clear(&r->name);
        r->has_name = true;
        ok = vt_buf_add(&r->name, s, n);
    } else if (ok) { /* arguments as a string of JSON */
        json_t *object = json_loadb(s, n, CALLS_JSON, NULL);
        ok = json_is_object(object) && settle(r, s, n);
        json_decref(object);
    }
    json_decref(text);
    return ok;
}

/* The object is whole. False: it is no call. */
static bool end_object(vt_answer_reader *r)
{
    if (!r->told) {
        if (!r->has_name || (r->unmarked && !r->has_late) || !begin_call(r))
            return false;
        if (r->has_late)
            answer_put(r, VT_PIECE_ARGUMENTS, r->late.data, r->late.len);
        answer_call_end(r, true);
    }
    vt_buf_clear(&r->held);
    r->state = IN_ITEMS;
    return true;
}

/* Follows the members of the object, one level below its bracket. */
static bool follow(vt_answer_reader *r, const json_scan *before, char c)
{
    bool text = scan_in_string(before), top = before->depth == 1;
    bool number = scan_in_number(before) && !scan_in_number(&r->scan);
    if (r->role != NO_VALUE) {
        bool ended = r->scan.depth <= 1 && (r->scan.state == SCAN_AFTER || number);
        if (!(top && number))
            take_byte(r, c, text);
        return !ended || end_value(r);
    }
    if (top && text && before->is_key && r->scan.state != SCAN_COLON)
        return vt_buf_putc(&r->key, c);
    if (top && !text && c == '"' && r->scan.is_key && scan_in_string(&r->scan))
        vt_buf_clear(&r->key);
    if (!top || before->state != SCAN_VALUE || answer_is_blank(c))
        return true;
    if (!begin_value(r, c))
        return false;
    take_byte(r, c, false);
    return true;
}

void object_step(vt_answer_reader *r, char c)
{
    const json_scan before = r->scan;
    scan_verdict v = json_scan_step(&r->scan, c);
    if (v != SCAN_BAD && follow(r, &before, c) && (v != SCAN_WHOLE || end_object(r)))
        return;
    if (r->in_call) { /* the arguments are no JSON */
        r->state = IN_BROKEN;
        answer_step(r, c);
    } else {
        answer_to_text(r);
    }
}
