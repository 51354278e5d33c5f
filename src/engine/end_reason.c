#include "engine/end_reason.h"

typedef struct ending {
    vt_finish finish;
    const char *name, *sentence;
} ending;

static const ending endings[VT_END_REASONS] = {
    [VT_END_NONE] = {VT_FINISH_NONE, "none", NULL},
    [VT_END_STOP_TOKEN] = {VT_FINISH_STOP, "stop_token", NULL},
    [VT_END_STOP_STRING] = {VT_FINISH_STOP, "stop_string", NULL},
    [VT_END_MAX_TOKENS] = {VT_FINISH_LENGTH, "max_tokens", NULL},
    [VT_END_CONTEXT] = {VT_FINISH_LENGTH, "context", NULL},
    [VT_END_KV_CACHE] = {VT_FINISH_LENGTH, "kv_cache", NULL},
    [VT_END_PROMPT] = {VT_FINISH_LENGTH, "prompt", NULL},
    [VT_END_ABORT] = {VT_FINISH_ABORT, "abort", NULL},
    [VT_END_TIMEOUT] = {VT_FINISH_ERROR, "timeout", "the request's timeout ended"},
    [VT_END_GRAMMAR_TOO_LARGE] = {VT_FINISH_ERROR, "grammar_too_large",
                                  "the grammar is too large to be followed: it takes too many "
                                  "states or steps, or too much memory"},
    [VT_END_NOTHING_ALLOWED] = {VT_FINISH_ERROR, "nothing_allowed",
                                "the grammar and what else the request demands allow no token"},
    [VT_END_NO_CANDIDATE] = {VT_FINISH_ERROR, "no_candidate",
                             "none of the allowed tokens can be chosen: their logits are not "
                             "numbers, or -infinity"},
    [VT_END_NOT_NUMBERS] = {VT_FINISH_ERROR, "not_numbers",
                            "the model's logits or hidden states were not numbers"},
    [VT_END_MEMORY] = {VT_FINISH_ERROR, "memory", "out of memory for the answer"},
    [VT_END_DEVICE_FAULT] = {VT_FINISH_ERROR, "device_fault", "the device failed and failed again"},
    [VT_END_DEVICE_LOST] = {VT_FINISH_ERROR, "device_lost", "the device is lost"},
    [VT_END_INTERNAL] = {VT_FINISH_ERROR, "internal",
                         "the constraint refused a token that it had allowed"},
};

static const ending *find(vt_end_reason reason)
{
    return (unsigned)reason < VT_END_REASONS ? &endings[reason] : NULL;
}

const char *vt_end_reason_name(vt_end_reason reason)
{
    const ending *e = find(reason);
    return e ? e->name : NULL;
}

const char *vt_finish_name(vt_finish finish)
{
    static const char *const name[] = {"none", "stop", "length", "abort", "error"};
    return (unsigned)finish < sizeof name / sizeof *name ? name[finish] : NULL;
}

vt_finish vt_end_finish(vt_end_reason reason)
{
    const ending *e = find(reason);
    return e ? e->finish : VT_FINISH_NONE;
}

const char *vt_end_sentence(vt_end_reason reason)
{
    const ending *e = find(reason);
    return e ? e->sentence : NULL;
}
