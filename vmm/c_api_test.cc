// SPDX-License-Identifier: Apache-2.0
// The C API: that each call reaches its C++ counterpart, and what it makes of failures. What the
// calls do to a guest is tested in api_test.cc.
#include <atomic>
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "alibi/alibi.h"

namespace {

constexpr std::uint64_t kRam = 1 << 20, kCode = 0x1000, kStack = 0x8000;

alibi_machine_options SmallMachine() {
  alibi_machine_options options = {};
  options.size = sizeof(options);
  options.most_memory_bytes = 16 << 20;
  return options;
}

// A machine with 1 MB that is about to run 32-bit code at kCode.
struct Guest {
  explicit Guest(const std::vector<std::uint8_t>& code) {
    const alibi_machine_options options = SmallMachine();
    Require(alibi_machine_create(&options, &machine));
    void* host = nullptr;
    Require(alibi_machine_add_memory(machine, 0, kRam, 0, &host));
    ram = static_cast<std::uint8_t*>(host);
    std::memcpy(ram + kCode, code.data(), code.size());
    Require(alibi_machine_create_vcpu(machine, &vcpu));
    alibi_special_registers special;
    alibi_flat_protected_mode(&special);
    Require(alibi_vcpu_set_special_registers(vcpu, &special));
    alibi_registers registers = {};
    registers.rip = kCode;
    registers.rsp = kStack;
    Require(alibi_vcpu_set_registers(vcpu, &registers));
  }
  ~Guest() { alibi_machine_destroy(machine); }
  Guest(const Guest&) = delete;
  Guest& operator=(const Guest&) = delete;

  static void Require(alibi_status status) {
    INFO(alibi_last_error());
    REQUIRE(status == ALIBI_OK);
  }

  alibi_machine* machine = nullptr;
  alibi_vcpu* vcpu = nullptr;
  std::uint8_t* ram = nullptr;
};

std::string LastLine() {
  const std::string line = alibi_last_error();
  CHECK(line.find('\n') == std::string::npos);
  return line;
}

// The call failed like this, and said so.
void CheckFails(alibi_status got, alibi_status expected, const std::string& part) {
  CHECK(got == expected);
  CHECK_THAT(LastLine(), Catch::Matchers::Contains(part));
}

TEST_CASE("The version is the header's") { CHECK(std::string(alibi_version()) == ALIBI_VERSION); }

TEST_CASE("IN, OUT and memory without handlers leave the run") {
  // in al, 0x10; out 0x11, al; mov eax, [0x200000]; mov [0x200008], ax; hlt
  Guest guest({0xe4, 0x10, 0xe6, 0x11, 0xa1, 0x00, 0x00, 0x20, 0x00, 0x66, 0xa3, 0x08, 0x00, 0x20,
               0x00, 0xf4});
  alibi_exit* exit = alibi_vcpu_run(guest.vcpu);
  REQUIRE(exit->reason == ALIBI_EXIT_IO);
  CHECK((exit->io.out == 0 && exit->io.size == 1 && exit->io.port == 0x10));
  exit->io.data = 0x5a;
  REQUIRE(alibi_vcpu_run(guest.vcpu) == exit);
  CHECK((exit->io.out == 1 && exit->io.size == 1 && exit->io.port == 0x11));
  CHECK(exit->io.data == 0x5a);
  REQUIRE(alibi_vcpu_run(guest.vcpu)->reason == ALIBI_EXIT_MMIO);
  CHECK((exit->mmio.write == 0 && exit->mmio.size == 4 && exit->mmio.address == 0x200000));
  exit->mmio.data = 0x12345678;
  REQUIRE(alibi_vcpu_run(guest.vcpu)->reason == ALIBI_EXIT_MMIO);
  CHECK((exit->mmio.write == 1 && exit->mmio.size == 2 && exit->mmio.address == 0x200008));
  CHECK(exit->mmio.data == 0x5678);
  CHECK(alibi_vcpu_run(guest.vcpu)->reason == ALIBI_EXIT_HALT);
}

using Log = std::vector<std::string>;

void Note(void* log, const std::string& what, std::uint64_t where, unsigned size,
          std::uint64_t value) {
  static_cast<Log*>(log)->push_back(what + " " + std::to_string(where) + "/" +
                                    std::to_string(size) + " " + std::to_string(value));
}

std::uint32_t In(void* log, std::uint16_t port, unsigned size) {
  Note(log, "in", port, size, 0);
  return 0x77;
}

void Out(void* log, std::uint16_t port, unsigned size, std::uint32_t value) {
  Note(log, "out", port, size, value);
}

std::uint64_t Read(void* log, std::uint64_t address, unsigned size) {
  Note(log, "read", address - 0x200000, size, 0);
  return 0x99;
}

void Write(void* log, std::uint64_t address, unsigned size, std::uint64_t value) {
  Note(log, "write", address - 0x200000, size, value);
}

TEST_CASE("Handlers get what the guest does, and their context") {
  // in ax, dx; out dx, al; mov eax, [0x200004]; mov [0x200008], al; hlt
  Guest guest({0x66, 0xed, 0xee, 0xa1, 0x04, 0x00, 0x20, 0x00, 0xa2, 0x08, 0x00, 0x20, 0x00, 0xf4});
  Log ports, memory;
  Guest::Require(alibi_machine_handle_ports(guest.machine, 0, 4, In, Out, &ports));
  Guest::Require(alibi_machine_handle_mmio(guest.machine, 0x200000, 0x1000, Read, Write, &memory));
  CheckFails(alibi_machine_handle_ports(guest.machine, 3, 1, In, Out, &ports), ALIBI_ERROR_REFUSED,
             "overlaps");
  CheckFails(alibi_machine_handle_mmio(guest.machine, 0x200fff, 1, Read, Write, &memory),
             ALIBI_ERROR_REFUSED, "overlaps");
  CHECK(alibi_vcpu_run(guest.vcpu)->reason == ALIBI_EXIT_HALT);
  CHECK(ports == Log{"in 0/2 0", "out 0/1 119"});
  CHECK(memory == Log{"read 4/4 0", "write 8/1 153"});
}

TEST_CASE("Registers are those of the C++ API, each at its place") {
  Guest guest({0xf4});
  alibi_registers r;
  for (unsigned i = 0; i < 17; ++i) (&r.rax)[i] = 0x100 + i;
  r.rflags = 0x46;
  Guest::Require(alibi_vcpu_set_registers(guest.vcpu, &r));
  alibi_registers back = {};
  Guest::Require(alibi_vcpu_get_registers(guest.vcpu, &back));
  CHECK(std::memcmp(&r, &back, sizeof(r)) == 0);

  alibi_special_registers special = {};
  Guest::Require(alibi_vcpu_get_special_registers(guest.vcpu, &special));
  CHECK((special.cs.selector == 0x08 && special.cs.limit == 0xffffffff && special.cs.db == 1));
  CHECK((special.ds.type == 3 && special.tr.type == 0xb && special.ldt.type == 2));
  special.cr2 = 0x1234567;
  special.gdt = {0x3000, 0x17};
  Guest::Require(alibi_vcpu_set_special_registers(guest.vcpu, &special));
  alibi_special_registers changed = {};
  Guest::Require(alibi_vcpu_get_special_registers(guest.vcpu, &changed));
  CHECK((changed.cr2 == 0x1234567 && changed.gdt.base == 0x3000 && changed.gdt.limit == 0x17));
  special.cr0 = 0x80000000;  // paging without protection
  CheckFails(alibi_vcpu_set_special_registers(guest.vcpu, &special), ALIBI_ERROR_REFUSED, "");
}

TEST_CASE("MSRs and the XSAVE area") {
  Guest guest({0xf4});
  constexpr std::uint32_t kStar = 0xc0000081;
  Guest::Require(alibi_vcpu_set_msr(guest.vcpu, kStar, 0x0023001000000000));
  std::uint64_t value = 0;
  Guest::Require(alibi_vcpu_get_msr(guest.vcpu, kStar, &value));
  CHECK(value == 0x0023001000000000);
  CheckFails(alibi_vcpu_get_msr(guest.vcpu, 0x12345678, &value), ALIBI_ERROR_REFUSED, "0x12345678");
  CheckFails(alibi_vcpu_set_msr(guest.vcpu, 0x12345678, 0), ALIBI_ERROR_REFUSED, "0x12345678");

  std::vector<std::uint8_t> area(ALIBI_XSAVE_BYTES), back(ALIBI_XSAVE_BYTES);
  Guest::Require(alibi_vcpu_get_xsave(guest.vcpu, area.data()));
  constexpr std::size_t kXmm0 = 160, kHeader = 512;
  area[kXmm0] = 0xa5;
  area[kHeader] |= 3;
  Guest::Require(alibi_vcpu_set_xsave(guest.vcpu, area.data()));
  Guest::Require(alibi_vcpu_get_xsave(guest.vcpu, back.data()));
  CHECK(back == area);
  area[kHeader + 8] = 1;
  CheckFails(alibi_vcpu_set_xsave(guest.vcpu, area.data()), ALIBI_ERROR_REFUSED, "reserved");
}

TEST_CASE("Memory slots") {
  Guest guest({0xf4});
  char text[] = "slot";
  Guest::Require(alibi_machine_write_memory(guest.machine, 0x2000, "here", 5));
  Guest::Require(alibi_machine_read_memory(guest.machine, 0x2000, text, 5));
  CHECK(std::string(text) == "here");
  CHECK(std::memcmp(guest.ram + 0x2000, "here", 5) == 0);
  CheckFails(alibi_machine_read_memory(guest.machine, kRam - 1, text, 2), ALIBI_ERROR_RANGE,
             "memory slots");
  CheckFails(alibi_machine_write_memory(guest.machine, kRam, text, 1), ALIBI_ERROR_RANGE,
             "memory slots");
  CheckFails(alibi_machine_add_memory(guest.machine, 0x300001, 0x1000, 0, nullptr),
             ALIBI_ERROR_REFUSED, "");
  CheckFails(alibi_machine_add_memory(guest.machine, 0x300000, 0x1000, 2, nullptr),
             ALIBI_ERROR_REFUSED, "flags");
  Guest::Require(alibi_machine_add_memory(guest.machine, 0x300000, 0x1000, 0, nullptr));
  Guest::Require(alibi_machine_write_memory(guest.machine, 0x300000, text, 1));
  Guest::Require(alibi_machine_remove_memory(guest.machine, 0x300000));
  CheckFails(alibi_machine_write_memory(guest.machine, 0x300000, text, 1), ALIBI_ERROR_RANGE,
             "memory slots");
}

TEST_CASE("A read-only slot's stores are MMIO") {
  // mov [0x300000], eax; hlt
  Guest guest({0xa3, 0x00, 0x00, 0x30, 0x00, 0xf4});
  Guest::Require(
      alibi_machine_add_memory(guest.machine, 0x300000, 0x1000, ALIBI_MEMORY_READ_ONLY, nullptr));
  REQUIRE(alibi_vcpu_run(guest.vcpu)->reason == ALIBI_EXIT_MMIO);
  CHECK(alibi_vcpu_run(guest.vcpu)->reason == ALIBI_EXIT_HALT);
}

TEST_CASE("Interrupts, NMIs and requested exits arrive") {
  // sti; hlt; jmp $
  Guest guest({0xfb, 0xf4, 0xeb, 0xfe});
  const std::uint8_t gate[] = {0x00, 0x11, 0x08, 0x00, 0x00, 0x8e, 0x00, 0x00};  // to 0x1100
  const std::uint8_t nmi_gate[] = {0x10, 0x11, 0x08, 0x00, 0x00, 0x8e, 0x00, 0x00};
  std::memcpy(guest.ram + 0x4000 + 8 * 0x40, gate, 8);
  std::memcpy(guest.ram + 0x4000 + 8 * 2, nmi_gate, 8);
  // A flat code segment at selector 8.
  const std::uint8_t code_segment[] = {0xff, 0xff, 0x00, 0x00, 0x00, 0x9b, 0xcf, 0x00};
  std::memcpy(guest.ram + 0x5008, code_segment, 8);
  const std::uint8_t handler[] = {0xe6, 0x20, 0xcf};      // out 0x20, al; iret
  const std::uint8_t nmi_handler[] = {0xe6, 0x21, 0xcf};  // out 0x21, al; iret
  std::memcpy(guest.ram + 0x1100, handler, sizeof(handler));
  std::memcpy(guest.ram + 0x1110, nmi_handler, sizeof(nmi_handler));
  alibi_special_registers special;
  alibi_flat_protected_mode(&special);
  special.idt = {0x4000, 0x7ff};
  special.gdt = {0x5000, 0xf};
  Guest::Require(alibi_vcpu_set_special_registers(guest.vcpu, &special));

  CHECK(alibi_vcpu_run(guest.vcpu)->reason == ALIBI_EXIT_HALT);
  alibi_vcpu_inject_nmi(guest.vcpu);
  const alibi_exit* exit = alibi_vcpu_run(guest.vcpu);
  REQUIRE(exit->reason == ALIBI_EXIT_IO);
  CHECK(exit->io.port == 0x21);
  alibi_vcpu_inject_interrupt(guest.vcpu, 0x40);
  REQUIRE(alibi_vcpu_run(guest.vcpu)->reason == ALIBI_EXIT_IO);
  CHECK(exit->io.port == 0x20);
  alibi_registers registers = {};
  CheckFails(alibi_vcpu_set_registers(guest.vcpu, &registers), ALIBI_ERROR_REFUSED,
             "inside an instruction");
  alibi_vcpu_request_exit(guest.vcpu);
  CHECK(alibi_vcpu_run(guest.vcpu)->reason == ALIBI_EXIT_INTERRUPTED);
}

TEST_CASE("A triple fault is a shutdown") {
  Guest guest({0x0f, 0x0b});  // ud2, without an IDT
  CHECK(alibi_vcpu_run(guest.vcpu)->reason == ALIBI_EXIT_SHUTDOWN);
}

TEST_CASE("Counters have names and meanings") {
  Guest guest({0xf4});
  alibi_vcpu_run(guest.vcpu);
  std::map<std::string, std::string> meanings;
  Guest::Require(alibi_machine_counters(
      guest.machine,
      [](void* context, const char* name, const char* meaning, std::uint64_t) {
        (*static_cast<std::map<std::string, std::string>*>(context))[name] = meaning;
      },
      &meanings));
  CHECK(meanings.size() > 20);
  for (const auto& [name, meaning] : meanings) CHECK_FALSE(meaning.empty());
}

TEST_CASE("Options of a program that knows one VCPU are taken") {
  alibi_machine_options options = SmallMachine();
  options.size = offsetof(alibi_machine_options, vcpus);
  options.vcpus = 17;  // is nothing of such a program's
  alibi_machine* machine = nullptr;
  Guest::Require(alibi_machine_create(&options, &machine));
  alibi_machine_destroy(machine);
}

struct Seen {
  alibi_machine* machine;
  alibi_vcpu* vcpu[2];
  std::atomic<unsigned> right;
};

void OutOf(void* context, std::uint16_t port, unsigned, std::uint32_t) {
  Seen& seen = *static_cast<Seen*>(context);
  seen.right += alibi_machine_current_vcpu(seen.machine) == seen.vcpu[port];
}

std::uint32_t InOf(void*, std::uint16_t, unsigned) { return 0; }

TEST_CASE("Two VCPUs run on two threads") {
  alibi_machine_options options = SmallMachine();
  options.vcpus = 2;
  Seen seen = {};
  Guest::Require(alibi_machine_create(&options, &seen.machine));
  Guest::Require(alibi_machine_handle_ports(seen.machine, 0, 2, InOf, OutOf, &seen));
  void* host = nullptr;
  Guest::Require(alibi_machine_add_memory(seen.machine, 0, kRam, 0, &host));
  // mov ecx, 10000; 1: lock inc dword [0x3000]; loop 1b; out dx, al; in al, 0x10; hlt
  const std::uint8_t code[] = {0xb9, 0x10, 0x27, 0,    0,    0xf0, 0xff, 5,    0,
                               0x30, 0,    0,    0xe2, 0xf7, 0xee, 0xe4, 0x10, 0xf4};
  std::memcpy(static_cast<std::uint8_t*>(host) + kCode, code, sizeof(code));
  std::vector<std::thread> threads;
  std::atomic<unsigned> ends = 0;
  for (unsigned i = 0; i < 2; ++i) {
    Guest::Require(alibi_machine_create_vcpu(seen.machine, &seen.vcpu[i]));
    alibi_special_registers special;
    alibi_flat_protected_mode(&special);
    Guest::Require(alibi_vcpu_set_special_registers(seen.vcpu[i], &special));
    alibi_registers registers = {};
    registers.rip = kCode;
    registers.rdx = i;
    Guest::Require(alibi_vcpu_set_registers(seen.vcpu[i], &registers));
  }
  for (alibi_vcpu* vcpu : seen.vcpu) {
    threads.emplace_back([&ends, vcpu] {
      ends += alibi_vcpu_run(vcpu)->reason == ALIBI_EXIT_IO;
      ends += alibi_vcpu_run(vcpu)->reason == ALIBI_EXIT_HALT;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(ends == 4);
  CHECK(seen.right == 2);
  CHECK(alibi_machine_current_vcpu(seen.machine) == nullptr);
  std::uint32_t count = 0;
  std::memcpy(&count, static_cast<std::uint8_t*>(host) + 0x3000, 4);
  CHECK(count == 20'000);
  alibi_machine_destroy(seen.machine);
}

TEST_CASE("Wrong arguments are said, and make no machine") {
  alibi_machine* machine = reinterpret_cast<alibi_machine*>(1);
  alibi_machine_options options = SmallMachine();
  options.size -= 1;
  CheckFails(alibi_machine_create(&options, &machine), ALIBI_ERROR_ARGUMENT, "size");
  CHECK(machine == nullptr);
  options = SmallMachine();
  options.policy = "perhaps";
  CheckFails(alibi_machine_create(&options, &machine), ALIBI_ERROR_REFUSED, "perhaps");
  options = SmallMachine();
  options.engine = "diesel";
  CheckFails(alibi_machine_create(&options, &machine), ALIBI_ERROR_REFUSED, "diesel");
  options = SmallMachine();
  options.engine = "translate";
  options.engine_policy = "always";
  CheckFails(alibi_machine_create(&options, &machine), ALIBI_ERROR_REFUSED, "engine policy");
  options = SmallMachine();
  options.coherence = "lazy";
  CheckFails(alibi_machine_create(&options, &machine), ALIBI_ERROR_REFUSED, "lazy");
  options = SmallMachine();
  options.cpu = "z80";
  CheckFails(alibi_machine_create(&options, &machine), ALIBI_ERROR_REFUSED, "z80");
  options = SmallMachine();
  options.translation_cache_bytes = 1;
  CheckFails(alibi_machine_create(&options, &machine), ALIBI_ERROR_REFUSED, "1 MB");
  options = SmallMachine();
  options.vcpus = 17;
  CheckFails(alibi_machine_create(&options, &machine), ALIBI_ERROR_REFUSED, "1 to 16");
  options = SmallMachine();
  options.translation_store = "/dev/null/store";
  CheckFails(alibi_machine_create(&options, &machine), ALIBI_ERROR_REFUSED, "/dev/null");
  CHECK(machine == nullptr);
  CheckFails(alibi_machine_create(&options, nullptr), ALIBI_ERROR_ARGUMENT,
             "alibi_machine_create: a null pointer");
  alibi_machine_destroy(nullptr);

  Guest guest({0xf4});
  alibi_vcpu* second = guest.vcpu;
  CheckFails(alibi_machine_create_vcpu(guest.machine, &second), ALIBI_ERROR_REFUSED, "vcpus is 1");
  CHECK(second == nullptr);
  CheckFails(alibi_machine_handle_ports(guest.machine, 0, 1, nullptr, Out, nullptr),
             ALIBI_ERROR_ARGUMENT, "alibi_machine_handle_ports: a null pointer");
  CheckFails(alibi_vcpu_set_registers(guest.vcpu, nullptr), ALIBI_ERROR_ARGUMENT,
             "alibi_vcpu_set_registers: a null pointer");
}

}  // namespace
