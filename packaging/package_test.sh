#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The packages as a user has them, installed by dpkg to a root of this test's (this system stays as it
# is): the examples are built against it with g++, CMake and gcc, and run; so is the program.
#
# Usage: package_test.sh ALIBI.deb PYTHON3-ALIBI.deb EMBED_TEST EMBED_SMP_TEST EXPORTED_SYMBOLS
set -euo pipefail
deb=$PWD/$1 python_deb=$PWD/$2 embed_test=$PWD/$3 embed_smp_test=$PWD/$4 exported=$PWD/$5
root=$TEST_TMPDIR/root
libraries=$root/usr/lib/x86_64-linux-gnu
examples=$root/usr/share/doc/alibi/examples
export LD_LIBRARY_PATH=$libraries LC_ALL=C.UTF-8

fail() {
  printf 'package_test: %s\n' "$*" >&2
  exit 1
}

# Debian's tools, whatever else this user's PATH has in front.
export PATH=/usr/bin:/bin:/usr/sbin:/sbin
for tool in dpkg pkg-config cmake lintian man; do
  command -v "$tool" >/dev/null || fail "$tool is missing; ./alibi setup installs it"
done

# What this system has installed counts: so a dependency that Debian does not have fails here.
mkdir -p "$root"/var/lib/dpkg/{info,updates,triggers}
cp /var/lib/dpkg/status "$root/var/lib/dpkg/status"
packages() {
  dpkg --root="$root" --log=/dev/null --force-not-root,script-chrootless "$@" \
    >"$TEST_TMPDIR/dpkg" 2>&1
}
packages --install "$deb" ||
  fail "dpkg does not install it: $(grep -v 'files list file' "$TEST_TMPDIR/dpkg")"
if nm -D "$libraries/libalibi.so" | grep -q '__[at]san_init'; then
  echo "skipped: programs without the sanitizer cannot load a library with it"
  exit 0
fi
version=$(dpkg-deb -f "$deb" Version)
[[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] || fail "the version is '$version'"

# --- What it says of itself ---
[[ $("$root/usr/bin/alibi" --version) == "alibi $version" ]] || fail "alibi --version: not $version"
soname=$(objdump -p "$libraries/libalibi.so" | awk '$1 == "SONAME" {print $2}')
[[ $soname == "libalibi.so.${version%%.*}" ]] || fail "the soname is $soname"
api=${version%%.*}
[[ $api != 0 ]] || api=${version%.*}
nm -D --defined-only --with-symbol-versions "$libraries/libalibi.so" | awk '{print $3}' |
  LC_ALL=C sort >"$TEST_TMPDIR/symbols"
diff -u <(sed "s/\$/@@ALIBI_$api/" "$exported"; echo "ALIBI_$api") \
  <(grep @ "$TEST_TMPDIR/symbols"; grep -v @ "$TEST_TMPDIR/symbols") ||
  fail "libalibi.so exports something else than packaging/exported_symbols.txt lists"

# --- The headers: nothing but the package's and the system's, in each language on its own ---
for header in "$root"/usr/include/alibi/*.h; do
  name=alibi/${header##*/}
  printf '#include <%s>\nextern int user;\n' "$name" >"$TEST_TMPDIR/alone.cc"
  g++ -std=c++17 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -I "$root/usr/include" \
    "$TEST_TMPDIR/alone.cc" || fail "<$name> does not stand alone"
  # Those for C say so: they open with a comment of C's.
  [[ $(head -c 2 "$header") == '/*' ]] || continue
  cp "$TEST_TMPDIR/alone.cc" "$TEST_TMPDIR/alone.c"
  gcc -std=c99 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -I "$root/usr/include" \
    "$TEST_TMPDIR/alone.c" || fail "<$name> is no C"
done

# --- The examples ---
export PKG_CONFIG_LIBDIR=$libraries/pkgconfig PKG_CONFIG_SYSROOT_DIR=$root
[[ $(pkg-config --modversion alibi) == "$version" ]] || fail "pkg-config: not $version"
read -r -a flags < <(pkg-config --cflags --libs alibi)
cd "$TEST_TMPDIR"
g++ -std=c++17 -o embed "$examples/embed/embed.cc" "${flags[@]}"
"$embed_test" ./embed || fail "embed, built by g++ and pkg-config, does not run"
g++ -std=c++17 -o embed_smp "$examples/embed_smp/embed_smp.cc" "${flags[@]}" -pthread
"$embed_smp_test" ./embed_smp || fail "embed_smp, built by g++ and pkg-config, does not run"
gcc -o embed_c "$examples/embed_c/embed.c" "${flags[@]}"
"$embed_test" ./embed_c || fail "embed_c, built by gcc and pkg-config, does not run"
g++ -shared -fPIC -std=c++17 -I "$root/usr/include" -o quiet.so "$examples/policy/quiet_pages.cc"

mkdir cmake
cat >cmake/CMakeLists.txt <<CMAKE
cmake_minimum_required(VERSION 3.18)
project(embedding C CXX)
set(CMAKE_CXX_STANDARD 17)
find_package(alibi ${version%.*} REQUIRED)
add_executable(embed "$examples/embed/embed.cc")
add_executable(embed_c "$examples/embed_c/embed.c")
target_link_libraries(embed alibi::alibi)
target_link_libraries(embed_c alibi::alibi)
CMAKE
if ! (CC=gcc CXX=g++ cmake -S cmake -B cmake/out -DCMAKE_PREFIX_PATH="$root/usr" &&
  cmake --build cmake/out) >cmake/log 2>&1; then
  cat cmake/log
  fail "CMake does not build the examples"
fi
"$embed_test" cmake/out/embed || fail "embed, built by CMake, does not run"
"$embed_test" cmake/out/embed_c || fail "embed_c, built by CMake, does not run"
sed -i "s/find_package(alibi ${version%.*}/find_package(alibi $((${version%%.*} + 1)).0/" \
  cmake/CMakeLists.txt
if cmake -S cmake -B cmake/other -DCMAKE_PREFIX_PATH="$root/usr" >/dev/null 2>&1; then
  fail "find_package() takes this version for the next major one"
fi

# --- The program, with its guests and the plug-in ---
guests=$root/usr/lib/alibi/frobos
status=0
"$root/usr/bin/alibi" run --ram 16M --policy "./quiet.so(2,64)" "$guests/tests/paging.elf" \
  >guest 2>&1 || status=$?
((status == 1)) || { cat guest && fail "a guest of the package ended with status $status"; }
"$root/usr/bin/alibi" bench --quick --repeats 1 --only syscall --no-qemu --json bench.json \
  >bench 2>&1 || { cat bench && fail "alibi bench does not find its programs"; }

# --- The Python package, on top of the other ---
packages --install "$python_deb" ||
  fail "dpkg does not install it: $(grep -v 'files list file' "$TEST_TMPDIR/dpkg")"
PYTHONPATH=$root/usr/lib/python3/dist-packages PYTHONDONTWRITEBYTECODE=1 ALIBI=$root/usr/bin/alibi \
  /usr/bin/python3 -c 'import alibi; print(alibi.program())' >module 2>&1 ||
  { cat module && fail "the Python package cannot be imported"; }
[[ $(<module) == "$root/usr/bin/alibi" ]] || fail "it runs $(<module)"
packages --remove python3-alibi || fail "dpkg does not remove python3-alibi"
[[ ! -e $root/usr/lib/python3 ]] || fail "behind it are left: $(find "$root/usr/lib/python3")"

# --- Man pages and completion ---
for page in "$root"/usr/share/man/man1/*.gz; do
  warnings=$(man --warnings -l -Tutf8 -Z "$page" 2>&1 >/dev/null)
  [[ -z $warnings ]] || fail "${page##*/}: $warnings"
done
complete_words() { # the words that bash would offer for the last of these
  bash -c '. "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _alibi
    printf "%s " "${COMPREPLY[@]}"' _ "$root/usr/share/bash-completion/completions/alibi" "$@"
}
[[ $(complete_words alibi r) == 'run ' ]] || fail "completion of a command"
[[ $(complete_words alibi lab rep) == 'report replay reproduce ' ]] || fail "completion, two words"
[[ $(complete_words alibi run --stats-) == '--stats-json ' ]] || fail "completion of an option"
[[ $(complete_words alibi run --console = v) == 'virtio ' ]] || fail "completion of a value"
# Every page's options are those that the command takes: the program is asked for each.
"$root/usr/bin/alibi" --help >commands
for page in "$root"/usr/share/man/man1/alibi-*.gz; do
  name=${page##*/alibi-}
  name=${name%.1.gz}
  # A command's name may have a dash itself.
  words=("$name")
  grep -q "^  $name " commands || IFS=- read -ra words <<<"$name"
  "$root/usr/bin/alibi" "${words[@]}" --help >help
  while read -r option; do
    grep -q -e "$option" help || fail "${page##*/} has $option, alibi ${words[*]} has not"
  done < <(zcat "$page" | sed -n 's/\\-/-/g; s/^\\fB\(-[^ ]*\).*/\1/p' | sed 's/\\fR//')
done

# --- Debian's own checker ---
# Its own scratch files need room; the name must be a package's.
cp "$deb" "alibi_${version}_amd64.deb"
cp "$python_deb" "python3-alibi_${version}_all.deb"
unset LD_LIBRARY_PATH
lintian --allow-root --fail-on error,warning,info --display-info "alibi_${version}_amd64.deb" \
  "python3-alibi_${version}_all.deb" \
  >lint 2>&1 || { cat lint && fail "lintian is not content"; }

packages --remove alibi || fail "dpkg does not remove it"
[[ ! -e $root/usr ]] || fail "behind it are left: $(find "$root/usr")"
