// SPDX-License-Identifier: Apache-2.0
#include "frobos/compute/run32.h"

namespace alibi::frobos {
namespace {

struct Program {
  const char* name;
  uint64_t (*run)(unsigned scale);
  unsigned scale;
};

#define COMPUTE_ROW(name, default_scale) {#name, run_##name, default_scale},
constexpr Program kPrograms[] = {COMPUTE_PROGRAMS(COMPUTE_ROW)};
#undef COMPUTE_ROW

// The text behind word, if some word of the line begins with it.
const char* Find(const char* line, const char* word) {
  for (; *line != 0; line++) {
    size_t n = 0;
    while (word[n] != 0 && line[n] == word[n]) n++;
    if (word[n] == 0) return line + n;
    while (*line != 0 && *line != ' ') line++;
    if (*line == 0) break;
  }
  return nullptr;
}

unsigned Number(const char* line, const char* word, unsigned default_value) {
  const char* p = Find(line, word);
  if (p == nullptr) return default_value;
  unsigned value = 0;
  for (; *p >= '0' && *p <= '9'; p++) value = value * 10 + static_cast<unsigned>(*p - '0');
  return value;
}

bool Selected(const char* line, const char* name) {
  const char* p = Find(line, "only=");
  if (p == nullptr) return true;
  while (*p != 0 && *p != ' ') {
    size_t n = 0;
    while (name[n] != 0 && p[n] == name[n]) n++;
    if (name[n] == 0 && (p[n] == 0 || p[n] == ' ' || p[n] == ',')) return true;
    while (*p != 0 && *p != ' ' && *p != ',') p++;
    if (*p == ',') p++;
  }
  return false;
}

// One line of output.
class Line {
 public:
  explicit Line(Host32* host) : host_(host) {}
  void Text(const char* text) {
    for (; *text != 0; text++) Put(*text);
  }
  void Decimal(uint64_t value) {
    char digits[20];
    int n = 0;
    do {
      // 64-bit division by two DIVs: there is no library function for it.
      const uint32_t high = static_cast<uint32_t>(value >> 32);
      uint32_t low = static_cast<uint32_t>(value), rest = high % 10;
      asm("divl %2" : "+a"(low), "+d"(rest) : "r"(10u));
      value = static_cast<uint64_t>(high / 10) << 32 | low;
      digits[n++] = static_cast<char>('0' + rest);
    } while (value != 0);
    while (n > 0) Put(digits[--n]);
  }
  void Hex(uint64_t value) {
    for (int shift = 60; shift >= 0; shift -= 4) Put("0123456789abcdef"[value >> shift & 15]);
  }
  void End() {
    Put('\n');
    host_->Write(text_, length_);
    length_ = 0;
  }

 private:
  void Put(char c) {
    if (length_ == sizeof(text_)) {
      host_->Write(text_, length_);
      length_ = 0;
    }
    text_[length_++] = c;
  }

  Host32* host_;
  char text_[256];
  size_t length_ = 0;
};

uint64_t Rdtsc() {
  uint32_t low, high;
  asm volatile("rdtsc" : "=a"(low), "=d"(high) : : "memory");
  return static_cast<uint64_t>(high) << 32 | low;
}

}  // namespace

bool RunPrograms32(Host32* host, const char* words) {
  const unsigned samples = Number(words, "samples=", Find(words, "quick") != nullptr ? 3 : 9);
  const unsigned percent = Number(words, "scale=", 100);
  bool good = true;
  for (const Program& p : kPrograms) {
    if (!Selected(words, p.name)) continue;
    unsigned scale = p.scale * percent / 100;
    if (p.run == run_fib) scale = p.scale;  // an exponent
    if (scale == 0) scale = 1;
    uint64_t checksum = 0, again = 0;
    const char* error = host->Run(p.run, scale, &checksum);  // warms up
    Line line(host);
    line.Text("{\"name\":\"");
    line.Text(p.name);
    line.Text("\",\"samples\":[");
    for (unsigned i = 0; i < samples && error == nullptr; i++) {
      const uint64_t start = Rdtsc();
      error = host->Run(p.run, scale, &again);
      const uint64_t cycles = Rdtsc() - start;
      if (error == nullptr && again != checksum) error = "a repetition gave another checksum";
      if (i != 0) line.Text(",");
      line.Decimal(cycles);
    }
    line.Text("],\"checksum\":\"");
    line.Hex(checksum);
    line.Text("\"");
    if (error != nullptr) {
      good = false;
      line.Text(",\"error\":\"");
      line.Text(error);
      line.Text("\"");
    }
    line.Text("}");
    line.End();
  }
  Line line(host);
  line.Text("{\"done\":true}");
  line.End();
  return good;
}

}  // namespace alibi::frobos
