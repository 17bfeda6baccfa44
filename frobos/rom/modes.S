/* SPDX-License-Identifier: Apache-2.0 */
// Out of real mode and back: 16- and 32-bit protected mode, unreal mode, long mode. All within a page
// or two, so the mode changes in the middle of code that is one stretch of bytes.

.set kBase, 0x10000                 // of the image's segment
.set kCode16, 0x08
.set kData16, 0x10
.set kCode32, 0x18
.set kFlat, 0x20
.set kCode64, 0x28
.set kTiny, 0x30
.set kFar, 0x200000                 // memory that real mode cannot reach
.set kTables, 0x70000

.section .text
.code16

// void RunProtected(ModeResults*): through both widths of protected mode; ES stays unreal.
.global RunProtected
RunProtected:
    pushal
    movl 36(%esp), %ebp
    lgdtl mode_gdt_pointer
    movl %cr0, %eax
    orb $1, %al
    movl %eax, %cr0
    // Protected now, with the CS of real mode as it was cached.
    movw %cs, 0(%ebp)
    ljmpw $kCode16, $1f
1:  movw $kData16, %ax
    movw %ax, %ds
    movw %ax, %ss
    movw $kFlat, %ax
    movw %ax, %es
    movw %cs, 2(%ebp)
    movl $kFar, %ebx
    movl $0x11223344, %es:(%ebx)
    addl $0x01010101, %es:(%ebx)
    movl %es:(%ebx), %eax
    movl %eax, 4(%ebp)
    // An interrupt by a 16-bit gate of a protected-mode IDT.
    lidtl mode_idt_pointer
    movw %sp, %si
    stc
    int $0x41
    movw $0, 8(%ebp)
    setc 8(%ebp)
    cmpw %sp, %si
    setz 9(%ebp)
    movl %ecx, 12(%ebp)             // by the handler
    ljmpl $kCode32, $2f
.code32
2:  movl $0x12345678, %eax
    pushl %eax
    popl %ecx
    call 5f
    movl %ecx, 16(%ebp)
    movl $kTiny, %eax
    movl %eax, %fs
    lsl %eax, %eax
    movl %eax, 20(%ebp)
    ljmpl $kCode16, $3f
5:  leal 1(%ecx), %ecx
    ret
.code16
3:  smsww %ax
    movw %ax, 24(%ebp)
    movl %cr0, %eax
    andb $0xfe, %al
    movl %eax, %cr0
    // Real mode again, still with the cached CS, and segments that are loaded no more.
    movl %es:(%ebx), %eax
    movl %eax, 28(%ebp)
    ljmpw $0x1000, $4f
4:  movw %cs, %ax
    movw %ax, %ds
    movw %ax, %ss
    xorw %ax, %ax
    movw %ax, %fs                   // a base of 0, and still the tiny limit
    movw %ax, %es                   // a base of 0, and still the large limit: unreal
    movw %cs, 26(%ebp)
    movl %es:(%ebx), %eax
    movl %eax, 32(%ebp)
    lidtl mode_real_idt_pointer
    movw %ds, %ax
    movw %ax, %es                   // C++ wants its own ES; the limit stays large
    popal
    retl

mode_handler:
    movl $0xfeedbeef, %ecx
    iretw

// void LeaveUnreal(): by LMSW into protected mode, for 64 KB limits in all data segments.
.global LeaveUnreal
LeaveUnreal:
    pushal
    lgdtl mode_gdt_pointer
    smsww %ax
    orb $1, %al
    lmsww %ax
    jmp 1f
1:  movw $kData16, %ax
    movw %ax, %es
    movw %ax, %fs
    movw %ax, %gs
    movl %cr0, %eax
    andb $0xfe, %al
    movl %eax, %cr0
    jmp 2f
2:  movw $0x1000, %ax
    movw %ax, %es
    movw %ax, %fs
    movw %ax, %gs
    popal
    retl

// void RunLong(LongResults*): real mode to 64-bit code in one MOV to CR0, and back by way of
// compatibility mode. The tables lie at kTables.
.global RunLong
RunLong:
    pushal
    movl 36(%esp), %ebp
    lgdtl mode_gdt_pointer
    movl %cr4, %eax
    orb $0x20, %al
    movl %eax, %cr4
    movl $kTables, %eax
    movl %eax, %cr3
    movl $0xc0000080, %ecx
    rdmsr
    orl $0x100, %eax
    wrmsr
    movl %cr0, %eax
    orl $0x80000001, %eax
    movl %eax, %cr0
    // Compatibility mode, by the cached CS.
    movl $0xc0000080, %ecx
    rdmsr
    movl %eax, 0(%ebp)
    ljmpl $kCode64, $(kBase + 1f)
.code64
1:  movl %ebp, %ebp
    movq $0x1122334455667788, %r8
    movq %r8, kBase + 8(%rbp)
    leaq 1b(%rip), %rax
    movq %rax, kBase + 16(%rbp)
    movq $-1, %r15
    popcntq %r15, %r14
    movl %r14d, kBase + 4(%rbp)
    movl %esp, %esp
    addq $kBase, %rsp
    movl $kFlat, %eax
    movl %eax, %ss
    call 5f
    pushq $kCode16
    movl $2f, %eax
    pushq %rax
    lretq
5:  movq %r15, kBase + 24(%rbp)
    ret
.code16
2:  movw $kData16, %ax
    movw %ax, %ss
    movw %ax, %ds
    subl $kBase, %esp
    // In compatibility mode: 16-bit code sees no REX.
    movw $7, %cx
    .byte 0x48                      // dec ax here
    decw %cx
    movw %cx, 32(%ebp)
    movl %cr0, %eax
    andl $0x7fffffff, %eax
    movl %eax, %cr0
    movl $0xc0000080, %ecx
    rdmsr
    movl %eax, 36(%ebp)
    andl $0xfffffeff, %eax
    wrmsr
    movl %cr4, %eax
    andb $0xdf, %al
    movl %eax, %cr4
    movl %cr0, %eax
    andb $0xfe, %al
    movl %eax, %cr0
    ljmpw $0x1000, $3f
3:  movw %cs, %ax
    movw %ax, %ds
    movw %ax, %ss
    movw %ax, %es
    popal
    retl

.section .data
.balign 8
mode_gdt:
    .quad 0
    .quad 0x00009b010000ffff        // 16-bit code at kBase
    .quad 0x000093010000ffff        // data at kBase, 64 KB
    .quad 0x004f9b010000ffff        // 32-bit code at kBase, 1 MB
    .quad 0x00cf93000000ffff        // flat data
    .quad 0x00af9b000000ffff        // 64-bit code
    .quad 0x000093000000000f        // 16 bytes of data
mode_gdt_end:
mode_gate:
    .word mode_handler, kCode16, 0x8600, 0
mode_gdt_pointer:
    .word mode_gdt_end - mode_gdt - 1
    .long kBase + mode_gdt
mode_idt_pointer:
    .word 0x41*8 + 7
    .long kBase + mode_gate - 0x41*8
mode_real_idt_pointer:
    .word 0x3ff
    .long 0
