/* libnvidia-ml.so.1 of the emulated GPU: its clocks, power and temperature, which never
 * change, and the energy that follows from the power. */
#include <string.h>
#include <time.h>

#define API __attribute__((visibility("default")))

enum { SUCCESS = 0, INVALID = 2, NOT_FOUND = 6, SM = 1, MEMORY = 2 };

typedef struct device {
    int nothing;
} device;

static device the_gpu;

API int nvmlInit_v2(void);
API int nvmlShutdown(void);
API int nvmlDeviceGetHandleByPciBusId_v2(const char *id, device **d);
API int nvmlDeviceGetClockInfo(device *d, int type, unsigned *mhz);
API int nvmlDeviceGetMaxClockInfo(device *d, int type, unsigned *mhz);
API int nvmlDeviceGetPowerUsage(device *d, unsigned *mw);
API int nvmlDeviceGetEnforcedPowerLimit(device *d, unsigned *mw);
API int nvmlDeviceGetTemperature(device *d, int sensor, unsigned *celsius);
API int nvmlDeviceGetCurrentClocksThrottleReasons(device *d, unsigned long long *bits);
API int nvmlDeviceGetTotalEnergyConsumption(device *d, unsigned long long *mj);

int nvmlInit_v2(void) { return SUCCESS; }
int nvmlShutdown(void) { return SUCCESS; }

int nvmlDeviceGetHandleByPciBusId_v2(const char *id, device **d)
{
    if (strcmp(id, "00000000:01:00.0") != 0) /* the PCI address that cuda.cc reports */
        return NOT_FOUND;
    *d = &the_gpu;
    return SUCCESS;
}

static int answer(const device *d, unsigned value, unsigned *to)
{
    if (d != &the_gpu)
        return INVALID;
    *to = value;
    return SUCCESS;
}

int nvmlDeviceGetClockInfo(device *d, int type, unsigned *mhz)
{
    return answer(d, type == SM ? 1500 : type == MEMORY ? 2000 : 0, mhz);
}

int nvmlDeviceGetMaxClockInfo(device *d, int type, unsigned *mhz)
{
    return answer(d, type == SM ? 1600 : type == MEMORY ? 2000 : 0, mhz);
}

int nvmlDeviceGetPowerUsage(device *d, unsigned *mw) { return answer(d, 250400, mw); }
int nvmlDeviceGetEnforcedPowerLimit(device *d, unsigned *mw) { return answer(d, 300000, mw); }

int nvmlDeviceGetTemperature(device *d, int sensor, unsigned *celsius)
{
    return sensor == 0 ? answer(d, 41, celsius) : INVALID;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(device *d, unsigned long long *bits)
{
    *bits = 1 << 2 | 1 << 5; /* throttled by the power cap and by heat */
    return d == &the_gpu ? SUCCESS : INVALID;
}

int nvmlDeviceGetTotalEnergyConsumption(device *d, unsigned long long *mj)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    *mj = (unsigned long long)(now.tv_sec * 250.4e3 + (double)now.tv_nsec * 250.4e-6);
    return d == &the_gpu ? SUCCESS : INVALID;
}
