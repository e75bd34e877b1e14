#ifndef LOCKSTEP_KERNELS_CUDA_SUPPORT_H_
#define LOCKSTEP_KERNELS_CUDA_SUPPORT_H_

// Devices, memory, streams and events for callers of the CUDA twins, without CUDA's headers. In a
// build without the CUDA toolkit every call here and in the *_cuda.h headers returns Unavailable.
//
// Every CUDA twin (`FooCuda` beside `Foo`) takes the CPU function's parameters with its pointers
// in device memory (`threads` is ignored), and a stream. It checks what the CPU function checks,
// enqueues its kernels and returns: no allocation, no synchronisation. A twin that needs memory of
// its own takes it as `workspace`, of at least `FooCudaWorkspaceBytes(params)` bytes. What only the
// device can see (a token id out of range) cannot be refused; the header then states what is
// written instead.
//
// Example:
//   absl::StatusOr<OwnedCudaStream> stream = OwnedCudaStream::Create();
//   absl::StatusOr<DeviceBuffer> x = DeviceBuffer::Allocate(bytes);
//   ...
//   LOCKSTEP_RETURN_IF_ERROR(CopyToDevice(x->data(), host, bytes, stream->get()));
//   LOCKSTEP_RETURN_IF_ERROR(RmsNormCuda(params, stream->get()));
//   LOCKSTEP_RETURN_IF_ERROR(SynchronizeStream(stream->get()));

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

struct CUstream_st;
struct CUevent_st;

namespace lockstep::kernels {

// A cudaStream_t; nullptr is the default stream.
using CudaStream = CUstream_st*;

// False when the toolkit was absent at build time.
bool BuiltWithCuda();

struct CudaDeviceInfo {
  std::string name;
  int compute_major = 0;
  int compute_minor = 0;
  int multiprocessors = 0;
  size_t memory_bytes = 0;
  size_t l2_bytes = 0;
};

// 0 devices is an answer; a missing driver is Unavailable.
absl::StatusOr<int> CudaDeviceCount();
absl::StatusOr<CudaDeviceInfo> DescribeCudaDevice(int device);

// Makes `device` the calling thread's.
absl::Status UseCudaDevice(int device);

// Owns device memory; empty when moved from.
class DeviceBuffer {
 public:
  // At least 1 byte. ResourceExhausted when the device has no room.
  static absl::StatusOr<DeviceBuffer> Allocate(size_t bytes);

  DeviceBuffer() = default;
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;
  ~DeviceBuffer();

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  template <class T>
  T* As() const {
    return static_cast<T*>(data_);
  }

 private:
  DeviceBuffer(void* data, size_t bytes) : data_(data), bytes_(bytes) {}

  void* data_ = nullptr;
  size_t bytes_ = 0;
};

// Owns a stream that does not wait for the default stream.
class OwnedCudaStream {
 public:
  static absl::StatusOr<OwnedCudaStream> Create();

  OwnedCudaStream(OwnedCudaStream&& other) noexcept;
  OwnedCudaStream& operator=(OwnedCudaStream&& other) noexcept;
  ~OwnedCudaStream();

  CudaStream get() const { return stream_; }

 private:
  explicit OwnedCudaStream(CudaStream stream) : stream_(stream) {}

  CudaStream stream_ = nullptr;
};

// Owns an event that records time.
class CudaEvent {
 public:
  static absl::StatusOr<CudaEvent> Create();

  CudaEvent(CudaEvent&& other) noexcept;
  CudaEvent& operator=(CudaEvent&& other) noexcept;
  ~CudaEvent();

  absl::Status Record(CudaStream stream);
  // Waits on the host until what was recorded has happened.
  absl::Status Synchronize();
  // Both recorded and complete.
  absl::StatusOr<float> MillisecondsSince(const CudaEvent& start) const;

 private:
  explicit CudaEvent(CUevent_st* event) : event_(event) {}

  CUevent_st* event_ = nullptr;
};

// Enqueued on `stream`. Host memory that is not pinned is staged by the driver before the call
// returns; pinned memory must stay until the stream has passed.
absl::Status CopyToDevice(void* device, const void* host, size_t bytes, CudaStream stream);
absl::Status CopyToHost(void* host, const void* device, size_t bytes, CudaStream stream);
absl::Status CopyOnDevice(void* to, const void* from, size_t bytes, CudaStream stream);
absl::Status FillDevice(void* device, uint8_t value, size_t bytes, CudaStream stream);

// Waits until everything enqueued on `stream` is done; reports an error of any of it.
absl::Status SynchronizeStream(CudaStream stream);

// What a refused or failed CUDA call means; `error` is a cudaError_t, `action` what was tried.
absl::Status CudaStatus(int error, const char* action);

}  // namespace lockstep::kernels

#endif  // LOCKSTEP_KERNELS_CUDA_SUPPORT_H_
