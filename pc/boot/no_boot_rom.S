/* SPDX-License-Identifier: Apache-2.0 */
// The option ROM of NoBootDeviceRom() in option_rom.h. Real mode, position-independent.
#include "pc/boot/option_rom.inc"

#define BOOT_FAILURE_PORT 0x508   /* devices/qemu/boot_failure.h */
#define BOOT_FAILURE 0x746f6f62   /* "boot" */
#define SHOW_CHARACTER 0x0e       /* INT 10h */

    .section .rodata
    .globl alibi_no_boot_rom, alibi_no_boot_rom_end
    .balign 16
alibi_no_boot_rom:
    OPTION_ROM_HEADER alibi_no_boot_rom, "Nothing to boot"
message:
    .asciz "No bootable device.\r\n"

boot:
    cld
    movw $(message - alibi_no_boot_rom), %si
1:  movb %cs:(%si), %al
    incw %si
    testb %al, %al
    jz 2f
    movb $SHOW_CHARACTER, %ah
    movw $7, %bx
    pushw %si
    int $0x10
    popw %si
    jmp 1b
2:  movw $BOOT_FAILURE_PORT, %dx
    movl $BOOT_FAILURE, %eax
    outl %eax, %dx
3:  hlt
    jmp 3b

alibi_no_boot_rom_end:
    .section .note.GNU-stack, "", @progbits
