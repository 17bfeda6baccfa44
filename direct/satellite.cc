// SPDX-License-Identifier: Apache-2.0
#include "direct/satellite.h"

#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "base/memory_file.h"
#include "direct/cpu_time.h"
#include "direct/descriptor_message.h"
#include "direct/retried.h"
#include "direct/satellite_start.h"
#include "direct/stub_layout.h"
#include "direct/stub_symbols.h"

namespace alibi::direct {
namespace {

// The stub's place is drawn from these: far from where systems put programs, libraries and stacks.
constexpr u64 kFirstBase = u64{0x20} << 40, kLastBase = u64{0x50} << 40;
// Longer than any host takes to start a process.
constexpr int kPatienceSeconds = 10;
// Who runs on for so long, although interrupted, is of no use any more; how often that is looked
// at.
constexpr u64 kPatienceNs = 4'000'000'000;
constexpr int kLookMs = 5000;

constexpr u32 kSsAutodisarm = 1u << 31;
constexpr u64 kResumeFlag = u64{1} << 16;

Error HostError(const char* what) {
  return Error{std::string("direct execution: ") + what + ": " + std::strerror(errno)};
}

bool Draw(u64* base, CallKey* key) {
  u64 random[2];
  if (getrandom(random, sizeof(random), 0) != sizeof(random)) return false;
  *base = (kFirstBase + random[0] % (kLastBase - kFirstBase)) & ~u64{STUB_END - 1};
  *key = {{static_cast<u32>(random[1]), static_cast<u32>(random[1] >> 32)}};
  return true;
}

}  // namespace

LinearAddr Satellite::stub_end() const { return LinearAddr(base_ + STUB_END); }

int Satellite::StopSignal() { return SIGUSR1; }

struct Satellite::Preparation {
  FileDescriptor pages{-1}, ours{-1}, theirs{-1};
  std::vector<sock_filter> listener_filter, user_filter;
  SatelliteStart start{};
  int debugger_job = -1;

  static void Run(const void* argument, std::span<const pid_t> before) {
    const auto& prepared = *static_cast<const Preparation*>(argument);
    const int job = prepared.debugger_job;
    BecomeSatellite(prepared.start, job >= 0 ? before[static_cast<unsigned>(job)] : 0);
  }
};

Satellite::Satellite() : preparation_(std::make_unique<Preparation>()) {}

Result<std::unique_ptr<Satellite>> Satellite::Prepare(const SatelliteSetup& setup) {
  std::unique_ptr<Satellite> satellite(new Satellite);
  if (Status status = satellite->Init(setup); !status.ok()) return status.error();
  return satellite;
}

Status Satellite::Init(const SatelliteSetup& setup) {
  Preparation& prepared = *preparation_;
  prepared.pages.Reset(CreateMemoryFile("alibi-satellite", STUB_END));
  const int pages_fd = prepared.pages.get();
  if (pages_fd < 0) return HostError("no memory file");
  void* pages = mmap(nullptr, STUB_END, PROT_READ | PROT_WRITE, MAP_SHARED, pages_fd, 0);
  if (pages == MAP_FAILED) return HostError("cannot map a memory file");
  pages_ = static_cast<u8*>(pages);
  std::memcpy(pages_ + STUB_CODE, alibi_stub, StubOffset(alibi_stub_end));
  if (!Draw(&base_, &key_)) return HostError("no random numbers");
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) {
    return HostError("no pair of sockets");
  }
  prepared.ours.Reset(sockets[0]);
  prepared.theirs.Reset(sockets[1]);

  const StubCalls calls = {
      base_ + StubOffset(alibi_stub_after_stop), base_ + StubOffset(alibi_stub_after_call),
      base_ + StubOffset(alibi_stub_after_return), base_ + StubOffset(alibi_stub_after_exit)};
  std::vector<sock_filter>& listener = prepared.listener_filter = ListenerFilter(calls);
  std::vector<sock_filter>& user = prepared.user_filter = UserFilter(calls, key_);
  prepared.start = {base_,
                    setup.memory_fd,
                    pages_fd,
                    setup.watch_read.get(),
                    prepared.theirs.get(),
                    StopSignal(),
                    setup.trapping_cpuid,
                    setup.trapping_tsc,
                    {static_cast<u16>(listener.size()), listener.data()},
                    {static_cast<u16>(user.size()), user.data()}};
  prepared.debugger_job = setup.debugger_job;
  return Ok{};
}

ForkServer::Job Satellite::job() const {
  return {&Preparation::Run,
          preparation_.get(),
          {preparation_->pages.get(), preparation_->theirs.get()}};
}

Status Satellite::Start(ForkServer& server, unsigned number) {
  const std::unique_ptr<Preparation> prepared = std::move(preparation_);
  prepared->theirs.Reset(-1);
  ForkServer::Process process;
  if (!server.Fork(number, &process)) return HostError("cannot fork");
  pid_ = process.pid;
  process_.Reset(process.pidfd.Release());
  return Receive(prepared->ours.get());
}

Status Satellite::Receive(int socket) {
  // Should the child fail, nobody else holds its end.
  pollfd ready{socket, POLLIN, 0};
  const int count = Retried([&] { return poll(&ready, 1, kPatienceSeconds * 1000); });
  char byte;
  int listener = -1;
  if (count != 1 || !ReceiveDescriptor(socket, &byte, 1, &listener) || listener < 0) {
    return Error{"direct execution: the kernel refuses a process its filter (seccomp)"};
  }
  listener_.Reset(listener);
  running_ = true;
  if (!Listen() || !FindFrame()) return Error{"direct execution: a process did not begin"};
  frame_->gpr[kFrameRip] = 0;  // the stub's
  // Nothing of the VMM's memory stays.
  OrderUnmapAll();
  if (Go(false) != Stop::kSignal) {
    return Error{"direct execution: this kernel does not let a process give up its own memory"};
  }
  return Ok{};
}

Satellite::~Satellite() {
  Kill();
  if (pages_ != nullptr) munmap(pages_, STUB_END);
}

void Satellite::Kill() {
  listener_.Reset(-1);
  frame_ = nullptr;
  if (pid_ < 0) return;
  syscall(SYS_pidfd_send_signal, process_.get(), SIGKILL, nullptr, 0);
  Retried([&] { return waitpid(pid_, nullptr, __WALL); });
  pid_ = -1;
}

void Satellite::Interrupt() {
  if (!running_.load(std::memory_order_relaxed)) return;
  interrupted_.store(true, std::memory_order_relaxed);
  syscall(SYS_pidfd_send_signal, process_.get(), StopSignal(), nullptr, 0);
}

// Waits until the kernel holds it in its stop call. False: that will not be.
bool Satellite::Listen() {
  // By its own time: a host that is busy, or paused itself, gives it none to stop in.
  u64 since = 0;
  bool again = false;
  for (;;) {
    // Not the ioctl alone: it is restarted behind a signal, and not every kernel tells it of a
    // death.
    pollfd ready{listener_.get(), POLLIN, 0};
    const int count = poll(&ready, 1, kLookMs);
    if (count == 1 && (ready.revents & POLLIN) != 0) {
      seccomp_notif stop{};
      if (ioctl(listener_.get(), SECCOMP_IOCTL_NOTIF_RECV, &stop) == 0) {
        held_ = stop.id;
        running_.store(false, std::memory_order_relaxed);
        interrupted_.store(false, std::memory_order_relaxed);
        return true;
      }
      if (errno != EINTR && errno != ENOENT) return false;
    }
    if (count == 1 && (ready.revents & (POLLHUP | POLLNVAL)) != 0) return false;
    if (count < 0 && errno != EINTR) return false;
    if (!interrupted_.load(std::memory_order_relaxed)) continue;
    const u64 now = CpuTimeNs(pid_);
    if (since == 0) {
      since = now;
    } else if (now - since > kPatienceNs) {
      if (again) return false;  // it blocks the signal
      // The host may have taken a pause of its own for the process's time.
      again = true;
      since = now;
      Interrupt();
    }
  }
}

// The kernel's frames always lie in the same place.
bool Satellite::FindFrame() {
  const u64 place = Word(NOTES_FRAME);
  if (frame_place_ == 0) {
    const u64 offset = place - base_;
    if (offset < STUB_STACK || offset > STUB_END - sizeof(SignalFrame) || offset % 8 != 0) {
      return false;
    }
    frame_place_ = place;
    frame_ = reinterpret_cast<SignalFrame*>(pages_ + offset);
    const u64 image = frame_->fpstate - base_;
    if (image % 64 != 0 || image < offset + sizeof(SignalFrame) || image >= STUB_END) return false;
    xsave_ = pages_ + image;
    u32 bytes;
    std::memcpy(&bytes, xsave_ + kFrameSoftwareBytes + 16, sizeof(bytes));
    xsave_bytes_ = bytes;
    return bytes >= kFrameXsaveExtended && bytes <= STUB_END - image;
  }
  // User code in the stub has found out where it is: that is no accident.
  const u64 rip = frame_->gpr[kFrameRip];
  return place == frame_place_ && frame_->fpstate == base_ + static_cast<u64>(xsave_ - pages_) &&
         (rip < base_ || rip >= base_ + STUB_END);
}

void Satellite::Order(u64 number, u64 a0, u64 a1, u64 a2, u64 a3, u64 a4, u64 a5) {
  u64* const call = &Word(ORDERS_CALLS + u64{orders_++} * ORDERS_CALL_BYTES);
  call[0] = number;
  call[1] = a0;
  call[2] = a1;
  call[3] = a2;
  call[4] = a3;
  call[5] = a4;
  call[6] = a5;
}

void Satellite::OrderMap(LinearAddr address, u64 bytes, u64 arena_offset, bool write,
                         bool execute) {
  const u64 rights = PROT_READ | (write ? PROT_WRITE : 0) | (execute ? PROT_EXEC : 0);
  Order(SYS_mmap, address.value, bytes, rights, MAP_SHARED | MAP_FIXED | MAP_POPULATE,
        STUB_MEMORY_FD, arena_offset);
}

void Satellite::OrderUnmap(LinearAddr address, u64 bytes) {
  Order(SYS_munmap, address.value, bytes);
}

void Satellite::OrderUnmapAll() {
  orders_ = 0;  // nothing of what they map would stay
  Order(SYS_munmap, 0, base_);
  Order(SYS_munmap, base_ + STUB_END, kUserEnd - stub_end());
}

u64 Satellite::fs_base() const { return Word(NOTES_FS_BASE); }
u64 Satellite::gs_base() const { return Word(NOTES_GS_BASE); }
u16 Satellite::selector(unsigned which) const {
  return static_cast<u16>(Word(NOTES_SELECTORS) >> (16 * which));
}

void Satellite::SetBases(u64 fs, u64 gs) {
  Word(ORDERS_FS_BASE) = fs;
  Word(ORDERS_GS_BASE) = gs;
}

void Satellite::SetSelectors(u16 es, u16 ds, u16 fs, u16 gs) {
  const u64 wanted = es | u64{ds} << 16 | u64{fs} << 32 | u64{gs} << 48;
  Word(ORDERS_SELECTORS) = wanted;
  Word(ORDERS_LOAD_SELECTORS) = wanted != Word(NOTES_SELECTORS);
}

void Satellite::SetIdFlag(bool id) { Word(ORDERS_FLAGS) = id ? 0x200202 : 0x202; }

void Satellite::SetAsStopped() {
  constexpr u64 kId = u64{1} << 21;
  SetIdFlag((frame_->eflags & kId) != 0);
  SetBases(fs_base(), gs_base());
  SetSelectors(selector(0), selector(1), selector(2), selector(3));
}

bool Satellite::StopAgain() {
  if (Listen()) return true;
  Kill();
  return false;
}

void Satellite::OrderCpus(const cpu_set_t& cpus) {
  cpus_ = cpus;
  std::memcpy(pages_ + ORDERS_CPU_MASK, &cpus, sizeof(cpus));
  Order(SYS_sched_setaffinity, 0, sizeof(cpus), base_ + ORDERS_CPU_MASK);
}

std::optional<Satellite::Stop> Satellite::LaunchHere(bool run) {
  if (const int cpu = sched_getcpu(); cpu >= 0 && cpu != cpu_ && cpu < CPU_SETSIZE) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    OrderCpus(one);
    cpu_ = cpu;
  }
  return Launch(run);
}

// It goes there by a call of its own, for which it needs the CPU on which it is: the caller, who
// may not want to leave it, waits.
std::optional<Satellite::Stop> Satellite::LaunchOn(const cpu_set_t& cpus) {
  if (!CPU_EQUAL(&cpus, &cpus_)) {
    OrderCpus(cpus);
    if (const auto lost = Launch(/*run=*/false)) return lost;
    if (const Stop stop = Land(); stop != Stop::kSignal) return stop;
  }
  cpu_ = -1;
  return Launch(/*run=*/true);
}

std::optional<Satellite::Stop> Satellite::Launch(bool run) {
  if (frame_ == nullptr) return Stop::kLost;
  // Faults set it; with it a breakpoint at the next instruction would not stop.
  frame_->eflags &= ~kResumeFlag;
  frame_->stack_base = base_ + STUB_STACK;
  frame_->stack_size = STUB_END - STUB_STACK;
  frame_->stack_flags = kSsAutodisarm;
  Word(NOTES_FRAME) = frame_place_;
  Word(NOTES_UNDONE) = 0;
  Word(NOTES_KEY) = u64{key_.words[0]} << 32;
  Word(NOTES_KEY + 8) = u64{key_.words[1]} << 32;
  Word(ORDERS_COUNT) = orders_;
  Word(ORDERS_RUN) = run;
  orders_ = 0;
  running_.store(true, std::memory_order_relaxed);
  seccomp_notif_resp answer{};
  answer.id = held_;
  if (Retried([&] { return ioctl(listener_.get(), SECCOMP_IOCTL_NOTIF_SEND, &answer); }) == 0) {
    return std::nullopt;
  }
  Fail();
  return Stop::kLost;
}

bool Satellite::HasStopped() const {
  pollfd stopped{listener_.get(), POLLIN, 0};
  return poll(&stopped, 1, 0) == 1 && IsStop(stopped.revents);
}

Satellite::Stop Satellite::Land() {
  if (frame_ == nullptr) return Stop::kLost;
  if (!Listen() || !FindFrame()) {
    Fail();
    return Stop::kLost;
  }
  if (Word(NOTES_UNDONE) == 0) return Stop::kSignal;
  // Where it was to be launched stood last among the orders.
  cpu_ = -1;
  CPU_ZERO(&cpus_);
  return Stop::kOrders;
}

void Satellite::Fail() {
  running_.store(false, std::memory_order_relaxed);
  Kill();
}

}  // namespace alibi::direct
