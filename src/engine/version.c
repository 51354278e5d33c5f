/* The library's version. It has a file of its own because code below the API names it too. */
#include "vitrine.h"

const char *vt_version(void) { return "0.1.0"; }
