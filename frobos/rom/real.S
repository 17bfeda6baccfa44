/* SPDX-License-Identifier: Apache-2.0 */
// The image's three ways in (reset vector, multiboot wrapper, and the common start), the interrupt
// stubs, and the two halves of a probe.

.set kSegment, 0x1000

.section .text.start, "ax"
.code16
// Entered with CS = kSegment, from the ROM or from the multiboot wrapper.
.global start
start:
    cli
    cld
    movw %cs, %ax
    movw %ax, %ds
    movw %ax, %es
    movw %ax, %ss
    movl $0xfff0, %esp
    movl $bss_start, %edi
    movl $bss_end, %ecx
    subl %edi, %ecx
    xorl %eax, %eax
    rep stosb
    calll RomMain
1:  hlt
    jmp 1b

// The first code of a ROM, at F000 with the base FFFF0000. RAM is not known yet: registers only.
.global reset
reset:
    movl %cr0, %ebx
    movl %dr6, %ebp
    movl %dr7, %edi
    movl %esp, %ecx
    movw %ss, %si
    shll $16, %esi
    movw %ds, %si
    // RAM: the copy of this ROM at kSegment, with the state of the reset stored into the copy.
    movw $kSegment, %ax
    movw %ax, %es
    movw %ax, %ds
    movl %ebx, boot_state + 4
    movl %edx, boot_state + 8
    movl %ebp, boot_state + 16
    movl %edi, boot_state + 20
    movl %ecx, boot_state + 24
    movw %cs, boot_state + 28
    movl %esi, %eax
    movw %ax, boot_state + 32
    shrl $16, %eax
    movw %ax, boot_state + 30
    sidtl %cs:scratch               // into the ROM: ignored
    movw $0xff00, %sp
    movw $kSegment, %ax
    movw %ax, %ss
    pushfl
    popl boot_state + 12
    sidtl descriptor_scratch
    movw descriptor_scratch, %ax
    movw %ax, boot_state + 34
    movl descriptor_scratch + 2, %eax
    movl %eax, boot_state + 36
    sgdtl descriptor_scratch
    movw descriptor_scratch, %ax
    movw %ax, boot_state + 40
    movl %cs:0xfff0, %eax
    movl %eax, boot_state + 44
    movl $1, boot_state
    // Below 1 MB now: the same bytes by the real segment.
    ljmpw $0xf000, $1f
1:  movw $0xf000, %ax
    movw %ax, %ds
    xorw %si, %si
    xorw %di, %di
    movw $image_words, %cx          // the image without its variables
    cld
    rep movsw
    ljmpw $kSegment, $start
scratch:
    .skip 8

// 256 stubs: the vector as a word on whatever stack there is.
.section .text
.balign 4
.global interrupt_stubs
interrupt_stubs:
.set vector, 0
.rept 256
    .balign 8
    .byte 0x68                      // push imm16
    .word vector
    .byte 0xe9                      // jmp rel16
    .word interrupt_common - . - 2
    .set vector, vector + 1
.endr

interrupt_common:
    pushw %ds
    pushw $kSegment
    popw %ds
    movl %eax, trap_frame + 0
    movl %ebx, trap_frame + 4
    movl %ecx, trap_frame + 8
    movl %edx, trap_frame + 12
    movl %esi, trap_frame + 16
    movl %edi, trap_frame + 20
    movl %ebp, trap_frame + 24
    popw trap_frame + 48
    popw trap_vector
    popw trap_frame + 32            // ip
    popw trap_frame + 36            // cs
    popw trap_frame + 40            // flags
    movl %esp, trap_frame + 28
    movw %ss, trap_frame + 44
    movw %es, trap_frame + 52
    movw %fs, trap_frame + 56
    movw %gs, trap_frame + 60
    movw $kSegment, %ax
    movw %ax, %ss
    movl probe_esp, %esp
    movw %ax, %es
    cld
    popfl
    popl %edi
    popl %esi
    popl %ebp
    popl %ebx
    retl

// void EnterProbe(const Frame*): returns when the probe has ended.
.global EnterProbe
EnterProbe:
    pushl %ebx
    pushl %ebp
    pushl %esi
    pushl %edi
    pushfl
    cli
    movl %esp, probe_esp
    movl 24(%esp), %eax
    movw 44(%eax), %ss
    movl 28(%eax), %esp
    pushl 40(%eax)
    pushl 36(%eax)
    pushl 32(%eax)
    movw 52(%eax), %es
    movw 56(%eax), %fs
    movw 60(%eax), %gs
    movl 4(%eax), %ebx
    movl 8(%eax), %ecx
    movl 12(%eax), %edx
    movl 16(%eax), %esi
    movl 20(%eax), %edi
    movl 24(%eax), %ebp
    pushw 48(%eax)
    movl (%eax), %eax
    popw %ds
    iretl

.section .bss
.balign 4
.global trap_frame, trap_vector
trap_frame:     .skip 64
trap_vector:    .skip 4
probe_esp:      .skip 4
// Written before the image is copied, so not cleared with the variables.
.section .noinit, "aw", @nobits
.balign 4
.global boot_state
boot_state: .skip 64
descriptor_scratch: .skip 8

.section .reset, "ax"
.code16
    jmp reset
    .ascii "alibi 01"
    .balign 16, 0
