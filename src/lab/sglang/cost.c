/* Tells what the steps of a request must move and compute, and the time that is expected, before
 * they run: the engine's own program, costed by story/step.h for lengths without tokens. */
#include <math.h>
#include <string.h>

#include "base/err.h"
#include "engine/engine.h"
#include "engine/recording.h"
#include "lab/sglang/inside.h"
#include "story/predict.h"

static void add(sglang_cost *sum, const sglang_cost *c)
{
    sum->bytes += c->bytes;
    sum->weights += c->weights;
    sum->kv += c->kv;
    sum->flops += c->flops;
    sum->attention_flops += c->attention_flops;
    sum->floor_s += c->floor_s;
    sum->expected_s += c->expected_s;
    sum->layers_floor_s += c->layers_floor_s;
    sum->layers_expected_s += c->layers_expected_s;
    sum->attention_s += c->attention_s;
    sum->attention_calls += c->attention_calls;
}

/* The sum over the calls that the step runs. */
static void sum_calls(const lab *l, const story_step *s, const vt_efficiencies *known,
                      sglang_cost *out)
{
    const vt_program *p = story_step_program(s);
    for (int32_t i = 0; i < p->n_calls; i++) {
        vt_cost cost = {0}, extra = {0};
        story_bound bound;
        if (!story_step_cost(s, i, &cost, &extra))
            continue;
        sglang_cost c = {.bytes = (double)vt_cost_bytes(&cost),
                         .weights = (double)(cost.read.weights + cost.write.weights),
                         .kv = (double)(cost.read.kv + cost.write.kv),
                         .flops = (double)vt_cost_flops(&cost),
                         .floor_s = NAN,
                         .expected_s = NAN};
        if (!l->emulated) {
            c.floor_s = story_floor_s(&cost, &l->roofs, &bound);
            c.expected_s = story_expected_s(s, i, &l->roofs, known);
        }
        if (p->call[i].layer >= 0) {
            c.layers_floor_s = c.floor_s;
            c.layers_expected_s = c.expected_s;
        }
        if (strncmp(p->call[i].op->name, "attention", 9) == 0) {
            c.attention_flops = c.flops;
            c.attention_s = c.expected_s;
            c.attention_calls = 1;
        }
        add(out, &c);
    }
}

static vt_status cost_step(lab *l, const vt_program *p, const story_seq *seq, int32_t n,
                           bool measure, sglang_cost *out, vt_err *err)
{
    story_step *s = NULL;
    vt_efficiencies known = {0};
    int32_t tokens = 0;
    *out = (sglang_cost){0};
    for (int32_t i = 0; i < n; i++)
        tokens += seq[i].q_len;
    TRY(story_step_new(p, tokens, n, &s, err));
    vt_status status = story_step_set(s, seq, n, err);
    if (status == VT_OK && !l->emulated) {
        vt_efficiencies_read(&known, l->roofs.key);
        if (measure) {
            status = story_measure_rows(s, &l->roofs, l->ordinal, &known, NULL, NULL, err);
            vt_efficiencies_write(&known, l->roofs.key);
        }
    }
    if (status == VT_OK)
        sum_calls(l, s, &known, out);
    vt_efficiencies_release(&known);
    story_step_free(s);
    return status;
}

vt_status sglang_cost_step(lab *l, vt_engine *e, const story_seq *seq, int32_t n, bool measure,
                           sglang_cost *out, vt_err *err)
{
    vt_recording r;
    TRY(vt_engine_recording(e, &r, err));
    return cost_step(l, r.program, seq, n, measure, out, err);
}

vt_status sglang_cost_prompt(lab *l, vt_engine *e, int32_t n, int32_t cached, bool measure,
                             sglang_cost *out, vt_err *err)
{
    vt_recording r;
    TRY(vt_engine_recording(e, &r, err));
    int32_t budget = vt_engine_scheduler(e)->config.limits.max_tokens;
    sglang_cost sum = {0};
    for (int32_t done = cached; done < n;) {
        int32_t chunk = n - done < budget ? n - done : budget;
        done += chunk;
        story_seq seq = {.q_len = chunk, .kv_len = done, .n_rows = done == n};
        sglang_cost c;
        TRY(cost_step(l, r.program, &seq, 1, measure, &c, err));
        add(&sum, &c);
    }
    *out = sum;
    return VT_OK;
}
