# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# What bash completes for the tools: options, as --help of the tool has them, tests of angara_perf, and
# values that are words. Needs nothing of bash-completion but that it loads this file; or source it.

# _angara_values TOOL OPTION: its values; nothing, where they aren't words or numbers will do.
_angara_values()
{
    case $1:$2 in
    angara_top:-d) ;;
    angara_jobkey:-d | angara_jobkey:--device) echo angara0 ;;
    *:-d | *:--device) echo auto soft soft0 nic angara0 ;;
    *:-m | *:--memory) echo shared private ;;
    angara_perf:-t | angara_perf:--target) echo sleeps polls ;;
    *:-g | *:--gpu) echo cuda rocm managed ;;
    esac
}

# _angara_words TOOL: what isn't an option.
_angara_words()
{
    case ${1##*/} in
    angara_perf) "$1" --list 2>/dev/null | command awk '{ print $1 }' ;;
    angara_jobkey) echo add del list ;;
    esac
}

_angara()
{
    local word=${COMP_WORDS[COMP_CWORD]} before= words

    ((COMP_CWORD == 0)) || before=${COMP_WORDS[COMP_CWORD - 1]}
    if [[ $word == = ]]; then # bash takes --device=so for three words
        word=
    elif [[ $before == = ]]; then
        before=${COMP_WORDS[COMP_CWORD - 2]}
    fi
    words=$(_angara_values "${1##*/}" "$before")
    if [[ -z $words && $word == -* ]]; then
        words=$("$1" --help 2>/dev/null | command grep -o -E -- '(^|[ ,[])--?[[:alnum:]][a-z-]*' | tr -d ' ,[')
    elif [[ -z $words ]]; then
        words=$(_angara_words "$1")
    fi
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
}

complete -o bashdefault -o default -F _angara angara_env angara_info angara_jobkey angara_perf angara_top
