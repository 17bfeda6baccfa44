/* SPDX-License-Identifier: Apache-2.0 */
// The measured loops. Each is a function
//     Timing Loop(u64 iterations, u64 a, u64 b, u64 c)     (cycles in rax, events in rdx)
// in which r13, r14, r15 hold a, b, c and r12 counts what really happened: a handler, a callee or
// the loop body increments it, exactly once per iteration. loop_empty is the same without the
// measured operation; its cost is subtracted.

#include "frobos/bench/privileged_loops.inc"

.macro BEGIN_LOOP name
.balign 64
.global loop_\name
loop_\name:
    push %rbx
    push %rbp
    push %r12
    push %r13
    push %r14
    push %r15
    mov %rdi, %rbx
    mov %rsi, %r13
    mov %rdx, %r14
    mov %rcx, %r15
    xor %r12d, %r12d
    lfence
    rdtsc
    shl $32, %rdx
    or %rdx, %rax
    mov %rax, %rbp
    .balign 32
loop_top_\name:
.endm

.macro END_LOOP name
    dec %rbx
    jnz loop_top_\name
    lfence
    rdtsc
    shl $32, %rdx
    or %rdx, %rax
    sub %rbp, %rax
    mov %r12, %rdx
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbp
    pop %rbx
    ret
.endm

// A loop around a body that counts itself.
.macro SIMPLE_LOOP name, body=""
    BEGIN_LOOP \name
    \body
    inc %r12
    END_LOOP \name
.endm

.section .text
SIMPLE_LOOP empty
SIMPLE_LOOP in, "inb $0x80, %al"
SIMPLE_LOOP in_device, "inb $0x21, %al"
SIMPLE_LOOP cr8wr, "WRITE_REGISTER kSetCr8, %cr8, %r13"
SIMPLE_LOOP cr3, "WRITE_REGISTER kSetCr3, %cr3, %r13"
SIMPLE_LOOP cr3_pti, "WRITE_REGISTER kSetCr3, %cr3, %r14; mov (%r15), %rax; WRITE_REGISTER kSetCr3, %cr3, %r13; mov (%r15), %rax"
SIMPLE_LOOP copy, "mov %r13, %rsi; mov %r14, %rdi; mov %r15, %rcx; rep movsb"
// Each iteration toggles the bit in r14; the load sees the mapping that is left.
SIMPLE_LOOP cr0wp, "xor %r14, %r13; WRITE_REGISTER kSetCr0, %cr0, %r13; mov (%r15), %rax"
SIMPLE_LOOP cr4pge, "xor %r14, %r13; WRITE_REGISTER kSetCr4, %cr4, %r13; mov (%r15), %rax"
SIMPLE_LOOP stacclac, "stac; mov (%r15), %rax; clac"
SIMPLE_LOOP invlpg, "INVALIDATE %r13"
SIMPLE_LOOP clisti, "CLEAR_AND_SET_IF"
SIMPLE_LOOP pushfpopf, "SAVE_AND_RESTORE_FLAGS"
SIMPLE_LOOP rdtsc, "READ_TSC"
SIMPLE_LOOP ptemod_unchanged, "SET_ENTRY %r14, %r15"

    BEGIN_LOOP callret
    call count_event
    END_LOOP callret

.balign 16
count_event:
    inc %r12
    ret

    BEGIN_LOOP icall
    inc %r14d
    and $3, %r14d
    call *icall_targets(, %r14, 8)
    END_LOOP icall

    BEGIN_LOOP icall_empty
    inc %r14d
    and $3, %r14d
    inc %r12
    END_LOOP icall_empty

.macro ICALL_TARGET number
.balign 16
icall_target\number:
    inc %r12
    ret
.endm
ICALL_TARGET 0
ICALL_TARGET 1
ICALL_TARGET 2
ICALL_TARGET 3

// iretq to the next instruction; the five pushes belong to the operation.
    BEGIN_LOOP iret
    mov %rsp, %rax
    push $0x10
    push %rax
    push %r15                   // RFLAGS
    push $0x08
    lea 1f(%rip), %rax
    push %rax
    iretq
1:  inc %r12
    END_LOOP iret

    BEGIN_LOOP int3
    int3
    END_LOOP int3

    BEGIN_LOOP divzero
divzero_instruction:
    div %r15
divzero_next:
    END_LOOP divzero

    BEGIN_LOOP pgfault
pgfault_instruction:
    mov (%r13), %rax
pgfault_next:
    END_LOOP pgfault

// a: the page, b: its PTE, c: the PTE's present value.
    BEGIN_LOOP pgfault_map
    mov (%r13), %rax            // the handler maps it and counts
    SET_ENTRY %r14, $0
    INVALIDATE %r13
    END_LOOP pgfault_map

// The page's first word is 1, so the touch counts itself.
    BEGIN_LOOP ptemod_touch
    lea -1(%r15), %rax
    SET_ENTRY %r14, %rax        // P -> NP
    INVALIDATE %r13
    SET_ENTRY %r14, %r15        // NP -> P
    add (%r13), %r12
    END_LOOP ptemod_touch

// Fills consecutive entries from b on with c.
    BEGIN_LOOP ptestore
    SET_ENTRY %r14, %r15
    add $8, %r14
    inc %r12
    END_LOOP ptestore

    BEGIN_LOOP ptestore_empty
    add $8, %r14
    inc %r12
    END_LOOP ptestore_empty

// The paper's isPrime (section 3.2), as compiled there. a: the number.
    BEGIN_LOOP isprime
    mov %r13d, %edi
    call isprime
    add %rax, %r12
    END_LOOP isprime

.balign 16
isprime:
    mov %edi, %ecx
    mov $2, %esi
    cmp %ecx, %esi
    jge 2f
1:  mov %ecx, %eax
    cdq
    idiv %esi
    test %edx, %edx
    jz 3f
    inc %esi
    cmp %ecx, %esi
    jl 1b
2:  mov $1, %eax
    ret
3:  xor %eax, %eax
    ret

// Handlers, as short as their meaning allows.
.macro SKIP_HANDLER name, instruction, next, error_bytes
.balign 16
.global handle_\name
handle_\name:
    addq $(\next - \instruction), \error_bytes(%rsp)
    inc %r12
    .if \error_bytes
    add $\error_bytes, %rsp
    .endif
    iretq
.endm
SKIP_HANDLER divzero, divzero_instruction, divzero_next, 0
SKIP_HANDLER pgfault, pgfault_instruction, pgfault_next, 8

.balign 16
.global handle_pgfault_map
handle_pgfault_map:
    SET_ENTRY %r14, %r15
    inc %r12
    add $8, %rsp
    iretq

.balign 16
.global handle_count
handle_count:
    inc %r12
    iretq

.balign 16
.global handle_syscall
handle_syscall:
    inc %r12
    sysretq

.section .utext, "ax"
    BEGIN_LOOP syscall
    syscall
    END_LOOP syscall

    BEGIN_LOOP int80
    int $0x80
    END_LOOP int80

    BEGIN_LOOP user_empty
    inc %r12
    END_LOOP user_empty

.section .rodata
.balign 8
icall_targets: .quad icall_target0, icall_target1, icall_target2, icall_target3
