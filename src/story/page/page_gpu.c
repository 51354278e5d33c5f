/* A GPU's sections of a story: KERNELS, GPU, and RANKS where there are several (page.h). */
#include <math.h>
#include <string.h>

#include "story/page/page.h"
#include "base/term/figure.h"

/* Two forms. A grid that fills all places that SMs have for its CTAs:
 *
 *   "; 300 CTAs of 256 threads, clusters of 4, 48.0 KB shared; 2 an SM by registers (occupancy
 *   25 %), 1.14 waves, tail 43 %"
 *
 * A smaller one, for which waves and room for one more CTA say nothing:
 *
 *   "; 1 CTA of 128 threads on 132 multiprocessors, 0.8 % of which have work; 12 an SM by registers
 *   (occupancy 75 %)" */
static void put_launch(page *p, vt_buf *b, const json_t *l, double n_sms)
{
    const json_t *grid = story_get(l, "grid");
    double ctas = 1, waves = story_num(l, "waves");
    if (!json_is_object(l))
        return;
    for (size_t i = 0; i < 3; i++)
        ctas *= json_number_value(json_array_get(grid, i));
    vt_buf_printf(b, "; %.0f CTA%s of %.0f thread%s", ctas, story_s(ctas), story_num(l, "threads"),
                  story_s(story_num(l, "threads")));
    bool partial = waves < 1 && n_sms > 0;
    if (partial && ctas < n_sms)
        vt_buf_printf(b, " on %.0f multiprocessors, %.*f %% of which have work", n_sms,
                      ctas < 0.1 * n_sms ? 1 : 0, 100 * ctas / n_sms);
    else if (partial)
        vt_buf_printf(b, " on %.0f multiprocessors, all of which have work", n_sms);
    if (story_num(l, "cluster") > 1)
        vt_buf_printf(b, ", clusters of %.0f", story_num(l, "cluster"));
    if (story_num(l, "dynamic_shared_bytes") > 0) {
        vt_text_printf(b, ", %f B shared", story_num(l, "dynamic_shared_bytes"));
    }
    if (!(story_num(l, "ctas_per_sm") > 0))
        return;
    vt_buf_printf(b, "; %.0f an SM by %s (occupancy %.0f %%)", story_num(l, "ctas_per_sm"),
                  page_str(p, l, "limited_by"), 100 * story_num(l, "occupancy"));
    if (partial)
        return;
    if (waves > 0)
        vt_buf_printf(b, ", %.2f waves, tail %.0f %%", waves, 100 * story_num(l, "tail"));
    const char *more = page_str(p, l, "one_cta_more");
    if (*more)
        vt_buf_printf(b, "; %s", more);
}

/* True of a parameter that tells nothing here: a switch that is off, or one that all kernels of
 * this GPU have alike. */
static bool is_plain(const char *parameter, size_t n)
{
    return (n > 2 && strncmp(parameter + n - 2, "=0", 2) == 0) ||
           strncmp(parameter, "level=", 6) == 0 || strncmp(parameter, "pdl=", 4) == 0;
}

/* "rmsnorm<hidden=1024, vec=8>" of "rmsnorm<hidden=1024,vec=8,add=0,level=90,pdl=1>": the others,
 * and a blank to break at. The story has the whole name. */
static void put_instance(vt_buf *b, const char *name)
{
    size_t n = strcspn(name, "<");
    const char *at = name + n, *before = "<";
    vt_buf_add(b, name, n);
    if (*at != '<' || !strchr(at, '>')) {
        vt_buf_puts(b, at);
        return;
    }
    for (at++; *at && *at != '>'; at += n + (at[n] == ',')) {
        n = strcspn(at, ",>");
        if (is_plain(at, n))
            continue;
        vt_buf_puts(b, before);
        vt_buf_add(b, at, n);
        before = ", ";
    }
    vt_buf_puts(b, *before == ',' ? ">" : "");
}

/* `lines`: where its warps were is told too. */
static void kernel_rows(page *p, const json_t *op, bool lines)
{
    size_t i;
    json_t *k;
    double n_sms = story_num(page_gpu(p), "multiprocessors");
    json_array_foreach(story_get(op, "kernels"), i, k)
    {
        vt_buf line = {0};
        if (i >= STORY_ROWS)
            break;
        put_instance(&line, page_str(p, k, "name"));
        vt_buf_printf(&line, " x%.3g", story_num(k, "launches"));
        if (story_num(k, "registers") > 0)
            vt_buf_printf(&line, ", %.0f registers", story_num(k, "registers"));
        if (story_num(k, "spill_bytes") > 0)
            vt_buf_printf(&line, ", %.0f bytes spilled", story_num(k, "spill_bytes"));
        put_launch(p, &line, story_get(k, "launch"), n_sms);
        page_pair(p, PAGE_ITEM, i == 0 ? page_str(p, op, "kind") : "", &line);
        if (lines)
            page_lines_of_kernel(p, page_str(p, k, "name"));
    }
}

void page_kernels(page *p, const json_t *phase)
{
    size_t i;
    json_t *op;
    bool decode = strcmp(page_str(p, phase, "name"), "decode") == 0; /* whose steps are sampled */
    if (!json_is_object(story_get(phase, "gpu")) || !story_has_ops(phase))
        return;
    page_open(p, "kernels", page_say(p, "KERNELS of a %.20s step", page_str(p, phase, "name")), "");
    json_array_foreach(story_get(phase, "ops"), i, op)
    {
        if (i < STORY_ROWS)
            kernel_rows(p, op, decode);
    }
}

/* ---- GPU ---- */

static void phase_row(page *p, const json_t *phase)
{
    const json_t *g = story_get(phase, "gpu");
    vt_buf line = {0};
    if (!json_is_object(g))
        return;
    vt_text_printf(&line, "%s %s, %.0f kernels a step, %f B to the device",
                   page_str(p, phase, "name"), page_str(p, g, "how"),
                   story_num(g, "kernels_per_step"), story_num(g, "host_to_device_bytes"));
    if (isfinite(story_num(g, "idle_us"))) {
        vt_text_printf(&line, ", idle %f s before a step", story_num(g, "idle_us") * 1e-6);
    }
    page_text(p, PAGE_TEXT, &line);
}

static void put_of(vt_buf *b, const char *what, double now, double most, const char *unit)
{
    if (!isfinite(now))
        return;
    vt_buf_printf(b, "%s%s%.0f", b->len ? ", " : "", what, now);
    if (isfinite(most))
        vt_buf_printf(b, " of %.0f", most);
    vt_buf_printf(b, " %s", unit);
}

static void state_row(page *p, const json_t *s)
{
    vt_buf line = {0};
    char why[STORY_TEXT];
    size_t i;
    json_t *held;
    put_of(&line, "SM ", story_num(s, "sm_mhz"), story_num(s, "sm_max_mhz"), "MHz");
    put_of(&line, "memory ", story_num(s, "memory_mhz"), story_num(s, "memory_max_mhz"), "MHz");
    put_of(&line, "", story_num(s, "power_w"), story_num(s, "power_limit_w"), "W");
    put_of(&line, "", story_num(s, "temperature_c"), NAN, "C");
    json_array_foreach(story_get(s, "clocks_held_by"), i, held)
    {
        if (i < STORY_ROWS && json_is_string(held))
            vt_buf_printf(&line, "%s%s", i ? " and " : "; clocks held by ", story_clean(held, why));
    }
    if (line.len) {
        vt_buf_puts(&line, " (when the story was made)");
        page_text(p, PAGE_TEXT, &line);
    }
    vt_buf_release(&line);
}

void page_gpu_section(page *p)
{
    const json_t *e = page_gpu(p), *r = story_get(p->story, "roofs");
    size_t i;
    json_t *phase;
    vt_buf line = {0};
    if (!e)
        return;
    page_open(p, "gpu", "GPU", "");
    vt_text_printf(&line,
                   "%.0f multiprocessors; roofs, measured: memory %f B/s, L2 %f B/s, bf16 %f "
                   "FLOP/s, fp32 %f FLOP/s, an empty kernel %f s",
                   story_num(e, "multiprocessors"), story_num(r, "memory_bytes_per_s"),
                   story_num(r, "l2_bytes_per_s"), story_num(r, "bf16_per_s"),
                   story_num(r, "fp32_per_s"), story_num(r, "kernel_us") * 1e-6);
    page_text(p, PAGE_TEXT, &line);
    state_row(p, story_get(e, "state"));
    json_array_foreach(story_get(p->story, "phases"), i, phase)
    {
        if (i < STORY_ROWS)
            phase_row(p, phase);
    }
}

/* ---- RANKS ---- */

/* "waited for rank 1: 3.00 ms in 84 calls of timed steps, 9.00 ms at the end of 9 steps" */
static void put_waits(page *p, vt_buf *b, const json_t *x)
{
    vt_text_printf(
        b, "; waited for %s: %f s in %.0f call%s of timed steps, %f s at the end of %.0f step%s",
        page_str(p, x, "rank"), story_num(x, "calls_ms") * 1e-3, story_num(x, "calls"),
        story_s(story_num(x, "calls")), story_num(x, "steps_ms") * 1e-3, story_num(x, "steps"),
        story_s(story_num(x, "steps")));
}

/* "in 61 communication calls it waited 1.10 ms and moved 561 KB in 212 us (2.65 GB/s), beside
 * 6.2 ms of other calls" */
static void put_communication(vt_buf *b, const json_t *rank)
{
    const json_t *c = story_get(rank, "communication");
    double busy_ms = story_num(rank, "busy_ms") - story_num(c, "transfer_ms");
    vt_text_printf(b, "in %.0f communication calls it waited %f s and moved %f B in %f s",
                   story_num(c, "calls"), story_num(c, "wait_ms") * 1e-3, story_num(c, "bytes"),
                   story_num(c, "transfer_ms") * 1e-3);
    if (story_num(c, "transfer_ms") > 0) {
        vt_text_printf(b, " (%f B/s)",
                       story_num(c, "bytes") / (story_num(c, "transfer_ms") * 1e-3));
    }
    vt_text_printf(b, ", beside %f s of other calls", busy_ms * 1e-3);
}

/* Tells of a CPU's rank: its communication, and "; rank 1 worker 0 came last in 40". */
static void put_cpu_rank(page *p, vt_buf *b, const json_t *rank)
{
    json_t *x;
    size_t k;
    put_communication(b, rank);
    json_array_foreach(story_get(rank, "waited_for"), k, x)
    {
        if (k < STORY_ROWS)
            vt_buf_printf(b, "; %s came last in %.0f", page_str(p, x, "rank"),
                          story_num(x, "calls"));
    }
}

/* Tells of a GPU: its steps, its communication where it is known, and whom it waited for. */
static void put_gpu_rank(page *p, vt_buf *b, const json_t *rank)
{
    const json_t *waits = story_get(rank, "waited_for");
    json_t *x;
    size_t k;
    vt_text_printf(b, "%s; %.0f step%s of %f s", page_str(p, story_get(rank, "gpu"), "name"),
                   story_num(rank, "steps"), story_s(story_num(rank, "steps")),
                   story_num(rank, "device_ms") / story_num(rank, "steps") * 1e-3);
    if (json_is_object(story_get(rank, "communication"))) {
        vt_buf_puts(b, "; ");
        put_communication(b, rank);
    }
    json_array_foreach(waits, k, x)
    {
        if (k < STORY_ROWS)
            put_waits(p, b, x);
    }
    if (json_array_size(waits) == 0)
        vt_buf_puts(b, "; waited for nobody");
}

void page_ranks(page *p)
{
    const json_t *items = story_get(story_get(p->story, "ranks"), "items");
    size_t i;
    json_t *rank;
    vt_buf line = {0};
    if (json_array_size(items) == 0)
        return;
    page_open(p, "ranks", "RANKS", page_tag(p, "[measured]"));
    json_array_foreach(items, i, rank)
    {
        if (i >= STORY_ROWS)
            break;
        if (json_is_object(story_get(rank, "gpu")))
            put_gpu_rank(p, &line, rank);
        else
            put_cpu_rank(p, &line, rank);
        page_pair(p, PAGE_ITEM, page_str(p, rank, "name"), &line);
    }
}
