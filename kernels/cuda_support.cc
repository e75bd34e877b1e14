#include "kernels/cuda_support.h"

#include <cuda_runtime.h>

#include <utility>

#include "absl/strings/str_cat.h"

namespace lockstep::kernels {

bool BuiltWithCuda() { return true; }

absl::Status CudaStatus(int error, const char* action) {
  const cudaError_t code = static_cast<cudaError_t>(error);
  if (code == cudaSuccess) return absl::OkStatus();
  const std::string what =
      absl::StrCat("CUDA: ", action, ": ", cudaGetErrorString(code), " (", error, ")");
  switch (code) {
    case cudaErrorMemoryAllocation:
      return absl::ResourceExhaustedError(
          absl::StrCat(what, "; free device memory or use smaller batches"));
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorInitializationError:
    case cudaErrorStubLibrary:
      return absl::UnavailableError(
          absl::StrCat(what, "; run on a machine with an NVIDIA GPU and a driver for CUDA ",
                       CUDART_VERSION / 1000, " or newer, or choose the CPU"));
    case cudaErrorInvalidDevice:
      return absl::InvalidArgumentError(
          absl::StrCat(what, "; choose one of the devices that nvidia-smi lists"));
    default:
      return absl::InternalError(
          absl::StrCat(what, "; the process's CUDA context may be lost: restart the process"));
  }
}

absl::StatusOr<int> CudaDeviceCount() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaErrorNoDevice) return 0;
  if (error != cudaSuccess) return CudaStatus(error, "counting devices");
  return count;
}

absl::StatusOr<CudaDeviceInfo> DescribeCudaDevice(int device) {
  cudaDeviceProp properties;
  const cudaError_t error = cudaGetDeviceProperties(&properties, device);
  if (error != cudaSuccess) return CudaStatus(error, "reading a device's properties");
  CudaDeviceInfo info;
  info.name = properties.name;
  info.compute_major = properties.major;
  info.compute_minor = properties.minor;
  info.multiprocessors = properties.multiProcessorCount;
  info.memory_bytes = properties.totalGlobalMem;
  info.l2_bytes = static_cast<size_t>(properties.l2CacheSize);
  return info;
}

absl::Status UseCudaDevice(int device) {
  return CudaStatus(cudaSetDevice(device), "choosing a device");
}

absl::StatusOr<DeviceBuffer> DeviceBuffer::Allocate(size_t bytes) {
  void* data = nullptr;
  const cudaError_t error = cudaMalloc(&data, bytes);
  if (error != cudaSuccess) {
    return CudaStatus(error, absl::StrCat("allocating ", bytes, " bytes").c_str());
  }
  return DeviceBuffer(data, bytes);
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

DeviceBuffer::~DeviceBuffer() {
  if (data_ != nullptr) cudaFree(data_);
}

absl::StatusOr<OwnedCudaStream> OwnedCudaStream::Create() {
  CudaStream stream = nullptr;
  const cudaError_t error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  if (error != cudaSuccess) return CudaStatus(error, "creating a stream");
  return OwnedCudaStream(stream);
}

OwnedCudaStream::OwnedCudaStream(OwnedCudaStream&& other) noexcept
    : stream_(std::exchange(other.stream_, nullptr)) {}

OwnedCudaStream& OwnedCudaStream::operator=(OwnedCudaStream&& other) noexcept {
  std::swap(stream_, other.stream_);
  return *this;
}

OwnedCudaStream::~OwnedCudaStream() {
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

absl::StatusOr<CudaEvent> CudaEvent::Create() {
  CUevent_st* event = nullptr;
  const cudaError_t error = cudaEventCreate(&event);
  if (error != cudaSuccess) return CudaStatus(error, "creating an event");
  return CudaEvent(event);
}

CudaEvent::CudaEvent(CudaEvent&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}

CudaEvent& CudaEvent::operator=(CudaEvent&& other) noexcept {
  std::swap(event_, other.event_);
  return *this;
}

CudaEvent::~CudaEvent() {
  if (event_ != nullptr) cudaEventDestroy(event_);
}

absl::Status CudaEvent::Record(CudaStream stream) {
  return CudaStatus(cudaEventRecord(event_, stream), "recording an event");
}

absl::Status CudaEvent::Synchronize() {
  return CudaStatus(cudaEventSynchronize(event_), "waiting for an event");
}

absl::StatusOr<float> CudaEvent::MillisecondsSince(const CudaEvent& start) const {
  float milliseconds = 0;
  const cudaError_t error = cudaEventElapsedTime(&milliseconds, start.event_, event_);
  if (error != cudaSuccess) return CudaStatus(error, "reading the time between events");
  return milliseconds;
}

absl::Status CopyToDevice(void* device, const void* host, size_t bytes, CudaStream stream) {
  return CudaStatus(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream),
                    "copying to the device");
}

absl::Status CopyToHost(void* host, const void* device, size_t bytes, CudaStream stream) {
  return CudaStatus(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream),
                    "copying to the host");
}

absl::Status CopyOnDevice(void* to, const void* from, size_t bytes, CudaStream stream) {
  return CudaStatus(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream),
                    "copying on the device");
}

absl::Status FillDevice(void* device, uint8_t value, size_t bytes, CudaStream stream) {
  return CudaStatus(cudaMemsetAsync(device, value, bytes, stream), "filling device memory");
}

absl::Status SynchronizeStream(CudaStream stream) {
  return CudaStatus(cudaStreamSynchronize(stream), "waiting for a stream");
}

}  // namespace lockstep::kernels
