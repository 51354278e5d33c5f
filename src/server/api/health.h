#ifndef VT_SERVER_API_HEALTH_H
#define VT_SERVER_API_HEALTH_H

#include <stdbool.h>
#include <stdint.h>

/* Returns true if an engine is stuck whose oldest request was submitted at `oldest_ns` (0: it has
 * none) and whose last step ended at `last_step_ns` (0: none has). */
bool server_is_stuck(int64_t oldest_ns, int64_t last_step_ns, int64_t now_ns, double limit_s);

#endif
