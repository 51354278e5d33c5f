/* Knobs of a forward pass in lab 06 of the track mini-sglang: what graphs, one graph and
 * programmatic dependent launch bring a decode step. Each setting is an engine in a process of its
 * own (engine_run.h), because they are decided once in a process. */
#include <math.h>

#include "base/err.h"
#include "lab/kit/engine_run.h"
#include "lab/mini_sglang/mini_sglang.h"
#include "story/read.h"

enum { SETTINGS = 3, PROMPT = 128, GENERATED = 64 };

typedef struct setting {
    const char *name, *where;
    lab_engine_ask ask;
    bool reverse; /* the setting takes the knob's gain away: it is the row's "before" */
    const char *why;
} setting;

static const setting settings[SETTINGS] = {
    {"CUDA graphs",
     "--no-graphs",
     {.option = {"--no-graphs", NULL}},
     true,
     "the bytes are the same; a graph saves the host's time for each launch, which a small step "
     "cannot hide"},
    {"sampling in the same graph",
     "VITRINE_CUDA_ONE_GRAPH",
     {.env = "VITRINE_CUDA_ONE_GRAPH=1"},
     false,
     "the bytes are the same; one graph launch less a step, about as long as one launch, and each "
     "way of sampling needs a graph of the whole pass"},
    {"programmatic dependent launch",
     "VITRINE_CUDA_PDL",
     {.env = "VITRINE_CUDA_PDL=0"},
     true,
     "the bytes are the same; a kernel starts while the one before it ends: expected is the "
     "difference of two empty kernels for each call of the step"}};

/* Calls of a decode step, by its story. */
static double calls_of(const json_t *decode)
{
    double n = 0;
    const json_t *op;
    size_t i;
    json_array_foreach(story_get(decode, "ops"), i, op) n += story_num(op, "calls");
    return n;
}

/* The gain that the measured floors promise for a step of this many calls. */
static double expected_gain(const lab *l, const json_t *decode, int i)
{
    double step_s = story_num(decode, "expected_us") * 1e-6, kernel_s = l->roofs.kernel_s,
           saved_s = l->roofs.kernel_s - l->roofs.kernel_pdl_s;
    if (i == 0)
        return 1;
    return i == 1 ? step_s / (step_s - kernel_s) : 1 + calls_of(decode) * saved_s / step_s;
}

static void turn_one(lab *l, const json_t *decode, int i, const lab_engine_run *own,
                     const lab_engine_run *other)
{
    const setting *s = &settings[i];
    const lab_engine_run *before = s->reverse ? other : own, *after = s->reverse ? own : other;
    lab_turn(l, &(lab_knob){.name = s->name,
                            .where = s->where,
                            .what = "a decode step, one request",
                            .gain = expected_gain(l, decode, i),
                            .before_s = before->token_s,
                            .before_noise = before->token_noise,
                            .after_s = after->token_s,
                            .after_noise = after->token_noise,
                            .why = s->why});
}

static void all_missing(lab *l, const char *why)
{
    for (int i = 0; i < SETTINGS; i++)
        lab_turn_missing(l, settings[i].name, settings[i].where, "a decode step, one request", NAN,
                         why);
}

vt_status mini_turn_engine(lab *l, const json_t *story, vt_err *err)
{
    const json_t *decode = story_phase_named(story, "decode");
    lab_engine_ask ask = {.prompt = PROMPT, .gen = GENERATED};
    lab_engine_run own, other;
    vt_err error;
    char why[160];
    if (l->ordinal < 0) {
        all_missing(l, "a CPU launches no kernels: its workers walk the list of calls and meet "
                       "after each");
        return VT_OK;
    }
    if (!lab_engine_small(l, why)) {
        all_missing(l, why);
        return VT_OK;
    }
    TRY(lab_engine_child(l, &ask, &own, err));
    for (int i = 0; i < SETTINGS; i++) {
        ask = settings[i].ask;
        ask.prompt = PROMPT;
        ask.gen = GENERATED;
        vt_status status = lab_engine_child(l, &ask, &other, &error);
        if (status == VT_OK)
            turn_one(l, decode, i, &own, &other);
        else
            lab_turn_missing(l, settings[i].name, settings[i].where, "a decode step, one request",
                             NAN, error.message);
    }
    return VT_OK;
}
