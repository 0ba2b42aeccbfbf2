// SPDX-License-Identifier: Apache-2.0
//
// The JSON header of a safetensors file: text in and out, piece by piece where
// it is written. Functions are safe from every thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "store/safetensors.h"
#include "thimble/status.h"

namespace thimble {

// Well above 100,000 tensors. The format allows 100 MB, which a parser turns
// into more than a gigabyte.
inline constexpr uint64_t kMaxSafetensorsHeaderBytes = uint64_t{16} << 20;

// The length that stands in front of the header takes this much.
inline constexpr uint64_t kLengthBytes = 8;

// Takes the next piece of a text.
using TextSink = FunctionRef<Status(std::string_view piece)>;

// The header's JSON text piece by piece: FormatMetadata, then an entry for each
// tensor, then "}" and FormatPadding of what came before. `seal` is the value
// of the first metadata, or empty. Whatever could not be read again is an
// error.
Status FormatMetadata(const SafetensorsMetadata& metadata,
                      std::string_view seal, TextSink sink);
// `begin` is where the tensor's bytes begin among the tensors'; it moves on to
// their end.
Status FormatEntry(bool is_first, const TensorInfo& info, uint64_t* begin,
                   TextSink sink);
// Spaces, so that the tensors start at a multiple of 8.
std::string_view FormatPadding(uint64_t header_bytes);

// "{" and the beginning of the metadata, up to the digits of a seal.
std::string SealPrefix();

// Fails where two tensors have one name.
Status CheckNames(size_t count, FunctionRef<TensorInfo(size_t)> info);

// Where the metadata of a header written by FormatMetadata ends, and what it
// is, the seal included. `text` is the beginning of the header, of whole
// metadata.
struct LeadingMetadata {
  SafetensorsMetadata metadata;
  size_t end = 0;  // of "__metadata__":{…}
};
Result<LeadingMetadata> ParseLeadingMetadata(std::string_view text);

// The length that stands in front of the header, checked against the file's.
Result<uint64_t> ReadHeaderLength(const FileDescriptor& file);

struct SafetensorsHeader {
  // In the order of their bytes; `begin` counts from the end of the header.
  std::vector<SafetensorsReader::Tensor> tensors;
  SafetensorsMetadata metadata;
};

// Reads and checks the JSON text of a header that is followed by exactly
// `payload_bytes`. An error says what is wrong, without naming the file.
Result<SafetensorsHeader> ParseSafetensorsHeader(std::string_view json,
                                                 uint64_t payload_bytes);

}  // namespace thimble
