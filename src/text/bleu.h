// SPDX-License-Identifier: Apache-2.0
//
// BLEU as multi-bleu.perl defines it: of a whole corpus, one reference for each
// sentence, words as they stand between blanks. With c words in all hypotheses,
// r in all references, and p_n the share of the hypotheses' n-grams that their
// references have too (each n-gram of a reference counts once), it is
//
//   100 · min(1, exp(1 − r/c)) · (p_1 p_2 p_3 p_4)^(1/4)
//
// and 0 where a p_n is 0. A corpus of any length takes the memory of its
// longest line. A BleuCounts belongs to one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "thimble/status.h"

namespace thimble::text {

inline constexpr size_t kBleuOrders = 4;

struct Bleu {
  double bleu = 0;                               // of 0 to 100
  std::array<double, kBleuOrders> precisions{};  // p_n, of 0 to 100
  double brevity_penalty = 1;                    // of 0 to 1
  int64_t sentences = 0;
  int64_t hypothesis_words = 0, reference_words = 0;

  // "BLEU = 27.31, 58.1/33.0/20.8/13.4 (BP=1.000, ratio=1.012,
  // hyp_len=132710, ref_len=131161)", as multi-bleu.perl prints it.
  std::string Text() const;
};

class BleuCounts {
 public:
  // A sentence; either may be empty.
  void Add(std::string_view hypothesis, std::string_view reference);
  Bleu Score() const;

 private:
  // Gives each different word of both a number.
  void Number(std::string_view hypothesis, std::string_view reference);

  std::array<int64_t, kBleuOrders> matches_{}, made_{};
  int64_t sentences_ = 0, hypothesis_words_ = 0, reference_words_ = 0;
  // Of the last sentence; kept for their memory.
  std::vector<std::string_view> words_, known_;
  std::vector<uint32_t> hypothesis_, reference_;
  std::vector<uint32_t> hypothesis_grams_,
      reference_grams_;  // where each begins
};

// Of two files, line by line. Fails where one has more lines.
Result<Bleu> BleuOfFiles(const std::string& hypotheses,
                         const std::string& references);

}  // namespace thimble::text
