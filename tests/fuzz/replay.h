/* Corpus replays: fuzz targets without a fuzzer. */
#ifndef VT_TESTS_REPLAY_H
#define VT_TESTS_REPLAY_H

#include <stddef.h>
#include <stdint.h>

/* Gives each file of the folder argv[1] to a fuzz target. Prints TAP, one line a file; returns 0 if
 * all were read. */
int replay(int argc, char **argv, int (*target)(const uint8_t *data, size_t size));

#endif
