// SPDX-License-Identifier: Apache-2.0
#include "devices/virtio/console.h"

#include <algorithm>
#include <utility>

namespace alibi::devices::virtio {
namespace {

constexpr u64 kSize = u64{1} << 0, kEmergencyWrite = u64{1} << 2;
// Configuration: columns and rows (16 bits each), number of ports, emergency output (32 bits).
constexpr u64 kPorts = 4, kEmergency = 8;
constexpr std::size_t kPiece = 4096;

}  // namespace

Console::Console(std::function<void(std::string_view)> output, u16 columns, u16 rows)
    : output_(std::move(output)), has_size_(columns != 0 && rows != 0) {
  config_[0] = static_cast<u8>(columns);
  config_[1] = static_cast<u8>(columns >> 8);
  config_[2] = static_cast<u8>(rows);
  config_[3] = static_cast<u8>(rows >> 8);
  config_[kPorts] = 1;
}

u64 Console::features() const { return kEmergencyWrite | (has_size_ ? kSize : 0); }

// A character that needs no queue, for kernels that are not that far yet, or in distress.
void Console::WriteConfig(u64 offset, unsigned, u64 value) {
  const char c = static_cast<char>(value);
  if (offset == kEmergency) output_({&c, 1});
}

void Console::Receive(std::string_view bytes) {
  input_.append(bytes.substr(0, kMaxInput - std::min(kMaxInput, input_.size())));
  if (transport().running()) Fill();
}

void Console::Fill() {
  Virtqueue& queue = transport().queue(kReceive);
  Chain chain;
  while (!input_.empty() && queue.Pop(&chain)) {
    const u64 size = std::min<u64>(input_.size(), chain.writable_bytes);
    if (!queue.CopyTo(chain, 0, input_.data(), size)) break;
    input_.erase(0, size);
    queue.Push(chain, static_cast<u32>(size));
  }
  transport().Interrupt(kReceive);
}

void Console::Process(unsigned number) {
  if (number == kReceive) {
    Fill();
    return;
  }
  Virtqueue& queue = transport().queue(number);
  Chain chain;
  std::array<char, kPiece> piece;
  // A driver may name the same megabytes in every descriptor of the ring: what it gets printed at
  // once is bounded, so that the machine's other business goes on.
  while (queue.Pop(&chain)) {
    printed_ = true;
    const u64 size = std::min<u64>(chain.readable_bytes, kMaxInput);
    for (u64 at = 0; at < size; at += kPiece) {
      const u64 bytes = std::min<u64>(kPiece, size - at);
      if (!queue.CopyFrom(chain, at, piece.data(), bytes)) break;
      output_({piece.data(), bytes});
    }
    queue.Push(chain, 0);
  }
  transport().Interrupt(number);
}

}  // namespace alibi::devices::virtio
