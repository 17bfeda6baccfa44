/* SPDX-License-Identifier: Apache-2.0 */
/* Alibi for C, and for whatever calls C: x86 virtual machines in an ordinary process, without
 * hardware support. The C++ API (alibi/machine.h, alibi/vcpu.h) under plain names; link -lalibi.
 *
 *   alibi_machine* machine;
 *   alibi_vcpu* vcpu;
 *   void* ram;
 *   if (alibi_machine_create(NULL, &machine) != ALIBI_OK ||
 *       alibi_machine_add_memory(machine, 0, 1 << 20, 0, &ram) != ALIBI_OK ||
 *       alibi_machine_create_vcpu(machine, &vcpu) != ALIBI_OK) {
 *     fprintf(stderr, "%s\n", alibi_last_error());
 *   }
 *   ...                                   fill the memory, set the registers
 *   while ((exit = alibi_vcpu_run(vcpu))->reason == ALIBI_EXIT_IO) { ... }
 *
 * Addresses and sizes are in bytes, all structures in the host's byte order. A function that can
 * fail returns a status, has changed nothing if that is not ALIBI_OK, and leaves one line for a
 * person in alibi_last_error(). A null pointer is ALIBI_ERROR_ARGUMENT, except where the text says
 * what it means; functions without a status must not be given one.
 *
 * A VCPU belongs to one thread at a time, except where noted; several may run at once, each on a
 * thread of its own. alibi/machine.h says who may call what meanwhile. While the guest runs,
 * the thread's stack pointer is the guest's: every signal handler that may run on this thread needs
 * SA_ONSTACK. alibi_vcpu_run() sets up an alternate stack, and takes SIGSEGV, SIGBUS, SIGFPE,
 * SIGILL, SIGRTMIN+3 and SIGRTMIN+4 for itself. (The engine "hardware" takes SIGRTMIN+4 and
 * SIGRTMIN+5, and leaves the stack pointer alone.) */
#ifndef ALIBI_INCLUDE_ALIBI_ALIBI_H_
#define ALIBI_INCLUDE_ALIBI_ALIBI_H_

#include <stddef.h>
#include <stdint.h>

#include "alibi/version.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What libalibi.so exports; anything else is hidden. */
#define ALIBI_API __attribute__((visibility("default")))

/* The library's version, "MAJOR.MINOR.PATCH": ALIBI_VERSION is that of this header. */
ALIBI_API const char* alibi_version(void);

/* --- Failures --- */

typedef enum alibi_status {
  ALIBI_OK = 0,
  ALIBI_ERROR_ARGUMENT = 1, /* a null pointer, or a structure of a size that this library lacks */
  ALIBI_ERROR_HOST = 2,     /* this host's CPU or kernel lacks what the engine needs */
  ALIBI_ERROR_REFUSED = 3,  /* a value or range that is not possible here; the line says why */
  ALIBI_ERROR_RANGE = 4,    /* not every byte lies in memory slots */
  ALIBI_ERROR_NO_MEMORY = 5 /* the host has no more memory */
} alibi_status;

/* One clear line about the last failure on this thread, without a newline: what is wrong and what
 * to do. "" if nothing failed yet. Valid until the next failure on this thread. */
ALIBI_API const char* alibi_last_error(void);

/* --- Machines --- */

typedef struct alibi_machine alibi_machine;
typedef struct alibi_vcpu alibi_vcpu;

/* Zero and null stand for the defaults; `size` must be set. So:
 *   struct alibi_machine_options options = {.size = sizeof(options), .cpu = "base64"}; */
struct alibi_machine_options {
  size_t size;           /* sizeof(struct alibi_machine_options) */
  const char* policy;    /* as for `alibi run --policy`; "hysteresis" */
  const char* coherence; /* "eager", "deferred" or "dropped", see MachineOptions; "eager" */
  const char* cpu;       /* as for `alibi run --cpu`: a model, or "MODEL,enforce"; "host" */
  uint64_t translation_cache_bytes; /* of each VCPU: 1 MB to 1 GB; 64 MB */
  uint64_t most_memory_bytes;       /* of all slots together; costs address space only; 256 GB */
  const char* translation_store;    /* a folder, see MachineOptions; none */
  const char* engine;               /* as for `alibi run --engine`; "translate" */
  const char* engine_policy;        /* as for `alibi run --engine-policy`; the engine's own */
  uint64_t vcpus;                   /* 1 to 16; 1. `size` may be that of a structure without it */
};

/* `options` may be null. Sets *machine, to null on failure. */
ALIBI_API alibi_status alibi_machine_create(const struct alibi_machine_options* options,
                                            alibi_machine** machine);
/* With its memory and its VCPUs, which must not be running, nor inside an instruction but on this
 * thread. Null: nothing happens. */
ALIBI_API void alibi_machine_destroy(alibi_machine* machine);

/* Memory: from a handler, or when a VCPU has left its run. With several VCPUs the others may run
 * on; it is enough that one does not run, and is not inside an instruction, or has left its run on
 * this very thread. Else the calls fail. */

#define ALIBI_MEMORY_READ_ONLY 1u /* the guest's stores are MMIO */

/* Adds a slot of zeroed memory; address and size are multiples of 4096. *host, which may be null,
 * becomes the address of its first byte, valid until the slot is removed. Stores through it are not
 * seen by translations and shadow page tables: to change code or page tables that have been used,
 * call alibi_machine_write_memory(). */
ALIBI_API alibi_status alibi_machine_add_memory(alibi_machine* machine, uint64_t guest_physical,
                                                uint64_t size, uint32_t flags, void** host);
/* The slot that begins there. */
ALIBI_API alibi_status alibi_machine_remove_memory(alibi_machine* machine, uint64_t guest_physical);
/* ALIBI_ERROR_RANGE, and nothing happens, unless every byte lies in slots. */
ALIBI_API alibi_status alibi_machine_read_memory(alibi_machine* machine, uint64_t guest_physical,
                                                 void* to, uint64_t size);
ALIBI_API alibi_status alibi_machine_write_memory(alibi_machine* machine, uint64_t guest_physical,
                                                  const void* from, uint64_t size);

/* Handlers are called during alibi_vcpu_run(), on its thread, from inside the guest's instruction,
 * with the `context` that they were registered with. They may inject interrupts and request exits;
 * they must not run a VCPU, set registers of that one, or leave by longjmp() or a C++ exception.
 * With several VCPUs one handler is called at a time, while the others execute guest code: it shall
 * be short, and must not wait for a thread that calls anything but the three functions below.
 * Ranges of a kind must not overlap. `size` is 1, 2 or 4 for ports; 1, 2, 4 or 8 for memory, whose
 * other accesses come in parts. */
typedef uint32_t (*alibi_port_in)(void* context, uint16_t port, unsigned size);
typedef void (*alibi_port_out)(void* context, uint16_t port, unsigned size, uint32_t value);
typedef uint64_t (*alibi_mmio_read)(void* context, uint64_t address, unsigned size);
typedef void (*alibi_mmio_write)(void* context, uint64_t address, unsigned size, uint64_t value);

/* `count` ports from `first` on, at most to 0xffff. */
ALIBI_API alibi_status alibi_machine_handle_ports(alibi_machine* machine, uint16_t first,
                                                  uint32_t count, alibi_port_in in,
                                                  alibi_port_out out, void* context);
ALIBI_API alibi_status alibi_machine_handle_mmio(alibi_machine* machine, uint64_t base,
                                                 uint64_t size, alibi_mmio_read read,
                                                 alibi_mmio_write write, void* context);

/* The next VCPU, in its power-up state (real mode, f000:fff0); it lives as long as the machine.
 * ALIBI_ERROR_REFUSED when there are as many as the options say. */
ALIBI_API alibi_status alibi_machine_create_vcpu(alibi_machine* machine, alibi_vcpu** vcpu);
/* From a handler: the VCPU whose instruction it is. Elsewhere null. */
ALIBI_API alibi_vcpu* alibi_machine_current_vcpu(alibi_machine* machine);

/* Every counter, of all VCPUs, for statistics; while none runs. The strings live as long as the
 * call of `each`. */
typedef void (*alibi_counter)(void* context, const char* name, const char* meaning, uint64_t value);
ALIBI_API alibi_status alibi_machine_counters(alibi_machine* machine, alibi_counter each,
                                              void* context);

/* --- VCPUs. The structures have the fields of their counterparts in the KVM API. --- */

/* As kvm_regs. Bit 1 of RFLAGS is always set. */
struct alibi_registers {
  uint64_t rax, rbx, rcx, rdx;
  uint64_t rsi, rdi, rsp, rbp;
  uint64_t r8, r9, r10, r11;
  uint64_t r12, r13, r14, r15;
  uint64_t rip, rflags;
};

/* As kvm_segment: `limit` is in bytes, with the granularity applied. */
struct alibi_segment {
  uint64_t base;
  uint32_t limit;
  uint16_t selector;
  uint8_t type;
  uint8_t present, dpl, db, s, l, g, avl;
  uint8_t unusable;
};

/* As kvm_dtable. */
struct alibi_table {
  uint64_t base;
  uint16_t limit;
};

/* As kvm_sregs. The CPL is ss.dpl in protected mode, even of an unusable SS. */
struct alibi_special_registers {
  struct alibi_segment cs, ds, es, fs, gs, ss;
  struct alibi_segment tr, ldt;
  struct alibi_table gdt, idt;
  uint64_t cr0, cr2, cr3, cr4, cr8;
  uint64_t efer;
  uint64_t apic_base;
};

/* 32-bit protected mode with flat 4 GB segments, paging off, empty descriptor tables: what a
 * multiboot kernel is entered in, and the simplest way to run some bytes. */
ALIBI_API void alibi_flat_protected_mode(struct alibi_special_registers* registers);

/* Why alibi_vcpu_run() came back. */
typedef enum alibi_exit_reason {
  ALIBI_EXIT_IO = 0,          /* IN or OUT of a port without a handler: see `io` */
  ALIBI_EXIT_MMIO = 1,        /* an access to an address without memory or handler: see `mmio` */
  ALIBI_EXIT_HALT = 2,        /* HLT, and no interrupt to wake it. Stays halted until there is one
                                 (or NMI, or alibi_vcpu_set_registers) */
  ALIBI_EXIT_SHUTDOWN = 3,    /* triple fault */
  ALIBI_EXIT_INTERRUPTED = 4, /* alibi_vcpu_request_exit() */
  ALIBI_EXIT_FAILED = 5 /* this engine cannot run the guest on (only "hardware"); alibi_last_error()
                           says why */
} alibi_exit_reason;

struct alibi_exit {
  uint32_t reason; /* an alibi_exit_reason */
  struct {
    uint8_t out;
    uint8_t size; /* 1, 2 or 4 */
    uint16_t port;
    uint32_t data; /* of OUT; for IN the caller sets it before the next run */
  } io;
  struct {
    uint8_t write;
    uint8_t size; /* 1, 2, 4 or 8 */
    uint64_t address;
    uint64_t data; /* of a store; for a load the caller sets it before the next run */
  } mmio;
};

/* Runs the guest until there is a reason to stop. The record lives as long as the VCPU.
 *
 * After ALIBI_EXIT_IO and ALIBI_EXIT_MMIO the VCPU stands in the middle of an instruction, as it
 * does under KVM: the next run completes it. Until then
 *  - that run must come from the same thread, before this thread runs another VCPU; anything else
 *    aborts the process with a message;
 *  - registers read as before the instruction, and setting them is ALIBI_ERROR_REFUSED. To change
 *    registers at such a point: alibi_vcpu_request_exit(), and the next run returns
 *    ALIBI_EXIT_INTERRUPTED behind the instruction. (With the engine "hardware", those of a store
 *    may read as behind it.)
 * Handlers answer without leaving the run and are some hundred times faster. */
ALIBI_API struct alibi_exit* alibi_vcpu_run(alibi_vcpu* vcpu);

ALIBI_API alibi_status alibi_vcpu_get_registers(alibi_vcpu* vcpu,
                                                struct alibi_registers* registers);
ALIBI_API alibi_status alibi_vcpu_set_registers(alibi_vcpu* vcpu,
                                                const struct alibi_registers* registers);
/* Setting is ALIBI_ERROR_REFUSED for combinations that no CPU can be in, and for bits that this one
 * does not have: what VM entry checks (SDM vol. 3, 26.3.1, with "unrestricted guest"), segments'
 * types among it. Those of virtual-8086 mode depend on RFLAGS.VM, so alibi_vcpu_set_registers()
 * comes first there. */
ALIBI_API alibi_status alibi_vcpu_get_special_registers(alibi_vcpu* vcpu,
                                                        struct alibi_special_registers* registers);
ALIBI_API alibi_status
alibi_vcpu_set_special_registers(alibi_vcpu* vcpu, const struct alibi_special_registers* registers);
/* ALIBI_ERROR_REFUSED: this CPU has no such MSR, or the value sets reserved bits. */
ALIBI_API alibi_status alibi_vcpu_get_msr(alibi_vcpu* vcpu, uint32_t index, uint64_t* value);
ALIBI_API alibi_status alibi_vcpu_set_msr(alibi_vcpu* vcpu, uint32_t index, uint64_t value);
/* The XSAVE area in standard format: x87, SSE, AVX, AVX-512. ALIBI_XSAVE_BYTES bytes. */
#define ALIBI_XSAVE_BYTES 4096
ALIBI_API alibi_status alibi_vcpu_get_xsave(alibi_vcpu* vcpu, void* area);
ALIBI_API alibi_status alibi_vcpu_set_xsave(alibi_vcpu* vcpu, const void* area);

/* These three from any thread. */

/* An external interrupt: taken when RFLAGS.IF, the interrupt shadow and CR8 allow it, the highest
 * vector first. The same vector twice before it is taken is one interrupt, as in an APIC. */
ALIBI_API void alibi_vcpu_inject_interrupt(alibi_vcpu* vcpu, uint8_t vector);
ALIBI_API void alibi_vcpu_inject_nmi(alibi_vcpu* vcpu);
/* The run returns ALIBI_EXIT_INTERRUPTED soon; if there is none, the next one does so at once. Also
 * from signal handlers. */
ALIBI_API void alibi_vcpu_request_exit(alibi_vcpu* vcpu);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* ALIBI_INCLUDE_ALIBI_ALIBI_H_ */
