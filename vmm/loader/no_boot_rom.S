// The option ROM of NoBootDeviceRom() in option_rom.h. Real mode, position-independent.
#define BOOT_FAILURE_PORT 0x508   /* devices/boot_failure.h */
#define BOOT_FAILURE 0x746f6f62   /* "boot" */
#define SHOW_CHARACTER 0x0e       /* INT 10h */

    .section .rodata
    .globl alibi_no_boot_rom, alibi_no_boot_rom_end
    .balign 16
alibi_no_boot_rom:
    .code16
    .byte 0x55, 0xaa
    .byte 0                       // blocks of 512 bytes; filled in
    lretw                         // nothing to initialise
    .balign 2
    .word 0                       // byte 6: the checksum; filled in
    .org alibi_no_boot_rom + 0x18
    .word 0                       // no PCI data
    .word pnp - alibi_no_boot_rom
    .balign 16
pnp:
    .ascii "$PnP"
    .byte 1, 2                    // revision; 32 bytes
    .word 0                       // no other header
    .byte 0, 0                    // reserved; the checksum, filled in
    .long 0                       // device
    .word maker - alibi_no_boot_rom
    .word product - alibi_no_boot_rom
    .byte 0, 0, 0, 0              // device type, indicators
    .word 0, 0                    // no boot connection or disconnection
    .word boot - alibi_no_boot_rom  // the bootstrap entry
    .word 0, 0
maker:
    .asciz "Alibi"
product:
    .asciz "Nothing to boot"
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
