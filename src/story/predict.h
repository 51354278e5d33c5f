/* The time that a call is expected to take: its launch, and its work at the efficiency that its row
 * was measured to have on shapes of its class (device/roofs/efficiency.h).
 *
 * Why rows are measured alone and not learnt from recorded steps: a step must have run before
 * anything could be said of it, and what was learnt from a step would only repeat that step. A row
 * alone takes some 0.1 s and serves every model and batch with calls of its class.
 *
 * What makes a row alone as fast as in a step, on a CPU, is in bench/bench_one.c: the kind of pages
 * that its memory has, and what the caches hold when it begins. What is left out of a step's
 * expected time is what lies between calls, the first touch of KV pages that the system has not
 * given yet (in rope_store and kv_store: 6 % of a first prefill), and the engine's own threads. */
#ifndef VT_STORY_PREDICT_H
#define VT_STORY_PREDICT_H

#include "device/roofs/efficiency.h"
#include "story/step.h"

/* Seconds that call `i` of the step is expected to take; NAN: its efficiency is not known. */
double story_expected_s(const story_step *s, int32_t call, const vt_roofs *r,
                        const vt_efficiencies *e);

/* Called before each shape that is measured. */
typedef void (*story_measuring)(void *user, const char *what);

/* Measures the efficiencies that the step needs and `e` lacks, and adds them. r: the roofs of the
 * device that the step's program is for, which must be this machine's. ordinal: the GPU; -1: the
 * CPU. A shape that cannot be measured is left out. */
vt_status story_measure_rows(const story_step *s, const vt_roofs *r, int32_t ordinal,
                             vt_efficiencies *e, story_measuring tell, void *user, vt_err *err);

#endif
