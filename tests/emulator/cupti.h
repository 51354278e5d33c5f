/* What the parts of the emulated libcupti share (cupti.c). */
#ifndef EMULATOR_CUPTI_H
#define EMULATOR_CUPTI_H

#include <stddef.h>

#include "device/cupti/cupti_api.h"

#define API __attribute__((visibility("default")))

struct cupti_host {
    size_t n, passes;
    int type, refused; /* the GPU does not take one of its metrics */
};

/* Finds `word` in EMULATED_CUPTI; returns what follows it, or NULL. */
const char *planted(const char *word);
/* Returns what is counted of a metric; NAN: there is none. *told: a planted word says it. */
double planted_value(const char *metric, int *told);

/* Returns true if counter data holds samples (cupti_pm.c), which the other one evaluates. */
int emu_is_pm(const uint8_t *data, size_t bytes);
int emu_pm_evaluate(cupti_evaluate *p);

#endif
