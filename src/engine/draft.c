/* Prompt lookup and the pace of drafts (engine/draft.h).
 *
 * The index of a sequence is a table of positions without chains: `seen[hash of three tokens]` is
 * the position that followed them the last time. A later three with the same hash takes the place
 * over, so a lookup compares the tokens. Every token is entered once, when the sequence is next
 * asked for a guess, so that a step costs the same however long the sequence is. */
#include "engine/draft.h"

#include <string.h>

#include "base/random.h"
#include "engine/request.h"

enum {
    GRAM = 3, /* tokens that must agree before the next ones are guessed */
    FIRST_LENGTH = 4,
    FIRST_PAUSE = 4,
    MOST_MISSES = 6,    /* the pause doubles so often: 4 << 6 is 256 plans */
    KNOWN = 8,          /* guesses after which a sequence is judged by its own */
    RETRY = 64,         /* plans without a guess after which one is tried, */
    MOST_FRUITLESS = 4, /* and which double so often where no guess of such trials held */
    LOOK = 4 /* of RETRY plans go the way that is known to be slower. The first of them only lets
                sequences wait for a pending token, which computed guesses have to know */
};

bool vt_draft_lookup_init(vt_drafting *d, int32_t max_len, vt_arena *arena)
{
    int32_t n = 16;
    while (n < max_len && n <= INT32_MAX / 2)
        n *= 2;
    *d = (vt_drafting){.n_seen = n};
    d->seen = vt_arena_alloc(arena, (size_t)n, sizeof *d->seen); /* zeros: no position */
    return d->seen != NULL;
}

/* The table's place for the GRAM tokens that end before position `end`. */
static int32_t *place_of(vt_drafting *d, const int32_t *token, int32_t end)
{
    uint64_t hash = 0;
    for (int32_t i = end - GRAM; i < end; i++) {
        uint64_t state = hash ^ (uint64_t)(uint32_t)token[i];
        hash = vt_random_next(&state);
    }
    return &d->seen[hash & (uint64_t)(d->n_seen - 1)];
}

/* Enters every three known tokens but the last, whose continuation is what is asked for. */
static void index_known(vt_drafting *d, const vt_seq *q)
{
    int32_t end = d->n_indexed < GRAM ? GRAM : d->n_indexed + 1;
    for (; end < q->n_tokens; end++) {
        *place_of(d, q->token, end) = end;
        d->n_indexed = end;
    }
}

static int32_t lookup(void *user, struct vt_seq *q, int32_t *out, int32_t max)
{
    (void)user;
    vt_drafting *d = &q->drafting;
    if (!d->seen || q->n_tokens < GRAM + 1)
        return 0;
    index_known(d, q);
    int32_t from = *place_of(d, q->token, q->n_tokens), n = 0;
    if (from < GRAM ||
        memcmp(q->token + from - GRAM, q->token + q->n_tokens - GRAM, GRAM * sizeof *out) != 0)
        return 0;
    int32_t period = q->n_tokens - from; /* what followed goes on as it came, and then again */
    for (; n < max; n++)
        out[n] = q->token[from + (q->n_pending + n) % period];
    return n;
}

const vt_drafter vt_draft_lookup = {.draft = lookup};

bool vt_draft_due(vt_drafting *d)
{
    if (d->pause == 0)
        return true;
    d->pause--;
    return false;
}

int32_t vt_draft_length(const vt_drafting *d) { return d->length > 0 ? d->length : FIRST_LENGTH; }

bool vt_draft_pays(const vt_draft_record *all, const vt_drafting *d, int32_t running)
{
    /* Measured with lookup at 64: it pays where 87 % hold and costs where half do
     * (docs/performance.md). Up to 4 sequences a step of a few rows more takes hardly longer. */
    float need = (float)(running - 4) / 64;
    bool own = d->tokens >= KNOWN;
    float held = own ? (float)d->accepted / (float)d->tokens : 1 - all->wrong;
    return need <= 0 || ((own || all->verified >= KNOWN) && held >= (need < 0.7f ? need : 0.7f));
}

/* A few tell as much as all of them would, and cost less: a head reads a prompt before it guesses,
 * and a wrong guess is a row of a step that all wait for. */
int32_t vt_draft_trials(const vt_draft_record *all, int32_t running)
{
    if (all->verified >= KNOWN && all->waited < RETRY << all->fruitless)
        return 0;
    return running < 16 ? 1 : running / 8;
}

void vt_draft_guessed(vt_draft_record *all)
{
    if (all->waited >= RETRY && all->fruitless < MOST_FRUITLESS)
        all->fruitless++; /* until one holds */
    all->waited = 0;
}

static int32_t size_of(int32_t n)
{
    int32_t size = 0;
    for (; n > 1 && size < VT_DRAFT_SIZES - 1; n /= 2)
        size++;
    return size;
}

bool vt_draft_worth(vt_draft_record *all, int32_t running)
{
    int32_t i = size_of(running);
    uint32_t plan = all->plans[i]++;
    if (all->without_ns[i] <= 0)
        return false;
    bool better = all->with_ns[i] <= all->without_ns[i];
    return plan % RETRY >= RETRY - LOOK ? !better : better;
}

void vt_draft_took(vt_draft_record *all, int32_t n, bool drafted, int64_t ns, int32_t tokens)
{
    float *mean = drafted ? &all->with_ns[size_of(n)] : &all->without_ns[size_of(n)];
    if (ns <= 0 || tokens <= 0)
        return;
    float each = (float)ns / (float)tokens;
    *mean += *mean > 0 ? (each - *mean) / 4 : each;
}

void vt_draft_verified(vt_draft_record *all, vt_drafting *d, int32_t drafted, int32_t accepted)
{
    if (drafted == 0)
        return;
    all->wrong += ((float)(drafted - accepted) / (float)drafted - all->wrong) / 8;
    all->verified += all->verified < KNOWN ? drafted : 0;
    d->tokens += drafted;
    d->accepted += accepted;
    if (accepted == 0) {
        d->pause = FIRST_PAUSE << d->misses;
        d->misses += d->misses < MOST_MISSES;
        d->length = 2;
        return;
    }
    all->fruitless = 0;
    d->misses = 0;
    d->length = accepted < drafted ? accepted + 1 : 2 * drafted;
    if (d->length > VT_DRAFT_MOST)
        d->length = VT_DRAFT_MOST;
}
