#include "engine/constraint/late_masks.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/mem.h"

/* Sequences in the order in which they came, linked by vt_constrained.next_late. */
typedef struct list {
    vt_constrained *first, **end;
} list;

struct vt_late_masks {
    void (*tell)(void *user); /* NULL: there is no thread */
    void *user;
    pthread_mutex_t lock;      /* of what follows */
    pthread_cond_t wake, done; /* of the thread; of vt_late_masks_abort */
    list given, made;
    bool busy; /* the thread makes one */
    bool quit, has_thread;
    pthread_t thread;
};

static void append(list *l, vt_constrained *c)
{
    c->next_late = NULL;
    *l->end = c;
    l->end = &c->next_late;
}

static vt_constrained *remove_first(list *l)
{
    vt_constrained *c = l->first;
    if (c && !(l->first = c->next_late))
        l->end = &l->first;
    return c;
}

vt_late_masks *vt_late_masks_new(void (*tell)(void *user), void *user)
{
    vt_late_masks *l = vt_calloc(1, sizeof *l);
    if (!l)
        return NULL;
    l->tell = tell;
    l->user = user;
    l->given.end = &l->given.first;
    l->made.end = &l->made.first;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->wake, NULL);
    pthread_cond_init(&l->done, NULL);
    return l;
}

void vt_late_masks_free(vt_late_masks *l)
{
    if (!l)
        return;
    pthread_mutex_lock(&l->lock);
    l->quit = true;
    pthread_cond_signal(&l->wake);
    pthread_mutex_unlock(&l->lock);
    if (l->has_thread)
        pthread_join(l->thread, NULL);
    pthread_cond_destroy(&l->wake);
    pthread_cond_destroy(&l->done);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

static void *run(void *arg)
{
    vt_late_masks *l = arg;
    pthread_mutex_lock(&l->lock);
    while (!l->quit) {
        vt_constrained *c = remove_first(&l->given);
        if (!c) {
            pthread_cond_wait(&l->wake, &l->lock);
            continue;
        }
        l->busy = true;
        pthread_mutex_unlock(&l->lock);
        vt_constrained_finish(c);
        pthread_mutex_lock(&l->lock);
        l->busy = false;
        append(&l->made, c);
        pthread_cond_signal(&l->done);
        pthread_mutex_unlock(&l->lock);
        l->tell(l->user);
        pthread_mutex_lock(&l->lock);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

void vt_late_masks_give(vt_late_masks *l, vt_constrained *c, void *owner)
{
    c->owner = owner;
    pthread_mutex_lock(&l->lock);
    if (l->tell && !l->has_thread)
        l->has_thread = pthread_create(&l->thread, NULL, run, l) == 0;
    if (l->has_thread) {
        append(&l->given, c);
        pthread_cond_signal(&l->wake);
    } else {
        vt_constrained_finish(c);
        append(&l->made, c);
    }
    pthread_mutex_unlock(&l->lock);
}

void *vt_late_masks_take(vt_late_masks *l)
{
    if (!l)
        return NULL;
    pthread_mutex_lock(&l->lock);
    vt_constrained *c = remove_first(&l->made);
    pthread_mutex_unlock(&l->lock);
    return c ? c->owner : NULL;
}

void *vt_late_masks_abort(vt_late_masks *l)
{
    if (!l)
        return NULL;
    pthread_mutex_lock(&l->lock);
    for (vt_constrained *c; (c = remove_first(&l->given)) != NULL; append(&l->made, c))
        c->end = VT_END_ABORT;
    while (l->busy)
        pthread_cond_wait(&l->done, &l->lock);
    pthread_mutex_unlock(&l->lock);
    return vt_late_masks_take(l);
}
