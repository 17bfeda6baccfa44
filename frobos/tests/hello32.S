/* SPDX-License-Identifier: Apache-2.0 */
// Even less than hello.S: "hello32" and exit(0) straight from the multiboot entry, in 32-bit
// protected mode without paging; exit(1) if the loader's magic number is missing.

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
    movl %eax, loader_magic
    movl $message, %esi
    movl $(message_end - message), %ecx
    movl $0x3f8, %edx
1:  lodsb
    outb %al, %dx
    decl %ecx
    jnz 1b
    movl $0xf4, %edx
    cmpl $0x2BADB002, loader_magic
    setne %al
    outb %al, %dx
2:  cli
    hlt
    jmp 2b

.section .rodata
message: .ascii "hello32\n"
message_end:

.section .bss
.balign 4
loader_magic: .skip 4
