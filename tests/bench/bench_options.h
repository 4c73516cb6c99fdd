/* SPDX-License-Identifier: BSD-3-Clause */
/* Command line of the benchmarks: parsing and usage text. Used by bench_common.c alone. */
#ifndef ANGARA_BENCH_OPTIONS_H
#define ANGARA_BENCH_OPTIONS_H

#include "bench_common.h"

#include <stdio.h>

typedef enum {
    BENCH_PARSE_RUN,
    BENCH_PARSE_HELP,
    BENCH_PARSE_VERSION,
    BENCH_PARSE_ERROR
} bench_parse_t;

/* On BENCH_PARSE_ERROR, @a error says what is wrong; *opts is then not to be used. */
bench_parse_t bench_parse_options(bench_options_t *opts, const bench_spec_t *spec, int argc,
                                  char **argv, char *error, size_t error_size);

void bench_print_usage(FILE *out, const bench_spec_t *spec);

const char *bench_win_type_name(bench_win_type_t type);
const char *bench_sync_type_name(bench_sync_type_t type);

#endif
