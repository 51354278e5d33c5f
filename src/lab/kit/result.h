/* A lab's result: building, writing, reading back (docs/lab-format.md).
 *
 *   {"schema": "vitrine.lab", "version": 1, "track", "lab", "name", "goal",
 *    "machine": {"name", "device", "cpu", "level", "threads", "cores", "caches": {...}},
 *    "model", "commit", "when", "quick",
 *    "state": "quiet" | "disturbed" | "emulated", "roofs": {...},
 *    "predictions": [{"what", "unit", "own", "how", "reader", "measured", "grade"}],
 *    "checks":   [{"ok", "text"}],
 *    "items":    {KEY: {"text"} | {"value", "unit", "tag", "of"} | {"missing"} |
 *                      {"title", "columns", "rows"} | {"title", "drawing"}},
 *    "knobs":    [{"name", "where", "what", "expected", "before_s", ..., "verdict", "why"}],
 *    "findings": [{"rule", "text"}], "files": [{"name", "what"}],
 *    "tier", "cannot_see", "seconds"} */
#ifndef VT_LAB_KIT_RESULT_H
#define VT_LAB_KIT_RESULT_H

#include "lab/kit/lab.h"

/* The folder of a track's results on this machine: ROOT/TRACK/results/MACHINE; it may not be there.
 * ROOT: --results DIR, or the labs/ folder at or above the working directory that has a PLAN.md
 * and can be written to, or the cache folder. MACHINE: "local" unless --machine names one. */
vt_status lab_results_folder(const vt_options *o, lab_track track, char *out, size_t size,
                             vt_err *err);
/* ROOT of the above. */
vt_status lab_root(const vt_options *o, char *out, size_t size, vt_err *err);
/* Returns true if it can name a machine's folder: small letters, digits, '-', '_' and '.'. */
bool lab_machine_name_ok(const char *name);
vt_status lab_machine_name_refused(const char *name, vt_err *err);
/* Writes FOLDER/NN_name.json. */
vt_status lab_result_write(const json_t *result, const lab_def *def, const char *folder,
                           vt_err *err);
/* NULL in *out where there is none (that is no error). */
vt_status lab_result_read(const char *folder, const lab_def *def, json_t **out, vt_err *err);
/* The result as a person reads it: the six steps. */
void lab_result_render(const json_t *result, const vt_term *term, vt_buf *out);
/* Asks the reader for a prediction: --predict, or on a terminal; sets "reader" of the object. */
void lab_ask_reader(lab *l, json_t *prediction);
/* "within 20 %", "within 2x", "off by more"; for an ungraded one why. */
const char *lab_grade(double expected, double measured);

#endif
