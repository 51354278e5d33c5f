#include "engine/constraint/late_masks.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/mem.h"

/* Sequences in the order in which they came, linked by vt_constrained.next_late. */
typedef struct list {
    vt_constrained *first, **end;
} list;

struct vt_late_masks {
    void (*made)(void *user);
    void *user;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t given, done;
    list todo, ready;
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

vt_late_masks *vt_late_masks_new(void (*made)(void *user), void *user)
{
    vt_late_masks *l = vt_calloc(1, sizeof *l);
    if (!l)
        return NULL;
    l->made = made;
    l->user = user;
    l->todo.end = &l->todo.first;
    l->ready.end = &l->ready.first;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->given, NULL);
    pthread_cond_init(&l->done, NULL);
    return l;
}

void vt_late_masks_free(vt_late_masks *l)
{
    if (!l)
        return;
    pthread_mutex_lock(&l->lock);
    l->quit = true;
    pthread_cond_signal(&l->given);
    pthread_mutex_unlock(&l->lock);
    if (l->has_thread)
        pthread_join(l->thread, NULL);
    pthread_cond_destroy(&l->given);
    pthread_cond_destroy(&l->done);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

static void *run(void *arg)
{
    vt_late_masks *l = arg;
    pthread_mutex_lock(&l->lock);
    while (!l->quit) {
        vt_constrained *c = remove_first(&l->todo);
        if (!c) {
            pthread_cond_wait(&l->given, &l->lock);
            continue;
        }
        l->busy = true;
        pthread_mutex_unlock(&l->lock);
        vt_constrained_finish(c);
        pthread_mutex_lock(&l->lock);
        l->busy = false;
        append(&l->ready, c);
        pthread_cond_signal(&l->done);
        pthread_mutex_unlock(&l->lock);
        l->made(l->user);
        pthread_mutex_lock(&l->lock);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

void vt_late_masks_give(vt_late_masks *l, vt_constrained *c, void *owner)
{
    c->owner = owner;
    pthread_mutex_lock(&l->lock);
    if (l->made && !l->has_thread)
        l->has_thread = pthread_create(&l->thread, NULL, run, l) == 0;
    if (l->has_thread) {
        append(&l->todo, c);
        pthread_cond_signal(&l->given);
    } else {
        vt_constrained_finish(c);
        append(&l->ready, c);
    }
    pthread_mutex_unlock(&l->lock);
}

void *vt_late_masks_take(vt_late_masks *l)
{
    pthread_mutex_lock(&l->lock);
    vt_constrained *c = remove_first(&l->ready);
    pthread_mutex_unlock(&l->lock);
    return c ? c->owner : NULL;
}

void *vt_late_masks_abort(vt_late_masks *l)
{
    pthread_mutex_lock(&l->lock);
    for (vt_constrained *c; (c = remove_first(&l->todo)) != NULL; append(&l->ready, c))
        c->end = VT_END_ABORT;
    while (l->busy)
        pthread_cond_wait(&l->done, &l->lock);
    pthread_mutex_unlock(&l->lock);
    return vt_late_masks_take(l);
}
