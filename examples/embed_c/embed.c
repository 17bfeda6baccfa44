/* SPDX-License-Identifier: Apache-2.0 */
/* The machine of examples/embed in C: 1 MB of memory, some bytes of 32-bit code, and a loop that
 * serves what the guest asks for. Port 0x3f8 is its console, port 0x10 asks how often to greet; the
 * guest adds up at a device register and halts. With Alibi installed:
 *
 *   cc -o embed embed.c $(pkg-config --cflags --libs alibi) */
#include <alibi/alibi.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MEMORY_BYTES (1 << 20)
#define CODE_AT 0x1000
#define TEXT_AT 0x2000
#define DEVICE_AT 0x200000

static const char text[] = "Hello from elsewhere.\n";

static const uint8_t code[] = {
    0xe4, 0x10,                         /* in al, 0x10 */
    0x0f, 0xb6, 0xe8,                   /* movzx ebp, al */
    0xbe, 0x00, 0x20, 0x00, 0x00,       /* 1: mov esi, TEXT_AT */
    0x66, 0xba, 0xf8, 0x03,             /* mov dx, 0x3f8 */
    0xac,                               /* 2: lodsb */
    0x84, 0xc0,                         /* test al, al */
    0x74, 0x03,                         /* jz 3f */
    0xee,                               /* out dx, al */
    0xeb, 0xf8,                         /* jmp 2b */
    0x89, 0x2d, 0x00, 0x00, 0x20, 0x00, /* 3: mov [DEVICE_AT], ebp */
    0x4d,                               /* dec ebp */
    0x75, 0xe6,                         /* jnz 1b */
    0xf4,                               /* hlt */
};

static uint32_t console_in(void* context, uint16_t port, unsigned size) {
  (void)context, (void)port, (void)size;
  return 0;
}

static void console_out(void* context, uint16_t port, unsigned size, uint32_t value) {
  (void)port, (void)size;
  putc((int)value, context);
}

/* Runs until the guest halts. Returns 0 then. */
static int serve(alibi_vcpu* vcpu) {
  uint64_t sum = 0;
  for (;;) {
    struct alibi_exit* exit = alibi_vcpu_run(vcpu);
    switch (exit->reason) {
      case ALIBI_EXIT_IO: /* a port without a handler */
        if (!exit->io.out) exit->io.data = 3;
        break;
      case ALIBI_EXIT_MMIO:
        if (exit->mmio.write && exit->mmio.address == DEVICE_AT) sum += exit->mmio.data;
        break;
      case ALIBI_EXIT_HALT:
        printf("The guest halted; its numbers add up to %" PRIu64 ".\n", sum);
        return 0;
      default:
        fprintf(stderr, "embed: the guest stopped for reason %" PRIu32 "\n", exit->reason);
        return 1;
    }
  }
}

int main(void) {
  alibi_machine* machine = NULL;
  alibi_vcpu* vcpu;
  void* memory;
  struct alibi_registers registers = {.rip = CODE_AT};
  struct alibi_special_registers special;
  int status = 1;

  alibi_flat_protected_mode(&special);
  if (alibi_machine_create(NULL, &machine) == ALIBI_OK &&
      alibi_machine_add_memory(machine, 0, MEMORY_BYTES, 0, &memory) == ALIBI_OK &&
      alibi_machine_write_memory(machine, CODE_AT, code, sizeof(code)) == ALIBI_OK &&
      alibi_machine_write_memory(machine, TEXT_AT, text, sizeof(text)) == ALIBI_OK &&
      alibi_machine_handle_ports(machine, 0x3f8, 8, console_in, console_out, stdout) == ALIBI_OK &&
      alibi_machine_create_vcpu(machine, &vcpu) == ALIBI_OK &&
      alibi_vcpu_set_special_registers(vcpu, &special) == ALIBI_OK &&
      alibi_vcpu_set_registers(vcpu, &registers) == ALIBI_OK) {
    status = serve(vcpu);
  } else {
    fprintf(stderr, "embed: %s\n", alibi_last_error());
  }
  alibi_machine_destroy(machine);
  return status;
}
