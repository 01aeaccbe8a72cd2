/* nets/machine.h: communicators driven by bytes: three ranks, which are threads, make the calls that the bytes name,
 * good ones, refused ones, and ones that break; a model says what each must answer. */
#ifndef GSEL_TESTS_NETS_MACHINE_H
#define GSEL_TESTS_NETS_MACHINE_H

#include <stddef.h>
#include <stdint.h>

enum { MACHINE_OP_BYTES = 4, MACHINE_TEXT = 500 };

/* Plays size / MACHINE_OP_BYTES calls, the most 256; NULL, or in `text` what came back against the model. */
const char* machine_run(const uint8_t* data, size_t size, char text[MACHINE_TEXT]);

#endif
