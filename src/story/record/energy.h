/* Joules a token, from an energy counter that was read while the steps ran. */
#ifndef VT_STORY_ENERGY_H
#define VT_STORY_ENERGY_H

#include "base/json_write.h"
#include "story/record/record.h"

/* NAN: not known. */
typedef struct story_energy {
    const char *counter;       /* whose; NULL: there is none */
    const char *why;           /* why a figure is not known; NULL: all are */
    double prompt_j, decode_j; /* in the steps with prompt tokens; in steps of decodes alone */
    int64_t prompt_tokens, generated; /* of all requests in these steps */
} story_energy;

void story_find_energy(const story_input *in, const story_record *r, story_energy *out);
/* Writes "energy". */
void story_put_energy(vt_json *w, const story_energy *e);
/* An element of "not_measured", where no counter was read. */
void story_energy_not_measured(vt_json *w, const story_energy *e);

#endif
