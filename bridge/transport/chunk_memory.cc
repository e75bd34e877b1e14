#include "bridge/transport/chunk_memory.h"

#include <cstdlib>

namespace lockstep::transport {

void KeepChunkMemory() {
  // glibc's upper limit of the dynamic threshold is 32 MiB, its own header included.
  constexpr size_t kBlockBytes = (size_t{32} << 20) - 8192;
  static const bool done = [] {
    // Volatile, or the compiler drops the pair. The pages are never touched.
    void* volatile block = std::malloc(kBlockBytes);
    std::free(block);
    return true;
  }();
  (void)done;
}

}  // namespace lockstep::transport
