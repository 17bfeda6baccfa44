// SPDX-License-Identifier: Apache-2.0
// What a virtio device is to its transport, and the other way round (virtio 1.2, chapter 2). Both
// live on the VCPU's thread; see devices/mailbox.h for host I/O that may block.
//
// A device: constants about itself, Process(queue) that pops chains, and for each
//   queue.CopyFrom(...) / CopyTo(...), queue.Push(chain, written), transport().Interrupt(number).
// Later completions are the same, from a function posted to the mailbox; a queue that was reset in
// the meantime ignores them.
#ifndef ALIBI_DEVICES_VIRTIO_VIRTIO_DEVICE_H_
#define ALIBI_DEVICES_VIRTIO_VIRTIO_DEVICE_H_

#include <span>

#include "base/check.h"
#include "base/types.h"
#include "devices/virtio/virtqueue.h"

namespace alibi::devices::virtio {

class VirtioTransport {
 public:
  virtual ~VirtioTransport() = default;
  virtual Virtqueue& queue(unsigned number) = 0;
  // After Push(): interrupts the guest, if the driver wants it.
  virtual void Interrupt(unsigned number) = 0;
  // The device's configuration changed.
  virtual void ConfigChanged() = 0;
  // The driver did what no driver may do: the device stops until it is reset (DEVICE_NEEDS_RESET).
  // Broken queues end there by themselves.
  virtual void Fail() = 0;
  // The driver has set DRIVER_OK, and nothing is broken.
  virtual bool running() const = 0;
};

class VirtioDevice {
 public:
  virtual ~VirtioDevice() = default;

  // --- Constants ---
  virtual const char* name() const = 0;
  virtual u16 id() const = 0;         // section 5
  virtual u32 pci_class() const = 0;  // 24 bits
  virtual unsigned queue_count() const = 0;
  virtual u16 queue_size([[maybe_unused]] unsigned number) const { return 256; }
  // The device's own bits (0 to 23, 50 to 63); the transport adds the others.
  virtual u64 features() const { return 0; }

  // The configuration space, as it is now.
  virtual std::span<const u8> config() const { return {}; }
  virtual void WriteConfig([[maybe_unused]] u64 offset, [[maybe_unused]] unsigned size,
                           [[maybe_unused]] u64 value) {}

  // --- Events ---
  // The driver is ready; `features` is what both sides agreed on.
  virtual void Start([[maybe_unused]] u64 features) {}
  // There may be new chains in the queue. Only while running().
  virtual void Process(unsigned queue) = 0;
  // All queues were reset: chains that are out are stale, what waits for the guest is dropped.
  virtual void Reset() {}
  // This queue alone was reset.
  virtual void ResetQueue([[maybe_unused]] unsigned queue) {}

  void Attach(VirtioTransport& transport) { transport_ = &transport; }

 protected:
  VirtioTransport& transport() {
    ALIBI_CHECK(transport_ != nullptr, "a virtio device is used on a transport");
    return *transport_;
  }
  bool attached() const { return transport_ != nullptr; }

 private:
  VirtioTransport* transport_ = nullptr;
};

}  // namespace alibi::devices::virtio

#endif  // ALIBI_DEVICES_VIRTIO_VIRTIO_DEVICE_H_
