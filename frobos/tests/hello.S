/* SPDX-License-Identifier: Apache-2.0 */
// The least that is a FrobOS kernel: 32-bit entry, page tables, long mode, "hello", exit(0).
// It uses nothing of frobos/lib, no stack, no descriptor table but a GDT of one code segment, and
// polls no device: the first image a new VMM should be able to run.

.set kMagic, 0x1BADB002
.set kFlags, 0x00000003
.section .multiboot, "a"
.balign 4
.long kMagic, kFlags, -(kMagic + kFlags)

.section .text
.code32
.global _start
_start:
    cld
    // One 2 MB page at 0, enough for the image: PML4[0] -> PDPT[0] -> PD[0].
    movl $(pdpt + 3), pml4
    movl $(pd + 3), pdpt
    movl $0x83, pd
    movl $pml4, %eax
    movl %eax, %cr3
    movl %cr4, %eax
    orl $0x20, %eax             // CR4.PAE
    movl %eax, %cr4
    movl $0xC0000080, %ecx      // EFER
    rdmsr
    orl $0x100, %eax            // EFER.LME
    wrmsr
    movl %cr0, %eax
    orl $0x80000001, %eax       // CR0.PG, CR0.PE
    movl %eax, %cr0
    lgdt gdt_pointer
    ljmp $8, $long_mode

.code64
long_mode:
    leaq message(%rip), %rsi
    movl $(message_end - message), %ecx
    movl $0x3f8, %edx
1:  movb (%rsi), %al
    outb %al, %dx
    incq %rsi
    decl %ecx
    jnz 1b
    movl $0xf4, %edx
    xorl %eax, %eax
    outb %al, %dx
2:  cli
    hlt
    jmp 2b

.section .rodata
message: .ascii "hello\n"
message_end:
.balign 8
gdt:
    .quad 0
    .quad 0x00af9a000000ffff    // 64-bit code
gdt_pointer:
    .word . - gdt - 1
    .long gdt

.section .bss
.balign 4096
pml4: .skip 4096
pdpt: .skip 4096
pd:   .skip 4096
