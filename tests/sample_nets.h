// SPDX-License-Identifier: Apache-2.0
//
// Small networks, each around one sample of the oracle, so that tests over all
// ops know none of them. One thread.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <typeinfo>
#include <utility>
#include <vector>

#include "graph/op.h"
#include "oracle/oracle.h"
#include "thimble/graph.h"
#include "thimble/network.h"
#include "thimble/plan.h"

namespace thimble::testing {

// What stands before and behind the sample.
enum class Around : uint8_t {
  // Both its input and its output are read again in backward, the input by an
  // op behind it, so that a gradient of the input is already there.
  kRead,
  // A batch norm and a ReLU before it, and behind it: what fuses will fuse.
  kNormalized,
  // Its output is passed on by an op whose backward reads nothing, and the loss
  // is that of texts.
  kPassedOn,
  // Nothing before it is learned: the gradient of its input is not wanted.
  kAlone,
};
inline constexpr Around kAllAround[] = {Around::kRead, Around::kNormalized,
                                        Around::kPassedOn, Around::kAlone};

inline bool ForAll(Around around) { return around <= Around::kNormalized; }

inline const char* AroundName(Around around) {
  switch (around) {
    case Around::kRead:
      return "read";
    case Around::kPassedOn:
      return "passed on";
    case Around::kNormalized:
      return "normalized";
    case Around::kAlone:
      return "alone";
  }
  return "?";
}

struct SampleNet {
  const Entry* entry;
  std::string what;
  Model model;
};

// Of values that stay as they are from step to step, but for parameters.
inline bool HasRunningStatistics(const Model& model) {
  return std::ranges::any_of(model.graph.values(), [](const Value& v) {
    return v.role == Role::kStatistic && !v.producer.valid();
  });
}

class SampleNetBuilder {
 public:
  SampleNetBuilder(int64_t batch, Around around)
      : batch_(batch), around_(around), net_("sample", batch) {}

  // Where the sample makes sense.
  bool Fits(const Sample& sample) const {
    // A normalised sample of one row would see one value per channel.
    if (around_ == Around::kNormalized && batch_ == 1) return false;
    if (sample.on == On::kNothing) return around_ == Around::kRead;
    return sample.fits(sample.on == On::kImages
                           ? Shape{batch_, kChannels, kHeight, kWidth}
                           : Shape{batch_, kFeatures});
  }

  Result<Model> Build(const Sample& sample) {
    const ValueId x = Before(sample.on);
    ValueId y = sample.add(net_, x, "sample");
    if (around_ == Around::kPassedOn) y = net_.Bias("passed", y);
    if (around_ == Around::kNormalized) {
      y = net_.Relu(net_.BatchNorm("bn_after", y, 1e-2f));
    }
    constexpr int64_t kClasses = 3;
    if (around_ == Around::kPassedOn) {
      return net_.FinishText("after", net_.Flatten(y), kClasses);
    }
    ValueId logits = net_.Linear("after", net_.Flatten(y), kClasses);
    if (around_ == Around::kRead && sample.on != On::kNothing) {
      logits = net_.Add(
          logits, net_.Linear("beside", net_.Flatten(x), kClasses, false));
    }
    return net_.Finish(logits);
  }

 private:
  // Not square, so that height and width cannot be taken for each other.
  static constexpr int64_t kChannels = 3, kHeight = 6, kWidth = 5;
  static constexpr int64_t kFeatures = 10;

  ValueId Before(On on) {
    if (on == On::kNothing) return {};
    const bool learned = around_ != Around::kAlone;
    ValueId x;
    if (on == On::kImages) {
      x = net_.Images({.channels = learned ? 2 : kChannels,
                       .height = kHeight,
                       .width = kWidth});
      if (learned) x = net_.Conv2d("before", x, {.channels = kChannels});
    } else {
      x = net_.Images({.channels = 1, .height = 2, .width = kFeatures / 2});
      if (learned) x = net_.Conv2d("before", x, {});
      x = net_.Flatten(x);
    }
    if (around_ != Around::kNormalized) return x;
    return net_.Relu(net_.BatchNorm("bn_before", x, 1e-2f));
  }

  int64_t batch_;
  Around around_;
  Network net_;
};

// Calls body(net) for every sample of every entry in these places; the last two
// of Around show what an op reads and gives, whatever its attributes: they are
// for the first sample on images and the first on rows only.
template <typename F>
void ForEachSampleNet(int64_t batch, std::span<const Around> places,
                      const F& body) {
  for (const Entry* entry : Entries()) {
    std::set<On> met;
    for (const Sample& sample : entry->Samples()) {
      const bool first = met.insert(sample.on).second;
      for (const Around around : places) {
        SampleNetBuilder builder(batch, around);
        if (!builder.Fits(sample) || !(first || ForAll(around))) continue;
        Result<Model> model = builder.Build(sample);
        ASSERT_TRUE(model.ok()) << sample.what << model.status().message();
        const auto own = std::ranges::find_if(
            model->graph.ops(),
            [&](const Op& op) { return typeid(*op.def) == entry->def(); });
        ASSERT_TRUE(own != model->graph.ops().end())
            << "a sample without its op: " << sample.what;
        const SampleNet net{entry,
                            std::string(own->def->name()) + " " + sample.what +
                                ", " + AroundName(around),
                            *std::move(model)};
        SCOPED_TRACE(net.what);
        body(net);
        if (::testing::Test::HasFailure()) return;  // one is enough to look at
      }
    }
  }
}

}  // namespace thimble::testing
