/* Pages of the KV cache: layout, append, size (flashinfer/pages.h). */
#include "lab/flashinfer/pages.h"

#include "base/err.h"
#include "ops/cases.h"

/* The batch of the page size measurements. */
enum { SEQS = 4, KV = 2048, SMALL_SEQS = 1, SMALL_KV = 200, MAX_SIZES = 9 };

/* A real page table: two sequences in a pool whose pages were handed out in any order. */
static vt_status tell_layout(lab *l, const lab_heads *h, vt_err *err)
{
    vt_arena arena;
    vt_buf b = {0};
    uint64_t state = 3;
    vt_arena_init(&arena, 0);
    case_seq seq[] = {{1, 5 * h->page - h->page / 2}, {1, 3 * h->page}};
    vt_batch *t = case_batch(&arena, h->page, 2, seq, true, 100, &state);
    if (!t) {
        vt_arena_release(&arena);
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for a page table");
    }
    vt_buf_printf(&b,
                  "pool of K, and the same of V:  [pages, %d KV heads, %d tokens, %d]  %s\n"
                  "a page of one head is %d rows of %d: contiguous, so a tile is few wide reads\n",
                  h->kv_heads, h->page, h->dim, h->kv, h->page, h->dim);
    for (int s = 0; s < 2; s++) {
        vt_buf_printf(&b, "sequence %d, %4d tokens  pages ", s, t->kv_len[s]);
        for (int32_t p = t->page_start[s]; p < t->page_start[s + 1]; p++)
            vt_buf_printf(&b, "[%2d]", t->page_ids[p]);
        int32_t last = (t->kv_len[s] - 1) % h->page + 1;
        vt_buf_printf(&b, "  last page: %d of %d used\n", last, h->page);
    }
    int32_t pos = t->kv_len[0] - 1, page = t->page_ids[t->page_start[0] + pos / h->page];
    vt_buf_printf(
        &b,
        "append: position %d of sequence 0 -> page list[%d] = %d, row %d of it -> slot %d\n"
        "the page list is CSR: page_start = 0 %d %d, page_ids as above, all int32\n",
        pos, pos / h->page, page, pos % h->page, t->slot[0], t->page_start[1], t->page_start[2]);
    lab_check(l, t->slot[0] == page * h->page + pos % h->page,
              "the slot of position %d is page %d times %d plus %d: %d, the batch says %d", pos,
              page, h->page, pos % h->page, page * h->page + pos % h->page, t->slot[0]);
    lab_drawing(l, "page_layout", "where a token's KV lies", &b);
    vt_buf_release(&b);
    vt_arena_release(&arena);
    return VT_OK;
}

static vt_status tell_append(lab *l, const lab_heads *h, vt_err *err)
{
    lab_kernel k;
    int32_t tokens = 32;
    TRY(lab_run_shape(l, "kv_store", NULL, &k, err,
                      "tokens=%d,decodes=%d,kv_heads=%d,head_dim=%d,kv_type=%s,page=%d", tokens,
                      tokens, h->kv_heads, h->dim, h->kv, h->page));
    vt_buf time = {0};
    vt_text_figure(&time, k.median_s, VT_SECONDS);
    lab_item(
        l, "append",
        "each of %d sequences appends one token: K and V of %d heads of %d, %.0f bytes a token "
        "and layer, to %d places that have nothing to do with each other. kv_store/%s takes "
        "%s, %.0f bytes read and written in all. Bound: %s",
        tokens, h->kv_heads, h->dim, k.bytes / tokens, tokens, k.impl,
        time.data ? time.data : "n/a", k.bytes, k.bound);
    vt_buf_release(&time);
    return VT_OK;
}

static vt_status run_page(lab *l, const lab_heads *h, int32_t page, lab_kernel *out, vt_err *err)
{
    char heads[120];
    lab_heads sized = *h;
    sized.page = page;
    lab_heads_text(&sized, heads, sizeof heads);
    return lab_run_shape(l, "attention_decode", NULL, out, err, "seqs=%d,kv_len=%d,%s",
                         l->emulated ? SMALL_SEQS : SEQS, l->emulated ? SMALL_KV : KV, heads);
}

static void turn_pages(lab *l, const int32_t *page, const lab_kernel *k, int32_t n)
{
    const lab_kernel *one = NULL, *sixteen = NULL, *most = &k[n - 1];
    for (int32_t i = 0; i < n; i++) {
        one = page[i] == 1 ? &k[i] : one;
        sixteen = page[i] == 16 ? &k[i] : sixteen;
    }
    if (!one || !sixteen)
        return;
    lab_turn_kernels(l, "page size: 16, not 1", "--page-size", "attention_decode",
                     lab_over(one->bytes, sixteen->bytes), one, sixteen,
                     "KV bytes are the same; only the page list shrinks, 4 bytes a page. What else "
                     "is gained is addresses: one look-up in the list for each page and head");
    lab_turn_kernels(l, "page size: 256, not 16", "--page-size", "attention_decode",
                     lab_over(sixteen->bytes, most->bytes), sixteen, most,
                     "the list is small already, and larger pages waste more of each sequence's "
                     "last page and share fewer prefixes");
}

static vt_status tell_size(lab *l, const lab_heads *h, vt_err *err)
{
    static const int32_t every[] = {1, 2, 4, 8, 16, 32, 64, 128, 256}, few[] = {1, 16, 256};
    bool short_list = l->quick || l->emulated;
    const int32_t *page = short_list ? few : every;
    int32_t n = short_list ? 3 : 9, seqs = l->emulated ? SMALL_SEQS : SEQS,
            kv = l->emulated ? SMALL_KV : KV;
    lab_kernel k[MAX_SIZES];
    lab_table(l, "page_size",
              short_list ? "1, 16 and 256 here; all powers of two in the full form"
                         : "the same KV in pages of other sizes",
              "page|>pages|>page list|>wasted at most|runs as|>time|>of roof|>error");
    for (int32_t i = 0; i < n; i++) {
        int32_t pages = seqs * (int32_t)vt_ceil_div(kv, page[i]);
        TRY(run_page(l, h, page[i], &k[i], err));
        lab_cells(l, "%d|%d|%f B|%f B|%s|%f s|%f share|%.1e", page[i], pages, 4.0 * pages,
                  (page[i] - 1) * 2.0 * h->kv_heads * h->dim * 2, k[i].impl, k[i].median_s,
                  k[i].of_roof, k[i].error);
    }
    turn_pages(l, page, k, n);
    return VT_OK;
}

/* Sequences whose first pages are the same ones, as a prefix cache leaves them. */
static vt_status turn_shared(lab *l, const lab_heads *h, vt_err *err)
{
    char heads[120];
    lab_kernel own, shared;
    int32_t seqs = l->emulated      ? 6
                   : l->ordinal < 0 ? 8
                                    : 64,
            kv = l->emulated ? 100 : KV, pages = kv * 3 / 4 / h->page;
    lab_heads_text(h, heads, sizeof heads);
    TRY(lab_run_shape(l, "attention_decode", NULL, &own, err, "seqs=%d,kv_len=%d,%s", seqs, kv,
                      heads));
    TRY(lab_run_shape(l, "attention_decode", own.impl, &shared, err,
                      "seqs=%d,kv_len=%d,%s,shared=%d", seqs, kv, heads, pages));
    lab_turn_kernels(
        l, "shared pages",
        l->ordinal < 0 ? "a common prefix; on a GPU VITRINE_CUDA_SHARED" : "VITRINE_CUDA_SHARED",
        shared.shape,
        lab_over(own.bytes + own.extra_bytes,
                 shared.bytes + (l->ordinal < 0 ? shared.extra_bytes : 0)),
        &own, &shared,
        l->ordinal < 0 ? "a task computes several of the sequences and reads the pages that they "
                         "share once for all of them; expected is what these tasks read"
                       : "the pages that sequences share are read once for all of them, where "
                         "that saves enough rows; expected is that all of them are read once, by "
                         "those that share: every seventh sequence of this case has pages of its "
                         "own");
    return VT_OK;
}

vt_status lab_tell_pages(lab *l, const lab_heads *h, vt_err *err)
{
    TRY(tell_layout(l, h, err));
    TRY(tell_append(l, h, err));
    TRY(tell_size(l, h, err));
    return turn_shared(l, h, err);
}
