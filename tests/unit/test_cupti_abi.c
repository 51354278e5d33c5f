/* Our declarations of CUPTI's structures against NVIDIA's headers, and our metrics against the
 * library itself, where a toolkit is installed. The library's host side needs no GPU: it knows of
 * every chip which counters it has and how many passes they take. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#if __has_include("/usr/local/cuda/include/cupti_range_profiler.h") &&              \
                  __has_include("/usr/local/cuda/include/cupti_profiler_host.h") && \
                                __has_include("/usr/local/cuda/include/cupti_pmsampling.h")
#define HAVE_CUPTI_H 1
#define CU_EVENT_DEFAULT THEIR_EVENT_DEFAULT /* two names that both headers have */
#define CU_STREAM_NON_BLOCKING THEIR_STREAM_NON_BLOCKING
#include <cupti.h>
#include <cupti_pcsampling.h>
#include <cupti_pmsampling.h>
#include <cupti_profiler_host.h> /* includes <string>, which tests/unit/shim has for C */
#include <cupti_range_profiler.h>
#include <cupti_target.h>
#undef CU_EVENT_DEFAULT
#undef CU_STREAM_NON_BLOCKING
#endif

#include "device/cuda/jit.h"
#include "device/cupti/pc.h"
#include "device/cupti/pm.h"
#include "device/cupti/vitals.h"

#ifdef HAVE_CUPTI_H

static const struct {
    const char *name;
    size_t ours, theirs, ours_at, theirs_at;
} structure[] = {
#define ROW(mine, their, last, their_last) \
    {#mine, mine##_BYTES, their##_STRUCT_SIZE, offsetof(mine, last), offsetof(their, their_last)},
    CUPTI_STRUCTURES(ROW)
#undef ROW
#define ROW(mine, their, last, their_last)                                                       \
    {#mine, mine##_BYTES, CUPTI_PCSAMPLING_STRUCT_SIZE(their, their_last), offsetof(mine, last), \
     offsetof(their, their_last)},
        CUPTI_PC_STRUCTURES(ROW)
#undef ROW
};

static void test_abi_when_cupti_h_is_there_then_sizes_and_last_members_agree(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof structure / sizeof *structure; i++) {
        if (structure[i].ours != structure[i].theirs)
            fail_msg("%s: %zu bytes, NVIDIA's header says %zu", structure[i].name,
                     structure[i].ours, structure[i].theirs);
        assert_int_equal(structure[i].ours_at, structure[i].theirs_at);
    }
}

#define SAME(mine, member, their, their_member)                                            \
    do {                                                                                   \
        assert_int_equal(offsetof(mine, member), offsetof(their, their_member));           \
        assert_int_equal(sizeof(((mine *)0)->member), sizeof(((their *)0)->their_member)); \
    } while (0)

static void check_pm_members(void)
{
    SAME(cupti_pm_availability, device, CUpti_PmSampling_GetCounterAvailability_Params,
         deviceIndex);
    SAME(cupti_pm_enable, device, CUpti_PmSampling_Enable_Params, deviceIndex);
    SAME(cupti_pm_call, pm, CUpti_PmSampling_Disable_Params, pPmSamplingObject);
    SAME(cupti_pm_call, pm, CUpti_PmSampling_Stop_Params, pPmSamplingObject);
    SAME(cupti_pm_config, config, CUpti_PmSampling_SetConfig_Params, pConfig);
    SAME(cupti_pm_config, buffer_bytes, CUpti_PmSampling_SetConfig_Params, hardwareBufferSize);
    SAME(cupti_pm_config, interval, CUpti_PmSampling_SetConfig_Params, samplingInterval);
    SAME(cupti_pm_config, trigger, CUpti_PmSampling_SetConfig_Params, triggerMode);
    SAME(cupti_pm_bytes, metric, CUpti_PmSampling_GetCounterDataSize_Params, pMetricNames);
    SAME(cupti_pm_bytes, most_samples, CUpti_PmSampling_GetCounterDataSize_Params, maxSamples);
    SAME(cupti_pm_image, bytes, CUpti_PmSampling_CounterDataImage_Initialize_Params,
         counterDataSize);
    SAME(cupti_pm_decode, image, CUpti_PmSampling_DecodeData_Params, pCounterDataImage);
    SAME(cupti_pm_decode, stopped, CUpti_PmSampling_DecodeData_Params, decodeStopReason);
    SAME(cupti_pm_info, total, CUpti_PmSampling_GetCounterDataInfo_Params, numTotalSamples);
    SAME(cupti_pm_info, completed, CUpti_PmSampling_GetCounterDataInfo_Params, numCompletedSamples);
    SAME(cupti_pm_sample, index, CUpti_PmSampling_CounterData_GetSampleInfo_Params, sampleIndex);
    SAME(cupti_pm_sample, begin_ns, CUpti_PmSampling_CounterData_GetSampleInfo_Params,
         startTimestamp);
    assert_int_equal(CUPTI_TYPE_PM, CUPTI_PROFILER_TYPE_PM_SAMPLING);
    assert_int_equal(CUPTI_PM_BY_CYCLES, CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_SYSCLK_INTERVAL);
    assert_int_equal(CUPTI_PM_BY_TIME, CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_TIME_INTERVAL);
    assert_int_equal(CUPTI_PM_KEEP_OLDEST,
                     CUPTI_PM_SAMPLING_HARDWARE_BUFFER_APPEND_MODE_KEEP_OLDEST);
    assert_int_equal(CUPTI_PM_KEEP_LATEST,
                     CUPTI_PM_SAMPLING_HARDWARE_BUFFER_APPEND_MODE_KEEP_LATEST);
    assert_int_equal(CUPTI_PM_IMAGE_FULL, CUPTI_PM_SAMPLING_DECODE_STOP_REASON_COUNTER_DATA_FULL);
}

static void check_activity_members(void)
{
    SAME(cupti_record, kind, CUpti_Activity, kind);
    SAME(cupti_record_kernel, registers, CUpti_ActivityKernel10, registersPerThread);
    SAME(cupti_record_kernel, begin_ns, CUpti_ActivityKernel10, start);
    SAME(cupti_record_kernel, end_ns, CUpti_ActivityKernel10, end);
    SAME(cupti_record_kernel, correlation, CUpti_ActivityKernel10, correlationId);
    SAME(cupti_record_kernel, name, CUpti_ActivityKernel10, name);
    SAME(cupti_record_kernel, node, CUpti_ActivityKernel10, graphNodeId);
    SAME(cupti_record_kernel, begin_ns, CUpti_ActivityKernel8, start); /* CUDA 12.0's */
    SAME(cupti_record_kernel, correlation, CUpti_ActivityKernel8, correlationId);
    SAME(cupti_record_kernel, name, CUpti_ActivityKernel8, name);
    SAME(cupti_record_kernel, node, CUpti_ActivityKernel8, graphNodeId);
    SAME(cupti_record_kernel, node, CUpti_ActivityKernel9, graphNodeId);
    SAME(cupti_record_copy, bytes, CUpti_ActivityMemcpy6, bytes);
    SAME(cupti_record_copy, begin_ns, CUpti_ActivityMemcpy6, start);
    SAME(cupti_record_copy, end_ns, CUpti_ActivityMemcpy6, end);
    SAME(cupti_record_copy, correlation, CUpti_ActivityMemcpy6, correlationId);
    SAME(cupti_record_copy, node, CUpti_ActivityMemcpy6, graphNodeId);
    SAME(cupti_record_copy, node, CUpti_ActivityMemcpy5, graphNodeId);
    SAME(cupti_record_fill, bytes, CUpti_ActivityMemset4, bytes);
    SAME(cupti_record_fill, begin_ns, CUpti_ActivityMemset4, start);
    SAME(cupti_record_fill, end_ns, CUpti_ActivityMemset4, end);
    SAME(cupti_record_fill, correlation, CUpti_ActivityMemset4, correlationId);
    SAME(cupti_record_fill, node, CUpti_ActivityMemset4, graphNodeId);
    SAME(cupti_record_outside, whose, CUpti_ActivityExternalCorrelation, externalKind);
    SAME(cupti_record_outside, id, CUpti_ActivityExternalCorrelation, externalId);
    SAME(cupti_record_outside, correlation, CUpti_ActivityExternalCorrelation, correlationId);
    SAME(cupti_resource, descriptor, CUpti_ResourceData, resourceDescriptor);
    SAME(cupti_graph_data, node, CUpti_GraphData, node);
    SAME(cupti_graph_data, from_node, CUpti_GraphData, originalNode);
    assert_int_equal(CUPTI_RECORD_COPY, CUPTI_ACTIVITY_KIND_MEMCPY);
    assert_int_equal(CUPTI_RECORD_FILL, CUPTI_ACTIVITY_KIND_MEMSET);
    assert_int_equal(CUPTI_RECORD_CALL, CUPTI_ACTIVITY_KIND_DRIVER);
    assert_int_equal(CUPTI_RECORD_KERNEL, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    assert_int_equal(CUPTI_RECORD_OUTSIDE, CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION);
    assert_int_equal(CUPTI_OUTSIDE_CUSTOM, CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0);
    assert_int_equal(CUPTI_ERROR_NO_MORE, CUPTI_ERROR_MAX_LIMIT_REACHED);
    assert_int_equal(CUPTI_DOMAIN_RESOURCE, CUPTI_CB_DOMAIN_RESOURCE);
    assert_int_equal(CUPTI_NODE_CREATED, CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED);
    assert_int_equal(CUPTI_NODE_ENDS, CUPTI_CBID_RESOURCE_GRAPHNODE_DESTROY_STARTING);
    assert_int_equal(CUPTI_NODE_CLONED, CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED);
}

static void check_pc_members(void)
{
    SAME(cupti_pc_call, context, CUpti_PCSamplingDisableParams, ctx);
    SAME(cupti_pc_reasons, index, CUpti_PCSamplingGetStallReasonsParams, stallReasonIndex);
    SAME(cupti_pc_attribute, status, CUpti_PCSamplingConfigurationInfo, attributeStatus);
    SAME(cupti_pc_config, n, CUpti_PCSamplingConfigurationInfoParams, numAttributes);
    SAME(cupti_pc_record, cubin_crc, CUpti_PCSamplingPCData, cubinCrc);
    SAME(cupti_pc_record, pc, CUpti_PCSamplingPCData, pcOffset);
    SAME(cupti_pc_record, function, CUpti_PCSamplingPCData, functionName);
    SAME(cupti_pc_record, n, CUpti_PCSamplingPCData, stallReasonCount);
    SAME(cupti_pc_record, reason, CUpti_PCSamplingPCData, stallReason);
    SAME(cupti_pc_data, room, CUpti_PCSamplingData, collectNumPcs);
    SAME(cupti_pc_data, samples, CUpti_PCSamplingData, totalSamples);
    SAME(cupti_pc_data, dropped, CUpti_PCSamplingData, droppedSamples);
    SAME(cupti_pc_data, n, CUpti_PCSamplingData, totalNumPcs);
    SAME(cupti_pc_data, left, CUpti_PCSamplingData, remainingNumPcs);
    SAME(cupti_pc_data, record, CUpti_PCSamplingData, pPcData);
    SAME(cupti_pc_data, not_user, CUpti_PCSamplingData, nonUsrKernelsTotalSamples);
    SAME(cupti_pc_line, function, CUpti_GetSassToSourceCorrelationParams, functionName);
    SAME(cupti_pc_line, cubin_bytes, CUpti_GetSassToSourceCorrelationParams, cubinSize);
    SAME(cupti_pc_line, line, CUpti_GetSassToSourceCorrelationParams, lineNumber);
    SAME(cupti_pc_line, pc, CUpti_GetSassToSourceCorrelationParams, pcOffset);
    SAME(cupti_pc_line, file, CUpti_GetSassToSourceCorrelationParams, fileName);
    assert_int_equal(sizeof(cupti_pc_record), sizeof(CUpti_PCSamplingPCData));
    assert_int_equal(sizeof(cupti_pc_data), sizeof(CUpti_PCSamplingData));
    assert_int_equal(sizeof(cupti_pc_attribute), sizeof(CUpti_PCSamplingConfigurationInfo));
    assert_int_equal(CUPTI_PC_PERIOD, CUPTI_PC_SAMPLING_CONFIGURATION_ATTR_TYPE_SAMPLING_PERIOD);
    assert_int_equal(CUPTI_PC_MODE, CUPTI_PC_SAMPLING_CONFIGURATION_ATTR_TYPE_COLLECTION_MODE);
    assert_int_equal(CUPTI_PC_DATA, CUPTI_PC_SAMPLING_CONFIGURATION_ATTR_TYPE_SAMPLING_DATA_BUFFER);
    assert_int_equal(CUPTI_PC_CONTINUOUS, CUPTI_PC_SAMPLING_COLLECTION_MODE_CONTINUOUS);
    assert_int_equal(CUPTI_PC_NAME_BYTES, CUPTI_STALL_REASON_STRING_SIZE);
}

/* The members in the middle of the structures that have several of different sizes. */
static void test_abi_when_cupti_h_is_there_then_members_agree(void **state)
{
    (void)state;
    SAME(cupti_device_supported, device, CUpti_Profiler_DeviceSupported_Params, cuDevice);
    SAME(cupti_device_supported, supported, CUpti_Profiler_DeviceSupported_Params, isSupported);
    SAME(cupti_device_supported, architecture, CUpti_Profiler_DeviceSupported_Params, architecture);
    SAME(cupti_device_supported, sli, CUpti_Profiler_DeviceSupported_Params, sli);
    SAME(cupti_device_supported, vgpu, CUpti_Profiler_DeviceSupported_Params, vGpu);
    SAME(cupti_device_supported, confidential, CUpti_Profiler_DeviceSupported_Params,
         confidentialCompute);
    SAME(cupti_device_supported, cmp, CUpti_Profiler_DeviceSupported_Params, cmp);
    SAME(cupti_device_supported, wsl, CUpti_Profiler_DeviceSupported_Params, wsl);
    SAME(cupti_availability, image_bytes, CUpti_Profiler_GetCounterAvailability_Params,
         counterAvailabilityImageSize);
    SAME(cupti_host_new, type, CUpti_Profiler_Host_Initialize_Params, profilerType);
    SAME(cupti_host_new, chip, CUpti_Profiler_Host_Initialize_Params, pChipName);
    SAME(cupti_host_new, availability, CUpti_Profiler_Host_Initialize_Params,
         pCounterAvailabilityImage);
    SAME(cupti_host_add, metric, CUpti_Profiler_Host_ConfigAddMetrics_Params, ppMetricNames);
    SAME(cupti_config, bytes, CUpti_Profiler_Host_GetConfigImage_Params, configImageSize);
    SAME(cupti_passes, image, CUpti_Profiler_Host_GetNumOfPasses_Params, pConfigImage);
    SAME(cupti_evaluate, data, CUpti_Profiler_Host_EvaluateToGpuValues_Params, pCounterDataImage);
    SAME(cupti_evaluate, range, CUpti_Profiler_Host_EvaluateToGpuValues_Params, rangeIndex);
    SAME(cupti_evaluate, metric, CUpti_Profiler_Host_EvaluateToGpuValues_Params, ppMetricNames);
    SAME(cupti_evaluate, n, CUpti_Profiler_Host_EvaluateToGpuValues_Params, numMetrics);
    SAME(cupti_ranges_bytes, metric, CUpti_RangeProfiler_GetCounterDataSize_Params, pMetricNames);
    SAME(cupti_ranges_bytes, most_ranges, CUpti_RangeProfiler_GetCounterDataSize_Params,
         maxNumOfRanges);
    SAME(cupti_ranges_bytes, most_nodes, CUpti_RangeProfiler_GetCounterDataSize_Params,
         maxNumRangeTreeNodes);
    SAME(cupti_ranges_config, config, CUpti_RangeProfiler_SetConfig_Params, pConfig);
    SAME(cupti_ranges_config, image, CUpti_RangeProfiler_SetConfig_Params, pCounterDataImage);
    SAME(cupti_ranges_config, range, CUpti_RangeProfiler_SetConfig_Params, range);
    SAME(cupti_ranges_config, replay, CUpti_RangeProfiler_SetConfig_Params, replayMode);
    SAME(cupti_ranges_config, most_ranges, CUpti_RangeProfiler_SetConfig_Params, maxRangesPerPass);
    SAME(cupti_ranges_config, levels, CUpti_RangeProfiler_SetConfig_Params, numNestingLevels);
    SAME(cupti_ranges_config, least_level, CUpti_RangeProfiler_SetConfig_Params, minNestingLevel);
    SAME(cupti_ranges_config, pass, CUpti_RangeProfiler_SetConfig_Params, passIndex);
    SAME(cupti_range_info, range, CUpti_RangeProfiler_CounterData_GetRangeInfo_Params, rangeIndex);
    SAME(cupti_range_info, delimiter, CUpti_RangeProfiler_CounterData_GetRangeInfo_Params,
         rangeDelimiter);
    check_activity_members();
    check_pm_members();
    check_pc_members();
    assert_int_equal(CUPTI_ERROR_BAD_PARAMETER, CUPTI_ERROR_INVALID_PARAMETER);
    assert_int_equal(CUPTI_ERROR_BAD_OPERATION, CUPTI_ERROR_INVALID_OPERATION);
    assert_int_equal(CUPTI_ERROR_NOT_STARTED, CUPTI_ERROR_NOT_INITIALIZED);
    assert_int_equal(CUPTI_ERROR_UNSUPPORTED, CUPTI_ERROR_NOT_SUPPORTED);
    assert_int_equal(CUPTI_ERROR_PRIVILEGES, CUPTI_ERROR_INSUFFICIENT_PRIVILEGES);
    assert_int_equal(CUPTI_ERROR_SUBSCRIBERS, CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
    assert_int_equal(CUPTI_TYPE_RANGES, CUPTI_PROFILER_TYPE_RANGE_PROFILER);
    assert_int_equal(CUPTI_RANGE_BY_USER, CUPTI_UserRange);
    assert_int_equal(CUPTI_REPLAY_BY_USER, CUPTI_UserReplay);
    assert_int_equal(CUPTI_SUPPORTED, CUPTI_PROFILER_CONFIGURATION_SUPPORTED);
    assert_int_equal(CUPTI_API_RANGES, CUPTI_PROFILER_RANGE_PROFILING);
    assert_int_equal(CUPTI_API_PC_SAMPLING, CUPTI_PROFILER_PC_SAMPLING);
    assert_int_equal(CUPTI_API_PM_SAMPLING, CUPTI_PROFILER_PM_SAMPLING);
}
#else
static void test_abi_when_cupti_h_is_there_then_sizes_and_last_members_agree(void **state)
{
    (void)state;
    skip();
}
static void test_abi_when_cupti_h_is_there_then_members_agree(void **state)
{
    (void)state;
    skip();
}
#endif

/* ---- the library itself, which opens another in a way that no sanitizer can bear ---- */

static bool open_library(vt_cupti *c)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    (void)c;
    return false;
#else
    vt_err err = {0};
    return vt_cupti_open(c, &err) == VT_OK && !c->no_ranges[0];
#endif
}

/* Asks the library for the sets of a chip; false: the library is not there. */
static bool choose(const char *chip, vt_cupti *c, vt_vital_sets *sets)
{
    vt_err err = {0};
    if (!open_library(c))
        return false;
    if (vt_vitals_choose(c, chip, NULL, sets, &err) != VT_OK)
        fail_msg("%s: %s", chip, err.message);
    return true;
}

static void test_library_when_it_is_there_then_hopper_counts_every_vital_in_few_sets(void **state)
{
    vt_cupti c;
    vt_vital_sets sets;
    (void)state;
    if (!choose("GH100", &c, &sets))
        skip();
    for (int i = 0; i < VT_VITALS; i++)
        assert_string_equal(sets.why_not[i], "");
    assert_int_equal(sets.set[0].n, VT_VITAL_STALLED + 1); /* all that matter most in one pass */
    assert_string_equal(sets.set[0].metric[VT_VITAL_L2_HIT],
                        "LTS.TriageCompute.lts__average_t_sector_hit_rate_realtime.pct");
    assert_in_range(sets.n, 2, 12);
    vt_vitals_release(&c, &sets);
}

/* An A100's L2 hit rate takes two passes, and it has no wgmma to wait for. */
static void test_library_when_it_is_there_then_ampere_lacks_the_l2_cache_and_gmma(void **state)
{
    vt_cupti c;
    vt_vital_sets sets;
    (void)state;
    if (!choose("GA100", &c, &sets))
        skip();
    for (int i = 0; i < VT_VITALS; i++)
        if (!!sets.why_not[i][0] != (i == VT_VITAL_L2_HIT || i == VT_VITAL_STALLED + VT_STALL_gmma))
            fail_msg("%s: %s", vt_vitals[i].key, sets.why_not[i]);
    vt_vitals_release(&c, &sets);
}

static void test_library_when_a_chip_is_unknown_then_it_says_so(void **state)
{
    vt_cupti c;
    vt_vital_sets sets;
    vt_err err = {0};
    (void)state;
    if (!open_library(&c))
        skip();
    assert_int_equal(vt_vitals_choose(&c, "GX999", NULL, &sets, &err), VT_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "no counter can be read"));
}

/* Counts the lanes whose first metrics the library gives a chip in one pass, one beside another;
 * *missing gets the last of the others. */
static int32_t count_lanes(const char *chip, vt_pm_lane *missing)
{
    vt_cupti c;
    const char *metric[VT_PM_LANES];
    vt_cupti_config config = {0};
    int32_t n = 0;
    if (!open_library(&c) || c.no_pm[0])
        return -1;
    for (int i = 0; i < VT_PM_LANES; i++) {
        size_t passes = 0;
        metric[n] = vt_pm_rows[i].metric[0];
        if (vt_cupti_configure(&c, CUPTI_TYPE_PM, chip, NULL, metric, n + 1, &config, &passes,
                               NULL) == VT_OK &&
            passes == 1)
            n++;
        else
            *missing = (vt_pm_lane)i;
    }
    vt_cupti_config_release(&c, &config);
    return n;
}

static uint32_t version(void)
{
    vt_cupti c;
    return open_library(&c) ? c.version : 0;
}

static void test_library_when_it_is_there_then_hopper_samples_every_lane(void **state)
{
    vt_pm_lane missing = VT_PM_LANES;
    (void)state;
    int32_t n = count_lanes("GH100", &missing);
    if (n < 0)
        skip();
    bool bytes = version() >= 28; /* before 12.9 bytes of memory are not among what is sampled */
    assert_int_equal(missing, bytes ? VT_PM_LANES : VT_PM_DRAM_WRITTEN);
    assert_int_equal(n, VT_PM_LANES - (bytes ? 0 : 2));
}

static void test_library_when_it_is_there_then_ampere_samples_all_but_the_l2_cache(void **state)
{
    vt_pm_lane missing = VT_PM_LANES;
    (void)state;
    int32_t n = count_lanes("GA100", &missing);
    if (n < 0)
        skip();
    assert_int_equal(missing, VT_PM_L2_HIT);
    assert_int_equal(n, VT_PM_LANES - (version() < 28 ? 3 : 1));
}

/* NVRTC's -lineinfo and CUPTI agree on which line an instruction of a kernel of ours is of. */
static void test_library_when_it_is_there_then_our_kernels_have_lines(void **state)
{
    vt_cupti c;
    vt_jit *j;
    vt_err err = {0};
    char file[64];
    int32_t n_own = 0, n_shared = 0;
    (void)state;
    if (!open_library(&c) || c.no_pc[0])
        skip();
    assert_int_equal(vt_jit_new("sm_90a", &j, &err), VT_OK);
    vt_jit_set_cache(j, false);
    vt_jit_set_lines(j, true);
    jit_spec spec = JIT_SPEC("embed.cu", "embed", {"hidden", 64}, {"vec", 8}, {"scaled", 0},
                             {"part", 0}, {"deep", 0}, {"level", 90}, {"pdl", 1});
    int32_t k = vt_jit_want(j, &spec);
    bool compiled = vt_jit_compile(j, 1, NULL, NULL, &err) == VT_OK;
    const jit_cubin *cubin = compiled ? vt_jit_get(j, k) : NULL;
    for (uint64_t pc = 0; cubin && pc < 1024; pc += 16) {
        int32_t line = vt_cupti_line(&c, cubin->bytes, cubin->size, "embed", pc, file, sizeof file);
        n_own += line > 0 && strcmp(file, "embed.cu") == 0;
        n_shared += line > 0 && strcmp(file, "ptx.cuh") == 0;
    }
    vt_jit_free(j);
    if (!compiled && strstr(err.message, "libnvrtc"))
        skip();
    if (!compiled)
        fail_msg("%s", err.message);
    assert_true(n_own > 0);
    assert_true(n_shared > 0); /* griddepcontrol is a wrapper's */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_abi_when_cupti_h_is_there_then_sizes_and_last_members_agree),
        cmocka_unit_test(test_abi_when_cupti_h_is_there_then_members_agree),
        cmocka_unit_test(test_library_when_it_is_there_then_hopper_counts_every_vital_in_few_sets),
        cmocka_unit_test(test_library_when_it_is_there_then_ampere_lacks_the_l2_cache_and_gmma),
        cmocka_unit_test(test_library_when_it_is_there_then_hopper_samples_every_lane),
        cmocka_unit_test(test_library_when_it_is_there_then_ampere_samples_all_but_the_l2_cache),
        cmocka_unit_test(test_library_when_it_is_there_then_our_kernels_have_lines),
        cmocka_unit_test(test_library_when_a_chip_is_unknown_then_it_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
