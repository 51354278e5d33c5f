/* Sorting, percentiles and medians (base/stats.h). */
#include "base/stats.h"

#include <math.h>
#include <stdbool.h>
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

/* The median distance of the sorted values from `middle`: the distances come in rising order from
 * the two sides of it. */
static double median_distance(const double *v, size_t n, double middle)
{
    size_t high = 0; /* the first value above it; v[low - 1] is the last one below */
    while (high < n && v[high] < middle)
        high++;
    double at = 0, before = 0;
    for (size_t low = high, i = 0; i <= n / 2; i++) {
        bool below = high == n || (low > 0 && middle - v[low - 1] < v[high] - middle);
        before = at;
        at = below ? middle - v[--low] : v[high++] - middle;
    }
    return n % 2 ? at : (before + at) / 2;
}

double vt_noise(double *v, size_t n)
{
    double middle = vt_median(v, n);
    if (n < 2 || middle == 0)
        return NAN;
    if (n < 4)
        return (v[n - 1] - v[0]) / 2 / fabs(middle);
    return 1.4826 * median_distance(v, n, middle) / fabs(middle);
}
