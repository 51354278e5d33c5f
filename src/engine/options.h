/* Options: one table that feeds the command line, --help, the environment twins, shell completion,
 * the man page's check and the C API's vt_options_*.
 *
 * A row is an option's name, type, range, default and sentence. Everything that takes an option
 * looks the row up here, so a name, a range or a default is written down once. Values are kept as
 * the text that was given; they were checked when they were set, so the typed getters below cannot
 * fail. */
#ifndef VT_ENGINE_OPTIONS_H
#define VT_ENGINE_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/tensor.h"
#include "vitrine.h"

typedef enum vt_option_type {
    VT_OPTION_FLAG,   /* true or false; on the command line its name alone */
    VT_OPTION_INT,    /* a whole number in [min, max] */
    VT_OPTION_SIZE,   /* bytes: 512, 64K, 512M, 4G: powers of 1024 */
    VT_OPTION_FLOAT,  /* a finite number in [min, max] */
    VT_OPTION_CHOICE, /* one of `choices` */
    VT_OPTION_TEXT,
    VT_OPTION_IDS /* token ids: 1,2,3 */
} vt_option_type;

/* Which verbs take an option. The engine's own options (VT_FOR_ENGINE) have VITRINE_... twins and
 * are the keys of vt_options_set; the others are a verb's. */
enum {
    VT_FOR_ENGINE = 1 << 0,
    VT_FOR_RUN = 1 << 1,
    VT_FOR_CHAT = 1 << 2,
    VT_FOR_SCORE = 1 << 3,
    VT_FOR_TOKENIZE = 1 << 4,
    VT_FOR_TEMPLATE = 1 << 5,
    VT_FOR_EXPLAIN = 1 << 6,
    VT_FOR_ENV = 1 << 7,
    VT_FOR_LATENCY = 1 << 8, /* bench latency, kernels, startup */
    VT_FOR_KERNELS = 1 << 9,
    VT_FOR_STARTUP = 1 << 10,
    VT_FOR_STORY = 1 << 11,
    VT_FOR_COMPLETION = 1 << 12,
    VT_FOR_SERVE = 1 << 13,
    VT_FOR_OFFLINE = 1 << 14,
    VT_FOR_SIMULATE = 1 << 15,
    VT_FOR_PULL = 1 << 16,
    VT_FOR_LIST = 1 << 20,
    VT_FOR_SHOW = 1 << 21,
    VT_FOR_RM = 1 << 22
};

enum {
    VT_OPTION_AUTO = 1,    /* "auto" is a value too: whoever reads it decides */
    VT_OPTION_REPEAT = 2,  /* may be given several times; all values are kept */
    VT_OPTION_OPTIONAL = 4 /* the value may be left out, and then has to come as --key=VALUE */
};

typedef struct vt_option {
    const char *key; /* "max-tokens": --max-tokens, VITRINE_MAX_TOKENS */
    char letter;     /* 'n', or 0 */
    uint8_t type;    /* vt_option_type */
    uint8_t flags;
    uint32_t verbs;         /* VT_FOR_... */
    double min, max;        /* of INT and FLOAT */
    const char *value_name; /* "N"; NULL for flags */
    const char *choices;    /* "fcfs|lpm|priority" */
    const char *later;      /* known values that are not there yet; "*": all but the default */
    const char *fallback;   /* the default as text; NULL: none */
    const char *help;       /* for --help: one line, no full stop */
    const char *id;         /* code's name, where two verbs mean two things by a key; NULL: key */
} vt_option;

const vt_option *vt_option_table(int32_t *n);
/* The row of a key for any of these verbs; NULL if there is none. */
const vt_option *vt_option_find(const char *key, uint32_t verbs);
const vt_option *vt_option_find_letter(char letter, uint32_t verbs);
/* The key that looks most like `key` among those of `verbs`; NULL if none comes near. */
const char *vt_option_nearest(const char *key, uint32_t verbs);
/* "max-tokens" -> "VITRINE_MAX_TOKENS" */
void vt_option_env_name(const vt_option *opt, char *out, size_t size);

/* Checks a value against its row and keeps it. `origin` is how the person named it ("--threads",
 * "VITRINE_THREADS"); the message begins with it. vt_options_set is this for the engine's keys. */
vt_status vt_options_assign(vt_options *o, const vt_option *opt, const char *value,
                            const char *origin, vt_err *err);

/* Typed reading of a key that is in the table (anything else is a bug of ours). "auto" or no value
 * reads as 0, false or NULL. */
int64_t vt_options_int(const vt_options *o, const char *key); /* INT and SIZE */
double vt_options_float(const vt_options *o, const char *key);
bool vt_options_flag(const vt_options *o, const char *key);
/* The GPU of option device: 0 for "cuda", 3 for "cuda:3", -1 for "cpu". This one place decides what
 * "auto" is: GPU 0 if vt_cuda_usable, else the CPU; found out at the first question and the same
 * ever after. */
int32_t vt_options_cuda(const vt_options *o);
/* "cpu", "cuda:0": what vt_options_cuda says, for people; 16 bytes are enough. */
void vt_options_device(const vt_options *o, char *out, size_t size);
/* Something failed with `status` that ran on the option's device. Where "auto" chose a GPU that
 * cannot do it, the message ends with the way out: there is no falling back after the choice.
 * Returns `status`. */
vt_status vt_options_device_failed(const vt_options *o, vt_status status, vt_err *err);
/* The KV cache's element type for a model with matrices of type `weights`. */
vt_dtype vt_options_kv_dtype(const vt_options *o, vt_dtype weights);
/* False while the value is the table's default. */
bool vt_options_given(const vt_options *o, const char *key);
/* All values of a repeatable option, in the order given; they belong to `o`. */
const char *const *vt_options_list(const vt_options *o, const char *key, int32_t *n);

/* "1, 2,3" -> ids. malloc'ed; at most 16 Mi of them. */
vt_status vt_parse_ids(const char *text, const char *origin, int32_t **ids, int32_t *n,
                       vt_err *err);

#endif
