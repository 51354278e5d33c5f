/* Unicode: lower case and the four normal forms.
 *
 * A code point's property is two loads: block number, then record number; records are few (153),
 * so the tables fit beside each other in the L2 cache. A character is "stable"
 * in a form if it stays as it is there whatever precedes it; text of stable characters is copied.
 * Only a run around an unstable one, the stable character before it included, is decomposed, put in
 * canonical order and, for NFC and NFKC, composed again. (Unicode Standard Annex 15.)
 */
#include "text/unicode/unicode.h"

#include <stdlib.h>
#include <string.h>

uint32_t vt_unicode_lower_of(uint32_t c)
{
    if (c < 0x80)
        return c >= 'A' && c <= 'Z' ? c + 32 : c;
    if (!(vt_uprop_of(c).flags & VT_U_LOWER))
        return c;
    int32_t low = 0, high = vt_ulower_count - 1;
    while (low <= high) {
        int32_t mid = (low + high) / 2;
        if (vt_ulower[mid][0] == c)
            return vt_ulower[mid][1];
        if (vt_ulower[mid][0] < c)
            low = mid + 1;
        else
            high = mid - 1;
    }
    return c;
}

bool vt_unicode_lower(vt_buf *out, const char *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        uint32_t c;
        i += (size_t)vt_utf8_next(s + i, &c);
        if (c == 0x130) { /* the one character whose lower case is two */
            if (!vt_utf8_add(out, 'i') || !vt_utf8_add(out, 0x307))
                return false;
        } else if (!vt_utf8_add(out, vt_unicode_lower_of(c))) {
            return false;
        }
    }
    return true;
}

/* ---- normal forms ---- */

enum {
    HANGUL_S = 0xAC00,
    HANGUL_L = 0x1100,
    HANGUL_V = 0x1161,
    HANGUL_T = 0x11A7,
    HANGUL_LN = 19,
    HANGUL_VN = 21,
    HANGUL_TN = 28,
    HANGUL_SN = HANGUL_LN * HANGUL_VN * HANGUL_TN
};

/* A run being normalised: a few characters in real text, long only in hostile text. */
typedef struct norm_run {
    uint32_t fixed[64];
    uint32_t *code;
    size_t n, cap;
    bool failed;
} norm_run;

static void run_add(norm_run *r, uint32_t c)
{
    if (r->n == r->cap) {
        size_t cap = r->cap * 2;
        uint32_t *grown = r->code == r->fixed ? malloc(cap * sizeof *grown)
                                              : realloc(r->code, cap * sizeof *grown);
        if (!grown) {
            r->failed = true;
            return;
        }
        if (r->code == r->fixed)
            memcpy(grown, r->fixed, sizeof r->fixed);
        r->code = grown;
        r->cap = cap;
    }
    r->code[r->n++] = c;
}

static void run_decompose(norm_run *r, uint32_t c, bool compat)
{
    if (c - HANGUL_S < HANGUL_SN) {
        uint32_t s = c - HANGUL_S;
        run_add(r, HANGUL_L + s / (HANGUL_VN * HANGUL_TN));
        run_add(r, HANGUL_V + s / HANGUL_TN % HANGUL_VN);
        if (s % HANGUL_TN)
            run_add(r, HANGUL_T + s % HANGUL_TN);
        return;
    }
    int32_t low = 0, high = vt_udecomp_count - 1;
    while (low <= high) {
        int32_t mid = (low + high) / 2;
        const vt_udecomp *d = &vt_udecomps[mid];
        if (d->code == c) {
            const uint32_t *part = vt_udecomp_pool + d->offset;
            int n = d->canon;
            if (compat && d->compat) {
                part += d->canon;
                n = d->compat;
            }
            if (n == 0)
                break; /* only a compatibility decomposition */
            for (int i = 0; i < n; i++)
                run_add(r, part[i]);
            return;
        }
        if (d->code < c)
            low = mid + 1;
        else
            high = mid - 1;
    }
    run_add(r, c);
}

/* Canonical order: marks between two starters sorted by class, equal classes in their order.
 * Few marks are sorted by insertion; a pile of 32 or more, which only hostile text has, by
 * counting.
 */
static void order_marks(uint32_t *code, size_t n)
{
    if (n < 32) {
        for (size_t i = 1; i < n; i++) {
            uint32_t c = code[i];
            uint8_t ccc = vt_uprop_of(c).ccc;
            size_t j = i;
            for (; j > 0 && vt_uprop_of(code[j - 1]).ccc > ccc; j--)
                code[j] = code[j - 1];
            code[j] = c;
        }
        return;
    }
    size_t at[257] = {0};
    uint32_t *sorted = malloc(n * sizeof *sorted);
    if (!sorted)
        return;
    for (size_t i = 0; i < n; i++)
        at[vt_uprop_of(code[i]).ccc + 1]++;
    for (int k = 1; k < 257; k++)
        at[k] += at[k - 1];
    for (size_t i = 0; i < n; i++)
        sorted[at[vt_uprop_of(code[i]).ccc]++] = code[i];
    memcpy(code, sorted, n * sizeof *sorted);
    free(sorted);
}

/* 0 if a and b do not compose. */
static uint32_t compose(uint32_t a, uint32_t b)
{
    if (a - HANGUL_L < HANGUL_LN && b - HANGUL_V < HANGUL_VN)
        return HANGUL_S + ((a - HANGUL_L) * HANGUL_VN + (b - HANGUL_V)) * HANGUL_TN;
    if (a - HANGUL_S < HANGUL_SN && (a - HANGUL_S) % HANGUL_TN == 0 &&
        b - HANGUL_T - 1 < HANGUL_TN - 1)
        return a + (b - HANGUL_T);
    int32_t low = 0, high = vt_ucompose_count - 1;
    while (low <= high) {
        int32_t mid = (low + high) / 2;
        const uint32_t *t = vt_ucompose[mid];
        if (t[0] == a && t[1] == b)
            return t[2];
        if (t[0] < a || (t[0] == a && t[1] < b))
            low = mid + 1;
        else
            high = mid - 1;
    }
    return 0;
}

static void run_compose(norm_run *r)
{
    size_t starter = SIZE_MAX, out = 0;
    int last = -1; /* class of the last mark kept after the starter; -1: none */
    for (size_t i = 0; i < r->n; i++) {
        uint32_t c = r->code[i];
        int ccc = vt_uprop_of(c).ccc;
        /* Blocked when something of the same or a higher class, or another starter, lies
         * between. */
        if (starter != SIZE_MAX && (last == -1 || (last != 0 && last < ccc))) {
            uint32_t made = compose(r->code[starter], c);
            if (made) {
                r->code[starter] = made;
                continue;
            }
        }
        if (ccc == 0) {
            starter = out;
            last = -1;
        } else {
            last = ccc;
        }
        r->code[out++] = c;
    }
    r->n = out;
}

static bool run_flush(norm_run *r, vt_buf *out, vt_uform form)
{
    for (size_t i = 0; i < r->n;) {
        size_t j = i;
        while (j < r->n && vt_uprop_of(r->code[j]).ccc)
            j++;
        if (j - i > 1)
            order_marks(r->code + i, j - i);
        i = j + 1;
    }
    if (form == VT_NFC || form == VT_NFKC)
        run_compose(r);
    for (size_t i = 0; i < r->n; i++)
        if (!vt_utf8_add(out, r->code[i]))
            return false;
    r->n = 0;
    return !r->failed;
}

bool vt_unicode_is_normal(const char *s, size_t n, vt_uform form)
{
    for (size_t i = 0; i < n;) {
        uint64_t eight;
        if (i + 8 <= n && (memcpy(&eight, s + i, 8), (eight & 0x8080808080808080u) == 0)) {
            i += 8;
            continue;
        }
        uint32_t c;
        i += (size_t)vt_utf8_next(s + i, &c);
        if (!(vt_uprop_of(c).flags & (VT_U_STABLE << form)))
            return false;
    }
    return true;
}

/* Unchanged text is copied in spans: s[from..held) goes out as it is. The character at `held`
 * waits, since a mark after it may compose with it. */
bool vt_unicode_normalize(vt_buf *out, const char *s, size_t n, vt_uform form)
{
    norm_run run;
    run.n = 0;
    run.cap = sizeof run.fixed / sizeof *run.fixed;
    run.code = run.fixed;
    run.failed = false;
    bool ok = true, compat = form == VT_NFKD || form == VT_NFKC;
    size_t from = 0, held = 0, i = 0;
    while (ok && i < n) {
        uint32_t c;
        size_t at = i;
        i += (size_t)vt_utf8_next(s + i, &c);
        if (c < 0x80 || (vt_uprop_of(c).flags & (VT_U_STABLE << form))) {
            if (run.n) { /* nothing before c can reach past it */
                ok = run_flush(&run, out, form);
                from = at;
            }
            held = at;
            continue;
        }
        if (run.n == 0) {
            ok = vt_buf_add(out, s + from, held - from);
            for (size_t k = held; k < at;) {
                uint32_t before;
                k += (size_t)vt_utf8_next(s + k, &before);
                run_decompose(&run, before, compat);
            }
        }
        run_decompose(&run, c, compat);
    }
    if (ok && run.n)
        ok = run_flush(&run, out, form);
    else if (ok)
        ok = vt_buf_add(out, s + from, n - from);
    if (run.code != run.fixed)
        free(run.code);
    return ok;
}
