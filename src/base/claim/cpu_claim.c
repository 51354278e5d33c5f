/* A claim is a socket bound to a name in Linux's abstract namespace, "vitrine-cpu-7" for CPU 7.
 * Only one process can bind a name; there is no file, and the system ends it with the process. */
#include "base/claim/cpu_claim.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct claim {
    int32_t users; /* claims of this process */
    int fd;        /* -1: the system gave no socket, and others do not see the claim */
} claims[CPU_SETSIZE];

/* Returns false if another process has the name. */
static bool bind_name(const char *name, int32_t cpu, int *fd)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int n = snprintf(a.sun_path + 1, sizeof a.sun_path - 1, "%s-%d", name, cpu);
    *fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (*fd < 0 || bind(*fd, (struct sockaddr *)&a,
                        (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)) == 0)
        return true;
    bool taken = errno == EADDRINUSE;
    close(*fd);
    *fd = -1;
    return !taken;
}

int32_t vt_cpu_claim(const char *name, const cpu_set_t *set, int32_t n, int32_t *cpu)
{
    int32_t got = 0;
    pthread_mutex_lock(&lock);
    for (int32_t c = CPU_SETSIZE - 1; c >= 0 && got < n; c--)
        if (CPU_ISSET(c, set) && (claims[c].users > 0 || bind_name(name, c, &claims[c].fd))) {
            claims[c].users++;
            cpu[got++] = c;
        }
    pthread_mutex_unlock(&lock);
    return got;
}

void vt_cpu_unclaim(const int32_t *cpu, int32_t n)
{
    pthread_mutex_lock(&lock);
    for (int32_t i = 0; i < n; i++)
        if (--claims[cpu[i]].users == 0 && claims[cpu[i]].fd >= 0)
            close(claims[cpu[i]].fd);
    pthread_mutex_unlock(&lock);
}
