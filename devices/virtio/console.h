// SPDX-License-Identifier: Apache-2.0
// The console device (virtio 1.2, section 5.3) with one port: a terminal without a UART's
// registers.
#ifndef ALIBI_DEVICES_VIRTIO_CONSOLE_H_
#define ALIBI_DEVICES_VIRTIO_CONSOLE_H_

#include <array>
#include <functional>
#include <string>
#include <string_view>

#include "base/types.h"
#include "devices/virtio/virtio_device.h"

namespace alibi::devices::virtio {

class Console final : public VirtioDevice {
 public:
  static constexpr unsigned kReceive = 0, kTransmit = 1;
  // Input that the guest does not take: more than this is dropped.
  static constexpr std::size_t kMaxInput = 65536;

  // `output` gets what the guest prints, and should only take note. `columns` and `rows` are the
  // terminal's size; 0: unknown.
  Console(std::function<void(std::string_view)> output, u16 columns, u16 rows);

  // The guest has printed by it: a driver alone, loaded because the device is there, means nobody
  // who would read keys.
  bool in_use() { return printed_ && transport().running(); }

  // Bytes for the guest; they wait until it takes them.
  void Receive(std::string_view bytes);

  const char* name() const override { return "virtio-console"; }
  u16 id() const override { return 3; }
  u32 pci_class() const override { return 0x078000; }
  unsigned queue_count() const override { return 2; }
  u64 features() const override;
  std::span<const u8> config() const override { return config_; }
  void WriteConfig(u64 offset, unsigned size, u64 value) override;
  void Process(unsigned queue) override;
  void Reset() override { printed_ = false; }

 private:
  void Fill();

  std::function<void(std::string_view)> output_;
  std::array<u8, 12> config_{};
  bool has_size_;
  bool printed_ = false;
  std::string input_;
};

}  // namespace alibi::devices::virtio

#endif  // ALIBI_DEVICES_VIRTIO_CONSOLE_H_
