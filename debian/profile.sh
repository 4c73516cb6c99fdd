# SPDX-License-Identifier: BSD-3-Clause
# PMIx's parameter file hides installed components of Open MPI from its ranks. With both lists set, each of
# the two looks into its own folders. This file stays when the package is removed, until it is purged.
if [ -e '@COMPONENT@' ]; then
    : "${PMIX_MCA_mca_base_component_path:=@PMIX@}"
    : "${OMPI_MCA_mca_base_component_path:=SYS_DEFAULT:USER_DEFAULT}"
    export PMIX_MCA_mca_base_component_path OMPI_MCA_mca_base_component_path
fi
