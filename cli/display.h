// SPDX-License-Identifier: Apache-2.0
// Draws a text screen in a terminal: ANSI escape sequences (ECMA-48, and xterm's 24-bit colours),
// UTF-8 for code page 437.
#ifndef ALIBI_CLI_DISPLAY_H_
#define ALIBI_CLI_DISPLAY_H_

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/result.h"
#include "devices/console/text_screen.h"

namespace alibi::vmm {

// What changes a terminal that shows `before` into one that shows `now`; null: it shows nothing,
// and is cleared first. Moves the cursor only where it must, and sets colours only when they
// change.
std::string DrawingOf(const devices::TextScreen* before, const devices::TextScreen& now);

// The characters alone: a line for each row, without the spaces at its end, no empty lines at the
// end of the screen.
std::string PlainText(const devices::TextScreen& screen);

// A terminal that shows a screen, from a thread of its own: the terminal may be slow.
class Display {
 public:
  // Takes the terminal over (its other screen, where it has two).
  static Result<std::unique_ptr<Display>> Create(int terminal_fd);
  // Gives the terminal back.
  ~Display();
  Display(const Display&) = delete;
  Display& operator=(const Display&) = delete;

  // From any thread; returns at once. A screen that comes while another one is being drawn waits,
  // and only the newest does.
  void Show(devices::TextScreen screen);

  // What gives the terminal back; may be written again, also by a signal handler.
  static const char* RestoreSequence();

 private:
  explicit Display(int fd) : fd_(fd) {}
  void Draw();
  bool Write(const std::string& text);

  const int fd_;
  std::mutex mutex_;  // of next_ and quit_
  std::condition_variable wake_;
  std::optional<devices::TextScreen> next_;
  bool quit_ = false;
  std::thread thread_;
};

}  // namespace alibi::vmm

#endif  // ALIBI_CLI_DISPLAY_H_
