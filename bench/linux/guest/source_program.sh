#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# linuxbench as a script that makes itself out of its sources, for guests whose programs are of another
# size than the host's: they have a compiler, and the host may have none for them. Of its rows it has
# those of debian.inc.
#   usage: source_program.sh FILE...   the files, with their folders; to stdout
set -eu
cat <<'END'
#!/bin/sh
set -eu
work=$(cd "$(dirname "$0")" && pwd)/program
export TMPDIR="$work"
END
for file; do
  printf 'mkdir -p "$work/%s"\ncat >"$work/%s" <<'"'@@END OF FILE'"'\n' "$(dirname "$file")" "$file"
  cat "$file"
  printf '@@END OF FILE\n'
done
# What lies behind the last line, on a disk of whole sectors, is not read.
cat <<'END'
cd "$work"
gcc -std=gnu11 -O2 -DALIBI_ONLY_DEBIAN -I. -o linuxbench bench/linux/guest/*.c
exec "$work/linuxbench" "$@"
END
