/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Prints what Open MPI chose and what is left in the environment, for test_selection.sh: one
 * `name value` a line, from rank 0. Exchanges some messages first.
 *
 * Options: -t  initialize MPI_T before MPI
 */
#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

/* Open MPI unloads the components that it did not select, so what is mapped is what it uses. */
static void print_components(const char *framework)
{
    char  line[1024], prefix[64], last[64] = "";
    FILE *maps = fopen("/proc/self/maps", "r");
    char *name, *end;

    snprintf(prefix, sizeof(prefix), "/mca_%s_", framework);
    printf("%s", framework);
    while ((maps != NULL) && (fgets(line, sizeof(line), maps) != NULL)) {
        name = strstr(line, prefix);
        if (name == NULL) {
            continue;
        }
        name += strlen(prefix);
        end = strstr(name, ".so");
        if (end != NULL) {
            *end = '\0';
        }
        if (strcmp(name, last) != 0) {
            printf(" %s", name);
            snprintf(last, sizeof(last), "%s", name);
        }
    }
    printf("\n");
    if (maps != NULL) {
        fclose(maps);
    }
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

/* A window proves that osc works, whichever it is. */
static int exchange(int rank, int size)
{
    int     next = (rank + 1) % size, previous = (rank + size - 1) % size, got = -1, *base;
    MPI_Win win;

    MPI_Sendrecv(&rank, 1, MPI_INT, next, 1, &got, 1, MPI_INT, previous, 1, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    MPI_Win_allocate(sizeof(int), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
    *base = -1;
    MPI_Win_fence(0, win);
    MPI_Put(&rank, 1, MPI_INT, next, 0, 1, MPI_INT, win);
    MPI_Win_fence(0, win);
    got = (got == previous) && (*base == previous);
    MPI_Win_free(&win);
    MPI_Allreduce(MPI_IN_PLACE, &got, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD);
    return got;
}

int main(int argc, char **argv)
{
    int rank, size, provided, is_right;

    if ((argc > 1) && !strcmp(argv[1], "-t")) {
        MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    is_right = exchange(rank, size);
    if (rank == 0) {
        print_components("pml");
        print_components("osc");
        print_environment();
        printf("data %s\n", is_right ? "right" : "wrong");
    }
    MPI_Finalize();
    return is_right ? 0 : 1;
}
