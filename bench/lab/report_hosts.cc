// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cctype>

#include "bench/lab/html.h"
#include "bench/lab/report.h"
#include "bench/svg_canvas.h"

namespace alibi::bench::lab {

std::string HostReportName(const std::string& host) {
  std::string name = "report-" + host + ".html";
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-' && c != '.') c = '_';
  }
  return name;
}

std::string MakeHostIndex(const LabData& data) {
  const auto& e = data.experiment();
  const std::string title = e.value("title", std::string());
  std::string page = PageHead(title);
  page += fmt::format("<h1>{}</h1>\n", EscapeMarkup(title));
  if (const std::string question = e.value("question", std::string()); !question.empty()) {
    page += Paragraph(question);
  }
  page += Paragraph(
      "This experiment was spread over several hosts. Figures of different hosts cannot be "
      "compared: each host has a report of its own, of the runs that it made. results.csv has "
      "all of them, with a column for the host.");
  page +=
      "<div class=\"scroll\"><table>\n<thead><tr><th class=\"left\">host</th><th "
      "class=\"left\">CPU</th><th class=\"left\">kernel</th><th>cores</th><th>runs</th><th>failed"
      "</th></tr></thead>\n<tbody>\n";
  const auto hosts = e.value("hosts", nlohmann::ordered_json::object());
  for (const std::string& name : data.Hosts()) {
    const auto host = hosts.value(name, nlohmann::ordered_json::object());
    std::size_t runs = 0, failed = 0;
    for (const auto& run : e.value("runs", nlohmann::ordered_json::array())) {
      if (run.value("host", std::string()) != name) continue;
      ++runs;
      if (!run.value("failure", std::string()).empty()) ++failed;
    }
    page += fmt::format(
        "<tr><td class=\"left\"><a href=\"{}\">{}</a></td><td class=\"left\">{}</td><td "
        "class=\"left\">{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
        HostReportName(name), EscapeMarkup(name), EscapeMarkup(host.value("cpu", std::string())),
        EscapeMarkup(host.value("kernel", std::string())), host.value("cores", 0), runs, failed);
  }
  page += "</tbody>\n</table></div>\n";
  for (const std::string& complaint : data.complaints()) page += Paragraph(complaint);
  return page + "</body>\n</html>\n";
}

}  // namespace alibi::bench::lab
