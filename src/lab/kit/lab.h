/* Hands-on labs: `vitrine lab TRACK NN`.
 *
 * A lab is a function that measures something and explains it. It goes in six steps, which lab_run
 * (lab.c) prints in this order, whatever the order of the calls below:
 *
 *   1 predict   what is about to happen; what the reader expects; what the model of costs expects
 *   2 run       how the work is cut, and the tables of what was measured
 *   3 check     every result against its reference
 *   4 profile   which tier measured, and what it cannot see
 *   5 explain   the items of the lab, process first, then hardware; the prediction is graded
 *   6 change    knobs: before and after, with the noise of both
 *
 * Everything that a lab prints is in its result too (docs/lab-format.md): a JSON object that the
 * reports are generated from. So a lab never prints; it calls the functions below.
 *
 *     static vt_status run(lab *l, vt_err *err)
 *     {
 *         lab_kernel k;
 *         lab_kernel_ask ask = {.op = "embed", .shape = "tokens=64,..."};
 *         TRY(lab_kernel_predict(l, "time", &ask, "bytes over the measured copy roof", err));
 *         TRY(lab_kernel_run(l, &ask, &k, err));
 *         lab_outcome(l, "time", k.median_s, k.disturbed);
 *         lab_item(l, "coalescing", "each warp reads %d contiguous bytes", 512);
 *         lab_missing(l, "stalls", "no counters are read here (tier T0)");
 *         ...
 *     }
 *
 * Each knob that it turns must be declared in its lab_def, by name or place.
 * Each item of the lab's table must be told by lab_item, lab_number or a table of that key, or be
 * missing with its reason; lab_run fails the lab otherwise. */
#ifndef VT_LAB_KIT_LAB_H
#define VT_LAB_KIT_LAB_H

#include <jansson.h>

#include "base/term/figure.h"
#include "base/term/term.h"
#include "device/roofs/roofs.h"
#include "engine/options.h"
#include "vitrine.h"

typedef enum lab_track {
    LAB_SGLANG,
    LAB_MINI_SGLANG,
    LAB_FLASHINFER,
    LAB_EXPERIMENTS,
    LAB_TRACKS
} lab_track;

/* "sglang", "mini-sglang", "flashinfer", "experiments" */
extern const char *const lab_track_name[LAB_TRACKS];

typedef struct lab lab;

/* Something that the lab's explanation must contain. */
typedef struct lab_item_def {
    const char *key;  /* "itl_slope" */
    const char *what; /* "ITL slope per 100 KV tokens, beside what its bytes explain" */
    bool hardware;    /* of the hardware; else of the process */
} lab_item_def;

/* The part that a knob plays in the engine, for the report of what would gain. */
typedef enum lab_knob_kind {
    LAB_OFFERED = 1, /* not on by default: before is what the engine runs */
    LAB_RUNS,        /* on by default: after is what the engine runs, before is without it */
    LAB_LOAD         /* of the load or of the measurement: nothing of the engine to change */
} lab_knob_kind;

typedef struct lab_knob_def {
    /* In the knob's name or place; the first declaration that fits is the knob's. */
    const char *mark;
    lab_knob_kind kind;
    /* The part of the whole that its gain is of: an op of the decode step, or "prefill OP", "what"
     * (the op that the knob names), or one of LAB_STEP, LAB_FIRST, LAB_START. NULL: none. */
    const char *of;
    /* Of one that is offered: the option or variable that turns it on, LAB_BY_CARD or LAB_BY_FILE;
     * NULL: it has to be written. The effort follows. */
    const char *turn;
    const char *strength; /* of one that runs: what the design does, as a sentence begins */
} lab_knob_def;

#define LAB_STEP "a decode step"
#define LAB_FIRST "a first token"
#define LAB_START "a start"
#define LAB_BY_CARD "its card" /* the row is there, and the card has to choose it */
#define LAB_BY_FILE "another file of the model"

enum {
    LAB_MAX_ALIASES = 4,
    LAB_MAX_ITEMS = 32,
    LAB_MAX_KNOBS = 10,
    LAB_MAX_OPTIONS = 256,
    LAB_MAX_EVENTS = 400
};

typedef struct lab_def {
    lab_track track;
    const char *number;                 /* "02"; "radix" */
    const char *name;                   /* "radix_cache_analysis" */
    const char *goal;                   /* one sentence: what one knows afterwards */
    const char *about[3];               /* what is about to happen, which data will move; or NULL */
    const char *alias[LAB_MAX_ALIASES]; /* familiar names under scripts/, with suffix; or NULL */
    lab_item_def items[LAB_MAX_ITEMS + 1]; /* ends with key NULL */
    lab_knob_def
        knobs[LAB_MAX_KNOBS + 1]; /* ends with mark NULL; lab_run fails on any other knob */
    bool kernels;                 /* runs single kernels: on an emulated GPU too */
    vt_status (*run)(lab *l, vt_err *err);
} lab_def;

/* ---- the context ---- */

struct lab {
    const lab_def *def;        /* found in lab/kit/list.h */
    const vt_options *options; /* of the verb; lab_flag and others read them */
    bool *asked;               /* [LAB_MAX_OPTIONS] rows of the options that it asked for */
    const char *model;         /* a path or name; chosen for the device where none was given */
    int32_t ordinal;           /* the GPU; -1: CPU */
    bool emulated;             /* an emulated GPU: results are right, times mean nothing */
    bool quick;                /* the smaller form: all together in a minute on 2 cores */
    int32_t threads;           /* CPU workers */
    const char *results;       /* folder for files that the lab writes beside its result */
    vt_roofs roofs;            /* of the device, measured; all 0 on an emulated GPU */
    vt_term term;              /* for text that is stored: 100 columns, no colour */
    json_t *result;            /* what has been told so far; see result.h */
    bool failed;               /* a check failed, or memory ran out */
    bool busy;                 /* other programs use the machine: nothing is graded */
    bool talk;                 /* lines on stderr, and questions on a terminal */
    bool ran;                  /* a kernel or a request has run */
    int64_t begin_ns;          /* vt_now_ns at its begin */
    int64_t thought_ns;        /* the reader's time at the question, no part of the lab's seconds */
    int32_t events_left;       /* events beyond LAB_MAX_EVENTS */
    bool counted;              /* ncu has read counters of a kernel */
    bool vitals;               /* the GPU's counters were read in each call of a step */
    bool late;                 /* the first prediction came after that */
    vt_err refused;            /* the reader's prediction cannot be read */
    json_t *table;             /* the item that lab_cell adds to */
    struct lab_devices *device; /* opened when first needed (kernels.c) */
};

bool lab_flag(const lab *l, const char *key);
int64_t lab_int(const lab *l, const char *key, int64_t quick, int64_t full); /* given, or these */
const char *lab_text(const lab *l, const char *key);                         /* NULL: not given */
/* A line on stderr about what is under way. */
void lab_note(lab *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* ---- telling ---- */

/* Texts are forms of vt_text_printf: "%f s" is a time as a person reads it. */

/* Notes what the model of costs expects of the lab's main quantity, and how that was computed. The
 * first call is the quantity that --predict is about. It comes before anything runs: a lab that
 * runs a kernel or a request earlier fails. NAN: no expectation, `how` says why. */
void lab_predict(lab *l, const char *what, double own, vt_unit unit, const char *how);
/* Notes what came. It is graded against both (within 20 %, within 2x, off by more). A time or a
 * rate is not graded where it is `disturbed` or other programs use the machine; a count is graded
 * there too, because load does not change it. On an emulated GPU nothing is graded. */
void lab_outcome(lab *l, const char *what, double measured, bool disturbed);

/* A check that decides over the lab's exit status; fmt: what was compared, the error, the tolerance
 * and its reason. */
void lab_check(lab *l, bool ok, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* An item, as a sentence. */
void lab_item(lab *l, const char *key, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* An item, as a number with its tag ("measured", "derived", "modelled") and its denominator or
 * meaning ("of the measured copy roof"). */
void lab_number(lab *l, const char *key, double v, vt_unit unit, const char *tag, const char *of);
/* An item that this machine cannot show; printed "not measured here, because ...". */
void lab_missing(lab *l, const char *key, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Text of several lines (a tree, a roofline, a timeline), at most 100 columns, kept as it is. */
void lab_drawing(lab *l, const char *key, const char *title, const vt_buf *text);

/* A table that is one item: columns as in vt_table_init ("op|>time|>of roof"). Cells are added row
 * by row; the row is complete when it has as many cells as there are columns. */
void lab_table(lab *l, const char *key, const char *title, const char *columns);
void lab_cell(lab *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void lab_cell_number(lab *l, double v, vt_unit unit);
/* Several cells, a form for each with '|' between them. "%f UNIT" ("%f" alone is a count) makes a
 * number, all else a text: "%s|%d tokens|%f s|%f share". */
void lab_cells(lab *l, const char *forms, ...) __attribute__((format(printf, 2, 3)));

/* A knob that was turned: one before/after row. `gain` is before / after of times (above 1:
 * faster), as expected from bytes before the run; NAN: none was computed. Noise is vt_noise
 * (base/stats.h) of the repetitions, a robust form of their standard deviation, as a share: half of
 * their spread let one interrupted repetition hide every gain. The verdict is made from these:
 * "gains", "no gain here", "loses"; "not measured" on an emulated GPU; "not graded" where other
 * programs used the machine meanwhile. */
typedef struct lab_knob {
    const char *name;  /* "two launches" */
    const char *where; /* "variant kv_store two_launches", "--page-size", "VITRINE_PDL" */
    const char *what;  /* "kv_store, 1024 tokens, random slots" */
    double gain;
    double before_s, before_noise, after_s, after_noise;
    const char *why; /* one sentence: why it gains or does not */
    bool disturbed;  /* one of the two times met other programs; so do all where l->busy */
} lab_knob;
void lab_turn(lab *l, const lab_knob *k);
/* The verdict of two times with their noises: "gains", "loses", "no gain here", or "not measured"
 * where one of the times is not known. */
const char *lab_verdict(double before_s, double before_noise, double after_s, double after_noise);
/* A knob that cannot be turned here: its verdict is "not measured", and `why` says what is missing.
 * `gain` as in lab_knob. */
void lab_turn_missing(lab *l, const char *name, const char *where, const char *what, double gain,
                      const char *why);
/* The declaration of a knob of this name and place; NULL: the lab declares none. */
const lab_knob_def *lab_knob_find(const lab_def *d, const char *name, const char *where);
/* A finding: an observation, its likely cause, what to do. */
void lab_finding(lab *l, const char *rule, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* An event of the lab's own timeline: it began at begin_ns (vt_now_ns) and ends now. Whatever runs
 * something (kernels, engines, requests, servers, other programs) notes it here. Of more events
 * than LAB_MAX_EVENTS the rest is counted. */
void lab_event(lab *l, int64_t begin_ns, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* A file that the lab left in l->results. */
void lab_file(lab *l, const char *name, const char *what);

/* ---- running kernels (kernels.c) ---- */

typedef struct lab_kernel_ask {
    const char *op;     /* a card */
    const char *shape;  /* ops/case_text.h, one case */
    const char *impl;   /* a row, a family or a variant; NULL: what an engine would choose */
    const char *method; /* NULL: "warm" on a CPU, "graph" on a GPU */
} lab_kernel_ask;

typedef struct lab_kernel {
    const char *op;                      /* the card */
    char impl[64], shape[160], cut[400]; /* the row's name; how it cuts this call (describe) */
    char kernel[200];                    /* GPU: name and template parameters of its first launch */
    char function[64];                   /* GPU: the same, as CUDA and ncu name it */
    int32_t n_launches;                  /* GPU */
    int32_t registers, spill_bytes, ctas_per_sm; /* GPU; -1: not known */
    int64_t shared_bytes;                        /* GPU: of a CTA; 0 where there are none */
    double occupancy, waves, tail;               /* GPU, computed; NAN: not known */
    char limited_by[32];                         /* what limits the occupancy */
    double best_s, median_s, noise;              /* of a call; NAN on an emulated GPU */
    double bytes, extra_bytes, flops;            /* compulsory; beyond them; */
    double least_s, expected_s;                  /* by the roofs; NAN: not known */
    const char *bound; /* "memory", "cache", "bf16", "launch" ...; "no roof": it is faster than
                          every roof that was measured allows, so none of them binds it */
    double of_roof;    /* least_s / median_s; NAN where no roof binds */
    double error, tolerance; /* NAN: not checked */
    char why[256];           /* place of the first wrong element; else empty */
    bool ok, disturbed;
} lab_kernel;

extern const char lab_no_roof[]; /* the bound of a call that is faster than its roof */

/* lab_turn of a knob whose two positions are two calls that were run. */
void lab_turn_kernels(lab *l, const char *name, const char *where, const char *what, double gain,
                      const lab_kernel *before, const lab_kernel *after, const char *why);

/* Runs, checks and times one row on one shape. A row that does not take the shape, or is not there
 * on this machine, is VT_ERR_UNSUPPORTED with a sentence. A wrong result is no error: ok is false,
 * and lab_check has been called. Where other programs make the median much longer than the best
 * repetition, the row is timed again, up to three times in all, and the calmest times are kept.
 * `disturbed` says whether they still met other programs; a finding says so once. */
vt_status lab_kernel_run(lab *l, const lab_kernel_ask *ask, lab_kernel *out, vt_err *err);
/* Computes what lab_kernel_run would answer as expected_s, without running the call: for a
 * prediction, which comes before the run. NAN on an emulated GPU. */
vt_status lab_kernel_expect(lab *l, const lab_kernel_ask *ask, double *out_s, vt_err *err);
/* lab_predict of that time. */
vt_status lab_kernel_predict(lab *l, const char *what, const lab_kernel_ask *ask, const char *how,
                             vt_err *err);
/* Names of all rows and variants of the card that this device has and that take the shape; out[max]
 * of static strings. Returns how many; 0 with an error set: no such op or shape. */
int32_t lab_kernel_rows(lab *l, const char *op, const char *shape, const char **out, int32_t max,
                        vt_err *err);
/* The first of these rows but `impl` itself; NULL: there is no other one. */
const char *lab_kernel_other(lab *l, const char *op, const char *shape, const char *impl,
                             vt_err *err);
/* Returns true if no engine ever chooses this row of the card. */
bool lab_is_variant(const char *op, const char *row);
/* The name of the row that an engine would choose for this call. */
vt_status lab_kernel_chosen(lab *l, const char *op, const char *shape, char *out, size_t size,
                            vt_err *err);
/* One row of a usual table for kernels: the columns that lab_kernel_columns names. */
extern const char lab_kernel_columns[];
void lab_kernel_cells(lab *l, const lab_kernel *k);
/* operation, execution, hardware, roofline, bottleneck, opportunity: the form of an explanation of
 * a kernel, as a drawing under this key (card.c). With --ncu on a GPU also what its counters say,
 * and what its warps wait for. */
void lab_kernel_card(lab *l, const char *key, const lab_kernel *k, const char *operation,
                     const char *opportunity);

/* ---- running requests (requests.c) ---- */

/* An engine for the lab's model on the lab's device. `settings`: pairs of option and value,
 * NULL-terminated, such as {"page-size", "16", "max-running", "8", NULL}. */
vt_status lab_engine_open(lab *l, const char *const *settings, vt_engine **out, vt_err *err);

typedef struct lab_request {
    const int32_t *prompt;   /* [n_prompt] ids */
    int32_t n_prompt, n_gen; /* generates exactly n_gen: the end token is ignored */
    /* filled in */
    vt_request_id id;
    double ttft_s, total_s, *token_s; /* token_s: [n_gen] since submission; malloc'ed */
    int32_t n_tokens, n_cached, error;
    int32_t *token; /* [n_gen] what was generated; malloc'ed */
} lab_request;

/* Runs a short request whose figures nobody reads: the first steps of an engine touch its memory
 * for the first time. */
vt_status lab_engine_warm(lab *l, vt_engine *e, vt_err *err);
/* Submits all of them at once and runs them to their end. */
vt_status lab_requests_run(lab *l, vt_engine *e, lab_request *r, int32_t n, vt_err *err);
void lab_request_release(lab_request *r);
/* Random ids of the model's vocabulary without special tokens; out[n]. After lab_engine_open. */
void lab_random_prompt(lab *l, uint64_t seed, int32_t *out, int32_t n);
/* The story of a request, or with id 0 of all that was recorded (docs/story-format.md); json_decref
 * it. Read it with story/read.h. */
vt_status lab_story(lab *l, vt_engine *e, vt_request_id id, json_t **out, vt_err *err);

/* ---- a server in a process of its own (server.c) ---- */

typedef struct lab_server {
    int pid, port;
    char url[64], log[512]; /* log: the path of its stderr */
    double ready_s;         /* from its start until it answered */
    int guard, guard_end;   /* a process that ends the server if the lab dies; the socket to it */
} lab_server;

/* Starts `vitrine serve` with the lab's model and device and these further arguments
 * (NULL-terminated), and waits until it is ready. A lab that is interrupted, or dies, takes its
 * server along: the guard says so with the server's process number. */
vt_status lab_server_start(lab *l, const char *const *args, lab_server *out, vt_err *err);
/* The same, with another name than server.log for its log. */
vt_status lab_server_start_with_log(lab *l, const char *const *args, const char *log,
                                    lab_server *out, vt_err *err);
/* The server may outlive the lab from now on. */
void lab_server_let_go(lab_server *s);
/* Ends it with SIGTERM and waits. */
void lab_server_stop(lab_server *s);
/* Gives what GET answers, as JSON; json_decref it. */
vt_status lab_server_json(const lab_server *s, const char *path, json_t **out, vt_err *err);
/* Returns whether it is up and healthy. */
bool lab_server_answers(const lab_server *s);

/* ---- other programs (tools.c) ---- */

/* Runs a program that lab_tool_find finds, or argv[0] where that is a path, without a shell, and
 * ends it after limit_s. Its output goes into the file, which vt_open_to_log opens; NULL: it is
 * dropped. VT_ERR_UNSUPPORTED: the program is not there. *status: its exit status. */
vt_status lab_tool_run(lab *l, const char *const *argv, const char *output, double limit_s,
                       int *status, vt_err *err);
/* Removes the file that another program is about to write: it may be a link. */
vt_status lab_tool_writes(const char *path, vt_err *err);
/* The path of a program on PATH or where NVIDIA's packages put it; false: it is not there. */
bool lab_tool_find(const char *name, char *out, size_t size);
/* The path of this program. */
const char *lab_self(void);

#endif
