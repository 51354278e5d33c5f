/* Activity records (activity.h).
 *
 *   capture        node made     -> nodes[id] = the call that is captured
 *   instantiate    node cloned   -> nodes[id of the clone] = nodes[id of the original]
 *   graph launch   a record with its node's id      ─┐
 *   other launch   a record with the id of the       ├─> call
 *                  driver's call, and another one    ─┘
 *                  that says which call was pushed when the driver was called
 *
 * CUPTI takes buffers from a pool and gives them back full, on any of its threads; their records
 * are copied to `record` at once. Whatever has no room is counted as lost. Times are CUPTI's, and
 * come onto the host's clock by reading both. */
#include "device/cupti/activity.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"

enum {
    BUFFERS = 16,
    BUFFER_BYTES = 1 << 20, /* of some 4,000 kernels */
    MOST_RECORDS = 1 << 15, /* of a step: the longest program has some 2,000 kernels */
    NODE_SLOTS = 1 << 18,   /* a power of two; 192 graphs of 600 nodes are 115,200 */
    NODE_TRIES = 16         /* slots in which a node may be */
};

static const int kinds[] = {CUPTI_RECORD_OUTSIDE, CUPTI_RECORD_CALL, CUPTI_RECORD_KERNEL,
                            CUPTI_RECORD_COPY, CUPTI_RECORD_FILL};
enum { KINDS = sizeof kinds / sizeof *kinds };

typedef struct node_slot {
    uint64_t id; /* 0: free */
    int32_t call;
} node_slot;

/* A record as it came. */
typedef struct raw_record {
    vt_activity_record is;
    uint64_t node;
    uint32_t correlation;
} raw_record;

/* The driver's call `correlation` belongs to a call. */
typedef struct raw_call {
    uint32_t correlation;
    int32_t call;
} raw_call;

struct vt_activity {
    vt_cupti cupti;
    const vt_cuda *gpu;
    cupti_subscriber subscriber;
    int32_t call;         /* that is launched or captured; -1: none */
    int n_on;             /* kinds that are switched on */
    bool pushed;          /* CUPTI knows the call */
    bool complete;        /* every node had a slot */
    pthread_mutex_t lock; /* of what follows: CUPTI calls from its own threads */
    node_slot *node;      /* [NODE_SLOTS] */
    uint8_t *buffer[BUFFERS];
    bool taken[BUFFERS];
    raw_record *record; /* [n_records] of MOST_RECORDS */
    raw_call *calls;    /* [n_calls] of MOST_RECORDS */
    int64_t n_records, n_calls, lost;
};

static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static vt_activity *opened; /* CUPTI's callbacks for buffers have no user */

/* ---- nodes of graphs ---- */

static size_t slot_of(uint64_t id) { return (size_t)((id * 0x9e3779b97f4a7c15ull) >> 40); }

/* The node's slot; or, where it has none, a free one; or NULL. */
static node_slot *find_node(vt_activity *a, uint64_t id)
{
    node_slot *free_slot = NULL;
    for (size_t i = 0; i < NODE_TRIES; i++) {
        node_slot *s = &a->node[(slot_of(id) + i) % NODE_SLOTS];
        if (s->id == id)
            return s;
        if (s->id == 0 && !free_slot)
            free_slot = s;
    }
    return free_slot;
}

static int32_t call_of_node(vt_activity *a, uint64_t id)
{
    const node_slot *s = find_node(a, id);
    return s && s->id == id ? s->call : -1;
}

static void note_node(vt_activity *a, uint64_t id, int32_t call)
{
    node_slot *s = find_node(a, id);
    if (s)
        *s = (node_slot){id, call};
    a->complete = a->complete && s;
}

/* CUPTI calls it while a graph is captured, instantiated or destroyed. */
static void node_changed(void *user, int domain, uint32_t event, const void *data)
{
    vt_activity *a = user;
    const cupti_resource *r = data;
    const cupti_graph_data *g = r ? r->descriptor : NULL;
    uint64_t id = 0, from = 0;
    if (domain != CUPTI_DOMAIN_RESOURCE || !g || !g->node ||
        a->cupti.f.node_id(g->node, &id) != CUPTI_OK || id == 0)
        return;
    bool cloned = event == CUPTI_NODE_CLONED && g->from_node &&
                  a->cupti.f.node_id(g->from_node, &from) == CUPTI_OK;
    pthread_mutex_lock(&a->lock);
    if (event == CUPTI_NODE_CREATED)
        note_node(a, id, a->call);
    else if (cloned)
        note_node(a, id, call_of_node(a, from));
    else if (event == CUPTI_NODE_ENDS && call_of_node(a, id) >= 0)
        *find_node(a, id) = (node_slot){0};
    pthread_mutex_unlock(&a->lock);
}

/* ---- buffers ---- */

static void give_buffer(uint8_t **buffer, size_t *bytes, size_t *most_records)
{
    vt_activity *a = opened;
    *buffer = NULL; /* CUPTI drops and counts what has no room */
    *bytes = *most_records = 0;
    if (!a)
        return;
    pthread_mutex_lock(&a->lock);
    for (int i = 0; i < BUFFERS && !*buffer; i++)
        if (!a->taken[i]) {
            a->taken[i] = true;
            *buffer = a->buffer[i];
            *bytes = BUFFER_BYTES;
        }
    pthread_mutex_unlock(&a->lock);
}

static void note_work(vt_activity *a, const raw_record *r)
{
    if (a->n_records < MOST_RECORDS)
        a->record[a->n_records++] = *r;
    else
        a->lost++;
}

static void note_kernel(vt_activity *a, const cupti_record_kernel *k)
{
    raw_record r = {.is = {.kind = VT_ACTIVITY_KERNEL,
                           .begin_ns = (int64_t)k->begin_ns,
                           .end_ns = (int64_t)k->end_ns,
                           .name = k->name ? k->name : ""},
                    .node = k->node,
                    .correlation = k->correlation};
    note_work(a, &r);
}

static void note_copy(vt_activity *a, const cupti_record_copy *c)
{
    raw_record r = {.is = {.kind = VT_ACTIVITY_COPY,
                           .begin_ns = (int64_t)c->begin_ns,
                           .end_ns = (int64_t)c->end_ns,
                           .bytes = (int64_t)c->bytes,
                           .name = ""},
                    .node = c->node,
                    .correlation = c->correlation};
    note_work(a, &r);
}

static void note_fill(vt_activity *a, const cupti_record_fill *f)
{
    raw_record r = {.is = {.kind = VT_ACTIVITY_FILL,
                           .begin_ns = (int64_t)f->begin_ns,
                           .end_ns = (int64_t)f->end_ns,
                           .bytes = (int64_t)f->bytes,
                           .name = ""},
                    .node = f->node,
                    .correlation = f->correlation};
    note_work(a, &r);
}

static void note_call(vt_activity *a, const cupti_record_outside *o)
{
    if (o->whose != CUPTI_OUTSIDE_CUSTOM)
        return;
    if (a->n_calls < MOST_RECORDS)
        a->calls[a->n_calls++] = (raw_call){o->correlation, (int32_t)o->id};
    else
        a->lost++;
}

static void read_record(vt_activity *a, const cupti_record *r)
{
    switch (r->kind) {
    case CUPTI_RECORD_KERNEL:
        note_kernel(a, (const void *)r);
        break;
    case CUPTI_RECORD_COPY:
        note_copy(a, (const void *)r);
        break;
    case CUPTI_RECORD_FILL:
        note_fill(a, (const void *)r);
        break;
    case CUPTI_RECORD_OUTSIDE:
        note_call(a, (const void *)r);
        break;
    default: /* the driver's calls themselves */
        break;
    }
}

static void take_buffer(struct cu_context_st *context, uint32_t stream, uint8_t *buffer,
                        size_t bytes, size_t filled)
{
    vt_activity *a = opened;
    cupti_record *r = NULL;
    (void)context, (void)stream, (void)bytes;
    if (!a || !buffer)
        return;
    pthread_mutex_lock(&a->lock);
    while (filled > 0 && a->cupti.f.activity_next(buffer, filled, &r) == CUPTI_OK)
        read_record(a, r);
    for (int i = 0; i < BUFFERS; i++)
        if (a->buffer[i] == buffer)
            a->taken[i] = false;
    pthread_mutex_unlock(&a->lock);
}

/* ---- opening ---- */

static vt_status make_room(vt_activity *a, vt_err *err)
{
    bool all = true;
    a->node = vt_calloc(NODE_SLOTS, sizeof *a->node);
    a->record = vt_calloc(MOST_RECORDS, sizeof *a->record);
    a->calls = vt_calloc(MOST_RECORDS, sizeof *a->calls);
    for (int i = 0; i < BUFFERS; i++) {
        a->buffer[i] = vt_calloc(1, BUFFER_BYTES);
        all = all && a->buffer[i];
    }
    return all && a->node && a->record && a->calls
               ? VT_OK
               : vt_fail(err, VT_ERR_MEMORY, "out of memory for records of a GPU's kernels");
}

static vt_status subscribe(vt_activity *a, vt_err *err)
{
    static const uint32_t event[] = {CUPTI_NODE_CREATED, CUPTI_NODE_CLONED, CUPTI_NODE_ENDS};
    const cupti_functions *f = &a->cupti.f;
    TRY(vt_cupti_check(&a->cupti, f->subscribe(&a->subscriber, node_changed, a),
                       "watching this process", err));
    cuda_driver_stays_started();
    for (size_t i = 0; i < sizeof event / sizeof *event; i++)
        TRY(vt_cupti_check(&a->cupti,
                           f->enable_call(1, a->subscriber, CUPTI_DOMAIN_RESOURCE, event[i]),
                           "watching graphs", err));
    return vt_cupti_check(&a->cupti, f->activity_room(give_buffer, take_buffer),
                          "giving it buffers", err);
}

static vt_status open_activity(vt_activity *a, vt_err *err)
{
    TRY(vt_cupti_open(&a->cupti, err));
    if (a->cupti.no_activity[0])
        return vt_fail(err, VT_ERR_UNSUPPORTED, "%s", a->cupti.no_activity);
    TRY(make_room(a, err));
    pthread_mutex_lock(&open_lock);
    bool first = !opened;
    if (first)
        opened = a;
    pthread_mutex_unlock(&open_lock);
    if (!first)
        return vt_fail(err, VT_ERR_UNSUPPORTED,
                       "another engine of this process has its kernels recorded by CUPTI");
    return subscribe(a, err);
}

vt_status vt_activity_open(const vt_cuda *gpu, vt_activity **out, vt_err *err)
{
    vt_activity *a = vt_calloc(1, sizeof *a);
    if (!a)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for records of a GPU's kernels");
    a->gpu = gpu;
    a->call = -1;
    a->complete = true;
    pthread_mutex_init(&a->lock, NULL);
    vt_status status = open_activity(a, err);
    if (status == VT_OK)
        *out = a;
    else
        vt_activity_close(a);
    return status;
}

void vt_activity_close(vt_activity *a)
{
    if (!a)
        return;
    vt_activity_end(a, NULL, NULL, NULL, NULL);
    if (a->subscriber)
        a->cupti.f.unsubscribe(a->subscriber);
    pthread_mutex_lock(&open_lock);
    if (opened == a)
        opened = NULL;
    pthread_mutex_unlock(&open_lock);
    for (int i = 0; i < BUFFERS; i++)
        free(a->buffer[i]);
    free(a->node);
    free(a->record);
    free(a->calls);
    pthread_mutex_destroy(&a->lock);
    free(a);
}

/* ---- recording ---- */

static void pop(vt_activity *a)
{
    uint64_t last;
    if (a->pushed)
        a->cupti.f.outside_pop(CUPTI_OUTSIDE_CUSTOM, &last);
    a->pushed = false;
}

void vt_activity_call(vt_activity *a, int32_t call)
{
    pop(a);
    a->call = call;
    a->pushed = a->n_on == KINDS && call >= 0 &&
                a->cupti.f.outside_push(CUPTI_OUTSIDE_CUSTOM, (uint64_t)call) == CUPTI_OK;
}

vt_status vt_activity_begin(vt_activity *a, vt_err *err)
{
    vt_status status = VT_OK;
    a->n_records = a->n_calls = a->lost = 0;
    while (status == VT_OK && a->n_on < KINDS) {
        status = vt_cupti_check(&a->cupti, a->cupti.f.activity_on(kinds[a->n_on]),
                                "beginning to record", err);
        a->n_on += status == VT_OK;
    }
    if (status != VT_OK)
        vt_activity_end(a, NULL, NULL, NULL, NULL);
    return status;
}

/* The host's clock minus CUPTI's, by the quickest of a few readings: in another this thread may
 * have lost its CPU. */
static int64_t clock_difference(const vt_activity *a)
{
    enum { READINGS = 5 };
    int64_t quickest = INT64_MAX, difference = 0;
    for (int i = 0; i < READINGS; i++) {
        uint64_t theirs = 0;
        int64_t before = vt_now_ns();
        if (a->cupti.f.timestamp(&theirs) != CUPTI_OK)
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

static int32_t call_of(vt_activity *a, const raw_record *r)
{
    if (r->node)
        return call_of_node(a, r->node);
    const raw_call key = {.correlation = r->correlation}, *found;
    found = bsearch(&key, a->calls, (size_t)a->n_calls, sizeof key, by_correlation);
    return found ? found->call : -1;
}

/* A record whose end lies before its begin was never finished. */
static void tell(vt_activity *a, vt_activity_seen *seen, void *user, vt_activity_totals *t)
{
    int64_t difference = clock_difference(a);
    qsort(a->calls, (size_t)a->n_calls, sizeof *a->calls, by_correlation);
    qsort(a->record, (size_t)a->n_records, sizeof *a->record, by_begin);
    for (int64_t i = 0; i < a->n_records; i++) {
        vt_activity_record r = a->record[i].is;
        if (r.end_ns < r.begin_ns || r.begin_ns == 0) {
            t->lost++;
            continue;
        }
        r.call = call_of(a, &a->record[i]);
        r.in_graph = a->record[i].node != 0;
        r.begin_ns += difference;
        r.end_ns += difference;
        t->records++;
        t->unknown += r.kind == VT_ACTIVITY_KERNEL && r.call < 0;
        if (seen)
            seen(user, &r);
    }
}

/* Switches all kinds off; the error is of the first that fails. */
static vt_status switch_off(vt_activity *a, vt_err *err)
{
    vt_status status = VT_OK;
    pop(a);
    while (a->n_on > 0) {
        vt_status off = vt_cupti_check(&a->cupti, a->cupti.f.activity_off(kinds[--a->n_on]),
                                       "ending to record", status == VT_OK ? err : NULL);
        status = status == VT_OK ? off : status;
    }
    return status;
}

vt_status vt_activity_end(vt_activity *a, vt_activity_seen *seen, void *user,
                          vt_activity_totals *totals, vt_err *err)
{
    size_t dropped = 0;
    vt_activity_totals t = {0};
    if (a->n_on == 0)
        return VT_OK;
    vt_status status = switch_off(a, err);
    vt_status flushed = vt_cupti_check(&a->cupti, a->cupti.f.activity_flush(0), "reading records",
                                       status == VT_OK ? err : NULL);
    status = status == VT_OK ? flushed : status;
    if (status == VT_OK)
        status = vt_cupti_check(&a->cupti, a->cupti.f.activity_dropped(NULL, 0, &dropped),
                                "counting lost records", err);
    pthread_mutex_lock(&a->lock);
    if (status == VT_OK)
        tell(a, seen, user, &t);
    t.lost += a->lost + (int64_t)dropped;
    pthread_mutex_unlock(&a->lock);
    if (totals)
        *totals = t;
    return status;
}
