/* At which lines of the kernels' sources warps were, and what they waited for (page.h): below each
 * kernel in KERNELS, below an op that is shown alone, and the sums in LINES, which also has the
 * kernels that no op of KERNELS launches. */
#include <math.h>
#include <string.h>

#include "story/page/page.h"
#include "base/term/figure.h"

enum { TOLD_WAITS = 3, TEXT = 60 };

/* "; 70 % memory, 12 % barrier", behind `lead` */
static void put_waits(page *p, vt_buf *b, const char *lead, const json_t *of)
{
    size_t i;
    json_t *wait;
    json_array_foreach(story_get(of, "waits"), i, wait)
    {
        if (i < TOLD_WAITS)
            vt_buf_printf(b, "%s%.0f %% %s", i ? ", " : lead, 100 * story_num(wait, "share"),
                          page_str(p, wait, "label"));
    }
}

/* "linear.gate+up, linear.qkv" */
static const char *ops_of(page *p, const json_t *kernel)
{
    vt_buf b = {0};
    size_t i;
    json_t *op;
    char kind[STORY_TEXT];
    json_array_foreach(story_get(kernel, "ops"), i, op)
    {
        if (i < STORY_ROWS && json_is_string(op))
            vt_buf_printf(&b, "%s%s", i ? ", " : "", story_clean(op, kind));
    }
    return b.len ? page_take(p, &b) : "no op of a timed step";
}

static void line_rows(page *p, const json_t *kernel)
{
    size_t i;
    json_t *l;
    json_array_foreach(story_get(kernel, "lines"), i, l)
    {
        vt_buf line = {0};
        if (i >= STORY_ROWS)
            break;
        vt_buf_printf(&line, "%.1f %% ", 100 * story_num(l, "share"));
        if (story_num(l, "line") > 0)
            vt_buf_printf(&line, "%s:%.0f  %.*s", page_str(p, l, "file"), story_num(l, "line"),
                          TEXT, page_str(p, l, "text"));
        else
            vt_buf_puts(&line, "at no line");
        put_waits(p, &line, "; ", l);
        page_pair(p, PAGE_ITEM, "", &line);
    }
}

/* " of rank 1", where ranks were sampled apart. */
static const char *whose(page *p, const json_t *kernel)
{
    const char *rank = page_str(p, kernel, "rank");
    return rank[0] ? page_say(p, " of %.20s", rank) : "";
}

/* The share of all samples, or of this kernel's alone. */
static void kernel_rows(page *p, const json_t *kernel, const char *name)
{
    vt_buf line = {0};
    vt_buf_printf(&line, "%s, %.1f %% of all samples%s", page_kernel_base(p, kernel, "name"),
                  100 * story_num(kernel, "share"), whose(p, kernel));
    put_waits(p, &line, "; ", kernel);
    page_pair(p, PAGE_ITEM, name, &line);
    line_rows(p, kernel);
}

static bool has_op(const json_t *kernel, const char *op)
{
    size_t i;
    json_t *kind;
    char text[STORY_TEXT];
    json_array_foreach(story_get(kernel, "ops"), i, kind)
    {
        if (i < STORY_ROWS && json_is_string(kind) && strcmp(story_clean(kind, text), op) == 0)
            return true;
    }
    return false;
}

static const json_t *sampled_kernels(const page *p)
{
    return story_get(story_get(p->story, "lines"), "kernels");
}

void page_lines_of_kernel(page *p, const char *kernel)
{
    size_t i;
    json_t *k;
    json_array_foreach(sampled_kernels(p), i, k)
    {
        vt_buf line = {0};
        if (i >= STORY_ROWS || strcmp(page_str(p, k, "name"), kernel) != 0)
            continue;
        vt_buf_printf(&line, "%.1f %% of all samples%s", 100 * story_num(k, "share"), whose(p, k));
        put_waits(p, &line, "; warps: ", k);
        page_pair(p, PAGE_ITEM, "", &line);
        line_rows(p, k);
    }
}

void page_lines_of_op(page *p, const char *op)
{
    size_t i;
    json_t *k;
    json_array_foreach(sampled_kernels(p), i, k)
    {
        if (i < STORY_ROWS && has_op(k, op))
            kernel_rows(p, k, "lines");
    }
}

/* A kernel whose lines stand in KERNELS. */
static void told_row(page *p, const json_t *kernel)
{
    vt_buf line = {0};
    vt_buf_printf(&line, "%s, %.1f %% of all samples%s", page_kernel_base(p, kernel, "name"),
                  100 * story_num(kernel, "share"), whose(p, kernel));
    put_waits(p, &line, "; ", kernel);
    page_pair(p, PAGE_ITEM, ops_of(p, kernel), &line);
}

void page_lines(page *p)
{
    const json_t *lines = story_get(p->story, "lines"), *kernels = story_get(lines, "kernels");
    size_t i;
    json_t *k;
    vt_buf b = {0};
    double own = story_num(lines, "own"), other = story_num(lines, "of_libraries");
    if (json_array_size(kernels) == 0)
        return;
    page_open(
        p, "lines", "LINES at which the warps of decode steps were",
        page_say(p, "[measured by tier T4 in %.0f steps of their own]", story_num(lines, "steps")));
    json_array_foreach(kernels, i, k)
    {
        if (i < STORY_ROWS && json_array_size(story_get(k, "ops")) == 0)
            kernel_rows(p, k, ops_of(p, k));
        else if (i < STORY_ROWS)
            told_row(p, k);
    }
    vt_buf_printf(&b, "%.0f samples, %.1f %% of them at a line, %.1f %% in a library's kernels",
                  own + other, 100 * story_num(lines, "at_a_line") / (own + other),
                  100 * other / (own + other));
    if (story_num(lines, "lost") > 0)
        vt_buf_printf(&b, "; the hardware lost %.0f", story_num(lines, "lost"));
    page_text(p, PAGE_TEXT, &b);
}
