/* Which accesses a thread knows of. The head of race.h explains the method.
 *
 * These order accesses (the PTX memory model, as far as kernels here use it):
 *   bar.sync, bar.arrive, __syncthreads; __syncwarp; barrier.cluster; mbarrier arrive -> wait
 *   __threadfence(); ... atomic -> atomic or ld.acquire; ... __threadfence(): also with barriers
 *       between the parts ("the last CTA merges")
 *   st.release -> ld.acquire, of kernels of other devices too
 *   wgmma.wait_group, cp.async.wait_group, cp.async.bulk.wait_group: for work that this thread (for
 *       wgmma: this warpgroup) issued; other threads need a barrier after it
 *   griddepcontrol.wait: everything that the predecessor did, and what that had waited for
 *   a launch without programmatic overlap, a copy, a graph's begin and end: everything before
 * These do not: shuffles, votes, __reduce_..._sync, ldmatrix, mma.sync. They synchronise lanes but
 * promise nothing about memory. */
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "runtime.h"

/* ---- tables ---- */

Ref<Dense> Dense::make(uint32_t warps)
{
    Dense *d = (Dense *)malloc(sizeof(Dense) + 33 * warps * sizeof(uint32_t));
    if (!d)
        abort();
    d->refs = 1;
    d->warps = warps;
    memset(d->clock, 0, 33 * warps * sizeof(uint32_t));
    return Ref<Dense>(d);
}

Ref<Dense> Dense::copy(const Dense *o)
{
    Ref<Dense> d = make(o->warps);
    memcpy(d->clock, o->clock, 33 * o->warps * sizeof(uint32_t));
    return d;
}

void Dense::destroy(Dense *d) { free(d); }

void Dense::settle()
{
    for (uint32_t w = 0; w < warps; w++) {
        uint32_t v = clock[32 * w];
        for (uint32_t i = 1; i < 32; i++)
            v = std::min(v, clock[32 * w + i]);
        least()[w] = v;
    }
}

void Joiner::owned()
{
    if (!own)
        to = Dense::copy(to.get());
    own = true;
}

void Joiner::add(const Ref<Dense> &base)
{
    if (!to) {
        to = base;
    } else if (base != last && base != to) {
        owned();
        for (uint32_t i = 0, n = 32 * to->warps; i < n; i++)
            to->clock[i] = std::max(to->clock[i], base->clock[i]);
    }
    last = base;
}

void Joiner::raise(uint32_t index, uint32_t clock)
{
    if (clock > to->clock[index]) {
        owned();
        to->clock[index] = clock;
    }
}

void Joiner::add(const Ref<Dense> &base, uint32_t index, uint32_t clock)
{
    add(base);
    raise(index, clock);
}

Ref<Dense> Joiner::publish()
{
    if (own)
        to->settle();
    own = false;
    last = Ref<Dense>();
    return std::move(to);
}

/* The maximum of two tables. The last result is kept, because all lanes of a warp ask for the same
 * one. */
static Ref<Dense> maximum(const Ref<Dense> &a, const Ref<Dense> &b)
{
    static Ref<Dense> &last_a = *new Ref<Dense>, &last_b = *new Ref<Dense>,
                      &result = *new Ref<Dense>;
    if (!b || a == b)
        return a;
    if (a != last_a || b != last_b) {
        Joiner j;
        j.add(a);
        j.add(b);
        result = j.publish();
        last_a = a;
        last_b = b;
    }
    return result;
}

/* ---- launches and other CTAs ---- */

void Far::destroy(Far *f) { delete f; }

Ref<Far> race_far(const Horizon &over)
{
    Far *f = new Far();
    f->refs = 1;
    f->over = over;
    return Ref<Far>(f);
}

static void settle(Horizon::Of &d)
{
    while (d.more & 1) {
        d.more >>= 1;
        d.all++;
    }
}

void Horizon::add(uint32_t launch)
{
    Of &d = device[launch % RACE_DEVICES];
    uint32_t n = launch / RACE_DEVICES;
    if (n > d.all && n - d.all - 1 < 64)
        d.more |= 1ull << (n - d.all - 1);
    settle(d);
}

void Horizon::join(const Horizon &o)
{
    for (int i = 0; i < RACE_DEVICES; i++) {
        Of &d = device[i], low = d.all < o.device[i].all ? d : o.device[i];
        if (d.all < o.device[i].all)
            d = o.device[i];
        uint32_t shift = d.all - low.all;
        d.more |= shift < 64 ? low.more >> shift : 0;
        settle(d);
    }
}

bool Horizon::operator==(const Horizon &o) const
{
    for (int i = 0; i < RACE_DEVICES; i++)
        if (device[i].all != o.device[i].all || device[i].more != o.device[i].more)
            return false;
    return true;
}

Ref<Far> race_join(const Ref<Far> &a, const Ref<Far> &b)
{
    static Ref<Far> &last_a = *new Ref<Far>, &last_b = *new Ref<Far>, &result = *new Ref<Far>;
    if (a == b || !b)
        return a;
    if (!a)
        return b;
    if (a == last_a && b == last_b)
        return result;
    Horizon over = a->over;
    over.join(b->over);
    Ref<Far> f = race_far(over);
    size_t i = 0, j = 0;
    while (i < a->groups.size() || j < b->groups.size()) {
        uint32_t x = i < a->groups.size() ? a->groups[i].first : ~0u,
                 y = j < b->groups.size() ? b->groups[j].first : ~0u;
        uint32_t least = x < y ? x : y;
        bool needed = !over.has(race.records[least].launch);
        if (!needed)
            i += x == least, j += y == least;
        else if (x < y)
            f->groups.push_back(a->groups[i++]);
        else if (y < x)
            f->groups.push_back(b->groups[j++]);
        else
            f->groups.emplace_back(x, maximum(a->groups[i++].second, b->groups[j++].second));
    }
    last_a = a;
    last_b = b;
    result = f;
    return result;
}

/* ---- handing over ---- */

void race_carry(Ref<Far> *at, Ref<Far> *last, const Ref<Far> &far)
{
    if (far == *last)
        return;
    Ref<Far> of_others = race_far(far->over);
    for (auto &g : far->groups)
        if ((race.records[g.first].launch ^ race.launch) % RACE_DEVICES)
            of_others->groups.push_back(g);
    *at = race_join(*at, of_others);
    *last = far;
}

static uint32_t index_of(const Thread *t) { return t->warp->index * 32 + t->lane; }

void Gather::add(const Thread *t)
{
    const RaceThread &r = t->race;
    uint32_t i = index_of(t);
    seen.add(r.k.seen, i, r.now);
    fenced.add(r.k.fenced, i, r.fenced_now);
    proxied.add(r.k.proxied, i, r.proxied_now);
    far = race_join(far, r.k.far);
    far_fenced = race_join(far_fenced, r.k.far_fenced);
    pending = race_join(pending, r.k.pending);
    latest = std::max(latest, r.now);
}

void Gather::add(const Known &k)
{
    seen.add(k.seen);
    fenced.add(k.fenced);
    proxied.add(k.proxied);
    far = race_join(far, k.far);
    far_fenced = race_join(far_fenced, k.far_fenced);
    pending = race_join(pending, k.pending);
}

Known Gather::publish()
{
    latest = 0;
    return {seen.publish(), fenced.publish(),      proxied.publish(),
            std::move(far), std::move(far_fenced), std::move(pending)};
}

void race_arrive(Thread *t, Gather *to)
{
    to->add(t);
    t->race.now++;
}

void race_take(Thread *t, const Known &k)
{
    Known &to = t->race.k;
    if (!k.seen)
        return;
    to.seen = maximum(to.seen, k.seen);
    to.fenced = maximum(to.fenced, k.fenced);
    to.proxied = maximum(to.proxied, k.proxied);
    to.far = race_join(to.far, k.far);
    to.far_fenced = race_join(to.far_fenced, k.far_fenced);
    to.pending = race_join(to.pending, k.pending);
}

/* ---- barriers ---- */

static void leave_with(Thread *t, const Known &k, uint32_t now)
{
    t->race.k = k;
    t->race.now = now;
}

void race_warp(Warp *w, uint32_t lanes)
{
    Gather all;
    for (uint32_t left = lanes; left; left &= left - 1)
        all.add(w->lane[__builtin_ctz(left)]);
    uint32_t now = all.latest + 1;
    Known k = all.publish();
    for (uint32_t left = lanes; left; left &= left - 1)
        leave_with(w->lane[__builtin_ctz(left)], k, now);
}

static uint32_t barrier_key(const Cta *c, uint32_t id) { return c->rank * BARRIERS + id; }

void race_barrier_early(Thread *t, uint32_t id)
{
    race_arrive(t, &race.early[barrier_key(t->cta, id)]);
}

void race_barrier(Cta *c, uint32_t id, const uint32_t *lanes)
{
    Gather all;
    auto early = race.early.find(barrier_key(c, id));
    if (early != race.early.end()) {
        all = std::move(early->second);
        race.early.erase(early);
    }
    for (int leaving = 0; leaving < 2; leaving++) {
        static thread_local Known k;
        static thread_local uint32_t now;
        if (leaving) {
            now = all.latest + 1;
            k = all.publish();
        }
        for (uint32_t i = 0; i < c->n_warps; i++)
            for (uint32_t left = lanes[i]; left; left &= left - 1) {
                Thread *t = c->group->warp[c->first_warp + i].lane[__builtin_ctz(left)];
                if (leaving)
                    leave_with(t, k, now);
                else
                    all.add(t);
            }
    }
}

/* ---- mbarriers and wgmma ---- */

void race_mbar_init(Thread *t, uint32_t address)
{
    (void)t;
    uint32_t lane = race.mbar.count(address) ? race.mbar[address].lane
                                             : (uint32_t)race.mbar.size() % 32;
    race.mbar[address] = RaceMbar();
    race.mbar[address].lane = lane;
}

void race_mbar_arrive(Thread *t, uint32_t address)
{
    RaceMbar &m = race.mbar[address];
    race_arrive(t, &m.arriving);
    m.any = true;
}

void race_mbar_complete(uint32_t address)
{
    RaceMbar &m = race.mbar[address];
    m.phases++;
    m.done = Known();
    if (m.any) {
        m.arriving.raise(((uint32_t)race.group->warp.size() + RACE_MBARS) * 32 + m.lane, m.phases);
        m.done = m.arriving.publish();
    }
    m.any = false;
}

void race_mbar_wait(Thread *t, uint32_t address) { race_take(t, race.mbar[address].done); }

void race_wgmma_done(Thread *t, Warp *four, uint32_t groups)
{
    uint32_t base = ((uint32_t)race.group->warp.size() + RACE_WGMMAS) * 32;
    Joiner j;
    Known &k = t->race.k;
    bool news = false;
    for (uint32_t i = 0; i < 4; i++)
        news |= k.seen->clock[base + four[i].index % 32] < groups;
    if (!news)
        return;
    static Ref<Dense> &last = *new Ref<Dense>, &result = *new Ref<Dense>; /* lanes do the same */
    static uint32_t last_groups;
    static Warp *last_four;
    if (k.seen != last || last_groups != groups || last_four != four) {
        j.add(k.seen);
        for (uint32_t i = 0; i < 4; i++)
            j.raise(base + four[i].index % 32, groups);
        last = k.seen;
        result = j.publish();
        last_groups = groups;
        last_four = four;
    }
    k.seen = result;
}

/* ---- fences and atomics ---- */

/* What the thread's atomics have read becomes known. */
static void take_pending(RaceThread &r)
{
    for (auto &g : r.k.pending->groups)
        if (g.first == race.record)
            r.k.seen = maximum(r.k.seen, g.second);
    r.k.far = race_join(r.k.far, r.k.pending);
}

void race_fence(Thread *t, bool proxy)
{
    RaceThread &r = t->race;
    if (proxy) {
        r.k.proxied = r.k.seen;
        r.proxied_now = r.now++;
        return;
    }
    if (r.k.pending) {
        take_pending(r);
        r.k.pending = Ref<Far>();
    }
    r.k.fenced = r.k.seen;
    r.k.far_fenced = r.k.far;
    r.fenced_now = r.now++;
}

void race_atomic(Thread *t, const void *p, bool reads, bool writes, bool acquires)
{
    RaceThread &r = t->race;
    bool shared = (const char *)p - race.group->arenas < 16 * ARENA &&
                  (const char *)p >= race.group->arenas;
    auto &map = shared ? race.published_shared : race.published;
    if (reads && !map.empty()) {
        auto found = map.find(p);
        if (found != map.end())
            r.k.pending = race_join(r.k.pending, found->second);
        if (acquires && r.k.pending)
            take_pending(r);
    }
    if (writes && (r.fenced_now || r.k.fenced != race.nothing)) {
        Joiner j;
        j.add(r.k.fenced, index_of(t), r.fenced_now);
        Ref<Far> mine = race_far(Horizon());
        mine->groups.emplace_back(race.record, j.publish());
        Ref<Far> &slot = map[p];
        slot = race_join(race_join(slot, r.k.far_fenced), mine);
    }
}

void race_packet(Thread *t, const void *p, bool writes)
{
    Ref<Far> &far = t->race.k.far;
    if (writes) {
        race.published[p] = far->groups.empty() ? far : race_far(far->over);
        return;
    }
    auto found = race.published.find(p);
    if (found != race.published.end())
        far = race_join(far, found->second);
}

uint32_t race_take_flag(Thread *t, const uint32_t *p)
{
    auto found = race.flags.find(p);
    if (found == race.flags.end())
        return *p;
    const std::vector<Race::Given> &all = found->second;
    size_t next = all.size();
    while (next > 0) {
        const Race::Given &g = all[next - 1];
        if (race_knows(t, g.record, race.records[g.record].launch, g.warp, g.lanes, g.clock, false))
            break;
        next--;
    }
    if (next == all.size())
        return *p;
    t->race.k.pending = race_join(t->race.k.pending, all[next].known);
    take_pending(t->race);
    return all[next].value;
}

void race_give_flag(Thread *t, uint32_t *p, uint32_t value)
{
    RaceThread &r = t->race;
    Joiner j;
    j.add(r.k.seen, index_of(t), r.now);
    Ref<Far> mine = race_far(Horizon());
    mine->groups.emplace_back(race.record, j.publish());
    race.flags[p].push_back(
        {value, race.record, t->warp->index, 1u << t->lane, r.now, race_join(r.k.far, mine)});
    r.now++;
    *p = value;
}

/* ---- programmatic dependent launch ---- */

void race_pdl_go(Thread *t)
{
    if (!t->cta->race_went)
        race_carry(&race.device->at_go, &race.device->last_go, t->race.k.far);
    t->cta->race_went = true;
}

void race_pdl_wait(Thread *t) { t->race.k.far = race_join(t->race.k.far, race.waited); }

void race_thread_end(Thread *t)
{
    race_carry(&race.device->at_end, &race.device->last_end, t->race.k.far);
    if (!t->cta->race_went)
        race_carry(&race.device->at_go, &race.device->last_go, t->race.k.far);
}

/* ---- the question ---- */

bool race_knows(const Thread *t, uint32_t record, uint32_t launch, uint32_t warp, uint32_t lanes,
                uint32_t clock, bool proxied)
{
    const RaceThread &r = t->race;
    if (record == race.record) {
        const Dense *d = (proxied ? r.k.proxied : r.k.seen).get();
        uint32_t own = proxied ? r.proxied_now : r.now;
        if (clock <= d->least()[warp])
            return true;
        if (warp == t->warp->index && (lanes >> t->lane & 1) && clock <= own)
            lanes &= ~(1u << t->lane);
        for (; lanes; lanes &= lanes - 1)
            if (clock > d->clock[warp * 32 + (uint32_t)__builtin_ctz(lanes)])
                return false;
        return true;
    }
    const Far *f = r.k.far.get();
    if (f->over.has(launch))
        return true;
    auto g = std::lower_bound(f->groups.begin(), f->groups.end(), record,
                              [](const auto &x, uint32_t number) { return x.first < number; });
    if (g == f->groups.end() || g->first != record)
        return false;
    for (; lanes; lanes &= lanes - 1)
        if (clock > g->second->clock[warp * 32 + (uint32_t)__builtin_ctz(lanes)])
            return false;
    return true;
}
