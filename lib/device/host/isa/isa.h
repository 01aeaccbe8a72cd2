// device/host/isa/isa.h: the instruction sets that loops are compiled for (vector_loops.h). All give the same bits.
#pragma once

namespace gsel::host {

enum class Isa { baseline, avx2, avx512 };
constexpr Isa kIsas[] = {Isa::baseline, Isa::avx2, Isa::avx512};
bool has_isa(Isa isa);
Isa best_isa();  // the last one that this processor has

}  // namespace gsel::host
