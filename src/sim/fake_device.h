/* An executor for the simulator and for tests: it computes no model, but checks every field of a
 * step.
 *
 * Instead of keys and values a KV slot holds one number: a hash of the slot's token and of what the
 * slots of earlier positions hold. The "logits" of a row are that hash. So the token that a row
 * chooses is right only if every page, slot, copy and pending token before it was right.
 * vt_fake_reference computes which tokens a request must get, from its prompt and seed alone.
 *
 * With two KV groups a slot has a second number, in memory of its own: a hash of the first one and
 * of what the second numbers of earlier positions in a window hold. The logits are that hash. It
 * may have pages of its own, window pages.
 *
 * With state slots a sequence's state, too, is one number, a hash of all its tokens in order, and
 * the logits depend on it.
 *
 * Steps take fake time (vt_fake_clock) and fail as often as the configuration says. Whether a step
 * runs at its launch or only at its wait is random. A batch that breaks the contract of ops/batch.h
 * is refused. */
#ifndef VT_SIM_FAKE_DEVICE_H
#define VT_SIM_FAKE_DEVICE_H

#include "engine/constraint/constraint.h"
#include "exec/executor.h"

typedef struct vt_fake_clock {
    _Atomic int64_t now_ns; /* threads that submit read it while a step sets it */
} vt_fake_clock;

int64_t vt_fake_now(void *clock); /* vt_engine_config.now */

/* Tokens that a token of the second KV group sees, counting itself. */
enum { VT_FAKE_WINDOW = 20 };

typedef struct vt_fake_config {
    vt_limits limits;
    int32_t n_pages, n_pool_slots, vocab;
    int32_t n_windows; /* window pages of the second KV group; 0: it uses the pages of the first */
    int32_t n_groups;  /* of KV: 1 or 2; 0 counts as 1 */
    int32_t n_states;  /* state slots; 0: the fake model has no sequence state */
    uint64_t seed;     /* determines faults and when steps run */
    int32_t fault_ppm; /* how many of a million launches, and of a million waits, fail */
    /* A failure loses the device: every launch and wait fails until vt_executor.renew, which works
     * if n_renewals (borrowed) is not 0 and then counts it down. NULL: failures lose nothing. */
    int32_t *n_renewals;
    vt_fake_clock *clock; /* borrowed; NULL: steps take no time */
    int64_t (*cost_ns)(void *user, const vt_step *step);
    void *user;  /* passed to cost_ns. If that is NULL, a step takes 100 us and 1 us per token */
    bool hollow; /* keep no KV and make every token 0: for planning, which needs only time, pages */
} vt_fake_config;

vt_status vt_fake_device_new(const vt_fake_config *c, vt_executor **out, vt_err *err);
/* Returns how the first bad batch broke the contract; "" if no batch did. */
const char *vt_fake_violation(const vt_executor *x);

/* Computes what a request with this prompt, sampling row and vocabulary gets when it runs alone: n
 * tokens in out, their log-probabilities in logprob, and those of the prompt's tokens in score[1 ..
 * n_prompt). scratch: [n_prompt + n]. `stateful`: from a model with sequence state. */
void vt_fake_reference(const int32_t *prompt, int32_t n_prompt, const vt_sample_row *row,
                       int32_t vocab, int32_t n, int32_t *out, float *logprob, float *score,
                       uint64_t *scratch, bool stateful);
/* The same with this many KV groups, scratch: [n_groups][n_prompt + n], and under rules (NULL:
 * none) that have taken no token. Returns how many tokens there are: fewer than n where the rules
 * allow no further one. */
int32_t vt_fake_reference_constrained(const int32_t *prompt, int32_t n_prompt,
                                      const vt_sample_row *row, int32_t vocab, int32_t n,
                                      int32_t *out, float *logprob, float *score, uint64_t *scratch,
                                      bool stateful, int32_t n_groups, vt_constrained *rules);

#endif
