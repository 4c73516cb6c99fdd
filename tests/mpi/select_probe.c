/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Prints what Open MPI chose and what is left in the environment, for test_selection.sh: one
 * `name value` a line, from rank 0. Exchanges some messages first.
 *
 * Options: -t  initialize MPI_T before MPI
 */
#define _GNU_SOURCE
#include "../common/maps.h"
#include "ompi_config.h"
#include "ompi/mca/osc/osc.h"
#include "ompi/mca/pml/base/base.h"
#include "ompi/win/win.h"

#include <mpi.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

/* By a function of the window's: a component is a library of its own, or a part of Open MPI's,
 * whose functions are named ompi_osc_COMPONENT_... */
static void osc_name(MPI_Win win, char *name, size_t size)
{
    void       *function = *(void **)(void *)&win->w_osc_module->osc_put;
    const char *found    = NULL;
    Dl_info     info;

    if (dladdr(function, &info) != 0) {
        found = strstr(info.dli_fname, "mca_osc_");
        if (found == NULL && info.dli_sname != NULL) {
            found = strstr(info.dli_sname, "ompi_osc_");
        }
    }
    snprintf(name, size, "%s", found == NULL ? "" : strchr(found + strlen("mca_o"), '_') + 1);
    name[strcspn(name, "_.")] = '\0';
}

static int is_of_interest(const char *variable)
{
    return strstr(variable, "OMPI_MCA_pml") || strstr(variable, "OMPI_MCA_osc") ||
           strstr(variable, "OMPI_MCA_opal_common_ucx");
}

static void print_environment(void)
{
    char   line[4096];
    FILE  *child;
    char **variable;

    for (variable = environ; *variable != NULL; ++variable) {
        if (is_of_interest(*variable)) {
            printf("env %s\n", *variable);
        }
    }
    fflush(stdout);
    child = popen("env", "r");
    while ((child != NULL) && (fgets(line, sizeof(line), child) != NULL)) {
        if (is_of_interest(line)) {
            printf("child-env %s", line);
        }
    }
    if (child != NULL) {
        pclose(child);
    }
}

/* A ring of puts into `base`, of a window, which is freed: whichever component has it, it works. */
static int put_ring(int rank, int next, int previous, int *base, MPI_Win win)
{
    int is_right;

    *base = -1;
    MPI_Win_fence(0, win);
    MPI_Put(&rank, 1, MPI_INT, next, 0, 1, MPI_INT, win);
    MPI_Win_fence(0, win);
    is_right = *base == previous;
    MPI_Win_free(&win);
    return is_right;
}

/* Messages, and windows of the program's own memory and of Open MPI's. */
static int exchange(int rank, int size, char *created, char *allocated, size_t name_size)
{
    int     next = (rank + 1) % size, previous = (rank + size - 1) % size, got = -1, mine, *base;
    MPI_Win win;

    MPI_Sendrecv(&rank, 1, MPI_INT, next, 1, &got, 1, MPI_INT, previous, 1, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    got = got == previous;
    MPI_Win_create(&mine, sizeof(int), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    osc_name(win, created, name_size);
    got &= put_ring(rank, next, previous, &mine, win);
    MPI_Win_allocate(sizeof(int), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
    osc_name(win, allocated, name_size);
    got &= put_ring(rank, next, previous, base, win);
    MPI_Allreduce(MPI_IN_PLACE, &got, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD);
    return got;
}

/* Is the memory of a large window that is allocated the transport's, which peers map? */
static int has_mapped_window(void)
{
    MPI_Win win;
    void   *base;
    int     is_so;

    MPI_Win_allocate(8 << 20, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
    is_so = is_mapped_as(base, "angara-memory");
    MPI_Win_free(&win);
    return is_so;
}

int main(int argc, char **argv)
{
    int  rank, size, provided, is_right, is_mapped;
    char created[64], allocated[64];

    if ((argc > 1) && !strcmp(argv[1], "-t")) {
        MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    is_right  = exchange(rank, size, created, allocated, sizeof(created));
    is_mapped = has_mapped_window();
    if (rank == 0) {
        printf("pml %s\n", mca_pml_base_selected_component.pmlm_version.mca_component_name);
        printf("osc %s\n", created);
        printf("osc-allocated %s\n", allocated);
        printf("large-window %s\n", is_mapped ? "mapped" : "private");
        print_environment();
        printf("data %s\n", is_right ? "right" : "wrong");
    }
    MPI_Finalize();
    return is_right ? 0 : 1;
}
