#include "device/cuda/stamps.h"

#include <string.h>

#include "base/err.h"
#include "base/mem.h"

size_t cuda_stamps_bytes(int32_t n_calls)
{
    return (size_t)n_calls * STAMP_LAUNCHES * STAMP_WORDS * sizeof(uint64_t);
}

static size_t words_of(int32_t call, int32_t launch)
{
    int32_t last = launch < STAMP_LAUNCHES ? launch : STAMP_LAUNCHES - 1;
    return ((size_t)call * STAMP_LAUNCHES + (size_t)last) * STAMP_WORDS;
}

int32_t cuda_stamps_form(const cuda_stamps *s)
{
    return STAMP_LAUNCHED | (s->ends ? STAMP_ENDS : 0) | (s->with_ctas ? STAMP_CTAS : 0);
}

/* Notes the next launch; a launch without room for its note is only stamped. */
static void note(cuda_stamps *s, cuda_stamp_note n)
{
    n.call = s->call;
    n.launch = s->launch++;
    if (s->n_notes < s->max_notes)
        s->note[s->n_notes++] = n;
}

size_t cuda_stamps_table(int32_t n_ctas)
{
    return (size_t)n_ctas * STAMP_CTA_WORDS * sizeof(uint64_t);
}

/* Takes the rows of a launch; its note tells which. Returns the address of the first; NULL: there
 * are too few. */
static uint64_t *take_rows(cuda_cta_table *t, int64_t ctas, cuda_stamp_note *n)
{
    if (!t)
        return NULL;
    if (ctas > t->most - t->n) {
        t->n_left_out++;
        return NULL;
    }
    n->cta = t->n;
    n->n_ctas = (int32_t)ctas;
    t->n += n->n_ctas;
    return t->at + (size_t)n->cta * STAMP_CTA_WORDS;
}

vt_status cuda_stamps_take(cuda_stamps *s, int32_t kernel, int64_t ctas, const void *params,
                           size_t bytes, cuda_stamped_params *out, vt_err *err)
{
    struct {
        uint64_t *at, *row;
    } more = {.at = s->at + words_of(s->call, s->launch)};
    cuda_stamp_note n = {.kernel = kernel};
    size_t behind = vt_round_up(bytes, sizeof more.at);
    out->n = vt_round_up(behind + sizeof more, 64);
    if (out->n > sizeof out->bytes)
        return vt_fail(err, VT_ERR_DEVICE,
                       "a stamped kernel has %zu bytes of parameters, at most "
                       "%zu can be passed",
                       out->n, sizeof out->bytes);
    memset(out->bytes, 0, out->n);
    memcpy(out->bytes, params, bytes);
    more.row = take_rows(s->ctas, ctas, &n);
    memcpy(out->bytes + behind, &more, sizeof more);
    note(s, n);
    return VT_OK;
}

uint64_t *cuda_stamps_waits(const cuda_stamps *s)
{
    return s ? s->at + words_of(s->call, s->launch) + STAMP_NOTED : NULL;
}

void cuda_stamps_library(cuda_stamps *s, int32_t kernel)
{
    note(s, (cuda_stamp_note){.kernel = kernel, .library = true});
}

cuda_stamp cuda_stamps_read(const uint64_t *words, const cuda_stamp_note *n)
{
    const uint64_t *at = words + words_of(n->call, n->launch);
    if (n->library)
        return (cuda_stamp){0};
    cuda_stamp s = {.begin = at[STAMP_BEGAN], .before = at[STAMP_WAITED]};
    for (int i = STAMP_ENDED; i < STAMP_ENDED + STAMP_PLACES; i++)
        s.end = at[i] > s.end ? at[i] : s.end;
    for (int i = STAMP_NOTED; i < STAMP_NOTED + STAMP_WAITS; i++)
        s.waited += at[i] ? ~at[i] : 0;
    return s;
}

/* ---- the timer ---- */

static vt_status launch_tick(vt_cuda_lane *lane, void *device, vt_err *err)
{
    stamp_tick_params params = {device};
    lane->err = (vt_err){0};
    vt_status status = vt_cuda_launch(
        lane,
        &(cuda_launch){.spec = JIT_SPEC("stamp_tick.cu", "stamp_tick", {NULL, 0}),
                       .grid = {1, 1, 1},
                       .threads = 32},
        &params, sizeof params);
    if (status != VT_OK && err)
        *err = lane->err;
    return status;
}

static vt_status measure_tick(vt_cuda_lane *lane, void *device, uint64_t *tick, vt_err *err)
{
    vt_cuda *c = lane->cuda;
    TRY(launch_tick(lane, device, err));
    TRY(vt_cuda_check(
        c, c->driver.copy_to_host(tick, cuda_address(device), sizeof *tick, lane->stream),
        "reading the GPU's timer", err));
    return vt_cuda_check(c, c->driver.stream_sync(lane->stream), "reading the GPU's timer", err);
}

vt_status vt_cuda_stamps_check(vt_cuda_lane *lane, vt_err *err)
{
    uint64_t tick = 0;
    void *device;
    TRY(vt_cuda_alloc(lane->cuda, sizeof tick, &device, err));
    lane->collect = true;
    vt_status status = launch_tick(lane, device, err);
    lane->collect = false;
    if (status == VT_OK)
        status = vt_cuda_compile(lane->cuda, NULL, NULL, err);
    if (status == VT_OK)
        status = measure_tick(lane, device, &tick, err);
    vt_cuda_free(lane->cuda, device);
    TRY(status);
    if (tick > STAMP_MOST_TICK_NS)
        return vt_fail(err, VT_ERR_UNSUPPORTED,
                       "%s's timer grows in steps of %llu ns, which is too coarse to stamp kernels",
                       lane->cuda->name, (unsigned long long)tick);
    return VT_OK;
}
