/* SPDX-License-Identifier: Apache-2.0 */
// The option ROM of linux_rom.h. Real mode, position-independent: only differences of labels.
#include "pc/boot/option_rom.inc"

#define FW_CFG_DMA 0x514
#define DMA_READ_SELECTED 0x0a    /* select an item, then read it */
#define WORK 0x7c00               /* as boot sectors do: this page is nobody's */
#define WORD (WORK + 0x20)
#define STACK WORK
#define SETUP_STACK 0xe000

    .section .rodata
    .globl alibi_linux_rom, alibi_linux_rom_end
    .balign 16
alibi_linux_rom:
    OPTION_ROM_HEADER alibi_linux_rom, "Linux kernel"

// Address, size and data items.
    .balign 2
items:
    .word 0x16, 0x17, 0x18        // setup code
    .word 0x13, 0x14, 0x15        // command line
    .word 0x07, 0x08, 0x11        // kernel
    .word 0x0a, 0x0b, 0x12        // initial RAM disk
items_end:

boot:
    cli
    cld
    xorw %ax, %ax
    movw %ax, %ds
    movw %ax, %ss
    movw $STACK, %sp
    movw $(items - alibi_linux_rom), %si
1:  movw %cs:(%si), %ax
    call item_word
    movl %ebx, %edi
    movw %cs:2(%si), %ax
    call item_word
    movl %ebx, %ecx
    jecxz 2f
    movl %edi, %edx
    movw %cs:4(%si), %ax
    call read_item
2:  addw $6, %si
    cmpw $(items_end - alibi_linux_rom), %si
    jb 1b

    movw $0x16, %ax
    call item_word
    shrl $4, %ebx
    movw %bx, %ds
    movw %bx, %es
    movw %bx, %fs
    movw %bx, %gs
    movw %bx, %ss
    movl $SETUP_STACK, %esp
    addw $0x20, %bx
    pushw %bx
    pushw $0
    lretw

// EBX: the 32-bit number that item AX is.
item_word:
    movl $4, %ecx
    movl $WORD, %edx
    call read_item
    movl WORD, %ebx
    ret

// Reads ECX bytes of item AX to the physical address EDX. The descriptor is big-endian: control,
// length, address of 64 bits.
read_item:
    shll $16, %eax
    movb $DMA_READ_SELECTED, %al
    bswapl %eax
    movl %eax, WORK
    bswapl %ecx
    movl %ecx, WORK + 4
    movl $0, WORK + 8
    bswapl %edx
    movl %edx, WORK + 12
    xorl %eax, %eax
    movw $FW_CFG_DMA, %dx
    outl %eax, %dx
    movl $WORK, %eax
    bswapl %eax
    movw $(FW_CFG_DMA + 4), %dx
    outl %eax, %dx
3:  movl WORK, %eax
    bswapl %eax
    testl $~1, %eax
    jnz 3b
    testb $1, %al
    jnz 4f
    ret
4:  int $0x18                     // no: the BIOS tries something else
    hlt
    jmp 4b

alibi_linux_rom_end:
    .section .note.GNU-stack, "", @progbits
