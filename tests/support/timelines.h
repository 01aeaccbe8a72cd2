// support/timelines.h: timelines of documents, and searches in their pictures.
#pragma once

#include <string>
#include <vector>

#include "program/timeline/timeline.h"
#include "support/check.h"
#include "support/xml.h"

namespace gsel::test {

inline Timeline timeline_of(const std::vector<std::string>& documents) {
  Timeline timeline;
  for (const std::string& document : documents) add_document(timeline, document, "test");
  return timeline;
}

// Well-formed.
inline std::string svg_of(const Timeline& timeline) {
  std::string svg = to_svg(timeline);
  const char* fault = xml_fault(svg.data(), svg.size());
  if (fault) fail_msg("not well-formed at: %.80s", fault);
  return svg;
}

// How often a text contains a part.
inline size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = 0; (at = text.find(part, at)) != text.npos; at += part.size()) ++n;
  return n;
}

}  // namespace gsel::test
