// SPDX-License-Identifier: Apache-2.0
// A PC: the machine with the PC board, RAM, a console, and a way to end.
//
//   0 .. low RAM        up to 3 GB; with a BIOS ROM, 0xc0000 .. 1 MB is as pc/bios_rom.h says
//   0xfec00000, 0xfee00000   I/O APIC, local APIC
//   .. 4 GB             the BIOS ROM, if there is one
//   4 GB ..             the rest of the RAM
#ifndef ALIBI_PC_PC_MACHINE_H_
#define ALIBI_PC_PC_MACHINE_H_

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/types.h"
#include "devices/dma.h"
#include "devices/mailbox.h"
#include "devices/time/clock.h"
#include "devices/time/vmi_timer.h"
#include "machine/machine.h"
#include "machine/time_base.h"
#include "pc/bios_rom.h"
#include "pc/board.h"
#include "pc/boot/firmware.h"
#include "pc/boot/linux.h"
#include "pc/boot/multiboot.h"
#include "pc/boot/vmi_rom.h"
#include "pc/host_events.h"
#include "pc/output_buffer.h"
#include "pc/pc_devices.h"
#include "pc/reset_loop.h"
#include "pc/serial_link.h"
#include "pc/stolen_counter.h"
#include "pc/stolen_time.h"
#include "vcpu/start_state.h"

namespace alibi::vmm {

struct PcMachineConfig {
  MachineConfig machine;
  u64 ram_bytes = u64{128} << 20;
  // A reset or triple fault starts the machine again; false: it ends the run.
  bool restart_on_reset = true;
  // A firmware ROM: the VCPU starts at its reset vector. Empty: Load() must follow.
  std::vector<u8> bios;
  PcDevicesConfig devices;
  // There is a VMI ROM, with these groups of calls in their paravirtual form.
  std::optional<loader::VmiGroups> vmi;
  bool firmware_text = true;              // what firmware writes to its debug port 0x402 is shown
  std::vector<u16> debug_ports;           // more ports that take text, beside 0xe9 and 0x402
  int input_fd = -1;                      // the serial port's input; -1: none
  OutputFile output;                      // the serial port's
  std::optional<SerialLink::Files> com2;  // there is a second serial port, on these files
  // If there is one, input is typed on the keyboard: what that sends for these bytes.
  std::function<std::vector<u8>(std::string_view)> keys;
  // What the display shows, when it has changed, at most kMaxFrames times a second; on the VCPU's
  // thread. Empty: nobody looks.
  static constexpr u64 kMaxFrames = 30;
  std::function<void(devices::TextScreen)> screen;
  std::vector<u8> vga_rom;  // the video BIOS, for firmware to find; may be empty
  // A terminal's: filters input before the guest sees it, on the VCPU's thread (escape keys).
  std::function<std::string(std::string)> input_filter;
};

// A kernel that starts without firmware: a Linux bzImage, or an ELF file or flat image with a
// Multiboot 1 header or a PVH note.
struct Kernel {
  std::span<const u8> image;
  std::string name;  // for messages; a multiboot kernel gets it before its command line
  std::string command_line;
  std::vector<loader::Module> modules;  // Linux: at most one, the initial RAM disk
  loader::LinuxEntryPoint entry = loader::LinuxEntryPoint::kBest;  // of a bzImage
};

// Why Run() came back.
enum class PcEnd : u8 {
  kDebugExit,  // exit_status() is the guest's
  kRequested,  // RequestStop()
  kTripleFault,
  kReset,          // through the keyboard controller or a reset port
  kResetLoop,      // again and again, see ResetLoop
  kNoBootDevice,   // firmware found nothing to start
  kPanicked,       // the guest's kernel said so to the pvpanic device
  kPowerOff,       // ACPI soft off
  kHaltedForever,  // halted, and no interrupt can come
  kOutputFailed,   // the console cannot be written
  kEngineFailed,   // the engine cannot run this guest here: runtime::Engine::failure()
  kHostRefused,    // memory that the guest has a right to: see host_error()
};

class PcMachine final : private IoSpace, private Interrupts, private RunHooks {
 public:
  static constexpr u64 kMaxLowRam = u64{3} << 30;
  static constexpr u64 kHighRamBase = u64{4} << 30;

  static Result<std::unique_ptr<PcMachine>> Create(const PcMachineConfig& config);
  ~PcMachine() override;

  Machine& machine() { return *machine_; }
  devices::Pc& pc() { return *pc_; }
  // What workers of devices hand to the VCPU's thread, and guest memory for devices.
  devices::Mailbox& mailbox() { return mailbox_; }
  devices::Dma& dma() { return dma_; }
  u64 low_ram_bytes() const { return low_ram_bytes_; }
  u64 high_ram_bytes() const { return high_ram_bytes_; }

  // Loads a kernel and what firmware would have left, and sets the VCPU up to enter it
  // (pc_boot.cc). What it refers to must outlive the machine: a reset loads it again.
  Status Load(const Kernel& kernel);

  // For a machine with a BIOS: offers it a Linux bzImage to boot, by its 16-bit entry. Firmware
  // tries it before the drives if PcDevicesConfig::boot_first says loader::kLinuxRomBootPath.
  Status OfferLinux(const Kernel& kernel);

  PcEnd Run();
  u32 exit_status() const { return exit_status_; }
  const std::string& host_error() const { return host_error_; }
  // From any thread or signal handler.
  void RequestStop();
  // The same; what was set is called soon, on the VCPU's thread between two instructions.
  void RequestAttention();
  void set_on_attention(std::function<void()> call) { on_attention_ = std::move(call); }

  // --- For a debugger, on the VCPU's thread while the guest stands still (pc_still.cc) ---
  // The guest's clocks stand still as well, until Thaw().
  void Freeze();
  void Thaw();
  // Waits for the mailbox, for input (whose escapes count), or for RequestStop().
  void WaitStill();

  const TimeBase& time_base() const { return time_base_; }
  // Of the guest's clock, since the machine was made.
  u64 NowNs() { return clock_.NowNs(); }

  // Everything the guest wrote to its serial port leaves the process; true if it could be written.
  bool FlushOutput();

 private:
  PcMachine() = default;
  Status Init(const PcMachineConfig& config);
  // Init()'s steps.
  Status CreateMachine(const PcMachineConfig& config);
  void StartClocks();
  devices::PcConfig BoardConfig(const PcMachineConfig& config);
  devices::PcHooks BoardHooks();
  Status CreateBoard(const PcMachineConfig& config);
  void RegisterTimers();
  Status ConnectHost(const PcMachineConfig& config);

  // What a PC's firmware would have left: ACPI tables, vectors.
  Status LeaveFirmware(loader::GuestMemory& memory);
  loader::AcpiHardware DescribeHardware() const;
  // What a ROM finds in fw_cfg: the memory map, ACPI tables.
  void DescribeToFirmware();
  Status LoadMultiboot(const Kernel& kernel, loader::GuestMemory& memory);
  loader::LinuxOptions LinuxOptionsOf(const Kernel& kernel) const;
  Status LoadLinux(const Kernel& kernel, loader::GuestMemory& memory);
  Status LoadPvh(const Kernel& kernel, loader::GuestMemory& memory);
  Status MapLowMemory(const std::vector<u8>& bios);
  void ReportTimes(const Machine::CounterReport& report) const;
  PcEnd RunUntilReset();
  bool Restart();  // false: the host refused something
  void End(PcEnd end);
  void EndForHost(const Error& error);
  void Output(u8 byte);

  // --- IoSpace ---
  u32 PortRead(u16 port, unsigned size) override;
  void PortWrite(u16 port, unsigned size, u32 value) override;
  u64 MmioRead(PhysAddr address, unsigned size) override;
  void MmioWrite(PhysAddr address, unsigned size, u64 value) override;
  // While clocks are watched (for all VCPUs), every access is a time to look at them.
  bool PeekPort(u16 port, unsigned size, u32* value) override {
    return !machine_->state().tsc_watched && pc_->ports().Peek(port, size, value);
  }
  bool PokePort(u16 port, unsigned size, u32 value) override {
    return !machine_->state().tsc_watched && pc_->ports().Poke(port, size, value);
  }
  bool PeekMmio(PhysAddr address, unsigned size, u64* value) override {
    return !machine_->state().tsc_watched && pc_->mmio().Peek(address, size, value);
  }
  PortLatch Latch(u16 port, unsigned size) override { return pc_->ports().Latch(port, size); }

  // --- Interrupts ---
  bool InterruptPending(u8 cr8) override;
  u8 Acknowledge() override { return pc_->interrupts().Acknowledge(); }
  bool HeldByPriority(u8 cr8) override;
  bool InterruptPendingFor(unsigned vcpu) override;
  void ApicBaseWritten() override;
  bool NumericError() override;
  bool ReadApicMsr(u32 index, u64* value) override;
  bool WriteApicMsr(u32 index, u64 value) override;

  // --- RunHooks ---
  void Turn() override;
  bool Idle() override;
  void VcpuLeaves() override {
    SyncTprToLapic();
    EndTurn();
  }
  void VcpuEnters(unsigned vcpu) override {
    pc_->RunCpu(vcpu);
    BeginTurn(vcpu);
  }
  void VcpuRuns(unsigned vcpu) override { pc_->RunCpuThere(vcpu); }
  void Wake() override { events_->Wake(); }
  void TscWritten() override;
  void TscReading(u64 host_tsc) override { HideStolenTime(host_tsc); }
  void Hypercall(const vcpu::HypercallArguments& arguments, u64* result) override;

  // --- pc_time.cc ---
  static u64 ThreadWorkNs();  // CPU time of the calling thread
  void WatchTsc(u64 end_ns);
  void SetTscWatched(bool watched);
  void EndWatch();
  u64 WatchedNs(u64 host_tsc) const;
  void HideStolenTime(u64 host_tsc);
  void LookAtClocks();
  void MoveTsc(u64 ticks, u64 ns);
  void SetClockStart();
  void CatchUp();

  // --- pc_hypercalls.cc ---
  // What a paravirtual guest has of each VCPU.
  struct VmiCpu {
    std::optional<devices::VmiTimer> timer;
    StolenCounter stolen;
    u64 work_ns = 0;      // CPU time of its turns so far
    bool waited = false;  // it had nothing to do when its turn ended
    vcpu::StartState start;
  };
  void CreateVmiCpus();
  void ForgetHypercalls();
  VmiCpu& RunningVmiCpu() { return *vmi_cpus_[machine_->running()]; }
  u64 WorkTicks(unsigned cpu) const;
  u64 StolenTicks(unsigned cpu, u64 now);
  void BeginStolenTime(unsigned cpu);
  void BeginTurns(u64 thread_work_ns);
  void EndTurn();
  void BeginTurn(unsigned cpu);
  void TellTscMoved();
  void BeginIdle();
  void EndIdle(u64 deadline_ns);
  void FireAlarm(unsigned cpu, bool local);
  void StartCpu(unsigned cpu, u8 vector);
  u64 ReadLocalApic(const vcpu::HypercallArguments& arguments);
  u64 WriteLocalApic(const vcpu::HypercallArguments& arguments);
  u64 CycleFrequency(const vcpu::HypercallArguments& arguments);
  u64 CycleCounter(const vcpu::HypercallArguments& arguments);
  u64 SetAlarm(const vcpu::HypercallArguments& arguments);
  u64 CancelAlarm(const vcpu::HypercallArguments& arguments);
  u64 WallclockTime(const vcpu::HypercallArguments& arguments);
  u64 SetStartState(const vcpu::HypercallArguments& arguments);
  u64 SetStartState64(const vcpu::HypercallArguments& arguments);
  void SetStartWord(vcpu::StartState::Kind kind, const vcpu::HypercallArguments& arguments);

  bool CanWake();
  u64 HostDeadline();
  void TakeInput();
  void GiveAttention();
  // Of all who may have changed it meanwhile.
  void SyncTprToLapic() {
    if (!machine_->beside()) return SyncTprToLapic(machine_->running());
    for (unsigned cpu = 0; cpu < machine_->vcpus(); ++cpu) SyncTprToLapic(cpu);
  }
  void SyncTprToLapic(unsigned vcpu);
  void NoticeHeldInterrupt();

  class GuestDma final : public devices::Dma {
   public:
    explicit GuestDma(PcMachine& machine) : machine_(machine) {}
    bool Read(PhysAddr address, void* out, u64 size) override;
    bool Write(PhysAddr address, const void* data, u64 size) override;

   private:
    PcMachine& machine_;
  };

  devices::Mailbox mailbox_{[this] {
    // One that sleeps looks into the mailbox when it wakes; others are made to.
    if (!events_->Wake()) machine_->RequestTurnFromOutside();
  }};
  GuestDma dma_{*this};
  u64 run_cycles_ = 0, idle_cycles_ = 0, vcpu_us_ = 0;
  devices::MonotonicClock clock_;
  std::vector<devices::HostTsc> tscs_;  // by VCPU
  devices::HostTsc* tsc_ = nullptr;     // the first: they count alike
  std::unique_ptr<devices::Pc> pc_;
  std::unique_ptr<Machine> machine_;
  std::unique_ptr<BiosRom> bios_;
  std::optional<Kernel> kernel_;  // what a reset loads again
  bool restart_on_reset_ = true;
  ResetLoop reset_loop_;
  std::atomic<bool> stop_requested_ = false;  // from outside, as against End()
  bool pam_changed_ = false;
  std::function<std::string(std::string)> input_filter_;
  devices::TimerQueue::TimerId flush_timer_ = 0;
  std::function<std::vector<u8>(std::string_view)> keys_;
  std::function<void(devices::TextScreen)> screen_;
  devices::TimerQueue::TimerId screen_timer_ = 0;
  u64 last_frame_ns_ = 0;
  std::optional<OutputBuffer> output_;  // the console's
  u64 clock_start_ns_ = 0;              // by CLOCK_MONOTONIC
  std::atomic<bool> attention_ = false;
  std::function<void()> on_attention_;
  TimeBase time_base_;
  std::optional<StolenTime> stolen_;
  u64 hidden_ticks_ = 0;  // how far the clocks are behind, since the last reset
  devices::HostTsc::Moment watch_begin_{};
  u64 watch_hidden_ticks_ = 0;  // since then
  devices::TimerQueue::TimerId watch_timer_ = 0;
  std::optional<loader::VmiGroups> vmi_;
  std::vector<std::unique_ptr<VmiCpu>> vmi_cpus_;  // by VCPU; with them there are hypercalls
  u64 turn_begin_ns_ = 0;                          // the running one's turn, by ThreadWorkNs()
  i64 utc_start_ns_ = 0;                           // UTC when the clock shows 0
  bool frozen_ = false;
  u64 frozen_tsc_ = 0;  // the host's, when the guest's clocks were stopped
  u64 low_ram_bytes_ = 0;
  u64 high_ram_bytes_ = 0;
  bool in_mmio_write_ = false;
  PcEnd end_ = PcEnd::kRequested;
  u32 exit_status_ = 0;
  std::string host_error_;
  // Its thread pokes the machine.
  // Last: their threads poke the machine.
  std::unique_ptr<SerialLink> serial_link_;
  std::unique_ptr<HostEvents> events_;
  std::unique_ptr<PcDevices> devices_;  // theirs use the mailbox, which pokes both
};

}  // namespace alibi::vmm

#endif  // ALIBI_PC_PC_MACHINE_H_
