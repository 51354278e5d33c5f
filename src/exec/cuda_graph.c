/* Running a step as CUDA graphs.
 *
 * A step's calls are cut into pieces, and each piece that is padded to a bucket has a graph:
 *
 *   calls:           n_before            n_body   n_forward   n_calls
 *                    |                   |        |           |
 *   decode           |      layers + head         |  sample   |
 *   prefill, mixed   |      layers       |  head  |  sample   |
 *
 *   key of a graph   the calls that it covers, and of the bucket:
 *     layers         tokens, sequences, decodes and their tokens, items and variants of the plans
 *     head, sample   rows, items and variants of the plans of calls for rows
 *     layers + head  both
 *
 * Two pieces with equal keys (step_piece, compared as bytes) launch the same kernels with the same
 * grids and addresses, so one graph serves both.
 *
 * Sampling is a piece of its own, so that masks may arrive while the forward pass runs (a held step
 * is launched up to n_forward, and the rest when it is sampled), and so that all kinds of steps
 * share its graphs: there is one for each row bucket. The price is one launch
 * gap per step, and the head's last kernel does not overlap sampling's first
 * (VITRINE_CUDA_ONE_GRAPH=1 joins the two pieces where the step is not held: options.one_graph).
 * The layers of a prefill are kept apart from its head because rows and tokens are padded to
 * buckets independently: one piece for both would need a graph for every pair of buckets.
 *
 * Decode graphs are captured at start-up, from the largest to the smallest, for one token a
 * sequence and with variant 0 of every plan; a step that needs another variant, or whose decodes
 * bring several tokens, has its graph captured when it is first met, as prefill and mixed steps
 * have. Which of the many prefill and mixed buckets a process meets depends on its requests, so
 * each of these is captured when it is first met: the step is launched call by call, then captured
 * while the device works on it.
 *
 * At most max_graphs are kept. When a shape is met that has none, and the cache is full:
 *
 *   first time    its key goes into missed[], which keeps MISSED keys; the piece runs call by call
 *   second time   the graph that was launched longest ago goes, and the shape gets its place
 *
 * So a shape that comes once displaces nothing, and a capture (about 1 ms of the host) is paid for
 * by later steps. A graph that a step in flight may still run stays. After a capture that failed,
 * none is tried for RETRY_STEPS steps.
 *
 * What ran before a graph decides for how long its kernels overlap. On an H200 a decode step of the
 * 0.6B shape (batch 1, contexts of 250 tokens and more) takes 583 us or 604 us, and stays at one
 * of the two for thousands of steps:
 *
 *   583 us   after a prefill that ran as a graph; after calls that were launched one by one behind
 *            a running step, each with leave to overlap the one before
 *   604 us   after a prefill that was launched call by call; after a step whose kernels were kept
 *            apart, or had events between them, to be timed
 *
 * Why is not known: it is the same whatever division of the L1 the kernels are given. Nor is the
 * overlap always a gain (0.6B, batch 64: 1,595 and 1,500 us). So nothing is chosen here. But a
 * timed step must not slow down those after it: when it has ended the overlap, the next decode
 * launches its first calls one by one before its graph, which computes them again. Three calls are
 * enough, and cost 8 us.
 *
 * The driver keeps host memory for each graph: on an H200 about 8 KiB a node, 2 MiB for the layers
 * of the 0.6B shape, so some 400 MiB for 192 graphs. How much it is per node is measured while the
 * decode graphs are captured (cuda_start.c). */
#include <string.h>

#include "base/err.h"
#include "base/random.h"
#include "exec/cuda_inside.h"

enum { RESTORE_CALLS = 3 };

/* Copies into the piece's key the item counts and variants of the plans that its calls use: the
 * plans of calls for rows (`rows`), or those of the other calls. */
static void copy_items(const cuda_executor *x, const step_shape *s, bool rows, step_piece *piece)
{
    for (int32_t i = 0; i < x->prog->n_plans; i++)
        if ((x->prog->plan[i].when == VT_WHEN_ROWS) == rows &&
            x->prog->plan[i].when != VT_WHEN_COPIES) {
            piece->items[i] = s->items[i];
            piece->variant[i] = s->variant[i];
        }
}

/* 1. at[] becomes the borders of the pieces: always n_before and n_calls; n_body where the head is
 *    apart from the layers, n_forward where sampling is apart from the head. A step without rows of
 *    logits runs neither head nor sampling, so it is one piece. A program that ends in sums of
 *    hidden states has the norm of the rows and these sums in place of the head, and no sampling.
 * 2. A piece's key gets the sizes that its calls depend on. All other fields stay 0, which lets
 *    steps that differ only in those share the graph. */
int32_t cuda_graph_cut(const cuda_executor *x, const step_shape *s, step_piece piece[MAX_PIECES])
{
    int32_t at[MAX_PIECES + 1] = {x->prog->n_before}, n = 0;
    if (s->size.rows > 0 && !s->decode)
        at[++n] = x->n_body;
    bool joined = x->options.one_graph && !s->held;
    if (s->size.rows > 0 && !joined && x->prog->n_forward < x->prog->n_calls)
        at[++n] = x->prog->n_forward;
    at[++n] = x->prog->n_calls;
    for (int32_t i = 0; i < n; i++) {
        piece[i] = (step_piece){.begin = at[i], .end = at[i + 1]};
        if (at[i] == x->prog->n_before) {
            piece[i].tokens = s->size.tokens;
            piece[i].seqs = s->size.seqs;
            piece[i].decodes = s->size.decodes;
            piece[i].decode_tokens = s->size.decode_tokens;
            copy_items(x, s, false, &piece[i]);
        }
        if (at[i + 1] > x->n_body) {
            piece[i].rows = s->size.rows;
            copy_items(x, s, true, &piece[i]);
        }
    }
    return n;
}

bool cuda_graph_may_be(const step_shape *s, const step_piece *p)
{
    return s->decode || (p->tokens > 0 ? s->body : s->tail);
}

static piece_graph *find(cuda_executor *x, const step_piece *p)
{
    for (int32_t i = 0; i < x->n_graphs; i++)
        if (memcmp(&x->graph[i].piece, p, sizeof *p) == 0)
            return &x->graph[i];
    return NULL;
}

/* Restores the overlap before a decode's graph. Stories count the graph's kernels alone. */
static vt_status restore_overlap(cuda_executor *x, vt_err *err)
{
    int32_t n = x->lane.n_launches;
    TRY(cuda_run_calls(x, x->prog->n_before, x->prog->n_before + RESTORE_CALLS, err));
    x->lane.n_launches = n;
    return VT_OK;
}

/* n pieces were launched; `graphs` of them have graphs, and ran as them unless `apart`. */
static void note_overlap(cuda_executor *x, const step_shape *s, int32_t graphs, int32_t n,
                         bool apart)
{
    bool before = x->overlapping || x->restore;
    bool after = s->decode ? before || graphs < n : graphs == n;
    x->overlapping = after && !apart;
    x->restore = after && apart;
}

vt_status cuda_graph_run(cuda_executor *x, const step_shape *s, int32_t begin, int32_t end,
                         bool apart, vt_err *err)
{
    step_piece piece[MAX_PIECES];
    int32_t all = cuda_graph_cut(x, s, piece), n = 0, graphs = 0;
    bool again = x->restore && s->decode && !apart && begin == x->prog->n_before;
    if (again && !x->comm.group && !x->lane.stamps) /* ranks meet once in a call */
        TRY(restore_overlap(x, err));
    for (int32_t i = 0; i < all; i++) {
        if (piece[i].begin < begin || piece[i].end > end)
            continue;
        n++;
        if (x->lane.stamps && !apart) {
            TRY(cuda_stamped_run(x, s, &piece[i], &graphs, err));
            continue;
        }
        piece_graph *g = cuda_graph_may_be(s, &piece[i]) ? find(x, &piece[i]) : NULL;
        graphs += g != NULL;
        if (g && !apart) {
            g->used = x->launched;
            TRY(cuda_graph_launch(&x->lane, &g->graph, err));
        } else {
            TRY(cuda_run_calls(x, piece[i].begin, piece[i].end, err));
        }
    }
    note_overlap(x, s, graphs, n, apart);
    return VT_OK;
}

/* ---- capturing ---- */

/* Returns true if the piece found the cache full before; notes that it does now. */
static bool was_missed(cuda_executor *x, const step_piece *p)
{
    uint64_t key = vt_fnv1a(VT_FNV_OFFSET, p, sizeof *p);
    uint32_t n = x->n_missed < MISSED ? x->n_missed : MISSED;
    for (uint32_t i = 0; i < n; i++)
        if (x->missed[i] == key)
            return true;
    x->missed[x->n_missed++ % MISSED] = key;
    return false;
}

/* The graph that was launched longest ago and that no step in flight runs; NULL: none. */
static piece_graph *least_recent(cuda_executor *x)
{
    piece_graph *oldest = NULL;
    for (int32_t i = 0; i < x->n_graphs; i++) {
        piece_graph *g = &x->graph[i];
        if (g->used < x->waited && (!oldest || g->used < oldest->used))
            oldest = g;
    }
    return oldest;
}

/* A place for the piece's graph; NULL: it gets none now. */
static piece_graph *make_place(cuda_executor *x, const step_piece *p)
{
    if (x->n_graphs < x->max_graphs)
        return &x->graph[x->n_graphs++];
    piece_graph *g = was_missed(x, p) ? least_recent(x) : NULL;
    if (g) {
        x->graph_nodes -= g->graph.n_nodes;
        cuda_graph_release(x->cuda, &g->graph);
    }
    return g;
}

/* The last graph takes the place of one that was not made. */
static void give_up_place(cuda_executor *x, piece_graph *g)
{
    *g = x->graph[--x->n_graphs];
    x->graph[x->n_graphs] = (piece_graph){0};
}

vt_status cuda_graph_capture_piece(cuda_executor *x, const step_piece *p, cuda_graph *out,
                                   vt_err *err)
{
    TRY(cuda_graph_begin(&x->lane, err));
    vt_status status = cuda_run_calls(x, p->begin, p->end, err);
    vt_status ended = cuda_graph_end(&x->lane, out, status == VT_OK ? err : NULL);
    if (status != VT_OK) /* the captured graph lacks the calls after the failed one */
        cuda_graph_release(x->cuda, out);
    TRY(status);
    return ended;
}

vt_status cuda_graph_capture(cuda_executor *x, const step_shape *s, vt_err *err)
{
    step_piece piece[MAX_PIECES];
    int32_t n = cuda_graph_cut(x, s, piece);
    for (int32_t i = 0; i < n && x->launched >= x->capture_from; i++) {
        if (!cuda_graph_may_be(s, &piece[i]) || find(x, &piece[i]))
            continue;
        piece_graph *g = make_place(x, &piece[i]);
        if (!g)
            continue;
        *g = (piece_graph){.piece = piece[i], .used = x->launched};
        vt_status status = cuda_graph_capture_piece(x, &piece[i], &g->graph, err);
        if (status != VT_OK) {
            give_up_place(x, g);
            x->capture_from = x->launched + (uint64_t)x->retry_steps;
            return status;
        }
        x->captures++;
        x->graph_nodes += g->graph.n_nodes;
    }
    return VT_OK;
}
