/* SPDX-License-Identifier: Apache-2.0 */
// 256 exception and interrupt entries, all ending in TrapDispatch(TrapFrame*), and the two halves
// of a probe: EnterFrame starts a frame, LeaveFrame abandons whatever it became.

.section .text
.macro PUSH_REGISTERS
    push %rax
    push %rcx
    push %rdx
    push %rbx
    push %rbp
    push %rsi
    push %rdi
    push %r8
    push %r9
    push %r10
    push %r11
    push %r12
    push %r13
    push %r14
    push %r15
.endm
.macro POP_REGISTERS
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %r11
    pop %r10
    pop %r9
    pop %r8
    pop %rdi
    pop %rsi
    pop %rbp
    pop %rbx
    pop %rdx
    pop %rcx
    pop %rax
.endm

.balign 16
.global trap_stubs
trap_stubs:
.set vector, 0
.rept 256
    .balign 16
    .if vector == 8 || (vector >= 10 && vector <= 14) || vector == 17 || vector == 21 || vector == 29 || vector == 30
    .else
    push $0
    .endif
    push $vector
    jmp trap_common
    .set vector, vector + 1
.endr

trap_common:
    PUSH_REGISTERS
    mov %rsp, %rdi
    mov %rsp, %rbp
    and $-16, %rsp
    cld
    call TrapDispatch
    mov %rbp, %rsp
    POP_REGISTERS
    add $16, %rsp
    iretq

// void EnterFrame(const TrapFrame* frame, u64* saved_rsp)
.global EnterFrame
EnterFrame:
    push %rbx
    push %rbp
    push %r12
    push %r13
    push %r14
    push %r15
    pushfq
    cli
    mov %rsp, (%rsi)
    mov %rdi, %rsp
    POP_REGISTERS
    add $16, %rsp
    iretq

// [[noreturn]] void LeaveFrame(u64 saved_rsp): returns from the matching EnterFrame.
.global LeaveFrame
LeaveFrame:
    mov %rdi, %rsp
    popfq
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbp
    pop %rbx
    ret

// A user function returns here, into the probe that started it.
.section .utext, "ax"
.global user_return
user_return:
    int $0x7f
