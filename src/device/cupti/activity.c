/* Activity records (activity.h).
 *
 *   capture        node made     -> nodes[id] = the rank and the call that this thread captures
 *   instantiate    node cloned   -> nodes[id of the clone] = nodes[id of the original]
 *   graph launch   a record with its node's id      ─┐
 *   other launch   a record with the id of the       ├─> rank and call
 *                  driver's call, and another one    ─┘
 *                  that says what was pushed when the driver was called
 *
 * CUPTI takes buffers from a pool and gives them back full, on any of its threads; their records
 * are copied to `record` at once. Whatever has no room is counted as lost. Times are CUPTI's, and
 * come onto the host's clock by reading both.
 *
 * Two locks: `state` guards who is open and who records, and is held while CUPTI is asked; `lock`
 * guards nodes, buffers and records, which CUPTI's callbacks fill. `state` is taken first. */
#include "device/cupti/activity.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"

enum {
    BUFFERS = 16,
    BUFFER_BYTES = 1 << 20, /* of some 4,000 kernels */
    MOST_RECORDS = 1 << 15, /* of a rank's step: the longest program has some 2,000 kernels */
    NODE_SLOTS = 1 << 20,   /* a power of two; 192 graphs of 600 nodes are 115,200 a rank */
    NODE_TRIES = 16         /* slots in which a node may be */
};

static const int kinds[] = {CUPTI_RECORD_OUTSIDE, CUPTI_RECORD_CALL, CUPTI_RECORD_KERNEL,
                            CUPTI_RECORD_COPY, CUPTI_RECORD_FILL};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* The rank and the call that a record belongs to. */
typedef struct owner {
    int32_t rank, call; /* -1: not known; call -1 of a rank: work outside of its calls */
} owner;

static const owner nobody = {-1, -1};

typedef struct node_slot {
    uint64_t id; /* 0: free */
    owner of;
} node_slot;

/* A record as it came. */
typedef struct raw_record {
    vt_activity_record is;
    uint64_t node;
    uint32_t correlation;
} raw_record;

/* The driver's call `correlation` belongs to a rank's call. */
typedef struct raw_call {
    uint32_t correlation;
    owner of;
} raw_call;

struct vt_activity {
    int32_t rank;
    bool recording; /* between begin and end */
    bool waiting;   /* it has ended, and its records were not told yet */
    bool pushed;    /* CUPTI knows what the launching thread does */
    vt_activity_reader reader;
    vt_activity_totals totals;
};

/* The state that all ranks share. */
static struct {
    pthread_mutex_t state;
    vt_activity *rank[VT_ACTIVITY_RANKS]; /* NULL: not open */
    int32_t n_open, n_ranks, n_recording;
    vt_cupti cupti;
    cupti_subscriber subscriber;
    int n_on;             /* kinds that are switched on */
    pthread_mutex_t lock; /* of what follows: CUPTI calls from its own threads */
    bool open;            /* there is room */
    node_slot *node;      /* [NODE_SLOTS] */
    uint8_t *buffer[BUFFERS];
    bool taken[BUFFERS];
    raw_record *record; /* [n_records] of most_records */
    raw_call *calls;    /* [n_calls] of most_records */
    int64_t n_records, n_calls, most_records, lost;
} all = {.state = PTHREAD_MUTEX_INITIALIZER, .lock = PTHREAD_MUTEX_INITIALIZER};

/* The call that this thread launches or captures. */
static _Thread_local owner current = {-1, -1};

/* ---- nodes of graphs ---- */

static size_t slot_of(uint64_t id) { return (size_t)((id * 0x9e3779b97f4a7c15ull) >> 40); }

/* The node's slot; or, where it has none, a free one; or NULL. */
static node_slot *find_node(uint64_t id)
{
    node_slot *free_slot = NULL;
    for (size_t i = 0; i < NODE_TRIES; i++) {
        node_slot *s = &all.node[(slot_of(id) + i) % NODE_SLOTS];
        if (s->id == id)
            return s;
        if (s->id == 0 && !free_slot)
            free_slot = s;
    }
    return free_slot;
}

static owner owner_of_node(uint64_t id)
{
    const node_slot *s = find_node(id);
    return s && s->id == id ? s->of : nobody;
}

static void note_node(uint64_t id, owner of)
{
    node_slot *s = find_node(id);
    if (s)
        *s = (node_slot){id, of};
}

/* CUPTI calls it while a graph is captured, instantiated or destroyed. */
static void node_changed(void *user, int domain, uint32_t event, const void *data)
{
    const cupti_resource *r = data;
    const cupti_graph_data *g = r ? r->descriptor : NULL;
    uint64_t id = 0, from = 0;
    (void)user;
    if (domain != CUPTI_DOMAIN_RESOURCE || !g || !g->node ||
        all.cupti.f.node_id(g->node, &id) != CUPTI_OK || id == 0)
        return;
    bool cloned = event == CUPTI_NODE_CLONED && g->from_node &&
                  all.cupti.f.node_id(g->from_node, &from) == CUPTI_OK;
    pthread_mutex_lock(&all.lock);
    if (all.open && event == CUPTI_NODE_CREATED)
        note_node(id, current);
    else if (all.open && cloned)
        note_node(id, owner_of_node(from));
    else if (all.open && event == CUPTI_NODE_ENDS && owner_of_node(id).rank >= 0)
        *find_node(id) = (node_slot){0};
    pthread_mutex_unlock(&all.lock);
}

/* ---- buffers ---- */

static void give_buffer(uint8_t **buffer, size_t *bytes, size_t *most_records)
{
    *buffer = NULL; /* CUPTI drops and counts what has no room */
    *bytes = *most_records = 0;
    pthread_mutex_lock(&all.lock);
    for (int i = 0; i < BUFFERS && all.open && !*buffer; i++)
        if (!all.taken[i]) {
            all.taken[i] = true;
            *buffer = all.buffer[i];
            *bytes = BUFFER_BYTES;
        }
    pthread_mutex_unlock(&all.lock);
}

static void note_work(const raw_record *r)
{
    if (all.n_records < all.most_records)
        all.record[all.n_records++] = *r;
    else
        all.lost++;
}

static void note_kernel(const cupti_record_kernel *k)
{
    raw_record r = {.is = {.kind = VT_ACTIVITY_KERNEL,
                           .begin_ns = (int64_t)k->begin_ns,
                           .end_ns = (int64_t)k->end_ns,
                           .name = k->name ? k->name : ""},
                    .node = k->node,
                    .correlation = k->correlation};
    note_work(&r);
}

static void note_copy(const cupti_record_copy *c)
{
    raw_record r = {.is = {.kind = VT_ACTIVITY_COPY,
                           .begin_ns = (int64_t)c->begin_ns,
                           .end_ns = (int64_t)c->end_ns,
                           .bytes = (int64_t)c->bytes,
                           .name = ""},
                    .node = c->node,
                    .correlation = c->correlation};
    note_work(&r);
}

static void note_fill(const cupti_record_fill *f)
{
    raw_record r = {.is = {.kind = VT_ACTIVITY_FILL,
                           .begin_ns = (int64_t)f->begin_ns,
                           .end_ns = (int64_t)f->end_ns,
                           .bytes = (int64_t)f->bytes,
                           .name = ""},
                    .node = f->node,
                    .correlation = f->correlation};
    note_work(&r);
}

/* An owner as CUPTI is told of it, and back. */
static uint64_t outside_id(owner of) { return (uint64_t)of.rank << 32 | (uint32_t)of.call; }

static owner outside_owner(uint64_t id) { return (owner){(int32_t)(id >> 32), (int32_t)id}; }

static void note_call(const cupti_record_outside *o)
{
    if (o->whose != CUPTI_OUTSIDE_CUSTOM)
        return;
    if (all.n_calls < all.most_records)
        all.calls[all.n_calls++] = (raw_call){o->correlation, outside_owner(o->id)};
    else
        all.lost++;
}

static void read_record(const cupti_record *r)
{
    switch (r->kind) {
    case CUPTI_RECORD_KERNEL:
        note_kernel((const void *)r);
        break;
    case CUPTI_RECORD_COPY:
        note_copy((const void *)r);
        break;
    case CUPTI_RECORD_FILL:
        note_fill((const void *)r);
        break;
    case CUPTI_RECORD_OUTSIDE:
        note_call((const void *)r);
        break;
    default: /* the driver's calls themselves */
        break;
    }
}

static void take_buffer(struct cu_context_st *context, uint32_t stream, uint8_t *buffer,
                        size_t bytes, size_t filled)
{
    cupti_record *r = NULL;
    (void)context, (void)stream, (void)bytes;
    if (!buffer)
        return;
    pthread_mutex_lock(&all.lock);
    while (all.open && filled > 0 && all.cupti.f.activity_next(buffer, filled, &r) == CUPTI_OK)
        read_record(r);
    for (int i = 0; i < BUFFERS; i++)
        if (all.buffer[i] == buffer)
            all.taken[i] = false;
    pthread_mutex_unlock(&all.lock);
}

/* ---- opening ---- */

static void free_room(void)
{
    pthread_mutex_lock(&all.lock);
    all.open = false;
    for (int i = 0; i < BUFFERS; i++) {
        free(all.buffer[i]);
        all.buffer[i] = NULL;
        all.taken[i] = false;
    }
    free(all.node);
    free(all.record);
    free(all.calls);
    all.node = NULL;
    all.record = NULL;
    all.calls = NULL;
    pthread_mutex_unlock(&all.lock);
}

static vt_status make_room(int32_t n_ranks, vt_err *err)
{
    pthread_mutex_lock(&all.lock);
    all.most_records = (int64_t)MOST_RECORDS * n_ranks;
    all.node = vt_calloc(NODE_SLOTS, sizeof *all.node);
    all.record = vt_calloc((size_t)all.most_records, sizeof *all.record);
    all.calls = vt_calloc((size_t)all.most_records, sizeof *all.calls);
    all.open = all.node && all.record && all.calls;
    for (int i = 0; i < BUFFERS; i++) {
        all.buffer[i] = vt_calloc(1, BUFFER_BYTES);
        all.open = all.open && all.buffer[i];
    }
    bool open = all.open;
    pthread_mutex_unlock(&all.lock);
    return open ? VT_OK
                : vt_fail(err, VT_ERR_MEMORY, "out of memory for records of a GPU's kernels");
}

static vt_status subscribe(vt_err *err)
{
    static const uint32_t event[] = {CUPTI_NODE_CREATED, CUPTI_NODE_CLONED, CUPTI_NODE_ENDS};
    const cupti_functions *f = &all.cupti.f;
    TRY(vt_cupti_check(&all.cupti, f->subscribe(&all.subscriber, node_changed, NULL),
                       "watching this process", err));
    cuda_driver_stays_started();
    for (size_t i = 0; i < sizeof event / sizeof *event; i++)
        TRY(vt_cupti_check(&all.cupti,
                           f->enable_call(1, all.subscriber, CUPTI_DOMAIN_RESOURCE, event[i]),
                           "watching graphs", err));
    return vt_cupti_check(&all.cupti, f->activity_room(give_buffer, take_buffer),
                          "giving it buffers", err);
}

/* Opens the library and makes room, for all ranks. */
static vt_status open_shared(int32_t n_ranks, vt_err *err)
{
    TRY(vt_cupti_open(&all.cupti, err));
    if (all.cupti.no_activity[0])
        return vt_fail(err, VT_ERR_UNSUPPORTED, "%s", all.cupti.no_activity);
    all.n_ranks = n_ranks;
    TRY(make_room(n_ranks, err));
    return subscribe(err);
}

static void close_shared(void)
{
    if (all.subscriber)
        all.cupti.f.unsubscribe(all.subscriber);
    all.subscriber = NULL;
    free_room();
}

/* `state` is held. */
static vt_status join(vt_activity *a, int32_t n_ranks, vt_err *err)
{
    if (n_ranks < 1 || n_ranks > VT_ACTIVITY_RANKS)
        return vt_fail(err, VT_ERR_UNSUPPORTED, "kernels are recorded of at most %d ranks, not %d",
                       VT_ACTIVITY_RANKS, n_ranks);
    if (all.n_open > 0 && (all.n_ranks != n_ranks || all.rank[a->rank]))
        return vt_fail(err, VT_ERR_UNSUPPORTED,
                       "another engine of this process has its kernels recorded by CUPTI");
    vt_status status = all.n_open == 0 ? open_shared(n_ranks, err) : VT_OK;
    if (status == VT_OK) {
        all.rank[a->rank] = a;
        all.n_open++;
    } else {
        close_shared();
    }
    return status;
}

vt_status vt_activity_open(const vt_cuda *gpu, int32_t rank, int32_t n_ranks, vt_activity **out,
                           vt_err *err)
{
    vt_activity *a = vt_calloc(1, sizeof *a);
    (void)gpu; /* its context is current */
    if (!a)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for records of a GPU's kernels");
    a->rank = rank;
    pthread_mutex_lock(&all.state);
    vt_status status = join(a, n_ranks, err);
    pthread_mutex_unlock(&all.state);
    if (status == VT_OK)
        *out = a;
    else
        free(a);
    return status;
}

void vt_activity_close(vt_activity *a)
{
    if (!a)
        return;
    vt_activity_end(a);
    pthread_mutex_lock(&all.state);
    all.rank[a->rank] = NULL;
    if (--all.n_open == 0)
        close_shared();
    pthread_mutex_unlock(&all.state);
    free(a);
}

/* ---- recording ---- */

static void pop(vt_activity *a)
{
    uint64_t last;
    if (a->pushed)
        all.cupti.f.outside_pop(CUPTI_OUTSIDE_CUSTOM, &last);
    a->pushed = false;
}

void vt_activity_call(vt_activity *a, int32_t call)
{
    pop(a);
    current = call >= 0 ? (owner){a->rank, call} : nobody;
    a->pushed = a->recording &&
                all.cupti.f.outside_push(CUPTI_OUTSIDE_CUSTOM,
                                         outside_id((owner){a->rank, call})) == CUPTI_OK;
}

/* Switches all kinds on, for the first rank that begins. */
static vt_status switch_on(vt_err *err)
{
    vt_status status = VT_OK;
    pthread_mutex_lock(&all.lock);
    all.n_records = all.n_calls = all.lost = 0;
    pthread_mutex_unlock(&all.lock);
    while (status == VT_OK && all.n_on < KINDS) {
        status = vt_cupti_check(&all.cupti, all.cupti.f.activity_on(kinds[all.n_on]),
                                "beginning to record", err);
        all.n_on += status == VT_OK;
    }
    return status;
}

/* Switches all kinds off; the error is of the first that fails. */
static vt_status switch_off(vt_err *err)
{
    vt_status status = VT_OK;
    while (all.n_on > 0) {
        vt_status off = vt_cupti_check(&all.cupti, all.cupti.f.activity_off(kinds[--all.n_on]),
                                       "ending to record", status == VT_OK ? err : NULL);
        status = status == VT_OK ? off : status;
    }
    return status;
}

vt_status vt_activity_begin(vt_activity *a, const vt_activity_reader *reader, vt_err *err)
{
    vt_activity_end(a);
    pthread_mutex_lock(&all.state);
    vt_status status = all.n_recording == 0 ? switch_on(err) : VT_OK;
    if (status == VT_OK) {
        all.n_recording++;
        a->recording = true;
        a->waiting = false;
        a->reader = *reader;
        a->totals = (vt_activity_totals){0};
    } else {
        switch_off(NULL);
    }
    pthread_mutex_unlock(&all.state);
    if (status == VT_OK)
        vt_activity_call(a, -1); /* so that copies are known to be this rank's */
    return status;
}

/* ---- reading ---- */

/* The host's clock minus CUPTI's, by the quickest of a few readings: in another this thread may
 * have lost its CPU. */
static int64_t clock_difference(void)
{
    enum { READINGS = 5 };
    int64_t quickest = INT64_MAX, difference = 0;
    for (int i = 0; i < READINGS; i++) {
        uint64_t theirs = 0;
        int64_t before = vt_now_ns();
        if (all.cupti.f.timestamp(&theirs) != CUPTI_OK)
            return 0;
        int64_t took = vt_now_ns() - before;
        if (took < quickest) {
            quickest = took;
            difference = before + took / 2 - (int64_t)theirs;
        }
    }
    return difference;
}

static int by_begin(const void *x, const void *y)
{
    int64_t a = ((const raw_record *)x)->is.begin_ns, b = ((const raw_record *)y)->is.begin_ns;
    return (a > b) - (a < b);
}

static int by_correlation(const void *x, const void *y)
{
    uint32_t a = ((const raw_call *)x)->correlation, b = ((const raw_call *)y)->correlation;
    return (a > b) - (a < b);
}

/* Whose the record is. Of a node that nobody told of, the driver's call says at least the rank. */
static owner owner_of(const raw_record *r)
{
    owner of = r->node ? owner_of_node(r->node) : nobody;
    raw_call key = {.correlation = r->correlation};
    const raw_call *found = of.rank >= 0 || all.n_calls == 0
                                ? NULL
                                : bsearch(&key, all.calls, (size_t)all.n_calls, sizeof key,
                                          by_correlation);
    if (found)
        of = (owner){found->of.rank, r->node ? -1 : found->of.call};
    return of;
}

/* The rank that has ended and takes the record; of what belongs to none the first one; NULL: it is
 * another's, who does not record. */
static vt_activity *taker_of(owner of)
{
    for (int32_t i = 0; i < VT_ACTIVITY_RANKS; i++)
        if (all.rank[i] && all.rank[i]->waiting && (of.rank < 0 || of.rank == i))
            return all.rank[i];
    return NULL;
}

/* Tells each rank of its records. */
static void tell(void)
{
    int64_t difference = clock_difference();
    qsort(all.calls, (size_t)all.n_calls, sizeof *all.calls, by_correlation);
    qsort(all.record, (size_t)all.n_records, sizeof *all.record, by_begin);
    for (int64_t i = 0; i < all.n_records; i++) {
        vt_activity_record r = all.record[i].is;
        owner of = owner_of(&all.record[i]);
        vt_activity *a = taker_of(of);
        if (!a)
            continue;
        if (r.end_ns < r.begin_ns || r.begin_ns == 0) {
            a->totals.lost++;
            continue;
        }
        r.call = of.call;
        r.in_graph = all.record[i].node != 0;
        r.begin_ns += difference;
        r.end_ns += difference;
        a->totals.records++;
        a->totals.unknown += r.kind == VT_ACTIVITY_KERNEL && r.call < 0;
        if (a->reader.seen)
            a->reader.seen(a->reader.user, &r);
    }
}

/* Reads for all ranks that have ended. Whose the lost records were is not known: each rank counts
 * them. */
static void read_all(void)
{
    size_t dropped = 0;
    vt_err why = {0};
    int64_t begin = vt_now_ns();
    vt_status status = switch_off(&why);
    vt_status flushed = vt_cupti_check(&all.cupti, all.cupti.f.activity_flush(0), "reading records",
                                       status == VT_OK ? &why : NULL);
    status = status == VT_OK ? flushed : status;
    if (status == VT_OK)
        status = vt_cupti_check(&all.cupti, all.cupti.f.activity_dropped(NULL, 0, &dropped),
                                "counting lost records", &why);
    pthread_mutex_lock(&all.lock);
    if (status == VT_OK)
        tell();
    int64_t lost = all.lost + (int64_t)dropped, took = vt_now_ns() - begin;
    pthread_mutex_unlock(&all.lock);
    for (int32_t i = 0; i < VT_ACTIVITY_RANKS; i++) {
        vt_activity *a = all.rank[i];
        if (!a || !a->waiting)
            continue;
        a->waiting = false;
        a->totals.lost += lost;
        a->totals.read_ns = took;
        if (a->reader.ended)
            a->reader.ended(a->reader.user, &a->totals, status == VT_OK ? NULL : &why);
    }
}

void vt_activity_end(vt_activity *a)
{
    if (!a->recording)
        return;
    pop(a);
    pthread_mutex_lock(&all.state);
    a->recording = false;
    a->waiting = true;
    if (--all.n_recording == 0)
        read_all();
    pthread_mutex_unlock(&all.state);
}
