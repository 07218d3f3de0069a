#!/bin/sh
# Owns the life of one attempt in its container: hands over the secrets, starts the command once, waits, and writes how
# it ended. Any POSIX shell will do, so that any image will. It must not judge anything, and it prints nothing of its own
# unless it cannot go on, or the kernel killed something for want of memory: the engine may hear of that too late.
#
#   /rung/record/began      the command was about to start
#   /rung/record/done.json  the exit code and the time, written when the command is gone
#   /rung/secrets/NAME      on a tmpfs of the host: becomes the variable NAME, and is removed at once
#
# Its names begin with _rung_, so that no secret's name can be one of them.

exec 2>&1
_rung_stop=
# -1 is every process but this one; only as the first process of a container does that mean nobody else's.
[ $$ = 1 ] || { echo "rung: this is not the first process of a container"; exit 125; }
trap '_rung_stop=yes; kill -TERM -1' TERM

if [ -e /rung/record/began ]; then
    echo "rung: this attempt has been started before; it runs once"
    exit 125
fi
# Its place on the disk is taken now: a run that filled the disk can still say how it ended.
if ! { printf '%128s' '' >/rung/record/done.draft && : >/rung/record/began; }; then
    echo "rung: the record of this attempt cannot be written"
    exit 125
fi

for _rung_file in /rung/secrets/*; do
    [ -f "$_rung_file" ] || continue
    # The dot keeps line ends that $( ) would cut off.
    _rung_value=$(cat "$_rung_file" && echo .) || exit 125
    rm -f "$_rung_file"
    export "${_rung_file##*/}=${_rung_value%.}"
done
_rung_value=

export PYTHONPATH="/rung/inside${PYTHONPATH:+:$PYTHONPATH}"
_rung_code=143
if [ -z "$_rung_stop" ]; then
    "$@" </dev/null &
    _rung_child=$!
    while :; do
        wait "$_rung_child"
        _rung_code=$?
        # A signal ends the wait, not the command.
        kill -0 "$_rung_child" 2>/dev/null || break
    done
fi

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
