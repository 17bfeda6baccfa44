// SPDX-License-Identifier: Apache-2.0
#include "cli/console.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "cli/cli.h"
#include "cli/keys.h"
#include "cli/terminal_filter.h"
#include "pc/boot/file.h"

namespace alibi::vmm {
namespace {

// Debian's package seabios. Without it, firmware finds a display that it cannot use.
constexpr char kVideoBios[] = "/usr/share/seabios/vgabios-stdvga.bin";

}  // namespace

Console::~Console() {
  if (owns_serial_) close(serial_fd_);
  if (dump_file_ != nullptr) std::fclose(dump_file_);
}

void Console::AddOptions(CLI::App* app) {
  app->add_option("--display", display_,
                  "none, or text: the VGA's text screen on the terminal, whose keys are the\n"
                  "keyboard's; without a terminal the last screen is printed at the end (none)")
      ->check(CLI::IsMember({"none", "text"}));
  app->add_option("--serial", serial_,
                  "where COM1's output goes: stdio, none, or a file (stdio; none with\n"
                  "--display=text)")
      ->type_name("FILE");
  app->add_option("--serial-size", serial_size_,
                  "at most so much into a file, of each serial port; the rest is left out: bytes,\n"
                  "or with K, M, G (" +
                      serial_size_ + ")");
  app->add_flag("--raw", raw_,
                "on a terminal: every byte that the guest prints, control sequences and all; else\n"
                "those that do more than draw are left out");
  app->add_option("--screen-dump", dump_name_, "write the last text screen to FILE at the end")
      ->type_name("FILE");
}

Console::Failure Console::Open() {
  auto size = ParseSize(serial_size_);
  if (!size.ok()) return {kUsage, "--serial-size: " + size.error().message};
  most_serial_bytes_ = *size;
  const bool text = display_ == "text";
  draws_ = text && isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
  if (serial_.empty()) serial_ = text ? "none" : "stdio";
  if (serial_ == "stdio") {
    if (draws_) {
      return {kUsage,
              "--serial: the terminal cannot be the screen and the serial port; give a file"};
    }
    serial_fd_ = STDOUT_FILENO;
  } else if (serial_ != "none") {
    serial_fd_ = open(serial_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    owns_serial_ = serial_fd_ >= 0;
    if (!owns_serial_) {
      return {kCannotCreate,
              fmt::format("--serial: '{}' cannot be written: {}", serial_, std::strerror(errno))};
    }
  }
  if (!dump_name_.empty()) {
    dump_file_ = std::fopen(dump_name_.c_str(), "we");
    if (dump_file_ == nullptr) return CannotDump();
  }
  return {};
}

Console::Failure Console::CannotDump() const {
  return {kCannotCreate, fmt::format("--screen-dump: '{}' cannot be written: {}", dump_name_,
                                     std::strerror(errno))};
}

OutputFile Console::Output(int fd) const {
  return {fd, most_serial_bytes_, FilterForOutput(fd, raw_)};
}

void Console::Configure(PcMachineConfig* config) {
  config->output = Output(serial_fd_);
  config->input_fd = STDIN_FILENO;
  if (display_ == "text") config->keys = KeysOf;
  if (draws_) {
    config->screen = [this](devices::TextScreen screen) {
      if (screen_ != nullptr) screen_->Show(std::move(screen));
    };
  }
  if (config->bios.empty()) return;
  if (auto rom = loader::ReadWholeFile(kVideoBios); rom.ok()) config->vga_rom = std::move(*rom);
}

Status Console::Begin() {
  if (!draws_) return Ok{};
  auto display = Display::Create(STDOUT_FILENO);
  if (!display.ok()) return display.error();
  screen_ = std::move(*display);
  return Ok{};
}

void Console::End() { screen_.reset(); }

Console::Failure Console::Dump(const devices::TextScreen& last) {
  const std::string text = PlainText(last);
  if (display_ == "text" && !draws_) fmt::print("{}", text);
  if (dump_file_ == nullptr) return {};
  std::FILE* file = std::exchange(dump_file_, nullptr);
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (std::fclose(file) != 0 || !written) return CannotDump();
  return {};
}

}  // namespace alibi::vmm
