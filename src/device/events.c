/* Reading what the kernel says of events (device/events.h).
 *
 *   /sys/bus/event_source/devices/cpu/type                       4
 *                                    format/event                config:0-7
 *                                    format/umask                config:8-15
 *                                    events/slots                event=0x00,umask=0x4
 *                                    events/topdown-retiring     event=0x00,umask=0x80
 *
 * The kernel names top-down slots where the CPU counts them (Intel's Ice Lake and later). It names
 * no event of AMX; its number is that of EXE.AMX_BUSY in Intel's public tables (github.com/intel/
 * perfmon, SPR/events/sapphirerapids_core.json, and the same in EMR's and GNR's): event 0xB7, umask
 * 0x02, cycles in which the unit was busy. */
#include "device/events.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH = 512 };

static const char folder[] = "sys/bus/event_source/devices", cpu_device[] = "cpu";

bool vt_event_line(const char *root, const char *device, const char *file, char out[VT_EVENT_TEXT])
{
    char path[PATH];
    int n = snprintf(path, sizeof path, "%s/%s/%s/%s", root, folder, device, file);
    FILE *f = n < (int)sizeof path ? fopen(path, "r") : NULL;
    bool read = f && fgets(out, VT_EVENT_TEXT, f);
    if (f)
        fclose(f);
    if (read)
        out[strcspn(out, "\n")] = '\0';
    return read && strlen(out) < VT_EVENT_TEXT - 1;
}

/* Puts a term, "umask=0x03", into its bits of the configuration ("config:8-15"). */
static bool put_term(const char *root, const char *device, const char *term, uint64_t *config)
{
    char name[VT_EVENT_TEXT], file[VT_EVENT_TEXT + 8], format[VT_EVENT_TEXT];
    unsigned from = 0, to = 0;
    size_t n = strcspn(term, "=");
    unsigned long long value = term[n] == '=' ? strtoull(term + n + 1, NULL, 0) : 1;
    snprintf(name, sizeof name, "%.*s", (int)n, term);
    snprintf(file, sizeof file, "format/%s", name);
    if (!vt_event_line(root, device, file, format))
        return false;
    int got = sscanf(format, "config:%u-%u", &from, &to);
    to = got == 1 ? from : to;
    if (got < 1 || from > to || to > 63 || (to - from < 63 && value >> (to - from + 1)))
        return false;
    *config |= (uint64_t)value << from;
    return true;
}

bool vt_event_config(const char *root, const char *device, char *terms, uint64_t *config)
{
    char *rest = NULL;
    bool good = terms[0] != '\0';
    *config = 0;
    for (char *t = strtok_r(terms, ",", &rest); t && good; t = strtok_r(NULL, ",", &rest))
        good = put_term(root, device, t, config);
    return good;
}

/* The number behind "KEY : " in a line of /proc/cpuinfo; -1: it is another key's. */
static int number_behind(const char *line, const char *key)
{
    size_t n = strlen(key);
    const char *colon = strncmp(line, key, n) == 0 ? strchr(line + n, ':') : NULL;
    if (!colon || strspn(line + n, "\t ") != (size_t)(colon - line) - n)
        return -1;
    return (int)strtol(colon + 1, NULL, 10);
}

/* True if the first CPU is one whose table has EXE.AMX_BUSY: a Sapphire, Emerald or Granite
 * Rapids. */
static bool counts_amx(const char *root)
{
    static const int models[] = {0x8f, 0xcf, 0xad, 0xae};
    char path[PATH], line[256];
    bool intel = false, known = false;
    int family = -1, model = -1;
    int n = snprintf(path, sizeof path, "%s/proc/cpuinfo", root);
    FILE *f = n < (int)sizeof path ? fopen(path, "r") : NULL;
    while (f && fgets(line, sizeof line, f) && line[0] != '\n') {
        intel = intel || (strncmp(line, "vendor_id", 9) == 0 && strstr(line, "GenuineIntel"));
        family = family < 0 ? number_behind(line, "cpu family") : family;
        model = model < 0 ? number_behind(line, "model") : model;
    }
    if (f)
        fclose(f);
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        known = known || model == models[i];
    return intel && family == 6 && known;
}

static void take(const char *root, uint32_t type, char *terms, vt_counter_kind *out)
{
    uint64_t config;
    if (vt_event_config(root, cpu_device, terms, &config)) {
        out->type = type;
        out->config = config;
    }
}

void vt_cpu_events(const char *root, vt_counter_kind out[VT_COUNTERS])
{
    static const struct {
        vt_counter is;
        const char *name;
    } slots[] = {{VT_COUNT_SLOTS, "slots"},
                 {VT_COUNT_RETIRING, "topdown-retiring"},
                 {VT_COUNT_BAD, "topdown-bad-spec"},
                 {VT_COUNT_FRONT, "topdown-fe-bound"},
                 {VT_COUNT_BACK, "topdown-be-bound"}};
    char text[VT_EVENT_TEXT], file[VT_EVENT_TEXT], amx[] = "event=0xb7,umask=0x02";
    memcpy(out, vt_counter_kinds, VT_COUNTERS * sizeof *out);
    if (!vt_event_line(root, cpu_device, "type", text))
        return;
    uint32_t type = (uint32_t)strtoul(text, NULL, 10);
    if (counts_amx(root))
        take(root, type, amx, &out[VT_COUNT_AMX]);
    for (size_t i = 0; i < sizeof slots / sizeof *slots; i++) {
        snprintf(file, sizeof file, "events/%s", slots[i].name);
        if (vt_event_line(root, cpu_device, file, text))
            take(root, type, text, &out[slots[i].is]);
    }
}
