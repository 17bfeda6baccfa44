// SPDX-License-Identifier: Apache-2.0
// Pieces of an HTML page. Texts are escaped here.
#ifndef ALIBI_BENCH_LAB_HTML_H_
#define ALIBI_BENCH_LAB_HTML_H_

#include <string>
#include <vector>

namespace alibi::bench::lab {

// First columns to the left, others to the right; scrolls sideways on its own where it is too wide.
class HtmlTable {
 public:
  explicit HtmlTable(std::vector<std::string> head, std::size_t left_columns = 1)
      : head_(std::move(head)), left_(left_columns) {}
  void Row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  bool empty() const { return rows_.empty(); }
  std::string Render() const;

 private:
  std::vector<std::string> head_;
  std::size_t left_;
  std::vector<std::vector<std::string>> rows_;
};

std::string Paragraph(const std::string& text);
// Why there is nothing to see.
std::string Missing(const std::string& text);
std::string SubHeading(const std::string& text);
// `body` is HTML; hidden until it is asked for.
std::string Details(const std::string& summary, const std::string& body);
std::string Preformatted(const std::string& text);

}  // namespace alibi::bench::lab

#endif  // ALIBI_BENCH_LAB_HTML_H_
