// SPDX-License-Identifier: Apache-2.0
#include "pc/board.h"

#include <utility>

#include "base/check.h"

namespace alibi::devices {
namespace {

constexpr unsigned kTimerIrq = 0;
constexpr unsigned kCascadeIrq = 2;
constexpr unsigned kKeyboardIrq = 1;
constexpr unsigned kSerialIrq = 4;
constexpr unsigned kRtcIrq = 8;
constexpr unsigned kMouseIrq = 12;
constexpr unsigned kNumericErrorIrq = 13;
constexpr unsigned kVgaSlot = 2;
constexpr unsigned kTimerIoApicInput = 2;
constexpr PhysAddr kTestMemory{0xff000000};

}  // namespace

Result<std::unique_ptr<Pc>> Pc::Create(const PcConfig& config, PcHooks hooks, Clock& clock,
                                       TscSource& tsc) {
  std::unique_ptr<Pc> pc(new Pc(config, std::move(hooks), clock, tsc));
  const Status wired = pc->Wire(config);
  if (!wired.ok()) return wired.error();
  if (config.set_up) {
    pc->SetUpAsBiosLeavesIt();
  } else {
    pc->lapic().Reset(/*keep_mode=*/false);
  }
  return pc;
}

Pc::Pc(const PcConfig& config, PcHooks hooks, Clock& clock, TscSource& tsc)
    : hooks_(std::move(hooks)),
      set_up_(config.set_up),
      clock_(clock),
      lapics_(MakeLapics(config, tsc)),
      ioapic_([this](const ApicMessage& message) {
        // ExtINT names no vector: the 8259s are asked. Their wire is LINT0 here, so an entry in
        // that mode has nothing to add.
        Deliver(message);
      }),
      timer_line_(lines_[kTimerIrq]),
      rtc_line_(lines_[kRtcIrq]),
      sci_line_(lines_[AcpiPm::kSciIrq]),
      pit_(clock, timers_, timer_line_.first()),
      port61_(clock, pit_),
      serial_(clock, timers_, lines_[kSerialIrq], hooks_.serial_output),
      cmos_(clock, timers_, rtc_line_.first(), config.unix_seconds, config.low_ram_bytes,
            config.high_ram_bytes, config.into_second_ns),
      hpet_(clock, timers_, timer_line_, rtc_line_,
            [this](unsigned input) -> IrqLine& { return ioapic_.Line(input); }),
      keyboard_(lines_[kKeyboardIrq], lines_[kMouseIrq], gates_),
      port92_(gates_),
      reset_control_(gates_),
      pci_({.ports = ports_,
            .mmio = mmio_,
            .reset_control = reset_control_,
            .isa_line = [this](unsigned irq, bool level) { lines_[irq].SetFromPci(level); },
            .message = [this](const ApicMessage& message) { Deliver(message); },
            .pam = hooks_.pam,
            .pm_base =
                [this](u16 base) {
                  if (base != acpi_base_ && ports_.Move(acpi_base_, base)) acpi_base_ = base;
                },
            .smbus =
                [this](const PciPowerManagement::SmBusSettings& to) {
                  if (to.base != 0 && to.base != smbus_base_ && ports_.Move(smbus_base_, to.base)) {
                    smbus_base_ = to.base;
                  }
                  smbus_.Configure(to.enabled && to.base == smbus_base_, to.interrupts);
                }}),
      vga_(clock, hooks_.screen_changed),
      vga_function_(vga_, config.vga_rom),
      acpi_(clock, timers_, sci_line_.first(), hooks_.power_off),
      smbus_(sci_line_.second()),
      test_lines_([this](unsigned line, bool level) {
        if (line >= lines_.size()) {
          ioapic_.Line(line).Set(level);
        } else if (line != kCascadeIrq) {
          lines_[line].Set(level);
        }
      }),
      debug_exit_(hooks_.exit_requested),
      pvpanic_(hooks_.panicked),
      boot_failure_(hooks_.boot_failed),
      numeric_error_(lines_[kNumericErrorIrq], hooks_.ignore_numeric_error),
      debug_console_(hooks_.debug_output),
      printer_(hooks_.debug_output) {
  for (unsigned irq = 0; irq < lines_.size(); ++irq) {
    if (irq == kCascadeIrq) continue;
    lines_[irq].Connect(&pics_.Line(irq),
                        &ioapic_.Line(irq == kTimerIrq ? kTimerIoApicInput : irq));
  }
  gates_.reset = hooks_.reset;
  pit_.OnCountdown(hooks_.countdown);
  pci_.Add(kVgaSlot, 0, vga_function_);
  fw_cfg_.AddInteger(FwCfg::kRamSize, config.low_ram_bytes + config.high_ram_bytes, 8);
  fw_cfg_.AddInteger(FwCfg::kNoGraphics, config.serial_is_screen ? 1 : 0, 2);
  fw_cfg_.AddInteger(FwCfg::kCpuCount, cpus(), 2);
  fw_cfg_.AddInteger(FwCfg::kMaxCpus, cpus(), 2);
  fw_cfg_.AddInteger(FwCfg::kIrq0Override, 1, 4);
  // Nothing to boot from can appear later: firmware need not wait before it tries again.
  fw_cfg_.AddFile("etc/boot-fail-wait", {0, 0, 0, 0});
  pics_.OnOutput([this](bool level) {
    for (const auto& lapic : lapics_) lapic->SetLint0(level);
  });
}

// The others' local APICs are as after power-up whether there is firmware or not.
std::vector<std::unique_ptr<Lapic>> Pc::MakeLapics(const PcConfig& config, TscSource& tsc) {
  std::vector<std::unique_ptr<Lapic>> lapics;
  for (unsigned cpu = 0; cpu <= config.more_cpus.size(); ++cpu) {
    TscSource& own = cpu == 0 ? tsc : *config.more_cpus[cpu - 1];
    apic_hosts_.push_back(std::make_unique<ApicHost>(*this, cpu));
    auto lapic = std::make_unique<Lapic>(cpu, clock_, own, timers_, *apic_hosts_.back());
    if (cpu != 0) lapic->Reset(/*keep_mode=*/false);
    lapic->ConnectExtInt(&pics_);
    apic_bus_.Add(*lapic);
    lapics.push_back(std::move(lapic));
  }
  lapic_page_device_.set_running(*lapics[0]);
  return lapics;
}

Status Pc::Wire(const PcConfig& config) {
  struct PortRow {
    u16 first;
    u32 count;
    Device* device;
    const char* name;
    u64 first_offset = 0;
  };
  const PortRow ports[] = {
      {0x20, 2, &pics_.master(), "8259A master"},
      {0xa0, 2, &pics_.slave(), "8259A slave"},
      {0x4d0, 2, &pics_.elcr_ports(), "ELCR"},
      {0x40, 4, &pit_, "8254"},
      {0x61, 1, &port61_, "system control"},
      {0x70, 2, &cmos_, "RTC"},
      {0x3f8, 8, &serial_, "COM1"},
      {0x60, 1, &keyboard_, "8042"},
      {0x64, 1, &keyboard_, "8042", 4},
      {0x80, 1, &post_, "POST"},
      {Vga::kFirstPort, Vga::kPortCount, &vga_.ports(), "VGA"},
      {BochsDisplay::kFirstPort, BochsDisplay::kPortCount, &bochs_display_, "Bochs display"},
      {0x190, 1, &post190_, "POST"},
      {0x92, 1, &port92_, "system control A"},
      {0xb2, 2, &acpi_.smi_command(), "SMI command"},
      {AcpiPm::kDefaultBase, AcpiPm::kPortCount, &acpi_, "ACPI"},
      {SmBus::kDefaultBase, SmBus::kPortCount, &smbus_, "SMBus"},
      {0x510, 2, &fw_cfg_, "fw_cfg"},
      {0x514, 8, &fw_cfg_.dma_ports(), "fw_cfg DMA"},
      {0xcf8, 8, &pci_, "PCI"},
      {0xe0, 4, &test_ports_, "test ports"},
      {0x2000, TestIrqLines::kLines, &test_lines_, "test lines"},
      {0xf0, 1, &numeric_error_, "x87 errors"},
      {0xf4, 4, &debug_exit_, "debug exit"},
      {Pvpanic::kPort, 1, &pvpanic_, "pvpanic"},
      {BootFailure::kPort, BootFailure::kPortCount, &boot_failure_, "boot failure"},
      {0x378, 3, &printer_, "printer"},
  };
  for (const PortRow& row : ports) {
    Status added = ports_.Add(row.first, row.count, *row.device, row.name, row.first_offset);
    if (!added.ok()) return added;
  }
  for (const u16 port : config.debug_ports) {
    Status added = ports_.Add(port, 1, debug_console_, "debug console");
    if (!added.ok()) return added;
  }
  Status added = mmio_.Add(kTestMemory, 0x10000, test_memory_, "test memory");
  if (!added.ok()) return added;
  added = mmio_.Add(Vga::kWindow, Vga::kWindowBytes, vga_.window(), "VGA");
  if (!added.ok()) return added;
  added = mmio_.Add(Lapic::kBase, Lapic::kSize, lapic_page_device_, "local APIC");
  if (!added.ok()) return added;
  added = mmio_.Add(Hpet::kBase, Hpet::kSize, hpet_, "HPET");
  if (!added.ok()) return added;
  return mmio_.Add(IoApic::kBase, IoApic::kSize, ioapic_, "I/O APIC");
}

// Multiboot guests get no BIOS, but some lean on what it does. The values are SeaBIOS's, so that a
// guest finds here what it finds under `qemu -kernel`.
void Pc::SetUpAsBiosLeavesIt() {
  struct Write {
    u16 port;
    u8 value;
  };
  static constexpr Write kWrites[] = {
      // 8259s: vectors 0x08 and 0x70; timer, keyboard, cascade, floppy and RTC unmasked.
      {0x20, 0x11},
      {0x21, 0x08},
      {0x21, 0x04},
      {0x21, 0x01},
      {0x21, 0xb8},
      {0xa0, 0x11},
      {0xa1, 0x70},
      {0xa1, 0x02},
      {0xa1, 0x01},
      {0xa1, 0x8e},
      // ACPI's line and the PCI lines' are level-triggered.
      {0x4d1, 0x0e},
      // 8254: channel 0 as an 18.2 Hz rate generator.
      {0x43, 0x34},
      {0x40, 0x00},
      {0x40, 0x00},
  };
  for (const Write& write : kWrites) ports_.Write(write.port, 1, write.value);
  vga_.SetTextMode();
}

void Pc::Reset() {
  ports_.ResetDevices();
  mmio_.ResetDevices();
  for (const auto& lapic : lapics_) lapic->Reset();
  RunCpu(0);
  if (set_up_) {
    lapic().SetUpAsBiosLeavesIt();
    SetUpAsBiosLeavesIt();
  }
}

void Pc::RunCpu(unsigned cpu) {
  lapic_page_device_.set_running(*lapics_[cpu]);
  PlaceLapic();
}

// A place that another device has is left to it.
void Pc::PlaceLapic() {
  const PhysAddr base = lapic().base();
  if (base != lapic_page_ && mmio_.Move(lapic_page_, base)) lapic_page_ = base;
}

IrqLine& Pc::Irq(unsigned irq) {
  ALIBI_CHECK(irq < lines_.size() && irq != kCascadeIrq, "an ISA interrupt is 0 to 15, not 2");
  return lines_[irq];
}

void Pc::SetApicBase(u64 value) {
  lapic().WriteMsr(Lapic::kMsrApicBase, value);
  PlaceLapic();
}

void Pc::ApicHost::InterruptRaised() {
  if (pc_.hooks_.interrupt_raised) pc_.hooks_.interrupt_raised(cpu_);
}

void Pc::ApicHost::Nmi() {
  if (pc_.hooks_.nmi) pc_.hooks_.nmi(cpu_);
}

void Pc::ApicHost::Init() {
  if (pc_.hooks_.init) pc_.hooks_.init(cpu_);
}

void Pc::ApicHost::Startup(u8 vector) {
  if (pc_.hooks_.startup) pc_.hooks_.startup(cpu_, vector);
}

void Pc::ApicHost::Send(const ApicMessage& message, bool self_too) {
  pc_.apic_bus_.Send(message, self_too ? nullptr : pc_.lapics_[cpu_].get());
}

void Pc::ApicHost::EndOfInterrupt(u8 vector) { pc_.ioapic_.EndOfInterrupt(vector); }

}  // namespace alibi::devices
