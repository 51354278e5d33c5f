/* PC sampling of the emulated libcupti. It does not see which kernels run: all samples are planted,
 * by words of EMULATED_CUPTI beside those of cupti.c:
 *
 *   pc=FUNCTION:FILE:LINE:REASON:SAMPLES   at an instruction of this line; any number of words
 *   pclost=N                               so many the hardware lost
 *   pcmore                                 there was no room for some records
 *
 * Each word is an instruction. As of a real GPU it has two counts for each reason: of all samples,
 * and a smaller one of those in which the scheduler issued nothing. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cupti.h"

#define DECLARE(member, symbol, params) API int emu_##member params __asm__(symbol);
CUPTI_PC_FUNCTIONS(DECLARE)
#undef DECLARE

static const char *const reason[] = {"long_scoreboard",
                                     "short_scoreboard",
                                     "barrier",
                                     "math_pipe_throttle",
                                     "wait",
                                     "mio_throttle",
                                     "not_selected",
                                     "no_instructions",
                                     "selected",
                                     "branch_resolving",
                                     "membar",
                                     "drain",
                                     "dispatch_stall",
                                     "lg_throttle",
                                     "imc_miss",
                                     "sleeping",
                                     "misc",
                                     "tex_throttle",
                                     "gmma"};
enum { REASONS = sizeof reason / sizeof *reason, FIRST_INDEX = 7 };

typedef struct place {
    char function[64], file[64];
    uint32_t line, samples;
    int reason; /* -1: none of that name */
} place;

/* A context is sampled once at a time, beside others; each gets all planted samples. */
typedef struct sampled {
    struct cu_context_st *context; /* NULL: free */
    cupti_pc_data *data;
} sampled;

enum { MOST_SAMPLED = 8 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static sampled all[MOST_SAMPLED];

/* The entry of the context; NULL: it is not sampled. */
static sampled *entry_of(const struct cu_context_st *context)
{
    sampled *found = NULL;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MOST_SAMPLED && !found; i++)
        if (all[i].context == context)
            found = &all[i];
    pthread_mutex_unlock(&lock);
    return found;
}

/* Reads planted word `i`; 0: there are not so many. */
static int planted_place(size_t i, place *out)
{
    char name[64] = "";
    const char *p = getenv("EMULATED_CUPTI");
    memset(out, 0, sizeof *out);
    for (size_t k = 0; p; p = (p = strchr(p, ',')) ? p + 1 : NULL)
        if (strncmp(p, "pc=", 3) == 0 && k++ == i) {
            if (sscanf(p, "pc=%63[^:,]:%63[^:,]:%u:%63[^:,]:%u", out->function, out->file,
                       &out->line, name, &out->samples) != 5)
                return 0;
            out->reason = -1;
            for (int r = 0; r < REASONS; r++)
                if (strcmp(reason[r], name) == 0)
                    out->reason = r;
            return 1;
        }
    return 0;
}

static int bad(const cupti_pc_call *p) { return p->size != cupti_pc_call_BYTES || !p->context; }

int emu_pc_enable(cupti_pc_call *p)
{
    if (bad(p) || entry_of(p->context))
        return CUPTI_ERROR_BAD_PARAMETER;
    if (planted("forbidden"))
        return CUPTI_ERROR_PRIVILEGES;
    if (planted("watched"))
        return CUPTI_ERROR_SUBSCRIBERS;
    pthread_mutex_lock(&lock);
    sampled *s = all;
    while (s < all + MOST_SAMPLED - 1 && s->context)
        s++;
    *s = (sampled){.context = p->context};
    pthread_mutex_unlock(&lock);
    return CUPTI_OK;
}

int emu_pc_count(cupti_pc_count *p)
{
    if (p->size != cupti_pc_count_BYTES || !entry_of(p->context))
        return CUPTI_ERROR_BAD_PARAMETER;
    *p->n = 2 * REASONS;
    return CUPTI_OK;
}

int emu_pc_reasons(cupti_pc_reasons *p)
{
    if (p->size != cupti_pc_reasons_BYTES || !entry_of(p->context) || p->n != 2 * REASONS)
        return CUPTI_ERROR_BAD_PARAMETER;
    for (uint32_t i = 0; i < 2 * REASONS; i++) {
        p->index[i] = FIRST_INDEX + i;
        snprintf(p->name[i], CUPTI_PC_NAME_BYTES, "smsp__pcsamp_warps_issue_stalled_%s%s",
                 reason[i / 2], i % 2 ? "_not_issued" : "");
    }
    return CUPTI_OK;
}

int emu_pc_configure(cupti_pc_config *p)
{
    sampled *s = entry_of(p->context);
    if (p->size != cupti_pc_config_BYTES || !s)
        return CUPTI_ERROR_BAD_PARAMETER;
    for (size_t i = 0; i < p->n; i++) {
        cupti_pc_attribute *a = &p->attribute[i];
        a->status = CUPTI_OK;
        if (a->type == CUPTI_PC_DATA)
            s->data = a->value.data;
        else if ((a->type == CUPTI_PC_MODE && a->value.mode != CUPTI_PC_CONTINUOUS) ||
                 (a->type == CUPTI_PC_PERIOD && (a->value.period < 5 || a->value.period > 31)))
            return CUPTI_ERROR_BAD_PARAMETER;
    }
    return s->data && s->data->size == sizeof *s->data ? CUPTI_OK : CUPTI_ERROR_BAD_PARAMETER;
}

/* Writes the record of a planted place. Its instruction is named by its number. */
static void write_record(cupti_pc_data *data, size_t i, const place *from, cupti_pc_record *to)
{
    static _Thread_local char function[64][64];
    snprintf(function[i % 64], sizeof function[0], "%s", from->function);
    to->function = function[i % 64];
    to->pc = 16 * i;
    to->n = 0;
    data->samples += from->samples;
    if (from->reason < 0)
        return;
    to->reason[0] = (cupti_pc_reason){FIRST_INDEX + 2 * (uint32_t)from->reason, from->samples};
    to->reason[1] = (cupti_pc_reason){FIRST_INDEX + 2 * (uint32_t)from->reason + 1,
                                      from->samples / 2};
    to->n = 2;
}

int emu_pc_disable(cupti_pc_call *p)
{
    place at;
    sampled *s = bad(p) ? NULL : entry_of(p->context);
    cupti_pc_data *data = s ? s->data : NULL;
    if (!data)
        return CUPTI_ERROR_BAD_OPERATION;
    const char *lost = planted("pclost=");
    data->dropped = lost ? strtoull(lost, NULL, 10) : 0;
    data->left = planted("pcmore") ? 3 : 0;
    data->samples = data->dropped;
    for (data->n = 0; data->n < data->room && planted_place(data->n, &at); data->n++)
        write_record(data, data->n, &at, &data->record[data->n]);
    pthread_mutex_lock(&lock);
    *s = (sampled){0};
    pthread_mutex_unlock(&lock);
    return CUPTI_OK;
}

int emu_pc_sum(cupti_pc_sum *p)
{
    p->sum = 0; /* records have none either */
    return p->size == cupti_pc_sum_BYTES ? CUPTI_OK : CUPTI_ERROR_BAD_PARAMETER;
}

int emu_pc_line(cupti_pc_line *p)
{
    place at;
    if (p->size != cupti_pc_line_BYTES || !p->cubin || p->cubin_bytes == 0 || !p->function)
        return CUPTI_ERROR_BAD_PARAMETER;
    if (!planted_place(p->pc / 16, &at) || strcmp(at.function, p->function) != 0)
        return 999;
    p->line = at.line;
    p->file = strdup(at.file);
    p->folder = strdup("/nowhere");
    return CUPTI_OK;
}
