# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# The files of the source, and archives of them, the same byte for byte whoever makes them and in whichever clone.

# git, also in a tree of another user, as under sudo: nothing is asked of it but names and a date.
archive_git()
{
    [[ -e .git ]] && git -c safe.directory='*' "$@" 2>/dev/null
}

# The files of this folder, each ended by a NUL: those that git tracks or doesn't ignore; without git, all but what
# was built. Those that are tracked but deleted are left out, and folders: git names other repositories so.
archive_files()
{
    local file
    { archive_git ls-files -z --cached --others --exclude-standard ||
        find . \( -path ./build -o -path ./.git \) -prune -o ! -type d -printf '%P\0'; } |
        LC_ALL=C sort -zu | while IFS= read -r -d '' file; do
        [[ ! -L $file && (! -e $file || -d $file) ]] || printf '%s\0' "$file"
    done
}

# The source's date in seconds: the last commit's; without git the newest file's, which in what was unpacked from such
# an archive is the same.
archive_date()
{
    if [[ -n ${SOURCE_DATE_EPOCH:-} ]]; then
        echo "$SOURCE_DATE_EPOCH"
    elif ! archive_git log -1 --no-show-signature --format=%ct; then
        archive_files | xargs -0 stat -c %Y -- | sort -n | tail -n 1
    fi
}

# archive_tar DATE ARGUMENT...: writes a tar archive to standard output.
archive_tar()
{
    LC_ALL=C tar --create --format=gnu --sort=name --mtime="@$1" --owner=0 --group=0 --numeric-owner \
        --mode=u=rwX,go=rX,ug-s "${@:2}"
}
