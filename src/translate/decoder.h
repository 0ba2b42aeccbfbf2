// SPDX-License-Identifier: Apache-2.0
//
// Decoder: searches translations of sentences with a network that
// BuildTranslator made, in a session. Sentences go through it in groups. A
// group's source is read once; then, token by token, the network reads all
// hypotheses of the group from their beginnings and says what comes next.
// Sentences that are done leave the group. Hypotheses of the others become
// longer: where there is no room for all of them the last sentences wait, and
// go on in a group of their own. What is found for a sentence depends, to the
// bit, on none of this.
//
// All memory is taken by the constructor. One thread at a time, as the session.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/function_ref.h"
#include "thimble/model.h"
#include "thimble/session.h"
#include "thimble/status.h"
#include "translate/beam.h"

namespace thimble::translate {

// What BuildTranslator is to have room for, so that `sentences` can be searched
// at once, if they are of usual length, and one in any case, whose source has
// up to `longest_source` tokens.
TranslatorRoom RoomFor(const BeamOptions& beam, int64_t sentences,
                       int64_t longest_source);

class Decoder {
 public:
  using Source = std::span<const int32_t>;  // with its end
  // Sentence `i` of those that were given is done: what was found.
  using Found = FunctionRef<void(size_t i, const BeamSearch& search)>;

  // The session, with weights, must outlive it. REQUIRES: its plan is of a
  // model of BuildTranslator, with room for one sentence in any case.
  Decoder(Session& session, const BeamOptions& options);

  // What a decoder allocates.
  static size_t BytesOf(const BeamOptions& options, int64_t sentences);
  int64_t longest_source() const { return room_.source_tokens; }

  // Sentences of like lengths should be neighbours. Fails where the network's
  // answers are no numbers. REQUIRES: each has 1 to longest_source() tokens of
  // the source's vocabulary.
  Status Translate(std::span<const Source> sources, const Found& found);

 private:
  struct Slot {
    BeamSearch search;
    size_t sentence = 0;
  };

  // Tokens of the slot's hypotheses as the network reads them.
  static int64_t TargetTokens(const Slot& slot) {
    return slot.search.hypotheses() * (slot.search.length() + 1);
  }
  // Whether the group still has room for a source of so many tokens, with so
  // many of the target.
  bool HasRoom(int64_t source_tokens, int64_t target_tokens) const;
  void Join(size_t slot, Source source);
  void FormGroup(std::span<const Source> sources);
  // The network on the group: all of it, or what is behind the source.
  void ReadSources(std::span<const Source> sources);
  void ReadHypotheses();
  AxisParts Feed();
  // One token more for all; those that are done leave.
  Status Advance(const Found& found);
  // Takes what the network made of the source of place `from` in the group to
  // where that of place `to` shall be.
  void MoveSource(size_t from, size_t to);
  void LetLastWait();

  Session& session_;
  BeamOptions options_;
  TranslatorRoom room_;
  ValueId read_, logits_;
  size_t read_row_bytes_;
  std::vector<Slot> slots_;
  std::vector<size_t> free_, waiting_;  // slots
  // In the order in which the network reads them: slots, and where the rows of
  // each one's source end.
  std::vector<size_t> group_;
  std::vector<int32_t> source_ends_;
  int64_t target_tokens_ = 0;  // of the group
  size_t next_ = 0;            // sentence that has no slot yet
};

}  // namespace thimble::translate
