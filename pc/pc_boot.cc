// SPDX-License-Identifier: Apache-2.0
// PcMachine's start without firmware: puts a kernel into memory, and what firmware would have left.
#include <algorithm>
#include <utility>

#include "pc/boot/acpi_script.h"
#include "pc/boot/firmware.h"
#include "pc/boot/linux.h"
#include "pc/boot/linux_rom.h"
#include "pc/boot/multiboot.h"
#include "pc/boot/option_rom.h"
#include "pc/boot/pvh.h"
#include "pc/boot/smbios.h"
#include "pc/boot/vmi_rom.h"
#include "pc/pc_machine.h"
#include "vcpu/msr.h"
#include "vcpu/reset.h"

namespace alibi::vmm {
namespace {

class LoaderMemory final : public loader::GuestMemory {
 public:
  explicit LoaderMemory(mmu::GuestMemory& memory) : memory_(memory) {}
  bool Write(PhysAddr addr, std::span<const u8> bytes) override {
    return memory_.LoadPhys(addr, bytes.data(), bytes.size());
  }
  bool Zero(PhysAddr addr, u64 size) override {
    if (!memory_.IsBacked(addr, size)) return false;
    static constexpr u8 kZeros[kPageSize] = {};
    while (size != 0) {
      const u64 piece = std::min<u64>(size, kPageSize);
      if (!memory_.LoadPhys(addr, kZeros, piece)) return false;
      addr = addr + piece;
      size -= piece;
    }
    return true;
  }

 private:
  mmu::GuestMemory& memory_;
};

}  // namespace

Status PcMachine::Load(const Kernel& kernel) {
  if (!kernel_.has_value()) kernel_ = kernel;
  LoaderMemory memory(machine_->memory());
  Status loaded = loader::IsLinux(kernel.image) ? LoadLinux(kernel, memory)
                  : loader::IsMultiboot(kernel.image) || !loader::IsPvh(kernel.image)
                      ? LoadMultiboot(kernel, memory)
                      : LoadPvh(kernel, memory);
  if (!loaded.ok()) return loaded;
  for (unsigned cpu = 0; cpu < machine_->vcpus(); ++cpu) {
    vcpu::SetMtrrsAsBiosLeavesThem(machine_->state(cpu));
  }
  machine_->StateChanged();
  return Ok{};
}

Status PcMachine::LoadMultiboot(const Kernel& kernel, loader::GuestMemory& memory) {
  loader::MultibootOptions options;
  options.low_ram_bytes = low_ram_bytes_;
  options.high_ram_bytes = high_ram_bytes_;
  options.command_line = kernel.name;
  if (!kernel.command_line.empty()) options.command_line += " " + kernel.command_line;
  options.modules = kernel.modules;
  // First: a kernel may want that memory for itself.
  if (Status left = LeaveFirmware(memory); !left.ok()) return left;
  auto entry = loader::LoadMultiboot(kernel.image, kernel.name, options, memory);
  if (!entry.ok()) return entry.error();
  vcpu::ResetToMultiboot(machine_->state(), machine_->cpuid(), entry->eip, entry->eax, entry->ebx);
  return Ok{};
}

loader::LinuxOptions PcMachine::LinuxOptionsOf(const Kernel& kernel) const {
  loader::LinuxOptions options;
  options.low_ram_bytes = low_ram_bytes_;
  options.high_ram_bytes = high_ram_bytes_;
  options.command_line = kernel.command_line;
  if (!kernel.modules.empty()) options.initrd = kernel.modules[0].bytes;
  return options;
}

Status PcMachine::LoadLinux(const Kernel& kernel, loader::GuestMemory& memory) {
  loader::LinuxOptions options = LinuxOptionsOf(kernel);
  options.rsdp = loader::kRsdpAddress;
  options.entry = kernel.entry;
  auto entry = loader::LoadLinux(kernel.image, kernel.name, options, memory);
  if (!entry.ok()) return entry.error();
  if (Status left = LeaveFirmware(memory); !left.ok()) return left;
  if (entry->page_tables != 0) {
    vcpu::ResetToLinux64(machine_->state(), machine_->cpuid(), entry->rip, entry->boot_params,
                         entry->gdt, entry->page_tables);
  } else {
    vcpu::ResetToLinux32(machine_->state(), machine_->cpuid(), static_cast<u32>(entry->rip),
                         static_cast<u32>(entry->boot_params), entry->gdt);
  }
  return Ok{};
}

Status PcMachine::OfferLinux(const Kernel& kernel) {
  const loader::LinuxOptions options = LinuxOptionsOf(kernel);
  auto setup = loader::PrepareLinuxSetup(kernel.image, kernel.name, options);
  if (!setup.ok()) return setup.error();
  using devices::FwCfg;
  const auto offer = [this](u16 address_item, u32 address, u16 size_item, u16 data_item,
                            std::span<const u8> data) {
    FwCfg& fw_cfg = pc_->fw_cfg();
    fw_cfg.AddInteger(address_item, address, 4);
    fw_cfg.AddInteger(size_item, data.size(), 4);
    fw_cfg.Add(data_item, std::vector<u8>(data.begin(), data.end()));
  };
  offer(FwCfg::kSetupAddress, setup->setup_at, FwCfg::kSetupSize, FwCfg::kSetupData, setup->setup);
  offer(FwCfg::kCommandLineAddress, setup->command_line_at, FwCfg::kCommandLineSize,
        FwCfg::kCommandLineData, setup->command_line);
  offer(FwCfg::kKernelAddress, setup->kernel_at, FwCfg::kKernelSize, FwCfg::kKernelData,
        setup->kernel);
  offer(FwCfg::kInitrdAddress, setup->initrd_at, FwCfg::kInitrdSize, FwCfg::kInitrdData,
        options.initrd);
  pc_->fw_cfg().AddFile(loader::kLinuxRomFile, loader::LinuxRom());
  return Ok{};
}

Status PcMachine::LoadPvh(const Kernel& kernel, loader::GuestMemory& memory) {
  loader::PvhOptions options;
  options.low_ram_bytes = low_ram_bytes_;
  options.high_ram_bytes = high_ram_bytes_;
  options.command_line = kernel.command_line;
  options.modules = kernel.modules;
  options.rsdp = loader::kRsdpAddress;
  auto entry = loader::LoadPvh(kernel.image, kernel.name, options, memory);
  if (!entry.ok()) return entry.error();
  if (Status left = LeaveFirmware(memory); !left.ok()) return left;
  vcpu::ResetToPvh(machine_->state(), machine_->cpuid(), entry->eip, entry->start_info);
  return Ok{};
}

loader::AcpiHardware PcMachine::DescribeHardware() const {
  loader::AcpiHardware hardware;
  hardware.cpus = machine_->vcpus();
  return hardware;
}

void PcMachine::DescribeToFirmware() {
  pc_->fw_cfg().AddFile(loader::kNoBootDeviceRomFile, loader::NoBootDeviceRom());
  if (vmi_.has_value()) pc_->fw_cfg().AddFile(loader::kVmiRomFile, loader::VmiRom(*vmi_));
  const loader::AcpiHardware hardware = DescribeHardware();
  for (loader::FirmwareFile& file : loader::ScriptAcpi(loader::BuildAcpi(hardware, 0))) {
    pc_->fw_cfg().AddFile(file.name, std::move(file.bytes));
  }
  loader::Smbios smbios = loader::BuildSmbios({low_ram_bytes_, high_ram_bytes_}, 0);
  pc_->fw_cfg().AddFile(loader::kSmbiosAnchorFile, std::move(smbios.anchor));
  pc_->fw_cfg().AddFile(loader::kSmbiosTablesFile, std::move(smbios.tables));
  // RAM alone, as address, length, type; the firmware knows its own places (QEMU's docs/specs,
  // fw_cfg).
  std::vector<u8> map;
  for (const auto& [base, bytes] :
       {std::pair{u64{0}, low_ram_bytes_}, {kHighRamBase, high_ram_bytes_}}) {
    if (bytes == 0) continue;
    constexpr u64 kUsable = 1;
    for (const auto& [value, size] : {std::pair{base, 8u}, {bytes, 8u}, {kUsable, 4u}}) {
      for (unsigned i = 0; i < size; ++i) map.push_back(static_cast<u8>(value >> (8 * i)));
    }
  }
  pc_->fw_cfg().AddFile("etc/e820", std::move(map));
}

Status PcMachine::LeaveFirmware(loader::GuestMemory& memory) {
  pc_->pci().AssignAsFirmware();
  const loader::AcpiHardware hardware = DescribeHardware();
  if (low_ram_bytes_ >= BiosRom::kShadowEnd &&
      !(loader::WriteFirmware(hardware, memory) &&
        loader::WriteSmbios({low_ram_bytes_, high_ram_bytes_}, memory))) {
    return Error{"the memory below 1 MB is not all RAM"};
  }
  if (vmi_.has_value() && !memory.Write(loader::kVmiRomAddress, loader::VmiRom(*vmi_))) {
    return Error{"there is no RAM for the VMI ROM"};
  }
  return Ok{};
}

}  // namespace alibi::vmm
