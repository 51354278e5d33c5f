/* Numbers with bounds: an automaton that compares digits as they come, with no arithmetic on
 * rounded numbers.
 *
 * A bound B has whole digits i1..ip and fraction digits f1..fq. While digits are read, each bound
 * keeps the order of what was read against its own first digits. At the point, fewer whole digits
 * than p mean less and more mean greater; behind it the first digit that differs decides. For
 * multiples of m/10^s the remainder of the digits so far, modulo m, is kept as well. */
#include "grammar/schema.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/random.h"

/* ---- decimals ---- */

static bool copy_digits(char *out, size_t size, const char *s, size_t n)
{
    if (n >= size)
        return false;
    memcpy(out, s, n);
    out[n] = 0;
    return true;
}

/* Splits ddd.ddd, moved by `shift` places, into whole and fraction digits. */
static bool place_point(const char *digits, size_t n, int64_t point, decimal *d)
{
    char all[800];
    size_t front = point < 1 ? (size_t)(1 - point) : 0, used = 0;
    size_t back = point > (int64_t)n ? (size_t)point - n : 0;
    if (front > 350 || back > 350 || front + n + back >= sizeof all)
        return false;
    for (size_t i = 0; i < front; i++)
        all[used++] = '0';
    memcpy(all + used, digits, n);
    used += n;
    for (size_t i = 0; i < back; i++)
        all[used++] = '0';
    size_t at = point < 1 ? 1 : (size_t)point, from = 0;
    while (from + 1 < at && all[from] == '0')
        from++;
    while (used > at && all[used - 1] == '0')
        used--;
    return copy_digits(d->whole, sizeof d->whole, all + from, at - from) &&
           copy_digits(d->fraction, sizeof d->fraction, all + at, used - at);
}

bool decimal_read(const json_t *v, decimal *out)
{
    char text[64], digits[64];
    size_t n = 0;
    int64_t point = -1;
    long exponent = 0;
    if (json_is_integer(v)) {
        snprintf(text, sizeof text, "%lld", (long long)json_integer_value(v));
    } else if (json_is_real(v) && isfinite(json_real_value(v))) {
        for (int p = 15; p <= 17; p++) {
            snprintf(text, sizeof text, "%.*g", p, json_real_value(v));
            if (strtod(text, NULL) == json_real_value(v))
                break;
        }
    } else {
        return false;
    }
    *out = (decimal){.given = true, .negative = text[0] == '-'};
    for (const char *p = text + out->negative; *p; p++) {
        if (*p == 'e') {
            exponent = strtol(p + 1, NULL, 10);
            break;
        }
        if (*p == '.')
            point = (int64_t)n;
        else
            digits[n++] = *p;
    }
    point = (point < 0 ? (int64_t)n : point) + exponent;
    if (!place_point(digits, n, point, out))
        return false;
    if (strcmp(out->whole, "0") == 0 && !out->fraction[0])
        out->negative = false;
    return true;
}

/* ---- the automaton ---- */

enum { LESS, EQUAL, GREATER };
enum { START, MINUS, ZERO, WHOLE, POINT, FRACTION };
enum { SYMBOLS = 12, MAX_STATES = 10000, MAX_WHOLE = 20, MAX_FRACTION = 20 };

typedef struct state {
    uint8_t phase, negative;
    uint8_t order[2]; /* against the bounds that hold for this sign */
    uint8_t n;        /* digits of this phase */
    uint8_t zero[3];  /* states are compared byte by byte */
    int32_t rest;     /* of the multiple */
} state;

typedef struct builder {
    decimal bound[2]; /* at least, at most */
    bool integer;
    int32_t modulus, scale; /* of multipleOf; 0: none */
    state at[MAX_STATES];
    int16_t next[MAX_STATES][SYMBOLS];
    int32_t n;
    idmap seen;
} builder;

/* The bound's digits as they count for a sign: its magnitude, or "any" or "none". */
typedef struct side {
    const decimal *b;
    bool upper; /* the magnitude may be at most it; else at least */
    bool always, never;
} side;

static side side_of(const builder *u, int i, bool negative)
{
    const decimal *b = &u->bound[i];
    bool zero = strcmp(b->whole, "0") == 0 && !b->fraction[0];
    side s = {.b = b, .upper = (i == 1) != negative};
    if (!b->given)
        s.always = true;
    else if (b->negative != negative && !zero) {
        /* the bound lies on the other side of zero */
        s.always = (i == 0) == b->negative;
        s.never = !s.always;
    }
    return s;
}

static uint8_t compare(uint8_t order, char digit, char of)
{
    if (order != EQUAL || digit == of)
        return order;
    return digit < of ? LESS : GREATER;
}

static void read_whole(const builder *u, state *s, char digit)
{
    for (int i = 0; i < 2; i++) {
        const decimal *b = &u->bound[i];
        size_t p = strlen(b->whole);
        if (b->given && s->n < p)
            s->order[i] = compare(s->order[i], digit, b->whole[s->n]);
    }
    s->n++;
}

/* The order once all whole digits are there. */
static void end_whole(const builder *u, state *s)
{
    for (int i = 0; i < 2; i++) {
        size_t p = strlen(u->bound[i].whole);
        if (u->bound[i].given && s->n != p)
            s->order[i] = s->n < p ? LESS : GREATER;
    }
}

static void read_fraction(const builder *u, state *s, char digit)
{
    for (int i = 0; i < 2; i++) {
        const char *f = u->bound[i].fraction;
        if (u->bound[i].given)
            s->order[i] = compare(s->order[i], digit, s->n < strlen(f) ? f[s->n] : '0');
    }
    s->n++;
}

static bool read_rest(const builder *u, state *s, char digit)
{
    if (!u->modulus)
        return true;
    if (s->phase == FRACTION && s->n > u->scale)
        return digit == '0';
    s->rest = (int32_t)(((int64_t)s->rest * 10 + (digit - '0')) % u->modulus);
    return true;
}

/* Follows one character. False: it may not come. */
static bool step(const builder *u, state *s, int c)
{
    if (c == 10) {
        bool ok = s->phase == START;
        s->phase = MINUS;
        s->negative = 1;
        return ok;
    }
    if (c == 11) {
        bool ok = (s->phase == ZERO || s->phase == WHOLE) && !u->integer;
        end_whole(u, s);
        s->phase = POINT;
        s->n = 0;
        return ok;
    }
    char digit = (char)('0' + c);
    switch (s->phase) {
    case START:
    case MINUS:
        read_whole(u, s, digit);
        s->phase = digit == '0' ? ZERO : WHOLE;
        return read_rest(u, s, digit);
    case WHOLE:
        if (s->n >= MAX_WHOLE)
            return false;
        read_whole(u, s, digit);
        return read_rest(u, s, digit);
    case POINT:
    case FRACTION:
        if (s->n >= MAX_FRACTION)
            return false;
        s->phase = FRACTION;
        read_fraction(u, s, digit);
        return read_rest(u, s, digit);
    default:
        return false;
    }
}

static bool holds(const side *d, uint8_t order, size_t fraction_left)
{
    if (d->always || d->never)
        return d->always;
    if (order == EQUAL && fraction_left > 0)
        order = LESS;
    if (order == EQUAL)
        return !d->b->exclusive;
    return d->upper ? order == LESS : order == GREATER;
}

static bool accepts(const builder *u, const state *from)
{
    state s = *from;
    if (s.phase != ZERO && s.phase != WHOLE && s.phase != FRACTION)
        return false;
    size_t read = s.phase == FRACTION ? s.n : 0;
    if (s.phase != FRACTION)
        end_whole(u, &s);
    for (int i = 0; i < 2; i++) {
        side d = side_of(u, i, s.negative);
        size_t q = strlen(u->bound[i].fraction);
        if (!holds(&d, s.order[i], read < q ? q - read : 0))
            return false;
    }
    int64_t rest = s.rest;
    for (size_t k = read; u->modulus && k < (size_t)u->scale; k++)
        rest = rest * 10 % u->modulus;
    return rest == 0;
}

/* The number of a state, which is new perhaps; -1: there are too many. */
static int32_t find(builder *u, const state *s)
{
    uint64_t hash = vt_mix64(vt_fnv1a(VT_FNV_OFFSET, s, sizeof *s));
    int64_t at = -1;
    int32_t i;
    while ((i = idmap_next(&u->seen, hash, &at)) != 0)
        if (memcmp(&u->at[i - 1], s, sizeof *s) == 0)
            return i - 1;
    if (u->n == MAX_STATES || !idmap_put(&u->seen, hash, u->n + 1))
        return -1;
    u->at[u->n] = *s;
    return u->n++;
}

static bool explore(builder *u)
{
    state start;
    memset(&start, 0, sizeof start);
    start.order[0] = start.order[1] = EQUAL;
    find(u, &start);
    for (int32_t i = 0; i < u->n; i++)
        for (int c = 0; c < SYMBOLS; c++) {
            state s = u->at[i];
            u->next[i][c] = -1;
            if (!step(u, &s, c))
                continue;
            int32_t to = find(u, &s);
            if (to < 0)
                return false;
            u->next[i][c] = (int16_t)to;
        }
    return true;
}

/* Bytes to the nearest accepting state, by going back from these; -1: there is none. */
static void measure(const builder *u, int32_t *least)
{
    for (int32_t i = 0; i < u->n; i++)
        least[i] = accepts(u, &u->at[i]) ? 0 : -1;
    for (bool changed = true; changed;) {
        changed = false;
        for (int32_t i = u->n - 1; i >= 0; i--)
            for (int c = 0; c < SYMBOLS; c++) {
                int32_t to = u->next[i][c];
                if (to < 0 || least[to] < 0 || (least[i] >= 0 && least[i] <= least[to] + 1))
                    continue;
                least[i] = least[to] + 1;
                changed = true;
            }
    }
}

static vt_status make_table(compiler *c, builder *u, rx *out)
{
    vt_arena *a = c->g->arena;
    rx_table *t = vt_arena_alloc(a, 1, sizeof *t);
    uint8_t *symbols = vt_arena_alloc(a, 256, 1);
    if (!explore(u))
        return schema_refuse(c, "multipleOf", "with these bounds it takes more than %d states",
                             MAX_STATES);
    int32_t *least = vt_arena_alloc(a, (size_t)u->n, sizeof *least);
    int16_t *next = vt_arena_alloc(a, (size_t)u->n * SYMBOLS, sizeof *next);
    if (!t || !symbols || !least || !next)
        return vt_fail(c->err, VT_ERR_MEMORY, "the schema takes too much memory");
    measure(u, least);
    memset(symbols, 255, 256);
    for (int i = 0; i < 10; i++)
        symbols['0' + i] = (uint8_t)i;
    symbols['-'] = 10;
    symbols['.'] = 11;
    for (int32_t i = 0; i < u->n; i++)
        for (int k = 0; k < SYMBOLS; k++) {
            int16_t to = u->next[i][k];
            next[i * SYMBOLS + k] = to >= 0 && least[to] >= 0 ? to : -1;
        }
    *t = (rx_table){.symbol = symbols,
                    .n_symbols = SYMBOLS,
                    .n = u->n,
                    .next = next,
                    .least = least,
                    .hash = vt_fnv1a(VT_FNV_OFFSET, next, (size_t)u->n * SYMBOLS * sizeof *next)};
    *out = least[0] < 0 ? RX_NOTHING : rx_table_state(&c->g->rx, t, 0);
    return VT_OK;
}

/* ---- keywords ---- */

static int order_of(const decimal *a, const decimal *b)
{
    if (a->negative != b->negative)
        return a->negative ? -1 : 1;
    size_t p = strlen(a->whole), q = strlen(b->whole);
    int c = p != q ? (p < q ? -1 : 1) : strcmp(a->whole, b->whole);
    if (c == 0)
        c = strcmp(a->fraction, b->fraction);
    return a->negative ? -c : c;
}

/* Takes the bound if it is the tighter one; i: 0 at least, 1 at most. */
static vt_status bound(compiler *c, builder *u, int i, const char *keyword, const json_t *v,
                       bool exclusive)
{
    decimal d;
    if (!v)
        return VT_OK;
    if (!json_is_number(v) || !decimal_read(v, &d))
        return schema_refuse(c, keyword, "expected a number of moderate size");
    d.exclusive = exclusive;
    int order = u->bound[i].given ? order_of(&d, &u->bound[i]) : 0;
    if (!u->bound[i].given || (i == 0 ? order > 0 : order < 0) || (order == 0 && exclusive))
        u->bound[i] = d;
    return VT_OK;
}

/* The least number that both divide. */
static int64_t common_multiple(int64_t a, int64_t b)
{
    int64_t x = a, y = b;
    while (y) {
        int64_t rest = x % y;
        x = y;
        y = rest;
    }
    return a / x * b;
}

static vt_status multiple(compiler *c, builder *u, const json_t *v)
{
    decimal d;
    char digits[820];
    if (!v)
        return VT_OK;
    if (!json_is_number(v) || !decimal_read(v, &d) || d.negative)
        return schema_refuse(c, "multipleOf", "expected a number above 0");
    snprintf(digits, sizeof digits, "%s%s", d.whole, d.fraction);
    int64_t m = strlen(digits) < 9 ? strtol(digits, NULL, 10) : -1;
    int32_t scale = (int32_t)strlen(d.fraction);
    if (m == 0)
        return schema_refuse(c, "multipleOf", "expected a number above 0");
    /* several: as digits of the same length, of which both have to divide a number */
    int64_t before = u->modulus ? u->modulus : 1;
    bool first = !u->modulus;
    if (first)
        u->scale = scale;
    for (; m > 0 && m <= 1000 && scale < u->scale; scale++)
        m *= 10;
    for (; before <= 1000 && u->scale < scale; u->scale++)
        before *= 10;
    if (m > 0 && before <= 1000 && !first)
        m = common_multiple(m, before);
    if (m < 0 || m > 1000 || before > 1000)
        return schema_refuse(c, "multipleOf", "expected at most 1000, or digits of that size");
    for (; u->scale > 0 && m % 10 == 0; u->scale--)
        m /= 10;
    u->modulus = (int32_t)m;
    return VT_OK;
}

static vt_status read_keywords(compiler *c, const json_t *s, bool integer, builder *u)
{
    const json_t *above = json_object_get(s, "exclusiveMinimum");
    const json_t *below = json_object_get(s, "exclusiveMaximum");
    bool old = c->draft_4;
    TRY(bound(c, u, 0, "minimum", json_object_get(s, "minimum"), old && json_is_true(above)));
    TRY(bound(c, u, 1, "maximum", json_object_get(s, "maximum"), old && json_is_true(below)));
    if (!json_is_boolean(above))
        TRY(bound(c, u, 0, "exclusiveMinimum", above, true));
    if (!json_is_boolean(below))
        TRY(bound(c, u, 1, "exclusiveMaximum", below, true));
    const char *format = json_string_value(json_object_get(s, "format"));
    if (integer && format && strcmp(format, "int32") == 0) {
        json_t *least = json_integer(INT32_MIN), *most = json_integer(INT32_MAX);
        vt_status status = bound(c, u, 0, "format", least, false);
        if (status == VT_OK)
            status = bound(c, u, 1, "format", most, false);
        json_decref(least);
        json_decref(most);
        TRY(status);
    }
    return multiple(c, u, json_object_get(s, "multipleOf"));
}

/* -?(0|[1-9][0-9]*), with a fraction and an exponent if it need not be an integer. Models loop in
 * digits, so that there are at most 20, 20 and 2 of them: so a double holds it. */
static rx plain_number(rx_store *x, bool integer)
{
    rx digit = rx_byte_range(x, '0', '9'), sign[3];
    rx whole = rx_alt2(
        x, rx_string(x, "0", 1),
        rx_cat(x, rx_byte_range(x, '1', '9'), rx_repeat(x, digit, 0, MAX_WHOLE - 1)));
    whole = rx_cat(x, rx_repeat(x, rx_string(x, "-", 1), 0, 1), whole);
    if (integer)
        return whole;
    rx fraction = rx_cat(x, rx_string(x, ".", 1), rx_repeat(x, digit, 1, MAX_FRACTION));
    sign[0] = RX_EMPTY;
    sign[1] = rx_string(x, "+", 1);
    sign[2] = rx_string(x, "-", 1);
    rx e = rx_alt2(x, rx_string(x, "e", 1), rx_string(x, "E", 1));
    rx exponent = rx_cat(x, e, rx_cat(x, rx_alt(x, sign, 3), rx_repeat(x, digit, 1, 2)));
    return rx_cat(x, whole, rx_cat(x, rx_repeat(x, fraction, 0, 1), rx_repeat(x, exponent, 0, 1)));
}

vt_status schema_number(compiler *c, const schema_set *set, bool integer, rx *out)
{
    builder *u = vt_calloc(1, sizeof *u);
    vt_status status = VT_OK;
    if (!u)
        return vt_fail(c->err, VT_ERR_MEMORY, "out of memory for a schema");
    u->integer = integer;
    for (int32_t i = 0; i < set->n && status == VT_OK; i++)
        status = read_keywords(c, set->at[i].is, integer, u);
    if (status == VT_OK && !u->bound[0].given && !u->bound[1].given && !u->modulus)
        *out = plain_number(&c->g->rx, integer);
    else if (status == VT_OK)
        status = make_table(c, u, out);
    idmap_release(&u->seen);
    free(u);
    return status;
}
