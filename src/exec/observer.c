/* The observers of an executor, called one after another (exec/observer.h). */
#include "exec/observer.h"

#include "base/err.h"

bool vt_observers_begin(const vt_observers *all, const vt_step *step)
{
    bool apart = false;
    for (int32_t i = 0; i < all->n; i++) /* each is called, whatever one before it said */
        apart = all->one[i]->begin(all->one[i], step) || apart;
    return apart;
}

vt_status vt_observe(const vt_observers *all, vt_mark_kind kind, int64_t value, vt_err *err)
{
    for (int32_t i = 0; i < all->n; i++)
        TRY(all->one[i]->mark(all->one[i], kind, value, err));
    return VT_OK;
}

vt_status vt_observers_end(const vt_observers *all, vt_step_result *view, vt_err *err)
{
    for (int32_t i = 0; i < all->n; i++)
        TRY(all->one[i]->end(all->one[i], view, err));
    return VT_OK;
}

void vt_observers_release(const vt_observers *all, bool live)
{
    for (int32_t i = 0; i < all->n; i++)
        all->one[i]->release(all->one[i], live);
}

vt_status vt_observers_renew(const vt_observers *all, vt_err *err)
{
    for (int32_t i = 0; i < all->n; i++)
        TRY(all->one[i]->renew(all->one[i], err));
    return VT_OK;
}

int32_t vt_observers_sources(const vt_observers *all, vt_source *out, int32_t max)
{
    int32_t n = 0;
    for (int32_t i = 0; i < all->n; i++) {
        const vt_observer *o = all->one[i];
        int32_t room = max > n ? max - n : 0;
        n += o->sources ? o->sources(o, room ? out + n : out, room) : 0;
    }
    return n;
}

void vt_observers_free(vt_observers *all)
{
    for (int32_t i = 0; i < all->n; i++)
        all->one[i]->free(all->one[i]);
    all->n = 0;
}
