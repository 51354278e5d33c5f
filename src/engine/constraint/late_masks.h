/* A thread that makes the masks that take long, so that no step waits for them.
 *
 *   engine's thread: vt_constrained_follow, broken off ── give ──┐      ┌── take ──> queue
 *   this thread:                                                └ finish ┘ wakes the engine
 *
 * It makes them one after another, in the order in which they came. */
#ifndef VT_ENGINE_CONSTRAINT_LATE_MASKS_H
#define VT_ENGINE_CONSTRAINT_LATE_MASKS_H

#include "engine/constraint/constraint.h"

typedef struct vt_late_masks vt_late_masks;

/* `tell` is called by the thread for each mask that is made; the thread begins with the first of
 * them. Where it is NULL there is no thread, and masks are made as they are given. Returns NULL if
 * memory has ended. */
vt_late_masks *vt_late_masks_new(void (*tell)(void *user), void *user);
/* All that were given have been taken. Here and in the last two calls l may be NULL. */
void vt_late_masks_free(vt_late_masks *l);
/* Has a mask made that vt_constrained_follow has broken off. Where no thread can be had it is made
 * at once. `owner` is what take returns. */
void vt_late_masks_give(vt_late_masks *l, vt_constrained *c, void *owner);
/* Returns the owner of a mask that is made; NULL: there is none. */
void *vt_late_masks_take(vt_late_masks *l);
/* Makes no more of them: those that are not begun end with VT_END_ABORT. Returns what take returns,
 * after the one that is being made. */
void *vt_late_masks_abort(vt_late_masks *l);

#endif
