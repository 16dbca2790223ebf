# SPDX-License-Identifier: Apache-2.0
# Runs a program on a machine that is reached by SSH, and removes all that was copied for it.
#
# Before this text, variables are set: mark (a word that begins each line for umakit), place (the
# folder for the temporary one; empty for the machine's choice), bytes (size of the tar archive on
# standard input), seconds (limit for the program) and the program's arguments. Standard input
# stays open as long as somebody wants the result: its end is that of a lost connection.
umask 077
exec 3<&0 </dev/null
folder= program= watch= limit=

say() {
    printf '\n%s %s\n' "$mark" "$*"
}

finish() {
    trap '' HUP INT TERM PIPE
    for each in $watch $limit; do
        kill -s USR1 "$each" 2>/dev/null
    done
    [ -z "$program" ] || kill -9 "$program" 2>/dev/null
    wait
    cd / && [ -z "$folder" ] || rm -rf "$folder"
}

trap finish EXIT
trap 'exit 1' HUP INT TERM PIPE

made=$(mktemp -d "${place:-${TMPDIR:-/tmp}}/umakit-XXXXXX" 2>&1) || {
    say "refused $made"
    exit 1
}
folder=$made
cd "$folder" || exit 1
unpacked=$(head -c "$bytes" <&3 | tar -xf - 2>&1) && [ -f program ] || {
    say "refused" $unpacked
    exit 1
}
say started
./program "$@" >.report 2>.messages 3<&- &
program=$!

# The program ends when standard input does, or when its time is up. A subshell that is told to end
# ends what it waits for, too. It is told by a signal that has no trap here: of others, one that
# comes before the subshell has let go of the traps of this shell would be lost.
{
    trap '[ "$!" = "$program" ] || kill "$!"; exit 0' USR1
    cat <&3 &
    wait "$!"
    kill -9 "$program"
} >/dev/null 2>&1 &
watch=$!
{
    trap '[ "$!" = "$program" ] || kill "$!"; exit 0' USR1
    sleep "$seconds" &
    wait "$!"
    : >.late
    kill -9 "$program"
} >/dev/null 2>&1 3<&- &
limit=$!

wait "$program" 2>/dev/null
code=$?
program=
full=
if [ "$code" != 0 ]; then
    full=$(dd if=/dev/zero of=.room bs=65536 count=1 2>&1) && full=
    rm -f .room
fi
rm -f program "$1"
say "ended $code $(uname -m)" $full
tar -cf - .
