/* Texts from outside that device/topology.c and device/tool.c read: lists of CPUs, a node's memory,
 * PCI addresses, the answers of other programs. Whatever the bytes: a value in its range, or
 * none. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "device/tool.h"
#include "device/topology.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds)
{
    if (!holds)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char place[VT_PLACE_SIZE], again[VT_PLACE_SIZE], version[16];
    char *text = malloc(size + 1);
    memcpy(text, data, size);
    text[size] = '\0';
    int32_t cpus = vt_count_cpus(text);
    must(cpus >= -1 && cpus <= 1 << 16);
    must(vt_node_memory(text, "MemTotal") >= -1);
    must(vt_node_memory(text, "MemFree") <= (int64_t)1 << 60);
    if (vt_pci_place(text, place)) {
        must(strlen(place) == 12);
        must(vt_pci_place(place, again) && strcmp(place, again) == 0);
    }
    if (vt_tool_version(text, version, sizeof version))
        must(strchr(version, '.') && strspn(version, "0123456789.") == strlen(version));
    free(text);
    return 0;
}
