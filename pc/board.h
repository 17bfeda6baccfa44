// SPDX-License-Identifier: Apache-2.0
// The board: wires the devices to ports, memory and interrupt lines as in a PC.
//
//   ports   0x20-0x21, 0xa0-0xa1  8259A pair          0x3f8-0x3ff  16550A, COM1
//           0x40-0x43             8254                0x4d0-0x4d1  ELCR
//           0x61                  speaker, gate 2     0xf4-0xf7    debug exit
//           0x70-0x71             RTC, CMOS           0x80         POST latch
//           0x60, 0x64            keyboard controller 0x92         A20, reset
//           0x3b0-0x3df           VGA                 0x1ce-0x1d0  Bochs display interface
//           0xb2-0xb3             SMI command         0x600-0x63f  ACPI power management
//           0x700-0x70f           SMBus
//           0x510-0x511           fw_cfg              0xcf8-0xcff  PCI, reset control at 0xcf9
//           0xe9, 0x402, ...      debug consoles      0x190        POST latch
//           0x378-0x37a           printer             0xf0         x87 error latch
//           0xe0-0xe3, 0x2000-0x2017  test device
//   memory  0xa0000-0xbffff VGA, 0xfec00000 I/O APIC, 0xfed00000 HPET, 0xfee00000 local APIC,
//           0xff000000 test device
//   lines   0 8254, 1 keyboard, 2 cascade, 4 COM1, 8 RTC, 9 ACPI and SMBus, 12 mouse, 13 x87
//   errors; each goes to the
//           8259s and to the I/O APIC's input of the same number, but the 8254 to input 2, as
//           everywhere. The 8259s' output goes to LINT0.
#ifndef ALIBI_PC_BOARD_H_
#define ALIBI_PC_BOARD_H_

#include <array>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/types.h"
#include "devices/bus.h"
#include "devices/console/keyboard8042.h"
#include "devices/console/uart16550.h"
#include "devices/console/vga.h"
#include "devices/console/vga_pci.h"
#include "devices/irq.h"
#include "devices/irq/apic_bus.h"
#include "devices/irq/interrupt_controller.h"
#include "devices/irq/ioapic.h"
#include "devices/irq/lapic.h"
#include "devices/irq/lapic_page.h"
#include "devices/irq/numeric_error.h"
#include "devices/irq/pic8259.h"
#include "devices/pci/pci.h"
#include "devices/pci/smbus.h"
#include "devices/qemu/boot_failure.h"
#include "devices/qemu/debug_exit.h"
#include "devices/qemu/debug_port.h"
#include "devices/qemu/fw_cfg.h"
#include "devices/qemu/pvpanic.h"
#include "devices/qemu/test_device.h"
#include "devices/time/acpi_pm.h"
#include "devices/time/clock.h"
#include "devices/time/cmos.h"
#include "devices/time/hpet.h"
#include "devices/time/pit8254.h"
#include "devices/time/timer_queue.h"

namespace alibi::devices {

struct PcConfig {
  u64 low_ram_bytes = 0;   // from 0; reported in CMOS
  u64 high_ram_bytes = 0;  // from 4 GB
  i64 unix_seconds = 0;    // UTC when the clock shows 0,
  u32 into_second_ns = 0;  // so far into that second
  // What is written to these ports is text for debug_output.
  std::vector<u16> debug_ports = {0xe9, 0x402};
  bool serial_is_screen = true;  // firmware shows on COM1 what it shows on the screen
  std::vector<u8> vga_rom;       // the video BIOS; may be empty
  // The TSCs of the CPUs beside the boot processor, in the order of their APIC IDs, from 1 on. They
  // outlive the board.
  std::vector<TscSource*> more_cpus;
  // As firmware leaves the devices, for guests that are started without any.
  bool set_up = true;
};

// What leaves the board. Empty functions are allowed. All are called from inside device accesses
// or RunExpired(), on the owner's thread, and should only take note.
struct PcHooks {
  std::function<void(u8)> serial_output;
  std::function<void(u8)> debug_output;
  std::function<void(u32 status)> exit_requested;
  std::function<void()> panicked;     // the guest's kernel, by its own account
  std::function<void()> boot_failed;  // firmware found nothing to boot from
  // Of a CPU, by its APIC ID: InterruptPending() may have become true; an NMI; an INIT, which has
  // not reset its local APIC yet; a startup IPI.
  std::function<void(unsigned cpu)> interrupt_raised;
  std::function<void(unsigned cpu)> nmi;
  std::function<void(unsigned cpu)> init;
  std::function<void(unsigned cpu, u8 vector)> startup;
  std::function<void()> ignore_numeric_error;  // IGNNE# is asserted
  std::function<void()> reset;                 // the keyboard controller, port 0x92 or 0xcf9
  std::function<void()> screen_changed;        // see Vga
  std::function<void()> power_off;             // ACPI soft off
  std::function<void(u64 end_ns)> countdown;   // see Pit8254::OnCountdown
  std::function<void(const PciHost::Pam&)> pam;
};

class Pc {
 public:
  // `clock` and `tsc`, the boot processor's, must outlive the board.
  static Result<std::unique_ptr<Pc>> Create(const PcConfig& config, PcHooks hooks, Clock& clock,
                                            TscSource& tsc);
  ~Pc() = default;
  Pc(const Pc&) = delete;
  Pc& operator=(const Pc&) = delete;

  // The RESET line of everything on the board, and then what firmware would do if there is none.
  // What devices drive outside (RAM in the ROM's place) is the owner's to follow.
  void Reset();

  PortBus& ports() { return ports_; }
  MmioBus& mmio() { return mmio_; }
  Clock& clock() { return clock_; }
  TimerQueue& timers() { return timers_; }
  // Of the CPU that runs: the boot processor at first.
  InterruptController& interrupts() { return lapic_page_device_.running(); }
  // Its MSRs, TPR binding, and reset.
  Lapic& lapic() { return lapic_page_device_.running(); }
  const Lapic& lapic() const { return lapic_page_device_.running(); }
  Lapic& lapic(unsigned cpu) { return *lapics_[cpu]; }
  unsigned cpus() const { return static_cast<unsigned>(lapics_.size()); }
  // Another CPU runs: its local APIC is the one in memory.
  void RunCpu(unsigned cpu);
  // The same where all have their registers at one place. No more than a pointer is stored.
  void RunCpuThere(unsigned cpu) { lapic_page_device_.set_running(*lapics_[cpu]); }
  const IoApic& ioapic() const { return ioapic_; }
  Pic8259Pair& pics() { return pics_; }
  Uart16550& serial() { return serial_; }
  Keyboard8042& keyboard() { return keyboard_; }
  Vga& vga() { return vga_; }
  PciHost& pci() { return pci_; }
  FwCfg& fw_cfg() { return fw_cfg_; }

  // IA32_APIC_BASE was written, legally: the local APIC's mode and place follow.
  void SetApicBase(u64 value);

  // An ISA interrupt line (not 2), for devices the embedder adds. Edge-triggered unless ELCR or the
  // I/O APIC say otherwise.
  IrqLine& Irq(unsigned irq);

  // A message-signalled interrupt.
  void Deliver(const ApicMessage& message) { apic_bus_.Send(message); }

  // The VCPU asserts FERR#.
  void NumericError() { numeric_error_.Set(); }

  // Bytes for the guest's serial port; they wait until the guest takes them.
  void SerialInput(std::string_view bytes) { serial_.Receive(bytes); }

 private:
  // What a CPU's local APIC asks for.
  class ApicHost final : public LapicHost {
   public:
    ApicHost(Pc& pc, unsigned cpu) : pc_(pc), cpu_(cpu) {}
    void InterruptRaised() override;
    void Nmi() override;
    void Init() override;
    void Startup(u8 vector) override;
    void Send(const ApicMessage& message, bool self_too) override;
    void EndOfInterrupt(u8 vector) override;

   private:
    Pc& pc_;
    const unsigned cpu_;
  };

  class IsaLine : public IrqLine {
   public:
    void Connect(IrqLine* pic, IrqLine* ioapic) {
      pic_ = pic;
      ioapic_ = ioapic;
    }
    void Set(bool level) override { Drive(level, pci_); }
    void SetFromPci(bool level) { Drive(isa_, level); }

   private:
    void Drive(bool isa, bool pci) {
      isa_ = isa;
      pci_ = pci;
      if (pic_ == nullptr) return;
      pic_->Set(isa || pci);
      ioapic_->Set(isa || pci);
    }

    IrqLine* pic_ = nullptr;
    IrqLine* ioapic_ = nullptr;
    bool isa_ = false, pci_ = false;  // who asserts it
  };

  Pc(const PcConfig& config, PcHooks hooks, Clock& clock, TscSource& tsc);
  Status Wire(const PcConfig& config);
  void SetUpAsBiosLeavesIt();
  std::vector<std::unique_ptr<Lapic>> MakeLapics(const PcConfig& config, TscSource& tsc);
  void PlaceLapic();

  PcHooks hooks_;
  const bool set_up_;
  Clock& clock_;
  TimerQueue timers_;
  PortBus ports_;
  MmioBus mmio_;
  Pic8259Pair pics_;
  std::vector<std::unique_ptr<ApicHost>> apic_hosts_;
  ApicBus apic_bus_;
  LapicPage lapic_page_device_;
  PhysAddr lapic_page_ = Lapic::kBase;
  std::vector<std::unique_ptr<Lapic>> lapics_;  // by ID
  IoApic ioapic_;
  std::array<IsaLine, 16> lines_;
  // Of the 8254 and the RTC, or of the HPET.
  SwitchedLine timer_line_, rtc_line_;
  SharedLine sci_line_;  // the ACPI registers' and the SMBus's
  Pit8254 pit_;
  SystemControlPort port61_;
  Uart16550 serial_;
  Cmos cmos_;
  Hpet hpet_;
  SystemGates gates_;
  Keyboard8042 keyboard_;
  SystemPortA port92_;
  ResetControl reset_control_;
  PciHost pci_;
  Vga vga_;
  BochsDisplay bochs_display_;
  VgaFunction vga_function_;
  AcpiPm acpi_;
  u16 acpi_base_ = AcpiPm::kDefaultBase;
  SmBus smbus_;
  u16 smbus_base_ = SmBus::kDefaultBase;
  FwCfg fw_cfg_;
  TestIrqLines test_lines_;
  TestMemory<4> test_ports_;
  TestMemory<0x10000> test_memory_;
  DebugExit debug_exit_;
  Pvpanic pvpanic_;
  BootFailure boot_failure_;
  NumericErrorLatch numeric_error_;
  PostPort post_;
  PostPort post190_;
  DebugConsole debug_console_;
  ParallelPort printer_;
};

}  // namespace alibi::devices

#endif  // ALIBI_PC_BOARD_H_
