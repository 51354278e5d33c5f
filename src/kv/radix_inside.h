/* Declarations for radix.c (the tree) and radix_windows.c (its window pages). */
#ifndef VT_KV_RADIX_INSIDE_H
#define VT_KV_RADIX_INSIDE_H

#include "kv/radix.h"

/* Returns the most of the first n_pages pages behind which a sequence can go on, since the window
 * pages that it needs are there. */
int32_t radix_end_in_windows(const vt_radix *r, int32_t n_pages, const int32_t *page);
/* Shortens a match to what the window pages of its end allow. */
vt_radix_match radix_end_at_windows(const vt_radix *r, vt_radix_match m, const int32_t *page);
/* Takes a node's window page away, if it has one. */
void radix_forget_window(vt_radix *r, int32_t page);
/* Checks the window pages, and rule 5 of radix.c. */
vt_status radix_check_windows(const vt_radix *r, vt_err *err);

#endif
