#!/bin/sh
# bring.sh FOLDER: PCCL as PyPI has it, for bench_peer_pccl: leaves FOLDER/run, which runs a program whose libraries it is to
# find. Its one wheel is for CPython 3.12, of which nothing is needed but libpccl.so; that asks for glibc 2.38 and the C++
# library of GCC 13, which Debian 12 has not, so that there the program runs on those of Debian 13, unpacked beside it; and
# for libcuda.so.1, of which a stand-in without devices is made where there is none. Nothing is installed.
set -eu
mkdir -p "$1"
folder=$(realpath "$1")
[ ! -x "$folder/run" ] || exit 0
cd "$folder"
say() {
  echo "bring.sh: $*" >&2
  exit 1
}
python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --implementation cp --python-version 3.12 \
  --platform manylinux_2_17_x86_64 --dest . pypccl==1.0.0 > pip.log 2>&1 || say "pip: $(tail -n 1 pip.log)"
python3 -m zipfile -e pypccl-1.0.0-*.whl .
libraries=$folder/pccl
loader=
if ! ldd pccl/libpccl.so 2>&1 | grep -q 'GLIBC'; then
  : # this system's are new enough
else
  mkdir -p apt/state/lists/partial apt/cache/archives/partial
  archive=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -m 1 '/debian/$') || say "apt names no archive of Debian"
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $archive trixie main" > apt/sources.list
  of_debian_13() {
    apt-get -q -o Dir::Etc::SourceList="$folder/apt/sources.list" -o Dir::Etc::SourceParts=/dev/null -o Dir::State="$folder/apt/state" \
      -o Dir::State::status=/dev/null -o Dir::Cache="$folder/apt/cache" -o APT::Sandbox::User=root "$@" >> apt.log 2>&1 ||
      say "apt-get $1 of Debian 13: $(tail -n 1 apt.log)"
  }
  of_debian_13 update
  of_debian_13 download libc6 libstdc++6 libgcc-s1 libgomp1
  for package in ./*.deb; do dpkg-deb -x "$package" system; done
  newer=$folder/system/usr/lib/$(uname -m)-linux-gnu
  libraries=$libraries:$newer
  loader=$(ls "$newer"/ld-linux-*.so.2)
fi
ldconfig -p | grep -q 'libcuda.so.1 ' || {
  nm -D --undefined-only pccl/libpccl.so | sed -n 's/^ *U \(cu[A-Z][A-Za-z0-9_]*\)$/int \1(void) { return 100; }/p' > cuda.c
  cc -shared -fPIC -Wl,-soname,libcuda.so.1 -o pccl/libcuda.so.1 cuda.c
}
if [ -n "$loader" ]; then
  printf '#!/bin/sh\nexec "%s" --library-path "%s" "$@"\n' "$loader" "$libraries" > run.part
else
  printf '#!/bin/sh\nexport LD_LIBRARY_PATH="%s"\nexec "$@"\n' "$libraries" > run.part
fi
chmod +x run.part
mv run.part run
