/* Making a step (engine/scheduler.h). The parts run in this order, and each takes from what the one
 * before it has left:
 *
 *   1. expire   deadlines
 *   2. enter    full pages of the steps before into the radix tree; give back window pages that
 *               nothing sees any more
 *   3. grow     a page for every decode that needs one, and a window page for every sequence that
 *               does; when no page is left, the sequence that
 *               matters least is retracted. The batch is still empty, so no sequence in it can lose
 *               a page
 *   4. place    decodes, one token each, then those whose next tokens were guessed
 *   5. place    chunks of the prefills that are running, oldest admission first
 *   6. admit    sequences from the queue, and place the first chunk of each, while tokens, rows,
 *               slots and pages last
 *
 * Admission: the pages that are free or evictable must cover the pages of the prompt and one page
 * for every running sequence, which each will want before long. Nothing is reserved for output
 * tokens, which may never come; when too many do come, part 3 retracts. Window pages must cover
 * what the sequence will hold once it has computed its prompt, and one page for every running one.
 * They are taken chunk by chunk: a chunk is as long as they last.
 *
 * Riding: a prompt whose next page is being computed by a running sequence of the same tenant waits
 * for that page instead of computing it too. Pages enter the tree when they are placed in a batch,
 * not when the step has run: within a layer all KV of a step is stored before any row attends, so a
 * sequence may ride on a page of the very same step. Copies out of a partly matching page are
 * different: they are done before the step's forward pass, so only pages that earlier steps wrote
 * are offered for them. */
#include "engine/scheduler_inside.h"

#include <assert.h>
#include <string.h>

#include "ops/prefix_match/prefix_match.h"

/* The batch that is being filled, and what of the step's budget is left. */
typedef struct filling {
    vt_plan *plan;
    uint64_t step;
    int32_t tokens_left, rows_left;
} filling;

/* ---- 1. deadlines ---- */

static void expire(vt_sched *s, int64_t now_ns)
{
    if (now_ns < s->next_deadline)
        return;
    s->next_deadline = INT64_MAX;
    for (int pass = 0; pass < 2; pass++) {
        vt_seq **list = pass == 0 ? s->running : s->queue;
        for (int32_t i = (pass == 0 ? s->n_running : s->n_queue) - 1; i >= 0; i--) {
            int64_t deadline = list[i]->req->deadline_ns;
            if (deadline <= now_ns)
                sched_end(s, list[i], VT_END_TIMEOUT);
            else if (deadline < s->next_deadline)
                s->next_deadline = deadline;
        }
    }
}

/* ---- 3. pages for decodes ---- */

/* Returns how many positions of a sequence could be computed now; 0: it waits for a result. */
static int32_t work_left(const vt_seq *q)
{
    if (q->n_drafted > 0)
        return 0;
    bool wants = seq_length(q) < q->max_len || q->n_computed < q->n_prompt;
    return wants ? seq_length(q) - q->n_computed : 0;
}

/* The sequence to retract first: under policy priority the youngest of the lowest priority, else
 * the youngest. */
static vt_seq *least(const vt_sched *s)
{
    bool by_priority = s->config.policy == VT_POLICY_PRIORITY;
    vt_seq *worst = s->running[0];
    for (int32_t i = 1; i < s->n_running; i++) {
        vt_seq *q = s->running[i];
        int32_t mine = by_priority ? q->req->p.priority : 0;
        int32_t theirs = by_priority ? worst->req->p.priority : 0;
        if (mine < theirs || (mine == theirs && q->order > worst->order))
            worst = q;
    }
    return worst;
}

/* Returns true if the sequence has a page for its next token, or gets one. */
static bool has_page(vt_sched *s, vt_seq *q)
{
    if (q->n_computed == q->n_pages * s->radix.page_size) {
        if (vt_radix_take(&s->radix, 1, &q->page[q->n_pages], VT_EVICT_GROW) != VT_OK)
            return false;
        q->n_pages++;
    }
    return !sched_has_windows(s) || sched_cover(s, q, 1) == 1;
}

/* Gives every decode that is about to write beyond its last page a new one.
 *
 *   1. walk over the running sequences
 *   2. one that needs a page takes a free one, or evicts the least recently used cached one
 *   3. if there is none, retract the sequence that matters least: its pages become cached or free.
 *      It may be the very one that needed a page. Then begin again: the list has changed, and
 *      sequences that got their page in the first walk no longer need one
 */
static void grow(vt_sched *s)
{
    int32_t i = 0;
    while (i < s->n_running) {
        vt_seq *q = s->running[i];
        if (work_left(q) == 0 || has_page(s, q)) {
            i++;
        } else {
            sched_retract(s, least(s));
            i = 0;
        }
    }
}

/* ---- 4. and 5. filling the batch ---- */

/* Cuts a chunk of n tokens where the state is to be kept: at the page border where the prompt
 * leaves cached pages, at intervals, and at its last one. */
static int32_t chunk_to_snapshot(const vt_sched *s, const vt_seq *q, int32_t n)
{
    const int32_t stop[] = {q->branch, sched_border_on_the_way(s, q, q->n_computed),
                            sched_last_border(s, q)};
    for (int i = 0; i < 3; i++)
        if (q->req->tenant != VT_NO_TENANT && q->n_computed < stop[i] &&
            stop[i] < q->n_computed + n)
            n = stop[i] - q->n_computed;
    return n;
}

/* Returns how many tokens of a sequence fit into the step, perhaps 0, and takes window pages for
 * them. Each position that is told needs a row, and so does the last token of a sequence that makes
 * text. */
static int32_t chunk_that_fits(vt_sched *s, const filling *f, vt_seq *q)
{
    int32_t left = work_left(q), n = left < f->tokens_left ? left : f->tokens_left;
    int32_t without = q->n_scored - q->n_computed; /* tokens before the first that needs a row */
    int32_t told = q->score_end - q->n_scored, rows = q->embedding ? told : told + 1;
    if (told > 0 && rows > f->rows_left && n > without + f->rows_left)
        n = without > f->rows_left ? without : f->rows_left;
    if (n == left && f->rows_left == 0)
        n--; /* the last token waits for a row */
    if (s->config.whole && n < left)
        return 0;
    if (sched_has_states(s))
        n = chunk_to_snapshot(s, q, n);
    return sched_has_windows(s) ? sched_cover(s, q, n) : n;
}

/* A row of sampling for the batch's token `token_index`, with what never changes for the
 * sequence. */
static vt_sample_row *add_row(filling *f, int32_t token_index, const vt_seq *q)
{
    vt_batch *b = &f->plan->step.batch;
    vt_sample_row *row = &f->plan->row[b->n_rows];
    f->plan->row_token[b->n_rows++] = token_index;
    f->rows_left--;
    *row = q->row;
    return row;
}

/* Adds the rows that choose tokens: one behind the sequence's last token, which is `last` in the
 * batch, and one behind each draft. */
static void add_choices(filling *f, vt_seq *q, vt_plan_entry *entry, int32_t last)
{
    for (int32_t i = 0; i <= entry->n_drafted; i++) {
        vt_sample_row *row = add_row(f, last + i, q);
        vt_seq_choose_at(q, seq_length(q) + i, row);
        row->n_context = q->n_tokens + i;
        row->pending_slot = q->n_pending > 0 ? q->slot : -1;
        if (q->constrained && !entry->held)
            row->mask = vt_constrained_mask(q->constrained, i);
        row->pool_slot = entry->n_drafted > 0 ? -1 : q->slot; /* the next plan knows the tokens */
    }
}

/* The rows of a sequence's next q_len tokens, which begin at the batch's token `first`: prompt
 * tokens to score or to pool, and the choice of new tokens if the sequence's end is reached. */
static void add_rows(filling *f, vt_seq *q, vt_plan_entry *entry, int32_t first, int32_t q_len)
{
    int32_t begin = q->n_computed, end = begin + q_len - entry->n_drafted;
    entry->row = f->plan->step.batch.n_rows;
    entry->scored_from = q->n_scored;
    for (int32_t p = q->n_scored; p < end && p < q->score_end; p++) {
        vt_sample_row *row = add_row(f, first + p - begin, q);
        row->target = q->embedding ? -1 : q->token[p + 1];
        row->n_top = row->n_top > 0 ? row->n_top : 0;
        row->position = p + 1;
        row->context = NULL; /* scores are the model's own: no penalties, bias or mask */
        row->bias = NULL;
        row->n_bias = 0;
        row->mask = NULL;
        entry->n_scored++;
    }
    q->n_scored += entry->n_scored;
    entry->samples = end == seq_length(q) && end < q->max_len;
    entry->held = entry->samples && q->constrained && q->n_pending > 0;
    if (entry->samples)
        add_choices(f, q, entry, first + end - begin - 1);
}

/* Lists the window pages of a sequence beside its pages, and the places of its tokens in them. */
static void place_windows(vt_plan *p, const vt_seq *q, int32_t q_len, int32_t n_pages)
{
    const vt_batch *b = &p->step.batch;
    int32_t *out = p->window_page_ids + b->n_pages, size = b->page_size;
    for (int32_t i = 0; i < n_pages; i++)
        out[i] = i < q->window_begin ? 0 : q->window_page[i];
    for (int32_t i = 0; i < q_len; i++) {
        int32_t pos = q->n_computed + i;
        p->window_slot[b->n_tokens + i] = out[pos / size] * size + pos % size;
    }
}

/* Lists the state slots of the sequence at `at`, whose q_len tokens begin at the batch's token
 * `first`. A snapshot that is read stays held until the plan is whole. Where the sequence brings
 * guesses, the state behind its last known token goes to its own slot:
 *
 *   tokens         t         d0        d1
 *   written to   state_to  guess[0]  guess[1]
 */
static void place_states(vt_plan *p, vt_seq *q, int32_t at, int32_t first, int32_t q_len)
{
    p->state_from[at] = q->state_from;
    p->state_to[at] = q->state_from = q->state_to;
    for (int32_t i = 0; p->state_behind && i < q_len; i++)
        p->state_behind[first + i] = -1;
    if (q->n_guess_states == 0)
        return;
    p->state_behind[first] = q->state_to;
    for (int32_t i = 1; i < q->n_guess_states; i++)
        p->state_behind[first + i] = q->guess_state[i - 1];
    p->state_to[at] = q->guess_state[q->n_guess_states - 1];
}

/* Adds the next q_len tokens of a running sequence to the batch. The last n_drafted of them are
 * guesses, which lie behind the sequence's last token. */
static void place(vt_sched *s, filling *f, vt_seq *q, int32_t q_len, int32_t n_drafted)
{
    vt_plan *p = f->plan;
    vt_batch *b = &p->step.batch;
    int32_t size = b->page_size, at = b->n_seqs, first = b->n_tokens, begin = q->n_computed;
    vt_plan_entry *entry = &p->entry[at];
    *entry = (vt_plan_entry){
        .seq = q, .q_len = q_len, .kv_len = begin + q_len, .n_drafted = n_drafted};
    for (int32_t i = 0; i < q_len; i++) {
        int32_t pos = begin + i, t = first + i;
        p->token[t] = pos == q->n_tokens && q->n_pending > 0 ? -1 - q->slot : q->token[pos];
        p->position[t] = pos;
        p->seq_of[t] = at;
        p->slot[t] = q->page[pos / size] * size + pos % size;
    }
    add_rows(f, q, entry, first, q_len);
    if (sched_has_states(s))
        place_states(p, q, at, first, q_len);
    if (p->second)
        p->second[at] = q->req->p.second;
    if (p->adapter)
        p->adapter[at] = q->req->adapter;
    int32_t n_pages = (begin + q_len + size - 1) / size;
    memcpy(p->page_ids + b->n_pages, q->page, (size_t)n_pages * sizeof *q->page);
    if (p->window_slot)
        place_windows(p, q, q_len, n_pages);
    b->n_pages += n_pages;
    b->n_tokens += q_len;
    b->n_seqs++;
    p->kv_len[at] = begin + q_len;
    p->q_start[at + 1] = b->n_tokens;
    p->page_start[at + 1] = b->n_pages;
    f->tokens_left -= q_len;

    entry->ends_prompt = begin < q->n_prompt && begin + q_len >= q->n_prompt;
    if (entry->ends_prompt)
        q->prompt_step = f->step;
    p->step.held = p->step.held || entry->held;
    q->n_computed += q_len - n_drafted;
    q->n_pending += entry->samples;
    q->n_drafted = n_drafted;
    q->n_inflight++;
    q->req->n_inflight++;
    sched_enter_pages(s, q, f->step, false);
}

static bool is_decode(const vt_seq *q) { return work_left(q) == 1; }

/* The most guesses that may follow a decode's last token, beside what the step has left. */
static int32_t most_guesses(const vt_seq *q)
{
    int32_t at = seq_length(q), most = q->max_len - at - 1;
    return at == q->n_prompt ? 0 : most < VT_DRAFT_MOST ? most : VT_DRAFT_MOST;
}

/* Decides how many guesses each decode asks for, of `spare` in all, and lets the drafter prepare
 * them. */
static void want_drafts(vt_sched *s, vt_plan *p, int32_t spare)
{
    const vt_drafter *d = &s->config.drafter;
    int32_t n = 0, trials = vt_draft_trials(&s->draft_record, s->n_running);
    bool timed = d->prepare || s->n_running >= VT_DRAFT_CROWD,
         worth = d->draft && (!timed || vt_draft_worth(&s->draft_record, s->n_running));
    p->draft_ns = 0;
    p->draft_trial = false;
    p->n_running = s->n_running;
    for (int32_t i = 0; i < s->n_running && d->draft; i++) {
        vt_seq *q = s->running[i];
        int32_t most = is_decode(q) ? most_guesses(q) : 0, length = vt_draft_length(&q->drafting);
        most = most < spare ? most : spare;
        bool asks = worth && most > 0 && vt_draft_due(&q->drafting);
        q->drafting.trial = asks && !vt_draft_pays(&s->draft_record, &q->drafting, s->n_running);
        asks = asks && (!q->drafting.trial || trials > 0);
        q->drafting.wanted = !asks ? 0 : length < most ? length : most;
        if (q->drafting.wanted > 0 && d->prepare) {
            s->drafted[n++] = (vt_drafted){q, q->drafting.wanted};
            spare -= q->drafting.wanted;
            trials -= q->drafting.trial;
        }
    }
    s->draft_trials = d->prepare ? s->n_running : trials;
    if (n > 0)
        p->draft_ns = d->prepare(d->user, s->drafted, n);
    s->stats.draft_ns += p->draft_ns;
}

/* Asks the drafter for at most `most` guesses behind a decode's last token. Returns what guess
 * returns. */
static int32_t ask_drafter(vt_sched *s, vt_seq *q, int32_t most)
{
    int32_t *out = q->token + seq_length(q);
    most = q->drafting.wanted < most ? q->drafting.wanted : most;
    int32_t n = most > 0 ? s->config.drafter.draft(s->config.drafter.user, q, out, most) : 0;
    if (n > 0 && q->drafting.trial && s->draft_trials-- <= 0)
        return 0;
    if (n > 0)
        vt_draft_guessed(&s->draft_record);
    if (n > 0 && q->n_pending > 0 && (q->row.context || q->constrained))
        return -1; /* the rows behind guesses need the pending token: penalties count it */
    return n > 0 && q->constrained ? vt_constrained_drafts(q->constrained, out, n) : n;
}

/* Guesses the next tokens of a decode into token[], behind its last one, at most `most` of them,
 * and takes pages for them while pages are left: the tokens that its constraint leaves no choice
 * of, or what the drafter says. Returns how many there are; -1: the guesses have to wait until the
 * pending token is known. */
static int32_t guess(vt_sched *s, vt_seq *q, int32_t most)
{
    int32_t size = s->radix.page_size, at = seq_length(q), n = 0;
    if (at == q->n_prompt)
        return 0;
    most = most_guesses(q) < most ? most_guesses(q) : most;
    if (s->config.forced && q->constrained && q->n_pending > 0)
        return vt_constrained_certain(q->constrained) ? -1 : ask_drafter(s, q, most);
    if (s->config.forced && q->constrained)
        n = vt_constrained_forced(q->constrained, q->token + at, most);
    q->forced = n > 0;
    if (n == 0)
        n = ask_drafter(s, q, most);
    while (n > 0 && at + n > q->n_pages * size) {
        if (vt_radix_take(&s->radix, 1, &q->page[q->n_pages], VT_EVICT_GROW) == VT_OK)
            q->n_pages++;
        else
            n = q->n_pages * size - at;
    }
    if (n > 0 && sched_has_windows(s))
        n = sched_cover(s, q, 1 + n) - 1;
    return n > 0 && sched_has_states(s) ? sched_take_guess_states(s, q, n) : n;
}

/* Places the decodes: first those of one token, then those with drafts. Drafts get what the tokens
 * and rows of all decodes leave, in order of admission. */
static void place_decodes(vt_sched *s, filling *f)
{
    int32_t n = 0, n_later = 0;
    s->draft_record.waited += s->draft_record.waited < INT32_MAX;
    for (int32_t i = 0; i < s->n_running; i++)
        n += is_decode(s->running[i]);
    int32_t spare = (f->tokens_left < f->rows_left ? f->tokens_left : f->rows_left) - n;
    int32_t states = s->config.n_guess_states - s->n_guess_states;
    if (sched_has_states(s) && states < spare)
        spare = states;
    want_drafts(s, f->plan, spare);
    for (int32_t i = 0; i < s->n_running && f->rows_left > 0; i++) {
        vt_seq *q = s->running[i];
        if (!is_decode(q))
            continue;
        int32_t guesses = spare > 0 ? guess(s, q, spare) : 0;
        if (guesses > 0) {
            s->drafted[n_later++] = (vt_drafted){q, guesses};
            spare -= guesses;
            f->plan->draft_trial = f->plan->draft_trial || (q->drafting.trial && !q->forced);
        } else if (guesses == 0) {
            place(s, f, q, 1, 0);
        }
    }
    f->plan->step.batch.n_decode = f->plan->step.batch.n_seqs;
    s->stats.decode_tokens += (uint64_t)(f->plan->step.batch.n_tokens + n_later);
    f->plan->step.batch.n_drafted = n_later;
    for (int32_t i = 0; i < n_later; i++)
        place(s, f, s->drafted[i].seq, 1 + s->drafted[i].n, s->drafted[i].n);
}

/* Leaves as many tokens for prefill as fit into the target gap of the step's decodes. */
static void keep_gap(const vt_sched *s, filling *f)
{
    if (s->config.target_gap_ns == 0 || f->plan->step.batch.n_seqs == 0)
        return;
    int32_t most = vt_step_time_tokens(&s->step_time, s->config.target_gap_ns);
    if (f->tokens_left > most)
        f->tokens_left = most;
}

static void place_running(vt_sched *s, filling *f)
{
    place_decodes(s, f);
    keep_gap(s, f);
    for (int32_t i = 0; i < s->n_running && f->tokens_left > 0; i++) {
        int32_t n = work_left(s->running[i]) > 1 ? chunk_that_fits(s, f, s->running[i]) : 0;
        if (n > 0) {
            place(s, f, s->running[i], n, 0);
            s->stats.prefill_tokens += (uint64_t)n;
        }
    }
}

/* ---- 6. admission ---- */

typedef enum verdict { ADMITTED, WAITS, NO_ROOM } verdict;

/* KV that a sequence need not compute: pages to share, and part of a page to copy. */
typedef struct found {
    int32_t n_pages;                /* in s->match_page */
    int32_t n_in_tree;              /* the first of these, which are in the tree */
    int32_t copy_from, copy_tokens; /* a page, -1: none, and how many of its tokens */
    int32_t window_first;           /* with window pages: the first of them in s->match_window */
    int32_t window_from;            /* and the one to copy from */
    int32_t state;                  /* with sequence state: the snapshot behind the pages; or -1 */
    int32_t branch;                 /* and the end of the cached pages, if they reach further */
} found;

/* The window page at place i of the first completion's pages; -1: it is no longer there. */
static int32_t window_of(const vt_sched *s, const vt_seq *first, int32_t i)
{
    if (i >= first->window_begin)
        return first->window_page[i];
    return i < first->n_in_tree ? s->radix.node[first->page[i]].window : -1;
}

/* Finds the window pages of the first completion that a further one needs. Returns false if the
 * first one has gone on too far. */
static bool find_sibling_windows(vt_sched *s, const vt_seq *first, found *f)
{
    f->window_first = vt_radix_window_first(&s->radix, f->n_pages * s->radix.page_size);
    for (int32_t i = f->window_first; i < f->n_pages; i++)
        if ((s->match_window[i] = window_of(s, first, i)) < 0)
            return false;
    f->window_from = f->copy_tokens > 0 ? window_of(s, first, f->n_pages) : 0;
    return f->window_from >= 0;
}

/* The window pages of what the tree has. */
static void find_windows(vt_sched *s, found *f)
{
    f->window_first = vt_radix_window_first(&s->radix, f->n_pages * s->radix.page_size);
    for (int32_t i = f->window_first; i < f->n_pages; i++)
        s->match_window[i] = s->radix.node[s->match_page[i]].window;
    if (f->copy_from >= 0)
        f->window_from = s->radix.node[f->copy_from].window;
}

/* A further completion of a request takes the prompt's pages straight from the first one, as soon
 * as an earlier step computes the whole prompt. Returns false if window pages of the prompt are
 * gone already. */
static bool find_sibling(vt_sched *s, const vt_seq *q, found *f)
{
    const vt_seq *first = &q->req->seq[0];
    int32_t size = s->radix.page_size, n = (q->n_prompt - 1) / size;
    memcpy(s->match_page, first->page, (size_t)n * sizeof *first->page);
    *f = (found){.n_pages = n,
                 .n_in_tree = first->n_in_tree < n ? first->n_in_tree : n,
                 .copy_from = first->page[n],
                 .state = -1,
                 .copy_tokens = (q->n_prompt - 1) % size};
    return !sched_has_windows(s) || find_sibling_windows(s, first, f);
}

/* With sequence state: returns true if d, a prefill that begins with the same `n` pages, will keep
 * its state behind more than n_matched of them. Where d goes on differently, it is asked to. */
static bool snapshot_to_come(const vt_sched *s, vt_seq *d, int32_t n, int32_t n_matched)
{
    int32_t size = s->radix.page_size, last = sched_last_border(s, d) / size;
    int32_t at = n < last ? n : last;
    if (at <= n_matched || at * size < d->n_computed)
        return false;
    if (at < last && d->branch <= d->n_computed && at * size > d->n_computed)
        d->branch = at * size;
    return at == last || d->branch == at * size;
}

/* Is a running prefill of the same tenant about to compute a page that q wants and the tree does
 * not have yet? (Another tenant's is never waited for: the wait would tell what that one asked.) */
static bool should_ride(const vt_sched *s, const vt_seq *q, int32_t limit, int32_t n_matched)
{
    for (int32_t i = 0; i < s->n_running; i++) {
        vt_seq *d = s->running[i];
        if (d->n_computed >= d->n_prompt || d->req->tenant != q->req->tenant)
            continue;
        int32_t most = limit < d->n_prompt ? limit : d->n_prompt;
        int32_t n = (int32_t)vt_prefix_match(q->token, d->token, most) / s->radix.page_size;
        if (sched_has_windows(s) && n * s->radix.page_size <= d->n_computed)
            continue; /* what the tree has of these is what it will have */
        if (sched_has_states(s) ? snapshot_to_come(s, d, n, n_matched) : n > n_matched)
            return true;
    }
    return false;
}

static verdict find_prefix(vt_sched *s, const vt_seq *q, uint64_t step, found *f)
{
    const vt_seq *first = &q->req->seq[0];
    if (q->index > 0 && q->n_tokens == q->n_prompt && first->state != VT_SEQ_DONE) {
        bool running = first->state == VT_SEQ_RUNNING, states = sched_has_states(s);
        if (!running || (!states && (first->prompt_step == 0 || first->prompt_step >= step)))
            return WAITS;
        if (!states && find_sibling(s, q, f))
            return ADMITTED;
    }
    *f = (found){.copy_from = -1, .state = -1};
    if (q->req->tenant == VT_NO_TENANT)
        return ADMITTED;
    int32_t limit = q->n_tokens - 1; /* the last token is computed: its logits are wanted */
    if (q->n_scored < q->score_end && q->n_scored < limit)
        limit = q->n_scored; /* positions that are scored must be computed */
    vt_radix_match m = vt_radix_find(&s->radix, q->req->tenant, q->token, limit, step,
                                     s->match_page);
    *f = (found){.n_pages = m.n_pages,
                 .n_in_tree = m.n_pages,
                 .copy_from = m.copy_from,
                 .copy_tokens = m.copy_tokens,
                 .state = m.state,
                 .branch = m.n_known > m.n_pages ? m.n_known * s->radix.page_size : 0};
    if (sched_has_windows(s))
        find_windows(s, f);
    return should_ride(s, q, limit, m.n_pages) ? WAITS : ADMITTED;
}

static void drop_windows(vt_sched *s, const found *f)
{
    vt_radix_drop_windows(&s->radix, s->match_window + f->window_first,
                          f->n_pages - f->window_first);
    if (f->copy_from >= 0)
        vt_radix_drop_windows(&s->radix, &f->window_from, 1);
}

/* Holds the window pages that were found, and takes the one to copy to. Returns false, and holds
 * none, unless as many are left as the sequence will need beside them: those of the rest of its
 * prompt, or a window of them. */
static bool take_windows(vt_sched *s, vt_seq *q, const found *f)
{
    if (!sched_has_windows(s))
        return true;
    vt_radix *r = &s->radix;
    int32_t held = f->n_pages - f->window_first, copies = f->copy_from >= 0,
            all = (int32_t)vt_ceil_div(q->n_tokens, r->page_size) - f->window_first,
            span = vt_radix_window_span(s->config.window, r->page_size),
            want = (all < span ? all : span) - held;
    vt_radix_hold_windows(r, s->match_window + f->window_first, held);
    vt_radix_hold_windows(r, &f->window_from, copies);
    want = want > copies ? want : copies;
    bool room = vt_radix_windows_available(r) >= want + s->n_running &&
                vt_radix_take_windows(r, copies, &q->window_page[f->n_pages]) == VT_OK;
    if (!room) {
        drop_windows(s, f);
        return false;
    }
    memcpy(q->window_page + f->window_first, s->match_window + f->window_first,
           (size_t)held * sizeof *q->window_page);
    q->window_begin = f->window_first;
    q->window_end = f->n_pages + copies;
    return true;
}

/* Holds the pages that were found and takes new ones for the rest of the prompt. All or nothing. */
static bool take_pages(vt_sched *s, vt_seq *q, found *f)
{
    vt_radix *r = &s->radix;
    int32_t want = (int32_t)vt_ceil_div(q->n_tokens, r->page_size) - f->n_pages;
    int32_t spare = s->config.whole ? 0 : s->n_running; /* of which each may want a page soon */
    vt_radix_hold(r, s->match_page, f->n_pages);
    if (f->copy_from >= 0)
        vt_radix_hold(r, &f->copy_from, 1);
    if (f->copy_from >= 0 &&
        vt_radix_available(r) < want + spare) { /* do without the copy: holding its source
                                                          may be what makes a page too few */
        vt_radix_drop(r, &f->copy_from, 1);
        f->copy_from = -1;
    }
    bool room = vt_radix_available(r) >= want + spare &&
                vt_radix_take(r, want, q->page + f->n_pages, VT_EVICT_ADMIT) == VT_OK;
    if (!room) {
        if (f->copy_from >= 0)
            vt_radix_drop(r, &f->copy_from, 1);
        vt_radix_drop(r, s->match_page, f->n_pages);
        return false;
    }
    memcpy(q->page, s->match_page, (size_t)f->n_pages * sizeof *q->page);
    q->n_pages = f->n_pages + want;
    return true;
}

/* Undoes take_pages. */
static void return_pages(vt_sched *s, vt_seq *q, const found *f)
{
    vt_radix_drop(&s->radix, q->page, q->n_pages);
    if (f->copy_from >= 0)
        vt_radix_drop(&s->radix, &f->copy_from, 1);
    q->n_pages = 0;
}

/* Gives the sequence a slot to write its state to, and holds the snapshot that was found. Where
 * only that snapshot's slot is left, the sequence does without the hit. */
static bool take_states(vt_sched *s, vt_seq *q, found *f)
{
    if (f->state >= 0)
        vt_radix_hold_state(&s->radix, f->state);
    q->state_to = vt_radix_take_state(&s->radix);
    if (q->state_to < 0 && f->state >= 0) {
        vt_radix_drop_state(&s->radix, f->state);
        *f = (found){.copy_from = -1, .state = -1};
        q->state_to = vt_radix_take_state(&s->radix);
    }
    q->state_from = f->state;
    q->branch = f->branch;
    return q->state_to >= 0;
}

/* Undoes take_states. */
static void return_states(vt_sched *s, vt_seq *q)
{
    if (q->state_from >= 0)
        vt_radix_drop_state(&s->radix, q->state_from);
    vt_radix_drop_state(&s->radix, q->state_to);
    q->state_to = q->state_from = -1;
}

static void count_hit(vt_sched *s, const vt_seq *q, const found *f)
{
    vt_radix_stats *st = &s->radix.stats;
    st->lookups++;
    st->lookup_tokens += (uint64_t)q->n_tokens;
    st->hit_tokens += (uint64_t)f->n_pages * (uint64_t)s->radix.page_size;
    st->copied_tokens += f->copy_from >= 0 ? (uint64_t)f->copy_tokens : 0;
}

static verdict admit(vt_sched *s, filling *fill, int32_t at)
{
    vt_seq *q = s->queue[at];
    found f;
    if (q->n_inflight > 0 || find_prefix(s, q, fill->step, &f) == WAITS)
        return WAITS;
    if (f.copy_tokens == 0)
        f.copy_from = -1;
    bool states = sched_has_states(s);
    if (states && !take_states(s, q, &f))
        return NO_ROOM;
    bool room = take_pages(s, q, &f);
    if (room && !take_windows(s, q, &f)) {
        return_pages(s, q, &f);
        room = false;
    }
    if (!room) {
        if (states)
            return_states(s, q);
        s->no_room = true;
        return NO_ROOM;
    }
    count_hit(s, q, &f);
    q->n_computed = f.n_pages * s->radix.page_size;
    q->n_in_tree = f.n_in_tree;
    if (f.copy_from >= 0) {
        vt_plan *p = fill->plan;
        int32_t i = p->step.batch.n_copies++;
        p->copy[i] = (vt_page_copy){f.copy_from, q->page[f.n_pages], f.copy_tokens};
        if (p->window_copy)
            p->window_copy[i] = (vt_page_copy){f.window_from, q->window_page[f.n_pages],
                                               f.copy_tokens};
        q->n_computed += f.copy_tokens;
    }
    if (q->n_computed >= q->n_prompt) /* it was retracted, and its prompt was still cached */
        q->prompt_step = fill->step;
    if (!q->admitted)
        q->cached_tokens = q->n_computed;
    q->admitted = true;
    q->admit_step = fill->step;
    q->hit_copied = f.copy_from >= 0 ? f.copy_tokens : 0;
    q->state = VT_SEQ_RUNNING;
    q->slot = s->free_slot[--s->n_free_slots];
    sched_unqueue(s, at);
    s->running[s->n_running++] = q;
    s->stats.admitted++;
    return ADMITTED;
}

/* The place in the queue, `from` or later, of the sequence to admit next. Under lpm: the one of the
 * first VT_LOOKAHEAD with the longest cached prefix, but the oldest once VT_LOOKAHEAD younger ones
 * went before it. Under the other policies: `from`. */
static int32_t choose(vt_sched *s, int32_t from, uint64_t step)
{
    int32_t best = from, best_hit = -1, n = s->n_queue < VT_LOOKAHEAD ? s->n_queue : VT_LOOKAHEAD;
    if (s->config.policy != VT_POLICY_LPM || s->queue[from]->n_passed >= VT_LOOKAHEAD)
        return from;
    for (int32_t i = from; i < n; i++) {
        const vt_seq *q = s->queue[i];
        vt_radix_match m = vt_radix_find(&s->radix, q->req->tenant, q->token, q->n_tokens - 1, step,
                                         s->match_page);
        int32_t hit = m.n_pages * s->radix.page_size + m.copy_tokens;
        if (hit > best_hit) {
            best = i;
            best_hit = hit;
        }
    }
    return best;
}

static void waited(vt_seq *q, vt_wait_reason why)
{
    q->n_waited[why] += q->n_waited[why] < UINT16_MAX;
}

/* Notes why the sequences of the queue from place `at` on were not admitted, as far as a step looks
 * at all. `full` is the place of the one for which too few pages were left; -1: there was none. */
static void note_waits(vt_sched *s, const filling *f, int32_t at, int32_t full)
{
    vt_wait_reason why = s->n_free_slots == 0  ? VT_WAIT_SLOTS
                         : f->tokens_left == 0 ? VT_WAIT_TOKENS
                         : f->rows_left == 0   ? VT_WAIT_ROWS
                                               : VT_WAIT_POLICY;
    for (int32_t i = at; i < s->n_queue && i < VT_LOOKAHEAD; i++)
        waited(s->queue[i], i == full ? VT_WAIT_PAGES : why);
}

static void admit_all(vt_sched *s, filling *f)
{
    int32_t at = 0;
    while (at < s->n_queue && at < VT_LOOKAHEAD && s->n_free_slots > 0 && f->tokens_left > 0 &&
           f->rows_left > 0) {
        int32_t pick = choose(s, at, f->step);
        vt_seq *q = s->queue[pick];
        verdict v = admit(s, f, pick);
        if (v == NO_ROOM) { /* if others overtook it, it could wait for ever */
            note_waits(s, f, at, pick);
            return;
        }
        if (v == WAITS) {
            waited(q, q->n_inflight > 0 ? VT_WAIT_FLIGHT : VT_WAIT_PREFIX);
            at = pick + 1;
            continue;
        }
        for (int32_t i = at; i < pick; i++)
            s->queue[i]->n_passed++;
        int32_t n = chunk_that_fits(s, f, q);
        if (n > 0) {
            place(s, f, q, n, 0);
            s->stats.prefill_tokens += (uint64_t)n;
        }
    }
    note_waits(s, f, at, -1);
}

/* ---- the whole ---- */

static vt_plan *free_plan(vt_sched *s)
{
    for (int32_t i = 0; i < VT_PLANS; i++)
        if (!s->plan[i].in_flight)
            return &s->plan[i];
    assert(!"more than two plans");
    return NULL;
}

/* The slot of its own that sequence i of a plan writes. */
static int32_t own_state(const vt_plan *p, int32_t i)
{
    int32_t behind = p->state_behind ? p->state_behind[p->q_start[i]] : -1;
    return behind >= 0 ? behind : p->state_to[i];
}

vt_plan *vt_sched_plan(vt_sched *s, int64_t now_ns)
{
    s->n_retracted = 0;
    s->no_room = false;
    expire(s, now_ns);
    for (int32_t i = 0; i < s->n_running; i++)
        sched_enter_pages(s, s->running[i], s->next_step - 1, true);
    for (int32_t i = 0; sched_has_windows(s) && i < s->n_running; i++)
        sched_slide(s, s->running[i]);
    grow(s);
    vt_plan *p = free_plan(s);
    vt_batch *b = &p->step.batch;
    b->n_tokens = b->n_seqs = b->n_decode = b->n_drafted = b->n_rows = b->n_pages = 0;
    b->n_copies = 0;
    p->step.held = false;
    p->q_start[0] = p->page_start[0] = 0;
    filling f = {.plan = p,
                 .step = s->next_step,
                 .tokens_left = s->config.limits.max_tokens,
                 .rows_left = s->config.limits.max_rows};
    place_running(s, &f);
    admit_all(s, &f);
    /* sources of copies were held so that this step could not reuse them as fresh pages */
    for (int32_t i = 0; i < p->step.batch.n_copies; i++)
        vt_radix_drop(&s->radix, &p->copy[i].from, 1);
    for (int32_t i = 0; p->window_copy && i < p->step.batch.n_copies; i++)
        vt_radix_drop_windows(&s->radix, &p->window_copy[i].from, 1);
    for (int32_t i = 0; sched_has_states(s) && i < b->n_seqs; i++) /* snapshots likewise */
        if (p->state_from[i] >= 0 && p->state_from[i] != own_state(p, i))
            vt_radix_drop_state(&s->radix, p->state_from[i]);
    if (b->n_tokens == 0)
        return NULL;
    s->stats.steps++;
    p->step.id = s->next_step++;
    p->in_flight = true;
    return p;
}
