// device/host/isa/isa.h: the instruction sets that loops are compiled for (vector_loops.h). All give the same bits.
#pragma once

namespace gsel::host {

enum class Isa { baseline, avx2, avx512 };
constexpr Isa kIsas[] = {Isa::baseline, Isa::avx2, Isa::avx512};
bool has_isa(Isa isa);
extern const Isa kBestIsa;  // set when the library is loaded
// The last one that this processor has.
inline Isa best_isa() {
  return kBestIsa;
}

}  // namespace gsel::host
