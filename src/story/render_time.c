/* TIME: a request as a tree over time, from its arrival to its end (story/render.h). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "story/render.h"

enum { SPARK_CELLS = 48, BAR_CELLS = 8 };

static void put_ms(vt_buf *b, double ms) { vt_text_time(b, ms * 1e-3); }

/* "    1.23 ms  " or blanks: the column in front of the tree. */
static void time_column(render_page *p, double at_ms)
{
    size_t start = p->b->len;
    if (isfinite(at_ms)) {
        vt_buf t = {0};
        vt_buf_printf(&t, "%.1f ms", at_ms);
        for (size_t i = t.len; i < RENDER_TIME_COLUMN - 1; i++)
            vt_buf_putc(p->b, ' ');
        vt_buf_puts(p->b, t.data ? t.data : "");
        vt_buf_release(&t);
    }
    vt_text_pad(p->b, start, RENDER_TIME_COLUMN);
}

/* Text that begins at `column` of a line of the tree. Its further lines begin with the tree's bars,
 * so that these are not broken. */
static void tree_wrap_in(render_page *p, const char *text, int32_t column, const char *bars)
{
    vt_buf lines = {0};
    vt_text_wrap(&lines, text, column, render_width(p));
    for (const char *s = lines.data ? lines.data : ""; *s;) {
        size_t n = strcspn(s, "\n");
        vt_buf_add(p->b, s, n);
        s += n;
        if (*s != '\n')
            break;
        size_t start = p->b->len + 1;
        vt_buf_putc(p->b, '\n');
        vt_text_pad(p->b, start, RENDER_TIME_COLUMN);
        vt_buf_puts(p->b, bars);
        vt_text_pad(p->b, start, column);
        s += 1 + strspn(s + 1, " ");
    }
    vt_buf_putc(p->b, '\n');
    p->b->failed |= lines.failed;
    vt_buf_release(&lines);
}

/* `last`: the tree ends here, and there is no bar below. */
static void tree_wrap(render_page *p, const char *text, int32_t column, bool last)
{
    tree_wrap_in(p, text, column, last ? "" : "│");
}

static void tree_line(render_page *p, double at_ms, const char *branch, const char *name, double ms,
                      const char *note)
{
    enum { NAME = 32, NOTE = 44 };
    size_t start = p->b->len;
    time_column(p, at_ms);
    vt_buf_printf(p->b, "%s ", branch);
    vt_text_ink(p->b, p->term, VT_INK_BOLD, name);
    vt_text_pad(p->b, start, NAME);
    if (isfinite(ms))
        put_ms(p->b, ms);
    vt_text_pad(p->b, start, NOTE);
    tree_wrap(p, note, NOTE, strcmp(branch, "└─") == 0);
}

/* Where the columns of an op's line begin; narrow pages have shorter bars. */
typedef struct op_columns {
    int32_t share, bar, cells;
} op_columns;

static op_columns columns_of(const render_page *p)
{
    return render_width(p) >= 100 ? (op_columns){36, 43, BAR_CELLS} : (op_columns){35, 43, 4};
}

static void op_share(render_page *p, size_t start, double share)
{
    op_columns c = columns_of(p);
    vt_text_pad(p->b, start, c.share);
    vt_buf_printf(p->b, "%3.0f %%  ", 100 * share);
    vt_text_bar(p->b, share, c.cells);
}

/* The rate that the op's bound is about: bytes, or operations of its unit. Nothing where that is
 * neither. */
static void op_rate(render_page *p, const json_t *op, const char *bound)
{
    static const char *const unit[] = {"int8", "fp8", "bf16", "fp32"};
    if (strcmp(bound, "memory") == 0 || strcmp(bound, "cache") == 0) {
        vt_buf_putc(p->b, ' ');
        vt_text_rate(p->b, story_num(op, "bytes_per_s"), "B");
        vt_buf_putc(p->b, ',');
    }
    for (size_t i = 0; i < sizeof unit / sizeof unit[0]; i++) {
        double did = story_num(story_get(op, "flops"), unit[i]),
               per_s = did / story_num(op, "time_us") * 1e6;
        if (strcmp(bound, unit[i]) != 0 || !isfinite(per_s))
            continue;
        vt_buf_putc(p->b, ' ');
        vt_text_rate(p->b, per_s, "FLOP");
        vt_buf_putc(p->b, ',');
    }
}

static void op_line(render_page *p, const json_t *op, bool hotspot, const char *branch)
{
    char kind[STORY_TEXT], bound[STORY_TEXT];
    double of_roof = story_num(op, "of_roof");
    op_columns c = columns_of(p);
    size_t start = p->b->len;
    time_column(p, NAN);
    vt_buf_printf(p->b, "│   %s %s", branch, story_text(op, "kind", kind));
    op_share(p, start, story_num(op, "share"));
    vt_text_pad(p->b, start, c.bar + c.cells);
    if (render_width(p) >= 100)
        op_rate(p, op, story_text(op, "bound", bound));
    if (isfinite(of_roof))
        vt_buf_printf(p->b, " %.0f %% of %.6s roof", 100 * of_roof, story_text(op, "bound", bound));
    if (hotspot)
        vt_text_ink(p->b, p->term, VT_INK_YELLOW, " <- hotspot");
    vt_buf_putc(p->b, '\n');
}

/* Below the hotspot: its slowest call, and how such a call is cut. */
static void hotspot_line(render_page *p, const json_t *op)
{
    enum { TEXT_COLUMN = 21 };
    char call[STORY_TEXT], cut[STORY_TEXT];
    const json_t *slowest = story_get(op, "slowest");
    vt_buf line = {0};
    if (!*story_text(slowest, "call", call) || !*story_text(op, "cut", cut))
        return;
    vt_buf_printf(&line, "%s: ", call);
    vt_text_time(&line, story_num(slowest, "time_us") * 1e-6);
    vt_buf_printf(&line, " at most; %s", cut);
    time_column(p, NAN);
    vt_buf_puts(p->b, "│   │     ");
    tree_wrap_in(p, line.data ? line.data : "", TEXT_COLUMN, "│   │");
    vt_buf_release(&line);
}

/* The three largest kinds; the rest as one line. */
static void phase_ops(render_page *p, const json_t *phase)
{
    enum { SHOWN = 3 };
    size_t i;
    json_t *op;
    double rest = 0;
    size_t n = json_array_size(story_get(phase, "ops"));
    json_array_foreach(story_get(phase, "ops"), i, op)
    {
        if (i < SHOWN)
            op_line(p, op, i == 0, i + 1 == n ? "└─" : "├─");
        if (i == 0 && n > 1)
            hotspot_line(p, op);
        if (i >= SHOWN && isfinite(story_num(op, "share")))
            rest += story_num(op, "share");
    }
    if (n > SHOWN) {
        size_t start = p->b->len;
        time_column(p, NAN);
        vt_buf_puts(p->b, "│   └─ other");
        op_share(p, start, rest);
        vt_buf_putc(p->b, '\n');
    }
}

static void kernel_text(vt_buf *b, const json_t *side)
{
    char impl[STORY_TEXT], attention[STORY_TEXT], how[STORY_TEXT];
    bool gpu = json_is_string(story_get(side, "kernel"));
    vt_buf_printf(b, "%s/%s, %.0f query row%s a step", story_text(side, "attention", attention),
                  gpu ? render_kernel_base(side, "kernel", impl) : story_text(side, "impl", impl),
                  story_num(side, "rows"), story_s(story_num(side, "rows")));
    if (*story_text(side, "how", how))
        vt_buf_printf(b, ", %s", how);
}

static void hardware_text(vt_buf *b, const json_t *side)
{
    static const char *const unit[] = {"memory", "int8", "fp32", "bf16"};
    static const char *const key[] = {"of_memory", "of_int8", "of_fp32", "of_bf16"};
    vt_buf_printf(b, "%.1f FLOP/byte", story_num(side, "flop_per_byte"));
    for (int i = 0; i < 4; i++)
        if (story_num(side, key[i]) > 0)
            vt_buf_printf(b, ", %s %.1f %%", unit[i], 100 * story_num(side, key[i]));
    vt_buf_puts(b, " of roof");
}

static void side_line(render_page *p, const char *name, const json_t *side,
                      void (*put)(vt_buf *, const json_t *), const char *tail)
{
    enum { TEXT_COLUMN = 26 };
    vt_buf line = {0};
    put(&line, side);
    vt_buf_puts(&line, tail);
    time_column(p, NAN);
    vt_buf_printf(p->b, "│     %s", name);
    tree_wrap(p, line.data ? line.data : "", TEXT_COLUMN, false);
    vt_buf_release(&line);
}

static void transition(render_page *p, double at_ms, const char *note)
{
    const json_t *t = story_get(p->story, "transition");
    char reason[STORY_TEXT];
    time_column(p, at_ms);
    vt_buf_puts(p->b, "╞═ ");
    vt_text_ink(p->b, p->term, VT_INK_CYAN, "TRANSITION ");
    vt_text_ink(p->b, p->term, VT_INK_CYAN, note);
    vt_buf_putc(p->b, '\n');
    if (!json_is_object(t))
        return;
    side_line(p, "kernel   ", story_get(t, "before"), kernel_text, " ->");
    side_line(p, "         ", story_get(t, "after"), kernel_text, "");
    time_column(p, NAN);
    vt_buf_puts(p->b, "│     reason   ");
    tree_wrap(p, story_text(t, "reason", reason), RENDER_TIME_COLUMN + 15, false);
    side_line(p, "hardware ", story_get(t, "before"), hardware_text, " ->");
    side_line(p, "         ", story_get(t, "after"), hardware_text, "");
}

/* Says how a step grows with its context, and how long the device waited between steps. */
static void context_line(render_page *p, const json_t *q)
{
    double slope = story_num(q, "us_per_100_tokens"), waits = story_num(q, "waits_ms"),
           total = story_num(q, "total_ms");
    vt_buf line = {0};
    if (isfinite(slope))
        vt_buf_printf(&line,
                      "%+.2f us per 100 tokens of context, of which reading K and V explains "
                      "%.2f us",
                      slope, story_num(q, "explained_us_per_100_tokens"));
    if (waits > 0.01 * total) {
        vt_buf_puts(&line, line.len ? "; the device waited " : "the device waited ");
        put_ms(&line, waits);
        vt_buf_printf(&line, " between the request's steps, %.0f %% of its time",
                      100 * waits / total);
    }
    if (line.len) {
        time_column(p, NAN);
        vt_buf_puts(p->b, "│       ");
        tree_wrap(p, line.data, RENDER_TIME_COLUMN + 8, false);
    }
    vt_buf_release(&line);
}

/* The gaps between tokens, and what the longest one is known to come from. */
static void itl_line(render_page *p)
{
    const json_t *q = story_get(p->story, "request"),
                 *slow = json_array_get(story_get(story_get(p->story, "slow_tokens"), "tokens"), 0);
    double v[512];
    int32_t n = render_values(story_get(q, "itl_ms"), v, 512),
            cells = render_width(p) >= 100 ? SPARK_CELLS : 28;
    char cause[STORY_TEXT];
    vt_buf peak = {0};
    if (n == 0)
        return;
    time_column(p, NAN);
    vt_buf_puts(p->b, "│   ITL ");
    vt_text_spark(p->b, v, n, cells);
    vt_buf_printf(p->b, "  p50 %.2f ms, p99 %.2f ms\n", story_num(q, "itl_p50_ms"),
                  story_num(q, "itl_p99_ms"));
    context_line(p, q);
    if (!isfinite(story_num(slow, "token")))
        return;
    vt_buf_printf(&peak, "peak at token %.0f, ", story_num(slow, "token"));
    vt_text_time(&peak, story_num(slow, "ms") * 1e-3);
    vt_buf_printf(&peak, ": %s", story_text(slow, "text", cause));
    time_column(p, NAN);
    vt_buf_puts(p->b, "│       ");
    tree_wrap(p, peak.data ? peak.data : "", RENDER_TIME_COLUMN + 8, false);
    vt_buf_release(&peak);
}

void render_time(render_page *p)
{
    static const struct {
        const char *event, *name;
    } known[] = {{"arrive", "arrives"},    {"match", "match prefix"}, {"evict", "evicts"},
                 {"retract", "RETRACTED"}, {"chunk", "  chunk"},      {"prefill", "PREFILL"},
                 {"decode", "DECODE"}};
    size_t i;
    json_t *e;
    bool shares = json_array_size(story_get(p->story, "phases")) > 0;
    render_heading(p, "TIME",
                   render_tag(p, shares ? "[times measured, shares derived]" : "[measured]"));
    json_array_foreach(story_get(p->story, "timeline"), i, e)
    {
        char event[STORY_TEXT], note[STORY_TEXT];
        story_text(e, "event", event);
        story_text(e, "text", note);
        double at = story_num(e, "at_ms");
        if (i >= STORY_ROWS)
            break;
        if (strcmp(event, "transition") == 0) {
            transition(p, at, note);
            continue;
        }
        const char *name = event, *branch = i == 0                       ? "┌─"
                                            : strcmp(event, "done") == 0 ? "└─"
                                                                         : "├─";
        for (size_t k = 0; k < sizeof known / sizeof known[0]; k++)
            if (strcmp(event, known[k].event) == 0)
                name = known[k].name;
        tree_line(p, at, branch, name, story_num(e, "ms"), note);
        const json_t *phase = story_phase_named(p->story, event);
        if (phase)
            phase_ops(p, phase);
        if (phase && strcmp(event, "decode") == 0)
            itl_line(p);
    }
}
