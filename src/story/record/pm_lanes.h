/* Lanes of a GPU's counters over time, in "lanes" of a story.json. */
#ifndef VT_STORY_PM_LANES_H
#define VT_STORY_PM_LANES_H

#include "base/json_write.h"
#include "story/record/record.h"

/* Writes an item of "lanes" for each counter that was sampled while the chosen steps ran. */
vt_status story_put_pm_items(vt_json *w, const story_input *in, story_record *r, vt_err *err);
/* Writes "sampled": how many samples these items are of, and which counters are not among them;
 * null where nobody asked. */
void story_put_sampled(vt_json *w, const story_input *in, const story_record *r);
/* Why there is no such item; NULL: there are some. */
const char *story_no_pm(const story_input *in, const story_record *r);

#endif
