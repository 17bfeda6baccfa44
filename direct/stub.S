/* SPDX-License-Identifier: Apache-2.0 */
/* The only code of ours in a satellite. It runs at any address, on no stack of its own, and relies on
 * no register: user code may jump anywhere into it, with any registers. What such a jump can gain is
 * said in docs/safety.md, "Satellites"; each label below says it for its part.
 *
 * AC may be set here, as the interrupted code left it: all accesses are aligned. */
#include "direct/stub_layout.h"

#include <asm/unistd.h>

#define PLACE(offset) alibi_stub + (offset)(%rip)

        .section .rodata.alibi_stub, "a", @progbits
        .balign 4096
        .globl alibi_stub, alibi_stub_handler, alibi_stub_first, alibi_stub_end
        .globl alibi_stub_after_stop, alibi_stub_after_call, alibi_stub_after_return
        .globl alibi_stub_restorer, alibi_stub_after_exit
        .hidden alibi_stub_after_exit
        .hidden alibi_stub, alibi_stub_handler, alibi_stub_first, alibi_stub_end
        .hidden alibi_stub_after_stop, alibi_stub_after_call, alibi_stub_after_return
        .hidden alibi_stub_restorer
alibi_stub:

/* The handler of every signal. All signals are blocked, rsp is the frame that the kernel has made. */
alibi_stub_handler:
        mov     %edi, PLACE(NOTES_SIGNAL)
        mov     %rsp, PLACE(NOTES_FRAME)
        rdfsbase %rax
        mov     %rax, PLACE(NOTES_FS_BASE)
        rdgsbase %rax
        mov     %rax, PLACE(NOTES_GS_BASE)
        mov     %es, %eax
        mov     %ax, PLACE(NOTES_SELECTORS + 0)
        mov     %ds, %eax
        mov     %ax, PLACE(NOTES_SELECTORS + 2)
        mov     %fs, %eax
        mov     %ax, PLACE(NOTES_SELECTORS + 4)
        mov     %gs, %eax
        mov     %ax, PLACE(NOTES_SELECTORS + 6)

/* The kernel holds the thread in this call until the VMM answers: a stop that cannot be feigned.
 * Whoever jumps here stops, too. */
stop:
        mov     $CALL_STOP, %eax
        syscall
alibi_stub_after_stop:
        /* Nobody listens any more: the VMM is gone. */
        test    %rax, %rax
        jnz     die
        mov     PLACE(NOTES_KEY), %r14
        mov     PLACE(NOTES_KEY + 8), %r15
        movq    $0, PLACE(NOTES_KEY)
        movq    $0, PLACE(NOTES_KEY + 8)
        mov     PLACE(ORDERS_COUNT), %rbx
        lea     PLACE(ORDERS_CALLS), %r12
/* Without the key in r14 and r15 the kernel lets none of these calls through. */
calls:
        test    %rbx, %rbx
        jz      done
        mov     0(%r12), %rax
        mov     8(%r12), %rdi
        mov     16(%r12), %rsi
        mov     24(%r12), %rdx
        mov     32(%r12), %r10
        mov     40(%r12), %r8
        mov     48(%r12), %r9
        or      %r14, %r10
        or      %r15, %r8
        syscall
alibi_stub_after_call:
        cmp     $-4095, %rax
        jae     failed
        add     $ORDERS_CALL_BYTES, %r12
        dec     %rbx
        jmp     calls
/* What was not unmapped must not be reached: stop, and the VMM decides. */
failed:
        mov     %rbx, PLACE(NOTES_UNDONE)
        mov     %rax, PLACE(NOTES_ERROR)
        xor     %r14d, %r14d
        xor     %r15d, %r15d
        xor     %r8d, %r8d
        xor     %r10d, %r10d
        jmp     stop
done:
        xor     %r14d, %r14d
        xor     %r15d, %r15d
        xor     %r8d, %r8d
        xor     %r10d, %r10d
        cmpq    $0, PLACE(ORDERS_RUN)
        je      stop
        cmpq    $0, PLACE(ORDERS_LOAD_SELECTORS)
        je      1f
        mov     PLACE(ORDERS_SELECTORS + 0), %es
        mov     PLACE(ORDERS_SELECTORS + 2), %ds
        mov     PLACE(ORDERS_SELECTORS + 4), %fs
        mov     PLACE(ORDERS_SELECTORS + 6), %gs
1:      mov     PLACE(ORDERS_FS_BASE), %rax
        wrfsbase %rax
        mov     PLACE(ORDERS_GS_BASE), %rax
        wrgsbase %rax
        mov     PLACE(NOTES_FRAME), %rsp
        add     $8, %rsp
        pushq   PLACE(ORDERS_FLAGS)
        popfq
/* User code could return from a frame of its own: to itself, with registers of its choice. */
alibi_stub_restorer:
        mov     $__NR_rt_sigreturn, %eax
        syscall
alibi_stub_after_return:
die:
        mov     $__NR_exit_group, %eax
        xor     %edi, %edi
        syscall
alibi_stub_after_exit:
        hlt

/* Where a new satellite begins, behind its filter: a system call, so that the kernel makes the first
 * frame. */
alibi_stub_first:
        mov     $CALL_STOP, %eax
        syscall
        hlt

/* long alibi_stub_start_watch(flags, stack): makes the second thread, which ends the satellite when
 * the VMM is gone: the pipe has no other end then. It waits in the kernel, and no user code reaches
 * its registers; so it has no filter. Here, because the first thread soon gives up all other code. */
        .globl alibi_stub_start_watch
        .hidden alibi_stub_start_watch
alibi_stub_start_watch:
        xor     %edx, %edx
        xor     %r10d, %r10d
        xor     %r8d, %r8d
        mov     $__NR_clone, %eax
        syscall
        test    %rax, %rax
        jz      watch
        ret
watch:
        xor     %eax, %eax
        mov     $STUB_WATCH_FD, %edi
        lea     -8(%rsp), %rsi
        mov     $1, %edx
        syscall
        cmp     $-4, %rax               /* EINTR */
        je      watch
        jmp     die
alibi_stub_end:

        .section .note.GNU-stack, "", @progbits
