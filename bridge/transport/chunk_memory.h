#ifndef LOCKSTEP_BRIDGE_TRANSPORT_CHUNK_MEMORY_H_
#define LOCKSTEP_BRIDGE_TRANSPORT_CHUNK_MEMORY_H_

namespace lockstep::transport {

// Lets the allocator keep what a received or sent chunk gave back. libzmq allocates every
// message; by default glibc returns blocks of that size to the system at once, and the page
// faults for the next chunk then cost as much as its copy. Freeing one large block raises
// glibc's own dynamic thresholds (mallopt(3), M_MMAP_THRESHOLD), as any program does that
// frees one; explicit settings of the user's stay in force. Once a process; elsewhere than with
// glibc it does nothing of note.
//
// Example:
//   KeepChunkMemory();  // before the first chunk
void KeepChunkMemory();

}  // namespace lockstep::transport

#endif  // LOCKSTEP_BRIDGE_TRANSPORT_CHUNK_MEMORY_H_
