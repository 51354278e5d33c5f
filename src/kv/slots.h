/* Slots: which pieces of a second memory are in use, that a node of the radix tree may have beside
 * its page of KV, and may lose before it. The bytes lie elsewhere (kv/cache.h, or on a device).
 *
 *   state slots     models whose layers carry a state from token to token (short convolutions,
 *                   state spaces, delta rules) keep a fixed number of bytes for a sequence beside
 *                   its KV pages. A node's slot is a snapshot of the state behind its page
 *   window pages    the KV of layers with a sliding window, of the tokens of the node's page
 *
 *   free                 held                         cached
 *   on the free stack    refs > 0: sequences use it   refs == 0: that of a radix node
 *
 * Always true:  n_free + n_held + n_cached == n_slots.  Only the radix tree (kv/radix.h) calls
 * this; the scheduler takes and drops slots through the tree, as it does pages. */
#ifndef VT_KV_SLOTS_H
#define VT_KV_SLOTS_H

#include <stdbool.h>
#include <stdint.h>

#include "vitrine.h"

typedef struct vt_slots {
    int32_t n_slots, n_free, n_held, n_cached;
    int32_t *free_stack;    /* [n_slots], the top is free_stack[n_free - 1] */
    int32_t *refs;          /* [n_slots] how many sequences use the slot */
    int32_t *page;          /* [n_slots] the radix node that it belongs to; -1: to none */
    int32_t *newer, *older; /* [n_slots] neighbours in the list of cached slots; -1: none */
    int32_t oldest, newest; /* the ends of that list, in order of last use; -1: it is empty */
    bool *spare;            /* [n_slots] nothing has used the snapshot yet, and it goes first */
} vt_slots;

vt_status vt_slots_init(vt_slots *s, int32_t n_slots, vt_err *err);
/* Changes the number of slots, to at most as many as it was made for. The new ones are free and go
 * after those that are free now. Fewer only while all are free. */
void vt_slots_resize(vt_slots *s, int32_t n_slots);
void vt_slots_release(vt_slots *s);

/* Takes a free slot with one reference; -1 if none is free. */
int32_t vt_slots_take(vt_slots *s);
/* Adds a reference to a held or cached slot. */
void vt_slots_ref(vt_slots *s, int32_t slot);
/* Drops a reference. When the last one is dropped, a node's slot becomes cached, as the one that
 * was used last, or the one to evict next if it is spare; any other slot becomes free. */
void vt_slots_unref(vt_slots *s, int32_t slot);
/* A held slot becomes that of a radix node. */
void vt_slots_enter(vt_slots *s, int32_t slot, int32_t page);
/* A held slot's snapshot is spare until it gets another reference. */
void vt_slots_spare(vt_slots *s, int32_t slot);
/* Returns true if a slot is free, or the cached one to evict next is spare. */
bool vt_slots_have_spare(const vt_slots *s);
/* A slot is no node's any more: without references it becomes free. */
void vt_slots_leave(vt_slots *s, int32_t slot);

/* Counts all slots again and walks the list; VT_ERR_FORMAT with a message if something is wrong.
 * For tests. */
vt_status vt_slots_check(const vt_slots *s, vt_err *err);

#endif
