/* Grapheme clusters: where a reader sees one character (UAX 29). */
#include "text/unicode/unicode.h"

static vt_ugrapheme class_of(uint32_t c)
{
    if (c >= 0xAC00 && c < 0xAC00 + 11172)
        return (c - 0xAC00) % 28 ? VT_UG_LVT : VT_UG_LV;
    int32_t low = 0, high = vt_ugrapheme_count;
    while (low < high) {
        int32_t mid = (low + high) / 2;
        if (vt_ugraphemes[mid][1] < c)
            low = mid + 1;
        else
            high = mid;
    }
    return low < vt_ugrapheme_count && vt_ugraphemes[low][0] <= c
               ? (vt_ugrapheme)vt_ugraphemes[low][2]
               : VT_UG_OTHER;
}

/* A cluster up to some character. */
typedef struct cluster {
    vt_ugrapheme last;
    bool picture, picture_zwj;        /* a picture and what extends it; ... and then a joiner */
    bool consonant, consonant_linked; /* a consonant and what extends it; ... a linker among it */
} cluster;

static bool joins_hangul(vt_ugrapheme a, vt_ugrapheme b)
{
    switch (a) {
    case VT_UG_L:
        return b == VT_UG_L || b == VT_UG_V || b == VT_UG_LV || b == VT_UG_LVT;
    case VT_UG_V:
    case VT_UG_LV:
        return b == VT_UG_V || b == VT_UG_T;
    case VT_UG_T:
    case VT_UG_LVT:
        return b == VT_UG_T;
    default:
        return false;
    }
}

static bool extends(vt_ugrapheme k)
{
    return k == VT_UG_EXTEND || k == VT_UG_EXTEND_ONLY || k == VT_UG_LINKER;
}

/* Returns true if a character of class k belongs to the cluster in front of it. */
static bool joins(const cluster *g, vt_ugrapheme k)
{
    if (g->last == VT_UG_CONTROL || k == VT_UG_CONTROL)
        return false;
    return extends(k) || k == VT_UG_ZWJ || k == VT_UG_SPACING || g->last == VT_UG_PREPEND ||
           joins_hangul(g->last, k) || (g->picture_zwj && k == VT_UG_PICTURE) ||
           (g->consonant_linked && k == VT_UG_CONSONANT);
}

static void take(cluster *g, vt_ugrapheme k)
{
    bool inside = k == VT_UG_EXTEND || k == VT_UG_LINKER || k == VT_UG_ZWJ;
    g->picture_zwj = g->picture && k == VT_UG_ZWJ;
    g->picture = k == VT_UG_PICTURE || (g->picture && extends(k));
    g->consonant_linked = g->consonant && inside && (g->consonant_linked || k == VT_UG_LINKER);
    g->consonant = k == VT_UG_CONSONANT || (g->consonant && inside);
    g->last = k;
}

size_t vt_unicode_cluster(const char *s, size_t n)
{
    uint32_t c;
    cluster g = {0};
    if (n >= 2 && s[0] == '\r' && s[1] == '\n')
        return 2;
    size_t end = (size_t)vt_utf8_next(s, &c);
    if (end == n || (c < 0x80 && !(s[end] & 0x80)))
        return end;
    take(&g, class_of(c));
    while (end < n) {
        size_t step = (size_t)vt_utf8_next(s + end, &c);
        vt_ugrapheme k = class_of(c);
        if (!joins(&g, k))
            break;
        take(&g, k);
        end += step;
    }
    return end;
}
