#!/bin/sh
# Runs one short command in a batch job of a cluster, such as the check of a checkpoint, and keeps what it prints.
#
#   short_batch.sh FOLDER COMMAND...
#
#   FOLDER/environment      sets its variables; it is read by this shell
#   FOLDER/out, FOLDER/err  its output and its errors
#   FOLDER/code             its exit code, written when it has ended
set -u
_rung_folder=$1
shift
export PATH="${PATH:-/usr/local/bin:/usr/bin:/bin}"
[ -n "${HOME:-}" ] || HOME=$(cd ~ && pwd)
export HOME
. "$_rung_folder/environment"
"$@" >"$_rung_folder/out" 2>"$_rung_folder/err" </dev/null
echo $? >"$_rung_folder/code.draft"
mv -f "$_rung_folder/code.draft" "$_rung_folder/code"
