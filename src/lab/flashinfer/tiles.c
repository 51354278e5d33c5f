/* Drawings of the tiles of prefill attention (flashinfer/tiles.h). */
#include "lab/flashinfer/tiles.h"

void lab_put_softmax(vt_buf *b, const lab_heads *h, const vt_cut *cut, int32_t tokens, double moved)
{
    int32_t group = h->heads / h->kv_heads, rows = cut->tile[0], keys = cut->tile[2];
    double scores = (double)h->heads * tokens * tokens * 4;
    vt_buf_printf(b,
                  "for each item: %d rows of Q (%d token%s x the %d heads of a KV head), %d wide\n"
                  "  m = -inf   l = 0   O = 0               a row's maximum, sum and output\n"
                  "  for each %d keys of K and V, up to the row's own position\n"
                  "    S = Q K^T * scale                      %d x %d scores, kept on the chip\n"
                  "    m' = max(m, rows of S)                 the maximum may rise ...\n"
                  "    P = 2^(S - m')                         ... so what was summed before\n"
                  "    l = l * 2^(m - m') + rows of P         is scaled down to the new maximum\n"
                  "    O = O * 2^(m - m') + P V,   m = m'\n"
                  "  O = O / l                                one division at the end\n",
                  rows, rows / group > 0 ? rows / group : 1, vt_text_s(rows / group), group, h->dim,
                  keys, rows, keys);
    vt_text_printf(b,
                   "The scores of all heads would be %f B for %d tokens: never stored. Q, K, V, O: "
                   "%f B.\n",
                   scores, tokens, moved);
}

void lab_put_tiles(vt_buf *b, const lab_heads *h, const vt_cut *cut, int32_t tokens)
{
    enum { MOST_LINES = 12, MOST_COLUMNS = 48 };
    int32_t group = h->heads / h->kv_heads, a_tile = cut->tile[0] / group, keys = cut->tile[2];
    a_tile = a_tile > 0 ? a_tile : 1;
    int32_t q_tiles = (int32_t)vt_ceil_div(tokens, a_tile),
            blocks = (int32_t)vt_ceil_div(tokens, keys);
    int64_t computed = 0;
    vt_buf_printf(b, "Q tiles down (%d tokens each), K blocks across (%d keys each)\n", a_tile,
                  keys);
    for (int32_t q = 0; q < q_tiles; q++) {
        int32_t first = q * a_tile,
                last = first + a_tile - 1 < tokens ? first + a_tile - 1 : tokens - 1;
        bool shown = q < MOST_LINES - 1 || q == q_tiles - 1;
        if (shown)
            vt_buf_printf(b, "  tokens %4d..%4d  ", first, last);
        else if (q == MOST_LINES - 1)
            vt_buf_puts(b, "  ...\n");
        for (int32_t k = 0; k < blocks; k++) {
            bool any = k * keys <= last, all = (k + 1) * keys - 1 <= first;
            computed += any;
            if (shown && k < MOST_COLUMNS)
                vt_buf_puts(b, !any ? "·" : all ? "█" : "▒");
        }
        if (shown)
            vt_buf_putc(b, '\n');
    }
    vt_buf_printf(b,
                  "█ every score is wanted   ▒ the causal mask cuts through it   · never computed\n"
                  "%d Q tiles x %d K blocks = %d pairs, of which %lld are computed (%.0f %%)\n",
                  q_tiles, blocks, q_tiles * blocks, (long long)computed,
                  100.0 * (double)computed / (q_tiles * blocks));
}
