// In-TC sequences for privileged and virtualized instructions that are simple and frequent.
// Each preserves what the architecture preserves; what it cannot do it leaves to the simulator.
#include "translator/emitter_impl.h"

namespace alibi::translator {

using vcpu::VcpuState;

bool Emitter::Impl::EmitInTc(const Instr& instr) {
  const bool kernel = !request_->mode.user;
  const bool last = index_ + 1 == tu_->count;
  switch (instr.op) {
    case Op::kCli:
      if (!kernel) return false;
      a().mov(State(offsetof(VcpuState, if_flag), 1), 0);
      return true;
    case Op::kSti: {
      // With an interrupt waiting the simulator sets up the shadow; so it does at the TU's end,
      // where an asynchronous stop could otherwise fall between STI and its shadowed successor.
      if (!kernel || last) return false;
      SiteDesc* site = NewSite(instr);
      a().mov(x86::r10d, State(offsetof(VcpuState, irq_pending), 4));
      a().xchg(x86::r10, x86::rcx);
      hot_.Raw({0xe3, 0});  // jrcxz: nothing waits
      const u32 from = hot_.Offset();
      a().xchg(x86::r10, x86::rcx);
      CallStub(stubs_.simulate, site);
      hot_.Raw({0xeb, 0});
      const u32 skip = hot_.Offset();
      const_cast<u8*>(hot_.Bytes())[from - 1] = static_cast<u8>(hot_.Offset() - from);
      a().mov(x86::rcx, x86::r10);
      a().mov(State(offsetof(VcpuState, if_flag), 1), 1);
      const_cast<u8*>(hot_.Bytes())[skip - 1] = static_cast<u8>(hot_.Offset() - skip);
      return true;
    }
    case Op::kCld:
      a().mov(State(offsetof(VcpuState, df_flag), 1), 0);
      return true;
    case Op::kStd:
      a().mov(State(offsetof(VcpuState, df_flag), 1), 1);
      return true;
    case Op::kRdtsc:
      if (!kernel) return false;  // CR4.TSD
      a().rdtsc();
      a().rorx(x86::rdx, x86::rdx, 32);
      a().lea(x86::rax, x86::ptr(x86::rax, x86::rdx));
      a().mov(x86::r10, State(offsetof(VcpuState, tsc_offset)));
      a().lea(x86::rax, x86::ptr(x86::rax, x86::r10));
      a().rorx(x86::rdx, x86::rax, 32);
      a().mov(x86::edx, x86::edx);
      a().mov(x86::eax, x86::eax);
      return true;
    default:
      return false;
  }
}

}  // namespace alibi::translator
