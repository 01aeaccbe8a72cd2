#!/bin/sh
# bundle.sh BUILD OUT: what test-gpu and bench-gpu run, out of the build tree BUILD, in a folder that a machine with a card
# can run without building: programs, plugins, and the libraries that they need but for the system's and the driver's.
# There: OUT/test.sh, OUT/bench.sh RESULTS. The machine needs the same processor architecture and a C library at least as
# new; and gsel loads plugins only from folders that nobody else may write to, which one below /tmp is not.
set -eu
build=$(cd "$1" && pwd) source=$(cd "$(dirname "$0")/../.." && pwd)
rm -rf "$2"
mkdir -p "$2/bin" "$2/lib/needed" "$2/lib/gsel/plugins-1" "$2/tests/fixtures" "$2/source/tests" "$2/source/examples/gpt" \
  "$2/source/bench/train"
out=$(cd "$2" && pwd)
for program in gsel gpt gpt-compare bench_device bench_executor bench_nccl bench_gpt bench_ways bench_hidden allreduce_cuda; do
  [ ! -e "$build/bin/$program" ] || cp -L "$build/bin/$program" "$out/bin/"
done
for test in gpu_cuda_masks conformance_device cuda_gpt_kernels cuda_gpt_products cuda_gpt_ring cuda_gpt cuda_train \
  cuda_train_checkpoints cuda_train_graph cuda_train_offload cuda_train_own cuda_train_pipeline cuda_train_tensor; do
  cp -L "$build/tests/$test" "$out/tests/"
done
cp -P "$build"/lib/libgsel.so* "$out/lib/"
for plugin in cuda cuda_ipc nccl dp ddp zero pp tp cp; do cp -L "$build/lib/gsel/plugins-1/$plugin.so" "$out/lib/gsel/plugins-1/"; done
cp -L "$build"/tests/fixtures/fake_lib*.so "$out/tests/fixtures/"
cp -RP "$build/tests/fixtures/drivers" "$out/tests/fixtures/"
cp -R "$source/docs" "$source/tests/gpu" "$out/source/"
cp -R "$source/tests/data" "$source/tests/gpu" "$out/source/tests/"
cp -R "$source/examples/gpt/strategies" "$out/source/examples/gpt/"
cp -R "$source/bench/gpu" "$out/source/bench/"
cp "$source/bench/train/torch_gpt.py" "$out/source/bench/train/"
rm -rf "$out/source/gpu"

# Libraries of other packages. Those of the C library and the driver are the machine's own.
for file in "$out"/bin/* "$out"/tests/* "$out"/lib/libgsel.so "$out"/lib/gsel/plugins-1/*.so; do
  [ ! -f "$file" ] || ldd "$file" 2> /dev/null || :
done | sed -n 's/^[[:space:]]*\([^ ]*\) => \(\/[^ ]*\) .*/\1 \2/p' | sort -u | while read -r name path; do
  case $name in
    libc.so.* | libm.so.* | libmvec.so.* | libdl.so.* | libpthread.so.* | librt.so.* | libresolv.so.* | ld-linux* | libcuda.so.* | libnccl.so.* | libgsel.so.*) ;;
    *) cp -L "$path" "$out/lib/needed/$name" ;;
  esac
done
find "$out/bin" "$out/tests" "$out/lib" -type f -exec strip --strip-debug {} + 2> /dev/null || : # scripts and data stay
cat > "$out/test.sh" <<'TEXT'
#!/bin/sh
here=$(cd "$(dirname "$0")" && pwd)
exec "$here/source/tests/gpu/run.sh" "$here" "$here/source" "$@"
TEXT
cat > "$out/bench.sh" <<'TEXT'
#!/bin/sh
# bench.sh RESULTS [double]
here=$(cd "$(dirname "$0")" && pwd)
results=$1
shift
exec "$here/source/bench/gpu/run.sh" "$here" "$results" "$here/source" "$@"
TEXT
chmod +x "$out/test.sh" "$out/bench.sh"
echo "gsel: wrote $out, $(du -sh "$out" | cut -f 1)"
