// SPDX-License-Identifier: Apache-2.0
#include "bench/svg_canvas.h"

#include <fmt/format.h>

#include <algorithm>

namespace alibi::bench {

std::string EscapeMarkup(const std::string& text) {
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
        out += c;
    }
  }
  return out;
}

void SvgCanvas::Text(double x, double y, const char* css, const char* anchor,
                     const std::string& text) {
  body_ +=
      fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"{}\" text-anchor=\"{}\">{}</text>\n", x,
                  y, css, anchor, EscapeMarkup(text));
}

void SvgCanvas::Line(double x1, double y1, double x2, double y2, const char* css) {
  body_ +=
      fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" class=\"{}\"/>\n",
                  x1, y1, x2, y2, css);
}

void SvgCanvas::Bar(double x, double y, double width, double height, const char* css,
                    const std::string& tooltip) {
  body_ += fmt::format(
      "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"1.5\" "
      "class=\"{}\"><title>{}</title></rect>\n",
      x, y, std::max(width, 1.0), height, css, EscapeMarkup(tooltip));
}

void SvgCanvas::Path(const std::vector<std::pair<double, double>>& points, const char* css,
                     const std::string& tooltip) {
  if (points.empty()) return;
  body_ += fmt::format("<path class=\"{}\" d=\"", css);
  for (const auto& [x, y] : points) {
    body_ += fmt::format("{}{:.1f} {:.1f}", &x == &points[0].first ? "M" : "L", x, y);
  }
  body_ += fmt::format("\"><title>{}</title></path>\n", EscapeMarkup(tooltip));
}

}  // namespace alibi::bench
