/* SPDX-License-Identifier: BSD-3-Clause */
/* Private to angara_info: what it found out, as data; printing is angara_info.c. */
#ifndef ANGARA_TOOLS_INFO_H
#define ANGARA_TOOLS_INFO_H

#include <angara/angara.h>

typedef enum {
    INFO_OK,      /* as it should be */
    INFO_NOTE,    /* works, but slower or with less than it could */
    INFO_MISSING, /* something can't be used */
    INFO_ERROR    /* nothing works until it is cured */
} info_state_t;

/* One thing looked at. */
typedef struct {
    const char  *name;
    info_state_t state;
    char         value[1024]; /* what was found */
    char         fix[1024];   /* what to do about it, empty if nothing */
} info_check_t;

#define INFO_CHECKS_MAX 24

/* Look at everything around the library. @return number of checks filled in. */
unsigned info_checks(info_check_t *checks);

#define INFO_ENV_MAX  96
#define INFO_ENV_NAME 64

/* A variable, with its value in force. */
typedef struct {
    char        name[INFO_ENV_NAME];
    char        value[512];
    char        default_text[64];
    const char *origin; /* "default", "environment", or why it isn't in force */
} info_env_var_t;

typedef struct {
    unsigned       count;
    info_env_var_t vars[INFO_ENV_MAX];
    char           lacks[512]; /* why some aren't listed; empty: all are */
} info_env_t;

/* All variables of the library, the component and the transport. */
void info_env(info_env_t *env);

#define INFO_TRANSPORT "libuct_angara.so"

/* Folder of the library that this program runs with. @return 0, or -1 if nobody knows */
int info_library_folder(char *folder, size_t size);

/* GPUs and their runtimes. @return number of checks filled in, one at least */
unsigned info_gpu_checks(info_check_t *checks);

/* The component for Open MPI; `folder` has the library. */
void info_ompi_check(info_check_t *check, const char *folder);

/* Can that file of the folder be read? path[size] is its name. */
int info_file_in(const char *folder, const char *name, char *path, size_t size);

void info_set_value(info_check_t *check, info_state_t state, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void info_set_fix(info_check_t *check, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

const char *info_state_name(info_state_t state);

#endif
