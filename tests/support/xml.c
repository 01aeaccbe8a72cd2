/* See xml.h. */
#include "support/xml.h"

#include <string.h>

enum { XML_DEPTH = 32 };

struct xml_reader {
  const char* at;
  const char* end;
};

static int xml_is(struct xml_reader* r, const char* word) {
  const size_t n = strlen(word);
  if ((size_t)(r->end - r->at) < n || memcmp(r->at, word, n) != 0) return 0;
  r->at += n;
  return 1;
}

static size_t xml_name(struct xml_reader* r) {
  const char* from = r->at;
  while (r->at < r->end && ((*r->at >= 'a' && *r->at <= 'z') || (*r->at >= 'A' && *r->at <= 'Z') || *r->at == '-' ||
                            *r->at == ':' || (r->at > from && *r->at >= '0' && *r->at <= '9')))
    ++r->at;
  return (size_t)(r->at - from);
}

static void xml_blanks(struct xml_reader* r) {
  while (r->at < r->end && (*r->at == ' ' || *r->at == '\n')) ++r->at;
}

/* One character of text or of an attribute's value, in UTF-8. */
static int xml_character(struct xml_reader* r) {
  static const char* const entities[] = {"&amp;", "&lt;", "&gt;", "&quot;", "&apos;"};
  const unsigned char first = (unsigned char)*r->at;
  if (first == '&') {
    for (size_t i = 0; i < sizeof entities / sizeof *entities; ++i)
      if (xml_is(r, entities[i])) return 1;
    return 0;
  }
  if (first < 0x80) {
    ++r->at;
    return first != '<' && (first >= 0x20 || first == '\n' || first == '\t') && first != 0x7f;
  }
  const size_t n = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || (size_t)(r->end - r->at) < n) return 0;
  for (size_t i = 1; i < n; ++i)
    if (((unsigned char)r->at[i] & 0xc0) != 0x80) return 0;
  if (n == 3 && (!memcmp(r->at, "\xef\xbf\xbe", 3) || !memcmp(r->at, "\xef\xbf\xbf", 3))) return 0;
  if (n == 3 && first == 0xed && (unsigned char)r->at[1] >= 0xa0) return 0; /* a surrogate */
  r->at += n;
  return 1;
}

/* Behind the name of an opening tag. 2: the element is empty. */
static int xml_attributes(struct xml_reader* r) {
  for (;;) {
    const char* before = r->at;
    xml_blanks(r);
    if (xml_is(r, "/>")) return 2;
    if (xml_is(r, ">")) return 1;
    if (r->at == before || xml_name(r) == 0 || !xml_is(r, "=\"")) return 0;
    while (r->at < r->end && *r->at != '"')
      if (!xml_character(r)) return 0;
    if (!xml_is(r, "\"")) return 0;
  }
}

const char* xml_fault(const char* text, size_t length) {
  struct xml_reader r = {text, text + length};
  const char* names[XML_DEPTH];
  size_t lengths[XML_DEPTH], depth = 0, roots = 0;
  while (r.at < r.end) {
    const char* here = r.at;
    if (xml_is(&r, "</")) {
      const char* name = r.at;
      const size_t n = xml_name(&r);
      if (depth == 0 || n != lengths[depth - 1] || memcmp(name, names[depth - 1], n) != 0 || !xml_is(&r, ">"))
        return here;
      --depth;
    } else if (xml_is(&r, "<")) {
      if (depth == XML_DEPTH || (depth == 0 && roots++ > 0)) return here;
      names[depth] = r.at;
      lengths[depth] = xml_name(&r);
      const int kind = lengths[depth] > 0 ? xml_attributes(&r) : 0;
      if (kind == 0) return here;
      depth += kind == 1;
    } else if (depth == 0) {
      xml_blanks(&r);
      if (r.at == here) return here;
    } else if (!xml_character(&r)) {
      return here;
    }
  }
  return depth == 0 && roots == 1 ? NULL : r.end;
}
