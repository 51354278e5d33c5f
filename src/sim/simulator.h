/* The simulator: the real engine, scheduler and prefix cache on a fake device with a fake clock. A
 * run is a pure function of its seed, so a seed that fails can be run again.
 *
 * A run makes a random engine (pages, page size, budget, policy, overlap, faults, state slots,
 * window pages ...),
 * sends it random requests (shared prefixes, several completions, stop tokens, scores, salts,
 * priorities, timeouts), aborts some, and after every step checks:
 *
 *   - all invariants of scheduler, radix tree and page pool (vt_sched_check), and the device's own;
 *   - every completion gets exactly the tokens and log-probabilities that it would get alone;
 *   - every completion ends exactly once, for a reason that fits;
 *   - under fcfs no request waits longer than the work submitted before it can take;
 *   - in the end no page, slot or request is still in use. */
#ifndef VT_SIM_SIMULATOR_H
#define VT_SIM_SIMULATOR_H

#include "vitrine.h"

typedef struct vt_sim_report {
    uint64_t steps, requests, completions, tokens;
    uint64_t finished[VT_FINISH_ERROR + 1];
    uint64_t retracted, faults, hit_tokens, copied_tokens, evicted_pages, aborts;
    uint64_t forced_tokens; /* computed together because a constraint allowed no others */
    uint64_t late_masks;    /* that were broken off, and made while their sequences waited */
    uint64_t draft_tokens, draft_accepted, ruled_out; /* ended by their constraints */
    /* snapshots of sequence state; and in the runs of models that have it: */
    uint64_t kept_states, evicted_states, state_hit_tokens, state_retracted, state_accepted;
    /* window pages evicted; and in the runs of models that have them: */
    uint64_t evicted_windows, window_hit_tokens, window_retracted;
    int64_t simulated_ns;
} vt_sim_report;

/* Runs one seed with n_requests requests and adds its counts to *report. On failure the message
 * begins with the seed and the step. */
vt_status vt_sim_run(uint64_t seed, int32_t n_requests, vt_sim_report *report, vt_err *err);

#endif
