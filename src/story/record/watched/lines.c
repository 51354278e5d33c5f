/* The lines at which warps were (lines.h). Samples know the kernel instance, not the call, so ops
 * that launch one instance share its lines; the story names them all. */
#include "story/record/watched/lines.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "device/cuda/jit.h"
#include "device/cupti/stalls.h"
#include "story/record/numbers.h"

enum { TOLD_KERNELS = 8, TOLD_LINES = 5, LINE_TEXT = 160 };
static const double least_wait = 0.005; /* of a line's samples */

/* All samples of a kernel instance. */
typedef struct kernel_lines {
    int32_t kernel;
    uint64_t samples, stalled[VT_STALLS];
} kernel_lines;

static int by_row(const void *a, const void *b)
{
    const vt_line_row *x = a, *y = b;
    if (x->kernel != y->kernel)
        return x->kernel < y->kernel ? -1 : 1;
    if (x->samples != y->samples)
        return x->samples < y->samples ? 1 : -1;
    return x->line < y->line ? -1 : x->line > y->line;
}

static int by_kernel(const void *a, const void *b)
{
    const kernel_lines *x = a, *y = b;
    if (x->samples != y->samples)
        return x->samples < y->samples ? 1 : -1;
    return x->kernel < y->kernel ? -1 : x->kernel > y->kernel;
}

/* Sums up the rows, which are sorted, by kernel; returns how many kernels. */
static int32_t sum_up(const vt_line_row *row, int32_t n, kernel_lines *out)
{
    int32_t n_out = 0;
    for (int32_t i = 0; i < n; i++) {
        if (i == 0 || row[i].kernel != row[i - 1].kernel)
            out[n_out++] = (kernel_lines){.kernel = row[i].kernel};
        kernel_lines *k = &out[n_out - 1];
        k->samples += row[i].samples;
        for (int s = 0; s < VT_STALLS; s++)
            k->stalled[s] += row[i].stalled[s];
    }
    return n_out;
}

/* The reasons of the samples, the largest share first. */
static void put_waits(vt_json *w, const uint64_t stalled[VT_STALLS], uint64_t samples)
{
    bool told[VT_STALLS] = {false};
    vt_json_open(w, "waits", '[');
    for (;;) {
        int most = -1;
        for (int i = 0; i < VT_STALLS; i++)
            if (!told[i] && (double)stalled[i] >= least_wait * (double)samples && stalled[i] > 0 &&
                (most < 0 || stalled[i] > stalled[most]))
                most = i;
        if (most < 0)
            break;
        told[most] = true;
        vt_json_open(w, NULL, '{');
        vt_json_string(w, "reason", vt_stalls[most].name);
        vt_json_string(w, "label", vt_stalls[most].label);
        vt_json_string(w, "meaning", vt_stalls[most].meaning);
        vt_json_tagged(w, "share", (double)stalled[most] / (double)samples, 4, measured);
        vt_json_close(w);
    }
    vt_json_close(w);
}

static void put_line(vt_json *w, const vt_line_row *l, uint64_t all)
{
    char text[LINE_TEXT];
    int32_t bytes = 0;
    const char *at = jit_find_line(l->file, l->line, &bytes);
    if (at)
        snprintf(text, sizeof text, "%.*s", bytes, at);
    vt_json_open(w, NULL, '{');
    vt_json_string(w, "file", l->line > 0 ? l->file : NULL);
    vt_json_int(w, "line", l->line);
    vt_json_string(w, "text", at ? text : NULL);
    vt_json_int(w, "samples", (int64_t)l->samples);
    vt_json_tagged(w, "share", (double)l->samples / (double)all, 4, measured);
    put_waits(w, l->stalled, l->samples);
    vt_json_close(w);
}

/* The kinds of ops whose calls launch the kernel. */
static void put_ops(vt_json *w, const phase *p, const char *kernel)
{
    vt_json_open(w, "ops", '[');
    for (int32_t i = 0; i < p->n_ops; i++)
        for (int32_t k = 0; k < p->op[i].n_kernels; k++)
            if (strcmp(kernel_facts(&p->op[i].kernel[k])->name, kernel) == 0)
                vt_json_string(w, NULL, p->op[i].kind);
    vt_json_close(w);
}

static void put_kernel(vt_json *w, const story_source *from, const kernel_lines *k,
                       const vt_line_row *row, int32_t n, const phase *p)
{
    int32_t told = 0;
    const char *name = k->kernel < from->is.n_kernels ? from->kernel[k->kernel].name : "";
    vt_json_open(w, NULL, '{');
    vt_json_string(w, "name", name);
    vt_json_string(w, "rank", p->n_lanes > 1 ? from->is.name : NULL);
    put_ops(w, p, name);
    vt_json_int(w, "samples", (int64_t)k->samples);
    vt_json_tagged(w, "share", (double)k->samples / (double)from->is.lines->own, 4, measured);
    put_waits(w, k->stalled, k->samples);
    vt_json_open(w, "lines", '[');
    for (int32_t i = 0; i < n && told < TOLD_LINES; i++)
        if (row[i].kernel == k->kernel) {
            put_line(w, &row[i], k->samples);
            told++;
        }
    vt_json_close(w);
    vt_json_close(w);
}

/* The next source from `from` on whose lines were to be sampled; NULL: there is no other. */
static const story_source *next_sampled(const story_input *in, const story_source *from)
{
    for (const story_source *s = from; s < in->source + in->n_sources; s++)
        if (s->is.kind == VT_SOURCE_STREAM && s->is.lines)
            return s;
    return NULL;
}

const char *story_no_lines(const story_input *in)
{
    const story_source *first = next_sampled(in, in->source);
    if (!story_find_source(in, VT_SOURCE_STREAM))
        return "the CPU ran the steps";
    for (const story_source *s = first; s; s = next_sampled(in, s + 1))
        if (!s->is.no_lines)
            return NULL;
    return first ? first->is.no_lines : "--story-lines samples them";
}

/* The kernels of a source, those with the most samples first. */
static vt_status put_kernels(vt_json *w, const story_source *from, story_record *r,
                             const phase *decode, vt_err *err)
{
    const vt_lines_facts *f = from->is.lines;
    vt_line_row *row = vt_arena_alloc(&r->arena, (size_t)f->n + 1, sizeof *row);
    kernel_lines *kernel = vt_arena_alloc(&r->arena, (size_t)f->n + 1, sizeof *kernel);
    if (!row || !kernel)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for a story");
    if (f->n > 0)
        memcpy(row, f->row, (size_t)f->n * sizeof *row);
    qsort(row, (size_t)f->n, sizeof *row, by_row);
    int32_t n = sum_up(row, f->n, kernel);
    qsort(kernel, (size_t)n, sizeof *kernel, by_kernel);
    for (int32_t i = 0; i < n && i < TOLD_KERNELS; i++)
        put_kernel(w, from, &kernel[i], row, f->n, decode);
    return VT_OK;
}

vt_status story_put_lines(vt_json *w, const story_input *in, story_record *r, const phase *decode,
                          vt_err *err)
{
    const story_source *first = next_sampled(in, in->source);
    vt_lines_facts sum = {.whole = true};
    if (!first) {
        vt_json_null(w, "lines");
        return VT_OK;
    }
    for (const story_source *s = first; s; s = next_sampled(in, s + 1)) {
        const vt_lines_facts *f = s->is.lines;
        sum.steps = f->steps > sum.steps ? f->steps : sum.steps;
        sum.own += f->own;
        sum.placed += f->placed;
        sum.other += f->other;
        sum.lost += f->lost;
        sum.whole = sum.whole && (f->whole || !f->steps);
    }
    vt_json_open(w, "lines", '{');
    vt_json_string(w, "tier", "T4");
    vt_json_string(w, "why", story_no_lines(in));
    vt_json_int(w, "steps", sum.steps);
    vt_json_int(w, "own", (int64_t)sum.own);
    vt_json_int(w, "at_a_line", (int64_t)sum.placed);
    vt_json_int(w, "of_libraries", (int64_t)sum.other);
    vt_json_int(w, "lost", (int64_t)sum.lost);
    vt_json_bool(w, "whole", sum.steps > 0 && sum.whole);
    vt_json_open(w, "kernels", '[');
    for (const story_source *s = first; s; s = next_sampled(in, s + 1))
        TRY(put_kernels(w, s, r, decode, err));
    vt_json_close(w);
    vt_json_close(w);
    return VT_OK;
}
