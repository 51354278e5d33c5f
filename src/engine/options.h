/* Options: one table that feeds the command line, --help, the environment variables VITRINE_...,
 * shell completion, the man page's check and the C API's vt_options_*.
 *
 * A row is an option's name, type, range, default and help. Whatever takes an option looks the row
 * up here, so a name, a range or a default is written down once. A value is kept as the text that
 * was given. It was checked when it was set, so the typed getters below cannot fail. */
#ifndef VT_ENGINE_OPTIONS_H
#define VT_ENGINE_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/tensor.h"
#include "base/term/progress.h"
#include "exec/backend.h"
#include "vitrine.h"

typedef enum vt_option_type {
    VT_OPTION_FLAG,   /* true or false; on the command line its name alone */
    VT_OPTION_INT,    /* a whole number in [min, max] */
    VT_OPTION_SIZE,   /* bytes: 512, 64K, 512M, 4.5G: powers of 1024 */
    VT_OPTION_FLOAT,  /* a finite number in [min, max] */
    VT_OPTION_CHOICE, /* one of `choices` */
    VT_OPTION_TEXT,
    VT_OPTION_IDS /* token ids: 1,2,3 */
} vt_option_type;

/* Which verbs take an option. The engine's own options (VT_FOR_ENGINE) can be set by environment
 * variables and are the keys of vt_options_set; the others belong to verbs alone. */
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
    VT_FOR_LAB = 1 << 17,
    VT_FOR_COMM = 1 << 18, /* bench comm */
    VT_FOR_EMBED = 1 << 19,
    VT_FOR_LIST = 1 << 20,
    VT_FOR_SHOW = 1 << 21,
    VT_FOR_RM = 1 << 22,
    VT_FOR_LAB_KERNEL = 1 << 23,
    VT_FOR_LOAD = 1 << 24, /* bench serve */
    VT_FOR_TOP = 1 << 25,
    VT_FOR_STORY_DIFF = 1 << 26,
    VT_FOR_STORY_EXPORT = 1 << 27,
    VT_FOR_STORY_WHATIF = 1 << 28,
    VT_FOR_STORY_DUMP = 1 << 29
};

enum {
    VT_OPTION_AUTO = 1,     /* "auto" is a value too: its reader chooses the number */
    VT_OPTION_REPEAT = 2,   /* may be given several times; all values are kept */
    VT_OPTION_OPTIONAL = 4, /* the value may be left out, so where given it comes as --key=VALUE */
    VT_OPTION_RANDOM = 8    /* "random" is a value too: a number is drawn and kept in its place */
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
    const char *later;      /* values that this version refuses as not there yet; "*": all but the
                               default */
    const char *fallback;   /* the default as text; NULL: none */
    const char *help;       /* for --help: one line, no full stop */
    const char *id;         /* the name that code uses for it, if two verbs mean two things by the
                               same key; NULL: the key */
} vt_option;

const vt_option *vt_option_table(int32_t *n);
/* The row of a key that at least one of these verbs takes; NULL if there is none. */
const vt_option *vt_option_find(const char *key, uint32_t verbs);
const vt_option *vt_option_find_letter(char letter, uint32_t verbs);
/* The key among those of `verbs` that is spelt most like `key`; NULL if none is close. */
const char *vt_option_nearest(const char *key, uint32_t verbs);
/* "max-tokens" -> "VITRINE_MAX_TOKENS" */
void vt_option_env_name(const vt_option *opt, char *out, size_t size);

/* Checks a value against its row and keeps it. `origin` is the name that the person used
 * ("--threads", "VITRINE_THREADS"); an error message begins with it. */
vt_status vt_options_assign(vt_options *o, const vt_option *opt, const char *value,
                            const char *origin, vt_err *err);

/* The value of a key that is in the table (any other key is a bug in the program). "auto", or no
 * value, gives 0 or false. */
int64_t vt_options_int(const vt_options *o, const char *key); /* INT and SIZE */
double vt_options_float(const vt_options *o, const char *key);
bool vt_options_flag(const vt_options *o, const char *key);
/* vt_options_get knows the keys of these verbs too from now on; at first it knows the engine's, as
 * vt_options_set does. */
void vt_options_open_to(vt_options *o, uint32_t verbs);

/* Options device and kv-dtype, put to those who decide: device/choose.h, kv/cache.h. */
int32_t vt_options_cuda(const vt_options *o); /* vt_device_choose: the GPU's ordinal; -1: the CPU */
/* The GPUs of n ranks: those that option device names, or n in a row from the only one it names. */
vt_status vt_options_gpus(const vt_options *o, int32_t n, int32_t *gpu, vt_err *err);
void vt_options_device(const vt_options *o, char *out, size_t size); /* vt_device_name */
/* Something failed with `status` on the option's device: vt_device_auto_failed if "auto" chose
 * it. */
vt_status vt_options_device_failed(const vt_options *o, vt_status status, vt_err *err);
/* Options attention-backend and linear-backend, for this device. */
vt_status vt_options_backends(const vt_options *o, vt_device_kind device,
                              vt_backend out[VT_MAX_BACKENDS], int32_t *n, vt_err *err);
vt_dtype vt_options_kv_dtype(const vt_options *o, vt_dtype weights); /* vt_kv_choose_dtype */

/* Returns what vt_options_set_progress set; belongs to `o`. */
const vt_progress_hook *vt_options_progress(const vt_options *o);
/* Returns what vt_options_set_notice set; belongs to `o`. */
const vt_notice_hook *vt_options_notice(const vt_options *o);
/* False while the value is the table's default. */
bool vt_options_given(const vt_options *o, const char *key);
/* As vt_options_given, and not by an environment variable. */
bool vt_options_typed(const vt_options *o, const char *key);
/* All values of a repeatable option, in the order given; they belong to `o`. */
const char *const *vt_options_list(const vt_options *o, const char *key, int32_t *n);

/* Parses "1, 2,3" into *ids, which is malloc'ed; at most 16 Mi ids. */
vt_status vt_parse_ids(const char *text, const char *origin, int32_t **ids, int32_t *n,
                       vt_err *err);

#endif
