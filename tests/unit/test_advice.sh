#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# What angara_info advises is done as it is printed, and cures what it is about: limits, what a container
# forbids, what isn't installed. (That of a NIC: tests/vm/test_nic_provider.sh; of an installation:
# scripts/install_check, scripts/check_deb.) Functions are called through `check`.
# shellcheck disable=SC2317
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
# shellcheck source=tests/unit/tap.sh
source tests/unit/tap.sh

build=$(realpath -m "${B:-build}")
bin=$build/bin
restrict=$build/tests/faults/fault_restrict
standin=$(realpath -m "$build/tests/gpu/standin")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# state CHECK COMMAND...: what angara_info, run by the command, says of this check; its advice is $advice.
state()
{
    local name=$1
    shift
    "$@" "$bin/angara_info" >"$work/info" 2>"$work/err" || true
    advice=$(awk -v name=" $name: " 'found { if (sub("^ *-> ", "")) print; found = 0 }
        index($0, name) { found = 1 }' "$work/info")
    awk -v name=" $name: " 'index($0, name) { print $1; exit }' "$work/info"
}

# expect WANTED CHECK COMMAND...
expect()
{
    state "${@:2}" >"$work/state"
    [[ $(<"$work/state") == "$1" ]] || { cat "$work/info" "$work/err"; return 1; }
}

# limit_cured NAME OPTION VALUE: the limit is too low, and raised as advised.
limit_cured()
{
    # `check` runs it in a shell of its own, whose limits end with it
    ulimit -S "$2" "$3"
    expect note "$1" env
    advice=${advice#only with a NIC: }
    echo "advice: $advice"
    eval "${advice%%,*}"
    expect ok "$1" env
}

# forbidden_cured CHECK CALL...: a seccomp profile that forbids the calls; the advice names each.
forbidden_cured()
{
    local call wanted=note
    [[ $1 != 'sealed memfds' ]] || wanted=error
    expect "$wanted" "$1" "$restrict" "${@:2}" --
    echo "advice: $advice"
    for call in "${@:2}"; do
        [[ $advice == *"allow "*"$call"*"seccomp profile"* ]]
    done
    expect ok "$1" env
}

# Two ways without process_vm: a kernel, or a profile, for which the calls don't exist.
process_vm_lacks()
{
    expect note 'process_vm_readv between processes' "$restrict" --errno ENOSYS process_vm_readv process_vm_writev --
    echo "advice: $advice"
    [[ $advice == *'allow process_vm_readv and process_vm_writev'* ]]
}

# Little memory is left, until some is freed.
memory_cured()
{
    printf 'MemTotal: 1000000 kB\nMemAvailable: 1000 kB\n' >"$work/meminfo"
    # shellcheck disable=SC2016 # the inner shell expands it
    expect note 'memory available' unshare -m bash -c 'mount --bind "$1" /proc/meminfo && shift && exec "$@"' bash \
        "$work/meminfo"
    echo "advice: $advice"
    [[ $advice == 'free memory: '* ]]
    expect ok 'memory available' env
}

# proc_cured MOUNT COMMAND...: /proc isn't that of the process, or not all of it; it is once mounted as advised.
proc_cured()
{
    # without /proc the program isn't found to be beside its library
    local -x LD_LIBRARY_PATH=$build/lib
    local hidden=("${@:2}" bash -c "$1 && exec \"\$@\"" bash)
    expect error /proc "${hidden[@]}"
    echo "advice: $advice"
    [[ $advice == 'mount -t proc '* ]]
    expect ok /proc "${hidden[@]}" bash -c "${advice%%,*}; exec \"\$@\"" bash
}

# Where the linker finds a library.
library() # NAME
{
    ldconfig -p | awk -v name="$1" '$1 == name && !found { print $NF; found = 1 }'
}

# UCX isn't where the linker looks; then it is where LD_LIBRARY_PATH says.
ucx_cured()
{
    local file
    file=$(realpath "$(library libucp.so.0)")
    mkdir -p "$work/ucx"
    cp "$file" "$work/ucx/libucp.so.0"
    # shellcheck disable=SC2016 # the inner shell expands it
    hidden=(unshare -m bash -c 'mount --bind /dev/null "$1" && shift && exec "$@"' bash "$file")
    expect missing 'UCX transport' "${hidden[@]}"
    echo "advice: $advice"
    [[ $advice == *'set LD_LIBRARY_PATH' ]]
    expect ok 'UCX transport' "${hidden[@]}" env LD_LIBRARY_PATH="$work/ucx"
}

# Open MPI isn't where the linker looks.
ompi_cured()
{
    local file
    file=$(realpath "$(library libmpi.so.40)")
    # shellcheck disable=SC2016 # the inner shell expands it
    expect note 'Open MPI component' unshare -m bash -c 'mount --bind /dev/null "$1" && shift && exec "$@"' bash "$file"
    echo "advice: $advice"
    [[ $advice == *'install Open MPI (Debian: apt install openmpi-bin)' ]]
    eval "$(scripts/angara_env)"
    expect ok 'Open MPI component' env
}

# The component in the folder of Open MPI's own ones, as packages and make install have it.
component_found()
{
    local folder hidden
    folder=$(ompi_info --parsable --path pkglibdir | sed 's/^path:pkglibdir://')
    mkdir "$work/components"
    # shellcheck disable=SC2016 # the inner shell expands it
    hidden=(env -u OMPI_MCA_mca_base_component_path HOME="$work" unshare -m bash -c 'mount --bind "$1" "$2" &&
        shift 2 && exec "$@"' bash "$work/components" "$folder")
    [[ $(state 'Open MPI component' "${hidden[@]}") == note ]]
    cp "$build/lib/openmpi/mca_hook_angara.so" "$work/components"
    expect ok 'Open MPI component' "${hidden[@]}"
    grep -F "$folder/mca_hook_angara.so" "$work/info"
}

# The library alone was installed; then the rest is, too, as make install does.
transport_cured()
{
    mkdir -p "$work/alone/bin" "$work/alone/lib"
    cp "$bin/angara_info" "$work/alone/bin"
    cp "$build/lib/libangara.so.0" "$work/alone/lib"
    local bin=$work/alone/bin
    local -x LD_LIBRARY_PATH=$work/alone/lib
    expect missing 'UCX transport' env
    echo "advice: $advice"
    [[ $advice == *'make install PREFIX='* ]]
    cp "$build/lib/libuct_angara.so" "$work/alone/lib"
    expect ok 'UCX transport' env
}

# What apt is to install has the file.
package_has() # FILE PACKAGE
{
    dpkg-query -S "$(realpath "$1")" | grep "^$2\b"
}

# The library of a runtime that is asked for isn't there, or finds no GPU; then LD_LIBRARY_PATH has one that does.
gpu_cured() # NAME WORD
{
    expect missing "GPU memory, $1" env ANGARA_GPU="$2"
    echo "advice: $advice"
    [[ $advice == *'set LD_LIBRARY_PATH' || $advice == *'who may open /dev/kfd' ]]
    expect ok "GPU memory, $1" env ANGARA_GPU="$2" LD_LIBRARY_PATH="$standin"
}

check 'open files' limit_cured 'open files (ulimit -n)' -n 256
check 'file size' limit_cured 'file size (ulimit -f)' -f 1000000
check 'address space' limit_cured 'address space (ulimit -v)' -v 64000000
if [[ $(ulimit -H -l) == unlimited ]] || { (($(id -u) == 0)) && (ulimit -l unlimited) 2>/dev/null; }; then
    check 'locked memory' limit_cured 'locked memory (ulimit -l)' -l 64
else
    skip 'locked memory' 'the hard limit is lower than what is advised'
fi
if [[ -x $restrict ]]; then
    check 'process_vm is forbidden' forbidden_cured 'process_vm_readv between processes' \
        process_vm_readv process_vm_writev
    check 'there is no process_vm' process_vm_lacks
    check 'memfd_create is forbidden' forbidden_cured 'sealed memfds' memfd_create
    check 'pidfd_open is forbidden' forbidden_cured 'pidfd_open' pidfd_open
    check 'membarrier is forbidden' forbidden_cured 'membarrier' membarrier
else
    skip 'forbidden calls' "$restrict isn't built"
fi
if (($(id -u) == 0)) && unshare -m -p true 2>/dev/null; then
    check '/proc is missing' proc_cured 'mount -t tmpfs none /proc' unshare -m
    check '/proc has processes alone' proc_cured 'mount -t proc -o subset=pid proc /proc' unshare -m
    check '/proc is of another PID namespace' proc_cured true unshare -m -p -f
    check 'little memory is left' memory_cured
else
    skip '/proc is not that of the process' 'not root'
fi
if (($(id -u) == 0)) && unshare -m true 2>/dev/null && [[ -n $(library libucp.so.0) ]]; then
    check 'UCX is missing' ucx_cured
    check 'the transport is missing' transport_cured
    if [[ -n $(library libmpi.so.40) ]]; then
        check 'Open MPI is missing' ompi_cured
    fi
    if [[ $(mpirun --version 2>/dev/null) == *'Open MPI) 4.'* ]]; then
        check "the component is in Open MPI's own folder" component_found
    else
        skip "the component is in Open MPI's own folder" "Open MPI 5 may have PMIx's folders instead, or none is here"
    fi
else
    skip 'UCX is missing' 'not root, or UCX is elsewhere'
fi
if command -v dpkg-query >/dev/null && dpkg-query -S /usr/bin/ompi_info >/dev/null 2>&1; then
    check 'the package of UCX is right' package_has "$(library libucp.so.0)" libucx0
    check 'the package of Open MPI is right' package_has /usr/bin/ompi_info openmpi-bin
    if [[ -n $(library libhsa-runtime64.so.1) ]]; then
        check "the package of ROCm's runtime is right" package_has "$(library libhsa-runtime64.so.1)" libhsa-runtime64-1
    fi
else
    skip 'the packages are right' 'no Debian, or without Open MPI'
fi
if [[ -e /dev/nvidiactl || -e /dev/kfd || ! -d $standin ]]; then
    skip 'the library of a GPU' 'there is a GPU, or there are no stand-ins'
else
    check "the library of NVIDIA's GPUs" gpu_cured CUDA cuda
    check "the library of AMD's GPUs" gpu_cured ROCm rocm
fi
tap_end
