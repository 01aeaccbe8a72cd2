#!/bin/sh
# blocks.sh BUILD: every code block of README.md and docs/ against the stage, see blocks.py. A reader's machine is made
# here: gsel is installed in $HOME/.local, compilers warn about everything, and cargo and Go have no network.
. "$SOURCE/tests/install/common.sh"
python=/usr/bin/python3
[ -x $python ] || python=python3
mkdir -p "$WORK/home" "$WORK/bin" "$CARGO_TARGET_DIR/pages"
ln -s "$STAGE/usr" "$WORK/home/.local"
printf '#!/bin/sh\nexec %s -Wall -Wextra -Werror "$@"\n' "$CC" > "$WORK/bin/cc"
printf '#!/bin/sh\nexec %s -Wall -Wextra -Werror "$@"\n' "$CXX" > "$WORK/bin/c++"
chmod +x "$WORK/bin/cc" "$WORK/bin/c++"
export HOME_OF_READER="$WORK/home" PATH="$WORK/bin:$PATH" BUILD="$1" TARGET="$CARGO_TARGET_DIR/pages"
export CARGO_NET_OFFLINE=true RUSTFLAGS="-D warnings" GOPROXY=off GO111MODULE=on GOTOOLCHAIN=local GOPATH="$WORK/gopath"
export RUSTUP_HOME="${RUSTUP_HOME:-$HOME/.rustup}" # cargo may be rustup's, which looks for its toolchains at home
export GOCACHE="$GOCACHE-pages" # Go keeps the folders of pkg-config, here that of the reader, with what it has compiled
export GOFLAGS="-mod=readonly -buildvcs=false"
export PATH="$PATH:$1/bin" # gpt and its tools, which are not installed; gsel is that of the stage
export PYTHONDONTWRITEBYTECODE=1 OPENBLAS_NUM_THREADS=1
unset CARGO_TARGET_DIR PYTHONPATH GSEL_TUNING CUDA_VISIBLE_DEVICES CUDA_DEVICE_ORDER
exec $python "$SOURCE/tests/docs/blocks.py"
