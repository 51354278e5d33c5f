/* Steps of several ranks, for `explain --tp N` and `bench simulate --tp N`: what each rank has to
 * do, and the calls that join them.
 *
 * GPUs are described one by one: a step of each rank's program is costed with that GPU's roofs, and
 * the lines of `explain` are those of the rank whose step takes longest. Ranks of a CPU share its
 * memory: there is one step, whose costs are those of all ranks together. */
#ifndef VT_CLI_PLAN_RANKS_H
#define VT_CLI_PLAN_RANKS_H

#include "base/json_write.h"
#include "base/term/term.h"
#include "exec/describe.h"
#include "story/predict.h"

typedef struct plan_ranks {
    vt_described_ranks *of;
    story_step *step[COMM_GPU_RANKS]; /* [n_steps] */
    int32_t n_steps;                  /* as many as ranks, or 1 on a CPU */
    int32_t shown;                    /* the step that takes longest */
    bool whole_experts;               /* as in vt_rank */
    const char *link;                 /* "p2p", "host"; "memory" on a CPU */
    double link_bytes_per_s;          /* a direction; 0: not known, or a CPU's memory */
    vt_roof_tag link_tag;
} plan_ranks;

/* Describes the program of m over n ranks, for steps of at most so many tokens and sequences.
 * `whole_experts`: as in vt_rank. `link`: a value of tp-link. plan_ranks_release(out) afterwards,
 * also if this fails. */
vt_status plan_ranks_make(plan_ranks *out, const vt_model *m, const vt_target *t, vt_dtype kv,
                          int32_t n, bool whole_experts, const char *link, int32_t max_tokens,
                          int32_t max_seqs, vt_err *err);
/* Sets the sequences of all steps. */
vt_status plan_ranks_set(plan_ranks *x, const story_seq *seq, int32_t n, vt_err *err);
void plan_ranks_release(plan_ranks *x);

/* Finds the rate of the link that the ranks use. `named`: by --hardware. A GPU without a known link
 * to its peers gets that of its data sheet, where there is one. */
void plan_ranks_link(plan_ranks *x, const vt_roofs *r, const vt_hardware *named);
/* Finds the step to show, and returns its least time: that of the group. */
double plan_ranks_choose(plan_ranks *x, const vt_roofs *r);

/* Seconds that what call i of the shown step brings takes over the link; 0: nothing comes over it,
 * or its rate is not known. */
double plan_ranks_link_s(const plan_ranks *x, int32_t i);

/* Seconds that call i of the shown step is expected to take. Of a call that joins GPUs and was not
 * measured this is its launch and its bytes over the link, if `e` knows other calls. NAN: not
 * known. */
double plan_ranks_expected_s(const plan_ranks *x, int32_t i, const vt_roofs *r,
                             const vt_efficiencies *e);

/* Seconds of a step of the group, or of one device: each call at its expected time where `e` knows
 * it (NULL: nowhere), else at `share` of its roofs. Ranks on GPUs wait for the slowest. */
double plan_ranks_step_s(const plan_ranks *x, const vt_roofs *r, const vt_efficiencies *e,
                         double share);
double plan_step_s(const story_step *s, const vt_roofs *r, const vt_efficiencies *e, double share);

/* Appends the part of the text: ranks, communication by layer and in sum. */
void plan_ranks_put(const plan_ranks *x, vt_buf *b, const vt_term *term, const vt_roofs *r);
/* Writes the members of the JSON object: tp, ranks, communication, layers. */
void plan_ranks_write(const plan_ranks *x, vt_json *w, const vt_roofs *r);

#endif
