// SPDX-License-Identifier: Apache-2.0
//
// Lines in, translations out: windows of lines are encoded, searched in the
// order of their lengths, and written in the order in which they came. One
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "thimble/status.h"
#include "thimble/translate.h"
#include "translate/decoder.h"
#include "translate/lines.h"

namespace thimble::translate {

// Text as tokens and back.
struct LineCoding {
  // Appends the tokens of a line, its end included; an error says what is wrong
  // with it, as "is not UTF-8".
  FunctionRef<Status(std::string_view line, std::vector<int32_t>* tokens)>
      encode;
  // Appends the text of tokens without their end.
  FunctionRef<void(std::span<const int32_t> tokens, std::string* line)> decode;
};

// Sentences, to be translated in the order of their lengths.
class Window {
 public:
  // So many sentences keep groups of `at_once` full.
  explicit Window(int64_t at_once);

  void Clear();
  bool is_full() const;
  size_t size() const { return ends_.size(); }
  // Where the tokens of the next sentence are to be appended.
  std::vector<int32_t>* tokens() { return &tokens_; }
  // The appended ones are a sentence.
  void Close() { ends_.push_back(tokens_.size()); }
  // What was appended is none.
  void Drop() { tokens_.resize(ends_.empty() ? 0 : ends_.back()); }
  std::span<const int32_t> operator[](size_t i) const;

  // Those of at least `least` tokens, the longest first.
  Status Translate(Decoder& decoder, size_t least, const Decoder::Found& found);

 private:
  size_t most_;
  std::vector<int32_t> tokens_;
  std::vector<size_t> ends_;
  std::vector<size_t> order_;
  std::vector<Decoder::Source> sources_;
};

Result<TranslateSummary> TranslateLines(Decoder& decoder,
                                        const LineCoding& coding,
                                        const TranslateOptions& options,
                                        Window& window, int in, int out);

}  // namespace thimble::translate
