/* SPDX-License-Identifier: Apache-2.0 */
// A ROM's image (@IMAGE@) as a multiboot kernel: from 32-bit protected mode to real mode, with the image in
// RAM where the ROM would have copied it.

.set kMagic, 0x1BADB002
.set kFlags, 0x00000003
.section .multiboot, "a"
.balign 4
.long kMagic, kFlags, -(kMagic + kFlags)

.section .text
.code32
.global _start
_start:
    cli
    cld
    movl $image, %esi
    movl $0x10000, %edi
    movl $(0x10000 / 4), %ecx
    rep movsl
    movl $tail, %esi                // the last steps must run below 64 KB
    movl $0x8000, %edi
    movl $(tail_end - tail), %ecx
    rep movsb
    movb $0xff, %al
    outb %al, $0x21
    outb %al, $0xa1
    lgdt table_pointer
    ljmp $8, $0x8000

.code16
tail:
    movw $16, %ax
    movw %ax, %ds
    movw %ax, %es
    movw %ax, %fs
    movw %ax, %gs
    movw %ax, %ss
    movl %cr0, %eax
    andb $0xfe, %al
    movl %eax, %cr0
    ljmpw $0, $(0x8000 + 1f - tail)
1:  xorw %ax, %ax
    movw %ax, %ds
    lidtl 0x8000 + vectors - tail
    ljmpw $0x1000, $0
vectors:
    .word 0x3ff
    .long 0
tail_end:

.section .data
.balign 8
table:
    .quad 0
    .quad 0x00009b000000ffff        // 16-bit code, 64 KB
    .quad 0x000093000000ffff        // data, 64 KB
table_pointer:
    .word . - table - 1
    .long table
.balign 4
image:
    .incbin "frobos/rom/@IMAGE@.rom"
