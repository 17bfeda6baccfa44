#include "devices/pc.h"

#include <utility>

#include "base/check.h"

namespace alibi::devices {
namespace {

constexpr unsigned kTimerIrq = 0;
constexpr unsigned kCascadeIrq = 2;
constexpr unsigned kSerialIrq = 4;
constexpr unsigned kRtcIrq = 8;
constexpr unsigned kTimerIoApicInput = 2;

}  // namespace

Result<std::unique_ptr<Pc>> Pc::Create(const PcConfig& config, PcHooks hooks, Clock& clock,
                                       TscSource& tsc) {
  std::unique_ptr<Pc> pc(new Pc(config, std::move(hooks), clock, tsc));
  const Status wired = pc->Wire(config);
  if (!wired.ok()) return wired.error();
  pc->SetUpAsBiosLeavesIt();
  return pc;
}

Pc::Pc(const PcConfig& config, PcHooks hooks, Clock& clock, TscSource& tsc)
    : hooks_(std::move(hooks)),
      clock_(clock),
      lapic_(/*id=*/0, clock, tsc, timers_, *this),
      ioapic_([this](const ApicMessage& message) {
        // ExtINT names no vector: the 8259s are asked. Their wire is LINT0 here, so an entry in
        // that mode has nothing to add.
        if (lapic_.IsDestination(message)) lapic_.Deliver(message);
      }),
      pit_(clock, timers_, lines_[kTimerIrq]),
      port61_(clock, pit_),
      serial_(clock, timers_, lines_[kSerialIrq], hooks_.serial_output),
      cmos_(clock, timers_, lines_[kRtcIrq], config.unix_seconds, config.low_ram_bytes,
            config.high_ram_bytes),
      debug_exit_(hooks_.exit_requested),
      debug_console_(hooks_.debug_output) {
  for (unsigned irq = 0; irq < lines_.size(); ++irq) {
    if (irq == kCascadeIrq) continue;
    lines_[irq].Connect(&pics_.Line(irq),
                        &ioapic_.Line(irq == kTimerIrq ? kTimerIoApicInput : irq));
  }
  pics_.OnOutput([this](bool level) { lapic_.SetLint0(level); });
  lapic_.ConnectExtInt(&pics_);
}

Status Pc::Wire(const PcConfig& config) {
  struct PortRow {
    u16 first;
    u32 count;
    Device* device;
    const char* name;
  };
  const PortRow ports[] = {
      {0x20, 2, &pics_.master(), "8259A master"},
      {0xa0, 2, &pics_.slave(), "8259A slave"},
      {0x4d0, 2, &pics_.elcr_ports(), "ELCR"},
      {0x40, 4, &pit_, "8254"},
      {0x61, 1, &port61_, "system control"},
      {0x70, 2, &cmos_, "RTC"},
      {0x3f8, 8, &serial_, "COM1"},
      {0x80, 1, &post_, "POST"},
      {0xf4, 4, &debug_exit_, "debug exit"},
  };
  for (const PortRow& row : ports) {
    Status added = ports_.Add(row.first, row.count, *row.device, row.name);
    if (!added.ok()) return added;
  }
  if (config.debug_console) {
    Status added = ports_.Add(0xe9, 1, debug_console_, "debug console");
    if (!added.ok()) return added;
  }
  Status added = mmio_.Add(Lapic::kBase, Lapic::kSize, lapic_, "local APIC");
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
      // 8254: channel 0 as an 18.2 Hz rate generator.
      {0x43, 0x34},
      {0x40, 0x00},
      {0x40, 0x00},
  };
  for (const Write& write : kWrites) ports_.Write(write.port, 1, write.value);
}

IrqLine& Pc::Irq(unsigned irq) {
  ALIBI_CHECK(irq < lines_.size() && irq != kCascadeIrq, "an ISA interrupt is 0 to 15, not 2");
  return lines_[irq];
}

void Pc::SetApicBase(u64 value) {
  const PhysAddr before = lapic_.base();
  lapic_.WriteMsr(Lapic::kMsrApicBase, value);
  // A place that another device has is left to it.
  if (lapic_.base() != before && mmio_.Move(lapic_page_, lapic_.base())) {
    lapic_page_ = lapic_.base();
  }
}

void Pc::InterruptRaised() {
  if (hooks_.interrupt_raised) hooks_.interrupt_raised();
}

void Pc::Nmi() {
  if (hooks_.nmi) hooks_.nmi();
}

void Pc::Init() {
  if (hooks_.init) hooks_.init();
}

void Pc::EndOfInterrupt(u8 vector) { ioapic_.EndOfInterrupt(vector); }

}  // namespace alibi::devices
