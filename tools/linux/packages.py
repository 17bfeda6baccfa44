# SPDX-License-Identifier: Apache-2.0
"""Debian's kernels and busybox: fetched through apt into a cache, installed nowhere."""

import fcntl
import os
import pathlib
import re
import shutil
import subprocess
import sys

KERNELS = {
    "cloud-amd64": ("amd64", "linux-image-cloud-amd64"),
    "amd64": ("amd64", "linux-image-amd64"),
    "686": ("i386", "linux-image-686"),
    "686-pae": ("i386", "linux-image-686-pae"),
}


class Failure(Exception):
    """One line that a person can act on."""


def say(text):
    print(f"alibi linux: {text}", file=sys.stderr)


def cache_folder():
    """Where packages are kept between runs: $ALIBI_LINUX_CACHE, or a folder of the user's cache."""
    if os.environ.get("ALIBI_LINUX_CACHE"):
        return pathlib.Path(os.environ["ALIBI_LINUX_CACHE"])
    home = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(home) / "alibi" / "linux"


def apt(cache, arch, tool, *arguments, **options):
    """Runs an apt tool with lists of its own, for `arch`."""
    state = cache / "apt" / arch
    for folder in ("lists/partial", "archives/partial"):
        (state / folder).mkdir(parents=True, exist_ok=True)
    (state / "status").touch()
    settings = {
        "APT::Architecture": arch,
        "APT::Architectures": arch,
        "Dir::State": state,
        "Dir::State::Lists": state / "lists",
        "Dir::State::Status": state / "status",
        "Dir::Cache": state,
        "Dir::Cache::Archives": state / "archives",
        "APT::Sandbox::User": "",
        "Acquire::Languages": "none",
        "Acquire::Retries": "2",
    }
    command = [tool]
    for key, value in settings.items():
        command += ["-o", f"{key}={value}"]
    try:
        result = subprocess.run(command + list(arguments), stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                check=False, **options)
    except FileNotFoundError:
        raise Failure(f"{tool} is missing: packages come through Debian's apt") from None
    if result.returncode != 0:
        reasons = [line for line in result.stderr.splitlines() if line.startswith("E: ")]
        reason = (reasons or result.stderr.splitlines() or ["no reason given"])[0]
        raise Failure(f"{tool} {' '.join(arguments)} failed: {reason}")
    return result.stdout


class Kernel:
    """A kernel package and a busybox of the same architecture, unpacked."""

    def __init__(self, root):
        self.root = root
        kernels = sorted(root.glob("boot/vmlinuz-*"))
        if not kernels:
            raise Failure(f"there is no kernel in {root}; remove that folder and try again")
        self.image = kernels[-1]
        self.release = self.image.name[len("vmlinuz-"):]
        self.busybox = root / "bin" / "busybox"
        self.modules = root / "lib" / "modules" / self.release

    def module_closure(self, names):
        """The files of the modules and of what they depend on, in loading order."""
        files = {path.stem.replace("-", "_"): path for path in self.modules.rglob("*.ko")}
        listed = (self.modules / "modules.builtin").read_text().split()
        built_in = {pathlib.PurePath(path).stem.replace("-", "_") for path in listed}
        order = []

        def visit(name):
            name = name.replace("-", "_")
            if name in built_in or files.get(name) in order:
                return
            if name not in files:
                raise Failure(f"the kernel {self.release} has no module {name}")
            # The package has no modules.dep: depmod makes that at installation, from this.
            depends = re.search(rb"\0depends=([^\0]*)\0", files[name].read_bytes())
            for needed in (depends.group(1).decode() if depends else "").split(","):
                if needed:
                    visit(needed)
            order.append(files[name])

        for name in names:
            visit(name)
        return order


def fetch(cache, name):
    """The kernel `name`, downloaded if it is not there. Any number of processes may call it."""
    root = cache / name
    if (root / "done").exists():
        return Kernel(root)
    cache.mkdir(parents=True, exist_ok=True)
    arch, package = KERNELS[name]
    with open(cache / "lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (root / "done").exists():  # somebody else was faster
            return Kernel(root)
        if os.environ.get("ALIBI_OFFLINE"):
            raise Failure(f"{package} is not in {cache}, and ALIBI_OFFLINE forbids to get it")
        say(f"getting Debian's {package} and busybox-static into {cache}")
        stale = None
        try:
            apt(cache, arch, "apt-get", "-q", "update")
        except Failure as failure:  # part of a mirror may do
            stale = failure
        try:
            depends = apt(cache, arch, "apt-cache", "depends", package)
            image = re.search(r"Depends: (linux-image-\S+?)(:\w+)?$", depends, re.MULTILINE)
            if image is None:
                raise Failure(f"apt knows no kernel behind {package}")
            # Unpacked elsewhere: what lies in its place is whole, whenever we are killed.
            partial = cache / f"{name}.partial"
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            for wanted in (image.group(1), "busybox-static"):
                apt(cache, arch, "apt-get", "-q", "download", wanted, cwd=partial)
        except Failure as failure:
            raise Failure(f"{failure}{f' (before that: {stale})' if stale else ''}") from None
        for deb in partial.glob("*.deb"):
            subprocess.run(["dpkg-deb", "-x", str(deb), str(partial)], check=True)
            deb.unlink()
        (partial / "done").touch()
        shutil.rmtree(root, ignore_errors=True)
        partial.rename(root)
    return Kernel(root)
