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

#define NAME_SIZE 64
#define RANGES    3 /* that are attached to a dynamic window */

/* Components of windows, by their kind. */
typedef struct {
    char created[NAME_SIZE];
    char allocated[NAME_SIZE];
    char dynamic[NAME_SIZE];
} names_t;

extern char **environ;

/* By a function of the window's that nobody replaces: a component is a library of its own, or a
 * part of Open MPI's, whose functions are named ompi_osc_COMPONENT_... */
static void osc_name(MPI_Win win, char name[NAME_SIZE])
{
    void       *function = *(void **)(void *)&win->w_osc_module->osc_free;
    const char *found    = NULL;
    Dl_info     info;

    if (dladdr(function, &info) != 0) {
        found = strstr(info.dli_fname, "mca_osc_");
        if (found == NULL && info.dli_sname != NULL) {
            found = strstr(info.dli_sname, "ompi_osc_");
        }
    }
    snprintf(name, NAME_SIZE, "%s", found == NULL ? "" : strchr(found + strlen("mca_o"), '_') + 1);
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

/* A ring of Rputs into the middle one of three ranges, which are attached in falling order and
 * detached in rising order: more than Open MPI 4.1's osc/ucx can do. */
static int attached_ring(int rank, int next, int previous, MPI_Win win)
{
    static int  memory[RANGES][1024];
    int        *middle = memory[RANGES / 2];
    MPI_Aint    there, here;
    MPI_Request request;
    int         i, is_right;

    for (i = RANGES - 1; i >= 0; --i) {
        MPI_Win_attach(win, memory[i], sizeof(memory[i]));
    }
    *middle = -1;
    MPI_Get_address(middle, &here);
    MPI_Sendrecv(&here, 1, MPI_AINT, previous, 2, &there, 1, MPI_AINT, next, 2, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    MPI_Win_lock_all(0, win);
    MPI_Rput(&rank, 1, MPI_INT, next, there, 1, MPI_INT, win, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Win_unlock_all(win);
    MPI_Barrier(MPI_COMM_WORLD);
    is_right = *middle == previous;
    for (i = 0; i < RANGES; ++i) {
        MPI_Win_detach(win, memory[i]);
    }
    return is_right;
}

/* Messages, and windows of the program's own memory, of Open MPI's, and dynamic ones. */
static int exchange(int rank, int size, names_t *names)
{
    int     next = (rank + 1) % size, previous = (rank + size - 1) % size, got = -1, mine, *base;
    MPI_Win win;

    MPI_Sendrecv(&rank, 1, MPI_INT, next, 1, &got, 1, MPI_INT, previous, 1, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    got = got == previous;
    MPI_Win_create(&mine, sizeof(int), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    osc_name(win, names->created);
    got &= put_ring(rank, next, previous, &mine, win);
    MPI_Win_allocate(sizeof(int), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
    osc_name(win, names->allocated);
    got &= put_ring(rank, next, previous, base, win);
    MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    osc_name(win, names->dynamic);
    if (strcmp(names->dynamic, "ucx") != 0) {
        got &= attached_ring(rank, next, previous, win);
    }
    MPI_Win_free(&win);
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
    int     rank, size, provided, is_right, is_mapped;
    names_t names;

    if ((argc > 1) && !strcmp(argv[1], "-t")) {
        MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    is_right  = exchange(rank, size, &names);
    is_mapped = has_mapped_window();
    if (rank == 0) {
        printf("pml %s\n", mca_pml_base_selected_component.pmlm_version.mca_component_name);
        printf("osc %s\n", names.created);
        printf("osc-allocated %s\n", names.allocated);
        printf("osc-dynamic %s\n", names.dynamic);
        printf("large-window %s\n", is_mapped ? "mapped" : "private");
        print_environment();
        printf("data %s\n", is_right ? "right" : "wrong");
    }
    MPI_Finalize();
    return is_right ? 0 : 1;
}
