/* libcupti.so of the emulated GPU: the host's side of the profiler and its range profiler, with
 * planted values; cupti_pm.c has its PM sampling and cupti_pc.c its PC sampling. A range's bytes
 * read and its time grow with the number that is its name, so that a test sees which range a value
 * is of:
 *
 *   gpu__time_duration.sum   2000 + NAME
 *   dram__bytes_read.sum     1000000 + 1000 * NAME
 *   dram__bytes_write.sum    20000 + 10 * PLACE     0 for the first context that was watched, ...
 *
 * EMULATED_CUPTI, words with ',' between them:
 *   forbidden     no permission to read counters
 *   vgpu          the machine is a virtual GPU that forbids it
 *   watched       another profiler is there
 *   drop          one range is lost
 *   no=METRIC     this GPU does not lend it
 *   pass=METRIC   it takes a pass of its own
 *   METRIC=VALUE  what is counted in every range
 *
 * As the real ones before 12.9 an older one samples no bytes of memory.
 * As on a Hopper GPU a pass holds two stall reasons, only one beside memory's bytes, and the L1
 * cache's sectors not beside these.
 *
 * Built with EMULATED_VERSION=18, 23 or 24 it is the library of CUDA 12.1, 12.5 or 12.6: the first
 * two have neither of the first two parts, and some structures are shorter (cupti_api.h). */
#include "cupti.h"

#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DECLARE(member, symbol, params) API int emu_##member params __asm__(symbol);
CUPTI_FUNCTIONS(DECLARE)
#if EMULATED_VERSION >= 24
CUPTI_RANGE_FUNCTIONS(DECLARE)
#endif
#undef DECLARE

const char *planted(const char *word)
{
    const char *p = getenv("EMULATED_CUPTI");
    size_t n = strlen(word);
    for (; p && *p; p = (p = strchr(p, ',')) ? p + 1 : NULL)
        if (strncmp(p, word, n) == 0 && (p[n] == 0 || p[n] == ',' || p[n - 1] == '='))
            return p + n;
    return NULL;
}

int emu_get_version(uint32_t *version)
{
    *version = EMULATED_VERSION;
    return CUPTI_OK;
}

int emu_error_text(int status, const char **text)
{
    *text = status == CUPTI_ERROR_PRIVILEGES    ? "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"
            : status == CUPTI_ERROR_SUBSCRIBERS ? "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"
                                                : "an emulated error";
    return CUPTI_OK;
}

static int started; /* the profiler answers nothing before */

int emu_start(cupti_start *p)
{
    started = 1;
    return p->size == cupti_start_BYTES ? CUPTI_OK : CUPTI_ERROR_BAD_PARAMETER;
}

int emu_chip(cupti_chip *p)
{
    p->name = "GH100";
    return p->size == cupti_chip_BYTES ? CUPTI_OK : CUPTI_ERROR_BAD_PARAMETER;
}

int emu_supported(cupti_device_supported *p)
{
    size_t bytes = EMULATED_VERSION < CUPTI_HAS_API
                       ? CUPTI_UP_TO(cupti_device_supported, confidential)
                       : (size_t)cupti_device_supported_BYTES;
    if (p->size != bytes)
        return CUPTI_ERROR_BAD_PARAMETER;
    p->architecture = p->sli = p->vgpu = p->confidential = p->cmp = p->wsl = CUPTI_SUPPORTED;
    p->vgpu = planted("vgpu") ? 2 : CUPTI_SUPPORTED;
    p->supported = planted("vgpu") ? 1 : CUPTI_SUPPORTED;
    return CUPTI_OK;
}

int emu_availability(cupti_availability *p)
{
    static const char image[] = "every counter";
    if (p->size != cupti_availability_BYTES || !p->context)
        return CUPTI_ERROR_BAD_PARAMETER;
    if (!started)
        return CUPTI_ERROR_NOT_STARTED;
    if (planted("forbidden"))
        return CUPTI_ERROR_PRIVILEGES;
    if (p->image && p->image_bytes >= sizeof image)
        memcpy(p->image, image, sizeof image);
    p->image_bytes = sizeof image;
    return CUPTI_OK;
}

#if EMULATED_VERSION >= 24

/* ---- the host's side ---- */

#define STALLED "smsp__warps_issue_stalled_"

/* What this GPU counts, and how much of it in every range. */
static const struct {
    const char *name;
    double value;
} metric[] = {{"gpu__time_duration.sum", 2000},
              {"sm__cycles_active.avg.pct_of_peak_sustained_elapsed", 90},
              {"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed", 12.5},
              {"dram__bytes_read.sum", 1e6},
              {"dram__bytes_write.sum", 20000},
              {"dram__bytes.sum.pct_of_peak_sustained_elapsed", 62.5},
              {"LTS.TriageCompute.lts__average_t_sector_hit_rate_realtime.pct", 25},
              {"lts__t_sector_hit_rate.pct", 24},
              {"sm__warps_active.avg.pct_of_peak_sustained_active", 50},
              {"l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum", 3},
              {"l1tex__data_pipe_lsu_wavefronts_mem_shared.sum", 300},
              {"pcie__read_bytes.sum", 2e6},
              {"pcie__write_bytes.sum", 1e6},
              {"sm__cycles_active.avg", 900},
              {"sm__cycles_active.max", 1000},
              {"smsp__warps_active.sum", 10000},
              {"smsp__inst_executed.sum", 2000},
              {"smsp__inst_executed_op_global_ld.sum", 100},
              {"l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum", 1600},
              {"smsp__inst_executed_op_local_ld.sum", 0},
              {"smsp__inst_executed_op_local_st.sum", 0},
              /* stall reasons: 10,000 together */
              {STALLED "long_scoreboard.sum", 2500},
              {STALLED "short_scoreboard.sum", 500},
              {STALLED "barrier.sum", 1500},
              {STALLED "gmma.sum", 0},
              {STALLED "math_pipe_throttle.sum", 300},
              {STALLED "wait.sum", 1700},
              {STALLED "mio_throttle.sum", 200},
              {STALLED "lg_throttle.sum", 100},
              {STALLED "not_selected.sum", 600},
              {STALLED "no_instruction.sum", 400},
              {STALLED "selected.sum", 2000},
              {STALLED "membar.sum", 0},
              {STALLED "drain.sum", 50},
              {STALLED "dispatch_stall.sum", 60},
              {STALLED "branch_resolving.sum", 40},
              {STALLED "sleeping.sum", 0},
              {STALLED "imc_miss.sum", 30},
              {STALLED "misc.sum", 20},
              {STALLED "tex_throttle.sum", 0}};

enum { METRICS = sizeof metric / sizeof *metric, MOST_RANGES = 4096, NAME = 24 };

/* True if one of the planted words is "before=metric". */
static int names(const char *before, const char *metric)
{
    char word[160];
    snprintf(word, sizeof word, "%s=%s", before, metric);
    return planted(word) != NULL;
}

static int find(const char *name)
{
    for (int i = 0; i < METRICS; i++)
        if (strcmp(metric[i].name, name) == 0 && !names("no", name))
            return i;
    return -1;
}

double planted_value(const char *name, int *told)
{
    char word[160];
    int k = find(name);
    snprintf(word, sizeof word, "%s=", name);
    const char *value = planted(word);
    *told = value != NULL;
    return k < 0 ? NAN : value ? strtod(value, NULL) : metric[k].value;
}

int emu_host_new(cupti_host_new *p)
{
    if (p->size != cupti_host_new_BYTES ||
        (p->type != CUPTI_TYPE_RANGES && p->type != CUPTI_TYPE_PM) || strcmp(p->chip, "GH100") != 0)
        return CUPTI_ERROR_BAD_PARAMETER;
    p->host = calloc(1, sizeof *p->host);
    p->host->type = p->type;
    return CUPTI_OK;
}

int emu_host_free(cupti_host_free *p)
{
    free(p->host);
    return p->size == cupti_host_free_BYTES ? CUPTI_OK : CUPTI_ERROR_BAD_PARAMETER;
}

int emu_host_add(cupti_host_add *p)
{
    if (p->size != cupti_host_add_BYTES)
        return CUPTI_ERROR_BAD_PARAMETER;
    int bytes = 0, stalled = 0, sectors = 0;
    p->host->n = p->n;
    p->host->passes = 1;
    p->host->refused = 0;
    for (size_t i = 0; i < p->n; i++) {
        if (find(p->metric[i]) < 0)
            return CUPTI_ERROR_BAD_PARAMETER;
        p->host->passes += p->n > 1 && names("pass", p->metric[i]);
        p->host->refused |= names("refused", p->metric[i]);
        bytes |= strncmp(p->metric[i], "dram__bytes", 11) == 0;
        sectors |= strncmp(p->metric[i], "l1tex__t_sectors", 16) == 0;
        stalled += strncmp(p->metric[i], STALLED, strlen(STALLED)) == 0;
    }
    p->host->passes += (size_t)((bytes && sectors) + (stalled > (bytes ? 1 : 2)));
    if (EMULATED_VERSION < 28 && p->host->type == CUPTI_TYPE_PM && bytes)
        return CUPTI_ERROR_BAD_PARAMETER;
    return CUPTI_OK;
}

int emu_config_bytes(cupti_config_bytes *p)
{
    p->bytes = sizeof(struct cupti_host);
    return p->size == cupti_config_bytes_BYTES ? CUPTI_OK : CUPTI_ERROR_BAD_PARAMETER;
}

int emu_config(cupti_config *p)
{
    if (p->size != cupti_config_BYTES || p->bytes != sizeof(struct cupti_host))
        return CUPTI_ERROR_BAD_PARAMETER;
    memcpy(p->image, p->host, p->bytes);
    return CUPTI_OK;
}

int emu_passes(cupti_passes *p)
{
    struct cupti_host h;
    if (p->size != cupti_passes_BYTES || p->bytes != sizeof h)
        return CUPTI_ERROR_BAD_PARAMETER;
    memcpy(&h, p->image, sizeof h);
    p->n = h.passes;
    return CUPTI_OK;
}

/* ---- ranges ---- */

typedef struct image {
    size_t n, most, dropped;
    long place; /* of the context */
    char name[][NAME];
} image;

/* Of a context: the ranks of an engine have one each. */
struct cupti_ranges {
    const void *context;
    image *to;
    int enabled, configured, started, pushed;
};

static struct cupti_ranges of_context[8];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The context's place, or the first that no context has; NULL: all are taken. */
static struct cupti_ranges *place_of(const void *context)
{
    struct cupti_ranges *r = of_context;
    pthread_mutex_lock(&lock);
    while (r < of_context + 8 && r->context && r->context != context)
        r++;
    r = r < of_context + 8 ? r : NULL;
    if (r)
        r->context = context;
    pthread_mutex_unlock(&lock);
    return r;
}

/* The emulated driver, if that is the one in this process, refuses cuInit from now on. */
static void tell_driver(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    int *watched = driver ? dlsym(driver, "emu_cupti_watched") : NULL;
    if (watched)
        *watched = 1;
    if (driver)
        dlclose(driver);
}

int emu_enable(cupti_ranges_enable *p)
{
    struct cupti_ranges *r = place_of(p->context);
    if (p->size != cupti_ranges_enable_BYTES || !p->context || !r || r->enabled)
        return CUPTI_ERROR_BAD_PARAMETER;
    if (planted("watched"))
        return CUPTI_ERROR_SUBSCRIBERS;
    tell_driver();
    *r = (struct cupti_ranges){.context = p->context, .enabled = 1};
    p->ranges = r;
    return CUPTI_OK;
}

static int bad(size_t size, size_t right, const struct cupti_ranges *r)
{
    return size != right || r < of_context || r >= of_context + 8 || !r->enabled;
}

int emu_disable(cupti_ranges_call *p)
{
    if (bad(p->size, cupti_ranges_call_BYTES, p->ranges) || p->ranges->started)
        return CUPTI_ERROR_BAD_OPERATION;
    p->ranges->enabled = 0;
    return CUPTI_OK;
}

int emu_data_bytes(cupti_ranges_bytes *p)
{
    if (bad(p->size, cupti_ranges_bytes_BYTES, p->ranges) || p->most_ranges > MOST_RANGES ||
        p->most_nodes < p->most_ranges)
        return CUPTI_ERROR_BAD_PARAMETER;
    p->bytes = sizeof(image) + p->most_ranges * NAME;
    return CUPTI_OK;
}

int emu_data_begin(cupti_ranges_image *p)
{
    if (bad(p->size, cupti_ranges_image_BYTES, p->ranges) || p->bytes < sizeof(image))
        return CUPTI_ERROR_BAD_PARAMETER;
    image *to = (image *)(void *)p->image;
    *to = (image){.most = (p->bytes - sizeof(image)) / NAME, .place = p->ranges - of_context};
    return CUPTI_OK;
}

int emu_configure(cupti_ranges_config *p)
{
    struct cupti_host h;
    if (bad(p->size, cupti_ranges_config_BYTES, p->ranges) || p->config_bytes != sizeof h ||
        p->range != CUPTI_RANGE_BY_USER || p->replay != CUPTI_REPLAY_BY_USER || p->levels != 1 ||
        p->least_level != 1)
        return CUPTI_ERROR_BAD_PARAMETER;
    memcpy(&h, p->config, sizeof h);
    p->ranges->to = (image *)(void *)p->image;
    p->ranges->configured = h.passes == 1;
    return p->ranges->configured ? CUPTI_OK : CUPTI_ERROR_UNSUPPORTED;
}

int emu_range_start(cupti_ranges_call *p)
{
    if (bad(p->size, cupti_ranges_call_BYTES, p->ranges) || !p->ranges->configured ||
        p->ranges->started)
        return CUPTI_ERROR_BAD_OPERATION;
    p->ranges->started = 1;
    return CUPTI_OK;
}

int emu_range_stop(cupti_ranges_stop *p)
{
    if (bad(p->size, cupti_ranges_stop_BYTES, p->ranges) || !p->ranges->started ||
        p->ranges->pushed)
        return CUPTI_ERROR_BAD_OPERATION;
    p->ranges->started = 0;
    p->all_submitted = 1;
    return CUPTI_OK;
}

int emu_push(cupti_ranges_push *p)
{
    if (bad(p->size, cupti_ranges_push_BYTES, p->ranges) || !p->ranges->started ||
        p->ranges->pushed)
        return CUPTI_ERROR_BAD_OPERATION;
    image *to = p->ranges->to;
    p->ranges->pushed = 1;
    if (to->n == to->most || (planted("drop") && to->n == 1))
        to->dropped++;
    else
        snprintf(to->name[to->n++], NAME, "%s", p->name);
    return CUPTI_OK;
}

int emu_pop(cupti_ranges_call *p)
{
    if (bad(p->size, cupti_ranges_call_BYTES, p->ranges) || !p->ranges->pushed)
        return CUPTI_ERROR_BAD_OPERATION;
    p->ranges->pushed = 0;
    return CUPTI_OK;
}

int emu_decode(cupti_ranges_decode *p)
{
    if (bad(p->size, cupti_ranges_decode_BYTES, p->ranges) || p->ranges->started)
        return CUPTI_ERROR_BAD_OPERATION;
    p->dropped = p->ranges->to->dropped;
    return CUPTI_OK;
}

int emu_data_info(cupti_data_info *p)
{
    p->n = ((const image *)(const void *)p->data)->n;
    return p->size == cupti_data_info_BYTES ? CUPTI_OK : CUPTI_ERROR_BAD_PARAMETER;
}

int emu_range_info(cupti_range_info *p)
{
    const image *from = (const image *)(const void *)p->data;
    if (p->size != cupti_range_info_BYTES || p->range >= from->n)
        return CUPTI_ERROR_BAD_PARAMETER;
    p->name = from->name[p->range];
    return CUPTI_OK;
}

int emu_evaluate(cupti_evaluate *p)
{
    const image *from = (const image *)(const void *)p->data;
    if (p->size != cupti_evaluate_BYTES)
        return CUPTI_ERROR_BAD_PARAMETER;
    if (emu_is_pm(p->data, p->data_bytes))
        return emu_pm_evaluate(p);
    if (p->range >= from->n)
        return CUPTI_ERROR_BAD_PARAMETER;
    double number = strtod(from->name[p->range], NULL);
    for (size_t i = 0; i < p->n; i++) {
        int told;
        p->value[i] = planted_value(p->metric[i], &told);
        if (isnan(p->value[i]))
            return CUPTI_ERROR_BAD_PARAMETER;
        if (!told && strcmp(p->metric[i], "dram__bytes_read.sum") == 0)
            p->value[i] += 1000 * number;
        if (!told && strcmp(p->metric[i], "dram__bytes_write.sum") == 0)
            p->value[i] += 10 * (double)from->place;
        if (!told && strcmp(p->metric[i], "gpu__time_duration.sum") == 0)
            p->value[i] += number;
    }
    return CUPTI_OK;
}

#endif
