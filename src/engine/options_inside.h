/* Between the files of the options. */
#ifndef VT_ENGINE_OPTIONS_INSIDE_H
#define VT_ENGINE_OPTIONS_INSIDE_H

#include "engine/options.h"

enum { OPTIONS_MAX_ROWS = 256 };

#endif
