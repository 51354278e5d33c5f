/* Compares every row and every variant of a card that this CPU can run with the card's reference:
 * within the tolerance, and the same bits for 1 to OP_MAX_WORKERS workers. A difference ends the
 * test. Each returns how many comparisons it made. */
#ifndef VT_TESTS_OP_PARITY_H
#define VT_TESTS_OP_PARITY_H

#include "op_run.h"

/* 0: the case is too large for the reference. */
int32_t op_parity_case(const vt_op *op, const vt_case *c, op_teams *teams);
/* All cases of the card. */
int32_t op_parity_cases(const vt_op *op, op_teams *teams);
/* n random cases (ops/case_draw.h). */
int32_t op_parity_random(const vt_op *op, uint64_t seed, int32_t n, op_teams *teams);

#endif
