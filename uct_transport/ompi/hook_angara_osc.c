/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What osc/ucx does otherwise than by itself. Accumulates of its windows are mended
 * (hook_angara_accumulate.c), and dynamic windows (hook_angara_dynamic.c).
 *
 * Which windows osc/ucx gets, where the component has let it in: all that it wins by priority, but
 * dynamic ones within a node only if no other component takes them. Before each operation on a
 * dynamic window it reads a table of 33 KB from the target, and it has room for 31 or 48 regions.
 *
 * The processes of a window must choose the same component: they vote.
 */
#include "hook_angara.h"

#include "ompi_config.h"
#include "ompi/communicator/communicator.h"
#include "ompi/mca/osc/base/base.h"
#include "ompi/mca/osc/osc.h"
#include "ompi/proc/proc.h"
#include "opal/mca/base/mca_base_var.h"
#include "opal/util/info.h"

#include <string.h>

/* While its functions are replaced. */
static ompi_osc_base_component_t          *osc_ucx;
static ompi_osc_base_component_query_fn_t  osc_ucx_query;
static ompi_osc_base_component_select_fn_t osc_ucx_select;

/* Nobody has chosen it, or given it a priority. */
static bool osc_ucx_may_yield;

static bool is_within_node(struct ompi_communicator_t *comm)
{
    int rank;

    for (rank = 0; rank < ompi_comm_size(comm); ++rank) {
        if (!OPAL_PROC_ON_LOCAL_NODE(ompi_comm_peer_lookup(comm, rank)->super.proc_flags)) {
            return false;
        }
    }
    return true;
}

static int osc_ucx_query_dynamic_last(struct ompi_win_t *win, void **base, size_t size,
                                      int disp_unit, struct ompi_communicator_t *comm,
                                      struct opal_info_t *info, int flavor)
{
    int priority = osc_ucx_query(win, base, size, disp_unit, comm, info, flavor);
    int mine, all;

    if (flavor != MPI_WIN_FLAVOR_DYNAMIC) {
        return priority;
    }
    mine = osc_ucx_may_yield && is_within_node(comm);
    all  = 0;
    if (comm->c_coll->coll_allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, comm,
                                     comm->c_coll->coll_allreduce_module) != OMPI_SUCCESS) {
        return priority; /* creating the window will fail, too */
    }
    return (all && (priority > 0)) ? 0 : priority;
}

static int osc_ucx_select_mended(struct ompi_win_t *win, void **base, size_t size, int disp_unit,
                                 struct ompi_communicator_t *comm, struct opal_info_t *info,
                                 int flavor, int *model)
{
    int status;

    /* Accumulates of Open MPI 5.0 before 5.0.10 look for the target in a table of locks, and divide
     * by its size, which is 0 if there are none. */
    if (!OSC_UCX_IS_OLD) {
        opal_info_set(info, "no_locks", "false");
    }
    status = osc_ucx_select(win, base, size, disp_unit, comm, info, flavor, model);
    if (status == OMPI_SUCCESS) {
        hook_angara_accumulate_mend(win);
        if (flavor == MPI_WIN_FLAVOR_DYNAMIC) {
            hook_angara_dynamic_mend(win);
        }
    }
    return status;
}

static ompi_osc_base_component_t *osc_ucx_find(void)
{
    mca_base_component_list_item_t *item;

    OPAL_LIST_FOREACH(item, &ompi_osc_base_framework.framework_components,
                      mca_base_component_list_item_t)
    {
        if (strcmp(item->cli_component->mca_component_name, "ucx") == 0) {
            return (ompi_osc_base_component_t *)item->cli_component;
        }
    }
    return NULL;
}

/* Has nobody given it a priority? */
static bool osc_ucx_has_default_priority(void)
{
    int                   index = mca_base_var_find("ompi", "osc", "ucx", "priority");
    mca_base_var_source_t source;

    return (index >= 0) && (mca_base_var_get_value(index, NULL, &source, NULL) == OPAL_SUCCESS) &&
           (source == MCA_BASE_VAR_SOURCE_DEFAULT);
}

void hook_angara_osc_start(bool may_yield, bool has_gpu)
{
    osc_ucx = osc_ucx_find();
    if (osc_ucx == NULL) {
        return;
    }
    /* osc/rdma knows no GPU memory; but osc/ucx of 4.1 has its limits in any case. */
    osc_ucx_may_yield = may_yield && (OSC_UCX_IS_OLD || !has_gpu) && osc_ucx_has_default_priority();
    hook_angara_verbose(1, "dynamic windows within the node go to %s",
                        osc_ucx_may_yield ? "osc/ucx only if no other component takes them" :
                                            "osc/ucx");
    osc_ucx_query       = osc_ucx->osc_query;
    osc_ucx->osc_query  = osc_ucx_query_dynamic_last;
    osc_ucx_select      = osc_ucx->osc_select;
    osc_ucx->osc_select = osc_ucx_select_mended;
}

void hook_angara_osc_stop(void)
{
    if (osc_ucx != NULL) {
        osc_ucx->osc_query  = osc_ucx_query;
        osc_ucx->osc_select = osc_ucx_select;
        osc_ucx             = NULL;
    }
}
