# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# For bash-completion, which asks each tool for its options by --help.
complete -F _longopt angara_env angara_info angara_jobkey angara_perf angara_top
