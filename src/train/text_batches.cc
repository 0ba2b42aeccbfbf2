// SPDX-License-Identifier: Apache-2.0
//
// Batches of pairs of sentences. Records of the training split lie sorted by
// length, so a batch is a range of them (text/ranges.h).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "base/check.h"
#include "base/files.h"
#include "base/permutation.h"
#include "base/rng.h"
#include "text/meaning.h"
#include "text/ranges.h"
#include "thimble/batches.h"
#include "thimble/text.h"
#include "thimble/text_data.h"
#include "train/text_facts.h"

namespace thimble {
namespace {

using text::Extent;
using text::RangeAt;
using text::Ranges;

enum TextFeed : size_t {
  kSourceFeed,
  kSourceEnds,
  kTargetFeed,
  kTargetEnds,
  kLabelFeed
};
constexpr std::array<std::string_view, 5> kTextFeeds = {
    "source", "source_ends", "target", "target_ends", "labels"};

// The feeds of a network that the source fills: which of the plan's they are,
// and how much they hold.
struct TextFeeds {
  std::array<std::optional<size_t>, kTextFeeds.size()> position;
  std::array<AxisId, kTextFeeds.size()> axis;
  text::Rule room;

  bool has(TextFeed feed) const { return position[feed].has_value(); }
  std::span<int32_t> Of(TextFeed feed,
                        std::span<const FeedBuffer> buffers) const {
    if (!has(feed)) return {};
    return buffers[*position[feed]].As<int32_t>();
  }
  AxisCounts Counts(const Extent& range) const {
    const int64_t of_feed[] = {range.source, range.pairs, range.target,
                               range.pairs, range.target};
    AxisCounts counts = {};
    for (size_t i = 0; i < kTextFeeds.size(); ++i) {
      if (position[i].has_value()) counts[axis[i].index()] = of_feed[i];
    }
    return counts;
  }
};

// Copies a sentence's tokens, and its end's row; false if one of them is not in
// the vocabulary. Nothing is copied where the network has no such feed.
bool CopyTokens(std::span<const std::byte> from, int64_t vocabulary,
                std::span<int32_t> to) {
  uint16_t most = 0;
  for (size_t i = 0; i < to.size(); ++i) {
    uint16_t token;
    std::memcpy(&token, &from[2 * i], sizeof(token));
    to[i] = token;
    most = std::max(most, token);
  }
  return most < vocabulary;
}

class TextBatches final : public BatchSource {
 public:
  TextBatches(const TextData& data, const TextBatchOptions& options)
      : data_(data), options_(options) {}

  const std::string& name() const override { return data_.name(); }

  Status Begin(const Plan& plan, uint64_t seed) override {
    seed_ = seed;
    train_.reset();
    test_.reset();
    TH_RETURN_IF_ERROR(FindFeeds(plan));
    TH_RETURN_IF_ERROR(CheckVocabulary(plan, kSourceFeed, TextSide::kSource));
    TH_RETURN_IF_ERROR(CheckVocabulary(plan, kTargetFeed, TextSide::kTarget));
    TH_RETURN_IF_ERROR(CheckVocabulary(plan, kLabelFeed, TextSide::kTarget));
    if (data_.pairs(options_.test) > 0) {
      TH_RETURN_IF_ERROR(CheckRoom(plan, options_.test));
      TH_ASSIGN_OR_RETURN(test_, Ranges::Of(data_, options_.test, feeds_.room));
    }
    return plan.options().training ? BeginTraining(plan) : Status::Ok();
  }

  int64_t StepsPerEpoch() const override {
    return train_.has_value() ? train_->count() : 0;
  }

  Result<StepSize> BeginStep(int64_t epoch, int64_t step) override {
    const KeyedPermutation order(
        static_cast<uint64_t>(train_->count()),
        RandomStream(seed_, static_cast<uint64_t>(epoch), kOrderStream).Key());
    TH_ASSIGN_OR_RETURN(
        step_,
        train_->Load(static_cast<int64_t>(order(static_cast<uint64_t>(step)))));
    at_ = 0;
    StepSize size{.parts = 0, .counts = feeds_.Counts(step_)};
    for (uint64_t at = 0; at < step_.bytes; ++size.parts) {
      const auto part = PartAt(at);
      if (!part.has_value()) return train_->Changed();
      at += part->bytes;
    }
    return size;
  }

  Result<AxisCounts> Fill(int64_t part,
                          std::span<const FeedBuffer> feeds) override {
    if (part == 0) at_ = 0;
    const auto range = PartAt(at_);
    if (!range.has_value() ||
        !Put(train_->loaded().subspan(at_, range->bytes), feeds)) {
      return train_->Changed();
    }
    at_ += range->bytes;
    return feeds_.Counts(*range);
  }

  int64_t TestParts() const override {
    return test_.has_value() ? test_->count() : 0;
  }

  Result<AxisCounts> FillTest(int64_t part,
                              std::span<const FeedBuffer> feeds) override {
    TH_ASSIGN_OR_RETURN(const Extent range, test_->Load(part));
    if (!Put(test_->loaded().first(range.bytes), feeds)) {
      return test_->Changed();
    }
    return feeds_.Counts(range);
  }

  Result<std::map<std::string, std::string>> Settings() const override {
    return std::map<std::string, std::string>{
        {"data", Printable(data_.name())},
        {"training pairs", std::to_string(data_.pairs(TextSplit::kTrain))},
        {"data fingerprint", data_.fingerprint()},
        {"max-tokens", std::to_string(options_.max_tokens)},
        {"test split", TextSplitName(options_.test)}};
  }

  std::vector<SourceFact> LogFacts() const override {
    return {{"data", data_.name()},
            {"train_pairs", data_.pairs(TextSplit::kTrain)},
            {"test_pairs", data_.pairs(options_.test)},
            {"max_tokens", options_.max_tokens}};
  }

  std::map<std::string, std::string> WeightsFacts() const override {
    return {{train::kTextFact, data_.meaning()}};
  }
  // What whoever has text and not numbers needs.
  std::vector<std::string> FilesOfWeights() const override {
    std::vector<std::string> paths;
    for (const char* name : {text::kCodesName, text::kDictionaryNames[0],
                             text::kDictionaryNames[1]}) {
      const std::string path = data_.name() + "/" + name;
      if (IsFile(path)) paths.push_back(path);
    }
    return paths;
  }

 private:
  // The part of the current step from byte `at` of its records on.
  std::optional<Extent> PartAt(uint64_t at) const {
    return RangeAt(train_->loaded().first(step_.bytes).subspan(at),
                   /*is_all=*/true, feeds_.room);
  }

  Status BeginTraining(const Plan& plan) {
    if (data_.pairs(TextSplit::kTrain) == 0) {
      return Status::Usage(
          fmt::format("'{}' has no sentences to train on", data_.name()));
    }
    const int64_t longest =
        std::max(Longest(TextSide::kSource), Longest(TextSide::kTarget));
    if (longest > options_.max_tokens) {
      return Status::Usage(fmt::format(
          "'{}' has a sentence of {} to train on, and a batch has at most {}; "
          "use a larger TextBatchOptions::max_tokens, or prepare the text with "
          "a smaller PrepareOptions::max_length",
          data_.name(), Counted(longest, "token"), options_.max_tokens));
    }
    TH_RETURN_IF_ERROR(CheckRoom(plan, TextSplit::kTrain));
    TH_ASSIGN_OR_RETURN(train_, Ranges::Of(data_, TextSplit::kTrain,
                                           {.padded = options_.max_tokens}));
    return CheckParts(plan);
  }

  int64_t Longest(TextSide side) const {
    return data_.longest(TextSplit::kTrain, side);
  }

  // Steps of several parts need a plan of several.
  Status CheckParts(const Plan& plan) const {
    if (plan.microbatches() > 1 ||
        options_.max_tokens <= std::min({feeds_.room.pairs, feeds_.room.source,
                                         feeds_.room.target})) {
      return Status::Ok();
    }
    return Status::Usage(fmt::format(
        "a step on '{}' has up to {}, and the plan of {} has room for {} at "
        "once; use a TextBatchOptions::max_tokens of that, or plan a larger "
        "Model::batch, or with PlanOptions::microbatch",
        data_.name(), Counted(options_.max_tokens, "token"), plan.model(),
        std::min({feeds_.room.pairs, feeds_.room.source, feeds_.room.target})));
  }

  // Each sentence must fit into a microbatch.
  Status CheckRoom(const Plan& plan, TextSplit split) const {
    const struct {
      TextSide side;
      const char* what;
      int64_t room;
    } sides[] = {{TextSide::kSource, "source", feeds_.room.source},
                 {TextSide::kTarget, "target", feeds_.room.target}};
    for (const auto& [side, what, room] : sides) {
      const int64_t longest = data_.longest(split, side);
      if (longest <= room) continue;
      return Status::Usage(fmt::format(
          "the {} split of '{}' has a {} sentence of {}, and the plan of {} "
          "has room for {} at once; plan with a {} of at least {}, or prepare "
          "the text with a smaller PrepareOptions::max_length",
          TextSplitName(split), data_.name(), what, Counted(longest, "token"),
          plan.model(), room,
          plan.microbatches() > 1 ? "PlanOptions::microbatch" : "Model::batch",
          longest));
    }
    return Status::Ok();
  }

  Status FindFeeds(const Plan& plan) {
    const Ends& ends =
        plan.options().training ? plan.train_ends() : plan.evaluate_ends();
    const std::span<const Axis> axes = plan.graph().axes();
    feeds_ = {};
    bool is_text = true;
    for (size_t i = 0; i < ends.feeds.size(); ++i) {
      const ValueSpec& spec = plan.graph().value(ends.feeds[i].value).spec;
      const auto known = std::ranges::find(kTextFeeds, ends.feeds[i].name);
      is_text = is_text && known != kTextFeeds.end() &&
                spec.storage == DType::kI32 && spec.shape.rank() == 1 &&
                spec.axis.valid();
      if (!is_text) break;
      const auto feed = static_cast<size_t>(known - kTextFeeds.begin());
      feeds_.position[feed] = i;
      feeds_.axis[feed] = spec.axis;
      int64_t* const rooms[] = {&feeds_.room.source, &feeds_.room.pairs,
                                &feeds_.room.target, &feeds_.room.pairs,
                                &feeds_.room.target};
      *rooms[feed] = std::min(*rooms[feed], axes[spec.axis.index()].capacity);
    }
    if (is_text && feeds_.has(kTargetFeed) && feeds_.has(kTargetEnds) &&
        feeds_.has(kLabelFeed) &&
        feeds_.has(kSourceFeed) == feeds_.has(kSourceEnds)) {
      return Status::Ok();
    }
    return Status::Usage(fmt::format(
        "'{}' holds sentences of text, for which {} has no feeds, or has "
        "others besides: they are source and source_ends, target, target_ends "
        "and labels; train it with a source of its own",
        data_.name(), plan.model()));
  }

  // Parameters that an op reads together with tokens have a row for each.
  Status CheckVocabulary(const Plan& plan, TextFeed feed, TextSide side) const {
    if (!feeds_.has(feed)) return Status::Ok();
    const Ends& ends =
        plan.options().training ? plan.train_ends() : plan.evaluate_ends();
    const ValueId tokens = ends.feeds[*feeds_.position[feed]].value;
    for (const Op& op : plan.graph().ops()) {
      if (std::ranges::find(op.inputs, tokens) == op.inputs.end()) continue;
      for (const ValueId input : op.inputs) {
        const Value& value = plan.graph().value(input);
        if (value.role != Role::kParameter || value.spec.shape.rank() != 2 ||
            value.spec.shape[0] >= data_.vocabulary(side)) {
          continue;
        }
        return Status::Usage(fmt::format(
            "'{}' has {} {} tokens, and {} knows {} of them ('{}'); build it "
            "with a {}_vocabulary of {}",
            data_.name(), data_.vocabulary(side),
            side == TextSide::kSource ? "source" : "target", plan.model(),
            value.spec.shape[0], value.name,
            side == TextSide::kSource ? "source" : "target",
            data_.vocabulary(side)));
      }
    }
    return Status::Ok();
  }

  // Records into the feeds, which have room for them; false where they are not
  // as they were.
  bool Put(std::span<const std::byte> records,
           std::span<const FeedBuffer> feeds) const {
    const std::span<int32_t> source = feeds_.Of(kSourceFeed, feeds);
    const std::span<int32_t> source_ends = feeds_.Of(kSourceEnds, feeds);
    const std::span<int32_t> target = feeds_.Of(kTargetFeed, feeds);
    const std::span<int32_t> target_ends = feeds_.Of(kTargetEnds, feeds);
    const std::span<int32_t> labels = feeds_.Of(kLabelFeed, feeds);
    size_t pair = 0, source_at = 0, target_at = 0;
    for (uint64_t at = 0; at < records.size(); ++pair) {
      const auto record = text::RecordAt(records, at);
      if (!record.has_value()) return false;
      const auto body = records.subspan(at + TextRecord::kHeadBytes);
      if (!source.empty()) {
        if (!CopyTokens(body, data_.vocabulary(TextSide::kSource),
                        source.subspan(source_at, record->source))) {
          return false;
        }
        source_at += record->source;
        source_ends[pair] = static_cast<int32_t>(source_at);
      }
      const auto sentence = labels.subspan(target_at, record->target);
      if (!CopyTokens(body.subspan(2 * size_t{record->source}),
                      data_.vocabulary(TextSide::kTarget), sentence)) {
        return false;
      }
      // What is to be told next is told before it: the end, then the sentence.
      target[target_at] = kEndToken;
      std::copy(sentence.begin(), sentence.end() - 1,
                target.begin() + static_cast<ptrdiff_t>(target_at) + 1);
      target_at += record->target;
      target_ends[pair] = static_cast<int32_t>(target_at);
      at += record->bytes();
    }
    return true;
  }

  const TextData& data_;
  const TextBatchOptions options_;
  uint64_t seed_ = 0;
  TextFeeds feeds_;
  std::optional<Ranges> train_;  // batches
  std::optional<Ranges> test_;   // microbatches
  // The current step, and how much of it was asked for.
  Extent step_;
  uint64_t at_ = 0;
};

}  // namespace

std::unique_ptr<BatchSource> MakeTextBatches(const TextData& data,
                                             const TextBatchOptions& options) {
  return std::make_unique<TextBatches>(data, options);
}

}  // namespace thimble
