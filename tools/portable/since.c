/* Functions that newer C libraries than 2.28 brought, for programs that shall also run with an older one. `make wheel` and
 * `make dist` link this file; `link` beside it explains how. Each has its C name as the name of its symbol, and stays
 * inside of the program.
 *
 *   stat, fstat, lstat                       2.33; before that a header made calls of __xstat of them
 *   mallinfo2                                2.33; zeros without it, as if malloc had nothing to tell
 *   posix_spawn_file_actions_addchdir_np     2.29; ENOSYS without it: `vitrine pull` of a preset fails
 *   getcpu                                   2.29
 *   epoll_pwait2                             2.35
 *   pidfd_open, pidfd_send_signal, arc4random, arc4random_buf   2.36
 *   __libc_start_main                        2.34: since then it calls the program's constructors by itself
 */
#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NAMED(name) __asm__(name) __attribute__((visibility("hidden"), used))

struct stat;
struct epoll_event;
struct timespec;

#ifdef __x86_64__
enum { STAT_VERSION = 1 };
#else
enum { STAT_VERSION = 0 };
#endif
int __xstat(int version, const char *path, struct stat *out);
int __lxstat(int version, const char *path, struct stat *out);
int __fxstat(int version, int fd, struct stat *out);

int since_stat(const char *path, struct stat *out) NAMED("stat");
int since_stat(const char *path, struct stat *out) { return __xstat(STAT_VERSION, path, out); }

int since_lstat(const char *path, struct stat *out) NAMED("lstat");
int since_lstat(const char *path, struct stat *out) { return __lxstat(STAT_VERSION, path, out); }

int since_fstat(int fd, struct stat *out) NAMED("fstat");
int since_fstat(int fd, struct stat *out) { return __fxstat(STAT_VERSION, fd, out); }

typedef struct {
    size_t numbers[10]; /* of struct mallinfo2 */
} malloc_numbers;
malloc_numbers since_mallinfo2(void) NAMED("mallinfo2");
malloc_numbers since_mallinfo2(void)
{
    malloc_numbers (*real)(void) = (malloc_numbers(*)(void))dlsym(RTLD_DEFAULT, "mallinfo2");
    return real ? real() : (malloc_numbers){{0}};
}

int since_addchdir(void *actions, const char *path) NAMED("posix_spawn_file_actions_addchdir_np");
int since_addchdir(void *actions, const char *path)
{
    int (*real)(void *, const char *) = (int (*)(void *, const char *))dlsym(
        RTLD_DEFAULT, "posix_spawn_file_actions_addchdir_np");
    return real ? real(actions, path) : ENOSYS;
}

int since_getcpu(unsigned *cpu, unsigned *node) NAMED("getcpu");
int since_getcpu(unsigned *cpu, unsigned *node)
{
    return (int)syscall(SYS_getcpu, cpu, node, NULL);
}

int since_epoll_pwait2(int epoll, struct epoll_event *events, int n, const struct timespec *t,
                       const void *mask) NAMED("epoll_pwait2");
int since_epoll_pwait2(int epoll, struct epoll_event *events, int n, const struct timespec *t,
                       const void *mask)
{
    return (int)syscall(SYS_epoll_pwait2, epoll, events, n, t, mask,
                        (size_t)8 /* bytes of a mask */);
}

int since_pidfd_open(pid_t pid, unsigned flags) NAMED("pidfd_open");
int since_pidfd_open(pid_t pid, unsigned flags) { return (int)syscall(SYS_pidfd_open, pid, flags); }

int since_pidfd_send_signal(int fd, int number, void *info, unsigned flags)
    NAMED("pidfd_send_signal");
int since_pidfd_send_signal(int fd, int number, void *info, unsigned flags)
{
    return (int)syscall(SYS_pidfd_send_signal, fd, number, info, flags);
}

/* Random bytes; as with the C library's own, a system that has none ends the program. */
void since_arc4random_buf(void *out, size_t size) NAMED("arc4random_buf");
void since_arc4random_buf(void *out, size_t size)
{
    unsigned char *at = out;
    while (size > 0) {
        long got = syscall(SYS_getrandom, at, size < 256 ? size : 256, 0);
        if (got < 0 && errno != EINTR)
            abort();
        if (got > 0) {
            at += got;
            size -= (size_t)got;
        }
    }
}

uint32_t since_arc4random(void) NAMED("arc4random");
uint32_t since_arc4random(void)
{
    uint32_t value;
    since_arc4random_buf(&value, sizeof value);
    return value;
}

#ifdef SINCE_MAIN /* the program's, which is linked with --wrap=__libc_start_main */
typedef void (*constructor)(int, char **, char **);
extern constructor __preinit_array_start[] __attribute__((visibility("hidden")));
extern constructor __preinit_array_end[] __attribute__((visibility("hidden")));
extern constructor __init_array_start[] __attribute__((visibility("hidden")));
extern constructor __init_array_end[] __attribute__((visibility("hidden")));
void _init(void);

/* Calls the program's constructors, which an older C library leaves to the program. */
static void construct(int argc, char **argv, char **env)
{
    for (constructor *c = __preinit_array_start; c < __preinit_array_end; c++)
        (*c)(argc, argv, env);
    _init();
    for (constructor *c = __init_array_start; c < __init_array_end; c++)
        (*c)(argc, argv, env);
}

typedef int (*main_function)(int, char **, char **);
int __real___libc_start_main(main_function, int, char **, constructor, void (*)(void),
                             void (*)(void), void *);
int __wrap___libc_start_main(main_function, int, char **, constructor, void (*)(void),
                             void (*)(void), void *);
int __wrap___libc_start_main(main_function run, int argc, char **argv, constructor init,
                             void (*fini)(void), void (*rtld_fini)(void), void *stack)
{
    return __real___libc_start_main(run, argc, argv, init ? init : construct, fini, rtld_fini,
                                    stack);
}
#endif
