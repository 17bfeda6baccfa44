// SPDX-License-Identifier: Apache-2.0
#include "cli/display.h"

#include <errno.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <string_view>
#include <utility>

#include "base/worker_thread.h"

namespace alibi::vmm {
namespace {

using devices::TextScreen;

// Code page 437, control codes as the glyphs they have in a VGA's font.
constexpr char16_t kLow[33] = u" ☺☻♥♦♣♠•◘○◙♂♀♪♫☼►◄↕‼¶§▬↨↑↓→←∟↔▲▼";
constexpr char16_t kHigh[130] =
    u"⌂ÇüéâäàåçêëèïîìÄÅÉæÆôöòûùÿÖÜ¢£¥₧ƒáíóúñÑªº¿⌐¬½¼¡«»░▒▓│┤╡╢╖╕╣║╗╝╜╛┐"
    u"└┴┬├─┼╞╟╚╔╩╦╠═╬╧╨╤╥╙╘╒╓╫╪┘┌█▄▌▐▀αßΓπΣσµτΦΘΩδ∞φε∩≡±≥≤⌠⌡÷≈°∙·√ⁿ²■\u00a0";

void AppendCharacter(std::string* to, u8 code) {
  const char16_t unicode = code < 0x20 ? kLow[code] : code < 0x7f ? code : kHigh[code - 0x7f];
  if (unicode < 0x80) {
    to->push_back(static_cast<char>(unicode));
  } else if (unicode < 0x800) {
    to->push_back(static_cast<char>(0xc0 | unicode >> 6));
    to->push_back(static_cast<char>(0x80 | (unicode & 0x3f)));
  } else {
    to->push_back(static_cast<char>(0xe0 | unicode >> 12));
    to->push_back(static_cast<char>(0x80 | (unicode >> 6 & 0x3f)));
    to->push_back(static_cast<char>(0x80 | (unicode & 0x3f)));
  }
}

void AppendColours(std::string* to, const TextScreen& screen, const TextScreen::Cell& cell) {
  const TextScreen::Rgb& front = screen.colours[cell.foreground & 15];
  const TextScreen::Rgb& back = screen.colours[cell.background & 15];
  *to += fmt::format("\x1b[0;38;2;{};{};{};48;2;{};{};{}{}m", front.red, front.green, front.blue,
                     back.red, back.green, back.blue, cell.blink ? ";5" : "");
}

bool SameLook(const TextScreen::Cell& a, const TextScreen::Cell& b) {
  return a.foreground == b.foreground && a.background == b.background && a.blink == b.blink;
}

constexpr char kTakeOver[] = "\x1b[?1049h\x1b[2J";
constexpr char kRestore[] = "\x1b[0m\x1b[?25h\x1b[?1049l";

}  // namespace

std::string DrawingOf(const TextScreen* before, const TextScreen& now) {
  if (before != nullptr && *before == now) return "";
  const bool all = before == nullptr || before->columns != now.columns ||
                   before->rows != now.rows || before->colours != now.colours;
  std::string text = "\x1b[?25l";
  if (all) text += "\x1b[0m\x1b[2J";
  if (now.columns == 0) return text + "\x1b[H[the guest's display is in a graphics mode, or off]";
  const TextScreen::Cell* look = nullptr;
  std::size_t next = ~std::size_t{0};  // where the terminal's cursor is
  for (std::size_t i = 0; i < now.cells.size(); ++i) {
    const TextScreen::Cell& cell = now.cells[i];
    if (!all && before->cells[i] == cell) continue;
    if (next != i || i % now.columns == 0) {
      text += fmt::format("\x1b[{};{}H", i / now.columns + 1, i % now.columns + 1);
    }
    if (look == nullptr || !SameLook(*look, cell)) AppendColours(&text, now, cell);
    AppendCharacter(&text, cell.character);
    look = &cell;
    next = i + 1;
  }
  text += "\x1b[0m";
  if (now.cursor != TextScreen::kNoCursor) {
    const unsigned cursor = static_cast<unsigned>(now.cursor);
    text += fmt::format("\x1b[{};{}H\x1b[?25h", cursor / now.columns + 1, cursor % now.columns + 1);
  }
  return text;
}

std::string PlainText(const TextScreen& screen) {
  std::string text;
  std::size_t end = 0;
  for (unsigned row = 0; row < screen.rows; ++row) {
    std::size_t line_end = text.size();
    for (unsigned column = 0; column < screen.columns; ++column) {
      const u8 code = screen.cells[u64{row} * screen.columns + column].character;
      AppendCharacter(&text, code);
      if (code != ' ' && code != 0) line_end = text.size();
    }
    const bool empty = line_end == 0 || text[line_end - 1] == '\n';
    text.resize(line_end);
    text.push_back('\n');
    if (!empty) end = text.size();
  }
  text.resize(end);
  return text;
}

const char* Display::RestoreSequence() { return kRestore; }

Result<std::unique_ptr<Display>> Display::Create(int terminal_fd) {
  std::unique_ptr<Display> display(new Display(terminal_fd));
  auto worker = StartWorker([raw = display.get()] { raw->Draw(); });
  if (!worker.ok()) {
    return Error{"display: cannot start a thread: " + worker.error().message +
                 "; raise the limit on processes (ulimit -u)"};
  }
  display->thread_ = std::move(*worker);
  return display;
}

Display::~Display() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    quit_ = true;
  }
  wake_.notify_one();
  thread_.join();
  Write(kRestore);
}

void Display::Show(TextScreen screen) {
  {
    const std::lock_guard lock(mutex_);
    next_ = std::move(screen);
  }
  wake_.notify_one();
}

void Display::Draw() {
  std::optional<TextScreen> shown;
  if (!Write(kTakeOver)) return;
  for (;;) {
    TextScreen screen;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return next_.has_value() || quit_; });
      if (quit_) return;
      screen = std::move(*next_);
      next_.reset();
    }
    const std::string text = DrawingOf(shown ? &*shown : nullptr, screen);
    if (!text.empty() && !Write(text)) return;  // the terminal is gone
    shown = std::move(screen);
  }
}

bool Display::Write(const std::string& text) {
  std::string_view left = text;
  while (!left.empty()) {
    const ssize_t written = write(fd_, left.data(), left.size());
    if (written >= 0) {
      left.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno == EAGAIN) {
      pollfd fd{fd_, POLLOUT, 0};
      poll(&fd, 1, 100);
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

}  // namespace alibi::vmm
