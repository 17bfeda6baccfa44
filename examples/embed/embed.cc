// SPDX-License-Identifier: Apache-2.0
// A machine in forty lines: 1 MB of memory, some bytes of 32-bit code, and a loop that serves what
// the guest asks for. Port 0x3f8 is its console, port 0x10 asks how often to greet; the guest adds
// up at a device register and halts.
#include <cstdio>
#include <cstring>

#include "alibi/machine.h"

namespace {

constexpr std::uint64_t kMemoryBytes = 1 << 20, kCodeAt = 0x1000, kTextAt = 0x2000;
constexpr std::uint64_t kDeviceAt = 0x200000;
constexpr char kText[] = "Hello from elsewhere.\n";

constexpr std::uint8_t kCode[] = {
    0xe4, 0x10,                          // in al, 0x10
    0x0f, 0xb6, 0xe8,                    // movzx ebp, al
    0xbe, 0x00, 0x20, 0x00, 0x00,        // 1: mov esi, kTextAt
    0x66, 0xba, 0xf8, 0x03,              // mov dx, 0x3f8
    0xac,                                // 2: lodsb
    0x84, 0xc0,                          // test al, al
    0x74, 0x03,                          // jz 3f
    0xee,                                // out dx, al
    0xeb, 0xf8,                          // jmp 2b
    0x89, 0x2d, 0x00, 0x00, 0x20, 0x00,  // 3: mov [kDeviceAt], ebp
    0x4d,                                // dec ebp
    0x75, 0xe6,                          // jnz 1b
    0xf4,                                // hlt
};

// Prints what a Result says when it is none.
template <class T>
bool Ok(const alibi::Result<T>& result) {
  if (!result.ok()) std::fprintf(stderr, "embed: %s\n", result.error().message.c_str());
  return result.ok();
}

struct Console : alibi::PortHandler {
  std::uint32_t In(std::uint16_t, unsigned) override { return 0; }
  void Out(std::uint16_t, unsigned, std::uint32_t value) override {
    std::putchar(static_cast<int>(value));
  }
};

}  // namespace

int main() {
  Console console;
  auto created = alibi::Machine::Create();
  if (!Ok(created)) return 1;
  alibi::Machine& machine = **created;
  auto memory = machine.AddMemory(0, kMemoryBytes);
  if (!Ok(memory)) return 1;
  auto* bytes = static_cast<std::uint8_t*>(*memory);
  std::memcpy(bytes + kCodeAt, kCode, sizeof(kCode));
  std::memcpy(bytes + kTextAt, kText, sizeof(kText));
  if (!Ok(machine.HandlePorts(0x3f8, 8, console))) return 1;

  alibi::Vcpu& vcpu = *machine.CreateVcpu().value();
  alibi::Registers registers;
  registers.rip = kCodeAt;
  if (!Ok(vcpu.SetSpecialRegisters(alibi::SpecialRegisters::FlatProtectedMode()))) return 1;
  if (!Ok(vcpu.SetRegisters(registers))) return 1;

  std::uint64_t sum = 0;
  for (;;) {
    alibi::Exit& exit = vcpu.Run();
    switch (exit.reason) {
      case alibi::ExitReason::kIo:  // a port without a handler
        if (!exit.io.out) exit.io.data = 3;
        break;
      case alibi::ExitReason::kMmio:
        if (exit.mmio.write && exit.mmio.address == kDeviceAt) sum += exit.mmio.data;
        break;
      case alibi::ExitReason::kHalt:
        std::printf("The guest halted; its numbers add up to %llu.\n",
                    static_cast<unsigned long long>(sum));
        return 0;
      default:
        std::fprintf(stderr, "embed: the guest stopped for reason %d\n",
                     static_cast<int>(exit.reason));
        return 1;
    }
  }
}
