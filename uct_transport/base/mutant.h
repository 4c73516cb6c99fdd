/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Deliberate errors for the tests of the completion rules (docs/protocols.md, "Mutants"). They
 * exist only in builds with ANGARA_MUTANTS; ANGARA_MUTANT=<name> picks one.
 */
#ifndef UCT_ANGARA_MUTANT_H
#define UCT_ANGARA_MUTANT_H

#ifdef ANGARA_MUTANTS

#include <stdlib.h>
#include <string.h>

static inline int uct_angara_mutant_is(const char *name)
{
    const char *value = getenv("ANGARA_MUTANT");

    return (value != NULL) && (strcmp(value, name) == 0);
}

/** Non-zero if the mutant of that name is on. */
#define UCT_ANGARA_MUTANT(_name)                \
    ({                                          \
        static int _on = -1;                    \
                                                \
        if (_on < 0) {                          \
            _on = uct_angara_mutant_is(#_name); \
        }                                       \
        _on;                                    \
    })

#else

#define UCT_ANGARA_MUTANT(_name) 0

#endif

#endif
