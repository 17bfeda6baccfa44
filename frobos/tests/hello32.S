// Even less than hello.S: "hello32" and exit(0) straight from the multiboot entry, in 32-bit
// protected mode without paging.

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
    movl $message, %esi
    movl $(message_end - message), %ecx
    movl $0x3f8, %edx
1:  lodsb
    outb %al, %dx
    decl %ecx
    jnz 1b
    movl $0xf4, %edx
    xorl %eax, %eax
    outb %al, %dx
2:  cli
    hlt
    jmp 2b

.section .rodata
message: .ascii "hello32\n"
message_end:
