// SPDX-License-Identifier: Apache-2.0
#include "pc/pc_machine.h"

#include <time.h>
#include <x86intrin.h>

#include <algorithm>

#include "base/check.h"

namespace alibi::vmm {
namespace {

// How long the beginning of a line may wait for its end before it is shown.
constexpr u64 kOutputPatienceNs = 10'000'000;
// Typed ahead; what comes from a file waits in the file.
constexpr std::size_t kMaxTyped = 1 << 16;
constexpr u16 kFirmwareTextPort = 0x402;
constexpr u64 kFrameNs = 1'000'000'000 / PcMachineConfig::kMaxFrames;

}  // namespace

Result<std::unique_ptr<PcMachine>> PcMachine::Create(const PcMachineConfig& config) {
  std::unique_ptr<PcMachine> machine(new PcMachine);
  Status status = machine->Init(config);
  if (!status.ok()) return status.error();
  return machine;
}

Status PcMachine::Init(const PcMachineConfig& config) {
  input_filter_ = config.input_filter;
  output_.emplace(config.output, stop_requested_);
  restart_on_reset_ = config.restart_on_reset;
  keys_ = config.keys;
  screen_ = config.screen;
  vmi_ = config.vmi;
  if (Status status = CreateMachine(config); !status.ok()) return status;
  StartClocks();
  if (Status status = CreateBoard(config); !status.ok()) return status;
  RegisterTimers();
  return ConnectHost(config);
}

// The VCPU, RAM and ROM.
Status PcMachine::CreateMachine(const PcMachineConfig& config) {
  low_ram_bytes_ = std::min(config.ram_bytes, kMaxLowRam);
  high_ram_bytes_ = config.ram_bytes - low_ram_bytes_;
  MachineConfig machine_config = config.machine;
  // The arena's page descriptors and its memory file are as large as what could be added.
  const u64 rom_bytes = config.bios.empty() ? 0 : BiosRom::ArenaBytes(config.bios.size());
  machine_config.hypercalls = vmi_.has_value();
  machine_config.arena_bytes = (config.ram_bytes + rom_bytes + kPageMask) & ~kPageMask;
  auto machine = Machine::Create(machine_config, {*this, *this, *this});
  if (!machine.ok()) return machine.error();
  machine_ = std::move(*machine);
  if (high_ram_bytes_ != 0) {
    Status added = machine_->memory().AddSlot(PhysAddr(kHighRamBase), high_ram_bytes_);
    if (!added.ok()) return added;
  }
  return MapLowMemory(config.bios);
}

void PcMachine::StartClocks() {
  tscs_.assign(machine_->vcpus(), devices::HostTsc(devices::HostTsc::MeasureFrequencyHz(),
                                                   static_cast<u64>(machine_->state().tsc_offset)));
  tsc_ = &tscs_[0];
  stolen_.emplace(tsc_->frequency_hz(), ThreadWorkNs,
                  [this] { return machine_->engine().counters().translation_cycles; });
  time_base_.hz = tsc_->frequency_hz();
  time_base_.origin_tsc = -static_cast<u64>(machine_->state().tsc_offset);
}

devices::PcConfig PcMachine::BoardConfig(const PcMachineConfig& config) {
  devices::PcConfig board;
  board.low_ram_bytes = low_ram_bytes_;
  board.high_ram_bytes = high_ram_bytes_;
  if (!config.firmware_text) std::erase(board.debug_ports, kFirmwareTextPort);
  board.debug_ports.insert(board.debug_ports.end(), config.debug_ports.begin(),
                           config.debug_ports.end());
  board.set_up = config.bios.empty();
  timespec utc;
  clock_gettime(CLOCK_REALTIME, &utc);
  constexpr i64 kSecondNs = 1'000'000'000;
  utc_start_ns_ = utc.tv_sec * kSecondNs + utc.tv_nsec - static_cast<i64>(clock_.NowNs());
  board.unix_seconds = utc_start_ns_ / kSecondNs;
  board.into_second_ns = static_cast<u32>(utc_start_ns_ % kSecondNs);
  board.vga_rom = config.vga_rom;
  board.serial_is_screen = config.keys == nullptr;
  for (std::size_t cpu = 1; cpu < tscs_.size(); ++cpu) board.more_cpus.push_back(&tscs_[cpu]);
  return board;
}

devices::PcHooks PcMachine::BoardHooks() {
  devices::PcHooks hooks;
  hooks.serial_output = [this](u8 byte) { Output(byte); };
  hooks.debug_output = [this](u8 byte) { Output(byte); };
  hooks.exit_requested = [this](u32 status) {
    exit_status_ = status;
    End(PcEnd::kDebugExit);
  };
  hooks.panicked = [this] { End(PcEnd::kPanicked); };
  hooks.boot_failed = [this] { End(PcEnd::kNoBootDevice); };
  // The board tells before there is a `pc_`, while it sets itself up.
  hooks.interrupt_raised = [this](unsigned cpu) {
    const bool later = cpu == machine_->running() && in_mmio_write_;
    if (pc_ != nullptr && !later) machine_->InterruptsChangedFor(cpu);
  };
  hooks.nmi = [this](unsigned cpu) { machine_->RaiseNmi(cpu); };
  hooks.ignore_numeric_error = [this] { machine_->IgnoreNumericError(); };
  // From the boot processor's reset vector a PC starts anew.
  hooks.init = [this](unsigned cpu) {
    if (cpu == 0) return End(PcEnd::kTripleFault);
    pc_->lapic(cpu).Reset(/*keep_mode=*/true);
    machine_->InitVcpu(cpu);
  };
  hooks.startup = [this](unsigned cpu, u8 vector) { StartCpu(cpu, vector); };
  hooks.reset = [this] { End(PcEnd::kReset); };
  hooks.power_off = [this] { End(PcEnd::kPowerOff); };
  hooks.countdown = [this](u64 end_ns) { WatchTsc(end_ns); };
  hooks.pam = [this](const devices::PciHost::Pam&) {
    // Code that runs in the range may go on only when its memory is in place.
    pam_changed_ = true;
    machine_->RequestTurn();
  };
  hooks.screen_changed = [this] {
    if (pc_ == nullptr || !screen_) return;
    pc_->timers().Arm(screen_timer_, std::max(clock_.NowNs(), last_frame_ns_ + kFrameNs));
  };
  return hooks;
}

Status PcMachine::CreateBoard(const PcMachineConfig& config) {
  auto pc = devices::Pc::Create(BoardConfig(config), BoardHooks(), clock_, *tsc_);
  if (!pc.ok()) return pc.error();
  pc_ = std::move(*pc);
  if (!config.bios.empty()) DescribeToFirmware();
  pc_->fw_cfg().ConnectDma(dma_);
  pc_->serial().OnDrained([this] { machine_->RequestTurn(); });
  return Ok{};
}

void PcMachine::RegisterTimers() {
  flush_timer_ = pc_->timers().Register([this](u64) {
    if (!FlushOutput()) End(PcEnd::kOutputFailed);
  });
  watch_timer_ = pc_->timers().Register([this](u64) { EndWatch(); });
  screen_timer_ = pc_->timers().Register([this](u64 now) {
    last_frame_ns_ = now;
    screen_(pc_->vga().Capture());
  });
  if (screen_) pc_->timers().Arm(screen_timer_, clock_.NowNs());
  if (vmi_.has_value()) CreateVmiCpus();
  SetClockStart();
  // A device armed a timer from inside the guest: the deadline moves at once.
  pc_->timers().OnEarlierDeadline([this](u64) { machine_->SetDeadline(HostDeadline()); });
}

// What has threads of its own: input, devices with workers, the second serial port.
Status PcMachine::ConnectHost(const PcMachineConfig& config) {
  auto events = HostEvents::Create(config.input_fd, [this] { machine_->RequestTurnFromOutside(); });
  if (!events.ok()) return events.error();
  events_ = std::move(*events);
  if (!config.devices.optimize.notify) events_->SignalAlways();
  auto devices =
      PcDevices::Create(config.devices, *pc_, mailbox_, dma_, [this](std::string_view text) {
        for (const char c : text) Output(static_cast<u8>(c));
      });
  if (!devices.ok()) return devices.error();
  devices_ = std::move(*devices);
  machine_->set_device_counters([this](const Machine::CounterReport& report) {
    devices_->ForEachCounter(report);
    ReportTimes(report);
  });
  if (!config.com2.has_value()) return Ok{};
  auto link = SerialLink::Attach(*pc_, mailbox_, *config.com2, stop_requested_,
                                 [this] { End(PcEnd::kOutputFailed); });
  if (!link.ok()) return link.error();
  serial_link_ = std::move(*link);
  return Ok{};
}

Status PcMachine::MapLowMemory(const std::vector<u8>& bios) {
  mmu::GuestMemory& memory = machine_->memory();
  constexpr u64 kVgaWindow = devices::Vga::kWindow.value;
  Status status = memory.AddSlot(PhysAddr(0), std::min(low_ram_bytes_, kVgaWindow));
  if (!status.ok()) return status;
  if (bios.empty()) {
    constexpr u64 kAbove = kVgaWindow + devices::Vga::kWindowBytes;
    return low_ram_bytes_ <= kAbove ? Status(Ok{})
                                    : memory.AddSlot(PhysAddr(kAbove), low_ram_bytes_ - kAbove);
  }
  if (low_ram_bytes_ > BiosRom::kShadowEnd) {
    status = memory.AddSlot(PhysAddr(BiosRom::kShadowEnd), low_ram_bytes_ - BiosRom::kShadowEnd);
    if (!status.ok()) return status;
  }
  auto rom = BiosRom::Map(bios, memory);
  if (!rom.ok()) return rom.error();
  bios_ = std::move(*rom);
  return Ok{};
}

PcMachine::~PcMachine() {
  if (output_.has_value()) FlushOutput();
  // Their threads wake events_'s.
  serial_link_.reset();
  devices_.reset();
  events_.reset();
}

void PcMachine::ReportTimes(const Machine::CounterReport& report) const {
  report("run_cycles", "TSC cycles in the run loop, sleeps included", run_cycles_);
  report("idle_cycles", "TSC cycles of these: sleeps of a halted VCPU", idle_cycles_);
  report("vcpu_us", "microseconds of CPU time of the thread that ran the VCPU", vcpu_us_);
}

PcEnd PcMachine::RunUntilReset() {
  const u64 begin = __rdtsc(), work = ThreadWorkNs();
  BeginTurns(work);
  const Stop stop = machine_->Run();
  run_cycles_ += __rdtsc() - begin;
  vcpu_us_ += (ThreadWorkNs() - work) / 1000;
  if (!FlushOutput()) end_ = PcEnd::kOutputFailed;
  switch (stop) {
    case Stop::kRequested:
      return std::exchange(end_, PcEnd::kRequested);
    case Stop::kHalted:
      return PcEnd::kHaltedForever;
    case Stop::kShutdown:
      return PcEnd::kTripleFault;
    case Stop::kFailed:
      return PcEnd::kEngineFailed;
  }
  return PcEnd::kTripleFault;
}

void PcMachine::RequestStop() {
  stop_requested_ = true;
  machine_->RequestStop();
  events_->Wake();
}

void PcMachine::RequestAttention() {
  attention_.store(true, std::memory_order_release);
  machine_->RequestTurnFromOutside();
  events_->Wake();
}

void PcMachine::GiveAttention() {
  if (!attention_.load(std::memory_order_acquire)) return;
  attention_.store(false, std::memory_order_relaxed);
  if (on_attention_) on_attention_();
}

void PcMachine::End(PcEnd end) {
  end_ = end;
  machine_->RequestStop();
  events_->Wake();
}

void PcMachine::EndForHost(const Error& error) {
  host_error_ = error.message;
  End(PcEnd::kHostRefused);
}

void PcMachine::Output(u8 byte) {
  if (output_->Put(byte)) {
    if (!FlushOutput()) End(PcEnd::kOutputFailed);
  } else if (!output_->empty() && !pc_->timers().IsArmed(flush_timer_)) {
    pc_->timers().Arm(flush_timer_, clock_.NowNs() + kOutputPatienceNs);
  }
}

bool PcMachine::FlushOutput() {
  const bool console = output_->Flush();
  return (serial_link_ == nullptr || serial_link_->Flush()) && console;
}

// The low half of the TPR is the local APIC's alone, the high half is CR8.
void PcMachine::SyncTprToLapic(unsigned vcpu) {
  const u8 cr8 = static_cast<u8>(machine_->state(vcpu).cr8);
  devices::Lapic& lapic = pc_->lapic(vcpu);
  if (lapic.tpr() >> 4 != cr8) lapic.SetTpr(static_cast<u8>(cr8 << 4));
}

// The local APIC says nothing of an interrupt that CR8 holds back, but lowering CR8 must then be
// seen.
void PcMachine::NoticeHeldInterrupt() {
  if (*pc_->interrupts().TprThreshold() != 0 && !machine_->state().irq_pending) {
    machine_->InterruptsChanged();
  }
}

u32 PcMachine::PortRead(u16 port, unsigned size) {
  LookAtClocks();
  SyncTprToLapic();
  const u32 value = pc_->ports().Read(port, size);
  NoticeHeldInterrupt();
  return value;
}

void PcMachine::PortWrite(u16 port, unsigned size, u32 value) {
  LookAtClocks();
  SyncTprToLapic();
  pc_->ports().Write(port, size, value);
  NoticeHeldInterrupt();
}

u64 PcMachine::MmioRead(PhysAddr address, unsigned size) {
  LookAtClocks();
  SyncTprToLapic();
  return pc_->mmio().Read(address, size);
}

void PcMachine::MmioWrite(PhysAddr address, unsigned size, u64 value) {
  LookAtClocks();
  SyncTprToLapic();
  // A store to the TPR must reach CR8 before anybody compares the two.
  in_mmio_write_ = true;
  pc_->mmio().Write(address, size, value);
  in_mmio_write_ = false;
  machine_->state().cr8 = pc_->lapic().tpr() >> 4;
  machine_->InterruptsChanged();
}

bool PcMachine::InterruptPending(u8) {
  SyncTprToLapic();
  return pc_->interrupts().InterruptPending(pc_->lapic().tpr());
}

bool PcMachine::InterruptPendingFor(unsigned vcpu) {
  SyncTprToLapic(vcpu);
  devices::Lapic& lapic = pc_->lapic(vcpu);
  return lapic.InterruptPending(lapic.tpr());
}

bool PcMachine::HeldByPriority(u8 cr8) {
  const u8 waiting = *pc_->interrupts().TprThreshold();
  return waiting != 0 && waiting <= cr8;
}

void PcMachine::ApicBaseWritten() {
  SyncTprToLapic();
  pc_->SetApicBase(machine_->state().apic_base);
  machine_->state().cr8 = pc_->lapic().tpr() >> 4;  // switching off resets it
}

bool PcMachine::NumericError() {
  SyncTprToLapic();
  pc_->NumericError();
  return true;
}

void PcMachine::TscWritten() {
  tscs_[machine_->running()].SetOffset(static_cast<u64>(machine_->state().tsc_offset));
  TellTscMoved();
}

bool PcMachine::ReadApicMsr(u32 index, u64* value) {
  LookAtClocks();
  SyncTprToLapic();
  return pc_->lapic().ReadMsr(index, value);
}

bool PcMachine::WriteApicMsr(u32 index, u64 value) {
  LookAtClocks();
  SyncTprToLapic();
  in_mmio_write_ = true;
  const bool ok = pc_->lapic().WriteMsr(index, value);
  in_mmio_write_ = false;
  machine_->state().cr8 = pc_->lapic().tpr() >> 4;
  return ok;
}

// The machine's clock begins later than the host's.
u64 PcMachine::HostDeadline() {
  const u64 next = pc_->timers().NextDeadlineNs();
  if (next == devices::TimerQueue::kNever) return Machine::kNoDeadline;
  return next + clock_start_ns_;
}

bool PcMachine::GuestDma::Read(PhysAddr address, void* out, u64 size) {
  const mmu::GuestMemory& memory = machine_.machine_->memory();
  if (!memory.IsBacked(address, size)) return false;
  memory.ReadPhys(address, out, size);
  return true;
}

bool PcMachine::GuestDma::Write(PhysAddr address, const void* data, u64 size) {
  mmu::GuestMemory& memory = machine_.machine_->memory();
  if (size == 0) return true;
  if (!memory.IsBacked(address, size)) return false;
  for (u64 at = address.value & ~kPageMask; at < address.value + size; at += kPageSize) {
    if (memory.Info(PhysAddr(at))->flags & mmu::kRomPage) return false;
  }
  memory.WritePhys(address, data, size);
  return true;
}

void PcMachine::TakeInput() {
  const std::size_t waiting = pc_->serial().backlog();
  // A terminal's keys are looked at even if the guest does not take them: some are ours.
  if (!input_filter_ && waiting != 0) return;
  std::string input = events_->TakeInput();
  if (input_filter_ && !input.empty()) input = input_filter_(std::move(input));
  if (keys_) {
    pc_->keyboard().Type(keys_(input));
  } else if (!input.empty() && devices_->console() != nullptr &&
             // A user who sees only COM1 types to it: the driver may be a module, not loaded yet,
             // and nobody may have opened its terminal.
             (devices_->console()->in_use() || !input_filter_)) {
    devices_->console()->Receive(input);
  } else if (!input.empty() && waiting < kMaxTyped) {
    pc_->SerialInput(input);
  }
}

void PcMachine::Turn() {
  if (mailbox_.has_work()) {
    const Crossing crossing =
        machine_->Cross(&Counters::notice_crossings, &Counters::notice_cycles);
    mailbox_.Drain();
  }
  TakeInput();
  GiveAttention();
  devices_->Crossed();
  LookAtClocks();
  if (std::exchange(pam_changed_, false) && bios_ != nullptr) {
    const Status applied = bios_->Apply(pc_->pci().pam());
    if (!applied.ok()) EndForHost(applied.error());
  }
  const u64 now = clock_.NowNs();
  SyncTprToLapic();
  if (pc_->timers().NextDeadlineNs() <= now) {
    const Crossing crossing = machine_->Cross(&Counters::timer_crossings, &Counters::timer_cycles);
    pc_->timers().RunExpired(now);
  }
  machine_->SetDeadline(HostDeadline());
}

// With IF clear only an NMI wakes a CPU, and one that waits for a startup IPI only another CPU.
bool PcMachine::CanWake() {
  for (unsigned cpu = 0; cpu < machine_->vcpus(); ++cpu) {
    const vcpu::VcpuState& state = machine_->state(cpu);
    if (state.waits_for_startup) continue;
    if (state.if_flag != 0 || pc_->lapic(cpu).Lint0IsNmi() || pc_->ioapic().SendsNmis()) {
      return true;
    }
  }
  return false;
}

bool PcMachine::Idle() {
  if (!CanWake()) return false;
  if (!FlushOutput()) {
    End(PcEnd::kOutputFailed);
    return true;
  }
  const u64 begin = __rdtsc();
  const u64 deadline_ns = HostDeadline();
  BeginIdle();
  machine_->WithoutMachine([&] { events_->Sleep(deadline_ns); });
  EndIdle(deadline_ns);
  idle_cycles_ += __rdtsc() - begin;
  if (machine_->state().tsc_watched) stolen_->Begin(__rdtsc());
  return true;
}

}  // namespace alibi::vmm
