/* Run delay of the calling thread (base/run_delay.h). */
#include "base/run_delay.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

/* The file holds "ns on a CPU, ns waiting for a CPU, number of time slices". */
int64_t vt_run_delay_ns(void)
{
    char text[96];
    long long ran = 0, waited = 0;
    int fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    text[n > 0 ? n : 0] = '\0';
    return sscanf(text, "%lld %lld", &ran, &waited) == 2 ? waited : -1;
}
