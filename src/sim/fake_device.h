/* A device that computes nothing and notices everything: the executor of the simulator and of
 * tests.
 *
 * In place of keys and values a KV slot holds one number, a hash of its token and of what the slots
 * of the earlier positions hold. The "logits" of a row are that hash, so the token it chooses is
 * right only if every page, slot, copy and pending token before it was right. vt_fake_reference
 * gives the tokens a request has to get, from its prompt and seed alone.
 *
 * It takes fake time (vt_fake_clock), fails on request, runs a step at launch or as late as its
 * wait, and refuses batches that break the contract of ops/batch.h. */
#ifndef VT_SIM_FAKE_DEVICE_H
#define VT_SIM_FAKE_DEVICE_H

#include "exec/executor.h"

typedef struct vt_fake_clock {
    int64_t now_ns;
} vt_fake_clock;

int64_t vt_fake_now(void *clock); /* vt_engine_config.now */

typedef struct vt_fake_config {
    vt_limits limits;
    int32_t n_pages, n_pool_slots, vocab;
    uint64_t seed;        /* of faults and of when steps run */
    int32_t fault_ppm;    /* of launches and of waits, that fail */
    vt_fake_clock *clock; /* borrowed; NULL: steps take no time */
    int64_t (*cost_ns)(void *user, const vt_step *step);
    void *user;  /* of cost_ns; NULL cost_ns: 100 us and 1 us a token */
    bool hollow; /* no KV, every token 0: for planning, where only time and pages count */
} vt_fake_config;

vt_status vt_fake_device_new(const vt_fake_config *c, vt_executor **out, vt_err *err);
/* The first broken promise of a batch, "" if there was none. */
const char *vt_fake_violation(const vt_executor *x);

/* What a request of this prompt, row and vocabulary gets, alone: n tokens into out and their
 * log-probabilities into logprob; the prompt's own into score[1 .. n_prompt). scratch: [n_prompt
 * + n]. */
void vt_fake_reference(const int32_t *prompt, int32_t n_prompt, const vt_sample_row *row,
                       int32_t vocab, int32_t n, int32_t *out, float *logprob, float *score,
                       uint64_t *scratch);

#endif
