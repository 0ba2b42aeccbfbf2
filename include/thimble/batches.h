// SPDX-License-Identifier: Apache-2.0
//
// BatchSource: where a trainer's batches come from. The trainer asks it to fill
// the model's feeds, one microbatch at a time, and is told how much of each
// axis is valid. Which records these are, in what order, and how they are
// changed is the source's business. MakeImageBatches makes the source of
// labelled images, MakeTextBatches that of pairs of sentences.
//
// A source belongs to one run at a time, and to the thread that trains.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "thimble/axis.h"
#include "thimble/data.h"
#include "thimble/graph.h"
#include "thimble/plan.h"
#include "thimble/status.h"
#include "thimble/text_data.h"

namespace thimble {

// How many units of each axis of the plan's graph there are, the others unused:
// 32 sentences and 700 tokens, say.
using AxisCounts = std::array<int64_t, kMaxAxes>;

// A feed of the model: where a source puts what it has of a microbatch, unit
// after unit of the feed's axis.
struct FeedBuffer {
  std::string_view name;
  const ValueSpec* spec = nullptr;  // what there is room for
  std::span<std::byte> bytes;

  // REQUIRES: T is how the feed is stored.
  template <typename T>
  std::span<T> As() const {
    CheckStored(DTypeOf<T>());
    return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
  }

 private:
  void CheckStored(DType dtype) const;
};

// Something to be told of a source, in the log's first line.
struct SourceFact {
  std::string name;
  std::variant<int64_t, std::string> value;
};

class BatchSource {
 public:
  struct StepSize {
    int64_t parts = 0;       // microbatches
    AxisCounts counts = {};  // of all of them together
  };

  virtual ~BatchSource() = default;

  // For messages.
  virtual const std::string& name() const = 0;

  // Called first, and once per run. Fails where the feeds of the plan are not
  // what the source fills, or its batches not what the source can make. The
  // axes of the plan's graph have the room of one microbatch as capacities.
  // From here on, what the source fills is a function of the seed, the epoch,
  // the step and the part alone: a resumed run may begin with any step.
  virtual Status Begin(const Plan& plan, uint64_t seed) = 0;

  // At least 1, and the same for every epoch.
  virtual int64_t StepsPerEpoch() const = 0;
  // Makes step `step` of epoch `epoch` the current one, both from 0. Like Fill,
  // it allocates nothing when it succeeds.
  virtual Result<StepSize> BeginStep(int64_t epoch, int64_t step) = 0;
  // Fills the feeds, which are those of the plan in its order, with microbatch
  // `part` of the current step, and says how much that is along each axis: at
  // least 1, at most what there is room for, and over all parts as much as the
  // step. Losses and metrics are means over the first axis. Parts are asked for
  // in order.
  virtual Result<AxisCounts> Fill(int64_t part,
                                  std::span<const FeedBuffer> feeds) = 0;

  // The same for the test split, which has no steps. Without any parts, epochs
  // end without a test.
  virtual int64_t TestParts() const = 0;
  virtual Result<AxisCounts> FillTest(int64_t part,
                                      std::span<const FeedBuffer> feeds) = 0;

  // Name and value of everything that decides bits, the seed apart, so that a
  // resumed run knows its data again. May read files.
  virtual Result<std::map<std::string, std::string>> Settings() const = 0;
  // What the log's first line says of it.
  virtual std::vector<SourceFact> LogFacts() const = 0;
  // What whoever uses the weights must know to feed the network, as metadata of
  // the weights file.
  virtual std::map<std::string, std::string> WeightsFacts() const = 0;
  // Paths of files that they need beside the weights, such as dictionaries: a
  // run's folder gets copies.
  virtual std::vector<std::string> FilesOfWeights() const { return {}; }
};

struct ImageBatchOptions {
  // Of training images; unset: what the data set is usually trained with.
  std::optional<Augment> augment;
  // A last partial batch is trained on too, not dropped.
  bool keep_last = false;
};

// Batches for models with the feeds `images` and `labels`. Each epoch has all
// training images in an order of its own; the test split comes as it is. The
// data set must outlive the source.
std::unique_ptr<BatchSource> MakeImageBatches(const Dataset& data,
                                              const ImageBatchOptions& options);

// Whether `data` can be trained on in batches of `batch` images, as far as that
// shows without a plan. The source asks too, when it begins.
Status CheckImageBatches(const Dataset& data, const ImageBatchOptions& options,
                         int64_t batch);

struct TextBatchOptions {
  // Of a step: its pairs of sentences, times the longest sentence among them.
  int64_t max_tokens = 4000;
  // What is tested on. Where it is missing, epochs end without a test.
  TextSplit test = TextSplit::kValid;
};

// Batches for models with the feeds `source` and `source_ends` (or neither),
// `target`, `target_ends` and `labels`, all i32. A step has sentences of
// similar length, as many as max_tokens allow, from 8 on a multiple of 8. Which
// are together is the same in every epoch; their order is not. A step falls
// into parts that fill what room the plan has, in order. What the network reads
// as the target is the end of a sentence and then the sentence; labels are the
// sentence and then its end. The data must outlive the source, which keeps some
// 12 bytes per token of max_tokens in memory, and up to 128 KiB.
std::unique_ptr<BatchSource> MakeTextBatches(const TextData& data,
                                             const TextBatchOptions& options);

}  // namespace thimble
