/* support/xml.h: whether a text is well-formed XML, of the part of XML that a picture needs: elements, attributes, text
 * and the five entities; no declarations, comments or sections. */
#ifndef GSEL_TESTS_XML_H
#define GSEL_TESTS_XML_H

#include <gsel/types.h>
#include <stddef.h>

GSEL_EXTERN_C_BEGIN

/* NULL, or where it stops being well-formed. */
const char* xml_fault(const char* text, size_t length);

GSEL_EXTERN_C_END

#endif
