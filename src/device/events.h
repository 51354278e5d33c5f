/* Events that the kernel names in sysfs, below root/sys/bus/event_source/devices, and those of this
 * CPU's own counters that not every CPU has. */
#ifndef VT_DEVICE_EVENTS_H
#define VT_DEVICE_EVENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/counters.h"

enum { VT_EVENT_TEXT = 128 };

/* Reads a file's first line. False: there is none, or it is too long. */
bool vt_event_line(const char *root, const char *device, const char *file, char out[VT_EVENT_TEXT]);
/* Reads an event's terms, "event=0x04,umask=0x03", each of which the device's format puts into its
 * bits of the configuration. `terms` is cut up. */
bool vt_event_config(const char *root, const char *device, char *terms, uint64_t *config);

/* Fills in the events that the CPU below `root` ("": this machine) has: vt_counter_kinds, AMX busy
 * and top-down slots. */
void vt_cpu_events(const char *root, vt_counter_kind out[VT_COUNTERS]);

#endif
