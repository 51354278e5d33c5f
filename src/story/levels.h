/* The levels of a story below its phases: steps, calls of layers, and the sequences of a batch. */
#ifndef VT_STORY_LEVELS_H
#define VT_STORY_LEVELS_H

#include "story/findings.h"

enum {
    LEVELS_MAX_STEPS = 2048,    /* rows of levels.steps */
    LEVELS_MAX_CHUNKS = 1024,   /* of levels.chunks */
    LEVELS_MAX_REQUESTS = 1024, /* of levels.requests */
    LEVELS_MAX_DETAILS = 10     /* steps whose calls are written one by one */
};

/* Writes "levels". `plan` is set for steps of the record. */
vt_status story_put_levels(vt_json *w, const story_input *in, story_record *r, story_step *plan,
                           const phase phases[STORY_PHASES], const story_facts *f, vt_err *err);

#endif
