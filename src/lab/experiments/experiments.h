/* Between the experiments: a server to look at, loads on it, files of their own names. */
#ifndef VT_LAB_EXPERIMENTS_EXPERIMENTS_H
#define VT_LAB_EXPERIMENTS_EXPERIMENTS_H

#include "lab/kit/lab.h"
#include "load/measure.h"

extern const lab_def lab_experiment_1, lab_experiment_2, lab_experiment_3, lab_experiment_4,
    lab_experiment_5, lab_experiment_6;

/* Sessions of `turns` turns of `input` tokens and at most `output` tokens, `concurrency` at once;
 * `shared` tokens in front of all sessions of a group are the same. Sessions of one turn are sent
 * as token ids, so that these numbers are exact with every tokenizer. Longer ones are chats of
 * words, of which a model of random weights makes several tokens each. */
typedef struct lab_load {
    int32_t n, concurrency, input, output, turns, shared, groups;
    uint64_t seed;
} lab_load;

/* The results of a load: the summary, and each answer in the order of the plan (malloc'ed). */
typedef struct lab_answers {
    vt_load_summary sum;
    vt_load_result *result;
    int32_t n;
} lab_answers;

/* Where other programs used the machine meanwhile, nothing that the lab measures is graded. */
vt_status lab_load_run(lab *l, const lab_server *s, const lab_load *load, lab_answers *out,
                       vt_err *err);
void lab_answers_release(lab_answers *a);

/* vt_noise of two values, the mean times of the first and of the second half of the requests: the
 * noise that a knob's row tells. NAN: fewer than two answers. */
double lab_answers_noise(const lab_answers *a);

/* True if other programs used the machine meanwhile: between two readings they had more than a
 * tenth of one CPU. */
typedef struct lab_busy {
    double all_s, ours_s;
    int64_t begin_ns;
} lab_busy;

void lab_busy_begin(lab_busy *b, const lab_server *s);
bool lab_busy_end(const lab_busy *b, const lab_server *s);

/* The server's own words on its memory. */
typedef struct lab_server_memory {
    double weights, kv, kv_token; /* bytes; kv: of all KV pages, kv_token: of one token */
} lab_server_memory;

/* Reads the members of /server_info. A token's KV is a page's over the tokens of a page: the pages
 * that have memory so far are fewer than the pool may have (kv_bytes) while a GPU's pool grows. */
void lab_server_memory_read(const json_t *info, lab_server_memory *out);
vt_status lab_server_memory_of(const lab_server *s, lab_server_memory *out, vt_err *err);
/* The bytes that a decode step of n sequences with this many tokens each must read. */
double lab_step_bytes(const lab_server_memory *m, double n, double tokens);
/* Returns what those bytes promise: the time of n sequences one after the other over that of a
 * batch. */
double lab_batch_gain(const lab_server_memory *m, double n, double tokens);
/* Writes memory_summary.txt. */
vt_status lab_write_memory(lab *l, const lab_server *s, const lab_server_memory *m, vt_err *err);

/* Tells the items "flame" and "over_time": draws where the time of all recorded steps of the server
 * went, and its memory over time. What the server cannot tell is missing, with its reason. */
void lab_draw_server(lab *l, const lab_server *s);
/* The story of the newest request that the server answered; json_decref it. */
vt_status lab_newest_story(const lab_server *s, json_t **out, vt_err *err);

/* Returns true if experiment 1 left a server that runs still. */
bool lab_server_is_left(lab *l);
/* The server that experiment 1 left running, if it still answers and has the lab's model; else a
 * new one with these arguments. *own: it was started here. */
vt_status lab_server_borrow(lab *l, const char *const *args, lab_server *out, bool *own,
                            vt_err *err);
/* Runs a measurement on such a server, and draws the server afterwards (lab_draw_server). */
vt_status lab_server_with(lab *l, vt_status (*measure)(lab *l, const lab_server *s, vt_err *err),
                          vt_err *err);
/* Notes the server in the results, for the other experiments; it outlives the lab from now on. */
vt_status lab_server_leave(lab *l, lab_server *s, vt_err *err);
/* Ends the server that was left; VT_ERR_USAGE: there is none. */
vt_status lab_server_end_left(lab *l, vt_err *err);

/* Writes a file of the results, and notes it. */
vt_status lab_write_json(lab *l, const char *name, const json_t *object, const char *what,
                         vt_err *err);
vt_status lab_write_text(lab *l, const char *name, const vt_buf *text, const char *what,
                         vt_err *err);
/* Bytes of memory that the process has; NAN: not known. */
double lab_resident_bytes(int pid);
/* A spread as JSON: {"n", "mean_ms", "p50_ms", "p90_ms", "p99_ms", "max_ms"} */
json_t *lab_spread_json(const vt_load_spread *s);
/* Returns what was sent and what came, as JSON: the form of baseline_benchmark.json. */
json_t *lab_summary_json(const lab_load *load, const vt_load_summary *s);
/* Appends the same as lines of text, for a .log file. */
void lab_summary_text(vt_buf *b, const char *what, const lab_load *load, const vt_load_summary *s);
/* Writes both as STEM.json and STEM.log. */
vt_status lab_write_load(lab *l, const char *stem, const char *what, const lab_load *load,
                         const vt_load_summary *s, vt_err *err);

#endif
