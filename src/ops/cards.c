/* The registry of op cards, made from ops/cards.h. It is a file of its own so that a test can have
 * a registry with an op more (tests/unit/test_toy_op.c). */
#include "ops/op.h"

#define VT_CARD(name) extern const vt_op name##_op;
#include "ops/cards.h"
#undef VT_CARD

#define VT_CARD(name) &name##_op,
const vt_op *const vt_ops[] = {
#include "ops/cards.h"
    NULL,
};
#undef VT_CARD
