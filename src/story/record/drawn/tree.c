/* "tree" of a story.json (docs/story-format.md).
 *
 * The engine records with which page a request's KV ends in the tree, and the step that wrote that
 * page. The page has the same step now unless it was evicted meanwhile: then the path is not known
 * any more, and the tree is shown without it. */
#include "story/record/drawn/tree.h"

#include "base/json_write.h"

enum { SHOWN = 40 };

/* The last page of the request's path; -1: it has none, or that page was evicted. */
static int32_t leaf_of(const story_input *in, const story_record *r)
{
    const request_record *q = r->mine;
    int32_t page = q ? q->left_page : -1;
    const vt_radix_nodes *t = in->tree;
    return page >= 0 && page < t->n_pages && t->in_tree[page] && t->step[page] == q->left_step
               ? page
               : -1;
}

/* Pages that were given up while the story lasted, by why. */
static void put_evicted(vt_json *w, const story_record *r)
{
    static const char *const key[VT_EVICT_CAUSES] = {[VT_EVICT_ADMIT] = "for_prompts",
                                                     [VT_EVICT_GROW] = "for_growth",
                                                     [VT_EVICT_COVERED] = "covered",
                                                     [VT_EVICT_FLUSH] = "flushed"};
    int64_t n[VT_EVICT_CAUSES] = {0}, begin = story_origin(r),
            end = r->mine && r->mine->finish_ns > 0 ? r->mine->finish_ns : INT64_MAX;
    for (uint64_t i = 0; i < r->n_events; i++) {
        const vt_req_cache *e = &r->event[i].cache;
        if (e->kind == VT_REQ_CACHE && e->what == VT_CACHE_EVICT && e->why >= 0 &&
            e->why < VT_EVICT_CAUSES && e->at_ns >= begin && e->at_ns <= end)
            n[e->why] += e->n;
    }
    vt_json_open(w, "evicted", '{');
    for (int i = 0; i < VT_EVICT_CAUSES; i++)
        vt_json_int(w, key[i], n[i]);
    vt_json_close(w);
}

/* found: pages of the path that the request found in the tree, of which some are in this run. */
static int32_t put_run(vt_json *w, const vt_radix_run *x, int32_t found)
{
    int32_t here = found < x->marked ? found : x->marked;
    vt_json_open(w, NULL, '{');
    vt_json_int(w, "parent", x->parent);
    vt_json_int(w, "pages", x->n_pages);
    vt_json_int(w, "tokens", x->n_tokens);
    vt_json_int(w, "users", x->users);
    vt_json_int(w, "hits", x->hits);
    vt_json_int(w, "hidden", x->hidden);
    vt_json_int(w, "path", x->marked);
    vt_json_int(w, "found", here);
    vt_json_close(w);
    return here;
}

void story_put_tree(vt_json *w, const story_input *in, const story_record *r)
{
    vt_radix_run run[SHOWN];
    int32_t all, pages, size = in->program->target.limits.page_size;
    if (!in->tree) {
        vt_json_null(w, "tree");
        return;
    }
    int32_t leaf = leaf_of(in, r), n = vt_radix_runs(in->tree, leaf, run, SHOWN, &all, &pages),
            found = leaf >= 0 ? (r->mine->n_cached - r->mine->n_copied) / size : 0;
    vt_json_open(w, "tree", '{');
    vt_json_int(w, "pages", pages);
    vt_json_int(w, "runs", all);
    vt_json_bool(w, "path_known", leaf >= 0);
    put_evicted(w, r);
    vt_json_open(w, "shown", '[');
    for (int32_t i = 0; i < n; i++) /* parents come first, so the path does in its order */
        found -= put_run(w, &run[i], found);
    vt_json_close(w);
    vt_json_close(w);
}
