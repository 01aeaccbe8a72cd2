/* cuda/embed.h: a file of this build as bytes of the program: EMBED(symbol, path) with both as text. */
#ifndef GPT_CUDA_EMBED_H
#define GPT_CUDA_EMBED_H

#define EMBED(symbol, path)         \
  __asm__(                          \
      ".section .rodata\n"          \
      ".balign 16\n"                \
      ".hidden " symbol             \
      "\n"                          \
      ".global " symbol "\n" symbol \
      ":\n"                         \
      ".incbin \"" path             \
      "\"\n"                        \
      ".previous\n")

#endif
