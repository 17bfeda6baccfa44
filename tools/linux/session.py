# SPDX-License-Identifier: Apache-2.0
"""Runs a command in a guest: the console is a log, the second serial port is ours."""

import os
import re
import signal
import subprocess
import sys
import threading

from initramfs import MARK_BEGIN, MARK_END, MARK_MORE
from packages import say

PIECE = 32768  # of input; what the guest's terminal layer keeps while nobody reads
LOG_LINES = 400  # what is remembered of the console
SHOWN_LINES = 30

# Exit statuses, as `alibi --help` lists them.
NOT_FINISHED = 85
PANIC = 84


class Input:
    """Sends our standard input to the guest, a piece whenever it asks."""

    def __init__(self, pipe):
        self._pipe = pipe
        self._wanted = threading.Semaphore(0)
        threading.Thread(target=self._run, daemon=True).start()

    def more(self):
        self._wanted.release()

    def _run(self):
        try:
            while self._wanted.acquire():
                try:
                    piece = os.read(0, PIECE)
                except OSError:  # closed, or a terminal that is not ours
                    piece = b""
                os.writev(self._pipe, [b"%d\n" % len(piece), piece])
                if not piece:
                    return
        except OSError:
            pass  # the machine is gone


class Console:
    """What the kernel and init say: marks for us, the rest for the log."""

    def __init__(self, source):
        self.begun = False
        self.status = None
        self.panic = None  # why the kernel gave up
        self.log = []
        self._input = source

    def line(self, text):
        if text == MARK_BEGIN:
            self.begun = True
        elif text == MARK_MORE:
            self._input.more()
        elif re.fullmatch(re.escape(MARK_END) + r"\d+", text):
            self.status = int(text[len(MARK_END):])
        elif text:
            reason = re.search(r"Kernel panic - not syncing: (.*)", text)
            if reason and self.panic is None:
                self.panic = reason.group(1)
            self.log = self.log[-LOG_LINES:] + [text]


def end_on_signal(number, _frame):
    sys.exit(128 + number)


def run(command, inherited):
    """Runs `alibi run` with these arguments; returns the exit status of the guest's command.

    `inherited` is a file descriptor that the command names.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end_on_signal)
    log_read, log_write = os.pipe()
    input_read, input_write = os.pipe()
    machine = subprocess.Popen(command + ["--com1", f"/dev/fd/{log_write}", "--no-reboot"],
                               stdin=input_read, pass_fds=[log_write, inherited])
    os.close(input_read)
    os.close(log_write)
    console = Console(Input(input_write))
    try:
        with open(log_read, "rb") as log:
            for line in log:
                console.line(line.decode(errors="replace").rstrip("\r\n"))
        status = machine.wait()
    except BaseException:
        machine.terminate()
        machine.wait()
        raise
    if console.status is not None and status == 0:
        return console.status
    if status < 0:
        return 128 - status
    # Ended by a signal, or something was wrong with the machine, which has said what.
    if status > 128 or 64 <= status < 80:
        return status
    sys.stderr.write("".join(line + "\n" for line in console.log[-SHOWN_LINES:]))
    if console.panic is not None:
        say(f"the guest's kernel panicked: {console.panic}")
        return PANIC
    say("the guest ended " + ("before the command did" if console.begun else
                              "before it could start the command"))
    return NOT_FINISHED
