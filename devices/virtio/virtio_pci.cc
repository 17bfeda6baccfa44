// SPDX-License-Identifier: Apache-2.0
#include "devices/virtio/virtio_pci.h"

#include <cstring>

#include "base/check.h"

namespace alibi::devices::virtio {
namespace {

constexpr u8 kVendorCapability = 0x09;
// Types of configuration structures (4.1.4).
enum StructureType : u8 { kCommon = 1, kNotify = 2, kIsr = 3, kDeviceConfig = 4, kPciConfig = 5 };
constexpr unsigned kWindowBar = 4, kWindowOffset = 8, kWindowLength = 12, kWindowData = 16;

constexpr u8 kIsrQueue = 1, kIsrConfig = 2;

// Common configuration (4.1.4.3).
enum CommonRegister : u64 {
  kDeviceFeatureSelect = 0x00,
  kDeviceFeature = 0x04,
  kDriverFeatureSelect = 0x08,
  kDriverFeature = 0x0c,
  kConfigVector = 0x10,
  kQueueCount = 0x12,
  kDeviceStatus = 0x14,
  kConfigGeneration = 0x15,
  kQueueSelect = 0x16,
  kQueueSize = 0x18,
  kQueueVector = 0x1a,
  kQueueEnable = 0x1c,
  kQueueNotifyOffset = 0x1e,
  kQueueDescriptors = 0x20,
  kQueueDriver = 0x28,
  kQueueDevice = 0x30,
  kQueueNotifyData = 0x38,
  kQueueReset = 0x3a,
  kCommonBytes = 0x3c,
};

// One half, or all, of an address.
void SetAddress(PhysAddr* address, u64 offset, unsigned size, u64 value) {
  if (size == 8) {
    *address = PhysAddr(value);
  } else if (offset & 4) {
    *address = PhysAddr((address->value & 0xffffffff) | value << 32);
  } else {
    *address = PhysAddr((address->value & ~u64{0xffffffff}) | value);
  }
}

}  // namespace

VirtioPci::VirtioPci(VirtioDevice& device, Dma& dma)
    : PciFunction(device.name(), {.vendor = kVendor,
                                  .device = static_cast<u16>(kFirstDevice + device.id()),
                                  .class_code = device.pci_class(),
                                  .revision = 1}),
      device_(device),
      dma_(*this, dma) {
  for (unsigned i = 0; i < device.queue_count(); ++i) {
    queues_.emplace_back(dma_, device.queue_size(i));
  }
  queue_vectors_.assign(queues_.size(), kNoVector);
  AddMsix(kMsixBar, 1 + device.queue_count());
  AddMemoryBar(kBar, kBarSize, registers_, /*bits64=*/true);
  SetInterruptPin(1);
  AddCapabilities();
  device.Attach(*this);
}

void VirtioPci::AddCapabilities() {
  struct Row {
    StructureType type;
    u64 offset;
    u64 length;
    bool has_more;  // four more bytes: the multiplier, or the window's data
  };
  const Row rows[] = {
      {kCommon, kCommonOffset, kCommonBytes, false},
      {kIsr, kIsrOffset, 1, false},
      {kDeviceConfig, kConfigOffset, 0x1000, false},
      {kNotify, kNotifyOffset, queues_.size() * kNotifyMultiplier, true},
      {kPciConfig, 0, 0, true},
  };
  for (const Row& row : rows) {
    u8 body[18] = {};
    const unsigned length = row.has_more ? 20 : 16;
    const auto put = [&body](unsigned at, u64 value) {
      for (unsigned i = 0; i < 4; ++i) body[at - 2 + i] = static_cast<u8>(value >> (8 * i));
    };
    body[0] = static_cast<u8>(length);
    body[1] = row.type;
    body[2] = row.type == kPciConfig ? 0 : kBar;
    put(kWindowOffset, row.offset);
    put(kWindowLength, row.length);
    if (row.type == kNotify) put(kWindowData, kNotifyMultiplier);
    const unsigned at = AddCapability(kVendorCapability, {body, length - 2});
    if (row.type != kPciConfig) continue;
    window_ = at;
    SetWritable(at + kWindowBar, 0xff, 1);
    for (const unsigned field : {kWindowOffset, kWindowLength, kWindowData}) {
      SetWritable(at + field, ~u32{0}, 4);
    }
  }
}

bool VirtioPci::Window(u64* offset, unsigned* size) const {
  *offset = Get(window_ + kWindowOffset, 4);
  *size = Get(window_ + kWindowLength, 4);
  return Get(window_ + kWindowBar, 1) == kBar && (*size == 1 || *size == 2 || *size == 4) &&
         *offset % *size == 0 && *offset <= kBarSize - *size;
}

void VirtioPci::ConfigReading(unsigned offset, unsigned size) {
  const unsigned data = window_ + kWindowData;
  u64 from;
  unsigned bytes;
  if (offset + size <= data || offset >= data + 4 || !Window(&from, &bytes)) return;
  Set(data, static_cast<u32>(ReadRegister(from, bytes)), bytes);
}

void VirtioPci::ConfigWritten(unsigned offset, unsigned size) {
  const unsigned data = window_ + kWindowData;
  u64 to;
  unsigned bytes;
  if (offset + size > data && offset < data + 4 && Window(&to, &bytes)) {
    WriteRegister(to, bytes, Get(data, bytes));
  }
  // Notifications that came while it could not reach memory.
  if (offset <= kCommand && offset + size > kCommand) ProcessAll();
}

u64 VirtioPci::ReadRegister(u64 offset, unsigned size) {
  if (offset < kIsrOffset) return ReadCommon(offset, size);
  if (offset < kConfigOffset) {
    if (offset != kIsrOffset) return 0;
    const u8 isr = isr_;
    isr_ = 0;
    intx().Set(false);
    return isr;
  }
  if (offset >= kNotifyOffset) return 0;
  const std::span<const u8> config = device_.config();
  u64 value = 0;
  for (unsigned i = 0; i < size; ++i) {
    const u64 at = offset - kConfigOffset + i;
    if (at < config.size()) value |= u64{config[at]} << (8 * i);
  }
  return value;
}

void VirtioPci::WriteRegister(u64 offset, unsigned size, u64 value) {
  if (offset < kIsrOffset) {
    WriteCommon(offset, size, value);
  } else if (offset >= kNotifyOffset) {
    const u64 number = (offset - kNotifyOffset) / kNotifyMultiplier;
    if (number < queues_.size()) Process(static_cast<unsigned>(number));
  } else if (offset >= kConfigOffset) {
    device_.WriteConfig(offset - kConfigOffset, size, value);
  }
}

u64 VirtioPci::OfferedFeatures() const {
  return device_.features() | kRingIndirect | kRingEventIndex | kVersion1 | kRingReset;
}

// All registers can be read without an effect, so a read of any width is a part of them all.
u64 VirtioPci::ReadCommon(u64 offset, unsigned size) const {
  u8 bytes[kCommonBytes + 8] = {};
  const auto put = [&bytes](u64 at, u64 value, unsigned width) {
    std::memcpy(bytes + at, &value, width);
  };
  const auto half = [](u64 features, u32 select) {
    return select < 2 ? features >> (32 * select) : 0;
  };
  put(kDeviceFeatureSelect, device_feature_select_, 4);
  put(kDeviceFeature, half(OfferedFeatures(), device_feature_select_), 4);
  put(kDriverFeatureSelect, driver_feature_select_, 4);
  put(kDriverFeature, half(driver_features_, driver_feature_select_), 4);
  put(kConfigVector, config_vector_, 2);
  put(kQueueCount, queues_.size(), 2);
  put(kDeviceStatus, status_, 1);
  put(kConfigGeneration, config_generation_, 1);
  put(kQueueSelect, queue_select_, 2);
  // A queue that does not exist has the size 0.
  if (queue_select_ < queues_.size()) {
    const Virtqueue& queue = queues_[queue_select_];
    put(kQueueSize, queue.size(), 2);
    put(kQueueVector, queue_vectors_[queue_select_], 2);
    put(kQueueEnable, queue.enabled(), 2);
    put(kQueueNotifyOffset, queue_select_, 2);
    put(kQueueDescriptors, queue.rings().descriptors.value, 8);
    put(kQueueDriver, queue.rings().driver.value, 8);
    put(kQueueDevice, queue.rings().device.value, 8);
  }
  if (offset >= kCommonBytes) return 0;
  u64 value = 0;
  std::memcpy(&value, bytes + offset, size);
  return value;
}

void VirtioPci::WriteCommon(u64 offset, unsigned size, u64 value) {
  const auto vector = [this](u64 wanted) {
    return wanted < msix()->vectors() ? static_cast<u16>(wanted) : kNoVector;
  };
  if (size == 4 && offset == kDeviceFeatureSelect) {
    device_feature_select_ = static_cast<u32>(value);
  } else if (size == 4 && offset == kDriverFeatureSelect) {
    driver_feature_select_ = static_cast<u32>(value);
  } else if (size == 4 && offset == kDriverFeature) {
    if ((status_ & kFeaturesOk) || driver_feature_select_ > 1) return;
    const unsigned shift = 32 * driver_feature_select_;
    driver_features_ = (driver_features_ & ~(u64{0xffffffff} << shift)) | value << shift;
  } else if (size == 2 && offset == kConfigVector) {
    config_vector_ = vector(value);
  } else if (size == 1 && offset == kDeviceStatus) {
    WriteStatus(static_cast<u8>(value));
  } else if (size == 2 && offset == kQueueSelect) {
    queue_select_ = static_cast<u16>(value);
  } else if (queue_select_ >= queues_.size()) {
    return;
  } else if (size == 2 && offset == kQueueVector) {
    queue_vectors_[queue_select_] = vector(value);
  } else {
    WriteQueueRegister(offset, size, value);
  }
}

// A queue that is enabled cannot be changed, only reset (4.1.4.3.2).
void VirtioPci::WriteQueueRegister(u64 offset, unsigned size, u64 value) {
  Virtqueue& queue = queues_[queue_select_];
  if (size == 2 && offset == kQueueReset) {
    if (value != 1 || !(driver_features_ & kRingReset) || !(status_ & kFeaturesOk)) return;
    queue.Reset();
    device_.ResetQueue(queue_select_);
    return;
  }
  if (queue.enabled()) return;
  if (size == 2 && offset == kQueueSize) {
    static_cast<void>(queue.SetSize(static_cast<u16>(value)));
  } else if (size == 2 && offset == kQueueEnable) {
    if (value != 1 || !(status_ & kFeaturesOk)) return;
    queue.Enable(driver_features_ & kRingIndirect, driver_features_ & kRingEventIndex);
  } else if ((size == 4 || size == 8) && offset % size == 0) {
    Virtqueue::Rings& rings = queue.rings();
    if (offset >= kQueueDescriptors && offset < kQueueDriver) {
      SetAddress(&rings.descriptors, offset, size, value);
    } else if (offset >= kQueueDriver && offset < kQueueDevice) {
      SetAddress(&rings.driver, offset, size, value);
    } else if (offset >= kQueueDevice && offset < kQueueNotifyData) {
      SetAddress(&rings.device, offset, size, value);
    }
  }
}

void VirtioPci::WriteStatus(u8 value) {
  if (value == 0) {
    ResetDevice();
    return;
  }
  const u8 before = status_;
  constexpr u8 kDrivers = kAcknowledge | kDriver | kDriverOk | kFeaturesOk | kFailed;
  // Only a reset takes a bit back (2.1.1).
  status_ = static_cast<u8>(before | (value & kDrivers));
  // What was not offered cannot be agreed on, and there is no older version to fall back to.
  const bool acceptable =
      (driver_features_ & ~OfferedFeatures()) == 0 && (driver_features_ & kVersion1);
  if ((status_ & kFeaturesOk) && !(before & kFeaturesOk) && !acceptable) {
    status_ = static_cast<u8>(status_ & ~kFeaturesOk);
  }
  if (!(status_ & kFeaturesOk)) status_ = static_cast<u8>(status_ & ~kDriverOk);
  if ((status_ & kDriverOk) && !(before & kDriverOk)) {
    device_.Start(driver_features_);
    ProcessAll();
  }
}

void VirtioPci::ResetDevice() {
  for (Virtqueue& queue : queues_) queue.Reset();
  queue_vectors_.assign(queues_.size(), kNoVector);
  config_vector_ = kNoVector;
  queue_select_ = 0;
  device_feature_select_ = driver_feature_select_ = 0;
  driver_features_ = 0;
  status_ = 0;
  isr_ = 0;
  intx().Set(false);
  device_.Reset();
}

bool VirtioPci::running() const {
  return (status_ & kDriverOk) && !(status_ & kNeedsReset) && bus_master();
}

void VirtioPci::Process(unsigned number) {
  if (!running() || !queues_[number].enabled()) return;
  device_.Process(number);
  if (!queues_[number].ok()) Fail();
}

void VirtioPci::ProcessAll() {
  for (unsigned i = 0; i < queues_.size(); ++i) Process(i);
}

void VirtioPci::Interrupt(unsigned number) {
  Virtqueue& queue = queues_[number];
  const bool wish = running() && queue.TakeInterruptWish();
  if (!queue.ok()) {
    Fail();
  } else if (wish) {
    Signal(queue_vectors_[number], kIsrQueue);
  }
}

void VirtioPci::ConfigChanged() {
  ++config_generation_;
  if (status_ & kDriverOk) Signal(config_vector_, kIsrConfig);
}

void VirtioPci::Fail() {
  if (status_ & kNeedsReset) return;
  status_ |= kNeedsReset;
  if (status_ & kDriverOk) Signal(config_vector_, kIsrConfig);
}

void VirtioPci::Signal(u16 vector, u8 isr_bit) {
  if (msix()->enabled()) {
    if (vector != kNoVector) msix()->Notify(vector);
    return;
  }
  isr_ |= isr_bit;
  intx().Set(true);
}

}  // namespace alibi::devices::virtio
