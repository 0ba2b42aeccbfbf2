// SPDX-License-Identifier: Apache-2.0
//
// Translator: the folder of a run that has trained a translation model, as a
// program from lines of text to lines of text. It is planned as training is:
// all tensors lie in one arena, whose size is known before.
//
//   auto translator = Translator::Open("run1", {.beam = 4, .threads = 2});
//   auto done = (*translator)->Translate(STDIN_FILENO, STDOUT_FILENO);
//
// A translator belongs to one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "thimble/plan.h"
#include "thimble/status.h"
#include "thimble/text_data.h"

namespace thimble {

struct TranslateOptions {
  // Hypotheses of a sentence; 1: the most probable token is taken each time.
  int64_t beam = 4;
  // Translations are compared by the sum of log-probabilities over their length
  // to this power, the end counted.
  double length_penalty = 1.0;
  int64_t max_length = 200;  // tokens of a translation, its end not counted
  int64_t nbest = 0;         // above 0: so many translations, with scores
  // Sentences at once; fewer where the budget has no room for all. What is
  // found does not depend on it, to the bit.
  int64_t batch = 32;
  int64_t max_source = 1024;  // tokens of a source sentence, its end counted
  int threads = 1;
  std::optional<uint64_t> budget;  // of the arena and the search beside it
  // Above 0: by the mean of the weights of the run's last so many epochs
  // (TrainOptions::keep_epochs).
  int64_t average = 0;
};

// Whether options make sense, as far as that shows by themselves.
Status CheckTranslateOptions(const TranslateOptions& options);

struct TranslateSummary {
  int64_t lines = 0;
  int64_t source_tokens = 0;  // without ends
  int64_t target_tokens = 0;  // of the best translations
};

struct BleuSummary {
  int64_t sentences = 0;
  double bleu = 0;  // of 0 to 100
  // The share of the translations' words, pairs, triples and fours of words
  // that their references have, of 0 to 100.
  double precisions[4] = {};
  double brevity_penalty = 1;
  int64_t translated_words = 0, reference_words = 0;
};

class Translator {
 public:
  // The folder given to Train as TrainOptions::out_dir, which holds weights,
  // codes and dictionaries. Fails where they do not fit each other, or where
  // the plan does not fit the budget.
  static Result<std::unique_ptr<Translator>> Open(
      const std::string& dir, const TranslateOptions& options);
  ~Translator();
  Translator(const Translator&) = delete;
  Translator& operator=(const Translator&) = delete;

  const Plan& plan() const;
  // What the search takes beside the arena.
  uint64_t search_bytes() const;
  int64_t batch() const;  // sentences at once, as the budget allows

  // Reads lines of tokenised text from the descriptor `in` to its end, and
  // writes a translation of each to `out`, in their order; of an empty line an
  // empty one. With TranslateOptions::nbest, a translation is a line of its
  // own: number of the line from 1, score and text, with tabs between. Where
  // input stops to come for a moment, what is there is translated. Fails where
  // a line is not UTF-8 or too long, behind the translations of all lines
  // before it, and where `out` takes no more.
  Result<TranslateSummary> Translate(int in, int out);

  // BLEU (multi-bleu.perl's) of the translations of a split. Fails where the
  // data was prepared with other dictionaries.
  Result<BleuSummary> Bleu(const TextData& data, TextSplit split);

 private:
  struct Impl;
  explicit Translator(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace thimble
