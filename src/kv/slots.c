/* Slots (kv/slots.h): a stack of free slots, a reference count for each slot, and a list of
 * the cached ones in order of last use, so that the one to evict is found at once. */
#include "kv/slots.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"

vt_status vt_slots_init(vt_slots *s, int32_t n_slots, vt_err *err)
{
    assert(n_slots >= 1);
    size_t n = (size_t)n_slots;
    vt_slots t = {.n_slots = n_slots, .n_free = n_slots, .oldest = -1, .newest = -1};
    t.free_stack = vt_calloc(n, sizeof *t.free_stack);
    t.refs = vt_calloc(n, sizeof *t.refs);
    t.page = vt_calloc(n, sizeof *t.page);
    t.newer = vt_calloc(n, sizeof *t.newer);
    t.older = vt_calloc(n, sizeof *t.older);
    t.spare = vt_calloc(n, sizeof *t.spare);
    if (!t.free_stack || !t.refs || !t.page || !t.newer || !t.older || !t.spare) {
        vt_slots_release(&t);
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for the lists of %d slots", n_slots);
    }
    for (int32_t i = 0; i < n_slots; i++) {
        t.free_stack[i] = n_slots - 1 - i; /* slot 0 goes first */
        t.page[i] = -1;
    }
    *s = t;
    return VT_OK;
}

void vt_slots_resize(vt_slots *s, int32_t n_slots)
{
    int32_t more = n_slots - s->n_slots;
    assert(more >= 0 || s->n_free == s->n_slots);
    if (more < 0) { /* fewer, and all are free: write the whole stack again */
        more = n_slots;
        s->n_free = 0;
    }
    memmove(s->free_stack + more, s->free_stack, (size_t)s->n_free * sizeof *s->free_stack);
    for (int32_t i = 0; i < more; i++)
        s->free_stack[i] = n_slots - 1 - i;
    s->n_free += more;
    s->n_slots = n_slots;
}

void vt_slots_release(vt_slots *s)
{
    free(s->free_stack);
    free(s->refs);
    free(s->page);
    free(s->newer);
    free(s->older);
    free(s->spare);
    *s = (vt_slots){0};
}

/* ---- the list of cached slots ---- */

static void list_append(vt_slots *s, int32_t slot)
{
    s->newer[slot] = -1;
    s->older[slot] = s->newest;
    if (s->newest >= 0)
        s->newer[s->newest] = slot;
    else
        s->oldest = slot;
    s->newest = slot;
    s->n_cached++;
}

/* Puts a slot before all others: it is evicted next. */
static void list_prepend(vt_slots *s, int32_t slot)
{
    s->older[slot] = -1;
    s->newer[slot] = s->oldest;
    if (s->oldest >= 0)
        s->older[s->oldest] = slot;
    else
        s->newest = slot;
    s->oldest = slot;
    s->n_cached++;
}

static void list_remove(vt_slots *s, int32_t slot)
{
    int32_t newer = s->newer[slot], older = s->older[slot];
    if (newer >= 0)
        s->older[newer] = older;
    else
        s->newest = older;
    if (older >= 0)
        s->newer[older] = newer;
    else
        s->oldest = newer;
    s->n_cached--;
}

/* ---- taking and dropping ---- */

int32_t vt_slots_take(vt_slots *s)
{
    if (s->n_free == 0)
        return -1;
    int32_t slot = s->free_stack[--s->n_free];
    s->refs[slot] = 1;
    s->n_held++;
    return slot;
}

void vt_slots_ref(vt_slots *s, int32_t slot)
{
    assert(s->refs[slot] > 0 || s->page[slot] >= 0);
    s->spare[slot] = false;
    if (s->refs[slot]++ == 0) {
        list_remove(s, slot);
        s->n_held++;
    }
}

void vt_slots_unref(vt_slots *s, int32_t slot)
{
    assert(s->refs[slot] > 0);
    if (--s->refs[slot] > 0)
        return;
    s->n_held--;
    if (s->page[slot] >= 0 && s->spare[slot])
        list_prepend(s, slot);
    else if (s->page[slot] >= 0)
        list_append(s, slot);
    else
        s->free_stack[s->n_free++] = slot;
}

void vt_slots_enter(vt_slots *s, int32_t slot, int32_t page)
{
    assert(s->refs[slot] > 0 && s->page[slot] < 0);
    s->page[slot] = page;
    s->spare[slot] = false;
}

void vt_slots_spare(vt_slots *s, int32_t slot)
{
    assert(s->refs[slot] > 0 && s->page[slot] >= 0);
    s->spare[slot] = true;
}

bool vt_slots_have_spare(const vt_slots *s)
{
    return s->n_free > 0 || (s->n_cached > 0 && s->spare[s->oldest]);
}

void vt_slots_leave(vt_slots *s, int32_t slot)
{
    assert(s->page[slot] >= 0);
    s->page[slot] = -1;
    if (s->refs[slot] == 0) {
        list_remove(s, slot);
        s->free_stack[s->n_free++] = slot;
    }
}

/* ---- checks ---- */

/* Checks that the list holds exactly the cached slots: as many as were counted, all of them
 * cached, with neighbours that agree. */
static vt_status check_list(const vt_slots *s, vt_err *err)
{
    int32_t n = 0, before = -1;
    for (int32_t i = s->oldest; i >= 0 && n <= s->n_cached; before = i, i = s->newer[i], n++)
        if (s->refs[i] > 0 || s->page[i] < 0 || s->older[i] != before)
            return vt_fail(err, VT_ERR_FORMAT,
                           "slot %d is in the list of cached slots and should not be, or its "
                           "neighbours are wrong",
                           i);
    if (n != s->n_cached || before != s->newest)
        return vt_fail(err, VT_ERR_FORMAT, "the list of cached slots has %d, expected %d", n,
                       s->n_cached);
    return VT_OK;
}

vt_status vt_slots_check(const vt_slots *s, vt_err *err)
{
    int32_t held = 0, cached = 0, idle = 0;
    uint64_t idle_sum = 0, stack_sum = 0; /* of squares: they differ if a slot is there twice */
    for (int32_t i = 0; i < s->n_slots; i++) {
        bool is_idle = s->refs[i] == 0 && s->page[i] < 0;
        held += s->refs[i] > 0;
        cached += s->refs[i] == 0 && s->page[i] >= 0;
        idle += is_idle;
        idle_sum += is_idle ? (uint64_t)i * (uint64_t)i : 0;
        if (s->refs[i] < 0)
            return vt_fail(err, VT_ERR_FORMAT, "slot %d has %d references", i, s->refs[i]);
    }
    if (held != s->n_held || cached != s->n_cached || idle != s->n_free)
        return vt_fail(err, VT_ERR_FORMAT,
                       "slots counted: %d free, %d held, %d cached; the lists say %d, %d, %d", idle,
                       held, cached, s->n_free, s->n_held, s->n_cached);
    for (int32_t i = 0; i < s->n_free; i++) {
        int32_t slot = s->free_stack[i];
        if (slot < 0 || slot >= s->n_slots || s->refs[slot] > 0 || s->page[slot] >= 0)
            return vt_fail(err, VT_ERR_FORMAT, "slot %d is on the free stack and in use", slot);
        stack_sum += (uint64_t)slot * (uint64_t)slot;
    }
    if (idle_sum != stack_sum)
        return vt_fail(err, VT_ERR_FORMAT, "the free stack holds a slot twice");
    return check_list(s, err);
}
