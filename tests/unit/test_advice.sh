#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# What angara_info advises is done as it is printed, and cures what it is about: limits, what a container
# forbids, what isn't installed. The last test compares what has been followed with all that the source can
# advise: what nobody follows must be named here with the reason. Functions are called through `check`.
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

# followed ADVICE...: it is done, and helps, else the test fails. Of "A, or B" each is an advice of its own, and of
# "A; B".
followed() { printf '%s\n' "$@" >>"$work/followed"; }

# beyond NAME REASON ADVICE...: can't be done here; an advice may be a pattern.
beyond()
{
    followed "${@:3}"
    skip "$1" "$2"
}

# elsewhere FILE TEXT ADVICE...: that test does it, where it has the text.
elsewhere()
{
    check "$1 does what is advised: ${*:3}" grep -qF -- "$2" "$1"
    followed "${@:3}"
}

# state CHECK COMMAND...: what angara_info, run by the command, says of this check in its $line; its advice is $advice.
state()
{
    local name=$1
    shift
    "$@" "$bin/angara_info" >"$work/info" 2>"$work/err" || true
    line=$(grep -F -m 1 -- " $name: " "$work/info" || true)
    advice=$(awk -v name=" $name: " 'found && sub("^ *-> ", "") { print; exit }
        found && /^  (ok|note|missing|error) / { exit }
        index($0, name) { found = 1 }' "$work/info")
    awk '{ print $1 }' <<<"$line"
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
    echo "advice: $advice"
    eval "$(sed 's/^only with a NIC: //; s/,.*//' <<<"$advice")"
    followed "$line" "${advice%%, or *}"
    expect ok "$1" env
}

# limits_conf_cured NAME OPTION VALUE ITEM ENOUGH: the same by the file, which a new session reads.
limits_conf_cured()
{
    ulimit -S "$2" "$3"
    expect note "$1" env
    echo "advice: $advice"
    [[ $advice == *", or $4 in limits.conf" ]]
    echo "root - $4 $5" >"$work/limits.conf"
    # shellcheck disable=SC2016 # the inner shell expands it
    expect ok "$1" unshare -m bash -c 'mount --bind "$1" /etc/security/limits.conf && shift &&
        exec runuser -u root -- "$@"' bash "$work/limits.conf"
    followed "$4 in limits.conf"
}

# limits.conf works here: sessions of root begin with it.
has_limits_conf()
{
    (($(id -u) == 0)) && unshare -m true 2>/dev/null && grep -qs pam_limits /etc/pam.d/runuser &&
        [[ -e /etc/security/limits.conf ]]
}

# forbidden_cured CHECK CALL...: a seccomp profile that forbids the calls; the advice names each. A later kernel is
# this one; from which on is what README says.
forbidden_cured()
{
    local call wanted=note version kernel
    kernel=$(sed -nE 's/^\| needs \| (Linux [0-9.]+ or later).*/\1/p' README.md)
    [[ $1 != 'sealed memfds' ]] || wanted=error
    expect "$wanted" "$1" "$restrict" "${@:2}" --
    echo "advice: $advice"
    [[ $advice =~ allow\ [a-z_\ ]+\ in\ [a-z\'\ ]+\ seccomp\ profile ]]
    for call in "${@:2}"; do
        [[ ${BASH_REMATCH[0]} == *"$call"* ]]
    done
    followed "${BASH_REMATCH[0]}"
    if [[ $advice =~ ^use\ Linux\ ([0-9.]+)\ or\ later ]]; then
        followed "${BASH_REMATCH[0]}"
        version=${BASH_REMATCH[1]}
        [[ ${BASH_REMATCH[0]} == "use $kernel" ]]
        printf '%s\n' "$version" "$(uname -r)" | sort -VC
    fi
    expect ok "$1" env
}

# A memfd that may not become large: the advice leads to another one.
memfd_limit_cured()
{
    # A pipe, as the output would be cut, too.
    # shellcheck disable=SC2016 # the inner shell expands it
    limited=(bash -c 'trap "" XFSZ && ulimit -S -f 1 && eval "$1" && shift && "$@" | cat' bash)
    expect error 'sealed memfds' "${limited[@]}" true
    echo "advice: $advice"
    [[ $advice == *'; look at ulimit -n and ulimit -f' ]]
    expect note 'file size (ulimit -f)' "${limited[@]}" true
    expect ok 'sealed memfds' "${limited[@]}" "$advice"
    followed 'look at ulimit -n and ulimit -f'
}

# A container's root has no more than the capabilities in its bounding set; a program that it may not read may not be
# looked into by others.
capability_cured()
{
    local bin=$work/foreign name='process_vm_readv between processes'
    local -x LD_LIBRARY_PATH=$build/lib
    mkdir "$bin"
    cp "$build/bin/angara_info" "$bin"
    chown 65534:65534 "$bin/angara_info"
    chmod 0711 "$bin/angara_info"
    # the first exec loses the capabilities, the second one asks for what it may read
    expect note "$name" setpriv --inh-caps=-all --bounding-set=-all env
    echo "advice: $advice"
    [[ $advice =~ --cap-add=([A-Z_]+) ]]
    expect ok "$name" setpriv --inh-caps=-all --bounding-set="-all,+${BASH_REMATCH[1],,}" env
    followed "in a container add --cap-add=SYS_PTRACE" "in a container --cap-add=SYS_PTRACE"
}

# Two ways without process_vm: a kernel, or a profile, for which the calls don't exist.
process_vm_lacks()
{
    expect note 'process_vm_readv between processes' "$restrict" --errno ENOSYS process_vm_readv process_vm_writev --
    echo "advice: $advice"
    [[ $advice == *'allow process_vm_readv and process_vm_writev'* ]]
    followed "$advice"
    expect ok 'process_vm_readv between processes' env
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
    followed "$advice"
    expect ok 'memory available' env
}

# proc_cured MOUNT COMMAND...: /proc isn't that of the process, or not all of it; it is once mounted as advised.
proc_cured()
{
    # without /proc the program isn't found to be beside its library
    local -x LD_LIBRARY_PATH=$build/lib
    local hidden=("${@:2}" bash -c "$1 && exec \"\$@\"" bash)
    # nothing works, so a script that asks for the status hears of it; and what can't be told isn't
    if "${hidden[@]}" "$bin/angara_info" >"$work/info" 2>&1 || grep 'memory available: 0' "$work/info"; then
        return 1
    fi
    expect error /proc "${hidden[@]}"
    echo "advice: $advice"
    [[ $advice == 'mount -t proc '*', or start with unshare --mount-proc' ]]
    local command=${advice%%,*} start=${advice##* start with }
    followed "$advice"
    expect ok /proc "${hidden[@]}" bash -c "$command; exec \"\$@\"" bash
    # shellcheck disable=SC2086 # a list of words
    expect ok /proc "${hidden[@]}" $start
}

# Where the linker finds a library.
library() # NAME
{
    ldconfig -p | awk -v name="$1" '$1 == name && !found { print $NF; found = 1 }'
}

# A variable leads MPI programs to a transport that isn't there.
plugin_cured()
{
    local -x ANGARA_UCT_PLUGIN=/nonexistent/libuct_angara.so
    expect missing 'UCX transport' env
    echo "advice: $advice"
    followed "$advice"
    eval "$advice"
    expect ok 'UCX transport' env
}

# A variable keeps Open MPI from the component; others of its kind don't.
hook_cured()
{
    local hooks
    eval "$(scripts/angara_env)"
    for hooks in '^angara' '^demo,angara' demo; do
        local -x OMPI_MCA_hook=$hooks
        expect missing 'Open MPI component' env
        echo "advice: $advice"
        followed "$advice"
        eval "$advice"
        expect ok 'Open MPI component' env
    done
    for hooks in angara 'demo,angara' '^demo' '^angarax' ''; do
        expect ok 'Open MPI component' env OMPI_MCA_hook="$hooks"
    done
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
    followed 'set LD_LIBRARY_PATH'
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
    hidden=(env -u OMPI_MCA_opal_mca_base_component_path HOME="$work" unshare -m bash -c 'mount --bind "$1" "$2" &&
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

# A driver of before, then a newer one.
old_driver_cured() # NAME WORD
{
    expect note "GPU memory, $1" env ANGARA_GPU="$2" LD_LIBRARY_PATH="$standin/old"
    echo "advice: $advice"
    [[ $advice == 'a newer driver'* ]]
    expect ok "GPU memory, $1" env ANGARA_GPU="$2" LD_LIBRARY_PATH="$standin"
    followed 'a newer driver'
}

# One that only starts: the log says what it lacks.
bare_driver_cured() # NAME WORD
{
    local -x ANGARA_GPU=$2 LD_LIBRARY_PATH=$standin/bare
    local setting
    expect missing "GPU memory, $1" env
    echo "advice: $advice"
    [[ $advice == 'a newer driver; '*' says what it lacks' ]]
    setting=${advice#*; }
    followed "$advice"
    expect missing "GPU memory, $1" env "${setting%% *}"
    grep ' has no .*it needs' "$work/err"
    expect ok "GPU memory, $1" env LD_LIBRARY_PATH="$standin"
}

# The service's control program is a stand-in, too: it leaves the file by which the service is known.
mps_cured()
{
    local -x ANGARA_GPU=cuda LD_LIBRARY_PATH=$standin CUDA_MPS_PIPE_DIRECTORY=$work/mps PATH=$work/path:$PATH
    mkdir "$work/mps" "$work/path"
    # shellcheck disable=SC2016 # the script expands it
    printf '#!/bin/sh\n[ "$*" = -d ] && : >"$CUDA_MPS_PIPE_DIRECTORY/control"\n' >"$work/path/nvidia-cuda-mps-control"
    chmod +x "$work/path/nvidia-cuda-mps-control"
    expect ok 'GPU memory, CUDA' env
    echo "advice: $advice"
    [[ $line == *'take turns'* ]]
    followed "$advice"
    eval "${advice#only with several ranks on one GPU: }"
    expect ok 'GPU memory, CUDA' env
    [[ $line != *'take turns'* && -z $advice ]]
}

# What the source can advise, but for words too short to say anything.
all_followed()
{
    python3 - "$work/followed" userlib/tools/*.c <<'END'
import fnmatch, re, sys
sys.path.insert(0, "scripts/lib")
import messages

with open(sys.argv[1], encoding="utf-8") as stream:
    followed = [messages.plain(line) for line in stream]
advice = {part for path in sys.argv[2:]
          for text in messages.pieces_of(path, {"info_set_fix": "", "check_limit": ""})
          for part in re.split(", or |; ", text) if len(part) >= messages.MIN_LENGTH}
lacking = sorted(part for part in advice
                 if not any(part in line or fnmatch.fnmatchcase(part, line) for line in followed))
print("%d advised, neither followed nor named with a reason: %s" % (len(advice), lacking))
sys.exit(len(advice) < 30 or lacking != [])
END
}

check 'open files' limit_cured 'open files (ulimit -n)' -n 256
check 'file size' limit_cured 'file size (ulimit -f)' -f 1000000
check 'address space' limit_cured 'address space (ulimit -v)' -v 64000000
if [[ $(ulimit -H -l) == unlimited ]] || { (($(id -u) == 0)) && (ulimit -l unlimited) 2>/dev/null; }; then
    check 'locked memory' limit_cured 'locked memory (ulimit -l)' -l 64
else
    beyond 'locked memory' 'the hard limit is lower than what is advised' 'ulimit -l unlimited' \
        'locked memory (ulimit -l)' 'enough for the soft fabric' 'on a NIC rings, windows and registered memory count'
fi
if has_limits_conf; then
    check 'open files, by limits.conf' limits_conf_cured 'open files (ulimit -n)' -n 256 nofile 4096
else
    beyond 'open files, by limits.conf' 'not root, or sessions here have no limits.conf' 'nofile in limits.conf'
fi
if has_limits_conf && (ulimit -l unlimited) 2>/dev/null; then
    check 'locked memory, by limits.conf' limits_conf_cured 'locked memory (ulimit -l)' -l 64 memlock unlimited
else
    beyond 'locked memory, by limits.conf' 'no limits.conf here, or the hard limit is lower' 'memlock in limits.conf'
fi
if [[ -x $restrict ]]; then
    check 'process_vm is forbidden' forbidden_cured 'process_vm_readv between processes' \
        process_vm_readv process_vm_writev
    check 'there is no process_vm' process_vm_lacks
    check 'memfd_create is forbidden' forbidden_cured 'sealed memfds' memfd_create
    check 'pidfd_open is forbidden' forbidden_cured 'pidfd_open' pidfd_open
    check 'membarrier is forbidden' forbidden_cured 'membarrier' membarrier
else
    beyond 'forbidden calls' "$restrict isn't built" 'use a kernel *' 'use Linux *' 'allow *'
fi
check 'a memfd may not become large' memfd_limit_cured
if (($(id -u) == 0)) && setpriv --bounding-set=-all true 2>/dev/null; then
    check 'process_vm without a capability' capability_cured
else
    beyond 'process_vm without a capability' 'not root' 'in a container *--cap-add=SYS_PTRACE'
fi
if (($(id -u) == 0)) && unshare -m -p true 2>/dev/null; then
    check '/proc is missing' proc_cured 'mount -t tmpfs none /proc' unshare -m
    check '/proc has processes alone' proc_cured 'mount -t proc -o subset=pid proc /proc' unshare -m
    check '/proc is of another PID namespace' proc_cured true unshare -m -p -f
    check 'little memory is left' memory_cured
else
    beyond '/proc is not that of the process, memory is short' 'not root' 'mount -t proc *' 'start with unshare *' \
        'free memory: *'
fi
if [[ -n $(library libucp.so.0) ]]; then
    check 'a transport that is named is missing' plugin_cured
else
    beyond 'a transport that is named is missing' 'UCX is elsewhere' 'unset ANGARA_UCT_PLUGIN'
fi
if [[ -n $(library libmpi.so.40) ]]; then
    check 'Open MPI is told to leave the component out' hook_cured
else
    beyond 'Open MPI is told to leave the component out' 'Open MPI is elsewhere' 'unset OMPI_MCA_hook'
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
    beyond 'UCX is missing' 'not root, or UCX is elsewhere' 'set LD_LIBRARY_PATH'
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
    beyond 'the library of a GPU' 'there is a GPU, or there are no stand-ins' 'a newer driver' 'ANGARA_LOG_LEVEL=*' \
        'only with several ranks on one GPU: *'
else
    check "the library of NVIDIA's GPUs" gpu_cured CUDA cuda
    check "the library of AMD's GPUs" gpu_cured ROCm rocm
    check "an older driver of NVIDIA's" old_driver_cured CUDA cuda
    check "an older runtime of AMD's" old_driver_cured ROCm rocm
    check "a driver of NVIDIA's that lacks all" bare_driver_cured CUDA cuda
    check "CUDA's multi-process service" mps_cured
fi
beyond "the GPU's own tools" 'there is no GPU that they could show' "see whether the GPU's own tools work*"
beyond 'packages to install' 'tests install nothing; that it is these packages is tested above' 'install UCX *' \
    'for MPI programs: install Open MPI *'
elsewhere scripts/check_deb 'one command installs the packages' \
    'install the component (Debian: apt install openmpi-angara)'
elsewhere scripts/install_check 'build and install all of the project' \
    'build and install all of the project: make install PREFIX=...'
# shellcheck disable=SC2016 # those words
elsewhere tests/unit/test_tools.sh 'eval "$advice"' 'scripts/angara_env)"'
elsewhere tests/unit/test_tools.sh info_component_long \
    'run the script angara_env: its path is too long to be printed here'
elsewhere tests/vm/test_nic_provider.sh 'add the user to the group angara and log in again' \
    'add the user to the group angara and log in again'
elsewhere tests/vm/test_nic_provider.sh 'load the modules angara_nic and angara_memreg' \
    'only with a NIC: load the modules angara_nic and angara_memreg'
elsewhere tests/vm/test_nic_provider.sh 'ulimit -l' 'only with a NIC: ulimit -l unlimited'
elsewhere tests/vm/test_nic_provider.sh 'sysctl kernel.yama.ptrace_scope=0' 'sysctl kernel.yama.ptrace_scope=0'
check 'all advice of the source is followed, or named with the reason' all_followed
tap_end
