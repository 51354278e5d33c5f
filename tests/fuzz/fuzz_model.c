/* Any bytes as a GGUF model that is run: opening fails with a message, or the model answers a
 * prompt of three tokens with up to four, on the CPU, or the engine says why not. Sizes that a
 * small file may claim (a long context, a large feed-forward) must not make that slow or large. */
#include <stdlib.h>
#include <string.h>

#include "device/cpu.h"
#include "files/gguf.h"
#include "model/load.h"
#include "vitrine.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct outcome {
    bool ended;
    int32_t tokens;
} outcome;

static void on_event(void *user, const vt_event *e)
{
    outcome *o = user;
    o->tokens += e->finish == VT_FINISH_NONE;
    o->ended |= e->finish != VT_FINISH_NONE;
}

static vt_status make_engine(const vt_model *m, vt_engine **out, vt_err *err)
{
    static const char *const set[][2] = {{"device", "cpu"},    {"threads", "1"},
                                         {"max-running", "2"}, {"token-budget", "8"},
                                         {"kv-memory", "1M"},  {"no-overlap", "true"}};
    vt_options *o;
    vt_status status = vt_options_new(&o, err);
    if (status != VT_OK)
        return status;
    for (size_t i = 0; i < sizeof set / sizeof *set && status == VT_OK; i++)
        status = vt_options_set(o, set[i][0], set[i][1], err);
    if (status == VT_OK)
        status = vt_engine_new(m, o, out, err);
    vt_options_free(o);
    return status;
}

static void run(vt_engine *e, const vt_model *m, vt_err *err)
{
    int32_t ids[3] = {0, vt_model_vocab_size(m) - 1, 1 % vt_model_vocab_size(m)};
    outcome o = {0};
    vt_request_params p;
    vt_request_id id;
    bool idle = false;
    vt_request_init(&p);
    p.prompt = ids;
    p.n_prompt = 3;
    p.max_tokens = 4;
    p.callback = on_event;
    p.user = &o;
    if (vt_engine_submit(e, &p, &id, err) != VT_OK)
        return;
    for (int steps = 0; !o.ended; steps++)
        if (vt_engine_step(e, &idle, err) != VT_OK)
            return;
        else if (steps > 100)
            abort(); /* a request of three tokens that never ends */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    gguf_file *f;
    vt_model *m;
    vt_engine *e;
    vt_err err = {0};
    if (vt_cpu_init(&err) != VT_OK || gguf_open_bytes("fuzz", data, size, &f, &err) != VT_OK ||
        vt_model_from_gguf(f, true, &m, &err) != VT_OK) {
        if (!err.message[0])
            abort();
        return 0;
    }
    if (make_engine(m, &e, &err) == VT_OK) {
        run(e, m, &err);
        vt_engine_free(e);
    } else if (!err.message[0]) {
        abort();
    }
    vt_model_free(m);
    return 0;
}
