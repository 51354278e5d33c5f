/* Helpers for tests of whole engines: set options, submit, step. A failure of any of these ends the
 * test with its message. */
#ifndef VT_TESTS_ENGINE_RUN_H
#define VT_TESTS_ENGINE_RUN_H

#include "vitrine.h"

void engine_option(vt_options *o, const char *key, const char *value);
void engine_option_int(vt_options *o, const char *key, int64_t value);
void engine_option_flag(vt_options *o, const char *key, bool on);
vt_engine *engine_open(const vt_model *m, const vt_options *o);
void engine_submit(vt_engine *e, const vt_request_params *p);
/* Runs one step; true if there was something to do. */
bool engine_step(vt_engine *e);
/* Steps until nothing is left. */
void engine_run(vt_engine *e);
/* Returns the kv-memory of an engine of `running` sequences, each of which has `slot` bytes of
 * state: at least `pages` bytes of KV beside the slots that it takes, of which there are `least` or
 * more. */
int64_t engine_state_memory(int64_t pages, size_t slot, int32_t running, int32_t least,
                            bool drafts);

#endif
