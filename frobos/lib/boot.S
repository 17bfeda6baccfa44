/* SPDX-License-Identifier: Apache-2.0 */
// Multiboot1 entry (32-bit protected mode, paging off) to 64-bit KernelStart(magic, info).
// Identity map: the first 1 GB in 2 MB pages, and the 2 MB pages with IOAPIC and LAPIC.

.set kMagic, 0x1BADB002
.set kFlags, 0x00000003         // page-aligned modules, memory information
.section .multiboot, "a"
.balign 4
.long kMagic, kFlags, -(kMagic + kFlags)

.section .boot, "ax"
.code32
.global _start
_start:
    cld
    movl %eax, %ebp             // survives until KernelStart
    movl $boot_stack_top, %esp

    movl $(boot_pdpt + 7), boot_pml4
    movl $(boot_pd_low + 7), boot_pdpt
    movl $(boot_pd_device + 3), boot_pdpt + 3*8
    movl $boot_pd_low, %edi
    movl $0x83, %eax            // P, W, PS; supervisor
    movl $512, %ecx
1:  movl %eax, (%edi)
    addl $8, %edi
    addl $0x200000, %eax
    decl %ecx
    jnz 1b
    movl $0xfec00093, boot_pd_device + 502*8    // + PCD
    movl $0xfee00093, boot_pd_device + 503*8

    movl $boot_pml4, %eax
    movl %eax, %cr3
    movl %cr4, %eax
    orl $0x620, %eax            // PAE, OSFXSR, OSXMMEXCPT
    movl %eax, %cr4

    movl %ebx, %esi             // cpuid overwrites ebx
    movl $0x80000001, %eax
    cpuid
    movl %edx, %edi
    movl $0xC0000080, %ecx      // EFER
    rdmsr
    orl $0x101, %eax            // LME, SCE
    testl $(1 << 20), %edi      // NX
    jz 2f
    orl $0x800, %eax
2:  wrmsr

    movl %cr0, %eax
    andl $~0x0000000c, %eax     // TS, EM
    orl $0x80010023, %eax       // PG, WP, NE, MP, PE
    movl %eax, %cr0
    lgdt boot_gdt_pointer
    ljmp $8, $long_mode

.code64
long_mode:
    movl $0x10, %eax
    movl %eax, %ss
    movl %eax, %ds
    movl %eax, %es
    xorl %eax, %eax
    movl %eax, %fs
    movl %eax, %gs
    movl $boot_stack_top, %esp
    fninit
    movl %ebp, %edi
    movl %esi, %esi
    xorl %ebp, %ebp
    call KernelStart
1:  cli
    hlt
    jmp 1b

.section .data
.balign 8
boot_gdt:
    .quad 0
    .quad 0x00af9b000000ffff
    .quad 0x00cf93000000ffff
boot_gdt_pointer:
    .word . - boot_gdt - 1
    .long boot_gdt

.section .bss
.balign 4096
.global boot_pml4
boot_pml4:      .skip 4096
boot_pdpt:      .skip 4096
boot_pd_low:    .skip 4096
boot_pd_device: .skip 4096
boot_stack:     .skip 65536
boot_stack_top:
