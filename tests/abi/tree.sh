# tree.sh: a small source tree in $work/tree, for tests that show that a check can fail; removed at the end.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# put FILE LINE...: a file of the tree
put() {
  mkdir -p "$work/tree/$(dirname "$1")"
  file=$1
  shift
  printf '%s\n' "$@" > "$work/tree/$file"
}
