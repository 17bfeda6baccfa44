#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Debian's pcnet32 driver on `--net lance`: transfers both ways, and the driver's other ways.

    lance_test.py ALIBI BOOT_PY KERNEL

The guest gets its address by DHCP, fetches and posts files from and to a server on this host, and
compares checksums: plainly, four at a time, with the filter off, after the link was down, and with
the driver loaded anew. The interface must count no errors. Another guest talks to `alibi net-sink`.

Needs Debian's package servers, or packages fetched before (ALIBI_OFFLINE forbids to get any: then
a kernel that is not there is a SKIP). Each line PASS or FAIL becomes a test case.
"""

import hashlib
import http.server
import os
import pathlib
import random
import re
import signal
import struct
import subprocess
import sys
import tempfile
import threading

ALIBI, BOOT = (os.path.abspath(path) for path in sys.argv[1:3])
KERNEL = sys.argv[3]
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(BOOT))
import packages  # noqa: E402
from fetched import fetched  # noqa: E402
from verdicts import conclude, report  # noqa: E402

PATIENCE = 240  # seconds, on a machine that is far busier than ours
FILE = random.Random(1).randbytes(8_000_000)

# Each step is a function, and its verdict a line.
GUEST = """
server=http://10.0.2.2:%d
sum=%s
fetches() { [ "$(wget -q -O - $server/file | sha256sum | cut -c 1-64)" = $sum ]; }
posts() {
  dd if=/dev/urandom bs=1000 count=700 2> /dev/null | od -An -v -tx1 > /tmp/out
  [ "$(wget -q -O - --post-file /tmp/out $server/post)" = "$(sha256sum < /tmp/out | cut -c 1-64)" ]
}
address() { udhcpc -q -n -t 5 -T 1 -i eth0 -s /etc/udhcpc > /dev/null 2>&1; }
driver() { [ "$(readlink /sys/class/net/eth0/device/driver | sed 's,.*/,,')" = pcnet32 ]; }
dhcp() { ip addr show eth0 | grep -q 'inet 10.0.2.15/24'; }
four_at_once() {
  for i in 1 2 3 4; do (fetches && touch /tmp/good.$i) & done
  posts || return 1
  wait
  [ $(ls /tmp/good.* | wc -l) = 4 ]
}
pings() { ping -c 3 -s 1400 10.0.2.2 | grep -q ' 3 packets received'; }
promiscuous() { ip link set eth0 promisc on && fetches && ip link set eth0 promisc off; }
multicast() { ifconfig eth0 allmulti && fetches && ifconfig eth0 -allmulti; }
down_and_up() { ip link set eth0 down && ip link set eth0 up && address && fetches; }
loaded_anew() {
  rmmod pcnet32 && insmod /lib/modules/pcnet32.ko && ip link set eth0 up && address &&
    fetches && posts
}
no_errors() { ! grep -v '^0$' /sys/class/net/eth0/statistics/*_errors; }
no_warnings() { ! dmesg | grep -E 'WARNING|BUG|Oops|eth0: (Bus|tx|transmit)|NETDEV WATCHDOG'; }
for step in driver dhcp pings fetches posts four_at_once promiscuous multicast down_and_up \\
  no_errors loaded_anew no_errors no_warnings; do
  if $step > /tmp/log 2>&1; then echo "PASS $step"; else
    echo "FAIL $step: $(tail -n 3 /tmp/log | tr '\\n' ' ')"
  fi
done
echo finished
"""


class Server(http.server.BaseHTTPRequestHandler):
    """One file, and the sums of what comes."""

    protocol_version = "HTTP/1.1"

    def answer(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):  # pylint: disable=invalid-name
        self.answer(FILE)

    def do_POST(self):  # pylint: disable=invalid-name
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(hashlib.sha256(body).hexdigest().encode())

    def log_message(self, *_):  # pylint: disable=arguments-differ
        pass


def guest(*options):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    command = GUEST % (server.server_port, hashlib.sha256(FILE).hexdigest())
    done = subprocess.run(
        [sys.executable, BOOT, "--kernel", KERNEL, "--net", "lance,user,loopback=on", *options,
         "--exec", command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, timeout=PATIENCE, check=False)
    server.shutdown()
    lines = done.stdout.decode(errors="replace").splitlines()
    for line in lines:
        verdict = re.match(r"(PASS|FAIL) (\w+)(?:: (.*))?", line)
        if verdict:
            report(verdict[2], None if verdict[1] == "PASS" else verdict[3] or "failed")
    report("the guest's end", None if done.returncode == 0 and lines[-1:] == ["finished"] else
           f"status {done.returncode}, {done.stderr.decode(errors='replace')[-2000:]}")


def sink(folder):
    """A wire to `alibi net-sink`, which must have got all that a capture has of the guest's."""
    names = {name: f"{folder}/{name}" for name in ("sink", "guest", "frames")}
    far_end = subprocess.Popen([ALIBI, "net-sink", names["sink"]], stdout=subprocess.PIPE,
                               text=True)
    done = subprocess.run(
        [sys.executable, BOOT, "--kernel", KERNEL, "--net",
         f"lance,socket,path={names['guest']},peer={names['sink']},capture={names['frames']}",
         "--exec", "ip addr add 10.9.0.2/24 dev eth0; ping -c 5 -i 0.2 10.9.0.1"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=PATIENCE,
        check=False)
    far_end.send_signal(signal.SIGINT)
    said = far_end.communicate(timeout=PATIENCE)[0]
    out = done.stdout.decode(errors="replace")
    report("the sink answers", None if " 5 packets received" in out else out[-2000:])
    captured, at, sent = pathlib.Path(names["frames"]).read_bytes(), 24, 0
    while at < len(captured):
        size = struct.unpack_from("<I", captured, at + 8)[0]
        sent += captured[at + 22:at + 28] == bytes.fromhex("525400123456")
        at += 16 + size
    report("the sink counts", None if said.startswith(f"{sent} frames, ") else
           f"'{said}' of {sent} frames")


def main():
    os.environ["ALIBI_PROGRAM"] = ALIBI
    with tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")) as folder:
        if fetched(folder, packages.fetch, KERNEL) is None:
            return
        guest()
    # Names of sockets are short: not Bazel's folder.
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        sink(folder)


if __name__ == "__main__":
    main()
    sys.exit(conclude(f"lance_{KERNEL}"))
