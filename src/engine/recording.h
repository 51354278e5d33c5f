/* The recording that a story is made of. Every engine keeps one. */
#ifndef VT_ENGINE_RECORDING_H
#define VT_ENGINE_RECORDING_H

#include "exec/executor.h"

/* Pointers stay valid until the engine's next step. Its events are in the rings of
 * vt_engine_sources. */
typedef struct vt_recording {
    const vt_model *model;
    const vt_executor *executor; /* its reports, */
    const vt_program *program;   /* and what the calls' indices mean */
    int32_t n_pages;
    int32_t n_windows, window; /* window pages, of layers that see so many tokens; 0: none */
} vt_recording;

/* VT_ERR_USAGE where the engine runs no model (vt_engine_create). */
vt_status vt_engine_recording(vt_engine *e, vt_recording *out, vt_err *err);

#endif
