// SPDX-License-Identifier: Apache-2.0
// The C API over the C++ one: the same calls and structures under plain names. No exception leaves
// it, and a failure's line waits in alibi_last_error().
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <type_traits>
#include <vector>

#include "alibi/alibi.h"
#include "alibi/machine.h"
#include "hardware/kvm.h"
#include "machine/host_check.h"
#include "runtime/engine_kind.h"

namespace {

using alibi::Exit;
using alibi::ExitReason;

std::string& LastError() {
  static thread_local std::string message;
  return message;
}

alibi_status Fail(alibi_status status, std::string message) {
  LastError() = std::move(message);
  return status;
}

alibi_status NullPointer(const char* function) {
  return Fail(ALIBI_ERROR_ARGUMENT, std::string(function) + ": a null pointer");
}

template <class T>
alibi_status StatusOf(const alibi::Result<T>& result) {
  return result.ok() ? ALIBI_OK : Fail(ALIBI_ERROR_REFUSED, result.error().message);
}

// What no function lets out: memory for strings and tables may be lacking.
template <class Body>
alibi_status Guarded(Body body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    // Short enough for the string to need no memory.
    return Fail(ALIBI_ERROR_NO_MEMORY, "out of memory");
  }
}

// --- Structures: the C ones are the C++ ones, field by field ---

#define ALIBI_SAME_PLACE(c_type, cc_type, field)                       \
  static_assert(offsetof(c_type, field) == offsetof(cc_type, field) && \
                std::is_same_v<decltype(c_type::field), decltype(cc_type::field)>)

ALIBI_SAME_PLACE(alibi_registers, alibi::Registers, rax);
ALIBI_SAME_PLACE(alibi_registers, alibi::Registers, rbx);
ALIBI_SAME_PLACE(alibi_registers, alibi::Registers, rsp);
ALIBI_SAME_PLACE(alibi_registers, alibi::Registers, r8);
ALIBI_SAME_PLACE(alibi_registers, alibi::Registers, r15);
ALIBI_SAME_PLACE(alibi_registers, alibi::Registers, rip);
ALIBI_SAME_PLACE(alibi_registers, alibi::Registers, rflags);
ALIBI_SAME_PLACE(alibi_segment, alibi::SegmentRegister, limit);
ALIBI_SAME_PLACE(alibi_segment, alibi::SegmentRegister, selector);
ALIBI_SAME_PLACE(alibi_segment, alibi::SegmentRegister, type);
ALIBI_SAME_PLACE(alibi_segment, alibi::SegmentRegister, present);
ALIBI_SAME_PLACE(alibi_segment, alibi::SegmentRegister, dpl);
ALIBI_SAME_PLACE(alibi_segment, alibi::SegmentRegister, db);
ALIBI_SAME_PLACE(alibi_segment, alibi::SegmentRegister, s);
ALIBI_SAME_PLACE(alibi_segment, alibi::SegmentRegister, l);
ALIBI_SAME_PLACE(alibi_segment, alibi::SegmentRegister, g);
ALIBI_SAME_PLACE(alibi_segment, alibi::SegmentRegister, avl);
ALIBI_SAME_PLACE(alibi_segment, alibi::SegmentRegister, unusable);
ALIBI_SAME_PLACE(alibi_table, alibi::TableRegister, limit);
ALIBI_SAME_PLACE(alibi_special_registers, alibi::SpecialRegisters, cr0);
ALIBI_SAME_PLACE(alibi_special_registers, alibi::SpecialRegisters, cr8);
ALIBI_SAME_PLACE(alibi_special_registers, alibi::SpecialRegisters, efer);
ALIBI_SAME_PLACE(alibi_special_registers, alibi::SpecialRegisters, apic_base);
#undef ALIBI_SAME_PLACE
static_assert(ALIBI_XSAVE_BYTES == alibi::Vcpu::kXsaveBytes);
static_assert(unsigned{ALIBI_MEMORY_READ_ONLY} == unsigned{alibi::kMemoryReadOnly});

// The options as they were before there were several VCPUs.
constexpr size_t kWithoutVcpus = offsetof(alibi_machine_options, vcpus);

alibi_exit_reason ReasonOf(ExitReason reason) {
  switch (reason) {
    case ExitReason::kIo:
      return ALIBI_EXIT_IO;
    case ExitReason::kMmio:
      return ALIBI_EXIT_MMIO;
    case ExitReason::kHalt:
      return ALIBI_EXIT_HALT;
    case ExitReason::kShutdown:
      return ALIBI_EXIT_SHUTDOWN;
    case ExitReason::kFailed:
      return ALIBI_EXIT_FAILED;
    case ExitReason::kInterrupted:
      break;
  }
  return ALIBI_EXIT_INTERRUPTED;
}

// --- Handlers ---

struct Ports final : alibi::PortHandler {
  Ports(alibi_port_in in_function, alibi_port_out out_function, void* with)
      : in(in_function), out(out_function), context(with) {}
  std::uint32_t In(std::uint16_t port, unsigned size) override { return in(context, port, size); }
  void Out(std::uint16_t port, unsigned size, std::uint32_t value) override {
    out(context, port, size, value);
  }
  alibi_port_in in;
  alibi_port_out out;
  void* context;
};

struct Mmio final : alibi::MmioHandler {
  Mmio(alibi_mmio_read read_function, alibi_mmio_write write_function, void* with)
      : read(read_function), write(write_function), context(with) {}
  std::uint64_t Read(std::uint64_t address, unsigned size) override {
    return read(context, address, size);
  }
  void Write(std::uint64_t address, unsigned size, std::uint64_t value) override {
    write(context, address, size, value);
  }
  alibi_mmio_read read;
  alibi_mmio_write write;
  void* context;
};

// Keeps a handler if the machine takes it.
template <class Handler, class Register>
alibi_status Keep(std::vector<std::unique_ptr<Handler>>& handlers, std::unique_ptr<Handler> handler,
                  Register add) {
  handlers.reserve(handlers.size() + 1);  // nothing may fail behind add()
  const alibi_status status = StatusOf(add(*handler));
  if (status == ALIBI_OK) handlers.push_back(std::move(handler));
  return status;
}

}  // namespace

struct alibi_vcpu {
  alibi::Vcpu* vcpu = nullptr;
  Exit* last = nullptr;  // what the last run returned: it takes the caller's answer
  alibi_exit exit = {};
};

struct alibi_machine {
  // The machine is gone before its handlers.
  std::vector<std::unique_ptr<Ports>> ports;
  std::vector<std::unique_ptr<Mmio>> mmio;
  std::vector<std::unique_ptr<alibi_vcpu>> vcpus;
  std::unique_ptr<alibi::Machine> machine;
};

const char* alibi_version(void) { return ALIBI_VERSION; }

const char* alibi_last_error(void) { return LastError().c_str(); }

// --- Machines ---

alibi_status alibi_machine_create(const alibi_machine_options* options, alibi_machine** machine) {
  if (machine == nullptr) return NullPointer(__func__);
  *machine = nullptr;
  alibi_machine_options given = {};
  if (options != nullptr) {
    // A later header's fields would be overlooked; an earlier one's structure ends sooner.
    if (options->size != sizeof(given) && options->size != kWithoutVcpus) {
      return Fail(ALIBI_ERROR_ARGUMENT,
                  "alibi_machine_options.size is " + std::to_string(options->size) +
                      "; this library (" ALIBI_VERSION ") takes " + std::to_string(sizeof(given)));
    }
    std::memcpy(&given, options, options->size);
  }
  return Guarded([&] {
    if (alibi::Status host = alibi::vmm::CheckHost(alibi::vmm::ReadHostFeatures()); !host.ok()) {
      return Fail(ALIBI_ERROR_HOST, host.error().message);
    }
    alibi::MachineOptions to;
    if (given.policy != nullptr) to.policy = given.policy;
    if (given.coherence != nullptr) to.coherence = given.coherence;
    if (given.cpu != nullptr) to.cpu = given.cpu;
    if (given.translation_cache_bytes != 0) {
      to.translation_cache_bytes = given.translation_cache_bytes;
    }
    if (given.most_memory_bytes != 0) to.most_memory_bytes = given.most_memory_bytes;
    if (given.engine != nullptr) to.engine = given.engine;
    if (given.engine_policy != nullptr) to.engine_policy = given.engine_policy;
    if (given.vcpus != 0) to.vcpus = static_cast<unsigned>(std::min<uint64_t>(given.vcpus, ~0u));
    if (given.translation_store != nullptr) to.translation_store = given.translation_store;
    if (to.engine == NameOf(alibi::runtime::EngineKind::kHardware)) {
      if (auto kvm = alibi::hardware::Kvm::Open(); !kvm.ok()) {
        return Fail(ALIBI_ERROR_HOST, kvm.error().message);
      }
    }
    auto handle = std::make_unique<alibi_machine>();
    auto created = alibi::Machine::Create(to);
    if (!created.ok()) return StatusOf(created);
    handle->machine = std::move(*created);
    *machine = handle.release();
    return ALIBI_OK;
  });
}

void alibi_machine_destroy(alibi_machine* machine) { delete machine; }

alibi_status alibi_machine_add_memory(alibi_machine* machine, uint64_t guest_physical,
                                      uint64_t size, uint32_t flags, void** host) {
  if (machine == nullptr) return NullPointer(__func__);
  if ((flags & ~ALIBI_MEMORY_READ_ONLY) != 0) {
    return Fail(ALIBI_ERROR_REFUSED, "alibi_machine_add_memory: unknown bits in flags");
  }
  return Guarded([&] {
    auto added = machine->machine->AddMemory(guest_physical, size, flags);
    if (added.ok() && host != nullptr) *host = *added;
    return StatusOf(added);
  });
}

alibi_status alibi_machine_remove_memory(alibi_machine* machine, uint64_t guest_physical) {
  if (machine == nullptr) return NullPointer(__func__);
  return Guarded([&] { return StatusOf(machine->machine->RemoveMemory(guest_physical)); });
}

alibi_status alibi_machine_read_memory(alibi_machine* machine, uint64_t guest_physical, void* to,
                                       uint64_t size) {
  if (machine == nullptr || to == nullptr) return NullPointer(__func__);
  return Guarded([&] {
    if (machine->machine->ReadMemory(guest_physical, to, size)) return ALIBI_OK;
    return Fail(ALIBI_ERROR_RANGE, "alibi_machine_read_memory: not all of it lies in memory slots");
  });
}

alibi_status alibi_machine_write_memory(alibi_machine* machine, uint64_t guest_physical,
                                        const void* from, uint64_t size) {
  if (machine == nullptr || from == nullptr) return NullPointer(__func__);
  return Guarded([&] {
    if (machine->machine->WriteMemory(guest_physical, from, size)) return ALIBI_OK;
    return Fail(ALIBI_ERROR_RANGE,
                "alibi_machine_write_memory: not all of it lies in memory slots");
  });
}

alibi_status alibi_machine_handle_ports(alibi_machine* machine, uint16_t first, uint32_t count,
                                        alibi_port_in in, alibi_port_out out, void* context) {
  if (machine == nullptr || in == nullptr || out == nullptr) return NullPointer(__func__);
  return Guarded([&] {
    return Keep(machine->ports, std::make_unique<Ports>(in, out, context), [&](Ports& handler) {
      return machine->machine->HandlePorts(first, count, handler);
    });
  });
}

alibi_status alibi_machine_handle_mmio(alibi_machine* machine, uint64_t base, uint64_t size,
                                       alibi_mmio_read read, alibi_mmio_write write,
                                       void* context) {
  if (machine == nullptr || read == nullptr || write == nullptr) return NullPointer(__func__);
  return Guarded([&] {
    return Keep(machine->mmio, std::make_unique<Mmio>(read, write, context),
                [&](Mmio& handler) { return machine->machine->HandleMmio(base, size, handler); });
  });
}

alibi_status alibi_machine_create_vcpu(alibi_machine* machine, alibi_vcpu** vcpu) {
  if (machine == nullptr || vcpu == nullptr) return NullPointer(__func__);
  *vcpu = nullptr;
  return Guarded([&] {
    // Nothing may fail behind CreateVcpu().
    machine->vcpus.reserve(machine->vcpus.size() + 1);
    auto handle = std::make_unique<alibi_vcpu>();
    auto created = machine->machine->CreateVcpu();
    if (!created.ok()) return StatusOf(created);
    handle->vcpu = *created;
    *vcpu = handle.get();
    machine->vcpus.push_back(std::move(handle));
    return ALIBI_OK;
  });
}

alibi_vcpu* alibi_machine_current_vcpu(alibi_machine* machine) {
  const alibi::Vcpu* const current = machine->machine->CurrentVcpu();
  for (const auto& vcpu : machine->vcpus) {
    if (vcpu->vcpu == current) return vcpu.get();
  }
  return nullptr;
}

alibi_status alibi_machine_counters(alibi_machine* machine, alibi_counter each, void* context) {
  if (machine == nullptr || each == nullptr) return NullPointer(__func__);
  return Guarded([&] {
    for (const alibi::CounterValue& counter : machine->machine->Counters()) {
      each(context, counter.name.c_str(), counter.meaning.c_str(), counter.value);
    }
    return ALIBI_OK;
  });
}

// --- VCPUs ---

void alibi_flat_protected_mode(alibi_special_registers* registers) {
  *registers = std::bit_cast<alibi_special_registers>(alibi::SpecialRegisters::FlatProtectedMode());
}

alibi_exit* alibi_vcpu_run(alibi_vcpu* vcpu) {
  if (vcpu->last != nullptr) {
    vcpu->last->io.data = vcpu->exit.io.data;
    vcpu->last->mmio.data = vcpu->exit.mmio.data;
  }
  Exit& exit = vcpu->vcpu->Run();
  vcpu->last = &exit;
  vcpu->exit.reason = ReasonOf(exit.reason);
  if (exit.reason == ExitReason::kFailed) LastError() = vcpu->vcpu->Failure();
  vcpu->exit.io = {exit.io.out, exit.io.size, exit.io.port, exit.io.data};
  vcpu->exit.mmio = {exit.mmio.write, exit.mmio.size, exit.mmio.address, exit.mmio.data};
  return &vcpu->exit;
}

alibi_status alibi_vcpu_get_registers(alibi_vcpu* vcpu, alibi_registers* registers) {
  if (vcpu == nullptr || registers == nullptr) return NullPointer(__func__);
  *registers = std::bit_cast<alibi_registers>(vcpu->vcpu->GetRegisters());
  return ALIBI_OK;
}

alibi_status alibi_vcpu_set_registers(alibi_vcpu* vcpu, const alibi_registers* registers) {
  if (vcpu == nullptr || registers == nullptr) return NullPointer(__func__);
  return Guarded([&] {
    return StatusOf(vcpu->vcpu->SetRegisters(std::bit_cast<alibi::Registers>(*registers)));
  });
}

alibi_status alibi_vcpu_get_special_registers(alibi_vcpu* vcpu,
                                              alibi_special_registers* registers) {
  if (vcpu == nullptr || registers == nullptr) return NullPointer(__func__);
  *registers = std::bit_cast<alibi_special_registers>(vcpu->vcpu->GetSpecialRegisters());
  return ALIBI_OK;
}

alibi_status alibi_vcpu_set_special_registers(alibi_vcpu* vcpu,
                                              const alibi_special_registers* registers) {
  if (vcpu == nullptr || registers == nullptr) return NullPointer(__func__);
  return Guarded([&] {
    return StatusOf(
        vcpu->vcpu->SetSpecialRegisters(std::bit_cast<alibi::SpecialRegisters>(*registers)));
  });
}

alibi_status alibi_vcpu_get_msr(alibi_vcpu* vcpu, uint32_t index, uint64_t* value) {
  if (vcpu == nullptr || value == nullptr) return NullPointer(__func__);
  return Guarded([&] {
    auto read = vcpu->vcpu->GetMsr(index);
    if (read.ok()) *value = *read;
    return StatusOf(read);
  });
}

alibi_status alibi_vcpu_set_msr(alibi_vcpu* vcpu, uint32_t index, uint64_t value) {
  if (vcpu == nullptr) return NullPointer(__func__);
  return Guarded([&] { return StatusOf(vcpu->vcpu->SetMsr(index, value)); });
}

alibi_status alibi_vcpu_get_xsave(alibi_vcpu* vcpu, void* area) {
  if (vcpu == nullptr || area == nullptr) return NullPointer(__func__);
  return Guarded([&] { return StatusOf(vcpu->vcpu->GetXsave(area)); });
}

alibi_status alibi_vcpu_set_xsave(alibi_vcpu* vcpu, const void* area) {
  if (vcpu == nullptr || area == nullptr) return NullPointer(__func__);
  return Guarded([&] { return StatusOf(vcpu->vcpu->SetXsave(area)); });
}

void alibi_vcpu_inject_interrupt(alibi_vcpu* vcpu, uint8_t vector) {
  vcpu->vcpu->InjectInterrupt(vector);
}

void alibi_vcpu_inject_nmi(alibi_vcpu* vcpu) { vcpu->vcpu->InjectNmi(); }

void alibi_vcpu_request_exit(alibi_vcpu* vcpu) { vcpu->vcpu->RequestExit(); }
