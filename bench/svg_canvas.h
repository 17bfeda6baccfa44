// SPDX-License-Identifier: Apache-2.0
// What charts are drawn with: text, lines and bars, as the body of an SVG.
#ifndef ALIBI_BENCH_SVG_CANVAS_H_
#define ALIBI_BENCH_SVG_CANVAS_H_

#include <string>
#include <utility>
#include <vector>

namespace alibi::bench {

// For XML and HTML, text and attributes.
std::string EscapeMarkup(const std::string& text);

// Coordinates are pixels, y downwards; `css` names classes of whoever shows the drawing.
class SvgCanvas {
 public:
  void Text(double x, double y, const char* css, const char* anchor, const std::string& text);
  void Line(double x1, double y1, double x2, double y2, const char* css);
  // `y`: its upper edge. At least a pixel wide.
  void Bar(double x, double y, double width, double height, const char* css,
           const std::string& tooltip);
  void Path(const std::vector<std::pair<double, double>>& points, const char* css,
            const std::string& tooltip);
  const std::string& body() const { return body_; }

 private:
  std::string body_;
};

}  // namespace alibi::bench

#endif  // ALIBI_BENCH_SVG_CANVAS_H_
