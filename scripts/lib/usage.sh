# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# For scripts without arguments.

# no_arguments "$@": where there is one, prints the usage, from stdin, and ends the script, with 2 unless it was --help.
no_arguments()
{
    (($# > 0)) || return 0
    if [[ $* == -h || $* == --help ]]; then
        cat
        exit 0
    fi
    cat >&2
    exit 2
}
