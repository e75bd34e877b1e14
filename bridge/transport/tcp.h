#ifndef LOCKSTEP_BRIDGE_TRANSPORT_TCP_H_
#define LOCKSTEP_BRIDGE_TRANSPORT_TCP_H_

// TCP through the bridge's bulk port: for another host, a late joiner, or by choice. A slot is
// memory of the sampler's own; two are kept for reuse, since fresh pages cost more than the
// bytes that go into them.
//
// Example:
//   TcpInstaller installer({welcome.bulk_address, welcome.bulk_key, incarnation}, BulkOptions());
//   auto installed = installer.Install({arena_id, total_bytes}, feed);

#include <cstdint>
#include <memory>
#include <optional>

#include "bridge/transport/bulk_reader.h"
#include "bridge/transport/bulk_writer.h"
#include "bridge/transport/transport.h"

namespace lockstep::transport {

class SlotPool;

class TcpInstaller : public Installer {
 public:
  // How often a transfer is resumed over a new connection before it fails.
  static constexpr int kMaxReconnects = 2;

  TcpInstaller(const BulkEndpoint& endpoint, const BulkOptions& options);
  ~TcpInstaller() override;

  absl::StatusOr<std::unique_ptr<InstalledVersion>> Install(const InstallRequest& request,
                                                            RoundFeed& feed) override;

 private:
  BulkEndpoint endpoint_;
  BulkOptions options_;
  std::optional<BulkReader> reader_;
  // Shared with the versions handed out, which return their memory to it.
  std::shared_ptr<SlotPool> pool_;
};

class TcpWriter : public ArenaWriter {
 public:
  TcpWriter(const BulkEndpoint& endpoint, const BulkOptions& options)
      : endpoint_(endpoint), options_(options) {}

  absl::Status Begin(const WriteRequest& request) override;
  absl::Status Write(uint64_t offset, absl::Span<const uint8_t> bytes, RoundFeed& feed) override;
  absl::Status Finish(RoundFeed& feed) override;
  uint64_t mark() const override { return writer_.has_value() ? writer_->mark() : 0; }
  void Drop(uint64_t) override {}

 private:
  BulkEndpoint endpoint_;
  BulkOptions options_;
  std::optional<BulkWriter> writer_;
};

}  // namespace lockstep::transport

#endif  // LOCKSTEP_BRIDGE_TRANSPORT_TCP_H_
