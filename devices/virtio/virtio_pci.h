// SPDX-License-Identifier: Apache-2.0
// Virtio over PCI, modern devices only (virtio 1.2, section 4.1): vendor 0x1af4, device 0x1040 + n,
// revision 1.
//
//   BAR 1  MSI-X: one vector for configuration changes and one per queue
//   BAR 4  0x0000 common configuration   0x1000 ISR   0x2000 device configuration
//          0x3000 notifications, 4 bytes per queue
#ifndef ALIBI_DEVICES_VIRTIO_VIRTIO_PCI_H_
#define ALIBI_DEVICES_VIRTIO_VIRTIO_PCI_H_

#include <vector>

#include "base/types.h"
#include "devices/dma.h"
#include "devices/pci/bus_master_dma.h"
#include "devices/pci/pci_function.h"
#include "devices/virtio/virtio_device.h"
#include "devices/virtio/virtqueue.h"

namespace alibi::devices::virtio {

// Feature bits of section 6, as far as they are offered.
inline constexpr u64 kRingIndirect = u64{1} << 28, kRingEventIndex = u64{1} << 29,
                     kVersion1 = u64{1} << 32, kRingReset = u64{1} << 40;

// Device status bits (section 2.1).
inline constexpr u8 kAcknowledge = 1, kDriver = 2, kDriverOk = 4, kFeaturesOk = 8, kNeedsReset = 64,
                    kFailed = 128;

class VirtioPci final : public PciFunction, public VirtioTransport {
 public:
  static constexpr u16 kVendor = 0x1af4, kFirstDevice = 0x1040;
  static constexpr unsigned kMsixBar = 1, kBar = 4;
  static constexpr u64 kBarSize = 0x4000;
  static constexpr u64 kCommonOffset = 0, kIsrOffset = 0x1000, kConfigOffset = 0x2000,
                       kNotifyOffset = 0x3000;
  static constexpr unsigned kNotifyMultiplier = 4;
  static constexpr u16 kNoVector = 0xffff;

  // Both outlive the transport.
  VirtioPci(VirtioDevice& device, Dma& dma);

  // --- VirtioTransport ---
  Virtqueue& queue(unsigned number) override { return queues_[number]; }
  void Interrupt(unsigned number) override;
  void ConfigChanged() override;
  void Fail() override;
  bool running() const override;

  u8 status() const { return status_; }
  u64 features() const { return driver_features_; }
  // BAR 4, for tests without a bus.
  Device& registers() { return registers_; }

 private:
  class Registers final : public Device {
   public:
    explicit Registers(VirtioPci& owner) : owner_(owner) {}
    u64 Read(u64 offset, unsigned size) override { return owner_.ReadRegister(offset, size); }
    void Write(u64 offset, unsigned size, u64 value) override {
      owner_.WriteRegister(offset, size, value);
    }
    unsigned MaxAccessSize() const override { return 8; }
    void Reset() override { owner_.ResetDevice(); }

   private:
    VirtioPci& owner_;
  };

  void AddCapabilities();
  void ConfigReading(unsigned offset, unsigned size) override;
  void ConfigWritten(unsigned offset, unsigned size) override;
  // The window that PCI configuration space has into BAR 4; false: it is set to nothing.
  bool Window(u64* offset, unsigned* size) const;

  u64 ReadRegister(u64 offset, unsigned size);
  void WriteRegister(u64 offset, unsigned size, u64 value);
  u64 ReadCommon(u64 offset, unsigned size) const;
  void WriteCommon(u64 offset, unsigned size, u64 value);
  void WriteQueueRegister(u64 offset, unsigned size, u64 value);
  u64 OfferedFeatures() const;
  void WriteStatus(u8 value);
  void ResetDevice();
  void Process(unsigned number);
  void ProcessAll();
  void Signal(u16 vector, u8 isr_bit);

  VirtioDevice& device_;
  BusMasterDma dma_;
  Registers registers_{*this};
  std::vector<Virtqueue> queues_;
  std::vector<u16> queue_vectors_;
  u16 config_vector_ = kNoVector;
  u16 queue_select_ = 0;
  u32 device_feature_select_ = 0;
  u32 driver_feature_select_ = 0;
  u64 driver_features_ = 0;
  u8 status_ = 0;
  u8 isr_ = 0;
  u8 config_generation_ = 0;
  unsigned window_ = 0;  // offset of the PCI configuration access capability
};

}  // namespace alibi::devices::virtio

#endif  // ALIBI_DEVICES_VIRTIO_VIRTIO_PCI_H_
