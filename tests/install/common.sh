# common.sh: read by the scripts beside it. The installation under test is the stage and nothing else is looked at:
#   STAGE       what would be / of another machine; gsel is in its usr
#   STAGE_LIB   folder of libgsel.so there
#   WORK        an empty folder of the test's own
#   SOURCE      of gsel, for what is compiled, never for headers
#   CC, CMAKE   compiler and cmake of this build
set -eu
rm -rf "$WORK"
mkdir -p "$WORK"
export PATH="$STAGE/usr/bin:$PATH"
export PKG_CONFIG_PATH="$STAGE_LIB/pkgconfig"
export LD_LIBRARY_PATH="$STAGE_LIB"
unset GSEL_CONFIG GSEL_PLUGIN_PATH GSEL_LOG RANK WORLD_SIZE

fault() {
  echo "$*"
  exit 1
}
# expect WHAT EXPECTED GOT
expect() {
  [ "$2" = "$3" ] || fault "$1: expected \"$2\", got \"$3\""
}
# expect_run WHAT EXPECTED COMMAND...: the command succeeds and prints that
expect_run() {
  what=$1 expected=$2
  shift 2
  got=$("$@") || fault "$what: exit status $? of $*, after \"$got\""
  expect "$what" "$expected" "$got"
}
# expect_alone FILE: the program needs no libgsel.so
expect_alone() {
  case $(readelf -dW "$1") in *libgsel*) fault "$1 needs libgsel.so" ;; esac
}
# expect_plugin FOLDER NAME: the installed gsel finds FOLDER/NAME.so by GSEL_PLUGIN_PATH and accepts it
expect_plugin() {
  listed=$(GSEL_PLUGIN_PATH=$1 gsel plugins)
  printf '%s\n' "$listed" | grep -E "^usable +strategy $2 " | grep -qF "  $(cd "$1" && pwd -P)/$2.so" ||
    fault "expected $1/$2.so to be usable; gsel plugins says:" "$listed"
}
