/* A flame graph for a terminal, made of the folded stacks (flame.c): what all steps took together,
 * kinds of step below it, kinds of op below these, and layers where there is room for them.
 *
 *   │all                                                                     │ 364 ms
 *   │decode step 95 %                                               │prefill s│
 *   │linear.gate+up 22 %   │linear.down 15 % │linear.head 15 %│40 more│...
 *   │30 layers, L18 1.2 %  │30 layers        │
 *
 * A box is as wide as its share; boxes of one parent stand in the order of their size. Those that
 * would get less than a few cells are one box, which says how many they are. Steps whose calls were
 * not timed tell nothing of ops: they are left out, and a line says how much that is. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "story/forms.h"
#include "story/forms/trace.h"

enum {
    DEPTH = 4,      /* all, step, op, layer */
    LEAST_CELLS = 6 /* of a box of its own */
};

/* A part of the stacks: all that begin with the same names. */
typedef struct box {
    const char *name;
    double ns;
    int32_t parent, first, next; /* indices; -1: none */
    int32_t n_children;
    int32_t from, to; /* cells */
} box;

typedef struct flame {
    box *box;
    int32_t n;
    vt_buf row[DEPTH];
    int32_t at[DEPTH]; /* cells of a row that are filled */
    double untimed_ns; /* of steps that are left out */
} flame;

/* ---- from lines to a tree ---- */

static int32_t child_of(flame *f, int32_t parent, const char *name)
{
    int32_t last = -1;
    for (int32_t i = f->box[parent].first; i >= 0; i = f->box[i].next) {
        if (strcmp(f->box[i].name, name) == 0)
            return i;
        last = i;
    }
    int32_t i = f->n++;
    f->box[i] = (box){.name = name, .parent = parent, .first = -1, .next = -1};
    *(last < 0 ? &f->box[parent].first : &f->box[last].next) = i;
    f->box[parent].n_children++;
    return i;
}

/* Reads "step;op;layer 81250" lines, which it takes apart in place. */
static void read_stacks(flame *f, char *text)
{
    char *rest = NULL;
    f->box[f->n++] = (box){.name = "all", .parent = -1, .first = -1, .next = -1};
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char *number = strrchr(line, ' '), *names = NULL;
        if (!number)
            continue;
        *number++ = '\0';
        double ns = strtod(number, NULL);
        int32_t at = 0;
        size_t len = strlen(line), tail = sizeof TRACE_UNTIMED - 1;
        if (len > tail && strcmp(line + len - tail, TRACE_UNTIMED) == 0) {
            f->untimed_ns += ns;
            continue;
        }
        f->box[0].ns += ns;
        for (char *name = strtok_r(line, ";", &names); name; name = strtok_r(NULL, ";", &names)) {
            vt_text_clean_line(name);
            at = child_of(f, at, name);
            f->box[at].ns += ns;
        }
    }
}

/* ---- drawing ---- */

/* Fills a row up to cell `to` with a box that begins at `from`: as much of the text as fits. */
static void put_box(flame *f, int32_t depth, int32_t from, int32_t to, const char *text)
{
    vt_buf *b = &f->row[depth];
    while (f->at[depth] < from) {
        vt_buf_putc(b, ' ');
        f->at[depth]++;
    }
    vt_buf_puts(b, "│");
    int32_t left = to - from - 1;
    while (*text && left > 0) {
        size_t n = 1;
        while ((text[n] & 0xc0) == 0x80)
            n++;
        int32_t width = vt_text_width(text, n);
        if (width > left)
            break;
        vt_buf_add(b, text, n);
        left -= width;
        text += n;
    }
    for (; left > 0; left--)
        vt_buf_putc(b, ' ');
    f->at[depth] = to;
}

/* "L18 1.2 %" */
static void put_share(vt_buf *b, const flame *f, const box *x)
{
    double share = f->box[0].ns > 0 ? 100 * x->ns / f->box[0].ns : 0;
    vt_buf_printf(b, share < 9.95 ? "%s %.1f %%" : "%s %.0f %%", x->name, share);
}

static int larger_first(const void *a, const void *b)
{
    const box *const *x = a, *const *y = b;
    return ((*x)->ns < (*y)->ns) - ((*x)->ns > (*y)->ns);
}

static void draw(flame *f, const box *parent, int32_t depth);

/* Draws the children list[0..n) into the cells of their parent. */
static void draw_children(flame *f, box **list, int32_t n, int32_t depth)
{
    const box *parent = &f->box[list[0]->parent];
    double cells = parent->to - parent->from, sum = 0;
    int32_t shown = 0;
    while (shown < n && list[shown]->ns / parent->ns * cells >= LEAST_CELLS)
        shown++;
    for (int32_t i = 0; i < shown; i++) {
        vt_buf text = {0};
        box *x = list[i];
        x->from = parent->from + (int32_t)lround(sum / parent->ns * cells);
        sum += x->ns;
        x->to = parent->from + (int32_t)lround(sum / parent->ns * cells);
        put_share(&text, f, x);
        put_box(f, depth, x->from, x->to, text.failed ? "" : text.data);
        vt_buf_release(&text);
        draw(f, x, depth + 1);
    }
    int32_t from = parent->from + (int32_t)lround(sum / parent->ns * cells);
    if (shown == n || parent->to - from < 1)
        return;
    vt_buf text = {0};
    if (shown)
        vt_buf_printf(&text, parent->to - from > 8 ? "%d more" : "+%d", n - shown);
    else
        vt_buf_printf(&text, "%d %s, most ", n, depth == DEPTH - 1 ? "layers" : "ops");
    if (!shown)
        put_share(&text, f, list[0]);
    put_box(f, depth, from, parent->to, text.failed ? "" : text.data);
    vt_buf_release(&text);
}

static void draw(flame *f, const box *parent, int32_t depth)
{
    int32_t n = 0;
    if (depth == DEPTH || parent->n_children == 0)
        return;
    box **list = calloc((size_t)parent->n_children, sizeof(box *));
    if (!list) {
        f->row[depth].failed = true;
        return;
    }
    for (int32_t i = parent->first; i >= 0; i = f->box[i].next)
        list[n++] = &f->box[i];
    qsort(list, (size_t)n, sizeof(box *), larger_first);
    draw_children(f, list, n, depth);
    free((void *)list);
}

static void draw_all(flame *f, const vt_term *term, vt_buf *out)
{
    box *all = &f->box[0];
    all->to = vt_term_wide(term) - 1;
    vt_buf text = {0};
    vt_text_time(&text, all->ns * 1e-9);
    vt_buf_puts(&text, f->untimed_ns > 0 ? " of steps whose calls were timed" : " of steps");
    put_box(f, 0, 0, all->to, text.failed ? "" : text.data);
    vt_buf_release(&text);
    draw(f, all, 1);
    for (int d = 0; d < DEPTH && f->at[d] > 0; d++) {
        vt_buf_add(out, f->row[d].data, f->row[d].len);
        vt_buf_puts(out, "│\n");
    }
    if (f->untimed_ns > 0) {
        vt_buf_puts(out, "Left out: ");
        vt_text_time(out, f->untimed_ns * 1e-9);
        vt_buf_puts(out, " of steps whose calls were not timed.\n");
    }
}

vt_status story_flame(const story_file *file, const vt_term *term, vt_buf *out, vt_err *err)
{
    vt_buf text = {0};
    flame f = {0};
    vt_status status = story_export(file, "folded", &text, err);
    vt_buf_putc(&text, '\0');
    int32_t lines = 1;
    for (size_t i = 0; status == VT_OK && i < text.len; i++)
        lines += text.data[i] == '\n';
    if (status == VT_OK && (text.failed || !(f.box = calloc((size_t)lines * DEPTH, sizeof *f.box))))
        status = vt_fail(err, VT_ERR_MEMORY, "out of memory for a flame graph");
    if (status == VT_OK) {
        read_stacks(&f, text.data);
        if (f.box[0].ns > 0)
            draw_all(&f, term, out);
        else
            status = vt_fail(err, VT_ERR_USAGE, "%s: the story has no steps to draw", file->name);
    }
    for (int d = 0; d < DEPTH; d++) {
        out->failed |= f.row[d].failed;
        vt_buf_release(&f.row[d]);
    }
    free(f.box);
    vt_buf_release(&text);
    return status;
}
