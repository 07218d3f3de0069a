#!/bin/sh
# Works on the files of one job, in a throw-away container that sees the folder of that job alone. What a job has
# written there is never trusted: a link leads nowhere else than inside this container.
# The programs that it uses are those of the host, as a POSIX shell, find, stat, mv and cp are on any Linux.
#
#   list FOLDER PATTERN          the entries that match, and the plain files in those that are folders:
#                                mode (hexadecimal), size, time and path of each; at the end `complete`
#   move FOLDER ASIDE NAME...    move entries into another folder; those that are gone are ignored
#   offer FOLDER NAME OUT BYTES  put an entry into OUT without copying it, where no job can change what it is
#   copy FOLDER NAME TO [NEW]    copy an entry into a folder of the job, as NEW, without the links and pipes in it
#   sums FOLDER NAME             the SHA-256 of an entry's plain files
#   remove PATH...               remove files and folders of the job with all that is in them; links are not followed
#   sizes PATH...                0 and the path of each that is there, then the KiB that they take on the disk, as du
#                                prints them; at the end `complete`, before it `incomplete` if a folder is closed to us
#   files FOLDER PATTERN         the plain files whose path may match, as in a list
#   gather FOLDER OUT BYTES PATH...  as offer, for many plain files, each with the folders it is in
#   place IN FOLDER NAME OLD     move an entry from IN into FOLDER; one that was there goes to OLD

set -eu
umask 077
_rung_action=$1
shift
# A name with a line break would look like two entries.
_rung_break='*
*'

# Runs a command that prints entries. A run writes and removes files all the time, so one that has just gone is no
# error, nor is one that the job closed or turned into a loop. Anything else would look like a folder with less in it.
_rung_print() {
    _rung_code=0
    _rung_errors=$("$@" 2>&1 >&3) || _rung_code=$?
    [ "$_rung_code" -lt 126 ] || { echo "the listing ended with $_rung_code" >&2; exit 1; }
    while read -r _rung_line; do
        case $_rung_line in
        "" | *"No such file or directory" | *"Permission denied" | *"Too many levels of symbolic links") ;;
        *"Symbolic link loop" | *"Not a directory") ;;
        *) echo "$_rung_line" >&2; exit 1 ;;
        esac
    done <<END
$_rung_errors
END
}

case $_rung_action in
list)
    [ -e "$1" ] || { echo complete; exit 0; }
    cd -P -- "$1"
    # Nothing there and nothing to be seen are two answers.
    ls -a . >/dev/null
    exec 3>&1
    set -- -mindepth 1 -maxdepth 1 -name "$2" ! -path "$_rung_break"
    _rung_print find . "$@" -exec stat -L -c '%f %s %Y %n' {} +
    _rung_print find . "$@" -type d -exec sh "$0" inner {} +
    echo complete
    ;;
inner)
    find "$@" -mindepth 1 -type f ! -path "$_rung_break" -exec stat -c '%f %s %Y %n' {} +
    ;;
move)
    _rung_from=$1 _rung_to=$2
    shift 2
    mkdir -p -- "$_rung_to"
    for _rung_name; do
        [ -e "$_rung_from/$_rung_name" ] || [ -L "$_rung_from/$_rung_name" ] || continue
        mv -f -- "$_rung_from/$_rung_name" "$_rung_to/"
    done
    ;;
offer)
    _rung_from=$(readlink -f -- "$1/$2") || { echo "$2 is gone" >&2; exit 1; }
    [ -f "$_rung_from" ] || [ -d "$_rung_from" ] || { echo "$2 is no file and no folder" >&2; exit 1; }
    mkdir -p -- "$3"
    # On another filesystem, such as a volume, it has to be copied: no file of it may be larger than the whole.
    cp -RPpl -- "$_rung_from" "$3/$2" 2>/dev/null || {
        rm -rf -- "$3/$2"
        ulimit -f $(($4 / 512 + 1))
        cp -RPp -- "$_rung_from" "$3/$2"
    }
    # Here no job can put another link or a pipe in their place. It may have closed a folder to us.
    find "$3" -type d -exec chmod u+rwx {} +
    find "$3" ! -type f ! -type d -exec rm -f {} +
    ;;
copy)
    _rung_from=$(readlink -f -- "$1/$2") || { echo "$2 is gone" >&2; exit 1; }
    [ -f "$_rung_from" ] || [ -d "$_rung_from" ] || { echo "$2 is no file and no folder" >&2; exit 1; }
    _rung_draft="$3/.rung-copy"
    mkdir -p -- "$3"
    rm -rf -- "$_rung_draft"
    cp -RPp -- "$_rung_from" "$_rung_draft"
    find "$_rung_draft" ! -type f ! -type d -exec rm -f {} +
    rm -rf -- "${3:?}/${4:-$2}"
    mv -f -- "$_rung_draft" "$3/${4:-$2}"
    ;;
sums)
    [ -e "$1" ] || exit 0
    cd -P -- "$1"
    find "./$2" -type f ! -path "$_rung_break" -exec sha256sum {} + 2>/dev/null || :
    ;;
remove)
    for _rung_path; do
        # The job may have closed folders of it to us: each is opened before find goes into it.
        find "$_rung_path" -type d -exec chmod u+rwx {} \; 2>/dev/null || :
        rm -rf -- "${_rung_path:?}"
    done
    ;;
sizes)
    for _rung_path; do
        if [ -e "$_rung_path" ] || [ -L "$_rung_path" ]; then printf '0\t%s\n' "$_rung_path"; fi
    done
    exec 3>&1
    # One call for all of them: it counts a file with several names once, and prints only its first name.
    _rung_errors=$(du -sk -- "$@" 2>&1 >&3) || :
    case $_rung_errors in *"ermission denied"*) echo incomplete ;; esac
    echo complete
    ;;
files)
    [ -e "$1" ] || { echo complete; exit 0; }
    [ ! -L "$1" ] || { echo "$1 is a link" >&2; exit 1; }
    cd -P -- "$1"
    ls -a . >/dev/null
    exec 3>&1
    _rung_print find . -type f '(' -path "./$2" -o -path "./$2/*" ')' ! -path "$_rung_break" \
        -exec stat -c '%f %s %Y %n' {} +
    echo complete
    ;;
gather)
    _rung_from=$1 _rung_to=$2
    ulimit -f $(($3 / 512 + 1))
    shift 3
    for _rung_name; do
        [ -f "$_rung_from/$_rung_name" ] && [ ! -L "$_rung_from/$_rung_name" ] || { echo "$_rung_name is gone" >&2; exit 1; }
        case $_rung_name in
        */*) mkdir -p -- "$_rung_to/${_rung_name%/*}" ;;
        *) mkdir -p -- "$_rung_to" ;;
        esac
        cp -Ppl -- "$_rung_from/$_rung_name" "$_rung_to/$_rung_name" 2>/dev/null ||
            cp -Pp -- "$_rung_from/$_rung_name" "$_rung_to/$_rung_name"
    done
    find "$_rung_to" ! -type f ! -type d -exec rm -f {} +
    ;;
place)
    mkdir -p -- "$2"
    if [ -e "$2/$3" ] || [ -L "$2/$3" ]; then
        mkdir -p -- "$4"
        mv -f -- "$2/$3" "$4/"
    fi
    mv -f -- "$1/$3" "$2/"
    ;;
esac
