/* SPDX-License-Identifier: Apache-2.0 */
// Multiboot1 entry to KernelStart32(magic, info), the trap entries, and the two halves of a call
// into CPL 3.
.set kMagic, 0x1BADB002
.set kFlags, 0x00000003         // page-aligned modules, memory information
.section .multiboot, "a"
.balign 4
.long kMagic, kFlags, -(kMagic + kFlags)

.section .text
.global _start
_start:
    cld
    movl $boot_stack_top, %esp
    xorl %ebp, %ebp
    pushl %ebx
    pushl %eax
    call KernelStart32
1:  cli
    hlt
    jmp 1b

.balign 16
.global trap_stubs
trap_stubs:
.set vector, 0
.rept 256
    .balign 16
    .if vector == 8 || (vector >= 10 && vector <= 14) || vector == 17 || vector == 21
    .else
    pushl $0
    .endif
    pushl $vector
    jmp trap_common
    .set vector, vector + 1
.endr

trap_common:
    pushal
    movl $0x10, %eax
    movl %eax, %ds
    movl %eax, %es
    pushl %esp
    cld
    call TrapDispatch32         // does not return

// void EnterUser(u32 eip, u32 esp, u32* saved_esp): continues in CPL 3, interrupts off.
.global EnterUser
EnterUser:
    movl 4(%esp), %eax
    movl 8(%esp), %ecx
    movl 12(%esp), %edx
    pushl %ebx
    pushl %esi
    pushl %edi
    pushl %ebp
    movl %esp, (%edx)
    movl $0x23, %edx
    movl %edx, %ds
    movl %edx, %es
    pushl %edx
    pushl %ecx
    pushl $2
    pushl $0x1b
    pushl %eax
    xorl %ebp, %ebp
    iretl

// [[noreturn]] void LeaveUser(u32 saved_esp): returns from the matching EnterUser.
.global LeaveUser
LeaveUser:
    movl 4(%esp), %esp
    popl %ebp
    popl %edi
    popl %esi
    popl %ebx
    ret

// A user function returns here.
.section .utext, "ax"
.global user_return
user_return:
    int $0x7f

.section .bss
.balign 16
boot_stack: .skip 65536
boot_stack_top:
