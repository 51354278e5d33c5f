/* The CPU's description, from cpuid, sysconf and /sys. It is read once under pthread_once. Code
 * that depends on the instruction-set level gets the level as an argument. */
#include "device/cpu.h"

#include <ctype.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/syscall.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#include "base/err.h"
#include "base/knob.h"

static const char *const kIsaNames[VT_ISA_COUNT] = {"portable", "avx2", "avx512", "amx", "neon"};

const char *vt_isa_name(vt_isa isa) { return isa < VT_ISA_COUNT ? kIsaNames[isa] : "?"; }

#if defined(__x86_64__)
/* Returns true if the operating system saves the registers of these features (bits of XCR0). */
static bool xcr0_has(unsigned mask)
{
    unsigned lo, hi;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return (lo & mask) == mask;
}

/* AMX tiles need the kernel's permission, once per process. */
static bool amx_permitted(void)
{
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

static vt_isa detect_isa(void)
{
    unsigned a, b, c, d, b7 = 0, c7 = 0, d7 = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE) || !xcr0_has(0x6))
        return VT_ISA_PORTABLE;
    bool fma = c & bit_FMA, f16c = c & bit_F16C;
    if (!__get_cpuid_count(7, 0, &a, &b7, &c7, &d7))
        return VT_ISA_PORTABLE;
    if (!(b7 & bit_AVX2) || !(b7 & bit_BMI2) || !fma || !f16c)
        return VT_ISA_PORTABLE;
    bool avx512 = (b7 & bit_AVX512F) && (b7 & bit_AVX512BW) && (b7 & bit_AVX512DQ) &&
                  (b7 & bit_AVX512VL) && (c7 & bit_AVX512VNNI) && xcr0_has(0xe6);
    if (!avx512)
        return VT_ISA_AVX2;
    enum { AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24, AMX_INT8 = 1 << 25 };
    bool amx = (d7 & AMX_BF16) && (d7 & AMX_TILE) && (d7 & AMX_INT8) && xcr0_has(0x60000);
    return amx && amx_permitted() ? VT_ISA_AMX : VT_ISA_AVX512;
}

static bool detect_avx_vnni(void)
{
    enum { AVX_VNNI = 1 << 4 };
    unsigned a, b, c, d;
    return detect_isa() >= VT_ISA_AVX2 && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & AVX_VNNI);
}
#elif defined(__aarch64__)
static vt_isa detect_isa(void) { return VT_ISA_NEON; }
#else
static vt_isa detect_isa(void) { return VT_ISA_PORTABLE; }
#endif

static bool read_line(const char *path, char *out, size_t size)
{
    FILE *f = fopen(path, "r");
    if (!f)
        return false;
    bool ok = fgets(out, (int)size, f) != NULL;
    fclose(f);
    if (ok)
        out[strcspn(out, "\n")] = 0;
    return ok;
}

static void detect_model(vt_cpu *c)
{
    snprintf(c->model, sizeof c->model, "unknown CPU");
    FILE *f = fopen("/proc/cpuinfo", "r");
    if (!f)
        return;
    char line[256];
    while (fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        if (!colon || strncmp(line, "model name", 10) != 0)
            continue;
        char *p = colon + 1;
        while (isspace((unsigned char)*p))
            p++;
        p[strcspn(p, "\n")] = 0;
        snprintf(c->model, sizeof c->model, "%s", p);
        break;
    }
    fclose(f);
}

static void detect_caches(vt_cpu *c)
{
    char path[128], type[32], level[8], size[32];
    for (int i = 0; i < 8; i++) {
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/type", i);
        if (!read_line(path, type, sizeof type))
            break;
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/level", i);
        bool ok = read_line(path, level, sizeof level);
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", i);
        if (!ok || !read_line(path, size, sizeof size) || strcmp(type, "Instruction") == 0)
            continue;
        char *unit;
        int64_t bytes = strtoll(size, &unit, 10) * (*unit == 'M'   ? 1 << 20
                                                    : *unit == 'K' ? 1 << 10
                                                                   : 1);
        int64_t *slot = level[0] == '1'   ? &c->l1d_bytes
                        : level[0] == '2' ? &c->l2_bytes
                                          : &c->l3_bytes;
        *slot = bytes;
    }
}

/* Fills *out with the number at the head of a file of a CPU's folder under /sys. */
static bool read_cpu_number(int cpu, const char *file, int32_t *out)
{
    char path[128], line[32];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/%s", cpu, file);
    if (!read_line(path, line, sizeof line))
        return false;
    *out = (int32_t)strtol(line, NULL, 10);
    return true;
}

/* The pair (package, core). A CPU that /sys does not describe counts as a core. */
static int64_t core_of(int cpu)
{
    int32_t package = cpu, core = cpu;
    (void)read_cpu_number(cpu, "topology/physical_package_id", &package);
    (void)read_cpu_number(cpu, "topology/core_id", &core);
    return (int64_t)package * 65536 + core;
}

/* The first of the CPUs that share this one's L3. If /sys does not tell, there is one L3. */
static int64_t l3_of(int cpu)
{
    int32_t level, first = 0;
    for (int i = 0; i < 8; i++) {
        char file[64];
        snprintf(file, sizeof file, "cache/index%d/level", i);
        if (!read_cpu_number(cpu, file, &level))
            break;
        snprintf(file, sizeof file, "cache/index%d/shared_cpu_list", i);
        if (level == 3 && read_cpu_number(cpu, file, &first))
            return first;
    }
    return 0;
}

/* Counts the different answers for the CPUs that this process may use. */
static int32_t count_different(const cpu_set_t *allowed, int64_t (*of)(int cpu), int32_t unknown)
{
    enum { MAX_CPUS = 1024 };
    int64_t *seen = calloc(MAX_CPUS, sizeof *seen);
    int32_t n = 0;
    for (int cpu = 0; seen && cpu < MAX_CPUS; cpu++) {
        if (!CPU_ISSET(cpu, allowed))
            continue;
        int64_t key = of(cpu);
        int32_t i = 0;
        while (i < n && seen[i] != key)
            i++;
        if (i == n)
            seen[n++] = key;
    }
    free(seen);
    return n > 0 ? n : unknown;
}

/* A container limited to 2 CPUs on a machine of 64 may run on all 64, but for a thirty-second of
 * the time. With 64 threads, some thread is then always suspended and the others wait for it: with
 * a limit of 2 CPUs, 64 threads gave 1 token/s and 2 threads gave 48. Control groups version 2 have
 * one file with "quota period" or "max period"; version 1 has a file for each, and -1 means no
 * limit. */
int32_t vt_cpu_quota(const char *root)
{
    char path[512], line[64], *rest = line;
    int64_t quota = 0, period = 0;
    snprintf(path, sizeof path, "%s/cpu.max", root);
    if (read_line(path, line, sizeof line)) {
        quota = strtoll(line, &rest, 10); /* 0 for "max" */
        period = strtoll(rest, NULL, 10);
    } else {
        snprintf(path, sizeof path, "%s/cpu/cpu.cfs_quota_us", root);
        if (read_line(path, line, sizeof line))
            quota = strtoll(line, NULL, 10);
        snprintf(path, sizeof path, "%s/cpu/cpu.cfs_period_us", root);
        if (read_line(path, line, sizeof line))
            period = strtoll(line, NULL, 10);
    }
    if (quota <= 0 || period <= 0 || quota / period >= INT32_MAX)
        return 0;
    return (int32_t)(quota / period + (quota % period != 0));
}

/* Returns true if the CPU has cores of several kinds: x86 says so in cpuid, ARM by the capacities
 * of its CPUs. */
static bool detect_uneven(void)
{
#if defined(__x86_64__)
    enum { HYBRID = 1 << 15 };
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & HYBRID);
#else
    char path[96], line[32], first[32] = "";
    for (int i = 0; i < 1024; i++) {
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/cpu_capacity", i);
        if (!read_line(path, line, sizeof line))
            return false;
        if (i > 0 && strcmp(line, first) != 0)
            return true;
        snprintf(first, sizeof first, "%s", line);
    }
    return false;
#endif
}

static vt_cpu g_cpu; /* the process-wide CPU description */
static pthread_once_t g_once = PTHREAD_ONCE_INIT;

static void cpu_detect(void)
{
    detect_model(&g_cpu);
    detect_caches(&g_cpu);
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    bool known = sched_getaffinity(0, sizeof allowed, &allowed) == 0;
    g_cpu.n_cpus = known ? CPU_COUNT(&allowed) : (int32_t)sysconf(_SC_NPROCESSORS_ONLN);
    if (g_cpu.n_cpus < 1)
        g_cpu.n_cpus = 1;
    g_cpu.n_cores = known ? count_different(&allowed, core_of, g_cpu.n_cpus) : g_cpu.n_cpus;
    g_cpu.n_l3 = known ? count_different(&allowed, l3_of, 1) : 1;
    int32_t quota = vt_cpu_quota("/sys/fs/cgroup");
    if (quota > 0 && quota < g_cpu.n_cores)
        g_cpu.n_cores = quota;
    char path[64];
    snprintf(path, sizeof path, "/sys/devices/system/node/node0");
    for (int n = 0; n < 64 && access(path, F_OK) == 0; n++)
        snprintf(path, sizeof path, "/sys/devices/system/node/node%d", (g_cpu.n_nodes = n + 1));
    if (g_cpu.n_nodes == 0)
        g_cpu.n_nodes = 1;
    g_cpu.memory_bytes = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    g_cpu.uneven = detect_uneven();
#if defined(__x86_64__)
    g_cpu.avx_vnni = detect_avx_vnni();
#elif defined(__aarch64__)
    g_cpu.dotprod = (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#endif
    g_cpu.best = detect_isa();
    g_cpu.level = g_cpu.best;
    const char *want = vt_knob_text(&vt_knobs[VT_KNOB_ISA]);
    vt_isa isa;
    if (want && vt_isa_parse(want, &isa, NULL) == VT_OK)
        g_cpu.level = isa;
}

bool vt_isa_has(vt_isa best, vt_isa want)
{
    if (want == VT_ISA_PORTABLE || want == best)
        return true;
    return best != VT_ISA_NEON && want != VT_ISA_NEON && want < best;
}

const vt_cpu *vt_cpu_get(void)
{
    pthread_once(&g_once, cpu_detect);
    return &g_cpu;
}

vt_status vt_isa_parse(const char *name, vt_isa *out, vt_err *err)
{
    for (int i = 0; i < VT_ISA_COUNT; i++) {
        if (strcasecmp(name, kIsaNames[i]) != 0)
            continue;
        vt_isa best = detect_isa();
        if (!vt_isa_has(best, (vt_isa)i))
            return vt_fail(err, VT_ERR_UNSUPPORTED,
                           "VITRINE_ISA=%s: this machine has no more than %s", name,
                           vt_isa_name(best));
        *out = (vt_isa)i;
        return VT_OK;
    }
    return vt_fail(err, VT_ERR_USAGE, "VITRINE_ISA=%s: expected %s", name,
                   vt_knobs[VT_KNOB_ISA].expected);
}

vt_status vt_cpu_init(vt_err *err)
{
    const char *want = vt_knob_text(&vt_knobs[VT_KNOB_ISA]);
    vt_isa isa;
    TRY(vt_knob_check(&vt_knobs[VT_KNOB_ISA], err));
    if (want)
        TRY(vt_isa_parse(want, &isa, err));
    vt_cpu_get();
    return VT_OK;
}
