/* Stories: from a recording to story.json, and from story.json to a person.
 *
 *   rings of all sources ──copy──> story_input ──> story_record ──> phases ──> story.json
 *                     (api_story.c)    (record.c, lanes.c)      (phases.c)  (build.c)
 *
 *   story.json ──> sections, rows, cells ──> terminal
 *                (page*.c)                (term.c)
 *
 *   record/     what was recorded, in order and summed up; the members of story.json
 *   findings/   what rules find in it, and why tokens were late
 *   page/       the terminal, HTML
 *   forms/      differences, traces for other tools, what-ifs
 *
 * story.json (docs/story-format.md) is the single source: the terminal form is rendered from its
 * text, so a story that is printed later from a file reads the same. */
#ifndef VT_STORY_STORY_H
#define VT_STORY_STORY_H

#include "base/buf.h"
#include "base/term/term.h"
#include "device/roofs/efficiency.h"
#include "exec/source.h"
#include "kv/radix_runs.h"
#include "story/step.h"

enum { STORY_VERSION = 1, STORY_MAX_WORKERS = 256 };

/* A source's facts, and copies of what its rings held when the story was made; oldest first. */
typedef struct story_source {
    vt_source is;                    /* its rings and functions are not used any more */
    const vt_request_event *request; /* tokens last, with at_ns 0 */
    const vt_step_event *step;       /* of steps with prompt tokens first, then of the others */
    const vt_span *span;             /* each step's together, the steps in no order */
    const vt_launch_event *launch;
    const vt_use_event *use;
    const vt_machine_event *sample;
    const vt_vital_event *vital;
    const vt_pm_event *pm;
    const vt_activity_event *activity; /* each step's together */
    uint64_t n_activity, n_pm, n_vitals, n_requests, n_steps, n_spans, n_launches, n_uses,
        n_samples;
    const vt_kernel_facts *kernel; /* [is.n_kernels] */
    const vt_roofs *roofs;         /* of its device; NULL: those of the input */
    int64_t free_bytes;            /* of the device's memory; -1: not known */
    bool has_state;                /* clocks, power, temperature */
    vt_gpu_state state;
    char state_missing[512]; /* why not */
} story_source;

/* Everything a story is made of. Borrowed for the length of story_build. */
typedef struct story_input {
    const vt_model *model;
    const vt_program *program;  /* the engine's own, only read */
    const story_source *source; /* [n_sources], the engine's among them */
    int32_t n_sources;
    const char *device; /* "cpu", "cuda" */
    int32_t n_pages;
    int32_t n_windows, window; /* window pages, of layers that see so many tokens; 0: none */
    double kv_bytes, window_page_bytes; /* of all n_pages pages; of a window page */
    double packed_bytes;
    vt_roofs roofs;                /* that ops are judged by: of the first source that has any */
    vt_efficiencies *efficiencies; /* of the same device; NULL: no times are expected */
    /* Adds to the efficiencies those that a step needs. Called for every timed step; NULL: times
     * are expected only where all are known already. */
    void (*learn)(const struct story_input *in, const story_step *step);
    int64_t learn_until_ns; /* when learning must end */
    vt_radix_nodes *tree; /* the prefix tree, as it is now; NULL: not known. Runs are made in it */
    double event_cost_ns; /* of recording one op call, measured; NAN: unknown */
} story_input;

/* A story needs the roofs of the machine and the efficiency of each row. What no file in the cache
 * has is measured, for up to two seconds in which the engine stands still; or it is not, and the
 * ops in question have no expected time. */
typedef enum story_measures {
    STORY_MEASURES,
    STORY_MEASURES_NOTHING /* but roofs that were never measured: see story_prepare */
} story_measures;

/* vt_engine_story, for an engine that serves requests meanwhile. It stands still for some 10 ms
 * and for what is measured. (api_story.c) */
vt_status story_of_engine(vt_engine *e, vt_request_id id, story_measures measures, char **json,
                          size_t *len, vt_err *err);
/* The same of the steps that began at or after a time of vt_now_ns, and of the requests that had
 * not ended then. Measures nothing. VT_ERR_USAGE: there was no such step. */
vt_status story_of_engine_since(vt_engine *e, int64_t since_ns, char **json, size_t *len,
                                vt_err *err);
/* Measures the roofs of the engine's device, unless a file in the cache has them: before requests
 * come, so that no story does it later. (api_story.c) */
vt_status story_prepare(vt_engine *e, vt_err *err);

/* The first source of a kind; NULL: there is none. */
const story_source *story_find_source(const story_input *in, vt_source_kind kind);
/* Counts the sources of a kind: CPU workers, or the streams of GPUs, which are ranks where there
 * are several. */
int32_t story_count(const story_input *in, vt_source_kind kind);
/* The roofs of a source's device. */
static inline const vt_roofs *story_roofs(const story_input *in, const story_source *s)
{
    return s->roofs ? s->roofs : &in->roofs;
}
/* Returns true if GPUs ran the steps. */
static inline bool story_on_gpu(const story_input *in)
{
    return story_count(in, VT_SOURCE_STREAM) > 0;
}

/* The story of request `id`, or of all steps recorded (id 0), as JSON text (free() it). `beaten`
 * (may be NULL) is set where an op of weight ran faster than its measured roof: the roofs were
 * measured on a busy machine, and the caller may measure them again. */
vt_status story_build(const story_input *in, vt_request_id id, char **json, size_t *len,
                      bool *beaten, vt_err *err);

/* `story show` is asked for this part of a story, instead of the whole. */
typedef enum story_level_kind {
    STORY_LEVEL_TOKEN, /* the step that made a token of the output, */
    STORY_LEVEL_STEP,  /* or the step of a number: its host work, its batch, its calls */
    STORY_LEVEL_LAYER, /* a layer of the typical step of each phase, op by op */
    STORY_LEVEL_OP     /* one kind of op ("linear.qkv"), layer by layer */
} story_level_kind;

typedef struct story_level {
    story_level_kind kind;
    int64_t number; /* of the token, step or layer */
    const char *op;
} story_level;

/* A level of a story.json in the terminal. VT_ERR_USAGE: the story has no such step, layer or
 * op. */
vt_status story_render_level(const char *name, const char *json, size_t len,
                             const story_level *want, const vt_term *term, vt_buf *out,
                             vt_err *err);

/* Appends the terminal form of a story.json to out. `name` is used in messages. */
vt_status story_render(const char *name, const char *json, size_t len, const vt_term *term,
                       vt_buf *out, vt_err *err);
/* The same of its head, its timeline and its findings alone. */
vt_status story_render_short(const char *name, const char *json, size_t len, const vt_term *term,
                             vt_buf *out, vt_err *err);

#endif
