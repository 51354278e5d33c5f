/* "did you mean": the word of a list that is spelt most like one that was typed. */
#ifndef VT_BASE_TERM_NEAREST_H
#define VT_BASE_TERM_NEAREST_H

#include <stdint.h>

typedef struct vt_nearest {
    const char *asked;
    const char *best; /* NULL: none of the words so far is close */
    int32_t distance; /* of `best`; the next word must be nearer */
} vt_nearest;

/* Begins to look for a word like `asked`. A third of its letters may differ, at most three. */
vt_nearest vt_nearest_begin(const char *asked);
/* Compares with one word of the list, which must live as long as `n`. The distance counts letters
 * that are added, left out, changed, or swapped with their neighbour. */
void vt_nearest_try(vt_nearest *n, const char *word);

#endif
