// nvcc -O3 -arch=sm_90a -o build/phase_chain bench/micro/phase_chain.cu && build/phase_chain
//
// What a step of many short phases costs on a GPU when nothing is computed. In every phase each CTA reads all of x from
// L2, adds it up and stores its part of the next x. The phases are
//
//   launches   kernels of a CUDA graph with programmatic launches, which wait by griddepcontrol.wait
//   flags      the same kernels; a CTA waits until the CTAs of the one before have counted up a word in memory
//   barrier    one kernel of a CTA an SM with a barrier of the whole grid between its phases
//
// So it answers whether a persistent kernel could beat a chain of kernels. Prints the median us of a phase.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

constexpr int kPhases = 140, kRounds = 60, kThreads = 128, kApart = 32; // words between two counters
enum Wait { LAUNCHES, FLAGS, BARRIER };

#define CHECK(call)                                                                                     \
    do {                                                                                                \
        cudaError_t e = (call);                                                                         \
        if (e != cudaSuccess) {                                                                         \
            fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(e));                                  \
            exit(1);                                                                                    \
        }                                                                                               \
    } while (0)

__device__ void count_up(unsigned *counter)
{
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}

__device__ void wait_for(const unsigned *counter, unsigned n)
{
    unsigned v;
    do {
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(counter) : "memory");
    } while (v < n);
}

// Adds up x and stores eight results of the CTA; the storing warp is the first.
__device__ void phase(const float4 *x, float *y, int vectors)
{
    __shared__ float part[kThreads / 32];
    float sum = 0;
    for (int i = threadIdx.x; i < vectors; i += kThreads) {
        float4 v = __ldcg(x + i);
        sum += v.x + v.y + v.z + v.w;
    }
    for (int d = 16; d; d >>= 1)
        sum += __shfl_xor_sync(~0u, sum, d);
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < 8)
        y[blockIdx.x * 8 + threadIdx.x] = part[0] + part[1] + part[2] + part[3] + threadIdx.x;
    if (threadIdx.x < 32)
        __syncwarp();
}

// before: the counter of the kernel before; null: there is none.
template <Wait WAIT>
__global__ void __launch_bounds__(kThreads) link(const float4 *x, float *y, int vectors, const unsigned *before,
                                                 unsigned *own)
{
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    if (WAIT == LAUNCHES) {
        asm volatile("griddepcontrol.wait;" ::: "memory");
    } else if (before) {
        if (threadIdx.x == 0)
            wait_for(before, gridDim.x);
        __syncthreads();
    }
    phase(x, y, vectors);
    if (WAIT == FLAGS && threadIdx.x == 0)
        count_up(own);
}

__global__ void __launch_bounds__(kThreads) persistent(float *const *x, int vectors, unsigned *counters)
{
    for (int p = 0; p < kPhases; p++) {
        phase((const float4 *)x[p % 2], x[(p + 1) % 2], vectors);
        if (threadIdx.x == 0) {
            count_up(counters + p * kApart);
            wait_for(counters + p * kApart, gridDim.x);
        }
        __syncthreads();
    }
}

// The phases of one round.
static void launch(Wait wait, int ctas, int vectors, float **x, float *const *x_on_gpu, unsigned *counters, cudaStream_t s)
{
    CHECK(cudaMemsetAsync(counters, 0, kPhases * kApart * sizeof *counters, s));
    if (wait == BARRIER) {
        persistent<<<ctas, kThreads, 0, s>>>(x_on_gpu, vectors, counters);
        return;
    }
    for (int p = 0; p < kPhases; p++) {
        cudaLaunchAttribute early = {};
        early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        early.val.programmaticStreamSerializationAllowed = 1;
        cudaLaunchConfig_t c = {};
        c.gridDim = ctas, c.blockDim = kThreads, c.stream = s, c.attrs = &early, c.numAttrs = p > 0;
        const float4 *from = (const float4 *)x[p % 2];
        const unsigned *before = p > 0 ? counters + (p - 1) * kApart : nullptr;
        unsigned *own = counters + p * kApart;
        CHECK(cudaLaunchKernelEx(&c, wait == LAUNCHES ? link<LAUNCHES> : link<FLAGS>, from, x[(p + 1) % 2], vectors,
                                 before, own));
    }
}

static double median_us(Wait wait, int ctas, int k, float **x, float *const *x_on_gpu, unsigned *counters)
{
    cudaStream_t s;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaEvent_t begin, end;
    float ms[kRounds];
    CHECK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    CHECK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    launch(wait, ctas, k / 8, x, x_on_gpu, counters, s); // as many bytes as k bf16
    CHECK(cudaStreamEndCapture(s, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (int r = 0; r < kRounds; r++) {
        CHECK(cudaEventRecord(begin, s));
        CHECK(cudaGraphLaunch(exec, s));
        CHECK(cudaEventRecord(end, s));
        CHECK(cudaEventSynchronize(end));
        CHECK(cudaEventElapsedTime(&ms[r], begin, end));
    }
    std::sort(ms, ms + kRounds);
    return ms[kRounds / 2] * 1e3 / kPhases;
}

int main()
{
    float *x[2], **x_on_gpu;
    unsigned *counters;
    int sms;
    CHECK(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
    for (float *&each : x) {
        CHECK(cudaMalloc(&each, 1 << 20));
        CHECK(cudaMemset(each, 0, 1 << 20)); // nothing that is timed depends on the values
    }
    CHECK(cudaMalloc(&x_on_gpu, sizeof x));
    CHECK(cudaMemcpy(x_on_gpu, x, sizeof x, cudaMemcpyHostToDevice));
    CHECK(cudaMalloc(&counters, kPhases * kApart * sizeof *counters));
    for (int k : {1024, 4096}) {
        for (int ctas : {64, 128, 256, 384})
            printf("x of %d bf16, %d CTAs: launches %.3f us, flags %.3f us\n", k, ctas,
                   median_us(LAUNCHES, ctas, k, x, x_on_gpu, counters), median_us(FLAGS, ctas, k, x, x_on_gpu, counters));
        printf("x of %d bf16, %d CTAs: barrier %.3f us\n", k, sms, median_us(BARRIER, sms, k, x, x_on_gpu, counters));
    }
    return 0;
}
