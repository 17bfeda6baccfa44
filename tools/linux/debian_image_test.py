#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""debian_image.py without Debian: what its key depends on, that an image is made once and whole, and
what is said when it cannot be. mmdebstrap and genext2fs are scripts here.

    debian_image_test.py debian_image.py
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(sys.argv.pop(1)).resolve()

MMDEBSTRAP = """#!/bin/sh
echo "made $*" >>"$LOG"
for archive; do
  case $archive in */archive.tar) break ;; esac
done
[ -z "$FAIL" ] || { echo 'I: downloading'; echo "E: $FAIL"; echo 'E: apt-get update failed'; exit 1; }
sleep 0.2
work=$(mktemp -d)
mkdir -p "$work/boot" "$work/opt" "$work/dev"
echo old >"$work/boot/vmlinuz-6.1.0-1-cloud-amd64"
echo kernel >"$work/boot/vmlinuz-6.1.0-2-cloud-amd64"
echo initrd >"$work/boot/initrd.img-6.1.0-2-cloud-amd64"
echo "bash 5" >"$work/opt/alibi-packages"
echo >"$work/dev/null"
tar -C "$work" -cf "$archive" .
"""
GENEXT2FS = """#!/bin/sh
for image; do :; done
echo "$@" >"$image"
"""


class DebianImage(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR")))
        self.addCleanup(shutil.rmtree, self.folder)
        # A copy, to be changed.
        self.script = self.folder / "linux" / SCRIPT.name
        self.script.parent.mkdir()
        for name in (SCRIPT.name, "packages.py"):
            shutil.copy(SCRIPT.parent / name, self.script.parent)
        shutil.copytree(SCRIPT.parent / "debian", self.script.parent / "debian")
        tools = self.folder / "tools"
        tools.mkdir()
        for name, text in (("mmdebstrap", MMDEBSTRAP), ("genext2fs", GENEXT2FS), ("newuidmap", ""),
                           ("arch-test", "")):
            (tools / name).write_text(text)
            (tools / name).chmod(0o755)
        self.log = self.folder / "log"
        self.environment = {"PATH": f"{tools}:/usr/bin:/bin", "LOG": str(self.log), "FAIL": "",
                            "ALIBI_LINUX_CACHE": str(self.folder / "cache"),
                            "PYTHONDONTWRITEBYTECODE": "1"}

    def start(self, *words, **environment):
        return subprocess.Popen([sys.executable, self.script, *words], env={**self.environment, **environment},
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def make(self, *words, **environment):
        process = self.start(*words, **environment)
        output, errors = process.communicate()
        return process.returncode, output.splitlines(), errors

    def made(self):
        return len(self.log.read_text().splitlines()) if self.log.exists() else 0

    def fails_with(self, *parts, **environment):
        status, _, errors = self.make(**environment)
        self.assertEqual(status, 69)
        self.assertEqual(len(errors.splitlines()), 1, errors)
        for part in parts:
            self.assertIn(part, errors)
        # Nothing is where an image would be.
        self.assertEqual([path for path in (self.folder / "cache").glob("debian-*")
                          if path.suffix != ".partial"], [])

    def test_is_made_once_by_any_number(self):
        racing = [self.start() for _ in range(3)]
        folders = {process.communicate()[0].splitlines()[-1] for process in racing}
        self.assertEqual(len(folders), 1)
        self.assertEqual(self.make()[1], sorted(folders))
        self.assertEqual(self.made(), 1)

    def test_holds_what_it_promises(self):
        status, lines, errors = self.make()
        self.assertEqual((status, errors), (0, ""))
        folder = pathlib.Path(lines[-1])
        self.assertEqual({path.name for path in folder.iterdir()},
                         {"disk", "tree", "kernel", "initrd", "packages", "packages.sha256"})
        self.assertEqual((folder / "kernel").read_text(), "kernel\n")
        self.assertEqual((folder / "packages").read_text(), "bash 5\n")
        self.assertEqual(list((folder / "tree/dev").iterdir()), [])
        self.assertIn("--tarball", (folder / "disk").read_text())

    def test_another_recipe_is_another_image(self):
        folders = {self.make()[1][-1]}
        for path in sorted((self.script.parent / "debian").iterdir()):
            path.write_text(path.read_text() + "\n")
            folders.add(self.make()[1][-1])
        text = self.script.read_text()
        self.assertEqual(text.count('"gdb"'), 1)
        self.script.write_text(text.replace('"gdb"', '"gdb-minimal"'))
        folders.add(self.make()[1][-1])
        self.assertEqual(len(folders), 2 + len(list((self.script.parent / "debian").iterdir())))
        self.assertEqual(self.made(), len(folders))

    def test_is_the_same_wherever_the_script_lies(self):
        first = self.make()[1][-1]
        self.script.parent.rename(self.folder / "elsewhere")
        self.script = self.folder / "elsewhere" / SCRIPT.name
        self.assertEqual(self.make()[1], [first])

    def test_each_architecture_has_its_own(self):
        first = self.make()[1][-1]
        self.assertEqual(self.make("amd64")[1], [first])
        second = self.make("i386")[1][-1]
        self.assertNotEqual(first, second)
        self.assertEqual(self.made(), 2)
        made = self.log.read_text().splitlines()
        self.assertIn("--architectures=i386 --include=linux-image-686,", made[1])
        self.assertIn("--architectures=amd64 --include=linux-image-cloud-amd64,", made[0])
        self.assertEqual(self.make("i386")[1], [second])
        status, _, errors = self.make("sparc")
        self.assertEqual((status, errors), (64, "usage: debian_image.py [amd64 | i386]\n"))

    def test_offline(self):
        self.fails_with("ALIBI_OFFLINE", ALIBI_OFFLINE="1")
        folder = self.make()[1][-1]
        self.assertEqual(self.make(ALIBI_OFFLINE="1")[:2], (0, [folder]))

    def test_missing_tools_are_named(self):
        (self.folder / "tools/mmdebstrap").unlink()
        (self.folder / "tools/newuidmap").unlink()
        bare = self.folder / "bare"
        bare.mkdir()
        (bare / "genext2fs").symlink_to(self.folder / "tools/genext2fs")
        self.fails_with("sudo apt-get install mmdebstrap uidmap", PATH=str(bare))

    def test_a_failure_is_one_line_and_leaves_nothing(self):
        self.fails_with("mmdebstrap failed: Failed to fetch http://deb.debian.org",
                        FAIL="Failed to fetch http://deb.debian.org/debian")
        self.assertEqual(self.make()[0], 0)


if __name__ == "__main__":
    unittest.main()
