#!/bin/sh
# Runs one attempt in a batch job of a cluster: exports the secrets, starts the command once, waits, and records how it
# ended. It needs only a POSIX shell, so it works on any node. It judges nothing, and prints only if it cannot go on.
#
#   batched.sh RECORD FOLDER SAVE COMMAND...
#
#   FOLDER            where the command starts
#   SAVE              the number of the signal at which the command saves, as its time is nearly up; 0: there is none
#   RECORD/began      the command was about to start: the batch job, the time and the node
#   RECORD/done.json  the exit code and the time, written when the command is gone; `told` if the cluster said before
#                     that the time was nearly up
#   RECORD/gpus       the GPUs of the job on the first node, as its driver lists them
#   RECORD/code       the exit code of the command, written by its parent
#   RECORD/environment  sets the variables of the command; it is read by this shell
#   RECORD/secrets    each file NAME in it becomes the variable NAME, and is removed at once
#
# Signals: TERM ends the command, USR2 says that its time is nearly up, USR1 asks for the stacks of its processes.
# Its names begin with _rung_, so that no secret's name can be one of them.

_rung_record=$1 _rung_folder=$2 _rung_save=$3
shift 3
# The messages of this shell go nowhere, such as "Killed"; the command's go to the log.
exec 2>/dev/null
_rung_stop= _rung_told=false _rung_child=
# The command has a shell of its own as its parent, which answers no signal: bash can lose the exit code of a command
# that ends while it answers one. $0 is the file for the code. The exec is for dash, which would write its own word,
# such as "Killed", into the log.
_rung_parent='trap : TERM; (exec "$@" </dev/null 2>&1); printf %d $? 1<>"$0"'
# That shell leads a session, so its number is that of the command's group. A minus in front of it means the group.
_rung_tell() {
    [ -z "$_rung_child" ] || kill "-$1" "-$_rung_child"
}
# Sends a signal to those processes of the command that have a handler for it: it would end all others. $1 is its
# number; the mask of a process counts its signals from the right, four to a digit.
_rung_ask() {
    [ -n "$_rung_child" ] || return 0
    for _rung_pid in /proc/[0-9]*; do
        read -r _rung_line <"$_rung_pid/stat" || continue
        # Podman would pass it on to a command that may have no handler for it.
        case $_rung_line in *"(podman) "*) continue ;; esac
        # The name before it may hold anything. Behind it: state, parent, group, session.
        set -- "$1" ${_rung_line##*) }
        [ "$5" = "$_rung_child" ] || continue
        while read -r _rung_name _rung_mask; do
            [ "$_rung_name" = SigCgt: ] || continue
            _rung_digits=$((($1 - 1) / 4))
            while [ "$_rung_digits" -gt 0 ]; do
                _rung_mask=${_rung_mask%?} _rung_digits=$((_rung_digits - 1))
            done
            _rung_digit=$((0x${_rung_mask##${_rung_mask%?}}))
            [ $((_rung_digit >> (($1 - 1) % 4) & 1)) = 0 ] || kill "-$1" "${_rung_pid#/proc/}"
        done <"$_rung_pid/status"
    done
}
_rung_stacks() {
    echo "rung: no sign of life; the stacks of all threads of its Python processes follow"
    _rung_ask 44
}
_rung_nearly_up() {
    _rung_told=true
    [ "$_rung_save" = 0 ] || _rung_ask "$_rung_save"
}
# Records the end, and ends this job with the same code.
_rung_end() {
    printf '{"exit_code": %d, "began_at": %d, "ended_at": %d, "told": %s, "node": "%s"}' \
        "$1" "$_rung_began" "$(date +%s)" "$_rung_told" "$_rung_node" 1<>"$_rung_record/done.draft"
    mv -f "$_rung_record/done.draft" "$_rung_record/done.json"
    exit "$1"
}
trap '_rung_stop=yes; _rung_tell TERM' TERM
trap _rung_stacks USR1
trap _rung_nearly_up USR2

# Making a folder either works or fails for everybody, on a shared file system too. A batch job that a cluster starts a
# second time finds it.
if ! mkdir "$_rung_record/claim"; then
    echo "rung: this attempt has been started before; it runs once"
    exit 125
fi
# A batch job starts with nothing but Slurm's own variables.
export PATH="${PATH:-/usr/local/bin:/usr/bin:/bin}"
_rung_node=${SLURM_JOB_NODELIST:-} _rung_began=$(date +%s)
# Which GPUs they are, where the node has a driver: the cluster names them by their numbers alone.
[ -z "${CUDA_VISIBLE_DEVICES:-}" ] || timeout 20 nvidia-smi -i "$CUDA_VISIBLE_DEVICES" \
    --query-gpu=index,uuid,memory.total,driver_version,compute_cap,name --format=csv,noheader,nounits \
    </dev/null >"$_rung_record/gpus"
# The space is reserved now, so that a run that filled the disk can still record how it ended.
if ! { printf '%400s' '' >"$_rung_record/done.draft" && printf '%8s\n' '' >"$_rung_record/code" &&
    printf '%s %s %s\n' "${SLURM_JOB_ID:-}" "$_rung_began" "$_rung_node" >"$_rung_record/began.draft" &&
    mv -f "$_rung_record/began.draft" "$_rung_record/began"; }; then
    echo "rung: the record of this attempt cannot be written"
    exit 125
fi

[ -n "${HOME:-}" ] || HOME=$(cd ~ && pwd)
export HOME
[ -r "$_rung_record/environment" ] || { echo "rung: the environment of this attempt is not there"; _rung_end 125; }
. "$_rung_record/environment"
for _rung_file in "$_rung_record"/secrets/*; do
    [ -f "$_rung_file" ] || continue
    # The dot keeps line ends that $( ) would cut off.
    _rung_value=$(cat "$_rung_file" && echo .) || { echo "rung: a secret cannot be read"; _rung_end 125; }
    rm -f "$_rung_file"
    _rung_value=${_rung_value%.}
    if [ -n "${RUNG_ENVIRONMENT:-}" ]; then
        # Only the command in the container gets it, and not the tool that starts the container.
        _rung_value=$(printf %s. "$_rung_value" | sed "s/'/'\\\\''/g")
        RUNG_ENVIRONMENT="$RUNG_ENVIRONMENT
export ${_rung_file##*/}='${_rung_value%.}'"
    else
        export "${_rung_file##*/}=$_rung_value"
    fi
done
rmdir "$_rung_record/secrets"
_rung_value=

cd "$_rung_folder" || { echo "rung: there is no folder $_rung_folder on this node"; _rung_end 125; }
_rung_code=143
if [ -z "$_rung_stop" ]; then
    setsid /bin/sh -c "$_rung_parent" "$_rung_record/code" "$@" &
    _rung_child=$!
    while :; do
        wait "$_rung_child"
        _rung_code=$?
        # A signal ends the wait, not the command.
        kill -0 "$_rung_child" || break
    done
    # Without a code, the parent of the command was killed with it, and the shell's own answer holds.
    read -r _rung_value <"$_rung_record/code"
    [ -z "$_rung_value" ] || _rung_code=$_rung_value
    # What the command left behind ends with it.
    _rung_tell KILL
fi

_rung_end "$_rung_code"
