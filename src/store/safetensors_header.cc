// SPDX-License-Identifier: Apache-2.0
#include "store/safetensors_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/utf8.h"

namespace thimble {
namespace {

using Json = nlohmann::json;
using Tensor = SafetensorsReader::Tensor;

constexpr char kMetadataKey[] = "__metadata__";
// {"name": {"shape": [1]}} is the deepest that the format has.
constexpr int kMaxDepth = 3;

struct TypeSize {
  std::string_view name;
  uint64_t bytes;
};
constexpr std::array<TypeSize, 15> kTypes = {{{"F32", 4},
                                              {"F16", 2},
                                              {"BF16", 2},
                                              {"U8", 1},
                                              {"I32", 4},
                                              {"I64", 8},
                                              {"F64", 8},
                                              {"I16", 2},
                                              {"I8", 1},
                                              {"U16", 2},
                                              {"U32", 4},
                                              {"U64", 8},
                                              {"BOOL", 1},
                                              {"F8_E4M3", 1},
                                              {"F8_E5M2", 1}}};

// Names go into messages; a foreign file's may be long or odd.
std::string Quote(std::string_view name) {
  constexpr size_t kShown = 80;
  std::string text = "'";
  for (char c : name.substr(0, kShown)) {
    text += static_cast<unsigned char>(c) < 0x20 ? '?' : c;
  }
  return text + (name.size() > kShown ? "…'" : "'");
}

// Whether brackets nest too deeply, judged without a parser, so that no text
// can make one recurse or pile up memory.
bool NestsTooDeeply(std::string_view json) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > kMaxDepth) return true;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return false;
}

// Parses into *json; keys given twice, which the parser would merge, are an
// error.
Status ParseJson(std::string_view text, Json* json) {
  if (NestsTooDeeply(text)) {
    return Status::Failed("its header nests too deeply");
  }
  std::array<std::set<std::string>, kMaxDepth + 1> keys;
  std::optional<std::string> twice;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& value) {
    const auto level = static_cast<size_t>(depth);
    if (event == Json::parse_event_t::object_start) {
      keys[level + 1].clear();
    } else if (event == Json::parse_event_t::key) {
      const auto& key = value.get_ref<const std::string&>();
      if (!keys[level].insert(key).second) twice = key;
    }
    return true;
  };
  *json = Json::parse(text.begin(), text.end(), watch,
                      /*allow_exceptions=*/false);
  if (json->is_discarded() || !json->is_object()) {
    return Status::Failed("its header is not a JSON object");
  }
  if (twice.has_value()) {
    return Status::Failed(
        fmt::format("its header names {} twice", Quote(*twice)));
  }
  return Status::Ok();
}

Status ParseMetadata(const Json& json, SafetensorsMetadata* metadata) {
  if (!json.is_object()) {
    return Status::Failed("its metadata is not a JSON object");
  }
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string()) {
      return Status::Failed(
          fmt::format("its metadata {} is not a string", Quote(key)));
    }
    metadata->emplace(key, value.get_ref<const std::string&>());
  }
  return Status::Ok();
}

// A list of non-negative integers.
bool ParseIntegers(const Json& json, std::vector<uint64_t>* integers) {
  if (!json.is_array()) return false;
  for (const Json& item : json) {
    if (!item.is_number_unsigned()) return false;
    integers->push_back(item.get<uint64_t>());
  }
  return true;
}

Result<Tensor> ParseTensor(const std::string& name, const Json& json,
                           uint64_t payload_bytes) {
  Tensor tensor;
  tensor.info.name = name;
  if (!json.is_object()) {
    return Status::Failed(
        fmt::format("tensor {} is not described by an object", Quote(name)));
  }
  const auto dtype = json.find("dtype");
  if (dtype == json.end() || !dtype->is_string()) {
    return Status::Failed(fmt::format("tensor {} has no dtype", Quote(name)));
  }
  tensor.info.dtype = dtype->get_ref<const std::string&>();
  const auto shape = json.find("shape");
  if (shape == json.end() || !ParseIntegers(*shape, &tensor.info.shape)) {
    return Status::Failed(
        fmt::format("tensor {} has no shape of whole numbers", Quote(name)));
  }
  const auto offsets = json.find("data_offsets");
  std::vector<uint64_t> range;
  if (offsets == json.end() || !ParseIntegers(*offsets, &range) ||
      range.size() != 2 || range[0] > range[1] || range[1] > payload_bytes) {
    return Status::Failed(
        fmt::format("tensor {} has no data_offsets within the file's {} bytes "
                    "of tensors",
                    Quote(name), payload_bytes));
  }
  tensor.begin = range[0];
  tensor.bytes = range[1] - range[0];
  TH_ASSIGN_OR_RETURN(const uint64_t bytes, TensorBytes(tensor.info));
  if (bytes != tensor.bytes) {
    return Status::Failed(fmt::format(
        "tensor {} takes {} bytes by its shape, but {} by its data_offsets",
        Quote(name), bytes, tensor.bytes));
  }
  return tensor;
}

// Sorts by place; tensors must fill the payload without gap or overlap.
Status CheckRanges(uint64_t payload_bytes, std::vector<Tensor>* tensors) {
  std::sort(tensors->begin(), tensors->end(),
            [](const Tensor& a, const Tensor& b) {
              return std::tie(a.begin, a.bytes, a.info.name) <
                     std::tie(b.begin, b.bytes, b.info.name);
            });
  uint64_t end = 0;
  for (const Tensor& tensor : *tensors) {
    if (tensor.begin != end) {
      return Status::Failed(fmt::format(
          "tensor {} starts at byte {}, {} the end of the one before at {}",
          Quote(tensor.info.name), tensor.begin,
          tensor.begin < end ? "before" : "after", end));
    }
    end += tensor.bytes;
  }
  if (end != payload_bytes) {
    return Status::Failed(
        fmt::format("its tensors take {} bytes, but {} follow the header", end,
                    payload_bytes));
  }
  return Status::Ok();
}

Status CheckText(std::string_view what, const std::string& text) {
  if (IsUtf8(text)) return Status::Ok();
  return Status::Usage(
      fmt::format("{} is not UTF-8, which a safetensors file requires", what));
}

}  // namespace

Result<uint64_t> TensorBytes(const TensorInfo& info) {
  const auto* type = std::find_if(
      kTypes.begin(), kTypes.end(),
      [&](const TypeSize& known) { return known.name == info.dtype; });
  if (type == kTypes.end()) {
    return Status::Failed(fmt::format("tensor {} has the unknown dtype {}",
                                      Quote(info.name), Quote(info.dtype)));
  }
  uint64_t bytes = type->bytes;
  for (uint64_t extent : info.shape) {
    if (__builtin_mul_overflow(bytes, extent, &bytes)) {
      return Status::Failed(fmt::format(
          "the shape of tensor {} overflows 64 bits", Quote(info.name)));
    }
  }
  return bytes;
}

std::string SealPrefix() {
  return fmt::format("{{\"{}\":{{\"{}\":\"", kMetadataKey, kSafetensorsSeal);
}

Status FormatMetadata(const SafetensorsMetadata& metadata,
                      std::string_view seal, TextSink sink) {
  if (metadata.empty() && seal.empty()) return sink("{");
  std::string text;
  if (seal.empty()) {
    text = fmt::format("{{\"{}\":{{", kMetadataKey);
  } else {
    text = fmt::format("{}{}\"", SealPrefix(), seal);
  }
  bool is_first = seal.empty();
  for (const auto& [key, value] : metadata) {
    TH_RETURN_IF_ERROR(CheckText("a key of the metadata", key));
    TH_RETURN_IF_ERROR(
        CheckText(fmt::format("metadata {}", Quote(key)), value));
    text += fmt::format("{}{}:{}", is_first ? "" : ",", Json(key).dump(),
                        Json(value).dump());
    is_first = false;
  }
  return sink(text + "}");
}

Status FormatEntry(bool is_first, const TensorInfo& info, uint64_t* begin,
                   TextSink sink) {
  TH_RETURN_IF_ERROR(CheckText("a tensor's name", info.name));
  if (info.name == kMetadataKey) {
    return Status::Usage(
        fmt::format("a tensor cannot be named {}", Quote(kMetadataKey)));
  }
  TH_ASSIGN_OR_RETURN(const uint64_t bytes, TensorBytes(info));
  uint64_t end = 0;
  if (__builtin_add_overflow(*begin, bytes, &end)) {
    return Status::Failed("the tensors overflow 64 bits of bytes");
  }
  TH_RETURN_IF_ERROR(sink(fmt::format(
      "{}{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
      is_first ? "" : ",", Json(info.name).dump(), info.dtype,
      fmt::join(info.shape, ","), *begin, end)));
  *begin = end;
  return Status::Ok();
}

std::string_view FormatPadding(uint64_t header_bytes) {
  return std::string_view("       ").substr(0, -header_bytes % 8);
}

Status CheckNames(size_t count, FunctionRef<TensorInfo(size_t)> info) {
  // Four bytes a name; names themselves are looked at where two are alike.
  const auto sum_of = [&](size_t i) {
    const size_t sum = std::hash<std::string>()(info(i).name);
    return static_cast<uint32_t>(sum ^ sum >> 32);
  };
  std::vector<uint32_t> sums(count);
  for (size_t i = 0; i < count; ++i) sums[i] = sum_of(i);
  std::sort(sums.begin(), sums.end());
  for (auto at = sums.begin();;) {
    at = std::adjacent_find(at, sums.end());
    if (at == sums.end()) return Status::Ok();
    std::set<std::string> names;
    for (size_t i = 0; i < count; ++i) {
      if (sum_of(i) != *at) continue;
      const std::string name = info(i).name;
      if (names.insert(name).second) continue;
      return Status::Usage(
          fmt::format("two tensors cannot both be named {}", Quote(name)));
    }
    at = std::upper_bound(at, sums.end(), *at);
  }
}

Result<LeadingMetadata> ParseLeadingMetadata(std::string_view text) {
  const std::string begin = fmt::format("{{\"{}\":", kMetadataKey);
  bool in_string = false;
  size_t end = begin.size();
  for (; end < text.size() && (in_string || text[end] != '}'); ++end) {
    if (in_string && text[end] == '\\') {
      ++end;
    } else if (text[end] == '"') {
      in_string = !in_string;
    }
  }
  if (!text.starts_with(begin) || end >= text.size()) {
    return Status::Failed("its header does not begin with metadata");
  }
  Json json;
  LeadingMetadata leading;
  leading.end = end + 1;
  TH_RETURN_IF_ERROR(
      ParseJson(text.substr(begin.size(), leading.end - begin.size()), &json));
  TH_RETURN_IF_ERROR(ParseMetadata(json, &leading.metadata));
  return leading;
}

Result<SafetensorsHeader> ParseSafetensorsHeader(std::string_view json,
                                                 uint64_t payload_bytes) {
  Json parsed;
  TH_RETURN_IF_ERROR(ParseJson(json, &parsed));
  SafetensorsHeader header;
  for (const auto& [name, value] : parsed.items()) {
    if (name == kMetadataKey) {
      TH_RETURN_IF_ERROR(ParseMetadata(value, &header.metadata));
      continue;
    }
    TH_ASSIGN_OR_RETURN(Tensor tensor, ParseTensor(name, value, payload_bytes));
    header.tensors.push_back(std::move(tensor));
  }
  TH_RETURN_IF_ERROR(CheckRanges(payload_bytes, &header.tensors));
  return header;
}

}  // namespace thimble
