/* Counting the vitals of ranges with CUPTI's range profiler (ranges.h).
 *
 * Ranges are named by the user and nothing is replayed: a set of vitals takes one pass, so the work
 * runs once, as it always does. Ranges of one name are one range to CUPTI, so names differ. Seen
 * on an H200: preparing takes about 0.2 s, and a kernel's time in a range is a few per cent longer
 * than in a graph.
 *
 * A range begins before its work is launched and ends after the host has seen its end: on an H100
 * about 35 us of it pass without work. Shares of the range's time would say little of a short
 * kernel. So they are made shares of the cycles in which the SM that worked longest had work.
 *
 * The ranks of an engine count at once, each on its own GPU and its own thread. NVIDIA does not say
 * that the profiler may be called by several threads, so one at a time calls it: no call waits for
 * a kernel, as the stream is empty by then. */
#include "device/cupti/ranges.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/mem.h"

struct vt_ranges {
    vt_cupti cupti;
    const vt_cuda *gpu;
    vt_vital_sets sets;
    vt_vital_set *set; /* that is counted now */
    uint8_t *availability;
    int32_t most;
    cupti_ranges on; /* NULL: nothing is watched */
    bool started, pushed;
    uint8_t *data;
    size_t data_bytes;
};

static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;

static vt_status open_ranges(vt_ranges *r, vt_err *err)
{
    const char *chip;
    size_t bytes;
    TRY(vt_cupti_open(&r->cupti, err));
    if (r->cupti.no_ranges[0])
        return vt_fail(err, VT_ERR_UNSUPPORTED, "%s", r->cupti.no_ranges);
    TRY(vt_cupti_supported(&r->cupti, r->gpu, CUPTI_API_RANGES, err));
    TRY(vt_cupti_availability(&r->cupti, r->gpu, &r->availability, &bytes, err));
    TRY(vt_cupti_chip(&r->cupti, r->gpu, &chip, err));
    return vt_vitals_choose(&r->cupti, chip, r->availability, &r->sets, err);
}

vt_status vt_ranges_open(const vt_cuda *gpu, int32_t most, vt_ranges **out, vt_err *err)
{
    vt_ranges *r = vt_calloc(1, sizeof *r);
    if (!r)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for counting %d ranges", most);
    r->gpu = gpu;
    r->most = most;
    pthread_mutex_lock(&one_at_a_time);
    vt_status status = open_ranges(r, err);
    pthread_mutex_unlock(&one_at_a_time);
    if (status == VT_OK)
        *out = r;
    else
        vt_ranges_close(r);
    return status;
}

const vt_vital_sets *vt_ranges_sets(const vt_ranges *r) { return &r->sets; }

static vt_status make_room(vt_ranges *r, vt_err *err)
{
    enum { MOST_BYTES = 1 << 30 };
    cupti_ranges_bytes room = {CUPTI_PARAMS(cupti_ranges_bytes), .ranges = r->on,
                               .metric = r->set->metric,         .n = (size_t)r->set->n,
                               .most_ranges = (size_t)r->most,   .most_nodes = (uint32_t)r->most};
    TRY(vt_cupti_check(&r->cupti, r->cupti.f.data_bytes(&room), "sizing its counters", err));
    if (room.bytes == 0 || room.bytes > MOST_BYTES)
        return vt_fail(err, VT_ERR_UNSUPPORTED, "CUPTI wants %zu bytes for %d ranges", room.bytes,
                       r->most);
    free(r->data);
    r->data = vt_calloc(1, room.bytes);
    r->data_bytes = room.bytes;
    if (!r->data)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for the counters of %d ranges", r->most);
    cupti_ranges_image image = {CUPTI_PARAMS(cupti_ranges_image), .ranges = r->on,
                                .bytes = r->data_bytes, .image = r->data};
    return vt_cupti_check(&r->cupti, r->cupti.f.data_begin(&image), "clearing its counters", err);
}

static vt_status begin(vt_ranges *r, vt_err *err)
{
    const cupti_functions *f = &r->cupti.f;
    cupti_ranges_enable enable = {CUPTI_PARAMS(cupti_ranges_enable), .context = r->gpu->context};
    TRY(vt_cupti_check(&r->cupti, f->enable(&enable), "watching the GPU", err));
    r->on = enable.ranges;
    TRY(make_room(r, err));
    cupti_ranges_config config = {CUPTI_PARAMS(cupti_ranges_config),
                                  .ranges = r->on,
                                  .config_bytes = r->set->config.bytes,
                                  .config = r->set->config.image,
                                  .image_bytes = r->data_bytes,
                                  .image = r->data,
                                  .range = CUPTI_RANGE_BY_USER,
                                  .replay = CUPTI_REPLAY_BY_USER,
                                  .most_ranges = (size_t)r->most,
                                  .levels = 1,
                                  .least_level = 1};
    TRY(vt_cupti_check(&r->cupti, f->configure(&config), "setting its configuration", err));
    cupti_ranges_call start = {CUPTI_PARAMS(cupti_ranges_call), .ranges = r->on};
    TRY(vt_cupti_check(&r->cupti, f->range_start(&start), "starting to count", err));
    r->started = true;
    return VT_OK;
}

vt_status vt_ranges_begin(vt_ranges *r, int32_t set, vt_err *err)
{
    r->set = &r->sets.set[set];
    pthread_mutex_lock(&one_at_a_time);
    vt_status status = begin(r, err);
    pthread_mutex_unlock(&one_at_a_time);
    if (status != VT_OK)
        vt_ranges_end(r, NULL, NULL, NULL);
    return status;
}

vt_status vt_ranges_push(vt_ranges *r, const char *name, vt_err *err)
{
    cupti_ranges_push push = {CUPTI_PARAMS(cupti_ranges_push), .ranges = r->on, .name = name};
    pthread_mutex_lock(&one_at_a_time);
    int got = r->cupti.f.push(&push);
    pthread_mutex_unlock(&one_at_a_time);
    TRY(vt_cupti_check(&r->cupti, got, "beginning a range", err));
    r->pushed = true;
    return VT_OK;
}

static vt_status pop(vt_ranges *r, vt_err *err)
{
    cupti_ranges_call pop = {CUPTI_PARAMS(cupti_ranges_call), .ranges = r->on};
    r->pushed = false;
    return vt_cupti_check(&r->cupti, r->cupti.f.pop(&pop), "ending a range", err);
}

vt_status vt_ranges_pop(vt_ranges *r, vt_err *err)
{
    pthread_mutex_lock(&one_at_a_time);
    vt_status status = pop(r, err);
    pthread_mutex_unlock(&one_at_a_time);
    return status;
}

static void leave_out_waiting(double value[VT_VITALS])
{
    static const vt_vital of_time[] = {VT_VITAL_SM, VT_VITAL_TENSOR, VT_VITAL_DRAM};
    double cycles = value[VT_VITAL_SM_CYCLES] / value[VT_VITAL_SM]; /* of the range */
    double longer = cycles / value[VT_VITAL_SM_MOST];
    for (size_t i = 0; isfinite(longer) && longer > 1 && i < sizeof of_time / sizeof *of_time; i++)
        value[of_time[i]] = fmin(value[of_time[i]] * longer, 1);
}

static vt_status tell(vt_ranges *r, size_t range, vt_ranges_seen *seen, void *user, vt_err *err)
{
    double counted[VT_VITALS], value[VT_VITALS];
    cupti_range_info info = {CUPTI_PARAMS(cupti_range_info), .data = r->data,
                             .bytes = r->data_bytes, .range = range, .delimiter = "/"};
    cupti_evaluate evaluate = {CUPTI_PARAMS(cupti_evaluate),
                               .host = r->set->config.host,
                               .data = r->data,
                               .data_bytes = r->data_bytes,
                               .range = range,
                               .metric = r->set->metric,
                               .n = (size_t)r->set->n,
                               .value = counted};
    TRY(vt_cupti_check(&r->cupti, r->cupti.f.range_info(&info), "naming a range", err));
    TRY(vt_cupti_check(&r->cupti, r->cupti.f.evaluate(&evaluate), "reading a range", err));
    for (int i = 0; i < VT_VITALS; i++)
        value[i] = NAN;
    for (int32_t i = 0; i < r->set->n; i++)
        value[r->set->is[i]] = vt_vitals[r->set->is[i]].percent ? counted[i] / 100 : counted[i];
    leave_out_waiting(value);
    seen(user, info.name ? info.name : "", value);
    return VT_OK;
}

/* Ranges that had no room would be missing without a word, so they are an error. */
static vt_status read_all(vt_ranges *r, vt_ranges_seen *seen, void *user, vt_err *err)
{
    const cupti_functions *f = &r->cupti.f;
    cupti_ranges_decode decode = {CUPTI_PARAMS(cupti_ranges_decode), .ranges = r->on};
    cupti_data_info info = {CUPTI_PARAMS(cupti_data_info), .data = r->data, .bytes = r->data_bytes};
    TRY(vt_cupti_check(&r->cupti, f->decode(&decode), "reading its counters", err));
    if (decode.dropped > 0)
        return vt_fail(err, VT_ERR_UNSUPPORTED, "CUPTI dropped %zu ranges", decode.dropped);
    TRY(vt_cupti_check(&r->cupti, f->data_info(&info), "asking how many ranges there are", err));
    for (size_t i = 0; i < info.n; i++)
        TRY(tell(r, i, seen, user, err));
    return VT_OK;
}

static vt_status end(vt_ranges *r, vt_ranges_seen *seen, void *user, vt_err *err)
{
    const cupti_functions *f = &r->cupti.f;
    vt_status status = VT_OK;
    if (r->pushed) /* the work failed on its way */
        status = pop(r, err);
    if (r->started) {
        cupti_ranges_stop stop = {CUPTI_PARAMS(cupti_ranges_stop), .ranges = r->on};
        vt_status stopped = vt_cupti_check(&r->cupti, f->range_stop(&stop), "ending to count",
                                           status == VT_OK ? err : NULL);
        status = status == VT_OK ? stopped : status;
        if (status == VT_OK && !stop.all_submitted)
            status = vt_fail(err, VT_ERR_UNSUPPORTED, "CUPTI asks for a second run of the work");
        if (status == VT_OK && seen)
            status = read_all(r, seen, user, err);
    }
    if (r->on) {
        cupti_ranges_call off = {CUPTI_PARAMS(cupti_ranges_call), .ranges = r->on};
        vt_status disabled = vt_cupti_check(&r->cupti, f->disable(&off), "ending to watch the GPU",
                                            status == VT_OK ? err : NULL);
        status = status == VT_OK ? disabled : status;
    }
    r->on = NULL;
    r->started = r->pushed = false;
    return status;
}

vt_status vt_ranges_end(vt_ranges *r, vt_ranges_seen *seen, void *user, vt_err *err)
{
    pthread_mutex_lock(&one_at_a_time);
    vt_status status = end(r, seen, user, err);
    pthread_mutex_unlock(&one_at_a_time);
    return status;
}

void vt_ranges_close(vt_ranges *r)
{
    if (!r)
        return;
    pthread_mutex_lock(&one_at_a_time);
    end(r, NULL, NULL, NULL);
    vt_vitals_release(&r->cupti, &r->sets);
    pthread_mutex_unlock(&one_at_a_time);
    free(r->availability);
    free(r->data);
    free(r);
}
