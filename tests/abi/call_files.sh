#!/bin/sh
# call_files.sh PROGRAM MOST: the files of lib/ that a small allreduce goes through, as valgrind saw them, one line each;
# headers behind the sources. More than MOST sources are an error: whoever follows a call reads them all.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
process=$(valgrind -q --tool=callgrind --toggle-collect=gsel_allreduce --callgrind-out-file="$folder/%p" "$1")
sed -n 's,^\(fl\|fi\|fe\|cfi\|cfl\)=.*/\(lib/[a-z0-9_/]*\.[a-z]*\)$,\2,p' "$folder/$process" | sort -u > "$folder/files"
grep '\.cc$' "$folder/files"
grep -v '\.cc$' "$folder/files"
sources=$(grep -c '\.cc$' "$folder/files")
echo "$sources sources"
[ "$sources" -gt 8 ] || { echo "these are too few to be all of them: was the library built without debug information?"; exit 1; }
[ "$sources" -le "$2" ] || { echo "expected $2 sources at most"; exit 1; }
