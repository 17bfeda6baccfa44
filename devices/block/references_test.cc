// SPDX-License-Identifier: Apache-2.0
// Images that name the host's files: found in every format, refused, and out of the image server's
// reach even when they are not found.
#include "devices/block/references.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <string>

#include "base/file_descriptor.h"
#include "base/sandbox/file_rules.h"
#include "devices/block/image_server.h"
#include "devices/block/nbd_image.h"
#include "devices/block/open_image.h"

namespace alibi::block {
namespace {

using Kind = Reference::Kind;

std::string Path(const std::string& name) {
  const char* folder = std::getenv("TEST_TMPDIR");
  return std::string(folder == nullptr ? "/tmp" : folder) + "/" + name;
}

std::string MakeFile(const std::string& name, const std::string& bytes) {
  const std::string path = Path(name);
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

std::string Big(u64 value, unsigned size) {
  std::string bytes;
  for (unsigned i = size; i-- != 0;) bytes += static_cast<char>(value >> (8 * i));
  return bytes;
}
std::string Little(u64 value, unsigned size) {
  const std::string bytes = Big(value, size);
  return {bytes.rbegin(), bytes.rend()};
}
void Put(std::string* to, std::size_t at, const std::string& bytes) {
  if (to->size() < at + bytes.size()) to->resize(at + bytes.size());
  to->replace(at, bytes.size(), bytes);
}

// --- Headers made by hand, by the formats' documents ---

std::string Qcow2(u64 features, const std::string& backing, const std::string& extensions) {
  std::string image(104, '\0');
  Put(&image, 0, "QFI\xfb" + Big(3, 4));
  Put(&image, 8,
      Big(backing.empty() ? 0 : 4096, 8) + Big(backing.size(), 4) + Big(16, 4) + Big(1 << 20, 8));
  Put(&image, 72, Big(features, 8));
  Put(&image, 100, Big(104, 4));
  Put(&image, 104, extensions + Big(0, 8));
  Put(&image, 4096, backing);
  return image;
}
std::string Extension(u32 type, const std::string& data) {
  std::string bytes = Big(type, 4) + Big(data.size(), 4) + data;
  bytes.resize((bytes.size() + 7) & ~std::size_t{7});
  return bytes;
}

std::string SparseVmdk(u64 capacity, u64 descriptor_sector, const std::string& descriptor) {
  std::string image(512, '\0');
  Put(&image, 0,
      "KDMV" + Little(1, 4) + Little(3, 4) + Little(capacity, 8) + Little(128, 8) +
          Little(descriptor_sector, 8) + Little(20, 8));
  Put(&image, descriptor_sector * 512, descriptor);
  return image;
}

std::string Utf16(const std::string& text, bool big) {
  std::string bytes;
  for (const char c : text)
    bytes += big ? Big(static_cast<u8>(c), 2) : Little(static_cast<u8>(c), 2);
  return bytes;
}

std::string DifferencingVhd(const std::string& parent) {
  std::string footer(512, '\0');
  Put(&footer, 0, "conectix");
  Put(&footer, 16, Big(512, 8));
  Put(&footer, 60, Big(4, 4));
  std::string image = footer;
  Put(&image, 512, "cxsparse");
  Put(&image, 512 + 64, Utf16(parent, true));
  Put(&image, 512 + 1024, footer);
  return image;
}

std::string Guid(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

std::string DifferencingVhdx(const std::string& parent) {
  constexpr std::size_t kMetadata = 2 << 20;
  std::string image = "vhdxfile";
  Put(&image, 192 << 10,
      "regi" + Little(0, 4) + Little(1, 4) + Little(0, 4) +
          Guid("06a27c8b90479a4bb8fe575f050f886e") + Little(kMetadata, 8));
  Put(&image, kMetadata, "metadata" + Little(0, 2) + Little(2, 2));
  Put(&image, kMetadata + 32,
      Guid("3767a1ca36fa434db3b633f0aa44e76b") + Little(65536, 4) + Little(8, 4));
  Put(&image, kMetadata + 64,
      Guid("2d5fd3a80bb34d45abf7d3d84834ab0c") + Little(65600, 4) + Little(500, 4));
  Put(&image, kMetadata + 65536, Little(1 << 20, 4) + Little(2, 4));
  const std::string key = Utf16("relative_path", false), value = Utf16(parent, false);
  Put(&image, kMetadata + 65600,
      std::string(16, '\0') + Little(0, 2) + Little(1, 2) + Little(100, 4) + Little(200, 4) +
          Little(key.size(), 2) + Little(value.size(), 2));
  Put(&image, kMetadata + 65600 + 100, key);
  Put(&image, kMetadata + 65600 + 200, value);
  return image;
}

std::vector<Reference> Find(const std::string& format, const std::string& image) {
  const FileDescriptor file(open(MakeFile("found.img", image).c_str(), O_RDONLY));
  return FindReferences(file.get(), format);
}

TEST_CASE("References: each format's places") {
  const std::string secret = "/etc/shadow";
  const struct {
    const char* format;
    std::string image;
    Kind kind;
  } rows[] = {
      {"qcow2", Qcow2(0, secret, ""), Kind::kBacking},
      {"qcow2", Qcow2(4, "", Extension(0x44415441, secret)), Kind::kData},
      {"qcow2",
       Qcow2(4, "", Extension(0x6803f857, std::string(96, 'x')) + Extension(0x44415441, secret)),
       Kind::kData},
      {"vmdk", "# Disk DescriptorFile\nversion=1\nRW 2048 FLAT \"/etc/shadow\" 0\n", Kind::kData},
      {"vmdk", "#x\r\n  RW\t2048\tVMFS \"/etc/shadow\"\r\n", Kind::kData},
      {"vmdk",
       "# Disk DescriptorFile\n" + std::string(90000, '#') + "\nRW 1 SPARSE \"/etc/shadow\"",
       Kind::kData},
      {"vmdk", SparseVmdk(2048, 1, "parentCID=1\nparentFileNameHint=\"/etc/shadow\"\n"),
       Kind::kBacking},
      {"vmdk", SparseVmdk(2048, 50, "parentFileNameHint=\"/etc/shadow\"\n"), Kind::kBacking},
      {"vmdk", SparseVmdk(0, 1, "RW 2048 FLAT \"/etc/shadow\" 0\n"), Kind::kData},
      {"vpc", DifferencingVhd(secret), Kind::kBacking},
      {"vhdx", DifferencingVhdx(secret), Kind::kBacking},
  };
  for (const auto& row : rows) {
    INFO(row.format << " " << (&row - rows));
    const auto found = Find(row.format, row.image);
    REQUIRE(found.size() >= 1);
    CHECK(found[0].name == secret);
    CHECK(found[0].kind == row.kind);

    const std::string path = MakeFile("hostile.img", row.image);
    OpenFailure failure = OpenFailure::kUnreadable;
    auto image = OpenImage({path, row.format}, &failure);
    REQUIRE_FALSE(image.ok());
    CHECK(failure == OpenFailure::kRefused);
    CHECK_THAT(image.error().message, Catch::Contains(secret));
  }
  const auto nameless = Find("qcow2", Qcow2(4, "", ""));
  REQUIRE(nameless.size() == 1);
  CHECK(nameless[0].name.empty());
}

TEST_CASE("References: images that name nothing") {
  CHECK(Find("qcow2", Qcow2(0, "", "")).empty());
  CHECK(Find("vmdk", SparseVmdk(2048, 1, "parentCID=ffffffff\nRW 2048 SPARSE \"found.img\"\n"))
            .empty());
  CHECK(Find("raw", Qcow2(0, "/etc/shadow", "")).empty());
  CHECK(Find("vhdx", "").empty());
}

TEST_CASE("References: damaged headers") {
  std::mt19937_64 random(11);
  const std::pair<const char*, std::string> images[] = {
      {"qcow2", Qcow2(4, "/etc/shadow", Extension(0x44415441, "/etc/shadow"))},
      {"vmdk", SparseVmdk(0, 1, "RW 2048 FLAT \"/etc/shadow\" 0\n")},
      {"vpc", DifferencingVhd("/etc/shadow")},
      {"vhdx", DifferencingVhdx("/etc/shadow").substr(0, 300 << 10)}};
  const std::string path = Path("damaged.img");
  for (const auto& [format, sound] : images) {
    for (int round = 0; round < 300; ++round) {
      std::string bytes =
          sound.substr(0, random() % 4 == 0 ? random() % sound.size() : sound.size());
      for (std::size_t i = 0; i < 1 + random() % 8 && !bytes.empty(); ++i) {
        const std::size_t at = random() % std::min<std::size_t>(bytes.size(), 160);
        bytes[random() % 2 == 0 ? at : random() % bytes.size()] =
            static_cast<char>(random() % 2 == 0 ? random() : 0xff);
      }
      std::ofstream(path, std::ios::binary) << bytes;
      const FileDescriptor file(open(path.c_str(), O_RDONLY));
      for (const Reference& reference : FindReferences(file.get(), format)) {
        REQUIRE(Printable(reference.name).size() <= 100);
      }
    }
  }
}

TEST_CASE("References: what a message shows of a name") {
  CHECK(Printable("a\x1b[31m\n\xff") == "a?[31m??");
  CHECK(Printable(std::string(1000, 'x')).size() == 100);
}

// --- Images of qemu-img's ---

bool HaveQemu() {
  if (!NbdImage::FindProgram().empty() && std::system("command -v qemu-img >/dev/null") == 0) {
    return true;
  }
  WARN("SKIP: qemu-utils is not installed");
  return false;
}

void QemuImg(const std::string& arguments) {
  REQUIRE(std::system(("cd '" + Path("") + "' && qemu-img create -q " + arguments).c_str()) == 0);
}

struct HostileRow {
  const char* name;
  const char* format;
  const char* arguments;  // for qemu-img
  const char* names;      // the other file
};
constexpr HostileRow kHostile[] = {
    {"backed.qcow2", "qcow2", "-f qcow2 -b secret.raw -F raw backed.qcow2", "secret.raw"},
    {"data.qcow2", "qcow2", "-f qcow2 -o data_file=outside.raw,data_file_raw=on data.qcow2 1M",
     "outside.raw"},
    {"flat.vmdk", "vmdk", "-f vmdk -o subformat=monolithicFlat flat.vmdk 1M", "flat-flat.vmdk"},
    {"backed.vmdk", "vmdk", "-f vmdk -b below.vmdk -F vmdk backed.vmdk", "below.vmdk"},
};

// Makes the image, whose names are relative or absolute, with "secret" where the other file's
// contents begin.
void Make(const HostileRow& row, bool absolute) {
  MakeFile("secret.raw", "secret" + std::string((1 << 20) - 6, '\0'));
  QemuImg("-f vmdk below.vmdk 1M");
  REQUIRE(std::system(
              ("qemu-io -f vmdk -c 'write -P 0x73 0 512' '" + Path("below.vmdk") + "' >/dev/null")
                  .c_str()) == 0);
  std::string arguments = row.arguments;
  if (const std::size_t at = arguments.find("data_file="); absolute && at != std::string::npos) {
    arguments.insert(at + 10, Path(""));
  }
  QemuImg(arguments);
  const std::string file = Path(row.names);
  if (std::string(row.names) == "outside.raw" || std::string(row.names) == "flat-flat.vmdk") {
    const FileDescriptor other(open(file.c_str(), O_WRONLY));
    REQUIRE(pwrite(other.get(), "secret", 6, 0) == 6);
  }
}

char FirstByte(BlockImage& image) {
  std::vector<u8> sector(512);
  REQUIRE(image.Read(0, sector).ok());
  return static_cast<char>(sector[0]);
}

TEST_CASE("Hostile images: refused, or read where the user allows it") {
  if (!HaveQemu()) return;
  for (const HostileRow& row : kHostile) {
    INFO(row.name);
    Make(row, false);
    ImageOptions options{Path(row.name)};
    OpenFailure failure = OpenFailure::kUnreadable;
    auto refused = OpenImage(options, &failure);
    REQUIRE_FALSE(refused.ok());
    CHECK(failure == OpenFailure::kRefused);
    CHECK_THAT(refused.error().message, Catch::Contains(row.names));
    CHECK_THAT(refused.error().message, Catch::Contains("backing=allow"));
    options.allow_backing = true;
    auto allowed = OpenImage(options, &failure);
    if (!allowed.ok()) FAIL(allowed.error().message);
    CHECK(FirstByte(**allowed) == 's');
    REQUIRE((*allowed)->Write(512, std::vector<u8>(512, 7)).ok());
    REQUIRE((*allowed)->Flush().ok());
  }
}

TEST_CASE("Hostile images: names that are no files are not followed") {
  OpenFailure failure = OpenFailure::kUnreadable;
  for (const std::string name :
       {"nbd://127.0.0.1:10809/x", "json:{\"driver\":\"file\"}", "https://example.org/x", ""}) {
    ImageOptions options{
        MakeFile("protocol.qcow2", name.empty() ? Qcow2(4, "", "") : Qcow2(0, name, ""))};
    options.allow_backing = true;
    REQUIRE_FALSE(OpenImage(options, &failure).ok());
    CHECK(failure == OpenFailure::kRefused);
  }
  ImageOptions itself{MakeFile("itself.qcow2", Qcow2(0, "itself.qcow2", ""))};
  itself.allow_backing = true;
  REQUIRE_FALSE(OpenImage(itself, &failure).ok());
  CHECK(failure == OpenFailure::kRefused);
}

// As if the names had not been found: the server follows them, and the kernel does not let it.
TEST_CASE("The image server reaches no file that it was not told of") {
  if (!HaveQemu()) return;
  if (sandbox::LandlockVersion() == 0) {
    WARN("SKIP: this kernel has no Landlock");
    return;
  }
  for (const HostileRow& row : kHostile) {
    INFO(row.name);
    Make(row, true);
    NbdOptions options{Path(row.name), row.format};
    options.others = {{Path("something-else")}};  // so that QEMU looks for a backing file
    CHECK_FALSE(NbdImage::Open(NbdImage::FindProgram(), options).ok());
    options.confined = false;
    auto image = NbdImage::Open(NbdImage::FindProgram(), options);
    REQUIRE(image.ok());
    CHECK(FirstByte(**image) == 's');
  }
}

TEST_CASE("What the image server says takes no more memory than is read of it") {
  const std::string size = Path("said");
  const std::string server =
      MakeFile("server",
               "#!/bin/sh\nfor i in $(seq 2000); do echo 'no image' >&2; done\n"
               "stat -L -c %s /proc/$$/fd/2 >'" +
                   size + "'\n");
  REQUIRE(chmod(server.c_str(), 0700) == 0);
  NbdOptions options;
  options.path = "image";
  options.format = "qcow2";
  options.confined = false;
  auto image = NbdImage::Open(server, options);
  REQUIRE_FALSE(image.ok());
  CHECK(image.error().message.find('\0') == std::string::npos);
  std::ifstream said(size);
  u64 bytes = 0;
  said >> bytes;
  CHECK(bytes == 4096);
}

TEST_CASE("The image server has no network and makes no processes") {
  if (access("/bin/bash", X_OK) != 0) {
    WARN("SKIP: bash, which stands for the server, is not installed");
    return;
  }
  const std::string mine = MakeFile("mine", "mine\n"), other = MakeFile("other", "other\n");
  const auto run = [&](const std::string& script, bool confined) {
    const FileDescriptor words(memfd_create("words", 0));
    ServerOptions options;
    options.command = {"/bin/bash", "--norc", "-c", script};
    options.files = {{mine, false}};
    options.confined = confined;
    options.messages = words.get();
    auto server = StartImageServer(options);
    REQUIRE(server.ok());
    close(server->connection);
    int status = 0;
    REQUIRE(waitpid(server->process, &status, 0) == server->process);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  };
  const std::string udp = "exec 9<>/dev/udp/127.0.0.1/9";
  const std::string read_other = "read line < '" + other + "'";
  CHECK(run("read line < '" + mine + "'", true) == 0);
  CHECK(run("test $LISTEN_PID = $$ -a $LISTEN_FDS = 1", true) == 0);
  CHECK(run(udp, false) == 0);
  CHECK(run(udp, true) != 0);
  CHECK(run("(exit 0)", false) == 0);
  CHECK(run("(exit 0)", true) != 0);
  CHECK(run("kill -0 " + std::to_string(getpid()), false) == 0);
  CHECK(run("kill -0 " + std::to_string(getpid()), true) != 0);
  CHECK(run(read_other, false) == 0);
  if (sandbox::LandlockVersion() != 0) {
    CHECK(run(read_other, true) != 0);
    CHECK(run("echo x >> '" + mine + "'", true) != 0);
  }
}

}  // namespace
}  // namespace alibi::block
