#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""iPXE's own driver of the Lance: DHCP, and files by HTTP.

    ipxe_test.py ALIBI BOOT_PY

iPXE comes as a Linux kernel of 16 bits in Debian's package `ipxe`, and takes its script as the
initial RAM disk. Needs Debian's package servers, or the package fetched before (ALIBI_OFFLINE
forbids to get it: then it is a SKIP). Each line PASS or FAIL becomes a test case.
"""

import hashlib
import http.server
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import threading

ALIBI, BOOT = (os.path.abspath(path) for path in sys.argv[1:3])
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(BOOT))
from fetched import fetched, unpacked  # noqa: E402
from verdicts import conclude, report  # noqa: E402

PATIENCE = 240  # seconds, on a machine that is far busier than ours
FILE = random.Random(2).randbytes(3_000_000)

SCRIPT = """#!ipxe
ifopen net0
echo driver ${net0/chip} ${net0/mac}
dhcp net0 && echo address ${net0/ip}
imgfetch --name file http://10.0.2.2:%(port)d/file && echo fetched ${file:string}
imgstat file
ifclose net0
dhcp net0 && echo again ${net0/ip}
imgfetch --name second http://10.0.2.2:%(port)d/file
imgstat second
ifstat net0
echo finished
"""


class Server(http.server.BaseHTTPRequestHandler):
    """One file, and what was sent of it."""

    protocol_version = "HTTP/1.1"
    sent = []

    def do_GET(self):  # pylint: disable=invalid-name
        self.send_response(200)
        self.send_header("Content-Length", str(len(FILE)))
        self.end_headers()
        self.wfile.write(FILE)
        self.sent.append(hashlib.sha256(FILE).hexdigest())

    def log_message(self, *_):  # pylint: disable=arguments-differ
        pass


def boot(image, optimize, folder):
    """One machine with iPXE, to the end of its script; the lines of its screen."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    script = pathlib.Path(folder) / "script"
    script.write_text(SCRIPT % {"port": server.server_port}, encoding="ascii")
    # At the end it finds nothing to boot, and neither does the BIOS: status 86.
    done = subprocess.run(
        [ALIBI, "run", "--kernel", str(image), "--initrd", str(script), "--entry", "16", "--net",
         "lance,user,loopback=on", "--net-optimize", optimize, "--display=text"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=PATIENCE,
        check=False)
    server.shutdown()
    report(f"{optimize}: its end", None if done.returncode == 86 else
           f"status {done.returncode}, {done.stderr.decode(errors='replace')[-2000:]}")
    return done.stdout.decode(errors="replace")


def judge(optimize, text):
    def says(name, pattern):
        report(f"{optimize}: {name}",
               None if re.search(pattern, text) else f"no '{pattern}' in: {text[-1500:]}")

    says("the driver", r"driver pcnet32 52:54:00:12:34:56")
    says("DHCP", r"address 10\.0\.2\.15")
    says("a file", rf"file : {len(FILE)} bytes")
    says("DHCP after the card was closed", r"again 10\.0\.2\.15")
    says("the file again", rf"second : {len(FILE)} bytes")
    says("no errors", r"Link:up, TX:\d+ TXE:0 RX:\d+ RXE:0")
    says("the script's end", r"finished")


def main():
    with tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")) as folder:
        root = fetched(folder, unpacked, "ipxe", "ipxe", name="Debian's package")
        if root is None:
            return
        image = root / "boot" / "ipxe.lkrn"
        for optimize in ("all", "none"):
            judge(optimize, boot(image, optimize, folder))


if __name__ == "__main__":
    main()
    sys.exit(conclude("ipxe_lance"))
