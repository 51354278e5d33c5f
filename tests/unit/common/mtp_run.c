/* MTP heads in executors and engines (mtp_run.h). */
#include "mtp_run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

#include "base/err.h"
#include "base/quant.h"
#include "engine_run.h"
#include "exec/cuda.h"
#include "model/eagle.h"
#include "model/load.h"

enum { MAX_VOCAB = 96 };

/* ---- executors ---- */

static void open_executor(mtp_runner *r, int32_t n_seqs, int32_t n_states, vt_states states,
                          bool gpu)
{
    vt_err err;
    r->at = 0;
    r->limits = (vt_limits){.max_tokens = MTP_PROMPT,
                            .max_seqs = n_seqs,
                            .max_rows = MTP_PROMPT,
                            .max_context = MTP_PROMPT,
                            .page_size = MTP_PAGE,
                            .n_workers = 2};
    vt_executor_config c = {.limits = r->limits,
                            .n_pages = n_seqs * MTP_PAGES,
                            .n_pool_slots = n_seqs,
                            .n_states = n_states,
                            .kv_dtype = gpu ? VT_BF16 : VT_F32,
                            .states = states,
                            .n_threads = 2};
    vt_cuda_options options;
    vt_cuda_options_init(&options);
    int64_t hidden = r->m->eagle.is || !r->m->aux.in ? r->m->arch.hidden : r->m->aux.in->dim[0];
    r->row = (size_t)hidden * (gpu ? sizeof(uint16_t) : sizeof(float));
    assert_in_range(hidden, 1, MTP_HIDDEN);
    vt_status status = gpu ? vt_executor_cuda_new(r->m, &c, &options, &r->x, &err)
                           : vt_executor_cpu_new(r->m, &c, &r->x, &err);
    if (status != VT_OK)
        fail_msg("%s", err.message);
}

static vt_model *load(const char *folder, const char *name)
{
    char path[256];
    vt_model *m;
    vt_err err;
    snprintf(path, sizeof path, "%s%s", folder, name);
    if (vt_model_load_drafter(path, &m, &err) != VT_OK)
        fail_msg("%s", err.message);
    return m;
}

void mtp_open_target(mtp_runner *r, const char *model, bool gpu)
{
    r->m = load(MTP_MODELS, model);
    open_executor(r, 1, 2, VT_STATES_TOKENS, gpu);
}

void mtp_open_eagle(mtp_runner *target, mtp_runner *head, const char *model, const char *name,
                    int32_t n_seqs, bool gpu)
{
    vt_err err;
    target->m = load(EAGLE_MODELS, model);
    head->m = load(EAGLE_MODELS, name);
    if (model_eagle_fit(head->m, target->m, &target->m->aux, &err) != VT_OK)
        fail_msg("%s", err.message);
    open_executor(target, 1, 0, VT_STATES_TOKENS, false);
    open_executor(head, n_seqs, 0, VT_STATES_STREAM, gpu);
}

void mtp_open_head(mtp_runner *r, const vt_model *of, int32_t n_seqs, bool gpu)
{
    vt_err err;
    if (vt_model_load_mtp(of, &r->m, &err) != VT_OK)
        fail_msg("%s", err.message);
    open_executor(r, n_seqs, 0, VT_STATES_ROWS, gpu);
}

void mtp_close(mtp_runner *r)
{
    r->x->free(r->x);
    vt_model_free(r->m);
}

const char *mtp_run_tokens(mtp_runner *r, const int32_t *ids, int32_t n, const void *before)
{
    int32_t position[MTP_PROMPT], seq_of[MTP_PROMPT] = {0}, page_ids[MTP_PAGES],
                                  from = r->at ? 0 : -1, to = 0, q_start[2] = {0, n},
                                  kv_len = r->at + n;
    int32_t page_start[2] = {0, (kv_len + MTP_PAGE - 1) / MTP_PAGE};
    vt_sample_row rows[MTP_PROMPT];
    int32_t slot[MTP_PROMPT], row_token[MTP_PROMPT];
    for (int32_t i = 0; i < MTP_PAGES; i++)
        page_ids[i] = (i * 5 + 3) % MTP_PAGES;
    for (int32_t i = 0; i < n; i++) {
        position[i] = r->at + i;
        slot[i] = page_ids[position[i] / MTP_PAGE] * MTP_PAGE + position[i] % MTP_PAGE;
        row_token[i] = i;
        rows[i] = (vt_sample_row){.top_p = 1,
                                  .repetition_penalty = 1,
                                  .n_top = -1,
                                  .pool_slot = -1,
                                  .target = -1,
                                  .pending_slot = -1};
    }
    vt_step step = {.id = (uint64_t)r->at + 1,
                    .rows = rows,
                    .batch = {.n_tokens = n,
                              .n_seqs = 1,
                              .n_decode = n == 1,
                              .n_rows = n,
                              .n_pages = page_start[1],
                              .page_size = MTP_PAGE,
                              .token = ids,
                              .position = position,
                              .seq_of = seq_of,
                              .slot = slot,
                              .q_start = q_start,
                              .kv_len = &kv_len,
                              .page_start = page_start,
                              .page_ids = page_ids,
                              .hidden = before,
                              .state_from = before || r->m->aux.in ? NULL : &from,
                              .state_to = before || r->m->aux.in ? NULL : &to,
                              .row_token = row_token}};
    vt_step_result result;
    vt_err err = {0};
    if (r->x->launch(r->x, &step, &err) != VT_OK || r->x->wait(r->x, &result, &err) != VT_OK)
        fail_msg("%s", err.message);
    r->at += n;
    return result.hidden;
}

/* ---- logits ---- */

/* The final norm of an EAGLE-3 head, whose hidden states are those before it. */
static void norm_state(const vt_model *m, float *state)
{
    int32_t n = m->arch.hidden;
    float weight[MTP_HIDDEN];
    double squares = 0;
    vt_dequant_row(m->final_norm->dtype, m->final_norm->data, weight, n);
    for (int32_t i = 0; i < n; i++)
        squares += (double)state[i] * (double)state[i];
    double by = 1 / sqrt(squares / n + (double)m->arch.norm_eps);
    for (int32_t i = 0; i < n; i++)
        state[i] = (float)((double)state[i] * by) * weight[i];
}

/* The largest difference of n rows of logits, which the head makes of hidden states, in parts of
 * the largest in its row. */
static double worst_of(const mtp_runner *head, const char *states, const float *want, int32_t n,
                       int32_t vocab)
{
    const vt_model *m = head->m;
    int32_t hidden = m->arch.hidden;
    vt_dtype type = head->row == (size_t)hidden * sizeof(float) ? VT_F32 : VT_BF16;
    float state[MTP_HIDDEN], weight[MTP_HIDDEN];
    double worst = 0;
    for (int32_t i = 0; i < n; i++, want += vocab) {
        double peak = 0, error = 0;
        vt_dequant_row(type, states + (size_t)i * head->row, state, hidden);
        if (m->eagle.is)
            norm_state(m, state);
        for (int32_t v = 0; v < vocab; v++) {
            double logit = 0;
            vt_dequant_row(m->head->dtype,
                           (const char *)m->head->data +
                               v * vt_dtype_row_bytes(m->head->dtype, hidden),
                           weight, hidden);
            for (int32_t k = 0; k < hidden; k++)
                logit += (double)state[k] * (double)weight[k];
            assert_true(isfinite(logit));
            error = fmax(error, fabs(logit - (double)want[v]));
            peak = fmax(peak, fabs((double)want[v]));
        }
        worst = fmax(worst, error / peak);
    }
    return worst;
}

static double check_prompt(FILE *f, const char *model, const char *eagle, int32_t vocab, bool gpu)
{
    static float want[(MTP_PROMPT + MTP_AHEAD) * MAX_VOCAB];
    static _Alignas(16) char states[MTP_PROMPT * MTP_HIDDEN * sizeof(float)];
    int32_t n, ids[MTP_PROMPT + MTP_AHEAD];
    mtp_runner target, head;
    assert_int_equal(fread(&n, 4, 1, f), 1);
    assert_in_range(n, 2, MTP_PROMPT - MTP_AHEAD);
    size_t logits = (size_t)((n - 1 + MTP_AHEAD) * vocab);
    assert_int_equal(fread(ids, 4, (size_t)(n + MTP_AHEAD), f), n + MTP_AHEAD);
    assert_int_equal(fread(want, 4, logits, f), logits);
    if (eagle) {
        mtp_open_eagle(&target, &head, model, eagle, 1, gpu);
    } else {
        mtp_open_target(&target, model, false);
        mtp_open_head(&head, target.m, 1, gpu);
    }
    const float *of = (const float *)mtp_run_tokens(&target, ids, n, NULL);
    for (int32_t i = 0; i < n * head.m->arch.hidden; i++)
        if (gpu)
            ((uint16_t *)states)[i] = vt_f32_to_bf16(of[i]);
        else
            ((float *)states)[i] = of[i];
    double worst = 0;
    const char *own = NULL;
    for (int32_t at = 0, part = n / 2; at < n - 1; at += part) {
        part = n - 1 - at < part ? n - 1 - at : part;
        own = mtp_run_tokens(&head, ids + 1 + at, part, states + (size_t)at * head.row);
        worst = fmax(worst, worst_of(&head, own, want + at * vocab, part, vocab));
        own += (size_t)(part - 1) * head.row;
    }
    for (int32_t k = 0; k < MTP_AHEAD; k++) {
        memcpy(states, own, head.row);
        own = mtp_run_tokens(&head, ids + n + k, 1, states);
        worst = fmax(worst, worst_of(&head, own, want + (n - 1 + k) * vocab, 1, vocab));
    }
    mtp_close(&target); /* it reads the head's matrix */
    mtp_close(&head);
    return worst;
}

static double worst_logit(const char *folder, const char *model, const char *eagle,
                          const char *golden, bool gpu)
{
    char path[256];
    int32_t n, vocab;
    snprintf(path, sizeof path, "%s%s/golden.bin", folder, golden);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fread(&n, 4, 1, f) + fread(&vocab, 4, 1, f), 2);
    assert_in_range(vocab, 1, MAX_VOCAB);
    double worst = 0;
    for (int32_t i = 0; i < n; i++)
        worst = fmax(worst, check_prompt(f, model, eagle, vocab, gpu));
    fclose(f);
    print_message("# %s: %.2g\n", eagle ? eagle : model, worst);
    return worst;
}

double mtp_worst_logit(const char *model, const char *golden, bool gpu)
{
    return worst_logit(MTP_MODELS, model, NULL, golden, gpu);
}

double eagle_worst_logit(const char *model, const char *eagle, bool gpu)
{
    return worst_logit(EAGLE_MODELS, model, eagle, eagle, gpu);
}

int32_t mtp_read_prompt(const char *folder, const char *model, int32_t index, int32_t *ids)
{
    char path[256];
    int32_t n_prompts, vocab, n;
    snprintf(path, sizeof path, "%s%s/golden.bin", folder, model);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fread(&n_prompts, 4, 1, f) + fread(&vocab, 4, 1, f), 2);
    assert_in_range(index, 0, n_prompts - 1);
    for (int32_t i = 0;; i++) {
        assert_int_equal(fread(&n, 4, 1, f), 1);
        assert_in_range(n, 2, MTP_PROMPT - 2);
        assert_int_equal(fread(ids, 4, (size_t)(n + 2), f), n + 2);
        if (i == index)
            break;
        fseek(f, 4L * (n + 1) * vocab, SEEK_CUR);
    }
    fclose(f);
    return n;
}

/* ---- engines ---- */

static void hear(void *user, const vt_event *e)
{
    mtp_heard *h = user;
    for (int32_t i = 0; i < e->n_tokens && h->n < MTP_OUTPUT; i++)
        h->token[h->n++] = e->tokens[i];
    if (e->finish == VT_FINISH_NONE)
        return;
    h->drafted = e->draft_tokens;
    h->accepted = e->draft_accepted;
}

/* Turn 0 asks with a made-up prompt. Each further one goes on with the text before it. */
static void make_prompt(const mtp_setting *s, int32_t turn, int32_t i, const mtp_outcome *before,
                        int32_t *ids)
{
    int32_t begin = turn * s->n_prompt;
    for (int32_t k = 0; k < s->n_prompt; k++)
        ids[begin + k] = 3 + (7 * i + 5 * (begin + k) + turn) % 27;
    if (turn > 0)
        memcpy(ids + begin, before->of[turn - 1][i].token, MTP_OUTPUT * sizeof *ids);
}

static vt_engine *open_engine(const mtp_setting *s, vt_options *o, vt_model **m)
{
    char path[256];
    vt_err err;
    bool whole = strncmp(s->model, "dummy:", 6) == 0 || strchr(s->model, '/');
    snprintf(path, sizeof path, "%s%s", whole ? "" : MTP_MODELS, s->model);
    engine_option(o, "model", path);
    engine_option(o, "device", s->gpu ? "cuda" : "cpu");
    engine_option_flag(o, "deterministic", s->gpu);
    engine_option_flag(o, "no-graphs", s->no_graphs);
    engine_option(o, "draft", s->draft);
    engine_option_int(o, "threads", 2);
    engine_option_int(o, "tp", s->ranks > 0 ? s->ranks : 1);
    engine_option_int(o, "page-size", 4);
    engine_option_int(o, "max-running", s->max_running > 0 ? s->max_running : 4);
    engine_option_int(o, "max-context", 256);
    engine_option_flag(o, "no-overlap", s->no_overlap);
    engine_option_flag(o, "no-prefix-cache", s->no_cache);
    if (s->budget > 0)
        engine_option_int(o, "token-budget", s->budget);
    engine_option_int(o, "kv-memory", s->kv_memory > 0 ? s->kv_memory : 16 << 20);
    if (vt_model_open(o, m, &err) != VT_OK)
        fail_msg("%s", err.message);
    return engine_open(*m, o);
}

static void run_turns(const mtp_setting *s, mtp_outcome *out)
{
    static int32_t ids[4][256];
    vt_options *o;
    vt_model *m;
    vt_err err;
    assert_int_equal(vt_options_new(&o, NULL), VT_OK);
    vt_engine *e = open_engine(s, o, &m);
    memset(out, 0, sizeof *out);
    for (int32_t turn = 0; turn < s->turns; turn++) {
        for (int32_t i = 0; i < s->n_seqs; i++) {
            make_prompt(s, turn, i, out, ids[i]);
            vt_request_params p;
            vt_request_init(&p);
            p.prompt = ids[i];
            p.n_prompt = (turn + 1) * s->n_prompt;
            p.max_tokens = MTP_OUTPUT;
            p.ignore_eos = true;
            p.temperature = s->temperature;
            p.has_seed = true;
            p.seed = 5;
            p.callback = hear;
            p.user = &out->of[turn][i];
            engine_submit(e, &p);
        }
        engine_run(e);
    }
    assert_int_equal(vt_engine_get_stats(e, &out->stats, &err), VT_OK);
    vt_engine_free(e);
    vt_model_free(m);
    vt_options_free(o);
}

void mtp_compare(const mtp_setting *of, mtp_outcome *out)
{
    mtp_setting s = *of;
    static mtp_outcome plain;
    s.draft = "off";
    run_turns(&s, &plain);
    s.draft = of->draft ? of->draft : "mtp";
    run_turns(&s, out);
    for (int32_t turn = 0; turn < s.turns; turn++)
        for (int32_t i = 0; i < s.n_seqs; i++) {
            const mtp_heard *want = &plain.of[turn][i], *got = &out->of[turn][i];
            assert_int_equal(want->n, MTP_OUTPUT);
            assert_int_equal(got->n, MTP_OUTPUT);
            assert_memory_equal(got->token, want->token, sizeof want->token);
        }
}
