/* Random cases of a card, of shapes that nobody chose. Tests compare rows on them.
 *
 * Three in four come from the card's `draws`, one in four from its `cases`; all from its `cases` if
 * it has no draws. A text of draws is like that of a case, but for its values, of which there may
 * be several, each as likely as the others:
 *
 *   tokens=1..65|~200    a number from 1 to 65, or one from 1 to 200 that is mostly small
 *   rows2=0|rows         0, or what the field `rows` has, which stands in front
 *   type=bf16|fp8        one of these
 *
 * What a kernel is compiled for (columns, head sizes, types) should come from short lists, so that
 * few kernels are compiled, and should meet the borders of its tiles. Combinations that the card
 * refuses are drawn again. A case of the card gets another value in its first field, which is the
 * number of tokens, rows, sequences or copies of every op, and perhaps a flag turned over. */
#ifndef VT_OPS_CASE_DRAW_H
#define VT_OPS_CASE_DRAW_H

#include "ops/op.h"

/* Draws a case, which depends on the state alone. False: the card's cases may not be random. */
bool vt_op_draw(const vt_op *op, uint64_t *state, vt_case *out);
/* Draws a case from one text of op->draws. False: the card refuses the values. */
bool vt_case_draw(const vt_op *op, const char *text, uint64_t *state, vt_case *out);

#endif
