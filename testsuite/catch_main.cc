// SPDX-License-Identifier: Apache-2.0
// The main function of every Catch2 test, and a listener that reports each test case to Bazel.
//
// Bazel passes $XML_OUTPUT_FILE and, where a test writes nothing there, makes up a file that knows
// one case per target. The file this listener keeps is well-formed at every moment: while a case
// runs, the file says that the case did not finish, so a crash or a timeout is a failed case with
// a name, and the cases before it still count.

#define CATCH_CONFIG_MAIN
#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

namespace {

std::string XmlEscaped(std::string_view text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        // Control characters are not XML, escaped or not.
        out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return out;
}

class BazelXmlListener : public Catch::TestEventListenerBase {
 public:
  using TestEventListenerBase::TestEventListenerBase;

  ~BazelXmlListener() override {
    if (fd_ >= 0) close(fd_);
  }

  void testRunStarting(const Catch::TestRunInfo& run) override {
    const char* path = std::getenv("XML_OUTPUT_FILE");
    if (path == nullptr) return;
    fd_ = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    owner_ = getpid();
    Keep("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n<testsuite name=\"" +
         XmlEscaped(run.name) + "\">\n");
  }

  void testCaseStarting(const Catch::TestCaseInfo& info) override {
    name_ = XmlEscaped(info.name);
    failure_.clear();
    start_ = std::chrono::steady_clock::now();
    WriteTail(Row("<error message=\"the process ended inside this test case\"/>"));
  }

  bool assertionEnded(const Catch::AssertionStats& stats) override {
    const Catch::AssertionResult& result = stats.assertionResult;
    if (!result.isOk() && failure_.empty()) {
      failure_ = std::string(result.getSourceInfo().file) + ":" +
                 std::to_string(result.getSourceInfo().line) + ": " +
                 (result.hasExpression() ? result.getExpandedExpression()
                                         : std::string(result.getMessage()));
    }
    return true;
  }

  void testCaseEnded(const Catch::TestCaseStats& stats) override {
    std::string inner;
    if (!stats.totals.testCases.allOk()) {
      inner = "<failure message=\"" + XmlEscaped(failure_) + "\"/>";
    }
    Keep(Row(inner));
  }

 private:
  std::string Row(const std::string& inner) const {
    double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    return "<testcase name=\"" + name_ + "\" time=\"" + std::to_string(seconds) + "\">" + inner +
           "</testcase>\n";
  }

  // Writes `text` for good: what follows comes after it.
  void Keep(const std::string& text) {
    off_t at = kept_;
    kept_ += static_cast<off_t>(text.size());
    WriteAt(at, text + kClosing);
  }

  void WriteTail(const std::string& text) { WriteAt(kept_, text + kClosing); }

  void WriteAt(off_t at, const std::string& text) {
    // A forked child inherits the listener; the report is the parent's.
    if (fd_ < 0 || getpid() != owner_) return;
    if (pwrite(fd_, text.data(), text.size(), at) != static_cast<ssize_t>(text.size()) ||
        ftruncate(fd_, at + static_cast<off_t>(text.size())) != 0) {
      std::perror("catch_main: cannot write $XML_OUTPUT_FILE");
    }
  }

  static constexpr const char* kClosing = "</testsuite>\n</testsuites>\n";

  int fd_ = -1;
  pid_t owner_ = 0;
  off_t kept_ = 0;
  std::string name_;
  std::string failure_;
  std::chrono::steady_clock::time_point start_;
};

CATCH_REGISTER_LISTENER(BazelXmlListener)

}  // namespace
