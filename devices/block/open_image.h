// SPDX-License-Identifier: Apache-2.0
// Opens a disk image in the format it is said to have.
//
// A format is never guessed from contents: whoever may write a raw disk could make it look like an
// image that names other files of the host. It is given, or the file's name says it (.qcow2, .vmdk,
// .vdi, .vhdx, .vhd; raw otherwise), and a file that begins like another format is refused.
#ifndef ALIBI_DEVICES_BLOCK_OPEN_IMAGE_H_
#define ALIBI_DEVICES_BLOCK_OPEN_IMAGE_H_

#include <memory>
#include <string>

#include "base/result.h"
#include "devices/block/image.h"

namespace alibi::block {

struct ImageOptions {
  std::string path;
  std::string format = {};  // raw, qcow2, vmdk, vdi, vhdx, vpc; empty: by the name
  bool read_only = false;
  bool snapshot = false;  // writes are forgotten at the end; the image is opened read-only
  u64 most_snapshot_bytes = u64{16} << 30;  // of what is written, in a file of its own
  // The files that the image names may be used: whoever made it chose them.
  bool allow_backing = false;
  bool confined = true;  // the program that reads other formats can open nothing else
};

enum class OpenFailure : u8 {
  kUnreadable,   // missing, no permission, a directory, in use
  kBadImage,     // empty, damaged, another format
  kRefused,      // it names other files
  kUnavailable,  // this host lacks a program
};

// `*failure` says what kind of error came back.
Result<std::unique_ptr<BlockImage>> OpenImage(const ImageOptions& options, OpenFailure* failure);

// "raw, qcow2, ...": for help texts.
std::string FormatList();
bool IsFormat(const std::string& name);

}  // namespace alibi::block

#endif  // ALIBI_DEVICES_BLOCK_OPEN_IMAGE_H_
