/* The lives of sequences (engine/scheduler.h). How a step is made is in scheduler_plan.c.
 *
 *            add                 admit                      end
 *   (engine) ───> QUEUED ───────────────────> RUNNING ────────────> DONE ──> dead[], out of flight
 *                    ^────── retract ────────────┘  └─ commit appends tokens
 *
 * A sequence that ends or is retracted gives up its pages at once, although a step in flight may
 * still write to them: the device runs steps in order, so the next owner of such a page writes to
 * it later. The same holds for token pool slots. Only the memory that the CPU reads at a commit
 * must wait: a request is dead only when no step in flight contains it.
 *
 * The KV of a sequence that ended stays cached: its full pages are in the tree already, and its
 * last, partly filled page is entered as a tail, so that the next turn of a conversation copies it
 * instead of computing it. */
#include "engine/scheduler_inside.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

/* ---- memory ---- */

static bool make_plan(vt_sched *s, vt_plan *p)
{
    const vt_limits *lim = &s->config.limits;
    size_t tokens = (size_t)lim->max_tokens, seqs = (size_t)lim->max_seqs,
           rows = (size_t)lim->max_rows;
    size_t pages = (size_t)vt_ceil_div(lim->max_context, lim->page_size), all_pages;
    if (!vt_mul_size(seqs, pages, &all_pages))
        return false;
    vt_arena *a = &s->arena;
    p->token = vt_arena_alloc(a, tokens, sizeof *p->token);
    p->position = vt_arena_alloc(a, tokens, sizeof *p->position);
    p->seq_of = vt_arena_alloc(a, tokens, sizeof *p->seq_of);
    p->slot = vt_arena_alloc(a, tokens, sizeof *p->slot);
    p->q_start = vt_arena_alloc(a, seqs + 1, sizeof *p->q_start);
    p->kv_len = vt_arena_alloc(a, seqs, sizeof *p->kv_len);
    p->page_start = vt_arena_alloc(a, seqs + 1, sizeof *p->page_start);
    p->page_ids = vt_arena_alloc(a, all_pages, sizeof *p->page_ids);
    p->row_token = vt_arena_alloc(a, rows, sizeof *p->row_token);
    p->row = vt_arena_alloc(a, rows, sizeof *p->row);
    p->copy = vt_arena_alloc(a, seqs, sizeof *p->copy);
    p->entry = vt_arena_alloc(a, seqs, sizeof *p->entry);
    if (s->config.n_states > 0) {
        p->state_from = vt_arena_alloc(a, seqs, sizeof *p->state_from);
        p->state_to = vt_arena_alloc(a, seqs, sizeof *p->state_to);
        if (!p->state_from || !p->state_to)
            return false;
    }
    if (s->config.n_guess_states > 0) {
        p->state_behind = vt_arena_alloc(a, tokens, sizeof *p->state_behind);
        if (!p->state_behind)
            return false;
    }
    if (s->config.n_windows > 0) {
        p->window_slot = vt_arena_alloc(a, tokens, sizeof *p->window_slot);
        p->window_page_ids = vt_arena_alloc(a, all_pages, sizeof *p->window_page_ids);
        p->window_copy = vt_arena_alloc(a, seqs, sizeof *p->window_copy);
        if (!p->window_slot || !p->window_page_ids || !p->window_copy)
            return false;
    }
    if (s->config.types) {
        p->second = vt_arena_alloc(a, seqs, sizeof *p->second);
        if (!p->second)
            return false;
    }
    if (s->config.adapters) {
        p->adapter = vt_arena_alloc(a, seqs, sizeof *p->adapter);
        if (!p->adapter)
            return false;
    }
    p->step.batch = (vt_batch){.page_size = lim->page_size,
                               .token = p->token,
                               .position = p->position,
                               .seq_of = p->seq_of,
                               .slot = p->slot,
                               .q_start = p->q_start,
                               .kv_len = p->kv_len,
                               .page_start = p->page_start,
                               .page_ids = p->page_ids,
                               .row_token = p->row_token,
                               .window_slot = p->window_slot,
                               .window_page_ids = p->window_page_ids,
                               .window_copies = p->window_copy,
                               .state_from = p->state_from,
                               .state_to = p->state_to,
                               .state_behind = p->state_behind,
                               .second = p->second,
                               .adapter = p->adapter};
    p->step.rows = p->row;
    p->step.batch.copies = p->copy;
    return p->token && p->position && p->seq_of && p->slot && p->q_start && p->kv_len &&
           p->page_start && p->page_ids && p->row_token && p->row && p->copy && p->entry;
}

static bool make_lists(vt_sched *s)
{
    size_t seqs = (size_t)s->config.limits.max_seqs, cap = (size_t)s->queue_cap;
    vt_arena *a = &s->arena;
    s->queue = s->queue_room = vt_arena_alloc(a, 2 * cap, sizeof *s->queue);
    s->running = vt_arena_alloc(a, seqs, sizeof *s->running);
    s->free_slot = vt_arena_alloc(a, seqs, sizeof *s->free_slot);
    s->out = vt_arena_alloc(a, cap + 2 * seqs, sizeof *s->out);
    s->dead = vt_arena_alloc(a, cap + 2 * seqs, sizeof *s->dead);
    s->retracted = vt_arena_alloc(a, seqs, sizeof *s->retracted);
    s->late = vt_arena_alloc(a, seqs, sizeof *s->late);
    s->drafted = vt_arena_alloc(a, seqs, sizeof *s->drafted);
    size_t pages = (size_t)vt_ceil_div(s->config.limits.max_context, s->config.limits.page_size);
    s->match_page = vt_arena_alloc(a, pages, sizeof *s->match_page);
    if (s->config.n_windows > 0)
        s->match_window = vt_arena_alloc(a, pages, sizeof *s->match_window);
    return s->queue && s->running && s->free_slot && s->out && s->dead && s->retracted && s->late &&
           s->drafted && s->match_page && (s->config.n_windows == 0 || s->match_window);
}

int64_t vt_sched_states(int64_t bytes, size_t slot, int32_t max_seqs)
{
    int64_t n = bytes / 2 / (int64_t)slot, most = (int64_t)VT_SCHED_STATES * max_seqs;
    return n < max_seqs ? max_seqs : n < most ? n : most;
}

int64_t vt_sched_guess_states(int64_t bytes, size_t slot, int32_t max_seqs)
{
    int64_t n = bytes / 4 / (int64_t)slot,
            most = VT_DRAFT_MOST * (max_seqs < VT_SCHED_GUESSING ? max_seqs : VT_SCHED_GUESSING);
    return n < VT_DRAFT_MOST ? VT_DRAFT_MOST : n < most ? n : most;
}

int32_t vt_sched_windows_least(int32_t window, int32_t page_size)
{
    return vt_radix_window_span(window + VT_DRAFT_MOST, page_size) + 1;
}

vt_status vt_sched_init(vt_sched *s, const vt_sched_config *c, vt_err *err)
{
    const vt_limits *lim = &c->limits;
    if (lim->max_tokens < lim->max_seqs)
        return vt_fail(err, VT_ERR_USAGE,
                       "token-budget is %d, expected at least max-running, which is %d",
                       lim->max_tokens, lim->max_seqs);
    assert(lim->max_rows >= lim->max_seqs && lim->max_seqs >= 1 && c->n_pages >= 1 &&
           c->max_queued >= 1);
    assert(c->state_interval % lim->page_size == 0);
    assert(c->n_windows == 0 ||
           (c->window > 0 && !c->whole &&
            c->n_windows >= vt_sched_windows_least(c->window, lim->page_size)));
    assert(c->n_states == 0 || c->n_states - c->n_guess_states >= lim->max_seqs);
    *s = (vt_sched){.config = *c, .next_step = 1, .next_deadline = INT64_MAX};
    /* retracted sequences come on top of the max_queued that may wait */
    s->queue_cap = c->max_queued + lim->max_seqs;
    vt_arena_init(&s->arena, 0);
    vt_status status = vt_radix_init(&s->radix, c->n_pages, lim->page_size, VT_TENANTS, err);
    if (status == VT_OK && c->n_states > 0)
        status = vt_radix_add_states(&s->radix, c->n_states, err);
    if (status == VT_OK && c->n_windows > 0)
        status = vt_radix_add_windows(&s->radix, c->n_windows, c->window, err);
    if (status == VT_OK &&
        !(make_lists(s) && make_plan(s, &s->plan[0]) && make_plan(s, &s->plan[1])))
        status = vt_fail(err, VT_ERR_MEMORY, "out of memory for a scheduler of %d sequences",
                         lim->max_seqs);
    if (status != VT_OK) {
        vt_sched_release(s);
        return status;
    }
    for (; s->n_free_slots < lim->max_seqs; s->n_free_slots++)
        s->free_slot[s->n_free_slots] = lim->max_seqs - 1 - s->n_free_slots;
    return VT_OK;
}

void vt_sched_release(vt_sched *s)
{
    vt_radix_release(&s->radix);
    vt_arena_release(&s->arena);
    *s = (vt_sched){0};
}

void vt_sched_set_pages(vt_sched *s, vt_kv_count n)
{
    if (n.pages != s->radix.pool.n_pages)
        vt_pool_resize(&s->radix.pool, n.pages);
    if (sched_has_windows(s) && n.windows != s->radix.windows.n_slots)
        vt_slots_resize(&s->radix.windows, n.windows);
}

/* ---- the queue ---- */

/* There are no ties: orders are unique. */
bool sched_goes_before(const vt_sched *s, const vt_seq *a, const vt_seq *b)
{
    if (s->config.policy == VT_POLICY_PRIORITY && a->req->p.priority != b->req->p.priority)
        return a->req->p.priority > b->req->p.priority;
    return a->order < b->order;
}

/* The place in the queue at which q belongs. */
static int32_t place_of(const vt_sched *s, const vt_seq *q)
{
    int32_t low = 0, high = s->n_queue;
    if (high > 0 && sched_goes_before(s, s->queue[high - 1], q)) /* nearly always */
        return high;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (sched_goes_before(s, s->queue[middle], q))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The queue lies somewhere in room for twice as many. So it can grow and shrink at both ends, and
 * moves to the room's start only after queue_cap sequences left it in front. */
static void enqueue(vt_sched *s, vt_seq *q)
{
    assert(s->n_queue < s->queue_cap);
    int32_t at = place_of(s, q);
    if (at < s->n_queue / 2 && s->queue > s->queue_room) {
        s->queue--;
        memmove(s->queue, s->queue + 1, (size_t)at * sizeof *s->queue);
    } else {
        if (s->queue + s->n_queue == s->queue_room + 2 * (size_t)s->queue_cap) {
            memmove(s->queue_room, s->queue, (size_t)s->n_queue * sizeof *s->queue);
            s->queue = s->queue_room;
        }
        memmove(s->queue + at + 1, s->queue + at, (size_t)(s->n_queue - at) * sizeof *s->queue);
    }
    s->queue[at] = q;
    s->n_queue++;
    q->state = VT_SEQ_QUEUED;
}

void sched_unqueue(vt_sched *s, int32_t at)
{
    s->n_queue--;
    if (at < s->n_queue / 2) {
        memmove(s->queue + 1, s->queue, (size_t)at * sizeof *s->queue);
        s->queue++;
    } else {
        memmove(s->queue + at, s->queue + at + 1, (size_t)(s->n_queue - at) * sizeof *s->queue);
    }
}

/* Removes a pointer that must be in list[0..*n), keeping the order. */
static void list_remove(vt_seq **list, int32_t *n, const vt_seq *q)
{
    int32_t at = 0;
    while (list[at] != q)
        at++;
    --*n;
    memmove(list + at, list + at + 1, (size_t)(*n - at) * sizeof *list);
}

static void note_deadline(vt_sched *s, const vt_req *r)
{
    if (r->deadline_ns < s->next_deadline)
        s->next_deadline = r->deadline_ns;
}

void vt_sched_add(vt_sched *s, vt_req *r)
{
    if (s->config.prefix_cache)
        r->tenant = vt_radix_join(&s->radix, r->p.cache_salt, r->salt_len, r->adapter);
    note_deadline(s, r);
    for (int32_t i = 0; i < r->p.n; i++) {
        r->seq[i].order = s->next_order++;
        enqueue(s, &r->seq[i]);
    }
}

/* ---- pages ---- */

/* Positions that are computed, or planned to be, and whose tokens are known. */
static int32_t known_positions(const vt_seq *q)
{
    return q->n_computed < q->n_tokens ? q->n_computed : q->n_tokens;
}

/* The page at place i of the sequence's list is in the tree: its window page goes there too, or the
 * sequence switches to the one that the node has. */
static void enter_window(vt_sched *s, vt_seq *q, int32_t i, uint64_t step)
{
    if (!sched_has_windows(s) || i < q->window_begin || i >= q->window_end)
        return;
    int32_t mine = q->window_page[i];
    int32_t there = vt_radix_keep_window(&s->radix, q->page[i], mine, step);
    if (there == mine)
        return;
    vt_radix_hold_windows(&s->radix, &there, 1);
    vt_radix_drop_windows(&s->radix, &mine, 1);
    q->window_page[i] = there;
}

void sched_slide(vt_sched *s, vt_seq *q)
{
    int32_t first = vt_radix_window_first(&s->radix, q->n_computed);
    for (; q->window_begin < first && q->window_begin < q->window_end; q->window_begin++)
        vt_radix_drop_windows(&s->radix, &q->window_page[q->window_begin], 1);
}

int32_t sched_cover(vt_sched *s, vt_seq *q, int32_t n)
{
    int32_t size = s->radix.page_size;
    for (; n > 0 && q->window_end * size < q->n_computed + n; q->window_end++)
        if (vt_radix_take_windows(&s->radix, 1, &q->window_page[q->window_end]) != VT_OK)
            return q->window_end * size - q->n_computed;
    return n;
}

static void enter_pages(vt_sched *s, vt_seq *q, uint64_t step, bool may_swap)
{
    int32_t size = s->radix.page_size, known = known_positions(q), tenant = q->req->tenant;
    if (tenant == VT_NO_TENANT)
        return;
    while ((q->n_in_tree + 1) * size <= known) {
        int32_t i = q->n_in_tree, parent = i > 0 ? q->page[i - 1] : -1;
        int32_t there = vt_radix_insert(&s->radix, tenant, parent, q->token + (int64_t)i * size,
                                        size, q->page[i], step);
        if (there != q->page[i]) {
            if (!may_swap)
                return;
            vt_radix_hold(&s->radix, &there, 1);
            vt_radix_drop(&s->radix, &q->page[i], 1);
            q->page[i] = there;
        }
        enter_window(s, q, i, step);
        q->n_in_tree++;
    }
}

/* ---- snapshots of sequence state ---- */

int32_t sched_border_on_the_way(const vt_sched *s, const vt_seq *q, int32_t computed)
{
    int64_t every = s->config.state_interval,
            next = every > 0 ? (computed / every + 1) * every : INT64_MAX;
    return next < sched_last_border(s, q) && vt_radix_has_spare_state(&s->radix) ? (int32_t)next
                                                                                 : 0;
}

/* Returns true if the state behind the sequence's last computed token belongs to a whole page of
 * the tree without a snapshot, and is worth one: where its prompt branches off from cached pages,
 * at intervals of it, at the last border of its prompt, and at the borders behind it. */
static bool snapshot_due(const vt_sched *s, const vt_seq *q)
{
    bool there = sched_has_states(s) && q->state_from == q->state_to && q->n_in_tree > 0 &&
                 q->n_computed == q->n_in_tree * s->radix.page_size;
    return there &&
           (q->n_computed == q->branch || q->n_computed >= sched_last_border(s, q) ||
            q->n_computed == sched_border_on_the_way(s, q, q->n_computed - 1)) &&
           s->radix.node[q->page[q->n_in_tree - 1]].state < 0;
}

/* Makes a due snapshot of the slot that the sequence writes; step `step` writes its state. One that
 * is due for its distance from others alone is spare. Behind the prompt only the newest snapshot of
 * a sequence stays: the next turn begins behind it. */
static void make_snapshot(vt_sched *s, vt_seq *q, uint64_t step)
{
    vt_radix_keep_state(&s->radix, q->page[q->n_in_tree - 1], q->state_to, step);
    if (q->n_computed != q->branch && q->n_computed < sched_last_border(s, q))
        vt_radix_spare_state(&s->radix, q->state_to);
    q->kept_at = q->n_computed > q->n_prompt ? q->n_computed : 0;
}

static void forget_older_snapshot(vt_sched *s, const vt_seq *q)
{
    if (q->kept_at > 0)
        vt_radix_forget_state(&s->radix, q->page[q->kept_at / s->radix.page_size - 1]);
}

/* Makes a snapshot of a running sequence's state if one is due and a slot is left for the next
 * step's state. The sequence goes on from the snapshot, which it holds until then. */
static void keep_state(vt_sched *s, vt_seq *q, uint64_t step)
{
    if (!snapshot_due(s, q))
        return;
    forget_older_snapshot(s, q);
    int32_t next = vt_radix_take_state(&s->radix);
    if (next < 0)
        return;
    make_snapshot(s, q, step);
    q->state_to = next;
}

/* A sequence that stops running gives up its slots. With `keep` its state stays as a snapshot if
 * one is due. */
static void drop_states(vt_sched *s, vt_seq *q, bool keep)
{
    if (keep && snapshot_due(s, q)) {
        forget_older_snapshot(s, q);
        make_snapshot(s, q, s->next_step - 1);
    }
    if (q->state_from >= 0 && q->state_from != q->state_to)
        vt_radix_drop_state(&s->radix, q->state_from);
    vt_radix_drop_state(&s->radix, q->state_to);
    q->state_to = q->state_from = -1;
    q->branch = q->kept_at = 0;
}

int32_t sched_take_guess_states(vt_sched *s, vt_seq *q, int32_t n)
{
    q->n_guess_states = 0;
    while (q->n_guess_states < n && s->n_guess_states < s->config.n_guess_states) {
        int32_t slot = vt_radix_take_state(&s->radix);
        if (slot < 0)
            break;
        q->guess_state[q->n_guess_states++] = slot;
        s->n_guess_states++;
    }
    return q->n_guess_states;
}

/* Gives up the states behind guesses that the sequence has not taken over. */
static void drop_guess_states(vt_sched *s, vt_seq *q)
{
    for (int32_t i = 0; i < q->n_guess_states; i++)
        if (q->guess_state[i] >= 0)
            vt_radix_drop_state(&s->radix, q->guess_state[i]);
    s->n_guess_states -= q->n_guess_states;
    q->n_guess_states = 0;
}

/* Guess i of a running sequence held: the state behind it becomes the sequence's. */
static void take_guess_state(vt_sched *s, vt_seq *q, int32_t i)
{
    if (q->state_from >= 0 && q->state_from != q->state_to)
        vt_radix_drop_state(&s->radix, q->state_from);
    vt_radix_drop_state(&s->radix, q->state_to);
    q->state_from = q->state_to = q->guess_state[i];
    q->guess_state[i] = -1;
}

void sched_enter_pages(vt_sched *s, vt_seq *q, uint64_t step, bool may_swap)
{
    enter_pages(s, q, step, may_swap);
    keep_state(s, q, step);
}

/* Takes a sequence out of the running set: it gives up its pages and its slots. With `keep` the KV
 * in its pages stays cached. */
static void stop_running(vt_sched *s, vt_seq *q, bool keep)
{
    assert(q->state == VT_SEQ_RUNNING);
    int32_t size = s->radix.page_size;
    if (keep) {
        uint64_t planned = s->next_step - 1;
        enter_pages(s, q, planned, true);
        int32_t i = q->n_in_tree, tail = known_positions(q) - i * size;
        q->left_page = i > 0 ? q->page[i - 1] : -1;
        if (q->req->tenant != VT_NO_TENANT && tail > 0) {
            q->left_page = vt_radix_insert(&s->radix, q->req->tenant, q->left_page,
                                           q->token + (int64_t)i * size, tail, q->page[i], planned);
            if (q->left_page == q->page[i])
                enter_window(s, q, i, planned);
        }
        q->left_step = q->left_page >= 0 ? s->radix.node[q->left_page].step : 0;
    }
    if (sched_has_windows(s))
        vt_radix_drop_windows(&s->radix, q->window_page + q->window_begin,
                              q->window_end - q->window_begin);
    q->window_begin = q->window_end = 0;
    if (sched_has_states(s))
        drop_states(s, q, keep);
    vt_radix_drop(&s->radix, q->page, q->n_pages);
    q->n_pages = q->n_computed = q->n_in_tree = 0;
    q->prompt_step = 0;
    s->free_slot[s->n_free_slots++] = q->slot;
    q->slot = -1;
    list_remove(s->running, &s->n_running, q);
}

void sched_retract(vt_sched *s, vt_seq *q)
{
    stop_running(s, q, true);
    q->n_retracted++;
    s->retracted[s->n_retracted++] = q;
    s->stats.retracted++;
    enqueue(s, q);
}

/* ---- ends ---- */

/* Hands a request whose sequences are all DONE, and in no step in flight, to the engine for
 * freeing. */
static void retire_if_over(vt_sched *s, vt_req *r)
{
    if (r->n_live > 0 || r->n_inflight > 0)
        return;
    vt_radix_leave(&s->radix, r->tenant);
    r->tenant = VT_NO_TENANT;
    s->dead[s->n_dead++] = r;
}

static void end_seq(vt_sched *s, vt_seq *q, vt_end_reason end)
{
    if (q->state == VT_SEQ_RUNNING)
        stop_running(s, q, true);
    else if (q->state == VT_SEQ_QUEUED)
        list_remove(s->queue, &s->n_queue, q);
    else
        vt_constrained_unwanted(q->constrained);
    q->state = VT_SEQ_DONE;
    q->end = (uint8_t)end;
    q->req->n_live--;
    s->stats.finished++;
}

void vt_sched_finish(vt_sched *s, vt_seq *q, vt_end_reason end)
{
    if (q->state == VT_SEQ_DONE)
        return;
    end_seq(s, q, end);
    retire_if_over(s, q->req);
}

void sched_end(vt_sched *s, vt_seq *q, vt_end_reason end)
{
    s->out[s->n_out++] = (vt_output){.seq = q};
    vt_sched_finish(s, q, end);
}

/* ---- results ---- */

static bool is_stop_token(const vt_sched *s, const vt_req *r, int32_t id)
{
    for (int32_t i = 0; i < r->p.n_stop_ids; i++)
        if (r->p.stop_ids[i] == id)
            return true;
    for (int32_t i = 0; !r->p.ignore_eos && i < s->config.n_eos; i++)
        if (s->config.eos[i] == id)
            return true;
    return false;
}

/* Takes in the next token of a sequence that is not DONE; id -1: the device could choose none. */
static void take_token(vt_sched *s, vt_seq *q, int32_t id, vt_output *out)
{
    if (id < 0) {
        end_seq(s, q, q->row.mask || q->constrained ? VT_END_NO_CANDIDATE : VT_END_NOT_NUMBERS);
        vt_radix_flush(&s->radix); /* what made them may be cached */
        return;
    }
    q->token[q->n_tokens++] = id;
    out->n++;
    if (is_stop_token(s, q->req, id)) {
        out->silent = true;
        end_seq(s, q, VT_END_STOP_TOKEN);
    } else if (q->n_tokens == q->max_len) {
        end_seq(s, q, q->req->full);
    }
}

/* Takes a sequence out of all lists until its mask is there. A step that is in flight chooses a
 * token of it without: that one is not used, and its place is computed again. */
static void wait_for_mask(vt_sched *s, vt_seq *q)
{
    for (int32_t p = 0; p < VT_PLANS; p++)
        for (int32_t i = 0; s->plan[p].in_flight && i < s->plan[p].step.batch.n_seqs; i++)
            if (s->plan[p].entry[i].seq == q)
                s->plan[p].entry[i].dropped = true;
    if (q->state == VT_SEQ_RUNNING)
        stop_running(s, q, true);
    else
        list_remove(s->queue, &s->n_queue, q);
    q->state = VT_SEQ_MASKED;
    q->n_inflight++; /* the request is not freed */
    q->req->n_inflight++;
    s->late[s->n_late++] = q;
    s->n_masked++;
    s->stats.late_masks++;
}

void vt_sched_masked(vt_sched *s, vt_seq *q)
{
    q->n_inflight--;
    q->req->n_inflight--;
    s->n_masked--;
    bool ends = vt_constrained_finished(q->constrained) == VT_FOLLOW_ENDS;
    if (q->state == VT_SEQ_DONE) {
        retire_if_over(s, q->req);
    } else if (ends) {
        sched_end(s, q, q->constrained->end);
    } else {
        enqueue(s, q);
        note_deadline(s, q->req);
    }
}

/* Tells a constraint of the sequence's last token, and asks what may come next, unless a draft that
 * it allowed follows. */
static void constrain_next(vt_sched *s, vt_seq *q, bool draft_follows)
{
    vt_constrained *c = q->constrained;
    vt_follow answer = vt_constrained_follow(c, q->token[q->n_tokens - 1], !draft_follows);
    if (answer == VT_FOLLOW_ENDS)
        end_seq(s, q, c->end);
    else if (answer == VT_FOLLOW_LATE)
        wait_for_mask(s, q);
}

/* Takes in what an entry's rows chose. The first row always counts. Row i + 1 counts while draft i
 * is what row i chose, for then it saw the tokens that it would have seen without drafts:
 *
 *   computed   t   d0  d1  d2        chosen[0] = d0, chosen[1] = d1, chosen[2] = x, chosen[3] = ?
 *   new            d0  d1  x         d2 was wrong: its KV is written over by the next step
 */
static void take_tokens(vt_sched *s, vt_seq *q, const vt_plan_entry *entry, const int32_t *chosen,
                        vt_output *out)
{
    bool running = q->state == VT_SEQ_RUNNING; /* else it was retracted, and nothing is computed */
    int32_t accepted = 0;
    const int32_t *draft = q->token + q->n_tokens;
    q->n_pending--;
    q->n_drafted -= entry->n_drafted; /* 0, unless the drafts are the next step's */
    out->from = q->n_tokens;
    if (entry->dropped)
        return;
    for (;;) {
        bool right = accepted < entry->n_drafted && draft[accepted] == chosen[accepted];
        if (right && running) {
            q->n_computed++;
            if (sched_has_states(s))
                take_guess_state(s, q, accepted);
        }
        take_token(s, q, chosen[accepted], out);
        if (right && q->state == VT_SEQ_RUNNING && sched_has_states(s))
            sched_enter_pages(s, q, s->next_step - 1, true); /* its state may be due to be kept */
        accepted += right;
        if (q->constrained && q->state != VT_SEQ_DONE)
            constrain_next(s, q, right);
        if (!right || q->state == VT_SEQ_DONE || q->state == VT_SEQ_MASKED)
            break;
    }
    if (entry->n_drafted > 0 && q->forced) { /* no guess of the drafter's: its pace stays */
        s->stats.forced_tokens += (uint64_t)accepted;
        q->n_forced += accepted;
        return;
    }
    vt_draft_verified(&s->draft_record, &q->drafting, entry->n_drafted, accepted);
    s->stats.draft_tokens += (uint64_t)entry->n_drafted;
    s->stats.draft_accepted += (uint64_t)accepted;
}

void vt_sched_mask(vt_plan *p)
{
    for (int32_t i = 0; i < p->step.batch.n_seqs; i++) {
        const vt_plan_entry *entry = &p->entry[i];
        if (entry->held && !entry->dropped)
            p->row[entry->row + entry->n_scored].mask = vt_constrained_mask(entry->seq->constrained,
                                                                            0);
    }
}

/* Notes how long the plan's step took. The sequences with decodes come first in it. */
static void note_time(vt_sched *s, const vt_plan *p, const vt_step_result *result)
{
    const vt_batch *b = &p->step.batch;
    int32_t decodes = b->n_decode + b->n_drafted;
    vt_step_time_ran(&s->step_time, decodes, b->n_tokens - b->q_start[decodes],
                     result->end_ns - result->begin_ns);
}

/* Notes what a token of a step of decodes alone cost, unless sequences had their first guesses: the
 * drafter had to learn their prompts for that. A step of few of the sequences that run, because the
 * others wait for another step's tokens, tells nothing of all of them. */
static void note_drafts(vt_sched *s, const vt_plan *p, const vt_step_result *result, int32_t tokens)
{
    const vt_batch *b = &p->step.batch;
    int64_t ns = result->end_ns - result->begin_ns;
    const vt_drafter *d = &s->config.drafter;
    bool forced = d->prepare && p->draft_ns == 0; /* constraints left no choice of such tokens */
    if (!d->draft || b->n_decode + b->n_drafted < b->n_seqs || 4 * b->n_seqs < 3 * p->n_running)
        return;
    if (b->n_drafted == 0)
        vt_draft_took(&s->draft_record, p->n_running, false, ns, tokens);
    else if (!forced && !p->draft_trial) /* few guesses tell little about what many cost */
        vt_draft_took(&s->draft_record, p->n_running, true, ns + p->draft_ns, tokens);
}

/* Shows the drafter the hidden states of an entry's tokens. */
static void show_states(vt_sched *s, const vt_plan *p, int32_t i, const vt_step_result *result)
{
    const vt_drafter *d = &s->config.drafter;
    const vt_seq *q = p->entry[i].seq;
    if (!d->learn || q->state != VT_SEQ_RUNNING)
        return;
    int32_t first = p->q_start[i], n = p->q_start[i + 1] - first;
    size_t row = (size_t)s->config.n_hidden * (size_t)vt_dtype_get(result->hidden_dtype)->bytes;
    d->learn(d->user, q, p->position[first], n, (const char *)result->hidden + (size_t)first * row);
}

void vt_sched_commit(vt_sched *s, vt_plan *p, const vt_step_result *result)
{
    int32_t tokens = 0, segment = 0;
    bool steady = true;
    p->in_flight = false;
    note_time(s, p, result);
    for (int32_t i = 0; i < p->step.batch.n_seqs; i++) {
        const vt_plan_entry *entry = &p->entry[i];
        vt_seq *q = entry->seq;
        q->n_inflight--;
        q->req->n_inflight--;
        show_states(s, p, i, result);
        if (q->state != VT_SEQ_DONE) {
            vt_output out = {.seq = q,
                             .row = q->embedding ? segment : entry->row,
                             .n_scored = entry->n_scored,
                             .scored_from = entry->scored_from};
            q->n_score_done += entry->n_scored;
            steady = steady && (entry->n_drafted == 0 || q->drafting.tokens > 0 ||
                                !s->config.drafter.prepare);
            if (entry->samples)
                take_tokens(s, q, entry, result->token + entry->row + entry->n_scored, &out);
            else if (entry->ends_prompt && q->max_len == q->n_prompt)
                end_seq(s, q, q->req->full);
            if (out.n_scored > 0 || out.n > 0 || q->state == VT_SEQ_DONE)
                s->out[s->n_out++] = out;
            tokens += out.n;
        }
        segment += entry->n_scored > 0;
        if (entry->n_drafted > 0)
            drop_guess_states(s, q);
        retire_if_over(s, q->req);
    }
    if (steady)
        note_drafts(s, p, result, tokens);
}

/* ---- faults ---- */

static void forget_plan(vt_sched *s, vt_plan *p)
{
    p->in_flight = false;
    for (int32_t i = 0; i < p->step.batch.n_seqs; i++) {
        vt_seq *q = p->entry[i].seq;
        q->n_inflight--;
        q->req->n_inflight--;
        if (p->entry[i].n_drafted > 0)
            drop_guess_states(s, q);
        if (q->state == VT_SEQ_DONE) {
            retire_if_over(s, q->req);
            continue;
        }
        q->n_pending -= p->entry[i].samples;
        q->n_drafted -= p->entry[i].n_drafted;
        q->n_scored = q->n_score_done;
        if (q->n_inflight == 0)
            q->n_faults++;
    }
}

void vt_sched_fault(vt_sched *s)
{
    s->stats.faults++;
    for (int32_t i = 0; i < VT_PLANS; i++)
        if (s->plan[i].in_flight)
            forget_plan(s, &s->plan[i]);
    while (s->n_running > 0) {
        vt_seq *q = s->running[s->n_running - 1];
        stop_running(s, q, false);
        enqueue(s, q);
        if (q->n_faults > VT_MAX_FAULTS)
            sched_end(s, q, VT_END_DEVICE_FAULT);
    }
    vt_radix_flush(&s->radix);
}

void vt_sched_lose_all(vt_sched *s)
{
    assert(s->n_running == 0);
    while (s->n_queue > 0)
        sched_end(s, s->queue[s->n_queue - 1], VT_END_DEVICE_LOST);
}
