#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The commands of docs/debian.md as they stand there: Debian 12 from mmdebstrap to an ssh login.

    debian_test.py ALIBI PAGE

Then the image boots once more with page-table isolation, where systemd must not give up on anything
before the login. Needs Debian's package servers, and root or the tools that the page's first command
installs. Each line PASS or FAIL becomes a test case.
"""

import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
from verdicts import conclude, report  # noqa: E402

ALIBI, PAGE = (os.path.abspath(path) for path in sys.argv[1:3])
PATIENCE = 900  # seconds for a command, or for a login, on a busy host

# Questions to the guest, and their answers with page-table isolation and without.
QUESTIONS = """
. /etc/os-release; echo $VERSION_CODENAME
cat /etc/resolv.conf
systemd-detect-virt
dmesg | grep -c 'page tables isolation: enabled'
dmesg | grep -c 'SMBus base address uninitialized'
systemctl --failed --plain --no-legend
poweroff
"""


def answers(isolated):
    return ["bookworm", "nameserver 10.0.2.3", "vm-other", str(int(isolated)), "0"]


def page_commands():
    block = re.search(r"<!-- commands:begin -->\n```\n(.*?)```\n<!-- commands:end -->",
                      pathlib.Path(PAGE).read_text(encoding="utf-8"), re.DOTALL)
    return [command.strip() for command in block[1].split("\n\n")]


def shell(command, stderr=subprocess.STDOUT, **options):
    return subprocess.run(["bash", "-c", command], check=False, timeout=PATIENCE, text=True,
                          stdout=subprocess.PIPE, stderr=stderr, **options)


def wait_for_login(machine, console):
    begin = time.monotonic()
    while b"debian login:" not in console.read_bytes():
        if machine.poll() is not None or time.monotonic() - begin > PATIENCE:
            raise RuntimeError(f"no login: ...{console.read_text(errors='replace')[-1500:]}")
        time.sleep(0.2)
    return time.monotonic() - begin


def boot(name, run, ssh, isolated):
    console = pathlib.Path("console.log")
    with console.open("wb") as output:
        machine = subprocess.Popen(["bash", "-c", "exec " + run], stdin=subprocess.DEVNULL,
                                   stdout=output, stderr=subprocess.STDOUT)
    try:
        print(f"{name}: a login after {wait_for_login(machine, console):.0f} s", flush=True)
        found = shell(ssh, stderr=None, input=QUESTIONS).stdout.splitlines()[-len(answers(isolated)):]
        report(f"{name}: ssh", None if found == answers(isolated) else found)
        status = machine.wait(PATIENCE)
        report(f"{name}: end", f"status {status}" if status else None)
    except (RuntimeError, subprocess.TimeoutExpired) as failure:
        report(name, failure)
    finally:
        machine.kill()
        machine.wait()
    gave_up = re.findall(r"^.*Timed out.*$", console.read_text(errors="replace"), re.MULTILINE)
    report(f"{name}: time-outs", "; ".join(gave_up))


def main():
    if os.environ.get("ALIBI_OFFLINE"):
        print("SKIP: ALIBI_OFFLINE forbids to get packages")
        return 0
    *prepare, run, ssh = page_commands()
    report("six commands", None if len(prepare) == 4 else f"{len(prepare) + 2} commands")
    with tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")) as folder:
        # For mmdebstrap's user namespace, in which we are somebody else.
        os.chmod(folder, 0o755)
        os.chdir(folder)
        tools = pathlib.Path(folder, "bin")
        tools.mkdir()
        (tools / "alibi").symlink_to(ALIBI)
        if os.geteuid() == 0:
            (tools / "sudo").symlink_to("/usr/bin/env")
        os.environ["PATH"] = f"{tools}:/usr/sbin:{os.environ['PATH']}"
        os.environ["DEBIAN_FRONTEND"] = "noninteractive"
        for command in prepare:
            done = shell(command, stdin=subprocess.DEVNULL)
            report(command.split(maxsplit=1)[0], done.returncode and done.stdout[-1500:])
            if done.returncode:
                return conclude("Debian")
        # Somebody else's guest may have the page's port.
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = str(probe.getsockname()[1])
        run, ssh = run.replace("2222", port), ssh.replace("2222", port)
        boot("as it is", run, ssh, isolated=False)
        boot("pti=on", run.replace("console=ttyS0", "console=ttyS0 pti=on"), ssh, isolated=True)
    return conclude("Debian")


if __name__ == "__main__":
    sys.exit(main())
