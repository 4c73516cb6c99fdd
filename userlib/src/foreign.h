/* SPDX-License-Identifier: BSD-3-Clause */
/* ANGARA_ names that the library doesn't read, but others: neither it nor angara_info wonders at
 * them. */
#ifndef ANG_FOREIGN_H
#define ANG_FOREIGN_H

#include <string.h>

/* The Open MPI component's. */
static const char *const ang_component_vars[] = {"ANGARA_STRICT", "ANGARA_UCT_PLUGIN"};

#define ANG_NUM_COMPONENT_VARS (sizeof(ang_component_vars) / sizeof(ang_component_vars[0]))

/* Tests and benchmarks have many, which begin so. */
static const char *const ang_test_prefixes[] = {"ANGARA_TEST_", "ANGARA_BENCH_", "ANGARA_MUTANT"};

/* Is the name before the = of an environment's line none of ours, or one of these? */
static inline int ang_is_foreign(const char *line)
{
    size_t length = strcspn(line, "=");

    if (strncmp(line, "ANGARA_", 7) != 0) {
        return 1;
    }
    for (size_t i = 0; i < ANG_NUM_COMPONENT_VARS; ++i) {
        if (strlen(ang_component_vars[i]) == length &&
            strncmp(line, ang_component_vars[i], length) == 0) {
            return 1;
        }
    }
    for (size_t i = 0; i < sizeof(ang_test_prefixes) / sizeof(ang_test_prefixes[0]); ++i) {
        if (strncmp(line, ang_test_prefixes[i], strlen(ang_test_prefixes[i])) == 0) {
            return 1;
        }
    }
    return 0;
}

#endif
