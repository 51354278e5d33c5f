/* rmsnorm and add_rmsnorm on CUDA: see rmsnorm.cu. A thread holds at most 16 elements of a row up
 * to hidden 8192, so that it stays in registers between its two uses. */
#include "ops/rmsnorm/rmsnorm.h"

#include "ops/cuda_impls.h"
#include "ops/cut.h"
#include "ops/rmsnorm/rmsnorm_impls.h"
#include "ops/rmsnorm/rmsnorm_params.h"

enum { NARROW_THREADS = 256, WIDE_THREADS = 512 };

static bool rmsnorm_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const rmsnorm_args *a = args;
    return a->x->dtype == VT_BF16 && a->y->dtype == VT_BF16 && a->weight->dtype == VT_F32 &&
           a->y->dim[1] <= 32768 && (!a->residual || a->residual->dtype == VT_BF16);
}

/* Returns true if all rows are 16-byte vectors. */
static bool has_vectors(const rmsnorm_args *a)
{
    return cuda_vectors_of_8(a->y->dim[1], a->x->row_stride) && a->y->row_stride % 8 == 0 &&
           (!a->residual || a->residual->row_stride % 8 == 0);
}

/* As few threads as keep the most vectors of a thread as they are. 5120 elements are 2 vectors for
 * each of 320 threads; 3 in 4 of 512 threads would hold registers for a second vector that they
 * never get. */
int32_t rmsnorm_wide_threads(int32_t vectors)
{
    int64_t each = vt_ceil_div(vectors, WIDE_THREADS);
    return (int32_t)vt_round_up((size_t)vt_ceil_div(vectors, each), 32);
}

/* The number of CTAs that the rows need, and the launch, with no more CTAs than the SMs hold at the
 * same time. */
typedef struct rmsnorm_form {
    int64_t ctas;
    int32_t vec;      /* elements per load */
    int32_t resident; /* CTAs of an SM */
    cuda_launch launch;
} rmsnorm_form;

/* Returns how many CTAs an SM holds. The kernel is compiled for this number. A grid with more CTAs
 * than fit would start the last ones when the others have ended, each with its rows to walk. A
 * thread keeps its elements, those of the next row and its weights in registers; each quarter of an
 * SM has 512 for every lane. With the addition two vectors need a few more than 64, so that there
 * are two CTAs where 64 would make three; 16 single elements need 128. */
static int32_t resident_ctas(int32_t threads, int32_t vec, int32_t elements, bool add)
{
    int32_t registers = elements <= 8 && !add ? 40 : elements <= 16 ? 64 : 128;
    int32_t ctas = 4 * (512 / registers) / (threads / 32), most = vec == 8 ? 2 : 1;
    return add && elements > 8 && ctas > most ? most : ctas;
}

/* Returns true if CTAs walk the rows. With the addition a row has twice the bytes of its weights,
 * and from some rows a CTA on it is faster to read the weights again for each than to hold the next
 * row: then more CTAs fit. Decodes and prompts in graphs have fewer rows. Rows with a thread that
 * has no elements need more registers, for they ask which it is. */
static bool walks(int64_t ctas, int64_t most, int32_t lanes, int32_t vectors, bool add)
{
    enum { ROWS_OF_A_CTA = 4 };
    return !add || lanes <= 32 || vectors != lanes || ctas < ROWS_OF_A_CTA * most;
}

static rmsnorm_form form_of(const rmsnorm_args *a, const vt_target *t, int64_t rows)
{
    int32_t hidden = (int32_t)a->y->dim[1], vec = has_vectors(a) ? 8 : 1;
    int32_t vectors = (int32_t)vt_ceil_div(hidden, vec), lanes = 1, threads = NARROW_THREADS;
    while (lanes < vectors && lanes < 32)
        lanes *= 2;
    if (vectors > 32)
        lanes = threads = rmsnorm_wide_threads(vectors);
    int32_t elements = vec * (int32_t)vt_ceil_div(vectors, lanes);
    int32_t resident = resident_ctas(threads, vec, elements, a->residual != NULL);
    int64_t ctas = vt_ceil_div(rows, threads / lanes), most = (int64_t)t->sm_count * resident;
    bool walk = vec == 1 || walks(ctas, most, lanes, vectors, a->residual != NULL);
    if (!walk)
        resident = resident_ctas(threads, vec, elements, false);
    return (rmsnorm_form){
        .ctas = ctas,
        .vec = vec,
        .resident = resident,
        .launch = {.spec = JIT_SPEC("rmsnorm.cu", "rmsnorm", {"hidden", hidden}, {"vec", vec},
                                    {"threads", threads}, {"lanes", lanes}, {"resident", resident},
                                    {"add", a->residual != NULL}, {"rows", a->row != NULL},
                                    {"plus_one", a->plus_one}, {"walk", walk}),
                   .grid = {(uint32_t)(ctas < most || !walk ? ctas : most), 1, 1},
                   .threads = (uint32_t)threads}};
}

static vt_status rmsnorm_run(const void *args, const vt_lane *lane)
{
    const rmsnorm_args *a = args;
    int64_t rows = a->y->dim[0];
    rmsnorm_form f = form_of(a, lane->target, rows);
    rmsnorm_params p = {.x = a->x->data,
                        .row = a->row ? *a->row : NULL,
                        .weight = a->weight->data,
                        .residual = a->residual ? a->residual->data : NULL,
                        .y = a->y->data,
                        .x_stride = (int32_t)a->x->row_stride,
                        .y_stride = (int32_t)a->y->row_stride,
                        .residual_stride = a->residual ? (int32_t)a->residual->row_stride : 0,
                        .n_rows = (int32_t)rows,
                        .eps = a->eps};
    return vt_cuda_launch(lane->cuda, &f.launch, &p, sizeof p);
}

static void rmsnorm_describe(const void *args, const vt_target *t, const vt_size *size, vt_cut *out)
{
    const rmsnorm_args *a = args;
    int64_t rows = vt_size_rows(a->y, size);
    rmsnorm_form f = form_of(a, t, rows);
    vt_cut_shape(out, "%lld rows of %lld", (long long)rows, (long long)a->y->dim[1]);
    vt_cut_cuda(out, t, f.ctas, &f.launch, 2 * f.vec);
    out->resident = f.resident;
    out->waves = (double)out->items / ((double)out->workers * out->resident);
    vt_cut_roles(out, f.ctas > vt_cut_ctas(&f.launch) ? "CTAs that walk the rows" : NULL, NULL);
}

const vt_impl rmsnorm_cuda_impl = {CUDA_ROW("rows", rmsnorm, rmsnorm_supports),
                                   .fixed_order = true};
const vt_impl add_rmsnorm_cuda_impl = {CUDA_ROW("rows", rmsnorm, rmsnorm_supports),
                                       .fixed_order = true};
