/* Lab sglang 02, second part: eviction.
 *
 *   PROMPTS prompts run one after the other, then all of them again.
 *
 *   KV memory      first round            second round
 *   all of it      every page is kept     every prompt is found
 *   two thirds     the oldest leaves go   each prompt evicts the one that is asked for next
 *
 * The second row is the known weakness of "least recently used" on a loop that is longer than the
 * cache: what is found does not fall to two thirds, but to the beginning that all prompts share. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "engine/engine.h"
#include "lab/sglang/inside.h"
#include "lab/sglang/radix.h"
#include "story/read.h"

enum { PROMPTS = 6, SHARED_PAGES = 2, OWN_PAGES = 6, GEN = 2 };

typedef struct pressure {
    vt_engine *engine;
    lab_request r[2][PROMPTS]; /* first and second round */
    int32_t pages, cached;     /* of the pool; prompt tokens found in the second round */
    vt_engine_stats start, middle, end;
    vt_buf before, after; /* the tree */
    json_t *story;        /* of the last request of the first round */
} pressure;

static void release(pressure *p)
{
    sglang_release(p->r[0], PROMPTS);
    sglang_release(p->r[1], PROMPTS);
    vt_buf_release(&p->before);
    vt_buf_release(&p->after);
    json_decref(p->story);
    vt_engine_free(p->engine);
}

/* The pages of a prompt: some that all prompts share, its own, and one for what it generates. */
static int32_t prompt_tokens(int32_t page_size) { return (SHARED_PAGES + OWN_PAGES) * page_size; }

/* Pages that all prompts need together. */
static int32_t working_set(void) { return SHARED_PAGES + PROMPTS * OWN_PAGES; }

static vt_status run_rounds(lab *l, pressure *p, int32_t page_size, vt_err *err)
{
    int32_t n = prompt_tokens(page_size), *shared = NULL;
    vt_status status = sglang_prompt(l, 9000, NULL, 0, SHARED_PAGES * page_size, &shared, err);
    vt_engine_copy_stats(p->engine, &p->start);
    for (int32_t i = 0; status == VT_OK && i < 2 * PROMPTS; i++) {
        lab_request *r = &p->r[i / PROMPTS][i % PROMPTS];
        int32_t *ids = NULL;
        status = sglang_prompt(l, 9001 + (uint64_t)(i % PROMPTS), shared, SHARED_PAGES * page_size,
                               n, &ids, err);
        *r = (lab_request){.prompt = ids, .n_prompt = n, .n_gen = GEN};
        if (status == VT_OK)
            status = lab_requests_run(l, p->engine, r, 1, err);
        if (i == PROMPTS / 2 - 1)
            vt_engine_dump_cache(p->engine, &p->before);
        if (i == PROMPTS - 1) {
            vt_engine_dump_cache(p->engine, &p->after);
            vt_engine_copy_stats(p->engine, &p->middle);
            if (status == VT_OK)
                status = lab_story(l, p->engine, r->id, &p->story, err);
        }
        if (i >= PROMPTS)
            p->cached += r->n_cached;
    }
    free(shared);
    vt_engine_copy_stats(p->engine, &p->end);
    p->pages = p->end.pages;
    return status;
}

/* Opens an engine with this many pages and runs both rounds. */
static vt_status run_with(lab *l, double page_bytes, int32_t page_size, int32_t pages, pressure *p,
                          vt_err *err)
{
    char memory[32], context[32];
    snprintf(memory, sizeof memory, "%.0f", ceil(page_bytes * pages));
    snprintf(context, sizeof context, "%d", prompt_tokens(page_size) + 2 * page_size);
    TRY(sglang_open(l, (const char *const[]){"kv-memory", memory, "max-context", context, NULL}, 2,
                    &p->engine, err));
    return run_rounds(l, p, page_size, err);
}

static uint64_t evicted(const vt_engine_stats *from, const vt_engine_stats *to, int cause)
{
    return to->cache.evicted_pages[cause] - from->cache.evicted_pages[cause];
}

static const char *const cause_name[VT_EVICT_CAUSES] = {"room for a new prompt",
                                                        "room for a running sequence's next page",
                                                        "a longer page covers it", "flush"};

/* ---- the tree as a drawing ---- */

/* Depth of a line of vt_radix_dump: two spaces a level; the first level has two. */
static size_t depth_of(const char *line) { return strspn(line, " ") / 2; }

/* Returns true if a later line belongs to the same parent as this one. */
static bool has_sibling(const char *line)
{
    size_t depth = depth_of(line);
    for (const char *next = strchr(line, '\n'); next && next[1]; next = strchr(next + 1, '\n')) {
        size_t d = depth_of(next + 1);
        if (d <= depth)
            return d == depth;
    }
    return false;
}

/* Draws the branches of vt_radix_dump:
 *
 *     2 pages ...              └── 2 pages ...
 *       7 pages ...                ├── 7 pages ...
 *       2 pages ...                └── 2 pages ...
 */
static void draw_tree(vt_buf *out, const char *dump)
{
    enum { DEEPEST = 24 };
    bool open[DEEPEST] = {false};
    for (const char *line = dump; line && *line;) {
        size_t n = strcspn(line, "\n"), depth = depth_of(line), blank = strspn(line, " ");
        for (size_t d = 1; d < depth && d < DEEPEST; d++)
            vt_buf_puts(out, open[d] ? "│   " : "    ");
        if (depth > 0) {
            bool more = has_sibling(line);
            if (depth < DEEPEST)
                open[depth] = more;
            vt_buf_puts(out, more ? "├── " : "└── ");
        }
        vt_buf_add(out, line + blank, n - blank);
        vt_buf_putc(out, '\n');
        line = line[n] ? line + n + 1 : NULL;
    }
}

static void tell_trees(lab *l, const pressure *p)
{
    vt_buf b = {0}, a = {0};
    draw_tree(&b, p->before.data);
    draw_tree(&a, p->after.data);
    lab_drawing(l, "tree_before", "The tree after three of six prompts", &b);
    lab_drawing(l, "tree_after", "The tree after all six", &a);
    vt_buf_release(&b);
    vt_buf_release(&a);
}

static void tell_eviction(lab *l, const pressure *p)
{
    char text[STORY_TEXT];
    double ms;
    lab_table(l, "eviction", "Pages that were evicted, and why",
              "cause|>pages, first round|>second round");
    for (int c = 0; c < VT_EVICT_CAUSES; c++)
        lab_cells(l, "%s|%llu|%llu", cause_name[c],
                  (unsigned long long)evicted(&p->start, &p->middle, c),
                  (unsigned long long)evicted(&p->middle, &p->end, c));
    if (sglang_event(p->story, "evict", &ms, text))
        lab_finding(l, "cache.evicted",
                    "the story of request %llu says: %s. The prompts of one round need %d pages "
                    "and the pool has %d; give it more memory (--kv-memory), or send requests "
                    "with a common prefix one after the other (--policy lpm)",
                    (unsigned long long)p->r[0][PROMPTS - 1].id, text, working_set(), p->pages);
}

static vt_status sweep(lab *l, double page_bytes, int32_t page_size, vt_err *err)
{
    static const double share[] = {0.4, 0.67, 1.0, 1.34};
    lab_table(l, "pressure", "Six prompts sent twice: what the second round finds",
              "KV memory|>pages|>of what all need|>tokens found|>evicted|>TTFT, mean");
    for (size_t i = 0; i < sizeof share / sizeof share[0]; i++) {
        pressure p = {0};
        double ttft = 0;
        int32_t pages = (int32_t)(share[i] * (working_set() + PROMPTS)) + 1;
        vt_status status = run_with(l, page_bytes, page_size, pages, &p, err);
        for (int k = 0; k < PROMPTS; k++)
            ttft += p.r[1][k].ttft_s / PROMPTS;
        if (status == VT_OK)
            lab_cells(l, "%f B|%d|%f share|%d of %d|%llu|%f s", page_bytes * p.pages, p.pages,
                      (double)p.pages / working_set(), p.cached, PROMPTS * prompt_tokens(page_size),
                      (unsigned long long)(evicted(&p.start, &p.end, VT_EVICT_ADMIT) +
                                           evicted(&p.start, &p.end, VT_EVICT_GROW)),
                      ttft);
        release(&p);
        TRY(status);
    }
    return VT_OK;
}

vt_status sglang_pressure(lab *l, double page_bytes, int32_t page_size, vt_err *err)
{
    pressure p = {0};
    int32_t pages = working_set() * 2 / 3;
    vt_status status = run_with(l, page_bytes, page_size, pages, &p, err);
    if (status == VT_OK) {
        uint64_t gone = evicted(&p.start, &p.middle, VT_EVICT_ADMIT) +
                        evicted(&p.start, &p.middle, VT_EVICT_GROW);
        tell_trees(l, &p);
        tell_eviction(l, &p);
        lab_check(l, gone > 0 || p.pages >= working_set() + PROMPTS,
                  "pages were evicted: %llu, in a pool of %d pages for prompts that need %d",
                  (unsigned long long)gone, p.pages, working_set());
    }
    release(&p);
    TRY(status);
    if (lab_flag(l, "pressure") || !l->quick)
        return sweep(l, page_bytes, page_size, err);
    lab_missing(l, "pressure",
                "it runs in the full form, or with --pressure: hit share over four "
                "sizes of KV memory");
    return VT_OK;
}
