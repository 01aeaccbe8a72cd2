#!/bin/sh
# getenv.sh SOURCE: a program with more rights than its user follows no variable that names a file, a library or a fault.
# So all of lib and plugins asks secure_getenv, except where a level of the log and the ranks of a launcher are read.
set -eu
cd "$1"
calls() { # FUNCTION: where it is called, by a name that ends there and begins there
  find lib plugins -name '*.cc' -o -name '*.h' | sort | xargs awk -v call="(^|[^_a-zA-Z0-9])$1[(]" \
    '$0 ~ call { print FILENAME ":" FNR ": " $0 }'
}
plain=$(calls getenv | awk '!/^lib\/base\/log\.cc:/ && !/^lib\/comm\/launch\/launcher\.cc:/')
[ -z "$plain" ] || { printf '%s\n' "$plain" "ask secure_getenv"; exit 1; }
[ "$(calls secure_getenv | wc -l)" -gt 5 ] || { echo "lib asks for no variable; is this the source?"; exit 1; }
