// SPDX-License-Identifier: Apache-2.0
#include "devices/block/open_image.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "base/file_descriptor.h"
#include "devices/block/nbd_image.h"
#include "devices/block/raw_image.h"
#include "devices/block/references.h"
#include "devices/block/snapshot_image.h"

namespace alibi::block {
namespace {

struct Format {
  const char* name;  // QEMU's driver
  const char* extensions[3];
};

constexpr const char* kRaw = "raw";
constexpr Format kFormats[] = {
    {"qcow2", {".qcow2", ".qcow"}}, {"vmdk", {".vmdk"}}, {"vdi", {".vdi"}}, {"vhdx", {".vhdx"}},
    {"vpc", {".vhd", ".vpc"}},
};

std::string FormatByName(const std::string& path) {
  for (const Format& format : kFormats) {
    for (const char* extension : format.extensions) {
      if (extension != nullptr && path.ends_with(extension)) return format.name;
    }
  }
  return kRaw;
}

struct Failure {
  OpenFailure kind;
  std::string why;
};

Result<u64> SizeOf(int fd, Failure* failure, bool* is_block_device) {
  struct stat info;
  if (fstat(fd, &info) != 0) return Error{std::strerror(errno)};
  *is_block_device = S_ISBLK(info.st_mode);
  u64 size = 0;
  if (S_ISDIR(info.st_mode)) return Error{"it is a directory"};
  if (*is_block_device) {
    if (ioctl(fd, BLKGETSIZE64, &size) != 0) return Error{std::strerror(errno)};
  } else if (S_ISREG(info.st_mode)) {
    size = static_cast<u64>(info.st_size);
  } else {
    return Error{"it is neither a regular file nor a block device"};
  }
  if (size == 0) {
    failure->kind = OpenFailure::kBadImage;
    return Error{"it is empty"};
  }
  return size;
}

// What the image names: refused, or, where the user allows it, told to the server.
Status Follow(int fd, const ImageOptions& options, const std::string& format, NbdOptions* server,
              Failure* failure) {
  const std::vector<Reference> references = FindReferences(fd, format);
  if (references.empty()) return Ok{};
  failure->kind = OpenFailure::kRefused;
  const Reference& first = references.front();
  const bool backing = first.kind == Reference::Kind::kBacking;
  if (format == "vhdx" || format == "vpc") {
    return Error{"it holds differences from '" + Printable(first.name) +
                 "' only, and qemu-nbd reads no such images; merge the two"};
  }
  if (!options.allow_backing) {
    return Error{std::string("it names another file of the host, '") + Printable(first.name) +
                 (backing ? "', to be read below it" : "', as part of its contents") +
                 "; say backing=allow if you trust who made the image"};
  }
  auto files = FollowReferences(options.path, format);
  if (!files.ok()) return files.error();
  server->others = std::move(*files);
  return Ok{};
}

Result<std::unique_ptr<BlockImage>> Open(const ImageOptions& options, Failure* failure) {
  failure->kind = OpenFailure::kUnreadable;
  const bool read_only = options.read_only || options.snapshot;
  // A folder cannot be opened for writing, but must be called one. O_EXCL is for block devices: it
  // refuses those that the host has mounted.
  struct stat info;
  if (stat(options.path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) {
    return Error{"it is a directory"};
  }
  const bool exclusive =
      !read_only && stat(options.path.c_str(), &info) == 0 && S_ISBLK(info.st_mode);
  FileDescriptor file(open(options.path.c_str(), (read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC |
                                                     O_NONBLOCK | (exclusive ? O_EXCL : 0)));
  if (file.get() < 0) {
    const bool protected_file = !read_only &&
                                (errno == EACCES || errno == EROFS || errno == EPERM) &&
                                access(options.path.c_str(), R_OK) == 0;
    return Error{std::strerror(errno) +
                 std::string(protected_file ? "; it can be read: say readonly or snapshot" : "")};
  }
  bool is_block_device = false;
  auto size = SizeOf(file.get(), failure, &is_block_device);
  if (!size.ok()) return size.error();
  const std::string format = options.format.empty() ? FormatByName(options.path) : options.format;
  const std::string looks_like = FormatByContents(file.get());
  // Formats without a mark at the beginning are told by their own driver.
  const bool mismatch = options.format.empty()
                            ? format != looks_like && format != "vpc"
                            : format != kRaw && looks_like != kRaw && format != looks_like;
  if (mismatch) {
    failure->kind = OpenFailure::kBadImage;
    if (format == kRaw) {
      return Error{"it begins like a " + looks_like + " image; say format=" + looks_like +
                   ", or format=raw if those bytes are the disk's own"};
    }
    return Error{"it is no " + format + " image; it looks like " + looks_like +
                 (options.format.empty() ? ": say format=" + looks_like : "")};
  }
  // For the other formats only to say so early: their program takes locks of its own.
  if (!RawImage::Lock(file.get(), read_only)) {
    return Error{read_only ? "another program is writing to it"
                           : "another program has it open; use snapshot, or end that program"};
  }
  if (format == kRaw) {
    fcntl(file.get(), F_SETFL, 0);
    return std::unique_ptr<BlockImage>(
        new RawImage(file.Release(), *size, read_only, is_block_device));
  }
  NbdOptions server{options.path, format, read_only};
  server.confined = options.confined;
  if (Status followed = Follow(file.get(), options, format, &server, failure); !followed.ok()) {
    return followed.error();
  }
  const std::string program = NbdImage::FindProgram();
  if (program.empty()) {
    failure->kind = OpenFailure::kUnavailable;
    return Error{format + " images need the program qemu-nbd; run: apt-get install qemu-utils"};
  }
  close(file.Release());  // with its lock
  failure->kind = OpenFailure::kBadImage;
  return NbdImage::Open(program, server);
}

}  // namespace

Result<std::unique_ptr<BlockImage>> OpenImage(const ImageOptions& options, OpenFailure* failure) {
  Failure why{OpenFailure::kUnreadable, ""};
  auto image = Open(options, &why);
  *failure = why.kind;
  if (!image.ok()) {
    // The program's messages name the image already.
    const std::string& message = image.error().message;
    if (message.starts_with("'")) return Error{"cannot open " + message};
    return Error{"cannot open '" + options.path + "': " + message};
  }
  if (!options.snapshot) return image;
  *failure = OpenFailure::kUnavailable;
  return SnapshotImage::Create(std::move(*image), options.most_snapshot_bytes);
}

std::string FormatList() {
  std::string list = kRaw;
  for (const Format& format : kFormats) list += std::string(", ") + format.name;
  return list;
}

bool IsFormat(const std::string& name) {
  if (name == kRaw) return true;
  for (const Format& format : kFormats) {
    if (name == format.name) return true;
  }
  return false;
}

}  // namespace alibi::block
