#!/bin/sh
# static.sh BUILD: programs that link the archives. The GPT example, built away from the source, trains under one
# strategy after the other to the same losses and parameters whether it has libgsel.so and plugin files, libgsel.a and
# libgsel_plugins.a, or nothing but itself (-static), in a folder that holds nothing else and is its root where this user
# may call chroot.
. "$SOURCE/tests/install/common.sh"
cd "$WORK"
gpt=$SOURCE/examples/gpt
mkdir root root/bin
cat "$SOURCE"/docs/*.md > root/text

# What the archives show: the names of the map and of the plugins, and no other.
shown() {
  nm -g --defined-only "$STAGE_LIB/lib$1.a" | awk 'NF == 3 { print $3 }' | LC_ALL=C sort
}
expect "names of libgsel.a" "$(cat "$SOURCE/tests/abi/symbols.txt")" "$(shown gsel)"
expect "names of libgsel_plugins.a that strategies.h lacks" "" \
  "$(shown gsel_plugins | while read -r name; do grep -qw "$name" "$SOURCE/include/gsel/strategies.h" || echo "$name"; done)"

$CXX -std=c++17 -Wall -Wextra -Werror "$SOURCE/tests/install/c/clash.cc" $(pkg-config --cflags --libs gsel-static) -o clash
expect_run "a program with names of libgsel's inside" "libgsel GSEL_OK, find_plugins(1) of the program" ./clash

for file in kernels blocks; do
  $CC -O3 -ffast-math -c "$gpt/$file.c" -o "$file.o" $(pkg-config --cflags gsel openblas)
done
for file in model layers ring device_layers device_ring data options sample record main; do
  $CC -O2 -D_DEFAULT_SOURCE -c "$gpt/$file.c" -o "$file.o" $(pkg-config --cflags gsel openblas)
done
for file in gpu products image; do
  $CC -O2 -D_DEFAULT_SOURCE -c "$gpt/cuda/$file.c" -o "$file.o" $(pkg-config --cflags gsel openblas)
done
$CC -O2 -D_DEFAULT_SOURCE -Dmain=gpt_main -c "$gpt/main.c" -o gpt_main.o $(pkg-config --cflags gsel openblas)
$CC -Wall -Wextra -Werror -c "$SOURCE/tests/install/c/linked.c" $(pkg-config --cflags gsel)
sed -n '/^<!-- block: file no_udev.c/,/^```$/p' "$SOURCE/docs/packaging.md" | grep -v -e '^```' -e '^<!--' > no_udev.c
$CC -Wall -Wextra -Werror -c no_udev.c
parts="model.o layers.o ring.o data.o options.o sample.o record.o kernels.o blocks.o device_layers.o device_ring.o gpu.o products.o image.o"
blas="$(pkg-config --libs-only-L openblas) -lopenblas -lm"
$CC main.o $parts $(pkg-config --libs gsel) $blas -o shared
$CC linked.o gpt_main.o $parts $(pkg-config --libs gsel-static) $blas -o root/bin/archives
$CC -static linked.o gpt_main.o $parts no_udev.o -lgsel_plugins $(pkg-config --static --libs gsel) $blas -o root/bin/alone 2> static.log ||
  { cat static.log; exit 1; }
expect_alone root/bin/archives
case $(readelf -l root/bin/alone) in *INTERP*) fault "alone needs a dynamic linker" ;; esac

# train NAME FOLDER COMMAND...: losses, and a hash of the parameters of each of the $ranks ranks, from a record in FOLDER
train() {
  name=$1 folder=$2
  shift 2
  OPENBLAS_NUM_THREADS=1 GSEL_CONFIG= gsel run -n "$ranks" -- "$@" --steps 3 --quiet --layers 2 --width 32 --heads 4 --context 32 \
    > log 2>&1 || { echo "$name:" >&2; cat log >&2; exit 1; }
  grep -oE '"(loss|hash|param_hash|strategy)": [^,]*' "$folder/record"
}
inside=
if chroot root /bin/alone --help > /dev/null 2>&1; then
  inside="chroot root"
else
  echo "alone runs outside of an empty root: chroot needs root"
fi
for strategy in dp zero2 pp-1f1b tp pp-tp; do
  ranks=2
  [ "$strategy" != pp-tp ] || ranks=4
  cp "$gpt/strategies/$strategy.toml" root/toml
  train "$strategy, shared" . ./shared --data root/text --config root/toml --json record > "$strategy.shared"
  expect "lines of $strategy" $((4 + ranks)) "$(wc -l < "$strategy.shared")"
  train "$strategy, archives" . root/bin/archives --data root/text --config root/toml --json record > "$strategy.archives"
  if [ -n "$inside" ]; then
    train "$strategy, alone" root chroot root /bin/alone --data /text --config /toml --json /record > "$strategy.alone"
  else
    train "$strategy, alone" root root/bin/alone --data root/text --config root/toml --json root/record > "$strategy.alone"
  fi
  for how in archives alone; do
    diff "$strategy.shared" "$strategy.$how" || fault "$strategy: $how (>) trains otherwise than shared (<)"
  done
done
