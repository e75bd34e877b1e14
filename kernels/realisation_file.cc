#include "kernels/realisation_file.h"

#include <cstring>
#include <fstream>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "kernels/float_formats.h"

namespace lockstep::kernels {
namespace {

constexpr absl::string_view kMagic = "LKSTSILU";
constexpr uint32_t kFormatVersion = 1;
constexpr size_t kTypeBytes = 4;
constexpr absl::string_view kBf16Type = "BF16";
constexpr absl::string_view kF16Type = "F16 ";
constexpr size_t kTableBytes = kGateTableEntries * sizeof(uint32_t);
constexpr size_t kLargestFile = 8 + 4 + 4 + kMaxRealisationIdBytes + kTypeBytes + 32 + kTableBytes;

void AppendU32(uint32_t value, std::string& bytes) {
  for (int shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<char>(value >> shift));
}

uint32_t LoadU32(absl::string_view bytes) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) {
    value |= static_cast<uint32_t>(static_cast<uint8_t>(bytes[i])) << (8 * i);
  }
  return value;
}

absl::string_view View(const Digest256& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

absl::Status Broken(absl::string_view why) {
  return absl::DataLossError(
      absl::StrCat("realisation file: ", why, "; record the realisation again"));
}

// Takes `count` bytes off the front.
absl::StatusOr<absl::string_view> Take(absl::string_view& bytes, size_t count,
                                       absl::string_view what) {
  if (bytes.size() < count) {
    return Broken(absl::StrCat("expected ", count, " bytes of ", what, ", got ", bytes.size()));
  }
  const absl::string_view taken = bytes.substr(0, count);
  bytes.remove_prefix(count);
  return taken;
}

struct Header {
  std::string id;
  FloatType gate = FloatType::kBf16;
  std::string digest;
};

absl::StatusOr<Header> TakeHeader(absl::string_view& bytes) {
  Header header;
  absl::StatusOr<absl::string_view> part = Take(bytes, kMagic.size(), "the magic");
  if (!part.ok()) return part.status();
  if (*part != kMagic) return Broken(absl::StrCat("does not begin with ", kMagic));
  part = Take(bytes, 4, "the format's version");
  if (!part.ok()) return part.status();
  if (LoadU32(*part) != kFormatVersion) {
    return Broken(
        absl::StrCat("expected format version ", kFormatVersion, ", got ", LoadU32(*part)));
  }
  part = Take(bytes, 4, "the id's length");
  if (!part.ok()) return part.status();
  const size_t id_bytes = LoadU32(*part);
  if (id_bytes > kMaxRealisationIdBytes) {
    return Broken(absl::StrCat("the id's length ", id_bytes, " is over the limit of ",
                               kMaxRealisationIdBytes));
  }
  part = Take(bytes, id_bytes, "the id");
  if (!part.ok()) return part.status();
  header.id = std::string(*part);
  part = Take(bytes, kTypeBytes, "the gate's type");
  if (!part.ok()) return part.status();
  if (*part != kBf16Type && *part != kF16Type) {
    return Broken(absl::StrCat("expected the gate's type as BF16 or F16, got '",
                               absl::CHexEscape(*part), "'"));
  }
  header.gate = *part == kBf16Type ? FloatType::kBf16 : FloatType::kF16;
  part = Take(bytes, sizeof(Digest256), "the digest");
  if (!part.ok()) return part.status();
  header.digest = std::string(*part);
  return header;
}

}  // namespace

std::string UserSiluId(const Digest256& digest) {
  constexpr size_t kShownBytes = 8;
  return absl::StrCat("silu/user_", absl::BytesToHexString(View(digest).substr(0, kShownBytes)),
                      "@v1");
}

absl::StatusOr<GateTable> RecordSiluTable(FloatType gate, LockstepSiluFunction silu,
                                          void* context) {
  if (silu == nullptr) {
    return absl::InvalidArgumentError("realisation record: expected a function, got none");
  }
  std::vector<uint16_t> gates(kGateTableEntries);
  for (size_t i = 0; i < gates.size(); ++i) gates[i] = static_cast<uint16_t>(i);
  std::vector<float> runs[2];
  for (std::vector<float>& run : runs) {
    run.assign(gates.size(), 0.0f);
    if (const int code = silu(gates.data(), gates.size(), run.data(), context); code != 0) {
      return absl::AbortedError(
          absl::StrCat("realisation record: the function failed with code ", code));
    }
    for (float& value : run) value = Canonicalise(value);
  }
  for (size_t i = 0; i < gates.size(); ++i) {
    if (BitsOf(runs[0][i]) == BitsOf(runs[1][i])) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "realisation record: two calls differ at gate 0x", absl::Hex(i, absl::kZeroPad4), ": 0x",
        absl::Hex(BitsOf(runs[0][i])), " and 0x", absl::Hex(BitsOf(runs[1][i])),
        "; a function that is not deterministic cannot be a contract"));
  }
  // The id follows from the digest, so the table is made twice.
  absl::StatusOr<GateTable> unnamed = GateTable::FromValues("silu/user", gate, runs[0]);
  if (!unnamed.ok()) return unnamed.status();
  return GateTable::FromValues(UserSiluId(unnamed->digest()), gate, std::move(runs[0]));
}

std::string EncodeRealisation(const GateTable& table) {
  std::string bytes(kMagic);
  AppendU32(kFormatVersion, bytes);
  AppendU32(static_cast<uint32_t>(table.id().size()), bytes);
  absl::StrAppend(&bytes, table.id(), table.gate() == FloatType::kBf16 ? kBf16Type : kF16Type,
                  View(table.digest()));
  for (const float value : table.values()) AppendU32(BitsOf(value), bytes);
  return bytes;
}

absl::StatusOr<GateTable> DecodeRealisation(absl::string_view bytes) {
  const absl::StatusOr<Header> header = TakeHeader(bytes);
  if (!header.ok()) return header.status();
  if (bytes.size() != kTableBytes) {
    return Broken(absl::StrCat("expected ", kTableBytes, " bytes of table, got ", bytes.size()));
  }
  std::vector<float> values(kGateTableEntries);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = F32FromBits(LoadU32(bytes.substr(4 * i, 4)));
  }
  absl::StatusOr<GateTable> table =
      GateTable::FromValues(header->id, header->gate, std::move(values));
  if (!table.ok()) return table.status();
  if (View(table->digest()) != header->digest) {
    return Broken(absl::StrCat("states digest ", absl::BytesToHexString(header->digest),
                               ", its table has ", absl::BytesToHexString(View(table->digest()))));
  }
  if (table->id() != UserSiluId(table->digest())) {
    return Broken(absl::StrCat("states id '", absl::CHexEscape(table->id()), "', its table is ",
                               UserSiluId(table->digest())));
  }
  return table;
}

absl::Status WriteRealisationFile(const GateTable& table, const std::string& path) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  const std::string bytes = EncodeRealisation(table);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  out.close();
  if (!out) {
    return absl::UnavailableError(absl::StrCat("realisation file '", path,
                                               "' cannot be written; check the folder and space"));
  }
  return absl::OkStatus();
}

absl::StatusOr<GateTable> ReadRealisationFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    return absl::NotFoundError(absl::StrCat("realisation file '", path, "' cannot be opened"));
  }
  // One byte more than the largest file, so that a longer one is seen to be.
  std::string bytes(kLargestFile + 1, '\0');
  in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  bytes.resize(static_cast<size_t>(in.gcount()));
  return DecodeRealisation(bytes);
}

absl::StatusOr<std::string> LoadRealisationFile(const std::string& path) {
  absl::StatusOr<GateTable> table = ReadRealisationFile(path);
  if (!table.ok()) return table.status();
  const absl::StatusOr<const GateTable*> kept = KeepSiluTable(*std::move(table));
  if (!kept.ok()) return kept.status();
  return (*kept)->id();
}

}  // namespace lockstep::kernels
