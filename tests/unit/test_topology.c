/* Sockets, NUMA nodes and GPUs of machines that a fake /sys and a stand-in of NVML describe; which
 * GPUs belong together; and other programs that are asked for their version. */
#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cache_dir.h"
#include "device/gpus.h"
#include "device/place.h"
#include "device/events.h"
#include "device/probe.h"
#include "device/tool.h"
#include "device/topology.h"
#include "exec/cpu_inside.h"

static char root[] = "/tmp/vitrine-topology-XXXXXX";

static void put(const char *name, const char *text, mode_t mode)
{
    char path[512];
    vt_err err = {0};
    snprintf(path, sizeof path, "%s/%s", root, name);
    if (vt_make_folders_above(path, &err) != VT_OK)
        fail_msg("%s", err.message);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    fclose(f);
    assert_int_equal(chmod(path, mode), 0);
}

static int clear(void **state)
{
    char command[64];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s/*", root);
    return system(command);
}

/* ---- parsers ---- */

static void test_cpu_lists(void **state)
{
    (void)state;
    static const struct {
        const char *list;
        int32_t n;
    } row[] = {{"0\n", 1},
               {"0-3,8,10-11\n", 7},
               {"0-31,64-95", 64},
               {"", 0},
               {"\n", 0},
               {"3-1", -1},
               {"0-", -1},
               {"0,,1", -1},
               {"a", -1},
               {"0-3 ", -1},
               {"-3", -1},
               {"99999999999999999999", -1},
               {"0-65535,0-65535", -1}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        if (vt_count_cpus(row[i].list) != row[i].n)
            fail_msg("'%s': %d CPUs", row[i].list, vt_count_cpus(row[i].list));
}

static void test_memory_of_a_node(void **state)
{
    (void)state;
    static const char text[] = "Node 0 MemTotal:       131072 kB\nNode 0 MemFree:   1024 kB\n"
                               "Node 0 SwapMemFree: 7 kB\nNode 0 Odd: 5 pages\nNode 0 None:\n";
    assert_int_equal(vt_node_memory(text, "MemTotal"), 134217728);
    assert_int_equal(vt_node_memory(text, "MemFree"), 1048576);
    assert_int_equal(vt_node_memory(text, "Odd"), -1);
    assert_int_equal(vt_node_memory(text, "None"), -1);
    assert_int_equal(vt_node_memory(text, "Missing"), -1);
    assert_int_equal(vt_node_memory("MemFree: 99999999999999999999 kB", "MemFree"), -1);
    assert_int_equal(vt_node_memory("", "MemFree"), -1);
}

static void test_pci_places(void **state)
{
    (void)state;
    char place[VT_PLACE_SIZE];
    assert_true(vt_pci_place("00000000:19:00.0", place));
    assert_string_equal(place, "0000:19:00.0");
    assert_true(vt_pci_place("00000001:AF:1F.7", place));
    assert_string_equal(place, "0001:af:1f.7");
    static const char *const wrong[] = {"",           "19:00.0",           "0000:19:00",
                                        "-1:19:00.0", "0000:19:00.0/../x", "12345678:19:00.0",
                                        " 0:1:1.1",   "ffffffffffffffffff"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (vt_pci_place(wrong[i], place))
            fail_msg("'%s' became %s", wrong[i], place);
}

static void test_first_number_with_a_dot_is_the_version(void **state)
{
    (void)state;
    char v[32];
    assert_true(vt_tool_version("NVIDIA Nsight Systems version 2024.5.1.113-245134619542v0\n", v,
                                sizeof v));
    assert_string_equal(v, "2024.5.1.113");
    assert_true(vt_tool_version("Copyright (c) 2005-2024 NVIDIA\nBuilt on Thu_Jun__6_02:18:23\n"
                                "Cuda compilation tools, release 12.5, V12.5.82\n",
                                v, sizeof v));
    assert_string_equal(v, "12.5");
    assert_false(vt_tool_version("no number, 7, x1.2, 3.", v, sizeof v));
    assert_false(vt_tool_version("1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1", v, sizeof v));
}

/* ---- /sys ---- */

#define CPU(n, socket) \
    put("sys/devices/system/cpu/cpu" n "/topology/physical_package_id", socket "\n", 0644)
#define NODE(n, file, text) put("sys/devices/system/node/node" n "/" file, text, 0644)
#define PCI(place, file, text) put("sys/bus/pci/devices/" place "/" file, text, 0644)

static void gpu_on_bus(const char *place, const char *node)
{
    char name[128];
    static const char *const file[] = {"vendor", "class", "device"};
    static const char *const text[] = {"0x10de\n", "0x030200\n", "0x2335\n"};
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "sys/bus/pci/devices/%s/%s", place, file[i]);
        put(name, text[i], 0644);
    }
    snprintf(name, sizeof name, "sys/bus/pci/devices/%s/numa_node", place);
    put(name, node, 0644);
}

static void test_two_sockets_with_nodes_and_gpus(void **state)
{
    (void)state;
    static vt_topology t;
    CPU("0", "0");
    CPU("1", "0");
    CPU("2", "1");
    put("sys/devices/system/cpu/cpufreq/boost", "1\n", 0644);
    NODE("1", "cpulist", "2-3\n");
    NODE("1", "distance", "21 10\n");
    NODE("1", "meminfo", "Node 1 MemTotal: 2048 kB\nNode 1 MemFree: 1024 kB\n");
    NODE("0", "cpulist", "0-1\n");
    NODE("0", "distance", "10 21\n");
    NODE("5", "cpulist", "\n"); /* memory alone, and a gap in the numbers */
    gpu_on_bus("0000:41:00.0", "1\n");
    gpu_on_bus("0000:19:00.0", "0\n");
    gpu_on_bus("0000:99:00.0", "-1\n");
    PCI("0000:02:00.0", "vendor", "0x10de\n"); /* a network card of the same vendor */
    PCI("0000:02:00.0", "class", "0x020000\n");
    vt_topology_read(root, &t);
    assert_int_equal(t.n_sockets, 2);
    assert_int_equal(t.n_nodes, 3);
    assert_int_equal(t.node[1].n_cpus, 2);
    assert_string_equal(t.node[1].cpus, "2-3");
    assert_string_equal(t.node[1].distance, "21 10");
    assert_int_equal(t.node[1].memory_bytes, 2 << 20);
    assert_int_equal(t.node[1].free_bytes, 1 << 20);
    assert_int_equal(t.node[0].memory_bytes, -1);
    assert_int_equal(t.node[2].id, 5);
    assert_int_equal(t.node[2].n_cpus, 0);
    assert_int_equal(t.n_gpus, 3);
    assert_string_equal(t.gpu[0].place, "0000:19:00.0");
    assert_int_equal(t.gpu[0].device, 0x2335);
    assert_int_equal(t.gpu[1].node, 1);
    assert_int_equal(t.gpu[2].node, -1);
    assert_int_equal(vt_topology_pci_node(root, "00000000:41:00.0"), 1);
    assert_int_equal(vt_topology_pci_node(root, "nonsense"), -1);
}

/* Places ranks on the machine under `root` and tells "8 9 | 0 1"; "" if they have no place. */
static const char *places(const int32_t *allowed, int32_t n_allowed, int32_t ranks, int32_t threads)
{
    static vt_topology t;
    static char text[256];
    int32_t cpu[64];
    vt_topology_read(root, &t);
    text[0] = '\0';
    if (!vt_place_ranks(&t, allowed, n_allowed, ranks, threads, cpu))
        return text;
    for (int32_t i = 0; i < ranks * threads; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%d",
                 i == 0             ? ""
                 : i % threads == 0 ? " | "
                                    : " ",
                 cpu[i]);
    return text;
}

static void test_ranks_of_a_cpu_are_spread_over_its_nodes(void **state)
{
    (void)state;
    int32_t all[16], some[] = {1, 2, 3, 8, 9, 10, 12};
    for (int32_t i = 0; i < 16; i++)
        all[i] = i;
    NODE("0", "cpulist", "0-3,8-11\n"); /* two threads a core, as Linux numbers them */
    NODE("1", "cpulist", "4-7,12-15\n");
    NODE("2", "cpulist", "\n"); /* memory alone */
    assert_string_equal(places(all, 16, 2, 4), "11 10 9 8 | 15 14 13 12");
    assert_string_equal(places(all, 16, 4, 2), "11 10 | 9 8 | 15 14 | 13 12");
    assert_string_equal(places(all, 16, 3, 3), "11 10 9 | 8 3 2 | 15 14 13");
    assert_string_equal(places(all, 16, 2, 8), "11 10 9 8 3 2 1 0 | 15 14 13 12 7 6 5 4");
    assert_string_equal(places(all, 16, 2, 9), "");
    assert_string_equal(places(all, 16, 3, 5), ""); /* two of them on node 0, which has 8 CPUs */
    assert_string_equal(places(some, 7, 2, 1), "10 | 12");
    assert_string_equal(places(some, 7, 2, 2), ""); /* node 1 has one CPU for this process */
    assert_string_equal(places(some, 6, 2, 1), ""); /* and here none: one node */
}

static void test_threads_of_ranks_keep_their_seats(void **state)
{
    (void)state;
    cpu_set_t own, now;
    int32_t cpu[2] = {-1, -1}, n = 0;
    char list[32];
    assert_int_equal(sched_getaffinity(0, sizeof own, &own), 0);
    for (int32_t c = 0; c < CPU_SETSIZE && n < 2; c++)
        if (CPU_ISSET(c, &own))
            cpu[n++] = c;
    if (n < 2)
        skip(); /* two nodes need two CPUs */
    snprintf(list, sizeof list, "%d\n", cpu[0]);
    NODE("0", "cpulist", list);
    assert_null(cpu_seats(root, 2, 1));
    snprintf(list, sizeof list, "%d\n", cpu[1]);
    NODE("1", "cpulist", list);
    int32_t *seat = cpu_seats(root, 2, 1);
    assert_non_null(seat);
    assert_memory_equal(seat, cpu, sizeof cpu);
    cpu_sit(seat[1]);
    assert_int_equal(sched_getaffinity(0, sizeof now, &now), 0);
    assert_true(CPU_COUNT(&now) == 1 && CPU_ISSET(cpu[1], &now));
    assert_int_equal(sched_setaffinity(0, sizeof own, &own), 0);
    free(seat);
}

static void test_nonsense_in_sys_is_unknown(void **state)
{
    (void)state;
    static vt_topology t;
    static char longest[9000];
    memset(longest, '7', sizeof longest - 1);
    CPU("0", "-1");
    CPU("1", "99999999999999999999");
    CPU("2", "two");
    CPU("x", "0");
    NODE("0", "cpulist", longest);
    NODE("0", "meminfo", longest);
    NODE("0", "distance", longest);
    NODE("1", "cpulist", "0-3;rm\n");
    NODE("1", "distance", "10 \x1b[31m\n");
    NODE("1", "meminfo", "Node 1 MemTotal: -5 kB\n");
    put("sys/devices/system/node/node99999999999/cpulist", "0\n", 0644);
    put("sys/devices/system/node/node/cpulist", "0\n", 0644);
    gpu_on_bus("0000:19:00.0", "99999999999999999999\n");
    PCI("0000:19:00.0", "device", "");
    PCI("not:a:place", "vendor", "0x10de\n");
    vt_topology_read(root, &t);
    assert_int_equal(t.n_sockets, 0);
    assert_int_equal(t.n_nodes, 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(t.node[i].n_cpus, -1);
        assert_int_equal(t.node[i].memory_bytes, -1);
        assert_string_equal(t.node[i].distance, "");
    }
    assert_int_equal(t.n_gpus, 1);
    assert_int_equal(t.gpu[0].node, -1);
    vt_topology_read("/nowhere/at/all", &t);
    assert_int_equal(t.n_nodes + t.n_sockets + t.n_gpus, 0);
}

static void test_a_long_list_of_cpus_is_cut_at_a_comma(void **state)
{
    (void)state;
    static vt_topology t;
    char list[1024] = "0";
    for (int i = 1; i < 200; i++)
        snprintf(list + strlen(list), sizeof list - strlen(list), ",%d", 2 * i);
    NODE("0", "cpulist", list);
    vt_topology_read(root, &t);
    const char *cpus = t.node[0].cpus;
    assert_int_equal(t.node[0].n_cpus, 200);
    assert_true(strlen(cpus) < sizeof t.node[0].cpus);
    assert_string_equal(cpus + strlen(cpus) - 3, "...");
    assert_memory_equal(cpus, list, strlen(cpus) - 3);
    assert_int_equal(list[strlen(cpus) - 3], ',');
}

static void test_gpu_counters_are_allowed_as_the_driver_says(void **state)
{
    (void)state;
    char why[256];
    assert_int_equal(vt_probe_gpu_counters(root, why, sizeof why), VT_ALLOWED_UNKNOWN);
    put("proc/driver/nvidia/params", "Other: 5\nRmProfilingAdminOnly: 0\n", 0644);
    assert_int_equal(vt_probe_gpu_counters(root, why, sizeof why), VT_ALLOWED_YES);
    put("proc/driver/nvidia/params", "RmProfilingAdminOnly: 1\n", 0644);
    put("proc/self/status", "Name:\tx\nCapEff:\t0000000000000000\n", 0644);
    assert_int_equal(vt_probe_gpu_counters(root, why, sizeof why), VT_ALLOWED_NO);
    assert_non_null(strstr(why, "only administrators"));
    put("proc/self/status", "CapEff:\t000001ffffffffff\n", 0644);
    assert_int_equal(vt_probe_gpu_counters(root, why, sizeof why), VT_ALLOWED_YES);
    put("proc/driver/nvidia/params", "RmProfilingAdminOnly: yes\n", 0644);
    assert_int_equal(vt_probe_gpu_counters(root, why, sizeof why), VT_ALLOWED_UNKNOWN);
}

static void test_what_stands_against_a_cpus_events_is_told_apart(void **state)
{
    (void)state;
    char why[256];
    vt_probe_perf_reason(root, ENOENT, why, sizeof why);
    assert_non_null(strstr(why, "no hardware events to a guest"));
    put("proc/sys/kernel/perf_event_paranoid", "4\n", 0644);
    vt_probe_perf_reason(root, EACCES, why, sizeof why);
    assert_non_null(strstr(why, "kernel.perf_event_paranoid is 4, 2 or less is needed"));
    put("proc/sys/kernel/perf_event_paranoid", "2\n", 0644);
    vt_probe_perf_reason(root, EPERM, why, sizeof why);
    assert_non_null(strstr(why, "seccomp"));
    assert_false(vt_probe_cpu_uncore(root, NULL, why, sizeof why));
    assert_non_null(strstr(why, "names no memory controller"));
    vt_probe_cpu_topdown(root, why, sizeof why);
    assert_non_null(strstr(why, "names no counters of a CPU"));
    put("sys/bus/event_source/devices/uncore_imc_3/type", "24\n", 0644);
    put("sys/bus/event_source/devices/cpu_core/type", "4\n", 0644);
    assert_false(vt_probe_cpu_uncore(root, NULL, why, sizeof why));
    assert_non_null(strstr(why, "uncore_imc_3: the kernel names no events of bytes"));
    assert_non_null(strstr(why, "(it is 2)"));
    assert_false(vt_probe_cpu_topdown(root, why, sizeof why));
    assert_string_equal(why, "the kernel names no slots among the events of cpu_core");
}

/* A Sapphire Rapids as its kernel tells of it. */
static void put_cpu(const char *cpuinfo)
{
    put("proc/cpuinfo", cpuinfo, 0644);
    put("sys/bus/event_source/devices/cpu/type", "4\n", 0644);
    put("sys/bus/event_source/devices/cpu/format/event", "config:0-7\n", 0644);
    put("sys/bus/event_source/devices/cpu/format/umask", "config:8-15\n", 0644);
}

static void test_events_of_a_cpu_are_those_that_it_counts(void **state)
{
    static const char spr[] = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\n"
                              "model\t\t: 143\nmodel name\t: Intel(R) Xeon(R)\n\nmodel\t: 1\n";
    vt_counter_kind k[VT_COUNTERS];
    (void)state;
    vt_cpu_events(root, k); /* no such files */
    assert_int_equal(k[VT_COUNT_CYCLES].config, vt_counter_kinds[VT_COUNT_CYCLES].config);
    assert_true(k[VT_COUNT_AMX].type == VT_NO_EVENT && k[VT_COUNT_SLOTS].type == VT_NO_EVENT);
    put_cpu(spr);
    vt_cpu_events(root, k);
    assert_int_equal(k[VT_COUNT_AMX].type, 4);
    assert_int_equal(k[VT_COUNT_AMX].config, 0x2b7); /* EXE.AMX_BUSY */
    assert_true(k[VT_COUNT_SLOTS].type == VT_NO_EVENT);
    put("sys/bus/event_source/devices/cpu/events/slots", "event=0x00,umask=0x4\n", 0644);
    put("sys/bus/event_source/devices/cpu/events/topdown-retiring", "event=0x00,umask=0x80\n",
        0644);
    put("sys/bus/event_source/devices/cpu/events/topdown-be-bound", "event=0x00,umask=0x83\n",
        0644);
    put("sys/bus/event_source/devices/cpu/events/topdown-bad-spec", "edge=7\n", 0644);
    vt_cpu_events(root, k);
    assert_int_equal(k[VT_COUNT_SLOTS].config, 0x400);
    assert_int_equal(k[VT_COUNT_RETIRING].config, 0x8000);
    assert_int_equal(k[VT_COUNT_BACK].config, 0x8300);
    assert_true(k[VT_COUNT_BAD].type == VT_NO_EVENT); /* a term without a format */
    assert_true(k[VT_COUNT_FRONT].type == VT_NO_EVENT);
    assert_string_equal(k[VT_COUNT_SLOTS].name, "slots");
    put_cpu("vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 106\n\n"); /* no AMX */
    vt_cpu_events(root, k);
    assert_true(k[VT_COUNT_AMX].type == VT_NO_EVENT && k[VT_COUNT_SLOTS].type == 4);
    put_cpu("vendor_id\t: AuthenticAMD\ncpu family\t: 6\nmodel\t\t: 143\n\n");
    vt_cpu_events(root, k);
    assert_true(k[VT_COUNT_AMX].type == VT_NO_EVENT);
}

/* ---- memory controllers ---- */

/* Counters that were opened: each is a pipe whose counts are planted. */
static struct {
    uint32_t type;
    uint64_t config;
    int cpu, end;
} counter[8];
static int n_counters, refused_errno;

static int open_planted(uint32_t type, uint64_t config, int cpu)
{
    int end[2];
    if (refused_errno) {
        errno = refused_errno;
        return -1;
    }
    assert_true(n_counters < 8);
    assert_int_equal(pipe(end), 0);
    counter[n_counters].type = type;
    counter[n_counters].config = config;
    counter[n_counters].cpu = cpu;
    counter[n_counters++].end = end[1];
    return end[0];
}

static void plant_counts(void)
{
    for (int i = 0; i < n_counters; i++) {
        uint64_t count = (uint64_t)(1000 * (i + 1));
        assert_int_equal(write(counter[i].end, &count, sizeof count), sizeof count);
    }
}

static void put_controller(const char *name, const char *type, const char *reads)
{
    static const char *const file[][2] = {{"cpumask", "0,32\n"},
                                          {"format/event", "config:0-7\n"},
                                          {"format/umask", "config:8-15\n"},
                                          {"format/fast", "config:63\n"},
                                          {"events/cas_count_read.scale", "6.103515625e-5\n"},
                                          {"events/cas_count_read.unit", "MiB\n"},
                                          {"events/cas_count_write", "event=0x05,umask=0x0c\n"},
                                          {"events/cas_count_write.scale", "6.103515625e-5\n"},
                                          {"events/cas_count_write.unit", "MiB\n"}};
    char path[256];
    snprintf(path, sizeof path, "sys/bus/event_source/devices/%s/type", name);
    put(path, type, 0644);
    snprintf(path, sizeof path, "sys/bus/event_source/devices/%s/events/cas_count_read", name);
    put(path, reads, 0644);
    for (size_t i = 0; i < sizeof file / sizeof *file; i++) {
        snprintf(path, sizeof path, "sys/bus/event_source/devices/%s/%s", name, file[i][0]);
        put(path, file[i][1], 0644);
    }
}

static void forget_counters(void)
{
    for (int i = 0; i < n_counters; i++)
        close(counter[i].end);
    n_counters = 0;
}

/* Two sockets share a controller's description: one counter on each of the CPUs 0 and 32. */
static void test_memory_controllers_are_read_by_the_events_that_the_kernel_names(void **state)
{
    vt_uncore u;
    char why[320];
    int64_t in = 0, out = 0;
    (void)state;
    put_controller("uncore_imc_3", "24\n", "event=0x04,umask=0x03,fast\n");
    put_controller("uncore_imc_free_running_0", "77\n", "event=0xff\n"); /* the same bytes again */
    vt_uncore_open(root, open_planted, &u);
    assert_int_equal(u.n, 4);
    assert_int_equal(u.n_controllers, 2);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(counter[i].type, 24);
        assert_int_equal(counter[i].cpu, i % 2 ? 32 : 0);
        assert_true(counter[i].config == (i < 2 ? 0x8000000000000304u : 0x0c05u));
    }
    plant_counts();
    assert_true(vt_uncore_read(&u, &in, &out)); /* a count is 64 bytes: 2^-14 MiB */
    assert_int_equal(in, 64 * 3000);
    assert_int_equal(out, 64 * 7000);
    vt_uncore_close(&u);
    forget_counters();
    assert_true(vt_probe_cpu_uncore(root, open_planted, why, sizeof why));
    assert_non_null(strstr(why, "2 memory controllers"));
    forget_counters();
}

static void test_memory_controllers_that_cannot_be_read_say_why(void **state)
{
    static const struct {
        const char *reads, *why;
    } broken[] = {{"event=0x104,umask=0x03\n", "is not an event of the form that is known"},
                  {"event=0x04,edge=1\n", "is not an event of the form that is known"},
                  {"\n", "is not an event of the form that is known"}};
    vt_uncore u;
    char why[320];
    int64_t in, out;
    (void)state;
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        put_controller("uncore_imc_3", "24\n", broken[i].reads);
        vt_uncore_open(root, open_planted, &u);
        assert_int_equal(u.n, 0);
        assert_non_null(strstr(u.why, broken[i].why));
        forget_counters();
    }
    put_controller("uncore_imc_3", "24\n", "event=0x04,umask=0x03\n");
    put("sys/bus/event_source/devices/uncore_imc_3/cpumask", "0;1\n", 0644);
    vt_uncore_open(root, open_planted, &u);
    assert_non_null(strstr(u.why, "its list of CPUs is 0;1"));
    assert_false(vt_uncore_read(&u, &in, &out));
    forget_counters();
    put("sys/bus/event_source/devices/uncore_imc_3/cpumask", "0\n", 0644);
    put("sys/bus/event_source/devices/uncore_imc_3/events/cas_count_read.unit", "Joules\n", 0644);
    vt_uncore_open(root, open_planted, &u);
    assert_non_null(strstr(u.why, "the unit of cas_count_read is not MiB"));
    put("sys/bus/event_source/devices/uncore_imc_3/events/cas_count_read.unit", "MiB\n", 0644);
    refused_errno = EACCES;
    assert_false(vt_probe_cpu_uncore(root, open_planted, why, sizeof why));
    assert_non_null(
        strstr(why, "uncore_imc_3: Permission denied; it counts for the whole machine"));
    refused_errno = 0;
}

/* ---- NVML ---- */

/* Two boards of four GPUs, three of them in pairs with 12 links. */
static const char seven[] = "X NV12 PXB PXB SYS SYS SYS\nNV12 X PXB PXB SYS SYS SYS\n"
                            "PXB PXB X NV12 SYS SYS SYS\nPXB PXB NV12 X SYS SYS SYS\n"
                            "SYS SYS SYS SYS X PXB PXB\nSYS SYS SYS SYS PXB X NV12\n"
                            "SYS SYS SYS SYS PXB NV12 X\n";

static int open_nvml(void **state)
{
    char path[1024], file[1100];
    (void)state;
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n <= 0 || !mkdtemp(root))
        return 1;
    path[n] = 0;
    *strrchr(path, '/') = 0;
    snprintf(file, sizeof file, "%s/../emulator/libnvidia-ml.so.1", path);
    if (dlopen(file, RTLD_NOW | RTLD_LOCAL))
        return 0;
    fprintf(stderr, "%s (make emulator)\n", dlerror());
    return 1;
}

static int remove_root(void **state)
{
    clear(state);
    return rmdir(root);
}

static void read_gpus(vt_gpus *g, const char *links, const char *users)
{
    setenv("EMULATED_LINKS", links, 1);
    setenv("EMULATED_USERS", users, 1);
    vt_gpus_read(root, g);
    unsetenv("EMULATED_LINKS");
    unsetenv("EMULATED_USERS");
}

static void test_links_are_those_of_the_matrix(void **state)
{
    (void)state;
    static vt_gpus g;
    char text[512] = "", name[16];
    gpu_on_bus("0000:05:00.0", "1\n");
    read_gpus(&g, seven, "");
    assert_int_equal(g.n, 7);
    assert_int_equal(vt_gpus_counted(&g), g.n_usable ? g.n_usable : 7);
    for (int i = 0; i < 7; i++)
        for (int k = 0; k < 7; k++) {
            vt_link_name(g.link[i][k], name);
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", name,
                     k < 6 ? " " : "\n");
        }
    assert_string_equal(text, seven);
    assert_string_equal(g.gpu[4].place, "0000:05:00.0");
    assert_int_equal(g.gpu[4].node, 1);
    assert_int_equal(g.gpu[3].node, -1);
    assert_int_equal(g.gpu[0].pcie_gen, 4);
    assert_string_equal(g.driver, "999.01");
    assert_string_equal(g.why, "");
}

static void test_links_by_switches_join_all_pairs(void **state)
{
    (void)state;
    static vt_gpus g;
    read_gpus(&g, "X NS18 NS18\nNS18 X NS18\nNS17 NS17 X\n", "");
    assert_int_equal(g.link[0][1].kind, VT_LINK_NV);
    assert_int_equal(g.link[0][1].n, 18);
    assert_int_equal(g.link[0][2].n, 17); /* the lesser of both */
    assert_int_equal(g.link[2][1].n, 17);
}

static void test_users_of_a_gpu(void **state)
{
    (void)state;
    static vt_gpus g;
    char users[2048];
    snprintf(users, sizeof users,
             "1 41 1073741824 first;1 42 5368709120 second;0 %d 1024 this_test;0 43 "
             "18446744073709551615 shy",
             (int)getpid());
    read_gpus(&g, "X PHB\nPHB X\n", users);
    assert_int_equal(g.gpu[1].n_users, 2);
    assert_int_equal(g.gpu[1].user[0].pid, 42); /* the larger one first */
    assert_string_equal(g.gpu[1].user[0].name, "second");
    assert_int_equal(g.gpu[1].user[0].bytes, 5368709120);
    assert_int_equal(g.gpu[1].free_bytes, ((int64_t)80 << 30) - ((int64_t)6 << 30));
    assert_int_equal(g.gpu[0].n_users, 1); /* without this process */
    assert_int_equal(g.gpu[0].user[0].bytes, -1);
    users[0] = '\0';
    for (int i = 0; i < 70; i++)
        snprintf(users + strlen(users), sizeof users - strlen(users), "0 %d 1 p;", 100 + i);
    read_gpus(&g, "X\n", users);
    assert_int_equal(g.gpu[0].n_users, -1); /* more than are asked for */
}

static void test_wild_answers_leave_values_unknown(void **state)
{
    (void)state;
    static vt_gpus g;
    read_gpus(&g, "wild", "");
    assert_int_equal(g.n, VT_MAX_GPUS);
    assert_int_equal(g.n_left_out, 3);
    for (int i = 0; i < g.n; i++) {
        assert_null(strchr(g.gpu[i].name, 0x1b));
        assert_string_equal(g.gpu[i].place, "");
        assert_int_equal(g.gpu[i].memory_bytes, -1);
        assert_int_equal(g.gpu[i].free_bytes, -1);
        assert_int_equal(g.gpu[i].n_users, -1);
        assert_int_equal(g.gpu[i].pcie_gen, -1);
        assert_int_equal(g.gpu[i].pcie_width, -1);
    }
}

/* ---- groups ---- */

static void check_group(const vt_gpu_group *g, int32_t n, const int32_t *member, vt_link_kind worst)
{
    assert_int_equal(g->n, n);
    assert_int_equal(g->worst.kind, worst);
    for (int32_t i = 0; i < n; i++)
        assert_int_equal(g->member[i], member[i]);
}

static void test_groups_prefer_fast_links_and_do_not_overlap(void **state)
{
    (void)state;
    static vt_gpus g;
    vt_gpu_group group[VT_MAX_GPU_GROUPS];
    int32_t island[VT_MAX_GPUS];
    read_gpus(&g, seven, "");
    g.n_usable = 0;
    assert_int_equal(vt_gpu_groups(&g, 2, group), 3);
    check_group(&group[0], 2, (const int32_t[]){0, 1}, VT_LINK_NV);
    check_group(&group[1], 2, (const int32_t[]){2, 3}, VT_LINK_NV);
    check_group(&group[2], 2, (const int32_t[]){5, 6}, VT_LINK_NV);
    assert_int_equal(vt_gpu_groups(&g, 4, group), 1);
    check_group(&group[0], 4, (const int32_t[]){0, 1, 2, 3}, VT_LINK_PXB);
    assert_int_equal(vt_gpu_groups(&g, 8, group), 0);
    assert_int_equal(vt_gpu_islands(&g, island), 2);
    assert_int_equal(island[3], island[0]);
    assert_int_equal(island[4], island[6]);
    assert_int_not_equal(island[0], island[4]);
}

/* Returns what is said of ranks on these GPUs of the seven; "" if nothing is. */
static const char *advice(const vt_gpus *g, const int32_t *ordinal, int32_t n)
{
    static char text[512];
    vt_buf b = {0};
    vt_gpu_advise(g, ordinal, n, &b);
    snprintf(text, sizeof text, "%s", b.data ? b.data : "");
    vt_buf_release(&b);
    return text;
}

static void test_ranks_on_worse_links_are_told_of_better_ones(void **state)
{
    (void)state;
    static vt_gpus g;
    read_gpus(&g, seven, "");
    g.n_usable = 7;
    assert_string_equal(advice(&g, (const int32_t[]){5, 6}, 2), "");
    assert_string_equal(advice(&g, (const int32_t[]){0, 1, 2, 3}, 4), "");
    assert_string_equal(advice(&g, (const int32_t[]){1, 1}, 2), "");
    assert_string_equal(advice(&g, (const int32_t[]){1, 9}, 2), "");
    assert_string_equal(advice(&g, (const int32_t[]){5, 1}, 2),
                        "GPUs 5,1 have a link SYS, PCIe and the interconnect between sockets (NUMA "
                        "nodes); better linked are (0,1) by NV12, (2,3) by NV12, (5,6) by NV12 "
                        "(vitrine env)");
    assert_non_null(strstr(advice(&g, (const int32_t[]){0, 2}, 2), "have a link PXB"));
    assert_non_null(strstr(advice(&g, (const int32_t[]){2, 3, 4, 5}, 4), "are (0,1,2,3) by PXB"));
    g.n_usable = 3; /* the others are hidden from this process */
    assert_non_null(strstr(advice(&g, (const int32_t[]){1, 2}, 2), "are (0,1) by NV12 ("));
    memset(g.link, 0, sizeof g.link);
    assert_string_equal(advice(&g, (const int32_t[]){1, 2}, 2), "");
}

static void test_groups_of_equal_links_stay_on_a_node(void **state)
{
    (void)state;
    static vt_gpus g;
    vt_gpu_group group[VT_MAX_GPU_GROUPS];
    int32_t island[VT_MAX_GPUS];
    memset(&g, 0, sizeof g);
    g.n = g.n_usable = 8;
    for (int i = 0; i < 8; i++) {
        g.gpu[i].node = i % 2;
        for (int k = 0; k < 8; k++)
            g.link[i][k] = i == k ? (vt_link){VT_LINK_SELF, 0} : (vt_link){VT_LINK_NV, 18};
    }
    assert_int_equal(vt_gpu_groups(&g, 4, group), 2);
    check_group(&group[0], 4, (const int32_t[]){0, 2, 4, 6}, VT_LINK_NV);
    check_group(&group[1], 4, (const int32_t[]){1, 3, 5, 7}, VT_LINK_NV);
    assert_true(group[0].one_node);
    assert_int_equal(vt_gpu_groups(&g, 8, group), 1);
    assert_false(group[0].one_node);
    assert_int_equal(vt_gpu_islands(&g, island), 1);
}

static void test_groups_without_known_links_are_not_made_up(void **state)
{
    (void)state;
    static vt_gpus g;
    vt_gpu_group group[VT_MAX_GPU_GROUPS];
    int32_t island[VT_MAX_GPUS];
    memset(&g, 0, sizeof g);
    g.n = 4;
    assert_int_equal(vt_gpu_groups(&g, 2, group), 0);
    assert_int_equal(vt_gpu_islands(&g, island), 1);
    g.n = 0;
    assert_int_equal(vt_gpu_groups(&g, 2, group), 0);
    assert_int_equal(vt_gpu_islands(&g, island), 0);
    g.n = 1;
    assert_int_equal(vt_gpu_groups(&g, 1, group), 0);
}

/* ---- other programs ---- */

static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void look(const char *name, int32_t limit_ms, vt_tool *t)
{
    char path[600], *old = strdup(getenv("PATH"));
    snprintf(path, sizeof path, "relative:%s/empty::%s/bin:%s", root, root, old);
    setenv("PATH", path, 1);
    vt_tool_look(name, limit_ms, t);
    setenv("PATH", old, 1);
    free(old);
}

static void test_a_tool_is_found_and_asked(void **state)
{
    (void)state;
    vt_tool t;
    char path[600];
    put("bin/vt-good", "#!/bin/sh\necho \"$1 of a tool: 2024.5.1\"\necho noise >&2\n", 0755);
    look("vt-good", 20000, &t);
    snprintf(path, sizeof path, "%s/bin/vt-good", root);
    assert_true(t.found && t.runs);
    assert_string_equal(t.path, path);
    assert_string_equal(t.version, "2024.5.1");
    assert_string_equal(t.why, "");
}

static void test_a_tool_that_does_not_work_says_why(void **state)
{
    (void)state;
    static const struct {
        const char *name, *text, *why;
        mode_t mode;
        bool found;
    } row[] = {
        {"vt-none", NULL, "was not found", 0, false},
        {"vt-plain", "#!/bin/sh\necho 1.2\n", "was not found", 0644, false},
        {"vt-fails", "#!/bin/sh\necho 1.2\nexit 3\n", "ended with status 3", 0755, true},
        {"vt-dies", "#!/bin/sh\nkill -SEGV $$\n", "died of signal 11", 0755, true},
        {"vt-mute", "#!/bin/sh\nexit 0\n", "tells no version", 0755, true},
        {"vt-broken", "#!/nowhere/sh\n", "does not start", 0755, true},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        vt_tool t;
        char name[64];
        snprintf(name, sizeof name, "bin/%s", row[i].name);
        if (row[i].text)
            put(name, row[i].text, row[i].mode);
        look(row[i].name, 20000, &t);
        if (t.found != row[i].found || t.runs || !strstr(t.why, row[i].why))
            fail_msg("%s: found %d, runs %d: %s", row[i].name, t.found, t.runs, t.why);
    }
}

/* Returns true if the process exists and is no zombie. */
static bool is_alive(int pid)
{
    char path[64], text[256] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *f = fopen(path, "r");
    if (!f)
        return false;
    char *line = fgets(text, sizeof text, f);
    fclose(f);
    const char *state = line ? strrchr(text, ')') : NULL;
    return state && state[1] && state[2] != 'Z' && state[2] != 'X';
}

static void test_a_tool_that_hangs_is_ended_with_its_children(void **state)
{
    (void)state;
    vt_tool t;
    char script[512], file[256];
    int pid = 0;
    snprintf(file, sizeof file, "%s/child", root);
    snprintf(script, sizeof script, "#!/bin/sh\necho 1.2\nsleep 100000 &\necho $! > %s\nwait\n",
             file);
    put("bin/vt-hangs", script, 0755);
    look("vt-hangs", 2000, &t);
    assert_true(t.found && !t.runs);
    assert_non_null(strstr(t.why, "did not end within 2000 ms"));
    FILE *f = fopen(file, "r");
    if (!f || fscanf(f, "%d", &pid) != 1)
        pid = 0;
    if (f)
        fclose(f);
    if (pid == 0)
        skip(); /* the machine was too slow for the script to begin */
    for (double until = seconds_now() + 900; is_alive(pid) && seconds_now() < until;)
        usleep(10000);
    assert_false(is_alive(pid));
}

static void test_a_tool_that_floods_is_read_to_its_end(void **state)
{
    (void)state;
    vt_err err = {0};
    char text[16], path[600];
    put("bin/vt-flood",
        "#!/bin/sh\ni=0; while [ $i -lt 3000 ]; do echo "
        "0123456789012345678901234567890123456789; i=$((i+1)); done\n",
        0755);
    snprintf(path, sizeof path, "%s/bin/vt-flood", root);
    const char *const argv[] = {path, NULL};
    assert_int_equal(vt_tool_output(argv, 60000, text, sizeof text, &err), VT_OK);
    assert_string_equal(text, "012345678901234");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cpu_lists),
        cmocka_unit_test(test_memory_of_a_node),
        cmocka_unit_test(test_pci_places),
        cmocka_unit_test(test_first_number_with_a_dot_is_the_version),
        cmocka_unit_test_teardown(test_two_sockets_with_nodes_and_gpus, clear),
        cmocka_unit_test_teardown(test_ranks_of_a_cpu_are_spread_over_its_nodes, clear),
        cmocka_unit_test_teardown(test_threads_of_ranks_keep_their_seats, clear),
        cmocka_unit_test_teardown(test_nonsense_in_sys_is_unknown, clear),
        cmocka_unit_test_teardown(test_a_long_list_of_cpus_is_cut_at_a_comma, clear),
        cmocka_unit_test_teardown(test_gpu_counters_are_allowed_as_the_driver_says, clear),
        cmocka_unit_test_teardown(test_what_stands_against_a_cpus_events_is_told_apart, clear),
        cmocka_unit_test_teardown(test_events_of_a_cpu_are_those_that_it_counts, clear),
        cmocka_unit_test_teardown(
            test_memory_controllers_are_read_by_the_events_that_the_kernel_names, clear),
        cmocka_unit_test_teardown(test_memory_controllers_that_cannot_be_read_say_why, clear),
        cmocka_unit_test_teardown(test_links_are_those_of_the_matrix, clear),
        cmocka_unit_test(test_links_by_switches_join_all_pairs),
        cmocka_unit_test(test_users_of_a_gpu),
        cmocka_unit_test(test_wild_answers_leave_values_unknown),
        cmocka_unit_test(test_groups_prefer_fast_links_and_do_not_overlap),
        cmocka_unit_test(test_ranks_on_worse_links_are_told_of_better_ones),
        cmocka_unit_test(test_groups_of_equal_links_stay_on_a_node),
        cmocka_unit_test(test_groups_without_known_links_are_not_made_up),
        cmocka_unit_test_teardown(test_a_tool_is_found_and_asked, clear),
        cmocka_unit_test_teardown(test_a_tool_that_does_not_work_says_why, clear),
        cmocka_unit_test_teardown(test_a_tool_that_hangs_is_ended_with_its_children, clear),
        cmocka_unit_test_teardown(test_a_tool_that_floods_is_read_to_its_end, clear),
    };
    return cmocka_run_group_tests(tests, open_nvml, remove_root);
}
