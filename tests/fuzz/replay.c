/* Replays a corpus through a fuzz target: replay_NAME FOLDER. */
#include "replay.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The bytes are copied to an exact-size block, so that the address sanitizer sees a read past the
 * end. */
static int replay_file(const char *path, int (*target)(const uint8_t *data, size_t size))
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return 0;
    fseek(f, 0, SEEK_END);
    long size = ftell(f);
    rewind(f);
    uint8_t *data = malloc(size > 0 ? (size_t)size : 1);
    int ok = data && size >= 0 && fread(data, 1, (size_t)size, f) == (size_t)size;
    fclose(f);
    if (ok)
        target(data, (size_t)size);
    free(data);
    return ok;
}

int replay(int argc, char **argv, int (*target)(const uint8_t *data, size_t size))
{
    struct dirent **names = NULL;
    int n = argc == 2 ? scandir(argv[1], &names, NULL, alphasort) : -1;
    if (n < 0) {
        printf("not ok 1 - %s: no such corpus folder\n1..1\n",
               argc == 2 ? argv[1] : "usage: replay FOLDER");
        return 1;
    }
    int count = 0, failed = 0;
    for (int i = 0; i < n; i++) {
        char path[1024];
        snprintf(path, sizeof path, "%s/%s", argv[1], names[i]->d_name);
        if (names[i]->d_name[0] != '.') {
            int ok = replay_file(path, target);
            failed += !ok;
            printf("%s %d - %s\n", ok ? "ok" : "not ok", ++count, names[i]->d_name);
            fflush(stdout);
        }
        free(names[i]);
    }
    free(names);
    if (count == 0) {
        printf("not ok 1 - %s: the corpus is empty\n", argv[1]);
        failed = count = 1;
    }
    printf("1..%d\n", count);
    return failed != 0;
}
