// SPDX-License-Identifier: Apache-2.0
#include "inspect/gdb/stub.h"

#include <fmt/format.h>

#include <cstdio>

#include "inspect/stats.h"

namespace alibi::vmm::gdb {
namespace {

// As Linux numbers them; gdb knows what they mean.
constexpr unsigned kSigInt = 2, kSigTrap = 5, kSigSegv = 11;

}  // namespace

Result<std::unique_ptr<Stub>> Stub::Create(const StubOptions& options, PcMachine& machine) {
  std::unique_ptr<Stub> stub(new Stub(options, machine));
  auto server = Server::Listen(options.address, [&machine] { machine.mailbox().Post([] {}); });
  if (!server.ok()) return server.error();
  stub->server_ = std::move(*server);
  if (options.wait) {
    stub->still_ = true;
    machine.Freeze();
  }
  machine.machine().set_debugger(stub.get());
  return stub;
}

Stub::~Stub() {
  machine_.machine().set_debugger(nullptr);
  server_.reset();
}

void Stub::Ended(int status) {
  if (session_ != nullptr) server_->Send(client_, fmt::format("W{:02x}", status & 0xff));
  session_.reset();
}

void Stub::Turn() {
  for (;;) {
    for (const Server::Event& event : server_->TakeEvents()) Obey(event);
    if (!still_ || machine_.machine().stop_requested()) return;
    machine_.WaitStill();
  }
}

void Stub::Obey(const Server::Event& event) {
  switch (event.kind) {
    case Server::Event::Kind::kConnected: {
      client_ = event.client;
      const Architecture now =
          state().LongModeActive() ? Architecture::kAmd64 : Architecture::kI386;
      const bool avx = (state().xcr0 & 4) != 0;
      session_ = std::make_unique<Session>(*this, options_.architecture.value_or(now), avx);
      // gdb expects a target that stands still.
      engine().StepNext(false);
      still_ = true;
      machine_.Freeze();
      break;
    }
    case Server::Event::Kind::kPacket: {
      if (session_ == nullptr) break;
      const Reply reply = session_->Handle(event.payload);
      const bool last =
          reply.action.kind == Action::Kind::kDetach || reply.action.kind == Action::Kind::kKill;
      if (reply.text && last) {
        server_->SendLast(client_, *reply.text);
      } else if (reply.text) {
        server_->Send(client_, *reply.text);
      } else if (last) {
        server_->Close(client_);
      }
      Do(reply.action);
      break;
    }
    case Server::Event::Kind::kInterrupt:
      if (session_ == nullptr || still_) break;
      engine().StepNext(false);
      range_begin_ = range_end_ = {};
      Stop(kSigInt, {});
      break;
    case Server::Event::Kind::kLost:
      if (session_ != nullptr) {
        session_.reset();
        // Nobody would ever let it go on; but one that waited for a debugger still does.
        if (began_) Leave();
        fmt::print(stderr, "alibi: gdb is gone without a word; the guest {}\n",
                   still_ ? "waits for the next one" : "goes on");
      }
      break;
  }
}

void Stub::Do(const Action& action) {
  switch (action.kind) {
    case Action::Kind::kStay:
      break;
    case Action::Kind::kContinue:
      Go();
      break;
    case Action::Kind::kStep:
      range_begin_ = action.range_begin;
      range_end_ = action.range_end;
      engine().StepNext(true);
      Go();
      break;
    case Action::Kind::kDetach:
      session_.reset();
      Leave();
      break;
    case Action::Kind::kKill:
      session_.reset();
      killed_ = true;
      Leave();
      machine_.RequestStop();
      break;
  }
}

void Stub::Go() {
  began_ = true;
  still_ = false;
  machine_.Thaw();
}

void Stub::Leave() {
  engine().StepNext(false);
  range_begin_ = range_end_ = {};
  Go();
}

void Stub::Stop(unsigned signal, const runtime::DebugStop& stop) {
  still_ = true;
  machine_.Freeze();
  server_->Send(client_, session_->StopReply(signal, stop));
}

bool Stub::Met(DebugEvent event) {
  if (session_ == nullptr) return false;
  const runtime::DebugStop& stop = engine().debug_points().stop();
  switch (event) {
    case DebugEvent::kShutdown:
      Stop(kSigSegv, {});
      return true;
    case DebugEvent::kHalted:
      Stop(kSigTrap, {});
      return true;
    case DebugEvent::kPoint:
      break;
  }
  const bool step =
      stop.cause == runtime::DebugCause::kStep || stop.cause == runtime::DebugCause::kNone;
  const LinearAddr pc = state().LinearPc();
  if (step && pc - range_begin_ < range_end_ - range_begin_ && !server_->HasEvents() &&
      !engine().debug_points().IsBreakpoint(pc)) {
    engine().StepNext(true);
    return true;
  }
  range_begin_ = range_end_ = {};
  Stop(kSigTrap, stop);
  return true;
}

// --- Target ---

unsigned Stub::ReadMemory(LinearAddr address, u8* out, unsigned size) {
  return machine_.machine().mmu().DebugRead(address, out, size);
}

bool Stub::WriteMemory(LinearAddr address, const u8* data, unsigned size) {
  const mmu::Mmu& mmu = machine_.machine().mmu();
  mmu::GuestMemory& memory = machine_.machine().memory();
  // All of it or nothing.
  for (const bool write : {false, true}) {
    for (unsigned done = 0; done < size;) {
      const LinearAddr at = address + done;
      const unsigned piece =
          static_cast<unsigned>(std::min<u64>(size - done, kPageSize - at.PageOffset()));
      PhysAddr physical;
      if (!mmu.DebugTranslate(at, &physical)) return false;
      const mmu::PageInfo* page = memory.Info(physical);
      if (page == nullptr || (page->flags & mmu::kRomPage)) return false;
      if (write) memory.WritePhys(physical, data + done, piece);
      done += piece;
    }
  }
  return true;
}

bool Stub::SetBreakpoint(LinearAddr pc, bool set) { return engine().SetBreakpoint(pc, set); }

bool Stub::SetWatch(const runtime::Watch& watch, bool set) { return engine().SetWatch(watch, set); }

std::string Stub::Monitor(const std::string& command) {
  Cursor words(command);
  const std::string_view verb = words.Until(' ');
  if (verb == "stats") return StatsText(machine_.machine(), machine_.NowNs());
  if (verb == "translate") {
    words.Skip("0x");
    u64 address;
    PhysAddr physical;
    if (!words.Hex(&address)) return "translate ADDRESS (hexadecimal)\n";
    return machine_.machine().mmu().DebugTranslate(LinearAddr(address), &physical)
               ? fmt::format("physical {:#x}\n", physical.value)
               : std::string("not mapped\n");
  }
  return "monitor stats              every counter of the run\n"
         "monitor translate ADDRESS  the physical address behind a linear one\n";
}

}  // namespace alibi::vmm::gdb
