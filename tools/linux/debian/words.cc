// SPDX-License-Identifier: Apache-2.0
// What the row g++ compiles, and runs: little of its own, much of the library's.
#include <algorithm>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

int main() {
  std::istringstream text("the quick brown fox jumps over the lazy dog and the cat");
  std::map<std::string, int> count;
  for (std::string word; text >> word;) ++count[word];
  std::vector<std::pair<std::string, int>> words(count.begin(), count.end());
  std::sort(words.begin(), words.end(),
            [](const auto& a, const auto& b) { return a.second > b.second; });
  for (const auto& [word, times] : words) {
    if (times > 1) std::cout << word << ' ' << times << std::endl;
  }
}
