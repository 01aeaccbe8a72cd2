#!/bin/sh
# replay.sh GSEL SOURCE DOCUMENT [update]: runs every command that the document shows, on the recorded machines of
# tests/data/inventory, and compares what it prints with what the document says; with `update` the document is
# written anew instead. The same with pictures, which stand in the folder pictures beside the document:
#   <!-- drawn by: COMMAND --svg NAME -->
set -eu
gsel=$1 source=$2 document=$3
new=$(mktemp)
locks=$(mktemp -d)
trap 'rm -rf "$new" "$locks"' EXIT
cd "$source/tests/data/inventory"
env -i PATH="$(dirname "$gsel"):/usr/bin:/bin" GSEL_RESERVE_FOLDER="$locks" awk -f "$source/tests/docs/replay.awk" "$source/$document" > "$new"
pictures=$source/$(dirname "$document")/pictures
sed -n 's/^<!-- drawn by: \(.*\) -->$/\1/p' "$source/$document" > "$locks/drawings"
while read -r drawing; do
  name=${drawing##* }
  (cd "$locks" && env -i PATH="$(dirname "$gsel"):/usr/bin:/bin" sh -c "$drawing")
  if [ "${4:-}" = update ]; then cp "$locks/$name" "$pictures/$name"; fi
  cmp "$pictures/$name" "$locks/$name" || { echo "$drawing draws another picture than $pictures/$name"; exit 1; }
done < "$locks/drawings"
if [ "${4:-}" = update ]; then
  cp "$new" "$source/$document"
  exit 0
fi
grep -q '^\$ gsel\|^\$ [A-Z].* gsel' "$new" || { echo "$document shows no command of gsel"; exit 1; }
diff -u "$source/$document" "$new" || {
  echo "$document does not show what the commands print; tests/docs/replay.sh $gsel $source $document update"
  exit 1
}
