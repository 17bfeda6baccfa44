// SPDX-License-Identifier: Apache-2.0
#include "abi/gs_names.h"

#include <fmt/format.h>

#include <cstddef>
#include <iterator>
#include <type_traits>

#include "abi/contract.h"

namespace alibi {
namespace {

using vcpu::VcpuState;

struct Field {
  const char* name;
  std::size_t offset;
  std::size_t size;
  std::size_t element;  // bytes
};

constexpr Field kFields[] = {
#define ALIBI_ABI_FIELD(name, who)                            \
  {#name, offsetof(VcpuState, name), sizeof(VcpuState::name), \
   sizeof(std::remove_all_extents_t<decltype(VcpuState::name)>)},
#include "abi/fields.inc"
#define ALIBI_SCRATCH(name, what) {"scratch." #name, offsetof(VcpuState, scratch.name), 8, 8},
#include "vcpu/scratch.inc"
};

constexpr const char* kGprs[] = {"rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi",
                                 "r8",  "r9",  "r10", "r11", "r12", "r13", "r14", "r15"};

std::string NameVcpuField(u64 offset) {
  if (offset < sizeof(VcpuState::gpr)) {
    const u64 rest = offset % 8;
    return std::string("vcpu.") + kGprs[offset / 8] + (rest != 0 ? fmt::format("+{}", rest) : "");
  }
  for (const Field& field : kFields) {
    if (offset < field.offset || offset >= field.offset + field.size) continue;
    const u64 at = (offset - field.offset) / field.element;
    const u64 rest = (offset - field.offset) % field.element;
    return std::string("vcpu.") + field.name +
           (field.size != field.element ? fmt::format("[{}]", at) : "") +
           (rest != 0 ? fmt::format("+{}", rest) : "");
  }
  return fmt::format("vcpu+{:#x}", offset);
}

struct PeerField {
  i64 displacement;
  const char* name;
};
constexpr PeerField kPeerFields[] = {
    {kPeerOffset + i64{offsetof(PrivilegePeer, gs_base)}, "peer.gs_base"},
    {kPeerOffset + i64{offsetof(PrivilegePeer, missing)}, "peer.missing"},
    {kSmapPeerOffset + i64{offsetof(SmapPeer, gs_base)}, "smap_peer.gs_base"},
    {kSmapPeerOffset + i64{offsetof(SmapPeer, no_stac)}, "smap_peer.no_stac"},
    {kSmapPeerOffset + i64{offsetof(SmapPeer, no_clac)}, "smap_peer.no_clac"},
    {kRootPeerOffset + i64{offsetof(RootPeer, mask)}, "root_peer.mask"},
    {kRootPeerOffset + i64{offsetof(RootPeer, negated)}, "root_peer.negated"},
    {kRootPeerOffset + i64{offsetof(RootPeer, cr3)}, "root_peer.cr3"},
    {kRootPeerOffset + i64{offsetof(RootPeer, gs_base)}, "root_peer.gs_base"},
};

std::string NameSlotField(i64 offset) {
  static constexpr const char* kParts[] = {"neg_page", "displacement", "host_page", "misses"};
  static_assert(sizeof(InlineTlbEntry) == 8 * std::size(kParts));
  const i64 slot = offset / static_cast<i64>(sizeof(InlineTlbEntry));
  return fmt::format("{}_slot[{}].{}", slot < kSlotCount ? "load" : "store", slot % kSlotCount,
                     kParts[offset / 8 % static_cast<i64>(std::size(kParts))]);
}

}  // namespace

std::string NameGsOperand(const std::string& index, i64 displacement) {
  if (displacement >= 0) {
    return displacement == 0 ? fmt::format("shadow[{}]", index)
                             : fmt::format("shadow[{} + {:#x}]", index, displacement);
  }
  if (displacement >= kVcpuOffset) {
    const std::string name = NameVcpuField(static_cast<u64>(displacement - kVcpuOffset));
    return index.empty() ? name : fmt::format("{}[{}]", name, index);
  }
  if (displacement >= kJumpTableOffset) {
    return index.empty() ? fmt::format("jump_table[{:#x}]", (displacement - kJumpTableOffset) / 8)
                         : fmt::format("jump_table[{}]", index);
  }
  if (displacement >= kConflictTableOffset) return fmt::format("conflicts[{}]", index);
  if (displacement >= kSlotsOffset) return NameSlotField(displacement - kSlotsOffset);
  for (const PeerField& field : kPeerFields) {
    if (field.displacement == displacement) return field.name;
  }
  return fmt::format("{:#x}", displacement);
}

}  // namespace alibi
