/* VITRINE_UNIT_ONLY=PATTERN: a unit program runs only the tests whose names match, with * and ? as
 * in a shell. Linked into every unit program. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>

__attribute__((constructor)) static void choose_tests(void)
{
    cmocka_set_test_filter(getenv("VITRINE_UNIT_ONLY"));
}
