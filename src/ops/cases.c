/* Random arguments for op cards: see cases.h.
 *
 * Pages are dealt from one shuffled deck. So consecutive positions of a sequence lie on pages far
 * apart, neighbouring pages belong to different sequences, and a kernel that ignores the page table
 * fails. */
#include "ops/cases.h"

#include <math.h>
#include <string.h>

#include "base/quant.h"
#include "base/random.h"
#include "ops/linear/linear_impl.h"

enum { SPARE_PAGES = 3 };

uint64_t case_random(uint64_t *state) { return vt_random_next(state); }

float case_uniform(uint64_t *state) { return (float)(case_random(state) >> 40) * 0x1p-24f; }

float case_normal(uint64_t *state)
{
    /* Four uniforms of 16 bits: mean 2, variance 4 / 12. */
    uint64_t r = case_random(state);
    float sum = 0;
    for (int i = 0; i < 4; i++)
        sum += (float)((r >> (16 * i)) & 0xffff) * 0x1p-16f;
    return (sum - 2.0f) * 1.7320508f;
}

int64_t case_between(uint64_t *state, int64_t low, int64_t high)
{
    return low + (int64_t)(case_random(state) % (uint64_t)(high - low + 1));
}

int64_t case_few(uint64_t *state, int64_t most)
{
    return case_between(state, 1, case_between(state, 1, most));
}

static vt_tensor *new_tensor(vt_arena *arena, vt_dtype dtype, int32_t rank, const int64_t *dim)
{
    vt_tensor *t = vt_arena_alloc(arena, 1, sizeof *t);
    if (!t)
        return NULL;
    *t = (vt_tensor){.dtype = dtype, .rank = rank, .row_stride = dim[rank - 1]};
    size_t rows = 1;
    for (int32_t i = 0; i < rank; i++) {
        t->dim[i] = dim[i];
        if (i < rank - 1)
            rows *= (size_t)dim[i];
    }
    t->data = vt_arena_alloc(arena, rows, (size_t)vt_dtype_row_bytes(dtype, dim[rank - 1]));
    return t->data ? t : NULL;
}

vt_tensor *case_tensor_1d(vt_arena *arena, vt_dtype dtype, int64_t n)
{
    return new_tensor(arena, dtype, 1, (int64_t[]){n});
}

vt_tensor *case_tensor_2d(vt_arena *arena, vt_dtype dtype, int64_t rows, int64_t cols)
{
    return new_tensor(arena, dtype, 2, (int64_t[]){rows, cols});
}

vt_tensor *case_tensor_4d(vt_arena *arena, vt_dtype dtype, int64_t d0, int64_t d1, int64_t d2,
                          int64_t d3)
{
    return new_tensor(arena, dtype, 4, (int64_t[]){d0, d1, d2, d3});
}

vt_tensor *case_slice(vt_arena *arena, const vt_tensor *wide, int64_t begin, int64_t cols)
{
    vt_tensor *t = wide ? vt_arena_alloc(arena, 1, sizeof *t) : NULL;
    if (!t)
        return NULL;
    *t = *wide;
    t->data = (char *)wide->data + vt_dtype_row_bytes(wide->dtype, begin);
    t->dim[1] = cols;
    return t;
}

_Thread_local bool case_sizes_alone;

/* The number of rows with random numbers of their own. Later rows repeat these, because filling
 * large tensors would take long. It is a prime, so that a kernel's wrong tile or wrong stride still
 * shows. */
enum { DISTINCT_ROWS = 1021 };

vt_tensor *case_fill(vt_arena *arena, vt_tensor *t, float mean, float scale, uint64_t *state)
{
    if (!t || case_sizes_alone)
        return t;
    int64_t cols = t->dim[t->rank - 1], rows = vt_tensor_elems(t) / cols;
    float *row = vt_arena_alloc(arena, (size_t)cols, sizeof *row);
    if (!row)
        return NULL;
    int64_t stride = vt_dtype_row_bytes(t->dtype, t->row_stride);
    for (int64_t r = 0; r < rows; r++) {
        if (r >= DISTINCT_ROWS) {
            memcpy((char *)t->data + r * stride, (char *)t->data + r % DISTINCT_ROWS * stride,
                   (size_t)vt_dtype_row_bytes(t->dtype, cols));
            continue;
        }
        for (int64_t i = 0; i < cols; i++)
            row[i] = mean + scale * case_normal(state);
        vt_quant_row(t->dtype, row, (char *)t->data + r * stride, cols);
    }
    return t;
}

vt_weight *case_weight(vt_arena *arena, vt_dtype dtype, int32_t n_parts, const int64_t *rows,
                       int64_t cols, bool paired, uint64_t *state)
{
    vt_weight *w = vt_arena_alloc(arena, 1, sizeof *w);
    if (!w)
        return NULL;
    *w = (vt_weight){.n_parts = n_parts, .paired = paired, .cols = cols, .dtype = dtype};
    float scale = 1.0f / sqrtf((float)cols);
    for (int32_t i = 0; i < n_parts; i++) {
        w->part[i] = case_fill(arena, case_tensor_2d(arena, dtype, rows[i], cols), 0, scale, state);
        if (!w->part[i])
            return NULL;
        w->rows += rows[i];
    }
    return w;
}

const char *const case_scale_words[] = {
    [CASE_SCALE_NONE] = "none", [CASE_SCALE_ONE] = "one", [CASE_SCALE_BLOCKS] = "blocks", NULL};

bool case_scales(vt_arena *arena, vt_weight *w, bool blocks, uint64_t *state)
{
    for (int32_t i = 0; i < w->n_parts; i++) {
        int64_t rows = vt_ceil_div(w->part[i]->dim[0], LINEAR_SCALE_BLOCK),
                cols = vt_ceil_div(w->cols, LINEAR_SCALE_BLOCK);
        vt_tensor *t = blocks ? case_tensor_2d(arena, VT_F32, rows, cols)
                              : case_tensor_1d(arena, VT_F32, 1);
        w->scale[i] = case_fill(arena, t, 1, 0.25f, state);
        if (!w->scale[i])
            return false;
    }
    return true;
}

const int32_t *const *case_rows(vt_arena *arena, int64_t rows, int64_t tokens)
{
    int32_t *row = rows ? vt_arena_alloc(arena, (size_t)rows, sizeof *row) : NULL;
    const int32_t **index = row ? vt_arena_alloc(arena, 1, sizeof *index) : NULL;
    for (int64_t i = 0; index && i < rows; i++)
        row[i] = (int32_t)((i + 1) * tokens / rows - 1);
    if (index)
        *index = row;
    return index;
}

int64_t case_scales_of(const vt_weight *w)
{
    if (vt_weight_in_blocks(w))
        return CASE_SCALE_BLOCKS;
    if (w->dtype != VT_FP8_E4M3 || !w->scale[0])
        return CASE_SCALE_NONE;
    return vt_tensor_elems(w->scale[0]) > 1 ? CASE_SCALE_BLOCKS : CASE_SCALE_ONE;
}

/* The int32 arrays of a batch while it is being built. */
typedef struct batch_arrays {
    int32_t *token, *position, *seq_of, *slot, *q_start, *kv_len, *page_start, *page_ids,
        *row_token;
} batch_arrays;

static bool batch_arrays_alloc(batch_arrays *a, vt_arena *arena, const vt_batch *b)
{
    size_t tokens = (size_t)b->n_tokens, seqs = (size_t)b->n_seqs,
           pages = (size_t)case_batch_pages(b);
    a->token = vt_arena_alloc(arena, tokens, sizeof(int32_t));
    a->position = vt_arena_alloc(arena, tokens, sizeof(int32_t));
    a->seq_of = vt_arena_alloc(arena, tokens, sizeof(int32_t));
    a->slot = vt_arena_alloc(arena, tokens, sizeof(int32_t));
    a->q_start = vt_arena_alloc(arena, seqs + 1, sizeof(int32_t));
    a->kv_len = vt_arena_alloc(arena, seqs, sizeof(int32_t));
    a->page_start = vt_arena_alloc(arena, seqs + 1, sizeof(int32_t));
    a->page_ids = vt_arena_alloc(arena, pages, sizeof(int32_t)); /* the whole deck */
    a->row_token = vt_arena_alloc(arena, seqs, sizeof(int32_t));
    return a->token && a->position && a->seq_of && a->slot && a->q_start && a->kv_len &&
           a->page_start && a->page_ids && a->row_token;
}

int32_t case_batch_pages(const vt_batch *b) { return b->n_pages + SPARE_PAGES; }

vt_batch *case_batch(vt_arena *arena, int32_t page_size, int32_t n_seqs, const case_seq *seq,
                     bool decode, int32_t vocab, uint64_t *state)
{
    vt_batch *b = vt_arena_alloc(arena, 1, sizeof *b);
    if (!b)
        return NULL;
    *b = (vt_batch){.n_seqs = n_seqs, .n_rows = n_seqs, .page_size = page_size};
    for (int32_t s = 0; s < n_seqs; s++) {
        b->n_tokens += seq[s].q_len;
        b->n_pages += (int32_t)vt_ceil_div(seq[s].kv_len, page_size);
        if (decode && seq[s].q_len == 1 && b->n_decode == s)
            b->n_decode++;
    }
    batch_arrays a;
    if (!batch_arrays_alloc(&a, arena, b))
        return NULL;

    int32_t n_deck = case_batch_pages(b);
    for (int32_t i = 0; i < n_deck; i++) { /* inside-out shuffle */
        int32_t j = (int32_t)(case_random(state) % (uint64_t)(i + 1));
        a.page_ids[i] = a.page_ids[j];
        a.page_ids[j] = i;
    }
    int32_t t = 0;
    for (int32_t s = 0; s < n_seqs; s++) {
        int32_t pages = (int32_t)vt_ceil_div(seq[s].kv_len, page_size);
        a.page_start[s + 1] = a.page_start[s] + pages;
        a.kv_len[s] = seq[s].kv_len;
        for (int32_t i = 0; i < seq[s].q_len; i++, t++) {
            int32_t pos = seq[s].kv_len - seq[s].q_len + i;
            int32_t page = a.page_ids[a.page_start[s] + pos / page_size];
            a.token[t] = (int32_t)(case_random(state) % (uint64_t)vocab);
            a.position[t] = pos;
            a.seq_of[t] = s;
            a.slot[t] = page * page_size + pos % page_size;
        }
        a.q_start[s + 1] = t;
        a.row_token[s] = t - 1;
    }
    b->token = a.token, b->position = a.position, b->seq_of = a.seq_of, b->slot = a.slot;
    b->q_start = a.q_start, b->kv_len = a.kv_len;
    b->page_start = a.page_start, b->page_ids = a.page_ids, b->row_token = a.row_token;
    return b;
}

/* Lists the slots behind the tokens of the batch's last sequence, of which the last `guesses` are
 * guesses. False: out of memory. */
static bool keep_behind(vt_arena *arena, vt_batch *b, int32_t guesses)
{
    int32_t *behind = vt_arena_alloc(arena, (size_t)b->n_tokens, sizeof *behind),
            last = b->n_seqs - 1;
    for (int32_t t = 0; behind && t < b->n_tokens; t++) {
        int32_t nth = t - (b->n_tokens - 1 - guesses); /* 0: the token before the guesses */
        bool own = t == b->q_start[last] && b->state_from[last] >= 0;
        behind[t] = t == b->n_tokens - 1 || nth < 0 ? -1
                    : own                           ? b->state_from[last] /* as in the engine */
                                                    : 2 * b->n_seqs + nth;
    }
    b->state_behind = behind;
    return behind != NULL;
}

int64_t case_state_slots(const vt_batch *b)
{
    return 2 * (int64_t)b->n_seqs + vt_batch_states_behind(b);
}

int64_t case_guesses_of(const vt_batch *b, int64_t tokens)
{
    int64_t n = vt_batch_states_behind(b);
    return n < tokens ? n : tokens - 1;
}

vt_batch *case_stateful_batch(vt_arena *arena, int32_t decodes, int32_t tokens, int32_t guesses,
                              uint64_t *state)
{
    int32_t n = decodes + 1, *from = vt_arena_alloc(arena, (size_t)n, sizeof *from),
            *to = vt_arena_alloc(arena, (size_t)n, sizeof *to);
    case_seq *seq = vt_arena_alloc(arena, (size_t)n, sizeof *seq);
    if (!from || !to || !seq)
        return NULL;
    for (int32_t s = 0; s < decodes; s++)
        seq[s] = (case_seq){1, 1 + 11 * s};
    seq[decodes] = (case_seq){tokens, tokens + 5};
    vt_batch *b = case_batch(arena, 16, n, seq, true, 100, state);
    for (int32_t s = 0; b && s < n; s++) {
        from[s] = b->position[b->q_start[s]] == 0 ? -1 : 2 * s;
        to[s] = 2 * s + s % 2;
    }
    if (b) {
        b->state_from = from;
        b->state_to = to;
    }
    if (b && guesses > 0) {
        to[decodes] = 2 * decodes + 1; /* never the slot that it reads, which one behind takes */
        if (!keep_behind(arena, b, guesses))
            return NULL;
    }
    return b;
}

int64_t case_decodes_of(const vt_batch *b)
{
    return b->n_decode < b->n_tokens ? b->n_decode : b->n_tokens - 1;
}

bool case_batch_in_order(vt_arena *arena, vt_batch *b)
{
    int32_t n = case_batch_pages(b), next = 0, *id = (int32_t *)(uintptr_t)b->page_ids,
            *slot = (int32_t *)(uintptr_t)b->slot, /* the case's own arrays */
                *number = vt_arena_alloc(arena, (size_t)n,
                                         sizeof *number); /* by old number; 0: none yet */
    if (!number)
        return false;
    for (int32_t i = 0; i < b->n_pages; i++) {
        if (number[id[i]] == 0)
            number[id[i]] = ++next;
        id[i] = number[id[i]] - 1;
    }
    for (int32_t t = 0; t < b->n_tokens; t++) {
        int32_t page = slot[t] / b->page_size;
        if (number[page] == 0) /* another sequence's page took its place in the list */
            number[page] = ++next;
        slot[t] = (number[page] - 1) * b->page_size + slot[t] % b->page_size;
    }
    return true;
}

static bool pack_weight(const vt_packing *packing, vt_weight *w, vt_arena *arena)
{
    size_t bytes = packing ? packing->bytes(w) : 0;
    if (bytes == 0)
        return true;
    char *raw = vt_arena_alloc(arena, bytes + VT_CACHE_LINE, 1);
    if (!raw)
        return false;
    w->packed = raw + (VT_CACHE_LINE - (uintptr_t)raw % VT_CACHE_LINE);
    w->packed_bytes = bytes;
    w->packing = packing;
    vt_pack_all(packing, w, w->packed);
    return true;
}

bool case_pack(const vt_op *op, const vt_impl *impl, void *args, vt_arena *arena)
{
    vt_target here = vt_target_cpu(vt_cpu_get()->level, NULL);
    for (int32_t i = 0; i < op->n_operands; i++) {
        const vt_operand *o = &op->operands[i];
        bool several = o->kind == VT_OPERAND_WEIGHTS;
        if (!several && o->kind != VT_OPERAND_WEIGHT)
            continue;
        vt_weight *w = *(vt_weight **)((char *)args + o->offset); /* the case's own */
        int32_t n = several ? *(int32_t *)((char *)args + o->count) : 1;
        for (int32_t k = 0; k < n; k++) {
            const vt_packing *packing = impl->packing;
            if (several && !packing && !vt_op_packing(op, &w[k], &here, &packing))
                return false;
            if (!pack_weight(packing, &w[k], arena))
                return false;
        }
    }
    return true;
}

vt_limits case_limits(int32_t n_workers)
{
    return (vt_limits){.max_tokens = 4096,
                       .max_seqs = 256,
                       .max_rows = 4096,
                       .max_context = 8192,
                       .page_size = 16,
                       .n_workers = n_workers};
}
