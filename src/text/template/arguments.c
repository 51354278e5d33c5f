/* Checks of arguments, and what filters and methods share: stripping, replacing, case, numbers in
 * text, sorting. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "text/template/builtins.h"

/* ---- checks ---- */

vt_status tpl_want_str(tpl_run *r, tpl_value v, const char *what, const tpl_str **out)
{
    *out = v.type == TPL_STR ? v.str : NULL;
    if (v.type == TPL_UNDEFINED)
        return tpl_fail_undefined(r, v);
    return *out ? VT_OK : tpl_fail(r, "%s must be str, not %s", what, tpl_type_name(v));
}

vt_status tpl_want_int(tpl_run *r, tpl_value v, const char *what, int64_t absent, int64_t *out)
{
    *out = tpl_is_int(v) ? tpl_as_int(v) : absent;
    if (v.type == TPL_UNDEFINED)
        return tpl_fail_undefined(r, v);
    if (!tpl_absent(v) && !tpl_is_int(v))
        return tpl_fail(r, "%s must be an integer, not '%s'", what, tpl_type_name(v));
    return VT_OK;
}

/* ---- case ---- */

vt_status tpl_change_case(tpl_run *r, const tpl_str *s, tpl_case k, tpl_value *out)
{
    tpl_text t = {0};
    TRY(tpl_put_case(r, &t, s->data, 0, s->len, k));
    return tpl_text_value(r, &t, out);
}

vt_status tpl_capitalize(tpl_run *r, const tpl_str *s, tpl_value *out)
{
    tpl_text t = {0};
    uint32_t c;
    size_t first = s->len ? tpl_next(s->data, &c) : 0;
    TRY(tpl_put_case(r, &t, s->data, 0, first, TPL_TITLECASE));
    TRY(tpl_put_case(r, &t, s->data, first, s->len, TPL_LOWER));
    return tpl_text_value(r, &t, out);
}

/* One cased letter, and none of the other case. */
vt_status tpl_case_is(tpl_run *r, const tpl_str *s, bool upper, tpl_value *out)
{
    bool some = false, none = true;
    TRY(tpl_charge(r, s->len / 16));
    for (size_t i = 0; i < s->len && none;) {
        uint32_t c;
        i += tpl_next(s->data + i, &c);
        bool is = upper ? tpl_is_upper(c) : tpl_is_lower(c);
        none = is || !tpl_is_cased(c);
        some |= is;
    }
    *out = tpl_bool(some && none);
    return VT_OK;
}

/* ---- stripping ---- */

/* The characters to strip: those below U+0080 as bits, the others as they stand in `rest`. */
typedef struct strip_set {
    bool ascii[128];
    bool any_other;
    const tpl_str *chars;
} strip_set;

static vt_status in_set(tpl_run *r, const strip_set *set, uint32_t c, bool *in)
{
    *in = c < 0x80 && set->ascii[c];
    if (c < 0x80 || !set->any_other)
        return VT_OK;
    TRY(tpl_charge(r, 1 + set->chars->len / 16));
    for (size_t i = 0; i < set->chars->len && !*in;) {
        uint32_t other;
        i += tpl_next(set->chars->data + i, &other);
        *in = other == c;
    }
    return VT_OK;
}

static vt_status strip_chars(tpl_run *r, const tpl_str *s, const tpl_str *chars, bool left,
                             bool right, size_t *begin, size_t *end)
{
    strip_set set = {.chars = chars, .any_other = chars->n_chars < chars->len};
    uint32_t c;
    bool in;
    TRY(tpl_charge(r, chars->len / 64));
    for (size_t i = 0; i < chars->len; i++)
        if ((unsigned char)chars->data[i] < 0x80)
            set.ascii[(unsigned char)chars->data[i]] = true;
    *begin = 0;
    *end = s->len;
    while (left && *begin < *end) {
        size_t n = tpl_next(s->data + *begin, &c);
        TRY(in_set(r, &set, c, &in));
        if (!in)
            break;
        *begin += n;
    }
    while (right && *end > *begin) {
        size_t at = tpl_char_before(s->data, *end);
        vt_utf8_next(s->data + at, &c);
        TRY(in_set(r, &set, c, &in));
        if (!in)
            break;
        *end = at;
    }
    return VT_OK;
}

vt_status tpl_strip(tpl_run *r, const tpl_str *s, tpl_value chars, bool left, bool right,
                    tpl_value *out)
{
    size_t begin = 0, end = s->len;
    if (tpl_absent(chars)) {
        end = right ? tpl_trimmed_length(s->data, s->len) : s->len;
        begin = left ? tpl_spaces_before(s->data, end) : 0;
    } else {
        const tpl_str *set;
        TRY(tpl_want_str(r, chars, "the argument of strip or trim", &set));
        TRY(strip_chars(r, s, set, left, right, &begin, &end));
    }
    TRY(tpl_charge(r, (s->len - (end - begin)) / 16));
    return tpl_str_copy(r, s->data + begin, end - begin, out);
}

/* ---- replacing ---- */

vt_status tpl_replace(tpl_run *r, const tpl_str *s, const tpl_str *old, const tpl_str *fresh,
                      int64_t count, tpl_value *out)
{
    tpl_text t = {0};
    size_t i = 0;
    TRY(tpl_charge(r, (s->len + old->len) / 16));
    for (; count != 0 && i <= s->len; count--) {
        size_t at = i, n = old->len;
        if (n > 0) {
            const char *found = memmem(s->data + i, s->len - i, old->data, n);
            if (!found)
                break;
            at = (size_t)(found - s->data);
        }
        TRY(tpl_text_add(r, &t, s->data + i, at - i));
        TRY(tpl_text_add(r, &t, fresh->data, fresh->len));
        TRY(tpl_charge(r, 1));
        i = at + n;
        if (n == 0) { /* an empty one lies before every character and at the end */
            uint32_t c;
            if (i == s->len) {
                i++;
                break;
            }
            n = tpl_next(s->data + i, &c);
            TRY(tpl_text_add(r, &t, s->data + i, n));
            i += n;
        }
    }
    if (i < s->len)
        TRY(tpl_text_add(r, &t, s->data + i, s->len - i));
    return tpl_text_value(r, &t, out);
}

/* ---- numbers in text ---- */

/* The digits of a number: whitespace around, a sign, digits with single underscores. Copies them
 * without the underscores. */
static bool clean_number(const tpl_str *s, char *out, size_t max)
{
    size_t end = tpl_trimmed_length(s->data, s->len), begin = tpl_spaces_before(s->data, end),
           n = 0;
    if (begin == end || end - begin >= max)
        return false;
    for (size_t i = begin; i < end; i++) {
        bool inner = i > begin && i + 1 < end && s->data[i - 1] != '_' && s->data[i + 1] != '_';
        if (s->data[i] == '_' && inner && strchr("+-", s->data[i - 1]) == NULL)
            continue;
        if (s->data[i] == '_' || s->data[i] <= ' ')
            return false;
        out[n++] = s->data[i];
    }
    out[n] = '\0';
    return true;
}

/* int(s, base) of Python; *ok false where it raises ValueError. */
vt_status tpl_parse_int(tpl_run *r, const tpl_str *s, int64_t base, int64_t *out, bool *ok)
{
    char text[512], *end;
    *ok = false;
    if (base != 0 && (base < 2 || base > 36))
        return tpl_fail(r, "int() base must be >= 2 and <= 36, or 0");
    TRY(tpl_charge(r, 8 + s->len / 16));
    if (!clean_number(s, text, sizeof text))
        return VT_OK;
    const char *digits = text + (text[0] == '+' || text[0] == '-');
    char mark = digits[0] == '0' ? (char)(digits[1] | 0x20) : 0;
    int64_t marked = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
    char number[514];
    if (marked && (base == marked || base == 0)) {
        base = marked;
        digits += 2;
    } else if (base == 0) {
        base = 10;
        if (digits[0] == '0' && strspn(digits, "0") != strlen(digits))
            return VT_OK; /* 012 is no literal */
    }
    if (digits[0] == '+' || digits[0] == '-' || !digits[0])
        return VT_OK;
    snprintf(number, sizeof number, "%s%s", text[0] == '-' ? "-" : "", digits);
    if (base == 16 && digits[0] == '0' && (digits[1] | 0x20) == 'x')
        return VT_OK; /* strtoll would take a second prefix */
    errno = 0;
    *out = strtoll(number, &end, (int)base);
    if (*end)
        return VT_OK;
    if (errno == ERANGE)
        return tpl_overflow(r);
    *ok = true;
    return VT_OK;
}

vt_status tpl_parse_float(tpl_run *r, const tpl_str *s, double *out, bool *ok)
{
    char text[512], *end;
    *ok = false;
    TRY(tpl_charge(r, 8 + s->len / 16));
    if (!clean_number(s, text, sizeof text))
        return VT_OK;
    const char *word = text + (text[0] == '+' || text[0] == '-');
    bool named = strcasecmp(word, "inf") == 0 || strcasecmp(word, "infinity") == 0 ||
                 strcasecmp(word, "nan") == 0;
    if (!named && strspn(word, "0123456789.eE+-") != strlen(word))
        return VT_OK;
    *out = strtod(text, &end);
    *ok = !*end && end > text;
    return VT_OK;
}

/* ---- sorting ---- */

typedef struct sorter {
    tpl_run *r;
    const tpl_value *key;
    bool first_part, reverse;
} sorter;

static vt_status sort_before(sorter *s, size_t a, size_t b, bool *strictly)
{
    tpl_value x = s->key[a], y = s->key[b];
    int order;
    TRY(tpl_charge(s->r, 1));
    TRY(tpl_order(s->r, s->first_part ? x.list->at[0] : x, s->first_part ? y.list->at[0] : y, "<",
                  &order));
    *strictly = order != 2 && (s->reverse ? order > 0 : order < 0);
    return VT_OK;
}

/* Bottom-up merging of index[0..n) through `spare`: stable, n log n comparisons. */
static vt_status merge_sort(sorter *s, size_t *index, size_t *spare, size_t n)
{
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t low = 0; low < n; low += 2 * width) {
            size_t mid = low + width < n ? low + width : n,
                   high = low + 2 * width < n ? low + 2 * width : n;
            size_t a = low, b = mid, k = low;
            while (a < mid && b < high) {
                bool right;
                TRY(sort_before(s, index[b], index[a], &right));
                spare[k++] = right ? index[b++] : index[a++];
            }
            while (a < mid)
                spare[k++] = index[a++];
            while (b < high)
                spare[k++] = index[b++];
        }
        memcpy(index, spare, n * sizeof *index);
    }
    return VT_OK;
}

vt_status tpl_sort(tpl_run *r, tpl_list *items, const tpl_list *keys, bool first_part, bool reverse)
{
    sorter s = {.r = r, .key = keys->at, .first_part = first_part, .reverse = reverse};
    size_t n = items->n;
    size_t *index = tpl_alloc(r, n + 1, sizeof *index), *spare = tpl_alloc(r, n + 1, sizeof *spare);
    tpl_value *sorted = tpl_alloc(r, n + 1, sizeof *sorted);
    if (!index || !spare || !sorted)
        return VT_ERR_MEMORY;
    TRY(tpl_charge(r, n));
    for (size_t i = 0; i < n; i++)
        index[i] = i;
    TRY(merge_sort(&s, index, spare, n));
    for (size_t i = 0; i < n; i++)
        sorted[i] = items->at[index[i]];
    items->at = sorted;
    items->cap = n + 1;
    return VT_OK;
}
