// SPDX-License-Identifier: Apache-2.0
#include "devices/block/disk.h"

#include <errno.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/sandbox/denied_call.h"
#include "base/worker_thread.h"

namespace alibi::block {
namespace {

const char* NameOf(Operation operation) {
  switch (operation) {
    case Operation::kRead:
      return "reading";
    case Operation::kWrite:
      return "writing";
    case Operation::kFlush:
      return "flushing";
    case Operation::kDiscard:
      return "discarding";
    case Operation::kWriteZeroes:
      return "writing zeros";
  }
  return "";
}

std::string Reason(int error) {
  switch (error) {
    case ENOSPC:
      return std::string(std::strerror(error)) + ": the host's disk is full";
    case EDQUOT:
      return std::string(std::strerror(error)) + ": the host's, or --snapshot-size";
    case EFBIG:
      return "the host allows no file as large (ulimit -f)";
    case EROFS:
      return "the image is read-only";
    default:
      return std::strerror(error);
  }
}

}  // namespace

Result<std::unique_ptr<Disk>> Disk::Create(std::shared_ptr<BlockImage> image, std::string name,
                                           Post post, Report report) {
  std::unique_ptr<Disk> disk(
      new Disk(std::move(image), std::move(name), std::move(post), std::move(report)));
  auto worker = StartWorker([raw = disk.get()] { raw->Work(); });
  if (!worker.ok())
    return Error{"no thread for disk '" + disk->name_ + "': " + worker.error().message};
  disk->worker_ = std::move(*worker);
  return disk;
}

Disk::Disk(std::shared_ptr<BlockImage> image, std::string name, Post post, Report report)
    : image_(std::move(image)),
      name_(std::move(name)),
      post_(std::move(post)),
      report_(std::move(report)) {}

Disk::~Disk() {
  if (!worker_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  submitted_.notify_one();
  worker_.join();
}

void Disk::Submit(std::shared_ptr<Request> request) {
  {
    const std::lock_guard lock(mutex_);
    ALIBI_CHECK(queue_.size() < kMaxRequests, "devices bound what they submit");
    queue_.push_back(std::move(request));
    unserved_.fetch_add(1, std::memory_order_relaxed);
  }
  submitted_.notify_one();
}

bool Disk::ReadNow(Request& request) {
  if (request.operation != Operation::kRead || LeavesImage(request.offset, request.bytes)) {
    return false;
  }
  // Nobody but this thread submits: the image is its own meanwhile.
  if (unserved_.load(std::memory_order_acquire) != 0) return false;
  if (!image_->ReadCached(request.offset, std::span(request.data).first(request.bytes))) {
    return false;
  }
  request.result = {};
  return true;
}

void Disk::Work() {
  sandbox::UnblockDeniedCalls();
  std::unique_lock lock(mutex_);
  for (;;) {
    submitted_.wait(lock, [this] { return ending_ || !queue_.empty(); });
    if (queue_.empty()) break;
    std::shared_ptr<Request> request = std::move(queue_.front());
    queue_.pop_front();
    const bool ending = ending_;
    lock.unlock();
    request->result = Serve(*request);
    unserved_.fetch_sub(1, std::memory_order_release);
    if (!request->result.ok()) NoteFailure(request->operation, request->result.error);
    if (!ending) post_([request] { request->done(*request); });
    lock.lock();
  }
  lock.unlock();
  const IoResult flushed = image_->Flush();
  if (!flushed.ok()) NoteFailure(Operation::kFlush, flushed.error);
}

bool Disk::LeavesImage(u64 offset, u64 bytes) const {
  return bytes > image_->size_bytes() || offset > image_->size_bytes() - bytes;
}

IoResult Disk::Serve(Request& request) {
  const u64 bytes = request.operation == Operation::kFlush ? 0 : request.bytes;
  if (LeavesImage(request.offset, bytes)) return {EIO};
  if (bytes == 0 && request.operation != Operation::kFlush) return {};
  IoResult result;
  switch (request.operation) {
    case Operation::kRead:
      return image_->Read(request.offset, std::span(request.data).first(bytes));
    case Operation::kFlush:
      return image_->Flush();
    case Operation::kWrite:
      result = image_->Write(request.offset, std::span<const u8>(request.data).first(bytes));
      break;
    case Operation::kDiscard:
      result = image_->Discard(request.offset, request.bytes);
      break;
    case Operation::kWriteZeroes:
      result = image_->WriteZeroes(request.offset, request.bytes, request.may_unmap);
      break;
  }
  return result.ok() && request.durable ? image_->Flush() : result;
}

void Disk::NoteFailure(Operation operation, int error) {
  const std::pair kind(operation, error);
  if (std::find(reported_.begin(), reported_.end(), kind) != reported_.end()) return;
  reported_.push_back(kind);
  if (report_) {
    report_("disk '" + name_ + "': " + NameOf(operation) + " failed: " + Reason(error) +
            "; the guest sees I/O errors");
  }
}

}  // namespace alibi::block
