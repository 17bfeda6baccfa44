// SPDX-License-Identifier: Apache-2.0
// An image and the thread that works on it. Requests are served one by one in the order of their
// submission, so a flush covers every write before it, and what overlaps cannot be reordered.
//
// To hand a request over and to be told of its end costs two threads' waking, 30 to 100 us on
// virtual machines: more than to read what the host has cached. So that is done at once.
#ifndef ALIBI_DEVICES_BLOCK_DISK_H_
#define ALIBI_DEVICES_BLOCK_DISK_H_

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/result.h"
#include "devices/block/image.h"

namespace alibi::block {

enum class Operation : u8 { kRead, kWrite, kFlush, kDiscard, kWriteZeroes };

struct Request {
  Operation operation = Operation::kRead;
  u64 offset = 0;
  u64 bytes = 0;           // of all but kFlush
  bool may_unmap = false;  // of kWriteZeroes
  bool durable = false;    // a write that is on stable storage before it is done
  std::vector<u8> data;    // of kRead and kWrite: at least so many, what follows is not touched
  // Called on the VCPU's thread, once.
  std::function<void(Request&)> done;
  IoResult result;
};

class Disk {
 public:
  // What runs a function on the VCPU's thread later; called on the worker.
  using Post = std::function<void(std::function<void()>)>;
  // Told, on the worker, of the first failure of each kind: one line.
  using Report = std::function<void(const std::string&)>;

  // Most requests that may wait at once; devices bound theirs.
  static constexpr std::size_t kMaxRequests = 1024;

  // `name` is for messages.
  static Result<std::unique_ptr<Disk>> Create(std::shared_ptr<BlockImage> image, std::string name,
                                              Post post, Report report);
  // Everything submitted is still served, and flushed; nothing is posted any more.
  ~Disk();
  Disk(const Disk&) = delete;
  Disk& operator=(const Disk&) = delete;

  u64 size_bytes() const { return image_->size_bytes(); }
  u64 sectors() const { return image_->size_bytes() / kSectorBytes; }
  bool read_only() const { return image_->read_only(); }

  // On the VCPU's thread. A request that leaves the image fails like one that the host refused.
  void Submit(std::shared_ptr<Request> request);
  // Instead of Submit(), on the VCPU's thread: a read of what the host has cached, while nothing
  // else is to be done. False: Submit() it. `done` is not called.
  bool ReadNow(Request& request);

 private:
  Disk(std::shared_ptr<BlockImage> image, std::string name, Post post, Report report);
  void Work();
  bool LeavesImage(u64 offset, u64 bytes) const;
  IoResult Serve(Request& request);
  void NoteFailure(Operation operation, int error);

  const std::shared_ptr<BlockImage> image_;
  const std::string name_;
  const Post post_;
  const Report report_;
  std::vector<std::pair<Operation, int>> reported_;  // the worker's

  std::atomic<std::size_t> unserved_ = 0;  // submitted, and not yet done by the worker
  std::mutex mutex_;                       // of what follows
  std::condition_variable submitted_;
  std::deque<std::shared_ptr<Request>> queue_;
  bool ending_ = false;
  std::thread worker_;
};

}  // namespace alibi::block

#endif  // ALIBI_DEVICES_BLOCK_DISK_H_
