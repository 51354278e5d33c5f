/* Reading RAPL (device/energy.h).
 *
 *   /sys/class/powercap/intel-rapl:0/name                  package-0
 *                                    energy_uj             12345678     readable by root alone
 *                                    max_energy_range_uj   262143328850
 *   /sys/class/powercap/intel-rapl:0:0/...                 core: a part of the package
 *   /sys/class/powercap/intel-rapl:1/name                  psys: the whole board, not used here
 *
 * Since Linux 5.10 energy_uj is readable by root alone, because a fine counter tells what other
 * processes compute. */
#include "device/energy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ZONES = 2 * VT_ENERGY_PACKAGES, PATH = 512 };

static int64_t read_number(int fd)
{
    char text[32], *end;
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    if (n <= 0)
        return -1;
    text[n] = '\0';
    errno = 0;
    long long v = strtoll(text, &end, 10);
    return end != text && errno == 0 && v >= 0 ? v : -1;
}

static int open_file(const char *root, int zone, const char *file)
{
    char path[PATH];
    int n = snprintf(path, sizeof path, "%s/intel-rapl:%d/%s", root, zone, file);
    return n < (int)sizeof path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
}

static bool is_package(const char *root, int zone)
{
    char name[32] = "";
    int fd = open_file(root, zone, "name");
    ssize_t n = fd >= 0 ? read(fd, name, sizeof name - 1) : -1;
    if (fd >= 0)
        close(fd);
    return n > 0 && strncmp(name, "package-", 8) == 0;
}

/* False: the package is there, and its counter cannot be read; e->why says so. */
static bool open_package(const char *root, int zone, vt_energy *e)
{
    int fd = open_file(root, zone, "energy_uj"), range = -1;
    int64_t at = fd >= 0 ? read_number(fd) : -1;
    if (at >= 0)
        range = open_file(root, zone, "max_energy_range_uj");
    int64_t most = range >= 0 ? read_number(range) : -1;
    if (range >= 0)
        close(range);
    if (at < 0 || most <= 0) {
        snprintf(e->why, sizeof e->why, "%.80s/intel-rapl:%d/energy_uj: %s", root, zone,
                 fd < 0 ? strerror(errno) : "no number could be read");
        if (fd >= 0)
            close(fd);
        return false;
    }
    e->fd[e->n] = fd;
    e->range_uj[e->n] = most;
    e->last_uj[e->n++] = at;
    return true;
}

void vt_energy_open(const char *root, vt_energy *e)
{
    root = root ? root : "/sys/class/powercap";
    *e = (vt_energy){0};
    snprintf(e->why, sizeof e->why, "%.80s names no package: this machine offers no counter", root);
    for (int zone = 0; zone < ZONES && e->n < VT_ENERGY_PACKAGES; zone++)
        if (is_package(root, zone) && !open_package(root, zone, e)) {
            vt_energy_close(e);
            return;
        }
}

void vt_energy_close(vt_energy *e)
{
    for (int32_t i = 0; i < e->n; i++)
        close(e->fd[i]);
    e->n = 0;
}

int64_t vt_energy_read_mj(vt_energy *e)
{
    if (e->n == 0)
        return -1;
    for (int32_t i = 0; i < e->n; i++) {
        int64_t at = read_number(e->fd[i]);
        if (at < 0)
            return -1;
        int64_t more = at - e->last_uj[i];
        e->sum_uj += more >= 0 ? more : more + e->range_uj[i];
        e->last_uj[i] = at;
    }
    return e->sum_uj / 1000;
}
