/* SPDX-License-Identifier: Apache-2.0 */
// The option ROM of vmi_rom.h: the code of VMI's calls (docs/vmi.md), position-independent. A BIOS
// sees an option ROM that has nothing to do; a VMI kernel calls it in 32-bit protected mode or in
// 64-bit mode, by whatever linear address it has the ROM at. It keeps no data of its own, because a
// BIOS leaves ROMs write-protected.
//
// Functions take their words in EAX, EDX, ECX and then on the stack, return by a plain RET, and
// change EAX, EDX, ECX and flags at most; the interrupt flag's, all but results, keep those, too. In
// 64-bit mode words have 64 bits. Many functions serve both kinds of kernels, because their bytes
// say in either mode what they should: a POPL is a POPQ there, and so on. vmi_calls.inc says whose
// a function is.

#define ROM alibi_vmi_rom
#define API_MINOR 0
#define API_MAJOR 3
#define CALL_COUNT 74
#define CALL64_COUNT 77

#define PIIX_RESET_PORT 0xcf9     /* pc/board.h */
#define ACPI_CONTROL_PORT 0x604
#define POST_PORT 0x80

    .macro HYPERCALL number
    push $\number                 // VMCALL pops it
    vmcall
    .endm
#define ALIBI_HYPERCALL(name, number, width, what) .set name, number
#include "vcpu/hypercalls.inc"

    .macro FUNCTION name
    .balign 16
\name:
    .endm

    .section .rodata
    .globl alibi_vmi_rom, alibi_vmi_rom_end, alibi_vmi_rom_groups
    .balign 16
ROM:
rom_begin:
    .byte 0x55, 0xaa
    .byte 0                       // blocks of 512 bytes; filled in
    .code16
    lretw                         // nothing to initialise for a BIOS
    .org ROM + 6
    .byte 0                       // the checksum; filled in
    .org ROM + 8
    .ascii "cVmi"
    .byte API_MINOR, API_MAJOR
    .byte CALL_COUNT, 0
    .long 0                       // no linear addresses are ours: the kernel keeps all
    .word 0
    .word licence - ROM
    .word pci - ROM
    .word pnp - ROM
    .org ROM + 0x1c
    .word entries64 - ROM         // ours: where a 64-bit kernel's two entries are
    .org ROM + 0x20
pci:
    .ascii "PCIR"
    .word 0x15ad, 0x0801          // by which kernels know a VMI ROM
    .word 0
    .word 0x18                    // bytes of this header
    .byte 0                       // revision
    .byte 0, 0, 0xff              // class: none
    .word (alibi_vmi_rom_end - ROM + 511) / 512
    .byte 0, 1                    // this ROM's version: 1.0
    .byte 0, 0x80                 // PC code; the last image
    .org ROM + 0x40
pnp:
    .ascii "$PnP"
    .byte 1, 2                    // revision; 32 bytes
    .word 0                       // no other header
    .byte 0, 0                    // reserved; the checksum, filled in
    .long 0                       // device
    .word maker - ROM
    .word product - ROM
    .org ROM + 0x60               // nothing to boot from, nothing to connect
maker:
    .asciz "Alibi"
product:
    .asciz "VMI"
// The kernel looks for this word, as it does in modules, and leaves the ROM alone without it.
licence:
    .asciz "GPL"
    .code32
    .org ROM + 0x80
    jmp initialise
    .org ROM + 0x88
    jmp relocation_info

    .org ROM + 0x90
// The groups that are on; the loader fills it in.
alibi_vmi_rom_groups:
groups:
    .long 0
    .org ROM + 0xa0
    .code64
entries64:
    jmp initialise64
    .org ROM + 0xa8
    jmp relocation_info64
    .code32

#define ALIBI_VMI_GROUP(name, bit, what) .set group_##name, 1 << bit
    .set group_basic, 0
// Of an answer: the type in the upper half, the place in the ROM in the lower.
#define NONE 0
#define CALL(label) (label - ROM + 0x10000)
#define JUMP(label) (label - ROM + 0x20000)
#define NOP 0x30000
#define ROW_BYTES 12
#define ALIBI_VMI_CALL(number, name, group, transparent, paravirtual) \
    .org calls + ROW_BYTES * number; .long transparent, paravirtual, group_##group
calls:
#include "pc/boot/vmi_calls.inc"
    .org calls + ROW_BYTES * CALL_COUNT

#define ALIBI_VMI_CALL64(number, name, group, transparent, paravirtual) \
    .org calls64 + ROW_BYTES * number; .long transparent, paravirtual, group_##group
calls64:
#include "pc/boot/vmi_calls.inc"
    .org calls64 + ROW_BYTES * CALL64_COUNT

// --- VMI_Init, GetRelocationInfo ---

FUNCTION initialise
    call 1f
1:  popl %ecx
    testl $group_mmu, (alibi_vmi_rom_groups - 1b)(%ecx)
    jz 2f
    HYPERCALL AnnouncePageTables
2:  xorl %eax, %eax
    ret

// EAX: the call. DL: the answer's type, EAX: its address.
FUNCTION relocation_info
    xorl %edx, %edx
    cmpl $CALL_COUNT, %eax
    jae 3f
    call 1f
1:  popl %ecx
    leal (%eax,%eax,2), %eax
    leal (calls - 1b)(%ecx,%eax,4), %eax
    movl 8(%eax), %edx
    testl %edx, (alibi_vmi_rom_groups - 1b)(%ecx)
    movl (%eax), %edx
    jz 2f
    movl 4(%eax), %edx
2:  movzwl %dx, %eax
    leal (ROM - 1b)(%ecx,%eax), %eax
    shrl $16, %edx
3:  ret

// --- The processor ---

FUNCTION cpuid_
    cpuid
    ret
FUNCTION wrmsr_
    wrmsr
    ret
FUNCTION rdmsr_
    rdmsr
    ret
FUNCTION rdpmc_
    rdpmc
    ret
FUNCTION rdtsc_
    rdtsc
    ret
FUNCTION wbinvd_
    wbinvd
    ret
FUNCTION clts_
    clts
    ret
FUNCTION set_gdt
    lgdtl (%eax)
    ret
FUNCTION set_idt
    lidtl (%eax)
    ret
FUNCTION set_ldt
    lldt %ax
    ret
FUNCTION set_tr
    ltr %ax
    ret
FUNCTION get_gdt
    sgdtl (%eax)
    ret
FUNCTION get_idt
    sidtl (%eax)
    ret
FUNCTION get_ldt
    sldt %eax
    ret
FUNCTION get_tr
    str %eax
    ret
// The table, the index, and the descriptor's halves: ECX and a word on the stack.
FUNCTION write_descriptor
    movl %ecx, (%eax,%edx,8)
    movl 4(%esp), %ecx
    movl %ecx, 4(%eax,%edx,8)
    ret
FUNCTION set_cr0
    movl %eax, %cr0
    ret
FUNCTION set_cr2
    movl %eax, %cr2
    ret
FUNCTION set_cr3
    movl %eax, %cr3
    ret
FUNCTION set_cr4
    movl %eax, %cr4
    ret
FUNCTION get_cr0
    movl %cr0, %eax
    ret
FUNCTION get_cr2
    movl %cr2, %eax
    ret
FUNCTION get_cr3
    movl %cr3, %eax
    ret
FUNCTION get_cr4
    movl %cr4, %eax
    ret
    .macro MOVE_TO register
    movl %edx, %\register
    .endm
    .macro MOVE_FROM register
    movl %\register, %eax
    .endm
// Eight entries of four bytes: registers 0 to 3, 6 and 7. 4 and 5 do nothing.
    .macro DEBUG_REGISTER_CASES move
    .irp register, db0, db1, db2, db3
    \move \register
    ret
    .endr
    .rept 2
    ret
    .balign 4
    .endr
    .irp register, db6, db7
    \move \register
    ret
    .endr
    .endm
// A jump to one of them, by EAX.
    .macro BY_DEBUG_REGISTER move
    andl $7, %eax
    call 1f
1:  popl %ecx
    leal (2f - 1b)(%ecx,%eax,4), %ecx
    xorl %eax, %eax
    jmp *%ecx
    .balign 4
2:
    DEBUG_REGISTER_CASES \move
    .endm
FUNCTION set_dr
    BY_DEBUG_REGISTER MOVE_TO
FUNCTION get_dr
    BY_DEBUG_REGISTER MOVE_FROM
// EAX: the IOPL in bits 12 and 13.
FUNCTION set_iopl
    andl $0x3000, %eax
    pushfl
    andl $~0x3000, (%esp)
    orl %eax, (%esp)
    popfl
    ret
FUNCTION reboot
    movw $PIIX_RESET_PORT, %dx
    movb $2, %al
    outb %al, %dx
    movb $6, %al
    outb %al, %dx
1:  hlt
    jmp 1b
// Soft off, and if the guest has moved those registers, silence.
FUNCTION shutdown
    movw $ACPI_CONTROL_PORT, %dx
    movw $0x2000, %ax
    outw %ax, %dx
    cli
1:  hlt
    jmp 1b
FUNCTION io_delay
    outb %al, $POST_PORT
    ret

// --- The interrupt flag, and the ways out of the kernel ---

FUNCTION sti_
    sti
    ret
FUNCTION cli_
    cli
    ret
FUNCTION get_flags
    pushfl
    popl %eax
    ret
FUNCTION set_flags
    pushl %eax
    popfl
    ret
FUNCTION set_interrupt_flag
    testb $2, %ah
    jz 1f
    sti
    ret
1:  cli
    ret
FUNCTION halt
    sti
    hlt
    ret
FUNCTION iret_
    iretl
FUNCTION sysexit_
    sti
    sysexit
// The VMM knows these by what they are made of, and shows their faults at the call
// (simulator/hypercall.cc).
    .macro DROP_RETURN_ADDRESS
    .byte 0x3e
    leal 4(%esp), %esp
    .endm
FUNCTION return_from_interrupt
    DROP_RETURN_ADDRESS
    iretl
FUNCTION return_to_user
    DROP_RETURN_ADDRESS
    sti
    sysexit

// --- Page tables ---
// Leaf tables and those above have their stores in different places: they fare differently
// (docs/vmi.md), and what one store site learns about its own shall hold for the other's no more
// than it must.

// EAX: the entry; EDX: where; CL: its level.
FUNCTION set_entry
    testb $0x0e, %cl
    jnz 1f
    movl %eax, (%edx)
    ret
1:  movl %eax, (%edx)
    ret
// EDX:EAX: the entry; ECX: where; the level is on the stack. What is absent while one half is
// written is the entry that is absent before or after.
FUNCTION set_long_entry
    testb $0x0e, 4(%esp)
    jnz 2f
    testb $1, %al
    jz 1f
    movl %edx, 4(%ecx)
    movl %eax, (%ecx)
    ret
1:  movl %eax, (%ecx)
    movl %edx, 4(%ecx)
    ret
2:  testb $1, %al
    jz 3f
    movl %edx, 4(%ecx)
    movl %eax, (%ecx)
    ret
3:  movl %eax, (%ecx)
    movl %edx, 4(%ecx)
    ret
FUNCTION invalidate_page
    invlpg (%eax)
    ret
// AL, bit 1: global pages, too.
FUNCTION flush_tlb
    testb $2, %al
    jnz 1f
    movl %cr3, %eax
    movl %eax, %cr3
    ret
1:  movl %cr4, %eax
    movl %eax, %edx
    andl $~0x80, %edx
    movl %edx, %cr4
    movl %eax, %cr4
    movl %cr3, %eax               // without CR4.PGE the above is no flush
    movl %eax, %cr3
    ret
FUNCTION release_page
    HYPERCALL ReleasePage
    ret
FUNCTION nothing
    ret

// --- Hypercalls ---

FUNCTION apic_write
    HYPERCALL WriteLocalApic
    ret
FUNCTION apic_read
    HYPERCALL ReadLocalApic
    ret
// EAX: the record; EDX: the APIC's ID. Its words go to the VMM one by one, and then the descriptors
// of its segments, so that only the guest's own instructions read what the guest names.
#define RECORD_WORDS 23
#define SELECTORS 0x40
#define SEGMENTS 7
#define GDT_LIMIT 0x4e
#define GDT_BASE 0x50
FUNCTION set_initial_ap_state
    pushl %ebx
    pushl %esi
    pushl %edi
    pushl %ebp
    movl %eax, %esi
    movl %edx, %edi
    xorl %ebx, %ebx
1:  movl (%esi,%ebx,4), %ecx
    call set_start_word
    cmpl $RECORD_WORDS, %ebx
    jb 1b
    xorl %ebp, %ebp
2:  movzwl SELECTORS(%esi,%ebp,2), %edx
    xorl %eax, %eax
    xorl %ecx, %ecx
    testb $4, %dl                 // there is no LDT yet
    jnz 3f
    andl $~7, %edx
    jz 3f
    movl %edx, %ecx
    orl $7, %edx
    cmpw GDT_LIMIT(%esi), %dx
    movl %ecx, %edx
    movl $0, %ecx
    ja 3f
    addl GDT_BASE(%esi), %edx
    movl (%edx), %ecx
    movl 4(%edx), %eax
3:  pushl %eax
    call set_start_word
    popl %ecx
    call set_start_word
    incl %ebp
    cmpl $SEGMENTS, %ebp
    jb 2b
    popl %ebp
    popl %edi
    popl %esi
    popl %ebx
    ret
// ECX: word number EBX, of processor EDI; and EBX is the next.
FUNCTION set_start_word
    movl %edi, %eax
    movl %ebx, %edx
    HYPERCALL SetStartState
    incl %ebx
    ret
FUNCTION cycle_frequency
    HYPERCALL CycleFrequency
    ret
// Real time is the TSC's.
FUNCTION cycle_counter
    testl %eax, %eax
    jnz 1f
    rdtsc
    ret
1:  HYPERCALL CycleCounter
    ret
FUNCTION set_alarm
    HYPERCALL SetAlarm
    ret
FUNCTION cancel_alarm
    HYPERCALL CancelAlarm
    ret
FUNCTION wallclock_time
    HYPERCALL WallclockTime
    ret
// Nobody else sets the wall clock that is shown.
FUNCTION wallclock_updated
    xorl %eax, %eax
    ret

// --- What 64-bit kernels have for themselves ---

    .code64
FUNCTION initialise64
    testl $group_mmu, groups(%rip)
    jz 1f
    HYPERCALL AnnouncePageTables
1:  xorl %eax, %eax
    ret

// RAX: the call. RDX: the answer's type, RAX: its address.
FUNCTION relocation_info64
    xorl %edx, %edx
    cmpq $CALL64_COUNT, %rax
    jae 2f
    leal (%rax,%rax,2), %eax
    leaq calls64(%rip), %rcx
    leaq (%rcx,%rax,4), %rcx
    movl 8(%rcx), %edx
    testl %edx, groups(%rip)
    movl (%rcx), %edx
    jz 1f
    movl 4(%rcx), %edx
1:  movzwl %dx, %ecx
    leaq rom_begin(%rip), %rax
    addq %rcx, %rax
    shrl $16, %edx
2:  ret

FUNCTION set_cr8
    movq %rax, %cr8
    ret
FUNCTION get_cr8
    movq %cr8, %rax
    ret
    .macro BY_DEBUG_REGISTER64 move
    andl $7, %eax
    leaq 1f(%rip), %rcx
    leaq (%rcx,%rax,4), %rcx
    xorl %eax, %eax
    jmp *%rcx
    .balign 4
1:
    DEBUG_REGISTER_CASES \move
    .endm
    .macro MOVE_TO64 register
    movq %rdx, %\register
    .endm
    .macro MOVE_FROM64 register
    movq %\register, %rax
    .endm
FUNCTION set_dr64
    BY_DEBUG_REGISTER64 MOVE_TO64
FUNCTION get_dr64
    BY_DEBUG_REGISTER64 MOVE_FROM64
// RAX: the table; RDX: the index; RCX: the descriptor.
FUNCTION write_descriptor64
    movq %rcx, (%rax,%rdx,8)
    ret
// RAX: the table; RDX: the index; RCX: the gate's lower half, which has its present bit; the upper
// half is on the stack.
FUNCTION write_gate
    shlq $4, %rdx
    addq %rdx, %rax
    movq 8(%rsp), %rdx
    movq %rdx, 8(%rax)
    movq %rcx, (%rax)
    ret
// RAX: the entry; RDX: where; CL: its level.
FUNCTION set_entry64
    testb $0x0e, %cl
    jnz 1f
    movq %rax, (%rdx)
    ret
1:  movq %rax, (%rdx)
    ret
// RAX: the record; RDX: the APIC's ID. As in 32 bits, but for the LDT's descriptor.
#define RECORD64_WORDS 31
#define SELECTORS64 0xe0
#define SEGMENTS64 6
#define GDT_LIMIT64 0xec
#define GDT_BASE64 0xd0
FUNCTION set_initial_ap_state64
    pushq %rbx
    pushq %rsi
    pushq %rdi
    pushq %rbp
    movq %rax, %rsi
    movq %rdx, %rdi
    xorl %ebx, %ebx
1:  movq (%rsi,%rbx,8), %rcx
    call set_start_word64
    cmpl $RECORD64_WORDS, %ebx
    jb 1b
    xorl %ebp, %ebp
2:  movzwl SELECTORS64(%rsi,%rbp,2), %edx
    xorl %ecx, %ecx
    testb $4, %dl                 // there is no LDT yet
    jnz 3f
    andl $~7, %edx
    jz 3f
    leal 7(%rdx), %eax
    cmpw GDT_LIMIT64(%rsi), %ax
    ja 3f
    addq GDT_BASE64(%rsi), %rdx
    movq (%rdx), %rcx
3:  call set_start_word64
    incl %ebp
    cmpl $SEGMENTS64, %ebp
    jb 2b
    popq %rbp
    popq %rdi
    popq %rsi
    popq %rbx
    ret
// RCX: word number RBX, of processor RDI; and RBX is the next.
FUNCTION set_start_word64
    movq %rdi, %rax
    movl %ebx, %edx
    HYPERCALL SetStartState64
    incl %ebx
    ret
// Real time is the TSC's.
FUNCTION cycle_counter64
    testq %rax, %rax
    jnz 1f
    rdtsc
    shlq $32, %rdx
    orq %rdx, %rax
    ret
1:  HYPERCALL CycleCounter
    ret

alibi_vmi_rom_end:
    .section .note.GNU-stack, "", @progbits
