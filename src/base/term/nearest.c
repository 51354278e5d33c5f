/* The word of a list that is spelt most like one that was typed (nearest.h). */
#include "base/term/nearest.h"

#include <stddef.h>
#include <string.h>

/* Edits (insert, delete, replace, swap of neighbours) between two short words; Damerau and
 * Levenshtein. */
static int32_t edit_distance(const char *a, const char *b)
{
    enum { MAX = 32 };
    size_t na = strlen(a), nb = strlen(b);
    if (na > MAX || nb > MAX)
        return MAX;
    int32_t row[3][MAX + 1]; /* the two rows before this one, and this one */
    for (size_t j = 0; j <= nb; j++)
        row[1][j] = (int32_t)j;
    for (size_t i = 1; i <= na; i++) {
        int32_t *two = row[(i + 2) % 3], *one = row[i % 3], *cur = row[(i + 1) % 3];
        cur[0] = (int32_t)i;
        for (size_t j = 1; j <= nb; j++) {
            int32_t best = one[j - 1] + (a[i - 1] != b[j - 1]);
            if (one[j] + 1 < best)
                best = one[j] + 1;
            if (cur[j - 1] + 1 < best)
                best = cur[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                two[j - 2] + 1 < best)
                best = two[j - 2] + 1;
            cur[j] = best;
        }
    }
    return row[(na + 1) % 3][nb];
}

vt_nearest vt_nearest_begin(const char *asked)
{
    int32_t most = 1 + (int32_t)(strlen(asked) / 3);
    return (vt_nearest){.asked = asked, .distance = (most > 3 ? 3 : most) + 1};
}

void vt_nearest_try(vt_nearest *n, const char *word)
{
    int32_t d = edit_distance(n->asked, word);
    if (d < n->distance) {
        n->distance = d;
        n->best = word;
    }
}
