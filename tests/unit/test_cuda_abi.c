/* Our declarations of the CUDA driver's structures against <cuda.h>, where a toolkit is installed:
 * a wrong size or constant would corrupt a launch on a machine that no test runs on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#if __has_include("/usr/local/cuda/include/cuda.h")
#define CU_EVENT_DEFAULT THEIR_EVENT_DEFAULT /* two names that both headers have */
#define CU_STREAM_NON_BLOCKING THEIR_STREAM_NON_BLOCKING
#include "/usr/local/cuda/include/cuda.h"
#undef CU_EVENT_DEFAULT
#undef CU_STREAM_NON_BLOCKING
#define HAVE_CUDA_H 1
#endif

#ifdef HAVE_CUDA_H
static const struct {
    size_t launch_config, launch_attr, mem_prop, mem_access, tensor_map, stream_at, attrs_at;
    int sm_count, cc_major, cc_minor, l2, shared_optin, max_threads, shared_bytes, registers, local,
        max_dynamic, cluster, pdl, thread_local_capture, access_rw, not_ready, pci_bus, pci_device,
        pci_domain;
} theirs = {sizeof(CUlaunchConfig),
            sizeof(CUlaunchAttribute),
            sizeof(CUmemAllocationProp),
            sizeof(CUmemAccessDesc),
            sizeof(CUtensorMap),
            offsetof(CUlaunchConfig, hStream),
            offsetof(CUlaunchConfig, attrs),
            CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
            CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE,
            CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
            CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
            CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES,
            CU_FUNC_ATTRIBUTE_NUM_REGS,
            CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES,
            CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
            CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
            CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
            CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
            CUDA_ERROR_NOT_READY,
            CU_DEVICE_ATTRIBUTE_PCI_BUS_ID,
            CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID,
            CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID};
#endif

#if __has_include(<cublasLt.h>) && __has_include(<library_types.h>)
#include <cublasLt.h>
#define HAVE_CUBLASLT_H 1
#endif

#if __has_include(<nccl.h>) && __has_include(<cuda_runtime.h>)
#include <nccl.h>
#define HAVE_NCCL_H 1
#endif

#include "device/cuda/cublaslt_api.h"
#include "device/cuda/cuda_api.h"
#include "device/cuda/nccl_api.h"

static void test_abi_when_a_toolkit_is_there_then_sizes_and_constants_agree(void **state)
{
    (void)state;
#ifdef HAVE_CUDA_H
    assert_int_equal(sizeof(cu_launch_config), theirs.launch_config);
    assert_int_equal(sizeof(cu_launch_attr), theirs.launch_attr);
    assert_int_equal(sizeof(cu_mem_prop), theirs.mem_prop);
    assert_int_equal(sizeof(cu_mem_access), theirs.mem_access);
    assert_int_equal(sizeof(cu_tensor_map), theirs.tensor_map);
    assert_int_equal(offsetof(cu_launch_config, stream), theirs.stream_at);
    assert_int_equal(offsetof(cu_launch_config, attrs), theirs.attrs_at);
    assert_int_equal(CU_ATTR_SM_COUNT, theirs.sm_count);
    assert_int_equal(CU_ATTR_CC_MAJOR, theirs.cc_major);
    assert_int_equal(CU_ATTR_CC_MINOR, theirs.cc_minor);
    assert_int_equal(CU_ATTR_L2_BYTES, theirs.l2);
    assert_int_equal(CU_ATTR_MAX_SHARED_OPTIN, theirs.shared_optin);
    assert_int_equal(CU_FUNC_MAX_THREADS, theirs.max_threads);
    assert_int_equal(CU_FUNC_SHARED_BYTES, theirs.shared_bytes);
    assert_int_equal(CU_FUNC_REGISTERS, theirs.registers);
    assert_int_equal(CU_FUNC_LOCAL_BYTES, theirs.local);
    assert_int_equal(CU_FUNC_MAX_DYNAMIC_SHARED, theirs.max_dynamic);
    assert_int_equal(CU_LAUNCH_ATTR_CLUSTER, theirs.cluster);
    assert_int_equal(CU_LAUNCH_ATTR_PDL, theirs.pdl);
    assert_int_equal(CU_CAPTURE_THREAD_LOCAL, theirs.thread_local_capture);
    assert_int_equal(CU_MEM_ACCESS_READ_WRITE, theirs.access_rw);
    assert_int_equal(CU_ERROR_NOT_READY, theirs.not_ready);
    assert_int_equal(CU_ATTR_PCI_BUS, theirs.pci_bus);
    assert_int_equal(CU_ATTR_PCI_DEVICE, theirs.pci_device);
    assert_int_equal(CU_ATTR_PCI_DOMAIN, theirs.pci_domain);
#else
    skip();
#endif
}

static void test_abi_when_cublaslt_h_is_there_then_sizes_and_constants_agree(void **state)
{
    (void)state;
#ifdef HAVE_CUBLASLT_H
    typedef cublasLtMatmulHeuristicResult_t result;
    assert_int_equal(sizeof(lt_algorithm), sizeof(cublasLtMatmulAlgo_t));
    assert_int_equal(sizeof(lt_choice), sizeof(result));
    assert_int_equal(offsetof(lt_choice, workspace), offsetof(result, workspaceSize));
    assert_int_equal(offsetof(lt_choice, state), offsetof(result, state));
    assert_int_equal(LT_R_32F, CUDA_R_32F);
    assert_int_equal(LT_R_16BF, CUDA_R_16BF);
    assert_int_equal(LT_COMPUTE_32F, CUBLAS_COMPUTE_32F);
    assert_int_equal(LT_OP_T, CUBLAS_OP_T);
    assert_int_equal(LT_DESC_TRANSA, CUBLASLT_MATMUL_DESC_TRANSA);
    assert_int_equal(LT_DESC_EPILOGUE, CUBLASLT_MATMUL_DESC_EPILOGUE);
    assert_int_equal(LT_DESC_BIAS, CUBLASLT_MATMUL_DESC_BIAS_POINTER);
    assert_int_equal(LT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_BIAS);
    assert_int_equal(LT_NOT_SUPPORTED, CUBLAS_STATUS_NOT_SUPPORTED);
    assert_int_equal(LT_PREF_WORKSPACE, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
    assert_int_equal(LT_PREF_ALIGN_A, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
    assert_int_equal(LT_PREF_ALIGN_A + 1, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
    assert_int_equal(LT_PREF_ALIGN_A + 2, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
    assert_int_equal(LT_PREF_ALIGN_D, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
#else
    skip();
#endif
}

static void test_abi_when_nccl_h_is_there_then_constants_agree(void **state)
{
    (void)state;
#ifdef HAVE_NCCL_H
    assert_int_equal(NCCL_F32, ncclFloat32);
    assert_int_equal(NCCL_BF16, ncclBfloat16);
    assert_int_equal(NCCL_SUM, ncclSum);
    assert_int_equal(ncclSuccess, 0);
#ifdef NCCL_WIN_COLL_SYMMETRIC
    assert_int_equal(NCCL_WINDOW_SYMMETRIC, NCCL_WIN_COLL_SYMMETRIC);
#endif
#else
    skip();
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_abi_when_a_toolkit_is_there_then_sizes_and_constants_agree),
        cmocka_unit_test(test_abi_when_cublaslt_h_is_there_then_sizes_and_constants_agree),
        cmocka_unit_test(test_abi_when_nccl_h_is_there_then_constants_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
