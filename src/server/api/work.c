#include "server/api/work.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/err.h"

enum { MAX_THREADS = 16 };

typedef struct job {
    struct job *next;
    void (*run)(void *arg);
    void (*done)(void *arg);
    void *arg;
    server_long_job is;
    uint64_t turn; /* of a long job: the earliest turn runs first */
} job;

typedef struct job_list {
    job *first, **end; /* where the next one is linked in */
    int32_t n;
    size_t bytes;
} job_list;

struct server_work {
    vt_web *web;
    server_work_limits limits;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    job_list shorts, longs;
    uint64_t last_client, turn; /* of the long job that was begun last */
    bool quit;
    pthread_t thread[MAX_THREADS];
    int32_t n_threads, n_started;
};

static void append(job_list *l, job *j)
{
    j->next = NULL;
    *l->end = j;
    l->end = &j->next;
    l->n++;
    l->bytes += j->is.bytes;
}

/* Removes the job that *link points to. */
static job *unlink_job(job_list *l, job **link)
{
    job *j = *link;
    *link = j->next;
    if (l->end == &j->next)
        l->end = link;
    l->n--;
    l->bytes -= j->is.bytes;
    return j;
}

/* Gives a long job its turn: behind the client's own jobs, beside the first one of every other. */
static void choose_turn(server_work *w, job *j)
{
    bool is_last = w->last_client == j->is.client;
    j->turn = w->turn + (is_last ? 1 : 0);
    for (const job *k = w->longs.first; k; k = k->next)
        if (k->is.client == j->is.client)
            j->turn = k->turn + 1; /* the last of them has the latest turn */
}

/* The oldest long job of the earliest turn. */
static job *next_long(server_work *w)
{
    job **first = &w->longs.first;
    for (job **link = &(*first)->next; *link; link = &(*link)->next)
        if ((*link)->turn < (*first)->turn)
            first = link;
    job *j = unlink_job(&w->longs, first);
    w->last_client = j->is.client;
    w->turn = j->turn;
    return j;
}

/* A job for this thread; NULL: there is none. */
static job *next_job(server_work *w, bool takes_long)
{
    if (takes_long && w->longs.n > 0)
        return next_long(w);
    return w->shorts.n > 0 ? unlink_job(&w->shorts, &w->shorts.first) : NULL;
}

static void *helper(void *arg)
{
    server_work *w = arg;
    pthread_setname_np(pthread_self(), "server-work"); /* for top -H and bench/serve_share.py */
    pthread_mutex_lock(&w->lock);
    bool takes_long = w->n_started++ == 0;
    while (!w->quit) {
        job *j = next_job(w, takes_long);
        if (!j) {
            pthread_cond_wait(&w->wake, &w->lock);
            continue;
        }
        pthread_mutex_unlock(&w->lock);
        j->run(j->arg);
        bool posted = vt_web_post(w->web, j->done, j->arg);
        pthread_mutex_lock(&w->lock);
        if (posted) {
            free(j);
        } else {
            /* The loop has ended, so nothing else runs on its thread: server_work_free calls
             * `done`. */
            append(&w->shorts, j);
            w->quit = true;
        }
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

vt_status server_work_new(vt_web *web, const server_work_limits *limits, server_work **out,
                          vt_err *err)
{
    server_work *w = vt_calloc(1, sizeof *w);
    if (!w)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for helper threads");
    w->web = web;
    w->limits = *limits;
    w->shorts.end = &w->shorts.first;
    w->longs.end = &w->longs.first;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->wake, NULL);
    for (; w->n_threads < limits->n_threads && w->n_threads < MAX_THREADS; w->n_threads++)
        if (pthread_create(&w->thread[w->n_threads], NULL, helper, w) != 0)
            break;
    if (w->n_threads == 0) {
        server_work_free(w);
        return vt_fail(err, VT_ERR_MEMORY, "helper threads could not be started");
    }
    *out = w;
    return VT_OK;
}

/* True if the long jobs that wait leave room for this one: in all, and for its client. A client of
 * whom nothing waits has a place whatever the number of others' jobs. */
static bool has_room(const server_work *w, const server_long_job *is)
{
    size_t bytes = 0, all = w->limits.max_bytes;
    int32_t n = 0;
    for (const job *j = w->longs.first; j; j = j->next)
        if (j->is.client == is->client) {
            bytes += j->is.bytes;
            n++;
        }
    bool in_all = w->longs.n == 0 || (w->longs.bytes < all && is->bytes <= all - w->longs.bytes);
    bool own = n == 0 || (w->longs.n < w->limits.max_queued && bytes < all / 4 &&
                          is->bytes <= all / 4 - bytes);
    return in_all && own;
}

bool server_work_add(server_work *w, const server_long_job *is_long, void (*run)(void *arg),
                     void (*done)(void *arg), void *arg)
{
    job *j = vt_calloc(1, sizeof *j);
    if (!j)
        return false;
    *j = (job){.run = run, .done = done, .arg = arg};
    if (is_long)
        j->is = *is_long;
    pthread_mutex_lock(&w->lock);
    bool room = !w->quit && (is_long ? has_room(w, is_long) : w->shorts.n < w->limits.max_queued);
    if (room) {
        if (is_long)
            choose_turn(w, j);
        append(is_long ? &w->longs : &w->shorts, j);
        pthread_cond_broadcast(&w->wake); /* one thread alone takes long jobs: wake it for sure */
    }
    pthread_mutex_unlock(&w->lock);
    if (!room)
        free(j);
    return room;
}

static void end_jobs(job_list *l)
{
    while (l->n > 0) {
        job *j = unlink_job(l, &l->first);
        j->done(j->arg);
        free(j);
    }
}

void server_work_free(server_work *w)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->quit = true;
    pthread_cond_broadcast(&w->wake);
    pthread_mutex_unlock(&w->lock);
    for (int32_t i = 0; i < w->n_threads; i++)
        pthread_join(w->thread[i], NULL);
    end_jobs(&w->shorts);
    end_jobs(&w->longs);
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->lock);
    free(w);
}
