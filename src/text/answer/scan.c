#include "text/answer/scan.h"

#include <string.h>

static bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static bool in_object(const json_scan *s)
{
    return s->depth > 0 && s->objects[(s->depth - 1) / 64] >> (s->depth - 1) % 64 & 1;
}

static scan_verdict go(json_scan *s, scan_state state)
{
    s->state = state;
    return SCAN_GOES_ON;
}

static scan_verdict open(json_scan *s, bool object)
{
    if (s->depth == SCAN_MAX_DEPTH)
        return SCAN_BAD;
    uint64_t bit = UINT64_C(1) << s->depth % 64, *word = &s->objects[s->depth / 64];
    *word = object ? *word | bit : *word & ~bit;
    s->depth++;
    return go(s, object ? SCAN_KEY_OR_END : SCAN_VALUE_OR_END);
}

static scan_verdict close(json_scan *s, bool object)
{
    if (s->depth == 0 || in_object(s) != object)
        return SCAN_BAD;
    s->depth--;
    s->state = SCAN_AFTER;
    return s->depth == 0 ? SCAN_WHOLE : SCAN_GOES_ON;
}

static scan_verdict literal(json_scan *s, const char *rest)
{
    s->rest = rest;
    return go(s, SCAN_LITERAL);
}

static scan_verdict begin_value(json_scan *s, char c)
{
    bool outermost = s->depth == 0;
    if (c == '{' || c == '[')
        return open(s, c == '{');
    if (outermost) /* only an object or a list is asked for */
        return SCAN_BAD;
    switch (c) {
    case '"':
        s->is_key = false;
        return go(s, SCAN_STRING);
    case 't':
        return literal(s, "rue");
    case 'f':
        return literal(s, "alse");
    case 'n':
        return literal(s, "ull");
    case '-':
        return go(s, SCAN_MINUS);
    case '0':
        return go(s, SCAN_ZERO);
    default:
        return is_digit(c) ? go(s, SCAN_INTEGER) : SCAN_BAD;
    }
}

static scan_verdict after_value(json_scan *s, char c)
{
    if (is_blank(c))
        return go(s, SCAN_AFTER);
    if (c == ',')
        return go(s, in_object(s) ? SCAN_KEY : SCAN_VALUE);
    return c == '}' || c == ']' ? close(s, c == '}') : SCAN_BAD;
}

/* A digit of \uXXXX. Halves of pairs of surrogates have to come together. */
static scan_verdict hex(json_scan *s, char c)
{
    static const char digits[] = "0123456789abcdefABCDEF";
    const char *at = c ? strchr(digits, c) : NULL;
    if (!at)
        return SCAN_BAD;
    uint32_t digit = (uint32_t)(at - digits);
    s->code = s->code << 4 | (digit < 16 ? digit : digit - 6);
    if (--s->left > 0)
        return SCAN_GOES_ON;
    bool high = s->code >= 0xD800 && s->code < 0xDC00, low = s->code >= 0xDC00 && s->code < 0xE000;
    if (low != s->low || (s->code == 0 && s->is_key)) /* few readers take a key with U+0000 */
        return SCAN_BAD;
    return go(s, high ? SCAN_PAIR : SCAN_STRING);
}

static scan_verdict begin_hex(json_scan *s, bool low)
{
    s->left = 4;
    s->code = 0;
    s->low = low;
    return go(s, SCAN_HEX);
}

static scan_verdict in_string(json_scan *s, char c)
{
    switch (s->state) {
    case SCAN_STRING:
        if (c == '"')
            return go(s, s->is_key ? SCAN_COLON : SCAN_AFTER);
        return s->is_key && !c ? SCAN_BAD : go(s, c == '\\' ? SCAN_ESCAPE : SCAN_STRING);
    case SCAN_ESCAPE:
        if (c == 'u')
            return begin_hex(s, false);
        return c && strchr("\"\\/bfnrt", c) ? go(s, SCAN_STRING) : SCAN_BAD;
    case SCAN_PAIR:
        return c == '\\' ? go(s, SCAN_PAIR_U) : SCAN_BAD;
    case SCAN_PAIR_U:
        return c == 'u' ? begin_hex(s, true) : SCAN_BAD;
    default:
        return hex(s, c);
    }
}

static scan_verdict in_number(json_scan *s, char c)
{
    bool digit = is_digit(c), e = c == 'e' || c == 'E';
    switch (s->state) {
    case SCAN_MINUS:
        return digit ? go(s, c == '0' ? SCAN_ZERO : SCAN_INTEGER) : SCAN_BAD;
    case SCAN_ZERO:
    case SCAN_INTEGER:
        if (digit && s->state == SCAN_INTEGER)
            return SCAN_GOES_ON;
        return c == '.' ? go(s, SCAN_POINT) : e ? go(s, SCAN_E) : after_value(s, c);
    case SCAN_POINT:
        return digit ? go(s, SCAN_FRACTION) : SCAN_BAD;
    case SCAN_FRACTION:
        return digit ? SCAN_GOES_ON : e ? go(s, SCAN_E) : after_value(s, c);
    case SCAN_E:
        if (c == '+' || c == '-')
            return go(s, SCAN_SIGN);
        return digit ? go(s, SCAN_EXPONENT) : SCAN_BAD;
    case SCAN_SIGN:
        return digit ? go(s, SCAN_EXPONENT) : SCAN_BAD;
    default:
        return digit ? SCAN_GOES_ON : after_value(s, c);
    }
}

scan_verdict json_scan_step(json_scan *s, char c)
{
    if (scan_in_string(s))
        return in_string(s, c);
    if (scan_in_number(s))
        return in_number(s, c);
    if (s->state == SCAN_LITERAL) {
        if (c != *s->rest)
            return SCAN_BAD;
        return *++s->rest ? SCAN_GOES_ON : go(s, SCAN_AFTER);
    }
    if (is_blank(c))
        return SCAN_GOES_ON;
    switch (s->state) {
    case SCAN_KEY_OR_END:
    case SCAN_KEY:
        if (c == '}' && s->state == SCAN_KEY_OR_END)
            return close(s, true);
        s->is_key = true;
        return c == '"' ? go(s, SCAN_STRING) : SCAN_BAD;
    case SCAN_COLON:
        return c == ':' ? go(s, SCAN_VALUE) : SCAN_BAD;
    case SCAN_AFTER:
        return after_value(s, c);
    default:
        return c == ']' && s->state == SCAN_VALUE_OR_END ? close(s, false) : begin_value(s, c);
    }
}
