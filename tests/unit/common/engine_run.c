#include "engine_run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "engine/scheduler.h"

void engine_option(vt_options *o, const char *key, const char *value)
{
    vt_err err;
    if (vt_options_set(o, key, value, &err) != VT_OK)
        fail_msg("%s", err.message);
}

void engine_option_int(vt_options *o, const char *key, int64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)value);
    engine_option(o, key, text);
}

void engine_option_flag(vt_options *o, const char *key, bool on)
{
    engine_option(o, key, on ? "true" : "false");
}

vt_engine *engine_open(const vt_model *m, const vt_options *o)
{
    vt_engine *e = NULL;
    vt_err err;
    if (vt_engine_new(m, o, &e, &err) != VT_OK)
        fail_msg("%s", err.message);
    return e;
}

void engine_submit(vt_engine *e, const vt_request_params *p)
{
    vt_err err;
    if (vt_engine_submit(e, p, NULL, &err) != VT_OK)
        fail_msg("%s", err.message);
}

bool engine_step(vt_engine *e)
{
    vt_err err;
    bool idle = true;
    if (vt_engine_step(e, &idle, &err) != VT_OK)
        fail_msg("%s", err.message);
    return !idle;
}

void engine_run(vt_engine *e)
{
    while (engine_step(e))
        ;
}

int64_t engine_state_memory(int64_t pages, size_t slot, int32_t running, int32_t least, bool drafts)
{
    int64_t bytes = pages + least * (int64_t)slot, n = least;
    for (; slot > 0; n++, bytes += (int64_t)slot) {
        int64_t taken = vt_sched_states(bytes, slot, running) +
                        (drafts ? vt_sched_guess_states(bytes, slot, running) : 0);
        if (taken <= n)
            break;
    }
    return bytes;
}
