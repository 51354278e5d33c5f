/* Stamps of launches (stamp.cuh): when the first CTA of each began and when the launch ended, on
 * the device's own clock, in graphs as well.
 *
 * A lane whose `stamps` are set launches the stamped twins of its kernels. Each launch stamps the
 * words of its call: `call` is set by whoever runs the calls, and launches of a call that are more
 * than STAMP_LAUNCHES share the last words. So does `ends`: behind the call comes no launch that
 * stamps, by which its end could be known. A note for each launch says which kernel it was; a
 * library's kernel has a note and no stamp. What is captured into a graph stamps the same words at
 * every launch of the graph.
 *
 * Where a table of CTAs is set, each launch takes the next rows of it, one a CTA; launches for
 * which too few are left take none, and are counted. What is captured into a graph keeps its rows,
 * so such a graph is launched once.
 *
 * Where %globaltimer grows in steps of 1 us (before compute capability 9.0), stamps say little
 * about kernels of a few us, and vt_cuda_stamps_check refuses them. */
#ifndef VT_DEVICE_CUDA_STAMPS_H
#define VT_DEVICE_CUDA_STAMPS_H

#include "device/cuda/cuda.h"
#include "device/cuda/stamp_params.h"

enum { STAMP_LAUNCHES = 2 };

/* The coarsest %globaltimer whose stamps are used. */
enum { STAMP_MOST_TICK_NS = 100 };

typedef struct cuda_stamp_note {
    int32_t call, launch; /* which launch of the call, from 0 */
    int32_t kernel;       /* the JIT's index of the kernel without stamps */
    bool library;         /* it has no stamp */
    int32_t cta, n_ctas;  /* its rows of the table of CTAs; n_ctas 0: it has none */
} cuda_stamp_note;

/* The stamps of a launch, in ns of %globaltimer; 0: there is none. */
typedef struct cuda_stamp {
    uint64_t begin;  /* of its first CTA */
    uint64_t before; /* the launch before it had ended then */
    uint64_t end;    /* the latest of its last CTAs */
    uint64_t waited; /* the sum of the waits that it noted */
} cuda_stamp;

/* The device's table of CTAs. */
typedef struct cuda_cta_table {
    uint64_t *at;       /* [most][STAMP_CTA_WORDS], zero until they are stamped */
    int32_t n, most;    /* rows that are taken, of so many */
    int32_t n_left_out; /* launches that found too few */
} cuda_cta_table;

typedef struct cuda_stamps {
    bool with_ctas;        /* kernels are compiled so that they can fill a table */
    cuda_cta_table *ctas;  /* NULL: CTAs are not told apart */
    uint64_t *at;          /* the device's: [n_calls][STAMP_LAUNCHES][STAMP_WORDS] */
    int32_t call, launch;  /* of the next launch */
    bool ends;             /* the next launches stamp their ends too */
    cuda_stamp_note *note; /* [max_notes] */
    int32_t n_notes, max_notes;
} cuda_stamps;

/* Measures how finely the device's timer ticks. Fails with VT_ERR_UNSUPPORTED and a sentence where
 * that is too coarse for stamps. */
vt_status vt_cuda_stamps_check(vt_cuda_lane *lane, vt_err *err);
/* Bytes of the words of n_calls calls. */
size_t cuda_stamps_bytes(int32_t n_calls);
/* The form of the next launch's twin, its value of JIT_STAMPED. */
int32_t cuda_stamps_form(const cuda_stamps *s);
/* Reads a launch from `words`, a copy of the device's. */
cuda_stamp cuda_stamps_read(const uint64_t *words, const cuda_stamp_note *n);

/* A stamped kernel's parameters: the kernel's own, the address of the launch's words, and the
 * address of its first CTA's row (NULL: it has none). */
typedef struct cuda_stamped_params {
    _Alignas(64) char bytes[4096]; /* the most that a launch may bring */
    size_t n;
} cuda_stamped_params;

/* Makes the parameters of the next launch, of kernel `kernel` with so many CTAs, and notes it. */
vt_status cuda_stamps_take(cuda_stamps *s, int32_t kernel, int64_t ctas, const void *params,
                           size_t bytes, cuda_stamped_params *out, vt_err *err);
/* Bytes of a table of so many CTAs. */
size_t cuda_stamps_table(int32_t n_ctas);
/* Returns the device's words, STAMP_WAITS of them, in which the next launch notes how long it
 * waited; NULL: s is NULL, nothing is stamped. */
uint64_t *cuda_stamps_waits(const cuda_stamps *s);
/* Notes the launch of a library's kernel. */
void cuda_stamps_library(cuda_stamps *s, int32_t kernel);

#endif
