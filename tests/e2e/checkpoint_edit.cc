#include "tests/e2e/checkpoint_edit.h"

#include <fstream>
#include <iterator>

namespace lockstep::e2e {

Checkpoint Checkpoint::Read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string all((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | static_cast<uint8_t>(all.at(i));
  Checkpoint checkpoint;
  checkpoint.header = nlohmann::ordered_json::parse(all.substr(8, length));
  checkpoint.data = all.substr(8 + length);
  return checkpoint;
}

void Checkpoint::Write(const std::string& path) const {
  const std::string text = header.dump();
  WriteRaw(path, text, text.size());
}

void Checkpoint::WriteRaw(const std::string& path, const std::string& header_text,
                          uint64_t header_length) const {
  std::string prefix;
  for (int i = 0; i < 8; ++i) prefix.push_back(static_cast<char>(header_length >> (8 * i)));
  std::ofstream(path, std::ios::binary | std::ios::trunc) << prefix << header_text << data;
}

void Checkpoint::Add(const std::string& name, const std::string& dtype,
                     const std::vector<uint64_t>& shape, const std::string& bytes) {
  header[name] = {{"dtype", dtype},
                  {"shape", shape},
                  {"data_offsets", {data.size(), data.size() + bytes.size()}}};
  data += bytes;
}

void Checkpoint::Remove(const std::string& name) {
  const uint64_t begin = header.at(name).at("data_offsets")[0];
  const uint64_t end = header.at(name).at("data_offsets")[1];
  header.erase(name);
  data.erase(begin, end - begin);
  for (auto& [other, entry] : header.items()) {
    if (!entry.contains("data_offsets")) continue;
    for (auto& offset : entry["data_offsets"]) {
      if (offset >= end) offset = offset.get<uint64_t>() - (end - begin);
    }
  }
}

std::string Checkpoint::BytesOf(const std::string& name) const {
  const auto& offsets = header.at(name).at("data_offsets");
  const uint64_t begin = offsets[0], end = offsets[1];
  return data.substr(begin, end - begin);
}

void Checkpoint::Overwrite(const std::string& name, uint64_t offset, const std::string& bytes) {
  const uint64_t begin = header.at(name).at("data_offsets")[0];
  data.replace(begin + offset, bytes.size(), bytes);
}

}  // namespace lockstep::e2e
