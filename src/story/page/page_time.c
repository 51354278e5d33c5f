/* TIME: a request as a tree over time, from its arrival to its end (page.h). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "story/page/page.h"
#include "base/term/figure.h"

/* ---- the ops of a phase ---- */

/* The rate that the op's bound is about: bytes, or operations of its unit. Nothing where that is
 * neither. */
static const char *op_rate(page *p, const json_t *op, const char *bound)
{
    static const char *const unit[] = {"int8", "fp8", "bf16", "fp32"};
    vt_buf b = {0};
    if (strcmp(bound, "memory") == 0 || strcmp(bound, "cache") == 0)
        vt_text_rate(&b, story_num(op, "bytes_per_s"), "B");
    for (size_t i = 0; i < sizeof unit / sizeof unit[0]; i++) {
        double per_s = story_num(story_get(op, "flops"), unit[i]) / story_num(op, "time_us") * 1e6;
        if (strcmp(bound, unit[i]) == 0 && isfinite(per_s))
            vt_text_rate(&b, per_s, "FLOP");
    }
    return page_take(p, &b);
}

/* `rest`: the share of all ops that are not shown; its line says nothing else. */
static void op_row(page *p, const json_t *op, bool hotspot, double rest)
{
    page_row *r = page_add(p, PAGE_OP, 4);
    double of_roof = story_num(op, "of_roof");
    const char *bound = page_str(p, op, "bound");
    r->cell[0].text = op ? page_str(p, op, "kind") : "other";
    r->cell[0].share = op ? story_num(op, "share") : rest;
    r->cell[1].text = op_rate(p, op, bound);
    if (isfinite(of_roof))
        r->cell[2].text = page_say(p, "%.0f %% of %.6s roof", 100 * of_roof, bound);
    r->cell[3].text = hotspot ? "<- hotspot" : "";
    r->cell[3].ink = VT_INK_YELLOW;
}

/* Below the hotspot: its slowest call, and how such a call is cut. */
static void hotspot_row(page *p, const json_t *op)
{
    const json_t *slowest = story_get(op, "slowest");
    const char *call = page_str(p, slowest, "call"), *cut = page_str(p, op, "cut");
    vt_buf line = {0};
    if (!*call || !*cut)
        return;
    vt_text_printf(&line, "%s: %f s at most; %s", call, story_num(slowest, "time_us") * 1e-6, cut);
    page_text(p, PAGE_OF_OP, &line);
}

/* The three largest kinds; the rest as one line. */
static void phase_ops(page *p, const json_t *phase)
{
    enum { SHOWN = 3 };
    size_t i;
    json_t *op;
    double rest = 0;
    size_t n = json_array_size(story_get(phase, "ops"));
    json_array_foreach(story_get(phase, "ops"), i, op)
    {
        if (i < SHOWN)
            op_row(p, op, i == 0, NAN);
        if (i == 0 && n > 1)
            hotspot_row(p, op);
        if (i >= SHOWN && isfinite(story_num(op, "share")))
            rest += story_num(op, "share");
    }
    if (n > SHOWN)
        op_row(p, NULL, false, rest);
}

/* ---- the transition ---- */

static void kernel_row(page *p, const json_t *side, const char *name, const char *tail)
{
    bool gpu = json_is_string(story_get(side, "kernel"));
    const char *how = page_str(p, side, "how");
    double rows = story_num(side, "rows");
    vt_buf b = {0};
    vt_buf_printf(&b, "%s/%s, %.0f query row%s a step%s%s%s", page_str(p, side, "attention"),
                  gpu ? page_kernel_base(p, side, "kernel") : page_str(p, side, "impl"), rows,
                  story_s(rows), *how ? ", " : "", how, tail);
    page_pair(p, PAGE_FACT, name, &b);
}

static void hardware_row(page *p, const json_t *side, const char *name, const char *tail)
{
    static const char *const unit[] = {"memory", "int8", "fp32", "bf16", "fp8"};
    static const char *const key[] = {"of_memory", "of_int8", "of_fp32", "of_bf16", "of_fp8"};
    bool any = false;
    vt_buf b = {0};
    vt_buf_printf(&b, "%.1f FLOP/byte", story_num(side, "flop_per_byte"));
    for (int i = 0; i < 5; i++)
        if (story_num(side, key[i]) > 0) {
            vt_buf_printf(&b, ", %s %.1f %%", unit[i], 100 * story_num(side, key[i]));
            any = true;
        }
    vt_buf_printf(&b, "%s%s", any ? " of roof" : "", tail);
    page_pair(p, PAGE_FACT, name, &b);
}

static void transition(page *p, double at_ms, const char *note)
{
    const json_t *t = story_get(p->story, "transition"), *before = story_get(t, "before"),
                 *after = story_get(t, "after");
    page_row *r = page_add(p, PAGE_CHANGE, 2);
    vt_buf reason = {0};
    r->cell[0].value = at_ms;
    r->cell[1].text = note;
    if (!json_is_object(t))
        return;
    kernel_row(p, before, "kernel", " ->");
    kernel_row(p, after, "", "");
    vt_buf_puts(&reason, page_str(p, t, "reason"));
    page_pair(p, PAGE_FACT, "reason", &reason);
    hardware_row(p, before, "hardware", " ->");
    hardware_row(p, after, "", "");
}

/* ---- the gaps between tokens ---- */

static void remark(page *p, vt_buf *line)
{
    if (line->len)
        page_text(p, PAGE_REMARK, line);
}

/* Says how a step grows with its context, and how long the device waited between steps. */
static void context_row(page *p, const json_t *q)
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
        vt_text_printf(&line, "%s%f s between the request's steps, %.0f %% of its time",
                       line.len ? "; the device waited " : "the device waited ", waits * 1e-3,
                       100 * waits / total);
    }
    remark(p, &line);
}

/* The gaps between tokens, and what the longest one is known to come from. */
static void itl_rows(page *p)
{
    const json_t *q = story_get(p->story, "request"), *itl = story_get(q, "itl_ms"),
                 *slow = json_array_get(story_get(story_get(p->story, "slow_tokens"), "tokens"), 0);
    vt_buf peak = {0};
    if (json_array_size(story_get(itl, "values")) == 0)
        return;
    page_row *r = page_add(p, PAGE_SERIES, 3);
    r->cell[0].text = "ITL";
    page_series(p, &r->cell[1], itl, "values");
    r->cell[2].text = page_say(p, "p50 %.2f ms, p99 %.2f ms", story_num(q, "itl_p50_ms"),
                               story_num(q, "itl_p99_ms"));
    context_row(p, q);
    if (!isfinite(story_num(slow, "token")))
        return;
    vt_text_printf(&peak, "peak at token %.0f, %f s: %s", story_num(slow, "token"),
                   story_num(slow, "ms") * 1e-3, page_str(p, slow, "text"));
    remark(p, &peak);
}

/* ---- the tree ---- */

void page_time(page *p)
{
    static const struct {
        const char *event, *name;
    } known[] = {{"arrive", "arrives"},    {"match", "match prefix"}, {"evict", "evicts"},
                 {"retract", "RETRACTED"}, {"chunk", "  chunk"},      {"prefill", "PREFILL"},
                 {"decode", "DECODE"},     {"mask", "MASK"}};
    size_t i;
    json_t *e;
    bool shares = json_array_size(story_get(p->story, "phases")) > 0;
    page_open(p, "time", "TIME",
              page_tag(p, shares ? "[times measured, shares derived]" : "[measured]"));
    json_array_foreach(story_get(p->story, "timeline"), i, e)
    {
        const char *event = page_str(p, e, "event"), *name = event;
        double ms = story_num(e, "ms");
        vt_buf time = {0};
        if (i >= STORY_ROWS)
            break;
        if (strcmp(event, "transition") == 0) {
            transition(p, story_num(e, "at_ms"), page_str(p, e, "text"));
            continue;
        }
        for (size_t k = 0; k < sizeof known / sizeof known[0]; k++)
            if (strcmp(event, known[k].event) == 0)
                name = known[k].name;
        if (isfinite(ms))
            vt_text_time(&time, ms * 1e-3);
        page_row *r = page_add(p, PAGE_EVENT, 4);
        r->cell[0].value = story_num(e, "at_ms");
        r->cell[1].text = name;
        r->cell[2].text = page_take(p, &time);
        r->cell[3].text = page_str(p, e, "text");
        const json_t *phase = story_phase_named(p->story, event);
        if (phase)
            phase_ops(p, phase);
        if (phase && strcmp(event, "decode") == 0)
            itl_rows(p);
    }
}
