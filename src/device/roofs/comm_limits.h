/* Which form of a sum over ranks on GPUs a call takes, by the bytes of a rank's buffer:
 *
 *   push  |  one-shot  |  two-shot; of a sum with its norm: the two ops one after the other
 *         ^            ^
 *         push         one_shot: the limits
 *
 * All forms have the same bits, so the limits change times alone; ranks share one vt_comm_gpu, so
 * all of them take the same form. Where they come from: fixed in the code (by what two and four
 * H100 and H200 measured), or from times of this machine's GPUs, which are measured once, when an
 * engine first joins them, and kept beside the roofs (ops/bench/comm_measure.h). */
#ifndef VT_DEVICE_ROOFS_COMM_LIMITS_H
#define VT_DEVICE_ROOFS_COMM_LIMITS_H

#include <stdbool.h>
#include <stdint.h>

/* A call of up to so many bytes takes the form. */
typedef struct vt_form_limits {
    int64_t push, one_shot;
} vt_form_limits;

typedef struct vt_comm_limits {
    vt_form_limits sum, norm; /* without and with a norm behind the sum */
    int64_t when;             /* they were measured, in seconds since 1970; 0: they are fixed */
} vt_comm_limits;

enum {
    COMM_LEAST_BYTES = 8 << 10, /* the first size; each is twice the one before it */
    COMM_SIZES = 11
};
typedef enum comm_form { COMM_PUSH, COMM_ONE_SHOT, COMM_OTHER, COMM_FORMS } comm_form;

/* Seconds of a call; 0: the form does not take this size. */
typedef struct comm_times {
    double sum[COMM_FORMS][COMM_SIZES], norm[COMM_FORMS][COMM_SIZES];
    int64_t when;
} comm_times;

vt_comm_limits vt_comm_fixed_limits(int32_t ranks);
/* Returns the limits with which the calls of all sizes take the least time, each counted as a
 * multiple of the fastest form's. The fixed ones stay where no others save COMM_WORTH of a call. */
#define COMM_WORTH 0.02
vt_comm_limits vt_comm_limits_from(const comm_times *t, int32_t ranks);

/* The times in the cache's file comm-<key>.json. False: there is none that makes sense. Failing to
 * write is no error. */
bool vt_comm_times_read(const char *key, comm_times *out);
void vt_comm_times_write(const char *key, const comm_times *t);

#endif
