/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * MPI_Sendrecv_replace() of GPU memory. Open MPI packs what it sends into memory of its own first,
 * by the CPU, which mustn't touch that of a GPU; the rest is a send and a receive. So libmpi's
 * calls of opal_convertor_pack() come here first (in Open MPI 5 those of its components, too, which
 * are in libmpi): its entry in libmpi's table of functions is changed, until the component is
 * closed in MPI_Finalize. An Open MPI with GPU support of its own marks such buffers, and packs
 * them itself.
 */
#define _GNU_SOURCE
#include "hook_angara.h"

#include "base/entry.h"

#include "ompi_config.h"
#include "ompi/communicator/communicator.h"
#include "ompi/runtime/mpiruntime.h"
#include "opal/datatype/opal_convertor.h"

#include <dlfcn.h>

/* Open MPI 4 has support for CUDA only. */
#ifndef CONVERTOR_ACCELERATOR
#define CONVERTOR_ACCELERATOR CONVERTOR_CUDA
#endif

static void                         **pack_entry, *pack_former;
static const hook_angara_gpu_funcs_t *pack_gpu;

/* Of a buffer without gaps Open MPI tells where the bytes are, and counts them as packed, if it is
 * given no place to put them. */
static int32_t pack(opal_convertor_t *convertor, struct iovec *iov, uint32_t *count, size_t *length)
{
    void   *place = iov->iov_base, *first;
    int32_t rc;

    if ((convertor->flags & (CONVERTOR_COMPLETED | CONVERTOR_ACCELERATOR)) || (*count != 1) ||
        (place == NULL)) {
        return opal_convertor_pack(convertor, iov, count, length);
    }
    opal_convertor_get_offset_pointer(convertor, 0, &first);
    if (!pack_gpu->is_device(first, convertor->local_size)) {
        return opal_convertor_pack(convertor, iov, count, length);
    }
    if (!(convertor->flags & CONVERTOR_NO_OP)) {
        hook_angara_print("error",
                          "the buffer at %p is of a type with gaps, in a GPU's memory, which can't "
                          "be packed: aborting",
                          first);
        ompi_mpi_abort(&ompi_mpi_comm_world.comm, 1);
    }

    iov->iov_base = NULL;
    rc            = opal_convertor_pack(convertor, iov, count, length);
    pack_gpu->read(place, iov->iov_base, iov->iov_len);
    iov->iov_base = place;
    return rc;
}

void hook_angara_pack_start(const hook_angara_gpu_funcs_t *gpu)
{
    struct link_map *map;
    Dl_info          info;

    if (dladdr1((void *)ompi_mpi_abort, &info, (void **)&map, RTLD_DL_LINKMAP) != 0) {
        pack_entry = uct_angara_entry_find(map, "opal_convertor_pack");
    }
    if (pack_entry == NULL) {
        hook_angara_verbose(1, "MPI_Sendrecv_replace can't take GPU memory: no way to copy it");
        return;
    }
    pack_gpu    = gpu;
    pack_former = uct_angara_entry_set(pack_entry, (void *)pack);
}

void hook_angara_pack_stop(void)
{
    if (pack_entry != NULL) {
        uct_angara_entry_restore(pack_entry, (void *)pack, pack_former);
        pack_entry = NULL;
    }
}
