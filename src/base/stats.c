/* Sorting, percentiles and medians (base/stats.h). */
#include "base/stats.h"

#include <math.h>
#include <stdlib.h>

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void vt_sort_doubles(double *v, size_t n) { qsort(v, n, sizeof *v, ascending); }

double vt_percentile(double *v, size_t n, double q)
{
    if (n == 0)
        return NAN;
    vt_sort_doubles(v, n);
    double rank = ceil(q * (double)n);
    size_t at = rank < 1 ? 0 : (size_t)rank - 1;
    return v[at < n ? at : n - 1];
}

double vt_median(double *v, size_t n)
{
    if (n == 0)
        return NAN;
    vt_sort_doubles(v, n);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

double vt_noise(double *v, size_t n)
{
    double middle = vt_median(v, n);
    if (n < 2 || middle == 0)
        return NAN;
    if (n < 4)
        return (v[n - 1] - v[0]) / 2 / fabs(middle);
    for (size_t i = 0; i < n; i++)
        v[i] = fabs(v[i] - middle);
    return 1.4826 * vt_median(v, n) / fabs(middle);
}
