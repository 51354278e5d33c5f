/* Stories: from a recording to story.json, and from story.json to a person.
 *
 *   trace rings ──copy──> story_record ──+ program costs, roofs──> story.json ──> terminal
 *                         (collect.c)      (build.c)               docs/story-format.md  (render.c)
 *
 * story.json is the single source: the terminal form is rendered from its text, so a story told
 * later from a file reads the same. */
#ifndef VT_STORY_STORY_H
#define VT_STORY_STORY_H

#include "base/buf.h"
#include "base/term.h"
#include "base/trace.h"
#include "device/nvml.h"
#include "story/step.h"

enum { STORY_VERSION = 0, STORY_MAX_WORKERS = 256 };

/* A compiled kernel, with its template parameters in its name. */
typedef struct story_kernel {
    const char *name; /* "rmsnorm<hidden=1024,threads=128,level=90,pdl=1>" */
    int32_t registers, spill_bytes, shared_bytes;
} story_kernel;

/* What a GPU's recording has in place of workers. */
typedef struct story_gpu {
    const vt_trace_event *event; /* [n_events] launches, moves, calls, kernels; oldest first */
    uint64_t n_events;
    const story_kernel *kernel; /* [n_kernels] by index in the trace */
    int32_t n_kernels;
    int32_t ordinal, level, sm_count, driver_version;
    int64_t memory_bytes, free_bytes, l2_bytes; /* free_bytes: when the story was made; -1 */
    int32_t period; /* one decode step in so many ran call by call, to be timed */
    double notice_ns, event_ns, read_ns; /* exec/cuda.h */
    bool has_state;                      /* clocks, power, temperature when the story was made */
    vt_gpu_state state;
    char state_missing[512]; /* why not */
} story_gpu;

/* Everything a story is made of. Borrowed for the length of story_build. */
typedef struct story_input {
    const vt_model *model;
    const vt_trace_event *engine; /* [n_engine] requests, steps, memory; oldest first */
    uint64_t n_engine;
    const vt_trace_event *worker[STORY_MAX_WORKERS]; /* [n_worker[w]] calls and waits */
    uint64_t n_worker[STORY_MAX_WORKERS];
    int32_t n_workers;
    const vt_program *program; /* the engine's own, only read */
    int32_t n_pages;
    int64_t kv_bytes, packed_bytes;
    const char *device;   /* "cpu", "cuda" */
    const story_gpu *gpu; /* NULL: a CPU engine */
    vt_roofs roofs;
    double event_cost_ns; /* of recording one event, measured; NAN: unknown */
} story_input;

/* The story of request `id`, or of all steps recorded (id 0), as JSON text (free() it). Where
 * measured roofs turn out too low (an op ran faster), they are measured again and replaced. */
vt_status story_build(story_input *in, vt_request_id id, char **json, size_t *len, vt_err *err);

/* The terminal form of a story.json. `name` is used in messages. Appends to out. */
vt_status story_render(const char *name, const char *json, size_t len, const vt_term *term,
                       vt_buf *out, vt_err *err);

#endif
