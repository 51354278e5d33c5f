/* A constraint for tests on real executors: the n-th token of an answer is one of a stripe of the
 * vocabulary, and every fourth is certain. */
#ifndef VT_TEST_STRIPED_RULES_H
#define VT_TEST_STRIPED_RULES_H

#include "engine/engine.h"

/* Submits a request whose answers the rules hold for. */
void striped_submit(vt_engine *e, const vt_request_params *p, int32_t vocab);
/* Fails the test unless the rules allow this token in place n of an answer. */
void striped_check(int32_t n, int32_t token, int32_t vocab);

#endif
