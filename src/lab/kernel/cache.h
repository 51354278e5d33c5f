/* A cache folder of the lab's own: empty at first, removed at the end, in place of the user's. And
 * the harm that a lab does to its files, to see what a start then compiles again. */
#ifndef VT_LAB_KERNEL_CACHE_H
#define VT_LAB_KERNEL_CACHE_H

#include "lab/kit/lab.h"

typedef struct own_cache {
    char folder[500], before[500]; /* before: VITRINE_CACHE as the user set it; "": not set */
} own_cache;

/* Makes an empty folder and lets VITRINE_CACHE name it. */
vt_status own_cache_make(own_cache *o, vt_err *err);
/* Removes the folder and restores VITRINE_CACHE. */
void own_cache_drop(own_cache *o);

/* Gives every file a time of long ago. */
void own_cache_make_old(const own_cache *o);
/* Flips a bit of one file. */
void own_cache_damage_one(const own_cache *o);
/* Renames one undamaged file as if another NVRTC had made it. */
void own_cache_rename_one(const own_cache *o);

#endif
