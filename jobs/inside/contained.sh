#!/bin/sh
# Runs one attempt in its container: exports the secrets, starts the command once, waits, and records how it ended.
# It needs only a POSIX shell, so it works in any image. It judges nothing. It prints only if it cannot go on, or if the
# kernel killed a process because memory ran out: the engine may learn that too late.
# A shell also prints a word about a command that a signal ended, such as "Killed". It says nothing about memory, and in
# the log it would look like the job's own. So the messages of this shell go nowhere; the command's go to the log.
#
#   /rung/record/began      the command was about to start
#   /rung/record/code       the exit code of the command, written by its parent
#   /rung/record/done.json  the exit code and the time, written when the command is gone
#   /rung/secrets/NAME      on a tmpfs of the host: becomes the variable NAME, and is removed at once
#
# Its names begin with _rung_, so that no secret's name can be one of them.

exec 2>/dev/null
_rung_stop=
# -1 is every other process. Only in the first process of a container are those all of the container.
[ $$ = 1 ] || { echo "rung: this is not the first process of a container"; exit 125; }
trap '_rung_stop=yes; kill -TERM -1' TERM
# The run seems to hang: every Python process that can show its stacks (stacks.py) is asked for them. Signal 44 ends a
# process without a handler for it, so only those get it that have one: bit 44 of the signals that they catch.
_rung_stacks() {
    echo "rung: no sign of life; the stacks of all threads of its Python processes follow"
    for _rung_pid in /proc/[0-9]*; do
        while read -r _rung_name _rung_mask; do
            case $_rung_name$_rung_mask in
            SigCgt:?????[89a-f]??????????) kill -44 "${_rung_pid#/proc/}" ;;
            esac
        done <"$_rung_pid/status"
    done
}
trap _rung_stacks USR1

if [ -e /rung/record/began ]; then
    echo "rung: this attempt has been started before; it runs once"
    exit 125
fi
# The space is reserved now, so that a run that filled the disk can still record how it ended.
if ! { printf '%128s' '' >/rung/record/done.draft && printf '%8s\n' '' >/rung/record/code &&
    : >/rung/record/began; }; then
    echo "rung: the record of this attempt cannot be written"
    exit 125
fi

for _rung_file in /rung/secrets/*; do
    [ -f "$_rung_file" ] || continue
    # The dot keeps line ends that $( ) would cut off.
    _rung_value=$(cat "$_rung_file" && echo .) || { echo "rung: a secret cannot be read"; exit 125; }
    rm -f "$_rung_file"
    export "${_rung_file##*/}=${_rung_value%.}"
done
_rung_value=

# Made here and not by the controller: what a job wrote before may lead anywhere, but not out of this container.
[ -z "${RUNG_CHECKPOINT_DIR:-}" ] || mkdir -p -- "$RUNG_CHECKPOINT_DIR" ||
    echo "rung: the checkpoint folder $RUNG_CHECKPOINT_DIR cannot be made"

export PYTHONPATH="/rung/inside${PYTHONPATH:+:$PYTHONPATH}"
# Says why, if zero-edit cannot reach the Python that trains.
[ "${RUNG_MODE:-}" != zero-edit ] || [ "${RUNG_NODE_RANK:-0}" != 0 ] || python3 -I /rung/inside/rung_inside/hands_watch.py </dev/null 2>/dev/null &
# Keeps versions of a checkpoint file that every save overwrites.
case ${RUNG_CHECKPOINT_PATTERN:-*} in
*"*"*) _rung_one_file= ;;
*) _rung_one_file=yes ;;
esac
# Of several hosts that share the folder, the first one does it.
[ "${RUNG_NODE_RANK:-0}" = 0 ] || _rung_one_file=
[ -z "$_rung_one_file" ] || python3 -I /rung/inside/rung_inside/version_watch.py </dev/null 2>/dev/null &
_rung_code=143
if [ -z "$_rung_stop" ]; then
    # The command has a shell of its own as its parent, which answers no signal: bash can lose the exit code of a
    # command that ends while it answers one. The exec is for dash, which would write its own word into the log.
    (
        trap : TERM
        (exec "$@" </dev/null 2>&1)
        printf %d $? 1<>/rung/record/code
    ) &
    _rung_child=$!
    while :; do
        wait "$_rung_child"
        _rung_code=$?
        # A signal ends the wait, not the command.
        kill -0 "$_rung_child" || break
    done
    # Without a code, the parent of the command was killed with it, and the shell's own answer holds.
    read -r _rung_value </rung/record/code
    [ -z "$_rung_value" ] || _rung_code=$_rung_value
fi

[ -z "$_rung_one_file" ] || python3 -I /rung/inside/rung_inside/version_watch.py --once </dev/null 2>/dev/null

_rung_killed=0
for _rung_file in /sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control; do
    [ -r "$_rung_file" ] || continue
    while read -r _rung_word _rung_value; do
        [ "$_rung_word" = oom_kill ] && _rung_killed=$_rung_value
    done <"$_rung_file"
done
[ "$_rung_killed" = 0 ] ||
    echo "rung: the container reached its memory limit, and the kernel killed a process: out of memory"

printf '{"exit_code": %d, "ended_at": %d}' "$_rung_code" "$(date +%s)" 1<>/rung/record/done.draft
mv -f /rung/record/done.draft /rung/record/done.json
exit "$_rung_code"
