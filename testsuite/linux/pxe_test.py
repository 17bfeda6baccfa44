#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Network boot: a card's expansion ROM, found by the BIOS, over the router's DHCP and TFTP.

    pxe_test.py ALIBI BOOT_PY HELLO_ELF

iPXE's ROMs (Debian's `ipxe-qemu`) for the Lance and for virtio fetch a script, which fetches a file
by TFTP and one by HTTP, and gets none from beyond the folder. GRUB's image for network boot (`grub-pc-bin`), which drives the card by the
ROM's UNDI alone, fetches its configuration, and a FrobOS kernel that it starts. The BIOS is
SeaBIOS. Needs Debian's package servers, or the packages fetched before (ALIBI_OFFLINE forbids to
get them: then it is a SKIP). Each line PASS or FAIL becomes a test case.
"""

import ctypes
import http.server
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import threading

ALIBI, BOOT, HELLO = (os.path.abspath(path) for path in sys.argv[1:4])
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(BOOT))
from fetched import fetched, unpacked  # noqa: E402
from verdicts import conclude, report  # noqa: E402

PATIENCE = 240  # seconds, on a machine that is far busier than ours
FILE = random.Random(3).randbytes(1_500_000)
PACKAGES = ("ipxe-qemu", "grub-pc-bin", "grub-common", "libdevmapper1.02.1")
CARDS = {"lance": "pxe-pcnet.rom", "virtio": "pxe-virtio.rom"}

SCRIPT = """#!ipxe
echo driver ${net0/chip} address ${net0/ip}
imgfetch --name tftp tftp://10.0.2.2/file && imgstat tftp
imgfetch --name http http://10.0.2.2:%d/file && imgstat http
imgfetch --name above tftp://10.0.2.2/../secret && echo escaped: above ||
imgfetch --name link tftp://10.0.2.2/link && echo escaped: link ||
ifstat net0
echo finished
"""

GRUB = """
serial --unit=0
terminal_output serial
echo configured by the network
multiboot (pxe)/hello.elf
boot
"""


class Server(http.server.BaseHTTPRequestHandler):
    """One file."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):  # pylint: disable=invalid-name
        self.send_response(200)
        self.send_header("Content-Length", str(len(FILE)))
        self.end_headers()
        self.wfile.write(FILE)

    def log_message(self, *_):  # pylint: disable=arguments-differ
        pass


def make_grub(root, folder):
    """GRUB as one file, which looks for its configuration where it came from."""
    subprocess.run(
        [root / "usr/bin/grub-mkimage", "-d", root / "usr/lib/grub/i386-pc", "-O", "i386-pc-pxe",
         "-p", "(pxe)/", "-o", f"{folder}/grub.0", "pxe", "tftp", "serial", "terminal", "echo",
         "multiboot", "boot", "normal", "configfile", "net"],
        env={"LD_LIBRARY_PATH": f"{root}/lib/x86_64-linux-gnu:{root}/usr/lib/x86_64-linux-gnu"},
        check=True)
    pathlib.Path(folder, "grub.cfg").write_text(GRUB, encoding="ascii")
    pathlib.Path(folder, "hello.elf").write_bytes(pathlib.Path(HELLO).read_bytes())


def boot(card, rom, folder, boot_file, *options):
    return subprocess.run(
        [ALIBI, "run", "--net",
         f"{card},user,loopback=on,rom={rom},tftp={folder},bootfile={boot_file}", *options],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=PATIENCE,
        check=False)


def landlock():
    """Whether this kernel can keep a process to a folder's files, links or not."""
    return ctypes.CDLL(None).syscall(444, None, ctypes.c_size_t(0), 1) > 0


def ipxe(card, rom, folder):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    pathlib.Path(folder, "file").write_bytes(FILE)
    pathlib.Path(folder, "script").write_text(SCRIPT % server.server_port, encoding="ascii")
    done = boot(card, rom, folder, "script", "--display=text")
    server.shutdown()
    text = done.stdout.decode(errors="replace")
    # Behind the script there is nothing to boot.
    report(f"{card}, iPXE: its end", None if done.returncode == 86 else
           f"status {done.returncode}, {done.stderr.decode(errors='replace')[-1500:]}")
    if landlock():
        report(f"{card}, iPXE: nothing beyond the folder",
               text[-1500:] if "escaped" in text else None)
    for name, pattern in (
            ("DHCP", r"address 10\.0\.2\.15"),
            ("a file by TFTP", rf"tftp : {len(FILE)} bytes"),
            ("a file by HTTP", rf"http : {len(FILE)} bytes"),
            ("no errors", r"TXE:0 RX:\d+ RXE:0"),
            ("the script's end", r"finished")):
        report(f"{card}, iPXE: {name}",
               None if re.search(pattern, text) else f"no '{pattern}' in: {text[-1500:]}")


def grub(card, rom, folder):
    done = boot(card, rom, folder, "grub.0")
    text = done.stdout.decode(errors="replace")
    report(f"{card}, GRUB: its configuration",
           None if "configured by the network" in text else text[-1500:])
    report(f"{card}, GRUB: the kernel it starts", None if done.returncode == 1 else
           f"status {done.returncode}, {text[-1500:]}{done.stderr.decode(errors='replace')[-500:]}")


def main():
    with tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")) as folder:
        root = fetched(folder, unpacked, "pxe", *PACKAGES)
        if root is None:
            return
        offered = pathlib.Path(folder) / "offered"
        offered.mkdir()
        (offered.parent / "secret").write_bytes(FILE)
        (offered / "link").symlink_to("../secret")
        make_grub(root, offered)
        for card, name in CARDS.items():
            rom = root / "usr/lib/ipxe/qemu" / name
            ipxe(card, rom, offered)
            grub(card, rom, offered)


if __name__ == "__main__":
    main()
    sys.exit(conclude("pxe"))
