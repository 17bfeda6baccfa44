/* SPDX-License-Identifier: Apache-2.0 */
// Multiboot1 entry to KernelStart(magic, info) in 32-bit protected mode without paging; 256 trap
// entries; the two halves of a probe.

.set kMagic, 0x1BADB002
.set kFlags, 0x00000003         // page-aligned modules, memory information
.section .multiboot, "a"
.balign 4
.long kMagic, kFlags, -(kMagic + kFlags)

// privileged.h's FROBOS_SITE.
.macro SITE call, instructions
771:
    \instructions
    .fill 4, 1, 0x90
772:
    .pushsection privileged_sites, "a"
    .long 771b, \call, 772b - 771b
    .popsection
.endm
.set kVmiGetTr, 10
.set kVmiClts, 28
.set kVmiDisableInterrupts, 30
.set kVmiGetInterruptMask, 31
.set kVmiSetInterruptMask, 32
.set kVmiIret, 33

.section .text
.code32
.global _start
_start:
    cld
    movl $kernel_stack_top, %esp
    pushl %ebx
    pushl %eax
    call KernelStart

// Frame's layout in machine.h.
.set kEax, 0
.set kEbx, 4
.set kEcx, 8
.set kEdx, 12
.set kEsi, 16
.set kEdi, 20
.set kEbp, 24
.set kEsp, 28
.set kSs, 32
.set kEip, 36
.set kCs, 40
.set kEflags, 44
.set kDs, 48
.set kEs, 52
.set kFs, 56
.set kGs, 60

// The imm32 form throughout, so that every stub has the same size.
.balign 16
.global trap_stubs
trap_stubs:
.set vector, 0
.rept 256
    .balign 16
    .byte 0x68
    .long vector
    jmp trap_common
    .set vector, vector + 1
.endr

// The interrupted segments may be anything: only the stack that the CPU chose is used, and of it
// only two more dwords. The library looks at the frame from there.
trap_common:
    pushl %ds
    pushl $0x10
    popl %ds
    movl %eax, trap_frame + kEax
    movl %ebx, trap_frame + kEbx
    movl %ecx, trap_frame + kEcx
    movl %edx, trap_frame + kEdx
    movl %esi, trap_frame + kEsi
    movl %edi, trap_frame + kEdi
    movl %ebp, trap_frame + kEbp
    popl trap_frame + kDs
    popl trap_vector
    movl %esp, trap_esp
    movl %ss, %eax
    movl %eax, trap_ss
    movl %es, %eax
    movl %eax, trap_frame + kEs
    movl %fs, %eax
    movl %eax, trap_frame + kFs
    movl %gs, %eax
    movl %eax, trap_frame + kGs
    movl %cs, %eax
    movl %eax, trap_cs
    pushfl
    popl trap_eflags
    lss probe_stack_pointer, %esp
    SITE kVmiGetTr, "strl %eax"
    movl %eax, trap_tr
    movl $0x10, %eax
    movl %eax, %es
    pushl $2
    popfl
    call TrapDispatch
    jmp leave_probe

// void EnterProbe(const Frame*): returns when the probe has ended.
.global EnterProbe
EnterProbe:
    pushl %ebx
    pushl %ebp
    pushl %esi
    pushl %edi
    SITE kVmiGetInterruptMask, "pushfl; popl %eax"
    pushl %eax
    SITE kVmiDisableInterrupts, "cli"
    movl %esp, probe_stack_pointer
    movl 24(%esp), %eax
    jmp resume

leave_probe:
    movl $0x10, %eax
    movl %eax, %ds
    movl %eax, %es
    xorl %eax, %eax
    movl %eax, %fs
    movl %eax, %gs
    lss probe_stack_pointer, %esp
    popl %eax
    SITE kVmiSetInterruptMask, "pushl %eax; popfl"
    popl %edi
    popl %esi
    popl %ebp
    popl %ebx
    ret

// [[noreturn]] void ResumeProbe(const Frame*)
.global ResumeProbe
ResumeProbe:
    movl 4(%esp), %eax
resume:
    testl $0x20000, kEflags(%eax)
    jnz to_v86
    testl $3, kCs(%eax)
    jnz to_ring
    lss kEsp(%eax), %esp
    jmp 1f
to_v86:
    pushl kGs(%eax)
    pushl kFs(%eax)
    pushl kDs(%eax)
    pushl kEs(%eax)
to_ring:
    pushl kSs(%eax)
    pushl kEsp(%eax)
1:  pushl kEflags(%eax)
    pushl kCs(%eax)
    pushl kEip(%eax)
    testl $0x20000, kEflags(%eax)
    jnz 2f
    movw kEs(%eax), %es
    movw kFs(%eax), %fs
    movw kGs(%eax), %gs
2:  movl kEbx(%eax), %ebx
    movl kEcx(%eax), %ecx
    movl kEdx(%eax), %edx
    movl kEsi(%eax), %esi
    movl kEdi(%eax), %edi
    movl kEbp(%eax), %ebp
    testl $0x20000, kEflags(%eax)
    jnz 3f
    pushl kDs(%eax)
    movl kEax(%eax), %eax
    popl %ds
.global outer_iret
outer_iret:
    SITE kVmiIret, "iretl"
3:  movl kEax(%eax), %eax
    SITE kVmiIret, "iretl"

// #DF arrives here by a task switch; the interrupted state lies in the TSS it came from.
.global double_fault_entry
double_fault_entry:
    popl %eax
    movl %eax, trap_error
    SITE kVmiClts, "clts"
    lss probe_stack_pointer, %esp
    pushl $2
    popfl
    call DoubleFaultDispatch
    jmp leave_probe

.section .data
.balign 4
.global probe_stack_pointer
probe_stack_pointer:
    .long 0
    .long 0x10

.section .bss
.balign 16
.global trap_frame, trap_vector, trap_esp, trap_ss, trap_cs, trap_eflags, trap_tr, trap_error
trap_frame:     .skip 64
trap_vector:    .skip 4
trap_esp:       .skip 4
trap_ss:        .skip 4
trap_cs:        .skip 4
trap_eflags:    .skip 4
trap_tr:        .skip 4
trap_error:     .skip 4
.balign 16
kernel_stack:   .skip 16384
kernel_stack_top:
