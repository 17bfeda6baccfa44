#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Finds code that callouts can reach and that would spoil the guest's vector state.

Usage: check_vector_use.py BINARY

Callouts run while the guest's x87, SSE, AVX and mask registers are live in the host's. Everything
they can reach is compiled for general registers only, and calls nothing that is not: this walks
the call graph of the linked program from the callouts and lists every function on the way that
names such a register, and every call that leaves the program. Exit status 0: none, 1: some, 2: bad
usage or no callouts found.

What the graph cannot show: virtual calls and function pointers. Their targets are roots, too: see
ROOTS. Port and MMIO handlers are not, but for Peek() and Poke(); they save the state (base/simd_guard.h); so do
plug-ins (adapt/plugin.cc).
"""

import re
import subprocess
import sys

ROOTS = re.compile(
    r'^alibi::(runtime::EngineImpl::(On[A-Z]\w*|StopSoon|CodeWritten|CodeInvalidated|PageExecuted'
    r'|MemoryMapChanged)\('
    r'|runtime::EngineImpl::Init\(\)::|runtime::.*\bCalloutThunk<'
    r'|runtime::Watched(Memory|Ports)::\w+\('
    r'|simulator::handlers::\w+\(alibi::simulator::Execution&\)'
    r'|(devices|vmm)::.*\b(Peek(Port|Mmio)?|Poke(Port)?)\('
    r'|mmu::Mmu::(Read|Write|ProbeWrite|PagingModeChanged|AddressSpaceLoaded|InvalidatePage'
    r'|PrivilegeChanged|WriteTraced)\('
    r'|adapt::.*::(OnEvent\(alibi::adapt::SiteRecord|OnPageForgotten\())')
LEAST_ROOTS = 100  # a sign that the names above still fit

# Where a walk ends: the program stops, or the vector state has been put away.
ENDS = re.compile(r'^(alibi::(CheckFailed|ResultMisused)\(|abort$|__stack_chk_fail$|_Unwind_Resume$'
                  r'|alibi::mmu::Mmu::ObtainView\('
                  r'|alibi::direct::DirectExecution::(StopAll|Place::StopUsing)\('
                  r'|alibi::runtime::Sites::Decode(Again)?\('
                  r'|.*\bPlugin::CallGuarded<)')

# Bare system calls, which the kernel makes with the caller's vector state intact.
SYSTEM_CALLS = {'mmap', 'munmap', 'mprotect', 'madvise'}

# Functions that touch the guest's live registers on purpose, and leave them as they are or as the
# guest's own instruction does (FNSTENV masks exceptions, FNSAVE resets the FPU, FRSTOR loads it).
READERS = re.compile(r'::(LiveMask|MaskMovQ|StoreX87|LoadX87|ActiveElements|AccessElements)\b'
                     r'|handlers::MaskMov\(')

REGISTER = re.compile(r'\b([xyz]mm\d+|mm[0-7]|st\([0-7]\)|st|k[0-7]|bnd[0-3]|tmm[0-7])\b')
FUNCTION = re.compile(r'^([0-9a-f]+) <(.+)>:$')
CALL = re.compile(r'^\s+[0-9a-f]+:\s+(?:call|jmp|j[a-z]+)\s+[0-9a-f]+ <([^+>]+(?:<[^>]*>[^+>]*)*)')
STATE = re.compile(r'\b(fninit|finit|emms|vzeroupper|vzeroall|fxrstor|fnstenv|frstor|ldmxcsr)')


def demangle(names):
    out = subprocess.run(['c++filt'], input='\n'.join(names), capture_output=True, text=True,
                         check=True).stdout
    return dict(zip(names, out.splitlines()))


def disassemble(binary):
    """Mangled name -> (called names, offending instructions)."""
    functions = {}
    lines = subprocess.run(['objdump', '-d', '-M', 'intel', '--no-show-raw-insn', binary],
                           capture_output=True, text=True, check=True).stdout.splitlines()
    current = None
    for line in lines:
        match = FUNCTION.match(line)
        if match:
            current = functions.setdefault(match.group(2), (set(), []))
            continue
        if current is None:
            continue
        match = CALL.match(line)
        if match:
            current[0].add(match.group(1))
            continue
        text = line.split('\t')[-1].split('#')[0].split('<')[0]
        if REGISTER.search(text) or STATE.search(text):
            current[1].append(text.strip())
    return functions


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    functions = disassemble(sys.argv[1])
    names = demangle(sorted(functions))
    parents = {f: None for f in functions if ROOTS.match(names[f])}
    if len(parents) < LEAST_ROOTS:
        print(f'only {len(parents)} callouts and handlers found in {sys.argv[1]}: is it stripped, '
              'or have they been renamed?', file=sys.stderr)
        return 2

    def path(function):
        steps = []
        while function is not None:
            name = names.get(function, function).replace('(anonymous namespace)::', '')
            steps.append(re.sub(r'\(.*', '', name))
            function = parents[function]
        return ' <- '.join(steps)

    roots = len(parents)
    problems = 0
    queue = list(parents)
    while queue:
        function = queue.pop(0)
        calls, vector = functions[function]
        if vector and not READERS.search(names[function]):
            problems += 1
            print(f'{len(vector)} vector instructions ({vector[0]}) in {path(function)}')
        for target in sorted(calls):
            if target in parents or ENDS.match(names.get(target, target)):
                continue
            if target.endswith('@plt') or target not in functions:
                name = target.removesuffix('@plt')
                if name not in SYSTEM_CALLS and not ENDS.match(demangle([name])[name]):
                    problems += 1
                    print(f'call of {name} in {path(function)}')
                continue
            parents[target] = function
            queue.append(target)
    print(f'{roots} roots, {len(parents)} functions, {problems} problems')
    return 1 if problems else 0


sys.exit(main())
