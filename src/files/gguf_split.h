/* Names of GGUF files that are parts of one model, as llama.cpp's gguf-split writes them:
 *
 *   NAME-00001-of-00003.gguf        numbers from 1, five digits each */
#ifndef VT_FILES_GGUF_SPLIT_H
#define VT_FILES_GGUF_SPLIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct gguf_split_name {
    size_t prefix;       /* bytes before "-00001-of-..." */
    int32_t part, count; /* part 1 .. count */
} gguf_split_name;

/* Returns true if a file's name (or path) has that form. */
static inline bool gguf_split_parse(const char *name, size_t len, gguf_split_name *out)
{
    static const char form[] = "-00000-of-00000.gguf"; /* '0' stands for any digit */
    const size_t n = sizeof form - 1;
    if (len <= n)
        return false;
    const char *tail = name + len - n;
    int32_t number[2] = {0, 0};
    for (size_t i = 0; i < n; i++) {
        if (form[i] != '0' && tail[i] != form[i])
            return false;
        if (form[i] == '0' && (tail[i] < '0' || tail[i] > '9'))
            return false;
        if (form[i] == '0')
            number[i > 6] = number[i > 6] * 10 + (tail[i] - '0');
    }
    *out = (gguf_split_name){.prefix = len - n, .part = number[0], .count = number[1]};
    return out->part >= 1 && out->part <= out->count;
}

#endif
