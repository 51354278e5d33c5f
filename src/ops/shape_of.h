/* The shape of a program's call as the text of a case (ops/case_text.h), so that an op can be
 * measured alone on the shape that a program gives it: "tokens=1,type=Q4_1,cols=576,rows=576". */
#ifndef VT_OPS_SHAPE_OF_H
#define VT_OPS_SHAPE_OF_H

#include "ops/op.h"

enum { VT_SHAPE_TEXT = 192 };

/* Writes the shape of the call for a batch with host arrays; batch NULL: for the sizes in the args
 * themselves. Sizes beyond what a case can be measured with (case_limits; weights of more than
 * `most_weights` elements) are cut to it.
 *
 * `as_class`: numbers that change from step to step (vt_field.grows) are rounded to the nearest
 * power of two, so that one text stands for all steps of about that size. Those of the model stay
 * exact.
 *
 * False: the op has no such shape (vt_op.no_shape says why). */
bool vt_shape_of(const vt_op *op, const void *args, const vt_batch *batch, int64_t most_weights,
                 bool as_class, char out[VT_SHAPE_TEXT]);

#endif
