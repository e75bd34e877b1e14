#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/digest_cuda.h"
#include "tests/gpu/state_twins.h"

namespace lockstep::kernels {
namespace {

constexpr char kWhole[] = "digest/paged@v1";
constexpr char kParts[] = "digest/paged@v1 of parts";
constexpr char kViews[] = "digest/paged@v1 of views";
constexpr uint64_t kPage = kPageBytes;

std::vector<uint8_t> RandomBytes(TwinCheck& check, size_t count) {
  std::vector<uint8_t> bytes(count);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(check.Random());
  // NaN elements of every format now and then, and some zeros.
  for (size_t at = 0; at + 8 <= count; at += 8 * static_cast<size_t>(check.Between(1, 40))) {
    const bool zeros = check.Random() % 3 == 0;
    for (size_t i = 0; i < 8; ++i) bytes[at + i] = zeros ? 0 : 0xFF;
  }
  return bytes;
}

PageKeys RandomKeys(TwinCheck& check) {
  Digest256 key;
  for (uint8_t& byte : key) byte = static_cast<uint8_t>(check.Random());
  return PageKeys(key);
}

// Poisoned page sums on the device.
class DeviceSums {
 public:
  DeviceSums(TwinCheck& check, uint64_t pages)
      : words_(check.UploadPoison<uint64_t>(pages * kWordsOfSum)) {}

  PageSum* get() const { return reinterpret_cast<PageSum*>(words_.get()); }

 private:
  static constexpr size_t kWordsOfSum = sizeof(PageSum) / sizeof(uint64_t);

  DeviceArray<uint64_t> words_;
};

void CompareTables(TwinCheck& check, const char* program, const std::string& label,
                   const PageTable& want, const absl::StatusOr<PageTable>& got) {
  check.Ran(program, label, got.status());
  if (!got.ok()) return;
  check.Expect(program, absl::StrCat(label, ": pages"), want.pages().size() == got->pages().size());
  check.Compare(program, label, want.pages().data(), got->pages().data(),
                want.pages().size() * sizeof(PageSum), sizeof(uint64_t));
}

// One call over streams of the given lengths, each at its own misalignment, copied or not.
void CompareBatch(TwinCheck& check, const std::vector<uint64_t>& lengths, bool copy,
                  bool misaligned) {
  const PageKeys keys = RandomKeys(check);
  const DevicePageKeys device_keys = OrDie(DevicePageKeys::Upload(keys, check.stream()));
  std::vector<uint64_t> offsets = {0};
  for (const uint64_t length : lengths) {
    const uint64_t gap = misaligned ? static_cast<uint64_t>(check.Between(1, 33)) : 16;
    offsets.push_back((offsets.back() + length + gap) / (misaligned ? 1 : 16) *
                      (misaligned ? 1 : 16));
  }
  const std::vector<uint8_t> from = RandomBytes(check, offsets.back());
  std::vector<uint8_t> to = Poisoned<uint8_t>(from.size());
  const DeviceArray<uint8_t> device_from = check.Upload(from);
  const DeviceArray<uint8_t> device_to = check.UploadPoison<uint8_t>(from.size());
  std::vector<DigestTask> tasks, device_tasks;
  uint64_t pages = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    DigestTask task;
    task.bytes = lengths[i];
    task.nan_format = static_cast<NanFormat>(check.Between(0, 4));
    // Now and then onto itself, which digests alone.
    const bool onto_itself = check.Between(0, 9) == 0;
    task.source = from.data() + offsets[i];
    task.destination = copy ? to.data() + offsets[i] : nullptr;
    tasks.push_back(task);
    task.source = device_from.get() + offsets[i];
    task.destination = copy ? device_to.get() + offsets[i] : nullptr;
    if (onto_itself && !copy) task.destination = device_from.get() + offsets[i];
    device_tasks.push_back(task);
    pages += PagesOf(lengths[i]);
  }
  const std::vector<DigestResult> want = CopyAndDigest(keys, tasks, 2);
  const DeviceSums sums(check, pages);
  const DeviceArray<uint64_t> nans = check.UploadPoison<uint64_t>(lengths.size());
  const std::string label =
      absl::StrCat(lengths.size(), " streams, first of ", lengths[0], " bytes",
                   copy ? ", copied" : "", misaligned ? ", misaligned" : "");
  check.Ran(kWhole, label,
            CopyAndDigestCuda(device_keys, device_tasks, sums.get(), nans.get(), check.stream()));
  const std::vector<uint64_t> got_nans = check.Download(nans);
  const PageSum* first = sums.get();
  for (size_t i = 0; i < lengths.size(); ++i) {
    const std::string name =
        absl::StrCat(label, ": stream ", i, " of ", lengths[i], " bytes at ", offsets[i]);
    const absl::StatusOr<PageTable> table = DownloadPageTable(first, lengths[i], check.stream());
    CompareTables(check, kWhole, name, want[i].table, table);
    check.Expect(kWhole, name + ": NaN count", got_nans[i] == want[i].nan_count);
    first += want[i].table.pages().size();
    if (!table.ok()) continue;
    const TensorIdentity identity = {
        .run = "r", .version = 7, .name = "w", .dtype = "U8", .shape = {lengths[i]}};
    check.Expect(kWhole, name + ": root",
                 OrDie(TensorRoot(identity, keys, want[i].table)) ==
                     OrDie(TensorRoot(identity, keys, *table)));
  }
  check.Equal(kWhole, label + ": copy", to, device_to);
}

// A stream in random parts, cut anywhere, at any address.
void CompareParts(TwinCheck& check, uint64_t bytes) {
  const PageKeys keys = RandomKeys(check);
  const DevicePageKeys device_keys = OrDie(DevicePageKeys::Upload(keys, check.stream()));
  const uint64_t shift = static_cast<uint64_t>(check.Between(0, 17));
  const std::vector<uint8_t> stream = RandomBytes(check, bytes + shift);
  const DeviceArray<uint8_t> on_device = check.Upload(stream);
  const DeviceSums sums(check, PagesOf(bytes));
  const std::string label = absl::StrCat(bytes, " bytes, shifted by ", shift);
  check.Ran(kParts, label, ClearPageSumsCuda(sums.get(), bytes, check.stream()));
  PageTable want(bytes);
  for (uint64_t at = 0; at < bytes;) {
    const uint64_t most = check.Random() % 4 == 0 ? bytes : 5000;
    const uint64_t part =
        std::min(bytes - at, static_cast<uint64_t>(check.Between(1, static_cast<int64_t>(most))));
    check.Ran(kParts, label,
              want.Add(keys, at, absl::MakeSpan(stream).subspan(at + shift, part), 1));
    check.Ran(kParts, label,
              AddBytesCuda(device_keys, at, on_device.get() + at + shift, part, bytes, sums.get(),
                           check.stream()));
    at += part;
  }
  CompareTables(check, kParts, label, want, DownloadPageTable(sums.get(), bytes, check.stream()));
}

void CompareView(TwinCheck& check, const BoxView& view, uint64_t buffer_bytes) {
  const std::vector<uint8_t> buffer = RandomBytes(check, buffer_bytes);
  const DeviceArray<uint8_t> on_device = check.Upload(buffer);
  std::string label = absl::StrCat("element ", view.element_bytes, " offset ", view.offset_bytes);
  uint64_t bytes = view.element_bytes;
  for (size_t d = 0; d < view.shape.size(); ++d) {
    bytes *= view.shape[d];
    absl::StrAppend(&label, " [", view.shape[d], " from ", view.start[d], " x ", view.extent[d],
                    " stride ", view.stride_bytes[d], "]");
  }
  const PageKeys& keys = PublicPageKeys();
  const DevicePageKeys device_keys = OrDie(DevicePageKeys::Upload(keys, check.stream()));
  PageTable want(bytes);
  check.Ran(kViews, label, want.AddView(keys, view, buffer, 1));
  const DeviceSums sums(check, PagesOf(bytes));
  check.Ran(kViews, label, ClearPageSumsCuda(sums.get(), bytes, check.stream()));
  check.Ran(kViews, label,
            AddViewCuda(device_keys, view, on_device.get(), buffer_bytes, bytes, sums.get(),
                        check.stream()));
  CompareTables(check, kViews, label, want, DownloadPageTable(sums.get(), bytes, check.stream()));
}

// A random box of a random shape, in a buffer of random strides and order of dimensions.
void CompareRandomView(TwinCheck& check, int64_t most_elements) {
  BoxView view;
  const size_t rank = static_cast<size_t>(check.Between(0, 4));
  view.element_bytes = static_cast<uint64_t>(
      check.Between(0, 9) == 0 ? check.Between(1, 16) : int64_t{1} << check.Between(0, 3));
  int64_t left = most_elements;
  for (size_t d = 0; d < rank; ++d) {
    const int64_t dim = check.Between(1, std::max<int64_t>(1, d + 1 == rank ? left : left / 20));
    left = std::max<int64_t>(1, left / dim);
    view.shape.push_back(static_cast<uint64_t>(dim));
    const int64_t start = check.Random() % 2 == 0 ? 0 : check.Between(0, dim - 1);
    view.start.push_back(static_cast<uint64_t>(start));
    const int64_t most = dim - start;
    view.extent.push_back(
        static_cast<uint64_t>(check.Random() % 2 == 0 ? most : check.Between(1, most)));
  }
  std::vector<size_t> order(rank);
  for (size_t d = 0; d < rank; ++d) order[d] = d;
  if (check.Random() % 2 == 0) {
    for (size_t d = rank; d > 1; --d) {
      std::swap(order[d - 1], order[static_cast<size_t>(check.Between(0, int64_t(d) - 1))]);
    }
  }
  view.stride_bytes.assign(rank, 0);
  uint64_t stride = view.element_bytes;
  view.offset_bytes = check.Random() % 2 == 0 ? 0 : static_cast<uint64_t>(check.Between(0, 40));
  for (size_t i = rank; i-- > 0;) {
    const size_t d = order[i];
    view.stride_bytes[d] = static_cast<int64_t>(stride);
    if (check.Between(0, 5) == 0) {
      view.stride_bytes[d] = -view.stride_bytes[d];
      view.offset_bytes += stride * (view.extent[d] - 1);
    }
    const uint64_t padding =
        check.Random() % 2 == 0 ? 0 : static_cast<uint64_t>(check.Between(0, 40));
    stride = stride * view.extent[d] + padding;
  }
  CompareView(check, view, stride + view.offset_bytes + view.element_bytes);
}

// A box of a tensor that lies transposed, whole grains of the stream in a row.
void CompareTransposed(TwinCheck& check) {
  const uint64_t size = uint64_t{1} << check.Between(0, 3);
  const uint64_t grain = 16 / size;
  const auto some = [&](int64_t low, int64_t high) {
    return static_cast<uint64_t>(check.Between(low, high));
  };
  BoxView view;
  view.element_bytes = size;
  view.shape = {some(1, 3), some(16, 300), grain * some(1, 200)};
  view.start = {0, some(0, 5), grain * some(0, static_cast<int64_t>(view.shape[2] / grain) - 1)};
  view.extent = {view.shape[0], view.shape[1] - view.start[1], view.shape[2] - view.start[2]};
  view.offset_bytes = size * some(0, 9);
  const uint64_t column = size * (view.extent[1] + some(0, 7));
  view.stride_bytes = {static_cast<int64_t>(column * view.extent[2]), static_cast<int64_t>(size),
                       static_cast<int64_t>(column)};
  CompareView(check, view, view.offset_bytes + column * view.extent[2] * view.extent[0]);
}

}  // namespace

void CheckDigestTwins(TwinCheck& check) {
  if (check.Wants(kWhole)) {
    for (const bool copy : {false, true}) {
      for (const bool misaligned : {false, true}) {
        CompareBatch(check, {0, 1, 3, 4, 7, 8, 15, 16, 4096, kPage - 1, kPage, kPage + 1}, copy,
                     misaligned);
        CompareBatch(check, {3 * kPage + 12345, 5 * kPage, 0, kPage - 16, 2 * kPage + 8}, copy,
                     misaligned);
        std::vector<uint64_t> many;
        for (int i = 0; i < 150; ++i) many.push_back(static_cast<uint64_t>(check.Between(0, 9000)));
        CompareBatch(check, many, copy, misaligned);
      }
    }
    CompareBatch(check, {(uint64_t{64} << 20) + 6}, true, false);
  }
  if (check.Wants(kParts)) {
    for (const uint64_t bytes : {uint64_t{1}, uint64_t{5}, kPage, 3 * kPage + 777, 9 * kPage}) {
      for (int i = 0; i < 6; ++i) CompareParts(check, bytes);
    }
  }
  if (check.Wants(kViews)) {
    for (int i = 0; i < 400; ++i) CompareRandomView(check, i % 4 == 0 ? 400'000 : 3'000);
    for (int i = 0; i < 200; ++i) CompareTransposed(check);
  }
}

}  // namespace lockstep::kernels
