// SPDX-License-Identifier: Apache-2.0
#include "bench/lab/html.h"

#include <fmt/format.h>

#include "bench/svg_canvas.h"

namespace alibi::bench::lab {

std::string HtmlTable::Render() const {
  std::string text = "<div class=\"scroll\"><table>\n<thead><tr>";
  const auto cells = [this, &text](const std::vector<std::string>& row, const char* tag) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      text += fmt::format("<{0}{1}>{2}</{0}>", tag, i < left_ ? " class=\"left\"" : "",
                          EscapeMarkup(row[i]));
    }
    text += "</tr>\n";
  };
  cells(head_, "th");
  text += "</thead>\n<tbody>\n";
  for (const auto& row : rows_) {
    text += "<tr>";
    cells(row, "td");
  }
  return text + "</tbody></table></div>\n";
}

std::string Paragraph(const std::string& text) {
  return fmt::format("<p>{}</p>\n", EscapeMarkup(text));
}

std::string Missing(const std::string& text) {
  return fmt::format("<p class=\"missing\">{}</p>\n", EscapeMarkup(text));
}

std::string SubHeading(const std::string& text) {
  return fmt::format("<h3>{}</h3>\n", EscapeMarkup(text));
}

std::string Details(const std::string& summary, const std::string& body) {
  return fmt::format("<details><summary>{}</summary>\n{}</details>\n", EscapeMarkup(summary), body);
}

std::string Preformatted(const std::string& text) {
  return fmt::format("<pre>{}</pre>\n", EscapeMarkup(text));
}

}  // namespace alibi::bench::lab
