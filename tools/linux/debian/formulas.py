# SPDX-License-Identifier: Apache-2.0
"""Writes the formulas that the row minisat decides: formulas.py FOLDER COUNT.

Random 3-SAT with 4.26 clauses per variable, where half of the formulas can be satisfied and deciding
takes longest.
"""

import pathlib
import sys

VARIABLES = 220
CLAUSES = 937


def numbers(seed):
    """Knuth's MMIX: the same formulas whatever Python's generator becomes."""
    while True:
        seed = (seed * 6364136223846793005 + 1442695040888963407) % 2 ** 64
        yield seed >> 33


def formula(seed):
    """In DIMACS's format."""
    source, lines = numbers(seed), [f"p cnf {VARIABLES} {CLAUSES}"]
    while len(lines) <= CLAUSES:
        clause = {}
        while len(clause) < 3:
            clause[next(source) % VARIABLES + 1] = 1 if next(source) % 2 else -1
        lines.append(" ".join(str(name * sign) for name, sign in clause.items()) + " 0")
    return "\n".join(lines) + "\n"


folder = pathlib.Path(sys.argv[1])
for number in range(int(sys.argv[2])):
    (folder / f"{number:02}.cnf").write_text(formula(number + 1), encoding="ascii")
