/* Dumps: what an engine's recorder holds now, in a file, while the engine goes on. */
#ifndef VT_STORY_DUMP_H
#define VT_STORY_DUMP_H

#include "vitrine.h"

/* Writes the story of a request, or of all recorded steps (id 0), to a file that its owner alone
 * may read (mode 0600): it appears whole or not at all. Waits for the step that runs, and measures
 * nothing. For a signal, or a request that missed its time. */
vt_status vt_story_dump(vt_engine *e, vt_request_id id, const char *path, vt_err *err);

/* The same of the steps that began at or after a time of vt_now_ns. */
vt_status vt_story_dump_since(vt_engine *e, int64_t since_ns, const char *path, vt_err *err);

/* The folder for dumps: `folder`, or where that is NULL or "", `stories` in the cache. Makes it
 * where it is missing (mode 0700). */
vt_status vt_story_dump_folder(const char *folder, char *out, size_t size, vt_err *err);
/* A name for the next dump of this process in that folder: folder/story-PID-NUMBER.json. */
vt_status vt_story_dump_name(const char *folder, char *out, size_t size, vt_err *err);

#endif
