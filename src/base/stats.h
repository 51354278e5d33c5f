/* Statistics of a handful of measurements. */
#ifndef VT_BASE_STATS_H
#define VT_BASE_STATS_H

#include <stddef.h>

/* Sorts v[0..n) into ascending order. */
void vt_sort_doubles(double *v, size_t n);
/* The nearest-rank percentile: the smallest value v[i] such that at least the share q (0..1) of all
 * values are at most v[i]. Sorts v. NAN when n is 0. */
double vt_percentile(double *v, size_t n, double q);
/* The mean of the middle one or two values. Sorts v. NAN when n is 0. */
double vt_median(double *v, size_t n);
/* Returns how far repetitions of a measurement differ, as a share of their median: 1.4826 times
 * the median of their distances from it. Normally distributed values give their standard
 * deviation, and a few outliers, such as repetitions that another program interrupted, hardly
 * change it. Of two or three values none can be called an outlier: half of their spread. NAN
 * below two values. Sorts v. */
double vt_noise(double *v, size_t n);

#endif
