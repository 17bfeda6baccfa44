// SPDX-License-Identifier: Apache-2.0
// The entropy device (virtio 1.2, section 5.4): fills what it is given with the host's random
// bytes.
#ifndef ALIBI_DEVICES_VIRTIO_RNG_H_
#define ALIBI_DEVICES_VIRTIO_RNG_H_

#include "base/types.h"
#include "devices/virtio/virtio_device.h"

namespace alibi::devices::virtio {

class Rng final : public VirtioDevice {
 public:
  // What one buffer gets at most; drivers cope with less than they asked for.
  static constexpr u64 kMaxBytes = 65536;

  const char* name() const override { return "virtio-rng"; }
  u16 id() const override { return 4; }
  u32 pci_class() const override { return 0x00ff00; }
  unsigned queue_count() const override { return 1; }
  void Process(unsigned queue) override;
};

}  // namespace alibi::devices::virtio

#endif  // ALIBI_DEVICES_VIRTIO_RNG_H_
