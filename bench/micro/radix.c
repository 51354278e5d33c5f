/* make build/release/libvitrine_internal.a && gcc -O2 -D_GNU_SOURCE -Iinclude -Isrc
 * bench/micro/radix.c \
 *     build/release/libvitrine_internal.a -ljansson -lm -lpthread -o build/bench_radix &&
 *     build/bench_radix
 *
 * The prefix cache: a lookup of a prompt that is cached as a whole, among many others that share
 * its first half; an insertion of a page; an eviction. Best of several rounds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "kv/radix.h"

enum { PROMPTS = 64, ROUNDS = 20 };

static void write_prompt(int32_t *t, int32_t n, int32_t which)
{
    for (int32_t i = 0; i < n; i++)
        t[i] = i < n / 2 ? i * 13 % 5000 : (which * 7919 + i * 31) % 50000;
}

/* As a sequence that ran: pages taken, entered one by one, let go. Returns the time of the
 * entering. */
static int64_t remember(vt_radix *r, int32_t tenant, const int32_t *token, int32_t n, int32_t *page)
{
    int32_t size = r->page_size, n_pages = n / size;
    int32_t hit = vt_radix_find(r, tenant, token, n, 1, page).n_pages;
    vt_radix_hold(r, page, hit);
    vt_radix_take(r, n_pages - hit, page + hit, VT_EVICT_ADMIT);
    int64_t begin = vt_now_ns();
    for (int32_t i = hit; i < n_pages; i++)
        vt_radix_insert(r, tenant, i > 0 ? page[i - 1] : -1, token + i * size, size, page[i], 0);
    int64_t took = vt_now_ns() - begin;
    vt_radix_drop(r, page, n_pages);
    return took;
}

static void run(int32_t n, int32_t size)
{
    int32_t pages = (PROMPTS + 1) * (n / size), *token = calloc((size_t)n, sizeof *token);
    int32_t *page = calloc((size_t)(n / size), sizeof *page),
            *ids = calloc((size_t)pages, sizeof *ids);
    int64_t find = INT64_MAX, insert = INT64_MAX, evict = INT64_MAX;
    for (int32_t round = 0; round < ROUNDS; round++) {
        vt_radix r;
        if (vt_radix_init(&r, pages, size, 4, NULL) != VT_OK)
            exit(1);
        int32_t tenant = vt_radix_join(&r, "", 0, 0);
        for (int32_t k = 0; k < PROMPTS; k++) {
            write_prompt(token, n, k);
            int64_t took = remember(&r, tenant, token, n, page);
            insert = k > 0 && took < insert ? took : insert;
        }
        for (int32_t k = 0; k < PROMPTS; k++) {
            write_prompt(token, n, k);
            int64_t begin = vt_now_ns();
            vt_radix_match m = vt_radix_find(&r, tenant, token, n, 1, page);
            int64_t took = vt_now_ns() - begin;
            find = m.n_pages == n / size && took < find ? took : find;
        }
        int64_t begin = vt_now_ns();
        vt_radix_take(&r, pages, ids, VT_EVICT_ADMIT);
        int64_t took = vt_now_ns() - begin;
        evict = took < evict ? took : evict;
        vt_radix_release(&r);
    }
    printf("prompts of %5d tokens, pages of %2d: find %7.2f us (%.0f ns a page), insert %.0f ns a "
           "page, "
           "evict %.0f ns a page\n",
           n, size, (double)find * 1e-3, (double)find / (n / size),
           (double)insert / (n / size - n / 2 / size),
           (double)evict / ((double)(PROMPTS + 1) * n / size / 2));
    free(token);
    free(page);
    free(ids);
}

int main(void)
{
    run(512, 16);
    run(2048, 16);
    run(8192, 16);
    run(8192, 64);
    return 0;
}
