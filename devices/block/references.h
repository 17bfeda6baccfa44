// SPDX-License-Identifier: Apache-2.0
// The other files of the host that a disk image names: backing files, data files, extents, parents.
//
// Whoever made the image chose those names: an image from elsewhere could name any file that its
// user may read or write. So they are found here, in the image's own headers, before a program
// that follows them gets to see the image.
#ifndef ALIBI_DEVICES_BLOCK_REFERENCES_H_
#define ALIBI_DEVICES_BLOCK_REFERENCES_H_

#include <string>
#include <vector>

#include "base/result.h"
#include "base/types.h"

namespace alibi::block {

struct Reference {
  // What is not in the image itself: what lies below it, which is only read, or part of its own
  // contents.
  enum class Kind : u8 { kBacking, kData };
  Kind kind;
  std::string name;  // as the image has it: any bytes; empty: it is there, and names nothing
  // Of a backing file, if the image says it: one that may name files itself.
  std::string format = {};
};

// What the image in `fd` names, of QEMU's format `format`; damaged headers name nothing.
std::vector<Reference> FindReferences(int fd, const std::string& format);

// The format that the file's first bytes look like, or raw: one of QEMU's.
std::string FormatByContents(int fd);

// A file that an image may use.
struct NamedFile {
  std::string path;
  bool written = false;
  bool holds_data = false;  // of the qcow2 image: QEMU would look for it in its working folder
};
// All files that `path` and what it names name; none of `path` itself. An error for what is not to
// be followed: a name that is no file's, more than kMaxReferences.
inline constexpr unsigned kMaxReferences = 256;
Result<std::vector<NamedFile>> FollowReferences(const std::string& path, const std::string& format);

// For messages: at most 100 characters, those of control replaced.
std::string Printable(const std::string& name);

}  // namespace alibi::block

#endif  // ALIBI_DEVICES_BLOCK_REFERENCES_H_
