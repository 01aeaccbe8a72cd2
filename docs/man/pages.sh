#!/bin/sh
# pages.sh SOURCE OUT VERSION DATE: writes the manual pages of section 3 to OUT. Names that share a page are links to it.
set -eu
source=$1 out=$2 version=$3 date=$4
rm -rf "$out"
mkdir -p "$out"
links=$(mktemp)
trap 'rm -f "$links"' EXIT
export LC_ALL=C
awk -v out="$out" -v links="$links" -v map="$source/lib/api/libgsel.map" -v version="$version" -v date="$date" \
  -f "$source/docs/man/man3.awk" "$source"/include/gsel/*.h
cd "$out"
while read -r page name; do
  [ -e "$name.3" ] || ln -s "$page.3" "$name.3"
done < "$links"
