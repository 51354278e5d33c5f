/* The knobs of the program: those of base/knob.h, and those that cards declare for their rows
 * (vt_op.knob). A program's target holds the values of the cards', and rows ask it. */
#ifndef VT_OPS_KNOBS_H
#define VT_OPS_KNOBS_H

#include "base/knob.h"
#include "ops/op.h"

/* Knob number i of all; NULL: there are no more. */
const vt_knob_row *vt_knob_at(int32_t i);
/* Fails if a variable that is set has a text that its knob does not allow. */
vt_status vt_knob_check_all(vt_err *err);

/* The value of a card's knob in this target; its preset if nothing set it. */
int64_t vt_target_knob(const vt_target *t, const vt_knob_row *k);
/* Sets the cards' knobs from the environment, which was checked. */
void vt_target_read_knobs(vt_target *t);
/* Sets all of them to one value. */
void vt_target_turn_knobs(vt_target *t, int64_t value);

#endif
