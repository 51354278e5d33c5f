/* From a template's source to tokens, as jinja2's lexer does with trim_blocks and lstrip_blocks.
 *
 * The source is text with three kinds of tags in it: {{ }}, {% %} and {# #}. White space around
 * tags:
 *
 *   {%- -%}   strips all white space on that side, newlines included
 *   {%+ +%}   keeps all of it
 *   {% %}     (blocks and comments, not variables) drops the spaces and tabs between the start of
 *             the line and the tag, and one newline after the tag
 *
 * One newline at the very end of the source is dropped; \r\n and \r become \n. Inside a tag an end
 * mark counts only where brackets are balanced, so that {{ {"a": {}}}} works.
 */
#include "text/template/nodes.h"

#include <errno.h>
#include <stdlib.h>

typedef struct lexer {
    struct vt_template *t;
    const char *s; /* normalised source */
    size_t len, pos;
    int32_t line;
    bool line_starting; /* the last match ended with a newline, or nothing was matched yet */
    tpl_tokens *out;
    vt_err *err;
} lexer;

static vt_status lex_fail(const lexer *x, const char *what)
{
    return vt_fail(x->err, VT_ERR_FORMAT, "%s:%d: %s", x->t->name, x->line, what);
}

static vt_status lex_no_memory(const lexer *x)
{
    return vt_fail(x->err, VT_ERR_MEMORY, "%s: out of memory while reading the template",
                   x->t->name);
}

static vt_status emit(lexer *x, tpl_token token)
{
    tpl_tokens *o = x->out;
    if (o->n == o->cap) {
        size_t cap = o->cap ? 2 * o->cap : 256, bytes;
        tpl_token *at = vt_mul_size(cap, sizeof *at, &bytes) ? realloc(o->at, bytes) : NULL;
        if (!at)
            return lex_no_memory(x);
        o->at = at;
        o->cap = cap;
    }
    o->at[o->n++] = token;
    return VT_OK;
}

static vt_status emit_mark(lexer *x, tpl_token_type type)
{
    return emit(x, (tpl_token){.type = type, .line = x->line});
}

static vt_status emit_text(lexer *x, tpl_token_type type, const char *text, size_t len)
{
    const char *copy = vt_arena_strdup(&x->t->arena, text, len);
    if (!copy)
        return lex_no_memory(x);
    return emit(x, (tpl_token){.type = type, .line = x->line, .text = copy, .len = len});
}

/* Moves over n bytes, counting lines. */
static void advance(lexer *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x->line += x->s[x->pos + i] == '\n';
    if (n > 0)
        x->line_starting = x->s[x->pos + n - 1] == '\n';
    x->pos += n;
}

static bool looking_at(const lexer *x, size_t pos, const char *what)
{
    size_t n = strlen(what);
    return x->len - pos >= n && memcmp(x->s + pos, what, n) == 0;
}

/* Bytes of white space at pos. */
static size_t spaces_at(const lexer *x, size_t pos)
{
    return tpl_spaces_before(x->s + pos, x->len - pos);
}

static bool digit_of(char c, int base)
{
    int v = c >= '0' && c <= '9'   ? c - '0'
            : c >= 'a' && c <= 'f' ? c - 'a' + 10
            : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                   : 99;
    return v < base;
}

/* Digits with single underscores between them, from pos; `lead` allows one in front (0x_1f). */
static size_t digits_at(const lexer *x, size_t pos, int base, bool lead)
{
    size_t at = pos;
    for (;;) {
        size_t next = at;
        if (next < x->len && x->s[next] == '_' && (at > pos || lead))
            next++;
        if (next >= x->len || !digit_of(x->s[next], base))
            return at - pos;
        at = next + 1;
    }
}

/* Length of an end mark at pos: [+-]? mark, and the white space after it that it drops. 0: there is
 * none. */
static size_t end_mark(const lexer *x, size_t pos, const char *mark, bool trim, bool plus)
{
    bool minus = x->s[pos] == '-';
    size_t at = pos + (minus || (plus && x->s[pos] == '+'));
    if (at >= x->len || !looking_at(x, at, mark))
        return 0;
    bool kept = at > pos && !minus;
    at += 2;
    if (minus)
        at += spaces_at(x, at);
    else if (!kept && trim && at < x->len && x->s[at] == '\n')
        at++;
    return at - pos;
}

/* ---- tokens inside tags ---- */

static vt_status lex_number(lexer *x, bool *was)
{
    const char *s = x->s;
    size_t pos = x->pos, n, frac = 0, exp = 0;
    *was = true;
    size_t whole = digits_at(x, pos, 10, false);
    bool after_dot = pos > 0 && s[pos - 1] == '.';
    if (whole > 0 && !after_dot) {
        size_t at = pos + whole;
        if (at < x->len && s[at] == '.' && (n = digits_at(x, at + 1, 10, false)) > 0)
            frac = n + 1;
        at += frac;
        if (at < x->len && (s[at] == 'e' || s[at] == 'E')) {
            size_t sign = at + 1 < x->len && (s[at + 1] == '+' || s[at + 1] == '-');
            if ((n = digits_at(x, at + 1 + sign, 10, false)) > 0)
                exp = 1 + sign + n;
        }
    }
    int base = 10;
    n = whole + frac + exp;
    if (!frac && !exp && whole > 0 && s[pos] == '0') {
        char b = pos + 1 < x->len ? (char)(s[pos + 1] | 0x20) : 0;
        base = b == 'x' ? 16 : b == 'o' ? 8 : b == 'b' ? 2 : 10;
        size_t after = base == 10 ? 0 : digits_at(x, pos + 2, base, true);
        if (after > 0)
            n = 2 + after;
        else /* zeros alone: 012 is the tokens 0 and 12, which is an error later */
            for (base = 10, n = 1;
                 n < whole && (s[pos + n] == '0' || (s[pos + n] == '_' && s[pos + n + 1] == '0'));)
                n++;
    }
    if (n == 0) {
        *was = false;
        return VT_OK;
    }
    char digits[512];
    size_t k = 0;
    for (size_t i = base == 10 ? 0 : 2; i < n; i++) {
        if (s[pos + i] == '_')
            continue;
        if (k + 1 >= sizeof digits)
            return lex_fail(x, "a number has more than 500 digits");
        digits[k++] = s[pos + i];
    }
    digits[k] = '\0';
    tpl_token token = {.type = frac || exp ? TPL_T_FLOAT : TPL_T_INTEGER, .line = x->line};
    if (frac || exp) {
        token.real = strtod(digits, NULL);
    } else {
        errno = 0;
        token.integer = strtoll(digits, NULL, base);
        if (errno == ERANGE)
            return lex_fail(x, "an integer is beyond 64 bits, which templates here do not have");
    }
    TRY(emit(x, token));
    advance(x, n);
    return VT_OK;
}

static vt_status lex_name(lexer *x)
{
    size_t n = 0;
    while (x->pos + n < x->len) {
        uint32_t c;
        size_t k = tpl_next(x->s + x->pos + n, &c);
        if (!tpl_is_name(c, n == 0))
            break;
        n += k;
    }
    if (n == 0)
        return VT_OK;
    TRY(emit_text(x, TPL_T_NAME, x->s + x->pos, n));
    advance(x, n);
    return VT_OK;
}

/* The hexadecimal or octal digits of an escape. */
static bool escape_digits(const char *s, size_t len, size_t n, int base, uint32_t *value)
{
    *value = 0;
    if (len < n)
        return false;
    for (size_t i = 0; i < n; i++) {
        if (!digit_of(s[i], base))
            return false;
        uint32_t v = s[i] <= '9' ? (uint32_t)(s[i] - '0') : (uint32_t)((s[i] | 0x20) - 'a' + 10);
        *value = *value * (uint32_t)base + v;
    }
    return true;
}

/* The escape that begins at s[0] == '\\': writes its bytes to out and returns its length in the
 * source; 0: it is malformed. */
static size_t unescape(const char *s, size_t len, char *out, size_t *n_out)
{
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    char c = s[1];
    const char *at = c ? strchr(from, c) : NULL;
    *n_out = 1;
    if (at) {
        *out = to[at - from];
        return 2;
    }
    uint32_t code;
    size_t n = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (n > 0) {
        if (!escape_digits(s + 2, len - 2, n, 16, &code) || code > 0x10ffff ||
            (code >= 0xd800 && code < 0xe000))
            return 0;
        *n_out = (size_t)vt_utf8_put(code, out);
        return 2 + n;
    }
    for (n = 0; n < 3 && 1 + n < len && digit_of(s[1 + n], 8);)
        n++;
    if (n > 0) {
        escape_digits(s + 1, n, n, 8, &code);
        *n_out = (size_t)vt_utf8_put(code, out);
        return 1 + n;
    }
    if (c == 'N')
        return 0;
    *n_out = 0;
    if (c == '\n') /* the line goes on */
        return 2;
    out[0] = '\\'; /* unknown escapes stay as they are */
    *n_out = 1;
    return 1;
}

static vt_status lex_string(lexer *x)
{
    char quote = x->s[x->pos];
    size_t end = x->pos + 1;
    while (end < x->len && x->s[end] != quote)
        end += x->s[end] == '\\' ? 2 : 1;
    if (end >= x->len)
        return lex_fail(x, "a string is not closed");
    const char *s = x->s + x->pos + 1;
    size_t len = end - x->pos - 1, n = 0;
    char *text = vt_arena_alloc(&x->t->arena, len + 1, 1);
    if (!text)
        return lex_no_memory(x);
    for (size_t i = 0; i < len;) {
        if (s[i] != '\\') {
            text[n++] = s[i++];
            continue;
        }
        size_t n_out, took = unescape(s + i, len - i, text + n, &n_out);
        if (took == 0)
            return lex_fail(x, "a string has a malformed escape, \\N{...} or a surrogate, which "
                               "are not supported");
        n += n_out;
        i += took;
    }
    text[n] = '\0';
    TRY(emit(x, (tpl_token){.type = TPL_T_STRING, .line = x->line, .text = text, .len = n}));
    advance(x, end + 1 - x->pos);
    return VT_OK;
}

static vt_status lex_operator(lexer *x, char *stack, int32_t *depth)
{
    static const char *const two[] = {"//", "**", "==", "!=", ">=", "<="};
    static const char one[] = "+-/*%~[](){}<>=.:|,;";
    size_t n = 0;
    for (size_t i = 0; i < sizeof two / sizeof *two && n == 0; i++)
        n = looking_at(x, x->pos, two[i]) ? 2 : 0;
    char c = x->s[x->pos];
    if (n == 0 && c && strchr(one, c))
        n = 1;
    if (n == 0) {
        uint32_t code;
        tpl_next(x->s + x->pos, &code);
        return vt_fail(x->err, VT_ERR_FORMAT, "%s:%d: unexpected character U+%04X in a tag",
                       x->t->name, x->line, (unsigned)code);
    }
    if (n == 1 && (c == '(' || c == '[' || c == '{')) {
        if (*depth == TPL_MAX_NESTING)
            return lex_fail(x, "brackets are nested deeper than 100");
        stack[(*depth)++] = c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (n == 1 && (c == ')' || c == ']' || c == '}')) {
        if (*depth == 0 || stack[*depth - 1] != c)
            return vt_fail(x->err, VT_ERR_FORMAT, "%s:%d: unexpected '%c'", x->t->name, x->line, c);
        (*depth)--;
    }
    TRY(emit_text(x, TPL_T_OPERATOR, x->s + x->pos, n));
    advance(x, n);
    return VT_OK;
}

/* Tokens up to and including the tag's end mark. */
static vt_status lex_tag(lexer *x, bool block)
{
    char stack[TPL_MAX_NESTING];
    int32_t depth = 0;
    for (;;) {
        if (x->pos >= x->len)
            return VT_OK; /* the parser says what was expected */
        size_t n = depth ? 0 : end_mark(x, x->pos, block ? "%}" : "}}", block, block);
        if (n > 0) {
            TRY(emit_mark(x, block ? TPL_T_BLOCK_END : TPL_T_VARIABLE_END));
            advance(x, n);
            return VT_OK;
        }
        if ((n = spaces_at(x, x->pos)) > 0) {
            advance(x, n);
            continue;
        }
        char c = x->s[x->pos];
        bool number = false;
        if (c >= '0' && c <= '9')
            TRY(lex_number(x, &number));
        size_t before = x->pos;
        if (!number)
            TRY(lex_name(x));
        if (number || x->pos > before)
            continue;
        if (c == '"' || c == '\'')
            TRY(lex_string(x));
        else
            TRY(lex_operator(x, stack, &depth));
    }
}

/* ---- data and the marks that begin tags ---- */

static size_t find_tag(const lexer *x, size_t pos)
{
    for (; pos + 1 < x->len; pos++)
        if (x->s[pos] == '{' &&
            (x->s[pos + 1] == '{' || x->s[pos + 1] == '%' || x->s[pos + 1] == '#'))
            return pos;
    return x->len;
}

/* The data before a tag at `tag`, whitespace control applied, and over to the tag. */
static vt_status lex_data(lexer *x, size_t tag, char sign, bool variable)
{
    const char *text = x->s + x->pos;
    size_t len = tag - x->pos, end = len;
    if (sign == '-') {
        end = tpl_trimmed_length(text, len);
    } else if (sign != '+' && !variable) {
        size_t line = len;
        while (line > 0 && text[line - 1] != '\n')
            line--;
        if ((line > 0 || x->line_starting) && spaces_at(x, x->pos + line) >= len - line)
            end = line;
    }
    if (end > 0)
        TRY(emit_text(x, TPL_T_DATA, text, end));
    advance(x, len);
    return VT_OK;
}

/* {% raw %} at pos: bytes of the whole mark, 0 if it is another tag. */
static size_t raw_begin(const lexer *x, size_t pos)
{
    size_t at = pos + 2;
    if (!looking_at(x, pos, "{%"))
        return 0;
    at += at < x->len && (x->s[at] == '-' || x->s[at] == '+');
    at += spaces_at(x, at);
    if (!looking_at(x, at, "raw"))
        return 0;
    at += 3;
    at += spaces_at(x, at);
    size_t end = at < x->len ? end_mark(x, at, "%}", false, false) : 0;
    return end ? at + end - pos : 0;
}

/* After {% raw %}: data as it stands up to {% endraw %}. */
static vt_status lex_raw(lexer *x)
{
    for (size_t tag = x->pos; tag + 1 < x->len; tag++) {
        if (!looking_at(x, tag, "{%"))
            continue;
        size_t at = tag + 2;
        char sign = at < x->len ? x->s[at] : 0;
        at += sign == '-' || sign == '+';
        at += spaces_at(x, at);
        if (at >= x->len || !looking_at(x, at, "endraw"))
            continue;
        at += 6;
        at += spaces_at(x, at);
        size_t end = at < x->len ? end_mark(x, at, "%}", true, true) : 0;
        if (end == 0)
            continue;
        TRY(lex_data(x, tag, sign, false));
        advance(x, at + end - tag);
        return VT_OK;
    }
    return lex_fail(x, "a raw block is not closed with {% endraw %}");
}

static vt_status lex_comment(lexer *x)
{
    for (size_t at = x->pos + 2; at + 1 < x->len; at++) {
        size_t end = end_mark(x, at, "#}", true, true);
        if (end > 0) {
            advance(x, at + end - x->pos);
            return VT_OK;
        }
    }
    return lex_fail(x, "a comment is not closed with #}");
}

static vt_status lex_all(lexer *x)
{
    for (;;) {
        size_t tag = find_tag(x, x->pos);
        if (tag == x->len) {
            if (x->pos < x->len)
                TRY(emit_text(x, TPL_T_DATA, x->s + x->pos, x->len - x->pos));
            advance(x, x->len - x->pos);
            return emit_mark(x, TPL_T_EOF);
        }
        char sign = tag + 2 < x->len ? x->s[tag + 2] : 0;
        bool signed_tag = sign == '-' || sign == '+';
        char what = x->s[tag + 1];
        TRY(lex_data(x, tag, sign, what == '{'));
        size_t raw = raw_begin(x, tag);
        if (raw > 0) {
            advance(x, raw);
            TRY(lex_raw(x));
        } else if (what == '#') {
            if (signed_tag) /* the sign belongs to the mark: {#-#} is not a whole comment */
                advance(x, 1);
            TRY(lex_comment(x));
        } else {
            TRY(emit_mark(x, what == '{' ? TPL_T_VARIABLE_BEGIN : TPL_T_BLOCK_BEGIN));
            advance(x, 2 + signed_tag);
            TRY(lex_tag(x, what == '%'));
            if (x->pos >= x->len) /* perhaps inside the tag; the parser says what is missing */
                return emit_mark(x, TPL_T_EOF);
        }
    }
}

vt_status tpl_lex(struct vt_template *t, const char *source, size_t len, tpl_tokens *out,
                  vt_err *err)
{
    lexer x = {.t = t, .line = 1, .line_starting = true, .out = out, .err = err};
    if (vt_utf8_valid(source, len) != len) /* Python decodes a template before it is lexed */
        return vt_fail(err, VT_ERR_FORMAT, "%s: the template is not valid UTF-8", t->name);
    char *s = vt_arena_alloc(&t->arena, len + 1, 1);
    if (!s)
        return lex_no_memory(&x);
    for (size_t i = 0; i < len; i++) {
        if (source[i] == '\r' && i + 1 < len && source[i + 1] == '\n')
            continue;
        s[x.len++] = source[i] == '\r' ? '\n' : source[i];
    }
    if (x.len > 0 && s[x.len - 1] == '\n')
        x.len--;
    s[x.len] = '\0';
    x.s = s;
    return lex_all(&x);
}
