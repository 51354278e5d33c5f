/* A GPU's sections of a story in the terminal: KERNELS, GPU. */
#include <math.h>
#include <stdio.h>

#include "story/render.h"

/* Two forms. A grid that fills all places that SMs have for its CTAs:
 *
 *   "; 300 CTAs of 256 threads, clusters of 4, 48.0 KB shared; 2 an SM by registers (occupancy
 *   25 %), 1.14 waves, tail 43 %"
 *
 * A smaller one, for which waves and room for one more CTA say nothing:
 *
 *   "; 1 CTA of 128 threads on 132 multiprocessors, 0.8 % of which have work; 12 an SM by registers
 *   (occupancy 75 %)" */
static void put_launch(vt_buf *b, const json_t *l, double n_sms)
{
    char text[STORY_TEXT];
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
        vt_buf_puts(b, ", ");
        vt_text_bytes(b, story_num(l, "dynamic_shared_bytes"));
        vt_buf_puts(b, " shared");
    }
    if (!(story_num(l, "ctas_per_sm") > 0))
        return;
    vt_buf_printf(b, "; %.0f an SM by %s (occupancy %.0f %%)", story_num(l, "ctas_per_sm"),
                  story_text(l, "limited_by", text), 100 * story_num(l, "occupancy"));
    if (partial)
        return;
    if (waves > 0)
        vt_buf_printf(b, ", %.2f waves, tail %.0f %%", waves, 100 * story_num(l, "tail"));
    if (*story_text(l, "one_cta_more", text))
        vt_buf_printf(b, "; %s", text);
}

static void kernel_lines(render_page *p, const json_t *op)
{
    size_t i;
    json_t *k;
    char kind[STORY_TEXT], name[STORY_TEXT];
    double n_sms = story_num(story_get(story_get(p->story, "engine"), "gpu"), "multiprocessors");
    json_array_foreach(story_get(op, "kernels"), i, k)
    {
        enum { NAME = 24 };
        vt_buf line = {0};
        if (i >= STORY_ROWS)
            break;
        size_t start = p->b->len;
        vt_buf_printf(p->b, " %s", i == 0 ? story_text(op, "kind", kind) : "");
        vt_text_pad(p->b, start, NAME);
        /* parameters are read best with blanks to break at */
        for (const char *c = story_text(k, "name", name); *c; c++)
            vt_buf_puts(&line, *c == ',' ? ", " : (char[2]){*c, '\0'});
        vt_buf_printf(&line, " x%.3g", story_num(k, "launches"));
        if (story_num(k, "registers") > 0)
            vt_buf_printf(&line, ", %.0f registers", story_num(k, "registers"));
        if (story_num(k, "spill_bytes") > 0)
            vt_buf_printf(&line, ", %.0f bytes spilled", story_num(k, "spill_bytes"));
        put_launch(&line, story_get(k, "launch"), n_sms);
        vt_text_wrap(p->b, line.data ? line.data : "", NAME, render_width(p));
        vt_buf_putc(p->b, '\n');
        vt_buf_release(&line);
    }
}

static void gpu_phase(render_page *p, const json_t *phase)
{
    const json_t *g = story_get(phase, "gpu");
    char name[STORY_TEXT], how[STORY_TEXT];
    if (!json_is_object(g))
        return;
    vt_buf line = {0};
    vt_buf_printf(&line, "%s %s, %.0f kernels a step, ", story_text(phase, "name", name),
                  story_text(g, "how", how), story_num(g, "kernels_per_step"));
    vt_text_bytes(&line, story_num(g, "host_to_device_bytes"));
    vt_buf_puts(&line, " to the device");
    if (isfinite(story_num(g, "idle_us"))) {
        vt_buf_puts(&line, ", idle ");
        vt_text_time(&line, story_num(g, "idle_us") * 1e-6);
        vt_buf_puts(&line, " before a step");
    }
    vt_buf_putc(p->b, ' ');
    vt_text_wrap(p->b, line.data ? line.data : "", 3, render_width(p));
    vt_buf_putc(p->b, '\n');
    vt_buf_release(&line);
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

static void gpu_state(render_page *p, const json_t *s)
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
        if (i < STORY_ROWS && json_is_string(held)) {
            json_t *o = json_pack("{s:O}", "held", held);
            vt_buf_printf(&line, "%s%s", i ? " and " : "; clocks held by ",
                          story_text(o, "held", why));
            json_decref(o);
        }
    }
    if (line.len) {
        vt_buf_puts(&line, " (when the story was made)");
        vt_buf_putc(p->b, ' ');
        vt_text_wrap(p->b, line.data, 3, render_width(p));
        vt_buf_putc(p->b, '\n');
    }
    vt_buf_release(&line);
}

void render_gpu(render_page *p)
{
    const json_t *e = story_get(story_get(p->story, "engine"), "gpu"),
                 *r = story_get(p->story, "roofs");
    size_t i;
    json_t *phase;
    vt_buf line = {0};
    if (!json_is_object(e))
        return;
    render_heading(p, "GPU", NULL);
    vt_buf_printf(&line, "%.0f multiprocessors; roofs, measured: memory ",
                  story_num(e, "multiprocessors"));
    vt_text_rate(&line, story_num(r, "memory_bytes_per_s"), "B");
    vt_buf_puts(&line, ", L2 ");
    vt_text_rate(&line, story_num(r, "l2_bytes_per_s"), "B");
    vt_buf_puts(&line, ", bf16 ");
    vt_text_rate(&line, story_num(r, "bf16_per_s"), "FLOP");
    vt_buf_puts(&line, ", fp32 ");
    vt_text_rate(&line, story_num(r, "fp32_per_s"), "FLOP");
    vt_buf_puts(&line, ", an empty kernel ");
    vt_text_time(&line, story_num(r, "kernel_us") * 1e-6);
    vt_buf_putc(p->b, ' ');
    vt_text_wrap(p->b, line.data ? line.data : "", 3, render_width(p));
    vt_buf_putc(p->b, '\n');
    vt_buf_release(&line);
    gpu_state(p, story_get(e, "state"));
    json_array_foreach(story_get(p->story, "phases"), i, phase)
    {
        if (i < STORY_ROWS)
            gpu_phase(p, phase);
    }
}

void render_kernels(render_page *p, const json_t *phase)
{
    size_t i;
    json_t *op;
    char title[64], name[STORY_TEXT];
    if (!json_is_object(story_get(phase, "gpu")) || !story_has_ops(phase))
        return;
    snprintf(title, sizeof title, "KERNELS of a %.20s step", story_text(phase, "name", name));
    render_heading(p, title, NULL);
    json_array_foreach(story_get(phase, "ops"), i, op)
    {
        if (i < STORY_ROWS)
            kernel_lines(p, op);
    }
}
