#!/bin/sh
# names_test.sh: shows that names.sh can fail: a tree with one offence of each kind among lawful lines must give exactly
# these offences, and the same tree without them must pass.
set -eu
names=$(dirname "$0")/names.sh
. "$(dirname "$0")/tree.sh"
put lib/comm/group.h 'namespace gsel {' 'class Group;' 'struct Group {' '};' '}  // namespace gsel'
put lib/comm/shm/group.h 'namespace gsel::shm {' 'struct Group {' '};' '}  // namespace gsel::shm'
put lib/comm/own.cc 'namespace gsel {' 'namespace {' 'struct Own {' '};' 'int size_of(int x) {' '}' '}  // namespace' '}  // namespace gsel'
put lib/comm/shm/own.cc 'namespace gsel {' 'namespace {' 'struct Group {' '};' 'int size_of(long x) {' '}' '}  // namespace' '}  // namespace gsel'
put plugins/strategy/dp/own.cc 'namespace gsel {' 'struct Group {' '};' '}  // namespace gsel'
mkdir -p "$work/tree/bindings"
"$names" "$work/tree" || { echo "expected no offence in a lawful tree"; exit 1; }

put lib/select/group.h 'namespace gsel {' 'class Group final : public Set {' '};' '}  // namespace gsel'
put lib/comm/other.cc 'namespace gsel {' 'namespace {' 'struct Group {' '};' 'std::map<int, long>& size_of(long x) {' '}' '}  // namespace' '}  // namespace gsel'
if "$names" "$work/tree" > "$work/got"; then
  echo "expected a failure for a tree with offences, got success"
  exit 1
fi
cat > "$work/expected" <<'LIST'
lib/comm/own.cc:5: function size_of of lib/comm is defined in lib/comm/other.cc:5, too
lib/select/group.h:2: type Group of namespace gsel is defined in lib/comm/group.h:3, too
lib/comm/other.cc:3: type Group of an anonymous namespace is defined in lib/comm/group.h, too
LIST
diff "$work/expected" "$work/got" || { echo "offences expected (<) and found (>) differ"; exit 1; }
