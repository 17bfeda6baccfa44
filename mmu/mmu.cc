// SPDX-License-Identifier: Apache-2.0
#include "mmu/mmu.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "base/raw_copy.h"
#include "base/simd_guard.h"

namespace alibi::mmu {
namespace {

using vcpu::GuestFault;
using vcpu::Privilege;

constexpr u64 kNodeBytes = u64{ReverseMap::kMaxNodes} * sizeof(ReverseMap::Node);
constexpr u64 kSideBytes = kNodeBytes + OutOfSyncTables::kCopyBytes;
// A view that grew beyond this gives its memory back when it is recycled.
constexpr u32 kChunksKeptOnRecycle = 256;

constexpr u64 PdpteRoot(u64 cr3) { return cr3 & 0xffffffe0; }

bool InOnePage(LinearAddr address, unsigned size) {
  return address.PageOffset() + size <= kPageSize;
}

}  // namespace

Mmu::Mmu(const MmuOptions& options)
    : group_(options.group),
      news_(options.group != nullptr ? std::make_unique<News>() : nullptr),
      forgotten_(options.group != nullptr ? std::make_unique<Forgotten>() : nullptr),
      state_(options.state),
      coherence_(options.coherence),
      memory_(options.memory),
      listener_(options.listener),
      options_(options) {}

Result<std::unique_ptr<Mmu>> Mmu::Create(const MmuOptions& options) {
  ALIBI_CHECK(options.state != nullptr && options.memory != nullptr && options.vcpu_fd >= 0 &&
                  options.max_views > 0,
              "an Mmu is made with a VCPU block, guest memory and room for a view");
  std::unique_ptr<Mmu> mmu(new Mmu(options));
  void* nodes = mmap(nullptr, kSideBytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (nodes == MAP_FAILED) {
    return Error{std::string("shadow: cannot reserve the reverse map: ") + std::strerror(errno) +
                 "; raise the limit on virtual memory (ulimit -v)"};
  }
  mmu->node_memory_ = nodes;
  mmu->uses_.Init(static_cast<ReverseMap::Node*>(nodes));
  mmu->out_of_sync_.Init(reinterpret_cast<u64*>(static_cast<u8*>(nodes) + kNodeBytes));
  mmu->pool_.Init({options.memory->guard(),
                   {options.default_jump_target, options.default_jump_target},
                   options.vcpu_fd,
                   options.vcpu_offset,
                   options.max_views,
                   options.max_chunks},
                  &mmu->counters_);
  GuestMemory& memory = *options.memory;
  options.state->ram_window[0] = memory.ro_base().value;
  options.state->ram_window_size[0] = 2 * memory.capacity();
  options.state->ram_window[1] = memory.rw_base().value;
  options.state->ram_window_size[1] = memory.capacity();
  mmu->RecomputePagingKey();
  Result<View*> first = mmu->pool_.Obtain();
  if (!first) return first.error();
  mmu->current_ = *first;
  mmu->pool_.Adopt(*first, mmu->CurrentKey(), mmu->context_);
  mmu->pool_.Touch(*first);
  memory.set_observer(mmu.get());
  return mmu;
}

Mmu::~Mmu() {
  memory_->set_observer(nullptr);
  memory_->ResetChains();
  if (node_memory_ != nullptr) munmap(node_memory_, kSideBytes);
}

void Mmu::set_listener(TraceListener* listener) { listener_ = listener; }

void Mmu::set_default_jump_targets(const void* const targets[2]) {
  pool_.set_default_jump_targets(targets);
  for (unsigned i = 0; i < pool_.count(); ++i) pool_[i].set_default_jump_targets(targets);
}

// --- Modes and views ---

void Mmu::RecomputePagingKey() {
  known_cr3_ = state_->cr3;
  const PhysAddr before = context_.root;
  context_ = ContextOf(*state_);
  if (context_.root != before) previous_root_ = before;
  const PagingMode mode = context_.format->levels == 0   ? PagingMode::kNone
                          : context_.format->levels == 2 ? PagingMode::k32Bit
                          : context_.format->levels == 3 ? PagingMode::kPae
                                                         : PagingMode::k4Level;
  const u64 root = context_.root.value;
  u64 shared = static_cast<u64>(mode) << ViewKey::kModeShift;
  if (context_.large_pages && mode == PagingMode::k32Bit) shared |= ViewKey::kPse;
  if (context_.no_execute) shared |= ViewKey::kNxe;
  // User accesses do not depend on WP, SMEP and SMAP: fewer keys, fewer views.
  user_key_ = shared | root | ViewKey::kUser;
  kernel_key_ = shared | (context_.write_protect ? ViewKey::kWp : 0) |
                (context_.smep ? ViewKey::kSmep : 0) | (context_.smap ? ViewKey::kSmap : 0);
  linear_mask_ = (state_->efer & vcpu::kEferLma) ? ~u64{0} : 0xffffffffu;
  if (mode == PagingMode::kPae) {
    if (pdpte_root_ != root) {
      // Not by an instruction: the VMM has set the registers.
      u64 pdpte[4];
      ReadPdptes(*memory_, state_->cr3, pdpte);
      AdoptPdptes(root, pdpte);
    }
    for (unsigned slot = 0; slot < 4; ++slot) context_.pdpte[slot] = pdpte_[slot];
  }
  RunGroupOfRoot(mode);
  const bool follows = context_.smap && mode != PagingMode::kNone;
  kernel_key_ |=
      follows ? ViewKey::kFollows | u64{groups_.running()} << ViewKey::kGroupShift : root;
  ChooseOpenView();
}

// With SMAP open a supervisor sees the user pages of one root. As long as the pool has views, each
// root has such a view of its own; the group's forgets those pages when it follows CR3.
void Mmu::ChooseOpenView() {
  const u64 groups = kernel_key_ | ViewKey::kSmapOpen;
  const u64 own = (groups & ~(ViewKey::kFollows | ViewKey::kGroupMask)) | context_.root.value;
  const bool of_root = pool_.has_fresh() || pool_.Find(ViewKey{own | CodeBits()}) != nullptr;
  open_key_ = of_root ? own : groups;
}

// --- Switches ---

bool Mmu::LoadPdptes(u64 cr3) {
  u64 pdpte[4];
  if (!ReadPdptes(*memory_, cr3, pdpte)) return false;
  AdoptPdptes(PdpteRoot(cr3), pdpte);
  return true;
}

// All views of this root have the same page-directory pointers: the ones that were loaded last.
void Mmu::AdoptPdptes(u64 root, const u64 pdpte[4]) {
  pdpte_root_ = root;
  for (unsigned slot = 0; slot < 4; ++slot) pdpte_[slot] = pdpte[slot];
  if (context_.format->levels == kPdpteLevel && context_.root.value == root) {
    for (unsigned slot = 0; slot < 4; ++slot) context_.pdpte[slot] = pdpte[slot];
  }
  for (unsigned i = 0; i < pool_.count(); ++i) {
    View& view = pool_[i];
    const ViewKey key = view.key();
    if (key.mode() != PagingMode::kPae || key.root() != root || key.follows_root()) continue;
    for (unsigned slot = 0; slot < 4; ++slot) {
      const u64 old_entry = view.context().pdpte[slot];
      if (old_entry == pdpte[slot]) continue;
      view.SetPdpte(slot, pdpte[slot]);
      if (old_entry & kPtePresent) DropUpperEntry(view, kPdpteLevel, 0, slot, old_entry);
    }
  }
}

View* Mmu::ObtainView() {
  // A refusal of the host has a message. Whoever makes it must not meet the guest's exceptions.
  SimdState guests;
  SimdGuard guard(guests);
  Result<View*> obtained = pool_.Obtain();
  ALIBI_CHECK(obtained.ok(), "the pool has at least the first view");
  return *obtained;
}

void Mmu::SwitchTo(ViewKey key) {
  View* view = pool_.Find(key);
  if (view == nullptr) {
    view = ObtainView();
    FlushView(*view, view->chunk_count() > kChunksKeptOnRecycle);
    pool_.ForgetPeer(view);
    pool_.Adopt(view, key, context_);
    // The view that had to go may have been the open one.
    ChooseOpenView();
  }
  pool_.Touch(view);
  LinkSwitched(*view);
  current_ = view;
  ++counters_.view_switches;
}

// What SYSCALL, SYSRET, STAC and CLAC may do by themselves between the current view and the next.
// Two views of an address space are neighbours if each has been entered from the other; whatever
// else leads into a view leaves it alone, since its neighbour may have another one by now.
void Mmu::LinkSwitched(View& next) {
  constexpr u64 kSmapSwitch =
      ViewKey::kSmapOpen | ViewKey::kRootMask | ViewKey::kGroupMask | ViewKey::kFollows;
  const ViewKey from = current_->key(), to = next.key();
  const u64 changed = from.packed ^ to.packed;
  const bool same_root = current_->context().root == next.context().root;
  if (changed & ViewKey::kUser) {
    // Between 64-bit code only. SYSCALL enters with SMAP closed (or is unusable), so that an open
    // view is nobody's peer.
    const bool peers =
        same_root && from.long_mode() && to.long_mode() && !from.smap_open() && !to.smap_open();
    current_->SetPeer(peers ? &next : nullptr);
    next.SetPeer(peers ? current_ : nullptr);
    pool_.NoteLinked(*current_, next);
  } else if (same_root && (changed & ViewKey::kSmapOpen) && !(changed & ~kSmapSwitch)) {
    current_->SetSmapPeer(&next);
    next.SetSmapPeer(current_);
    pool_.NoteLinked(*current_, next);
    return;
  } else {
    // The user view enters another view than `next`, and must be told first.
    next.SetPeer(nullptr);
  }
  if (to.smap_open()) next.SetSmapPeer(nullptr);
}

void Mmu::PagingModeChanged() {
  RecomputePagingKey();
  // A user view outlives what only supervisor views depend on; its peer does not.
  if (current_->key().user()) current_->SetPeer(nullptr);
  PrivilegeChanged();
}

void Mmu::AddressSpaceLoaded() {
  View& before = *current_;
  RecomputePagingKey();
  if (coherence_ != Coherence::kEager) FlushTranslations(false);
  PrivilegeChanged();
  LinkPeers();
  LinkRoots(before);
}

// A link leads where the registers of the VCPU that has made it say, WP, SMAP and the root among
// them: none outlives its VCPU's turn.
void Mmu::VcpuSwitched(unsigned from, unsigned to) {
  ParkedVcpu& parked = parked_[from];
  for (unsigned slot = 0; slot < 4; ++slot) parked.pdpte[slot] = pdpte_[slot];
  parked.pdpte_root = pdpte_root_;
  parked.previous_root = previous_root_;
  const ParkedVcpu& next = parked_[to];
  if (next.pdpte_root != ~u64{0}) AdoptPdptes(next.pdpte_root, next.pdpte);
  pdpte_root_ = next.pdpte_root;
  RecomputePagingKey();
  previous_root_ = next.previous_root;
  PrivilegeChanged();
  pool_.ForgetAllPeers();
}

// The links that it took are as good as they were.
void Mmu::ViewEntered(HostAddr gs_base) {
  if (state_->cr3 != known_cr3_) RecomputePagingKey();
  View* view = pool_.Find(CurrentKey());
  if (view == nullptr || view->gs_base() != gs_base) return PrivilegeChanged();
  pool_.Touch(view);
  current_ = view;
  ++counters_.view_switches;
}

View* Mmu::ViewFor(Privilege who) {
  const ViewKey key = current_->key();
  switch (who) {
    case Privilege::kCpl:
      return current_;
    case Privilege::kUser:
      return key.user() ? current_ : nullptr;
    case Privilege::kSupervisor:
      break;
  }
  if (key.closed()) return current_;
  const u64 code_bits =
      linear_mask_ == ~u64{0} ? u64{2} << ViewKey::kCodeBitsShift : key.code_bits();
  return pool_.Find(ViewKey{kernel_key_ | code_bits});
}

Access Mmu::AccessOf(Privilege who, bool write) const {
  Access access;
  access.write = write;
  access.user = who == Privilege::kUser || (who == Privilege::kCpl && state_->cpl == 3);
  access.smap_open =
      who == Privilege::kCpl && !access.user && (state_->system_flags & vcpu::kAc) != 0;
  return access;
}

void Mmu::FlushAllViews() {
  for (unsigned i = 0; i < pool_.count(); ++i) FlushView(pool_[i], false);
  memory_->ResetChains();
  uses_.Reset();
  out_of_sync_.Clear();
  if (group_ != nullptr) NoteForgotten(kAllPages);
}

// Any VCPU may change them, with the machine: not only this one's.
void Mmu::SlotsWillChange() {
  for (unsigned vcpu = 0; group_ != nullptr && vcpu < group_->count; ++vcpu) {
    group_->vcpus->StopBeside(vcpu);
  }
}

void Mmu::SlotsChanged() {
  ForgetMemoryMap();
  if (group_ != nullptr) ForEachOther([](Mmu& other, unsigned) { other.ForgetMemoryMap(); });
}

void Mmu::ForgetMemoryMap() {
  FlushAllViews();
  if (listener_ != nullptr) listener_->MemoryMapChanged();
}

// --- The VMM's own accesses ---

bool Mmu::CheckedWalk(LinearAddr address, const PagingContext& context, const Access& access,
                      View* view, WalkResult* walk, GuestFault* fault) const {
  if (!Addressable(address)) {
    *fault = GuestFault::WithCode(vcpu::kGeneralProtection, 0);
    return false;
  }
  *walk = WalkIn(view, context, address);
  if (walk->status == WalkStatus::kMapped && Permits(context, walk->rights, access)) return true;
  *fault = GuestFault::Page(address, PageFaultCode(context, walk->status, access));
  return false;
}

bool Mmu::Translate(LinearAddr address, unsigned size, Privilege who, bool write, Piece pieces[2],
                    GuestFault* fault) {
  ALIBI_CHECK(size - 1 < kPageSize, "linear accesses have 1 to 4096 bytes");
  const Access access = AccessOf(who, write);
  View* view = ViewFor(who);
  const u64 left = kPageSize - address.PageOffset();
  pieces[0].size = size <= left ? size : static_cast<unsigned>(left);
  pieces[1].size = size - pieces[0].size;
  // Both pages are checked before either is marked: a faulting access leaves no trace.
  if (!CheckedWalk(address, context_, access, view, &pieces[0].walk, fault)) return false;
  if (pieces[1].size != 0 &&
      !CheckedWalk(Wrap(address + left), context_, access, view, &pieces[1].walk, fault)) {
    return false;
  }
  if (!MarkWalk(context_, &pieces[0].walk, write) ||
      (pieces[1].size != 0 && !MarkWalk(context_, &pieces[1].walk, write))) {
    return Translate(address, size, who, write, pieces, fault);
  }
  return true;
}

bool Mmu::Read(LinearAddr address, void* out, unsigned size, Privilege who, GuestFault* fault) {
  address = Wrap(address);
  View* view = ViewFor(who);
  if (view != nullptr && InOnePage(address, size) && Addressable(address)) {
    HostAddr host = view->HostOf(address);
    if (host - memory_->ro_base() >= 2 * memory_->capacity()) {
      const Resolution resolution = Resolve(*view, address, size, false, fault);
      if (resolution == Resolution::kGuestFault) return false;
      host = resolution == Resolution::kFilled ? view->HostOf(address) : HostAddr();
    }
    if (host) {
      RawCopy(out, host.As(), size);
      return true;
    }
  }
  Piece pieces[2];
  if (!Translate(address, size, who, false, pieces, fault)) return false;
  u8* to = static_cast<u8*>(out);
  for (unsigned i = 0; i < 2 && pieces[i].size != 0; ++i) {
    if (memory_->ArenaOffset(pieces[i].walk.address) == GuestMemory::kNotRam) {
      ++counters_.mmio_reads;
    }
    memory_->ReadPhys(pieces[i].walk.address, to, pieces[i].size);
    to += pieces[i].size;
  }
  return true;
}

bool Mmu::Write(LinearAddr address, const void* data, unsigned size, Privilege who,
                GuestFault* fault) {
  address = Wrap(address);
  View* view = ViewFor(who);
  if (view != nullptr && InOnePage(address, size)) {
    const View::WriteTarget& target = view->WriteTargetOf(address);
    const LinearAddr page = address.PageBase();
    if (target.page == page) {
      StoreTo(target, address.PageOffset(), data, size);
      return true;
    }
    if (Addressable(address)) {
      HostAddr host = view->HostOf(address);
      if (host - memory_->rw_base() >= memory_->capacity()) {
        const Resolution resolution = Resolve(*view, address, size, true, fault);
        if (resolution == Resolution::kGuestFault) return false;
        if (target.page == page) {
          StoreTo(target, address.PageOffset(), data, size);
          return true;
        }
        host = resolution == Resolution::kFilled ? view->HostOf(address) : HostAddr();
      }
      if (host) {
        RawCopy(host.As(), data, size);
        return true;
      }
    }
  }
  Piece pieces[2];
  if (!Translate(address, size, who, true, pieces, fault)) return false;
  const u8* from = static_cast<const u8*>(data);
  for (unsigned i = 0; i < 2 && pieces[i].size != 0; ++i) {
    const PageInfo* info = memory_->Info(pieces[i].walk.address);
    if (info == nullptr || (info->flags & kRomPage)) ++counters_.mmio_writes;
    memory_->WritePhys(pieces[i].walk.address, from, pieces[i].size);
    from += pieces[i].size;
  }
  return true;
}

bool Mmu::ProbeWrite(LinearAddr address, unsigned size, Privilege who, GuestFault* fault) {
  address = Wrap(address);
  const View* view = ViewFor(who);
  if (view != nullptr && InOnePage(address, size) && Addressable(address)) {
    if (view->HostOf(address) - memory_->rw_base() < memory_->capacity()) return true;
  }
  Piece pieces[2];
  return Translate(address, size, who, true, pieces, fault);
}

bool Mmu::Fetch(LinearAddr pc, PhysAddr* pa, GuestFault* fault) {
  pc = Wrap(pc);
  View& view = *current_;
  const u64 index = EntryIndex(pc);
  if (!Addressable(pc)) {
    *fault = GuestFault::WithCode(vcpu::kGeneralProtection, 0);
    return false;
  }
  const PhysPage known = view.ExecutedAs(index);
  if (known != View::kNoPage) {
    *pa = known.Base() + pc.PageOffset();
    return true;
  }
  ReserveNodes();
  (void)MakeChunk(view, index);
  Access access;
  access.fetch = true;
  access.user = view.user();
  WalkResult walk;
  // Not the view's context: a user view serves several settings of CR4.SMEP, error codes do not.
  if (!CheckedWalk(pc, context_, access, &view, &walk, fault)) {
    ++counters_.true_faults;
    return false;
  }
  if (!MarkWalk(context_, &walk, false) || !RegisterTables(view, index, walk)) {
    return Fetch(pc, pa, fault);
  }
  if (walk.leaf_level == 1) FillSlice(view, index, walk, 8);
  *pa = walk.address;
  const u64 offset = memory_->ArenaOffset(walk.address);
  if (offset == GuestMemory::kNotRam) return true;
  view.RecordExecuted(index, walk.address.InPage());
  AddExecuted(view, index, offset & ~kPageMask, walk.address.PageBase());
  if (listener_ != nullptr) {
    listener_->PageExecuted(pc.PageBase(), walk.address.PageBase());
  }
  return true;
}

void Mmu::ResetAllJumpTables() {
  for (unsigned i = 0; i < pool_.count(); ++i) pool_[i].ResetAllJumps();
}

// --- Without side effects ---

MemoryUse Mmu::memory_use() const {
  constexpr u64 kChunkBytes = View::kChunkEntries * sizeof(u64);
  MemoryUse use;
  use.shadow_bytes = pool_.TotalChunks() * kChunkBytes;
  use.shadow_bytes_peak = peak_chunks_ * kChunkBytes;
  use.shadow_bytes_bound = pool_.max_chunks() * kChunkBytes;
  use.nodes = uses_.used();
  use.nodes_peak = uses_.peak();
  use.nodes_bound = ReverseMap::kMaxNodes;
  use.views = pool_.count();
  use.views_bound = options_.max_views;
  return use;
}

bool Mmu::DebugTranslate(LinearAddr address, PhysAddr* pa) const {
  address = Wrap(address);
  return Addressable(address) && LookUp(*memory_, context_, address, pa);
}

unsigned Mmu::DebugRead(LinearAddr address, void* out, unsigned size) const {
  u8* to = static_cast<u8*>(out);
  unsigned done = 0;
  while (done < size) {
    const LinearAddr at = address + done;
    PhysAddr pa;
    if (!DebugTranslate(at, &pa)) break;
    const u8* host = memory_->HostRw(pa);
    if (host == nullptr) break;
    const u64 left = kPageSize - at.PageOffset();
    const unsigned piece = size - done < left ? size - done : static_cast<unsigned>(left);
    RawCopy(to + done, host, piece);
    done += piece;
  }
  return done;
}

}  // namespace alibi::mmu
