/* Lab sglang 03, first part: which rows an engine chooses for its attention, and what the plans of
 * a step cost. */
#include <string.h>

#include "base/err.h"
#include "engine/recording.h"
#include "lab/sglang/backends.h"
#include "lab/sglang/inside.h"
#include "story/read.h"

/* ---- names ---- */

/* Returns true if a row of attention has this name or is of this family, on any device. */
static bool is_known(const char *name)
{
    for (int i = 0; i < 2; i++) {
        const vt_op *card = vt_op_find(i ? "attention_decode" : "attention_prefill");
        const vt_impl *const *const table[] = {card->impls, card->variants};
        for (int t = 0; t < 2; t++)
            for (const vt_impl *const *r = table[t]; r && *r; r++)
                if (strcmp((*r)->name, name) == 0 ||
                    ((*r)->family && strcmp((*r)->family, name) == 0))
                    return true;
    }
    return false;
}

/* Splits --backends; without it: what a user of this device would compare. */
vt_status sglang_read_backends(const lab *l, char names[MAX_BACKENDS][BACKEND_NAME], int *n,
                               vt_err *err)
{
    const char *given = lab_text(l, "backends"), *text = given             ? given
                                                         : l->ordinal >= 0 ? "fa2,fa3"
                                                                           : "portable,avx2,avx512";
    for (bool more = true; more;) {
        size_t len = strcspn(text, ",");
        if (*n == MAX_BACKENDS)
            return vt_fail(err, VT_ERR_USAGE, "--backends: '%.60s', expected at most %d names",
                           given, MAX_BACKENDS);
        snprintf(names[*n], BACKEND_NAME, "%.*s", (int)len, text);
        if (!is_known(names[*n]))
            return vt_fail(err, VT_ERR_USAGE,
                           "--backends: no attention implementation is named '%.40s'; expected "
                           "names such as fa2, fa3, portable, avx2 or avx512",
                           names[*n]);
        ++*n;
        more = text[len] == ',';
        text += len + more;
    }
    return VT_OK;
}

/* ---- what is chosen ---- */

static void put_choices(lab *l, const vt_call *call)
{
    for (int i = 0; i < call->n_choices; i++) {
        const vt_impl *impl = call->choice[i].impl;
        lab_cell(l, "%s", call->op->name);
        if (call->n_choices == 1)
            lab_cell(l, "every size");
        else if (i + 1 == call->n_choices)
            lab_cell(l, "more");
        else
            lab_cell(l, "up to %d", call->choice[i].upto);
        lab_cells(l, "%s|%s|%s", impl->name, impl->family ? impl->family : "",
                  call->n_choices == 1 ? "first row that supports the call"
                                       : "first row that supports it and suits the size");
    }
}

static void tell_chosen(lab *l, const vt_program *p)
{
    lab_table(l, "chosen",
              "Rows of the engine's attention calls (layer 0; sizes in tokens of a "
              "step, for decode in sequences)",
              "op|size|row|family|why");
    for (int32_t i = 0; i < p->n_calls; i++)
        if (p->call[i].layer == 0 && strncmp(p->call[i].op->name, "attention", 9) == 0)
            put_choices(l, &p->call[i]);
}

/* The plans that a step of this sequence needs. */
static vt_status put_plans(lab *l, const vt_program *p, const char *name, const story_seq *seq,
                           double prepare_us, vt_err *err)
{
    story_step *s = NULL;
    bool used[VT_MAX_PLANS] = {false};
    TRY(story_step_new(p, seq->q_len, 1, &s, err));
    vt_status status = story_step_set(s, seq, 1, err);
    if (status == VT_OK)
        vt_program_plans_used(p, story_step_size(s), used);
    for (int32_t i = 0; status == VT_OK && i < p->n_plans; i++) {
        const vt_program_plan *plan = &p->plan[i];
        if (!used[i])
            continue;
        const vt_size *size = story_step_size(s);
        int32_t n = vt_plan_items(plan->plan, plan->args, &p->target, size, story_step_batch(s)),
                calls = 0;
        for (int32_t c = 0; c < p->n_calls; c++)
            if (vt_call_active(&p->call[c], size))
                calls += p->call[c].plan[vt_call_choice(&p->call[c], size)] == i;
        lab_cells(l, "%s|%s", name, plan->plan->name);
        if (plan->plan->items)
            lab_cell(l, "%d", n);
        else
            lab_cell(l, "as many as it finds");
        lab_cells(l, "%f B|%d|%f s", (double)plan->plan->bytes(plan->args, &p->target, size, n),
                  calls, prepare_us * 1e-6);
    }
    story_step_free(s);
    return status;
}

static double prepare_us(const json_t *story, const char *phase)
{
    return story_num(story_get(story_phase_named(story, phase), "per_step"), "prepare_us");
}

static vt_status tell_plans(lab *l, const vt_program *p, int32_t prompt, const json_t *story,
                            vt_err *err)
{
    int32_t budget = p->target.limits.max_tokens;
    story_seq prefill = {.q_len = prompt < budget ? prompt : budget, .n_rows = 1},
              decode = {.q_len = 1, .kv_len = prompt + 1, .n_rows = 1};
    prefill.kv_len = prefill.q_len;
    lab_table(l, "plan_cost",
              "One plan a step serves all layers; prepare: host time of plans and arrays together",
              "step|plan|>items|>bytes|>calls that share it|>prepare a step");
    vt_status status = put_plans(l, p, "prefill", &prefill, prepare_us(story, "prefill"), err);
    if (status == VT_OK)
        status = put_plans(l, p, "decode", &decode, prepare_us(story, "decode"), err);
    return status;
}

/* An engine that chooses for itself: the prediction, what it chooses, and its plans. */
vt_status sglang_run_auto(lab *l, int32_t prompt, int32_t gen, vt_err *err)
{
    vt_engine *e = NULL;
    vt_recording r;
    json_t *story = NULL;
    lab_request q = {.n_prompt = prompt, .n_gen = gen};
    sglang_cost cost;
    story_seq seq = {.q_len = 1, .kv_len = 1024, .n_rows = 1};
    int32_t *ids = NULL;
    vt_status status = sglang_open(l, NULL, 2, &e, err);
    if (status == VT_OK)
        status = sglang_cost_step(l, e, &seq, 1, true, &cost, err);
    if (status == VT_OK) {
        lab_predict(l, "attention of a decode at 1,024 tokens",
                    cost.attention_s / cost.attention_calls, VT_SECONDS,
                    "K and V of the context over the measured roof, at the share of it that the "
                    "row reached when it was measured alone");
        status = sglang_prompt(l, 3, NULL, 0, prompt, &ids, err);
        q.prompt = ids;
    }
    if (status == VT_OK)
        status = lab_requests_run(l, e, &q, 1, err);
    if (status == VT_OK)
        status = lab_story(l, e, q.id, &story, err);
    if (status == VT_OK)
        status = vt_engine_recording(e, &r, err);
    if (status == VT_OK) {
        tell_chosen(l, r.program);
        status = tell_plans(l, r.program, prompt, story, err);
    }
    json_decref(story);
    sglang_release(&q, 1);
    vt_engine_free(e);
    return status;
}
