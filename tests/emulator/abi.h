/* The interface between a kernel's shared object and the runtime. Kernels are compiled behind this
 * file and device.h, without any system header, so it includes nothing. */
#ifndef EMU_ABI_H
#define EMU_ABI_H

struct emu_dim {
    unsigned x, y, z;
};

struct emu_thread;
typedef unsigned long long emu_u64;

enum emu_shuffle { EMU_IDX, EMU_UP, EMU_DOWN, EMU_XOR };

/* The runtime's entries. Addresses of shared memory are u32: rank of the CTA in its cluster << 24 |
 * offset. */
struct emu_api {
    /* warp */
    emu_u64 (*shuffle)(emu_thread *, unsigned mask, int kind, emu_u64 value, int param, int width);
    unsigned (*vote)(emu_thread *, unsigned mask, int predicate, unsigned *members);
    emu_u64 (*reduce)(emu_thread *, unsigned mask, int kind, emu_u64 value);
    void (*ldmatrix)(emu_thread *, unsigned address, int n, int transposed, unsigned *out);
    void (*stmatrix)(emu_thread *, unsigned address, const unsigned *registers, int transposed);
    void (*mma_bf16)(emu_thread *, float *c, const unsigned *ab);
    /* CTA */
    int (*barrier)(emu_thread *, unsigned id, unsigned threads, int wait, int predicate);
    char *(*shared)(emu_thread *, unsigned address, unsigned bytes);
    void (*cp_async)(emu_thread *, unsigned to, const void *from, unsigned bytes, unsigned read);
    void (*cp_commit)(emu_thread *);
    void (*cp_wait)(emu_thread *, unsigned pending);
    void (*yield)(emu_thread *);
    void (*fail)(emu_thread *, const char *text);
    /* sm_90 */
    void (*mbar_init)(emu_thread *, unsigned address, unsigned count);
    void (*mbar_arrive)(emu_thread *, unsigned address, unsigned count, unsigned expect_bytes);
    void (*mbar_wait)(emu_thread *, unsigned address, unsigned parity);
    int (*mbar_test)(emu_thread *, unsigned address, unsigned parity);
    void (*tma_load)(emu_thread *, const void *map, unsigned to, unsigned mbar, int rank,
                     const int *at);
    void (*tma_store)(emu_thread *, const void *map, unsigned from, int rank, const int *at);
    void (*bulk_load)(emu_thread *, unsigned to, const void *from, unsigned bytes, unsigned mbar);
    void (*bulk_commit)(emu_thread *);
    void (*bulk_wait)(emu_thread *, unsigned pending);
    void (*wgmma_fence)(emu_thread *);
    void (*wgmma)(emu_thread *, float *d, emu_u64 a, const unsigned *a_registers, emu_u64 b, int n,
                  int flags);
    void (*wgmma_commit)(emu_thread *);
    void (*wgmma_wait)(emu_thread *, unsigned pending);
    void (*cluster_arrive)(emu_thread *);
    void (*cluster_wait)(emu_thread *);
    /* warps and sm_90, added later */
    void (*sync_warp)(emu_thread *, unsigned mask);
    void (*pdl_wait)(emu_thread *);
    void (*pdl_go)(emu_thread *);
    void (*bulk_wait_read)(emu_thread *, unsigned pending);
    void (*fence)(emu_thread *, int proxy);
    /* .sys: other devices. `others` is called before a load that may be one of a loop that waits
     * for another kernel; `peer` checks that the device may access an address. */
    void (*others)(emu_thread *);
    void (*peer)(emu_thread *, const void *p);
    emu_u64 (*now_ns)(emu_thread *); /* %globaltimer */
    unsigned (*sm)(emu_thread *);    /* %smid: CTAs go to the SMs in turn */
    /* called by code that is compiled for the race detector: for every access, and for atomics */
    void (*access)(emu_thread *, const void *p, unsigned bytes, unsigned kind, const void *site);
    void (*atomic)(emu_thread *, const void *p, unsigned bytes, unsigned kind, const void *site);
    /* flags of other devices' kernels: ld.acquire.sys, st.release.sys */
    unsigned (*take_flag)(emu_thread *, const unsigned *p, const void *site);
    void (*give_flag)(emu_thread *, unsigned *p, unsigned value, const void *site);
};

enum { /* kinds of access and atomic */
       EMU_WRITE = 1,
       EMU_READ = 2, /* in atomics: publishes if it writes, takes if it reads */
       EMU_ACQUIRE = 4,
       EMU_PACKET = 8 /* data and its number in one access: tells which kernels have ended */
};

enum { /* flags of wgmma */
       EMU_ACCUMULATE = 1,
       EMU_NEGATE_A = 2,
       EMU_NEGATE_B = 4,
       EMU_TRANSPOSE_A = 8,
       EMU_TRANSPOSE_B = 16,
       EMU_E4M3 = 32 /* both operands: K is 32 */
};

/* The runtime's data of one thread. A reserved register holds its address in a kernel's code. */
struct emu_thread {
    emu_dim thread, block, block_dim, grid_dim;
    const emu_api *api;
    const void *params; /* of the launch */
    char *shared;       /* of this CTA */
    unsigned shared_base, shared_bytes;
    unsigned lane, cluster_rank, cluster_size;
    char *stack; /* of this thread: its own variables */
    emu_u64 stack_bytes;
    const char *site; /* "file:line" of the last call that may wait */
    bool discards;    /* values that are loaded now are thrown away */
    bool equals;      /* values that are stored now are stored by other threads too */
};

/* Every __shared__ declaration has a slot in each instance of its function. The loader fills in the
 * offset. Section emu_slots has the addresses of all slots, each once or more. The code that uses a
 * slot puts the address there, because g++ 12 ignores a section named in a template. */
struct emu_slot {
    unsigned size, align; /* size 0: extern __shared__, which lies after all others */
    volatile unsigned offset;
};
enum : unsigned { EMU_NOT_LAID_OUT = ~0u };
#define EMU_USE_SLOT(slot)                                                  \
    asm volatile(".pushsection emu_slots,\"aw\",@progbits\n\t.balign 8\n\t" \
                 ".dc.a %c1\n\t.popsection"                                 \
                 : "+m"(slot)                                               \
                 : "i"(&slot))

struct emu_kernel {
    const char *name;
    void (*call)(const void *params);
    unsigned params_bytes, max_threads;
};

struct emu_exports { /* symbol emu_module_exports */
    const emu_kernel *kernels;
    unsigned n_kernels;
    int races; /* 1: compiled for the race detector */
    emu_slot **slots, **slots_end;
};

#endif
