// SPDX-License-Identifier: Apache-2.0
#include "devices/virtio/rng.h"

#include <sys/random.h>

#include <algorithm>

namespace alibi::devices::virtio {

void Rng::Process(unsigned number) {
  Virtqueue& queue = transport().queue(number);
  Chain chain;
  while (queue.Pop(&chain)) {
    const u64 wanted = std::min(chain.writable_bytes, kMaxBytes);
    u64 written = 0;
    while (written < wanted) {
      // Up to 256 bytes come whole and without waiting, once the host has booted (getrandom(2)).
      u8 bytes[256];
      const u64 piece = std::min<u64>(wanted - written, sizeof(bytes));
      if (getrandom(bytes, piece, 0) != static_cast<ssize_t>(piece)) break;
      if (!queue.CopyTo(chain, written, bytes, piece)) break;
      written += piece;
    }
    queue.Push(chain, static_cast<u32>(written));
  }
  transport().Interrupt(number);
}

}  // namespace alibi::devices::virtio
