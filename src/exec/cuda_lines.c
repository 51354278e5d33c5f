/* Where the warps of some decode steps were in their programs, and what they waited for, by samples
 * of the program counter (device/cupti/pc.h), where options.lines asks for it. An observer that
 * samples once:
 *
 *   decode steps   the second that is not stamped begins; after STEPS of them, or when a prompt
 *                  step comes, or a story is asked for, it ends
 *
 * The steps run from their graphs as always. CUPTI takes 0.3 s on an H100 until the first of them
 * runs, so a story leaves all of them out of its times. Lines are looked up when a story asks.
 *
 * A sample has the function's name and its cubin's sum, by which the kernel instance is known;
 * where CUPTI does not tell the sum, the first instance of that name stands for all. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "device/cupti/pc.h"
#include "exec/cuda_inside.h"

enum { STEPS = 32, MOST_PLACES = 1 << 14, MOST_ROWS = 4096 };

/* An instruction of kernel instance `kernel`. */
typedef struct line_place {
    int32_t kernel;
    vt_pc_place is;
} line_place;

typedef struct cuda_lines {
    vt_observer base;
    cuda_executor *x;
    vt_pc *pc; /* NULL: nothing can be sampled */
    char why_not[320];
    bool sampling, done;
    int32_t n_decodes;
    uint64_t *sum; /* [n_sums] of the JIT's cubins; 0: not known */
    int32_t n_sums;
    line_place *place; /* [n_places] of MOST_PLACES, whose lines were not looked up yet */
    int32_t n_places;
    vt_line_row *row; /* [facts.n] of MOST_ROWS */
    vt_lines_facts facts;
} cuda_lines;

static vt_status wait(const cuda_lines *l, vt_err *err)
{
    return vt_cuda_check(l->x->cuda, l->x->cuda->driver.stream_sync(l->x->lane.stream),
                         "waiting for steps that are sampled", err);
}

/* Ends sampling for good. */
static void give_up(cuda_lines *l, const vt_err *why)
{
    snprintf(l->why_not, sizeof l->why_not, "%.319s", why->message);
    vt_pc_close(l->pc);
    l->pc = NULL;
    l->sampling = false;
    l->done = true;
}

/* ---- which kernel ---- */

static void sum_cubins(cuda_lines *l)
{
    const vt_jit *jit = l->x->cuda->jit;
    free(l->sum);
    l->n_sums = vt_jit_count(jit);
    l->sum = vt_calloc((size_t)l->n_sums + 1, sizeof *l->sum);
    for (int32_t i = 0; l->sum && i < l->n_sums; i++) {
        const jit_cubin *cubin = vt_jit_get(jit, i);
        if (cubin && cubin->bytes)
            l->sum[i] = vt_cupti_cubin_sum(vt_pc_library(l->pc), cubin->bytes, cubin->size);
    }
}

/* The JIT's kernel that has the function; -1: it is none of ours. */
static int32_t kernel_of(const cuda_lines *l, const vt_pc_place *place)
{
    int32_t named = -1;
    for (int32_t i = 0; l->sum && i < l->n_sums; i++) {
        if (strcmp(vt_jit_kernel(l->x->cuda->jit, i), place->function) != 0)
            continue;
        if (place->cubin_sum && l->sum[i] == place->cubin_sum)
            return i;
        named = named < 0 ? i : named;
    }
    return named;
}

static void note(void *user, const vt_pc_place *place)
{
    cuda_lines *l = user;
    int32_t kernel = kernel_of(l, place);
    if (kernel < 0) {
        l->facts.other += place->samples;
        return;
    }
    l->facts.own += place->samples;
    if (l->n_places < MOST_PLACES)
        l->place[l->n_places++] = (line_place){kernel, *place};
}

/* ---- steps ---- */

static void stop(cuda_lines *l)
{
    vt_pc_totals totals = {0};
    vt_err why = {0};
    if (!l->sampling)
        return;
    vt_status status = wait(l, &why);
    if (status == VT_OK) {
        sum_cubins(l);
        status = vt_pc_end(l->pc, note, l, &totals, &why);
    }
    l->sampling = false;
    l->done = true;
    l->facts.lost = totals.dropped;
    l->facts.whole = totals.whole && l->n_places < MOST_PLACES;
    if (status != VT_OK)
        give_up(l, &why);
}

static bool lines_begin(vt_observer *o, const vt_step *step)
{
    cuda_lines *l = (cuda_lines *)o;
    const vt_batch *b = &step->batch;
    vt_err why = {0};
    bool stamped = l->x->lane.note || l->x->lane.stamps,
         decode = b->n_tokens > 0 && b->n_tokens == b->n_decode;
    if (l->sampling && (!decode || l->facts.steps == STEPS))
        stop(l);
    if (l->sampling)
        l->facts.steps++;
    if (l->done || l->sampling || stamped || !decode || step->held || l->n_decodes++ == 0)
        return false;
    if (wait(l, NULL) != VT_OK) /* the launch meets that error again */
        return false;
    if (vt_pc_begin(l->pc, &why) != VT_OK) {
        give_up(l, &why);
        return false;
    }
    l->sampling = true;
    l->facts.steps = 1;
    return false;
}

static vt_status lines_mark(vt_observer *o, vt_mark_kind kind, int64_t value, vt_err *err)
{
    (void)o, (void)kind, (void)value, (void)err;
    return VT_OK;
}

static vt_status lines_end(vt_observer *o, vt_step_result *view, vt_err *err)
{
    (void)o, (void)view, (void)err;
    return VT_OK;
}

static void lines_release(vt_observer *o, bool live)
{
    cuda_lines *l = (cuda_lines *)o;
    (void)live;
    vt_pc_close(l->pc);
    l->pc = NULL;
    l->sampling = false;
    l->done = true;
    l->n_places = 0; /* their cubins go */
}

static void lines_free(vt_observer *o)
{
    cuda_lines *l = (cuda_lines *)o;
    l->x->lines = NULL;
    free(l->sum);
    free(l->place);
    free(l->row);
    free(l);
}

/* Samples of a context that is lost are not taken again. */
static vt_status lines_renew(vt_observer *o, vt_err *err)
{
    (void)o, (void)err;
    return VT_OK;
}

bool cuda_lines_sampling(const cuda_executor *x) { return x->lines && x->lines->sampling; }

/* ---- what a story asks for ---- */

static vt_line_row *row_of(cuda_lines *l, int32_t kernel, const char *file, int32_t line)
{
    for (int32_t i = 0; i < l->facts.n; i++)
        if (l->row[i].kernel == kernel && l->row[i].line == line &&
            strcmp(l->row[i].file, file) == 0)
            return &l->row[i];
    if (l->facts.n == MOST_ROWS)
        return NULL;
    vt_line_row *row = &l->row[l->facts.n++];
    *row = (vt_line_row){.kernel = kernel, .line = line};
    snprintf(row->file, sizeof row->file, "%s", file);
    return row;
}

static void look_up(cuda_lines *l)
{
    for (int32_t i = 0; i < l->n_places; i++) {
        char file[sizeof l->row->file] = "";
        const line_place *p = &l->place[i];
        const jit_cubin *cubin = vt_jit_get(l->x->cuda->jit, p->kernel);
        int32_t line = vt_cupti_line(vt_pc_library(l->pc), cubin->bytes, cubin->size,
                                     vt_jit_kernel(l->x->cuda->jit, p->kernel), p->is.pc, file,
                                     sizeof file);
        vt_line_row *row = row_of(l, p->kernel, file, line);
        l->facts.placed += line > 0 ? p->is.samples : 0;
        if (!row)
            continue;
        row->samples += p->is.samples;
        for (int k = 0; k < VT_STALLS; k++)
            row->stalled[k] += p->is.stalled[k];
    }
    l->n_places = 0;
}

void cuda_lines_tell(const cuda_executor *x, vt_source *out)
{
    cuda_lines *l = x->lines;
    if (!l)
        return;
    if (l->sampling && vt_cuda_enter(x->cuda, NULL) == VT_OK)
        stop(l);
    if (l->pc)
        look_up(l);
    out->lines = &l->facts;
    out->no_lines = l->why_not[0]     ? l->why_not
                    : !l->facts.steps ? "no decode step was left to sample"
                    : !l->facts.own   ? "no sample was taken in this program's kernels"
                                      : NULL;
}

vt_status cuda_lines_new(cuda_executor *x, vt_err *err)
{
    vt_err why = {0};
    if (!x->options.lines)
        return VT_OK;
    cuda_lines *l = vt_calloc(1, sizeof *l);
    if (!l)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for samples of the program counter");
    l->base = (vt_observer){.begin = lines_begin,
                            .mark = lines_mark,
                            .end = lines_end,
                            .release = lines_release,
                            .renew = lines_renew,
                            .free = lines_free};
    l->x = x;
    x->lines = l;
    x->observers.one[x->observers.n++] = &l->base;
    l->place = vt_calloc(MOST_PLACES, sizeof *l->place);
    l->row = vt_calloc(MOST_ROWS, sizeof *l->row);
    l->facts.row = l->row;
    if (!l->place || !l->row)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for samples of the program counter");
    if (vt_pc_open(x->cuda, &l->pc, &why) != VT_OK) /* models run all the same */
        give_up(l, &why);
    return VT_OK;
}
