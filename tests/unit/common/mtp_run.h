/* Helpers for tests of MTP heads (model/mtp.h) and EAGLE-3 heads (model/eagle.h) on a CPU and on
 * the emulated GPU: their hidden states on the prompts of a fixture, and engines that draft by
 * them. */
#ifndef VT_TESTS_MTP_RUN_H
#define VT_TESTS_MTP_RUN_H

#include "exec/executor.h"
#include "vitrine.h"

#define MTP_MODELS "tests/golden/mtp/"
#define EAGLE_MODELS "tests/golden/eagle/"

enum { MTP_PROMPT = 64, MTP_HIDDEN = 32, MTP_PAGE = 4, MTP_PAGES = MTP_PROMPT / MTP_PAGE };
enum { MTP_OUTPUT = 40, MTP_AHEAD = 2 };

/* A model, or an MTP head, and its executor. */
typedef struct mtp_runner {
    vt_model *m;
    vt_executor *x;
    vt_limits limits;
    size_t row; /* bytes of a hidden state */
    int32_t at; /* tokens that it has seen */
} mtp_runner;

void mtp_open_target(mtp_runner *r, const char *model, bool gpu);
/* The head of `of`, for n_seqs sequences. */
void mtp_open_head(mtp_runner *r, const vt_model *of, int32_t n_seqs, bool gpu);
/* A model, on the CPU, and an EAGLE-3 head. The model is to be closed first. */
void mtp_open_eagle(mtp_runner *target, mtp_runner *head, const char *model, const char *name,
                    int32_t n_seqs, bool gpu);
void mtp_close(mtp_runner *r);
/* Runs the next n tokens; an MTP head gets the hidden states before them. Returns theirs, which are
 * valid until the next step. */
const char *mtp_run_tokens(mtp_runner *r, const int32_t *ids, int32_t n, const void *before);
/* Reads prompt `index` of a fixture, and the tokens that the head goes on with. Returns its
 * length. */
int32_t mtp_read_prompt(const char *folder, const char *model, int32_t index, int32_t *ids);
/* Returns the largest difference of the head's logits, in parts of the largest one of a row: the
 * head reads each prompt of the fixture in two parts, then goes on by itself. The hidden states
 * are of the model on a CPU. */
double mtp_worst_logit(const char *model, const char *golden, bool gpu);
double eagle_worst_logit(const char *model, const char *eagle, bool gpu);

typedef struct mtp_heard {
    int32_t token[MTP_OUTPUT], n;
    int32_t drafted, accepted;
} mtp_heard;

typedef struct mtp_setting {
    const char *model, *draft; /* draft NULL: mtp */
    int32_t n_seqs, n_prompt, turns;
    int32_t budget, ranks, max_running; /* 0: as usual */
    int64_t kv_memory;                  /* likewise */
    float temperature;
    bool no_overlap, no_cache, gpu, no_graphs; /* on a GPU deterministic */
} mtp_setting;

typedef struct mtp_outcome {
    mtp_heard of[2][4]; /* by turn and sequence */
    vt_stats stats;
} mtp_outcome;

/* Runs the setting with and without drafts, and compares tokens. *out: with drafts. */
void mtp_compare(const mtp_setting *s, mtp_outcome *out);

#endif
