#include "server/work.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/err.h"

enum { MAX_THREADS = 16 };

typedef struct job {
    void (*run)(void *arg);
    void (*done)(void *arg);
    void *arg;
} job;

struct server_work {
    vt_web *web;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    job *queue; /* [cap] a ring */
    int32_t cap, first, n;
    bool quit;
    pthread_t thread[MAX_THREADS];
    int32_t n_threads;
};

static void *helper(void *arg)
{
    server_work *w = arg;
    pthread_setname_np(pthread_self(), "server-work"); /* for top -H and bench/serve_share.py */
    pthread_mutex_lock(&w->lock);
    for (;;) {
        while (w->n == 0 && !w->quit)
            pthread_cond_wait(&w->wake, &w->lock);
        if (w->quit)
            break;
        job j = w->queue[w->first];
        w->first = (w->first + 1) % w->cap;
        w->n--;
        pthread_mutex_unlock(&w->lock);
        j.run(j.arg);
        if (!vt_web_post(w->web, j.done, j.arg)) {
            /* The loop has ended, so nothing else runs on its thread: server_work_free calls
             * `done`. */
            pthread_mutex_lock(&w->lock);
            w->first = (w->first + w->cap - 1) % w->cap;
            w->queue[w->first] = j;
            w->n++;
            w->quit = true;
            continue;
        }
        pthread_mutex_lock(&w->lock);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

vt_status server_work_new(vt_web *web, int32_t n_threads, int32_t max_queued, server_work **out,
                          vt_err *err)
{
    server_work *w = vt_calloc(1, sizeof *w);
    if (w)
        w->queue = vt_calloc((size_t)max_queued + MAX_THREADS, sizeof *w->queue);
    if (!w || !w->queue) {
        free(w);
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for helper threads");
    }
    w->web = web;
    w->cap = max_queued + MAX_THREADS; /* room for jobs that come back when the loop has ended */
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->wake, NULL);
    for (; w->n_threads < n_threads && w->n_threads < MAX_THREADS; w->n_threads++)
        if (pthread_create(&w->thread[w->n_threads], NULL, helper, w) != 0)
            break;
    if (w->n_threads == 0) {
        server_work_free(w);
        return vt_fail(err, VT_ERR_MEMORY, "helper threads could not be started");
    }
    *out = w;
    return VT_OK;
}

bool server_work_add(server_work *w, void (*run)(void *arg), void (*done)(void *arg), void *arg)
{
    pthread_mutex_lock(&w->lock);
    bool room = !w->quit && w->n < w->cap - MAX_THREADS;
    if (room) {
        w->queue[(w->first + w->n++) % w->cap] = (job){run, done, arg};
        pthread_cond_signal(&w->wake);
    }
    pthread_mutex_unlock(&w->lock);
    return room;
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
    for (; w->n > 0; w->n--) {
        job j = w->queue[w->first];
        w->first = (w->first + 1) % w->cap;
        j.done(j.arg);
    }
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->lock);
    free(w->queue);
    free(w);
}
