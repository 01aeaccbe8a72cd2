#!/bin/sh
# getenv.sh SOURCE: a program with more rights than its user follows no variable that names a file, a library or a fault.
# So all of lib and plugins asks secure_getenv, except where a level of the log and the ranks of a launcher are read.
set -eu
cd "$1"
found=$(grep -rnE '(^|[^_[:alnum:]])getenv\(' lib plugins | grep -vE '^lib/(base/log|comm/environment)\.cc:' || true)
[ -z "$found" ] || { printf '%s\n' "$found" "ask secure_getenv"; exit 1; }
[ "$(grep -rlE 'secure_getenv\(' lib | wc -l)" -gt 5 ] || { echo "lib asks for no variable; is this the source?"; exit 1; }
