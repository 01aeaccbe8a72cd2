/* each_cpu.h: a function marked FOR_EACH_CPU is compiled once per instruction set and chosen when the program starts,
 * so that one binary is quick on new machines and runs on old ones. */
#ifndef GPT_EACH_CPU_H
#define GPT_EACH_CPU_H

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define FOR_EACH_CPU __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FOR_EACH_CPU
#endif

#endif
