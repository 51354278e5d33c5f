/* Streams, events, copies, captures and graphs: when queued work runs. The head of cuda.cc explains
 * the design. */
#include "cuda_state.h"

#include <time.h>

#include <chrono>
#include <set>
#include <thread>

/* ---- streams ---- */

static int64_t now_ns()
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

StreamRef new_stream()
{
    auto s = std::make_shared<cu_stream_st>();
    s->on = current_gpu;
    return s;
}

/* ---- kernels that wait for other streams ---- */

/* How deep this thread is in run_until: it holds the lock then. */
static thread_local int running_work;

/* Releases the lock for a moment, so that other threads go on. */
static void let_others_go_on()
{
    const char *name = call_name;
    driver.lock.unlock();
    std::this_thread::sleep_for(std::chrono::microseconds(20));
    driver.lock.lock();
    call_name = name;
}

/* Runs what is queued on a stream, in a thread of its own. */
static void help(StreamRef s)
{
    s->helped = true;
    driver.helpers++;
    std::thread([s] {
        std::lock_guard<std::mutex> hold(driver.lock);
        run_until(*s, s->queued);
        s->helped = false;
        driver.helpers--;
    }).detach();
}

int emu_others_go_on()
{
    if (running_work == 0)
        return 0;
    for (int i = 0; i < driver.set.devices; i++)
        for (auto &s : all_gpus[i].stream)
            if (!s.second->queue.empty() && !s.second->running && !s.second->helped &&
                !all_gpus[i].hung)
                help(s.second);
    let_others_go_on();
    return 1;
}

void run_until(cu_stream_st &s, uint64_t number)
{
    StreamRef keep = s.shared_from_this();
    OnGpu on(s.on);
    while (s.running && s.done < number) /* another thread runs it */
        let_others_go_on();
    while (s.done < number && !s.queue.empty()) {
        Work w = std::move(s.queue.front());
        s.queue.pop_front();
        s.running = true;
        running_work++;
        cu_result r = gpu.failed ? (cu_result)SUCCESS : w();
        running_work--;
        s.running = false;
        if (r == HANGS) {
            s.queue.push_front(std::move(w));
            return;
        }
        if (r && !gpu.failed) {
            gpu.failed = r;
            gpu.changed.notify_all();
        }
        s.done++;
    }
    if (s.queue.empty())
        s.staged = 0;
}

void run_everything()
{
    std::vector<StreamRef> all = gpu.orphan; /* the lists may change while kernels run */
    for (auto &s : gpu.stream)
        all.push_back(s.second);
    for (auto &s : all)
        run_until(*s, s->queued);
    auto done = [](const StreamRef &s) { return s->queue.empty(); };
    gpu.orphan.erase(std::remove_if(gpu.orphan.begin(), gpu.orphan.end(), done), gpu.orphan.end());
}

/* Releases the lock until a hang has ended. Returns an error if the caller's context is gone or has
 * failed. */
static cu_result wait_for_change(uint64_t context)
{
    const char *name = call_name;
    std::unique_lock<std::mutex> hold(driver.lock, std::adopt_lock); /* LOCK of the call took it */
    gpu.waiting++;
    gpu.changed.wait(hold);
    gpu.waiting--;
    hold.release();
    call_name = name;
    if (gpu.context_lives && gpu.context == context)
        return gpu.failed;
    return fail(CONTEXT_IS_DESTROYED, "the context was reset while this call waited");
}

cu_result wait_until(StreamRef s, uint64_t number)
{
    uint64_t context = gpu.context;
    for (run_until(*s, number); s->done < number; run_until(*s, number))
        if (cu_result r = wait_for_change(context))
            return r;
    emu_race_after(-1, s->on->index);
    return gpu.failed;
}

cu_result wait_for_everything()
{
    uint64_t context = gpu.context;
    for (run_everything(); gpu.hung && !gpu.failed; run_everything())
        if (cu_result r = wait_for_change(context))
            return r;
    emu_race_order(nullptr);
    emu_race_after(-1, gpu.index);
    return gpu.failed;
}

size_t emu_waiting()
{
    std::lock_guard<std::mutex> hold(driver.lock);
    size_t n = 0;
    for (int i = 0; i < MOST_GPUS; i++)
        n += all_gpus[i].waiting;
    return n;
}

void emu_end_hang()
{
    std::lock_guard<std::mutex> hold(driver.lock);
    for (int i = 0; i < MOST_GPUS; i++) {
        all_gpus[i].hung = nullptr;
        all_gpus[i].changed.notify_all();
    }
}

static void enqueue(cu_stream_st &s, Work w)
{
    s.queue.push_back(std::move(w));
    s.queued++;
}

/* Makes `s` wait until `other` has done everything that is queued now. */
static void enqueue_wait(cu_stream_st &s, const StreamRef &other, uint64_t number)
{
    if (other.get() != &s && other->done < number)
        enqueue(s, [other, number] {
            run_until(*other, number);
            return other->done < number && !gpu.failed ? (cu_result)HANGS : (cu_result)SUCCESS;
        });
}

/* The legacy stream and blocking streams wait for each other. (vitrine makes non-blocking ones.) */
static void order_with_legacy(cu_stream handle, cu_stream_st &s)
{
    if (!handle) {
        for (auto &o : gpu.stream)
            if (o.second->blocking)
                enqueue_wait(s, o.second, o.second->queued);
    } else if (s.blocking && gpu.stream.count(nullptr)) {
        enqueue_wait(s, gpu.stream[nullptr], gpu.stream[nullptr]->queued);
    }
}

static cu_result push(cu_stream_st &s, Work w, size_t staged)
{
    enqueue(s, std::move(w));
    s.staged += staged;
    if (!driver.set.lazy || s.queue.size() > MOST_QUEUED ||
        s.staged > MOST_STAGED) /* a real queue is finite too */
        run_until(s, s.queued);
    return gpu.failed;
}

/* ---- what the emulated libcupti is told (activity.h) ---- */

extern "C" {
__attribute__((visibility("default"))) emu_activity emu_activity_hooks;
}

enum { NODES_A_GRAPH = 1 << 20 };
static uint64_t next_node = 1;
static thread_local uint32_t running_call; /* the number of the call whose work runs */
static thread_local uint64_t running_node; /* 0: no graph launched it */

Work told(int work, const std::string &name, uint64_t bytes, Work w)
{
    static std::set<std::string> names; /* they stay */
    const char *kept = names.insert(name).first->c_str();
    return [work, kept, bytes, w] {
        uint32_t call = running_call;
        uint64_t node = running_node;
        cu_result r = w();
        if (!r && emu_activity_hooks.ran)
            emu_activity_hooks.ran(work, kept, bytes, node, call);
        return r;
    };
}

static uint64_t new_nodes()
{
    uint64_t first = next_node;
    next_node += NODES_A_GRAPH;
    return first;
}

cu_result submit(cu_stream handle, cu_stream_st &s, Work w, size_t staged)
{
    if (!s.cap && emu_activity_hooks.called)
        w = [w, call = emu_activity_hooks.called()] {
            running_call = call;
            return w();
        };
    if (!s.cap) {
        order_with_legacy(handle, s);
        if (driver.set.races)
            w = [w, number = emu_race_queue()] {
                emu_race_queued(gpu.index, number);
                return w();
            };
        return push(s, std::move(w), staged);
    }
    if (s.cap->invalid)
        return fail(STREAM_CAPTURE_INVALIDATED, "an earlier call spoiled this capture");
    s.cap->nodes->push_back(std::move(w));
    s.position++;
    if (emu_activity_hooks.captured)
        emu_activity_hooks.captured(s.cap->first_node + s.cap->nodes->size() - 1);
    return SUCCESS;
}

int emu_submit(void *stream, int (*run)(const void *params), const void *params, size_t bytes)
{
    ENTER("a library's launch");
    cu_stream handle = (cu_stream)stream;
    FIND_STREAM(s, handle);
    auto copy = std::make_shared<std::vector<char>>((const char *)params,
                                                    (const char *)params + bytes);
    return submit(handle, *s, told(EMU_KERNEL, "a_library_s_kernel", 0, [run, copy, handle] {
                      emu_race_order(handle);
                      return (cu_result)run(copy->data());
                  }));
}

/* ---- streams and events ---- */

cu_result drv_stream_create(cu_stream *out, unsigned flags, int priority)
{
    ENTER("cuStreamCreateWithPriority");
    (void)priority; /* the emulator has no priorities */
    if (flags & ~(unsigned)CU_STREAM_NON_BLOCKING)
        return fail(INVALID_VALUE, "flags %u", flags);
    auto s = new_stream();
    s->blocking = !(flags & CU_STREAM_NON_BLOCKING);
    gpu.stream[s.get()] = s;
    *out = s.get();
    return SUCCESS;
}

static void drop_capture(const std::shared_ptr<Capture> &c)
{
    for (auto &s : gpu.stream)
        if (s.second->cap == c)
            s.second->cap = nullptr;
    driver.captures.erase(std::remove(driver.captures.begin(), driver.captures.end(), c),
                          driver.captures.end());
}

/* The handle is gone at once; queued work still runs later. */
cu_result drv_stream_destroy(cu_stream handle)
{
    ENTER("cuStreamDestroy");
    if (!handle)
        return fail(INVALID_HANDLE, "the default stream");
    FIND_STREAM(s, handle);
    if (s->cap)
        drop_capture(s->cap);
    if (!s->queue.empty())
        gpu.orphan.push_back(s);
    gpu.stream.erase(handle);
    return gpu.failed;
}

cu_result drv_stream_sync(cu_stream handle)
{
    ENTER("cuStreamSynchronize");
    FIND_STREAM(s, handle);
    if (s->cap) {
        s->cap->invalid = true;
        return fail(STREAM_CAPTURE_UNSUPPORTED, "this stream is capturing");
    }
    if (cu_result r = outside_capture())
        return r;
    if (!handle)
        order_with_legacy(handle, *s);
    cu_result r = wait_until(s, s->queued);
    emu_race_order(handle);
    return r;
}

cu_result drv_event_create(cu_event *out, unsigned flags)
{
    ENTER("cuEventCreate");
    if (flags & ~7u)
        return fail(INVALID_VALUE, "flags 0x%x", flags);
    auto e = std::make_shared<cu_event_st>();
    e->timing = !(flags & CU_EVENT_NO_TIMING);
    gpu.event[e.get()] = e;
    *out = e.get();
    return SUCCESS;
}

cu_result drv_event_destroy(cu_event handle)
{
    ENTER("cuEventDestroy");
    FIND(e, event, handle);
    (void)e; /* a queued record keeps its own reference */
    gpu.event.erase(handle);
    return SUCCESS;
}

cu_result drv_event_record(cu_event event, cu_stream handle)
{
    ENTER("cuEventRecord");
    FIND(found, event, event);
    FIND_STREAM(s, handle);
    EventRef e = *found;
    e->cap = s->cap;
    e->polls = 0;
    if (s->cap) { /* in a capture it is an edge of the graph, not a node */
        if (s->cap->invalid)
            return fail(STREAM_CAPTURE_INVALIDATED, "an earlier call spoiled this capture");
        e->position = s->position;
        e->on = s;
        return SUCCESS;
    }
    order_with_legacy(handle, *s);
    e->on = s;
    uint64_t number = e->number = s->queued + 1;
    cu_stream_st *stream = s.get();
    return push(
        *s,
        [e, number, stream] {
            if (e->number == number && e->on.get() == stream) /* not recorded again since */
                e->when_ns = now_ns();
            return SUCCESS;
        },
        0);
}

static bool complete(const cu_event_st &e) { return !e.on || e.on->done >= e.number; }

/* The checks that query, synchronise and elapsed have in common. */
static cu_result waitable(const cu_event_st &e)
{
    if (e.cap)
        return fail(CAPTURED_EVENT, "event %p was recorded in a capture", (const void *)&e);
    return outside_capture();
}

cu_result drv_event_sync(cu_event event)
{
    ENTER("cuEventSynchronize");
    FIND(found, event, event);
    EventRef e = *found;
    if (cu_result r = waitable(*e))
        return r;
    return e->on ? wait_until(e->on, e->number) : gpu.failed;
}

/* The first POLLS polls of an event change nothing; a later one runs the work, so that a loop of
 * polls ends. */
static cu_result poll(cu_event_st &e)
{
    if (!complete(e) && ++e.polls > POLLS)
        run_until(*e.on, e.number);
    if (complete(e) && e.on)
        emu_race_after(-1, e.on->on->index);
    return gpu.failed ? gpu.failed : complete(e) ? (cu_result)SUCCESS : (cu_result)NOT_READY;
}

cu_result drv_event_query(cu_event event)
{
    ENTER("cuEventQuery");
    FIND(found, event, event);
    EventRef e = *found;
    if (cu_result r = waitable(*e))
        return r;
    return poll(*e);
}

cu_result drv_event_elapsed(float *ms, cu_event from, cu_event to)
{
    ENTER("cuEventElapsedTime");
    FIND(found_a, event, from);
    FIND(found_b, event, to);
    EventRef a = *found_a, b = *found_b;
    for (auto *e : {a.get(), b.get()}) {
        if (!e->timing || !e->on)
            return fail(INVALID_HANDLE, "event %p %s", (void *)e,
                        e->timing ? "was never recorded" : "has no timing");
        if (cu_result r = waitable(*e))
            return r;
    }
    cu_result r = poll(*a), r2 = poll(*b);
    if (r || r2)
        return r ? r : r2;
    *ms = (float)((double)(b->when_ns - a->when_ns) * 1e-6);
    return SUCCESS;
}

cu_result drv_stream_wait_event(cu_stream handle, cu_event event, unsigned flags)
{
    ENTER("cuStreamWaitEvent");
    FIND_STREAM(s, handle);
    FIND(found, event, event);
    EventRef e = *found;
    if (flags != 0)
        return fail(INVALID_VALUE, "flags %u", flags);
    if (e->cap &&
        std::find(driver.captures.begin(), driver.captures.end(), e->cap) == driver.captures.end())
        return fail(CAPTURED_EVENT, "event %p was recorded in a capture that has ended",
                    (void *)event);
    if (e->cap && !s->cap) { /* the stream joins the event's capture */
        s->cap = e->cap;
        s->position = 1;
        s->joined = 0;
        return SUCCESS;
    }
    if (s->cap && s->cap != e->cap) {
        s->cap->invalid = true;
        return e->cap ? fail(STREAM_CAPTURE_MERGE, "event %p belongs to another capture",
                             (void *)event)
                      : fail(STREAM_CAPTURE_ISOLATION, "event %p was recorded outside the capture",
                             (void *)event);
    }
    if (s->cap) {
        if (s->cap->origin == handle && e->on != s)
            e->on->joined = std::max(e->on->joined, e->position);
        return SUCCESS;
    }
    if (e->on) {
        order_with_legacy(handle, *s);
        enqueue_wait(*s, e->on, e->number);
    }
    return gpu.failed;
}

/* ---- copies ---- */

/* The range is checked at the call, and again when the copy runs, because it may have been unmapped
 * meanwhile. */
static Work copy_work(cu_stream stream, uint64_t to, uint64_t from, size_t bytes, bool to_device,
                      bool from_device)
{
    return told(EMU_COPY, "", bytes, [=] {
        emu_race_order(stream);
        call_name = "a queued copy";
        cu_result r = to_device ? check_device("destination", to, bytes, ILLEGAL_ADDRESS) : SUCCESS;
        if (!r && from_device)
            r = check_device("source", from, bytes, ILLEGAL_ADDRESS);
        if (!r)
            memcpy((void *)to, (const void *)from, bytes);
        return r;
    });
}

cu_result drv_copy_to_device(cu_ptr to, const void *from, size_t bytes, cu_stream handle)
{
    ENTER("cuMemcpyHtoDAsync");
    FIND_STREAM(s, handle);
    bool pinned = false;
    if (bytes == 0)
        return SUCCESS;
    if (cu_result r = check_device("destination", to, bytes))
        return r;
    if (cu_result r = check_host("source", from, bytes, &pinned))
        return r;
    if (pinned || s->cap)
        return submit(handle, *s,
                      copy_work(handle, to, (uint64_t)(uintptr_t)from, bytes, true, false));
    auto staged = std::make_shared<std::string>((const char *)from, bytes);
    return submit(
        handle, *s,
        [staged, to, bytes, handle] {
            return copy_work(handle, to, (uint64_t)(uintptr_t)staged->data(), bytes, true, false)();
        },
        bytes);
}

cu_result drv_copy_to_host(void *to, cu_ptr from, size_t bytes, cu_stream handle)
{
    ENTER("cuMemcpyDtoHAsync");
    FIND_STREAM(s, handle);
    bool pinned = false;
    if (bytes == 0)
        return SUCCESS;
    if (cu_result r = check_host("destination", to, bytes, &pinned))
        return r;
    if (cu_result r = check_device("source", from, bytes))
        return r;
    if (cu_result r = submit(handle, *s,
                             copy_work(handle, (uint64_t)(uintptr_t)to, from, bytes, false, true)))
        return r;
    return pinned || s->cap ? gpu.failed : wait_until(s, s->queued);
}

cu_result drv_copy_device(cu_ptr to, cu_ptr from, size_t bytes, cu_stream handle)
{
    ENTER("cuMemcpyDtoDAsync");
    FIND_STREAM(s, handle);
    if (bytes == 0)
        return SUCCESS;
    if (cu_result r = check_device("destination", to, bytes))
        return r;
    if (cu_result r = check_device("source", from, bytes))
        return r;
    if (to < from + bytes && from < to + bytes)
        return fail(INVALID_VALUE, "source 0x%llx and destination 0x%llx overlap within %zu bytes",
                    (unsigned long long)from, (unsigned long long)to, bytes);
    return submit(handle, *s, copy_work(handle, to, from, bytes, true, true));
}

cu_result drv_fill8(cu_ptr p, unsigned char value, size_t bytes, cu_stream handle)
{
    ENTER("cuMemsetD8Async");
    FIND_STREAM(s, handle);
    if (bytes == 0)
        return SUCCESS;
    if (cu_result r = check_device("destination", p, bytes))
        return r;
    return submit(handle, *s, told(EMU_FILL, "", bytes, [=] {
                      call_name = "a queued fill";
                      emu_race_order(handle);
                      cu_result r = check_device("destination", p, bytes, ILLEGAL_ADDRESS);
                      if (!r)
                          memset((void *)p, value, bytes);
                      return r;
                  }));
}

/* ---- graphs ---- */

cu_result drv_capture_begin(cu_stream handle, int mode)
{
    ENTER("cuStreamBeginCapture");
    FIND_STREAM(s, handle);
    if (mode != CU_CAPTURE_THREAD_LOCAL)
        return fail(NOT_SUPPORTED, "mode %d; the emulator has thread-local captures", mode);
    if (!handle)
        return fail(STREAM_CAPTURE_UNSUPPORTED, "the default stream cannot be captured");
    if (s->cap)
        return fail(ILLEGAL_STATE, "this stream is capturing already");
    s->cap = std::make_shared<Capture>();
    s->cap->thread = pthread_self();
    s->cap->origin = handle;
    s->cap->first_node = new_nodes();
    driver.captures.push_back(s->cap);
    return SUCCESS;
}

cu_result drv_capture_end(cu_stream handle, cu_graph *out)
{
    ENTER("cuStreamEndCapture");
    FIND_STREAM(s, handle);
    *out = nullptr;
    auto c = s->cap;
    if (!c)
        return fail(ILLEGAL_STATE, "this stream is not capturing");
    if (c->origin != handle)
        return fail(STREAM_CAPTURE_UNMATCHED, "the capture began on another stream");
    if (!pthread_equal(c->thread, pthread_self()))
        return fail(STREAM_CAPTURE_WRONG_THREAD, "the capture began on another thread");
    bool unjoined = false;
    for (auto &o : gpu.stream)
        unjoined |= o.second != s && o.second->cap == c && o.second->joined < o.second->position;
    drop_capture(c);
    if (c->invalid)
        return fail(STREAM_CAPTURE_INVALIDATED, "an earlier call spoiled this capture");
    if (unjoined)
        return fail(STREAM_CAPTURE_UNJOINED, "a stream that joined the capture is not waited for");
    std::unique_ptr<cu_graph_st> graph(new cu_graph_st{c->nodes, c->first_node});
    *out = graph.get();
    gpu.graph[*out] = std::move(graph);
    return SUCCESS;
}

cu_result drv_graph_instantiate(cu_graph_exec *x, cu_graph graph, unsigned long long flags)
{
    ENTER("cuGraphInstantiateWithFlags");
    FIND(from, graph, graph);
    if (flags != 0)
        return fail(NOT_SUPPORTED, "flags %llu", flags);
    if (cu_result r = outside_capture())
        return r;
    std::unique_ptr<cu_graph_exec_st> exec(new cu_graph_exec_st{(*from)->nodes, new_nodes()});
    *x = exec.get();
    if (emu_activity_hooks.cloned)
        emu_activity_hooks.cloned(exec->first_node, (*from)->first_node, exec->nodes->size());
    gpu.exec[*x] = std::move(exec);
    return SUCCESS;
}

/* Nodes have no handles here, only a number: `nodes` gets NULLs. */
cu_result drv_graph_nodes(cu_graph graph, cu_graph_node *nodes, size_t *n)
{
    ENTER("cuGraphGetNodes");
    FIND(from, graph, graph);
    size_t count = (*from)->nodes->size();
    for (size_t i = 0; nodes && i < *n; i++)
        nodes[i] = nullptr;
    *n = nodes ? std::min(*n, count) : count;
    return SUCCESS;
}

cu_result drv_graph_upload(cu_graph_exec x, cu_stream handle)
{
    ENTER("cuGraphUpload");
    FIND(exec, exec, x);
    (void)exec;
    FIND_STREAM(s, handle);
    if (s->cap) {
        s->cap->invalid = true;
        return fail(STREAM_CAPTURE_UNSUPPORTED, "this stream is capturing");
    }
    return SUCCESS;
}

cu_result drv_graph_launch(cu_graph_exec x, cu_stream handle)
{
    ENTER("cuGraphLaunch");
    FIND(exec, exec, x);
    FIND_STREAM(s, handle);
    auto nodes = (*exec)->nodes;
    uint64_t first_node = (*exec)->first_node;
    auto next = std::make_shared<size_t>(0); /* where to go on after a node that hung */
    return submit(handle, *s, [nodes, next, first_node, handle] {
        emu_race_order(handle); /* a graph's nodes may overlap each other, but no work outside */
        for (; *next < nodes->size(); ++*next) {
            running_node = first_node + *next;
            cu_result r = (*nodes)[*next]();
            running_node = 0;
            if (r)
                return r;
        }
        emu_race_order(handle);
        return (cu_result)SUCCESS;
    });
}

cu_result drv_graph_exec_destroy(cu_graph_exec x)
{
    ENTER("cuGraphExecDestroy");
    FIND(exec, exec, x);
    if (emu_activity_hooks.ended) /* a queued launch keeps its own reference */
        emu_activity_hooks.ended((*exec)->first_node, (*exec)->nodes->size());
    gpu.exec.erase(x);
    return SUCCESS;
}

cu_result drv_graph_destroy(cu_graph graph)
{
    ENTER("cuGraphDestroy");
    FIND(from, graph, graph);
    if (emu_activity_hooks.ended)
        emu_activity_hooks.ended((*from)->first_node, (*from)->nodes->size());
    gpu.graph.erase(graph);
    return SUCCESS;
}
