/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Deliberate errors for the tests of atomics (docs/protocols.md, "Mutants"). They exist only in
 * builds with ANGARA_MUTANTS; ANGARA_MUTANT=<name> picks one.
 */
#ifndef ANG_MUTANT_H
#define ANG_MUTANT_H

#ifdef ANGARA_MUTANTS

#include <stdlib.h>
#include <string.h>

/* Is that one on? */
static inline int ang_mutant(const char *name)
{
    const char *picked = getenv("ANGARA_MUTANT");

    return picked != NULL && strcmp(picked, name) == 0;
}

#else

#define ang_mutant(_name) 0

#endif

#endif
