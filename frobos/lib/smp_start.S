/* SPDX-License-Identifier: Apache-2.0 */
// Where a startup IPI leads: real mode at cs:0, copied to a page below 1 MB. Goes to long mode with
// the boot processor's page tables and calls SmpEnter(ticket, cr0, cs, edx) on a stack of its own.
.section .text
.global smp_start_begin, smp_start_end, smp_start_cr3, smp_start_stacks
.balign 16
smp_start_begin:
.code16
    cli
    movw %cs, %bp               // for SmpEnter
    movl %edx, %edi
    movl %cr0, %esi
    movw %cs, %ax
    movw %ax, %ds
    lgdtl smp_start_gdt_pointer - smp_start_begin
    movl %cr0, %eax
    andl $~0x60000000, %eax     // CD, NW
    orl $1, %eax
    movl %eax, %cr0
    ljmpl $0x18, $(0x8000 + smp_start_32 - smp_start_begin)
.code32
smp_start_32:
    movl $0x10, %eax
    movl %eax, %ds
    movl %eax, %es
    movl %eax, %ss
    xorl %eax, %eax
    movl %eax, %fs
    movl %eax, %gs
    movl 0x8000 + smp_start_cr4 - smp_start_begin, %eax
    movl %eax, %cr4
    movl 0x8000 + smp_start_cr3 - smp_start_begin, %eax
    movl %eax, %cr3
    movl $0xC0000080, %ecx      // EFER
    movl 0x8000 + smp_start_efer - smp_start_begin, %eax
    xorl %edx, %edx
    wrmsr
    movl 0x8000 + smp_start_cr0 - smp_start_begin, %eax
    movl %eax, %cr0
    ljmpl $8, $(0x8000 + smp_start_64 - smp_start_begin)
.code64
smp_start_64:
    movl %edi, %ecx             // edx
    movl $1, %edi
    lock xaddl %edi, 0x8000 + smp_start_ticket - smp_start_begin
    movl %edi, %eax
    shll $14, %eax              // 16 KB each
    movq 0x8000 + smp_start_stacks - smp_start_begin, %rsp
    leaq 16384(%rsp,%rax), %rsp
    movzwl %bp, %edx
    fninit
    xorl %ebp, %ebp
    movabsq $SmpEnter, %rax
    call *%rax
1:  cli
    hlt
    jmp 1b
.balign 8
smp_start_gdt:
    .quad 0
    .quad 0x00af9b000000ffff
    .quad 0x00cf93000000ffff
    .quad 0x00cf9b000000ffff
smp_start_gdt_pointer:
    .word . - smp_start_gdt - 1
    .long 0x8000 + smp_start_gdt - smp_start_begin
.balign 8
.global smp_start_cr0, smp_start_cr4, smp_start_efer, smp_start_ticket
smp_start_cr0:    .quad 0
smp_start_cr3:    .quad 0
smp_start_cr4:    .quad 0
smp_start_efer:   .quad 0
smp_start_stacks: .quad 0
smp_start_ticket: .quad 0
smp_start_end:

// A user function returns here (CallUserHere).
.section .utext, "ax"
.global smp_user_done
smp_user_done:
    int $0xef
