/* A step as graphs.
 *
 *   decode          | layers + head | sample |      both by sequences (of the bucket)
 *   prefill, mixed  | layers | head | sample |      layers by tokens and plan items, others by rows
 *
 * Sampling stands alone, so that masks may come while the forward pass runs, and so that all steps
 * share it: a row bucket has one graph. The price is a launch gap a step, and that the head's last
 * kernel does not overlap with sampling's first (options.one_graph: VITRINE_CUDA_ONE_GRAPH=1 joins
 * them). The layers of a prefill stand apart from its head because rows and tokens have buckets of
 * their own: together they would be a graph for every pair.
 *
 * Decode graphs are captured at start-up, from the largest to the smallest. Which of the many
 * prefill and mixed buckets a process meets depends on its requests, so these are captured when
 * they are met: the step is launched call by call, then captured while the device works on it. */
#include <string.h>

#include "base/err.h"
#include "exec/cuda_inside.h"

/* The items of the plans that a piece's calls use. */
static void copy_items(const cuda_executor *x, const step_shape *s, bool rows, step_piece *piece)
{
    for (int32_t i = 0; i < x->prog->n_plans; i++)
        if ((x->prog->plan[i].when == VT_WHEN_ROWS) == rows &&
            x->prog->plan[i].when != VT_WHEN_COPIES)
            piece->items[i] = s->items[i];
}

int32_t cuda_graph_cut(const cuda_executor *x, const step_shape *s, step_piece piece[MAX_PIECES])
{
    int32_t at[MAX_PIECES + 1] = {x->prog->n_before}, n = 0;
    if (s->size.rows > 0 && !s->decode)
        at[++n] = x->n_body;
    if (s->size.rows > 0 && !x->options.one_graph)
        at[++n] = x->prog->n_forward;
    at[++n] = x->prog->n_calls;
    for (int32_t i = 0; i < n; i++) {
        piece[i] = (step_piece){.begin = at[i], .end = at[i + 1]};
        if (at[i] == x->prog->n_before) {
            piece[i].tokens = s->size.tokens;
            piece[i].seqs = s->size.seqs;
            piece[i].decodes = s->size.decodes;
            copy_items(x, s, false, &piece[i]);
        }
        if (at[i + 1] > x->n_body) {
            piece[i].rows = s->size.rows;
            copy_items(x, s, true, &piece[i]);
        }
    }
    return n;
}

static bool may_be_graph(const step_shape *s, const step_piece *p)
{
    return s->decode || (p->tokens > 0 ? s->body : s->tail);
}

static const piece_graph *find(const cuda_executor *x, const step_piece *p)
{
    for (int32_t i = 0; i < x->n_graphs; i++)
        if (memcmp(&x->graph[i].piece, p, sizeof *p) == 0)
            return &x->graph[i];
    return NULL;
}

vt_status cuda_graph_run(cuda_executor *x, const step_shape *s, bool apart, vt_err *err)
{
    step_piece piece[MAX_PIECES];
    int32_t n = cuda_graph_cut(x, s, piece);
    for (int32_t i = 0; i < n; i++) {
        bool whole = may_be_graph(s, &piece[i]) && !apart;
        const piece_graph *g = whole ? find(x, &piece[i]) : NULL;
        if (g)
            TRY(cuda_graph_launch(&x->lane, &g->graph, err));
        else
            TRY(cuda_run_calls(x, piece[i].begin, piece[i].end, err));
    }
    return VT_OK;
}

vt_status cuda_graph_capture(cuda_executor *x, const step_shape *s, vt_err *err)
{
    step_piece piece[MAX_PIECES];
    int32_t n = cuda_graph_cut(x, s, piece);
    for (int32_t i = 0; i < n && x->n_graphs < x->max_graphs; i++) {
        if (!may_be_graph(s, &piece[i]) || find(x, &piece[i]))
            continue;
        piece_graph *g = &x->graph[x->n_graphs];
        TRY(cuda_graph_begin(&x->lane, err));
        vt_status status = cuda_run_calls(x, piece[i].begin, piece[i].end, err);
        vt_status ended = cuda_graph_end(&x->lane, &g->graph, status == VT_OK ? err : NULL);
        if (status != VT_OK) /* what was captured lacks calls */
            cuda_graph_release(x->cuda, &g->graph);
        TRY(status);
        TRY(ended);
        g->piece = piece[i];
        x->n_graphs++;
    }
    return VT_OK;
}
