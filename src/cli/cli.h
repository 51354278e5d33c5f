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
#include "base/json_write.h"
#include "base/term/term.h"
#include "engine/options.h"
#include "vitrine.h"

enum { CLI_DONE = 0, CLI_FAILED = 1, CLI_USAGE = 2, CLI_INTERRUPTED = 130 };

typedef struct cli cli;

typedef int cli_verb_run(cli *c);

typedef struct cli_verb {
    const char *name;     /* "run", "bench latency" */
    const char *args;     /* "[PROMPT]" */
    const char *what;     /* one line for the list of verbs */
    const char *about;    /* paragraphs for its own --help */
    const char *examples; /* lines, or NULL */
    uint32_t options;     /* VT_FOR_... bits of the options it takes */
    int32_t max_args;
    cli_verb_run *run;
} cli_verb;

struct cli {
    const cli_verb *verbs; /* all of them; ends with one whose name is NULL */
    const cli_verb *verb;
    vt_options *options;
    const char **arg; /* [n_args] positional arguments, borrowed from argv */
    int32_t n_args;
    vt_term out, log; /* of stdout and stderr */
    bool json, quiet;
};

cli_verb_run cli_run, cli_chat, cli_score, cli_embed, cli_tokenize, cli_template, cli_explain,
    cli_env, cli_bench_latency, cli_bench_kernels, cli_bench_comm, cli_bench_startup,
    cli_bench_offline, cli_bench_serve, cli_bench_simulate, cli_story_show, cli_serve, cli_top,
    cli_lab, cli_story_diff, cli_story_export, cli_story_whatif, cli_story_dump, cli_pull, cli_list,
    cli_show, cli_rm, cli_lab_kernel, cli_completion;
/* run --batch, in batch.c. */
int cli_run_batch(cli *c);

/* ---- args.c ---- */

/* Reads argv[0..n) into c->options and c->arg. *help is set when --help is among them. */
vt_status cli_parse(cli *c, int n, char **argv, bool *help, vt_err *err);

/* ---- help.c ---- */

void cli_first_steps(vt_buf *b, const vt_term *term, bool any_model);
void cli_help_program(vt_buf *b, const vt_term *term, const cli_verb *verbs);
void cli_help_verb(vt_buf *b, const vt_term *term, const cli_verb *verb);

/* ---- output.c: what is said ---- */

/* "vitrine: <message>" on stderr. */
void cli_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Says the message and returns the exit status that goes with it. */
int cli_fail(const vt_err *err);
/* A line on stderr, unless --quiet. */
void cli_note(const cli *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Prints an object on one line and drops it; CLI_FAILED if it could not be built or written. */
int cli_print_json(json_t *object);
/* Ends what was begun with vt_json_object, prints and releases it; CLI_FAILED if it could not be
 * built or written. */
int cli_object_print(vt_json *w);
/* Prints and releases a text; CLI_FAILED if it could not be built or written. */
int cli_text_print(vt_buf *b);
/* A number with `digits` after the point at most; null where it is not finite. */
json_t *cli_json_number(double v, int digits);
/* A string of any bytes: what is not UTF-8 becomes U+FFFD. */
json_t *cli_json_text(const char *text, size_t len);
/* Text that the program did not write itself (a token, a file's content): exact into a pipe or a
 * file, harmless on a terminal (vt_text_show). It may come in pieces, with one `s` for all of them
 * and cli_put_end after the last; cli_put_all is both for a text that is whole. False where it
 * could not be written. */
bool cli_put(FILE *to, vt_shown *s, const char *text, size_t len);
bool cli_put_end(FILE *to, vt_shown *s);
bool cli_put_all(FILE *to, const char *text, size_t len);

/* ---- files.c ---- */

/* Returns what messages call a file that the person named: "standard input" for "-". */
const char *cli_file_name(const char *path);
/* A whole file, or stdin for "-"; at most 256 MiB. A terminal is read until Ctrl-D. */
vt_status cli_read_file(const char *path, vt_buf *out, vt_err *err);
/* The file has this text and a newline afterwards, or is as it was: the text goes to a file beside
 * it that takes its name. What is no ordinary file (a device, a pipe) is written in place. */
vt_status cli_write_file(const char *path, const char *text, size_t len, vt_err *err);
/* The same without a newline of its own. */
vt_status cli_write_bytes(const char *path, const char *text, size_t len, vt_err *err);
/* Checks that cli_write_file can work, so that an answer is not computed in vain. */
vt_status cli_check_writable(const char *path, vt_err *err);

/* ---- gpu.c ---- */

/* Opens an object with what GPU `ordinal` is and how it is now, for the caller to add to and to
 * close. Where there is no such GPU it writes null and returns false. */
bool cli_gpu_open(vt_json *w, const char *key, int32_t ordinal);
/* Its clocks, power and temperature in one line, or why they are not available. */
void cli_gpu_state(vt_buf *b, int32_t ordinal);

/* ---- session.c: Ctrl-C, a model, an engine, a request ---- */

/* After the first call Ctrl-C sets a flag; a second Ctrl-C ends the program at once. So does the
 * first one while a model is loaded. */
void cli_catch_interrupt(void);
/* While a prompt is read, Ctrl-C only sets the flag, however often it is pressed. */
void cli_set_at_prompt(bool on);
bool cli_interrupted(void);
void cli_clear_interrupt(void);
/* cli_interrupted for calls that ask a function with a context. */
bool cli_stop_asked(void *unused);

typedef struct cli_session {
    vt_model *model;
    vt_engine *engine;
    double load_ms;
} cli_session;

vt_status cli_open(const cli *c, cli_session *s, vt_err *err);
/* Calls `settle` between opening the model and making the engine: for options that depend on the
 * model. */
typedef vt_status (*cli_settle)(const cli *c, const vt_model *m, vt_err *err);
vt_status cli_open_as(const cli *c, cli_session *s, cli_settle settle, vt_err *err);
/* On a GPU, lets as many sequences run together as the one request of this verb has, unless option
 * max-running is given: the engine starts sooner and takes less memory. For a cli_settle. */
vt_status cli_fit_running(const cli *c, int32_t n, vt_err *err);
void cli_close(cli_session *s);
/* The request uses the adapter that option lora gives, if it gives one. An error where it gives
 * several. */
vt_status cli_use_adapter(const cli_session *s, vt_request_params *p, vt_err *err);
/* Steps the engine until a request's callback has set *finish. Ctrl-C ends the request, and is
 * VT_ERR_CANCELLED. */
vt_status cli_run_request(cli_session *s, vt_request_id id, const vt_finish *finish, vt_err *err);

/* The outcome of a request. Times of tokens are when the device had made them. */
typedef struct cli_reply {
    vt_buf text;
    int32_t *token;    /* [n_tokens] */
    int64_t *token_ns; /* [n_tokens] */
    int32_t n_tokens, cap;
    vt_buf logprobs; /* for each token 1 + n_top vt_token_logprob: its own, the likeliest */
    int32_t n_top;
    vt_finish finish;
    vt_end_reason end_reason;
    struct cli_reply *other; /* [n_other] the second and later answers to the same prompt */
    int32_t n_other, n_open; /* n_open: answers that have not ended */
    int32_t prompt_tokens, completion_tokens, cached_tokens; /* completion: of all answers */
    int32_t draft_tokens, draft_accepted;                    /* of all answers */
    vt_request_id id;
    int64_t begin_ns, first_ns, last_ns;
    vt_err error; /* with VT_FINISH_ERROR */
    FILE *stream; /* text goes there as it comes; NULL: it is only kept */
    vt_shown shown;
    /* what writing it took, told to the engine for its story; begin 0: it was not written */
    int64_t write_begin_ns, write_end_ns, write_ns;
    bool out_of_memory;
} cli_reply;

/* Runs one request to its end on this thread; Ctrl-C aborts it (VT_FINISH_ABORT). p's callback and
 * user are set here. Release the reply in any case. */
vt_status cli_generate(cli_session *s, vt_request_params *p, cli_reply *r, vt_err *err);
void cli_reply_release(cli_reply *r);
/* Tokens per second after the first token; NAN where fewer than three follow it. */
double cli_tokens_per_s(const cli_reply *r);

/* ---- env_jit.c ---- */

/* Prints the cache of compiled kernels, or that it is empty. Returns the exit status. */
int cli_put_kernels(const cli *c);

/* ---- dump.c ---- */

/* From now on SIGUSR2 asks for a dump: call it before the engine is made, and cli_dump_if_asked
 * between two of its steps. That writes the story of the last steps where --story-dir says and
 * tells its name on stderr. */
void cli_catch_dump(void);
void cli_dump_if_asked(const cli *c, vt_engine *e);

/* ---- sampling.c ---- */

/* Fills the sampling fields from the options (run, chat). They borrow from `c`, but for the logit
 * biases, which are p->logit_bias: free() them. With `m`, what the options leave open is as the
 * model's generation_config.json says; NULL: as the option table says. */
vt_status cli_sampling(const cli *c, const vt_model *m, vt_request_params *p, vt_err *err);
/* "temperature 0.6, top-p 0.9, seed 7": how tokens are chosen. */
void cli_describe_sampling(const vt_request_params *p, vt_buf *out);

#endif
