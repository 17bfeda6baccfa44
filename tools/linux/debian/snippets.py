# SPDX-License-Identifier: Apache-2.0
"""What the row python runs, some times over: loops, floating point, containers, text."""

import hashlib
import json
import re
import sys


def primes(limit):
    sieve = bytearray([1]) * limit
    for i in range(2, int(limit ** 0.5) + 1):
        if sieve[i]:
            sieve[i * i::i] = bytes(len(range(i * i, limit, i)))
    return sum(sieve) - 2


def bodies(steps):
    position, speed = [[1.0, 0.0], [-1.0, 0.5], [0.3, -1.2]], [[0.0, 0.5], [0.2, -0.3], [-0.4, 0.1]]
    for _ in range(steps):
        for a in range(3):
            for b in range(3):
                if a == b:
                    continue
                dx, dy = (position[b][k] - position[a][k] for k in (0, 1))
                pull = 0.001 / (dx * dx + dy * dy + 0.01) ** 1.5
                speed[a][0] += dx * pull
                speed[a][1] += dy * pull
        for p, v in zip(position, speed):
            p[0] += 0.001 * v[0]
            p[1] += 0.001 * v[1]
    return [round(x, 9) for p in position for x in p]


def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def text(lines):
    rows = [{"id": i, "name": f"row {i * 7919 % 1000}", "tags": [i % 3, i % 5]} for i in range(lines)]
    back = json.loads(json.dumps(rows))
    back.sort(key=lambda row: (row["name"], -row["id"]))
    found = re.findall(r"row (\d+)1\b", "; ".join(row["name"] for row in back))
    return hashlib.sha256(json.dumps([back, found]).encode()).hexdigest()


for _ in range(int(sys.argv[1])):
    print(primes(200_000), bodies(2_000), fib(20), text(4_000))
