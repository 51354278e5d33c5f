/* An inbox: what requests tell, kept until a thread asks for it.
 *
 *     engine's thread                          the asking thread
 *     callback of each token                   vt_inbox_take
 *        appends to the completion's piece  ->    takes the piece away, whatever has come since
 *
 *   inbox -> posts (one for each request) -> completions (n of them) -> two pieces: the scores of
 *            the prompt, which come first, and the completion itself
 *
 * Always true under the lock: a completion is in the list of ready ones exactly if a take may
 * return one of its pieces. Each post that has an open completion holds the inbox, so that one that
 * is freed early lives until the engine has ended its requests. */
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "engine/end_reason.h"
#include "engine/request.h"
#include "vitrine.h"

/* Events of one kind, joined: the newest event's numbers over the tokens and texts of all. */
typedef struct piece {
    bool filled;
    vt_event event;
    vt_buf tokens, text, logprobs, top, error, vector;
} piece;

enum { SCORES, OUTPUT, N_PIECES };

typedef struct completion {
    piece piece[N_PIECES];
    struct post *post;
    struct completion *next; /* in the list of ready ones */
    bool ready, ended;
} completion;

typedef struct post {
    vt_inbox *in;
    struct post *prev, *next;
    int32_t n, n_ended, n_told;
    completion completion[]; /* [n] */
} post;

struct vt_inbox {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool whole, freed;
    int fd;         /* -1 until it is asked for */
    post *posts;    /* whose completions are not all told */
    int32_t n_held; /* posts with an open completion */
    int32_t n_open; /* completions whose end was not taken yet */
    completion *first, **last;
    piece taken; /* what the newest take has returned */
};

/* ---- pieces ---- */

static void piece_release(piece *p)
{
    vt_buf_release(&p->tokens);
    vt_buf_release(&p->text);
    vt_buf_release(&p->logprobs);
    vt_buf_release(&p->top);
    vt_buf_release(&p->error);
    vt_buf_release(&p->vector);
}

/* Empties the piece; its memory stays for the next one. */
static void piece_clear(piece *p)
{
    p->filled = false;
    vt_buf_clear(&p->tokens);
    vt_buf_clear(&p->text);
    vt_buf_clear(&p->logprobs);
    vt_buf_clear(&p->top);
    vt_buf_clear(&p->error);
    vt_buf_clear(&p->vector);
}

static void piece_add(piece *p, const vt_event *e)
{
    size_t n = (size_t)e->n_tokens;
    p->filled = true;
    p->event = *e;
    vt_buf_add(&p->tokens, e->tokens, n * sizeof *e->tokens);
    vt_buf_add(&p->text, e->text, e->text_len);
    if (e->logprobs)
        vt_buf_add(&p->logprobs, e->logprobs, n * sizeof *e->logprobs);
    if (e->top_logprobs)
        vt_buf_add(&p->top, e->top_logprobs, n * (size_t)e->n_top * sizeof *e->top_logprobs);
    if (e->vector)
        vt_buf_add(&p->vector, e->vector, (size_t)e->n_vector * sizeof *e->vector);
    if (e->error)
        vt_buf_puts(&p->error, e->error);
}

/* The piece as one event, which points into it. */
static const vt_event *piece_event(piece *p)
{
    vt_event *e = &p->event;
    e->tokens = (const int32_t *)(const void *)p->tokens.data;
    e->n_tokens = (int32_t)(p->tokens.len / sizeof *e->tokens);
    e->text = p->text.data ? p->text.data : "";
    e->text_len = p->text.len;
    e->logprobs = p->logprobs.len > 0 ? (const void *)p->logprobs.data : NULL;
    e->top_logprobs = p->top.len > 0 ? (const void *)p->top.data : NULL;
    e->error = p->error.len > 0 ? p->error.data : NULL;
    e->vector = p->vector.len > 0 ? (const void *)p->vector.data : NULL;
    if (p->tokens.failed || p->text.failed || p->logprobs.failed || p->top.failed ||
        p->vector.failed) {
        e->finish = VT_FINISH_ERROR;
        e->end_reason = VT_END_MEMORY;
        e->error = vt_end_sentence(VT_END_MEMORY);
    }
    return e;
}

/* ---- the list of ready completions; lock held ---- */

static void make_ready(vt_inbox *in, completion *c)
{
    if (c->ready)
        return;
    if (!in->first) {
        pthread_cond_broadcast(&in->wake);
        if (in->fd >= 0)
            eventfd_write(in->fd, 1);
    }
    c->ready = true;
    c->next = NULL;
    *in->last = c;
    in->last = &c->next;
}

static completion *next_ready(vt_inbox *in)
{
    completion *c = in->first;
    in->first = c->next;
    if (!in->first)
        in->last = &in->first;
    c->ready = false;
    return c;
}

/* ---- posts ---- */

static void post_free(post *p)
{
    for (int32_t i = 0; i < p->n; i++)
        for (int k = 0; k < N_PIECES; k++)
            piece_release(&p->completion[i].piece[k]);
    free(p);
}

/* Lock held. */
static void unlink_post(post *p)
{
    if (p->prev)
        p->prev->next = p->next;
    else
        p->in->posts = p->next;
    if (p->next)
        p->next->prev = p->prev;
}

static post *post_new(vt_inbox *in, int32_t n)
{
    post *p = vt_calloc(1, sizeof *p + (size_t)n * sizeof *p->completion);
    if (!p)
        return NULL;
    p->in = in;
    p->n = n;
    for (int32_t i = 0; i < n; i++)
        p->completion[i].post = p;
    pthread_mutex_lock(&in->lock);
    p->next = in->posts;
    if (p->next)
        p->next->prev = p;
    in->posts = p;
    in->n_held++;
    in->n_open += n;
    pthread_mutex_unlock(&in->lock);
    return p;
}

static void inbox_end(vt_inbox *in)
{
    for (post *p = in->posts, *next; p; p = next) {
        next = p->next;
        post_free(p);
    }
    piece_release(&in->taken);
    if (in->fd >= 0)
        close(in->fd);
    pthread_cond_destroy(&in->wake);
    pthread_mutex_destroy(&in->lock);
    free(in);
}

/* The callback of every request of an inbox. */
static void receive(void *user, const vt_event *e)
{
    post *p = user;
    vt_inbox *in = p->in;
    completion *c = &p->completion[e->sample];
    pthread_mutex_lock(&in->lock);
    if (!in->freed)
        piece_add(&c->piece[e->completion_tokens == 0 && e->n_tokens > 0 ? SCORES : OUTPUT], e);
    c->ended = e->finish != VT_FINISH_NONE;
    if (c->ended && ++p->n_ended == p->n)
        in->n_held--;
    if (!in->freed && (c->ended || !in->whole))
        make_ready(in, c);
    bool over = in->freed && in->n_held == 0;
    pthread_mutex_unlock(&in->lock);
    if (over)
        inbox_end(in);
}

/* ---- the calls ---- */

vt_status vt_inbox_new(bool whole, vt_inbox **out, vt_err *err)
{
    TRY(vt_check_pointer(out, "vt_inbox_new: out", err));
    vt_inbox *in = vt_calloc(1, sizeof *in);
    if (!in)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for an inbox");
    in->whole = whole;
    in->fd = -1;
    in->last = &in->first;
    pthread_mutex_init(&in->lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&in->wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    *out = in;
    return VT_OK;
}

void vt_inbox_free(vt_inbox *in)
{
    if (!in)
        return;
    pthread_mutex_lock(&in->lock);
    in->freed = true;
    bool over = in->n_held == 0;
    pthread_mutex_unlock(&in->lock);
    if (over)
        inbox_end(in);
}

vt_status vt_inbox_fd(vt_inbox *in, int *fd, vt_err *err)
{
    TRY(vt_check_pointer(in, "vt_inbox_fd: the inbox", err));
    TRY(vt_check_pointer(fd, "vt_inbox_fd: fd", err));
    pthread_mutex_lock(&in->lock);
    if (in->fd < 0)
        in->fd = eventfd(in->first ? 1 : 0, EFD_CLOEXEC | EFD_NONBLOCK);
    int made = in->fd, error = errno;
    pthread_mutex_unlock(&in->lock);
    if (made < 0)
        return vt_fail(err, VT_ERR_IO, "no descriptor for the inbox: %s", strerror(error));
    *fd = made;
    return VT_OK;
}

vt_status vt_inbox_submit(vt_inbox *in, vt_engine *e, const vt_request_params *params,
                          vt_request_id *id, vt_err *err)
{
    TRY(vt_check_pointer(in, "vt_inbox_submit: the inbox", err));
    TRY(vt_check_pointer(params, "vt_inbox_submit: the parameters", err));
    vt_request_params mine;
    TRY(vt_req_complete(params, &mine, err));
    if (mine.callback || mine.user)
        return vt_fail(err, VT_ERR_USAGE, "a request to an inbox has no callback of its own");
    /* vt_engine_submit refuses another n, in its own words */
    post *p = post_new(in, mine.n >= 1 && mine.n <= VT_MAX_SAMPLES ? mine.n : 1);
    if (!p)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for a request's post");
    mine.callback = receive;
    mine.user = p;
    vt_status status = vt_engine_submit(e, &mine, id, err);
    if (status == VT_OK)
        return VT_OK;
    pthread_mutex_lock(&in->lock);
    unlink_post(p);
    in->n_held--;
    in->n_open -= p->n;
    pthread_mutex_unlock(&in->lock);
    post_free(p);
    return status;
}

/* Moves the next piece of a ready completion into in->taken. Lock held. */
static void take_piece(vt_inbox *in)
{
    completion *c = next_ready(in);
    post *p = c->post;
    piece *from = &c->piece[c->piece[SCORES].filled ? SCORES : OUTPUT];
    piece was = in->taken;
    in->taken = *from;
    *from = was;
    if (c->piece[OUTPUT].filled)
        make_ready(in, c);
    else if (c->ended) {
        in->n_open--;
        if (++p->n_told == p->n) {
            unlink_post(p);
            post_free(p);
        }
    }
    eventfd_t count;
    if (!in->first && in->fd >= 0)
        eventfd_read(in->fd, &count);
}

static struct timespec later(int32_t ms)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += ms / 1000;
    t.tv_nsec += (long)(ms % 1000) * 1000000;
    if (t.tv_nsec >= 1000000000) {
        t.tv_sec++;
        t.tv_nsec -= 1000000000;
    }
    return t;
}

vt_status vt_inbox_take(vt_inbox *in, int32_t timeout_ms, const vt_event **event, vt_err *err)
{
    TRY(vt_check_pointer(in, "vt_inbox_take: the inbox", err));
    TRY(vt_check_pointer(event, "vt_inbox_take: event", err));
    struct timespec until = later(timeout_ms > 0 ? timeout_ms : 0);
    pthread_mutex_lock(&in->lock);
    piece_clear(&in->taken);
    int waited = 0;
    while (!in->first && in->n_open > 0 && timeout_ms != 0 && waited == 0)
        waited = timeout_ms < 0 ? pthread_cond_wait(&in->wake, &in->lock)
                                : pthread_cond_timedwait(&in->wake, &in->lock, &until);
    bool any = in->first != NULL;
    if (any)
        take_piece(in);
    *event = any ? piece_event(&in->taken) : NULL;
    pthread_mutex_unlock(&in->lock);
    return VT_OK;
}
