/* The invariants of docs/engine.md, verified from scratch (vt_sched_check): for tests. */
#include <stdlib.h>

#include "base/err.h"
#include "engine/scheduler_inside.h"

static vt_status check_running(const vt_sched *s, const vt_seq *q, uint8_t *slot_used, vt_err *err)
{
    unsigned long long id = (unsigned long long)q->req->id;
    if (q->state != VT_SEQ_RUNNING || q->slot < 0 || slot_used[q->slot]++)
        return vt_fail(err, VT_ERR_FORMAT,
                       "request %llu runs in state %d with slot %d, which may be taken", id,
                       q->state, q->slot);
    if (q->n_pending < 0 || q->n_pending > VT_PLANS || q->n_inflight < 0 ||
        q->n_inflight > VT_PLANS)
        return vt_fail(err, VT_ERR_FORMAT, "request %llu: %d pending, %d in flight", id,
                       q->n_pending, q->n_inflight);
    if (seq_length(q) + q->n_drafted > q->max_len || q->n_computed > seq_length(q))
        return vt_fail(err, VT_ERR_FORMAT,
                       "request %llu: %d tokens and %d pending of %d, %d computed", id, q->n_tokens,
                       q->n_pending, q->max_len, q->n_computed);
    if (q->n_computed >= q->max_len && q->max_len > q->n_prompt)
        return vt_fail(err, VT_ERR_FORMAT, "request %llu computes a position beyond its last token",
                       id);
    if (q->n_computed + q->n_drafted > q->n_pages * s->radix.page_size || q->n_in_tree > q->n_pages)
        return vt_fail(err, VT_ERR_FORMAT,
                       "request %llu: %d positions computed, %d pages, %d in the tree", id,
                       q->n_computed, q->n_pages, q->n_in_tree);
    for (int32_t i = 0; i < q->n_in_tree; i++)
        if (!s->radix.pool.in_tree[q->page[i]])
            return vt_fail(err, VT_ERR_FORMAT, "request %llu: page %d should be in the tree", id,
                           q->page[i]);
    return VT_OK;
}

/* Checks the slots of a running sequence, and counts them in refs. */
static vt_status check_states(const vt_sched *s, const vt_seq *q, int32_t *refs, vt_err *err)
{
    const vt_slots *states = &s->radix.states;
    unsigned long long id = (unsigned long long)q->req->id;
    if (q->state_to < 0 || states->refs[q->state_to] != 1 || states->page[q->state_to] >= 0)
        return vt_fail(err, VT_ERR_FORMAT, "request %llu: state slot %d is not its own", id,
                       q->state_to);
    if ((q->state_from < 0) != (q->n_computed == 0))
        return vt_fail(err, VT_ERR_FORMAT, "request %llu: state slot %d to read, %d computed", id,
                       q->state_from, q->n_computed);
    refs[q->state_to]++;
    if (q->state_from < 0 || q->state_from == q->state_to)
        return VT_OK;
    refs[q->state_from]++;
    if (states->page[q->state_from] < 0 || q->n_computed == 0 ||
        states->page[q->state_from] != q->page[q->n_computed / s->radix.page_size - 1] ||
        q->n_computed % s->radix.page_size != 0)
        return vt_fail(err, VT_ERR_FORMAT,
                       "request %llu: state slot %d is not the snapshot at its %d computed tokens",
                       id, q->state_from, q->n_computed);
    return VT_OK;
}

/* Counts in refs the states behind guesses of the steps in flight. */
static vt_status check_guess_states(const vt_sched *s, int32_t *refs, vt_err *err)
{
    int32_t n = 0;
    for (int32_t p = 0; p < VT_PLANS; p++)
        for (int32_t i = 0; s->plan[p].in_flight && i < s->plan[p].step.batch.n_seqs; i++) {
            const vt_plan_entry *entry = &s->plan[p].entry[i];
            for (int32_t k = 0; entry->n_drafted > 0 && k < entry->seq->n_guess_states; k++, n++)
                refs[entry->seq->guess_state[k]]++;
        }
    if (n == s->n_guess_states && n <= s->config.n_guess_states)
        return VT_OK;
    return vt_fail(err, VT_ERR_FORMAT, "%d states behind guesses are in flight, counted %d of %d",
                   n, s->n_guess_states, s->config.n_guess_states);
}

/* A running sequence has the window pages that its next token sees, as far as they are computed.
 * Counts its window pages in refs. */
static vt_status check_windows(const vt_sched *s, const vt_seq *q, int32_t *refs, vt_err *err)
{
    int32_t size = s->radix.page_size, first = vt_radix_window_first(&s->radix, q->n_computed);
    for (int32_t i = q->window_begin; i < q->window_end; i++)
        refs[q->window_page[i]]++;
    if (q->window_begin <= first && q->window_end <= q->n_pages &&
        q->window_end * size >= q->n_computed + q->n_drafted)
        return VT_OK;
    return vt_fail(
        err, VT_ERR_FORMAT, "request %llu: window pages %d to %d of %d, %d positions computed",
        (unsigned long long)q->req->id, q->window_begin, q->window_end, q->n_pages, q->n_computed);
}

/* Every reference to a slot comes from a running sequence, of which `of` checks one and counts its
 * own, or is to a state behind a guess. */
static vt_status check_slots(const vt_sched *s, const vt_slots *slots, const char *what,
                             vt_status (*of)(const vt_sched *s, const vt_seq *q, int32_t *refs,
                                             vt_err *err),
                             vt_err *err)
{
    if (slots->n_slots == 0)
        return VT_OK;
    int32_t *refs = vt_calloc((size_t)slots->n_slots, sizeof *refs);
    vt_status status = refs ? VT_OK : vt_fail(err, VT_ERR_MEMORY, "out of memory for the check");
    for (int32_t i = 0; status == VT_OK && i < s->n_running; i++)
        status = of(s, s->running[i], refs, err);
    if (status == VT_OK && slots == &s->radix.states)
        status = check_guess_states(s, refs, err);
    for (int32_t i = 0; status == VT_OK && i < slots->n_slots; i++)
        if (refs[i] != slots->refs[i])
            status = vt_fail(err, VT_ERR_FORMAT, "%s %d: %d references, %d uses counted", what, i,
                             slots->refs[i], refs[i]);
    free(refs);
    return status;
}

/* Every reference to a page comes from one running sequence. */
static vt_status check_references(const vt_sched *s, int32_t *refs, vt_err *err)
{
    for (int32_t i = 0; i < s->n_running; i++)
        for (int32_t k = 0; k < s->running[i]->n_pages; k++)
            refs[s->running[i]->page[k]]++;
    for (int32_t i = 0; i < s->config.n_pages; i++)
        if (refs[i] != s->radix.pool.refs[i])
            return vt_fail(err, VT_ERR_FORMAT,
                           "page %d: %d references, %d running sequences list it", i,
                           s->radix.pool.refs[i], refs[i]);
    return VT_OK;
}

vt_status vt_sched_check(const vt_sched *s, vt_err *err)
{
    TRY(vt_radix_check(&s->radix, err));
    TRY(check_slots(s, &s->radix.states, "state slot", check_states, err));
    TRY(check_slots(s, &s->radix.windows, "window page", check_windows, err));
    if (s->n_free_slots + s->n_running != s->config.limits.max_seqs)
        return vt_fail(err, VT_ERR_FORMAT, "%d slots free, %d sequences running", s->n_free_slots,
                       s->n_running);
    for (int32_t i = 0; i < s->n_queue; i++)
        if (s->queue[i]->state != VT_SEQ_QUEUED || s->queue[i]->n_pages != 0 ||
            (i > 0 && !sched_goes_before(s, s->queue[i - 1], s->queue[i])))
            return vt_fail(err, VT_ERR_FORMAT, "the queue is wrong at %d", i);
    uint8_t *slot_used = vt_calloc((size_t)s->config.limits.max_seqs, 1);
    int32_t *refs = vt_calloc((size_t)s->config.n_pages, sizeof *refs);
    vt_status status = slot_used && refs
                           ? VT_OK
                           : vt_fail(err, VT_ERR_MEMORY, "out of memory for the check");
    for (int32_t i = 0; status == VT_OK && i < s->n_running; i++)
        status = check_running(s, s->running[i], slot_used, err);
    if (status == VT_OK)
        status = check_references(s, refs, err);
    free(slot_used);
    free(refs);
    return status;
}
