#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs once inside the new system (debian_image.py): fills /opt/alibi-bench with what the rows of
# bench/linux/debian.inc work on, and has the service started at each boot.
set -eu
export LC_ALL=C HOME=/root
here=$(dirname "$0")
work=/opt/alibi-bench
mkdir "$work"

# Lua, and SQLite as the one file that its own makefile makes of it, from Debian's source packages.
sources=$(mktemp -d)
cd "$sources"
apt-get -q source --download-only lua5.4 sqlite3
mkdir lua sqlite
tar -xf lua5.4_*.orig.tar.* --strip-components=1 -C lua
tar -xf sqlite3_*.orig.tar.* --strip-components=1 -C sqlite
(cd sqlite && ./configure --disable-tcl && make sqlite3.c)
mkdir "$work/lua"
cp lua/src/*.c lua/src/*.h "$work/lua"
cp sqlite/sqlite3.c "$work"
cat "$work"/lua/*.c "$work/sqlite3.c" >"$work/text"

for file in nested.c words.cc snippets.py reports.pl forkwait.c Orders.java nginx.conf web.sh swap.sh pressure.c scene.pov; do
  cp "$here/$file" "$work"
done
(cd "$work" && gcc -g -O0 -o nested nested.c && gcc -O2 -o forkwait forkwait.c && gcc -O2 -o pressure pressure.c && javac Orders.java)
mkdir "$work/formulas" "$work/pages"
python3 "$here/formulas.py" "$work/formulas" 8
head -c 4K "$work/text" >"$work/pages/small"
head -c 1M "$work/text" >"$work/pages/large"
# It serves when a row has it served.
systemctl disable nginx.service

# A history of 300 commits, each object a file of its own, as after a while of work.
export GIT_AUTHOR_NAME=alibi GIT_AUTHOR_EMAIL=alibi@localhost
export GIT_COMMITTER_NAME=alibi GIT_COMMITTER_EMAIL=alibi@localhost
git init -q -b main "$work/repository"
cp "$work"/lua/* "$work/repository"
cd "$work/repository"
commit=0
while [ $commit -lt 300 ]; do
  file=$(ls | sed -n "$((commit % 60 + 1))p")
  echo "/* change $commit */" >>"$file"
  date="2026-01-01T00:00:00 +$(printf '%04d' $commit)"
  git add .
  GIT_AUTHOR_DATE=$date GIT_COMMITTER_DATE=$date git -c gc.auto=0 commit -q -m "Change $commit"
  commit=$((commit + 1))
done

cp "$here/alibi-bench.service" /etc/systemd/system
cp "$here/guest.sh" "$work/guest.sh"
systemctl enable alibi-bench.service
dpkg-query -W >/opt/alibi-packages
rm -rf "$sources"
