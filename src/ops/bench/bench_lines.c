/* Sampling a call of an op line by line (bench_lines.h).
 *
 *   record {function, pc, samples}
 *      └─ the call's kernel of that name ── its cubin ── file and line ── a row of `table`
 *
 * A call that launches two instances of one function, with other template parameters, has the
 * samples of both; their lines are those of the first. */
#include "ops/bench/bench_lines.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"

enum {
    MOST_LINES = 4096, /* that a call's kernels may have */
    BATCH = 32,        /* launches between two waits */
    LEAST_MS = 30,
    MOST_CALLS = 1 << 14
};

typedef struct sampling {
    const on_cuda *c;
    const vt_pc *pc;
    bench_lines *out;
    bench_line *table; /* [n] */
    int32_t n;
} sampling;

/* The cubin that has the function; NULL: it is none of the call's own kernels. */
static const jit_cubin *cubin_of(const on_cuda *c, const char *function)
{
    const vt_jit *jit = c->gpu->cuda->jit;
    for (int32_t i = 0; i < c->n_kernels; i++)
        if (strcmp(vt_jit_kernel(jit, c->kernel[i]), function) == 0)
            return vt_jit_get(jit, c->kernel[i]);
    return NULL;
}

static bench_line *row_of(sampling *s, const char *file, int32_t line)
{
    for (int32_t i = 0; i < s->n; i++)
        if (s->table[i].line == line && strcmp(s->table[i].file, file) == 0)
            return &s->table[i];
    if (s->n == MOST_LINES)
        return NULL;
    bench_line *row = &s->table[s->n++];
    *row = (bench_line){.line = line};
    snprintf(row->file, sizeof row->file, "%s", file);
    return row;
}

static void add(void *user, const vt_pc_place *place)
{
    sampling *s = user;
    char file[64];
    const jit_cubin *cubin = cubin_of(s->c, place->function);
    if (!cubin || !cubin->bytes) {
        s->out->other += place->samples;
        return;
    }
    s->out->samples += place->samples;
    int32_t line = vt_cupti_line(vt_pc_library(s->pc), cubin->bytes, cubin->size, place->function,
                                 place->pc, file, sizeof file);
    bench_line *row = line > 0 ? row_of(s, file, line) : NULL;
    if (!row)
        return;
    s->out->placed += place->samples;
    row->samples += place->samples;
    for (int i = 0; i < VT_STALLS; i++)
        row->stalled[i] += place->stalled[i];
}

static int by_samples(const void *a, const void *b)
{
    const bench_line *x = a, *y = b;
    if (x->samples != y->samples)
        return x->samples < y->samples ? 1 : -1;
    int order = strcmp(x->file, y->file);
    return order ? order : (x->line > y->line) - (x->line < y->line);
}

static vt_status run_batch(on_cuda *c, int32_t n, int32_t *n_calls, vt_err *err)
{
    const vt_cuda_lane *l = &c->gpu->lane;
    for (int32_t i = 0; i < n; i++, ++*n_calls)
        TRY(on_cuda_launch(c, err));
    return vt_cuda_check(l->cuda, l->cuda->driver.stream_sync(l->stream), "waiting for a call",
                         err);
}

/* The first call is alone: on an H100 it waits 0.3 s for the sampling to begin. */
static vt_status run_calls(on_cuda *c, int32_t *n, vt_err *err)
{
    TRY(run_batch(c, 1, n, err));
    int64_t begin = vt_now_ns();
    while (!c->gpu->emulated && *n < MOST_CALLS &&
           vt_now_ns() - begin < LEAST_MS * INT64_C(1000000))
        TRY(run_batch(c, BATCH, n, err));
    return VT_OK;
}

vt_status bench_sample_lines(on_cuda *c, vt_pc *p, bench_lines *out, vt_err *err)
{
    *out = (bench_lines){0};
    sampling s = {.c = c, .pc = p, .out = out};
    s.table = vt_calloc(MOST_LINES, sizeof *s.table);
    if (!s.table)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for the lines of a call");
    vt_status status = vt_pc_begin(p, err);
    if (status == VT_OK) {
        status = run_calls(c, &out->n_calls, err);
        vt_status ended = vt_pc_end(p, add, &s, &out->totals, status == VT_OK ? err : NULL);
        status = status != VT_OK ? status : ended;
    }
    qsort(s.table, (size_t)s.n, sizeof *s.table, by_samples);
    out->n = s.n < BENCH_LINES ? s.n : BENCH_LINES;
    memcpy(out->line, s.table, (size_t)out->n * sizeof *out->line);
    for (int32_t i = 0; i < out->n; i++)
        out->line[i].text = jit_find_line(out->line[i].file, out->line[i].line,
                                          &out->line[i].text_bytes);
    free(s.table);
    return status;
}
