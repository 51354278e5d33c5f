/* The command line: what the verbs share. One file a verb; main.c dispatches.
 *
 * stdout carries the answer and nothing else; everything for the person at the terminal goes to
 * stderr. Exit status: 0 done, 1 failed, 2 wrong usage, 130 interrupted. */
#ifndef VT_CLI_CLI_H
#define VT_CLI_CLI_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/term.h"
#include "engine/options.h"
#include "vitrine.h"

enum { CLI_DONE = 0, CLI_FAILED = 1, CLI_USAGE = 2, CLI_INTERRUPTED = 130 };

typedef struct cli cli;

typedef struct cli_verb {
    const char *name;     /* "run", "bench latency" */
    const char *args;     /* "[PROMPT]" */
    const char *what;     /* one line for the list of verbs */
    const char *about;    /* paragraphs for its own --help */
    const char *examples; /* lines, or NULL */
    uint32_t options;     /* VT_FOR_... bits of the options it takes */
    int32_t max_args;
    int (*run)(cli *c);
} cli_verb;

/* Ends with a row whose name is NULL. */
extern const cli_verb cli_verbs[];

struct cli {
    const cli_verb *verb;
    vt_options *options;
    const char **arg; /* [n_args] positional arguments, borrowed from argv */
    int32_t n_args;
    vt_term out, log; /* of stdout and stderr */
    bool json, quiet;
};

int cli_run(cli *c);
int cli_chat(cli *c);
int cli_score(cli *c);
int cli_tokenize(cli *c);
int cli_template(cli *c);
int cli_explain(cli *c);
int cli_env(cli *c);
int cli_bench_latency(cli *c);
int cli_bench_kernels(cli *c);
int cli_bench_startup(cli *c);
int cli_bench_offline(cli *c);
int cli_bench_simulate(cli *c);
/* run --batch, in batch.c. */
int cli_run_batch(cli *c);
int cli_story_show(cli *c);
int cli_pull(cli *c);
int cli_completion(cli *c);

/* ---- args.c ---- */

/* Reads argv[0..n) into c->options and c->arg. *help is set when --help is among them. */
vt_status cli_parse(cli *c, int n, char **argv, bool *help, vt_err *err);

/* ---- help.c ---- */

void cli_help_program(vt_buf *b, const vt_term *term);
void cli_help_verb(vt_buf *b, const vt_term *term, const cli_verb *verb);

/* ---- session.c: a model, an engine, a request ---- */

/* Prints "vitrine: <message>" and returns the exit status that goes with it. */
int cli_fail(const vt_err *err);
/* A line on stderr, unless --quiet. */
void cli_note(const cli *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Prints an object on one line and drops it; CLI_FAILED if it could not be built or written. */
int cli_print_json(json_t *object);
/* A number with `digits` after the point at most; null where it is not finite. */
json_t *cli_json_number(double v, int digits);
/* A string of any bytes: what is not UTF-8 becomes U+FFFD. */
json_t *cli_json_text(const char *text, size_t len);

/* ---- gpu.c ---- */

/* What GPU `ordinal` is and how it is now; null where there is none. */
json_t *cli_gpu_json(int32_t ordinal);
/* Its clocks, power and temperature in one line, or why they are not available. */
void cli_gpu_state(vt_buf *b, int32_t ordinal);

/* ---- session.c again: Ctrl-C ---- */

/* After the first call Ctrl-C sets a flag; a second Ctrl-C ends the program at once. */
void cli_catch_interrupt(void);
bool cli_interrupted(void);
void cli_clear_interrupt(void);
/* cli_interrupted for calls that ask a function with a context. */
bool cli_stop_asked(void *unused);

/* A whole file, or stdin for "-"; at most 256 MiB. */
vt_status cli_read_file(const char *path, vt_buf *out, vt_err *err);

typedef struct cli_session {
    vt_model *model;
    vt_engine *engine;
    double load_ms;
} cli_session;

vt_status cli_open(const cli *c, cli_session *s, vt_err *err);
void cli_close(cli_session *s);

/* What came of a request. Times of tokens are when the device had made them. */
typedef struct cli_reply {
    vt_buf text;
    int32_t *token;    /* [n_tokens] */
    int64_t *token_ns; /* [n_tokens] */
    int32_t n_tokens, cap;
    vt_finish finish;
    int32_t prompt_tokens, completion_tokens, cached_tokens;
    vt_request_id id;
    int64_t begin_ns, first_ns, last_ns;
    vt_err error; /* with VT_FINISH_ERROR */
    FILE *stream; /* text goes there as it comes; NULL: it is only kept */
    bool out_of_memory;
} cli_reply;

/* Fills the sampling fields from the options (run, chat). */
void cli_sampling(const cli *c, vt_request_params *p);
/* Runs one request to its end on this thread; Ctrl-C aborts it (VT_FINISH_ABORT). p's callback and
 * user are set here. Release the reply in any case. */
vt_status cli_generate(cli_session *s, vt_request_params *p, cli_reply *r, vt_err *err);
void cli_reply_release(cli_reply *r);

/* "stop", "length", "abort" ... as the JSON forms spell it. */
const char *cli_finish_name(vt_finish f);

#endif
