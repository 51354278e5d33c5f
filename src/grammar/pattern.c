/* Patterns: see pattern.h.
 *
 * ^ and $ are no characters. An expression is kept as four, by whether it has matched ^ and $:
 *
 *   of[0][0]  neither            of[1][0]  it begins where the text begins
 *   of[0][1]  it ends where the text ends          of[1][1]  both
 *
 * Behind a part that matched $ only what matches nothing may follow, and the same holds in front of
 * ^. So the four of a concatenation are made of the four of its parts, and in the end the text is
 * any* of[0][0] any* | of[1][0] any* | any* of[0][1] | of[1][1]. */
#include "grammar/pattern.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "text/unicode/unicode.h"

typedef struct parts {
    rx of[2][2];
} parts;

typedef struct parser {
    rx_store *s;
    const char *text, *p, *end;
    char_form form;
    bool whole;
    int depth;
    vt_err *err;
} parser;

static vt_status parse_union(parser *q, parts *out);

static vt_status refuse(const parser *q, const char *why)
{
    return vt_fail(q->err, rx_failure(why), "pattern %.80s: %s, at character %d", q->text, why,
                   (int)(q->p - q->text));
}

static parts only(rx a) { return (parts){{{a, RX_NOTHING}, {RX_NOTHING, RX_NOTHING}}}; }

static bool has_anchor(const parts *x)
{
    return x->of[0][1] != RX_NOTHING || x->of[1][0] != RX_NOTHING || x->of[1][1] != RX_NOTHING;
}

static rx if_empty(const rx_store *s, rx a)
{
    return rx_at(s, a)->nullable ? RX_EMPTY : RX_NOTHING;
}

static parts cat(rx_store *s, const parts *x, const parts *y)
{
    parts out = {{{RX_NOTHING, RX_NOTHING}, {RX_NOTHING, RX_NOTHING}}};
    if (!has_anchor(x) && !has_anchor(y))
        return only(rx_cat(s, x->of[0][0], y->of[0][0]));
    for (int i = 0; i < 16; i++) {
        int xb = i & 1, xe = i >> 1 & 1, yb = i >> 2 & 1, ye = i >> 3;
        rx a = yb ? if_empty(s, x->of[xb][xe]) : x->of[xb][xe];
        rx b = xe ? if_empty(s, y->of[yb][ye]) : y->of[yb][ye];
        rx *to = &out.of[xb | yb][xe | ye];
        *to = rx_alt2(s, *to, rx_cat(s, a, b));
    }
    return out;
}

static parts either(rx_store *s, const parts *x, const parts *y)
{
    parts out;
    for (int b = 0; b < 2; b++)
        for (int e = 0; e < 2; e++)
            out.of[b][e] = rx_alt2(s, x->of[b][e], y->of[b][e]);
    return out;
}

/* Any text that the pattern is searched in. */
static rx any_of(const parser *q)
{
    return q->form == CHARS_RAW && q->s->raw ? q->s->raw : q->s->any;
}

/* The texts in which it is found. */
static rx texts_with(const parser *q, const parts *x, bool whole)
{
    rx_store *s = q->s;
    rx any = whole ? RX_EMPTY : any_of(q);
    if (!whole && rx_at(s, x->of[0][0])->nullable)
        return any; /* it is found in every text */
    rx of[4] = {rx_cat(s, any, rx_cat(s, x->of[0][0], any)), rx_cat(s, x->of[1][0], any),
                rx_cat(s, any, x->of[0][1]), x->of[1][1]};
    return rx_alt(s, of, 4);
}

/* ---- single characters ---- */

static vt_status hex(parser *q, int n, uint32_t *out)
{
    uint32_t c = 0;
    for (int i = 0; i < n; i++) {
        char d = q->p < q->end ? *q->p : 0;
        if (!isxdigit((unsigned char)d))
            return refuse(q, "expected a hexadecimal digit");
        c = c * 16 + (uint32_t)(isdigit((unsigned char)d) ? d - '0' : (d | 32) - 'a' + 10);
        q->p++;
    }
    *out = c;
    return VT_OK;
}

static vt_status braced_hex(parser *q, uint32_t *out)
{
    uint32_t c = 0, digit = 0;
    for (q->p++; q->p < q->end && *q->p != '}';) {
        TRY(hex(q, 1, &digit));
        c = c * 16 + digit;
        if (c > 0x10FFFF)
            return refuse(q, "a character above U+10FFFF");
    }
    if (q->p == q->end)
        return refuse(q, "\\u{ without }");
    q->p++;
    *out = c;
    return VT_OK;
}

/* \uHHHH, which may be the first half of a pair, or \u{H..}. */
static vt_status unicode_escape(parser *q, uint32_t *out)
{
    uint32_t low;
    if (q->p < q->end && *q->p == '{')
        return braced_hex(q, out);
    TRY(hex(q, 4, out));
    if (*out >= 0xD800 && *out < 0xDC00 && q->end - q->p >= 6 && q->p[0] == '\\' &&
        q->p[1] == 'u') {
        q->p += 2;
        TRY(hex(q, 4, &low));
        if (low < 0xDC00 || low > 0xDFFF)
            return refuse(q, "half of a surrogate pair");
        *out = 0x10000 + ((*out - 0xD800) << 10) + (low - 0xDC00);
    }
    if (*out >= 0xD800 && *out < 0xE000)
        return refuse(q, "half of a surrogate pair");
    return VT_OK;
}

/* ---- classes ---- */

static void add_space(charset *c)
{
    static const uint32_t range[][2] = {
        {9, 13},          {32, 32},         {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
        {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
    for (size_t i = 0; i < sizeof range / sizeof *range; i++)
        charset_add(c, range[i][0], range[i][1]);
}

/* Names of general categories that ECMA-262 takes (Unicode's PropertyValueAliases.txt): the first
 * 30 in the order of vt_uprop's categories, then groups of them. */
static const char *const categories[][3] = {{"Lu", "Uppercase_Letter"},
                                            {"Ll", "Lowercase_Letter"},
                                            {"Lt", "Titlecase_Letter"},
                                            {"Lm", "Modifier_Letter"},
                                            {"Lo", "Other_Letter"},
                                            {"Mn", "Nonspacing_Mark"},
                                            {"Mc", "Spacing_Mark"},
                                            {"Me", "Enclosing_Mark"},
                                            {"Nd", "Decimal_Number", "digit"},
                                            {"Nl", "Letter_Number"},
                                            {"No", "Other_Number"},
                                            {"Pc", "Connector_Punctuation"},
                                            {"Pd", "Dash_Punctuation"},
                                            {"Ps", "Open_Punctuation"},
                                            {"Pe", "Close_Punctuation"},
                                            {"Pi", "Initial_Punctuation"},
                                            {"Pf", "Final_Punctuation"},
                                            {"Po", "Other_Punctuation"},
                                            {"Sm", "Math_Symbol"},
                                            {"Sc", "Currency_Symbol"},
                                            {"Sk", "Modifier_Symbol"},
                                            {"So", "Other_Symbol"},
                                            {"Zs", "Space_Separator"},
                                            {"Zl", "Line_Separator"},
                                            {"Zp", "Paragraph_Separator"},
                                            {"Cc", "Control", "cntrl"},
                                            {"Cf", "Format"},
                                            {"Cs", "Surrogate"},
                                            {"Co", "Private_Use"},
                                            {"Cn", "Unassigned"},
                                            {"L", "Letter"},
                                            {"M", "Mark", "Combining_Mark"},
                                            {"N", "Number"},
                                            {"P", "Punctuation", "punct"},
                                            {"S", "Symbol"},
                                            {"Z", "Separator"},
                                            {"C", "Other"},
                                            {"LC", "Cased_Letter"}};

enum { N_CATEGORIES = sizeof categories / sizeof *categories, N_SINGLE = VT_U_CN + 1 };

/* The four-letter codes of the scripts that unicode_tables.c has. */
static const char *const scripts[][2] = {
    {"Hani", "Han"},        {"Hira", "Hiragana"},  {"Kana", "Katakana"}, {"Hang", "Hangul"},
    {"Bopo", "Bopomofo"},   {"Latn", "Latin"},     {"Grek", "Greek"},    {"Cyrl", "Cyrillic"},
    {"Armn", "Armenian"},   {"Geor", "Georgian"},  {"Hebr", "Hebrew"},   {"Arab", "Arabic"},
    {"Deva", "Devanagari"}, {"Beng", "Bengali"},   {"Guru", "Gurmukhi"}, {"Gujr", "Gujarati"},
    {"Taml", "Tamil"},      {"Telu", "Telugu"},    {"Knda", "Kannada"},  {"Mlym", "Malayalam"},
    {"Sinh", "Sinhala"},    {"Laoo", "Lao"},       {"Tibt", "Tibetan"},  {"Mymr", "Myanmar"},
    {"Khmr", "Khmer"},      {"Mong", "Mongolian"}, {"Ethi", "Ethiopic"}, {"Yiii", "Yi"},
    {"Zyyy", "Common"},     {"Zinh", "Inherited"}, {"Qaai", "Inherited"}};

static bool is_name(const char *known, const char *name, size_t n)
{
    return known && strncmp(known, name, n) == 0 && !known[n];
}

/* The bits of the categories that a name means; 0: none has it. */
static uint32_t categories_of(const char *name, size_t n)
{
    const char *brief = NULL;
    uint32_t wanted = 0;
    for (size_t i = 0; i < N_CATEGORIES; i++)
        for (int k = 0; k < 3; k++)
            if (is_name(categories[i][k], name, n))
                brief = categories[i][0];
    if (brief && strcmp(brief, "LC") == 0)
        return 1u << VT_U_LU | 1u << VT_U_LL | 1u << VT_U_LT;
    for (uint32_t i = 0; brief && i < N_SINGLE; i++)
        if (strncmp(categories[i][0], brief, strlen(brief)) == 0)
            wanted |= 1u << i;
    return wanted;
}

static bool add_category(charset *c, const char *name, size_t n)
{
    uint32_t wanted = categories_of(name, n), from = 0;
    bool in = false;
    for (uint32_t u = 0; wanted && u <= 0x110000; u++) {
        bool now = u < 0x110000 && (wanted >> vt_uprop_of(u).category & 1);
        if (now && !in)
            from = u;
        if (!now && in)
            charset_add(c, from, u - 1);
        in = now;
    }
    return wanted != 0;
}

static bool add_script(charset *c, const char *name, size_t n)
{
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++)
        if (is_name(scripts[i][0], name, n)) {
            name = scripts[i][1];
            n = strlen(name);
            break;
        }
    for (const vt_uscript *u = vt_uscripts; u->name; u++) {
        if (strlen(u->name) != n || strncmp(u->name, name, n) != 0)
            continue;
        for (int i = 0; i < u->n; i++)
            charset_add(c, vt_uscript_range[u->first + i][0], vt_uscript_range[u->first + i][1]);
        return true;
    }
    return false;
}

enum { PROPERTY_FUEL = 5000 }; /* all characters are looked at */

/* A property of which ECMA-262 gives the name alone, and which is neither category nor script. */
static bool add_other(charset *c, const char *name, size_t n)
{
    if (is_name("Any", name, n))
        charset_add(c, 0, 0x10FFFF);
    else if (is_name("ASCII", name, n))
        charset_add(c, 0, 0x7F);
    else if (is_name("Assigned", name, n) && add_category(c, "Cn", 2))
        charset_negate(c);
    else
        return false;
    return true;
}

/* Adds the characters of "name" or "name=value". */
static bool add_property(charset *c, const char *name, size_t n)
{
    const char *equals = memchr(name, '=', n), *value = equals ? equals + 1 : name;
    size_t n_key = equals ? (size_t)(equals - name) : 0, n_value = n - (size_t)(value - name);
    if (!equals)
        return add_category(c, name, n) || add_other(c, name, n);
    if (is_name("Script", name, n_key) || is_name("sc", name, n_key))
        return add_script(c, value, n_value);
    return (is_name("General_Category", name, n_key) || is_name("gc", name, n_key)) &&
           add_category(c, value, n_value);
}

/* \p{..} or \P{..}, behind the letter. */
static vt_status property(parser *q, bool negate, charset *c)
{
    const char *close = q->p < q->end && *q->p == '{' ? memchr(q->p, '}', (size_t)(q->end - q->p))
                                                      : NULL;
    charset mine = {0};
    if (!close)
        return refuse(q, "expected a property such as \\p{L}");
    bool known = add_property(&mine, q->p + 1, (size_t)(close - q->p - 1));
    q->s->fuel -= PROPERTY_FUEL;
    if (!known) {
        charset_release(&mine);
        return refuse(q, "an unknown property: expected a general category, Script=.., Any, ASCII "
                         "or Assigned");
    }
    q->p = close + 1;
    if (negate)
        charset_negate(&mine);
    charset_add_set(c, &mine);
    charset_release(&mine);
    return VT_OK;
}

/* \d, \w, \s, \p and their opposites into c. *is: it was one of them. */
static vt_status class_escape(parser *q, charset *c, bool *is)
{
    charset mine = {0};
    char kind = *q->p;
    *is = true;
    switch (kind | 32) {
    case 'd':
        charset_add(&mine, '0', '9');
        break;
    case 'w':
        charset_add(&mine, '0', '9');
        charset_add(&mine, 'A', 'Z');
        charset_add(&mine, '_', '_');
        charset_add(&mine, 'a', 'z');
        break;
    case 's':
        add_space(&mine);
        break;
    case 'p':
        q->p++;
        return property(q, kind == 'P', c);
    default:
        *is = false;
        return VT_OK;
    }
    q->p++;
    if (isupper((unsigned char)kind))
        charset_negate(&mine);
    charset_add_set(c, &mine);
    c->failed |= mine.failed;
    charset_release(&mine);
    return VT_OK;
}

/* The character of an escape, behind the backslash. */
static vt_status char_escape(parser *q, bool in_class, uint32_t *out)
{
    static const char letters[] = "n\nr\rt\tf\fv\v";
    char c = *q->p;
    const char *known = c ? strchr(letters, c) : NULL;
    if (c == 'b' && in_class)
        return q->p++, *out = 8, VT_OK;
    if (isdigit((unsigned char)c) && !(c == '0' && !isdigit((unsigned char)q->p[1])))
        return refuse(q, "back-references are not supported");
    if (c == 'b' || c == 'B')
        return refuse(q, "\\b and \\B are not supported");
    if (c == 'k')
        return refuse(q, "back-references are not supported");
    if (c == '0')
        return q->p++, *out = 0, VT_OK;
    if (known && isalpha((unsigned char)c))
        return q->p++, *out = (uint32_t)known[1], VT_OK;
    if (c == 'c' && q->end - q->p >= 2 && isalpha((unsigned char)q->p[1]))
        return *out = (uint32_t)q->p[1] & 31, q->p += 2, VT_OK;
    if (c == 'x')
        return q->p++, hex(q, 2, out);
    if (c == 'u')
        return q->p++, unicode_escape(q, out);
    if (isalpha((unsigned char)c))
        return refuse(q, "an unknown escape");
    q->p += vt_utf8_next(q->p, out);
    return VT_OK;
}

/* A member of [..]. *is_class: it is no single character and went into c. */
static vt_status class_member(parser *q, charset *c, uint32_t *one, bool *is_class)
{
    *is_class = false;
    if (q->p == q->end)
        return refuse(q, "[ without ]");
    if (*q->p != '\\') {
        q->p += vt_utf8_next(q->p, one);
        return VT_OK;
    }
    if (++q->p == q->end)
        return refuse(q, "a backslash at the end");
    TRY(class_escape(q, c, is_class));
    return *is_class ? VT_OK : char_escape(q, true, one);
}

static vt_status class_members(parser *q, charset *c)
{
    while (q->p < q->end && *q->p != ']') {
        uint32_t from, to;
        bool set;
        TRY(class_member(q, c, &from, &set));
        if (set)
            continue;
        to = from;
        if (q->end - q->p >= 2 && q->p[0] == '-' && q->p[1] != ']') {
            q->p++;
            TRY(class_member(q, c, &to, &set));
            if (set || to < from)
                return refuse(q, "a range whose end is no character behind its beginning");
        }
        charset_add(c, from, to);
    }
    if (q->p == q->end)
        return refuse(q, "[ without ]");
    q->p++;
    return VT_OK;
}

static vt_status char_class(parser *q, rx *out)
{
    charset c = {0};
    bool negate = q->p < q->end && *q->p == '^';
    q->p += negate;
    vt_status status = class_members(q, &c);
    if (status == VT_OK && negate)
        charset_negate(&c);
    if (status == VT_OK)
        *out = charset_rx(q->s, &c, q->form);
    charset_release(&c);
    return status;
}

static rx dot(parser *q)
{
    charset c = {0};
    charset_add(&c, '\n', '\n');
    charset_add(&c, '\r', '\r');
    charset_add(&c, 0x2028, 0x2029);
    charset_negate(&c);
    rx made = charset_rx(q->s, &c, q->form);
    charset_release(&c);
    return made;
}

/* ---- structure ---- */

/* Behind "(?": reads what kind of group it is. *ahead: 1 lookahead, -1 negative lookahead. */
static vt_status group_kind(parser *q, int *ahead)
{
    size_t n = (size_t)(q->end - q->p);
    *ahead = 0;
    if (n >= 1 && *q->p == ':')
        return q->p++, VT_OK;
    if (n >= 1 && (*q->p == '=' || *q->p == '!'))
        return *ahead = *q->p++ == '=' ? 1 : -1, VT_OK;
    if (n >= 2 && q->p[0] == '<' && (q->p[1] == '=' || q->p[1] == '!'))
        return refuse(q, "lookbehind is not supported");
    const char *name = n >= 2 && q->p[0] == 'P' && q->p[1] == '<' ? q->p + 2
                       : n >= 1 && q->p[0] == '<'                 ? q->p + 1
                                                                  : NULL;
    const char *close = name ? memchr(name, '>', (size_t)(q->end - name)) : NULL;
    if (!close)
        return refuse(q, "flags and groups of this kind are not supported");
    q->p = close + 1;
    return VT_OK;
}

static vt_status group(parser *q, parts *out, int *ahead)
{
    *ahead = 0;
    if (q->p < q->end && *q->p == '?') {
        q->p++;
        TRY(group_kind(q, ahead));
    }
    if (++q->depth > PATTERN_MAX_DEPTH)
        return refuse(q, "groups are nested too deeply");
    TRY(parse_union(q, out));
    q->depth--;
    if (q->p == q->end)
        return refuse(q, "( without )");
    q->p++;
    return VT_OK;
}

static vt_status escape_atom(parser *q, parts *out)
{
    charset c = {0};
    bool is = false;
    uint32_t one = 0;
    if (++q->p == q->end)
        return refuse(q, "a backslash at the end");
    if (*q->p == 'A' || *q->p == 'Z' || *q->p == 'z') {
        *out = (parts){{{RX_NOTHING, RX_NOTHING}, {RX_NOTHING, RX_NOTHING}}};
        out->of[*q->p == 'A'][*q->p != 'A'] = RX_EMPTY;
        q->p++;
        return VT_OK;
    }
    vt_status status = class_escape(q, &c, &is);
    if (status == VT_OK && !is)
        status = char_escape(q, false, &one);
    if (status == VT_OK)
        *out = only(is ? charset_rx(q->s, &c, q->form) : char_rx(q->s, one, q->form));
    charset_release(&c);
    return status;
}

static vt_status atom(parser *q, parts *out, int *ahead)
{
    uint32_t c;
    rx set = RX_NOTHING;
    *ahead = 0;
    switch (*q->p) {
    case '(':
        q->p++;
        return group(q, out, ahead);
    case '[':
        q->p++;
        TRY(char_class(q, &set));
        *out = only(set);
        return VT_OK;
    case '.':
        q->p++;
        *out = only(dot(q));
        return VT_OK;
    case '\\':
        return escape_atom(q, out);
    case '^':
    case '$':
        *out = (parts){{{RX_NOTHING, RX_NOTHING}, {RX_NOTHING, RX_NOTHING}}};
        out->of[*q->p == '^'][*q->p == '$'] = RX_EMPTY;
        q->p++;
        return VT_OK;
    case '*':
    case '+':
    case '?':
        return refuse(q, "nothing to repeat");
    default:
        q->p += vt_utf8_next(q->p, &c);
        *out = only(char_rx(q->s, c, q->form));
        return VT_OK;
    }
}

static bool number(parser *q, int32_t *out)
{
    int64_t n = 0;
    const char *from = q->p;
    for (; q->p < q->end && isdigit((unsigned char)*q->p); q->p++)
        n = n < RX_MAX_REPEAT * 10 ? n * 10 + (*q->p - '0') : n;
    *out = (int32_t)n;
    return q->p > from;
}

/* {n}, {n,} or {n,m}; anything else that begins with { is text, as browsers read it. */
static bool counts(parser *q, int32_t *min, int32_t *max)
{
    const char *back = q->p++;
    if (number(q, min)) {
        *max = *min;
        if (q->p < q->end && *q->p == ',') {
            q->p++;
            if (!number(q, max))
                *max = RX_NO_MOST;
        }
        if (q->p < q->end && *q->p == '}')
            return q->p++, true;
    }
    q->p = back;
    return false;
}

/* The quantifier at this place, if there is one. */
static bool quantifier(parser *q, int32_t *min, int32_t *max)
{
    *min = 0;
    *max = RX_NO_MOST;
    if (q->p == q->end)
        return false;
    switch (*q->p) {
    case '*':
        return q->p++, true;
    case '+':
        return q->p++, *min = 1, true;
    case '?':
        return q->p++, *max = 1, true;
    case '{':
        return counts(q, min, max);
    default:
        return false;
    }
}

static vt_status repeat(parser *q, parts *x, int32_t min, int32_t max)
{
    enum { MOST_ANCHORED = 16 };
    rx_store *s = q->s;
    if (max != RX_NO_MOST && max < min)
        return refuse(q, "a count whose end is below its beginning");
    if (min > RX_MAX_REPEAT || max > RX_MAX_REPEAT)
        return refuse(q, "a count above 1,000,000");
    if (!has_anchor(x)) {
        *x = only(rx_repeat(s, x->of[0][0], min, max));
        return VT_OK;
    }
    if (min > MOST_ANCHORED || max > MOST_ANCHORED)
        return refuse(q, "^ or $ in a group that is counted above 16");
    /* x{min,max} is x x .. (x (x ..)?)?, and of x* with anchors three rounds say everything: the
     * first may begin at ^, the last may end at $, between them is x without anchors */
    parts nothing = only(RX_EMPTY), all = nothing, inner = only(rx_repeat(s, x->of[0][0], 0, max));
    parts star = cat(s, x, &inner), end = either(s, x, &nothing);
    star = cat(s, &star, &end);
    star = either(s, &star, &nothing);
    for (int32_t i = 0; i < min; i++)
        all = cat(s, &all, x);
    if (max == RX_NO_MOST)
        all = cat(s, &all, &star);
    parts optional = either(s, x, &nothing);
    for (int32_t i = min; i < max; i++)
        all = cat(s, &all, &optional);
    *x = all;
    return VT_OK;
}

/* A lookahead right behind the beginning: the texts that begin as it says, or that do not. */
static rx ahead_texts(parser *q, const parts *x, int ahead)
{
    rx_store *s = q->s;
    rx open = rx_alt2(s, x->of[0][0], x->of[1][0]), end = rx_alt2(s, x->of[0][1], x->of[1][1]);
    rx texts = rx_alt2(s, rx_cat(s, open, any_of(q)), end);
    return ahead > 0 ? texts : rx_and2(s, any_of(q), rx_not(s, texts));
}

typedef parts joiner(rx_store *s, const parts *x, const parts *y);

/* The parts of a branch, one after the other (`how` is cat), or branches (either). Joining halves
 * keeps long texts from being copied for each of their characters, and lists for each branch. */
static parts join(rx_store *s, const parts *x, int32_t n, joiner *how)
{
    if (n == 0)
        return only(RX_EMPTY);
    if (n == 1)
        return x[0];
    parts left = join(s, x, n / 2, how), right = join(s, x + n / 2, n - n / 2, how);
    return how(s, &left, &right);
}

typedef struct branch {
    parts *part;
    int32_t n, cap;
    rx aheads; /* what its lookaheads say of the whole text */
} branch;

static vt_status add_part(parser *q, branch *b, const parts *x)
{
    if (b->n == b->cap) {
        int32_t cap = b->cap ? 2 * b->cap : 16;
        parts *more = realloc(b->part, (size_t)cap * sizeof *more);
        if (!more)
            return refuse(q, rx_no_memory);
        b->part = more;
        b->cap = cap;
    }
    b->part[b->n++] = *x;
    return VT_OK;
}

static vt_status read_branch(parser *q, branch *b)
{
    bool at_begin = q->depth == 0 && q->whole;
    while (q->p < q->end && *q->p != '|' && *q->p != ')') {
        int32_t min, max;
        int ahead;
        parts x;
        bool caret = *q->p == '^' && q->depth == 0 && b->n == 0;
        TRY(atom(q, &x, &ahead));
        if (ahead && !at_begin)
            return refuse(q, "lookahead is only supported right behind ^");
        if (ahead) {
            b->aheads = rx_and2(q->s, b->aheads, ahead_texts(q, &x, ahead));
            continue;
        }
        at_begin = caret;
        if (quantifier(q, &min, &max)) {
            if (q->p < q->end && *q->p == '?')
                q->p++;
            at_begin = false;
            TRY(repeat(q, &x, min, max));
        }
        TRY(add_part(q, b, &x));
        if (q->s->failed)
            return refuse(q, q->s->failed);
    }
    return VT_OK;
}

static vt_status parse_branch(parser *q, parts *out)
{
    branch b = {.aheads = RX_ALL};
    vt_status status = read_branch(q, &b);
    if (status == VT_OK) {
        *out = join(q->s, b.part, b.n, cat);
        if (b.aheads != RX_ALL) {
            rx texts = rx_and2(q->s, texts_with(q, out, q->whole), b.aheads);
            *out = only(RX_NOTHING);
            out->of[1][1] = texts;
        }
    }
    free(b.part);
    return status;
}

static vt_status parse_union(parser *q, parts *out)
{
    parts x;
    branch branches = {0};
    vt_status status = parse_branch(q, &x);
    if (status == VT_OK)
        status = add_part(q, &branches, &x);
    while (status == VT_OK && q->p < q->end && *q->p == '|') {
        q->p++;
        status = parse_branch(q, &x);
        if (status == VT_OK)
            status = add_part(q, &branches, &x);
    }
    if (status == VT_OK)
        *out = join(q->s, branches.part, branches.n, either);
    free(branches.part);
    return status;
}

vt_status pattern_compile(rx_store *s, const char *pattern, size_t len, char_form form, bool whole,
                          rx *out, vt_err *err)
{
    parser q = {.s = s,
                .text = pattern,
                .p = pattern,
                .end = pattern + len,
                .form = form,
                .whole = whole,
                .err = err};
    parts x;
    if (len > PATTERN_MAX_TEXT)
        return vt_fail(err, VT_ERR_USAGE, "a pattern of %zu bytes, expected at most %d", len,
                       PATTERN_MAX_TEXT);
    if (vt_utf8_valid(pattern, len) != len || memchr(pattern, 0, len))
        return vt_fail(err, VT_ERR_USAGE, "a pattern that is not UTF-8 text");
    TRY(parse_union(&q, &x));
    if (q.p < q.end)
        return refuse(&q, ") without (");
    *out = texts_with(&q, &x, whole);
    return s->failed ? refuse(&q, s->failed) : VT_OK;
}
