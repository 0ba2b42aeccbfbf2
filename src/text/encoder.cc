// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "base/check.h"
#include "text/bpe.h"
#include "text/lines.h"
#include "thimble/text_data.h"

namespace thimble {

struct SentenceEncoder::Impl {
  Impl(Dictionary words, const text::PairCodes& codes)
      : dictionary(std::move(words)), segmenter(codes) {}

  Dictionary dictionary;
  text::Segmenter segmenter;
  std::string piece;
};

Result<std::unique_ptr<SentenceEncoder>> SentenceEncoder::Open(
    const std::string& dir, TextSide side) {
  TH_ASSIGN_OR_RETURN(
      Dictionary dictionary,
      Dictionary::Read(
          dir + (side == TextSide::kSource ? "/source.dict" : "/target.dict")));
  TH_ASSIGN_OR_RETURN(const text::PairCodes codes,
                      text::ReadCodes(dir + "/codes"));
  return std::unique_ptr<SentenceEncoder>(new SentenceEncoder(
      std::make_unique<Impl>(std::move(dictionary), codes)));
}

SentenceEncoder::SentenceEncoder(std::unique_ptr<Impl> impl)
    : impl_(std::move(impl)) {}
SentenceEncoder::~SentenceEncoder() = default;

const Dictionary& SentenceEncoder::dictionary() const {
  return impl_->dictionary;
}

int64_t SentenceEncoder::Encode(std::string_view line,
                                std::vector<int32_t>* tokens) {
  int64_t unknown = 0;
  text::ForEachWord(line, [&](std::string_view word) {
    text::ForEachPiece(impl_->segmenter, word, &impl_->piece,
                       [&](const std::string& piece) {
                         tokens->push_back(impl_->dictionary.Find(piece));
                         unknown += tokens->back() == kUnknownToken;
                       });
  });
  tokens->push_back(kEndToken);
  return unknown;
}

}  // namespace thimble
